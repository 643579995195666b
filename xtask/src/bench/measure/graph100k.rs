//! A plan of 100,000 tasks: the binary's `plan check`, and from inside the way to the first schedule and the cost of a
//! step after it.

use std::fmt::Write as _;
use std::time::Duration;

use mainstem_core::config::Settings;
use mainstem_core::graph::Graph;
use mainstem_core::plan::Plan;
use mainstem_core::plan::check::{PlanCheckContext, load_plan};
use mainstem_core::plan::document::DocumentFormat;

use super::graphs::Rng;
use super::scene::{Scene, default_settings};
use super::table::{Table, judge};
use super::timeline::Timeline;
use super::{Context, proc};
use crate::Verdict;

const TASKS: usize = 100_000;
/// Tasks that need nothing, so that a thousand can work at once.
const WIDTH: usize = 2_000;
const SLOTS: [u32; 2] = [16, 1_000];
const LOOKS: u32 = 200;

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
    let known = PlanCheckContext { agents: &settings.agents, default_agent: None };
    let load = |text: &str, format| {
        let (plan, took) = proc::cost(|| load_plan(text.as_bytes(), format, &known));
        let plan = plan.map_err(|faults| format!("the plan is refused: {}", faults[0].message))?;
        Ok::<_, String>((plan, took))
    };
    let (plan, toml_took) = load(toml, DocumentFormat::Toml)?;
    let (_, json_took) = load(json, DocumentFormat::Json)?;
    let (graph, graph_took) = proc::cost(|| Graph::new(&plan).map_err(|error| error.to_string()));
    drop(graph?);
    let (copy, copy_took) = proc::cost(|| plan.clone());
    drop(copy);
    let by_slots = SLOTS.map(|slots| {
        settings.run.jobs = slots;
        schedule(&settings, &plan)
    });
    let mut table = Table::new(&["from inside, CPU ms", "16 slots", "1,000 slots"]);
    let alone = [
        ("load TOML", toml_took),
        ("load JSON", json_took),
        ("graph alone", graph_took),
        ("copy of the plan", copy_took),
    ];
    for (name, took) in alone {
        table.row(&[name.to_owned(), format!("{:.1}", took.as_secs_f64() * 1e3)]);
    }
    let names = ["adopt the plan", "first schedule", "one step", "rest() and wake_at()"];
    for (at, name) in names.into_iter().enumerate() {
        let mut row = vec![name.to_owned()];
        row.extend(by_slots.iter().map(|took| format!("{:.4}", took[at].as_secs_f64() * 1e3)));
        table.row(&row);
    }
    table.print();
    // The graph is made once more in adopting the plan.
    let all = toml_took + by_slots[0][0] + by_slots[0][1];
    judge("CPU of load TOML, adopt, first schedule", all.as_secs_f64(), 1.0, " s");
    Ok(())
}

/// What adopting the plan, the first schedule, a step after it and a look at it cost.
fn schedule(settings: &Settings, plan: &Plan) -> [Duration; 4] {
    let ms = vec![60_000; TASKS];
    let copy = plan.clone();
    let (mut timeline, adopt) = proc::cost(|| Timeline::new(settings, copy, &ms, false));
    let ((), first) = proc::cost(|| timeline.begin());
    let before = timeline.steps;
    let (_, steps) = proc::cost(|| timeline.go_on(20_000));
    let step = steps / u32::try_from(timeline.steps - before).unwrap_or(1);
    let ((), looks) = proc::cost(|| {
        for _ in 0..LOOKS {
            std::hint::black_box((timeline.machine.rest_reason(), timeline.machine.wake_at()));
        }
    });
    [adopt, first, step, looks / LOOKS]
}

/// The same plan twice; every task needs three of the two thousand before it, but for the first two thousand.
fn texts() -> (String, String) {
    let mut rng = Rng::new(100);
    let mut toml = "version = 1\ntitle = \"Large\"\n".to_owned();
    let mut json = "{\"version\":1,\"title\":\"Large\",\"task\":[\n".to_owned();
    for at in 0..TASKS {
        let mut needs: Vec<usize> = Vec::new();
        while at >= WIDTH && needs.len() < 3 {
            let need = at - 1 - rng.below(WIDTH);
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
