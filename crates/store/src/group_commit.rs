//! One thread that writes for many callers: whatever has queued while a commit ran goes into the next one together.
//!
//! Knows only the [`Journal`] trait. The first failure ends the writing: no fact may become durable after an earlier
//! one was lost.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use crate::{Journal, NewJournalRecord, StoreError};

/// The most facts that share a commit, so that no caller waits long behind the others.
const COMMIT_FACTS_MAX: usize = 512;

/// The most requests that wait: beyond this a caller waits to get in, rather than memory growing.
const QUEUE_REQUESTS_MAX: usize = 512;

/// The handle of the writer thread; share it by reference.
#[derive(Debug)]
pub struct GroupCommitWriter {
    requests: Option<SyncSender<AppendRequest>>,
    thread: Option<JoinHandle<Box<dyn Journal>>>,
}

/// A claim to the outcome of one [`GroupCommitWriter::append`].
#[derive(Debug)]
#[must_use = "only waiting tells whether the facts are durable"]
pub struct AppendTicket {
    answer: Receiver<Result<u64, StoreError>>,
}

struct AppendRequest {
    facts: Vec<NewJournalRecord>,
    answer: SyncSender<Result<u64, StoreError>>,
}

impl GroupCommitWriter {
    /// Starts the thread; it writes to `journal` under `epoch`.
    pub fn spawn(journal: Box<dyn Journal>, epoch: u64) -> Result<Self, StoreError> {
        let (sender, receiver) = sync_channel(QUEUE_REQUESTS_MAX);
        let thread = std::thread::Builder::new()
            .name("journal-writer".into())
            .spawn(move || write_groups(journal, epoch, &receiver))
            .map_err(|error| StoreError::Io {
                place: "journal-writer".into(),
                doing: "given a thread",
                detail: error.to_string(),
            })?;
        Ok(Self { requests: Some(sender), thread: Some(thread) })
    }

    /// Queues `facts`; they become durable together, after everything this caller queued before.
    pub fn append(&self, facts: Vec<NewJournalRecord>) -> AppendTicket {
        let (answer, ticket) = sync_channel(1);
        if let Some(requests) = &self.requests {
            // A refused request drops its answer sender, which the ticket reads as `Closed`.
            let _ = requests.send(AppendRequest { facts, answer });
        }
        AppendTicket { answer: ticket }
    }

    /// Writes what has queued, ends the thread and gives the journal back.
    pub fn close(mut self) -> Result<Box<dyn Journal>, StoreError> {
        self.requests = None;
        let thread = self.thread.take().ok_or(StoreError::Closed)?;
        thread.join().map_err(|_| StoreError::Closed)
    }
}

impl Drop for GroupCommitWriter {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has reached every ticket as `Closed` already.
            let _ = thread.join();
        }
    }
}

impl AppendTicket {
    /// Waits until the facts are durable and returns the place of the last one.
    pub fn wait(self) -> Result<u64, StoreError> {
        self.answer.recv().unwrap_or(Err(StoreError::Closed))
    }
}

fn write_groups(
    mut journal: Box<dyn Journal>,
    epoch: u64,
    requests: &Receiver<AppendRequest>,
) -> Box<dyn Journal> {
    let mut failure: Option<StoreError> = None;
    let mut held: Option<AppendRequest> = None;
    while let Some(first) = held.take().or_else(|| requests.recv().ok()) {
        if let Some(error) = &failure {
            send_outcome(first.answer, Err(error.clone()));
            continue;
        }
        let (group, next) = gather_group(first, requests);
        held = next;
        failure = commit_group(&mut *journal, epoch, group).err();
    }
    journal
}

