//! What the train does next, computed anew from one snapshot at every event: what to verify now, what
//! may land, who is to blame. Pure; what follows from a plan is for the machine to do.
//!
//! Few cars are merged one onto the other and each merge is verified at once. Many cars, where groups are
//! wanted, are first looked at in groups, each group on the target branch itself, so that a bad one spoils
//! nobody's run but its group's; those found good join a train of larger merges that may land. A group that
//! fails is halved. Where cars that are good by themselves break each other often, groups do not pay, and
//! many cars go like few. Every verdict is about one tree, and only that tree lands.

use std::collections::BTreeSet;

use super::batches::{BatchPurpose, BatchState, CandidateBatch, TrainBatches};
use super::{Train, TrainCandidate};

/// A line that should be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedBatch {
    pub purpose: BatchPurpose,
    /// Queue numbers in order of merging.
    pub candidates: Vec<u64>,
    /// So many of them are judged by a shorter line.
    pub ahead: usize,
}

/// What the train does next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrainPlan {
    /// This car is to blame and leaves; then the plan is made anew.
    pub evict: Option<u64>,
    /// These cars may land, as they were verified together; then the plan is made anew.
    pub land: Option<Vec<u64>>,
    /// Lines that should be under way; all others are called off.
    pub batches: Vec<PlannedBatch>,
    /// The target branch is bad itself, and no car mends it.
    pub frozen: bool,
}

/// What to do now. With one lane, cars go one by one; without groups, each lands by itself.
pub fn plan_train(train: &Train, yard: &TrainBatches, lanes: usize, groups: bool) -> TrainPlan {
    let held: BTreeSet<u64> =
        train.candidates().iter().filter(|car| car.held).map(|car| car.queue_number).collect();
    let free = train.candidates().len() - held.len();
    let slots = yard.pace().usable_lanes(lanes);
    let mut planner = TrainPlanner {
        train,
        batches: yard,
        slots,
        running: 0,
        one_by_one: !groups
            || lanes < 2
            || free <= slots
            || train.prefers_chain(yard.pace().parallel_runs()),
        used: held,
        target_holds_some: false,
        plan: TrainPlan::default(),
    };
    planner.continue_trials();
    planner.plan_landings();
    if planner.plan.evict.is_none() && planner.plan.land.is_none() {
        planner.plan_trials();
    }
    let TrainPlanner { target_holds_some: held, plan, .. } = planner;
    let idle = plan.batches.is_empty() && plan.land.is_none() && plan.evict.is_none();
    TrainPlan { frozen: held && idle, ..plan }
}

struct TrainPlanner<'a> {
    train: &'a Train,
    batches: &'a TrainBatches,
    slots: usize,
    /// Lines of the plan that need a slot.
    running: usize,
    one_by_one: bool,
    /// Cars that a line of the plan looks at, or that are held back.
    used: BTreeSet<u64>,
    /// Some are held back because the target branch is bad.
    target_holds_some: bool,
    plan: TrainPlan,
}

