//! Looking after what a run left: restoring snapshots, undoing a landing, cleaning up. None of it
//! ever removes work that is neither landed nor on a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use mainstem_core::config::Settings;
use mainstem_core::fact::{Fact, GateScope, RefValue, Verdict};
use mainstem_core::id::{Oid, RunId, TaskId, TaskIx, check_id};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::files::{self, Fate};
use mainstem_host::git::{
    Cas, Follow, GitError, InTheWay, Merge, NewCommit, Ready, Repo, Worktree,
};
use mainstem_host::{clock, crash};

use crate::paths::{Layout, UNSTORED};
use crate::perform::{Errand, gates};
use crate::session::{Session, SessionError};
use crate::signing::{Signer, words_of};
use crate::upstream::{self, Pushing, Upstream, UpstreamError};
use crate::world::{Made, World};

/// A snapshot of a task's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The ref.
    pub refname: String,
    /// Of which attempt.
    pub attempt: u32,
    /// Which one of that attempt.
    pub number: u32,
    /// The commit.
    pub commit: Oid,
}

/// All snapshots of a task, oldest first.
pub fn snapshots(repo: &Repo, task: &str) -> Result<Vec<Kept>, GitError> {
    let prefix = format!("refs/mainstem/snapshots/{task}/");
    let mut kept: Vec<Kept> = repo
        .list_refs(&prefix)?
        .into_iter()
        .filter_map(|(refname, commit)| {
            let (attempt, number) = refname.strip_prefix(&prefix)?.split_once('/')?;
            let (attempt, number) = (attempt.parse().ok()?, number.parse().ok()?);
            Some(Kept { refname, attempt, number, commit })
        })
        .collect();
    kept.sort_by_key(|kept| (kept.attempt, kept.number));
    Ok(kept)
}

/// All snapshots of all tasks, each task's oldest first.
pub fn all_snapshots(repo: &Repo) -> Result<BTreeMap<String, Vec<Kept>>, GitError> {
    let prefix = "refs/mainstem/snapshots/";
    let mut all: BTreeMap<String, Vec<Kept>> = BTreeMap::new();
    for (refname, commit) in repo.list_refs(prefix)? {
        let parts: Vec<&str> = refname.trim_start_matches(prefix).split('/').collect();
        let [task, attempt, number] = parts.as_slice() else { continue };
        let (Ok(attempt), Ok(number)) = (attempt.parse(), number.parse()) else { continue };
        let task = (*task).to_owned();
        all.entry(task).or_default().push(Kept { refname, attempt, number, commit });
    }
    for kept in all.values_mut() {
        kept.sort_by_key(|kept| (kept.attempt, kept.number));
    }
    Ok(all)
}

/// Why a landing cannot be taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Nothing has landed.
    #[error("nothing has landed in this run")]
    NothingLanded,
    /// It landed by a pull request.
    #[error("{0} landed with a pull request: revert the pull request on the forge")]
    OnForge(String),
    /// The landing is not on the branch any more.
    #[error("{commit} is no longer on {branch}")]
    Gone {
        /// What had landed.
        commit: Oid,
        /// Where.
        branch: String,
    },
    /// Later work builds on it.
    #[error("undoing {task} conflicts with later changes in {}", files.join(", "))]
    Conflict {
        /// Whose landing.
        task: String,
        /// Where.
        files: Vec<String>,
    },
    /// Without it the gates fail.
    #[error("the check `{gate}` failed without {task}; full output: {log}")]
    Red {
        /// Whose landing.
        task: String,
        /// Which gate.
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
    InTheWay(InTheWay),
    /// Somebody else moved the branch meanwhile.
    #[error("{0} changed in the meantime; nothing was undone")]
    Moved(String),
}

