//! Asks git, and the few files git keeps, to do one thing, and reports honestly what happened.
//!
//! The only place that runs git. Knows no tasks, no runs, no agents and no policy: which branch is
//! the target, what a snapshot is for and when to retry is decided elsewhere. Absence is always
//! proven by what git prints, never concluded from a failing command.

mod added;
mod attend;
mod birth;
mod browse;
mod changes;
mod credentials;
mod custom;
mod desk;
mod error;
mod filters;
mod follow;
mod fresh;
mod heal;
mod hooks;
mod hygiene;
mod import;
mod include;
mod inside;
mod keep;
mod landing;
mod layout;
mod lend;
mod links;
mod locks;
mod loose;
mod mend;
mod merge;
mod owned;
mod pack;
mod place;
mod probe;
mod refs;
mod remote;
mod resolved;
mod run;
mod search;
mod seclude;
mod snapshot;
mod stage;
mod tracked;
mod unstored;
mod warm;
mod worktree;
mod yours;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mainstem_core::id::Oid;

pub use added::Seen;
pub use browse::{Blob, Moved};
pub use changes::{Changes, FileChange, Size};
pub use credentials::{Credential, Credentials};
pub use custom::NewCommit;
pub use error::GitError;
pub use follow::{Follow, Followers, Ready};
pub use hygiene::Flaw;
pub use landing::Landing;
pub use locks::Swept;
pub use merge::{Merge, Replay, Stage};
pub use owned::Dropped;
pub use probe::Probe;
pub use refs::Cas;
pub use remote::{Published, Pushed, Remote};
pub use resolved::{Entry, Note};
pub use snapshot::Snapshot;
pub use stage::Leftovers;
pub use unstored::Unstored;
pub use worktree::{Prepared, Worktree};
pub use yours::InTheWay;

use error::{MIN_MAJOR, MIN_MINOR, OnPath, Result};
use run::{Answer, Git};

/// A name and an address as commits carry them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
}

impl Identity {
    /// Who commits where the user never told git a name.
    pub fn ours() -> Self {
        Self { name: "Mainstem".to_owned(), email: "mainstem@localhost".to_owned() }
    }
}

/// One repository: its objects and refs, and the way to its worktrees. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    common_dir: PathBuf,
    toplevel: Option<PathBuf>,
    checkout: Option<PathBuf>,
    /// The git dir of the checkout the user is in: the common dir or a worktree's admin dir.
    here: PathBuf,
    version: (u32, u32),
    opened_with: filters::OpenedWith,
    /// Private indexes that stay between snapshots.
    shelf: warm::Shelf,
    /// Asked for at every commit; whoever changes it starts a new engine to see it.
    identity: OnceLock<Identity>,
    trees: refs::Trees,
    /// Files larger than this are not given to git; 0 is no limit.
    file_limit: AtomicU64,
    /// The settings that agents may see, and the file they were made of.
    for_agents: credentials::ForAgents,
    credentials: OnceLock<Vec<Credential>>,
}

