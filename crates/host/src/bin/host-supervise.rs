//! The supervisor as a program of its own, for this crate's tests, and the commands they supervise that a
//! shell cannot play.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use mainstem_host::process::{self, JobSpec};
use mainstem_host::sandbox;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::{stdin, stdout};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [step, rest @ ..] = args.as_slice()
        && step == sandbox::SANDBOX_STEP
    {
        return ExitCode::from(sandbox::run_sandbox_step(rest));
    }
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let done = match words[..] {
        ["__supervise", dir] => {
            let code = process::supervise_job(Path::new(dir));
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        ["__start", dir, spec] => start_job_and_stay(Path::new(dir), Path::new(spec)),
        ["__poll"] => read_by_polling(),
        ["__ask", times] => ask_questions(times.parse().unwrap_or(0)),
        ["__hog", mib] => allocate_memory(mib.parse().unwrap_or(0)),
        ["__hydra", heads, depth, word] => {
            spawn_process_tree(heads.parse().unwrap_or(0), depth.parse().unwrap_or(0), word)
        }
        _ => return ExitCode::from(2),
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A starter that stays until it is killed.
fn start_job_and_stay(dir: &Path, spec: &Path) -> io::Result<()> {
    let spec: JobSpec = serde_json::from_slice(&std::fs::read(spec)?)?;
    let supervisor = [std::env::current_exe()?.into(), "__supervise".into()];
    process::start_job(dir, &spec, &supervisor).map_err(io::Error::other)?;
    loop {
        std::thread::park();
    }
}

/// Takes this much memory, says so and keeps it until its input ends.
fn allocate_memory(mib: usize) -> io::Result<()> {
    let taken = vec![1u8; mib << 20];
    rustix::io::write(stdout(), b"taken\n")?;
    while rustix::io::read(stdin(), &mut [0; 64])? > 0 {}
    std::hint::black_box(taken);
    Ok(())
}

/// Ignores requests to end, leaves its group, has so many children that do the same, and starts another
/// for each that dies. Their number stays the same, so it is a bomb that nobody has to fear.
fn spawn_process_tree(heads: usize, depth: usize, word: &str) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    let ignored = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, ignored)?;
    let program = std::env::current_exe()?;
    let grow = || {
        let child = std::process::Command::new(&program)
            .args(["__hydra", &heads.to_string(), &(depth - 1).to_string(), word])
            .process_group(0)
            .spawn();
        // No process to be had: it will be one head fewer.
        drop(child);
    };
    if depth > 0 {
        (0..heads).for_each(|_| grow());
    }
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) => grow(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
}

/// Waits for input by polling, as event loops do, and prints it at its end.
fn read_by_polling() -> io::Result<()> {
    let (mut all, mut piece) = (Vec::new(), [0; 100]);
    loop {
        poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], None)?;
        match rustix::io::read(stdin(), &mut piece)? {
            0 => break,
            n => all.extend_from_slice(&piece[..n]),
        }
    }
    rustix::io::write(stdout(), &all)?;
    Ok(())
}

/// Reads the prompt to its end, then asks and reads without a moment between; fails unless the n-th answer
/// is `n`. After every other one it reads to the end again.
fn ask_questions(times: u32) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while rustix::io::read(stdin(), &mut bytes)? > 0 {}
    for n in 1..=times {
        rustix::io::write(stdout(), b"{\"mainstem\":\"ask\",\"question\":\"?\"}\n")?;
        let got = rustix::io::read(stdin(), &mut bytes)?;
        if bytes[..got] != *format!("{n}\n").as_bytes() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if n % 2 == 0 && rustix::io::read(stdin(), &mut bytes)? > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}
