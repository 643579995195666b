//! What happened: the only thing that is written down, and all that recovery has to go by.
//!
//! Knows nothing of why a fact was decided or how it is stored. Tasks are named by their ids, so a
//! journal can be read without its plan. Adding a field needs a `serde(default)`; changing or
//! removing one needs a new schema version of the journal.

use serde::{Deserialize, Serialize};

use crate::attempt_work::{AttemptWork, ContinuedWork};
pub use crate::evidence::{BranchChoiceFact, Evidence};
pub use crate::failure_cause::GateFailureCause;
pub use crate::failure_class::FailureClass;
use crate::id::{Oid, TaskId, Time};
pub use crate::money::{AnsweringAgent, CostBasis, Usage};
use crate::plan::Plan;
use crate::train::batches::ReusedResolution;
pub use crate::verdict::{GateScope, GateVerdict};
use crate::{hold, publish, pull_request, recheck, review};

/// Something that happened. Serialised into the journal and printed by `history --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    // ---- the run -------------------------------------------------------------------------
    /// A run began on a target branch.
    RunStarted {
        /// Where work will land.
        target: String,
        /// The branch's commit at that moment.
        base: Oid,
        /// The branch that the work is brought over to later, if it lands on one of the run's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bring_to: Option<String>,
    },
    /// A plan, or its next revision, became what the run works off.
    PlanAdopted {
        /// 1 for the first.
        revision: u32,
        /// Hash of the plan as adopted.
        hash: String,
        plan: Box<Plan>,
        /// Tasks of the last revision that this one no longer has.
        #[serde(default)]
        dropped: Vec<TaskId>,
        /// The file that it was read from; none if it was not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
    },
    /// An engine took the run over.
    EngineStarted {
        /// Grows with every take-over; writes of older ones are refused.
        epoch: u64,
        pid: u32,
        host: String,
        version: String,
        /// Agents at once, as it was started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        jobs: Option<u32>,
    },
    /// That engine ended in good order.
    EngineStopped {
        why: StopReason,
    },
    /// No attempt starts until further notice.
    RunPaused {},
    /// Attempts may start again.
    RunResumed {},
    /// Nothing new starts because a task failed and the settings ask for that.
    RunDraining {
        task: TaskId,
        /// Running attempts are stopped as well.
        abort: bool,
    },
    /// A person called the whole run off.
    RunCancelled {},
    /// Agents at once, changed while running.
    JobsChanged {
        jobs: u32,
    },

    // ---- an attempt ----------------------------------------------------------------------
    /// An attempt is about to be made; nothing of it exists yet.
    AttemptIntended {
        task: TaskId,
        attempt: u32,
        agent: String,
        /// Whose quota that uses.
        provider: String,
        /// Which model, if one was chosen.
        #[serde(default)]
        model: Option<String>,
        /// The branch it works on.
        branch: String,
        /// Money set aside for it.
        #[serde(default)]
        reserved_usd: f64,
        /// Why this model, if it was chosen by rule.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model_reason: String,
        /// The session of an earlier attempt that it takes up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The work of an earlier attempt that it starts from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<AttemptWork>,
        /// It starts over on purpose: earlier work stays on its snapshots.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh: bool,
    },
    /// Its workspace stands, at the base commit.
    WorkspaceReady {
        task: TaskId,
        attempt: u32,
        workspace: String,
        /// The commit that its work counts from.
        base: Oid,
        /// What it holds of earlier work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continued: Option<ContinuedWork>,
    },
    /// The branch that was intended is somebody else's; the attempt works on another one.
    BranchChosen(BranchChoiceFact),
    /// The agent's process was seen alive.
    AgentStarted {
        task: TaskId,
        attempt: u32,
        pid: u32,
    },
    /// The agent reported tokens and money.
    UsageReported {
        task: TaskId,
        attempt: u32,
        /// Place in the output, so that a second reading counts nothing twice.
        mark: u64,
        /// How much of what.
        #[serde(flatten)]
        usage: Usage,
    },
    /// The agent named the session it works in, so that a later attempt can take it up.
    SessionSeen {
        task: TaskId,
        attempt: u32,
        /// Place in the output.
        mark: u64,
        /// The agent's own name for it.
        session: String,
    },
    /// A provider told an agent to wait.
    ProviderLimited {
        provider: String,
        task: TaskId,
        attempt: u32,
        /// Place in the output.
        mark: u64,
        /// No attempt of this provider starts before.
        until: Time,
        /// What the agent said.
        #[serde(default)]
        message: String,
        /// What kind of limit.
        #[serde(default)]
        kind: LimitKind,
        /// The agent waits by itself and goes on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retrying: bool,
    },
    /// A provider is left alone for another reason than an agent's word.
    ProviderParked {
        provider: String,
        /// What kind of wait.
        kind: LimitKind,
        /// No attempt of this provider starts before.
        until: Time,
        #[serde(default)]
        message: String,
    },
    /// A person lets a provider be used again.
    ProviderFreed {
        provider: String,
    },
    /// Spending passed a mark of a budget; said once per mark.
    BudgetReached {
        task: TaskId,
        /// It is the budget of that task alone, not of the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        per_task: bool,
        /// Percent of the budget.
        percent: u32,
        spent_usd: f64,
        limit_usd: f64,
    },
    /// An agent found something that is not part of its task.
    IssueLogged {
        task: TaskId,
        attempt: u32,
        /// Place in the output.
        mark: u64,
        /// In a few words.
        title: String,
        #[serde(default)]
        text: String,
        /// As the agent sees it.
        #[serde(default)]
        severity: String,
    },
    /// An agent proposes a further task. Nothing comes of it before somebody accepts it.
    TaskProposed {
        task: TaskId,
        attempt: u32,
        /// Place in the output.
        mark: u64,
        /// Its id, if the agent named one.
        #[serde(default)]
        id: Option<String>,
        /// In a few words.
        title: String,
        #[serde(default)]
        description: String,
        /// What it would need.
        #[serde(default)]
        needs: Vec<String>,
    },
    /// A person decided on a proposed task.
    ProposalDecided {
        /// Its name: P and its number among the run's proposals.
        proposal: String,
        /// The task it becomes; none if it was rejected.
        becomes: Option<TaskId>,
    },
    /// An agent asked and waits.
    QuestionAsked {
        /// Its name in the inbox.
        question: String,
        task: TaskId,
        attempt: u32,
        /// Which question of that attempt, from 1.
        number: u32,
        /// Place in the output.
        mark: u64,
        text: String,
        #[serde(default)]
        options: Vec<String>,
        /// Taken when the deadline passes.
        default: Option<String>,
        #[serde(default)]
        deadline: Option<Time>,
        /// The asker's own name for it: the answer goes to whoever asked with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    QuestionAnswered {
        /// Its name in the inbox.
        question: String,
        task: TaskId,
        attempt: u32,
        text: String,
        /// `person`, `policy`, `deadline`, or `agent` and its name.
        by: String,
    },
    /// The answer may go to the agent: it has a slot again.
    AgentResumed {
        task: TaskId,
        attempt: u32,
        /// Which question was answered.
        question: String,
    },
    /// The attempt is to end, and what becomes of its task then.
    StopRequested {
        task: TaskId,
        attempt: u32,
        /// What becomes of the task.
        then: StopFollowUp,
        reason: String,
    },
    /// The agent's whole process tree is gone.
    AgentEnded {
        task: TaskId,
        attempt: u32,
        ending: AgentEnding,
        /// What it claimed in its output.
        #[serde(default)]
        claim: AgentClaim,
    },
    /// Work was put on a hidden ref.
    SnapshotTaken {
        task: TaskId,
        attempt: u32,
        refname: String,
        /// The commit it points to.
        commit: Oid,
        /// Why it was taken.
        why: String,
    },
    /// What the attempt left behind, looked at by us.
    EvidenceCollected {
        task: TaskId,
        attempt: u32,
        evidence: Evidence,
    },
    /// One gate gave its verdict.
    GateRan {
        task: TaskId,
        attempt: u32,
        /// `task` in the workspace, `train` on the merged tree, `base` on the target branch.
        scope: GateScope,
        /// The command or check.
        gate: String,
        verdict: GateVerdict,
        /// The tree it looked at.
        tree: Oid,
        /// How long it took.
        duration_ms: u64,
        /// Where its output is, relative to the state folder.
        #[serde(default)]
        log: Option<String>,
        /// The end of its output, or why it could not run.
        #[serde(default)]
        detail: String,
        /// The verdict was known for this very tree and command.
        #[serde(default)]
        cached: bool,
        /// Other tasks whose work it looked at together with this one's, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<TaskId>,
        /// The tools it ran with: a verdict holds only for the same.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        tools: String,
        /// It failed so often before it passed.
        #[serde(default, skip_serializing_if = "is_none")]
        flakes: u32,
        /// Its exit code, if it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Why it did not pass.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<GateFailureCause>,
    },
    /// All gates of the attempt passed: it waits in the train.
    #[serde(alias = "task_boarded")]
    TaskQueued {
        task: TaskId,
        attempt: u32,
        /// What will be merged.
        tip: Oid,
    },
    /// All gates passed on the target branch itself, before any attempt of this life started.
    TargetVerified {
        commit: Oid,
        tree: Oid,
        /// The commands that passed.
        gates: Vec<String>,
        /// The tools they ran with: a verdict holds only for the same.
        tools: String,
        /// How long it took, setup included.
        duration_ms: u64,
        /// The verdict was known for this very tree, with the same commands, settings and tools.
        #[serde(default)]
        cached: bool,
    },
    /// The target branch was verified again, in a clean checkout without build caches.
    TargetRechecked(recheck::TargetRecheckFact),
    /// The attempt did not lead on; the task is free for another one.
    AttemptFailed {
        task: TaskId,
        attempt: u32,
        /// What kind of end.
        class: FailureClass,
        reason: String,
        #[serde(default)]
        retry_at: Option<Time>,
        /// The command that helps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        help: Option<String>,
    },

    // ---- what others say -----------------------------------------------------------------
    ReviewStarted(review::ReviewStartFact),
    /// One reviewer is through, or was told to wait.
    ReviewerEnded(review::ReviewReportFact),
    /// What reviewers said, as one.
    ReviewEnded(review::ReviewEndFact),

    // ---- the train -----------------------------------------------------------------------
    /// A merge of the car exists, in no branch yet.
    CarFormed {
        task: TaskId,
        attempt: u32,
        /// The target branch's commit it was merged onto, or the merge of a car before it.
        onto: Oid,
        commit: Oid,
        tree: Oid,
        /// Conflicts in it that were resolved as they had been before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reused: Vec<ReusedResolution>,
    },
    /// It does not merge with what landed before.
    CarConflicted {
        task: TaskId,
        attempt: u32,
        /// The target branch's commit it was merged onto.
        onto: Oid,
        /// The files that clash.
        files: Vec<String>,
    },
    /// It left the train without landing.
    CarEvicted {
        task: TaskId,
        attempt: u32,
        reason: String,
    },
    /// It stays in the train and does not land for now; others pass.
    CandidateHeld(hold::HoldFact),
    /// One reason for which it was held is over.
    CandidateReleased(hold::HoldReleaseFact),
    /// The target branch is about to move, from exactly here to exactly there.
    LandingIntended {
        task: TaskId,
        attempt: u32,
        /// The branch's commit now.
        old: Oid,
        new: Oid,
        tree: Oid,
    },
    /// Somebody else moved the branch first; the car is formed again.
    LandingRefused {
        task: TaskId,
        attempt: u32,
        expected: Oid,
        #[serde(default)]
        found: Option<Oid>,
    },
    /// The work is on the target branch.
    TaskLanded {
        task: TaskId,
        attempt: u32,
        /// The commit on the target branch.
        commit: Oid,
        /// The branch's commit before.
        old: Oid,
        /// There was nothing to do, so nothing moved.
        #[serde(default)]
        empty: bool,
    },
    /// The user's checkout of the target branch, after a landing.
    CheckoutFollowed {
        task: TaskId,
        /// It was brought along.
        moved: bool,
        #[serde(default)]
        why: String,
    },
    /// A landing was taken back.
    LandingUndone {
        task: TaskId,
        commit: Oid,
        /// The target branch's commit before.
        old: Oid,
        /// The target branch's commit now.
        new: Oid,
    },
    /// What lands does not get through to the remote that it is pushed to.
    PushFailed(publish::PushTrouble),

    // ---- pull requests -------------------------------------------------------------------
    /// A branch on the remote is about to move.
    PushIntended(pull_request::PullRequestPush),
    /// A pull request was found or made.
    PullOpened(pull_request::PullOpenedFact),
    /// How a pull request stands, when that changed.
    PullSeen(pull_request::PullSeenFact),
    /// A pull request is about to be merged.
    MergeIntended(pull_request::MergeIntentFact),
    /// Its agent goes on with a pull request.
    PullReworked(pull_request::PullReworkFact),
    /// A pull request was closed without being merged.
    PullClosed(pull_request::PullClosedFact),
    /// Work builds on a pull request that is not merged yet, or no longer does.
    PullStacked(pull_request::PullStackedFact),

    // ---- the task ------------------------------------------------------------------------
    /// No further attempt will be made by itself.
    TaskFailed {
        task: TaskId,
        /// What kind of end the last attempt had.
        class: FailureClass,
        reason: String,
    },
    /// Its work clashes with what landed; a person decides.
    TaskConflicted {
        task: TaskId,
        /// The files that clash.
        files: Vec<String>,
    },
    /// It can never run as things stand, or its agent says that it cannot.
    TaskBlocked {
        task: TaskId,
        /// From this task to the one that blocks it; empty if the agent said so.
        #[serde(default)]
        chain: Vec<TaskId>,
        reason: String,
    },
    /// What blocked it no longer does.
    TaskUnblocked {
        task: TaskId,
    },
    /// A person called it off.
    TaskCancelled {
        task: TaskId,
        reason: String,
    },
    /// It counts as done without having been done.
    TaskSkipped {
        task: TaskId,
        reason: String,
    },
    /// A person wants it tried again.
    TaskRetried {
        task: TaskId,
        /// What the person says about it; stands in the prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// Who is to work on it instead of its own agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// From the beginning: earlier work stays on its snapshots.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh: bool,
    },
    /// A workspace is gone; what was in it is landed or on a snapshot.
    WorkspaceRemoved {
        task: TaskId,
        /// Which attempt used it last.
        attempt: u32,
        workspace: String,
    },
    /// Refs of ours are about to be removed. Written before it happens, with the values that bring
    /// them back.
    RefsRemoved {
        /// Each ref with the commit it was on.
        refs: Vec<RefValue>,
        why: String,
    },
    /// Something people should know that changes nothing.
    Noticed {
        /// About which task, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        message: String,
        /// It is so until something else is said of the same task, or of the run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lasts: bool,
    },
}

