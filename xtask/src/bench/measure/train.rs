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

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use model::{CarNo, Conditions, Move, Ours, Out, Outcome, Strategy, Truth, play};

use super::Context;
use super::scene::Scene;
use super::table::{Table, judge};
use crate::Verdict;

const SEEDS: u64 = 8;
const LANES: usize = 4;
const RATES: [f64; 6] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5];

/// Prints the tables.
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
}

impl Way {
    const ALL: [Self; 5] = [Self::Serial, Self::Batch, Self::Chain, Self::Paths, Self::Ours];

    fn name(self) -> &'static str {
        match self {
            Self::Serial => "serial",
            Self::Batch => "batches of 8, halved",
            Self::Chain => "chain (Zuul-like)",
            Self::Paths => "likely paths (SubmitQueue-like)",
            Self::Ours => "ours",
        }
    }
}

enum Kind {
    Serial,
    /// Batches that were halved, to be tried first.
    Batch(VecDeque<Vec<CarNo>>),
    Chain,
    Paths {
        seen: f64,
        bad: f64,
    },
}

/// The ways of others, as far as a model needs them: what to verify on the branch as it stands, and what is
/// known of it.
struct Plain {
    kind: Kind,
    waiting: Vec<CarNo>,
    base: usize,
    verdicts: BTreeMap<Vec<CarNo>, bool>,
}

impl Plain {
    fn new(kind: Kind) -> Self {
        Self { kind, waiting: Vec::new(), base: 0, verdicts: BTreeMap::new() }
    }

    /// The lines to verify, the first of which decides what lands or leaves.
    fn lines(&mut self, lanes: usize) -> Vec<Vec<CarNo>> {
        let waiting = &self.waiting;
        match &mut self.kind {
            Kind::Serial => vec![waiting[..1].to_vec()],
            Kind::Batch(halves) => {
                halves.retain(|half| half.iter().all(|car| waiting.contains(car)));
                let fresh = || waiting[..waiting.len().min(8)].to_vec();
                vec![halves.front().cloned().unwrap_or_else(fresh)]
            }
            Kind::Chain => {
                let mut line: Vec<CarNo> = Vec::new();
                let mut lines: Vec<Vec<CarNo>> = Vec::new();
                for car in waiting {
                    line.push(*car);
                    lines.push(line.clone());
                    match self.verdicts.get(&line) {
                        Some(false) => drop(line.pop()),
                        Some(true) => {}
                        None if lines
                            .iter()
                            .filter(|l| !self.verdicts.contains_key(*l))
                            .count()
                            == lanes =>
                        {
                            break;
                        }
                        None => {}
                    }
                }
                lines
            }
            Kind::Paths { seen, bad } => {
                let good = 1.0 - *bad / *seen;
                let mut paths: Vec<(f64, Vec<CarNo>)> = vec![(1.0, Vec::new())];
                let mut lines: Vec<(f64, Vec<CarNo>)> = Vec::new();
                for car in waiting.iter().take(8) {
                    let mut next = Vec::new();
                    for (chance, path) in &paths {
                        let with: Vec<CarNo> = path.iter().chain([car]).copied().collect();
                        lines.push((*chance, with.clone()));
                        let known = self.verdicts.get(&with);
                        let share = known.map_or(good, |good| f64::from(u8::from(*good)));
                        next.push((chance * share, with));
                        next.push((chance * (1.0 - share), path.clone()));
                    }
                    next.retain(|(chance, _)| *chance > 0.01);
                    paths = next;
                }
                lines.sort_by(|a, b| b.0.total_cmp(&a.0));
                let open = lines.into_iter().map(|(_, line)| line);
                let first = waiting[..1].to_vec();
                let rest = open.filter(|line| *line != first && !self.verdicts.contains_key(line));
                std::iter::once(first.clone()).chain(rest.take(lanes)).collect()
            }
        }
    }
}

impl Strategy for Plain {
    fn arrives(&mut self, car: CarNo) {
        self.waiting.push(car);
    }

    fn next(&mut self, truth: &Truth, _: f64) -> Move {
        self.base = truth.main.len();
        if self.waiting.is_empty() {
            return Move::default();
        }
        let lanes = truth.conditions.lanes;
        let lines = self.lines(lanes);
        let first = lines[0].clone();
        match self.verdicts.get(&first) {
            Some(true) => Move { land: Some((self.base, first)), ..Move::default() },
            Some(false) if first.len() == 1 => {
                Move { out: Some((first[0], Out::Red)), ..Move::default() }
            }
            Some(false) => {
                let (front, back) = first.split_at(first.len() / 2);
                if let Kind::Batch(halves) = &mut self.kind {
                    halves.pop_front_if(|half| *half == first);
                    halves.push_front(back.to_vec());
                    halves.push_front(front.to_vec());
                }
                self.next(truth, 0.0)
            }
            None => {
                let open = lines.into_iter().filter(|line| !self.verdicts.contains_key(line));
                Move {
                    run: open.take(lanes).map(|line| (self.base, line)).collect(),
                    ..Move::default()
                }
            }
        }
    }

    fn judged(&mut self, _: usize, cars: &[CarNo], good: bool, _: f64) {
        self.verdicts.insert(cars.to_vec(), good);
    }

    fn landed(&mut self, cars: &[CarNo], _: f64) {
        self.waiting.retain(|car| !cars.contains(car));
        let verdicts = std::mem::take(&mut self.verdicts).into_iter();
        let rest = verdicts.filter(|(line, _)| line.len() > cars.len() && line.starts_with(cars));
        self.verdicts = rest.map(|(line, good)| (line[cars.len()..].to_vec(), good)).collect();
        if let Kind::Paths { seen, .. } = &mut self.kind {
            *seen += 1.0;
        }
    }

    fn left(&mut self, car: CarNo) {
        self.waiting.retain(|other| *other != car);
        self.verdicts.retain(|line, _| !line.contains(&car));
        if let Kind::Paths { seen, bad } = &mut self.kind {
            *seen += 1.0;
            *bad += 1.0;
        }
    }

    fn refused(&mut self, _: f64) {}
}

/// Cars that all board at about the same time.
const CARS: usize = 24;
const FILLS: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done & i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; wait";

fn for_real(context: &Context) -> Result<Verdict, String> {
    let mut table = Table::new(&["for real, landed per minute", "one lane", "four lanes", "ratio"]);
    for (name, gate, least) in
        [("a gate that sleeps 2 s", "sleep 2", 3.0), ("a gate that fills two cores", FILLS, 1.0)]
    {
        let one = landed_per_minute(context, gate, 1)?;
        let four = landed_per_minute(context, gate, 4)?;
        table.row(&[
            name.to_owned(),
            format!("{one:.1}"),
            format!("{four:.1}"),
            format!("{:.1}", four / one),
        ]);
        judge(&format!("one lane ÷ four, {name}"), one / four, 1.0 / least, "");
    }
    table.print();
    Ok(Verdict::Clean)
}

fn landed_per_minute(context: &Context, gate: &str, lanes: u32) -> Result<f64, String> {
    let scene = Scene::new(context, &format!("lanes-{lanes}-{}", gate.len()))?;
    let config = format!(
        "[land]\nlanes = {lanes}\ngroups = true\n[gates]\nverify = [\"{gate}\"]\n[sandbox]\nkind = \"off\"\n"
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
