//! `run`: takes the repository over and works until nothing is left to do.

use std::io::{IsTerminal, Read};

use mainstem_api::exit_code;
use mainstem_core::config::{Settings, Waits};
use mainstem_core::machine::{Machine, Rest};
use mainstem_core::plan::Plan;
use mainstem_engine::driver;
use mainstem_engine::session::{Line, RunRequest};
use mainstem_host::process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::RunArgs;
use crate::context::{Context, environment, own_exe};
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::stream::{self, Stream};

const NO_WALL: &str = "the sandbox is off: agents run with your rights";

/// How long `run --detach` waits for the engine to be up.
const DETACH_MS: i64 = 20_000;

/// Runs a plan.
pub(crate) fn run(context: &Context, args: &RunArgs) -> Outcome {
    let repo = context.repo()?;
    let settings = context.settings(Some(&repo))?;
    refuse_unbuilt(&settings)?;
    let plan = match &args.plan {
        Some(file) => Some(context.plan(file, &settings)?),
        None => None,
    };
    if let Some(plan) = &plan {
        refuse_unknown_kinds(plan, &settings)?;
        refuse_review_by_nobody(plan, &settings)?;
    }
    let request = RunRequest {
        plan,
        new: args.new,
        tasks: args.task.clone(),
        epics: args.epic.clone(),
        jobs: args.jobs,
        merger: None,
        attended: std::io::stdin().is_terminal() && std::io::stderr().is_terminal(),
    };
    if args.dry_run {
        return dry_run(context, &request, &settings);
    }
    if args.detach {
        return detach(context, args);
    }
    let mut session = context.session()?;
    let wall = session.walls()?.map(mainstem_engine::walls::Walls::describe);
    let line = Line::new();
    stop_on_signals(&line)?;
    let global = &context.global;
    let mut face = Stream::new(global.json, global.quiet, global.verbose > 0, context.color_err);
    let began = mainstem_host::clock::now_ms();
    let target_is_here = repo.current_branch().ok().flatten();
    let ended = session.run(&request, line, &mut face, &mut |run, machine| {
        if !(global.quiet || global.json) {
            let wall = wall.as_deref().unwrap_or(NO_WALL);
            greet(run.as_str(), machine, (&settings, wall), target_is_here.as_deref());
        }
    });
    face.wipe();
    // Everything that happened is written before the last word.
    drop(face);
    let (outcome, machine, run) = ended?;
    if !global.json {
        print::err(stream::summary(&machine, run.as_str(), began, context.color_err).trim_end());
    }
    Ok(match outcome {
        driver::Outcome::Rested(Rest::Done) => exit_code::OK,
        driver::Outcome::Rested(Rest::NotLanded) => exit_code::NOT_LANDED,
        driver::Outcome::Rested(Rest::Interrupted) | driver::Outcome::Left => {
            print::err(if machine.is_cancelled() {
                "cancelled; work is kept in snapshots. To go on: mainstem retry --all, then mainstem run"
            } else {
                "interrupted; nothing is lost. To go on: mainstem run"
            });
            exit_code::INTERRUPTED
        }
    })
}

/// Once gently, twice at once, three times whatever hangs.
pub(crate) fn stop_on_signals(line: &Line) -> Result<(), Failure> {
    let handle = line.handle();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::io("signals cannot be caught", &error))?;
    std::thread::spawn(move || {
        for count in 1.. {
            if signals.forever().next().is_none() {
                return;
            }
            handle.interrupt();
            if count > 2 {
                leave_now();
            }
        }
    });
    Ok(())
}

/// The third signal: whatever hangs, we are gone. The next run finds everything in the journal.
#[expect(clippy::exit, clippy::disallowed_methods, reason = "the last way out, asked for thrice")]
fn leave_now() -> ! {
    std::process::exit(i32::from(exit_code::INTERRUPTED));
}

fn greet(run: &str, machine: &Machine, (settings, wall): (&Settings, &str), here: Option<&str>) {
    let target = machine.target();
    let landed = machine.tasks().count(mainstem_core::phase::Phase::Landed);
    let resumed = if landed > 0 { format!(", {landed} landed before") } else { String::new() };
    let tasks = machine.plan().tasks.len();
    let noun = if tasks == 1 { "task" } else { "tasks" };
    print::err(&format!(
        "{run}: {tasks} {noun}{resumed}, {} at once, landing on {target}",
        machine.jobs()
    ));
    if here == Some(target) {
        print::err("your checkout follows the landings; files you have edited are never touched");
    }
    print::err(wall);
    if settings.land.mode.by_pull() {
        print::err(
            "work lands by pull requests: their checks and reviews decide, the forge merges",
        );
    } else if settings.gates.verify.is_empty() {
        print::err(
            "no [gates] verify is set: whatever merges will land. mainstem init finds a test command",
        );
    }
}

/// Settings that the configuration knows and this version cannot honour are refused, never ignored.
fn refuse_unbuilt(settings: &Settings) -> Result<(), Failure> {
    match settings.unbuilt().first() {
        Some((key, instead)) => Err(Failure::new(format!(
            "this version cannot do what {key} asks for"
        ))
        .hint(format!("set {key} = \"{instead}\"; mainstem config {key} says where it is set"))),
        None => Ok(()),
    }
}

/// A gate that could never give a verdict is refused before anything starts.
fn refuse_review_by_nobody(plan: &Plan, settings: &Settings) -> Result<(), Failure> {
    let asks = |line: &String| line.trim() == mainstem_core::review::GATE;
    let task = plan.tasks.iter().find(|task| task.verify.iter().any(asks));
    match task.filter(|_| settings.review.agents.is_empty()) {
        Some(task) => {
            Err(Failure::new(format!("{} asks for a review, and nobody reviews", task.id))
                .hint("name reviewers in mainstem.toml: [review] agents = [\"…\"]"))
        }
        None => Ok(()),
    }
}

