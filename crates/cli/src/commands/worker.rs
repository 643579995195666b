//! `worker`: a run seen as workers, each with a state, in JSON. A thin face: what it adds, calls off and
//! shows are the run's tasks; the engine is the same.

use std::path::Path;

use mainstem_api::actions::{WorkerStatus, WorkerTermination};
use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::plan::Task;
use mainstem_engine::client;
use mainstem_engine::maintenance::{self, CleanScope};
use mainstem_engine::query::{RunReader, is_engine_running};
use mainstem_planner::import::{self, ImportOptions, ImportOrder, ToolFormat};

use crate::args::{RunArgs, WorkerCommand};
use crate::commands::maintenance::clean_report;
use crate::commands::{control_client, plan_formats, run};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// What a spec's priority of 1 to 10 means if it is not given; a plan calls it 0.
const NEUTRAL_PRIORITY: i64 = 5;

/// The states, in the order in which a worker meets them.
const STATES: [&str; 6] = ["UNKNOWN", "NEEDS_INIT", "WORKING", "PR_OPEN", "MERGED", "ERROR"];

/// Does what was asked for; data goes to standard output as JSON.
pub(crate) fn cmd_worker(context: &CliContext, command: &WorkerCommand) -> CommandResult {
    match command {
        WorkerCommand::Spawn { task_id, description, agent, base_branch, priority } => {
            let task = Task {
                id: task_id.as_str().into(),
                title: description.lines().next().unwrap_or_default().to_owned(),
                description: description.clone(),
                agent: agent.clone(),
                priority: *priority,
                ..Task::empty()
            };
            let worker = spawn_workers(context, vec![task], base_branch.as_slice())?.pop();
            output::write_json(&worker)?;
            Ok(exit_code::OK)
        }
        WorkerCommand::SpawnBatch { spec_file } => {
            let (tasks, base_branches) = read_spec(context, spec_file)?;
            output::write_json(&spawn_workers(context, tasks, &base_branches)?)?;
            Ok(exit_code::OK)
        }
        WorkerCommand::List { state } => list_workers(context, state.as_deref()),
        WorkerCommand::Get { id } => {
            let (_, _, look) = context.open_existing_run(None)?;
            let t = find_worker(&look, id)?;
            output::write_json(&worker_status(&look, t))?;
            Ok(exit_code::OK)
        }
        WorkerCommand::Terminate { id, force } => terminate_worker(context, id, *force),
        WorkerCommand::Cleanup { state } => clean_up_workers(context, state.as_deref()),
    }
}

/// The tasks of a batch spec and the base branches that it names.
fn read_spec(context: &CliContext, path: &Path) -> Result<(Vec<Task>, Vec<String>), CliError> {
    let source = plan_formats::read_source(context, path)?;
    let accepted = ImportOptions { commands: false, all: true, order: ImportOrder::Free };
    let format = ToolFormat::from_name("workers").expect("BUG: a known format");
    let imported =
        import::import_plan(&source, format, &accepted).map_err(plan_formats::import_error)?;
    if imported.plan.tasks.is_empty() {
        return Err(CliError::new(format!("{}: no tasks", path.display())));
    }
    let spec = import::read_worker_spec(&source).map_err(plan_formats::import_error)?;
    let mut tasks = imported.plan.tasks;
    for task in &mut tasks {
        // In a plan `agent` of a spec is a role; a spawned worker is started with that very agent.
        task.agent = task.role.take();
        task.priority += NEUTRAL_PRIORITY;
        let theirs = imported.rows.iter().find(|row| row.ours == task.id.as_str());
        let theirs = theirs.map_or("", |row| row.theirs.as_str());
        // Workers that were spawned before; the run refuses what it does not know.
        let outside = spec.outside_dependencies.iter().filter(|(id, _)| id == theirs);
        task.needs.extend(outside.map(|(_, needed)| TaskId::new(needed.as_str())));
    }
    let kept = ["base_branch of the whole", "base_branch"];
    let lost: Vec<&str> =
        imported.lost.keys().map(String::as_str).filter(|field| !kept.contains(field)).collect();
    if !lost.is_empty() && !context.global.quiet {
        output::write_stderr(&format!(
            "note: ignored fields: {}",
            output::sanitize_text(&lost.join(", "))
        ));
    }
    Ok((tasks, spec.base_branches))
}

