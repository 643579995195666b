//! When an engine has nothing left to do, and when one that is told to go may leave.

use crate::fact::StopReason;
use crate::id::TaskIx;
use crate::inbox::PendingFile;
use crate::machine::{Machine, RestReason};
use crate::phase::Phase;
use crate::schedule::StartObstacle;

impl Machine {
    /// Files that decide about runs and wait for a person.
    pub fn pending_files(&self) -> &[PendingFile] {
        self.inbox.pending_files()
    }

    /// Nothing is under way and nothing will start by itself.
    pub fn rest_reason(&self) -> Option<RestReason> {
        if !self.engine.has_begun() {
            return None;
        }
        if self.engine.is_interrupting() {
            return self.may_stop_engine().then_some(RestReason::Interrupted);
        }
        // Cars that a bad target branch holds up wait for a person, and so for the next life.
        // So do those that a remote does not take, and work that a person decides on where nobody waits
        // for them.
        let adrift = |t: TaskIx| self.waits_for_remote() && self.push_trouble(t).is_some();
        let frozen = |t: TaskIx| self.target.is_frozen() && self.tasks.phase(t) == Phase::Merging;
        let undecided = |t: TaskIx| !self.engine.waits_for_people() && self.waits_for_decision(t);
        let waits = |t: TaskIx| {
            let held = !self.lands_on_forge(t) && !self.hold_reasons(t).is_empty();
            !self.engine.waits_for_people() && held && !self.is_checkout_unchecked(t)
        };
        let held = |t: TaskIx| frozen(t) || adrift(t) || undecided(t) || waits(t);
        let busy = self.tasks.active_tasks().any(|t| !held(t))
            || self.tasks.is_any_workspace_being_removed();
        let waits = || self.engine.merge_only().is_none() && self.waits_for_timer();
        if !self.is_merge_only_done() && (busy || waits() || self.is_rechecking()) {
            return None;
        }
        if self.control.is_cancelled() {
            return Some(RestReason::Interrupted);
        }
        Some(self.rest_by_phases())
    }

    /// How the newest engine ended, by the journal alone: for those who look at a run from outside. An engine that is
    /// gone without a word counts as interrupted.
    pub fn recorded_rest(&self) -> RestReason {
        match self.run.stop_reason() {
            Some(StopReason::Rested) => self.rest_by_phases(),
            Some(StopReason::Interrupted) | None => RestReason::Interrupted,
        }
    }

    fn rest_by_phases(&self) -> RestReason {
        let done = self
            .tasks
            .all_tasks()
            .filter(|t| self.engine.merge_only().is_some() || self.is_in_scope(*t))
            .all(|t| matches!(self.tasks.phase(t), Phase::Landed | Phase::Skipped));
        // What landed and does not hold is not done.
        if done && !self.target.rechecks().is_target_failing() {
            RestReason::Done
        } else {
            RestReason::NotLanded
        }
    }

    /// An interrupted engine may go: no agent is alive, nothing is half read or half removed, no
    /// branch is about to move. Gates and queued cars are taken up by the next life.
    fn may_stop_engine(&self) -> bool {
        // One that waits for a remote is taken up by the next life.
        let landing = (self.train.queue().landing_candidates().next().is_some()
            && !self.waits_for_remote())
            || self.tasks.active_tasks().any(|t| self.is_merging_pull_request(t));
        // Told to go at once, we leave even a landing: the branch itself will say how far it got.
        (!landing || self.engine.is_interrupting_now())
            && !self.tasks.is_any_workspace_being_removed()
            && self.tasks.active_tasks().all(|t| match self.tasks.phase(t) {
                Phase::Merging => true,
                Phase::Verifying => {
                    self.tasks.get(t).current.as_ref().is_some_and(|a| a.evidence.is_some())
                }
                Phase::Preparing | Phase::Working | Phase::Asking => false,
                other => panic!("BUG: {} is not an active phase", other.as_str()),
            })
    }

    /// Something will start by itself: when a delay ends, a provider or a person lets it.
    fn waits_for_timer(&self) -> bool {
        if self.control.draining().is_some() || self.control.is_cancelled() {
            return false;
        }
        if self.tasks.count_in_phase(Phase::Ready) == 0 {
            return false;
        }
        self.with_schedule(|board| {
            self.tasks.all_tasks().any(|t| {
                self.tasks.phase(t) == Phase::Ready
                    && self.is_in_scope(t)
                    && (self.tasks.get(t).not_before.is_some()
                        || self.control.is_paused()
                        || self.engine.shortage().is_some_and(|short| short.nobody)
                        || matches!(
                            board.start_obstacle(t),
                            Some(
                                StartObstacle::ProviderRests(_)
                                    | StartObstacle::Quiet
                                    | StartObstacle::Question(_)
                            )
                        ))
            })
        })
    }
}
