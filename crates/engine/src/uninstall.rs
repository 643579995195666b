//! Removing Mainstem from a repository: workspaces, branches and refs of ours, the state folder. Work that has not
//! landed stays on its refs unless somebody says in so many words that it may go.

use std::path::Path;

use mainstem_core::fact::RefValue;
use mainstem_core::id::{Oid, check_id};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::files::{self, Fate};
use mainstem_host::git::{GitError, Repo};

use crate::care::{self, CleanScope, Litter};
use crate::paths::{Layout, UNSTORED};
use crate::session::{Session, SessionError};

/// What to do with work that has not landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlanded {
    /// It stays on its refs.
    Kept,
    /// It goes.
    Discarded,
}

/// Removes everything of ours from the repository; with `dry`, only lists it.
pub fn remove_everything(
    mut session: Session,
    unlanded: Unlanded,
    dry: bool,
) -> Result<Vec<Litter>, SessionError> {
    let newest = session.newest()?;
    if let Some((run, machine)) = &newest
        && machine.tasks().active().next().is_some()
    {
        return Err(SessionError::Unfinished(run.clone()));
    }
    let mut litter = care::clean(&mut session, &CleanScope::Everything, dry)?;
    // What `clean` leaves for tasks that are not over goes as well.
    litter.retain(|one| one.stays.is_none() || !is_ours(&one.place));
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    let machine = newest.as_ref().map(|(_, machine)| machine);
    litter.extend(remove_workspaces(&repo, &layout, dry)?);
    let branches = remove_branches(&repo, dry)?;
    litter.extend(branches);
    litter.extend(remove_refs(&repo, machine, unlanded, dry)?);
    litter.push(gone("state", layout.state()));
    if !dry {
        remove_folders(session, &layout)?;
    }
    litter.sort_by(|a, b| (&a.place, &a.what).cmp(&(&b.place, &b.what)));
    litter.dedup_by(|a, b| a.place == b.place);
    Ok(litter)
}

fn is_ours(place: &str) -> bool {
    place.starts_with("refs/heads/mainstem/") || place.starts_with('/')
}

fn gone(what: &str, place: &Path) -> Litter {
    Litter { what: what.to_owned(), place: place.display().to_string(), stays: None }
}

/// Workspaces, after their files are on a snapshot.
fn remove_workspaces(repo: &Repo, layout: &Layout, dry: bool) -> Result<Vec<Litter>, GitError> {
    let root = layout.root().canonicalize().unwrap_or_else(|_| layout.root().to_path_buf());
    let mut litter = Vec::new();
    for worktree in repo.worktrees()? {
        let Ok(rest) = worktree.path.strip_prefix(&root) else { continue };
        let name = rest.to_string_lossy().into_owned();
        let lane = Layout::is_lane(&name);
        if !lane && (check_id(&name).is_err() || !repo.is_of_our_making(&worktree.path)?) {
            let stays = Some("not created by Mainstem".to_owned());
            let place = worktree.path.display().to_string();
            litter.push(Litter { what: "worktree".to_owned(), place, stays });
            continue;
        }
        litter.push(gone("workspace", &worktree.path));
        if dry {
            continue;
        }
        if !lane {
            let branch = worktree.branch.clone().unwrap_or_else(|| format!("mainstem/{name}"));
            repo.take_in(&worktree.path, &branch, true)?;
            let series = format!("refs/mainstem/snapshots/{name}/0");
            let why = "before everything is removed";
            if let Some(kept) = repo.snapshot(&worktree.path, &series, why)? {
                // They stay in the trash, with what else may be somebody's.
                let label = format!("{UNSTORED}{name}-0");
                repo.set_aside(&worktree.path, &kept.unstored, &layout.trash(), &label)?;
            }
        }
        repo.remove_worktree(&worktree.path, &layout.trash())?;
    }
    Ok(litter)
}

