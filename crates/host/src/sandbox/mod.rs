//! The sandbox of a job: what the job may write, read, reach and signal, enforced by the kernel.
//!
//! A policy is a list of paths with what is allowed there; the deepest entry that covers a path
//! decides. Two backends enforce it: bubblewrap (namespaces and mounts) and Landlock. Both end in a
//! step of our own program ([`run_sandbox_step`]) that adds the seccomp filter and the limits, and only then becomes
//! the command. There is no fallback: a sandbox that cannot be set up is an error.
//! Knows nothing of agents, tasks or settings.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod bwrap;
mod denial;
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod landlock_grants;
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod inner_step;
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
mod seccomp;

/// The hidden subcommand of our program that sets up the inner part of the sandbox.
pub const SANDBOX_STEP: &str = "__wall";

/// Whether there is a sandbox for this system at all.
pub const SUPPORTED: bool = cfg!(all(target_os = "linux", not(mainstem_portable)));

/// The exit code of the step if it cannot do its part. The user's command was not started then.
pub const SANDBOX_STEP_FAILED: u8 = 125;

/// What the step reports about a command besides its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxReport {
    /// The command ended by itself.
    Exited(i32),
    /// A signal ended the command.
    Signal(i32),
    /// The command could not be started; the number is the system's error code.
    NotStarted(i32),
    /// The sandbox could not be set up, so the command was not started.
    NoSandbox(String),
}

impl SandboxReport {
    /// Reads the report. Only its first line counts.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?;
        let (word, rest) = line.split_once(' ')?;
        match word {
            "exited" => rest.parse().ok().map(Self::Exited),
            "signal" => rest.parse().ok().map(Self::Signal),
            "errno" => rest.parse().ok().map(Self::NotStarted),
            "wall" => Some(Self::NoSandbox(rest.to_owned())),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    /// Namespaces and mounts, by bubblewrap.
    Bwrap,
    /// Landlock and seccomp, by ourselves.
    Landlock,
}

impl SandboxBackend {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bwrap => "bubblewrap",
            Self::Landlock => "Landlock and seccomp",
        }
    }
}

/// What of the network is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetworkAccess {
    #[default]
    Open,
    /// A loopback of its own.
    Loopback,
    None,
}

/// What may be done below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPathAccess {
    /// Nothing; it looks empty or cannot be opened.
    Hidden,
    Read,
    /// Everything but making devices.
    Write,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    pub kind: SandboxBackend,
    /// Paths, absolute and without links, and what is allowed there. What no entry covers may be read.
    pub paths: Vec<(PathBuf, SandboxPathAccess)>,
    /// Other names, by way of links, of paths that may be read: where, and what is there.
    #[serde(default)]
    pub aliases: Vec<(PathBuf, PathBuf)>,
    /// Hidden files in whose place another one is shown, where the backend can do that.
    #[serde(default)]
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// Files below a writable folder that stay as they are, where the backend can do that.
    #[serde(default)]
    pub sealed: Vec<PathBuf>,
    /// A folder that takes the place of `/tmp`; none leaves `/tmp` as it is.
    #[serde(default)]
    pub tmp: Option<PathBuf>,
    #[serde(default)]
    pub network: SandboxNetworkAccess,
    /// Whether no Unix socket can be made at all.
    #[serde(default)]
    pub no_sockets: bool,
    /// Most processes of the user; none is no limit.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Largest file; none is no limit.
    #[serde(default)]
    pub file_bytes: Option<u64>,
}

impl SandboxPolicy {
    /// A policy that forbids only what no command needs.
    pub fn minimal(kind: SandboxBackend) -> Self {
        Self {
            kind,
            paths: Vec::new(),
            aliases: Vec::new(),
            replaced: Vec::new(),
            sealed: Vec::new(),
            tmp: None,
            network: SandboxNetworkAccess::Open,
            no_sockets: false,
            processes: None,
            file_bytes: None,
        }
    }

    /// Says what is allowed below `path`, links followed. What does not exist is left out, but for
    /// hidden paths: those may come to be.
    pub fn set_path_access(&mut self, path: &Path, access: SandboxPathAccess) {
        match fs::canonicalize(path) {
            Ok(real) => {
                if access == SandboxPathAccess::Read && real != path {
                    self.aliases.push((path.to_path_buf(), real.clone()));
                }
                self.paths.push((real, access));
            }
            Err(_) if access == SandboxPathAccess::Hidden => {
                self.paths.push((path.to_path_buf(), access));
            }
            Err(_) => {}
        }
    }

