//! What an attempt that redoes or resolves a clash is told of it: both sides as patches, and the tasks on
//! the other side. Chooses nothing; what cannot be read is left out, and said.

use mainstem_agents::Sides;
use mainstem_core::clash::Clash;
use mainstem_core::id::{Oid, TaskId};
use mainstem_host::git::GitError;

use super::Errand;

/// A landed task that may be on the other side.
#[derive(Debug, Clone)]
pub struct Other {
    /// Which.
    pub task: TaskId,
    /// What it was asked to do.
    pub text: String,
    /// Its landing, and the branch's commit before.
    pub landing: (Oid, Oid),
}

/// A clash, and who may be on its other side.
#[derive(Debug, Clone)]
pub struct Clashed {
    /// The clash.
    pub clash: Clash,
    /// The merge is laid out in the workspace.
    pub laid_out: bool,
    /// Tasks that landed since the work that clashes began.
    pub others: Vec<Other>,
}

/// Both sides as they are from `base`, where the attempt starts; and the tasks whose landing touched the
/// files that clash.
pub fn told(
    errand: &Errand,
    clashed: &Clashed,
    base: &Oid,
) -> (Option<Sides>, Vec<(TaskId, String)>) {
    let sides = match sides(errand, clashed, base) {
        Ok(sides) => Some(sides),
        Err(error) => {
            errand.tell_notes(vec![format!(
                "the prompt does not show the conflicting changes: {error}"
            )]);
            Some(Sides { laid_out: clashed.laid_out, ..Sides::default() })
        }
    };
    let repo = &errand.world.repo;
    let touches = |other: &&Other| {
        let (commit, old) = &other.landing;
        // Whoever cannot be ruled out is named.
        repo.commits_in(old, commit, &clashed.clash.files).map_or(true, |found| !found.is_empty())
    };
    let others = clashed.others.iter().filter(touches);
    (sides, others.map(|other| (other.task.clone(), other.text.clone())).collect())
}

fn sides(errand: &Errand, clashed: &Clashed, landed: &Oid) -> Result<Sides, GitError> {
    let repo = &errand.world.repo;
    let Clash { base, tip, files, .. } = &clashed.clash;
    let base = repo.merge_base(landed, tip)?.unwrap_or_else(|| base.clone());
    let commits = repo.commits_in(&base, landed, files)?;
    let line = |(id, subject): &(Oid, String)| {
        format!("{} {subject}", id.as_str().get(..12).unwrap_or_default())
    };
    Ok(Sides {
        landed_diff: repo.diff_in(&base, landed, files)?,
        work_diff: repo.diff_in(&base, tip, files)?,
        commits: commits.iter().map(line).collect(),
        base: base.to_string(),
        landed: landed.to_string(),
        work: tip.to_string(),
        laid_out: clashed.laid_out,
    })
}
