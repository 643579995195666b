//! The standard input of a job that may ask: the prompt, its end, and the answers, on one pipe.
//!
//! A program may read the prompt up to its end, or never; may ask before, after or instead. So the pipe
//! is a named one that we can end and begin again. The end of file is given for a moment, to a program
//! that is seen waiting for input; during that moment its output is plugged, so that it can neither
//! have asked before it nor ask within it, and never takes the end for an answer. Where the system does
//! not show who waits, the end is given from time to time. Knows nothing of the questions, only that
//! they were asked.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use serde::Deserialize;

use super::{ANSWERS, process_tree};

const PIPE: &str = "stdin";
/// How long the end of file lasts for a program that polls, or that cannot be seen.
const BLIND_END: Duration = Duration::from_millis(20);
/// How long it may last for one that is inside `read`: it must get it, however busy the machine is.
const SEEN_END: Duration = Duration::from_millis(500);
const SOONEST: Duration = Duration::from_millis(2);
/// An end given blindly may hit a program that is about to ask: not too often.
const SOONEST_BLIND: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(2);

/// Whether an output line asks a question. The n-th such line on stdout is answered by `answers/<n>.json`.
/// One without a text asks nothing: nobody could answer it.
pub fn is_question_line(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct QuestionTag {
        mainstem: String,
        question: String,
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        return false;
    }
    let Ok(text) = std::str::from_utf8(line) else { return false };
    text.contains("\"mainstem\"")
        && serde_json::from_str::<QuestionTag>(text)
            .is_ok_and(|tag| tag.mainstem == "ask" && !tag.question.trim().is_empty())
}

/// Our side of the pipe.
pub(super) struct JobInputPipe {
    dir: PathBuf,
    path: PathBuf,
    inode: (u64, u64),
    /// Held so that writing never fails for want of a reader, and to see what is still unread.
    reader: OwnedFd,
    writer: Option<OwnedFd>,
    prompt: Option<File>,
    queue: Vec<u8>,
    asked: bool,
    /// The numbers of the questions that wait for their answers here.
    waiting: VecDeque<u32>,
    /// Whether the prompt may be written: not before somebody waits for it.
    open: bool,
    /// A process that has the pipe without ever reading it.
    ignored_process: Option<u32>,
    quiet_since: Instant,
    check_at: Instant,
}

impl JobInputPipe {
    /// Makes the pipe and gives the end for the command.
    pub(super) fn create_pipe(dir: &Path, prompt: Option<&Path>) -> io::Result<(Self, OwnedFd)> {
        let path = dir.join(PIPE);
        create_named_pipe(&path)?;
        let reader =
            open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let writer = open_pipe_writer(&path)?;
        let theirs = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let meta = std::fs::metadata(&path)?;
        let now = Instant::now();
        let conversation = Self {
            dir: dir.join(ANSWERS),
            path,
            inode: (meta.dev(), meta.ino()),
            reader,
            writer: Some(writer),
            prompt: prompt.map(File::open).transpose()?,
            queue: Vec::new(),
            asked: false,
            waiting: VecDeque::new(),
            open: false,
            ignored_process: None,
            quiet_since: now,
            check_at: now + SOONEST,
        };
        Ok((conversation, theirs))
    }

    /// Names a process that has the pipe and never reads it.
    pub(super) fn ignore_process(&mut self, pid: u32) {
        self.ignored_process = Some(pid);
    }

    fn find_waiting_readers(&self) -> Option<Vec<process_tree::WaitingThread>> {
        process_tree::find_waiting_threads(std::process::id(), self.ignored_process, self.inode)
    }

    /// A question was printed. The first one ends the prompt: what is unread of it would be taken for
    /// the answer.
    pub(super) fn add_question(&mut self, number: u32) {
        self.waiting.push_back(number);
        if !std::mem::replace(&mut self.asked, true) {
            self.prompt = None;
            self.queue.clear();
            let mut unread = [0; 4096];
            while matches!(rustix::io::read(&self.reader, &mut unread), Ok(n) if n > 0) {}
        }
    }