impl Repo {
    /// Finds the repository a folder belongs to, and checks that git is good enough.
    pub fn discover(dir: &Path) -> Result<Self> {
        if !dir.is_dir() {
            return Err(GitError::NotARepo { dir: dir.to_path_buf() });
        }
        let version = version(dir)?;
        let common_dir = match path_of(dir, "--git-common-dir") {
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
        let common_dir = fs::canonicalize(&common_dir).on("find", &common_dir)?;
        let here = path_of(dir, "--absolute-git-dir")?;
        let here = fs::canonicalize(&here).on("find", &here)?;
        let toplevel = main_toplevel(dir, &common_dir, &here)?;
        let checkout = if here == common_dir { toplevel.clone() } else { linked_toplevel(dir)? };
        let opened_with = filters::OpenedWith::read(&common_dir);
        Ok(Self {
            inner: Arc::new(Inner {
                common_dir,
                toplevel,
                checkout,
                here,
                version,
                identity: OnceLock::new(),
                trees: refs::Trees::default(),
                opened_with,
                shelf: warm::Shelf::default(),
                file_limit: AtomicU64::new(0),
                for_agents: credentials::ForAgents::default(),
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

    /// The folder of the checkout the user is in, which may be a linked worktree.
    pub fn checkout(&self) -> Option<&Path> {
        self.inner.checkout.as_deref()
    }

    /// The branch of the checkout the user is in; `None` if detached.
    pub fn current_branch(&self) -> Result<Option<String>> {
        self.branch_of(&self.inner.here)
    }

    /// The branch work should land on unless somebody says otherwise.
    pub fn default_branch(&self) -> Result<String> {
        if let Some(branch) = self.branch_of(self.common_dir())? {
            return Ok(branch);
        }
        let origin = self.symbolic(self.common_dir(), "refs/remotes/origin/HEAD")?;
        if let Some(branch) = origin.as_deref().and_then(|r| r.strip_prefix("refs/remotes/origin/"))
        {
            return Ok(branch.to_owned());
        }
        for branch in ["main", "master"] {
            if self.read_ref(&format!("refs/heads/{branch}"))?.is_some() {
                return Ok(branch.to_owned());
            }
        }
        Ok(self.config("init.defaultBranch")?.unwrap_or_else(|| "main".to_owned()))
    }

    /// Who the user is, by git's configuration; [`Identity::ours`] where it is silent.
    pub fn identity(&self) -> Result<Identity> {
        if let Some(known) = self.inner.identity.get() {
            return Ok(known.clone());
        }
        let ours = Identity::ours();
        let found = match (self.config("user.name")?, self.config("user.email")?) {
            (Some(name), Some(email)) => Identity { name, email },
            (Some(name), None) => Identity { name, email: ours.email },
            (None, _) => ours,
        };
        Ok(self.inner.identity.get_or_init(|| found).clone())
    }

    /// A command on the shared repository. It sees no working tree and no index of anybody.
    fn git(&self) -> Git {
        Git::new(self.common_dir()).env("GIT_DIR", self.common_dir()).live_file(self.live_file())
    }

    /// A command on one checkout. Everything is named, nothing is discovered: an agent may have
    /// rewritten the `.git` file and what lies behind it.
    fn git_in(&self, git_dir: &Path, worktree: &Path) -> Git {
        Git::new(worktree)
            .env("GIT_DIR", git_dir)
            .env("GIT_COMMON_DIR", self.common_dir())
            .env("GIT_WORK_TREE", worktree)
            .live_file(self.live_file())
    }

    fn live_file(&self) -> PathBuf {
        self.common_dir().join("mainstem/git.live")
    }

    /// A fresh name for a short-lived file on the repository's filesystem. The folder is made here
    /// and not earlier: looking at a repository leaves no trace in it.
    fn tmp(&self, kind: &str) -> PathBuf {
        // Whoever writes the file will say what is wrong with the folder.
        let _ = self.make_tmp_dir();
        self.tmp_dir().join(format!("{kind}-{}", crate::files::unique()))
    }

    fn tmp_dir(&self) -> PathBuf {
        self.common_dir().join("mainstem/tmp")
    }

    /// Makes that folder, but never the repository around it: that may have been moved away meanwhile.
    fn make_tmp_dir(&self) -> Result<()> {
        for folder in [self.common_dir().join("mainstem"), self.tmp_dir()] {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error).on("create", &folder);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn at_least(&self, major: u32, minor: u32) -> bool {
        self.inner.version >= (major, minor)
    }

    fn config(&self, key: &str) -> Result<Option<String>> {
        // Exit code 1 is documented as "no such key"; everything else is an error.
        let answer = self.git().args(["config", "--get", key]).accept(&[1]).run()?;
        if answer.code == 1 {
            return Ok(None);
        }
        let value = answer.line()?.trim();
        Ok((!value.is_empty()).then(|| value.to_owned()))
    }

    fn branch_of(&self, git_dir: &Path) -> Result<Option<String>> {
        let target = self.symbolic(git_dir, "HEAD")?;
        Ok(target.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned)))
    }

    fn symbolic(&self, git_dir: &Path, name: &str) -> Result<Option<String>> {
        if let Some(plain) = plain_head(git_dir, name) {
            return Ok(Some(plain));
        }
        // With --quiet, exit code 1 is documented as "not a symbolic ref".
        let answer = Git::new(git_dir)
            .env("GIT_DIR", git_dir)
            .env("GIT_COMMON_DIR", self.common_dir())
            .args(["symbolic-ref", "--quiet", name])
            .accept(&[1])
            .run()?;
        Ok(if answer.code == 0 { Some(answer.line()?.to_owned()) } else { None })
    }
}

/// A branch has a shorter name.
const HEAD_BYTES_MAX: u64 = 1024;

/// The branch in a plain HEAD file. Whatever else stands there is for git to say.
fn plain_head(git_dir: &Path, name: &str) -> Option<String> {
    if name != "HEAD" {
        return None;
    }
    let text = lossy(&crate::files::read_plain(&git_dir.join(name), HEAD_BYTES_MAX).ok()?);
    let target = text.strip_prefix("ref: ")?.strip_suffix('\n')?;
    // Where refs are no files, the file names none.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let usual = target.starts_with("refs/heads/") && target.chars().all(plain);
    (usual && !target.contains("/.")).then(|| target.to_owned())
}

fn version(dir: &Path) -> Result<(u32, u32)> {
    let answer = Git::new(dir).arg("version").run()?;
    let text = answer.line()?;
    let version = parse_version(text).ok_or_else(|| answer.bad())?;
    if version < (MIN_MAJOR, MIN_MINOR) {
        let found = text.trim_start_matches("git version ").to_owned();
        return Err(GitError::GitTooOld { found });
    }
    Ok(version)
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("git version ")?.split(['.', ' ', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// One path by `rev-parse`. One per call, because a path may contain line ends.
fn path_of(dir: &Path, which: &str) -> Result<PathBuf> {
    let answer = Git::new(dir).args(["rev-parse", "--path-format=absolute", which]).run()?;
    let bytes = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
    if bytes.is_empty() {
        return Err(answer.bad());
    }
    Ok(path_from(bytes))
}

/// The folder of the linked worktree around `dir`; none inside its git folder.
fn linked_toplevel(dir: &Path) -> Result<Option<PathBuf>> {
    let inside = Git::new(dir).args(["rev-parse", "--is-inside-work-tree"]).run()?;
    if inside.line()? != "true" {
        return Ok(None);
    }
    let top = path_of(dir, "--show-toplevel")?;
    Ok(Some(fs::canonicalize(&top).on("find", &top)?))
}

/// Git only tells a checkout its own folder, so from a linked worktree the main one is derived.
fn main_toplevel(dir: &Path, common_dir: &Path, here: &Path) -> Result<Option<PathBuf>> {
    let git = |args: &[&str]| Git::new(common_dir).env("GIT_DIR", common_dir).args(args);
    let bare = git(&["config", "--type=bool", "--get", "core.bare"]).accept(&[1]).run()?;
    if bare.line()? == "true" {
        return Ok(None);
    }
    if common_dir == here {
        let inside = Git::new(dir).args(["rev-parse", "--is-inside-work-tree"]).run()?;
        if inside.line()? == "true" {
            let top = path_of(dir, "--show-toplevel")?;
            return Ok(Some(fs::canonicalize(&top).on("find", &top)?));
        }
    }
    let set = git(&["config", "--get", "core.worktree"]).accept(&[1]).run()?;
    let guess = if set.code == 0 {
        let bytes = set.stdout.strip_suffix(b"\n").unwrap_or(&set.stdout);
        common_dir.join(path_from(bytes))
    } else if common_dir.file_name() == Some(OsStr::new(".git")) {
        common_dir.join("..")
    } else {
        return Ok(None);
    };
    Ok(fs::canonicalize(guess).ok())
}

fn path_from(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// The parts of a NUL-separated answer, without the empty rest after the last one.
fn parts(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&b| b == 0).filter(move |_| !bytes.is_empty())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_oid(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The object id an answer consists of, or starts with.
fn oid(text: &str, answer: &Answer) -> Result<Oid> {
    if is_oid(text) { Ok(Oid::new(text)) } else { Err(answer.bad()) }
}

/// `path` as git would name it: links resolved as far as it exists.
fn settled(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => settled(parent).join(name),
        _ => path.to_path_buf(),
    }
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
