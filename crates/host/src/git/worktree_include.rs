//! Picks ignored files of a checkout that a fresh worktree should get a copy of.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{IoErrorContext, Result};
use super::{Repo, path_from_bytes, resolve_path, split_nul};

impl Repo {
    /// Files of the checkout `from`, relative to it, that match one of the patterns (gitignore
    /// syntax) and are really ignored by git. Tracked files come with the worktree anyway.
    pub fn list_ignored_to_copy(&self, from: &Path, patterns: &[String]) -> Result<Vec<PathBuf>> {
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let from = resolve_path(from);
        let git_dir = self.find_worktree_git_dir(&from)?;
        self.create_temp_dir()?;
        let list = super::staging::PrivateIndex(self.temp_path("patterns"));
        fs::write(&list.0, patterns.join("\n") + "\n").with_path("write", &list.0)?;
        let listed = self
            .git_in_worktree(&git_dir, &from)
            .args(["ls-files", "--others", "--ignored", "-z", "--exclude-from"])
            .arg(&list.0)
            .run()?;
        let matching: Vec<PathBuf> = split_nul(&listed.stdout)
            .filter(|name| !name.ends_with(b"/"))
            .map(path_from_bytes)
            .collect();
        if matching.is_empty() {
            return Ok(matching);
        }
        let ignored = self.select_ignored(&git_dir, &from, &matching)?;
        Ok(matching.into_iter().filter(|file| ignored.contains(file)).collect())
    }
}
