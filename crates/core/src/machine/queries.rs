//! What faces ask about the run as it goes: derived, never decided upon.

use crate::failed_gate::FailedGate;
use crate::id::TaskId;
use crate::machine::{InterruptMode, Machine};

impl Machine {
    /// The file that the plan was last read from, if it is known.
    pub fn plan_file(&self) -> Option<&str> {
        self.adopted.file()
    }

    /// Says from which file the plan that is adopted next was read.
    pub fn set_plan_file(&mut self, file: Option<String>) {
        self.adopted.set_next_file(file);
    }

    /// Whether all tasks have landed, were skipped or were cancelled, and there are some.
    pub fn has_ended(&self) -> bool {
        !self.adopted.graph().is_empty()
            && self.tasks.all_tasks().all(|t| !self.is_still_to_land(t))
    }

    /// The check that fails on the target branch itself, as it was last seen.
    pub fn target_failure(&self) -> Option<&FailedGate> {
        self.target.failure()
    }

    /// Somebody asked the engine to stop: gently (`Some(false)`) or at once (`Some(true)`).
    pub fn stop_requested(&self) -> Option<bool> {
        self.engine.interrupting().map(|how| how == InterruptMode::Now)
    }

    /// The failed task because of which nothing new starts.
    pub fn draining_task(&self) -> Option<&TaskId> {
        self.control.draining().map(|(task, _)| task)
    }

    /// Agents at once, as the engine that works on the run has it; what the settings say if none does.
    pub fn jobs_in_force(&self) -> u32 {
        self.control
            .jobs_in_force()
            .filter(|_| self.run.is_engine_alive())
            .unwrap_or_else(|| self.job_limit())
    }

    /// The newest engine of the run: its machine, and its number.
    pub fn last_engine(&self) -> Option<(&str, u64)> {
        self.run.last_engine()
    }

    /// How long this check usually takes, by those that ran in this run.
    pub fn usual_gate_ms(&self, gate: &str) -> Option<u64> {
        self.run.usual_gate_ms(gate)
    }
}
