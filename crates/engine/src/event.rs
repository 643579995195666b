//! What the one loop waits for: a closed list.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use mainstem_core::conflict::ConflictForecast;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::{CommandRefusal, Input, MachineCommand};
use mainstem_host::process::WatchEvent;

use crate::observer::{EngineActivity, GateActivity};

/// What one command led to, for whoever sent it.
pub type CommandReply = Result<String, CommandRefusal>;

/// Something for the loop.
#[derive(Debug)]
pub enum EngineEvent {
    /// A result of an effect, ready for the machine.
    Input(Input),
    /// An attempt's job stands: follow its output.
    WatchAgent {
        task: TaskIx,
        attempt: u32,
        dir: PathBuf,
    },
    /// An effect has been performed; the next one of the same key may go.
    Performed(crate::effect_queue::EffectTicket),
    /// The watcher saw something.
    JobWatched(WatchEvent),
    /// A person wants something.
    Command(MachineCommand, Sender<CommandReply>),
    /// A check begins to run.
    GateBegan(GateActivity),
    /// It is over, or was stopped; named by its log.
    GateEnded(String),
    /// A face wants to know what is being done.
    ActivityRequested(Sender<EngineActivity>),
    /// Somebody looked which pieces of work would clash; none if that could not be found out.
    ForecastMade(Option<ConflictForecast>),
    /// A face wants to know what was seen.
    ForecastRequested(Sender<ConflictForecast>),
    /// Stop: once gently, twice at once.
    Interrupt,
    StopNow,
    /// Leave without waiting for anything: something of ours broke.
    Abandon,
}

impl EngineEvent {
    /// The same once more, if it is a result of an effect.
    pub fn duplicate_result(&self) -> Option<Self> {
        match self {
            Self::Input(input) => Some(Self::Input(input.clone())),
            Self::WatchAgent { task, attempt, dir } => {
                Some(Self::WatchAgent { task: *task, attempt: *attempt, dir: dir.clone() })
            }
            _ => None,
        }
    }
}
