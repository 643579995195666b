//! The decider: inputs in, facts and effects out. Synchronous and pure, so a whole run can be
//! replayed in a unit test.
//!
//! Recovery has no code of its own. Effects are a function of state (`want`): live, an effect is
//! given out when a task first wants it; after a crash the journal is folded (`apply`) and
//! everything wanted is given out again, which is safe because every effect may be performed twice.

mod add_tasks;
mod adopt_plan;
mod apply;
mod budget;
mod conflict_resolution;
mod continuation;
mod inputs;
mod work_decision;
mod gate_result;
mod candidate_hold;
mod inbox_rules;
mod open_question;
mod owners;
mod queries;
mod idle;
mod retry;
mod review_cycle;
mod agent_statements;
mod fixpoint;
mod command;
mod train_control;
mod outstanding;
mod forge_landing;
mod push_retry;
mod target_recheck;
mod pull_request_stack;
mod suspects;

use std::collections::BTreeMap;

pub use agent_statements::{AgentStatement, ProposalDecision, ReportedIssue, TaskProposal};
pub use apply::ApplyError;
pub use budget::{BudgetShortfall, RunStop};
pub use candidate_hold::{CHECKOUT, GUARDED, GUARDED_OPTIONS};
pub use command::{CommandRefusal, MachineCommand, RetryRequest};
pub use forge_landing::MergeOnlyMode;
pub use gate_result::GateResult;
pub use review_cycle::ReviewerResult;
pub use work_decision::is_work_reference;

use self::owners::{
    AdoptedPlan, EngineEpoch, ForgePulls, Inbox, IssuedEffects, LandingTrain, ProviderTable,
    RunControl, RunRecord, Spending, TargetHealth,
};
use crate::attempt_work::ContinuedWork;
use crate::capacity::CapacityShortage;
use crate::config::{ScheduleBarrier, Settings};
use crate::conflict::ConflictForecast;
use crate::effect::Effect;
use crate::fact::{AgentClaim, AgentEnding, Evidence, Fact, LimitKind, Usage};
use crate::graph::Graph;
use crate::hold::{HoldKind, HoldReason};
use crate::id::{Oid, TaskId, TaskIx, Time};
use crate::inbox::PendingFile;
use crate::phase::Phase;
use crate::plan::Plan;
use crate::provider::{Provider, ProviderStanding};
use crate::publish::PushRefusal;
use crate::pull_request::ForgeActionResult;
use crate::schedule::{ScheduleContext, ScheduledStart, StartObstacle};
use crate::tasks::TaskTable;
use crate::train::Train;
use crate::train::batches::{BatchMerge, BatchPurpose, TrainBatches};

