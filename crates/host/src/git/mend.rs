//! Puts right what a follower of ours left half done in a checkout when it was killed or the power went:
//! files that it had written while the index still had the old ones, and files that came out empty.
//!
//! Only files that the landing touches, and only such contents as the follower itself can have made.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{OnPath, Result};
use super::{Repo, bytes_of, lossy, parts, path_from};
use crate::files;

/// A file that differs between two commits.
struct Touched {
    name: PathBuf,
    from: String,
    to: String,
}

impl Repo {
    /// Gives the files of a checkout that an unfinished step between two commits left in between
    /// the content that the index has for them.
    pub(super) fn mend(&self, path: &Path, git_dir: &Path, from: &Oid, to: &Oid) -> Result<()> {
        let touched: Vec<Touched> = self
            .touched(from, to)?
            .into_iter()
            .filter(|one| fs::symlink_metadata(path.join(&one.name)).is_ok_and(|m| m.is_file()))
            .collect();
        if touched.is_empty() {
            return Ok(());
        }
        let index = self.index_of(path, git_dir)?;
        let input: Vec<u8> = touched.iter().flat_map(|one| quoted(bytes_of(&one.name))).collect();
        let hashed =
            self.git_in(git_dir, path).args(["hash-object", "--stdin-paths"]).input(input).run()?;
        let hashes: Vec<&str> = hashed.line()?.lines().collect();
        if hashes.len() != touched.len() {
            return Err(hashed.bad());
        }
        let mut again: Vec<u8> = Vec::new();
        for (one, hash) in touched.iter().zip(hashes) {
            let file = path.join(&one.name);
            let empty = fs::metadata(&file).is_ok_and(|meta| meta.len() == 0);
            match index.get(&one.name) {
                // The new file of a step that never came to its index: it is in the commit to come.
                None if is_none(&one.from) && (*hash == one.to || empty) => {
                    files::remove_all(&file).on("remove", &file)?;
                }
                Some(staged) if *staged != *hash => {
                    let ahead = *staged == one.from && *hash == one.to;
                    if ahead || empty {
                        again.extend_from_slice(bytes_of(&one.name));
                        again.push(0);
                    }
                }
                _ => {}
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        let git = self.git_in(git_dir, path).args(["checkout-index", "-f", "-q", "-z", "--stdin"]);
        git.input(again).run().map(drop)
    }

    fn touched(&self, from: &Oid, to: &Oid) -> Result<Vec<Touched>> {
        let diff = self.diff_tree(from, to, &["-r", "-z", "--no-renames", "--no-abbrev"]).run()?;
        let records: Vec<&[u8]> = parts(&diff.stdout).collect();
        let mut touched = Vec::new();
        for record in records.chunks(2) {
            let [what, name] = record else { return Err(diff.bad()) };
            let what = lossy(what);
            let words: Vec<&str> = what.split(' ').collect();
            let [_, _, from, to, _] = words[..] else { return Err(diff.bad()) };
            touched.push(Touched {
                name: path_from(name),
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
        Ok(touched)
    }

    /// What the index of a checkout has for each file, conflicts aside.
    fn index_of(&self, path: &Path, git_dir: &Path) -> Result<HashMap<PathBuf, String>> {
        let listed = self.git_in(git_dir, path).args(["ls-files", "-s", "-z"]).run()?;
        let mut index = HashMap::new();
        for entry in parts(&listed.stdout) {
            let tab = entry.iter().position(|&b| b == b'\t').ok_or_else(|| listed.bad())?;
            let meta = lossy(&entry[..tab]);
            let words: Vec<&str> = meta.split(' ').collect();
            if let [_, id, "0"] = words[..] {
                index.insert(path_from(&entry[tab + 1..]), id.to_owned());
            }
        }
        Ok(index)
    }
}

/// A name as a line of a list: git takes a line that starts with a quote for a quoted one, and there
/// is no other way to name a file with a line end.
fn quoted(name: &[u8]) -> Vec<u8> {
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

fn is_none(id: &str) -> bool {
    id.bytes().all(|b| b == b'0')
}
