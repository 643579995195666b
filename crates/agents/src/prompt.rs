//! The prompt of one attempt, as Markdown.
//!
//! Knows the task and what the engine tells about its surroundings; chooses nothing. Every part is
//! bounded, because a prompt that does not fit is refused by the agent as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstem_core::id::TaskId;
use mainstem_core::plan::Task;

use crate::line_protocol::truncate_text;

mod earlier_work;
mod sample;
pub mod template;

pub use earlier_work::EarlierWork;

pub use template::{PromptTemplate, PromptTemplateError};

/// The whole prompt. Models take more, but an agent's context is not for us to fill.
pub const PROMPT_BYTES_MAX: usize = 256 * 1024;
/// The smallest budget: below it there would be rules and no task.
pub const PROMPT_BYTES_MIN: usize = 8 * 1024;
/// A part shorter than this is not worth its heading.
const PART_BYTES_MIN: usize = 256;
/// Ends a part that was too long.
const SHORTENED: &str = "\n(The rest did not fit.)\n";
/// The description, by far the part that matters most.
const DESCRIPTION_BYTES_MAX: usize = 96 * 1024;
/// Each list of short things: acceptance, what landed, verification, files, answers.
const LIST_BYTES_MAX: usize = 16 * 1024;
/// What is told of the work that an earlier attempt left.
const EARLIER_BYTES_MAX: usize = 4 * 1024;
/// What a person says about one attempt.
const HINT_BYTES_MAX: usize = 4 * 1024;
/// The end of a gate's output, where the failure usually is.
const GATE_OUTPUT_BYTES_MAX: usize = 8 * 1024;
/// Another task's text, given to understand a conflict.
const OTHER_TASK_BYTES_MAX: usize = 8 * 1024;
/// What one side of a conflict changed.
const SIDE_BYTES_MAX: usize = 16 * 1024;
/// Other tasks shown with a conflict.
const OTHER_TASKS_MAX: usize = 4;
/// One line for people, such as a title.
const LINE_BYTES_MAX: usize = 512;

/// What goes into a prompt.
#[derive(Debug, Clone, Copy)]
pub struct PromptInput<'a> {
    pub task: &'a Task,
    /// Title of its epic, if it has one.
    pub epic_title: Option<&'a str>,
    /// Tasks whose work is already in the base, with their titles.
    pub landed_before: &'a [(TaskId, String)],
    /// Commands that must pass on the merged tree before it lands.
    pub gates: &'a [String],
    /// What happened before, if this is not the first attempt.
    pub retry: Option<&'a RetryContext>,
    /// What a person said when they asked for this attempt.
    pub hint: Option<&'a str>,
    /// Questions of earlier attempts and their answers.
    pub answers: &'a [(String, String)],
    /// What earlier attempts learned, one line each.
    pub lessons: &'a [String],
    /// How long the whole may be.
    pub bytes_max: usize,
}

/// Why there is another attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryContext {
    /// The attempt that is about to start.
    pub attempt: u32,
    /// Outcome class of the one before.
    pub class: String,
    /// The same in words.
    pub reason: String,
    /// The end of the failed gate's output.
    pub gate_output: Option<String>,
    /// Files that did not merge.
    pub conflict_files: Vec<String>,
    /// Tasks whose landing is on the other side of the conflict, with their texts.
    pub other_tasks: Vec<(TaskId, String)>,
    /// Both sides of that conflict.
    pub sides: Option<PromptConflictSides>,
    /// What a review of the work before found.
    pub findings: Vec<String>,
    /// What the workspace holds of earlier work.
    pub kept: Option<EarlierWork>,
    /// Earlier work was put aside on purpose.
    pub started_over: bool,
}

/// Both sides of a conflict, as patches of the files that clash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptConflictSides {
    /// The commit that both started from.
    pub base: String,
    /// The commit with what has landed: where the attempt starts.
    pub landed: String,
    /// The commit with the earlier work on this task.
    pub work: String,
    /// From the base to what has landed.
    pub landed_diff: String,
    /// From the base to the earlier work.
    pub work_diff: String,
    /// Commits that brought the other side, as lines.
    pub commits: Vec<String>,
    /// The merge of both is laid out in the workspace, to be resolved there.
    pub laid_out: bool,
}

