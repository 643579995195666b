//! Finds and signals processes: by identity, by descent, by mark. Linux reads `/proc`; elsewhere only the
//! command's own process group can be reached, which does not contain processes that leave it.
//! Knows nothing of jobs beyond the mark in their environment.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) zombie: bool,
    pub(super) start_time: u64,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Delivered,
    Gone,
    Denied,
}

/// Sends a signal to one process.
pub(super) fn signal(pid: u32, signal: Signal) -> Sent {
    let Some(pid) = to_pid(pid) else { return Sent::Gone };
    match kill_process(pid, signal) {
        Ok(()) => Sent::Delivered,
        Err(rustix::io::Errno::PERM) => Sent::Denied,
        Err(_) => Sent::Gone,
    }
}

/// Sends a signal to a process group; a group that is gone is no error.
pub(super) fn signal_group(leader: u32, signal: Signal) {
    if let Some(pid) = to_pid(leader) {
        let _ = kill_process_group(pid, signal);
    }
}

fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The identity of this boot; empty where the system has none.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// The process with this id now; `None` if there is none.
pub(super) fn process(pid: u32) -> io::Result<Option<Process>> {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_stat(pid, &stat)),
        Err(e) if vanished(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// When the process started, in ticks since boot; 0 where this cannot be known.
pub(super) fn start_time(pid: u32) -> u64 {
    process(pid).ok().flatten().map_or(0, |p| p.start_time)
}

/// Whether this process is still the one that started then (dead ones that nobody reaped are not).
pub(super) fn is_same(pid: u32, start_time: u64) -> bool {
    matches!(process(pid), Ok(Some(p)) if p.start_time == start_time && !p.zombie)
}

fn vanished(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound
        || e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn parse_stat(pid: u32, stat: &[u8]) -> Option<Process> {
    // The command's name may hold anything, also parentheses and newlines: look for the last one.
    let end = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// The whole process table.
pub(super) fn table() -> io::Result<Vec<Process>> {
    if !cfg!(target_os = "linux") {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|n| n.parse().ok())
            && let Some(process) = process(pid)?
        {
            all.push(process);
        }
    }
    Ok(all)
}

/// Every process below `root`, parents first. May miss one that is just being born: ask again.
pub(super) fn descendants(root: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        match children(pid) {
            Some(children) => {
                for child in children {
                    if seen.insert(child) {
                        found.push(child);
                        next.push(child);
                    }
                }
            }
            // A process that ended has no children; a kernel without the list shows none at all.
            None if pid == root => return below(&table().unwrap_or_default(), &[root]),
            None => {}
        }
    }
    found
}

fn children(pid: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let list = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        all.extend(list.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()));
    }
    Some(all)
}

fn below(table: &[Process], roots: &[u32]) -> Vec<u32> {
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

/// What is left of a job whose supervisor is gone: the recorded processes if they are still the same ones,
/// the command's group, everything below, and everything that carries the job's mark.
pub(super) fn remains(dir: &Path, pids: Option<&super::Pids>) -> io::Result<Vec<u32>> {
    let table = table()?;
    let same_boot = pids.filter(|p| p.boot_id == boot_id());
    let me = std::process::id();
    let recorded = |p: &Process| {
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
    let roots: Vec<u32> =
        table.iter().filter(|p| recorded(p) || has_mark(p.pid, dir)).map(|p| p.pid).collect();
    let mut all = below(&table, &roots);
    all.extend(roots);
    let zombies: HashSet<u32> = table.iter().filter(|p| p.zombie).map(|p| p.pid).collect();
    all.retain(|pid| *pid != me && !zombies.contains(pid));
    Ok(all)
}

fn has_mark(pid: u32, dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environ.split(|&b| b == 0).any(|pair| {
        pair.strip_prefix(super::JOB_MARK.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            .is_some_and(|value| value == dir.as_os_str().as_bytes())
    })
}

/// A thread that waits for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    task: PathBuf,
    call: String,
    /// It is inside `read` on this very file, so an end of file reaches it for certain.
    pub(super) reading: bool,
}

impl Waiting {
    /// Whether the thread still sits in the same call.
    pub(super) fn still(&self) -> bool {
        std::fs::read_to_string(self.task.join("syscall")).is_ok_and(|call| call == self.call)
    }
}

#[cfg(target_arch = "x86_64")]
mod calls {
    /// read, readv, splice, tee: the file is the first argument.
    pub(super) const READ: [u32; 4] = [0, 19, 275, 276];
    /// poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, io_uring_enter, epoll_pwait2.
    pub(super) const WAIT: [u32; 8] = [7, 23, 232, 270, 271, 281, 426, 441];
}
#[cfg(not(target_arch = "x86_64"))]
mod calls {
    /// read, readv, splice, tee: the file is the first argument.
    pub(super) const READ: [u32; 4] = [63, 65, 76, 77];
    /// epoll_pwait, pselect6, ppoll, io_uring_enter, epoll_pwait2.
    pub(super) const WAIT: [u32; 5] = [22, 72, 73, 426, 441];
}

/// The threads below `root` that wait for `file`; `None` if this system does not tell.
pub(super) fn waiting(root: u32, file: (u64, u64)) -> Option<Vec<Waiting>> {
    std::fs::metadata("/proc/self/syscall").ok()?;
    let mut found = Vec::new();
    for pid in descendants(root) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten().map(|t| t.path()) {
            match std::fs::read_to_string(task.join("syscall")) {
                Ok(call) => found.extend(classify(pid, task, call, file)),
                Err(e) if vanished(&e) => {}
                Err(_) => return None,
            }
        }
    }
    Some(found)
}

fn classify(pid: u32, task: PathBuf, call: String, file: (u64, u64)) -> Option<Waiting> {
    let mut fields = call.split_ascii_whitespace();
    let number: u32 = fields.next()?.parse().ok()?;
    if calls::READ.contains(&number) {
        let fd = fields.next()?.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok())?;
        return refers(pid, fd, file).then_some(Waiting { task, call, reading: true });
    }
    let waits = calls::WAIT.contains(&number)
        && (refers(pid, 0, file) || descriptors(pid).any(|fd| refers(pid, fd, file)));
    waits.then_some(Waiting { task, call, reading: false })
}

fn descriptors(pid: u32) -> impl Iterator<Item = u64> {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok()))
}

fn refers(pid: u32, fd: u64, file: (u64, u64)) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|m| (m.dev(), m.ino()) == file)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let stat = b"42 (a) b) (c) S 7 8 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n";
        let p = parse_stat(42, stat).unwrap();
        assert_eq!((p.parent, p.group, p.session, p.start_time), (7, 8, 9, 777));
        assert!(!p.zombie);
        assert!(parse_stat(42, b"42 (cut").is_none());
    }

    #[test]
    fn this_process_is_itself_and_not_a_later_one() {
        let me = process(std::process::id()).unwrap().unwrap();
        assert!(is_same(me.pid, me.start_time));
        assert!(!is_same(me.pid, me.start_time + 1));
    }
}
