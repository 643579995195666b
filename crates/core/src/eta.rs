//! When tasks and the run are expected to be done. Derived from the machine, never read back by it.

use std::collections::BTreeSet;

use crate::id::{TaskIx, Time};
use crate::machine::Machine;
use crate::phase::Phase;

/// What can be expected of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectations {
    /// When each task is expected to land; none for those that are over, cannot go on, or of which nothing is known.
    pub ends: Vec<Option<Time>>,
    /// When the last of them is.
    pub at: Option<Time>,
    /// The longest chain of dependencies still to come, in order.
    pub critical_path: Vec<TaskIx>,
    /// The same tasks, to ask for one.
    pub critical: BTreeSet<TaskIx>,
}

impl Machine {
    /// What can be expected now: landed tasks tell how long a unit of effort takes, dependencies and slots the rest.
    pub fn expectations(&self, now: Time) -> Expectations {
        let critical_path = self.critical_path();
        let mut expected = Expectations {
            ends: vec![None; self.graph().len()],
            at: None,
            critical: critical_path.iter().copied().collect(),
            critical_path,
        };
        let Some(ms_per_effort) = self.ms_per_effort().filter(|_| self.is_engine_alive()) else {
            return expected;
        };
        let mut work_ms = 0;
        for t in self.graph().topological_order() {
            let Some(left_ms) = self.expected_ms_left(*t, ms_per_effort, now) else { continue };
            let before = self.graph().needs(*t).chain(self.graph().soft_needs(*t));
            let begins =
                before.filter_map(|p| expected.ends[p.index()]).max().unwrap_or(now).max(now);
            expected.ends[t.index()] = Some(begins.plus_ms(left_ms));
            work_ms += left_ms;
        }
        let by_slots = now.plus_ms(work_ms / u64::from(self.jobs_in_force().max(1)));
        expected.at = expected.ends.iter().flatten().max().map(|last| (*last).max(by_slots));
        expected
    }

    /// Milliseconds from the first start to the landing, per unit of effort, over all landed tasks.
    fn ms_per_effort(&self) -> Option<u64> {
        let (mut took_ms, mut effort) = (0, 0);
        for t in self.tasks().all_tasks().filter(|t| self.tasks().phase(*t) == Phase::Landed) {
            let state = self.tasks().get(t);
            let Some(began) = state.started_at else { continue };
            took_ms += u64::try_from(state.since.0 - began.0).unwrap_or(0);
            effort += self.plan().tasks[t.index()].effort.weight();
        }
        took_ms.checked_div(effort)
    }

    /// How long this task is expected to take from now on; none if it is over or cannot go on by itself.
    fn expected_ms_left(&self, t: TaskIx, ms_per_effort: u64, now: Time) -> Option<u64> {
        let state = self.tasks().get(t);
        if state.phase().is_over() || !self.is_in_scope(t) {
            return None;
        }
        let all_ms = self.plan().tasks[t.index()].effort.weight() * ms_per_effort;
        let began = state.started_at.filter(|_| state.phase().is_active());
        let spent_ms = began.map_or(0, |began| u64::try_from(now.0 - began.0).unwrap_or(0));
        Some(all_ms.saturating_sub(spent_ms))
    }

    /// The longest chain of dependencies through what is still to come, in order.
    pub fn critical_path(&self) -> Vec<TaskIx> {
        let weight = |t: TaskIx| match self.is_still_to_land(t) {
            true => self.plan().tasks[t.index()].effort.weight(),
            false => 0,
        };
        let path = self.graph().critical_path(weight);
        path.into_iter().filter(|t| self.is_still_to_land(*t)).collect()
    }
}
