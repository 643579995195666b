//! The line stream of a run: one line per event on standard error, and on a terminal a live view below them on
//! standard error that is redrawn in place.

use std::io::IsTerminal;

use anstyle::Style;
use mainstem_api::{fact_line, time};
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_engine::observer::{EngineActivity, JournaledFact, RunObserver};

use crate::async_writer::{AsyncWriter, TerminalStream};
use crate::events::{EventFormatter, EventLine};
use crate::live_view;
use crate::output;

/// How often the live view is redrawn.
const REDRAWN_EVERY_MS: i64 = 200;
/// Room for what happened in a word or two.
const WHAT_WIDTH: usize = 14;
/// Lines that the detail of one event may take.
const DETAIL_LINES_MAX: usize = 5;
/// Narrowest and widest column of task ids.
const ID_WIDTHS: (usize, usize) = (6, 18);

/// Shows a run as lines.
pub(crate) struct RunStream {
    json: bool,
    quiet: bool,
    verbose: bool,
    color: bool,
    live: bool,
    /// Lines of the live view that stand on the terminal.
    drawn: usize,
    drawn_at: i64,
    began: i64,
    stopping: Option<bool>,
    teller: EventFormatter,
    pen: AsyncWriter,
}

impl RunStream {
    /// For this output; colors are those of standard error.
    pub(crate) fn new(json: bool, quiet: bool, verbose: bool, color: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            json,
            quiet,
            verbose,
            color,
            live: !json && !quiet && !dumb && std::io::stderr().is_terminal(),
            drawn: 0,
            drawn_at: 0,
            began: mainstem_host::clock::now_ms(),
            stopping: None,
            teller: EventFormatter::new(verbose),
            pen: AsyncWriter::new(),
        }
    }

    /// Takes the live view away before a line is printed.
    pub(crate) fn clear_live_view(&mut self) {
        if self.drawn > 0 {
            let up = match self.drawn {
                1 => String::new(),
                lines => format!("\x1b[{}A", lines - 1),
            };
            self.pen.write(TerminalStream::Err, format!("\r{up}\x1b[J"));
            self.drawn = 0;
        }
    }

    /// Says once what an interrupt does, and what a second one would do.
    fn announce_stop(&mut self, machine: &Machine) {
        let stopping = machine.stop_requested();
        if stopping.is_none() || stopping == self.stopping {
            return;
        }
        self.stopping = stopping;
        self.clear_live_view();
        let agents = machine.tasks().slots_in_use();
        let noun = output::count_noun(u64::from(agents), "agent");
        let words = match stopping {
            Some(true) => format!("Killing {noun}; work up to the last snapshot is kept.\n"),
            _ if agents == 0 => "Stopping.\n".to_owned(),
            _ => format!(
                "Stopping: nothing new starts, {noun} asked to stop, work is kept in snapshots.\n\
                 Press Ctrl-C again to kill agents now.\n"
            ),
        };
        self.pen.write(TerminalStream::Err, words);
    }
}

/// How wide the column of task ids is.
fn id_width(machine: &Machine) -> usize {
    let widest =
        machine.plan().tasks.iter().map(|task| output::visible_width(task.id.as_str())).max();
    widest.unwrap_or(0).clamp(ID_WIDTHS.0, ID_WIDTHS.1)
}

