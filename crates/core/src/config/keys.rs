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
    key("run.agent", Kind::Text, "", "Agent of tasks that name none."),
    key("run.jobs", int(1, 10_000), "3", "Agents at once."),
    choice(
        "run.on_failure",
        &["continue", "drain", "abort"],
        "\"continue\"",
        "What one failed task means for the run: others go on, running ones finish, all stop.",
    ),
    key("run.retries", int(0, 1_000), "1", "Further attempts after a failed one."),
    key("run.timeout", Kind::Duration, "\"1h\"", "Time for one attempt; 0s is no limit."),
    key(
        "run.idle_timeout",
        Kind::Duration,
        "\"0s\"",
        "An attempt that prints nothing for this long is ended; 0s is never.",
    ),
    key(
        "run.stall_restarts",
        int(0, 1_000),
        "1",
        "How often an attempt without progress is started again, in its session, before it counts as failed.",
    ),
    choice(
        "run.on_looping",
        &["ask", "fail"],
        "\"ask\"",
        "What becomes of a task whose agent does the same thing over and over: a person looks, or it failed.",
    ),
    key(
        "run.preflight",
        Kind::Bool,
        "true",
        "Look at checks, agents and disk before the first task starts; false is --no-preflight.",
    ),
    key(
        "run.start_over",
        Kind::Texts,
        "[]",
        "Outcomes after which the next attempt starts from the target branch instead of the work so far, such as agent_failed or gate_failed.",
    ),
    key("run.grace", Kind::Duration, "\"10s\"", "Between asking an agent to end and killing it."),
    key("limits.per_provider", Kind::Counts, "{}", "Agents at once per provider."),
    key("limits.per_agent", Kind::Counts, "{}", "Agents at once per agent name."),
    key("limits.per_role", Kind::Counts, "{}", "Agents at once per role."),
    key("limits.verify", int(0, 10_000), "0", "Task gates at once; 0 means as many as run.jobs."),
    key(
        "limits.memory_per_agent",
        Kind::Size,
        "\"0\"",
        "Memory of an agent and all it starts; above it is killed. 0 is no limit.",
    ),
    key(
        "limits.disk_floor",
        Kind::Size,
        "\"500M\"",
        "No new attempt below this much free space where workspaces, state or repository live.",
    ),
    key(
        "limits.load_ceiling",
        Kind::Number,
        "0.0",
        "No further agent above this load average, but always one; 0 is no limit.",
    ),
    key(
        "limits.memory_floor",
        Kind::Size,
        "\"256M\"",
        "No further agent below this much available memory, but always one; 0 is no limit.",
    ),
    key(
        "limits.pressure_ceiling",
        Kind::Number,
        "20.0",
        "No further agent while somebody waits for memory this percent of the time, but always one; 0 is no limit.",
    ),
    key("limits.output", Kind::Size, "\"64M\"", "Output kept per attempt."),
    key("limits.file_size", Kind::Size, "\"10M\"", "Largest file that may land; 0 is no limit."),
    key(
        "limits.rate_limit_waits",
        int(0, 10_000),
        "5",
        "Waits for a rate limit in a row before a task gives up.",
    ),
    key(
        "limits.rate_limit_wait",
        Kind::Duration,
        "\"60s\"",
        "Wait for a rate limit that names no time.",
    ),
    key(
        "limits.quota_wait",
        Kind::Duration,
        "\"30m\"",
        "Wait for a used-up quota that names no time.",
    ),
    key(
        "limits.auto_resume",
        Kind::Bool,
        "true",
        "Go on by itself when a quota is filled again; otherwise wait for `mainstem resume`.",
    ),
    key(
        "limits.shared",
        Kind::Bool,
        "true",
        "Tell your other repositories of a provider's limit, and heed the limits they met.",
    ),
    key(
        "limits.quiet_hours",
        Kind::Text,
        "",
        "Hours of the day in which no attempt starts, such as \"22:00-07:00\", in local time.",
    ),
    key(
        "limits.breaker",
        int(0, 10_000),
        "5",
        "Failures of a provider in a row, of different attempts, before it is left alone; 0 is never.",
    ),
    key(
        "limits.breaker_wait",
        Kind::Duration,
        "\"1m\"",
        "For how long at first; doubles each time that the probe fails.",
    ),
    key(
        "limits.fallback_after",
        Kind::Duration,
        "\"10m\"",
        "How long a provider must still rest before a fallback agent takes over.",
    ),
    key(
        "workspace.root",
        Kind::Text,
        "",
        "Where workspaces live; without it a sibling of the repository.",
    ),
    key(
        "workspace.editor",
        Kind::Texts,
        "[]",
        "What `mainstem open` runs with a workspace's path; without it $VISUAL, then $EDITOR.",
    ),
    choice(
        "workspace.unit",
        &["task", "epic", "phase", "none"],
        "\"task\"",
        "What shares one workspace.",
    ),
    choice(
        "workspace.kind",
        &["worktree", "clone"],
        "\"worktree\"",
        "How a workspace is made; a clone has a git dir of its own.",
    ),
    key("workspace.setup", Kind::Texts, "[]", "Commands run in a new workspace before the agent."),
    key(
        "workspace.include",
        Kind::Globs,
        "[]",
        "Ignored files to bring along, besides .worktreeinclude.",
    ),
    choice(
        "workspace.keep",
        &["until-landed", "failed", "always"],
        "\"until-landed\"",
        "When a workspace goes: until-landed keeps those of failed and blocked tasks until they land or are called off, failed keeps all that did not land, always keeps all; mainstem clean removes them.",
    ),
    choice(
        "schedule.barrier",
        &["none", "level", "epic", "phase"],
        "\"none\"",
        "Groups that must be through before the next group starts.",
    ),
    choice(
        "schedule.satisfied_by",
        &["landed", "verified", "done"],
        "\"landed\"",
        "When a needed task counts as there.",
    ),
];

