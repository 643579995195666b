//! Keeps the state of a worktree under a ref, so that nothing an agent did can get lost.

use std::path::Path;

use mainstem_core::id::Oid;

use super::error::{GitError, IoErrorContext, Result};
use super::index_cache::SnapshotScope;
use super::refs::now_ms;
use super::staging::StagedTree;
use super::unstored_files::UnstoredFile;
use super::worktree_ownership::{is_real_folder, resolve_parent_links};
use super::{GitIdentity, RefUpdateOutcome, Repo};

/// The state of a worktree, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeSnapshot {
    /// The ref that keeps it.
    pub refname: String,
    /// The commit; its parent is the worktree's HEAD. If nothing was uncommitted, HEAD itself.
    pub commit: Oid,
    /// All files, tracked and untracked, without the ignored ones.
    pub tree: Oid,
    /// Its place in the series of this prefix.
    pub number: u32,
    /// What people should know of it, one sentence each.
    pub notes: Vec<String>,
    /// Files that are not in it, because git could not take them.
    pub unstored: Vec<UnstoredFile>,
    /// Whether it was put there now; otherwise nothing has changed since.
    pub is_new: bool,
}

/// The newest snapshot of a worktree and what it was made of.
#[derive(Debug)]
pub(super) struct LastSnapshot {
    commit: Oid,
    head: Option<Oid>,
    tree: Oid,
}

#[derive(Default)]
struct SnapshotSources {
    head_tree: Option<Oid>,
    kept_tree: Option<Oid>,
    kept_parents: Vec<Oid>,
}

/// Two snapshots at once under one prefix are rare; more tries than this mean something else.
const TRIES_MAX: u32 = 32;

impl Repo {
    /// Keeps the worktree's files and its HEAD as `<prefix>/<n>`, with the next free number. The
    /// newest one is returned again if nothing changed, and then nothing is written. `None` if there
    /// is nothing to keep: no such folder, or no file and no commit in it.
    ///
    /// Whoever works there may go on: neither the worktree's index nor its lock is touched.
    pub fn take_snapshot(
        &self,
        worktree: &Path,
        prefix: &str,
        message: &str,
    ) -> Result<Option<WorktreeSnapshot>> {
        self.take_snapshot_in_scope(worktree, prefix, message, SnapshotScope::Whole)
    }

    /// The same at a bounded cost, for work in progress: very large files that are new or changed
    /// may be left out, and are named.
    pub fn take_quick_snapshot(
        &self,
        worktree: &Path,
        prefix: &str,
        message: &str,
    ) -> Result<Option<WorktreeSnapshot>> {
        self.take_snapshot_in_scope(worktree, prefix, message, SnapshotScope::Quick)
    }

    fn take_snapshot_in_scope(
        &self,
        worktree: &Path,
        prefix: &str,
        message: &str,
        reach: SnapshotScope,
    ) -> Result<Option<WorktreeSnapshot>> {
        let worktree = resolve_parent_links(worktree);
        if !is_real_folder(&worktree) {
            return Ok(None);
        }
        let prefix = prefix.trim_end_matches('/');
        let kept = self.snapshot_files(&worktree, prefix, message, reach)?;
        match (kept, reach) {
            // Last: what is kept of them is told with the snapshot.
            (Some(mut kept), SnapshotScope::Whole) => {
                kept.notes.extend(self.keep_nested_repos(&worktree, prefix)?);
                Ok(Some(kept))
            }
            (kept, _) => Ok(kept),
        }
    }

    fn snapshot_files(
        &self,
        worktree: &Path,
        prefix: &str,
        message: &str,
        reach: SnapshotScope,
    ) -> Result<Option<WorktreeSnapshot>> {
        let Some(admin) = self.find_usable_admin_dir(worktree)? else {
            // While somebody works there git is not let read it; what is there is kept when the work is over.
            if reach == SnapshotScope::Quick {
                return Ok(None);
            }
            return self.keep_staged_snapshot(
                self.stage_worktree(worktree)?,
                prefix,
                message,
                &mut None,
            );
        };
        let warm = self.inner.index_cache.get_or_create(&admin);
        // Somebody else takes one of the same worktree right now: both get what is there.
        let Ok(mut warm) = warm.try_lock() else {
            if reach == SnapshotScope::Quick {
                return Ok(None);
            }
            return self.keep_staged_snapshot(
                self.stage_worktree(worktree)?,
                prefix,
                message,
                &mut None,
            );
        };
        super::agent_git_dir::remove_blocking_files(&admin, worktree);
        let staged = self.stage_with_cache(worktree, &admin, reach, &mut warm)?;
        // Taken away while we looked: what was seen half gone is no work of anybody's, and whoever
        // took it away kept it first.
        if self.find_usable_admin_dir(worktree)?.as_ref() != Some(&admin) {
            return Ok(None);
        }
        self.keep_staged_snapshot(staged, prefix, message, &mut warm.last_snapshot)
    }