    /// The entries, each path once with the last word on it, parents before children.
    #[cfg(all(target_os = "linux", not(mainstem_portable)))]
    fn sorted_paths(&self) -> Vec<(PathBuf, SandboxPathAccess)> {
        let by_path: std::collections::BTreeMap<_, _> = self.paths.iter().cloned().collect();
        let mut all: Vec<(PathBuf, SandboxPathAccess)> = by_path.into_iter().collect();
        all.sort_by_key(|(path, _)| path.components().count());
        all
    }
}

/// The command line that runs `argv` in `cwd` under `policy`; `exe` is our own program. What an exit code
/// cannot say is written to the inherited file `report`, if there is one; see [`SandboxReport`].
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
pub fn wrap_command(
    policy: &SandboxPolicy,
    exe: &Path,
    cwd: &Path,
    argv: &[String],
    report: Option<i32>,
) -> io::Result<Vec<OsString>> {
    let step = |inner: &SandboxPolicy| -> io::Result<Vec<OsString>> {
        let spec = serde_json::to_string(inner)?;
        let report = report.map_or_else(|| "-".to_owned(), |fd| fd.to_string());
        let mut line: Vec<OsString> = vec![
            exe.into(),
            SANDBOX_STEP.into(),
            report.into(),
            spec.into(),
            cwd.into(),
            "--".into(),
        ];
        line.extend(argv.iter().map(OsString::from));
        Ok(line)
    };
    match policy.kind {
        SandboxBackend::Landlock => step(policy),
        SandboxBackend::Bwrap => {
            // The paths are bubblewrap's business; the step inside needs the rest.
            let (paths, aliases) = (Vec::new(), Vec::new());
            let inner =
                SandboxPolicy { paths, aliases, replaced: Vec::new(), tmp: None, ..policy.clone() };
            let mut line = bwrap::build_arguments(policy, exe, cwd)?;
            line.extend(step(&inner)?);
            Ok(line)
        }
    }
}

/// There is no sandbox on this system.
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
pub fn wrap_command(
    _: &SandboxPolicy,
    _: &Path,
    _: &Path,
    _: &[String],
    _: Option<i32>,
) -> io::Result<Vec<OsString>> {
    Err(unsupported_error())
}

/// Tests whether this backend works here, by running a command in a sandbox.
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
pub fn probe_backend(kind: SandboxBackend, exe: &Path) -> Result<(), String> {
    let cwd = Path::new("/");
    // The probe has a writable and a hidden path as a real job has, because a sandbox that merely
    // starts proves little.
    let mut policy = SandboxPolicy::minimal(kind);
    policy.network = SandboxNetworkAccess::Open;
    policy.set_path_access(&std::env::temp_dir(), SandboxPathAccess::Write);
    policy.set_path_access(Path::new("/var/empty-of-mainstem"), SandboxPathAccess::Hidden);
    let line =
        wrap_command(&policy, exe, cwd, &["/bin/sh".into(), "-c".into(), "exit 7".into()], None)
            .map_err(|error| error.to_string())?;
    let (program, args) = line.split_first().ok_or("no command line")?;
    let run = std::process::Command::new(program)
        .args(args)
        .current_dir(cwd)
        .stdin(std::process::Stdio::null())
        .output();
    match run {
        Ok(out) if out.status.code() == Some(7) => Ok(()),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stderr);
            let why = text.trim().lines().next().unwrap_or("no error message").to_owned();
            Err(why)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("{} is not installed", program.to_string_lossy()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// There is no sandbox on this system.
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
pub fn probe_backend(_: SandboxBackend, _: &Path) -> Result<(), String> {
    Err(unsupported_error().to_string())
}

/// The main function of the step: restricts this process, then becomes the command. Returns only if
/// that failed, or with the command's exit code where this process stays as the first one of its
/// namespace.
#[cfg(all(target_os = "linux", not(mainstem_portable)))]
pub fn run_sandbox_step(args: &[OsString]) -> u8 {
    inner_step::enter_sandbox(args)
}

/// There is no sandbox on this system.
#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
pub fn run_sandbox_step(_: &[OsString]) -> u8 {
    SANDBOX_STEP_FAILED
}

#[cfg(not(all(target_os = "linux", not(mainstem_portable))))]
fn unsupported_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "no sandbox is available on this system; sandboxes need Linux",
    )
}
