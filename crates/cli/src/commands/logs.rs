//! `logs`: what an attempt's agent, or its gates, printed. Reads the jobs' bounded logs; lines are
//! made harmless for a terminal and known secrets are taken out.

mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mainstem_agents::Redactor;
use mainstem_agents::environment::is_denied;
use mainstem_api::{exit_code, time};
use mainstem_core::config::Settings;
use mainstem_core::fact::{GateScope, Verdict};
use mainstem_core::id::{RunId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::plan::units::render_size;
use mainstem_engine::look::Look;
use mainstem_engine::paths::Layout;
use mainstem_host::git::Repo;
use mainstem_host::process::{self, JobState, OutputLine, Stream, pause_ms, read_output};
use serde_json::json;

use crate::args::LogsArgs;
use crate::commands::history::engine_is_there;
use crate::commands::show::{self, Attempt};
use crate::commands::status::one_line;
use crate::context::{Context, environment};
use crate::failure::{Failure, Outcome};
use crate::print;

/// Bytes of log read at once.
const READ_BYTES: usize = 1024 * 1024;
/// How often a followed log is looked at.
const FOLLOW_EVERY_MS: u64 = 100;
/// Room for the task's name before each line, where several are shown.
const PREFIX_WIDTH: usize = 12;
/// A line longer than this is printed in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Takes out the values of all secrets that the settings name and the environment has, and of credentials in
/// git's own settings.
pub(crate) fn redactor(settings: &Settings, repo: &Repo) -> Redactor {
    let named: BTreeSet<&str> =
        settings.agents.values().flat_map(|a| &a.secrets).map(String::as_str).collect();
    let given = environment().into_iter().filter(|(name, _)| named.contains(name.as_str()));
    let set = settings.agents.values().flat_map(|agent| agent.env.clone());
    let of_git = repo.known_credentials().iter();
    let of_git = of_git.map(|found| (format!("git config {}", found.key), found.value.clone()));
    Redactor::new(given.chain(set.filter(|(name, _)| is_denied(name))).chain(of_git))
}

/// A task that no agent has worked on yet.
pub(crate) fn not_tried(machine: &Machine, t: TaskIx) -> Failure {
    let id = machine.graph().id(t);
    let view = machine.view(t);
    let failure =
        Failure::new(format!("no agent has worked on {id} yet (state: {})", view.phase.word()));
    match view.next_action {
        _ if !view.waiting_for.is_empty() => {
            failure.hint(format!("waiting for {}", view.waiting_for.join(", ")))
        }
        Some(action) => failure.hint(action),
        None => failure.hint(format!("mainstem show {id}")),
    }
}

/// Prints what a task's agent printed.
pub(crate) fn logs(context: &Context, args: &LogsArgs) -> Outcome {
    let (repo, layout, look) = context.look_at_run(args.run.as_deref())?;
    let machine = &look.machine;
    let mut printer = Printer {
        json: context.global.json,
        raw: args.raw,
        marked: context.global.verbose > 0,
        quiet: context.global.quiet,
        redactor: redactor(machine.settings(), &repo),
        gate: None,
        prefix: None,
        check: false,
        pending: BTreeMap::new(),
    };
    let Some(task) = &args.task else { return follow::all(context, &mut printer, args) };
    let t = machine.find(task)?;
    if args.gates && args.follow {
        return follow::checks(context, &mut printer, args, task);
    }
    let newest = machine.tasks().get(t).attempts;
    if newest == 0 {
        return Err(not_tried(machine, t));
    }
    let n = args.attempt.unwrap_or(newest);
    if n == 0 || n > newest {
        return Err(Failure::new(format!("{task} has no attempt {n}"))
            .hint(format!("attempts so far: {newest}")));
    }
    let run = look.run.clone().unwrap_or_else(|| RunId::new(""));
    if args.gates {
        printer.check = true;
        return gates(&mut printer, (&layout, &run, &look), task, n);
    }
    let dir = layout.agent_job(&run, machine.graph().id(t), n);
    if args.follow {
        follow_agent(context, &mut printer, &dir, args, (task, n))?;
    } else {
        printer.job(&dir)?;
        if matches!(state(&dir)?, JobState::Absent | JobState::Starting) && !context.global.json {
            print::err(&format!("attempt {n} of {task}: the agent has not started yet"));
        }
    }
    Ok(exit_code::OK)
}

fn state(dir: &Path) -> Result<JobState, Failure> {
    process::state(dir)
        .map_err(|error| Failure::io(format!("cannot read {}", dir.display()), &error))
}

fn follow_agent(
    context: &Context,
    printer: &mut Printer,
    dir: &Path,
    args: &LogsArgs,
    (name, n): (&str, u32),
) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        // Looked at before reading: whatever was printed before the end is then surely read.
        let now = state(dir)?;
        from = printer.from(dir, from)?;
        let ended = match &now {
            JobState::Ended(_) | JobState::Vanished => true,
            JobState::Alive(_) => false,
            // Nothing will come if nobody is there to start it, or if its time has passed.
            JobState::Absent | JobState::Starting => {
                let (_, layout, look) = context.look(args.run.as_deref())?;
                let task = look.machine.find(name)?;
                let attempt = look.machine.tasks().get(task).current.as_ref();
                let coming = look.machine.tasks().phase(task) == Phase::Preparing
                    || attempt.is_some_and(|a| a.n == n && a.ended_at.is_none());
                !coming || !engine_is_there(&layout)?
            }
        };
        if ended {
            printer.finish()?;
            if !printer.quiet && !printer.json {
                say_end(context, &now, args, (name, n))?;
            }
            return Ok(());
        }
        pause_ms(FOLLOW_EVERY_MS);
    }
}

