//! `restore`: lists the snapshots of tasks and brings one back as a branch. Reads refs first: it works
//! while an engine runs, after a crash, and without a journal.

use mainstem_api::run::{NoteField, RestoreReport, SnapshotReport, TaskSnapshots};
use mainstem_api::{exit_code, time};
use mainstem_core::id::check_id;
use mainstem_core::machine::Machine;
use mainstem_engine::maintenance::{self, SnapshotRef};
use mainstem_engine::query::RunReader;
use mainstem_engine::query::runs::describe_snapshot;
use mainstem_engine::query::task::snapshot_status;
use mainstem_engine::snapshot_details::{self, SnapshotDetails, SnapshotHistory};
use mainstem_host::git::{RefUpdateOutcome, Repo};

use crate::args::RestoreArgs;
use crate::commands::status::{collapse_to_line, short_oid};
use crate::context::CliContext;
use crate::error::{CliError, CommandResult};
use crate::{commands::history, output};

/// Where to look for snapshots.
struct RestoreContext {
    repo: Repo,
    /// None if the journal is damaged; then the refs have to do.
    look: Option<RunReader>,
    /// What people should know about that.
    note: Option<String>,
}

/// Brings a snapshot of a task's work back as a branch, or lists them.
pub(crate) fn cmd_restore(context: &CliContext, args: &RestoreArgs) -> CommandResult {
    let place = RestoreContext::open(context)?;
    if let Some(note) = &place.note {
        output::write_stderr(note);
    }
    let Some(task) = args.task.as_deref() else { return list_all_snapshots(context, &place) };
    let all = if check_id(task).is_ok() {
        maintenance::list_task_snapshots(&place.repo, task)?
    } else {
        Vec::new()
    };
    if all.is_empty() {
        // A task of an earlier run may have snapshots; one without any must at least be known.
        place.require_task(task)?;
    }
    if args.list {
        let all = all.into_iter().filter(|kept| args.attempt.is_none_or(|n| kept.attempt == n));
        return list_snapshots(context, &place, task, &all.collect::<Vec<_>>());
    }
    let Some(kept) = choose_snapshot(&place, task, &all, args) else {
        return Err(no_snapshot_error(task, &all, args));
    };
    let branch = create_branch(&place.repo, task, kept, args.branch.as_deref())?;
    if context.global.json {
        let (snapshot, task, note) = (snapshot_status(kept), task.to_owned(), place.note);
        output::write_json(&RestoreReport { snapshot, task, branch, note })?;
        return Ok(exit_code::OK);
    }
    output::write_stdout(&format!("{branch}\n"))?;
    if !context.global.quiet {
        let target = place.target_branch()?;
        let SnapshotRef { attempt, number, commit, .. } = kept;
        output::write_stderr(&format!(
            "restored snapshot {attempt}/{number} of {task} ({}) as branch {branch}",
            short_oid(commit.as_str())
        ));
        output::write_stderr(&format!(
            "see the changes: git log -p {target}..{branch} · git diff {target}...{branch}"
        ));
        output::write_stderr(&format!("check it out: git switch {branch}"));
    }
    Ok(exit_code::OK)
}

impl RestoreContext {
    fn open(context: &CliContext) -> Result<Self, CliError> {
        let (repo, settings, layout) = context.load_read_only_context()?;
        let (look, note) = match RunReader::load(&layout, &settings, None) {
            Ok(look) => {
                let lost =
                    look.reader.is_none() && !maintenance::list_all_snapshots(&repo)?.is_empty();
                let note = "no journal found; listing what git refs alone show";
                (Some(look), lost.then(|| note.to_owned()))
            }
            Err(error) => {
                let error = collapse_to_line(&error.to_string());
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

    fn require_task(&self, task: &str) -> Result<(), CliError> {
        match &self.look {
            Some(look) if look.run.is_some() => Ok(look.machine.find_task(task).map(drop)?),
            Some(_) if self.note.is_none() => Err(CliError::new("no run in this repository yet")
                .with_hint("start one: mainstem run PLAN; or take a tour: mainstem demo")),
            _ => Err(CliError::new(format!("no snapshot of {task}"))
                .with_hint("list all snapshots: mainstem restore --list")),
        }
    }

    fn target_branch(&self) -> Result<String, CliError> {
        match self.machine().map(Machine::target_branch) {
            None | Some("") => Ok(self.repo.default_branch()?),
            Some(target) => Ok(target.to_owned()),
        }
    }

    fn known_snapshots(
        &self,
        task: &str,
        all: &[SnapshotRef],
    ) -> Result<Vec<SnapshotDetails>, CliError> {
        let reader = self.look.as_ref().and_then(|look| look.reader.as_deref());
        let tale = match reader {
            Some(reader) => {
                SnapshotHistory::read_history(reader, task).map_err(history::journal_error)?
            }
            None => SnapshotHistory::default(),
        };
        Ok(snapshot_details::describe_snapshots(
            &self.repo,
            all,
            &tale,
            Some(&self.target_branch()?),
        )?)
    }
}

/// The one asked for; else the newest of the attempt asked for; else of the last one.
fn choose_snapshot<'a>(
    place: &RestoreContext,
    task: &str,
    all: &'a [SnapshotRef],
    args: &RestoreArgs,
) -> Option<&'a SnapshotRef> {
    let attempt = match args.attempt {
        Some(attempt) => attempt,
        None => newest_snapshot(place, task, all)?.attempt,
    };
    all.iter().rfind(|kept| {
        kept.attempt == attempt && args.snapshot.is_none_or(|number| kept.number == number)
    })
}

/// The newest snapshot of the attempt that the journal names last: numbers begin anew with a run,
/// and `clean` keeps things as attempt 0. Without a journal, attempt and number decide.
fn newest_snapshot<'a>(
    place: &RestoreContext,
    task: &str,
    all: &'a [SnapshotRef],
) -> Option<&'a SnapshotRef> {
    let state = place.machine().and_then(|m| m.find_task(task).ok().map(|t| m.tasks().get(t)));
    let told = state.and_then(|state| state.snapshot.as_ref());
    let attempt = told.and_then(|(refname, _)| all.iter().find(|kept| kept.refname == *refname));
    attempt.and_then(|told| all.iter().rfind(|kept| kept.attempt == told.attempt)).or(all.last())
}