/// Adds the tasks to the run, or begins one with them, and makes sure that an engine works. Returns the
/// workers as they stand then.
fn spawn_workers(
    context: &CliContext,
    tasks: Vec<Task>,
    base_branches: &[String],
) -> Result<Vec<WorkerStatus>, CliError> {
    let (repo, settings, _) = context.load_repo_context()?;
    let ids: Vec<String> = tasks.iter().map(|task| task.id.to_string()).collect();
    let (_, _, look) = context.open_run(None)?;
    let target = match (&look.run, &settings.land.branch) {
        (Some(_), _) => look.machine.target_branch().to_owned(),
        (None, Some(branch)) => branch.clone(),
        (None, None) => repo.default_branch()?,
    };
    if let Some(base) = base_branches.iter().find(|base| **base != target) {
        return Err(CliError::new(format!("the run lands on {target}, not on {base}")).with_hint(
            format!("omit the base branch, or set land.branch = \"{base}\" and start a new run"),
        ));
    }
    let open = || context.open_engine_instance();
    if client::add_tasks(&context.engine_layout()?, &open, tasks)?.offline {
        start_engine(context)?;
    }
    let (_, _, look) = context.open_existing_run(None)?;
    ids.iter().map(|id| Ok(worker_status(&look, look.machine.find_task(id)?))).collect()
}

/// Starts an engine. One that somebody else started at the same moment is as good: it read the journal after
/// the tasks were written there.
fn start_engine(context: &CliContext) -> Result<(), CliError> {
    let Err(failure) =
        run::start_in_background(context, &RunArgs { no_preflight: true, ..RunArgs::default() })
    else {
        return Ok(());
    };
    let (_, _, layout) = context.load_repo_context()?;
    match is_engine_running(&layout) {
        Ok(true) => Ok(()),
        _ => Err(failure),
    }
}

fn check_state(state: Option<&str>) -> Result<Option<String>, CliError> {
    let Some(state) = state.map(str::to_uppercase) else { return Ok(None) };
    if STATES.contains(&state.as_str()) {
        return Ok(Some(state));
    }
    Err(CliError::new(format!("unknown state {state}"))
        .with_hint(format!("states: {}", STATES.join(", "))))
}

fn workers_in_state(look: &RunReader, state: Option<&str>) -> Vec<TaskIx> {
    let these = look.machine.tasks().all_tasks();
    these.filter(|t| state.is_none_or(|state| worker_state(&look.machine, *t) == state)).collect()
}

fn list_workers(context: &CliContext, state: Option<&str>) -> CommandResult {
    let state = check_state(state)?;
    let (_, _, look) = context.open_run(None)?;
    let workers = workers_in_state(&look, state.as_deref());
    output::write_json(&workers.into_iter().map(|t| worker_status(&look, t)).collect::<Vec<_>>())?;
    Ok(exit_code::OK)
}

fn terminate_worker(context: &CliContext, id: &str, force: bool) -> CommandResult {
    let (_, _, look) = context.open_existing_run(None)?;
    let t = find_worker(&look, id)?;
    let task = look.machine.graph().id(t).to_string();
    if worker_state(&look.machine, t) == "PR_OPEN" && !force {
        return Err(CliError::new(format!(
            "{task} is already queued to land or has a pull request"
        ))
        .with_hint("cancel anyway with --force (an open pull request stays open)"));
    }
    let request = ControlRequest::Cancel { task: Some(task) };
    let said = control_client::send_requests(context, vec![request])?;
    let (_, _, look) = context.open_existing_run(None)?;
    let worker = worker_status(&look, t);
    output::write_json(&WorkerTermination { worker, messages: said })?;
    Ok(exit_code::OK)
}

