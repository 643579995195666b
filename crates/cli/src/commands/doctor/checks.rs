//! What gates and setup commands need, and what they say of the target branch.

use mainstem_core::config::{SandboxKind, Settings, Sign, WorkspaceKind};
use mainstem_engine::paths::Layout;
use mainstem_engine::state_check;
use mainstem_engine::walls::WallError;
use mainstem_host::git::Repo;
use mainstem_host::lock::{self, Probe};

use super::Report;
use crate::commands::user_git;
use crate::context::Context;
use crate::preflight;

/// Programs that gates and setup commands start.
pub(super) fn programs(settings: &Settings, report: &mut Report) {
    for finding in preflight::of_commands(settings) {
        report.bad("gates", format!("{}: {}", finding.subject, finding.text), finding.help);
    }
}

/// Whether agents can work on the refs of this repository.
pub(super) fn ref_format(repo: &Repo, settings: &Settings, report: &mut Report) {
    let apart = settings.workspace.kind == WorkspaceKind::Clone;
    if repo.has_reftable() && !apart && settings.sandbox.kind != SandboxKind::Off {
        report.bad("refs", WallError::Reftable.to_string(), WallError::Reftable.help());
    }
}

/// Whether files may become as large as they must.
pub(super) fn file_size(report: &mut Report) {
    if let Err(failure) = preflight::room_for_files() {
        let help = failure.hints.first().cloned().unwrap_or_default();
        report.bad("file size", failure.message, help);
    }
}

/// What the user's git does with every commit, and landings do not.
pub(super) fn user_git_habits(repo: &Repo, settings: &Settings, report: &mut Report) {
    match user_git::signing(repo, settings) {
        Some(Ok(words)) => report.good("signing", words),
        Some(Err(why)) if settings.land.sign == Sign::Required => {
            let help = "unlock a key with a passphrase in gpg-agent or ssh-agent first";
            report.bad("signing", format!("cannot sign landed commits: {why}"), help);
        }
        Some(Err(why)) => {
            let help = "set land.sign to \"off\", or to \"required\" to refuse unsigned landings";
            let text = format!("commit.gpgSign is set, but landed commits cannot be signed: {why}");
            report.doubt("signing", text, help);
        }
        None => {}
    }
    if let Some(words) = user_git::hooks(repo) {
        report.doubt("hooks", words, "add what these hooks check to [gates] verify");
    }
}

/// Whether the target branch still has what the journal calls landed.
pub(super) fn landings(context: &Context, repo: &Repo, report: &mut Report) {
    // A journal that cannot be read is told about already.
    let Ok((_, _, look)) = context.look(None) else { return };
    let Some(run) = &look.run else { return };
    if state_check::is_of_another_repository(repo, &look.machine).unwrap_or(false) {
        let text = "the state in .git/mainstem belongs to another repository: none of its landed commits exist here";
        let help = "restore this repository's own state, or move .git/mainstem away";
        return report.bad("landings", text, help);
    }
    let lost = state_check::lost_landings(repo, run, &look.machine).unwrap_or_default();
    let tasks: Vec<String> = lost.iter().map(|lost| lost.task.to_string()).collect();
    if !tasks.is_empty() {
        let target = look.machine.target();
        let text = format!("landed work is no longer on {target}: {}", tasks.join(", "));
        let help = format!("to land again: mainstem retry {}, then mainstem run", tasks.join(" "));
        report.bad("landings", text, help);
    }
}

/// Runs the gates on the target branch, unless it is known that they pass.
pub(super) fn target_gates(
    context: &Context,
    repo: &Repo,
    settings: &Settings,
    report: &mut Report,
) {
    if settings.gates.verify.is_empty() {
        return;
    }
    let layout = Layout::new(repo, settings.workspace.root.as_deref());
    if matches!(lock::probe(&layout.lock()), Ok(Probe::Busy { .. })) {
        return report.good("target", "checks on the target branch are left to the active run");
    }
    let seen = preflight::try_target(context, false);
    let checks = settings.gates.verify.join(", ");
    match seen {
        Ok(Some(check)) if check.passed() => {
            report.good("target", format!("{checks} passes on {}", check.target));
        }
        Ok(Some(red)) => {
            let explained = preflight::explain(repo, settings, &red);
            let mut text = explained.message;
            for line in explained.lines {
                text.push_str(&format!("\n      {line}"));
            }
            let help = "to run a plan that fixes the check: mainstem run PLAN --allow-red";
            report.bad("target", text, explained.hints.first().map_or(help, String::as_str));
        }
        Ok(None) => {}
        Err(failure) => {
            report.doubt("target", failure.message, "skip this check: mainstem doctor --no-try");
        }
    }
}
