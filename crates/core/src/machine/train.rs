//! The train at work: what is reported of lines, what follows from the policy, and what it wants
//! done. Verdicts and landings are facts; lines under way belong to one life of the engine.

use crate::config::{LandMode, OnConflict};
use crate::effect::{Effect, Member, Seat};
use crate::fact::{Class, Fact, GateScope, Verdict};
use crate::failed_gate::headline_of;
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::apply::clash_in_words;
use crate::machine::{GateResult, Input, Machine};
use crate::phase::Phase;
use crate::train::yard::{Formed, Judgement, Purpose, State};
use crate::train::{Stage, policy};

/// How often it is looked whether somebody mended a bad target branch: its gates run again.
const LOOK_AGAIN_MS: u64 = 300_000;

impl Machine {
    pub(super) fn take_of_train(&mut self, input: Input) {
        let by_pull = self.settings.land.mode == LandMode::Pr;
        match input {
            Input::LineFormed { formed, base_tree, .. } if by_pull => {
                self.base_found(&formed, &base_tree);
            }
            Input::CarVerified { tree, gates, .. } if by_pull => self.base_judged(&tree, &gates),
            Input::TrainFailed { task, attempt, .. } | Input::TargetGone { task, attempt }
                if self.is_suspect(task, attempt) =>
            {
                self.base_unknown();
            }
            Input::LineFormed { purpose, places, formed, base_tree } => {
                self.line_formed(purpose, &places, formed, &base_tree);
            }
            Input::LineClashed { purpose, places, at, onto, files, with_main } => {
                self.line_clashed(purpose, &places, (at, with_main), onto, files);
            }
            Input::CarVerified { tree, gates, .. } => self.car_verified(&tree, &gates),
            // Whatever we thought of the car: what is on the branch is on the branch.
            // Before it joins the train that is so only where the journal lost its end.
            Input::Landed { task, attempt, commit, old }
                if self.train.car(task).is_some_and(|car| car.attempt == attempt)
                    || self.is_current(task, attempt, &[Phase::Preparing, Phase::Verifying]) =>
            {
                self.landed(task, attempt, commit, old);
            }
            Input::LandingRefused { new, found, .. } => self.landing_refused(&new, found.as_ref()),
            Input::TargetRechecked { commit, gates } => self.target_rechecked(&commit, gates),
            Input::PushFailed { task, attempt, why } => self.push_failed(task, attempt, why),
            Input::TrainFailed { task, attempt, reason } => {
                self.train_failed(task, attempt, &reason);
            }
            Input::TargetGone { task, attempt } => self.target_gone(task, attempt),
            Input::HoldCandidate { task, attempt, reason } => {
                self.hold_candidate(task, attempt, reason);
            }
            Input::CheckoutSeen { task, attempt, reason } => {
                self.checkout_seen(task, attempt, reason);
            }
            Input::ReleaseCandidate { task, attempt, kind } => {
                self.release_candidate(task, attempt, kind, "engine");
            }
            _ => {}
        }
    }

    /// Is the target branch about to move for this task?
    pub(super) fn is_landing(&self, t: TaskIx) -> bool {
        self.train.car(t).is_some_and(|car| car.stage.is_landing()) || self.is_merging(t)
    }

    fn car_of(&self, place: u64) -> Option<(TaskIx, u32)> {
        self.train.at(place).map(|car| (car.task, car.attempt))
    }

    /// Whoever is told of a line's verdicts, and who else is in it.
    fn unit_of(&self, places: &[u64]) -> Option<((TaskIx, u32), Vec<TaskId>)> {
        let mut unit: Vec<(TaskIx, u32)> =
            places.iter().filter_map(|place| self.car_of(*place)).collect();
        let last = unit.pop()?;
        Some((last, unit.into_iter().map(|(t, _)| self.id(t)).collect()))
    }