/// Takes what has queued behind `first`, up to the limit; a request that does not fit leads the next group.
fn gather_group(
    first: AppendRequest,
    requests: &Receiver<AppendRequest>,
) -> (Vec<AppendRequest>, Option<AppendRequest>) {
    let mut size = first.facts.len();
    let mut group = vec![first];
    while size < COMMIT_FACTS_MAX {
        match requests.try_recv() {
            Ok(request) if size + request.facts.len() > COMMIT_FACTS_MAX => {
                return (group, Some(request));
            }
            Ok(request) => {
                size += request.facts.len();
                group.push(request);
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
        }
    }
    (group, None)
}

fn commit_group(
    journal: &mut dyn Journal,
    epoch: u64,
    group: Vec<AppendRequest>,
) -> Result<(), StoreError> {
    let mut facts = Vec::new();
    let mut waiting = Vec::new();
    for request in group {
        facts.extend(request.facts);
        waiting.push((facts.len() as u64, request.answer));
    }
    let outcome = journal.append(epoch, &facts);
    for (end, sender) in waiting {
        let behind = facts.len() as u64 - end;
        send_outcome(sender, outcome.clone().map(|last| last - behind));
    }
    outcome.map(|_| ())
}

/// A caller that dropped its ticket does not want to know.
fn send_outcome(sender: SyncSender<Result<u64, StoreError>>, outcome: Result<u64, StoreError>) {
    let _ = sender.send(outcome);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc;

    use super::*;
    use crate::conformance::test_record;
    use crate::{JournalReader, MemoryJournal};

    /// Reports the size of each commit, and lets it happen only when told.
    struct Gated {
        journal: MemoryJournal,
        started: mpsc::Sender<usize>,
        go: mpsc::Receiver<()>,
    }

    impl Journal for Gated {
        fn append(&mut self, epoch: u64, facts: &[NewJournalRecord]) -> Result<u64, StoreError> {
            self.started.send(facts.len()).unwrap();
            self.go.recv().unwrap();
            self.journal.append(epoch, facts)
        }

        fn take_over(&mut self) -> Result<u64, StoreError> {
            self.journal.take_over()
        }

        fn last_seq(&self) -> Result<u64, StoreError> {
            self.journal.last_seq()
        }
    }

    fn gated() -> (GroupCommitWriter, MemoryJournal, mpsc::Receiver<usize>, mpsc::Sender<()>) {
        let mut journal = MemoryJournal::new();
        let epoch = journal.take_over().unwrap();
        let (started, commits) = mpsc::channel();
        let (gate, go) = mpsc::channel();
        let gated = Gated { journal: journal.clone(), started, go };
        (GroupCommitWriter::spawn(Box::new(gated), epoch).unwrap(), journal, commits, gate)
    }

    fn facts(count: usize) -> Vec<NewJournalRecord> {
        (0..count).map(|n| test_record("r", "kind", None, &format!("{{\"n\":{n}}}"))).collect()
    }

    #[test]
    fn what_queues_during_a_commit_shares_the_next_one() {
        let (writer, journal, commits, gate) = gated();
        let first = writer.append(facts(1));
        assert_eq!(commits.recv().unwrap(), 1);
        let second = writer.append(facts(2));
        let third = writer.append(facts(3));
        gate.send(()).unwrap();
        assert_eq!(commits.recv().unwrap(), 5);
        gate.send(()).unwrap();
        assert_eq!(first.wait(), Ok(1));
        assert_eq!(second.wait(), Ok(3));
        assert_eq!(third.wait(), Ok(6));
        assert_eq!(journal.reader().last_seq(), Ok(6));
    }

    #[test]
    fn a_group_stays_within_the_limit_and_loses_nothing() {
        let (writer, journal, commits, gate) = gated();
        let mut tickets = vec![writer.append(facts(1))];
        assert_eq!(commits.recv().unwrap(), 1);
        for size in [300, 300, 700, 1] {
            tickets.push(writer.append(facts(size)));
        }
        for expected in [300, 300, 700, 1] {
            gate.send(()).unwrap();
            assert_eq!(commits.recv().unwrap(), expected);
        }
        gate.send(()).unwrap();
        let last: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
        assert_eq!(last, [1, 301, 601, 1301, 1302]);
        assert_eq!(journal.reader().last_seq(), Ok(1302));
    }

    #[test]
    fn nothing_is_written_after_a_failure() {
        let (writer, mut journal, commits, gate) = gated();
        let doomed = writer.append(facts(1));
        assert_eq!(commits.recv().unwrap(), 1);
        let behind = writer.append(facts(1));
        let current = journal.take_over().unwrap();
        gate.send(()).unwrap();
        let fenced = Err(StoreError::Fenced { ours: 1, current });
        assert_eq!(doomed.wait(), fenced);
        assert_eq!(behind.wait(), fenced);
        assert_eq!(writer.append(facts(1)).wait(), fenced);
        assert_eq!(journal.last_seq(), Ok(0));
    }

    #[test]
    fn many_threads_share_one_writer_and_each_gets_its_own_places() {
        let mut journal = MemoryJournal::new();
        let epoch = journal.take_over().unwrap();
        let reader = journal.reader();
        let writer = GroupCommitWriter::spawn(Box::new(journal), epoch).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (writer, reader) = (&writer, reader.clone());
                scope.spawn(move || {
                    for n in 0..100 {
                        let body = format!("{{\"thread\":{thread},\"n\":{n}}}");
                        let seq = writer
                            .append(vec![test_record("r", "kind", None, &body)])
                            .wait()
                            .unwrap();
                        assert_eq!(reader.read_after(seq - 1, 1).unwrap()[0].body, body);
                    }
                });
            }
        });
        let journal = writer.close().unwrap();
        assert_eq!(journal.last_seq(), Ok(800));
    }

    #[test]
    fn closing_writes_what_has_queued() {
        let (writer, journal, commits, gate) = gated();
        let first = writer.append(facts(1));
        assert_eq!(commits.recv().unwrap(), 1);
        let second = writer.append(facts(1));
        gate.send(()).unwrap();
        gate.send(()).unwrap();
        writer.close().unwrap();
        assert_eq!(first.wait(), Ok(1));
        assert_eq!(second.wait(), Ok(2));
        assert_eq!(journal.last_seq(), Ok(2));
    }
}
