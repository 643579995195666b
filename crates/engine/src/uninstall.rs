//! Removing Mainstem from a repository: workspaces, branches and refs of ours, the state folder. Work that has not
//! landed stays on its refs unless somebody says in so many words that it may go.

use std::path::Path;

use mainstem_core::fact::RefValue;
use mainstem_core::id::{Oid, check_id};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::git::{GitError, Repo};

use crate::instance::{EngineError, EngineInstance};
use crate::maintenance::{self, CleanScope, CleanupItem};
use crate::repo_layout::{RepoLayout, UNSTORED};

/// What to do with work that has not landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnlandedWorkPolicy {
    /// It stays on its refs.
    Kept,
    Discarded,
}

/// Removes everything of ours from the repository; with `dry`, only lists it.
pub fn remove_everything(
    mut session: EngineInstance,
    unlanded: UnlandedWorkPolicy,
    dry: bool,
) -> Result<Vec<CleanupItem>, EngineError> {
    let newest = session.load_newest_run()?;
    if let Some((run, machine)) = &newest
        && machine.tasks().active_tasks().next().is_some()
    {
        return Err(EngineError::Unfinished(run.clone()));
    }
    let mut litter = maintenance::clean_repository(&mut session, &CleanScope::Everything, dry)?;
    // What `clean` leaves for tasks that are not over goes as well.
    litter.retain(|one| one.kept_because.is_none() || !is_own_place(&one.place));
    let (repo, layout) = (session.repo().clone(), session.layout().clone());
    let machine = newest.as_ref().map(|(_, machine)| machine);
    litter.extend(remove_workspaces(&repo, &layout, dry)?);
    let branches = remove_branches(&repo, dry)?;
    litter.extend(branches);
    litter.extend(remove_refs(&repo, machine, unlanded, dry)?);
    litter.push(removed_item("state", layout.state_dir()));
    if !dry {
        remove_folders(session, &layout)?;
    }
    litter.sort_by(|a, b| (&a.place, &a.what).cmp(&(&b.place, &b.what)));
    litter.dedup_by(|a, b| a.place == b.place);
    Ok(litter)
}

fn is_own_place(place: &str) -> bool {
    place.starts_with("refs/heads/mainstem/") || place.starts_with('/')
}

fn removed_item(what: &str, place: &Path) -> CleanupItem {
    CleanupItem { what: what.to_owned(), place: place.display().to_string(), kept_because: None }
}

/// Workspaces, after their files are on a snapshot.
fn remove_workspaces(
    repo: &Repo,
    layout: &RepoLayout,
    dry: bool,
) -> Result<Vec<CleanupItem>, GitError> {
    let root = layout
        .workspace_root()
        .canonicalize()
        .unwrap_or_else(|_| layout.workspace_root().to_path_buf());
    let mut litter = Vec::new();
    for worktree in repo.list_worktrees()? {
        let Ok(rest) = worktree.path.strip_prefix(&root) else { continue };
        let name = rest.to_string_lossy().into_owned();
        let lane = RepoLayout::is_lane_name(&name);
        if !lane && (check_id(&name).is_err() || !repo.is_own_worktree(&worktree.path)?) {
            let stays = Some("not created by Mainstem".to_owned());
            let place = worktree.path.display().to_string();
            litter.push(CleanupItem { what: "worktree".to_owned(), place, kept_because: stays });
            continue;
        }
        litter.push(removed_item("workspace", &worktree.path));
        if dry {
            continue;
        }
        if !lane {
            let branch = worktree.branch.clone().unwrap_or_else(|| format!("mainstem/{name}"));
            repo.import_agent_commits(&worktree.path, &branch, true)?;
            let series = format!("refs/mainstem/snapshots/{name}/0");
            let why = "before everything is removed";
            if let Some(kept) = repo.take_snapshot(&worktree.path, &series, why)? {
                // They stay in the trash, with what else may be somebody's.
                let label = format!("{UNSTORED}{name}-0");
                repo.set_unstored_aside(
                    &worktree.path,
                    &kept.unstored,
                    &layout.trash_dir(),
                    &label,
                )?;
            }
        }
        repo.remove_worktree(&worktree.path, &layout.trash_dir())?;
    }
    Ok(litter)
}

/// Branches of tasks, after what they hold is on a snapshot.
fn remove_branches(repo: &Repo, dry: bool) -> Result<Vec<CleanupItem>, GitError> {
    let in_use: Vec<String> = repo.list_worktrees()?.into_iter().filter_map(|w| w.branch).collect();
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
                repo.keep_ref_tip(&refname, &series, None, "mainstem: kept by clean --everything")?;
            }
            refs.push((refname.clone(), commit));
        }
        litter.push(CleanupItem { what: "branch".to_owned(), place: refname, kept_because: stays });
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
    unlanded: UnlandedWorkPolicy,
    dry: bool,
) -> Result<Vec<CleanupItem>, GitError> {
    let (mut litter, mut refs) = (Vec::<CleanupItem>::new(), Vec::<RefValue>::new());
    for (refname, commit) in repo.list_refs("refs/mainstem/")? {
        let is_kept = unlanded == UnlandedWorkPolicy::Kept
            && !is_landed_ref(repo, machine, &refname, &commit)?;
        let stays = is_kept
            .then(|| "has work that has not landed; remove with --discard-unlanded".to_owned());
        let what = if refname.starts_with(SNAPSHOTS) { "snapshot" } else { "ref" };
        if !is_kept {
            refs.push(RefValue { refname: refname.clone(), commit });
        }
        litter.push(CleanupItem { what: what.to_owned(), place: refname, kept_because: stays });
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
fn is_landed_ref(
    repo: &Repo,
    machine: Option<&Machine>,
    refname: &str,
    commit: &Oid,
) -> Result<bool, GitError> {
    let Some(rest) = refname.strip_prefix(SNAPSHOTS) else { return Ok(true) };
    let task = rest.split('/').next().unwrap_or(rest);
    let Some(machine) = machine else { return Ok(false) };
    if machine.find_task(task).is_ok_and(|t| machine.tasks().phase(t) == Phase::Landed) {
        return Ok(true);
    }
    match repo.read_ref(&format!("refs/heads/{}", machine.target_branch()))? {
        Some(target) => repo.is_ancestor(commit, &target),
        None => Ok(false),
    }
}

/// The folders: what may be somebody's stays in the trash.
fn remove_folders(session: EngineInstance, layout: &RepoLayout) -> Result<(), EngineError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| EngineError::Io { what, source }
    };
    for folder in layout.scratch_dirs() {
        files::move_to_trash(&folder, &layout.trash_dir(), TrashRetention::Deletable)
            .map_err(failed("cannot remove temporary folders"))?;
    }
    files::empty_trash(&layout.trash_dir()).map_err(failed("cannot empty the trash"))?;
    layout.release_root();
    // In one step, so that nobody finds half of it.
    let state = layout.state_dir().to_path_buf();
    let aside = state.with_file_name(format!("mainstem-removed-{}", std::process::id()));
    std::fs::rename(&state, &aside).map_err(failed("cannot remove the state folder"))?;
    drop(session);
    files::remove_all(&aside).map_err(failed("cannot remove the state folder"))
}
