//! The facts of one run or of all runs, in order, with the state that each of them made.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstem_core::config::Settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::Machine;
use mainstem_store::{JournalReader, JournalRecord};

use crate::query::{RunLookupError, find_run};
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};

/// Facts read at once.
const BATCH: usize = 4_096;

/// Reads facts in order and goes on from where it was.
pub struct HistoryReader {
    reader: Box<dyn JournalReader>,
    run: Option<RunId>,
    seq: u64,
    settings: Settings,
    machines: BTreeMap<String, Machine>,
}

impl HistoryReader {
    /// Opens the journal at its beginning; none if there is no journal yet.
    pub fn open(layout: &RepoLayout, settings: Settings) -> Result<Option<Self>, RunLookupError> {
        let reader = run_journal::open_journal_reader(&*layout.run_store())?;
        let machines = BTreeMap::new();
        Ok(reader.map(|reader| Self { reader, run: None, seq: 0, settings, machines }))
    }

    /// Reads only the facts of the run that this name, or the beginning of a name, means.
    pub fn select_run(&mut self, name: &str) -> Result<(), RunLookupError> {
        self.run = Some(find_run(&*self.reader, name)?);
        Ok(())
    }

    /// The place of the newest fact of any run.
    pub fn last_seq(&self) -> Result<u64, RunLookupError> {
        Ok(self.reader.last_seq().map_err(RunJournalError::from)?)
    }

    /// Waits until some run has a fact after this place, at most for `patience`.
    pub fn wait_after(&self, seq: u64, patience: Duration) -> Result<(), RunLookupError> {
        self.reader.wait_after(seq, patience).map_err(RunJournalError::from)?;
        Ok(())
    }

    /// Passes over all facts up to this place.
    pub fn skip_to(&mut self, seq: u64) {
        self.seq = self.seq.max(seq);
    }

    /// The names of the newest runs, newest first.
    pub fn newest_runs(&self, max: usize) -> Vec<String> {
        let runs = self.reader.list_runs().unwrap_or_default();
        runs.into_iter().rev().take(max).map(|row| row.run).collect()
    }

    /// Whether a selected run has a fact about this task.
    pub fn knows_task(&self, task: &str) -> Result<bool, RunLookupError> {
        let selected = |run: &str| self.run.as_ref().is_none_or(|only| only.as_str() == run);
        for row in self.reader.list_runs().map_err(RunJournalError::from)? {
            let facts = |run: &str| self.reader.read_task(run, task, 0, 1);
            if selected(&row.run) && !facts(&row.run).map_err(RunJournalError::from)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn run(&self) -> Option<&RunId> {
        self.run.as_ref()
    }

    /// The next facts; none for now, if the answer is empty.
    pub fn next_records(&mut self) -> Result<Vec<JournalRecord>, RunLookupError> {
        let records = match &self.run {
            Some(run) => self.reader.read_run(run.as_str(), self.seq, BATCH),
            None => self.reader.read_after(self.seq, BATCH),
        }
        .map_err(RunJournalError::from)?;
        self.seq = records.last().map_or(self.seq, |last| last.seq);
        Ok(records)
    }

    /// Folds a fact into its run; returns the fact, if this version knows it, and the run as it stands then.
    ///
    /// A fact that contradicts earlier ones is passed over here; `RunReader` reports it as an error.
    pub fn fold_record(&mut self, record: &JournalRecord) -> (Option<Fact>, &Machine) {
        let settings = &self.settings;
        let new = || Machine::new(settings.clone());
        let machine = self.machines.entry(record.run.clone()).or_insert_with(new);
        let fact = run_journal::decode_fact(record).ok();
        if let Some(fact) = &fact {
            let _ = machine.apply(fact, Time(record.at_ms));
        }
        (fact, machine)
    }
}
