//! The attempts of a task as their facts tell them.

use std::collections::BTreeMap;
use std::path::Path;

use mainstem_api::outlook::with_rounded_money;
use mainstem_api::task::{AttemptDetail, AttemptQuestion, GateDetail, ReviewDetail};
use mainstem_core::fact::{
    AgentEnding, BranchChoiceFact, Evidence, Fact, FailureClass, GateScope, GateVerdict,
};
use mainstem_core::failed_gate::FailedGate;
use mainstem_core::id::{Oid, RunId, TaskId};
use mainstem_core::plan::quantities::render_size;
use mainstem_core::review;
use mainstem_host::git::{GitError, Repo};
use serde::Serialize;
use serde_json::Value;

use crate::query::{RunLookupError, RunReader};
use crate::repo_layout::RepoLayout;

/// One attempt as its facts tell it.
#[derive(Debug, Default)]
pub struct AttemptHistory {
    /// Which attempt it is, from 1.
    pub number: u32,
    pub agent: String,
    pub provider: String,
    pub model: Option<String>,
    pub model_reason: String,
    /// The session that the agent continued.
    pub resumed: Option<String>,
    /// The attempt whose work it started from.
    pub continues: Option<u32>,
    pub started_over: bool,
    /// The session that the agent named.
    pub session: Option<String>,
    pub branch: String,
    pub intended_at: i64,
    pub started_at: Option<i64>,
    pub agent_ended_at: Option<i64>,
    pub workspace: Option<String>,
    pub base: Option<Oid>,
    pub pid: Option<u32>,
    pub ending: Option<AgentEnding>,
    pub evidence: Option<Evidence>,
    /// Gates in the order in which they ran.
    pub gates: Vec<GateRunHistory>,
    /// The commits of snapshots, oldest first.
    pub snapshots: Vec<Oid>,
    pub questions: Vec<AttemptQuestion>,
    pub reviews: Vec<ReviewCycleHistory>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: Option<f64>,
    pub failed: Option<(FailureClass, String)>,
    pub landed: Option<Oid>,
}

/// One run of a gate as its fact tells it.
#[derive(Debug)]
pub struct GateRunHistory {
    pub scope: GateScope,
    pub gate: String,
    pub verdict: GateVerdict,
    pub duration_ms: u64,
    /// The folder of its job, relative to the state folder.
    pub log: Option<String>,
    /// The end of its output, or why it could not run.
    pub detail: String,
    pub cached: bool,
    /// The other tasks whose work was in the tree.
    pub with: Vec<TaskId>,
    /// What is known of it if it did not pass.
    pub failed: Option<FailedGate>,
}

/// A review of an attempt as its facts tell it.
#[derive(Debug, Default)]
pub struct ReviewCycleHistory {
    pub cycle: u32,
    pub reports: Vec<review::ReviewReportFact>,
    pub end: Option<review::ReviewEndFact>,
}

impl RunReader {
    /// All attempts of a task, oldest first.
    pub fn attempts(&self, task: &str) -> Result<Vec<AttemptHistory>, RunLookupError> {
        let mut known: BTreeMap<u32, AttemptHistory> = BTreeMap::new();
        for (record, fact) in self.facts(Some(task))? {
            let Some(number) = attempt_number(&fact) else { continue };
            let attempt = known
                .entry(number)
                .or_insert_with(|| AttemptHistory { number, ..AttemptHistory::default() });
            attempt.apply_fact(fact, record.at_ms);
        }
        Ok(known.into_values().collect())
    }
}

fn attempt_number(fact: &Fact) -> Option<u32> {
    use Fact as F;
    match fact {
        F::AttemptIntended { attempt, .. }
        | F::WorkspaceReady { attempt, .. }
        | F::BranchChosen(BranchChoiceFact { attempt, .. })
        | F::AgentStarted { attempt, .. }
        | F::UsageReported { attempt, .. }
        | F::SessionSeen { attempt, .. }
        | F::QuestionAsked { attempt, .. }
        | F::QuestionAnswered { attempt, .. }
        | F::AgentEnded { attempt, .. }
        | F::SnapshotTaken { attempt, .. }
        | F::EvidenceCollected { attempt, .. }
        | F::GateRan { attempt, .. }
        | F::ReviewStarted(review::ReviewStartFact { attempt, .. })
        | F::ReviewerEnded(review::ReviewReportFact { attempt, .. })
        | F::ReviewEnded(review::ReviewEndFact { attempt, .. })
        | F::AttemptFailed { attempt, .. }
        | F::TaskLanded { attempt, .. } => Some(*attempt),
        _ => None,
    }
}

