//! A model of landing: cars that are bad, clash or break each other, gates that flake, a machine that
//! runs so many verifications at full speed, and strategies that say what to verify. No git, no files;
//! time is counted. The bench of the train uses this file too.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::train::batches::{
    BatchMerge, BatchPurpose, BatchState, BatchVerdict, CandidateMerge, TrainBatches,
};
use mainstem_core::train::{Train, policy};

/// A car, by its number. Commits of others have numbers from [`STRANGER`] on.
pub type CarNo = u32;
/// Where numbers of others' commits begin.
pub const STRANGER: CarNo = 1_000_000;
/// A verification of a car alone takes so long.
pub const T: f64 = 1_000.0;

/// Chance, the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// From 0 to below 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    pub fn happens(&mut self, chance: f64) -> bool {
        self.share() < chance
    }
    /// About 1, rarely far from it.
    fn spread(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.share()).sum();
        0.75 + sum / 8.0
    }
}

/// What the world is like.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    pub count: u32,
    /// A car is bad.
    pub bad: f64,
    /// Two cars near each other break each other.
    pub semantic: f64,
    /// Two cars near each other do not merge.
    pub textual: f64,
    /// A good run fails all the same.
    pub flake: f64,
    /// Somebody else commits, at an event.
    pub stranger: f64,
    /// Verifications that the machine runs at full speed.
    pub capacity: f64,
    /// Verifications that may run.
    pub lanes: usize,
    /// Cars per verification time; none: all are there at the beginning.
    pub arrivals: Option<f64>,
}

#[derive(Debug, Default)]
pub struct Move {
    /// What should be verified: cars on so many commits of the branch.
    pub run: Vec<(usize, Vec<CarNo>)>,
    /// Moves the branch from so many commits by these cars.
    pub land: Option<(usize, Vec<CarNo>)>,
    pub out: Option<(CarNo, Out)>,
}

/// Why a car leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    Red,
    Clash,
}

pub trait Strategy {
    fn arrives(&mut self, car: CarNo);
    /// What to do now; asked again after every landing and every car that left.
    fn next(&mut self, world: &Truth, now: f64) -> Move;
    fn judged(&mut self, base: usize, cars: &[CarNo], good: bool, now: f64);
    fn landed(&mut self, cars: &[CarNo], now: f64);
    fn left(&mut self, car: CarNo);
    /// The branch was elsewhere.
    fn refused(&mut self, now: f64);
    /// For whoever looks for a fault.
    fn picture(&self) -> String {
        String::new()
    }
}

/// What is so, known or not.
pub struct Truth {
    pub conditions: Conditions,
    bad: BTreeSet<CarNo>,
    breaks: BTreeSet<(CarNo, CarNo)>,
    clashes: BTreeSet<(CarNo, CarNo)>,
    pub main: Vec<CarNo>,
}

impl Truth {
    fn new(conditions: Conditions, dice: &mut Dice) -> Self {
        let (mut bad, mut breaks, mut clashes) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for car in 0..conditions.count {
            if dice.happens(conditions.bad) {
                bad.insert(car);
            }
            for near in car.saturating_sub(32)..car {
                if dice.happens(conditions.semantic) {
                    breaks.insert((near, car));
                }
                if dice.happens(conditions.textual) {
                    clashes.insert((near, car));
                }
            }
        }
        Self { conditions, bad, breaks, clashes, main: Vec::new() }
    }

    /// Does this car merge with these?
    pub fn merges(&self, before: &[CarNo], car: CarNo) -> bool {
        before.iter().all(|b| !self.clashes.contains(&((*b).min(car), (*b).max(car))))
    }

