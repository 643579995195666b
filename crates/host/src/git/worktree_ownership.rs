//! What stands in a workspace's place, and whose it is. Links there are never followed, and what is
//! somebody else's is never committed to and never deleted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{GitError, IoErrorContext, Result};
use super::stale_locks::list_folder;
use super::worktree::write_file_synced;
use super::{Repo, agent_git_dir, is_oid, path_bytes, path_from_bytes, resolve_path};
use crate::files::{self, TrashRetention};

/// Names of admin folders that we make start so: git itself names them after the worktree.
pub(super) const ADMIN_NAME_PREFIX: &str = "mainstem-";

/// Longest of the files with which git ties a worktree together: a path, a ref.
pub(super) const HEAD_BYTES: u64 = 8192;

/// What HEAD says on a branch of ours: an agent may have made its workspace anew by itself.
const OWN_BRANCH_HEAD: &str = "ref: refs/heads/mainstem/";

/// Keeps `git worktree remove --force` of one agent, and `git worktree prune`, away from another's
/// unsaved work.
pub(super) const LOCKED_BY_US: &str =
    "mainstem works here; `mainstem clean` removes it when nothing needs it";

impl Repo {
    /// Takes a worktree away: its folder goes to `trash`, its admin folder is dropped. Works if
    /// either half is missing, and again. Its branch stays, and so does another repository's worktree.
    pub fn remove_worktree(&self, path: &Path, trash: &Path) -> Result<()> {
        let path = self.check_worktree_path(path)?;
        let admins = self.list_own_admin_dirs(&path)?;
        if find_foreign_git_dir(self, &path).is_none() {
            self.move_worktree_to_trash(&path, &admins, trash)?;
        }
        self.remove_admin_dirs(&admins)
    }

    /// Whether the worktree at `path` was made by [`Repo::prepare_worktree`] or its like, and not by
    /// somebody's `git worktree add`.
    pub fn is_own_worktree(&self, path: &Path) -> Result<bool> {
        Ok(self.list_admin_dirs(path)?.iter().any(|admin| has_own_admin_name(admin)))
    }

    /// Whether something that is not ours was put in the place of a worktree: a link, or another
    /// repository's worktree. Nothing may be done, or run, in there.
    pub fn is_worktree_replaced(&self, path: &Path) -> bool {
        is_symlink(path) || find_foreign_git_dir(self, path).is_some()
    }

    /// Whether what is at `path` would be lost if its place were used anew: a folder with something in
    /// it that is, or was, a worktree of this repository. Whatever else is there is moved aside and
    /// kept.
    pub fn would_lose_work(&self, path: &Path) -> Result<bool> {
        let path = self.check_worktree_path(path)?;
        if !is_real_folder(&path)
            || is_empty_dir(&path)?
            || find_foreign_git_dir(self, &path).is_some()
        {
            return Ok(false);
        }
        let admins = self.list_admin_dirs(&path)?;
        Ok(!admins.is_empty()
            || self.choose_trash_retention(&path, &admins)? == TrashRetention::Deletable)
    }

    /// The folder git keeps about the worktree at `path`, if it can be trusted so far that git can
    /// work with it; the folder itself may have been tampered with.
    pub(super) fn find_usable_admin_dir(&self, path: &Path) -> Result<Option<PathBuf>> {
        if self.is_worktree_replaced(path) {
            return Ok(None);
        }
        let mut admins = self.list_admin_dirs(path)?;
        admins.retain(|admin| has_valid_head(admin));
        let named = read_dot_git_target(path).map(|target| resolve_path(&target));
        let is_named = |admin: &PathBuf| named.as_ref().is_some_and(|name| name.starts_with(admin));
        let at = admins.iter().position(is_named).unwrap_or(0);
        Ok(admins.into_iter().nth(at))
    }

