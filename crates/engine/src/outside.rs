//! All that the loop needs and is neither the machine, the journal nor a face: time, room, hands and
//! ears. The real one is [`crate::threads`]; a simulation is another.

use std::path::PathBuf;
use std::time::Duration;

use mainstem_core::id::Time;
use mainstem_core::room::Shortage;
use mainstem_planner::draft::Parked;

use crate::event::Event;
use crate::perform::Order;
use crate::queue::Ticket;
use crate::survey::Work;

/// The world as the loop reaches it. Nothing here fails: what goes wrong comes back as an event.
pub trait Outside {
    /// The clock on the wall. It may jump, also backwards.
    fn now(&mut self) -> Time;

    /// How many minutes the clock of this place is ahead of UTC.
    fn zone_min(&mut self) -> i32;

    /// What there is too little of for one more agent, in words for a person.
    fn room(&mut self) -> Result<(), Shortage>;

    /// Where the workspace of this unit is made.
    fn workspace(&self, unit: &str) -> PathBuf;

    /// Begins to carry an order out and returns at once. Its results come as events, the last of
    /// them [`Event::Performed`] with this ticket.
    fn start(&mut self, ticket: Ticket, order: Order);

    /// Tells what the job in `dir` prints and how it ends, as [`Event::Watch`] with this key.
    fn watch(&mut self, key: u64, dir: PathBuf);

    /// Begins to look which of these would clash with each other or with the target branch, if it can;
    /// what is seen comes as [`Event::Surveyed`]. Says whether it has begun.
    fn survey(&mut self, _works: Vec<Work>) -> bool {
        false
    }

    /// Tells other repositories of the same user that a provider is to be left alone.
    fn share_limit(&mut self, _limit: Parked) {}

    /// Tells them that it may be used again.
    fn forget_limit(&mut self, _provider: &str) {}

    /// Limits that other repositories of the same user met since this was last asked.
    fn limits_of_others(&mut self) -> Vec<Parked> {
        Vec::new()
    }

    /// The next event, or none: at the latest after `patience`, but maybe much earlier, so that
    /// faces can redraw.
    fn next(&mut self, patience: Option<Duration>) -> Option<Event>;

    /// One more event, if it is there already.
    fn ready(&mut self) -> Option<Event>;
}
