//! `restore`, `undo` and `clean`: looking after what a run left. The engine's `care` does the work;
//! here it is asked for and told.

use std::collections::BTreeMap;

use mainstem_api::{exit_code, time};
use mainstem_core::fact::Fact;
use mainstem_core::id::{Oid, TaskIx, check_id};
use mainstem_core::machine::Machine;
use mainstem_engine::care::{self, Kept, UndoError};
use mainstem_engine::look::Look;
use mainstem_engine::session::SessionError;
use serde_json::{Value, json};

use crate::args::{CleanArgs, RestoreArgs, UndoArgs};
use crate::commands::history;
use crate::commands::show::snapshot_json;
use crate::commands::status::{one_line, short};
use crate::context::{Context, environment, own_exe};
use crate::failure::{Failure, Outcome};
use crate::print;

/// Brings a snapshot of a task's work back as a branch, or lists them.
pub(crate) fn restore(context: &Context, args: &RestoreArgs) -> Outcome {
    let (repo, _, look) = context.look(None)?;
    let task = args.task.as_str();
    let all = if check_id(task).is_ok() { care::snapshots(&repo, task)? } else { Vec::new() };
    if all.is_empty() {
        // A task of an earlier run may have snapshots; one without any must at least be known.
        context.look_at_run(None)?.2.machine.find(task)?;
    }
    if args.list {
        return list(context, &look, task, &all);
    }
    let wanted = |kept: &&Kept| {
        args.attempt.is_none_or(|n| kept.attempt == n)
            && args.number.is_none_or(|n| kept.number == n)
    };
    let kept = match args.attempt {
        Some(_) => all.iter().rfind(wanted),
        None => newest(&look, task, &all),
    };
    let Some(kept) = kept else {
        let failure = Failure::new(match args.attempt {
            Some(n) => format!("there is no such snapshot of attempt {n} of {task}"),
            None => format!("there is no snapshot of {task}"),
        });
        return Err(failure.hint(format!("mainstem restore {task} --list shows what there is")));
    };
    let name = args.branch.clone().unwrap_or_else(|| format!("restore/{task}"));
    let branch = repo.restore_branch(&name, &kept.commit)?;
    if context.global.json {
        let mut value = snapshot_json(kept);
        value["task"] = task.into();
        value["branch"] = branch.into();
        print::out_json(&value)?;
        return Ok(exit_code::OK);
    }
    print::out(&format!("{branch}\n"))?;
    if !context.global.quiet {
        let target = match look.machine.target() {
            "" => repo.default_branch()?,
            target => target.to_owned(),
        };
        let Kept { attempt, number, commit, .. } = kept;
        print::err(&format!(
            "snapshot {attempt}/{number} of {task} ({}) is branch {branch} now",
            short(commit.as_str())
        ));
        print::err(&format!("look: git log -p {target}..{branch} · git diff {target}...{branch}"));
        print::err(&format!("work on it: git switch {branch}"));
    }
    Ok(exit_code::OK)
}

/// The newest snapshot of the attempt that the journal names last: numbers begin anew with a run,
/// and `clean` keeps things as attempt 0. Without a journal, attempt and number decide.
fn newest<'a>(look: &Look, task: &str, all: &'a [Kept]) -> Option<&'a Kept> {
    let state = look.machine.find(task).ok().map(|t| look.machine.tasks().get(t));
    let told = state.and_then(|state| state.snapshot.as_ref());
    let attempt = told.and_then(|(refname, _)| all.iter().find(|kept| kept.refname == *refname));
    attempt.and_then(|told| all.iter().rfind(|kept| kept.attempt == told.attempt)).or(all.last())
}

fn list(context: &Context, look: &Look, task: &str, all: &[Kept]) -> Outcome {
    // When and why is in the journal; one kept by an earlier run has only its commit.
    let mut told: BTreeMap<String, (i64, String)> = BTreeMap::new();
    for (record, fact) in history::facts(look, Some(task))? {
        if let Fact::SnapshotTaken { refname, why, .. } = fact {
            told.insert(refname, (record.at_ms, why));
        }
    }
    if context.global.json {
        let snapshots: Vec<Value> = all
            .iter()
            .map(|kept| {
                let mut value = snapshot_json(kept);
                let told = told.get(&kept.refname);
                value["at"] = told.map(|(at, _)| time::to_rfc3339(*at)).into();
                value["why"] = told.map(|(_, why)| why.clone()).into();
                value
            })
            .collect();
        print::out_json(&json!({ "task": task, "snapshots": snapshots }))?;
        return Ok(exit_code::OK);
    }
    if all.is_empty() {
        print::err(&format!("there is no snapshot of {task}"));
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|kept| {
            let (at, why) = told.get(&kept.refname).map_or_else(
                || (String::new(), String::new()),
                |(at, why)| (time::to_rfc3339(*at).replace('T', " "), one_line(why)),
            );
            vec![
                format!("{}/{}", kept.attempt, kept.number),
                short(kept.commit.as_str()).to_owned(),
                at.get(..19).unwrap_or_default().to_owned(),
                why,
                kept.refname.clone(),
            ]
        })
        .collect();
    print::out(&print::table(&rows))?;
    print::err(&format!("bring one back: mainstem restore {task} --attempt N --number N"));
    Ok(exit_code::OK)
}

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
    let how = if undone.reverted { "a revert was put on top" } else { "the branch went back" };
    print::err(&format!(
        "{} ({}) is taken back: {how}, now at {}",
        undone.task,
        short(undone.commit.as_str()),
        short(undone.now.as_str())
    ));
    if let Some(why) = &undone.checkout {
        print::err(&format!("your checkout was left alone: {}", one_line(why)));
    }
    print::err(&format!(
        "to have it done again: mainstem retry {0}, then mainstem run",
        undone.task
    ));
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
    let target = machine.target().to_owned();
    let gone = || UndoError::Gone { commit: commit.clone(), branch: target.clone() };
    let head = repo.read_ref(&format!("refs/heads/{target}"))?.ok_or_else(gone)?;
    if !repo.is_ancestor(&commit, &head)? {
        return Err(gone().into());
    }
    let reverts = head != commit;
    if context.global.json {
        print::out_json(&json!({
            "dry_run": true, "task": task, "commit": commit, "branch": target,
            "reverts": reverts, "to": (!reverts).then_some(old),
        }))?;
        return Ok(exit_code::OK);
    }
    let commit = short(commit.as_str());
    let words = if reverts {
        format!(
            "would take back {task} ({commit}) by a revert on top of {target}, if the gates pass"
        )
    } else {
        format!("would take back {task} ({commit}): {target} goes back to {}", short(old.as_str()))
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
    let litter = match untouched {
        // Looking for litter takes the repository over, which would itself leave some.
        true => Vec::new(),
        false => care::clean(&context.session()?, args.dry_run)?,
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
        print::err("there is nothing to clean");
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = litter
        .iter()
        .map(|l| {
            let fate = match (&l.stays, args.dry_run) {
                (Some(why), _) => format!("stays: {}", one_line(why)),
                (None, true) => "would go".to_owned(),
                (None, false) => "removed".to_owned(),
            };
            vec![l.what.clone(), l.place.clone(), fate]
        })
        .collect();
    print::out(&print::table(&rows))?;
    if !context.global.quiet && !args.dry_run {
        print::err("work that had not landed is on snapshots: mainstem restore T --list");
    }
    Ok(exit_code::OK)
}
