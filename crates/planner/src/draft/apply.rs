//! How facts change a draft, live and when the journal is read again.

use std::collections::BTreeSet;

use mainstem_core::fact::{AgentFault, FailureClass};
use mainstem_core::id::Time;
use mainstem_core::provider::LimitReport;

use super::{
    Draft, DraftFact, DraftFactMismatch, DraftPart, DraftPartPhase, DraftPartState, to_cost_fact,
};
use crate::schema::{EpicBreakdown, EpicTasks};

impl Draft {
    /// Facts about parts come only where a part stands so that they can happen.
    fn check_fact(&self, fact: &DraftFact) -> Result<(), DraftFactMismatch> {
        let stand = fact.part().and_then(|part| self.parts.get(part)).map(|state| &state.phase);
        let waits = matches!(stand, Some(DraftPartPhase::Waiting(_)));
        let right = match fact {
            DraftFact::DraftStarted { .. } => self.started.is_none(),
            DraftFact::CallIntended { part, call, .. } => {
                waits && self.parts.get(part).is_some_and(|state| state.calls + 1 == *call)
            }
            DraftFact::PartFailed { .. } => waits,
            DraftFact::PartReopened { .. } => matches!(stand, Some(DraftPartPhase::Failed(_))),
            other => match other.call() {
                Some((part, call)) => self.current_call(part, call).is_some(),
                None => true,
            },
        };
        if right { Ok(()) } else { Err(DraftFactMismatch(format!("it does not fit: {fact:?}"))) }
    }

    /// Takes a fact in, live or from the journal.
    pub fn apply(&mut self, fact: &DraftFact, at: Time) -> Result<(), DraftFactMismatch> {
        self.check_fact(fact)?;
        self.record_work_time(fact, at);
        self.now = self.now.max(at);
        if let Some(fact) = to_cost_fact(fact) {
            self.account.apply_fact(&fact, at);
        }
        match fact {
            DraftFact::DraftStarted { single_pass } => {
                let part = if *single_pass { DraftPart::Whole } else { DraftPart::Shred };
                self.parts.insert(part, DraftPartState::new(at));
                self.started = Some(at);
            }
            DraftFact::DraftResumed {} => {}
            DraftFact::ProviderParked { provider, kind, until, message } => {
                self.providers.entry(provider.clone()).or_default().park(*kind, *until, message);
            }
            DraftFact::PlanWritten { path, hash, .. } => {
                self.written = Some((path.clone(), hash.clone()));
            }
            DraftFact::PartReopened { part } => {
                let state = self.part_mut(part)?;
                *state = DraftPartState {
                    calls: state.calls,
                    problems: std::mem::take(&mut state.problems),
                    worked_ms: state.worked_ms,
                    ..DraftPartState::new(at)
                };
            }
            DraftFact::PartFailed { part, reason, help } => {
                let state = self.part_mut(part)?;
                state.phase = DraftPartPhase::Failed(reason.clone());
                state.help.clone_from(help);
                state.ended = Some(at);
            }
            DraftFact::CallIntended { part, call, agent, provider, model, effort } => {
                self.providers.entry(provider.clone()).or_default().record_start(at);
                let state = self.part_mut(part)?;
                state.phase = DraftPartPhase::Calling;
                state.calls = *call;
                (state.begun, state.mark, state.limited) = (at, 0, false);
                (state.agent, state.provider) = (agent.clone(), provider.clone());
                state.model.clone_from(model);
                state.effort.clone_from(effort);
            }
            DraftFact::UsageReported { .. }
            | DraftFact::ProviderLimited { .. }
            | DraftFact::AnswerTaken { .. }
            | DraftFact::CallFailed { .. } => self.apply_to_call(fact, at)?,
        }
        Ok(())
    }

    /// Adds the time since the last fact to what was being worked on. Between two lives nobody worked on it.
    fn record_work_time(&mut self, fact: &DraftFact, at: Time) {
        let passed = at.since_ms(self.last_fact);
        self.last_fact = self.last_fact.max(at);
        if self.started.is_none() || matches!(fact, DraftFact::DraftResumed {}) {
            return;
        }
        self.worked_ms += passed;
        let mut stages = BTreeSet::new();
        for (part, state) in &mut self.parts {
            if state.calls > 0
                && matches!(state.phase, DraftPartPhase::Calling | DraftPartPhase::Waiting(_))
            {
                state.worked_ms += passed;
                stages.insert(part.stage());
            }
        }
        for stage in stages {
            *self.stage_ms.entry(stage).or_default() += passed;
        }
    }

    fn part_mut(&mut self, part: &DraftPart) -> Result<&mut DraftPartState, DraftFactMismatch> {
        let unknown = || DraftFactMismatch(format!("there is no part {part}"));
        self.parts.get_mut(part).ok_or_else(unknown)
    }

    /// A fact about the present call of a part.
    fn apply_to_call(&mut self, fact: &DraftFact, at: Time) -> Result<(), DraftFactMismatch> {
        let Some((part, _)) = fact.call() else { return Ok(()) };
        let state = self.part_mut(part)?;
        let begun = state.begun;
        let name = state.provider.clone();
        match fact {
            DraftFact::UsageReported { mark, .. } => {
                state.mark = *mark;
                self.providers.entry(name).or_default().record_answer(at, begun);
            }
            DraftFact::ProviderLimited { mark, until, kind, message, retrying, .. } => {
                (state.mark, state.limited) = (*mark, true);
                let (until, kind, retrying) = (*until, *kind, *retrying);
                let limit = LimitReport { at, begun, until, kind, message, retrying };
                self.providers.entry(name).or_default().record_limit(&limit);
            }
            DraftFact::AnswerTaken { breakdown, tasks, .. } => {
                (state.phase, state.ended) = (DraftPartPhase::Done, Some(at));
                state.problems.clear();
                if !state.limited {
                    self.providers.entry(name).or_default().record_success(at, begun);
                }
                self.apply_answer(part, breakdown.as_ref(), tasks, at);
            }
            DraftFact::CallFailed { class, fault, reason, help, problems, again_at, .. } => {
                state.spent.count_failure(*class, *fault);
                state.help.clone_from(help);
                if !problems.is_empty()
                    && matches!(class, FailureClass::InvalidOutput | FailureClass::AgentFailed)
                {
                    state.problems.clone_from(problems);
                }
                match again_at {
                    Some(again) => state.phase = DraftPartPhase::Waiting(*again),
                    None => {
                        state.phase = DraftPartPhase::Failed(reason.clone());
                        state.ended = Some(at);
                    }
                }
                let limited = state.limited;
                let known = self.providers.entry(name).or_default();
                match class {
                    FailureClass::Transient if *fault == Some(AgentFault::Transient) => {
                        known.record_failure();
                    }
                    FailureClass::InvalidOutput if !limited => known.record_success(at, begun),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_answer(
        &mut self,
        part: &DraftPart,
        breakdown: Option<&EpicBreakdown>,
        tasks: &[EpicTasks],
        at: Time,
    ) {
        for answer in tasks {
            self.answers.insert(answer.epic_id.clone(), answer.clone());
        }
        let Some(breakdown) = breakdown else { return };
        self.breakdown = Some(breakdown.clone());
        if *part == DraftPart::Shred {
            for epic in &breakdown.epics {
                self.parts.insert(DraftPart::Epic(epic.id.clone()), DraftPartState::new(at));
            }
        }
    }
}
