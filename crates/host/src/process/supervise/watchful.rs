//! The loop around a running command: reads its output, feeds its input, watches the clocks and requests,
//! and ends when the command and everything it started are dead. Knows nothing of files other than the log.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, WaitStatus, wait};

use super::{Spawned, Supervisor, requested};
use crate::process::answers::{Conversation, Plug, is_ask};
use crate::process::cgroup::Leaf;
use crate::process::door::Door;
use crate::process::log::{Lines, Writer};
use crate::process::tree::{self, Sent};
use crate::process::{Ending, Stop};
use crate::wall::Report;

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
enum Phase {
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
struct Allowance {
    left: Option<Duration>,
    from: Instant,
}

impl Allowance {
    fn new(ms: Option<u64>, now: Instant) -> Self {
        Self { left: ms.map(Duration::from_millis), from: now }
    }

    /// When it is used up, if it ever is.
    fn deadline(&self) -> Option<Instant> {
        self.left.and_then(|left| self.from.checked_add(left))
    }

    /// Moves the deadline by the time that does not count.
    fn forgive(&mut self, time: Duration) {
        self.from += time;
    }
}

struct Source {
    fd: Option<OwnedFd>,
    lines: Lines,
}

pub(super) struct Running<'a> {
    supervisor: &'a Supervisor,
    log: &'a mut Writer,
    pid: u32,
    report: Option<OwnedFd>,
    stdout: Source,
    stderr: Source,
    conversation: Option<Conversation>,
    plug: Option<Plug>,
    door: Option<Door>,
    /// Questions in the log so far.
    asks: u32,
    started: Instant,
    wall: Allowance,
    idle: Allowance,
    phase: Phase,
    /// Why we end it, if we do.
    cause: Option<Ending>,
    /// How the command itself ended.
    status: Option<Ending>,
    /// Whether the process we started is the wall's; how that one ended.
    scaffold: bool,
    scaffold_end: Option<WaitStatus>,
    leftovers: HashSet<u32>,
    all_dead: bool,
    chunk: Vec<u8>,
    asked_at: Option<Instant>,
    look_for_requests_at: Instant,
    /// The limit that we enforce ourselves, and when to look next.
    memory: Option<u64>,
    look_at_memory_at: Instant,
}

