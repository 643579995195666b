//! Reads the lines that a piece of history adds, commit by commit: what was taken out again later is in the
//! history all the same. Knows nothing of what the lines mean.

use std::sync::{Arc, Mutex, PoisonError};

use mainstem_core::id::Oid;

use super::command::TIMEOUT_CHECKOUT;
use super::error::{GitError, Result};
use super::{Repo, lossy_string};

/// Longest line looked at as a whole; the rest of it is looked at as the next.
const LINE_BYTES: usize = 1 << 20;
/// Called with a file, the number of a line in it and the line.
pub type AddedLineCallback = Box<dyn FnMut(&str, u32, &[u8]) + Send>;

struct PatchReader {
    seen: AddedLineCallback,
    line: Vec<u8>,
    path: String,
    number: u32,
    /// Lines of the present hunk that are still to come: removed and added.
    left: (u32, u32),
}

impl Repo {
    /// Shows every line that a commit between `base` and `tip` adds to a text file.
    pub fn for_each_added_line(
        &self,
        base: &Oid,
        tip: &Oid,
        seen: AddedLineCallback,
    ) -> Result<()> {
        let patch =
            PatchReader { seen, line: Vec::new(), path: String::new(), number: 0, left: (0, 0) };
        let patch = Arc::new(Mutex::new(patch));
        let shared = Arc::clone(&patch);
        let sink = move |bytes: &[u8]| {
            shared.lock().unwrap_or_else(PoisonError::into_inner).feed(bytes);
        };
        let range = format!("{base}..{tip}");
        self.git()
            .env("GIT_ATTR_SOURCE", base.as_str())
            .args([
                "log",
                "--reverse",
                "--format=",
                "-p",
                "-U0",
                "-m",
                "--no-renames",
                "--no-color",
            ])
            .args([
                "--no-ext-diff",
                "--no-textconv",
                "--text",
                "--src-prefix=a/",
                "--dst-prefix=b/",
            ])
            .args(["--end-of-options", &range, "--"])
            .timeout(TIMEOUT_CHECKOUT)
            .run_into_sink(Box::new(sink))?;
        let mut patch = patch.lock().unwrap_or_else(PoisonError::into_inner);
        patch.finish_line();
        if patch.left != (0, 0) {
            // Not having seen everything must never look like having seen nothing.
            return Err(GitError::BadOutput {
                what: "git log -p".to_owned(),
                text: format!("the patch of {} is cut off", patch.path),
            });
        }
        Ok(())
    }
}

impl Repo {
    /// Names of files, messages, and names of people that the commits between `base` and `tip` bring, line by
    /// line.
    pub fn list_history_metadata(&self, base: &Oid, tip: &Oid) -> Result<Vec<String>> {
        let range = format!("{base}..{tip}");
        let answer = self
            .git()
            .args(["log", "-z", "--name-only", "--no-renames", "-m", "--no-color"])
            .args(["--format=format:%an%n%ae%n%cn%n%ce%n%B%n", "--end-of-options", &range, "--"])
            .timeout(TIMEOUT_CHECKOUT)
            .run()?;
        let lines = answer.stdout.split(|&b| b == 0 || b == b'\n');
        Ok(lines.filter(|line| !line.is_empty()).map(lossy_string).collect())
    }
}

impl PatchReader {
    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            for part in text.chunks(LINE_BYTES) {
                self.line.extend_from_slice(part);
                if self.line.len() >= LINE_BYTES {
                    self.report_long_line();
                }
            }
            if ends {
                self.finish_line();
            }
        }
    }

    /// A line without an end: shown so far, with an overlap in case something lies across.
    fn report_long_line(&mut self) {
        const OVERLAP: usize = 4096;
        if self.line.first() == Some(&b'+') && self.left.1 > 0 {
            (self.seen)(&self.path, self.number, &self.line[1..]);
        }
        let sign = self.line[0];
        let keep = self.line.len() - OVERLAP;
        self.line.drain(..keep);
        self.line.insert(0, sign);
    }

    fn finish_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match (line.first(), self.left) {
            (Some(b'-'), (old, new)) if old > 0 => self.left = (old - 1, new),
            (Some(b'+'), (old, new)) if new > 0 => {
                (self.seen)(&self.path, self.number, &line[1..]);
                self.number += 1;
                self.left = (old, new - 1);
            }
            (_, (0, 0)) => self.read_heading(&line),
            // "No newline at end of file".
            _ => {}
        }
    }

    fn read_heading(&mut self, line: &[u8]) {
        if let Some(path) = line.strip_prefix(b"+++ ") {
            let path = lossy_string(path);
            let path = path.trim_end_matches('\t').trim_matches('"');
            self.path = path.strip_prefix("b/").unwrap_or(path).to_owned();
        } else if let Some(hunk) = line.strip_prefix(b"@@ -") {
            let text = lossy_string(hunk);
            let mut words = text.split(' ');
            let count = |word: &str| {
                word.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok()).unwrap_or(0)
            };
            let old = words.next().map_or(0, count);
            let new = words.next().unwrap_or_default().trim_start_matches('+');
            self.number = new.split(',').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            self.left = (old, count(new));
        }
    }
}
