//! Stacks of pull requests: a task that begins with what another one offers and has not landed. Who may
//! begin so, what its work contains, and what becomes of it when the one below is merged or given up.
//! How a single pull request stands is not decided here.

use crate::config::LandMode;
use crate::fact::{Fact, FailureClass};
use crate::id::{Oid, TaskId, TaskIx};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::pull_request::{
    LowerPullRequest, PullRequestBase, PullRequestStage, PullStackedFact, TaskPullRequest,
};

impl Machine {
    /// What this task's work builds on and has not taken in as it was merged.
    pub fn lower_pull_request(&self, t: TaskIx) -> Option<&LowerPullRequest> {
        self.pull_request(t).filter(|_| self.lands_on_forge(t))?.stacked_on.as_ref()
    }

    /// The task whose pull request the attempt under way builds on, for people.
    pub fn stacked_on(&self, t: TaskIx) -> Option<&TaskId> {
        let active = self.tasks.phase(t).is_active();
        self.lower_pull_request(t).filter(|_| active).map(|lower| &lower.task)
    }

    /// The pull request below, in words; none once it is merged and taken in.
    pub(super) fn describe_lower_pull_request(&self, t: TaskIx) -> Option<String> {
        let lower = &self.lower_pull_request(t)?.task;
        let number = self.forge.pull(lower).and_then(|pull| pull.number);
        Some(match number {
            Some(number) => format!("pull request #{number} of {lower}"),
            None => format!("the pull request of {lower}"),
        })
    }

    fn lower_task(&self, t: TaskIx) -> Option<TaskIx> {
        self.adopted.graph().index_of(self.lower_pull_request(t)?.task.as_str())
    }

    /// Is this task, or something below it, below that one?
    fn is_below_in_stack(&self, t: TaskIx, upper: TaskIx) -> bool {
        // A stack is no higher than there are tasks.
        let mut at = upper;
        for _ in 0..self.adopted.plan().tasks.len() {
            match self.lower_task(at) {
                Some(lower) if lower == t => return true,
                Some(lower) => at = lower,
                None => return false,
            }
        }
        false
    }

    /// What it offers, if others may build on that.
    fn stackable_head(&self, t: TaskIx) -> Option<&Oid> {
        let pull = self
            .pull_request(t)
            .filter(|pull| pull.stage == PullRequestStage::Open && !pull.foreign)?;
        pull.head.as_ref().filter(|_| self.tasks.phase(t) == Phase::Merging)
    }

    /// The pull request that an attempt at this task can begin on: one that has in it all that the task
    /// needs and that has not landed, and the landings of the rest.
    fn find_stack_base(&self, t: TaskIx) -> Option<LowerPullRequest> {
        let land = &self.settings.land;
        if !land.pulls.stacked || land.mode != LandMode::Pr || self.tasks.is_blocked(t) {
            return None;
        }
        if !self.adopted.graph().soft_needs(t).all(|p| self.tasks.phase(p).is_over()) {
            return None;
        }
        let open: Vec<TaskIx> =
            self.adopted.graph().needs(t).filter(|p| self.tasks.is_undecided(*p)).collect();
        if !open.iter().all(|p| self.stackable_head(*p).is_some()) {
            return None;
        }
        let contains =
            |lower: TaskIx| open.iter().all(|p| *p == lower || self.is_below_in_stack(*p, lower));
        let lower = open.iter().copied().find(|lower| contains(*lower))?;
        let began_after = self.tasks.get(lower).began_after;
        let landed =
            self.adopted.graph().needs(t).filter_map(|p| self.tasks.get(p).landed.as_ref());
        if landed.filter(|landing| !landing.empty).any(|landing| landing.order > began_after) {
            return None;
        }
        Some(LowerPullRequest {
            task: self.task_id(lower),
            tip: self.stackable_head(lower)?.clone(),
        })
    }

    /// Does its next attempt go on with work that is there?
    fn continues_work(&self, t: TaskIx) -> bool {
        self.next_attempt_base(t).is_some() || self.keeps_work(t)
    }

    /// Brings the readiness of a task and of those that need it up to what is offered.
    pub(super) fn update_stacks_around(&mut self, t: TaskIx, fact: &Fact) {
        if self.settings.land.pulls.stacked {
            let mut around: Vec<TaskIx> = self.adopted.graph().dependents(t).collect();
            around.extend(self.adopted.graph().soft_dependents(t));
            around.push(t);
            self.update_stacks(around);
        }
        // On record it is so whatever the settings say by now.
        if let Fact::PullStacked(PullStackedFact { on: Some(_), .. }) = fact {
            self.tasks.set_stackable(t, true);
        }
    }

