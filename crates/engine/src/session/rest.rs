//! What is done when a life of the engine is over: jobs that nobody waits for end, lanes that nobody uses go, and the
//! attempts of this life teach later ones.

use std::path::Path;

use mainstem_core::config::Settings;
use mainstem_core::id::RunId;
use mainstem_core::machine::Machine;
use mainstem_host::files::{self, Fate};
use mainstem_host::git::Repo;
use mainstem_host::ports;

use crate::ledger;
use crate::lessons::Shelf;
use crate::paths::Layout;
use crate::prune;
use crate::trash::Emptier;

/// A gate of a life that was killed may still run, though nobody wants its verdict now: the engine was
/// interrupted before it asked for it again, or its task was called off. Attempts whose workspace is
/// gone had their jobs ended with it.
pub(super) fn end_leftover_jobs(layout: &Layout, run: &RunId, machine: &Machine) {
    for t in machine.tasks().all() {
        if let Some(current) = machine.tasks().get(t).current.as_ref().filter(|a| !a.removed) {
            // What cannot be ended now ends by itself, or with its workspace.
            let id = &machine.plan().tasks[t.ix()].id;
            let _ = crate::perform::jobs::end_all(layout, run, id, current.n);
        }
    }
    drop_scratch(layout);
    // Leases that outlive their jobs are harmless: whoever needs a port takes them.
    let _ = ports::release_ended(&ports::folder());
}

/// Learns from the attempts of this life. If not now, then before the next attempt starts.
pub(super) fn learn(repo: &Repo, layout: &Layout, settings: &Settings, target: &str) {
    if settings.lessons.learn
        && let Ok(Some(reader)) = ledger::open_reader(&layout.journal())
    {
        let _ = Shelf::new(repo, layout, settings).catch_up(&reader, repo, target);
    }
}

/// Removes old snapshots, and what killed commands left in the object store.
pub(super) fn sweep(repo: &Repo, layout: &Layout, epoch: u64, newest: (&RunId, &Machine)) {
    // What landed in this life may be due already. If not now, then at the next start.
    let _ = prune::at_rest(repo, layout, epoch, newest);
    // An agent that was killed in a commit may have left it; so may one of the user's.
    let _ = repo.sweep_packed();
}

/// Lanes of the train keep what was built there for the next run. Those that the settings have no use for go, and
/// so do those of reviewers, in which nothing is built, and all temporary folders of lanes.
pub(super) fn drop_lanes(repo: &Repo, layout: &Layout, lanes: u32) {
    for lane in layout.lanes() {
        let number = layout.lane_at(&lane);
        if let Some(number) = number {
            for scratch in [layout.lane_tmp(number), layout.lane_caches(number)] {
                let _ = files::move_to_trash(&scratch, &layout.trash(), Fate::Gone);
            }
        }
        if number.is_none_or(|number| number > lanes.max(1)) {
            // What cannot be removed now is named by `mainstem clean`.
            let _ = repo.remove_worktree(&lane, &layout.trash());
        }
    }
}

/// Temporary folders and caches of attempts go when nobody works any more, also those of tasks whose workspace is
/// kept: whoever enters a kept workspace gets new ones.
fn drop_scratch(layout: &Layout) {
    for scratch in layout.scratch() {
        let _ = files::move_to_trash(&scratch, &layout.trash(), Fate::Gone);
    }
}

/// The end of a look that no run follows.
pub(super) fn tidy_up(repo: &Repo, layout: &Layout, (exe, lanes): (&Path, u32)) {
    drop_lanes(repo, layout, lanes);
    Emptier::start(layout.trash()).hand_over(exe, layout);
}
