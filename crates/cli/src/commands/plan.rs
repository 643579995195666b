//! `plan` and `graph`: looking at plans and at the graph of a run. Changes nothing, ever; what
//! makes plans is in `draft`, what reads and writes other tools' files in `formats`.

use std::fmt::Write as _;
use std::path::Path;

use anstyle::Style;
use mainstem_api::exit_code;
use mainstem_core::config::Settings;
use mainstem_core::graph::Graph;
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Effort, Plan, Task};
use mainstem_engine::paths::Layout;
use mainstem_planner::estimate::{Estimate, Past, estimate};
use serde_json::{Value, json};

use crate::args::{GraphArgs, GraphFormat, PlanArgs, PlanCommand, PlanFormat};
use crate::commands::{draft, formats};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::graph::{self, Subject};
use crate::{preflight, print};

/// Ids of the critical path shown in one line.
const PATH_SHOWN: usize = 12;

/// `plan` with what follows it.
pub(crate) fn plan(context: &Context, args: &PlanArgs) -> Outcome {
    let Some(command) = &args.command else { return draft::draft(context, &args.draft) };
    match command {
        PlanCommand::Check { file } => check(context, file),
        PlanCommand::Show { file, format } => show(context, file, *format),
        PlanCommand::Import(args) => formats::import(context, args),
        PlanCommand::Export(args) => formats::export(context, args),
        PlanCommand::Push(args) => formats::push(context, args),
        PlanCommand::Suggest(args) => formats::suggest(context, args),
    }
}

/// The graph of the run, with where each task stands.
pub(crate) fn graph(context: &Context, args: &GraphArgs) -> Outcome {
    let (_, _, look) = context.look_at_run(args.run.as_deref())?;
    let machine = &look.machine;
    let phases: Vec<Phase> = machine.tasks().all().map(|t| machine.tasks().phase(t)).collect();
    let subject = Subject { plan: machine.plan(), graph: machine.graph(), phases: Some(&phases) };
    match args.format {
        GraphFormat::Json => print::out_json(&graph::as_json(subject))?,
        _ if context.global.json => print::out_json(&graph::as_json(subject))?,
        GraphFormat::Mermaid => print::out(&graph::mermaid(subject))?,
        GraphFormat::Picture => {
            print::out(&graph::picture(subject, print::width(), context.color_out))?;
        }
    }
    Ok(exit_code::OK)
}

/// A plan needs no repository to be looked at: where there is none, its settings are left out.
fn read(context: &Context, file: &Path) -> Result<(Plan, Graph, Settings), Failure> {
    let repo = context.repo().ok();
    let settings = context.settings(repo.as_ref())?;
    let plan = context.plan(file, &settings)?;
    let layout = repo.as_ref().map(|repo| Layout::new(repo, None));
    let place = repo.as_ref().zip(layout.as_ref()).map(|(repo, layout)| (repo, layout.state()));
    mainstem_engine::prompts::template(place, &settings)?;
    let graph = graph_of(&plan, file)?;
    Ok((plan, graph, settings))
}

