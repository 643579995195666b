//! The writing side of the SQLite journal.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::failures::{io_failure, place_of, sqlite_failure};
use super::{SqliteJournalReader, open, schema};
use crate::{Journal, NewJournalRecord, StoreError, check_sizes};

/// The journal file, open for writing.
#[derive(Debug)]
pub struct SqliteJournal {
    conn: Connection,
    path: PathBuf,
    /// A write failed so that nobody can say what reached the disk; trying again could hide the loss.
    halted: bool,
}

impl SqliteJournal {
    /// Opens the journal at `path`, or makes an empty one there (and the directory for it).
    ///
    /// An older schema is brought up to date, after a copy was put beside the file. A file that is not a sound journal
    /// of ours is refused and left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), schema::MIGRATIONS)
    }

    pub(super) fn open_with(path: &Path, migrations: &[&str]) -> Result<Self, StoreError> {
        let path = std::path::absolute(path).map_err(|error| io_failure(path, "opened", &error))?;
        let conn = open::open_for_writing(&path, migrations)?;
        Ok(Self { conn, path, halted: false })
    }

    /// Where the journal is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A reader of the same journal.
    pub fn reader(&self) -> Result<SqliteJournalReader, StoreError> {
        SqliteJournalReader::open(&self.path)
    }

    /// The newest epoch; 0 if nobody has ever taken over.
    pub fn epoch(&self) -> Result<u64, StoreError> {
        Ok(read_counters(&self.conn)
            .map_err(|error| self.store_error("read", error))?
            .epoch
            .cast_unsigned())
    }

    /// Writes a complete copy of the journal to `to`, a new file.
    pub fn backup_to(&self, to: impl AsRef<Path>) -> Result<(), StoreError> {
        open::write_copy(&self.conn, &self.path, to.as_ref(), open::ExistingFilePolicy::Keep)
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.conn
    }

    fn store_error(&self, doing: &'static str, error: rusqlite::Error) -> StoreError {
        sqlite_failure(&self.path, doing, error)
    }

    /// Runs `work` in one transaction that holds the write lock from its start.
    fn run_transaction<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.halted {
            return Err(StoreError::Halted { place: place_of(&self.path) });
        }
        let path = &self.path;
        let failed = |error| sqlite_failure(path, "written", error);
        let done = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)
            .and_then(|tx| {
                let value = work(&tx, path)?;
                tx.commit().map_err(failed)?;
                Ok(value)
            });
        // After a failed sync the kernel may report success for pages it has already dropped.
        self.halted = matches!(done, Err(StoreError::Io { .. })) || !self.conn.is_autocommit();
        if self.halted {
            // Closing would copy from the log what may not be in it, and sync once more. The next one to
            // open it reads what really is there.
            let setting = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.conn.set_db_config(setting, true);
        }
        done
    }
}

impl Journal for SqliteJournal {
    fn append(&mut self, epoch: u64, facts: &[NewJournalRecord]) -> Result<u64, StoreError> {
        check_sizes(facts)?;
        self.run_transaction(|tx, path| {
            let failed = |error| sqlite_failure(path, "written", error);
            let now = read_counters(tx).map_err(failed)?;
            let current = now.epoch.cast_unsigned();
            if epoch != current {
                return Err(StoreError::Fenced { ours: epoch, current });
            }
            insert_records(tx, now.last_seq, facts).map(i64::cast_unsigned).map_err(failed)
        })
    }

    fn take_over(&mut self) -> Result<u64, StoreError> {
        self.run_transaction(|tx, path| {
            tx.prepare_cached(
                "UPDATE meta SET value = value + 1 WHERE key = 'epoch' RETURNING value",
            )
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)))
            .map(i64::cast_unsigned)
            .map_err(|error| sqlite_failure(path, "taken over", error))
        })
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        let counters =
            read_counters(&self.conn).map_err(|error| self.store_error("read", error))?;
        Ok(counters.last_seq.cast_unsigned())
    }
}

struct JournalCounters {
    epoch: i64,
    last_seq: i64,
}

fn read_counters(conn: &Connection) -> rusqlite::Result<JournalCounters> {
    conn.prepare_cached(
        "SELECT (SELECT value FROM meta WHERE key = 'epoch'),
                (SELECT value FROM meta WHERE key = 'last_seq')",
    )?
    .query_row([], |row| Ok(JournalCounters { epoch: row.get(0)?, last_seq: row.get(1)? }))
}

/// Adds the facts behind `last_seq` and returns the new one.
fn insert_records(
    tx: &Transaction<'_>,
    last_seq: i64,
    facts: &[NewJournalRecord],
) -> rusqlite::Result<i64> {
    if facts.is_empty() {
        return Ok(last_seq);
    }
    let mut seq = last_seq;
    let mut statement = tx.prepare_cached(
        "INSERT INTO facts (seq, at_ms, run, kind, task, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for fact in facts {
        seq += 1;
        statement.execute(params![seq, fact.at_ms, fact.run, fact.kind, fact.task, fact.body])?;
    }
    tx.prepare_cached("UPDATE meta SET value = ?1 WHERE key = 'last_seq'")?.execute([seq])?;
    Ok(seq)
}
