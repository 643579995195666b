//! The engine's clock, which never goes back.

use mainstem_core::id::Time;

/// Time that never goes back: where the clock on the wall does, ours goes on from where it was.
/// Otherwise a clock set back would hold up every delay, deadline and retry by as much.
pub(crate) struct SteadyClock {
    wall: Option<Time>,
    ahead_ms: u64,
    newest: Time,
}

impl SteadyClock {
    /// Goes on after `newest`, the time of the last fact.
    pub(crate) fn new(newest: Time) -> Self {
        Self { wall: None, ahead_ms: 0, newest }
    }

    /// The time now, by the clock on the wall.
    pub(crate) fn advance_to(&mut self, wall: Time) -> Time {
        match self.wall {
            None => self.ahead_ms = self.newest.since_ms(wall),
            Some(before) => self.ahead_ms += before.since_ms(wall),
        }
        self.wall = Some(wall);
        self.newest = wall.plus_ms(self.ahead_ms).max(self.newest);
        self.newest
    }
}
