//! How long random heavy-tailed graphs take, in virtual time, over the best that any schedule could do.
//!
//! "Ours" and "waves" are the product's own machine, without and with `barrier = "level"`. Two lists that know no machine
//! stand beside them: one that knows every length in advance, and a plain queue.

use mainstem_core::config::{ScheduleBarrier, Settings};
use mainstem_core::plan::TaskEffort;

use super::Context;
use super::graphs::{GraphShape, Law, Work};
use super::scene::default_settings;
use super::table::{Sample, Table, judge};
use super::timeline::Timeline;
use crate::Verdict;

const SEEDS: u64 = 30;
const TASKS: [usize; 3] = [40, 100, 200];
const NEEDS: [f64; 4] = [0.0, 0.7, 1.5, 3.0];
const SLOTS: [u32; 2] = [6, 16];
const TARGET: f64 = 1.05;

/// Ratios of one way to schedule, with the slots and needs they were measured for.
struct Way {
    name: &'static str,
    ratios: Vec<(u32, f64, f64)>,
}

/// Prints quantiles of makespan ÷ lower bound for every way.
pub(super) fn run(_: &Context) -> Result<Verdict, String> {
    let mut settings = default_settings()?;
    settings.snapshot_every_ms = 0;
    let names = [
        "ours, effort by thirds",
        "ours, longest tenth is large",
        "ours, no effort given",
        "waves, effort by thirds",
        "waves, no effort given",
        "list that knows all lengths",
        "plain queue",
    ];
    let mut ways = names.map(|name| Way { name, ratios: Vec::new() });
    for slots in SLOTS {
        for shape in shapes() {
            let work = Work::random(&shape);
            let efforts = work.efforts([1.0 / 3.0, 2.0 / 3.0]);
            let tenth = work.efforts([0.5, 0.9]);
            let bound = work.bound_ms(slots) as f64;
            let ours = |barrier, efforts| simulate(&settings, &work, slots, barrier, efforts);
            let spans = [
                ours(ScheduleBarrier::None, Some(efforts.as_slice()))?,
                ours(ScheduleBarrier::None, Some(tenth.as_slice()))?,
                ours(ScheduleBarrier::None, None)?,
                ours(ScheduleBarrier::Level, Some(efforts.as_slice()))?,
                ours(ScheduleBarrier::Level, None)?,
                work.list_ms(slots, &work.ms),
                work.fifo_ms(slots),
            ];
            for (way, span) in ways.iter_mut().zip(spans) {
                way.ratios.push((slots, shape.needs, span as f64 / bound));
            }
        }
    }
    print(&ways);
    Ok(Verdict::Clean)
}

fn shapes() -> Vec<GraphShape> {
    let mut shapes = Vec::new();
    for law in [Law::Pareto, Law::LogNormal] {
        for (n, tasks) in TASKS.into_iter().enumerate() {
            for needs in NEEDS {
                for seed in 0..SEEDS {
                    let seed = seed * 10 + n as u64;
                    shapes.push(GraphShape { seed, tasks, needs, law, typical_ms: 60_000.0 });
                }
            }
        }
    }
    shapes
}

fn simulate(
    settings: &Settings,
    work: &Work,
    slots: u32,
    barrier: ScheduleBarrier,
    efforts: Option<&[TaskEffort]>,
) -> Result<u64, String> {
    let mut settings = settings.clone();
    settings.run.jobs = slots;
    settings.schedule.barrier = barrier;
    let mut timeline = Timeline::new(&settings, work.plan(efforts), &work.ms, false);
    timeline.begin();
    while timeline.go_on(10_000) {}
    match timeline.machine.rest_reason() {
        Some(mainstem_core::machine::RestReason::Done) => Ok(timeline.makespan_ms()),
        other => Err(format!("a simulated run ended with {other:?}")),
    }
}

fn print(ways: &[Way]) {
    let mut table = Table::new(&[
        "makespan ÷ lower bound",
        "slots",
        "median",
        "p95",
        "worst",
        "≤ 1.05",
        "≤ 1.10",
    ]);
    for slots in SLOTS {
        for way in ways {
            let sample = sample(way, |s, _| s == slots);
            table.row(&row(way.name, slots, &sample));
        }
    }
    table.print();
    let mut by_needs = Table::new(&["median and p95 by needs per task", "0", "0.7", "1.5", "3"]);
    for way in ways {
        let cell = |needs: &f64| {
            let sample = sample(way, |_, n| n == *needs);
            format!("{:.3} {:.3}", sample.median(), sample.quantile(0.95))
        };
        let mut cells = vec![way.name.to_owned()];
        cells.extend(NEEDS.iter().map(cell));
        by_needs.row(&cells);
    }
    by_needs.print();
    let all = |way: &Way| sample(way, |_, _| true);
    judge("median of ours, effort by thirds", all(&ways[0]).median(), TARGET, "");
    judge("p95 of ours, effort by thirds", all(&ways[0]).quantile(0.95), TARGET, "");
    judge("p95 of ours, longest tenth is large", all(&ways[1]).quantile(0.95), TARGET, "");
    judge("p95 of a list that knows all lengths", all(&ways[5]).quantile(0.95), TARGET, "");
    println!("   {} graphs per line", all(&ways[0]).len() / SLOTS.len());
}

fn sample(way: &Way, wanted: impl Fn(u32, f64) -> bool) -> Sample {
    let chosen = way.ratios.iter().filter(|(slots, needs, _)| wanted(*slots, *needs));
    Sample::new(chosen.map(|(_, _, ratio)| *ratio).collect())
}

fn row(name: &str, slots: u32, sample: &Sample) -> Vec<String> {
    let percent = |limit: f64| format!("{:.0} %", 100.0 * sample.share_within(limit));
    vec![
        name.to_owned(),
        slots.to_string(),
        format!("{:.3}", sample.median()),
        format!("{:.3}", sample.quantile(0.95)),
        format!("{:.3}", sample.worst()),
        percent(1.05),
        percent(1.10),
    ]
}
