//! The train at work: what is reported of lines, what follows from the policy, and what it wants
//! done. Verdicts and landings are facts; lines under way belong to one life of the engine.

use crate::config::{ConflictAction, LandMode};
use crate::effect::{CandidateToLand, CandidateToMerge, Effect};
use crate::fact::{Fact, FailureClass, GateScope, GateVerdict};
use crate::failed_gate::gate_headline;
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::apply::describe_conflict;
use crate::machine::{GateResult, Input, Machine};
use crate::phase::Phase;
use crate::train::batches::{BatchMerge, BatchPurpose, BatchState, BatchVerdict};
use crate::train::{CandidateStage, policy};

impl Machine {
    pub(super) fn handle_train_input(&mut self, input: Input) {
        let by_pull = self.settings.land.mode == LandMode::Pr;
        match input {
            Input::BatchMerged { formed, base_tree, .. } if by_pull => {
                self.handle_target_position(&formed, &base_tree);
            }
            Input::BatchVerified { tree, gates, .. } if by_pull => {
                self.handle_target_verdict(&tree, &gates);
            }
            Input::TrainFailed { task, attempt, .. } | Input::TargetGone { task, attempt }
                if self.is_suspect(task, attempt) =>
            {
                self.handle_target_check_failure();
            }
            Input::BatchMerged { purpose, places, formed, base_tree } => {
                self.handle_batch_merged(purpose, &places, formed, &base_tree);
            }
            Input::BatchConflicted { purpose, places, at, onto, files, with_main } => {
                self.handle_batch_conflict(purpose, &places, (at, with_main), onto, files);
            }
            Input::BatchVerified { tree, gates, .. } => self.handle_batch_verified(&tree, &gates),
            // Whatever we thought of the car: what is on the branch is on the branch.
            // Before it joins the train that is so only where the journal lost its end.
            Input::Landed { task, attempt, commit, old }
                if self
                    .train
                    .queue()
                    .candidate_of(task)
                    .is_some_and(|car| car.attempt == attempt)
                    || self.is_current_attempt(
                        task,
                        attempt,
                        &[Phase::Preparing, Phase::Verifying],
                    ) =>
            {
                self.handle_landed(task, attempt, commit, old);
            }
            Input::LandingRefused { new, found, .. } => {
                self.handle_landing_refusal(&new, found.as_ref());
            }
            Input::TargetRechecked { commit, gates } => self.handle_recheck(&commit, gates),
            Input::PushFailed { task, attempt, why } => {
                self.handle_push_failure(task, attempt, why);
            }
            Input::TrainFailed { task, attempt, reason } => {
                self.handle_train_failure(task, attempt, &reason);
            }
            Input::TargetGone { task, attempt } => self.handle_missing_target(task, attempt),
            Input::HoldCandidate { task, attempt, reason } => {
                self.hold_candidate(task, attempt, reason);
            }
            Input::CheckoutInspected { task, attempt, reason } => {
                self.handle_checkout_inspection(task, attempt, reason);
            }
            Input::ReleaseCandidate { task, attempt, kind } => {
                self.release_candidate(task, attempt, kind, "engine");
            }
            _ => {}
        }
    }

    /// Is the target branch about to move for this task?
    pub(super) fn is_landing(&self, t: TaskIx) -> bool {
        self.train.queue().candidate_of(t).is_some_and(|car| car.stage.is_landing())
            || self.is_merging_pull_request(t)
    }

    fn candidate_attempt(&self, place: u64) -> Option<(TaskIx, u32)> {
        self.train.queue().candidate_at(place).map(|car| (car.task, car.attempt))
    }

    /// Whoever is told of a line's verdicts, and who else is in it.
    fn verdict_recipients(&self, places: &[u64]) -> Option<((TaskIx, u32), Vec<TaskId>)> {
        let mut unit: Vec<(TaskIx, u32)> =
            places.iter().filter_map(|place| self.candidate_attempt(*place)).collect();
        let last = unit.pop()?;
        Some((last, unit.into_iter().map(|(t, _)| self.task_id(t)).collect()))
    }

