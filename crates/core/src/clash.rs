//! Work that does not merge with what landed: what has to be known of it to redo or resolve it. Knows no
//! git: which files clash is found out elsewhere.

use crate::id::{Oid, Time};

/// A clash of a task's work with the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    /// Whose work: the attempt.
    pub attempt: u32,
    /// Where that attempt started.
    pub base: Oid,
    /// What it made.
    pub tip: Oid,
    /// Where the target branch stood.
    pub onto: Oid,
    /// The files that clash.
    pub files: Vec<String>,
    /// When that attempt was intended: what landed since may be the other side.
    pub since: Time,
}
