//! Steering: the same commands to a running engine, a resting run, and after a crash.

use mainstem_api::control::Request;
use mainstem_api::exit_code;
use mainstem_engine::control;
use mainstem_engine::paths::Layout;
use mainstem_host::lock::{self, Probe};

use crate::args::RetryArgs;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;

/// Sends requests to the engine that runs, or carries them out on the run that rests.
pub(crate) fn steer(context: &Context, requests: Vec<Request>) -> Outcome {
    let said = send(context, requests)?;
    if context.global.json {
        print::out_json(&serde_json::json!({ "ok": true, "messages": said }))?;
    } else if !context.global.quiet {
        for line in said {
            print::err(&line);
        }
    }
    Ok(exit_code::OK)
}

/// One request to the engine that runs.
pub(crate) fn ask(layout: &Layout, request: &Request) -> Result<String, Failure> {
    let response = control::ask(&layout.socket(), request).map_err(|error| {
        Failure::io("the engine does not answer", &error).hint("try again in a moment")
    })?;
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
    let (_, _, layout) = context.place()?;
    let busy = |error: lock::LockError| Failure::new(error.to_string());
    let mut said = Vec::new();
    if let Probe::Busy { .. } = lock::probe(&layout.lock()).map_err(busy)? {
        for request in &requests {
            said.push(ask(&layout, request)?);
        }
    } else {
        if !layout.journal().exists() {
            return Err(mainstem_engine::session::SessionError::NoRun.into());
        }
        let mut session = context.session()?;
        let (run, mut machine) =
            session.newest()?.ok_or(mainstem_engine::session::SessionError::NoRun)?;
        for request in requests {
            let Some(command) = control::command_of(request) else { continue };
            said.push(session.command(&run, &mut machine, command)??);
        }
        if !context.global.json && !context.global.quiet {
            print::err("no engine is running: this takes effect with the next mainstem run");
        }
    }
    Ok(said)
}

/// `retry`, with `--all` spelled out.
pub(crate) fn retry(context: &Context, args: &RetryArgs) -> Outcome {
    use mainstem_core::phase::Phase;
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
            print::err("there is nothing to try again");
            return Ok(exit_code::OK);
        }
    }
    steer(context, tasks.into_iter().map(|task| Request::Retry { task }).collect())
}
