//! Looking after what a run left: restoring snapshots, undoing a landing, cleaning up. None of it
//! ever removes work that is neither landed nor on a snapshot.

mod snapshot_refs;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use mainstem_core::config::Settings;
use mainstem_core::fact::{Fact, GateScope, GateVerdict, RefValue};
use mainstem_core::id::{Oid, RunId, TaskId, TaskIx, check_id};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::git::{
    BlockedCheckout, CheckoutReadiness, CheckoutUpdate, GitError, GitMergeOutcome, NewCommit,
    RefUpdateOutcome, Repo, WorktreeEntry,
};
use mainstem_host::{clock, crash};

use crate::effects::{EffectContext, gates};
use crate::engine_context::{CreatedWorkspaces, EngineContext};
use crate::instance::{EngineError, EngineInstance};
use crate::repo_layout::{RepoLayout, UNSTORED};
use crate::signing::{LandingSigner, signing_error_text};
use crate::upstream::{self, UpstreamBranch, UpstreamError, UpstreamPushOutcome};

pub use snapshot_refs::{SnapshotRef, list_all_snapshots, list_task_snapshots};

/// Why a landing cannot be taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error(transparent)]
    Session(#[from] EngineError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("nothing has landed in this run")]
    NothingLanded,
    /// It landed by a pull request.
    #[error("{0} landed with a pull request: revert the pull request on the forge")]
    OnForge(String),
    /// The landing is not on the branch any more.
    #[error("{commit} is no longer on {branch}")]
    Gone { commit: Oid, branch: String },
    /// Later work builds on it.
    #[error("undoing {task} conflicts with later changes in {}", files.join(", "))]
    Conflict { task: String, files: Vec<String> },
    /// Without it the gates fail.
    #[error("the check `{gate}` failed without {task}; full output: {log}")]
    Red {
        task: String,
        gate: String,
        /// Where its output is.
        log: String,
    },
    /// A check could not be made.
    #[error("cannot check the revert: {0}")]
    Unverified(String),
    /// It cannot be pushed.
    #[error("{0}; nothing was changed")]
    Unpushed(String),
    /// There is no remote to push it to.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The user's own files are in the way.
    #[error("{0}; nothing was changed")]
    InTheWay(BlockedCheckout),
    /// Somebody else moved the branch meanwhile.
    #[error("{0} changed in the meantime; nothing was undone")]
    Moved(String),
}

/// What an undo did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoOutcome {
    pub task: String,
    pub commit: Oid,
    /// Where the branch stands now.
    pub now: Oid,
    /// A revert was made; otherwise the branch went back.
    pub reverted: bool,
    /// Why the user's checkout was left alone.
    pub checkout: Option<String>,
}