fn no_snapshot_error(task: &str, all: &[SnapshotRef], args: &RestoreArgs) -> CliError {
    let which = match (args.attempt, args.snapshot) {
        (Some(attempt), Some(number)) => format!("snapshot {attempt}/{number} of {task}"),
        (Some(attempt), None) => format!("snapshot of attempt {attempt} of {task}"),
        (None, Some(number)) => format!("snapshot {number} of the last attempt of {task}"),
        (None, None) => format!("snapshot of {task}"),
    };
    let failure = CliError::new(format!("no {which}"));
    if all.is_empty() {
        return failure.with_hint("list all snapshots: mainstem restore --list");
    }
    failure.with_hint(format!("list the snapshots of {task}: mainstem restore {task} --list"))
}

/// A branch that a person names is made or refused; one of our own choosing finds a free name.
fn create_branch(
    repo: &Repo,
    task: &str,
    kept: &SnapshotRef,
    branch: Option<&str>,
) -> Result<String, CliError> {
    let Some(name) = branch else {
        return Ok(repo.restore_branch(&format!("restore/{task}"), &kept.commit)?);
    };
    let full = format!("refs/heads/{name}");
    repo.ensure_branch_name_free(name)?;
    match repo.update_ref(&full, &kept.commit, None, "mainstem: restore")? {
        RefUpdateOutcome::Moved => Ok(name.to_owned()),
        RefUpdateOutcome::Refused { found: Some(found) } if found == kept.commit => {
            Ok(name.to_owned())
        }
        RefUpdateOutcome::Refused { found } => {
            let at = found.as_ref().map_or("another commit", |id| short_oid(id.as_str()));
            Err(CliError::new(format!("branch {name} already exists, at {at}"))
                .with_hint("use another name with --branch, or omit --branch")
                .with_hint(format!("or rename the existing branch: git branch -m {name} OTHER")))
        }
    }
}

fn list_all_snapshots(context: &CliContext, place: &RestoreContext) -> CommandResult {
    let all = maintenance::list_all_snapshots(&place.repo)?;
    let mut tasks = Vec::new();
    for (task, kept) in &all {
        tasks.push((task, place.known_snapshots(task, kept)?));
    }
    if context.global.json {
        let tasks = tasks.iter().map(|(task, known)| TaskSnapshots {
            task: (*task).clone(),
            snapshots: known.iter().map(describe_snapshot).collect(),
            note: NoteField::LeftOut,
        });
        let report = SnapshotReport { tasks: tasks.collect(), note: place.note.clone() };
        output::write_json(&report)?;
        return Ok(exit_code::OK);
    }
    if tasks.is_empty() {
        output::write_stderr("no snapshots in this repository");
        return Ok(exit_code::OK);
    }
    let mut rows = Vec::new();
    for (task, known) in &tasks {
        rows.extend(known.iter().map(|known| {
            let mut row = snapshot_row(known);
            row.insert(0, (*task).clone());
            row
        }));
    }
    output::write_stdout(&output::format_table(&rows))?;
    output::write_stderr("restore one: mainstem restore T --attempt N --snapshot N");
    Ok(exit_code::OK)
}

fn list_snapshots(
    context: &CliContext,
    place: &RestoreContext,
    task: &str,
    all: &[SnapshotRef],
) -> CommandResult {
    let known = place.known_snapshots(task, all)?;
    if context.global.json {
        let snapshots = known.iter().map(describe_snapshot).collect();
        let (task, note) = (task.to_owned(), NoteField::Included(place.note.clone()));
        output::write_json(&TaskSnapshots { task, snapshots, note })?;
        return Ok(exit_code::OK);
    }
    if all.is_empty() {
        output::write_stderr(&format!("no snapshot of {task}"));
        return Ok(exit_code::OK);
    }
    let rows: Vec<Vec<String>> = known.iter().map(snapshot_row).collect();
    output::write_stdout(&output::format_table(&rows))?;
    output::write_stderr(&format!("restore one: mainstem restore {task} --attempt N --snapshot N"));
    Ok(exit_code::OK)
}

fn snapshot_row(known: &SnapshotDetails) -> Vec<String> {
    let at = known.at_ms.map(|at| time::to_rfc3339(at).replace('T', " ")).unwrap_or_default();
    let size = known.size.map_or_else(
        || "–".to_owned(),
        |s| format!("{} +{} -{}", output::count_noun(s.files, "file"), s.insertions, s.deletions),
    );
    let why = match (&known.why, &known.subject) {
        (Some(why), _) => collapse_to_line(why),
        (None, Some(subject)) => collapse_to_line(subject),
        (None, None) => "commit is missing".to_owned(),
    };
    let SnapshotRef { attempt, number, commit, .. } = &known.snapshot;
    vec![
        format!("{attempt}/{number}"),
        short_oid(commit.as_str()).to_owned(),
        at.get(..19).unwrap_or_default().to_owned(),
        size,
        why,
    ]
}
