//! The tool's own lines, kept for people who want to see exactly what was said.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// More is not kept.
const BYTES_MAX: u64 = 64 << 20;

/// An open transcript. One that cannot be written is no reason to stop working.
pub(super) struct DriveTranscript {
    file: Option<File>,
    left: u64,
}

impl DriveTranscript {
    pub(super) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).ok();
        let used = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        Self { file, left: BYTES_MAX.saturating_sub(used) }
    }

    /// Keeps a line and which way it went.
    pub(super) fn append_line(&mut self, way: &str, line: &[u8]) {
        let Some(file) = &mut self.file else {
            return;
        };
        let mut text = Vec::with_capacity(line.len() + 8);
        text.extend_from_slice(way.as_bytes());
        text.push(b' ');
        text.extend_from_slice(line);
        text.push(b'\n');
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if bytes > self.left || file.write_all(&text).is_err() {
            self.file = None;
            return;
        }
        self.left -= bytes;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_transcript_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let mut transcript = DriveTranscript::open(&path);
        let line = vec![b'x'; 1 << 20];
        for _ in 0..80 {
            transcript.append_line("out", &line);
        }
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert!(bytes <= BYTES_MAX && bytes > BYTES_MAX - (2 << 20), "{bytes}");
        DriveTranscript::open(Path::new("/nonexistent/x")).append_line("in", b"nobody minds");
    }
}
