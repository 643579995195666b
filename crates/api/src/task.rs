//! What `show --json` prints: one task with its attempts, gates, reviews and questions.
//!
//! Paths of logs and prompts are relative to the state folder (`state_dir`), as they are in facts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outlook::money_option;
use crate::status::TaskStatus;
use crate::time;

/// The name of this shape.
pub const TASK_SCHEMA: &str = "mainstem.task/1";

/// One task and everything that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDetail {
    pub schema: String,
    pub run: String,
    /// The place of the last fact that is in it.
    pub seq: u64,
    /// Where the task stands. Its `needs` and `after` name the phases of those tasks as well.
    #[serde(flatten)]
    pub status: TaskStatus<TaskEdge>,
    pub description: String,
    pub acceptance: Vec<String>,
    pub writes: Vec<String>,
    pub verify: Vec<String>,
    pub role: Option<String>,
    pub effort: String,
    pub priority: i64,
    pub on_failure: String,
    pub retries: Option<u32>,
    pub timeout_ms: Option<u64>,
    /// The tasks that need this one.
    pub dependents: Vec<TaskEdge>,
    /// The tasks that come after this one.
    pub before: Vec<TaskEdge>,
    /// Every attempt, oldest first.
    pub attempts: Vec<AttemptDetail>,
    pub issues: Vec<TaskIssue>,
    pub snapshots: Vec<SnapshotStatus>,
    /// Folders with files of this task that git could not store.
    pub unstored: Vec<String>,
    /// The folder below which logs and prompts are.
    pub state_dir: String,
    /// The prompt of the newest attempt, relative to `state_dir`.
    pub prompt: Option<String>,
    /// The text of that prompt, if it was asked for.
    #[serde(default, skip_serializing_if = "PromptText::is_left_out")]
    pub prompt_text: PromptText,
}

/// The text of a prompt: left out unless it was asked for, null if there is no prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PromptText {
    #[default]
    LeftOut,
    Included(Option<String>),
}

impl PromptText {
    fn is_left_out(&self) -> bool {
        *self == Self::LeftOut
    }
}

impl Serialize for PromptText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::LeftOut => serializer.serialize_none(),
            Self::Included(text) => text.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PromptText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Included)
    }
}

/// A task at the other end of a dependency.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEdge {
    pub id: String,
    pub phase: String,
}

/// Something that an agent found besides its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIssue {
    pub title: String,
    pub text: String,
    pub severity: String,
}

/// A snapshot of a task's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    #[serde(rename = "ref")]
    pub refname: String,
    pub attempt: u32,
    /// Which snapshot of that attempt it is.
    pub number: u32,
    pub commit: String,
}

/// One attempt at a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptDetail {
    /// Which attempt it is, from 1.
    pub attempt: u32,
    pub agent: String,
    pub provider: String,
    pub model: Option<String>,
    pub model_reason: String,
    pub branch: String,
    /// The session that the agent named.
    pub session: Option<String>,
    /// The session that the agent continued.
    pub resumed_session: Option<String>,
    /// The attempt whose work it started from.
    pub continues: Option<u32>,
    pub started_over: bool,
    #[serde(with = "time::wire")]
    pub intended_at: i64,
    #[serde(with = "time::wire_option")]
    pub started_at: Option<i64>,
    /// The same as `agent_ended_at`.
    #[serde(with = "time::wire_option")]
    pub ended_at: Option<i64>,
    /// When the agent and all its processes had ended; null while the agent works.
    #[serde(with = "time::wire_option", default)]
    pub agent_ended_at: Option<i64>,
    pub workspace: Option<String>,
    pub base: Option<String>,
    pub pid: Option<u32>,
    pub tip: Option<String>,
    /// What the attempt produced, as the fact `evidence_collected` has it.
    pub evidence: Value,
    /// How the agent ended, as the fact `agent_ended` has it.
    pub ending: Value,
    pub gates: Vec<GateDetail>,
    pub questions: Vec<AttemptQuestion>,
    pub reviews: Vec<ReviewDetail>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(serialize_with = "money_option")]
    pub cost_usd: Option<f64>,
    /// The class of the failure, if the attempt failed.
    pub class: Option<String>,
    pub reason: Option<String>,
    /// What came of it, in words.
    pub outcome: String,
    /// The commit as which it landed.
    pub commit: Option<String>,
    pub prompt: String,
    /// The folder of the agent's output.
    pub output: String,
}

/// One run of a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateDetail {
    /// `task` in the workspace, `train` on the merged tree, `base` on the target branch itself.
    pub scope: String,
    pub gate: String,
    pub verdict: String,
    pub duration_ms: u64,
    /// The folder of its output; null if nothing was executed.
    pub log: Option<String>,
    /// The end of its output, or why it could not run.
    pub detail: String,
    pub cached: bool,
    /// The other tasks whose work was in the tree.
    pub with: Vec<String>,
    pub exit_code: Option<i32>,
    /// Why it did not pass, as the fact `gate_ran` has it.
    pub cause: Value,
}

/// A question of an attempt, with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptQuestion {
    pub id: String,
    pub question: String,
    pub answer: Option<String>,
}

/// A review of an attempt; reports, findings and stats are as the facts have them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewDetail {
    pub cycle: u32,
    pub reports: Value,
    pub verdict: Option<String>,
    pub by: Option<String>,
    pub findings: Value,
    pub stats: Value,
}

/// What `show --prompt --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptReport {
    pub task: String,
    pub attempt: u32,
    pub path: String,
    pub text: String,
}
