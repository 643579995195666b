//! The supervisor as a program of its own, for this crate's tests, and the commands they supervise that a
//! shell cannot play.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use mainstem_host::process::{self, JobSpec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::stdio::{stdin, stdout};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let done = match words[..] {
        ["__supervise", dir] => {
            let code = process::supervise(Path::new(dir));
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        ["__start", dir, spec] => start_and_stay(Path::new(dir), Path::new(spec)),
        ["__poll"] => read_by_polling(),
        ["__ask", times] => ask_at_once(times.parse().unwrap_or(0)),
        _ => return ExitCode::from(2),
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A starter that stays until it is killed.
fn start_and_stay(dir: &Path, spec: &Path) -> io::Result<()> {
    let spec: JobSpec = serde_json::from_slice(&std::fs::read(spec)?)?;
    let supervisor = [std::env::current_exe()?.into(), "__supervise".into()];
    process::start(dir, &spec, &supervisor).map_err(io::Error::other)?;
    loop {
        std::thread::park();
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
fn ask_at_once(times: u32) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while rustix::io::read(stdin(), &mut bytes)? > 0 {}
    for n in 1..=times {
        rustix::io::write(stdout(), b"{\"mainstem\":\"ask\"}\n")?;
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
