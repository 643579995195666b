//! Turns an attempt into one agent's argv and environment, and its bytes into events.
//!
//! Pure: argv out, bytes in. Spawns nothing, opens no file, reads no environment, and knows neither
//! the graph nor the run around the attempt. An adapter is two things: a launch and a line parser.
//! The tools of the vendors are not started themselves but through `mainstem __drive`, which speaks
//! their protocols by [`drive`] and prints lines that the one parser of [`lines`] reads.

pub mod adapter;
pub mod command;
pub mod script;
pub mod lines;
pub mod environment;
pub mod prompt;
pub mod redact;
pub mod drive;
mod launch;
pub mod known;
pub mod leaks;

pub use adapter::{Adapter, Brief, Launch, LaunchError, UnknownKind, adapter};
pub use drive::{DriveSpec, McpEntry};
pub use environment::{Environment, allowed_env};
pub use leaks::Scan;
pub use lines::{AgentEvent, Parser, answer_line};
pub use prompt::{EarlierWork, PromptInput, RetryContext, Sides, Template, TemplateError};
pub use redact::Redactor;
