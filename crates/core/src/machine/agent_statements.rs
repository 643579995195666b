//! What an agent says while it works, and what that means for its provider and for money.

use crate::fact::{AgentClaim, AgentFault, Fact, LimitKind, Usage};
use crate::id::{TaskIx, Time};
use crate::limits;
use crate::machine::Machine;
use crate::machine::owners::QueuedQuestion;
use crate::money::{self, WARN_PERCENT};
use crate::phase::Phase;
use crate::provider::{self, ProviderStanding};

/// A word of an agent that has a meaning for us.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentStatement {
    /// The session it works in.
    Session {
        /// Its own name for it.
        session: String,
    },
    /// Tokens and money since the last such word.
    Usage(Usage),
    /// The provider says to wait.
    RateLimited {
        /// How long, if it said so.
        retry_after_ms: Option<u64>,
        /// Until when, if it said so.
        reset_at: Option<Time>,
        message: String,
        /// The agent waits by itself and goes on.
        retrying: bool,
    },
    /// The provider's quota is used up.
    QuotaExhausted {
        /// When it is filled again, if it said so.
        reset_at: Option<Time>,
        message: String,
    },
    Asked {
        text: String,
        options: Vec<String>,
        /// Taken when time runs out.
        default: Option<String>,
        deadline_ms: Option<u64>,
        /// The asker's own name for it.
        reference: Option<String>,
    },
    /// Something is wrong that is not part of the task.
    Issue {
        /// In a few words.
        title: String,
        text: String,
        /// As the agent sees it.
        severity: String,
    },
    /// A further task, in the agent's opinion.
    Proposed {
        /// Its id, if the agent named one.
        id: Option<String>,
        /// In a few words.
        title: String,
        description: String,
        /// What it would need.
        needs: Vec<String>,
    },
}

/// A task that an agent proposed. It is nobody's task before it is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProposal {
    pub task: crate::id::TaskId,
    pub attempt: u32,
    /// Its id, if the agent named one.
    pub id: Option<String>,
    /// In a few words.
    pub title: String,
    pub description: String,
    /// What it would need.
    pub needs: Vec<String>,
    pub at: Time,
    /// What was decided; none if nothing yet.
    pub decided: Option<ProposalDecision>,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalDecision {
    /// It is this task of the run now.
    Accepted(crate::id::TaskId),
    Rejected,
}

/// Something that an agent found besides its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedIssue {
    pub task: crate::id::TaskId,
    /// In a few words.
    pub title: String,
    pub text: String,
    /// As the agent sees it.
    pub severity: String,
    pub at: Time,
}

