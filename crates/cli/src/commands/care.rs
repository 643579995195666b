//! `undo` and `clean`: looking after what a run left. The engine's `care` does the work;
//! here it is asked for and told.

use mainstem_api::exit_code;
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_engine::care::{self, CleanScope, UndoError};
use mainstem_engine::session::SessionError;
use mainstem_engine::uninstall::{self, Unlanded};
use serde_json::json;

use crate::args::{CleanArgs, UndoArgs};
use crate::commands::status::{one_line, short};
use crate::context::{Context, environment, own_exe};
use crate::failure::Outcome;
use crate::print;

/// Takes back the last landing.
pub(crate) fn undo(context: &Context, args: &UndoArgs) -> Outcome {
    if args.dry_run {
        return would_undo(context);
    }
    let (_, _, layout) = context.place()?;
    if !layout.journal().exists() {
        return Err(SessionError::NoRun.into());
    }
    let session = context.session()?;
    let undone = care::undo(session, own_exe()?, environment())?;
    if context.global.json {
        print::out_json(&json!({
            "task": undone.task, "commit": undone.commit, "now": undone.now,
            "reverted": undone.reverted, "checkout": undone.checkout,
        }))?;
        return Ok(exit_code::OK);
    }
    let how = if undone.reverted { "reverted in" } else { "the branch is back at" };
    print::err(&format!(
        "undid {} ({}): {how} {}",
        undone.task,
        short(undone.commit.as_str()),
        short(undone.now.as_str())
    ));
    if let Some(why) = &undone.checkout {
        print::err(&format!("your checkout was not updated: {}", one_line(why)));
    }
    print::err(&format!("to redo {0}: mainstem retry {0}, then mainstem run", undone.task));
    Ok(exit_code::OK)
}

/// The newest landing that moved the branch: what an undo would take back.
fn last_landing(machine: &Machine) -> Option<(TaskIx, Oid, Oid)> {
    let landed =
        machine.tasks().all().filter_map(|t| Some((t, machine.tasks().get(t).landed.as_ref()?)));
    landed
        .filter(|(_, landing)| !landing.empty)
        .max_by_key(|(_, landing)| landing.order)
        .map(|(t, landing)| (t, landing.commit.clone(), landing.old.clone()))
}

fn would_undo(context: &Context) -> Outcome {
    let (repo, _, look) = context.look_at_run(None)?;
    let machine = &look.machine;
    let (t, commit, old) = last_landing(machine).ok_or(UndoError::NothingLanded)?;
    let task = machine.graph().id(t).to_string();
    if machine.lands_by_pull(t) {
        return Err(UndoError::OnForge(task).into());
    }
    let target = machine.target().to_owned();
    let gone = || UndoError::Gone { commit: commit.clone(), branch: target.clone() };
    let head = repo.read_ref(&format!("refs/heads/{target}"))?.ok_or_else(gone)?;
    if !repo.is_ancestor(&commit, &head)? {
        return Err(gone().into());
    }
    let reverts = head != commit || repo.is_published(&commit)?;
    if context.global.json {
        print::out_json(&json!({
            "dry_run": true, "task": task, "commit": commit, "branch": target,
            "reverts": reverts, "to": (!reverts).then_some(old),
        }))?;
        return Ok(exit_code::OK);
    }
    let commit = short(commit.as_str());
    let words = if reverts {
        format!("would undo {task} ({commit}) with a revert commit on {target}, if the checks pass")
    } else {
        format!("would undo {task} ({commit}) by moving {target} back to {}", short(old.as_str()))
    };
    print::out(&format!("{words}\n"))?;
    Ok(exit_code::OK)
}

/// Removes what nobody needs.
pub(crate) fn clean(context: &Context, args: &CleanArgs) -> Outcome {
    let (repo, _, layout) = context.place()?;
    let untouched = !layout.journal().exists()
        && !layout.root().exists()
        && repo.list_refs("refs/heads/mainstem/")?.is_empty();
    let untouched = untouched && repo.list_refs("refs/mainstem/")?.is_empty();
    let unlanded = match args.discard_unlanded {
        true => Unlanded::Discarded,
        false => Unlanded::Kept,
    };
    let litter = match (untouched, args.everything) {
        // Looking for litter takes the repository over, which would itself leave some.
        (true, _) => Vec::new(),
        (false, false) => {
            care::clean(&mut context.session()?, &CleanScope::Everything, args.dry_run)?
        }
        (false, true) => uninstall::remove_everything(context.session()?, unlanded, args.dry_run)?,
    };
    if context.global.json {
        let (kept, gone): (Vec<_>, Vec<_>) = litter.iter().partition(|l| l.stays.is_some());
        let of = |l: &&care::Litter| json!({ "what": l.what, "place": l.place, "why": l.stays });
        print::out_json(&json!({
            "dry_run": args.dry_run,
            "removed": gone.iter().map(of).collect::<Vec<_>>(),
            "kept": kept.iter().map(of).collect::<Vec<_>>(),
        }))?;
        return Ok(exit_code::OK);
    }
    if litter.is_empty() {
        print::err("nothing to clean");
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = litter
        .iter()
        .map(|l| {
            let fate = match (&l.stays, args.dry_run) {
                (Some(why), _) => format!("kept: {}", one_line(why)),
                (None, true) => "would be removed".to_owned(),
                (None, false) => "removed".to_owned(),
            };
            vec![l.what.clone(), l.place.clone(), fate]
        })
        .collect();
    print::out(&print::table(&rows))?;
    if !context.global.quiet && args.everything {
        let kept = litter.iter().filter(|l| l.stays.is_some() && l.what == "snapshot").count();
        if kept > 0 {
            print::err("work that has not landed is kept; to restore it: git branch NAME REF");
        }
        print::err("landed work and mainstem.toml are not touched");
    } else if !context.global.quiet && !args.dry_run {
        print::err("work that has not landed is kept in snapshots: mainstem restore --list");
    }
    Ok(exit_code::OK)
}
