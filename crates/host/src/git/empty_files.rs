//! What a power cut leaves of files that somebody wrote and nobody synced: empty ones.
//!
//! Our own git syncs all it writes, an agent's does not. An object file without content is worse than
//! none: git takes it for the object and does not write it again. Looked for once per boot.

use std::fs;
use std::path::{Path, PathBuf};

use super::Repo;
use super::error::{IoErrorContext, Result};
use super::stale_locks::list_folder;
use crate::files;
use crate::process::boot_id;

/// Where the last boot that was looked after is noted, in the state folder.
const BOOT: &str = "boot";

impl Repo {
    /// After a reboot, takes away loose objects, refs of ours and indexes of linked worktrees that are
    /// empty files, and says which. Git makes an index again from what is there.
    /// The caller holds the instance lock.
    pub fn remove_empty_files_after_boot(&self) -> Result<Vec<PathBuf>> {
        let note = self.common_dir().join("mainstem").join(BOOT);
        let now = boot_id();
        if fs::read_to_string(&note).is_ok_and(|last| last == now) {
            return Ok(Vec::new());
        }
        let mut removed = Vec::new();
        for folder in list_folder(&self.common_dir().join("objects"))? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            if name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit()) {
                remove_empty_files(&folder, &mut removed)?;
            }
        }
        for ours in ["refs/mainstem", "refs/heads/mainstem"] {
            remove_empty_files(&self.common_dir().join(ours), &mut removed)?;
        }
        for admin in list_folder(&self.common_dir().join("worktrees"))? {
            let index = admin.join("index");
            if is_empty_file(&index) {
                files::remove_all(&index).with_path("remove", &index)?;
                removed.push(index);
            }
        }
        if let Some(parent) = note.parent() {
            fs::create_dir_all(parent).with_path("create", parent)?;
        }
        files::write_atomic(&note, now.as_bytes()).with_path("write", &note)?;
        Ok(removed)
    }
}

/// What goes while we look is not there.
fn is_empty_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0)
}

fn remove_empty_files(folder: &Path, removed: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in list_folder(folder)? {
        if fs::symlink_metadata(&entry).is_ok_and(|meta| meta.is_dir()) {
            remove_empty_files(&entry, removed)?;
        } else if is_empty_file(&entry) {
            files::remove_all(&entry).with_path("remove", &entry)?;
            removed.push(entry);
        }
    }
    Ok(())
}