/// Takes back the last landing: the branch goes back if nothing came after, else a revert that
/// passed the gates is put on top.
pub fn undo_landing(
    mut session: EngineInstance,
    exe: PathBuf,
    env: Vec<(String, String)>,
) -> Result<UndoOutcome, UndoError> {
    let (run, mut machine) = session.load_newest_run()?.ok_or(EngineError::NoRun)?;
    let (t, commit, old) = find_last_landing(&machine).ok_or(UndoError::NothingLanded)?;
    session.sweep_leftovers()?;
    let task = machine.plan().tasks[t.index()].id.to_string();
    if machine.lands_on_forge(t) {
        return Err(UndoError::OnForge(task));
    }
    let repo = session.repo().clone();
    let target = machine.target_branch().to_owned();
    let refname = format!("refs/heads/{target}");
    let gone = || UndoError::Gone { commit: commit.clone(), branch: target.clone() };
    let local = repo.read_ref(&refname)?.ok_or_else(gone)?;
    let (upstream, head) = fetch_upstream_head(&repo, machine.settings(), &target, local)?;
    // What others have seen is never taken out of their history, whoever pushed it.
    let pushed = match &upstream {
        Some(upstream) => upstream.has_commit(&repo, &commit)?,
        None => false,
    };
    let published = pushed || repo.is_on_remote(&commit)?;
    if !repo.is_ancestor(&commit, &head)? {
        // A branch that went back to before it: by somebody else, or by an undo that did not live
        // to write it down. A branch that went elsewhere may still have the work.
        if !repo.is_ancestor(&head, &commit)? {
            return Err(gone());
        }
        let checkout = checkout_update_note(repo.update_checkouts(&target, &commit, &head)?);
        let fact = Fact::LandingUndone {
            task: task.as_str().into(),
            commit: commit.clone(),
            old: head.clone(),
            new: head.clone(),
        };
        session.write_fact(&run, &mut machine, &fact)?;
        return Ok(UndoOutcome { task, commit, now: head, reverted: false, checkout });
    }
    let (new, reverted) = if head == commit && !published {
        // Nothing else may hold it by now: the attempt's own snapshots may have been pruned.
        let series = format!("refs/mainstem/snapshots/{task}/{}", machine.tasks().get(t).attempts);
        repo.keep_ref_tip(&refname, &series, Some(&old), "mainstem: kept by undo")?;
        (old, false)
    } else {
        session.claim_root()?;
        let world = build_maintenance_context(&mut session, &run, &machine, exe, env)?;
        let reverted = revert_landing(world, &machine, t, &commit, &head);
        session.layout().release_root();
        (reverted?, true)
    };
    crash::point("undo.before");
    let step = (target.as_str(), &head, &new);
    let checkout = match upstream.filter(|_| pushed) {
        Some(upstream) => move_upstream_and_target(&repo, &upstream, step)?,
        None => move_target_branch(&repo, &task, step)?,
    };
    let fact = Fact::LandingUndone {
        task: task.as_str().into(),
        commit: commit.clone(),
        old: head,
        new: new.clone(),
    };
    session.write_fact(&run, &mut machine, &fact)?;
    Ok(UndoOutcome { task, commit, now: new, reverted, checkout })
}

/// Where landings are pushed to, if they are, and where work lands as the remote has it by now.
fn fetch_upstream_head(
    repo: &Repo,
    settings: &Settings,
    target: &str,
    local: Oid,
) -> Result<(Option<UpstreamBranch>, Oid), UndoError> {
    let Some(upstream) = UpstreamBranch::connect(repo, settings, target)? else {
        return Ok((None, local));
    };
    upstream
        .fetch_branch(repo)
        .map_err(|e| UndoError::Unpushed(upstream.unreachable_refusal(&e).reason))?;
    let head = upstream.landing_head(repo, local)?;
    Ok((Some(upstream), head))
}

/// Moves the target branch; why the user's checkout was left alone.
fn move_target_branch(
    repo: &Repo,
    task: &str,
    (target, head, new): (&str, &Oid, &Oid),
) -> Result<Option<String>, UndoError> {
    // A revert that changes nothing was made before and not written down.
    if new != head {
        let followers = match repo.lock_checkouts(target, head, new)? {
            CheckoutReadiness::Locked(followers) => followers,
            CheckoutReadiness::Blocked(way) => return Err(UndoError::InTheWay(way)),
        };
        let (name, reason) = (format!("refs/heads/{target}"), format!("mainstem: undo {task}"));
        if let RefUpdateOutcome::Refused { .. } =
            repo.update_ref(&name, new, Some(head), &reason)?
        {
            followers.release();
            return Err(UndoError::Moved(target.to_owned()));
        }
        crash::point("undo.moved");
        return Ok(checkout_update_note(repo.update_locked_checkouts(followers, new)?));
    }
    Ok(checkout_update_note(repo.update_checkouts(target, head, new)?))
}

