//! A PRD on its way to a plan: which call comes next, what an answer is worth, when to stop.
//!
//! One call splits the PRD into epics, one call per epic writes its tasks, and [`crate::plan_assembly`] makes
//! them one plan. Pure: what happened comes in, facts and wishes go out, and the facts folded again give
//! the same state. Ends of calls are judged by the rules that tasks have (`mainstem_core::policy`), limits
//! by the same coordinator (`mainstem_core::provider`). Knows no processes, no files and no clock.

mod apply;
mod event;
mod fact;
mod input;
mod answer_check;
mod prompt;

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::attempt_policy::{self, AttemptJudgement, RetryCounts};
use mainstem_core::config::Settings;
use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault, Evidence, FailureClass, LimitKind};
use mainstem_core::id::{Oid, Time};
use mainstem_core::limits;
use mainstem_core::money::{self, CostAccount, CostGrouping};
use mainstem_core::plan::Task;
use mainstem_core::provider::{self, Provider, ProviderStanding};

use crate::schema::{AnswerProblem, EpicBreakdown, EpicTasks};

pub use answer_check::{DraftAnswer, find_answer};
pub use event::{DraftNotification, notification_for};
pub use fact::{DraftFact, DraftPart, to_cost_fact};
pub use input::{DraftAgentWord, DraftEffect, DraftInput, DraftOutcome, DraftRateLimit};
pub use prompt::{DraftPrompt, DraftPromptInput, PRD_BYTES_MAX, PrdExtent};

/// Tries after the first, for an answer that does not fit.
pub const RETRIES: u32 = 3;

/// Who may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftAgent {
    pub agent: String,
    /// Whose quota it uses.
    pub provider: String,
    /// The model, if one was chosen.
    pub model: Option<String>,
    /// The effort, if one was chosen.
    pub effort: Option<String>,
}

#[derive(Debug, Clone)]
pub struct DraftRules {
    /// Who is asked: the first splits the PRD, all of them take epics in turn. Never empty.
    pub hands: Vec<DraftAgent>,
    pub jobs: u32,
    /// Tries after the first, for an answer that does not fit.
    pub retries: u32,
    /// Ask once for everything.
    pub single_pass: bool,
    pub settings: Settings,
}

/// Where a part stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftPartPhase {
    /// To be asked, not before this moment.
    Waiting(Time),
    Calling,
    Done,
    /// Given up, and why.
    Failed(String),
}

/// One part of the work: the split, an epic, or all in one.
#[derive(Debug, Clone)]
pub struct DraftPartState {
    pub phase: DraftPartPhase,
    /// Calls so far; the present one has this number.
    pub calls: u32,
    /// What was wrong with the last answer.
    pub problems: Vec<AnswerProblem>,
    /// What helps, if it failed.
    pub help: Option<String>,
    /// When the present or last call began.
    pub begun: Time,
    /// When it was answered or given up.
    pub ended: Option<Time>,
    /// Time in which it was worked on: all its calls and the waits between them, in all lives of the program.
    pub worked_ms: u64,
    pub agent: String,
    /// With which model, if one was chosen.
    pub model: Option<String>,
    /// With which effort, if one was chosen.
    pub effort: Option<String>,
    provider: String,
    mark: u64,
    limited: bool,
    spent: RetryCounts,
}

impl DraftPartState {
    fn new(at: Time) -> Self {
        Self {
            phase: DraftPartPhase::Waiting(at),
            calls: 0,
            problems: Vec::new(),
            help: None,
            begun: at,
            ended: None,
            worked_ms: 0,
            agent: String::new(),
            model: None,
            effort: None,
            provider: String::new(),
            mark: 0,
            limited: false,
            spent: RetryCounts::default(),
        }
    }
}

/// A fact that does not fit the ones before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DraftFactMismatch(String);

/// What this life of the program has given out.
#[derive(Debug, Clone, Default)]
struct DraftEpoch {
    /// Time that earlier lives took.
    before_ms: u64,
    given: BTreeSet<(DraftPart, u32)>,
    stopping: u32,
    stopped: BTreeSet<(DraftPart, u32, bool)>,
    /// Agents that nobody lets in, and what helps.
    refused: BTreeMap<String, (String, Option<String>)>,
    facts: Vec<DraftFact>,
}

