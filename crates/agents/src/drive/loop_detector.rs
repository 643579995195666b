//! Notices an agent that goes in circles: the same call with the same outcome, or the same error,
//! again and again with nothing else in between.
//!
//! Counts outcomes, not calls: a command whose output changes makes progress.

use std::hash::{DefaultHasher, Hash, Hasher};

/// As often in a row something may happen.
pub(crate) const TIMES_MAX: u32 = 3;

/// What to do about a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopAdvice {
    /// Nothing repeats too often.
    GoOn,
    /// Say something to the model, if that is possible.
    Nudge,
    GiveUp,
}

/// What came last, and how often in a row.
#[derive(Debug, Default)]
pub(crate) struct LoopDetector {
    call: (u64, u32),
    error: (u64, u32),
    nudged: bool,
}

impl LoopDetector {
    pub(crate) fn record_outcome(&mut self, what: &str, text: &str, failed: bool) -> LoopAdvice {
        let calls = count_repeats(&mut self.call, hash_value(&(what, text, failed)));
        let errors = if failed {
            count_repeats(&mut self.error, hash_value(&text))
        } else {
            self.error = (0, 0);
            0
        };
        if calls.max(errors) <= TIMES_MAX {
            return LoopAdvice::GoOn;
        }
        // What comes after the nudge is counted anew: the model gets its chance.
        (self.call.1, self.error.1) = (0, 0);
        if std::mem::replace(&mut self.nudged, true) {
            LoopAdvice::GiveUp
        } else {
            LoopAdvice::Nudge
        }
    }
}

fn count_repeats(last: &mut (u64, u32), hash: u64) -> u32 {
    *last = if last.0 == hash { (hash, last.1.saturating_add(1)) } else { (hash, 1) };
    last.1
}

fn hash_value(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_time_in_a_row_is_one_too_many_and_after_a_nudge_the_end() {
        let mut repeats = LoopDetector::default();
        let mut same = || repeats.record_outcome("Bash cargo test", "1 failed", false);
        let advice: Vec<LoopAdvice> = (0..8).map(|_| same()).collect();
        use LoopAdvice::{GiveUp, GoOn, Nudge};
        assert_eq!(advice, [GoOn, GoOn, GoOn, Nudge, GoOn, GoOn, GoOn, GiveUp]);
    }

    #[test]
    fn other_work_in_between_and_other_outcomes_are_no_circle() {
        let mut repeats = LoopDetector::default();
        for round in 0..20 {
            assert_eq!(
                repeats.record_outcome("Bash cargo test", "1 failed", false),
                LoopAdvice::GoOn
            );
            assert_eq!(repeats.record_outcome("Edit a.rs", "", false), LoopAdvice::GoOn);
            assert_eq!(
                repeats.record_outcome("Bash date", &round.to_string(), false),
                LoopAdvice::GoOn
            );
        }
    }

    #[test]
    fn the_same_error_from_different_calls_is_a_circle() {
        let mut repeats = LoopDetector::default();
        for (n, want) in [LoopAdvice::GoOn, LoopAdvice::GoOn, LoopAdvice::GoOn, LoopAdvice::Nudge]
            .iter()
            .enumerate()
        {
            let what = format!("Bash try {n}");
            assert_eq!(repeats.record_outcome(&what, "permission denied", true), *want);
        }
    }
}
