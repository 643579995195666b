//! Verifies what landed once more, in a clean checkout without build caches. Where that fails, no cache and no
//! verdict that was made with one is used again.

use std::sync::atomic::Ordering;

use mainstem_core::fact::{GateScope, Verdict};
use mainstem_core::id::{Oid, TaskId};
use mainstem_core::machine::{GateResult, Input};
use mainstem_core::plan::Task;
use mainstem_host::files;

use super::{Errand, gates};
use crate::paths::Layout;

/// In whose name the gates run: the records of the task that landed stay as they are.
const TASK: &str = "_recheck";

/// Verifies the commit and tells the verdicts.
pub fn verify(errand: &Errand, (commit, tree): (&Oid, &Oid), lane: u32) {
    let layout = &errand.world.layout;
    let apart = Errand { task: Task { id: TaskId::new(TASK), ..Task::empty() }, ..errand.clone() };
    let words = |error: std::io::Error| error.to_string();
    let verdicts = gates::forget_caches_of(layout, lane)
        .map_err(words)
        .and_then(|()| gates::verify_commit(&apart, (commit, tree), lane, GateScope::Base));
    if errand.cancel.load(Ordering::Relaxed) {
        return;
    }
    let failed = |gates: &Vec<GateResult>| gates.iter().any(|g| g.verdict == Verdict::Failed);
    let verdicts = match verdicts {
        // Before it is told: whoever dies in between verifies it again.
        Ok(gates) if failed(&gates) => distrust_caches(layout).map(|()| gates).map_err(words),
        other => other,
    };
    errand.tell(Input::TargetRechecked { commit: commit.clone(), gates: verdicts });
}

fn distrust_caches(layout: &Layout) -> std::io::Result<()> {
    files::remove_all(&layout.verified_targets())?;
    gates::distrust_caches(layout)
}