/// What an undo did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Whose landing.
    pub task: String,
    /// What had landed.
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
pub fn undo(
    mut session: Session,
    exe: PathBuf,
    env: Vec<(String, String)>,
) -> Result<Undone, UndoError> {
    let (run, mut machine) = session.newest()?.ok_or(SessionError::NoRun)?;
    let (t, commit, old) = last_landing(&machine).ok_or(UndoError::NothingLanded)?;
    session.sweep()?;
    let task = machine.plan().tasks[t.ix()].id.to_string();
    if machine.lands_by_pull(t) {
        return Err(UndoError::OnForge(task));
    }
    let repo = session.repo().clone();
    let target = machine.target().to_owned();
    let refname = format!("refs/heads/{target}");
    let gone = || UndoError::Gone { commit: commit.clone(), branch: target.clone() };
    let local = repo.read_ref(&refname)?.ok_or_else(gone)?;
    let (upstream, head) = look_afar(&repo, machine.settings(), &target, local)?;
    // What others have seen is never taken out of their history, whoever pushed it.
    let pushed = match &upstream {
        Some(upstream) => upstream.has(&repo, &commit)?,
        None => false,
    };
    let published = pushed || repo.is_published(&commit)?;
    if !repo.is_ancestor(&commit, &head)? {
        // A branch that went back to before it: by somebody else, or by an undo that did not live
        // to write it down. A branch that went elsewhere may still have the work.
        if !repo.is_ancestor(&head, &commit)? {
            return Err(gone());
        }
        let checkout = left_alone(repo.follow_checkout(&target, &commit, &head)?);
        let fact = Fact::LandingUndone {
            task: task.as_str().into(),
            commit: commit.clone(),
            old: head.clone(),
            new: head.clone(),
        };
        session.write(&run, &mut machine, &fact)?;
        return Ok(Undone { task, commit, now: head, reverted: false, checkout });
    }
    let (new, reverted) = if head == commit && !published {
        // Nothing else may hold it by now: the attempt's own snapshots may have been pruned.
        let series = format!("refs/mainstem/snapshots/{task}/{}", machine.tasks().get(t).attempts);
        repo.keep_tip(&refname, &series, Some(&old), "mainstem: kept by undo")?;
        (old, false)
    } else {
        session.claim_root()?;
        let world = world_of(&mut session, &run, &machine, exe, env)?;
        let reverted = revert(world, &machine, t, &commit, &head);
        session.layout().leave();
        (reverted?, true)
    };
    crash::point("undo.before");
    let step = (target.as_str(), &head, &new);
    let checkout = match upstream.filter(|_| pushed) {
        Some(upstream) => move_both(&repo, &upstream, step)?,
        None => move_here(&repo, &task, step)?,
    };
    let fact = Fact::LandingUndone {
        task: task.as_str().into(),
        commit: commit.clone(),
        old: head,
        new: new.clone(),
    };
    session.write(&run, &mut machine, &fact)?;
    Ok(Undone { task, commit, now: new, reverted, checkout })
}

/// Where landings are pushed to, if they are, and where work lands as the remote has it by now.
fn look_afar(
    repo: &Repo,
    settings: &Settings,
    target: &str,
    local: Oid,
) -> Result<(Option<Upstream>, Oid), UndoError> {
    let Some(upstream) = Upstream::connect(repo, settings, target)? else {
        return Ok((None, local));
    };
    upstream.fetch(repo).map_err(|e| UndoError::Unpushed(upstream.unheard(&e).reason))?;
    let head = upstream.head(repo, local)?;
    Ok((Some(upstream), head))
}

/// Moves the target branch; why the user's checkout was left alone.
fn move_here(
    repo: &Repo,
    task: &str,
    (target, head, new): (&str, &Oid, &Oid),
) -> Result<Option<String>, UndoError> {
    // A revert that changes nothing was made before and not written down.
    if new != head {
        let followers = match repo.hold_checkouts(target, head, new)? {
            Ready::Go(followers) => followers,
            Ready::Blocked(way) => return Err(UndoError::InTheWay(way)),
        };
        let (name, reason) = (format!("refs/heads/{target}"), format!("mainstem: undo {task}"));
        if let Cas::Refused { .. } = repo.update_ref(&name, new, Some(head), &reason)? {
            followers.withdraw();
            return Err(UndoError::Moved(target.to_owned()));
        }
        crash::point("undo.moved");
        return Ok(left_alone(repo.follow(followers, new)?));
    }
    Ok(left_alone(repo.follow_checkout(target, head, new)?))
}

