//! Blocks of ten ports, each leased to one job at a time, for all runs of one user on this machine.
//!
//! A lease is a file named after the block's first port; it holds the path of the job's folder, and
//! ends with the job whether or not anybody gives it back. Knows nothing of what listens there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::process::{self, JobState};
use crate::{files, user_folder};

/// Ports in a block.
pub const BLOCK: u16 = 10;
const FIRST: u16 = 20000;
const LAST: u16 = 29990;
/// Whoever holds the lock looks at a few hundred small files at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any path.
const LEASE_BYTES_MAX: u64 = 8192;
const POLL: Duration = Duration::from_millis(10);
/// Where a job's folder says which block it has.
const NOTE: &str = "ports";

/// Where this user's leases are.
pub fn lease_folder() -> PathBuf {
    user_folder::user_folder_path().join("ports")
}

/// Lends a block of ten ports to the job in `owner` and returns the first one: the block it has
/// already, else the one around `preferred`, else the next one that nobody has and whose ports are free.
///
/// The job's folder must exist; the lease lasts until [`release_ports`], or until the job has ended.
pub fn lease_ports(dir: &Path, owner: &Path, preferred: u16) -> io::Result<u16> {
    if !owner.is_absolute() || !owner.try_exists()? {
        let why = format!("the job's folder {} must exist before it gets ports", owner.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    let _lock = lock_lease_folder(dir)?;
    if let Some(block) = find_leased_block(dir, owner)? {
        return Ok(block);
    }
    let blocks = (LAST - FIRST) / BLOCK + 1;
    let preferred =
        if (FIRST..LAST + BLOCK).contains(&preferred) { (preferred - FIRST) / BLOCK } else { 0 };
    for step in 0..blocks {
        let block = FIRST + (preferred + step) % blocks * BLOCK;
        let holder = read_lease_holder(dir, block)?;
        if holder.as_deref().is_some_and(|holder| !is_lease_expired(holder))
            || !are_ports_free(block)
        {
            continue;
        }
        let file = dir.join(block.to_string());
        if holder.is_some() {
            fs::remove_file(&file)?;
        }
        write_lease(&file, owner)?;
        // Killed before this is written, the lease is taken over when the job has ended.
        fs::write(owner.join(NOTE), block.to_string())?;
        return Ok(block);
    }
    let why = format!(
        "no block of ten free ports between {FIRST} and {}; the reserved ports are listed in {}",
        LAST + BLOCK - 1,
        dir.display()
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, why))
}

/// Gives back what `owner` has; nothing to give back is fine.
pub fn release_ports(dir: &Path, owner: &Path) -> io::Result<()> {
    if !dir.try_exists()? {
        return Ok(());
    }
    let _lock = lock_lease_folder(dir)?;
    if let Some(block) = find_leased_block(dir, owner)? {
        fs::remove_file(dir.join(block.to_string()))?;
    }
    Ok(())
}

/// Gives back what jobs that have ended still have.
pub fn release_ended_jobs(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    let _lock = lock_lease_folder(dir)?;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(block) = name.to_str().and_then(|name| name.parse::<u16>().ok()) else { continue };
        if read_lease_holder(dir, block)?.is_some_and(|holder| is_lease_expired(&holder)) {
            fs::remove_file(dir.join(block.to_string()))?;
        }
    }
    Ok(())
}

