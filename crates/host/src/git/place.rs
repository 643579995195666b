//! What stands in a workspace's place, and whose it is. Links there are never followed, and what is
//! somebody else's is never committed to and never deleted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{GitError, OnPath, Result};
use super::locks::entries;
use super::worktree::write_synced;
use super::{Repo, bytes_of, is_oid, path_from, seclude, settled};
use crate::files::{self, Fate};

/// Names of admin folders that we make start so: git itself names them after the worktree.
pub(super) const ADMIN_START: &str = "mainstem-";

/// Longest of the files with which git ties a worktree together: a path, a ref.
pub(super) const HEAD_BYTES: u64 = 8192;

/// What HEAD says on a branch of ours: an agent may have made its workspace anew by itself.
const OUR_BRANCHES: &str = "ref: refs/heads/mainstem/";

/// Keeps `git worktree remove --force` of one agent, and `git worktree prune`, away from another's
/// unsaved work.
pub(super) const LOCKED_BY_US: &str =
    "mainstem works here; `mainstem clean` removes it when nothing needs it";

impl Repo {
    /// Takes a worktree away: its folder goes to `trash`, its admin folder is dropped. Works if
    /// either half is missing, and again. Its branch stays, and so does another repository's worktree.
    pub fn remove_worktree(&self, path: &Path, trash: &Path) -> Result<()> {
        let path = self.allowed(path)?;
        let admins = self.our_admins(&path)?;
        if stranger(self, &path).is_none() {
            self.move_aside(&path, &admins, trash)?;
        }
        self.drop_admins(&admins)
    }

    /// Whether the worktree at `path` was made by [`Repo::prepare_worktree`] or its like, and not by
    /// somebody's `git worktree add`.
    pub fn is_of_our_making(&self, path: &Path) -> Result<bool> {
        Ok(self.admin_dirs(path)?.iter().any(|admin| has_our_name(admin)))
    }

    /// Whether something that is not ours was put in the place of a worktree: a link, or another
    /// repository's worktree. Nothing may be done, or run, in there.
    pub fn is_replaced(&self, path: &Path) -> bool {
        is_link(path) || stranger(self, path).is_some()
    }

    /// Whether what is at `path` would be lost if its place were used anew: a folder with something in
    /// it that is, or was, a worktree of this repository. Whatever else is there is moved aside and
    /// kept.
    pub fn would_lose(&self, path: &Path) -> Result<bool> {
        let path = self.allowed(path)?;
        if !is_folder(&path) || is_empty_dir(&path)? || stranger(self, &path).is_some() {
            return Ok(false);
        }
        let admins = self.admin_dirs(&path)?;
        Ok(!admins.is_empty() || self.fate_of(&path, &admins)? == Fate::Gone)
    }

    /// The folder git keeps about the worktree at `path`, if it can be trusted so far that git can
    /// work with it; the folder itself may have been tampered with.
    pub(super) fn usable_admin(&self, path: &Path) -> Result<Option<PathBuf>> {
        if self.is_replaced(path) {
            return Ok(None);
        }
        let mut admins = self.admin_dirs(path)?;
        admins.retain(|admin| has_head(admin));
        let named = dot_git_target(path).map(|target| settled(&target));
        let is_named = |admin: &PathBuf| named.as_ref().is_some_and(|name| name.starts_with(admin));
        let at = admins.iter().position(is_named).unwrap_or(0);
        Ok(admins.into_iter().nth(at))
    }

