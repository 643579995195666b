//! Lines under way: which cars are merged onto what, which of these merges are being verified, and
//! what came out. Belongs to one life of the engine: all of it can be found out again, and what was
//! verified is on record by its tree. Knows no policy.

use std::collections::BTreeSet;

use super::Car;
use super::pace::Pace;
use super::policy::{Plan, Wish};
use crate::clash::in_turn;
use crate::id::{Oid, Time};
use serde::{Deserialize, Serialize};

/// What a line is verified for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// To land as it is.
    Join,
    /// To know whether its cars are good. It may land if the branch still stands where it stood.
    Vet,
    /// The target branch itself, to know whether the line's one car is to blame.
    Base,
}

/// How far a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not verified yet.
    Wanted,
    /// The gates look at it in this lane.
    Running {
        /// From 1.
        lane: u32,
    },
    /// All gates passed.
    Passed,
    /// One did not.
    Failed,
}

/// What the gates say of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// All passed.
    Good,
    /// One failed.
    Bad,
    /// One could not give a verdict: nothing lands, and the branch is not to blame.
    Unable,
}

/// One merge of a line of cars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Onto what.
    pub onto: Oid,
    /// The merge.
    pub commit: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Conflicts in it that were resolved as they had been before.
    pub reused: Vec<Reused>,
}

/// A file that clashed and was resolved as it had been before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reused {
    /// The name of that resolution.
    pub resolution: String,
    /// The file.
    pub path: String,
}

/// The merges of a whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formed {
    /// The target branch's commit.
    pub onto: Oid,
    /// One per car.
    pub steps: Vec<Step>,
    /// What is checked out and verified.
    pub tip: Oid,
    /// What the branch would move to: the tip, or a merge of all of them with the tip's tree.
    pub commit: Oid,
    /// The tree of both.
    pub tree: Oid,
}

/// Cars merged one after the other onto the target branch.
#[derive(Debug, Clone)]
pub struct Line {
    /// What for.
    pub purpose: Purpose,
    /// Queue numbers, in order of merging. Of a base: who is suspected.
    pub cars: Vec<u64>,
    /// So many of them are judged by a shorter line.
    pub ahead: usize,
    /// The target branch stands where it stood.
    pub here: bool,
    /// The merges, once they exist.
    pub formed: Option<Formed>,
    /// The tree that is or was verified.
    pub tree: Option<Oid>,
    /// How far it is.
    pub state: State,
    /// The merges were asked for.
    pub asked: bool,
    /// Why it failed.
    pub why: String,
    /// It is its own fault: the target branch was known to be good.
    pub sound: bool,
    run: Option<Run>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    since: Time,
    seen: Time,
    /// Runs at once, times milliseconds.
    load: f64,
}

impl Line {
    /// The cars that this line is about.
    pub fn unit(&self) -> &[u64] {
        match self.purpose {
            Purpose::Base => &self.cars,
            Purpose::Join | Purpose::Vet => &self.cars[self.ahead..],
        }
    }

    fn is(&self, wish: &Wish) -> bool {
        // There is one target branch, whoever is suspected.
        self.purpose == wish.purpose && (self.purpose == Purpose::Base || self.cars == wish.cars)
    }
}

/// Lines under way.
#[derive(Debug, Clone, Default)]
pub struct Yard {
    main: Option<Oid>,
    base: Option<bool>,
    /// It was found bad once; once may be bad luck.
    doubted: bool,
    lines: Vec<Line>,
    clashes: BTreeSet<(Vec<u64>, u64)>,
    /// Pairs of cars that were seen to clash before anybody merged them, the smaller number first.
    foreseen: BTreeSet<(u64, u64)>,
    cancelled: Vec<u32>,
    pace: Pace,
}

impl Yard {
    /// All lines.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// How many verifications run well at once.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Where the target branch stands, as far as is known.
    pub fn main(&self) -> Option<&Oid> {
        self.main.as_ref()
    }

    /// Whether the target branch itself is good, if that is known.
    pub fn base(&self) -> Option<bool> {
        self.base
    }

    /// Does this car clash with the merge of these?
    pub fn clashes(&self, before: &[u64], car: u64) -> bool {
        let found = !self.clashes.is_empty() && self.clashes.contains(&(before.to_vec(), car));
        let seen = |other: &u64| self.foreseen.contains(&(car.min(*other), car.max(*other)));
        found || (!self.foreseen.is_empty() && before.iter().any(seen))
    }

    /// These pairs of cars are known to clash.
    pub fn foresee(&mut self, pairs: BTreeSet<(u64, u64)>) {
        self.foreseen = pairs;
    }