/// Moves the remote's branch, then ours.
fn move_both(
    repo: &Repo,
    upstream: &Upstream,
    (target, _, new): (&str, &Oid, &Oid),
) -> Result<Option<String>, UndoError> {
    match upstream.push(repo, new) {
        Ok(Pushing::Done) => {}
        Ok(Pushing::Elsewhere) => return Err(UndoError::Moved(upstream.branch().to_owned())),
        Err(why) => return Err(UndoError::Unpushed(why.reason)),
    }
    crash::point("undo.pushed");
    let whose = format!("{}'s", upstream.remote());
    Ok(upstream::bring_along(repo, target, new, &whose)?)
}

fn left_alone(follow: Follow) -> Option<String> {
    match follow {
        Follow::NotCheckedOut | Follow::Moved => None,
        Follow::Left { why } | Follow::Aside { why } => Some(why),
    }
}

pub(crate) fn last_landing(machine: &Machine) -> Option<(TaskIx, Oid, Oid)> {
    machine
        .tasks()
        .all()
        .filter(|t| machine.tasks().phase(*t) == Phase::Landed)
        .filter_map(|t| Some((t, machine.tasks().get(t).landed.as_ref()?)))
        .filter(|(_, landing)| !landing.empty)
        .max_by_key(|(_, landing)| landing.order)
        .map(|(t, landing)| (t, landing.commit.clone(), landing.old.clone()))
}

pub(crate) fn world_of(
    session: &mut Session,
    run: &RunId,
    machine: &Machine,
    exe: PathBuf,
    env: Vec<(String, String)>,
) -> Result<World, SessionError> {
    let walls = session.walls()?.cloned();
    session.repo().set_file_limit(machine.settings().limits.file_bytes);
    let (signer, _) = Signer::new(session.repo(), machine.settings().land.sign)
        .map_err(|error| SessionError::Unsigned(words_of(&error)))?;
    Ok(World {
        signer,
        repo: session.repo().clone(),
        layout: session.layout().clone(),
        settings: machine.settings().clone(),
        run: run.clone(),
        target: machine.target().to_owned(),
        exe,
        env,
        shelf: None,
        template: mainstem_agents::Template::default(),
        include: Vec::new(),
        walls,
        made: Made::default(),
        hub: None,
        upstream: None,
        trash: None,
        landed_unknown: BTreeSet::new(),
    })
}

fn revert(
    world: World,
    machine: &Machine,
    t: TaskIx,
    commit: &Oid,
    head: &Oid,
) -> Result<Oid, UndoError> {
    let id = machine.plan().tasks[t.ix()].id.to_string();
    let repo = world.repo.clone();
    let tree = match repo.revert_in_memory(commit, head)? {
        Merge::Clean { tree } => tree,
        Merge::Conflict { files, .. } => return Err(UndoError::Conflict { task: id, files }),
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
    let new = world.signer.commit(&repo, new)?;
    match passes_gates(world, machine, t, &new, &tree) {
        Ok(None) => Ok(new),
        Ok(Some((gate, log))) => Err(UndoError::Red { task: id, gate, log }),
        Err(why) => Err(UndoError::Unverified(why)),
    }
}

/// Runs the gates on a commit that no task made: which one does not pass, and where its output is.
pub(crate) fn passes_gates(
    world: World,
    machine: &Machine,
    t: TaskIx,
    commit: &Oid,
    tree: &Oid,
) -> Result<Option<(String, String)>, String> {
    if world.settings.gates.verify.is_empty() {
        return Ok(None);
    }
    let task = machine.plan().tasks[t.ix()].clone();
    let (results, _) = std::sync::mpsc::channel();
    let errand = Errand {
        workspace: world.layout.workspace(task.id.as_str()),
        attempt: machine.tasks().get(t).attempts,
        branch: format!("mainstem/{}", task.id),
        task,
        undone: Vec::new(),
        ix: t,
        cancel: Arc::default(),
        crew: Vec::new(),
        world: Arc::new(world),
        results,
    };
    let verdicts = gates::verify_commit(&errand, (commit, tree), 1, GateScope::Train)?;
    let red = verdicts.into_iter().find(|gate| gate.verdict != Verdict::Passed);
    Ok(red.map(|gate| (gate.gate, gate.log.unwrap_or_default())))
}

/// Something that `clean` may remove, or must leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Litter {
    /// What it is.
    pub what: String,
    /// Where it is: a path or a ref.
    pub place: String,
    /// Why it stays; none if it goes.
    pub stays: Option<String>,
}

