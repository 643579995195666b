//! All runs of a repository, and what agents proposed in one of them.

use mainstem_api::run::{IssueStatus, KnownSnapshot, ProposalReport, ProposalStatus, RunSummary};
use mainstem_core::config::Settings;
use mainstem_core::id::Oid;
use mainstem_core::machine::ProposalDecision;
use mainstem_core::phase::Phase;

use crate::query::task::snapshot_status;
use crate::query::{RunLookupError, RunReader};
use crate::repo_layout::RepoLayout;
use crate::run_journal::{self, RunJournalError};
use crate::snapshot_details::SnapshotDetails;

/// All runs of the repository, newest first.
pub fn list_runs(
    layout: &RepoLayout,
    settings: &Settings,
) -> Result<Vec<RunSummary>, RunLookupError> {
    let Some(reader) = run_journal::open_journal_reader(&*layout.run_store())? else {
        return Ok(Vec::new());
    };
    let rows = reader.list_runs().map_err(RunJournalError::from)?;
    let mut runs = Vec::new();
    for row in rows.iter().rev() {
        let found = RunReader::load(layout, settings, Some(&row.run))?;
        let (machine, tasks) = (&found.machine, found.machine.tasks());
        runs.push(RunSummary {
            run: row.run.clone(),
            state: found.state,
            title: machine.plan().title.clone(),
            target: machine.target_branch().to_owned(),
            tasks: machine.plan().tasks.len() as u64,
            landed: u64::from(tasks.count_in_phase(Phase::Landed)),
            failed: u64::from(tasks.count_in_phase(Phase::Failed)),
            started_at: row.first_at_ms,
            current: runs.is_empty(),
        });
    }
    Ok(runs)
}

impl RunReader {
    /// What agents would add to the plan, and what they found besides their tasks.
    pub fn proposals(&self) -> ProposalReport {
        let proposals = self.machine.proposals().iter().zip(1..).map(|(proposal, number)| {
            let (state, becomes) = match &proposal.decided {
                None => ("open", None),
                Some(ProposalDecision::Rejected) => ("rejected", None),
                Some(ProposalDecision::Accepted(id)) => ("accepted", Some(id.to_string())),
            };
            ProposalStatus {
                id: format!("P{number}"),
                state: state.to_owned(),
                becomes,
                by: proposal.task.to_string(),
                attempt: proposal.attempt,
                proposed_id: proposal.id.clone(),
                title: proposal.title.clone(),
                description: proposal.description.clone(),
                needs: proposal.needs.clone(),
                at: proposal.at.0,
            }
        });
        let issues = self.machine.reported_issues().iter().map(|issue| IssueStatus {
            by: issue.task.to_string(),
            title: issue.title.clone(),
            text: issue.text.clone(),
            severity: issue.severity.clone(),
            at: issue.at.0,
        });
        ProposalReport { proposals: proposals.collect(), issues: issues.collect() }
    }
}

/// A snapshot with what is known of it, for programs.
pub fn describe_snapshot(known: &SnapshotDetails) -> KnownSnapshot {
    KnownSnapshot {
        snapshot: snapshot_status(&known.snapshot),
        at: known.at_ms,
        why: known.why.clone(),
        subject: known.subject.clone(),
        base: known.base.as_ref().map(Oid::as_str).map(str::to_owned),
        files: known.size.map(|size| size.files),
        insertions: known.size.map(|size| size.insertions),
        deletions: known.size.map(|size| size.deletions),
    }
}
