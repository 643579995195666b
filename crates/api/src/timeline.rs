//! The timeline of a run: which phase each attempt was in from when to when, and when nothing happened.

use serde::{Deserialize, Serialize};

use crate::time;

/// The name of this shape.
pub const TIMELINE_SCHEMA: &str = "mainstem.timeline/1";

/// The timeline of a run at one place of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineReport {
    pub schema: String,
    pub run: Option<String>,
    /// The place of the last fact that is in it.
    pub seq: u64,
    /// The moment up to which segments without an end have lasted.
    #[serde(with = "time::wire")]
    pub now: i64,
    /// Every attempt, in the order in which they began.
    pub attempts: Vec<AttemptTimeline>,
    /// Times in which nothing happened and nothing ran.
    pub gaps: Vec<TimelineGap>,
    /// When the tasks that are not over are expected to land.
    pub forecast: Vec<TimelineForecast>,
}

/// The phases of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptTimeline {
    pub task: String,
    pub attempt: u32,
    pub segments: Vec<TimelineSegment>,
}

/// A time that an attempt spent in one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineSegment {
    pub phase: String,
    #[serde(with = "time::wire")]
    pub from: i64,
    /// Null while the phase lasts.
    #[serde(with = "time::wire_option")]
    pub to: Option<i64>,
}

/// A time without a fact in which no task was active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineGap {
    #[serde(with = "time::wire")]
    pub from: i64,
    #[serde(with = "time::wire")]
    pub to: i64,
}

/// When a task is expected to land.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineForecast {
    pub task: String,
    #[serde(with = "time::wire")]
    pub expected_end: i64,
}
