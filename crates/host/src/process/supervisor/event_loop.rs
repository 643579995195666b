//! The loop around a running command: reads its output, feeds its input, watches the clocks and requests,
//! and ends when the command and everything it started are dead. Knows nothing of files other than the log.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, WaitStatus, wait};

use super::{JobSupervisor, SpawnedCommand, read_stop_request};
use crate::process::cgroup::JobCgroup;
use crate::process::job_input::{JobInputPipe, PipePlug, is_question_line};
use crate::process::job_log::{JobLineSplitter, JobLogWriter};
use crate::process::process_tree::{self, SignalOutcome};
use crate::process::tool_socket::ToolSocket;
use crate::process::{JobEnding, JobStopMode};
use crate::sandbox::SandboxReport;

/// What a command left behind gets this long to end by itself.
const STRAGGLERS: Duration = Duration::from_millis(200);
/// Requests come with a signal; this is for one that got lost.
const TICK: Duration = Duration::from_secs(2);
/// While killing, the tree is walked again this often.
const ROUND: Duration = Duration::from_millis(5);
/// Processes of another user that we may not signal are given up after this long.
const DENIED_PATIENCE: Duration = Duration::from_secs(30);
const CHUNK: usize = 64 * 1024;
/// How often the memory is looked at where the kernel does not.
const MEMORY_EVERY: Duration = Duration::from_secs(1);
/// Chunks read from one stream before the other one, the clocks and the requests get their turn.
const TURN: usize = 16;

#[derive(Clone, Copy)]
enum SupervisionPhase {
    Running,
    /// Everything was asked to end and is killed at this time.
    Ending {
        kill_at: Instant,
    },
    /// Everything found is killed; since when.
    Killing {
        since: Instant,
    },
}

/// Time that does not pass while a question waits for its answer.
struct TimeAllowance {
    left: Option<Duration>,
    from: Instant,
}

impl TimeAllowance {
    fn new(ms: Option<u64>, now: Instant) -> Self {
        Self { left: ms.map(Duration::from_millis), from: now }
    }

    /// When it is used up, if it ever is.
    fn deadline(&self) -> Option<Instant> {
        self.left.and_then(|left| self.from.checked_add(left))
    }

    /// Moves the deadline by the time that does not count.
    fn extend(&mut self, time: Duration) {
        self.from += time;
    }
}

struct OutputSource {
    fd: Option<OwnedFd>,
    lines: JobLineSplitter,
}

pub(super) struct SupervisedCommand<'a> {
    supervisor: &'a JobSupervisor,
    log: &'a mut JobLogWriter,
    pid: u32,
    sandbox_report: Option<OwnedFd>,
    stdout: OutputSource,
    stderr: OutputSource,
    input_pipe: Option<JobInputPipe>,
    plug: Option<PipePlug>,
    tool_socket: Option<ToolSocket>,
    /// Questions in the log so far.
    question_count: u32,
    started: Instant,
    wall_clock: TimeAllowance,
    idle_clock: TimeAllowance,
    phase: SupervisionPhase,
    /// Why we end it, if we do.
    cause: Option<JobEnding>,
    /// How the command itself ended.
    status: Option<JobEnding>,
    /// Whether the process we started is the sandbox's own, and how that process ended.
    has_sandbox_process: bool,
    sandbox_process_end: Option<WaitStatus>,
    leftovers: HashSet<u32>,
    all_dead: bool,
    chunk: Vec<u8>,
    asked_at: Option<Instant>,
    look_for_requests_at: Instant,
    /// The limit that we enforce ourselves, and when to look next.
    memory: Option<u64>,
    look_at_memory_at: Instant,
}

