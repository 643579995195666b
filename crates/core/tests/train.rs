//! The train's policy against a model of the world: nothing bad lands, everything good lands in the
//! end, and it never stands still.

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "train/model.rs"]
#[expect(unreachable_pub, dead_code, reason = "the bench uses the rest")]
mod model;

use model::{Conditions, Dice, Ours, play};

fn conditions() -> Conditions {
    Conditions {
        count: 60,
        bad: 0.1,
        semantic: 0.0,
        textual: 0.0,
        flake: 0.0,
        stranger: 0.0,
        capacity: 4.0,
        lanes: 4,
        arrivals: None,
    }
}

#[test]
fn nothing_bad_lands_and_everything_good_does_whatever_the_world_is_like() {
    for seed in 0..600 {
        let mut dice = Dice::new(seed);
        let mut pick = |of: &[f64]| of[(dice.next() % of.len() as u64) as usize];
        let world = Conditions {
            count: pick(&[1.0, 2.0, 5.0, 20.0, 60.0]) as u32,
            bad: pick(&[0.0, 0.05, 0.2, 0.5, 1.0]),
            semantic: pick(&[0.0, 0.0, 0.002, 0.02]),
            textual: pick(&[0.0, 0.0, 0.01, 0.1]),
            flake: pick(&[0.0, 0.0, 0.1]),
            stranger: pick(&[0.0, 0.0, 0.1]),
            capacity: pick(&[1.0, 2.0, 4.0]),
            lanes: pick(&[1.0, 2.0, 3.0, 4.0, 8.0]) as usize,
            arrivals: Some(pick(&[0.3, 1.0, 4.0, 1e6])),
        };
        // That nothing bad lands, and that it ends, is asserted by the model itself.
        let mut ours = Ours::new(world.lanes);
        ours.groups = !dice.next().is_multiple_of(3);
        let outcome = play(world, seed, &mut ours);
        if world.flake == 0.0 && world.semantic == 0.0 {
            assert_eq!(outcome.wronged, 0.0, "seed {seed}: a good car was put out: {world:?}");
        }
    }
}

#[test]
fn one_lane_goes_one_by_one() {
    let world = Conditions { lanes: 1, bad: 0.0, ..conditions() };
    let outcome = play(world, 1, &mut Ours::new(1));
    assert_eq!((outcome.landed, outcome.runs), (60, 60));
}

#[test]
fn four_independent_lanes_are_far_faster_than_one() {
    for (bad, times) in [(0.05, 5.0), (0.2, 2.5)] {
        let many = Conditions { count: 300, bad, ..conditions() };
        let one = Conditions { lanes: 1, ..many };
        let mean = |world: Conditions| -> f64 {
            (0..4).map(|seed| play(world, seed, &mut Ours::new(world.lanes)).rate).sum::<f64>()
                / 4.0
        };
        let (ours, serial) = (mean(many), mean(one));
        assert!(ours > times * serial, "{bad}: {ours:.2} against {serial:.2}");
    }
}

#[test]
fn a_machine_that_one_run_fills_is_never_slower_than_one_lane() {
    for bad in [0.0, 0.05, 0.2, 0.5] {
        let many = Conditions { count: 200, bad, capacity: 1.0, ..conditions() };
        let one = Conditions { lanes: 1, ..many };
        let mean = |world: Conditions| -> f64 {
            (0..4).map(|seed| play(world, seed, &mut Ours::new(world.lanes)).rate).sum::<f64>()
                / 4.0
        };
        let (ours, serial) = (mean(many), mean(one));
        assert!(ours > 0.95 * serial, "{bad}: {ours:.2} against {serial:.2}");
    }
}
