//! Asks git, and the few files git keeps, to do one thing, and reports honestly what happened.
//!
//! The only place that runs git. Knows no tasks, no runs, no agents and no policy: which branch is
//! the target, what a snapshot is for and when to retry is decided elsewhere. Absence is always
//! proven by what git prints, never concluded from a failing command.

mod added_lines;
mod child_io;
mod repo_init;
mod tree_files;
mod diff_stats;
mod credentials;
mod commit_signing;
mod indexed_worktree;
mod error;
mod distrusted_filters;
mod checkout_update;
mod file_times;
mod empty_files;
mod hooks;
mod hygiene;
mod import;
mod worktree_include;
mod nested_repos;
mod kept_refs;
mod landing;
mod merge_worktree;
mod object_proxy;
mod tree_links;
mod stale_locks;
mod loose_objects;
mod checkout_repair;
mod merge;
mod owned_branches;
mod pack_writer;
mod passing;
mod worktree_ownership;
mod merge_probe;
mod refs;
mod remote;
mod blob_notes;
mod command;
mod history_search;
mod agent_git_dir;
mod snapshot;
mod staging;
mod tracked_files;
mod unstored_files;
mod index_cache;
mod worktree;
mod user_files;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mainstem_core::id::Oid;

pub use added_lines::AddedLineCallback;
pub use blob_notes::{BlobNote, GitTreeEntry};
pub use checkout_update::{CheckoutReadiness, CheckoutUpdate, LockedCheckouts};
pub use commit_signing::NewCommit;
pub use credentials::{GitCredential, GitCredentials};
pub use diff_stats::{DiffSize, DiffStats, FileChange};
pub use error::GitError;
pub use hygiene::HygieneFlaw;
pub use landing::GitLanding;
pub use merge::{GitIndexStage, GitMergeOutcome, GitReplayOutcome};
pub use merge_probe::MergeProbe;
pub use owned_branches::BranchDeletion;
pub use refs::RefUpdateOutcome;
pub use remote::{BranchPublishOutcome, BranchPushOutcome, GitRemote};
pub use snapshot::WorktreeSnapshot;
pub use staging::WorktreeLeftovers;
pub use stale_locks::LockSweepReport;
pub use tree_files::{FileStatusChange, Followed, TreeFile};
pub use unstored_files::UnstoredFile;
pub use user_files::BlockedCheckout;
pub use worktree::{PreparedWorktree, WorktreeEntry};

use command::{GitCommand, GitOutput};
use error::{IoErrorContext, MIN_MAJOR, MIN_MINOR, Result};

/// A name and an address as commits carry them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitIdentity {
    pub name: String,
    pub email: String,
}

impl GitIdentity {
    /// Who commits where the user never told git a name.
    pub fn fallback() -> Self {
        Self { name: "Mainstem".to_owned(), email: "mainstem@localhost".to_owned() }
    }
}

/// One repository: its objects and refs, and the way to its worktrees. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    inner: Arc<RepoInner>,
}

#[derive(Debug)]
struct RepoInner {
    common_dir: PathBuf,
    toplevel: Option<PathBuf>,
    /// The checkout the user is in: the main worktree or a linked one.
    checkout: Option<PathBuf>,
    /// The git dir of the checkout the user is in: the common dir or a worktree's admin dir.
    here: PathBuf,
    version: (u32, u32),
    initial_config: distrusted_filters::InitialGitConfig,
    /// Private indexes that stay between snapshots.
    index_cache: index_cache::WorktreeIndexCache,
    /// Asked for at every commit; whoever changes it starts a new engine to see it.
    identity: OnceLock<GitIdentity>,
    tree_ids: refs::TreeIdCache,
    /// Files larger than this are not given to git; 0 is no limit.
    file_limit: AtomicU64,
    /// The settings that agents may see, and the file they were made of.
    agent_settings: credentials::AgentGitSettings,
    credentials: OnceLock<Vec<GitCredential>>,
}

