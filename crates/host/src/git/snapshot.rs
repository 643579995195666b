//! Keeps the state of a worktree under a ref, so that nothing an agent did can get lost.

use std::path::Path;

use mainstem_core::id::Oid;

use super::error::{GitError, OnPath, Result};
use super::refs::now_ms;
use super::{Cas, Identity, Repo, settled};

/// The state of a worktree, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The ref that keeps it.
    pub refname: String,
    /// The commit; its parent is the worktree's HEAD. If nothing was uncommitted, HEAD itself.
    pub commit: Oid,
    /// All files, tracked and untracked, without the ignored ones.
    pub tree: Oid,
    /// Its place in the series of this prefix.
    pub number: u32,
    /// What it could not hold, one sentence each.
    pub notes: Vec<String>,
}

/// Two snapshots at once under one prefix are rare; more tries than this mean something else.
const TRIES_MAX: u32 = 32;

impl Repo {
    /// Keeps the worktree's files and its HEAD as `<prefix>/<n>`, with the next free number. The
    /// newest one is returned again if nothing changed. `None` if there is nothing to keep: no such
    /// folder, or no file and no commit in it.
    pub fn snapshot(
        &self,
        worktree: &Path,
        prefix: &str,
        message: &str,
    ) -> Result<Option<Snapshot>> {
        let worktree = settled(worktree);
        if !worktree.is_dir() {
            return Ok(None);
        }
        let prefix = prefix.trim_end_matches('/');
        let staged = self.stage(&worktree)?;
        let newest = self.newest(prefix)?;
        let commit = match &staged.head {
            Some(head) if self.tree_of(head)? == staged.tree => head.clone(),
            None if self.is_empty_tree(&staged.tree)? => return Ok(None),
            head => {
                if let Some((number, commit)) = &newest
                    && self.tree_of(commit)? == staged.tree
                    && self.commit_details(commit)?.parents.as_slice() == head.as_slice()
                {
                    let refname = format!("{prefix}/{number}");
                    let (commit, number) = (commit.clone(), *number);
                    return Ok(Some(Snapshot {
                        refname,
                        commit,
                        tree: staged.tree,
                        number,
                        notes: staged.notes,
                    }));
                }
                let who = Identity::ours();
                self.commit_tree(&staged.tree, head.as_slice(), message, &who, &who, now_ms())?
            }
        };
        let (refname, number) = match newest {
            Some((number, kept)) if kept == commit => (format!("{prefix}/{number}"), number),
            newest => {
                let first = newest.map_or(1, |(number, _)| number + 1);
                self.keep(prefix, &commit, first, "mainstem: snapshot")?
            }
        };
        Ok(Some(Snapshot { refname, commit, tree: staged.tree, number, notes: staged.notes }))
    }

    pub(super) fn newest(&self, prefix: &str) -> Result<Option<(u32, Oid)>> {
        let numbered = self.list_refs(prefix)?.into_iter().filter_map(|(name, commit)| {
            let number = name.strip_prefix(prefix)?.strip_prefix('/')?.parse().ok()?;
            Some((number, commit))
        });
        Ok(numbered.max_by_key(|(number, _): &(u32, Oid)| *number))
    }

    /// Puts a ref on `commit` at the first free number from `first` on.
    pub(super) fn keep(
        &self,
        prefix: &str,
        commit: &Oid,
        first: u32,
        reason: &str,
    ) -> Result<(String, u32)> {
        // Objects that an agent's git wrote are on no disk yet, and ours does not write them again: a
        // ref that outlives a power cut must not point to what does not.
        let objects = self.common_dir().join("objects");
        crate::files::sync_filesystem(&objects).on("sync", &objects)?;
        for number in first..first.saturating_add(TRIES_MAX) {
            let name = format!("{prefix}/{number}");
            match self.update_ref(&name, commit, None, reason)? {
                Cas::Moved => return Ok((name, number)),
                Cas::Refused { .. } => {}
            }
        }
        Err(GitError::BadOutput {
            what: "git update-ref".to_owned(),
            text: format!("no free number below {prefix}"),
        })
    }
}
