//! Asks a program a short question: its first line, within a time limit. Knows no jobs.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer answers are cut.
const ANSWER_BYTES: u64 = 64 * 1024;
const LOOK: Duration = Duration::from_millis(10);

/// What a program prints, if it ends well in time; none if there is no such program, or it does not.
pub fn query_program(
    program: impl AsRef<OsStr>,
    args: &[&str],
    within: Duration,
) -> Option<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.map(|out| out.take(ANSWER_BYTES).read_to_string(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    let deadline = Instant::now() + within;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return reader.join().ok().flatten(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK),
            _ => {
                // It may have ended by itself in between. Whoever holds its output open is not waited for.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}
