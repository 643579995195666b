//! Where one task stands, and the only function that moves it.
//!
//! Knows nothing of time, processes, git or other tasks: who may start is decided in `schedule`,
//! what lands next in `train`. docs/design/task-life.md draws the walk.

use crate::fact::Fact;

/// A task walks these in order, with exits; the words are the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Some task before it is not there yet.
    Waiting,
    /// Everything before it is there, or offered where pull requests are stacked. A function of facts only,
    /// never of files.
    Ready,
    /// An attempt is intended and journaled; its workspace may or may not exist yet.
    Preparing,
    /// The agent's process was seen alive.
    Working,
    /// The agent waits for an answer.
    Asking,
    /// The agent's tree is gone; what it left is being looked at.
    Verifying,
    /// All its own gates passed on one commit; that commit is in the train.
    Merging,
    /// On the target branch, commit recorded.
    Landed,
    /// Its work clashes with what landed before, and a person decides.
    Conflicted,
    /// No further attempt will be made by itself.
    Failed,
    /// It cannot run as things stand.
    Blocked,
    /// A person called it off.
    Cancelled,
    /// It counts as done without having been done.
    Skipped,
}

/// All phases in the contract's order.
pub const PHASES: [Phase; 13] = [
    Phase::Waiting,
    Phase::Ready,
    Phase::Preparing,
    Phase::Working,
    Phase::Asking,
    Phase::Verifying,
    Phase::Merging,
    Phase::Landed,
    Phase::Conflicted,
    Phase::Failed,
    Phase::Blocked,
    Phase::Cancelled,
    Phase::Skipped,
];

/// A fact that cannot have happened to a task in this phase.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("a task that is {} cannot have: {fact:?}", phase.as_str())]
pub struct IllegalFact {
    /// Where the task stood.
    pub phase: Phase,
    /// What is said to have happened.
    pub fact: Box<Fact>,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Preparing => "preparing",
            Self::Working => "working",
            Self::Asking => "asking",
            Self::Verifying => "verifying",
            Self::Merging => "merging",
            Self::Landed => "landed",
            Self::Conflicted => "conflicted",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// An attempt is under way: something of it may exist outside the journal.
    pub fn is_active(self) -> bool {
        matches!(
            self,
            Self::Preparing | Self::Working | Self::Asking | Self::Verifying | Self::Merging
        )
    }

    /// It goes nowhere by itself any more.
    pub fn is_over(self) -> bool {
        matches!(
            self,
            Self::Landed
                | Self::Conflicted
                | Self::Failed
                | Self::Blocked
                | Self::Cancelled
                | Self::Skipped
        )
    }

    /// It has not begun, or is free to begin again.
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Waiting | Self::Ready)
    }

    /// An agent's slot is in use.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Preparing | Self::Working)
    }

    /// Where the fact leads, if it can have happened here. Live runs and recovery both come
    /// through here, so they cannot disagree. A task that is free again is `Waiting`; whether that
    /// means `Ready` is for the graph to say.
    #[expect(clippy::use_self, reason = "one letter keeps the table readable")]
    pub fn next(self, fact: &Fact) -> Result<Self, IllegalFact> {
        use Fact as F;
        use Phase as P;
        Ok(match (self, fact) {
            (P::Ready, F::AttemptIntended { .. }) => P::Preparing,
            (P::Preparing, F::WorkspaceReady { .. } | F::BranchChosen(_)) => P::Preparing,
            (P::Preparing, F::AgentStarted { .. }) => P::Working,
            (P::Working, F::QuestionAsked { .. }) => P::Asking,
            // A question outlives the attempt that asked it, and so does the bill of whoever answers.
            (P::Asking | P::Waiting | P::Ready | P::Blocked, fact) if fact.is_answer_fact() => self,
            (P::Asking, F::AgentResumed { .. }) => P::Working,
            (P::Preparing | P::Working | P::Asking, F::AgentEnded { .. }) => P::Verifying,
            (P::Verifying, F::EvidenceCollected { .. }) => P::Verifying,
            (P::Verifying | P::Merging, F::GateRan { .. }) => self,
            (P::Verifying, fact) if fact.is_review_or_decision() => P::Verifying,
            (P::Verifying, F::TaskQueued { .. }) => P::Merging,
            (P::Verifying, F::TaskLanded { empty: true, .. }) => P::Landed,
            (
                P::Merging,
                F::CarFormed { .. } | F::LandingIntended { .. } | F::LandingRefused { .. },
            ) => P::Merging,
            (P::Merging, F::PushFailed(_) | F::CandidateHeld(_) | F::CandidateReleased(_)) => {
                P::Merging
            }
            (P::Merging, F::QuestionAsked { .. } | F::QuestionAnswered { .. }) => P::Merging,
            (P::Merging, fact) if fact.is_about_pull_request() => P::Merging,
            (P::Waiting | P::Ready, F::PullStacked(_)) => self,
            (P::Merging, F::CarConflicted { .. } | F::CarEvicted { .. }) => P::Verifying,
            (P::Preparing | P::Verifying | P::Merging, F::TaskLanded { empty: false, .. }) => {
                P::Landed
            }
            (
                P::Preparing | P::Working | P::Asking | P::Verifying | P::Merging,
                F::StopRequested { .. },
            ) => self,
            (P::Preparing | P::Verifying, F::AttemptFailed { .. }) => P::Waiting,
            (P::Waiting | P::Ready, F::TaskFailed { .. }) => P::Failed,
            (P::Waiting | P::Ready, F::TaskConflicted { .. }) => P::Conflicted,
            (P::Waiting | P::Ready, F::TaskBlocked { .. }) => P::Blocked,
            (P::Blocked, F::TaskBlocked { .. }) => P::Blocked,
            (P::Blocked, F::TaskUnblocked { .. }) => P::Waiting,
            (
                P::Waiting | P::Ready | P::Failed | P::Conflicted | P::Blocked,
                F::TaskCancelled { .. },
            ) => P::Cancelled,
            (
                P::Waiting | P::Ready | P::Failed | P::Conflicted | P::Blocked | P::Cancelled,
                F::TaskSkipped { .. },
            ) => P::Skipped,
            (_, F::TaskRetried { .. }) if !self.is_active() && self != P::Landed => P::Waiting,
            (P::Landed, F::LandingUndone { .. }) => P::Cancelled,
            // Told of a task, without moving it.
            (
                P::Preparing | P::Working | P::Asking,
                F::UsageReported { .. }
                | F::SessionSeen { .. }
                | F::ProviderLimited { .. }
                | F::BudgetReached { .. }
                | F::IssueLogged { .. }
                | F::TaskProposed { .. },
            ) => self,
            (P::Failed | P::Conflicted | P::Blocked, F::RunDraining { .. }) => self,
            (P::Merging | P::Landed, F::CheckoutFollowed { .. }) => self,
            // A workspace that an attempt uses is never removed.
            (_, F::WorkspaceRemoved { .. }) if !self.is_active() => self,
            (_, F::SnapshotTaken { .. } | F::Noticed { .. }) => self,
            _ => return Err(IllegalFact { phase: self, fact: Box::new(fact.clone()) }),
        })
    }
}
