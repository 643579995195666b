//! Reviews of an attempt, for people and for programs.

use mainstem_core::fact::Fact;
use mainstem_core::review;
use serde_json::{Value, json};

use crate::output;

/// A review as its facts tell it.
#[derive(Default)]
pub(super) struct ShowReview {
    cycle: u32,
    reports: Vec<review::ReviewReportFact>,
    end: Option<review::ReviewEndFact>,
}

impl ShowReview {
    /// Takes a fact in, if it is one of a review.
    pub(super) fn apply_fact(all: &mut Vec<Self>, fact: Fact) {
        match (fact, all.last_mut()) {
            (Fact::ReviewStarted(started), _) => {
                all.push(Self { cycle: started.cycle, ..Self::default() });
            }
            (Fact::ReviewerEnded(report), Some(review)) => review.reports.push(report),
            (Fact::ReviewEnded(end), Some(review)) => review.end = Some(end),
            _ => {}
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "cycle": self.cycle, "reports": self.reports,
            "verdict": self.end.as_ref().map(|end| end.verdict.as_str()),
            "by": self.end.as_ref().map(|end| &end.by),
            "findings": self.end.as_ref().map(|end| &end.findings),
            "stats": self.end.as_ref().map(|end| &end.stats),
        })
    }

    pub(super) fn to_lines(&self) -> Vec<String> {
        let verdict = self.end.as_ref().map_or("in progress", |end| end.verdict.as_str());
        let by = self.end.as_ref().filter(|end| end.by == "person").map_or("", |_| " by you");
        let mut lines = vec![format!("review {}  {verdict}{by}", self.cycle)];
        for report in &self.reports {
            let what = match &report.outcome {
                review::ReviewerOutcome::Said { verdict, findings } => {
                    format!(
                        "{}, {}",
                        verdict.as_str(),
                        output::count_noun(findings.len() as u64, "finding")
                    )
                }
                review::ReviewerOutcome::Skipped { why } => format!("skipped: {why}"),
                review::ReviewerOutcome::Failed { why } => format!("no verdict: {why}"),
                review::ReviewerOutcome::Limited { message, .. } => {
                    format!("rate-limited: {message}")
                }
                review::ReviewerOutcome::Stopped {} => "stopped".to_owned(),
            };
            let took = output::format_duration(report.duration_ms);
            lines.push(format!("  {} ({}) {what} ({took})", report.reviewer, report.agent));
        }
        let findings = self.end.iter().flat_map(|end| &end.findings);
        lines.extend(findings.map(|finding| format!("  {}", finding.to_line())));
        lines
    }
}
