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
#[path = "train/ways.rs"]
#[expect(unreachable_pub, dead_code, reason = "the bench uses the rest")]
mod ways;

use model::{Conditions, Dice, Ours, Strategy, play};
use ways::{Kind, Plain};

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
fn many_lanes_are_never_behind_a_chain_nor_behind_one_lane() {
    let mean = |world: Conditions, new: &dyn Fn() -> Box<dyn Strategy>| -> f64 {
        (0..4).map(|seed| play(world, seed, &mut *new()).rate).sum::<f64>() / 4.0
    };
    let worlds = [(0.05, 0.0), (0.2, 0.0), (0.3, 0.0), (0.5, 0.0), (0.05, 0.002), (0.05, 0.005)];
    for (bad, semantic) in worlds {
        for capacity in [4.0, 1.0] {
            let world = Conditions { count: 300, bad, semantic, capacity, ..conditions() };
            let ours = mean(world, &|| Box::new(Ours::new(4)));
            let serial = mean(world, &|| Box::new(Plain::new(Kind::Serial)));
            let chain = mean(world, &|| Box::new(Plain::new(Kind::Chain)));
            let best = serial.max(chain);
            let what = format!("{bad} red, {semantic} of pairs, {capacity} at full speed");
            assert!(ours > 0.93 * best, "{what}: {ours:.2} against {best:.2}");
        }
    }
}

#[test]
fn a_machine_that_one_run_fills_is_hardly_slower_than_one_lane() {
    for groups in [true, false] {
        for bad in [0.0, 0.05, 0.2, 0.3, 0.5] {
            let many = Conditions { count: 200, bad, capacity: 1.0, ..conditions() };
            let mean = |lanes: usize| -> f64 {
                let world = Conditions { lanes, ..many };
                let one = |seed| {
                    let mut ours = Ours::new(lanes);
                    ours.groups = groups;
                    play(world, seed, &mut ours).rate
                };
                (0..4).map(one).sum::<f64>() / 4.0
            };
            let (ours, serial) = (mean(4), mean(1));
            assert!(ours > 0.96 * serial, "{bad}: {ours:.2} against {serial:.2}");
        }
    }
}
