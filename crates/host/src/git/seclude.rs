//! Gives whoever works in a worktree refs and settings of its own, and takes in what it committed there.
//!
//! In a linked worktree everybody shares one set of refs, and git can only write a ref by writing to its
//! folder: who may commit may move everything. So a worktree behind a wall gets a *view*: a common
//! folder of its own, with a copy of refs and settings and with the true objects. The *clone* goes
//! further: its objects are its own too, and come in by a fetch that checks them.
//! We ourselves name the true common folder in every call and never look through a view. What is in
//! one, and in a clone, is its agent's and is read as data.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mainstem_core::id::Oid;
use rustix::fs::{Mode, OFlags};

use super::error::{GitError, OnPath, Result};
use super::run::TIMEOUT_CHECKOUT;
use super::{Repo, bytes_of, is_oid, lossy};
use crate::files;

/// The view, in a worktree's admin folder.
const VIEW: &str = "view";
/// Says that the worktree's `.git` is a clone of our making. Only we can write there.
const CLONE: &str = "mainstem-clone";
/// What a clone is called until it is complete.
const DRAFT: &str = ".git-mainstem-draft";
/// Where fetched commits are until the branch has them.
const FETCHED: &str = "refs/mainstem/fetched";
/// Longest file with a single ref in it.
const REF_BYTES: u64 = 4096;
/// Longest list of refs of an agent's that we read.
const REFS_BYTES: u64 = 64 << 20;

impl Repo {
    /// Gives the worktree at `path` a view of its own; calling it again starts the view afresh.
    pub fn seclude(&self, path: &Path) -> Result<()> {
        let Some(admin) = self.usable_admin(path)? else { return Ok(()) };
        let draft = admin.join("view.draft");
        files::remove_all(&draft).on("remove", &draft)?;
        self.furnish(&draft)?;
        let link = |name: &str| -> Result<()> {
            let from = self.common_dir().join(name);
            if from.exists() {
                symlink(&from, draft.join(name)).on("link", &from)?;
            }
            Ok(())
        };
        ["objects", "hooks", "modules", "lfs"].into_iter().try_for_each(link)?;
        let view = admin.join(VIEW);
        files::remove_all(&view).on("remove", &view)?;
        fs::rename(&draft, &view).on("create", &view)?;
        let pointer = admin.join("commondir");
        files::write_atomic(&pointer, format!("{VIEW}\n").as_bytes()).on("write", &pointer)
    }

    /// Makes the worktree at `path` a clone: a git folder of its own that borrows our objects.
    pub fn make_clone(&self, path: &Path) -> Result<()> {
        let Some(admin) = self.usable_admin(path)? else { return Ok(()) };
        let draft = path.join(DRAFT);
        files::remove_all(&draft).on("remove", &draft)?;
        self.furnish(&draft)?;
        let head = admin.join("HEAD");
        fs::copy(&head, draft.join("HEAD")).on("copy", &head)?;
        let index = admin.join("index");
        fs::copy(&index, draft.join("index")).on("copy", &index)?;
        for folder in ["objects/info", "objects/pack"] {
            fs::create_dir_all(draft.join(folder)).on("create", &draft)?;
        }
        let lender = self.common_dir().join("objects");
        let borrowed = draft.join("objects/info/alternates");
        fs::write(&borrowed, [bytes_of(&lender), b"\n"].concat()).on("write", &borrowed)?;
        let config = draft.join("config");
        let set = |args: &[&str]| {
            let git = self.git().args(["config", "--file"]).arg(&config).args(args);
            // Exit code 5 is documented as "there was none to remove".
            git.accept(&[5]).run().map(drop)
        };
        set(&["core.bare", "false"])?;
        set(&["--unset-all", "core.worktree"])?;
        set(&["gc.auto", "0"])?;
        let mark = admin.join(CLONE);
        files::write_atomic(&mark, b"").on("write", &mark)?;
        let dot_git = path.join(".git");
        files::remove_all(&dot_git).on("remove", &dot_git)?;
        fs::rename(&draft, &dot_git).on("create", &dot_git)
    }

