//! `stop`, `watch` and `runs`: a run that has no terminal of its own, and all runs that there were.

use mainstem_api::control::ControlRequest;
use mainstem_api::run::StopReport;
use mainstem_api::{exit_code, time};
use mainstem_core::id::Time;
use mainstem_core::machine::{Machine, RestReason};
use mainstem_core::phase::Phase;
use mainstem_engine::observer::{JournaledFact, RunObserver};
use mainstem_engine::query::runs::list_runs;
use mainstem_engine::{client, control_socket};
use mainstem_host::process::sleep_ms;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::args::StopArgs;
use crate::commands::history::is_engine_running;
use crate::commands::status::run_state_word;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;
use crate::stream::RunStream;
use crate::summary::{self, SummaryStyle};

/// How often a run in the background is looked at.
const LOOK_EVERY_MS: u64 = 100;

/// Does what Ctrl-C does, to a run in the background.
pub(crate) fn cmd_stop(context: &CliContext, args: &StopArgs) -> CommandResult {
    let layout = context.engine_layout()?;
    if !is_engine_running(&layout)? {
        if context.global.json {
            output::write_json(&StopReport { stopped: false, running: false })?;
        } else {
            output::write_stderr("no run is active here");
        }
        return Ok(exit_code::OK);
    }
    client::send_request(&layout, &ControlRequest::Stop { now: args.now })?;
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
        output::write_json(&StopReport { stopped: !running, running })?;
    }
    Ok(exit_code::OK)
}

/// Shows a run in the background as `run` would, until it stops or the watcher leaves.
pub(crate) fn cmd_watch(context: &CliContext) -> CommandResult {
    let (_, layout, mut look) = context.open_existing_run(None)?;
    let Some(run) = look.run.clone() else { return Ok(exit_code::OK) };
    let global = &context.global;
    let loud = !global.json && !global.quiet;
    if !is_engine_running(&layout)? {
        if loud {
            output::write_stderr(
                "no run is active here; see where every task stands: mainstem status",
            );
        }
        return Ok(idle_exit_code(&look.machine));
    }
    if loud {
        let machine = &look.machine;
        let landed = machine.tasks().count_in_phase(Phase::Landed);
        let all = output::count_noun(machine.plan().tasks.len() as u64, "task");
        output::write_stderr(&format!(
            "watching {run}: {landed} of {all} landed (Ctrl-C stops watching, not the run)"
        ));
    }
    let mut leaves = Signals::new([SIGINT])
        .map_err(|error| CliError::io_error("cannot install signal handlers", &error))?;
    let mut face = RunStream::new(global.json, global.quiet, global.verbose > 0, context.color_err);
    let began = look.machine.started_at().map_or_else(mainstem_host::clock::now_ms, |at| at.0);
    loop {
        // The lock is probed before reading: what an engine wrote before it ended is then surely seen.
        let engine = is_engine_running(&layout)?;
        look.advance_with(&mut |record, fact, machine| {
            let (seq, body) = (record.seq, record.body.as_str());
            let shown = JournaledFact { seq, at: Time(record.at_ms), run: &run, fact, body };
            face.on_fact(&shown, machine);
        })?;
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
        face.on_tick(&look.machine, &|| control_socket::fetch_activity(&layout.socket_path()));
        sleep_ms(LOOK_EVERY_MS);
    }
    face.clear_live_view();
    drop(face);
    if !global.json {
        let elapsed = u64::try_from(mainstem_host::clock::now_ms() - began).unwrap_or(0);
        let sheet = SummaryStyle { color: context.color_out, columns: output::stdout_columns() };
        output::write_stdout(&summary::render_summary(
            &look.machine,
            elapsed,
            idle_exit_code(&look.machine),
            sheet,
        ))?;
    }
    Ok(idle_exit_code(&look.machine))
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
    let listed = list_runs(&layout, &settings)?;
    if context.global.json {
        output::write_json(&listed)?;
        return Ok(exit_code::OK);
    }
    if listed.is_empty() {
        output::write_stderr("no runs in this repository yet; start one: mainstem run PLAN");
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = listed
        .iter()
        .map(|run| {
            let begun = time::to_rfc3339(run.started_at).replace('T', " ");
            let begun = begun.get(..16).unwrap_or(&begun).to_owned();
            let landed = format!("{} of {} landed", run.landed, run.tasks);
            let title = output::truncate_to_width(&output::sanitize_text(&run.title), 40);
            let state = run_state_word(run.state).to_owned();
            vec![run.run.clone(), begun, state, landed, title]
        })
        .collect();
    output::write_stdout(&output::format_table(&rows))?;
    Ok(exit_code::OK)
}
