//! Small JSON files written whole or not at all. Knows nothing of what they mean.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whether a file must survive a loss of power.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteDurability {
    Synced,
    Unsynced,
}

/// Replaces `dir/name` by `value` in one step.
pub(super) fn write_json<T: Serialize>(
    dir: &Path,
    name: &str,
    value: &T,
    durable: WriteDurability,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
    bytes.push(b'\n');
    write_file_bytes(dir, name, &bytes, durable)
}

/// Replaces `dir/name` by `bytes` in one step.
pub(super) fn write_file_bytes(
    dir: &Path,
    name: &str,
    bytes: &[u8],
    durable: WriteDurability,
) -> io::Result<()> {
    // Writers in different processes and threads must not share a temporary file.
    let temporary =
        dir.join(format!("{name}.{}-{:?}.tmp", std::process::id(), std::thread::current().id()));
    let written = write_new_file(&temporary, bytes, durable)
        .and_then(|()| fs::rename(&temporary, dir.join(name)));
    if let Err(e) = written {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&temporary);
        return Err(e);
    }
    if durable == WriteDurability::Synced {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn write_new_file(path: &Path, bytes: &[u8], durable: WriteDurability) -> io::Result<()> {
    // A job's environment may hold secrets: nobody else's business.
    let mut file =
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if durable == WriteDurability::Synced {
        file.sync_all()?;
    }
    Ok(())
}

/// Reads `dir/name`; `None` only if it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let path = dir.join(name);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", path.display()))
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
