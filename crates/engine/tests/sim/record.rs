//! The journal in memory, with failures: refused, written but reported as failed, written and dead.
//! Folds what is durable, which is what the next life will know.

use mainstem_core::id::Time;
use mainstem_engine::run_journal;
use mainstem_store::{Journal, MemoryJournal, NewJournalRecord, StoreError};

use crate::faults::Fault;
use crate::world::Shared;

/// A journal that fails.
pub struct Faulty {
    pub inner: MemoryJournal,
    pub world: Shared,
}

impl Faulty {
    fn failed(doing: &'static str) -> StoreError {
        StoreError::Io { place: "sim".into(), doing, detail: "ordered".to_owned() }
    }
}

impl Journal for Faulty {
    fn append(&mut self, epoch: u64, facts: &[NewJournalRecord]) -> Result<u64, StoreError> {
        let mut world = self.world.get();
        if world.dead {
            return Err(Self::failed("written"));
        }
        assert!(!world.broken, "the engine writes after the journal failed");
        if world.strikes(Fault::AppendRefused) {
            world.broken = true;
            return Err(Self::failed("written"));
        }
        let last = self.inner.append(epoch, facts)?;
        let first = last + 1 - facts.len() as u64;
        for (record, seq) in facts.iter().zip(first..) {
            let record = record.clone().with_seq(seq);
            assert_eq!(seq, world.facts + 1, "the journal has no gap");
            let fact = run_journal::decode_fact(&record).expect("what was written can be read");
            world.note(|| format!("fact {seq} {}", record.body));
            world.learn(&fact);
            let applied = world.shadow.apply(&fact, Time(record.at_ms));
            assert!(applied.is_ok(), "the journal folds: {applied:?}");
        }
        if world.strikes(Fault::AppendUnknown) {
            world.broken = true;
            return Err(Self::failed("synced"));
        }
        if world.strikes(Fault::DeathAfterAppend) {
            world.dead = true;
        }
        Ok(last)
    }

    fn take_over(&mut self) -> Result<u64, StoreError> {
        self.inner.take_over()
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        self.inner.last_seq()
    }
}
