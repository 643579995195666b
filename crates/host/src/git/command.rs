//! Runs one git process: hardened, bounded in time and output, in its own process group.
//!
//! Knows nothing of what the command means. Every git process of the product starts here.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::child_io::wait_for_git;
use super::error::{GitError, Result};

/// Most commands end in milliseconds; a hanging filter or network share must not hold us for ever.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Writing out a very large tree on a slow disk.
pub(super) const TIMEOUT_CHECKOUT: Duration = Duration::from_secs(600);
/// Output kept per stream. Larger answers are errors, not truncated truths.
pub(super) const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// How often to try for the live file's lock, 5 ms apart.
const HOLD_TRIES: u32 = 40;
/// Error text quoted in messages.
const STDERR_SHOWN_MAX: usize = 4096;

/// Settings that keep the user's and agents' configuration from running code or losing data here.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.fsync=committed",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.splitIndex=false",
    "core.packedRefsTimeout=10000",
    "core.filesRefLockTimeout=5000",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "advice.detachedHead=false",
    "advice.addEmbeddedRepo=false",
    "color.ui=false",
    "log.showSignature=false",
    "log.mailmap=false",
    "trailer.separators=:",
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "worktree.useRelativePaths=false",
    "worktree.guessRemote=false",
    // Newer git also takes hooks from configuration, which hooksPath does not switch off.
    "hook.reference-transaction.enabled=false",
    "hook.post-checkout.enabled=false",
    "hook.post-index-change.enabled=false",
];

/// The environment of every git process, after all inherited `GIT_*` were removed.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_PAGER", "cat"),
    ("GIT_ASKPASS", "true"),
    ("GIT_ADVICE", "0"),
    ("SSH_ASKPASS", "true"),
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("LC_ALL", "C"),
    // Reflogs need a name even where the user never set one.
    ("GIT_AUTHOR_NAME", "Mainstem"),
    ("GIT_AUTHOR_EMAIL", "mainstem@localhost"),
    ("GIT_COMMITTER_NAME", "Mainstem"),
    ("GIT_COMMITTER_EMAIL", "mainstem@localhost"),
];

/// Takes what a git process prints, as it comes.
pub(super) type GitOutputSink = Box<dyn FnMut(&[u8]) + Send>;

/// What a git process answered.
#[derive(Debug)]
pub(super) struct GitOutput {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) what: String,
}

impl GitOutput {
    /// The answer as text with its one line end removed.
    pub(super) fn single_line(&self) -> Result<&str> {
        let text = std::str::from_utf8(&self.stdout).map_err(|_| self.bad_output_error())?;
        Ok(text.strip_suffix('\n').unwrap_or(text))
    }

    /// The error for an answer that makes no sense.
    pub(super) fn bad_output_error(&self) -> GitError {
        let text = String::from_utf8_lossy(&self.stdout).chars().take(200).collect();
        GitError::BadOutput { what: self.what.clone(), text }
    }

    /// The error for an exit code that means failure.
    pub(super) fn failure_error(&self) -> GitError {
        GitError::Failed {
            what: self.what.clone(),
            code: Some(self.code),
            stderr: truncate_stderr(&self.stderr),
        }
    }
}

/// One git command being put together.
#[derive(Debug)]
pub(super) struct GitCommand {
    cwd: PathBuf,
    settings: Vec<String>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    accepted_exit_codes: Vec<i32>,
    timeout: Duration,
    live_file: Option<PathBuf>,
}

impl GitCommand {
    /// A command that runs in `cwd`.
    pub(super) fn new(cwd: &Path) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            settings: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            input: None,
            accepted_exit_codes: vec![0],
            timeout: TIMEOUT,
            live_file: None,
        }
    }

    pub(super) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(super) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    pub(super) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.into(), value.as_ref().to_owned()));
        self
    }

    pub(super) fn config_setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    pub(super) fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Exit codes besides 0 that are answers rather than failures.
    pub(super) fn accept_exit_codes(mut self, codes: &[i32]) -> Self {
        self.accepted_exit_codes.extend_from_slice(codes);
        self
    }

    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A file the process keeps locked (shared) while it lives; see `locks`.
    pub(super) fn hold_live_file(mut self, path: PathBuf) -> Self {
        self.live_file = Some(path);
        self
    }

    /// Runs the command to its end.
    pub(super) fn run(self) -> Result<GitOutput> {
        self.run_with_sink(None)
    }

    /// Runs the command to its end; what it prints goes to `sink` piece by piece and is not kept.
    /// Whether all of it arrived is for the sink to know.
    pub(super) fn run_into_sink(self, sink: GitOutputSink) -> Result<GitOutput> {
        self.run_with_sink(Some(sink))
    }

    fn run_with_sink(self, sink: Option<GitOutputSink>) -> Result<GitOutput> {
        let what = self.describe();
        let failed = |source| GitError::Spawn { what: what.clone(), source };
        let operation = crate::fault::begin_operation(|| what.clone()).map_err(failed)?;
        let mut command = self.build_command();
        let child = command.spawn().map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound && self.cwd.is_dir() {
                return GitError::GitMissing;
            }
            GitError::Spawn { what: what.clone(), source }
        })?;
        // The command holds our copy of the live file; the child has its own now.
        drop(command);
        let answer = wait_for_git(child, self.input, sink, self.timeout, &what)?;
        operation.finish().map_err(failed)?;
        if self.accepted_exit_codes.contains(&answer.code) {
            Ok(answer)
        } else {
            Err(answer.failure_error())
        }
    }

    fn describe(&self) -> String {
        let mut what = String::from("git");
        for arg in self.args.iter().take(3) {
            what.push(' ');
            what.extend(arg.to_string_lossy().chars().take(60));
        }
        what
    }

    fn build_command(&self) -> Command {
        let mut command = Command::new(find_git_program());
        command.current_dir(&self.cwd).process_group(0);
        for (key, _) in std::env::vars_os() {
            if key.as_encoded_bytes().starts_with(b"GIT_") {
                command.env_remove(key);
            }
        }
        command.envs(ENVIRONMENT.iter().copied()).envs(self.env.iter().map(|(k, v)| (k, v)));
        for setting in SETTINGS.iter().copied().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.arg("--no-pager").args(&self.args);
        let stdin = match (&self.input, &self.live_file) {
            (Some(_), _) => Stdio::piped(),
            (None, Some(path)) => open_live_file(path).map_or_else(Stdio::null, Stdio::from),
            (None, None) => Stdio::null(),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Where git is. Looked up once: the search through PATH would be repeated for every process.
fn find_git_program() -> &'static OsStr {
    static PROGRAM: OnceLock<OsString> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|file| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::metadata(file)
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        });
        found
            .filter(|file| file.is_absolute())
            .map_or_else(|| "git".into(), PathBuf::into_os_string)
    })
}

/// Opens the live file with a shared lock. The child inherits it as its (empty) standard input, so
/// the lock lasts as long as the child, even if we are killed. A read-only repository has none.
fn open_live_file(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).ok()?;
    for _ in 0..HOLD_TRIES {
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok() {
            return Some(file);
        }
        // A sweep has it for a moment. Never wait for good: an agent could hold it out of malice.
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

pub(super) fn truncate_stderr(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        return "no error message".to_owned();
    }
    text.chars().take(STDERR_SHOWN_MAX).collect()
}
