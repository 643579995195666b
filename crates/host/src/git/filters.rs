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

use super::error::{OnPath, Result};
use super::run::Git;
use super::{Repo, lossy, parts};

/// When a file was last touched, as exactly as the system says. Equal stamps: the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(u64, u64, u64, i64, i64, i64, i64);

impl Stamp {
    /// None if there is no such file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self::from(&meta))
    }
}

impl From<&fs::Metadata> for Stamp {
    fn from(m: &fs::Metadata) -> Self {
        Self(m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
    }
}

/// The repository's settings as they were when it was opened.
#[derive(Debug, Default)]
pub(super) struct OpenedWith {
    stamp: Option<Stamp>,
    bytes: Vec<u8>,
}

impl OpenedWith {
    pub(super) fn read(common_dir: &Path) -> Self {
        let path = common_dir.join("config");
        // In this order: a change in between makes the stamp an old one, and is looked at.
        let stamp = Stamp::of(&path);
        Self { stamp, bytes: fs::read(&path).unwrap_or_default() }
    }
}

/// Which filters are switched off.
#[derive(Debug, Default)]
pub(super) struct Distrusted {
    /// Settings that do it, as pairs.
    pub(super) without: Vec<(String, String)>,
    /// One sentence each.
    pub(super) notes: Vec<String>,
}

impl Repo {
    /// The filters not to run in a worktree with this git dir.
    pub(super) fn distrusted_filters(&self, git_dir: &Path) -> Result<Distrusted> {
        let opened = &self.inner.opened_with;
        let unchanged = Stamp::of(&self.common_dir().join("config")) == opened.stamp;
        if unchanged && !git_dir.join("config.worktree").exists() {
            return Ok(Distrusted::default());
        }
        let before = self.tmp("config");
        fs::write(&before, &opened.bytes).on("write", &before)?;
        let file = super::stage::PrivateIndex(before);
        let git = self.git().args(["config", "--includes", "--file"]).arg(&file.0);
        let known = settings(git.args(["-z"]), false)?;
        let git = Git::new(git_dir).env("GIT_DIR", git_dir);
        let git = git.env("GIT_COMMON_DIR", self.common_dir());
        let now = settings(git.args(["config", "-z", "--show-scope"]), true)?;
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
        let mut found = Distrusted::default();
        for name in names {
            for (key, value) in
                [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")]
            {
                found.without.push((format!("filter.{name}.{key}"), value.to_owned()));
            }
            found.notes.push(format!(
                "the git filter {name} was configured while agents were running and was not used: the files are kept unfiltered"
            ));
        }
        Ok(found)
    }
}

/// All settings of filters, each with its scope if that is printed.
fn settings(git: Git, scoped: bool) -> Result<Vec<(String, String, String)>> {
    // Exit code 1 is documented as "none".
    let answer = git.args(["--get-regexp", r"^filter\."]).accept(&[1]).run()?;
    let mut fields = parts(&answer.stdout).map(lossy);
    let mut found = Vec::new();
    loop {
        let scope = if scoped { fields.next() } else { Some(String::new()) };
        let Some((scope, entry)) = scope.zip(fields.next()) else { return Ok(found) };
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, ""));
        found.push((scope, key.to_owned(), value.to_owned()));
    }
}