fn clean_up_workers(context: &CliContext, state: Option<&str>) -> CommandResult {
    let state = check_state(state)?;
    let (_, _, look) = context.open_run(None)?;
    let workers = workers_in_state(&look, state.as_deref());
    if state.is_some() && workers.is_empty() {
        output::write_json(&clean_report(Vec::new(), None))?;
        return Ok(exit_code::OK);
    }
    let scope = match state {
        Some(_) => CleanScope::Tasks(
            workers.into_iter().map(|t| look.machine.graph().id(t).clone()).collect(),
        ),
        None => CleanScope::Everything,
    };
    let litter =
        maintenance::clean_repository(&mut context.open_engine_instance()?, &scope, false)?;
    output::write_json(&clean_report(litter, None))?;
    Ok(exit_code::OK)
}

fn find_worker(look: &RunReader, id: &str) -> Result<TaskIx, CliError> {
    let by_worker = look.machine.tasks().all_tasks().find(|t| worker_id(look, *t) == id);
    by_worker.map_or_else(|| Ok(look.machine.find_task(id)?), Ok)
}

/// The same for the same task of the same run, however often it is asked for.
fn worker_id(look: &RunReader, t: TaskIx) -> String {
    let run = look.run.as_ref().map(ToString::to_string).unwrap_or_default();
    let name = format!("{run}/{}", look.machine.graph().id(t));
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("worker-{:08x}", name.bytes().fold(0x811c_9dc5, fold))
}

fn worker_state(machine: &Machine, t: TaskIx) -> &'static str {
    let offered =
        !machine.lands_on_forge(t) || machine.pull_request(t).is_some_and(|p| p.number.is_some());
    match machine.tasks().phase(t) {
        Phase::Waiting | Phase::Ready | Phase::Preparing => "NEEDS_INIT",
        Phase::Merging if offered => "PR_OPEN",
        Phase::Working | Phase::Asking | Phase::Verifying | Phase::Merging => "WORKING",
        Phase::Landed => "MERGED",
        Phase::Conflicted | Phase::Failed | Phase::Blocked => "ERROR",
        Phase::Cancelled | Phase::Skipped => "UNKNOWN",
    }
}

fn worker_status(look: &RunReader, t: TaskIx) -> WorkerStatus {
    let machine = &look.machine;
    let task = &machine.plan().tasks[t.index()];
    let (view, state) = (machine.task_view(t), machine.tasks().get(t));
    let word = worker_state(machine, t);
    let pull = machine.pull_request(t);
    WorkerStatus {
        worker_id: worker_id(look, t),
        state: word.to_owned(),
        phase: view.phase.as_str().to_owned(),
        created_at: machine.started_at().map(|at| at.0),
        updated_at: Some(state.since.0),
        task_id: task.id.to_string(),
        description: task.description.clone(),
        agent: view.agent,
        base_branch: machine.target_branch().to_owned(),
        worktree_path: view.workspace,
        branch: view.branch,
        priority: task.priority,
        correlation_id: look.run.as_ref().map(ToString::to_string),
        spawned_at: state.started_at.map(|at| at.0),
        pr_url: pull.map(|pull| pull.url.clone()).filter(|url| !url.is_empty()),
        pr_number: pull.and_then(|pull| pull.number),
        merged_at: state.landed.as_ref().map(|landing| landing.at.0),
        commit: view.commit.map(|commit| commit.to_string()),
        error: Some(view.reason).filter(|reason| word == "ERROR" && !reason.is_empty()),
        auto_transition: true,
        waiting_for: view.waiting_for,
        next_action: view.next_action,
    }
}
