//! What was asked of the outside world in this epoch and what failed there, so that nothing is asked
//! twice and failures are repeated a bounded number of times. Nothing of it is journaled.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{TaskIx, Time};
use crate::limits;
use crate::machine::outstanding::{IssuedStop, OutstandingEffect};

/// How often the work of an agent is read in one epoch before the attempt fails.
const COLLECTS_MAX: u32 = 3;
/// How often a workspace is removed in one epoch before it is left alone.
const REMOVALS_MAX: u32 = 3;

/// A reviewer at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReviewerAtWork {
    pub(crate) task: TaskIx,
    pub(crate) attempt: u32,
    pub(crate) reviewer: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct IssuedEffects {
    tasks: Vec<Option<OutstandingEffect>>,
    stops: Vec<Option<IssuedStop>>,
    /// The newest answer that an attempt was given: attempt and number.
    answers: Vec<Option<(u32, u32)>>,
    /// Tasks whose own gates hold one of the slots for gates.
    gate_slots: BTreeSet<TaskIx>,
    /// How often the work of an attempt could not be read.
    failed_collects: BTreeMap<(TaskIx, u32), u32>,
    /// How often the workspace of a task could not be removed.
    failed_removals: BTreeMap<TaskIx, u32>,
    /// Agents that could not be reached: how often, and when they are tried again.
    unreachable_agents: BTreeMap<TaskIx, (u32, Time)>,
    /// Reviewers at work, by lane.
    reviewers: BTreeMap<u32, ReviewerAtWork>,
}

impl IssuedEffects {
    /// Makes room for all tasks of the plan. Returns whether the tasks are new to it.
    pub(crate) fn prepare_tasks(&mut self, count: usize) -> bool {
        let is_new = self.tasks.len() != count;
        if is_new {
            self.tasks = vec![None; count];
            self.stops = vec![None; count];
            self.answers = vec![None; count];
        }
        is_new
    }
    /// A new revision of the plan has `count` tasks. What was issued is still under way if every task
    /// has kept its number.
    pub(crate) fn adopt_plan(&mut self, keeps_numbers: bool, before: usize, count: usize) {
        self.unreachable_agents.clear();
        if !keeps_numbers {
            self.tasks.clear();
            self.stops.clear();
            self.answers.clear();
            self.gate_slots.clear();
        } else if self.tasks.len() == before && before > 0 {
            self.tasks.resize(count, None);
            self.stops.resize(count, None);
            self.answers.resize(count, None);
        }
    }

    pub(crate) fn issued(&self, task: TaskIx) -> Option<OutstandingEffect> {
        self.tasks.get(task.index()).copied().flatten()
    }
    /// Remembers what a task wants done. Returns whether that is to be issued now.
    pub(crate) fn issue(&mut self, task: TaskIx, wanted: Option<OutstandingEffect>) -> bool {
        let before = std::mem::replace(&mut self.tasks[task.index()], wanted);
        wanted.is_some() && before != wanted
    }
    /// Remembers a wish to stop. Returns whether it is new.
    pub(crate) fn is_stop_issued(&self, task: TaskIx, stop: IssuedStop) -> bool {
        self.stops[task.index()] == Some(stop)
    }
    pub(crate) fn issue_stop(&mut self, task: TaskIx, stop: IssuedStop) {
        self.stops[task.index()] = Some(stop);
    }
    /// The number of the newest answer that this attempt was given; 0 if none.
    pub(crate) fn last_answer(&self, task: TaskIx, attempt: u32) -> u32 {
        let last = self.answers[task.index()].filter(|(n, _)| *n == attempt);
        last.map_or(0, |(_, number)| number)
    }
    pub(crate) fn issue_answer(&mut self, task: TaskIx, attempt: u32, number: u32) {
        self.answers[task.index()] = Some((attempt, number));
    }
    /// What was issued for this task may be issued again.
    pub(crate) fn forget_task(&mut self, task: TaskIx) {
        if let Some(issued) = self.tasks.get_mut(task.index()) {
            *issued = None;
        }
    }

    /// Frees the slots of tasks whose gates have given their verdict.
    pub(crate) fn free_gate_slots(&mut self, tasks: &[TaskIx]) {
        self.gate_slots.retain(|task| !tasks.contains(task));
    }
    pub(crate) fn gate_slots(&self) -> impl Iterator<Item = TaskIx> {
        self.gate_slots.iter().copied()
    }
    /// Takes one of `limit` slots for the gates of this task. Returns whether the task has one now.
    pub(crate) fn claim_gate_slot(&mut self, task: TaskIx, limit: usize) -> bool {
        if self.gate_slots.contains(&task) {
            return true;
        }
        let free = self.gate_slots.len() < limit;
        if free {
            self.gate_slots.insert(task);
        }
        free
    }

    /// The work of an attempt could not be read. Returns whether it is read once more.
    pub(crate) fn retry_collect(&mut self, task: TaskIx, attempt: u32) -> bool {
        let failed = self.failed_collects.entry((task, attempt)).or_default();
        *failed += 1;
        let retries = *failed < COLLECTS_MAX;
        if retries {
            self.forget_task(task);
        }
        retries
    }
    /// A workspace could not be removed. The removal is repeated a bounded number of times.
    pub(crate) fn retry_removal(&mut self, task: TaskIx) {
        let failed = self.failed_removals.entry(task).or_default();
        *failed += 1;
        if *failed < REMOVALS_MAX {
            self.forget_task(task);
        }
    }
    /// Whether the agent lives is not known: everything that is wanted of it is asked again later.
    pub(crate) fn retry_agent(&mut self, task: TaskIx, now: Time) {
        let tries = self.unreachable_agents.get(&task).map_or(0, |(tries, _)| *tries);
        let wait = (limits::TRANSIENT_WAIT_MS << tries.min(7)).min(limits::TRANSIENT_WAIT_MS_MAX);
        self.unreachable_agents.insert(task, (tries + 1, now.plus_ms(wait)));
        self.tasks[task.index()] = None;
        self.stops[task.index()] = None;
        self.answers[task.index()] = None;
    }
    /// Whether nothing is asked of this task's agent for now. What an agent that is not at work did is
    /// forgotten.
    pub(crate) fn is_agent_delayed(&mut self, task: TaskIx, is_at_work: bool, now: Time) -> bool {
        if !is_at_work {
            self.unreachable_agents.remove(&task);
        }
        self.unreachable_agents.get(&task).is_some_and(|(_, at)| *at > now)
    }
    pub(crate) fn agent_retry_times(&self) -> impl Iterator<Item = Time> {
        self.unreachable_agents.values().map(|(_, at)| *at)
    }

    pub(crate) fn reviewers(&self) -> impl Iterator<Item = &ReviewerAtWork> {
        self.reviewers.values()
    }
    pub(crate) fn is_reviewer_lane_free(&self, lane: u32) -> bool {
        !self.reviewers.contains_key(&lane)
    }
    pub(crate) fn start_reviewer(&mut self, lane: u32, reviewer: ReviewerAtWork) {
        self.reviewers.insert(lane, reviewer);
    }
    pub(crate) fn end_reviewer(&mut self, task: TaskIx, attempt: u32, reviewer: &str) {
        self.reviewers.retain(|_, at_work| {
            (at_work.task, at_work.attempt, at_work.reviewer.as_str()) != (task, attempt, reviewer)
        });
    }
}