impl Fact {
    /// The task it is about.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            Self::RunStarted { .. }
            | Self::PlanAdopted { .. }
            | Self::EngineStarted { .. }
            | Self::EngineStopped { .. }
            | Self::RunPaused {}
            | Self::RunResumed {}
            | Self::RunCancelled {}
            | Self::JobsChanged { .. }
            | Self::ProviderParked { .. }
            | Self::ProviderFreed { .. }
            | Self::ProposalDecided { .. }
            | Self::TargetVerified { .. }
            | Self::TargetRechecked(_)
            | Self::RefsRemoved { .. } => None,
            Self::Noticed { task, .. } => task.as_ref(),
            Self::PushIntended(pull_request::PullRequestPush { task, .. })
            | Self::PullOpened(pull_request::PullOpenedFact { task, .. })
            | Self::PullSeen(pull_request::PullSeenFact { task, .. })
            | Self::MergeIntended(pull_request::MergeIntentFact { task, .. })
            | Self::PullReworked(pull_request::PullReworkFact { task, .. })
            | Self::PullClosed(pull_request::PullClosedFact { task, .. })
            | Self::PullStacked(pull_request::PullStackedFact { task, .. })
            | Self::ReviewStarted(review::ReviewStartFact { task, .. })
            | Self::ReviewerEnded(review::ReviewReportFact { task, .. })
            | Self::ReviewEnded(review::ReviewEndFact { task, .. })
            | Self::CandidateHeld(hold::HoldFact { task, .. })
            | Self::CandidateReleased(hold::HoldReleaseFact { task, .. })
            | Self::PushFailed(publish::PushTrouble { task, .. }) => Some(task),
            Self::RunDraining { task, .. }
            | Self::AttemptIntended { task, .. }
            | Self::WorkspaceReady { task, .. }
            | Self::BranchChosen(BranchChoiceFact { task, .. })
            | Self::AgentStarted { task, .. }
            | Self::UsageReported { task, .. }
            | Self::SessionSeen { task, .. }
            | Self::ProviderLimited { task, .. }
            | Self::BudgetReached { task, .. }
            | Self::IssueLogged { task, .. }
            | Self::TaskProposed { task, .. }
            | Self::QuestionAsked { task, .. }
            | Self::QuestionAnswered { task, .. }
            | Self::AgentResumed { task, .. }
            | Self::StopRequested { task, .. }
            | Self::AgentEnded { task, .. }
            | Self::SnapshotTaken { task, .. }
            | Self::EvidenceCollected { task, .. }
            | Self::GateRan { task, .. }
            | Self::TaskQueued { task, .. }
            | Self::AttemptFailed { task, .. }
            | Self::CarFormed { task, .. }
            | Self::CarConflicted { task, .. }
            | Self::CarEvicted { task, .. }
            | Self::LandingIntended { task, .. }
            | Self::LandingRefused { task, .. }
            | Self::TaskLanded { task, .. }
            | Self::CheckoutFollowed { task, .. }
            | Self::LandingUndone { task, .. }
            | Self::TaskFailed { task, .. }
            | Self::TaskConflicted { task, .. }
            | Self::TaskBlocked { task, .. }
            | Self::TaskUnblocked { task }
            | Self::TaskCancelled { task, .. }
            | Self::TaskSkipped { task, .. }
            | Self::TaskRetried { task, .. }
            | Self::WorkspaceRemoved { task, .. } => Some(task),
        }
    }
}

