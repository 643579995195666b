//! Finds and signals processes: by identity, by descent, by mark. Linux reads `/proc`; elsewhere `ps` is
//! asked, which does not find a process that left the group, lost its parents and dropped the mark.
//! Knows nothing of jobs beyond the mark in their environment.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
use linux as system;
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
use portable as system;

pub(super) use system::{
    REAPS_ORPHANS, WaitingThread, become_reaper, find_process, find_waiting_threads,
    sum_private_memory,
};
pub(crate) use system::{boot_id, find_processes_named, read_process_environment};

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) zombie: bool,
    pub(super) start_time: u64,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalOutcome {
    Delivered,
    Gone,
    Denied,
}

/// Sends a signal to one process.
pub(super) fn signal_process(pid: u32, signal: Signal) -> SignalOutcome {
    let Some(pid) = to_pid(pid) else { return SignalOutcome::Gone };
    match kill_process(pid, signal) {
        Ok(()) => SignalOutcome::Delivered,
        Err(rustix::io::Errno::PERM) => SignalOutcome::Denied,
        Err(_) => SignalOutcome::Gone,
    }
}

/// Sends a signal to a process group; a group that is gone is no error.
pub(super) fn signal_process_group(leader: u32, signal: Signal) {
    if let Some(pid) = to_pid(leader) {
        let _ = kill_process_group(pid, signal);
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// When the process started, in ticks of the system's own; 0 where this cannot be known.
pub(super) fn process_start_time(pid: u32) -> u64 {
    find_process(pid).ok().flatten().map_or(0, |p| p.start_time)
}

/// Whether this process is still the one that started then (dead ones that nobody reaped are not).
pub(crate) fn is_same_process(pid: u32, start_time: u64) -> bool {
    matches!(find_process(pid), Ok(Some(p)) if p.start_time == start_time && !p.zombie)
}

fn select_descendants(table: &[ProcessEntry], roots: &[u32]) -> Vec<u32> {
    let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
    for p in table {
        by_parent.entry(p.parent).or_default().push(p.pid);
    }
    let mut found = Vec::new();
    let mut seen: HashSet<u32> = roots.iter().copied().collect();
    let mut next = roots.to_vec();
    while let Some(pid) = next.pop() {
        for &child in by_parent.get(&pid).into_iter().flatten() {
            if seen.insert(child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

/// The living processes of the job that this process supervises.
pub(super) fn list_supervised_processes(dir: &Path, pids: &super::JobPids) -> io::Result<Vec<u32>> {
    if !REAPS_ORPHANS {
        return list_leftover_processes(dir, Some(pids));
    }
    let mut all = system::list_descendants(std::process::id())?;
    all.retain(|&pid| matches!(find_process(pid), Ok(Some(p)) if !p.zombie));
    Ok(all)
}

/// What is left of a job whose supervisor is gone: the recorded processes if they are still the same ones,
/// the command's group, everything below, and everything that carries the job's mark.
pub(super) fn list_leftover_processes(
    dir: &Path,
    pids: Option<&super::JobPids>,
) -> io::Result<Vec<u32>> {
    use std::os::unix::ffi::OsStrExt;
    let table = system::read_process_table()?;
    let same_boot = pids.filter(|p| p.boot_id == boot_id());
    let me = std::process::id();
    let recorded = |p: &ProcessEntry| {
        same_boot.is_some_and(|ids| {
            let is = |pid: Option<u32>, start: Option<u64>| {
                Some(p.pid) == pid && Some(p.start_time) == start
            };
            is(Some(ids.pid), Some(ids.start_time))
                || is(ids.agent_pid, ids.agent_start_time)
                // Both numbers may have been reused by now, but hardly as the same pair.
                || (p.session == ids.pid && Some(p.group) == ids.agent_pid)
        })
    };
    let mark = [super::JOB_MARK.as_bytes(), b"=", dir.as_os_str().as_bytes()].concat();
    let marked = system::select_with_variable(&table, &mark)?;
    let roots: Vec<u32> =
        table.iter().filter(|p| recorded(p) || marked.contains(&p.pid)).map(|p| p.pid).collect();
    let mut all = select_descendants(&table, &roots);
    all.extend(roots);
    let zombies: HashSet<u32> = table.iter().filter(|p| p.zombie).map(|p| p.pid).collect();
    all.retain(|pid| *pid != me && !zombies.contains(pid));
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn this_process_is_itself_and_not_a_later_one() {
        let me = find_process(std::process::id()).unwrap().unwrap();
        assert!(is_same_process(me.pid, me.start_time));
        assert!(!is_same_process(me.pid, me.start_time + 1));
        assert!(system::read_process_table().unwrap().iter().any(|p| p.pid == me.pid));
    }

    #[test]
    fn a_child_is_found_below_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(system::list_descendants(std::process::id()).unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
