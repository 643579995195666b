//! What is known of the target branch itself: whether its checks pass, and who looks at it again.

use crate::fact::{Fact, GateScope, GateVerdict};
use crate::failed_gate::FailedGate;
use crate::id::Time;
use crate::machine::suspects::SuspectTasks;
use crate::machine::target_recheck::RecheckProgress;
use crate::recheck::RecheckQueue;

/// How long to wait before the checks run again on a target branch that fails them.
const LOOK_AGAIN_MS: u64 = 300_000;

#[derive(Debug, Clone, Default)]
pub(crate) struct TargetHealth {
    /// The gates were last seen to fail on the target branch itself.
    failing: bool,
    /// The check that failed there.
    failure: Option<Box<FailedGate>>,
    /// What landed since the target branch was last seen to pass in a clean checkout.
    rechecks: RecheckQueue,
    /// Not journaled: the target branch fails its checks, and no candidate repairs it.
    frozen: bool,
    /// Not journaled: when to look whether somebody repaired the branch.
    look_at: Option<Time>,
    /// Not journaled: the recheck in a clean checkout that is under way.
    recheck: RecheckProgress,
    /// Not journaled: tasks that the target branch may be to blame for.
    suspects: SuspectTasks,
}

impl TargetHealth {
    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }
    /// The check that fails on the target branch itself, as it was last seen.
    pub(crate) fn failure(&self) -> Option<&FailedGate> {
        self.failure.as_deref().filter(|_| self.failing)
    }
    pub(crate) fn rechecks(&self) -> &RecheckQueue {
        &self.rechecks
    }
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }
    pub(crate) fn look_at(&self) -> Option<Time> {
        self.look_at
    }
    pub(crate) fn recheck(&self) -> &RecheckProgress {
        &self.recheck
    }
    pub(crate) fn recheck_mut(&mut self) -> &mut RecheckProgress {
        &mut self.recheck
    }
    pub(crate) fn suspects(&self) -> &SuspectTasks {
        &self.suspects
    }
    pub(crate) fn suspects_mut(&mut self) -> &mut SuspectTasks {
        &mut self.suspects
    }

    pub(crate) fn begin_epoch(&mut self) {
        self.frozen = false;
        self.look_at = None;
        self.recheck = RecheckProgress::default();
        self.suspects = SuspectTasks::default();
    }
    /// Freezes or thaws the train. Returns whether that changed anything.
    pub(crate) fn set_frozen(&mut self, frozen: bool, now: Time) -> bool {
        let changed = self.frozen != frozen;
        if changed {
            self.frozen = frozen;
            self.look_at = frozen.then(|| now.plus_ms(LOOK_AGAIN_MS));
        }
        changed
    }
    /// Whether it is time to check the branch again. The next time is set then.
    pub(crate) fn take_due_look(&mut self, now: Time) -> bool {
        let due = self.look_at.is_some_and(|at| at <= now);
        if due {
            self.look_at = Some(now.plus_ms(LOOK_AGAIN_MS));
        }
        due
    }

    /// Folds a fact that is not about one task.
    pub(crate) fn apply_run_fact(&mut self, fact: &Fact) {
        match fact {
            // Somebody may have repaired the branch meanwhile: a new engine finds out.
            Fact::EngineStarted { .. } => self.clear_failure(),
            Fact::TargetVerified { .. } => self.rechecks.reset_after_pass(),
            Fact::TargetRechecked(rechecked) => {
                self.rechecks.record_result(&rechecked.commit, rechecked.failure.is_none());
            }
            _ => {}
        }
    }
    /// Folds what the gates said of the target branch itself.
    pub(crate) fn apply_verdict(&mut self, fact: &Fact) {
        if let Fact::GateRan { scope: GateScope::Base, verdict, .. } = fact {
            self.failing = *verdict == GateVerdict::Failed;
            self.failure = FailedGate::from_fact(fact).filter(|_| self.failing).map(Box::new);
        }
    }
    pub(crate) fn clear_failure(&mut self) {
        self.failing = false;
        self.failure = None;
    }
    pub(crate) fn rechecks_mut(&mut self) -> &mut RecheckQueue {
        &mut self.rechecks
    }
}
