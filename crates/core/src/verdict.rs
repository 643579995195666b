//! What gates say, and where they looked. Part of facts; knows nothing else of them.

use serde::{Deserialize, Serialize};

/// Where a gate ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateScope {
    /// In the task's workspace.
    Task,
    /// On the exact merged tree.
    Train,
    /// On the target branch itself, before a car is blamed.
    Base,
}

impl GateScope {
    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Train => "train",
            Self::Base => "base",
        }
    }
}

/// What a gate says. Only `Passed` lets anything through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The check ran and is content.
    Passed,
    /// The check ran and is not.
    Failed,
    /// The check could not run or did not end: never a pass.
    Error,
}

impl GateVerdict {
    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
        }
    }
}
