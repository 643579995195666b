//! The merge train of this machine: its queue, the batches under way, and what delays it.

use std::collections::{BTreeMap, BTreeSet};

use crate::conflict::ConflictForecast;
use crate::fact::Fact;
use crate::id::{Oid, TaskIx, Time};
use crate::limits;
use crate::publish::PushTrouble;
use crate::train::Train;
use crate::train::batches::TrainBatches;

#[derive(Debug, Clone, Default)]
pub(crate) struct LandingTrain {
    queue: Train,
    /// How many tasks have landed.
    landings: u64,
    /// The remote does not take what lands.
    push_trouble: Option<PushTrouble>,
    /// What belongs to one epoch of the engine and is not journaled.
    progress: TrainProgress,
}

#[derive(Debug, Clone, Default)]
struct TrainProgress {
    batches: TrainBatches,
    /// Errors of git or of the disk in a row.
    errors: u32,
    retry_at: Option<Time>,
    /// How often in a row the remote did not take a landing.
    push_failures: u32,
    /// For whom each lane runs checks.
    lanes: BTreeMap<u32, (TaskIx, u32)>,
    /// The queue numbers of the landing under way, in order.
    landing: Vec<u64>,
    /// The commit that the target branch was asked to move to.
    issued_landing: Option<Oid>,
    /// Candidates that were merged before in this epoch.
    merged: BTreeSet<u64>,
    /// When to look again whether the user's files are in the way of held work; none while somebody
    /// looks.
    checkout_inspections: BTreeMap<TaskIx, Option<Time>>,
    forecast: ConflictForecast,
}

impl LandingTrain {
    pub(crate) fn queue(&self) -> &Train {
        &self.queue
    }
    pub(crate) fn queue_mut(&mut self) -> &mut Train {
        &mut self.queue
    }
    pub(crate) fn landings(&self) -> u64 {
        self.landings
    }
    pub(crate) fn push_trouble(&self) -> Option<&PushTrouble> {
        self.push_trouble.as_ref()
    }
    pub(crate) fn batches(&self) -> &TrainBatches {
        &self.progress.batches
    }
    pub(crate) fn batches_mut(&mut self) -> &mut TrainBatches {
        &mut self.progress.batches
    }
    /// Drops the candidates from the batches that have left the queue.
    pub(crate) fn drop_departed_candidates(&mut self, now: Time) {
        let Self { queue, progress, .. } = self;
        progress.batches.retain_candidates(|place| queue.candidate_at(place).is_some(), now);
    }
    pub(crate) fn begin_epoch(&mut self) {
        self.progress = TrainProgress::default();
    }

    /// Counts an error of git or of the disk, delays the train, and says how many there were in a row.
    pub(crate) fn record_error(&mut self, now: Time) -> u32 {
        self.progress.errors += 1;
        self.delay_retry(self.progress.errors, now);
        self.progress.errors
    }
    pub(crate) fn clear_errors(&mut self) {
        self.progress.errors = 0;
    }
    /// Counts a push that failed, delays the train, and says how many failed in a row.
    pub(crate) fn record_push_failure(&mut self, now: Time) -> u32 {
        self.progress.push_failures += 1;
        self.delay_retry(self.progress.push_failures, now);
        self.progress.push_failures
    }
    pub(crate) fn clear_push_failures(&mut self) {
        self.progress.push_failures = 0;
    }
    /// Whether the landing under way waits until the remote is tried again.
    pub(crate) fn waits_for_remote(&self) -> bool {
        self.progress.push_failures > 0 && self.progress.issued_landing.is_none()
    }
    fn delay_retry(&mut self, failures: u32, now: Time) {
        let wait = limits::TRANSIENT_WAIT_MS << failures.min(7);
        self.progress.retry_at = Some(now.plus_ms(wait.min(limits::TRANSIENT_WAIT_MS_MAX)));
    }
    pub(crate) fn retry_at(&self) -> Option<Time> {
        self.progress.retry_at
    }
    /// Whether the train still waits before it tries again. A delay that is over is forgotten.
    pub(crate) fn is_delayed(&mut self, now: Time) -> bool {
        let delayed = self.progress.retry_at.is_some_and(|at| at > now);
        if !delayed {
            self.progress.retry_at = None;
        }
        delayed
    }

    pub(crate) fn occupy_lane(&mut self, lane: u32, task: TaskIx, attempt: u32) {
        self.progress.lanes.insert(lane, (task, attempt));
    }
    pub(crate) fn free_lane(&mut self, lane: u32) -> Option<(TaskIx, u32)> {
        self.progress.lanes.remove(&lane)
    }
    pub(crate) fn begin_landing(&mut self, candidates: &[u64]) {
        candidates.clone_into(&mut self.progress.landing);
    }
    pub(crate) fn take_landing(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.progress.landing)
    }
    /// Remembers that the branch was asked to move. False if it was asked for this commit before.
    pub(crate) fn issue_landing(&mut self, commit: &Oid) -> bool {
        self.progress.issued_landing.replace(commit.clone()).as_ref() != Some(commit)
    }
    pub(crate) fn forget_issued_landing(&mut self) {
        self.progress.issued_landing = None;
    }
    pub(crate) fn record_merged(&mut self, candidates: &[u64]) {
        self.progress.merged.extend(candidates);
    }
    pub(crate) fn was_merged(&self, candidate: u64) -> bool {
        self.progress.merged.contains(&candidate)
    }
    /// No verdict of this epoch counts any longer.
    pub(crate) fn forget_all_verdicts(&mut self, now: Time) {
        self.progress.batches.forget_all_verdicts(now);
        self.progress.merged.clear();
    }
    pub(crate) fn forecast(&self) -> &ConflictForecast {
        &self.progress.forecast
    }
    pub(crate) fn set_forecast(&mut self, forecast: ConflictForecast) {
        self.progress.forecast = forecast;
    }

    /// Whether the checkout is to be inspected for held work of this task now.
    pub(crate) fn is_inspection_due(&self, task: TaskIx, now: Time) -> bool {
        match self.progress.checkout_inspections.get(&task) {
            None => true,
            Some(None) => false,
            Some(Some(at)) => *at <= now,
        }
    }
    /// Whether the checkout was inspected for this task in this epoch.
    pub(crate) fn was_inspected(&self, task: TaskIx) -> bool {
        self.progress.checkout_inspections.get(&task).is_some_and(Option::is_some)
    }
    pub(crate) fn begin_inspection(&mut self, task: TaskIx) {
        self.progress.checkout_inspections.insert(task, None);
    }
    pub(crate) fn schedule_inspection(&mut self, task: TaskIx, at: Time) {
        self.progress.checkout_inspections.insert(task, Some(at));
    }
    pub(crate) fn inspection_times(&self) -> impl Iterator<Item = Time> {
        self.progress.checkout_inspections.values().copied().flatten()
    }

    /// Folds what is known of a remote that does not take what lands.
    pub(crate) fn apply_push_trouble(&mut self, fact: &Fact) {
        match fact {
            Fact::PushFailed(trouble) => self.push_trouble = Some(trouble.clone()),
            Fact::TaskLanded { .. } | Fact::LandingRefused { .. } | Fact::EngineStarted { .. } => {
                self.push_trouble = None;
            }
            _ => {}
        }
    }
    /// Counts a landing and returns its number.
    pub(crate) fn apply_landing(&mut self) -> u64 {
        self.landings += 1;
        self.landings
    }
}