    /// The git folder that whoever works at `path` writes to, if it is not in `path` itself, and the
    /// folder with those of its submodules.
    pub fn working_git_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let Some(admin) = self.usable_admin(path)? else { return Ok(Vec::new()) };
        let mut found = vec![admin.join("modules")];
        // Never the admin folder itself: every git that looks through the worktrees reads it.
        if !seclude::is_clone(std::slice::from_ref(&admin)) {
            found.push(seclude::view_of(&admin));
        }
        found.retain(|dir| is_folder(dir));
        Ok(found)
    }

    /// All admin folders that say they belong to `path`; a killed git may have left several.
    pub(super) fn admin_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let dot_git = placed(path).join(".git");
        let mut found = Vec::new();
        for admin in entries(&self.common_dir().join("worktrees"))? {
            let file = admin.join("gitdir");
            let bytes = match files::read_plain(&file, HEAD_BYTES) {
                Ok(bytes) => bytes,
                Err(error) if is_absent(&error) => continue,
                Err(error) => return Err(error).on("read", &file),
            };
            let named = admin.join(path_from(bytes.trim_ascii_end()));
            // Names first: following the links of a thousand other worktrees would cost more than
            // all the rest.
            let name =
                |path: &Path| path.parent().and_then(Path::file_name).map(OsStr::to_os_string);
            let same = named.file_name() == dot_git.file_name()
                && name(&named) == name(&dot_git)
                && named.parent().map(placed).as_deref() == dot_git.parent();
            if same {
                found.push(admin);
            }
        }
        Ok(found)
    }

    /// Those of them that are ours to use and to drop. Somebody's `git worktree add` in our place is
    /// not, unless it was killed half way.
    pub(super) fn our_admins(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut admins = self.admin_dirs(path)?;
        admins.retain(|admin| self.is_our_admin(admin));
        Ok(admins)
    }

    fn is_our_admin(&self, admin: &Path) -> bool {
        let on_our_branch = || head_of(admin).is_ok_and(|text| text.starts_with(OUR_BRANCHES));
        has_our_name(admin)
            || is_half_made(admin)
            || on_our_branch()
            // Where refs are no files git makes, and names, all of them.
            || self.has_reftable()
    }

    /// Moves what is at `path` to the trash. Somebody's own worktree stays one there.
    pub(super) fn move_aside(&self, path: &Path, admins: &[PathBuf], trash: &Path) -> Result<()> {
        let fate = self.fate_of(path, admins)?;
        let moved = files::move_to_trash(path, trash, fate).on("move to the trash", path)?;
        let Some(place) = moved.filter(|_| fate == Fate::Kept) else { return Ok(()) };
        let target = dot_git_target(&place).map(|target| settled(&target));
        for admin in self.admin_dirs(path)? {
            if !admins.contains(&admin) && target.as_ref() == Some(&admin) {
                let line = [bytes_of(&place.join(".git")), b"\n"].concat();
                write_synced(&admin.join("gitdir"), &line)?;
            }
        }
        Ok(())
    }

    /// A workspace must not contain, or be, the repository.
    pub(super) fn allowed(&self, path: &Path) -> Result<PathBuf> {
        let refuse =
            |why: &str| GitError::NotOurs { path: path.to_path_buf(), why: why.to_owned() };
        if !path.is_absolute() {
            return Err(refuse("the path is not absolute"));
        }
        let path = placed(path);
        let top = self.toplevel();
        if self.common_dir().starts_with(&path) || top.is_some_and(|top| top.starts_with(&path)) {
            return Err(refuse("the path contains the repository"));
        }
        if path.starts_with(self.common_dir()) {
            return Err(refuse("the path is inside the .git folder"));
        }
        Ok(path)
    }

    /// Only what is a worktree of ours may be deleted one day.
    fn fate_of(&self, path: &Path, admins: &[PathBuf]) -> Result<Fate> {
        match fs::symlink_metadata(path) {
            // A link holds nothing, and what it leads to is never touched.
            Ok(meta) if meta.is_symlink() => return Ok(Fate::Gone),
            // A file where the folder was: no snapshot can hold it.
            Ok(meta) if !meta.is_dir() => return Ok(Fate::Kept),
            _ => {}
        }
        if seclude::is_clone(admins) {
            return Ok(Fate::Gone);
        }
        let dot_git = path.join(".git");
        let target = dot_git_target(path).map(|target| seclude::admin_of(&target));
        let among_ours = |target: &PathBuf| target.starts_with(self.common_dir().join("worktrees"));
        let theirs =
            target.as_ref().is_some_and(|t| among_ours(t) && t.is_dir() && !self.is_our_admin(t));
        let ours = match fs::symlink_metadata(&dot_git) {
            _ if theirs => false,
            // A git killed while it wrote the file leaves it empty.
            Ok(meta) if meta.is_file() && meta.len() == 0 => {
                !admins.is_empty() || entries(path)? == [dot_git]
            }
            // Our own entry for this path, and no repository of its own in it: whatever an agent
            // wrote into the file, the folder is the one we made.
            Ok(meta) if meta.is_file() && !admins.is_empty() => true,
            Ok(_) => target.as_ref().is_some_and(among_ours),
            Err(error) if is_absent(&error) => !admins.is_empty(),
            Err(error) => return Err(error).on("look at", &dot_git),
        };
        Ok(if ours { Fate::Gone } else { Fate::Kept })
    }

    /// Out of git's sight in one step first: a half-deleted admin folder belongs to nobody.
    pub(super) fn drop_admins(&self, admins: &[PathBuf]) -> Result<()> {
        self.make_tmp_dir()?;
        for admin in admins {
            self.inner.shelf.forget(admin);
            let aside = self.tmp("admin");
            match fs::rename(admin, &aside) {
                Ok(()) => files::remove_all(&aside).on("remove", &aside)?,
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error).on("move aside", admin),
            }
        }
        Ok(())
    }
}

