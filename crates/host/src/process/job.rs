//! The caller's side of a job: start or attach, ask for its state, stop it, answer it, wait for it.
//! Everything goes through the job's folder. Knows nothing of how the supervisor works inside.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::cgroup::{CgroupHierarchy, JobCgroup};
use super::json_file::{self, WriteDurability};
use super::{
    ANSWERS, EXIT, JobExit, JobPids, JobSpawnError, JobSpec, JobStart, JobState, JobStopMode, LOCK,
    PIDS, SPEC, STARTING, STOP, process_tree,
};
use crate::{fault, lock};

const START_PATIENCE: Duration = Duration::from_secs(30);
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(20);

/// Starts the job in `dir`, or finds that it runs or has ended: calling it twice runs it once.
///
/// Returns when the supervisor is registered and needs the caller no more. `supervisor` is the program
/// and the arguments before the folder.
pub fn start_job(
    dir: &Path,
    spec: &JobSpec,
    supervisor: &[OsString],
) -> Result<JobStart, JobSpawnError> {
    fs::create_dir_all(dir).map_err(JobSpawnError::io("create", dir))?;
    let dir = dir.canonicalize().map_err(JobSpawnError::io("find", dir))?;
    let deadline = Instant::now() + START_PATIENCE;
    let no_answer =
        || JobSpawnError::NoAnswer { dir: dir.clone(), seconds: START_PATIENCE.as_secs() };
    let gate = dir.join(STARTING);
    let gate_lock = lock::lock_file_until(&gate, deadline)
        .map_err(JobSpawnError::io("lock", &gate))?
        .ok_or_else(no_answer)?;
    match read_recorded_state(&dir).map_err(JobSpawnError::io("read the state in", &dir))? {
        JobState::Absent => {}
        JobState::Starting | JobState::Alive(_) => return Ok(JobStart::AlreadyAlive),
        JobState::Ended(exit) => return Ok(JobStart::AlreadyEnded(exit)),
        JobState::Vanished => return Err(JobSpawnError::Vanished { dir }),
    }
    let operation = fault::begin_operation(|| format!("start {}", dir.display()))
        .map_err(JobSpawnError::io("start the job in", &dir))?;
    json_file::write_json(&dir, SPEC, spec, WriteDurability::Unsynced)
        .map_err(JobSpawnError::io("write", &dir.join(SPEC)))?;
    launch_supervisor(&dir, supervisor, gate_lock, deadline)?;
    operation.finish().map_err(JobSpawnError::io("start the job in", &dir))?;
    Ok(JobStart::Started)
}

/// Starts the supervisor and waits for its word. It inherits the gate's lock as its standard input, so
/// that nobody else starts this job in between even if we die now.
fn launch_supervisor(
    dir: &Path,
    supervisor: &[OsString],
    gate: File,
    deadline: Instant,
) -> Result<(), JobSpawnError> {
    let (program, args) = supervisor.split_first().ok_or_else(|| JobSpawnError::Refused {
        dir: dir.to_owned(),
        why: "no supervisor program is given".to_owned(),
    })?;
    let name = program.to_string_lossy().into_owned();
    let failed = |source| JobSpawnError::Supervisor { program: name.clone(), source };
    let journal = dir.join("supervisor.log");
    let stderr = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&journal)
        .map_err(JobSpawnError::io("open", &journal))?;
    let mut child = Command::new(program)
        .args(args)
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::from(gate))
        .stdout(Stdio::piped())
        .stderr(Stdio::from(stderr))
        .spawn()
        .map_err(failed)?;
    let word =
        child.stdout.take().map_or(Ok(None), |mut pipe| read_first_line(&mut pipe, deadline));
    if matches!(word, Ok(None)) {
        let _ = child.kill();
    }
    // The process we started ends as soon as it has started the one that stays.
    child.wait().map_err(failed)?;
    let refused = |why: String| JobSpawnError::Refused { dir: dir.to_owned(), why };
    match word.map_err(failed)?.as_deref() {
        Some("ok") => Ok(()),
        Some("") => Err(refused(format!(
            "the supervisor exited without a message; see {}",
            journal.display()
        ))),
        Some(other) => Err(refused(other.strip_prefix("refused ").unwrap_or(other).to_owned())),
        None => {
            Err(JobSpawnError::NoAnswer { dir: dir.to_owned(), seconds: START_PATIENCE.as_secs() })
        }
    }
}