/// Something that reached the machine from outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A new run on this branch.
    StartRun {
        /// Where work will land.
        target: String,
        /// The branch's commit now.
        base: Oid,
        /// The branch that the work is brought over to later.
        bring_to: Option<String>,
    },
    /// A plan, or its next revision.
    AdoptPlan {
        plan: Box<Plan>,
        hash: String,
    },
    /// What the next epoch of the engine starts with. It leads to nothing by itself.
    ConfigureEpoch(EpochOptions),
    /// Local time is so many minutes ahead of UTC. It leads to nothing by itself.
    UtcOffsetChanged {
        minutes: i32,
    },
    /// Files that decide about runs and wait for a person. They hold nothing up.
    PendingFilesFound(Vec<PendingFile>),
    /// An engine is up and holds the lock.
    Begin {
        epoch: u64,
        pid: u32,
        host: String,
        version: String,
        /// Only these tasks and what they need; all if none.
        scope: Option<Vec<TaskIx>>,
    },
    WorkspaceReady {
        task: TaskIx,
        attempt: u32,
        workspace: String,
        /// The commit that its work counts from.
        base: Oid,
        /// What it holds of earlier work.
        continued: Option<ContinuedWork>,
    },
    /// The branch of an attempt is somebody else's: it works on another one.
    BranchChosen {
        task: TaskIx,
        attempt: u32,
        /// The branch it works on.
        branch: String,
    },
    /// A workspace cannot be made before a person has done something about it.
    WorkspaceRefused {
        task: TaskIx,
        attempt: u32,
        reason: String,
        /// The command that helps.
        help: Option<String>,
    },
    /// A workspace could not be made.
    WorkspaceFailed {
        task: TaskIx,
        attempt: u32,
        reason: String,
    },
    /// The agent is alive.
    AgentStarted {
        task: TaskIx,
        attempt: u32,
        pid: u32,
    },
    /// The agent could not be started, stopped, answered or looked at, and nobody knows whether it
    /// lives: all that is wanted of it is asked for again, later.
    AgentUnreachable {
        task: TaskIx,
        attempt: u32,
        reason: String,
    },
    /// The agent said something of meaning.
    AgentSaid {
        task: TaskIx,
        attempt: u32,
        /// Place in its output; grows, and the same word always has the same mark.
        mark: u64,
        said: AgentStatement,
    },
    /// The agent's whole tree is gone.
    AgentEnded {
        task: TaskIx,
        attempt: u32,
        ending: AgentEnding,
        claim: AgentClaim,
    },
    EvidenceCollected {
        task: TaskIx,
        attempt: u32,
        /// The evidence, or why it could not be read.
        evidence: Result<Evidence, String>,
    },
    /// Work is on a hidden ref.
    SnapshotTaken {
        task: TaskIx,
        attempt: u32,
        refname: String,
        commit: Oid,
        /// Why it was taken.
        why: String,
    },
    /// The task's gates gave their verdicts, in order, up to the first that did not pass.
    GatesRan {
        task: TaskIx,
        attempt: u32,
        /// The tree they looked at.
        tree: Oid,
        gates: Vec<GateResult>,
    },
    /// The cars of a line were merged one onto the other.
    BatchMerged {
        purpose: BatchPurpose,
        /// Their queue numbers, in order.
        places: Vec<u64>,
        formed: BatchMerge,
        /// The tree of the target branch they were merged onto.
        base_tree: Oid,
    },
    /// A car does not merge with those before it.
    BatchConflicted {
        purpose: BatchPurpose,
        /// The line, in order.
        places: Vec<u64>,
        at: usize,
        /// Where the target branch stood.
        onto: Oid,
        files: Vec<String>,
        /// It does not merge with the target branch alone either.
        with_main: bool,
    },
    /// The train's gates gave their verdicts on this tree.
    BatchVerified {
        /// Whom they were asked for.
        task: TaskIx,
        attempt: u32,
        commit: Oid,
        tree: Oid,
        gates: Vec<GateResult>,
    },
    /// The target branch moved, or was found to hold this attempt's work already.
    Landed {
        task: TaskIx,
        attempt: u32,
        commit: Oid,
        old: Oid,
    },
    /// The target branch was somewhere else.
    LandingRefused {
        task: TaskIx,
        attempt: u32,
        /// The commit that was to land.
        new: Oid,
        /// Where the branch was.
        found: Option<Oid>,
    },
    /// Work that waits to land has a reason to wait longer.
    HoldCandidate {
        task: TaskIx,
        attempt: u32,
        reason: HoldReason,
    },
    /// Somebody looked whether the user's files are still in the way of held work.
    CheckoutInspected {
        task: TaskIx,
        attempt: u32,
        /// What is in the way; none if nothing is.
        reason: Option<HoldReason>,
    },
    /// A reason for which work was held went away by itself.
    ReleaseCandidate {
        task: TaskIx,
        attempt: u32,
        /// Which kind of reason.
        kind: HoldKind,
    },
    /// The target branch does not exist any more, so nothing can be put on it.
    TargetGone {
        task: TaskIx,
        attempt: u32,
    },
    /// A step of the train could not be made.
    TrainFailed {
        task: TaskIx,
        attempt: u32,
        reason: String,
    },
    /// The target branch was verified again in a clean checkout, or could not be.
    TargetRechecked {
        /// The commit that was verified.
        commit: Oid,
        gates: Result<Vec<GateResult>, String>,
    },
    /// What lands could not be pushed: the landing waits.
    PushFailed {
        task: TaskIx,
        attempt: u32,
        why: PushRefusal,
    },
    /// The user's checkout was brought along, or not.
    CheckoutUpdated {
        task: TaskIx,
        moved: bool,
        why: String,
    },
    /// A workspace is gone, or could not be removed.
    WorkspaceRemoved {
        task: TaskIx,
        attempt: u32,
        /// Where it was, or why it stays.
        workspace: Result<String, String>,
    },
    /// A person wants something.
    Command(MachineCommand),
    /// Stop: first in good order, then at once.
    Interrupt {
        now: bool,
    },
    /// The machine has room for more agents, or too little of something.
    CapacityMeasured(Result<(), CapacityShortage>),
    /// A provider is to be left alone, as somebody else found out: an earlier run, or a planner call.
    ProviderParked {
        provider: String,
        /// What kind of wait.
        kind: LimitKind,
        until: Time,
        message: String,
    },
    /// What became of a deed on a pull request.
    ForgeActionDone {
        task: TaskIx,
        attempt: u32,
        news: ForgeActionResult,
    },
    /// Something to tell people.
    Notice {
        task: Option<TaskIx>,
        message: String,
    },
    /// The answering agent was asked.
    ConsultationDone {
        question: String,
        /// Its answer, or why there is none.
        said: Result<String, String>,
        usage: Vec<Usage>,
    },
    /// Somebody looked which pieces of work would clash.
    ConflictsForecast(ConflictForecast),
    /// A reviewer was asked.
    ReviewerDone(Box<ReviewerResult>),
    Tick,
}

