//! Making and removing workspaces. Nothing is removed that is not on a ref first.

use std::path::Path;
use std::sync::atomic::Ordering;

use mainstem_core::attempt_work::WorkspaceContinuation;
use mainstem_core::config::{WorkspaceKind, WorkspaceSharing};
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_host::git::{BranchDeletion, GitError};
use mainstem_host::process::{self, JobEnding};
use mainstem_host::{crash, files, port_leases};

use super::earlier_work::{self, WorkspaceStart};
use super::{EffectContext, handover, jobs, landing};
use crate::{build_dirs, maintenance};

/// Time for one setup command.
const SETUP_MS: u64 = 30 * 60 * 1000;

/// Why a workspace does not stand.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// The disk said no.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// The target branch is gone.
    #[error("the target branch {0} no longer exists")]
    NoTarget(String),
    /// The target branch lost what this task builds on.
    #[error(
        "the target branch no longer contains {0}, which this task needs; was the branch reset?"
    )]
    RequiredCommitLost(Oid),
    /// A setup command failed.
    #[error("setup command `{command}` {how}; full output: {log}")]
    Setup {
        command: String,
        how: String,
        /// Where its output is.
        log: String,
    },
}

impl WorkspaceError {
    /// The same try again would end in the same way: a person has to do something first.
    fn needs_person(&self) -> bool {
        matches!(self, Self::NoTarget(_) | Self::RequiredCommitLost(_))
    }

    /// The command that helps.
    fn help(&self) -> Option<String> {
        match self {
            Self::NoTarget(target) => {
                Some(format!("restore the branch with git branch {target} COMMIT"))
            }
            Self::RequiredCommitLost(commit) => {
                Some(format!("restore {} on the branch", short_oid(commit)))
            }
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
pub struct WorkspaceOrigin<'a> {
    /// With what a pull request offers.
    pub from: Option<&'a Oid>,
    /// With what an earlier attempt left.
    pub continues: Option<&'a WorkspaceContinuation>,
    /// With the merge of this laid out.
    pub merge: Option<&'a Oid>,
}

/// Makes the workspace of an attempt and tells the result.
pub fn prepare_workspace(errand: &EffectContext, must_contain: &[Oid], start: WorkspaceOrigin<'_>) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let ready = |base, continued| Input::WorkspaceReady {
        task,
        attempt,
        workspace: errand.workspace.to_string_lossy().into_owned(),
        base,
        continued,
    };
    match find_forgotten_work(errand) {
        Ok(Some((landed, base))) => {
            // What stands there is named by nobody else; whether it stays is a setting.
            if errand.workspace.join(".git").exists() {
                errand.send_input(ready(base, None));
            }
            return errand.send_input(landed);
        }
        Ok(None) => {}
        Err(error) => {
            return errand.send_input(workspace_failed_input(errand, &error));
        }
    }
    errand.send_input(match create_workspace(errand, must_contain, start) {
        Ok(begin) => ready(begin.base, begin.continued),
        Err(error) => {
            if let Err(why) = discard_workspace(errand) {
                errand.send_notices(vec![format!("cannot remove an unused workspace: {why}")]);
            }
            workspace_failed_input(errand, &error)
        }
    });
}

/// How it is told that there is no workspace.
fn workspace_failed_input(errand: &EffectContext, error: &WorkspaceError) -> Input {
    let (task, attempt, reason) = (errand.ix, errand.attempt, error.to_string());
    match error.needs_person() {
        true => Input::WorkspaceRefused { task, attempt, reason, help: error.help() },
        false => Input::WorkspaceFailed { task, attempt, reason },
    }
}

fn short_oid(commit: &Oid) -> &str {
    commit.as_str().get(..9).unwrap_or(commit.as_str())
}

/// Takes a workspace away that was made, maybe by an earlier life that could not tell of it, and will
/// not be used now: nobody would know of it.
fn discard_workspace(errand: &EffectContext) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let job = |attempt| world.layout.agent_job(&world.run, &errand.task.id, attempt);
    let used = (1..=errand.attempt).any(|attempt| job(attempt).exists());
    let shared = world.settings.workspace.unit != WorkspaceSharing::Task;
    if used || shared {
        return Ok(());
    }
    // Half made, there may be only a branch, or an empty folder.
    handover::save_what_is_there(errand)?;
    world.repo.remove_worktree(&errand.workspace, &world.layout.trash_dir())?;
    delete_task_branch(errand)
}

