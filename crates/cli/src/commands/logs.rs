//! `logs`: what an attempt's agent, or its gates, printed. Reads the jobs' bounded logs; lines are
//! made harmless for a terminal and known secrets are taken out.

mod tail_logs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mainstem_agents::SecretRedactor;
use mainstem_api::log::LogLine;
use mainstem_api::{exit_code, time};
use mainstem_core::config::Settings;
use mainstem_core::fact::{GateScope, GateVerdict};
use mainstem_core::id::{RunId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::plan::quantities::render_size;
use mainstem_engine::query::attempts::AttemptHistory;
use mainstem_engine::query::{self, RunReader};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_host::git::Repo;
use mainstem_host::process::{self, JobState, OutputLine, OutputStream, read_job_output, sleep_ms};

use crate::args::LogsArgs;
use crate::commands::history::is_engine_running;
use crate::commands::show;
use crate::commands::status::collapse_to_line;
use crate::context::{CliContext, text_environment};
use crate::error::{CliError, CommandResult};
use crate::output;

/// Bytes of log read at once.
const READ_BYTES: usize = 1024 * 1024;
/// How often a followed log is looked at.
const FOLLOW_EVERY_MS: u64 = 100;
/// Room for the task's name before each line, where several are shown.
const PREFIX_WIDTH: usize = 12;
/// A line longer than this is printed in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Removes known secrets from what is shown.
pub(crate) fn build_redactor(settings: &Settings, repo: &Repo) -> SecretRedactor {
    query::log::build_redactor(settings, repo, text_environment())
}

/// A task that no agent has worked on yet.
pub(crate) fn not_tried_error(machine: &Machine, t: TaskIx) -> CliError {
    let id = machine.graph().id(t);
    let view = machine.task_view(t);
    let failure =
        CliError::new(format!("no agent has worked on {id} yet (state: {})", view.phase.as_str()));
    match view.next_action {
        _ if !view.waiting_for.is_empty() => {
            failure.with_hint(format!("waiting for {}", view.waiting_for.join(", ")))
        }
        Some(action) => failure.with_hint(action),
        None => failure.with_hint(format!("mainstem show {id}")),
    }
}

/// Prints what a task's agent printed.
pub(crate) fn cmd_logs(context: &CliContext, args: &LogsArgs) -> CommandResult {
    let (repo, layout, look) = context.open_existing_run(args.run.as_deref())?;
    let machine = &look.machine;
    let mut printer = LogPrinter {
        json: context.global.json,
        raw: args.raw,
        marked: context.global.verbose > 0,
        quiet: context.global.quiet,
        redactor: build_redactor(machine.settings(), &repo),
        gate: None,
        prefix: None,
        check: false,
        pending: BTreeMap::new(),
    };
    let Some(task) = &args.task else {
        return tail_logs::print_all_tasks(context, &mut printer, args);
    };
    let t = machine.find_task(task)?;
    if args.gates && args.follow {
        return tail_logs::follow_checks(context, &mut printer, args, task);
    }
    let newest = machine.tasks().get(t).attempts;
    if newest == 0 {
        return Err(not_tried_error(machine, t));
    }
    let n = args.attempt.unwrap_or(newest);
    if n == 0 || n > newest {
        return Err(CliError::new(format!("{task} has no attempt {n}"))
            .with_hint(format!("attempts so far: {newest}")));
    }
    let run = look.run.clone().unwrap_or_else(|| RunId::new(""));
    if args.gates {
        printer.check = true;
        return print_gate_logs(&mut printer, (&layout, &run, &look), task, n);
    }
    let dir = layout.agent_job(&run, machine.graph().id(t), n);
    if args.follow {
        follow_agent(context, &mut printer, &dir, args, (task, n))?;
    } else {
        printer.print_job(&dir)?;
        if matches!(job_state(&dir)?, JobState::Absent | JobState::Starting) && !context.global.json
        {
            output::write_stderr(&format!("attempt {n} of {task}: the agent has not started yet"));
        }
    }
    Ok(exit_code::OK)
}

fn job_state(dir: &Path) -> Result<JobState, CliError> {
    process::read_job_state(dir)
        .map_err(|error| CliError::io_error(format!("cannot read {}", dir.display()), &error))
}

fn follow_agent(
    context: &CliContext,
    printer: &mut LogPrinter,
    dir: &Path,
    args: &LogsArgs,
    (name, n): (&str, u32),
) -> Result<(), CliError> {
    let mut from = 0;
    loop {
        // Looked at before reading: whatever was printed before the end is then surely read.
        let now = job_state(dir)?;
        from = printer.print_from(dir, from)?;
        let ended = match &now {
            JobState::Ended(_) | JobState::Vanished => true,
            JobState::Alive(_) => false,
            // Nothing will come if nobody is there to start it, or if its time has passed.
            JobState::Absent | JobState::Starting => {
                let (_, layout, look) = context.open_run(args.run.as_deref())?;
                let task = look.machine.find_task(name)?;
                let attempt = look.machine.tasks().get(task).current.as_ref();
                let coming = look.machine.tasks().phase(task) == Phase::Preparing
                    || attempt.is_some_and(|a| a.n == n && a.ended_at.is_none());
                !coming || !is_engine_running(&layout)?
            }
        };
        if ended {
            printer.finish()?;
            if !printer.quiet && !printer.json {
                print_job_end(context, &now, args, (name, n))?;
            }
            return Ok(());
        }
        sleep_ms(FOLLOW_EVERY_MS);
    }
}

fn print_job_end(
    context: &CliContext,
    state: &JobState,
    args: &LogsArgs,
    (task, n): (&str, u32),
) -> Result<(), CliError> {
    let how = match state {
        JobState::Ended(exit) => match &exit.ending {
            process::JobEnding::Exited { code } => format!("ended with exit code {code}"),
            process::JobEnding::Signalled { signal } => format!("was killed by signal {signal}"),
            process::JobEnding::TimedOut { .. } => "timed out".to_owned(),
            process::JobEnding::OutOfMemory { limit } => {
                format!("was killed: used more than {} of memory", render_size(*limit))
            }
            process::JobEnding::Stopped => "was stopped".to_owned(),
            process::JobEnding::NotStarted { why, .. } => format!("could not start: {why}"),
        },
        JobState::Vanished => "vanished".to_owned(),
        _ => "has not started an agent".to_owned(),
    };
    output::write_stderr(&format!("attempt {n} of {task} {}", collapse_to_line(&how)));
    let (_, _, look) = context.open_run(args.run.as_deref())?;
    let newest = look.machine.tasks().get(look.machine.find_task(task)?).attempts;
    if newest > n {
        output::write_stderr(&format!("attempt {newest} has started: mainstem logs -f {task}"));
    }
    Ok(())
}

/// One gate's output and what is known of it.
struct GateLog {
    dir: Option<PathBuf>,
    name: String,
    scope: &'static str,
    verdict: Option<GateVerdict>,
    detail: String,
}

fn print_gate_logs(
    printer: &mut LogPrinter,
    (layout, run, look): (&RepoLayout, &RunId, &RunReader),
    task: &str,
    n: u32,
) -> CommandResult {
    let id = look.machine.graph().id(look.machine.find_task(task)?);
    let attempts = look.attempts(task)?;
    let place = layout.attempt_dir(run, id, n);
    let newest = look.machine.tasks().get(look.machine.find_task(task)?).attempts == n;
    let found = find_gate_logs(layout, &place, &attempts, n, newest)?;
    if found.is_empty() && !printer.json {
        output::write_stderr(&format!("no check has run for attempt {n} of {task} yet"));
    }
    for gate in found {
        let verdict = gate.verdict.map_or("no result yet", GateVerdict::as_str);
        printer.gate = Some((gate.name.clone(), gate.scope, verdict));
        if !printer.json {
            let place = if gate.scope == "train" { " on the merged tree" } else { "" };
            let why = gate.detail.lines().next().map(|why| format!(": {}", collapse_to_line(why)));
            let why = why.filter(|_| gate.dir.is_some()).unwrap_or_default();
            output::write_stdout(&format!(
                "── {verdict}  `{}`{place}{why}\n",
                collapse_to_line(&gate.name)
            ))?;
        }
        match &gate.dir {
            Some(dir) => printer.print_job(dir)?,
            None => printer.print_text(&gate.detail)?,
        }
    }
    Ok(exit_code::OK)
}

/// Gates with a verdict as the journal has them, then those under way, found by their folders.
fn find_gate_logs(
    layout: &RepoLayout,
    place: &Path,
    attempts: &[AttemptHistory],
    n: u32,
    newest: bool,
) -> Result<Vec<GateLog>, CliError> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for attempt in attempts {
        for gate in &attempt.gates {
            known.extend(gate.log.clone());
            if attempt.number == n {
                found.push(GateLog {
                    dir: gate.log.as_ref().map(|log| layout.state_dir().join(log)),
                    name: gate.gate.clone(),
                    scope: gate.scope.as_str(),
                    verdict: Some(gate.verdict),
                    detail: gate.detail.clone(),
                });
            }
        }
    }
    let mut places = vec![(place.to_path_buf(), "gate-", GateScope::Task)];
    if let (true, Some(task)) = (newest, place.parent()) {
        places.push((task.to_path_buf(), "train-", GateScope::Train));
    }
    for (folder, prefix, scope) in places {
        for name in list_names(&folder)? {
            let dir = folder.join(&name);
            let is_gate = name.starts_with(prefix) && !name.contains('.');
            if is_gate && !known.contains(&layout.relative_name(&dir)) {
                let scope = scope.as_str();
                let name = tail_logs::check_command(&dir).unwrap_or(name);
                found.push(GateLog {
                    dir: Some(dir),
                    name,
                    scope,
                    verdict: None,
                    detail: String::new(),
                });
            }
        }
    }
    Ok(found)
}

