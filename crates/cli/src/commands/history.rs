//! `history`: every fact of the repository, in order, as lines for people or programs.
//! Also the way other commands read facts; decides nothing about what they mean.

use std::collections::BTreeMap;
use std::time::Duration;

use anstyle::Style;
use mainstem_api::{exit_code, fact_line, time};
use mainstem_core::config::Settings;
use mainstem_core::fact::{AgentEnding, Fact, StopReason};
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_core::plan::quantities::render_size;
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::run_journal::{self, RunJournalError};
use mainstem_engine::run_status::{JournaledRun, RunLookupError, find_run};
use mainstem_store::{JournalReader, JournalRecord};

use crate::args::HistoryArgs;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::{events, output};

/// Facts read at once.
const BATCH: usize = 4_096;
/// How long to wait for a fact before looking again whether the engine is still there.
const FOLLOW_PATIENCE: Duration = Duration::from_millis(200);

/// A journal that cannot be read, as a failure of the command.
pub(crate) fn journal_error(error: impl Into<RunJournalError>) -> CliError {
    RunLookupError::from(error.into()).into()
}

/// The facts of the looked-at run, or of one task of it, in order.
pub(crate) fn read_facts(
    look: &JournaledRun,
    task: Option<&str>,
) -> Result<Vec<(JournalRecord, Fact)>, CliError> {
    let (Some(reader), Some(run)) = (&look.reader, &look.run) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let records = match task {
            Some(task) => reader.read_task(run.as_str(), task, after, BATCH),
            None => reader.read_run(run.as_str(), after, BATCH),
        }
        .map_err(journal_error)?;
        let Some(last) = records.last() else { return Ok(found) };
        after = last.seq;
        for record in records {
            let fact = run_journal::decode_fact(&record).map_err(journal_error)?;
            found.push((record, fact));
        }
    }
}

pub(crate) fn cmd_history(context: &CliContext, args: &HistoryArgs) -> CommandResult {
    let (_, settings, layout) = context.load_read_only_context()?;
    let Some(reader) =
        run_journal::open_journal_reader(&*layout.run_store()).map_err(journal_error)?
    else {
        return match &args.run {
            Some(run) => Err(RunLookupError::NoSuchRun(run.clone()).into()),
            None => {
                output::write_stderr("no history yet; start a run: mainstem run PLAN");
                Ok(exit_code::OK)
            }
        };
    };
    let named = args.run.as_deref().map(|name| find_run(&*reader, name)).transpose();
    let run = named.map_err(|error| unknown_run_error(error, &*reader))?.map(|run| run.to_string());
    check_filters(&layout, &settings, &*reader, (args, run.as_deref()))?;
    let mut teller = HistoryPrinter::new(context, args, settings);
    // People get words that depend on what was before, so the fold begins at the beginning.
    let mut at = if context.global.json { args.after } else { 0 };
    loop {
        // Looked at before reading: what an engine wrote before it went is then surely seen.
        let engine = is_engine_running(&layout)?;
        let known = reader.last_seq().map_err(journal_error)?;
        loop {
            let records = match &run {
                Some(run) => reader.read_run(run, at, BATCH),
                None => reader.read_after(at, BATCH),
            }
            .map_err(journal_error)?;
            let Some(last) = records.last() else { break };
            at = last.seq;
            let mut text = String::new();
            for record in &records {
                teller.print_record(record, &mut text)?;
            }
            if !text.is_empty() {
                output::write_stdout(&text)?;
            }
        }
        if !args.follow {
            return Ok(exit_code::OK);
        }
        if !engine {
            if !context.global.quiet && !context.global.json {
                output::write_stderr("no run is active; end of history");
            }
            return Ok(exit_code::OK);
        }
        // Facts of other runs count as well, or following one run would never wait beside them.
        reader.wait_after(known, FOLLOW_PATIENCE).map_err(journal_error)?;
    }
}

/// Whether somebody holds the engine's lock now.
pub(crate) fn is_engine_running(layout: &RepoLayout) -> Result<bool, CliError> {
    Ok(layout.run_store().owner().map_err(journal_error)?.is_some())
}

/// A run that never was is an error; these are the newest that there are.
fn unknown_run_error(error: RunLookupError, reader: &dyn JournalReader) -> CliError {
    let runs = reader.list_runs().unwrap_or_default();
    let known: Vec<&str> = runs.iter().rev().take(5).map(|row| row.run.as_str()).collect();
    let failure = CliError::from(error);
    match known.as_slice() {
        [] => failure,
        known => failure.with_hint(format!("latest runs: {}", known.join(", "))),
    }
}

/// A task that never was is an error, not an empty history.
fn check_filters(
    layout: &RepoLayout,
    settings: &Settings,
    reader: &dyn JournalReader,
    (args, run): (&HistoryArgs, Option<&str>),
) -> Result<(), CliError> {
    let runs = reader.list_runs().map_err(journal_error)?;
    let Some(task) = &args.task else { return Ok(()) };
    for row in runs.iter().filter(|row| run.is_none_or(|run| *run == row.run)) {
        if !reader.read_task(&row.run, task, 0, 1).map_err(journal_error)?.is_empty() {
            return Ok(());
        }
    }
    let look = JournaledRun::load(layout, settings, run)?;
    look.machine.find_task(task)?;
    Ok(())
}

/// Turns records into lines, folding each run on the way.
struct HistoryPrinter<'a> {
    json: bool,
    color: bool,
    after: u64,
    task: Option<&'a str>,
    settings: Settings,
    machines: BTreeMap<String, Machine>,
    events: events::EventFormatter,
    run: String,
}

