//! What the train does next, computed anew from one snapshot at every event: what to verify now, what
//! may land, who is to blame. Pure; what follows from a plan is for the machine to do.
//!
//! Few cars are merged one onto the other and each merge is verified at once. Many cars, where groups are
//! wanted, are first looked at in groups, each group on the target branch itself, so that a bad one spoils
//! nobody's run but its group's; those found good join a train of larger merges that may land. A group that
//! fails is halved. Where cars that are good by themselves break each other often, groups do not pay, and
//! many cars go like few. Every verdict is about one tree, and only that tree lands.

use std::collections::BTreeSet;

use super::yard::{Line, Purpose, State, Yard};
use super::{Car, Train};

/// A line that should be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// What for.
    pub purpose: Purpose,
    /// Queue numbers in order of merging.
    pub cars: Vec<u64>,
    /// So many of them are judged by a shorter line.
    pub ahead: usize,
}

/// What the train does next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// This car is to blame and leaves; then the plan is made anew.
    pub red: Option<u64>,
    /// These cars may land, as they were verified together; then the plan is made anew.
    pub land: Option<Vec<u64>>,
    /// Lines that should be under way; all others are called off.
    pub run: Vec<Wish>,
    /// The target branch is bad itself, and no car mends it.
    pub frozen: bool,
}

/// What to do now. With one lane, cars go one by one; without groups, each lands by itself.
pub fn plan(train: &Train, yard: &Yard, lanes: usize, groups: bool) -> Plan {
    let held: BTreeSet<u64> =
        train.cars().iter().filter(|car| car.held).map(|car| car.place).collect();
    let free = train.cars().len() - held.len();
    let slots = yard.pace().slots(lanes);
    let mut planner = Planner {
        train,
        yard,
        slots,
        running: 0,
        dense: !groups || lanes < 2 || free <= slots || train.likes_chain(yard.pace().at_once()),
        used: held,
        held: false,
        plan: Plan::default(),
    };
    planner.keep_vetting();
    planner.join();
    if planner.plan.red.is_none() && planner.plan.land.is_none() {
        planner.vet();
    }
    let Planner { held, plan, .. } = planner;
    let idle = plan.run.is_empty() && plan.land.is_none() && plan.red.is_none();
    Plan { frozen: held && idle, ..plan }
}

struct Planner<'a> {
    train: &'a Train,
    yard: &'a Yard,
    slots: usize,
    /// Lines of the plan that need a slot.
    running: usize,
    dense: bool,
    /// Cars that a line of the plan looks at, or that are held back.
    used: BTreeSet<u64>,
    /// Some are held back because the target branch is bad.
    held: bool,
    plan: Plan,
}

