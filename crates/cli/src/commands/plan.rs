//! `plan` and `graph`: looking at plans and at the graph of a run. Changes nothing, ever; what
//! makes plans is in `draft`, what reads and writes other tools' files in `formats`.

use std::fmt::Write as _;
use std::path::Path;

use anstyle::Style;
use mainstem_api::actions::{FailedPlanCheck, PlanCheckReport, PlanEstimateReport};
use mainstem_api::exit_code;
use mainstem_api::graph::GraphReportEdge;
use mainstem_core::config::Settings;
use mainstem_core::graph::Graph;
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Epic, Plan, Task, TaskEffort};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_planner::estimate::{EffortHistory, PlanEstimate, estimate_plan};
use serde::Serialize;

use crate::args::{GraphArgs, GraphFormat, PlanArgs, PlanCommand, PlanFormat};
use crate::commands::{draft, plan_formats};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::graph::{self, GraphSubject};
use crate::{output, preflight};

/// Ids of the critical path shown in one line.
const PATH_SHOWN: usize = 12;

/// `plan` with what follows it.
pub(crate) fn cmd_plan(context: &CliContext, args: &PlanArgs) -> CommandResult {
    let Some(command) = &args.command else { return draft::cmd_draft(context, &args.draft) };
    match command {
        PlanCommand::Check { file } => check_plan(context, file),
        PlanCommand::Show { file, format } => show_plan(context, file, *format),
        PlanCommand::Import(args) => plan_formats::cmd_import(context, args),
        PlanCommand::Export(args) => plan_formats::cmd_export(context, args),
        PlanCommand::Push(args) => plan_formats::cmd_push(context, args),
        PlanCommand::Suggest(args) => plan_formats::cmd_suggest(context, args),
    }
}

/// The graph of the run, with where each task stands.
pub(crate) fn cmd_graph(context: &CliContext, args: &GraphArgs) -> CommandResult {
    let (_, _, look) = context.open_existing_run(args.run.as_deref())?;
    let machine = &look.machine;
    let phases: Vec<Phase> =
        machine.tasks().all_tasks().map(|t| machine.tasks().phase(t)).collect();
    let subject =
        GraphSubject { plan: machine.plan(), graph: machine.graph(), phases: Some(&phases) };
    match args.format {
        GraphFormat::Json => output::write_json(&subject.report())?,
        _ if context.global.json => output::write_json(&subject.report())?,
        GraphFormat::Mermaid => output::write_stdout(&graph::render_mermaid(subject))?,
        GraphFormat::Picture => {
            output::write_stdout(&graph::render_picture(
                subject,
                output::picture_width(),
                context.color_out,
            ))?;
        }
    }
    Ok(exit_code::OK)
}

/// A plan needs no repository to be looked at: where there is none, its settings are left out.
fn read_plan(context: &CliContext, file: &Path) -> Result<(Plan, Graph, Settings), CliError> {
    let repo = context.open_repo().ok();
    let settings = context.load_settings(repo.as_ref())?;
    let plan = context.read_plan(file, &settings)?;
    let layout = repo.as_ref().map(|repo| RepoLayout::new(repo, None));
    let place = repo.as_ref().zip(layout.as_ref()).map(|(repo, layout)| (repo, layout.state_dir()));
    mainstem_engine::prompt_template::load_prompt_template(place, &settings)?;
    let graph = build_graph(&plan, file)?;
    Ok((plan, graph, settings))
}

fn build_graph(plan: &Plan, file: &Path) -> Result<Graph, CliError> {
    Graph::new(plan).map_err(|error| CliError::new(format!("{}: {error}", file.display())))
}

