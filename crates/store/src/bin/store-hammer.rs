//! Writes to or reads from a journal as hard as it can, to be killed by tests.
//!
//! `store-hammer write PATH BATCH` takes over, appends for ever and prints the place of every acknowledged batch.
//! `store-hammer read PATH` follows the journal, checks every fact and prints each place it has come to.
//! Each ends when its standard input does, so it never outlives the test that started it.

use std::error::Error;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use mainstem_store::{
    Journal, JournalReader, NewJournalRecord, SqliteJournal, SqliteJournalReader, StoreError,
};

/// Says that another writer took over.
const FENCED: u8 = 3;

/// How often a reader looks for more.
const POLL: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["write", path, batch] => write_records(path, batch),
        ["read", path] => verify_records(path),
        _ => Err("usage: store-hammer write PATH BATCH | read PATH".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "store-hammer: {error}");
            match error.downcast_ref() {
                Some(StoreError::Fenced { .. }) => ExitCode::from(FENCED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn write_records(path: &str, batch: &str) -> Result<(), Box<dyn Error>> {
    let batch: u64 = batch.parse()?;
    let input = StdinWatch::start();
    let mut journal = SqliteJournal::open(path)?;
    let epoch = journal.take_over()?;
    let mut last = journal.last_seq()?;
    while !input.ends_within(Duration::ZERO) {
        let facts: Vec<_> = (last + 1..=last + batch).map(test_record).collect();
        last = journal.append(epoch, &facts)?;
        report_seq(last)?;
    }
    Ok(())
}

fn verify_records(path: &str) -> Result<(), Box<dyn Error>> {
    let input = StdinWatch::start();
    let mut seen = 0;
    let reader = loop {
        match SqliteJournalReader::open(path) {
            Err(StoreError::Absent { .. }) if !input.ends_within(POLL) => {}
            other => break other?,
        }
    };
    let mut wait = Duration::ZERO;
    while !input.ends_within(wait) {
        let page = reader.read_after(seen, 1000)?;
        if page.is_empty() {
            wait = POLL;
            continue;
        }
        wait = Duration::ZERO;
        for record in page {
            seen += 1;
            if record != test_record(seen).with_seq(seen) {
                return Err(format!("instead of fact {seen}: {record:?}").into());
            }
        }
        report_seq(seen)?;
    }
    Ok(())
}

/// What stands at place `seq`: sizes vary, so that pages and overflow pages of all kinds are met.
fn test_record(seq: u64) -> NewJournalRecord {
    let size = usize::try_from(seq * 7919 % 3001).unwrap_or_default();
    NewJournalRecord {
        at_ms: 0,
        run: format!("run-{}", seq / 1000),
        kind: "hammered".into(),
        task: (!seq.is_multiple_of(3)).then(|| format!("T-{}", seq % 17)),
        body: format!("{{\"seq\":{seq},\"pad\":\"{}\"}}", "x".repeat(size)),
    }
}

fn report_seq(seq: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{seq}")?;
    out.flush()
}

/// Standard input, of which only the end matters.
struct StdinWatch {
    end: Receiver<()>,
}

impl StdinWatch {
    fn start() -> Self {
        let (sender, end) = channel();
        thread::spawn(move || {
            // The outcome does not matter: nothing more will come either way.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            drop(sender);
        });
        Self { end }
    }

    /// Whether it ends within `wait`.
    fn ends_within(&self, wait: Duration) -> bool {
        self.end.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected)
    }
}
