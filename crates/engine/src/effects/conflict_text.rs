//! What an attempt that redoes or resolves a clash is told of it: both sides as patches, and the tasks on
//! the other side. Chooses nothing; what cannot be read is left out, and said.

use mainstem_agents::PromptConflictSides;
use mainstem_core::conflict::TargetConflict;
use mainstem_core::id::{Oid, TaskId};
use mainstem_host::git::GitError;

use super::EffectContext;

/// A landed task that may be on the other side.
#[derive(Debug, Clone)]
pub struct ConflictingLanding {
    pub task: TaskId,
    /// What it was asked to do.
    pub text: String,
    /// Its landing, and the branch's commit before.
    pub landing: (Oid, Oid),
}

/// A clash, and who may be on its other side.
#[derive(Debug, Clone)]
pub struct AttemptConflict {
    pub clash: TargetConflict,
    /// The merge is laid out in the workspace.
    pub laid_out: bool,
    /// Tasks that landed since the work that clashes began.
    pub others: Vec<ConflictingLanding>,
}

/// Both sides as they are from `base`, where the attempt starts; and the tasks whose landing touched the
/// files that clash.
pub fn describe_conflict(
    errand: &EffectContext,
    clashed: &AttemptConflict,
    base: &Oid,
) -> (Option<PromptConflictSides>, Vec<(TaskId, String)>) {
    let sides = match read_conflict_sides(errand, clashed, base) {
        Ok(sides) => Some(sides),
        Err(error) => {
            errand.send_notices(vec![format!(
                "the prompt does not show the conflicting changes: {error}"
            )]);
            Some(PromptConflictSides {
                laid_out: clashed.laid_out,
                ..PromptConflictSides::default()
            })
        }
    };
    let repo = &errand.engine.repo;
    let touches = |other: &&ConflictingLanding| {
        let (commit, old) = &other.landing;
        // Whoever cannot be ruled out is named.
        repo.list_commits_touching(old, commit, &clashed.clash.files)
            .map_or(true, |found| !found.is_empty())
    };
    let others = clashed.others.iter().filter(touches);
    (sides, others.map(|other| (other.task.clone(), other.text.clone())).collect())
}

fn read_conflict_sides(
    errand: &EffectContext,
    clashed: &AttemptConflict,
    landed: &Oid,
) -> Result<PromptConflictSides, GitError> {
    let repo = &errand.engine.repo;
    let TargetConflict { base, tip, files, .. } = &clashed.clash;
    let base = repo.merge_base(landed, tip)?.unwrap_or_else(|| base.clone());
    let commits = repo.list_commits_touching(&base, landed, files)?;
    let line = |(id, subject): &(Oid, String)| {
        format!("{} {subject}", id.as_str().get(..12).unwrap_or_default())
    };
    Ok(PromptConflictSides {
        landed_diff: repo.diff_paths_as_text(&base, landed, files)?,
        work_diff: repo.diff_paths_as_text(&base, tip, files)?,
        commits: commits.iter().map(line).collect(),
        base: base.to_string(),
        landed: landed.to_string(),
        work: tip.to_string(),
        laid_out: clashed.laid_out,
    })
}
