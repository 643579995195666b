//! Pull requests: which deed each car wants, and what its news mean. What follows from how one stands
//! is decided in [`crate::pull`].

use crate::config::LandMode;
use crate::fact::{Class, Fact, GateScope, Verdict};
use crate::id::{Oid, TaskIx, Time};
use crate::limits;
use crate::machine::{Input, Machine};
use crate::phase::Phase;
use crate::pull::{
    Closed, Deed, MergeWish, News, Next, Opened, Pull, Push, Rework, Seen, Sight, Stage, next,
    next_on_stack,
};
use crate::train;

/// While nothing changes the looks become rarer, up to so many times the setting.
const RARER_MAX: u64 = 10;

/// How a pull request is looked after in this life of the engine.
#[derive(Debug, Clone, Default)]
pub(super) struct Care {
    attempt: u32,
    under_way: Option<Deed>,
    /// Not before.
    at: Option<Time>,
    /// Between looks.
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

/// How long this life goes on when it only brings pull requests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merger {
    /// Until each was looked at once.
    Once,
    /// Until none is open any more.
    Watch,
}

impl Machine {
    /// This life starts no agent: it pushes, looks and merges. It goes with the life.
    pub fn set_merger(&mut self, merger: Option<Merger>) {
        self.merger = merger;
    }

    /// What is known of a task's pull request.
    pub fn pull(&self, t: TaskIx) -> Option<&Pull> {
        self.pulls.get(&self.plan.tasks[t.ix()].id)
    }

    /// Gates that run in a task's workspace. Where a forge merges, what is to pass on the merged tree
    /// passes on the work itself before it is offered; the merge is the business of the forge's checks.
    pub(super) fn gates_wanted(&self, t: TaskIx) -> usize {
        self.gates_of(t).len()
    }

    /// Does it offer what a phase has landed?
    pub(super) fn closes_phase(&self, t: TaskIx) -> bool {
        self.plan.tasks[t.ix()].closes.is_some()
    }

    /// Does this task's work land on a forge rather than here?
    pub fn lands_by_pull(&self, t: TaskIx) -> bool {
        match self.settings.land.mode {
            LandMode::Pr => true,
            LandMode::PhasePr => self.closes_phase(t),
            LandMode::Local | LandMode::None => false,
        }
    }

    /// What is offered, or is to be.
    fn offered(&self) -> Vec<(TaskIx, u32, Oid)> {
        let cars = self.train.cars().iter().filter(|car| {
            self.lands_by_pull(car.task) && !matches!(car.stage, train::Stage::Landing { .. })
        });
        let cars = cars.map(|car| (car.task, car.attempt, car.tip.clone()));
        let closing = self.offers.iter().filter_map(|(id, (attempt, tip))| {
            let t = self.graph.ix(id.as_str()).filter(|t| self.lands_by_pull(*t))?;
            Some((t, *attempt, tip.clone()))
        });
        cars.chain(closing).collect()
    }

    fn is_offered(&self, t: TaskIx, attempt: u32) -> bool {
        self.train.car(t).is_some_and(|car| car.attempt == attempt)
            || self.offers.get(&self.plan.tasks[t.ix()].id).is_some_and(|(n, _)| *n == attempt)
    }

    /// Is a pull request of this task about to be merged?
    pub(super) fn is_merging(&self, t: TaskIx) -> bool {
        self.pull(t).is_some_and(|pull| matches!(pull.stage, Stage::Merging { .. }))
    }

    /// Where the next attempt begins, if not on the target branch.
    pub(super) fn goes_on_from(&self, t: TaskIx) -> Option<Oid> {
        self.pull(t).filter(|_| self.lands_by_pull(t)).and_then(|pull| pull.from.clone())
    }

    pub(super) fn pulls_wake_at(&self) -> Option<Time> {
        let idle = self.life.cares.values().filter(|care| care.under_way.is_none());
        idle.filter_map(|care| care.at).min()
    }