    /// What a view and a clone have alike: settings, refs, excludes.
    fn furnish(&self, draft: &Path) -> Result<()> {
        fs::create_dir_all(draft.join("refs/heads")).on("create", draft)?;
        let common = self.common_dir();
        for name in ["config", "HEAD", "shallow"] {
            let from = common.join(name);
            if from.is_file() {
                fs::copy(&from, draft.join(name)).on("copy", &from)?;
            }
        }
        fs::create_dir_all(draft.join("info")).on("create", draft)?;
        for name in ["exclude", "attributes", "sparse-checkout", "grafts"] {
            let from = common.join("info").join(name);
            if from.is_file() {
                fs::copy(&from, draft.join("info").join(name)).on("copy", &from)?;
            }
        }
        let listed = self
            .git()
            .args(["for-each-ref", "--format=%(objectname) %(refname)", "--exclude=refs/mainstem/"])
            .run()?;
        let refs = draft.join("packed-refs");
        let text = [b"# pack-refs with: sorted \n".as_slice(), &listed.stdout].concat();
        fs::write(&refs, text).on("write", &refs)
    }

    /// Undoes both, so that the worktree is an ordinary one again. What was committed there must have
    /// been taken in.
    pub(super) fn come_back(&self, path: &Path) -> Result<()> {
        for admin in self.admin_dirs(path)? {
            let (view, mark) = (admin.join(VIEW), admin.join(CLONE));
            if fs::symlink_metadata(&view).is_ok() {
                let pointer = admin.join("commondir");
                files::write_atomic(&pointer, b"../..\n").on("write", &pointer)?;
                files::remove_all(&view).on("remove", &view)?;
            }
            if mark.exists() {
                let dot_git = path.join(".git");
                if fs::symlink_metadata(&dot_git).is_ok() {
                    files::remove_all(&dot_git).on("remove", &dot_git)?;
                }
                if path.is_dir() {
                    let text = [b"gitdir: ", bytes_of(&admin), b"\n"].concat();
                    fs::write(&dot_git, text).on("write", &dot_git)?;
                }
                fs::remove_file(&mark).on("remove", &mark)?;
            }
        }
        Ok(())
    }

    /// Moves `branch` to where the agent in `path` has it, if it has refs of its own; `over` says that
    /// nobody works there any more. Gives a sentence for people if its commits could not be taken in;
    /// its files are another matter.
    pub fn take_in(&self, path: &Path, branch: &str, over: bool) -> Result<Option<String>> {
        let Some(admin) = self.usable_admin(path)? else { return Ok(None) };
        let refname = format!("refs/heads/{branch}");
        let (tip, head) = if admin.join(CLONE).exists() {
            match self.fetch_clone(&path.join(".git"), &refname) {
                Ok(found) => found,
                Err(error @ GitError::Failed { code: Some(_), .. }) => {
                    return Ok(Some(format!("its commits could not be taken in: {error}")));
                }
                Err(error) => return Err(error),
            }
        } else if fs::symlink_metadata(admin.join(VIEW)).is_ok() {
            self.look_into(&admin, &refname)?
        } else {
            return Ok(None);
        };
        if let Some(tip) = tip
            && self.read_ref(&refname)?.as_ref() != Some(&tip)
        {
            let git = self.git().args(["update-ref", "-m", "mainstem: taken in", &refname]);
            self.run_locking(git.arg(tip.as_str()), &refname, false)?;
        }
        if let (true, Some(head)) = (over, head) {
            let git = self.git_in(&admin, path).args(["update-ref", "-m", "mainstem: taken in"]);
            git.args(["--no-deref", "HEAD", head.as_str()]).run()?;
        }
        self.forget_fetched(&refname)?;
        Ok(None)
    }

    /// Where the agent in `path` has `branch` now, as far as that can be seen without taking it in.
    pub fn tip_at_work(&self, path: &Path, branch: &str) -> Result<Option<Oid>> {
        let refname = format!("refs/heads/{branch}");
        if let Some(admin) = self.usable_admin(path)?
            && fs::symlink_metadata(admin.join(VIEW)).is_ok()
            && let (Some(tip), _) = self.look_into(&admin, &refname)?
        {
            return Ok(Some(tip));
        }
        self.read_ref(&refname)
    }