    /// The git folder that whoever works at `path` writes to, if it is not in `path` itself, and the
    /// folder with those of its submodules.
    pub fn list_working_git_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let Some(admin) = self.find_usable_admin_dir(path)? else { return Ok(Vec::new()) };
        let mut found = vec![admin.join("modules")];
        // Never the admin folder itself: every git that looks through the worktrees reads it.
        if !agent_git_dir::is_agent_clone(std::slice::from_ref(&admin)) {
            found.push(agent_git_dir::find_agent_git_dir(&admin));
        }
        found.retain(|dir| is_real_folder(dir));
        Ok(found)
    }

    /// All admin folders that say they belong to `path`; a killed git may have left several.
    pub(super) fn list_admin_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let dot_git = resolve_parent_links(path).join(".git");
        let mut found = Vec::new();
        for admin in list_folder(&self.common_dir().join("worktrees"))? {
            let file = admin.join("gitdir");
            let bytes = match files::read_regular_file(&file, HEAD_BYTES) {
                Ok(bytes) => bytes,
                Err(error) if is_not_found(&error) => continue,
                Err(error) => return Err(error).with_path("read", &file),
            };
            let named = admin.join(path_from_bytes(bytes.trim_ascii_end()));
            // Names first: following the links of a thousand other worktrees would cost more than
            // all the rest.
            let name =
                |path: &Path| path.parent().and_then(Path::file_name).map(OsStr::to_os_string);
            let same = named.file_name() == dot_git.file_name()
                && name(&named) == name(&dot_git)
                && named.parent().map(resolve_parent_links).as_deref() == dot_git.parent();
            if same {
                found.push(admin);
            }
        }
        Ok(found)
    }

    /// Those of them that are ours to use and to drop. Somebody's `git worktree add` in our place is
    /// not, unless it was killed half way.
    pub(super) fn list_own_admin_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut admins = self.list_admin_dirs(path)?;
        admins.retain(|admin| self.is_own_admin_dir(admin));
        Ok(admins)
    }

    fn is_own_admin_dir(&self, admin: &Path) -> bool {
        let on_our_branch =
            || read_admin_head(admin).is_ok_and(|text| text.starts_with(OWN_BRANCH_HEAD));
        has_own_admin_name(admin)
            || is_half_made_admin_dir(admin)
            || on_our_branch()
            // Where refs are no files git makes, and names, all of them.
            || self.has_reftable()
    }

    /// Moves what is at `path` to the trash. Somebody's own worktree stays one there.
    pub(super) fn move_worktree_to_trash(
        &self,
        path: &Path,
        admins: &[PathBuf],
        trash: &Path,
    ) -> Result<()> {
        let fate = self.choose_trash_retention(path, admins)?;
        let moved = files::move_to_trash(path, trash, fate).with_path("move to the trash", path)?;
        let Some(place) = moved.filter(|_| fate == TrashRetention::KeptForUser) else {
            return Ok(());
        };
        let target = read_dot_git_target(&place).map(|target| resolve_path(&target));
        for admin in self.list_admin_dirs(path)? {
            if !admins.contains(&admin) && target.as_ref() == Some(&admin) {
                let line = [path_bytes(&place.join(".git")), b"\n"].concat();
                write_file_synced(&admin.join("gitdir"), &line)?;
            }
        }
        Ok(())
    }

    /// A workspace must not contain, or be, the repository.
    pub(super) fn check_worktree_path(&self, path: &Path) -> Result<PathBuf> {
        let refuse =
            |why: &str| GitError::NotOurs { path: path.to_path_buf(), why: why.to_owned() };
        if !path.is_absolute() {
            return Err(refuse("the path is not absolute"));
        }
        let path = resolve_parent_links(path);
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
    fn choose_trash_retention(&self, path: &Path, admins: &[PathBuf]) -> Result<TrashRetention> {
        match fs::symlink_metadata(path) {
            // A link holds nothing, and what it leads to is never touched.
            Ok(meta) if meta.is_symlink() => return Ok(TrashRetention::Deletable),
            // A file where the folder was: no snapshot can hold it.
            Ok(meta) if !meta.is_dir() => return Ok(TrashRetention::KeptForUser),
            _ => {}
        }
        if agent_git_dir::is_agent_clone(admins) {
            return Ok(TrashRetention::Deletable);
        }
        let dot_git = path.join(".git");
        let target =
            read_dot_git_target(path).map(|target| agent_git_dir::resolve_admin_dir(&target));
        let among_ours = |target: &PathBuf| target.starts_with(self.common_dir().join("worktrees"));
        let theirs = target
            .as_ref()
            .is_some_and(|t| among_ours(t) && t.is_dir() && !self.is_own_admin_dir(t));
        let ours = match fs::symlink_metadata(&dot_git) {
            _ if theirs => false,
            // A git killed while it wrote the file leaves it empty.
            Ok(meta) if meta.is_file() && meta.len() == 0 => {
                !admins.is_empty() || list_folder(path)? == [dot_git]
            }
            // Our own entry for this path, and no repository of its own in it: whatever an agent
            // wrote into the file, the folder is the one we made.
            Ok(meta) if meta.is_file() && !admins.is_empty() => true,
            Ok(_) => target.as_ref().is_some_and(among_ours),
            Err(error) if is_not_found(&error) => !admins.is_empty(),
            Err(error) => return Err(error).with_path("look at", &dot_git),
        };
        Ok(if ours { TrashRetention::Deletable } else { TrashRetention::KeptForUser })
    }

    /// Out of git's sight in one step first: a half-deleted admin folder belongs to nobody.
    pub(super) fn remove_admin_dirs(&self, admins: &[PathBuf]) -> Result<()> {
        self.create_temp_dir()?;
        for admin in admins {
            self.inner.index_cache.forget(admin);
            let aside = self.temp_path("admin");
            match fs::rename(admin, &aside) {
                Ok(()) => files::remove_all(&aside).with_path("remove", &aside)?,
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error).with_path("move aside", admin),
            }
        }
        Ok(())
    }
}