impl Machine {
    pub(super) fn handle_agent_statement(
        &mut self,
        t: TaskIx,
        attempt: u32,
        mark: u64,
        said: AgentStatement,
    ) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let seen = match said {
            AgentStatement::Asked { .. } => current.ask_mark,
            _ => current.mark,
        };
        if mark <= seen {
            return;
        }
        let task = self.task_id(t);
        match said {
            AgentStatement::Session { session } => {
                let named = (current.agent.clone(), session);
                if self.tasks.get(t).session.as_ref() != Some(&named) {
                    self.emit_fact(Fact::SessionSeen { task, attempt, mark, session: named.1 });
                }
            }
            AgentStatement::Usage(usage) => self.record_usage(t, attempt, mark, usage),
            AgentStatement::RateLimited { retry_after_ms, reset_at, message, retrying } => {
                let unsaid = self.settings.limits.rate_limit_wait_ms;
                let wait = retry_after_ms.or_else(|| reset_at.map(|at| at.since_ms(self.now)));
                let word = LimitStatement { wait_ms: wait.unwrap_or(unsaid), message, retrying };
                self.record_provider_limit(t, attempt, mark, LimitKind::Rate, word);
            }
            AgentStatement::QuotaExhausted { reset_at, message } => {
                let unsaid = self.settings.limits.quota_wait_ms;
                let wait = reset_at.map(|at| at.since_ms(self.now));
                // A reset that is past already was read too late, or is nonsense.
                let wait_ms = wait.filter(|wait| *wait > 0).unwrap_or(unsaid);
                let word = LimitStatement { wait_ms, message, retrying: false };
                self.record_provider_limit(t, attempt, mark, LimitKind::Quota, word);
            }
            asked @ AgentStatement::Asked { .. } => {
                self.handle_agent_question(t, attempt, mark, asked);
            }
            AgentStatement::Issue { title, text, severity } => {
                let (title, text) = (limits::clip_for_fact(&title), limits::clip_for_fact(&text));
                self.emit_fact(Fact::IssueLogged { task, attempt, mark, title, text, severity });
            }
            AgentStatement::Proposed { id, title, description, needs } => {
                let title = limits::clip_for_fact(&title);
                let proposed =
                    Fact::TaskProposed { task, attempt, mark, id, title, description, needs };
                self.emit_fact(proposed);
            }
        }
    }

    pub(super) fn record_usage(&mut self, t: TaskIx, attempt: u32, mark: u64, usage: Usage) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let (agent, chosen) = match &usage.answering {
            Some(answering) => (&answering.agent, None),
            None => (&current.agent, current.model.as_deref()),
        };
        let included = self.settings.agents.get(agent).is_some_and(|a| a.included);
        let doubtful = usage.cost_usd.filter(|usd| !money::is_plausible_cost(*usd));
        let usage = money::price_usage(usage, included, chosen, &self.settings.prices);
        let task = self.task_id(t);
        self.emit_fact(Fact::UsageReported { task, attempt, mark, usage });
        if let Some(usd) = doubtful {
            self.warn_of_implausible_cost(t, attempt, usd);
        }
        self.warn_of_budget(t);
    }

    /// People are told once per attempt that its agent names costs that are not counted.
    fn warn_of_implausible_cost(&mut self, t: TaskIx, attempt: u32, usd: f64) {
        if self.spending.note_implausible_cost(t, attempt) {
            let amount = match usd.abs() {
                far if far >= 1e9 => format!("{usd:e}"),
                _ => format!("{usd:.2}"),
            };
            let message = format!(
                "the agent reported an impossible cost of {amount} USD, which is not counted"
            );
            self.emit_fact(Fact::Noticed { task: Some(self.task_id(t)), message, lasts: false });
        }
    }

    /// People are told once when most of a budget is spent, and once when all of it is.
    fn warn_of_budget(&mut self, t: TaskIx) {
        let budget = &self.settings.budget;
        let state = self.tasks.get(t);
        let of_task = budget.per_task_usd.map(|usd| (true, state.budget_told, state.cost_usd, usd));
        let of_run = budget
            .usd
            .map(|usd| (false, self.spending.percent_told(), self.spending.spent_usd(), usd));
        let due = |(per_task, told, spent, limit): (bool, u32, f64, f64)| {
            let percent = [100, WARN_PERCENT]
                .into_iter()
                .find(|percent| *percent > told && spent >= limit * f64::from(*percent) / 100.0)?;
            Some((per_task, percent, spent, limit))
        };
        let due: Vec<_> = [of_task, of_run].into_iter().flatten().filter_map(due).collect();
        for (per_task, percent, spent_usd, limit_usd) in due {
            let task = self.task_id(t);
            self.emit_fact(Fact::BudgetReached { task, per_task, percent, spent_usd, limit_usd });
        }
    }

    /// Has this task spent all that it may?
    pub(super) fn task_budget_spent(&self, t: TaskIx) -> bool {
        let budget = &self.settings.budget;
        let spent = self.tasks.get(t).cost_usd;
        budget.hard && budget.per_task_usd.is_some_and(|usd| spent >= usd)
    }

    fn record_provider_limit(
        &mut self,
        t: TaskIx,
        attempt: u32,
        mark: u64,
        kind: LimitKind,
        word: LimitStatement,
    ) {
        let LimitStatement { wait_ms, message, retrying } = word;
        let task = self.task_id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let provider = current.provider.clone();
        let usual = self.settings.limits.rate_limit_wait_ms;
        let wait = provider::believed_wait_ms(kind, wait_ms, usual);
        let until = self.now.plus_ms(wait + provider::jitter_ms(task.as_str(), wait));
        let message = limits::clip_for_fact(&message);
        let limited =
            Fact::ProviderLimited { provider, task, attempt, mark, until, message, kind, retrying };
        self.emit_fact(limited);
    }

    fn handle_agent_question(&mut self, t: TaskIx, attempt: u32, mark: u64, said: AgentStatement) {
        // An agent that asks again without waiting gets its first answer first.
        if self.tasks.phase(t) != Phase::Working {
            return self.inbox.queue_question(t, QueuedQuestion { attempt, mark, statement: said });
        }
        let AgentStatement::Asked { text, options, default, deadline_ms, reference } = said else {
            return;
        };
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let number = current.asked + 1;
        let wanted = deadline_ms.or(self.settings.questions.deadline_ms);
        let (default, deadline) = self.question_terms(&options, default, deadline_ms);
        let (question, task) = (self.inbox.next_question_name(), self.task_id(t));
        let waits = (wanted.is_some() && deadline.is_none()).then(|| options.join(", "));
        let (text, name) = (limits::clip_for_fact(&text), question.clone());
        self.emit_fact(Fact::QuestionAsked {
            question,
            task: task.clone(),
            attempt,
            number,
            mark,
            text: text.clone(),
            options,
            default,
            deadline,
            reference,
        });
        if let Some(options) = waits {
            let message = limits::clip_for_fact(&format!(
                "{name} has no deadline, because the default is not one of the options ({options})"
            ));
            self.emit_fact(Fact::Noticed { task: Some(task), message, lasts: false });
        }
        self.reuse_earlier_answer(t, &name, &text);
    }

    /// A provider that has failed attempt after attempt is left alone for a while.
    pub(super) fn trip_provider_breaker(&mut self, t: TaskIx) {
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let outage = matches!(
            current.ending,
            Some((_, AgentClaim::Failed { fault: AgentFault::Transient, .. }))
        );
        let Some(known) = self.providers.get(&current.provider).filter(|_| outage) else { return };
        let limits = &self.settings.limits;
        if !known.is_broken(limits.breaker, self.now) {
            return;
        }
        let wait = known.breaker_wait_ms(limits.breaker_wait_ms);
        let until = self.now.plus_ms(wait + provider::jitter_ms(&current.provider, wait));
        let message = format!("{} consecutive failures", known.failures_in_row());
        let provider = current.provider.clone();
        self.emit_fact(Fact::ProviderParked { provider, kind: LimitKind::Breaker, until, message });
    }

    /// A person says go: providers that are waited for are tried again. `by_word` are only those that
    /// wait for nothing but a person.
    pub(super) fn release_providers(&mut self, by_word: bool) -> Vec<String> {
        let auto_resume = self.settings.limits.auto_resume;
        let rest = self.providers.all().iter().filter(|(_, known)| match by_word {
            false => known.standing(self.now, auto_resume) == ProviderStanding::Rests,
            true => {
                known.standing(self.now, auto_resume) == ProviderStanding::Rests
                    && known.standing(self.now, true) != ProviderStanding::Rests
            }
        });
        let names: Vec<String> = rest.map(|(name, _)| name.clone()).collect();
        for provider in &names {
            self.emit_fact(Fact::ProviderFreed { provider: provider.clone() });
        }
        names
    }
}

/// What was said of a limit.
struct LimitStatement {
    wait_ms: u64,
    message: String,
    retrying: bool,
}