fn say_end(
    context: &Context,
    state: &JobState,
    args: &LogsArgs,
    (task, n): (&str, u32),
) -> Result<(), Failure> {
    let how = match state {
        JobState::Ended(exit) => match &exit.ending {
            process::Ending::Exited { code } => format!("ended with exit code {code}"),
            process::Ending::Signalled { signal } => format!("was killed by signal {signal}"),
            process::Ending::TimedOut { .. } => "timed out".to_owned(),
            process::Ending::OutOfMemory { limit } => {
                format!("was killed: used more than {} of memory", render_size(*limit))
            }
            process::Ending::Stopped => "was stopped".to_owned(),
            process::Ending::NotStarted { why, .. } => format!("could not start: {why}"),
        },
        JobState::Vanished => "vanished".to_owned(),
        _ => "has not started an agent".to_owned(),
    };
    print::err(&format!("attempt {n} of {task} {}", one_line(&how)));
    let (_, _, look) = context.look(args.run.as_deref())?;
    let newest = look.machine.tasks().get(look.machine.find(task)?).attempts;
    if newest > n {
        print::err(&format!("attempt {newest} has started: mainstem logs -f {task}"));
    }
    Ok(())
}

/// One gate's output and what is known of it.
struct GateLog {
    dir: Option<PathBuf>,
    name: String,
    scope: &'static str,
    verdict: Option<Verdict>,
    detail: String,
}

fn gates(
    printer: &mut Printer,
    (layout, run, look): (&Layout, &RunId, &Look),
    task: &str,
    n: u32,
) -> Outcome {
    let id = look.machine.graph().id(look.machine.find(task)?);
    let attempts = show::attempts(look, task)?;
    let place = layout.attempt(run, id, n);
    let newest = look.machine.tasks().get(look.machine.find(task)?).attempts == n;
    let found = gate_logs(layout, &place, &attempts, n, newest)?;
    if found.is_empty() && !printer.json {
        print::err(&format!("no check has run for attempt {n} of {task} yet"));
    }
    for gate in found {
        let verdict = gate.verdict.map_or("no result yet", Verdict::word);
        printer.gate = Some((gate.name.clone(), gate.scope, verdict));
        if !printer.json {
            let place = if gate.scope == "train" { " on the merged tree" } else { "" };
            let why = gate.detail.lines().next().map(|why| format!(": {}", one_line(why)));
            let why = why.filter(|_| gate.dir.is_some()).unwrap_or_default();
            print::out(&format!("── {verdict}  `{}`{place}{why}\n", one_line(&gate.name)))?;
        }
        match &gate.dir {
            Some(dir) => printer.job(dir)?,
            None => printer.text(&gate.detail)?,
        }
    }
    Ok(exit_code::OK)
}