/// An agent that ran before its workspace stood ran in a life that the journal has forgotten. If its
/// work landed, that is told; if not, it is made anew: its old record would pass for the new one's.
fn find_forgotten_work(errand: &EffectContext) -> Result<Option<(Input, Oid)>, WorkspaceError> {
    let world = &errand.engine;
    let job = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    // So did one of an attempt that has not been made yet.
    let later = find_last_attempt(errand)? > errand.attempt;
    let landed = world.unjournaled_landings.contains(&errand.task.id);
    if !job.exists() && !later && !landed {
        return Ok(None);
    }
    end_earlier_jobs(errand)?;
    if let Some(tip) = world.landing_head()?
        && let Some(landed) = landing::find_unjournaled_landing(errand, &tip, None)?
    {
        return Ok(Some((landed, tip)));
    }
    // What it left is saved before its record goes, which says whose it is.
    handover::save_what_is_there(errand)?;
    process::reset_job(&job)
        .map_err(WorkspaceError::io("cannot remove the record of an earlier agent"))?;
    Ok(None)
}

/// The last attempt at this task that has a folder.
fn find_last_attempt(errand: &EffectContext) -> Result<u32, WorkspaceError> {
    let world = &errand.engine;
    let this = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
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

fn create_workspace(
    errand: &EffectContext,
    must_contain: &[Oid],
    start: WorkspaceOrigin<'_>,
) -> Result<WorkspaceStart, WorkspaceError> {
    let world = &errand.engine;
    let repo = &world.repo;
    let at_target =
        || world.landing_head()?.ok_or_else(|| WorkspaceError::NoTarget(world.target.clone()));
    let onto = start.from.cloned().map_or_else(at_target, Ok)?;
    end_earlier_jobs(errand)?;
    std::fs::create_dir_all(world.layout.workspace_root())
        .map_err(WorkspaceError::io("cannot create the folder for workspaces"))?;
    if let Some(wish) = start.continues.filter(|wish| wish.work.unread) {
        handover::save_unread_branch(errand, &wish.work)?;
    }
    handover::save_what_is_there(errand)?;
    let earlier = match start.continues {
        Some(wish) => earlier_work::rebase_earlier_work(errand, wish, &onto, must_contain)?,
        None => None,
    };
    let begin = earlier.unwrap_or_else(|| WorkspaceStart::at_commit(onto));
    for need in must_contain {
        if !repo.is_ancestor(need, &begin.base)? {
            return Err(WorkspaceError::RequiredCommitLost(need.clone()));
        }
    }
    handover::take_over(errand)?;
    crash::point("workspace.saved");
    populate_workspace(errand, &begin.checkout, begin.edits.as_ref().or(start.merge))?;
    Ok(begin)
}

/// Makes the workspace of an attempt anew if an earlier life of the engine made it: no agent has been
/// there yet, and what it wrote may have been lost in part with the power.
pub fn ensure_workspace(
    errand: &EffectContext,
    base: &Oid,
    merge: Option<&Oid>,
) -> Result<(), WorkspaceError> {
    if errand.engine.created_workspaces.contains(errand.ix, errand.attempt) {
        return Ok(());
    }
    handover::save_nobodys_files(errand)?;
    populate_workspace(errand, base, merge)
}

fn populate_workspace(
    errand: &EffectContext,
    base: &Oid,
    merge: Option<&Oid>,
) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let repo = &world.repo;
    let path = errand.workspace.clone();
    let trash = world.layout.trash_dir();
    let place = world.layout.attempt_dir(&world.run, &errand.task.id, errand.attempt);
    let untidy = WorkspaceError::io("cannot remove the temporary folder of an earlier attempt");
    errand.remove_scratch(&path).map_err(untidy)?;
    let prepared =
        repo.prepare_worktree(&path, &errand.branch, base, &trash, &errand.snapshot_ref_prefix())?;
    crash::point("workspace.made");
    let mut errand = errand.clone();
    if let Some(branch) = prepared.branch.filter(|branch| *branch != errand.branch) {
        let (task, attempt) = (errand.ix, errand.attempt);
        errand.send_input(Input::BranchChosen { task, attempt, branch: branch.clone() });
        errand.branch = branch;
    }
    let errand = &errand;
    if let Some(refname) = prepared.kept
        && let Some(commit) = repo.read_ref(&refname)?
    {
        errand.send_kept_ref(refname, commit, "before its branch is used again");
    }
    errand.send_notices(prepared.notes);
    copy_included_files(errand, &path)?;
    match (world.settings.workspace.kind, &world.sandbox) {
        (WorkspaceKind::Clone, _) => repo.create_agent_clone(&path, &trash)?,
        (WorkspaceKind::Worktree, Some(_)) => repo.create_agent_git_dir(&path)?,
        (WorkspaceKind::Worktree, None) => {}
    }
    crash::point("workspace.secluded");
    run_setup_commands(errand, &path, &place)?;
    if let Some(tip) = merge {
        // After the setup commands: they are made for files without markers.
        let _ = repo.write_merge_to_worktree(&path, base, tip)?;
        crash::point("workspace.laid_out");
    }
    world.created_workspaces.insert(errand.ix, errand.attempt);
    Ok(())
}

