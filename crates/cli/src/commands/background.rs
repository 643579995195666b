//! `stop`, `watch` and `runs`: a run that has no terminal of its own, and all runs that there were.

use mainstem_api::control::ControlRequest;
use mainstem_api::{exit_code, time};
use mainstem_core::id::Time;
use mainstem_core::machine::{Machine, RestReason};
use mainstem_core::phase::Phase;
use mainstem_engine::control_socket;
use mainstem_engine::observer::{JournaledFact, RunObserver};
use mainstem_engine::run_journal;
use mainstem_engine::run_status::JournaledRun;
use mainstem_host::process::sleep_ms;
use mainstem_store::JournalReader;
use serde_json::json;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::args::StopArgs;
use crate::commands::control_client;
use crate::commands::history::{is_engine_running, journal_error};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;
use crate::stream::RunStream;
use crate::summary::{self, SummaryStyle};

/// Facts read at once.
const BATCH: usize = 4_096;
/// How often a run in the background is looked at.
const LOOK_EVERY_MS: u64 = 100;

/// Does what Ctrl-C does, to a run in the background.
pub(crate) fn cmd_stop(context: &CliContext, args: &StopArgs) -> CommandResult {
    let layout = context.engine_layout()?;
    if !is_engine_running(&layout)? {
        if context.global.json {
            output::write_json(&json!({ "stopped": false, "running": false }))?;
        } else {
            output::write_stderr("no run is active here");
        }
        return Ok(exit_code::OK);
    }
    control_client::send_request(&layout, &ControlRequest::Stop { now: args.now })?;
    let say = |line: &str| {
        if !context.global.json && !context.global.quiet {
            output::write_stderr(line);
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
        while is_engine_running(&layout)? {
            sleep_ms(LOOK_EVERY_MS);
        }
        say("stopped; continue with: mainstem run");
    }
    if context.global.json {
        let running = is_engine_running(&layout)?;
        output::write_json(&json!({ "stopped": !running, "running": running }))?;
    }
    Ok(exit_code::OK)
}

/// Shows a run in the background as `run` would, until it stops or the watcher leaves.
pub(crate) fn cmd_watch(context: &CliContext) -> CommandResult {
    let (_, layout, look) = context.open_existing_run(None)?;
    let Some(run) = look.run.clone() else { return Ok(exit_code::OK) };
    let Some(reader) = look.reader else { return Ok(exit_code::OK) };
    let global = &context.global;
    let loud = !global.json && !global.quiet;
    let (mut machine, mut at) = (look.machine, look.seq);
    if !is_engine_running(&layout)? {
        if loud {
            output::write_stderr(
                "no run is active here; see where every task stands: mainstem status",
            );
        }
        return Ok(idle_exit_code(&machine));
    }
    if loud {
        let landed = machine.tasks().count_in_phase(Phase::Landed);
        let all = output::count_noun(machine.plan().tasks.len() as u64, "task");
        output::write_stderr(&format!(
            "watching {run}: {landed} of {all} landed (Ctrl-C stops watching, not the run)"
        ));
    }
    let mut leaves = Signals::new([SIGINT])
        .map_err(|error| CliError::io_error("cannot install signal handlers", &error))?;
    let mut face = RunStream::new(global.json, global.quiet, global.verbose > 0, context.color_err);
    let began = machine.started_at().map_or_else(mainstem_host::clock::now_ms, |at| at.0);
    loop {
        // Looked at before reading: what an engine wrote before it went is then surely seen.
        let engine = is_engine_running(&layout)?;
        at = show_new_facts(&*reader, (run.as_str(), at), &mut machine, &mut face)?;
        if leaves.pending().next().is_some() {
            face.clear_live_view();
            drop(face);
            if loud {
                output::write_stderr(
                    "the run continues; watch again: mainstem watch; stop it: mainstem stop",
                );
            }
            return Ok(exit_code::OK);
        }
        if !engine {
            break;
        }
        face.on_tick(&machine, &|| control_socket::fetch_activity(&layout.socket_path()));
        sleep_ms(LOOK_EVERY_MS);
    }
    face.clear_live_view();
    drop(face);
    if !global.json {
        let elapsed = u64::try_from(mainstem_host::clock::now_ms() - began).unwrap_or(0);
        let sheet = SummaryStyle { color: context.color_out, columns: output::stdout_columns() };
        output::write_stdout(&summary::render_summary(
            &machine,
            elapsed,
            idle_exit_code(&machine),
            sheet,
        ))?;
    }
    Ok(idle_exit_code(&machine))
}

/// Tells the face what was written since; the place of the last fact.
fn show_new_facts(
    reader: &dyn JournalReader,
    (run, mut at): (&str, u64),
    machine: &mut Machine,
    face: &mut RunStream,
) -> Result<u64, CliError> {
    let id = mainstem_core::id::RunId::new(run);
    loop {
        let records = reader.read_run(run, at, BATCH).map_err(journal_error)?;
        let Some(last) = records.last() else { return Ok(at) };
        at = last.seq;
        for record in &records {
            let fact = run_journal::decode_fact(record).map_err(journal_error)?;
            // A fact that does not fit spoils the words at most; `status` is where it is an error.
            let _ = machine.apply(&fact, Time(record.at_ms));
            let (seq, body) = (record.seq, record.body.as_str());
            let shown = JournaledFact { seq, at: Time(record.at_ms), run: &id, fact: &fact, body };
            face.on_fact(&shown, machine);
        }
    }
}

/// The exit code with which the engine ended, as far as the journal says.
fn idle_exit_code(machine: &Machine) -> u8 {
    match machine.recorded_rest() {
        RestReason::Done => exit_code::OK,
        RestReason::NotLanded => exit_code::NOT_LANDED,
        RestReason::Interrupted => exit_code::INTERRUPTED,
    }
}

/// Lists all runs of the repository, newest first.
pub(crate) fn cmd_runs(context: &CliContext) -> CommandResult {
    let (_, settings, layout) = context.load_read_only_context()?;
    let reader = run_journal::open_journal_reader(&*layout.run_store()).map_err(journal_error)?;
    let rows = match &reader {
        Some(reader) => reader.list_runs().map_err(journal_error)?,
        None => Vec::new(),
    };
    let mut listed = Vec::new();
    for row in rows.iter().rev() {
        let look = JournaledRun::load(&layout, &settings, Some(&row.run))?;
        let status = look.build_status();
        let tasks = look.machine.tasks();
        let landed = tasks.count_in_phase(Phase::Landed);
        let title = look.machine.plan().title.clone();
        listed.push(json!({
            "run": row.run,
            "state": status.state,
            "title": title,
            "target": look.machine.target_branch(),
            "tasks": look.machine.plan().tasks.len(),
            "landed": landed,
            "failed": tasks.count_in_phase(Phase::Failed),
            "started_at": time::to_rfc3339(row.first_at_ms),
            "current": listed.is_empty(),
        }));
    }
    if context.global.json {
        output::write_json(&listed)?;
        return Ok(exit_code::OK);
    }
    if listed.is_empty() {
        output::write_stderr("no runs in this repository yet; start one: mainstem run PLAN");
        return Ok(exit_code::OK);
    }
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|run| {
            let begun = text(&run["started_at"]).replace('T', " ");
            let begun = begun.get(..16).unwrap_or(&begun).to_owned();
            let landed = format!("{} of {} landed", run["landed"], run["tasks"]);
            let title = output::truncate_to_width(&output::sanitize_text(&text(&run["title"])), 40);
            vec![text(&run["run"]), begun, text(&run["state"]), landed, title]
        })
        .collect();
    output::write_stdout(&output::format_table(&rows))?;
    Ok(exit_code::OK)
}