    /// The same for all.
    pub(super) fn update_all_stacks(&mut self) {
        self.update_stacks(self.tasks.all_tasks().collect());
    }

    fn update_stacks(&mut self, tasks: Vec<TaskIx>) {
        for t in tasks {
            if self.tasks.phase(t).is_idle() && !self.tasks.has_prerequisites(t) {
                let on = self.settings.land.pulls.stacked && !self.tasks.is_blocked(t);
                // Work that is on a stack already goes on there, however that stands.
                let stays = self.lower_pull_request(t).is_some() && self.continues_work(t);
                self.tasks.set_stackable(t, on && (stays || self.find_stack_base(t).is_some()));
            }
        }
    }

    /// Puts on record what an attempt that is about to be intended builds on. False if it cannot begin
    /// after all.
    pub(super) fn record_stack_base(&mut self, t: TaskIx) -> bool {
        if self.tasks.has_prerequisites(t) {
            return true;
        }
        let stays = self.lower_pull_request(t).filter(|_| self.continues_work(t)).cloned();
        let Some(lower) = stays.or_else(|| self.find_stack_base(t)) else { return false };
        let (task, attempt) = (self.task_id(t), self.tasks.get(t).attempts + 1);
        self.emit_fact(Fact::PullStacked(PullStackedFact { task, attempt, on: Some(lower) }));
        true
    }

    /// Where the workspace of an attempt begins, if not on the target branch.
    pub(super) fn workspace_base(&self, t: TaskIx) -> Option<Oid> {
        self.next_attempt_base(t)
            .or_else(|| self.lower_pull_request(t).map(|lower| lower.tip.clone()))
    }

    /// Must the landing of what a task needs be in what its attempt begins with? What is below in a
    /// stack is there as it was offered, and may land in another shape meanwhile.
    pub(super) fn must_be_in_base(&self, t: TaskIx, need: TaskIx) -> bool {
        let began_after = self.tasks.get(t).began_after;
        let landed = self.tasks.get(need).landed.as_ref();
        self.lower_pull_request(t).is_none()
            || landed.is_some_and(|landing| landing.order <= began_after)
    }

    /// Did the attempt under way begin with exactly what passed the gates of the task below?
    pub(super) fn started_from_verified(&self, t: TaskIx) -> bool {
        let Some((lower, below)) = self.lower_task(t).zip(self.lower_pull_request(t)) else {
            return false;
        };
        let current = self.tasks.get(lower).current.as_ref();
        let verified = current.and_then(|attempt| attempt.evidence.as_ref());
        let base = self.tasks.get(t).current.as_ref().and_then(|attempt| attempt.base.as_ref());
        base == Some(&below.tip) && verified.is_some_and(|evidence| evidence.tip == below.tip)
    }

    /// The pull request that it goes into, while that is not merged.
    pub(super) fn pull_request_base(&self, t: TaskIx) -> Option<PullRequestBase> {
        let lower = self.lower_task(t).filter(|lower| self.tasks.phase(*lower) != Phase::Landed)?;
        let branch = self.tasks.get(lower).current.as_ref()?.branch.clone();
        Some(PullRequestBase {
            number: self.pull_request(lower).and_then(|pull| pull.number),
            branch,
        })
    }

    /// Is it to go to the target branch now, because what it was stacked on is merged?
    pub(super) fn restack_due(&self, t: TaskIx) -> bool {
        let merged = |lower: TaskIx| self.tasks.phase(lower) == Phase::Landed;
        self.pull_request(t).is_some_and(|pull| pull.stage == PullRequestStage::Open)
            && self.lower_task(t).is_some_and(merged)
    }

    pub(super) fn leave_stack(&mut self, t: TaskIx, attempt: u32) {
        let task = self.task_id(t);
        self.emit_fact(Fact::PullStacked(PullStackedFact { task, attempt, on: None }));
    }

