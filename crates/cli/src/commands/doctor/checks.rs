//! What gates and setup commands need, and what they say of the target branch.

use mainstem_core::config::{LandSigning, SandboxKind, Settings, WorkspaceKind, WorkspaceSharing};
use mainstem_engine::repo_layout::RepoLayout;
use mainstem_engine::sandbox_policy::SandboxError;
use mainstem_engine::state_check;
use mainstem_host::git::Repo;

use super::DoctorReport;
use crate::commands::user_git;
use crate::context::CliContext;
use crate::preflight;

/// Programs that gates and setup commands start.
pub(super) fn check_programs(settings: &Settings, report: &mut DoctorReport) {
    for finding in preflight::command_findings(settings) {
        report.add_bad("gates", format!("{}: {}", finding.subject, finding.text), finding.help);
    }
}

/// Whether agents can work on the refs of this repository.
pub(super) fn ref_format(repo: &Repo, settings: &Settings, report: &mut DoctorReport) {
    let apart = settings.workspace.kind == WorkspaceKind::Clone;
    if repo.has_reftable() && !apart && settings.sandbox.kind != SandboxKind::Off {
        report.add_bad("refs", SandboxError::Reftable.to_string(), SandboxError::Reftable.help());
    }
}

/// Whether files may become as large as they must.
pub(super) fn file_size(report: &mut DoctorReport) {
    if let Err(failure) = preflight::room_for_files() {
        let help = failure.hints.first().cloned().unwrap_or_default();
        report.add_bad("file size", failure.message, help);
    }
}

/// What the user's git does with every commit, and landings do not.
pub(super) fn user_git_habits(repo: &Repo, settings: &Settings, report: &mut DoctorReport) {
    match user_git::signing_text(repo, settings) {
        Some(Ok(words)) => report.add_good("signing", words),
        Some(Err(why)) if settings.land.sign == LandSigning::Required => {
            let help = "unlock a key with a passphrase in gpg-agent or ssh-agent first";
            report.add_bad("signing", format!("cannot sign landed commits: {why}"), help);
        }
        Some(Err(why)) => {
            let help = "set land.sign to \"off\", or to \"required\" to refuse unsigned landings";
            let text = format!("commit.gpgSign is set, but landed commits cannot be signed: {why}");
            report.add_doubt("signing", text, help);
        }
        None => {}
    }
    if let Some(words) = user_git::hooks_text(repo) {
        report.add_doubt("hooks", words, "add what these hooks check to [gates] verify");
    }
}

/// Whether the target branch still has what the journal calls landed.
pub(super) fn check_landings(context: &CliContext, repo: &Repo, report: &mut DoctorReport) {
    // A journal that cannot be read is told about already.
    let Ok((_, _, look)) = context.open_run(None) else { return };
    let Some(run) = &look.run else { return };
    if state_check::belongs_to_another_repository(repo, &look.machine).unwrap_or(false) {
        let text = "the state in .git/mainstem belongs to another repository: none of its landed commits exist here";
        let help = "restore this repository's own state, or move .git/mainstem away";
        return report.add_bad("landings", text, help);
    }
    let lost = state_check::find_lost_landings(repo, run, &look.machine).unwrap_or_default();
    let tasks: Vec<String> = lost.iter().map(|lost| lost.task.to_string()).collect();
    if !tasks.is_empty() {
        let target = look.machine.target_branch();
        let text = format!("landed work is no longer on {target}: {}", tasks.join(", "));
        let help = format!("to land again: mainstem retry {}, then mainstem run", tasks.join(" "));
        report.add_bad("landings", text, help);
    }
}

/// Runs the gates on the target branch, unless it is known that they pass.
pub(super) fn check_target_gates(
    context: &CliContext,
    repo: &Repo,
    settings: &Settings,
    report: &mut DoctorReport,
) {
    if settings.gates.verify.is_empty() {
        return;
    }
    let layout = RepoLayout::new(repo, settings.workspace.root.as_deref());
    if matches!(layout.run_store().owner(), Ok(Some(_))) {
        return report.add_good("target", "checks on the target branch are left to the active run");
    }
    let seen = preflight::check_target(context, false);
    let checks = settings.gates.verify.join(", ");
    match seen {
        Ok(Some(check)) if check.has_passed() => {
            report.add_good("target", format!("{checks} passes on {}", check.target));
        }
        Ok(Some(red)) => {
            let explained = preflight::explain_target(repo, settings, &red);
            let mut text = explained.message;
            for line in explained.lines {
                text.push_str(&format!("\n      {line}"));
            }
            let help = "to run a plan that fixes the check: mainstem run PLAN --allow-red";
            report.add_bad("target", text, explained.hints.first().map_or(help, String::as_str));
        }
        Ok(None) => {}
        Err(failure) => {
            report.add_doubt(
                "target",
                failure.message,
                "skip this check: mainstem doctor --no-try",
            );
        }
    }
}

/// Settings that contradict each other, or that this version does not have.
pub(super) fn check_setting_conflicts(settings: &Settings, report: &mut DoctorReport) {
    let before = report.checks.len();
    for (key, value) in settings.unsupported_settings() {
        let text = format!("this version does not support this {key}; no run can start");
        report.add_bad("settings", text, format!("set {key} = \"{value}\""));
    }
    if let Some(agent) = &settings.run.agent
        && !settings.agents.contains_key(agent)
    {
        let text = format!("run.agent is {agent}, but [agents.{agent}] is not defined");
        report.add_bad("settings", text, format!("define [agents.{agent}], or change run.agent"));
    }
    if settings.gates.verify.is_empty() {
        let text = "gates.verify is empty: work lands without checks";
        report.add_doubt("gates", text, "find a test command: mainstem init --dry-run");
    }
    if settings.workspace.unit == WorkspaceSharing::None && settings.run.jobs > 1 {
        let text = "workspace.unit = \"none\": all tasks share one workspace, so only one agent runs at a time";
        report.add_doubt(
            "settings",
            text,
            "set workspace.unit = \"task\" to run agents in parallel",
        );
    }
    if report.checks.len() == before {
        report.add_good("settings", "settings are consistent");
    }
}
