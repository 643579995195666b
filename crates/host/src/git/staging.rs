//! Turns the files of a worktree into a tree, through an index of our own.
//!
//! Tracked and untracked files, no ignored ones. The worktree's own index and HEAD stay as they are.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::command::TIMEOUT_CHECKOUT;
use super::distrusted_filters::FileStamp;
use super::error::{GitError, IoErrorContext, Result};
use super::indexed_worktree::{IndexedWorktree, StagingReport};
use super::unstored_files::UnstoredFile;
use super::worktree_ownership::resolve_parent_links;
use super::{GitIdentity, Repo, lossy_string, resolve_path, split_nul};

/// The files of a worktree as a tree, and the index that produced it.
pub(super) struct StagedTree {
    pub(super) tree: Oid,
    pub(super) head: Option<Oid>,
    /// Unless it stays where it was taken from.
    pub(super) index: Option<PrivateIndex>,
    /// The worktree's own index is damaged or hides changes.
    pub(super) distrusted: bool,
    pub(super) notes: Vec<String>,
    /// Files that are not in the tree although they should be.
    pub(super) unstored: Vec<UnstoredFile>,
}

/// What was found uncommitted in a worktree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorktreeLeftovers {
    /// The commit that holds it now; `None` if there was nothing.
    pub commit: Option<Oid>,
    /// What people should know of it, one sentence each.
    pub notes: Vec<String>,
    /// Files that no commit holds, because git could not take them.
    pub unstored: Vec<UnstoredFile>,
    /// A command that goes from commit to commit and stopped on the way: HEAD is not where it was to
    /// end.
    pub stopped: Option<&'static str>,
}

/// Files and folders in a git dir that say so.
const STOPPED: &[(&str, &str)] = &[
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("sequencer", "cherry-pick or revert of several commits"),
    ("BISECT_START", "bisect"),
];

/// Where a private index comes from.
#[derive(Debug, Default)]
pub(super) struct IndexSeed {
    /// The worktree's index, if there was one.
    pub(super) source: Option<FileStamp>,
    /// It was there and not used.
    pub(super) distrusted: bool,
}

/// An index file that disappears with this value.
#[derive(Debug)]
pub(super) struct PrivateIndex(pub(super) PathBuf);

