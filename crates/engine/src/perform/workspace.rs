//! Making and removing workspaces. Nothing is removed that is not on a ref first.

use std::path::Path;
use std::sync::atomic::Ordering;

use mainstem_core::config::{Unit, WorkspaceKind};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::work::Continue;
use mainstem_host::git::{Dropped, GitError};
use mainstem_host::process::{self, Ending};
use mainstem_host::{crash, files, ports};

use super::earlier_work::{self, Beginning};
use super::{Errand, handover, jobs, landing};
use crate::{builds, care};

/// Time for one setup command.
const SETUP_MS: u64 = 30 * 60 * 1000;

/// Why a workspace does not stand.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The disk said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The target branch is gone.
    #[error("the target branch {0} no longer exists")]
    NoTarget(String),
    /// The target branch lost what this task builds on.
    #[error(
        "the target branch no longer contains {0}, which this task needs; was the branch reset?"
    )]
    NeedLost(Oid),
    /// A setup command failed.
    #[error("setup command `{command}` {how}; full output: {log}")]
    Setup {
        /// The command.
        command: String,
        /// How it ended.
        how: String,
        /// Where its output is.
        log: String,
    },
}

impl WorkspaceError {
    /// The same try again would end in the same way: a person has to do something first.
    fn needs_person(&self) -> bool {
        matches!(self, Self::NoTarget(_) | Self::NeedLost(_))
    }

    /// The command that helps.
    fn help(&self) -> Option<String> {
        match self {
            Self::NoTarget(target) => {
                Some(format!("restore the branch with git branch {target} COMMIT"))
            }
            Self::NeedLost(commit) => Some(format!("restore {} on the branch", short(commit))),
            Self::Git(_) | Self::Io { .. } | Self::Setup { .. } => None,
        }
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Where an attempt begins, if not on the target branch.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// With what a pull request offers.
    pub from: Option<&'a Oid>,
    /// With what an earlier attempt left.
    pub continues: Option<&'a Continue>,
    /// With the merge of this laid out.
    pub merge: Option<&'a Oid>,
}

/// Makes the workspace of an attempt and tells the result.
pub fn prepare(errand: &Errand, must_contain: &[Oid], start: Start<'_>) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let ready = |base, continued| Input::WorkspaceReady {
        task,
        attempt,
        workspace: errand.workspace.to_string_lossy().into_owned(),
        base,
        continued,
    };
    match forgotten(errand) {
        Ok(Some((landed, base))) => {
            // What stands there is named by nobody else; whether it stays is a setting.
            if errand.workspace.join(".git").exists() {
                errand.tell(ready(base, None));
            }
            return errand.tell(landed);
        }
        Ok(None) => {}
        Err(error) => {
            return errand.tell(failed(errand, &error));
        }
    }
    errand.tell(match make(errand, must_contain, start) {
        Ok(begin) => ready(begin.base, begin.continued),
        Err(error) => {
            if let Err(why) = take_back(errand) {
                errand.tell_notes(vec![format!("cannot remove an unused workspace: {why}")]);
            }
            failed(errand, &error)
        }
    });
}

/// How it is told that there is no workspace.
fn failed(errand: &Errand, error: &WorkspaceError) -> Input {
    let (task, attempt, reason) = (errand.ix, errand.attempt, error.to_string());
    match error.needs_person() {
        true => Input::WorkspaceRefused { task, attempt, reason, help: error.help() },
        false => Input::WorkspaceFailed { task, attempt, reason },
    }
}

fn short(commit: &Oid) -> &str {
    commit.as_str().get(..9).unwrap_or(commit.as_str())
}

/// Takes a workspace away that was made, maybe by an earlier life that could not tell of it, and will
/// not be used now: nobody would know of it.
fn take_back(errand: &Errand) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let job = |attempt| world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let used = (1..=errand.attempt).any(|attempt| job(attempt).exists());
    let shared = world.settings.workspace.unit != Unit::Task;
    if used || shared {
        return Ok(());
    }
    // Half made, there may be only a branch, or an empty folder.
    handover::save_what_is_there(errand)?;
    world.repo.remove_worktree(&errand.workspace, &world.layout.trash())?;
    forget_branch(errand)
}

