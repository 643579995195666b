//! Names and samples of facts, and which moves of which phases have been walked.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::fact::{
    AgentClaim, AgentEnding, BranchChoiceFact, Evidence, Fact, FailureClass, GateScope,
    GateVerdict, LimitKind, StopFollowUp, StopReason, Usage,
};
use mainstem_core::hold::{self, HoldKind, HoldReason};
use mainstem_core::id::{Oid, TaskId, Time};
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::Plan;
use mainstem_core::{publish, pull_request, review};

/// A fact's name; landings with and without work are two, because phases tell them apart.
pub fn kind(fact: &Fact) -> &'static str {
    use Fact as F;
    match fact {
        F::RunStarted { .. } => "run_started",
        F::PlanAdopted { .. } => "plan_adopted",
        F::EngineStarted { .. } => "engine_started",
        F::EngineStopped { .. } => "engine_stopped",
        F::RunPaused {} => "run_paused",
        F::RunResumed {} => "run_resumed",
        F::RunDraining { .. } => "run_draining",
        F::RunCancelled {} => "run_cancelled",
        F::JobsChanged { .. } => "jobs_changed",
        F::AttemptIntended { .. } => "attempt_intended",
        F::WorkspaceReady { .. } => "workspace_ready",
        F::BranchChosen(_) => "branch_chosen",
        F::AgentStarted { .. } => "agent_started",
        F::UsageReported { .. } => "usage_reported",
        F::SessionSeen { .. } => "session_seen",
        F::ProviderLimited { .. } => "provider_limited",
        F::ProviderParked { .. } => "provider_parked",
        F::ProviderFreed { .. } => "provider_freed",
        F::BudgetReached { .. } => "budget_reached",
        F::IssueLogged { .. } => "issue_logged",
        F::TaskProposed { .. } => "task_proposed",
        F::ProposalDecided { .. } => "proposal_decided",
        F::QuestionAsked { .. } => "question_asked",
        F::QuestionAnswered { .. } => "question_answered",
        F::AgentResumed { .. } => "agent_resumed",
        F::StopRequested { .. } => "stop_requested",
        F::AgentEnded { .. } => "agent_ended",
        F::SnapshotTaken { .. } => "snapshot_taken",
        F::EvidenceCollected { .. } => "evidence_collected",
        F::GateRan { .. } => "gate_ran",
        F::TargetVerified { .. } => "target_verified",
        F::TargetRechecked(_) => "target_rechecked",
        F::ReviewStarted(_) => "review_started",
        F::ReviewerEnded(_) => "reviewer_ended",
        F::ReviewEnded(_) => "review_ended",
        F::TaskQueued { .. } => "task_queued",
        F::AttemptFailed { .. } => "attempt_failed",
        F::CarFormed { .. } => "car_formed",
        F::CarConflicted { .. } => "car_conflicted",
        F::CarEvicted { .. } => "car_evicted",
        F::CandidateHeld(_) => "candidate_held",
        F::CandidateReleased(_) => "candidate_released",
        F::LandingIntended { .. } => "landing_intended",
        F::LandingRefused { .. } => "landing_refused",
        F::TaskLanded { empty: true, .. } => "task_landed (empty)",
        F::TaskLanded { .. } => "task_landed",
        F::CheckoutFollowed { .. } => "checkout_followed",
        F::LandingUndone { .. } => "landing_undone",
        F::PushFailed(_) => "push_failed",
        F::PushIntended(_) => "push_intended",
        F::PullOpened(_) => "pull_opened",
        F::PullSeen(_) => "pull_seen",
        F::MergeIntended(_) => "merge_intended",
        F::PullReworked(_) => "pull_reworked",
        F::PullClosed(_) => "pull_closed",
        F::PullStacked(_) => "pull_stacked",
        F::TaskFailed { .. } => "task_failed",
        F::TaskConflicted { .. } => "task_conflicted",
        F::TaskBlocked { .. } => "task_blocked",
        F::TaskUnblocked { .. } => "task_unblocked",
        F::TaskCancelled { .. } => "task_cancelled",
        F::TaskSkipped { .. } => "task_skipped",
        F::TaskRetried { .. } => "task_retried",
        F::WorkspaceRemoved { .. } => "workspace_removed",
        F::RefsRemoved { .. } => "refs_removed",
        F::Noticed { .. } => "noticed",
    }
}

