//! The keys of a plan, in words.

/// One key.
#[derive(Debug)]
pub(super) struct KeyHelp {
    pub(super) key: &'static str,
    pub(super) takes: &'static str,
    pub(super) default: &'static str,
    pub(super) doc: &'static str,
}

const fn key(
    key: &'static str,
    takes: &'static str,
    default: &'static str,
    doc: &'static str,
) -> KeyHelp {
    KeyHelp { key, takes, default, doc }
}

/// Keys of the file.
pub(super) const PLAN: &[KeyHelp] = &[
    key("version", "`1`", "", "The version of this format. Must be there."),
    key("title", "text of one line", "", "What the whole is called."),
    key("epic", "list of tables", "", "Groups of tasks. `epics` means the same."),
    key("task", "list of tables", "", "The work. At least one. `tasks` means the same."),
];

/// Keys of an epic.
pub(super) const EPIC: &[KeyHelp] = &[
    key("id", "id", "", "Its name, unique among epics. Must be there."),
    key("title", "text of one line", "", "For people."),
    key("needs", "list of epics", "[]", "Every task of this epic needs every task of those."),
];

/// Keys of a task.
pub(super) const TASK: &[KeyHelp] = &[
    key(
        "id",
        "letters, digits, `.`, `_`, `-`; at most 64",
        "",
        "Its name, unique in the plan. Becomes a branch and a folder, so unsafe ids are refused. \
         Must be there.",
    ),
    key("epic", "id of an epic", "", "The group it belongs to."),
    key(
        "phase",
        "text of one line",
        "",
        "For `schedule.barrier = \"phase\"`: phases follow each other as they first appear.",
    ),
    key("title", "text of one line", "", "For people, and the subject of the commit that lands."),
    key("description", "text", "", "What to do: the heart of the prompt."),
    key(
        "acceptance",
        "list of texts",
        "[]",
        "When it counts as done, in words; part of the prompt.",
    ),
    key("needs", "list of tasks", "[]", "Those tasks' work is in the commit this one starts from."),
    key(
        "after",
        "list of tasks",
        "[]",
        "Order only: it starts after them, and a failed one does not block it.",
    ),
    key(
        "writes",
        "list of globs",
        "[]",
        "Files it will write. Tasks whose globs may overlap do not run at once.",
    ),
    key("agent", "name under `[agents.*]`", "run.agent", "Who does it."),
    key("role", "text of one line", "", "For the prompt, and for `limits.per_role`."),
    key("model", "text of one line", "", "The model, if the task insists on one."),
    key(
        "effort",
        "`small`, `medium`, `large`",
        "medium",
        "Rough size; longer chains of work start first.",
    ),
    key("priority", "whole number", "0", "Higher first, among tasks that could start."),
    key(
        "verify",
        "list of commands, lines such as `@file_exists GLOB`, or tables",
        "[]",
        "Gates of this task, besides `[gates]`: commands in its workspace, and the kinds of docs/guide/review.md.",
    ),
    key(
        "on_failure",
        "`block`, `continue`, `skip`",
        "block",
        "What its failure means for tasks that need it: they never run, they may run, or it counts as done.",
    ),
    key("timeout", "duration such as \"45m\"", "run.timeout", "Time for one attempt."),
    key("retries", "0 to 1000", "run.retries", "Further attempts after a failed one."),
    key(
        "run",
        "shell command",
        "",
        "Shorthand: the built-in `command` agent runs this instead of a coding agent.",
    ),
    key(
        "script",
        "list of steps",
        "[]",
        "Steps for the built-in `script` agent, which needs no network and no model.",
    ),
];

/// Steps of the script agent.
pub(super) const STEPS: &[KeyHelp] = &[
    key("write", "`text`", "", "Replaces the content of the named file."),
    key("append", "`text`", "", "Adds to the end of the named file."),
    key("commit", "", "", "Commits everything with this message."),
    key("sleep", "", "", "Waits, for example \"200ms\"."),
    key("print", "", "", "Prints a line."),
    key(
        "ask",
        "`options`, `into`",
        "",
        "Asks a question and waits for the answer, which goes to the file `into`.",
    ),
    key(
        "fail",
        "`times`",
        "",
        "Ends with this exit code; with `times` only in the first attempts.",
    ),
    key("rate_limit", "`times`", "", "Reports a rate limit of this many seconds and ends."),
    key("hang", "`ignore_term`", "", "Never ends."),
    key("spawn", "`detach`", "", "Starts a process that outlives the agent by this long."),
    key("usage", "", "", "Reports `input_tokens`, `output_tokens` and `cost_usd`."),
    key("nothing_to_do", "", "", "Says why there is nothing to do, and ends well."),
    key("blocked", "", "", "Says why it cannot be done, and ends."),
];

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use mainstem_core::plan::read::{Format, read_plan};

    /// What the reader of plans says it knows, from its message about an unknown key.
    fn known(plan: &str, lead: &str) -> Vec<String> {
        let faults = read_plan(plan.as_bytes(), Format::Toml).unwrap_err();
        let helps = faults.iter().filter_map(|fault| fault.help.as_deref());
        let list = helps.filter_map(|help| help.strip_prefix(lead)).next().unwrap();
        list.split(", ").map(str::to_owned).collect()
    }

    fn names(table: &[KeyHelp]) -> Vec<&'static str> {
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
