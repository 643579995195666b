//! What is wrong with a text that a person wrote: message, place and cure.
//!
//! Knows nothing of plans or settings, and prints nothing: faces render a [`Diagnostic`] against
//! the source they read.

use std::fmt;
use std::ops::Range;

/// One thing wrong, where, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// A stable name such as `plan::cycle`, for people to search and scripts to match.
    pub code: &'static str,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Bytes of the source it is about; empty for the file as a whole.
    pub span: Range<usize>,
    /// Line of `span`'s start, from 1.
    pub line: usize,
    /// Column of `span`'s start in characters, from 1.
    pub column: usize,
    /// How to mend it.
    pub help: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.line, self.column, self.message, self.code)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

/// Turns byte offsets into lines and columns, for one source text.
#[derive(Debug)]
pub struct LineIndex<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    /// Indexes the line starts of `source`.
    pub fn new(source: &'a str) -> Self {
        let starts =
            std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { source, starts }
    }

    /// Line and column of a byte offset, both from 1.
    pub fn line_and_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        (line, self.source[start..offset].chars().count() + 1)
    }

    /// A diagnostic at `span`.
    pub fn diagnostic_at(
        &self,
        code: &'static str,
        span: Range<usize>,
        message: String,
    ) -> Diagnostic {
        let (line, column) = self.line_and_column(span.start);
        Diagnostic { code, message, span, line, column, help: None }
    }
}

impl Diagnostic {
    /// The same with a cure.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The known word nearest to a mistyped one, if any is near enough to be meant.
pub fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (edit_distance(word, candidate), candidate))
        .filter(|(d, candidate)| *d <= 1 + candidate.chars().count() / 3)
        .min_by_key(|(d, _)| *d)
        .map(|(_, candidate)| candidate)
}

/// Edit distance with neighbouring swaps, over a bounded prefix so that long junk stays cheap.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let width = b.len() + 1;
    let mut d = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            d[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut best = (d[(i - 1) * width + j] + 1)
                    .min(d[i * width + j - 1] + 1)
                    .min(d[(i - 1) * width + j - 1] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(d[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    d[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let lines = LineIndex::new("ab\né!x");
        assert_eq!(lines.line_and_column(0), (1, 1));
        assert_eq!(lines.line_and_column(2), (1, 3));
        assert_eq!(lines.line_and_column(3), (2, 1));
        assert_eq!(lines.line_and_column(5), (2, 2));
        assert_eq!(lines.line_and_column(999), (2, 4));
    }

    #[test]
    fn the_nearest_word_is_found_only_when_near() {
        assert_eq!(nearest_word("cluade", ["claude", "codex"]), Some("claude"));
        assert_eq!(nearest_word("zzz", ["claude", "codex"]), None);
    }
}
