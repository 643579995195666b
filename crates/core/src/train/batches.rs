//! Lines under way: which cars are merged onto what, which of these merges are being verified, and
//! what came out. Belongs to one life of the engine: all of it can be found out again, and what was
//! verified is on record by its tree. Knows no policy.

use std::collections::BTreeSet;

use super::TrainCandidate;
use super::pace::LanePace;
use super::policy::{PlannedBatch, TrainPlan};
use crate::conflict::order_by_conflicts;
use crate::id::{Oid, Time};
use serde::{Deserialize, Serialize};

/// What a line is verified for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchPurpose {
    /// To land as it is.
    Landing,
    /// To know whether its cars are good. It may land if the branch still stands where it stood.
    Trial,
    /// The target branch itself, to know whether the line's one car is to blame.
    TargetCheck,
}

/// How far a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchState {
    Wanted,
    /// The gates look at it in this lane.
    Running {
        lane: u32,
    },
    Passed,
    Failed,
}

/// What the gates say of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchVerdict {
    Good,
    Bad,
    /// One could not give a verdict: nothing lands, and the branch is not to blame.
    Unable,
}

/// One merge of a line of cars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateMerge {
    pub onto: Oid,
    pub commit: Oid,
    pub tree: Oid,
    /// Conflicts in it that were resolved as they had been before.
    pub reused: Vec<ReusedResolution>,
}

/// A file that clashed and was resolved as it had been before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReusedResolution {
    /// The name of that resolution.
    pub resolution: String,
    pub path: String,
}

/// The merges of a whole line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMerge {
    /// The target branch's commit.
    pub onto: Oid,
    pub candidate_merges: Vec<CandidateMerge>,
    /// What is checked out and verified.
    pub tip: Oid,
    /// What the branch would move to: the tip, or a merge of all of them with the tip's tree.
    pub commit: Oid,
    /// The tree of both.
    pub tree: Oid,
}

/// Cars merged one after the other onto the target branch.
#[derive(Debug, Clone)]
pub struct CandidateBatch {
    pub purpose: BatchPurpose,
    /// Queue numbers, in order of merging. Of a base: who is suspected.
    pub candidates: Vec<u64>,
    /// So many of them are judged by a shorter line.
    pub ahead: usize,
    /// The target branch stands where it stood.
    pub on_current_target: bool,
    /// The merges, once they exist.
    pub merge: Option<BatchMerge>,
    /// The tree that is or was verified.
    pub tree: Option<Oid>,
    /// How far it is.
    pub state: BatchState,
    /// The merges were asked for.
    pub merge_requested: bool,
    pub why: String,
    /// It is its own fault: the target branch was known to be good.
    pub at_fault: bool,
    run: Option<BatchTiming>,
}

#[derive(Debug, Clone, Copy)]
struct BatchTiming {
    since: Time,
    seen: Time,
    /// Runs at once, times milliseconds.
    load: f64,
}

impl CandidateBatch {
    /// The cars that this line is about.
    pub fn own_candidates(&self) -> &[u64] {
        match self.purpose {
            BatchPurpose::TargetCheck => &self.candidates,
            BatchPurpose::Landing | BatchPurpose::Trial => &self.candidates[self.ahead..],
        }
    }

    fn matches_plan(&self, wish: &PlannedBatch) -> bool {
        // There is one target branch, whoever is suspected.
        self.purpose == wish.purpose
            && (self.purpose == BatchPurpose::TargetCheck || self.candidates == wish.candidates)
    }
}

#[derive(Debug, Clone, Default)]
pub struct TrainBatches {
    target_commit: Option<Oid>,
    target_passes: Option<bool>,
    /// It was found bad once; once may be bad luck.
    doubted: bool,
    batches: Vec<CandidateBatch>,
    conflicts: BTreeSet<(Vec<u64>, u64)>,
    /// Pairs of cars that were seen to clash before anybody merged them, the smaller number first.
    forecast_conflicts: BTreeSet<(u64, u64)>,
    cancelled: Vec<u32>,
    pace: LanePace,
}

impl TrainBatches {
    pub fn all_batches(&self) -> &[CandidateBatch] {
        &self.batches
    }

    /// How many verifications run well at once.
    pub fn pace(&self) -> &LanePace {
        &self.pace
    }

