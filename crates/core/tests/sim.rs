//! The machine against a hostile world, from seeds; and its rules as tables.
//!
//! `SIM_SEED=n` runs one seed, `SIM_SEEDS=n` the first n, `SIM_FAILURES=n` goes on until so
//! many have failed. A failure names its seed.
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
#[path = "sim/rules.rs"]
mod rules;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/drive.rs"]
mod drive;
#[path = "sim/perform.rs"]
mod perform;
#[path = "sim/lab.rs"]
mod lab;
#[path = "sim/phase_table.rs"]
mod phase_table;
#[path = "sim/policy_table.rs"]
mod policy_table;
#[path = "sim/room_table.rs"]
mod room_table;
#[path = "sim/schedule_table.rs"]
mod schedule_table;
#[path = "sim/approval_table.rs"]
mod approval_table;
#[path = "sim/money_table.rs"]
mod money_table;
#[path = "sim/provider_table.rs"]
mod provider_table;
#[path = "sim/flow.rs"]
mod flow;
#[path = "sim/kept.rs"]
mod kept;
#[path = "sim/clashes.rs"]
mod clashes;
#[path = "sim/pulls.rs"]
mod pulls;
#[path = "sim/stacks.rs"]
mod stacks;
#[path = "sim/holds.rs"]
mod holds;
#[path = "sim/inbox.rs"]
mod inbox;
#[path = "sim/pushes.rs"]
mod pushes;

use std::ops::Range;
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

/// Runs seeds until they are through or too many failed, and says how many steps that took.
fn run(seeds: Range<u64>, coverage: &mut cover::Coverage) -> u64 {
    let (mut steps, mut failures) = (0, Vec::new());
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| drive::run(seed, coverage)));
        match run {
            Ok(taken) => steps += taken,
            Err(cause) => failures.push(format!("SIM_SEED={seed}: {}", words_of(&*cause))),
        }
        if failures.len() as u64 >= number("SIM_FAILURES").unwrap_or(1) {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    steps
}

#[test]
fn a_hostile_world_breaks_no_promise_and_every_legal_move_is_walked() {
    let mut coverage = cover::Coverage::default();
    if let Some(seed) = number("SIM_SEED") {
        run(seed..seed + 1, &mut coverage);
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let mut end = seeds;
    let mut steps = run(0..seeds, &mut coverage);
    // The rarest moves need luck: a few more seeds before they count as never walked.
    while !coverage.missing().is_empty() && end < seeds * 4 {
        steps += run(end..end + 100, &mut coverage);
        end += 100;
    }
    println!("{end} seeds, {steps} steps; rarest moves: {:#?}", coverage.rarest(8));
    let missing = coverage.missing();
    assert!(missing.is_empty(), "legal moves that no seed walked: {missing:#?}");
}