impl Repo {
    /// Finds the repository a folder belongs to, and checks that git is good enough.
    pub fn discover(dir: &Path) -> Result<Self> {
        if !dir.is_dir() {
            return Err(GitError::NotARepo { dir: dir.to_path_buf() });
        }
        let version = read_git_version(dir)?;
        let common_dir = match rev_parse_path(dir, "--git-common-dir") {
            Err(GitError::Failed { stderr, .. }) if stderr.contains("not a git repository") => {
                return Err(GitError::NotARepo { dir: dir.to_path_buf() });
            }
            Err(GitError::Failed { stderr, .. })
                if stderr.contains("unknown repository extension") =>
            {
                let extensions = stderr.lines().skip(1).map(str::trim).collect::<Vec<_>>();
                let (major, minor) = version;
                return Err(GitError::NewerRepository {
                    git: format!("{major}.{minor}"),
                    extensions: extensions.join(", "),
                });
            }
            other => other?,
        };
        let common_dir = fs::canonicalize(&common_dir).with_path("find", &common_dir)?;
        let here = rev_parse_path(dir, "--absolute-git-dir")?;
        let here = fs::canonicalize(&here).with_path("find", &here)?;
        let toplevel = find_main_toplevel(dir, &common_dir, &here)?;
        let checkout = match linked_toplevel(dir, &common_dir, &here)? {
            Some(linked) => Some(linked),
            None => toplevel.clone(),
        };
        let opened_with = distrusted_filters::InitialGitConfig::read(&common_dir);
        Ok(Self {
            inner: Arc::new(RepoInner {
                common_dir,
                toplevel,
                checkout,
                here,
                version,
                identity: OnceLock::new(),
                tree_ids: refs::TreeIdCache::default(),
                initial_config: opened_with,
                index_cache: index_cache::WorktreeIndexCache::default(),
                file_limit: AtomicU64::new(0),
                agent_settings: credentials::AgentGitSettings::default(),
                credentials: OnceLock::new(),
            }),
        })
    }

    /// The main worktree if there is one, else the git dir.
    pub fn dir(&self) -> &Path {
        self.toplevel().unwrap_or_else(|| self.common_dir())
    }

    /// Refs are kept in tables that all worktrees share, not in files.
    pub fn has_reftable(&self) -> bool {
        self.common_dir().join("reftable").is_dir()
    }

    /// From now on no file larger than this is given to git; 0 is no limit.
    pub fn set_file_limit(&self, bytes: u64) {
        self.inner.file_limit.store(bytes, Ordering::Relaxed);
    }

    fn file_limit(&self) -> u64 {
        self.inner.file_limit.load(Ordering::Relaxed)
    }

