//! Whether the state folder fits the repository: journals are moved, restored from backups and copied, and
//! branches are set back. What does not fit is said before anything is done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use mainstem_core::id::{Oid, RunId, TaskId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_host::git::{GitError, Repo};
use mainstem_host::process::{self, JobState};

use crate::repo_layout::RepoLayout;

/// Where the branches of remotes are kept that landings are pushed to.
const UPSTREAM: &str = "refs/mainstem/upstream/";

/// A landing that is on record and not on the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLanding {
    pub task: TaskId,
    pub commit: Oid,
}

/// An agent that works for a run of which the journal knows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAgent {
    pub run: String,
    pub task: String,
    /// Its process, if that is known.
    pub pid: Option<u32>,
}

/// Landings of this run by task, as the journal has them; those of the forge have commits of its own.
fn list_journaled_landings(machine: &Machine) -> Vec<(TaskIx, Oid)> {
    let tasks = machine.tasks();
    let landed = |t: TaskIx| {
        let landing = tasks.get(t).landed.as_ref().filter(|landing| !landing.empty)?;
        (!machine.lands_on_forge(t)).then(|| (t, landing.commit.clone()))
    };
    tasks.all_tasks().filter_map(landed).collect()
}

/// Whether the journal tells of another repository: work has landed, and not one of its commits is here.
pub fn belongs_to_another_repository(repo: &Repo, machine: &Machine) -> Result<bool, GitError> {
    let landings = list_journaled_landings(machine);
    for (_, commit) in &landings {
        if repo.has_object(commit)? {
            return Ok(false);
        }
    }
    Ok(!landings.is_empty())
}

/// Landings that the target branch does not have any more, neither as they were nor rewritten. Where they are
/// pushed, they may be on the remote's branch only; where they go through a forge, its branch is not ours to judge.
pub fn find_lost_landings(
    repo: &Repo,
    run: &RunId,
    machine: &Machine,
) -> Result<Vec<LostLanding>, GitError> {
    let settings = machine.settings();
    if settings.land.mode.lands_on_forge() {
        return Ok(Vec::new());
    }
    let landings = list_journaled_landings(machine);
    let target = machine.target_branch();
    let tip = repo.read_ref(&format!("refs/heads/{target}"))?;
    let (Some(tip), false) = (tip, landings.is_empty()) else { return Ok(Vec::new()) };
    let commits: Vec<Oid> = landings.iter().map(|(_, commit)| commit.clone()).collect();
    let mut missing = repo.commits_not_in(&commits, &tip)?;
    if settings.land.push.is_some() {
        for (_, pushed) in repo.list_refs(UPSTREAM)? {
            let unpushed = repo.commits_not_in(&commits, &pushed)?;
            missing.retain(|commit| unpushed.contains(commit));
        }
    }
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let rewritten = list_landed_tasks(repo, run, &tip)?;
    let lost = landings.into_iter().filter(|(_, commit)| missing.contains(commit));
    let lost = lost.map(|(t, commit)| (machine.plan().tasks[t.index()].id.clone(), commit));
    let lost = lost.filter(|(task, _)| !rewritten.contains(task.as_str()));
    Ok(lost.map(|(task, commit)| LostLanding { task, commit }).collect())
}

/// Tasks of a run whose landings are on the first-parent line of a commit.
fn list_landed_tasks(repo: &Repo, run: &RunId, tip: &Oid) -> Result<BTreeSet<String>, GitError> {
    let mut tasks = BTreeSet::new();
    for landing in repo.list_landings(tip, None)? {
        let of_run =
            |(key, value): &(String, String)| key == "Mainstem-Run" && value == run.as_str();
        if landing.trailers.iter().any(of_run) {
            let named = landing.trailers.into_iter().filter(|(key, _)| key == "Mainstem-Task");
            tasks.extend(named.map(|(_, task)| task));
        }
    }
    Ok(tasks)
}

/// Tasks that the target branch has and the journal does not: it is an older copy, or lost its end.
pub fn find_unjournaled_landings(
    repo: &Repo,
    run: &RunId,
    machine: &Machine,
) -> Result<BTreeSet<TaskId>, GitError> {
    let target = format!("refs/heads/{}", machine.target_branch());
    let (Some(tip), Some(base)) = (repo.read_ref(&target)?, machine.run_base()) else {
        return Ok(BTreeSet::new());
    };
    if tip == *base {
        return Ok(BTreeSet::new());
    }
    let there = list_landed_tasks(repo, run, &tip)?;
    let unknown = |t: &TaskIx| machine.tasks().get(*t).landed.is_none();
    let tasks = machine.tasks().all_tasks().filter(unknown);
    let tasks = tasks.map(|t| machine.plan().tasks[t.index()].id.clone());
    Ok(tasks.filter(|id| there.contains(id.as_str())).collect())
}

/// Agents that still work for runs that the journal does not have: it was moved away or replaced while they
/// worked. Whoever starts another agent in their workspace would mix up the work of both.
pub fn find_unknown_agents(
    layout: &RepoLayout,
    known: &BTreeSet<String>,
) -> io::Result<Vec<UnknownAgent>> {
    let mut found = Vec::new();
    for (run, run_dir) in list_folders(&layout.state_dir().join("runs"))? {
        if known.contains(&run) {
            continue;
        }
        for (task, task_dir) in list_folders(&run_dir)? {
            for (_, attempt) in list_folders(&task_dir)? {
                let job = attempt.join("agent");
                if job.exists()
                    && let JobState::Alive(pids) = process::read_job_state(&job)?
                {
                    let (run, task, pid) = (run.clone(), task.clone(), pids.agent_pid);
                    found.push(UnknownAgent { run, task, pid });
                }
            }
        }
    }
    Ok(found)
}

fn list_folders(place: &Path) -> io::Result<BTreeMap<String, std::path::PathBuf>> {
    let entries = match std::fs::read_dir(place) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error),
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.insert(entry.file_name().to_string_lossy().into_owned(), entry.path());
        }
    }
    Ok(found)
}
