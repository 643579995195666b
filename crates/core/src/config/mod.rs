//! Settings as values: what each key means once flags, environment and files have been layered.
//!
//! Reads no file and no environment: texts and their origins come in, [`Settings`] go out.

mod home;
pub mod keys;
pub mod layers;
mod review_settings;
mod settings;
mod values;

use std::collections::BTreeMap;

pub use values::is_branch_name;

pub use review_settings::{
    GateWaitMode, ReviewMode, ReviewSettings, ReviewerSettings, StuckReviewAction,
};

use crate::fact::FailureClass;
use crate::question::AnswerRule;
use crate::quiet_hours::QuietHours;

/// Everything that can be set, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub run: RunSettings,
    pub limits: LimitSettings,
    pub workspace: WorkspaceSettings,
    pub schedule: ScheduleSettings,
    pub gates: GateSettings,
    pub review: ReviewSettings,
    pub land: LandSettings,
    pub budget: BudgetSettings,
    pub models: ModelSettings,
    pub prices: BTreeMap<String, ModelPrice>,
    /// `[agents.*]`, the built-in ones included.
    pub agents: BTreeMap<String, AgentSettings>,
    pub sandbox: SandboxSettings,
    /// `[secrets] allow`: patterns of files and texts that the secret scan lets pass.
    pub secrets_allow: Vec<String>,
    pub prompt: PromptSettings,
    pub questions: QuestionSettings,
    pub lessons: LessonSettings,
    /// `[snapshots] every`, in milliseconds; 0 is off.
    pub snapshot_every_ms: u64,
    /// `[snapshots] keep`, in milliseconds: how long after the landing.
    pub snapshot_keep_ms: u64,
}

