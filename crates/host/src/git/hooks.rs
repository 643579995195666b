//! The user's own hooks. None of our commands runs one; agents' commits do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::error::Result;
use super::{Repo, path_from_bytes, split_nul};

/// Hooks that a commit in a workspace runs.
const COMMIT_HOOKS: &[&str] = &[
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-merge-commit",
    "reference-transaction",
];

impl Repo {
    /// Names of the hooks that run when somebody commits here.
    pub fn list_commit_hooks(&self) -> Result<Vec<&'static str>> {
        let git = self.git().args(["config", "-z", "--type=path", "--get-all", "core.hooksPath"]);
        let answer = git.accept_exit_codes(&[1]).run()?;
        let said: Vec<&[u8]> = split_nul(&answer.stdout).collect();
        // The last one is our own word, which keeps hooks out of our commands.
        let theirs = said.len().checked_sub(2).map(|at| path_from_bytes(said[at]));
        let folder = match theirs {
            // A path of the settings is relative to where the files are.
            Some(path) => self.dir().join(path),
            None => self.common_dir().join("hooks"),
        };
        let runs = |name: &&&str| {
            let meta = fs::metadata(folder.join(name));
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        Ok(COMMIT_HOOKS.iter().filter(runs).copied().collect())
    }
}
