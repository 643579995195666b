//! The block at the end of every way out of a run: how many landed, what failed with its evidence, what was not
//! started and why, and the commands that help.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstem_api::exit_code;
use mainstem_core::advice::Advice;
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;

use crate::events::{self, names};
use crate::print;

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
pub(crate) struct Sheet {
    /// With colors.
    pub(crate) color: bool,
    /// As wide as this; any width if none.
    pub(crate) columns: Option<usize>,
}

/// The whole block.
pub(crate) fn summary(machine: &Machine, elapsed_ms: u64, code: u8, sheet: Sheet) -> String {
    let mut out = format!("\n{}\n", header(machine, elapsed_ms, code, sheet));
    let width = name_width(machine);
    let writer = Writer { machine, sheet, width };
    if let Some(failure) = machine.base_failure() {
        out.push_str(&writer.red_target(failure));
    }
    out.push_str(&writer.items());
    out.push_str(&writer.not_started());
    out.push_str(&writer.all_at_once());
    out
}

fn header(machine: &Machine, elapsed_ms: u64, code: u8, sheet: Sheet) -> String {
    let counts = COUNTED.iter().filter_map(|(phase, word)| {
        let n = machine.tasks().count(*phase);
        (n > 0).then(|| print::paint(&format!("{n} {word}"), print::style(*phase), sheet.color))
    });
    let counts: Vec<String> = counts.collect();
    let mut text = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
    let _ = write!(text, " in {}", print::duration(elapsed_ms));
    if machine.spent_usd() > 0.0 {
        let of = machine.settings().budget.usd.map(|usd| format!(" of ${usd:.2}"));
        let _ = write!(text, ", ${:.2}{}", machine.spent_usd(), of.unwrap_or_default());
    }
    if code == exit_code::OK {
        return text;
    }
    let code = format!("exit code {code}");
    let room = sheet.columns.unwrap_or(0).saturating_sub(print::visible(&text) + code.len());
    format!("{text}{}{code}", " ".repeat(room.max(2)))
}

/// Wide enough for the names that are told of.
fn name_width(machine: &Machine) -> usize {
    let troubled = machine.tasks().all().filter(|t| is_told(machine, *t));
    let widest = troubled.map(|t| print::visible(machine.graph().id(t).as_str())).max();
    widest.unwrap_or(0).max(print::visible(machine.target())).clamp(4, 18)
}