impl Drop for PrivateIndex {
    fn drop(&mut self) {
        for path in [self.0.clone(), self.0.with_added_extension("lock")] {
            // What stays is swept at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

impl Repo {
    /// Commits what is uncommitted in a worktree (tracked and untracked, not ignored) without
    /// running hooks. Whoever worked there must be dead.
    ///
    /// If HEAD is on `branch`, the branch moves along. If the agent went elsewhere, HEAD is detached
    /// at the new commit: a branch that is not the workspace's own is never written to.
    pub fn commit_leftovers(
        &self,
        worktree: &Path,
        branch: &str,
        message: &str,
        who: &GitIdentity,
        date_ms: i64,
    ) -> Result<WorktreeLeftovers> {
        let worktree = &resolve_parent_links(worktree);
        let Some(admin) = self.find_usable_admin_dir(worktree)? else {
            let why = "no longer a worktree of this repository".to_owned();
            return Err(GitError::NotOurs { path: worktree.clone(), why });
        };
        super::stale_locks::remove_locks_in(&admin, &mut Vec::new())?;
        let at_work = super::agent_git_dir::find_working_git_dir(&admin, worktree);
        if at_work != admin && super::worktree_ownership::is_real_folder(&at_work) {
            // For whoever works in a kept workspace next. What its agent made unreadable stays.
            let _ = super::stale_locks::remove_locks_in(&at_work, &mut Vec::new());
        }
        let staged = self.stage_worktree(worktree)?;
        let clean = match &staged.head {
            Some(head) => self.tree_of(head)? == staged.tree,
            None => self.is_empty_tree(&staged.tree)?,
        };
        let index = admin.join("index");
        let is_there = |name: &str| fs::symlink_metadata(at_work.join(name)).is_ok();
        let stopped = STOPPED.iter().find(|(name, _)| is_there(name));
        let stopped = stopped.map(|(_, what)| *what);
        if clean {
            // Left damaged, it would stop every `git fsck` and `git gc` of the whole repository.
            if let Some(private) = staged.index.as_ref().filter(|_| staged.distrusted) {
                fs::rename(&private.0, &index).with_path("write", &index)?;
            }
            let StagedTree { notes, unstored, .. } = staged;
            return Ok(WorktreeLeftovers { commit: None, notes, unstored, stopped });
        }
        let mut parents: Vec<Oid> = staged.head.iter().cloned().collect();
        parents.extend(self.read_merge_heads(&admin, worktree)?);
        let commit = self.commit_tree(&staged.tree, &parents, message, who, who, date_ms)?;
        self.move_worktree_head(&admin, worktree, branch, &commit, staged.head.as_ref())?;
        if let Some(private) = &staged.index {
            fs::rename(&private.0, &index).with_path("write", &index)?;
        }
        // What stopped half way is still to be seen if we are asked again.
        let settled = |name: &&&str| STOPPED.iter().all(|(stopped, _)| stopped != *name);
        for name in super::worktree::UNFINISHED.iter().filter(settled) {
            let file = admin.join(name);
            crate::files::remove_all(&file).with_path("remove", &file)?;
        }
        let StagedTree { notes, unstored, .. } = staged;
        Ok(WorktreeLeftovers { commit: Some(commit), notes, unstored, stopped })
    }

    /// The commit a worktree is at; `None` before the first one, or if its HEAD is unusable.
    pub fn read_worktree_tip(&self, worktree: &Path) -> Result<Option<Oid>> {
        let worktree = resolve_parent_links(worktree);
        match self.find_usable_admin_dir(&worktree)? {
            Some(admin) => {
                self.find_object("HEAD^{commit}", self.git_in_worktree(&admin, &worktree))
            }
            None => Ok(None),
        }
    }

    /// Whether a worktree has edits or untracked files that are not committed.
    pub fn is_worktree_dirty(&self, worktree: &Path) -> Result<bool> {
        Ok(!self.list_worktree_changes(worktree)?.is_empty())
    }

    /// The files of a worktree that are edited, staged or untracked; a folder of which nothing is tracked
    /// counts as one.
    pub fn list_worktree_changes(&self, worktree: &Path) -> Result<Vec<PathBuf>> {
        let worktree = resolve_path(worktree);
        let git_dir = self.find_worktree_git_dir(&worktree)?;
        let without = &self.distrusted_filters(&git_dir)?.overrides;
        let index = git_dir.join("index");
        let indexed = IndexedWorktree {
            repo: self,
            git_dir: &git_dir,
            worktree: &worktree,
            index: &index,
            filter_overrides: without,
        };
        let answer = indexed
            .git()
            .args(["status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal"])
            .arg("--ignore-submodules=dirty")
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        let entries = answer.stdout.split(|byte| *byte == 0).filter_map(|entry| entry.get(3..));
        Ok(entries.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }

    /// Whether everything in a worktree is held elsewhere: nothing uncommitted, and its commit is on
    /// a ref of the series or part of the branch `also_in`.
    pub fn is_worktree_kept(&self, worktree: &Path, series: &str, also_in: &str) -> Result<bool> {
        let worktree = resolve_parent_links(worktree);
        let Some(git_dir) = self.find_usable_admin_dir(&worktree)? else { return Ok(false) };
        super::agent_git_dir::remove_blocking_files(&git_dir, &worktree);
        let without = &self.distrusted_filters(&git_dir)?.overrides;
        let index = git_dir.join("index");
        let indexed = IndexedWorktree {
            repo: self,
            git_dir: &git_dir,
            worktree: &worktree,
            index: &index,
            filter_overrides: without,
        };
        let seen = indexed.read_status()?;
        let Some(head) = seen.head else { return Ok(false) };
        let whole = seen.changed.is_empty() && seen.nested.is_empty() && seen.unreadable.is_empty();
        if !whole || !self.are_nested_repos_kept(&worktree)? {
            return Ok(false);
        }
        if self.list_refs(series)?.iter().any(|(_, kept)| *kept == head) {
            return Ok(true);
        }
        self.read_ref(also_in)?.map_or(Ok(false), |other| self.is_ancestor(&head, &other))
    }

    /// The git dir that goes with a checkout of this repository.
    pub(super) fn find_worktree_git_dir(&self, worktree: &Path) -> Result<PathBuf> {
        if self.toplevel() == Some(worktree) {
            return Ok(self.common_dir().to_path_buf());
        }
        self.find_usable_admin_dir(worktree)?.ok_or_else(|| GitError::NotOurs {
            path: worktree.to_path_buf(),
            why: "not a worktree of this repository".to_owned(),
        })
    }

    /// Writes all files of `worktree` as a tree. A folder git no longer knows as a worktree is taken
    /// as plain files without a parent.
    pub(super) fn stage_worktree(&self, worktree: &Path) -> Result<StagedTree> {
        let admin = self.find_usable_admin_dir(worktree)?;
        admin.iter().for_each(|admin| super::agent_git_dir::remove_blocking_files(admin, worktree));
        let head = match &admin {
            Some(admin) => {
                self.find_object("HEAD^{commit}", self.git_in_worktree(admin, worktree))?
            }
            None => None,
        };
        let git_dir = admin.unwrap_or_else(|| self.common_dir().to_path_buf());
        self.create_temp_dir()?;
        let index = PrivateIndex(self.temp_path("index"));
        let mut distrusted = false;
        if git_dir != self.common_dir() {
            distrusted = self.seed_index(&git_dir, worktree, &index.0)?.distrusted;
        }
        let filters = self.distrusted_filters(&git_dir)?;
        let without = &filters.overrides;
        let indexed = IndexedWorktree {
            repo: self,
            git_dir: &git_dir,
            worktree,
            index: &index.0,
            filter_overrides: without,
        };
        let (files, nested) = indexed.list_unstaged()?;
        let unstored = self.select_oversized_files(worktree, &files);
        let left: Vec<PathBuf> = unstored.iter().map(|file| file.path.clone()).collect();
        let mut taken = StagingReport { notes: filters.notes, unstored };
        indexed.add_all(&nested, &left, &mut taken)?;
        let tree = indexed.write_tree()?;
        let StagingReport { notes, unstored } = taken;
        Ok(StagedTree { tree, head, index: Some(index), distrusted, notes, unstored })
    }

    /// Copies the worktree's index so that unchanged files need not be read again, and says which
    /// one that was. The time of the file is copied too: git finds edits made within the same tick
    /// by comparing with it. If there is none, or it hides changes, HEAD is taken instead.
    pub(super) fn seed_index(
        &self,
        git_dir: &Path,
        worktree: &Path,
        index: &Path,
    ) -> Result<IndexSeed> {
        let own = git_dir.join("index");
        // By one open file: whoever replaces the index meanwhile does not mix two of them.
        let copy = || -> io::Result<FileStamp> {
            let mut from = crate::files::open_regular_file(&own)?;
            let meta = from.metadata()?;
            let mut to = File::create(index)?;
            io::copy(&mut from, &mut to)?;
            to.set_modified(meta.modified()?)?;
            Ok(FileStamp::from(&meta))
        };
        let copied = copy().ok();
        let hides = || self.index_hides_changes(git_dir, worktree, Some(index));
        let distrusted = copied.is_some() && hides()?;
        if copied.is_none() || distrusted {
            let head =
                self.find_object("HEAD^{commit}", self.git_in_worktree(git_dir, worktree))?;
            let indexed =
                IndexedWorktree { repo: self, git_dir, worktree, index, filter_overrides: &[] };
            indexed.reset_index_to(head.as_ref())?;
        }
        Ok(IndexSeed { source: copied, distrusted })
    }

    /// Those of `files` that git ignores in this worktree.
    pub(super) fn select_ignored(
        &self,
        git_dir: &Path,
        worktree: &Path,
        files: &[PathBuf],
    ) -> Result<HashSet<PathBuf>> {
        let input = super::indexed_worktree::nul_separated(files);
        // Exit code 1 is documented as "none of them".
        let answer = self
            .git_in_worktree(git_dir, worktree)
            .args(["check-ignore", "-z", "--stdin"])
            .stdin_bytes(input)
            .accept_exit_codes(&[1])
            .run()?;
        Ok(split_nul(&answer.stdout).map(super::path_from_bytes).collect())
    }

    /// Whether git ignores this path in a worktree; one that ends with `/` is a folder, there or not.
    pub fn is_ignored(&self, worktree: &Path, path: &str) -> Result<bool> {
        let worktree = resolve_path(worktree);
        let git_dir = self.find_worktree_git_dir(&worktree)?;
        Ok(!self.select_ignored(&git_dir, &worktree, &[PathBuf::from(path)])?.is_empty())
    }

    /// Names submodules that a tree has elsewhere than `head` has them.
    pub(super) fn describe_moved_gitlinks(
        &self,
        tree: &Oid,
        head: Option<&Oid>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let git = match head {
            Some(head) => self
                .git()
                .args(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev"])
                .args([head.as_str(), tree.as_str()]),
            None => self.git().args(["ls-tree", "-r", "-z", tree.as_str()]),
        };
        let answer = git.run()?;
        let mut fields = split_nul(&answer.stdout).map(lossy_string);
        while let Some(entry) = fields.next() {
            // `:<mode> <mode> <id> <id> <letter>`, then the path; or `<mode> <type> <id>\t<path>`.
            let (meta, place) = match entry.split_once('\t') {
                Some((meta, place)) => (meta.to_owned(), place.to_owned()),
                None => (entry, fields.next().unwrap_or_default()),
            };
            let words: Vec<&str> = meta.split(' ').collect();
            let link = match words.as_slice() {
                [_, "160000", _, id, _] => id,
                ["160000", _, id] => id,
                _ => continue,
            };
            notes.push(format!("submodule {place} is at {link}, which is not in here"));
        }
        Ok(())
    }

    pub(super) fn is_empty_tree(&self, tree: &Oid) -> Result<bool> {
        Ok(self.git().args(["ls-tree", "-z", tree.as_str()]).run()?.stdout.is_empty())
    }

    /// The other sides of a merge the agent began and did not commit.
    fn read_merge_heads(&self, admin: &Path, worktree: &Path) -> Result<Vec<Oid>> {
        let file = super::agent_git_dir::find_working_git_dir(admin, worktree).join("MERGE_HEAD");
        let Ok(text) = super::agent_git_dir::read_regular_text_file(&file, 1 << 20) else {
            return Ok(Vec::new());
        };
        let mut heads = Vec::new();
        for line in text.lines().filter(|line| super::is_oid(line)) {
            let name = format!("{line}^{{commit}}");
            heads.extend(self.find_object(&name, self.git_in_worktree(admin, worktree))?);
        }
        Ok(heads)
    }

    fn move_worktree_head(
        &self,
        admin: &Path,
        worktree: &Path,
        branch: &str,
        new: &Oid,
        old: Option<&Oid>,
    ) -> Result<()> {
        let none = "0".repeat(new.as_str().len());
        let expected = old.map_or(none.as_str(), Oid::as_str);
        let on_branch = self.read_head_branch(admin)?.as_deref() == Some(branch);
        let git =
            self.git_in_worktree(admin, worktree).args(["update-ref", "-m", "mainstem: leftovers"]);
        let git = if on_branch {
            git.args([format!("refs/heads/{branch}").as_str(), new.as_str(), expected])
        } else {
            // Over a symbolic HEAD, an unborn branch has no old value to compare with.
            let git = git.args(["--no-deref", "HEAD", new.as_str()]);
            if old.is_some() { git.arg(expected) } else { git }
        };
        self.run_locking_ref(git, &format!("refs/heads/{branch}"), false)
    }
}