/// Builds the prompt. Never longer than its budget, nor than [`PROMPT_BYTES_MAX`].
///
/// A template that fails here, though it was tried when it was read, is passed over: the built-in one
/// takes its place.
pub fn build_prompt(input: &PromptInput<'_>, template: &PromptTemplate) -> String {
    let mut parts = build_parts(input);
    let bytes_max = input.bytes_max.clamp(PROMPT_BYTES_MIN, PROMPT_BYTES_MAX);
    parts.shrink_to_fit(bytes_max);
    let built = template
        .render_prompt(input, &parts)
        .or_else(|_| PromptTemplate::default().render_prompt(input, &parts));
    let mut out = built.unwrap_or_default();
    if out.len() > bytes_max {
        out.truncate(truncate_text(&out, bytes_max).len());
    }
    out
}

/// A part of the prompt. In the order in which they give way when there is too little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PromptPart {
    Landed,
    Lessons,
    Answers,
    Verification,
    Retry,
    Acceptance,
    Task,
    Guidelines,
}

/// The parts as texts.
struct PromptParts(BTreeMap<PromptPart, String>);

impl PromptParts {
    fn text(&self, part: PromptPart) -> &str {
        self.0.get(&part).map_or("", String::as_str)
    }

    /// Shortens what matters least until all of it fits.
    fn shrink_to_fit(&mut self, bytes_max: usize) {
        let mut over = self.0.values().map(String::len).sum::<usize>().saturating_sub(bytes_max);
        for text in self.0.values_mut() {
            if over == 0 {
                return;
            }
            let before = text.len();
            let keep = before.saturating_sub(over + SHORTENED.len());
            if keep < PART_BYTES_MIN {
                text.clear();
            } else {
                let whole_lines = truncate_text(text, keep).rfind('\n').map_or(0, |end| end + 1);
                text.truncate(whole_lines);
                text.push_str(SHORTENED);
            }
            over = over.saturating_sub(before - text.len());
        }
    }
}

fn build_parts(input: &PromptInput<'_>) -> PromptParts {
    let mut parts = BTreeMap::new();
    let mut part = |name: PromptPart, fill: &dyn Fn(&mut String)| {
        let mut text = String::new();
        fill(&mut text);
        parts.insert(name, text);
    };
    part(PromptPart::Task, &|out| write_heading(out, input));
    part(PromptPart::Acceptance, &|out| {
        if !input.task.acceptance.is_empty() {
            write_section_title(out, "Acceptance");
            out.push_str("The task is done when all of these are true:\n\n");
            write_list(out, input.task.acceptance.iter().map(String::as_str));
        }
    });
    part(PromptPart::Retry, &|out| {
        if let Some(retry) = input.retry {
            write_retry_context(out, retry);
        }
        if let Some(hint) = input.hint.filter(|hint| !hint.trim().is_empty()) {
            write_section_title(out, "From the person who asked for this attempt");
            let _ = writeln!(out, "{}", quote_bounded(hint.trim(), HINT_BYTES_MAX));
        }
    });
    part(PromptPart::Answers, &|out| {
        if !input.answers.is_empty() {
            write_answers(out, input.answers);
        }
    });
    part(PromptPart::Landed, &|out| {
        if !input.landed_before.is_empty() {
            write_section_title(out, "What already exists");
            out.push_str("The work of these tasks is in your starting commit; build on it:\n\n");
            let landed = input.landed_before.iter();
            write_list(
                out,
                landed.map(|(id, title)| format!("{id}: {}", collapse_whitespace(title))),
            );
        }
    });
    part(PromptPart::Lessons, &|out| {
        if !input.lessons.is_empty() {
            write_section_title(out, "What earlier attempts in this repository learned");
            out.push_str("Collected automatically; verify before you rely on any of this:\n\n");
            write_list(out, input.lessons.iter().map(|lesson| collapse_whitespace(lesson)));
        }
    });
    part(PromptPart::Guidelines, &|out| write_guidelines(out, input.task));
    part(PromptPart::Verification, &|out| write_verification(out, input));
    PromptParts(parts)
}

fn write_heading(out: &mut String, input: &PromptInput<'_>) {
    let task = input.task;
    let title = if task.title.trim().is_empty() { "Untitled task" } else { task.title.as_str() };
    let _ = writeln!(out, "# {}: {}", task.id, collapse_whitespace(title));
    if let Some(epic) = input.epic_title.filter(|title| !title.trim().is_empty()) {
        let _ = writeln!(out, "\nPart of: {}", collapse_whitespace(epic));
    }
    if let Some(role) = task.role.as_deref().filter(|role| !role.trim().is_empty()) {
        let _ = writeln!(out, "\nYour role: {}", collapse_whitespace(role));
    }
    let description = bounded_description(task);
    if !description.is_empty() {
        let _ = writeln!(out, "\n{description}");
    }
}