    fn keep_staged_snapshot(
        &self,
        staged: StagedTree,
        prefix: &str,
        message: &str,
        last: &mut Option<LastSnapshot>,
    ) -> Result<Option<WorktreeSnapshot>> {
        let StagedTree { tree, head, mut notes, unstored, .. } = staged;
        let newest = self.find_newest_snapshot(prefix)?;
        let known_snapshot = |number: u32, commit: Oid, notes, unstored| {
            let (refname, tree) = (format!("{prefix}/{number}"), tree.clone());
            WorktreeSnapshot { refname, commit, tree, number, notes, unstored, is_new: false }
        };
        if let (Some((number, commit)), Some(last)) = (&newest, &last)
            && (&last.commit, &last.head, &last.tree) == (commit, &head, &tree)
        {
            return Ok(Some(known_snapshot(*number, commit.clone(), notes, unstored)));
        }
        let kept = newest.as_ref().map(|(_, commit)| commit);
        let known = self.read_snapshot_sources(head.as_ref(), kept)?;
        if known.head_tree.as_ref() != Some(&tree) {
            self.describe_moved_gitlinks(&tree, head.as_ref(), &mut notes)?;
        }
        let commit = match &head {
            Some(head) if known.head_tree.as_ref() == Some(&tree) => head.clone(),
            None if self.is_empty_tree(&tree)? => return Ok(None),
            head => match &newest {
                Some((_, commit))
                    if known.kept_tree.as_ref() == Some(&tree)
                        && known.kept_parents == head.as_slice() =>
                {
                    commit.clone()
                }
                _ => self.commit_snapshot(&tree, head.as_slice(), message, &notes, &unstored)?,
            },
        };
        *last = Some(LastSnapshot { commit: commit.clone(), head, tree: tree.clone() });
        match newest {
            Some((number, kept)) if kept == commit => {
                Ok(Some(known_snapshot(number, commit, notes, unstored)))
            }
            newest => {
                let first = newest.map_or(1, |(number, _)| number + 1);
                let (refname, number) =
                    self.create_snapshot_ref(prefix, &commit, first, "mainstem: snapshot")?;
                Ok(Some(WorktreeSnapshot {
                    refname,
                    commit,
                    tree,
                    number,
                    notes,
                    unstored,
                    is_new: true,
                }))
            }
        }
    }

    /// Writes the commit of a snapshot. Its message lists the notes and the files that are not in it.
    fn commit_snapshot(
        &self,
        tree: &Oid,
        parents: &[Oid],
        message: &str,
        notes: &[String],
        unstored: &[UnstoredFile],
    ) -> Result<Oid> {
        let author = GitIdentity::fallback();
        let left_out = unstored.iter().map(ToString::to_string);
        let remarks: Vec<String> = notes.iter().cloned().chain(left_out).collect();
        let message = snapshot_message(message, &remarks);
        self.commit_tree(tree, parents, &message, &author, &author, now_ms())
    }

    /// Reads the trees of HEAD and of the newest snapshot, and that snapshot's parents, with one call
    /// of git.
    fn read_snapshot_sources(
        &self,
        head: Option<&Oid>,
        kept: Option<&Oid>,
    ) -> Result<SnapshotSources> {
        let head: Vec<String> = head.iter().map(|id| format!("{id}^{{tree}}")).collect();
        let kept = kept.map(|id| [format!("{id}^{{tree}}"), format!("{id}^1"), format!("{id}^2")]);
        let names: Vec<String> =
            head.iter().cloned().chain(kept.clone().into_iter().flatten()).collect();
        if names.is_empty() {
            return Ok(SnapshotSources::default());
        }
        let mut found = self.find_objects(&names)?.into_iter();
        let head_tree = if head.is_empty() { None } else { found.next().flatten() };
        let kept_tree = found.next().flatten();
        Ok(SnapshotSources { head_tree, kept_tree, kept_parents: found.flatten().collect() })
    }

    pub(super) fn find_newest_snapshot(&self, prefix: &str) -> Result<Option<(u32, Oid)>> {
        let numbered = self.list_refs(prefix)?.into_iter().filter_map(|(name, commit)| {
            let number = name.strip_prefix(prefix)?.strip_prefix('/')?.parse().ok()?;
            Some((number, commit))
        });
        Ok(numbered.max_by_key(|(number, _): &(u32, Oid)| *number))
    }

    /// Puts a ref on `commit` at the first free number from `first` on.
    pub(super) fn create_snapshot_ref(
        &self,
        prefix: &str,
        commit: &Oid,
        first: u32,
        reason: &str,
    ) -> Result<(String, u32)> {
        // Objects that an agent's git wrote are on no disk yet, and ours does not write them again: a
        // ref that outlives a power cut must not point to what does not.
        let objects = self.common_dir().join("objects");
        crate::files::sync_filesystem(&objects).with_path("sync", &objects)?;
        for number in first..first.saturating_add(TRIES_MAX) {
            let name = format!("{prefix}/{number}");
            match self.update_ref(&name, commit, None, reason)? {
                RefUpdateOutcome::Moved => return Ok((name, number)),
                RefUpdateOutcome::Refused { .. } => {}
            }
        }
        Err(GitError::BadOutput {
            what: "git update-ref".to_owned(),
            text: format!("no free number below {prefix}"),
        })
    }
}

/// Why it was taken, and below it what is not in it: whoever finds it later has only the commit.
fn snapshot_message(message: &str, notes: &[String]) -> String {
    /// A message is for reading.
    const NOTES_MAX: usize = 50;
    let mut words = message.to_owned();
    for (n, note) in notes.iter().take(NOTES_MAX).enumerate() {
        words.push_str(if n == 0 { "\n\n" } else { "\n" });
        words.push_str("- ");
        words.push_str(note);
    }
    words
}
