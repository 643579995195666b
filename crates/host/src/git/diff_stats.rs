//! What lies between two commits.

use std::collections::{HashMap, HashSet};

use mainstem_core::id::Oid;

use super::command::GitCommand;
use super::error::Result;
use super::{Repo, lossy_string, parse_oid, split_nul};

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
pub struct DiffStats {
    pub files: Vec<FileChange>,
    /// Lines added in all text files.
    pub insertions: u64,
    /// Lines removed in all text files.
    pub deletions: u64,
}

/// How large a difference is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiffSize {
    pub files: u64,
    /// Lines added in text files.
    pub insertions: u64,
    /// Lines removed from text files.
    pub deletions: u64,
}

impl Repo {
    /// How many commits `tip` has that `base` has not.
    pub fn count_commits_between(&self, base: &Oid, tip: &Oid) -> Result<u32> {
        let answer =
            self.git().args(["rev-list", "--count", &format!("{base}..{tip}"), "--"]).run()?;
        answer.single_line()?.parse().map_err(|_| answer.bad_output_error())
    }

    /// The files changed from `base` to `tip`, with line counts.
    pub fn diff_stats(&self, base: &Oid, tip: &Oid) -> Result<DiffStats> {
        let answer = self.diff_tree(base, tip, &["-r", "-z", "-M", "--numstat"]).run()?;
        let mut changes = DiffStats::default();
        let mut rest = split_nul(&answer.stdout);
        while let Some(entry) = rest.next() {
            let mut fields = entry.splitn(3, |&b| b == b'\t');
            let (Some(added), Some(removed), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(answer.bad_output_error());
            };
            // A rename has no path here; the old and the new one follow on their own.
            let path = if path.is_empty() {
                rest.nth(1).ok_or_else(|| answer.bad_output_error())?
            } else {
                path
            };
            let count = |text: &[u8]| lossy_string(text).parse::<u64>().ok();
            let file = FileChange {
                path: lossy_string(path),
                added: count(added),
                removed: count(removed),
            };
            changes.insertions += file.added.unwrap_or(0);
            changes.deletions += file.removed.unwrap_or(0);
            changes.files.push(file);
        }
        Ok(changes)
    }

    /// The files that `tip` has and `base` has not.
    pub fn added_files(&self, base: &Oid, tip: &Oid) -> Result<Vec<String>> {
        let args = ["-r", "-z", "--no-renames", "--diff-filter=A", "--name-only"];
        let answer = self.diff_tree(base, tip, &args).run()?;
        Ok(split_nul(&answer.stdout).map(lossy_string).collect())
    }

    /// Counts many differences at once: files, lines added, lines removed. `None` where either side
    /// is not there.
    pub fn diff_sizes(&self, pairs: &[(Oid, Oid)]) -> Result<Vec<Option<DiffSize>>> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let tree = |id: &Oid| format!("{id}^{{tree}}");
        let names: Vec<String> = pairs.iter().flat_map(|(a, b)| [tree(a), tree(b)]).collect();
        let trees = self.find_objects(&names)?;
        let lines: Vec<Option<String>> = trees
            .chunks(2)
            .map(|pair| match pair {
                [Some(a), Some(b)] => Some(format!("{a} {b}")),
                _ => None,
            })
            .collect();
        let question: String = lines.iter().flatten().map(|line| format!("{line}\n")).collect();
        let answer = self
            .git()
            .args(["diff-tree", "--stdin", "-r", "--numstat", "--no-renames", "--no-ext-diff"])
            .args(["--no-textconv", "--ignore-submodules=none"])
            .stdin_bytes(question)
            .timeout(super::command::TIMEOUT_CHECKOUT)
            .run()?;
        let mut sizes: HashMap<String, DiffSize> = HashMap::new();
        let mut size = &mut DiffSize::default();
        for line in lossy_string(&answer.stdout).lines() {
            let mut fields = line.splitn(3, '\t');
            match (fields.next(), fields.next(), fields.next()) {
                (Some(added), Some(removed), Some(_)) => {
                    size.files += 1;
                    size.insertions += added.parse::<u64>().unwrap_or(0);
                    size.deletions += removed.parse::<u64>().unwrap_or(0);
                }
                // A pair asked for twice is counted once.
                _ => {
                    size = sizes.entry(line.to_owned()).or_default();
                    *size = DiffSize::default();
                }
            }
        }
        Ok(lines.into_iter().map(|line| sizes.get(&line?).copied()).collect())
    }

    /// Where two commits parted; `None` if they never were one.
    pub fn merge_base(&self, a: &Oid, b: &Oid) -> Result<Option<Oid>> {
        // Exit code 1 is documented as "there is none".
        let args = ["merge-base", a.as_str(), b.as_str()];
        let answer = self.git().args(args).accept_exit_codes(&[1]).run()?;
        if answer.code == 1 {
            return Ok(None);
        }
        parse_oid(answer.single_line()?, &answer).map(Some)
    }

    /// Which of these paths are files of `rev`.
    pub fn existing_paths(&self, rev: &str, paths: &[String]) -> Result<HashSet<String>> {
        let answer = self
            .git()
            .args(["ls-tree", "-r", "-z", "--name-only", "--full-tree", rev, "--"])
            .args(paths.iter().map(String::as_str))
            .run()?;
        Ok(split_nul(&answer.stdout).map(lossy_string).collect())
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
        let answer = self.git().args(["hash-object", "--stdin"]).stdin_bytes(raw).run()?;
        Ok(parse_oid(answer.single_line()?, &answer)?.as_str().to_owned())
    }

    /// A diff of two trees that runs no program of anybody's configuration.
    pub(super) fn diff_tree(&self, base: &Oid, tip: &Oid, args: &[&str]) -> GitCommand {
        self.git()
            .env("GIT_ATTR_SOURCE", base.as_str())
            .args(["diff-tree", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"])
            .args(args)
            .args([base.as_str(), tip.as_str()])
    }
}
