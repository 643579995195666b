//! Measures the journal on the disk of a directory: `cargo run --release -p mainstem-store --example measure -- [DIR]`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstem_store::{
    GroupCommitWriter, Journal, JournalReader, NewJournalRecord, SqliteJournal, SqliteJournalReader,
};

const SPAN: Duration = Duration::from_secs(3);

fn main() {
    let parent = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::TempDir::new_in(parent).unwrap();
    for size in [1, 100] {
        let path = directory.path().join(format!("by-{size}.db"));
        let (journal, epoch) = open(&path);
        let rate = appends(journal, epoch, size);
        println!("{size:>3} per append: {rate:>9.0} facts/s");
    }
    let (journal, epoch) = open(&directory.path().join("group.db"));
    println!("32 threads, group commit: {:>9.0} facts/s", grouped(journal, epoch));
    replay(&directory.path().join("million.db"));
}

fn open(path: &std::path::Path) -> (SqliteJournal, u64) {
    let mut journal = SqliteJournal::open(path).unwrap();
    let epoch = journal.take_over().unwrap();
    (journal, epoch)
}

fn facts(count: usize) -> Vec<NewJournalRecord> {
    (0..count)
        .map(|n| NewJournalRecord {
            at_ms: 0,
            run: "01J9ZK6Y3Q8M4V7T2N5R1W0XAB".into(),
            kind: "agent_started".into(),
            task: Some(format!("T-{n:03}")),
            body: format!("{{\"type\":\"agent_started\",\"n\":{n},\"pad\":\"{:200}\"}}", ""),
        })
        .collect()
}

fn appends(mut journal: SqliteJournal, epoch: u64, size: usize) -> f64 {
    let batch = facts(size);
    let start = Instant::now();
    while start.elapsed() < SPAN {
        journal.append(epoch, &batch).unwrap();
    }
    journal.last_seq().unwrap() as f64 / start.elapsed().as_secs_f64()
}

fn grouped(journal: SqliteJournal, epoch: u64) -> f64 {
    let writer = GroupCommitWriter::spawn(Box::new(journal), epoch).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                while start.elapsed() < SPAN {
                    writer.append(facts(1)).wait().unwrap();
                }
            });
        }
    });
    writer.close().unwrap().last_seq().unwrap() as f64 / start.elapsed().as_secs_f64()
}

fn replay(path: &std::path::Path) {
    let (mut journal, epoch) = open(path);
    let batch = facts(10_000);
    for _ in 0..100 {
        journal.append(epoch, &batch).unwrap();
    }
    drop(journal);
    let start = Instant::now();
    drop(SqliteJournal::open(path).unwrap());
    println!("open with 1,000,000 facts: {:?}", start.elapsed());
    let reader = SqliteJournalReader::open(path).unwrap();
    let start = Instant::now();
    assert_eq!(reader.for_each(0, &mut |_| Ok(())).unwrap(), 1_000_000);
    println!("read 1,000,000 facts: {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(reader.list_runs().unwrap().len(), 1);
    println!("runs among 1,000,000 facts: {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(
        reader.read_task("01J9ZK6Y3Q8M4V7T2N5R1W0XAB", "T-042", 0, 1000).unwrap().len(),
        100
    );
    println!("one task's 100 facts among 1,000,000: {:?}", start.elapsed());
    let start = Instant::now();
    assert!(reader.find_damage().unwrap().is_empty());
    println!("integrity check of 1,000,000 facts: {:?}", start.elapsed());
}