/// What of a repository is looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CleanScope {
    /// All of it.
    Everything,
    /// Workspaces and branches of these tasks.
    Tasks(BTreeSet<TaskId>),
}

impl CleanScope {
    /// Is a workspace or branch with this name part of it?
    fn has(&self, machine: Option<&Machine>, name: &str) -> bool {
        let Self::Tasks(these) = self else { return true };
        let mut users = machine.into_iter().flat_map(|m| users_of(m, name));
        let named = these.iter().any(|task| task.as_str() == name);
        named || users.any(|task| these.contains(&task))
    }

    /// Who else needs a workspace of which only some users are part of it.
    fn other_user(&self, machine: Option<&Machine>, name: &str) -> Option<TaskId> {
        let Self::Tasks(these) = self else { return None };
        let mut users = machine.into_iter().flat_map(|m| users_of(m, name));
        users.find(|task| !these.contains(task))
    }
}

/// The tasks that have worked in the workspace of this name.
fn users_of(machine: &Machine, name: &str) -> Vec<TaskId> {
    let all = machine.tasks().all().filter(|t| machine.tasks().get(*t).current.is_some());
    let users = all.filter(|t| crate::perform::unit_name(machine, *t) == name);
    users.map(|t| machine.graph().id(t).clone()).collect()
}

/// Removes what no run needs any more: workspaces whose task is over (after a snapshot), branches
/// of ours, the train's workspace, the trash, snapshots of tasks that landed long ago, what was seen of
/// remotes. With `dry`, only lists it.
pub fn clean(
    session: &mut Session,
    scope: &CleanScope,
    dry: bool,
) -> Result<Vec<Litter>, SessionError> {
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    let mut newest = session.newest()?;
    let mut litter = Vec::new();
    let in_use = clean_workspaces(session, newest.as_mut(), (scope, dry), &mut litter)?;
    let machine = newest.as_ref().map(|(_, machine)| machine);
    let busy = machine.is_some_and(|m| m.tasks().active().next().is_some());
    let mut gone = clean_branches(&repo, machine, (scope, dry), &in_use, &mut litter)?;
    if let CleanScope::Tasks(_) = scope {
        forget_branches(session, newest.as_mut(), gone)?;
        // What just went is deleted; what lay there before is not named, as nobody asked for it.
        empty_trash(&layout, dry, &mut Vec::new())?;
        return Ok(litter);
    }
    litter.extend(seen_afar(&repo, machine, dry, &mut gone)?);
    forget_branches(session, newest.as_mut(), gone)?;
    litter.extend(prune_old(session, newest.as_mut(), dry)?);
    if !busy {
        drop_scratch(&layout, dry, &mut litter)?;
    }
    empty_trash(&layout, dry, &mut litter)?;
    Ok(litter)
}

/// Removes workspaces. Returns the branches that are checked out somewhere else, or in one that stays.
fn clean_workspaces(
    session: &mut Session,
    mut newest: Option<&mut (RunId, Machine)>,
    (scope, dry): (&CleanScope, bool),
    litter: &mut Vec<Litter>,
) -> Result<BTreeSet<String>, SessionError> {
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    // A bare repository's HEAD is no worktree.
    let mut in_use = BTreeSet::from([repo.default_branch()?]);
    for worktree in repo.worktrees()? {
        let machine = newest.as_ref().map(|(_, machine)| machine);
        let Ok(rest) = worktree.path.strip_prefix(canonical(&layout)) else {
            in_use.extend(worktree.branch.filter(|_| !worktree.prunable));
            continue;
        };
        let name = rest.to_string_lossy().into_owned();
        if !scope.has(machine, &name) {
            in_use.extend(worktree.branch.filter(|_| !worktree.prunable));
            continue;
        }
        let place = worktree.path.display().to_string();
        let mut stays = machine.and_then(|m| needed(m, &name));
        if let (None, Some(other)) = (&stays, scope.other_user(machine, &name)) {
            stays = Some(format!("also used by {other}"));
        }
        if stays.is_none() && !is_ours(&repo, machine, &worktree, &name)? {
            stays = Some("not created by Mainstem".to_owned());
        }
        if stays.is_none() && !dry {
            if !Layout::is_lane(&name) {
                let prefix = format!("refs/mainstem/snapshots/{name}/0");
                let branch = worktree.branch.clone().unwrap_or_else(|| format!("mainstem/{name}"));
                // What could not be taken in is files, and those are in the snapshot.
                repo.take_in(&worktree.path, &branch, true)?;
                if let Some(kept) = repo.snapshot(&worktree.path, &prefix, "before clean")? {
                    let label = format!("{UNSTORED}{name}-0");
                    repo.set_aside(&worktree.path, &kept.unstored, &layout.trash(), &label)?;
                }
            }
            crash::point("clean.saved");
            repo.remove_worktree(&worktree.path, &layout.trash())?;
            if let Some(newest) = newest.as_deref_mut() {
                tell_removed(session, newest, &name, &place)?;
            }
        }
        in_use.extend(worktree.branch.filter(|_| stays.is_some() && !worktree.prunable));
        litter.push(Litter { what: "workspace".to_owned(), place, stays });
    }
    Ok(in_use)
}