    /// Where the target branch stands, as far as is known.
    pub fn target_commit(&self) -> Option<&Oid> {
        self.target_commit.as_ref()
    }

    /// Whether the target branch itself is good, if that is known.
    pub fn target_passes(&self) -> Option<bool> {
        self.target_passes
    }

    /// Does this car clash with the merge of these?
    pub fn conflicts_with(&self, before: &[u64], car: u64) -> bool {
        let found = !self.conflicts.is_empty() && self.conflicts.contains(&(before.to_vec(), car));
        let seen =
            |other: &u64| self.forecast_conflicts.contains(&(car.min(*other), car.max(*other)));
        found || (!self.forecast_conflicts.is_empty() && before.iter().any(seen))
    }

    /// These pairs of cars are known to clash.
    pub fn set_forecast_conflicts(&mut self, pairs: BTreeSet<(u64, u64)>) {
        self.forecast_conflicts = pairs;
    }

    /// The cars in the order in which they are tried.
    pub fn trial_order<'c>(&self, cars: &'c [TrainCandidate]) -> Vec<&'c TrainCandidate> {
        order_by_conflicts(cars, &self.forecast_conflicts)
    }

    /// Lanes whose verification nobody needs any more.
    pub fn take_cancelled_lanes(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.cancelled)
    }

    /// Cars that left take their lines with them.
    pub fn retain_candidates(&mut self, there: impl Fn(u64) -> bool, now: Time) {
        self.drop_batches(|line| !line.candidates.iter().all(|car| there(*car)), now);
        self.conflicts.retain(|(before, car)| there(*car) && before.iter().all(|car| there(*car)));
    }

    fn drop_batches(&mut self, gone: impl Fn(&CandidateBatch) -> bool, now: Time) {
        self.account_run_time(now);
        let cancelled = &mut self.cancelled;
        self.batches.retain(|line| {
            let gone = gone(line);
            if let BatchState::Running { lane } = line.state
                && gone
            {
                cancelled.push(lane);
            }
            !gone
        });
    }

    /// Runs at once are counted by time, so that a run that was alone for half of it counts as such.
    fn account_run_time(&mut self, now: Time) {
        let running = self.batches.iter().filter(|line| line.run.is_some()).count();
        let running = f64::from(u32::try_from(running).unwrap_or(u32::MAX));
        for run in self.batches.iter_mut().filter_map(|line| line.run.as_mut()) {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
            let passed = now.since_ms(run.seen) as f64;
            run.load += running * passed;
            run.seen = now.max(run.seen);
        }
    }

    /// Makes the lines those of the plan. What was judged stays known while it means something.
    pub fn apply_plan(&mut self, plan: &TrainPlan, now: Time) {
        let wished =
            |line: &CandidateBatch| plan.batches.iter().any(|wish| line.matches_plan(wish));
        self.drop_batches(
            |line| match line.state {
                BatchState::Wanted | BatchState::Running { .. } => !wished(line),
                BatchState::Passed | BatchState::Failed => {
                    !line.on_current_target || line.purpose == BatchPurpose::TargetCheck
                }
            },
            now,
        );
        for wish in &plan.batches {
            if let Some(line) = self.batches.iter_mut().find(|line| line.matches_plan(wish)) {
                line.ahead = wish.ahead;
                continue;
            }
            self.batches.push(CandidateBatch {
                purpose: wish.purpose,
                candidates: wish.candidates.clone(),
                ahead: wish.ahead,
                on_current_target: true,
                merge: None,
                tree: None,
                state: BatchState::Wanted,
                merge_requested: false,
                why: String::new(),
                at_fault: false,
                run: None,
            });
        }
    }

    /// The lines whose merges are to be asked for now.
    pub fn request_merges(&mut self) -> Vec<(BatchPurpose, Vec<u64>)> {
        let lines =
            self.batches.iter_mut().filter(|line| line.merge.is_none() && !line.merge_requested);
        // A line on an older branch is verified as it was formed.
        lines
            .filter(|line| line.on_current_target)
            .map(|line| {
                line.merge_requested = true;
                (line.purpose, line.candidates.clone())
            })
            .collect()
    }

    /// The target branch stands here; if that is news, what was merged onto another place is void.
    pub fn set_target_commit(&mut self, main: &Oid, now: Time) {
        if self.target_commit.as_ref() == Some(main) {
            return;
        }
        let first = self.target_commit.replace(main.clone()).is_none();
        if first {
            return;
        }
        // What is not merged yet will be merged onto wherever the branch stands then.
        let fresh = |line: &CandidateBatch| line.merge.is_none() && line.tree.is_none();
        self.drop_batches(|line| !fresh(line) && line.purpose != BatchPurpose::Trial, now);
        for line in &mut self.batches {
            line.on_current_target = fresh(line);
            line.merge_requested = false;
        }
        self.conflicts.clear();
        (self.target_passes, self.doubted) = (None, false);
    }

    /// Nobody knows where the target branch stands.
    pub fn forget_target_commit(&mut self, now: Time) {
        self.set_target_commit(&Oid::new(""), now);
        self.target_commit = None;
    }

    /// No verdict on any line counts any longer.
    pub fn forget_all_verdicts(&mut self, now: Time) {
        self.drop_batches(|_| true, now);
        self.conflicts.clear();
        (self.target_commit, self.target_passes, self.doubted) = (None, None, false);
    }

    /// The target branch itself is good, or not.
    pub fn set_target_passes(&mut self, good: bool) {
        self.target_passes = Some(good);
    }

    /// The line whose merges these are, if it is wanted.
    pub fn find_unmerged_batch(
        &self,
        purpose: BatchPurpose,
        cars: &[u64],
    ) -> Option<&CandidateBatch> {
        self.batches.iter().find(|line| {
            line.purpose == purpose
                && line.merge.is_none()
                && line.on_current_target
                && (purpose == BatchPurpose::TargetCheck || line.candidates == cars)
        })
    }

    /// The merges of a line exist. `known`: all gates passed on that tree before.
    pub fn record_merge(
        &mut self,
        purpose: BatchPurpose,
        cars: &[u64],
        formed: BatchMerge,
        known: bool,
    ) {
        let joining = self.is_verifying_landing();
        let lanes = &mut self.cancelled;
        let Some(line) = self.batches.iter_mut().find(|line| {
            line.purpose == purpose
                && line.on_current_target
                && line.merge.is_none()
                && (purpose == BatchPurpose::TargetCheck || line.candidates == cars)
        }) else {
            return;
        };
        if line.tree.as_ref() != Some(&formed.tree) {
            // Merged anew it is something else: nothing is known of it.
            if let BatchState::Running { lane } = line.state {
                lanes.push(lane);
            }
            (line.state, line.run) = (BatchState::Wanted, None);
        }
        if known && line.state == BatchState::Wanted {
            line.state = BatchState::Passed;
            match purpose {
                BatchPurpose::TargetCheck => self.target_passes = Some(true),
                BatchPurpose::Trial if !joining => line.purpose = BatchPurpose::Landing,
                BatchPurpose::Trial | BatchPurpose::Landing => {}
            }
        }
        line.tree = Some(formed.tree.clone());
        line.merge = Some(formed);
    }

    /// The last car does not merge with those before it.
    pub fn record_conflict(&mut self, before: &[u64], car: u64, now: Time) {
        self.conflicts.insert((before.to_vec(), car));
        let stuck = |line: &CandidateBatch| {
            line.merge.is_none()
                && line.candidates.starts_with(before)
                && line.candidates.get(before.len()) == Some(&car)
        };
        self.drop_batches(stuck, now);
    }

    /// Merges that were asked for are asked for again.
    pub fn forget_merge_request(&mut self, purpose: BatchPurpose, cars: &[u64]) {
        for line in &mut self.batches {
            let this = line.purpose == purpose
                && (purpose == BatchPurpose::TargetCheck || line.candidates == cars);
            line.merge_requested &= !(this && line.merge.is_none());
        }
    }

    /// A step of the train for this car failed: it is asked for again.
    pub fn forget_candidate(&mut self, car: u64, now: Time) {
        self.account_run_time(now);
        let cancelled = &mut self.cancelled;
        for line in self.batches.iter_mut().filter(|line| line.candidates.last() == Some(&car)) {
            if let BatchState::Running { lane } = line.state {
                cancelled.push(lane);
                (line.state, line.run) = (BatchState::Wanted, None);
            }
            line.merge_requested = line.merge_requested && line.merge.is_some();
        }
    }

    /// Gives lanes to lines that are merged and wait: which line, in which lane.
    pub fn start_verifications(&mut self, lanes: u32, now: Time) -> Vec<(usize, u32)> {
        self.account_run_time(now);
        let taken: BTreeSet<u32> = self
            .batches
            .iter()
            .filter_map(|line| match line.state {
                BatchState::Running { lane } => Some(lane),
                BatchState::Wanted | BatchState::Passed | BatchState::Failed => None,
            })
            .collect();
        let mut free = (1..=lanes).filter(|lane| !taken.contains(lane));
        let mut started = Vec::new();
        for (at, line) in self.batches.iter_mut().enumerate() {
            if line.state != BatchState::Wanted || line.merge.is_none() {
                continue;
            }
            let Some(lane) = free.next() else { break };
            line.state = BatchState::Running { lane };
            line.run = Some(BatchTiming { since: now, seen: now, load: 0.0 });
            started.push((at, lane));
        }
        started
    }

    /// The line that is being verified for this tree.
    pub fn find_verifying(&self, tree: &Oid) -> Option<usize> {
        self.batches.iter().position(|line| {
            matches!(line.state, BatchState::Running { .. }) && line.tree.as_ref() == Some(tree)
        })
    }

    fn is_verifying_landing(&self) -> bool {
        self.batches.iter().any(|line| {
            line.purpose == BatchPurpose::Landing
                && matches!(line.state, BatchState::Running { .. })
        })
    }

    /// The gates are through with a line.
    pub fn record_verdict(&mut self, at: usize, judgement: BatchVerdict, why: String, now: Time) {
        let good = judgement == BatchVerdict::Good;
        self.account_run_time(now);
        let joining = self.is_verifying_landing();
        let base = self.target_passes;
        let line = &mut self.batches[at];
        if let Some(run) = line.run.take()
            && good
        {
            let ms = now.since_ms(run.since);
            #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
            self.pace.record_run(ms, run.load / (ms as f64).max(1.0));
        }
        line.state = if good { BatchState::Passed } else { BatchState::Failed };
        (line.why, line.at_fault) = (why, base == Some(true) || judgement == BatchVerdict::Unable);
        match line.purpose {
            BatchPurpose::TargetCheck if line.on_current_target => {
                // A branch that cannot be judged is no excuse for a car.
                let bad = judgement == BatchVerdict::Bad;
                self.target_passes = (!bad || self.doubted).then_some(!bad);
                self.doubted = bad;
            }
            BatchPurpose::TargetCheck => {}
            // Nobody is ahead of it: it may land as it is.
            BatchPurpose::Trial if good && line.on_current_target && !joining => {
                line.purpose = BatchPurpose::Landing;
            }
            BatchPurpose::Trial | BatchPurpose::Landing => {}
        }
    }

    /// These cars are on the branch, which stands at `main` now and holds what was verified.
    pub fn record_landing(&mut self, cars: &[u64], main: &Oid, now: Time) {
        let goes_on = |line: &CandidateBatch| {
            line.purpose == BatchPurpose::Landing
                && line.on_current_target
                && line.candidates.len() > cars.len()
                && line.candidates.starts_with(cars)
        };
        let gone = |line: &CandidateBatch| match line.purpose {
            BatchPurpose::Landing => !goes_on(line),
            BatchPurpose::Trial => {
                line.merge.is_none() || line.candidates.iter().any(|car| cars.contains(car))
            }
            BatchPurpose::TargetCheck => true,
        };
        self.drop_batches(gone, now);
        for line in &mut self.batches {
            if line.purpose == BatchPurpose::Landing {
                line.candidates.drain(..cars.len());
                line.ahead = line.ahead.saturating_sub(cars.len());
                (line.merge, line.merge_requested) = (None, false);
            } else {
                line.on_current_target = false;
            }
        }
        self.target_commit = Some(main.clone());
        self.conflicts = std::mem::take(&mut self.conflicts)
            .into_iter()
            // Who clashes with the branch itself is told so when it is merged.
            .filter(|(before, _)| before.len() > cars.len() && before.starts_with(cars))
            .map(|(before, car)| (before[cars.len()..].to_vec(), car))
            .collect();
        self.target_passes = Some(true);
    }

    /// Somebody may have mended the target branch: it is looked at again.
    pub fn recheck_target(&mut self) {
        self.target_passes = None;
        for line in &mut self.batches {
            if line.on_current_target && line.state == BatchState::Failed {
                (line.merge, line.merge_requested) = (None, false);
            }
        }
    }
}
