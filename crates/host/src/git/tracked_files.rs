//! Whether the tracked files of a worktree are those of a commit, and making them so.
//!
//! Untracked and ignored files (build results, caches) are nobody's business here.

use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, Result};
use super::indexed_worktree::IndexedWorktree;
use super::stale_locks::remove_locks_in;
use super::{Repo, path_from_bytes, resolve_path, split_nul};

impl Repo {
    /// Tracked files of a worktree that are not as `commit` has them: edited, deleted, or staged.
    /// Whoever worked there must be dead: locks that were left are taken away.
    pub fn list_tracked_changes(&self, worktree: &Path, commit: &Oid) -> Result<Vec<PathBuf>> {
        let worktree = &resolve_path(worktree);
        let git_dir = &self.find_worktree_git_dir(worktree)?;
        remove_locks_in(git_dir, &mut Vec::new())?;
        let index = &git_dir.join("index");
        let without = &self.distrusted_filters(git_dir)?.overrides;
        let indexed =
            IndexedWorktree { repo: self, git_dir, worktree, index, filter_overrides: without };
        if !index.exists() || self.index_hides_changes(git_dir, worktree, None)? {
            indexed.reset_index_to(Some(commit))?;
        }
        // Exit code 1 says that some files differ; which ones is asked next.
        indexed.git().args(["update-index", "-q", "--refresh"]).accept_exit_codes(&[1]).run()?;
        let differing = indexed
            .git()
            .args(["diff-index", "-z", "--name-only", "--no-renames"])
            .args(["--ignore-submodules=untracked", commit.as_str(), "--"])
            .run()?;
        Ok(split_nul(&differing.stdout).map(path_from_bytes).collect())
    }

    /// Makes index and tracked files of a worktree those of `commit`, wherever its HEAD is. What was
    /// changed in them is gone: whoever may need it keeps it first.
    pub fn restore_tracked_files(&self, worktree: &Path, commit: &Oid) -> Result<()> {
        let worktree = &resolve_path(worktree);
        let git_dir = &self.find_worktree_git_dir(worktree)?;
        let without = &self.distrusted_filters(git_dir)?.overrides;
        let indexed = IndexedWorktree {
            repo: self,
            git_dir,
            worktree,
            index: &git_dir.join("index"),
            filter_overrides: without,
        };
        indexed.git().args(["read-tree", "--reset", "-u", commit.as_str()]).run()?;
        self.populate_submodules(worktree, commit)?;
        match self.list_tracked_changes(worktree, commit)?.first() {
            None => Ok(()),
            Some(file) => Err(GitError::BadOutput {
                what: "git read-tree".to_owned(),
                text: format!("{} is still not as {commit} has it", file.display()),
            }),
        }
    }
}
