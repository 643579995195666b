//! What lands next: the line of cars and what is remembered of them. Which merges are verified now
//! is said by [`policy`], from this and from the [`batches`]. Knows no git and no clock.

pub mod pace;
pub mod policy;
pub mod batches;

use std::collections::BTreeMap;

use batches::ReusedResolution;

use crate::id::{Oid, TaskIx};

/// How often a car is passed by more important ones before nobody passes it any more.
const PASSED_BY_MAX: u32 = 8;

/// The largest group that is verified together. Beyond it one bad car costs too many runs.
const GROUP_MAX: usize = 32;

/// A task's work on its way to the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainCandidate {
    pub task: TaskIx,
    pub attempt: u32,
    pub tip: Oid,
    pub priority: i64,
    /// Queue number: earlier first. Names the car.
    pub queue_number: u64,
    /// How far it is.
    pub stage: CandidateStage,
    /// A merge with it was found good, if not the one that is to land.
    pub passed_trial: bool,
    /// It was part of a group that was found bad: only those of the same cell are tried with it.
    pub cell: Option<u64>,
    /// More important cars that joined the train later and went ahead.
    pub passed_by: u32,
    /// Its merge has conflicts that were resolved as they had been before.
    pub reused: Vec<ReusedResolution>,
    /// What the gates said of a merge with it, since it was merged last.
    pub verdict: Option<bool>,
    /// It does not land for now, and nothing is merged onto it.
    pub held: bool,
}

/// How far a car is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CandidateStage {
    /// In the line, or to be merged.
    Queued,
    /// Merged; the train's gates look at it, alone or with others.
    Formed {
        /// What it was merged onto: the target branch's commit, or the merge of a car before it.
        onto: Oid,
        commit: Oid,
        tree: Oid,
    },
    /// Verified; the branch is about to move.
    Landing {
        old: Oid,
        new: Oid,
        tree: Oid,
        /// What the car itself was merged onto.
        onto: Oid,
        /// The merge of the car itself: the one the branch moves to, or inside it.
        commit: Oid,
    },
}

impl CandidateStage {
    /// The branch is about to move for it.
    pub fn is_landing(&self) -> bool {
        matches!(self, Self::Landing { .. })
    }
}

/// How often cars turn out bad.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BadCandidateRate {
    seen: u64,
    bad: u64,
}

impl BadCandidateRate {
    /// Cars to verify together: as many as are good together about every other time. Starts as if one
    /// of twelve had been bad.
    pub fn best_group_size(self) -> usize {
        let twice_bad = 2 * self.bad + 1;
        let seen = self.seen + 6;
        usize::try_from(seen / twice_bad).unwrap_or(GROUP_MAX).clamp(1, GROUP_MAX)
    }

    /// The share of bad ones among so many, less than one.
    fn bad_share(self, seen: u64) -> f64 {
        let count = |n: u64| to_float(usize::try_from(n).unwrap_or(usize::MAX));
        count(self.bad) / (count(seen.max(self.bad)) + 6.0)
    }
}

#[derive(Debug, Clone, Default)]
pub struct Train {
    candidates: Vec<TrainCandidate>,
    queued: u64,
    cells: u64,
    /// Of cars by themselves.
    alone: BadCandidateRate,
    /// Of good cars, together with others; a group of them that fails counts as one that is bad.
    together: BadCandidateRate,
    landed: u64,
    /// Which gate passed on which tree, and with which tools.
    passed: BTreeMap<(Oid, String), String>,
}

