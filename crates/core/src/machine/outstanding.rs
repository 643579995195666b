//! Which effects the state calls for. Given out once per life; a new life asks for all of them
//! again, which is what recovery is.

use crate::config::{WorkspaceRetention, WorkspaceSharing};
use crate::effect::Effect;
use crate::fact::StopFollowUp;
use crate::id::{Oid, TaskIx};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::tasks::AttemptState;

/// How a stop was issued: the attempt, whether at once, the phase, and whether the workspace stood.
pub(crate) type IssuedStop = (u32, bool, Phase, bool);

/// What one task wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutstandingEffect {
    Workspace(u32),
    Agent(u32),
    Evidence(u32),
    Gates(u32),
    Removal(u32),
}

impl Machine {
    pub(super) fn outstanding_effects(&mut self) -> Vec<Effect> {
        if !self.engine.has_begun() {
            return Vec::new();
        }
        let count = self.adopted.plan().tasks.len();
        let first = self.issued.prepare_tasks(count);
        let mut effects = Vec::new();
        // Slots of gates that gave their verdict are freed before another task asks for one.
        let over: Vec<TaskIx> =
            self.issued.gate_slots().filter(|t| !self.own_gates_due(*t)).collect();
        self.issued.free_gate_slots(&over);
        let touched = self.touched_tasks(first);
        for t in touched {
            self.issue_task_effects(t, &mut effects);
        }
        self.issue_train_effects(&mut effects);
        self.issue_checkout_inspections(&mut effects);
        self.issue_recheck(&mut effects);
        self.issue_suspect_checks(&mut effects);
        self.issue_forge_actions(&mut effects);
        self.issue_consultations(&mut effects);
        self.issue_reviews(&mut effects);
        effects
    }

