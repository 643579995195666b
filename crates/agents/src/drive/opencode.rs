//! OpenCode's `run --format json`.
//!
//! It has no last word: the turn has ended when the process has, and it ended well if the last step
//! stopped by itself and no error came after it. Counts and costs are those of one step each. While it
//! tries again by itself it prints no event; only its log on standard error says so.

use serde_json::Value;

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::{
    DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, describe_tool_input, text_at,
};
use mainstem_core::fact::{AgentFault, CostBasis};

/// So long it may try again by itself. It gives up after 70 to 80 s and then says more of what happened,
/// but waits without end where the provider tells it to, and on a refused key.
const PATIENCE_MS: u64 = 120_000;

/// A conversation with OpenCode.
pub(crate) struct OpenCodeProtocol {
    prompt: String,
    access: ToolAccess,
    model: String,
    resumed: bool,
    session: String,
    stopped: bool,
    /// The conversation outgrew the model; it makes it shorter and goes on by itself.
    overflow: Option<DriveLine>,
}

impl OpenCodeProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            access: ToolAccess::new(DrivenTool::OpenCode, spec),
            model: spec.model.clone().unwrap_or_default(),
            resumed: spec.resume.is_some(),
            session: String::new(),
            stopped: false,
            overflow: None,
        }
    }

    fn handle_step(&mut self, part: &Value) -> Vec<ProtocolAction> {
        self.stopped = text_at(part, "/reason") == "stop";
        let tokens = &part["tokens"];
        vec![ProtocolAction::Emit(DriveLine::Usage {
            input_tokens: count_at(tokens, "/input"),
            output_tokens: count_at(tokens, "/output") + count_at(tokens, "/reasoning"),
            cache_read_tokens: count_at(tokens, "/cache/read"),
            cache_write_tokens: count_at(tokens, "/cache/write"),
            cost_usd: part["cost"].as_f64(),
            model: self.model.clone(),
            basis: part["cost"].as_f64().map(|_| CostBasis::Reported),
        })]
    }

    fn handle_tool(part: &Value) -> Vec<ProtocolAction> {
        let state = &part["state"];
        let (name, what) =
            (text_at(part, "/tool").to_owned(), describe_tool_input(&state["input"]));
        let code = state["metadata"]["exit"].as_i64().unwrap_or(0);
        let failed = text_at(state, "/status") == "error" || code != 0;
        let said = if text_at(state, "/status") == "error" { "/error" } else { "/output" };
        let text = text_at(state, said).to_owned();
        let outcome = ProtocolAction::Outcome { what: format!("{name} {what}"), text, failed };
        vec![ProtocolAction::Tool { name, what }, outcome]
    }

    fn handle_error(&mut self, error: &Value) -> Vec<ProtocolAction> {
        let data = &error["data"];
        let text = text_at(data, "/message");
        let line = match text_at(error, "/name") {
            "APIError" => self.classify_refusal(data, text),
            "ProviderAuthError" => self.access.login_refused(None, text),
            "ContextOverflowError" => {
                (self.stopped, self.overflow) =
                    (false, Some(failure_line(AgentFault::Context, text)));
                return vec![ProtocolAction::Note(format!(
                    "{text} opencode is compacting the conversation"
                ))];
            }
            "ProviderModelNotFoundError" => failure_line(AgentFault::Model, text),
            "MessageAbortedError" => return vec![ProtocolAction::End(TurnEnd::Failed)],
            // What it says of a provider without a key or of one it does not know, before any request.
            "UnknownError" if text.starts_with("Unexpected server error") => {
                self.access.not_logged_in("opencode is not logged in to the provider of the model")
            }
            _ => failure_line(AgentFault::Other, text),
        };
        vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
    }

    fn classify_refusal(&self, data: &Value, text: &str) -> DriveLine {
        let body =
            serde_json::from_str::<Value>(text_at(data, "/responseBody")).unwrap_or_default();
        let wait = text_at(data, "/responseHeaders/retry-after").parse::<f64>().ok();
        let status = data["statusCode"].as_u64();
        let line = failure_class::classify_error_code(&body["error"]);
        match line.unwrap_or_else(|| self.access.classify_status(status, text)) {
            DriveLine::RateLimited { message, retrying, reset_at, .. } => {
                DriveLine::RateLimited { retry_after: wait, reset_at, message, retrying }
            }
            line => line,
        }
    }
}

impl ToolProtocol for OpenCodeProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        vec![ProtocolAction::Send(std::mem::take(&mut self.prompt)), ProtocolAction::CloseInput]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let mut actions = Vec::new();
        let id = text_at(message, "/sessionID");
        if !id.is_empty() && id != self.session {
            id.clone_into(&mut self.session);
            actions.push(ProtocolAction::Emit(DriveLine::Session { id: id.to_owned() }));
        }
        let part = &message["part"];
        match text_at(message, "/type") {
            "text" => actions.push(ProtocolAction::Text(text_at(part, "/text").to_owned())),
            "tool_use" => actions.extend(Self::handle_tool(part)),
            "step_finish" => actions.extend(self.handle_step(part)),
            "step_start" => actions.push(ProtocolAction::GotOn),
            "error" => actions.extend(self.handle_error(&message["error"])),
            _ => {}
        }
        actions
    }

    fn handle_stderr(&mut self, text: &str) -> Vec<ProtocolAction> {
        let Some(said) = parse_failed_request(text) else { return Vec::new() };
        let message = format!("opencode keeps retrying: {said}");
        // Its log has the provider's words and not the status.
        let low = said.to_ascii_lowercase();
        let limited = low.contains("rate limit") || low.contains("too many requests");
        let line = match limited {
            true => failure_class::rate_limit_line(&message, None, false),
            false => failure_line(AgentFault::Transient, &message),
        };
        vec![ProtocolAction::Retrying { line, patience_ms: PATIENCE_MS }]
    }

    fn handle_exit(&mut self, code: Option<i32>) -> Vec<ProtocolAction> {
        if self.session.is_empty() && self.resumed {
            return vec![ProtocolAction::End(TurnEnd::SessionMissing)];
        }
        // After an overflow that it got over it ends with 1 all the same.
        let went_on = self.overflow.is_some() && code == Some(1);
        if self.stopped && (code == Some(0) || went_on) {
            return vec![ProtocolAction::End(TurnEnd::Completed)];
        }
        let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
        let ended = format!("opencode exited {how} in the middle of a turn");
        let line = self.overflow.take().unwrap_or_else(|| failure_line(AgentFault::Other, &ended));
        vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
    }
}

/// What a line of its log says of a request that failed and that it will repeat.
fn parse_failed_request(line: &str) -> Option<&str> {
    let fits = line.contains("level=ERROR") && line.contains("message=\"stream error\"");
    let (_, said) = line.split_once("error.error=\"").filter(|_| fits)?;
    Some(said.trim_end_matches('"'))
}