impl<'a> SupervisedCommand<'a> {
    /// `memory` is the limit to be watched here because the kernel does not.
    pub(super) fn new(
        supervisor: &'a JobSupervisor,
        spawned: SpawnedCommand,
        memory: Option<u64>,
        log: &'a mut JobLogWriter,
    ) -> Self {
        let now = Instant::now();
        let source = |fd: OwnedFd, tag| {
            // Should this fail, a read may block until the command prints, exits or is killed by hand.
            let _ = rustix::io::ioctl_fionbio(&fd, true);
            OutputSource { fd: Some(fd), lines: JobLineSplitter::new(tag) }
        };
        Self {
            supervisor,
            log,
            pid: spawned.pid,
            sandbox_report: spawned.sandbox_report,
            stdout: source(spawned.stdout, b'o'),
            stderr: source(spawned.stderr, b'e'),
            input_pipe: spawned.input_pipe,
            plug: spawned.plug,
            tool_socket: spawned.tool_socket,
            question_count: 0,
            started: now,
            wall_clock: TimeAllowance::new(supervisor.spec.wall_ms, now),
            idle_clock: TimeAllowance::new(supervisor.spec.idle_ms, now),
            phase: SupervisionPhase::Running,
            cause: None,
            status: None,
            has_sandbox_process: supervisor.has_sandbox_process(),
            sandbox_process_end: None,
            leftovers: HashSet::new(),
            all_dead: false,
            chunk: vec![0; CHUNK],
            asked_at: None,
            look_for_requests_at: now,
            memory,
            look_at_memory_at: now,
        }
    }

