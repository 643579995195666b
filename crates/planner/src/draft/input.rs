//! What a draft is told, what it wants done, and what a life of it came to.

use mainstem_core::fact::{AgentClaim, AgentEnding, LimitKind, Usage};
use mainstem_core::id::Time;

use super::answer_check::DraftAnswer;
use super::fact::DraftPart;
use crate::schema::AnswerProblem;

/// What an agent said on the way that counts.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftAgentWord {
    /// Tokens and money.
    Usage(Usage),
    /// The provider says to wait.
    RateLimited {
        /// How long, if it said so.
        wait_ms: Option<u64>,
        /// In its words.
        message: String,
        /// The agent waits by itself.
        retrying: bool,
    },
    /// The quota is used up.
    QuotaExhausted {
        /// How long, if it said so.
        wait_ms: Option<u64>,
        /// In its words.
        message: String,
    },
}

/// A limit of a provider that somebody else met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftRateLimit {
    /// Whose quota.
    pub provider: String,
    /// What kind.
    pub kind: LimitKind,
    /// Until when.
    pub until: Time,
    /// In words.
    pub message: String,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftInput {
    /// A new life of the program: what failed before is tried again. Nobody is asked before limits that
    /// others have met are known.
    Begin(Vec<DraftRateLimit>),
    /// An agent said something.
    Said {
        /// For which part.
        part: DraftPart,
        /// In which call.
        call: u32,
        /// Place in its output.
        mark: u64,
        /// What.
        word: DraftAgentWord,
    },
    /// A call ended.
    Ended {
        /// For which part.
        part: DraftPart,
        /// Which call.
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
        /// Where.
        path: String,
        /// Hash of its bytes.
        hash: String,
        /// How many tasks.
        tasks: usize,
    },
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftEffect {
    /// Start this call, or find it running or ended.
    Call {
        /// For which part.
        part: DraftPart,
        /// Which call.
        call: u32,
    },
    /// End this call.
    Stop {
        /// For which part.
        part: DraftPart,
        /// Which call.
        call: u32,
        /// At once.
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