    /// Every pull request was looked at and none is about to change.
    pub(super) fn merger_rests(&self) -> bool {
        let looked = |t: TaskIx| {
            self.tasks.phase(t) == Phase::Merging
                && !self.is_merging(t)
                && self.life.cares.get(&t).is_some_and(|care| {
                    let due = care.update_due || (self.restack_due(t) && !care.restacked);
                    care.looks > 0 && care.under_way.is_none() && !due
                })
        };
        self.merger == Some(Merger::Once)
            && !self.tasks.any_removal()
            && self.tasks.active().all(looked)
    }

    /// Work that is to be offered and has not been.
    pub(super) fn intend_pushes(&mut self) {
        if self.life.interrupting.is_some() {
            return;
        }
        for (t, attempt, tip) in self.offered() {
            let waits = |p: &Pull| p.attempt != attempt || p.stage == Stage::Idle;
            if !self.pull(t).is_none_or(waits) || self.rests_on_stack(t, attempt) {
                continue;
            }
            let lease = self.pull(t).and_then(|pull| pull.pushed.clone());
            self.intend_push(t, attempt, tip, lease);
        }
    }

    pub(super) fn intend_push(&mut self, t: TaskIx, attempt: u32, tip: Oid, lease: Option<Oid>) {
        let task = self.id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: a car has an attempt");
        let branch = current.branch.clone();
        self.emit(Fact::PushIntended(Push { task, attempt, branch, tip, lease }));
    }

    pub(super) fn want_of_pulls(&mut self, effects: &mut Vec<crate::effect::Effect>) {
        let offered = self.offered();
        self.life.cares.retain(|t, _| offered.iter().any(|(task, ..)| task == t));
        for (task, attempt, _) in offered {
            let care = self.life.cares.entry(task).or_default();
            if care.attempt != attempt {
                *care = Care { attempt, ..Care::default() };
            }
            let (busy, late) = (care.under_way.is_some(), care.at.is_some_and(|at| at > self.now));
            let (update_due, tried) = (care.update_due, care.restacked);
            // The merge of what is below is news that no look has to find out.
            if busy || (late && (tried || !self.restack_due(task))) {
                continue;
            }
            let Some(deed) = self.deed_of(task, attempt, update_due) else { continue };
            // A merge that is intended is finished even when we are asked to stop.
            if self.life.interrupting.is_some() && !matches!(deed, Deed::Merge { .. }) {
                continue;
            }
            let care = self.life.cares.entry(task).or_default();
            care.restacked = matches!(deed, Deed::Restack { .. });
            care.under_way = Some(deed.clone());
            care.update_due = false;
            effects.push(crate::effect::Effect::Pull { task, attempt, deed });
        }
    }

    fn deed_of(&self, t: TaskIx, attempt: u32, update_due: bool) -> Option<Deed> {
        let pull = self.pull(t).filter(|pull| pull.attempt == attempt)?;
        Some(match (&pull.stage, pull.number, &pull.head) {
            (Stage::Opening(push), _, _) => Deed::Open {
                push: push.clone(),
                closed: pull.closed.clone(),
                onto: self.goes_onto(t),
            },
            (Stage::Open, Some(number), _) if self.restack_due(t) => {
                let below = pull.on.as_ref().map(|lower| lower.tip.clone())?;
                Deed::Restack { number, pushed: pull.pushed.clone(), below }
            }
            (Stage::Open, Some(number), Some(head)) if update_due => {
                Deed::Update { number, head: head.clone() }
            }
            (Stage::Open, Some(number), _) => Deed::Look { number, pushed: pull.pushed.clone() },
            (Stage::Merging { head }, Some(number), _) => {
                Deed::Merge { number, head: head.clone() }
            }
            (Stage::Idle | Stage::Open | Stage::Merging { .. }, _, _) => return None,
        })
    }

