//! A workspace passes from one attempt to the next, and in an epic's workspace from task to task. What the
//! last attempt left is saved under its own name, and recorded, before the next one changes anything: after
//! a crash in the middle the folder holds a mixture that must not pass for anybody's work.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use mainstem_core::id::{Oid, TaskId};
use mainstem_core::machine::Input;
use mainstem_core::work::Work;
use mainstem_host::files;
use serde::{Deserialize, Serialize};

use super::Errand;
use super::workspace::WorkspaceError;

const BEFORE_USE: &str = "before the workspace is used again";

/// The attempt that a workspace was last made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WorkspaceOwner {
    task: TaskId,
    attempt: u32,
}

/// Saves what is in the workspace of an attempt, also if the agent took its `.git` away: the folder would be
/// repaired, and reset, all the same.
pub(super) fn save_what_is_there(errand: &Errand) -> Result<(), WorkspaceError> {
    let this = owner_to_be(errand);
    let owner = read_owner(errand)?.unwrap_or_else(|| assumed_owner(errand));
    let left = save_folder(errand, &series_of(&owner), owner.attempt, owner.task == this.task)?;
    match left {
        Some(commit) if owner != this => record_left(errand, &owner, &commit),
        _ => Ok(()),
    }
}

/// The commit with all of the work that nobody could read, if there is more than `work` says.
pub(super) fn find_unread_work(
    errand: &Errand,
    work: &Work,
) -> Result<Option<Oid>, WorkspaceError> {
    let author = WorkspaceOwner { task: errand.task.id.clone(), attempt: work.attempt };
    if let Some(commit) = read(&left_by(errand, &author))? {
        return Ok(Some(Oid::new(commit)));
    }
    let repo = &errand.world.repo;
    if read_owner(errand)? == Some(owner_to_be(errand)) || !repo.owns_branch(&errand.branch)? {
        return Ok(None);
    }
    // An agent that deletes its folder leaves its commits on its branch.
    // A refusal was reported with the evidence.
    let _ = errand.take_in(true)?;
    let branch = format!("refs/heads/{}", errand.branch);
    let Some(tip) = repo.read_ref(&branch)? else { return Ok(None) };
    if repo.is_ancestor(&tip, &work.commit)? {
        return Ok(None);
    }
    repo.keep_tip(&branch, &series_of(&author), None, "before its branch is used again")?;
    record_left(errand, &author, &tip)?;
    Ok(Some(tip))
}

/// Records that the folder is this attempt's from now on. Everything in it must have been saved.
pub(super) fn take_over(errand: &Errand) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let records = world.layout.attempt(&world.run, &errand.task.id, errand.attempt);
    let owner = serde_json::to_string(&owner_to_be(errand)).map_err(Error::from);
    std::fs::create_dir_all(records)
        .and_then(|()| write(&owner_record(errand), &owner?))
        .map_err(WorkspaceError::io("cannot record who uses the workspace"))
}

/// Saves what a folder holds on the next ref of a series, and returns the commit.
pub(super) fn save_folder(
    errand: &Errand,
    series: &str,
    attempt: u32,
    of_this_task: bool,
) -> Result<Option<Oid>, WorkspaceError> {
    let world = &errand.world;
    let repo = &world.repo;
    let path = &errand.workspace;
    if !repo.would_lose(path)? {
        return Ok(None);
    }
    // A refusal was reported with the evidence; the files are in the snapshot below.
    let _ = errand.take_in(true)?;
    // A workspace that was made ready and never used would pass for the attempt's last state.
    // What cannot be told is saved.
    if repo.worktree_is_held(path, series, &world.target_ref()).unwrap_or(false) {
        return Ok(repo.worktree_tip(path)?);
    }
    let Some(kept) = repo.snapshot(path, series, BEFORE_USE)? else { return Ok(None) };
    if kept.fresh {
        if of_this_task {
            let (task, why) = (errand.ix, BEFORE_USE.to_owned());
            let (refname, commit) = (kept.refname, kept.commit.clone());
            errand.tell(Input::Snapshotted { task, attempt, refname, commit, why });
        }
        errand.tell_notes(kept.notes);
    }
    errand.keep_unstored(path, &kept.unstored)?;
    Ok(Some(kept.commit))
}

fn owner_to_be(errand: &Errand) -> WorkspaceOwner {
    WorkspaceOwner { task: errand.task.id.clone(), attempt: errand.attempt }
}

/// Who left what is in a folder without a record: an agent of this attempt that a lost journal does not
/// know, or the attempt before.
fn assumed_owner(errand: &Errand) -> WorkspaceOwner {
    let world = &errand.world;
    let ran = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt).exists();
    let before = errand.attempt.saturating_sub(1).max(1);
    let attempt = if ran { errand.attempt } else { before };
    WorkspaceOwner { task: errand.task.id.clone(), attempt }
}

fn series_of(owner: &WorkspaceOwner) -> String {
    format!("refs/mainstem/snapshots/{}/{}", owner.task, owner.attempt)
}

fn owner_record(errand: &Errand) -> PathBuf {
    let world = &errand.world;
    world.layout.workspace_owner(&world.run, &errand.workspace)
}

fn read_owner(errand: &Errand) -> Result<Option<WorkspaceOwner>, WorkspaceError> {
    let text = read(&owner_record(errand))?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Where it is recorded what an attempt left.
fn left_by(errand: &Errand, owner: &WorkspaceOwner) -> PathBuf {
    let world = &errand.world;
    world.layout.attempt(&world.run, &owner.task, owner.attempt).join("left")
}

fn record_left(
    errand: &Errand,
    owner: &WorkspaceOwner,
    commit: &Oid,
) -> Result<(), WorkspaceError> {
    write(&left_by(errand, owner), commit.as_str())
        .map_err(WorkspaceError::io("cannot record what an attempt left"))
}

fn read(path: &std::path::Path) -> Result<Option<String>, WorkspaceError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(WorkspaceError::io(format!("cannot read {}", path.display()))(error)),
    }
}

fn write(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    files::write_atomic(path, text.as_bytes())
}