/// What an attempt with some work left.
pub fn evidence() -> Evidence {
    Evidence {
        base: "c0".into(),
        tip: "c1".into(),
        commits: 1,
        files: 1,
        insertions: 1,
        deletions: 0,
        diff_hash: String::new(),
        recovered: false,
        flaws: Vec::new(),
        tree: None,
        guarded: Vec::new(),
    }
}

/// One fact of every name, about task `T`.
pub fn samples() -> Vec<Fact> {
    let mut all = run_samples();
    all.extend(attempt_samples());
    all.extend(remark_samples());
    all.extend(end_samples());
    all.extend(pull_samples());
    all.extend(review_samples());
    all
}

fn run_samples() -> Vec<Fact> {
    let task = TaskId::new("T");
    vec![
        Fact::RunStarted { target: "main".to_owned(), base: "c0".into(), bring_to: None },
        Fact::PlanAdopted {
            revision: 1,
            hash: String::new(),
            plan: Box::new(Plan::default()),
            dropped: Vec::new(),
            file: None,
        },
        Fact::EngineStarted {
            epoch: 1,
            pid: 1,
            host: String::new(),
            version: String::new(),
            jobs: None,
        },
        Fact::EngineStopped { why: StopReason::Rested },
        Fact::RunPaused {},
        Fact::RunResumed {},
        Fact::RunDraining { task, abort: false },
        Fact::RunCancelled {},
        Fact::JobsChanged { jobs: 1 },
        Fact::TargetVerified {
            commit: "c0".into(),
            tree: "t0".into(),
            gates: vec!["make test".to_owned()],
            tools: String::new(),
            duration_ms: 1,
            cached: false,
        },
        Fact::TargetRechecked(mainstem_core::recheck::TargetRecheckFact {
            commit: "c0".into(),
            tree: "t0".into(),
            tasks: Vec::new(),
            failure: None,
        }),
        Fact::ProviderParked {
            provider: String::new(),
            kind: LimitKind::Breaker,
            until: Time(0),
            message: String::new(),
        },
        Fact::ProviderFreed { provider: String::new() },
        Fact::RefsRemoved { refs: Vec::new(), why: String::new() },
        Fact::ProposalDecided { proposal: "P1".to_owned(), becomes: None },
    ]
}

fn attempt_samples() -> Vec<Fact> {
    let (task, attempt) = (TaskId::new("T"), 1);
    let none = String::new;
    let oid = || Oid::new("c1");
    let t = || task.clone();
    vec![
        Fact::AttemptIntended {
            task: t(),
            attempt,
            agent: none(),
            provider: none(),
            model: None,
            branch: none(),
            reserved_usd: 0.0,
            model_reason: none(),
            session: None,
            continues: None,
            fresh: false,
        },
        Fact::WorkspaceReady {
            task: t(),
            attempt,
            workspace: none(),
            base: oid(),
            continued: None,
        },
        Fact::BranchChosen(BranchChoiceFact {
            task: t(),
            attempt,
            branch: none(),
            instead_of: none(),
        }),
        Fact::AgentStarted { task: t(), attempt, pid: 1 },
        Fact::UsageReported { task: t(), attempt, mark: 1, usage: Usage::default() },
        Fact::ProviderLimited {
            provider: none(),
            task: t(),
            attempt,
            mark: 1,
            until: Time(0),
            message: none(),
            kind: LimitKind::Rate,
            retrying: false,
        },
        Fact::QuestionAsked {
            question: none(),
            task: t(),
            attempt,
            number: 1,
            mark: 1,
            text: none(),
            options: Vec::new(),
            default: None,
            deadline: None,
            reference: None,
        },
        Fact::QuestionAnswered { question: none(), task: t(), attempt, text: none(), by: none() },
        Fact::AgentResumed { task: t(), attempt, question: none() },
        Fact::StopRequested { task: t(), attempt, then: StopFollowUp::Cancel, reason: none() },
        Fact::AgentEnded {
            task: t(),
            attempt,
            ending: AgentEnding::Exited { code: 0 },
            claim: AgentClaim::None,
        },
        Fact::SnapshotTaken { task: t(), attempt, refname: none(), commit: oid(), why: none() },
        Fact::EvidenceCollected { task: t(), attempt, evidence: evidence() },
        Fact::GateRan {
            task: t(),
            attempt,
            scope: GateScope::Task,
            gate: none(),
            verdict: GateVerdict::Passed,
            tree: oid(),
            duration_ms: 0,
            log: None,
            detail: none(),
            cached: false,
            with: Vec::new(),
            tools: none(),
            flakes: 0,
            exit_code: None,
            cause: None,
        },
        Fact::TaskQueued { task: t(), attempt, tip: oid() },
        Fact::AttemptFailed {
            task: t(),
            attempt,
            class: FailureClass::AgentFailed,
            reason: none(),
            retry_at: None,
            help: None,
        },
    ]
}

