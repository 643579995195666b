//! The seam between the engine and the places that can keep a journal.
//!
//! A store keeps one journal. Two things protect it, and they must not be confused. *Ownership* ([`Store::claim`]) says
//! which process works with the journal; it keeps a second engine from starting, and it ends by itself when its holder
//! dies (an OS lock for a file, a lease for a database server). The *epoch* ([`Journal::take_over`]) makes writing safe:
//! a former owner that wakes up late is refused by the store, whatever it believes about its ownership.

use std::any::Any;
use std::fmt;
use std::path::Path;

use crate::sqlite::SqliteStore;
use crate::{Journal, JournalReader, StoreError};

/// A place that keeps one journal.
///
/// Cheap to make: nothing is opened or contacted before a method is called.
pub trait Store: fmt::Debug + Send + Sync {
    /// Where the journal is, for messages: a path, or a URL without its password.
    fn place(&self) -> String;

    /// The last part of the place, for messages that have little room.
    fn name(&self) -> String;

    /// Whether a journal was ever opened for writing here.
    fn has_journal(&self) -> Result<bool, StoreError>;

    /// Makes the caller the owner of the store, or says who the owner is.
    ///
    /// `note` is one line that others can read while the caller owns the store. It says who that is.
    fn claim(&self, note: &str) -> Result<StoreClaim, StoreError>;

    /// Who owns the store now; none if nobody does.
    fn owner(&self) -> Result<Option<StoreOwner>, StoreError>;

    /// Opens the journal for writing; makes an empty one if there is none.
    ///
    /// The caller owns the store, and writes under the epoch that [`Journal::take_over`] gave to this owner.
    fn open_journal(&self) -> Result<Box<dyn Journal>, StoreError>;

    /// Opens the journal for reading, beside whoever writes it; [`StoreError::Absent`] if there is none.
    fn open_reader(&self) -> Result<Box<dyn JournalReader>, StoreError>;
}

/// The answer to [`Store::claim`].
#[derive(Debug)]
pub enum StoreClaim {
    Owned(StoreOwnership),
    OwnedByAnother(StoreOwner),
}

/// The owner of a store, as it describes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreOwner {
    /// The line that was given to [`Store::claim`]; empty if it cannot be read.
    pub note: String,
}

/// Ownership of a store, given up when this value is dropped or the process ends.
pub struct StoreOwnership {
    _held: Box<dyn Any + Send + Sync>,
}

impl StoreOwnership {
    /// Ownership that lasts as long as `held` lives.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl fmt::Debug for StoreOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreOwnership")
    }
}

/// What an embedded store keeps: the two kinds are owned and written independently of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreContents {
    Runs,
    Drafts,
}

/// The store in the state folder of a repository.
#[must_use]
pub fn embedded_store(state_folder: &Path, contents: StoreContents) -> Box<dyn Store> {
    let (journal, lock) = match contents {
        StoreContents::Runs => ("journal.db", "engine.lock"),
        StoreContents::Drafts => ("plans.db", "plans.lock"),
    };
    Box::new(SqliteStore::new(state_folder.join(journal), state_folder.join(lock)))
}
