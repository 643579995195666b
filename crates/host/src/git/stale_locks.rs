//! Lock files that killed git processes left behind.
//!
//! A lock may only be taken away if its holder is dead. For our own git processes that is proven:
//! each holds a shared lock on `mainstem/git.live` while it lives, also when we were killed, and
//! leaves a note naming the shared ref it is about to lock. The lock of the packed refs, and that of
//! a task's branch, is taken by every commit too, also by those of agents, who live on when we die: it
//! is nobody's when all git processes that were alive when it was seen are dead and it is still the
//! same.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::command::GitCommand;
use super::error::{GitError, IoErrorContext, Result};
use super::{Repo, path_bytes, path_from_bytes};
use crate::process::process_tree;

/// How long git processes of an earlier engine may take to end.
const STRAYS_PATIENCE: Duration = Duration::from_secs(60);
/// A living git gives up a ref lock within this time: it is our own lock timeout, and more than
/// any ref transaction takes.
const LOCK_AGE_MIN: Duration = Duration::from_secs(5);
/// A ref lock of anybody this old has no living holder.
const LOCK_AGE_DEAD: Duration = Duration::from_secs(600);
const PACKED_LOCK: &str = "packed-refs.lock";
/// How long a git process that may hold a lock is given to end.
const HOLDERS_PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// What a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockSweepReport {
    /// Lock files without a living holder, removed.
    pub removed: Vec<PathBuf>,
    /// Lock files that may belong to somebody else's running git; left alone.
    pub foreign: Vec<PathBuf>,
}

/// Says, while it exists, which shared lock a git process of ours may hold.
#[derive(Debug)]
pub(super) struct LockNote(Option<PathBuf>);

impl LockNote {
    /// When it was written, by the clock of the file system.
    fn written_at(&self) -> Result<Option<SystemTime>> {
        self.0.as_deref().map_or(Ok(None), modified_at)
    }
}

impl Drop for LockNote {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A note left behind only makes the next sweep look once more.
            let _ = fs::remove_file(path);
        }
    }
}

impl Repo {
    /// Removes stale lock files. The caller holds the instance lock, so no other engine works here.
    ///
    /// With a worktree: those of its admin folder; whoever worked there must be dead. Without: those
    /// of our refs, and of shared files as far as our own killed git left them; with them go half-made
    /// worktrees, which would make every later look at the worktrees fail.
    pub fn sweep_stale_locks(&self, worktree: Option<&Path>) -> Result<LockSweepReport> {
        let mut swept = LockSweepReport::default();
        if let Some(worktree) = worktree {
            for admin in self.list_admin_dirs(worktree)? {
                remove_locks_in(&admin, &mut swept.removed)?;
            }
            return Ok(swept);
        }
        self.wait_for_stray_processes()?;
        for lock in find_lock_files(&self.common_dir().join("refs/mainstem"))? {
            remove_lock_file(&lock, &mut swept.removed)?;
        }
        for lock in find_lock_files(&self.common_dir().join("refs/heads/mainstem"))? {
            self.sweep_branch_lock(lock, &mut swept)?;
        }
        let marked = self.take_lock_notes()?;
        let seen = swept.foreign.clone();
        let shared = find_lock_files(&self.common_dir().join("refs"))?;
        for lock in shared.into_iter().filter(|lock| !seen.contains(lock)) {
            self.sweep_shared_lock(lock, &marked, true, &mut swept)?;
        }
        for (name, is_ref) in [
            (PACKED_LOCK, true),
            ("HEAD.lock", true),
            ("index.lock", false),
            ("config.lock", false),
        ] {
            let lock = self.common_dir().join(name);
            if fs::symlink_metadata(&lock).is_ok() {
                self.sweep_shared_lock(lock, &marked, is_ref, &mut swept)?;
            }
        }
        // Those of other checkouts, by name.
        for (lock, _) in &marked {
            if fs::symlink_metadata(lock).is_ok() {
                self.sweep_shared_lock(
                    lock.clone(),
                    &marked,
                    false,
                    &mut LockSweepReport::default(),
                )?;
            }
        }
        self.sweep_half_made_worktrees()?;
        self.sweep_temp_files()?;
        Ok(swept)
    }

