//! Looks for byte strings in everything new commits bring, also in what a later one took out again.
//!
//! Knows nothing of what the strings mean. Memory stays small however large a file is.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mainstem_core::id::Oid;

use super::command::TIMEOUT_CHECKOUT;
use super::error::{GitError, Result};
use super::{Repo, lossy_string};

/// Shorter strings turn up by chance.
const NEEDLE_BYTES_MIN: usize = 6;
/// How much of a file is looked at in one go.
const WINDOW_BYTES: usize = 256 << 10;
/// Larger files git hands over piece by piece instead of unpacking them whole.
const BIG_FILE: &str = "core.bigFileThreshold=32m";

impl Repo {
    /// Which needles occur in any file version, in the name of any file or folder, or in any commit (message
    /// and header), that `tip` has and `base` has not; their indices, sorted. Needles below six bytes are
    /// ignored.
    pub fn find_needles_in_history(
        &self,
        base: &Oid,
        tip: &Oid,
        needles: &[Vec<u8>],
    ) -> Result<Vec<usize>> {
        let hunt = NeedleSearch::new(needles);
        if hunt.longest == 0 {
            return Ok(Vec::new());
        }
        // A replacement would show us other bytes than a push sends.
        let git = || self.git().env("GIT_NO_REPLACE_OBJECTS", "1").timeout(TIMEOUT_CHECKOUT);
        let listed = git()
            .args(["rev-list", "--objects", "--no-object-names", tip.as_str(), "--not"])
            .args([base.as_str(), "--"])
            .run()?;
        let count = listed.stdout.iter().filter(|&&b| b == b'\n').count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let reader = Arc::new(Mutex::new(BatchReader::new(hunt)));
        let theirs = Arc::clone(&reader);
        let sink = move |bytes: &[u8]| {
            theirs.lock().unwrap_or_else(PoisonError::into_inner).feed(bytes);
        };
        git()
            .config_setting(BIG_FILE)
            .args(["cat-file", "--batch", "--buffer"])
            .stdin_bytes(listed.stdout)
            .run_into_sink(Box::new(sink))?;
        let reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Not having seen everything must never look like having found nothing.
        if reader.broken || !reader.line.is_empty() || reader.seen != count {
            return Err(GitError::BadOutput {
                what: "git cat-file --batch".to_owned(),
                text: format!("{} of {count} objects: {}", reader.seen, lossy_string(&reader.line)),
            });
        }
        Ok(reader.needle_search.found.iter().copied().collect())
    }
}

/// Takes the stream of `cat-file --batch` apart.
struct BatchReader {
    needle_search: NeedleSearch,
    state: BatchReaderState,
    line: Vec<u8>,
    seen: usize,
    broken: bool,
}

#[derive(Clone, Copy)]
enum BatchReaderState {
    Header,
    Body { left: u64 },
    LineEnd,
}

impl BatchReader {
    fn new(needle_search: NeedleSearch) -> Self {
        Self {
            needle_search,
            state: BatchReaderState::Header,
            line: Vec::new(),
            seen: 0,
            broken: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while let (false, Some(&first)) = (self.broken, bytes.first()) {
            match self.state {
                BatchReaderState::Header => {
                    bytes = &bytes[1..];
                    if first == b'\n' {
                        self.read_header();
                    } else {
                        self.line.push(first);
                        self.broken = self.line.len() > 200;
                    }
                }
                BatchReaderState::Body { left } => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    self.needle_search.feed(&bytes[..here]);
                    bytes = &bytes[here..];
                    self.set_body_left(left - here as u64);
                }
                BatchReaderState::LineEnd => {
                    bytes = &bytes[1..];
                    self.broken = first != b'\n';
                    self.seen += 1;
                    self.state = BatchReaderState::Header;
                }
            }
        }
    }

