//! Puts what a landing changed into files that a person has edited meanwhile, where the two do not meet,
//! so that the person's next commit has exactly the edit in it and does not take the landing back.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::{Repo, bytes_of, parts, path_from};
use crate::files;

/// An edited file, before and after.
pub(super) struct Blend {
    name: PathBuf,
    mode: String,
    /// The landed blob.
    landed: String,
    mine: Vec<u8>,
    both: Vec<u8>,
}

impl Repo {
    /// The edited files among those that differ between two commits; `None` if there is none, or if one
    /// cannot have both changes. `copy` is a fresh index of the checkout.
    pub(super) fn blends(
        &self,
        (path, git_dir, copy): (&Path, &Path, &Path),
        from: &Oid,
        to: &Oid,
    ) -> Result<Option<Vec<Blend>>> {
        let git = self.git_in(git_dir, path).env("GIT_INDEX_FILE", copy);
        let args = ["diff-files", "-z", "--name-only", "--ignore-submodules"];
        let listed = git.args(args).run()?;
        let edited: HashSet<PathBuf> = parts(&listed.stdout).map(path_from).collect();
        let index = self.index_of(path, git_dir)?;
        let mut blends = Vec::new();
        for one in self.touched(from, to)? {
            if !edited.contains(&one.name) {
                continue;
            }
            let file = path.join(&one.name);
            let is_file = fs::symlink_metadata(&file).is_ok_and(|meta| meta.is_file());
            // What is staged besides is the person's too, and has no place here.
            let (Some(mode), true) =
                (one.plain, is_file && index.get(&one.name) == Some(&one.from))
            else {
                return Ok(None);
            };
            let mine = fs::read(&file).on("read", &file)?;
            let base = self.as_written(path, git_dir, &one.name, &one.from)?;
            let theirs = self.as_written(path, git_dir, &one.name, &one.to)?;
            let Some(both) = self.three_way(&mine, &base, &theirs)? else { return Ok(None) };
            blends.push(Blend { name: one.name, mode, landed: one.to, mine, both });
        }
        Ok((!blends.is_empty()).then_some(blends))
    }

    /// Both changes in one text; `None` if they meet, or if it is no text.
    fn three_way(&self, mine: &[u8], base: &[u8], theirs: &[u8]) -> Result<Option<Vec<u8>>> {
        let place = self.tmp("blend");
        fs::create_dir(&place).on("create", &place)?;
        let ask = || -> Result<Option<Vec<u8>>> {
            for (name, text) in [("mine", mine), ("base", base), ("theirs", theirs)] {
                let file = place.join(name);
                fs::write(&file, text).on("write", &file)?;
            }
            let git = super::run::Git::new(&place).env("GIT_DIR", self.common_dir());
            let args = ["merge-file", "-p", "--quiet", "--", "mine", "base", "theirs"];
            match git.args(args).run() {
                Ok(answer) => Ok(Some(answer.stdout)),
                Err(GitError::Failed { code: Some(_), .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let both = ask();
        // What stays is swept at the next start.
        let _ = files::remove_all(&place);
        both
    }

    /// Gives an index the landed versions of the edited files: git then leaves the files themselves.
    pub(super) fn stage_landed(
        &self,
        (path, git_dir, copy): (&Path, &Path, &Path),
        blends: &[Blend],
    ) -> Result<()> {
        let mut input = Vec::new();
        for blend in blends {
            input.extend_from_slice(format!("{} {} 0\t", blend.mode, blend.landed).as_bytes());
            input.extend_from_slice(bytes_of(&blend.name));
            input.push(0);
        }
        let git = self.git_in(git_dir, path).env("GIT_INDEX_FILE", copy);
        git.args(["update-index", "-z", "--index-info"]).input(input).run().map(drop)
    }

    /// Writes the files with both changes in them; `false` if one was changed since it was read. What
    /// the person had is in the repository as well, as a blob.
    pub(super) fn write_blends(&self, path: &Path, blends: &[Blend]) -> Result<bool> {
        for blend in blends {
            if blend.both == blend.mine {
                continue;
            }
            let args = ["hash-object", "-w", "--no-filters", "--stdin"];
            self.git().args(args).input(blend.mine.clone()).run()?;
            let file = path.join(&blend.name);
            if !replace(&file, &blend.mine, &blend.both).on("write", &file)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Replaces a file in one step if it still has this content.
fn replace(file: &Path, old: &[u8], new: &[u8]) -> io::Result<bool> {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", files::unique()));
    let tmp = file.with_file_name(name);
    let write = || {
        let mut draft = fs::File::create_new(&tmp)?;
        draft.set_permissions(fs::metadata(file)?.permissions())?;
        draft.write_all(new)?;
        draft.sync_all()?;
        if fs::read(file)? != old {
            return Ok(false);
        }
        fs::rename(&tmp, file).map(|()| true)
    };
    let written = write();
    if !matches!(written, Ok(true)) {
        // The answer matters more than what stays.
        let _ = fs::remove_file(&tmp);
    }
    written
}
