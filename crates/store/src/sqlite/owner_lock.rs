//! The owner of a store in a file: the process that holds an OS lock on a second file, in which it left a note.
//!
//! The lock is `flock`, never the file's existence or a pid in it: it ends with its holder, however that dies. The
//! note only tells people and other programs who holds the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::failures::place_of;
use crate::{StoreClaim, StoreError, StoreOwner, StoreOwnership};

/// How long to try again before the lock is reported as held: somebody who only looks holds it for microseconds.
const LOOKERS_LEAVE_WITHIN: Duration = Duration::from_millis(250);
/// How often the lock is tried in that time.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// Longer notes are not ours.
const NOTE_BYTES_MAX: u64 = 64 * 1024;

/// Takes the lock and leaves `note` in the file, or says who holds the lock.
pub(super) fn claim(path: &Path, note: &str) -> Result<StoreClaim, StoreError> {
    let deadline = Instant::now() + LOOKERS_LEAVE_WITHIN;
    loop {
        let mut file = open_lock_file(path).map_err(|error| failure(path, "open", &error))?;
        match file.try_lock() {
            // The file may have been replaced between opening and locking: then the lock protects nothing.
            Ok(()) if is_file_at(&file, path) => {
                write_note(&mut file, note).map_err(|error| failure(path, "write", &error))?;
                return Ok(StoreClaim::Owned(StoreOwnership::new(file)));
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Ok(StoreClaim::OwnedByAnother(read_owner(&file, deadline)));
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(failure(path, "lock", &error)),
        }
        std::thread::park_timeout(TRY_EVERY);
    }
}

/// Who holds the lock now. Lookers share it, so they never see each other.
pub(super) fn find_owner(path: &Path) -> Result<Option<StoreOwner>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure(path, "probe", &error)),
    };
    loop {
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {
                return Ok(Some(read_owner(&file, Instant::now() + LOOKERS_LEAVE_WITHIN)));
            }
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(failure(path, "probe", &error)),
        }
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    // The standard library opens files close-on-exec, so child processes do not inherit the lock.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn write_note(file: &mut File, note: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(format!("{note}\n").as_bytes())
}

/// Reads the note, again and again while its writer has not finished; an unreadable note counts as empty.
fn read_owner(mut file: &File, deadline: Instant) -> StoreOwner {
    loop {
        let mut text = String::new();
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.take(NOTE_BYTES_MAX).read_to_string(&mut text));
        if read.is_ok()
            && let Some(note) = text.strip_suffix('\n')
        {
            return StoreOwner { note: note.to_owned() };
        }
        if Instant::now() >= deadline {
            return StoreOwner::default();
        }
        std::thread::park_timeout(TRY_EVERY);
    }
}

fn is_file_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => false,
    }
}

fn failure(path: &Path, doing: &'static str, error: &io::Error) -> StoreError {
    StoreError::Ownership { place: place_of(path), doing, detail: error.to_string() }
}
