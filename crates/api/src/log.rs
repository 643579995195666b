//! What `logs --json` prints, one line of output per line, and a range of a log.

use serde::{Deserialize, Serialize};

use crate::time;

/// A line that an agent or a gate printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    #[serde(with = "time::wire")]
    pub at: i64,
    pub stream: String,
    pub text: String,
    /// The task that printed it, where the output of several tasks is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Whether it is of a gate, where the output of several tasks is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
    /// The gate that printed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
}

/// A range of a log, by the places of its records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPage {
    pub task: String,
    pub attempt: u32,
    /// The place at which the range was asked for.
    pub from: u64,
    /// The place at which the next range begins; equal to `from` if there is nothing yet.
    pub next: u64,
    /// Bytes of output before the first line that are no longer kept.
    pub dropped: u64,
    /// The agent has ended, so a range without lines is the end of the log.
    pub ended: bool,
    pub lines: Vec<LogLine>,
}
