//! Pull requests: which deed each car wants, and what its news mean. What follows from how one stands
//! is decided in [`crate::pull_request`].

use crate::config::LandMode;
use crate::fact::{Fact, FailureClass, GateScope, GateVerdict};
use crate::id::{Oid, TaskIx, Time};
use crate::limits;
use crate::machine::{Input, Machine};
use crate::phase::Phase;
use crate::pull_request::{
    ForgeAction, ForgeActionResult, MergeIntentFact, PullClosedFact, PullOpenedFact,
    PullRequestDecision, PullRequestObservation, PullRequestPush, PullRequestStage, PullReworkFact,
    PullSeenFact, TaskPullRequest, decide_pull_request, decide_stacked_pull_request,
};
use crate::train;

/// While nothing changes the looks become rarer, up to so many times the setting.
const RARER_MAX: u64 = 10;

/// How a pull request is looked after in this life of the engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct PullRequestWatch {
    attempt: u32,
    under_way: Option<ForgeAction>,
    at: Option<Time>,
    every_ms: u64,
    /// How often it was seen or could not be seen.
    looks: u32,
    fails: u32,
    /// How often in a row the forge said that there is no such thing, or not for us.
    refusals: u32,
    /// The head that the forge was asked to bring up to date.
    updated: Option<Oid>,
    update_due: bool,
    /// It was asked to be put on the target branch.
    restacked: bool,
}

impl PullRequestWatch {
    /// When the pull request is to be looked at, unless something is under way.
    pub(crate) fn next_look(&self) -> Option<Time> {
        self.at.filter(|_| self.under_way.is_none())
    }
}

/// How long this life goes on when it only brings pull requests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOnlyMode {
    /// Until each was looked at once.
    Once,
    /// Until none is open any more.
    Watch,
}

impl Machine {
    /// What is known of a task's pull request.
    pub fn pull_request(&self, t: TaskIx) -> Option<&TaskPullRequest> {
        self.forge.pull(&self.adopted.plan().tasks[t.index()].id)
    }

    /// Gates that run in a task's workspace. Where a forge merges, what is to pass on the merged tree
    /// passes on the work itself before it is offered; the merge is the business of the forge's checks.
    pub(super) fn workspace_gate_count(&self, t: TaskIx) -> usize {
        self.task_gates(t).len()
    }

    /// Does it offer what a phase has landed?
    pub(super) fn closes_phase(&self, t: TaskIx) -> bool {
        self.adopted.plan().tasks[t.index()].closes.is_some()
    }

    /// Does this task's work land on a forge rather than here?
    pub fn lands_on_forge(&self, t: TaskIx) -> bool {
        match self.settings.land.mode {
            LandMode::Pr => true,
            LandMode::PhasePr => self.closes_phase(t),
            LandMode::Local | LandMode::None => false,
        }
    }

    /// What is offered, or is to be.
    fn offered_work(&self) -> Vec<(TaskIx, u32, Oid)> {
        let cars = self.train.queue().candidates().iter().filter(|car| {
            self.lands_on_forge(car.task)
                && !matches!(car.stage, train::CandidateStage::Landing { .. })
        });
        let cars = cars.map(|car| (car.task, car.attempt, car.tip.clone()));
        let closing = self.forge.offers().iter().filter_map(|(id, (attempt, tip))| {
            let t =
                self.adopted.graph().index_of(id.as_str()).filter(|t| self.lands_on_forge(*t))?;
            Some((t, *attempt, tip.clone()))
        });
        cars.chain(closing).collect()
    }

    fn is_offered(&self, t: TaskIx, attempt: u32) -> bool {
        self.train.queue().candidate_of(t).is_some_and(|car| car.attempt == attempt)
            || self
                .forge
                .offers()
                .get(&self.adopted.plan().tasks[t.index()].id)
                .is_some_and(|(n, _)| *n == attempt)
    }

    /// Is a pull request of this task about to be merged?
    pub(super) fn is_merging_pull_request(&self, t: TaskIx) -> bool {
        self.pull_request(t)
            .is_some_and(|pull| matches!(pull.stage, PullRequestStage::Merging { .. }))
    }

    /// Where the next attempt begins, if not on the target branch.
    pub(super) fn next_attempt_base(&self, t: TaskIx) -> Option<Oid> {
        self.pull_request(t).filter(|_| self.lands_on_forge(t)).and_then(|pull| pull.from.clone())
    }

