//! Numbered crash points: after every durable write and every effect on the outside, a test can have
//! this process die as if by `kill -9`. Does nothing unless asked to by the environment.
//!
//! `MAINSTEM_CRASH_AT=n` dies at the n-th point passed, with a name instead at the first of that name;
//! `MAINSTEM_CRASH_LOG=file` notes each point's
//! name as it is passed, so that a dry run can count them.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct CrashPointSettings {
    at: Option<u64>,
    named: Option<String>,
    log: Option<std::path::PathBuf>,
}

static SETTINGS: OnceLock<CrashPointSettings> = OnceLock::new();
static PASSED: AtomicU64 = AtomicU64::new(0);

/// A place where dying must be harmless.
pub fn point(name: &str) {
    let settings = SETTINGS.get_or_init(|| {
        let requested = std::env::var("MAINSTEM_CRASH_AT").ok();
        let at = requested.as_ref().and_then(|n| n.parse().ok());
        let log = std::env::var_os("MAINSTEM_CRASH_LOG").map(Into::into);
        CrashPointSettings { at, named: requested.filter(|_| at.is_none()), log }
    });
    if settings.at.is_none() && settings.named.is_none() && settings.log.is_none() {
        return;
    }
    let number = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(log) = &settings.log
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(log)
    {
        // A test that cannot note a point will miss it in its count and fail there.
        let _ = writeln!(file, "{number} {name}");
    }
    if settings.at == Some(number) || settings.named.as_deref() == Some(name) {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}
