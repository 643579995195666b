//! Attacks the product as the world would, and asks a separate oracle what was lost.
//!
//! A round is drawn from a seed: a plan, settings, what each agent does, and faults. It is played with
//! the real binary, real git and real processes; after each fault the run is started again as a user
//! would. What really happened is written down by the agents and gates themselves, in the ledger;
//! the program `mainstem-oracle` compares it with git and the process table. Knows the product by
//! its command line only and uses none of its crates.

pub mod campaign;
pub mod rig;
pub mod fault;
pub mod judge;
pub mod ledger;
pub mod minimise;
pub mod play;
pub mod script;
pub mod show;
pub mod stage;
pub mod table;

pub use judge::Violation;
pub use play::{Played, play};
pub use show::Show;
pub use stage::{Stage, Tools};
