//! What stands between a task's own gates and the train: review agents, then people. Both verdicts are
//! about one tree; what was said of it is not asked for again.

use crate::config::StuckReviewAction;
use crate::effect::Effect;
use crate::fact::{AnsweringAgent, Fact, FailureClass, GateScope, GateVerdict, LimitKind, Usage};
use crate::gate;
use crate::id::{Oid, TaskIx};
use crate::limits;
use crate::machine::owners::ReviewerAtWork;
use crate::machine::{GateResult, Machine};
use crate::phase::Phase;
use crate::provider::{self, ProviderStanding};
use crate::review::{
    self, ReviewEndFact, ReviewOpinion, ReviewPolicy, ReviewProgress, ReviewReportFact,
    ReviewStartFact, ReviewerOutcome,
};
use crate::tasks::{AttemptState, SlotKind};

/// Lanes from here on are for reviewers: the train has none with such numbers.
pub(super) const LANE_FIRST: u32 = 1_001;

/// Asked for with the news of one reviewer.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewerResult {
    pub task: TaskIx,
    pub attempt: u32,
    /// What was looked at.
    pub tree: Oid,
    /// In which review of the task.
    pub cycle: u32,
    /// How often it had been told to wait in it.
    pub asked: u32,
    pub reviewer: String,
    /// What came of it.
    pub outcome: ReviewerOutcome,
    pub usage: Vec<Usage>,
    pub duration_ms: u64,
    /// Where its output is.
    pub log: Option<String>,
}

impl Machine {
    /// Gates of a task that run a command or look at files, in order.
    pub fn task_gates(&self, t: TaskIx) -> Vec<String> {
        let own = self.adopted.plan().tasks[t.index()].verify.iter();
        let own = own.filter(|line| !gate::needs_person_or_reviewer(line));
        let shared: &[String] =
            if self.lands_on_forge(t) { &self.settings.gates.verify } else { &[] };
        own.chain(shared).cloned().collect()
    }

    fn needs_review(&self, t: TaskIx) -> bool {
        let own = || {
            self.adopted.plan().tasks[t.index()]
                .verify
                .iter()
                .any(|line| line.trim() == review::GATE)
        };
        !self.settings.review.agents.is_empty() || self.settings.gates.review || own()
    }

    /// The tree that an attempt offers.
    pub(super) fn offered_tree(&self, t: TaskIx) -> Option<Oid> {
        let evidence = self.tasks.get(t).current.as_ref()?.evidence.as_ref()?;
        Some(evidence.tree.clone().unwrap_or_else(|| evidence.tip.clone()))
    }