/// An agent that ran before its workspace stood ran in a life that the journal has forgotten. If its
/// work landed, that is told; if not, it is made anew: its old record would pass for the new one's.
fn forgotten(errand: &Errand) -> Result<Option<(Input, Oid)>, WorkspaceError> {
    let world = &errand.world;
    let job = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    // So did one of an attempt that has not been made yet.
    let later = last_attempt(errand)? > errand.attempt;
    let landed = world.landed_unknown.contains(&errand.task.id);
    if !job.exists() && !later && !landed {
        return Ok(None);
    }
    end_earlier_jobs(errand)?;
    if let Some(tip) = world.head()?
        && let Some(landed) = landing::found(errand, &tip, None)?
    {
        return Ok(Some((landed, tip)));
    }
    // What it left is saved before its record goes, which says whose it is.
    handover::save_what_is_there(errand)?;
    process::reset(&job)
        .map_err(WorkspaceError::io("cannot remove the record of an earlier agent"))?;
    Ok(None)
}

/// The last attempt at this task that has a folder.
fn last_attempt(errand: &Errand) -> Result<u32, WorkspaceError> {
    let world = &errand.world;
    let this = world.layout.attempt(&world.run, &errand.task.id, errand.attempt);
    let folder = this.parent().unwrap_or(&this);
    let unreadable = || WorkspaceError::io("cannot list the folders of earlier attempts");
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(unreadable()(error)),
    };
    let mut last = 0;
    for entry in entries {
        let name = entry.map_err(unreadable())?.file_name();
        last = last.max(name.to_str().and_then(|name| name.parse().ok()).unwrap_or(0));
    }
    Ok(last)
}

fn make(
    errand: &Errand,
    must_contain: &[Oid],
    start: Start<'_>,
) -> Result<Beginning, WorkspaceError> {
    let world = &errand.world;
    let repo = &world.repo;
    let at_target = || world.head()?.ok_or_else(|| WorkspaceError::NoTarget(world.target.clone()));
    let onto = start.from.cloned().map_or_else(at_target, Ok)?;
    end_earlier_jobs(errand)?;
    std::fs::create_dir_all(world.layout.root())
        .map_err(WorkspaceError::io("cannot create the folder for workspaces"))?;
    if let Some(wish) = start.continues.filter(|wish| wish.work.unread) {
        handover::save_unread_branch(errand, &wish.work)?;
    }
    handover::save_what_is_there(errand)?;
    let earlier = match start.continues {
        Some(wish) => earlier_work::bring(errand, wish, &onto, must_contain)?,
        None => None,
    };
    let begin = earlier.unwrap_or_else(|| Beginning::at(onto));
    for need in must_contain {
        if !repo.is_ancestor(need, &begin.base)? {
            return Err(WorkspaceError::NeedLost(need.clone()));
        }
    }
    handover::take_over(errand)?;
    crash::point("workspace.saved");
    fill(errand, &begin.checkout, begin.edits.as_ref().or(start.merge))?;
    Ok(begin)
}

/// Makes the workspace of an attempt anew if an earlier life of the engine made it: no agent has been
/// there yet, and what it wrote may have been lost in part with the power.
pub fn make_sure(errand: &Errand, base: &Oid, merge: Option<&Oid>) -> Result<(), WorkspaceError> {
    if errand.world.made.has(errand.ix, errand.attempt) {
        return Ok(());
    }
    handover::save_nobodys_files(errand)?;
    fill(errand, base, merge)
}