impl<'a> Running<'a> {
    /// `memory` is the limit to be watched here because the kernel does not.
    pub(super) fn new(
        supervisor: &'a Supervisor,
        spawned: Spawned,
        memory: Option<u64>,
        log: &'a mut Writer,
    ) -> Self {
        let now = Instant::now();
        let source = |fd: OwnedFd, tag| {
            // Should this fail, a read may block until the command prints, exits or is killed by hand.
            let _ = rustix::io::ioctl_fionbio(&fd, true);
            Source { fd: Some(fd), lines: Lines::new(tag) }
        };
        Self {
            supervisor,
            log,
            pid: spawned.pid,
            report: spawned.report,
            stdout: source(spawned.stdout, b'o'),
            stderr: source(spawned.stderr, b'e'),
            conversation: spawned.conversation,
            plug: spawned.plug,
            door: spawned.door,
            asks: 0,
            started: now,
            wall: Allowance::new(supervisor.spec.wall_ms, now),
            idle: Allowance::new(supervisor.spec.idle_ms, now),
            phase: Phase::Running,
            cause: None,
            status: None,
            scaffold: supervisor.has_scaffold(),
            scaffold_end: None,
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
    pub(super) fn until_dead(mut self) -> (Ending, u32) {
        loop {
            self.wait_for_something();
            self.read_streams();
            self.hear_guests();
            self.converse();
            self.log.flush();
            self.hear_report();
            self.reap();
            if self.all_dead && self.status.is_some() {
                break;
            }
            self.heed_requests();
            self.heed_clocks();
            self.heed_memory();
            self.end_tree();
        }
        // Nothing writes any more: what is in the pipes is all there is.
        while self.read_streams() {}
        if let Some(door) = &mut self.door {
            door.last_call();
        }
        self.hear_guests();
        let ms = self.elapsed_ms();
        self.stdout.lines.finish(ms, self.log);
        self.stderr.lines.finish(ms, self.log);
        let ending = self.cause.take().unwrap_or_else(|| self.natural());
        (ending, u32::try_from(self.leftovers.len()).unwrap_or(u32::MAX))
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait_for_something(&mut self) {
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
        let writer = self.conversation.as_ref().and_then(Conversation::wants_to_write);
        fds.extend(writer.map(|fd| PollFd::new(fd, PollFlags::OUT)));
        if let Some(door) = &self.door {
            door.interests(&mut fds);
        }
        fds.extend(self.report.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let woken = poll(&mut fds, Some(&timeout)).is_ok()
            && fds.first().is_some_and(|fd| !fd.revents().is_empty());
        if woken {
            let mut bytes = [0; 256];
            while matches!(rustix::io::read(&self.supervisor.signals.wake, &mut bytes), Ok(n) if n > 0)
            {
            }
            self.look_for_requests_at = Instant::now();
            if let Some(door) = &mut self.door {
                door.look_now();
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let now = Instant::now();
        let phase = match self.phase {
            Phase::Running if self.asked_at.is_some() => None,
            Phase::Running => {
                [self.wall.deadline(), self.idle.deadline()].into_iter().flatten().min()
            }
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killing { .. } => Some(now + ROUND),
        };
        let look = self.conversation.as_ref().map(Conversation::next_look);
        let watched = matches!(self.phase, Phase::Running) && self.status.is_none();
        let memory = self.memory.filter(|_| watched).map(|_| self.look_at_memory_at);
        let door = self.door.as_ref().and_then(Door::next_look);
        [phase, look, memory, door].into_iter().flatten().fold(now + TICK, Instant::min)
    }

    /// Reads a turn of both streams; true if there may be more.
    fn read_streams(&mut self) -> bool {
        let ms = self.elapsed_ms();
        let mut asks = 0;
        let mut any = false;
        for (source, may_ask) in [(&mut self.stdout, true), (&mut self.stderr, false)] {
            let mut seen = |line: &[u8]| asks += u32::from(may_ask && is_ask(line));
            let got = source.read(&mut self.chunk, ms, self.log, &mut seen);
            any |= got;
        }
        if any {
            self.idle.from = Instant::now();
        }
        for _ in 0..asks {
            self.asks += 1;
            if let Some(conversation) = &mut self.conversation {
                conversation.ask(self.asks);
            }
        }
        any
    }

    /// Takes what comes through the door into the log, in the order of the log.
    fn hear_guests(&mut self) {
        let ms = self.elapsed_ms();
        let Some(door) = &mut self.door else { return };
        let asks = &mut self.asks;
        let heard = door.step(ms, self.log, &mut || {
            *asks += 1;
            *asks
        });
        if heard {
            self.idle.from = Instant::now();
        }
    }

    fn converse(&mut self) {
        self.serve_input();
        let now = Instant::now();
        if let Some(since) = self.asked_at {
            self.wall.forgive(now - since);
            self.idle.forgive(now - since);
        }
        let pending = self.conversation.as_ref().is_some_and(Conversation::pending)
            || self.door.as_ref().is_some_and(Door::pending);
        self.asked_at = pending.then_some(now);
    }

    fn serve_input(&mut self) {
        let Some(mut conversation) = self.conversation.take() else { return };
        conversation.step();
        if matches!(self.phase, Phase::Running)
            && self.status.is_none()
            && let Some(waiting) = conversation.look()
        {
            self.drain_for(&mut conversation);
            if !conversation.pending()
                && let Some(stdout) = &self.stdout.fd
            {
                conversation.serve(&waiting, self.plug.as_ref(), stdout);
            }
        }
        self.conversation = Some(conversation);
    }

    /// Reads what a waiting program has printed.
    fn drain_for(&mut self, conversation: &mut Conversation) {
        let ms = self.elapsed_ms();
        let mut asks = 0;
        let mut seen = |line: &[u8]| asks += u32::from(is_ask(line));
        // A turn is more than a pipe holds, so what a waiting program printed is within it.
        if self.stdout.read(&mut self.chunk, ms, self.log, &mut seen) {
            self.idle.from = Instant::now();
        }
        for _ in 0..asks {
            self.asks += 1;
            conversation.ask(self.asks);
        }
    }

    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()) != Ok(self.pid) {
                    } else if self.scaffold {
                        self.scaffold_end = Some(status);
                    } else {
                        self.hear_report();
                        self.status.get_or_insert_with(|| natural(status));
                    }
                }
                Ok(None) => return,
                Err(rustix::io::Errno::INTR) => {}
                // No child, hence no descendant where orphans become our children. A cgroup may hold
                // others all the same, and its word is asked for where there is one.
                Err(_) => {
                    let in_group =
                        self.leaf().is_some_and(|leaf| leaf.populated().unwrap_or(false));
                    self.all_dead = !in_group && (tree::REAPS_ORPHANS || self.tree().is_empty());
                    if let (true, None, Some(end)) =
                        (self.all_dead, &self.status, self.scaffold_end)
                    {
                        // The wall went before the command was known to have ended.
                        self.hear_report();
                        self.status.get_or_insert_with(|| natural(end));
                    }
                    return;
                }
            }
        }
    }

    fn heed_requests(&mut self) {
        let now = Instant::now();
        if now < self.look_for_requests_at {
            return;
        }
        self.look_for_requests_at = now + TICK;
        let request = requested(&self.supervisor.dir)
            .or_else(|| self.supervisor.signals.term_requested().then_some(Stop::Term));
        match (request, self.phase) {
            (Some(Stop::Term), Phase::Running) => self.ask_to_end(Ending::Stopped),
            (Some(Stop::Kill), Phase::Running | Phase::Ending { .. }) => {
                if self.status.is_none() {
                    self.cause.get_or_insert(Ending::Stopped);
                }
                self.phase = Phase::Killing { since: now };
            }
            _ => {}
        }
    }

    fn heed_clocks(&mut self) {
        if !matches!(self.phase, Phase::Running) || self.asked_at.is_some() || self.status.is_some()
        {
            return;
        }
        let now = Instant::now();
        let over = |allowance: &Allowance| allowance.deadline().is_some_and(|at| now >= at);
        if over(&self.wall) {
            self.ask_to_end(Ending::TimedOut { idle: false });
        } else if over(&self.idle) {
            self.ask_to_end(Ending::TimedOut { idle: true });
        }
    }

    /// Enforces the memory limit where no cgroup does. No grace: it would only take more.
    fn heed_memory(&mut self) {
        let (Some(limit), Phase::Running, None) = (self.memory, self.phase, &self.status) else {
            return;
        };
        let now = Instant::now();
        if now < self.look_at_memory_at {
            return;
        }
        self.look_at_memory_at = now + MEMORY_EVERY;
        if tree::memory(&self.tree(), limit) > limit {
            self.cause = Some(Ending::OutOfMemory { limit });
            self.phase = Phase::Killing { since: now };
        }
    }

    fn ask_to_end(&mut self, cause: Ending) {
        self.cause = Some(cause);
        let grace = Duration::from_millis(self.supervisor.spec.grace_ms);
        let now = Instant::now();
        self.phase = Phase::Ending { kill_at: now.checked_add(grace).unwrap_or(now) };
        // A stopped process gets the request when it goes on. The group gets it first, as from a terminal.
        for signal in [Signal::TERM, Signal::CONT] {
            tree::signal_group(self.pid, signal);
        }
        for pid in self.tree() {
            if !in_group(pid, self.pid) {
                tree::signal(pid, Signal::TERM);
                tree::signal(pid, Signal::CONT);
            }
        }
    }

    /// What is left after the command is ended; what resists is killed.
    fn end_tree(&mut self) {
        let now = Instant::now();
        if self.status.is_some() && matches!(self.phase, Phase::Running) {
            let tree = self.without_scaffold(self.tree());
            for &pid in &tree {
                tree::signal(pid, Signal::TERM);
                tree::signal(pid, Signal::CONT);
            }
            self.leftovers.extend(tree);
            self.phase = Phase::Ending { kill_at: now + STRAGGLERS };
        }
        if matches!(self.phase, Phase::Ending { kill_at } if now >= kill_at) {
            self.phase = Phase::Killing { since: now };
        }
        if let Phase::Killing { since } = self.phase {
            self.kill_round(since);
        }
    }

    fn kill_round(&mut self, since: Instant) {
        let tree = self.tree();
        if let Some(leaf) = self.leaf() {
            // What it may not reach the signals below do.
            let _ = leaf.kill();
        }
        if self.status.is_none() {
            tree::signal_group(self.pid, Signal::KILL);
        }
        let commands: HashSet<u32> = self.without_scaffold(tree.clone()).into_iter().collect();
        let mut denied = !tree.is_empty();
        for pid in tree {
            denied &= tree::signal(pid, Signal::KILL) == Sent::Denied;
            if pid != self.pid && commands.contains(&pid) {
                self.leftovers.insert(pid);
            }
        }
        if denied && since.elapsed() > DENIED_PATIENCE {
            self.all_dead = true;
        }
    }

    fn leaf(&self) -> Option<&'a Leaf> {
        self.supervisor.leaf.as_ref()
    }