#[derive(Debug, Clone)]
pub struct Draft {
    rules: DraftRules,
    parts: BTreeMap<DraftPart, DraftPartState>,
    breakdown: Option<EpicBreakdown>,
    answers: BTreeMap<String, EpicTasks>,
    providers: BTreeMap<String, Provider>,
    account: CostAccount,
    written: Option<(String, String)>,
    started: Option<Time>,
    now: Time,
    /// When the newest fact was written.
    last_fact: Time,
    worked_ms: u64,
    /// The same by stage.
    stage_ms: BTreeMap<&'static str, u64>,
    life: DraftEpoch,
}

impl Draft {
    pub fn new(rules: DraftRules) -> Self {
        Self {
            rules,
            parts: BTreeMap::new(),
            breakdown: None,
            answers: BTreeMap::new(),
            providers: BTreeMap::new(),
            account: CostAccount::new(CostGrouping::Task),
            written: None,
            started: None,
            now: Time(0),
            last_fact: Time(0),
            worked_ms: 0,
            stage_ms: BTreeMap::new(),
            life: DraftEpoch::default(),
        }
    }

    /// Where every part stands.
    pub fn parts(&self) -> &BTreeMap<DraftPart, DraftPartState> {
        &self.parts
    }
    /// The epics, once they are known.
    pub fn breakdown(&self) -> Option<&EpicBreakdown> {
        self.breakdown.as_ref()
    }
    /// The answers of epics, in their order.
    pub fn answers(&self) -> Vec<EpicTasks> {
        self.answers.values().cloned().collect()
    }
    /// Tokens and money, by part.
    pub fn account(&self) -> &CostAccount {
        &self.account
    }
    /// The plan that was last written of it: where, and the hash of its bytes.
    pub fn written_plan(&self) -> Option<(&str, &str)> {
        self.written.as_ref().map(|(path, hash)| (path.as_str(), hash.as_str()))
    }
    pub fn started_at(&self) -> Option<Time> {
        self.started
    }
    /// The time of the newest fact or input.
    pub fn now(&self) -> Time {
        self.now
    }
    /// The rules in force.
    pub fn rules(&self) -> &DraftRules {
        &self.rules
    }
    /// Time in which at least one part of this stage was worked on; none if it has not begun.
    pub fn stage_ms(&self, stage: &str) -> Option<u64> {
        self.stage_ms.get(stage).copied()
    }
    /// Time that earlier lives of the program took.
    pub fn earlier_epochs_ms(&self) -> u64 {
        self.life.before_ms
    }
    /// Is every part answered?
    pub fn is_complete(&self) -> bool {
        !self.parts.is_empty() && self.parts.values().all(|part| part.phase == DraftPartPhase::Done)
    }
    /// Who does a part: the first the split, all of them epics in turn.
    pub fn agent_for(&self, part: &DraftPart) -> &DraftAgent {
        let place = |id: &str| {
            let epics = &self.breakdown.as_ref()?.epics;
            epics.iter().position(|epic| epic.id == id)
        };
        let at = match part {
            DraftPart::Epic(id) => place(id).unwrap_or(0),
            DraftPart::Shred | DraftPart::Whole => 0,
        };
        &self.rules.hands[at % self.rules.hands.len()]
    }
    /// If a part waits for its provider: until when; none inside if only a person ends it.
    pub fn provider_wait(&self, part: &DraftPart) -> Option<(&str, Option<Time>)> {
        let name = &self.agent_for(part).provider;
        let until = self.providers.get(name)?.rests_until(self.now, self.resumes_by_itself())?;
        Some((name, until))
    }

    fn resumes_by_itself(&self) -> bool {
        self.rules.settings.limits.auto_resume
    }