    /// Whether a question waits for its answer.
    pub(super) fn has_pending_question(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The pipe, if something waits for room in it.
    pub(super) fn fd_to_write(&self) -> Option<&OwnedFd> {
        let more = self.open && (self.prompt.is_some() || !self.queue.is_empty());
        self.writer.as_ref().filter(|_| more)
    }

    /// When to look again.
    pub(super) fn next_check_at(&self) -> Instant {
        self.check_at
    }

    /// Takes up answers that came, and writes what the pipe has room for.
    pub(super) fn write_pending_input(&mut self) {
        while let Some(number) = self.waiting.front() {
            let file = self.dir.join(format!("{number}.json"));
            // Answers are renamed into place, so what can be read is whole; else it is looked for again.
            let Ok(answer) = std::fs::read(file) else { break };
            self.queue.extend_from_slice(answer.trim_ascii_end());
            self.queue.push(b'\n');
            self.waiting.pop_front();
            self.open = true;
            self.check_soon(Instant::now());
        }
        if self.open {
            self.write();
        }
    }

    fn write(&mut self) {
        let Some(writer) = &self.writer else { return };
        loop {
            if self.queue.is_empty() {
                let Some(prompt) = &mut self.prompt else { return };
                let mut chunk = vec![0; 32 * 1024];
                match prompt.read(&mut chunk) {
                    Ok(n) if n > 0 => self.queue.extend_from_slice(&chunk[..n]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    // The end, or a file that can no longer be read: the program has it by name too.
                    _ => self.prompt = None,
                }
                continue;
            }
            match rustix::io::write(writer, &self.queue) {
                Ok(n) => {
                    self.queue.drain(..n);
                    self.quiet_since = Instant::now();
                }
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Looks whether somebody waits for input that we could give; who, as far as it can be seen.
    pub(super) fn check_waiting_readers(&mut self) -> Option<Vec<process_tree::WaitingThread>> {
        let now = Instant::now();
        if now < self.check_at {
            return None;
        }
        if self.has_pending_question() {
            self.check_soon(now);
            return None;
        }
        let unread = rustix::io::ioctl_fionread(&self.reader).unwrap_or(0) > 0;
        let busy = unread || self.fd_to_write().is_some();
        let waiting = if busy { None } else { Some(self.find_waiting_readers()) };
        match waiting {
            None => self.check_later(now, SOONEST),
            Some(Some(waiting)) if waiting.is_empty() => self.check_later(now, SOONEST),
            Some(waiting) => return Some(waiting.unwrap_or_default()),
        }
        None
    }

    /// Gives those who wait the prompt or, after it, the end of file. Everything printed so far was read
    /// from `stdout` and no question is open.
    pub(super) fn serve_readers(
        &mut self,
        waiting: &[process_tree::WaitingThread],
        plug: Option<&PipePlug>,
        stdout: &OwnedFd,
    ) {
        let now = Instant::now();
        if !self.open {
            self.open = true;
            self.write();
            return self.check_soon(now);
        }
        let readers: Vec<_> = waiting.iter().filter(|w| w.reading).collect();
        let soonest = if readers.is_empty() { SOONEST_BLIND } else { SOONEST };
        match plug.map(|plug| plug.insert(stdout)) {
            None => self.close_briefly(&readers),
            Some(Some(inserted)) => {
                self.close_briefly(&readers);
                inserted.remove(stdout);
            }
            // Something was printed in this very moment: it is read first.
            Some(None) => {}
        }
        self.check_later(now, soonest);
    }

    fn close_briefly(&mut self, readers: &[&process_tree::WaitingThread]) {
        self.writer = None;
        let begun = Instant::now();
        let longest = if readers.is_empty() { BLIND_END } else { SEEN_END };
        while begun.elapsed() < longest {
            std::thread::sleep(Duration::from_millis(1));
            if !readers.is_empty() && !readers.iter().any(|r| r.is_still_waiting()) {
                break;
            }
        }
        // Without a writer the program only sees an end; the next look tries again.
        self.writer = open_pipe_writer(&self.path).ok();
    }

    /// Looks soon again: something has just happened.
    fn check_soon(&mut self, now: Instant) {
        self.quiet_since = now;
        self.check_at =
            now + if self.has_pending_question() { Duration::from_millis(250) } else { SOONEST };
    }

    /// Looks the less often the longer nothing happened.
    fn check_later(&mut self, now: Instant, soonest: Duration) {
        if self.writer.is_none() {
            self.writer = open_pipe_writer(&self.path).ok();
        }
        self.check_at = now + (now.duration_since(self.quiet_since) / 8).clamp(soonest, LATEST);
    }
}

/// A second way into the command's stdout, with which it can be filled so that printing waits.
#[cfg_attr(
    not(all(target_os = "linux", not(mainstem_portable))),
    expect(dead_code, reason = "nothing can be plugged there")
)]
pub(super) struct PipePlug(OwnedFd);

/// Filler in the pipe: how much, and the pipe's size before.
#[cfg_attr(
    not(all(target_os = "linux", not(mainstem_portable))),
    expect(dead_code, reason = "nothing can be plugged there")
)]
struct InsertedPlug<'a> {
    plug: &'a PipePlug,
    bytes: usize,
    size: usize,
}

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
impl PipePlug {
    /// For the pipe with this writing end; `None` if the system has no way to open it once more.
    pub(super) fn new(writer: &OwnedFd) -> Option<Self> {
        use std::os::fd::AsRawFd;
        // Opened anew because the command shares the flags of its own end.
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
            .ok()
            .map(Self)
    }

