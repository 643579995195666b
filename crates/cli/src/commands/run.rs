//! `run`: takes the repository over and works until nothing is left to do.

use std::cell::Cell;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstem_api::actions::DryRunReport;
use mainstem_api::exit_code;
use mainstem_api::run::DetachReport;
use mainstem_core::config::{GateWaitMode, SandboxKind, Settings};
use mainstem_core::machine::{Machine, RestReason};
use mainstem_core::plan::Plan;
use mainstem_engine::accepted_files::INCLUDE_FILE;
use mainstem_engine::driver;
use mainstem_engine::instance::{
    EngineChannel, EngineError, RunRequest, TargetCheck, TargetCheckOutcome,
};
use mainstem_engine::state_check::{self, LostLanding};
use mainstem_host::git::Repo;
use mainstem_host::process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::RunArgs;
use crate::commands::user_git;
use crate::context::{CONFIG_FILE, CliContext, own_executable, text_environment};
use crate::error::{CliError, CommandResult};
use crate::output;
use crate::preflight;
use crate::stream::RunStream;
use crate::summary::{self, SummaryStyle};

const NO_SANDBOX: &str = "warning: the sandbox is off: agents run with your permissions";
const NO_CHECKS: &str = "warning: no checks are set ([gates] verify), so work lands unchecked. \
                         Find a test command: mainstem init --dry-run";

/// How long `run --detach` waits for the engine to be up.
const DETACH_MS: i64 = 20_000;

/// Runs a plan. Ctrl-C at a terminal also reaches the git that is just being asked: what fails for that reason before
/// anything has started is an interruption, not an error.
pub(crate) fn cmd_run(context: &CliContext, args: &RunArgs) -> CommandResult {
    let pressed = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&pressed))
            .map_err(|error| CliError::io_error("signals cannot be caught", &error))?;
    }
    let beginning = Beginning { pressed, begun: Cell::new(false) };
    match run_to_rest(context, args, &beginning) {
        Err(failure) if failure.code == exit_code::ERROR && beginning.is_interrupted() => {
            Err(EngineError::Interrupted.into())
        }
        ended => ended,
    }
}

/// The time before a run has begun.
struct Beginning {
    pressed: Arc<AtomicBool>,
    begun: Cell<bool>,
}

impl Beginning {
    fn is_interrupted(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && !self.begun.get()
    }
}

/// The plan and the options as a request. A plan that could never run is refused.
fn read_request(
    context: &CliContext,
    args: &RunArgs,
    (repo, settings): (&Repo, &Settings),
) -> Result<RunRequest, CliError> {
    let plan = match &args.plan {
        Some(file) => Some(context.read_plan(file, settings)?),
        None => None,
    };
    if let Some(plan) = &plan {
        refuse_unknown_kinds(plan, settings)?;
        refuse_review_without_reviewer(plan, settings)?;
    }
    let mut request = build_request(plan, args);
    request.plan_file = args.plan.as_ref().map(|file| plan_file(context, repo, file));
    Ok(request)
}