/// Agents whose adapters are not there yet are refused before anything starts.
fn refuse_unknown_kinds(plan: &Plan, settings: &Settings) -> Result<(), Failure> {
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
        if let Err(error) = mainstem_agents::adapter(&agent.kind) {
            return Err(Failure::new(format!("task {}, agent {name}: {error}", task.id)));
        }
        if agent.kind == "command" && agent.command.is_empty() && task.run.is_none() {
            return Err(Failure::new(format!("task {}: agent {name} has no command", task.id))
                .hint(format!("give the task `run = \"…\"`, or set agents.{name}.command")));
        }
    }
    Ok(())
}

fn dry_run(context: &Context, request: &RunRequest, settings: &Settings) -> Outcome {
    let (_, layout, look) = context.look(None)?;
    let fresh = request.new || look.run.is_none();
    let mut machine = if fresh { Machine::new(settings.clone()) } else { look.machine };
    if let Some(plan) = &request.plan {
        let hash = mainstem_engine::session::plan_hash(plan);
        let input = mainstem_core::machine::Input::AdoptPlan { plan: Box::new(plan.clone()), hash };
        machine.step(input, mainstem_core::id::Time(0));
    } else if fresh {
        return Err(mainstem_engine::session::SessionError::NoRun.into());
    }
    let begin = mainstem_core::machine::Input::Begin {
        epoch: 0,
        pid: 0,
        host: String::new(),
        version: String::new(),
        scope: mainstem_engine::session::scope_of(&machine, request)?,
    };
    let mut dry = machine;
    dry.step(begin, mainstem_core::id::Time(mainstem_host::clock::now_ms()));
    let starts: Vec<String> =
        dry.tasks().active().map(|t| dry.plan().tasks[t.ix()].id.to_string()).collect();
    if context.global.json {
        let tasks: Vec<_> =
            dry.tasks().all().map(|t| mainstem_engine::look::task_status(&dry, t)).collect();
        print::out_json(&serde_json::json!({ "starts": starts, "tasks": tasks }))?;
    } else {
        print::out(&crate::commands::status::table(&dry, context.color_out))?;
        print::err(&format!(
            "would start now: {} (workspaces under {}); nothing was started",
            if starts.is_empty() { "nothing".to_owned() } else { starts.join(", ") },
            layout.root().display()
        ));
    }
    Ok(exit_code::OK)
}

/// Starts the same command again in the background and waits until it is up.
fn detach(context: &Context, args: &RunArgs) -> Outcome {
    let (pid, log) = start_in_background(context, args)?;
    let (_, _, look) = context.look(None)?;
    let run = look.run.map(|run| run.to_string()).unwrap_or_default();
    if context.global.json {
        print::out_json(&serde_json::json!({ "run": run, "pid": pid, "log": log }))?;
    } else {
        print::err(&format!("{run} runs in the background (pid {pid})"));
        print::err("watch: mainstem history -f · mainstem status    stop: mainstem cancel");
    }
    Ok(exit_code::OK)
}

/// The engine's process and where its messages are, once it is up.
pub(crate) fn start_in_background(
    context: &Context,
    args: &RunArgs,
) -> Result<(u32, std::path::PathBuf), Failure> {
    let (_, _, layout) = context.place()?;
    let exe = own_exe()?;
    let mut argv = vec![exe.to_string_lossy().into_owned()];
    let mut push = |words: &[&str]| argv.extend(words.iter().map(ToString::to_string));
    push(&["-C", &context.dir.to_string_lossy(), "--no-color"]);
    for pair in &context.global.config {
        push(&["--config", pair]);
    }
    let settings = context.settings(Some(&context.repo()?))?;
    if settings.gates.wait == Waits::Auto {
        // It holds nobody's terminal: it may wait for people.
        push(&["--config", "gates.wait=always"]);
    }
    push(&["run"]);
    if let Some(plan) = &args.plan {
        push(&[&context.path(plan).to_string_lossy()]);
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
    if args.new {
        push(&["--new"]);
    }
    std::fs::create_dir_all(layout.state())
        .map_err(|error| Failure::io("the state folder cannot be made", &error))?;
    let log = layout.engine_log();
    let mut child = process::spawn_detached(&argv, &context.dir, &environment(), &log)
        .map_err(|error| Failure::io("the engine cannot be started", &error))?;
    let deadline = mainstem_host::clock::now_ms() + DETACH_MS;
    loop {
        let ended = child.try_wait().map_err(|error| Failure::io("the engine was lost", &error))?;
        let up =
            mainstem_engine::control::ask(&layout.socket(), &mainstem_api::control::Request::Ping);
        if let Ok(response) = up
            && response.data.is_some_and(|data| data["pid"] == child.id())
        {
            break;
        }
        if let Some(status) = ended {
            if status.success() {
                break;
            }
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            let mut failure = Failure::new("the engine ended at once");
            failure.code = code.unwrap_or(exit_code::ERROR);
            failure.causes.extend(tail(&log));
            return Err(failure.hint(format!("its messages are in {}", log.display())));
        }
        if mainstem_host::clock::now_ms() > deadline {
            return Err(Failure::new("the engine did not answer in time")
                .hint(format!("its messages are in {}", log.display())));
        }
        process::pause_ms(50);
    }
    Ok((child.id(), log))
}

fn tail(log: &std::path::Path) -> Option<String> {
    let mut text = Vec::new();
    std::fs::File::open(log).ok()?.take(1 << 20).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    Some(lines.into_iter().rev().collect::<Vec<_>>().join("\n         "))
}
