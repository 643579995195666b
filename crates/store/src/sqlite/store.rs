//! The store inside a repository: one SQLite file, and one lock file for its owner.

use std::path::{Path, PathBuf};

use super::failures::place_of;
use super::{SqliteJournal, SqliteJournalReader, owner_lock};
use crate::{Journal, JournalReader, Store, StoreClaim, StoreError, StoreOwner};

/// A journal in a file, with a lock file for its owner.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    journal: PathBuf,
    lock: PathBuf,
}

impl SqliteStore {
    /// The store with these two files; neither has to exist yet.
    pub fn new(journal: impl AsRef<Path>, lock: impl AsRef<Path>) -> Self {
        Self { journal: journal.as_ref().to_path_buf(), lock: lock.as_ref().to_path_buf() }
    }
}

impl Store for SqliteStore {
    fn place(&self) -> String {
        place_of(&self.journal)
    }

    fn name(&self) -> String {
        let name = self.journal.file_name().unwrap_or(self.journal.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn has_journal(&self) -> Result<bool, StoreError> {
        Ok(self.journal.exists())
    }

    fn claim(&self, note: &str) -> Result<StoreClaim, StoreError> {
        owner_lock::claim(&self.lock, note)
    }

    fn owner(&self) -> Result<Option<StoreOwner>, StoreError> {
        owner_lock::find_owner(&self.lock)
    }

    fn open_journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        Ok(Box::new(SqliteJournal::open(&self.journal)?))
    }

    fn open_reader(&self) -> Result<Box<dyn JournalReader>, StoreError> {
        Ok(Box::new(SqliteJournalReader::open(&self.journal)?))
    }
}
