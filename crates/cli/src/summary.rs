//! The block at the end of every way out of a run: how many landed, what failed with its evidence, what was not
//! started and why, and the commands that help.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstem_api::exit_code;
use mainstem_core::advice::TaskAdvice;
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;

use crate::events::{self, join_names};
use crate::output;

/// Tasks that are told of one by one.
const ITEMS_MAX: usize = 10;
/// Failures whose output is repeated.
const OUTPUTS_MAX: usize = 3;
/// Lines of output that are repeated per failure.
const OUTPUT_LINES: usize = 10;
/// Tasks beyond which they are retried together.
const RETRY_ALL_FROM: usize = 2;

/// In which order the counts stand, and their words where those are not the phase's own.
const COUNTED: &[(Phase, &str)] = &[
    (Phase::Landed, "landed"),
    (Phase::Skipped, "skipped"),
    (Phase::Failed, "failed"),
    (Phase::Conflicted, "conflicted"),
    (Phase::Blocked, "blocked"),
    (Phase::Cancelled, "cancelled"),
    (Phase::Asking, "asking"),
    (Phase::Preparing, "preparing"),
    (Phase::Working, "working"),
    (Phase::Verifying, "verifying"),
    (Phase::Merging, "waiting to land"),
    (Phase::Ready, "ready"),
    (Phase::Waiting, "waiting"),
];

/// How and where the summary is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SummaryStyle {
    pub(crate) color: bool,
    /// As wide as this; any width if none.
    pub(crate) columns: Option<usize>,
}

pub(crate) fn render_summary(
    machine: &Machine,
    elapsed_ms: u64,
    code: u8,
    sheet: SummaryStyle,
) -> String {
    let mut out = format!("\n{}\n", render_header(machine, elapsed_ms, code, sheet));
    let width = name_column_width(machine);
    let writer = SummaryWriter { machine, sheet, width };
    if let Some(failure) = machine.target_failure() {
        out.push_str(&writer.format_failing_target(failure));
    }
    out.push_str(&writer.format_items());
    out.push_str(&writer.format_not_started());
    out.push_str(&writer.format_common_help());
    out
}

fn render_header(machine: &Machine, elapsed_ms: u64, code: u8, sheet: SummaryStyle) -> String {
    let counts = COUNTED.iter().filter_map(|(phase, word)| {
        let n = machine.tasks().count_in_phase(*phase);
        (n > 0).then(|| {
            output::paint_text(&format!("{n} {word}"), output::phase_style(*phase), sheet.color)
        })
    });
    let counts: Vec<String> = counts.collect();
    let mut text = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
    let _ = write!(text, " in {}", output::format_duration(elapsed_ms));
    if machine.spent_usd() > 0.0 {
        let of = machine.settings().budget.usd.map(|usd| format!(" of ${usd:.2}"));
        let _ = write!(text, ", ${:.2}{}", machine.spent_usd(), of.unwrap_or_default());
    }
    if code == exit_code::OK {
        return text;
    }
    let code = format!("exit code {code}");
    let room = sheet.columns.unwrap_or(0).saturating_sub(output::visible_width(&text) + code.len());
    format!("{text}{}{code}", " ".repeat(room.max(2)))
}

/// Wide enough for the names that are told of.
fn name_column_width(machine: &Machine) -> usize {
    let troubled = machine.tasks().all_tasks().filter(|t| is_listed(machine, *t));
    let widest = troubled.map(|t| output::visible_width(machine.graph().id(t).as_str())).max();
    widest.unwrap_or(0).max(output::visible_width(machine.target_branch())).clamp(4, 18)
}

/// Does this task have something of its own to say? Those that others block are told of with them.
fn is_listed(machine: &Machine, t: TaskIx) -> bool {
    let state = machine.tasks().get(t);
    match state.phase() {
        Phase::Failed | Phase::Conflicted | Phase::Asking => true,
        Phase::Blocked => state.chain.is_empty(),
        // Held up by the target branch: told of once, for all.
        Phase::Merging => !machine.waits_for_target_fix(t),
        Phase::Verifying => true,
        Phase::Landed
        | Phase::Skipped
        | Phase::Waiting
        | Phase::Ready
        | Phase::Cancelled
        | Phase::Preparing
        | Phase::Working => false,
    }
}

struct SummaryWriter<'a> {
    machine: &'a Machine,
    sheet: SummaryStyle,
    width: usize,
}