impl<'a> HistoryPrinter<'a> {
    fn new(context: &CliContext, args: &'a HistoryArgs, settings: Settings) -> Self {
        Self {
            json: context.global.json,
            color: context.color_out,
            after: args.after,
            task: args.task.as_deref(),
            settings,
            machines: BTreeMap::new(),
            events: events::EventFormatter::new(true),
            run: String::new(),
        }
    }

    fn print_record(&mut self, record: &JournalRecord, out: &mut String) -> Result<(), CliError> {
        let wanted =
            record.seq > self.after && self.task.is_none_or(|t| record.task.as_deref() == Some(t));
        if self.json {
            if wanted {
                let line = fact_line(record.seq, record.at_ms, &record.run, &record.body)
                    .map_err(|error| CliError::new(error.to_string()))?;
                out.push_str(&line);
                out.push('\n');
            }
            return Ok(());
        }
        let machine = self
            .machines
            .entry(record.run.clone())
            .or_insert_with(|| Machine::new(self.settings.clone()));
        // What a newer version wrote is still told, by its name.
        let fact = run_journal::decode_fact(record).ok();
        if let Some(fact) = &fact {
            // A fact that does not fit spoils the words at most; `status` is where it is an error.
            let _ = machine.apply(fact, Time(record.at_ms));
        }
        if !wanted {
            return Ok(());
        }
        if record.run != self.run {
            self.run.clone_from(&record.run);
            let head = format!("── {}", record.run);
            out.push_str(&output::paint_text(&head, Style::new().bold(), self.color));
            out.push('\n');
        }
        let line = fact.as_ref().and_then(|fact| self.events.format_fact(fact, machine));
        let (sign, style, words) = match line {
            Some(line) => {
                let help = line.help.filter(|_| line.block.is_empty());
                let help = help.map(|help| format!("  → {help}")).unwrap_or_default();
                let output = line.block.last().map(|line| format!(": {}", line.trim()));
                let words = format!(
                    "{} {}{}{help}",
                    output::pad_to_width(&line.what, 10),
                    line.detail,
                    output.unwrap_or_default()
                );
                (line.sign, line.style, words)
            }
            None => ("·", Style::new().dimmed(), fact_text(record, fact.as_ref())),
        };
        let clock = time::to_rfc3339(record.at_ms);
        let clock = clock.get(..19).unwrap_or(&clock).replace('T', " ");
        let sign = output::paint_text(sign, style, self.color);
        let task = output::pad_to_width(record.task.as_deref().unwrap_or_default(), 10);
        let words = output::sanitize_text(&words).replace('\n', " ");
        out.push_str(&format!("{:>6}  {clock}  {sign} {task} {words}\n", record.seq));
        Ok(())
    }
}

/// Words for facts that the run's own stream passes over.
fn fact_text(record: &JournalRecord, fact: Option<&Fact>) -> String {
    let short = |oid: &str| oid.get(..9).unwrap_or(oid).to_owned();
    match fact {
        Some(Fact::EngineStarted { epoch, pid, host, .. }) => {
            format!("engine started ({epoch}, pid {pid} on {host})")
        }
        Some(Fact::EngineStopped { why: StopReason::Rested }) => {
            "engine stopped: nothing left to do".to_owned()
        }
        Some(Fact::EngineStopped { why: StopReason::Interrupted }) => {
            "engine stopped: interrupted".to_owned()
        }
        Some(Fact::AttemptIntended { attempt, agent, .. }) => {
            format!("attempt {attempt} with {agent}")
        }
        Some(Fact::AgentEnded { attempt, ending, .. }) => {
            format!("agent of attempt {attempt} ended: {}", ending_text(ending))
        }
        Some(Fact::UsageReported { usage, .. }) => {
            let basis = usage.basis.map(|basis| format!(" {}", basis.as_str())).unwrap_or_default();
            let cost = usage.cost_usd.map(|usd| format!(", ${usd:.4}{basis}")).unwrap_or_default();
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            format!("usage      {input} tokens in, {output} out{cost}")
        }
        Some(Fact::CarFormed { onto, commit, .. }) => {
            format!("merged     {} onto {}", short(commit.as_str()), short(onto.as_str()))
        }
        Some(Fact::LandingIntended { old, new, .. }) => {
            format!("landing    {} → {}", short(old.as_str()), short(new.as_str()))
        }
        Some(Fact::WorkspaceRemoved { workspace, .. }) => format!("workspace removed: {workspace}"),
        _ => record.kind.replace('_', " "),
    }
}

/// How an agent ended, in words.
pub(crate) fn ending_text(ending: &AgentEnding) -> String {
    match ending {
        AgentEnding::Exited { code } => format!("exit code {code}"),
        AgentEnding::Signalled { signal } => format!("signal {signal}"),
        AgentEnding::TimedOut { idle: true } => "timed out: no output for too long".to_owned(),
        AgentEnding::TimedOut { idle: false } => "timed out".to_owned(),
        AgentEnding::OutOfMemory { limit } => {
            format!(
                "killed: used more memory than limits.memory_per_agent ({})",
                render_size(*limit)
            )
        }
        AgentEnding::Stopped {} => "stopped".to_owned(),
        AgentEnding::NotStarted { why, .. } => format!("could not start: {why}"),
        AgentEnding::Vanished {} => "vanished (killed, or the machine went down)".to_owned(),
    }
}