/// The first line, `""` if the pipe ended before one came, `None` if the deadline did.
fn read_first_line(
    pipe: &mut std::process::ChildStdout,
    deadline: Instant,
) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let mut bytes = [0; 512];
        let n = pipe.read(&mut bytes)?;
        line.extend_from_slice(&bytes[..n]);
        if let Some(end) = line.iter().position(|&b| b == b'\n') {
            line.truncate(end);
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
        if n == 0 {
            return Ok(Some(String::new()));
        }
    }
}

/// What the job in `dir` was started with; values of variables that are not ours are gone once it has
/// ended. None if there is no such record, or none that can be read.
pub fn read_job_spec(dir: &Path) -> io::Result<Option<JobSpec>> {
    match json_file::read_json(dir, SPEC) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        other => other,
    }
}

/// What is true of the job in `dir` now.
pub fn read_job_state(dir: &Path) -> io::Result<JobState> {
    // Looked at first: a supervisor lets the gate go only once it holds the lock and has its record.
    let starting = lock::open_if_locked(&dir.join(STARTING))?.is_some();
    match read_recorded_state(dir)? {
        JobState::Absent if starting => Ok(JobState::Starting),
        other => Ok(other),
    }
}

/// The state as the lock and the records tell it.
fn read_recorded_state(dir: &Path) -> io::Result<JobState> {
    if let Some(exit) = json_file::read_json::<JobExit>(dir, EXIT)? {
        return Ok(JobState::Ended(exit));
    }
    if lock::open_if_locked(&dir.join(LOCK))?.is_some() {
        return Ok(
            json_file::read_json::<JobPids>(dir, PIDS)?.map_or(JobState::Starting, JobState::Alive)
        );
    }
    // The end is recorded before the lock is let go: look again now that it is free.
    if let Some(exit) = json_file::read_json::<JobExit>(dir, EXIT)? {
        return Ok(JobState::Ended(exit));
    }
    // The supervisor writes who it is before it starts anything: without that, nothing ever ran.
    let ran = dir.join(PIDS).try_exists()?;
    Ok(if ran { JobState::Vanished } else { JobState::Absent })
}

/// Asks the job to end. Returns at once; a job that has ended or never ran needs nothing, and of one whose
/// supervisor is gone everything left is killed here.
pub fn stop_job(dir: &Path, how: JobStopMode) -> io::Result<()> {
    match read_job_state(dir)? {
        JobState::Absent | JobState::Ended(_) => Ok(()),
        JobState::Vanished => kill_job_leftovers(dir).map(drop),
        JobState::Starting | JobState::Alive(_) => {
            let killing = fs::read(dir.join(STOP)).is_ok_and(|text| text.starts_with(b"kill"));
            if !killing {
                let text: &[u8] = if how == JobStopMode::Kill { b"kill\n" } else { b"term\n" };
                json_file::write_file_bytes(dir, STOP, text, WriteDurability::Unsynced)?;
            }
            wake_supervisor(dir)
        }
    }
}