fn graph_of(plan: &Plan, file: &Path) -> Result<Graph, Failure> {
    Graph::new(plan).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

fn check(context: &Context, file: &Path) -> Outcome {
    let (plan, graph, settings) = match read(context, file) {
        Ok(found) => found,
        Err(failure) => {
            if context.global.json {
                let mut report = failure.json();
                report["ok"] = json!(false);
                print::out_json(&report)?;
            }
            return Err(failure);
        }
    };
    let subject = Subject::plain(&plan, &graph);
    let edges = subject.edges().len();
    let levels = graph.levels();
    let widest = levels.iter().map(Vec::len).max().unwrap_or(0);
    let path = subject.critical_ids();
    let findings = match context.repo() {
        Ok(repo) => preflight::of_plan(&repo, &settings, &plan, None),
        Err(_) => Vec::new(),
    };
    let warnings: Vec<String> = findings.iter().map(preflight::Finding::sentence).collect();
    if context.global.json {
        print::out_json(&json!({
            "ok": true, "file": file, "title": plan.title, "tasks": plan.tasks.len(),
            "edges": edges, "epics": plan.epics.len(), "levels": levels.len(),
            "widest_level": widest, "critical_path": path, "diagnostics": [],
            "warnings": warnings,
        }))?;
        return Ok(exit_code::OK);
    }
    print::out(&format!(
        "{}: ok, {}, {}, {}, {} (widest {widest}), critical path {}: {}\n",
        file.display(),
        count(plan.tasks.len(), "task"),
        count(edges, "edge"),
        count(plan.epics.len(), "epic"),
        count(levels.len(), "level"),
        path.len(),
        arrows(&path),
    ))?;
    for warning in warnings {
        print::err(&format!("warning: {}", print::harmless(&warning)));
    }
    Ok(exit_code::OK)
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn arrows(ids: &[&str]) -> String {
    if ids.len() <= PATH_SHOWN {
        return ids.join(" → ");
    }
    let half = PATH_SHOWN / 2;
    let (head, tail) = (&ids[..half], &ids[ids.len() - half..]);
    format!("{} → … → {}", head.join(" → "), tail.join(" → "))
}

fn show(context: &Context, file: &Path, format: PlanFormat) -> Outcome {
    let repo = context.repo().ok();
    let settings = context.settings(repo.as_ref())?;
    let (plan, lacking) = context.plan_to_show(file, &settings)?;
    for fault in &lacking {
        print::err(&format!("warning: {}", print::harmless(fault)));
    }
    let graph = graph_of(&plan, file)?;
    let subject = Subject::plain(&plan, &graph);
    let (width, color) = (print::width(), context.color_out);
    let guess = estimate(&plan, &graph, settings.run.jobs, &past(context));
    match format {
        PlanFormat::Json => print::out_json(&plan_json(subject, &guess))?,
        _ if context.global.json => print::out_json(&plan_json(subject, &guess))?,
        PlanFormat::Mermaid => print::out(&graph::mermaid(subject))?,
        PlanFormat::Batches => {
            // A pipe gets one line per level.
            let width = print::columns().unwrap_or(usize::MAX);
            print::out(&graph::batches(subject, width, color))?;
        }
        PlanFormat::Graph => print::out(&graph::picture(subject, width, color))?,
        PlanFormat::Tree => {
            let mut out = tree(subject, &settings, width, color);
            out.push_str(&estimate_text(&guess, settings.run.jobs));
            out.push('\n');
            out.push_str(&graph::picture(subject, width, color));
            print::out(&out)?;
        }
    }
    Ok(exit_code::OK)
}

/// What tasks took that landed in the newest run; nothing if there is none that can be read.
fn past(context: &Context) -> Past {
    let mut past = Past::default();
    let Ok((_, _, look)) = context.look(None) else { return past };
    let machine = &look.machine;
    for t in machine.tasks().all().filter(|t| machine.tasks().phase(*t) == Phase::Landed) {
        let state = machine.tasks().get(t);
        past.add(machine.plan().tasks[t.ix()].effort, state.agent_ms, state.cost_usd);
    }
    past
}

fn estimate_text(guess: &Estimate, jobs: u32) -> String {
    let basis = match guess.based_on {
        0 => "rough, because there is no history yet".to_owned(),
        n => format!("based on {} that landed", print::count(u64::from(n), "task")),
    };
    let money = guess.usd.map_or_else(|| "cost unknown".to_owned(), |usd| format!("${usd:.2}"));
    format!(
        "estimate: {} of work, at least {} with {jobs} at a time (critical path {}), {money}; {basis}\n",
        print::duration(guess.work_ms),
        print::duration(guess.least_ms),
        print::duration(guess.path_ms),
    )
}

fn plan_json(subject: Subject<'_>, guess: &Estimate) -> Value {
    json!({
        "version": 1,
        "title": subject.plan.title,
        "epics": subject.plan.epics,
        "tasks": subject.plan.tasks,
        "edges": graph::edges_json(subject),
        "levels": graph::levels_json(subject),
        "critical_path": subject.critical_ids(),
        "estimate": {
            "work_ms": guess.work_ms, "critical_path_ms": guess.path_ms, "least_ms": guess.least_ms,
            "cost_usd": guess.usd, "based_on_tasks": guess.based_on,
        },
    })
}

/// Epics with their tasks, then tasks of no epic.
fn tree(subject: Subject<'_>, settings: &Settings, width: usize, color: bool) -> String {
    let plan = subject.plan;
    let bold = Style::new().bold();
    let mut out = String::new();
    if !plan.title.is_empty() {
        let _ = writeln!(out, "{}\n", print::paint(&print::harmless(&plan.title), bold, color));
    }
    let default = settings.run.agent.as_deref();
    let id_width = plan.tasks.iter().map(|task| task.id.as_str().len()).max().unwrap_or(0);
    for epic in &plan.epics {
        let head = format!("{} {}", epic.id, print::harmless(&epic.title));
        out.push_str(&print::paint(head.trim_end(), bold, color));
        if !epic.needs.is_empty() {
            let needs: Vec<&str> = epic.needs.iter().map(|id| id.as_str()).collect();
            let _ = write!(out, "  needs {}", needs.join(" "));
        }
        out.push('\n');
        for task in plan.tasks.iter().filter(|task| task.epic.as_ref() == Some(&epic.id)) {
            out.push_str(&task_lines(task, default, id_width, width, color));
        }
    }
    let loose: Vec<&Task> = plan.tasks.iter().filter(|task| task.epic.is_none()).collect();
    if !loose.is_empty() && !plan.epics.is_empty() {
        let _ = writeln!(out, "{}", print::paint("(no epic)", bold, color));
    }
    for task in loose {
        out.push_str(&task_lines(task, default, id_width, width, color));
    }
    let path = subject.critical_ids();
    let _ = writeln!(out, "\ncritical path ({}): {}", count(path.len(), "task"), arrows(&path));
    out
}

fn task_lines(
    task: &Task,
    default: Option<&str>,
    id_width: usize,
    width: usize,
    color: bool,
) -> String {
    let effort = match task.effort {
        Effort::Small => "small",
        Effort::Medium => "medium",
        Effort::Large => "large",
    };
    let agent = task.agent.as_deref().or(default).unwrap_or("–");
    let tail = format!("{effort} · {agent}");
    let room = width.saturating_sub(id_width + tail.len() + 6).clamp(20, 60);
    let title = print::clip(&print::harmless(&task.title), room);
    let id = print::pad(task.id.as_str(), id_width);
    let mut out = format!("  {id}  {}  {tail}\n", print::pad(&title, room));
    let list = |word: &str, items: Vec<&str>| {
        (!items.is_empty()).then(|| format!("{word} {}", items.join(" ")))
    };
    let details: Vec<String> = [
        list("needs", task.needs.iter().map(|id| id.as_str()).collect()),
        list("after", task.after.iter().map(|id| id.as_str()).collect()),
        list("writes", task.writes.iter().map(String::as_str).collect()),
        (!task.verify.is_empty()).then(|| format!("checks: {}", task.verify.join("; "))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !details.is_empty() {
        let text = print::harmless(&details.join(" · ")).replace('\n', " ");
        let text = print::clip(&text, width.saturating_sub(id_width + 4).max(40));
        let text = print::paint(&text, Style::new().dimmed(), color);
        let _ = writeln!(out, "  {}  {text}", " ".repeat(id_width));
    }
    out
}