impl Train {
    /// A car joins the line.
    pub fn enqueue(&mut self, task: TaskIx, attempt: u32, tip: Oid, priority: i64) {
        self.queued += 1;
        let car = TrainCandidate {
            task,
            attempt,
            tip,
            priority,
            queue_number: self.queued,
            stage: CandidateStage::Queued,
            passed_trial: false,
            cell: None,
            passed_by: 0,
            reused: Vec::new(),
            verdict: None,
            held: false,
        };
        // Who is merged, who is at least as important and who has waited long enough is not passed.
        let stays = |other: &TrainCandidate| {
            other.stage != CandidateStage::Queued
                || other.priority >= priority
                || other.passed_by >= PASSED_BY_MAX
        };
        let at = self.candidates.iter().rposition(stays).map_or(0, |at| at + 1);
        for other in &mut self.candidates[at..] {
            other.passed_by += 1;
        }
        self.candidates.insert(at, car);
    }

    pub fn head(&self) -> Option<&TrainCandidate> {
        self.candidates.first()
    }

    /// All cars in order.
    pub fn candidates(&self) -> &[TrainCandidate] {
        &self.candidates
    }

    /// The car of this task.
    pub fn candidate_of(&self, task: TaskIx) -> Option<&TrainCandidate> {
        self.candidates.iter().find(|car| car.task == task)
    }

    /// The car with this queue number.
    pub fn candidate_at(&self, place: u64) -> Option<&TrainCandidate> {
        self.candidates.iter().find(|car| car.queue_number == place)
    }

    /// Sets how far a task's car is.
    pub fn set_stage(&mut self, task: TaskIx, stage: CandidateStage) {
        if let Some(car) = self.candidates.iter_mut().find(|car| car.task == task) {
            (car.stage, car.verdict) = (stage, None);
        }
    }

    /// Holds a task's car, or lets it go on. What was merged with it is merged anew.
    pub fn set_held(&mut self, task: TaskIx, held: bool) {
        if let Some(car) = self.candidates.iter_mut().find(|car| car.task == task) {
            car.held = held;
            if held {
                (car.stage, car.verdict) = (CandidateStage::Queued, None);
            }
        }
    }

    /// What the merge of a task's car was put together with.
    pub fn set_reused_resolutions(&mut self, task: TaskIx, reused: &[ReusedResolution]) {
        if let Some(car) = self.candidates.iter_mut().find(|car| car.task == task) {
            reused.clone_into(&mut car.reused);
        }
    }

    /// Cars for which the branch is about to move, in the order of their merges: those found good in
    /// groups may be merged in another order than they stand in.
    pub fn landing_candidates(&self) -> impl Iterator<Item = &TrainCandidate> {
        let under_way = || {
            self.candidates.iter().filter_map(|car| match &car.stage {
                CandidateStage::Landing { onto, commit, .. } => Some((car, onto, commit)),
                _ => None,
            })
        };
        // Those before it may have left: they are known to have landed.
        let first = under_way()
            .find(|(_, onto, _)| under_way().all(|(_, _, commit)| commit != *onto))
            .map(|(car, ..)| car);
        std::iter::successors(first, move |car| {
            let CandidateStage::Landing { commit, .. } = &car.stage else { return None };
            under_way().find(|(_, onto, _)| *onto == commit).map(|(car, ..)| car)
        })
    }

    /// A verdict on these cars together, in the order of the line. What was known before counts for
    /// no rate.
    pub fn record_verdict(&mut self, tasks: &[TaskIx], good: bool, known: bool) {
        let places: Vec<usize> = tasks
            .iter()
            .filter_map(|task| self.candidates.iter().position(|car| car.task == *task))
            .collect();
        let Some(last) = places.last() else { return };
        places.iter().for_each(|at| self.candidates[*at].verdict = Some(good));
        let vetted = self.candidates[*last].passed_trial;
        let rate = if vetted { &mut self.together } else { &mut self.alone };
        let count = u64::try_from(places.len()).unwrap_or(0);
        match (good, places.len()) {
            (true, _) if !known => rate.seen += count,
            // Two that break each other are apart in the halves, and nobody will be found bad.
            (false, n) if !known && (n == 1 || vetted) => {
                rate.seen += 1;
                rate.bad += 1;
            }
            _ => {}
        }
        if good {
            for at in &places {
                (self.candidates[*at].passed_trial, self.candidates[*at].cell) = (true, None);
            }
        } else if places.len() > 1 {
            let (first, second) = places.split_at(places.len().div_ceil(2));
            for half in [first, second] {
                self.cells += 1;
                for at in half {
                    self.candidates[*at].cell = Some(self.cells);
                }
            }
        }
    }

