//! Reviews: what reviewers say of a change, brought together into one verdict. Pure data and rules.
//!
//! Knows nothing of agents, prompts or git; [`review_files`] says which files of a change a reviewer looks at.

pub mod review_files;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, LimitKind};
use crate::id::{Oid, TaskId};

/// The gate's name in facts.
pub const GATE: &str = "@review";
/// Findings of one review that are kept in facts; the reviewers' own words are in their logs.
pub const FINDINGS_MAX: usize = 200;
/// Characters of a finding's texts.
const TEXT_CHARS_MAX: usize = 600;
/// Characters of what another reviewer said of the same place.
const NOTE_CHARS_MAX: usize = 120;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    /// All, the mildest first.
    pub const ALL: [Self; 5] = [Self::Info, Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The word in JSON and settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == word)
    }
}

/// One thing that a reviewer found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFinding {
    pub severity: Severity,
    /// What kind of thing, in a word.
    pub category: String,
    /// Where; empty if it is about the whole change.
    #[serde(default)]
    pub file: String,
    /// The line there; 0 if it is about the whole file.
    #[serde(default)]
    pub line: u64,
    pub description: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub suggestion: String,
    #[serde(default)]
    pub agents: Vec<String>,
}

/// What a reviewer thinks of the whole. The worst wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReviewOpinion {
    Approved,
    /// Not as it is.
    ChangesNeeded,
    /// By no means as it is.
    Blocking,
}

impl ReviewOpinion {
    /// All, the best first.
    pub const ALL: [Self; 3] = [Self::Approved, Self::ChangesNeeded, Self::Blocking];

    /// The word in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "APPROVED",
            Self::ChangesNeeded => "CHANGES_NEEDED",
            Self::Blocking => "BLOCKING",
        }
    }
}

/// What came of asking one reviewer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReviewerOutcome {
    Said {
        verdict: ReviewOpinion,
        findings: Vec<ReviewFinding>,
    },
    /// There was nothing for it to look at.
    Skipped {
        why: String,
    },
    /// It gave no answer that can be used. Counts as wanting changes.
    Failed {
        why: String,
    },
    /// Its provider said to wait: it is asked again.
    Limited {
        /// What kind of limit.
        kind: LimitKind,
        /// How long, if that was said.
        #[serde(default)]
        wait_ms: Option<u64>,
        /// In the provider's words.
        #[serde(default)]
        message: String,
    },
    /// It was ended by us: nothing is known.
    Stopped {},
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewStartFact {
    pub task: TaskId,
    pub attempt: u32,
    /// What is looked at.
    pub tree: Oid,
    /// Reviews of this task so far, with this one.
    pub cycle: u32,
    pub reviewers: Vec<String>,
}

/// One reviewer is through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewReportFact {
    pub task: TaskId,
    pub attempt: u32,
    /// What was looked at.
    pub tree: Oid,
    pub reviewer: String,
    pub agent: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: ReviewerOutcome,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
    /// Where its output is, relative to the state folder.
    #[serde(default)]
    pub log: Option<String>,
}

/// A review is over: all that was said, as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewEndFact {
    pub task: TaskId,
    pub attempt: u32,
    /// What was looked at.
    pub tree: Oid,
    /// Which review of the task.
    pub cycle: u32,
    pub verdict: ReviewOpinion,
    /// `reviewers`, or `person` if somebody overruled them.
    pub by: String,
    /// What was found, worst first.
    pub findings: Vec<ReviewFinding>,
    pub stats: ReviewStats,
}

/// A review in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReviewStats {
    /// Findings of all reviewers.
    pub inputs: u64,
    pub unique: u64,
    /// Said more than once.
    pub duplicates: u64,
    /// Places where one reviewer saw it worse than another.
    pub escalations: u64,
    /// Percent of places that several reviewers named.
    pub overlap_percent: u64,
    pub per_agent: BTreeMap<String, u64>,
    /// Different findings by severity.
    pub per_severity: BTreeMap<String, u64>,
}

