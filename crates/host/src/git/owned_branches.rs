//! Which branches are of our making. A branch that somebody else made is never moved or deleted, and
//! neither is one that is checked out where we do not work, whoever made it.
//!
//! A ref beside each branch of ours says so. It is written before the branch and goes after it, and unlike
//! the journal it cannot be moved away from the branches that it is about.

use std::collections::BTreeSet;
use std::path::Path;

use mainstem_core::id::Oid;

use super::error::{GitError, Result};
use super::worktree_ownership::resolve_parent_links;
use super::{RefUpdateOutcome, Repo};

/// Beside a branch that we made and work on: our commits and an agent's come and go there.
const OWNED_PREFIX: &str = "refs/mainstem/owned/";
/// Beside a branch that we made and left for a person: it is ours only as long as it is where we left it.
const HANDED_OVER_PREFIX: &str = "refs/mainstem/handed/";

/// Nobody has a thousand branches of one name.
const NAMES_MAX: u32 = 1000;

/// What became of a branch that was to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum BranchDeletion {
    /// It is not there.
    Gone,
    /// It stays; this is why.
    Kept(String),
}

impl Repo {
    /// Whether a branch is of our making, and nobody has moved it since it was left for a person.
    pub fn owns_branch(&self, branch: &str) -> Result<bool> {
        let name = format!("refs/heads/{branch}");
        if self.is_symbolic_ref(&name)? {
            return Ok(false);
        }
        let Some(tip) = self.read_ref(&name)? else { return Ok(false) };
        if self.read_ref(&format!("{OWNED_PREFIX}{branch}"))?.is_some() {
            return Ok(true);
        }
        Ok(self.read_ref(&format!("{HANDED_OVER_PREFIX}{branch}"))? == Some(tip))
    }

    /// All branches that have a mark of ours, whether or not they are still there.
    pub fn list_owned_branches(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for prefix in [OWNED_PREFIX, HANDED_OVER_PREFIX] {
            let marks = self.list_refs(prefix)?;
            names.extend(
                marks.iter().filter_map(|(n, _)| n.strip_prefix(prefix).map(str::to_owned)),
            );
        }
        Ok(names)
    }

    /// Takes away marks whose branch is gone: a branch that somebody makes under that name is theirs.
    pub fn sweep_branch_marks(&self) -> Result<()> {
        for branch in self.list_owned_branches()? {
            if self.read_ref(&format!("refs/heads/{branch}"))?.is_none() {
                self.unmark_branch_owned(&branch)?;
            }
        }
        Ok(())
    }

    /// The branch itself, where this name only points at another one.
    pub fn resolve_branch_alias(&self, branch: &str) -> Result<String> {
        let name = format!("refs/heads/{branch}");
        if self.read_loose_ref(&name).is_some() {
            return Ok(branch.to_owned());
        }
        let mut name = name;
        // Git itself follows five.
        for _ in 0..5 {
            match self.read_symbolic_ref(self.common_dir(), &name)? {
                Some(target) => name = target,
                None => break,
            }
        }
        Ok(name.strip_prefix("refs/heads/").unwrap_or(branch).to_owned())
    }

    fn is_symbolic_ref(&self, name: &str) -> Result<bool> {
        Ok(self.read_loose_ref(name).is_none()
            && self.read_symbolic_ref(self.common_dir(), name)?.is_some())
    }

    /// Puts a branch of ours for the worktree at `path` at `base`: this one, or `<name>+2`, `<name>+3` … if
    /// it is somebody else's or checked out elsewhere. Says which one, and the ref that keeps where it was
    /// before, if nothing else would have.
    pub(super) fn claim_branch(
        &self,
        branch: &str,
        path: &Path,
        base: &Oid,
        series: &str,
    ) -> Result<(String, Option<String>)> {
        let busy = self.list_branches_checked_out_elsewhere(path)?;
        let plain = branch.rsplit_once('+').map_or(branch, |(plain, _)| plain);
        let others = (2..NAMES_MAX).map(|n| format!("{plain}+{n}"));
        let names = [branch, plain].into_iter().map(str::to_owned).chain(others);
        for candidate in names {
            if busy.contains(&candidate) {
                continue;
            }
            let name = format!("refs/heads/{candidate}");
            if self.owns_branch(&candidate)? {
                self.mark_branch_owned(&candidate, base)?;
                let kept = self.rewind_branch(&name, base, series)?;
                return Ok((candidate, kept));
            }
            if self.read_ref(&name)?.is_some() || self.is_symbolic_ref(&name)? {
                continue;
            }
            self.mark_branch_owned(&candidate, base)?;
            match self.update_ref(&name, base, None, "mainstem: prepare")? {
                RefUpdateOutcome::Moved => return Ok((candidate, None)),
                RefUpdateOutcome::Refused { .. } => self.unmark_branch_owned(&candidate)?,
            }
        }
        Err(GitError::NoBranch { branch: branch.to_owned() })
    }

