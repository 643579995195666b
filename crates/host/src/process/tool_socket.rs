//! The tool socket of a job: processes that the command started report through it, beside its output.
//!
//! Guests show the job's token, then send lines. Each line of an allowed kind is put into the job's log as
//! if the command had printed it; a line that asks gets its answer back through the socket, whenever that
//! comes and whichever connection asks for it then. Everything is bounded. Knows nothing of what the lines
//! mean, except which of them ask.
//!
//! What a guest sends: `{"token":"…"}` first, then lines such as `{"mainstem":"ask","ref":"r1",…}`. What it
//! gets, one line each: `{"ok":true}` once the line is in the log, `{"error":"…"}` if it never will be, and
//! `{"ref":"r1","answer":{…}}` for an answer.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::ANSWERS;
use super::job_log::JobLogWriter;
use crate::user_folder;

/// Longest line that a guest may send.
pub const TOOL_LINE_BYTES_MAX: usize = 1 << 20;
/// The longest path that every Unix takes for a socket, with room for its end.
const SOCKET_LEN_MAX: usize = 100;
/// Connections at once: one for each open question, and some to spare.
const CLIENTS_MAX: usize = 64;
/// Whoever has not shown the token by then goes.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
/// A greeting is short.
const GREETING_BYTES_MAX: usize = 4096;
/// What one guest may leave unread of what we say.
const UNREAD_BYTES_MAX: usize = 4 << 20;
/// Lines per second in the long run, and in one go. More wait, none is lost.
const LINES_PER_SECOND: f64 = 20.0;
const LINES_AT_ONCE: f64 = 100.0;
/// Questions of one job that wait for an answer.
const OPEN_QUESTIONS_MAX: usize = 32;
/// Questions of one job in all: more than any person answers.
const QUESTIONS_MAX: usize = 1000;
/// Longest name of a question.
const REF_BYTES_MAX: usize = 128;
/// Answers come with a signal; this is for one that got lost.
const ANSWER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Where a job's tool socket is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSocketSpec {
    pub path: PathBuf,
    /// Its folder is made for it alone, and goes with it.
    pub own_folder: bool,
    /// What a guest must show.
    pub token: String,
    /// The lines that may come in, by the word under the key `mainstem`.
    pub kinds: Vec<String>,
}

impl ToolSocketSpec {
    /// A socket at `near` with a fresh token; elsewhere, in a folder of its own, if that path is too long
    /// for a socket.
    pub fn new(near: PathBuf, kinds: &[&str]) -> io::Result<Self> {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let own_folder = near.as_os_str().len() > SOCKET_LEN_MAX;
        let path = if own_folder { short_socket_path(&near) } else { near };
        Ok(Self { path, own_folder, token: random_token()?, kinds })
    }

    /// The folder that was made for this socket alone. A sandbox must allow its command to write there.
    pub fn folder(&self) -> Option<&Path> {
        self.path.parent().filter(|_| self.own_folder)
    }
}

/// A short path that is this job's alone.
fn short_socket_path(near: &Path) -> PathBuf {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in near.as_os_str().as_encoded_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let below = |base: &Path| base.join(format!("{hash:016x}")).join("mcp.sock");
    [user_folder::user_folder_path(), user_folder::temp_fallback_folder()]
        .iter()
        .map(|base| below(base))
        .find(|path| path.as_os_str().len() <= SOCKET_LEN_MAX)
        .unwrap_or_else(|| {
            let user = rustix::process::geteuid().as_raw();
            below(&Path::new("/tmp").join(format!("mainstem-{user}")))
        })
}

