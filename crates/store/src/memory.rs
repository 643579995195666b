//! A store in memory, for simulation and tests: the same promises, except that it ends with the process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::{
    Journal, JournalReader, JournalRecord, JournalRun, NewJournalRecord, StopReading, Store,
    StoreClaim, StoreError, StoreOwner, StoreOwnership, check_sizes,
};

const PLACE: &str = "memory";

/// A store in memory. Clones are the same store, as two processes would use one file.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    journal: MemoryJournal,
    owner: Arc<Mutex<MemoryOwner>>,
}

/// The owner of a store in memory.
#[derive(Debug, Default)]
struct MemoryOwner {
    /// Lives as long as the ownership that was given out.
    held: Weak<()>,
    note: String,
    /// Somebody has opened the journal for writing.
    has_journal: bool,
}

/// A writer of a journal in memory. Clones write to the same journal, as a second process would to a file.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    shared: Arc<MemoryShared>,
}

/// A reader of a journal in memory.
#[derive(Debug, Clone)]
pub struct MemoryJournalReader {
    shared: Arc<MemoryShared>,
}

#[derive(Debug, Default)]
struct MemoryShared {
    state: Mutex<MemoryJournalState>,
    /// Told after every append.
    appended: Condvar,
}

#[derive(Debug, Default)]
struct MemoryJournalState {
    epoch: u64,
    facts: Vec<JournalRecord>,
    refused_kinds: Vec<String>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on a fact of type `kind` makes the append that carries it fail half-way.
    pub fn refuse_kind(&self, kind: &str) {
        self.journal.refuse_kind(kind);
    }

    fn lock_owner(&self) -> MutexGuard<'_, MemoryOwner> {
        lock_mutex(&self.owner)
    }
}

impl Store for MemoryStore {
    fn place(&self) -> String {
        PLACE.to_owned()
    }

    fn name(&self) -> String {
        PLACE.to_owned()
    }

    fn has_journal(&self) -> Result<bool, StoreError> {
        Ok(self.lock_owner().has_journal)
    }

    fn claim(&self, note: &str) -> Result<StoreClaim, StoreError> {
        let mut owner = self.lock_owner();
        if owner.held.strong_count() > 0 {
            return Ok(StoreClaim::OwnedByAnother(StoreOwner { note: owner.note.clone() }));
        }
        let held = Arc::new(());
        owner.held = Arc::downgrade(&held);
        note.clone_into(&mut owner.note);
        Ok(StoreClaim::Owned(StoreOwnership::new(held)))
    }

    fn owner(&self) -> Result<Option<StoreOwner>, StoreError> {
        let owner = self.lock_owner();
        let is_owned = owner.held.strong_count() > 0;
        Ok(is_owned.then(|| StoreOwner { note: owner.note.clone() }))
    }

    fn open_journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        self.lock_owner().has_journal = true;
        Ok(Box::new(self.journal.clone()))
    }

    fn open_reader(&self) -> Result<Box<dyn JournalReader>, StoreError> {
        if !self.has_journal()? {
            return Err(StoreError::Absent { place: self.place() });
        }
        Ok(Box::new(self.journal.reader()))
    }
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
        lock_mutex(&self.shared.state)
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
                    place: PLACE.to_owned(),
                    doing: "written",
                    detail: format!("facts of type {} are refused", fact.kind),
                });
            }
            let seq = kept.len() as u64 + 1;
            kept.push(fact.clone().with_seq(seq));
        }
        let last = kept.len() as u64;
        drop(shared);
        self.shared.appended.notify_all();
        Ok(last)
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
        let shared = lock_mutex(&self.shared.state);
        let start = usize::try_from(after).unwrap_or(usize::MAX).min(shared.facts.len());
        shared.facts[start..].iter().filter(|fact| wanted(fact)).take(max).cloned().collect()
    }
}

impl JournalReader for MemoryJournalReader {
    fn read_after(&self, seq: u64, max: usize) -> Result<Vec<JournalRecord>, StoreError> {
        Ok(self.select_records(seq, max, |_| true))
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(lock_mutex(&self.shared.state).facts.len() as u64)
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

    fn wait_after(&self, seq: u64, patience: Duration) -> Result<bool, StoreError> {
        let deadline = Instant::now() + patience;
        let mut state = lock_mutex(&self.shared.state);
        loop {
            if state.facts.len() as u64 > seq {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let waited = self.shared.appended.wait_timeout(state, left);
            (state, _) = waited.expect("BUG: nothing panics while holding this lock");
        }
    }

    fn find_damage(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    fn list_runs(&self) -> Result<Vec<JournalRun>, StoreError> {
        let mut rows: Vec<JournalRun> = Vec::new();
        for fact in &lock_mutex(&self.shared.state).facts {
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

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("BUG: nothing panics while holding this lock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, StoreUnderTest};

    impl StoreUnderTest for MemoryStore {
        fn store(&self) -> &dyn Store {
            self
        }

        fn refuse_kind(&self, kind: &str) {
            Self::refuse_kind(self, kind);
        }
    }

    #[test]
    fn the_store_in_memory_keeps_every_promise() {
        conformance::run_all(&|| Box::new(MemoryStore::new()));
    }
}
