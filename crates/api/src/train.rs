//! What `train --json` prints: what is queued, what landed, what was evicted, and what is likely to conflict.

use serde::{Deserialize, Serialize};

use crate::status::{StatusCandidate, StatusConflict};
use crate::time;

/// The merge train of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainReport {
    pub run: Option<String>,
    /// What is on its way to the target branch, in order.
    pub train: Vec<StatusCandidate>,
    /// Work that is likely to conflict.
    pub clashes: Vec<StatusConflict>,
    pub landed: Vec<TrainDeparture>,
    /// Candidates that left the train without landing, oldest first.
    pub evicted: Vec<TrainDeparture>,
}

/// A candidate that has left the train.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainDeparture {
    #[serde(flatten)]
    pub candidate: StatusCandidate,
    #[serde(with = "time::wire")]
    pub at: i64,
    /// `landed`, `undone`, `conflict`, `evicted` or `refused`.
    pub how: String,
    /// The commit as which it landed; only of landings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// It landed without a change; only of landings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<bool>,
    /// The files in conflict; only of candidates that did not land.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
}