fn list_names(folder: &Path) -> Result<Vec<String>, CliError> {
    let unreadable = |error: std::io::Error| {
        CliError::io_error(format!("cannot read {}", folder.display()), &error)
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Is this line a word of an agent to us, and not output?
fn is_protocol_line(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{")
        && line.len() < LINE_BYTES_MAX
        && serde_json::from_slice::<serde_json::Value>(line)
            .is_ok_and(|value| value.get("mainstem").is_some_and(serde_json::Value::is_string))
}

/// Prints records as whole lines.
struct LogPrinter {
    json: bool,
    raw: bool,
    marked: bool,
    quiet: bool,
    redactor: SecretRedactor,
    gate: Option<(String, &'static str, &'static str)>,
    /// Whose output it is, where that of several is shown.
    prefix: Option<String>,
    /// It is the output of a check: nothing in it is ours.
    check: bool,
    /// Lines that are not whole yet, by whose they are and whether they are of standard error.
    pending: BTreeMap<(Option<String>, bool), OutputLine>,
}

impl LogPrinter {
    /// A job's whole log.
    fn print_job(&mut self, dir: &Path) -> Result<(), CliError> {
        self.print_from(dir, 0)?;
        self.finish()
    }

    /// Everything there is from an offset on; returns where to go on.
    fn print_from(&mut self, dir: &Path, mut from: u64) -> Result<u64, CliError> {
        loop {
            let output = read_job_output(dir, from, READ_BYTES).map_err(|error| {
                CliError::io_error(format!("cannot read the log in {}", dir.display()), &error)
            })?;
            if output.dropped > 0 {
                let note = format!("… {} bytes of output were dropped …", output.dropped);
                output::write_stderr(&note);
            }
            if output.lines.is_empty() && output.next == from {
                return Ok(from);
            }
            from = output.next;
            let mut out = Vec::new();
            for line in output.lines {
                self.print_line(line, &mut out)?;
            }
            show::write_stdout_bytes(&out)?;
        }
    }

    /// Prints what never became a whole line.
    fn finish(&mut self) -> Result<(), CliError> {
        let mut out = Vec::new();
        for ((prefix, _), line) in std::mem::take(&mut self.pending) {
            self.prefix = prefix;
            self.write_whole_line(&line, &mut out)?;
        }
        show::write_stdout_bytes(&out)
    }

    /// Text that is in no log.
    fn print_text(&mut self, text: &str) -> Result<(), CliError> {
        let mut out = Vec::new();
        for line in text.lines() {
            let text = line.as_bytes().to_vec();
            let line = OutputLine {
                offset: 0,
                at_ms: 0,
                stream: OutputStream::Stdout,
                text,
                continues: false,
            };
            self.write_whole_line(&line, &mut out)?;
        }
        show::write_stdout_bytes(&out)
    }

    fn print_line(&mut self, line: OutputLine, out: &mut Vec<u8>) -> Result<(), CliError> {
        let slot = (self.prefix.clone(), line.stream == OutputStream::Stderr);
        let whole = match self.pending.remove(&slot) {
            Some(mut begun) => {
                begun.text.extend_from_slice(&line.text);
                OutputLine { continues: line.continues, ..begun }
            }
            None => line,
        };
        if whole.continues && whole.text.len() < LINE_BYTES_MAX {
            self.pending.insert(slot, whole);
            return Ok(());
        }
        self.write_whole_line(&whole, out)
    }

    fn write_whole_line(&self, line: &OutputLine, out: &mut Vec<u8>) -> Result<(), CliError> {
        if !self.raw && !self.check && is_protocol_line(&line.text) {
            return Ok(());
        }
        let text = self.redactor.redact_bytes(&line.text);
        if self.json {
            let gate = self.gate.as_ref();
            let task = self.prefix.as_deref().and_then(|prefix| prefix.split(' ').next());
            let value = LogLine {
                at: line.at_ms,
                stream: query::log::stream_word(line.stream).to_owned(),
                text: String::from_utf8_lossy(&text).into_owned(),
                task: task.map(str::to_owned),
                check: task.map(|_| self.check),
                gate: gate.map(|(gate, _, _)| gate.clone()),
                scope: gate.map(|(_, scope, _)| (*scope).to_owned()),
                verdict: gate.map(|(_, _, verdict)| (*verdict).to_owned()),
            };
            let line = serde_json::to_string(&value)
                .map_err(|error| CliError::new(format!("BUG: a line is plain data: {error}")))?;
            out.extend_from_slice(line.as_bytes());
        } else {
            if let Some(prefix) = &self.prefix {
                out.extend_from_slice(
                    format!("{} | ", output::pad_to_width(prefix, PREFIX_WIDTH)).as_bytes(),
                );
            }
            if self.marked {
                let clock = time::to_rfc3339(line.at_ms);
                let clock = clock.get(11..19).unwrap_or_default();
                let mark = if line.stream == OutputStream::Stderr { "err" } else { "   " };
                out.extend_from_slice(format!("{clock} {mark} ").as_bytes());
            }
            if self.raw {
                out.extend_from_slice(&text);
            } else {
                let text = String::from_utf8_lossy(&text);
                let text = text.strip_suffix('\r').unwrap_or(&text);
                out.extend_from_slice(output::sanitize_text(text).as_bytes());
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn printer(raw: bool) -> LogPrinter {
        LogPrinter {
            json: false,
            raw,
            marked: false,
            quiet: false,
            redactor: SecretRedactor::new([("TOKEN", "very-secret")]),
            gate: None,
            prefix: None,
            check: false,
            pending: BTreeMap::new(),
        }
    }

    fn record(text: &str, stream: OutputStream, continues: bool) -> OutputLine {
        OutputLine { offset: 0, at_ms: 0, stream, text: text.into(), continues }
    }

    #[test]
    fn a_secret_split_over_two_records_is_still_taken_out() {
        let mut printer = printer(true);
        let mut out = Vec::new();
        printer.print_line(record("a very-", OutputStream::Stdout, true), &mut out).unwrap();
        printer.print_line(record("other", OutputStream::Stderr, false), &mut out).unwrap();
        printer.print_line(record("secret z", OutputStream::Stdout, false), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "other\na [redacted TOKEN] z\n");
    }

    #[test]
    fn lines_of_the_protocol_are_shown_only_when_asked_for() {
        let lines = [r#"{"mainstem":"usage","input_tokens":1}"#, r#"{"level":"info"}"#, "words"];
        for (raw, expected) in [(true, 3), (false, 2)] {
            let mut out = Vec::new();
            for line in lines {
                printer(raw)
                    .print_line(record(line, OutputStream::Stdout, false), &mut out)
                    .unwrap();
            }
            assert_eq!(String::from_utf8(out).unwrap().lines().count(), expected);
        }
    }

    #[test]
    fn escapes_are_shown_only_when_asked_for() {
        for (raw, expected) in [(true, "\x1b[31mred\n"), (false, "red\n")] {
            let mut out = Vec::new();
            printer(raw)
                .print_line(record("\x1b[31mred", OutputStream::Stdout, false), &mut out)
                .unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
