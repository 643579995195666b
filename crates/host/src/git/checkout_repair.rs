//! Puts right what a follower of ours left half done in a checkout when it was killed or the power went:
//! files that it had written while the index still had the old ones, and files that it took away or only
//! began to write, because it was killed, the power went or the disk was full.
//!
//! Only after a step that really began, only files that the landing touches, and only such contents as the
//! follower itself can have made.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, IoErrorContext, Result};
use super::{Repo, lossy_string, path_bytes, path_from_bytes, split_nul};
use crate::files;

/// A file that differs between two commits.
pub(super) struct TouchedFile {
    pub(super) name: PathBuf,
    pub(super) old_blob: String,
    pub(super) new_blob: String,
}

impl Repo {
    /// Gives the files of a checkout that an unfinished step between two commits left in between
    /// the content that the index has for them.
    pub(super) fn repair_checkout(
        &self,
        path: &Path,
        git_dir: &Path,
        from: &Oid,
        to: &Oid,
    ) -> Result<()> {
        let index = self.read_index_entries(path, git_dir)?;
        let skipped = self.list_sparse_files(path, git_dir)?;
        let mut again: Vec<u8> = Vec::new();
        let mut touched: Vec<TouchedFile> = Vec::new();
        for one in self.list_touched_files(from, to)? {
            match fs::symlink_metadata(path.join(&one.name)) {
                Ok(meta) if meta.is_file() => touched.push(one),
                Ok(_) => {}
                // Git takes a file away before it writes the new one.
                Err(_) if index.contains_key(&one.name) && !skipped.contains(&one.name) => {
                    again.extend_from_slice(path_bytes(&one.name));
                    again.push(0);
                }
                Err(_) => {}
            }
        }
        again.extend(self.list_files_to_rewrite(path, git_dir, &touched, &index)?);
        if again.is_empty() {
            return Ok(());
        }
        let git = self.git_in_worktree(git_dir, path).args([
            "checkout-index",
            "-f",
            "-q",
            "-z",
            "--stdin",
        ]);
        git.stdin_bytes(again).run().map(drop)
    }

    /// Of the files that are there, those that a step of ours left as they are. New ones are removed.
    fn list_files_to_rewrite(
        &self,
        path: &Path,
        git_dir: &Path,
        touched: &[TouchedFile],
        index: &HashMap<PathBuf, String>,
    ) -> Result<Vec<u8>> {
        let mut again: Vec<u8> = Vec::new();
        if touched.is_empty() {
            return Ok(again);
        }
        let input: Vec<u8> =
            touched.iter().flat_map(|one| quote_path_line(path_bytes(&one.name))).collect();
        let hashed = self
            .git_in_worktree(git_dir, path)
            .args(["hash-object", "--stdin-paths"])
            .stdin_bytes(input)
            .run()?;
        let hashes: Vec<&str> = hashed.single_line()?.lines().collect();
        if hashes.len() != touched.len() {
            return Err(hashed.bad_output_error());
        }
        for (one, hash) in touched.iter().zip(hashes) {
            let file = path.join(&one.name);
            let begun = || self.is_partly_written(path, git_dir, one);
            match index.get(&one.name) {
                // The new file of a step that never came to its index: it is in the commit to come.
                None if is_null_oid(&one.old_blob) && (*hash == one.new_blob || begun()?) => {
                    files::remove_all(&file).with_path("remove", &file)?;
                }
                Some(staged) if *staged != *hash => {
                    let ahead = *staged == one.old_blob && *hash == one.new_blob;
                    if ahead || begun()? {
                        again.extend_from_slice(path_bytes(&one.name));
                        again.push(0);
                    }
                }
                _ => {}
            }
        }
        Ok(again)
    }

