//! What stands between a task's own gates and the train: review agents, then people. Both verdicts are
//! about one tree; what was said of it is not asked for again.

use crate::config::OnStuck;
use crate::effect::Effect;
use crate::fact::{Answering, Class, Fact, GateScope, LimitKind, Usage, Verdict};
use crate::gate;
use crate::id::{Oid, TaskIx};
use crate::limits;
use crate::machine::{GateResult, Machine};
use crate::phase::Phase;
use crate::provider::{self, Standing};
use crate::review::{self, Course, Ended, Opinion, Outcome, Policy, Report, Started};
use crate::tasks::{AttemptState, Slot};

/// Lanes from here on are for reviewers: the train has none with such numbers.
pub(super) const LANE_FIRST: u32 = 1_001;

/// Asked for with the news of one reviewer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reviewed {
    /// Whose work.
    pub task: TaskIx,
    /// Which attempt.
    pub attempt: u32,
    /// What was looked at.
    pub tree: Oid,
    /// In which review of the task.
    pub cycle: u32,
    /// How often it had been told to wait in it.
    pub asked: u32,
    /// Who looked.
    pub reviewer: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What that took.
    pub usage: Vec<Usage>,
    /// How long.
    pub duration_ms: u64,
    /// Where its output is.
    pub log: Option<String>,
}

impl Machine {
    /// This life goes on waiting when only people are waited for. It goes with the life.
    pub fn set_patient(&mut self, patient: bool) {
        self.patient = patient;
    }

    /// Gates of a task that run a command or look at files, in order.
    pub fn gates_of(&self, t: TaskIx) -> Vec<String> {
        let own = self.plan.tasks[t.ix()].verify.iter();
        let own = own.filter(|line| !gate::needs_others(line));
        let shared: &[String] =
            if self.lands_by_pull(t) { &self.settings.gates.verify } else { &[] };
        own.chain(shared).cloned().collect()
    }

    fn review_wanted(&self, t: TaskIx) -> bool {
        let own = || self.plan.tasks[t.ix()].verify.iter().any(|line| line.trim() == review::GATE);
        !self.settings.review.agents.is_empty() || self.settings.gates.review || own()
    }

    /// The tree that an attempt offers.
    pub(super) fn offered_tree(&self, t: TaskIx) -> Option<Oid> {
        let evidence = self.tasks.get(t).current.as_ref()?.evidence.as_ref()?;
        Some(evidence.tree.clone().unwrap_or_else(|| evidence.tip.clone()))
    }

