//! The reading side of the SQLite journal.
//!
//! Never writes to the file. Every answer is one statement, hence one consistent prefix of the journal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Params, Row};

use super::failures::{io_failure, place_of, sqlite_failure};
use super::{open, schema};
use crate::{JournalReader, JournalRecord, JournalRun, StopReading, StoreError};

/// How many facts `for_each` fetches at a time: enough to make the statement's cost vanish.
const PAGE_FACTS_MAX: usize = 1024;

/// A page ends early when its bodies reach this size, so that memory stays bounded.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How often a waiting reader looks for new facts: soon enough for a person who watches.
const POLL_EVERY: Duration = Duration::from_millis(40);

/// The journal file, open for reading, in the writer's process or any other.
#[derive(Debug)]
pub struct SqliteJournalReader {
    conn: Connection,
    path: PathBuf,
}

impl SqliteJournalReader {
    /// Opens the journal at `path`; [`StoreError::Absent`] if there is none.
    ///
    /// In a directory that cannot be written, a journal whose writer has closed it is read as it stands; facts added
    /// later are then not seen.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path.as_ref(), schema::MIGRATIONS)
    }

    pub(super) fn open_with(path: &Path, migrations: &[&str]) -> Result<Self, StoreError> {
        let path = std::path::absolute(path)
            .map_err(|error| io_failure(path, "opened for reading", &error))?;
        let conn = open::open_for_reading(&path, migrations)?;
        Ok(Self { conn, path })
    }

    /// Where the journal is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a complete copy of the journal to `to`, a new file. Works beside a running writer.
    pub fn backup_to(&self, to: impl AsRef<Path>) -> Result<(), StoreError> {
        open::write_copy(&self.conn, &self.path, to.as_ref(), open::ExistingFilePolicy::Keep)
    }

    fn store_error(&self, error: rusqlite::Error) -> StoreError {
        sqlite_failure(&self.path, "read", error)
    }

    fn query_rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |error| self.store_error(error);
        let mut statement = self.conn.prepare_cached(sql).map_err(failed)?;
        let rows = statement.query_map(params, read).map_err(failed)?;
        rows.collect::<rusqlite::Result<Vec<T>>>().map_err(failed)
    }

    /// The next facts after `seq`, none skipped: at most `max`, fewer if their bodies are large together.
    fn read_page(
        &self,
        seq: u64,
        max: usize,
        bytes_max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        let failed = |error| self.store_error(error);
        let mut statement = self
            .conn
            .prepare_cached(
                "SELECT seq, at_ms, run, kind, task, body FROM facts
                 WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            )
            .map_err(failed)?;
        let mut rows = statement.query([clamp_seq(seq), clamp_limit(max)]).map_err(failed)?;
        let mut page = Vec::new();
        let mut bytes = 0;
        let mut expected = seq;
        while bytes < bytes_max {
            let Some(row) = rows.next().map_err(failed)? else { break };
            let record = record_from_row(row).map_err(failed)?;
            expected += 1;
            if record.seq != expected {
                let detail = format!("fact {expected} is missing, {} follows", record.seq);
                return Err(StoreError::Corrupt { place: place_of(&self.path), detail });
            }
            bytes += record.body.len();
            page.push(record);
        }
        Ok(page)
    }
}

