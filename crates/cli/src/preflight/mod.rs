//! Before the first agent costs anything: what would go wrong, and what to type.
//!
//! Three commands look: `run` refuses to start, `doctor` reports, `plan check` warns of what can be seen
//! without running anything. What the gates say of the target branch comes from the engine.

pub(crate) mod agents;
mod explain;
pub(crate) mod programs;

use std::collections::BTreeSet;
use std::io::IsTerminal;

use mainstem_core::config::Settings;
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;
use mainstem_core::plan::quantities::render_size;
use mainstem_engine::instance::{
    EngineChannel, EngineInstance, RunRequest, TargetCheck, TargetCheckProgress,
};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_host::clock;
use mainstem_host::file_size;
use mainstem_host::files::free_bytes;
use mainstem_host::git::Repo;

use crate::context::CliContext;
use crate::drive::find_program;
use crate::error::CliError;
use crate::output;

pub(crate) use explain::{TargetExplanation, explain_target};

/// How often a line is printed about a check that takes long, where there is no terminal to redraw.
const SAY_EVERY_MS: i64 = 30_000;

/// How much something matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FindingLevel {
    /// Nothing can start like this.
    Error,
    /// It may work all the same.
    Warning,
}

/// Something that would go wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreflightFinding {
    pub(crate) level: FindingLevel,
    /// Of whom or what.
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) help: String,
    /// The tasks that need it.
    pub(crate) tasks: Vec<String>,
}

impl PreflightFinding {
    pub(crate) fn sentence(&self) -> String {
        format!("{}: {} ({})", self.subject, self.text, self.help)
    }
}

/// The journal, git's packs and the logs of agents become larger than this.
const FILE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// Refuses a machine on which files may not become large enough, before a write fails in the middle of a run.
pub(crate) fn room_for_files() -> Result<(), CliError> {
    match file_size::limit().filter(|limit| *limit < FILE_BYTES_MIN) {
        None => Ok(()),
        Some(limit) => Err(CliError::new(format!(
            "files may not become larger than {} in this shell; Mainstem needs at least {}",
            render_size(limit),
            render_size(FILE_BYTES_MIN)
        ))
        .with_hint("ulimit -f unlimited, or start a new shell without the limit")),
    }
}

/// Looks at all that a run depends on. Refuses, or says what was seen of the target branch.
pub(crate) fn check_before_run(
    context: &CliContext,
    (repo, settings): (&Repo, &Settings),
    session: &mut EngineInstance,
    request: &RunRequest,
    (line, allow_red): (&EngineChannel, bool),
) -> Result<Option<TargetCheck>, CliError> {
    let begun = session.load_newest_run()?.filter(|_| !request.new).map(|(_, machine)| machine);
    if begun.as_ref().is_some_and(|machine| machine.tasks().active_tasks().next().is_some()) {
        // Its agents cost already; they must be seen to, whatever else is wrong.
        return Ok(None);
    }
    let open = begun.as_ref().map(|machine| {
        let over = [Phase::Landed, Phase::Skipped, Phase::Cancelled];
        let open =
            machine.tasks().all_tasks().filter(|t| !over.contains(&machine.tasks().phase(*t)));
        let of = |t: mainstem_core::id::TaskIx| machine.plan().tasks[t.index()].id.to_string();
        (machine.plan().clone(), open.map(of).collect::<BTreeSet<String>>())
    });
    let (plan, only) = match (&request.plan, open) {
        (Some(plan), Some((old, open))) => {
            // What has landed already needs no agent any more.
            let known: BTreeSet<String> = old.tasks.iter().map(|t| t.id.to_string()).collect();
            let ids = plan.tasks.iter().map(|task| task.id.to_string());
            (
                Some(plan.clone()),
                Some(ids.filter(|id| open.contains(id) || !known.contains(id)).collect()),
            )
        }
        (Some(plan), None) => (Some(plan.clone()), None),
        (None, Some((plan, open))) => (Some(plan), Some(open)),
        (None, None) => (None, None),
    };
    let mut findings = Vec::new();
    if let Some(plan) = &plan {
        let wanted = requested_tasks(plan, request, only);
        if wanted.as_ref().is_some_and(BTreeSet::is_empty) {
            return Ok(None);
        }
        findings.extend(plan_findings(repo, settings, plan, wanted.as_ref()));
    }
    findings.extend(disk_finding(session.layout(), settings));
    refuse_on_errors(context, &findings)?;
    let mut progress = PreflightProgress::new(context);
    let stop = || line.is_interrupted();
    let wish = (request.new, request.branch.as_deref());
    let seen = session.check_target(wish, &stop, &mut |now| progress.show(now));
    progress.clear();
    let seen = seen?;
    match seen.as_ref().filter(|check| !check.has_passed()) {
        Some(red) if allow_red => {
            let explained = explain_target(repo, settings, red);
            output::write_stderr(&format!("warning: {}", explained.message));
            output::write_stderr(
                "starting anyway (--allow-red); only work that makes the check pass will land",
            );
        }
        Some(red) => return Err(explain_target(repo, settings, red).into_error()),
        None => {}
    }
    Ok(seen.filter(TargetCheck::has_passed))
}

