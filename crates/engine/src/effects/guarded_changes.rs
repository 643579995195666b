//! Which changes of an attempt's work only a person may let pass.

use mainstem_core::config::LandMode;
use mainstem_core::guard::{GuardRules, package_scripts};
use mainstem_core::hold::GuardedChange;
use mainstem_core::id::Oid;
use mainstem_host::git::GitError;

use super::EffectContext;
use crate::accepted_files;

/// Why a change to settings is guarded where we merge it ourselves.
const DECIDES: &str = "it decides about later runs";

/// Changes to guarded files between two commits.
pub(super) fn find_guarded_changes(
    errand: &EffectContext,
    base: &Oid,
    tip: &Oid,
) -> Result<Vec<GuardedChange>, GitError> {
    let (world, repo) = (&errand.engine, &errand.engine.repo);
    let settings = &world.settings;
    let commands = settings.gates.verify.iter().chain(&errand.task.verify);
    let mut guard =
        GuardRules::new(commands.chain(&settings.workspace.setup), &settings.gates.guard);
    // A script that is a link, or lies in a folder that is one, is guarded where it really is.
    for (path, followed) in repo.followed(base, &guard.named_files())? {
        for really in followed.links.into_iter().chain(followed.end) {
            guard.also(&path, really);
        }
    }
    let moves = repo.list_file_status_changes(base, tip)?;
    let mut found = Vec::new();
    if merged_by_us(errand) {
        for path in accepted_files::watched_among(settings, moves.clone()) {
            let (blob, because) = (repo.blob_id_at(tip, &path)?, DECIDES.to_owned());
            found.push(GuardedChange { path, blob, because });
        }
    }
    if guard.is_empty() {
        return Ok(found);
    }
    for moved in moves {
        let here = (moved.path.clone(), !matches!(moved.status, 'A' | 'R' | 'C'));
        let there = moved.old_path.filter(|_| moved.status == 'R').map(|old| (old, true));
        for (path, existed) in std::iter::once(here).chain(there) {
            let known = found.iter().any(|change| change.path == path);
            let Some(rule) = guard.guard_reason(&path, existed).filter(|_| !known) else {
                continue;
            };
            let blob = repo.blob_id_at(tip, &path)?;
            if rule.scripts_only && has_same_scripts(errand, base, &path, blob.as_ref())? {
                continue;
            }
            found.push(GuardedChange { path, blob, because: rule.because });
        }
    }
    Ok(found)
}

/// Whether the work lands by a pull request that nobody but us merges. There no landing of ours keeps what it
/// makes of settings from being in force, and no person has looked at it.
fn merged_by_us(errand: &EffectContext) -> bool {
    let land = &errand.engine.settings.land;
    let by_pull = match land.mode {
        LandMode::Pr => true,
        LandMode::PhasePr => errand.task.closes.is_some(),
        LandMode::Local | LandMode::None => false,
    };
    by_pull && land.pulls.auto_merge
}

fn has_same_scripts(
    errand: &EffectContext,
    base: &Oid,
    path: &str,
    now: Option<&Oid>,
) -> Result<bool, GitError> {
    let repo = &errand.engine.repo;
    let (Some(before), Some(now)) = (repo.blob_id_at(base, path)?, now) else { return Ok(false) };
    Ok(package_scripts(&repo.read_blob(&before)?) == package_scripts(&repo.read_blob(now)?))
}