/// The task's text, bounded.
fn bounded_description(task: &Task) -> &str {
    truncate_text(task.description.trim(), DESCRIPTION_BYTES_MAX)
}

/// The end of a gate's output, bounded.
fn bounded_gate_output(output: &str) -> &str {
    truncate_head(output.trim_end(), GATE_OUTPUT_BYTES_MAX)
}

/// One side of a conflict, bounded.
fn bounded_conflict_side(diff: &str) -> &str {
    truncate_text(diff.trim_end(), SIDE_BYTES_MAX)
}

fn write_guidelines(out: &mut String, task: &Task) {
    write_section_title(out, "How to work");
    out.push_str(
        "- You are in an isolated workspace: your own checkout, on your own branch. \
           Other agents work in other workspaces at the same time.\n\
         - Commit often, with messages that say what and why. Your commits are the result.\n\
         - Run the tests for your change before you finish.\n\
         - Update documentation that your change makes wrong.\n\
         - If a decision is not yours to make, ask (with the tool `ask`, if available) instead of guessing.\n\
         - Do not touch files outside this workspace.\n\
         - Do not stash, switch branches, rewrite the starting commit or push.\n\
         - Leave the tree clean: commit what belongs to the task, delete what does not.\n\
         - Do this task only. Finishing without commits counts as a failure unless you report \
           that there is nothing to do.\n",
    );
    if !task.writes.is_empty() {
        out.push_str(
            "\nThe plan expects changes in these files; other agents may be changing other files:\n\n",
        );
        write_list(out, task.writes.iter().map(|glob| inline_code(glob)));
    }
}

fn write_verification(out: &mut String, input: &PromptInput<'_>) {
    if input.task.verify.is_empty() && input.gates.is_empty() {
        return;
    }
    write_section_title(out, "Verification");
    if !input.task.verify.is_empty() {
        out.push_str("These commands run in this workspace when you finish, and must pass:\n\n");
        write_list(out, input.task.verify.iter().map(|command| inline_code(command)));
    }
    if !input.gates.is_empty() {
        if !input.task.verify.is_empty() {
            out.push('\n');
        }
        out.push_str("Before your work lands, these must pass on the merged tree:\n\n");
        write_list(out, input.gates.iter().map(|command| inline_code(command)));
    }
}

fn write_retry_context(out: &mut String, retry: &RetryContext) {
    write_section_title(out, &format!("Attempt {}", retry.attempt));
    let class = retry.class.replace('_', " ");
    let _ = writeln!(out, "The previous attempt did not land ({}).", collapse_whitespace(&class));
    if !retry.reason.trim().is_empty() {
        let _ = writeln!(out, "\n{}", quote_bounded(retry.reason.trim(), LIST_BYTES_MAX));
    }
    let laid_out = retry.sides.as_ref().is_some_and(|sides| sides.laid_out);
    match &retry.kept {
        Some(kept) => {
            let mut text = String::new();
            earlier_work::describe_work(&mut text, kept);
            out.push_str(truncate_text(&text, EARLIER_BYTES_MAX));
        }
        None if laid_out => {}
        None => earlier_work::describe_no_work(out, retry.started_over),
    }
    if let Some(output) = retry.gate_output.as_deref().filter(|text| !text.trim().is_empty()) {
        out.push_str("\nThe end of the failed check's output:\n\n");
        write_fenced_block(out, bounded_gate_output(output));
    }
    if !retry.findings.is_empty() {
        out.push_str("\nA review of that work found:\n\n");
        write_list(out, retry.findings.iter().map(|finding| collapse_whitespace(finding)));
    }
    if !retry.conflict_files.is_empty() {
        write_conflict(out, retry);
    }
    for (id, text) in retry.other_tasks.iter().take(OTHER_TASKS_MAX) {
        let _ = writeln!(out, "\nThe other side is task {id}, which was asked to do this:\n");
        let _ = writeln!(out, "{}", quote_bounded(text.trim(), OTHER_TASK_BYTES_MAX));
    }
    let more = retry.other_tasks.len().saturating_sub(OTHER_TASKS_MAX);
    if more > 0 {
        let _ = writeln!(out, "\n({more} more tasks are involved.)");
    }
}

