//! A draft as it goes: a line per event, and on a terminal a table below them that moves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use mainstem_api::time;
use mainstem_core::id::Time;
use mainstem_core::plan::Plan;
use mainstem_engine::draft::{DraftObserver, JournaledDraftFact};
use mainstem_host::clock;
use mainstem_planner::draft::{
    Draft, DraftFact, DraftNotification, DraftPart, DraftPartPhase, DraftPartState,
    notification_for,
};
use mainstem_planner::revise::PlanChanges;
use serde_json::json;

use crate::async_writer::{AsyncWriter, TerminalStream};
use crate::context::CliContext;
use crate::output;

/// How often the table is redrawn.
const DRAWN_EVERY_MS: i64 = 200;
/// Rows of the table; a longer one would not fit above the fold.
const ROWS_MAX: usize = 14;
/// Tasks named of each kind of change.
const CHANGES_SHOWN: usize = 40;

pub(super) struct DraftLiveView {
    json: bool,
    quiet: bool,
    color: bool,
    live: bool,
    name: String,
    /// Lines of the table on the screen.
    drawn: usize,
    drawn_at: i64,
    doing: BTreeMap<DraftPart, String>,
    /// Events printed so far: other programs count them.
    seq: u64,
    /// Waits that were told of: the provider, and until when.
    waits_told: BTreeSet<(String, Option<Time>)>,
    pen: AsyncWriter,
}

impl DraftLiveView {
    pub(super) fn new(context: &CliContext, name: &str) -> Self {
        let (json, quiet) = (context.global.json, context.global.quiet);
        let live = !json && !quiet && std::io::stderr().is_terminal();
        Self {
            json,
            quiet,
            color: context.color_err,
            live,
            name: name.to_owned(),
            drawn: 0,
            drawn_at: 0,
            doing: BTreeMap::new(),
            seq: 0,
            waits_told: BTreeSet::new(),
            pen: AsyncWriter::new(),
        }
    }

    /// What is about to happen.
    pub(super) fn print_greeting(&mut self, draft: &Draft, prd: &Path) {
        if self.json || self.quiet {
            return;
        }
        let rules = draft.rules();
        let agents: Vec<&str> = rules.hands.iter().map(|hand| hand.agent.as_str()).collect();
        let done = draft.parts().values().filter(|part| part.phase == DraftPartPhase::Done).count();
        let resumed = match done {
            0 => String::new(),
            _ => format!(", {done} of {} already answered", draft.parts().len()),
        };
        let text = format!(
            "Planning {}: {} with {}, {} at a time{resumed}\n",
            self.name,
            prd.display(),
            agents.join(", "),
            rules.jobs
        );
        self.pen.write(TerminalStream::Err, text);
    }

    /// Something that people may not expect.
    pub(super) fn print_warning(&mut self, message: &str) {
        if !self.json && !self.quiet {
            self.print_line(Time(clock::now_ms()), "!", AnsiColor::Yellow, ("", message));
        }
    }

    fn print_line(&mut self, at: Time, sign: &str, color: AnsiColor, (who, words): (&str, &str)) {
        self.clear_table();
        let clock = time::to_rfc3339(at.0);
        let clock = clock.get(11..19).unwrap_or_default();
        let sign = output::paint_text(sign, Style::new().fg_color(Some(color.into())), self.color);
        let words = output::sanitize_text(words).replace('\n', " ");
        self.pen.write(
            TerminalStream::Err,
            format!("{clock}  {sign} {} {words}\n", output::pad_to_width(who, 7)),
        );
    }

    /// An event for other programs.
    fn print_event(&mut self, event: &DraftNotification, at: Time) {
        self.seq += 1;
        let mut line = json!(event);
        line["seq"] = json!(self.seq);
        line["at"] = json!(time::to_rfc3339(at.0));
        line["plan"] = json!(self.name);
        if let Some(until) = event.until {
            line["until"] = json!(time::to_rfc3339(until.0));
        }
        self.pen.write(TerminalStream::Out, format!("{line}\n"));
    }