    /// Takes something in; the facts it led to are to be made durable before any wish is fulfilled.
    pub fn step(&mut self, input: DraftInput, now: Time) -> Vec<DraftFact> {
        self.now = self.now.max(now);
        match input {
            DraftInput::Begin(limits) => self.begin_epoch(limits),
            DraftInput::Said { part, call, mark, word } => {
                self.handle_agent_word(&part, call, mark, word);
            }
            DraftInput::Ended { part, call, ending, claim, answer } => {
                self.handle_call_end(&part, call, (&ending, &claim), answer);
            }
            DraftInput::Park(limit) => self.record_rate_limit(limit),
            DraftInput::Interrupt => self.life.stopping += 1,
            DraftInput::Written { path, hash, tasks } => {
                self.emit(DraftFact::PlanWritten { path, hash, tasks });
            }
            DraftInput::Tick => {}
        }
        self.schedule_calls();
        std::mem::take(&mut self.life.facts)
    }

    fn emit(&mut self, fact: DraftFact) {
        let at = self.now;
        self.apply(&fact, at).expect("BUG: a fact of ours fits the state that it came from");
        self.life.facts.push(fact);
    }

    fn begin_epoch(&mut self, limits: Vec<DraftRateLimit>) {
        if self.parts.is_empty() {
            let single_pass = self.rules.single_pass;
            self.emit(DraftFact::DraftStarted { single_pass });
        } else {
            self.emit(DraftFact::DraftResumed {});
            self.life.before_ms = self.worked_ms;
        }
        let failed: Vec<DraftPart> =
            self.parts_in_phase(|stand| matches!(stand, DraftPartPhase::Failed(_)));
        for part in failed {
            self.emit(DraftFact::PartReopened { part });
        }
        for limit in limits {
            self.record_rate_limit(limit);
        }
    }

    fn record_rate_limit(&mut self, limit: DraftRateLimit) {
        let DraftRateLimit { provider, kind, until, message } = limit;
        let known = self.providers.get(&provider).and_then(Provider::wait_end);
        if until > self.now && known.is_none_or(|had| had < until) {
            self.emit(DraftFact::ProviderParked { provider, kind, until, message });
        }
    }

    fn parts_in_phase(&self, fits: impl Fn(&DraftPartPhase) -> bool) -> Vec<DraftPart> {
        let fitting = self.parts.iter().filter(|(_, state)| fits(&state.phase));
        fitting.map(|(part, _)| part.clone()).collect()
    }

    /// The state of a part whose present call this is.
    fn current_call(&self, part: &DraftPart, call: u32) -> Option<&DraftPartState> {
        let state = self.parts.get(part)?;
        (state.phase == DraftPartPhase::Calling && state.calls == call).then_some(state)
    }

    fn handle_agent_word(&mut self, part: &DraftPart, call: u32, mark: u64, word: DraftAgentWord) {
        let Some(state) = self.current_call(part, call) else { return };
        if mark <= state.mark {
            return;
        }
        let (provider, model, agent) =
            (state.provider.clone(), state.model.clone(), state.agent.clone());
        let part = part.clone();
        let settings = &self.rules.settings;
        let (kind, wait, message, retrying) = match word {
            DraftAgentWord::Usage(usage) => {
                let included = settings.agents.get(&agent).is_some_and(|agent| agent.included);
                let usage = money::price_usage(usage, included, model.as_deref(), &settings.prices);
                return self.emit(DraftFact::UsageReported { part, call, mark, usage });
            }
            DraftAgentWord::RateLimited { wait_ms, message, retrying } => {
                let wait = wait_ms.unwrap_or(settings.limits.rate_limit_wait_ms);
                (LimitKind::Rate, wait, message, retrying)
            }
            DraftAgentWord::QuotaExhausted { wait_ms, message } => {
                let wait = wait_ms.filter(|wait| *wait > 0);
                (LimitKind::Quota, wait.unwrap_or(settings.limits.quota_wait_ms), message, false)
            }
        };
        let usual = self.rules.settings.limits.rate_limit_wait_ms;
        let wait = provider::believed_wait_ms(kind, wait, usual);
        let until = self.now.plus_ms(wait + provider::jitter_ms(&provider, wait));
        let message = limits::clip_for_fact(&message);
        self.emit(DraftFact::ProviderLimited {
            provider,
            part,
            call,
            mark,
            until,
            message,
            kind,
            retrying,
        });
    }

