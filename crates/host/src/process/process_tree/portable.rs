//! The process table where there is no `/proc`: what `ps` says. Orphans go to the system's first process,
//! so a tree is found by group, descent and mark only. Knows nothing of jobs.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{ProcessEntry, select_descendants};

/// Orphans are lost from sight: that nobody is our child does not mean that all are dead.
pub(in crate::process) const REAPS_ORPHANS: bool = false;

/// `ps` arguments that list every process with its environment.
#[cfg(target_os = "macos")]
const ENVIRONMENT: &[&str] = &["-A", "-E", "-ww", "-o", "pid=,command="];
/// `ps` arguments that list every process with its environment.
#[cfg(not(target_os = "macos"))]
const ENVIRONMENT: &[&str] = &["axeww", "-o", "pid=,command="];

/// Field names that every `ps` knows; the start comes last because it holds spaces.
const FIELDS: &str = "pid=,ppid=,pgid=,sess=,stat=,rss=,lstart=";

/// There is no such thing here.
#[expect(clippy::unnecessary_wraps, reason = "the same face as on Linux, where it can fail")]
pub(in crate::process) fn become_reaper() -> io::Result<()> {
    Ok(())
}

/// The identity of this boot; empty where the system has none.
pub(crate) fn boot_id() -> String {
    #[cfg(target_os = "macos")]
    let id = run_program("/usr/sbin/sysctl", &["-n", "kern.bootsessionuuid"]).map(|(text, _)| text);
    #[cfg(not(target_os = "macos"))]
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Runs a program in plain English and UTC; its output, and its own pid, which is in the list too.
fn run_program(program: &str, args: &[&str]) -> io::Result<(String, u32)> {
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let pid = child.id();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_end(&mut out)?;
    }
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_end(&mut err)?;
    }
    let status = child.wait()?;
    // No process to show is exit code 1 without a word; anything else that is not 0 is a failure.
    let none = status.code() == Some(1) && out.is_empty() && err.is_empty();
    if !status.success() && !none {
        let why = String::from_utf8_lossy(&err);
        return Err(io::Error::other(format!("{program} failed ({status}): {}", why.trim())));
    }
    Ok((String::from_utf8_lossy(&out).into_owned(), pid))
}

/// The process with this id now; `None` if there is none.
pub(in crate::process) fn find_process(pid: u32) -> io::Result<Option<ProcessEntry>> {
    let (text, _) = run_program("ps", &["-p", &pid.to_string(), "-o", FIELDS])?;
    Ok(text.lines().find_map(parse_ps_line).map(|(process, _)| process))
}

/// The whole process table.
pub(super) fn read_process_table() -> io::Result<Vec<ProcessEntry>> {
    Ok(list_processes()?.into_iter().map(|(process, _)| process).collect())
}

fn list_processes() -> io::Result<Vec<(ProcessEntry, u64)>> {
    let (text, own) = run_program("ps", &["-A", "-o", FIELDS])?;
    Ok(text.lines().filter_map(parse_ps_line).filter(|(p, _)| p.pid != own).collect())
}

/// One line of the list, and how many bytes the process has in memory.
fn parse_ps_line(line: &str) -> Option<(ProcessEntry, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [pid, parent, group, sess, stat, rss, _weekday, month, day, time, year] = fields[..] else {
        return None;
    };
    let pid: u32 = pid.parse().ok()?;
    let process = ProcessEntry {
        pid,
        parent: parent.parse().ok()?,
        group: group.parse().ok()?,
        session: find_session_id(pid, sess),
        zombie: stat.starts_with('Z'),
        start_time: date_to_number(month, day, time, year)?,
    };
    Some((process, rss.parse::<u64>().ok()? * 1024))
}

/// The session of a process; 0 if it cannot be known. The `ps` of macOS shows an address instead.
#[cfg(target_os = "macos")]
fn find_session_id(pid: u32, _shown: &str) -> u32 {
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let session = raw.and_then(|pid| rustix::process::getsid(Some(pid)).ok());
    session.map_or(0, |session| session.as_raw_nonzero().get().unsigned_abs())
}

