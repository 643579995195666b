//! What can go wrong when git is asked, told apart as far as a caller can act on it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why git, or a file git owns, did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No `git` on the PATH.
    #[error("git was not found on the PATH; install git {MIN_MAJOR}.{MIN_MINOR} or newer")]
    GitMissing,
    /// The git found is older than the oldest one that is tested.
    #[error(
        "git {found} is too old: Mainstem needs git {MIN_MAJOR}.{MIN_MINOR} or newer; update git, or put a newer one first on the PATH"
    )]
    GitTooOld {
        /// The version as git prints it.
        found: String,
    },
    /// The repository is in a format that this git cannot read.
    #[error("this repository uses {extensions}, which git {git} does not know")]
    NewerRepository {
        /// The version of the git that was found.
        git: String,
        /// What it does not know, as git names it.
        extensions: String,
    },
    /// The folder is in no repository.
    #[error("{} is not inside a git repository; run `git init` there first", dir.display())]
    NotARepo {
        /// The folder asked about.
        dir: PathBuf,
    },
    /// The operating system would not start or feed the process. Says nothing about the repository.
    #[error("could not run `{what}`: {source}")]
    Spawn {
        /// The command in short.
        what: String,
        source: io::Error,
    },
    /// git ran and refused or broke.
    #[error("`{what}` failed ({}): {stderr}", code.map_or_else(|| "killed".to_owned(), |c| format!("exit code {c}")))]
    Failed {
        /// The command in short.
        what: String,
        /// The exit code; `None` if a signal ended it.
        code: Option<i32>,
        stderr: String,
    },
    /// git did not end in time and was killed with its whole process group.
    #[error("`{what}` timed out after {}s", after.as_secs())]
    TimedOut {
        /// The command in short.
        what: String,
        /// The time it had.
        after: Duration,
    },
    /// More output than is kept in memory.
    #[error("`{what}` wrote more than {limit} bytes")]
    TooMuchOutput {
        /// The command in short.
        what: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// git said something that cannot be understood.
    #[error("unexpected output of `{what}`: {text}")]
    BadOutput {
        /// The command in short.
        what: String,
        /// The beginning of the answer.
        text: String,
    },
    /// The path must not be touched by us.
    #[error("{} cannot be used as a workspace: {why}", path.display())]
    NotOurs { path: PathBuf, why: String },
    /// The branch does not exist though the repository has commits.
    #[error(
        "no such branch: `{branch}`; create the branch with `git branch {branch}`, or use another one"
    )]
    NoBranch { branch: String },
    /// Git has no room for a branch `a/b` beside a branch `a`.
    #[error(
        "the branch `{branch}` prevents the creation of the branch `{wanted}`; rename `{branch}` with `git branch -m {branch} NEW`, or use another branch"
    )]
    NoBranchRoom {
        /// The branch that is there.
        branch: String,
        /// The one that was to be.
        wanted: String,
    },
    /// A file or folder resisted.
    #[error("could not {what} {}: {source}", path.display())]
    Files {
        /// What was tried, as a verb.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// The oldest git that the tests run with: that of Debian 12.
pub(super) const MIN_MAJOR: u32 = 2;
pub(super) const MIN_MINOR: u32 = 39;

/// Shorthand of this module.
pub(super) type Result<T> = std::result::Result<T, GitError>;

/// Adds what was tried, and where, to a file error.
pub(super) trait IoErrorContext<T> {
    fn with_path(self, what: &'static str, path: &std::path::Path) -> Result<T>;
}

impl<T> IoErrorContext<T> for io::Result<T> {
    fn with_path(self, what: &'static str, path: &std::path::Path) -> Result<T> {
        self.map_err(|source| GitError::Files { what, path: path.to_path_buf(), source })
    }
}
