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
        if self.train.queue().candidate_of(t).filter(landing).is_none() {
            return;
        }
        let failures = self.train.record_push_failure(self.now);
        self.train.forget_issued_landing();
        let tries =
            if why.heard { publish.tries.min(limits::PUSH_REFUSALS_MAX) } else { publish.tries };
        let last = failures >= tries;
        let trouble = PushTrouble {
            task: self.task_id(t),
            attempt,
            remote: publish.remote,
            reason: limits::clip_for_fact(&why.reason),
            help: why.help,
            last,
        };
        // Said once, and once more when nothing else helps.
        if self.train.push_trouble() != Some(&trouble) {
            self.emit_fact(Fact::PushFailed(trouble));
        }
    }

    /// The remote took something, or answered: what was said of it is over.
    pub(super) fn clear_push_trouble(&mut self) {
        self.train.clear_push_failures();
    }

    /// The landing under way is not under way right now: it waits until the remote is tried again.
    pub(super) fn waits_for_remote(&self) -> bool {
        self.train.waits_for_remote()
    }

    /// Does this task's car wait for a remote that only a person can help with?
    pub fn push_trouble(&self, t: TaskIx) -> Option<&PushTrouble> {
        let in_train = self.tasks.phase(t) == Phase::Merging && !self.lands_on_forge(t);
        self.train.push_trouble().filter(|trouble| trouble.last && in_train)
    }
}
