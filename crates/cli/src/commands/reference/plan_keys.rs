//! The keys of a plan, in words.

#[derive(Debug)]
pub(super) struct PlanKeyHelp {
    pub(super) key: &'static str,
    pub(super) takes: &'static str,
    pub(super) default: &'static str,
    pub(super) doc: &'static str,
}

const fn key_help(
    key: &'static str,
    takes: &'static str,
    default: &'static str,
    doc: &'static str,
) -> PlanKeyHelp {
    PlanKeyHelp { key, takes, default, doc }
}

/// Keys of the file.
pub(super) const PLAN: &[PlanKeyHelp] = &[
    key_help("version", "`1`", "", "Version of the plan format. Required."),
    key_help("title", "text of one line", "", "Title of the plan."),
    key_help("epic", "list of tables", "", "Groups of tasks. `epics` works too."),
    key_help("task", "list of tables", "", "Tasks, at least one. `tasks` works too."),
];

/// Keys of an epic.
pub(super) const EPIC: &[PlanKeyHelp] = &[
    key_help("id", "id", "", "ID of the epic, unique among epics. Required."),
    key_help("title", "text of one line", "", "Title of the epic."),
    key_help(
        "needs",
        "list of epics",
        "[]",
        "Every task of this epic needs every task of these epics.",
    ),
];

/// Keys of a task.
pub(super) const TASK: &[PlanKeyHelp] = &[
    key_help(
        "id",
        "letters, digits, `.`, `_`, `-`; at most 64",
        "",
        "ID of the task, unique in the plan. Used as a branch and folder name, so unsafe IDs are \
         rejected. Required.",
    ),
    key_help("epic", "id of an epic", "", "Epic of the task."),
    key_help(
        "phase",
        "text of one line",
        "",
        "Phase for `schedule.barrier = \"phase\"`; phases run in the order they first appear.",
    ),
    key_help(
        "title",
        "text of one line",
        "",
        "Title of the task, also the subject of the landed commit.",
    ),
    key_help("description", "text", "", "What to do; the main part of the prompt."),
    key_help(
        "acceptance",
        "list of texts",
        "[]",
        "When the task counts as done; part of the prompt.",
    ),
    key_help(
        "needs",
        "list of tasks",
        "[]",
        "Tasks that must land first; this task starts from a commit with their work.",
    ),
    key_help(
        "after",
        "list of tasks",
        "[]",
        "Tasks to start after, whether they succeeded or not.",
    ),
    key_help(
        "writes",
        "list of globs",
        "[]",
        "Files the task will write. Tasks with overlapping globs do not run at once.",
    ),
    key_help("agent", "name under `[agents.*]`", "run.agent", "Agent for this task."),
    key_help("role", "text of one line", "", "Role for the prompt and for `limits.per_role`."),
    key_help("model", "text of one line", "", "Model for this task."),
    key_help(
        "effort",
        "`small`, `medium`, `large`",
        "medium",
        "Rough size; tasks on the longest chains start first.",
    ),
    key_help("priority", "whole number", "0", "Among ready tasks, higher numbers start first."),
    key_help(
        "verify",
        "list of commands, lines such as `@file_exists GLOB`, or tables",
        "[]",
        "Checks of this task, in addition to `[gates]`: commands to run in the workspace, or the gate kinds in docs/guide/review.md.",
    ),
    key_help(
        "on_failure",
        "`block`, `continue`, `skip`",
        "block",
        "If the task fails, tasks that need it: never run (`block`), may run (`continue`), or treat it as done (`skip`).",
    ),
    key_help("timeout", "duration such as \"45m\"", "run.timeout", "Time limit for one attempt."),
    key_help("retries", "0 to 1000", "run.retries", "Retries after a failed attempt."),
    key_help("run", "shell command", "", "Shell command to run instead of a coding agent."),
    key_help(
        "script",
        "list of steps",
        "[]",
        "Steps for the built-in `script` agent, which needs no network or model.",
    ),
];

/// Steps of the script agent.
pub(super) const STEPS: &[PlanKeyHelp] = &[
    key_help("write", "`text`", "", "Writes the named file."),
    key_help("append", "`text`", "", "Appends to the named file."),
    key_help("commit", "", "", "Commits everything with this message."),
    key_help("sleep", "", "", "Waits, for example \"200ms\"."),
    key_help("print", "", "", "Prints a line."),
    key_help(
        "ask",
        "`options`, `into`",
        "",
        "Asks a question, waits for the answer and writes it to the file `into`.",
    ),
    key_help(
        "fail",
        "`times`",
        "",
        "Exits with this code; with `times`, only in the first attempts.",
    ),
    key_help("rate_limit", "`times`", "", "Reports a rate limit of this duration and exits."),
    key_help("hang", "`ignore_term`", "", "Hangs forever."),
    key_help("spawn", "`detach`", "", "Starts a process that outlives the agent by this long."),
    key_help("usage", "", "", "Reports `input_tokens`, `output_tokens` and `cost_usd`."),
    key_help("nothing_to_do", "", "", "Reports why there is nothing to do and exits successfully."),
    key_help("blocked", "", "", "Reports why the task cannot be done and exits."),
];

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use mainstem_core::plan::read::{DocumentFormat, read_plan};

    /// What the reader of plans says it knows, from its message about an unknown key.
    fn known(plan: &str, lead: &str) -> Vec<String> {
        let faults = read_plan(plan.as_bytes(), DocumentFormat::Toml).unwrap_err();
        let helps = faults.iter().filter_map(|fault| fault.help.as_deref());
        let list = helps.filter_map(|help| help.strip_prefix(lead)).next().unwrap();
        list.split(", ").map(str::to_owned).collect()
    }

    fn names(table: &[PlanKeyHelp]) -> Vec<&'static str> {
        table.iter().map(|help| help.key).collect()
    }

    #[test]
    fn the_tables_hold_exactly_the_keys_that_are_read() {
        let junk = "qqqqqqqqqqqqqqqqqq = 1\n";
        let task = format!("version = 1\n[[task]]\nid = \"a\"\n{junk}");
        assert_eq!(known(&task, "known keys: "), names(TASK));
        let epic = format!("version = 1\n[[epic]]\nid = \"a\"\n{junk}");
        assert_eq!(known(&epic, "known keys: "), names(EPIC));
        let mut plan = known(&format!("version = 1\n{junk}"), "known keys: ");
        plan.retain(|key| !key.ends_with('s'));
        assert_eq!(plan, names(PLAN));
        let step = format!("version = 1\n[[task]]\nid = \"a\"\n[[task.script]]\n{junk}");
        assert_eq!(known(&step, "known steps: "), names(STEPS));
    }
}
