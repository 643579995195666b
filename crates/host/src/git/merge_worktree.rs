//! A merge laid out in a worktree, for whoever resolves it: the files as they would be, with both sides
//! between markers where they clash. Nothing is committed, and neither index nor HEAD of the worktree is
//! touched: to its git all of it is somebody's edits.

use std::path::Path;

use mainstem_core::id::Oid;

use super::error::Result;
use super::indexed_worktree::IndexedWorktree;
use super::merge::GitMergeOutcome;
use super::staging::PrivateIndex;
use super::{Repo, lossy_string, resolve_path};

/// Of a difference shown to somebody, and of the list of commits behind it.
const COMMITS_SHOWN: &str = "--max-count=20";

impl Repo {
    /// Lays the merge of `tip` out in a worktree that stands at `base`, and says which files clash. What
    /// was edited in files that the merge touches is gone.
    pub fn write_merge_to_worktree(
        &self,
        worktree: &Path,
        base: &Oid,
        tip: &Oid,
    ) -> Result<Vec<String>> {
        let worktree = &resolve_path(worktree);
        let (tree, files) = match self.merge(base, tip)? {
            GitMergeOutcome::Clean { tree } => (tree, Vec::new()),
            GitMergeOutcome::Conflict { tree, files, .. } => (tree, files),
        };
        let git_dir = &self.find_worktree_git_dir(worktree)?;
        let without = &self.distrusted_filters(git_dir)?.overrides;
        let index = PrivateIndex(self.temp_path("index"));
        let indexed = IndexedWorktree {
            repo: self,
            git_dir,
            worktree,
            index: &index.0,
            filter_overrides: without,
        };
        indexed.reset_index_to(Some(base))?;
        // Exit code 1 says that some files differ: those of setup commands, which stay.
        indexed.git().args(["update-index", "-q", "--refresh"]).accept_exit_codes(&[1]).run()?;
        indexed.git().args(["read-tree", "--reset", "-u", base.as_str(), tree.as_str()]).run()?;
        Ok(files)
    }

    /// The difference in these files as a patch, for people and agents.
    pub fn diff_paths_as_text(&self, base: &Oid, tip: &Oid, files: &[String]) -> Result<String> {
        let args = ["-r", "--no-renames", "-p", "--src-prefix=a/", "--dst-prefix=b/", "--no-color"];
        let git = self.diff_tree(base, tip, &args).env("GIT_LITERAL_PATHSPECS", "1");
        Ok(lossy_string(&git.arg("--").args(files).run()?.stdout))
    }

    /// The newest commits between that touch these files, on the branch's own line: id and subject.
    pub fn list_commits_touching(
        &self,
        base: &Oid,
        tip: &Oid,
        files: &[String],
    ) -> Result<Vec<(Oid, String)>> {
        let answer = self
            .git()
            .env("GIT_LITERAL_PATHSPECS", "1")
            .args(["log", "--first-parent", "--diff-merges=first-parent", COMMITS_SHOWN])
            .args(["--format=%H %s", &format!("{base}..{tip}"), "--"])
            .args(files)
            .run()?;
        let text = lossy_string(&answer.stdout);
        let commits = text.lines().filter_map(|line| line.split_once(' '));
        Ok(commits.map(|(id, subject)| (Oid::new(id), subject.to_owned())).collect())
    }
}