    /// The task's own gates are content: what others have to say comes next, then it joins the train.
    pub(super) fn advance(&mut self, t: TaskIx, attempt: u32) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
        // Nothing to look at.
        if evidence.base == evidence.tip || evidence.files == 0 {
            return self.passed(t, attempt);
        }
        let tree = self.offered_tree(t).expect("BUG: there is evidence");
        if self.review_wanted(t) && !self.reviewed_well(t, attempt, &tree) {
            return;
        }
        // What the train merges is shown to people once the gates passed on the merged tree.
        if self.lands_by_pull(t)
            && let Some(line) = self.approvals_missing(t).first()
        {
            return self.ask_approval(t, attempt, line);
        }
        self.passed(t, attempt);
    }

    /// Is the review of this tree over and good? If there is none, one begins.
    fn reviewed_well(&mut self, t: TaskIx, attempt: u32, tree: &Oid) -> bool {
        let state = self.tasks.get(t);
        if let Some(course) = state.current.as_ref().and_then(|a| a.review.as_ref()) {
            return course.ended.as_ref().is_some_and(|end| end.verdict == Opinion::Approved);
        }
        if let Some(known) = state.reviews.verdicts.get(tree).cloned() {
            return self.review_known(t, attempt, known);
        }
        let reviewers = self.settings.review.agents.clone();
        if reviewers.is_empty() {
            let help = Some("add reviewers to mainstem.toml: [review] agents".to_owned());
            let reason = "cannot review: no reviewers are configured".to_owned();
            self.end_attempt(t, Class::NeedsInput, reason, help);
            return false;
        }
        let (task, tree, cycle) = (self.id(t), tree.clone(), state.reviews.cycles + 1);
        self.emit(Fact::ReviewStarted(Started { task, attempt, tree, cycle, reviewers }));
        false
    }

    /// This very tree was reviewed in an earlier attempt: its verdict still holds.
    fn review_known(&mut self, t: TaskIx, attempt: u32, known: Ended) -> bool {
        self.record_verdict(t, attempt, &known, true);
        if known.verdict == Opinion::Approved {
            return true;
        }
        self.not_content(t, attempt, &known);
        false
    }

    fn record_verdict(&mut self, t: TaskIx, attempt: u32, end: &Ended, cached: bool) {
        let good = end.verdict == Opinion::Approved;
        let gate = GateResult {
            gate: review::GATE.to_owned(),
            verdict: if good { Verdict::Passed } else { Verdict::Failed },
            duration_ms: 0,
            log: None,
            detail: review::lines(&end.findings),
            cached,
            flakes: 0,
            exit_code: None,
            cause: None,
        };
        self.record_gates((t, attempt), GateScope::Task, &end.tree, &[], &[gate]);
    }

    /// One reviewer is through, or was told to wait.
    pub(super) fn reviewed(&mut self, news: Reviewed) {
        let Reviewed { task: t, attempt, .. } = news;
        self.life.reviewing.retain(|_, (whose, n, name)| {
            (*whose, *n, name.as_str()) != (t, attempt, news.reviewer.as_str())
        });
        if !self.is_current(t, attempt, &[Phase::Verifying]) {
            return;
        }
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let stopped = current.stop.is_some();
        let waits = |course: &Course| {
            let asked = course.limits.get(&news.reviewer).copied().unwrap_or(0);
            (&course.tree, course.cycle, asked) == (&news.tree, news.cycle, news.asked)
                && course.missing().any(|name| *name == news.reviewer)
        };
        if !current.review.as_ref().is_some_and(waits) {
            return;
        }
        if stopped {
            return self.fail_attempt(t, Class::Interrupted, "stopped".to_owned());
        }
        // Reviewers that were ended because we leave said nothing: the next life asks them.
        if news.outcome == (Outcome::Stopped {}) || self.life.interrupting.is_some() {
            return;
        }
        self.take_report(t, attempt, news);
        self.conclude(t, attempt);
    }

    fn take_report(&mut self, t: TaskIx, attempt: u32, news: Reviewed) {
        let agent = self.settings.review.reviewer(&news.reviewer).agent;
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let course = current.review.as_ref().expect("BUG: a review is under way");
        let (reviewer, cycle, asked) = (&news.reviewer, course.cycle, news.asked);
        let question = format!("review {cycle}.{asked} of {}/{attempt} by {reviewer}", self.id(t));
        let known = current.consulted.contains(&question);
        if !known {
            let answering = Answering { agent: agent.clone(), question };
            for usage in news.usage {
                let usage = Usage { answering: Some(answering.clone()), ..usage };
                self.used(t, attempt, 0, usage);
            }
        }
        if let Outcome::Limited { kind, wait_ms, message } = &news.outcome {
            self.reviewer_limited(t, attempt, (&agent, *kind), *wait_ms, message);
        }
        let outcome = match news.outcome {
            Outcome::Said { verdict, findings } => {
                let findings = findings.into_iter().take(review::FINDINGS_MAX);
                Outcome::Said {
                    verdict,
                    findings: findings.map(review::Finding::clipped).collect(),
                }
            }
            Outcome::Failed { why } => Outcome::Failed { why: limits::brief(&why) },
            // It has been waited for often enough, like for any attempt.
            Outcome::Limited { kind: LimitKind::Rate, .. } if self.waited_enough(&agent) => {
                Outcome::Failed { why: "rate-limited by the provider".to_owned() }
            }
            other => other,
        };
        self.emit(Fact::ReviewerEnded(Report {
            task: self.id(t),
            attempt,
            tree: news.tree,
            reviewer: news.reviewer,
            agent,
            outcome,
            duration_ms: news.duration_ms,
            log: news.log,
        }));
    }

    fn reviewer_limited(
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
        let task = self.id(t);
        let until = self.now.plus_ms(wait + provider::jitter_ms(task.as_str(), wait));
        let provider = self.provider_of(agent);
        let (mark, message, retrying) = (0, limits::brief(message), false);
        let limited =
            Fact::ProviderLimited { provider, task, attempt, mark, until, message, kind, retrying };
        self.emit(limited);
    }

    fn waited_enough(&self, agent: &str) -> bool {
        let known = self.providers.get(&self.provider_of(agent));
        known.is_some_and(|known| known.incidents() > self.settings.limits.rate_limit_waits)
    }

    fn provider_of(&self, agent: &str) -> String {
        let known = self.settings.agents.get(agent);
        known.map_or_else(|| agent.to_owned(), |known| known.provider_of(agent))
    }

    /// All reviewers are through: what they said becomes one verdict.
    fn conclude(&mut self, t: TaskIx, attempt: u32) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let course = current.review.as_ref().expect("BUG: a review is under way");
        if course.ended.is_some() || course.missing().next().is_some() {
            return;
        }
        let said = course.reports.iter().map(|(name, report)| match &report.outcome {
            Outcome::Said { findings, .. } => (name.clone(), findings.clone()),
            _ => (name.clone(), Vec::new()),
        });
        let (mut findings, stats) = review::consolidate(&said.collect::<Vec<_>>());
        let policy = Policy {
            changes_at: self.settings.review.changes_at,
            blocks_at: self.settings.review.blocks_at,
        };
        let outcomes = course.reports.values().map(|report| &report.outcome);
        let verdict = review::verdict(outcomes, &findings, policy);
        findings.truncate(review::FINDINGS_MAX);
        let (task, tree, cycle) = (self.id(t), course.tree.clone(), course.cycle);
        let by = "reviewers".to_owned();
        self.end_review(t, Ended { task, attempt, tree, cycle, verdict, by, findings, stats });
    }

    pub(super) fn end_review(&mut self, t: TaskIx, end: Ended) {
        let attempt = end.attempt;
        self.emit(Fact::ReviewEnded(end.clone()));
        self.record_verdict(t, attempt, &end, false);
        if end.verdict == Opinion::Approved {
            self.advance(t, attempt);
        } else {
            self.not_content(t, attempt, &end);
        }
    }

    /// Reviewers want changes: back to the agent with what they found, as often as the settings say. What
    /// nobody gave a reason for is no work for an agent: a person decides.
    fn not_content(&mut self, t: TaskIx, attempt: u32, end: &Ended) {
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
        let what = format!("{}: {found} {}", end.verdict.word(), first.line());
        if spent >= most && self.settings.review.on_stuck == OnStuck::Ask {
            let why = format!("still not approved after {most} review cycles: {what}");
            return self.ask_about_review(t, attempt, &end.tree, &why);
        }
        let reason = match spent >= most {
            true => format!("still not approved after {most} review cycles: {what}"),
            false => format!("review: {what}"),
        };
        self.fail_attempt(t, Class::ChangesNeeded, reason);
    }

    fn silent_reviewers(&self, t: TaskIx) -> String {
        let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.as_ref());
        let reports = course.into_iter().flat_map(|course| course.reports.values());
        let words = reports.filter_map(|report| match &report.outcome {
            Outcome::Failed { why } => Some(format!("{}: {why}", report.reviewer)),
            Outcome::Said { verdict, .. } if *verdict != Opinion::Approved => {
                Some(format!("{} says {}", report.reviewer, verdict.word()))
            }
            _ => None,
        });
        let words: Vec<String> = words.collect();
        if words.is_empty() { "no reason given".to_owned() } else { words.join("; ") }
    }

    /// Approvals whose time is up were not given; a review that no money is left for is not made; and where
    /// the journal lost its end after a review, what follows from it is decided now.
    pub(super) fn settle_reviews(&mut self) {
        self.take_up_reviews();
        self.pass_approvals();
        let budget = &self.settings.budget;
        let spent = |t: TaskIx| {
            let all = budget.hard && budget.usd.is_some_and(|usd| self.spent_usd >= usd);
            all || self.task_budget_spent(t)
        };
        let broke: Vec<TaskIx> = self
            .tasks
            .active()
            .filter(|t| self.reviewers_missing(*t) && !self.is_under_review(*t) && spent(*t))
            .collect();
        for t in broke {
            let reason = "the budget was spent before the review".to_owned();
            self.end_attempt(t, Class::NeedsInput, reason, Some("raise the budget".to_owned()));
        }
    }

    fn take_up_reviews(&mut self) {
        let over = |t: &TaskIx| {
            let current = self.tasks.get(*t).current.as_ref();
            self.tasks.phase(*t) == Phase::Verifying
                && current.is_some_and(|a| a.stop.is_none() && a.review.is_some())
                && !self.reviewers_missing(*t)
                && !self.waits_for_decision(*t)
        };
        let over: Vec<TaskIx> = self.tasks.active().filter(over).collect();
        for t in over {
            let Some(current) = self.tasks.get(t).current.as_ref() else { continue };
            let attempt = current.n;
            match current.review.as_ref().and_then(|course| course.ended.clone()) {
                None => self.conclude(t, attempt),
                Some(end) if end.verdict == Opinion::Approved => self.advance(t, attempt),
                Some(end) => self.not_content(t, attempt, &end),
            }
        }
    }

    fn reviewers_missing(&self, t: TaskIx) -> bool {
        let missing = |a: &AttemptState| {
            a.stop.is_none() && a.review.as_ref().is_some_and(|c| c.missing().next().is_some())
        };
        self.tasks.phase(t) == Phase::Verifying
            && self.tasks.get(t).current.as_ref().is_some_and(missing)
    }

    /// Is a reviewer at work for this task in this life?
    pub(super) fn is_under_review(&self, t: TaskIx) -> bool {
        self.life.reviewing.values().any(|(task, ..)| *task == t)
    }

    /// Reviewers who have not reported on a task's work yet.
    pub fn reviewers_awaited(&self, t: TaskIx) -> Vec<String> {
        let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.as_ref());
        course.into_iter().flat_map(Course::missing).cloned().collect()
    }

    /// Reviewers that are to be asked now: a few at once, and none whose provider rests.
    pub(super) fn want_of_reviews(&mut self, effects: &mut Vec<Effect>) {
        if self.life.interrupting.is_some() {
            return;
        }
        let waiting: Vec<TaskIx> =
            self.tasks.active().filter(|t| self.reviewers_missing(*t)).collect();
        for t in waiting {
            let current = self.tasks.get(t).current.as_ref().expect("BUG: filtered above");
            let course = current.review.clone().expect("BUG: filtered above");
            let evidence = current.evidence.as_ref().expect("BUG: a review has evidence");
            let (attempt, base, tip) = (current.n, evidence.base.clone(), evidence.tip.clone());
            for reviewer in course.missing() {
                let out = |(task, n, name): &(TaskIx, u32, String)| {
                    (*task, *n, name) == (t, attempt, reviewer)
                };
                if self.life.reviewing.values().any(out) || !self.may_review(reviewer) {
                    continue;
                }
                let lanes = LANE_FIRST..LANE_FIRST + self.settings.review.concurrency.max(1);
                let free = |lane: &u32| !self.life.reviewing.contains_key(lane);
                let Some(lane) = lanes.into_iter().find(free) else { return };
                self.life.reviewing.insert(lane, (t, attempt, reviewer.clone()));
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

    fn may_review(&self, reviewer: &str) -> bool {
        let agent = self.settings.review.reviewer(reviewer).agent;
        let provider = self.provider_of(&agent);
        let reviewing = self.life.reviewing.values().filter(|(.., name)| {
            self.provider_of(&self.settings.review.reviewer(name).agent) == provider
        });
        let in_use = self.tasks.slots_of(Slot::Provider, &provider)
            + u32::try_from(reviewing.count()).unwrap_or(u32::MAX);
        let most = self.settings.limits.per_provider.get(&provider).copied();
        let lets = match self.standing(&provider) {
            Standing::Free => true,
            Standing::Ramps(most) => in_use < most,
            Standing::Rests => false,
        };
        lets && most.is_none_or(|most| in_use < most.max(1))
    }

    /// The fold of reviews and approvals.
    pub(super) fn note_review(&mut self, t: TaskIx, fact: &Fact) {
        let state = self.tasks.note(t);
        match fact {
            Fact::ReviewStarted(started) => {
                state.reviews.cycles = started.cycle;
                if let Some(attempt) = state.current.as_mut() {
                    attempt.review = Some(Course::new(started));
                }
            }
            Fact::ReviewerEnded(report) => {
                if let Some(course) = state.current.as_mut().and_then(|a| a.review.as_mut()) {
                    course.note(report);
                }
            }
            Fact::ReviewEnded(end) => {
                // What was never looked at is no verdict on it.
                let whole = end.by != "reviewers"
                    || end.verdict == Opinion::Approved
                    || !end.findings.is_empty();
                if whole {
                    state.reviews.verdicts.insert(end.tree.clone(), end.clone());
                }
                if let Some(course) = state.current.as_mut().and_then(|a| a.review.as_mut()) {
                    course.ended = Some(end.clone());
                }
            }
            Fact::GateRan {
                scope: GateScope::Task, gate, verdict: Verdict::Passed, tree, ..
            } if gate::needs_others(gate) => {
                state.reviews.approved.insert((gate.clone(), tree.clone()));
            }
            // What is about the work of an attempt goes with it.
            Fact::AttemptFailed { .. } | Fact::TaskLanded { .. } => {
                self.questions.retain(|q| q.task != t || !q.is_about_work());
            }
            _ => {}
        }
    }
}