impl AttemptHistory {
    fn apply_start(&mut self, fact: Fact, at: i64) {
        let Fact::AttemptIntended {
            agent,
            provider,
            model,
            branch,
            model_reason,
            session,
            continues,
            fresh,
            ..
        } = fact
        else {
            return;
        };
        (self.agent, self.provider, self.model, self.branch) = (agent, provider, model, branch);
        (self.model_reason, self.resumed) = (model_reason, session);
        (self.continues, self.started_over) = (continues.map(|work| work.attempt), fresh);
        self.intended_at = at;
    }

    fn apply_fact(&mut self, fact: Fact, at: i64) {
        match fact {
            intended @ Fact::AttemptIntended { .. } => self.apply_start(intended, at),
            Fact::SessionSeen { session, .. } => self.session = Some(session),
            Fact::BranchChosen(chosen) => self.branch = chosen.branch,
            Fact::WorkspaceReady { workspace, base, .. } => {
                (self.workspace, self.base) = (Some(workspace), Some(base));
            }
            Fact::AgentStarted { pid, .. } => {
                self.started_at.get_or_insert(at);
                self.pid = Some(pid).filter(|pid| *pid > 0);
            }
            Fact::UsageReported { usage, .. } => {
                self.input_tokens += usage.input_tokens;
                self.output_tokens += usage.output_tokens;
                if usage.cost_usd.is_some() {
                    *self.cost_usd.get_or_insert_default() += usage.paid_usd();
                }
            }
            Fact::QuestionAsked { question, text, .. } => {
                let answer = None;
                self.questions.push(AttemptQuestion { id: question, question: text, answer });
            }
            Fact::QuestionAnswered { question, text, .. } => {
                if let Some(asked) = self.questions.iter_mut().find(|q| q.id == question) {
                    asked.answer = Some(text);
                }
            }
            Fact::AgentEnded { ending, .. } => {
                (self.ending, self.agent_ended_at) = (Some(ending), Some(at));
            }
            Fact::SnapshotTaken { commit, .. } => self.snapshots.push(commit),
            Fact::EvidenceCollected { evidence, .. } => self.evidence = Some(evidence),
            fact @ Fact::GateRan { .. } => {
                let failed = FailedGate::from_fact(&fact);
                let Fact::GateRan {
                    scope,
                    gate,
                    verdict,
                    duration_ms,
                    log,
                    detail,
                    cached,
                    with,
                    ..
                } = fact
                else {
                    return;
                };
                let gate = GateRunHistory {
                    scope,
                    gate,
                    verdict,
                    duration_ms,
                    log,
                    detail,
                    cached,
                    with,
                    failed,
                };
                self.gates.push(gate);
            }
            Fact::AttemptFailed { class, reason, .. } => self.failed = Some((class, reason)),
            Fact::TaskLanded { commit, .. } => self.landed = Some(commit),
            other => ReviewCycleHistory::apply_fact(&mut self.reviews, other),
        }
    }

    /// The commits at which its work begins and ends, as far as git still has them.
    pub fn work_range(&self, repo: &Repo) -> Result<Option<(Oid, Oid)>, GitError> {
        if let Some(evidence) = &self.evidence
            && evidence.tip != evidence.base
            && !evidence.base.as_str().is_empty()
            && repo.has_object(&evidence.tip)?
        {
            return Ok(Some((evidence.base.clone(), evidence.tip.clone())));
        }
        let Some(base) = self.base.clone() else { return Ok(None) };
        for commit in self.snapshots.iter().rev() {
            if *commit != base && repo.has_object(commit)? {
                return Ok(Some((base, commit.clone())));
            }
        }
        if self.agent_ended_at.is_none() && !self.branch.is_empty() {
            // The agent works and there is no snapshot yet: what it has committed is on its branch.
            let place = Path::new(self.workspace.as_deref().unwrap_or_default());
            let tip = repo.read_agent_tip(place, &self.branch)?;
            return Ok(tip.filter(|tip| *tip != base).map(|tip| (base, tip)));
        }
        Ok(None)
    }

    /// What came of it, in words.
    pub fn outcome(&self) -> String {
        match (&self.landed, &self.failed, &self.ending) {
            (Some(commit), _, _) => {
                let commit = commit.as_str();
                format!("landed as {}", commit.get(..9).unwrap_or(commit))
            }
            (None, Some((class, reason)), _) => {
                let words: Vec<&str> = reason.split_whitespace().collect();
                format!("{}: {}", class.as_str(), words.join(" "))
            }
            (None, None, Some(ending)) => describe_ending(ending),
            (None, None, None) => "in progress".to_owned(),
        }
    }

