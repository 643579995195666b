//! Whether and how many agents may start: what people and failures decided about the whole run.

use crate::fact::Fact;
use crate::id::TaskId;

#[derive(Debug, Clone, Default)]
pub(crate) struct RunControl {
    paused: bool,
    cancelled: bool,
    /// Nothing more starts because this task failed, and whether running agents were stopped.
    draining: Option<(TaskId, bool)>,
    /// Agents at once, as a person said during the run.
    jobs: Option<u32>,
    /// Agents at once, as somebody said when starting this epoch. Not journaled.
    jobs_flag: Option<u32>,
    /// Agents at once, as the newest engine recorded it.
    jobs_in_force: Option<u32>,
    /// A person named another agent for some task.
    agents_named: bool,
}

impl RunControl {
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled
    }
    /// The failed task because of which nothing more starts, and whether running agents were stopped.
    pub(crate) fn draining(&self) -> Option<&(TaskId, bool)> {
        self.draining.as_ref()
    }
    /// Whether no attempt starts until a person or a new engine says otherwise.
    pub(crate) fn holds_starts(&self) -> bool {
        self.paused || self.cancelled || self.draining.is_some()
    }
    /// Agents at once, if somebody said so for this run.
    pub(crate) fn chosen_jobs(&self) -> Option<u32> {
        self.jobs_flag.or(self.jobs)
    }
    pub(crate) fn jobs_in_force(&self) -> Option<u32> {
        self.jobs_in_force
    }
    pub(crate) fn agents_named(&self) -> bool {
        self.agents_named
    }
    pub(crate) fn set_jobs_flag(&mut self, jobs: Option<u32>) {
        self.jobs_flag = jobs;
    }

    pub(crate) fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::EngineStarted { jobs, .. } => {
                self.jobs_in_force = *jobs;
                self.draining = None;
                self.cancelled = false;
            }
            Fact::RunPaused {} => self.paused = true,
            Fact::RunResumed {} => self.paused = false,
            Fact::RunCancelled {} => self.cancelled = true,
            Fact::RunDraining { task, abort } => self.draining = Some((task.clone(), *abort)),
            Fact::JobsChanged { jobs } => {
                self.jobs = Some(*jobs);
                self.jobs_flag = None;
                self.jobs_in_force = Some(*jobs);
            }
            Fact::TaskRetried { agent: Some(_), .. } => self.agents_named = true,
            _ => {}
        }
    }
}
