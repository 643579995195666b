//! `codex exec --json`: the second way to drive Codex, for versions without an app server.
//!
//! Its errors are texts. Those that count are known by how they begin and the status that follows.
//! Its counts grow over the whole thread, so that it is never resumed: a new thread's are exact.

use serde_json::Value;

use super::blame::{self, Access, Tool, failed};
use super::line::Line;
use super::{Action, DriveSpec, Protocol, Turn, count_at, text_at};
use mainstem_core::fact::Fault;

/// A conversation with `codex exec`.
pub(crate) struct CodexExec {
    prompt: String,
    access: Access,
    model: String,
}

impl CodexExec {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        let access = Access::new(Tool::Codex, spec);
        Self { prompt, access, model: spec.model.clone().unwrap_or_default() }
    }

    fn item(item: &Value, begins: bool) -> Vec<Action> {
        let command = || text_at(item, "/command").to_owned();
        match (text_at(item, "/type"), begins) {
            ("command_execution", true) => {
                vec![Action::Tool { name: "exec".to_owned(), what: command() }]
            }
            ("command_execution", false) => {
                let failed = item["exit_code"].as_i64().is_some_and(|code| code != 0);
                let text = text_at(item, "/aggregated_output").to_owned();
                vec![Action::Outcome { what: command(), text, failed }]
            }
            ("agent_message", false) => vec![Action::Text(text_at(item, "/text").to_owned())],
            ("file_change", false) => {
                let changes = item["changes"].as_array().into_iter().flatten();
                let edit = |change: &Value| Action::Tool {
                    name: "edit".to_owned(),
                    what: text_at(change, "/path").to_owned(),
                };
                changes.map(edit).collect()
            }
            _ => Vec::new(),
        }
    }

    fn blame(&self, text: &str) -> Line {
        const LIMIT: [&str; 2] = ["You've hit your usage limit", "You’ve hit your usage limit"];
        if LIMIT.iter().any(|start| text.starts_with(start)) {
            return blame::used_up(None, "", text);
        }
        if text.starts_with("Missing environment variable") {
            return self.access.not_logged_in(text);
        }
        if let Some(line) = by_status(&self.access, text) {
            return line;
        }
        let transient =
            ["stream disconnected", "We're currently", "We’re currently", "Selected model"];
        if transient.iter().any(|start| text.starts_with(start)) {
            return failed(Fault::Transient, text);
        }
        if text.starts_with('{') {
            return by_body(text);
        }
        failed(Fault::Other, text)
    }
}

impl Protocol for CodexExec {
    fn begin(&mut self) -> Vec<Action> {
        vec![Action::Send(std::mem::take(&mut self.prompt)), Action::CloseInput]
    }

    fn line(&mut self, message: &Value) -> Vec<Action> {
        match text_at(message, "/type") {
            "thread.started" => {
                let id = text_at(message, "/thread_id").to_owned();
                vec![Action::Emit(Line::Session { id })]
            }
            "item.started" => Self::item(&message["item"], true),
            "item.completed" => Self::item(&message["item"], false),
            "error" => vec![Action::Note(text_at(message, "/message").to_owned())],
            "turn.completed" => {
                let usage = &message["usage"];
                let cached = count_at(usage, "/cached_input_tokens");
                vec![
                    Action::Emit(Line::Usage {
                        input_tokens: count_at(usage, "/input_tokens").saturating_sub(cached),
                        output_tokens: count_at(usage, "/output_tokens"),
                        cache_read_tokens: cached,
                        cache_write_tokens: count_at(usage, "/cache_write_input_tokens"),
                        cost_usd: None,
                        model: self.model.clone(),
                        basis: None,
                    }),
                    Action::End(Turn::Well),
                ]
            }
            "turn.failed" => {
                let line = self.blame(text_at(message, "/error/message"));
                vec![Action::Emit(line), Action::End(Turn::Ill)]
            }
            _ => Vec::new(),
        }
    }

    fn gone(&mut self, code: Option<i32>) -> Vec<Action> {
        let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
        let text = format!("codex exited {how} in the middle of a turn");
        vec![Action::Emit(failed(Fault::Other, &text)), Action::End(Turn::Ill)]
    }
}

/// The status in a message that begins as those do that have one.
pub(super) fn by_status(access: &Access, text: &str) -> Option<Line> {
    let starts = ["exceeded retry limit, last status: ", "unexpected status "];
    let rest = starts.iter().find_map(|start| text.strip_prefix(start))?;
    let status = rest.get(..3)?.parse().ok()?;
    Some(access.status(Some(status), text))
}

/// A refused request whose answer comes as it is.
pub(super) fn by_body(text: &str) -> Line {
    let body = serde_json::from_str::<Value>(text).unwrap_or_default();
    blame::by_code(&body["error"]).unwrap_or_else(|| failed(Fault::Request, text))
}
