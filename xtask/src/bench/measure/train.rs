//! Ways of landing compared in a model of the world, ours by the product's own code; then ours against
//! one lane for real, with a gate that sleeps and one that fills the machine.

#[path = "../../../../crates/core/tests/train/model.rs"]
#[expect(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a test's model"
)]
mod model;
#[path = "../../../../crates/core/tests/train/ways.rs"]
#[expect(unreachable_pub, reason = "a test's model")]
mod ways;

use std::collections::VecDeque;
use std::time::Instant;

use model::{Conditions, Ours, Outcome, play};
use ways::{Kind, Plain};

use super::Context;
use super::scene::Scene;
use super::table::{Table, judge};
use crate::Verdict;

const SEEDS: u64 = 8;
const LANES: usize = 4;
const RATES: [f64; 6] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5];

pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let base = Conditions {
        count: 300,
        bad: 0.0,
        semantic: 0.0,
        textual: 0.0,
        flake: 0.0,
        stranger: 0.0,
        capacity: 4.0,
        lanes: LANES,
        arrivals: None,
    };
    for capacity in [4.0, 1.0] {
        println!("   landed per verification time / work per landing; {capacity} at full speed");
        let mut table = head(&RATES.map(|bad| format!("{:.0} % red", bad * 100.0)));
        for way in Way::ALL {
            let cells = RATES.map(|bad| {
                let got = mean(Conditions { bad, capacity, ..base }, way);
                format!("{:.2}/{:.2}", got.rate, got.work)
            });
            row(&mut table, way, &cells);
        }
        table.print();
    }
    println!("   pairs that break each other, landed per verification time, 5 % red");
    let pairs = [0.0005, 0.002, 0.005];
    let mut table = head(&pairs.map(|q| format!("{:.2} %", q * 100.0)));
    for way in Way::ALL {
        let one = |semantic| mean(Conditions { semantic, bad: 0.05, ..base }, way).rate;
        row(&mut table, way, &pairs.map(|q| format!("{:.2}", one(q))));
    }
    table.print();
    println!("   mean wait | 95 % wait in verification times, cars arriving, 10 % red");
    let arrivals = [0.8, 3.0, 5.0];
    let mut table = head(&arrivals.map(|rate| format!("{rate} per T")));
    for way in Way::ALL {
        row(
            &mut table,
            way,
            &arrivals.map(|rate| {
                let got = mean(Conditions { bad: 0.1, arrivals: Some(rate), ..base }, way);
                format!("{:.1}|{:.1}", got.wait, got.wait_95)
            }),
        );
    }
    table.print();
    println!("   good cars put out by gates that flake one time in twenty, 5 % red");
    let mut table = head(&["share".to_owned()]);
    for way in Way::ALL {
        let got = mean(Conditions { bad: 0.05, flake: 0.05, ..base }, way);
        row(&mut table, way, &[format!("{:.1} %", got.wronged * 100.0)]);
    }
    table.print();
    for (bad, times) in [(0.05, 5.0), (0.2, 2.5)] {
        let world = Conditions { bad, ..base };
        let ratio = mean(world, Way::Ours).rate / mean(world, Way::Serial).rate;
        judge(&format!("serial ÷ ours at {:.0} % red", bad * 100.0), 1.0 / ratio, 1.0 / times, "");
    }
    for_real(context)
}

fn head(columns: &[String]) -> Table {
    let mut words = vec![""];
    words.extend(columns.iter().map(String::as_str));
    Table::new(&words)
}

fn row(table: &mut Table, way: Way, cells: &[String]) {
    let mut words = vec![way.name().to_owned()];
    words.extend(cells.iter().cloned());
    table.row(&words);
}

