//! `undo` and `clean`: looking after what a run left. The engine's `care` does the work;
//! here it is asked for and told.

use mainstem_api::actions::{CleanReport, CleanedItem, UndoPreview, UndoReport};
use mainstem_api::exit_code;
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_engine::instance::EngineError;
use mainstem_engine::maintenance::{self, CleanScope, CleanupItem, UndoError};
use mainstem_engine::uninstall::{self, UnlandedWorkPolicy};

use crate::args::{CleanArgs, UndoArgs};
use crate::commands::history::journal_error;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::{CliContext, own_executable, text_environment};
use crate::error::CommandResult;
use crate::output;

/// Takes back the last landing.
pub(crate) fn cmd_undo(context: &CliContext, args: &UndoArgs) -> CommandResult {
    if args.dry_run {
        return preview_undo(context);
    }
    let (_, _, layout) = context.load_repo_context()?;
    if !layout.run_store().has_journal().map_err(journal_error)? {
        return Err(EngineError::NoRun.into());
    }
    let session = context.open_engine_instance()?;
    let undone = maintenance::undo_landing(session, own_executable()?, text_environment())?;
    if context.global.json {
        output::write_json(&UndoReport {
            task: undone.task,
            commit: undone.commit.to_string(),
            now: undone.now.to_string(),
            reverted: undone.reverted,
            checkout: undone.checkout,
        })?;
        return Ok(exit_code::OK);
    }
    let how = if undone.reverted { "reverted in" } else { "the branch is back at" };
    output::write_stderr(&format!(
        "undid {} ({}): {how} {}",
        undone.task,
        short_oid(undone.commit.as_str()),
        short_oid(undone.now.as_str())
    ));
    if let Some(why) = &undone.checkout {
        output::write_stderr(&format!("your checkout was not updated: {}", collapse_to_line(why)));
    }
    output::write_stderr(&format!(
        "to redo {0}: mainstem retry {0}, then mainstem run",
        undone.task
    ));
    Ok(exit_code::OK)
}

/// The newest landing that moved the branch: what an undo would take back.
fn last_landing(machine: &Machine) -> Option<(TaskIx, Oid, Oid)> {
    let landed = machine
        .tasks()
        .all_tasks()
        .filter_map(|t| Some((t, machine.tasks().get(t).landed.as_ref()?)));
    landed
        .filter(|(_, landing)| !landing.empty)
        .max_by_key(|(_, landing)| landing.order)
        .map(|(t, landing)| (t, landing.commit.clone(), landing.old.clone()))
}

fn preview_undo(context: &CliContext) -> CommandResult {
    let (repo, _, look) = context.open_existing_run(None)?;
    let machine = &look.machine;
    let (t, commit, old) = last_landing(machine).ok_or(UndoError::NothingLanded)?;
    let task = machine.graph().id(t).to_string();
    if machine.lands_on_forge(t) {
        return Err(UndoError::OnForge(task).into());
    }
    let target = machine.target_branch().to_owned();
    let gone = || UndoError::Gone { commit: commit.clone(), branch: target.clone() };
    let head = repo.read_ref(&format!("refs/heads/{target}"))?.ok_or_else(gone)?;
    if !repo.is_ancestor(&commit, &head)? {
        return Err(gone().into());
    }
    let reverts = head != commit || repo.is_on_remote(&commit)?;
    if context.global.json {
        let (commit, to) = (commit.to_string(), (!reverts).then(|| old.to_string()));
        let branch = target;
        output::write_json(&UndoPreview { dry_run: true, task, commit, branch, reverts, to })?;
        return Ok(exit_code::OK);
    }
    let commit = short_oid(commit.as_str());
    let words = if reverts {
        format!("would undo {task} ({commit}) with a revert commit on {target}, if the checks pass")
    } else {
        format!(
            "would undo {task} ({commit}) by moving {target} back to {}",
            short_oid(old.as_str())
        )
    };
    output::write_stdout(&format!("{words}\n"))?;
    Ok(exit_code::OK)
}

/// What was removed and what was kept, for programs.
pub(crate) fn clean_report(items: Vec<CleanupItem>, dry_run: Option<bool>) -> CleanReport {
    let items = items.into_iter().map(|item| CleanedItem {
        what: item.what,
        place: item.place,
        why: item.kept_because,
    });
    let (kept, removed) = items.partition(|item| item.why.is_some());
    CleanReport { dry_run, removed, kept }
}

/// Removes what nobody needs.
pub(crate) fn cmd_clean(context: &CliContext, args: &CleanArgs) -> CommandResult {
    let (repo, _, layout) = context.load_repo_context()?;
    let untouched = !layout.run_store().has_journal().map_err(journal_error)?
        && !layout.workspace_root().exists()
        && repo.list_refs("refs/heads/mainstem/")?.is_empty();
    let untouched = untouched && repo.list_refs("refs/mainstem/")?.is_empty();
    let unlanded = match args.discard_unlanded {
        true => UnlandedWorkPolicy::Discarded,
        false => UnlandedWorkPolicy::Kept,
    };
    let litter = match (untouched, args.everything) {
        // Looking for litter takes the repository over, which would itself leave some.
        (true, _) => Vec::new(),
        (false, false) => maintenance::clean_repository(
            &mut context.open_engine_instance()?,
            &CleanScope::Everything,
            args.dry_run,
        )?,
        (false, true) => {
            uninstall::remove_everything(context.open_engine_instance()?, unlanded, args.dry_run)?
        }
    };
    if context.global.json {
        output::write_json(&clean_report(litter, Some(args.dry_run)))?;
        return Ok(exit_code::OK);
    }
    if litter.is_empty() {
        output::write_stderr("nothing to clean");
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = litter
        .iter()
        .map(|l| {
            let fate = match (&l.kept_because, args.dry_run) {
                (Some(why), _) => format!("kept: {}", collapse_to_line(why)),
                (None, true) => "would be removed".to_owned(),
                (None, false) => "removed".to_owned(),
            };
            vec![l.what.clone(), l.place.clone(), fate]
        })
        .collect();
    output::write_stdout(&output::format_table(&rows))?;
    if !context.global.quiet && args.everything {
        let kept =
            litter.iter().filter(|l| l.kept_because.is_some() && l.what == "snapshot").count();
        if kept > 0 {
            output::write_stderr(
                "work that has not landed is kept; to restore it: git branch NAME REF",
            );
        }
        output::write_stderr("landed work and mainstem.toml are not touched");
    } else if !context.global.quiet && !args.dry_run {
        output::write_stderr(
            "work that has not landed is kept in snapshots: mainstem restore --list",
        );
    }
    Ok(exit_code::OK)
}
