//! Lists the snapshots of tasks by their refs.

use std::collections::BTreeMap;

use mainstem_core::id::Oid;
use mainstem_host::git::{GitError, Repo};

/// A snapshot of a task's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRef {
    pub refname: String,
    pub attempt: u32,
    /// Which one of that attempt.
    pub number: u32,
    pub commit: Oid,
}

/// All snapshots of a task, oldest first.
pub fn list_task_snapshots(repo: &Repo, task: &str) -> Result<Vec<SnapshotRef>, GitError> {
    let prefix = format!("refs/mainstem/snapshots/{task}/");
    let mut kept: Vec<SnapshotRef> = repo
        .list_refs(&prefix)?
        .into_iter()
        .filter_map(|(refname, commit)| {
            let (attempt, number) = refname.strip_prefix(&prefix)?.split_once('/')?;
            let (attempt, number) = (attempt.parse().ok()?, number.parse().ok()?);
            Some(SnapshotRef { refname, attempt, number, commit })
        })
        .collect();
    kept.sort_by_key(|kept| (kept.attempt, kept.number));
    Ok(kept)
}

/// All snapshots of all tasks, each task's oldest first.
pub fn list_all_snapshots(repo: &Repo) -> Result<BTreeMap<String, Vec<SnapshotRef>>, GitError> {
    let prefix = "refs/mainstem/snapshots/";
    let mut all: BTreeMap<String, Vec<SnapshotRef>> = BTreeMap::new();
    for (refname, commit) in repo.list_refs(prefix)? {
        let parts: Vec<&str> = refname.trim_start_matches(prefix).split('/').collect();
        let [task, attempt, number] = parts.as_slice() else { continue };
        let (Ok(attempt), Ok(number)) = (attempt.parse(), number.parse()) else { continue };
        let task = (*task).to_owned();
        all.entry(task).or_default().push(SnapshotRef { refname, attempt, number, commit });
    }
    for kept in all.values_mut() {
        kept.sort_by_key(|kept| (kept.attempt, kept.number));
    }
    Ok(all)
}