/// Looks at the target branch by itself, for `doctor` and `init`.
pub(crate) fn check_target(
    context: &CliContext,
    expects_run: bool,
) -> Result<Option<TargetCheck>, CliError> {
    let mut session = context.open_engine_instance()?;
    let line = EngineChannel::new();
    crate::commands::run::stop_on_signals(&line)?;
    let mut progress = PreflightProgress::new(context);
    let stop = || line.is_interrupted();
    let seen = session.check_target((false, None), &stop, &mut |now| progress.show(now));
    progress.clear();
    session.finish_target_check(expects_run);
    Ok(seen?)
}

/// The tasks that this request is about; none means all.
fn requested_tasks(
    plan: &Plan,
    request: &RunRequest,
    only: Option<BTreeSet<String>>,
) -> Option<BTreeSet<String>> {
    if request.tasks.is_empty() && request.epics.is_empty() {
        return only;
    }
    let in_epic = |task: &mainstem_core::plan::Task| {
        task.epic.as_ref().is_some_and(|epic| request.epics.iter().any(|e| e == epic.as_str()))
    };
    let named = |id: &str| request.tasks.iter().any(|task| task == id);
    let mut wanted: BTreeSet<String> = plan
        .tasks
        .iter()
        .filter(|task| named(task.id.as_str()) || in_epic(task))
        .map(|task| task.id.to_string())
        .collect();
    loop {
        let before = wanted.len();
        for task in
            plan.tasks.iter().filter(|task| wanted.contains(task.id.as_str())).collect::<Vec<_>>()
        {
            wanted.extend(task.needs.iter().map(ToString::to_string));
        }
        if wanted.len() == before {
            break;
        }
    }
    Some(match only {
        Some(only) => wanted.intersection(&only).cloned().collect(),
        None => wanted,
    })
}

/// What can be seen of a plan without running anything.
pub(crate) fn plan_findings(
    repo: &Repo,
    settings: &Settings,
    plan: &Plan,
    only: Option<&BTreeSet<String>>,
) -> Vec<PreflightFinding> {
    let uses = agents::agents_in_use(plan, settings, only);
    let mut findings = agents::agent_findings(Some(repo), settings, &uses);
    findings.extend(command_findings(settings));
    findings
}

/// Gates and setup commands whose program is not here.
pub(crate) fn command_findings(settings: &Settings) -> Vec<PreflightFinding> {
    let mut findings = Vec::new();
    let gates = settings.gates.verify.iter().map(|command| ("check", "gates.verify", command));
    let setup = settings.workspace.setup.iter().map(|c| ("setup command", "workspace.setup", c));
    for (what, key, command) in setup.chain(gates) {
        if command.starts_with('@') {
            continue;
        }
        for program in
            programs::program_names(command).into_iter().filter(|p| find_program(p).is_none())
        {
            findings.push(PreflightFinding {
                level: FindingLevel::Error,
                subject: program.clone(),
                text: format!("not installed (needed by the {what} `{command}`)"),
                help: format!("install {program}, or change {key}"),
                tasks: Vec::new(),
            });
        }
    }
    findings
}

