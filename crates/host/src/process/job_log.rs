//! The bounded log of a job. Writer: the supervisor. Readers: anyone, at any time, from any offset.
//!
//! A record is one line, `<ms since start> <o|e> <bytes>\n`; `O` and `E` mean that the line goes on in the
//! next record. Offsets count the bytes of all records ever written, so they only grow. `output` holds
//! the head; the tail is in files named `output.<offset of their first byte>`, of which the oldest is
//! removed when a new one begins. A file that goes on in another one ends with a mark that is no part
//! of the count. What is no longer kept is told in bytes that the command printed: `output.lost` says how many
//! bytes of records went, and how many of these were ours. Knows nothing of what the lines say.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{JobPids, PIDS, json_file};

const HEAD: &str = "output";
const MARK: &[u8] = b"0 > \n";
/// Beside the head: bytes of records that are gone, and how many of them the command did not print.
const LOST: &str = "output.lost";
/// The tail is kept in this many files, so that dropping one loses a small part of it.
const TAIL_FILES: u64 = 4;
const SMALLEST: u64 = 4096;
const BUFFER: usize = 128 * 1024;

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    /// The offset after this record: where to resume.
    pub offset: u64,
    /// When it was read from the command.
    pub at_ms: i64,
    /// Which stream it was on.
    pub stream: OutputStream,
    /// Its bytes without the newline; any bytes, not only UTF-8.
    pub text: Vec<u8>,
    /// True if the line was too long for one record and goes on in the next of this stream.
    pub continues: bool,
}

/// A piece of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputPage {
    /// The records, in order.
    pub lines: Vec<OutputLine>,
    /// Where to go on reading.
    pub next: u64,
    /// How many bytes before the first line are no longer kept.
    pub dropped: u64,
}

/// Reads about `max` bytes of records from the offset `from`; at least one record if there is one.
pub fn read_job_output(dir: &Path, from: u64, max: usize) -> io::Result<OutputPage> {
    let mut reader = JobLogReader::new(dir.to_owned(), from);
    let mut output = OutputPage { next: from, ..OutputPage::default() };
    let mut used = 0;
    while used < max && output.lines.is_empty() {
        let batch = reader.read(max, true)?;
        used += batch.bytes;
        output.dropped += batch.dropped;
        output.lines = batch.lines;
        output.next = reader.at;
        if !batch.more {
            break;
        }
    }
    Ok(output)
}

/// Writes records and keeps the log within its cap.
pub(super) struct JobLogWriter {
    dir: PathBuf,
    file: File,
    /// Offset of the current file's first byte, and how many bytes of records it holds.
    base: u64,
    len: u64,
    limit: u64,
    tail_limit: u64,
    /// Earlier files of the tail: offset, bytes of records, and how many of these are ours.
    tail: VecDeque<(u64, u64, u64)>,
    /// The same of the current file.
    framing: u64,
    line_bytes: usize,
    buffer: Vec<u8>,
    dropped: u64,
    /// Bytes of records in files that are gone, and how many of these were ours.
    lost: (u64, u64),
    blocked_until: Option<Instant>,
}

impl JobLogWriter {
    /// Begins the log; at most about `cap` bytes are kept.
    pub(super) fn create_log(dir: &Path, cap: u64, line_bytes: usize) -> io::Result<Self> {
        let cap = cap.max(SMALLEST);
        let head = cap / 8;
        let tail_limit = (cap - head) / TAIL_FILES;
        // A record must fit into a file twice, or the cap could not be kept.
        let longest = usize::try_from(head.min(tail_limit) / 2).unwrap_or(usize::MAX);
        Ok(Self {
            dir: dir.to_owned(),
            file: create_private_file(&dir.join(HEAD))?,
            base: 0,
            len: 0,
            limit: head,
            tail_limit,
            tail: VecDeque::new(),
            framing: 0,
            lost: (0, 0),
            line_bytes: line_bytes.clamp(64, longest.max(64)),
            buffer: Vec::with_capacity(BUFFER),
            dropped: 0,
            blocked_until: None,
        })
    }

    /// The longest line kept in one record.
    pub(super) fn max_line_bytes(&self) -> usize {
        self.line_bytes
    }