/// Answers the n-th question of the job (counted from 1) with one line.
pub fn answer_question(dir: &Path, n: u32, line: &str) -> io::Result<()> {
    if line.trim_end().contains('\n') {
        let why = "an answer is one line; it holds a newline";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let answers = dir.join(ANSWERS);
    fs::create_dir_all(&answers)?;
    json_file::write_file_bytes(
        &answers,
        &format!("{n}.json"),
        line.as_bytes(),
        WriteDurability::Synced,
    )?;
    wake_supervisor(dir)
}

/// Makes a living supervisor look at its folder now; it looks by itself a little later anyway.
fn wake_supervisor(dir: &Path) -> io::Result<()> {
    if let JobState::Alive(pids) = read_recorded_state(dir)?
        && pids.boot_id == process_tree::boot_id()
        && process_tree::is_same_process(pids.pid, pids.start_time)
    {
        process_tree::signal_process(pids.pid, Signal::USR1);
    }
    Ok(())
}

/// Kills what is left of a job whose supervisor is gone; says how many processes that were.
///
/// Found are the recorded processes if they are still the same, their group, everything below, and
/// everything with the job's mark in its environment, and everything in the job's cgroup. Without a
/// cgroup a process that dropped the mark, left the group and lost its parents is not found.
pub fn kill_job_leftovers(dir: &Path) -> io::Result<u32> {
    if lock::open_if_locked(&dir.join(LOCK))?.is_some() {
        let why = format!("the job in {} has a living supervisor: stop it instead", dir.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    let dir = match dir.canonicalize() {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    // A torn record is no reason to let marked processes live.
    let pids = json_file::read_json::<JobPids>(&dir, PIDS)
        .ok()
        .flatten()
        .filter(|pids| was_recorded_in(pids, &dir));
    let leaf = find_recorded_cgroup(pids.as_ref());
    let deadline = Instant::now() + LEFTOVER_PATIENCE;
    let mut killed = std::collections::HashSet::new();
    let mut empty_looks = 0;
    loop {
        let mut left = process_tree::list_leftover_processes(&dir, pids.as_ref())?;
        if let Some(leaf) = &leaf {
            left.extend(leaf.list_processes()?);
        }
        // A process between fork and exec shows neither mark: one empty look is not enough.
        empty_looks = if left.is_empty() { empty_looks + 1 } else { 0 };
        if empty_looks == 2 {
            if let Some(leaf) = &leaf {
                // An empty group that stays does no harm.
                let _ = leaf.remove();
            }
            if let Ok(Some(JobSpec { door: Some(door), .. })) = json_file::read_json(&dir, SPEC) {
                super::tool_socket::remove_socket_files(&door);
            }
            return Ok(u32::try_from(killed.len()).unwrap_or(u32::MAX));
        }
        if let Some(leaf) = leaf.as_ref().filter(|_| !left.is_empty()) {
            // In one step: they cannot fork faster than that. The signals are for the others.
            let _ = leaf.kill();
        }
        for &pid in &left {
            process_tree::signal_process(pid, Signal::KILL);
        }
        if Instant::now() >= deadline {
            let why = format!("processes {left:?} of {} do not die", dir.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        killed.extend(left);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a record found in `dir` was written there. One whose folder is still somewhere else came
/// with a copy, and its processes belong to the original; one whose folder is gone was moved.
fn was_recorded_in(pids: &JobPids, dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Some(there) = &pids.dir else { return true };
    match (fs::metadata(there), fs::metadata(dir)) {
        (Ok(there), Ok(here)) => (there.dev(), there.ino()) == (here.dev(), here.ino()),
        (Err(error), _) => error.kind() == io::ErrorKind::NotFound,
        (_, Err(_)) => true,
    }
}

/// Whether there is such a process, not counting one that only waits to be reaped. Says nothing about
/// whose it is: numbers are used again.
pub fn is_process_alive(pid: u32) -> io::Result<bool> {
    Ok(process_tree::find_process(pid)?.is_some_and(|process| !process.zombie))
}

/// Whether whoever connected is a process of a job below `jobs`. Says no where the system does not show
/// who that is and who started whom.
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
pub fn is_peer_in_job(stream: &UnixStream, jobs: &Path) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.pid);
    let pid = peer.ok().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    pid.is_some_and(|pid| descends_from_job(pid, jobs))
}

/// This system does not show it.
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
pub fn is_peer_in_job(_: &UnixStream, _: &Path) -> bool {
    false
}

/// Whether one of its ancestors is the supervisor of such a job.
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
fn descends_from_job(pid: u32, jobs: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let jobs = jobs.canonicalize().unwrap_or_else(|_| jobs.to_owned());
    let mut pid = pid;
    // No chain of ancestors is longer than all processes there can be.
    for _ in 0..4096 {
        let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
        let supervises = line.split(|&b| b == 0).skip(1).take(1).any(|word| word == b"__supervise");
        let of_these = line
            .split(|&b| b == 0)
            .nth(2)
            .is_some_and(|dir| Path::new(std::ffi::OsStr::from_bytes(dir)).starts_with(&jobs));
        if supervises && of_these {
            return true;
        }
        match process_tree::find_process(pid) {
            Ok(Some(process)) if process.parent > 1 => pid = process.parent,
            _ => return false,
        }
    }
    false
}

/// The cgroup of a job of this boot, if the record names one that can be a job's.
fn find_recorded_cgroup(pids: Option<&JobPids>) -> Option<JobCgroup> {
    let pids = pids.filter(|pids| pids.boot_id == process_tree::boot_id())?;
    CgroupHierarchy::discover().ok()?.find_recorded_cgroup(pids.cgroup.as_deref()?)
}

/// Who runs or ran the job; none if nobody did yet.
pub fn read_job_pids(dir: &Path) -> io::Result<Option<JobPids>> {
    json_file::read_json::<JobPids>(dir, PIDS)
}

/// How long a killed job may take to be gone.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Ends whatever the job still does. Its records stay; one that never ran or has ended is left as it
/// is.
pub fn end_job(dir: &Path) -> io::Result<()> {
    let give_up = Instant::now() + END_PATIENCE;
    loop {
        match read_job_state(dir)? {
            JobState::Absent | JobState::Ended(_) => return Ok(()),
            JobState::Vanished => return kill_job_leftovers(dir).map(drop),
            JobState::Starting | JobState::Alive(_) => stop_job(dir, JobStopMode::Kill)?,
        }
        if Instant::now() > give_up {
            let why = format!("cannot stop the job in {}", dir.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends whatever the job still does and moves its files aside, so that it can start afresh.
pub fn reset_job(dir: &Path) -> io::Result<()> {
    end_job(dir)?;
    let give_up = Instant::now() + END_PATIENCE;
    while read_job_state(dir)? != JobState::Absent {
        match set_job_files_aside(dir) {
            // The record of its end is there a moment before its supervisor is gone.
            Err(error)
                if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < give_up =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => drop(other?),
        }
    }
    // A request to stop that came before it ever ran is not for the next one.
    match fs::remove_file(dir.join(STOP)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Moves the files of an ended or vanished job into `dir/old.<n>`, so that it can start afresh.
pub fn set_job_files_aside(dir: &Path) -> io::Result<PathBuf> {
    if let Some(_held) = lock::open_if_locked(&dir.join(LOCK))? {
        let why = format!("the job in {} is alive", dir.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    let mut n = 1;
    let old = loop {
        let old = dir.join(format!("old.{n}"));
        match fs::create_dir(&old) {
            Ok(()) => break old,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(e) => return Err(e),
        }
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        // The locks stay: others may be waiting on them. The record of who ran goes last: while it is
        // here the job counts as vanished, so a half-done move is done again.
        let stays = text == STARTING || text == LOCK || text == PIDS || text.starts_with("old.");
        if !stays {
            names.push(name);
        }
    }
    names.push(PIDS.into());
    for name in names {
        match fs::rename(dir.join(&name), old.join(&name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(old)
}

/// Starts or finds the job and waits for its end. Setting `cancel` stops it and waits on. A job that
/// vanishes is cleared away and started once more.
pub fn run_job_to_end(
    dir: &Path,
    spec: &JobSpec,
    supervisor: &[OsString],
    cancel: &AtomicBool,
) -> Result<JobExit, JobSpawnError> {
    let mut again = true;
    loop {
        match start_job(dir, spec, supervisor) {
            Ok(JobStart::AlreadyEnded(exit)) => return Ok(exit),
            Ok(_) => {
                if let Some(exit) = wait_for_job_end(dir, cancel)? {
                    return Ok(exit);
                }
            }
            Err(JobSpawnError::Vanished { .. }) => {}
            Err(e) => return Err(e),
        }
        kill_job_leftovers(dir).map_err(JobSpawnError::io("end what is left of", dir))?;
        if !again || cancel.load(Ordering::Relaxed) {
            return Err(JobSpawnError::Vanished { dir: dir.to_owned() });
        }
        again = false;
        set_job_files_aside(dir).map_err(JobSpawnError::io("set aside the files in", dir))?;
    }
}

/// `None` if the job vanished.
fn wait_for_job_end(dir: &Path, cancel: &AtomicBool) -> Result<Option<JobExit>, JobSpawnError> {
    let failed = || JobSpawnError::io("read the state in", dir);
    let mut pause = Duration::from_millis(2);
    let mut probe_at = Instant::now();
    let mut stopped = false;
    loop {
        if let Some(exit) = json_file::read_json::<JobExit>(dir, EXIT).map_err(failed())? {
            return Ok(Some(exit));
        }
        if Instant::now() >= probe_at {
            match read_job_state(dir).map_err(failed())? {
                JobState::Ended(exit) => return Ok(Some(exit)),
                JobState::Vanished | JobState::Absent => return Ok(None),
                JobState::Starting | JobState::Alive(_) => {}
            }
            probe_at = Instant::now() + Duration::from_millis(500);
        }
        if !stopped && cancel.load(Ordering::Relaxed) {
            stop_job(dir, JobStopMode::Term).map_err(JobSpawnError::io("stop the job in", dir))?;
            stopped = true;
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(50));
    }
}