    /// Leaves a branch of ours to people, at `tip`. One that is not ours, or that somebody works on, stays
    /// where it is.
    pub fn hand_over_branch(&self, branch: &str, tip: &Oid) -> Result<bool> {
        let name = format!("refs/heads/{branch}");
        if !self.owns_branch(branch)? || self.is_checked_out(branch)? {
            return Ok(false);
        }
        let handed = format!("{HANDED_OVER_PREFIX}{branch}");
        let _ = self.update_ref(&handed, tip, self.read_ref(&handed)?.as_ref(), "mainstem")?;
        let old = self.read_ref(&name)?;
        if old.as_ref() != Some(tip)
            && let RefUpdateOutcome::Refused { .. } =
                self.update_ref(&name, tip, old.as_ref(), "mainstem: kept for a person")?
        {
            return Ok(false);
        }
        let _ = self.delete_ref(&format!("{OWNED_PREFIX}{branch}"), None)?;
        Ok(true)
    }

    /// Deletes a branch of ours if it is still at `tip`; its commit must be kept elsewhere by then.
    pub fn delete_owned_branch(&self, branch: &str, tip: &Oid) -> Result<BranchDeletion> {
        let name = format!("refs/heads/{branch}");
        if !self.owns_branch(branch)? {
            return Ok(match self.read_ref(&name)? {
                Some(_) => {
                    BranchDeletion::Kept(format!("the branch {branch} was not made by Mainstem"))
                }
                None => BranchDeletion::Gone,
            });
        }
        if self.is_checked_out(branch)? {
            return Ok(BranchDeletion::Kept(format!("the branch {branch} is checked out")));
        }
        match self.delete_ref(&name, Some(tip))? {
            RefUpdateOutcome::Moved => {
                self.unmark_branch_owned(branch)?;
                Ok(BranchDeletion::Gone)
            }
            RefUpdateOutcome::Refused { .. } => {
                Ok(BranchDeletion::Kept(format!("the branch {branch} was moved in the meantime")))
            }
        }
    }

    fn mark_branch_owned(&self, branch: &str, base: &Oid) -> Result<()> {
        let live = format!("{OWNED_PREFIX}{branch}");
        if self.read_ref(&live)?.is_none() {
            // Whoever was quicker wrote the same.
            let _ = self.update_ref(&live, base, None, "mainstem")?;
        }
        Ok(())
    }

    fn unmark_branch_owned(&self, branch: &str) -> Result<()> {
        for prefix in [OWNED_PREFIX, HANDED_OVER_PREFIX] {
            let _ = self.delete_ref(&format!("{prefix}{branch}"), None)?;
        }
        Ok(())
    }

    /// The folder of a worktree that has this branch checked out, if one has.
    pub fn find_checkout(&self, branch: &str) -> Result<Option<std::path::PathBuf>> {
        Ok(self.list_checkouts(branch)?.into_iter().next())
    }

    /// Whether any worktree has this branch checked out.
    pub fn is_checked_out(&self, branch: &str) -> Result<bool> {
        let here = |other: super::WorktreeEntry| {
            other.branch.as_deref() == Some(branch)
                && !other.bare
                // One whose folder is gone and that nobody locked holds nothing.
                && (!other.prunable || other.locked)
        };
        Ok(self.list_worktrees()?.into_iter().any(here))
    }

    /// Branches that are checked out in another worktree than the one at `path`.
    fn list_branches_checked_out_elsewhere(&self, path: &Path) -> Result<BTreeSet<String>> {
        let others = self.list_worktrees()?.into_iter();
        let others = others.filter(|other| {
            resolve_parent_links(&other.path) != path
                && !other.bare
                && (!other.prunable || other.locked)
        });
        Ok(others.filter_map(|other| other.branch).collect())
    }
}