/// Gates with a verdict as the journal has them, then those under way, found by their folders.
fn gate_logs(
    layout: &Layout,
    place: &Path,
    attempts: &[Attempt],
    n: u32,
    newest: bool,
) -> Result<Vec<GateLog>, Failure> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for attempt in attempts {
        for gate in &attempt.gates {
            known.extend(gate.log.clone());
            if attempt.number() == n {
                found.push(GateLog {
                    dir: gate.log.as_ref().map(|log| layout.state().join(log)),
                    name: gate.gate.clone(),
                    scope: gate.scope.word(),
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
        for name in names_in(&folder)? {
            let dir = folder.join(&name);
            let is_gate = name.starts_with(prefix) && !name.contains('.');
            if is_gate && !known.contains(&layout.relative(&dir)) {
                let scope = scope.word();
                let name = follow::command_of(&dir).unwrap_or(name);
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

fn names_in(folder: &Path) -> Result<Vec<String>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::io(format!("cannot read {}", folder.display()), &error);
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
fn is_protocol(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.starts_with(b"{")
        && line.len() < LINE_BYTES_MAX
        && serde_json::from_slice::<serde_json::Value>(line)
            .is_ok_and(|value| value.get("mainstem").is_some_and(serde_json::Value::is_string))
}

/// Prints records as whole lines.
struct Printer {
    json: bool,
    raw: bool,
    marked: bool,
    quiet: bool,
    redactor: Redactor,
    gate: Option<(String, &'static str, &'static str)>,
    /// Whose output it is, where that of several is shown.
    prefix: Option<String>,
    /// It is the output of a check: nothing in it is ours.
    check: bool,
    /// Lines that are not whole yet, by whose they are and whether they are of standard error.
    pending: BTreeMap<(Option<String>, bool), OutputLine>,
}

impl Printer {
    /// A job's whole log.
    fn job(&mut self, dir: &Path) -> Result<(), Failure> {
        self.from(dir, 0)?;
        self.finish()
    }

    /// Everything there is from an offset on; returns where to go on.
    fn from(&mut self, dir: &Path, mut from: u64) -> Result<u64, Failure> {
        loop {
            let output = read_output(dir, from, READ_BYTES).map_err(|error| {
                Failure::io(format!("cannot read the log in {}", dir.display()), &error)
            })?;
            if output.dropped > 0 {
                let note = format!("… {} bytes of output were dropped …", output.dropped);
                print::err(&note);
            }
            if output.lines.is_empty() && output.next == from {
                return Ok(from);
            }
            from = output.next;
            let mut out = Vec::new();
            for line in output.lines {
                self.line(line, &mut out)?;
            }
            show::out_bytes(&out)?;
        }
    }

    /// Prints what never became a whole line.
    fn finish(&mut self) -> Result<(), Failure> {
        let mut out = Vec::new();
        for ((prefix, _), line) in std::mem::take(&mut self.pending) {
            self.prefix = prefix;
            self.whole(&line, &mut out)?;
        }
        show::out_bytes(&out)
    }

    /// Text that is in no log.
    fn text(&mut self, text: &str) -> Result<(), Failure> {
        let mut out = Vec::new();
        for line in text.lines() {
            let text = line.as_bytes().to_vec();
            let line =
                OutputLine { offset: 0, at_ms: 0, stream: Stream::Stdout, text, continues: false };
            self.whole(&line, &mut out)?;
        }
        show::out_bytes(&out)
    }

    fn line(&mut self, line: OutputLine, out: &mut Vec<u8>) -> Result<(), Failure> {
        let slot = (self.prefix.clone(), line.stream == Stream::Stderr);
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
        self.whole(&whole, out)
    }

    fn whole(&self, line: &OutputLine, out: &mut Vec<u8>) -> Result<(), Failure> {
        if !self.raw && !self.check && is_protocol(&line.text) {
            return Ok(());
        }
        let text = self.redactor.redact(&line.text);
        let stream = if line.stream == Stream::Stderr { "stderr" } else { "stdout" };
        if self.json {
            let mut value = json!({
                "at": time::to_rfc3339(line.at_ms), "stream": stream,
                "text": String::from_utf8_lossy(&text),
            });
            if let Some(task) = &self.prefix {
                value["task"] = task.split(' ').next().into();
                value["check"] = self.check.into();
            }
            if let Some((gate, scope, verdict)) = &self.gate {
                value["gate"] = gate.as_str().into();
                value["scope"] = (*scope).into();
                value["verdict"] = (*verdict).into();
            }
            let line = serde_json::to_string(&value)
                .map_err(|error| Failure::new(format!("BUG: a line is plain data: {error}")))?;
            out.extend_from_slice(line.as_bytes());
        } else {
            if let Some(prefix) = &self.prefix {
                out.extend_from_slice(
                    format!("{} | ", print::pad(prefix, PREFIX_WIDTH)).as_bytes(),
                );
            }
            if self.marked {
                let clock = time::to_rfc3339(line.at_ms);
                let clock = clock.get(11..19).unwrap_or_default();
                let mark = if line.stream == Stream::Stderr { "err" } else { "   " };
                out.extend_from_slice(format!("{clock} {mark} ").as_bytes());
            }
            if self.raw {
                out.extend_from_slice(&text);
            } else {
                let text = String::from_utf8_lossy(&text);
                let text = text.strip_suffix('\r').unwrap_or(&text);
                out.extend_from_slice(print::harmless(text).as_bytes());
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

    fn printer(raw: bool) -> Printer {
        Printer {
            json: false,
            raw,
            marked: false,
            quiet: false,
            redactor: Redactor::new([("TOKEN", "very-secret")]),
            gate: None,
            prefix: None,
            check: false,
            pending: BTreeMap::new(),
        }
    }

    fn record(text: &str, stream: Stream, continues: bool) -> OutputLine {
        OutputLine { offset: 0, at_ms: 0, stream, text: text.into(), continues }
    }

    #[test]
    fn a_secret_split_over_two_records_is_still_taken_out() {
        let mut printer = printer(true);
        let mut out = Vec::new();
        printer.line(record("a very-", Stream::Stdout, true), &mut out).unwrap();
        printer.line(record("other", Stream::Stderr, false), &mut out).unwrap();
        printer.line(record("secret z", Stream::Stdout, false), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "other\na [redacted TOKEN] z\n");
    }

    #[test]
    fn lines_of_the_protocol_are_shown_only_when_asked_for() {
        let lines = [r#"{"mainstem":"usage","input_tokens":1}"#, r#"{"level":"info"}"#, "words"];
        for (raw, expected) in [(true, 3), (false, 2)] {
            let mut out = Vec::new();
            for line in lines {
                printer(raw).line(record(line, Stream::Stdout, false), &mut out).unwrap();
            }
            assert_eq!(String::from_utf8(out).unwrap().lines().count(), expected);
        }
    }

    #[test]
    fn escapes_are_shown_only_when_asked_for() {
        for (raw, expected) in [(true, "\x1b[31mred\n"), (false, "red\n")] {
            let mut out = Vec::new();
            printer(raw).line(record("\x1b[31mred", Stream::Stdout, false), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
