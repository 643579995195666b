//! Which effects the state calls for. Given out once per life; a new life asks for all of them
//! again, which is what recovery is.

use crate::config::{Keep, Unit};
use crate::effect::Effect;
use crate::fact::AfterStop;
use crate::id::{Oid, TaskIx};
use crate::machine::{Interrupting, Machine};
use crate::phase::Phase;
use crate::tasks::AttemptState;

/// What was given out in this life, so that nothing is given out twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    tasks: Vec<Option<Want>>,
    stops: Vec<Option<(u32, bool, Phase, bool)>>,
    answers: Vec<Option<(u32, u32)>>,
    /// Where the branch is to move.
    pub(super) land: Option<Oid>,
    gating: std::collections::BTreeSet<TaskIx>,
}

/// What one task wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Workspace(u32),
    Agent(u32),
    Evidence(u32),
    Gates(u32),
    Removal(u32),
}

impl Given {
    pub(super) fn gates_given(&self, t: TaskIx, attempt: u32) -> bool {
        self.tasks.get(t.ix()).copied().flatten() == Some(Want::Gates(attempt))
    }
    /// What was given for this task may be given again.
    pub(super) fn forget(&mut self, t: TaskIx) {
        if let Some(given) = self.tasks.get_mut(t.ix()) {
            *given = None;
        }
    }
    pub(super) fn forget_agent(&mut self, t: TaskIx) {
        self.tasks[t.ix()] = None;
        self.stops[t.ix()] = None;
        self.answers[t.ix()] = None;
    }
    /// Further tasks came after those that are known. Nothing changes before anything was given.
    pub(super) fn grow(&mut self, before: usize, count: usize) {
        if self.tasks.len() == before && before > 0 {
            self.tasks.resize(count, None);
            self.stops.resize(count, None);
            self.answers.resize(count, None);
        }
    }
}

impl Machine {
    pub(super) fn wants(&mut self) -> Vec<Effect> {
        if !self.life.begun {
            return Vec::new();
        }
        let count = self.plan.tasks.len();
        let first = self.life.given.tasks.len() != count;
        if first {
            self.life.given.tasks = vec![None; count];
            self.life.given.stops = vec![None; count];
            self.life.given.answers = vec![None; count];
        }
        let mut effects = Vec::new();
        // Before anybody asks for one of the gates' slots, those that are free again are freed.
        let held = self.life.given.gating.iter().copied();
        let gating: std::collections::BTreeSet<TaskIx> =
            held.filter(|t| self.own_gates_due(*t)).collect();
        self.life.given.gating = gating;
        let touched = self.touched(first);
        for t in touched {
            self.want_of_task(t, &mut effects);
        }
        self.want_of_train(&mut effects);
        self.want_checkout_looks(&mut effects);
        self.want_recheck(&mut effects);
        self.want_of_suspects(&mut effects);
        self.want_of_pulls(&mut effects);
        self.want_consults(&mut effects);
        self.want_of_reviews(&mut effects);
        effects
    }