impl Fact {
    /// Is it what reviewers and people say of work, or what that took?
    pub fn is_review_or_decision(&self) -> bool {
        matches!(
            self,
            Self::ReviewStarted(_)
                | Self::ReviewerEnded(_)
                | Self::ReviewEnded(_)
                | Self::QuestionAsked { .. }
                | Self::QuestionAnswered { .. }
                | Self::UsageReported { .. }
                | Self::ProviderLimited { .. }
                | Self::BudgetReached { .. }
        )
    }
}

/// Brings the findings of all reviewers together: one per file, line and category, with the highest
/// severity that anybody saw. The order of the reports does not count.
pub fn consolidate_findings(
    reports: &[(String, Vec<ReviewFinding>)],
) -> (Vec<ReviewFinding>, ReviewStats) {
    let mut stats = ReviewStats::default();
    let mut groups: BTreeMap<(String, u64, String), Vec<ReviewFinding>> = BTreeMap::new();
    for (agent, findings) in reports {
        *stats.per_agent.entry(agent.clone()).or_default() += findings.len() as u64;
        stats.inputs += findings.len() as u64;
        for finding in findings {
            let mut finding = finding.clone();
            finding.agents = vec![agent.clone()];
            let category = finding.category.trim().to_lowercase();
            let key = (finding.file.clone(), finding.line, category);
            groups.entry(key).or_default().push(finding);
        }
    }
    stats.unique = groups.len() as u64;
    stats.duplicates = stats.inputs - stats.unique;
    let mut shared = 0;
    let mut merged: Vec<ReviewFinding> = Vec::with_capacity(groups.len());
    for group in groups.into_values() {
        let agents: BTreeSet<&String> = group.iter().flat_map(|finding| &finding.agents).collect();
        shared += u64::from(agents.len() > 1);
        let worst = group.iter().map(|finding| finding.severity).max();
        let mildest = group.iter().map(|finding| finding.severity).min();
        stats.escalations += u64::from(worst != mildest);
        merged.push(merge_findings(group));
    }
    stats.overlap_percent = (shared * 100).checked_div(stats.unique).unwrap_or(0);
    for finding in &merged {
        *stats.per_severity.entry(finding.severity.as_str().to_owned()).or_default() += 1;
    }
    merged.sort_by(|a, b| {
        let key = |f: &ReviewFinding| {
            (std::cmp::Reverse(f.severity), f.file.clone(), f.line, f.category.clone())
        };
        key(a).cmp(&key(b))
    });
    (merged, stats)
}

/// What several said of one place, under the words of whoever saw it worst.
fn merge_findings(mut group: Vec<ReviewFinding>) -> ReviewFinding {
    group.sort_by(|a, b| {
        let key = |f: &ReviewFinding| {
            (std::cmp::Reverse(f.severity), f.agents.clone(), f.description.clone())
        };
        key(a).cmp(&key(b))
    });
    let mut rest = group.into_iter();
    let mut first = rest.next().expect("BUG: a group has a member");
    first.category = first.category.trim().to_lowercase();
    for other in rest {
        if first.suggestion.is_empty() {
            first.suggestion = other.suggestion;
        }
        if !first.description.contains(&other.description) {
            let note = clip_chars(&other.description, NOTE_CHARS_MAX);
            first.description.push_str(&format!(" [{}: {note}]", other.agents.join(", ")));
        }
        for agent in other.agents {
            if !first.agents.contains(&agent) {
                first.agents.push(agent);
            }
        }
    }
    first.agents.sort();
    first.description = clip_chars(&first.description, 2 * TEXT_CHARS_MAX);
    first
}

/// From which severity on a finding counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewPolicy {
    /// Findings as bad as this want changes.
    pub changes_at: Severity,
    /// Findings as bad as this block.
    pub blocks_at: Severity,
}