/// What somebody asked for when starting an engine. It holds for one epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochOptions {
    /// Agents at once, if it is not to be as the run or the settings say.
    pub jobs: Option<u32>,
    /// This epoch starts no agent: it pushes, looks at and merges pull requests.
    pub merge_only: Option<MergeOnlyMode>,
    /// This epoch goes on waiting when only people are waited for.
    pub waits_for_people: bool,
    /// The tools that gates run with: a verdict is taken over only if they are the same.
    pub gate_tools: String,
}

/// What one input led to.
#[derive(Debug, Clone, Default)]
pub struct MachineStep {
    /// To be made durable before anything else.
    pub facts: Vec<Fact>,
    /// To be done then.
    pub effects: Vec<Effect>,
    /// For whoever sent a command.
    pub reply: Option<Result<String, CommandRefusal>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestion {
    pub name: String,
    pub task: TaskIx,
    pub attempt: u32,
    /// Which question of that attempt.
    pub number: u32,
    pub text: String,
    pub options: Vec<String>,
    /// Taken when time runs out.
    pub default: Option<String>,
    pub deadline: Option<Time>,
    /// When it was asked.
    pub at: Time,
    /// The asker's own name for it.
    pub reference: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    now: Time,
    facts: Vec<Fact>,
    run: RunRecord,
    control: RunControl,
    engine: EngineEpoch,
    adopted: AdoptedPlan,
    tasks: TaskTable,
    target: TargetHealth,
    train: LandingTrain,
    forge: ForgePulls,
    providers: ProviderTable,
    spending: Spending,
    inbox: Inbox,
    issued: IssuedEffects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterruptMode {
    Gently,
    Now,
}

/// Why the machine has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestReason {
    /// Everything asked for landed.
    Done,
    /// Something asked for did not.
    NotLanded,
    /// It was cancelled or interrupted.
    Interrupted,
}

impl Machine {
    /// A machine that knows nothing yet. Settings are part of the input, not of the record.
    pub fn new(settings: Settings) -> Self {
        let adopted = AdoptedPlan::new();
        let tasks = TaskTable::new(adopted.plan(), adopted.graph(), &settings);
        Self {
            settings,
            now: Time(0),
            facts: Vec::new(),
            run: RunRecord::default(),
            control: RunControl::default(),
            engine: EngineEpoch::default(),
            adopted,
            tasks,
            target: TargetHealth::default(),
            train: LandingTrain::default(),
            forge: ForgePulls::default(),
            providers: ProviderTable::default(),
            spending: Spending::default(),
            inbox: Inbox::default(),
            issued: IssuedEffects::default(),
        }
    }

    /// Takes one input: decides, moves, and says what is to be done.
    pub fn step(&mut self, input: Input, now: Time) -> MachineStep {
        let Some(input) = self.take_configuration(input) else { return MachineStep::default() };
        self.now = self.now.max(now);
        self.tasks.release_delayed(self.now);
        let reply = self.handle_input(input);
        self.run_to_fixpoint();
        let effects = self.outstanding_effects();
        MachineStep { facts: std::mem::take(&mut self.facts), effects, reply }
    }

