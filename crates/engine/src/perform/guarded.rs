//! Which changes of an attempt's work only a person may let pass.

use mainstem_core::config::LandMode;
use mainstem_core::guard::{Guard, scripts_of};
use mainstem_core::hold::GuardedChange;
use mainstem_core::id::Oid;
use mainstem_host::git::GitError;

use super::Errand;
use crate::accepted;

/// Why a change to settings is guarded where we merge it ourselves.
const DECIDES: &str = "it decides about later runs";

/// Changes to guarded files between two commits.
pub(super) fn changes(
    errand: &Errand,
    base: &Oid,
    tip: &Oid,
) -> Result<Vec<GuardedChange>, GitError> {
    let (world, repo) = (&errand.world, &errand.world.repo);
    let settings = &world.settings;
    let commands = settings.gates.verify.iter().chain(&errand.task.verify);
    let mut guard = Guard::new(commands.chain(&settings.workspace.setup), &settings.gates.guard);
    // A script that is a link, or lies in a folder that is one, is guarded where it really is.
    for (path, followed) in repo.followed(base, &guard.named_files())? {
        for really in followed.links.into_iter().chain(followed.end) {
            guard.also(&path, really);
        }
    }
    let moves = repo.moves(base, tip)?;
    let mut found = Vec::new();
    if merged_by_us(errand) {
        for path in accepted::watched_among(settings, moves.clone()) {
            let (blob, because) = (repo.blob_at(tip, &path)?, DECIDES.to_owned());
            found.push(GuardedChange { path, blob, because });
        }
    }
    if guard.is_empty() {
        return Ok(found);
    }
    for moved in moves {
        let here = (moved.path.clone(), !matches!(moved.letter, 'A' | 'R' | 'C'));
        let there = moved.old.filter(|_| moved.letter == 'R').map(|old| (old, true));
        for (path, existed) in std::iter::once(here).chain(there) {
            let known = found.iter().any(|change| change.path == path);
            let Some(rule) = guard.rule(&path, existed).filter(|_| !known) else { continue };
            let blob = repo.blob_at(tip, &path)?;
            if rule.scripts_only && same_scripts(errand, base, &path, blob.as_ref())? {
                continue;
            }
            found.push(GuardedChange { path, blob, because: rule.because });
        }
    }
    Ok(found)
}

/// Whether the work lands by a pull request that nobody but us merges. There no landing of ours keeps what it
/// makes of settings from being in force, and no person has looked at it.
fn merged_by_us(errand: &Errand) -> bool {
    let land = &errand.world.settings.land;
    let by_pull = match land.mode {
        LandMode::Pr => true,
        LandMode::PhasePr => errand.task.closes.is_some(),
        LandMode::Local | LandMode::None => false,
    };
    by_pull && land.pulls.auto_merge
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
