//! The command line: parses, dispatches, prints, and ends with a documented exit code.

mod args;
mod commands;
mod context;
mod drive;
mod ecosystem;
mod failure;
mod graph;
mod help;
mod pen;
mod preflight;
mod print;
mod script_agent;
mod events;
mod live;
mod stream;
mod summary;
mod versions;
#[cfg(test)]
mod voice;

use std::process::ExitCode;

use mainstem_api::control::Request;
use mainstem_api::exit_code;
use mainstem_core::inbox;

use crate::args::Cli;
use crate::args::{Command, ConfigCommand};
use crate::context::Context;
use crate::failure::{Failure, Outcome};

fn main() -> ExitCode {
    // A write beyond `ulimit -f` is then an error with a message instead of the end of this process. Programs that are
    // started from here have the system's way again.
    let beyond_limit = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, beyond_limit);
    // The supervisor must be alone in its process: it is dispatched before anything else happens.
    let mut early = std::env::args_os().skip(1);
    if early.next().is_some_and(|first| first == "__supervise")
        && let Some(dir) = early.next()
    {
        let code = mainstem_host::process::supervise(std::path::Path::new(&dir));
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let mut early = std::env::args_os().skip(1);
    if early.next().is_some_and(|first| first == mainstem_host::wall::STEP) {
        return ExitCode::from(mainstem_host::wall::step(&early.collect::<Vec<_>>()));
    }
    let cli = match help::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    let json = cli.global.json;
    let color = !cli.global.no_color;
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let color = color
                && std::io::IsTerminal::is_terminal(&std::io::stderr())
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            if !failure.message.is_empty() {
                if json {
                    print::err(&failure.json().to_string());
                } else {
                    print::err(failure.render(color).trim_end());
                }
            }
            ExitCode::from(failure.code)
        }
    }
}

/// The server that an agent's program starts: standard output is the protocol's.
fn mcp() -> Outcome {
    let get = |name: &str| std::env::var(name).ok();
    let surroundings = mainstem_mcp::Surroundings::from_env(get)
        .map_err(|missing| Failure::new(missing.to_string()))?;
    mainstem_mcp::serve(surroundings, env!("CARGO_PKG_VERSION"))
        .map_err(|error| Failure::io("cannot serve the MCP client", &error))?;
    Ok(exit_code::OK)
}

/// Commands that the engine and agents start; gives back those that are for people.
fn internal(command: Command) -> Result<Command, Outcome> {
    Err(match command {
        Command::Script { file } => Ok(u8::try_from(script_agent::main(&file)).unwrap_or(1)),
        Command::Drive { spec } => Ok(u8::try_from(drive::main(&spec)).unwrap_or(1)),
        Command::Sleep { ms } => Ok(u8::try_from(script_agent::sleep_main(ms)).unwrap_or(1)),
        Command::Mcp => mcp(),
        Command::EmptyTrash { trash } => mainstem_engine::trash::empty(&trash)
            .map(|()| exit_code::OK)
            .map_err(|error| Failure::io("cannot empty the trash folder", &error)),
        Command::Supervise { .. } => Ok(exit_code::USAGE),
        other => return Ok(other),
    })
}

/// Commands that become requests to a run.
fn steer(context: &Context, command: Command) -> Outcome {
    let requests = match command {
        Command::Pause => vec![Request::Pause],
        Command::Resume => vec![Request::Resume],
        Command::Cancel(args) if args.tasks.is_empty() => vec![Request::Cancel { task: None }],
        Command::Cancel(args) => {
            args.tasks.into_iter().map(|task| Request::Cancel { task: Some(task) }).collect()
        }
        Command::Skip(args) => args.tasks.into_iter().map(|task| Request::Skip { task }).collect(),
        Command::Jobs(args) => vec![Request::Jobs { n: args.n }],
        Command::Answer(args) if args.question.eq_ignore_ascii_case(inbox::CONFIG) => {
            return commands::settings::answer(context, &args.text.join(" "));
        }
        Command::Answer(args) => {
            let (text, free) = (args.text.join(" "), args.free);
            vec![Request::Answer { question: args.question, text, free }]
        }
        _ => return Ok(exit_code::USAGE),
    };
    commands::steer::steer(context, requests)
}

fn dispatch(cli: Cli) -> Outcome {
    let command = match internal(cli.command) {
        Ok(command) => command,
        Err(outcome) => return outcome,
    };
    let context = Context::new(cli.global)?;
    let context = &context;
    use commands as c;
    match command {
        Command::Demo(args) => c::demo::demo(context, &args),
        Command::Init(args) => c::init::init(context, &args),
        Command::Plan(args) => c::plan::plan(context, &args),
        Command::Gates(args) => c::gates::gates(context, &args.command),
        Command::Run(args) => c::run::run(context, &args),
        Command::Status(args) => c::status::status(context, args.run.as_deref()),
        Command::Questions(args) => c::status::questions(context, args.run.as_deref()),
        Command::Cost(args) => c::cost::cost(context, &args),
        Command::Merge(args) => c::merge::merge(context, &args),
        Command::Worker(args) => c::worker::worker(context, &args.command),
        Command::Train(args) => c::status::train(context, args.run.as_deref()),
        Command::Show(args) => c::show::show(context, &args),
        Command::Diff(args) => c::diff::diff(context, &args),
        Command::Graph(args) => c::plan::graph(context, &args),
        Command::Logs(args) => c::logs::logs(context, &args),
        Command::Lessons(args) => c::lessons::lessons(context, args.command.as_ref()),
        Command::History(args) => c::history::history(context, &args),
        Command::Retry(args) => c::steer::retry(context, &args),
        other @ (Command::Pause
        | Command::Resume
        | Command::Cancel(_)
        | Command::Skip(_)
        | Command::Jobs(_)
        | Command::Answer(_)) => steer(context, other),
        Command::Proposals(args) => c::proposals::proposals(context, args.run.as_deref()),
        Command::Accept(args) => c::proposals::decide(context, args.proposals, true),
        Command::Reject(args) => c::proposals::decide(context, args.proposals, false),
        Command::Restore(args) => c::restore::restore(context, &args),
        Command::Undo(args) => c::care::undo(context, &args),
        Command::Land => c::land::land(context),
        Command::Clean(args) => c::care::clean(context, &args),
        Command::Shell(args) => c::visit::shell(context, &args),
        Command::Open(args) => c::visit::open(context, &args),
        Command::Stop(args) => c::background::stop(context, &args),
        Command::Watch => c::background::watch(context),
        Command::Runs => c::background::runs(context),
        Command::Doctor(args) => c::doctor::doctor(context, &args),
        Command::Agents => c::agents::agents(context),
        Command::Config(args) => match &args.command {
            Some(ConfigCommand::Accept) => c::settings::accept(context),
            Some(ConfigCommand::Set(args)) => c::set::set(context, args),
            None => c::settings::config(context, &args),
        },
        Command::Completions(args) => c::reference::completions(args.shell),
        Command::Man(args) => c::reference::man(context, &args),
        Command::Reference { dir } => c::reference::write(&dir),
        Command::Supervise { .. }
        | Command::Script { .. }
        | Command::Drive { .. }
        | Command::Mcp
        | Command::EmptyTrash { .. }
        | Command::Sleep { .. } => Ok(exit_code::USAGE),
    }
}