impl Settings {
    /// Settings that ask for what this version cannot do, each with the value that it can: they
    /// are refused, never ignored.
    pub fn unsupported_settings(&self) -> Vec<(&'static str, &'static str)> {
        [
            (self.land.mode == LandMode::None, ("land.mode", "local")),
            (
                self.schedule.satisfied_by != DependencySatisfaction::Landed,
                ("schedule.satisfied_by", "landed"),
            ),
            // What lands on a forge is there already, and a phase is offered as a whole.
            (self.land.push.is_some() && self.land.mode.lands_on_forge(), ("land.push", "")),
        ]
        .into_iter()
        .filter_map(|(asked, cure)| asked.then_some(cure))
        .collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSettings {
    /// A template of the user's, relative to the repository.
    pub template: Option<String>,
    pub tokens: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionSettings {
    /// Rules that answer by themselves, the first match wins.
    pub policy: Vec<AnswerRule>,
    /// Who answers what no rule does.
    pub agent: Option<String>,
    /// How long that may take.
    pub agent_timeout_ms: u64,
    /// Taken when the deadline passes and the question names nothing.
    pub default: Option<String>,
    /// For questions that name none.
    pub deadline_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LessonSettings {
    /// Whether to learn, and to tell.
    pub learn: bool,
    /// Where they are kept, relative to the repository.
    pub folder: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Agent of tasks that name none.
    pub agent: Option<String>,
    pub jobs: u32,
    /// What one failed task means for the run.
    pub on_failure: RunFailureAction,
    /// Further attempts after a failed one, for tasks that say nothing.
    pub retries: u32,
    /// Wall-clock limit of one attempt, for tasks that say nothing; 0 is none.
    pub timeout_ms: u64,
    /// An attempt that prints nothing for this long is ended; 0 is never.
    pub idle_timeout_ms: u64,
    /// Between asking an agent to end and killing its tree.
    pub grace_ms: u64,
    /// Whether checks, agents and disk are looked at before the first task starts.
    pub preflight: bool,
    /// How often an attempt that made no progress is started again before it counts as failed.
    pub stall_restarts: u32,
    /// What becomes of a task whose agent does the same thing over and over.
    pub on_looping: LoopingAction,
    /// Outcomes after which the next attempt starts over instead of going on with the work so far.
    pub start_over: Vec<FailureClass>,
}

/// What becomes of a task whose agent does the same thing over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopingAction {
    /// A person looks at it.
    Ask,
    /// The attempt failed, like any other.
    Fail,
}

/// What one failed task means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunFailureAction {
    Continue,
    /// Running ones finish, none starts.
    Drain,
    /// Running ones are stopped.
    Abort,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitSettings {
    /// Agents at once per provider.
    pub per_provider: BTreeMap<String, u32>,
    /// Agents at once per agent name.
    pub per_agent: BTreeMap<String, u32>,
    /// Agents at once per role.
    pub per_role: BTreeMap<String, u32>,
    /// Task gates at once; 0 means as many as `run.jobs`.
    pub verify: u32,
    /// Memory per agent in bytes; 0 is no limit.
    pub memory_per_agent: u64,
    /// No new attempt below this many free bytes where workspaces, state or repository live.
    pub disk_floor: u64,
    /// No further agent above this load average; 0 is no limit.
    pub load_ceiling: f64,
    /// No further agent below this much available memory, in bytes; 0 is no limit.
    pub memory_floor: u64,
    /// No further agent while this share of time is spent waiting for memory, in percent; 0 is no
    /// limit.
    pub pressure_ceiling: f64,
    /// Bytes of output kept per attempt.
    pub output_bytes: u64,
    /// Largest file that may land, in bytes; 0 is no limit.
    pub file_bytes: u64,
    /// Waits for a rate limit in a row before a task gives up.
    pub rate_limit_waits: u32,
    /// Wait for a rate limit that names no time, in milliseconds.
    pub rate_limit_wait_ms: u64,
    /// Wait for a quota that names no time, in milliseconds.
    pub quota_wait_ms: u64,
    /// Go on by itself when a quota is filled again; otherwise a person says so.
    pub auto_resume: bool,
    /// Limits are told to the user's other repositories, and theirs are heeded.
    pub shared: bool,
    /// When no attempt starts.
    pub quiet_hours: Option<QuietHours>,
    /// Failures of a provider in a row before it is left alone; 0 is never.
    pub breaker: u32,
    /// For how long at first, in milliseconds.
    pub breaker_wait_ms: u64,
    /// How long a provider must still rest before a fallback agent takes over, in milliseconds.
    pub fallback_after_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WorkspaceSettings {
    /// Where workspaces live; none means a sibling of the repository.
    pub root: Option<String>,
    /// What `mainstem open` runs; empty is the environment's editor.
    pub editor: Vec<String>,
    /// What shares a workspace.
    pub unit: WorkspaceSharing,
    /// How a workspace is made.
    pub kind: WorkspaceKind,
    /// Commands run in a new workspace before the agent.
    pub setup: Vec<String>,
    /// Globs of ignored files to bring along, besides `.worktreeinclude`.
    pub include: Vec<String>,
    /// When a workspace goes.
    pub keep: WorkspaceRetention,
}

/// What shares a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceSharing {
    /// Each task has its own.
    Task,
    /// An epic's tasks, one after the other.
    Epic,
    /// A phase's tasks, one after the other.
    Phase,
    /// All tasks, one after the other.
    None,
}

/// How a workspace is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceKind {
    /// A linked git worktree.
    Worktree,
    /// A clone with a git dir of its own.
    Clone,
}

/// When a workspace goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceRetention {
    /// When its task landed or was called off; those of failed and blocked tasks stay for another try.
    UntilLanded,
    /// Only when its task landed; all others stay until `clean`.
    Failed,
    Always,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSettings {
    /// Groups that must be through before the next group starts.
    pub barrier: ScheduleBarrier,
    /// When a needed task counts as there.
    pub satisfied_by: DependencySatisfaction,
}

/// Groups that must be through before the next group starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleBarrier {
    None,
    /// Levels of the graph: batches, waves.
    Level,
    /// Epics, in the order of their needs.
    Epic,
    /// Phases, in the order of first mention.
    Phase,
}

/// When a needed task counts as there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencySatisfaction {
    /// On the target branch.
    Landed,
    /// Its own gates passed.
    Verified,
    /// Its agent ended with evidence.
    Done,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GateSettings {
    /// Commands that must pass on the exact merged tree before it lands.
    pub verify: Vec<String>,
    /// Time for each command.
    pub timeout_ms: u64,
    /// How often a gate that failed runs again before it counts.
    pub retries: u32,
    /// One that says that it ran no test has no verdict.
    pub need_tests: bool,
    /// What people must approve of every task: those lines of `verify` that ask for it.
    pub approvals: Vec<String>,
    /// A line of `verify` asks for a review of every task.
    pub review: bool,
    /// Whether a run waits for people.
    pub wait: GateWaitMode,
    /// What gates build and may find again: patterns as in `.gitignore`.
    pub caches: Vec<String>,
    /// After how many landings the target branch is verified again without them; zero is never.
    pub recheck: u32,
    /// Further files that only a person may let pass; with `!`, files that need no person.
    pub guard: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LandSettings {
    pub mode: LandMode,
    /// The target branch; none means that of the checkout in which a run is started.
    pub branch: Option<String>,
    /// Whether checkouts of the target branch follow, or a run has a branch of its own.
    pub checkout: CheckoutMode,
    /// How a car joins the line.
    pub strategy: LandStrategy,
    pub lanes: u32,
    /// Whether many cars are verified and landed together.
    pub groups: bool,
    /// What a conflict leads to.
    pub on_conflict: ConflictAction,
    /// Who resolves conflicts; none means the task's own agent.
    pub resolver: Option<String>,
    /// Whether conflicts that were resolved before are resolved the same way.
    pub reuse_resolutions: bool,
    /// Whether mergiraf, where it is installed, is tried on conflicts.
    pub mergiraf: bool,
    /// Whether landings are signed.
    pub sign: LandSigning,
    /// Where what lands is pushed; none if it stays here.
    pub push: Option<PublishSettings>,
    /// How pull requests are made and when they are merged.
    pub pulls: PullRequestSettings,
}

/// The keys of `[land]` about pushing what lands here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishSettings {
    pub remote: String,
    /// The branch there; none means that of the target branch.
    pub branch: Option<String>,
    /// How often in a row a remote that cannot be reached is tried.
    pub tries: u32,
}

/// The keys of `[land]` about pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullRequestSettings {
    pub remote: String,
    /// Owner and name on the forge; none means the remote's.
    pub repository: Option<String>,
    /// Address of the API; none means the remote's host.
    pub api: Option<String>,
    pub labels: Vec<String>,
    pub milestone: Option<String>,
    pub draft: bool,
    /// A template of the user's.
    pub template: Option<String>,
    /// At least one check must have passed.
    pub require_checks: bool,
    /// So many must have approved.
    pub approvals: u32,
    /// Merge what is ready.
    pub auto_merge: bool,
    /// Build on pull requests that are not merged yet.
    pub stacked: bool,
    /// Delete the branch then.
    pub delete_branch: bool,
    /// How often to look.
    pub poll_ms: u64,
}