    /// Runs until the whole tree is dead; gives the ending and how many processes outlived the command.
    pub(super) fn run_until_dead(mut self) -> (JobEnding, u32) {
        loop {
            self.wait_for_event();
            self.read_streams();
            self.serve_tool_socket();
            self.serve_input_and_pause_clocks();
            self.log.flush();
            self.read_sandbox_report();
            self.reap_children();
            if self.all_dead && self.status.is_some() {
                break;
            }
            self.check_stop_requests();
            self.check_timeouts();
            self.check_memory_limit();
            self.end_process_tree();
        }
        // Nothing writes any more: what is in the pipes is all there is.
        while self.read_streams() {}
        if let Some(socket) = &mut self.tool_socket {
            socket.drain_on_next_step();
        }
        self.serve_tool_socket();
        let ms = self.elapsed_ms();
        self.stdout.lines.finish(ms, self.log);
        self.stderr.lines.finish(ms, self.log);
        let ending = self.cause.take().unwrap_or_else(|| self.natural_ending());
        (ending, u32::try_from(self.leftovers.len()).unwrap_or(u32::MAX))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait_for_event(&mut self) {
        let deadline = self.next_deadline();
        let timeout = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.supervisor.signals.wake, PollFlags::IN)];
        for source in [&self.stdout, &self.stderr] {
            fds.extend(source.fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        }
        let writer = self.input_pipe.as_ref().and_then(JobInputPipe::fd_to_write);
        fds.extend(writer.map(|fd| PollFd::new(fd, PollFlags::OUT)));
        if let Some(socket) = &self.tool_socket {
            socket.add_poll_fds(&mut fds);
        }
        fds.extend(self.sandbox_report.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let woken = poll(&mut fds, Some(&timeout)).is_ok()
            && fds.first().is_some_and(|fd| !fd.revents().is_empty());
        if woken {
            let mut bytes = [0; 256];
            while matches!(rustix::io::read(&self.supervisor.signals.wake, &mut bytes), Ok(n) if n > 0)
            {
            }
            self.look_for_requests_at = Instant::now();
            if let Some(socket) = &mut self.tool_socket {
                socket.check_answers_now();
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let now = Instant::now();
        let phase = match self.phase {
            SupervisionPhase::Running if self.asked_at.is_some() => None,
            SupervisionPhase::Running => {
                [self.wall_clock.deadline(), self.idle_clock.deadline()].into_iter().flatten().min()
            }
            SupervisionPhase::Ending { kill_at } => Some(kill_at),
            SupervisionPhase::Killing { .. } => Some(now + ROUND),
        };
        let look = self.input_pipe.as_ref().map(JobInputPipe::next_check_at);
        let watched = matches!(self.phase, SupervisionPhase::Running) && self.status.is_none();
        let memory = self.memory.filter(|_| watched).map(|_| self.look_at_memory_at);
        let socket = self.tool_socket.as_ref().and_then(ToolSocket::next_check_at);
        [phase, look, memory, socket].into_iter().flatten().fold(now + TICK, Instant::min)
    }

    /// Reads a turn of both streams; true if there may be more.
    fn read_streams(&mut self) -> bool {
        let ms = self.elapsed_ms();
        let mut asks = 0;
        let mut any = false;
        for (source, may_ask) in [(&mut self.stdout, true), (&mut self.stderr, false)] {
            let mut seen = |line: &[u8]| asks += u32::from(may_ask && is_question_line(line));
            let got = source.read_chunk(&mut self.chunk, ms, self.log, &mut seen);
            any |= got;
        }
        if any {
            self.idle_clock.from = Instant::now();
        }
        for _ in 0..asks {
            self.question_count += 1;
            if let Some(conversation) = &mut self.input_pipe {
                conversation.add_question(self.question_count);
            }
        }
        any
    }

    /// Writes what comes through the tool socket to the log, in the order of the log.
    fn serve_tool_socket(&mut self) {
        let ms = self.elapsed_ms();
        let Some(socket) = &mut self.tool_socket else { return };
        let asks = &mut self.question_count;
        let heard = socket.step(ms, self.log, &mut || {
            *asks += 1;
            *asks
        });
        if heard {
            self.idle_clock.from = Instant::now();
        }
    }

    fn serve_input_and_pause_clocks(&mut self) {
        self.serve_input();
        let now = Instant::now();
        if let Some(since) = self.asked_at {
            self.wall_clock.extend(now - since);
            self.idle_clock.extend(now - since);
        }
        let pending = self.input_pipe.as_ref().is_some_and(JobInputPipe::has_pending_question)
            || self.tool_socket.as_ref().is_some_and(ToolSocket::has_pending_question);
        self.asked_at = pending.then_some(now);
    }

    fn serve_input(&mut self) {
        let Some(mut conversation) = self.input_pipe.take() else { return };
        conversation.write_pending_input();
        if matches!(self.phase, SupervisionPhase::Running)
            && self.status.is_none()
            && let Some(waiting) = conversation.check_waiting_readers()
        {
            self.drain_output_for(&mut conversation);
            if !conversation.has_pending_question()
                && let Some(stdout) = &self.stdout.fd
            {
                conversation.serve_readers(&waiting, self.plug.as_ref(), stdout);
            }
        }
        self.input_pipe = Some(conversation);
    }

    /// Reads what a waiting program has printed.
    fn drain_output_for(&mut self, conversation: &mut JobInputPipe) {
        let ms = self.elapsed_ms();
        let mut asks = 0;
        let mut seen = |line: &[u8]| asks += u32::from(is_question_line(line));
        // A turn is more than a pipe holds, so what a waiting program printed is within it.
        if self.stdout.read_chunk(&mut self.chunk, ms, self.log, &mut seen) {
            self.idle_clock.from = Instant::now();
        }
        for _ in 0..asks {
            self.question_count += 1;
            conversation.add_question(self.question_count);
        }
    }

    fn reap_children(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()) != Ok(self.pid) {
                    } else if self.has_sandbox_process {
                        self.sandbox_process_end = Some(status);
                    } else {
                        self.read_sandbox_report();
                        self.status.get_or_insert_with(|| ending_from_status(status));
                    }
                }
                Ok(None) => return,
                Err(rustix::io::Errno::INTR) => {}
                // No child, hence no descendant where orphans become our children. A cgroup may hold
                // others all the same, and its word is asked for where there is one.
                Err(_) => {
                    let in_group =
                        self.cgroup().is_some_and(|leaf| leaf.is_populated().unwrap_or(false));
                    self.all_dead = !in_group
                        && (process_tree::REAPS_ORPHANS || self.list_live_processes().is_empty());
                    if let (true, None, Some(end)) =
                        (self.all_dead, &self.status, self.sandbox_process_end)
                    {
                        // The sandbox process ended before the end of the command was reported.
                        self.read_sandbox_report();
                        self.status.get_or_insert_with(|| ending_from_status(end));
                    }
                    return;
                }
            }
        }
    }

    fn check_stop_requests(&mut self) {
        let now = Instant::now();
        if now < self.look_for_requests_at {
            return;
        }
        self.look_for_requests_at = now + TICK;
        let request = read_stop_request(&self.supervisor.dir)
            .or_else(|| self.supervisor.signals.term_requested().then_some(JobStopMode::Term));
        match (request, self.phase) {
            (Some(JobStopMode::Term), SupervisionPhase::Running) => {
                self.request_end(JobEnding::Stopped);
            }
            (
                Some(JobStopMode::Kill),
                SupervisionPhase::Running | SupervisionPhase::Ending { .. },
            ) => {
                if self.status.is_none() {
                    self.cause.get_or_insert(JobEnding::Stopped);
                }
                self.phase = SupervisionPhase::Killing { since: now };
            }
            _ => {}
        }
    }

    fn check_timeouts(&mut self) {
        if !matches!(self.phase, SupervisionPhase::Running)
            || self.asked_at.is_some()
            || self.status.is_some()
        {
            return;
        }
        let now = Instant::now();
        let over = |allowance: &TimeAllowance| allowance.deadline().is_some_and(|at| now >= at);
        if over(&self.wall_clock) {
            self.request_end(JobEnding::TimedOut { idle: false });
        } else if over(&self.idle_clock) {
            self.request_end(JobEnding::TimedOut { idle: true });
        }
    }

    /// Enforces the memory limit where no cgroup does. No grace: it would only take more.
    fn check_memory_limit(&mut self) {
        let (Some(limit), SupervisionPhase::Running, None) =
            (self.memory, self.phase, &self.status)
        else {
            return;
        };
        let now = Instant::now();
        if now < self.look_at_memory_at {
            return;
        }
        self.look_at_memory_at = now + MEMORY_EVERY;
        if process_tree::sum_private_memory(&self.list_live_processes(), limit) > limit {
            self.cause = Some(JobEnding::OutOfMemory { limit });
            self.phase = SupervisionPhase::Killing { since: now };
        }
    }

    fn request_end(&mut self, cause: JobEnding) {
        self.cause = Some(cause);
        let grace = Duration::from_millis(self.supervisor.spec.grace_ms);
        let now = Instant::now();
        self.phase = SupervisionPhase::Ending { kill_at: now.checked_add(grace).unwrap_or(now) };
        // A stopped process gets the request when it goes on. The group gets it first, as from a terminal.
        for signal in [Signal::TERM, Signal::CONT] {
            process_tree::signal_process_group(self.pid, signal);
        }
        for pid in self.list_live_processes() {
            if !is_in_process_group(pid, self.pid) {
                process_tree::signal_process(pid, Signal::TERM);
                process_tree::signal_process(pid, Signal::CONT);
            }
        }
    }

    /// What is left after the command is ended; what resists is killed.
    fn end_process_tree(&mut self) {
        let now = Instant::now();
        if self.status.is_some() && matches!(self.phase, SupervisionPhase::Running) {
            let tree = self.exclude_sandbox_processes(self.list_live_processes());
            for &pid in &tree {
                process_tree::signal_process(pid, Signal::TERM);
                process_tree::signal_process(pid, Signal::CONT);
            }
            self.leftovers.extend(tree);
            self.phase = SupervisionPhase::Ending { kill_at: now + STRAGGLERS };
        }
        if matches!(self.phase, SupervisionPhase::Ending { kill_at } if now >= kill_at) {
            self.phase = SupervisionPhase::Killing { since: now };
        }
        if let SupervisionPhase::Killing { since } = self.phase {
            self.kill_remaining_processes(since);
        }
    }

    fn kill_remaining_processes(&mut self, since: Instant) {
        let tree = self.list_live_processes();
        if let Some(leaf) = self.cgroup() {
            // What it may not reach the signals below do.
            let _ = leaf.kill();
        }
        if self.status.is_none() {
            process_tree::signal_process_group(self.pid, Signal::KILL);
        }
        let commands: HashSet<u32> =
            self.exclude_sandbox_processes(tree.clone()).into_iter().collect();
        let mut denied = !tree.is_empty();
        for pid in tree {
            denied &= process_tree::signal_process(pid, Signal::KILL) == SignalOutcome::Denied;
            if pid != self.pid && commands.contains(&pid) {
                self.leftovers.insert(pid);
            }
        }
        if denied && since.elapsed() > DENIED_PATIENCE {
            self.all_dead = true;
        }
    }

    fn cgroup(&self) -> Option<&'a JobCgroup> {
        self.supervisor.cgroup.as_ref()
    }

    /// The processes of the job that are not dead yet.
    fn list_live_processes(&self) -> Vec<u32> {
        // A table that cannot be read now is read in the next round: the end waits for it.
        let mut all =
            process_tree::list_supervised_processes(&self.supervisor.dir, &self.supervisor.pids)
                .unwrap_or_default();
        if let Some(leaf) = self.cgroup() {
            let found = leaf.list_processes().unwrap_or_default();
            let known: HashSet<u32> = all.iter().copied().collect();
            all.extend(found.into_iter().filter(|pid| !known.contains(pid)));
        }
        all
    }

    /// How it ended if we did not end it.
    fn natural_ending(&self) -> JobEnding {
        // Every process is dead and no exit was reported, so the command did not end by itself.
        let ending = self.status.clone().unwrap_or(JobEnding::Stopped);
        let limit =
            self.supervisor.spec.memory_bytes.filter(|_| ending != JobEnding::Exited { code: 0 });
        match limit {
            Some(limit) if self.cgroup().is_some_and(|leaf| leaf.count_memory_kills() > 0) => {
                JobEnding::OutOfMemory { limit }
            }
            _ => ending,
        }
    }
}

