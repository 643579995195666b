//! Opening a journal file without ever harming it.
//!
//! A file is looked at before it is opened for good: one that is not ours is refused and stays as it is, with no side
//! files beside it. All looking goes through SQLite, because closing a plain file handle would drop the locks other
//! connections of this process hold on the same file. A new file is built under another name and linked into place
//! when it is complete, so nobody ever sees half a journal.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::failures::{io_failure, place_of, sqlite_failure};
use super::schema;
use crate::StoreError;

/// Older versions can damage a WAL file when two connections write or checkpoint at once.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
const SQLITE_VERSION_MIN_NAME: &str = "3.51.3";

/// Commits take milliseconds; only a stuck process holds the lock for this long.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A huge fact makes the WAL grow; it is cut back to this size afterwards.
const WAL_BYTES_KEPT: i64 = 64 * 1024 * 1024;

/// What is at a path, as far as it can be told without locks.
#[derive(Debug, PartialEq, Eq)]
enum JournalFileState {
    Nothing,
    OurFile,
}

/// Opens the journal for writing; makes it, or brings its schema up to date, if need be.
pub(super) fn open_for_writing(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    check_sqlite()?;
    if inspect_file(path, migrations)? == JournalFileState::Nothing {
        create_journal(path, migrations)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |error| sqlite_failure(path, "opened", error);
    let mut conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    // Until the file is known to be sound, closing must not copy the WAL into it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    configure_connection(&conn).map_err(failed)?;
    let found = schema::stored_version(&conn).map_err(failed)?;
    check_version(path, found, migrations)?;
    verify_counters(&conn, path)?;
    use_wal(&conn, path)?;
    if found < schema::latest_version(migrations) {
        write_copy(&conn, path, &backup_path(path, found), ExistingFilePolicy::Replace)?;
        schema::apply_migrations(&mut conn, migrations)
            .map_err(|error| sqlite_failure(path, "upgraded", error))?;
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(failed)?;
    remove_leftovers(path);
    Ok(conn)
}

/// Opens the journal for reading only, beside whoever writes it.
pub(super) fn open_for_reading(path: &Path, migrations: &[&str]) -> Result<Connection, StoreError> {
    check_sqlite()?;
    if inspect_file(path, migrations)? == JournalFileState::Nothing {
        return Err(StoreError::Absent { place: place_of(path) });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |error| sqlite_failure(path, "opened for reading", error);
    let prepare = |conn: Connection| {
        configure_connection(&conn)?;
        let found = schema::stored_version(&conn)?;
        Ok((conn, found))
    };
    let (conn, found) = match Connection::open_with_flags(path, flags).and_then(prepare) {
        // The directory cannot be written, so the side files of the WAL cannot be made.
        Err(error) if side_files_refused(&error) && wal_is_empty(path)? => {
            open_immutable(path).and_then(prepare).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    check_version(path, found, migrations)?;
    let known = schema::latest_version(migrations);
    if found < known {
        return Err(StoreError::Older { place: place_of(path), found, known });
    }
    Ok(conn)
}

/// Reads application id and schema from the file alone: takes no lock, makes no side file, changes nothing.
fn inspect_file(path: &Path, migrations: &[&str]) -> Result<JournalFileState, StoreError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(JournalFileState::Nothing);
        }
        Err(error) => return Err(io_failure(path, "found", &error)),
        Ok(meta) if !meta.is_file() => {
            return Err(corrupt_error(path, "it is not a regular file"));
        }
        Ok(_) => {}
    }
    let id = open_immutable(path).and_then(|conn| {
        let id: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        Ok((id, schema::stored_version(&conn)?))
    });
    match id {
        Ok((schema::APPLICATION_ID, version)) => {
            check_version(path, version, migrations)?;
            Ok(JournalFileState::OurFile)
        }
        Ok(_) => Err(corrupt_error(path, "it was not written by mainstem")),
        // Without locks, a checkpoint going on can look like damage: the real opening decides.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(JournalFileState::OurFile)
        }
        Err(error) => Err(sqlite_failure(path, "opened", error)),
    }
}

/// Builds a complete, empty journal beside `path` and links it into place; an existing file wins.
fn create_journal(path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| io_failure(path, "created", &error);
    fs::create_dir_all(directory).map_err(failed)?;
    let mut name = leftover_prefix(path);
    name.push(format!("{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let fresh = directory.join(name);
    let built = build_journal(&fresh, migrations)
        .map_err(|error| sqlite_failure(path, "created", error))
        .and_then(|()| File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed));
    let linked = built.and_then(|()| fs::hard_link(&fresh, path).map_err(failed));
    // Gone already is fine, and anything else shows itself as a leftover that the next opening removes.
    let _ = fs::remove_file(&fresh);
    // Whatever went wrong, if a journal is there now then another writer was faster (and may have swept ours away).
    if !path.exists() {
        linked?;
    }
    sync_directory(directory).map_err(failed)
}

fn build_journal(fresh: &Path, migrations: &[&str]) -> rusqlite::Result<()> {
    let mut conn = Connection::open(fresh)?;
    configure_connection(&conn)?;
    conn.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    schema::apply_migrations(&mut conn, migrations)?;
    conn.execute(
        "INSERT INTO meta (key, value) VALUES ('created_by', ?1)",
        [concat!("mainstem ", env!("CARGO_PKG_VERSION"))],
    )?;
    // WAL mode is a property of the file: set here, no opening of it ever has to switch.
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    conn.close().map_err(|(_, error)| error)
}

/// Settings of a connection; none of them changes the file.
fn configure_connection(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(32);
    conn.pragma_update(None, "synchronous", "FULL")?;
    if cfg!(target_os = "macos") {
        conn.pragma_update(None, "fullfsync", true)?;
        conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    // An I/O error on a mapped page would be a signal instead of an error code.
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "cell_size_check", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)
}

fn use_wal(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let mode: String = conn
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(|error| sqlite_failure(path, "opened", error))?;
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(StoreError::Io {
        place: place_of(path),
        doing: "switched to write-ahead logging",
        detail: "this file system does not support it; keep the repository on a local disk".into(),
    })
}

/// The cheap check at every opening: the newest fact is the one the counter names, and the oldest is number 1.
///
/// The counter moves in the transaction that adds the facts. Holes further back are seen when they are read.
fn verify_counters(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let (first, last, counted): (i64, i64, i64) = conn
        .query_row(
            "SELECT coalesce((SELECT min(seq) FROM facts), 1),
                    coalesce((SELECT max(seq) FROM facts), 0),
                    (SELECT value FROM meta WHERE key = 'last_seq')",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .map_err(|error| sqlite_failure(path, "checked", error))?;
    if first != 1 || last != counted {
        let detail = format!("it should hold the facts 1 to {counted} and holds {first} to {last}");
        return Err(corrupt_error(path, &detail));
    }
    Ok(())
}

fn check_sqlite() -> Result<(), StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(StoreError::OldLibrary {
            library: "SQLite",
            found: rusqlite::version().to_owned(),
            needed: SQLITE_VERSION_MIN_NAME,
        });
    }
    Ok(())
}

fn check_version(path: &Path, found: u32, migrations: &[&str]) -> Result<(), StoreError> {
    let known = schema::latest_version(migrations);
    match found {
        0 => Err(corrupt_error(path, "it carries our mark but no schema")),
        _ if found > known => Err(StoreError::Newer { place: place_of(path), found, known }),
        _ => Ok(()),
    }
}

/// Whether a file that is already there is kept or replaced by a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingFilePolicy {
    Keep,
    Replace,
}

