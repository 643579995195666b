//! `codex exec --json`: the second way to drive Codex, for versions without an app server.
//!
//! Its errors are texts. Those that count are known by how they begin and the status that follows.
//! Its counts grow over the whole thread, so that it is never resumed: a new thread's are exact.

use serde_json::Value;

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::{DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, text_at};
use mainstem_core::fact::AgentFault;

/// A conversation with `codex exec`.
pub(crate) struct CodexExecProtocol {
    prompt: String,
    access: ToolAccess,
    model: String,
}

impl CodexExecProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        let access = ToolAccess::new(DrivenTool::Codex, spec);
        Self { prompt, access, model: spec.model.clone().unwrap_or_default() }
    }

    fn handle_item(item: &Value, begins: bool) -> Vec<ProtocolAction> {
        let command = || text_at(item, "/command").to_owned();
        match (text_at(item, "/type"), begins) {
            ("command_execution", true) => {
                vec![ProtocolAction::Tool { name: "exec".to_owned(), what: command() }]
            }
            ("command_execution", false) => {
                let failed = item["exit_code"].as_i64().is_some_and(|code| code != 0);
                let text = text_at(item, "/aggregated_output").to_owned();
                vec![ProtocolAction::Outcome { what: command(), text, failed }]
            }
            ("agent_message", false) => {
                vec![ProtocolAction::Text(text_at(item, "/text").to_owned())]
            }
            ("file_change", false) => {
                let changes = item["changes"].as_array().into_iter().flatten();
                let edit = |change: &Value| ProtocolAction::Tool {
                    name: "edit".to_owned(),
                    what: text_at(change, "/path").to_owned(),
                };
                changes.map(edit).collect()
            }
            _ => Vec::new(),
        }
    }

    fn classify_failure(&self, text: &str) -> DriveLine {
        const LIMIT: [&str; 2] = ["You've hit your usage limit", "You’ve hit your usage limit"];
        if LIMIT.iter().any(|start| text.starts_with(start)) {
            return failure_class::quota_line(None, "", text);
        }
        if text.starts_with("Missing environment variable") {
            return self.access.not_logged_in(text);
        }
        if let Some(line) = classify_status_text(&self.access, text) {
            return line;
        }
        let transient =
            ["stream disconnected", "We're currently", "We’re currently", "Selected model"];
        if transient.iter().any(|start| text.starts_with(start)) {
            return failure_line(AgentFault::Transient, text);
        }
        if text.starts_with('{') {
            return classify_body_text(text);
        }
        failure_line(AgentFault::Other, text)
    }
}

impl ToolProtocol for CodexExecProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        vec![ProtocolAction::Send(std::mem::take(&mut self.prompt)), ProtocolAction::CloseInput]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        match text_at(message, "/type") {
            "thread.started" => {
                let id = text_at(message, "/thread_id").to_owned();
                vec![ProtocolAction::Emit(DriveLine::Session { id })]
            }
            "item.started" => Self::handle_item(&message["item"], true),
            "item.completed" => Self::handle_item(&message["item"], false),
            "error" => vec![ProtocolAction::Note(text_at(message, "/message").to_owned())],
            "turn.completed" => {
                let usage = &message["usage"];
                let cached = count_at(usage, "/cached_input_tokens");
                vec![
                    ProtocolAction::Emit(DriveLine::Usage {
                        input_tokens: count_at(usage, "/input_tokens").saturating_sub(cached),
                        output_tokens: count_at(usage, "/output_tokens"),
                        cache_read_tokens: cached,
                        cache_write_tokens: count_at(usage, "/cache_write_input_tokens"),
                        cost_usd: None,
                        model: self.model.clone(),
                        basis: None,
                    }),
                    ProtocolAction::End(TurnEnd::Completed),
                ]
            }
            "turn.failed" => {
                let line = self.classify_failure(text_at(message, "/error/message"));
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
            }
            _ => Vec::new(),
        }
    }

    fn handle_exit(&mut self, code: Option<i32>) -> Vec<ProtocolAction> {
        let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
        let text = format!("codex exited {how} in the middle of a turn");
        vec![
            ProtocolAction::Emit(failure_line(AgentFault::Other, &text)),
            ProtocolAction::End(TurnEnd::Failed),
        ]
    }
}

/// The status in a message that begins as those do that have one.
pub(super) fn classify_status_text(access: &ToolAccess, text: &str) -> Option<DriveLine> {
    let starts = ["exceeded retry limit, last status: ", "unexpected status "];
    let rest = starts.iter().find_map(|start| text.strip_prefix(start))?;
    let status = rest.get(..3)?.parse().ok()?;
    Some(access.classify_status(Some(status), text))
}

/// A refused request whose answer comes as it is.
pub(super) fn classify_body_text(text: &str) -> DriveLine {
    let body = serde_json::from_str::<Value>(text).unwrap_or_default();
    failure_class::classify_error_code(&body["error"])
        .unwrap_or_else(|| failure_line(AgentFault::Request, text))
}