    /// Tasks that may want something: the active ones, and those that this step moved.
    fn touched_tasks(&self, all: bool) -> Vec<TaskIx> {
        if all {
            return self.tasks.all_tasks().collect();
        }
        let mut touched: Vec<TaskIx> = self.tasks.active_tasks().collect();
        let named = self
            .facts
            .iter()
            .filter_map(|fact| self.adopted.graph().index_of(fact.task()?.as_str()));
        touched.extend(named);
        if self.engine.is_interrupting() {
            touched.extend(self.tasks.all_tasks().filter(|t| self.tasks.phase(*t).is_idle()));
        }
        if self.settings.workspace.unit != WorkspaceSharing::Task {
            // The last task of a shared workspace frees it for all of them.
            touched.extend(self.tasks.all_tasks().filter(|t| self.tasks.phase(*t).is_over()));
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    fn issue_task_effects(&mut self, t: TaskIx, effects: &mut Vec<Effect>) {
        let phase = self.tasks.phase(t);
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let n = current.n;
        let is_at_work = matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking);
        if self.issued.is_agent_delayed(t, is_at_work, self.now) {
            return;
        }
        // What was wanted and is done may be wanted anew in a later phase.
        let want = self.outstanding_effect(t, phase);
        if self.issued.issue(t, want)
            && let Some(want) = want
        {
            effects.push(self.build_effect(t, want));
            if let OutstandingEffect::Removal(_) = want {
                self.tasks.begin_workspace_removal(t);
            }
        }
        self.issue_answer(t, phase, effects);
        self.issue_stop(t, phase, n, effects);
        self.issue_snapshot(t, phase, effects);
    }

    fn outstanding_effect(&mut self, t: TaskIx, phase: Phase) -> Option<OutstandingEffect> {
        let current = self.tasks.get(t).current.as_ref()?;
        let n = current.n;
        match phase {
            Phase::Preparing if current.workspace.is_none() => {
                Some(OutstandingEffect::Workspace(n))
            }
            // Whether its agent was started before a crash is not known here: stopping it tells.
            Phase::Preparing
                if current.stop.is_some()
                    && self.issued.issued(t) != Some(OutstandingEffect::Agent(n)) =>
            {
                None
            }
            Phase::Preparing | Phase::Working | Phase::Asking => Some(OutstandingEffect::Agent(n)),
            Phase::Verifying if current.evidence.is_none() => Some(OutstandingEffect::Evidence(n)),
            Phase::Verifying if !self.own_gates_due(t) => None,
            Phase::Verifying => self.claim_gate_slot(t).then_some(OutstandingEffect::Gates(n)),
            // Who leaves puts things away: what was in there is on a snapshot, and the next
            // attempt begins afresh.
            Phase::Waiting | Phase::Ready
                if self.engine.is_interrupting()
                    && self.settings.workspace.unit == WorkspaceSharing::Task
                    && self.settings.workspace.keep == WorkspaceRetention::UntilLanded =>
            {
                (!current.removed).then_some(OutstandingEffect::Removal(n))
            }
            Phase::Merging | Phase::Waiting | Phase::Ready => None,
            Phase::Landed
            | Phase::Conflicted
            | Phase::Failed
            | Phase::Blocked
            | Phase::Cancelled
            | Phase::Skipped => {
                let unit = self.tasks.resources(t).workspace_key;
                let keep = match self.settings.workspace.unit {
                    WorkspaceSharing::Task => self.keeps_workspace(t),
                    _ => self.keeps_shared_workspace(unit),
                };
                // Those who share a workspace put it away one after the other.
                let going = self.tasks.is_workspace_being_removed(unit) && !current.removing;
                let wanted = self.tasks.is_workspace_needed(unit) || going;
                (!keep && !wanted && !current.removed).then_some(OutstandingEffect::Removal(n))
            }
        }
    }

    /// Does the workspace of a task that is over stay? People may look at it, work in it, and try the task again.
    pub fn keeps_workspace(&self, t: TaskIx) -> bool {
        let phase = self.tasks.phase(t);
        match self.settings.workspace.keep {
            // Work that does not merge is handed over on its branch, which nobody else may have checked out then.
            WorkspaceRetention::UntilLanded => matches!(phase, Phase::Failed | Phase::Blocked),
            WorkspaceRetention::Failed => phase != Phase::Landed,
            WorkspaceRetention::Always => true,
        }
    }

    /// The same for a workspace that several tasks may share.
    fn keeps_shared_workspace(&self, unit: u32) -> bool {
        let stands = |t: &TaskIx| {
            let current = self.tasks.get(*t).current.as_ref();
            self.tasks.resources(*t).workspace_key == unit && current.is_some_and(|a| !a.removed)
        };
        self.tasks.all_tasks().filter(stands).any(|t| self.keeps_workspace(t))
    }

    /// Have a task's own gates not had their say yet? Once reviewers or people were asked, they have.
    fn own_gates_due(&self, t: TaskIx) -> bool {
        let asked = |a: &AttemptState| a.review.is_some();
        self.tasks.phase(t) == Phase::Verifying
            && !self.tasks.get(t).current.as_ref().is_some_and(asked)
            && !self.waits_for_decision(t)
    }

    /// Gates have slots of their own, so that agents' slots do not idle behind them.
    fn claim_gate_slot(&mut self, t: TaskIx) -> bool {
        if self.engine.is_interrupting() {
            return false;
        }
        let limit = match self.settings.limits.verify {
            0 => self.job_limit(),
            some => some,
        };
        self.issued.claim_gate_slot(t, limit as usize)
    }

    /// The commit that shows that a task's work is there. A forge may squash a phase, and then its
    /// merge is all that is left of the commits in it.
    fn landed_commit(&self, t: TaskIx) -> Option<Oid> {
        let landed = |t: TaskIx| self.tasks.get(t).landed.as_ref().filter(|landing| !landing.empty);
        let closing = self.adopted.graph().dependents(t).filter(|c| self.closes_phase(*c));
        let landing = closing.filter_map(landed).next().or_else(|| landed(t));
        landing.map(|landing| landing.commit.clone())
    }

    fn build_effect(&self, t: TaskIx, want: OutstandingEffect) -> Effect {
        let state = self.tasks.get(t);
        let current = state.current.as_ref().expect("BUG: only attempts want anything");
        let task = t;
        match want {
            OutstandingEffect::Workspace(attempt) => {
                let needs = self.adopted.graph().needs(t).filter(|p| self.must_be_in_base(t, *p));
                let must_contain = needs.filter_map(|p| self.landed_commit(p)).collect();
                let from = self.workspace_base(t);
                let merge = self.merge_to_lay_out(t);
                let continues = self.workspace_continuation(t);
                Effect::PrepareWorkspace { task, attempt, must_contain, from, merge, continues }
            }
            OutstandingEffect::Agent(attempt) => Effect::RunAgent { task, attempt },
            OutstandingEffect::Evidence(attempt) => {
                Effect::CollectEvidence { task, attempt, base: current.base.clone() }
            }
            OutstandingEffect::Gates(attempt) => {
                let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
                Effect::RunGates { task, attempt, tip: evidence.tip.clone() }
            }
            OutstandingEffect::Removal(attempt) => Effect::RemoveWorkspace {
                task,
                attempt,
                keep_branch: state.keeps_branch(),
                landed: state.phase() == Phase::Landed,
            },
        }
    }

    fn issue_answer(&mut self, t: TaskIx, phase: Phase, effects: &mut Vec<Effect>) {
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        if !matches!(phase, Phase::Working | Phase::Asking) {
            return;
        }
        let attempt = current.n;
        // All of them in a new life: an agent that asked again at once may wait for the first.
        let given = self.issued.last_answer(t, attempt);
        for answer in current.answers.iter().filter(|answer| answer.number > given) {
            self.issued.issue_answer(t, attempt, answer.number);
            effects.push(Effect::DeliverAnswer {
                task: t,
                attempt,
                number: answer.number,
                question: answer.question.clone(),
                text: answer.text.clone(),
                reference: answer.reference.clone(),
            });
        }
    }

    fn issue_stop(&mut self, t: TaskIx, phase: Phase, n: u32, effects: &mut Vec<Effect>) {
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let Some((then, _)) = current.stop else { return };
        let now = self.engine.is_interrupting_now();
        let key: IssuedStop = (n, now, phase, current.workspace.is_some());
        if self.issued.is_stop_issued(t, key) {
            return;
        }
        let stop = match phase {
            Phase::Working | Phase::Asking => Effect::StopAgent { task: t, attempt: n, now },
            Phase::Preparing if current.workspace.is_some() => {
                Effect::StopAgent { task: t, attempt: n, now }
            }
            Phase::Preparing => Effect::StopJobs { task: t, attempt: n },
            Phase::Verifying if then != StopFollowUp::Requeue && current.evidence.is_some() => {
                Effect::StopJobs { task: t, attempt: n }
            }
            _ => return,
        };
        self.issued.issue_stop(t, key);
        effects.push(stop);
    }

    fn issue_snapshot(&mut self, t: TaskIx, phase: Phase, effects: &mut Vec<Effect>) {
        let every = self.settings.snapshot_every_ms;
        let now = self.now;
        if every == 0 || phase != Phase::Working {
            return;
        }
        let Some(current) = self.tasks.state_mut(t).current.as_mut() else { return };
        let Some(last) = current.snapshot_at.or(current.started_at) else { return };
        if now >= last.plus_ms(every) {
            current.snapshot_at = Some(now);
            let attempt = current.n;
            effects.push(Effect::TakeSnapshot { task: t, attempt });
        }
    }
}
