//! The command line of bubblewrap for a policy. Starts nothing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{SandboxNetworkAccess, SandboxPathAccess, SandboxPolicy};

const PROGRAM: &str = "bwrap";

/// A folder with more entries is not put together from them: each is a mount.
const ENTRIES_MAX: usize = 1000;

/// What a folder of the job's own takes the place of.
const TMP: [&str; 2] = ["/tmp", "/var/tmp"];

/// Rights with which root could leave the sandbox. Without a user namespace bubblewrap leaves root its rights, and
/// builds run by root need some of them.
const DROPPED_CAPABILITIES: &[&str] = &[
    "CAP_SYS_ADMIN",
    "CAP_SYS_PTRACE",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_BOOT",
    "CAP_SYS_TIME",
    "CAP_SYS_PACCT",
    "CAP_SYSLOG",
    "CAP_MKNOD",
    "CAP_DAC_READ_SEARCH",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_AUDIT_CONTROL",
    "CAP_BLOCK_SUSPEND",
    "CAP_WAKE_ALARM",
    "CAP_BPF",
    "CAP_PERFMON",
    "CAP_CHECKPOINT_RESTORE",
];

/// Everything up to the command to run inside.
pub(super) fn build_arguments(
    policy: &SandboxPolicy,
    exe: &Path,
    cwd: &Path,
) -> io::Result<Vec<OsString>> {
    let mut line = BwrapArguments(vec![PROGRAM.into()]);
    line.add(&["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1"]);
    if rustix::process::geteuid().is_root() {
        for right in DROPPED_CAPABILITIES {
            line.add(&["--cap-drop", right]);
        }
    }
    if policy.network != SandboxNetworkAccess::Open {
        line.add(&["--unshare-net"]);
    }
    line.add(&["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    if let Some(own) = &policy.tmp {
        line.bind("--bind", own, Path::new("/tmp"));
        line.add(&["--tmpfs", "/var/tmp"]);
    }
    let mut mounts = policy.sorted_paths();
    mounts.push((exe.to_path_buf(), SandboxPathAccess::Read));
    mounts.extend(policy.sealed.iter().map(|path| (path.clone(), SandboxPathAccess::Read)));
    let rebuilt = rebuilt(&mounts);
    for folder in &rebuilt {
        mounts.retain(|(path, _)| path != folder);
        mounts.push((folder.clone(), SandboxPathAccess::Read));
    }
    mounts.sort_by_key(|(path, _)| path.components().count());
    let named: BTreeSet<PathBuf> = mounts.iter().map(|(path, _)| path.clone()).collect();
    let mut emptied = Vec::new();
    for (path, access) in mounts {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if rebuilt.contains(&path) {
            line.rebuild(&path, &named)?;
            emptied.push(path);
            continue;
        }
        let replaced = policy.tmp.is_some() && TMP.map(Path::new).contains(&&*path);
        match access {
            SandboxPathAccess::Hidden if replaced => {}
            SandboxPathAccess::Hidden if meta.is_dir() => {
                line.add(&["--tmpfs"]);
                line.0.push(path.clone().into());
                emptied.push(path);
            }
            SandboxPathAccess::Hidden => {
                let other = policy.replaced.iter().find(|(at, _)| *at == path);
                let other = other.map_or(Path::new("/dev/null"), |(_, other)| other);
                line.bind("--ro-bind", other, &path);
            }
            SandboxPathAccess::Read => line.bind("--ro-bind", &path, &path),
            SandboxPathAccess::Write => line.bind("--bind", &path, &path),
        }
    }
    // The links themselves went with the folder that was replaced.
    let lost = |at: &&(PathBuf, PathBuf)| policy.tmp.is_some() && is_in_tmp(&at.0);
    for (at, real) in policy.aliases.iter().filter(lost) {
        line.bind("--ro-bind", real, at);
    }
    // Last, because mount points are made in them until then.
    for path in emptied {
        line.add(&["--remount-ro"]);
        line.0.push(path.into());
    }
    line.add(&["--chdir"]);
    line.0.push(cwd.into());
    line.add(&["--"]);
    Ok(line.0)
}

/// Folders that are put together from their entries, because a file in them is hidden. A mount on the file itself
/// goes when somebody outside replaces the file, as `git config` and editors do, and the new one could be read.
fn rebuilt(mounts: &[(PathBuf, SandboxPathAccess)]) -> BTreeSet<PathBuf> {
    let covers = |folder: &Path| {
        let above = mounts.iter().filter(|(path, _)| folder.starts_with(path));
        above.max_by_key(|(path, _)| path.components().count()).map(|(_, access)| *access)
    };
    let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir());
    let files = mounts
        .iter()
        .filter(|(path, access)| *access == SandboxPathAccess::Hidden && is_file(path));
    let folders = files.filter_map(|(path, _)| path.parent()).filter(|folder| {
        covers(folder) == Some(SandboxPathAccess::Read)
            && fs::read_dir(folder).is_ok_and(|entries| entries.count() <= ENTRIES_MAX)
    });
    folders.map(Path::to_path_buf).collect()
}

fn is_in_tmp(path: &Path) -> bool {
    TMP.iter().any(|tmp| path.starts_with(tmp) && path != Path::new(tmp))
}

struct BwrapArguments(Vec<OsString>);

impl BwrapArguments {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    /// An empty folder with each entry of the real one, but for those that have a word of their own.
    fn rebuild(&mut self, folder: &Path, named: &BTreeSet<PathBuf>) -> io::Result<()> {
        self.add(&["--tmpfs"]);
        self.0.push(folder.into());
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if named.contains(&path) {
                continue;
            }
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let Ok(target) = fs::read_link(&path) else { continue };
                    self.0.extend(["--symlink".into(), target.into(), path.into()]);
                }
                Ok(_) => self.bind("--ro-bind-try", &path, &path),
                // What we may not look at the command may not either.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn bind(&mut self, how: &str, from: &Path, to: &Path) {
        self.0.extend([how.into(), from.into(), PathBuf::from(to).into()]);
    }
}
