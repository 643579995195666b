//! The command line: parses, dispatches, prints, and ends with a documented exit code.

mod args;
mod commands;
mod context;
mod drive;
mod failure;
mod graph;
mod pen;
mod print;
mod script_agent;
mod stream;

use std::process::ExitCode;

use clap::Parser;
use mainstem_api::control::Request;
use mainstem_api::exit_code;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::failure::{Failure, Outcome};

fn main() -> ExitCode {
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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are data, not errors.
            let code = if error.use_stderr() { exit_code::USAGE } else { exit_code::OK };
            let _ = error.print();
            return ExitCode::from(code);
        }
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
        .map_err(|error| Failure::io("the client could not be served", &error))?;
    Ok(exit_code::OK)
}

fn dispatch(cli: Cli) -> Outcome {
    let command = match cli.command {
        Command::Script { file } => {
            return Ok(u8::try_from(script_agent::main(&file)).unwrap_or(1));
        }
        Command::Drive { spec } => return Ok(u8::try_from(drive::main(&spec)).unwrap_or(1)),
        Command::Sleep { ms } => return Ok(u8::try_from(script_agent::sleep_main(ms)).unwrap_or(1)),
        Command::Mcp => return mcp(),
        Command::Supervise { .. } => return Ok(exit_code::USAGE),
        other => other,
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
        Command::Pause => c::steer::steer(context, vec![Request::Pause]),
        Command::Resume => c::steer::steer(context, vec![Request::Resume]),
        Command::Cancel(args) if args.tasks.is_empty() => {
            c::steer::steer(context, vec![Request::Cancel { task: None }])
        }
        Command::Cancel(args) => {
            let one = |task| Request::Cancel { task: Some(task) };
            c::steer::steer(context, args.tasks.into_iter().map(one).collect())
        }
        Command::Retry(args) => c::steer::retry(context, &args),
        Command::Skip(args) => {
            let one = |task| Request::Skip { task };
            c::steer::steer(context, args.tasks.into_iter().map(one).collect())
        }
        Command::Jobs(args) => c::steer::steer(context, vec![Request::Jobs { n: args.n }]),
        Command::Answer(args) => {
            let text = args.text.join(" ");
            c::steer::steer(context, vec![Request::Answer { question: args.question, text }])
        }
        Command::Proposals(args) => c::proposals::proposals(context, args.run.as_deref()),
        Command::Accept(args) => c::proposals::decide(context, args.proposals, true),
        Command::Reject(args) => c::proposals::decide(context, args.proposals, false),
        Command::Restore(args) => c::restore::restore(context, &args),
        Command::Undo(args) => c::care::undo(context, &args),
        Command::Clean(args) => c::care::clean(context, &args),
        Command::Doctor => c::doctor::doctor(context),
        Command::Agents => c::agents::agents(context),
        Command::Config(args) => c::settings::config(context, &args),
        Command::Completions(args) => c::reference::completions(args.shell),
        Command::Man(args) => c::reference::man(context, &args),
        Command::Reference { dir } => c::reference::write(&dir),
        Command::Supervise { .. }
        | Command::Script { .. }
        | Command::Drive { .. }
        | Command::Mcp
        | Command::Sleep { .. } => Ok(exit_code::USAGE),
    }
}
