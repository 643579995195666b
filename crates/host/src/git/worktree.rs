//! Makes, recycles and takes away linked worktrees.
//!
//! Knows paths and branches, not what they are for. Only the admin folder that belongs to the path
//! asked for is ever touched: other people's worktrees live in the same repository.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use mainstem_core::id::Oid;

use super::command::{GitCommand, TIMEOUT_CHECKOUT};
use super::error::{GitError, IoErrorContext, Result};
use super::stale_locks::{list_folder, remove_locks_in};
use super::worktree_ownership::{
    ADMIN_NAME_PREFIX, HEAD_BYTES, LOCKED_BY_US, find_foreign_git_dir, has_valid_head,
    is_empty_dir, is_half_made_admin_dir, is_not_found, is_real_folder, read_dot_git_target,
    resolve_parent_links,
};
use super::{Repo, is_oid, lossy_string, path_bytes, path_from_bytes, resolve_path};
use crate::files;

/// One worktree as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeEntry {
    /// Its folder; for a bare repository the git dir.
    pub path: PathBuf,
    /// The branch checked out there, without `refs/heads/`.
    pub branch: Option<String>,
    /// The commit checked out there; `None` before the first one.
    pub head: Option<Oid>,
    /// Whether it is the bare repository itself, without files.
    pub bare: bool,
    /// Whether somebody else than us locked it against removal.
    pub locked: bool,
    /// Whether its folder is gone.
    pub prunable: bool,
}

/// A workspace is ready; these things about it were not perfect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreparedWorktree {
    /// One sentence each, for people.
    pub notes: Vec<String>,
    /// A submodule that the user has is not as it should be there.
    pub submodule_incomplete: bool,
    /// The ref that keeps where the branch was before, if nothing else would have.
    pub kept: Option<String>,
    /// The branch that is checked out there: another one than asked for, if that is somebody else's.
    pub branch: Option<String>,
}