    pub(super) fn pull_requests_wake_at(&self) -> Option<Time> {
        self.forge.wake_at()
    }

    /// Every pull request was looked at and none is about to change.
    pub(super) fn is_merge_only_done(&self) -> bool {
        let looked = |t: TaskIx| {
            self.tasks.phase(t) == Phase::Merging
                && !self.is_merging_pull_request(t)
                && self.forge.watches().get(&t).is_some_and(|care| {
                    let due = care.update_due || (self.restack_due(t) && !care.restacked);
                    care.looks > 0 && care.under_way.is_none() && !due
                })
        };
        self.engine.merge_only() == Some(MergeOnlyMode::Once)
            && !self.tasks.is_any_workspace_being_removed()
            && self.tasks.active_tasks().all(looked)
    }

    /// Work that is to be offered and has not been.
    pub(super) fn intend_pushes(&mut self) {
        if self.engine.is_interrupting() {
            return;
        }
        for (t, attempt, tip) in self.offered_work() {
            let waits =
                |p: &TaskPullRequest| p.attempt != attempt || p.stage == PullRequestStage::Idle;
            if !self.pull_request(t).is_none_or(waits) || self.finish_empty_stacked_work(t, attempt)
            {
                continue;
            }
            let lease = self.pull_request(t).and_then(|pull| pull.pushed.clone());
            self.intend_push(t, attempt, tip, lease);
        }
    }

    pub(super) fn intend_push(&mut self, t: TaskIx, attempt: u32, tip: Oid, lease: Option<Oid>) {
        let task = self.task_id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: a car has an attempt");
        let branch = current.branch.clone();
        self.emit_fact(Fact::PushIntended(PullRequestPush { task, attempt, branch, tip, lease }));
    }

    pub(super) fn issue_forge_actions(&mut self, effects: &mut Vec<crate::effect::Effect>) {
        let offered = self.offered_work();
        self.forge.retain_watches(|t| offered.iter().any(|(task, ..)| *task == t));
        for (task, attempt, _) in offered {
            let care = self.forge.watch(task);
            if care.attempt != attempt {
                *care = PullRequestWatch { attempt, ..PullRequestWatch::default() };
            }
            let (busy, late) = (care.under_way.is_some(), care.at.is_some_and(|at| at > self.now));
            let (update_due, tried) = (care.update_due, care.restacked);
            // The merge of what is below is news that no look has to find out.
            if busy || (late && (tried || !self.restack_due(task))) {
                continue;
            }
            let Some(deed) = self.next_forge_action(task, attempt, update_due) else { continue };
            // A merge that is intended is finished even when we are asked to stop.
            if self.engine.is_interrupting() && !matches!(deed, ForgeAction::Merge { .. }) {
                continue;
            }
            let care = self.forge.watch(task);
            care.restacked = matches!(deed, ForgeAction::Restack { .. });
            care.under_way = Some(deed.clone());
            care.update_due = false;
            effects.push(crate::effect::Effect::RunForgeAction { task, attempt, action: deed });
        }
    }

    fn next_forge_action(&self, t: TaskIx, attempt: u32, update_due: bool) -> Option<ForgeAction> {
        let pull = self.pull_request(t).filter(|pull| pull.attempt == attempt)?;
        Some(match (&pull.stage, pull.number, &pull.head) {
            (PullRequestStage::Opening(push), _, _) => ForgeAction::Open {
                push: push.clone(),
                closed: pull.closed.clone(),
                onto: self.pull_request_base(t),
            },
            (PullRequestStage::Open, Some(number), _) if self.restack_due(t) => {
                let below = pull.stacked_on.as_ref().map(|lower| lower.tip.clone())?;
                ForgeAction::Restack { number, pushed: pull.pushed.clone(), below }
            }
            (PullRequestStage::Open, Some(number), Some(head)) if update_due => {
                ForgeAction::Update { number, head: head.clone() }
            }
            (PullRequestStage::Open, Some(number), _) => {
                ForgeAction::Look { number, pushed: pull.pushed.clone() }
            }
            (PullRequestStage::Merging { head }, Some(number), _) => {
                ForgeAction::Merge { number, head: head.clone() }
            }
            (
                PullRequestStage::Idle | PullRequestStage::Open | PullRequestStage::Merging { .. },
                _,
                _,
            ) => return None,
        })
    }

