//! Facts to records and back. The only place that knows both the core's facts and the store.

use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::{ApplyError, Input, Machine};
use mainstem_host::crash;
use mainstem_store::{Journal, JournalReader, JournalRecord, NewJournalRecord, Store, StoreError};

use crate::event::CommandReply;
use crate::query::follower::JournalFollower;

/// The journal cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub enum RunJournalError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fact that this version does not know, or a damaged one.
    #[error(
        "cannot read fact {seq} of the journal: {source}; the journal may be from a newer version of Mainstem"
    )]
    Fact { seq: u64, source: serde_json::Error },
    /// The facts contradict each other.
    #[error("fact {seq} of the journal contradicts earlier facts: {source}")]
    Order { seq: u64, source: Box<ApplyError> },
}

/// A fact on its way into the journal.
pub fn encode_fact(run: &RunId, fact: &Fact, at: Time) -> NewJournalRecord {
    let body = serde_json::to_value(fact).expect("BUG: facts are plain data");
    let kind = body.get("type").and_then(|t| t.as_str()).unwrap_or_default().to_owned();
    NewJournalRecord {
        at_ms: at.0,
        run: run.to_string(),
        kind,
        task: fact.task().map(ToString::to_string),
        body: body.to_string(),
    }
}

/// A fact out of the journal.
pub fn decode_fact(record: &JournalRecord) -> Result<Fact, RunJournalError> {
    serde_json::from_str(&record.body)
        .map_err(|source| RunJournalError::Fact { seq: record.seq, source })
}

/// The newest run in the journal.
pub fn find_newest_run(reader: &dyn JournalReader) -> Result<Option<RunId>, RunJournalError> {
    Ok(reader.list_runs()?.last().map(|row| RunId::new(row.run.as_str())))
}

/// The runs that a name may mean: the one of this name, else those whose names begin with it, with or without the
/// first two characters that all of them share.
pub fn find_runs_by_name(
    reader: &dyn JournalReader,
    name: &str,
) -> Result<Vec<RunId>, RunJournalError> {
    let runs: Vec<RunId> = reader.list_runs()?.into_iter().map(|row| RunId::new(row.run)).collect();
    if let Some(exact) = runs.iter().find(|run| run.as_str() == name) {
        return Ok(vec![exact.clone()]);
    }
    let short = |run: &RunId| {
        let plain = run.as_str().strip_prefix("r-").unwrap_or(run.as_str());
        !name.is_empty() && (run.as_str().starts_with(name) || plain.starts_with(name))
    };
    Ok(runs.into_iter().filter(short).collect())
}

/// Folds a run's facts into a machine. Returns the place of the last fact.
pub fn fold_run(
    reader: &dyn JournalReader,
    run: &RunId,
    settings: &Settings,
) -> Result<(Machine, u64), RunJournalError> {
    let mut follower = JournalFollower::new(run.clone(), settings);
    follower.advance(reader)?;
    let last = follower.seq();
    Ok((follower.into_machine(), last))
}

/// The newest run, folded: what a new life knows.
pub fn load_newest_run(
    reader: &dyn JournalReader,
    settings: &Settings,
) -> Result<Option<(RunId, Machine)>, RunJournalError> {
    let Some(run) = find_newest_run(reader)? else { return Ok(None) };
    let (machine, _) = fold_run(reader, &run, settings)?;
    Ok(Some((run, machine)))
}

/// A fact that was written down before a face could be told.
#[derive(Debug)]
pub struct UnshownFact {
    pub seq: u64,
    pub at: Time,
    pub fact: Fact,
    /// The same as JSON.
    pub body: String,
}

/// Writes down what a step outside a life decided. Its effects are for the next life.
pub fn record_step(
    journal: &mut dyn Journal,
    epoch: u64,
    run: &RunId,
    machine: &mut Machine,
    (input, now): (Input, Time),
) -> Result<(Vec<UnshownFact>, Option<CommandReply>), StoreError> {
    // A clock that was set back must not give facts another time than the state that they made.
    let at = now.max(machine.now());
    let step = machine.step(input, at);
    let records: Vec<_> = step.facts.iter().map(|fact| encode_fact(run, fact, at)).collect();
    if records.is_empty() {
        return Ok((Vec::new(), step.reply));
    }
    crash::point("record.before");
    let last = journal.append(epoch, &records)?;
    crash::point("record.after");
    let first = last + 1 - records.len() as u64;
    let bodies = records.into_iter().map(|record| record.body);
    let written = (first..).zip(step.facts).zip(bodies);
    let written = written.map(|((seq, fact), body)| UnshownFact { seq, at, fact, body });
    Ok((written.collect(), step.reply))
}

/// Opens the journal for reading; none if there is no journal yet.
pub fn open_journal_reader(
    store: &dyn Store,
) -> Result<Option<Box<dyn JournalReader>>, RunJournalError> {
    match store.open_reader() {
        Ok(reader) => Ok(Some(reader)),
        Err(StoreError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
