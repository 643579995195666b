//! Turns an attempt into one agent's argv and environment, and its bytes into events.
//!
//! Pure: argv out, bytes in. Spawns nothing, opens no file, reads no environment, and knows neither
//! the graph nor the run around the attempt. An adapter is two things: a launch and a line parser.
//! The tools of the vendors are not started themselves but through `mainstem __drive`, which speaks
//! their protocols by [`drive`] and prints lines that the one parser of [`line_protocol`] reads.

pub mod adapter;
pub mod command;
pub mod script;
pub mod line_protocol;
pub mod environment;
pub mod prompt;
pub mod redact;
pub mod drive;
mod launch;
pub mod known_agents;
pub mod secret_scan;

pub use adapter::{
    AgentAdapter, LaunchBrief, LaunchError, LaunchSpec, UnknownAgentKind, find_adapter,
};
pub use drive::{DriveSpec, McpServerEntry};
pub use environment::{AgentEnvironment, allowed_environment};
pub use line_protocol::{AgentEvent, AgentOutputParser, answer_line};
pub use prompt::{
    EarlierWork, PromptConflictSides, PromptInput, PromptTemplate, PromptTemplateError,
    RetryContext,
};
pub use redact::SecretRedactor;
pub use secret_scan::SecretScanner;
