//! The process table as Linux shows it in `/proc`, the reaper of orphans, and who waits for input.
//! Knows nothing of jobs.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use super::{ProcessEntry, select_descendants};

/// Orphans of this process's tree become its children, so it can see when all are dead.
pub(in crate::process) const REAPS_ORPHANS: bool = true;

/// Makes this process the parent of every orphan below it.
pub(in crate::process) fn become_reaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The identity of this boot; empty where the system has none.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// The process with this id now; `None` if there is none.
pub(in crate::process) fn find_process(pid: u32) -> io::Result<Option<ProcessEntry>> {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => Ok(parse_stat(pid, &stat)),
        Err(e) if is_vanished_error(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_vanished_error(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound
        || e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn parse_stat(pid: u32, stat: &[u8]) -> Option<ProcessEntry> {
    // The command's name may hold anything, also parentheses and newlines: look for the last one.
    let end = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(ProcessEntry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        zombie: matches!(*fields.first()?, "Z" | "X"),
        start_time: fields.get(19)?.parse().ok()?,
    })
}

/// The whole process table.
pub(super) fn read_process_table() -> io::Result<Vec<ProcessEntry>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|n| n.parse().ok())
            && let Some(process) = find_process(pid)?
        {
            all.push(process);
        }
    }
    Ok(all)
}

/// Every process below `root`, parents first. May miss one that is just being born: ask again.
pub(super) fn list_descendants(root: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        match list_children(pid) {
            Some(children) => {
                for child in children {
                    if seen.insert(child) {
                        found.push(child);
                        next.push(child);
                    }
                }
            }
            // A process that ended has no children; a kernel without the list shows none at all.
            None if pid == root => return Ok(select_descendants(&read_process_table()?, &[root])),
            None => {}
        }
    }
    Ok(found)
}

fn list_children(pid: u32) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let list = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        all.extend(list.split_ascii_whitespace().filter_map(|c| c.parse::<u32>().ok()));
    }
    Some(all)
}

/// Living processes whose program's name begins so, with their start; `None`: this system does not tell.
pub(crate) fn find_processes_named(prefix: &[u8]) -> io::Result<Option<Vec<(u32, u64)>>> {
    let called = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(prefix))
    };
    let living = read_process_table()?.into_iter().filter(|p| !p.zombie && called(p.pid));
    Ok(Some(living.map(|p| (p.pid, p.start_time)).collect()))
}

/// Where a process is, its arguments and its environment; `None` if it does not show them, or is gone.
pub(crate) fn read_process_environment(pid: u32) -> Option<(PathBuf, Vec<u8>, Vec<u8>)> {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    Some((cwd, read("cmdline")?, read("environ")?))
}

/// Those of the table whose environment holds `pair`.
pub(super) fn select_with_variable(
    table: &[ProcessEntry],
    pair: &[u8],
) -> io::Result<HashSet<u32>> {
    let has = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&b| b == 0).any(|found| found == pair))
    };
    Ok(table.iter().map(|p| p.pid).filter(|pid| has(*pid)).collect())
}

/// The memory of these processes that nobody could take away from them, in bytes. Pages that they
/// share are counted once, but only when the cheap sum, which counts them often, is above `enough`.
pub(in crate::process) fn sum_private_memory(pids: &[u32], enough: u64) -> u64 {
    let rough: u64 =
        pids.iter().map(|&pid| sum_memory_fields(pid, "status", &["VmRSS:", "VmSwap:"])).sum();
    if rough <= enough {
        return rough;
    }
    let exact = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
    let one = |&pid: &u32| {
        // Kernels before 5.4 do not split the sum; others' processes do not show it.
        match sum_memory_fields(pid, "smaps_rollup", &exact) {
            0 => sum_memory_fields(pid, "status", &["RssAnon:", "RssShmem:", "VmSwap:"]),
            bytes => bytes,
        }
    };
    pids.iter().map(one).sum()
}

/// The sum of some `Name: n kB` lines of a file of a process; 0 if it is gone.
fn sum_memory_fields(pid: u32, file: &str, names: &[&str]) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let kib = |line: &str| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
    text.lines().filter(wanted).filter_map(kib).sum::<u64>() * 1024
}

/// A thread that waits for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::process) struct WaitingThread {
    task: PathBuf,
    call: String,
    /// It is inside `read` on this very file, so an end of file reaches it for certain.
    pub(in crate::process) reading: bool,
}

impl WaitingThread {
    /// Whether the thread still sits in the same call.
    pub(in crate::process) fn is_still_waiting(&self) -> bool {
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

/// The threads below `root`, but those of `besides`, that wait for `file`; `None` if this system does not
/// tell.
pub(in crate::process) fn find_waiting_threads(
    root: u32,
    besides: Option<u32>,
    file: (u64, u64),
) -> Option<Vec<WaitingThread>> {
    std::fs::metadata("/proc/self/syscall").ok()?;
    let mut found = Vec::new();
    for pid in list_descendants(root).ok()?.into_iter().filter(|pid| Some(*pid) != besides) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for task in tasks.flatten().map(|t| t.path()) {
            match std::fs::read_to_string(task.join("syscall")) {
                Ok(call) => found.extend(classify_syscall(pid, task, call, file)),
                Err(e) if is_vanished_error(&e) => {}
                Err(_) => return None,
            }
        }
    }
    Some(found)
}

fn classify_syscall(
    pid: u32,
    task: PathBuf,
    call: String,
    file: (u64, u64),
) -> Option<WaitingThread> {
    let mut fields = call.split_ascii_whitespace();
    let number: u32 = fields.next()?.parse().ok()?;
    if calls::READ.contains(&number) {
        let fd = fields.next()?.strip_prefix("0x").and_then(|h| u64::from_str_radix(h, 16).ok())?;
        return descriptor_refers_to(pid, fd, file).then_some(WaitingThread {
            task,
            call,
            reading: true,
        });
    }
    let waits = calls::WAIT.contains(&number)
        && (descriptor_refers_to(pid, 0, file)
            || list_descriptors(pid).any(|fd| descriptor_refers_to(pid, fd, file)));
    waits.then_some(WaitingThread { task, call, reading: false })
}

fn list_descriptors(pid: u32) -> impl Iterator<Item = u64> {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok()))
}

fn descriptor_refers_to(pid: u32, fd: u64, file: (u64, u64)) -> bool {
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
    fn memory_is_the_cheap_sum_below_the_limit_and_the_exact_one_above() {
        let me = std::process::id();
        let rough = sum_private_memory(&[me, me], u64::MAX);
        let exact = sum_private_memory(&[me, me], 0);
        assert!(exact > 0 && exact < rough, "{exact} {rough}");
        assert_eq!(sum_private_memory(&[u32::MAX], 0), 0);
    }
}
