//! What is to be done in the world. Data only; every effect may be performed twice, because after
//! a crash all outstanding ones are asked for again.

use crate::fact::Class;
use crate::id::{Oid, TaskIx, Time};
use crate::pull::Deed;

/// Something to do. Results come back as [`crate::machine::Input`]s.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Make the workspace of this attempt, from the target branch's current commit.
    PrepareWorkspace {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// Commits that the base must contain: landings of what it needs.
        must_contain: Vec<Oid>,
        /// Go on from here instead: what an open pull request of the task offers.
        from: Option<Oid>,
    },
    /// Start the agent, or find it still running or ended, and report all it says.
    RunAgent {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
    },
    /// End the agent's whole process tree.
    StopAgent {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// Without asking it first.
        now: bool,
    },
    /// Hand an answer to the agent.
    DeliverAnswer {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// Which question of that attempt.
        number: u32,
        /// Its name in the inbox.
        question: String,
        /// The answer.
        text: String,
        /// The asker's own name for the question.
        reference: Option<String>,
    },
    /// Ask the answering agent a question.
    Consult {
        /// Whose question.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// Which question of that attempt.
        number: u32,
        /// Its name in the inbox.
        question: String,
    },
    /// Commit leftovers, take a snapshot, and say what there is.
    CollectEvidence {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// Where it started; none if its workspace never stood.
        base: Option<Oid>,
    },
    /// Put a running attempt's work on a hidden ref.
    TakeSnapshot {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
    },
    /// Run the task's gates in its workspace.
    RunGates {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// The commit they judge.
        tip: Oid,
    },
    /// End setup commands or gates of this attempt.
    StopJobs {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
    },
    /// Merge the car onto the head of the line, in memory.
    FormCar {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// What is merged.
        tip: Oid,
        /// Where the attempt started.
        base: Oid,
        /// Date of the commit, so that forming it again gives the same commit.
        date: Time,
    },
    /// Run the train's gates on exactly this commit.
    VerifyCar {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// The merge.
        commit: Oid,
        /// Its tree.
        tree: Oid,
    },
    /// Move the target branch, compare-and-swap.
    Land {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// From here.
        old: Oid,
        /// To here.
        new: Oid,
        /// Whose tree must be this.
        tree: Oid,
    },
    /// Bring a pull request on.
    Pull {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// How.
        deed: Deed,
    },
    /// Remove a workspace and its branch, after a last snapshot.
    RemoveWorkspace {
        /// Whose.
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
    pub fn whose(&self) -> (TaskIx, u32) {
        match self {
            Self::PrepareWorkspace { task, attempt, .. }
            | Self::RunAgent { task, attempt }
            | Self::StopAgent { task, attempt, .. }
            | Self::DeliverAnswer { task, attempt, .. }
            | Self::Consult { task, attempt, .. }
            | Self::CollectEvidence { task, attempt, .. }
            | Self::TakeSnapshot { task, attempt }
            | Self::RunGates { task, attempt, .. }
            | Self::StopJobs { task, attempt }
            | Self::FormCar { task, attempt, .. }
            | Self::VerifyCar { task, attempt, .. }
            | Self::Land { task, attempt, .. }
            | Self::Pull { task, attempt, .. }
            | Self::RemoveWorkspace { task, attempt, .. } => (*task, *attempt),
        }
    }
}

/// Why the attempt before this one did not lead on; for the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct LastFailure {
    /// Which attempt.
    pub attempt: u32,
    /// What kind of end.
    pub class: Class,
    /// In words.
    pub reason: String,
    /// The end of a gate's output.
    pub gate_output: String,
    /// Files that clashed.
    pub files: Vec<String>,
}