    /// Says once that a draft waits for a limit that it met in an earlier life.
    fn announce_waits(&mut self, draft: &Draft) {
        let waiting =
            draft.parts().iter().filter(|(_, s)| matches!(s.phase, DraftPartPhase::Waiting(_)));
        let waits: BTreeSet<(String, Option<Time>)> = waiting
            .filter_map(|(part, _)| draft.provider_wait(part))
            .map(|(provider, until)| (provider.to_owned(), until))
            .collect();
        for (provider, until) in waits {
            let longer = |told: &(String, Option<Time>)| told.0 == provider && told.1 >= until;
            if self.waits_told.iter().any(longer) {
                continue;
            }
            let how_long = match until {
                Some(until) => {
                    let left = output::format_duration(until.since_ms(Time(clock::now_ms())));
                    format!("retrying in {left}")
                }
                None => "quota used up (set limits.auto_resume = true to wait)".to_owned(),
            };
            let message = format!("{provider} is rate-limited; {how_long}");
            self.waits_told.insert((provider, until));
            let now = Time(clock::now_ms());
            if self.json {
                let (kind, epic, attempt) = ("rate_limited".to_owned(), None, None);
                self.print_event(&DraftNotification { kind, epic, attempt, message, until }, now);
            } else if !self.quiet {
                self.print_line(now, "◔", AnsiColor::Yellow, ("", &message));
            }
        }
    }