/// Writes a complete copy of the journal to `to`, which appears only when it is durable.
pub(super) fn write_copy(
    conn: &Connection,
    path: &Path,
    to: &Path,
    existing: ExistingFilePolicy,
) -> Result<(), StoreError> {
    let failed = |error: io::Error| io_failure(to, "written as a backup", &error);
    let to = &std::path::absolute(to).map_err(failed)?;
    if existing == ExistingFilePolicy::Keep && to.try_exists().map_err(failed)? {
        return Err(failed(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file already exists; choose another name",
        )));
    }
    let partial = with_suffix(to, ".partial");
    match fs::remove_file(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let Some(target) = partial.to_str() else {
        return Err(failed(io::Error::other("the name is not UTF-8; choose another name")));
    };
    conn.execute("VACUUM INTO ?1", [target])
        .map_err(|error| sqlite_failure(path, "copied", error))?;
    File::open(&partial).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&partial, to).map_err(failed)?;
    sync_directory(to.parent().unwrap_or(Path::new("/"))).map_err(failed)
}

/// Where the copy made before an upgrade from schema `version` goes.
pub(super) fn backup_path(path: &Path, version: u32) -> PathBuf {
    with_suffix(path, &format!(".schema-{version}.backup"))
}

/// Opens the file as if nobody could change it: no locks, no side files, the WAL is not looked at.
fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = String::from("file://");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags)
}

fn side_files_refused(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

fn wal_is_empty(path: &Path) -> Result<bool, StoreError> {
    match fs::metadata(with_suffix(path, "-wal")) {
        Ok(meta) => Ok(meta.len() == 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io_failure(path, "opened for reading", &error)),
    }
}

/// Removes half-made files of creations that were killed. Best effort: they are small and harm nobody.
fn remove_leftovers(path: &Path) {
    let prefix = leftover_prefix(path);
    let Some(entries) = path.parent().and_then(|directory| fs::read_dir(directory).ok()) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn leftover_prefix(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new-");
    name
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    // Windows cannot open a directory as a file, and makes renames durable by itself.
    if cfg!(windows) { Ok(()) } else { File::open(directory)?.sync_all() }
}

fn corrupt_error(path: &Path, detail: &str) -> StoreError {
    StoreError::Corrupt { place: place_of(path), detail: detail.to_owned() }
}