    /// An answer that fits counts, however its agent ended; otherwise the end says what kind of failure
    /// it was.
    fn handle_call_end(
        &mut self,
        part: &DraftPart,
        call: u32,
        (ending, claim): (&AgentEnding, &AgentClaim),
        answer: Result<DraftAnswer, Vec<AnswerProblem>>,
    ) {
        if self.current_call(part, call).is_none() {
            return;
        }
        let part = part.clone();
        let problems = match answer {
            Ok(DraftAnswer { breakdown, tasks, repairs }) => {
                let taken = DraftFact::AnswerTaken { part, call, breakdown, tasks, repairs };
                return self.emit(taken);
            }
            Err(problems) => problems,
        };
        let in_good_order = *ending == AgentEnding::Exited { code: 0 };
        let (class, reason, help) = match attempt_policy::judge_attempt(
            ending,
            claim,
            &Evidence::empty_on(Oid::new("")),
            None,
        ) {
            AttemptJudgement::Bad { class: FailureClass::AgentFailed, .. }
                if in_good_order && !matches!(claim, AgentClaim::Failed { .. }) =>
            {
                (
                    FailureClass::InvalidOutput,
                    "the answer does not match the schema".to_owned(),
                    None,
                )
            }
            AttemptJudgement::Bad { class, reason, help } => (class, reason, help),
            AttemptJudgement::Worked | AttemptJudgement::NothingToDo => {
                (FailureClass::InvalidOutput, "no answer".to_owned(), None)
            }
        };
        // What is missing from the answer of an agent that was stopped or broke off is no fault of the answer.
        let problems = if class == FailureClass::InvalidOutput { problems } else { Vec::new() };
        let fault = match claim {
            AgentClaim::Failed { fault, .. } => Some(*fault),
            _ => None,
        };
        let again_at = self.next_call_at(&part, class, fault);
        if class == FailureClass::Refused {
            let agent = self.parts[&part].agent.clone();
            self.life.refused.insert(agent, (reason.clone(), help.clone()));
        }
        let failed =
            DraftFact::CallFailed { part, call, class, fault, reason, help, problems, again_at };
        self.emit(failed);
        self.trip_breaker(class, fault);
    }

    /// When a part is asked again after such an end; never if it is given up.
    fn next_call_at(
        &self,
        part: &DraftPart,
        class: FailureClass,
        fault: Option<AgentFault>,
    ) -> Option<Time> {
        let state = &self.parts[part];
        let mut spent = state.spent.clone();
        spent.count_failure(class, fault);
        let incidents = self.providers.get(&state.provider).map_or(0, Provider::incidents);
        let task = Task { retries: Some(self.rules.retries), ..Task::empty() };
        let wait = attempt_policy::retry_after_ms(
            class,
            fault,
            &spent,
            incidents,
            &task,
            &self.rules.settings,
        )?;
        Some(self.now.plus_ms(wait))
    }

    /// A provider that has failed call after call is left alone for a while.
    fn trip_breaker(&mut self, class: FailureClass, fault: Option<AgentFault>) {
        if class != FailureClass::Transient || fault != Some(AgentFault::Transient) {
            return;
        }
        let limits = &self.rules.settings.limits;
        let broken = self
            .providers
            .iter()
            .find(|(_, known)| known.is_broken(limits.breaker, self.now))
            .map(|(name, known)| (name.clone(), known.clone()));
        let Some((provider, known)) = broken else { return };
        let wait = known.breaker_wait_ms(limits.breaker_wait_ms);
        let until = self.now.plus_ms(wait + provider::jitter_ms(&provider, wait));
        let message = format!("{} consecutive failures", known.failures_in_row());
        let kind = LimitKind::Breaker;
        self.emit(DraftFact::ProviderParked { provider, kind, until, message });
    }

    /// Intends every call that may start now.
    fn schedule_calls(&mut self) {
        if self.life.stopping > 0 || self.started.is_none() {
            return;
        }
        let now = self.now;
        for part in
            self.parts_in_phase(|stand| matches!(stand, DraftPartPhase::Waiting(at) if *at <= now))
        {
            let hand = self.agent_for(&part).clone();
            if let Some((reason, help)) = self.agent_refusal(&hand) {
                self.emit(DraftFact::PartFailed { part, reason, help });
            } else if self.has_capacity(&hand) {
                let call = self.parts[&part].calls + 1;
                let DraftAgent { agent, provider, model, effort } = hand;
                self.emit(DraftFact::CallIntended { part, call, agent, provider, model, effort });
            }
        }
    }