/// An event as text: the line, its evidence, and what helps.
pub(crate) fn render_event(
    line: &EventLine,
    task: &str,
    id_width: usize,
    color: bool,
    columns: Option<usize>,
) -> String {
    let sign = output::paint_text(line.sign, line.style, color);
    let what = output::sanitize_text(&line.what).replace('\n', " ");
    let indent = 4 + id_width + 2;
    let lead = match what.as_str() {
        "" => String::new(),
        what => format!("{}  ", output::pad_to_width(what, WHAT_WIDTH)),
    };
    let detail =
        output::sanitize_text(&line.detail).split_whitespace().collect::<Vec<_>>().join(" ");
    let start = indent + output::visible_width(&lead);
    let folded = match columns {
        Some(columns) => output::wrap_text(&detail, columns.saturating_sub(start)),
        None => vec![detail],
    };
    let cut = folded.len() > DETAIL_LINES_MAX;
    let mut out = format!("  {sign} {}  {lead}", output::pad_to_width(task, id_width));
    for (n, part) in folded.iter().take(DETAIL_LINES_MAX).enumerate() {
        if n > 0 {
            out.push_str(&" ".repeat(start));
        }
        out.push_str(part);
        if cut && n + 1 == DETAIL_LINES_MAX {
            out.push('…');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    let blanks = " ".repeat(indent);
    for text in &line.block {
        let text = match columns {
            Some(columns) => output::truncate_to_width(text, columns.saturating_sub(indent + 2)),
            None => text.clone(),
        };
        out.push_str(&format!("{blanks}│ {text}\n"));
    }
    if let Some(help) = &line.help {
        let help = output::sanitize_text(help);
        let mark = if line.block.is_empty() { "→" } else { "└" };
        let below = output::indent_block(&help, indent + 2, columns);
        out.push_str(&format!("{blanks}{mark} {}", below.trim_start()));
    }
    out
}

impl RunObserver for RunStream {
    fn on_fact(&mut self, shown: &JournaledFact<'_>, machine: &Machine) {
        if self.json {
            if let Ok(line) = fact_line(shown.seq, shown.at.0, shown.run.as_str(), shown.body) {
                self.pen.write(TerminalStream::Out, format!("{line}\n"));
            }
            return;
        }
        if self.quiet {
            return;
        }
        if let Some(line) = self.teller.format_fact(shown.fact, machine) {
            let task = shown.fact.task().map(ToString::to_string).unwrap_or_default();
            let task = line.subject.clone().unwrap_or(task);
            let columns = output::stderr_columns();
            let mut text = render_event(&line, &task, id_width(machine), self.color, columns);
            if self.verbose {
                text = format!("{}{text}", time_of_day(shown.at));
            }
            self.clear_live_view();
            self.pen.write(TerminalStream::Err, output::adapt_to_terminal(&text).into_owned());
        }
    }

    fn on_tick(&mut self, machine: &Machine, activity: &dyn Fn() -> EngineActivity) {
        if !self.json && !self.quiet {
            self.announce_stop(machine);
        }
        let now = mainstem_host::clock::now_ms();
        if !self.live || now - self.drawn_at < REDRAWN_EVERY_MS {
            return;
        }
        self.drawn_at = now;
        let columns = output::live_columns().saturating_sub(1);
        let rows = live_view::render_rows(machine, &activity(), (self.began, now), columns);
        self.clear_live_view();
        self.drawn = rows.len();
        let last = rows.len().saturating_sub(1);
        let rows = rows.iter().enumerate().map(|(n, row)| {
            let style = if n == last { Style::new().bold() } else { Style::new() };
            output::paint_text(&output::adapt_to_terminal(row), style, self.color)
        });
        let text = rows.collect::<Vec<_>>().join("\n");
        self.pen.write(TerminalStream::Err, text);
    }
}

/// The time of day before a line, for those who want everything.
fn time_of_day(at: Time) -> String {
    let clock = time::to_rfc3339(at.0);
    clock.get(11..19).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> EventLine {
        EventLine {
            sign: "✗",
            style: Style::new(),
            subject: None,
            what: "check failed".to_owned(),
            detail:
                "sh check.sh --all --verbose --with-everything, exit 1, on main + search + api: no"
                    .to_owned(),
            block: vec![
                "assertion failed: total == 3, and a very long line that goes on and on and on"
                    .to_owned(),
            ],
            help: Some("full output: mainstem logs api --gates".to_owned()),
        }
    }

    #[test]
    fn nothing_of_an_event_is_wider_than_the_terminal() {
        for columns in [40, 60, 80, 120] {
            let text = render_event(&failed(), "api", 6, false, Some(columns));
            for line in text.lines() {
                assert!(output::visible_width(line) <= columns, "{columns}: {line}");
            }
            assert!(text.contains("mainstem logs api --gates") || columns < 60, "{text}");
        }
    }

    #[test]
    fn a_pipe_gets_every_line_whole() {
        let text = render_event(&failed(), "api", 6, false, None);
        assert_eq!(
            text,
            "  ✗ api     check failed    sh check.sh --all --verbose --with-everything, exit 1, on main + search + api: no\n            \
             │ assertion failed: total == 3, and a very long line that goes on and on and on\n            \
             └ full output: mainstem logs api --gates\n"
        );
    }
}