    fn line_formed(&mut self, purpose: Purpose, places: &[u64], formed: Formed, base_tree: &Oid) {
        let asked = self.life.yard.forming(purpose, places).is_some();
        let there = places.iter().all(|place| self.train.at(*place).is_some());
        if !asked || !there {
            return;
        }
        if self.train.landing().next().is_some() {
            // The branch moves: it would be of yesterday.
            return self.life.yard.unask(purpose, places);
        }
        self.life.train_errors = 0;
        self.life.merged.extend(places);
        let (gates, tools) = (self.settings.gates.verify.clone(), self.tools.clone());
        self.life.yard.stands(&formed.onto, self.now);
        if self.life.yard.base().is_none() && self.train.has_passed(base_tree, &gates, &tools) {
            self.life.yard.base_is(true);
        }
        let Some(line) = self.life.yard.forming(purpose, places) else { return };
        let (unit, fresh) = (line.unit().to_vec(), line.state == State::Wanted);
        let known = self.train.has_passed(&formed.tree, &gates, &tools);
        let tree = formed.tree.clone();
        if purpose != Purpose::Base {
            self.note_merges(&unit, places, &formed);
        }
        self.life.yard.formed(purpose, places, formed, known);
        if known && fresh && purpose != Purpose::Base {
            let Some((last, with)) = self.unit_of(&unit) else { return };
            let known: Vec<GateResult> = gates.iter().map(|gate| GateResult::known(gate)).collect();
            self.record_gates(last, GateScope::Train, &tree, &with, &known);
        }
    }

    /// Puts the merges of these cars on record, where they are news.
    fn note_merges(&mut self, unit: &[u64], places: &[u64], formed: &Formed) {
        for (place, step) in places.iter().zip(&formed.steps) {
            let Some(car) = self.train.at(*place).filter(|_| unit.contains(place)) else {
                continue;
            };
            let (onto, commit) = (step.onto.clone(), step.commit.clone());
            let stage = Stage::Formed { onto, commit, tree: step.tree.clone() };
            if car.stage == stage {
                continue;
            }
            let (t, attempt) = (car.task, car.attempt);
            self.emit(Fact::CarFormed {
                task: self.id(t),
                attempt,
                onto: step.onto.clone(),
                commit: step.commit.clone(),
                tree: step.tree.clone(),
                reused: step.reused.clone(),
            });
        }
    }

    fn line_clashed(
        &mut self,
        purpose: Purpose,
        places: &[u64],
        (at, with_main): (usize, bool),
        onto: Oid,
        files: Vec<String>,
    ) {
        let asked = self.life.yard.forming(purpose, places).is_some();
        let Some(place) = places.get(at).copied().filter(|_| asked) else { return };
        let Some((t, attempt)) = self.car_of(place) else { return };
        if self.train.landing().next().is_some() {
            return self.life.yard.unask(purpose, places);
        }
        self.life.train_errors = 0;
        self.life.merged.extend(places);
        self.life.yard.stands(&onto, self.now);
        if !with_main {
            return self.life.yard.clashed(&places[..at], place, self.now);
        }
        self.car_conflicted(t, attempt, onto, files);
    }

    /// What was merged does not merge with the target branch.
    pub(super) fn car_conflicted(
        &mut self,
        t: TaskIx,
        attempt: u32,
        onto: Oid,
        files: Vec<String>,
    ) {
        let task = self.id(t);
        let reason = clash_in_words(&files);
        self.emit(Fact::CarConflicted { task, attempt, onto, files });
        match self.settings.land.on_conflict {
            OnConflict::Rework | OnConflict::Agent => {
                self.fail_attempt(t, Class::Conflicted, reason);
            }
            OnConflict::Manual | OnConflict::Fail => {
                self.end_attempt(t, Class::Conflicted, reason, None);
            }
        }
    }

    fn car_verified(&mut self, tree: &Oid, gates: &[GateResult]) {
        let Some(at) = self.life.yard.verifying(tree) else { return };
        let line = &self.life.yard.lines()[at];
        let scope = if line.purpose == Purpose::Base { GateScope::Base } else { GateScope::Train };
        let unit = line.unit().to_vec();
        if let State::Running { lane } = line.state {
            self.life.lanes.remove(&lane);
        }
        let Some((last, with)) = self.unit_of(&unit) else { return };
        let wanted = self.settings.gates.verify.len();
        let refused = gates.iter().find(|gate| gate.verdict != Verdict::Passed);
        let (judgement, why) = match refused {
            None if gates.len() >= wanted => (Judgement::Good, String::new()),
            None => (Judgement::Unable, "a check on the merged tree gave no result".to_owned()),
            Some(gate) if gate.verdict == Verdict::Error => (Judgement::Unable, headline_of(gate)),
            Some(gate) => (Judgement::Bad, headline_of(gate)),
        };
        self.life.train_errors = 0;
        self.life.yard.judged(at, judgement, why, self.now);
        self.record_gates(last, scope, tree, &with, gates);
    }