/// The verdict on a change: the worst of what reviewers said, of what their findings amount to, and of
/// what it means that one gave no answer.
pub fn judge_review<'o>(
    outcomes: impl Iterator<Item = &'o ReviewerOutcome>,
    findings: &[ReviewFinding],
    policy: ReviewPolicy,
) -> ReviewOpinion {
    let said = outcomes.map(|outcome| match outcome {
        ReviewerOutcome::Said { verdict, .. } => *verdict,
        ReviewerOutcome::Skipped { .. } => ReviewOpinion::Approved,
        ReviewerOutcome::Failed { .. }
        | ReviewerOutcome::Limited { .. }
        | ReviewerOutcome::Stopped {} => ReviewOpinion::ChangesNeeded,
    });
    let found = findings.iter().map(|finding| match finding.severity {
        severity if severity >= policy.blocks_at => ReviewOpinion::Blocking,
        severity if severity >= policy.changes_at => ReviewOpinion::ChangesNeeded,
        _ => ReviewOpinion::Approved,
    });
    said.chain(found).max().unwrap_or(ReviewOpinion::Approved)
}

impl ReviewFinding {
    /// One line for people and for the agent that mends it.
    pub fn to_line(&self) -> String {
        let place = match (self.file.is_empty(), self.line) {
            (true, _) => "the whole change".to_owned(),
            (false, 0) => self.file.clone(),
            (false, line) => format!("{}:{line}", self.file),
        };
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut line = format!(
            "[{}] {place} ({}): {}",
            self.severity.as_str(),
            flat(&self.category),
            flat(&self.description)
        );
        if !self.suggestion.is_empty() {
            line.push_str(&format!(" Suggestion: {}", flat(&self.suggestion)));
        }
        line
    }

    /// The same with texts of a length that is fit for a fact.
    #[must_use]
    pub fn clipped_for_fact(mut self) -> Self {
        self.category = clip_chars(&self.category, NOTE_CHARS_MAX);
        self.file = clip_chars(&self.file, TEXT_CHARS_MAX);
        self.description = clip_chars(&self.description, TEXT_CHARS_MAX);
        self.suggestion = clip_chars(&self.suggestion, TEXT_CHARS_MAX);
        self
    }
}

/// All findings, a line each.
pub fn finding_lines(findings: &[ReviewFinding]) -> String {
    findings.iter().map(ReviewFinding::to_line).collect::<Vec<_>>().join("\n")
}

fn clip_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A review of an attempt, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewProgress {
    /// What is looked at.
    pub tree: Oid,
    /// Which review of the task.
    pub cycle: u32,
    pub reviewers: Vec<String>,
    pub reports: BTreeMap<String, ReviewReportFact>,
    /// How often each was told to wait.
    pub limits: BTreeMap<String, u32>,
    pub ended: Option<ReviewEndFact>,
}

impl ReviewProgress {
    /// One that was just begun.
    pub fn new(started: &ReviewStartFact) -> Self {
        Self {
            tree: started.tree.clone(),
            cycle: started.cycle,
            reviewers: started.reviewers.clone(),
            reports: BTreeMap::new(),
            limits: BTreeMap::new(),
            ended: None,
        }
    }

    /// Takes a report down.
    pub fn apply_report(&mut self, report: &ReviewReportFact) {
        match report.outcome {
            ReviewerOutcome::Limited { .. } => {
                *self.limits.entry(report.reviewer.clone()).or_default() += 1;
            }
            ReviewerOutcome::Stopped {} => {}
            ReviewerOutcome::Said { .. }
            | ReviewerOutcome::Skipped { .. }
            | ReviewerOutcome::Failed { .. } => {
                self.reports.insert(report.reviewer.clone(), report.clone());
            }
        }
    }

    /// Who has not said anything yet.
    pub fn missing_reviewers(&self) -> impl Iterator<Item = &String> {
        self.reviewers
            .iter()
            .filter(|name| self.ended.is_none() && !self.reports.contains_key(*name))
    }
}

/// What is known of a task's reviews and approvals over all its attempts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReviewHistory {
    /// The verdict on each tree that was reviewed.
    pub verdicts: BTreeMap<Oid, ReviewEndFact>,
    /// What a person approved: the gate and the tree.
    pub approved: BTreeSet<(String, Oid)>,
    pub cycles: u32,
}

#[cfg(test)]
mod tests;