impl SupervisedCommand<'_> {
    /// Reads what the sandbox step reports about the command.
    fn read_sandbox_report(&mut self) {
        let Some(fd) = &self.sandbox_report else { return };
        let mut bytes = [0; 1024];
        let Ok(n) = rustix::io::read(fd, &mut bytes) else { return };
        // One word is all there is; whoever keeps the other end open has no more to say.
        self.sandbox_report = None;
        let text = String::from_utf8_lossy(&bytes[..n]);
        let Some(report) = SandboxReport::parse(&text) else { return };
        self.status.get_or_insert(match report {
            SandboxReport::Exited(code) => JobEnding::Exited { code },
            SandboxReport::Signal(signal) => JobEnding::Signalled { signal },
            SandboxReport::NotStarted(number) => {
                let program = self.supervisor.spec.argv.first().map_or("", String::as_str);
                self.supervisor.explain_spawn_error(program, &io::Error::from_raw_os_error(number))
            }
            SandboxReport::NoSandbox(why) => JobEnding::NotStarted {
                why: format!("cannot set up the sandbox: {why}"),
                not_found: false,
            },
        });
    }

    /// Leaves out the processes of the sandbox itself: the one we started and its first child.
    fn exclude_sandbox_processes(&self, mut tree: Vec<u32>) -> Vec<u32> {
        if self.has_sandbox_process {
            let is_sandbox = |pid: u32| {
                pid == self.pid
                    || matches!(process_tree::find_process(pid), Ok(Some(p)) if p.parent == self.pid)
                    || is_namespace_init(pid)
            };
            tree.retain(|pid| !is_sandbox(*pid));
        }
        tree
    }
}