    fn handle_batch_merged(
        &mut self,
        purpose: BatchPurpose,
        places: &[u64],
        formed: BatchMerge,
        base_tree: &Oid,
    ) {
        let asked = self.train.batches_mut().find_unmerged_batch(purpose, places).is_some();
        let there = places.iter().all(|place| self.train.queue().candidate_at(*place).is_some());
        if !asked || !there {
            return;
        }
        if self.train.queue().landing_candidates().next().is_some() {
            // The branch moves: it would be of yesterday.
            return self.train.batches_mut().forget_merge_request(purpose, places);
        }
        self.train.clear_errors();
        self.train.record_merged(places);
        let (gates, tools) =
            (self.settings.gates.verify.clone(), self.engine.gate_tools().to_owned());
        self.train.batches_mut().set_target_commit(&formed.onto, self.now);
        if self.train.batches().target_passes().is_none()
            && self.train.queue().have_gates_passed(base_tree, &gates, &tools)
        {
            self.train.batches_mut().set_target_passes(true);
        }
        let Some(line) = self.train.batches_mut().find_unmerged_batch(purpose, places) else {
            return;
        };
        let (unit, fresh) = (line.own_candidates().to_vec(), line.state == BatchState::Wanted);
        let known = self.train.queue().have_gates_passed(&formed.tree, &gates, &tools);
        let tree = formed.tree.clone();
        if purpose != BatchPurpose::TargetCheck {
            self.record_candidate_merges(&unit, places, &formed);
        }
        self.train.batches_mut().record_merge(purpose, places, formed, known);
        if known && fresh && purpose != BatchPurpose::TargetCheck {
            let Some((last, with)) = self.verdict_recipients(&unit) else { return };
            let known: Vec<GateResult> =
                gates.iter().map(|gate| GateResult::passed_before(gate)).collect();
            self.record_gate_results(last, GateScope::Train, &tree, &with, &known);
        }
    }

    /// Puts the merges of these cars on record, where they are news.
    fn record_candidate_merges(&mut self, unit: &[u64], places: &[u64], formed: &BatchMerge) {
        for (place, step) in places.iter().zip(&formed.candidate_merges) {
            let Some(car) =
                self.train.queue().candidate_at(*place).filter(|_| unit.contains(place))
            else {
                continue;
            };
            let (onto, commit) = (step.onto.clone(), step.commit.clone());
            let stage = CandidateStage::Formed { onto, commit, tree: step.tree.clone() };
            if car.stage == stage {
                continue;
            }
            let (t, attempt) = (car.task, car.attempt);
            self.emit_fact(Fact::CarFormed {
                task: self.task_id(t),
                attempt,
                onto: step.onto.clone(),
                commit: step.commit.clone(),
                tree: step.tree.clone(),
                reused: step.reused.clone(),
            });
        }
    }

    fn handle_batch_conflict(
        &mut self,
        purpose: BatchPurpose,
        places: &[u64],
        (at, with_main): (usize, bool),
        onto: Oid,
        files: Vec<String>,
    ) {
        let asked = self.train.batches_mut().find_unmerged_batch(purpose, places).is_some();
        let Some(place) = places.get(at).copied().filter(|_| asked) else { return };
        let Some((t, attempt)) = self.candidate_attempt(place) else { return };
        if self.train.queue().landing_candidates().next().is_some() {
            return self.train.batches_mut().forget_merge_request(purpose, places);
        }
        self.train.clear_errors();
        self.train.record_merged(places);
        self.train.batches_mut().set_target_commit(&onto, self.now);
        if !with_main {
            return self.train.batches_mut().record_conflict(&places[..at], place, self.now);
        }
        self.record_candidate_conflict(t, attempt, onto, files);
    }

    /// What was merged does not merge with the target branch.
    pub(super) fn record_candidate_conflict(
        &mut self,
        t: TaskIx,
        attempt: u32,
        onto: Oid,
        files: Vec<String>,
    ) {
        let task = self.task_id(t);
        let reason = describe_conflict(&files);
        self.emit_fact(Fact::CarConflicted { task, attempt, onto, files });
        match self.settings.land.on_conflict {
            ConflictAction::Rework | ConflictAction::Agent => {
                self.fail_attempt(t, FailureClass::Conflicted, reason);
            }
            ConflictAction::Manual | ConflictAction::Fail => {
                self.end_attempt(t, FailureClass::Conflicted, reason, None);
            }
        }
    }

