//! Makes, recycles and takes away linked worktrees.
//!
//! Knows paths and branches, not what they are for. Only the admin folder that belongs to the path
//! asked for is ever touched: other people's worktrees live in the same repository.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::locks::{entries, remove_locks_in};
use super::run::{Git, TIMEOUT_CHECKOUT};
use super::{Repo, bytes_of, is_oid, lossy, path_from, seclude, settled};
use crate::files::{self, Fate};

/// One worktree as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Its folder; for a bare repository the git dir.
    pub path: PathBuf,
    /// The branch checked out there, without `refs/heads/`.
    pub branch: Option<String>,
    /// The commit checked out there; `None` before the first one.
    pub head: Option<Oid>,
    /// Whether it is the bare repository itself, without files.
    pub bare: bool,
    /// Whether somebody locked it against removal.
    pub locked: bool,
    /// Whether its folder is gone.
    pub prunable: bool,
}

/// A workspace is ready; these things about it were not perfect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prepared {
    /// One sentence each, for people.
    pub notes: Vec<String>,
    /// The ref that keeps where the branch was before, if nothing else would have.
    pub kept: Option<String>,
}

#[derive(Clone, Copy)]
enum Spot<'a> {
    Branch { branch: &'a str, keep: &'a str },
    Detached,
}

/// State of interrupted commands inside a git dir.
pub(super) const UNFINISHED: &[&str] = &[
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "BISECT_START",
];
/// Companions of [`UNFINISHED`] that mean nothing alone.
const UNFINISHED_REST: &[&str] = &[
    "MERGE_MSG",
    "MERGE_MODE",
    "MERGE_RR",
    "AUTO_MERGE",
    "SQUASH_MSG",
    "BISECT_LOG",
    "BISECT_NAMES",
];

/// Git is done with the first files of an admin folder in well under a millisecond. One that is
/// still not readable after this long was left by a killed git.
const HALF_MADE_AGE: Duration = Duration::from_secs(5);
/// Names of admin folders that we make start so: git itself names them after the worktree.
const ADMIN_START: &[u8] = b"mainstem-";
/// Longest of the files with which git ties a worktree together: a path, a ref.
const HEAD_BYTES: u64 = 8192;
const STUMBLE_PAUSE: Duration = Duration::from_millis(10);

impl Repo {
    /// Ends with a linked worktree at `path` on `branch`, at `base`, with clean index and files
    /// (ignored files may stay), whatever an earlier, perhaps killed, try left there. What is not
    /// ours is moved into `trash` and kept. Everything else at `path` must be saved already, except
    /// for the branch's own commits: they are kept below `keep`, as [`Repo::keep_tip`] does it.
    pub fn prepare_worktree(
        &self,
        path: &Path,
        branch: &str,
        base: &Oid,
        trash: &Path,
        keep: &str,
    ) -> Result<Prepared> {
        let kept = self.settle(path, Spot::Branch { branch, keep }, base, trash)?;
        let prepared = self.fill_submodules(path, base)?;
        Ok(Prepared { kept, ..prepared })
    }

    /// Ends with a linked worktree at `path`, detached at `commit`: made, or recycled with its
    /// ignored files (warm caches) left in place.
    pub fn checkout_detached(&self, path: &Path, commit: &Oid, trash: &Path) -> Result<Prepared> {
        self.settle(path, Spot::Detached, commit, trash)?;
        self.fill_submodules(path, commit)
    }

    /// Whether `path` is a sound worktree of this repository on `branch`.
    pub fn worktree_is_intact(&self, path: &Path, branch: &str) -> Result<bool> {
        let Some(admin) = self.sound_admin(path)? else { return Ok(false) };
        Ok(self.branch_of(&admin)?.as_deref() == Some(branch))
    }