/// A token that nobody guesses.
fn random_token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Removes what a tool socket left: only a socket, and only a folder that was made for it.
pub(super) fn remove_socket_files(spec: &ToolSocketSpec) {
    let is_socket = fs::symlink_metadata(&spec.path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket {
        let _ = fs::remove_file(&spec.path);
    }
    if let Some(folder) = spec.folder() {
        let _ = fs::remove_dir(folder);
    }
}

/// Somebody who came in.
struct ToolSocketClient {
    stream: UnixStream,
    greeting_deadline: Option<Instant>,
    input: Vec<u8>,
    output: Vec<u8>,
    gone: bool,
    /// Places in the list of questions whose answers it wants.
    awaited_questions: Vec<usize>,
}

/// A question that came through the socket.
struct ToolSocketQuestion {
    reference: String,
    number: u32,
    answered: bool,
}

/// An open tool socket. Its files are removed when it is dropped.
pub(super) struct ToolSocket {
    spec: ToolSocketSpec,
    answers: PathBuf,
    listener: UnixListener,
    clients: Vec<ToolSocketClient>,
    questions: Vec<ToolSocketQuestion>,
    lines_left: f64,
    refilled: Instant,
    check_at: Instant,
}

impl Drop for ToolSocket {
    fn drop(&mut self) {
        remove_socket_files(&self.spec);
    }
}

impl ToolSocket {
    /// Opens the tool socket of the job in `dir`.
    pub(super) fn open_socket(dir: &Path, spec: &ToolSocketSpec) -> io::Result<Self> {
        if let Some(folder) = spec.folder() {
            user_folder::create_private_folder_with_parent(folder)?;
        }
        // Left by a supervisor that was killed: this job's lock is ours now.
        if fs::symlink_metadata(&spec.path).is_ok_and(|m| m.file_type().is_socket()) {
            fs::remove_file(&spec.path)?;
        }
        let listener = UnixListener::bind(&spec.path)?;
        fs::set_permissions(&spec.path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Self {
            spec: spec.clone(),
            answers: dir.join(ANSWERS),
            listener,
            clients: Vec::new(),
            questions: Vec::new(),
            lines_left: LINES_AT_ONCE,
            refilled: now,
            check_at: now,
        })
    }

    /// Whether a question waits for its answer.
    pub(super) fn has_pending_question(&self) -> bool {
        self.questions.iter().any(|ask| !ask.answered)
    }

    /// What to wait for.
    pub(super) fn add_poll_fds<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        let listens = self.lines_left >= 1.0;
        for guest in &self.clients {
            let mut flags = PollFlags::empty();
            if listens {
                flags |= PollFlags::IN;
            }
            if !guest.output.is_empty() {
                flags |= PollFlags::OUT;
            }
            let fd: BorrowedFd<'a> = guest.stream.as_fd();
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
    }

    /// When to look again though nothing came.
    pub(super) fn next_check_at(&self) -> Option<Instant> {
        let greeting = self.clients.iter().filter_map(|guest| guest.greeting_deadline).min();
        let answer = self.has_pending_question().then_some(self.check_at);
        let refill = (self.lines_left < 1.0 && !self.clients.is_empty())
            .then(|| self.refilled + Duration::from_millis(50));
        [greeting, answer, refill].into_iter().flatten().min()
    }

    /// Nobody speaks any more: all that is in the sockets is taken in the next step.
    pub(super) fn drain_on_next_step(&mut self) {
        self.lines_left = f64::MAX;
    }

    /// Looks for answers in the next step.
    pub(super) fn check_answers_now(&mut self) {
        self.check_at = Instant::now();
    }

    /// Lets guests in, takes their lines into the log, hands answers out. `next_number` gives the number
    /// of the next question of the job. True if any line came.
    pub(super) fn step(
        &mut self,
        ms: u64,
        log: &mut JobLogWriter,
        next_number: &mut dyn FnMut() -> u32,
    ) -> bool {
        let now = Instant::now();
        let since = now.duration_since(self.refilled).as_secs_f64();
        if self.lines_left < LINES_AT_ONCE {
            self.lines_left = (self.lines_left + since * LINES_PER_SECOND).min(LINES_AT_ONCE);
        }
        self.refilled = now;
        self.accept_clients(now);
        let mut guests = std::mem::take(&mut self.clients);
        let mut any = false;
        for guest in &mut guests {
            guest.gone |= guest.greeting_deadline.is_some_and(|by| by <= now);
            while !guest.gone && self.lines_left >= 1.0 {
                let Some(line) = guest.next_line() else { break };
                self.lines_left -= 1.0;
                any |= self.handle_line(guest, &line, ms, log, next_number);
            }
        }
        self.clients = guests;
        if now >= self.check_at {
            self.check_at = now + ANSWER_CHECK_INTERVAL;
            self.collect_answers();
        }
        self.deliver_answers();
        self.clients.retain(|guest| !guest.gone);
        any
    }

    fn accept_clients(&mut self, now: Instant) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= CLIENTS_MAX
                || !is_same_user(&stream)
                || stream.set_nonblocking(true).is_err()
            {
                continue;
            }
            self.clients.push(ToolSocketClient {
                stream,
                greeting_deadline: Some(now + GREETING_PATIENCE),
                input: Vec::new(),
                output: Vec::new(),
                gone: false,
                awaited_questions: Vec::new(),
            });
        }
    }

    /// Takes one line; true if it went into the log.
    fn handle_line(
        &mut self,
        guest: &mut ToolSocketClient,
        line: &[u8],
        ms: u64,
        log: &mut JobLogWriter,
        next_number: &mut dyn FnMut() -> u32,
    ) -> bool {
        let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(line) else {
            return guest.refuse_line("a line is one JSON object");
        };
        if guest.greeting_deadline.is_some() {
            let shown = fields.get("token").and_then(Value::as_str).unwrap_or_default();
            if !constant_time_eq(shown, &self.spec.token) {
                guest.refuse_line("the token is not this job's");
                guest.gone = true;
                guest.write();
                return false;
            }
            guest.greeting_deadline = None;
            guest.queue_reply(&json!({"ok": true}));
            return false;
        }
        let kind = fields.get("mainstem").and_then(Value::as_str).unwrap_or_default();
        if !self.spec.kinds.iter().any(|allowed| allowed == kind) {
            return guest.refuse_line("lines of this kind do not come through this door");
        }
        // Written anew: one line, each key once, so that every reader sees the same.
        let asks = kind == "ask";
        let text = Value::Object(fields.clone()).to_string();
        if text.len() > log.max_line_bytes() {
            return guest.refuse_line("the line is too long");
        }
        if asks && !self.record_question(guest, &fields, next_number) {
            return false;
        }
        log.write_record(format!("{ms} o ").as_bytes(), text.as_bytes());
        guest.queue_reply(&json!({"ok": true}));
        true
    }

    /// Notes a question; true if it is a new one, to be put into the log.
    fn record_question(
        &mut self,
        guest: &mut ToolSocketClient,
        fields: &Map<String, Value>,
        next_number: &mut dyn FnMut() -> u32,
    ) -> bool {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default().trim();
        let reference = text("ref");
        if reference.is_empty() || reference.len() > REF_BYTES_MAX || text("question").is_empty() {
            return guest
                .refuse_line("a question has a text under `question` and a name under `ref`");
        }
        if let Some(known) = self.questions.iter().position(|ask| ask.reference == reference) {
            guest.awaited_questions.push(known);
            self.check_answers_now();
            guest.queue_reply(&json!({"ok": true}));
            return false;
        }
        let open = self.questions.iter().filter(|ask| !ask.answered).count();
        if open >= OPEN_QUESTIONS_MAX || self.questions.len() >= QUESTIONS_MAX {
            return guest.refuse_line("too many questions; wait for answers, or decide and go on");
        }
        guest.awaited_questions.push(self.questions.len());
        let (reference, number) = (reference.to_owned(), next_number());
        self.questions.push(ToolSocketQuestion { reference, number, answered: false });
        true
    }

    fn collect_answers(&mut self) {
        for ask in self.questions.iter_mut().filter(|ask| !ask.answered) {
            let file = self.answers.join(format!("{}.json", ask.number));
            ask.answered = file.exists();
        }
    }

    fn deliver_answers(&mut self) {
        for guest in &mut self.clients {
            let (now, later) = guest
                .awaited_questions
                .drain(..)
                .partition(|at| self.questions.get(*at).is_some_and(|a| a.answered));
            guest.awaited_questions = later;
            let now: Vec<usize> = now;
            for at in now {
                let ask = &self.questions[at];
                let file = self.answers.join(format!("{}.json", ask.number));
                // Answers are renamed into place, so what can be read is whole.
                let Ok(text) = fs::read_to_string(file) else {
                    guest.awaited_questions.push(at);
                    continue;
                };
                let answer = serde_json::from_str::<Value>(text.trim())
                    .unwrap_or_else(|_| Value::from(text.trim()));
                guest.queue_reply(&json!({"ref": ask.reference, "answer": answer}));
            }
            guest.write();
        }
    }
}

