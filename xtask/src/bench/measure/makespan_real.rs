//! The same question with the real binary: agents that sleep, real worktrees, real landings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstem_core::fact::Fact;
use mainstem_core::id::Time;
use mainstem_core::plan::TaskEffort;

use super::graphs::{self, GraphShape, Law, Work, id};
use super::scene::Scene;
use super::table::{Table, judge};
use super::{Context, proc};
use crate::Verdict;

const SLOTS: u32 = 6;
const SHAPE: GraphShape =
    GraphShape { seed: 11, tasks: 40, needs: 1.5, law: Law::Pareto, typical_ms: 1_000.0 };

/// Prints the makespan and the bound that the measured lengths of the agents allow.
pub(super) fn run(context: &Context) -> Result<Verdict, String> {
    let work = Work::random(&SHAPE);
    let mut table = Table::new(&["", "makespan s", "bound s", "ratio", "planned", "wall s"]);
    let mut ours = f64::NAN;
    for (name, barrier) in [("ours", "none"), ("waves", "level")] {
        let scene = Scene::new(context, name)?;
        let plan = scene.write("plan.toml", &plan_text(&work))?;
        let plan = plan.to_string_lossy().into_owned();
        let barrier = format!("schedule.barrier={barrier}");
        let slots = SLOTS.to_string();
        let args = ["--config", &barrier, "run", &plan, "-j", &slots, "-q"];
        let spent = proc::spend(&mut scene.mainstem(&args)?)?;
        if !spent.ok {
            return Err(format!("the run did not land everything: {}", scene.said()));
        }
        let (facts, _) = scene.facts(0)?;
        let (span, ms) = measured(&facts, SHAPE.tasks)?;
        let bound = work_bound(&work, &ms);
        let ratio = span as f64 / bound as f64;
        if name == "ours" {
            ours = ratio;
        }
        // What the same plan would come to if everything but sleeping cost nothing.
        let planned = work.list_ms(SLOTS, &work.ms) as f64 / work.bound_ms(SLOTS) as f64;
        table.row(&[
            name.to_owned(),
            format!("{:.2}", span as f64 / 1e3),
            format!("{:.2}", bound as f64 / 1e3),
            format!("{ratio:.3}"),
            format!("{planned:.3}"),
            format!("{:.1}", spent.wall.as_secs_f64()),
        ]);
    }
    table.print();
    println!("   planned: a list that knows all lengths, on the lengths asked for");
    judge("makespan ÷ lower bound", ours, 1.10, "");
    Ok(Verdict::Clean)
}

fn plan_text(work: &Work) -> String {
    let mut text = "version = 1\ntitle = \"Heavy tails\"\n".to_owned();
    for (at, effort) in work.efforts([1.0 / 3.0, 2.0 / 3.0]).into_iter().enumerate() {
        let needs: Vec<String> =
            work.needs[at].iter().map(|need| format!("\"{}\"", id(*need))).collect();
        let effort = match effort {
            TaskEffort::Small => "small",
            TaskEffort::Medium => "medium",
            TaskEffort::Large => "large",
        };
        let (id, ms) = (id(at), work.ms[at]);
        let _ = writeln!(
            text,
            "\n[[task]]\nid = \"{id}\"\ntitle = \"Sleep\"\nneeds = [{}]\neffort = \"{effort}\"\n\
             run = \"sleep {}.{:03} && echo {id} > {id}.txt\"",
            needs.join(", "),
            ms / 1000,
            ms % 1000
        );
    }
    text
}

/// From the first agent's start to the last one's end, and how long each agent took.
fn measured(facts: &[(Time, Fact)], tasks: usize) -> Result<(u64, Vec<u64>), String> {
    let mut starts: BTreeMap<String, Time> = BTreeMap::new();
    let mut lengths: BTreeMap<String, u64> = BTreeMap::new();
    let mut last = Time(0);
    for (at, fact) in facts {
        match fact {
            Fact::AgentStarted { task, .. } => {
                starts.insert(task.to_string(), *at);
            }
            Fact::AgentEnded { task, .. } => {
                let start = starts.get(task.as_str()).copied().unwrap_or(*at);
                *lengths.entry(task.to_string()).or_default() += at.since_ms(start);
                last = last.max(*at);
            }
            _ => {}
        }
    }
    let first = starts.values().min().copied().ok_or("no agent started")?;
    // Ids sort as the plan does.
    let ms: Vec<u64> = lengths.into_values().collect();
    if ms.len() != tasks {
        return Err(format!("{} of {tasks} agents ended", ms.len()));
    }
    Ok((last.since_ms(first), ms))
}

fn work_bound(work: &Work, ms: &[u64]) -> u64 {
    let order = work.needs_in_order();
    graphs::bound_ms(ms, &order, SLOTS)
}
