//! Merges only to see whether they would clash. What git writes on the way goes to a folder of its own and
//! away with it, so that looking leaves nothing in the repository.

use std::fs;
use std::path::PathBuf;

use mainstem_core::id::Oid;

use super::error::{IoErrorContext, Result};
use super::merge::GitMergeOutcome;
use super::{Repo, lossy_string, split_nul};

/// A place to try merges.
#[derive(Debug)]
pub struct MergeProbe<'a> {
    repo: &'a Repo,
    objects: PathBuf,
}

impl Repo {
    /// A place to try merges.
    pub fn create_merge_probe(&self) -> Result<MergeProbe<'_>> {
        let objects = self.temp_path("probe");
        fs::create_dir_all(&objects).with_path("create", &objects)?;
        Ok(MergeProbe { repo: self, objects })
    }
}

impl MergeProbe<'_> {
    /// The files in which two commits clash; none if they merge.
    pub fn find_conflicts(&self, ours: &Oid, theirs: &Oid) -> Result<Vec<String>> {
        Ok(match self.repo.merge_into_object_dir(ours, theirs, &self.objects)? {
            GitMergeOutcome::Clean { .. } => Vec::new(),
            GitMergeOutcome::Conflict { files, .. } => files,
        })
    }

    /// The files that differ between two commits.
    pub fn list_changed_files(&self, from: &Oid, to: &Oid) -> Result<Vec<String>> {
        let args = ["-r", "-z", "--name-only", "--no-renames"];
        let answer = self.repo.diff_tree(from, to, &args).run()?;
        Ok(split_nul(&answer.stdout).map(lossy_string).collect())
    }
}

impl Drop for MergeProbe<'_> {
    fn drop(&mut self) {
        // What stays is swept at the next start.
        let _ = crate::files::remove_all(&self.objects);
    }
}
