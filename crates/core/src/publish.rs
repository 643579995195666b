//! Landings that are published: what is on record of a push that does not go through. Where the branch
//! on the remote stands, and how it is moved, is the hands' business.

use serde::{Deserialize, Serialize};

use crate::id::TaskId;

/// A landing waits for a remote that does not take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushTrouble {
    pub task: TaskId,
    pub attempt: u32,
    pub remote: String,
    /// In words, the remote's own among them.
    pub reason: String,
    /// What a person can do about it.
    pub help: String,
    /// It was tried often enough: the rest waits for a person.
    #[serde(default)]
    pub last: bool,
}

/// Why a push did not go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRefusal {
    pub reason: String,
    /// What a person can do about it.
    pub help: String,
    /// The remote answered and said no; otherwise nobody knows.
    pub heard: bool,
}