impl TrainPlanner<'_> {
    fn plan_batch(
        &mut self,
        purpose: BatchPurpose,
        cars: Vec<u64>,
        ahead: usize,
        needs_slot: bool,
    ) {
        self.running += usize::from(needs_slot);
        self.plan.batches.push(PlannedBatch { purpose, candidates: cars, ahead });
    }

    fn batches_for(&self, purpose: BatchPurpose) -> impl Iterator<Item = &CandidateBatch> {
        self.batches.all_batches().iter().filter(move |line| line.purpose == purpose)
    }

    /// Groups that are being looked at go on, wherever the branch stands now; who failed alone is
    /// judged.
    fn continue_trials(&mut self) {
        let (yard, train) = (self.batches, self.train);
        let goes_on = |line: &&CandidateBatch| {
            !line.candidates.iter().any(|car| train.candidate_at(*car).is_some_and(|car| car.held))
        };
        let lines =
            yard.all_batches().iter().filter(|line| line.purpose != BatchPurpose::TargetCheck);
        for line in lines.filter(goes_on) {
            match (line.purpose, line.state, line.candidates.as_slice()) {
                (BatchPurpose::Trial, BatchState::Running { .. }, cars) => {
                    self.used.extend(cars);
                    self.plan_batch(BatchPurpose::Trial, cars.to_vec(), 0, true);
                }
                (_, BatchState::Failed, [car]) if line.at_fault => self.plan.evict = Some(*car),
                (_, BatchState::Failed, [car]) if line.on_current_target => {
                    self.blame_candidate(*car);
                }
                _ => {}
            }
        }
        for line in yard
            .all_batches()
            .iter()
            .filter(|line| line.purpose == BatchPurpose::Trial && line.on_current_target)
        {
            let free = line.candidates.iter().all(|car| self.is_unused(*car));
            if line.state == BatchState::Wanted && free && self.running < self.slots {
                self.used.extend(&line.candidates);
                self.plan_batch(BatchPurpose::Trial, line.candidates.clone(), 0, true);
            }
        }
    }

    /// A car failed with nobody before it. Before it is blamed, the target branch itself must be
    /// known to be good.
    fn blame_candidate(&mut self, car: u64) {
        self.used.insert(car);
        match self.batches.target_passes() {
            Some(true) => self.plan.evict = Some(car),
            Some(false) => self.target_holds_some = true,
            None => {
                let asked =
                    self.plan.batches.iter().any(|wish| wish.purpose == BatchPurpose::TargetCheck);
                if !asked && self.running < self.slots {
                    self.plan_batch(BatchPurpose::TargetCheck, vec![car], 0, true);
                }
            }
        }
    }

    /// The train proper: each unit merged onto all before it.
    fn plan_landings(&mut self) {
        let mut ahead: Vec<u64> = Vec::new();
        while self.plan.evict.is_none() {
            let Some(unit) = self.next_landing_group(&ahead) else { return };
            let mut line = ahead.clone();
            line.extend(&unit);
            let known = self
                .batches_for(BatchPurpose::Landing)
                .find(|known| known.on_current_target && known.candidates == line);
            let state = known.map_or(BatchState::Wanted, |known| known.state);
            let formed = known.is_some_and(|known| known.merge.is_some());
            match state {
                BatchState::Passed if ahead.is_empty() && formed => {
                    self.plan.land = Some(line);
                    return;
                }
                BatchState::Failed if unit.len() > 1 => return,
                // Whose fault it is will be known when those before it have landed or left.
                BatchState::Failed => {
                    self.used.insert(unit[0]);
                    continue;
                }
                BatchState::Passed => {
                    self.plan_batch(BatchPurpose::Landing, line.clone(), ahead.len(), false);
                }
                BatchState::Wanted | BatchState::Running { .. } => {
                    if self.running >= self.slots
                        || (known.is_none() && self.should_wait_to_grow(&unit))
                    {
                        return;
                    }
                    self.plan_batch(BatchPurpose::Landing, line.clone(), ahead.len(), true);
                }
            }
            self.used.extend(&unit);
            ahead = line;
        }
    }

    /// Is this unit to grow first? While there are cars of which nothing is known, a slot is better used on
    /// them than on a small unit, or on a second one.
    fn should_wait_to_grow(&self, unit: &[u64]) -> bool {
        let alone = self.one_by_one || self.batches.pace().parallel_runs() < 2;
        if alone || unit.len() >= self.train.landing_group_size() {
            return false;
        }
        let joins = self.plan.batches.iter().any(|wish| wish.purpose == BatchPurpose::Landing);
        let unknown = |car: &TrainCandidate| self.is_unused(car.queue_number) && !car.passed_trial;
        (joins || unit.len() < self.slots) && self.train.candidates().iter().any(unknown)
    }

    fn is_unused(&self, car: u64) -> bool {
        !self.used.contains(&car)
    }

    /// The cars that come after these: as they are under way already, or as many as go well together.
    fn next_landing_group(&self, ahead: &[u64]) -> Option<Vec<u64>> {
        let rest = |line: &&CandidateBatch| {
            line.on_current_target
                && line.state != BatchState::Failed
                && line.candidates.len() > ahead.len()
                // In a chain each car lands by itself, whatever longer line is known.
                && (!self.one_by_one || line.candidates.len() == ahead.len() + 1)
                && line.candidates.starts_with(ahead)
                && line.candidates[ahead.len()..].iter().all(|car| self.is_unused(*car))
        };
        let known = self.batches_for(BatchPurpose::Landing).filter(rest);
        let known =
            known.min_by_key(|line| (line.state == BatchState::Wanted, line.candidates.len()));
        if let Some(known) = known {
            return Some(known.candidates[ahead.len()..].to_vec());
        }
        let joins = |car: &&TrainCandidate| {
            self.is_unused(car.queue_number) && (self.one_by_one || car.passed_trial)
        };
        let most = if self.one_by_one { 1 } else { self.train.landing_group_size() };
        let cars = self.batches.trial_order(self.train.candidates());
        let mut unit = self.compatible_candidates(cars.into_iter().filter(joins), ahead, most);
        // A group that is known to be bad is not tried again as it is.
        while unit.len() > 1 && self.has_failed(BatchPurpose::Landing, ahead, &unit) {
            unit.truncate(unit.len() / 2);
        }
        (!unit.is_empty()).then_some(unit)
    }

    fn has_failed(&self, purpose: BatchPurpose, ahead: &[u64], unit: &[u64]) -> bool {
        self.batches_for(purpose).any(|line| {
            line.on_current_target
                && line.state == BatchState::Failed
                && line.candidates.starts_with(ahead)
                && line.candidates[ahead.len()..] == *unit
        })
    }

    /// The first of these cars and those that may be looked at with it: of the same cell, and merging
    /// with those before.
    fn compatible_candidates<'c>(
        &self,
        cars: impl Iterator<Item = &'c TrainCandidate>,
        ahead: &[u64],
        most: usize,
    ) -> Vec<u64> {
        let mut line = ahead.to_vec();
        let mut cell = None;
        for car in cars {
            if self.batches.conflicts_with(&line, car.queue_number) {
                continue;
            }
            match cell {
                None => cell = Some(car.cell),
                // A cell is a group by itself.
                Some(cell) if car.cell != cell => continue,
                Some(_) => {}
            }
            if car.cell.is_none() && line.len() - ahead.len() >= most {
                break;
            }
            line.push(car.queue_number);
            if self.one_by_one {
                break;
            }
        }
        line.split_off(ahead.len())
    }

    /// Cars of which nothing is known are looked at in groups, each on the target branch itself.
    fn plan_trials(&mut self) {
        if self.one_by_one {
            return;
        }
        while self.running < self.slots && self.plan.evict.is_none() {
            let free = self.slots - self.running;
            let unknown =
                |car: &&TrainCandidate| self.is_unused(car.queue_number) && !car.passed_trial;
            let count =
                self.train.candidates().iter().filter(unknown).filter(|c| c.cell.is_none()).count();
            let most = self.train.trial_group_size().min(count.div_ceil(free).max(1));
            let cars = self.batches.trial_order(self.train.candidates());
            let mut group = self.compatible_candidates(cars.into_iter().filter(unknown), &[], most);
            while group.len() > 1 && self.has_failed(BatchPurpose::Trial, &[], &group) {
                group.truncate(group.len() / 2);
            }
            if group.is_empty() {
                return;
            }
            self.used.extend(&group);
            self.plan_batch(BatchPurpose::Trial, group, 0, true);
        }
    }
}