    /// Tasks that may want something: the active ones, and those that this step moved.
    fn touched(&self, all: bool) -> Vec<TaskIx> {
        if all {
            return self.tasks.all().collect();
        }
        let mut touched: Vec<TaskIx> = self.tasks.active().collect();
        let named = self.facts.iter().filter_map(|fact| self.graph.ix(fact.task()?.as_str()));
        touched.extend(named);
        if self.life.interrupting.is_some() {
            touched.extend(self.tasks.all().filter(|t| self.tasks.phase(*t).is_idle()));
        }
        if self.settings.workspace.unit != Unit::Task {
            // The last task of a shared workspace frees it for all of them.
            touched.extend(self.tasks.all().filter(|t| self.tasks.phase(*t).is_over()));
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    fn want_of_task(&mut self, t: TaskIx, effects: &mut Vec<Effect>) {
        let phase = self.tasks.phase(t);
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let n = current.n;
        match self.life.unreached.get(&t) {
            Some(_) if !matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking) => {
                self.life.unreached.remove(&t);
            }
            Some((_, at)) if *at > self.now => return,
            _ => {}
        }
        let want = self.want(t, phase);
        if want.is_none() {
            // What was wanted is done; the same may be wanted anew in a later phase.
            self.life.given.tasks[t.ix()] = None;
        }
        if let Some(want) = want
            && self.life.given.tasks[t.ix()] != Some(want)
        {
            self.life.given.tasks[t.ix()] = Some(want);
            let effect = self.effect_of(t, want);
            effects.push(effect);
            if let Want::Removal(_) = want {
                self.tasks.begin_removal(t);
            }
        }
        self.want_answer(t, phase, effects);
        self.want_stop(t, phase, n, effects);
        self.want_snapshot(t, phase, effects);
    }

    fn want(&mut self, t: TaskIx, phase: Phase) -> Option<Want> {
        let current = self.tasks.get(t).current.as_ref()?;
        let n = current.n;
        match phase {
            Phase::Preparing if current.workspace.is_none() => Some(Want::Workspace(n)),
            // Whether its agent was started before a crash is not known here: stopping it tells.
            Phase::Preparing
                if current.stop.is_some()
                    && self.life.given.tasks[t.ix()] != Some(Want::Agent(n)) =>
            {
                None
            }
            Phase::Preparing | Phase::Working | Phase::Asking => Some(Want::Agent(n)),
            Phase::Verifying if current.evidence.is_none() => Some(Want::Evidence(n)),
            Phase::Verifying if !self.own_gates_due(t) => None,
            Phase::Verifying => self.may_gate(t).then_some(Want::Gates(n)),
            // Who leaves puts things away: what was in there is on a snapshot, and the next
            // attempt begins afresh.
            Phase::Waiting | Phase::Ready
                if self.life.interrupting.is_some()
                    && self.settings.workspace.unit == Unit::Task
                    && self.settings.workspace.keep == Keep::UntilLanded =>
            {
                (!current.removed).then_some(Want::Removal(n))
            }
            Phase::Merging | Phase::Waiting | Phase::Ready => None,
            Phase::Landed
            | Phase::Conflicted
            | Phase::Failed
            | Phase::Blocked
            | Phase::Cancelled
            | Phase::Skipped => {
                let unit = self.tasks.claims(t).unit;
                let keep = match self.settings.workspace.unit {
                    Unit::Task => self.keeps_workspace(t),
                    _ => self.unit_is_kept(unit),
                };
                // Those who share a workspace put it away one after the other.
                let going = self.tasks.unit_going(unit) && !current.removing;
                let wanted = self.tasks.unit_wanted(unit) || going;
                (!keep && !wanted && !current.removed).then_some(Want::Removal(n))
            }
        }
    }

    /// Does the workspace of a task that is over stay? People may look at it, work in it, and try the task again.
    pub fn keeps_workspace(&self, t: TaskIx) -> bool {
        let phase = self.tasks.phase(t);
        match self.settings.workspace.keep {
            // Work that does not merge is handed over on its branch, which nobody else may have checked out then.
            Keep::UntilLanded => matches!(phase, Phase::Failed | Phase::Blocked),
            Keep::Failed => phase != Phase::Landed,
            Keep::Always => true,
        }
    }

    /// The same for a workspace that several tasks may share.
    fn unit_is_kept(&self, unit: u32) -> bool {
        let stands = |t: &TaskIx| {
            let current = self.tasks.get(*t).current.as_ref();
            self.tasks.claims(*t).unit == unit && current.is_some_and(|a| !a.removed)
        };
        self.tasks.all().filter(stands).any(|t| self.keeps_workspace(t))
    }

    /// Have a task's own gates not had their say yet? Once reviewers or people were asked, they have.
    fn own_gates_due(&self, t: TaskIx) -> bool {
        let asked = |a: &AttemptState| a.review.is_some();
        self.tasks.phase(t) == Phase::Verifying
            && !self.tasks.get(t).current.as_ref().is_some_and(asked)
            && !self.waits_for_decision(t)
    }

    /// Gates have slots of their own, so that agents' slots do not idle behind them.
    fn may_gate(&mut self, t: TaskIx) -> bool {
        if self.life.interrupting.is_some() {
            return false;
        }
        if self.life.given.gating.contains(&t) {
            return true;
        }
        let limit = match self.settings.limits.verify {
            0 => self.jobs(),
            some => some,
        };
        let free = self.life.given.gating.len() < limit as usize;
        if free {
            self.life.given.gating.insert(t);
        }
        free
    }

    /// The commit that shows that a task's work is there. A forge may squash a phase, and then its
    /// merge is all that is left of the commits in it.
    fn found_in(&self, t: TaskIx) -> Option<Oid> {
        let landed = |t: TaskIx| self.tasks.get(t).landed.as_ref().filter(|landing| !landing.empty);
        let closing = self.graph.dependents(t).filter(|c| self.closes_phase(*c));
        let landing = closing.filter_map(landed).next().or_else(|| landed(t));
        landing.map(|landing| landing.commit.clone())
    }

    fn effect_of(&self, t: TaskIx, want: Want) -> Effect {
        let state = self.tasks.get(t);
        let current = state.current.as_ref().expect("BUG: only attempts want anything");
        let task = t;
        match want {
            Want::Workspace(attempt) => {
                let needs = self.graph.needs(t).filter(|p| self.is_in_base(t, *p));
                let must_contain = needs.filter_map(|p| self.found_in(p)).collect();
                let from = self.begins_at(t);
                let merge = self.merge_to_lay_out(t);
                let continues = self.continuation(t);
                Effect::PrepareWorkspace { task, attempt, must_contain, from, merge, continues }
            }
            Want::Agent(attempt) => Effect::RunAgent { task, attempt },
            Want::Evidence(attempt) => {
                Effect::CollectEvidence { task, attempt, base: current.base.clone() }
            }
            Want::Gates(attempt) => {
                let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
                Effect::RunGates { task, attempt, tip: evidence.tip.clone() }
            }
            Want::Removal(attempt) => Effect::RemoveWorkspace {
                task,
                attempt,
                keep_branch: state.keeps_branch(),
                landed: state.phase() == Phase::Landed,
            },
        }
    }

    fn want_answer(&mut self, t: TaskIx, phase: Phase, effects: &mut Vec<Effect>) {
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        if !matches!(phase, Phase::Working | Phase::Asking) {
            return;
        }
        let attempt = current.n;
        // All of them in a new life: an agent that asked again at once may wait for the first.
        let given = match self.life.given.answers[t.ix()] {
            Some((n, number)) if n == attempt => number,
            _ => 0,
        };
        for answer in current.answers.iter().filter(|answer| answer.number > given) {
            self.life.given.answers[t.ix()] = Some((attempt, answer.number));
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

    fn want_stop(&mut self, t: TaskIx, phase: Phase, n: u32, effects: &mut Vec<Effect>) {
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let Some((then, _)) = current.stop else { return };
        let now = self.life.interrupting == Some(Interrupting::Now);
        let key = Some((n, now, phase, current.workspace.is_some()));
        if self.life.given.stops[t.ix()] == key {
            return;
        }
        let stop = match phase {
            Phase::Working | Phase::Asking => Effect::StopAgent { task: t, attempt: n, now },
            Phase::Preparing if current.workspace.is_some() => {
                Effect::StopAgent { task: t, attempt: n, now }
            }
            Phase::Preparing => Effect::StopJobs { task: t, attempt: n },
            Phase::Verifying if then != AfterStop::Requeue && current.evidence.is_some() => {
                Effect::StopJobs { task: t, attempt: n }
            }
            _ => return,
        };
        self.life.given.stops[t.ix()] = key;
        effects.push(stop);
    }

    fn want_snapshot(&mut self, t: TaskIx, phase: Phase, effects: &mut Vec<Effect>) {
        let every = self.settings.snapshot_every_ms;
        let now = self.now;
        if every == 0 || phase != Phase::Working {
            return;
        }
        let Some(current) = self.tasks.note(t).current.as_mut() else { return };
        let Some(last) = current.snapshot_at.or(current.started_at) else { return };
        if now >= last.plus_ms(every) {
            current.snapshot_at = Some(now);
            let attempt = current.n;
            effects.push(Effect::TakeSnapshot { task: t, attempt });
        }
    }
}