    /// Its own work does not fit what landed. What is ours alone is done again.
    pub(super) fn handle_restack_conflict(
        &mut self,
        (t, attempt): (TaskIx, u32),
        known: &TaskPullRequest,
        head: &Oid,
        (onto, files): (Oid, Vec<String>),
    ) {
        if known.pushed.as_ref() != Some(head) {
            let what = "a person to resolve conflicts: the branch has commits by someone else";
            return self.record_observation(t, attempt, (known, head, false), what);
        }
        if self.engine.merge_only().is_some() {
            let what = "the agent to continue: mainstem run";
            return self.record_observation(t, attempt, (known, head, false), what);
        }
        self.record_candidate_conflict(t, attempt, onto, files);
    }

    /// Work that adds nothing to what it builds on has nothing to offer: it is done when that has landed.
    pub(super) fn finish_empty_stacked_work(&mut self, t: TaskIx, attempt: u32) -> bool {
        let Some(lower) = self.lower_task(t) else { return false };
        let offered = self.pull_request(t).is_some_and(|pull| pull.number.is_some());
        let evidence = self.tasks.get(t).current.as_ref().and_then(|a| a.evidence.as_ref());
        let adds = evidence.is_none_or(|left| left.base != left.tip && left.files > 0);
        if offered || adds {
            return false;
        }
        let landing = self.tasks.get(lower).landed.clone();
        if let Some(landing) = landing {
            let (task, reason) =
                (self.task_id(t), "the work adds nothing to the pull request below".to_owned());
            self.emit_fact(Fact::CarEvicted { task: task.clone(), attempt, reason });
            let (commit, old) = (landing.commit.clone(), landing.commit);
            self.emit_fact(Fact::TaskLanded { task, attempt, commit, old, empty: true });
        }
        true
    }

    /// Work whose base will not be merged cannot be either: a person decides.
    pub(super) fn leave_broken_stacks(&mut self) {
        // One that leaves breaks what is stacked on it.
        while let Some((t, reason)) = self.find_broken_stack() {
            let attempt = self.tasks.get(t).attempts;
            self.leave_stack(t, attempt);
            self.leave_train(t, attempt, FailureClass::NeedsInput, reason);
        }
    }

    fn find_broken_stack(&self) -> Option<(TaskIx, String)> {
        let waits_in_queue = |t: &TaskIx| {
            self.tasks.phase(*t) == Phase::Merging && !self.is_merging_pull_request(*t)
        };
        self.tasks.active_tasks().filter(waits_in_queue).find_map(|t| {
            let lower = &self.lower_pull_request(t)?.task;
            let task = self.task_id(t);
            let Some(at) = self.adopted.graph().index_of(lower.as_str()) else {
                let why = format!("{lower}, which is below in the stack, is no longer in the plan");
                return Some((t, format!("{why}: mainstem retry {task}")));
            };
            let phase = self.tasks.phase(at);
            let why = format!("{lower}, which is below in the stack, is {}", phase.as_str());
            match phase {
                Phase::Skipped => Some((t, format!("{why}: mainstem retry {task}"))),
                Phase::Conflicted | Phase::Failed | Phase::Blocked | Phase::Cancelled => {
                    let help = format!("mainstem retry {lower}, then mainstem retry {task}");
                    Some((t, format!("{why}: {help}")))
                }
                _ => None,
            }
        })
    }

    /// The fold of what work builds on.
    pub(super) fn apply_stack(&mut self, t: TaskIx, fact: &Fact) {
        match fact {
            Fact::PullStacked(stacked) => {
                let merged = self.lower_task(t).and_then(|l| self.tasks.get(l).landed.as_ref());
                let taken_in = merged.map_or(0, |landing| landing.order);
                self.forge.apply_stacked(stacked);
                if stacked.on.is_none() {
                    let state = self.tasks.state_mut(t);
                    state.began_after = state.began_after.max(taken_in);
                }
            }
            Fact::AttemptIntended { task, attempt, fresh, .. } => {
                self.tasks.set_stackable(t, false);
                let kept = self.tasks.get(t).kept_work.is_some() && !fresh;
                if kept || self.next_attempt_base(t).is_some() {
                    return;
                }
                self.forge.apply_attempt_start(task, *attempt);
                let below = self.lower_task(t).map(|lower| self.tasks.get(lower).began_after);
                self.tasks.state_mut(t).began_after = below.unwrap_or(self.train.landings());
            }
            Fact::CarConflicted { task, .. } | Fact::TaskLanded { task, .. } => {
                self.forge.apply_stack_end(task);
            }
            _ => {}
        }
    }
}
