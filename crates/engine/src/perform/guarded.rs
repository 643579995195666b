//! Which changes of an attempt's work only a person may let pass.

use mainstem_core::guard::{Guard, scripts_of};
use mainstem_core::hold::GuardedChange;
use mainstem_core::id::Oid;
use mainstem_host::git::GitError;

use super::Errand;

/// Changes to guarded files between two commits.
pub(super) fn changes(
    errand: &Errand,
    base: &Oid,
    tip: &Oid,
) -> Result<Vec<GuardedChange>, GitError> {
    let (world, repo) = (&errand.world, &errand.world.repo);
    let settings = &world.settings;
    let commands = settings.gates.verify.iter().chain(&errand.task.verify);
    let guard = Guard::new(commands.chain(&settings.workspace.setup), &settings.gates.guard);
    if guard.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for moved in repo.moves(base, tip)? {
        let here = (moved.path.clone(), !matches!(moved.letter, 'A' | 'R' | 'C'));
        let there = moved.old.filter(|_| moved.letter == 'R').map(|old| (old, true));
        for (path, existed) in std::iter::once(here).chain(there) {
            let Some(rule) = guard.rule(&path, existed) else { continue };
            let blob = repo.blob_at(tip, &path)?;
            if rule.scripts_only && same_scripts(errand, base, &path, blob.as_ref())? {
                continue;
            }
            found.push(GuardedChange { path, blob, because: rule.because });
        }
    }
    Ok(found)
}

fn same_scripts(
    errand: &Errand,
    base: &Oid,
    path: &str,
    now: Option<&Oid>,
) -> Result<bool, GitError> {
    let repo = &errand.world.repo;
    let (Some(before), Some(now)) = (repo.blob_at(base, path)?, now) else { return Ok(false) };
    Ok(scripts_of(&repo.read_blob(&before)?) == scripts_of(&repo.read_blob(now)?))
}