/// Puts on record that the workspace of these tasks is gone: nobody is sent there any more.
fn tell_removed(
    session: &mut Session,
    (run, machine): &mut (RunId, Machine),
    name: &str,
    place: &str,
) -> Result<(), SessionError> {
    for task in users_of(machine, name) {
        let Ok(t) = machine.find(task.as_str()) else { continue };
        let current = machine.tasks().get(t).current.as_ref();
        let Some(attempt) = current.filter(|a| !a.removed).map(|a| a.n) else { continue };
        if !machine.tasks().phase(t).is_active() {
            let workspace = place.to_owned();
            session.write(run, machine, &Fact::WorkspaceRemoved { task, attempt, workspace })?;
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
    litter: &mut Vec<Litter>,
) -> Result<Vec<RefValue>, SessionError> {
    let mut gone = Vec::new();
    for (refname, commit) in repo.list_refs("refs/heads/mainstem/")? {
        let name = refname.trim_start_matches("refs/heads/mainstem/").to_owned();
        // Another branch of the same task, because one of this name is somebody else's.
        let task = name.split_once('+').map_or(name.as_str(), |(task, _)| task);
        if !scope.has(machine, task) {
            continue;
        }
        let mut stays = machine.and_then(|m| needed(m, task));
        let of_task = |m: &Machine| m.find(task).is_ok_and(|t| m.tasks().get(t).keeps_branch());
        if stays.is_none() && machine.is_some_and(of_task) {
            stays = Some(format!("{task} has conflicts; the work is kept here for you"));
        }
        if stays.is_none() && in_use.contains(&format!("mainstem/{name}")) {
            stays = Some("checked out".to_owned());
        }
        // Its name is to become part of a snapshot's.
        let ours = check_id(task).is_ok() && repo.owns_branch(&format!("mainstem/{name}"))?;
        let of_run = machine.is_some_and(|m| m.target() == format!("mainstem/{name}"));
        if of_run {
            stays = Some("has landed work; merge with mainstem land".to_owned());
        }
        if stays.is_none() && !ours {
            stays = Some("not created by Mainstem".to_owned());
        }
        if stays.is_none() && !dry {
            let series = format!("refs/mainstem/snapshots/{task}/0");
            repo.keep_tip(&refname, &series, None, "mainstem: kept by clean")?;
            gone.push(RefValue { refname: refname.clone(), commit });
        }
        litter.push(Litter { what: "branch".to_owned(), place: refname, stays });
    }
    Ok(gone)
}

/// Where branches of remotes were last seen. Whoever needs it again asks.
fn seen_afar(
    repo: &Repo,
    machine: Option<&Machine>,
    dry: bool,
    gone: &mut Vec<RefValue>,
) -> Result<Vec<Litter>, GitError> {
    let busy = machine.is_some_and(|m| m.tasks().active().next().is_some());
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
        litter.push(Litter { what: what.to_owned(), place: refname, stays });
    }
    Ok(litter)
}

/// Whether a worktree among the workspaces is one: somebody may have put another one there.
fn is_ours(
    repo: &Repo,
    machine: Option<&Machine>,
    worktree: &Worktree,
    name: &str,
) -> Result<bool, GitError> {
    if Layout::is_lane(name) {
        return Ok(true);
    }
    let of_unit = |m: &Machine| m.tasks().all().any(|t| crate::perform::unit_name(m, t) == name);
    let on_branch = worktree.branch.as_deref().is_some_and(|b| b.starts_with("mainstem/"));
    let known =
        on_branch || machine.is_some_and(of_unit) || repo.is_of_our_making(&worktree.path)?;
    // The name becomes part of a ref.
    Ok(known && check_id(name).is_ok())
}

/// Deletes branches that are kept by now, after it was written down where they were.
fn forget_branches(
    session: &mut Session,
    newest: Option<&mut (RunId, Machine)>,
    refs: Vec<RefValue>,
) -> Result<(), SessionError> {
    if refs.is_empty() {
        return Ok(());
    }
    let values: Vec<(String, Oid)> =
        refs.iter().map(|r| (r.refname.clone(), r.commit.clone())).collect();
    if let Some((run, machine)) = newest {
        let fact = Fact::RefsRemoved { refs, why: "clean".to_owned() };
        session.write(run, machine, &fact)?;
    }
    crash::point("clean.told");
    session.repo().delete_refs(&values)?;
    session.repo().sweep_owned()?;
    Ok(())
}

fn prune_old(
    session: &mut Session,
    newest: Option<&mut (RunId, Machine)>,
    dry: bool,
) -> Result<Vec<Litter>, SessionError> {
    let Some((run, machine)) = newest else { return Ok(Vec::new()) };
    let due = if dry { session.due(run, machine)? } else { session.prune(run, machine)? };
    let lines = due.into_iter().map(|(task, kept)| {
        let count = kept.len();
        let what = if count == 1 { "snapshot".to_owned() } else { format!("{count} snapshots") };
        Litter { what, place: format!("refs/mainstem/snapshots/{task}"), stays: None }
    });
    Ok(lines.collect())
}

/// Temporary folders and caches of attempts that are over.
fn drop_scratch(layout: &Layout, dry: bool, litter: &mut Vec<Litter>) -> Result<(), SessionError> {
    for folder in layout.scratch() {
        if !folder.exists() {
            continue;
        }
        let place = folder.display().to_string();
        if !dry {
            let what = "cannot remove temporary folders".to_owned();
            files::move_to_trash(&folder, &layout.trash(), Fate::Gone)
                .map_err(|source| SessionError::Io { what, source })?;
        }
        litter.push(Litter { what: "temporary folders".to_owned(), place, stays: None });
    }
    Ok(())
}

fn empty_trash(layout: &Layout, dry: bool, litter: &mut Vec<Litter>) -> Result<(), SessionError> {
    if layout.trash().exists() {
        let place = layout.trash().display().to_string();
        if !dry {
            let what = "cannot empty the trash".to_owned();
            files::abandon_drafts(&layout.trash());
            files::empty_trash(&layout.trash())
                .map_err(|source| SessionError::Io { what, source })?;
        }
        litter.push(Litter { what: "trash".to_owned(), place, stays: None });
    }
    if !dry {
        layout.leave();
    }
    Ok(())
}

fn canonical(layout: &Layout) -> PathBuf {
    layout.root().canonicalize().unwrap_or_else(|_| layout.root().to_path_buf())
}

/// Why a workspace or branch of this name is still needed.
fn needed(machine: &Machine, name: &str) -> Option<String> {
    if Layout::is_lane(name) {
        return (!machine.train().cars().is_empty())
            .then(|| "the merge train is not empty".to_owned());
    }
    let waiting = machine.tasks().all().find(|t| {
        let state = machine.tasks().get(*t);
        !state.phase().is_over()
            && state.current.is_some()
            && (crate::perform::unit_name(machine, *t) == name
                || machine.plan().tasks[t.ix()].id.as_str() == name)
    })?;
    let id = &machine.plan().tasks[waiting.ix()].id;
    Some(format!("{id} is {}", machine.tasks().phase(waiting).word()))
}