static LAST: &[KeyDoc] = &[
    key("budget.usd", Kind::Number, "", "Money for the run; without it there is no limit."),
    key(
        "budget.hard",
        Kind::Bool,
        "true",
        "Start no attempt when the budget is spent; otherwise only say so.",
    ),
    key(
        "budget.per_attempt",
        Kind::Number,
        "0.0",
        "Money reserved for an attempt before its cost is known; then the average so far.",
    ),
    key(
        "budget.per_task",
        Kind::Number,
        "",
        "Money for one task over all its attempts; without it there is no limit.",
    ),
    key("models.by_role", Kind::Variables, "{}", "A tier or a model by role."),
    key(
        "models.by_priority",
        Kind::Variables,
        "{}",
        "A tier or a model by the least priority that it is for.",
    ),
    key(
        "reviewers.*.agent",
        Kind::Text,
        "",
        "The agent that reviews; without it the one of the same name.",
    ),
    key("reviewers.*.focus", Kind::Text, "", "What it looks for, in words for its prompt."),
    key(
        "reviewers.*.paths",
        Kind::Globs,
        "[]",
        "It reviews only changes in these files; none means all.",
    ),
    key(
        "reviewers.*.min_lines",
        int(0, 1_000_000),
        "0",
        "It reviews only changes of at least so many lines.",
    ),
    key("reviewers.*.model", Kind::Text, "", "Its model; without it the agent's."),
    key("prices.*.input", Kind::Number, "", "Dollars per million tokens read by this model."),
    key("prices.*.output", Kind::Number, "", "Dollars per million tokens written."),
    key("prices.*.cache_read", Kind::Number, "", "Dollars per million tokens read from a cache."),
    key("prices.*.cache_write", Kind::Number, "", "Dollars per million tokens written to a cache."),
    KeyDoc {
        key: "agents.*.kind",
        kind: Kind::Choice,
        default: "",
        doc: "Which adapter drives the agent.",
        choices: AGENT_KINDS,
    },
    key("agents.*.command", Kind::Command, "[]", "What a command agent runs."),
    key(
        "agents.*.provider",
        Kind::Text,
        "",
        "Whose quota it uses; without it anthropic, openai or google by its kind, else its own.",
    ),
    key("agents.*.model", Kind::Text, "", "Model for tasks that name none."),
    key("agents.*.secrets", Kind::Texts, "[]", "Environment variables handed to it on purpose."),
    key("agents.*.env", Kind::Variables, "{}", "Further environment."),
    key("agents.*.fallback", Kind::Texts, "[]", "Agents that take over while its provider rests."),
    key(
        "agents.*.models",
        Kind::Variables,
        "{}",
        "Its models by tier: cheap, middle, top; with them one is chosen for each attempt.",
    ),
    choice(
        "agents.*.billing",
        &["metered", "included"],
        "",
        "Whether what it uses is paid for by amount, or included in a subscription.",
    ),
    choice("agents.*.preset", &["aider"], "", "A ready-made command line for a command agent."),
    key(
        "agents.*.binary",
        Kind::Text,
        "",
        "The tool's program; without it the kind's name, found on the search path.",
    ),
    key("agents.*.args", Kind::Texts, "[]", "Arguments added to those of the adapter."),
    key("agents.*.effort", Kind::Text, "", "How hard the model thinks, in the tool's own words."),
    key(
        "agents.*.system_prompt",
        Kind::Text,
        "",
        "Instructions added to the tool's own system prompt.",
    ),
    key("agents.*.allowed_tools", Kind::Texts, "[]", "Tools it may use; none means all."),
    key(
        "agents.*.max_turns",
        int(0, 100_000),
        "0",
        "Most turns of the model in one attempt; 0 is no limit.",
    ),
    choice(
        "agents.*.permission",
        &["bypass", "list"],
        "\"bypass\"",
        "Who decides about its tools: nobody, since the sandbox is the wall, or allowed_tools.",
    ),
    choice(
        "sandbox.kind",
        &["auto", "bwrap", "landlock", "off"],
        "\"auto\"",
        "The wall around agents, setup commands and gates; auto takes the best that works, off must be said.",
    ),
    key(
        "sandbox.write",
        Kind::Texts,
        "[]",
        "Paths that agents, setup commands and gates may write besides their workspace, temporary folder and the defaults.",
    ),
    key(
        "sandbox.write_defaults",
        Kind::Bool,
        "true",
        "Whether build tools get caches of their own for each attempt; false leaves only sandbox.write.",
    ),
    key("sandbox.read", Kind::Texts, "[]", "Paths that may be read although they are hidden."),
    key("sandbox.hide", Kind::Texts, "[]", "Further paths to hide, besides keys and credentials."),
    choice(
        "sandbox.tmp",
        &["auto", "private", "shared"],
        "\"auto\"",
        "Whose /tmp: auto is private for agents that talk to a model and shared for commands of your own.",
    ),
    choice(
        "sandbox.network",
        &["open", "loopback", "none"],
        "\"open\"",
        "The network behind the wall; loopback is one of its own and needs bubblewrap.",
    ),
    choice(
        "sandbox.sockets",
        &["auto", "open", "blocked"],
        "\"auto\"",
        "Unix sockets where the wall cannot hide them; auto blocks them if a container daemon or an ssh agent could be reached.",
    ),
    key(
        "sandbox.processes",
        int(0, 1_000_000),
        "0",
        "Most processes of this user behind the wall, not for root; 0 is no limit.",
    ),
    key("sandbox.file_size", Kind::Size, "\"0\"", "Largest file written there; 0 is no limit."),
    key(
        "secrets.allow",
        Kind::Texts,
        "[]",
        "What the secret scan lets pass: `path:GLOB` for files, `rule:NAME` for a rule, otherwise a text that the line contains.",
    ),
    key("snapshots.every", Kind::Duration, "\"60s\"", "Time between snapshots; 0s is never."),
    key(
        "snapshots.keep",
        Kind::Duration,
        "\"14d\"",
        "How long snapshots of a task stay after it landed; 0s removes them at once, 3650d is for good. \
         Those of tasks that have not landed always stay.",
    ),
    key(
        "prompt.template",
        Kind::Text,
        "",
        "File with the template of prompts, relative to the repository; without it the built-in one.",
    ),
    key(
        "prompt.tokens",
        int(2_000, 1_000_000),
        "64000",
        "Longest prompt, counting four bytes as a token; what matters least is shortened.",
    ),
    key(
        "questions.policy",
        Kind::Rules,
        "[]",
        "Answers to questions, first match wins: \"PATTERN => ANSWER\"; * stands for anything.",
    ),
    key(
        "questions.agent",
        Kind::Text,
        "",
        "Agent that answers what no rule does, with the plan in view; without it people do.",
    ),
    key(
        "questions.agent_timeout",
        Kind::Duration,
        "\"5m\"",
        "Time for the answering agent; after it the question waits for a person.",
    ),
    key(
        "questions.default",
        Kind::Text,
        "",
        "Answer when the deadline passes and the question names none; a question with options takes it only if it is one of them.",
    ),
    key(
        "questions.deadline",
        Kind::Duration,
        "\"0s\"",
        "Deadline of questions that name none; 0s is none.",
    ),
    key("lessons.learn", Kind::Bool, "true", "Learn from attempts and tell later ones."),
    key(
        "lessons.folder",
        Kind::Text,
        "",
        "Where lessons are kept, relative to the repository; without it beside the journal.",
    ),
    choice("store.kind", &["embedded"], "\"embedded\"", "Where tasks are kept."),
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