/// Does this task have something of its own to say? Those that others block are told of with them.
fn is_told(machine: &Machine, t: TaskIx) -> bool {
    let state = machine.tasks().get(t);
    match state.phase() {
        Phase::Failed | Phase::Conflicted | Phase::Asking => true,
        Phase::Blocked => state.chain.is_empty(),
        // Held up by the target branch: told of once, for all.
        Phase::Merging => !machine.is_held_up(t),
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

struct Writer<'a> {
    machine: &'a Machine,
    sheet: Sheet,
    width: usize,
}

impl Writer<'_> {
    fn indent(&self) -> usize {
        4 + self.width + 2
    }

    /// One item: sign, name, and a sentence that is folded below itself.
    fn item(&self, phase: Phase, name: &str, sentence: &str) -> String {
        let sign = print::paint(print::sign(phase), print::style(phase), self.sheet.color);
        let sentence = print::harmless(sentence).split_whitespace().collect::<Vec<_>>().join(" ");
        let below = print::indented(&sentence, self.indent(), self.sheet.columns);
        format!("  {sign} {}  {}\n", print::pad(name, self.width), below.trim())
    }

    fn below(&self, text: &str) -> String {
        print::indented(text, self.indent(), self.sheet.columns)
    }

    fn output(&self, failure: &FailedGate) -> String {
        let room = self.sheet.columns.map(|columns| columns.saturating_sub(self.indent() + 2));
        let lines = events::output_block(failure, OUTPUT_LINES).into_iter().map(|line| {
            let line = room.map_or(line.clone(), |room| print::clip(&line, room));
            format!("{}│ {line}\n", " ".repeat(self.indent()))
        });
        lines.collect()
    }

    /// The target branch fails its own checks: shown once, with who waits for that.
    fn red_target(&self, failure: &FailedGate) -> String {
        let machine = self.machine;
        let held = machine.tasks().all().filter(|t| machine.is_held_up(*t));
        let held: Vec<String> = held.map(|t| machine.graph().id(t).to_string()).collect();
        let mut out = self.item(
            Phase::Failed,
            machine.target(),
            &format!("{} ({})", failure.headline(), failure.ended_where(machine.target())),
        );
        out.push_str(&self.output(failure));
        if !held.is_empty() {
            out.push_str(&self.below(&format!("holds up {}", names(&held))));
        }
        out.push_str(&self.below(&machine.base_help()));
        out
    }

    fn items(&self) -> String {
        let machine = self.machine;
        let told: Vec<TaskIx> = machine.tasks().all().filter(|t| is_told(machine, *t)).collect();
        let mut out = String::new();
        let mut outputs: Vec<&str> = Vec::new();
        for t in told.iter().take(ITEMS_MAX) {
            let view = machine.view(*t);
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
                Some(failure) => format!("{sentence} ({})", failure.ended_where(machine.target())),
                None => sentence,
            };
            out.push_str(&self.item(view.phase, &id, &sentence));
            if let Some(failure) = failure
                && outputs.len() < OUTPUTS_MAX
                && !outputs.contains(&failure.output.as_str())
            {
                outputs.push(&failure.output);
                out.push_str(&self.output(failure));
            }
            let blocked = machine.tasks_blocked_by(*t);
            if !blocked.is_empty() {
                let words = format!(
                    "blocks {} ({})",
                    names(&blocked),
                    print::count(blocked.len() as u64, "task")
                );
                let words =
                    if blocked.len() > 1 { words } else { format!("blocks {}", blocked[0]) };
                out.push_str(&self.below(&words));
            }
            out.push_str(&self.advice(&machine.advice(*t)));
        }
        if let Some(more) = told.len().checked_sub(ITEMS_MAX).filter(|more| *more > 0) {
            let _ = writeln!(out, "  and {more} more: mainstem status -v");
        }
        out
    }

    fn advice(&self, advice: &[Advice]) -> String {
        let widest = advice.iter().map(|a| print::visible(&a.command)).max().unwrap_or(0);
        let lines = advice.iter().map(|a| {
            let line = format!("{}  {}", print::pad(&a.command, widest), a.does);
            let fits = self
                .sheet
                .columns
                .is_none_or(|columns| self.indent() + print::visible(&line) <= columns);
            let line = if fits { line } else { a.command.clone() };
            format!("{}{}\n", " ".repeat(self.indent()), line.trim_end())
        });
        lines.collect()
    }

    /// Ready tasks that did not start, by what kept them.
    fn not_started(&self) -> String {
        let machine = self.machine;
        let ready = machine.tasks().all().filter(|t| machine.tasks().phase(*t) == Phase::Ready);
        let mut why: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
        for t in ready {
            let view = machine.view(t);
            let reason = match view.reason.is_empty() && !view.waiting_for.is_empty() {
                true => format!("waiting for {}", view.waiting_for.join(", ")),
                false => view.reason,
            };
            let id = machine.graph().id(t).to_string();
            why.entry((reason, view.next_action)).or_default().push(id);
        }
        let mut out = String::new();
        for ((reason, action), ids) in why {
            let mut sentence = format!("{} not started", names(&ids));
            if !reason.is_empty() {
                let _ = write!(sentence, ": {reason}");
            }
            out.push_str(&self.item(Phase::Ready, &ids.len().to_string(), &sentence));
            if let Some(action) = action {
                out.push_str(&self.below(&action));
            }
        }
        out
    }

    /// What helps all of them at once.
    fn all_at_once(&self) -> String {
        let machine = self.machine;
        let count = |phase| usize::try_from(machine.tasks().count(phase)).unwrap_or(0);
        let (failed, cancelled) = (count(Phase::Failed), count(Phase::Cancelled));
        if failed + cancelled < RETRY_ALL_FROM {
            return String::new();
        }
        let what = match (failed, cancelled) {
            (_, 0) => format!("{failed} failed tasks"),
            (0, _) => format!("{cancelled} cancelled tasks"),
            _ => format!("{failed} failed and {cancelled} cancelled tasks"),
        };
        print::indented(
            &format!("to retry the {what}: mainstem retry --all, then mainstem run"),
            2,
            self.sheet.columns,
        )
    }
}