    /// Takes in what only configures the machine, and returns any other input.
    fn take_configuration(&mut self, input: Input) -> Option<Input> {
        match input {
            Input::ConfigureEpoch(options) => {
                self.control.set_jobs_flag(options.jobs);
                self.engine.configure(options);
            }
            Input::UtcOffsetChanged { minutes } => self.engine.set_utc_offset_min(minutes),
            Input::PendingFilesFound(files) => self.inbox.set_pending_files(files),
            other => return Some(other),
        }
        None
    }

    /// A fact that this step decided: moves the state and is written down.
    fn emit_fact(&mut self, fact: Fact) {
        if let Err(error) = self.apply(&fact, self.now) {
            panic!("BUG: decided something impossible: {error}");
        }
        self.facts.push(fact);
    }

    pub fn job_limit(&self) -> u32 {
        self.control.chosen_jobs().unwrap_or(self.settings.run.jobs)
    }
    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// The plan being worked off.
    pub fn plan(&self) -> &Plan {
        self.adopted.plan()
    }
    pub fn plan_hash(&self) -> &str {
        self.adopted.hash()
    }
    /// Its revision; 0 before the first.
    pub fn revision(&self) -> u32 {
        self.adopted.revision()
    }
    pub fn graph(&self) -> &Graph {
        self.adopted.graph()
    }
    /// Where all tasks stand.
    pub fn tasks(&self) -> &TaskTable {
        &self.tasks
    }
    pub fn train(&self) -> &Train {
        self.train.queue()
    }
    pub fn target_branch(&self) -> &str {
        self.run.target()
    }
    /// Where the target branch stood when the run began.
    pub fn run_base(&self) -> Option<&Oid> {
        self.run.base()
    }
    /// The branch that work is brought over to, if it lands on one of the run's own.
    pub fn bring_to(&self) -> Option<&str> {
        self.run.bring_to()
    }
    /// Providers that said something.
    pub fn providers(&self) -> &BTreeMap<String, Provider> {
        self.providers.all()
    }
    /// Tasks that agents proposed, oldest first.
    pub fn proposals(&self) -> &[TaskProposal] {
        self.inbox.proposals()
    }
    /// What agents found besides their tasks, oldest first.
    pub fn reported_issues(&self) -> &[ReportedIssue] {
        self.inbox.issues()
    }
    /// Lines of the train under way in this life.
    pub fn train_batches(&self) -> &TrainBatches {
        self.train.batches()
    }
    /// The target branch is bad itself: nothing lands.
    pub fn is_train_frozen(&self) -> bool {
        self.target.is_frozen()
    }

    /// Is this task's car held up because the gates fail on the target branch itself?
    pub fn waits_for_target_fix(&self, t: TaskIx) -> bool {
        self.target.is_failing() && self.tasks.phase(t) == Phase::Merging && !self.lands_on_forge(t)
    }
    pub fn open_questions(&self) -> &[OpenQuestion] {
        self.inbox.questions()
    }
    /// No attempt starts until further notice.
    pub fn is_paused(&self) -> bool {
        self.control.is_paused()
    }
    /// A person called the run off.
    pub fn is_cancelled(&self) -> bool {
        self.control.is_cancelled()
    }
    /// An engine took over and has not said goodbye.
    pub fn is_engine_alive(&self) -> bool {
        self.run.is_engine_alive()
    }
    /// When the run began.
    pub fn started_at(&self) -> Option<Time> {
        self.run.started_at()
    }
    /// The newest time known, from facts or inputs.
    pub fn now(&self) -> Time {
        self.now
    }
    /// When the hours end in which nothing starts, if it is one of them.
    pub fn quiet_until(&self) -> Option<Time> {
        self.quiet_until_at(self.now, self.engine.utc_offset_min())
    }
    /// The same at any time and place.
    pub fn quiet_until_at(&self, at: Time, zone_min: i32) -> Option<Time> {
        self.settings.limits.quiet_hours?.ends_at(at, zone_min)
    }
    /// What was said of the run (`None`) or of a task, and still holds.
    pub fn lasting_notice(&self, task: Option<&TaskId>) -> Option<&str> {
        self.inbox.lasting_notice(task)
    }
    /// Why no agent starts although one could: the machine has no room.
    pub fn capacity_shortage(&self) -> Option<&CapacityShortage> {
        self.engine.shortage()
    }

