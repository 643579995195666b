//! Steering: the same commands to a running engine, a resting run, and after a crash.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use mainstem_api::control::Request;
use mainstem_api::exit_code;
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_engine::care::{self, CleanScope};
use mainstem_engine::control;
use mainstem_engine::paths::Layout;
use mainstem_engine::session::{Session, SessionError};
use mainstem_host::lock::{self, Probe};

use crate::args::RetryArgs;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// Sends requests to the engine that runs, or carries them out on the run that rests.
pub(crate) fn steer(context: &Context, requests: Vec<Request>) -> Outcome {
    let said = send(context, requests)?;
    let said: Vec<&str> = said.iter().flat_map(|text| text.lines()).collect();
    if context.global.json {
        print::out_json(&serde_json::json!({ "ok": true, "messages": said }))?;
    } else if !context.global.quiet {
        for line in said {
            print::err(line);
        }
    }
    Ok(exit_code::OK)
}

/// How long a command waits for an engine that is just starting or just ending.
const HANDOVER_WAIT: Duration = Duration::from_secs(20);
const HANDOVER_POLL_MS: u64 = 50;

/// Who carries a command out.
pub(crate) enum Recipient {
    /// The engine that runs.
    Engine(Layout),
    /// Nobody else: this process owns the run that rests.
    Resting(Box<Session>),
}

/// Finds out who carries commands out. An engine that is starting holds the repository before it listens,
/// and one that is ending stops listening first, so both are waited for.
pub(crate) fn find_recipient(context: &Context) -> Result<Recipient, Failure> {
    let layout = context.engine_layout()?;
    let busy = |error: lock::LockError| Failure::new(error.to_string());
    let deadline = Instant::now() + HANDOVER_WAIT;
    loop {
        let running = matches!(lock::probe(&layout.lock()).map_err(busy)?, Probe::Busy { .. });
        let failure = if running {
            match control::ask(&layout.socket(), &Request::Ping) {
                Ok(_) => return Ok(Recipient::Engine(layout)),
                Err(error) if !is_handover(&error) => return Err(no_answer(&error)),
                Err(error) => no_answer(&error),
            }
        } else {
            match context.session() {
                Ok(session) => return Ok(Recipient::Resting(Box::new(session))),
                Err(failure) => {
                    let still = matches!(lock::probe(&layout.lock()), Ok(Probe::Busy { .. }));
                    if !still {
                        return Err(failure);
                    }
                    failure
                }
            }
        };
        if Instant::now() > deadline {
            return Err(failure);
        }
        mainstem_host::process::pause_ms(HANDOVER_POLL_MS);
    }
}

/// The socket is not there, or nobody listens: nothing was sent.
fn is_handover(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
}

fn no_answer(error: &std::io::Error) -> Failure {
    Failure::io("the running engine does not respond", error).hint("try again in a moment")
}

/// One request to the engine that runs.
pub(crate) fn ask(layout: &Layout, request: &Request) -> Result<String, Failure> {
    let response = control::ask(&layout.socket(), request).map_err(|error| no_answer(&error))?;
    if response.ok {
        return Ok(response.message);
    }
    let failure = Failure::new(response.message);
    let hint = response.data.as_ref().and_then(|data| data["hint"].as_str());
    Err(match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

/// The same; returns what was said.
pub(crate) fn send(context: &Context, requests: Vec<Request>) -> Result<Vec<String>, Failure> {
    let layout = context.engine_layout()?;
    if !layout.journal().exists() {
        return Err(SessionError::NoRun.into());
    }
    let mut said = Vec::new();
    match find_recipient(context)? {
        Recipient::Engine(layout) => {
            for request in &requests {
                said.push(ask(&layout, request)?);
            }
        }
        Recipient::Resting(mut session) => {
            let (run, mut machine) = session.newest()?.ok_or(SessionError::NoRun)?;
            for request in requests {
                if let Request::Retry { task, .. } = &request {
                    session.forget_lost_landing(&run, &mut machine, task)?;
                }
                let Some(command) = control::command_of(request) else { continue };
                said.push(session.command(&run, &mut machine, command)??);
            }
            said.extend(remove_workspaces(&mut session, &machine)?);
            if !context.global.json && !context.global.quiet {
                print::err("nothing is running now; this takes effect with the next mainstem run");
            }
        }
    }
    Ok(said)
}

/// Removes the workspaces of tasks that were cancelled or skipped, as a running engine would. Their work stays on
/// snapshots.
fn remove_workspaces(session: &mut Session, machine: &Machine) -> Result<Vec<String>, Failure> {
    let is_left = |t: &TaskIx| {
        let current = machine.tasks().get(*t).current.as_ref();
        matches!(machine.tasks().phase(*t), Phase::Cancelled | Phase::Skipped)
            && current.is_some_and(|attempt| !attempt.removed)
            && !machine.keeps_workspace(*t)
    };
    let left = machine.tasks().all().filter(is_left);
    let left: BTreeSet<TaskId> = left.map(|t| machine.graph().id(t).clone()).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let gone = care::clean(session, &CleanScope::Tasks(left), false)?.into_iter();
    let gone = gone.filter(|gone| gone.what == "workspace" && gone.stays.is_none());
    Ok(gone.map(|gone| format!("removed the workspace {}", gone.place)).collect())
}

/// `retry`, with `--all` spelled out.
pub(crate) fn retry(context: &Context, args: &RetryArgs) -> Outcome {
    let mut tasks = args.tasks.clone();
    if args.all {
        let (_, _, look) = context.look_at_run(None)?;
        let machine = &look.machine;
        tasks = machine
            .tasks()
            .all()
            .filter(|t| match machine.tasks().phase(*t) {
                Phase::Failed | Phase::Conflicted | Phase::Cancelled => true,
                Phase::Blocked => machine.tasks().get(*t).chain.is_empty(),
                _ => false,
            })
            .map(|t| machine.plan().tasks[t.ix()].id.to_string())
            .collect();
        if tasks.is_empty() {
            print::err("nothing to retry");
            return Ok(exit_code::OK);
        }
    }
    let mut tasks = tasks.into_iter();
    let Some(task) = tasks.next() else { return Ok(exit_code::OK) };
    let request = Request::Retry {
        task,
        also: tasks.collect(),
        hint: args.message.clone(),
        agent: args.agent.clone(),
        fresh: args.fresh,
    };
    steer(context, vec![request])
}
