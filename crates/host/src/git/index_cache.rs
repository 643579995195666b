//! Indexes of our own that stay between the snapshots of a worktree, so that what did not change is
//! not read again.
//!
//! They live as long as this process: after a crash or power loss nothing of them is believed. A bad
//! one is thrown away and the worktree is read from scratch.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mainstem_core::id::Oid;

use super::Repo;
use super::distrusted_filters::FileStamp;
use super::error::{GitError, IoErrorContext, Result};
use super::indexed_worktree::{IndexedWorktree, StagingReport};
use super::snapshot::LastSnapshot;
use super::staging::{PrivateIndex, StagedTree};

/// Bytes read for a snapshot in passing. At some 40 MB/s of compressing, this is below a second.
pub(super) const QUICK_SNAPSHOT_BYTES: u64 = 32 << 20;
/// Files left out by name; git compares every file with every one of them.
const LEFT_MAX: usize = 100;

/// How much a snapshot may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotScope {
    /// Everything is in it.
    Whole,
    /// Small files first, as far as [`QUICK_SNAPSHOT_BYTES`] go; the rest is named.
    Quick,
}

/// What was there at the last snapshot of one worktree.
#[derive(Debug, Default)]
pub(super) struct CachedIndex {
    index: Option<PrivateIndex>,
    /// The worktree's own index when ours was copied from it.
    worktree_stamp: Option<FileStamp>,
    /// Ours, as we left it.
    cache_stamp: Option<FileStamp>,
    tree: Option<Oid>,
    nested: Vec<String>,
    /// The newest snapshot and what it was made of.
    pub(super) last_snapshot: Option<LastSnapshot>,
}

/// One [`CachedIndex`] per worktree, by its admin folder.
#[derive(Debug, Default)]
pub(super) struct WorktreeIndexCache(Mutex<HashMap<PathBuf, Arc<Mutex<CachedIndex>>>>);

impl WorktreeIndexCache {
    pub(super) fn get_or_create(&self, admin: &Path) -> Arc<Mutex<CachedIndex>> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shelf.entry(admin.to_path_buf()).or_default())
    }

    pub(super) fn forget(&self, admin: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(admin);
    }
}

impl Repo {
    /// Like [`Repo::stage_worktree`], with what the last snapshot knew.
    pub(super) fn stage_with_cache(
        &self,
        worktree: &Path,
        admin: &Path,
        reach: SnapshotScope,
        warm: &mut CachedIndex,
    ) -> Result<StagedTree> {
        match self.stage_over_cached_index(worktree, admin, reach, warm) {
            Ok(staged) => Ok(staged),
            Err(error) => {
                *warm = CachedIndex::default();
                match error {
                    // The slow one has git read the files, which is safe only when nobody works there.
                    error if reach == SnapshotScope::Quick => Err(error),
                    // Whatever stands in the way of the quick look, the slow one may get through.
                    GitError::Failed { code: Some(_), .. } | GitError::BadOutput { .. } => {
                        self.stage_worktree(worktree)
                    }
                    error => Err(error),
                }
            }
        }
    }

    fn stage_over_cached_index(
        &self,
        worktree: &Path,
        admin: &Path,
        reach: SnapshotScope,
        warm: &mut CachedIndex,
    ) -> Result<StagedTree> {
        let filters = self.distrusted_filters(admin)?;
        let index = self.prepare_cached_index(worktree, admin, reach, warm)?;
        let indexed = IndexedWorktree {
            repo: self,
            git_dir: admin,
            worktree,
            index: &index,
            filter_overrides: &filters.overrides,
        };
        let seen = indexed.read_status()?;
        let mut notes = filters.notes;
        let mut unstored = seen.unreadable;
        let large = self.select_oversized_files(worktree, &seen.changed);
        let mut news = seen.changed;
        news.retain(|file| large.iter().all(|large| large.path != *file));
        let passed = match reach {
            SnapshotScope::Whole => Vec::new(),
            SnapshotScope::Quick => select_files_over_budget(worktree, &news),
        };
        news.retain(|file| !passed.contains(file));
        let left: Vec<PathBuf> =
            large.iter().map(|large| large.path.clone()).chain(passed.iter().cloned()).collect();
        unstored.extend(large);
        if !news.is_empty() || !seen.nested.is_empty() {
            let taken = stage_changed_files(&indexed, reach, &seen.nested, news, &left)?;
            for file in taken.unstored {
                if unstored.iter().all(|known| known.path != file.path) {
                    unstored.push(file);
                }
            }
            let (lasting, passing) = taken
                .notes
                .into_iter()
                .partition(|note: &String| note.contains("repository of its own"));
            warm.nested.extend::<Vec<_>>(lasting);
            notes.extend::<Vec<_>>(passing);
            warm.tree = None;
        }
        let tree = match &warm.tree {
            Some(tree) => tree.clone(),
            None => indexed.write_tree()?,
        };
        warm.tree = Some(tree.clone());
        warm.cache_stamp = FileStamp::of_file(&index);
        notes.extend(warm.nested.iter().cloned());
        for place in passed {
            notes.push(format!(
                "{} is large and not in this snapshot; the snapshot at the end of the attempt includes large files",
                place.display()
            ));
        }
        Ok(StagedTree { tree, head: seen.head, index: None, distrusted: false, notes, unstored })
    }

