//! Random work with heavy-tailed lengths: its bounds, and what plain list scheduling makes of it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use mainstem_core::id::TaskId;
use mainstem_core::plan::{Plan, Task, TaskEffort};

/// A small generator of random numbers (splitmix): the same seed, the same work, on every machine.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which must not be zero.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number above 0 and up to 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number around 0 as a bell has it.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How lengths are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Law {
    /// A power law with exponent 1.5, cut at twenty times a typical task.
    Pareto,
    /// The logarithm is a bell of width 1: one task in a hundred is ten times the typical one.
    LogNormal,
}

/// What random work looks like.
#[derive(Debug, Clone, Copy)]
pub(super) struct GraphShape {
    /// Same seed, same work.
    pub(super) seed: u64,
    pub(super) tasks: usize,
    /// Needs per task, on average.
    pub(super) needs: f64,
    /// How lengths are spread.
    pub(super) law: Law,
    /// Length of a typical task.
    pub(super) typical_ms: f64,
}

/// Tasks with known lengths. A task's place here is its place in the plan, which tells nothing of the order of work.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// Length of each task.
    pub(super) ms: Vec<u64>,
    /// What each task needs.
    pub(super) needs: Vec<Vec<usize>>,
    /// All tasks, each after what it needs.
    order: Vec<usize>,
}

impl Work {
    pub(super) fn random(shape: &GraphShape) -> Self {
        let mut rng = Rng::new(shape.seed);
        let count = shape.tasks;
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, rng.below(at + 1));
        }
        let mut needs = vec![Vec::new(); count];
        let whole = shape.needs.floor();
        for (at, task) in order.iter().enumerate().skip(1) {
            let more = usize::from(rng.unit() < shape.needs - whole);
            let wanted: BTreeSet<usize> =
                (0..whole as usize + more).map(|_| order[rng.below(at)]).collect();
            needs[*task] = wanted.into_iter().collect();
        }
        let length = |rng: &mut Rng| match shape.law {
            Law::Pareto => rng.unit().powf(-1.0 / 1.5).min(20.0),
            Law::LogNormal => rng.normal().exp(),
        };
        let ms =
            (0..count).map(|_| (shape.typical_ms * length(&mut rng)).max(1.0) as u64).collect();
        Self { ms, needs, order }
    }

    /// The longest chain of lengths, from each task on.
    fn tails(&self, weight: &[u64]) -> Vec<u64> {
        let mut tails = vec![0; weight.len()];
        for task in self.order.iter().rev() {
            // Everything that needs it has added itself by now.
            tails[*task] += weight[*task];
            for need in &self.needs[*task] {
                tails[*need] = tails[*need].max(tails[*task]);
            }
        }
        tails
    }

    /// No schedule is shorter.
    pub(super) fn bound_ms(&self, slots: u32) -> u64 {
        bound_ms(&self.ms, &self.needs_in_order(), slots)
    }

    /// Every task after what it needs, with that.
    pub(super) fn needs_in_order(&self) -> Vec<(usize, &[usize])> {
        self.order.iter().map(|task| (*task, self.needs[*task].as_slice())).collect()
    }

    /// How long list scheduling takes that knows everything at once: whenever a slot is free, the ready task with the
    /// longest way behind it starts.
    pub(super) fn list_ms(&self, slots: u32, weight: &[u64]) -> u64 {
        self.run_ms(slots, &self.tails(weight))
    }

    /// The same in the plan's order, as a plain queue of ready tasks would have it.
    pub(super) fn fifo_ms(&self, slots: u32) -> u64 {
        self.run_ms(slots, &vec![0; self.ms.len()])
    }

    fn run_ms(&self, slots: u32, rank: &[u64]) -> u64 {
        let mut dependents = vec![Vec::new(); self.ms.len()];
        let mut unmet: Vec<usize> = self.needs.iter().map(Vec::len).collect();
        for (task, needs) in self.needs.iter().enumerate() {
            needs.iter().for_each(|need| dependents[*need].push(task));
        }
        let key = |task: usize| (rank[task], Reverse(task));
        let mut ready: BinaryHeap<_> =
            (0..unmet.len()).filter(|task| unmet[*task] == 0).map(key).collect();
        let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut now = 0;
        loop {
            while running.len() < slots as usize
                && let Some((_, Reverse(task))) = ready.pop()
            {
                running.push(Reverse((now + self.ms[task], task)));
            }
            let Some(Reverse((at, task))) = running.pop() else { return now };
            now = at;
            for next in &dependents[task] {
                unmet[*next] -= 1;
                if unmet[*next] == 0 {
                    ready.push(key(*next));
                }
            }
        }
    }

    /// Small, medium or large by their true lengths; the two shares say where medium and large begin.
    pub(super) fn efforts(&self, cuts: [f64; 2]) -> Vec<TaskEffort> {
        let mut sorted = self.ms.clone();
        sorted.sort_unstable();
        let [one, two] = cuts.map(|share| sorted[(sorted.len() as f64 * share) as usize]);
        let effort = |ms: &u64| match *ms {
            ms if ms < one => TaskEffort::Small,
            ms if ms < two => TaskEffort::Medium,
            _ => TaskEffort::Large,
        };
        self.ms.iter().map(effort).collect()
    }

    /// The work as a plan; without efforts all tasks are medium.
    pub(super) fn plan(&self, efforts: Option<&[TaskEffort]>) -> Plan {
        let task = |at: usize| Task {
            id: id(at),
            needs: self.needs[at].iter().map(|need| id(*need)).collect(),
            effort: efforts.map_or(TaskEffort::Medium, |efforts| efforts[at]),
            ..Task::empty()
        };
        Plan { tasks: (0..self.ms.len()).map(task).collect(), ..Plan::default() }
    }
}