fn mean(world: Conditions, way: Way) -> Outcome {
    let mut sum = Outcome::default();
    for seed in 0..SEEDS {
        let got = match way {
            Way::Serial => play(world, seed, &mut Plain::new(Kind::Serial)),
            Way::Batch => play(world, seed, &mut Plain::new(Kind::Batch(VecDeque::new()))),
            Way::Chain => play(world, seed, &mut Plain::new(Kind::Chain)),
            Way::Paths => play(world, seed, &mut Plain::new(Kind::Paths { seen: 10.0, bad: 0.5 })),
            Way::Ours => play(world, seed, &mut Ours::new(world.lanes)),
            Way::Each { lanes } => {
                let mut ours = Ours::new(lanes);
                ours.groups = false;
                play(Conditions { lanes, ..world }, seed, &mut ours)
            }
        };
        sum.rate += got.rate;
        sum.work += got.work;
        sum.wait += got.wait;
        sum.wait_95 += got.wait_95;
        sum.wronged += got.wronged;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let seeds = SEEDS as f64;
    let [rate, work, wait, wait_95, wronged] =
        [sum.rate, sum.work, sum.wait, sum.wait_95, sum.wronged].map(|all| all / seeds);
    Outcome { rate, work, wait, wait_95, wronged, ..sum }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Serial,
    Batch,
    Chain,
    Paths,
    Ours,
    /// Ours, each task a commit of its own.
    Each {
        lanes: usize,
    },
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Serial,
        Self::Batch,
        Self::Chain,
        Self::Paths,
        Self::Ours,
        Self::Each { lanes: LANES },
        Self::Each { lanes: 2 },
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Batch => "batches of 8, halved",
            Self::Chain => "chain (Zuul-like)",
            Self::Paths => "likely paths (SubmitQueue-like)",
            Self::Ours => "ours, groups",
            Self::Each { lanes: 2 } => "ours as set by default: no groups, two lanes",
            Self::Each { .. } => "ours, no groups",
        }
    }
}

/// Cars that all join the train at about the same time.
const CARS: usize = 24;
const FILLS: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done & i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; wait";

/// Lanes, groups, and how many times as fast as one lane it should be where verifications sleep.
const SETTINGS: [(u32, bool, f64); 3] = [(2, false, 1.5), (4, false, 2.5), (4, true, 3.0)];

fn for_real(context: &Context) -> Result<Verdict, String> {
    let mut table =
        Table::new(&["for real, landed per minute", "lanes", "groups", "", "÷ one lane"]);
    for (name, gate, sleeps) in
        [("a gate that sleeps 2 s", "sleep 2", true), ("a gate that fills two cores", FILLS, false)]
    {
        let one = landed_per_minute(context, gate, 1, false)?;
        table.row(&[name, "1", "no", &format!("{one:.1}"), ""].map(str::to_owned));
        for (lanes, groups, times) in SETTINGS {
            let got = landed_per_minute(context, gate, lanes, groups)?;
            let words = if groups { "yes" } else { "no" };
            let cells = [name, &lanes.to_string(), words, &format!("{got:.1}")].map(str::to_owned);
            let ratio = format!("{:.2}", got / one);
            table.row(&[&cells[..], &[ratio]].concat());
            // A machine that is full with one is as fast with more, but for what a try costs.
            let least = if sleeps { times } else { 0.95 };
            let what = format!("one lane ÷ {lanes}, groups: {words}, {name}");
            judge(&what, one / got, 1.0 / least, "");
        }
    }
    table.print();
    Ok(Verdict::Clean)
}

fn landed_per_minute(
    context: &Context,
    gate: &str,
    lanes: u32,
    groups: bool,
) -> Result<f64, String> {
    let scene = Scene::new(context, &format!("lanes-{lanes}-{groups}-{}", gate.len()))?;
    let config = format!(
        "[land]\nlanes = {lanes}\ngroups = {groups}\n[gates]\nverify = [\"{gate}\"]\n[sandbox]\nkind = \"off\"\n"
    );
    let plan: String = (0..CARS)
        .map(|n| format!("[[task]]\nid = \"T-{n}\"\nrun = \"echo {n} > {n}.txt\"\n"))
        .collect();
    let plan = scene.write("plan.toml", &format!("version = 1\n{plan}"))?;
    std::fs::write(scene.repo().join("mainstem.toml"), config)
        .map_err(|error| error.to_string())?;
    scene.commit("settings")?;
    let begun = Instant::now();
    let mut run = scene.mainstem(&["run", &plan.display().to_string(), "-j", "24"])?;
    let done = run.status().map_err(|error| error.to_string())?;
    if !done.success() {
        return Err(format!("the run ended with {done}: {}", scene.said()));
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let cars = CARS as f64;
    Ok(cars / begun.elapsed().as_secs_f64() * 60.0)
}
