//! What may go wrong with a journal, and what to do about it.
//!
//! Errors are values that can be cloned, because one failed commit is the answer to several waiting callers.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use thiserror::Error;

/// Why the journal could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// There is no journal file.
    #[error("no journal at {}: nothing has run in this repository yet", path.display())]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file is not a journal, or a damaged one. It was left as it is.
    #[error(
        "cannot read the journal {}: {detail}; the file was not changed. Restore a backup, or move the file away to start with an empty journal",
        path.display()
    )]
    Corrupt {
        /// The file in question.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A newer program has upgraded the file.
    #[error(
        "the journal {} has schema {found}, but this version supports schemas up to {known}: upgrade mainstem",
        path.display()
    )]
    Newer {
        /// The file in question.
        path: PathBuf,
        found: u32,
        /// The newest schema this program knows.
        known: u32,
    },
    /// The file has not been upgraded yet, and a reader may not do it.
    #[error(
        "the journal {} still has schema {found}, but this version reads schema {known}: `mainstem run` upgrades the journal (and keeps a backup)",
        path.display()
    )]
    Older {
        /// The file in question.
        path: PathBuf,
        found: u32,
        /// The schema this program reads.
        known: u32,
    },
    /// Somebody else has taken over writing.
    #[error(
        "another run has taken over the journal (epoch {current}, ours is {ours}): this run stops"
    )]
    Fenced {
        /// The epoch the caller writes under.
        ours: u64,
        current: u64,
    },
    /// No space is left. Nothing of the batch was kept, and nothing older is lost.
    #[error(
        "no disk space left for the journal {}: free some disk space and run again; no recorded fact is lost",
        path.display()
    )]
    Full {
        /// The file in question.
        path: PathBuf,
    },
    /// The operating system refused or failed.
    #[error("the journal {} could not be {doing}: {detail}", path.display())]
    Io {
        /// The file in question.
        path: PathBuf,
        /// What was being done to it, as a participle.
        doing: &'static str,
        /// What the system said.
        detail: String,
    },
    /// Somebody held the lock for longer than the busy timeout.
    #[error(
        "the journal {} is locked by another process: find the process with `fuser -v` on the file and try again",
        path.display()
    )]
    Busy {
        /// The file in question.
        path: PathBuf,
    },
    /// The SQLite in this build can damage a journal.
    #[error(
        "this build has SQLite {found}, which is not safe to use: build with {needed} or newer"
    )]
    OldSqlite {
        found: String,
        /// The oldest version that is safe.
        needed: &'static str,
    },
    /// An earlier append failed in a way that leaves the outcome open.
    #[error("an earlier write to the journal {} failed: reopen the journal before writing", path.display())]
    Halted {
        /// The file in question.
        path: PathBuf,
    },
    /// The writer thread is gone.
    #[error("the journal's writer has ended, this fact was not recorded")]
    Closed,
    /// A fact is larger than any fact may be.
    #[error("a fact of type {kind} has {bytes} bytes, at most {bytes_max} are allowed")]
    TooBig {
        kind: String,
        bytes: usize,
        /// The largest size allowed.
        bytes_max: usize,
    },
}

impl StoreError {
    /// Reads what SQLite said while `doing` something to the journal at `path`.
    pub(crate) fn from_sqlite(path: &Path, doing: &'static str, error: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        let detail = error.to_string();
        let rusqlite::Error::SqliteFailure(failure, _) = error else {
            // All other kinds mean that a value is not of the type we write.
            return Self::Corrupt { path, detail };
        };
        if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE {
            return Self::Full { path };
        }
        match failure.code {
            ErrorCode::DiskFull => Self::Full { path },
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed => Self::Busy { path },
            ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::NoLargeFileSupport
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted => Self::Io { path, doing, detail },
            // Not a database, damaged pages, a missing table, a violated constraint: not what we wrote.
            _ => Self::Corrupt { path, detail },
        }
    }

    /// Reads what the operating system said while `doing` something to the file at `path`.
    pub(crate) fn from_io(path: &Path, doing: &'static str, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, doing, detail: error.to_string() },
        }
    }
}
