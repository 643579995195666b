//! The ways in which an attempt can end without landing, each with a word of its own.

use serde::{Deserialize, Serialize};

/// What kind of end an attempt had; each kind has its own budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The agent failed, or left no evidence.
    AgentFailed,
    /// A gate said no.
    GateFailed,
    /// Hygiene found something that must not land.
    InvalidOutput,
    /// The provider said to wait. Costs no retry.
    RateLimited,
    /// The provider's quota is used up. Costs no retry.
    QuotaExhausted,
    /// The provider refuses us, our request or the model: trying again would not help.
    Refused,
    /// It cannot go on without a person.
    NeedsInput,
    /// Our side or the provider's failed: no workspace, no process, no connection.
    Transient,
    TimedOut,
    /// Gone without a word: killed, or the machine went down.
    Killed,
    /// We stopped it on a person's wish. Costs no retry.
    Interrupted,
    /// The merge clashed and the work is to be redone on a fresh base.
    Conflicted,
    /// The agent says that it cannot be done.
    Blocked,
    /// Reviewers want changes. Has a budget of its own.
    ChangesNeeded,
    /// A person wants changes. Costs no retry.
    Rejected,
}

impl FailureClass {
    /// All, in the order in which they are documented.
    pub const ALL: [Self; 15] = [
        Self::AgentFailed,
        Self::GateFailed,
        Self::InvalidOutput,
        Self::RateLimited,
        Self::QuotaExhausted,
        Self::Refused,
        Self::NeedsInput,
        Self::Transient,
        Self::TimedOut,
        Self::Killed,
        Self::Interrupted,
        Self::Conflicted,
        Self::Blocked,
        Self::ChangesNeeded,
        Self::Rejected,
    ];

    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentFailed => "agent_failed",
            Self::GateFailed => "gate_failed",
            Self::InvalidOutput => "invalid_output",
            Self::RateLimited => "rate_limited",
            Self::QuotaExhausted => "quota_exhausted",
            Self::Refused => "refused",
            Self::NeedsInput => "needs_input",
            Self::Transient => "transient",
            Self::TimedOut => "timed_out",
            Self::Killed => "killed",
            Self::Interrupted => "interrupted",
            Self::Conflicted => "conflicted",
            Self::Blocked => "blocked",
            Self::ChangesNeeded => "changes_needed",
            Self::Rejected => "rejected",
        }
    }
}
