//! What can go wrong. Each kind is on in a quarter of the seeds, and then strikes now and then.

use std::fmt;

use crate::rng::Rng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An append fails before anything is written.
    AppendRefused,
    /// An append is written and then reported as failed.
    AppendUnknown,
    /// The engine dies right after an append.
    DeathAfterAppend,
    /// The engine dies anywhere else.
    Death,
    /// Everything dies: engine, supervisors, agents, gates.
    PowerCut,
    /// An order fails before it did anything.
    OrderFails,
    /// An order is carried out and reported as failed.
    OrderUnknown,
    /// An order is carried out twice.
    OrderTwice,
    /// An order breaks off with a panic.
    OrderBreaks,
    /// No thread can be had for an order.
    NoThread,
    Slow,
    /// The clock is set back.
    ClockBack,
    /// The clock is set forward.
    ClockForward,
    /// A supervisor is killed; its agent goes on.
    SupervisorGone,
    /// Agents behave badly: fail, ask, hit limits, remove their workspace.
    BadAgents,
    /// Output is dropped before it is read.
    Gap,
    /// Somebody else commits to the target branch.
    Strangers,
    People,
    /// People press Ctrl-C, up to three times.
    Interrupts,
    /// The machine has no room.
    NoRoom,
    Clashes,
    BadGates,
    /// The plan is revised between two lives.
    Revisions,
    /// The remote does not answer, before or after it did what it was asked for.
    RemoteAway,
}

pub const FAULTS: [Fault; 24] = [
    Fault::AppendRefused,
    Fault::AppendUnknown,
    Fault::DeathAfterAppend,
    Fault::Death,
    Fault::PowerCut,
    Fault::OrderFails,
    Fault::OrderUnknown,
    Fault::OrderTwice,
    Fault::OrderBreaks,
    Fault::NoThread,
    Fault::Slow,
    Fault::ClockBack,
    Fault::ClockForward,
    Fault::SupervisorGone,
    Fault::BadAgents,
    Fault::Gap,
    Fault::Strangers,
    Fault::People,
    Fault::Interrupts,
    Fault::NoRoom,
    Fault::Clashes,
    Fault::BadGates,
    Fault::Revisions,
    Fault::RemoteAway,
];

/// How often each struck.
#[derive(Debug, Clone, Default)]
pub struct Tally([u64; FAULTS.len()]);

impl Tally {
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            FAULTS.iter().zip(self.0).map(|(fault, n)| format!("{fault:?} {n}")).collect();
        write!(f, "{}", words.join(", "))
    }
}

/// The faults of one seed.
#[derive(Debug)]
pub struct Faults {
    rates: [u64; FAULTS.len()],
    /// How often each struck.
    pub tally: Tally,
    pub over: bool,
}

impl Faults {
    /// Chooses which are on.
    pub fn draw(rng: &mut Rng) -> Self {
        let rates = FAULTS.map(|fault| {
            let on = rng.in_thousand(250);
            let rate = match fault {
                Fault::Death | Fault::DeathAfterAppend => 5 + rng.next() % 30,
                Fault::AppendRefused | Fault::AppendUnknown => 3 + rng.next() % 20,
                Fault::OrderBreaks | Fault::NoThread => 2 + rng.next() % 10,
                Fault::BadAgents | Fault::BadGates | Fault::Clashes => 200 + rng.next() % 500,
                _ => 20 + rng.next() % 250,
            };
            if on { rate } else { 0 }
        });
        Self { rates, tally: Tally::default(), over: false }
    }

    /// Is this one on in this seed?
    pub fn on(&self, fault: Fault) -> bool {
        !self.over && self.rates[fault as usize] > 0
    }

    /// Does it strike now?
    pub fn strikes(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        let strikes = self.on(fault) && rng.in_thousand(self.rates[fault as usize]);
        self.tally.0[fault as usize] += u64::from(strikes);
        strikes
    }
}
