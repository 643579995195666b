//! A plan of 100,000 tasks: the binary's `plan check`, and from inside the way to the first schedule and the cost of a
//! step after it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mainstem_core::graph::Graph;
use mainstem_core::plan::check::{Known, load_plan};
use mainstem_core::plan::doc::Format;

use super::graphs::Rng;
use super::scene::{Scene, default_settings};
use super::table::{Table, judge};
use super::timeline::Timeline;
use super::{Context, proc};
use crate::Verdict;

const TASKS: usize = 100_000;

/// Prints time and memory of each step of the way.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let scene = Scene::new(context, "large")?;
    let (toml, json) = texts();
    check(&scene, &[("plan.toml", &toml), ("plan.json", &json)])?;
    inside(&toml, &json)?;
    Ok(Verdict::Clean)
}

fn check(scene: &Scene, plans: &[(&str, &str)]) -> Result<(), String> {
    let mut table = Table::new(&["mainstem plan check", "wall s", "CPU s", "peak MiB", "size MiB"]);
    let (mut slowest, mut largest) = (0.0_f64, 0.0_f64);
    for (name, text) in plans {
        let path = scene.write(name, text)?.to_string_lossy().into_owned();
        // The faster of three: whatever else the machine did only adds.
        let mut best: Option<proc::Spent> = None;
        for _ in 0..3 {
            let spent = proc::spend(&mut scene.mainstem(&["plan", "check", &path])?)?;
            if !spent.ok {
                return Err(format!("the plan is refused: {}", scene.said()));
            }
            best = Some(best.filter(|best| best.wall <= spent.wall).unwrap_or(spent));
        }
        let best = best.expect("BUG: three rounds were made");
        slowest = slowest.max(best.cpu.own);
        largest = largest.max(best.peak);
        table.row(&[
            (*name).to_owned(),
            format!("{:.2}", best.wall.as_secs_f64()),
            format!("{:.2}", best.cpu.own),
            format!("{:.0}", best.peak),
            format!("{:.1}", text.len() as f64 / f64::from(1 << 20)),
        ]);
    }
    table.print();
    judge("CPU of plan check", slowest, 1.0, " s");
    judge("memory of plan check", largest, 500.0, " MiB");
    Ok(())
}

fn inside(toml: &str, json: &str) -> Result<(), String> {
    let mut settings = default_settings()?;
    settings.snapshot_every_ms = 0;
    let known = Known { agents: &settings.agents, default_agent: None };
    let load = |text: &str, format| {
        let begun = Instant::now();
        let plan = load_plan(text.as_bytes(), format, &known);
        let plan = plan.map_err(|faults| format!("the plan is refused: {}", faults[0].message))?;
        Ok::<_, String>((plan, begun.elapsed()))
    };
    let (plan, toml_took) = load(toml, Format::Toml)?;
    let (_, json_took) = load(json, Format::Json)?;
    let begun = Instant::now();
    let graph = Graph::new(&plan).map_err(|error| error.to_string())?;
    let graph_took = begun.elapsed();
    drop(graph);
    let mut table = Table::new(&["from inside, ms", "16 slots", "1,000 slots"]);
    let mut rows: Vec<(String, Vec<Duration>)> = Vec::new();
    let mut all = Duration::ZERO;
    for jobs in [16, 1_000] {
        settings.run.jobs = jobs;
        let ms = vec![60_000; TASKS];
        let begun = Instant::now();
        let mut timeline = Timeline::new(&settings, plan.clone(), &ms, false);
        let adopt = begun.elapsed();
        let begun = Instant::now();
        timeline.begin();
        let first = begun.elapsed();
        let steps_before = timeline.steps;
        let begun = Instant::now();
        timeline.go_on(20_000);
        let step = begun.elapsed() / u32::try_from(timeline.steps - steps_before).unwrap_or(1);
        let begun = Instant::now();
        for _ in 0..20 {
            std::hint::black_box((timeline.machine.rest(), timeline.machine.wake_at()));
        }
        let look = begun.elapsed() / 20;
        if jobs == 16 {
            all = toml_took + graph_took + adopt + first;
        }
        let took = [adopt, first, step, look];
        let names =
            ["adopt the plan", "first schedule", "one step after that", "rest() and wake_at()"];
        for (at, (name, took)) in names.into_iter().zip(took).enumerate() {
            match rows.get_mut(at) {
                Some((_, cells)) => cells.push(took),
                None => rows.push((name.to_owned(), vec![took])),
            }
        }
    }
    for (name, took) in [("load TOML", toml_took), ("load JSON", json_took), ("graph", graph_took)]
    {
        table.row(&[name.to_owned(), format!("{:.1}", took.as_secs_f64() * 1e3)]);
    }
    for (name, cells) in rows {
        let mut row = vec![name];
        row.extend(cells.iter().map(|took| format!("{:.4}", took.as_secs_f64() * 1e3)));
        table.row(&row);
    }
    table.print();
    judge("load TOML, graph, adopt, first schedule", all.as_secs_f64(), 1.0, " s");
    Ok(())
}

/// The same plan twice; every task needs three of the thousand before it.
fn texts() -> (String, String) {
    let mut rng = Rng::new(100);
    let mut toml = "version = 1\ntitle = \"Large\"\n".to_owned();
    let mut json = "{\"version\":1,\"title\":\"Large\",\"task\":[\n".to_owned();
    for at in 0..TASKS {
        let mut needs: Vec<usize> = Vec::new();
        while at >= 3 && needs.len() < 3 {
            let need = at - 1 - rng.below(at.min(1_000));
            if !needs.contains(&need) {
                needs.push(need);
            }
        }
        let needs: Vec<String> = needs.iter().map(|need| format!("\"T-{need:06}\"")).collect();
        let needs = needs.join(", ");
        let _ = writeln!(
            toml,
            "\n[[task]]\nid = \"T-{at:06}\"\ntitle = \"Task number {at}\"\nneeds = [{needs}]\nrun = \"true\""
        );
        let comma = if at == 0 { "" } else { ",\n" };
        let _ = write!(
            json,
            "{comma}{{\"id\":\"T-{at:06}\",\"title\":\"Task number {at}\",\"needs\":[{needs}],\"run\":\"true\"}}"
        );
    }
    json.push_str("\n]}\n");
    (toml, json)
}
