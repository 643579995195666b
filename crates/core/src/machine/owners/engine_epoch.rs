//! One epoch of the engine: what its start asked for and what it measured. Nothing of it is journaled.

use crate::capacity::CapacityShortage;
use crate::id::TaskIx;
use crate::machine::{EpochOptions, InterruptMode, MergeOnlyMode};

#[derive(Debug, Clone, Default)]
pub(crate) struct EngineEpoch {
    begun: bool,
    interrupting: Option<InterruptMode>,
    /// The tasks that were asked for, by number; all of them if none.
    scope: Option<Vec<bool>>,
    shortage: Option<CapacityShortage>,
    /// This epoch only brings pull requests on.
    merge_only: Option<MergeOnlyMode>,
    /// This epoch goes on waiting when only people are waited for.
    waits_for_people: bool,
    utc_offset_min: i32,
    /// The tools that gates run with: verdicts hold only for the same tools.
    gate_tools: String,
}

impl EngineEpoch {
    /// A new epoch: of the one before, only the settings and the free resources are still known.
    pub(crate) fn begin(&mut self, scope: Option<Vec<bool>>) {
        self.begun = true;
        self.interrupting = None;
        self.scope = scope;
    }
    /// What the epoch was started with.
    pub(crate) fn configure(&mut self, options: EpochOptions) {
        self.merge_only = options.merge_only;
        self.waits_for_people = options.waits_for_people;
        self.gate_tools = options.gate_tools;
    }
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }
    pub(crate) fn interrupting(&self) -> Option<InterruptMode> {
        self.interrupting
    }
    pub(crate) fn is_interrupting(&self) -> bool {
        self.interrupting.is_some()
    }
    pub(crate) fn is_interrupting_now(&self) -> bool {
        self.interrupting == Some(InterruptMode::Now)
    }
    /// An interrupt that ends everything at once is not weakened by a later gentle one.
    pub(crate) fn interrupt(&mut self, mode: InterruptMode) {
        if !self.is_interrupting_now() {
            self.interrupting = Some(mode);
        }
    }
    pub(crate) fn scope(&self) -> Option<&[bool]> {
        self.scope.as_deref()
    }
    /// A new revision of the plan numbers the tasks anew; `moved` knows the new number of a task.
    pub(crate) fn renumber_tasks(
        &mut self,
        count: usize,
        moved: impl Fn(TaskIx) -> Option<TaskIx>,
    ) {
        let Some(old) = self.scope.take() else { return };
        let mut scope = vec![false; count];
        for (number, wanted) in (0..).zip(old) {
            if wanted && let Some(new) = moved(TaskIx(number)) {
                scope[new.index()] = true;
            }
        }
        self.scope = Some(scope);
    }
    pub(crate) fn shortage(&self) -> Option<&CapacityShortage> {
        self.shortage.as_ref()
    }
    pub(crate) fn set_shortage(&mut self, shortage: Option<CapacityShortage>) {
        self.shortage = shortage;
    }
    pub(crate) fn merge_only(&self) -> Option<MergeOnlyMode> {
        self.merge_only
    }
    pub(crate) fn waits_for_people(&self) -> bool {
        self.waits_for_people
    }
    pub(crate) fn utc_offset_min(&self) -> i32 {
        self.utc_offset_min
    }
    pub(crate) fn set_utc_offset_min(&mut self, minutes: i32) {
        self.utc_offset_min = minutes;
    }
    pub(crate) fn gate_tools(&self) -> &str {
        &self.gate_tools
    }
}