    /// All worktrees, the main one first.
    pub fn worktrees(&self) -> Result<Vec<Worktree>> {
        let answer = self.without_stumbling(|| {
            self.git().args(["worktree", "list", "--porcelain", "-z"]).run()
        })?;
        let mut found: Vec<Worktree> = Vec::new();
        for line in answer.stdout.split(|&b| b == 0).filter(|line| !line.is_empty()) {
            let space = line.iter().position(|&b| b == b' ');
            let (key, value) = space.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
            if key == b"worktree" {
                found.push(Worktree {
                    path: path_from(value),
                    branch: None,
                    head: None,
                    bare: false,
                    locked: false,
                    prunable: false,
                });
                continue;
            }
            let Some(last) = found.last_mut() else { return Err(answer.bad()) };
            match key {
                b"HEAD" => {
                    let text = lossy(value);
                    let born = is_oid(&text) && text.bytes().any(|b| b != b'0');
                    last.head = born.then(|| Oid::new(text));
                }
                b"branch" => {
                    last.branch = lossy(value).strip_prefix("refs/heads/").map(str::to_owned);
                }
                b"bare" => last.bare = true,
                b"locked" => last.locked = true,
                b"prunable" => last.prunable = true,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Takes a worktree away: its folder goes to `trash`, its admin folder is dropped. Works if
    /// either half is missing, and again. Its branch stays.
    pub fn remove_worktree(&self, path: &Path, trash: &Path) -> Result<()> {
        let path = self.allowed(path)?;
        let admins = self.admin_dirs(&path)?;
        let fate = self.fate_of(&path, &admins)?;
        files::move_to_trash(&path, trash, fate).on("move to the trash", &path)?;
        self.drop_admins(&admins)
    }

    /// Whether the worktree at `path` was made by [`Repo::prepare_worktree`] or its like, and not by
    /// somebody's `git worktree add`.
    pub fn is_of_our_making(&self, path: &Path) -> Result<bool> {
        let ours = |admin: &PathBuf| {
            admin.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(ADMIN_START))
        };
        Ok(self.admin_dirs(path)?.iter().any(ours))
    }

    /// Whether what is at `path` would be lost if its place were used anew: a folder with something in
    /// it that is, or was, a worktree of this repository. Whatever else is there is moved aside and
    /// kept.
    pub fn would_lose(&self, path: &Path) -> Result<bool> {
        let path = self.allowed(path)?;
        if !path.is_dir() || is_empty_dir(&path)? {
            return Ok(false);
        }
        let admins = self.admin_dirs(&path)?;
        Ok(!admins.is_empty() || self.fate_of(&path, &admins)? == Fate::Gone)
    }

    /// The folder git keeps about the worktree at `path`, if it can be trusted so far that git can
    /// work with it; the folder itself may have been tampered with.
    pub(super) fn usable_admin(&self, path: &Path) -> Result<Option<PathBuf>> {
        Ok(self.admin_dirs(path)?.into_iter().find(|admin| has_head(admin)))
    }

    /// The git folder that whoever works at `path` writes to, if it is not in `path` itself.
    pub fn working_git_dir(&self, path: &Path) -> Result<Option<PathBuf>> {
        Ok(self.usable_admin(path)?.map(|admin| {
            let view = seclude::view_of(&admin);
            if view.is_dir() { view } else { admin }
        }))
    }

    /// All admin folders that say they belong to `path`; a killed git may have left several.
    pub(super) fn admin_dirs(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let dot_git = settled(path).join(".git");
        let mut found = Vec::new();
        for admin in entries(&self.common_dir().join("worktrees"))? {
            let file = admin.join("gitdir");
            let bytes = match seclude::read_bytes(&file, HEAD_BYTES) {
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
                && named.parent().map(settled).as_deref() == dot_git.parent();
            if same {
                found.push(admin);
            }
        }
        Ok(found)
    }

    fn settle(
        &self,
        path: &Path,
        spot: Spot<'_>,
        base: &Oid,
        trash: &Path,
    ) -> Result<Option<String>> {
        let path = self.allowed(path)?;
        self.come_back(&path)?;
        self.clear_half_made(&path, trash)?;
        let mut kept = None;
        if let Spot::Branch { branch, keep } = spot {
            self.refuse_busy(branch, &path)?;
            kept = self.rewind(&format!("refs/heads/{branch}"), base, keep)?;
        }
        if let Some(admin) = self.recyclable_admin(&path)? {
            match self.recycle(&path, &admin, spot, base) {
                Ok(()) => return Ok(kept),
                // Too damaged to be recycled: make it anew below. Anything else is a real error.
                Err(GitError::Failed { code: Some(_), .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let admins = self.admin_dirs(&path)?;
        if !is_empty_dir(&path)? {
            let fate = self.fate_of(&path, &admins)?;
            files::move_to_trash(&path, trash, fate).on("move to the trash", &path)?;
        }
        self.drop_admins(&admins)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).on("create", parent)?;
        }
        self.add(&path, spot, base)?;
        let admin = self.sound_admin(&path)?.ok_or_else(|| GitError::NotOurs {
            path: path.clone(),
            why: "git made it, and yet its files do not fit together".to_owned(),
        })?;
        self.fill(&admin, &path, spot, base)?;
        Ok(kept)
    }

    /// Registers a worktree without files, so that it is there completely or not at all. Git itself
    /// goes step by step, and if it is killed, or only watched, in between, every git that looks
    /// through the worktrees fails, the agents' and the user's too.
    fn add(&self, path: &Path, spot: Spot<'_>, base: &Oid) -> Result<()> {
        if self.common_dir().join("reftable").is_dir() {
            return self.add_by_git(path, spot, base);
        }
        fs::create_dir_all(path).on("create", path)?;
        fs::create_dir_all(self.tmp_dir()).on("create", &self.tmp_dir())?;
        let draft = self.tmp("admin");
        fs::create_dir(&draft).on("create", &draft)?;
        let head = match spot {
            Spot::Branch { branch, .. } => format!("ref: refs/heads/{branch}\n"),
            Spot::Detached => format!("{base}\n"),
        };
        write_synced(&draft.join("HEAD"), head.as_bytes())?;
        write_synced(&draft.join("commondir"), b"../..\n")?;
        let dot_git = path.join(".git");
        write_synced(&draft.join("gitdir"), &[bytes_of(&dot_git), b"\n"].concat())?;
        self.inherit_settings(&draft)?;
        let admin = self.free_admin(path)?;
        write_synced(&dot_git, &[b"gitdir: ", bytes_of(&admin), b"\n"].concat())?;
        fs::rename(&draft, &admin).on("create", &admin)
    }

    /// For repositories whose refs are not files: how a HEAD is written there is git's secret.
    fn add_by_git(&self, path: &Path, spot: Spot<'_>, base: &Oid) -> Result<()> {
        self.without_stumbling(|| {
            let git = self.git().args(["worktree", "add", "--quiet", "--no-checkout", "--force"]);
            let (git, start) = match spot {
                // The branch is where it belongs already, and what it held is kept.
                Spot::Branch { branch, .. } => (git, branch),
                Spot::Detached => (git.arg("--detach"), base.as_str()),
            };
            git.arg("--").arg(path).arg(start).run().map(drop)
        })
    }

    /// Where the admin folder of `path` goes. The beginning of the name keeps git, which names them
    /// after the folder, from choosing the same.
    fn free_admin(&self, path: &Path) -> Result<PathBuf> {
        let all = self.common_dir().join("worktrees");
        fs::create_dir_all(&all).on("create", &all)?;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = name.chars().take(40).map(plain).collect();
        Ok(all.join(format!("mainstem-{name}-{}", files::unique())))
    }

    /// A repository with settings per worktree (a sparse checkout) hands the main one's on.
    fn inherit_settings(&self, draft: &Path) -> Result<()> {
        for name in ["config.worktree", "info/sparse-checkout"] {
            let (from, to) = (self.common_dir().join(name), draft.join(name));
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap_or(draft)).on("create", &to)?;
                fs::copy(&from, &to).on("copy", &from)?;
            }
        }
        let config = draft.join("config.worktree");
        if config.is_file() {
            for key in ["core.bare", "core.worktree"] {
                // Exit code 5 is documented as "there was none".
                let git = self.git().args(["config", "--file"]).arg(&config);
                git.args(["--unset-all", key]).accept(&[5]).run()?;
            }
        }
        Ok(())
    }

    /// Asks something that makes git look through all worktrees. One that is just being made by
    /// somebody else is waited for; one that a killed git left is taken away, or it would be in the
    /// way for ever.
    fn without_stumbling<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + HALF_MADE_AGE * 2;
        loop {
            match ask() {
                Err(GitError::Failed { stderr, .. })
                    if stderr.contains("failed to read")
                        && stderr.contains("worktrees")
                        && Instant::now() < deadline => {}
                other => return other,
            }
            self.drop_dead()?;
            std::thread::sleep(STUMBLE_PAUSE);
        }
    }

    /// Takes away what killed gits left of worktrees they had just begun, waiting for young ones.
    pub(super) fn sweep_half_made(&self) -> Result<()> {
        let deadline = Instant::now() + HALF_MADE_AGE * 2;
        while self.drop_dead()? && Instant::now() < deadline {
            std::thread::sleep(STUMBLE_PAUSE);
        }
        Ok(())
    }

    /// Drops admin folders that have no life in them; says whether there are some that may.
    fn drop_dead(&self) -> Result<bool> {
        let mut young = false;
        for admin in entries(&self.common_dir().join("worktrees"))? {
            let blank = |name| fs::metadata(admin.join(name)).map_or(true, |meta| meta.len() == 0);
            let begun = is_half_made(&admin) || blank("locked") && blank("HEAD");
            if !begun || !blank("commondir") {
                continue;
            }
            let age = fs::metadata(&admin)
                .and_then(|meta| meta.modified())
                .map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
            match age {
                Ok(age) if age >= HALF_MADE_AGE => self.drop_admins(&[admin])?,
                Ok(_) => young = true,
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error).on("look at", &admin),
            }
        }
        Ok(young)
    }

    /// At our own path nobody else makes worktrees: a half-made one is a dead one.
    fn clear_half_made(&self, path: &Path, trash: &Path) -> Result<()> {
        let admins = self.admin_dirs(path)?;
        if admins.iter().any(|admin| is_half_made(admin)) {
            let fate = self.fate_of(path, &admins)?;
            files::move_to_trash(path, trash, fate).on("move to the trash", path)?;
            self.drop_admins(&admins)?;
        }
        Ok(())
    }

    /// Brings index and files to where HEAD is.
    fn fill(&self, admin: &Path, path: &Path, spot: Spot<'_>, base: &Oid) -> Result<()> {
        self.git_in(admin, path)
            .args(["reset", "--quiet", "--hard"])
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        self.confirm(admin, path, spot, base)
    }

    fn recycle(&self, path: &Path, admin: &Path, spot: Spot<'_>, base: &Oid) -> Result<()> {
        remove_locks_in(admin, &mut Vec::new())?;
        for name in UNFINISHED.iter().chain(UNFINISHED_REST).chain(&["locked"]) {
            let file = admin.join(name);
            files::remove_all(&file).on("remove", &file)?;
        }
        if self.index_hides_changes(admin, path, None)? {
            let index = admin.join("index");
            files::remove_all(&index).on("remove", &index)?;
        }
        // Not by `checkout -B`: that looks through all worktrees, and see `add`.
        let git = self.git_in(admin, path);
        let git = match spot {
            Spot::Branch { branch, .. } => {
                git.args(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")])
            }
            Spot::Detached => git.args(["update-ref", "-m", "mainstem: prepare"]).args([
                "--no-deref",
                "HEAD",
                base.as_str(),
            ]),
        };
        git.run()?;
        self.fill(admin, path, spot, base)?;
        self.git_in(admin, path)
            .args(["clean", "--quiet", "-d", "--force", "--force"])
            .timeout(TIMEOUT_CHECKOUT)
            .run()
            .map(drop)
    }

    fn confirm(&self, admin: &Path, path: &Path, spot: Spot<'_>, base: &Oid) -> Result<()> {
        let head = self.look_up("HEAD^{commit}", self.git_in(admin, path))?;
        let branch = self.branch_of(admin)?;
        let wanted = match spot {
            Spot::Branch { branch, .. } => Some(branch),
            Spot::Detached => None,
        };
        if head.as_ref() == Some(base) && branch.as_deref() == wanted {
            return Ok(());
        }
        Err(GitError::BadOutput {
            what: "git reset".to_owned(),
            text: format!("{} is at {head:?} on {branch:?}, not at {base}", path.display()),
        })
    }

    /// Whether index entries are flagged so that git would not look at their files.
    pub(super) fn index_hides_changes(
        &self,
        git_dir: &Path,
        worktree: &Path,
        index: Option<&Path>,
    ) -> Result<bool> {
        let mut git = self.git_in(git_dir, worktree).args(["ls-files", "-v", "-z"]);
        if let Some(index) = index {
            git = git.env("GIT_INDEX_FILE", index);
        }
        let answer = match git.run() {
            Ok(answer) => answer,
            // A damaged index hides everything.
            Err(GitError::Failed { code: Some(_), .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        let assumed =
            super::parts(&answer.stdout).any(|e| e.first().is_some_and(u8::is_ascii_lowercase));
        let skipped = super::parts(&answer.stdout).any(|entry| entry.first() == Some(&b'S'));
        if assumed || !skipped {
            return Ok(assumed);
        }
        // Skipping is what a sparse checkout is made of. Each worktree may have its own; exit code 1
        // is documented as "no such key".
        let sparse = self
            .git_in(git_dir, worktree)
            .args(["config", "--type=bool", "--get", "core.sparseCheckout"])
            .accept(&[1])
            .run()?;
        Ok(sparse.line()? != "true")
    }

    /// Like [`Self::sound_admin`], but repairs a missing `.git` file, the one thing agents delete.
    fn recyclable_admin(&self, path: &Path) -> Result<Option<PathBuf>> {
        let dot_git = path.join(".git");
        let gone = fs::symlink_metadata(&dot_git).is_err_and(|error| is_absent(&error));
        let admins = self.admin_dirs(path)?;
        if let ([admin], true, true) = (admins.as_slice(), gone, path.is_dir())
            && has_head(admin)
            && !is_half_made(admin)
            && admin.join("index").is_file()
        {
            let mut text = b"gitdir: ".to_vec();
            text.extend_from_slice(bytes_of(admin));
            text.push(b'\n');
            fs::write(&dot_git, text).on("write", &dot_git)?;
        }
        self.sound_admin(path)
    }

    /// The admin folder of `path` if both halves point at each other and nothing is half-made.
    fn sound_admin(&self, path: &Path) -> Result<Option<PathBuf>> {
        let admins = self.admin_dirs(path)?;
        let Some(target) = dot_git_target(path) else { return Ok(None) };
        let mut sound = admins.iter().filter(|admin| {
            settled(&target) == **admin
                && has_head(admin)
                && !is_half_made(admin)
                && seclude::read_bytes(&admin.join("commondir"), HEAD_BYTES).is_ok_and(|bytes| {
                    settled(&admin.join(path_from(bytes.trim_ascii_end()))) == self.common_dir()
                })
        });
        Ok(sound.next().cloned().filter(|_| admins.len() == 1))
    }

    fn refuse_busy(&self, branch: &str, path: &Path) -> Result<()> {
        for other in self.worktrees()? {
            let busy = other.branch.as_deref() == Some(branch) && settled(&other.path) != path;
            // One whose folder is gone and that nobody locked holds nothing.
            if busy && !other.bare && (!other.prunable || other.locked) {
                return Err(GitError::BranchBusy { branch: branch.to_owned(), path: other.path });
            }
        }
        Ok(())
    }

    /// A workspace must not contain, or be, the repository.
    fn allowed(&self, path: &Path) -> Result<PathBuf> {
        let refuse =
            |why: &str| GitError::NotOurs { path: path.to_path_buf(), why: why.to_owned() };
        if !path.is_absolute() {
            return Err(refuse("the path is not absolute"));
        }
        let path = settled(path);
        let top = self.toplevel();
        if self.common_dir().starts_with(&path) || top.is_some_and(|top| top.starts_with(&path)) {
            return Err(refuse("it holds the repository itself"));
        }
        if path.starts_with(self.common_dir()) {
            return Err(refuse("it lies inside the git folder"));
        }
        Ok(path)
    }

    /// Only what is a worktree of this repository may be deleted one day.
    fn fate_of(&self, path: &Path, admins: &[PathBuf]) -> Result<Fate> {
        // A file where the folder was: no snapshot can hold it.
        if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir()) {
            return Ok(Fate::Kept);
        }
        if seclude::is_clone(admins) {
            return Ok(Fate::Gone);
        }
        let dot_git = path.join(".git");
        let ours = match fs::symlink_metadata(&dot_git) {
            // A git killed while it wrote the file leaves it empty.
            Ok(meta) if meta.is_file() && meta.len() == 0 => {
                !admins.is_empty() || entries(path)? == [dot_git]
            }
            // Our own entry for this path, and no repository of its own in it: whatever an agent
            // wrote into the file, the folder is the one we made.
            Ok(meta) if meta.is_file() && !admins.is_empty() => true,
            Ok(_) => dot_git_target(path)
                .is_some_and(|target| target.starts_with(self.common_dir().join("worktrees"))),
            Err(error) if is_absent(&error) => !admins.is_empty(),
            Err(error) => return Err(error).on("look at", &dot_git),
        };
        Ok(if ours { Fate::Gone } else { Fate::Kept })
    }

    /// Out of git's sight in one step first: a half-deleted admin folder belongs to nobody.
    fn drop_admins(&self, admins: &[PathBuf]) -> Result<()> {
        fs::create_dir_all(self.tmp_dir()).on("create", &self.tmp_dir())?;
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

    fn fill_submodules(&self, path: &Path, base: &Oid) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        let modules = self.common_dir().join("modules");
        let listed =
            self.git().args(["ls-tree", "-z", base.as_str(), "--", ".gitmodules"]).run()?;
        if listed.stdout.is_empty() || !modules.is_dir() {
            return Ok(prepared);
        }
        let path = settled(path);
        let file = path.join(".gitmodules");
        let keys = Git::new(&path)
            .env("GIT_DIR", self.common_dir())
            .args(["config", "-z", "--file"])
            .arg(&file)
            .args(["--get-regexp", r"^submodule\..*\.path$"])
            .accept(&[1])
            .run()?;
        for entry in super::parts(&keys.stdout) {
            let text = lossy(entry);
            let Some((key, place)) = text.split_once('\n') else { continue };
            let name = key.trim_start_matches("submodule.").trim_end_matches(".path");
            let source = modules.join(name);
            if !source.join("HEAD").is_file() {
                continue;
            }
            // Cloned from the copy the user already has: no network, and nothing is written to the
            // shared configuration, because the address is given here.
            let outcome = Git::new(&path)
                .set("protocol.file.allow=always")
                .set(format!("submodule.{name}.url={}", source.display()))
                .set(format!("submodule.{name}.active=true"))
                .env("GIT_ALLOW_PROTOCOL", "file")
                .args(["submodule", "--quiet", "update", "--init", "--force", "--recursive", "--"])
                .arg(place)
                .timeout(TIMEOUT_CHECKOUT)
                .run();
            if let Err(error) = outcome {
                prepared.notes.push(format!("submodule {place} could not be filled: {error}"));
            }
        }
        Ok(prepared)
    }
}

/// After a power loss these must not be empty: an empty `commondir` breaks everybody's git.
fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().on("write", path)
}

/// Where the `.git` file of a worktree points; `None` if there is no such file.
fn dot_git_target(path: &Path) -> Option<PathBuf> {
    let file = path.join(".git");
    if !fs::symlink_metadata(&file).ok()?.is_file() {
        return None;
    }
    let bytes = fs::read(&file).ok()?;
    Some(path.join(path_from(bytes.strip_prefix(b"gitdir: ")?.trim_ascii_end())))
}

/// Git writes this while it makes a worktree, and takes it away at the end.
fn is_half_made(admin: &Path) -> bool {
    seclude::read_plain(&admin.join("locked"), HEAD_BYTES)
        .is_ok_and(|text| text.starts_with("initializing"))
}

fn has_head(admin: &Path) -> bool {
    seclude::read_plain(&admin.join("HEAD"), HEAD_BYTES)
        .is_ok_and(|text| text.starts_with("ref: refs/") || is_oid(text.trim_ascii_end()))
}

/// Whether there is nothing at `path`, or an empty folder.
fn is_empty_dir(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(entries(path)?.is_empty()),
        Ok(_) => Ok(false),
        Err(error) if is_absent(&error) => Ok(true),
        Err(error) => Err(error).on("look at", path),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