    fn landed(&mut self, t: TaskIx, attempt: u32, commit: Oid, old: Oid) {
        self.life.train_errors = 0;
        self.push_settled();
        let to = match self.train.car(t).map(|car| &car.stage) {
            Some(Stage::Landing { new, .. }) => Some(new.clone()),
            _ => None,
        };
        let task = self.id(t);
        self.emit(Fact::TaskLanded { task, attempt, commit, old, empty: false });
        match to {
            // Found where we did not look for it: somebody else knows where the branch stands.
            None => self.life.yard.lost(self.now),
            Some(_) if self.train.landing().next().is_some() => {}
            Some(new) => {
                let cars = std::mem::take(&mut self.life.landing);
                if cars.is_empty() {
                    self.life.yard.lost(self.now);
                } else {
                    self.life.yard.landed(&cars, &new, self.now);
                }
            }
        }
    }

    /// Somebody else moved the branch first. A wish to stop that came too late for the landing is
    /// in time now.
    pub(super) fn landing_refused(&mut self, refused: &Oid, found: Option<&Oid>) {
        let landing: Vec<(TaskIx, u32, Oid)> = self
            .train
            .landing()
            .filter_map(|car| match &car.stage {
                Stage::Landing { old, new, .. } if new == refused => {
                    Some((car.task, car.attempt, old.clone()))
                }
                _ => None,
            })
            .collect();
        if landing.is_empty() {
            return;
        }
        self.life.landing.clear();
        // What is merged next may be the very same: a remote that had not been seen yet is refused once.
        self.life.given.land = None;
        self.push_settled();
        match found {
            Some(main) => self.life.yard.stands(main, self.now),
            None => self.life.yard.lost(self.now),
        }
        for (t, attempt, expected) in landing {
            let (task, found) = (self.id(t), found.cloned());
            self.emit(Fact::LandingRefused { task: task.clone(), attempt, expected, found });
            let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.clone());
            if let Some((_, reason)) = stop {
                self.emit(Fact::CarEvicted { task, attempt, reason: reason.clone() });
                self.fail_attempt(t, Class::Interrupted, reason);
            }
        }
    }

    /// Git or the disk failed under the train. A car that cannot be merged or verified leaves; one
    /// whose landing is intended stays, because only the branch itself can say what became of it.
    fn train_failed(&mut self, t: TaskIx, attempt: u32, reason: &str) {
        let Some(car) = self.train.car(t).filter(|car| car.attempt == attempt) else { return };
        let (place, landing) = (car.place, car.stage.is_landing());
        self.life.train_errors += 1;
        let wait = limits::TRANSIENT_WAIT_MS << self.life.train_errors.min(7);
        self.life.train_retry_at = Some(self.now.plus_ms(wait.min(limits::TRANSIENT_WAIT_MS_MAX)));
        self.life.given.land = None;
        self.life.yard.forget(place, self.now);
        let task = self.id(t);
        if landing || self.life.train_errors <= limits::TRANSIENTS_MAX {
            let message = limits::brief(&format!("merging failed: {reason}"));
            self.emit(Fact::Noticed { task: Some(task), message, lasts: true });
        } else {
            self.life.train_errors = 0;
            let reason = limits::brief(reason);
            self.emit(Fact::CarEvicted { task, attempt, reason: reason.clone() });
            self.fail_attempt(t, Class::Transient, reason);
        }
    }

    /// Nothing can land until a person brings the target branch back; the work is kept.
    fn target_gone(&mut self, t: TaskIx, attempt: u32) {
        let Some(car) = self.train.car(t).filter(|car| car.attempt == attempt) else { return };
        let place = car.place;
        self.life.given.land = None;
        self.life.yard.forget(place, self.now);
        let target = &self.target;
        let reason = format!("the target branch {target} no longer exists");
        let landings = self.tasks.all().filter_map(|t| self.tasks.get(t).landed.as_ref());
        let last = landings.max_by_key(|landing| landing.order).map(|landing| &landing.commit);
        let commit = last.or(self.base.as_ref()).map_or("COMMIT", Oid::as_str);
        let help = format!("restore the branch with git branch {target} {commit}");
        self.emit(Fact::CarEvicted { task: self.id(t), attempt, reason: reason.clone() });
        self.fail_with_help(t, Class::NeedsInput, reason, Some(help));
    }

    /// Follows the policy until there is nothing left to decide.
    pub(super) fn drive_train(&mut self) {
        let idle = self.train.cars().is_empty() && self.life.yard.lines().is_empty();
        // Work that lands on a forge waits for its pull request, not for its turn.
        let elsewhere = self.settings.land.mode == LandMode::Pr;
        if self.life.interrupting.is_some() || elsewhere || (idle && !self.life.frozen) {
            return;
        }
        if self.life.look_at.is_some_and(|at| at <= self.now) {
            self.life.look_at = Some(self.now.plus_ms(LOOK_AGAIN_MS));
            self.life.yard.look_again();
        }
        let lanes = usize::try_from(self.settings.land.lanes.max(1)).unwrap_or(1);
        let foreseen = self.foreseen();
        self.life.yard.foresee(foreseen);
        loop {
            let train = &self.train;
            self.life.yard.retain(|place| train.at(place).is_some(), self.now);
            // While the branch moves, nothing else is decided.
            if self.train.landing().next().is_some() {
                return;
            }
            let groups = self.settings.land.groups;
            let plan = policy::plan(&self.train, &self.life.yard, lanes, groups);
            if let Some(place) = plan.red {
                self.evict(place);
            } else if let Some(places) = plan.land {
                if !self.await_approvals(&places) {
                    return self.intend_landing(&places);
                }
            } else {
                self.life.yard.follow(&plan, self.now);
                return self.freeze(plan.frozen);
            }
        }
    }

    fn evict(&mut self, place: u64) {
        let Some((t, attempt)) = self.car_of(place) else { return };
        let lines = self.life.yard.lines().iter();
        let why = lines.filter(|line| line.cars == [place] && line.purpose != Purpose::Base);
        let why = why.map(|line| line.why.clone()).find(|why| !why.is_empty());
        let reason = why.unwrap_or_else(|| "a check on the merged tree failed".to_owned());
        if self.failed_as_before(t, attempt, &reason) {
            return;
        }
        let task = self.id(t);
        self.emit(Fact::CarEvicted { task, attempt, reason: reason.clone() });
        self.fail_attempt(t, Class::GateFailed, reason);
    }

    /// The line of these cars, merged and verified.
    fn formed_of(&self, places: &[u64]) -> Option<Formed> {
        let lines = self.life.yard.lines().iter();
        let mut lines = lines.filter(|line| line.here && line.cars == places);
        lines.find_map(|line| line.formed.clone())
    }

    /// Does a person have to approve some of this line first? Those are held, and the others go on.
    fn await_approvals(&mut self, places: &[u64]) -> bool {
        let Some(formed) = self.formed_of(places) else { return false };
        let cars: Vec<_> = places.iter().filter_map(|place| self.car_of(*place)).collect();
        let waits = self.hold_unapproved(&cars, &formed.tree);
        if waits {
            self.ask_about_held_work();
        }
        waits
    }

    fn intend_landing(&mut self, places: &[u64]) {
        let Some(formed) = self.formed_of(places) else { return };
        self.note_merges(places, places, &formed);
        for place in places {
            let Some((t, attempt)) = self.car_of(*place) else { continue };
            self.emit(Fact::LandingIntended {
                task: self.id(t),
                attempt,
                old: formed.onto.clone(),
                new: formed.commit.clone(),
                tree: formed.tree.clone(),
            });
        }
        places.clone_into(&mut self.life.landing);
    }

    fn freeze(&mut self, frozen: bool) {
        let changed = self.life.frozen != frozen;
        if changed {
            self.life.frozen = frozen;
            self.life.look_at = frozen.then(|| self.now.plus_ms(LOOK_AGAIN_MS));
        } else if !frozen {
            return;
        }
        let Some(head) = self.train.head() else { return };
        let (task, target) = (Some(self.id(head.task)), &self.target);
        let message = match self.base_failure() {
            _ if !frozen => "merging resumes".to_owned(),
            Some(failure) => {
                let (headline, help) = (failure.headline(), self.base_help());
                limits::brief(&format!("merging is paused: on {target} itself {headline}; {help}"))
            }
            None => format!("merging is paused: the checks fail on {target} itself"),
        };
        // Gates that run once more, and another head, end what was said; it is true all the same.
        if !frozen || self.lasting(task.as_ref()) != Some(&message) {
            self.emit(Fact::Noticed { task, message, lasts: frozen });
        }
    }

    pub(super) fn want_of_train(&mut self, effects: &mut Vec<Effect>) {
        for lane in self.life.yard.take_cancelled() {
            if let Some((task, attempt)) = self.life.lanes.remove(&lane) {
                effects.push(Effect::StopLane { task, attempt, lane });
            }
        }
        if self.life.train_retry_at.is_some_and(|at| at > self.now) {
            return;
        }
        self.life.train_retry_at = None;
        if let Some(effect) = self.want_landing() {
            // A landing that is intended is finished even when we are asked to stop.
            effects.extend(effect);
            return;
        }
        self.life.given.land = None;
        if self.life.interrupting.is_some() {
            return;
        }
        for (purpose, places) in self.life.yard.ask_forms() {
            effects.extend(self.form_line(purpose, &places));
        }
        for (at, lane) in self.life.yard.start(self.settings.land.lanes.max(1), self.now) {
            let line = &self.life.yard.lines()[at];
            let base = line.purpose == Purpose::Base;
            let Some(formed) = line.formed.as_ref() else { continue };
            let (commit, tree) = (formed.tip.clone(), formed.tree.clone());
            let Some((task, attempt)) = line.cars.last().and_then(|car| self.car_of(*car)) else {
                continue;
            };
            self.life.lanes.insert(lane, (task, attempt));
            effects.push(Effect::VerifyCar { task, attempt, commit, tree, lane, base });
        }
    }

    /// The landing under way; `Some(None)` if it was given out.
    fn want_landing(&mut self) -> Option<Option<Effect>> {
        let mut members = Vec::new();
        let mut whole = None;
        for car in self.train.landing() {
            let Stage::Landing { old, new, tree, onto, commit } = &car.stage else { continue };
            whole = Some((old.clone(), new.clone(), tree.clone()));
            let (task, attempt) = (car.task, car.attempt);
            let (onto, commit, resolved) = (onto.clone(), commit.clone(), self.resolved_by(task));
            members.push(Member { task, attempt, onto, commit, resolved });
        }
        let (old, new, tree) = whole?;
        let last = members.last()?;
        let (task, attempt) = (last.task, last.attempt);
        if self.life.given.land.replace(new.clone()).as_ref() == Some(&new) {
            return Some(None);
        }
        Some(Some(Effect::Land { task, attempt, old, new, tree, members }))
    }

    fn form_line(&self, purpose: Purpose, places: &[u64]) -> Option<Effect> {
        let (task, attempt) = places.last().and_then(|place| self.car_of(*place))?;
        let seats = match purpose {
            Purpose::Base => Vec::new(),
            Purpose::Join | Purpose::Vet => {
                places.iter().filter_map(|place| self.seat(*place)).collect()
            }
        };
        Some(Effect::FormLine { task, attempt, purpose, seats })
    }

    fn seat(&self, place: u64) -> Option<Seat> {
        let car = self.train.at(place)?;
        let current = self.tasks.get(car.task).current.as_ref()?;
        let base =
            current.base.clone().or_else(|| Some(current.evidence.as_ref()?.base.clone()))?;
        Some(Seat {
            place,
            task: car.task,
            attempt: car.attempt,
            tip: car.tip.clone(),
            base,
            date: current.ended_at.unwrap_or(current.intended_at),
            look: !self.life.merged.contains(&place),
        })
    }
}

impl GateResult {
    /// A verdict that was known before.
    fn known(gate: &str) -> Self {
        Self {
            gate: gate.to_owned(),
            verdict: Verdict::Passed,
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