    pub(super) fn handle_forge_result(&mut self, t: TaskIx, attempt: u32, news: ForgeActionResult) {
        if !self.is_offered(t, attempt) {
            return;
        }
        if let ForgeActionResult::Merged { commit, old } = news {
            let task = self.task_id(t);
            return self.emit_fact(Fact::TaskLanded { task, attempt, commit, old, empty: false });
        }
        let Some(pull) = self.pull_request(t).filter(|pull| pull.attempt == attempt).cloned()
        else {
            return;
        };
        self.finish_forge_action(t, &news);
        match (news, &pull.stage) {
            (
                ForgeActionResult::Opened { number, url, created, tip },
                PullRequestStage::Opening(push),
            ) if push.tip == tip => {
                let task = self.task_id(t);
                self.emit_fact(Fact::PullOpened(PullOpenedFact {
                    task,
                    attempt,
                    number,
                    url,
                    created,
                }));
                self.schedule_forge_look(t, 0);
            }
            (
                ForgeActionResult::PushRefused { tip, found, ours },
                PullRequestStage::Opening(push),
            ) if push.tip == tip && push.lease != found => {
                self.handle_push_refusal(t, attempt, (push.clone(), found, ours));
            }
            (ForgeActionResult::Looked(sight), PullRequestStage::Open)
                if pull.number == Some(sight.number) =>
            {
                self.handle_observation(t, attempt, &pull, sight);
            }
            (ForgeActionResult::Restacked { head, tip }, PullRequestStage::Open)
                if self.restack_due(t) =>
            {
                self.leave_stack(t, attempt);
                self.intend_push(t, attempt, tip, Some(head));
                self.schedule_forge_look(t, 0);
            }
            (ForgeActionResult::RestackClashed { head, onto, files }, PullRequestStage::Open)
                if self.restack_due(t) =>
            {
                self.handle_restack_conflict((t, attempt), &pull, &head, (onto, files));
            }
            (ForgeActionResult::MergeRefused { why }, PullRequestStage::Merging { head }) => {
                let what =
                    limits::clip_for_fact(&format!("the forge, which refused the merge: {why}"));
                self.record_observation(t, attempt, (&pull, head, false), &what);
                self.stop_if_requested(t, attempt);
            }
            (ForgeActionResult::Failed { reason, after_ms, refused }, _) => {
                self.handle_forge_failure((t, attempt), &reason, after_ms, refused);
            }
            _ => {}
        }
    }

    /// What was under way is not any more, if this is its news.
    fn finish_forge_action(&mut self, t: TaskIx, news: &ForgeActionResult) {
        let Some(care) = self.forge.known_watch(t) else { return };
        let answers = matches!(
            (&care.under_way, news),
            (
                Some(ForgeAction::Open { .. }),
                ForgeActionResult::Opened { .. } | ForgeActionResult::PushRefused { .. }
            ) | (
                Some(
                    ForgeAction::Look { .. }
                        | ForgeAction::Update { .. }
                        | ForgeAction::Restack { .. }
                ),
                ForgeActionResult::Looked(_)
            ) | (
                Some(ForgeAction::Restack { .. }),
                ForgeActionResult::Restacked { .. } | ForgeActionResult::RestackClashed { .. }
            ) | (Some(ForgeAction::Merge { .. }), ForgeActionResult::MergeRefused { .. })
                | (Some(_), ForgeActionResult::Failed { .. })
        );
        if answers {
            care.under_way = None;
        }
        match news {
            ForgeActionResult::Failed { .. } => {}
            _ if care.fails > 0 => {
                care.fails = 0;
                care.refusals = 0;
                self.clear_forge_trouble(t);
            }
            _ => {}
        }
    }

    /// What was said of the trouble is over.
    fn clear_forge_trouble(&mut self, t: TaskIx) {
        let task = Some(self.task_id(t));
        if self.lasting_notice(task.as_ref()).is_some() {
            let message = "the forge answers again".to_owned();
            self.emit_fact(Fact::Noticed { task, message, lasts: false });
        }
    }

    fn schedule_forge_look(&mut self, t: TaskIx, ms: u64) {
        let at = self.now.plus_ms(ms);
        if let Some(care) = self.forge.known_watch(t) {
            care.at = (ms > 0).then_some(at);
        }
    }

