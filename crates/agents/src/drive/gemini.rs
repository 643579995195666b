//! Gemini CLI's stream-json.
//!
//! Its errors have no kind of their own: the provider's answer stands as JSON or as a known sentence in
//! the message, and retries are announced on standard error only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::{
    DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, describe_tool_input, text_at,
};
use mainstem_core::fact::AgentFault;

/// A conversation with Gemini CLI.
pub(crate) struct GeminiProtocol {
    prompt: String,
    access: ToolAccess,
    resumed: bool,
    began: bool,
    /// The last error that came as an event of its own.
    trouble: String,
    /// The provider's last answer was that there were too many requests.
    limited: bool,
    calls: BTreeMap<String, String>,
    said: String,
}

impl GeminiProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            access: ToolAccess::new(DrivenTool::Gemini, spec),
            resumed: spec.resume.is_some(),
            began: false,
            trouble: String::new(),
            limited: false,
            calls: BTreeMap::new(),
            said: String::new(),
        }
    }

    /// What was said in pieces, as one text.
    fn flush_text(&mut self) -> Vec<ProtocolAction> {
        let text = std::mem::take(&mut self.said);
        if text.trim().is_empty() { Vec::new() } else { vec![ProtocolAction::Text(text)] }
    }

    fn handle_result(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let mut actions = self.flush_text();
        for (model, stats) in message["stats"]["models"].as_object().into_iter().flatten() {
            let cached = count_at(stats, "/cached");
            let input = count_at(stats, "/input_tokens").saturating_sub(cached);
            let output = count_at(stats, "/output_tokens");
            if input + output + cached > 0 {
                actions.push(ProtocolAction::Emit(DriveLine::Usage {
                    input_tokens: input,
                    output_tokens: output,
                    cache_read_tokens: cached,
                    cache_write_tokens: 0,
                    cost_usd: None,
                    model: model.clone(),
                    basis: None,
                }));
            }
        }
        if text_at(message, "/status") == "success" {
            actions.push(ProtocolAction::End(TurnEnd::Completed));
        } else {
            let line = self.classify_failure(text_at(message, "/error/message"));
            actions.extend([ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]);
        }
        actions
    }

    fn classify_failure(&self, text: &str) -> DriveLine {
        // An answer that breaks off or is empty ends in an error without words of its own.
        if text.is_empty() {
            let said = Some(self.trouble.as_str()).filter(|said| !said.is_empty());
            return failure_line(
                AgentFault::Transient,
                said.unwrap_or("the provider's answer was cut off"),
            );
        }
        let inner = text.strip_prefix("[API Error: ").unwrap_or(text);
        let body = inner.rfind('}').and_then(|end| inner.get(..=end));
        let body = body.and_then(|body| serde_json::from_str::<Value>(body).ok());
        if let Some(error) = body.as_ref().map(|body| &body["error"])
            && let Some(status) = error["code"].as_u64()
        {
            let line = failure_class::classify_error_code(error);
            return line.unwrap_or_else(|| self.access.classify_status(Some(status), text));
        }
        if inner.starts_with("You have exhausted your") {
            return failure_class::quota_line(None, "", text);
        }
        let wait = inner
            .rsplit_once("Suggested retry after ")
            .and_then(|(_, rest)| parse_retry_seconds(rest));
        // It adds this to every 429, and only to those.
        let limited =
            self.limited || inner.contains("]\nPlease wait and try again later. To increase");
        if wait.is_some() || limited {
            return failure_class::rate_limit_line(text, wait, false);
        }
        if inner.starts_with("models/") && inner.contains(" is not found for API version") {
            return failure_line(AgentFault::Model, text);
        }
        if ["terminated", "fetch failed", "exception TypeError: fetch failed"]
            .iter()
            .any(|start| inner.starts_with(start))
        {
            return failure_line(AgentFault::Transient, text);
        }
        failure_line(AgentFault::Other, text)
    }
}

