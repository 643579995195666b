//! Brings checkouts of a branch along after the branch was moved under them.
//!
//! The user's files come first: either a checkout follows completely, or nothing in it changes.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::run::{Git, TIMEOUT_CHECKOUT};
use super::stage::PrivateIndex;
use super::worktree::UNFINISHED;
use super::{Repo, parts, path_from, settled};

/// What became of the checkouts of a moved branch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Follow {
    /// Nobody has the branch checked out.
    NotCheckedOut,
    /// Every checkout shows the new commit now.
    Moved,
    /// At least one was left exactly as it is.
    Left {
        /// The reason, and what the person can do.
        why: String,
    },
}

impl Repo {
    /// After `refs/heads/<branch>` went from `old` to `new`: updates index and files of each
    /// worktree that has it checked out, if none of the touched files was edited or is in the way.
    pub fn follow_checkout(&self, branch: &str, old: &Oid, new: &Oid) -> Result<Follow> {
        let mut outcome = Follow::NotCheckedOut;
        for worktree in self.worktrees()? {
            if worktree.bare || worktree.branch.as_deref() != Some(branch) {
                continue;
            }
            let path = if self.is_main(&worktree.path) {
                self.toplevel().map(Path::to_path_buf)
            } else {
                Some(settled(&worktree.path))
            };
            let Some(path) = path.filter(|path| path.is_dir()) else { continue };
            match self.follow_one(&path, old, new)? {
                None if outcome == Follow::NotCheckedOut => outcome = Follow::Moved,
                None => {}
                Some(why) => {
                    let why = format!("{} was left as it is: {why}", path.display());
                    outcome = Follow::Left { why };
                }
            }
        }
        Ok(outcome)
    }

    /// Git lists the main worktree of a submodule by its git dir.
    fn is_main(&self, path: &Path) -> bool {
        let path = settled(path);
        self.toplevel() == Some(&path) || self.common_dir() == path
    }

    fn follow_one(&self, path: &Path, old: &Oid, new: &Oid) -> Result<Option<String>> {
        let git_dir = self.git_dir_of(path)?;
        if let Some(name) = UNFINISHED.iter().find(|name| git_dir.join(name).exists()) {
            return Ok(Some(format!("a merge, rebase or similar is under way there ({name})")));
        }
        if git_dir.join("index.lock").exists() {
            return Ok(Some("another git command is working there (index.lock)".to_owned()));
        }
        if let Some(in_the_way) = self.in_the_way(&git_dir, path, old, new)? {
            let place = in_the_way.display();
            return Ok(Some(format!("{place} is not under version control and in the way")));
        }
        // Tried on a copy first, so that a refusal leaves not even a refreshed index behind.
        fs::create_dir_all(self.tmp_dir()).on("create", &self.tmp_dir())?;
        let copy = PrivateIndex(self.tmp("index"));
        let own = git_dir.join("index");
        if own.exists() {
            let time = fs::metadata(&own).and_then(|meta| meta.modified()).on("look at", &own)?;
            fs::copy(&own, &copy.0).on("copy", &own)?;
            let file = fs::File::options().write(true).open(&copy.0);
            file.and_then(|file| file.set_modified(time)).on("copy", &own)?;
        }
        let on = |git: Git| git.timeout(TIMEOUT_CHECKOUT);
        let trial = || on(self.git_in(&git_dir, path).env("GIT_INDEX_FILE", &copy.0));
        // Exit code 1 says that some files differ; whether they matter is decided below.
        trial().args(["update-index", "-q", "--refresh"]).accept(&[1]).run()?;
        let args = ["read-tree", "-m", "-u"];
        match trial().args(args).args(["-n", old.as_str(), new.as_str()]).run() {
            Ok(_) => {}
            Err(GitError::Failed { code: Some(_), stderr, .. }) => {
                return Ok(Some(first_line(&stderr)));
            }
            Err(error) => return Err(error),
        }
        let real = || on(self.git_in(&git_dir, path));
        real().args(["update-index", "-q", "--refresh"]).accept(&[1]).run()?;
        match real().args(args).args([old.as_str(), new.as_str()]).run() {
            Ok(_) => Ok(None),
            // An edit between trial and act: git refuses before it touches anything.
            Err(GitError::Failed { code: Some(_), stderr, .. }) => Ok(Some(first_line(&stderr))),
            Err(error) => Err(error),
        }
    }

    /// A file git does not track where a new one should go. Git itself would spare untracked files,
    /// but overwrite ignored ones, and those can be somebody's only copy.
    fn in_the_way(
        &self,
        git_dir: &Path,
        path: &Path,
        old: &Oid,
        new: &Oid,
    ) -> Result<Option<PathBuf>> {
        let args = ["-r", "-z", "--no-renames", "--name-only", "--diff-filter=A"];
        let added = self.diff_tree(old, new, &args).run()?;
        if added.stdout.is_empty() {
            return Ok(None);
        }
        let listed = self.git_in(git_dir, path).args(["ls-files", "-z"]).run()?;
        let tracked: HashSet<PathBuf> = parts(&listed.stdout).map(path_from).collect();
        for name in parts(&added.stdout).map(path_from) {
            if tracked.contains(&name) {
                continue;
            }
            for place in name.ancestors().filter(|place| !place.as_os_str().is_empty()) {
                let Ok(meta) = fs::symlink_metadata(path.join(place)) else { continue };
                // Folders above it are fine. A folder in its very place may hold ignored files.
                let fine = if meta.is_dir() { place != name } else { tracked.contains(place) };
                if !fine {
                    return Ok(Some(place.to_path_buf()));
                }
            }
        }
        Ok(None)
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("git refused").trim_start_matches("error: ").to_owned()
}
