//! `stop`, `watch` and `runs`: a run that has no terminal of its own, and all runs that there were.

use mainstem_api::control::Request;
use mainstem_api::{exit_code, time};
use mainstem_core::id::Time;
use mainstem_core::machine::{Machine, Rest};
use mainstem_core::phase::Phase;
use mainstem_engine::control;
use mainstem_engine::face::{Face, Shown};
use mainstem_engine::ledger;
use mainstem_engine::look::Look;
use mainstem_host::process::pause_ms;
use mainstem_store::{Reader, SqliteReader};
use serde_json::json;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::args::StopArgs;
use crate::commands::history::{engine_is_there, unreadable};
use crate::commands::steer;
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::print;
use crate::stream::Stream;
use crate::summary::{self, Sheet};

/// Facts read at once.
const BATCH: usize = 4_096;
/// How often a run in the background is looked at.
const LOOK_EVERY_MS: u64 = 100;

/// Does what Ctrl-C does, to a run in the background.
pub(crate) fn stop(context: &Context, args: &StopArgs) -> Outcome {
    let layout = context.engine_layout()?;
    if !engine_is_there(&layout)? {
        if context.global.json {
            print::out_json(&json!({ "stopped": false, "running": false }))?;
        } else {
            print::err("no run is active here");
        }
        return Ok(exit_code::OK);
    }
    steer::ask(&layout, &Request::Stop { now: args.now })?;
    let say = |line: &str| {
        if !context.global.json && !context.global.quiet {
            print::err(line);
        }
    };
    if args.no_wait {
        say("stopping: agents were asked to stop; their work is kept");
    } else {
        say(if args.now {
            "stopping: killing agents; their files are kept"
        } else {
            "stopping: agents were asked to stop; their work is kept (kill them now: mainstem stop --now)"
        });
        while engine_is_there(&layout)? {
            pause_ms(LOOK_EVERY_MS);
        }
        say("stopped; continue with: mainstem run");
    }
    if context.global.json {
        let running = engine_is_there(&layout)?;
        print::out_json(&json!({ "stopped": !running, "running": running }))?;
    }
    Ok(exit_code::OK)
}

/// Shows a run in the background as `run` would, until it stops or the watcher leaves.
pub(crate) fn watch(context: &Context) -> Outcome {
    let (_, layout, look) = context.look_at_run(None)?;
    let Some(run) = look.run.clone() else { return Ok(exit_code::OK) };
    let Some(reader) = look.reader else { return Ok(exit_code::OK) };
    let global = &context.global;
    let loud = !global.json && !global.quiet;
    let (mut machine, mut at) = (look.machine, look.seq);
    if !engine_is_there(&layout)? {
        if loud {
            print::err("no run is active here; see where every task stands: mainstem status");
        }
        return Ok(code_of(&machine));
    }
    if loud {
        let landed = machine.tasks().count(Phase::Landed);
        let all = print::count(machine.plan().tasks.len() as u64, "task");
        print::err(&format!(
            "watching {run}: {landed} of {all} landed (Ctrl-C stops watching, not the run)"
        ));
    }
    let mut leaves = Signals::new([SIGINT])
        .map_err(|error| Failure::io("cannot install signal handlers", &error))?;
    let mut face = Stream::new(global.json, global.quiet, global.verbose > 0, context.color_err);
    let began = machine.started_at().map_or_else(mainstem_host::clock::now_ms, |at| at.0);
    loop {
        // Looked at before reading: what an engine wrote before it went is then surely seen.
        let engine = engine_is_there(&layout)?;
        at = tell_new(&reader, (run.as_str(), at), &mut machine, &mut face)?;
        if leaves.pending().next().is_some() {
            face.wipe();
            drop(face);
            if loud {
                print::err(
                    "the run continues; watch again: mainstem watch; stop it: mainstem stop",
                );
            }
            return Ok(exit_code::OK);
        }
        if !engine {
            break;
        }
        face.tick(&machine, &|| control::seen(&layout.socket()));
        pause_ms(LOOK_EVERY_MS);
    }
    face.wipe();
    drop(face);
    if !global.json {
        let elapsed = u64::try_from(mainstem_host::clock::now_ms() - began).unwrap_or(0);
        let sheet = Sheet { color: context.color_out, columns: print::columns() };
        print::out(&summary::summary(&machine, elapsed, code_of(&machine), sheet))?;
    }
    Ok(code_of(&machine))
}

/// Tells the face what was written since; the place of the last fact.
fn tell_new(
    reader: &SqliteReader,
    (run, mut at): (&str, u64),
    machine: &mut Machine,
    face: &mut Stream,
) -> Result<u64, Failure> {
    let id = mainstem_core::id::RunId::new(run);
    loop {
        let records = reader.read_run(run, at, BATCH).map_err(unreadable)?;
        let Some(last) = records.last() else { return Ok(at) };
        at = last.seq;
        for record in &records {
            let fact = ledger::decode(record).map_err(unreadable)?;
            // A fact that does not fit spoils the words at most; `status` is where it is an error.
            let _ = machine.apply(&fact, Time(record.at_ms));
            let (seq, body) = (record.seq, record.body.as_str());
            let shown = Shown { seq, at: Time(record.at_ms), run: &id, fact: &fact, body };
            face.fact(&shown, machine);
        }
    }
}

/// The exit code with which the engine ended, as far as the journal says.
fn code_of(machine: &Machine) -> u8 {
    match machine.recorded_rest() {
        Rest::Done => exit_code::OK,
        Rest::NotLanded => exit_code::NOT_LANDED,
        Rest::Interrupted => exit_code::INTERRUPTED,
    }
}

/// Lists all runs of the repository, newest first.
pub(crate) fn runs(context: &Context) -> Outcome {
    let (_, settings, layout) = context.place_to_look()?;
    let reader = ledger::open_reader(&layout.journal()).map_err(unreadable)?;
    let rows = match &reader {
        Some(reader) => reader.runs().map_err(unreadable)?,
        None => Vec::new(),
    };
    let mut listed = Vec::new();
    for row in rows.iter().rev() {
        let look = Look::at(&layout, &settings, Some(&row.run))?;
        let status = look.status();
        let tasks = look.machine.tasks();
        let landed = tasks.count(Phase::Landed);
        let title = look.machine.plan().title.clone();
        listed.push(json!({
            "run": row.run,
            "state": status.state,
            "title": title,
            "target": look.machine.target(),
            "tasks": look.machine.plan().tasks.len(),
            "landed": landed,
            "failed": tasks.count(Phase::Failed),
            "started_at": time::to_rfc3339(row.first_at_ms),
            "current": listed.is_empty(),
        }));
    }
    if context.global.json {
        print::out_json(&listed)?;
        return Ok(exit_code::OK);
    }
    if listed.is_empty() {
        print::err("no runs in this repository yet; start one: mainstem run PLAN");
        return Ok(exit_code::OK);
    }
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|run| {
            let begun = text(&run["started_at"]).replace('T', " ");
            let begun = begun.get(..16).unwrap_or(&begun).to_owned();
            let landed = format!("{} of {} landed", run["landed"], run["tasks"]);
            let title = print::clip(&print::harmless(&text(&run["title"])), 40);
            vec![text(&run["run"]), begun, text(&run["state"]), landed, title]
        })
        .collect();
    print::out(&print::table(&rows))?;
    Ok(exit_code::OK)
}
