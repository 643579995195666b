//! What is done when a life of the engine is over: jobs that nobody waits for end, lanes that nobody uses go, and the
//! attempts of this life teach later ones.

use std::path::Path;

use mainstem_core::config::Settings;
use mainstem_core::id::{RunId, TaskId};
use mainstem_core::machine::Machine;
use mainstem_host::files::{self, TrashRetention};
use mainstem_host::git::Repo;
use mainstem_host::port_leases;

use crate::effects::jobs;
use crate::effects::recheck::RECHECK_TASK;
use crate::lessons::LessonStore;
use crate::repo_layout::RepoLayout;
use crate::run_journal;
use crate::snapshot_pruning;
use crate::trash::TrashEmptier;

/// A gate of a life that was killed may still run, though nobody wants its verdict now: the engine was
/// interrupted before it asked for it again, or its task was called off. Attempts whose workspace is
/// gone had their jobs ended with it.
pub(super) fn end_leftover_jobs(layout: &RepoLayout, run: &RunId, machine: &Machine) {
    for t in machine.tasks().all_tasks() {
        if let Some(current) = machine.tasks().get(t).current.as_ref().filter(|a| !a.removed) {
            // What cannot be ended now ends by itself, or with its workspace.
            let id = &machine.plan().tasks[t.index()].id;
            let _ = jobs::end_task_jobs(layout, run, id, current.n);
        }
    }
    // The target branch was verified again when the engine was killed, and nobody wants to know now.
    let _ = jobs::end_task_jobs(layout, run, &TaskId::new(RECHECK_TASK), 0);
    remove_scratch_dirs(layout);
    // Leases that outlive their jobs are harmless: whoever needs a port takes them.
    let _ = port_leases::release_ended_jobs(&port_leases::lease_folder());
}

/// Learns from the attempts of this life. If not now, then before the next attempt starts.
pub(super) fn learn_lessons(repo: &Repo, layout: &RepoLayout, settings: &Settings, target: &str) {
    if settings.lessons.learn
        && let Ok(Some(reader)) = run_journal::open_journal_reader(&*layout.run_store())
    {
        let _ = LessonStore::new(repo, layout, settings).learn_from_journal(&*reader, repo, target);
    }
}

/// Removes old snapshots, and what killed commands left in the object store.
pub(super) fn sweep_repository(
    repo: &Repo,
    layout: &RepoLayout,
    epoch: u64,
    newest: (&RunId, &Machine),
) {
    // What landed in this life may be due already. If not now, then at the next start.
    let _ = snapshot_pruning::prune_at_rest(repo, layout, epoch, newest);
    // An agent that was killed in a commit may have left it; so may one of the user's.
    let _ = repo.sweep_packed_refs_lock();
}

/// Lanes of the train keep what was built there for the next run. Those that the settings have no use for go, and
/// so do those of reviewers, in which nothing is built, and all temporary folders of lanes.
pub(super) fn remove_unused_lanes(repo: &Repo, layout: &RepoLayout, lanes: u32) {
    for lane in layout.list_lane_workspaces() {
        let number = layout.lane_of_workspace(&lane);
        if let Some(number) = number {
            for scratch in [layout.lane_tmp(number), layout.lane_caches(number)] {
                let _ =
                    files::move_to_trash(&scratch, &layout.trash_dir(), TrashRetention::Deletable);
            }
        }
        if number.is_none_or(|number| number > lanes.max(1)) {
            // What cannot be removed now is named by `mainstem clean`.
            let _ = repo.remove_worktree(&lane, &layout.trash_dir());
        }
    }
}

/// Temporary folders and caches of attempts go when nobody works any more, also those of tasks whose workspace is
/// kept: whoever enters a kept workspace gets new ones.
fn remove_scratch_dirs(layout: &RepoLayout) {
    for scratch in layout.scratch_dirs() {
        let _ = files::move_to_trash(&scratch, &layout.trash_dir(), TrashRetention::Deletable);
    }
}

/// The end of a look that no run follows.
pub(super) fn clean_after_check(repo: &Repo, layout: &RepoLayout, (exe, lanes): (&Path, u32)) {
    remove_unused_lanes(repo, layout, lanes);
    TrashEmptier::start(layout.trash_dir()).hand_over_to_process(exe, layout);
}