    /// The cars in the order in which they are tried.
    pub fn in_turn<'c>(&self, cars: &'c [Car]) -> Vec<&'c Car> {
        in_turn(cars, &self.foreseen)
    }

    /// Lanes whose verification nobody needs any more.
    pub fn take_cancelled(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.cancelled)
    }

    /// Cars that left take their lines with them.
    pub fn retain(&mut self, there: impl Fn(u64) -> bool, now: Time) {
        self.drop_if(|line| !line.cars.iter().all(|car| there(*car)), now);
        self.clashes.retain(|(before, car)| there(*car) && before.iter().all(|car| there(*car)));
    }

    fn drop_if(&mut self, gone: impl Fn(&Line) -> bool, now: Time) {
        self.count_time(now);
        let cancelled = &mut self.cancelled;
        self.lines.retain(|line| {
            let gone = gone(line);
            if let State::Running { lane } = line.state
                && gone
            {
                cancelled.push(lane);
            }
            !gone
        });
    }

    /// Runs at once are counted by time, so that a run that was alone for half of it counts as such.
    fn count_time(&mut self, now: Time) {
        let running = self.lines.iter().filter(|line| line.run.is_some()).count();
        let running = f64::from(u32::try_from(running).unwrap_or(u32::MAX));
        for run in self.lines.iter_mut().filter_map(|line| line.run.as_mut()) {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
            let passed = now.since_ms(run.seen) as f64;
            run.load += running * passed;
            run.seen = now.max(run.seen);
        }
    }

    /// Makes the lines those of the plan. What was judged stays known while it means something.
    pub fn follow(&mut self, plan: &Plan, now: Time) {
        let wished = |line: &Line| plan.run.iter().any(|wish| line.is(wish));
        self.drop_if(
            |line| match line.state {
                State::Wanted | State::Running { .. } => !wished(line),
                State::Passed | State::Failed => !line.here || line.purpose == Purpose::Base,
            },
            now,
        );
        for wish in &plan.run {
            if let Some(line) = self.lines.iter_mut().find(|line| line.is(wish)) {
                line.ahead = wish.ahead;
                continue;
            }
            self.lines.push(Line {
                purpose: wish.purpose,
                cars: wish.cars.clone(),
                ahead: wish.ahead,
                here: true,
                formed: None,
                tree: None,
                state: State::Wanted,
                asked: false,
                why: String::new(),
                sound: false,
                run: None,
            });
        }
    }

    /// The lines whose merges are to be asked for now.
    pub fn ask_forms(&mut self) -> Vec<(Purpose, Vec<u64>)> {
        let lines = self.lines.iter_mut().filter(|line| line.formed.is_none() && !line.asked);
        // A line on an older branch is verified as it was formed.
        lines
            .filter(|line| line.here)
            .map(|line| {
                line.asked = true;
                (line.purpose, line.cars.clone())
            })
            .collect()
    }

    /// The target branch stands here; if that is news, what was merged onto another place is void.
    pub fn stands(&mut self, main: &Oid, now: Time) {
        if self.main.as_ref() == Some(main) {
            return;
        }
        let first = self.main.replace(main.clone()).is_none();
        if first {
            return;
        }
        // What is not merged yet will be merged onto wherever the branch stands then.
        let fresh = |line: &Line| line.formed.is_none() && line.tree.is_none();
        self.drop_if(|line| !fresh(line) && line.purpose != Purpose::Vet, now);
        for line in &mut self.lines {
            line.here = fresh(line);
            line.asked = false;
        }
        self.clashes.clear();
        (self.base, self.doubted) = (None, false);
    }

    /// Nobody knows where the target branch stands.
    pub fn lost(&mut self, now: Time) {
        self.stands(&Oid::new(""), now);
        self.main = None;
    }

    /// No verdict on any line counts any longer.
    pub fn forget_all(&mut self, now: Time) {
        self.drop_if(|_| true, now);
        self.clashes.clear();
        (self.main, self.base, self.doubted) = (None, None, false);
    }

    /// The target branch itself is good, or not.
    pub fn base_is(&mut self, good: bool) {
        self.base = Some(good);
    }

    /// The line whose merges these are, if it is wanted.
    pub fn forming(&self, purpose: Purpose, cars: &[u64]) -> Option<&Line> {
        self.lines.iter().find(|line| {
            line.purpose == purpose
                && line.formed.is_none()
                && line.here
                && (purpose == Purpose::Base || line.cars == cars)
        })
    }

    /// The merges of a line exist. `known`: all gates passed on that tree before.
    pub fn formed(&mut self, purpose: Purpose, cars: &[u64], formed: Formed, known: bool) {
        let joining = self.is_joining();
        let lanes = &mut self.cancelled;
        let Some(line) = self.lines.iter_mut().find(|line| {
            line.purpose == purpose
                && line.here
                && line.formed.is_none()
                && (purpose == Purpose::Base || line.cars == cars)
        }) else {
            return;
        };
        if line.tree.as_ref() != Some(&formed.tree) {
            // Merged anew it is something else: nothing is known of it.
            if let State::Running { lane } = line.state {
                lanes.push(lane);
            }
            (line.state, line.run) = (State::Wanted, None);
        }
        if known && line.state == State::Wanted {
            line.state = State::Passed;
            match purpose {
                Purpose::Base => self.base = Some(true),
                Purpose::Vet if !joining => line.purpose = Purpose::Join,
                Purpose::Vet | Purpose::Join => {}
            }
        }
        line.tree = Some(formed.tree.clone());
        line.formed = Some(formed);
    }

    /// The last car does not merge with those before it.
    pub fn clashed(&mut self, before: &[u64], car: u64, now: Time) {
        self.clashes.insert((before.to_vec(), car));
        let stuck = |line: &Line| {
            line.formed.is_none()
                && line.cars.starts_with(before)
                && line.cars.get(before.len()) == Some(&car)
        };
        self.drop_if(stuck, now);
    }

    /// Merges that were asked for are asked for again.
    pub fn unask(&mut self, purpose: Purpose, cars: &[u64]) {
        for line in &mut self.lines {
            let this = line.purpose == purpose && (purpose == Purpose::Base || line.cars == cars);
            line.asked &= !(this && line.formed.is_none());
        }
    }

    /// A step of the train for this car failed: it is asked for again.
    pub fn forget(&mut self, car: u64, now: Time) {
        self.count_time(now);
        let cancelled = &mut self.cancelled;
        for line in self.lines.iter_mut().filter(|line| line.cars.last() == Some(&car)) {
            if let State::Running { lane } = line.state {
                cancelled.push(lane);
                (line.state, line.run) = (State::Wanted, None);
            }
            line.asked = line.asked && line.formed.is_some();
        }
    }

    /// Gives lanes to lines that are merged and wait: which line, in which lane.
    pub fn start(&mut self, lanes: u32, now: Time) -> Vec<(usize, u32)> {
        self.count_time(now);
        let taken: BTreeSet<u32> = self
            .lines
            .iter()
            .filter_map(|line| match line.state {
                State::Running { lane } => Some(lane),
                State::Wanted | State::Passed | State::Failed => None,
            })
            .collect();
        let mut free = (1..=lanes).filter(|lane| !taken.contains(lane));
        let mut started = Vec::new();
        for (at, line) in self.lines.iter_mut().enumerate() {
            if line.state != State::Wanted || line.formed.is_none() {
                continue;
            }
            let Some(lane) = free.next() else { break };
            line.state = State::Running { lane };
            line.run = Some(Run { since: now, seen: now, load: 0.0 });
            started.push((at, lane));
        }
        started
    }

    /// The line that is being verified for this tree.
    pub fn verifying(&self, tree: &Oid) -> Option<usize> {
        self.lines.iter().position(|line| {
            matches!(line.state, State::Running { .. }) && line.tree.as_ref() == Some(tree)
        })
    }

    fn is_joining(&self) -> bool {
        self.lines.iter().any(|line| {
            line.purpose == Purpose::Join && matches!(line.state, State::Running { .. })
        })
    }

    /// The gates are through with a line.
    pub fn judged(&mut self, at: usize, judgement: Judgement, why: String, now: Time) {
        let good = judgement == Judgement::Good;
        self.count_time(now);
        let joining = self.is_joining();
        let base = self.base;
        let line = &mut self.lines[at];
        if let Some(run) = line.run.take()
            && good
        {
            let ms = now.since_ms(run.since);
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
            self.pace.passed(ms, run.load / (ms as f64).max(1.0));
        }
        line.state = if good { State::Passed } else { State::Failed };
        (line.why, line.sound) = (why, base == Some(true) || judgement == Judgement::Unable);
        match line.purpose {
            Purpose::Base if line.here => {
                // A branch that cannot be judged is no excuse for a car.
                let bad = judgement == Judgement::Bad;
                self.base = (!bad || self.doubted).then_some(!bad);
                self.doubted = bad;
            }
            Purpose::Base => {}
            // Nobody is ahead of it: it may land as it is.
            Purpose::Vet if good && line.here && !joining => line.purpose = Purpose::Join,
            Purpose::Vet | Purpose::Join => {}
        }
    }

    /// These cars are on the branch, which stands at `main` now and holds what was verified.
    pub fn landed(&mut self, cars: &[u64], main: &Oid, now: Time) {
        let goes_on = |line: &Line| {
            line.purpose == Purpose::Join
                && line.here
                && line.cars.len() > cars.len()
                && line.cars.starts_with(cars)
        };
        let gone = |line: &Line| match line.purpose {
            Purpose::Join => !goes_on(line),
            Purpose::Vet => line.formed.is_none() || line.cars.iter().any(|car| cars.contains(car)),
            Purpose::Base => true,
        };
        self.drop_if(gone, now);
        for line in &mut self.lines {
            if line.purpose == Purpose::Join {
                line.cars.drain(..cars.len());
                line.ahead = line.ahead.saturating_sub(cars.len());
                (line.formed, line.asked) = (None, false);
            } else {
                line.here = false;
            }
        }
        self.main = Some(main.clone());
        self.clashes = std::mem::take(&mut self.clashes)
            .into_iter()
            // Who clashes with the branch itself is told so when it is merged.
            .filter(|(before, _)| before.len() > cars.len() && before.starts_with(cars))
            .map(|(before, car)| (before[cars.len()..].to_vec(), car))
            .collect();
        self.base = Some(true);
    }

    /// Somebody may have mended the target branch: it is looked at again.
    pub fn look_again(&mut self) {
        self.base = None;
        for line in &mut self.lines {
            if line.here && line.state == State::Failed {
                (line.formed, line.asked) = (None, false);
            }
        }
    }
}
