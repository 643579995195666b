//! Faults that a test orders by the environment: one operation on this machine that fails, effects that
//! are carried out twice. Does nothing unless asked to; read once per process.
//!
//! `MAINSTEM_FAIL_AT=n` makes the n-th fallible operation of this process fail once with an I/O error
//! before anything was done; `MAINSTEM_FAIL_AT=n+` does it and then reports the failure, as a lost
//! answer would. `MAINSTEM_FAIL_LOG=file` notes each operation's number and name as it is begun, so that
//! a dry run can count them. `MAINSTEM_EFFECTS_TWICE=1` is for whoever performs effects. Dying is the
//! business of [`crate::crash`].

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
struct FaultInjectionSettings {
    at: Option<u64>,
    after: bool,
    log: Option<std::path::PathBuf>,
    twice: bool,
}

static WISH: OnceLock<FaultInjectionSettings> = OnceLock::new();
static BEGUN: AtomicU64 = AtomicU64::new(0);

fn fault_settings() -> &'static FaultInjectionSettings {
    WISH.get_or_init(|| {
        let at = std::env::var("MAINSTEM_FAIL_AT").unwrap_or_default();
        let (number, after) = parse_fault_position(&at);
        FaultInjectionSettings {
            at: number,
            after,
            log: std::env::var_os("MAINSTEM_FAIL_LOG").map(Into::into),
            twice: std::env::var("MAINSTEM_EFFECTS_TWICE").is_ok_and(|value| value == "1"),
        }
    })
}

fn parse_fault_position(text: &str) -> (Option<u64>, bool) {
    match text.strip_suffix('+') {
        Some(number) => (number.parse().ok(), true),
        None => (text.parse().ok(), false),
    }
}

/// An operation that was begun.
#[derive(Debug)]
#[must_use = "an ordered failure may be due after the operation"]
pub struct FallibleOperation {
    name: Option<String>,
}

impl FallibleOperation {
    /// Fails if the operation was to be done and then reported as failed.
    pub fn finish(self) -> io::Result<()> {
        self.name.map_or(Ok(()), |name| Err(injected_error(&name, "done, but reported as failed")))
    }
}

/// Begins an operation that may fail on any machine; fails if that was ordered.
pub fn begin_operation(name: impl FnOnce() -> String) -> io::Result<FallibleOperation> {
    let settings = fault_settings();
    if settings.at.is_none() && settings.log.is_none() {
        return Ok(FallibleOperation { name: None });
    }
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    let name = name();
    if let Some(log) = &settings.log
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(log)
    {
        // A test that cannot note an operation will miss it in its count and fail there.
        let _ = writeln!(file, "{number} {name}");
    }
    if settings.at != Some(number) {
        return Ok(FallibleOperation { name: None });
    }
    if settings.after {
        Ok(FallibleOperation { name: Some(name) })
    } else {
        Err(injected_error(&name, "not done"))
    }
}

fn injected_error(name: &str, how: &str) -> io::Error {
    let error = io::Error::from(rustix::io::Errno::IO);
    io::Error::new(error.kind(), format!("{error} (ordered by MAINSTEM_FAIL_AT: {name}, {how})"))
}

/// Is every effect to be carried out twice?
pub fn runs_effects_twice() -> bool {
    fault_settings().twice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_asks_for_the_failure_after_the_deed() {
        assert_eq!(parse_fault_position("7"), (Some(7), false));
        assert_eq!(parse_fault_position("7+"), (Some(7), true));
        assert_eq!(parse_fault_position("seven"), (None, false));
        assert_eq!(parse_fault_position(""), (None, false));
    }

    #[test]
    fn an_ordered_failure_is_an_io_error_that_names_the_operation() {
        let error = injected_error("git update-ref", "not done").to_string();
        assert!(error.contains("git update-ref") && error.contains("not done"), "{error}");
        let late = FallibleOperation { name: Some("git gc".to_owned()) };
        assert!(late.finish().is_err());
        assert!(FallibleOperation { name: None }.finish().is_ok());
    }
}