fn write_conflict(out: &mut String, retry: &RetryContext) {
    let laid_out = retry.sides.as_ref().is_some_and(|sides| sides.laid_out);
    let kept = retry.kept.as_ref();
    out.push_str(if laid_out {
        "\nThe earlier work on this task conflicts with work that has landed since, in these files:\n\n"
    } else if kept.is_some_and(|kept| !kept.set_back) {
        "\nThe changes of an earlier attempt to these files did not merge with landed work:\n\n"
    } else {
        "\nThese files did not merge with work that has landed since:\n\n"
    });
    write_list(out, retry.conflict_files.iter().map(|file| inline_code(file)));
    out.push_str(if laid_out {
        "\nYour job now is to resolve this conflict, not to do the task again. Your workspace has what has \
         landed, and the earlier work merged onto it, uncommitted. Where both sides clash the file has \
         both of them and their common ancestor between `<<<<<<<`, `|||||||`, `=======` and `>>>>>>>`; a file \
         that one side deleted, or that is no text, has no markers.\n\n\
         - Keep both changes, as both tasks intended. Do not simply take one side.\n\
         - Leave no marker in any file, then commit everything.\n\
         - If the changes exclude each other, stop, report that you are blocked, and say why.\n"
    } else {
        match kept {
            Some(kept) if kept.set_back => {
                "\nIn your workspace they are as they landed; the rest of the earlier work is in place. \
                 Redo your change in these files so that both changes work.\n"
            }
            Some(_) => "\nMake sure that both changes work in these files now.\n",
            None => "\nYou start from the new state. Redo the task so that both changes work.\n",
        }
    });
    let Some(sides) = &retry.sides else { return };
    let PromptConflictSides { base, landed, work, .. } = sides;
    let _ = writeln!(
        out,
        "\nThe common ancestor is {base}, what has landed is {landed}, the earlier work is {work}; \
         `git show COMMIT:FILE` shows each version."
    );
    if !sides.commits.is_empty() {
        out.push_str("\nThe other side consists of these commits:\n\n");
        write_list(out, sides.commits.iter().map(|line| collapse_whitespace(line)));
    }
    for (what, diff) in [
        ("What has landed in these files:", &sides.landed_diff),
        ("What the earlier work on this task changed in these files:", &sides.work_diff),
    ] {
        if !diff.trim().is_empty() {
            let _ = writeln!(out, "\n{what}\n");
            write_fenced_block(out, bounded_conflict_side(diff));
        }
    }
}

fn write_answers(out: &mut String, answers: &[(String, String)]) {
    write_section_title(out, "Questions already answered");
    let pairs = answers.iter();
    let line = |text: &str| truncate_text(text.trim(), 2 * 1024).replace('\n', "\n  ");
    write_list(
        out,
        pairs.map(|(question, answer)| format!("{}\n  Answer: {}", line(question), line(answer))),
    );
}

fn write_section_title(out: &mut String, title: &str) {
    let _ = writeln!(out, "\n## {title}\n");
}

/// A list that stops, and says so, where its share of the prompt ends.
fn write_list<T: AsRef<str>>(out: &mut String, items: impl ExactSizeIterator<Item = T>) {
    let total = items.len();
    let end = out.len() + LIST_BYTES_MAX;
    for (at, item) in items.enumerate() {
        let item = truncate_text(item.as_ref().trim(), LIST_BYTES_MAX / 2);
        if out.len() + item.len() > end {
            let _ = writeln!(out, "- … and {} more", total - at);
            return;
        }
        let _ = writeln!(out, "- {item}");
    }
}

/// A code block whose fence is longer than any run of backticks inside it.
fn write_fenced_block(out: &mut String, text: &str) {
    let fence = "`".repeat(longest_backtick_run(text).max(2) + 1);
    let _ = writeln!(out, "{fence}text\n{text}\n{fence}");
}

