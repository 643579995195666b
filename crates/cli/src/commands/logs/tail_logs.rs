//! `logs` of many jobs at once: all tasks interleaved by time, and checks while they run. Finds jobs by their
//! folders; knows nothing of what they print.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use mainstem_core::id::{RunId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_host::process::{self, JobState, OutputLine, read_job_output, sleep_ms};

use super::{FOLLOW_EVERY_MS, LogPrinter, job_state, list_names};
use crate::args::LogsArgs;
use crate::commands::history::is_engine_running;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Bytes of one log that are looked at before another one has its turn.
const CHUNK_BYTES: usize = 128 * 1024;
/// How many looks at the logs fall to one look at the journal.
const LOOKS_PER_FOLD: u32 = 10;

/// One job whose output is read.
struct LogSource {
    dir: PathBuf,
    /// Whose output it is, at the beginning of each line.
    prefix: String,
    /// It is a check, not an agent: nothing in its output is ours.
    check: bool,
    from: u64,
    lines: VecDeque<OutputLine>,
}

impl LogSource {
    fn new(dir: PathBuf, prefix: String, check: bool) -> Self {
        Self { dir, prefix, check, from: 0, lines: VecDeque::new() }
    }

    /// Reads on, if nothing read is left.
    fn fill_buffer(&mut self) -> Result<(), CliError> {
        if !self.lines.is_empty() {
            return Ok(());
        }
        let output = read_job_output(&self.dir, self.from, CHUNK_BYTES).map_err(|error| {
            CliError::io_error(format!("cannot read the log in {}", self.dir.display()), &error)
        })?;
        self.from = output.next;
        self.lines.extend(output.lines);
        Ok(())
    }
}

/// The jobs of one task's newest attempt: its agent's, and its checks'.
fn task_sources(
    layout: &RepoLayout,
    run: &RunId,
    machine: &Machine,
    t: TaskIx,
) -> Result<Vec<LogSource>, CliError> {
    let id = machine.graph().id(t);
    let n = machine.tasks().get(t).attempts;
    if n == 0 {
        return Ok(Vec::new());
    }
    let agent = LogSource::new(layout.agent_job(run, id, n), id.to_string(), false);
    let mut found = vec![agent];
    for dir in check_jobs(layout, run, machine, t)? {
        found.push(LogSource::new(dir, format!("{id} check"), true));
    }
    Ok(found)
}

/// Folders of the checks of a task's newest attempt, in its workspace and on the merged tree.
pub(super) fn check_jobs(
    layout: &RepoLayout,
    run: &RunId,
    machine: &Machine,
    t: TaskIx,
) -> Result<Vec<PathBuf>, CliError> {
    let attempt = layout.attempt_dir(run, machine.graph().id(t), machine.tasks().get(t).attempts);
    let task = attempt.parent().map(Path::to_path_buf);
    let places = [(Some(attempt), "gate-"), (task, "train-")];
    let mut found = Vec::new();
    for (place, prefix) in places {
        let Some(place) = place else { continue };
        for name in list_names(&place)? {
            if name.starts_with(prefix) && !name.contains('.') {
                found.push(place.join(name));
            }
        }
    }
    Ok(found)
}

/// The command of a check, as its job has it.
pub(super) fn check_command(dir: &Path) -> Option<String> {
    process::read_job_spec(dir).ok().flatten()?.argv.last().cloned()
}

/// Prints the output of all tasks, by time, each line behind its task.
pub(super) fn print_all_tasks(
    context: &CliContext,
    printer: &mut LogPrinter,
    args: &LogsArgs,
) -> CommandResult {
    let mut sources: Vec<LogSource> = Vec::new();
    let mut known = BTreeSet::new();
    let mut looks = 0;
    loop {
        let (_, layout, look) = context.open_existing_run(args.run.as_deref())?;
        let run = look.run.clone().unwrap_or_else(|| RunId::new(""));
        // Looked at before reading: what was printed before the end is then surely read.
        let engine = is_engine_running(&layout)?;
        for t in look.machine.tasks().all_tasks() {
            for source in task_sources(&layout, &run, &look.machine, t)? {
                let wanted = !args.gates || source.check;
                if wanted && known.insert(source.dir.clone()) {
                    sources.push(source);
                }
            }
        }
        if sources.is_empty() && !args.follow && !printer.json {
            output::write_stderr("no agent has printed anything yet");
        }
        loop {
            drain_sources(printer, &mut sources)?;
            looks += 1;
            if !args.follow || looks % LOOKS_PER_FOLD == 0 {
                break;
            }
            sleep_ms(FOLLOW_EVERY_MS);
        }
        if !args.follow || !engine {
            printer.finish()?;
            return Ok(mainstem_api::exit_code::OK);
        }
    }
}

/// Prints all that is there now, the oldest line of all sources first.
fn drain_sources(printer: &mut LogPrinter, sources: &mut [LogSource]) -> Result<(), CliError> {
    loop {
        for source in sources.iter_mut() {
            source.fill_buffer()?;
        }
        let oldest = sources
            .iter_mut()
            .filter(|source| !source.lines.is_empty())
            .min_by_key(|source| source.lines.front().map(|line| line.at_ms));
        let Some(source) = oldest else { return Ok(()) };
        let Some(line) = source.lines.pop_front() else { return Ok(()) };
        printer.prefix = Some(source.prefix.clone());
        printer.check = source.check;
        let mut out = Vec::new();
        printer.print_line(line, &mut out)?;
        crate::commands::show::write_stdout_bytes(&out)?;
    }
}

/// Prints the checks of one task as they run, until none can come any more.
pub(super) fn follow_checks(
    context: &CliContext,
    printer: &mut LogPrinter,
    args: &LogsArgs,
    task: &str,
) -> CommandResult {
    let mut done = BTreeSet::new();
    printer.check = true;
    loop {
        let (_, layout, look) = context.open_existing_run(args.run.as_deref())?;
        let machine = &look.machine;
        let (t, run) =
            (machine.find_task(task)?, look.run.clone().unwrap_or_else(|| RunId::new("")));
        let engine = is_engine_running(&layout)?;
        let coming = matches!(
            machine.tasks().phase(t),
            Phase::Ready
                | Phase::Preparing
                | Phase::Working
                | Phase::Asking
                | Phase::Verifying
                | Phase::Merging
        );
        for dir in check_jobs(&layout, &run, machine, t)? {
            if done.insert(dir.clone()) {
                if !printer.json {
                    let name = check_command(&dir).unwrap_or_default();
                    output::write_stdout(&format!("── `{}`\n", super::collapse_to_line(&name)))?;
                }
                follow_job(printer, &dir)?;
            }
        }
        if !engine || !coming {
            return Ok(mainstem_api::exit_code::OK);
        }
        sleep_ms(FOLLOW_EVERY_MS * 3);
    }
}

/// One job to its end.
fn follow_job(printer: &mut LogPrinter, dir: &Path) -> Result<(), CliError> {
    let mut from = 0;
    loop {
        let now = job_state(dir)?;
        from = printer.print_from(dir, from)?;
        match now {
            JobState::Ended(_) | JobState::Vanished | JobState::Absent => return printer.finish(),
            JobState::Alive(_) | JobState::Starting => sleep_ms(FOLLOW_EVERY_MS),
        }
    }
}