    /// The task's own gates are content: what others have to say comes next, then it joins the train.
    pub(super) fn advance_after_gates(&mut self, t: TaskIx, attempt: u32) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
        // Nothing to look at.
        if evidence.base == evidence.tip || evidence.files == 0 {
            return self.queue_for_landing(t, attempt);
        }
        let tree = self.offered_tree(t).expect("BUG: there is evidence");
        if self.needs_review(t) && !self.check_review(t, attempt, &tree) {
            return;
        }
        // What the train merges is shown to people once the gates passed on the merged tree.
        if self.lands_on_forge(t)
            && let Some(line) = self.missing_approvals(t).first()
        {
            return self.ask_approval(t, attempt, line);
        }
        self.queue_for_landing(t, attempt);
    }

    /// Is the review of this tree over and good? If there is none, one begins.
    fn check_review(&mut self, t: TaskIx, attempt: u32, tree: &Oid) -> bool {
        let state = self.tasks.get(t);
        if let Some(course) = state.current.as_ref().and_then(|a| a.review.as_ref()) {
            return course.ended.as_ref().is_some_and(|end| end.verdict == ReviewOpinion::Approved);
        }
        if let Some(known) = state.reviews.verdicts.get(tree).cloned() {
            return self.reuse_review(t, attempt, known);
        }
        let reviewers = self.settings.review.agents.clone();
        if reviewers.is_empty() {
            let help = Some("add reviewers to mainstem.toml: [review] agents".to_owned());
            let reason = "cannot review: no reviewers are configured".to_owned();
            self.end_attempt(t, FailureClass::NeedsInput, reason, help);
            return false;
        }
        let (task, tree, cycle) = (self.task_id(t), tree.clone(), state.reviews.cycles + 1);
        self.emit_fact(Fact::ReviewStarted(ReviewStartFact {
            task,
            attempt,
            tree,
            cycle,
            reviewers,
        }));
        false
    }

    /// This very tree was reviewed in an earlier attempt: its verdict still holds.
    fn reuse_review(&mut self, t: TaskIx, attempt: u32, known: ReviewEndFact) -> bool {
        self.record_review_verdict(t, attempt, &known, true);
        if known.verdict == ReviewOpinion::Approved {
            return true;
        }
        self.handle_change_request(t, attempt, &known);
        false
    }

    fn record_review_verdict(
        &mut self,
        t: TaskIx,
        attempt: u32,
        end: &ReviewEndFact,
        cached: bool,
    ) {
        let good = end.verdict == ReviewOpinion::Approved;
        let gate = GateResult {
            gate: review::GATE.to_owned(),
            verdict: if good { GateVerdict::Passed } else { GateVerdict::Failed },
            duration_ms: 0,
            log: None,
            detail: review::finding_lines(&end.findings),
            cached,
            flakes: 0,
            exit_code: None,
            cause: None,
        };
        self.record_gate_results((t, attempt), GateScope::Task, &end.tree, &[], &[gate]);
    }

    /// One reviewer is through, or was told to wait.
    pub(super) fn handle_reviewer_result(&mut self, news: ReviewerResult) {
        let ReviewerResult { task: t, attempt, .. } = news;
        self.issued.end_reviewer(t, attempt, &news.reviewer);
        if !self.is_current_attempt(t, attempt, &[Phase::Verifying]) {
            return;
        }
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let stopped = current.stop.is_some();
        let waits = |course: &ReviewProgress| {
            let asked = course.limits.get(&news.reviewer).copied().unwrap_or(0);
            (&course.tree, course.cycle, asked) == (&news.tree, news.cycle, news.asked)
                && course.missing_reviewers().any(|name| *name == news.reviewer)
        };
        if !current.review.as_ref().is_some_and(waits) {
            return;
        }
        if stopped {
            return self.fail_attempt(t, FailureClass::Interrupted, "stopped".to_owned());
        }
        // Reviewers that were ended because we leave said nothing: the next life asks them.
        if news.outcome == (ReviewerOutcome::Stopped {}) || self.engine.is_interrupting() {
            return;
        }
        self.record_reviewer_report(t, attempt, news);
        self.conclude_review(t, attempt);
    }

    fn record_reviewer_report(&mut self, t: TaskIx, attempt: u32, news: ReviewerResult) {
        let agent = self.settings.review.reviewer_settings(&news.reviewer).agent;
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let course = current.review.as_ref().expect("BUG: a review is under way");
        let (reviewer, cycle, asked) = (&news.reviewer, course.cycle, news.asked);
        let question =
            format!("review {cycle}.{asked} of {}/{attempt} by {reviewer}", self.task_id(t));
        let known = current.consulted.contains(&question);
        if !known {
            let answering = AnsweringAgent { agent: agent.clone(), question };
            for usage in news.usage {
                let usage = Usage { answering: Some(answering.clone()), ..usage };
                self.record_usage(t, attempt, 0, usage);
            }
        }
        if let ReviewerOutcome::Limited { kind, wait_ms, message } = &news.outcome {
            self.handle_reviewer_limit(t, attempt, (&agent, *kind), *wait_ms, message);
        }
        let outcome = match news.outcome {
            ReviewerOutcome::Said { verdict, findings } => {
                let findings = findings.into_iter().take(review::FINDINGS_MAX);
                ReviewerOutcome::Said {
                    verdict,
                    findings: findings.map(review::ReviewFinding::clipped_for_fact).collect(),
                }
            }
            ReviewerOutcome::Failed { why } => {
                ReviewerOutcome::Failed { why: limits::clip_for_fact(&why) }
            }
            // It has been waited for often enough, like for any attempt.
            ReviewerOutcome::Limited { kind: LimitKind::Rate, .. }
                if self.is_reviewer_wait_over(&agent) =>
            {
                ReviewerOutcome::Failed { why: "rate-limited by the provider".to_owned() }
            }
            other => other,
        };
        self.emit_fact(Fact::ReviewerEnded(ReviewReportFact {
            task: self.task_id(t),
            attempt,
            tree: news.tree,
            reviewer: news.reviewer,
            agent,
            outcome,
            duration_ms: news.duration_ms,
            log: news.log,
        }));
    }

    fn handle_reviewer_limit(
        &mut self,
        t: TaskIx,
        attempt: u32,
        (agent, kind): (&str, LimitKind),
        wait_ms: Option<u64>,
        message: &str,
    ) {
        let settings = &self.settings.limits;
        let unsaid = match kind {
            LimitKind::Quota => settings.quota_wait_ms,
            LimitKind::Rate | LimitKind::Breaker => settings.rate_limit_wait_ms,
        };
        let usual = settings.rate_limit_wait_ms;
        let wait = provider::believed_wait_ms(kind, wait_ms.unwrap_or(unsaid), usual);
        let task = self.task_id(t);
        let until = self.now.plus_ms(wait + provider::jitter_ms(task.as_str(), wait));
        let provider = self.agent_provider(agent);
        let (mark, message, retrying) = (0, limits::clip_for_fact(message), false);
        let limited =
            Fact::ProviderLimited { provider, task, attempt, mark, until, message, kind, retrying };
        self.emit_fact(limited);
    }

    fn is_reviewer_wait_over(&self, agent: &str) -> bool {
        let known = self.providers.get(&self.agent_provider(agent));
        known.is_some_and(|known| known.incidents() > self.settings.limits.rate_limit_waits)
    }

    fn agent_provider(&self, agent: &str) -> String {
        let known = self.settings.agents.get(agent);
        known.map_or_else(|| agent.to_owned(), |known| known.provider_name(agent))
    }

    /// All reviewers are through: what they said becomes one verdict.
    fn conclude_review(&mut self, t: TaskIx, attempt: u32) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let course = current.review.as_ref().expect("BUG: a review is under way");
        if course.ended.is_some() || course.missing_reviewers().next().is_some() {
            return;
        }
        let said = course.reports.iter().map(|(name, report)| match &report.outcome {
            ReviewerOutcome::Said { findings, .. } => (name.clone(), findings.clone()),
            _ => (name.clone(), Vec::new()),
        });
        let (mut findings, stats) = review::consolidate_findings(&said.collect::<Vec<_>>());
        let policy = ReviewPolicy {
            changes_at: self.settings.review.changes_at,
            blocks_at: self.settings.review.blocks_at,
        };
        let outcomes = course.reports.values().map(|report| &report.outcome);
        let verdict = review::judge_review(outcomes, &findings, policy);
        findings.truncate(review::FINDINGS_MAX);
        let (task, tree, cycle) = (self.task_id(t), course.tree.clone(), course.cycle);
        let by = "reviewers".to_owned();
        self.end_review(
            t,
            ReviewEndFact { task, attempt, tree, cycle, verdict, by, findings, stats },
        );
    }

    pub(super) fn end_review(&mut self, t: TaskIx, end: ReviewEndFact) {
        let attempt = end.attempt;
        self.emit_fact(Fact::ReviewEnded(end.clone()));
        self.record_review_verdict(t, attempt, &end, false);
        if end.verdict == ReviewOpinion::Approved {
            self.advance_after_gates(t, attempt);
        } else {
            self.handle_change_request(t, attempt, &end);
        }
    }

    /// Reviewers want changes: back to the agent with what they found, as often as the settings say. What
    /// nobody gave a reason for is no work for an agent: a person decides.
    fn handle_change_request(&mut self, t: TaskIx, attempt: u32, end: &ReviewEndFact) {
        let spent = self.tasks.get(t).spent.reviews;
        let most = self.settings.review.max_cycles;
        let Some(first) = end.findings.first() else {
            let why = self.silent_reviewers(t);
            return self.ask_about_review(
                t,
                attempt,
                &end.tree,
                &format!("no findings reported; {why}"),
            );
        };
        let count = end.findings.len();
        let found =
            if count == 1 { "1 finding".to_owned() } else { format!("{count} findings, first") };
        let what = format!("{}: {found} {}", end.verdict.as_str(), first.to_line());
        if spent >= most && self.settings.review.on_stuck == StuckReviewAction::Ask {
            let why = format!("still not approved after {most} review cycles: {what}");
            return self.ask_about_review(t, attempt, &end.tree, &why);
        }
        let reason = match spent >= most {
            true => format!("still not approved after {most} review cycles: {what}"),
            false => format!("review: {what}"),
        };
        self.fail_attempt(t, FailureClass::ChangesNeeded, reason);
    }

    fn silent_reviewers(&self, t: TaskIx) -> String {
        let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.as_ref());
        let reports = course.into_iter().flat_map(|course| course.reports.values());
        let words = reports.filter_map(|report| match &report.outcome {
            ReviewerOutcome::Failed { why } => Some(format!("{}: {why}", report.reviewer)),
            ReviewerOutcome::Said { verdict, .. } if *verdict != ReviewOpinion::Approved => {
                Some(format!("{} says {}", report.reviewer, verdict.as_str()))
            }
            _ => None,
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "no reason given".to_owned() } else { words.join("; ") }
    }

    /// Approvals whose time is up were not given; a review that no money is left for is not made; and where
    /// the journal lost its end after a review, what follows from it is decided now.
    pub(super) fn advance_reviews(&mut self) {
        self.resume_reviews();
        self.expire_approvals();
        let budget = &self.settings.budget;
        let spent = |t: TaskIx| {
            let all = budget.hard && budget.usd.is_some_and(|usd| self.spending.spent_usd() >= usd);
            all || self.task_budget_spent(t)
        };
        let broke: Vec<TaskIx> = self
            .tasks
            .active_tasks()
            .filter(|t| self.has_missing_reviewers(*t) && !self.is_under_review(*t) && spent(*t))
            .collect();
        for t in broke {
            let reason = "the budget was spent before the review".to_owned();
            self.end_attempt(
                t,
                FailureClass::NeedsInput,
                reason,
                Some("raise the budget".to_owned()),
            );
        }
    }

    fn resume_reviews(&mut self) {
        let over = |t: &TaskIx| {
            let current = self.tasks.get(*t).current.as_ref();
            self.tasks.phase(*t) == Phase::Verifying
                && current.is_some_and(|a| a.stop.is_none() && a.review.is_some())
                && !self.has_missing_reviewers(*t)
                && !self.waits_for_decision(*t)
        };
        let over: Vec<TaskIx> = self.tasks.active_tasks().filter(over).collect();
        for t in over {
            let Some(current) = self.tasks.get(t).current.as_ref() else { continue };
            let attempt = current.n;
            match current.review.as_ref().and_then(|course| course.ended.clone()) {
                None => self.conclude_review(t, attempt),
                Some(end) if end.verdict == ReviewOpinion::Approved => {
                    self.advance_after_gates(t, attempt);
                }
                Some(end) => self.handle_change_request(t, attempt, &end),
            }
        }
    }

    fn has_missing_reviewers(&self, t: TaskIx) -> bool {
        let missing = |a: &AttemptState| {
            a.stop.is_none()
                && a.review.as_ref().is_some_and(|c| c.missing_reviewers().next().is_some())
        };
        self.tasks.phase(t) == Phase::Verifying
            && self.tasks.get(t).current.as_ref().is_some_and(missing)
    }

    /// Is a reviewer at work for this task in this life?
    pub(super) fn is_under_review(&self, t: TaskIx) -> bool {
        self.issued.reviewers().any(|at_work| at_work.task == t)
    }

    /// Reviewers who have not reported on a task's work yet.
    pub fn awaited_reviewers(&self, t: TaskIx) -> Vec<String> {
        let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.as_ref());
        course.into_iter().flat_map(ReviewProgress::missing_reviewers).cloned().collect()
    }

    /// Reviewers that are to be asked now: a few at once, and none whose provider rests.
    pub(super) fn issue_reviews(&mut self, effects: &mut Vec<Effect>) {
        if self.engine.is_interrupting() {
            return;
        }
        let waiting: Vec<TaskIx> =
            self.tasks.active_tasks().filter(|t| self.has_missing_reviewers(*t)).collect();
        for t in waiting {
            let current = self.tasks.get(t).current.as_ref().expect("BUG: filtered above");
            let course = current.review.clone().expect("BUG: filtered above");
            let evidence = current.evidence.as_ref().expect("BUG: a review has evidence");
            let (attempt, base, tip) = (current.n, evidence.base.clone(), evidence.tip.clone());
            for reviewer in course.missing_reviewers() {
                let wanted = ReviewerAtWork { task: t, attempt, reviewer: reviewer.clone() };
                if self.issued.reviewers().any(|at_work| *at_work == wanted)
                    || !self.may_start_reviewer(reviewer)
                {
                    continue;
                }
                let lanes = LANE_FIRST..LANE_FIRST + self.settings.review.concurrency.max(1);
                let free = |lane: &u32| self.issued.is_reviewer_lane_free(*lane);
                let Some(lane) = lanes.into_iter().find(free) else { return };
                self.issued.start_reviewer(lane, wanted);
                effects.push(Effect::Review {
                    task: t,
                    attempt,
                    base: base.clone(),
                    tip: tip.clone(),
                    tree: course.tree.clone(),
                    cycle: course.cycle,
                    asked: course.limits.get(reviewer).copied().unwrap_or(0),
                    reviewer: reviewer.clone(),
                    lane,
                });
            }
        }
    }

    fn may_start_reviewer(&self, reviewer: &str) -> bool {
        let agent = self.settings.review.reviewer_settings(reviewer).agent;
        let provider = self.agent_provider(&agent);
        let reviewing = self.issued.reviewers().filter(|at_work| {
            let reviewer = self.settings.review.reviewer_settings(&at_work.reviewer);
            self.agent_provider(&reviewer.agent) == provider
        });
        let in_use = self.tasks.named_slots_in_use(SlotKind::Provider, &provider)
            + u32::try_from(reviewing.count()).unwrap_or(u32::MAX);
        let most = self.settings.limits.per_provider.get(&provider).copied();
        let lets = match self.provider_standing(&provider) {
            ProviderStanding::Free => true,
            ProviderStanding::Ramps(most) => in_use < most,
            ProviderStanding::Rests => false,
        };
        lets && most.is_none_or(|most| in_use < most.max(1))
    }

    /// The fold of reviews and approvals.
    pub(super) fn apply_review(&mut self, t: TaskIx, fact: &Fact) {
        let state = self.tasks.state_mut(t);
        match fact {
            Fact::ReviewStarted(started) => {
                state.reviews.cycles = started.cycle;
                if let Some(attempt) = state.current.as_mut() {
                    attempt.review = Some(ReviewProgress::new(started));
                }
            }
            Fact::ReviewerEnded(report) => {
                if let Some(course) = state.current.as_mut().and_then(|a| a.review.as_mut()) {
                    course.apply_report(report);
                }
            }
            Fact::ReviewEnded(end) => {
                // What was never looked at is no verdict on it.
                let whole = end.by != "reviewers"
                    || end.verdict == ReviewOpinion::Approved
                    || !end.findings.is_empty();
                if whole {
                    state.reviews.verdicts.insert(end.tree.clone(), end.clone());
                }
                if let Some(course) = state.current.as_mut().and_then(|a| a.review.as_mut()) {
                    course.ended = Some(end.clone());
                }
            }
            Fact::GateRan {
                scope: GateScope::Task,
                gate,
                verdict: GateVerdict::Passed,
                tree,
                ..
            } if gate::needs_person_or_reviewer(gate) => {
                state.reviews.approved.insert((gate.clone(), tree.clone()));
            }
            _ => {}
        }
    }
}
