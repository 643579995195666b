//! Notices an agent that goes in circles: the same call with the same outcome, or the same error,
//! again and again with nothing else in between.
//!
//! Counts outcomes, not calls: a command whose output changes makes progress.

use std::hash::{DefaultHasher, Hash, Hasher};

/// As often in a row something may happen.
pub(crate) const TIMES_MAX: u32 = 3;

/// What to do about a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Nothing repeats too often.
    GoOn,
    /// Say something to the model, if that is possible.
    Nudge,
    /// End it.
    GiveUp,
}

/// What came last, and how often in a row.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    call: (u64, u32),
    error: (u64, u32),
    nudged: bool,
}

impl Repeats {
    /// Another outcome.
    pub(crate) fn outcome(&mut self, what: &str, text: &str, failed: bool) -> Advice {
        let calls = count(&mut self.call, hash(&(what, text, failed)));
        let errors = if failed {
            count(&mut self.error, hash(&text))
        } else {
            self.error = (0, 0);
            0
        };
        if calls.max(errors) <= TIMES_MAX {
            return Advice::GoOn;
        }
        // What comes after the nudge is counted anew: the model gets its chance.
        (self.call.1, self.error.1) = (0, 0);
        if std::mem::replace(&mut self.nudged, true) { Advice::GiveUp } else { Advice::Nudge }
    }
}

fn count(last: &mut (u64, u32), hash: u64) -> u32 {
    *last = if last.0 == hash { (hash, last.1.saturating_add(1)) } else { (hash, 1) };
    last.1
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_time_in_a_row_is_one_too_many_and_after_a_nudge_the_end() {
        let mut repeats = Repeats::default();
        let mut same = || repeats.outcome("Bash cargo test", "1 failed", false);
        let advice: Vec<Advice> = (0..8).map(|_| same()).collect();
        use Advice::{GiveUp, GoOn, Nudge};
        assert_eq!(advice, [GoOn, GoOn, GoOn, Nudge, GoOn, GoOn, GoOn, GiveUp]);
    }

    #[test]
    fn other_work_in_between_and_other_outcomes_are_no_circle() {
        let mut repeats = Repeats::default();
        for round in 0..20 {
            assert_eq!(repeats.outcome("Bash cargo test", "1 failed", false), Advice::GoOn);
            assert_eq!(repeats.outcome("Edit a.rs", "", false), Advice::GoOn);
            assert_eq!(repeats.outcome("Bash date", &round.to_string(), false), Advice::GoOn);
        }
    }

    #[test]
    fn the_same_error_from_different_calls_is_a_circle() {
        let mut repeats = Repeats::default();
        for (n, want) in
            [Advice::GoOn, Advice::GoOn, Advice::GoOn, Advice::Nudge].iter().enumerate()
        {
            let what = format!("Bash try {n}");
            assert_eq!(repeats.outcome(&what, "permission denied", true), *want);
        }
    }
}
