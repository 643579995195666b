//! Points in time on the wire: RFC 3339 in UTC with milliseconds, such as `2026-11-15T09:30:00.250Z`.

use jiff::Timestamp;

/// Writes milliseconds since 1970; a time outside the years -9999 to 9999 becomes the nearest one inside.
#[must_use]
pub fn to_rfc3339(at_ms: i64) -> String {
    let nearest = if at_ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(at_ms).unwrap_or(nearest);
    format!("{at:.3}")
}

/// Reads milliseconds since 1970; `None` if `text` is no RFC 3339 time. Any offset is understood, finer parts are cut off.
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// How many minutes local time is ahead of UTC at this moment, by the system's zone; 0 where there is none.
#[must_use]
pub fn zone_minutes(at_ms: i64) -> i32 {
    let Ok(at) = Timestamp::from_millisecond(at_ms) else { return 0 };
    jiff::tz::TimeZone::system().to_offset(at).seconds() / 60
}

/// Keeps a time as milliseconds in a struct and as RFC 3339 text on the wire: `#[serde(with = "time::wire")]`.
pub mod wire {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(at_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::to_rfc3339(*at_ms))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::from_rfc3339(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is not an RFC 3339 time")))
    }
}

/// Like [`wire`], for a time that may be missing (`null`).
pub mod wire_option {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the text or null.
    pub fn serialize<S: Serializer>(at_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match at_ms {
            Some(at_ms) => serializer.serialize_some(&super::to_rfc3339(*at_ms)),
            None => serializer.serialize_none(),
        }
    }

    /// Reads the text or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<i64>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        match super::from_rfc3339(&text) {
            Some(at_ms) => Ok(Some(at_ms)),
            None => Err(D::Error::custom(format!("`{text}` is not an RFC 3339 time"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_three_decimals_and_a_z() {
        assert_eq!(to_rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(to_rfc3339(1_794_735_000_250), "2026-11-15T09:30:00.250Z");
        assert_eq!(to_rfc3339(-1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn what_was_written_reads_back_the_same() {
        for at_ms in [0, 1, -1, 999, 1_000, 1_794_735_000_250, -62_135_596_800_000] {
            assert_eq!(from_rfc3339(&to_rfc3339(at_ms)), Some(at_ms));
        }
    }

    #[test]
    fn other_offsets_and_precisions_are_understood() {
        assert_eq!(from_rfc3339("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(from_rfc3339("1970-01-01T00:00:00.0019Z"), Some(1));
        for bad in ["", "yesterday", "1970-01-01", "1970-01-01T00:00:00", "1970-13-01T00:00:00Z"] {
            assert_eq!(from_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn absurd_times_do_not_panic() {
        assert!(to_rfc3339(i64::MAX).starts_with("9999-12-"));
        assert!(to_rfc3339(i64::MIN).starts_with("-009999-"));
    }
}
