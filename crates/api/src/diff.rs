//! What a task changed: `diff --json`, and the same difference parsed into files and hunks.

use serde::{Deserialize, Serialize};

/// The name of the shape of a parsed difference.
pub const DIFF_SCHEMA: &str = "mainstem.diff/1";

/// What `diff --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffReport {
    pub task: String,
    /// Whose work it is, in words.
    pub what: String,
    pub base: String,
    pub tip: String,
    pub files: Vec<DiffReportFile>,
    pub insertions: u64,
    pub deletions: u64,
    /// The patch; absent with `--stat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// How much one file changed; null counts mean a binary file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffReportFile {
    pub path: String,
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// A difference as files and hunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedDiff {
    pub schema: String,
    pub task: String,
    /// The attempt whose work it is; null for work as it landed.
    pub attempt: Option<u32>,
    pub base: String,
    pub tip: String,
    pub kind: String,
    pub insertions: u64,
    pub deletions: u64,
    pub files: Vec<ParsedDiffFile>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedDiffFile {
    pub path: String,
    /// The path before a rename; null otherwise.
    pub old_path: Option<String>,
    /// `added`, `deleted`, `renamed` or `modified`.
    pub change: String,
    pub binary: bool,
    pub insertions: u64,
    pub deletions: u64,
    pub hunks: Vec<ParsedDiffHunk>,
}

/// Changed lines that stand together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParsedDiffHunk {
    pub old_start: u64,
    pub old_lines: u64,
    pub new_start: u64,
    pub new_lines: u64,
    /// The text after the second `@@`.
    pub section: String,
    /// The lines with their signs.
    pub lines: String,
}
