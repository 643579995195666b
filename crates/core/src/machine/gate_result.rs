//! What one check came to, as it is reported to the machine.

use crate::fact::{GateFailureCause, GateVerdict};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateResult {
    /// The command or check.
    pub gate: String,
    pub verdict: GateVerdict,
    /// How long it took.
    pub duration_ms: u64,
    /// Where its output is.
    pub log: Option<String>,
    /// The end of its output.
    pub detail: String,
    /// The verdict was known.
    pub cached: bool,
    /// It failed so often before it passed.
    pub flakes: u32,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// Why it did not pass.
    pub cause: Option<GateFailureCause>,
}
