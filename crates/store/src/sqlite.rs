//! The journal in one SQLite file.
//!
//! WAL with a full sync per commit, one writer, readers in any process. There are two tables, the facts and a few
//! counters; no projections, so there is nothing that could disagree with the facts.

mod failures;
mod owner_lock;
mod schema;
mod open;
mod journal;
mod reader;
mod store;
#[cfg(test)]
mod tests;

pub use journal::SqliteJournal;
pub use reader::SqliteJournalReader;
pub use store::SqliteStore;