fn run_to_rest(context: &CliContext, args: &RunArgs, beginning: &Beginning) -> CommandResult {
    let repo = context.open_repo()?;
    let settings = context.load_settings(Some(&repo))?;
    refuse_unsupported_settings(&settings)?;
    let mut request = read_request(context, args, (&repo, &settings))?;
    if args.dry_run {
        return dry_run(context, &request, &settings);
    }
    warn_about_pending_files(&repo)?;
    warn_about_settings(context, &settings);
    preflight::room_for_files()?;
    let mut session = context.open_engine_instance()?;
    request.new = session.starts_anew(&request)?;
    let (line, global) = (EngineChannel::new(), &context.global);
    stop_on_signals(&line)?;
    if beginning.is_interrupted() {
        return Err(EngineError::Interrupted.into());
    }
    if settings.run.preflight && !args.no_preflight {
        let (place, wish) = ((&repo, &settings), (&line, args.allow_red));
        request.seen = preflight::check_before_run(context, place, &mut session, &request, wish)?;
    }
    if let (Some(target), false) = (session.find_target(&request)?, global.quiet) {
        warn_about_uncommitted(
            &repo,
            &target,
            args.plan.as_ref().map(|plan| context.resolve_path(plan)),
        );
    }
    if args.detach {
        // The engine in the background takes it over, and does not look again.
        drop(session);
        return run_detached(context, &RunArgs { no_preflight: true, ..args.clone() });
    }
    let wall = session.sandbox()?.map(mainstem_engine::sandbox_policy::EngineSandbox::describe);
    let mut face = RunStream::new(global.json, global.quiet, global.verbose > 0, context.color_err);
    let began = mainstem_host::clock::now_ms();
    let target_is_here = repo.current_branch().ok().flatten();
    let passed = request.seen.as_ref().map(target_check_text);
    let ended = session.run(&request, line, &mut face, &mut |run, machine| {
        beginning.begun.set(true);
        if !(global.quiet || global.json) {
            let plan = args.plan.as_ref().map(|plan| plan.display().to_string());
            let head = RunHeader {
                run: run.as_str(),
                plan,
                sandbox: wall.as_deref(),
                passed: passed.as_deref(),
            };
            // Who does not listen misses it.
            let _ = output::write_stdout(&greeting_text(
                &head,
                machine,
                &settings,
                target_is_here.as_deref(),
            ));
            user_git::hooks_text(&repo).iter().for_each(|line| output::write_stderr(line));
        }
    });
    face.clear_live_view();
    // Everything that happened is written before the last word.
    drop(face);
    let (outcome, machine, run) = ended?;
    let lost = state_check::find_lost_landings(&repo, &run, &machine)?;
    let code = match outcome_exit_code(outcome) {
        exit_code::OK if !lost.is_empty() => exit_code::NOT_LANDED,
        code => code,
    };
    let elapsed = u64::try_from(mainstem_host::clock::now_ms() - began).unwrap_or(0);
    print_end(context, &machine, (elapsed, code), &lost);
    Ok(code)
}

/// The last words about a run: what became of it, and what to type next.
fn print_end(
    context: &CliContext,
    machine: &Machine,
    (elapsed, code): (u64, u8),
    lost: &[LostLanding],
) {
    if !context.global.json {
        let sheet = SummaryStyle { color: context.color_out, columns: output::stdout_columns() };
        // A reader that has gone changes nothing about how the run ended.
        let _ = output::write_stdout(&summary::render_summary(machine, elapsed, code, sheet));
        if let Some(to) = machine.bring_to() {
            let from = machine.target_branch();
            output::write_stderr(&format!(
                "The work is on {from}. Merge it into {to}: mainstem land"
            ));
        }
        crate::commands::status::print_lost_landings(lost, machine.target_branch());
    }
    if code == exit_code::INTERRUPTED {
        output::write_stderr(if machine.is_cancelled() {
            "Cancelled. Work is kept in snapshots; to continue: mainstem retry --all, then mainstem run"
        } else {
            "Interrupted. Work is kept; to continue: mainstem run"
        });
    }
}

fn outcome_exit_code(outcome: driver::EngineOutcome) -> u8 {
    match outcome {
        driver::EngineOutcome::Rested(RestReason::Done) => exit_code::OK,
        driver::EngineOutcome::Rested(RestReason::NotLanded) => exit_code::NOT_LANDED,
        driver::EngineOutcome::Rested(RestReason::Interrupted) | driver::EngineOutcome::Left => {
            exit_code::INTERRUPTED
        }
    }
}

fn build_request(plan: Option<Plan>, args: &RunArgs) -> RunRequest {
    RunRequest {
        plan,
        plan_file: None,
        new: args.new,
        tasks: args.task.clone(),
        epics: args.epic.clone(),
        branch: args.branch.clone(),
        jobs: args.jobs,
        merger: None,
        attended: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
        seen: None,
    }
}

/// The place of a plan's file, by which a later run knows it again: relative to the repository where it is in there.
fn plan_file(context: &CliContext, repo: &Repo, file: &Path) -> String {
    let file = context.dir.join(file);
    let file = file.canonicalize().unwrap_or(file);
    let top = repo.toplevel().and_then(|top| top.canonicalize().ok());
    let inside = top.and_then(|top| file.strip_prefix(top).ok().map(Path::to_path_buf));
    inside.unwrap_or(file).display().to_string()
}

fn warn_about_settings(context: &CliContext, settings: &Settings) {
    if !(context.global.quiet || context.global.json) {
        settings_warnings(settings).into_iter().for_each(output::write_stderr);
    }
}

/// Says which landed changes decide nothing yet.
fn warn_about_pending_files(repo: &Repo) -> Result<(), CliError> {
    for file in mainstem_engine::query::list_pending_files(repo, None)? {
        output::write_stderr(&format!(
            "warning: {} was changed by landed work ({}); this run uses the version from before. To use the new version: mainstem config accept",
            file.path,
            file.tasks.join(", ")
        ));
    }
    Ok(())
}

