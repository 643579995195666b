//! OpenCode's `run --format json`.
//!
//! It has no last word: the turn has ended when the process has, and it ended well if the last step
//! stopped by itself and no error came after it. Counts and costs are those of one step each. While it
//! tries again by itself it prints no event; only its log on standard error says so.

use serde_json::Value;

use super::blame::{self, Access, Tool, failed};
use super::line::Line;
use super::{Action, DriveSpec, Protocol, Turn, about, count_at, text_at};
use mainstem_core::fact::{Basis, Fault};

/// So long it may try again by itself. It gives up after 70 to 80 s and then says more of what happened,
/// but waits without end where the provider tells it to, and on a refused key.
const PATIENCE_MS: u64 = 120_000;

/// A conversation with OpenCode.
pub(crate) struct OpenCode {
    prompt: String,
    access: Access,
    model: String,
    resumed: bool,
    session: String,
    stopped: bool,
    /// The conversation outgrew the model; it makes it shorter and goes on by itself.
    overflow: Option<Line>,
}

impl OpenCode {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            access: Access::new(Tool::OpenCode, spec),
            model: spec.model.clone().unwrap_or_default(),
            resumed: spec.resume.is_some(),
            session: String::new(),
            stopped: false,
            overflow: None,
        }
    }

    fn step(&mut self, part: &Value) -> Vec<Action> {
        self.stopped = text_at(part, "/reason") == "stop";
        let tokens = &part["tokens"];
        vec![Action::Emit(Line::Usage {
            input_tokens: count_at(tokens, "/input"),
            output_tokens: count_at(tokens, "/output") + count_at(tokens, "/reasoning"),
            cache_read_tokens: count_at(tokens, "/cache/read"),
            cache_write_tokens: count_at(tokens, "/cache/write"),
            cost_usd: part["cost"].as_f64(),
            model: self.model.clone(),
            basis: part["cost"].as_f64().map(|_| Basis::Reported),
        })]
    }

    fn tool(part: &Value) -> Vec<Action> {
        let state = &part["state"];
        let (name, what) = (text_at(part, "/tool").to_owned(), about(&state["input"]));
        let code = state["metadata"]["exit"].as_i64().unwrap_or(0);
        let failed = text_at(state, "/status") == "error" || code != 0;
        let said = if text_at(state, "/status") == "error" { "/error" } else { "/output" };
        let text = text_at(state, said).to_owned();
        let outcome = Action::Outcome { what: format!("{name} {what}"), text, failed };
        vec![Action::Tool { name, what }, outcome]
    }

    fn error(&mut self, error: &Value) -> Vec<Action> {
        let data = &error["data"];
        let text = text_at(data, "/message");
        let line = match text_at(error, "/name") {
            "APIError" => self.refused(data, text),
            "ProviderAuthError" => self.access.refused(None, text),
            "ContextOverflowError" => {
                (self.stopped, self.overflow) = (false, Some(failed(Fault::Context, text)));
                return vec![Action::Note(format!(
                    "{text} opencode is compacting the conversation"
                ))];
            }
            "ProviderModelNotFoundError" => failed(Fault::Model, text),
            "MessageAbortedError" => return vec![Action::End(Turn::Ill)],
            // What it says of a provider without a key or of one it does not know, before any request.
            "UnknownError" if text.starts_with("Unexpected server error") => {
                self.access.not_logged_in("opencode is not logged in to the provider of the model")
            }
            _ => failed(Fault::Other, text),
        };
        vec![Action::Emit(line), Action::End(Turn::Ill)]
    }

    fn refused(&self, data: &Value, text: &str) -> Line {
        let body =
            serde_json::from_str::<Value>(text_at(data, "/responseBody")).unwrap_or_default();
        let wait = text_at(data, "/responseHeaders/retry-after").parse::<f64>().ok();
        let status = data["statusCode"].as_u64();
        let line = blame::by_code(&body["error"]);
        match line.unwrap_or_else(|| self.access.status(status, text)) {
            Line::RateLimited { message, retrying, reset_at, .. } => {
                Line::RateLimited { retry_after: wait, reset_at, message, retrying }
            }
            line => line,
        }
    }
}

impl Protocol for OpenCode {
    fn begin(&mut self) -> Vec<Action> {
        vec![Action::Send(std::mem::take(&mut self.prompt)), Action::CloseInput]
    }

    fn line(&mut self, message: &Value) -> Vec<Action> {
        let mut actions = Vec::new();
        let id = text_at(message, "/sessionID");
        if !id.is_empty() && id != self.session {
            id.clone_into(&mut self.session);
            actions.push(Action::Emit(Line::Session { id: id.to_owned() }));
        }
        let part = &message["part"];
        match text_at(message, "/type") {
            "text" => actions.push(Action::Text(text_at(part, "/text").to_owned())),
            "tool_use" => actions.extend(Self::tool(part)),
            "step_finish" => actions.extend(self.step(part)),
            "step_start" => actions.push(Action::GotOn),
            "error" => actions.extend(self.error(&message["error"])),
            _ => {}
        }
        actions
    }

    fn complaint(&mut self, text: &str) -> Vec<Action> {
        let Some(said) = failed_request(text) else { return Vec::new() };
        let message = format!("opencode keeps retrying: {said}");
        // Its log has the provider's words and not the status.
        let low = said.to_ascii_lowercase();
        let limited = low.contains("rate limit") || low.contains("too many requests");
        let line = match limited {
            true => blame::rate_limited(&message, None, false),
            false => failed(Fault::Transient, &message),
        };
        vec![Action::Retrying { line, patience_ms: PATIENCE_MS }]
    }

    fn gone(&mut self, code: Option<i32>) -> Vec<Action> {
        if self.session.is_empty() && self.resumed {
            return vec![Action::End(Turn::Lost)];
        }
        // After an overflow that it got over it ends with 1 all the same.
        let went_on = self.overflow.is_some() && code == Some(1);
        if self.stopped && (code == Some(0) || went_on) {
            return vec![Action::End(Turn::Well)];
        }
        let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
        let ended = format!("opencode exited {how} in the middle of a turn");
        let line = self.overflow.take().unwrap_or_else(|| failed(Fault::Other, &ended));
        vec![Action::Emit(line), Action::End(Turn::Ill)]
    }
}

/// What a line of its log says of a request that failed and that it will repeat.
fn failed_request(line: &str) -> Option<&str> {
    let fits = line.contains("level=ERROR") && line.contains("message=\"stream error\"");
    let (_, said) = line.split_once("error.error=\"").filter(|_| fits)?;
    Some(said.trim_end_matches('"'))
}
