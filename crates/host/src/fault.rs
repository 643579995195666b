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
struct Wish {
    at: Option<u64>,
    after: bool,
    log: Option<std::path::PathBuf>,
    twice: bool,
}

static WISH: OnceLock<Wish> = OnceLock::new();
static BEGUN: AtomicU64 = AtomicU64::new(0);

fn wish() -> &'static Wish {
    WISH.get_or_init(|| {
        let at = std::env::var("MAINSTEM_FAIL_AT").unwrap_or_default();
        let (number, after) = number_of(&at);
        Wish {
            at: number,
            after,
            log: std::env::var_os("MAINSTEM_FAIL_LOG").map(Into::into),
            twice: std::env::var("MAINSTEM_EFFECTS_TWICE").is_ok_and(|wish| wish == "1"),
        }
    })
}

fn number_of(text: &str) -> (Option<u64>, bool) {
    match text.strip_suffix('+') {
        Some(number) => (number.parse().ok(), true),
        None => (text.parse().ok(), false),
    }
}

/// An operation that was begun.
#[derive(Debug)]
#[must_use = "an ordered failure may be due after the operation"]
pub struct Operation {
    name: Option<String>,
}

impl Operation {
    /// Fails if the operation was to be done and then reported as failed.
    pub fn done(self) -> io::Result<()> {
        self.name.map_or(Ok(()), |name| Err(ordered(&name, "done, but reported as failed")))
    }
}

/// Begins an operation that may fail on any machine; fails if that was ordered.
pub fn operation(name: impl FnOnce() -> String) -> io::Result<Operation> {
    let wish = wish();
    if wish.at.is_none() && wish.log.is_none() {
        return Ok(Operation { name: None });
    }
    let number = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
    let name = name();
    if let Some(log) = &wish.log
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(log)
    {
        // A test that cannot note an operation will miss it in its count and fail there.
        let _ = writeln!(file, "{number} {name}");
    }
    if wish.at != Some(number) {
        return Ok(Operation { name: None });
    }
    if wish.after { Ok(Operation { name: Some(name) }) } else { Err(ordered(&name, "not done")) }
}

fn ordered(name: &str, how: &str) -> io::Error {
    let error = io::Error::from(rustix::io::Errno::IO);
    io::Error::new(error.kind(), format!("{error} (ordered by MAINSTEM_FAIL_AT: {name}, {how})"))
}

/// Is every effect to be carried out twice?
pub fn effects_twice() -> bool {
    wish().twice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_asks_for_the_failure_after_the_deed() {
        assert_eq!(number_of("7"), (Some(7), false));
        assert_eq!(number_of("7+"), (Some(7), true));
        assert_eq!(number_of("seven"), (None, false));
        assert_eq!(number_of(""), (None, false));
    }

    #[test]
    fn an_ordered_failure_is_an_io_error_that_names_the_operation() {
        let error = ordered("git update-ref", "not done").to_string();
        assert!(error.contains("git update-ref") && error.contains("not done"), "{error}");
        let late = Operation { name: Some("git gc".to_owned()) };
        assert!(late.done().is_err());
        assert!(Operation { name: None }.done().is_ok());
    }
}
