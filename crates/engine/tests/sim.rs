//! The engine's own loop against a simulated machine: host, clock, people and a journal that fails, all
//! from one seed. Neither threads nor files nor processes; what is real is the driver, its queue, the
//! core, the ledger and the agents' adapters.
//!
//! `ENGINE_SIM_SEED=n` runs one seed and prints its trace, `ENGINE_SIM_SEEDS=n` sets how many are run,
//! `ENGINE_SIM_FIRST=n` where they begin. A failure names its seed and ends with its trace.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(unreachable_pub, reason = "modules of one test program")]

#[path = "../../core/tests/sim/rng.rs"]
mod rng;
#[path = "../../core/tests/sim/rules.rs"]
mod rules;
#[expect(dead_code, reason = "the core's tables use the rest")]
#[path = "../../core/tests/sim/setup.rs"]
mod setup;
#[path = "sim/agent.rs"]
mod agent;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/faults.rs"]
mod faults;
#[path = "sim/git.rs"]
mod git;
#[path = "sim/host.rs"]
mod host;
#[path = "sim/life.rs"]
mod life;
#[path = "sim/people.rs"]
mod people;
#[path = "sim/record.rs"]
mod record;
#[path = "sim/train.rs"]
mod train;
#[path = "sim/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Some ten seconds on a slow machine; more with `ENGINE_SIM_SEEDS`.
const SEEDS: u64 = 4_000;
/// Seeds that are run twice and compared.
const TWICE: u64 = 150;
/// Lines of a failing seed's trace that are shown.
const TRACE_SHOWN: usize = 400;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn words_of(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

/// Runs one seed; a failure is told with the seed and the end of its trace.
fn attempt(seed: u64) -> Result<life::Report, String> {
    catch_unwind(|| life::run(seed, None)).map_err(|cause| {
        // The same seed takes the same way: once more, to see it.
        let seen = world::Trace::default();
        let _ = catch_unwind(AssertUnwindSafe(|| life::run(seed, Some(seen.clone()))));
        let trace = seen.lock().unwrap();
        let from = trace.len().saturating_sub(TRACE_SHOWN);
        format!("{}\nENGINE_SIM_SEED={seed}: {}", trace[from..].join("\n"), words_of(&*cause))
    })
}

#[test]
fn an_engine_in_a_hostile_world_breaks_no_promise() {
    let (first, count) = match number("ENGINE_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => {
            (number("ENGINE_SIM_FIRST").unwrap_or(0), number("ENGINE_SIM_SEEDS").unwrap_or(SEEDS))
        }
    };
    let failures_max = number("ENGINE_SIM_FAILURES").unwrap_or(1);
    if count > 1 {
        // A failing seed is told once, at the end.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let began = Instant::now();
    let (next, turns, lives) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let failures = std::sync::Mutex::new(Vec::new());
    let faults = std::sync::Mutex::new(faults::Tally::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || failures.lock().unwrap().len() as u64 >= failures_max {
                return;
            }
            match attempt(seed) {
                Ok(report) => {
                    turns.fetch_add(report.turns, Ordering::Relaxed);
                    lives.fetch_add(report.lives, Ordering::Relaxed);
                    faults.lock().unwrap().add(&report.tally);
                }
                Err(story) => failures.lock().unwrap().push(story),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, Into::into) {
            scope.spawn(work);
        }
    });
    let _ = std::panic::take_hook();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {} lives, {} turns in {seconds:.1} s ({:.0} seeds a second)\n{}",
        lives.into_inner(),
        turns.into_inner(),
        count as f64 / seconds,
        faults.into_inner().unwrap(),
    );
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_same_seed_gives_the_same_journal_and_the_same_trace_byte_for_byte() {
    for seed in 1_000_000..1_000_000 + TWICE {
        let (once, again) = (world::Trace::default(), world::Trace::default());
        let journals = (life::run(seed, Some(once.clone())), life::run(seed, Some(again.clone())));
        let (once, again) = (once.lock().unwrap(), again.lock().unwrap());
        assert!(once.len() > 10, "a trace worth the name");
        assert_eq!(*once, *again, "the traces of seed {seed} differ");
        assert_eq!(journals.0.journal, journals.1.journal, "the journals of seed {seed} differ");
    }
}