/// Once gently, twice at once, three times whatever hangs.
pub(crate) fn stop_on_signals(line: &EngineChannel) -> Result<(), CliError> {
    let handle = line.handle();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| CliError::io_error("cannot install signal handlers", &error))?;
    std::thread::spawn(move || {
        for count in 1.. {
            if signals.forever().next().is_none() {
                return;
            }
            handle.interrupt();
            if count > 2 {
                exit_now();
            }
        }
    });
    Ok(())
}

/// The third signal: whatever hangs, we are gone. The next run finds everything in the journal.
#[expect(clippy::exit, clippy::disallowed_methods, reason = "the last way out, asked for thrice")]
fn exit_now() -> ! {
    std::process::exit(i32::from(exit_code::INTERRUPTED));
}

/// What is dangerous about these settings, the same whether the run is watched or detached.
fn settings_warnings(settings: &Settings) -> Vec<&'static str> {
    let mut warnings = Vec::new();
    if settings.sandbox.kind == SandboxKind::Off {
        warnings.push(NO_SANDBOX);
    }
    if settings.gates.verify.is_empty() && !settings.land.mode.lands_on_forge() {
        warnings.push(NO_CHECKS);
    }
    warnings
}

/// What the first lines of a run are about.
struct RunHeader<'a> {
    run: &'a str,
    plan: Option<String>,
    sandbox: Option<&'a str>,
    /// What the checks said of the target branch before the run.
    passed: Option<&'a str>,
}

fn greeting_text(
    head: &RunHeader<'_>,
    machine: &Machine,
    settings: &Settings,
    here: Option<&str>,
) -> String {
    let target = machine.target_branch();
    let landed = machine.tasks().count_in_phase(mainstem_core::phase::Phase::Landed);
    let before = if landed > 0 { format!(", {landed} already landed") } else { String::new() };
    let tasks = output::count_noun(machine.plan().tasks.len() as u64, "task");
    let what = match &head.plan {
        Some(plan) => format!("Running {plan} ({})", head.run),
        None => format!("Continuing {}", head.run),
    };
    let place = match machine.bring_to() {
        Some(to) => format!(" (merge into {to} with mainstem land)"),
        None if here == Some(target) => " (checked out here)".to_owned(),
        None => String::new(),
    };
    let jobs = machine.job_limit();
    let first = format!("{what}: {tasks}{before}, {jobs} at a time, landing on {target}{place}");
    let sandbox = head.sandbox.map_or_else(
        || "Sandbox: off.".to_owned(),
        |words| format!("Sandbox: {}.", words.strip_prefix("agents run behind ").unwrap_or(words)),
    );
    let checks = if settings.land.mode.lands_on_forge() {
        "Landing through pull requests, after checks and reviews.".to_owned()
    } else if settings.gates.verify.is_empty() {
        "No checks before landing.".to_owned()
    } else {
        let checks = output::sanitize_text(&settings.gates.verify.join(", "));
        let passed = head.passed.map(|passed| format!(" ({passed})")).unwrap_or_default();
        format!("Checks before landing: {checks}{passed}")
    };
    let columns = output::stdout_columns();
    let first = output::indent_block(&first, 0, columns);
    let second = output::indent_block(&format!("{sandbox} {checks}"), 0, columns);
    format!("{first}{second}\n")
}

/// What the checks said of the target branch.
fn target_check_text(seen: &TargetCheck) -> String {
    match seen.outcome {
        TargetCheckOutcome::Passed => {
            format!("passed on {} in {}", seen.target, output::format_duration(seen.duration_ms))
        }
        _ => format!("passed before on {}", seen.target),
    }
}

/// Files that one line names.
const NAMED_MAX: usize = 5;

/// Work that changes the same files as the user's edits waits: that is said before it happens.
fn warn_about_uncommitted(repo: &Repo, target: &str, plan: Option<PathBuf>) {
    let Ok(found) = repo.list_uncommitted_files(target) else { return };
    // What `mainstem init` wrote, or the plan itself, is in nobody's way.
    let own = [CONFIG_FILE, INCLUDE_FILE, "plan.toml"];
    let plan = plan.and_then(|plan| plan.canonicalize().ok());
    for mut way in found {
        way.paths.retain(|path| {
            let is_plan = || plan.is_some() && way.checkout.join(path).canonicalize().ok() == plan;
            !own.contains(&path.as_str()) && !is_plan()
        });
        if way.paths.is_empty() {
            continue;
        }
        // A file may be both staged and edited.
        way.paths.sort_unstable();
        way.paths.dedup();
        let more = way.paths.len().saturating_sub(NAMED_MAX);
        let mut names = way.paths.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        if more > 0 {
            names.push_str(&format!(" and {more} more"));
        }
        let what = format!("warning: {} has uncommitted changes: {names}", way.checkout.display());
        let then = "work that changes these files waits until you commit or stash them; to land on a \
                    branch of its own instead: mainstem run --branch NAME";
        let columns = output::stdout_columns();
        let then = output::indent_block(then, 9, columns);
        output::write_stderr(
            format!("{}{then}", output::indent_block(&what, 0, columns)).trim_end(),
        );
    }
}