    /// Runs a git that locks this ref (and the packed ones), and leaves no lock of its own behind
    /// if it is killed half way. A lock so old that nobody can hold it is taken away first.
    pub(super) fn run_locking_ref(&self, git: GitCommand, name: &str, packed: bool) -> Result<()> {
        // A branch that is checked out is changed together with the HEAD that names it.
        let head = name.starts_with("refs/heads/").then_some("HEAD");
        let packed = packed.then_some("packed-refs");
        let locks: Vec<PathBuf> = [Some(name), head, packed]
            .into_iter()
            .flatten()
            .map(|file| self.common_dir().join(format!("{file}.lock")))
            .collect();
        for lock in &locks {
            let age =
                modified_at(lock)?.and_then(|made| SystemTime::now().duration_since(made).ok());
            if age.is_some_and(|age| age >= LOCK_AGE_DEAD) {
                remove_lock_file(lock, &mut Vec::new())?;
            }
        }
        if packed.is_some() {
            self.free_packed_refs_lock()?;
        }
        self.free_task_branch_locks(&locks)?;
        self.run_with_lock_note(git, locks)
    }

    /// Takes the lock of the packed refs away if nobody holds it; says whether it did.
    pub fn sweep_packed_refs_lock(&self) -> Result<bool> {
        let mut swept = LockSweepReport::default();
        self.sweep_shared_lock(self.common_dir().join(PACKED_LOCK), &[], true, &mut swept)?;
        Ok(!swept.removed.is_empty())
    }

    /// For a git that would wait long for the lock of the packed refs and then fail.
    pub(super) fn free_packed_refs_lock(&self) -> Result<()> {
        match modified_at(&self.common_dir().join(PACKED_LOCK))? {
            Some(_) => self.sweep_packed_refs_lock().map(drop),
            None => Ok(()),
        }
    }

    /// Runs a git that may take these locks: said before, so that a later engine knows whose they
    /// are, and taken away if it is killed.
    pub(super) fn run_with_lock_note(&self, git: GitCommand, locks: Vec<PathBuf>) -> Result<()> {
        let mark = self.write_lock_note(&locks)?;
        let now = SystemTime::now();
        let answer = git.run();
        if let Err(GitError::Failed { code: None, .. } | GitError::TimedOut { .. }) = &answer {
            // Of the clocks of the machine and of the file system one may have been set.
            let since = mark.written_at()?.unwrap_or(now);
            let marked: Vec<_> = locks.iter().map(|lock| (lock.clone(), since)).collect();
            for lock in &locks {
                self.sweep_shared_lock(
                    lock.clone(),
                    &marked,
                    false,
                    &mut LockSweepReport::default(),
                )?;
            }
            self.free_task_branch_locks(&locks)?;
        }
        drop(mark);
        answer.map(drop)
    }

    /// For a git that is about to take locks on branches of tasks: an agent that was killed while it
    /// committed may have left one.
    fn free_task_branch_locks(&self, locks: &[PathBuf]) -> Result<()> {
        for lock in locks.iter().filter(|lock| self.locks_own_ref(lock)) {
            self.sweep_branch_lock(lock.clone(), &mut LockSweepReport::default())?;
        }
        Ok(())
    }

    /// Whether it locks a ref of ours.
    fn locks_own_ref(&self, lock: &Path) -> bool {
        ["refs/mainstem", "refs/heads/mainstem"]
            .iter()
            .any(|ours| lock.starts_with(self.common_dir().join(ours)))
    }

    /// Notes that a git process of ours is about to take locks that others use too. Locks in the repository
    /// are named relative to it, because somebody may move the repository in the meantime.
    pub(super) fn write_lock_note(&self, locks: &[PathBuf]) -> Result<LockNote> {
        let shared: Vec<&[u8]> = locks
            .iter()
            .filter(|lock| !self.locks_own_ref(lock))
            .map(|lock| path_bytes(lock.strip_prefix(self.common_dir()).unwrap_or(lock)))
            .collect();
        if shared.is_empty() {
            return Ok(LockNote(None));
        }
        let path = self.temp_path("lock");
        self.create_temp_dir()?;
        // On disk before the lock can be: after a power cut nothing else would say whose it was.
        crate::files::write_atomic(&path, &shared.join(&0)).with_path("write", &path)?;
        Ok(LockNote(Some(path)))
    }

