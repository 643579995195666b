//! What is to be done in the world. Data only; every effect may be performed twice, because after
//! a crash all outstanding ones are asked for again.

use crate::attempt_work::WorkspaceContinuation;
use crate::fact::FailureClass;
use crate::id::{Oid, TaskIx, Time};
use crate::pull_request::ForgeAction;
use crate::train::batches::BatchPurpose;

/// Something to do. Results come back as [`crate::machine::Input`]s.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Make the workspace of this attempt, from the target branch's current commit.
    PrepareWorkspace {
        task: TaskIx,
        attempt: u32,
        /// Commits that the base must contain: landings of what it needs.
        must_contain: Vec<Oid>,
        /// Go on from here instead: what an open pull request of the task offers.
        from: Option<Oid>,
        /// Lay the merge of this out in it, not committed, as far as it goes.
        merge: Option<Oid>,
        /// Start from what an earlier attempt left.
        continues: Option<WorkspaceContinuation>,
    },
    /// Start the agent, or find it still running or ended, and report all it says.
    RunAgent { task: TaskIx, attempt: u32 },
    /// End the agent's whole process tree.
    StopAgent {
        task: TaskIx,
        attempt: u32,
        /// Without asking it first.
        now: bool,
    },
    /// Hand an answer to the agent.
    DeliverAnswer {
        task: TaskIx,
        attempt: u32,
        /// Which question of that attempt.
        number: u32,
        /// Its name in the inbox.
        question: String,
        text: String,
        /// The asker's own name for the question.
        reference: Option<String>,
    },
    /// Ask the answering agent a question.
    ConsultAgent {
        task: TaskIx,
        attempt: u32,
        /// Which question of that attempt.
        number: u32,
        /// Its name in the inbox.
        question: String,
    },
    /// Commit leftovers, take a snapshot, and say what there is.
    CollectEvidence {
        task: TaskIx,
        attempt: u32,
        /// Where it started; none if its workspace never stood.
        base: Option<Oid>,
    },
    /// Put a running attempt's work on a hidden ref.
    TakeSnapshot { task: TaskIx, attempt: u32 },
    /// Run the task's gates in its workspace.
    RunGates {
        task: TaskIx,
        attempt: u32,
        /// The commit they judge.
        tip: Oid,
    },
    /// Ask a reviewer about exactly this commit, in a checkout of its own.
    Review {
        task: TaskIx,
        attempt: u32,
        base: Oid,
        tip: Oid,
        tree: Oid,
        /// Which review of the task.
        cycle: u32,
        /// How often this reviewer was told to wait in it.
        asked: u32,
        reviewer: String,
        /// Where: reviewers look side by side.
        lane: u32,
    },
    /// End setup commands or gates of this attempt.
    StopJobs { task: TaskIx, attempt: u32 },
    /// Merge these cars, one onto the other, onto the target branch, in memory. Without cars: say
    /// where the target branch stands.
    MergeBatch {
        /// Whose car comes last, or is suspected.
        task: TaskIx,
        attempt: u32,
        purpose: BatchPurpose,
        /// The cars, in order.
        candidates: Vec<CandidateToMerge>,
    },
    /// Run the train's gates on exactly this commit.
    VerifyBatch {
        /// Whose car comes last in it, or is suspected.
        task: TaskIx,
        attempt: u32,
        /// The merge, or the target branch's commit.
        commit: Oid,
        tree: Oid,
        /// Where: lanes run side by side.
        lane: u32,
        /// It is the target branch itself.
        base: bool,
    },
    /// Verify the target branch again as it was at this commit, in a clean checkout without build caches.
    RecheckTarget {
        /// Whose work landed with it.
        task: TaskIx,
        attempt: u32,
        commit: Oid,
        tree: Oid,
        lane: u32,
    },
    /// Nobody needs what is being verified in this lane any more.
    StopLane {
        /// Whom it was for.
        task: TaskIx,
        attempt: u32,
        lane: u32,
    },
    /// Move the target branch, compare-and-swap.
    Land {
        /// Whose car comes last.
        task: TaskIx,
        attempt: u32,
        old: Oid,
        new: Oid,
        /// Whose tree must be this.
        tree: Oid,
        /// All cars that land with it, in order.
        candidates: Vec<CandidateToLand>,
    },
    /// Look whether the user's files are still in the way of work that is held because of them.
    InspectCheckout { task: TaskIx, attempt: u32, base: Oid, tip: Oid },
    /// Bring a pull request on.
    RunForgeAction { task: TaskIx, attempt: u32, action: ForgeAction },
    /// Remove a workspace and its branch, after a last snapshot.
    RemoveWorkspace {
        task: TaskIx,
        /// Which attempt used it last.
        attempt: u32,
        /// Leave the branch for a person.
        keep_branch: bool,
        /// The work is on the target branch.
        landed: bool,
    },
}

impl Effect {
    /// Whose attempt it is for.
    pub fn attempt_key(&self) -> (TaskIx, u32) {
        match self {
            Self::PrepareWorkspace { task, attempt, .. }
            | Self::RunAgent { task, attempt }
            | Self::StopAgent { task, attempt, .. }
            | Self::DeliverAnswer { task, attempt, .. }
            | Self::ConsultAgent { task, attempt, .. }
            | Self::CollectEvidence { task, attempt, .. }
            | Self::TakeSnapshot { task, attempt }
            | Self::RunGates { task, attempt, .. }
            | Self::Review { task, attempt, .. }
            | Self::StopJobs { task, attempt }
            | Self::MergeBatch { task, attempt, .. }
            | Self::StopLane { task, attempt, .. }
            | Self::VerifyBatch { task, attempt, .. }
            | Self::RecheckTarget { task, attempt, .. }
            | Self::Land { task, attempt, .. }
            | Self::InspectCheckout { task, attempt, .. }
            | Self::RunForgeAction { task, attempt, .. }
            | Self::RemoveWorkspace { task, attempt, .. } => (*task, *attempt),
        }
    }
}

/// A car in a line that is to be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateToMerge {
    pub queue_number: u64,
    pub task: TaskIx,
    pub attempt: u32,
    pub tip: Oid,
    /// Where the attempt started.
    pub base: Oid,
    /// Date of the commit, so that forming it again gives the same commit.
    pub date: Time,
    /// Look whether the branch has it already: a journal that lost its end does not know.
    pub check_landed: bool,
}

/// A car that lands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateToLand {
    pub task: TaskIx,
    pub attempt: u32,
    /// What it was merged onto.
    pub onto: Oid,
    pub commit: Oid,
    /// It settles a clash: how that was done is worth remembering.
    pub resolved: Option<ConflictResolution>,
}

/// Work that settles a clash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictResolution {
    pub base: Oid,
    /// The earlier work that clashed with that.
    pub work: Oid,
    /// What it made of both.
    pub tip: Oid,
}

/// Why the attempt before this one did not lead on; for the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    pub attempt: u32,
    /// What kind of end.
    pub class: FailureClass,
    pub reason: String,
    /// The end of a gate's output.
    pub gate_output: String,
    pub files: Vec<String>,
}