/// Settings that the configuration knows and this version cannot honour are refused, never ignored.
fn refuse_unsupported_settings(settings: &Settings) -> Result<(), CliError> {
    match settings.unsupported_settings().first() {
        Some((key, instead)) => {
            Err(CliError::new(format!("this version does not support this value of {key}"))
                .with_hint(format!(
                    "set {key} = \"{instead}\"; see where it is set: mainstem config {key}"
                )))
        }
        None => Ok(()),
    }
}

/// A gate that could never give a verdict is refused before anything starts.
fn refuse_review_without_reviewer(plan: &Plan, settings: &Settings) -> Result<(), CliError> {
    let asks = |line: &String| line.trim() == mainstem_core::review::GATE;
    let task = plan.tasks.iter().find(|task| task.verify.iter().any(asks));
    match task.filter(|_| settings.review.agents.is_empty()) {
        Some(task) => {
            Err(CliError::new(format!("{} requires a review, but no reviewer is set", task.id))
                .with_hint("add reviewers to mainstem.toml: [review] agents = [\"…\"]"))
        }
        None => Ok(()),
    }
}

/// Agents whose adapters are not there yet are refused before anything starts.
fn refuse_unknown_kinds(plan: &Plan, settings: &Settings) -> Result<(), CliError> {
    for task in &plan.tasks {
        let builtin = task.run.is_some() || !task.script.is_empty();
        let name = match (&task.agent, builtin) {
            (Some(name), _) => name,
            (None, true) => continue,
            (None, false) => match &settings.run.agent {
                Some(name) => name,
                None => continue,
            },
        };
        let Some(agent) = settings.agents.get(name) else { continue };
        if let Err(error) = mainstem_agents::find_adapter(&agent.kind) {
            return Err(CliError::new(format!("task {}, agent {name}: {error}", task.id)));
        }
        if agent.kind == "command" && agent.command.is_empty() && task.run.is_none() {
            return Err(CliError::new(format!("task {}: agent {name} has no command", task.id))
                .with_hint(format!("give the task `run = \"…\"`, or set agents.{name}.command")));
        }
    }
    Ok(())
}

fn dry_run(context: &CliContext, request: &RunRequest, settings: &Settings) -> CommandResult {
    let (_, layout, look) = context.open_run(None)?;
    let other = || mainstem_engine::instance::starts_anew(&look.machine, request, settings);
    let fresh = request.new || look.run.is_none() || other()?;
    let mut machine = if fresh { Machine::new(settings.clone()) } else { look.machine };
    if let Some(plan) = &request.plan {
        mainstem_engine::instance::check_dropped(&machine, plan)?;
        let hash = mainstem_engine::instance::hash_plan(plan);
        let input = mainstem_core::machine::Input::AdoptPlan { plan: Box::new(plan.clone()), hash };
        machine.step(input, mainstem_core::id::Time(0));
    } else if fresh {
        return Err(mainstem_engine::instance::EngineError::NoRun.into());
    }
    let begin = mainstem_core::machine::Input::Begin {
        epoch: 0,
        pid: 0,
        host: String::new(),
        version: String::new(),
        scope: mainstem_engine::instance::select_scope(&machine, request)?,
    };
    let before = machine.clone();
    let mut dry = machine;
    let now = mainstem_core::id::Time(mainstem_host::clock::now_ms());
    dry.step(begin, now);
    let starts: Vec<String> =
        dry.tasks().active_tasks().map(|t| dry.plan().tasks[t.index()].id.to_string()).collect();
    if context.global.json {
        let ahead = before.expectations(now);
        let task = |t| mainstem_engine::query::status::build_task_status(&before, &ahead, t);
        let tasks: Vec<_> = before.tasks().all_tasks().map(task).collect();
        output::write_json(&DryRunReport { starts, tasks })?;
    } else {
        output::write_stdout(&crate::commands::status::task_table(&before, context.color_out))?;
        output::write_stderr(&format!(
            "would start now: {} (workspaces in {}); nothing was started",
            if starts.is_empty() { "nothing".to_owned() } else { starts.join(", ") },
            layout.workspace_root().display()
        ));
    }
    Ok(exit_code::OK)
}