    fn wait_for_stray_processes(&self) -> Result<()> {
        let path = self.live_file_path();
        let dir = self.common_dir().join("mainstem");
        fs::create_dir_all(&dir).with_path("create", &dir)?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = file.with_path("open", &path)?;
        let deadline = Instant::now() + STRAYS_PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(POLL);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let what = "git of an earlier run".to_owned();
                    return Err(GitError::TimedOut { what, after: STRAYS_PATIENCE });
                }
                Err(errno) => return Err(errno.into()).with_path("lock", &path),
            }
        }
    }

    /// The locks our killed processes may have left, with the moment they said so.
    fn take_lock_notes(&self) -> Result<Vec<(PathBuf, SystemTime)>> {
        let mut marks = Vec::new();
        for entry in list_folder(&self.temp_dir())? {
            if !file_name_lossy(&entry).starts_with("lock-") || is_from_this_process(&entry) {
                continue;
            }
            let Ok(meta) = fs::metadata(&entry) else { continue };
            let since = meta.modified().with_path("read the time of", &entry)?;
            let text = fs::read(&entry).with_path("read", &entry)?;
            let place = |lock: &[u8]| self.common_dir().join(path_from_bytes(lock));
            marks.extend(text.split(|&b| b == 0).map(|lock| (place(lock), since)));
        }
        Ok(marks)
    }

    fn sweep_shared_lock(
        &self,
        lock: PathBuf,
        marked: &[(PathBuf, SystemTime)],
        is_ref: bool,
        swept: &mut LockSweepReport,
    ) -> Result<()> {
        let Some(made) = modified_at(&lock)? else { return Ok(()) };
        let age = SystemTime::now().duration_since(made).unwrap_or_default();
        // The clock of the file system is coarser than ours.
        let slack = Duration::from_secs(1);
        let ours = marked.iter().any(|(path, since)| *path == lock && made + slack >= *since);
        let from_before_boot = boot_time().is_some_and(|boot| made + slack < boot);
        if from_before_boot || (is_ref && age >= LOCK_AGE_DEAD) {
            return remove_lock_file(&lock, &mut swept.removed);
        }
        let held = match !ours && lock.ends_with(PACKED_LOCK) {
            true => self.find_possible_holders()?,
            false => None,
        };
        if !ours && held.is_none() {
            swept.foreign.push(lock);
            return Ok(());
        }
        wait_for_lock_release(&lock, made, LOCK_AGE_MIN.saturating_sub(age))?;
        let dead = held.is_none_or(|holders| wait_for_processes_to_end(&holders));
        remove_dead_lock(lock, made, dead, swept)
    }

    /// The lock of a task's branch: ours, or that of an agent which commits there this very moment.
    fn sweep_branch_lock(&self, lock: PathBuf, swept: &mut LockSweepReport) -> Result<()> {
        let Some(made) = modified_at(&lock)? else { return Ok(()) };
        let dead = match self.find_possible_holders()? {
            Some(holders) => wait_for_processes_to_end(&holders),
            None => {
                wait_for_lock_release(&lock, made, LOCK_AGE_MIN)?;
                true
            }
        };
        remove_dead_lock(lock, made, dead, swept)
    }

    /// The git processes that live now and may work on this repository, whoever's: one of them holds a
    /// lock that is there now, if anybody does. None if this system does not tell.
    fn find_possible_holders(&self) -> Result<Option<Vec<(u32, u64)>>> {
        let found = process_tree::find_processes_named(b"git")
            .with_path("read the processes in", Path::new("/proc"))?;
        let here = |(pid, _): &(u32, u64)| !works_on_other_repo(*pid, self.common_dir());
        Ok(found.map(|processes| processes.into_iter().filter(here).collect()))
    }

    fn sweep_temp_files(&self) -> Result<()> {
        for entry in list_folder(&self.temp_dir())? {
            if !is_from_this_process(&entry) {
                crate::files::remove_all(&entry).with_path("remove", &entry)?;
            }
        }
        Ok(())
    }
}

