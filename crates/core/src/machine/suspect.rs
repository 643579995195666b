//! Blame where work lands on a forge. What `[gates] verify` holds against a task may be the target
//! branch's own fault: before anybody is blamed the same gates look at the branch.

use std::collections::BTreeMap;

use crate::config::LandMode;
use crate::effect::Effect;
use crate::fact::{Class, GateScope, Verdict};
use crate::id::{Oid, TaskIx};
use crate::machine::{GateResult, Machine};
use crate::phase::Phase;
use crate::train::yard::{Formed, Purpose};

/// The workspace in which the target branch is looked at: no train runs where work lands on a forge.
const LANE: u32 = 1;

/// Tasks whose gates failed and that nobody has blamed yet. Belongs to one life of the engine: the next
/// one runs their gates again.
#[derive(Debug, Clone, Default)]
pub(super) struct Suspects {
    /// Which attempt, and what is held against it.
    tasks: BTreeMap<TaskIx, (u32, String)>,
    look: Look,
    /// The branch was found bad once; once may be bad luck.
    doubted: bool,
}

/// How far the look at the target branch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Look {
    #[default]
    Idle,
    Asked,
    Due(Oid, Oid),
    Verifying(Oid),
}

impl Machine {
    /// Holds a failed gate back until it is known whether the target branch passes it. False if it is
    /// the task's own fault anyway.
    pub(super) fn suspects(&mut self, t: TaskIx, attempt: u32, gates: &[GateResult]) -> bool {
        let own = self.plan.tasks[t.ix()].verify.len();
        let failed = gates.iter().position(|gate| gate.verdict != Verdict::Passed);
        let Some(gate) = failed.filter(|at| *at >= own).and_then(|at| gates.get(at)) else {
            return false;
        };
        if self.settings.land.mode != LandMode::Pr || gate.verdict != Verdict::Failed {
            return false;
        }
        // What it began with passed the same gates before it was offered.
        if self.began_verified(t) {
            return false;
        }
        let reason = crate::failed_gate::headline_of(gate);
        self.life.suspects.tasks.insert(t, (attempt, reason));
        true
    }

    /// Is it under suspicion already?
    pub(super) fn is_suspect(&self, t: TaskIx, attempt: u32) -> bool {
        self.life.suspects.tasks.get(&t).is_some_and(|(n, _)| *n == attempt)
    }

    /// Who is not looked into any more leaves; who is to stop stops.
    pub(super) fn mind_suspects(&mut self) {
        let (tasks, known) = (&self.tasks, &mut self.life.suspects.tasks);
        known.retain(|t, (attempt, _)| {
            let current = tasks.get(*t).current.as_ref();
            tasks.phase(*t) == Phase::Verifying && current.is_some_and(|a| a.n == *attempt)
        });
        let stops = |t: &TaskIx| {
            self.tasks.get(*t).current.as_ref().is_some_and(|attempt| attempt.stop.is_some())
        };
        let over: Vec<TaskIx> = self.life.suspects.tasks.keys().copied().filter(stops).collect();
        for t in over {
            self.life.suspects.tasks.remove(&t);
            self.fail_attempt(t, Class::Interrupted, "stopped".to_owned());
        }
        if self.life.suspects.tasks.is_empty() {
            self.life.suspects = Suspects::default();
        }
    }

    pub(super) fn want_of_suspects(&mut self, effects: &mut Vec<Effect>) {
        if self.life.interrupting.is_some() {
            return;
        }
        let suspects = &mut self.life.suspects;
        let Some((task, (attempt, _))) = suspects.tasks.first_key_value() else { return };
        let (task, attempt) = (*task, *attempt);
        match std::mem::take(&mut suspects.look) {
            Look::Idle => {
                suspects.look = Look::Asked;
                let (purpose, seats) = (Purpose::Base, Vec::new());
                effects.push(Effect::FormLine { task, attempt, purpose, seats });
            }
            Look::Due(commit, tree) => {
                suspects.look = Look::Verifying(tree.clone());
                let (lane, base) = (LANE, true);
                effects.push(Effect::VerifyCar { task, attempt, commit, tree, lane, base });
            }
            other => suspects.look = other,
        }
    }

    /// It is known where the target branch stands.
    pub(super) fn base_found(&mut self, formed: &Formed, tree: &Oid) {
        if self.life.suspects.look != Look::Asked {
            return;
        }
        if self.train.has_passed(tree, &self.settings.gates.verify, &self.tools) {
            return self.blame(None);
        }
        self.life.suspects.look = Look::Due(formed.tip.clone(), tree.clone());
    }

    /// The gates have looked at it.
    pub(super) fn base_judged(&mut self, tree: &Oid, gates: &[GateResult]) {
        if self.life.suspects.look != Look::Verifying(tree.clone()) {
            return;
        }
        let Some((t, (attempt, _))) = self.life.suspects.tasks.first_key_value() else { return };
        let who = (*t, *attempt);
        self.record_gates(who, GateScope::Base, tree, &[], gates);
        let failed = gates.iter().find(|gate| gate.verdict == Verdict::Failed);
        match failed {
            Some(_) if !self.life.suspects.doubted => {
                self.life.suspects.doubted = true;
                self.life.suspects.look = Look::Idle;
            }
            Some(gate) => self.blame(Some(gate.gate.clone())),
            // A gate that could not look at the branch says nothing for the task.
            None => self.blame(None),
        }
    }

    /// The target branch could not be looked at: what was seen of the tasks is all there is.
    pub(super) fn base_unknown(&mut self) {
        self.blame(None);
    }

    /// Whoever failed is to blame, or the branch is.
    fn blame(&mut self, bad: Option<String>) {
        let suspects = std::mem::take(&mut self.life.suspects).tasks;
        let target = self.target.clone();
        for (t, (attempt, reason)) in suspects {
            if !self.is_current(t, attempt, &[Phase::Verifying]) {
                continue;
            }
            match &bad {
                None => self.fail_attempt(t, Class::GateFailed, reason),
                Some(gate) => {
                    let why = format!(
                        "{reason}; `{gate}` also fails on {target} itself, without this task: fix {target}, then mainstem retry {}",
                        self.id(t)
                    );
                    self.fail_attempt(t, Class::NeedsInput, why);
                }
            }
        }
    }
}