    /// The branch in a worktree's view, and the commit HEAD is on if that is another branch.
    fn look_into(&self, admin: &Path, refname: &str) -> Result<(Option<Oid>, Option<Oid>)> {
        let view = admin.join(VIEW);
        let tip = self.known_commit(private_ref(&view, refname))?;
        let target = read_plain(&admin.join("HEAD"), REF_BYTES).ok();
        let target = target.as_deref().and_then(|text| text.strip_prefix("ref: ")).map(str::trim);
        let head = match target.filter(|target| *target != refname && is_plain_ref(target)) {
            Some(target) => self.known_commit(private_ref(&view, target))?,
            None => None,
        };
        Ok((tip, head))
    }

    fn known_commit(&self, id: Option<String>) -> Result<Option<Oid>> {
        match id {
            Some(id) => self.look_up(&format!("{id}^{{commit}}"), self.git()),
            None => Ok(None),
        }
    }

    /// Fetches what a clone has: its branch, and the commit HEAD is on if that is not the branch's.
    fn fetch_clone(
        &self,
        git_dir: &Path,
        refname: &str,
    ) -> Result<(Option<Oid>, Option<Oid>)> {
        let hardened = || {
            self.git()
                .set("protocol.allow=never")
                .set("protocol.file.allow=always")
                .set("fetch.fsckObjects=true")
                .set("transfer.fsckObjects=true")
                .set("core.sshCommand=false")
                .timeout(TIMEOUT_CHECKOUT)
        };
        let listed = hardened().args(["ls-remote", "--quiet", "--"]).arg(git_dir);
        let listed = listed.args(["HEAD", refname]).run()?;
        let text = lossy(&listed.stdout);
        let found = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix('\t'));
            line.filter(|id| is_oid(id)).map(str::to_owned)
        };
        let (tip, head) = (found(refname), found("HEAD"));
        let mut wanted = Vec::new();
        for (id, source) in [(&tip, refname), (&head, "HEAD")] {
            if let Some(id) = id
                && self.look_up(&format!("{id}^{{commit}}"), self.git())?.is_none()
            {
                wanted.push(format!("+{source}:{}", fetched(refname, source)));
            }
        }
        if !wanted.is_empty() {
            let fetch = hardened()
                .args(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"])
                .args(["--no-write-fetch-head", "--no-auto-maintenance", "--"])
                .arg(git_dir)
                .args(&wanted);
            fetch.run()?;
        }
        let tip = self.known_commit(tip)?;
        let head = self.known_commit(head)?.filter(|head| Some(head) != tip.as_ref());
        Ok((tip, head))
    }

    fn forget_fetched(&self, refname: &str) -> Result<()> {
        for source in [refname, "HEAD"] {
            let name = fetched(refname, source);
            if self.read_ref(&name)?.is_some() {
                let _ = self.delete_ref(&name, None)?;
            }
        }
        Ok(())
    }
}

fn fetched(refname: &str, source: &str) -> String {
    let which = if source == "HEAD" { "head" } else { "branch" };
    format!("{FETCHED}/{}/{which}", refname.trim_start_matches("refs/heads/"))
}

/// The value of a ref in an agent's own folder of refs.
fn private_ref(view: &Path, refname: &str) -> Option<String> {
    if let Ok(text) = read_plain(&view.join(refname), REF_BYTES) {
        return Some(text.trim().to_owned()).filter(|id| is_oid(id));
    }
    let packed = read_plain(&view.join("packed-refs"), REFS_BYTES).ok()?;
    let line = packed.lines().find_map(|line| line.strip_suffix(refname)?.strip_suffix(' '));
    line.filter(|id| is_oid(id)).map(str::to_owned)
}

/// A name that is no way out of a folder.
fn is_plain_ref(name: &str) -> bool {
    name.starts_with("refs/") && name.split('/').all(|part| !part.is_empty() && part != "..")
}

/// A file that an agent may have replaced by anything: no link is followed, no pipe waited for.
pub(super) fn read_plain(path: &Path, most: u64) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(lossy(&bytes))
}

/// Whether `path` is a clone of our making, whatever is in it.
pub(super) fn is_clone(admins: &[PathBuf]) -> bool {
    admins.iter().any(|admin| admin.join(CLONE).exists())
}
