//! Takes known secret values out of bytes before anybody keeps or shows them.
//!
//! Knows values, not shapes: it recognises what it was told and guesses nothing. A secret that is
//! split over two calls is not seen, so hand over whole lines.

use std::borrow::Cow;

/// Shorter values would turn ordinary text into blots.
pub const SECRET_LEN_MIN: usize = 6;
/// A line of a longer secret (a private key, say) counts on its own from this length.
const SECRET_LINE_LEN_MIN: usize = 16;

/// Replaces known secret values by `[redacted NAME]`.
#[derive(Clone, Default)]
pub struct SecretRedactor {
    /// Value and replacement, longest value first.
    secrets: Vec<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for SecretRedactor {
    // Never derived: a redactor holds the very values nobody may print.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.secrets.len())
    }
}

impl SecretRedactor {
    /// From names and values; values shorter than [`SECRET_LEN_MIN`] characters are left alone.
    pub fn new<N: AsRef<str>, V: AsRef<str>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let mut known = Vec::new();
        for (name, value) in secrets {
            let value = value.as_ref().trim();
            let mark = format!("[redacted {}]", name.as_ref()).into_bytes();
            if value.chars().count() >= SECRET_LEN_MIN {
                known.push((value.as_bytes().to_vec(), mark.clone()));
            }
            let lines = value.lines().map(str::trim);
            for line in lines.filter(|line| line.len() < value.len()) {
                if line.len() >= SECRET_LINE_LEN_MIN {
                    known.push((line.as_bytes().to_vec(), mark.clone()));
                }
            }
        }
        known.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        known.dedup_by(|a, b| a.0 == b.0);
        Self { secrets: known }
    }

    /// The bytes without known secrets; borrowed if there was none.
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut starts = [false; 256];
        for (value, _) in &self.secrets {
            starts[usize::from(value[0])] = true;
        }
        let mut out: Option<Vec<u8>> = None;
        let mut at = 0;
        let mut kept = 0;
        while at < bytes.len() {
            let hit = starts[usize::from(bytes[at])]
                .then(|| self.secrets.iter().find(|(value, _)| bytes[at..].starts_with(value)))
                .flatten();
            let Some((value, mark)) = hit else {
                at += 1;
                continue;
            };
            let out = out.get_or_insert_default();
            out.extend_from_slice(&bytes[kept..at]);
            out.extend_from_slice(mark);
            at += value.len();
            kept = at;
        }
        match out {
            None => Cow::Borrowed(bytes),
            Some(mut out) => {
                out.extend_from_slice(&bytes[kept..]);
                Cow::Owned(out)
            }
        }
    }

    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_go_wherever_they_stand() {
        let redactor = SecretRedactor::new([("A_KEY", "sk-12345"), ("B_KEY", "sk-12345-long")]);
        let redacted = redactor.redact_text("sk-12345 xsk-12345-longsk-12345");
        assert_eq!(redacted, "[redacted A_KEY] x[redacted B_KEY][redacted A_KEY]");
    }

    #[test]
    fn text_without_a_secret_is_not_copied() {
        let redactor = SecretRedactor::new([("A_KEY", "sk-12345")]);
        assert!(matches!(redactor.redact_bytes(b"sk-1234 sk-"), Cow::Borrowed(_)));
        assert!(matches!(SecretRedactor::default().redact_bytes(b"anything"), Cow::Borrowed(_)));
    }

    #[test]
    fn short_and_empty_values_are_left_alone() {
        let redactor = SecretRedactor::new([("A", ""), ("B", "12345"), ("C", "   ")]);
        assert_eq!(redactor.redact_text("12345 and more"), "12345 and more");
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let redactor = SecretRedactor::new([("A", "secret")]);
        assert_eq!(&*redactor.redact_bytes(b"\xff\x00secret\xfe"), b"\xff\x00[redacted A]\xfe");
    }

    #[test]
    fn a_key_of_many_lines_is_found_line_by_line() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nab\n-----END KEY-----\n";
        let redactor = SecretRedactor::new([("PEM", key)]);
        assert_eq!(redactor.redact_text("x MIIEvQIBADANBgkqhkiG ab"), "x [redacted PEM] ab");
        assert_eq!(redactor.redact_text(key), "[redacted PEM]\n");
    }

    #[test]
    fn debug_output_shows_no_value() {
        let text = format!("{:?}", SecretRedactor::new([("A", "hunter2hunter2")]));
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn no_secret_survives_random_surroundings() {
        let redactor = SecretRedactor::new([("A", "abcabc"), ("B", "bcabca")]);
        let mut state = 42_u64;
        for _ in 0..2_000 {
            let mut bytes = Vec::new();
            for _ in 0..40 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push(b"abc"[(state >> 33) as usize % 3]);
            }
            let out = redactor.redact_bytes(&bytes);
            for value in [b"abcabc", b"bcabca"] {
                let left = out.windows(6).any(|window| window == value);
                assert!(!left, "{}", String::from_utf8_lossy(&out));
            }
        }
    }
}