pub(super) fn id(at: usize) -> TaskId {
    TaskId::new(format!("T-{at:05}"))
}

/// The longer of the critical path and the work divided by the slots. `order` names each task after what it needs.
pub(super) fn bound_ms(ms: &[u64], order: &[(usize, &[usize])], slots: u32) -> u64 {
    let mut ends = vec![0; ms.len()];
    for (task, needs) in order {
        let start = needs.iter().map(|need| ends[*need]).max().unwrap_or(0);
        ends[*task] = start + ms[*task];
    }
    let path = ends.into_iter().max().unwrap_or(0);
    path.max(ms.iter().sum::<u64>().div_ceil(u64::from(slots.max(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Work {
        // 3 needs 1 and 2, which need 0.
        let needs = vec![vec![], vec![0], vec![0], vec![1, 2]];
        Work { ms: vec![2, 10, 3, 4], needs, order: vec![0, 1, 2, 3] }
    }

    #[test]
    fn bounds_and_tails_follow_the_longest_chain() {
        let work = diamond();
        assert_eq!(work.tails(&work.ms), [16, 14, 7, 4]);
        assert_eq!([1, 2].map(|slots| work.bound_ms(slots)), [19, 16]);
        assert_eq!([1, 2].map(|slots| work.list_ms(slots, &work.ms)), [19, 16]);
    }

    #[test]
    fn knowing_the_lengths_is_never_needed_when_there_is_a_slot_for_everybody() {
        let shape =
            GraphShape { seed: 3, tasks: 60, needs: 1.5, law: Law::Pareto, typical_ms: 1_000.0 };
        let work = Work::random(&shape);
        assert_eq!(work.fifo_ms(60), work.bound_ms(60));
        assert!(work.list_ms(4, &work.ms) >= work.bound_ms(4));
        assert_eq!(work.ms, Work::random(&shape).ms, "the same seed, the same work");
    }

    #[test]
    fn efforts_follow_the_lengths() {
        let shape =
            GraphShape { seed: 1, tasks: 90, needs: 0.0, law: Law::LogNormal, typical_ms: 1e6 };
        let work = Work::random(&shape);
        for (cuts, counts) in [([1.0 / 3.0, 2.0 / 3.0], [30, 30, 30]), ([0.5, 0.9], [45, 36, 9])] {
            let efforts = work.efforts(cuts);
            let count = |wanted| efforts.iter().filter(|effort| **effort == wanted).count();
            assert_eq!(
                [TaskEffort::Small, TaskEffort::Medium, TaskEffort::Large].map(count),
                counts
            );
        }
    }
}