/// Whether the process is the first one of a namespace.
fn is_namespace_init(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| {
        let mut ids = ids.split_ascii_whitespace();
        ids.next_back() == Some("1") && ids.next().is_some()
    })
}

fn is_in_process_group(pid: u32, group: u32) -> bool {
    matches!(process_tree::find_process(pid), Ok(Some(p)) if p.group == group)
}

fn ending_from_status(status: WaitStatus) -> JobEnding {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => JobEnding::Exited { code },
        (None, Some(signal)) => JobEnding::Signalled { signal },
        // A status that is neither cannot come from a dead process.
        (None, None) => JobEnding::Stopped,
    }
}

impl OutputSource {
    /// Reads a turn; true if anything came.
    fn read_chunk(
        &mut self,
        chunk: &mut [u8],
        ms: u64,
        log: &mut JobLogWriter,
        seen: &mut impl FnMut(&[u8]),
    ) -> bool {
        let mut any = false;
        for _ in 0..TURN {
            let Some(fd) = &self.fd else { return any };
            match rustix::io::read(fd, &mut *chunk) {
                Ok(0) => self.fd = None,
                Ok(n) => {
                    any = true;
                    self.lines.feed(&chunk[..n], ms, log, seen);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) if io::Error::from(e).kind() == io::ErrorKind::WouldBlock => return any,
                Err(_) => self.fd = None,
            }
        }
        any
    }
}