    /// Whether a file is the beginning of the new one: written so far when the power or the room on
    /// the disk ended.
    fn is_partly_written(&self, path: &Path, git_dir: &Path, one: &TouchedFile) -> Result<bool> {
        let file = path.join(&one.name);
        let here = fs::read(&file).with_path("read", &file)?;
        if here.is_empty() || is_null_oid(&one.new_blob) {
            return Ok(here.is_empty());
        }
        match self.read_filtered_blob(path, git_dir, &one.name, &one.new_blob) {
            Ok(new) => Ok(new.starts_with(&here)),
            // Its filter fails, or it is too large to compare: then it counts as somebody's.
            Err(GitError::Failed { code: Some(_), .. } | GitError::TooMuchOutput { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A blob as git would write it into a file of this name.
    pub(super) fn read_filtered_blob(
        &self,
        path: &Path,
        git_dir: &Path,
        name: &Path,
        id: &str,
    ) -> Result<Vec<u8>> {
        let mut place = OsString::from("--path=");
        place.push(name);
        let git =
            self.git_in_worktree(git_dir, path).args(["cat-file", "--filters"]).arg(place).arg(id);
        Ok(git.run()?.stdout)
    }

    /// How much a step from one commit to another writes into files, filters aside.
    pub(super) fn count_bytes_to_write(&self, from: &Oid, to: &Oid) -> Result<u64> {
        let touched = self.list_touched_files(from, to)?;
        let ids = touched.iter().map(|one| &one.new_blob).filter(|id| !is_null_oid(id));
        let input: String = ids.map(|id| format!("{id}\n")).collect();
        if input.is_empty() {
            return Ok(0);
        }
        let args = ["cat-file", "--batch-check=%(objectsize)"];
        let answer = self.git().args(args).stdin_bytes(input).run()?;
        // The commit of a submodule is not here, and is not written.
        Ok(answer.single_line()?.lines().filter_map(|size| size.parse::<u64>().ok()).sum())
    }

    /// Files outside a sparse checkout: they are in the index and not in the folder.
    fn list_sparse_files(&self, path: &Path, git_dir: &Path) -> Result<HashSet<PathBuf>> {
        if !self.is_sparse_worktree(git_dir, path)? {
            return Ok(HashSet::new());
        }
        let listed = self.git_in_worktree(git_dir, path).args(["ls-files", "-t", "-z"]).run()?;
        let skipped = split_nul(&listed.stdout).filter_map(|entry| entry.strip_prefix(b"S "));
        Ok(skipped.map(path_from_bytes).collect())
    }

    pub(super) fn list_touched_files(&self, from: &Oid, to: &Oid) -> Result<Vec<TouchedFile>> {
        let diff = self.diff_tree(from, to, &["-r", "-z", "--no-renames", "--no-abbrev"]).run()?;
        let records: Vec<&[u8]> = split_nul(&diff.stdout).collect();
        let mut touched = Vec::new();
        for record in records.chunks(2) {
            let [what, name] = record else { return Err(diff.bad_output_error()) };
            let what = lossy_string(what);
            let words: Vec<&str> = what.split(' ').collect();
            let [_, _, from, to, _] = words[..] else { return Err(diff.bad_output_error()) };
            touched.push(TouchedFile {
                name: path_from_bytes(name),
                old_blob: from.to_owned(),
                new_blob: to.to_owned(),
            });
        }
        Ok(touched)
    }

    /// What the index of a checkout has for each file, conflicts aside.
    pub(super) fn read_index_entries(
        &self,
        path: &Path,
        git_dir: &Path,
    ) -> Result<HashMap<PathBuf, String>> {
        let listed = self.git_in_worktree(git_dir, path).args(["ls-files", "-s", "-z"]).run()?;
        let mut index = HashMap::new();
        for entry in split_nul(&listed.stdout) {
            let tab =
                entry.iter().position(|&b| b == b'\t').ok_or_else(|| listed.bad_output_error())?;
            let meta = lossy_string(&entry[..tab]);
            let words: Vec<&str> = meta.split(' ').collect();
            if let [_, id, "0"] = words[..] {
                index.insert(path_from_bytes(&entry[tab + 1..]), id.to_owned());
            }
        }
        Ok(index)
    }
}

/// A name as a line of a list: git takes a line that starts with a quote for a quoted one, and there
/// is no other way to name a file with a line end.
fn quote_path_line(name: &[u8]) -> Vec<u8> {
    let mut line = vec![b'"'];
    for &byte in name {
        match byte {
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            0x20..0x7f => line.push(byte),
            _ => line.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
    line.extend_from_slice(b"\"\n");
    line
}

pub(super) fn is_null_oid(id: &str) -> bool {
    id.bytes().all(|b| b == b'0')
}
