//! Every setting in one table: what it is called, what it takes, what it defaults to.
//!
//! Parsing, the messages about unknown keys, `mainstem config` and the reference page all read
//! this table, so they cannot disagree.

mod kind;
mod landing;

pub use kind::{KeyDoc, Kind};

/// Kinds of agents that the settings may name.
pub const AGENT_KINDS: &[&str] =
    &["command", "script", "claude", "codex", "gemini", "opencode", "acp"];

/// Environment variables of ours that are no settings: what agents and planners are given.
pub const NOT_SETTINGS: [&str; 23] = [
    "MAINSTEM_RUN",
    "MAINSTEM_TASK",
    "MAINSTEM_ATTEMPT",
    "MAINSTEM_BASE",
    "MAINSTEM_PORT",
    "MAINSTEM_TMP",
    "MAINSTEM_PROMPT",
    "MAINSTEM_STAGE",
    "MAINSTEM_EPIC",
    "MAINSTEM_OUTPUT",
    "MAINSTEM_LOG",
    "MAINSTEM_JOB",
    "MAINSTEM_MODEL",
    "MAINSTEM_ROLE",
    "MAINSTEM_TREE",
    "MAINSTEM_REVIEWER",
    "MAINSTEM_MCP_SOCKET",
    "MAINSTEM_MCP_TOKEN",
    "MAINSTEM_CRASH_AT",
    "MAINSTEM_CRASH_LOG",
    "MAINSTEM_EFFECTS_TWICE",
    "MAINSTEM_FAIL_AT",
    "MAINSTEM_FAIL_LOG",
];

const fn key(key: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> KeyDoc {
    KeyDoc { key, kind, default, doc, choices: &[] }
}

const fn choice(
    key: &'static str,
    choices: &'static [&'static str],
    default: &'static str,
    doc: &'static str,
) -> KeyDoc {
    KeyDoc { key, kind: Kind::Choice, default, doc, choices }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

/// Every setting, in the order of the reference.
pub fn keys() -> impl Iterator<Item = &'static KeyDoc> {
    [FIRST, landing::KEYS, LAST].into_iter().flatten()
}

/// The setting at a dotted path, with names of agents and of table entries as written.
pub fn find(path: &str) -> Option<&'static KeyDoc> {
    keys().find(|doc| doc.key == path).or_else(|| {
        let (section, rest) = path.split_once('.')?;
        let (_, last) = rest.rsplit_once('.')?;
        let of_any = |doc: &&KeyDoc| {
            let (of, key) = doc.key.split_once(".*.").unwrap_or_default();
            of == section && key == last
        };
        keys().find(of_any)
    })
}