    /// The offset after the last record, and how much of what was printed is no longer kept.
    pub(super) fn byte_totals(&self) -> (u64, u64) {
        (self.base + self.len + self.buffer.len() as u64, self.dropped)
    }

    /// Adds one record: `prefix` is the time and the stream, `bytes` hold no newline.
    pub(super) fn write_record(&mut self, prefix: &[u8], bytes: &[u8]) {
        let size = prefix.len() + bytes.len() + 1;
        let filled = self.len + self.buffer.len() as u64;
        if filled > 0 && filled + size as u64 > self.limit {
            self.flush();
            if !self.rotate() {
                self.dropped += (size - count_framing_bytes(prefix)) as u64;
                return;
            }
        }
        self.framing += count_framing_bytes(prefix) as u64;
        self.buffer.extend_from_slice(prefix);
        self.buffer.extend_from_slice(bytes);
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    /// Hands what is buffered to the system; what a full disk does not take is dropped and counted.
    pub(super) fn flush(&mut self) {
        let mut written = 0;
        while written < self.buffer.len() {
            match self.file.write_at(&self.buffer[written..], self.len + written as u64) {
                Ok(0) => break,
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if written < self.buffer.len() {
            // Readers take whole records only, so the cut goes after the last whole one.
            let whole =
                self.buffer[..written].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
            self.dropped += (self.buffer.len() - whole) as u64;
            written = whole;
            let _ = self.file.set_len(self.len + written as u64);
        }
        self.len += written as u64;
        self.buffer.clear();
    }

    /// Flushes and waits until the log is on the disk, as far as the disk takes it.
    pub(super) fn sync(&mut self) {
        self.flush();
        let _ = self.file.sync_data();
    }

    fn rotate(&mut self) -> bool {
        if self.blocked_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let start = self.base + self.len;
        let path = self.dir.join(format!("{HEAD}.{start}"));
        let Ok(next) = create_private_file(&path) else {
            self.blocked_until = Some(Instant::now() + Duration::from_millis(200));
            return false;
        };
        // A reader that misses the mark finds the next file when the job has ended.
        let _ = self.file.write_all_at(MARK, self.len);
        if self.base > 0 {
            self.tail.push_back((self.base, self.len, self.framing));
        }
        while self.tail.len() as u64 >= TAIL_FILES {
            let Some((start, len, framing)) = self.tail.pop_front() else { break };
            self.dropped += len.saturating_sub(framing);
            self.lost = (self.lost.0 + len, self.lost.1 + framing);
            // Before the file goes: whoever finds it gone finds the count. Without it all bytes are told.
            let (bytes, framing) = self.lost;
            let _ = fs::write(self.dir.join(LOST), format!("{bytes} {framing}\n"));
            let _ = fs::remove_file(self.dir.join(format!("{HEAD}.{start}")));
        }
        (self.file, self.base, self.len, self.limit) = (next, start, 0, self.tail_limit);
        self.framing = 0;
        self.blocked_until = None;
        true
    }
}

/// How much of a record the command did not print: its prefix, and the line end of a line that goes on.
fn count_framing_bytes(prefix: &[u8]) -> usize {
    prefix.len() + usize::from(prefix.iter().any(u8::is_ascii_uppercase))
}

/// Output may hold secrets: only its owner reads it.
fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
}

/// Cuts one stream into lines and records them.
pub(super) struct JobLineSplitter {
    tag: u8,
    partial: Vec<u8>,
    split: bool,
}

impl JobLineSplitter {
    /// Lines of the stream with this tag (`o` or `e`).
    pub(super) fn new(tag: u8) -> Self {
        Self { tag, partial: Vec::new(), split: false }
    }

    /// Records the whole lines of `chunk`; `seen` gets each line that fits into one record.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        ms: u64,
        log: &mut JobLogWriter,
        seen: &mut impl FnMut(&[u8]),
    ) {
        let prefix = format!("{ms} {} ", char::from(self.tag)).into_bytes();
        let split = format!("{ms} {} ", char::from(self.tag.to_ascii_uppercase())).into_bytes();
        let longest = log.max_line_bytes();
        let mut rest = chunk;
        while !rest.is_empty() {
            let mut after = rest;
            // Reading from a slice cannot fail.
            let n = after.skip_until(b'\n').unwrap_or(rest.len());
            let (mut piece, ended) = match rest[..n].strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (&rest[..n], false),
            };
            rest = after;
            while self.partial.len() + piece.len() > longest {
                let (fits, more) = piece.split_at(longest - self.partial.len());
                self.partial.extend_from_slice(fits);
                log.write_record(&split, &self.partial);
                self.partial.clear();
                self.split = true;
                piece = more;
            }
            if !ended {
                self.partial.extend_from_slice(piece);
            } else if self.partial.is_empty() {
                log.write_record(&prefix, piece);
                self.finish_line(piece, seen);
            } else {
                self.partial.extend_from_slice(piece);
                let line = std::mem::take(&mut self.partial);
                log.write_record(&prefix, &line);
                self.finish_line(&line, seen);
            }
        }
    }