/// Moves the remote's branch, then ours.
fn move_upstream_and_target(
    repo: &Repo,
    upstream: &UpstreamBranch,
    (target, _, new): (&str, &Oid, &Oid),
) -> Result<Option<String>, UndoError> {
    match upstream.push_landing(repo, new) {
        Ok(UpstreamPushOutcome::Done) => {}
        Ok(UpstreamPushOutcome::Elsewhere) => {
            return Err(UndoError::Moved(upstream.branch_name().to_owned()));
        }
        Err(why) => return Err(UndoError::Unpushed(why.reason)),
    }
    crash::point("undo.pushed");
    let whose = format!("{}'s", upstream.remote_name());
    Ok(upstream::update_user_branch(repo, target, new, &whose)?)
}

fn checkout_update_note(follow: CheckoutUpdate) -> Option<String> {
    match follow {
        CheckoutUpdate::NotCheckedOut | CheckoutUpdate::Updated => None,
        CheckoutUpdate::LeftUnchanged { why } | CheckoutUpdate::UpdatedFilesAside { why } => {
            Some(why)
        }
    }
}

pub(crate) fn find_last_landing(machine: &Machine) -> Option<(TaskIx, Oid, Oid)> {
    machine
        .tasks()
        .all_tasks()
        .filter(|t| machine.tasks().phase(*t) == Phase::Landed)
        .filter_map(|t| Some((t, machine.tasks().get(t).landed.as_ref()?)))
        .filter(|(_, landing)| !landing.empty)
        .max_by_key(|(_, landing)| landing.order)
        .map(|(t, landing)| (t, landing.commit.clone(), landing.old.clone()))
}

pub(crate) fn build_maintenance_context(
    session: &mut EngineInstance,
    run: &RunId,
    machine: &Machine,
    exe: PathBuf,
    env: Vec<(String, String)>,
) -> Result<EngineContext, EngineError> {
    let walls = session.sandbox()?.cloned();
    session.repo().set_file_limit(machine.settings().limits.file_bytes);
    let (signer, _) = LandingSigner::new(session.repo(), machine.settings().land.sign)
        .map_err(|error| EngineError::Unsigned(signing_error_text(&error)))?;
    Ok(EngineContext {
        signer,
        repo: session.repo().clone(),
        layout: session.layout().clone(),
        settings: machine.settings().clone(),
        run: run.clone(),
        target: machine.target_branch().to_owned(),
        exe,
        env,
        lessons: None,
        template: mainstem_agents::PromptTemplate::default(),
        include: Vec::new(),
        sandbox: walls,
        created_workspaces: CreatedWorkspaces::default(),
        forge_connection: None,
        upstream: None,
        trash: None,
        unjournaled_landings: BTreeSet::new(),
    })
}

fn revert_landing(
    world: EngineContext,
    machine: &Machine,
    t: TaskIx,
    commit: &Oid,
    head: &Oid,
) -> Result<Oid, UndoError> {
    let id = machine.plan().tasks[t.index()].id.to_string();
    let repo = world.repo.clone();
    let tree = match repo.revert_in_memory(commit, head)? {
        GitMergeOutcome::Clean { tree } => tree,
        GitMergeOutcome::Conflict { files, .. } => {
            return Err(UndoError::Conflict { task: id, files });
        }
    };
    if tree == repo.tree_of(head)? {
        return Ok(head.clone());
    }
    let run = &world.run;
    let message = format!(
        "Undo {id}\n\nThis reverts commit {commit}.\n\nMainstem-Undo: {id}\nMainstem-Run: {run}\n"
    );
    let who = repo.identity()?;
    let (parents, date_ms) = (std::slice::from_ref(head), clock::now_ms());
    let (author, committer) = (&who, &who);
    let new = NewCommit { tree: &tree, parents, message: &message, author, committer, date_ms };
    let new = world.signer.write_commit(&repo, new)?;
    match find_failing_gate(world, machine, t, &new, &tree) {
        Ok(None) => Ok(new),
        Ok(Some((gate, log))) => Err(UndoError::Red { task: id, gate, log }),
        Err(why) => Err(UndoError::Unverified(why)),
    }
}

