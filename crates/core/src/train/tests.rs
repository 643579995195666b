#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn order(train: &Train) -> Vec<u32> {
    train.candidates().iter().map(|car| car.task.0).collect()
}

#[test]
fn cars_go_by_priority_then_arrival_and_never_pass_the_car_under_way() {
    let mut train = Train::default();
    train.enqueue(TaskIx(0), 1, "a".into(), 0);
    train.enqueue(TaskIx(1), 1, "b".into(), 5);
    train.enqueue(TaskIx(2), 1, "c".into(), 0);
    assert_eq!(order(&train), [1, 0, 2]);
    let formed = CandidateStage::Formed { onto: "m".into(), commit: "x".into(), tree: "t".into() };
    train.set_stage(TaskIx(1), formed);
    train.enqueue(TaskIx(3), 1, "d".into(), 9);
    assert_eq!(order(&train), [1, 3, 0, 2]);
    train.remove_candidate(TaskIx(1));
    assert_eq!(order(&train), [3, 0, 2]);
}

#[test]
fn a_car_that_was_passed_often_is_passed_no_more() {
    let mut train = Train::default();
    train.enqueue(TaskIx(0), 1, "a".into(), 0);
    for n in 1..=20 {
        train.enqueue(TaskIx(n), 1, "b".into(), 5);
    }
    let at = order(&train).iter().position(|t| *t == 0).unwrap();
    assert_eq!(at, usize::try_from(PASSED_BY_MAX).unwrap());
}

#[test]
fn a_bad_group_is_halved_and_a_good_one_is_vetted() {
    let mut train = Train::default();
    let tasks: Vec<TaskIx> = (0..5).map(TaskIx).collect();
    for t in &tasks {
        train.enqueue(*t, 1, "a".into(), 0);
    }
    train.record_verdict(&tasks, false, false);
    let cells: Vec<_> = train.candidates().iter().map(|car| car.cell).collect();
    assert_eq!(cells, [Some(1), Some(1), Some(1), Some(2), Some(2)]);
    train.record_verdict(&tasks[3..], true, false);
    let vetted: Vec<_> = train.candidates().iter().map(|car| car.passed_trial).collect();
    assert_eq!(vetted, [false, false, false, true, true]);
}

#[test]
fn groups_grow_where_cars_are_good_and_shrink_where_they_are_bad() {
    let mut rate = BadCandidateRate::default();
    assert_eq!(rate.best_group_size(), 6);
    rate.seen = 1_000;
    assert_eq!(rate.best_group_size(), GROUP_MAX);
    rate.bad = 500;
    assert_eq!(rate.best_group_size(), 1);
}

#[test]
fn a_verdict_counts_only_for_the_same_tree_gates_and_tools() {
    let mut train = Train::default();
    let gates = ["test".to_owned(), "lint".to_owned()];
    train.record_passed_gate(&"t".into(), "test", "one");
    assert!(!train.have_gates_passed(&"t".into(), &gates, "one"));
    train.record_passed_gate(&"t".into(), "lint", "one");
    assert!(train.have_gates_passed(&"t".into(), &gates, "one"));
    assert!(!train.have_gates_passed(&"t".into(), &gates, "two"));
    assert!(!train.have_gates_passed(&"u".into(), &gates, "one"));
}

#[test]
fn those_that_land_together_are_told_in_the_order_of_their_merges() {
    let mut train = Train::default();
    for n in 0..3 {
        train.enqueue(TaskIx(n), 1, "a".into(), 0);
    }
    let landing = |onto: &str, commit: &str| CandidateStage::Landing {
        old: "main".into(),
        new: "all".into(),
        tree: "t".into(),
        onto: onto.into(),
        commit: commit.into(),
    };
    train.set_stage(TaskIx(2), landing("main", "x"));
    train.set_stage(TaskIx(0), landing("x", "y"));
    train.set_stage(TaskIx(1), landing("y", "z"));
    let told = |train: &Train| train.landing_candidates().map(|car| car.task.0).collect::<Vec<_>>();
    assert_eq!(told(&train), [2, 0, 1]);
    // The first was told before we died.
    train.remove_candidate(TaskIx(2));
    assert_eq!(told(&train), [0, 1]);
}
