//! What lands next. One lane: cars in order, each merged onto the head of the line, verified as
//! exactly that tree, landed by compare-and-swap. Knows no git and no clock.

use crate::id::{Oid, TaskIx};

/// A task's work on its way to the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Car {
    /// Whose.
    pub task: TaskIx,
    /// Which attempt.
    pub attempt: u32,
    /// What is merged.
    pub tip: Oid,
    /// Higher first.
    pub priority: i64,
    /// Boarding number: earlier first.
    pub place: u64,
    /// How far it is.
    pub stage: Stage,
}

/// How far a car is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// In the line, or to be merged onto its head.
    Queued,
    /// Merged; the train's gates look at the merge.
    Formed {
        /// What it was merged onto.
        onto: Oid,
        /// The merge.
        commit: Oid,
        /// Its tree.
        tree: Oid,
    },
    /// Verified; the branch is about to move.
    Landing {
        /// From.
        old: Oid,
        /// To.
        new: Oid,
        /// Its tree.
        tree: Oid,
    },
}

/// The line.
#[derive(Debug, Clone, Default)]
pub struct Train {
    cars: Vec<Car>,
    boarded: u64,
}

impl Train {
    /// A car joins the line.
    pub fn board(&mut self, task: TaskIx, attempt: u32, tip: Oid, priority: i64) {
        self.boarded += 1;
        let car = Car { task, attempt, tip, priority, place: self.boarded, stage: Stage::Queued };
        // The head is under way once it is merged: nobody overtakes it then.
        let under_way = usize::from(self.cars.first().is_some_and(|c| c.stage != Stage::Queued));
        let after = self.cars[under_way..].partition_point(|other| other.priority >= priority);
        self.cars.insert(under_way + after, car);
    }

    /// The car whose turn it is.
    pub fn head(&self) -> Option<&Car> {
        self.cars.first()
    }

    /// All cars in order.
    pub fn cars(&self) -> &[Car] {
        &self.cars
    }

    /// The car of this task.
    pub fn car(&self, task: TaskIx) -> Option<&Car> {
        self.cars.iter().find(|car| car.task == task)
    }

    /// Sets how far a task's car is; it is under way from then on and goes to the front.
    pub fn set(&mut self, task: TaskIx, stage: Stage) {
        if let Some(at) = self.cars.iter().position(|car| car.task == task) {
            let mut car = self.cars.remove(at);
            car.stage = stage;
            self.cars.insert(0, car);
        }
    }

    /// The plan has a new revision: tasks have new places, or none.
    pub fn renumber(&mut self, place: impl Fn(TaskIx) -> Option<TaskIx>) {
        self.cars.retain_mut(|car| match place(car.task) {
            Some(t) => {
                car.task = t;
                true
            }
            None => false,
        });
    }

    /// A task's car leaves the line.
    pub fn leave(&mut self, task: TaskIx) {
        self.cars.retain(|car| car.task != task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(train: &Train) -> Vec<u32> {
        train.cars().iter().map(|car| car.task.0).collect()
    }

    #[test]
    fn cars_go_by_priority_then_boarding_and_never_pass_the_car_under_way() {
        let mut train = Train::default();
        train.board(TaskIx(0), 1, "a".into(), 0);
        train.board(TaskIx(1), 1, "b".into(), 5);
        train.board(TaskIx(2), 1, "c".into(), 0);
        assert_eq!(order(&train), [1, 0, 2]);
        let formed = Stage::Formed { onto: "m".into(), commit: "x".into(), tree: "t".into() };
        train.set(TaskIx(1), formed);
        train.board(TaskIx(3), 1, "d".into(), 9);
        assert_eq!(order(&train), [1, 3, 0, 2]);
        train.leave(TaskIx(1));
        assert_eq!(order(&train), [3, 0, 2]);
    }
}