impl ToolSocketClient {
    /// The next whole line, if there is one now.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.input.iter().position(|&b| b == b'\n') {
                let rest = self.input.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.pop();
                return Some(line);
            }
            let longest = if self.greeting_deadline.is_some() {
                GREETING_BYTES_MAX
            } else {
                TOOL_LINE_BYTES_MAX
            };
            if self.input.len() > longest {
                self.refuse_line("the line is too long");
                self.write();
                self.gone = true;
                return None;
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    self.gone = true;
                    return None;
                }
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.gone = true;
                    return None;
                }
            }
        }
    }

    fn queue_reply(&mut self, value: &Value) {
        self.output.extend_from_slice(value.to_string().as_bytes());
        self.output.push(b'\n');
        self.gone |= self.output.len() > UNREAD_BYTES_MAX;
    }

    /// Says no; false, for the line does not count.
    fn refuse_line(&mut self, why: &str) -> bool {
        self.queue_reply(&json!({"error": why}));
        false
    }

    fn write(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(n) if n > 0 => drop(self.output.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {
                    self.gone = true;
                    return;
                }
            }
        }
    }
}

/// Compares without telling by its time how much was right.
fn constant_time_eq(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Whether the other side is a process of our own user.
#[cfg(target_os = "linux")]
fn is_same_user(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// The socket's own permissions and the token have to do here.
#[cfg(not(target_os = "linux"))]
fn is_same_user(_stream: &UnixStream) -> bool {
    true
}
