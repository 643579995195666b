//! What a draft is told, what it wants done, and what a life of it came to.

use mainstem_core::fact::{AgentClaim, AgentEnding, LimitKind, Usage};
use mainstem_core::id::Time;

use super::answer_check::DraftAnswer;
use super::fact::DraftPart;
use crate::schema::AnswerProblem;

/// What an agent said on the way that counts.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftAgentWord {
    Usage(Usage),
    /// The provider says to wait.
    RateLimited {
        /// How long, if it said so.
        wait_ms: Option<u64>,
        message: String,
        /// The agent waits by itself.
        retrying: bool,
    },
    /// The quota is used up.
    QuotaExhausted {
        /// How long, if it said so.
        wait_ms: Option<u64>,
        message: String,
    },
}

/// A limit of a provider that somebody else met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftRateLimit {
    pub provider: String,
    pub kind: LimitKind,
    pub until: Time,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum DraftInput {
    /// A new life of the program: what failed before is tried again. Nobody is asked before limits that
    /// others have met are known.
    Begin(Vec<DraftRateLimit>),
    /// An agent said something.
    Said {
        part: DraftPart,
        call: u32,
        /// Place in its output.
        mark: u64,
        word: DraftAgentWord,
    },
    Ended {
        part: DraftPart,
        call: u32,
        /// How its process ended.
        ending: AgentEnding,
        /// What it claimed last.
        claim: AgentClaim,
        /// Its answer, or everything that is wrong with it.
        answer: Result<DraftAnswer, Vec<AnswerProblem>>,
    },
    /// Somebody else found a provider's limit.
    Park(DraftRateLimit),
    /// Stop: first in good order, then at once.
    Interrupt,
    /// A plan was written.
    Written {
        path: String,
        /// Hash of its bytes.
        hash: String,
        tasks: usize,
    },
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftEffect {
    /// Start this call, or find it running or ended.
    Call {
        part: DraftPart,
        call: u32,
    },
    Stop {
        part: DraftPart,
        call: u32,
        now: bool,
    },
}

/// What a life came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftOutcome {
    /// Every part is answered.
    Done,
    /// Some parts are given up.
    Partial,
    /// It was interrupted; the rest can be done later.
    Interrupted,
    /// Only a person can end the wait for a provider.
    Parked,
}
