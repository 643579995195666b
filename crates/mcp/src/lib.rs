//! A server of the Model Context Protocol on standard input and output, started by an agent's own program,
//! one per attempt. Its tools are how an agent asks, reports and proposes.
//!
//! It decides nothing and keeps nothing: every word goes as a line of the line protocol through the
//! attempt's door ([`tool_socket`]), whose keeper outlives the engine, and questions wait there. Knows neither
//! the journal nor the plan; what it can tell of the task is in two files written at the start.

pub mod tool_socket;
mod server;
pub mod tools;

use std::io;
use std::path::PathBuf;

/// What the server is told through its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpEnvironment {
    pub socket: PathBuf,
    pub token: String,
    /// Where `task.json` and `peers.json` are.
    pub folder: PathBuf,
}

/// A variable that must be set is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("${0} is not set; this server is started by an agent that Mainstem runs, not by hand")]
pub struct MissingVariable(pub &'static str);

impl McpEnvironment {
    /// Reads them from variables.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Self, MissingVariable> {
        let need = |name| get(name).filter(|value| !value.is_empty()).ok_or(MissingVariable(name));
        Ok(Self {
            socket: need("MAINSTEM_MCP_SOCKET")?.into(),
            token: need("MAINSTEM_MCP_TOKEN")?,
            folder: need("MAINSTEM_TMP")?.into(),
        })
    }
}

/// Serves standard input and output until the client goes.
pub fn serve(surroundings: McpEnvironment, version: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(server::serve_stdio(surroundings, version));
    // A read of standard input that is under way would be waited for, maybe for ever.
    runtime.shutdown_background();
    served
}