    /// Is the tree of these commits good?
    fn is_good(&self, tree: &[CarNo]) -> bool {
        let there: BTreeSet<CarNo> = tree.iter().copied().collect();
        tree.iter().all(|car| !self.bad.contains(car))
            && self.breaks.iter().all(|(a, b)| !(there.contains(a) && there.contains(b)))
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Outcome {
    /// Landed per verification time.
    pub rate: f64,
    /// Verification work per landed car.
    pub work: f64,
    /// Mean wait from arrival to landing, in verification times.
    pub wait: f64,
    /// The wait that one of twenty exceeds.
    pub wait_95: f64,
    /// Share of cars that were put out although they are good and break nobody.
    pub wronged: f64,
    pub landed: u32,
    pub runs: u64,
}

struct Job {
    base: usize,
    cars: Vec<CarNo>,
    tree: Vec<CarNo>,
    left: f64,
}

/// Plays a world to its end.
pub fn play(conditions: Conditions, seed: u64, strategy: &mut dyn Strategy) -> Outcome {
    let mut dice = Dice::new(seed);
    let mut truth = Truth::new(conditions, &mut dice);
    let mut arrivals: Vec<(f64, CarNo)> = Vec::new();
    let mut at = 0.0;
    for car in 0..conditions.count {
        if let Some(rate) = conditions.arrivals {
            at += -(1.0 - dice.share()).ln() / rate * T;
        }
        arrivals.push((at, car));
    }
    let arrived: BTreeMap<CarNo, f64> = arrivals.iter().map(|(at, car)| (*car, *at)).collect();
    arrivals.reverse();
    let (mut jobs, mut now): (Vec<Job>, f64) = (Vec::new(), 0.0);
    let (mut out, mut waits, mut work, mut runs) = (BTreeMap::new(), Vec::new(), 0.0, 0);
    let mut strangers = 0;
    let mut last = 0.0;
    loop {
        while arrivals.last().is_some_and(|(at, _)| *at <= now) {
            strategy.arrives(arrivals.pop().unwrap().1);
        }
        if dice.happens(conditions.stranger) && strangers < 20 {
            truth.main.push(STRANGER + strangers);
            strangers += 1;
        }
        decide(strategy, &mut truth, now, &mut jobs, &mut dice, &mut runs, &mut |landed, car| {
            last = now;
            match landed {
                Ok(()) => waits.push((now - arrived[&car]) / T),
                Err(why) => {
                    assert!(out.insert(car, why).is_none(), "{car} leaves twice");
                }
            }
        });
        if waits.len() + out.len() == conditions.count as usize {
            break;
        }
        // What happens next: a run ends, or a car comes.
        let speed = (conditions.capacity / jobs.len() as f64).min(1.0);
        let next_end = jobs.iter().map(|job| job.left / speed).fold(f64::INFINITY, f64::min);
        let next_car = arrivals.last().map_or(f64::INFINITY, |(at, _)| at - now);
        let step = next_end.min(next_car);
        assert!(step.is_finite(), "nothing happens, but cars wait: {}", strategy.picture());
        assert!(now < 1e9 && runs < 200_000, "cars wait for ever");
        now += step;
        work += step * speed * jobs.len() as f64;
        for job in &mut jobs {
            job.left -= step * speed;
        }
        while let Some(at) = jobs.iter().position(|job| job.left <= 1e-6) {
            let job = jobs.remove(at);
            let good = truth.is_good(&job.tree) && !dice.happens(conditions.flake);
            strategy.judged(job.base, &job.cars, good, now);
        }
    }
    waits.sort_by(f64::total_cmp);
    let landed = waits.len() as f64;
    let wronged = out.iter().filter(|(car, why)| {
        let mut with = truth.main.clone();
        with.push(**car);
        **why == Out::Red && truth.is_good(&with)
    });
    Outcome {
        rate: landed / (last / T).max(1e-9),
        work: work / T / landed.max(1.0),
        wait: waits.iter().sum::<f64>() / landed.max(1.0),
        wait_95: waits.get(waits.len() * 95 / 100).copied().unwrap_or(0.0),
        wronged: wronged.count() as f64 / f64::from(conditions.count),
        landed: u32::try_from(waits.len()).unwrap(),
        runs,
    }
}

/// Lets the strategy act until it only waits.
fn decide(
    strategy: &mut dyn Strategy,
    truth: &mut Truth,
    now: f64,
    jobs: &mut Vec<Job>,
    dice: &mut Dice,
    runs: &mut u64,
    gone: &mut dyn FnMut(Result<(), Out>, CarNo),
) {
    loop {
        let next = strategy.next(truth, now);
        if let Some((car, why)) = next.out {
            strategy.left(car);
            gone(Err(why), car);
            continue;
        }
        if let Some((base, cars)) = next.land {
            if base != truth.main.len() {
                strategy.refused(now);
                continue;
            }
            truth.main.extend(&cars);
            assert!(truth.is_good(&truth.main), "something bad landed with {cars:?}");
            strategy.landed(&cars, now);
            cars.iter().for_each(|car| gone(Ok(()), *car));
            continue;
        }
        let wanted: Vec<(Vec<CarNo>, usize, Vec<CarNo>)> = next
            .run
            .into_iter()
            .map(|(base, cars)| ([&truth.main[..base], &cars].concat(), base, cars))
            .collect();
        jobs.retain_mut(|job| {
            let Some((_, base, cars)) = wanted.iter().find(|(tree, ..)| *tree == job.tree) else {
                return false;
            };
            (job.base, job.cars) = (*base, cars.clone());
            true
        });
        for (tree, base, cars) in wanted {
            if !jobs.iter().any(|job| job.tree == tree) {
                *runs += 1;
                // A run that fails stops early.
                let share = if truth.is_good(&tree) { 1.0 } else { 0.7 };
                jobs.push(Job { base, cars, tree, left: T * dice.spread() * share });
            }
        }
        assert!(jobs.len() <= truth.conditions.lanes, "{} runs at once", jobs.len());
        return;
    }
}

/// The product's own policy.
pub struct Ours {
    lanes: usize,
    pub groups: bool,
    train: Train,
    yard: TrainBatches,
    /// How long the branch was when a tree was merged.
    bases: BTreeMap<Oid, usize>,
    clash: BTreeSet<CarNo>,
}

impl Ours {
    pub fn new(lanes: usize) -> Self {
        let (train, yard) = (Train::default(), TrainBatches::default());
        Self { lanes, groups: true, train, yard, bases: BTreeMap::new(), clash: BTreeSet::new() }
    }

    fn cars(&self, places: &[u64]) -> Vec<CarNo> {
        places.iter().map(|place| self.train.candidate_at(*place).unwrap().task.0).collect()
    }

    /// Merges what is asked for. A tree is named after all that is in it.
    fn form(&mut self, truth: &Truth, now: Time) {
        let main = name(&truth.main);
        let asked = self.yard.request_merges();
        if !asked.is_empty() {
            self.yard.set_target_commit(&main, now);
        }
        for (purpose, places) in asked {
            let mut tree = truth.main.clone();
            let mut steps = Vec::new();
            let cars =
                if purpose == BatchPurpose::TargetCheck { Vec::new() } else { self.cars(&places) };
            for (n, car) in cars.iter().enumerate() {
                if !truth.merges(&tree, *car) {
                    if truth.merges(&truth.main, *car) {
                        self.yard.record_conflict(&places[..n], places[n], now);
                    } else {
                        self.clash.insert(*car);
                    }
                    break;
                }
                let onto = name(&tree);
                tree.push(*car);
                steps.push(CandidateMerge {
                    onto,
                    commit: name(&tree),
                    tree: name(&tree),
                    reused: Vec::new(),
                });
            }
            if steps.len() < cars.len() {
                continue;
            }
            self.bases.insert(name(&tree), truth.main.len());
            let (tip, onto) = (name(&tree), main.clone());
            let formed = BatchMerge {
                onto,
                candidate_merges: steps,
                commit: tip.clone(),
                tree: tip.clone(),
                tip,
            };
            self.yard.record_merge(purpose, &places, formed, false);
        }
    }
}

fn name(tree: &[CarNo]) -> Oid {
    let hash = tree.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, car| {
        (hash ^ u64::from(*car + 1)).wrapping_mul(0x0100_0000_01b3).rotate_left(17)
    });
    Oid::new(format!("{hash:x}"))
}

fn time(now: f64) -> Time {
    Time(now as i64)
}

impl Strategy for Ours {
    fn arrives(&mut self, car: CarNo) {
        self.train.enqueue(TaskIx(car), 1, Oid::new("tip"), 0);
    }

