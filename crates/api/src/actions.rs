//! What commands that act print with `--json`: what was done, or what would be done.

use serde::{Deserialize, Serialize};

use crate::status::TaskStatus;
use crate::time;

/// What `run --dry-run --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DryRunReport {
    /// The tasks that would start now.
    pub starts: Vec<String>,
    pub tasks: Vec<TaskStatus>,
}

/// What `undo --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoReport {
    pub task: String,
    /// The landed commit that was undone.
    pub commit: String,
    /// The commit at which the branch is now.
    pub now: String,
    /// A revert commit was made; otherwise the branch moved back.
    pub reverted: bool,
    /// Why the user's checkout was not updated.
    pub checkout: Option<String>,
}

/// What `undo --dry-run --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoPreview {
    pub dry_run: bool,
    pub task: String,
    pub commit: String,
    pub branch: String,
    pub reverts: bool,
    /// The commit to which the branch would move back; null if a revert commit would be made.
    pub to: Option<String>,
}

/// What `clean --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanReport {
    /// Absent where nothing but the real thing can be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    pub removed: Vec<CleanedItem>,
    pub kept: Vec<CleanedItem>,
}

/// Something that a run left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanedItem {
    pub what: String,
    pub place: String,
    /// Why it was kept.
    pub why: Option<String>,
}

/// What `land --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandReport {
    pub from: String,
    pub to: String,
    pub commit: String,
    /// A merge commit was needed.
    pub merged: bool,
    pub already_there: bool,
    pub checkout: Option<String>,
}

/// What `merge --json` prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeReport {
    pub merged: Vec<PullRequestMerge>,
    pub open: Vec<OpenPullRequest>,
}

/// A pull request that was merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestMerge {
    pub task: String,
    pub pull: Option<u64>,
    pub url: Option<String>,
    pub commit: Option<String>,
}

/// A pull request that is not merged yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenPullRequest {
    pub task: String,
    pub pull: Option<u64>,
    pub url: Option<String>,
    pub waits_for: Option<String>,
    pub reason: String,
}

/// What `open --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenReport {
    pub task: String,
    pub workspace: String,
    pub command: Vec<String>,
}

/// A task seen as a worker, as `worker` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker_id: String,
    pub state: String,
    pub phase: String,
    #[serde(with = "time::wire_option")]
    pub created_at: Option<i64>,
    #[serde(with = "time::wire_option")]
    pub updated_at: Option<i64>,
    pub task_id: String,
    pub description: String,
    pub agent: String,
    pub base_branch: String,
    pub worktree_path: Option<String>,
    pub branch: Option<String>,
    pub priority: i64,
    pub correlation_id: Option<String>,
    #[serde(with = "time::wire_option")]
    pub spawned_at: Option<i64>,
    pub pr_url: Option<String>,
    pub pr_number: Option<u64>,
    #[serde(with = "time::wire_option")]
    pub merged_at: Option<i64>,
    pub commit: Option<String>,
    pub error: Option<String>,
    pub auto_transition: bool,
    pub waiting_for: Vec<String>,
    pub next_action: Option<String>,
}

/// What `worker terminate` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTermination {
    pub worker: WorkerStatus,
    pub messages: Vec<String>,
}

/// What `config accept --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptReport {
    pub accepted: Vec<AcceptedVersion>,
}

/// A version of a file that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedVersion {
    pub path: String,
    pub blob: Option<String>,
    pub commit: String,
}

/// What `config set --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    pub key: String,
    pub file: String,
    pub changed: bool,
}

/// What `doctor --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorStatus {
    pub ok: bool,
    pub checks: Vec<DoctorCheckStatus>,
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorCheckStatus {
    pub name: String,
    /// `ok`, `warning` or `error`.
    pub status: String,
    pub message: String,
    pub help: Option<String>,
}

/// An error of a command, as `--json` prints it on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    pub error: String,
    pub exit_code: u8,
    pub causes: Vec<String>,
    pub detail: Vec<String>,
    pub help: Vec<String>,
    pub diagnostics: Vec<ErrorDiagnostic>,
}

/// A place in a file that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDiagnostic {
    pub file: String,
    pub line: u64,
    pub column: u64,
    pub code: String,
    pub message: String,
    pub help: Option<String>,
}

/// What `plan check --json` prints for a plan that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPlanCheck {
    pub ok: bool,
    #[serde(flatten)]
    pub error: ErrorReport,
}

/// What `plan check --json` prints for a plan that is right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCheckReport {
    pub ok: bool,
    pub file: String,
    pub title: String,
    pub tasks: u64,
    pub edges: u64,
    pub epics: u64,
    pub levels: u64,
    /// How many tasks the widest level has.
    pub widest_level: u64,
    pub critical_path: Vec<String>,
    pub diagnostics: Vec<ErrorDiagnostic>,
    pub warnings: Vec<String>,
}

/// What a plan may take and cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanEstimateReport {
    pub work_ms: u64,
    pub critical_path_ms: u64,
    pub least_ms: u64,
    pub cost_usd: Option<f64>,
    /// How many landed tasks it is based on.
    pub based_on_tasks: u32,
}

/// What `demo --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoReport {
    pub claims: Vec<DemoClaim>,
    pub failed: u64,
    /// The repository, if it was kept.
    pub repository: Option<String>,
}

/// Something that the demo claims, and whether it was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoClaim {
    pub claim: String,
    pub holds: bool,
}

/// What `--version --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionReport {
    pub name: String,
    pub version: String,
}

/// What `lessons forget --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenLessons {
    pub domain: String,
    pub forgotten: u64,
}

/// One line of `lessons --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonCounts {
    pub domain: String,
    pub file: String,
    pub failures: u64,
    pub patterns: u64,
    pub files: u64,
    pub techniques: u64,
}
