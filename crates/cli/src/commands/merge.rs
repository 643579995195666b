//! `merge`: pushes what is to be offered, looks at every pull request and merges those that are ready.
//! The same engine as `run`, with no agent started.

use mainstem_api::actions::{MergeReport, OpenPullRequest, PullRequestMerge};
use mainstem_api::exit_code;
use mainstem_core::machine::{Machine, MergeOnlyMode};
use mainstem_core::phase::Phase;
use mainstem_engine::instance::{EngineChannel, RunRequest};

use crate::args::MergeArgs;
use crate::commands::run::stop_on_signals;
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::output;
use crate::stream::RunStream;

/// Brings the run's pull requests on.
pub(crate) fn cmd_merge(context: &CliContext, args: &MergeArgs) -> CommandResult {
    let (_, settings, _) = context.load_repo_context()?;
    if !settings.land.mode.lands_on_forge() {
        return Err(CliError::new("this repository does not land work through pull requests (land.mode)")
            .with_hint("mainstem run lands work by itself; to use pull requests: mainstem config set land.mode pr"));
    }
    let (_, _, look) = context.open_existing_run(None)?;
    let at_work = |phase: Phase| phase.is_active() && phase != Phase::Merging;
    if look.machine.tasks().all_tasks().any(|t| at_work(look.machine.tasks().phase(t))) {
        return Err(CliError::new("this run has unfinished attempts")
            .with_hint("continue the run, which merges as well: mainstem run"));
    }
    let before = landed_tasks(&look.machine);
    let merger = Some(if args.watch { MergeOnlyMode::Watch } else { MergeOnlyMode::Once });
    let request = RunRequest { merger, ..RunRequest::default() };
    let session = context.open_engine_instance()?;
    let line = EngineChannel::new();
    stop_on_signals(&line)?;
    let global = &context.global;
    let quiet = global.quiet || global.json;
    let mut face = RunStream::new(false, quiet, global.verbose > 0, context.color_err);
    let ended = session.run(&request, line, &mut face, &mut |_, _| {});
    face.clear_live_view();
    drop(face);
    let (_, machine, _) = ended?;
    print_report(context, &machine, &before)
}

fn landed_tasks(machine: &Machine) -> Vec<String> {
    let these = machine.tasks().all_tasks().filter(|t| machine.tasks().phase(*t) == Phase::Landed);
    these.map(|t| machine.graph().id(t).to_string()).collect()
}

/// What was merged, and what each of the others waits for.
fn print_report(context: &CliContext, machine: &Machine, before: &[String]) -> CommandResult {
    let report = describe_merges(machine, before);
    let code = if report.open.is_empty() { exit_code::OK } else { exit_code::NOT_LANDED };
    if context.global.json {
        output::write_json(&report)?;
        return Ok(code);
    }
    let MergeReport { merged, open } = report;
    let number = |pull: Option<u64>| pull.map_or_else(|| "null".to_owned(), |n| n.to_string());
    for one in &merged {
        output::write_stdout(&format!("merged   {} #{}\n", one.task, number(one.pull)))?;
    }
    for one in &open {
        let waits = match one.reason.as_str() {
            "" => one.waits_for.as_deref().unwrap_or_default(),
            reason => reason,
        };
        let waits = output::sanitize_text(waits);
        output::write_stdout(&format!(
            "open     {} #{}: waiting for {waits}\n",
            one.task,
            number(one.pull)
        ))?;
    }
    if merged.is_empty() && open.is_empty() {
        output::write_stdout("no pull request is open\n")?;
    }
    Ok(code)
}

fn describe_merges(machine: &Machine, before: &[String]) -> MergeReport {
    let mut report = MergeReport::default();
    for t in machine.tasks().all_tasks() {
        let task = machine.graph().id(t).to_string();
        let view = machine.task_view(t);
        let request = machine.pull_request(t);
        let pull = request.and_then(|request| request.number);
        let url = request.map(|request| request.url.clone());
        match view.phase {
            Phase::Landed if !before.contains(&task) => {
                let commit = view.commit.map(|commit| commit.to_string());
                report.merged.push(PullRequestMerge { task, pull, url, commit });
            }
            Phase::Merging => {
                let waits_for = request.map(|request| request.waits_for.clone());
                let reason = view.reason;
                report.open.push(OpenPullRequest { task, pull, url, waits_for, reason });
            }
            _ => {}
        }
    }
    report
}