/// `path` with the links on the way to it resolved, and not itself: an agent can put a link in its
/// workspace's place.
pub(super) fn resolve_parent_links(path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            resolve_path(parent).join(name)
        }
        _ => resolve_path(path),
    }
}

/// Whether a folder is at `path`, and not a link to one.
pub(super) fn is_real_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
}

/// The git dir of the other repository whose worktree is at `path`: both halves say so. One folder may
/// have two names, by mounts, so repositories are told apart by what they are.
pub(super) fn find_foreign_git_dir(repo: &Repo, path: &Path) -> Option<PathBuf> {
    let target = resolve_path(&read_dot_git_target(path)?);
    if target.starts_with(repo.common_dir()) {
        return None;
    }
    let named = |file: &str| {
        let bytes = files::read_regular_file(&target.join(file), HEAD_BYTES).ok()?;
        Some(target.join(path_from_bytes(bytes.trim_ascii_end())))
    };
    let mutual = named("gitdir")?.parent().map(resolve_parent_links)? == resolve_parent_links(path);
    let id = |dir: &Path| fs::metadata(dir).map(|meta| (meta.dev(), meta.ino())).ok();
    let other = id(&named("commondir")?)? != id(repo.common_dir())?;
    (mutual && other).then_some(target)
}

/// Where the `.git` file of a worktree points; `None` if there is no such file.
pub(super) fn read_dot_git_target(path: &Path) -> Option<PathBuf> {
    let bytes = files::read_regular_file(&path.join(".git"), HEAD_BYTES).ok()?;
    Some(path.join(path_from_bytes(bytes.strip_prefix(b"gitdir: ")?.trim_ascii_end())))
}

fn has_own_admin_name(admin: &Path) -> bool {
    admin
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(ADMIN_NAME_PREFIX.as_bytes()))
}

/// Git writes this while it makes a worktree, and takes it away at the end.
pub(super) fn is_half_made_admin_dir(admin: &Path) -> bool {
    agent_git_dir::read_regular_text_file(&admin.join("locked"), HEAD_BYTES)
        .is_ok_and(|text| text.starts_with("initializing"))
}

pub(super) fn has_valid_head(admin: &Path) -> bool {
    read_admin_head(admin)
        .is_ok_and(|text| text.starts_with("ref: refs/") || is_oid(text.trim_ascii_end()))
}

fn read_admin_head(admin: &Path) -> io::Result<String> {
    agent_git_dir::read_regular_text_file(&admin.join("HEAD"), HEAD_BYTES)
}

/// Whether there is nothing at `path`, or an empty folder.
pub(super) fn is_empty_dir(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(list_folder(path)?.is_empty()),
        Ok(_) => Ok(false),
        Err(error) if is_not_found(&error) => Ok(true),
        Err(error) => Err(error).with_path("look at", path),
    }
}

pub(super) fn is_not_found(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
