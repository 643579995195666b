//! Turns what SQLite and the operating system report into store errors.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::StoreError;

/// How messages name a file.
pub(super) fn place_of(path: &Path) -> String {
    path.display().to_string()
}

/// Reads what SQLite said while `doing` something to the journal at `path`.
pub(super) fn sqlite_failure(
    path: &Path,
    doing: &'static str,
    error: rusqlite::Error,
) -> StoreError {
    let place = place_of(path);
    let detail = error.to_string();
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        // All other kinds mean that a value is not of the type we write.
        return StoreError::Corrupt { place, detail };
    };
    if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE {
        return StoreError::Full { place };
    }
    match failure.code {
        ErrorCode::DiskFull => StoreError::Full { place },
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => StoreError::Busy { place },
        ErrorCode::CannotOpen
        | ErrorCode::ReadOnly
        | ErrorCode::PermissionDenied
        | ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::NoLargeFileSupport
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted => StoreError::Io { place, doing, detail },
        // Not a database, damaged pages, a missing table, a violated constraint: not what we wrote.
        _ => StoreError::Corrupt { place, detail },
    }
}

/// Reads what the operating system said while `doing` something to the file at `path`.
pub(super) fn io_failure(path: &Path, doing: &'static str, error: &io::Error) -> StoreError {
    let place = place_of(path);
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { place },
        _ => StoreError::Io { place, doing, detail: error.to_string() },
    }
}
