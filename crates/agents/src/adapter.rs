//! What every kind of agent has in common: a brief comes in, a launch goes out.
//!
//! Knows the kinds by name and nothing about any of them.

use std::collections::BTreeMap;

use mainstem_core::config;
use mainstem_core::id::{Oid, RunId};
use mainstem_core::plan::Task;

use crate::command::CommandAdapter;
use crate::drive::McpServerEntry;
use crate::launch::{AcpAdapter, ClaudeAdapter, CodexAdapter, GeminiAdapter, OpenCodeAdapter};
use crate::line_protocol::AgentOutputParser;
use crate::script::ScriptAdapter;

/// Everything an adapter may know about the attempt it launches.
#[derive(Debug, Clone, Copy)]
pub struct LaunchBrief<'a> {
    /// The task to work on.
    pub task: &'a Task,
    /// The run this attempt belongs to.
    pub run: &'a RunId,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The commit the workspace starts from.
    pub base: &'a Oid,
    /// The workspace, absolute; the agent's working directory.
    pub workspace: &'a str,
    /// First of the leased ports.
    pub port: u16,
    /// Folder for temporary files of this attempt.
    pub tmp: &'a str,
    /// Where the engine has written the prompt.
    pub prompt_file: &'a str,
    /// The model chosen for this attempt, if one was.
    pub model: Option<&'a str>,
    /// The session of an earlier attempt that is to be taken up.
    pub session: Option<&'a str>,
    /// The agent's name under `[agents.*]`.
    pub agent_name: &'a str,
    pub agent: &'a config::AgentSettings,
    /// Where the steps of a `script` agent are to be written.
    pub script_file: &'a str,
    /// Our own binary, for agents that are built in or driven by it.
    pub own_exe: &'a str,
    /// How hard the model should think, if that was chosen.
    pub effort: Option<&'a str>,
    /// Our MCP server, if this attempt gets one.
    pub mcp: Option<&'a McpServerEntry>,
    /// The engine's own variables: they say where a tool keeps its files.
    pub inherited: &'a [(String, String)],
}

/// How to start one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchSpec {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// Variables to add on top of the allow-list.
    pub env: BTreeMap<String, String>,
    /// Write the prompt to standard input.
    pub stdin_prompt: bool,
    /// Answers to questions may be written to standard input later.
    pub converse: bool,
    /// Files the engine writes before the start: path and content.
    pub files: Vec<(String, String)>,
    /// Absolute paths outside the workspace that the agent's tool must be able to write: its login and
    /// its sessions.
    pub state: Vec<String>,
    /// Those of them that are folders, to be made before the start: a wall lets through only what is there.
    pub folders: Vec<String>,
}

/// Why an attempt cannot be launched. None of these goes away by trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A `command` agent without a command.
    #[error(
        "agent `{agent}` has no command to run; set `command = [\"program\", \"argument\"]` under [agents.{agent}]"
    )]
    EmptyCommand { agent: String },
    /// A `run` line with nothing in it.
    #[error("task `{task}` has an empty `run`; add a shell command or remove the key")]
    EmptyRun { task: String },
    /// A `script` agent without steps.
    #[error(
        "task `{task}` has no `script` steps for agent `{agent}`; add steps or choose another agent"
    )]
    NoSteps { task: String, agent: String },
    /// A NUL byte, which no operating system takes in an argument or a variable.
    #[error("{place} of task `{task}` with agent `{agent}` contains a NUL byte; remove the byte")]
    Nul {
        /// What holds the byte.
        place: String,
        task: String,
        agent: String,
    },
    /// A variable name that cannot be one.
    #[error(
        "`{name}` under [agents.{agent}] env is not a variable name; use letters, digits and `_`"
    )]
    VariableName {
        /// The name as configured.
        name: String,
        agent: String,
    },
    /// Steps that do not fit into JSON.
    #[error("cannot write the script of task `{task}` as JSON: {cause}")]
    Script {
        task: String,
        /// What the encoder said.
        cause: String,
    },
    /// Settings in JSON that are none.
    #[error(
        "{name} under [agents.{agent}] env is not a JSON object: {cause}; Mainstem adds settings to this object"
    )]
    Settings {
        name: String,
        agent: String,
        /// What the parser said.
        cause: String,
    },
}

