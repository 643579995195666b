//! A journal in memory, for simulation and tests: the same promises, except that it ends with the process.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::{
    Journal, JournalReader, JournalRecord, JournalRun, NewJournalRecord, StopReading, StoreError,
    check_sizes,
};

/// A writer of a journal in memory. Clones write to the same journal, as a second process would to a file.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    shared: Arc<Mutex<MemoryJournalState>>,
}

/// A reader of a journal in memory.
#[derive(Debug, Clone)]
pub struct MemoryJournalReader {
    shared: Arc<Mutex<MemoryJournalState>>,
}

#[derive(Debug, Default)]
struct MemoryJournalState {
    epoch: u64,
    facts: Vec<JournalRecord>,
    refused_kinds: Vec<String>,
}

impl MemoryJournal {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A journal that already holds `facts`, such as a prefix of another one.
    #[must_use]
    pub fn with_records(facts: Vec<NewJournalRecord>) -> Self {
        let journal = Self::new();
        journal.lock_state().facts =
            facts.into_iter().zip(1..).map(|(fact, seq)| fact.with_seq(seq)).collect();
        journal
    }

    /// A reader of this journal.
    #[must_use]
    pub fn reader(&self) -> MemoryJournalReader {
        MemoryJournalReader { shared: Arc::clone(&self.shared) }
    }

    /// From now on a fact of type `kind` makes the append that carries it fail half-way.
    pub fn refuse_kind(&self, kind: &str) {
        self.lock_state().refused_kinds.push(kind.to_owned());
    }

    fn lock_state(&self) -> MutexGuard<'_, MemoryJournalState> {
        lock_ignoring_poison(&self.shared)
    }
}

impl Journal for MemoryJournal {
    fn append(&mut self, epoch: u64, facts: &[NewJournalRecord]) -> Result<u64, StoreError> {
        check_sizes(facts)?;
        let mut shared = self.lock_state();
        let MemoryJournalState { epoch: current, facts: kept, refused_kinds } = &mut *shared;
        if epoch != *current {
            return Err(StoreError::Fenced { ours: epoch, current: *current });
        }
        let before = kept.len();
        for fact in facts {
            if refused_kinds.contains(&fact.kind) {
                kept.truncate(before);
                return Err(StoreError::Io {
                    path: "memory".into(),
                    doing: "written",
                    detail: format!("facts of type {} are refused", fact.kind),
                });
            }
            let seq = kept.len() as u64 + 1;
            kept.push(fact.clone().with_seq(seq));
        }
        Ok(kept.len() as u64)
    }

    fn take_over(&mut self) -> Result<u64, StoreError> {
        let mut shared = self.lock_state();
        shared.epoch += 1;
        Ok(shared.epoch)
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.lock_state().facts.len() as u64)
    }
}

impl MemoryJournalReader {
    fn select_records(
        &self,
        after: u64,
        max: usize,
        wanted: impl Fn(&JournalRecord) -> bool,
    ) -> Vec<JournalRecord> {
        let shared = lock_ignoring_poison(&self.shared);
        let start = usize::try_from(after).unwrap_or(usize::MAX).min(shared.facts.len());
        shared.facts[start..].iter().filter(|fact| wanted(fact)).take(max).cloned().collect()
    }
}

impl JournalReader for MemoryJournalReader {
    fn read_after(&self, seq: u64, max: usize) -> Result<Vec<JournalRecord>, StoreError> {
        Ok(self.select_records(seq, max, |_| true))
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(lock_ignoring_poison(&self.shared).facts.len() as u64)
    }

    fn for_each(
        &self,
        after: u64,
        f: &mut dyn FnMut(JournalRecord) -> Result<(), StopReading>,
    ) -> Result<u64, StoreError> {
        let mut seen = after;
        // One at a time, so that `f` runs without the lock and may itself append.
        while let Some(record) = self.select_records(seen, 1, |_| true).pop() {
            seen = record.seq;
            if f(record) == Err(StopReading) {
                break;
            }
        }
        Ok(seen)
    }

    fn read_run(
        &self,
        run: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        Ok(self.select_records(after, max, |fact| fact.run == run))
    }

    fn read_task(
        &self,
        run: &str,
        task: &str,
        after: u64,
        max: usize,
    ) -> Result<Vec<JournalRecord>, StoreError> {
        Ok(self.select_records(after, max, |fact| {
            fact.run == run && fact.task.as_deref() == Some(task)
        }))
    }

    fn list_runs(&self) -> Result<Vec<JournalRun>, StoreError> {
        let mut rows: Vec<JournalRun> = Vec::new();
        for fact in &lock_ignoring_poison(&self.shared).facts {
            match rows.iter_mut().find(|row| row.run == fact.run) {
                Some(row) => row.last_seq = fact.seq,
                None => rows.push(JournalRun {
                    run: fact.run.clone(),
                    first_seq: fact.seq,
                    last_seq: fact.seq,
                    first_at_ms: fact.at_ms,
                }),
            }
        }
        Ok(rows)
    }
}

fn lock_ignoring_poison(shared: &Mutex<MemoryJournalState>) -> MutexGuard<'_, MemoryJournalState> {
    shared.lock().expect("BUG: nothing panics while holding this lock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, JournalUnderTest};

    impl JournalUnderTest for MemoryJournal {
        fn open_writer(&self) -> Box<dyn Journal> {
            Box::new(self.clone())
        }

        fn open_reader(&self) -> Box<dyn JournalReader> {
            Box::new(Self::reader(self))
        }

        fn refuse_kind(&self, kind: &str) {
            Self::refuse_kind(self, kind);
        }
    }

    #[test]
    fn the_journal_in_memory_keeps_every_promise() {
        conformance::run_all(&|| Box::new(MemoryJournal::new()));
    }
}