    /// The git that is used: major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.inner.version
    }

    /// The git dir all worktrees share; absolute and canonical.
    pub fn common_dir(&self) -> &Path {
        &self.inner.common_dir
    }

    /// The main worktree, also when asked from a linked one; `None` for a bare repository.
    pub fn toplevel(&self) -> Option<&Path> {
        self.inner.toplevel.as_deref()
    }

    /// The checkout the user is in, linked or not; the main worktree where they are in none.
    pub fn checkout(&self) -> Option<&Path> {
        self.inner.checkout.as_deref()
    }

    /// The git dir of the checkout the user is in.
    pub(super) fn checkout_git_dir(&self) -> &Path {
        &self.inner.here
    }

    /// The branch of the checkout the user is in; `None` if detached.
    pub fn current_branch(&self) -> Result<Option<String>> {
        self.read_head_branch(&self.inner.here)
    }

    /// The branch work should land on unless somebody says otherwise.
    pub fn default_branch(&self) -> Result<String> {
        if let Some(branch) = self.read_head_branch(self.common_dir())? {
            return Ok(branch);
        }
        let origin = self.read_symbolic_ref(self.common_dir(), "refs/remotes/origin/HEAD")?;
        if let Some(branch) = origin.as_deref().and_then(|r| r.strip_prefix("refs/remotes/origin/"))
        {
            return Ok(branch.to_owned());
        }
        for branch in ["main", "master"] {
            if self.read_ref(&format!("refs/heads/{branch}"))?.is_some() {
                return Ok(branch.to_owned());
            }
        }
        Ok(self.read_config("init.defaultBranch")?.unwrap_or_else(|| "main".to_owned()))
    }

    /// Who the user is, by git's configuration; [`GitIdentity::fallback`] where it is silent.
    pub fn identity(&self) -> Result<GitIdentity> {
        if let Some(known) = self.inner.identity.get() {
            return Ok(known.clone());
        }
        let ours = GitIdentity::fallback();
        let found = match (self.read_config("user.name")?, self.read_config("user.email")?) {
            (Some(name), Some(email)) => GitIdentity { name, email },
            (Some(name), None) => GitIdentity { name, email: ours.email },
            (None, _) => ours,
        };
        Ok(self.inner.identity.get_or_init(|| found).clone())
    }

    /// A command on the shared repository. It sees no working tree and no index of anybody.
    fn git(&self) -> GitCommand {
        GitCommand::new(self.common_dir())
            .env("GIT_DIR", self.common_dir())
            .hold_live_file(self.live_file_path())
    }

    /// A command on one checkout. Everything is named, nothing is discovered: an agent may have
    /// rewritten the `.git` file and what lies behind it.
    fn git_in_worktree(&self, git_dir: &Path, worktree: &Path) -> GitCommand {
        GitCommand::new(worktree)
            .env("GIT_DIR", git_dir)
            .env("GIT_COMMON_DIR", self.common_dir())
            .env("GIT_WORK_TREE", worktree)
            .hold_live_file(self.live_file_path())
    }

    fn live_file_path(&self) -> PathBuf {
        self.common_dir().join("mainstem/git.live")
    }

    /// A fresh name for a short-lived file on the repository's filesystem. The folder is made here
    /// and not earlier: looking at a repository leaves no trace in it.
    fn temp_path(&self, kind: &str) -> PathBuf {
        // Whoever writes the file will say what is wrong with the folder.
        let _ = self.create_temp_dir();
        self.temp_dir().join(format!("{kind}-{}", crate::files::unique_name()))
    }

    fn temp_dir(&self) -> PathBuf {
        self.common_dir().join("mainstem/tmp")
    }

    /// Makes that folder, but never the repository around it: that may have been moved away meanwhile.
    fn create_temp_dir(&self) -> Result<()> {
        for folder in [self.common_dir().join("mainstem"), self.temp_dir()] {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error).with_path("create", &folder);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_git_at_least(&self, major: u32, minor: u32) -> bool {
        self.inner.version >= (major, minor)
    }

    fn read_config(&self, key: &str) -> Result<Option<String>> {
        // Exit code 1 is documented as "no such key"; everything else is an error.
        let answer = self.git().args(["config", "--get", key]).accept_exit_codes(&[1]).run()?;
        if answer.code == 1 {
            return Ok(None);
        }
        let value = answer.single_line()?.trim();
        Ok((!value.is_empty()).then(|| value.to_owned()))
    }

    fn read_head_branch(&self, git_dir: &Path) -> Result<Option<String>> {
        let target = self.read_symbolic_ref(git_dir, "HEAD")?;
        Ok(target.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned)))
    }

    fn read_symbolic_ref(&self, git_dir: &Path, name: &str) -> Result<Option<String>> {
        if let Some(plain) = read_plain_head(git_dir, name) {
            return Ok(Some(plain));
        }
        // With --quiet, exit code 1 is documented as "not a symbolic ref".
        let answer = GitCommand::new(git_dir)
            .env("GIT_DIR", git_dir)
            .env("GIT_COMMON_DIR", self.common_dir())
            .args(["symbolic-ref", "--quiet", name])
            .accept_exit_codes(&[1])
            .run()?;
        Ok(if answer.code == 0 { Some(answer.single_line()?.to_owned()) } else { None })
    }
}

/// A branch has a shorter name.
const HEAD_BYTES_MAX: u64 = 1024;