/// Copies the ignored files that the user wants in every workspace.
fn copy_included_files(errand: &EffectContext, path: &Path) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let Some(home) = world.repo.checkout() else { return Ok(()) };
    let mut patterns = world.settings.workspace.include.clone();
    patterns.extend(world.include.iter().cloned());
    if patterns.is_empty() {
        return Ok(());
    }
    for file in world.repo.list_ignored_to_copy(home, &patterns)? {
        let to = path.join(&file);
        let what = format!("cannot copy {} into the workspace", file.display());
        if passes_through_link(path, &file) {
            let why = format!(
                "{} was not copied into the workspace: a symbolic link is in the way",
                file.display()
            );
            errand.send_notices(vec![why]);
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
fn passes_through_link(folder: &Path, file: &Path) -> bool {
    let mut place = folder.to_path_buf();
    file.components().any(|part| {
        place.push(part);
        std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_symlink())
    })
}

/// Ends whatever earlier lives and attempts still run in the folder, before it is reset or taken away
/// under them: setup commands, gates, agents.
fn end_earlier_jobs(errand: &EffectContext) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let last = find_last_attempt(errand)?.max(errand.attempt);
    jobs::end_task_jobs(&world.layout, &world.run, &errand.task.id, last)
        .map_err(WorkspaceError::io("cannot stop the processes of an earlier attempt"))
}

/// Runs the setup commands, always afresh: whatever an earlier life's did was reset with the folder.
pub fn run_setup_commands(
    errand: &EffectContext,
    cwd: &Path,
    place: &Path,
) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    for (n, command) in world.settings.workspace.setup.iter().enumerate() {
        let dir = place.join(format!("setup-{n}"));
        process::reset_job(&dir)
            .map_err(WorkspaceError::io("cannot stop an earlier setup command"))?;
        let mut mark = world.attempt_variables(&errand.task.id, errand.attempt);
        // What a gate refuses to build in is told by the gate.
        if let Ok(Some(own)) = build_dirs::choose_own_build_dir(&world.repo, cwd, &world.env) {
            mark.insert(build_dirs::TARGET_DIR.to_owned(), own.display().to_string());
        }
        let env = world.command_env(&mark);
        let spec = world.shell_job(command, cwd.to_path_buf(), env, SETUP_MS);
        let spec = world.sandboxed_job(spec, &errand.sandbox_scope(cwd))?;
        let failed = |how: String| WorkspaceError::Setup {
            command: command.clone(),
            how,
            log: dir.display().to_string(),
        };
        if errand.cancel.load(Ordering::Relaxed) {
            return Err(failed("was cancelled".to_owned()));
        }
        let exit =
            process::run_job_to_end(&dir, &spec, &world.supervisor_command(), &errand.cancel)
                .map_err(|error| failed(format!("could not be run: {error}")))?;
        match exit.ending {
            JobEnding::Exited { code: 0 } => {}
            JobEnding::Exited { code } => {
                return Err(failed(format!("failed with exit code {code}")));
            }
            other => return Err(failed(format!("failed ({other:?})"))),
        }
    }
    Ok(())
}

