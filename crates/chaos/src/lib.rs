//! Attacks the product as the world would, and asks a separate oracle what was lost.
//!
//! A round is drawn from a seed: a plan, settings, what each agent does, and faults. It is played with
//! the real binary, real git and real processes; after each fault the run is started again as a user
//! would. What really happened is written down by the agents and gates themselves, in the ledger;
//! the program `mainstem-oracle` compares it with git and the process table. Knows the product by
//! its command line only and uses none of its crates.

pub mod campaign;
pub mod fault_rig;
pub mod fault;
pub mod oracle_call;
pub mod event_log;
pub mod minimise;
pub mod run_round;
pub mod script;
pub mod scenario;
pub mod fixture;
pub mod process_table;

pub use fixture::{ChaosFixture, ChaosPrograms};
pub use oracle_call::OracleViolation;
pub use run_round::{RoundResult, play};
pub use scenario::ChaosScenario;