/// Makes the folder and waits until nobody else changes leases in it.
fn lock_lease_folder(dir: &Path) -> io::Result<File> {
    if let Some(above) = dir.parent().filter(|above| above.ends_with("mainstem")) {
        user_folder::create_private_folder(above)?;
    }
    user_folder::create_private_folder(dir)?;
    let path = dir.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        let why = format!("{} is not a regular file; remove the file", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(POLL);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let why = format!("{} is locked by another process", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The block that `owner` noted and still has.
fn find_leased_block(dir: &Path, owner: &Path) -> io::Result<Option<u16>> {
    let noted = match fs::read_to_string(owner.join(NOTE)) {
        Ok(text) => text.trim().parse().ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(block) = noted else { return Ok(None) };
    Ok((read_lease_holder(dir, block)?.as_deref() == Some(owner)).then_some(block))
}

/// Who has a block. What is no plain file of ours is no lease: it is taken away, and never waited for.
fn read_lease_holder(dir: &Path, block: u16) -> io::Result<Option<PathBuf>> {
    let path = dir.join(block.to_string());
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() => {}
        Ok(_) => {
            files::remove_all(&path)?;
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    match files::read_regular_file(&path, LEASE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(PathBuf::from(OsString::from_vec(bytes)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a lease has outlived its job. Doubt speaks for the job.
fn is_lease_expired(holder: &Path) -> bool {
    // Only a starter killed in the middle leaves an empty one: everybody writes under the lock.
    if holder.as_os_str().is_empty() || matches!(holder.try_exists(), Ok(false)) {
        return true;
    }
    matches!(process::read_job_state(holder), Ok(JobState::Ended(_) | JobState::Vanished))
}

/// Whether all ten could be listened on just now; also what nobody leased may be in use.
fn are_ports_free(block: u16) -> bool {
    let ports = block..block + BLOCK;
    let held: io::Result<Vec<_>> =
        ports.map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))).collect();
    held.is_ok()
}

fn write_lease(file: &Path, owner: &Path) -> io::Result<()> {
    let mut new = OpenOptions::new().write(true).create_new(true).open(file)?;
    new.write_all(owner.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::collections::HashSet;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    use super::*;

    const ELSEWHERE: &str = "MAINSTEM_TEST_PORTS";

    fn job(root: &Path, name: &str) -> PathBuf {
        let job = root.join(name);
        fs::create_dir_all(&job).unwrap();
        job
    }

    /// Eight threads, five jobs each, all wishing for the same block.
    fn lease_many(root: &Path, who: &str) -> Vec<u16> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    scope.spawn(move || {
                        let one = |n| {
                            let job = job(root, &format!("{who}-{thread}-{n}"));
                            lease_ports(&root.join("ports"), &job, 21000).unwrap()
                        };
                        (0..5).map(one).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn threads_and_processes_never_share_a_block() {
        if let Some(root) = std::env::var_os(ELSEWHERE) {
            let root = PathBuf::from(root);
            let blocks = lease_many(&root, "other");
            fs::write(root.join("blocks"), serde_json::to_vec(&blocks).unwrap()).unwrap();
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "port_leases::tests::threads_and_processes_never_share_a_block"])
            .env(ELSEWHERE, root.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut blocks = lease_many(root.path(), "this");
        assert!(other.wait().unwrap().success());
        let theirs = fs::read(root.path().join("blocks")).unwrap();
        blocks.extend(serde_json::from_slice::<Vec<u16>>(&theirs).unwrap());
        assert_eq!(blocks.len(), 80);
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), 80);
        assert!(blocks.iter().all(|block| block % 10 == 0 && (FIRST..=LAST).contains(block)));
        let mode = fs::metadata(root.path().join("ports")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn an_owner_gets_its_block_again_until_it_gives_it_back() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("ports");
        release_ports(&dir, root.path()).unwrap();
        let (a, b) = (job(root.path(), "a"), job(root.path(), "b"));
        let first = lease_ports(&dir, &a, 29999).unwrap();
        assert_eq!(lease_ports(&dir, &a, 20000).unwrap(), first);
        assert_ne!(lease_ports(&dir, &b, first).unwrap(), first);
        release_ports(&dir, &a).unwrap();
        release_ports(&dir, &a).unwrap();
        assert!(!dir.join(first.to_string()).exists());
        assert!(lease_ports(&dir, &root.path().join("no such job"), 1).is_err());
        assert!(lease_ports(&dir, Path::new("relative"), 1).is_err());
    }

    #[test]
    fn a_block_with_a_port_in_use_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("ports");
        let (a, b) = (job(root.path(), "a"), job(root.path(), "b"));
        let block = lease_ports(&dir, &a, 23450).unwrap();
        release_ports(&dir, &a).unwrap();
        // If somebody else took it meanwhile, it is in use just as well.
        let _busy = TcpListener::bind((Ipv4Addr::LOCALHOST, block + 7));
        assert_ne!(lease_ports(&dir, &b, block + 3).unwrap(), block);
    }

    #[test]
    fn pipes_links_and_folders_among_the_leases_are_taken_away_and_never_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("ports");
        let secret = root.path().join("secret");
        fs::write(&secret, "not a lease").unwrap();
        let first = lease_ports(&dir, &job(root.path(), "first"), 24000).unwrap();
        for block in (FIRST..=LAST).step_by(usize::from(BLOCK)).filter(|block| *block != first) {
            let path = dir.join(block.to_string());
            match block % 30 {
                0 => {
                    let mode = Mode::RUSR | Mode::WUSR;
                    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
                }
                10 => std::os::unix::fs::symlink(&secret, &path).unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
        }
        let next = lease_ports(&dir, &job(root.path(), "next"), 24000).unwrap();
        assert_ne!(next, first);
        assert_eq!(fs::read(&secret).unwrap(), b"not a lease");
        fs::remove_file(dir.join("lock")).unwrap();
        std::os::unix::fs::symlink(&secret, dir.join("lock")).unwrap();
        assert!(
            lease_ports(&dir, &job(root.path(), "third"), 24000).is_err(),
            "no lock through a link"
        );
    }

    #[test]
    fn a_lease_ends_with_its_job_and_not_before() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("ports");
        let ended = r#"{"ending":{"exited":{"code":0}},"started_at_ms":1,"ended_at_ms":2,"leftovers_killed":0,"output_bytes":0,"output_dropped":0}"#;
        let never_ran = job(root.path(), "never ran");
        assert!(!is_lease_expired(&never_ran));
        let done = job(root.path(), "done");
        fs::write(done.join("exit.json"), ended).unwrap();
        assert!(is_lease_expired(&done), "{:?}", process::read_job_state(&done));
        let vanished = job(root.path(), "vanished");
        fs::write(vanished.join("pid.json"), "{}").unwrap();
        assert!(is_lease_expired(&vanished), "{:?}", process::read_job_state(&vanished));
        assert!(is_lease_expired(&root.path().join("gone")));

        let block = lease_ports(&dir, &never_ran, 25000).unwrap();
        let file = dir.join(block.to_string());
        for stale in [done.as_os_str().as_bytes(), b"", b"/no/such/job"] {
            fs::write(&file, stale).unwrap();
            let next = job(root.path(), "next");
            let deadline = Instant::now() + PATIENCE;
            // Another program may use the ports for a moment; then the block is not for lending.
            while lease_ports(&dir, &next, block).unwrap() != block {
                release_ports(&dir, &next).unwrap();
                assert!(Instant::now() < deadline, "never taken over");
            }
            assert_eq!(fs::read(&file).unwrap(), next.as_os_str().as_bytes());
            release_ports(&dir, &next).unwrap();
            assert!(!file.exists());
        }
    }
}