/// The branch in a plain HEAD file. Whatever else stands there is for git to say.
fn read_plain_head(git_dir: &Path, name: &str) -> Option<String> {
    if name != "HEAD" {
        return None;
    }
    let text =
        lossy_string(&crate::files::read_regular_file(&git_dir.join(name), HEAD_BYTES_MAX).ok()?);
    let target = text.strip_prefix("ref: ")?.strip_suffix('\n')?;
    // Where refs are no files, the file names none.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let usual = target.starts_with("refs/heads/") && target.chars().all(plain);
    (usual && !target.contains("/.")).then(|| target.to_owned())
}

fn read_git_version(dir: &Path) -> Result<(u32, u32)> {
    let answer = GitCommand::new(dir).arg("version").run()?;
    let text = answer.single_line()?;
    let version = parse_git_version(text).ok_or_else(|| answer.bad_output_error())?;
    if version < (MIN_MAJOR, MIN_MINOR) {
        let found = text.trim_start_matches("git version ").to_owned();
        return Err(GitError::GitTooOld { found });
    }
    Ok(version)
}

fn parse_git_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// One path by `rev-parse`. One per call, because a path may contain line ends.
fn rev_parse_path(dir: &Path, which: &str) -> Result<PathBuf> {
    let answer = GitCommand::new(dir).args(["rev-parse", "--path-format=absolute", which]).run()?;
    let bytes = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
    if bytes.is_empty() {
        return Err(answer.bad_output_error());
    }
    Ok(path_from_bytes(bytes))
}

/// Git only tells a checkout its own folder, so from a linked worktree the main one is derived.
fn find_main_toplevel(dir: &Path, common_dir: &Path, here: &Path) -> Result<Option<PathBuf>> {
    let git = |args: &[&str]| GitCommand::new(common_dir).env("GIT_DIR", common_dir).args(args);
    let bare =
        git(&["config", "--type=bool", "--get", "core.bare"]).accept_exit_codes(&[1]).run()?;
    if bare.single_line()? == "true" {
        return Ok(None);
    }
    if common_dir == here {
        let inside = GitCommand::new(dir).args(["rev-parse", "--is-inside-work-tree"]).run()?;
        if inside.single_line()? == "true" {
            let top = rev_parse_path(dir, "--show-toplevel")?;
            return Ok(Some(fs::canonicalize(&top).with_path("find", &top)?));
        }
    }
    let set = git(&["config", "--get", "core.worktree"]).accept_exit_codes(&[1]).run()?;
    let guess = if set.code == 0 {
        let bytes = set.stdout.strip_suffix(b"\n").unwrap_or(&set.stdout);
        common_dir.join(path_from_bytes(bytes))
    } else if common_dir.file_name() == Some(OsStr::new(".git")) {
        common_dir.join("..")
    } else {
        return Ok(None);
    };
    Ok(fs::canonicalize(guess).ok())
}

/// The folder of the linked worktree that a folder is in; none if it is in no linked one.
fn linked_toplevel(dir: &Path, common_dir: &Path, here: &Path) -> Result<Option<PathBuf>> {
    if common_dir == here {
        return Ok(None);
    }
    let inside = GitCommand::new(dir).args(["rev-parse", "--is-inside-work-tree"]).run()?;
    if inside.single_line()? != "true" {
        return Ok(None);
    }
    let top = rev_parse_path(dir, "--show-toplevel")?;
    Ok(Some(fs::canonicalize(&top).with_path("find", &top)?))
}

fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// The parts of a NUL-separated answer, without the empty rest after the last one.
fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&b| b == 0).filter(move |_| !bytes.is_empty())
}

fn lossy_string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The object id an answer consists of, or starts with.
fn parse_oid(text: &str, answer: &GitOutput) -> Result<Oid> {
    if is_oid(text) { Ok(Oid::new(text)) } else { Err(answer.bad_output_error()) }
}

/// `path` as git would name it: links resolved as far as it exists.
fn resolve_path(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            resolve_path(parent).join(name)
        }
        _ => path.to_path_buf(),
    }
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