fn inline_code(text: &str) -> String {
    let ticks = "`".repeat(longest_backtick_run(text) + 1);
    let pad = if ticks.len() > 1 { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Cut after quoting: a text of empty lines triples.
fn quote_bounded(text: &str, bytes_max: usize) -> String {
    let lines: Vec<_> =
        truncate_text(text, bytes_max).lines().map(|line| format!("> {line}")).collect();
    let quoted = lines.join("\n");
    truncate_text(&quoted, bytes_max).to_owned()
}

fn collapse_whitespace(text: &str) -> String {
    let words =
        truncate_text(text, 4 * LINE_BYTES_MAX).split_whitespace().collect::<Vec<_>>().join(" ");
    truncate_text(&words, LINE_BYTES_MAX).to_owned()
}

fn truncate_head(text: &str, bytes_max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..]
}

#[cfg(test)]
pub(crate) fn plain(task: &Task) -> PromptInput<'_> {
    PromptInput {
        task,
        epic_title: None,
        landed_before: &[],
        gates: &[],
        retry: None,
        hint: None,
        answers: &[],
        lessons: &[],
        bytes_max: PROMPT_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::tests::task;

    fn built(input: &PromptInput<'_>) -> String {
        build_prompt(input, &PromptTemplate::default())
    }

    #[test]
    fn a_first_attempt_reads_like_this() {
        let mut task = task("T-1");
        task.title = "Schema and\n migrations".into();
        task.description = "Write the schema.\n\nKeep it small.\n".into();
        task.acceptance = vec!["cargo test -p store passes".into()];
        task.writes = vec!["crates/store/**".into()];
        task.verify = vec!["cargo test -p store".into()];
        let landed = [(TaskId::new("T-0"), "Skeleton".to_owned())];
        let gates = ["cargo test".to_owned()];
        let text = built(&PromptInput {
            epic_title: Some("Storage"),
            landed_before: &landed,
            gates: &gates,
            ..plain(&task)
        });
        let expected = "\
# T-1: Schema and migrations

Part of: Storage

Write the schema.

Keep it small.

## Acceptance

The task is done when all of these are true:

- cargo test -p store passes

## What already exists

The work of these tasks is in your starting commit; build on it:

- T-0: Skeleton

## How to work

- You are in an isolated workspace: your own checkout, on your own branch. Other agents work in other workspaces at the same time.
- Commit often, with messages that say what and why. Your commits are the result.
- Run the tests for your change before you finish.
- Update documentation that your change makes wrong.
- If a decision is not yours to make, ask (with the tool `ask`, if available) instead of guessing.
- Do not touch files outside this workspace.
- Do not stash, switch branches, rewrite the starting commit or push.
- Leave the tree clean: commit what belongs to the task, delete what does not.
- Do this task only. Finishing without commits counts as a failure unless you report that there is nothing to do.

The plan expects changes in these files; other agents may be changing other files:

- `crates/store/**`

## Verification

These commands run in this workspace when you finish, and must pass:

- `cargo test -p store`

Before your work lands, these must pass on the merged tree:

- `cargo test`
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_retry_says_what_went_wrong_and_what_was_answered() {
        let task = task("T-2");
        let retry = RetryContext {
            attempt: 2,
            class: "agent_failed".into(),
            reason: "gate `cargo test` failed\nexit 101".into(),
            gate_output: Some("line\n```\nassertion failed\n".into()),
            conflict_files: vec!["src/`odd`.rs".into()],
            other_tasks: vec![(TaskId::new("T-9"), "Rename it all.".into())],
            sides: None,
            findings: vec!["it leaks\na file".into()],
            kept: None,
            started_over: false,
        };
        let answers = [("Which port?".to_owned(), "8080".to_owned())];
        let text = built(&PromptInput { retry: Some(&retry), answers: &answers, ..plain(&task) });
        let expected = "\
# T-2: Schema

## Attempt 2

The previous attempt did not land (agent failed).

> gate `cargo test` failed
> exit 101

That attempt left no work: your workspace is the current state of the target branch.

The end of the failed check's output:

````text
line
```
assertion failed
````

A review of that work found:

- it leaks a file

These files did not merge with work that has landed since:

- `` src/`odd`.rs ``

You start from the new state. Redo the task so that both changes work.

The other side is task T-9, which was asked to do this:

> Rename it all.

## Questions already answered

- Which port?
  Answer: 8080

## How to work
";
        assert_eq!(text[..expected.len()], *expected, "{text}");
    }

    #[test]
    fn whoever_resolves_a_conflict_is_told_so_and_gets_both_sides() {
        let task = task("T-2");
        let sides = PromptConflictSides {
            base: "b0".into(),
            landed: "l1".into(),
            work: "w2".into(),
            landed_diff: "-base\n+landed\n".into(),
            work_diff: "-base\n+work\n".into(),
            commits: vec!["l1 T-9: Rename".into()],
            laid_out: true,
        };
        let retry = RetryContext {
            attempt: 2,
            class: "conflicted".into(),
            conflict_files: vec!["src/a.rs".into()],
            other_tasks: vec![(TaskId::new("T-9"), "Rename it all.".into())],
            sides: Some(sides.clone()),
            ..RetryContext::default()
        };
        let text = built(&PromptInput { retry: Some(&retry), ..plain(&task) });
        for part in [
            "- `src/a.rs`\n",
            "resolve this conflict, not to do the task again",
            "The common ancestor is b0, what has landed is l1, the earlier work is w2",
            "- l1 T-9: Rename\n",
            "What has landed in these files:\n\n```text\n-base\n+landed\n```\n",
            "What the earlier work on this task changed in these files:\n\n```text\n-base\n+work\n```\n",
            "> Rename it all.",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let again = PromptConflictSides { laid_out: false, ..sides };
        let retry = RetryContext { sides: Some(again), ..retry };
        let text = built(&PromptInput { retry: Some(&retry), ..plain(&task) });
        assert!(text.contains("Redo the task so that both changes work") && text.contains("+work"));
        assert!(!text.contains("<<<<<<<"), "{text}");
    }

    #[test]
    fn an_empty_task_still_has_a_prompt() {
        let mut task = task("T-3");
        task.title.clear();
        let text = built(&plain(&task));
        assert!(text.starts_with("# T-3: Untitled task\n\n## How to work\n"), "{text}");
    }

    #[test]
    fn the_end_of_a_long_gate_output_is_what_stays() {
        let task = task("T-4");
        let output = format!("{}é THE END", "é".repeat(20_000));
        let retry = RetryContext { gate_output: Some(output), ..RetryContext::default() };
        let text = built(&PromptInput { retry: Some(&retry), ..plain(&task) });
        assert!(text.contains("é THE END\n```"), "the tail is missing");
        assert!(text.len() < 16 * 1024, "{}", text.len());
    }

    #[test]
    fn however_much_comes_in_the_prompt_is_bounded_and_the_rules_are_in_it() {
        let huge = "ü `x` \n\n\n\n\n".repeat(20_000);
        let many = vec![huge.clone(); 50];
        let mut task = task("T-5");
        task.title = huge.clone();
        task.description = huge.clone();
        task.role = Some(huge.clone());
        task.acceptance = many.clone();
        task.verify = many.clone();
        task.writes = many.clone();
        let landed: Vec<_> = many.iter().map(|text| (TaskId::new("T-0"), text.clone())).collect();
        let answers: Vec<_> = many.iter().map(|text| (text.clone(), text.clone())).collect();
        let retry = RetryContext {
            attempt: 3,
            class: huge.clone(),
            reason: huge.clone(),
            gate_output: Some(huge.clone()),
            conflict_files: many.clone(),
            other_tasks: landed.clone(),
            sides: Some(PromptConflictSides {
                landed_diff: huge.clone(),
                work_diff: huge.clone(),
                commits: many.clone(),
                ..PromptConflictSides::default()
            }),
            findings: many.clone(),
            kept: Some(EarlierWork {
                commits: many.clone(),
                files: many.clone(),
                conflicts: many.clone(),
                ..EarlierWork::default()
            }),
            started_over: false,
        };
        let text = built(&PromptInput {
            task: &task,
            epic_title: Some(&huge),
            landed_before: &landed,
            gates: &many,
            retry: Some(&retry),
            hint: Some(&huge),
            answers: &answers,
            lessons: &many,
            bytes_max: PROMPT_BYTES_MAX,
        });
        assert!(text.len() <= PROMPT_BYTES_MAX, "{}", text.len());
        assert!(text.contains("## How to work") && text.contains("## Verification"));
        assert!(text.contains("more\n"), "a shortened list says so");
    }

    #[test]
    fn a_small_budget_takes_from_what_matters_least() {
        let mut task = task("T-6");
        task.description = "what to do\n".repeat(200);
        task.acceptance = vec!["it holds".into()];
        let landed: Vec<_> =
            (0..200).map(|n| (TaskId::new(format!("L-{n}")), "x".repeat(60))).collect();
        let lessons = vec!["learned".repeat(10); 50];
        let input = PromptInput {
            landed_before: &landed,
            lessons: &lessons,
            bytes_max: 9000,
            ..plain(&task)
        };
        let text = built(&input);
        assert!(text.len() <= 9000, "{}", text.len());
        assert!(text.contains("it holds") && text.contains("## How to work"));
        assert_eq!(text.matches("what to do").count(), 200);
        assert!(text.contains("(The rest did not fit.)"), "{text}");
        let roomy = built(&PromptInput { bytes_max: PROMPT_BYTES_MAX, ..input });
        assert!(roomy.contains("L-199"));
    }
}
