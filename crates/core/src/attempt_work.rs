//! The work of an attempt that did not land, and how the next attempt starts from it.

use serde::{Deserialize, Serialize};

use crate::fact::FailureClass;
use crate::id::Oid;

/// What an attempt left: all of its commits and edits, as one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptWork {
    /// Which attempt left it.
    pub attempt: u32,
    /// The commit that it counts from.
    pub base: Oid,
    /// The last of its commits; edits that were not committed are in it.
    pub commit: Oid,
    /// How that attempt ended.
    pub class: FailureClass,
    /// Something in it must not land as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flawed: bool,
    /// Nobody could read what it left: newer snapshots of that attempt have more of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

/// How a workspace is made from earlier work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceContinuation {
    pub work: AttemptWork,
    /// On which commit it is put.
    pub place: WorkPlacement,
    /// It is laid out as edits instead of commits: something in its commits must not land.
    pub uncommitted: bool,
}

/// On which commit earlier work is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkPlacement {
    /// On its own base: somebody has looked at exactly that.
    Stays,
    /// On what has landed since; on its own base where it conflicts with that.
    Follows,
    /// On what has landed since. Files that conflict are as they landed, because the last attempt
    /// failed by exactly this conflict.
    Redone,
}

/// What stands in a workspace that was made from earlier work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuedWork {
    /// Which attempt left it.
    pub attempt: u32,
    /// The work as it stands there.
    pub commit: Oid,
    pub tree: Oid,
    /// It is there as edits, not as commits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncommitted: bool,
    /// It was brought onto what has landed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moved: bool,
    /// Files that conflict with what has landed since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Those files are as they landed; otherwise they are as the attempt left them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_back: bool,
}

impl AttemptWork {
    /// Where it is put for the next attempt, if that does not build on what is not merged yet.
    pub fn placement(&self) -> WorkPlacement {
        match self.class {
            FailureClass::ChangesNeeded | FailureClass::Rejected => WorkPlacement::Stays,
            FailureClass::Conflicted => WorkPlacement::Redone,
            _ => WorkPlacement::Follows,
        }
    }
}
