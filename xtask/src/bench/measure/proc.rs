//! What the system says about processes (`/proc`), and ending the ones a bench left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How often a running process is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Processor time of a process and of those it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cpu {
    /// Its own, user and system, in seconds.
    pub(super) own: f64,
    /// Of children that were waited for.
    pub(super) children: f64,
}

/// One line of `/proc/<pid>/stat`: the state's letter and the processor time.
pub(super) fn stat(pid: u32) -> Option<(char, Cpu)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<(char, Cpu)> {
    // The name before may hold anything, blanks and brackets too.
    let rest = line.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let hertz = rustix::param::clock_ticks_per_second() as f64;
    let own = (ticks(14)? + ticks(15)?) / hertz;
    let children = (ticks(16)? + ticks(17)?) / hertz;
    Some((fields.first()?.chars().next()?, Cpu { own, children }))
}

/// Processor time of this process so far.
pub(super) fn own_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What something costs this process in processor time.
pub(super) fn cost<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = own_cpu();
    let done = work();
    (done, own_cpu().saturating_sub(before))
}

/// A line of `/proc/<pid>/status` that counts kibibytes, such as `VmRSS` and `VmHWM`, in mebibytes.
pub(super) fn mebibytes(pid: u32, name: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Folders and files that a process watches with inotify.
pub(super) fn watches(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.map(|text| text.lines().filter(|line| line.starts_with("inotify wd:")).count()).sum()
}

/// What one process came to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// From start to end.
    pub(super) wall: Duration,
    pub(super) cpu: Cpu,
    /// Most memory at once, in mebibytes.
    pub(super) peak: f64,
    pub(super) ok: bool,
}

/// Runs a command to its end and looks at it meanwhile.
pub(super) fn spend(command: &mut Command) -> Result<Spent, String> {
    let begun = Instant::now();
    let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
    watch(child, begun)
}

/// Waits for the end of a child. It is reaped only after its last numbers were read.
pub(super) fn watch(mut child: Child, begun: Instant) -> Result<Spent, String> {
    let pid = child.id();
    let (mut peak, mut cpu) = (0.0, Cpu::default());
    loop {
        let seen = stat(pid).ok_or_else(|| format!("process {pid} cannot be seen in /proc"))?;
        cpu = if seen.1.own >= cpu.own { seen.1 } else { cpu };
        if seen.0 == 'Z' {
            break;
        }
        peak = mebibytes(pid, "VmHWM").unwrap_or(peak);
        std::thread::sleep(LOOK_EVERY);
    }
    let wall = begun.elapsed();
    let status = child.wait().map_err(|error| format!("process {pid} was lost: {error}"))?;
    Ok(Spent { wall, cpu, peak, ok: status.success() })
}

/// Processes that work in a folder or name it on their command line; never this one.
pub(super) fn below(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let name = folder.as_os_str().as_encoded_bytes();
    let ours = std::process::id();
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|pid| *pid != ours && !matches!(stat(*pid), None | Some(('Z', _))))
        .filter(|pid| {
            let at = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_else(|_| PathBuf::new());
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            at.starts_with(folder) || words.windows(name.len()).any(|window| window == name)
        })
        .collect()
}

/// Ends processes, each by its number.
pub(super) fn end_all(pids: &[u32]) {
    for pid in pids {
        end(*pid);
    }
}

/// Ends one process; one that is gone already is just as well.
pub(super) fn end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The load averages, for the reader of a result.
pub(super) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let three: Vec<&str> = text.split_whitespace().take(3).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} on {cores} cores", three.join(" "))
}

/// Waits until something holds; false if it did not within the time.
pub(super) fn wait_until(deadline: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if begun.elapsed() > deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let line = "7 (a) b) (c) S 1 7 7 0 -1 0 1 2 3 4 150 50 30 10 20 0 1 0 1";
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let (state, cpu) = parse_stat(line).unwrap();
        assert_eq!(state, 'S');
        assert_eq!(cpu, Cpu { own: 200.0 / hertz, children: 40.0 / hertz });
    }

    #[test]
    fn a_command_is_measured_to_its_end() {
        let spent = spend(Command::new("sh").args(["-c", "exec sleep 0.1"])).unwrap();
        assert!(spent.ok && spent.wall >= Duration::from_millis(100), "{spent:?}");
        assert!(spent.peak > 0.0, "{spent:?}");
    }

    #[test]
    fn a_process_is_found_by_the_folder_it_works_in() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let mut child = Command::new("sleep").arg("600").current_dir(&folder).spawn().unwrap();
        let found = wait_until(Duration::from_secs(60), || below(&folder) == [child.id()]);
        end(child.id());
        child.wait().unwrap();
        assert!(found);
        assert_eq!(below(&folder), [0; 0]);
    }
}
