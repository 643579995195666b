//! The words other programs rely on: wire types and exit codes.
//!
//! Shapes only: what `--json` prints, what the control socket speaks, what a process exits with. Nothing here decides,
//! computes or touches anything; fields may be added, but none is renamed or removed without a new schema name.

pub mod control;
pub mod exit_code;
pub mod fact;
pub mod outlook;
pub mod status;
pub mod time;

pub use control::{ControlError, ControlRequest, ControlResponse};
pub use fact::{FactLineError, fact_line, fact_value};
pub use status::RunStatus;