#[derive(Clone, Copy)]
enum WorktreeHead<'a> {
    Branch { branch: &'a str },
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
const STUMBLE_PAUSE: Duration = Duration::from_millis(10);

impl Repo {
    /// Ends with a linked worktree at `path` on `branch`, at `base`, with clean index and files
    /// (ignored files may stay), whatever an earlier, perhaps killed, try left there. What is not
    /// ours is moved into `trash` and kept. Everything else at `path` must be saved already, except
    /// for the branch's own commits: they are kept below `keep`, as [`Repo::keep_ref_tip`] does it. A branch
    /// of that name that is not ours, or is checked out elsewhere, is left alone and another one used.
    pub fn prepare_worktree(
        &self,
        path: &Path,
        branch: &str,
        base: &Oid,
        trash: &Path,
        keep: &str,
    ) -> Result<PreparedWorktree> {
        let place = self.clear_worktree_path(path, trash)?;
        let (branch, kept) = self.claim_branch(branch, &place, base, keep)?;
        self.create_or_recycle_worktree(
            place,
            WorktreeHead::Branch { branch: &branch },
            base,
            trash,
        )?;
        let prepared = self.populate_submodules(path, base)?;
        Ok(PreparedWorktree { kept, branch: Some(branch), ..prepared })
    }

    /// Ends with a linked worktree at `path`, detached at `commit`: made, or recycled with its
    /// ignored files (warm caches) left in place.
    pub fn prepare_detached_worktree(
        &self,
        path: &Path,
        commit: &Oid,
        trash: &Path,
    ) -> Result<PreparedWorktree> {
        let place = self.clear_worktree_path(path, trash)?;
        self.create_or_recycle_worktree(place, WorktreeHead::Detached, commit, trash)?;
        self.populate_submodules(path, commit)
    }

    /// Ends with a linked worktree at `path` on `branch` as it stands. False, and nothing made, if another worktree
    /// has the branch checked out or there is no such branch.
    pub fn checkout_branch(&self, path: &Path, branch: &str, trash: &Path) -> Result<bool> {
        let Some(tip) = self.read_ref(&format!("refs/heads/{branch}"))? else { return Ok(false) };
        if self.is_checked_out(branch)? {
            return Ok(false);
        }
        let place = self.clear_worktree_path(path, trash)?;
        self.create_or_recycle_worktree(place, WorktreeHead::Branch { branch }, &tip, trash)?;
        self.populate_submodules(path, &tip)?;
        Ok(true)
    }

    /// Removes everything from a worktree that is not tracked, ignored files included, but for what these
    /// patterns (as in `.gitignore`) name.
    pub fn clean_untracked_files(&self, path: &Path, keep: &[String]) -> Result<()> {
        let path = resolve_path(path);
        let git_dir = self.find_worktree_git_dir(&path)?;
        let keep = keep.iter().map(|pattern| format!("--exclude={pattern}"));
        self.git_in_worktree(&git_dir, &path)
            .args(["clean", "--quiet", "-d", "-x", "--force", "--force"])
            .args(keep)
            .timeout(TIMEOUT_CHECKOUT)
            .run()
            .map(drop)
    }

    /// Whether `path` is a sound worktree of this repository on `branch`.
    pub fn is_worktree_intact(&self, path: &Path, branch: &str) -> Result<bool> {
        let Some(admin) = self.find_sound_admin_dir(path)? else { return Ok(false) };
        Ok(self.read_head_branch(&admin)?.as_deref() == Some(branch))
    }

    /// All worktrees, the main one first.
    pub fn list_worktrees(&self) -> Result<Vec<WorktreeEntry>> {
        let answer = self.retry_past_half_made_worktrees(|| {
            self.git().args(["worktree", "list", "--porcelain", "-z"]).run()
        })?;
        let mut found: Vec<WorktreeEntry> = Vec::new();
        for line in answer.stdout.split(|&b| b == 0).filter(|line| !line.is_empty()) {
            let space = line.iter().position(|&b| b == b' ');
            let (key, value) = space.map_or((line, &b""[..]), |at| (&line[..at], &line[at + 1..]));
            if key == b"worktree" {
                found.push(WorktreeEntry {
                    path: path_from_bytes(value),
                    branch: None,
                    head: None,
                    bare: false,
                    locked: false,
                    prunable: false,
                });
                continue;
            }
            let Some(last) = found.last_mut() else { return Err(answer.bad_output_error()) };
            match key {
                b"HEAD" => {
                    let text = lossy_string(value);
                    let born = is_oid(&text) && text.bytes().any(|b| b != b'0');
                    last.head = born.then(|| Oid::new(text));
                }
                b"branch" => {
                    last.branch =
                        lossy_string(value).strip_prefix("refs/heads/").map(str::to_owned);
                }
                b"bare" => last.bare = true,
                // Git calls nothing prunable that is locked.
                b"locked" if value == LOCKED_BY_US.as_bytes() => {
                    let gone = fs::symlink_metadata(last.path.join(".git"));
                    last.prunable |= gone.is_err_and(|error| is_not_found(&error));
                }
                b"locked" => last.locked = true,
                b"prunable" => last.prunable = true,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Sees to it that a worktree can be made, or recycled, at `path`; says where that is.
    fn clear_worktree_path(&self, path: &Path, trash: &Path) -> Result<PathBuf> {
        let path = self.check_worktree_path(path)?;
        if let Some(other) = find_foreign_git_dir(self, &path) {
            let why = format!(
                "the folder is a worktree of another repository ({}); set another `[workspace] root`",
                other.display()
            );
            return Err(GitError::NotOurs { path, why });
        }
        self.remove_agent_git_dir(&path)?;
        self.clear_half_made_worktree(&path, trash)?;
        Ok(path)
    }

    fn create_or_recycle_worktree(
        &self,
        path: PathBuf,
        spot: WorktreeHead<'_>,
        base: &Oid,
        trash: &Path,
    ) -> Result<()> {
        if let Some(admin) = self.find_recyclable_admin_dir(&path)? {
            match self.recycle_worktree(&path, &admin, spot, base) {
                Ok(()) => return Ok(()),
                // Too damaged to be recycled: make it anew below. Anything else is a real error.
                Err(GitError::Failed { code: Some(_), .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let admins = self.list_own_admin_dirs(&path)?;
        if !is_empty_dir(&path)? {
            self.move_worktree_to_trash(&path, &admins, trash)?;
        }
        self.remove_admin_dirs(&admins)?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_path("create", parent)?;
        }
        self.register_worktree(&path, spot, base)?;
        let admin = self.find_sound_admin_dir(&path)?.ok_or_else(|| GitError::NotOurs {
            path: path.clone(),
            why: "the new worktree is inconsistent".to_owned(),
        })?;
        self.populate_worktree(&admin, &path, spot, base)
    }

    /// Registers a worktree without files, so that it is there completely or not at all. Git itself
    /// goes step by step, and if it is killed, or only watched, in between, every git that looks
    /// through the worktrees fails, the agents' and the user's too.
    fn register_worktree(&self, path: &Path, spot: WorktreeHead<'_>, base: &Oid) -> Result<()> {
        if self.has_reftable() {
            return self.add_worktree_by_git(path, spot, base);
        }
        fs::create_dir_all(path).with_path("create", path)?;
        self.create_temp_dir()?;
        let draft = self.temp_path("admin");
        fs::create_dir(&draft).with_path("create", &draft)?;
        let head = match spot {
            WorktreeHead::Branch { branch } => format!("ref: refs/heads/{branch}\n"),
            WorktreeHead::Detached => format!("{base}\n"),
        };
        write_file_synced(&draft.join("HEAD"), head.as_bytes())?;
        write_file_synced(&draft.join("commondir"), b"../..\n")?;
        let dot_git = path.join(".git");
        write_file_synced(&draft.join("gitdir"), &[path_bytes(&dot_git), b"\n"].concat())?;
        self.inherit_worktree_settings(&draft)?;
        let admin = self.free_admin_dir(path)?;
        write_file_synced(&dot_git, &[b"gitdir: ", path_bytes(&admin), b"\n"].concat())?;
        fs::rename(&draft, &admin).with_path("create", &admin)
    }

    /// For repositories whose refs are not files: how a HEAD is written there is git's secret.
    fn add_worktree_by_git(&self, path: &Path, spot: WorktreeHead<'_>, base: &Oid) -> Result<()> {
        self.retry_past_half_made_worktrees(|| {
            let git = self.git().args(["worktree", "add", "--quiet", "--no-checkout", "--force"]);
            let (git, start) = match spot {
                // The branch is where it belongs already, and what it held is kept.
                WorktreeHead::Branch { branch } => (git, branch),
                WorktreeHead::Detached => (git.arg("--detach"), base.as_str()),
            };
            git.arg("--").arg(path).arg(start).run().map(drop)
        })
    }

    /// Where the admin folder of `path` goes. The beginning of the name keeps git, which names them
    /// after the folder, from choosing the same.
    fn free_admin_dir(&self, path: &Path) -> Result<PathBuf> {
        let all = self.common_dir().join("worktrees");
        fs::create_dir_all(&all).with_path("create", &all)?;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = name.chars().take(40).map(plain).collect();
        Ok(all.join(format!("{ADMIN_NAME_PREFIX}{name}-{}", files::unique_name())))
    }

    /// A repository with settings per worktree (a sparse checkout) hands the main one's on.
    fn inherit_worktree_settings(&self, draft: &Path) -> Result<()> {
        for name in ["config.worktree", "info/sparse-checkout"] {
            let (from, to) = (self.common_dir().join(name), draft.join(name));
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap_or(draft)).with_path("create", &to)?;
                fs::copy(&from, &to).with_path("copy", &from)?;
            }
        }
        let config = draft.join("config.worktree");
        if config.is_file() {
            for key in ["core.bare", "core.worktree"] {
                // Exit code 5 is documented as "there was none".
                let git = self.git().args(["config", "--file"]).arg(&config);
                git.args(["--unset-all", key]).accept_exit_codes(&[5]).run()?;
            }
        }
        Ok(())
    }

    /// Asks something that makes git look through all worktrees. One that is just being made by
    /// somebody else is waited for; one that a killed git left is taken away, or it would be in the
    /// way for ever.
    fn retry_past_half_made_worktrees<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let deadline = Instant::now() + HALF_MADE_AGE * 2;
        loop {
            match ask() {
                Err(GitError::Failed { stderr, .. })
                    if stderr.contains("failed to read")
                        && stderr.contains("worktrees")
                        && Instant::now() < deadline => {}
                other => return other,
            }
            self.drop_dead_admin_dirs()?;
            std::thread::sleep(STUMBLE_PAUSE);
        }
    }

    /// Takes away what killed gits left of worktrees they had just begun, waiting for young ones.
    pub(super) fn sweep_half_made_worktrees(&self) -> Result<()> {
        let deadline = Instant::now() + HALF_MADE_AGE * 2;
        while self.drop_dead_admin_dirs()? && Instant::now() < deadline {
            std::thread::sleep(STUMBLE_PAUSE);
        }
        Ok(())
    }

    /// Drops admin folders that have no life in them; says whether there are some that may.
    fn drop_dead_admin_dirs(&self) -> Result<bool> {
        let mut young = false;
        for admin in list_folder(&self.common_dir().join("worktrees"))? {
            let blank = |name| fs::metadata(admin.join(name)).map_or(true, |meta| meta.len() == 0);
            let begun = is_half_made_admin_dir(&admin) || blank("locked") && blank("HEAD");
            if !begun || !blank("commondir") {
                continue;
            }
            let age = fs::metadata(&admin)
                .and_then(|meta| meta.modified())
                .map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
            match age {
                Ok(age) if age >= HALF_MADE_AGE => self.remove_admin_dirs(&[admin])?,
                Ok(_) => young = true,
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error).with_path("look at", &admin),
            }
        }
        Ok(young)
    }

    /// At our own path nobody else makes worktrees: a half-made one is a dead one.
    fn clear_half_made_worktree(&self, path: &Path, trash: &Path) -> Result<()> {
        let admins = self.list_own_admin_dirs(path)?;
        if admins.iter().any(|admin| is_half_made_admin_dir(admin)) {
            self.move_worktree_to_trash(path, &admins, trash)?;
            self.remove_admin_dirs(&admins)?;
        }
        Ok(())
    }

    /// Brings index and files to where HEAD is.
    fn populate_worktree(
        &self,
        admin: &Path,
        path: &Path,
        spot: WorktreeHead<'_>,
        base: &Oid,
    ) -> Result<()> {
        let locked = admin.join("locked");
        fs::write(&locked, LOCKED_BY_US).with_path("write", &locked)?;
        self.free_packed_refs_lock()?;
        self.git_in_worktree(admin, path)
            .args(["reset", "--quiet", "--hard"])
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        self.verify_worktree(admin, path, spot, base)
    }

    fn recycle_worktree(
        &self,
        path: &Path,
        admin: &Path,
        spot: WorktreeHead<'_>,
        base: &Oid,
    ) -> Result<()> {
        remove_locks_in(admin, &mut Vec::new())?;
        for name in UNFINISHED.iter().chain(UNFINISHED_REST) {
            let file = admin.join(name);
            files::remove_all(&file).with_path("remove", &file)?;
        }
        if self.index_hides_changes(admin, path, None)? {
            let index = admin.join("index");
            files::remove_all(&index).with_path("remove", &index)?;
        }
        // Not by `checkout -B`: that looks through all worktrees, and see `add`.
        let git = self.git_in_worktree(admin, path);
        let git =
            match spot {
                WorktreeHead::Branch { branch } => {
                    git.args(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")])
                }
                WorktreeHead::Detached => git
                    .args(["update-ref", "-m", "mainstem: prepare"])
                    .args(["--no-deref", "HEAD", base.as_str()]),
            };
        git.run()?;
        self.populate_worktree(admin, path, spot, base)?;
        self.git_in_worktree(admin, path)
            .args(["clean", "--quiet", "-d", "--force", "--force"])
            .timeout(TIMEOUT_CHECKOUT)
            .run()
            .map(drop)
    }

    fn verify_worktree(
        &self,
        admin: &Path,
        path: &Path,
        spot: WorktreeHead<'_>,
        base: &Oid,
    ) -> Result<()> {
        let head = self.find_object("HEAD^{commit}", self.git_in_worktree(admin, path))?;
        let branch = self.read_head_branch(admin)?;
        let wanted = match spot {
            WorktreeHead::Branch { branch } => Some(branch),
            WorktreeHead::Detached => None,
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
        let mut git = self.git_in_worktree(git_dir, worktree).args(["ls-files", "-v", "-z"]);
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
            super::split_nul(&answer.stdout).any(|e| e.first().is_some_and(u8::is_ascii_lowercase));
        let skipped = super::split_nul(&answer.stdout).any(|entry| entry.first() == Some(&b'S'));
        if assumed || !skipped {
            return Ok(assumed);
        }
        // Skipping is what a sparse checkout is made of.
        Ok(!self.is_sparse_worktree(git_dir, worktree)?)
    }

    /// Whether a worktree shows only some of its files. Each may have its own setting.
    pub(super) fn is_sparse_worktree(&self, git_dir: &Path, worktree: &Path) -> Result<bool> {
        // Exit code 1 is documented as "no such key".
        let sparse = self
            .git_in_worktree(git_dir, worktree)
            .args(["config", "--type=bool", "--get", "core.sparseCheckout"])
            .accept_exit_codes(&[1])
            .run()?;
        Ok(sparse.single_line()? == "true")
    }

    /// Like [`Self::find_sound_admin_dir`], but repairs a missing `.git` file, the one thing agents delete.
    fn find_recyclable_admin_dir(&self, path: &Path) -> Result<Option<PathBuf>> {
        let dot_git = path.join(".git");
        let gone = fs::symlink_metadata(&dot_git).is_err_and(|error| is_not_found(&error));
        let admins = self.list_own_admin_dirs(path)?;
        if let ([admin], true, true) = (admins.as_slice(), gone, is_real_folder(path))
            && has_valid_head(admin)
            && !is_half_made_admin_dir(admin)
            && admin.join("index").is_file()
        {
            let mut text = b"gitdir: ".to_vec();
            text.extend_from_slice(path_bytes(admin));
            text.push(b'\n');
            fs::write(&dot_git, text).with_path("write", &dot_git)?;
        }
        self.find_sound_admin_dir(path)
    }

    /// The admin folder of `path` if both halves point at each other and nothing is half-made.
    fn find_sound_admin_dir(&self, path: &Path) -> Result<Option<PathBuf>> {
        let path = &resolve_parent_links(path);
        let admins = self.list_own_admin_dirs(path)?;
        let Some(target) = read_dot_git_target(path).filter(|_| is_real_folder(path)) else {
            return Ok(None);
        };
        let mut sound = admins.iter().filter(|admin| {
            resolve_path(&target) == **admin
                && has_valid_head(admin)
                && !is_half_made_admin_dir(admin)
                && files::read_regular_file(&admin.join("commondir"), HEAD_BYTES).is_ok_and(
                    |bytes| {
                        resolve_path(&admin.join(path_from_bytes(bytes.trim_ascii_end())))
                            == self.common_dir()
                    },
                )
        });
        Ok(sound.next().cloned().filter(|_| admins.len() == 1))
    }

    pub(super) fn populate_submodules(&self, path: &Path, base: &Oid) -> Result<PreparedWorktree> {
        let mut prepared = PreparedWorktree::default();
        let modules = self.common_dir().join("modules");
        let listed =
            self.git().args(["ls-tree", "-z", base.as_str(), "--", ".gitmodules"]).run()?;
        if listed.stdout.is_empty() || !modules.is_dir() {
            return Ok(prepared);
        }
        let path = resolve_path(path);
        let file = path.join(".gitmodules");
        let keys = GitCommand::new(&path)
            .env("GIT_DIR", self.common_dir())
            .args(["config", "-z", "--file"])
            .arg(&file)
            .args(["--get-regexp", r"^submodule\..*\.path$"])
            .accept_exit_codes(&[1])
            .run()?;
        for entry in super::split_nul(&keys.stdout) {
            let text = lossy_string(entry);
            let Some((key, place)) = text.split_once('\n') else { continue };
            let name = key.trim_start_matches("submodule.").trim_end_matches(".path");
            let source = modules.join(name);
            if !source.join("HEAD").is_file() {
                continue;
            }
            // Cloned from the copy the user already has: no network, and nothing is written to the
            // shared configuration, because the address is given here.
            let update = |more: &[&str]| {
                GitCommand::new(&path)
                    .config_setting("protocol.file.allow=always")
                    .config_setting(format!("submodule.{name}.url={}", source.display()))
                    .config_setting(format!("submodule.{name}.active=true"))
                    .env("GIT_ALLOW_PROTOCOL", "file")
                    .args(["submodule", "--quiet", "update", "--init", "--force"])
                    .args(more)
                    .arg("--")
                    .arg(place)
                    .timeout(TIMEOUT_CHECKOUT)
                    .run()
            };
            let filled = update(&[]);
            prepared.submodule_incomplete |= filled.is_err();
            // Those inside it may have to come over a network.
            if let Err(error) = filled.and_then(|_| update(&["--recursive"])) {
                prepared.notes.push(format!("cannot check out submodule {place}: {error}"));
            }
        }
        Ok(prepared)
    }
}

/// After a power loss these must not be empty: an empty `commondir` breaks everybody's git.
pub(super) fn write_file_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().with_path("write", path)
}
