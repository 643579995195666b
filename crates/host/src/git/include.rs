//! Picks ignored files of a checkout that a fresh worktree should get a copy of.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{OnPath, Result};
use super::{Repo, parts, path_from, settled};

impl Repo {
    /// Files of the checkout `from`, relative to it, that match one of the patterns (gitignore
    /// syntax) and are really ignored by git. Tracked files come with the worktree anyway.
    pub fn ignored_to_copy(&self, from: &Path, patterns: &[String]) -> Result<Vec<PathBuf>> {
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let from = settled(from);
        let git_dir = self.git_dir_of(&from)?;
        self.make_tmp_dir()?;
        let list = super::stage::PrivateIndex(self.tmp("patterns"));
        fs::write(&list.0, patterns.join("\n") + "\n").on("write", &list.0)?;
        let listed = self
            .git_in(&git_dir, &from)
            .args(["ls-files", "--others", "--ignored", "-z", "--exclude-from"])
            .arg(&list.0)
            .run()?;
        let matching: Vec<PathBuf> =
            parts(&listed.stdout).filter(|name| !name.ends_with(b"/")).map(path_from).collect();
        if matching.is_empty() {
            return Ok(matching);
        }
        let ignored = self.ignored(&git_dir, &from, &matching)?;
        Ok(matching.into_iter().filter(|file| ignored.contains(file)).collect())
    }
}