    pub(super) fn take_of_pull(&mut self, t: TaskIx, attempt: u32, news: News) {
        if !self.is_offered(t, attempt) {
            return;
        }
        if let News::Merged { commit, old } = news {
            let task = self.id(t);
            return self.emit(Fact::TaskLanded { task, attempt, commit, old, empty: false });
        }
        let Some(pull) = self.pull(t).filter(|pull| pull.attempt == attempt).cloned() else {
            return;
        };
        self.heard(t, &news);
        match (news, &pull.stage) {
            (News::Opened { number, url, created, tip }, Stage::Opening(push))
                if push.tip == tip =>
            {
                let task = self.id(t);
                self.emit(Fact::PullOpened(Opened { task, attempt, number, url, created }));
                self.look_in(t, 0);
            }
            (News::PushRefused { tip, found, ours }, Stage::Opening(push))
                if push.tip == tip && push.lease != found =>
            {
                self.push_refused(t, attempt, (push.clone(), found, ours));
            }
            (News::Looked(sight), Stage::Open) if pull.number == Some(sight.number) => {
                self.looked(t, attempt, &pull, sight);
            }
            (News::Restacked { head, tip }, Stage::Open) if self.restack_due(t) => {
                self.off_the_stack(t, attempt);
                self.intend_push(t, attempt, tip, Some(head));
                self.look_in(t, 0);
            }
            (News::RestackClashed { head, onto, files }, Stage::Open) if self.restack_due(t) => {
                self.restack_clashed((t, attempt), &pull, &head, (onto, files));
            }
            (News::MergeRefused { why }, Stage::Merging { head }) => {
                let what = limits::brief(&format!("the forge, which refused the merge: {why}"));
                self.seen(t, attempt, (&pull, head, false), &what);
                self.stop_if_wished(t, attempt);
            }
            (News::Failed { reason, after_ms, refused }, _) => {
                self.pull_failed((t, attempt), &reason, after_ms, refused);
            }
            _ => {}
        }
    }

    /// What was under way is not any more, if this is its news.
    fn heard(&mut self, t: TaskIx, news: &News) {
        let Some(care) = self.life.cares.get_mut(&t) else { return };
        let answers = matches!(
            (&care.under_way, news),
            (Some(Deed::Open { .. }), News::Opened { .. } | News::PushRefused { .. })
                | (
                    Some(Deed::Look { .. } | Deed::Update { .. } | Deed::Restack { .. }),
                    News::Looked(_)
                )
                | (
                    Some(Deed::Restack { .. }),
                    News::Restacked { .. } | News::RestackClashed { .. }
                )
                | (Some(Deed::Merge { .. }), News::MergeRefused { .. })
                | (Some(_), News::Failed { .. })
        );
        if answers {
            care.under_way = None;
        }
        match news {
            News::Failed { .. } => {}
            _ if care.fails > 0 => {
                care.fails = 0;
                care.refusals = 0;
                self.answers_again(t);
            }
            _ => {}
        }
    }

    /// What was said of the trouble is over.
    fn answers_again(&mut self, t: TaskIx) {
        let task = Some(self.id(t));
        if self.lasting(task.as_ref()).is_some() {
            let message = "the forge answers again".to_owned();
            self.emit(Fact::Noticed { task, message, lasts: false });
        }
    }

    fn look_in(&mut self, t: TaskIx, ms: u64) {
        let at = self.now.plus_ms(ms);
        if let Some(care) = self.life.cares.get_mut(&t) {
            care.at = (ms > 0).then_some(at);
        }
    }