/// Branches of tasks, after what they hold is on a snapshot.
fn remove_branches(repo: &Repo, dry: bool) -> Result<Vec<Litter>, GitError> {
    let in_use: Vec<String> = repo.worktrees()?.into_iter().filter_map(|w| w.branch).collect();
    let (mut litter, mut refs) = (Vec::new(), Vec::new());
    for (refname, commit) in repo.list_refs("refs/heads/mainstem/")? {
        let name = refname.trim_start_matches("refs/heads/mainstem/");
        let mut stays = None;
        if in_use.iter().any(|branch| *branch == format!("mainstem/{name}")) && !dry {
            stays = Some("checked out".to_owned());
        } else if check_id(name).is_err() {
            stays = Some("not created by Mainstem".to_owned());
        } else {
            let series = format!("refs/mainstem/snapshots/{name}/0");
            if !dry {
                repo.keep_tip(&refname, &series, None, "mainstem: kept by clean --everything")?;
            }
            refs.push((refname.clone(), commit));
        }
        litter.push(Litter { what: "branch".to_owned(), place: refname, stays });
    }
    if !dry {
        repo.delete_refs(&refs)?;
    }
    Ok(litter)
}

/// All refs below `refs/mainstem`, but for work that has not landed.
fn remove_refs(
    repo: &Repo,
    machine: Option<&Machine>,
    unlanded: Unlanded,
    dry: bool,
) -> Result<Vec<Litter>, GitError> {
    let (mut litter, mut refs) = (Vec::<Litter>::new(), Vec::<RefValue>::new());
    for (refname, commit) in repo.list_refs("refs/mainstem/")? {
        let is_kept = unlanded == Unlanded::Kept && !is_landed(repo, machine, &refname, &commit)?;
        let stays = is_kept
            .then(|| "has work that has not landed; remove with --discard-unlanded".to_owned());
        let what = if refname.starts_with(SNAPSHOTS) { "snapshot" } else { "ref" };
        if !is_kept {
            refs.push(RefValue { refname: refname.clone(), commit });
        }
        litter.push(Litter { what: what.to_owned(), place: refname, stays });
    }
    if !dry {
        let values: Vec<(String, Oid)> =
            refs.into_iter().map(|value| (value.refname, value.commit)).collect();
        repo.delete_refs(&values)?;
    }
    Ok(litter)
}

const SNAPSHOTS: &str = "refs/mainstem/snapshots/";

/// Whether nothing is lost with this ref. Only snapshots hold work; doubt is no proof.
fn is_landed(
    repo: &Repo,
    machine: Option<&Machine>,
    refname: &str,
    commit: &Oid,
) -> Result<bool, GitError> {
    let Some(rest) = refname.strip_prefix(SNAPSHOTS) else { return Ok(true) };
    let task = rest.split('/').next().unwrap_or(rest);
    let Some(machine) = machine else { return Ok(false) };
    if machine.find(task).is_ok_and(|t| machine.tasks().phase(t) == Phase::Landed) {
        return Ok(true);
    }
    match repo.read_ref(&format!("refs/heads/{}", machine.target()))? {
        Some(target) => repo.is_ancestor(commit, &target),
        None => Ok(false),
    }
}

/// The folders: what may be somebody's stays in the trash.
fn remove_folders(session: Session, layout: &Layout) -> Result<(), SessionError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| SessionError::Io { what, source }
    };
    for folder in layout.scratch() {
        files::move_to_trash(&folder, &layout.trash(), Fate::Gone)
            .map_err(failed("cannot remove temporary folders"))?;
    }
    files::empty_trash(&layout.trash()).map_err(failed("cannot empty the trash"))?;
    layout.leave();
    // In one step, so that nobody finds half of it.
    let state = layout.state().to_path_buf();
    let aside = state.with_file_name(format!("mainstem-removed-{}", std::process::id()));
    std::fs::rename(&state, &aside).map_err(failed("cannot remove the state folder"))?;
    drop(session);
    files::remove_all(&aside).map_err(failed("cannot remove the state folder"))
}
