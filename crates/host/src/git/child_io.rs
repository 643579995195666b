//! Attends one git process: feeds it, reads it, ends it in time. One loop in the calling thread, no
//! threads of its own: there are tens of git processes per task.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::command::{GitOutput, GitOutputSink, OUTPUT_BYTES_MAX, truncate_stderr};
use super::error::{GitError, Result};

/// After SIGTERM git removes its lock files; after this long it is not going to.
const GRACE: Duration = Duration::from_secs(2);
/// How often to look whether a process has ended whose pipes somebody keeps open.
const LOOK: Duration = Duration::from_millis(100);
/// Read in one go.
const CHUNK: usize = 64 << 10;

/// Waits for the end of a git process and returns what it answered.
pub(super) fn wait_for_git(
    child: Child,
    input: Option<Vec<u8>>,
    sink: Option<GitOutputSink>,
    timeout: Duration,
    what: &str,
) -> Result<GitOutput> {
    let mut attendance = GitChild::new(child, input, sink);
    let ended = attendance.wait(timeout);
    let spawn = |source| GitError::Spawn { what: what.to_owned(), source };
    match ended.map_err(spawn)? {
        GitChildEnd::TimedOut => Err(GitError::TimedOut { what: what.to_owned(), after: timeout }),
        GitChildEnd::Exited(status) => attendance.into_output(status, what),
    }
}

enum GitChildEnd {
    Exited(ExitStatus),
    TimedOut,
}

struct GitChild {
    child: Child,
    group: Option<Pid>,
    stdin: Option<(ChildStdin, Vec<u8>, usize)>,
    out: GitChildOutput,
    err: GitChildOutput,
    buffer: Vec<u8>,
}

/// One of the process's outputs.
struct GitChildOutput {
    pipe: Option<Box<dyn GitChildPipe>>,
    bytes: Vec<u8>,
    overflow: bool,
    sink: Option<GitOutputSink>,
}

trait GitChildPipe: Read + AsFd {}
impl<T: Read + AsFd> GitChildPipe for T {}

fn set_nonblocking(fd: BorrowedFd<'_>) {
    // A pipe that cannot be switched is read one chunk at a time, when poll says there is something.
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        let _ = rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK);
    }
}

impl GitChildOutput {
    fn new<P: GitChildPipe + 'static>(pipe: Option<P>, sink: Option<GitOutputSink>) -> Self {
        if let Some(pipe) = &pipe {
            set_nonblocking(pipe.as_fd());
        }
        let pipe = pipe.map(|pipe| Box::new(pipe) as Box<dyn GitChildPipe>);
        Self { pipe, bytes: Vec::new(), overflow: false, sink }
    }

    /// Reads once; at the end of the stream the pipe is closed.
    fn read(&mut self, buffer: &mut [u8]) {
        let Some(pipe) = self.pipe.as_mut() else { return };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(n) => match &mut self.sink {
                Some(sink) => sink(&buffer[..n]),
                None if self.bytes.len() + n > OUTPUT_BYTES_MAX => self.overflow = true,
                None => self.bytes.extend_from_slice(&buffer[..n]),
            },
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.pipe = None,
        }
    }
}

impl GitChild {
    fn new(mut child: Child, input: Option<Vec<u8>>, sink: Option<GitOutputSink>) -> Self {
        let stdin = child.stdin.take().zip(input).map(|(pipe, bytes)| {
            set_nonblocking(pipe.as_fd());
            (pipe, bytes, 0)
        });
        Self {
            group: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            stdin,
            out: GitChildOutput::new(child.stdout.take(), sink),
            err: GitChildOutput::new(child.stderr.take(), None),
            buffer: vec![0; CHUNK],
            child,
        }
    }

    fn wait(&mut self, timeout: Duration) -> std::io::Result<GitChildEnd> {
        let mut deadline = Instant::now() + timeout;
        let mut status: Option<ExitStatus> = None;
        let mut stopping: Option<Signal> = None;
        let mut pause = Duration::from_micros(200);
        let mut look_at = Instant::now() + LOOK;
        loop {
            let drained = self.out.pipe.is_none() && self.err.pipe.is_none();
            if status.is_none() && (drained || Instant::now() >= look_at) {
                look_at = Instant::now() + LOOK;
                status = self.child.try_wait()?;
                if status.is_some() {
                    // Something git started may keep the pipes open; what git said is there by now.
                    deadline = deadline.min(Instant::now() + GRACE);
                }
            }
            if let Some(status) = status
                && drained
            {
                return Ok(if stopping.is_some() {
                    GitChildEnd::TimedOut
                } else {
                    GitChildEnd::Exited(status)
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                match (status, stopping) {
                    (Some(status), None) => {
                        self.signal_group(Signal::KILL);
                        return Ok(GitChildEnd::Exited(status));
                    }
                    (None, None) => {
                        self.signal_group(Signal::TERM);
                        stopping = Some(Signal::TERM);
                    }
                    (None, Some(Signal::TERM)) => {
                        self.signal_group(Signal::KILL);
                        stopping = Some(Signal::KILL);
                    }
                    // Unkillable (disk sleep), or its pipes are held: do not wait for it here.
                    (_, Some(_)) => {
                        self.signal_group(Signal::KILL);
                        return Ok(GitChildEnd::TimedOut);
                    }
                }
                deadline = Instant::now() + GRACE;
                continue;
            }
            if drained {
                std::thread::sleep(pause.min(left));
                pause = (pause * 2).min(Duration::from_millis(20));
            } else {
                self.poll_once(LOOK.min(left));
            }
        }
    }

    /// One round of feeding and reading.
    fn poll_once(&mut self, patience: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let mut fds = Vec::with_capacity(3);
        for stream in [&self.out, &self.err] {
            fds.extend(
                stream
                    .pipe
                    .as_ref()
                    .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)),
            );
        }
        if let Some((pipe, _, _)) = &self.stdin {
            fds.push(PollFd::new(pipe, PollFlags::OUT));
        }
        let woken = poll(&mut fds, Some(&timeout)).unwrap_or(0) > 0;
        drop(fds);
        if woken {
            self.out.read(&mut self.buffer);
            self.err.read(&mut self.buffer);
            self.write_stdin();
        }
    }

    fn write_stdin(&mut self) {
        let Some((pipe, bytes, done)) = self.stdin.as_mut() else { return };
        match pipe.write(&bytes[*done..]) {
            Ok(n) => *done += n,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // A git that stops reading early says why by its exit code; the broken pipe adds nothing.
            Err(_) => *done = bytes.len(),
        }
        if *done == bytes.len() {
            self.stdin = None;
        }
    }

    fn signal_group(&self, signal: Signal) {
        if let Some(group) = self.group {
            // ESRCH means the whole group is gone, which is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }

    fn into_output(self, status: ExitStatus, what: &str) -> Result<GitOutput> {
        let what = what.to_owned();
        let stderr = String::from_utf8_lossy(&self.err.bytes).into_owned();
        let Some(code) = status.code() else {
            return Err(GitError::Failed { what, code: None, stderr: truncate_stderr(&stderr) });
        };
        if self.out.overflow {
            return Err(GitError::TooMuchOutput { what, limit: OUTPUT_BYTES_MAX });
        }
        Ok(GitOutput { code, stdout: self.out.bytes, stderr, what })
    }
}