    /// The branch on the remote is elsewhere. What we have here ourselves may be replaced; what we do
    /// not have may be somebody's work.
    fn push_refused(&mut self, t: TaskIx, attempt: u32, refused: (Push, Option<Oid>, bool)) {
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
                self.leave_train(t, attempt, Class::NeedsInput, reason);
            }
            found => self.intend_push(t, attempt, push.tip, found),
        }
    }

    pub(super) fn leave_train(&mut self, t: TaskIx, attempt: u32, class: Class, reason: String) {
        let task = self.id(t);
        let reason = limits::brief(&reason);
        self.emit(Fact::CarEvicted { task, attempt, reason: reason.clone() });
        self.fail_attempt(t, class, reason);
    }

    fn looked(&mut self, t: TaskIx, attempt: u32, known: &Pull, sight: Sight) {
        if let Some(care) = self.life.cares.get_mut(&t) {
            care.looks += 1;
        }
        let (task, number, head) = (self.id(t), sight.number, sight.head.clone());
        let by_itself = self.merger.is_none();
        let pulls = &self.settings.land.pulls;
        let follows = match self.below_in_words(t) {
            Some(below) => next_on_stack(&sight, known, pulls, &below),
            None => next(&sight, known, pulls),
        };
        match follows {
            Next::Wait(what) => self.seen(t, attempt, (known, &head, !sight.ours), &what),
            Next::Rework { .. } | Next::Conflict { .. } if !by_itself => {
                let what = "the agent to continue: mainstem run";
                self.seen(t, attempt, (known, &head, false), what);
            }
            Next::Rework { findings, reviews } => {
                self.record_findings(t, attempt, (number, &head), &findings);
                let names: Vec<&str> = findings.iter().map(|(name, _)| name.as_str()).collect();
                let reason = format!("pull request #{number} needs changes: {}", names.join(", "));
                self.emit(Fact::PullReworked(Rework { task, attempt, number, head, reviews }));
                self.leave_train(t, attempt, Class::GateFailed, reason);
            }
            Next::Conflict { onto, files } => self.car_conflicted(t, attempt, onto, files),
            Next::Update => {
                self.seen(t, attempt, (known, &head, false), "an update from the target branch");
                if let Some(care) = self.life.cares.get_mut(&t)
                    && care.updated.as_ref() != Some(&head)
                {
                    care.updated = Some(head);
                    care.update_due = true;
                    care.at = None;
                }
            }
            Next::Merge if !self.holds(t).is_empty() => {
                let what = self.held_help(t).unwrap_or_default();
                self.seen(t, attempt, (known, &head, false), &what);
            }
            Next::Merge => {
                self.emit(Fact::MergeIntended(MergeWish { task, attempt, number, head }));
                self.look_in(t, 0);
            }
            Next::Landed { commit, old } => {
                self.emit(Fact::TaskLanded { task, attempt, commit, old, empty: false });
            }
            Next::GiveUp => {
                self.emit(Fact::PullClosed(Closed { task, attempt, number }));
                let reason = format!("pull request #{number} was closed without being merged");
                self.leave_train(t, attempt, Class::NeedsInput, reason);
            }
            Next::Elsewhere { branch } => {
                let reason = format!(
                    "pull request #{number} was merged into {branch}: mainstem skip {task} if {branch} lands, otherwise mainstem retry {task}"
                );
                self.emit(Fact::PullClosed(Closed { task, attempt, number }));
                self.leave_train(t, attempt, Class::NeedsInput, reason);
            }
        }
    }

    /// All that is held against it, as one verdict: the next attempt is told of it.
    fn record_findings(
        &mut self,
        t: TaskIx,
        attempt: u32,
        (number, head): (u64, &Oid),
        findings: &[(String, String)],
    ) {
        let words = findings.iter().map(|(who, what)| format!("{who}:\n{}\n", what.trim_end()));
        let fact = Fact::GateRan {
            task: self.id(t),
            attempt,
            scope: GateScope::Train,
            gate: format!("pull request #{number}"),
            verdict: Verdict::Failed,
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
        self.emit(fact);
    }

    /// Written down only if it is news; looked at again later, the more so the longer nothing changes.
    pub(super) fn seen(
        &mut self,
        t: TaskIx,
        attempt: u32,
        (known, head, foreign): (&Pull, &Oid, bool),
        what: &str,
    ) {
        let changed = known.waits_for != what
            || known.head.as_ref() != Some(head)
            || known.stage != Stage::Open;
        if changed && let Some(number) = known.number {
            let (task, head, waits_for) = (self.id(t), head.clone(), what.to_owned());
            let seen = Seen { task, attempt, number, head, waits_for, foreign };
            self.emit(Fact::PullSeen(seen));
        }
        let poll = self.settings.land.pulls.poll_ms.max(1);
        let Some(care) = self.life.cares.get_mut(&t) else { return };
        care.every_ms = match changed {
            true => poll,
            false => {
                (care.every_ms + care.every_ms / 2).clamp(poll, poll.saturating_mul(RARER_MAX))
            }
        };
        care.at = Some(self.now.plus_ms(care.every_ms));
    }

    /// A wish to stop that came too late for the merge is in time now.
    fn stop_if_wished(&mut self, t: TaskIx, attempt: u32) {
        let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.clone());
        if let Some((_, reason)) = stop {
            self.leave_train(t, attempt, Class::Interrupted, reason);
        }
    }

    /// The forge or the remote cannot be reached: the work waits. Where it says no again and again, a
    /// person is asked.
    fn pull_failed(
        &mut self,
        (t, attempt): (TaskIx, u32),
        reason: &str,
        after_ms: Option<u64>,
        refused: bool,
    ) {
        let poll = self.settings.land.pulls.poll_ms;
        let Some(care) = self.life.cares.get_mut(&t) else { return };
        care.fails += 1;
        care.looks += 1;
        care.refusals = if refused { care.refusals + 1 } else { 0 };
        if care.refusals >= limits::FORGE_REFUSALS_MAX {
            let task = self.id(t);
            let what = match self.pull(t).and_then(|pull| pull.number) {
                Some(number) => format!("cannot update pull request #{number}"),
                None => "cannot open a pull request".to_owned(),
            };
            let reason = format!(
                "{what}: {reason}. Check the repository and the token, then mainstem retry {task}"
            );
            return self.leave_train(t, attempt, Class::NeedsInput, reason);
        }
        let backoff = limits::TRANSIENT_WAIT_MS << care.fails.min(7);
        let wait = backoff.min(limits::TRANSIENT_WAIT_MS_MAX.max(poll)).max(after_ms.unwrap_or(0));
        care.at = Some(self.now.plus_ms(wait));
        let (task, message) = (Some(self.id(t)), limits::brief(reason));
        if self.lasting(task.as_ref()) != Some(&message) {
            self.emit(Fact::Noticed { task, message, lasts: true });
        }
    }

    /// The fold of what is known of pull requests.
    pub(super) fn note_pull(&mut self, fact: &Fact) {
        let Some(task) = fact.task() else { return };
        if let Fact::CarConflicted { .. } | Fact::CarEvicted { .. } | Fact::TaskLanded { .. } = fact
        {
            self.offers.remove(task);
        }
        if let Fact::PushIntended(push) = fact {
            return self.pulls.entry(task.clone()).or_default().note_push(push);
        }
        let Some(pull) = self.pulls.get_mut(task) else { return };
        match fact {
            Fact::PullOpened(opened) => pull.note_opened(opened),
            Fact::PullSeen(seen) => pull.note_seen(seen),
            Fact::MergeIntended(wish) => pull.note_merging(wish),
            Fact::PullReworked(rework) => pull.note_rework(rework),
            Fact::PullClosed(closed) => pull.note_closed(closed),
            // Redone on the target branch, not on what clashed with it.
            Fact::CarConflicted { .. } => {
                pull.rest();
                pull.from = None;
            }
            Fact::CarEvicted { .. } | Fact::TaskLanded { .. } => pull.rest(),
            Fact::TaskRetried { fresh: true, .. } | Fact::AttemptIntended { fresh: true, .. } => {
                pull.from = None;
            }
            _ => {}
        }
    }
}

impl Input {
    /// News of a pull request.
    pub fn pull(task: TaskIx, attempt: u32, news: News) -> Self {
        Self::Pull { task, attempt, news }
    }
}
