//! The words other programs rely on: wire types and exit codes.
//!
//! Shapes only: what `--json` prints, what the control socket speaks, what a process exits with. Nothing here decides,
//! computes or touches anything; fields may be added, but none is renamed or removed without a new schema name.

pub mod actions;
pub mod control;
pub mod cost;
pub mod diff;
pub mod exit_code;
pub mod fact;
pub mod graph;
pub mod log;
pub mod outlook;
pub mod run;
pub mod status;
pub mod task;
pub mod time;
pub mod timeline;
pub mod train;

pub use control::{ControlError, ControlRequest, ControlResponse};
pub use fact::{FactLineError, fact_line, fact_value};
pub use status::RunStatus;