    /// The attempt for programs.
    pub fn detail(&self, layout: &RepoLayout, run: &RunId, task: &TaskId) -> AttemptDetail {
        let prompt = layout.attempt_dir(run, task, self.number).join("prompt.md");
        AttemptDetail {
            attempt: self.number,
            agent: self.agent.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            model_reason: self.model_reason.clone(),
            branch: self.branch.clone(),
            session: self.session.clone(),
            resumed_session: self.resumed.clone(),
            continues: self.continues,
            started_over: self.started_over,
            intended_at: self.intended_at,
            started_at: self.started_at,
            ended_at: self.agent_ended_at,
            agent_ended_at: self.agent_ended_at,
            workspace: self.workspace.clone(),
            base: self.base.as_ref().map(ToString::to_string),
            pid: self.pid,
            tip: self.evidence.as_ref().map(|evidence| evidence.tip.to_string()),
            evidence: part_of_fact(&self.evidence),
            ending: part_of_fact(&self.ending),
            gates: self.gates.iter().map(GateRunHistory::detail).collect(),
            questions: self.questions.clone(),
            reviews: self.reviews.iter().map(ReviewCycleHistory::detail).collect(),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cost_usd: self.cost_usd,
            class: self.failed.as_ref().map(|(class, _)| class.as_str().to_owned()),
            reason: self.failed.as_ref().map(|(_, reason)| reason.clone()),
            outcome: self.outcome(),
            commit: self.landed.as_ref().map(ToString::to_string),
            prompt: layout.relative_name(&prompt),
            output: layout.relative_name(&layout.agent_job(run, task, self.number)),
        }
    }
}

impl GateRunHistory {
    fn detail(&self) -> GateDetail {
        GateDetail {
            scope: self.scope.as_str().to_owned(),
            gate: self.gate.clone(),
            verdict: self.verdict.as_str().to_owned(),
            duration_ms: self.duration_ms,
            log: self.log.clone(),
            detail: self.detail.clone(),
            cached: self.cached,
            with: self.with.iter().map(ToString::to_string).collect(),
            exit_code: self.failed.as_ref().and_then(|failed| failed.exit_code),
            cause: part_of_fact(&self.failed.as_ref().map(|failed| &failed.cause)),
        }
    }
}

impl ReviewCycleHistory {
    /// Adds a fact, if it is one of a review.
    fn apply_fact(all: &mut Vec<Self>, fact: Fact) {
        match (fact, all.last_mut()) {
            (Fact::ReviewStarted(started), _) => {
                all.push(Self { cycle: started.cycle, ..Self::default() });
            }
            (Fact::ReviewerEnded(report), Some(review)) => review.reports.push(report),
            (Fact::ReviewEnded(end), Some(review)) => review.end = Some(end),
            _ => {}
        }
    }

    fn detail(&self) -> ReviewDetail {
        let end = self.end.as_ref();
        ReviewDetail {
            cycle: self.cycle,
            reports: part_of_fact(&self.reports),
            verdict: end.map(|end| end.verdict.as_str().to_owned()),
            by: end.map(|end| end.by.clone()),
            findings: part_of_fact(&end.map(|end| &end.findings)),
            stats: part_of_fact(&end.map(|end| &end.stats)),
        }
    }
}

/// A part of a fact as JSON, with its money rounded.
fn part_of_fact(part: &impl Serialize) -> Value {
    with_rounded_money(serde_json::to_value(part).expect("BUG: facts are plain data"))
}

/// How an agent ended, in words.
pub fn describe_ending(ending: &AgentEnding) -> String {
    match ending {
        AgentEnding::Exited { code } => format!("exit code {code}"),
        AgentEnding::Signalled { signal } => format!("signal {signal}"),
        AgentEnding::TimedOut { idle: true } => "timed out: no output for too long".to_owned(),
        AgentEnding::TimedOut { idle: false } => "timed out".to_owned(),
        AgentEnding::OutOfMemory { limit } => {
            let limit = render_size(*limit);
            format!("killed: used more memory than limits.memory_per_agent ({limit})")
        }
        AgentEnding::Stopped {} => "stopped".to_owned(),
        AgentEnding::NotStarted { why, .. } => format!("could not start: {why}"),
        AgentEnding::Vanished {} => "vanished (killed, or the machine went down)".to_owned(),
    }
}
