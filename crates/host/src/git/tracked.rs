//! Whether the tracked files of a worktree are those of a commit, and making them so.
//!
//! Untracked and ignored files (build results, caches) are nobody's business here.

use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::desk::Desk;
use super::error::{GitError, Result};
use super::locks::remove_locks_in;
use super::{Repo, parts, path_from, settled};

impl Repo {
    /// Tracked files of a worktree that are not as `commit` has them: edited, deleted, or staged.
    /// Whoever worked there must be dead: locks that were left are taken away.
    pub fn tracked_changes(&self, worktree: &Path, commit: &Oid) -> Result<Vec<PathBuf>> {
        let worktree = &settled(worktree);
        let git_dir = &self.git_dir_of(worktree)?;
        remove_locks_in(git_dir, &mut Vec::new())?;
        let index = &git_dir.join("index");
        let without = &self.distrusted_filters(git_dir)?.without;
        let desk = Desk { repo: self, git_dir, worktree, index, without };
        if !index.exists() || self.index_hides_changes(git_dir, worktree, None)? {
            desk.start_from(Some(commit))?;
        }
        // Exit code 1 says that some files differ; which ones is asked next.
        desk.git().args(["update-index", "-q", "--refresh"]).accept(&[1]).run()?;
        let differing = desk
            .git()
            .args(["diff-index", "-z", "--name-only", "--no-renames"])
            .args(["--ignore-submodules=untracked", commit.as_str(), "--"])
            .run()?;
        Ok(parts(&differing.stdout).map(path_from).collect())
    }

    /// Makes index and tracked files of a worktree those of `commit`, wherever its HEAD is. What was
    /// changed in them is gone: whoever may need it keeps it first.
    pub fn restore_tracked(&self, worktree: &Path, commit: &Oid) -> Result<()> {
        let worktree = &settled(worktree);
        let git_dir = &self.git_dir_of(worktree)?;
        let without = &self.distrusted_filters(git_dir)?.without;
        let desk = Desk { repo: self, git_dir, worktree, index: &git_dir.join("index"), without };
        desk.git().args(["read-tree", "--reset", "-u", commit.as_str()]).run()?;
        self.fill_submodules(worktree, commit)?;
        match self.tracked_changes(worktree, commit)?.first() {
            None => Ok(()),
            Some(file) => Err(GitError::BadOutput {
                what: "git read-tree".to_owned(),
                text: format!("{} is still not as {commit} has it", file.display()),
            }),
        }
    }
}
