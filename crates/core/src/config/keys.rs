//! Every setting in one table: what it is called, what it takes, what it defaults to.
//!
//! Parsing, the messages about unknown keys, `mainstem config` and the reference page all read
//! this table, so they cannot disagree.

mod kind;
mod landing;

pub use kind::{KeyDoc, SettingKind};

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

const fn setting_key(
    key: &'static str,
    kind: SettingKind,
    default: &'static str,
    doc: &'static str,
) -> KeyDoc {
    KeyDoc { key, kind, default, doc, choices: &[] }
}

const fn choice_key(
    key: &'static str,
    choices: &'static [&'static str],
    default: &'static str,
    doc: &'static str,
) -> KeyDoc {
    KeyDoc { key, kind: SettingKind::Choice, default, doc, choices }
}

const fn int_kind(min: i64, max: i64) -> SettingKind {
    SettingKind::Int { min, max }
}

/// Every setting, in the order of the reference.
pub fn all_keys() -> impl Iterator<Item = &'static KeyDoc> {
    [FIRST, landing::KEYS, LAST].into_iter().flatten()
}

/// The setting at a dotted path, with names of agents and of table entries as written.
pub fn find_key(path: &str) -> Option<&'static KeyDoc> {
    all_keys().find(|doc| doc.key == path).or_else(|| {
        let (section, rest) = path.split_once('.')?;
        let (_, last) = rest.rsplit_once('.')?;
        let of_any = |doc: &&KeyDoc| {
            let (of, key) = doc.key.split_once(".*.").unwrap_or_default();
            of == section && key == last
        };
        all_keys().find(of_any)
    })
}

