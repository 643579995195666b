//! What an attempt left behind. By this it is judged, and not by its agent's word.

use serde::{Deserialize, Serialize};

use crate::hold::GuardedChange;
use crate::id::{Oid, TaskId};

/// What an attempt left behind, read from git by us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub base: Oid,
    /// Where its branch stands.
    pub tip: Oid,
    pub commits: u32,
    pub files: u32,
    pub insertions: u64,
    pub deletions: u64,
    /// Hash of the whole difference.
    pub diff_hash: String,
    /// Uncommitted edits were committed for the agent.
    #[serde(default)]
    pub recovered: bool,
    /// What hygiene found: conflict markers, oversized files.
    #[serde(default)]
    pub flaws: Vec<String>,
    /// The tree of the tip: what reviewers and people judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<Oid>,
    /// Changes to files that only a person may let pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<GuardedChange>,
}

impl Evidence {
    /// Of whoever left nothing on `base`.
    pub fn empty_on(base: Oid) -> Self {
        Self {
            tip: base.clone(),
            base,
            commits: 0,
            files: 0,
            insertions: 0,
            deletions: 0,
            diff_hash: String::new(),
            recovered: false,
            flaws: Vec::new(),
            tree: None,
            guarded: Vec::new(),
        }
    }
}

/// The branch of an attempt, where the one that was intended is somebody else's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchChoiceFact {
    pub task: TaskId,
    pub attempt: u32,
    /// The branch it works on.
    pub branch: String,
    /// The branch that is left alone.
    pub instead_of: String,
}
