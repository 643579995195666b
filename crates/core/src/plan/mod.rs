//! The plan: what people ask for, as data.
//!
//! Knows nothing of running it. `doc` turns TOML, YAML or JSON into one spanned tree, `read` turns
//! that into a [`Plan`], `check` finds everything that is wrong with it, all at once.

pub mod document;
pub mod read;
pub mod check;
pub mod script;
pub mod quantities;

use serde::{Deserialize, Serialize};

pub use script::ScriptStep;

use crate::id::{EpicId, TaskId};

/// A checked plan: one revision of what is to be done. Serialised into the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Plan {
    /// What the whole is called.
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub epics: Vec<Epic>,
    /// The work, in the order of the file.
    pub tasks: Vec<Task>,
}

/// A group of tasks with an order among groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Epic {
    pub id: EpicId,
    #[serde(default)]
    pub title: String,
    /// Every task of this epic needs every task of those epics.
    #[serde(default)]
    pub needs: Vec<EpicId>,
}

/// One piece of work for one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique in the plan; becomes branch and folder.
    pub id: TaskId,
    /// Its epic, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epic: Option<EpicId>,
    /// Its phase, for `barrier = "phase"`; phases follow each other as they first appear.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// One line for people.
    #[serde(default)]
    pub title: String,
    /// What to do: the heart of the prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it counts as done, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<String>,
    /// Hard edges: those tasks' work is in this task's base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<TaskId>,
    /// Soft edges: order only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// Globs of the files it will write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Name under `[agents.*]`; default `[run] agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Role, for prompts and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Model, if the plan insists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub effort: TaskEffort,
    #[serde(default)]
    pub priority: i64,
    /// Gates of this task, besides `[gates]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<String>,
    /// What its failure means for those that need it.
    #[serde(default)]
    pub on_failure: TaskFailureAction,
    /// Wall-clock limit of one attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Further attempts after a failed one; default from the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Shorthand: the built-in command agent runs this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Steps for the built-in script agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<ScriptStep>,
    /// The phase whose landings it offers in a pull request; no plan says so itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes: Option<String>,
}

impl Task {
    /// A task that says nothing yet.
    pub fn empty() -> Self {
        Self {
            id: TaskId::new(""),
            epic: None,
            phase: None,
            title: String::new(),
            description: String::new(),
            acceptance: Vec::new(),
            needs: Vec::new(),
            after: Vec::new(),
            writes: Vec::new(),
            agent: None,
            role: None,
            model: None,
            effort: TaskEffort::default(),
            priority: 0,
            verify: Vec::new(),
            on_failure: TaskFailureAction::default(),
            timeout_ms: None,
            retries: None,
            run: None,
            script: Vec::new(),
            closes: None,
        }
    }
}

/// Rough size of a task; the scheduler's first estimate of its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEffort {
    Small,
    #[default]
    Medium,
    Large,
}

impl TaskEffort {
    /// How long a task of this size is taken to be, in no particular unit.
    pub fn weight(self) -> u64 {
        match self {
            Self::Small => 1,
            Self::Medium => 3,
            Self::Large => 8,
        }
    }
}

/// What a task's failure means for those that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskFailureAction {
    #[default]
    Block,
    Continue,
    /// The failed task counts as done.
    Skip,
}