/// The session of a process; 0 if it cannot be known.
#[cfg(not(target_os = "macos"))]
fn find_session_id(_pid: u32, shown: &str) -> u32 {
    shown.parse().unwrap_or(0)
}

/// A number that grows with the date; only compared, never taken for a time.
fn date_to_number(month: &str, day: &str, time: &str, year: &str) -> Option<u64> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = u64::try_from(MONTHS.find(month)? / 3).ok()?;
    let day: u64 = day.parse().ok()?;
    let year: u64 = year.parse().ok()?;
    let mut clock = 0;
    for part in time.split(':') {
        clock = clock * 60 + part.parse::<u64>().ok()?;
    }
    Some(((year * 12 + month) * 32 + day) * 86_400 + clock)
}

/// Every process below `root`. May miss one that is just being born: ask again.
pub(super) fn list_descendants(root: u32) -> io::Result<Vec<u32>> {
    Ok(select_descendants(&read_process_table()?, &[root]))
}

/// Those of the table whose environment holds `pair`, as far as the system shows it.
pub(super) fn select_with_variable(
    table: &[ProcessEntry],
    pair: &[u8],
) -> io::Result<HashSet<u32>> {
    let pair = format!(" {}", String::from_utf8_lossy(pair));
    let (text, _) = run_program("ps", ENVIRONMENT)?;
    let mut found = HashSet::new();
    for line in text.lines() {
        let line = line.trim_start();
        let has = line.match_indices(&pair).any(|(at, _)| {
            let rest = &line[at + pair.len()..];
            rest.is_empty() || rest.starts_with(' ')
        });
        if has {
            found.extend(line.split(' ').next().and_then(|pid| pid.parse::<u32>().ok()));
        }
    }
    found.retain(|pid| table.iter().any(|p| p.pid == *pid));
    Ok(found)
}

/// The memory of these processes, in bytes; what they share counts for each.
pub(in crate::process) fn sum_private_memory(pids: &[u32], _enough: u64) -> u64 {
    let listed = list_processes().unwrap_or_default();
    listed.iter().filter(|(p, _)| pids.contains(&p.pid)).map(|(_, bytes)| bytes).sum()
}

/// A thread that waits for input; nobody can be seen waiting here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::process) struct WaitingThread {
    /// It is inside `read`.
    pub(in crate::process) reading: bool,
}

impl WaitingThread {
    /// Whether the thread still sits in the same call.
    pub(in crate::process) fn is_still_waiting(&self) -> bool {
        self.reading
    }
}

/// Living processes whose program's name begins so, with their start; `None`: this system does not tell.
#[expect(clippy::unnecessary_wraps, reason = "the same face as on Linux, where it can fail")]
pub(crate) fn find_processes_named(_prefix: &[u8]) -> io::Result<Option<Vec<(u32, u64)>>> {
    Ok(None)
}

/// Where a process is, its arguments and its environment; `None` if it does not show them, or is gone.
pub(crate) fn read_process_environment(_pid: u32) -> Option<(PathBuf, Vec<u8>, Vec<u8>)> {
    None
}

/// The threads below `root` that wait for `file`; `None`: this system does not tell.
pub(in crate::process) fn find_waiting_threads(
    _root: u32,
    _besides: Option<u32>,
    _file: (u64, u64),
) -> Option<Vec<WaitingThread>> {
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_line_of_ps_is_read_and_a_later_start_is_a_larger_number() {
        let me = std::process::id();
        let line = format!("  {me}     1 77 77 Ss+   2048 Fri Jan  2 03:04:05 2026");
        let (p, rss) = parse_ps_line(&line).unwrap();
        assert_eq!((p.pid, p.parent, p.group, p.zombie, rss), (me, 1, 77, false, 2048 * 1024));
        let later = line.replace("Fri Jan  2 03:04:05", "Sat Jan 31 00:00:00");
        assert!(parse_ps_line(&later).unwrap().0.start_time > p.start_time);
        assert!(
            parse_ps_line(&later.replace("Jan 31", "Feb  1")).unwrap().0.start_time > p.start_time
        );
        assert_eq!(parse_ps_line("nonsense"), None);
        assert!(find_process(u32::from(u16::MAX) << 14).unwrap().is_none());
    }
}