/// What becomes of the user's checkout when work lands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckoutMode {
    /// Work lands on the target branch, and checkouts of it follow.
    #[default]
    Follow,
    /// Work lands on a branch of the run's own, and nothing checked out is touched.
    Branch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandMode {
    /// On the local target branch.
    Local,
    /// Through a pull request per task.
    Pr,
    /// Through a pull request per phase.
    PhasePr,
    /// Nowhere: verified work stays on its branch.
    None,
}

impl LandMode {
    /// Does work land on a forge rather than here?
    pub fn lands_on_forge(self) -> bool {
        matches!(self, Self::Pr | Self::PhasePr)
    }
}

/// How a car joins the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandStrategy {
    Merge,
    /// One commit with the whole change.
    Squash,
    /// The commits replayed on the line, then a merge commit.
    Rebase,
}

/// What a conflict leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictAction {
    /// The task's agent tries again on a fresh base with the conflict in its prompt.
    Rework,
    Agent,
    /// Kept for a person.
    Manual,
    Fail,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BudgetSettings {
    /// Money for the run.
    pub usd: Option<f64>,
    /// Stop starting attempts when it is spent; otherwise only say so.
    pub hard: bool,
    /// Reserved for an attempt before its real cost is known.
    pub per_attempt_usd: f64,
    /// Money for one task over all its attempts.
    pub per_task_usd: Option<f64>,
}