/// Removes the workspace of a task that is over, after a last snapshot, and its branch.
pub fn remove_workspace(errand: &EffectContext, keep_branch: bool, landed: bool) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let path = &errand.workspace;
    let result = try_remove_workspace(errand, path, keep_branch, landed)
        .map(|()| path.to_string_lossy().into_owned())
        .map_err(|error| error.to_string());
    errand.send_input(Input::WorkspaceRemoved { task, attempt, workspace: result });
}

fn try_remove_workspace(
    errand: &EffectContext,
    path: &Path,
    keep_branch: bool,
    landed: bool,
) -> Result<(), WorkspaceError> {
    let world = &errand.engine;
    let repo = &world.repo;
    end_earlier_jobs(errand)?;
    // What is refused was told with the evidence; its files are in the snapshot below.
    let _ = errand.import_agent_commits(true)?;
    if repo.would_lose_work(path)? && !(landed && is_workspace_kept(errand, path)) {
        let why = "before the workspace is removed";
        if let Some(kept) = repo.take_snapshot(path, &errand.snapshot_ref_prefix(), why)? {
            if kept.is_new {
                errand.send_kept_ref(kept.refname, kept.commit, why);
                errand.send_notices(kept.notes);
            }
            errand.keep_unstored_files(path, &kept.unstored)?;
        }
        crash::point("removal.saved");
    }
    repo.remove_worktree(path, &world.layout.trash_dir())?;
    crash::point("removal.moved");
    if keep_branch {
        leave_branch_to_user(errand)?;
    } else {
        delete_task_branch(errand)?;
    }
    let car = format!("refs/mainstem/train/{}", errand.task.id);
    // A merge that we made ourselves can be made again.
    let _ = repo.delete_ref(&car, None)?;
    let job = world.layout.agent_job(&world.run, &errand.task.id, errand.attempt);
    if let Err(error) = port_leases::release_ports(&port_leases::lease_folder(), &job) {
        // The lease ends with its job anyway.
        let message = format!("cannot release ports: {error}");
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
    }
    errand
        .remove_scratch(path)
        .map_err(WorkspaceError::io("cannot remove the temporary folder of the attempt"))?;
    // Once the removal is on record nobody looks again: what was removed must not come back with the
    // power.
    for place in [repo.common_dir(), world.layout.workspace_root()] {
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
fn is_workspace_kept(errand: &EffectContext, path: &Path) -> bool {
    let repo = &errand.engine.repo;
    let target = errand.engine.target_ref();
    repo.is_worktree_kept(path, &errand.snapshot_ref_prefix(), &target).unwrap_or(false)
}

/// Leaves the work to people on its branch, as it was last kept: also what the agent did not commit.
fn leave_branch_to_user(errand: &EffectContext) -> Result<(), WorkspaceError> {
    let repo = &errand.engine.repo;
    let kept = maintenance::list_task_snapshots(repo, errand.task.id.as_str())?;
    let Some(last) = kept.into_iter().rfind(|kept| kept.attempt <= errand.attempt) else {
        return Ok(());
    };
    if !repo.hand_over_branch(&errand.branch, &last.commit)? {
        let (branch, task) = (&errand.branch, &errand.task.id);
        let message = format!(
            "{branch} was kept because the branch is in use; put this work on another branch with mainstem restore {task}"
        );
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}

/// Deletes the task's branch if it is ours. Commits that are nowhere else get a snapshot ref first: an
/// agent or a person may have left them there.
fn delete_task_branch(errand: &EffectContext) -> Result<(), WorkspaceError> {
    let repo = &errand.engine.repo;
    let name = format!("refs/heads/{}", errand.branch);
    let Some(tip) = repo.read_ref(&name)? else { return Ok(()) };
    if !repo.owns_branch(&errand.branch)? {
        return Ok(());
    }
    let target = repo.read_ref(&errand.engine.target_ref())?;
    let landed = match &target {
        Some(target) => repo.is_ancestor(&tip, target)?,
        None => false,
    };
    let why = "before its branch is removed";
    if !landed
        && let Some(refname) =
            repo.keep_ref_tip(&name, &errand.snapshot_ref_prefix(), target.as_ref(), why)?
    {
        errand.send_kept_ref(refname, tip.clone(), why);
    }
    if let BranchDeletion::Kept(why) = repo.delete_owned_branch(&errand.branch, &tip)? {
        let message = format!("{why} and stays");
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}