/// Runs the gates on a commit that no task made: which one does not pass, and where its output is.
pub(crate) fn find_failing_gate(
    world: EngineContext,
    machine: &Machine,
    t: TaskIx,
    commit: &Oid,
    tree: &Oid,
) -> Result<Option<(String, String)>, String> {
    if world.settings.gates.verify.is_empty() {
        return Ok(None);
    }
    let task = machine.plan().tasks[t.index()].clone();
    let (results, _) = std::sync::mpsc::channel();
    let errand = EffectContext {
        workspace: world.layout.workspace_path(task.id.as_str()),
        attempt: machine.tasks().get(t).attempts,
        branch: format!("mainstem/{}", task.id),
        task,
        undone_landings: Vec::new(),
        ix: t,
        cancel: Arc::default(),
        candidate_tasks: Vec::new(),
        engine: Arc::new(world),
        results,
    };
    let verdicts = gates::verify_commit(&errand, (commit, tree), 1, GateScope::Train)?;
    let red = verdicts.into_iter().find(|gate| gate.verdict != GateVerdict::Passed);
    Ok(red.map(|gate| (gate.gate, gate.log.unwrap_or_default())))
}

/// Something that `clean` may remove, or must leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanupItem {
    pub what: String,
    /// Where it is: a path or a ref.
    pub place: String,
    /// Why it stays; none if it goes.
    pub kept_because: Option<String>,
}

/// What of a repository is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CleanScope {
    Everything,
    /// Workspaces and branches of these tasks.
    Tasks(BTreeSet<TaskId>),
}

impl CleanScope {
    /// Is a workspace or branch with this name part of it?
    fn contains(&self, machine: Option<&Machine>, name: &str) -> bool {
        let Self::Tasks(these) = self else { return true };
        let mut users = machine.into_iter().flat_map(|m| list_workspace_users(m, name));
        let named = these.iter().any(|task| task.as_str() == name);
        named || users.any(|task| these.contains(&task))
    }

    /// Who else needs a workspace of which only some users are part of it.
    fn find_other_user(&self, machine: Option<&Machine>, name: &str) -> Option<TaskId> {
        let Self::Tasks(these) = self else { return None };
        let mut users = machine.into_iter().flat_map(|m| list_workspace_users(m, name));
        users.find(|task| !these.contains(task))
    }
}

/// The tasks that have worked in the workspace of this name.
fn list_workspace_users(machine: &Machine, name: &str) -> Vec<TaskId> {
    let all = machine.tasks().all_tasks().filter(|t| machine.tasks().get(*t).current.is_some());
    let users = all.filter(|t| crate::effects::workspace_key(machine, *t) == name);
    users.map(|t| machine.graph().id(t).clone()).collect()
}

/// Removes what no run needs any more: workspaces whose task is over (after a snapshot), branches
/// of ours, the train's workspace, the trash, snapshots of tasks that landed long ago, what was seen of
/// remotes. With `dry`, only lists it.
pub fn clean_repository(
    session: &mut EngineInstance,
    scope: &CleanScope,
    dry: bool,
) -> Result<Vec<CleanupItem>, EngineError> {
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    let mut newest = session.load_newest_run()?;
    let mut litter = Vec::new();
    let in_use = clean_workspaces(session, newest.as_mut(), (scope, dry), &mut litter)?;
    let machine = newest.as_ref().map(|(_, machine)| machine);
    let busy = machine.is_some_and(|m| m.tasks().active_tasks().next().is_some());
    let mut gone = clean_branches(&repo, machine, (scope, dry), &in_use, &mut litter)?;
    if let CleanScope::Tasks(_) = scope {
        delete_kept_branches(session, newest.as_mut(), gone)?;
        // What just went is deleted; what lay there before is not named, as nobody asked for it.
        clean_trash(&layout, dry, &mut Vec::new())?;
        return Ok(litter);
    }
    litter.extend(list_remote_tips(&repo, machine, dry, &mut gone)?);
    delete_kept_branches(session, newest.as_mut(), gone)?;
    litter.extend(prune_old_snapshots(session, newest.as_mut(), dry)?);
    if !busy {
        remove_scratch_dirs(&layout, dry, &mut litter)?;
    }
    clean_trash(&layout, dry, &mut litter)?;
    Ok(litter)
}

