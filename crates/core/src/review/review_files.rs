//! Which files of a change are reviewed, by whom, and how risky each is.

use serde::{Deserialize, Serialize};

use crate::config::{ReviewMode, ReviewerSettings};
use crate::gate::compile_glob;

/// Files that are named to a reviewer.
pub const FILES_MAX: usize = 500;
/// Bytes of a difference that a reviewer is shown.
pub const DIFF_BYTES_MAX: usize = 100 * 1024;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    Added,
    Modified,
    Deleted,
    Renamed,
}

impl FileChangeKind {
    /// The word on screens and in prompts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::Renamed => "renamed",
        }
    }
}

/// How much attention a file deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileRisk {
    /// Little can go wrong.
    Low,
    Normal,
    /// Much can go wrong.
    High,
}

impl FileRisk {
    /// The word in prompts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewFile {
    /// Where it is now.
    pub path: String,
    /// Where it was, if that is elsewhere.
    pub old: Option<String>,
    /// What became of it.
    pub change: FileChangeKind,
    /// Lines added; none for a binary file.
    pub added: Option<u64>,
    /// Lines removed; none for a binary file.
    pub removed: Option<u64>,
    pub risk: FileRisk,
}

impl ReviewFile {
    pub fn touched_lines(&self) -> u64 {
        self.added.unwrap_or(0) + self.removed.unwrap_or(0)
    }
}

fn matches_any(globs: &[String], path: &str) -> bool {
    globs.iter().any(|glob| compile_glob(glob).is_ok_and(|glob| glob.is_match(path)))
}

/// How risky a file is by patterns of paths; the riskier one counts.
pub fn classify_risk(path: &str, high: &[String], low: &[String]) -> FileRisk {
    if matches_any(high, path) {
        FileRisk::High
    } else if matches_any(low, path) {
        FileRisk::Low
    } else {
        FileRisk::Normal
    }
}

/// What of a change reviewers see: files with one of these extensions (all if none is named) and not
/// among the ignored ones; the riskiest first.
pub fn select_files(
    mut files: Vec<ReviewFile>,
    extensions: &[String],
    ignore: &[String],
) -> Vec<ReviewFile> {
    let wanted = |path: &str| {
        extensions.is_empty()
            || extensions
                .iter()
                .any(|ext| path.ends_with(&format!(".{}", ext.trim_start_matches('.'))))
    };
    files.retain(|file| wanted(&file.path) && !matches_any(ignore, &file.path));
    files.sort_by(|a, b| {
        (std::cmp::Reverse(a.risk), &a.path).cmp(&(std::cmp::Reverse(b.risk), &b.path))
    });
    files
}

/// Why a reviewer has nothing to do with this change; none if it has.
pub fn reason_to_skip(reviewer: &ReviewerSettings, files: &[ReviewFile]) -> Option<String> {
    if files.is_empty() {
        return Some("no changed file is to be reviewed".to_owned());
    }
    let touches = |file: &ReviewFile| {
        matches_any(&reviewer.paths, &file.path)
            || file.old.as_ref().is_some_and(|old| matches_any(&reviewer.paths, old))
    };
    if !reviewer.paths.is_empty() && !files.iter().any(touches) {
        return Some("none of its paths changed".to_owned());
    }
    let lines: u64 = files.iter().map(ReviewFile::touched_lines).sum();
    let least = u64::from(reviewer.min_lines);
    (lines < least).then(|| format!("{lines} changed lines, fewer than {least}"))
}

/// The files for one of several reviewers: all, or a share of about the same number of lines. Every file
/// is in exactly one share.
pub fn reviewer_share(
    files: &[ReviewFile],
    mode: ReviewMode,
    of: usize,
    at: usize,
) -> Vec<ReviewFile> {
    if mode == ReviewMode::All || of < 2 {
        return files.to_vec();
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(files[*i].touched_lines()), *i));
    let mut loads = vec![(0u64, 0usize); of];
    let mut mine = Vec::new();
    for i in order {
        let least = (0..of).min_by_key(|who| (loads[*who], *who)).unwrap_or(0);
        loads[least].0 += files[i].touched_lines().max(1);
        loads[least].1 += 1;
        if least == at {
            mine.push(i);
        }
    }
    mine.sort_unstable();
    mine.into_iter().map(|i| files[i].clone()).collect()
}
