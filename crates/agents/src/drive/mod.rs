//! Speaking with a coding agent's command line tool: what it prints comes in, what to write to it
//! and what to tell the engine goes out.
//!
//! Pure: no process, no file, no clock (the time is an argument). `mainstem __drive` owns the process
//! and is a small loop around [`ToolConversation`]. Each tool has one `Protocol`; what is common to all of them
//! (the readable log, progress, repetition) is in [`ToolConversation`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod acp;
mod failure_class;
mod claude;
mod codex;
mod codex_exec;
mod gemini;
mod drive_line;
mod opencode;
mod loop_detector;
mod json_rpc;
mod conversation;

pub use conversation::{DriveCommand, ToolConversation};
pub use drive_line::DriveLine;

/// Everything `mainstem __drive` needs to know; written to a file before the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveSpec {
    /// Which protocol the tool speaks; see `protocol`.
    pub protocol: String,
    /// The tool's program: a name on the search path or a path.
    pub program: String,
    pub args: Vec<String>,
    /// The arguments to try once if the session to go on with is not there; none if nothing is.
    pub fresh_args: Option<Vec<String>>,
    /// The protocol and arguments to fall back on if the tool ends without a word.
    pub fallback: Option<DriveFallback>,
    /// Variables that are set whatever else says so.
    pub set: Vec<(String, String)>,
    /// A home of its own with one settings file changed, for a tool that takes settings in no other way.
    pub overlay: Option<SettingsOverlay>,
    /// Variables that are set only for the superuser.
    pub as_root: BTreeMap<String, String>,
    /// Where the prompt is.
    pub prompt_file: String,
    pub workspace: String,
    /// Where the tool's own lines are kept.
    pub transcript: String,
    /// The session to go on with.
    pub resume: Option<String>,
    pub model: Option<String>,
    /// How hard it thinks.
    pub effort: Option<String>,
    /// Instructions for the tool's system prompt.
    pub system_prompt: Option<String>,
    /// Only these tools may be used, if set.
    pub allowed_tools: Option<Vec<String>>,
    /// Our MCP server, for protocols that take it in a message.
    pub mcp: Option<McpServerEntry>,
    /// The agent's name under `[agents.*]`, for advice.
    pub agent: String,
    /// The variables with keys of its provider that it was given, for advice.
    #[serde(default)]
    pub keys: Vec<String>,
}

/// Another way to drive the same tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFallback {
    pub protocol: String,
    pub args: Vec<String>,
}

/// A folder that looks like the tool's own but for one file of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsOverlay {
    /// The variable that tells the tool of its home.
    pub variable: String,
    /// The home to make.
    pub home: String,
    /// The folder in it that holds the tool's files.
    pub folder: String,
    pub source: String,
    /// The file of settings.
    pub file: String,
    /// What to change in it, as JSON.
    pub settings: String,
    /// Folders that are made in the real one first, so that what is kept there stays.
    pub shared: Vec<String>,
}

/// How an agent's tool starts our MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerEntry {
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// The model said that it is through.
    Completed,
    /// It was ended by an error, a limit or us.
    Failed,
    /// The session to go on with does not exist: to be tried afresh.
    SessionMissing,
}

/// What a protocol wants done or knows now.
#[derive(Debug, Clone, PartialEq)]
pub enum ProtocolAction {
    /// Write this line to the tool.
    Send(String),
    /// Nothing more will be written to the tool.
    CloseInput,
    /// The model said this.
    Text(String),
    /// A tool of the agent was started.
    Tool {
        name: String,
        /// What it does: a command, a path.
        what: String,
    },
    /// A tool of the agent has ended.
    Outcome {
        /// Its name and what it did, as at its start; what repeats is known by it.
        what: String,
        /// What it gave back.
        text: String,
        failed: bool,
    },
    /// Something to note in the log.
    Note(String),
    /// A line for the engine.
    Emit(DriveLine),
    /// The tool met trouble and tries again by itself. If it gets nowhere for `patience_ms` from the
    /// first such word on, its turn is over, and this is why.
    Retrying {
        /// What is said then.
        line: DriveLine,
        /// How long it may take.
        patience_ms: u64,
    },
    /// The tool got on after all.
    GotOn,
    /// The turn has ended; what comes after is of no interest.
    End(TurnEnd),
}

/// One tool's protocol, as a state machine. It is given whole lines and never fails: what it does not
/// understand it passes over.
pub(crate) trait ToolProtocol: Send {
    /// The tool has been started.
    fn handle_start(&mut self) -> Vec<ProtocolAction>;
    /// A line of its standard output.
    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction>;
    /// A line of its standard error.
    fn handle_stderr(&mut self, _text: &str) -> Vec<ProtocolAction> {
        Vec::new()
    }
    /// Asks the tool to stop in the middle of its turn. Empty if the protocol has no word for it.
    fn interrupt_turn(&mut self) -> Vec<ProtocolAction> {
        Vec::new()
    }
    /// Says something to the model in the middle of its turn. Empty if the protocol cannot.
    fn send_guidance(&mut self, _text: &str) -> Vec<ProtocolAction> {
        Vec::new()
    }
    /// The tool is gone, and its turn had not ended; `code` is its exit code if it had one.
    fn handle_exit(&mut self, code: Option<i32>) -> Vec<ProtocolAction>;
}

/// The protocol that a spec names.
pub(crate) fn find_protocol(spec: &DriveSpec, prompt: String) -> Option<Box<dyn ToolProtocol>> {
    Some(match spec.protocol.as_str() {
        "claude" => Box::new(claude::ClaudeProtocol::new(spec, prompt)),
        "codex" => Box::new(codex::CodexProtocol::new(spec, prompt)),
        "codex-exec" => Box::new(codex_exec::CodexExecProtocol::new(spec, prompt)),
        "gemini" => Box::new(gemini::GeminiProtocol::new(spec, prompt)),
        "opencode" => Box::new(opencode::OpenCodeProtocol::new(spec, prompt)),
        "acp" => Box::new(acp::AcpProtocol::new(spec, prompt)),
        _ => return None,
    })
}

/// The text at a JSON pointer, empty if there is none.
fn text_at<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a JSON pointer, zero if there is none.
fn count_at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// What a call of a tool is about, in one line: its command, its path, or its input.
fn describe_tool_input(input: &Value) -> String {
    for key in ["command", "cmd", "file_path", "filePath", "path", "absolute_path", "url", "query"]
    {
        match &input[key] {
            Value::String(text) => return text.clone(),
            Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                return words.join(" ");
            }
            _ => {}
        }
    }
    if input.as_object().is_none_or(serde_json::Map::is_empty) {
        return String::new();
    }
    let text = input.to_string();
    crate::line_protocol::truncate_text(&text, 300).to_owned()
}
