//! What a task changed, as it landed or as an attempt left it, and patches parsed into files and hunks.

use mainstem_api::diff::{
    DIFF_SCHEMA, DiffReport, DiffReportFile, ParsedDiff, ParsedDiffFile, ParsedDiffHunk,
};
use mainstem_core::id::{Oid, TaskIx};
use mainstem_host::git::{GitError, Repo};

use crate::query::attempts::AttemptHistory;
use crate::query::{RunLookupError, RunReader};

/// The two commits between which a task's work lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffRange {
    pub base: Oid,
    pub tip: Oid,
    /// The attempt whose work it is; none for work as it landed.
    pub attempt: Option<u32>,
}

/// The work of a task, or its attempts if none of them has work that git still has.
#[derive(Debug)]
pub enum TaskWork {
    Found(DiffRange),
    Missing(Vec<AttemptHistory>),
}

impl RunReader {
    /// Finds the work of a task: as it landed, or of the newest attempt that has any, or of the attempt asked for.
    pub fn find_work(
        &self,
        repo: &Repo,
        t: TaskIx,
        attempt: Option<u32>,
    ) -> Result<TaskWork, RunLookupError> {
        if let (None, Some(landing)) = (attempt, &self.machine.tasks().get(t).landed) {
            let parent = repo.resolve_commit(&format!("{}^1", landing.commit))?;
            let base = if landing.empty { None } else { parent };
            let base = base.unwrap_or_else(|| landing.commit.clone());
            let tip = landing.commit.clone();
            return Ok(TaskWork::Found(DiffRange { base, tip, attempt: None }));
        }
        let known = self.attempts(self.machine.graph().id(t).as_str())?;
        let wanted = |found: &&AttemptHistory| attempt.is_none_or(|n| found.number == n);
        for found in known.iter().rev().filter(wanted) {
            if let Some((base, tip)) = found.work_range(repo)? {
                let attempt = Some(found.number);
                return Ok(TaskWork::Found(DiffRange { base, tip, attempt }));
            }
        }
        Ok(TaskWork::Missing(known))
    }
}

/// The difference for `diff --json`, with its patch if that is wanted.
pub fn describe_diff(
    repo: &Repo,
    task: &str,
    range: &DiffRange,
    with_patch: bool,
) -> Result<DiffReport, GitError> {
    let changes = repo.diff_stats(&range.base, &range.tip)?;
    let patch = with_patch.then(|| repo.diff(&range.base, &range.tip, false)).transpose()?;
    let files = changes.files.into_iter().map(|file| DiffReportFile {
        path: file.path,
        added: file.added,
        removed: file.removed,
    });
    Ok(DiffReport {
        task: task.to_owned(),
        what: describe_work(task, range),
        base: range.base.to_string(),
        tip: range.tip.to_string(),
        files: files.collect(),
        insertions: changes.insertions,
        deletions: changes.deletions,
        diff: patch.map(|patch| String::from_utf8_lossy(&patch).into_owned()),
    })
}

/// Whose work a difference is, in words.
pub fn describe_work(task: &str, range: &DiffRange) -> String {
    match range.attempt {
        Some(attempt) => format!("attempt {attempt} of {task}"),
        None => format!("{task} as it landed"),
    }
}

/// The difference as files and hunks.
pub fn parse_diff(repo: &Repo, task: &str, range: &DiffRange) -> Result<ParsedDiff, GitError> {
    let patch = repo.diff(&range.base, &range.tip, false)?;
    let files = parse_patch(&String::from_utf8_lossy(&patch));
    Ok(ParsedDiff {
        schema: DIFF_SCHEMA.to_owned(),
        task: task.to_owned(),
        attempt: range.attempt,
        base: range.base.to_string(),
        tip: range.tip.to_string(),
        kind: if range.attempt.is_some() { "work" } else { "landed" }.to_owned(),
        insertions: files.iter().map(|file| file.insertions).sum(),
        deletions: files.iter().map(|file| file.deletions).sum(),
        files,
    })
}