fn remark_samples() -> Vec<Fact> {
    let (task, attempt) = (TaskId::new("T"), 1);
    let none = String::new;
    let t = || task.clone();
    vec![
        Fact::SessionSeen { task: t(), attempt, mark: 1, session: none() },
        Fact::BudgetReached {
            task: t(),
            per_task: true,
            percent: 80,
            spent_usd: 0.0,
            limit_usd: 0.0,
        },
        Fact::IssueLogged {
            task: t(),
            attempt,
            mark: 1,
            title: none(),
            text: none(),
            severity: none(),
        },
        Fact::TaskProposed {
            task: t(),
            attempt,
            mark: 1,
            id: None,
            title: none(),
            description: none(),
            needs: Vec::new(),
        },
    ]
}

fn review_samples() -> Vec<Fact> {
    let (task, attempt, cycle) = (TaskId::new("T"), 1, 1);
    let (t, tree) = (|| task.clone(), || Oid::new("t1"));
    let started =
        review::ReviewStartFact { task: t(), attempt, tree: tree(), cycle, reviewers: Vec::new() };
    let report = review::ReviewReportFact {
        task: t(),
        attempt,
        tree: tree(),
        reviewer: String::new(),
        agent: String::new(),
        outcome: review::ReviewerOutcome::Stopped {},
        duration_ms: 0,
        log: None,
    };
    let end = review::ReviewEndFact {
        task: t(),
        attempt,
        tree: tree(),
        cycle,
        verdict: review::ReviewOpinion::Approved,
        by: String::new(),
        findings: Vec::new(),
        stats: review::ReviewStats::default(),
    };
    vec![Fact::ReviewStarted(started), Fact::ReviewerEnded(report), Fact::ReviewEnded(end)]
}

fn pull_samples() -> Vec<Fact> {
    let (task, attempt, number) = (TaskId::new("T"), 1, 1);
    let none = String::new;
    let oid = || Oid::new("c1");
    let t = || task.clone();
    let push = pull_request::PullRequestPush {
        task: t(),
        attempt,
        branch: none(),
        tip: oid(),
        lease: None,
    };
    let opened =
        pull_request::PullOpenedFact { task: t(), attempt, number, url: none(), created: true };
    let seen = pull_request::PullSeenFact {
        task: t(),
        attempt,
        number,
        head: oid(),
        waits_for: none(),
        foreign: false,
    };
    let wish = pull_request::MergeIntentFact { task: t(), attempt, number, head: oid() };
    let rework =
        pull_request::PullReworkFact { task: t(), attempt, number, head: oid(), reviews: 0 };
    let trouble = publish::PushTrouble {
        task: t(),
        attempt,
        remote: none(),
        reason: none(),
        help: none(),
        last: false,
    };
    vec![
        Fact::PushFailed(trouble),
        Fact::PushIntended(push),
        Fact::PullOpened(opened),
        Fact::PullSeen(seen),
        Fact::MergeIntended(wish),
        Fact::PullReworked(rework),
        Fact::PullClosed(pull_request::PullClosedFact { task: t(), attempt, number }),
        Fact::PullStacked(pull_request::PullStackedFact { task: t(), attempt, on: None }),
    ]
}

