//! All that the loop needs and is neither the machine, the journal nor a face: time, room, hands and
//! ears. The real one is [`crate::threaded_host`]; a simulation is another.

use std::path::PathBuf;
use std::time::Duration;

use mainstem_core::capacity::CapacityShortage;
use mainstem_core::id::Time;
use mainstem_planner::draft::DraftRateLimit;

use crate::conflict_forecast::ForecastWork;
use crate::effect_queue::EffectTicket;
use crate::effects::EffectOrder;
use crate::event::EngineEvent;

/// The world as the loop reaches it. Nothing here fails: what goes wrong comes back as an event.
pub trait EngineHost {
    /// The clock on the wall. It may jump, also backwards.
    fn now(&mut self) -> Time;

    /// How many minutes the clock of this place is ahead of UTC.
    fn utc_offset_min(&mut self) -> i32;

    /// What there is too little of for one more agent, in words for a person.
    fn check_capacity(&mut self) -> Result<(), CapacityShortage>;

    /// Where the workspace of this unit is made.
    fn workspace_path(&self, unit: &str) -> PathBuf;

    /// Begins to carry an order out and returns at once. Its results come as events, the last of
    /// them [`EngineEvent::Performed`] with this ticket.
    fn start_effect(&mut self, ticket: EffectTicket, order: EffectOrder);

    /// Tells what the job in `dir` prints and how it ends, as [`EngineEvent::JobWatched`] with this key.
    fn watch_job(&mut self, key: u64, dir: PathBuf);

    /// Begins to look which of these would clash with each other or with the target branch, if it can;
    /// what is seen comes as [`EngineEvent::ForecastMade`]. Says whether it has begun.
    fn start_forecast(&mut self, _works: Vec<ForecastWork>) -> bool {
        false
    }

    /// Tells other repositories of the same user that a provider is to be left alone.
    fn share_limit(&mut self, _limit: DraftRateLimit) {}

    /// Tells them that it may be used again.
    fn forget_limit(&mut self, _provider: &str) {}

    /// Limits that other repositories of the same user met since this was last asked.
    fn read_shared_limits(&mut self) -> Vec<DraftRateLimit> {
        Vec::new()
    }

    /// The next event, or none: at the latest after `patience`, but maybe much earlier, so that
    /// faces can redraw.
    fn next_event(&mut self, patience: Option<Duration>) -> Option<EngineEvent>;

    /// One more event, if it is there already.
    fn ready_event(&mut self) -> Option<EngineEvent>;
}
