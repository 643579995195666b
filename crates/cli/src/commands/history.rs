//! `history`: every fact of the repository, in order, as lines for people or programs.

use std::time::Duration;

use anstyle::Style;
use mainstem_api::{exit_code, fact_line, time};
use mainstem_core::config::Settings;
use mainstem_core::fact::{Fact, StopReason};
use mainstem_engine::query::attempts::describe_ending;
use mainstem_engine::query::history::HistoryReader;
use mainstem_engine::query::{self, RunLookupError, RunReader};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::run_journal::RunJournalError;
use mainstem_store::JournalRecord;

use crate::args::HistoryArgs;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::{events, output};

/// How long to wait for a fact before looking again whether the engine is still there.
const FOLLOW_PATIENCE: Duration = Duration::from_millis(200);

/// A journal that cannot be read, as a failure of the command.
pub(crate) fn journal_error(error: impl Into<RunJournalError>) -> CliError {
    RunLookupError::from(error.into()).into()
}

pub(crate) fn cmd_history(context: &CliContext, args: &HistoryArgs) -> CommandResult {
    let (_, settings, layout) = context.load_read_only_context()?;
    let Some(mut reader) = HistoryReader::open(&layout, settings.clone())? else {
        return match &args.run {
            Some(run) => Err(RunLookupError::NoSuchRun(run.clone()).into()),
            None => {
                output::write_stderr("no history yet; start a run: mainstem run PLAN");
                Ok(exit_code::OK)
            }
        };
    };
    if let Some(name) = &args.run {
        reader.select_run(name).map_err(|error| unknown_run_error(error, &reader))?;
    }
    check_filters(&layout, &settings, &reader, args)?;
    let mut printer = HistoryPrinter::new(context, args);
    // The words for people depend on earlier facts, so for people the fold begins at the beginning.
    if context.global.json {
        reader.skip_to(args.after);
    }
    loop {
        // The lock is probed before reading: what an engine wrote before it ended is then surely seen.
        let engine = is_engine_running(&layout)?;
        let known = reader.last_seq()?;
        loop {
            let records = reader.next_records()?;
            if records.is_empty() {
                break;
            }
            let mut text = String::new();
            for record in &records {
                printer.print_record(record, &mut reader, &mut text)?;
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
        reader.wait_after(known, FOLLOW_PATIENCE)?;
    }
}

/// Whether an engine holds the repository now.
pub(crate) fn is_engine_running(layout: &RepoLayout) -> Result<bool, CliError> {
    query::is_engine_running(layout).map_err(|error| RunLookupError::from(error).into())
}

/// A run that never was is an error that names the newest runs.
fn unknown_run_error(error: RunLookupError, reader: &HistoryReader) -> CliError {
    let failure = CliError::from(error);
    match reader.newest_runs(5).as_slice() {
        [] => failure,
        known => failure.with_hint(format!("latest runs: {}", known.join(", "))),
    }
}

/// A task that never was is an error, not an empty history.
fn check_filters(
    layout: &RepoLayout,
    settings: &Settings,
    reader: &HistoryReader,
    args: &HistoryArgs,
) -> Result<(), CliError> {
    let Some(task) = &args.task else { return Ok(()) };
    if reader.knows_task(task)? {
        return Ok(());
    }
    let run = reader.run().map(ToString::to_string);
    RunReader::load(layout, settings, run.as_deref())?.machine.find_task(task)?;
    Ok(())
}

/// Turns records into lines.
struct HistoryPrinter<'a> {
    json: bool,
    color: bool,
    after: u64,
    task: Option<&'a str>,
    events: events::EventFormatter,
    run: String,
}

impl<'a> HistoryPrinter<'a> {
    fn new(context: &CliContext, args: &'a HistoryArgs) -> Self {
        Self {
            json: context.global.json,
            color: context.color_out,
            after: args.after,
            task: args.task.as_deref(),
            events: events::EventFormatter::new(true),
            run: String::new(),
        }
    }

    fn print_record(
        &mut self,
        record: &JournalRecord,
        reader: &mut HistoryReader,
        out: &mut String,
    ) -> Result<(), CliError> {
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
        let (fact, machine) = reader.fold_record(record);
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
            format!("agent of attempt {attempt} ended: {}", describe_ending(ending))
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
