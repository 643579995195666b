//! Steering: the same commands to a running engine, a resting run, and after a crash.

use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_api::run::CommandReport;
use mainstem_engine::client;

use crate::args::RetryArgs;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Sends requests to the engine that runs, or carries them out on the run that rests.
pub(crate) fn run_requests(context: &CliContext, requests: Vec<ControlRequest>) -> CommandResult {
    let messages = send_requests(context, requests)?;
    let messages: Vec<String> =
        messages.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    if context.global.json {
        output::write_json(&CommandReport { ok: true, messages })?;
    } else if !context.global.quiet {
        for line in messages {
            output::write_stderr(&line);
        }
    }
    Ok(exit_code::OK)
}

/// The same; returns what was said.
pub(crate) fn send_requests(
    context: &CliContext,
    requests: Vec<ControlRequest>,
) -> Result<Vec<String>, CliError> {
    let layout = context.engine_layout()?;
    let open = || context.open_engine_instance();
    let outcome = client::send_requests(&layout, &open, requests)?;
    if outcome.offline && !context.global.json && !context.global.quiet {
        output::write_stderr(
            "nothing is running now; this takes effect with the next mainstem run",
        );
    }
    Ok(outcome.messages)
}

/// `retry`, with `--all` spelled out.
pub(crate) fn cmd_retry(context: &CliContext, args: &RetryArgs) -> CommandResult {
    let mut tasks = args.tasks.clone();
    if args.all {
        let (_, _, look) = context.open_existing_run(None)?;
        tasks = client::list_retryable_tasks(&look.machine);
        if tasks.is_empty() {
            output::write_stderr("nothing to retry");
            return Ok(exit_code::OK);
        }
    }
    let mut tasks = tasks.into_iter();
    let Some(task) = tasks.next() else { return Ok(exit_code::OK) };
    let request = ControlRequest::Retry {
        task,
        also: tasks.collect(),
        hint: args.message.clone(),
        agent: args.agent.clone(),
        fresh: args.fresh,
    };
    run_requests(context, vec![request])
}
