//! What a clash with the target branch leads to, where an agent is to resolve it: an attempt like any
//! other that starts from the merge instead of from nothing. Everything follows from facts that are there
//! for other reasons.

use crate::clash::Clash;
use crate::config::OnConflict;
use crate::effect::Resolved;
use crate::fact::Fact;
use crate::id::TaskIx;
use crate::limits;
use crate::machine::Machine;
use crate::train::Stage;

impl Machine {
    /// The clash that the next attempt at this task resolves, if an agent is to.
    fn resolves(&self, t: TaskIx) -> Option<&Clash> {
        let wanted = self.settings.land.on_conflict == OnConflict::Agent;
        // What an open pull request offers has it already.
        self.tasks.get(t).clash.as_ref().filter(|_| wanted && self.goes_on_from(t).is_none())
    }

    /// The clash whose merge is laid out in the workspace of the attempt under way.
    pub fn lays_out(&self, t: TaskIx) -> Option<&Clash> {
        let n = self.tasks.get(t).current.as_ref()?.n;
        self.resolves(t).filter(|clash| clash.attempt < n)
    }

    /// Does another agent than the task's own resolve a clash in the attempt under way?
    pub fn is_resolved_by_another(&self, t: TaskIx) -> bool {
        let current = self.tasks.get(t).current.as_ref();
        let other = current.is_some_and(|a| a.agent != self.tasks.claims(t).agent);
        other && self.lays_out(t).is_some() && self.settings.land.resolver.is_some()
    }

    /// Who works on this task next, if it is to resolve a clash and not its own agent's.
    pub(super) fn resolver_of(&self, t: TaskIx) -> Option<String> {
        self.settings.land.resolver.as_ref().filter(|_| self.resolves(t).is_some()).cloned()
    }

    /// The clash that the work of the attempt under way settles, if that is to be remembered.
    pub(super) fn resolved_by(&self, t: TaskIx) -> Option<Resolved> {
        let state = self.tasks.get(t);
        let current = state.current.as_ref()?;
        let clash = state.clash.as_ref().filter(|clash| clash.attempt < current.n)?;
        let tip = current.evidence.as_ref()?.tip.clone();
        let wanted = self.settings.land.reuse_resolutions;
        wanted.then_some(Resolved { base: current.base.clone()?, work: clash.tip.clone(), tip })
    }

    /// A car whose conflicts were resolved as they had been before failed its gates: it clashes after
    /// all. Whether it is so.
    pub(super) fn failed_as_before(&mut self, t: TaskIx, attempt: u32, why: &str) -> bool {
        let Some(car) = self.train.car(t).filter(|car| !car.reused.is_empty()) else {
            return false;
        };
        let files = car.reused.iter().map(|reused| reused.path.clone()).collect();
        let (Stage::Formed { onto, .. } | Stage::Landing { onto, .. }) = &car.stage else {
            return false;
        };
        let onto = onto.clone();
        let message = limits::brief(&format!("a conflict resolved as before does not hold: {why}"));
        self.emit(Fact::Noticed { task: Some(self.id(t)), message, lasts: false });
        self.car_conflicted(t, attempt, onto, files);
        true
    }
}