    fn finish_line(&mut self, line: &[u8], seen: &mut impl FnMut(&[u8])) {
        if !std::mem::take(&mut self.split) {
            seen(line);
        }
    }

    /// Records what came after the last newline.
    pub(super) fn finish(&mut self, ms: u64, log: &mut JobLogWriter) {
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            log.write_record(format!("{ms} {} ", char::from(self.tag)).as_bytes(), &line);
        }
    }
}

/// Reads records from an offset on; keeps no file open.
pub(super) struct JobLogReader {
    dir: PathBuf,
    /// The offset of the next record.
    pub(super) at: u64,
    /// The file in which it is, by its first offset; unknown before the first read.
    base: Option<u64>,
    started_at_ms: Option<i64>,
}

/// What one read found.
#[derive(Default)]
pub(super) struct JobLogBatch {
    pub(super) lines: Vec<OutputLine>,
    pub(super) dropped: u64,
    pub(super) bytes: usize,
    /// Reading again at once may find more.
    pub(super) more: bool,
}

impl JobLogReader {
    pub(super) fn new(dir: PathBuf, at: u64) -> Self {
        Self { dir, at, base: None, started_at_ms: None }
    }

    /// Reads about `max` bytes. `last` says that the writer may be gone, so that a file without its
    /// mark may nevertheless go on in another one.
    pub(super) fn read(&mut self, max: usize, last: bool) -> io::Result<JobLogBatch> {
        let mut batch = JobLogBatch::default();
        let base = match self.base {
            Some(base) => base,
            None => self.locate_file(&mut batch)?,
        };
        let file = match File::open(self.file_path(base)) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // The head appears with the first write; a tail file was dropped while we were behind.
                self.base = None;
                batch.more = base > 0;
                return Ok(batch);
            }
            Err(e) => return Err(e),
        };
        let started = self.read_start_time()?;
        let bytes = read_records(&file, self.at - base, max.max(64))?;
        batch.bytes = bytes.len();
        let mut ended = false;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            if line == MARK {
                ended = true;
                break;
            }
            self.at += line.len() as u64;
            match parse_record(line, started, self.at) {
                Some(line) => batch.lines.push(line),
                None => batch.dropped += line.len() as u64,
            }
        }
        batch.more = !bytes.is_empty();
        if ended || (last && bytes.is_empty()) {
            batch.more = self.advance_to_next_file(base, &mut batch)?;
        }
        Ok(batch)
    }

    fn file_path(&self, base: u64) -> PathBuf {
        if base == 0 { self.dir.join(HEAD) } else { self.dir.join(format!("{HEAD}.{base}")) }
    }

    fn read_start_time(&mut self) -> io::Result<i64> {
        if self.started_at_ms.is_none() {
            self.started_at_ms =
                json_file::read_json::<JobPids>(&self.dir, PIDS)?.map(|pids| pids.started_at_ms);
        }
        Ok(self.started_at_ms.unwrap_or(0))
    }

    /// Moves to the next file, if there is one.
    fn advance_to_next_file(&mut self, base: u64, batch: &mut JobLogBatch) -> io::Result<bool> {
        let next = self.list_tail_files()?.into_iter().find(|&b| b > base && b >= self.at);
        if let Some(next) = next {
            batch.dropped += self.estimate_printed_bytes(next - self.at);
            (self.at, self.base) = (next, Some(next));
        }
        Ok(next.is_some())
    }

    /// Finds the file that holds the current offset, or the first one after it.
    fn locate_file(&mut self, batch: &mut JobLogBatch) -> io::Result<u64> {
        let tail = self.list_tail_files()?;
        let mut base = tail.iter().copied().rfind(|&b| b <= self.at).unwrap_or(0);
        if base == 0
            && let Some(&first) = tail.first()
            && self.at + MARK.len() as u64 >= fs::metadata(self.file_path(0))?.len()
        {
            batch.dropped += self.estimate_printed_bytes(first - self.at);
            (self.at, base) = (first, first);
        }
        self.base = Some(base);
        Ok(base)
    }

    /// How much of so many bytes of records that are gone the command had printed: exactly if it is all of them,
    /// else by their share.
    fn estimate_printed_bytes(&self, gone: u64) -> u64 {
        let lost = || {
            let text = fs::read_to_string(self.dir.join(LOST)).ok()?;
            let (bytes, framing) = text.trim().split_once(' ')?;
            Some((bytes.parse::<u64>().ok()?, framing.parse::<u64>().ok()?))
        };
        match lost() {
            Some((bytes, framing)) if bytes > 0 && framing <= bytes => {
                let share = u128::from(gone) * u128::from(framing) / u128::from(bytes);
                gone - u64::try_from(share).unwrap_or(0)
            }
            _ => gone,
        }
    }

    fn list_tail_files(&self) -> io::Result<Vec<u64>> {
        let mut starts = Vec::new();
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(starts),
            Err(e) => return Err(e),
        };
        for entry in entries {
            let name = entry?.file_name();
            let start = name.to_str().and_then(|n| n.strip_prefix(HEAD)?.strip_prefix('.'));
            starts.extend(start.and_then(|s| s.parse::<u64>().ok()));
        }
        starts.sort_unstable();
        Ok(starts)
    }
}

