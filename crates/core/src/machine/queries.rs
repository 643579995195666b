//! What faces ask about the run as it goes: derived, never decided upon.

use crate::fact::Fact;
use crate::failed_gate::FailedGate;
use crate::id::TaskId;
use crate::limits;
use crate::machine::{InterruptMode, Machine};

/// What faces are told of a run, and nothing is decided by.
#[derive(Debug, Clone, Default)]
pub(super) struct Noted {
    /// The newest engine: its machine, and its number.
    pub(super) engine: Option<(String, u64)>,
    /// The file that the plan was last read from.
    pub(super) plan_file: Option<String>,
    /// The file of the plan that is adopted next.
    pub(super) next_plan_file: Option<String>,
}

impl Machine {
    /// The file that the plan was last read from, if it is known.
    pub fn plan_file(&self) -> Option<&str> {
        self.noted.plan_file.as_deref()
    }

    /// Says from which file the plan that is adopted next was read.
    pub fn set_plan_file(&mut self, file: Option<String>) {
        self.noted.next_plan_file = file;
    }

    /// Whether all tasks have landed, were skipped or were cancelled, and there are some.
    pub fn has_ended(&self) -> bool {
        !self.graph.is_empty() && self.tasks.all_tasks().all(|t| !self.is_still_to_land(t))
    }

    /// The check that fails on the target branch itself, as it was last seen.
    pub fn target_failure(&self) -> Option<&FailedGate> {
        self.base_failure.as_deref().filter(|_| self.target_is_failing)
    }

    /// Somebody asked the engine to stop: gently (`Some(false)`) or at once (`Some(true)`).
    pub fn stop_requested(&self) -> Option<bool> {
        self.epoch.interrupting.map(|how| how == InterruptMode::Now)
    }

    /// The failed task because of which nothing new starts.
    pub fn draining_task(&self) -> Option<&TaskId> {
        self.draining.as_ref().map(|(task, _)| task)
    }

    /// Agents at once, as the engine that works on the run has it; what the settings say if none does.
    pub fn jobs_in_force(&self) -> u32 {
        self.jobs_in_force
            .filter(|_| self.engine_epoch.is_some())
            .unwrap_or_else(|| self.job_limit())
    }

    /// The newest engine of the run: its machine, and its number.
    pub fn last_engine(&self) -> Option<(&str, u64)> {
        self.noted.engine.as_ref().map(|(host, epoch)| (host.as_str(), *epoch))
    }

    /// How long this check usually takes, by those that ran in this run.
    pub fn usual_gate_ms(&self, gate: &str) -> Option<u64> {
        let mut times: Vec<u64> = self.gate_times.get(gate)?.iter().copied().collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    /// Notes how long a check took, for those who wait for the next one.
    pub(super) fn apply_gate_time(&mut self, fact: &Fact) {
        if let Fact::GateRan { gate, duration_ms, cached: false, exit_code: Some(_), .. } = fact {
            let times = self.gate_times.entry(gate.clone()).or_default();
            times.push_back(*duration_ms);
            let over = times.len().saturating_sub(limits::GATE_TIMES_KEPT);
            times.drain(..over);
        }
    }
}
