//! Work that lands on a forge: what is known of pull requests, what closing tasks offer, and who looks
//! after which pull request in this epoch.

use std::collections::BTreeMap;

use crate::fact::Fact;
use crate::id::{Oid, TaskId, TaskIx, Time};
use crate::machine::forge_landing::PullRequestWatch;
use crate::pull_request::TaskPullRequest;

#[derive(Debug, Clone, Default)]
pub(crate) struct ForgePulls {
    pulls: BTreeMap<TaskId, TaskPullRequest>,
    /// What closing tasks offer: attempt and commit.
    offers: BTreeMap<TaskId, (u32, Oid)>,
    /// Not journaled: how each pull request is looked after in this epoch.
    watches: BTreeMap<TaskIx, PullRequestWatch>,
}

impl ForgePulls {
    pub(crate) fn pull(&self, task: &TaskId) -> Option<&TaskPullRequest> {
        self.pulls.get(task)
    }
    pub(crate) fn offers(&self) -> &BTreeMap<TaskId, (u32, Oid)> {
        &self.offers
    }
    pub(crate) fn watches(&self) -> &BTreeMap<TaskIx, PullRequestWatch> {
        &self.watches
    }
    pub(crate) fn begin_epoch(&mut self) {
        self.watches.clear();
    }
    /// The watch of a task's pull request; a new one if there is none.
    pub(crate) fn watch(&mut self, task: TaskIx) -> &mut PullRequestWatch {
        self.watches.entry(task).or_default()
    }
    pub(crate) fn known_watch(&mut self, task: TaskIx) -> Option<&mut PullRequestWatch> {
        self.watches.get_mut(&task)
    }
    pub(crate) fn retain_watches(&mut self, is_offered: impl Fn(TaskIx) -> bool) {
        self.watches.retain(|task, _| is_offered(*task));
    }
    /// The earliest time at which a pull request is to be looked at.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.watches.values().filter_map(PullRequestWatch::next_look).min()
    }

    /// A task that closes a phase offers this commit.
    pub(crate) fn apply_offer(&mut self, task: &TaskId, attempt: u32, tip: &Oid) {
        self.offers.insert(task.clone(), (attempt, tip.clone()));
    }
    /// What the work of a task builds on, or that it builds on nothing any more.
    pub(crate) fn apply_stacked(&mut self, stacked: &crate::pull_request::PullStackedFact) {
        self.pulls.entry(stacked.task.clone()).or_default().apply_stacked(stacked);
    }
    /// The work of a task is no longer stacked on anything.
    pub(crate) fn apply_stack_end(&mut self, task: &TaskId) {
        if let Some(pull) = self.pulls.get_mut(task) {
            pull.stacked_on = None;
        }
    }
    /// A new attempt forgets a stack that was recorded for another attempt.
    pub(crate) fn apply_attempt_start(&mut self, task: &TaskId, attempt: u32) {
        if let Some(pull) = self.pulls.get_mut(task)
            && pull.stacked_on_attempt != attempt
        {
            pull.stacked_on = None;
        }
    }
    /// Folds what is known of a task's pull request.
    pub(crate) fn apply(&mut self, fact: &Fact) {
        let Some(task) = fact.task() else { return };
        if let Fact::CarConflicted { .. } | Fact::CarEvicted { .. } | Fact::TaskLanded { .. } = fact
        {
            self.offers.remove(task);
        }
        if let Fact::PushIntended(push) = fact {
            return self.pulls.entry(task.clone()).or_default().apply_push(push);
        }
        let Some(pull) = self.pulls.get_mut(task) else { return };
        match fact {
            Fact::PullOpened(opened) => pull.apply_opened(opened),
            Fact::PullSeen(seen) => pull.apply_seen(seen),
            Fact::MergeIntended(wish) => pull.apply_merging(wish),
            Fact::PullReworked(rework) => pull.apply_rework(rework),
            Fact::PullClosed(closed) => pull.apply_closed(closed),
            // The work is redone on the target branch, not on what conflicted with it.
            Fact::CarConflicted { .. } => {
                pull.reset_stage();
                pull.from = None;
            }
            Fact::CarEvicted { .. } | Fact::TaskLanded { .. } => pull.reset_stage(),
            Fact::TaskRetried { fresh: true, .. } | Fact::AttemptIntended { fresh: true, .. } => {
                pull.from = None;
            }
            _ => {}
        }
    }
}