impl ToolProtocol for GeminiProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        vec![ProtocolAction::Send(std::mem::take(&mut self.prompt)), ProtocolAction::CloseInput]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let kind = text_at(message, "/type");
        if kind == "message" && message["role"] == "assistant" {
            self.said.push_str(text_at(message, "/content"));
            // A model that never stops is not kept in memory.
            return if self.said.len() > 1 << 20 { self.flush_text() } else { Vec::new() };
        }
        let mut actions = self.flush_text();
        match kind {
            "init" => {
                self.began = true;
                let id = text_at(message, "/session_id").to_owned();
                actions.push(ProtocolAction::Emit(DriveLine::Session { id }));
            }
            "tool_use" => {
                let (name, what) =
                    (text_at(message, "/tool_name"), describe_tool_input(&message["parameters"]));
                let id = text_at(message, "/tool_id").to_owned();
                self.calls.insert(id, format!("{name} {what}"));
                actions.push(ProtocolAction::Tool { name: name.to_owned(), what });
            }
            "tool_result" => actions.push(ProtocolAction::Outcome {
                what: self.calls.remove(text_at(message, "/tool_id")).unwrap_or_default(),
                text: text_at(message, "/output").to_owned(),
                failed: text_at(message, "/status") == "error",
            }),
            "error" => {
                text_at(message, "/message").clone_into(&mut self.trouble);
                actions.push(ProtocolAction::Note(self.trouble.clone()));
            }
            "result" => actions.extend(self.handle_result(message)),
            _ => {}
        }
        actions
    }

    fn handle_stderr(&mut self, text: &str) -> Vec<ProtocolAction> {
        let lost = ["Error resuming session", "Invalid session identifier", "No previous sessions"];
        if self.resumed && !self.began && lost.iter().any(|start| text.starts_with(start)) {
            return vec![ProtocolAction::End(TurnEnd::SessionMissing)];
        }
        if text.starts_with("Invalid auth method selected")
            || text.starts_with("Please set an Auth method")
        {
            let line = self.access.not_logged_in(text);
            return vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)];
        }
        if mentions_rate_limit(text) {
            return vec![ProtocolAction::Emit(failure_class::rate_limit_line(text, None, true))];
        }
        if let Some(status) = text.trim().strip_prefix("status: ") {
            self.limited = status == "429";
        }
        Vec::new()
    }

    fn handle_exit(&mut self, code: Option<i32>) -> Vec<ProtocolAction> {
        let mut actions = self.flush_text();
        if self.resumed && !self.began {
            actions.push(ProtocolAction::End(TurnEnd::SessionMissing));
            return actions;
        }
        // 41 is its code for a login that does not work; errors of the provider come as results.
        let line = match code {
            Some(41) => self.access.not_logged_in("gemini is not logged in"),
            Some(code) => {
                let text = format!("gemini exited with code {code} in the middle of a turn");
                failure_line(AgentFault::Other, &text)
            }
            None => failure_line(
                AgentFault::Other,
                "gemini was killed by a signal in the middle of a turn",
            ),
        };
        actions.extend([ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]);
        actions
    }
}

/// `Attempt 2 failed: …` is what it says of a limit, with the provider's words; of other failures it
/// says which status they had.
fn mentions_rate_limit(text: &str) -> bool {
    let Some((tries, rest)) = text.strip_prefix("Attempt ").and_then(|r| r.split_once(" failed"))
    else {
        return false;
    };
    let limit = [": ", " with 429 error", " with status 429"];
    // The last try is no wait, and other failures that come as JSON carry their own status.
    let other = rest.ends_with("Max attempts reached") || rest.starts_with(": {\"error\"");
    tries.parse::<u32>().is_ok() && !other && limit.iter().any(|start| rest.starts_with(start))
}

fn parse_retry_seconds(text: &str) -> Option<f64> {
    let number: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    number.parse().ok()
}