/// The first sections; those of gates, reviews and landing follow, then the rest.
static FIRST: &[KeyDoc] = &[
    key("run.agent", Kind::Text, "", "Default agent for tasks."),
    key("run.jobs", int(1, 10_000), "3", "Maximum number of agents running at once."),
    choice(
        "run.on_failure",
        &["continue", "drain", "abort"],
        "\"continue\"",
        "When a task fails: continue with the other tasks, drain (let running tasks finish, start no more), or abort the run.",
    ),
    key("run.retries", int(0, 1_000), "1", "Retries after a failed attempt."),
    key("run.timeout", Kind::Duration, "\"1h\"", "Time limit of an attempt; 0s means no limit."),
    key(
        "run.idle_timeout",
        Kind::Duration,
        "\"0s\"",
        "Stop an attempt that prints nothing for this long; 0s means never.",
    ),
    key(
        "run.stall_restarts",
        int(0, 1_000),
        "1",
        "How often a stalled attempt is restarted in the same agent session before the attempt fails.",
    ),
    choice(
        "run.on_looping",
        &["ask", "fail"],
        "\"ask\"",
        "When an agent repeats the same step over and over: ask a person, or fail the task.",
    ),
    key(
        "run.preflight",
        Kind::Bool,
        "true",
        "Test checks, agents and disk space before the first task starts; false is the same as --no-preflight.",
    ),
    key(
        "run.start_over",
        Kind::Texts,
        "[]",
        "Outcomes after which a retry starts from the target branch instead of the previous attempt's work, such as agent_failed or gate_failed.",
    ),
    key(
        "run.grace",
        Kind::Duration,
        "\"10s\"",
        "Time an agent has to exit before the agent is killed.",
    ),
    key(
        "limits.per_provider",
        Kind::Counts,
        "{}",
        "Maximum number of agents running at once, by provider.",
    ),
    key(
        "limits.per_agent",
        Kind::Counts,
        "{}",
        "Maximum number of agents running at once, by agent name.",
    ),
    key(
        "limits.per_role",
        Kind::Counts,
        "{}",
        "Maximum number of agents running at once, by role.",
    ),
    key(
        "limits.verify",
        int(0, 10_000),
        "0",
        "Maximum number of tasks being checked at once; 0 means the value of run.jobs.",
    ),
    key(
        "limits.memory_per_agent",
        Kind::Size,
        "\"0\"",
        "Memory limit of an agent and its child processes, which are killed above this limit; 0 means no limit.",
    ),
    key(
        "limits.disk_floor",
        Kind::Size,
        "\"500M\"",
        "Start no attempt while workspaces, state or repository have less free disk space than this.",
    ),
    key(
        "limits.load_ceiling",
        Kind::Number,
        "0.0",
        "Start no additional agent above this load average (one agent always runs); 0 means no limit.",
    ),
    key(
        "limits.memory_floor",
        Kind::Size,
        "\"256M\"",
        "Start no additional agent below this much available memory (one agent always runs); 0 means no limit.",
    ),
    key(
        "limits.pressure_ceiling",
        Kind::Number,
        "20.0",
        "Start no additional agent above this memory pressure (PSI `some`, percent; one agent always runs); 0 means no limit.",
    ),
    key("limits.output", Kind::Size, "\"64M\"", "Maximum size of the log of an attempt."),
    key("limits.file_size", Kind::Size, "\"10M\"", "Largest file that may land; 0 means no limit."),
    key(
        "limits.rate_limit_waits",
        int(0, 10_000),
        "5",
        "Consecutive rate-limit waits before a task fails.",
    ),
    key(
        "limits.rate_limit_wait",
        Kind::Duration,
        "\"60s\"",
        "How long to wait after a rate limit without a retry time.",
    ),
    key(
        "limits.quota_wait",
        Kind::Duration,
        "\"30m\"",
        "How long to wait after an exhausted quota without a reset time.",
    ),
    key(
        "limits.auto_resume",
        Kind::Bool,
        "true",
        "Resume automatically when a quota resets; false waits for `mainstem resume`.",
    ),
    key(
        "limits.shared",
        Kind::Bool,
        "true",
        "Share provider rate limits between all of your repositories on this machine.",
    ),
    key(
        "limits.quiet_hours",
        Kind::Text,
        "",
        "Time of day in which no attempt starts, such as \"22:00-07:00\" (local time).",
    ),
    key(
        "limits.breaker",
        int(0, 10_000),
        "5",
        "Consecutive failures of a provider, in different attempts, before a pause in the use of that provider; 0 means never.",
    ),
    key(
        "limits.breaker_wait",
        Kind::Duration,
        "\"1m\"",
        "Length of the first pause after repeated provider failures; doubles each time the provider fails again.",
    ),
    key(
        "limits.fallback_after",
        Kind::Duration,
        "\"10m\"",
        "Use a fallback agent if a provider stays unavailable for longer than this.",
    ),
    key(
        "workspace.root",
        Kind::Text,
        "",
        "Folder for workspaces (default: next to the repository).",
    ),
    key(
        "workspace.editor",
        Kind::Texts,
        "[]",
        "Command that `mainstem open` runs with the path of a workspace (default: $VISUAL, then $EDITOR).",
    ),
    choice(
        "workspace.unit",
        &["task", "epic", "phase", "none"],
        "\"task\"",
        "Which tasks share a workspace.",
    ),
    choice(
        "workspace.kind",
        &["worktree", "clone"],
        "\"worktree\"",
        "How workspaces are created; a clone has its own .git folder, separate from yours.",
    ),
    key(
        "workspace.setup",
        Kind::Texts,
        "[]",
        "Commands to run in a new workspace before the agent starts.",
    ),
    key(
        "workspace.include",
        Kind::Globs,
        "[]",
        "Git-ignored files to copy into workspaces, in addition to .worktreeinclude.",
    ),
    choice(
        "workspace.keep",
        &["until-landed", "failed", "always"],
        "\"until-landed\"",
        "How long workspaces are kept: until-landed keeps those of failed and blocked tasks until they land or are cancelled, failed keeps all that did not land, always keeps all. `mainstem clean` removes kept workspaces.",
    ),
    choice(
        "schedule.barrier",
        &["none", "level", "epic", "phase"],
        "\"none\"",
        "Groups of tasks that must finish before the next group starts.",
    ),
    choice(
        "schedule.satisfied_by",
        &["landed", "verified", "done"],
        "\"landed\"",
        "State a task must reach before tasks that need this task can start.",
    ),
];

