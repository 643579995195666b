//! A landing on record.

use crate::id::{Oid, Time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLanding {
    /// The commit on the target branch.
    pub commit: Oid,
    /// The branch's commit before.
    pub old: Oid,
    /// Nothing moved, because nothing was to do.
    pub empty: bool,
    /// Landings are numbered in order.
    pub order: u64,
    pub at: Time,
}
