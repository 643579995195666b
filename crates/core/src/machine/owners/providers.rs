//! Providers that said something: their limits, outages and successes.

use std::collections::BTreeMap;

use crate::fact::{AgentClaim, AgentEnding, AgentFault, Fact};
use crate::id::Time;
use crate::provider::{LimitReport, Provider, ProviderStanding};

#[derive(Debug, Clone, Default)]
pub(crate) struct ProviderTable {
    providers: BTreeMap<String, Provider>,
}

impl ProviderTable {
    pub(crate) fn all(&self) -> &BTreeMap<String, Provider> {
        &self.providers
    }
    pub(crate) fn get(&self, name: &str) -> Option<&Provider> {
        self.providers.get(name)
    }
    /// May attempts of this provider start now?
    pub(crate) fn standing(&self, name: &str, now: Time, auto_resume: bool) -> ProviderStanding {
        let known = self.providers.get(name);
        known.map_or(ProviderStanding::Free, |known| known.standing(now, auto_resume))
    }
    pub(crate) fn wake_at(&self, now: Time) -> impl Iterator<Item = Time> {
        self.providers.values().filter_map(move |known| known.wake_at(now))
    }

    /// Folds a fact that is about a provider and not about a task.
    pub(crate) fn apply_run_fact(&mut self, fact: &Fact) {
        match fact {
            Fact::ProviderParked { provider, kind, until, message } => {
                self.providers.entry(provider.clone()).or_default().park(*kind, *until, message);
            }
            Fact::ProviderFreed { provider } => {
                if let Some(known) = self.providers.get_mut(provider) {
                    known.release();
                }
            }
            _ => {}
        }
    }
    pub(crate) fn apply_attempt_start(&mut self, provider: &str, at: Time) {
        if let Some(known) = self.providers.get_mut(provider) {
            known.record_start(at);
        }
    }
    /// The provider answered an attempt that was intended at `begun`.
    pub(crate) fn apply_answer(&mut self, provider: &str, at: Time, begun: Time) {
        if let Some(known) = self.providers.get_mut(provider) {
            known.record_answer(at, begun);
        }
    }
    pub(crate) fn apply_limit(&mut self, provider: &str, limit: &LimitReport<'_>) {
        self.providers.entry(provider.to_owned()).or_default().record_limit(limit);
    }
    /// A person wants a task of this provider tried again: its failures no longer count.
    pub(crate) fn apply_retry(&mut self, provider: &str) {
        if let Some(known) = self.providers.get_mut(provider) {
            known.clear_failures();
        }
    }
    /// What the end of an agent says of its provider.
    pub(crate) fn apply_agent_end(
        &mut self,
        provider: &str,
        (ending, claim): (&AgentEnding, &AgentClaim),
        at: Time,
        begun: Time,
    ) {
        match claim {
            AgentClaim::Failed { fault: AgentFault::Transient, .. } => {
                self.providers.entry(provider.to_owned()).or_default().record_failure();
            }
            AgentClaim::RateLimited {}
            | AgentClaim::QuotaExhausted {}
            | AgentClaim::Failed { .. } => {}
            AgentClaim::None
            | AgentClaim::NothingToDo { .. }
            | AgentClaim::Blocked { .. }
            | AgentClaim::Done { .. } => {
                if *ending == (AgentEnding::Exited { code: 0 })
                    && let Some(known) = self.providers.get_mut(provider)
                {
                    known.record_success(at, begun);
                }
            }
        }
    }
}
