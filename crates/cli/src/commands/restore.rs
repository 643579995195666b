//! `restore`: lists the snapshots of tasks and brings one back as a branch. Reads refs first: it works
//! while an engine runs, after a crash, and without a journal.

use mainstem_api::{exit_code, time};
use mainstem_core::id::{Oid, check_id};
use mainstem_core::machine::Machine;
use mainstem_engine::care::{self, Kept};
use mainstem_engine::kept::{self, Known, Tale};
use mainstem_engine::look::Look;
use mainstem_host::git::{Cas, Repo};
use serde_json::{Value, json};

use crate::args::RestoreArgs;
use crate::commands::show::snapshot_json;
use crate::commands::status::{one_line, short};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::{commands::history, print};

/// Where to look for snapshots.
struct Place {
    repo: Repo,
    /// None if the journal is damaged; then the refs have to do.
    look: Option<Look>,
    /// What people should know about that.
    note: Option<String>,
}

/// Brings a snapshot of a task's work back as a branch, or lists them.
pub(crate) fn restore(context: &Context, args: &RestoreArgs) -> Outcome {
    let place = Place::of(context)?;
    if let Some(note) = &place.note {
        print::err(note);
    }
    let Some(task) = args.task.as_deref() else { return list_all(context, &place) };
    let all = if check_id(task).is_ok() { care::snapshots(&place.repo, task)? } else { Vec::new() };
    if all.is_empty() {
        // A task of an earlier run may have snapshots; one without any must at least be known.
        place.must_know(task)?;
    }
    if args.list {
        let all = all.into_iter().filter(|kept| args.attempt.is_none_or(|n| kept.attempt == n));
        return list(context, &place, task, &all.collect::<Vec<_>>());
    }
    let Some(kept) = choose(&place, task, &all, args) else {
        return Err(nothing(task, &all, args));
    };
    let branch = bring_back(&place.repo, task, kept, args.branch.as_deref())?;
    if context.global.json {
        let mut value = snapshot_json(kept);
        value["task"] = task.into();
        value["branch"] = branch.into();
        value["note"] = place.note.into();
        print::out_json(&value)?;
        return Ok(exit_code::OK);
    }
    print::out(&format!("{branch}\n"))?;
    if !context.global.quiet {
        let target = place.target()?;
        let Kept { attempt, number, commit, .. } = kept;
        print::err(&format!(
            "restored snapshot {attempt}/{number} of {task} ({}) as branch {branch}",
            short(commit.as_str())
        ));
        print::err(&format!(
            "see the changes: git log -p {target}..{branch} · git diff {target}...{branch}"
        ));
        print::err(&format!("check it out: git switch {branch}"));
    }
    Ok(exit_code::OK)
}

impl Place {
    fn of(context: &Context) -> Result<Self, Failure> {
        let (repo, settings, layout) = context.place_to_look()?;
        let (look, note) = match Look::at(&layout, &settings, None) {
            Ok(look) => {
                let lost = look.reader.is_none() && !care::all_snapshots(&repo)?.is_empty();
                let note = "no journal found; listing what git refs alone show";
                (Some(look), lost.then(|| note.to_owned()))
            }
            Err(error) => {
                let error = one_line(&error.to_string());
                (
                    None,
                    Some(format!(
                        "cannot read the journal; listing what git refs alone show: {error}"
                    )),
                )
            }
        };
        Ok(Self { repo, look, note })
    }

    fn machine(&self) -> Option<&Machine> {
        self.look.as_ref().map(|look| &look.machine)
    }

    fn must_know(&self, task: &str) -> Result<(), Failure> {
        match &self.look {
            Some(look) if look.run.is_some() => Ok(look.machine.find(task).map(drop)?),
            Some(_) if self.note.is_none() => Err(Failure::new("no run in this repository yet")
                .hint("start one: mainstem run PLAN; or take a tour: mainstem demo")),
            _ => Err(Failure::new(format!("no snapshot of {task}"))
                .hint("list all snapshots: mainstem restore --list")),
        }
    }

    fn target(&self) -> Result<String, Failure> {
        match self.machine().map(Machine::target) {
            None | Some("") => Ok(self.repo.default_branch()?),
            Some(target) => Ok(target.to_owned()),
        }
    }

    fn known(&self, task: &str, all: &[Kept]) -> Result<Vec<Known>, Failure> {
        let reader = self.look.as_ref().and_then(|look| look.reader.as_ref());
        let tale = match reader {
            Some(reader) => Tale::of(reader, task).map_err(history::unreadable)?,
            None => Tale::default(),
        };
        Ok(kept::known(&self.repo, all, &tale, Some(&self.target()?))?)
    }
}

/// The one asked for; else the newest of the attempt asked for; else of the last one.
fn choose<'a>(place: &Place, task: &str, all: &'a [Kept], args: &RestoreArgs) -> Option<&'a Kept> {
    let attempt = match args.attempt {
        Some(attempt) => attempt,
        None => newest(place, task, all)?.attempt,
    };
    all.iter().rfind(|kept| {
        kept.attempt == attempt && args.snapshot.is_none_or(|number| kept.number == number)
    })
}

