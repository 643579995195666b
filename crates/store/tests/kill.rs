//! The journal in real processes: killed writers, readers beside them, and a writer that is pushed aside.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "this crate knows no host; the hammer is started bare"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use mainstem_store::{Journal, JournalReader, SqliteJournal, SqliteJournalReader, StoreError};
use tempfile::TempDir;

/// A hammer at work, with what it says.
struct Hammer {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Hammer {
    fn start(arguments: &[&str], path: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_store-hammer"));
        command.arg(arguments[0]).arg(path).args(&arguments[1..]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The next number it says; none when it has ended. Half a line is not said.
    fn next(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.strip_suffix('\n').map(|number| number.parse().unwrap())
    }

    /// Kills it and returns the last number it said, if it said one more.
    fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.next()).last()
    }

    /// Ends its input and waits for a good end.
    fn end(mut self) {
        drop(self.child.stdin.take());
        while self.next().is_some() {}
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        // Already ended is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scratch() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("state/journal.db");
    (directory, path)
}

/// How often to kill: a few times always, many times with RUN_SLOW=1.
fn rounds() -> u64 {
    if std::env::var_os("RUN_SLOW").is_some() { 500 } else { 40 }
}

#[test]
fn a_writer_killed_again_and_again_loses_no_acknowledged_fact() {
    let (_directory, path) = scratch();
    let mut watcher = Hammer::start(&["read"], &path);
    let mut acknowledged = 0;
    for round in 0..rounds() {
        let batch = [1, 3, 40][usize::try_from(round % 3).unwrap()];
        let mut writer = Hammer::start(&["write", &batch.to_string()], &path);
        // Kills fall anywhere: while it starts, right after a commit, and amid checkpoints of the WAL.
        for _ in 0..round * 37 % 101 {
            let seq = writer.next().expect("the writer ended by itself");
            assert_eq!(seq, acknowledged + batch, "a batch was lost or numbered twice");
            acknowledged = seq;
        }
        acknowledged = writer.kill().unwrap_or(acknowledged);
        let last = match SqliteJournalReader::open(&path) {
            Err(StoreError::Absent { .. }) => 0,
            reader => reader.unwrap().last_seq().unwrap(),
        };
        assert!(last >= acknowledged, "round {round}: {acknowledged} acknowledged, {last} there");
        // A batch may be durable although the writer did not live to say so.
        assert!(last <= acknowledged + batch, "round {round}: more than one batch unsaid");
        acknowledged = last;
    }
    assert!(acknowledged > 1000);
    check_whole(&path, acknowledged);

    let mut seen = 0;
    while seen < acknowledged {
        let now = watcher.next().expect("the reader ended by itself");
        assert!(now > seen, "the reader went back from {seen} to {now}");
        seen = now;
    }
    assert_eq!(seen, acknowledged);
    watcher.end();
}

/// Every fact is there once, in order, and the file is sound.
fn check_whole(path: &Path, last: u64) {
    let reader = SqliteJournalReader::open(path).unwrap();
    assert_eq!(reader.find_damage().unwrap(), Vec::<String>::new());
    let mut expected = 0;
    reader
        .for_each(0, &mut |record| {
            expected += 1;
            assert_eq!(record.seq, expected);
            assert!(record.body.starts_with(&format!("{{\"seq\":{expected},")));
            Ok(())
        })
        .unwrap();
    assert_eq!(expected, last);
}

#[test]
fn a_running_writer_is_pushed_aside_by_the_next_one() {
    let (_directory, path) = scratch();
    let mut old = Hammer::start(&["write", "1"], &path);
    old.next().unwrap();
    let mut new = Hammer::start(&["write", "1"], &path);
    new.next().unwrap();
    while old.next().is_some() {}
    assert_eq!(old.child.wait().unwrap().code(), Some(3), "the old one must say it was fenced");
    new.next().expect("the new one goes on");
    let said = new.kill();
    let last = SqliteJournalReader::open(&path).unwrap().last_seq().unwrap();
    assert!(said.is_none_or(|said| said <= last));
    check_whole(&path, last);
}

/// Closing any plain handle of the file would drop them, and with them what keeps other processes from the WAL.
#[cfg(target_os = "linux")]
#[test]
fn opening_a_reader_here_does_not_give_up_the_locks_of_the_writer_here() {
    use std::os::unix::fs::MetadataExt;

    let (_directory, path) = scratch();
    let mut journal = SqliteJournal::open(&path).unwrap();
    journal.take_over().unwrap();
    let ours = format!(" {} ", std::process::id());
    let inode = format!(":{} ", std::fs::metadata(&path).unwrap().ino());
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        all.lines().filter(|line| line.contains(&ours) && line.contains(&inode)).count()
    };
    assert_eq!(locks(), 1);
    drop(SqliteJournalReader::open(&path).unwrap());
    drop(SqliteJournal::open(&path).unwrap());
    assert_eq!(locks(), 1);
}
