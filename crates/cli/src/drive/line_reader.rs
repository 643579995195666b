//! Lines of any length from a pipe, in bounded memory.

use std::io::Read;

/// Longer lines lose their rest; what is left of them is no JSON and is passed over.
const LINE_BYTES: usize = 8 << 20;

/// Hands over every line without its end, until the pipe ends or nobody listens.
pub(super) fn read_lines(mut pipe: impl Read, mut hand_over: impl FnMut(Vec<u8>) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut line = Vec::new();
    loop {
        let n = match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut rest = &buffer[..n];
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            append_bounded(&mut line, &rest[..end]);
            rest = &rest[end + 1..];
            if !hand_over(std::mem::take(&mut line)) {
                return;
            }
        }
        append_bounded(&mut line, rest);
    }
    if !line.is_empty() {
        hand_over(line);
    }
}

fn append_bounded(line: &mut Vec<u8>, bytes: &[u8]) {
    let room = LINE_BYTES.saturating_sub(line.len());
    line.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        read_lines(bytes, |line| {
            all.push(line);
            true
        });
        all
    }

    #[test]
    fn lines_come_whole_and_the_last_needs_no_end() {
        assert_eq!(
            read(b"a\n\nbc\nd"),
            [b"a".to_vec(), b"".to_vec(), b"bc".to_vec(), b"d".to_vec()]
        );
        assert!(read(b"").is_empty());
    }

    #[test]
    fn a_long_line_is_whole_and_an_endless_one_is_cut() {
        let mut bytes = vec![b'x'; 3 << 20];
        bytes.push(b'\n');
        bytes.extend(vec![b'y'; LINE_BYTES + 5]);
        bytes.extend(b"\nz\n");
        let lengths: Vec<usize> = read(&bytes).iter().map(Vec::len).collect();
        assert_eq!(lengths, [3 << 20, LINE_BYTES, 1]);
    }
}