/// A ref and where it pointed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefValue {
    pub refname: String,
    pub commit: Oid,
}

/// How an engine's life ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Nothing was left to do.
    Rested,
    /// A signal, or `stop` on the control socket.
    Interrupted,
}

/// What becomes of a task whose attempt was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopFollowUp {
    /// It is free for another attempt.
    Requeue,
    /// It is called off.
    Cancel,
    /// It counts as done.
    Skip,
}

/// How an agent's process ended, as its supervisor recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum AgentEnding {
    Exited {
        code: i32,
    },
    /// By a signal that was not ours.
    Signalled {
        signal: i32,
    },
    /// It took too long.
    TimedOut {
        /// It had gone silent, rather than run out of time.
        idle: bool,
    },
    /// It used more memory than it may.
    OutOfMemory {
        /// The limit in bytes.
        limit: u64,
    },
    /// We asked it to.
    Stopped {},
    NotStarted {
        why: String,
        /// It cannot run as things are set up: another try would end in the same way.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        permanent: bool,
    },
    /// Its supervisor is gone without a record: killed, or the machine went down.
    Vanished {},
}

/// What an agent claimed in its output. A claim is not evidence, except that "nothing to do"
/// excuses the lack of any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "claim", rename_all = "snake_case")]
pub enum AgentClaim {
    #[default]
    None,
    /// There was nothing to do.
    NothingToDo { reason: String },
    /// It cannot be done.
    Blocked { reason: String },
    /// The provider said to wait.
    RateLimited {},
    /// The provider's quota is used up.
    QuotaExhausted {},
    /// The provider, or the agent's program, gave up.
    Failed {
        fault: AgentFault,
        #[serde(default)]
        message: String,
        /// The command that helps.
        #[serde(default)]
        help: Option<String>,
    },
    /// The agent says that it is done. Its word, not a verdict.
    Done {
        #[serde(default)]
        summary: String,
        /// What it offers as proof.
        #[serde(default)]
        evidence: Vec<String>,
    },
}

