//! The wall clock, read in one place. Knows nothing of time zones or formats.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch; negative if the machine's clock is set before it.
pub fn now_ms() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}