impl Planner<'_> {
    fn wish(&mut self, purpose: Purpose, cars: Vec<u64>, ahead: usize, needs_slot: bool) {
        self.running += usize::from(needs_slot);
        self.plan.run.push(Wish { purpose, cars, ahead });
    }

    fn lines(&self, purpose: Purpose) -> impl Iterator<Item = &Line> {
        self.yard.lines().iter().filter(move |line| line.purpose == purpose)
    }

    /// Groups that are being looked at go on, wherever the branch stands now; who failed alone is
    /// judged.
    fn keep_vetting(&mut self) {
        let (yard, train) = (self.yard, self.train);
        let goes_on =
            |line: &&Line| !line.cars.iter().any(|car| train.at(*car).is_some_and(|car| car.held));
        let lines = yard.lines().iter().filter(|line| line.purpose != Purpose::Base);
        for line in lines.filter(goes_on) {
            match (line.purpose, line.state, line.cars.as_slice()) {
                (Purpose::Vet, State::Running { .. }, cars) => {
                    self.used.extend(cars);
                    self.wish(Purpose::Vet, cars.to_vec(), 0, true);
                }
                (_, State::Failed, [car]) if line.sound => self.plan.red = Some(*car),
                (_, State::Failed, [car]) if line.here => self.blame(*car),
                _ => {}
            }
        }
        for line in yard.lines().iter().filter(|line| line.purpose == Purpose::Vet && line.here) {
            let free = line.cars.iter().all(|car| self.is_free(*car));
            if line.state == State::Wanted && free && self.running < self.slots {
                self.used.extend(&line.cars);
                self.wish(Purpose::Vet, line.cars.clone(), 0, true);
            }
        }
    }

    /// A car failed with nobody before it. Before it is blamed, the target branch itself must be
    /// known to be good.
    fn blame(&mut self, car: u64) {
        self.used.insert(car);
        match self.yard.base() {
            Some(true) => self.plan.red = Some(car),
            Some(false) => self.held = true,
            None => {
                let asked = self.plan.run.iter().any(|wish| wish.purpose == Purpose::Base);
                if !asked && self.running < self.slots {
                    self.wish(Purpose::Base, vec![car], 0, true);
                }
            }
        }
    }

    /// The train proper: each unit merged onto all before it.
    fn join(&mut self) {
        let mut ahead: Vec<u64> = Vec::new();
        while self.plan.red.is_none() {
            let Some(unit) = self.next_unit(&ahead) else { return };
            let mut line = ahead.clone();
            line.extend(&unit);
            let known = self.lines(Purpose::Join).find(|known| known.here && known.cars == line);
            let state = known.map_or(State::Wanted, |known| known.state);
            let formed = known.is_some_and(|known| known.formed.is_some());
            match state {
                State::Passed if ahead.is_empty() && formed => {
                    self.plan.land = Some(line);
                    return;
                }
                State::Failed if unit.len() > 1 => return,
                // Whose fault it is will be known when those before it have landed or left.
                State::Failed => {
                    self.used.insert(unit[0]);
                    continue;
                }
                State::Passed => self.wish(Purpose::Join, line.clone(), ahead.len(), false),
                State::Wanted | State::Running { .. } => {
                    if self.running >= self.slots || (known.is_none() && self.waits(&unit)) {
                        return;
                    }
                    self.wish(Purpose::Join, line.clone(), ahead.len(), true);
                }
            }
            self.used.extend(&unit);
            ahead = line;
        }
    }

    /// Is this unit to grow first? While there are cars of which nothing is known, a slot is better used on
    /// them than on a small unit, or on a second one.
    fn waits(&self, unit: &[u64]) -> bool {
        let alone = self.dense || self.yard.pace().at_once() < 2;
        if alone || unit.len() >= self.train.unit() {
            return false;
        }
        let joins = self.plan.run.iter().any(|wish| wish.purpose == Purpose::Join);
        let unknown = |car: &Car| self.is_free(car.place) && !car.vetted;
        (joins || unit.len() < self.slots) && self.train.cars().iter().any(unknown)
    }

    fn is_free(&self, car: u64) -> bool {
        !self.used.contains(&car)
    }

    /// The cars that come after these: as they are under way already, or as many as go well together.
    fn next_unit(&self, ahead: &[u64]) -> Option<Vec<u64>> {
        let rest = |line: &&Line| {
            line.here
                && line.state != State::Failed
                && line.cars.len() > ahead.len()
                // In a chain each car lands by itself, whatever longer line is known.
                && (!self.dense || line.cars.len() == ahead.len() + 1)
                && line.cars.starts_with(ahead)
                && line.cars[ahead.len()..].iter().all(|car| self.is_free(*car))
        };
        let known = self.lines(Purpose::Join).filter(rest);
        let known = known.min_by_key(|line| (line.state == State::Wanted, line.cars.len()));
        if let Some(known) = known {
            return Some(known.cars[ahead.len()..].to_vec());
        }
        let joins = |car: &&Car| self.is_free(car.place) && (self.dense || car.vetted);
        let most = if self.dense { 1 } else { self.train.unit() };
        let cars = self.yard.in_turn(self.train.cars());
        let mut unit = self.together(cars.into_iter().filter(joins), ahead, most);
        // A group that is known to be bad is not tried again as it is.
        while unit.len() > 1 && self.has_failed(Purpose::Join, ahead, &unit) {
            unit.truncate(unit.len() / 2);
        }
        (!unit.is_empty()).then_some(unit)
    }

    fn has_failed(&self, purpose: Purpose, ahead: &[u64], unit: &[u64]) -> bool {
        self.lines(purpose).any(|line| {
            line.here
                && line.state == State::Failed
                && line.cars.starts_with(ahead)
                && line.cars[ahead.len()..] == *unit
        })
    }

    /// The first of these cars and those that may be looked at with it: of the same cell, and merging
    /// with those before.
    fn together<'c>(
        &self,
        cars: impl Iterator<Item = &'c Car>,
        ahead: &[u64],
        most: usize,
    ) -> Vec<u64> {
        let mut line = ahead.to_vec();
        let mut cell = None;
        for car in cars {
            if self.yard.clashes(&line, car.place) {
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
            line.push(car.place);
            if self.dense {
                break;
            }
        }
        line.split_off(ahead.len())
    }

    /// Cars of which nothing is known are looked at in groups, each on the target branch itself.
    fn vet(&mut self) {
        if self.dense {
            return;
        }
        while self.running < self.slots && self.plan.red.is_none() {
            let free = self.slots - self.running;
            let unknown = |car: &&Car| self.is_free(car.place) && !car.vetted;
            let count =
                self.train.cars().iter().filter(unknown).filter(|c| c.cell.is_none()).count();
            let most = self.train.group().min(count.div_ceil(free).max(1));
            let cars = self.yard.in_turn(self.train.cars());
            let mut group = self.together(cars.into_iter().filter(unknown), &[], most);
            while group.len() > 1 && self.has_failed(Purpose::Vet, &[], &group) {
                group.truncate(group.len() / 2);
            }
            if group.is_empty() {
                return;
            }
            self.used.extend(&group);
            self.wish(Purpose::Vet, group, 0, true);
        }
    }
}