    fn handle_batch_verified(&mut self, tree: &Oid, gates: &[GateResult]) {
        let Some(at) = self.train.batches_mut().find_verifying(tree) else { return };
        let line = &self.train.batches().all_batches()[at];
        let scope = if line.purpose == BatchPurpose::TargetCheck {
            GateScope::Base
        } else {
            GateScope::Train
        };
        let unit = line.own_candidates().to_vec();
        if let BatchState::Running { lane } = line.state {
            self.train.free_lane(lane);
        }
        let Some((last, with)) = self.verdict_recipients(&unit) else { return };
        let wanted = self.settings.gates.verify.len();
        let refused = gates.iter().find(|gate| gate.verdict != GateVerdict::Passed);
        let (judgement, why) = match refused {
            None if gates.len() >= wanted => (BatchVerdict::Good, String::new()),
            None => (BatchVerdict::Unable, "a check on the merged tree gave no result".to_owned()),
            Some(gate) if gate.verdict == GateVerdict::Error => {
                (BatchVerdict::Unable, gate_headline(gate))
            }
            Some(gate) => (BatchVerdict::Bad, gate_headline(gate)),
        };
        self.train.clear_errors();
        self.train.batches_mut().record_verdict(at, judgement, why, self.now);
        self.record_gate_results(last, scope, tree, &with, gates);
    }

    fn handle_landed(&mut self, t: TaskIx, attempt: u32, commit: Oid, old: Oid) {
        self.train.clear_errors();
        self.clear_push_trouble();
        let to = match self.train.queue().candidate_of(t).map(|car| &car.stage) {
            Some(CandidateStage::Landing { new, .. }) => Some(new.clone()),
            _ => None,
        };
        let task = self.task_id(t);
        self.emit_fact(Fact::TaskLanded { task, attempt, commit, old, empty: false });
        match to {
            // Found where we did not look for it: somebody else knows where the branch stands.
            None => self.train.batches_mut().forget_target_commit(self.now),
            Some(_) if self.train.queue().landing_candidates().next().is_some() => {}
            Some(new) => {
                let cars = self.train.take_landing();
                if cars.is_empty() {
                    self.train.batches_mut().forget_target_commit(self.now);
                } else {
                    self.train.batches_mut().record_landing(&cars, &new, self.now);
                }
            }
        }
    }