    /// Takes the table away before a line is printed.
    pub(super) fn clear_table(&mut self) {
        if self.drawn > 0 {
            self.pen.write(TerminalStream::Err, format!("\x1b[{}A\r\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    /// What a second plan changes, before it takes the first one's place.
    pub(super) fn print_changes(&mut self, changes: &PlanChanges, new: Option<&Plan>) {
        if self.json || self.quiet {
            return;
        }
        self.clear_table();
        let text = changes_text(changes, new);
        self.pen.write(TerminalStream::Err, text);
    }
}

/// What a second plan changes, for people.
pub(super) fn changes_text(changes: &PlanChanges, new: Option<&Plan>) -> String {
    if changes.is_empty() {
        return "no changes to the plan\n".to_owned();
    }
    let title = |id: &str| {
        let task = new.and_then(|plan| plan.tasks.iter().find(|task| task.id.as_str() == id));
        output::sanitize_text(task.map(|task| task.title.as_str()).unwrap_or_default())
    };
    let mut out = format!(
        "compared with the last plan: {} added, {} changed, {} removed, {} unchanged\n",
        changes.added.len(),
        changes.changed.len(),
        changes.dropped.len(),
        changes.same
    );
    for id in changes.added.iter().take(CHANGES_SHOWN) {
        let _ = writeln!(out, "  + {id} {}", title(id.as_str()));
    }
    for (id, what) in changes.changed.iter().take(CHANGES_SHOWN) {
        let _ = writeln!(out, "  ~ {id} {} ({})", title(id.as_str()), what.join(", "));
    }
    for (id, title) in changes.dropped.iter().take(CHANGES_SHOWN) {
        let _ = writeln!(out, "  - {id} {}", output::sanitize_text(title));
    }
    out
}

impl DraftObserver for DraftLiveView {
    fn on_fact(&mut self, shown: &JournaledDraftFact<'_>, draft: &Draft) {
        if let DraftFact::CallIntended { part, .. } = shown.fact {
            self.doing.remove(part);
        }
        let Some(event) = notification_for(shown.fact) else { return };
        if let DraftFact::ProviderLimited { provider, until, .. }
        | DraftFact::ProviderParked { provider, until, .. } = shown.fact
        {
            self.waits_told.insert((provider.clone(), Some(*until)));
        }
        if self.json {
            return self.print_event(&event, shown.at);
        }
        if self.quiet {
            return;
        }
        let who = shown.fact.part().map(ToString::to_string).unwrap_or_default();
        let attempt = event.attempt.filter(|n| *n > 1).map(|n| format!(" (call {n})"));
        let words = format!("{}{}", event.message, attempt.unwrap_or_default());
        let (sign, color) = match (shown.fact, event.kind.as_str()) {
            (
                DraftFact::ProviderLimited { until, .. } | DraftFact::ProviderParked { until, .. },
                _,
            ) => {
                let left = output::format_duration(until.since_ms(Time(clock::now_ms())));
                let words = format!("{words}; retrying in {left} (not counted as a retry)");
                return self.print_line(shown.at, "◔", AnsiColor::Yellow, (&who, &words));
            }
            (DraftFact::AnswerTaken { repairs, .. }, _) if !repairs.is_empty() => {
                let words = format!("{words}; repaired: {}", repairs.join(", "));
                return self.print_line(shown.at, "✓", AnsiColor::Green, (&who, &words));
            }
            (_, kind) if kind.ends_with("completed") => ("✓", AnsiColor::Green),
            (_, kind) if kind.ends_with("failed") => ("✗", AnsiColor::Red),
            (_, kind) if kind.ends_with("retry") => ("↻", AnsiColor::Yellow),
            _ => ("▸", AnsiColor::Blue),
        };
        let title = shown.fact.part().and_then(|part| epic_title(draft, part));
        let words = match title.filter(|_| event.kind.ends_with("started")) {
            Some(title) => format!("{title}: {words}"),
            None => words,
        };
        self.print_line(shown.at, sign, color, (&who, &words));
    }

    fn on_progress(&mut self, part: &DraftPart, text: &str) {
        self.doing.insert(part.clone(), text.to_owned());
    }

    fn on_tick(&mut self, draft: &Draft) {
        let now = clock::now_ms();
        self.announce_waits(draft);
        if !self.live || now - self.drawn_at < DRAWN_EVERY_MS {
            return;
        }
        self.drawn_at = now;
        self.clear_table();
        let rows = render_rows(draft, &self.doing, now);
        let width = output::picture_width().saturating_sub(1);
        self.drawn = rows.len();
        let text: String =
            rows.iter().map(|row| format!("{}\n", output::truncate_to_width(row, width))).collect();
        self.pen.write(TerminalStream::Err, text);
    }
}

fn epic_title(draft: &Draft, part: &DraftPart) -> Option<String> {
    let id = part.epic()?;
    let epic = draft.breakdown()?.epics.iter().find(|epic| epic.id == id)?;
    Some(epic.title.clone())
}

/// The table: parts that are not over, what they do, and a line of sums.
fn render_rows(draft: &Draft, doing: &BTreeMap<DraftPart, String>, now: i64) -> Vec<String> {
    let mut rows = Vec::new();
    let busy = draft.parts().iter().filter(|(_, state)| {
        matches!(state.phase, DraftPartPhase::Calling | DraftPartPhase::Waiting(_))
    });
    let busy: Vec<(&DraftPart, &DraftPartState)> = busy.collect();
    for (part, state) in busy.iter().take(ROWS_MAX) {
        let since = output::format_duration(u64::try_from(now - state.begun.0).unwrap_or(0));
        let what = match &state.phase {
            DraftPartPhase::Calling => {
                let doing =
                    doing.get(part).map(|text| output::sanitize_text(text)).unwrap_or_default();
                format!("{} {since} {}", state.agent, doing.replace('\n', " "))
            }
            _ => match draft.provider_wait(part) {
                Some((provider, Some(until))) => {
                    let left = output::format_duration(until.since_ms(Time(now)));
                    format!("waiting {left} for {provider}")
                }
                Some((provider, None)) => format!("waiting for {provider}"),
                None => "waiting".to_owned(),
            },
        };
        let title = epic_title(draft, part).unwrap_or_else(|| part.stage().to_owned());
        let title = output::pad_to_width(
            &output::truncate_to_width(&output::sanitize_text(&title), 32),
            32,
        );
        rows.push(format!("  {} {title} {what}", output::pad_to_width(&part.to_string(), 7)));
    }
    if busy.len() > ROWS_MAX {
        rows.push(format!("  … and {} more", busy.len() - ROWS_MAX));
    }
    let count = |fits: &dyn Fn(&DraftPartPhase) -> bool| {
        draft.parts().values().filter(|state| fits(&state.phase)).count()
    };
    let total = &draft.account().total;
    let began = draft.started_at().map_or(now, |at| at.0);
    rows.push(format!(
        "[{}/{}] failed {} · {} tokens · ${:.2} · {}",
        count(&|stand| *stand == DraftPartPhase::Done),
        draft.parts().len(),
        count(&|stand| matches!(stand, DraftPartPhase::Failed(_))),
        total.input_tokens + total.output_tokens,
        total.paid_usd(),
        output::format_duration(u64::try_from(now - began).unwrap_or(0)),
    ));
    rows
}