    /// Is this task asked for in this life?
    pub fn is_in_scope(&self, t: TaskIx) -> bool {
        self.engine.merge_only().is_none()
            && self.engine.scope().is_none_or(|scope| scope[t.index()])
    }

    /// When to step with [`Input::Tick`] if nothing else happens.
    pub fn wake_at(&self) -> Option<Time> {
        let providers = self.providers.wake_at(self.now);
        let quiet = self.quiet_until().filter(|_| self.tasks.count_in_phase(Phase::Ready) > 0);
        let deadlines =
            self.inbox.questions().iter().filter(|q| q.default.is_some() || q.is_about_work());
        let deadlines = deadlines.filter_map(|q| q.deadline);
        let every = self.settings.snapshot_every_ms;
        let snapshots = self.tasks.active_tasks().filter_map(|t| {
            let attempt = self.tasks.get(t).current.as_ref()?;
            let last = attempt.snapshot_at.or(attempt.started_at)?;
            (every > 0 && self.tasks.phase(t) == Phase::Working).then(|| last.plus_ms(every))
        });
        providers
            .chain(quiet)
            .chain(deadlines)
            .chain(snapshots)
            .chain(self.tasks.next_delayed_at())
            .chain(self.train.retry_at())
            .chain(self.target.look_at())
            .chain(self.train.inspection_times())
            .chain(self.pull_requests_wake_at())
            .chain(self.issued.agent_retry_times())
            .filter(|at| *at > self.now)
            .min()
    }

    /// What the scheduler looks at now.
    pub fn start_obstacle(&self, t: TaskIx) -> Option<StartObstacle> {
        self.with_schedule(|board| board.start_obstacle(t))
    }

    /// Does this provider rest for longer than people want to wait?
    fn is_provider_resting_long(&self, provider: &str) -> bool {
        let Some(known) = self.providers.get(provider) else { return false };
        let limits = &self.settings.limits;
        match known.rests_until(self.now, limits.auto_resume) {
            Some(Some(until)) => until.since_ms(self.now) >= limits.fallback_after_ms,
            Some(None) => true,
            None => false,
        }
    }

    /// May attempts of this provider start now?
    pub fn provider_standing(&self, provider: &str) -> ProviderStanding {
        let auto_resume = self.settings.limits.auto_resume;
        self.providers.standing(provider, self.now, auto_resume)
    }

    fn with_schedule<R>(&self, look: impl FnOnce(&ScheduleContext<'_>) -> R) -> R {
        let provider = |name: &str| self.provider_standing(name);
        let rests_long = |name: &str| self.is_provider_resting_long(name);
        let scope = |t: TaskIx| self.is_in_scope(t);
        let resolver = |t: TaskIx| self.replacement_agent(t);
        let overlaps = |t: TaskIx| self.overlaps_other_work(t);
        let reserve = |pick: &ScheduledStart| self.expected_usd_of_start(pick);
        let asks = |t: TaskIx| self.open_question(t).map(|open| open.name.clone());
        let budget = &self.settings.budget;
        let money_left = budget.usd.filter(|_| budget.hard).map(|usd| self.spending.left_of(usd));
        let barred = self.settings.schedule.barrier != ScheduleBarrier::None;
        let group_now = match self.engine.scope() {
            // What nobody asked for holds nobody up.
            Some(scope) if barred => {
                let open = |t: &TaskIx| scope[t.index()] && !self.tasks.phase(*t).is_over();
                self.tasks.all_tasks().filter(open).map(|t| self.tasks.resources(t).group).min()
            }
            _ => Some(self.tasks.current_group()),
        };
        let board = ScheduleContext {
            group_now: group_now.unwrap_or(u32::MAX),
            plan: self.adopted.plan(),
            tasks: &self.tasks,
            settings: &self.settings,
            jobs: self.job_limit(),
            provider: &provider,
            rests_long: &rests_long,
            quiet: self.quiet_until().is_some(),
            in_scope: &scope,
            resolver: &resolver,
            mixed: self.settings.land.resolver.is_some() || self.control.agents_named(),
            overlaps: &overlaps,
            asks: &asks,
            money_left,
            reserve: &reserve,
        };
        look(&board)
    }
}
