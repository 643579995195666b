//! Facts to records and back. The only place that knows both the core's facts and the store.

use std::path::Path;

use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::{ApplyError, Machine};
use mainstem_store::{NewRecord, Reader, Record, SqliteReader, StoreError};

/// The journal cannot be read as a run.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fact that this version does not know, or a damaged one.
    #[error("fact {seq} of the journal cannot be read: {source}; it may come from a newer version")]
    Fact {
        /// Its place.
        seq: u64,
        /// Why.
        source: serde_json::Error,
    },
    /// The facts contradict each other.
    #[error("fact {seq} of the journal does not fit the ones before it: {source}")]
    Order {
        /// Its place.
        seq: u64,
        /// Why.
        source: Box<ApplyError>,
    },
}

/// A fact on its way into the journal.
pub fn encode(run: &RunId, fact: &Fact, at: Time) -> NewRecord {
    let body = serde_json::to_value(fact).expect("BUG: facts are plain data");
    let kind = body.get("type").and_then(|t| t.as_str()).unwrap_or_default().to_owned();
    NewRecord {
        at_ms: at.0,
        run: run.to_string(),
        kind,
        task: fact.task().map(ToString::to_string),
        body: body.to_string(),
    }
}

/// A fact out of the journal.
pub fn decode(record: &Record) -> Result<Fact, LedgerError> {
    serde_json::from_str(&record.body)
        .map_err(|source| LedgerError::Fact { seq: record.seq, source })
}

/// The newest run in the journal.
pub fn newest_run(reader: &dyn Reader) -> Result<Option<RunId>, LedgerError> {
    Ok(reader.runs()?.last().map(|row| RunId::new(row.run.as_str())))
}

/// Folds a run's facts into a machine. Returns the place of the last fact.
pub fn fold(
    reader: &dyn Reader,
    run: &RunId,
    settings: &Settings,
) -> Result<(Machine, u64), LedgerError> {
    let mut machine = Machine::new(settings.clone());
    let mut last = 0;
    loop {
        let records = reader.read_run(run.as_str(), last, 4_096)?;
        let Some(end) = records.last() else { return Ok((machine, last)) };
        last = end.seq;
        for record in &records {
            let fact = decode(record)?;
            machine.apply(&fact, Time(record.at_ms)).map_err(|source| LedgerError::Order {
                seq: record.seq,
                source: Box::new(source),
            })?;
        }
    }
}

/// Opens the journal for reading; none if there is no journal yet.
pub fn open_reader(path: &Path) -> Result<Option<SqliteReader>, LedgerError> {
    match SqliteReader::open(path) {
        Ok(reader) => Ok(Some(reader)),
        Err(StoreError::Absent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