static LAST: &[KeyDoc] = &[
    key("budget.usd", Kind::Number, "", "Budget of a run in US dollars (default: no limit)."),
    key(
        "budget.hard",
        Kind::Bool,
        "true",
        "Start no attempt once the budget is spent; false only warns.",
    ),
    key(
        "budget.per_attempt",
        Kind::Number,
        "0.0",
        "US dollars reserved for an attempt until actual costs are known (then their average is used).",
    ),
    key(
        "budget.per_task",
        Kind::Number,
        "",
        "Budget of a task in US dollars, over all attempts (default: no limit).",
    ),
    key("models.by_role", Kind::Variables, "{}", "Model or tier by role."),
    key("models.by_priority", Kind::Variables, "{}", "Model or tier by minimum task priority."),
    key(
        "reviewers.*.agent",
        Kind::Text,
        "",
        "Agent that reviews (default: the agent with the name of the reviewer).",
    ),
    key(
        "reviewers.*.focus",
        Kind::Text,
        "",
        "What the reviewer should look for; added to the prompt.",
    ),
    key(
        "reviewers.*.paths",
        Kind::Globs,
        "[]",
        "Review only changes in these files; empty means all files.",
    ),
    key(
        "reviewers.*.min_lines",
        int(0, 1_000_000),
        "0",
        "Review only changes of at least this many lines.",
    ),
    key(
        "reviewers.*.model",
        Kind::Text,
        "",
        "Model of the reviewer (default: the model of the agent).",
    ),
    key("prices.*.input", Kind::Number, "", "US dollars per million input tokens."),
    key("prices.*.output", Kind::Number, "", "US dollars per million output tokens."),
    key(
        "prices.*.cache_read",
        Kind::Number,
        "",
        "US dollars per million tokens read from the cache.",
    ),
    key(
        "prices.*.cache_write",
        Kind::Number,
        "",
        "US dollars per million tokens written to the cache.",
    ),
    KeyDoc {
        key: "agents.*.kind",
        kind: Kind::Choice,
        default: "",
        doc: "Type of agent.",
        choices: AGENT_KINDS,
    },
    key("agents.*.command", Kind::Command, "[]", "Command line of a command agent."),
    key(
        "agents.*.provider",
        Kind::Text,
        "",
        "Provider whose quota the agent uses (default: anthropic, openai or google according to kind, otherwise the name of the agent).",
    ),
    key("agents.*.model", Kind::Text, "", "Default model for tasks."),
    key(
        "agents.*.secrets",
        Kind::Texts,
        "[]",
        "Environment variables with secrets, such as API keys, that are passed to the agent.",
    ),
    key("agents.*.env", Kind::Variables, "{}", "Additional environment variables."),
    key(
        "agents.*.fallback",
        Kind::Texts,
        "[]",
        "Agents to use while the provider of this agent is unavailable.",
    ),
    key(
        "agents.*.models",
        Kind::Variables,
        "{}",
        "Models by tier (cheap, middle, top); each attempt uses the one that suits the task.",
    ),
    choice(
        "agents.*.billing",
        &["metered", "included"],
        "",
        "Whether usage is billed by amount or included in a subscription.",
    ),
    choice("agents.*.preset", &["aider"], "", "Built-in command line for a command agent."),
    key(
        "agents.*.binary",
        Kind::Text,
        "",
        "Path of the agent's program (default: the name of the kind, found on PATH).",
    ),
    key("agents.*.args", Kind::Texts, "[]", "Additional command-line arguments."),
    key("agents.*.effort", Kind::Text, "", "Reasoning effort, in the words of the agent's CLI."),
    key("agents.*.system_prompt", Kind::Text, "", "Instructions to append to the system prompt."),
    key(
        "agents.*.allowed_tools",
        Kind::Texts,
        "[]",
        "Tools the agent may use; empty means all tools.",
    ),
    key(
        "agents.*.max_turns",
        int(0, 100_000),
        "0",
        "Maximum number of model turns in an attempt; 0 means no limit.",
    ),
    choice(
        "agents.*.permission",
        &["bypass", "list"],
        "\"bypass\"",
        "Tool permissions: bypass allows every tool and relies on the sandbox, list allows only allowed_tools.",
    ),
    choice(
        "sandbox.kind",
        &["auto", "bwrap", "landlock", "off"],
        "\"auto\"",
        "Sandbox for agents, setup commands and checks; auto uses the strongest one available, off must be set explicitly.",
    ),
    key(
        "sandbox.write",
        Kind::Texts,
        "[]",
        "Paths that agents, setup commands and checks may write to, in addition to the workspace, the temporary folder and the defaults.",
    ),
    key(
        "sandbox.write_defaults",
        Kind::Bool,
        "true",
        "Give build tools private caches in each attempt; false allows only the paths in sandbox.write.",
    ),
    key("sandbox.read", Kind::Texts, "[]", "Hidden paths that may be read anyway."),
    key("sandbox.hide", Kind::Texts, "[]", "Paths to hide in addition to keys and credentials."),
    choice(
        "sandbox.tmp",
        &["auto", "private", "shared"],
        "\"auto\"",
        "Which /tmp the sandbox has: auto is private for LLM agents and shared for your own commands.",
    ),
    choice(
        "sandbox.network",
        &["open", "loopback", "none"],
        "\"open\"",
        "Network access in the sandbox; loopback is a private localhost without other access and needs bubblewrap.",
    ),
    choice(
        "sandbox.sockets",
        &["auto", "open", "blocked"],
        "\"auto\"",
        "Unix sockets where the sandbox cannot hide them; auto blocks all of them if a container daemon or an SSH agent could be reached.",
    ),
    key(
        "sandbox.processes",
        int(0, 1_000_000),
        "0",
        "Maximum number of processes of your user in the sandbox (has no effect for root); 0 means no limit.",
    ),
    key(
        "sandbox.file_size",
        Kind::Size,
        "\"0\"",
        "Largest file that can be written in the sandbox; 0 means no limit.",
    ),
    key(
        "secrets.allow",
        Kind::Texts,
        "[]",
        "Exceptions of the secret scan: `path:GLOB` for files, `rule:NAME` for a rule, otherwise a text that the line contains.",
    ),
    key(
        "snapshots.every",
        Kind::Duration,
        "\"60s\"",
        "Time between snapshots; 0s means no snapshots.",
    ),
    key(
        "snapshots.keep",
        Kind::Duration,
        "\"14d\"",
        "How long snapshots are kept after a task landed; 0s removes them immediately, 3650d keeps them. Snapshots of tasks that have not landed are always kept.",
    ),
    key(
        "prompt.template",
        Kind::Text,
        "",
        "Prompt template file, relative to the repository (default: the built-in template).",
    ),
    key(
        "prompt.tokens",
        int(2_000, 1_000_000),
        "64000",
        "Maximum length of a prompt in tokens of four bytes; the least important parts are shortened first.",
    ),
    key(
        "questions.policy",
        Kind::Rules,
        "[]",
        "Automatic answers to questions as \"PATTERN => ANSWER\", where * matches any text; the first match wins.",
    ),
    key(
        "questions.agent",
        Kind::Text,
        "",
        "Agent that answers questions no rule matches, with the plan as context (default: questions wait for a person).",
    ),
    key(
        "questions.agent_timeout",
        Kind::Duration,
        "\"5m\"",
        "Time limit of the answering agent; after that, the question waits for a person.",
    ),
    key(
        "questions.default",
        Kind::Text,
        "",
        "Answer to use when a deadline passes and the question has no default; if the question has options, only one of those is used.",
    ),
    key(
        "questions.deadline",
        Kind::Duration,
        "\"0s\"",
        "Deadline of questions without one; 0s means none.",
    ),
    key(
        "lessons.learn",
        Kind::Bool,
        "true",
        "Learn lessons from attempts and add them to later prompts.",
    ),
    key(
        "lessons.folder",
        Kind::Text,
        "",
        "Folder for lessons, relative to the repository (default: next to the journal).",
    ),
    choice("store.kind", &["embedded"], "\"embedded\"", "Where the state of runs is stored."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_documented() {
        for (i, doc) in keys().enumerate() {
            assert!(keys().take(i).all(|other| other.key != doc.key), "{}", doc.key);
            assert!(doc.doc.ends_with('.') && !doc.doc.contains('\n'), "{}", doc.key);
            assert_eq!(doc.kind == Kind::Choice, !doc.choices.is_empty(), "{}", doc.key);
        }
    }

    #[test]
    fn agents_share_their_keys() {
        assert_eq!(find("agents.mine.kind").map(|doc| doc.key), Some("agents.*.kind"));
        assert_eq!(find("agents.a.b.kind").map(|doc| doc.key), Some("agents.*.kind"));
        assert_eq!(find("agents.kind"), None);
        assert_eq!(find("run.job"), None);
    }
}