/// The newest snapshot of the attempt that the journal names last: numbers begin anew with a run,
/// and `clean` keeps things as attempt 0. Without a journal, attempt and number decide.
fn newest<'a>(place: &Place, task: &str, all: &'a [Kept]) -> Option<&'a Kept> {
    let state = place.machine().and_then(|m| m.find(task).ok().map(|t| m.tasks().get(t)));
    let told = state.and_then(|state| state.snapshot.as_ref());
    let attempt = told.and_then(|(refname, _)| all.iter().find(|kept| kept.refname == *refname));
    attempt.and_then(|told| all.iter().rfind(|kept| kept.attempt == told.attempt)).or(all.last())
}

fn nothing(task: &str, all: &[Kept], args: &RestoreArgs) -> Failure {
    let which = match (args.attempt, args.snapshot) {
        (Some(attempt), Some(number)) => format!("snapshot {attempt}/{number} of {task}"),
        (Some(attempt), None) => format!("snapshot of attempt {attempt} of {task}"),
        (None, Some(number)) => format!("snapshot {number} of the last attempt of {task}"),
        (None, None) => format!("snapshot of {task}"),
    };
    let failure = Failure::new(format!("no {which}"));
    if all.is_empty() {
        return failure.hint("list all snapshots: mainstem restore --list");
    }
    failure.hint(format!("list the snapshots of {task}: mainstem restore {task} --list"))
}

/// A branch that a person names is made or refused; one of our own choosing finds a free name.
fn bring_back(
    repo: &Repo,
    task: &str,
    kept: &Kept,
    branch: Option<&str>,
) -> Result<String, Failure> {
    let Some(name) = branch else {
        return Ok(repo.restore_branch(&format!("restore/{task}"), &kept.commit)?);
    };
    let full = format!("refs/heads/{name}");
    repo.make_sure_of_room(name)?;
    match repo.update_ref(&full, &kept.commit, None, "mainstem: restore")? {
        Cas::Moved => Ok(name.to_owned()),
        Cas::Refused { found: Some(found) } if found == kept.commit => Ok(name.to_owned()),
        Cas::Refused { found } => {
            let at = found.as_ref().map_or("another commit", |id| short(id.as_str()));
            Err(Failure::new(format!("branch {name} already exists, at {at}"))
                .hint("use another name with --branch, or omit --branch")
                .hint(format!("or rename the existing branch: git branch -m {name} OTHER")))
        }
    }
}

fn list_all(context: &Context, place: &Place) -> Outcome {
    let all = care::all_snapshots(&place.repo)?;
    let mut tasks = Vec::new();
    for (task, kept) in &all {
        tasks.push((task, place.known(task, kept)?));
    }
    if context.global.json {
        let tasks: Vec<Value> = tasks
            .iter()
            .map(|(task, known)| {
                json!({ "task": task, "snapshots": known.iter().map(as_json).collect::<Vec<_>>() })
            })
            .collect();
        print::out_json(&json!({ "tasks": tasks, "note": place.note }))?;
        return Ok(exit_code::OK);
    }
    if tasks.is_empty() {
        print::err("no snapshots in this repository");
        return Ok(exit_code::OK);
    }
    let mut rows = Vec::new();
    for (task, known) in &tasks {
        rows.extend(known.iter().map(|known| {
            let mut row = row(known);
            row.insert(0, (*task).clone());
            row
        }));
    }
    print::out(&print::table(&rows))?;
    print::err("restore one: mainstem restore T --attempt N --snapshot N");
    Ok(exit_code::OK)
}

fn list(context: &Context, place: &Place, task: &str, all: &[Kept]) -> Outcome {
    let known = place.known(task, all)?;
    if context.global.json {
        let snapshots: Vec<Value> = known.iter().map(as_json).collect();
        print::out_json(&json!({ "task": task, "snapshots": snapshots, "note": place.note }))?;
        return Ok(exit_code::OK);
    }
    if all.is_empty() {
        print::err(&format!("no snapshot of {task}"));
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = known.iter().map(row).collect();
    print::out(&print::table(&rows))?;
    print::err(&format!("restore one: mainstem restore {task} --attempt N --snapshot N"));
    Ok(exit_code::OK)
}

fn as_json(known: &Known) -> Value {
    let mut value = snapshot_json(&known.kept);
    value["at"] = known.at_ms.map(time::to_rfc3339).into();
    value["why"] = known.why.clone().into();
    value["subject"] = known.subject.clone().into();
    value["base"] = known.base.as_ref().map(Oid::as_str).into();
    value["files"] = known.size.map(|size| size.files).into();
    value["insertions"] = known.size.map(|size| size.insertions).into();
    value["deletions"] = known.size.map(|size| size.deletions).into();
    value
}

fn row(known: &Known) -> Vec<String> {
    let at = known.at_ms.map(|at| time::to_rfc3339(at).replace('T', " ")).unwrap_or_default();
    let size = known.size.map_or_else(
        || "–".to_owned(),
        |s| format!("{} +{} -{}", print::count(s.files, "file"), s.insertions, s.deletions),
    );
    let why = match (&known.why, &known.subject) {
        (Some(why), _) => one_line(why),
        (None, Some(subject)) => one_line(subject),
        (None, None) => "commit is missing".to_owned(),
    };
    let Kept { attempt, number, commit, .. } = &known.kept;
    vec![
        format!("{attempt}/{number}"),
        short(commit.as_str()).to_owned(),
        at.get(..19).unwrap_or_default().to_owned(),
        size,
        why,
    ]
}