    /// Cars to verify together on the target branch, if they are not known to be good by themselves.
    pub fn trial_group_size(&self) -> usize {
        self.alone.best_group_size()
    }

    /// Cars to verify together that are good by themselves.
    pub fn landing_group_size(&self) -> usize {
        // Others are merged onto it while it is verified: it must be good more often than not.
        BadCandidateRate { seen: self.together.seen, bad: 2 * self.together.bad }.best_group_size()
    }

    /// Is it cheaper, from what was seen, to verify each car for itself on all before it than to look at
    /// groups first? So many verifications run side by side.
    pub fn prefers_chain(&self, at_once: usize) -> bool {
        if at_once < 2 {
            return false;
        }
        let bad = self.alone.bad_share(self.alone.seen);
        // In a chain nothing is learnt of groups; every landing is a reason to try them again.
        let broken = self.together.bad_share(self.landed + self.together.bad);
        let both = 1.0 - (1.0 - bad) * (1.0 - broken);
        // Fitted to the model: what is verified behind a bad car is lost.
        let lost = both * (0.5 + 1.5 * both) * (to_float(at_once) - 1.0) / 3.0;
        let chain = (1.0 + lost) / (1.0 - both);
        let vet = runs_per_candidate(self.trial_group_size(), bad) / (1.0 - bad);
        let join = runs_per_candidate(self.landing_group_size().min(2 * at_once), broken);
        (vet + join) / (1.0 - broken) > chain
    }

    /// A gate passed on a tree.
    pub fn record_passed_gate(&mut self, tree: &Oid, gate: &str, tools: &str) {
        self.passed.insert((tree.clone(), gate.to_owned()), tools.to_owned());
    }

    /// What passed did so with build caches that are not to be trusted.
    pub fn forget_verdicts(&mut self) {
        self.passed.clear();
    }

    /// Did all these gates pass on this tree, with these tools?
    pub fn have_gates_passed(&self, tree: &Oid, gates: &[String], tools: &str) -> bool {
        gates.iter().all(|gate| {
            self.passed.get(&(tree.clone(), gate.clone())).is_some_and(|with| with == tools)
        })
    }

    /// The plan has a new revision: tasks have new places, or none.
    pub fn renumber_tasks(&mut self, place: impl Fn(TaskIx) -> Option<TaskIx>) {
        self.candidates.retain_mut(|car| match place(car.task) {
            Some(t) => {
                car.task = t;
                true
            }
            None => false,
        });
    }

    /// A task's car is on the branch.
    pub fn remove_landed(&mut self, task: TaskIx) {
        self.landed += 1;
        self.remove_candidate(task);
    }

    /// A task's car leaves the line.
    pub fn remove_candidate(&mut self, task: TaskIx) {
        self.candidates.retain(|car| car.task != task);
    }
}

/// Runs per car if so many are verified together, halved when they fail, and so large a share is bad.
fn runs_per_candidate(group: usize, bad: f64) -> f64 {
    fn runs_per_group(group: usize, bad: f64) -> f64 {
        if group < 2 {
            return 1.0;
        }
        let passes = (0..group).map(|_| 1.0 - bad).product::<f64>();
        1.0 + (1.0 - passes)
            * (runs_per_group(group / 2, bad) + runs_per_group(group - group / 2, bad))
    }
    runs_per_group(group, bad) / to_float(group)
}

#[expect(clippy::cast_precision_loss, reason = "cars and runs")]
fn to_float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
