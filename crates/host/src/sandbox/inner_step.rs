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

use super::{
    SANDBOX_STEP_FAILED, SandboxBackend, SandboxPathAccess, SandboxPolicy, landlock_grants, seccomp,
};

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

/// What every kernel with Landlock can enforce. Older kernels cannot restrict signals.
const ENFORCED: ABI = ABI::V6;

pub(super) fn enter_sandbox(args: &[OsString]) -> u8 {
    let [report, args @ ..] = args else { return SANDBOX_STEP_FAILED };
    let mut report = SandboxReportWriter::open_by_number(report);
    match run_step(args, &mut report) {
        Ok(code) => code,
        Err((what, why)) => {
            let text = format!("{what}: {why}");
            report.write_line(&format!("wall {text}"));
            let _ = writeln!(io::stderr(), "mainstem: cannot set up the sandbox: {text}");
            SANDBOX_STEP_FAILED
        }
    }
}

/// Tells the supervisor what an exit code cannot. Opened before anything is forbidden.
struct SandboxReportWriter(Option<fs::File>);

impl SandboxReportWriter {
    /// By the number of a file that was left open for us; `-` is nobody.
    fn open_by_number(number: &OsString) -> Self {
        let path = Path::new("/proc/self/fd").join(number);
        Self((number != "-").then(|| fs::File::options().append(true).open(path).ok()).flatten())
    }

    fn write_line(&mut self, line: &str) {
        if let Some(file) = &mut self.0 {
            // Nobody listens: then the exit code has to do.
            let _ = file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
        }
    }
}

type SandboxStepFailure = (&'static str, String);

fn step_failure<E: ToString>(what: &'static str) -> impl FnOnce(E) -> SandboxStepFailure {
    move |error| (what, error.to_string())
}

fn run_step(args: &[OsString], report: &mut SandboxReportWriter) -> Result<u8, SandboxStepFailure> {
    let [spec, cwd, dashes, program, rest @ ..] = args else {
        return Err(("arguments", "a policy, a folder, -- and a command are wanted".to_owned()));
    };
    if dashes != "--" {
        return Err(("arguments", "`--` is missing".to_owned()));
    }
    let spec = spec.to_str().ok_or(("policy", "it is no text".to_owned()))?;
    let policy: SandboxPolicy = serde_json::from_str(spec).map_err(step_failure("policy"))?;
    set_resource_limits(&policy).map_err(step_failure("limits"))?;
    match policy.kind {
        SandboxBackend::Landlock => {
            apply_landlock(&policy, Path::new(cwd))?;
            drop_capabilities().map_err(step_failure("rights"))?;
        }
        // Namespaces do not keep abstract sockets apart as long as the network is shared.
        SandboxBackend::Bwrap => apply_landlock_scope(),
    }
    for filter in seccomp::build_filters(&policy).map_err(step_failure("filter"))? {
        seccompiler::apply_filter(&filter).map_err(step_failure("seccomp"))?;
    }
    let mut command = Command::new(program);
    command.args(rest);
    let error = match policy.kind {
        SandboxBackend::Landlock => command.exec(),
        SandboxBackend::Bwrap => match command.spawn() {
            Ok(child) => return run_as_namespace_init(child.id(), report),
            Err(error) => error,
        },
    };
    report.write_line(&format!("errno {}", error.raw_os_error().unwrap_or(libc::EINVAL)));
    let _ = writeln!(io::stderr(), "mainstem: {}: {error}", program.to_string_lossy());
    Ok(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Rights with which root could read other processes or leave the sandbox; without them it is root over files
/// only. Others have none of them.
fn drop_capabilities() -> io::Result<()> {
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

fn set_resource_limits(policy: &SandboxPolicy) -> io::Result<()> {
    let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    setrlimit(Resource::Core, both(0))?;
    if let Some(bytes) = policy.file_bytes {
        setrlimit(Resource::Fsize, both(bytes))?;
    }
    if let Some(processes) = policy.processes {
        setrlimit(Resource::Nproc, both(processes))?;
    }
    Ok(())
}

/// Landlock, all of it.
fn apply_landlock(policy: &SandboxPolicy, cwd: &Path) -> Result<(), SandboxStepFailure> {
    let mut entries = policy.sorted_paths();
    let memory = Path::new(SHARED_MEMORY);
    if entries.iter().all(|(path, _)| path != memory) {
        // Split like any other folder if something in it is kept back.
        entries.push((memory.to_path_buf(), SandboxPathAccess::Write));
    }
    entries.retain(|(path, access)| *access == SandboxPathAccess::Hidden || path.exists());
    let granted = landlock_grants::list_grants(&entries).map_err(step_failure("paths"))?;
    let all = AccessFs::from_all(ENFORCED);
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(|rules| rules.scope(Scope::from_all(ENFORCED)))
        .and_then(|rules| {
            rules.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::ResolveUnix)
        })
        .and_then(Ruleset::create)
        .map_err(step_failure("Landlock of Linux 6.12 or newer"))?;
    let mut rules = rules.set_compatibility(CompatLevel::BestEffort);
    for (path, access) in &granted {
        rules = add_landlock_rule(rules, path, landlock_rights(*access))
            .map_err(step_failure("rule"))?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate;
    for path in DEVICES {
        rules =
            add_landlock_rule(rules, Path::new(path), device).map_err(step_failure("device"))?;
    }
    rules.restrict_self().map_err(step_failure("Landlock"))?;
    if fs::metadata(cwd).is_err() {
        return Err(("working directory", format!("{} is not there", cwd.display())));
    }
    Ok(())
}

fn landlock_rights(access: SandboxPathAccess) -> BitFlags<AccessFs> {
    let read = AccessFs::from_read(ENFORCED);
    match access {
        SandboxPathAccess::Hidden => BitFlags::EMPTY,
        SandboxPathAccess::Read => read,
        SandboxPathAccess::Write => {
            let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
            (AccessFs::from_all(ENFORCED) | AccessFs::ResolveUnix) & !devices
        }
    }
}

fn add_landlock_rule(
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
fn apply_landlock_scope() {
    let scoped = Ruleset::default().scope(Scope::from_all(ENFORCED)).and_then(Ruleset::create);
    if let Ok(rules) = scoped {
        let _ = rules.restrict_self();
    }
}

/// The first process of a namespace: whatever loses its parent in there becomes its child, and when it
/// ends, the kernel ends all that is left. So it tells how the command ended and stays until everything
/// else has ended too, as the supervisor sees to. Gives the command's exit code.
fn run_as_namespace_init(
    command: u32,
    report: &mut SandboxReportWriter,
) -> Result<u8, SandboxStepFailure> {
    // Input and output are the command's alone from here on.
    if let Ok(null) = fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let mut code = SANDBOX_STEP_FAILED;
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
                report.write_line(&format!("{word} {number}"));
                let shown = if word == "signal" { 128 + number } else { number };
                code = u8::try_from(shown & 0xff).unwrap_or(SANDBOX_STEP_FAILED);
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(code),
            Err(error) => return Err(("waiting", error.to_string())),
        }
    }
}