    /// Fills the empty pipe in one step; `None` if it was not empty.
    fn insert(&self, reader: &OwnedFd) -> Option<InsertedPlug<'_>> {
        let size = rustix::pipe::fcntl_getpipe_size(&self.0).ok()?;
        let small = rustix::pipe::fcntl_setpipe_size(&self.0, 4096);
        // A whole page is never merged with what others wrote: all of it goes in, or nothing.
        let bytes = small.and_then(|small| rustix::io::write(&self.0, &vec![0; small]));
        let inserted = InsertedPlug { plug: self, bytes: bytes.unwrap_or(0), size };
        if inserted.bytes == 0 || Ok(inserted.bytes) != small {
            inserted.remove(reader);
            return None;
        }
        Some(inserted)
    }
}

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
impl InsertedPlug<'_> {
    fn remove(self, reader: &OwnedFd) {
        let mut filler = vec![0; self.bytes];
        let mut left = self.bytes;
        while left > 0 {
            match rustix::io::read(reader, &mut filler[..left]) {
                Ok(n) if n > 0 => left -= n,
                Err(Errno::INTR) => {}
                // The filler was there before anything else, so it can be read.
                _ => break,
            }
        }
        // A small pipe is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&self.plug.0, self.size);
    }
}

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
impl PipePlug {
    /// There is no way to open a pipe once more here.
    pub(super) fn new(_writer: &OwnedFd) -> Option<Self> {
        None
    }

    fn insert(&self, _reader: &OwnedFd) -> Option<InsertedPlug<'_>> {
        None
    }
}

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
impl InsertedPlug<'_> {
    fn remove(self, _reader: &OwnedFd) {}
}

fn open_pipe_writer(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(not(target_vendor = "apple"))]
fn create_named_pipe(path: &Path) -> io::Result<()> {
    match rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(target_vendor = "apple")]
fn create_named_pipe(path: &Path) -> io::Result<()> {
    let made =
        std::process::Command::new("/usr/bin/mkfifo").arg("-m").arg("600").arg(path).status()?;
    if made.success() { Ok(()) } else { Err(io::Error::other("mkfifo failed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_json_line_tagged_ask_is_a_question() {
        assert!(is_question_line(br#"{"mainstem":"ask","question":"?"}"#));
        assert!(is_question_line(
            br#"  { "options": ["a"], "question": "x", "mainstem" : "ask" }"#
        ));
        assert!(!is_question_line(br#"{"mainstem":"ask"}"#));
        assert!(!is_question_line(br#"{"mainstem":"ask","question":" "}"#));
        assert!(!is_question_line(br#"{"mainstem":"usage"}"#));
        assert!(!is_question_line(br#"log: {"mainstem":"ask","question":"?"}"#));
        assert!(!is_question_line(br#"{"mainstem":"ask""#));
        assert!(!is_question_line(b"{\"mainstem\":\"ask\",\"q\":\"\xff\"}"));
        assert!(!is_question_line(b""));
    }
}
