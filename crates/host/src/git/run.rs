//! Runs one git process: hardened, bounded in time and output, in its own process group.
//!
//! Knows nothing of what the command means. Every git process of the product starts here.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::error::{GitError, Result};

/// Most commands end in milliseconds; a hanging filter or network share must not hold us for ever.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Writing out a very large tree on a slow disk.
pub(super) const TIMEOUT_CHECKOUT: Duration = Duration::from_secs(600);
/// After SIGTERM git removes its lock files; after this long it is not going to.
const GRACE: Duration = Duration::from_secs(2);
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
pub(super) type Sink = Box<dyn FnMut(&[u8]) + Send>;

/// What a git process answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    what: String,
}

impl Answer {
    /// The answer as text with its one line end removed.
    pub(super) fn line(&self) -> Result<&str> {
        let text = std::str::from_utf8(&self.stdout).map_err(|_| self.bad())?;
        Ok(text.strip_suffix('\n').unwrap_or(text))
    }

    /// The error for an answer that makes no sense.
    pub(super) fn bad(&self) -> GitError {
        let text = String::from_utf8_lossy(&self.stdout).chars().take(200).collect();
        GitError::BadOutput { what: self.what.clone(), text }
    }

    /// The error for an exit code that means failure.
    pub(super) fn failed(&self) -> GitError {
        GitError::Failed {
            what: self.what.clone(),
            code: Some(self.code),
            stderr: shown(&self.stderr),
        }
    }
}

/// One git command being put together.
#[derive(Debug)]
pub(super) struct Git {
    cwd: PathBuf,
    settings: Vec<String>,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    input: Option<Vec<u8>>,
    accepted: Vec<i32>,
    timeout: Duration,
    live_file: Option<PathBuf>,
}

impl Git {
    /// A command that runs in `cwd`.
    pub(super) fn new(cwd: &Path) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            settings: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            input: None,
            accepted: vec![0],
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

    pub(super) fn set(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    pub(super) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Exit codes besides 0 that are answers rather than failures.
    pub(super) fn accept(mut self, codes: &[i32]) -> Self {
        self.accepted.extend_from_slice(codes);
        self
    }

    pub(super) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A file the process keeps locked (shared) while it lives; see `locks`.
    pub(super) fn live_file(mut self, path: PathBuf) -> Self {
        self.live_file = Some(path);
        self
    }

    /// Runs the command to its end.
    pub(super) fn run(self) -> Result<Answer> {
        self.run_with(None)
    }

    /// Runs the command to its end; what it prints goes to `sink` piece by piece and is not kept.
    /// Whether all of it arrived is for the sink to know.
    pub(super) fn run_into(self, sink: Sink) -> Result<Answer> {
        self.run_with(Some(sink))
    }

    fn run_with(self, sink: Option<Sink>) -> Result<Answer> {
        let what = self.what();
        let mut command = self.command();
        let child = command.spawn().map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound && self.cwd.is_dir() {
                return GitError::GitMissing;
            }
            GitError::Spawn { what: what.clone(), source }
        })?;
        // The command holds our copy of the live file; the child has its own now.
        drop(command);
        let answer = attend(child, self.input, sink, self.timeout, &what)?;
        if self.accepted.contains(&answer.code) { Ok(answer) } else { Err(answer.failed()) }
    }

    fn what(&self) -> String {
        let mut what = String::from("git");
        for arg in self.args.iter().take(3) {
            what.push(' ');
            what.extend(arg.to_string_lossy().chars().take(60));
        }
        what
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
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
            (None, Some(path)) => hold(path).map_or_else(Stdio::null, Stdio::from),
            (None, None) => Stdio::null(),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Opens the live file with a shared lock. The child inherits it as its (empty) standard input, so
/// the lock lasts as long as the child, even if we are killed. A read-only repository has none.
fn hold(path: &Path) -> Option<File> {
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

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    overflow: bool,
}

enum News {
    Exited(std::io::Result<ExitStatus>),
    Drained,
}

fn attend(
    mut child: Child,
    input: Option<Vec<u8>>,
    sink: Option<Sink>,
    timeout: Duration,
    what: &str,
) -> Result<Answer> {
    let (tell, news) = mpsc::channel();
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(bytes), Some(mut stdin)) = (input, child.stdin.take()) {
        // A git that stops reading early says why by its exit code; the broken pipe adds nothing.
        std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    }
    let out = match sink {
        None => collect(child.stdout.take(), tell.clone()),
        Some(sink) => {
            pour(child.stdout.take(), sink, tell.clone());
            Arc::default()
        }
    };
    let err = collect(child.stderr.take(), tell.clone());
    std::thread::spawn(move || drop(tell.send(News::Exited(child.wait()))));

    let mut deadline = Instant::now() + timeout;
    let (mut status, mut drained, mut stopping) = (None, 0, None);
    while status.is_none() || drained < 2 {
        match news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(News::Exited(exit)) => {
                status = Some(exit);
                // Something git started may keep the pipes open; what git said is there by now.
                deadline = deadline.min(Instant::now() + GRACE);
            }
            Ok(News::Drained) => drained += 1,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if status.is_some() => {
                end_group(group, Signal::KILL);
                break;
            }
            Err(RecvTimeoutError::Timeout) => match stopping {
                None => {
                    end_group(group, Signal::TERM);
                    stopping = Some(Signal::TERM);
                    deadline = Instant::now() + GRACE;
                }
                Some(Signal::TERM) => {
                    end_group(group, Signal::KILL);
                    stopping = Some(Signal::KILL);
                    deadline = Instant::now() + GRACE;
                }
                // Unkillable (disk sleep): do not wait for it here.
                Some(_) => break,
            },
        }
    }
    if stopping.is_some() {
        end_group(group, Signal::KILL);
        return Err(GitError::TimedOut { what: what.to_owned(), after: timeout });
    }
    conclude(status, &out, &err, what)
}

