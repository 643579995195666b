//! Blame where work lands on a forge. What `[gates] verify` holds against a task may be the target
//! branch's own fault: before anybody is blamed the same gates look at the branch.

use std::collections::BTreeMap;

use crate::config::LandMode;
use crate::effect::Effect;
use crate::fact::{FailureClass, GateScope, GateVerdict};
use crate::id::{Oid, TaskIx};
use crate::machine::{GateResult, Machine};
use crate::phase::Phase;
use crate::train::batches::{BatchMerge, BatchPurpose};

/// The workspace in which the target branch is looked at: no train runs where work lands on a forge.
const LANE: u32 = 1;

/// Tasks whose gates failed and that nobody has blamed yet. Belongs to one life of the engine: the next
/// one runs their gates again.
#[derive(Debug, Clone, Default)]
pub(crate) struct SuspectTasks {
    /// Which attempt, and what is held against it.
    tasks: BTreeMap<TaskIx, (u32, String)>,
    target_check: TargetCheckStage,
    /// The branch was found bad once; once may be bad luck.
    doubted: bool,
}

/// How far the look at the target branch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum TargetCheckStage {
    #[default]
    Idle,
    Asked,
    Due(Oid, Oid),
    Verifying(Oid),
}

impl Machine {
    /// Holds a failed gate back until it is known whether the target branch passes it. False if it is
    /// the task's own fault anyway.
    pub(super) fn hold_as_suspect(
        &mut self,
        t: TaskIx,
        attempt: u32,
        gates: &[GateResult],
    ) -> bool {
        let own = self.adopted.plan().tasks[t.index()].verify.len();
        let failed = gates.iter().position(|gate| gate.verdict != GateVerdict::Passed);
        let Some(gate) = failed.filter(|at| *at >= own).and_then(|at| gates.get(at)) else {
            return false;
        };
        if self.settings.land.mode != LandMode::Pr || gate.verdict != GateVerdict::Failed {
            return false;
        }
        // What it began with passed the same gates before it was offered.
        if self.started_from_verified(t) {
            return false;
        }
        let reason = crate::failed_gate::gate_headline(gate);
        self.target.suspects_mut().tasks.insert(t, (attempt, reason));
        true
    }

    /// Is it under suspicion already?
    pub(super) fn is_suspect(&self, t: TaskIx, attempt: u32) -> bool {
        self.target.suspects().tasks.get(&t).is_some_and(|(n, _)| *n == attempt)
    }

    /// Who is not looked into any more leaves; who is to stop stops.
    pub(super) fn update_suspects(&mut self) {
        let (tasks, known) = (&self.tasks, &mut self.target.suspects_mut().tasks);
        known.retain(|t, (attempt, _)| {
            let current = tasks.get(*t).current.as_ref();
            tasks.phase(*t) == Phase::Verifying && current.is_some_and(|a| a.n == *attempt)
        });
        let stops = |t: &TaskIx| {
            self.tasks.get(*t).current.as_ref().is_some_and(|attempt| attempt.stop.is_some())
        };
        let over: Vec<TaskIx> =
            self.target.suspects().tasks.keys().copied().filter(stops).collect();
        for t in over {
            self.target.suspects_mut().tasks.remove(&t);
            self.fail_attempt(t, FailureClass::Interrupted, "stopped".to_owned());
        }
        if self.target.suspects().tasks.is_empty() {
            *self.target.suspects_mut() = SuspectTasks::default();
        }
    }

    pub(super) fn issue_suspect_checks(&mut self, effects: &mut Vec<Effect>) {
        if self.engine.is_interrupting() {
            return;
        }
        let suspects = self.target.suspects_mut();
        let Some((task, (attempt, _))) = suspects.tasks.first_key_value() else { return };
        let (task, attempt) = (*task, *attempt);
        match std::mem::take(&mut suspects.target_check) {
            TargetCheckStage::Idle => {
                suspects.target_check = TargetCheckStage::Asked;
                let (purpose, seats) = (BatchPurpose::TargetCheck, Vec::new());
                effects.push(Effect::MergeBatch { task, attempt, purpose, candidates: seats });
            }
            TargetCheckStage::Due(commit, tree) => {
                suspects.target_check = TargetCheckStage::Verifying(tree.clone());
                let (lane, base) = (LANE, true);
                effects.push(Effect::VerifyBatch { task, attempt, commit, tree, lane, base });
            }
            other => suspects.target_check = other,
        }
    }

    /// It is known where the target branch stands.
    pub(super) fn handle_target_position(&mut self, formed: &BatchMerge, tree: &Oid) {
        if self.target.suspects().target_check != TargetCheckStage::Asked {
            return;
        }
        if self.train.queue().have_gates_passed(
            tree,
            &self.settings.gates.verify,
            self.engine.gate_tools(),
        ) {
            return self.blame_suspects(None);
        }
        self.target.suspects_mut().target_check =
            TargetCheckStage::Due(formed.tip.clone(), tree.clone());
    }

    /// The gates have looked at it.
    pub(super) fn handle_target_verdict(&mut self, tree: &Oid, gates: &[GateResult]) {
        if self.target.suspects().target_check != TargetCheckStage::Verifying(tree.clone()) {
            return;
        }
        let Some((t, (attempt, _))) = self.target.suspects().tasks.first_key_value() else {
            return;
        };
        let who = (*t, *attempt);
        self.record_gate_results(who, GateScope::Base, tree, &[], gates);
        let failed = gates.iter().find(|gate| gate.verdict == GateVerdict::Failed);
        match failed {
            Some(_) if !self.target.suspects().doubted => {
                self.target.suspects_mut().doubted = true;
                self.target.suspects_mut().target_check = TargetCheckStage::Idle;
            }
            Some(gate) => self.blame_suspects(Some(gate.gate.clone())),
            // A gate that could not look at the branch says nothing for the task.
            None => self.blame_suspects(None),
        }
    }

    /// The target branch could not be looked at: what was seen of the tasks is all there is.
    pub(super) fn handle_target_check_failure(&mut self) {
        self.blame_suspects(None);
    }

    /// Whoever failed is to blame, or the branch is.
    fn blame_suspects(&mut self, bad: Option<String>) {
        let suspects = std::mem::take(self.target.suspects_mut()).tasks;
        let target = self.run.target().to_owned();
        for (t, (attempt, reason)) in suspects {
            if !self.is_current_attempt(t, attempt, &[Phase::Verifying]) {
                continue;
            }
            match &bad {
                None => self.fail_attempt(t, FailureClass::GateFailed, reason),
                Some(gate) => {
                    let why = format!(
                        "{reason}; `{gate}` also fails on {target} itself, without this task: fix {target}, then mainstem retry {}",
                        self.task_id(t)
                    );
                    self.fail_attempt(t, FailureClass::NeedsInput, why);
                }
            }
        }
    }
}