/// Removes workspaces. Returns the branches that are checked out somewhere else, or in one that stays.
fn clean_workspaces(
    session: &mut EngineInstance,
    mut newest: Option<&mut (RunId, Machine)>,
    (scope, dry): (&CleanScope, bool),
    litter: &mut Vec<CleanupItem>,
) -> Result<BTreeSet<String>, EngineError> {
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    // A bare repository's HEAD is no worktree.
    let mut in_use = BTreeSet::from([repo.default_branch()?]);
    for worktree in repo.list_worktrees()? {
        let machine = newest.as_ref().map(|(_, machine)| machine);
        let Ok(rest) = worktree.path.strip_prefix(canonical_root(&layout)) else {
            in_use.extend(worktree.branch.filter(|_| !worktree.prunable));
            continue;
        };
        let name = rest.to_string_lossy().into_owned();
        if !scope.contains(machine, &name) {
            in_use.extend(worktree.branch.filter(|_| !worktree.prunable));
            continue;
        }
        let place = worktree.path.display().to_string();
        let mut stays = machine.and_then(|m| find_need(m, &name));
        if let (None, Some(other)) = (&stays, scope.find_other_user(machine, &name)) {
            stays = Some(format!("also used by {other}"));
        }
        if stays.is_none() && !is_own_workspace(&repo, machine, &worktree, &name)? {
            stays = Some("not created by Mainstem".to_owned());
        }
        if stays.is_none() && !dry {
            if !RepoLayout::is_lane_name(&name) {
                let prefix = format!("refs/mainstem/snapshots/{name}/0");
                let branch = worktree.branch.clone().unwrap_or_else(|| format!("mainstem/{name}"));
                // What could not be taken in is files, and those are in the snapshot.
                repo.import_agent_commits(&worktree.path, &branch, true)?;
                if let Some(kept) = repo.take_snapshot(&worktree.path, &prefix, "before clean")? {
                    let label = format!("{UNSTORED}{name}-0");
                    repo.set_unstored_aside(
                        &worktree.path,
                        &kept.unstored,
                        &layout.trash_dir(),
                        &label,
                    )?;
                }
            }
            crash::point("clean.saved");
            repo.remove_worktree(&worktree.path, &layout.trash_dir())?;
            if let Some(newest) = newest.as_deref_mut() {
                record_removed_workspaces(session, newest, &name, &place)?;
            }
        }
        in_use.extend(worktree.branch.filter(|_| stays.is_some() && !worktree.prunable));
        litter.push(CleanupItem { what: "workspace".to_owned(), place, kept_because: stays });
    }
    Ok(in_use)
}

/// Puts on record that the workspace of these tasks is gone: nobody is sent there any more.
fn record_removed_workspaces(
    session: &mut EngineInstance,
    (run, machine): &mut (RunId, Machine),
    name: &str,
    place: &str,
) -> Result<(), EngineError> {
    for task in list_workspace_users(machine, name) {
        let Ok(t) = machine.find_task(task.as_str()) else { continue };
        let current = machine.tasks().get(t).current.as_ref();
        let Some(attempt) = current.filter(|a| !a.removed).map(|a| a.n) else { continue };
        if !machine.tasks().phase(t).is_active() {
            let workspace = place.to_owned();
            session.write_fact(
                run,
                machine,
                &Fact::WorkspaceRemoved { task, attempt, workspace },
            )?;
        }
    }
    Ok(())
}

