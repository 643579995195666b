//! Writes a pack of whole objects in memory, for `git index-pack` to read.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::loose_objects::{GitObjectKind, hash_parts};

/// Where the number of objects stands.
const COUNT: std::ops::Range<usize> = 8..12;

/// A pack being written.
pub(super) struct PackWriter {
    bytes: Vec<u8>,
    count: u32,
    sha256: bool,
}

impl PackWriter {
    pub(super) fn new(sha256: bool) -> Self {
        Self { bytes: b"PACK\0\0\0\x02\0\0\0\0".to_vec(), count: 0, sha256 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How long it is by now.
    pub(super) fn byte_count(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn add(&mut self, kind: GitObjectKind, body: &[u8]) {
        let number: u8 = match kind {
            GitObjectKind::Commit => 1,
            GitObjectKind::Tree => 2,
            GitObjectKind::Blob => 3,
        };
        // Four bits of the length go with the kind, the others seven by seven, the lowest first.
        let mut rest = body.len() >> 4;
        let mut byte = (number << 4) | low_bits(body.len(), 0x0f);
        while rest > 0 {
            self.bytes.push(byte | 0x80);
            byte = low_bits(rest, 0x7f);
            rest >>= 7;
        }
        self.bytes.push(byte);
        let mut compressed = ZlibEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory cannot fail.
        let _ = compressed.write_all(body);
        self.bytes.extend(compressed.finish().unwrap_or_default());
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes[COUNT].copy_from_slice(&self.count.to_be_bytes());
        let sum = hash_parts(&[&self.bytes], self.sha256);
        self.bytes.extend(sum);
        self.bytes
    }
}

fn low_bits(number: usize, mask: u8) -> u8 {
    u8::try_from(number & usize::from(mask)).unwrap_or(0)
}
