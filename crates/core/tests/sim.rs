//! The machine against a hostile world, from seeds; and its rules as tables.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` the first n. A failure names its seed.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "modules of one test program")]

#[path = "sim/rng.rs"]
mod rng;
#[path = "sim/setup.rs"]
mod setup;
#[path = "sim/cover.rs"]
mod cover;
#[path = "sim/world.rs"]
mod world;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/drive.rs"]
mod drive;
#[path = "sim/lab.rs"]
mod lab;
#[path = "sim/phase_table.rs"]
mod phase_table;
#[path = "sim/policy_table.rs"]
mod policy_table;
#[path = "sim/schedule_table.rs"]
mod schedule_table;
#[path = "sim/flow.rs"]
mod flow;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A few seconds without optimisation; more with `SIM_SEEDS`.
const SEEDS: u64 = 1_200;

#[expect(clippy::disallowed_methods, reason = "the seed is chosen by whoever runs the test")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn words_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

#[test]
fn a_hostile_world_breaks_no_promise_and_every_legal_move_is_walked() {
    let one = number("SIM_SEED");
    let seeds = one.map_or(0..number("SIM_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let mut coverage = cover::Coverage::default();
    let (mut steps, mut failures) = (0, Vec::new());
    for seed in seeds.clone() {
        let run = catch_unwind(AssertUnwindSafe(|| drive::run(seed, &mut coverage)));
        match run {
            Ok(taken) => steps += taken,
            Err(cause) => failures.push(format!("SIM_SEED={seed}: {}", words_of(&*cause))),
        }
        if failures.len() as u64 >= number("SIM_FAILURES").unwrap_or(1) {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!("{} seeds, {steps} steps", seeds.end - seeds.start);
    println!("rarest: {:#?}", coverage.rarest(12));
    if one.is_none() {
        let missing = coverage.missing();
        assert!(missing.is_empty(), "legal moves that no seed walked: {missing:#?}");
    }
}
