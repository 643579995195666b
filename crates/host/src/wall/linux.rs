//! The step inside: restricts its own process and becomes the command, or stays as the first process of
//! a new namespace and waits for it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::process::{Resource, Rlimit, WaitOptions, setrlimit, wait};
use rustix::thread::CapabilitySet;

use super::{Access, FAILED, Kind, Wall, grants, seccomp};

/// Devices that every program expects; all others stay out of reach for writing.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];
/// Memory that processes share under a name: temporary by nature.
const SHARED_MEMORY: &str = "/dev/shm";

/// What every kernel with this wall can enforce. Older ones cannot keep signals in.
const ENFORCED: ABI = ABI::V6;

pub(super) fn step(args: &[OsString]) -> u8 {
    let [report, args @ ..] = args else { return FAILED };
    let mut report = Report::open(report);
    match run(args, &mut report) {
        Ok(code) => code,
        Err((what, why)) => {
            let text = format!("{what}: {why}");
            report.say(&format!("wall {text}"));
            let _ = writeln!(io::stderr(), "mainstem: cannot set up the sandbox: {text}");
            FAILED
        }
    }
}

/// Tells the supervisor what an exit code cannot. Opened before anything is forbidden.
struct Report(Option<fs::File>);

impl Report {
    /// By the number of a file that was left open for us; `-` is nobody.
    fn open(number: &OsString) -> Self {
        let path = Path::new("/proc/self/fd").join(number);
        Self((number != "-").then(|| fs::File::options().append(true).open(path).ok()).flatten())
    }

    fn say(&mut self, line: &str) {
        if let Some(file) = &mut self.0 {
            // Nobody listens: then the exit code has to do.
            let _ = file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
        }
    }
}

