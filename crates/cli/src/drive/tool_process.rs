//! The tool's process: started in a group of its own, written to and read from by threads of their own,
//! so that neither side can block the other; ended step by step.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::time::{Duration, Instant};

use mainstem_agents::DriveSpec;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{DriveError, line_reader, overlay, program};

/// Lines that may wait to be read. Few, because one may be long.
const WAITING: usize = 4;

pub(super) enum DriveEvent {
    /// A line of standard output, without its end.
    Line(Vec<u8>),
    /// A line of standard error.
    Complaint(Vec<u8>),
    /// We were asked to end.
    Stop,
}

pub(super) struct ToolProcess {
    child: std::process::Child,
    input: Option<Sender<String>>,
    pub(super) events: Receiver<DriveEvent>,
    /// When it was first seen gone, and its exit code.
    gone: Option<(Instant, Option<i32>)>,
}

impl ToolProcess {
    pub(super) fn start(spec: &DriveSpec) -> Result<Self, DriveError> {
        let found = program::find_program(&spec.program).ok_or_else(|| DriveError::NotFound {
            program: spec.program.clone(),
            agent: spec.agent.clone(),
        })?;
        let mut command = Command::new(&found);
        command
            .args(&spec.args)
            .current_dir(&spec.workspace)
            .env("PWD", &spec.workspace)
            .envs(spec.set.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.envs(&spec.as_root);
        }
        if let Some(overlay) = &spec.overlay {
            let path = &overlay.home;
            overlay::create_overlay(overlay)
                .map_err(|cause| DriveError::Prepare { path: path.clone(), cause })?;
            command.env(&overlay.variable, path);
        }
        let failed = |cause| DriveError::Start { program: found.display().to_string(), cause };
        let (sender, events) = mpsc::sync_channel(WAITING);
        // Before the start: whoever sees the tool may ask us to end.
        forward_signals(sender.clone()).map_err(failed)?;
        let mut child = command.spawn().map_err(failed)?;
        if let Some(pipe) = child.stdout.take() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                line_reader::read_lines(pipe, |line| sender.send(DriveEvent::Line(line)).is_ok());
            });
        }
        if let Some(pipe) = child.stderr.take() {
            std::thread::spawn(move || {
                line_reader::read_lines(pipe, |line| {
                    sender.send(DriveEvent::Complaint(line)).is_ok()
                });
            });
        }
        let input = child.stdin.take().map(spawn_writer);
        Ok(Self { child, input, events, gone: None })
    }

    pub(super) fn send_line(&mut self, line: String) {
        if let Some(input) = &self.input {
            // A tool that is gone is noticed elsewhere.
            let _ = input.send(line);
        }
    }

    /// What was sent is still written before the pipe is closed.
    pub(super) fn close_input(&mut self) {
        self.input = None;
    }

    /// Its exit code once it has been gone for this long, so that its last words have arrived.
    pub(super) fn exited_for(&mut self, drain: Duration) -> Option<Option<i32>> {
        if self.gone.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.gone = Some((Instant::now(), status.code()));
        }
        self.gone.filter(|(since, _)| since.elapsed() >= drain).map(|(_, code)| code)
    }

    pub(super) fn request_termination(&self) {
        self.send_signal(Signal::TERM);
    }

    /// Ends it: its input is closed, then it is asked, then killed. What it printed meanwhile is dropped.
    pub(super) fn terminate(&mut self, farewell: Duration, grace: Duration) {
        self.close_input();
        if self.exits_within(farewell) {
            return;
        }
        self.request_termination();
        if self.exits_within(grace) {
            return;
        }
        self.send_signal(Signal::KILL);
        let _ = self.child.wait();
    }

    fn exits_within(&mut self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            if self.exited_for(Duration::ZERO).is_some() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Its pipes are emptied, so that it can end.
            let _ = self.events.recv_timeout(left.min(Duration::from_millis(20)));
        }
    }

    fn send_signal(&self, signal: Signal) {
        // Only we wait for it, so that its number is its own until we have.
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.gone.is_none()) {
            let _ = kill_process_group(pid, signal);
        }
    }
}

/// Writes lines in a thread of its own: a tool that does not read must not keep us from reading.
fn spawn_writer(mut pipe: std::process::ChildStdin) -> Sender<String> {
    let (sender, lines) = mpsc::channel::<String>();
    std::thread::spawn(move || {
        for mut line in lines {
            line.push('\n');
            if pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

/// Turns signals to us into events.
fn forward_signals(events: SyncSender<DriveEvent>) -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if events.send(DriveEvent::Stop).is_err() {
                return;
            }
        }
    });
    Ok(())
}
