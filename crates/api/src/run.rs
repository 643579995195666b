//! Runs and what is asked of them: the list of runs, proposals, snapshots, and the answers of commands that act.

use serde::{Deserialize, Serialize};

use crate::status::RunState;
use crate::task::SnapshotStatus;
use crate::time;

/// One line of `runs --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    pub run: String,
    pub state: RunState,
    pub title: String,
    pub target: String,
    pub tasks: u64,
    pub landed: u64,
    pub failed: u64,
    #[serde(with = "time::wire")]
    pub started_at: i64,
    /// Whether it is the newest run.
    pub current: bool,
}

/// What `proposals --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalReport {
    pub proposals: Vec<ProposalStatus>,
    pub issues: Vec<IssueStatus>,
}

/// A task that an agent proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalStatus {
    pub id: String,
    /// `open`, `accepted` or `rejected`.
    pub state: String,
    /// The task that it became.
    pub becomes: Option<String>,
    /// The task whose agent proposed it.
    pub by: String,
    pub attempt: u32,
    pub proposed_id: Option<String>,
    pub title: String,
    pub description: String,
    pub needs: Vec<String>,
    #[serde(with = "time::wire")]
    pub at: i64,
}

/// Something that an agent found besides its task, with who found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueStatus {
    /// The task whose agent found it.
    pub by: String,
    pub title: String,
    pub text: String,
    pub severity: String,
    #[serde(with = "time::wire")]
    pub at: i64,
}

/// A snapshot with what the journal and git know of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSnapshot {
    #[serde(flatten)]
    pub snapshot: SnapshotStatus,
    #[serde(with = "time::wire_option")]
    pub at: Option<i64>,
    pub why: Option<String>,
    pub subject: Option<String>,
    pub base: Option<String>,
    pub files: Option<u64>,
    pub insertions: Option<u64>,
    pub deletions: Option<u64>,
}

/// The snapshots of one task; `note` says what could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSnapshots {
    pub task: String,
    pub snapshots: Vec<KnownSnapshot>,
    #[serde(default, skip_serializing_if = "NoteField::is_left_out")]
    pub note: NoteField,
}

/// A note that is left out in lists, and null if there is nothing to note.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NoteField {
    #[default]
    LeftOut,
    Included(Option<String>),
}

impl NoteField {
    fn is_left_out(&self) -> bool {
        *self == Self::LeftOut
    }
}

impl Serialize for NoteField {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::LeftOut => serializer.serialize_none(),
            Self::Included(note) => note.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NoteField {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Included)
    }
}

/// The snapshots of all tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotReport {
    pub tasks: Vec<TaskSnapshots>,
    pub note: Option<String>,
}

/// A snapshot that was brought back as a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    #[serde(flatten)]
    pub snapshot: SnapshotStatus,
    pub task: String,
    pub branch: String,
    pub note: Option<String>,
}

/// What commands that act on a run print.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandReport {
    pub ok: bool,
    pub messages: Vec<String>,
}

/// What `stop --json` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReport {
    pub stopped: bool,
    pub running: bool,
}

/// What `run --detach --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachReport {
    pub run: String,
    pub pid: u32,
    pub log: String,
}