/// Whole records from `at` on: about `max` bytes, more if the first record is longer.
fn read_records(file: &File, at: u64, max: usize) -> io::Result<Vec<u8>> {
    let available =
        usize::try_from(file.metadata()?.len().saturating_sub(at)).unwrap_or(usize::MAX);
    let mut want = max.min(available);
    let mut bytes = Vec::new();
    loop {
        let have = bytes.len();
        bytes.resize(want, 0);
        let mut filled = have;
        while filled < want {
            match file.read_at(&mut bytes[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        bytes.truncate(filled);
        if let Some(end) = bytes.iter().rposition(|&b| b == b'\n') {
            bytes.truncate(end + 1);
            return Ok(bytes);
        }
        if filled < want || want >= available {
            bytes.clear();
            return Ok(bytes);
        }
        want = want.saturating_mul(2).min(available);
    }
}

fn parse_record(line: &[u8], started_at_ms: i64, offset: u64) -> Option<OutputLine> {
    let line = line.strip_suffix(b"\n")?;
    let space = line.iter().take(21).position(|&b| b == b' ')?;
    let ms: i64 = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let [tag, b' ', text @ ..] = &line[space + 1..] else { return None };
    let stream = match tag.to_ascii_lowercase() {
        b'o' => OutputStream::Stdout,
        b'e' => OutputStream::Stderr,
        _ => return None,
    };
    Some(OutputLine {
        offset,
        at_ms: started_at_ms.saturating_add(ms),
        stream,
        text: text.to_vec(),
        continues: tag.is_ascii_uppercase(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn write(log: &mut JobLogWriter, from: usize, to: usize) {
        let mut lines = JobLineSplitter::new(b'o');
        for i in from..to {
            lines.feed(format!("line {i}\n").as_bytes(), 5, log, &mut |_| {});
        }
        log.flush();
    }

    fn texts(output: &OutputPage) -> Vec<String> {
        output.lines.iter().map(|l| String::from_utf8_lossy(&l.text).into_owned()).collect()
    }

    fn read_all(dir: &Path, mut from: u64) -> (Vec<String>, u64) {
        let (mut all, mut dropped) = (Vec::new(), 0);
        loop {
            let output = read_job_output(dir, from, 1000).unwrap();
            dropped += output.dropped;
            if output.lines.is_empty() && output.next == from {
                return (all, dropped);
            }
            from = output.next;
            all.extend(texts(&output));
        }
    }

    #[test]
    fn a_log_within_its_cap_is_read_back_whole_from_any_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = JobLogWriter::create_log(dir.path(), 1 << 20, 1000).unwrap();
        write(&mut log, 0, 500);
        let (all, dropped) = read_all(dir.path(), 0);
        assert_eq!((all.len(), dropped), (500, 0));
        let piece = read_job_output(dir.path(), 0, 100).unwrap();
        let resumed = read_all(dir.path(), piece.next).0;
        assert_eq!([texts(&piece), resumed].concat(), all);
    }

    #[test]
    fn a_log_beyond_its_cap_keeps_head_and_tail_and_counts_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = JobLogWriter::create_log(dir.path(), 8192, 1000).unwrap();
        write(&mut log, 0, 20_000);
        let (end, dropped) = log.byte_totals();
        let (all, gap) = read_all(dir.path(), 0);
        assert_eq!(all.first().unwrap(), "line 0");
        assert_eq!(all.last().unwrap(), "line 19999");
        assert_eq!(gap, dropped);
        // What is shown and what is said to be missing is what was printed.
        let printed: usize = (0..20_000).map(|i| format!("line {i}\n").len()).sum();
        let shown: usize = all.iter().map(|line| line.len() + 1).sum();
        assert_eq!(shown as u64 + gap, printed as u64);
        let kept: u64 =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(kept < 8192 + 256, "{kept}");
        let middle = read_job_output(dir.path(), end / 2, 1000).unwrap();
        assert!(middle.dropped > 0 && !middle.lines.is_empty());
        assert_eq!(read_job_output(dir.path(), end, 1000).unwrap().next, end);
    }

    #[test]
    fn a_reader_that_follows_sees_every_line_of_a_rotating_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = JobLogWriter::create_log(dir.path(), 8192, 1000).unwrap();
        let mut reader = JobLogReader::new(dir.path().to_owned(), 0);
        let mut seen = Vec::new();
        for i in 0..2000 {
            write(&mut log, i, i + 1);
            loop {
                let batch = reader.read(300, false).unwrap();
                assert_eq!(batch.dropped, 0);
                seen.extend(batch.lines.into_iter().map(|l| String::from_utf8(l.text).unwrap()));
                if !batch.more {
                    break;
                }
            }
        }
        let expected: Vec<String> = (0..2000).map(|i| format!("line {i}")).collect();
        assert_eq!(seen, expected);
        assert_eq!(reader.at, log.byte_totals().0);
    }

    #[test]
    fn a_long_line_is_split_into_records_that_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = JobLogWriter::create_log(dir.path(), 1 << 20, 100).unwrap();
        let mut lines = JobLineSplitter::new(b'e');
        let mut whole = 0;
        for chunk in [&[b'x'; 150][..], &[b'y'; 100], b"\nshort\n", b"rest"] {
            lines.feed(chunk, 1, &mut log, &mut |_| whole += 1);
        }
        lines.finish(2, &mut log);
        log.flush();
        let output = read_job_output(dir.path(), 0, 10_000).unwrap();
        let shape: Vec<(usize, bool)> =
            output.lines.iter().map(|l| (l.text.len(), l.continues)).collect();
        assert_eq!(shape, [(100, true), (100, true), (50, false), (5, false), (4, false)]);
        assert_eq!(whole, 1, "only the short line fits into one record");
        assert!(output.lines.iter().all(|l| l.stream == OutputStream::Stderr));
    }

    #[test]
    fn a_torn_record_at_the_end_is_not_delivered() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(HEAD), b"1 o whole\n2 o tor").unwrap();
        let output = read_job_output(dir.path(), 0, 1000).unwrap();
        assert_eq!(texts(&output), ["whole"]);
        assert_eq!(output.next, 10);
    }
}
