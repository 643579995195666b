//! When an engine has nothing left to do, and when one that is told to go may leave.

use crate::fact::StopReason;
use crate::id::TaskIx;
use crate::inbox::PendingFile;
use crate::machine::{Interrupting, Machine, Rest};
use crate::phase::Phase;
use crate::schedule::Held;

impl Machine {
    /// Tells which files that decide about runs wait for a person. They hold nothing up.
    pub fn set_pending_files(&mut self, files: Vec<PendingFile>) {
        self.pending_files = files;
    }

    /// Files that decide about runs and wait for a person.
    pub fn pending_files(&self) -> &[PendingFile] {
        &self.pending_files
    }

    /// Nothing is under way and nothing will start by itself.
    pub fn rest(&self) -> Option<Rest> {
        if !self.life.begun {
            return None;
        }
        if self.life.interrupting.is_some() {
            return self.may_leave().then_some(Rest::Interrupted);
        }
        // Cars that a bad target branch holds up wait for a person, and so for the next life.
        // So do those that a remote does not take, and work that a person decides on where nobody waits
        // for them.
        let adrift = |t: TaskIx| self.waits_for_remote() && self.is_adrift(t).is_some();
        let frozen = |t: TaskIx| self.life.frozen && self.tasks.phase(t) == Phase::Merging;
        let undecided = |t: TaskIx| !self.patient && self.waits_for_decision(t);
        let waits = |t: TaskIx| {
            let held = !self.lands_by_pull(t) && !self.holds(t).is_empty();
            !self.patient && held && !self.checkout_unseen(t)
        };
        let held = |t: TaskIx| frozen(t) || adrift(t) || undecided(t) || waits(t);
        let busy = self.tasks.active().any(|t| !held(t)) || self.tasks.any_removal();
        let waits = || self.merger.is_none() && self.waits_for_time();
        if !self.merger_rests() && (busy || waits() || self.rechecks_now()) {
            return None;
        }
        if self.cancelled {
            return Some(Rest::Interrupted);
        }
        Some(self.rest_by_phases())
    }

    /// How the newest engine ended, by the journal alone: for those who look at a run from outside. An engine that is
    /// gone without a word counts as interrupted.
    pub fn recorded_rest(&self) -> Rest {
        match self.stopped {
            Some(StopReason::Rested) => self.rest_by_phases(),
            Some(StopReason::Interrupted) | None => Rest::Interrupted,
        }
    }

    fn rest_by_phases(&self) -> Rest {
        let done = self
            .tasks
            .all()
            .filter(|t| self.merger.is_some() || self.in_scope(*t))
            .all(|t| matches!(self.tasks.phase(t), Phase::Landed | Phase::Skipped));
        // What landed and does not hold is not done.
        if done && !self.rechecks.disagrees() { Rest::Done } else { Rest::NotLanded }
    }

    /// An interrupted engine may go: no agent is alive, nothing is half read or half removed, no
    /// branch is about to move. Gates and queued cars are taken up by the next life.
    fn may_leave(&self) -> bool {
        // One that waits for a remote is taken up by the next life.
        let landing = (self.train.landing().next().is_some() && !self.waits_for_remote())
            || self.tasks.active().any(|t| self.is_merging(t));
        // Told to go at once, we leave even a landing: the branch itself will say how far it got.
        (!landing || self.life.interrupting == Some(Interrupting::Now))
            && !self.tasks.any_removal()
            && self.tasks.active().all(|t| match self.tasks.phase(t) {
                Phase::Merging => true,
                Phase::Verifying => {
                    self.tasks.get(t).current.as_ref().is_some_and(|a| a.evidence.is_some())
                }
                Phase::Preparing | Phase::Working | Phase::Asking => false,
                other => panic!("BUG: {} is not an active phase", other.word()),
            })
    }

    /// Something will start by itself: when a delay ends, a provider or a person lets it.
    fn waits_for_time(&self) -> bool {
        if self.draining.is_some() || self.cancelled {
            return false;
        }
        if self.tasks.count(Phase::Ready) == 0 {
            return false;
        }
        self.with_board(|board| {
            self.tasks.all().any(|t| {
                self.tasks.phase(t) == Phase::Ready
                    && self.in_scope(t)
                    && (self.tasks.get(t).not_before.is_some()
                        || self.paused
                        || self.life.no_room.as_ref().is_some_and(|short| short.nobody)
                        || matches!(
                            board.why_held(t),
                            Some(Held::ProviderRests(_) | Held::Quiet | Held::Question(_))
                        ))
            })
        })
    }
}
