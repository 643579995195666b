//! Making a repository and its first commits: for the tour, which brings its own.

use std::path::Path;

use mainstem_core::id::Oid;

use super::error::{OnPath, Result};
use super::run::Git;
use super::{Identity, Repo};

impl Repo {
    /// Makes an empty repository with this branch.
    pub fn init(path: &Path, branch: &str) -> Result<Self> {
        std::fs::create_dir_all(path).on("create", path)?;
        Git::new(path).args(["init", "--quiet", "--initial-branch", branch, "."]).run()?;
        Self::discover(path)
    }

    /// Commits everything in the main worktree, as this person.
    pub fn commit_all(&self, message: &str, who: &Identity) -> Result<Oid> {
        let author = |git: Git| {
            git.set(format!("user.name={}", who.name)).set(format!("user.email={}", who.email))
        };
        Git::new(self.dir()).args(["add", "--all"]).run()?;
        author(Git::new(self.dir())).args(["commit", "--quiet", "-m", message]).run()?;
        let head = self.resolve("HEAD")?;
        Ok(head.expect("BUG: there is a commit now"))
    }

    /// Makes a person's name stick in this repository's own configuration.
    pub fn set_identity(&self, who: &Identity) -> Result<()> {
        Git::new(self.dir()).args(["config", "user.name", &who.name]).run()?;
        Git::new(self.dir()).args(["config", "user.email", &who.email]).run()?;
        Ok(())
    }

    /// Whether git finds the repository sound.
    pub fn is_sound(&self) -> Result<bool> {
        let answer =
            self.git().args(["fsck", "--full", "--no-dangling"]).accept(&[0, 1, 2, 4, 8]).run()?;
        Ok(answer.code == 0)
    }
}