    fn next(&mut self, truth: &Truth, now: f64) -> Move {
        let at = time(now);
        for round in 0.. {
            assert!(round < 10_000, "it never comes to an end");
            let train = &self.train;
            self.yard.retain_candidates(|place| train.candidate_at(place).is_some(), at);
            if let Some(car) = self.clash.pop_first() {
                return Move { out: Some((car, Out::Clash)), ..Move::default() };
            }
            let plan = policy::plan_train(&self.train, &self.yard, self.lanes, self.groups);
            if let Some(place) = plan.evict {
                let car = self.cars(&[place])[0];
                return Move { out: Some((car, Out::Red)), ..Move::default() };
            }
            if let Some(places) = plan.land {
                let line =
                    self.yard.all_batches().iter().find(|line| line.candidates == places).unwrap();
                let base = self.bases[line.tree.as_ref().unwrap()];
                return Move { land: Some((base, self.cars(&places))), ..Move::default() };
            }
            if plan.frozen {
                // The branch is never bad here: gates flaked on it.
                self.yard.recheck_target();
                continue;
            }
            self.yard.apply_plan(&plan, at);
            let unformed = self
                .yard
                .all_batches()
                .iter()
                .any(|line| line.merge.is_none() && line.on_current_target);
            self.form(truth, at);
            if !unformed {
                break;
            }
        }
        self.yard.start_verifications(u32::try_from(self.lanes).unwrap(), at);
        self.yard.take_cancelled_lanes();
        let running = self
            .yard
            .all_batches()
            .iter()
            .filter(|line| matches!(line.state, BatchState::Running { .. }));
        let run = running.map(|line| {
            let cars = if line.purpose == BatchPurpose::TargetCheck {
                Vec::new()
            } else {
                self.cars(&line.candidates)
            };
            (self.bases[line.tree.as_ref().unwrap()], cars)
        });
        Move { run: run.collect(), ..Move::default() }
    }

