//! Reviews of an attempt, for people.

use mainstem_core::review;
use mainstem_engine::query::attempts::ReviewCycleHistory;

use crate::output;

/// A review for people: its verdict, what each reviewer said, and the findings.
pub(super) fn review_lines(review: &ReviewCycleHistory) -> Vec<String> {
    let verdict = review.end.as_ref().map_or("in progress", |end| end.verdict.as_str());
    let by = review.end.as_ref().filter(|end| end.by == "person").map_or("", |_| " by you");
    let mut lines = vec![format!("review {}  {verdict}{by}", review.cycle)];
    for report in &review.reports {
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
    let findings = review.end.iter().flat_map(|end| &end.findings);
    lines.extend(findings.map(|finding| format!("  {}", finding.to_line())));
    lines
}
