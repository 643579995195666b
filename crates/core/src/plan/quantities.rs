//! Durations and sizes as people write them: `45m`, `1h30m`, `4G`.
//!
//! Pure text to number and back; knows nothing of the keys that hold them.

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 5] =
    [("B", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Milliseconds of a text such as `200ms`, `45m` or `1h30m`; the error says what would be right.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    const RIGHT: &str = "use a number with a unit, such as \"90s\", \"45m\" or \"1h30m\"";
    let text = text.trim();
    if text.is_empty() {
        return Err(RIGHT.to_owned());
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit_len = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + unit_len]);
        if number.is_empty() || unit.is_empty() {
            return Err(RIGHT.to_owned());
        }
        let Some((_, scale)) = DURATIONS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("unknown unit of time `{unit}`; use ms, s, m, h or d"));
        };
        if *scale >= smallest {
            return Err(format!("larger units come first, each once; {RIGHT}"));
        }
        smallest = *scale;
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(*scale))
            .and_then(|ms| ms.checked_add(total))
            .filter(|ms| *ms <= DURATION_MS_MAX)
            .ok_or_else(|| "the duration is longer than ten years".to_owned())?;
        rest = &rest[digits + unit_len..];
    }
    Ok(total)
}

/// Longer durations are surely mistakes, and adding them to a time could overflow.
const DURATION_MS_MAX: u64 = 3_650 * 86_400_000;

/// The shortest way to write a duration that [`parse_duration_ms`] reads back.
pub fn render_duration_ms(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut text = String::new();
    for (unit, scale) in DURATIONS.iter().rev() {
        if rest >= *scale {
            text.push_str(&format!("{}{unit}", rest / scale));
            rest %= scale;
        }
    }
    text
}

/// Bytes of a text such as `4G`, `500M`, `10K` or `0`; units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const RIGHT: &str = "use an integer with K, M, G or T, such as \"500M\"";
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| RIGHT.to_owned())?;
    let unit = unit.trim_start().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").unwrap_or(&unit);
    let unit = if unit.len() == 2 { unit.strip_suffix('B').unwrap_or(unit) } else { unit };
    let scale = match unit {
        "" => 1,
        name => SIZES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, scale)| *scale)
            .ok_or_else(|| RIGHT.to_owned())?,
    };
    number.checked_mul(scale).ok_or_else(|| "the size is larger than 16 EiB".to_owned())
}

/// The shortest way to write a size that [`parse_size`] reads back.
pub fn render_size(bytes: u64) -> String {
    let unit = SIZES.iter().rev().find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale));
    match unit {
        Some((_, 1)) | None => bytes.to_string(),
        Some((name, scale)) => format!("{}{name}", bytes / scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, ms) in [
            ("0s", 0),
            ("200ms", 200),
            ("45m", 2_700_000),
            ("1h30m", 5_400_000),
            ("1d1h1m1s1ms", 90_061_001),
            (" 2s ", 2_000),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
            assert_eq!(parse_duration_ms(&render_duration_ms(ms)), Ok(ms), "{text}");
        }
        for bad in [
            "",
            "45",
            "m",
            "1.5h",
            "-1s",
            "1 h",
            "30m1h",
            "1h1h",
            "9999999999999d",
            "1y",
            "é",
            "1é",
        ] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_read_as_written() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("10K", 10_240),
            ("500M", 500 << 20),
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("4gb", 4 << 30),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(parse_size(&render_size(bytes)), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "1.5G", "-1", "1X", "99999999999T", "1 é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