fn conclude(
    status: Option<std::io::Result<ExitStatus>>,
    out: &Mutex<Kept>,
    err: &Mutex<Kept>,
    what: &str,
) -> Result<Answer> {
    let what = what.to_owned();
    let lost = || std::io::Error::other("the process could not be waited for");
    let status = status
        .unwrap_or_else(|| Err(lost()))
        .map_err(|source| GitError::Spawn { what: what.clone(), source })?;
    let stderr = String::from_utf8_lossy(&unpoisoned(err).bytes).into_owned();
    let Some(code) = status.code() else {
        return Err(GitError::Failed { what, code: None, stderr: shown(&stderr) });
    };
    let mut out = unpoisoned(out);
    if out.overflow {
        return Err(GitError::TooMuchOutput { what, limit: OUTPUT_BYTES_MAX });
    }
    Ok(Answer { code, stdout: std::mem::take(&mut out.bytes), stderr, what })
}

fn collect(pipe: Option<impl Read + Send + 'static>, tell: mpsc::Sender<News>) -> Arc<Mutex<Kept>> {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let ours = Arc::clone(&kept);
    let keep = move |bytes: &[u8]| {
        let mut kept = unpoisoned(&ours);
        if kept.bytes.len() + bytes.len() > OUTPUT_BYTES_MAX {
            kept.overflow = true;
        } else {
            kept.bytes.extend_from_slice(bytes);
        }
    };
    pour(pipe, Box::new(keep), tell);
    kept
}

fn pour(pipe: Option<impl Read + Send + 'static>, mut sink: Sink, tell: mpsc::Sender<News>) {
    std::thread::spawn(move || {
        let mut chunk = vec![0; 64 << 10];
        let mut pipe = pipe;
        while let Some(pipe) = pipe.as_mut() {
            match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(n) => sink(&chunk[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // The receiver is gone if the deadline passed; nobody is left to tell.
        let _ = tell.send(News::Drained);
    });
}

fn unpoisoned<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn end_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // ESRCH means the whole group is gone, which is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

fn shown(stderr: &str) -> String {
    let text = stderr.trim();
    if text.is_empty() {
        return "it gave no reason".to_owned();
    }
    text.chars().take(STDERR_SHOWN_MAX).collect()
}
