//! Landings that wait for a remote: tried again with growing pauses, and after a bounded number of
//! tries left to a person. The landing stays intended: only the remote can say what became of it.

use crate::fact::Fact;
use crate::id::TaskIx;
use crate::limits;
use crate::machine::Machine;
use crate::phase::Phase;
use crate::publish::{Refusal, Trouble};

impl Machine {
    pub(super) fn push_failed(&mut self, t: TaskIx, attempt: u32, why: Refusal) {
        let landing = |car: &&crate::train::Car| car.attempt == attempt && car.stage.is_landing();
        let Some(publish) = self.settings.land.push.clone() else { return };
        if self.train.car(t).filter(landing).is_none() {
            return;
        }
        self.life.push_fails += 1;
        let wait = limits::TRANSIENT_WAIT_MS << self.life.push_fails.min(7);
        self.life.train_retry_at = Some(self.now.plus_ms(wait.min(limits::TRANSIENT_WAIT_MS_MAX)));
        self.life.given.land = None;
        let tries =
            if why.heard { publish.tries.min(limits::PUSH_REFUSALS_MAX) } else { publish.tries };
        let last = self.life.push_fails >= tries;
        let trouble = Trouble {
            task: self.id(t),
            attempt,
            remote: publish.remote,
            reason: limits::brief(&why.reason),
            help: why.help,
            last,
        };
        // Said once, and once more when nothing else helps.
        if self.adrift.as_ref() != Some(&trouble) {
            self.emit(Fact::PushFailed(trouble));
        }
    }

    /// The remote took something, or answered: what was said of it is over.
    pub(super) fn push_settled(&mut self) {
        self.life.push_fails = 0;
    }

    /// The landing under way is not under way right now: it waits until the remote is tried again.
    pub(super) fn waits_for_remote(&self) -> bool {
        self.life.push_fails > 0 && self.life.given.land.is_none()
    }

    /// Does this task's car wait for a remote that only a person can help with?
    pub fn is_adrift(&self, t: TaskIx) -> Option<&Trouble> {
        let in_train = self.tasks.phase(t) == Phase::Merging && !self.lands_by_pull(t);
        self.adrift.as_ref().filter(|trouble| trouble.last && in_train)
    }

    /// The fold of what is known of a remote that does not take what lands.
    pub(super) fn note_publish(&mut self, fact: &Fact) {
        match fact {
            Fact::PushFailed(trouble) => self.adrift = Some(trouble.clone()),
            Fact::TaskLanded { .. } | Fact::LandingRefused { .. } => self.adrift = None,
            _ => {}
        }
    }
}