    /// The branch on the remote is elsewhere. What we have here ourselves may be replaced; what we do
    /// not have may be somebody's work.
    fn handle_push_refusal(
        &mut self,
        t: TaskIx,
        attempt: u32,
        refused: (PullRequestPush, Option<Oid>, bool),
    ) {
        let (push, found, ours) = refused;
        match found {
            Some(commit) if !ours => {
                let reason = format!(
                    "the branch {} on {} is at {commit}, which Mainstem did not push: merge that commit, or delete the branch with `git push {} --delete {}`",
                    push.branch,
                    self.settings.land.pulls.remote,
                    self.settings.land.pulls.remote,
                    push.branch
                );
                self.leave_train(t, attempt, FailureClass::NeedsInput, reason);
            }
            found => self.intend_push(t, attempt, push.tip, found),
        }
    }

    pub(super) fn leave_train(
        &mut self,
        t: TaskIx,
        attempt: u32,
        class: FailureClass,
        reason: String,
    ) {
        let task = self.task_id(t);
        let reason = limits::clip_for_fact(&reason);
        self.emit_fact(Fact::CarEvicted { task, attempt, reason: reason.clone() });
        self.fail_attempt(t, class, reason);
    }

    /// Asks for an update of the branch, once per head of the pull request.
    fn request_update(&mut self, t: TaskIx, attempt: u32, known: &TaskPullRequest, head: Oid) {
        let what = "an update from the target branch";
        self.record_observation(t, attempt, (known, &head, false), what);
        if let Some(watch) = self.forge.known_watch(t)
            && watch.updated.as_ref() != Some(&head)
        {
            watch.updated = Some(head);
            watch.update_due = true;
            watch.at = None;
        }
    }

    fn handle_observation(
        &mut self,
        t: TaskIx,
        attempt: u32,
        known: &TaskPullRequest,
        sight: PullRequestObservation,
    ) {
        if let Some(care) = self.forge.known_watch(t) {
            care.looks += 1;
        }
        let (task, number, head) = (self.task_id(t), sight.number, sight.head.clone());
        let by_itself = self.engine.merge_only().is_none();
        let pulls = &self.settings.land.pulls;
        let follows = match self.describe_lower_pull_request(t) {
            Some(below) => decide_stacked_pull_request(&sight, known, pulls, &below),
            None => decide_pull_request(&sight, known, pulls),
        };
        match follows {
            PullRequestDecision::Wait(what) => {
                self.record_observation(t, attempt, (known, &head, !sight.ours), &what);
            }
            PullRequestDecision::Rework { .. } | PullRequestDecision::Conflict { .. }
                if !by_itself =>
            {
                let what = "the agent to continue: mainstem run";
                self.record_observation(t, attempt, (known, &head, false), what);
            }
            PullRequestDecision::Rework { findings, reviews } => {
                self.record_forge_findings(t, attempt, (number, &head), &findings);
                let names: Vec<&str> = findings.iter().map(|(name, _)| name.as_str()).collect();
                let reason = format!("pull request #{number} needs changes: {}", names.join(", "));
                let rework = PullReworkFact { task, attempt, number, head, reviews };
                self.emit_fact(Fact::PullReworked(rework));
                self.leave_train(t, attempt, FailureClass::GateFailed, reason);
            }
            PullRequestDecision::Conflict { onto, files } => {
                self.record_candidate_conflict(t, attempt, onto, files);
            }
            PullRequestDecision::Update => self.request_update(t, attempt, known, head),
            PullRequestDecision::Merge if !self.hold_reasons(t).is_empty() => {
                let what = self.hold_help(t).unwrap_or_default();
                self.record_observation(t, attempt, (known, &head, false), &what);
            }
            PullRequestDecision::Merge => {
                let intent = MergeIntentFact { task, attempt, number, head };
                self.emit_fact(Fact::MergeIntended(intent));
                self.schedule_forge_look(t, 0);
            }
            PullRequestDecision::Landed { commit, old } => {
                self.emit_fact(Fact::TaskLanded { task, attempt, commit, old, empty: false });
            }
            PullRequestDecision::GiveUp => {
                self.emit_fact(Fact::PullClosed(PullClosedFact { task, attempt, number }));
                let reason = format!("pull request #{number} was closed without being merged");
                self.leave_train(t, attempt, FailureClass::NeedsInput, reason);
            }
            PullRequestDecision::Elsewhere { branch } => {
                let reason = format!(
                    "pull request #{number} was merged into {branch}: mainstem skip {task} if {branch} lands, otherwise mainstem retry {task}"
                );
                self.emit_fact(Fact::PullClosed(PullClosedFact { task, attempt, number }));
                self.leave_train(t, attempt, FailureClass::NeedsInput, reason);
            }
        }
    }