    /// Somebody else moved the branch first. A wish to stop that came too late for the landing is
    /// in time now.
    pub(super) fn handle_landing_refusal(&mut self, refused: &Oid, found: Option<&Oid>) {
        let landing: Vec<(TaskIx, u32, Oid)> = self
            .train
            .queue()
            .landing_candidates()
            .filter_map(|car| match &car.stage {
                CandidateStage::Landing { old, new, .. } if new == refused => {
                    Some((car.task, car.attempt, old.clone()))
                }
                _ => None,
            })
            .collect();
        if landing.is_empty() {
            return;
        }
        self.train.take_landing();
        // What is merged next may be the very same: a remote that had not been seen yet is refused once.
        self.train.forget_issued_landing();
        self.clear_push_trouble();
        match found {
            Some(main) => self.train.batches_mut().set_target_commit(main, self.now),
            None => self.train.batches_mut().forget_target_commit(self.now),
        }
        for (t, attempt, expected) in landing {
            let (task, found) = (self.task_id(t), found.cloned());
            self.emit_fact(Fact::LandingRefused { task: task.clone(), attempt, expected, found });
            let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.clone());
            if let Some((_, reason)) = stop {
                self.emit_fact(Fact::CarEvicted { task, attempt, reason: reason.clone() });
                self.fail_attempt(t, FailureClass::Interrupted, reason);
            }
        }
    }

    /// Git or the disk failed under the train. A car that cannot be merged or verified leaves; one
    /// whose landing is intended stays, because only the branch itself can say what became of it.
    fn handle_train_failure(&mut self, t: TaskIx, attempt: u32, reason: &str) {
        let Some(car) = self.train.queue().candidate_of(t).filter(|car| car.attempt == attempt)
        else {
            return;
        };
        let (place, landing) = (car.queue_number, car.stage.is_landing());
        let errors = self.train.record_error(self.now);
        self.train.forget_issued_landing();
        self.train.batches_mut().forget_candidate(place, self.now);
        let task = self.task_id(t);
        if landing || errors <= limits::TRANSIENTS_MAX {
            let message = limits::clip_for_fact(&format!("merging failed: {reason}"));
            self.emit_fact(Fact::Noticed { task: Some(task), message, lasts: true });
        } else {
            self.train.clear_errors();
            let reason = limits::clip_for_fact(reason);
            self.emit_fact(Fact::CarEvicted { task, attempt, reason: reason.clone() });
            self.fail_attempt(t, FailureClass::Transient, reason);
        }
    }

    /// Nothing can land until a person brings the target branch back; the work is kept.
    fn handle_missing_target(&mut self, t: TaskIx, attempt: u32) {
        let Some(car) = self.train.queue().candidate_of(t).filter(|car| car.attempt == attempt)
        else {
            return;
        };
        let place = car.queue_number;
        self.train.forget_issued_landing();
        self.train.batches_mut().forget_candidate(place, self.now);
        let target = self.run.target();
        let reason = format!("the target branch {target} no longer exists");
        let landings = self.tasks.all_tasks().filter_map(|t| self.tasks.get(t).landed.as_ref());
        let last = landings.max_by_key(|landing| landing.order).map(|landing| &landing.commit);
        let commit = last.or(self.run.base()).map_or("COMMIT", Oid::as_str);
        let help = format!("restore the branch with git branch {target} {commit}");
        self.emit_fact(Fact::CarEvicted { task: self.task_id(t), attempt, reason: reason.clone() });
        self.fail_with_help(t, FailureClass::NeedsInput, reason, Some(help));
    }

    /// Follows the policy until there is nothing left to decide.
    pub(super) fn drive_train(&mut self) {
        let idle = self.train.queue().candidates().is_empty()
            && self.train.batches().all_batches().is_empty();
        // Work that lands on a forge waits for its pull request, not for its turn.
        let elsewhere = self.settings.land.mode == LandMode::Pr;
        if self.engine.is_interrupting() || elsewhere || (idle && !self.target.is_frozen()) {
            return;
        }
        if self.target.take_due_look(self.now) {
            self.train.batches_mut().recheck_target();
        }
        let lanes = usize::try_from(self.settings.land.lanes.max(1)).unwrap_or(1);
        let foreseen = self.forecast_candidate_conflicts();
        self.train.batches_mut().set_forecast_conflicts(foreseen);
        loop {
            self.train.drop_departed_candidates(self.now);
            // While the branch moves, nothing else is decided.
            if self.train.queue().landing_candidates().next().is_some() {
                return;
            }
            let groups = self.settings.land.groups;
            let plan = policy::plan_train(self.train.queue(), self.train.batches(), lanes, groups);
            if let Some(place) = plan.evict {
                self.evict_candidate(place);
            } else if let Some(places) = plan.land {
                if !self.hold_for_approvals(&places) {
                    return self.intend_landing(&places);
                }
            } else {
                self.train.batches_mut().apply_plan(&plan, self.now);
                return self.set_frozen(plan.frozen);
            }
        }
    }

    fn evict_candidate(&mut self, place: u64) {
        let Some((t, attempt)) = self.candidate_attempt(place) else { return };
        let lines = self.train.batches().all_batches().iter();
        let why = lines
            .filter(|line| line.candidates == [place] && line.purpose != BatchPurpose::TargetCheck);
        let why = why.map(|line| line.why.clone()).find(|why| !why.is_empty());
        let reason = why.unwrap_or_else(|| "a check on the merged tree failed".to_owned());
        if self.reject_reused_resolution(t, attempt, &reason) {
            return;
        }
        let task = self.task_id(t);
        self.emit_fact(Fact::CarEvicted { task, attempt, reason: reason.clone() });
        self.fail_attempt(t, FailureClass::GateFailed, reason);
    }

    /// The line of these cars, merged and verified.
    fn verified_merge_of(&self, places: &[u64]) -> Option<BatchMerge> {
        let lines = self.train.batches().all_batches().iter();
        let mut lines = lines.filter(|line| line.on_current_target && line.candidates == places);
        lines.find_map(|line| line.merge.clone())
    }

    /// Does a person have to approve some of this line first? Those are held, and the others go on.
    fn hold_for_approvals(&mut self, places: &[u64]) -> bool {
        let Some(formed) = self.verified_merge_of(places) else { return false };
        let cars: Vec<_> =
            places.iter().filter_map(|place| self.candidate_attempt(*place)).collect();
        let waits = self.hold_unapproved(&cars, &formed.tree);
        if waits {
            self.ask_about_held_work();
        }
        waits
    }

    fn intend_landing(&mut self, places: &[u64]) {
        let Some(formed) = self.verified_merge_of(places) else { return };
        self.record_candidate_merges(places, places, &formed);
        for place in places {
            let Some((t, attempt)) = self.candidate_attempt(*place) else { continue };
            self.emit_fact(Fact::LandingIntended {
                task: self.task_id(t),
                attempt,
                old: formed.onto.clone(),
                new: formed.commit.clone(),
                tree: formed.tree.clone(),
            });
        }
        self.train.begin_landing(places);
    }

    fn set_frozen(&mut self, frozen: bool) {
        if !self.target.set_frozen(frozen, self.now) && !frozen {
            return;
        }
        let Some(head) = self.train.queue().head() else { return };
        let (task, target) = (Some(self.task_id(head.task)), self.run.target());
        let message = match self.target_failure() {
            _ if !frozen => "merging resumes".to_owned(),
            Some(failure) => {
                let (headline, help) = (failure.headline(), self.target_failure_help());
                limits::clip_for_fact(&format!(
                    "merging is paused: on {target} itself {headline}; {help}"
                ))
            }
            None => format!("merging is paused: the checks fail on {target} itself"),
        };
        // Gates that run once more, and another head, end what was said; it is true all the same.
        if !frozen || self.lasting_notice(task.as_ref()) != Some(&message) {
            self.emit_fact(Fact::Noticed { task, message, lasts: frozen });
        }
    }

    pub(super) fn issue_train_effects(&mut self, effects: &mut Vec<Effect>) {
        for lane in self.train.batches_mut().take_cancelled_lanes() {
            if let Some((task, attempt)) = self.train.free_lane(lane) {
                effects.push(Effect::StopLane { task, attempt, lane });
            }
        }
        if self.train.is_delayed(self.now) {
            return;
        }
        if let Some(effect) = self.issue_landing() {
            // A landing that is intended is finished even when we are asked to stop.
            effects.extend(effect);
            return;
        }
        self.train.forget_issued_landing();
        if self.engine.is_interrupting() {
            return;
        }
        for (purpose, places) in self.train.batches_mut().request_merges() {
            effects.extend(self.merge_batch_effect(purpose, &places));
        }
        for (at, lane) in
            self.train.batches_mut().start_verifications(self.settings.land.lanes.max(1), self.now)
        {
            let line = &self.train.batches().all_batches()[at];
            let base = line.purpose == BatchPurpose::TargetCheck;
            let Some(formed) = line.merge.as_ref() else { continue };
            let (commit, tree) = (formed.tip.clone(), formed.tree.clone());
            let Some((task, attempt)) =
                line.candidates.last().and_then(|car| self.candidate_attempt(*car))
            else {
                continue;
            };
            self.train.occupy_lane(lane, task, attempt);
            effects.push(Effect::VerifyBatch { task, attempt, commit, tree, lane, base });
        }
    }

    /// The landing under way; `Some(None)` if it was given out.
    fn issue_landing(&mut self) -> Option<Option<Effect>> {
        let mut members = Vec::new();
        let mut whole = None;
        for car in self.train.queue().landing_candidates() {
            let CandidateStage::Landing { old, new, tree, onto, commit } = &car.stage else {
                continue;
            };
            whole = Some((old.clone(), new.clone(), tree.clone()));
            let (task, attempt) = (car.task, car.attempt);
            let (onto, commit, resolved) =
                (onto.clone(), commit.clone(), self.conflict_resolution(task));
            members.push(CandidateToLand { task, attempt, onto, commit, resolved });
        }
        let (old, new, tree) = whole?;
        let last = members.last()?;
        let (task, attempt) = (last.task, last.attempt);
        if !self.train.issue_landing(&new) {
            return Some(None);
        }
        Some(Some(Effect::Land { task, attempt, old, new, tree, candidates: members }))
    }

    fn merge_batch_effect(&self, purpose: BatchPurpose, places: &[u64]) -> Option<Effect> {
        let (task, attempt) = places.last().and_then(|place| self.candidate_attempt(*place))?;
        let seats = match purpose {
            BatchPurpose::TargetCheck => Vec::new(),
            BatchPurpose::Landing | BatchPurpose::Trial => {
                places.iter().filter_map(|place| self.candidate_to_merge(*place)).collect()
            }
        };
        Some(Effect::MergeBatch { task, attempt, purpose, candidates: seats })
    }

    fn candidate_to_merge(&self, place: u64) -> Option<CandidateToMerge> {
        let car = self.train.queue().candidate_at(place)?;
        let current = self.tasks.get(car.task).current.as_ref()?;
        let base =
            current.base.clone().or_else(|| Some(current.evidence.as_ref()?.base.clone()))?;
        Some(CandidateToMerge {
            queue_number: place,
            task: car.task,
            attempt: car.attempt,
            tip: car.tip.clone(),
            base,
            date: current.ended_at.unwrap_or(current.intended_at),
            check_landed: !self.train.was_merged(place),
        })
    }
}

impl GateResult {
    /// A verdict that was known before.
    fn passed_before(gate: &str) -> Self {
        Self {
            gate: gate.to_owned(),
            verdict: GateVerdict::Passed,
            duration_ms: 0,
            log: None,
            detail: String::new(),
            cached: true,
            flakes: 0,
            exit_code: None,
            cause: None,
        }
    }
}