/// Whether a git process is known to work on another repository than this. What is not known for sure
/// does not count.
fn works_on_other_repo(pid: u32, common_dir: &Path) -> bool {
    let Some((cwd, arguments, environment)) = process_tree::read_process_environment(pid) else {
        return false;
    };
    let words = |text: &[u8]| text.split(|&b| b == 0).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let named: Vec<PathBuf> = words(&environment)
        .iter()
        .filter_map(|pair| {
            let value = pair.strip_prefix(b"GIT_DIR=");
            value.or_else(|| pair.strip_prefix(b"GIT_COMMON_DIR=")).map(path_from_bytes)
        })
        .collect();
    if !named.is_empty() {
        return named.iter().all(|dir| dir.is_absolute() && !dir.starts_with(common_dir));
    }
    if words(&arguments).iter().any(|word| word.starts_with(b"--git-dir")) {
        return false;
    }
    let Some(top) = cwd.ancestors().find(|dir| fs::symlink_metadata(dir.join(".git")).is_ok())
    else {
        return !cwd.starts_with(common_dir);
    };
    let dot_git = top.join(".git");
    match fs::read(&dot_git) {
        Ok(text) => text.strip_prefix(b"gitdir: ").is_some_and(|target| {
            let target = top.join(path_from_bytes(target.trim_ascii_end()));
            target.canonicalize().is_ok_and(|target| !target.starts_with(common_dir))
        }),
        // A folder.
        Err(_) => dot_git.canonicalize().is_ok_and(|dir| dir != common_dir),
    }
}

/// Takes a lock away whose holder is dead, if it is still the one that was looked at.
fn remove_dead_lock(
    lock: PathBuf,
    made: SystemTime,
    dead: bool,
    swept: &mut LockSweepReport,
) -> Result<()> {
    match modified_at(&lock)? {
        Some(now) if now == made && dead => remove_lock_file(&lock, &mut swept.removed),
        Some(_) => {
            swept.foreign.push(lock);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Waits until a lock is gone, or another, or that time is over.
fn wait_for_lock_release(lock: &Path, made: SystemTime, time: Duration) -> Result<()> {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline && modified_at(lock)? == Some(made) {
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Waits a little for these processes to end.
fn wait_for_processes_to_end(processes: &[(u32, u64)]) -> bool {
    let deadline = Instant::now() + HOLDERS_PATIENCE;
    loop {
        let alive =
            processes.iter().any(|(pid, start)| process_tree::is_same_process(*pid, *start));
        if !alive || Instant::now() >= deadline {
            return !alive;
        }
        std::thread::sleep(POLL);
    }
}

/// When this machine came up, where it tells. No process from before is alive.
fn boot_time() -> Option<SystemTime> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Removes the lock files directly inside a git dir and below its `refs`.
pub(super) fn remove_locks_in(git_dir: &Path, removed: &mut Vec<PathBuf>) -> Result<()> {
    for entry in list_folder(git_dir)? {
        if is_lock_file(&entry) {
            remove_lock_file(&entry, removed)?;
        }
    }
    let refs = git_dir.join("refs");
    // A link there leads to somebody else's.
    if super::worktree_ownership::is_real_folder(&refs) {
        for lock in find_lock_files(&refs)? {
            remove_lock_file(&lock, removed)?;
        }
    }
    Ok(())
}

/// What a folder holds; a folder that is not there holds nothing.
pub(super) fn list_folder(dir: &Path) -> Result<Vec<PathBuf>> {
    let found = match fs::read_dir(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_path("list", dir),
    };
    let mut paths = Vec::new();
    for entry in found {
        paths.push(entry.with_path("list", dir)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn find_lock_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut locks = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        let found = match list_folder(&dir) {
            // A branch can stand where a folder of branches is looked for: it holds no locks.
            Err(GitError::Files { source, .. })
                if source.kind() == io::ErrorKind::NotADirectory =>
            {
                continue;
            }
            other => other?,
        };
        for entry in found {
            let is_dir = fs::symlink_metadata(&entry).is_ok_and(|meta| meta.is_dir());
            if is_dir {
                open.push(entry);
            } else if is_lock_file(&entry) {
                locks.push(entry);
            }
        }
    }
    Ok(locks)
}

fn is_lock_file(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("lock"))
}

fn modified_at(path: &Path) -> Result<Option<SystemTime>> {
    match fs::symlink_metadata(path).and_then(|meta| meta.modified()) {
        Ok(time) => Ok(Some(time)),
        // Where a branch stands, or another store keeps the refs, there is no folder with locks.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_path("read the time of", path),
    }
}

fn remove_lock_file(path: &Path, removed: &mut Vec<PathBuf>) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => removed.push(path.to_path_buf()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_path("remove", path),
    }
    Ok(())
}

fn file_name_lossy(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn is_from_this_process(path: &Path) -> bool {
    file_name_lossy(path).split('-').nth(1) == Some(crate::files::process_lifetime_id())
}