    /// All that is held against it, as one verdict: the next attempt is told of it.
    fn record_forge_findings(
        &mut self,
        t: TaskIx,
        attempt: u32,
        (number, head): (u64, &Oid),
        findings: &[(String, String)],
    ) {
        let words = findings.iter().map(|(who, what)| format!("{who}:\n{}\n", what.trim_end()));
        let fact = Fact::GateRan {
            task: self.task_id(t),
            attempt,
            scope: GateScope::Train,
            gate: format!("pull request #{number}"),
            verdict: GateVerdict::Failed,
            tree: head.clone(),
            duration_ms: 0,
            log: None,
            detail: words.collect::<Vec<_>>().join("\n"),
            cached: false,
            with: Vec::new(),
            tools: String::new(),
            flakes: 0,
            exit_code: None,
            cause: None,
        };
        self.emit_fact(fact);
    }

    /// Written down only if it is news; looked at again later, the more so the longer nothing changes.
    pub(super) fn record_observation(
        &mut self,
        t: TaskIx,
        attempt: u32,
        (known, head, foreign): (&TaskPullRequest, &Oid, bool),
        what: &str,
    ) {
        let changed = known.waits_for != what
            || known.head.as_ref() != Some(head)
            || known.stage != PullRequestStage::Open;
        if changed && let Some(number) = known.number {
            let (task, head, waits_for) = (self.task_id(t), head.clone(), what.to_owned());
            let seen = PullSeenFact { task, attempt, number, head, waits_for, foreign };
            self.emit_fact(Fact::PullSeen(seen));
        }
        let poll = self.settings.land.pulls.poll_ms.max(1);
        let Some(care) = self.forge.known_watch(t) else { return };
        care.every_ms = match changed {
            true => poll,
            false => {
                (care.every_ms + care.every_ms / 2).clamp(poll, poll.saturating_mul(RARER_MAX))
            }
        };
        care.at = Some(self.now.plus_ms(care.every_ms));
    }

    /// A wish to stop that came too late for the merge is in time now.
    fn stop_if_requested(&mut self, t: TaskIx, attempt: u32) {
        let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.clone());
        if let Some((_, reason)) = stop {
            self.leave_train(t, attempt, FailureClass::Interrupted, reason);
        }
    }

    /// The forge or the remote cannot be reached: the work waits. Where it says no again and again, a
    /// person is asked.
    fn handle_forge_failure(
        &mut self,
        (t, attempt): (TaskIx, u32),
        reason: &str,
        after_ms: Option<u64>,
        refused: bool,
    ) {
        let poll = self.settings.land.pulls.poll_ms;
        let Some(care) = self.forge.known_watch(t) else { return };
        care.fails += 1;
        care.looks += 1;
        care.refusals = if refused { care.refusals + 1 } else { 0 };
        if care.refusals >= limits::FORGE_REFUSALS_MAX {
            let task = self.task_id(t);
            let what = match self.pull_request(t).and_then(|pull| pull.number) {
                Some(number) => format!("cannot update pull request #{number}"),
                None => "cannot open a pull request".to_owned(),
            };
            let reason = format!(
                "{what}: {reason}. Check the repository and the token, then mainstem retry {task}"
            );
            return self.leave_train(t, attempt, FailureClass::NeedsInput, reason);
        }
        let backoff = limits::TRANSIENT_WAIT_MS << care.fails.min(7);
        let wait = backoff.min(limits::TRANSIENT_WAIT_MS_MAX.max(poll)).max(after_ms.unwrap_or(0));
        care.at = Some(self.now.plus_ms(wait));
        let (task, message) = (Some(self.task_id(t)), limits::clip_for_fact(reason));
        if self.lasting_notice(task.as_ref()) != Some(&message) {
            self.emit_fact(Fact::Noticed { task, message, lasts: true });
        }
    }
}

impl Input {
    /// News of a pull request.
    pub fn forge_action_done(task: TaskIx, attempt: u32, news: ForgeActionResult) -> Self {
        Self::ForgeActionDone { task, attempt, news }
    }
}
