//! Steering: the same commands to a running engine, a resting run, and after a crash.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use mainstem_api::control::ControlRequest;
use mainstem_api::exit_code;
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::control_socket;
use mainstem_engine::instance::{EngineError, EngineInstance};
use mainstem_engine::maintenance::{self, CleanScope};
use mainstem_engine::repo_layout::RepoLayout;

use crate::args::RetryArgs;
use crate::commands::history::journal_error;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;

/// Sends requests to the engine that runs, or carries them out on the run that rests.
pub(crate) fn run_requests(context: &CliContext, requests: Vec<ControlRequest>) -> CommandResult {
    let said = send_requests(context, requests)?;
    let said: Vec<&str> = said.iter().flat_map(|text| text.lines()).collect();
    if context.global.json {
        output::write_json(&serde_json::json!({ "ok": true, "messages": said }))?;
    } else if !context.global.quiet {
        for line in said {
            output::write_stderr(line);
        }
    }
    Ok(exit_code::OK)
}

/// How long a command waits for an engine that is just starting or just ending.
const HANDOVER_WAIT: Duration = Duration::from_secs(20);
const HANDOVER_POLL_MS: u64 = 50;

/// Who carries a command out.
pub(crate) enum ControlRecipient {
    /// The engine that runs.
    Engine(RepoLayout),
    /// Nobody else: this process owns the run that rests.
    Resting(Box<EngineInstance>),
}

/// Finds out who carries commands out. An engine that is starting holds the repository before it listens,
/// and one that is ending stops listening first, so both are waited for.
pub(crate) fn find_recipient(context: &CliContext) -> Result<ControlRecipient, CliError> {
    let layout = context.engine_layout()?;
    let store = layout.run_store();
    let deadline = Instant::now() + HANDOVER_WAIT;
    loop {
        let owner = store.owner().map_err(|error| CliError::new(error.to_string()))?;
        let failure = if owner.is_some() {
            match control_socket::send_request(&layout.socket_path(), &ControlRequest::Ping) {
                Ok(_) => return Ok(ControlRecipient::Engine(layout)),
                Err(error) if !is_nobody_listening(&error) => return Err(no_answer_error(&error)),
                Err(error) => no_answer_error(&error),
            }
        } else {
            match context.open_engine_instance() {
                Ok(session) => return Ok(ControlRecipient::Resting(Box::new(session))),
                Err(failure) => {
                    if !matches!(store.owner(), Ok(Some(_))) {
                        return Err(failure);
                    }
                    failure
                }
            }
        };
        if Instant::now() > deadline {
            return Err(failure);
        }
        mainstem_host::process::sleep_ms(HANDOVER_POLL_MS);
    }
}

/// The socket is not there, or nobody listens: nothing was sent.
fn is_nobody_listening(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn no_answer_error(error: &std::io::Error) -> CliError {
    CliError::io_error("the running engine does not respond", error)
        .with_hint("try again in a moment")
}

/// One request to the engine that runs.
pub(crate) fn send_request(
    layout: &RepoLayout,
    request: &ControlRequest,
) -> Result<String, CliError> {
    let response = control_socket::send_request(&layout.socket_path(), request)
        .map_err(|error| no_answer_error(&error))?;
    if response.ok {
        return Ok(response.message);
    }
    let failure = CliError::new(response.message);
    let hint = response.data.as_ref().and_then(|data| data["hint"].as_str());
    Err(match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    })
}

/// The same; returns what was said.
pub(crate) fn send_requests(
    context: &CliContext,
    requests: Vec<ControlRequest>,
) -> Result<Vec<String>, CliError> {
    let layout = context.engine_layout()?;
    if !layout.run_store().has_journal().map_err(journal_error)? {
        return Err(EngineError::NoRun.into());
    }
    let mut said = Vec::new();
    match find_recipient(context)? {
        ControlRecipient::Engine(layout) => {
            for request in &requests {
                said.push(send_request(&layout, request)?);
            }
        }
        ControlRecipient::Resting(mut session) => {
            let (run, mut machine) = session.load_newest_run()?.ok_or(EngineError::NoRun)?;
            for request in requests {
                if let ControlRequest::Retry { task, .. } = &request {
                    session.forget_lost_landing(&run, &mut machine, task)?;
                }
                let Some(command) = control_socket::command_for_request(request) else { continue };
                said.push(session.run_command(&run, &mut machine, command)??);
            }
            said.extend(remove_workspaces(&mut session, &machine)?);
            if !context.global.json && !context.global.quiet {
                output::write_stderr(
                    "nothing is running now; this takes effect with the next mainstem run",
                );
            }
        }
    }
    Ok(said)
}

/// Removes the workspaces of tasks that were cancelled or skipped, as a running engine would. Their work stays on
/// snapshots.
fn remove_workspaces(
    session: &mut EngineInstance,
    machine: &Machine,
) -> Result<Vec<String>, CliError> {
    let is_left = |t: &TaskIx| {
        let current = machine.tasks().get(*t).current.as_ref();
        matches!(machine.tasks().phase(*t), Phase::Cancelled | Phase::Skipped)
            && current.is_some_and(|attempt| !attempt.removed)
            && !machine.keeps_workspace(*t)
    };
    let left = machine.tasks().all_tasks().filter(is_left);
    let left: BTreeSet<TaskId> = left.map(|t| machine.graph().id(t).clone()).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let gone = maintenance::clean_repository(session, &CleanScope::Tasks(left), false)?.into_iter();
    let gone = gone.filter(|gone| gone.what == "workspace" && gone.kept_because.is_none());
    Ok(gone.map(|gone| format!("removed the workspace {}", gone.place)).collect())
}

/// `retry`, with `--all` spelled out.
pub(crate) fn cmd_retry(context: &CliContext, args: &RetryArgs) -> CommandResult {
    let mut tasks = args.tasks.clone();
    if args.all {
        let (_, _, look) = context.open_existing_run(None)?;
        let machine = &look.machine;
        tasks = machine
            .tasks()
            .all_tasks()
            .filter(|t| match machine.tasks().phase(*t) {
                Phase::Failed | Phase::Conflicted | Phase::Cancelled => true,
                Phase::Blocked => machine.tasks().get(*t).chain.is_empty(),
                _ => false,
            })
            .map(|t| machine.plan().tasks[t.index()].id.to_string())
            .collect();
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