fn fill(errand: &Errand, base: &Oid, merge: Option<&Oid>) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let repo = &world.repo;
    let path = errand.workspace.clone();
    let trash = world.layout.trash();
    let place = world.layout.attempt(&world.run, &errand.task.id, errand.attempt);
    let untidy = WorkspaceError::io("cannot remove the temporary folder of an earlier attempt");
    errand.drop_scratch(&path).map_err(untidy)?;
    let prepared =
        repo.prepare_worktree(&path, &errand.branch, base, &trash, &errand.snapshots())?;
    crash::point("workspace.made");
    let mut errand = errand.clone();
    if let Some(branch) = prepared.branch.filter(|branch| *branch != errand.branch) {
        let (task, attempt) = (errand.ix, errand.attempt);
        errand.tell(Input::BranchChosen { task, attempt, branch: branch.clone() });
        errand.branch = branch;
    }
    let errand = &errand;
    if let Some(refname) = prepared.kept
        && let Some(commit) = repo.read_ref(&refname)?
    {
        errand.tell_kept(refname, commit, "before its branch is used again");
    }
    errand.tell_notes(prepared.notes);
    bring_along(errand, &path)?;
    match (world.settings.workspace.kind, &world.walls) {
        (WorkspaceKind::Clone, _) => repo.make_clone(&path, &trash)?,
        (WorkspaceKind::Worktree, Some(_)) => repo.seclude(&path)?,
        (WorkspaceKind::Worktree, None) => {}
    }
    crash::point("workspace.secluded");
    set_up(errand, &path, &place)?;
    if let Some(tip) = merge {
        // After the setup commands: they are made for files without markers.
        let _ = repo.lay_out(&path, base, tip)?;
        crash::point("workspace.laid_out");
    }
    world.made.note(errand.ix, errand.attempt);
    Ok(())
}

/// Copies the ignored files that the user wants in every workspace.
fn bring_along(errand: &Errand, path: &Path) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let Some(home) = world.repo.checkout() else { return Ok(()) };
    let mut patterns = world.settings.workspace.include.clone();
    patterns.extend(world.include.iter().cloned());
    if patterns.is_empty() {
        return Ok(());
    }
    for file in world.repo.ignored_to_copy(home, &patterns)? {
        let to = path.join(&file);
        let what = format!("cannot copy {} into the workspace", file.display());
        if leads_elsewhere(path, &file) {
            let why = format!(
                "{} was not copied into the workspace: a symbolic link is in the way",
                file.display()
            );
            errand.tell_notes(vec![why]);
            continue;
        }
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(WorkspaceError::io(what.clone()))?;
        }
        std::fs::copy(home.join(&file), &to).map_err(WorkspaceError::io(what))?;
    }
    Ok(())
}

/// Whether writing `file` below `folder` would go through a link that landed work brought in.
fn leads_elsewhere(folder: &Path, file: &Path) -> bool {
    let mut place = folder.to_path_buf();
    file.components().any(|part| {
        place.push(part);
        std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_symlink())
    })
}

/// Ends whatever earlier lives and attempts still run in the folder, before it is reset or taken away
/// under them: setup commands, gates, agents.
fn end_earlier_jobs(errand: &Errand) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let last = last_attempt(errand)?.max(errand.attempt);
    jobs::end_all(&world.layout, &world.run, &errand.task.id, last)
        .map_err(WorkspaceError::io("cannot stop the processes of an earlier attempt"))
}

/// Runs the setup commands, always afresh: whatever an earlier life's did was reset with the folder.
pub fn set_up(errand: &Errand, cwd: &Path, place: &Path) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    for (n, command) in world.settings.workspace.setup.iter().enumerate() {
        let dir = place.join(format!("setup-{n}"));
        process::reset(&dir).map_err(WorkspaceError::io("cannot stop an earlier setup command"))?;
        let mut mark = world.mark(&errand.task.id, errand.attempt);
        // What a gate refuses to build in is told by the gate.
        if let Ok(Some(own)) = builds::own_folder(&world.repo, cwd, &world.env) {
            mark.insert(builds::TARGET_DIR.to_owned(), own.display().to_string());
        }
        let env = world.command_env(&mark);
        let spec = world.shell(command, cwd.to_path_buf(), env, SETUP_MS);
        let spec = world.walled(spec, &errand.behind(cwd))?;
        let failed = |how: String| WorkspaceError::Setup {
            command: command.clone(),
            how,
            log: dir.display().to_string(),
        };
        if errand.cancel.load(Ordering::Relaxed) {
            return Err(failed("was cancelled".to_owned()));
        }
        let exit = process::run_to_end(&dir, &spec, &world.supervisor(), &errand.cancel)
            .map_err(|error| failed(format!("could not be run: {error}")))?;
        match exit.ending {
            Ending::Exited { code: 0 } => {}
            Ending::Exited { code } => return Err(failed(format!("failed with exit code {code}"))),
            other => return Err(failed(format!("failed ({other:?})"))),
        }
    }
    Ok(())
}

