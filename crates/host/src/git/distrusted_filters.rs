//! Filters that somebody planted while we work here.
//!
//! A clean filter is a command that git runs on every file it takes in. Which ones the repository has
//! is its owner's business, so those that were there when it was opened are honoured. Agents can
//! write to the same configuration: what changed since, and what only a worktree's own settings say,
//! is switched off. This is no wall: whoever can write the user's own settings needs no filter.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::command::GitCommand;
use super::error::{IoErrorContext, Result};
use super::{Repo, lossy_string, split_nul};

/// When a file was last touched, as exactly as the system says. Equal stamps: the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileStamp(u64, u64, u64, i64, i64, i64, i64);

impl FileStamp {
    /// None if there is no such file.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&fs::Metadata> for FileStamp {
    fn from(m: &fs::Metadata) -> Self {
        Self(m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    }
}

/// The repository's settings as they were when it was opened.
#[derive(Debug, Default)]
pub(super) struct InitialGitConfig {
    stamp: Option<FileStamp>,
    bytes: Vec<u8>,
}

impl InitialGitConfig {
    pub(super) fn read(common_dir: &Path) -> Self {
        let path = common_dir.join("config");
        // In this order: a change in between makes the stamp an old one, and is looked at.
        let stamp = FileStamp::of_file(&path);
        Self { stamp, bytes: fs::read(&path).unwrap_or_default() }
    }
}

/// Which filters are switched off.
#[derive(Debug, Default)]
pub(super) struct DistrustedFilters {
    /// Settings that do it, as pairs.
    pub(super) overrides: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
}

impl Repo {
    /// The filters not to run in a worktree with this git dir.
    pub(super) fn distrusted_filters(&self, git_dir: &Path) -> Result<DistrustedFilters> {
        let opened = &self.inner.initial_config;
        let unchanged = FileStamp::of_file(&self.common_dir().join("config")) == opened.stamp;
        if unchanged && !git_dir.join("config.worktree").exists() {
            return Ok(DistrustedFilters::default());
        }
        let before = self.temp_path("config");
        fs::write(&before, &opened.bytes).with_path("write", &before)?;
        let file = super::staging::PrivateIndex(before);
        let git = self.git().args(["config", "--includes", "--file"]).arg(&file.0);
        let known = list_filter_settings(git.args(["-z"]), false)?;
        let git = GitCommand::new(git_dir).env("GIT_DIR", git_dir);
        let git = git.env("GIT_COMMON_DIR", self.common_dir());
        let now = list_filter_settings(git.args(["config", "-z", "--show-scope"]), true)?;
        let mut names = BTreeSet::new();
        for (scope, key, value) in now {
            let planted = match scope.as_str() {
                "worktree" => true,
                "local" => !known.iter().any(|(_, k, v)| *k == key && *v == value),
                _ => false,
            };
            let name = key.strip_prefix("filter.").and_then(|rest| rest.rsplit_once('.'));
            if let (true, Some((name, _))) = (planted, name) {
                names.insert(name.to_owned());
            }
        }
        let mut found = DistrustedFilters::default();
        for name in names {
            for (key, value) in
                [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            {
                found.overrides.push((format!("filter.{name}.{key}"), value.to_owned()));
            }
            found.notes.push(format!(
                "the git filter {name} was configured while agents were running and was not used: the files are kept unfiltered"
            ));
        }
        Ok(found)
    }
}

/// All settings of filters, each with its scope if that is printed.
fn list_filter_settings(git: GitCommand, scoped: bool) -> Result<Vec<(String, String, String)>> {
    // Exit code 1 is documented as "none".
    let answer = git.args(["--get-regexp", r"^filter\."]).accept_exit_codes(&[1]).run()?;
    let mut fields = split_nul(&answer.stdout).map(lossy_string);
    let mut found = Vec::new();
    loop {
        let scope = if scoped { fields.next() } else { Some(String::new()) };
        let Some((scope, entry)) = scope.zip(fields.next()) else { return Ok(found) };
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, ""));
        found.push((scope, key.to_owned(), value.to_owned()));
    }
}
