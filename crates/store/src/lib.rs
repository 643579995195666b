//! Keeps facts durably and gives them back in order.
//!
//! A [`Store`] is a place that keeps one journal; the engine knows stores only by this trait. The [`Journal`] of a
//! repository holds the facts of all its runs, numbered 1, 2, 3, … without a gap. One process writes, any number of
//! processes read at the same time. A fact is opaque here: this crate knows neither what a fact means nor what a task
//! or a run is, beyond the names it can look them up by.

pub mod conformance;
pub mod error;
pub mod group_commit;
pub mod memory;
pub mod sqlite;
pub mod store;

pub use error::StoreError;
pub use group_commit::{AppendTicket, GroupCommitWriter};
pub use memory::{MemoryJournal, MemoryJournalReader, MemoryStore};
pub use sqlite::{SqliteJournal, SqliteJournalReader, SqliteStore};
pub use store::{Store, StoreClaim, StoreContents, StoreOwner, StoreOwnership, embedded_store};

use std::time::Duration;

/// A fact as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRecord {
    /// Its place in the journal: 1, 2, 3, … across all runs, without a gap.
    pub seq: u64,
    /// When it happened, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The run it belongs to.
    pub run: String,
    /// The fact's type, such as `task_landed`.
    pub kind: String,
    /// The task it is about, if it is about one.
    pub task: Option<String>,
    /// The whole fact, as the text of a JSON object.
    pub body: String,
}

/// A fact that has no place in the journal yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJournalRecord {
    /// When it happened, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The run it belongs to.
    pub run: String,
    /// The fact's type, such as `task_landed`.
    pub kind: String,
    /// The task it is about, if it is about one.
    pub task: Option<String>,
    /// The whole fact, as the text of a JSON object.
    pub body: String,
}

impl NewJournalRecord {
    /// The record this becomes at place `seq`.
    #[must_use]
    pub fn with_seq(self, seq: u64) -> JournalRecord {
        let Self { at_ms, run, kind, task, body } = self;
        JournalRecord { seq, at_ms, run, kind, task, body }
    }
}

/// Where one run stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalRun {
    pub run: String,
    /// Place of its first fact.
    pub first_seq: u64,
    /// Place of its newest fact.
    pub last_seq: u64,
    /// When its first fact happened, in milliseconds since 1970 (UTC).
    pub first_at_ms: i64,
}

/// What a callback of [`JournalReader::for_each`] returns when it has seen enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopReading;

/// The largest body of a fact, in bytes: far above any real fact, far below what SQLite can hold in a row.
pub const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The writing side. One writer at a time: whoever called [`Journal::take_over`] last.
///
/// After an error other than [`StoreError::Fenced`] and [`StoreError::TooBig`] the caller cannot know whether the facts
/// became durable: it must forget what it derived from them, open the journal again and read what is there.
pub trait Journal: Send {
    /// Adds `facts` in order, all or none, and returns the place of the last one (of the newest fact, if `facts` is empty).
    ///
    /// Durable when it returns. Refused with [`StoreError::Fenced`] if `epoch` is not the newest one.
    fn append(&mut self, epoch: u64, facts: &[NewJournalRecord]) -> Result<u64, StoreError>;

    /// Makes the caller the writer: a new epoch, larger than all before it. Every older writer is refused from here on.
    fn take_over(&mut self) -> Result<u64, StoreError>;

    /// Place of the newest fact; 0 when there is none.
    fn last_seq(&self) -> Result<u64, StoreError>;
}

impl std::fmt::Debug for dyn Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

/// The reading side. Sees what is durable, always a prefix of the journal, also while another process writes.
pub trait JournalReader: Send {
    /// At most `max` facts after place `seq`, in order. Nothing comes after an empty answer, for now.
    fn read_after(&self, seq: u64, max: usize) -> Result<Vec<JournalRecord>, StoreError>;

    /// Place of the newest fact; 0 when there is none.
    fn last_seq(&self) -> Result<u64, StoreError>;

    /// Hands every fact after place `after` to `f`, in order, until `f` says stop or none is left.
    ///
    /// Returns the place of the last fact handed over (`after`, if there was none). Memory stays bounded whatever the
    /// journal's size, and a slow `f` does not hold up the writer.
    fn for_each(
        &self,
        after: u64,
        f: &mut dyn FnMut(JournalRecord) -> Result<(), StopReading>,
    ) -> Result<u64, StoreError>;

    /// At most `max` facts of `run` after place `after`, in order.
    fn read_run(&self, run: &str, after: u64, max: usize)
    -> Result<Vec<JournalRecord>, StoreError>;

    /// At most `max` facts about `task` of `run` after place `after`, in order.
    fn read_task(
        &self,
        run: &str,
        task: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError>;

    /// Waits until there is a fact after place `seq`, at most for `patience`, and says whether there is one.
    fn wait_after(&self, seq: u64, patience: Duration) -> Result<bool, StoreError>;

    /// Examines everything that is kept and returns what is wrong, one sentence each; empty if the journal is sound.
    ///
    /// Reads everything, so this takes a while on a large journal. Works beside a running writer.
    fn find_damage(&self) -> Result<Vec<String>, StoreError>;

    /// Every run that has a fact, oldest first.
    fn list_runs(&self) -> Result<Vec<JournalRun>, StoreError>;
}

/// Refuses a body that is too large before anything is written.
pub(crate) fn check_sizes(facts: &[NewJournalRecord]) -> Result<(), StoreError> {
    match facts.iter().find(|fact| fact.body.len() > BODY_BYTES_MAX) {
        Some(fact) => Err(StoreError::TooBig {
            kind: fact.kind.clone(),
            bytes: fact.body.len(),
            bytes_max: BODY_BYTES_MAX,
        }),
        None => Ok(()),
    }
}