fn end_samples() -> Vec<Fact> {
    let (task, attempt) = (TaskId::new("T"), 1);
    let none = String::new;
    let oid = || Oid::new("c1");
    let t = || task.clone();
    vec![
        Fact::CarFormed {
            task: t(),
            attempt,
            onto: oid(),
            commit: oid(),
            tree: oid(),
            reused: Vec::new(),
        },
        Fact::CarConflicted { task: t(), attempt, onto: oid(), files: Vec::new() },
        Fact::CarEvicted { task: t(), attempt, reason: none() },
        Fact::CandidateHeld(hold::HoldFact {
            task: t(),
            attempt,
            reason: HoldReason::GuardedFiles { changes: Vec::new() },
        }),
        Fact::CandidateReleased(hold::HoldReleaseFact {
            task: t(),
            attempt,
            kind: HoldKind::GuardedFiles,
            by: none(),
        }),
        Fact::LandingIntended { task: t(), attempt, old: oid(), new: oid(), tree: oid() },
        Fact::LandingRefused { task: t(), attempt, expected: oid(), found: None },
        Fact::TaskLanded { task: t(), attempt, commit: oid(), old: oid(), empty: false },
        Fact::TaskLanded { task: t(), attempt, commit: oid(), old: oid(), empty: true },
        Fact::CheckoutFollowed { task: t(), moved: true, why: none() },
        Fact::LandingUndone { task: t(), commit: oid(), old: oid(), new: oid() },
        Fact::TaskFailed { task: t(), class: FailureClass::AgentFailed, reason: none() },
        Fact::TaskConflicted { task: t(), files: Vec::new() },
        Fact::TaskBlocked { task: t(), chain: Vec::new(), reason: none() },
        Fact::TaskUnblocked { task: t() },
        Fact::TaskCancelled { task: t(), reason: none() },
        Fact::TaskSkipped { task: t(), reason: none() },
        Fact::TaskRetried { task: t(), hint: None, agent: None, fresh: false },
        Fact::WorkspaceRemoved { task: t(), attempt, workspace: none() },
        Fact::Noticed { task: Some(t()), message: none(), lasts: true },
    ]
}

/// A move: from where, by what, to where.
pub type Move = (Phase, &'static str, Phase);

/// All moves that [`Phase::next`] allows where everything lands here.
pub fn legal() -> BTreeSet<Move> {
    let mut moves = BTreeSet::new();
    for phase in PHASES {
        for fact in samples().into_iter().filter(|fact| !fact.is_about_pull_request()) {
            if let Ok(next) = phase.next(&fact) {
                moves.insert((phase, kind(&fact), next));
            }
        }
    }
    moves
}

/// Moves that were walked, and how often.
#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<Move, u64>);

impl Coverage {
    /// This move was walked.
    pub fn walked(&mut self, from: Phase, fact: &Fact, to: Phase) {
        *self.0.entry((from, kind(fact), to)).or_default() += 1;
    }
    /// Legal moves that never were, in words.
    pub fn missing(&self) -> Vec<String> {
        legal()
            .into_iter()
            // These journals never lose their end, so nothing is found on the branch too early.
            .filter(|(from, by, _)| *by != "task_landed" || *from == Phase::Merging)
            // Only `clean` takes the workspaces of tasks that may be tried again.
            .filter(|(from, by, _)| {
                *by != "workspace_removed" || !matches!(from, Phase::Failed | Phase::Blocked)
            })
            // Nobody answers questions for money here (`flow` looks at that).
            .filter(|(from, by, _)| *by != "budget_reached" || from.is_active())
            .filter(|step| !self.0.contains_key(step))
            .map(|(from, by, to)| format!("{} --{by}--> {}", from.as_str(), to.as_str()))
            .collect()
    }
    /// The rarest moves, for tuning.
    pub fn rarest(&self, count: usize) -> Vec<String> {
        let mut all: Vec<_> = self.0.iter().map(|(step, n)| (n, step)).collect();
        all.sort();
        let line = |(n, (from, by, to)): &(&u64, &Move)| {
            format!("{n}: {} --{by}--> {}", from.as_str(), to.as_str())
        };
        all.iter().take(count).map(line).collect()
    }
}

#[test]
fn journals_of_before_the_first_release_call_a_queued_task_boarded() {
    let old = r#"{"type":"task_boarded","task":"A","attempt":1,"tip":"c0ffee"}"#;
    let fact: Fact = serde_json::from_str(old).unwrap();
    assert_eq!(fact, Fact::TaskQueued { task: "A".into(), attempt: 1, tip: "c0ffee".into() });
    assert!(serde_json::to_string(&fact).unwrap().contains(r#""type":"task_queued""#));
}
