//! The process table, as far as it concerns one stage.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::ChaosFixture;

/// What a process of a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChaosProcessKind {
    /// The product at work.
    Engine,
    /// The product supervising a job.
    Supervisor,
    /// An agent, a gate, or what they left.
    Agent,
    /// Git, whoever started it.
    Git,
    /// Something else that lives here.
    Other,
}

/// A process of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaosProcess {
    pub pid: i32,
    pub parent: i32,
    pub kind: ChaosProcessKind,
    pub command: String,
}

impl ChaosProcess {
    /// Sends a signal; one that has gone needs none.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All processes whose command line, environment or folder leads to the stage, but for us.
pub fn of(stage: &ChaosFixture) -> Vec<ChaosProcess> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id().to_string();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| *name != own && name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|pid| look(stage, &pid))
        .collect()
}

fn look(stage: &ChaosFixture, pid: &str) -> Option<ChaosProcess> {
    let proc = Path::new("/proc").join(pid);
    let command = fs::read(proc.join("cmdline")).ok()?;
    // Gone but not waited for: nothing is left of it.
    if command.is_empty() {
        return None;
    }
    let environ = fs::read(proc.join("environ")).unwrap_or_default();
    let cwd = fs::read_link(proc.join("cwd")).unwrap_or_default();
    let marks = [stage.place().as_os_str().as_bytes(), stage.outside.as_os_str().as_bytes()];
    let here = marks.iter().any(|mark| {
        [&command[..], &environ[..], cwd.as_os_str().as_bytes()]
            .iter()
            .any(|bytes| bytes.windows(mark.len()).any(|window| window == *mark))
    });
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    // What serves the remote runs on another machine: it outlives whoever pushes.
    let serves = cwd.starts_with(stage.remote())
        || ["receive-pack", "upload-pack"].iter().any(|name| command.contains(name));
    if !here || serves || command.contains("mainstem-oracle") {
        return None;
    }
    let exe = fs::read_link(proc.join("exe")).unwrap_or_default();
    let name = exe.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = if command.contains("__supervise") {
        ChaosProcessKind::Supervisor
    } else if name == "mainstem" {
        ChaosProcessKind::Engine
    } else if name == "chaos-agent" {
        ChaosProcessKind::Agent
    } else if name.starts_with("git") {
        ChaosProcessKind::Git
    } else {
        ChaosProcessKind::Other
    };
    let stat = fs::read_to_string(proc.join("stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some(ChaosProcess { pid: pid.parse().ok()?, parent, kind, command })
}
