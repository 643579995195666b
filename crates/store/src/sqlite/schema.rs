//! The tables, and the list of steps that lead to them.
//!
//! `user_version` says how many steps a file has taken. A step that was shipped is never edited: changes are new steps.

use rusqlite::{Connection, TransactionBehavior};

/// Marks a file as ours: the letters MSTM.
pub(super) const APPLICATION_ID: i32 = 0x4d53_544d;

/// The steps, oldest first. Each runs in a transaction of its own.
pub(super) const MIGRATIONS: &[&str] = &[FACTS_AND_META];

const FACTS_AND_META: &str = "
CREATE TABLE facts (
    seq   INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    run   TEXT NOT NULL,
    kind  TEXT NOT NULL,
    task  TEXT,
    body  TEXT NOT NULL
) STRICT;
CREATE INDEX facts_by_run ON facts (run);
CREATE INDEX facts_by_task ON facts (run, task) WHERE task IS NOT NULL;
CREATE TRIGGER facts_are_never_changed BEFORE UPDATE ON facts
    BEGIN SELECT RAISE(ABORT, 'facts are never changed'); END;
CREATE TRIGGER facts_are_never_removed BEFORE DELETE ON facts
    BEGIN SELECT RAISE(ABORT, 'facts are never removed'); END;
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('epoch', 0), ('last_seq', 0);
";

/// How many steps of `migrations` there are, as a schema version.
pub(super) fn latest_version(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).expect("BUG: the list of migrations is short")
}

/// The file's schema version.
pub(super) fn stored_version(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Takes the steps the file has not taken yet; stops at the first that fails, with the ones before it kept.
pub(super) fn apply_migrations(conn: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    loop {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let taken = stored_version(&tx)?;
        let Some(step) = migrations.get(taken as usize) else {
            return tx.commit();
        };
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", taken + 1)?;
        tx.commit()?;
    }
}
