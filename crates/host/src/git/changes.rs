//! What lies between two commits.

use mainstem_core::id::Oid;

use super::error::Result;
use super::run::Git;
use super::{Repo, lossy, oid, parts};

/// What one file went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Where it is now (after a rename: the new place). Bytes that are no text are replaced.
    pub path: String,
    /// Lines added; `None` for a binary file.
    pub added: Option<u64>,
    /// Lines removed; `None` for a binary file.
    pub removed: Option<u64>,
}

/// The difference between two commits, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Every changed file.
    pub files: Vec<FileChange>,
    /// Lines added in all text files.
    pub insertions: u64,
    /// Lines removed in all text files.
    pub deletions: u64,
}

impl Repo {
    /// How many commits `tip` has that `base` has not.
    pub fn commits_between(&self, base: &Oid, tip: &Oid) -> Result<u32> {
        let answer =
            self.git().args(["rev-list", "--count", &format!("{base}..{tip}"), "--"]).run()?;
        answer.line()?.parse().map_err(|_| answer.bad())
    }

    /// The files changed from `base` to `tip`, with line counts.
    pub fn changes(&self, base: &Oid, tip: &Oid) -> Result<Changes> {
        let answer = self.diff_tree(base, tip, &["-r", "-z", "-M", "--numstat"]).run()?;
        let mut changes = Changes::default();
        let mut rest = parts(&answer.stdout);
        while let Some(entry) = rest.next() {
            let mut fields = entry.splitn(3, |&b| b == b'\t');
            let (Some(added), Some(removed), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(answer.bad());
            };
            // A rename has no path here; the old and the new one follow on their own.
            let path =
                if path.is_empty() { rest.nth(1).ok_or_else(|| answer.bad())? } else { path };
            let count = |text: &[u8]| lossy(text).parse::<u64>().ok();
            let file =
                FileChange { path: lossy(path), added: count(added), removed: count(removed) };
            changes.insertions += file.added.unwrap_or(0);
            changes.deletions += file.removed.unwrap_or(0);
            changes.files.push(file);
        }
        Ok(changes)
    }

    /// The difference as a patch, for people.
    pub fn diff(&self, base: &Oid, tip: &Oid, color: bool) -> Result<Vec<u8>> {
        let color = if color { "--color=always" } else { "--no-color" };
        let args = ["-r", "-M", "-p", "--src-prefix=a/", "--dst-prefix=b/", color];
        Ok(self.diff_tree(base, tip, &args).run()?.stdout)
    }

    /// Names a difference: equal exactly if the same files go from the same to the same content.
    pub fn diff_hash(&self, base: &Oid, tip: &Oid) -> Result<String> {
        let args = ["-r", "-z", "--raw", "--no-renames", "--no-abbrev"];
        let raw = self.diff_tree(base, tip, &args).run()?.stdout;
        let answer = self.git().args(["hash-object", "--stdin"]).input(raw).run()?;
        Ok(oid(answer.line()?, &answer)?.as_str().to_owned())
    }

    /// A diff of two trees that runs no program of anybody's configuration.
    pub(super) fn diff_tree(&self, base: &Oid, tip: &Oid, args: &[&str]) -> Git {
        self.git()
            .env("GIT_ATTR_SOURCE", base.as_str())
            .args(["diff-tree", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"])
            .args(args)
            .args([base.as_str(), tip.as_str()])
    }
}
