//! Follows a run in the journal: folds it to a place, then only what was written since.

use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::Machine;
use mainstem_store::{JournalReader, JournalRecord};

use crate::run_journal::{RunJournalError, decode_fact};

/// Facts read at once.
const BATCH: usize = 4_096;

/// A run that is folded step by step.
pub struct JournalFollower {
    run: RunId,
    machine: Machine,
    seq: u64,
}

impl JournalFollower {
    /// Stands before the first fact of the run.
    pub fn new(run: RunId, settings: &Settings) -> Self {
        Self { run, machine: Machine::new(settings.clone()), seq: 0 }
    }

    /// The place of the last fact that was folded; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn into_machine(self) -> Machine {
        self.machine
    }

    /// Folds all facts that were written since; returns how many.
    pub fn advance(&mut self, reader: &dyn JournalReader) -> Result<u64, RunJournalError> {
        self.advance_to(reader, u64::MAX)
    }

    /// The same, but no fact after the place `last`.
    pub fn advance_to(
        &mut self,
        reader: &dyn JournalReader,
        last: u64,
    ) -> Result<u64, RunJournalError> {
        let mut folded = 0;
        self.advance_with(reader, last, &mut |_, _, _| folded += 1)?;
        Ok(folded)
    }

    /// The same; `see` gets every fact after it was folded, with the machine as it was then.
    pub fn advance_with(
        &mut self,
        reader: &dyn JournalReader,
        last: u64,
        see: FactVisitor<'_>,
    ) -> Result<(), RunJournalError> {
        let places = (self.seq, last);
        self.seq = fold_facts(reader, &self.run, places, &mut self.machine, see)?;
        Ok(())
    }
}

/// Gets a fact after it was folded, with the machine as it was then.
pub type FactVisitor<'a> = &'a mut dyn FnMut(&JournalRecord, &Fact, &Machine);

/// Folds the facts of a run after the place `after` and up to `last`; returns the place of the last one.
pub(crate) fn fold_facts(
    reader: &dyn JournalReader,
    run: &RunId,
    (after, last): (u64, u64),
    machine: &mut Machine,
    see: FactVisitor<'_>,
) -> Result<u64, RunJournalError> {
    let mut seq = after;
    loop {
        let records = reader.read_run(run.as_str(), seq, BATCH)?;
        if records.is_empty() {
            return Ok(seq);
        }
        for record in &records {
            if record.seq > last {
                return Ok(seq);
            }
            let fact = decode_fact(record)?;
            machine.apply(&fact, Time(record.at_ms)).map_err(|source| RunJournalError::Order {
                seq: record.seq,
                source: Box::new(source),
            })?;
            seq = record.seq;
            see(record, &fact, machine);
        }
    }
}

/// The facts of a run, or of one of its tasks, in order, none after the place `last`.
pub(crate) fn read_run_facts(
    reader: &dyn JournalReader,
    run: &RunId,
    task: Option<&str>,
    last: u64,
) -> Result<Vec<(JournalRecord, Fact)>, RunJournalError> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let records = match task {
            Some(task) => reader.read_task(run.as_str(), task, after, BATCH),
            None => reader.read_run(run.as_str(), after, BATCH),
        }?;
        let Some(end) = records.last() else { return Ok(found) };
        after = end.seq;
        for record in records.into_iter().filter(|record| record.seq <= last) {
            let fact = decode_fact(&record)?;
            found.push((record, fact));
        }
        if after >= last {
            return Ok(found);
        }
    }
}
