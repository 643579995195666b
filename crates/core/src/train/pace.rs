//! How many verifications this machine really runs at once: measured, never configured. Starts with
//! one and tries one more as long as that does not slow the others down.

/// Runs that end before one more at once is tried again, after a try that did not pay.
const REST_MIN: u32 = 8;
/// The same after many such tries.
const REST_MAX: u32 = 128;

#[derive(Debug, Clone)]
pub struct LanePace {
    at_once: usize,
    /// How long a good run takes that has the machine for itself.
    alone_ms: Option<f64>,
    rest: u32,
    next_rest: u32,
}

impl Default for LanePace {
    fn default() -> Self {
        Self { at_once: 1, alone_ms: None, rest: 0, next_rest: REST_MIN }
    }
}

impl LanePace {
    /// Verifications to run at once, with so many lanes.
    pub fn usable_lanes(&self, lanes: usize) -> usize {
        let tries = usize::from(self.alone_ms.is_some() && self.rest == 0);
        (self.at_once + tries).min(lanes).max(1)
    }

    /// Verifications that are known to run side by side.
    pub fn parallel_runs(&self) -> usize {
        self.at_once
    }

    /// A run passed after so long, while so many ran on average, itself included.
    pub fn record_run(&mut self, ms: u64, ran: f64) {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run")]
        let ms = (ms as f64).max(1.0);
        self.rest = self.rest.saturating_sub(1);
        let known = self.alone_ms.unwrap_or(ms);
        // With company a run is never faster than alone.
        if ran < 1.2 || ms < known {
            self.alone_ms = Some(0.7 * known + 0.3 * ms);
        }
        let known = self.alone_ms.unwrap_or(ms);
        // What the machine did in that time, in runs.
        let done = ran * known / ms;
        let had = f64::from(u32::try_from(self.at_once).unwrap_or(1));
        if ran > had + 0.6 {
            if done > had + 0.4 * (ran - had) {
                self.at_once += 1;
                (self.rest, self.next_rest) = (0, REST_MIN);
            } else {
                self.rest = self.next_rest;
                self.next_rest = (3 * self.next_rest).min(REST_MAX);
            }
        } else if self.at_once > 1 && ran > had - 0.2 && done < 0.7 * had {
            self.at_once -= 1;
            self.rest = self.next_rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of a machine that really runs `capacity` at once, as many as allowed.
    fn settle(capacity: f64, lanes: usize) -> LanePace {
        let mut pace = LanePace::default();
        for _ in 0..200 {
            let ran = pace.usable_lanes(lanes);
            let ran = f64::from(u32::try_from(ran).unwrap_or(1));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
            pace.record_run((1_000.0 * (ran / capacity).max(1.0)) as u64, ran);
        }
        pace
    }

    #[test]
    fn a_machine_that_one_run_fills_gets_one_at_once() {
        assert_eq!(settle(1.0, 8).parallel_runs(), 1);
    }

    #[test]
    fn independent_runs_fill_all_lanes() {
        assert_eq!(settle(8.0, 4).parallel_runs(), 4);
        assert_eq!(settle(8.0, 4).usable_lanes(4), 4);
    }

    #[test]
    fn a_machine_with_room_for_two_gets_two() {
        let got = settle(2.0, 8).parallel_runs();
        assert_eq!(got, 2);
    }
}