/// The first sections; those of gates, reviews and landing follow, then the rest.
static FIRST: &[KeyDoc] = &[
    setting_key("run.agent", SettingKind::Text, "", "Default agent for tasks."),
    setting_key("run.jobs", int_kind(1, 10_000), "3", "Maximum number of agents running at once."),
    choice_key(
        "run.on_failure",
        &["continue", "drain", "abort"],
        "\"continue\"",
        "When a task fails: continue with the other tasks, drain (let running tasks finish, start no more), or abort the run.",
    ),
    setting_key("run.retries", int_kind(0, 1_000), "1", "Retries after a failed attempt."),
    setting_key(
        "run.timeout",
        SettingKind::Duration,
        "\"1h\"",
        "Time limit of an attempt; 0s means no limit.",
    ),
    setting_key(
        "run.idle_timeout",
        SettingKind::Duration,
        "\"0s\"",
        "Stop an attempt that prints nothing for this long; 0s means never.",
    ),
    setting_key(
        "run.stall_restarts",
        int_kind(0, 1_000),
        "1",
        "How often a stalled attempt is restarted in the same agent session before the attempt fails.",
    ),
    choice_key(
        "run.on_looping",
        &["ask", "fail"],
        "\"ask\"",
        "When an agent repeats the same step over and over: ask a person, or fail the task.",
    ),
    setting_key(
        "run.preflight",
        SettingKind::Bool,
        "true",
        "Test checks, agents and disk space before the first task starts; false is the same as --no-preflight.",
    ),
    setting_key(
        "run.start_over",
        SettingKind::Texts,
        "[]",
        "Outcomes after which a retry starts from the target branch instead of the previous attempt's work, such as agent_failed or gate_failed.",
    ),
    setting_key(
        "run.grace",
        SettingKind::Duration,
        "\"10s\"",
        "Time an agent has to exit before the agent is killed.",
    ),
    setting_key(
        "limits.per_provider",
        SettingKind::Counts,
        "{}",
        "Maximum number of agents running at once, by provider.",
    ),
    setting_key(
        "limits.per_agent",
        SettingKind::Counts,
        "{}",
        "Maximum number of agents running at once, by agent name.",
    ),
    setting_key(
        "limits.per_role",
        SettingKind::Counts,
        "{}",
        "Maximum number of agents running at once, by role.",
    ),
    setting_key(
        "limits.verify",
        int_kind(0, 10_000),
        "0",
        "Maximum number of tasks being checked at once; 0 means the value of run.jobs.",
    ),
    setting_key(
        "limits.memory_per_agent",
        SettingKind::Size,
        "\"0\"",
        "Memory limit of an agent and its child processes, which are killed above this limit; 0 means no limit.",
    ),
    setting_key(
        "limits.disk_floor",
        SettingKind::Size,
        "\"500M\"",
        "Start no attempt while workspaces, state or repository have less free disk space than this.",
    ),
    setting_key(
        "limits.load_ceiling",
        SettingKind::Number,
        "0.0",
        "Start no additional agent above this load average (one agent always runs); 0 means no limit.",
    ),
    setting_key(
        "limits.memory_floor",
        SettingKind::Size,
        "\"256M\"",
        "Start no additional agent below this much available memory (one agent always runs); 0 means no limit.",
    ),
    setting_key(
        "limits.pressure_ceiling",
        SettingKind::Number,
        "20.0",
        "Start no additional agent above this memory pressure (PSI `some`, percent; one agent always runs); 0 means no limit.",
    ),
    setting_key(
        "limits.output",
        SettingKind::Size,
        "\"64M\"",
        "Maximum size of the log of an attempt.",
    ),
    setting_key(
        "limits.file_size",
        SettingKind::Size,
        "\"10M\"",
        "Largest file that may land; 0 means no limit.",
    ),
    setting_key(
        "limits.rate_limit_waits",
        int_kind(0, 10_000),
        "5",
        "Consecutive rate-limit waits before a task fails.",
    ),
    setting_key(
        "limits.rate_limit_wait",
        SettingKind::Duration,
        "\"60s\"",
        "How long to wait after a rate limit without a retry time.",
    ),
    setting_key(
        "limits.quota_wait",
        SettingKind::Duration,
        "\"30m\"",
        "How long to wait after an exhausted quota without a reset time.",
    ),
    setting_key(
        "limits.auto_resume",
        SettingKind::Bool,
        "true",
        "Resume automatically when a quota resets; false waits for `mainstem resume`.",
    ),
    setting_key(
        "limits.shared",
        SettingKind::Bool,
        "true",
        "Share provider rate limits between all of your repositories on this machine.",
    ),
    setting_key(
        "limits.quiet_hours",
        SettingKind::Text,
        "",
        "Time of day in which no attempt starts, such as \"22:00-07:00\" (local time).",
    ),
    setting_key(
        "limits.breaker",
        int_kind(0, 10_000),
        "5",
        "Consecutive failures of a provider, in different attempts, before a pause in the use of that provider; 0 means never.",
    ),
    setting_key(
        "limits.breaker_wait",
        SettingKind::Duration,
        "\"1m\"",
        "Length of the first pause after repeated provider failures; doubles each time the provider fails again.",
    ),
    setting_key(
        "limits.fallback_after",
        SettingKind::Duration,
        "\"10m\"",
        "Use a fallback agent if a provider stays unavailable for longer than this.",
    ),
    setting_key(
        "workspace.root",
        SettingKind::Text,
        "",
        "Folder for workspaces (default: next to the repository).",
    ),
    setting_key(
        "workspace.editor",
        SettingKind::Texts,
        "[]",
        "Command that `mainstem open` runs with the path of a workspace (default: $VISUAL, then $EDITOR).",
    ),
    choice_key(
        "workspace.unit",
        &["task", "epic", "phase", "none"],
        "\"task\"",
        "Which tasks share a workspace.",
    ),
    choice_key(
        "workspace.kind",
        &["worktree", "clone"],
        "\"worktree\"",
        "How workspaces are created; a clone has its own .git folder, separate from yours.",
    ),
    setting_key(
        "workspace.setup",
        SettingKind::Texts,
        "[]",
        "Commands to run in a new workspace before the agent starts.",
    ),
    setting_key(
        "workspace.include",
        SettingKind::Globs,
        "[]",
        "Git-ignored files to copy into workspaces, in addition to .worktreeinclude.",
    ),
    choice_key(
        "workspace.keep",
        &["until-landed", "failed", "always"],
        "\"until-landed\"",
        "How long workspaces are kept: until-landed keeps those of failed and blocked tasks until they land or are cancelled, failed keeps all that did not land, always keeps all. `mainstem clean` removes kept workspaces.",
    ),
    choice_key(
        "schedule.barrier",
        &["none", "level", "epic", "phase"],
        "\"none\"",
        "Groups of tasks that must finish before the next group starts.",
    ),
    choice_key(
        "schedule.satisfied_by",
        &["landed", "verified", "done"],
        "\"landed\"",
        "State a task must reach before tasks that need this task can start.",
    ),
];