/// Starts the same command again in the background and waits until it is up.
fn run_detached(context: &CliContext, args: &RunArgs) -> CommandResult {
    let (pid, log) = start_in_background(context, args)?;
    let (_, _, look) = context.open_run(None)?;
    let run = look.run.map(|run| run.to_string()).unwrap_or_default();
    if context.global.json {
        let log = log.display().to_string();
        output::write_json(&DetachReport { run, pid, log })?;
    } else {
        output::write_stderr(&format!("{run} is running in the background (pid {pid})"));
        output::write_stderr(
            "watch it: mainstem watch    see its status: mainstem status    stop it: mainstem stop",
        );
    }
    Ok(exit_code::OK)
}

/// The engine's process and where its messages are, once it is up.
pub(crate) fn start_in_background(
    context: &CliContext,
    args: &RunArgs,
) -> Result<(u32, std::path::PathBuf), CliError> {
    let (_, _, layout) = context.load_repo_context()?;
    let exe = own_executable()?;
    let mut argv = vec![exe.to_string_lossy().into_owned()];
    let mut push = |words: &[&str]| argv.extend(words.iter().map(ToString::to_string));
    push(&["-C", &context.dir.to_string_lossy(), "--no-color"]);
    for pair in &context.global.config {
        push(&["--config", pair]);
    }
    let settings = context.load_settings(Some(&context.open_repo()?))?;
    if settings.gates.wait == GateWaitMode::Auto {
        // It holds nobody's terminal: it may wait for people.
        push(&["--config", "gates.wait=always"]);
    }
    push(&["run"]);
    if let Some(plan) = &args.plan {
        push(&[&context.resolve_path(plan).to_string_lossy()]);
    }
    if let Some(jobs) = args.jobs {
        push(&["-j", &jobs.to_string()]);
    }
    for epic in &args.epic {
        push(&["--epic", epic]);
    }
    for task in &args.task {
        push(&["--task", task]);
    }
    push(&background_flags(args));
    if let Some(branch) = &args.branch {
        push(&["--branch", branch]);
    }
    std::fs::create_dir_all(layout.state_dir())
        .map_err(|error| CliError::io_error("cannot create the state folder", &error))?;
    let log = layout.engine_log_path();
    let mut child = process::spawn_detached(&argv, &context.dir, &text_environment(), &log)
        .map_err(|error| CliError::io_error("cannot start the background run", &error))?;
    let deadline = mainstem_host::clock::now_ms() + DETACH_MS;
    loop {
        let ended = child
            .try_wait()
            .map_err(|error| CliError::io_error("lost contact with the background run", &error))?;
        let up = mainstem_engine::control_socket::send_request(
            &layout.socket_path(),
            &mainstem_api::control::ControlRequest::Ping,
        );
        if let Ok(response) = up
            && response.data.is_some_and(|data| data["pid"] == child.id())
        {
            break;
        }
        if let Some(status) = ended {
            // It may have come to rest before it was asked.
            if status.success() || status.code() == Some(i32::from(exit_code::NOT_LANDED)) {
                break;
            }
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            let mut failure = CliError::new("the background run exited immediately");
            failure.code = code.unwrap_or(exit_code::ERROR);
            failure.causes.extend(log_tail(&log));
            return Err(failure.with_hint(format!("full output: {}", log.display())));
        }
        if mainstem_host::clock::now_ms() > deadline {
            return Err(CliError::new("the background run did not start in time")
                .with_hint(format!("full output: {}", log.display())));
        }
        process::sleep_ms(50);
    }
    Ok((child.id(), log))
}

/// Flags without a value that the engine in the background gets as well.
fn background_flags(args: &RunArgs) -> Vec<&'static str> {
    let given = [
        ("--new", args.new),
        ("--allow-red", args.allow_red),
        ("--no-preflight", args.no_preflight),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
}

fn log_tail(log: &std::path::Path) -> Option<String> {
    let mut text = Vec::new();
    std::fs::File::open(log).ok()?.take(1 << 20).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    Some(lines.into_iter().rev().collect::<Vec<_>>().join("\n         "))
}
