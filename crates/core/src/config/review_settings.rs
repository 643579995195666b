//! `[review]` and `[reviewers.*]` as values.

use std::collections::BTreeMap;

use crate::review::Severity;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewSettings {
    /// Who reviews every task: names under `[reviewers.*]` or `[agents.*]`.
    pub agents: Vec<String>,
    /// Whether each sees the whole change.
    pub mode: ReviewMode,
    pub concurrency: u32,
    /// How often a task is mended after a review.
    pub max_cycles: u32,
    /// Findings as bad as this want changes.
    pub changes_at: Severity,
    /// Findings as bad as this block.
    pub blocks_at: Severity,
    /// What becomes of a task that reviewers are still not content with.
    pub on_stuck: StuckReviewAction,
    /// Only files with these extensions are shown; all if none is named.
    pub extensions: Vec<String>,
    /// Files that are not shown.
    pub ignore: Vec<String>,
    /// Files in which much can go wrong.
    pub risk_high: Vec<String>,
    /// Files in which little can go wrong.
    pub risk_low: Vec<String>,
    /// Time for one reviewer; 0 is no limit.
    pub timeout_ms: u64,
    pub reviewers: BTreeMap<String, ReviewerSettings>,
}

impl Default for ReviewSettings {
    fn default() -> Self {
        Self {
            agents: Vec::new(),
            mode: ReviewMode::All,
            concurrency: 2,
            max_cycles: 3,
            changes_at: Severity::Medium,
            blocks_at: Severity::Critical,
            on_stuck: StuckReviewAction::Fail,
            extensions: Vec::new(),
            ignore: Vec::new(),
            risk_high: Vec::new(),
            risk_low: Vec::new(),
            timeout_ms: 0,
            reviewers: BTreeMap::new(),
        }
    }
}

impl ReviewSettings {
    /// How a reviewer is set up; one that is only an agent's name is that agent, without conditions.
    pub fn reviewer_settings(&self, name: &str) -> ReviewerSettings {
        let mut reviewer = self.reviewers.get(name).cloned().unwrap_or_default();
        if reviewer.agent.is_empty() {
            name.clone_into(&mut reviewer.agent);
        }
        reviewer
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewMode {
    /// Every reviewer sees every file.
    All,
    /// Each sees a share.
    Split,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StuckReviewAction {
    Fail,
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GateWaitMode {
    /// Where somebody sits at a terminal, or the engine runs apart from one.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReviewerSettings {
    /// Which agent it is; the one of its own name if none is named.
    pub agent: String,
    /// What it looks for.
    pub focus: Option<String>,
    /// It looks only at changes in these files; at all if none is named.
    pub paths: Vec<String>,
    /// It looks only at changes of so many lines.
    pub min_lines: u32,
    pub model: Option<String>,
}