/// Says which branches of ours go, after their commits were kept.
fn clean_branches(
    repo: &Repo,
    machine: Option<&Machine>,
    (scope, dry): (&CleanScope, bool),
    in_use: &BTreeSet<String>,
    litter: &mut Vec<CleanupItem>,
) -> Result<Vec<RefValue>, EngineError> {
    let mut gone = Vec::new();
    for (refname, commit) in repo.list_refs("refs/heads/mainstem/")? {
        let name = refname.trim_start_matches("refs/heads/mainstem/").to_owned();
        // Another branch of the same task, because one of this name is somebody else's.
        let task = name.split_once('+').map_or(name.as_str(), |(task, _)| task);
        if !scope.contains(machine, task) {
            continue;
        }
        let mut stays = machine.and_then(|m| find_need(m, task));
        let of_task =
            |m: &Machine| m.find_task(task).is_ok_and(|t| m.tasks().get(t).keeps_branch());
        if stays.is_none() && machine.is_some_and(of_task) {
            stays = Some(format!("{task} has conflicts; the work is kept here for you"));
        }
        if stays.is_none() && in_use.contains(&format!("mainstem/{name}")) {
            stays = Some("checked out".to_owned());
        }
        // Its name is to become part of a snapshot's.
        let ours = check_id(task).is_ok() && repo.owns_branch(&format!("mainstem/{name}"))?;
        let of_run = machine.is_some_and(|m| m.target_branch() == format!("mainstem/{name}"));
        if of_run {
            stays = Some("has landed work; merge with mainstem land".to_owned());
        }
        if stays.is_none() && !ours {
            stays = Some("not created by Mainstem".to_owned());
        }
        if stays.is_none() && !dry {
            let series = format!("refs/mainstem/snapshots/{task}/0");
            repo.keep_ref_tip(&refname, &series, None, "mainstem: kept by clean")?;
            gone.push(RefValue { refname: refname.clone(), commit });
        }
        litter.push(CleanupItem { what: "branch".to_owned(), place: refname, kept_because: stays });
    }
    Ok(gone)
}

/// Where branches of remotes were last seen. Whoever needs it again asks.
fn list_remote_tips(
    repo: &Repo,
    machine: Option<&Machine>,
    dry: bool,
    gone: &mut Vec<RefValue>,
) -> Result<Vec<CleanupItem>, GitError> {
    let busy = machine.is_some_and(|m| m.tasks().active_tasks().next().is_some());
    let mut litter = Vec::new();
    let branches = repo.list_refs("refs/mainstem/upstream/")?;
    let branches = branches.into_iter().map(|seen| (seen, "last known state of a remote branch"));
    let pulls = repo.list_refs("refs/mainstem/pulls/")?;
    let pulls = pulls.into_iter().map(|seen| (seen, "last commit of a pull request"));
    for ((refname, commit), what) in branches.chain(pulls) {
        let stays = busy.then(|| "the run has not ended".to_owned());
        if stays.is_none() && !dry {
            gone.push(RefValue { refname: refname.clone(), commit });
        }
        litter.push(CleanupItem { what: what.to_owned(), place: refname, kept_because: stays });
    }
    Ok(litter)
}

/// Whether a worktree among the workspaces is one: somebody may have put another one there.
fn is_own_workspace(
    repo: &Repo,
    machine: Option<&Machine>,
    worktree: &WorktreeEntry,
    name: &str,
) -> Result<bool, GitError> {
    if RepoLayout::is_lane_name(name) {
        return Ok(true);
    }
    let of_unit =
        |m: &Machine| m.tasks().all_tasks().any(|t| crate::effects::workspace_key(m, t) == name);
    let on_branch = worktree.branch.as_deref().is_some_and(|b| b.starts_with("mainstem/"));
    let known =
        on_branch || machine.is_some_and(of_unit) || repo.is_own_worktree(&worktree.path)?;
    // The name becomes part of a ref.
    Ok(known && check_id(name).is_ok())
}

