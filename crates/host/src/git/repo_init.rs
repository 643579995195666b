//! Making a repository and its first commits: for the tour, which brings its own.

use std::path::Path;

use mainstem_core::id::Oid;

use super::command::GitCommand;
use super::error::{IoErrorContext, Result};
use super::{GitIdentity, Repo};

impl Repo {
    /// Makes an empty repository with this branch.
    pub fn init(path: &Path, branch: &str) -> Result<Self> {
        std::fs::create_dir_all(path).with_path("create", path)?;
        GitCommand::new(path).args(["init", "--quiet", "--initial-branch", branch, "."]).run()?;
        Self::discover(path)
    }

    /// Commits everything in the main worktree, as this person.
    pub fn commit_all(&self, message: &str, who: &GitIdentity) -> Result<Oid> {
        let author = |git: GitCommand| {
            git.config_setting(format!("user.name={}", who.name))
                .config_setting(format!("user.email={}", who.email))
        };
        GitCommand::new(self.dir()).args(["add", "--all"]).run()?;
        author(GitCommand::new(self.dir())).args(["commit", "--quiet", "-m", message]).run()?;
        let head = self.resolve_commit("HEAD")?;
        Ok(head.expect("BUG: there is a commit now"))
    }

    /// Makes a person's name stick in this repository's own configuration.
    pub fn set_identity(&self, who: &GitIdentity) -> Result<()> {
        GitCommand::new(self.dir()).args(["config", "user.name", &who.name]).run()?;
        GitCommand::new(self.dir()).args(["config", "user.email", &who.email]).run()?;
        Ok(())
    }

    /// Whether git finds the repository sound.
    pub fn passes_fsck(&self) -> Result<bool> {
        let answer = self
            .git()
            .args(["fsck", "--full", "--no-dangling"])
            .accept_exit_codes(&[0, 1, 2, 4, 8])
            .run()?;
        Ok(answer.code == 0)
    }
}