impl JournalReader for SqliteJournalReader {
    fn read_after(&self, seq: u64, max: usize) -> Result<Vec<JournalRecord>, StoreError> {
        self.read_page(seq, max, usize::MAX)
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        self.conn
            .prepare_cached("SELECT coalesce(max(seq), 0) FROM facts")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)))
            .map(i64::cast_unsigned)
            .map_err(|error| self.store_error(error))
    }

    fn for_each(
        &self,
        after: u64,
        f: &mut dyn FnMut(JournalRecord) -> Result<(), StopReading>,
    ) -> Result<u64, StoreError> {
        let mut seen = after;
        loop {
            let page = self.read_page(seen, PAGE_FACTS_MAX, PAGE_BYTES_MAX)?;
            if page.is_empty() {
                return Ok(seen);
            }
            for record in page {
                seen = record.seq;
                if f(record) == Err(StopReading) {
                    return Ok(seen);
                }
            }
        }
    }

    fn read_run(
        &self,
        run: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.query_rows(
            "SELECT seq, at_ms, run, kind, task, body FROM facts INDEXED BY facts_by_run
             WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            (run, clamp_seq(after), clamp_limit(max)),
            record_from_row,
        )
    }

    fn read_task(
        &self,
        run: &str,
        task: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        self.query_rows(
            "SELECT seq, at_ms, run, kind, task, body FROM facts INDEXED BY facts_by_task
             WHERE run = ?1 AND task = ?2 AND task IS NOT NULL AND seq > ?3 ORDER BY seq LIMIT ?4",
            (run, task, clamp_seq(after), clamp_limit(max)),
            record_from_row,
        )
    }

    fn wait_after(&self, seq: u64, patience: Duration) -> Result<bool, StoreError> {
        let deadline = Instant::now() + patience;
        loop {
            if self.last_seq()? > seq {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // Another process may be the writer, and SQLite has no notification across processes.
            std::thread::park_timeout(left.min(POLL_EVERY));
        }
    }

    fn find_damage(&self) -> Result<Vec<String>, StoreError> {
        // One transaction, or facts added in between would look like a disagreement.
        let tx = self.conn.unchecked_transaction().map_err(|error| self.store_error(error))?;
        let mut findings =
            self.query_rows("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))?;
        findings.retain(|finding| finding != "ok");
        let (count, first, last, counted): (i64, i64, i64, i64) = tx
            .query_row(
                "SELECT count(*), coalesce(min(seq), 1), coalesce(max(seq), 0),
                        (SELECT value FROM meta WHERE key = 'last_seq')
                 FROM facts NOT INDEXED",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )
            .map_err(|error| self.store_error(error))?;
        if first != 1 || last != count || last != counted {
            findings.push(format!(
                "facts 1 to {counted} should be there, found {count} facts between {first} and {last}"
            ));
        }
        Ok(findings)
    }

    fn list_runs(&self) -> Result<Vec<JournalRun>, StoreError> {
        // Hops from run to run along the index instead of walking every fact.
        self.query_rows(
            "WITH RECURSIVE hop (run) AS (
                 SELECT min(run) FROM facts
                 UNION ALL
                 SELECT (SELECT min(run) FROM facts WHERE run > hop.run) FROM hop WHERE hop.run IS NOT NULL
             ), span (run, first, last) AS (
                 SELECT run, (SELECT min(seq) FROM facts WHERE run = hop.run),
                             (SELECT max(seq) FROM facts WHERE run = hop.run)
                 FROM hop WHERE run IS NOT NULL
             )
             SELECT span.run, first, last, facts.at_ms FROM span JOIN facts ON facts.seq = span.first
             ORDER BY first",
            [],
            |row| {
                Ok(JournalRun {
                    run: row.get(0)?,
                    first_seq: row.get::<_, i64>(1)?.cast_unsigned(),
                    last_seq: row.get::<_, i64>(2)?.cast_unsigned(),
                    first_at_ms: row.get(3)?,
                })
            },
        )
    }
}

fn record_from_row(row: &Row<'_>) -> rusqlite::Result<JournalRecord> {
    Ok(JournalRecord {
        seq: row.get::<_, i64>(0)?.cast_unsigned(),
        at_ms: row.get(1)?,
        run: row.get(2)?,
        kind: row.get(3)?,
        task: row.get(4)?,
        body: row.get(5)?,
    })
}

/// Places beyond what SQLite can count do not exist, so the largest stands for them all.
fn clamp_seq(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

fn clamp_limit(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
