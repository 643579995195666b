//! Merges only to see whether they would clash. What git writes on the way goes to a folder of its own and
//! away with it, so that looking leaves nothing in the repository.

use std::fs;
use std::path::PathBuf;

use mainstem_core::id::Oid;

use super::error::{OnPath, Result};
use super::merge::Merge;
use super::{Repo, lossy, parts};

/// A place to try merges.
#[derive(Debug)]
pub struct Probe<'a> {
    repo: &'a Repo,
    objects: PathBuf,
}

impl Repo {
    /// A place to try merges.
    pub fn probe(&self) -> Result<Probe<'_>> {
        let objects = self.tmp("probe");
        fs::create_dir_all(&objects).on("create", &objects)?;
        Ok(Probe { repo: self, objects })
    }
}

impl Probe<'_> {
    /// The files in which two commits clash; none if they merge.
    pub fn clashes(&self, ours: &Oid, theirs: &Oid) -> Result<Vec<String>> {
        Ok(match self.repo.merge_beside(ours, theirs, &self.objects)? {
            Merge::Clean { .. } => Vec::new(),
            Merge::Conflict { files, .. } => files,
        })
    }

    /// The files that differ between two commits.
    pub fn changed(&self, from: &Oid, to: &Oid) -> Result<Vec<String>> {
        let args = ["-r", "-z", "--name-only", "--no-renames"];
        let answer = self.repo.diff_tree(from, to, &args).run()?;
        Ok(parts(&answer.stdout).map(lossy).collect())
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // What stays is swept at the next start.
        let _ = crate::files::remove_all(&self.objects);
    }
}
