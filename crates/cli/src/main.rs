//! The command line: parses, dispatches, prints, and ends with a documented exit code.

mod args;
mod commands;
mod context;
mod drive;
mod ecosystem;
mod error;
mod graph;
mod help;
mod async_writer;
mod preflight;
mod output;
mod script_agent;
mod events;
mod live_view;
mod stream;
mod summary;
mod tool_versions;
#[cfg(test)]
mod voice;

use std::process::ExitCode;

use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_core::inbox;

use crate::args::CliArgs;
use crate::args::{CliCommand, ConfigCommand};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};

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
        let code = mainstem_host::process::supervise_job(std::path::Path::new(&dir));
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let mut early = std::env::args_os().skip(1);
    if early.next().is_some_and(|first| first == mainstem_host::sandbox::SANDBOX_STEP) {
        return ExitCode::from(mainstem_host::sandbox::run_sandbox_step(
            &early.collect::<Vec<_>>(),
        ));
    }
    let cli = match help::parse_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return ExitCode::from(code),
    };
    let json = cli.global.json;
    let color = !cli.global.no_color;
    match dispatch_command(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let color = color
                && std::io::IsTerminal::is_terminal(&std::io::stderr())
                && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            if !failure.message.is_empty() {
                if json {
                    output::write_stderr(&output::json_line(&failure.report()));
                } else {
                    output::write_stderr(failure.render(color).trim_end());
                }
            }
            ExitCode::from(failure.code)
        }
    }
}

/// The server that an agent's program starts: standard output is the protocol's.
fn serve_mcp() -> CommandResult {
    let get = |name: &str| std::env::var(name).ok();
    let surroundings = mainstem_mcp::McpEnvironment::from_env(get)
        .map_err(|missing| CliError::new(missing.to_string()))?;
    mainstem_mcp::serve(surroundings, env!("CARGO_PKG_VERSION"))
        .map_err(|error| CliError::io_error("cannot serve the MCP client", &error))?;
    Ok(exit_code::OK)
}

/// Commands that the engine and agents start; gives back those that are for people.
fn run_internal_command(command: CliCommand) -> Result<CliCommand, CommandResult> {
    Err(match command {
        CliCommand::Script { file } => {
            Ok(u8::try_from(script_agent::run_script_file(&file)).unwrap_or(1))
        }
        CliCommand::Drive { spec } => Ok(u8::try_from(drive::run_drive(&spec)).unwrap_or(1)),
        CliCommand::Sleep { ms } => Ok(u8::try_from(script_agent::run_sleeper(ms)).unwrap_or(1)),
        CliCommand::Mcp => serve_mcp(),
        CliCommand::EmptyTrash { trash } => mainstem_engine::trash::empty_trash_folder(&trash)
            .map(|()| exit_code::OK)
            .map_err(|error| CliError::io_error("cannot empty the trash folder", &error)),
        CliCommand::Supervise { .. } => Ok(exit_code::USAGE),
        other => return Ok(other),
    })
}

/// Commands that become requests to a run.
fn dispatch_control(context: &CliContext, command: CliCommand) -> CommandResult {
    let requests = match command {
        CliCommand::Pause => vec![ControlRequest::Pause],
        CliCommand::Resume => vec![ControlRequest::Resume],
        CliCommand::Cancel(args) if args.tasks.is_empty() => {
            vec![ControlRequest::Cancel { task: None }]
        }
        CliCommand::Cancel(args) => {
            args.tasks.into_iter().map(|task| ControlRequest::Cancel { task: Some(task) }).collect()
        }
        CliCommand::Skip(args) => {
            args.tasks.into_iter().map(|task| ControlRequest::Skip { task }).collect()
        }
        CliCommand::Jobs(args) => vec![ControlRequest::Jobs { n: args.n }],
        CliCommand::Answer(args) if args.question.eq_ignore_ascii_case(inbox::CONFIG) => {
            return commands::config::answer_pending(context, &args.text.join(" "));
        }
        CliCommand::Answer(args) => {
            let (text, free) = (args.text.join(" "), args.free);
            vec![ControlRequest::Answer { question: args.question, text, free }]
        }
        _ => return Ok(exit_code::USAGE),
    };
    commands::control_client::run_requests(context, requests)
}