    /// Why this one is not asked any more, if so.
    fn agent_refusal(&self, hand: &DraftAgent) -> Option<(String, Option<String>)> {
        if let Some(refused) = self.life.refused.get(&hand.agent) {
            return Some(refused.clone());
        }
        let budget = &self.rules.settings.budget;
        let spent = self.account.total.paid_usd();
        let usd = budget.usd.filter(|usd| budget.hard && spent >= *usd)?;
        let reason = format!("over budget: ${spent:.2} of ${usd:.2} spent (budget.usd)");
        Some((reason, Some("raise budget.usd, then run mainstem plan again".to_owned())))
    }

    fn has_capacity(&self, hand: &DraftAgent) -> bool {
        let calling = || self.parts.values().filter(|state| state.phase == DraftPartPhase::Calling);
        let count = |fits: &dyn Fn(&DraftPartState) -> bool| {
            u32::try_from(calling().filter(|state| fits(state)).count()).unwrap_or(u32::MAX)
        };
        let limits = &self.rules.settings.limits;
        let of_provider = count(&|state| state.provider == hand.provider);
        let below = |most: Option<&u32>, had: u32| most.is_none_or(|most| had < *most);
        let known = self.providers.get(&hand.provider);
        let standing = known.map_or(ProviderStanding::Free, |known| {
            known.standing(self.now, self.resumes_by_itself())
        });
        let let_in = match standing {
            ProviderStanding::Free => true,
            ProviderStanding::Ramps(most) => of_provider < most,
            ProviderStanding::Rests => false,
        };
        let_in
            && count(&|_| true) < self.rules.jobs.max(1)
            && below(limits.per_provider.get(&hand.provider), of_provider)
            && below(limits.per_agent.get(&hand.agent), count(&|s| s.agent == hand.agent))
    }

    /// What is to be done now that was not yet given out in this life.
    pub fn outstanding_effects(&mut self) -> Vec<DraftEffect> {
        let mut wants = Vec::new();
        let stopping = self.life.stopping;
        for (part, state) in self.parts.iter().filter(|(_, s)| s.phase == DraftPartPhase::Calling) {
            let (part, call) = (part.clone(), state.calls);
            if self.life.given.insert((part.clone(), call)) {
                wants.push(DraftEffect::Call { part: part.clone(), call });
            }
            let now = stopping > 1;
            if stopping > 0 && self.life.stopped.insert((part.clone(), call, now)) {
                wants.push(DraftEffect::Stop { part, call, now });
            }
        }
        wants
    }

    /// Is there nothing left to do in this life?
    pub fn outcome(&self) -> Option<DraftOutcome> {
        let stands = || self.parts.values().map(|state| &state.phase);
        if stands().any(|stand| *stand == DraftPartPhase::Calling) {
            return None;
        }
        if self.life.stopping > 0 {
            return Some(DraftOutcome::Interrupted);
        }
        let waiting = self.parts_in_phase(|stand| matches!(stand, DraftPartPhase::Waiting(_)));
        if waiting.is_empty() {
            let done = stands().all(|stand| *stand == DraftPartPhase::Done);
            return Some(if done { DraftOutcome::Done } else { DraftOutcome::Partial });
        }
        let for_ever = |part: &DraftPart| matches!(self.provider_wait(part), Some((_, None)));
        waiting.iter().all(for_ever).then_some(DraftOutcome::Parked)
    }

    /// When something changes here by itself.
    pub fn wake_at(&self) -> Option<Time> {
        let of_part = |(part, state): (&DraftPart, &DraftPartState)| {
            let DraftPartPhase::Waiting(at) = state.phase else { return None };
            let provider = self.providers.get(&self.agent_for(part).provider);
            let woken = provider.and_then(|known| known.wake_at(self.now));
            [Some(at).filter(|at| *at > self.now), woken].into_iter().flatten().min()
        };
        self.parts.iter().filter_map(of_part).min()
    }
}

#[cfg(test)]
mod tests;
