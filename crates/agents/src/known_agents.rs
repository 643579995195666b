//! The command line tools we know: their programs, their logins and what each can do.
//!
//! A table. Looks at nothing itself: whoever asks looks at the files and variables named here.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAgent {
    /// The `kind` under `[agents.*]`.
    pub kind: &'static str,
    /// What people call it.
    pub name: &'static str,
    /// Its program on the search path.
    pub program: &'static str,
    /// Whose quota it uses.
    pub provider: &'static str,
    /// The npm package that brings it.
    pub package: &'static str,
    /// The newest version it was tried with.
    pub tried: &'static str,
    /// The oldest version it was tried with.
    pub oldest: &'static str,
    /// Variables any of which is a login.
    pub keys: &'static [&'static str],
    /// Files any of which is a login: a variable, what it stands for below home, and the rest.
    pub logins: &'static [AgentLogin],
    /// The command that logs in.
    pub login_command: &'static str,
    /// What it can do.
    pub can: AgentCapabilities,
}

/// Where a tool keeps its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLogin {
    /// The variable that names the folder.
    pub variable: &'static str,
    /// The folder below home without it.
    pub below_home: &'static str,
    /// The file in it.
    pub file: &'static str,
}

/// What a tool can do, driven by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentCapabilities {
    /// How it is spoken with.
    pub protocol: &'static str,
    /// A later attempt can go on where this one stopped.
    pub resume: bool,
    /// It can be asked to stop in the middle of a turn.
    pub interrupt: bool,
    /// It can be told something in the middle of a turn.
    pub steer: bool,
    /// It asks before it uses a tool.
    pub permissions: bool,
    /// It can use our MCP server.
    pub mcp: bool,
    pub tokens: bool,
    pub cost: bool,
    /// It says when a limit ends.
    pub reset_times: bool,
    /// Its turns can be limited.
    pub max_turns: bool,
    /// Its effort can be set.
    pub effort: bool,
    /// Its system prompt can be added to.
    pub system_prompt: bool,
}

impl AgentCapabilities {
    /// Every capability with its name.
    pub fn named_flags(&self) -> [(&'static str, bool); 11] {
        [
            ("resume", self.resume),
            ("interrupt", self.interrupt),
            ("steer", self.steer),
            ("permissions", self.permissions),
            ("mcp", self.mcp),
            ("tokens", self.tokens),
            ("cost", self.cost),
            ("reset_times", self.reset_times),
            ("max_turns", self.max_turns),
            ("effort", self.effort),
            ("system_prompt", self.system_prompt),
        ]
    }
}

/// The tools, in the order they are offered.
pub static KNOWN: [KnownAgent; 4] = [
    KnownAgent {
        kind: "claude",
        name: "Claude Code",
        program: "claude",
        provider: "anthropic",
        package: "@anthropic-ai/claude-code",
        tried: "2.1.325",
        oldest: "2.1.197",
        keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        logins: &[AgentLogin {
            variable: "CLAUDE_CONFIG_DIR",
            below_home: ".claude",
            file: ".credentials.json",
        }],
        login_command: "claude login",
        can: AgentCapabilities {
            protocol: "stream-json",
            resume: true,
            interrupt: true,
            steer: true,
            permissions: true,
            mcp: true,
            tokens: true,
            cost: true,
            reset_times: true,
            max_turns: true,
            effort: true,
            system_prompt: true,
        },
    },
    KnownAgent {
        kind: "codex",
        name: "Codex",
        program: "codex",
        provider: "openai",
        package: "@openai/codex",
        tried: "0.166.0",
        oldest: "0.147.0",
        keys: &["OPENAI_API_KEY", "CODEX_API_KEY"],
        logins: &[AgentLogin { variable: "CODEX_HOME", below_home: ".codex", file: "auth.json" }],
        login_command: "codex login",
        can: AgentCapabilities {
            protocol: "app-server",
            resume: true,
            interrupt: true,
            steer: true,
            permissions: true,
            mcp: true,
            tokens: true,
            cost: false,
            reset_times: true,
            max_turns: false,
            effort: true,
            system_prompt: true,
        },
    },
    KnownAgent {
        kind: "gemini",
        name: "Gemini CLI",
        program: "gemini",
        provider: "google",
        package: "@google/gemini-cli",
        tried: "0.61.0",
        oldest: "0.56.0",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        logins: &[AgentLogin {
            variable: "GEMINI_CLI_HOME",
            below_home: "",
            file: ".gemini/oauth_creds.json",
        }],
        login_command: "gemini",
        can: AgentCapabilities {
            protocol: "stream-json",
            resume: true,
            interrupt: false,
            steer: false,
            permissions: false,
            mcp: true,
            tokens: true,
            cost: false,
            reset_times: false,
            max_turns: true,
            effort: false,
            system_prompt: true,
        },
    },
    KnownAgent {
        kind: "opencode",
        name: "OpenCode",
        program: "opencode",
        provider: "opencode",
        package: "opencode-ai",
        tried: "1.18.33",
        oldest: "1.18.19",
        keys: &["OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"],
        logins: &[AgentLogin {
            variable: "XDG_DATA_HOME",
            below_home: ".local/share",
            file: "opencode/auth.json",
        }],
        login_command: "opencode auth login",
        can: AgentCapabilities {
            protocol: "json",
            resume: true,
            interrupt: false,
            steer: false,
            permissions: false,
            mcp: true,
            tokens: true,
            cost: true,
            reset_times: false,
            max_turns: false,
            effort: true,
            system_prompt: true,
        },
    },
];

/// What an ACP agent can do at most: each says for itself.
pub static ACP: AgentCapabilities = AgentCapabilities {
    protocol: "acp",
    resume: true,
    interrupt: true,
    steer: false,
    permissions: true,
    mcp: true,
    tokens: true,
    cost: true,
    reset_times: false,
    max_turns: false,
    effort: false,
    system_prompt: false,
};

/// The tool of a kind.
pub fn find_known_agent(kind: &str) -> Option<&'static KnownAgent> {
    KNOWN.iter().find(|known| known.kind == kind)
}

/// Where the program behind an npm wrapper may be, given the wrapper's path without links.
///
/// Some wrappers are scripts that keep signals to themselves, so that the tool outlives its killing.
pub fn native_program_paths(program: &str, os: &str, arch: &str) -> Vec<String> {
    let Some(package) = program.strip_suffix("/@openai/codex/bin/codex.js") else {
        return Vec::new();
    };
    let (cpu, triple_cpu) = match arch {
        "aarch64" => ("arm64", "aarch64"),
        _ => ("x64", "x86_64"),
    };
    let (system, triple) = match os {
        "macos" => ("darwin", format!("{triple_cpu}-apple-darwin")),
        _ => ("linux", format!("{triple_cpu}-unknown-linux-musl")),
    };
    let inside = format!("@openai/codex-{system}-{cpu}/vendor/{triple}/bin/codex");
    vec![format!("{package}/{inside}"), format!("{package}/@openai/codex/node_modules/{inside}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_of_codex_is_passed_by() {
        let paths =
            native_program_paths("/n/node_modules/@openai/codex/bin/codex.js", "linux", "x86_64");
        assert_eq!(
            paths[0],
            "/n/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
        );
        assert!(native_program_paths("/usr/bin/codex", "linux", "x86_64").is_empty());
    }

    #[test]
    fn every_known_tool_has_an_adapter() {
        for known in &KNOWN {
            assert!(crate::find_adapter(known.kind).is_ok(), "{}", known.kind);
        }
    }
}
