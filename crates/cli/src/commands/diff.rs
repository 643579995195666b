//! `mainstem diff`: what a task changed, as it landed or as an attempt left it.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use mainstem_api::exit_code;
use mainstem_core::id::TaskIx;
use mainstem_core::phase::Phase;
use mainstem_engine::query::RunReader;
use mainstem_engine::query::attempts::AttemptHistory;
use mainstem_engine::query::diff::{TaskWork, describe_diff, describe_work};
use mainstem_host::git::DiffStats;

use crate::args::DiffArgs;
use crate::commands::logs;
use crate::commands::show::write_stdout_bytes;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// What a task changed.
pub(crate) fn cmd_diff(context: &CliContext, args: &DiffArgs) -> CommandResult {
    let (repo, _, look) = context.open_existing_run(args.run.as_deref())?;
    let t = look.machine.find_task(&args.task)?;
    let range = match look.find_work(&repo, t, args.attempt)? {
        TaskWork::Found(range) => range,
        TaskWork::Missing(attempts) => return Err(no_work_error(&look, t, args, &attempts)),
    };
    if context.global.json {
        output::write_json(&describe_diff(&repo, &args.task, &range, !args.stat)?)?;
        return Ok(exit_code::OK);
    }
    let (base, tip) = (&range.base, &range.tip);
    if !context.global.quiet {
        output::write_stderr(&format!(
            "{}: {}..{}",
            describe_work(&args.task, &range),
            short_oid(base.as_str()),
            short_oid(tip.as_str())
        ));
    }
    if args.stat {
        output::write_stdout(&diff_stat(&repo.diff_stats(base, tip)?))?;
    } else {
        let patch = repo.diff(base, tip, false)?;
        if std::io::stdout().is_terminal() {
            output::write_stdout(&paint_patch(
                &String::from_utf8_lossy(&patch),
                context.color_out,
            ))?;
        } else {
            write_stdout_bytes(&patch)?;
        }
    }
    Ok(exit_code::OK)
}

/// Why there is nothing to show, and what helps.
fn no_work_error(
    look: &RunReader,
    t: TaskIx,
    args: &DiffArgs,
    known: &[AttemptHistory],
) -> CliError {
    let task = &args.task;
    let phase = look.machine.tasks().phase(t);
    match (args.attempt, known.len()) {
        (_, 0) => logs::not_tried_error(&look.machine, t),
        (Some(n), count) if !known.iter().any(|attempt| attempt.number == n) => {
            CliError::new(format!("{task} has no attempt {n}"))
                .with_hint(format!("attempts so far: {count}"))
        }
        _ if phase == Phase::Landed => CliError::new(format!("{task} changed nothing")),
        _ if phase.is_active() => uncommitted_error(task, known.last()),
        _ => CliError::new(format!("{task} has no changes to show"))
            .with_hint(format!("see what its attempts did: mainstem show {task}")),
    }
}

/// Edits that are neither committed nor on a snapshot are only where the agent works.
fn uncommitted_error(task: &str, attempt: Option<&AttemptHistory>) -> CliError {
    let failure = CliError::new(format!("{task} has committed nothing yet"));
    match attempt.and_then(|a| Some((a.workspace.as_ref()?, a.base.as_ref()?))) {
        Some((workspace, base)) => failure.with_hint(format!(
            "see uncommitted changes: git -C '{workspace}' diff {}",
            short_oid(base.as_str())
        )),
        None => failure.with_hint(format!("the workspace of {task} is still being created")),
    }
}

fn diff_stat(changes: &DiffStats) -> String {
    let count =
        |n: Option<u64>, sign: &str| n.map_or_else(|| "bin".to_owned(), |n| format!("{sign}{n}"));
    let mut rows: Vec<Vec<String>> = changes
        .files
        .iter()
        .map(|f| vec![count(f.added, "+"), count(f.removed, "−"), collapse_to_line(&f.path)])
        .collect();
    rows.push(vec![
        format!("+{}", changes.insertions),
        format!("−{}", changes.deletions),
        format!("in {}", output::count_noun(changes.files.len() as u64, "file")),
    ]);
    output::format_table(&rows)
}

/// A patch for a terminal: what the files hold cannot steer it, colours are ours.
fn paint_patch(patch: &str, color: bool) -> String {
    let green = Style::new().fg_color(Some(AnsiColor::Green.into()));
    let red = Style::new().fg_color(Some(AnsiColor::Red.into()));
    let cyan = Style::new().fg_color(Some(AnsiColor::Cyan.into()));
    let mut out = String::with_capacity(patch.len());
    let mut in_head = true;
    for line in patch.lines() {
        if line.starts_with("diff --git ") {
            in_head = true;
        } else if line.starts_with("@@") {
            in_head = false;
        }
        let style = match line.as_bytes().first() {
            _ if in_head => Style::new().bold(),
            Some(b'@') => cyan,
            Some(b'+') => green,
            Some(b'-') => red,
            _ => Style::new(),
        };
        out.push_str(&output::paint_text(&output::sanitize_text(line), style, color));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_on_a_terminal_cannot_steer_it() {
        let patch =
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\x1b]0;title\x07\n";
        let plain = paint_patch(patch, false);
        assert!(plain.contains("+new\n") && !plain.contains('\x1b'), "{plain:?}");
        let colored = paint_patch(patch, true);
        assert!(colored.contains("\x1b[32m+new\x1b[0m"), "{colored:?}");
        assert!(!colored.contains("\x1b]"), "{colored:?}");
    }
}
