//! Waiting on a condition, never on a clock.

use std::time::{Duration, Instant};

/// Between two looks. Short enough not to matter, long enough to leave the processor to others.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; panics with `what` when `deadline` has passed.
#[track_caller]
pub fn wait_until(deadline: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    assert!(holds_within(deadline, &mut condition), "not within {deadline:?}: {what}");
}

/// Waits until `condition` holds, and says whether it did in time.
pub fn holds_within(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_looked_at_until_it_holds() {
        let mut looks = 0;
        wait_until(Duration::from_secs(60), "three looks", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "the impossible")]
    fn a_deadline_that_passes_says_what_was_missing() {
        wait_until(Duration::from_millis(20), "the impossible", || false);
    }
}