/// Files and hunks of a patch that `git diff` wrote with the prefixes `a/` and `b/`.
pub fn parse_patch(patch: &str) -> Vec<ParsedDiffFile> {
    let mut files: Vec<ParsedDiffFile> = Vec::new();
    // Lines that the hunk still has on the old and the new side; a line of a file may look like a header.
    let mut left = (0_u64, 0_u64);
    for line in patch.split_terminator('\n') {
        if let Some(names) = line.strip_prefix("diff --git ")
            && left == (0, 0)
        {
            files.push(ParsedDiffFile {
                path: path_of_header(names),
                change: "modified".to_owned(),
                ..ParsedDiffFile::default()
            });
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        if left != (0, 0) || line.starts_with('\\') {
            add_hunk_line(file, line, &mut left);
        } else if let Some(hunk) = parse_hunk_header(line) {
            left = (hunk.old_lines, hunk.new_lines);
            file.hunks.push(hunk);
        } else {
            apply_file_header(file, line);
        }
    }
    files
}

fn add_hunk_line(file: &mut ParsedDiffFile, line: &str, (old, new): &mut (u64, u64)) {
    match line.as_bytes().first() {
        Some(b'+') => {
            file.insertions += 1;
            *new = new.saturating_sub(1);
        }
        Some(b'-') => {
            file.deletions += 1;
            *old = old.saturating_sub(1);
        }
        Some(b'\\') => {}
        _ => {
            *old = old.saturating_sub(1);
            *new = new.saturating_sub(1);
        }
    }
    if let Some(hunk) = file.hunks.last_mut() {
        hunk.lines.push_str(line);
        hunk.lines.push('\n');
    }
}

fn apply_file_header(file: &mut ParsedDiffFile, line: &str) {
    if line.starts_with("new file mode ") {
        file.change = "added".to_owned();
    } else if line.starts_with("deleted file mode ") {
        file.change = "deleted".to_owned();
    } else if let Some(from) = line.strip_prefix("rename from ") {
        file.change = "renamed".to_owned();
        file.old_path = Some(unquote_path(from));
    } else if let Some(to) = line.strip_prefix("rename to ") {
        file.path = unquote_path(to);
    } else if let Some(name) = line.strip_prefix("+++ ").or_else(|| line.strip_prefix("--- ")) {
        // Git ends a name with spaces in it with a tab.
        let name = unquote_path(name.strip_suffix('\t').unwrap_or(name));
        if let Some(path) = name.strip_prefix("b/").or_else(|| name.strip_prefix("a/")) {
            path.clone_into(&mut file.path);
        }
    } else if line.starts_with("Binary files ") || line == "GIT binary patch" {
        file.binary = true;
    }
}

/// The path in `a/PATH b/PATH`; exact for files that were not renamed, whose names are the only ones that matter here.
fn path_of_header(names: &str) -> String {
    if names.starts_with('"') {
        let quoted = unquote_path(names.split_inclusive("\" ").next().unwrap_or(names).trim_end());
        return quoted.strip_prefix("a/").unwrap_or(&quoted).to_owned();
    }
    let half = names.len().saturating_sub(1) / 2;
    let first = names.get(..half).unwrap_or(names);
    first.strip_prefix("a/").unwrap_or(first).to_owned()
}

fn parse_hunk_header(line: &str) -> Option<ParsedDiffHunk> {
    let (places, section) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = places.split_once(" +")?;
    let ((old_start, old_lines), (new_start, new_lines)) = (parse_span(old)?, parse_span(new)?);
    let section = section.trim_start().to_owned();
    let lines = String::new();
    Some(ParsedDiffHunk { old_start, old_lines, new_start, new_lines, section, lines })
}

/// The first line and how many; one if git leaves the number out.
fn parse_span(span: &str) -> Option<(u64, u64)> {
    match span.split_once(',') {
        Some((start, lines)) => Some((start.parse().ok()?, lines.parse().ok()?)),
        None => Some((span.parse().ok()?, 1)),
    }
}

/// A path as git writes it: in quotes with escapes if it has unusual characters.
fn unquote_path(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'a') => bytes.push(7),
            Some(b'b') => bytes.push(8),
            Some(b'v') => bytes.push(11),
            Some(b'f') => bytes.push(12),
            Some(first @ b'0'..=b'3') => {
                let mut value = first - b'0';
                for digit in rest.by_ref().take(2) {
                    value = value.wrapping_mul(8).wrapping_add(digit.wrapping_sub(b'0'));
                }
                bytes.push(value);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_parsed_into_files_and_hunks() {
        let patch = "diff --git a/src/a b.rs b/src/a b.rs\nindex 1..2 100644\n--- a/src/a b.rs\t\n+++ b/src/a b.rs\t\n\
                     @@ -1,2 +1,3 @@ fn main() {\n one\n--- old\n+++ new\n+two\n@@ -9 +10 @@\n-x\n\\ No newline at end of file\n+y\n\
                     diff --git a/old.txt b/new.txt\nsimilarity index 100%\nrename from old.txt\nrename to new.txt\n\
                     diff --git a/pic.png b/pic.png\nnew file mode 100644\nindex 0..1\nBinary files /dev/null and b/pic.png differ\n\
                     diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n";
        let files = parse_patch(patch);
        let brief: Vec<_> = files
            .iter()
            .map(|f| (f.path.as_str(), f.change.as_str(), f.insertions, f.deletions, f.hunks.len()))
            .collect();
        assert_eq!(
            brief,
            [
                ("src/a b.rs", "modified", 3, 2, 2),
                ("new.txt", "renamed", 0, 0, 0),
                ("pic.png", "added", 0, 0, 0),
                ("gone", "deleted", 0, 1, 1),
            ]
        );
        assert_eq!(files[1].old_path.as_deref(), Some("old.txt"));
        assert!(files[2].binary && !files[0].binary);
        let first = &files[0].hunks[0];
        assert_eq!(
            (first.old_start, first.old_lines, first.new_start, first.new_lines),
            (1, 2, 1, 3)
        );
        assert_eq!(first.section, "fn main() {");
        assert_eq!(first.lines, " one\n--- old\n+++ new\n+two\n");
        assert_eq!(files[0].hunks[1].lines, "-x\n\\ No newline at end of file\n+y\n");
    }

    #[test]
    fn quoted_paths_are_read_as_they_are_on_disk() {
        assert_eq!(unquote_path("\"a\\tb \\303\\274 \\\"x\\\"\""), "a\tb ü \"x\"");
        assert_eq!(unquote_path("plain"), "plain");
        let patch = "diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/\\303\\274\"\n@@ -0,0 +1 @@\n+x\n";
        assert_eq!(parse_patch(patch)[0].path, "ü");
    }
}
