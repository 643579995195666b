//! Which files of a change are reviewed, by whom, and how risky each is.

use serde::{Deserialize, Serialize};

use crate::config::{ReviewMode, Reviewer};
use crate::gate::matcher;

/// Files that are named to a reviewer.
pub const FILES_MAX: usize = 500;
/// Bytes of a difference that a reviewer is shown.
pub const DIFF_BYTES_MAX: usize = 100 * 1024;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Deleted,
    /// It is elsewhere.
    Renamed,
}

impl Change {
    /// The word on screens and in prompts.
    pub fn word(self) -> &'static str {
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
pub enum Risk {
    /// Little can go wrong.
    Low,
    /// As usual.
    Normal,
    /// Much can go wrong.
    High,
}

impl Risk {
    /// The word in prompts.
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }
}

/// One changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Where it is now.
    pub path: String,
    /// Where it was, if that is elsewhere.
    pub old: Option<String>,
    /// What became of it.
    pub change: Change,
    /// Lines added; none for a binary file.
    pub added: Option<u64>,
    /// Lines removed; none for a binary file.
    pub removed: Option<u64>,
    /// How risky.
    pub risk: Risk,
}

impl Changed {
    /// Lines touched.
    pub fn lines(&self) -> u64 {
        self.added.unwrap_or(0) + self.removed.unwrap_or(0)
    }
}

fn any(globs: &[String], path: &str) -> bool {
    globs.iter().any(|glob| matcher(glob).is_ok_and(|glob| glob.is_match(path)))
}

/// How risky a file is by patterns of paths; the riskier one counts.
pub fn risk(path: &str, high: &[String], low: &[String]) -> Risk {
    if any(high, path) {
        Risk::High
    } else if any(low, path) {
        Risk::Low
    } else {
        Risk::Normal
    }
}

/// What of a change reviewers see: files with one of these extensions (all if none is named) and not
/// among the ignored ones; the riskiest first.
pub fn chosen(mut files: Vec<Changed>, extensions: &[String], ignore: &[String]) -> Vec<Changed> {
    let wanted = |path: &str| {
        extensions.is_empty()
            || extensions
                .iter()
                .any(|ext| path.ends_with(&format!(".{}", ext.trim_start_matches('.'))))
    };
    files.retain(|file| wanted(&file.path) && !any(ignore, &file.path));
    files.sort_by(|a, b| {
        (std::cmp::Reverse(a.risk), &a.path).cmp(&(std::cmp::Reverse(b.risk), &b.path))
    });
    files
}

/// Why a reviewer has nothing to do with this change; none if it has.
pub fn excused(reviewer: &Reviewer, files: &[Changed]) -> Option<String> {
    if files.is_empty() {
        return Some("no changed file is to be reviewed".to_owned());
    }
    let touches = |file: &Changed| {
        any(&reviewer.paths, &file.path)
            || file.old.as_ref().is_some_and(|old| any(&reviewer.paths, old))
    };
    if !reviewer.paths.is_empty() && !files.iter().any(touches) {
        return Some("none of its paths changed".to_owned());
    }
    let lines: u64 = files.iter().map(Changed::lines).sum();
    let least = u64::from(reviewer.min_lines);
    (lines < least).then(|| format!("{lines} changed lines, fewer than {least}"))
}

/// The files for one of several reviewers: all, or a share of about the same number of lines. Every file
/// is in exactly one share.
pub fn share(files: &[Changed], mode: ReviewMode, of: usize, at: usize) -> Vec<Changed> {
    if mode == ReviewMode::All || of < 2 {
        return files.to_vec();
    }
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(files[*i].lines()), *i));
    let mut loads = vec![(0u64, 0usize); of];
    let mut mine = Vec::new();
    for i in order {
        let least = (0..of).min_by_key(|who| (loads[*who], *who)).unwrap_or(0);
        loads[least].0 += files[i].lines().max(1);
        loads[least].1 += 1;
        if least == at {
            mine.push(i);
        }
    }
    mine.sort_unstable();
    mine.into_iter().map(|i| files[i].clone()).collect()
}