    /// A header is `<id> <type> <size>`, or says that something is missing.
    fn read_header(&mut self) {
        let text = lossy_string(&self.line);
        let mut words = text.split(' ').skip(1);
        let (kind, size) = (words.next(), words.next().and_then(|size| size.parse().ok()));
        let (Some(_), Some(size), None) = (kind, size, words.next()) else {
            self.broken = true;
            return;
        };
        self.line.clear();
        self.set_body_left(size);
    }

    fn set_body_left(&mut self, left: u64) {
        if left > 0 {
            self.state = BatchReaderState::Body { left };
        } else {
            self.needle_search.finish();
            self.state = BatchReaderState::LineEnd;
        }
    }
}

/// Looks for all needles at once in bytes that come piece by piece.
struct NeedleSearch {
    by_start: HashMap<u16, Vec<(usize, Vec<u8>)>>,
    /// Which first two bytes are worth a closer look.
    starts: Vec<bool>,
    longest: usize,
    window: Vec<u8>,
    found: BTreeSet<usize>,
}

impl NeedleSearch {
    fn new(needles: &[Vec<u8>]) -> Self {
        let mut hunt = Self {
            by_start: HashMap::new(),
            starts: vec![false; 1 << 16],
            longest: 0,
            window: Vec::new(),
            found: BTreeSet::new(),
        };
        for (at, needle) in needles.iter().enumerate() {
            let &[one, two, ..] = needle.as_slice() else { continue };
            if needle.len() < NEEDLE_BYTES_MIN {
                continue;
            }
            let start = u16::from_be_bytes([one, two]);
            hunt.starts[usize::from(start)] = true;
            hunt.by_start.entry(start).or_default().push((at, needle.clone()));
            hunt.longest = hunt.longest.max(needle.len());
        }
        hunt
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.window.extend_from_slice(bytes);
        // Several times the longest needle, so that what is carried over stays the smaller part.
        if self.window.len() >= WINDOW_BYTES.max(self.longest * 4) {
            self.scan_window();
            // A needle may have begun in the last bytes.
            let done = self.window.len() - (self.longest - 1);
            self.window.drain(..done);
        }
    }

    fn finish(&mut self) {
        self.scan_window();
        self.window.clear();
    }

    fn scan_window(&mut self) {
        for (at, pair) in self.window.windows(2).enumerate() {
            let start = u16::from_be_bytes([pair[0], pair[1]]);
            if !self.starts[usize::from(start)] {
                continue;
            }
            for (index, needle) in self.by_start.get(&start).into_iter().flatten() {
                if self.window[at..].starts_with(needle) {
                    self.found.insert(*index);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_wherever_the_pieces_are_cut_and_the_window_stays_small() {
        let needle = b"s3cr3t-t0ken".to_vec();
        for shift in 0..needle.len() + 2 {
            let mut hunt = NeedleSearch::new(std::slice::from_ref(&needle));
            let mut bytes = vec![b's'; WINDOW_BYTES - shift];
            bytes.extend_from_slice(&needle);
            bytes.extend(vec![b'3'; WINDOW_BYTES * 3]);
            for piece in bytes.chunks(WINDOW_BYTES / 4) {
                hunt.feed(piece);
                assert!(hunt.window.len() < WINDOW_BYTES + needle.len(), "shift {shift}");
            }
            hunt.finish();
            assert_eq!(hunt.found, BTreeSet::from([0]), "shift {shift}");
        }
    }

    #[test]
    fn two_objects_in_a_row_do_not_make_a_needle_together() {
        let mut reader = BatchReader::new(NeedleSearch::new(&[b"abcdef".to_vec()]));
        let stream = b"1 blob 3\nabc\n2 blob 3\ndef\n3 tree 6\nabcxef\n4 blob 0\n\n";
        for byte in stream {
            reader.feed(&[*byte]);
        }
        assert!(reader.needle_search.found.is_empty() && !reader.broken);
        assert_eq!(reader.seen, 4);
        reader.feed(b"5 tree 6\nabcdef\n");
        assert_eq!(reader.needle_search.found, BTreeSet::from([0]));
        reader.feed(b"6 missing\n");
        assert!(reader.broken);
    }
}