    fn judged(&mut self, base: usize, cars: &[CarNo], good: bool, now: f64) {
        let _ = base;
        let at = self.yard.all_batches().iter().position(|line| {
            matches!(line.state, BatchState::Running { .. })
                && (if line.purpose == BatchPurpose::TargetCheck {
                    Vec::new()
                } else {
                    self.cars(&line.candidates)
                }) == cars
                && self.bases[line.tree.as_ref().unwrap()] == base
        });
        let at = at.expect("a run that was asked for");
        let line = &self.yard.all_batches()[at];
        if line.purpose != BatchPurpose::TargetCheck {
            let unit: Vec<TaskIx> =
                self.cars(line.own_candidates()).into_iter().map(TaskIx).collect();
            self.train.record_verdict(&unit, good, false);
        }
        let verdict = if good { BatchVerdict::Good } else { BatchVerdict::Bad };
        self.yard.record_verdict(at, verdict, String::new(), time(now));
    }

    fn landed(&mut self, cars: &[CarNo], now: f64) {
        let places: Vec<u64> = cars
            .iter()
            .map(|car| self.train.candidate_of(TaskIx(*car)).unwrap().queue_number)
            .collect();
        let line = self.yard.all_batches().iter().find(|line| line.candidates == places).unwrap();
        let main = line.merge.as_ref().unwrap().commit.clone();
        self.yard.record_landing(&places, &main, time(now));
        cars.iter().for_each(|car| self.train.remove_landed(TaskIx(*car)));
    }

    fn left(&mut self, car: CarNo) {
        self.train.remove_candidate(TaskIx(car));
    }

    fn refused(&mut self, now: f64) {
        self.yard.forget_target_commit(time(now));
    }

    fn picture(&self) -> String {
        format!("{:#?}\n{:#?}", self.train, self.yard)
    }
}