    /// The processes of the job that are not dead yet.
    fn tree(&self) -> Vec<u32> {
        // A table that cannot be read now is read in the next round: the end waits for it.
        let mut all =
            tree::supervised(&self.supervisor.dir, &self.supervisor.pids).unwrap_or_default();
        if let Some(leaf) = self.leaf() {
            let found = leaf.processes().unwrap_or_default();
            let known: HashSet<u32> = all.iter().copied().collect();
            all.extend(found.into_iter().filter(|pid| !known.contains(pid)));
        }
        all
    }

    /// How it ended if we did not end it.
    fn natural(&self) -> Ending {
        // Everything is dead and nobody told how: not by itself, then.
        let ending = self.status.clone().unwrap_or(Ending::Stopped);
        let limit =
            self.supervisor.spec.memory_bytes.filter(|_| ending != Ending::Exited { code: 0 });
        match limit {
            Some(limit) if self.leaf().is_some_and(|leaf| leaf.memory_kills() > 0) => {
                Ending::OutOfMemory { limit }
            }
            _ => ending,
        }
    }
}

impl Running<'_> {
    /// Takes up what the wall's step says about the command.
    fn hear_report(&mut self) {
        let Some(fd) = &self.report else { return };
        let mut bytes = [0; 1024];
        let Ok(n) = rustix::io::read(fd, &mut bytes) else { return };
        // One word is all there is; whoever keeps the other end open has no more to say.
        self.report = None;
        let text = String::from_utf8_lossy(&bytes[..n]);
        let Some(report) = Report::read(&text) else { return };
        self.status.get_or_insert(match report {
            Report::Exited(code) => Ending::Exited { code },
            Report::Signal(signal) => Ending::Signalled { signal },
            Report::NotStarted(number) => {
                let program = self.supervisor.spec.argv.first().map_or("", String::as_str);
                self.supervisor.explain(program, &io::Error::from_raw_os_error(number))
            }
            Report::NoWall(why) => Ending::NotStarted {
                why: format!("cannot set up the sandbox: {why}"),
                not_found: false,
            },
        });
    }

    /// Without the processes that are the wall's: the one we started, and the first one behind it.
    fn without_scaffold(&self, mut tree: Vec<u32>) -> Vec<u32> {
        if self.scaffold {
            let walls = |pid: u32| {
                pid == self.pid
                    || matches!(tree::process(pid), Ok(Some(p)) if p.parent == self.pid)
                    || is_first(pid)
            };
            tree.retain(|pid| !walls(*pid));
        }
        tree
    }
}

/// Whether the process is the first one of a namespace.
fn is_first(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| {
        let mut ids = ids.split_ascii_whitespace();
        ids.next_back() == Some("1") && ids.next().is_some()
    })
}

fn in_group(pid: u32, group: u32) -> bool {
    matches!(tree::process(pid), Ok(Some(p)) if p.group == group)
}

fn natural(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Exited { code },
        (None, Some(signal)) => Ending::Signalled { signal },
        // A status that is neither cannot come from a dead process.
        (None, None) => Ending::Stopped,
    }
}

impl Source {
    /// Reads a turn; true if anything came.
    fn read(
        &mut self,
        chunk: &mut [u8],
        ms: u64,
        log: &mut Writer,
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