/// In which way a provider or an agent's program gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentFault {
    /// Not logged in, or not allowed.
    Auth,
    /// Overloaded, unreachable, connection lost.
    Transient,
    /// The provider refuses the request as it is.
    Request,
    /// The conversation does not fit the model any more.
    Context,
    /// There is no such model, or not for us.
    Model,
    /// As many turns as it may take.
    MaxTurns,
    /// The agent's own budget is spent.
    Budget,
    /// It makes no progress.
    Stalled,
    /// It does the same thing over and over.
    Looping,
    /// The agent cannot work as it is set up: no command, no such program, an option it does not know.
    Setup,
    Other,
}

impl AgentFault {
    /// All, in the order of the line protocol.
    pub const ALL: [Self; 11] = [
        Self::Auth,
        Self::Transient,
        Self::Request,
        Self::Context,
        Self::Model,
        Self::MaxTurns,
        Self::Budget,
        Self::Stalled,
        Self::Looping,
        Self::Setup,
        Self::Other,
    ];

    /// The word in JSON and in the line protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Transient => "transient",
            Self::Request => "request",
            Self::Context => "context",
            Self::Model => "model",
            Self::MaxTurns => "max_turns",
            Self::Budget => "budget",
            Self::Stalled => "stalled",
            Self::Looping => "looping",
            Self::Setup => "setup",
            Self::Other => "other",
        }
    }

    /// What a word stands for; unknown words are [`AgentFault::Other`].
    pub fn from_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|fault| fault.as_str() == word).unwrap_or(Self::Other)
    }
}

/// Why a provider is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    #[default]
    Rate,
    /// Its quota is used up until it is reset.
    Quota,
    /// It failed too often in a row.
    Breaker,
}

impl LimitKind {
    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Quota => "quota",
            Self::Breaker => "breaker",
        }
    }
}

fn is_none(number: &u32) -> bool {
    *number == 0
}
