//! One owner at a time: an OS lock on a file whose body names the holder.
//!
//! The lock is `flock`, never the file's existence or a pid in it: it ends with its holder, however that
//! dies. The body only tells people who holds it. Knows nothing of what the lock protects.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::Value;
use thiserror::Error;

/// How long to look again before a lock is reported busy: a probe holds it for microseconds.
const SETTLE: Duration = Duration::from_millis(250);

/// The lock could not be tried at all; says nothing about who holds it.
#[derive(Debug, Error)]
pub enum LockError {
    /// The file could not be opened, locked or written.
    #[error(
        "cannot {what} the lock file {path}: {source}; check that the folder exists and is writable, on a file system with locks"
    )]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// The answer to [`OwnerLock::acquire`].
#[derive(Debug)]
pub enum LockOutcome {
    /// The caller owns the lock until the value is dropped or the process ends.
    Held(OwnerLock),
    /// Someone else owns it; `holder` is what they wrote (`null` if unreadable).
    Busy {
        /// The body the holder wrote.
        holder: Value,
    },
}

/// An exclusive lock, held while this value lives.
#[derive(Debug)]
pub struct OwnerLock {
    file: File,
    path: PathBuf,
}

impl OwnerLock {
    /// Takes the lock and writes `body` (pid, host, start, version, socket …) for others to read.
    pub fn acquire(path: &Path, body: &Value) -> Result<LockOutcome, LockError> {
        Self::acquire_if(path, body, |_| true)
    }

    /// The same if what the last holder wrote (`null` if nothing) is `acceptable`; otherwise it is
    /// left as it is, and busy.
    pub fn acquire_if(
        path: &Path,
        body: &Value,
        acceptable: impl Fn(&Value) -> bool,
    ) -> Result<LockOutcome, LockError> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let file = open_lock_file(path).map_err(lock_error("open", path))?;
            if try_lock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(lock_error("lock", path))?
            {
                // The file may have been replaced between open and lock: then we hold nothing.
                if is_same_file(&file, path) {
                    let holder = read_lock_body(&file, Instant::now());
                    if !acceptable(&holder) {
                        return Ok(LockOutcome::Busy { holder });
                    }
                    let mut lock = Self { file, path: path.to_owned() };
                    if holder != *body {
                        lock.write_body(body)?;
                    }
                    return Ok(LockOutcome::Held(lock));
                }
            } else if Instant::now() >= deadline {
                return Ok(LockOutcome::Busy { holder: read_lock_body(&file, deadline) });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Replaces the body, for example once the socket is known.
    pub fn write_body(&mut self, body: &Value) -> Result<(), LockError> {
        let mut text = body.to_string();
        text.push('\n');
        let mut write = || {
            self.file.set_len(0)?;
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(text.as_bytes())
        };
        write().map_err(lock_error("write", &self.path))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The open file if someone holds the lock exclusively. Probes share, so they never see each other.
pub(crate) fn open_if_locked(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    Ok(if try_lock(&file, FlockOperation::NonBlockingLockShared)? { None } else { Some(file) })
}

/// Takes the lock exclusively, looking again until `deadline`; `None` if it stayed busy.
pub fn lock_file_until(path: &Path, deadline: Instant) -> io::Result<Option<File>> {
    let file = open_lock_file(path)?;
    loop {
        if try_lock(&file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(Some(file));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    // std opens every file close-on-exec, so children do not inherit the lock.
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn try_lock(file: &File, how: FlockOperation) -> io::Result<bool> {
    loop {
        match flock(file, how) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => false,
    }
}

/// Reads the body, looking again while the holder is still writing it.
fn read_lock_body(mut file: &File, deadline: Instant) -> Value {
    loop {
        let mut text = String::new();
        let read = file
            .seek(SeekFrom::Start(0))
            .and_then(|_| file.take(64 * 1024).read_to_string(&mut text));
        if read.is_ok()
            && let Ok(value) = serde_json::from_str(&text)
        {
            return value;
        }
        if Instant::now() >= deadline {
            return Value::Null;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lock_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LockError {
    let path = path.to_owned();
    move |source| LockError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    fn holder_of(path: &Path) -> Option<Value> {
        match OwnerLock::acquire(path, &Value::Null).unwrap() {
            LockOutcome::Busy { holder } => Some(holder),
            LockOutcome::Held(_) => None,
        }
    }

    #[test]
    fn a_busy_lock_names_its_holder_and_is_free_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owner");
        let body = json!({"pid": 7, "host": "here", "socket": "/s"});
        let LockOutcome::Held(mut lock) = OwnerLock::acquire(&path, &body).unwrap() else {
            panic!("a fresh lock is free");
        };
        match OwnerLock::acquire(&path, &json!({"pid": 8})).unwrap() {
            LockOutcome::Busy { holder } => assert_eq!(holder, body),
            LockOutcome::Held(_) => panic!("two owners"),
        }
        lock.write_body(&json!({"pid": 7})).unwrap();
        assert_eq!(holder_of(&path), Some(json!({"pid": 7})));
        drop(lock);
        assert!(matches!(
            OwnerLock::acquire(&path, &json!({"pid": 8})).unwrap(),
            LockOutcome::Held(_)
        ));
    }

    #[test]
    fn a_lock_in_a_missing_folder_is_an_error_and_not_busy() {
        let dir = tempfile::tempdir().unwrap();
        let error = OwnerLock::acquire(&dir.path().join("no/owner"), &Value::Null).unwrap_err();
        assert!(error.to_string().contains("no/owner"), "{error}");
    }

    #[test]
    fn a_holder_that_wrote_nonsense_still_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("owner");
        let LockOutcome::Held(lock) = OwnerLock::acquire(&path, &json!({})).unwrap() else {
            panic!("a fresh lock is free");
        };
        std::fs::write(&path, b"\xff{").unwrap();
        assert_eq!(holder_of(&path), Some(Value::Null));
        drop(lock);
    }
}
