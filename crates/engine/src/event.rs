//! What the one loop waits for: a closed list.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use mainstem_core::clash::Outlook;
use mainstem_core::id::TaskIx;
use mainstem_core::machine::{Command, Input, Refusal};
use mainstem_host::process::WatchEvent;

use crate::face::{Activity, RunningGate};

/// What one command led to, for whoever sent it.
pub type Reply = Result<String, Refusal>;

/// Something for the loop.
#[derive(Debug)]
pub enum Event {
    /// A result of an effect, ready for the machine.
    Input(Input),
    /// An attempt's job stands: follow its output.
    Follow {
        /// Whose.
        task: TaskIx,
        /// Which attempt.
        attempt: u32,
        /// The job.
        dir: PathBuf,
    },
    /// An effect has been performed; the next one of the same key may go.
    Performed(crate::queue::Ticket),
    /// The watcher saw something.
    Watch(WatchEvent),
    /// A person wants something.
    Command(Command, Sender<Reply>),
    /// A check begins to run.
    GateBegan(RunningGate),
    /// It is over, or was stopped; named by its log.
    GateEnded(String),
    /// A face wants to know what is being done.
    Activity(Sender<Activity>),
    /// Somebody looked which pieces of work would clash; none if that could not be found out.
    Surveyed(Option<Outlook>),
    /// A face wants to know what was seen.
    Outlook(Sender<Outlook>),
    /// Stop: once gently, twice at once.
    Interrupt,
    /// Stop at once.
    StopNow,
    /// Leave without waiting for anything: something of ours broke.
    Abandon,
}

impl Event {
    /// The same once more, if it is a result of an effect.
    pub fn again(&self) -> Option<Self> {
        match self {
            Self::Input(input) => Some(Self::Input(input.clone())),
            Self::Follow { task, attempt, dir } => {
                Some(Self::Follow { task: *task, attempt: *attempt, dir: dir.clone() })
            }
            _ => None,
        }
    }
}