/// `path` with the links on the way to it resolved, and not itself: an agent can put a link in its
/// workspace's place.
pub(super) fn placed(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => settled(parent).join(name),
        _ => settled(path),
    }
}

/// Whether a folder is at `path`, and not a link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// The git dir of the other repository whose worktree is at `path`: both halves say so. One folder may
/// have two names, by mounts, so repositories are told apart by what they are.
pub(super) fn stranger(repo: &Repo, path: &Path) -> Option<PathBuf> {
    let target = settled(&dot_git_target(path)?);
    if target.starts_with(repo.common_dir()) {
        return None;
    }
    let named = |file: &str| {
        let bytes = files::read_plain(&target.join(file), HEAD_BYTES).ok()?;
        Some(target.join(path_from(bytes.trim_ascii_end())))
    };
    let mutual = named("gitdir")?.parent().map(placed)? == placed(path);
    let id = |dir: &Path| fs::metadata(dir).map(|meta| (meta.dev(), meta.ino())).ok();
    let other = id(&named("commondir")?)? != id(repo.common_dir())?;
    (mutual && other).then_some(target)
}

/// Where the `.git` file of a worktree points; `None` if there is no such file.
pub(super) fn dot_git_target(path: &Path) -> Option<PathBuf> {
    let bytes = files::read_plain(&path.join(".git"), HEAD_BYTES).ok()?;
    Some(path.join(path_from(bytes.strip_prefix(b"gitdir: ")?.trim_ascii_end())))
}

fn has_our_name(admin: &Path) -> bool {
    admin
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(ADMIN_START.as_bytes()))
}

/// Git writes this while it makes a worktree, and takes it away at the end.
pub(super) fn is_half_made(admin: &Path) -> bool {
    seclude::read_plain(&admin.join("locked"), HEAD_BYTES)
        .is_ok_and(|text| text.starts_with("initializing"))
}

pub(super) fn has_head(admin: &Path) -> bool {
    head_of(admin).is_ok_and(|text| text.starts_with("ref: refs/") || is_oid(text.trim_ascii_end()))
}

fn head_of(admin: &Path) -> io::Result<String> {
    seclude::read_plain(&admin.join("HEAD"), HEAD_BYTES)
}

/// Whether there is nothing at `path`, or an empty folder.
pub(super) fn is_empty_dir(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(entries(path)?.is_empty()),
        Ok(_) => Ok(false),
        Err(error) if is_absent(&error) => Ok(true),
        Err(error) => Err(error).on("look at", path),
    }
}

pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
