//! A workspace passes from one attempt to the next, and in an epic's workspace from task to task. What the
//! last attempt left is saved under its own name before the next one changes anything: after a crash in the
//! middle the folder holds a mixture that must not pass for anybody's work.

use std::io::{Error, ErrorKind};
use std::path::PathBuf;

use mainstem_core::attempt_work::AttemptWork;
use mainstem_core::id::{Oid, TaskId};
use mainstem_core::machine::Input;
use mainstem_host::files;
use mainstem_host::git::GitError;
use serde::{Deserialize, Serialize};

use super::EffectContext;
use super::workspace::WorkspaceError;

const BEFORE_USE: &str = "before the workspace is used again";

/// The attempt that a workspace was last made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WorkspaceOwner {
    task: TaskId,
    attempt: u32,
}

/// Whether the workspace has been made for another attempt since. An order of the last attempt that comes
/// late must not take the new one's files for its own.
pub(super) fn is_used_by_another(errand: &EffectContext) -> bool {
    let owner = read_owner(errand).ok().flatten();
    owner.is_some_and(|owner| owner != owner_to_be(errand))
}

/// Saves what is in the workspace of an attempt, also if the agent took its `.git` away: the folder would be
/// repaired, and reset, all the same.
pub(super) fn save_what_is_there(errand: &EffectContext) -> Result<(), WorkspaceError> {
    match read_owner(errand)? {
        Some(owner) if owner == owner_to_be(errand) => save_nobodys_files(errand),
        Some(owner) => save_folder(errand, &owner),
        None => save_folder(errand, &assumed_owner(errand)),
    }
}

/// Saves the files in a workspace that no agent has used: what is there is a half-made checkout, or what a
/// person did there.
pub(super) fn save_nobodys_files(errand: &EffectContext) -> Result<(), WorkspaceError> {
    save_folder(errand, &WorkspaceOwner { task: errand.task.id.clone(), attempt: 0 })
}

/// Saves the branch of an attempt whose work nobody could read: an agent that deletes its folder leaves its
/// commits there.
pub(super) fn save_unread_branch(
    errand: &EffectContext,
    work: &AttemptWork,
) -> Result<(), WorkspaceError> {
    let repo = &errand.engine.repo;
    if read_owner(errand)? == Some(owner_to_be(errand)) || !repo.owns_branch(&errand.branch)? {
        return Ok(());
    }
    // A refusal was reported with the evidence.
    let _ = errand.import_agent_commits(true)?;
    let Some(tip) = repo.read_ref(&format!("refs/heads/{}", errand.branch))? else {
        return Ok(());
    };
    if !repo.is_ancestor(&tip, &work.commit)? {
        let why = "before its branch is used again";
        repo.keep_as_snapshot(&tip, &series_of(&author_of(errand, work)), why)?;
    }
    Ok(())
}

/// The newest snapshot of work that nobody could read. Snapshots of work in progress do not build on each
/// other; those after the one that is known came after it.
pub(super) fn newest_unread_work(
    errand: &EffectContext,
    work: &AttemptWork,
) -> Result<Oid, GitError> {
    let repo = &errand.engine.repo;
    let series = series_of(&author_of(errand, work));
    let number = |name: &str| name.strip_prefix(&series)?.strip_prefix('/')?.parse::<u32>().ok();
    let refs = repo.list_refs(&series)?.into_iter();
    let mut snapshots: Vec<_> =
        refs.filter_map(|(name, commit)| Some((number(&name)?, commit))).collect();
    snapshots.sort_unstable();
    let is_known = snapshots.iter().any(|(_, commit)| *commit == work.commit);
    for (_, commit) in snapshots.into_iter().rev() {
        if is_known || repo.is_ancestor(&work.commit, &commit)? {
            return Ok(commit);
        }
    }
    Ok(work.commit.clone())
}

/// Records that the folder is this attempt's from now on. Everything in it must have been saved.
pub(super) fn take_over(errand: &EffectContext) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let records = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
    let owner = serde_json::to_string(&owner_to_be(errand)).map_err(Error::from);
    let record = owner_record(errand);
    std::fs::create_dir_all(records)
        .and_then(|()| record.parent().map_or(Ok(()), std::fs::create_dir_all))
        .and_then(|()| files::write_atomic(&record, owner?.as_bytes()))
        .map_err(WorkspaceError::io("cannot record who uses the workspace"))
}

fn save_folder(errand: &EffectContext, owner: &WorkspaceOwner) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let repo = &world.repo;
    let path = &errand.workspace;
    let series = series_of(owner);
    if !repo.would_lose_work(path)? {
        return Ok(());
    }
    // A refusal was reported with the evidence; the files are in the snapshot below.
    let _ = errand.import_agent_commits(true)?;
    // A workspace that was made ready and never used would pass for the attempt's last state.
    // What cannot be told is saved.
    if repo.is_worktree_kept(path, &series, &world.target_ref()).unwrap_or(false) {
        return Ok(());
    }
    let Some(kept) = repo.take_snapshot(path, &series, BEFORE_USE)? else { return Ok(()) };
    if kept.is_new {
        if owner.task == errand.task.id {
            let (task, attempt, why) = (errand.ix, owner.attempt, BEFORE_USE.to_owned());
            let (refname, commit) = (kept.refname, kept.commit);
            errand.send_input(Input::SnapshotTaken { task, attempt, refname, commit, why });
        }
        errand.send_notices(kept.notes);
    }
    Ok(errand.keep_unstored_files(path, &kept.unstored)?)
}

fn owner_to_be(errand: &EffectContext) -> WorkspaceOwner {
    WorkspaceOwner { task: errand.task.id.clone(), attempt: errand.attempt }
}

/// Who left what is in a folder without a record: an agent of this attempt that a lost journal does not
/// know, or the attempt before.
fn assumed_owner(errand: &EffectContext) -> WorkspaceOwner {
    let world = &errand.engine;
    let ran = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt).exists();
    let before = errand.attempt.saturating_sub(1).max(1);
    let attempt = if ran { errand.attempt } else { before };
    WorkspaceOwner { task: errand.task.id.clone(), attempt }
}

fn series_of(owner: &WorkspaceOwner) -> String {
    format!("refs/mainstem/snapshots/{}/{}", owner.task, owner.attempt)
}

fn author_of(errand: &EffectContext, work: &AttemptWork) -> WorkspaceOwner {
    WorkspaceOwner { task: errand.task.id.clone(), attempt: work.attempt }
}

fn owner_record(errand: &EffectContext) -> PathBuf {
    let world = &errand.engine;
    world.layout.workspace_owner(&world.run, &errand.workspace)
}

fn read_owner(errand: &EffectContext) -> Result<Option<WorkspaceOwner>, WorkspaceError> {
    match std::fs::read_to_string(owner_record(errand)) {
        Ok(text) => Ok(serde_json::from_str(&text).ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(WorkspaceError::io("cannot read who used the workspace")(error)),
    }
}
