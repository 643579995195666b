//! Who shows what happens. A face holds no truth and may be slow or deaf.

use std::collections::BTreeMap;

use mainstem_api::outlook::Progress;
use mainstem_core::fact::{Fact, GateScope};
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::Machine;

/// A durable fact, on its way to people.
#[derive(Debug, Clone, Copy)]
pub struct JournaledFact<'a> {
    /// Its place in the journal.
    pub seq: u64,
    pub at: Time,
    pub run: &'a RunId,
    pub fact: &'a Fact,
    /// The same as JSON, as the journal has it.
    pub body: &'a str,
}

/// A check that runs now. Never journaled: it is gone with the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateActivity {
    pub task: String,
    pub attempt: u32,
    pub scope: GateScope,
    pub gate: String,
    pub since: Time,
    /// How long it usually takes.
    pub usually_ms: Option<u64>,
    /// Where its output goes, relative to the state folder.
    pub log: String,
}

/// What is being done right now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineActivity {
    /// What each agent was last seen doing, by task.
    pub agents: BTreeMap<String, Progress>,
    /// Checks that run, the oldest first.
    pub gates: Vec<GateActivity>,
}

/// Shows a run as it goes.
pub trait RunObserver {
    /// Something happened and is durable.
    fn on_fact(&mut self, shown: &JournaledFact<'_>, machine: &Machine);
    /// Time to redraw; called several times a second at most. What is being done now is put together only for
    /// those who ask.
    fn on_tick(&mut self, machine: &Machine, activity: &dyn Fn() -> EngineActivity);
}

#[derive(Debug, Default)]
pub struct SilentObserver;

impl RunObserver for SilentObserver {
    fn on_fact(&mut self, _: &JournaledFact<'_>, _: &Machine) {}
    fn on_tick(&mut self, _: &Machine, _: &dyn Fn() -> EngineActivity) {}
}
