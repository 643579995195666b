//! Who shows what happens. A face holds no truth and may be slow or deaf.

use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::Machine;

/// A durable fact, on its way to people.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// Its place in the journal.
    pub seq: u64,
    /// When it happened.
    pub at: Time,
    /// In which run.
    pub run: &'a RunId,
    /// What happened.
    pub fact: &'a Fact,
    /// The same as JSON, as the journal has it.
    pub body: &'a str,
}

/// Shows a run as it goes.
pub trait Face {
    /// Something happened and is durable.
    fn fact(&mut self, shown: &Shown<'_>, machine: &Machine);
    /// Time to redraw; called several times a second at most.
    fn tick(&mut self, machine: &Machine);
}

/// Shows nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Face for Silent {
    fn fact(&mut self, _: &Shown<'_>, _: &Machine) {}
    fn tick(&mut self, _: &Machine) {}
}