/// Removes the workspace of a task that is over, after a last snapshot, and its branch.
pub fn remove(errand: &Errand, keep_branch: bool, landed: bool) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let path = &errand.workspace;
    let result = take_away(errand, path, keep_branch, landed)
        .map(|()| path.to_string_lossy().into_owned())
        .map_err(|error| error.to_string());
    errand.tell(Input::WorkspaceRemoved { task, attempt, workspace: result });
}

fn take_away(
    errand: &Errand,
    path: &Path,
    keep_branch: bool,
    landed: bool,
) -> Result<(), WorkspaceError> {
    let world = &errand.world;
    let repo = &world.repo;
    end_earlier_jobs(errand)?;
    // What is refused was told with the evidence; its files are in the snapshot below.
    let _ = errand.take_in(true)?;
    if repo.would_lose(path)? && !(landed && is_held(errand, path)) {
        let why = "before the workspace is removed";
        if let Some(kept) = repo.snapshot(path, &errand.snapshots(), why)? {
            if kept.fresh {
                errand.tell_kept(kept.refname, kept.commit, why);
                errand.tell_notes(kept.notes);
            }
            errand.keep_unstored(path, &kept.unstored)?;
        }
        crash::point("removal.saved");
    }
    repo.remove_worktree(path, &world.layout.trash())?;
    crash::point("removal.moved");
    if keep_branch {
        leave_branch(errand)?;
    } else {
        forget_branch(errand)?;
    }
    let car = format!("refs/mainstem/train/{}", errand.task.id);
    // A merge that we made ourselves can be made again.
    let _ = repo.delete_ref(&car, None)?;
    let job = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    if let Err(error) = ports::release(&ports::folder(), &job) {
        // The lease ends with its job anyway.
        let message = format!("cannot release ports: {error}");
        errand.tell(Input::Notice { task: Some(errand.ix), message });
    }
    errand
        .drop_scratch(path)
        .map_err(WorkspaceError::io("cannot remove the temporary folder of the attempt"))?;
    // Once the removal is on record nobody looks again: what was removed must not come back with the
    // power.
    for place in [repo.common_dir(), world.layout.root()] {
        if let Err(error) = files::sync_filesystem(place)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(WorkspaceError::io("cannot sync the removal to disk")(error));
        }
    }
    crash::point("removal.done");
    Ok(())
}

/// Whether a landed task's workspace has nothing that came after. Doubt is no proof.
fn is_held(errand: &Errand, path: &Path) -> bool {
    let repo = &errand.world.repo;
    let target = errand.world.target_ref();
    repo.worktree_is_held(path, &errand.snapshots(), &target).unwrap_or(false)
}

/// Leaves the work to people on its branch, as it was last kept: also what the agent did not commit.
fn leave_branch(errand: &Errand) -> Result<(), WorkspaceError> {
    let repo = &errand.world.repo;
    let kept = care::snapshots(repo, errand.task.id.as_str())?;
    let Some(last) = kept.into_iter().rfind(|kept| kept.attempt <= errand.attempt) else {
        return Ok(());
    };
    if !repo.hand_over(&errand.branch, &last.commit)? {
        let (branch, task) = (&errand.branch, &errand.task.id);
        let message = format!(
            "{branch} was kept because the branch is in use; put this work on another branch with mainstem restore {task}"
        );
        errand.tell(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}

/// Deletes the task's branch if it is ours. Commits that are nowhere else get a snapshot ref first: an
/// agent or a person may have left them there.
fn forget_branch(errand: &Errand) -> Result<(), WorkspaceError> {
    let repo = &errand.world.repo;
    let name = format!("refs/heads/{}", errand.branch);
    let Some(tip) = repo.read_ref(&name)? else { return Ok(()) };
    if !repo.owns_branch(&errand.branch)? {
        return Ok(());
    }
    let target = repo.read_ref(&errand.world.target_ref())?;
    let landed = match &target {
        Some(target) => repo.is_ancestor(&tip, target)?,
        None => false,
    };
    let why = "before its branch is removed";
    if !landed
        && let Some(refname) = repo.keep_tip(&name, &errand.snapshots(), target.as_ref(), why)?
    {
        errand.tell_kept(refname, tip.clone(), why);
    }
    if let Dropped::Kept(why) = repo.drop_branch(&errand.branch, &tip)? {
        let message = format!("{why} and stays");
        errand.tell(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}