fn check_plan(context: &CliContext, file: &Path) -> CommandResult {
    let (plan, graph, settings) = match read_plan(context, file) {
        Ok(found) => found,
        Err(failure) => {
            if context.global.json {
                output::write_json(&FailedPlanCheck { ok: false, error: failure.report() })?;
            }
            return Err(failure);
        }
    };
    let subject = GraphSubject::without_run(&plan, &graph);
    let edges = subject.list_edges().len();
    let levels = graph.levels();
    let widest = levels.iter().map(Vec::len).max().unwrap_or(0);
    let path = subject.critical_ids();
    let findings = match context.open_repo() {
        Ok(repo) => preflight::plan_findings(&repo, &settings, &plan, None),
        Err(_) => Vec::new(),
    };
    let warnings: Vec<String> =
        findings.iter().map(preflight::PreflightFinding::sentence).collect();
    if context.global.json {
        output::write_json(&PlanCheckReport {
            ok: true,
            file: file.display().to_string(),
            title: plan.title.clone(),
            tasks: plan.tasks.len() as u64,
            edges: edges as u64,
            epics: plan.epics.len() as u64,
            levels: levels.len() as u64,
            widest_level: widest as u64,
            critical_path: path.iter().map(ToString::to_string).collect(),
            diagnostics: Vec::new(),
            warnings,
        })?;
        return Ok(exit_code::OK);
    }
    output::write_stdout(&format!(
        "{}: ok, {}, {}, {}, {} (widest {widest}), critical path {}: {}\n",
        file.display(),
        count_noun(plan.tasks.len(), "task"),
        count_noun(edges, "edge"),
        count_noun(plan.epics.len(), "epic"),
        count_noun(levels.len(), "level"),
        path.len(),
        join_with_arrows(&path),
    ))?;
    for warning in warnings {
        output::write_stderr(&format!("warning: {}", output::sanitize_text(&warning)));
    }
    Ok(exit_code::OK)
}

fn count_noun(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn join_with_arrows(ids: &[&str]) -> String {
    if ids.len() <= PATH_SHOWN {
        return ids.join(" → ");
    }
    let half = PATH_SHOWN / 2;
    let (head, tail) = (&ids[..half], &ids[ids.len() - half..]);
    format!("{} → … → {}", head.join(" → "), tail.join(" → "))
}

fn show_plan(context: &CliContext, file: &Path, format: PlanFormat) -> CommandResult {
    let repo = context.open_repo().ok();
    let settings = context.load_settings(repo.as_ref())?;
    let (plan, lacking) = context.read_plan_to_show(file, &settings)?;
    for fault in &lacking {
        output::write_stderr(&format!("warning: {}", output::sanitize_text(fault)));
    }
    let graph = build_graph(&plan, file)?;
    let subject = GraphSubject::without_run(&plan, &graph);
    let (width, color) = (output::picture_width(), context.color_out);
    let guess = estimate_plan(&plan, &graph, settings.run.jobs, &effort_history(context));
    match format {
        PlanFormat::Json => output::write_json(&plan_report(subject, &guess))?,
        _ if context.global.json => output::write_json(&plan_report(subject, &guess))?,
        PlanFormat::Mermaid => output::write_stdout(&graph::render_mermaid(subject))?,
        PlanFormat::Batches => {
            // A pipe gets one line per level.
            let width = output::stdout_columns().unwrap_or(usize::MAX);
            output::write_stdout(&graph::render_levels(subject, width, color))?;
        }
        PlanFormat::Graph => output::write_stdout(&graph::render_picture(subject, width, color))?,
        PlanFormat::Tree => {
            let mut out = plan_tree(subject, &settings, width, color);
            out.push_str(&estimate_text(&guess, settings.run.jobs));
            out.push('\n');
            out.push_str(&graph::render_picture(subject, width, color));
            output::write_stdout(&out)?;
        }
    }
    Ok(exit_code::OK)
}

/// What tasks took that landed in the newest run; nothing if there is none that can be read.
fn effort_history(context: &CliContext) -> EffortHistory {
    let mut past = EffortHistory::default();
    let Ok((_, _, look)) = context.open_run(None) else { return past };
    let machine = &look.machine;
    for t in machine.tasks().all_tasks().filter(|t| machine.tasks().phase(*t) == Phase::Landed) {
        let state = machine.tasks().get(t);
        past.add_task(machine.plan().tasks[t.index()].effort, state.agent_ms, state.cost_usd);
    }
    past
}

fn estimate_text(guess: &PlanEstimate, jobs: u32) -> String {
    let basis = match guess.based_on {
        0 => "rough, because there is no history yet".to_owned(),
        n => format!("based on {} that landed", output::count_noun(u64::from(n), "task")),
    };
    let money = guess.usd.map_or_else(|| "cost unknown".to_owned(), |usd| format!("${usd:.2}"));
    format!(
        "estimate: {} of work, at least {} with {jobs} at a time (critical path {}), {money}; {basis}\n",
        output::format_duration(guess.work_ms),
        output::format_duration(guess.least_ms),
        output::format_duration(guess.path_ms),
    )
}

/// What `plan show --json` prints: the plan itself, with what follows from it.
#[derive(Serialize)]
struct PlanReport<'a> {
    version: u32,
    title: &'a str,
    epics: &'a [Epic],
    tasks: &'a [Task],
    edges: Vec<GraphReportEdge>,
    levels: Vec<Vec<String>>,
    critical_path: Vec<String>,
    estimate: PlanEstimateReport,
}