fn dispatch_command(cli: CliArgs) -> CommandResult {
    let command = match run_internal_command(cli.command) {
        Ok(command) => command,
        Err(outcome) => return outcome,
    };
    let context = CliContext::new(cli.global)?;
    let context = &context;
    use commands as c;
    match command {
        CliCommand::Demo(args) => c::demo::cmd_demo(context, &args),
        CliCommand::Init(args) => c::init::cmd_init(context, &args),
        CliCommand::Plan(args) => c::plan::cmd_plan(context, &args),
        CliCommand::Gates(args) => c::gates::cmd_gates(context, &args.command),
        CliCommand::Run(args) => c::run::cmd_run(context, &args),
        CliCommand::Status(args) => c::status::cmd_status(context, args.run.as_deref()),
        CliCommand::Questions(args) => c::status::cmd_questions(context, args.run.as_deref()),
        CliCommand::Cost(args) => c::cost::cmd_cost(context, &args),
        CliCommand::Merge(args) => c::merge::cmd_merge(context, &args),
        CliCommand::Worker(args) => c::worker::cmd_worker(context, &args.command),
        CliCommand::Train(args) => c::status::cmd_train(context, args.run.as_deref()),
        CliCommand::Show(args) => c::show::cmd_show(context, &args),
        CliCommand::Diff(args) => c::diff::cmd_diff(context, &args),
        CliCommand::Graph(args) => c::plan::cmd_graph(context, &args),
        CliCommand::Logs(args) => c::logs::cmd_logs(context, &args),
        CliCommand::Lessons(args) => c::lessons::cmd_lessons(context, args.command.as_ref()),
        CliCommand::History(args) => c::history::cmd_history(context, &args),
        CliCommand::Retry(args) => c::control_client::cmd_retry(context, &args),
        other @ (CliCommand::Pause
        | CliCommand::Resume
        | CliCommand::Cancel(_)
        | CliCommand::Skip(_)
        | CliCommand::Jobs(_)
        | CliCommand::Answer(_)) => dispatch_control(context, other),
        CliCommand::Proposals(args) => c::proposals::cmd_proposals(context, args.run.as_deref()),
        CliCommand::Accept(args) => c::proposals::decide_proposals(context, args.proposals, true),
        CliCommand::Reject(args) => c::proposals::decide_proposals(context, args.proposals, false),
        CliCommand::Restore(args) => c::restore::cmd_restore(context, &args),
        CliCommand::Undo(args) => c::maintenance::cmd_undo(context, &args),
        CliCommand::Land => c::land::cmd_land(context),
        CliCommand::Clean(args) => c::maintenance::cmd_clean(context, &args),
        CliCommand::Shell(args) => c::workspace_shell::cmd_shell(context, &args),
        CliCommand::Open(args) => c::workspace_shell::cmd_open(context, &args),
        CliCommand::Stop(args) => c::background::cmd_stop(context, &args),
        CliCommand::Watch => c::background::cmd_watch(context),
        CliCommand::Runs => c::background::cmd_runs(context),
        CliCommand::Doctor(args) => c::doctor::cmd_doctor(context, &args),
        CliCommand::Agents => c::agents::cmd_agents(context),
        CliCommand::Config(args) => match &args.command {
            Some(ConfigCommand::Accept) => c::config::accept_pending(context),
            Some(ConfigCommand::Set(args)) => c::config_set::cmd_config_set(context, args),
            None => c::config::cmd_config(context, &args),
        },
        CliCommand::Completions(args) => c::reference::cmd_completions(args.shell),
        CliCommand::Man(args) => c::reference::cmd_man(context, &args),
        CliCommand::Reference { dir } => c::reference::write_reference(&dir),
        CliCommand::Supervise { .. }
        | CliCommand::Script { .. }
        | CliCommand::Drive { .. }
        | CliCommand::Mcp
        | CliCommand::EmptyTrash { .. }
        | CliCommand::Sleep { .. } => Ok(exit_code::USAGE),
    }
}
