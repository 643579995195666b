//! Turns the files of a worktree into a tree, through an index of our own.
//!
//! Tracked and untracked files, no ignored ones. The worktree's own index and HEAD stay as they are.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::run::{Git, TIMEOUT_CHECKOUT};
use super::{Identity, Repo, lossy, oid, parts, settled};

/// The files of a worktree as a tree, and the index that produced it.
pub(super) struct Staged {
    pub(super) tree: Oid,
    pub(super) head: Option<Oid>,
    pub(super) index: PrivateIndex,
    pub(super) notes: Vec<String>,
}

/// An index file that disappears with this value.
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
    /// running hooks; `None` if there is nothing. Whoever worked there must be dead.
    ///
    /// If HEAD is on `branch`, the branch moves along. If the agent went elsewhere, HEAD is detached
    /// at the new commit: a branch that is not the workspace's own is never written to.
    pub fn commit_leftovers(
        &self,
        worktree: &Path,
        branch: &str,
        message: &str,
        who: &Identity,
        date_ms: i64,
    ) -> Result<Option<Oid>> {
        let worktree = &settled(worktree);
        let Some(admin) = self.usable_admin(worktree)? else {
            let why = "it is no worktree of this repository any more".to_owned();
            return Err(GitError::NotOurs { path: worktree.clone(), why });
        };
        super::locks::remove_locks_in(&admin, &mut Vec::new())?;
        let staged = self.stage(worktree)?;
        let clean = match &staged.head {
            Some(head) => self.tree_of(head)? == staged.tree,
            None => self.is_empty_tree(&staged.tree)?,
        };
        if clean {
            return Ok(None);
        }
        let mut parents: Vec<Oid> = staged.head.iter().cloned().collect();
        parents.extend(self.merge_heads(&admin, worktree)?);
        let commit = self.commit_tree(&staged.tree, &parents, message, who, who, date_ms)?;
        self.move_head(&admin, worktree, branch, &commit, staged.head.as_ref())?;
        let index = admin.join("index");
        fs::rename(&staged.index.0, &index).on("write", &index)?;
        for name in super::worktree::UNFINISHED {
            let file = admin.join(name);
            crate::files::remove_all(&file).on("remove", &file)?;
        }
        Ok(Some(commit))
    }

    /// The commit a worktree is at; `None` before the first one, or if its HEAD is unusable.
    pub fn worktree_tip(&self, worktree: &Path) -> Result<Option<Oid>> {
        let worktree = settled(worktree);
        match self.usable_admin(&worktree)? {
            Some(admin) => self.look_up("HEAD^{commit}", self.git_in(&admin, &worktree)),
            None => Ok(None),
        }
    }

    /// Whether a worktree has edits or untracked files that are not committed.
    pub fn worktree_dirty(&self, worktree: &Path) -> Result<bool> {
        let worktree = settled(worktree);
        let git_dir = self.git_dir_of(&worktree)?;
        let answer = self
            .git_in(&git_dir, &worktree)
            .args(["status", "--porcelain", "-z", "--untracked-files=normal"])
            .arg("--ignore-submodules=dirty")
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        Ok(!answer.stdout.is_empty())
    }

    /// The git dir that goes with a checkout of this repository.
    pub(super) fn git_dir_of(&self, worktree: &Path) -> Result<PathBuf> {
        if self.toplevel() == Some(worktree) {
            return Ok(self.common_dir().to_path_buf());
        }
        self.usable_admin(worktree)?.ok_or_else(|| GitError::NotOurs {
            path: worktree.to_path_buf(),
            why: "it is no worktree of this repository".to_owned(),
        })
    }

    /// Writes all files of `worktree` as a tree. A folder git no longer knows as a worktree is taken
    /// as plain files without a parent.
    pub(super) fn stage(&self, worktree: &Path) -> Result<Staged> {
        let admin = self.usable_admin(worktree)?;
        let head = match &admin {
            Some(admin) => self.look_up("HEAD^{commit}", self.git_in(admin, worktree))?,
            None => None,
        };
        let git_dir = admin.unwrap_or_else(|| self.common_dir().to_path_buf());
        fs::create_dir_all(self.tmp_dir()).on("create", &self.tmp_dir())?;
        let index = PrivateIndex(self.tmp("index"));
        if git_dir != self.common_dir() {
            self.seed(&git_dir, worktree, &index.0, head.as_ref())?;
        }
        let mut notes = Vec::new();
        self.add_all(&git_dir, worktree, &index.0, &mut notes)?;
        let answer = self.indexed(&git_dir, worktree, &index.0).arg("write-tree").run()?;
        let tree = oid(answer.line()?, &answer)?;
        self.note_gitlinks(&tree, head.as_ref(), &mut notes)?;
        Ok(Staged { tree, head, index, notes })
    }

    fn indexed(&self, git_dir: &Path, worktree: &Path, index: &Path) -> Git {
        self.git_in(git_dir, worktree).env("GIT_INDEX_FILE", index).timeout(TIMEOUT_CHECKOUT)
    }

    /// Copies the worktree's index so that unchanged files need not be read again. The time of the
    /// file is copied too: git finds edits made within the same tick by comparing with it.
    fn seed(
        &self,
        git_dir: &Path,
        worktree: &Path,
        index: &Path,
        head: Option<&Oid>,
    ) -> Result<()> {
        let own = git_dir.join("index");
        let copied = fs::copy(&own, index).is_ok()
            && fs::metadata(&own).and_then(|meta| meta.modified()).is_ok_and(|time| {
                File::options().write(true).open(index).is_ok_and(|f| f.set_modified(time).is_ok())
            });
        if copied && !self.index_hides_changes(git_dir, worktree, Some(index))? {
            return Ok(());
        }
        crate::files::remove_all(index).on("remove", index)?;
        if let Some(head) = head {
            self.indexed(git_dir, worktree, index).args(["read-tree", head.as_str()]).run()?;
        }
        Ok(())
    }

    fn add_all(
        &self,
        git_dir: &Path,
        worktree: &Path,
        index: &Path,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let listed = self
            .indexed(git_dir, worktree, index)
            .args(["ls-files", "--others", "--exclude-standard", "-z"])
            .run()?;
        // Only a repository inside the worktree is listed as a folder. Git would record a bare
        // pointer to it, and its files would be nowhere.
        let nested: Vec<PathBuf> = parts(&listed.stdout)
            .filter_map(|name| name.strip_suffix(b"/"))
            .map(super::path_from)
            .collect();
        // Excluding alone would not do: without a positive pathspec git excludes from the root.
        let mut spec = b".\0".to_vec();
        for place in &nested {
            spec.extend_from_slice(b":(exclude,literal,top)");
            spec.extend_from_slice(super::bytes_of(place));
            spec.push(0);
        }
        let added = self
            .indexed(git_dir, worktree, index)
            .args(["add", "--all", "--ignore-errors", "--pathspec-from-file=-"])
            .arg("--pathspec-file-nul")
            .input(spec)
            .accept(&[1])
            .run()?;
        if added.code == 1 {
            notes.push(format!("some files could not be read: {}", added.stderr.trim()));
        }
        for place in &nested {
            let files = self.files_of_nested(worktree, place)?;
            let files = self.without_ignored(git_dir, worktree, files)?;
            let input: Vec<u8> =
                files.iter().flat_map(|f| [super::bytes_of(f), b"\0"].concat()).collect();
            self.indexed(git_dir, worktree, index)
                .args(["update-index", "--add", "--replace", "-z", "--stdin"])
                .input(input)
                .run()?;
            notes.push(format!(
                "{} is a repository of its own: its files are kept, its history is not",
                place.display()
            ));
        }
        Ok(())
    }

    /// The files of a repository nested in the worktree, without trusting its configuration.
    fn files_of_nested(&self, worktree: &Path, place: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut open = vec![place.to_path_buf()];
        while let Some(place) = open.pop() {
            let listed = self
                .git_in(self.common_dir(), &worktree.join(&place))
                .env("GIT_INDEX_FILE", self.tmp("none"))
                .args(["ls-files", "--others", "--exclude-standard", "-z"])
                .run()?;
            for name in parts(&listed.stdout) {
                match name.strip_suffix(b"/") {
                    Some(deeper) => open.push(place.join(super::path_from(deeper))),
                    None => files.push(place.join(super::path_from(name))),
                }
            }
        }
        Ok(files)
    }

    fn without_ignored(
        &self,
        git_dir: &Path,
        worktree: &Path,
        files: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>> {
        if files.is_empty() {
            return Ok(files);
        }
        let ignored = self.ignored(git_dir, worktree, &files)?;
        Ok(files.into_iter().filter(|file| !ignored.contains(file)).collect())
    }

    /// Those of `files` that git ignores in this worktree.
    pub(super) fn ignored(
        &self,
        git_dir: &Path,
        worktree: &Path,
        files: &[PathBuf],
    ) -> Result<HashSet<PathBuf>> {
        let input: Vec<u8> =
            files.iter().flat_map(|f| [super::bytes_of(f), b"\0"].concat()).collect();
        // Exit code 1 is documented as "none of them".
        let answer = self
            .git_in(git_dir, worktree)
            .args(["check-ignore", "-z", "--stdin"])
            .input(input)
            .accept(&[1])
            .run()?;
        Ok(parts(&answer.stdout).map(super::path_from).collect())
    }

    fn note_gitlinks(&self, tree: &Oid, head: Option<&Oid>, notes: &mut Vec<String>) -> Result<()> {
        let now = self.gitlinks(tree)?;
        let before = match head {
            Some(head) => self.gitlinks(head)?,
            None => Vec::new(),
        };
        for (place, id) in now {
            if !before.contains(&(place.clone(), id.clone())) {
                notes.push(format!("submodule {place} is at {id}, which only its own folder has"));
            }
        }
        Ok(())
    }

    fn gitlinks(&self, tree: &Oid) -> Result<Vec<(String, String)>> {
        let answer = self.git().args(["ls-tree", "-r", "-z", tree.as_str()]).run()?;
        let links = parts(&answer.stdout).filter(|entry| entry.starts_with(b"160000 "));
        Ok(links
            .filter_map(|entry| {
                let text = lossy(entry);
                let (meta, path) = text.split_once('\t')?;
                Some((path.to_owned(), meta.split(' ').nth(2)?.to_owned()))
            })
            .collect())
    }

    pub(super) fn is_empty_tree(&self, tree: &Oid) -> Result<bool> {
        Ok(self.git().args(["ls-tree", "-z", tree.as_str()]).run()?.stdout.is_empty())
    }

    /// The other sides of a merge the agent began and did not commit.
    fn merge_heads(&self, admin: &Path, worktree: &Path) -> Result<Vec<Oid>> {
        let file = admin.join("MERGE_HEAD");
        let Ok(text) = fs::read_to_string(&file) else { return Ok(Vec::new()) };
        let mut heads = Vec::new();
        for line in text.lines().filter(|line| super::is_oid(line)) {
            let name = format!("{line}^{{commit}}");
            heads.extend(self.look_up(&name, self.git_in(admin, worktree))?);
        }
        Ok(heads)
    }

    fn move_head(
        &self,
        admin: &Path,
        worktree: &Path,
        branch: &str,
        new: &Oid,
        old: Option<&Oid>,
    ) -> Result<()> {
        let none = "0".repeat(new.as_str().len());
        let expected = old.map_or(none.as_str(), Oid::as_str);
        let on_branch = self.branch_of(admin)?.as_deref() == Some(branch);
        let git = self.git_in(admin, worktree).args(["update-ref", "-m", "mainstem: leftovers"]);
        let git = if on_branch {
            git.args([format!("refs/heads/{branch}").as_str(), new.as_str(), expected])
        } else {
            // Over a symbolic HEAD, an unborn branch has no old value to compare with.
            let git = git.args(["--no-deref", "HEAD", new.as_str()]);
            if old.is_some() { git.arg(expected) } else { git }
        };
        self.run_locking(git, &format!("refs/heads/{branch}"), false)
    }
}
