//! Reads the output of a running agent: each event becomes an input for the machine, or part of what
//! is reported when the agent ends.

use mainstem_agents::{AgentEvent, AgentOutputParser};
use mainstem_api::outlook::Progress;
use mainstem_core::attempt_policy::combine_claims;
use mainstem_core::fact::AgentClaim;
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::{AgentStatement, Input};

use crate::last_words::LastWords;

/// An agent whose output is being read.
pub(crate) struct AgentOutputReader {
    pub(crate) task: TaskIx,
    pub(crate) attempt: u32,
    pub(crate) parser: Box<dyn AgentOutputParser>,
    pub(crate) claim: AgentClaim,
    /// What the agent was last seen doing. It is never journaled, so it is gone with the engine.
    pub(crate) progress: Option<Progress>,
    pub(crate) last_words: LastWords,
}

impl AgentOutputReader {
    /// Turns an event into an input for the machine. A claim gives none: it is remembered and
    /// reported with the agent's end.
    pub(crate) fn handle_agent_event(&mut self, mark: u64, event: AgentEvent) -> Option<Input> {
        let said = match event {
            AgentEvent::Session { id } => AgentStatement::Session { session: id },
            AgentEvent::Usage(usage) => AgentStatement::Usage(usage),
            AgentEvent::RateLimited { retry_after_ms, reset_at_ms, message, retrying } => {
                if !retrying {
                    self.merge_claim(AgentClaim::RateLimited {});
                }
                let reset_at = reset_at_ms.map(Time);
                AgentStatement::RateLimited { retry_after_ms, reset_at, message, retrying }
            }
            AgentEvent::QuotaExhausted { reset_at_ms, window, message } => {
                self.merge_claim(AgentClaim::QuotaExhausted {});
                let message =
                    if window.is_empty() { message } else { format!("{window}: {message}") };
                AgentStatement::QuotaExhausted { reset_at: reset_at_ms.map(Time), message }
            }
            AgentEvent::Failed { fault, message, help } => {
                return self.merge_claim(AgentClaim::Failed { fault, message, help });
            }
            AgentEvent::Progress { text, tool } => {
                let text = mainstem_core::limits::clip_for_fact(&text);
                self.progress = Some(Progress { tool, text });
                return None;
            }
            AgentEvent::Ask { question, options, default, deadline_ms, reference } => {
                AgentStatement::Asked { text: question, options, default, deadline_ms, reference }
            }
            AgentEvent::ClaimedDone { summary, evidence } => {
                return self.merge_claim(AgentClaim::Done { summary, evidence });
            }
            AgentEvent::Issue { title, text, severity } => {
                AgentStatement::Issue { title, text, severity }
            }
            AgentEvent::ProposeTask { id, title, description, needs } => {
                AgentStatement::Proposed { id, title, description, needs }
            }
            AgentEvent::NothingToDo { reason } => {
                return self.merge_claim(AgentClaim::NothingToDo { reason });
            }
            AgentEvent::Blocked { reason } => {
                return self.merge_claim(AgentClaim::Blocked { reason });
            }
        };
        Some(Input::AgentSaid { task: self.task, attempt: self.attempt, mark, said })
    }

    /// Claims are reported with the agent's end, so that a log that is read again gives the same claim.
    fn merge_claim(&mut self, new: AgentClaim) -> Option<Input> {
        self.claim = combine_claims(std::mem::take(&mut self.claim), new);
        None
    }
}