fn plan_report<'a>(subject: GraphSubject<'a>, guess: &PlanEstimate) -> PlanReport<'a> {
    let graph = subject.report();
    PlanReport {
        version: 1,
        title: &subject.plan.title,
        epics: &subject.plan.epics,
        tasks: &subject.plan.tasks,
        edges: graph.edges,
        levels: graph.levels,
        critical_path: graph.critical_path,
        estimate: PlanEstimateReport {
            work_ms: guess.work_ms,
            critical_path_ms: guess.path_ms,
            least_ms: guess.least_ms,
            cost_usd: guess.usd,
            based_on_tasks: guess.based_on,
        },
    }
}

/// Epics with their tasks, then tasks of no epic.
fn plan_tree(subject: GraphSubject<'_>, settings: &Settings, width: usize, color: bool) -> String {
    let plan = subject.plan;
    let bold = Style::new().bold();
    let mut out = String::new();
    if !plan.title.is_empty() {
        let _ = writeln!(
            out,
            "{}\n",
            output::paint_text(&output::sanitize_text(&plan.title), bold, color)
        );
    }
    let default = settings.run.agent.as_deref();
    let id_width = plan.tasks.iter().map(|task| task.id.as_str().len()).max().unwrap_or(0);
    for epic in &plan.epics {
        let head = format!("{} {}", epic.id, output::sanitize_text(&epic.title));
        out.push_str(&output::paint_text(head.trim_end(), bold, color));
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
        let _ = writeln!(out, "{}", output::paint_text("(no epic)", bold, color));
    }
    for task in loose {
        out.push_str(&task_lines(task, default, id_width, width, color));
    }
    let path = subject.critical_ids();
    let _ = writeln!(
        out,
        "\ncritical path ({}): {}",
        count_noun(path.len(), "task"),
        join_with_arrows(&path)
    );
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
        TaskEffort::Small => "small",
        TaskEffort::Medium => "medium",
        TaskEffort::Large => "large",
    };
    let agent = task.agent.as_deref().or(default).unwrap_or("–");
    let tail = format!("{effort} · {agent}");
    let room = width.saturating_sub(id_width + tail.len() + 6).clamp(20, 60);
    let title = output::truncate_to_width(&output::sanitize_text(&task.title), room);
    let id = output::pad_to_width(task.id.as_str(), id_width);
    let mut out = format!("  {id}  {}  {tail}\n", output::pad_to_width(&title, room));
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
        let text = output::sanitize_text(&details.join(" · ")).replace('\n', " ");
        let text = output::truncate_to_width(&text, width.saturating_sub(id_width + 4).max(40));
        let text = output::paint_text(&text, Style::new().dimmed(), color);
        let _ = writeln!(out, "  {}  {text}", " ".repeat(id_width));
    }
    out
}
