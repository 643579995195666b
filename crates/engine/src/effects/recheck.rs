//! Verifies what landed once more, in a clean checkout without build caches. Where that fails, no cache and no
//! verdict that was made with one is used again.

use std::sync::atomic::Ordering;

use mainstem_core::fact::{GateScope, GateVerdict};
use mainstem_core::id::{Oid, TaskId};
use mainstem_core::machine::{GateResult, Input};
use mainstem_core::plan::Task;
use mainstem_host::files;

use super::{EffectContext, gates};
use crate::repo_layout::RepoLayout;

/// In whose name the gates run: the records of the task that landed stay as they are.
pub const RECHECK_TASK: &str = "_recheck";

/// Verifies the commit and tells the verdicts.
pub fn recheck_target(errand: &EffectContext, (commit, tree): (&Oid, &Oid), lane: u32) {
    let layout = &errand.engine.layout;
    let apart = EffectContext {
        task: Task { id: TaskId::new(RECHECK_TASK), ..Task::empty() },
        ..errand.clone()
    };
    let words = |error: std::io::Error| error.to_string();
    let verdicts = gates::forget_lane_caches(layout, lane)
        .map_err(words)
        .and_then(|()| gates::verify_commit(&apart, (commit, tree), lane, GateScope::Base));
    if errand.cancel.load(Ordering::Relaxed) {
        return;
    }
    let failed = |gates: &Vec<GateResult>| gates.iter().any(|g| g.verdict == GateVerdict::Failed);
    let verdicts = match verdicts {
        // Before it is told: whoever dies in between verifies it again.
        Ok(gates) if failed(&gates) => invalidate_caches(layout).map(|()| gates).map_err(words),
        other => other,
    };
    errand.send_input(Input::TargetRechecked { commit: commit.clone(), gates: verdicts });
}

fn invalidate_caches(layout: &RepoLayout) -> std::io::Result<()> {
    files::remove_all(&layout.verified_targets_path())?;
    gates::invalidate_lane_caches(layout)
}