type Failure = (&'static str, String);

fn failed<E: ToString>(what: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| (what, error.to_string())
}

fn run(args: &[OsString], report: &mut Report) -> Result<u8, Failure> {
    let [spec, cwd, dashes, program, rest @ ..] = args else {
        return Err(("arguments", "a policy, a folder, -- and a command are wanted".to_owned()));
    };
    if dashes != "--" {
        return Err(("arguments", "`--` is missing".to_owned()));
    }
    let spec = spec.to_str().ok_or(("policy", "it is no text".to_owned()))?;
    let wall: Wall = serde_json::from_str(spec).map_err(failed("policy"))?;
    limit(&wall).map_err(failed("limits"))?;
    match wall.kind {
        Kind::Landlock => {
            restrict(&wall, Path::new(cwd))?;
            lose_rights().map_err(failed("rights"))?;
        }
        // Namespaces do not keep abstract sockets apart as long as the network is shared.
        Kind::Bwrap => scope_only(),
    }
    for filter in seccomp::filters(&wall).map_err(failed("filter"))? {
        seccompiler::apply_filter(&filter).map_err(failed("seccomp"))?;
    }
    let mut command = Command::new(program);
    command.args(rest);
    let error = match wall.kind {
        Kind::Landlock => command.exec(),
        Kind::Bwrap => match command.spawn() {
            Ok(child) => return stay(child.id(), report),
            Err(error) => error,
        },
    };
    report.say(&format!("errno {}", error.raw_os_error().unwrap_or(libc::EINVAL)));
    let _ = writeln!(io::stderr(), "mainstem: {}: {error}", program.to_string_lossy());
    Ok(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// What root could read other processes or leave the wall with; with these gone it is root over files
/// only. Others have none of them.
fn lose_rights() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for right in [
        CapabilitySet::SYS_ADMIN,
        CapabilitySet::PERFMON,
        CapabilitySet::SYS_PTRACE,
        CapabilitySet::SYS_MODULE,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::SYS_BOOT,
        CapabilitySet::SYS_TIME,
        CapabilitySet::SYSLOG,
        CapabilitySet::MKNOD,
        CapabilitySet::DAC_READ_SEARCH,
        CapabilitySet::LINUX_IMMUTABLE,
        CapabilitySet::NET_ADMIN,
        CapabilitySet::NET_RAW,
        CapabilitySet::BPF,
        CapabilitySet::CHECKPOINT_RESTORE,
    ] {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            // Not ours to take away: then we have it not either, or are no true root.
            Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn limit(wall: &Wall) -> io::Result<()> {
    let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    setrlimit(Resource::Core, both(0))?;
    if let Some(bytes) = wall.file_bytes {
        setrlimit(Resource::Fsize, both(bytes))?;
    }
    if let Some(processes) = wall.processes {
        setrlimit(Resource::Nproc, both(processes))?;
    }
    Ok(())
}

/// Landlock, all of it.
fn restrict(wall: &Wall, cwd: &Path) -> Result<(), Failure> {
    let mut entries = wall.sorted();
    let memory = Path::new(SHARED_MEMORY);
    if entries.iter().all(|(path, _)| path != memory) {
        // Split like any other folder if something in it is kept back.
        entries.push((memory.to_path_buf(), Access::Write));
    }
    entries.retain(|(path, access)| *access == Access::Hidden || path.exists());
    let granted = grants::grants(&entries).map_err(failed("paths"))?;
    let all = AccessFs::from_all(ENFORCED);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(|rules| rules.scope(Scope::from_all(ENFORCED)))
        .and_then(|rules| {
            rules.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::ResolveUnix)
        })
        .and_then(Ruleset::create)
        .map_err(failed("Landlock of Linux 6.12 or newer"))?;
    let mut rules = rules.set_compatibility(CompatLevel::BestEffort);
    for (path, access) in &granted {
        rules = add(rules, path, rights(*access)).map_err(failed("rule"))?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    for path in DEVICES {
        rules = add(rules, Path::new(path), device).map_err(failed("device"))?;
    }
    rules.restrict_self().map_err(failed("Landlock"))?;
    if fs::metadata(cwd).is_err() {
        return Err(("working directory", format!("{} is not there", cwd.display())));
    }
    Ok(())
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::from_read(ENFORCED);
    match access {
        Access::Hidden => BitFlags::EMPTY,
        Access::Read => read,
        Access::Write => {
            let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
            (AccessFs::from_all(ENFORCED) | AccessFs::ResolveUnix) & !devices
        }
    }
}

fn add(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, String> {
    // Gone since it was listed, or not to be opened by us: then there is nothing to grant.
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(rules) };
    if meta.is_symlink() || rights.is_empty() {
        return Ok(rules);
    }
    let Ok(fd) = PathFd::new(path) else { return Ok(rules) };
    let rights = if meta.is_dir() { rights } else { rights & AccessFs::from_file(ENFORCED) };
    if rights.is_empty() || meta.file_type().is_socket() {
        return Ok(rules);
    }
    rules.add_rule(PathBeneath::new(fd, rights)).map_err(|error| error.to_string())
}

/// Signals and abstract sockets stay inside where the kernel can do that; the namespace of processes
/// keeps signals in anyway.
fn scope_only() {
    let scoped = Ruleset::default().scope(Scope::from_all(ENFORCED)).and_then(Ruleset::create);
    if let Ok(rules) = scoped {
        let _ = rules.restrict_self();
    }
}

/// The first process of a namespace: whatever loses its parent in there becomes its child, and when it
/// ends, the kernel ends all that is left. So it tells how the command ended and stays until everything
/// else has ended too, as the supervisor sees to. Gives the command's exit code.
fn stay(command: u32, report: &mut Report) -> Result<u8, Failure> {
    // Input and output are the command's alone from here on.
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let mut code = FAILED;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if u32::try_from(pid.as_raw_nonzero().get()) != Ok(command) {
                    continue;
                }
                let (word, number) = match status.terminating_signal() {
                    Some(signal) => ("signal", signal),
                    None => ("exited", status.exit_status().unwrap_or_default()),
                };
                report.say(&format!("{word} {number}"));
                let shown = if word == "signal" { 128 + number } else { number };
                code = u8::try_from(shown & 0xff).unwrap_or(FAILED);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(code),
            Err(error) => return Err(("waiting", error.to_string())),
        }
    }
}