/// What a model costs, in dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModelPrice {
    pub input: f64,
    pub output: f64,
    /// Tokens read from a cache.
    pub cache_read: f64,
    /// Tokens written to a cache.
    pub cache_write: f64,
}

/// `[models]`: how a model is chosen for a task that names none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelSettings {
    /// A tier or a model, by role.
    pub by_role: BTreeMap<String, String>,
    /// A tier or a model, by the least priority it is for.
    pub by_priority: BTreeMap<i64, String>,
}

/// A cheap, a middling and a strong model of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelTiers {
    /// For simple tasks, once it has proved itself.
    pub cheap: Option<String>,
    pub middle: Option<String>,
    /// For hard and critical ones.
    pub top: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentSettings {
    /// Which adapter drives it.
    pub kind: String,
    /// For `command`: what to run.
    pub command: Vec<String>,
    /// Whose quota it uses; none means that of its kind, or its own name.
    pub provider: Option<String>,
    /// Model for tasks that name none.
    pub model: Option<String>,
    /// Names of environment variables handed to it on purpose.
    pub secrets: Vec<String>,
    /// Further environment, name to value.
    pub env: BTreeMap<String, String>,
    /// Who takes over while its provider rests, best first.
    pub fallback: Vec<String>,
    /// Its models, from which one is chosen.
    pub models: ModelTiers,
    /// A subscription pays for it: what it reports is worth, not cost.
    pub included: bool,
    /// A ready-made command line for `command`.
    pub preset: Option<String>,
    /// The program of its command line tool, if it is not the kind's name on the search path.
    pub binary: Option<String>,
    /// Arguments added to those of the adapter.
    pub args: Vec<String>,
    /// How hard the model thinks, in the tool's own words.
    pub effort: Option<String>,
    /// Instructions added to the tool's own system prompt.
    pub system_prompt: Option<String>,
    /// Tools it may use; none means all.
    pub allowed_tools: Vec<String>,
    /// Most turns of the model in one attempt; zero is no limit.
    pub max_turns: u32,
    /// Who decides about its tools.
    pub permission: AgentPermission,
}

impl AgentSettings {
    /// Whose quota the agent of this name uses.
    pub fn provider_name(&self, name: &str) -> String {
        let usual = match self.kind.as_str() {
            "claude" => "anthropic",
            "codex" => "openai",
            "gemini" => "google",
            _ => name,
        };
        self.provider.clone().unwrap_or_else(|| usual.to_owned())
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentPermission {
    /// Everything is allowed: the sandbox around the agent is the wall.
    #[default]
    Bypass,
    /// Only `allowed_tools`; every other request is declined.
    List,
}

/// `[sandbox]`: the wall around agents, their setup commands and their gates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    pub kind: SandboxKind,
    /// Paths that may be written besides the defaults; `~` and `$NAME` at the start are replaced.
    pub write: Vec<String>,
    /// Whether the default list of writable paths counts as well.
    pub write_defaults: bool,
    /// Paths that may be read although they are hidden otherwise.
    pub read: Vec<String>,
    /// Further paths to hide.
    pub hide: Vec<String>,
    pub tmp: SandboxTmp,
    /// What of the network is left.
    pub network: SandboxNetwork,
    /// Unix sockets where the wall cannot hide them.
    pub sockets: SandboxSockets,
    /// Most processes of this user while an agent starts another; 0 is no limit.
    pub processes: u32,
    /// Largest file that may be written, in bytes; 0 is no limit.
    pub file_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LandSigning {
    /// As `commit.gpgSign` says, as far as that works without a person.
    #[default]
    Auto,
    Off,
    /// Always; what cannot be signed does not land.
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxTmp {
    /// Private for agents that talk to a model, shared for commands of the user's own.
    Auto,
    /// Each attempt has its own.
    Private,
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// As without a wall.
    Open,
    /// Only a loopback of its own.
    Loopback,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxSockets {
    /// Blocked where one that is as good as root can be reached and not be hidden.
    Auto,
    Open,
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxKind {
    /// The best that works here.
    Auto,
    Bwrap,
    Landlock,
    /// None, said on purpose.
    Off,
}