fn disk_finding(layout: &RepoLayout, settings: &Settings) -> Option<PreflightFinding> {
    let floor = settings.limits.disk_floor;
    let place = layout.workspace_root().ancestors().find(|path| path.is_dir())?;
    let free = free_bytes(place).ok().filter(|free| *free < floor)?;
    Some(PreflightFinding {
        level: FindingLevel::Error,
        subject: "disk".to_owned(),
        text: format!("{} free in {}", render_size(free >> 20 << 20), place.display()),
        help: format!("at least {} must be free (limits.disk_floor)", render_size(floor)),
        tasks: Vec::new(),
    })
}

/// Says all warnings; fails with all errors at once.
fn refuse_on_errors(context: &CliContext, findings: &[PreflightFinding]) -> Result<(), CliError> {
    let (errors, warnings): (Vec<&PreflightFinding>, Vec<&PreflightFinding>) =
        findings.iter().partition(|finding| finding.level == FindingLevel::Error);
    if errors.is_empty() {
        for warning in warnings.iter().filter(|_| !context.global.quiet) {
            output::write_stderr(&format!(
                "warning: {}",
                output::sanitize_text(&warning.sentence())
            ));
        }
        return Ok(());
    }
    let agents = errors.iter().any(|finding| !finding.tasks.is_empty());
    let message = match agents {
        true => "the plan uses agents that cannot start",
        false => "the run cannot start",
    };
    let mut failure = CliError::new(message);
    let subject = findings.iter().map(|f| f.subject.chars().count()).max().unwrap_or(0);
    let text = findings.iter().map(|f| f.text.chars().count()).max().unwrap_or(0).min(36);
    for finding in errors.iter().chain(&warnings) {
        let mark = if finding.level == FindingLevel::Warning { " (warning)" } else { "" };
        failure.detail.push(format!(
            "{}  {}  {}{mark}",
            output::pad_to_width(&finding.subject, subject),
            output::pad_to_width(&finding.text, text),
            finding.help,
        ));
        if !finding.tasks.is_empty() && finding.level == FindingLevel::Error {
            let shown = finding.tasks.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
            let more = finding.tasks.len().saturating_sub(5);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            failure
                .detail
                .push(format!("{}  tasks: {shown}{more}", output::pad_to_width("", subject)));
        }
    }
    Err(failure.with_hint("no agent was started; to start anyway: --no-preflight"))
}

/// Says which check runs, and for how long.
pub(crate) struct PreflightProgress {
    quiet: bool,
    redraw: bool,
    said: Option<(String, i64)>,
    drawn: bool,
}

impl PreflightProgress {
    pub(crate) fn new(context: &CliContext) -> Self {
        let quiet = context.global.quiet || context.global.json;
        let redraw = !quiet && std::io::stderr().is_terminal();
        Self { quiet, redraw, said: None, drawn: false }
    }

    pub(crate) fn show(&mut self, now: &TargetCheckProgress) {
        if self.quiet {
            return;
        }
        let took = output::format_duration(now.elapsed_ms);
        let text = format!(
            "running checks on the target branch before the first task: {} ({took})",
            now.command
        );
        if self.redraw {
            let text = output::truncate_to_width(
                &output::sanitize_text(&text),
                output::picture_width().saturating_sub(1),
            );
            output::write_stderr_part(&format!("\r\x1b[2K{text}"));
            self.drawn = true;
            return;
        }
        let at = clock::now_ms();
        let due = match &self.said {
            Some((command, when)) => *command != now.command || at - when >= SAY_EVERY_MS,
            None => true,
        };
        if due {
            output::write_stderr(&output::sanitize_text(&text));
            self.said = Some((now.command.clone(), at));
        }
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            output::write_stderr_part("\r\x1b[2K");
        }
    }
}