impl SummaryWriter<'_> {
    fn indent_width(&self) -> usize {
        4 + self.width + 2
    }

    /// One item: sign, name, and a sentence that is folded below itself.
    fn format_item(&self, phase: Phase, name: &str, sentence: &str) -> String {
        let sign = output::paint_text(
            output::phase_sign(phase),
            output::phase_style(phase),
            self.sheet.color,
        );
        let sentence =
            output::sanitize_text(sentence).split_whitespace().collect::<Vec<_>>().join(" ");
        let below = output::indent_block(&sentence, self.indent_width(), self.sheet.columns);
        format!("  {sign} {}  {}\n", output::pad_to_width(name, self.width), below.trim())
    }

    fn format_below(&self, text: &str) -> String {
        output::indent_block(text, self.indent_width(), self.sheet.columns)
    }

    fn format_output(&self, failure: &FailedGate) -> String {
        let room =
            self.sheet.columns.map(|columns| columns.saturating_sub(self.indent_width() + 2));
        let lines = events::output_block(failure, OUTPUT_LINES).into_iter().map(|line| {
            let line = room.map_or(line.clone(), |room| output::truncate_to_width(&line, room));
            format!("{}│ {line}\n", " ".repeat(self.indent_width()))
        });
        lines.collect()
    }

    /// The target branch fails its own checks: shown once, with who waits for that.
    fn format_failing_target(&self, failure: &FailedGate) -> String {
        let machine = self.machine;
        let held = machine.tasks().all_tasks().filter(|t| machine.waits_for_target_fix(*t));
        let held: Vec<String> = held.map(|t| machine.graph().id(t).to_string()).collect();
        let mut out = self.format_item(
            Phase::Failed,
            machine.target_branch(),
            &format!(
                "{} ({})",
                failure.headline(),
                failure.describe_ending(machine.target_branch())
            ),
        );
        out.push_str(&self.format_output(failure));
        if !held.is_empty() {
            out.push_str(&self.format_below(&format!("holds up {}", join_names(&held))));
        }
        out.push_str(&self.format_below(&machine.target_failure_help()));
        out
    }

    fn format_items(&self) -> String {
        let machine = self.machine;
        let told: Vec<TaskIx> =
            machine.tasks().all_tasks().filter(|t| is_listed(machine, *t)).collect();
        let mut out = String::new();
        let mut outputs: Vec<&str> = Vec::new();
        for t in told.iter().take(ITEMS_MAX) {
            let view = machine.task_view(*t);
            let id = machine.graph().id(*t).to_string();
            let sentence = match view.reason.is_empty() && !view.waiting_for.is_empty() {
                true => format!("waiting for {}", view.waiting_for.join(", ")),
                false if view.reason.is_empty() && view.phase == Phase::Merging => {
                    "its checks have not finished".to_owned()
                }
                false => view.reason.clone(),
            };
            let failure = machine.failed_check(*t);
            let sentence = match failure {
                Some(failure) => {
                    format!("{sentence} ({})", failure.describe_ending(machine.target_branch()))
                }
                None => sentence,
            };
            out.push_str(&self.format_item(view.phase, &id, &sentence));
            if let Some(failure) = failure
                && outputs.len() < OUTPUTS_MAX
                && !outputs.contains(&failure.output.as_str())
            {
                outputs.push(&failure.output);
                out.push_str(&self.format_output(failure));
            }
            let blocked = machine.tasks_blocked_by(*t);
            if !blocked.is_empty() {
                let words = format!(
                    "blocks {} ({})",
                    join_names(&blocked),
                    output::count_noun(blocked.len() as u64, "task")
                );
                let words =
                    if blocked.len() > 1 { words } else { format!("blocks {}", blocked[0]) };
                out.push_str(&self.format_below(&words));
            }
            out.push_str(&self.format_advice(&machine.task_advice(*t)));
        }
        if let Some(more) = told.len().checked_sub(ITEMS_MAX).filter(|more| *more > 0) {
            let _ = writeln!(out, "  and {more} more: mainstem status -v");
        }
        out
    }

    fn format_advice(&self, advice: &[TaskAdvice]) -> String {
        let widest = advice.iter().map(|a| output::visible_width(&a.command)).max().unwrap_or(0);
        let lines = advice.iter().map(|a| {
            let line = format!("{}  {}", output::pad_to_width(&a.command, widest), a.does);
            let fits = self.sheet.columns.is_none_or(|columns| {
                self.indent_width() + output::visible_width(&line) <= columns
            });
            let line = if fits { line } else { a.command.clone() };
            format!("{}{}\n", " ".repeat(self.indent_width()), line.trim_end())
        });
        lines.collect()
    }

    /// Ready tasks that did not start, by what kept them.
    fn format_not_started(&self) -> String {
        let machine = self.machine;
        let ready =
            machine.tasks().all_tasks().filter(|t| machine.tasks().phase(*t) == Phase::Ready);
        let mut why: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
        for t in ready {
            let view = machine.task_view(t);
            let reason = match view.reason.is_empty() && !view.waiting_for.is_empty() {
                true => format!("waiting for {}", view.waiting_for.join(", ")),
                false => view.reason,
            };
            let id = machine.graph().id(t).to_string();
            why.entry((reason, view.next_action)).or_default().push(id);
        }
        let mut out = String::new();
        for ((reason, action), ids) in why {
            let mut sentence = format!("{} not started", join_names(&ids));
            if !reason.is_empty() {
                let _ = write!(sentence, ": {reason}");
            }
            out.push_str(&self.format_item(Phase::Ready, &ids.len().to_string(), &sentence));
            if let Some(action) = action {
                out.push_str(&self.format_below(&action));
            }
        }
        out
    }

    /// What helps all of them at once.
    fn format_common_help(&self) -> String {
        let machine = self.machine;
        let count = |phase| usize::try_from(machine.tasks().count_in_phase(phase)).unwrap_or(0);
        let (failed, cancelled) = (count(Phase::Failed), count(Phase::Cancelled));
        if failed + cancelled < RETRY_ALL_FROM {
            return String::new();
        }
        let what = match (failed, cancelled) {
            (_, 0) => format!("{failed} failed tasks"),
            (0, _) => format!("{cancelled} cancelled tasks"),
            _ => format!("{failed} failed and {cancelled} cancelled tasks"),
        };
        output::indent_block(
            &format!("to retry the {what}: mainstem retry --all, then mainstem run"),
            2,
            self.sheet.columns,
        )
    }
}