static LAST: &[KeyDoc] = &[
    setting_key(
        "budget.usd",
        SettingKind::Number,
        "",
        "Budget of a run in US dollars (default: no limit).",
    ),
    setting_key(
        "budget.hard",
        SettingKind::Bool,
        "true",
        "Start no attempt once the budget is spent; false only warns.",
    ),
    setting_key(
        "budget.per_attempt",
        SettingKind::Number,
        "0.0",
        "US dollars reserved for an attempt until actual costs are known (then their average is used).",
    ),
    setting_key(
        "budget.per_task",
        SettingKind::Number,
        "",
        "Budget of a task in US dollars, over all attempts (default: no limit).",
    ),
    setting_key("models.by_role", SettingKind::Variables, "{}", "Model or tier by role."),
    setting_key(
        "models.by_priority",
        SettingKind::Variables,
        "{}",
        "Model or tier by minimum task priority.",
    ),
    setting_key(
        "reviewers.*.agent",
        SettingKind::Text,
        "",
        "Agent that reviews (default: the agent with the name of the reviewer).",
    ),
    setting_key(
        "reviewers.*.focus",
        SettingKind::Text,
        "",
        "What the reviewer should look for; added to the prompt.",
    ),
    setting_key(
        "reviewers.*.paths",
        SettingKind::Globs,
        "[]",
        "Review only changes in these files; empty means all files.",
    ),
    setting_key(
        "reviewers.*.min_lines",
        int_kind(0, 1_000_000),
        "0",
        "Review only changes of at least this many lines.",
    ),
    setting_key(
        "reviewers.*.model",
        SettingKind::Text,
        "",
        "Model of the reviewer (default: the model of the agent).",
    ),
    setting_key("prices.*.input", SettingKind::Number, "", "US dollars per million input tokens."),
    setting_key(
        "prices.*.output",
        SettingKind::Number,
        "",
        "US dollars per million output tokens.",
    ),
    setting_key(
        "prices.*.cache_read",
        SettingKind::Number,
        "",
        "US dollars per million tokens read from the cache.",
    ),
    setting_key(
        "prices.*.cache_write",
        SettingKind::Number,
        "",
        "US dollars per million tokens written to the cache.",
    ),
    KeyDoc {
        key: "agents.*.kind",
        kind: SettingKind::Choice,
        default: "",
        doc: "Type of agent.",
        choices: AGENT_KINDS,
    },
    setting_key("agents.*.command", SettingKind::Command, "[]", "Command line of a command agent."),
    setting_key(
        "agents.*.provider",
        SettingKind::Text,
        "",
        "Provider whose quota the agent uses (default: anthropic, openai or google according to kind, otherwise the name of the agent).",
    ),
    setting_key("agents.*.model", SettingKind::Text, "", "Default model for tasks."),
    setting_key(
        "agents.*.secrets",
        SettingKind::Texts,
        "[]",
        "Environment variables with secrets, such as API keys, that are passed to the agent.",
    ),
    setting_key("agents.*.env", SettingKind::Variables, "{}", "Additional environment variables."),
    setting_key(
        "agents.*.fallback",
        SettingKind::Texts,
        "[]",
        "Agents to use while the provider of this agent is unavailable.",
    ),
    setting_key(
        "agents.*.models",
        SettingKind::Variables,
        "{}",
        "Models by tier (cheap, middle, top); each attempt uses the one that suits the task.",
    ),
    choice_key(
        "agents.*.billing",
        &["metered", "included"],
        "",
        "Whether usage is billed by amount or included in a subscription.",
    ),
    choice_key("agents.*.preset", &["aider"], "", "Built-in command line for a command agent."),
    setting_key(
        "agents.*.binary",
        SettingKind::Text,
        "",
        "Path of the agent's program (default: the name of the kind, found on PATH).",
    ),
    setting_key("agents.*.args", SettingKind::Texts, "[]", "Additional command-line arguments."),
    setting_key(
        "agents.*.effort",
        SettingKind::Text,
        "",
        "Reasoning effort, in the words of the agent's CLI.",
    ),
    setting_key(
        "agents.*.system_prompt",
        SettingKind::Text,
        "",
        "Instructions to append to the system prompt.",
    ),
    setting_key(
        "agents.*.allowed_tools",
        SettingKind::Texts,
        "[]",
        "Tools the agent may use; empty means all tools.",
    ),
    setting_key(
        "agents.*.max_turns",
        int_kind(0, 100_000),
        "0",
        "Maximum number of model turns in an attempt; 0 means no limit.",
    ),
    choice_key(
        "agents.*.permission",
        &["bypass", "list"],
        "\"bypass\"",
        "Tool permissions: bypass allows every tool and relies on the sandbox, list allows only allowed_tools.",
    ),
    choice_key(
        "sandbox.kind",
        &["auto", "bwrap", "landlock", "off"],
        "\"auto\"",
        "Sandbox for agents, setup commands and checks; auto uses the strongest one available, off must be set explicitly.",
    ),
    setting_key(
        "sandbox.write",
        SettingKind::Texts,
        "[]",
        "Paths that agents, setup commands and checks may write to, in addition to the workspace, the temporary folder and the defaults.",
    ),
    setting_key(
        "sandbox.write_defaults",
        SettingKind::Bool,
        "true",
        "Give build tools private caches in each attempt; false allows only the paths in sandbox.write.",
    ),
    setting_key("sandbox.read", SettingKind::Texts, "[]", "Hidden paths that may be read anyway."),
    setting_key(
        "sandbox.hide",
        SettingKind::Texts,
        "[]",
        "Paths to hide in addition to keys and credentials.",
    ),
    choice_key(
        "sandbox.tmp",
        &["auto", "private", "shared"],
        "\"auto\"",
        "Which /tmp the sandbox has: auto is private for LLM agents and shared for your own commands.",
    ),
    choice_key(
        "sandbox.network",
        &["open", "loopback", "none"],
        "\"open\"",
        "Network access in the sandbox; loopback is a private localhost without other access and needs bubblewrap.",
    ),
    choice_key(
        "sandbox.sockets",
        &["auto", "open", "blocked"],
        "\"auto\"",
        "Unix sockets where the sandbox cannot hide them; auto blocks all of them if a container daemon or an SSH agent could be reached.",
    ),
    setting_key(
        "sandbox.processes",
        int_kind(0, 1_000_000),
        "0",
        "Maximum number of processes of your user in the sandbox (has no effect for root); 0 means no limit.",
    ),
    setting_key(
        "sandbox.file_size",
        SettingKind::Size,
        "\"0\"",
        "Largest file that can be written in the sandbox; 0 means no limit.",
    ),
    setting_key(
        "secrets.allow",
        SettingKind::Texts,
        "[]",
        "Exceptions of the secret scan: `path:GLOB` for files, `rule:NAME` for a rule, otherwise a text that the line contains.",
    ),
    setting_key(
        "snapshots.every",
        SettingKind::Duration,
        "\"60s\"",
        "Time between snapshots; 0s means no snapshots.",
    ),
    setting_key(
        "snapshots.keep",
        SettingKind::Duration,
        "\"14d\"",
        "How long snapshots are kept after a task landed; 0s removes them immediately, 3650d keeps them. Snapshots of tasks that have not landed are always kept.",
    ),
    setting_key(
        "prompt.template",
        SettingKind::Text,
        "",
        "Prompt template file, relative to the repository (default: the built-in template).",
    ),
    setting_key(
        "prompt.tokens",
        int_kind(2_000, 1_000_000),
        "64000",
        "Maximum length of a prompt in tokens of four bytes; the least important parts are shortened first.",
    ),
    setting_key(
        "questions.policy",
        SettingKind::Rules,
        "[]",
        "Automatic answers to questions as \"PATTERN => ANSWER\", where * matches any text; the first match wins.",
    ),
    setting_key(
        "questions.agent",
        SettingKind::Text,
        "",
        "Agent that answers questions no rule matches, with the plan as context (default: questions wait for a person).",
    ),
    setting_key(
        "questions.agent_timeout",
        SettingKind::Duration,
        "\"5m\"",
        "Time limit of the answering agent; after that, the question waits for a person.",
    ),
    setting_key(
        "questions.default",
        SettingKind::Text,
        "",
        "Answer to use when a deadline passes and the question has no default; if the question has options, only one of those is used.",
    ),
    setting_key(
        "questions.deadline",
        SettingKind::Duration,
        "\"0s\"",
        "Deadline of questions without one; 0s means none.",
    ),
    setting_key(
        "lessons.learn",
        SettingKind::Bool,
        "true",
        "Learn lessons from attempts and add them to later prompts.",
    ),
    setting_key(
        "lessons.folder",
        SettingKind::Text,
        "",
        "Folder for lessons, relative to the repository (default: next to the journal).",
    ),
    choice_key("store.kind", &["embedded"], "\"embedded\"", "Where the state of runs is stored."),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_documented() {
        for (i, doc) in all_keys().enumerate() {
            assert!(all_keys().take(i).all(|other| other.key != doc.key), "{}", doc.key);
            assert!(doc.doc.ends_with('.') && !doc.doc.contains('\n'), "{}", doc.key);
            assert_eq!(doc.kind == SettingKind::Choice, !doc.choices.is_empty(), "{}", doc.key);
        }
    }

    #[test]
    fn agents_share_their_keys() {
        assert_eq!(find_key("agents.mine.kind").map(|doc| doc.key), Some("agents.*.kind"));
        assert_eq!(find_key("agents.a.b.kind").map(|doc| doc.key), Some("agents.*.kind"));
        assert_eq!(find_key("agents.kind"), None);
        assert_eq!(find_key("run.job"), None);
    }
}