    /// An index to begin with: the last one, or a copy of the worktree's own. That one tells which
    /// ignored files the agent added by force, so a change to it starts ours anew.
    fn prepare_cached_index(
        &self,
        worktree: &Path,
        admin: &Path,
        reach: SnapshotScope,
        warm: &mut CachedIndex,
    ) -> Result<PathBuf> {
        if let Some(index) = &warm.index {
            let index = index.0.clone();
            let lock = index.with_added_extension("lock");
            // Only we use it, one at a time: a lock is what a killed git left.
            crate::files::remove_all(&lock).with_path("remove", &lock)?;
            // What is outside a sparse checkout and was there once would look deleted.
            let unchanged = warm.cache_stamp.is_some()
                && !has_sparse_checkout(admin)
                && FileStamp::of_file(&index) == warm.cache_stamp
                && FileStamp::of_file(&admin.join("index")) == warm.worktree_stamp;
            if unchanged
                && (reach == SnapshotScope::Quick
                    || !self.index_hides_changes(admin, worktree, Some(&index))?)
            {
                return Ok(index);
            }
        }
        let last = warm.last_snapshot.take();
        *warm = CachedIndex { last_snapshot: last, ..CachedIndex::default() };
        self.create_temp_dir()?;
        let index = PrivateIndex(self.temp_path("index"));
        let path = index.0.clone();
        warm.worktree_stamp = self.seed_index(admin, worktree, &path)?.source;
        warm.index = Some(index);
        Ok(path)
    }
}

fn has_sparse_checkout(admin: &Path) -> bool {
    admin.join("info/sparse-checkout").exists()
}

/// Puts the changed files into the index. A quick snapshot reads them itself, because git must not
/// open files of a worktree while an agent works there.
fn stage_changed_files(
    indexed: &IndexedWorktree<'_>,
    scope: SnapshotScope,
    nested: &[PathBuf],
    mut changed: Vec<PathBuf>,
    left_out: &[PathBuf],
) -> Result<StagingReport> {
    let mut report = StagingReport::default();
    let sparse = has_sparse_checkout(indexed.git_dir);
    if scope == SnapshotScope::Quick {
        for place in nested {
            let files = indexed.list_nested_repo_files(place)?;
            let large = select_files_over_budget(indexed.worktree, &files);
            changed.extend(files.into_iter().filter(|file| !large.contains(file)));
        }
        indexed.take_in_passing(&changed, !sparse)?;
        return Ok(report);
    }
    // Files that are given by name need not be searched for by git a second time.
    let by_name = nested.is_empty() && !sparse;
    if !(by_name && indexed.update_index(&changed).is_ok()) {
        indexed.add_all(nested, left_out, &mut report)?;
    }
    Ok(report)
}

/// The largest of the changed files, so many that the rest can be read in passing.
fn select_files_over_budget(worktree: &Path, changed: &[PathBuf]) -> Vec<PathBuf> {
    let size = |file: &PathBuf| {
        let meta = fs::symlink_metadata(worktree.join(file)).ok()?;
        Some((meta.len(), file.clone()))
    };
    let mut sized: Vec<(u64, PathBuf)> = changed.iter().filter_map(size).collect();
    sized.sort();
    let mut sum = 0;
    let fits = sized.iter().take_while(|(size, _)| {
        sum += size;
        sum <= QUICK_SNAPSHOT_BYTES
    });
    let fits = fits.count().max(sized.len().saturating_sub(LEFT_MAX));
    sized.split_off(fits).into_iter().map(|(_, file)| file).collect()
}
