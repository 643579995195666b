//! Hours of the day in which nothing new is started. Knows no time zone: how far local time is from UTC
//! comes in.

use crate::id::Time;

const MINUTE_MS: i64 = 60_000;
const DAY_MIN: i64 = 24 * 60;

/// A span of the day, over midnight or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    /// First minute of the day that is quiet.
    from: i64,
    /// First minute that no longer is.
    to: i64,
}

impl QuietHours {
    /// Reads `22:00-07:00`. A span without length is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let help = || "use hours such as \"22:00-07:00\"".to_owned();
        let minute = |clock: &str| {
            let (hour, minute) = clock.trim().split_once(':')?;
            let number = |text: &str, below: i64| {
                let digits = text.bytes().all(|b| b.is_ascii_digit()) && text.len() <= 2;
                text.parse::<i64>().ok().filter(|n| digits && *n < below)
            };
            Some(number(hour, 24)? * 60 + number(minute, 60)?)
        };
        let (from, to) = text.split_once('-').ok_or_else(help)?;
        let (from, to) = minute(from).zip(minute(to)).ok_or_else(help)?;
        if from == to {
            return Err(
                "the start and the end are the same; remove the setting for no quiet hours"
                    .to_owned(),
            );
        }
        Ok(Self { from, to })
    }

    /// When they end, if it is quiet now. `zone_min` is how many minutes local time is ahead of UTC.
    pub fn ends_at(self, now: Time, zone_min: i32) -> Option<Time> {
        let local = now.0.div_euclid(MINUTE_MS) + i64::from(zone_min);
        let minute = local.rem_euclid(DAY_MIN);
        let into = (minute - self.from).rem_euclid(DAY_MIN);
        let length = (self.to - self.from).rem_euclid(DAY_MIN);
        let left = length - into;
        let begun = now.0.div_euclid(MINUTE_MS) * MINUTE_MS;
        (into < length).then(|| Time(begun + left * MINUTE_MS))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(hour: i64, minute: i64) -> Time {
        Time(((20_000 * DAY_MIN) + hour * 60 + minute) * MINUTE_MS + 1_234)
    }

    #[test]
    fn a_night_goes_over_midnight_and_a_siesta_does_not() {
        let night = QuietHours::parse("22:00-07:00").unwrap();
        assert_eq!(night.ends_at(at(21, 59), 0), None);
        let morning = Time(at(24 + 7, 0).0 - 1_234);
        assert_eq!(night.ends_at(at(22, 0), 0), Some(morning));
        assert_eq!(night.ends_at(at(24 + 6, 59), 0), Some(morning));
        assert_eq!(night.ends_at(at(24 + 7, 0), 0), None);
        let siesta = QuietHours::parse("13:00 - 14:30").unwrap();
        assert_eq!(siesta.ends_at(at(13, 30), 0), Some(Time(at(14, 30).0 - 1_234)));
        assert_eq!(siesta.ends_at(at(14, 30), 0), None);
    }

    #[test]
    fn the_hours_are_those_of_the_place() {
        let night = QuietHours::parse("22:00-07:00").unwrap();
        assert!(night.ends_at(at(20, 30), 120).is_some(), "22:30 in Berlin in summer");
        assert_eq!(night.ends_at(at(6, 0), 120), None);
        assert!(night.ends_at(at(3, 0), -300).is_some(), "22:00 in Lima");
        for minute in 0..DAY_MIN {
            let now = at(0, minute);
            if let Some(end) = night.ends_at(now, 330) {
                assert!(end > now && night.ends_at(end, 330).is_none(), "{minute}");
            }
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for bad in [
            "",
            "22:00",
            "22-07",
            "24:00-01:00",
            "10:60-11:00",
            "7:00-7:00",
            "-1:00-2:00",
            "a:b-c:d",
        ] {
            assert!(QuietHours::parse(bad).is_err(), "{bad}");
        }
    }
}