/// Deletes branches that are kept by now, after it was written down where they were.
fn delete_kept_branches(
    session: &mut EngineInstance,
    newest: Option<&mut (RunId, Machine)>,
    refs: Vec<RefValue>,
) -> Result<(), EngineError> {
    if refs.is_empty() {
        return Ok(());
    }
    let values: Vec<(String, Oid)> =
        refs.iter().map(|r| (r.refname.clone(), r.commit.clone())).collect();
    if let Some((run, machine)) = newest {
        let fact = Fact::RefsRemoved { refs, why: "clean".to_owned() };
        session.write_fact(run, machine, &fact)?;
    }
    crash::point("clean.told");
    session.repo().delete_refs(&values)?;
    session.repo().sweep_branch_marks()?;
    Ok(())
}

fn prune_old_snapshots(
    session: &mut EngineInstance,
    newest: Option<&mut (RunId, Machine)>,
    dry: bool,
) -> Result<Vec<CleanupItem>, EngineError> {
    let Some((run, machine)) = newest else { return Ok(Vec::new()) };
    let due = if dry {
        session.find_due_snapshots(run, machine)?
    } else {
        session.prune_snapshots(run, machine)?
    };
    let lines = due.into_iter().map(|(task, kept)| {
        let count = kept.len();
        let what = if count == 1 { "snapshot".to_owned() } else { format!("{count} snapshots") };
        CleanupItem { what, place: format!("refs/mainstem/snapshots/{task}"), kept_because: None }
    });
    Ok(lines.collect())
}

/// Temporary folders and caches of attempts that are over.
fn remove_scratch_dirs(
    layout: &RepoLayout,
    dry: bool,
    litter: &mut Vec<CleanupItem>,
) -> Result<(), EngineError> {
    for folder in layout.scratch_dirs() {
        if !folder.exists() {
            continue;
        }
        let place = folder.display().to_string();
        if !dry {
            let what = "cannot remove temporary folders".to_owned();
            files::move_to_trash(&folder, &layout.trash_dir(), TrashRetention::Deletable)
                .map_err(|source| EngineError::Io { what, source })?;
        }
        litter.push(CleanupItem {
            what: "temporary folders".to_owned(),
            place,
            kept_because: None,
        });
    }
    Ok(())
}

fn clean_trash(
    layout: &RepoLayout,
    dry: bool,
    litter: &mut Vec<CleanupItem>,
) -> Result<(), EngineError> {
    if layout.trash_dir().exists() {
        let place = layout.trash_dir().display().to_string();
        if !dry {
            let what = "cannot empty the trash".to_owned();
            files::abandon_staging_paths(&layout.trash_dir());
            files::empty_trash(&layout.trash_dir())
                .map_err(|source| EngineError::Io { what, source })?;
        }
        litter.push(CleanupItem { what: "trash".to_owned(), place, kept_because: None });
    }
    if !dry {
        layout.release_root();
    }
    Ok(())
}

fn canonical_root(layout: &RepoLayout) -> PathBuf {
    layout.workspace_root().canonicalize().unwrap_or_else(|_| layout.workspace_root().to_path_buf())
}

/// Why a workspace or branch of this name is still needed.
fn find_need(machine: &Machine, name: &str) -> Option<String> {
    if RepoLayout::is_lane_name(name) {
        return (!machine.train().candidates().is_empty())
            .then(|| "the merge train is not empty".to_owned());
    }
    let waiting = machine.tasks().all_tasks().find(|t| {
        let state = machine.tasks().get(*t);
        !state.phase().is_over()
            && state.current.is_some()
            && (crate::effects::workspace_key(machine, *t) == name
                || machine.plan().tasks[t.index()].id.as_str() == name)
    })?;
    let id = &machine.plan().tasks[waiting.index()].id;
    Some(format!("{id} is {}", machine.tasks().phase(waiting).as_str()))
}