/// One kind of agent.
pub trait AgentAdapter: Sync {
    /// The value of `kind` under `[agents.*]`.
    fn kind(&self) -> &'static str;
    /// How to start an attempt.
    fn launch(&self, brief: &LaunchBrief<'_>) -> Result<LaunchSpec, LaunchError>;
    /// A fresh parser for the attempt's standard output.
    fn output_parser(&self) -> Box<dyn AgentOutputParser>;
}

static ADAPTERS: [&dyn AgentAdapter; 7] = [
    &CommandAdapter,
    &ScriptAdapter,
    &ClaudeAdapter,
    &CodexAdapter,
    &GeminiAdapter,
    &OpenCodeAdapter,
    &AcpAdapter,
];

/// A `kind` that no adapter answers to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent kind `{kind}`; known kinds: {}", .known.join(", "))]
pub struct UnknownAgentKind {
    /// The kind as configured.
    pub kind: String,
    /// The kinds there are.
    pub known: Vec<&'static str>,
}

/// The adapter of a kind.
pub fn find_adapter(kind: &str) -> Result<&'static dyn AgentAdapter, UnknownAgentKind> {
    ADAPTERS.iter().copied().find(|adapter| adapter.kind() == kind).ok_or_else(|| {
        UnknownAgentKind {
            kind: kind.to_owned(),
            known: ADAPTERS.iter().map(|adapter| adapter.kind()).collect(),
        }
    })
}

/// The variables every agent process gets (contract, section 5), over those its settings add.
pub(crate) fn agent_variables(brief: &LaunchBrief<'_>) -> BTreeMap<String, String> {
    let mut env = brief.agent.env.clone();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("MAINSTEM_RUN", brief.run.to_string());
    set("MAINSTEM_TASK", brief.task.id.to_string());
    set("MAINSTEM_ATTEMPT", brief.attempt.to_string());
    set("MAINSTEM_BASE", brief.base.to_string());
    set("MAINSTEM_PORT", brief.port.to_string());
    set("MAINSTEM_TMP", brief.tmp.to_owned());
    set("MAINSTEM_PROMPT", brief.prompt_file.to_owned());
    if let Some(model) = brief.model {
        set("MAINSTEM_MODEL", model.to_owned());
    }
    if let Some(effort) = brief.effort.or(brief.agent.effort.as_deref()) {
        set("MAINSTEM_EFFORT", effort.to_owned());
    }
    if let Some(role) = &brief.task.role {
        set("MAINSTEM_ROLE", role.clone());
    }
    env
}

