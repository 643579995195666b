//! Starting a program that goes on without us, and waiting a moment. Knows no jobs.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts a program in a process group of its own, its output in `log`, exactly this environment.
pub fn spawn_detached(
    argv: &[String],
    cwd: &Path,
    env: &[(String, String)],
    log: &Path,
) -> io::Result<Child> {
    let out = OpenOptions::new().create(true).append(true).open(log)?;
    let err = out.try_clone()?;
    let [program, args @ ..] = argv else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program was named"));
    };
    Command::new(program)
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0)
        .spawn()
}

/// Waits a moment between two looks at something that sends no event.
pub fn sleep_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Gives this thread the lowest priority, for the processor and (where the scheduler follows it) the disk.
#[cfg(target_os = "linux")]
pub fn lower_thread_priority() {
    // Where it is not allowed, the work is done all the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
}

/// Threads have no priority of their own here.
#[cfg(not(target_os = "linux"))]
pub fn lower_thread_priority() {}
