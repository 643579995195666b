//! Landings that wait for a remote: tried again with growing pauses, and after a bounded number of
//! tries left to a person. The landing stays intended: only the remote can say what became of it.

use crate::fact::Fact;
use crate::id::TaskIx;
use crate::limits;
use crate::machine::Machine;
use crate::phase::Phase;
use crate::publish::{PushRefusal, PushTrouble};

impl Machine {
    pub(super) fn handle_push_failure(&mut self, t: TaskIx, attempt: u32, why: PushRefusal) {
        let landing =
            |car: &&crate::train::TrainCandidate| car.attempt == attempt && car.stage.is_landing();
        let Some(publish) = self.settings.land.push.clone() else { return };
        if self.train.candidate_of(t).filter(landing).is_none() {
            return;
        }
        self.epoch.push_fails += 1;
        let wait = limits::TRANSIENT_WAIT_MS << self.epoch.push_fails.min(7);
        self.epoch.train_retry_at = Some(self.now.plus_ms(wait.min(limits::TRANSIENT_WAIT_MS_MAX)));
        self.epoch.issued.land = None;
        let tries =
            if why.heard { publish.tries.min(limits::PUSH_REFUSALS_MAX) } else { publish.tries };
        let last = self.epoch.push_fails >= tries;
        let trouble = PushTrouble {
            task: self.task_id(t),
            attempt,
            remote: publish.remote,
            reason: limits::clip_for_fact(&why.reason),
            help: why.help,
            last,
        };
        // Said once, and once more when nothing else helps.
        if self.push_trouble.as_ref() != Some(&trouble) {
            self.emit_fact(Fact::PushFailed(trouble));
        }
    }

    /// The remote took something, or answered: what was said of it is over.
    pub(super) fn clear_push_trouble(&mut self) {
        self.epoch.push_fails = 0;
    }

    /// The landing under way is not under way right now: it waits until the remote is tried again.
    pub(super) fn waits_for_remote(&self) -> bool {
        self.epoch.push_fails > 0 && self.epoch.issued.land.is_none()
    }

    /// Does this task's car wait for a remote that only a person can help with?
    pub fn push_trouble(&self, t: TaskIx) -> Option<&PushTrouble> {
        let in_train = self.tasks.phase(t) == Phase::Merging && !self.lands_on_forge(t);
        self.push_trouble.as_ref().filter(|trouble| trouble.last && in_train)
    }

    /// The fold of what is known of a remote that does not take what lands.
    pub(super) fn apply_push_trouble(&mut self, fact: &Fact) {
        match fact {
            Fact::PushFailed(trouble) => self.push_trouble = Some(trouble.clone()),
            Fact::TaskLanded { .. } | Fact::LandingRefused { .. } => self.push_trouble = None,
            _ => {}
        }
    }
}