/// Refuses what no process could be started with, so that it is said here and in words.
pub(crate) fn check_startable(
    launch: LaunchSpec,
    brief: &LaunchBrief<'_>,
) -> Result<LaunchSpec, LaunchError> {
    let agent = || brief.agent_name.to_owned();
    let nul =
        |place: String| LaunchError::Nul { place, task: brief.task.id.to_string(), agent: agent() };
    if launch.argv.iter().any(|word| word.contains('\0')) {
        return Err(nul("the command".to_owned()));
    }
    for (name, value) in &launch.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(LaunchError::VariableName { name: name.clone(), agent: agent() });
        }
        if value.contains('\0') {
            return Err(nul(format!("the variable {name}")));
        }
    }
    Ok(launch)
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use mainstem_core::id::TaskId;
    use mainstem_core::plan::ScriptStep;

    use super::*;

    /// Owns what a brief borrows.
    pub(crate) struct Case {
        pub(crate) task: Task,
        pub(crate) agent: config::AgentSettings,
        pub(crate) model: Option<String>,
        pub(crate) session: Option<String>,
        pub(crate) mcp: Option<McpServerEntry>,
        pub(crate) inherited: Vec<(String, String)>,
        run: RunId,
        base: Oid,
    }

    impl Case {
        pub(crate) fn new() -> Self {
            Self {
                task: task("T-1"),
                agent: config::AgentSettings {
                    kind: "command".into(),
                    command: vec!["./agent.sh".into(), "--fast".into()],
                    ..config::AgentSettings::default()
                },
                model: None,
                session: None,
                mcp: None,
                inherited: vec![("HOME".into(), "/home/me".into())],
                run: RunId::new("r1"),
                base: Oid::new("abc123"),
            }
        }

        pub(crate) fn launch(&self, kind: &str) -> Result<LaunchSpec, LaunchError> {
            find_adapter(kind).unwrap().launch(&LaunchBrief {
                task: &self.task,
                run: &self.run,
                attempt: 2,
                base: &self.base,
                workspace: "/w/T-1",
                port: 4100,
                tmp: "/t/T-1",
                prompt_file: "/s/prompt.md",
                model: self.model.as_deref(),
                session: self.session.as_deref(),
                agent_name: "mine",
                agent: &self.agent,
                script_file: "/s/script.json",
                own_exe: "/bin/mainstem",
                effort: None,
                mcp: self.mcp.as_ref(),
                inherited: &self.inherited,
            })
        }
    }

    pub(crate) fn task(id: &str) -> Task {
        Task { id: TaskId::new(id), title: "Schema".into(), ..Task::empty() }
    }

    #[test]
    fn a_command_agent_gets_its_argv_and_the_contract_variables() {
        let launch = Case::new().launch("command").unwrap();
        assert_eq!(launch.argv, ["./agent.sh", "--fast"]);
        let env: Vec<String> = launch.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            env,
            [
                "MAINSTEM_ATTEMPT=2",
                "MAINSTEM_BASE=abc123",
                "MAINSTEM_PORT=4100",
                "MAINSTEM_PROMPT=/s/prompt.md",
                "MAINSTEM_RUN=r1",
                "MAINSTEM_TASK=T-1",
                "MAINSTEM_TMP=/t/T-1",
            ]
        );
        assert!(launch.stdin_prompt && launch.converse && launch.files.is_empty());
    }

    #[test]
    fn model_role_and_configured_variables_are_added_but_cannot_forge_ours() {
        let mut case = Case::new();
        case.model = Some("big".into());
        case.task.role = Some("coder".into());
        case.agent.env.insert("MODE".into(), "x".into());
        case.agent.env.insert("MAINSTEM_TASK".into(), "other".into());
        let env = case.launch("command").unwrap().env;
        assert_eq!(env["MAINSTEM_MODEL"], "big");
        assert_eq!(env["MAINSTEM_ROLE"], "coder");
        assert_eq!(env["MODE"], "x");
        assert_eq!(env["MAINSTEM_TASK"], "T-1");
    }

    #[test]
    fn a_run_line_wins_over_the_configured_command() {
        let mut case = Case::new();
        case.task.run = Some("make -C 'x y' && echo $HOME".into());
        let argv = case.launch("command").unwrap().argv;
        assert_eq!(argv, ["/bin/sh", "-c", "make -C 'x y' && echo $HOME"]);
    }

    #[test]
    fn what_cannot_be_started_is_said_in_words() {
        let mut case = Case::new();
        case.agent.command.clear();
        let text = case.launch("command").unwrap_err().to_string();
        assert!(text.contains("agent `mine` has no command"), "{text}");
        case.agent.command = vec![" ".into()];
        assert!(matches!(case.launch("command"), Err(LaunchError::EmptyCommand { .. })));
        case.task.run = Some(" \n".into());
        assert!(matches!(case.launch("command"), Err(LaunchError::EmptyRun { .. })));
        case.task.run = Some("a\0b".into());
        assert!(matches!(case.launch("command"), Err(LaunchError::Nul { .. })));
        case.task.run = Some("true".into());
        case.agent.env.insert("A=B".into(), String::new());
        assert!(matches!(case.launch("command"), Err(LaunchError::VariableName { .. })));
        assert!(matches!(case.launch("script"), Err(LaunchError::NoSteps { .. })));
    }

    #[test]
    fn a_script_agent_is_our_own_binary_with_its_steps_in_a_file() {
        let mut case = Case::new();
        case.task.script = vec![
            ScriptStep::Write { path: "a.txt".into(), text: "hello".into() },
            ScriptStep::Commit { message: "a".into() },
        ];
        let launch = case.launch("script").unwrap();
        assert_eq!(launch.argv, ["/bin/mainstem", "__script", "/s/script.json"]);
        assert_eq!(
            launch.files,
            [(
                "/s/script.json".to_owned(),
                r#"[{"step":"write","path":"a.txt","text":"hello"},{"step":"commit","message":"a"}]"#
                    .to_owned()
            )]
        );
        assert_eq!(launch.env["MAINSTEM_ATTEMPT"], "2");
    }

    #[test]
    fn every_kind_has_its_adapter_and_unknown_kinds_name_them() {
        assert_eq!(
            find_adapter("commnad").err().unwrap().to_string(),
            "unknown agent kind `commnad`; known kinds: command, script, claude, codex, \
             gemini, opencode, acp"
        );
        for kind in config::keys::AGENT_KINDS {
            assert_eq!(find_adapter(kind).unwrap().kind(), *kind);
        }
    }
}
