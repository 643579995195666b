//! Asks the oracle, a program of its own, and hears what is wrong.

use std::fmt;

use crate::fixture::ChaosFixture;

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OracleViolation(pub String);

impl fmt::Display for OracleViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All that the oracle finds wrong with a stage at rest.
pub fn judge(stage: &ChaosFixture) -> Result<Vec<OracleViolation>, String> {
    stage.save()?;
    let output = stage
        .command(&stage.tools.oracle)
        .arg(&stage.outside)
        .output()
        .map_err(|error| format!("the oracle cannot be asked: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0) => Ok(Vec::new()),
        Some(1) => Ok(said.lines().map(|line| OracleViolation(line.to_owned())).collect()),
        _ => Err(format!("the oracle broke: {said}{}", String::from_utf8_lossy(&output.stderr))),
    }
}
