//! Work that does not merge: with what landed, and what has to be known to redo or resolve that; and with
//! other work, as far as was looked ahead. Knows no git: which files clash is found out elsewhere.

use std::collections::BTreeSet;

use crate::glob::globs_may_overlap;
use crate::id::{Oid, TaskId, Time};
use crate::train::{CandidateStage, TrainCandidate};

/// A clash of a task's work with the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetConflict {
    /// Whose work: the attempt.
    pub attempt: u32,
    /// Where that attempt started.
    pub base: Oid,
    pub tip: Oid,
    /// Where the target branch stood.
    pub onto: Oid,
    /// The files that clash.
    pub files: Vec<String>,
    /// When that attempt was intended: what landed since may be the other side.
    pub since: Time,
}

/// A piece of work that is under way or waits to land, and what it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlandedWork {
    pub task: TaskId,
    pub attempt: u32,
    /// Its newest commit that is known.
    pub commit: Oid,
    /// The files that it changes.
    pub paths: Vec<String>,
}

/// Two pieces of work that do not merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictPair {
    pub a: TaskId,
    /// And whose; none is the target branch.
    pub b: Option<TaskId>,
    pub paths: Vec<String>,
}

/// Which pieces of work would clash, as far as was looked. Seen by one life of the engine: it can be found
/// out again at any time, so it is no fact, and nothing but an order of equals follows from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConflictForecast {
    /// The pieces that were looked at.
    pub unlanded_work: Vec<UnlandedWork>,
    pub pairs: Vec<ConflictPair>,
    /// Every pair was looked at.
    pub complete: bool,
}

impl ConflictForecast {
    /// The piece of this task, if it is still what was looked at.
    pub fn work_of(&self, task: &TaskId) -> Option<&UnlandedWork> {
        self.unlanded_work.iter().find(|piece| piece.task == *task)
    }

    /// Pairs of tasks that clash; those with the target branch are told when they are merged.
    pub fn conflicting_tasks(&self) -> impl Iterator<Item = (&TaskId, &TaskId)> {
        self.pairs.iter().filter_map(|pair| Some((&pair.a, pair.b.as_ref()?)))
    }

    /// Do files that a task means to write overlap with what others have changed by now?
    pub fn overlaps_writes(&self, task: &TaskId, writes: &[String]) -> bool {
        let others = self.unlanded_work.iter().filter(|piece| piece.task != *task);
        others
            .flat_map(|piece| &piece.paths)
            .any(|path| writes.iter().any(|glob| globs_may_overlap(glob, path)))
    }
}

/// Cars that may be passed by this many that joined the train later, for the sake of who clashes with whom.
const PASSED_BY_MAX: u64 = 8;

/// The cars of a line in the order in which they are tried: among equals that are not merged yet, those
/// that clash with fewer others first. Nobody waits for more than a few that came later.
pub fn order_by_conflicts<'c>(
    cars: &'c [TrainCandidate],
    clashes: &BTreeSet<(u64, u64)>,
) -> Vec<&'c TrainCandidate> {
    let mut turn: Vec<&TrainCandidate> = cars.iter().collect();
    if clashes.is_empty() {
        return turn;
    }
    let counts = |car: &TrainCandidate| {
        clashes.iter().filter(|(a, b)| *a == car.queue_number || *b == car.queue_number).count()
    };
    for at in 0..turn.len() {
        let first = turn[at];
        if first.stage != CandidateStage::Queued {
            continue;
        }
        let equal = |car: &&&TrainCandidate| {
            car.stage == CandidateStage::Queued && car.priority == first.priority
        };
        // Whoever came long before is not passed.
        let oldest = turn[at..].iter().take_while(equal).map(|car| car.queue_number).min();
        let most = oldest.unwrap_or(first.queue_number).saturating_add(PASSED_BY_MAX);
        let best = turn[at..]
            .iter()
            .take_while(equal)
            .enumerate()
            .filter(|(_, car)| car.queue_number <= most)
            .min_by_key(|(n, car)| (counts(car), *n));
        if let Some((n, _)) = best {
            turn[at..=at + n].rotate_right(1);
        }
    }
    turn
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::id::TaskIx;
    use crate::train::Train;

    fn train(priorities: &[i64]) -> Train {
        let mut train = Train::default();
        for (t, priority) in (0u32..).zip(priorities) {
            train.enqueue(TaskIx(t), 1, "tip".into(), *priority);
        }
        train
    }

    fn order(train: &Train, clashes: &[(u64, u64)]) -> Vec<u64> {
        let clashes = clashes.iter().copied().collect();
        order_by_conflicts(train.candidates(), &clashes)
            .iter()
            .map(|car| car.queue_number)
            .collect()
    }

    #[test]
    fn among_equals_those_that_clash_with_nobody_go_first() {
        let train = train(&[0, 0, 0, 0]);
        assert_eq!(order(&train, &[]), [1, 2, 3, 4]);
        assert_eq!(order(&train, &[(1, 3)]), [2, 4, 1, 3]);
        assert_eq!(order(&train, &[(1, 2), (1, 3)]), [4, 2, 3, 1], "fewest first");
    }

    #[test]
    fn nobody_passes_whoever_matters_more_or_is_merged() {
        let mut train = train(&[5, 0, 0]);
        assert_eq!(order(&train, &[(1, 2)]), [1, 3, 2]);
        let stage =
            CandidateStage::Formed { onto: "o".into(), commit: "c".into(), tree: "t".into() };
        let second = train.candidates()[1].task;
        train.set_stage(second, stage);
        assert_eq!(order(&train, &[(2, 3)]), [1, 2, 3]);
    }

    #[test]
    fn nobody_waits_for_more_than_a_few_that_came_later() {
        let train = train(&[0; 20]);
        let turn = order(&train, &[(1, 20)]);
        let ahead = turn.iter().position(|place| *place == 1).unwrap();
        assert_eq!(ahead, 8, "{turn:?}");
    }

    #[test]
    fn what_others_have_changed_is_compared_with_what_a_task_means_to_write() {
        let piece = |task: &str, path: &str| UnlandedWork {
            task: TaskId::new(task),
            attempt: 1,
            commit: "c".into(),
            paths: vec![path.to_owned()],
        };
        let outlook = ConflictForecast {
            unlanded_work: vec![piece("T-1", "src/a.rs")],
            ..ConflictForecast::default()
        };
        let writes = |glob: &str| vec![glob.to_owned()];
        assert!(outlook.overlaps_writes(&TaskId::new("T-2"), &writes("src/**")));
        assert!(!outlook.overlaps_writes(&TaskId::new("T-1"), &writes("src/**")), "its own");
        assert!(!outlook.overlaps_writes(&TaskId::new("T-2"), &writes("docs/**")));
        assert!(
            !outlook.overlaps_writes(&TaskId::new("T-2"), &[]),
            "who says nothing overlaps with nothing"
        );
    }
}
