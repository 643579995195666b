//! OpenCode's `run --format json`.
//!
//! It has no last word: the turn has ended when the process has, and it ended well if the last step
//! stopped by itself and no error came. Counts and costs are those of one step each.

use serde_json::Value;

use super::blame::{self, Tool, failed};
use super::line::Line;
use super::{Action, DriveSpec, Protocol, Turn, about, count_at, text_at};
use mainstem_core::fact::{Basis, Fault};

/// A conversation with OpenCode.
pub(crate) struct OpenCode {
    prompt: String,
    agent: String,
    model: String,
    resumed: bool,
    session: String,
    stopped: bool,
    blamed: bool,
}

impl OpenCode {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            agent: spec.agent.clone(),
            model: spec.model.clone().unwrap_or_default(),
            resumed: spec.resume.is_some(),
            session: String::new(),
            stopped: false,
            blamed: false,
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
            "ProviderAuthError" => blame::not_logged_in(Tool::OpenCode, &self.agent, text),
            "ContextOverflowError" => failed(Fault::Context, text),
            "ProviderModelNotFoundError" => failed(Fault::Model, text),
            "MessageAbortedError" => return vec![Action::End(Turn::Ill)],
            _ => failed(Fault::Other, text),
        };
        self.blamed = true;
        vec![Action::Emit(line), Action::End(Turn::Ill)]
    }

    fn refused(&self, data: &Value, text: &str) -> Line {
        let body =
            serde_json::from_str::<Value>(text_at(data, "/responseBody")).unwrap_or_default();
        let spent = ["insufficient_quota", "usage_limit_reached"];
        if spent.contains(&text_at(&body, "/error/code"))
            || spent.contains(&text_at(&body, "/error/type"))
        {
            let reset_at = body["error"]["resets_at"].as_u64();
            let message = blame::short(text);
            return Line::QuotaExhausted { reset_at, window: String::new(), message };
        }
        let status = data["statusCode"].as_u64();
        let wait = text_at(data, "/responseHeaders/retry-after").parse::<f64>().ok();
        match blame::status(Tool::OpenCode, &self.agent, status, text) {
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
            "error" => actions.extend(self.error(&message["error"])),
            _ => {}
        }
        actions
    }

    fn gone(&mut self, code: Option<i32>) -> Vec<Action> {
        if self.session.is_empty() && self.resumed {
            return vec![Action::End(Turn::Lost)];
        }
        if code == Some(0) && self.stopped {
            return vec![Action::End(Turn::Well)];
        }
        let line = failed(Fault::Other, "opencode ended in the middle of its turn");
        vec![Action::Emit(line), Action::End(Turn::Ill)]
    }
}
