//! The protocols that agents speak with models: what a request says, and how an answer, a refusal and a
//! used-up subscription look in each. Knows nothing of scripts beyond the step to be told.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::script::{LlmConversation, LlmOfferedTool, LlmScriptStep, unique};
use crate::http::StandInReply;

/// An event of a stream: its name, which may be empty, and its data. The name `hang` stands for a pause.
pub(super) type LlmStreamEvent = (String, Value);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LlmProtocol {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

impl LlmProtocol {
    /// The protocol of a path.
    pub(super) fn of(path: &str) -> Option<Self> {
        if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
            Some(Self::Gemini)
        } else {
            None
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "responses",
            Self::Chat => "chat",
            Self::Gemini => "gemini",
        }
    }

    pub(super) fn is_stream(self, path: &str, body: &Value) -> bool {
        match self {
            Self::Gemini => path.contains(":streamGenerateContent"),
            _ => body["stream"] == true,
        }
    }

    /// A broken answer is cut after this event.
    pub(super) fn cut(self) -> usize {
        match self {
            Self::Anthropic | Self::Responses => 3,
            Self::Chat => 1,
            Self::Gemini => 0,
        }
    }

    pub(super) fn read(self, body: &Value) -> LlmConversation {
        match self {
            Self::Anthropic => anthropic::read(body),
            Self::Responses => responses::read(body),
            Self::Chat => chat::read(body),
            Self::Gemini => gemini::read(body),
        }
    }

    pub(super) fn message(
        self,
        body: &Value,
        step: &LlmScriptStep,
        talk: &LlmConversation,
    ) -> Value {
        match self {
            Self::Anthropic => anthropic::message(body, step),
            Self::Responses => responses::message(body, step, talk),
            Self::Chat => chat::message(body, step),
            Self::Gemini => gemini::message(step),
        }
    }

    pub(super) fn events(self, message: &Value) -> Vec<LlmStreamEvent> {
        match self {
            Self::Anthropic => anthropic::events(message),
            Self::Responses => responses::events(message),
            Self::Chat => chat::events(message),
            Self::Gemini => gemini::events(message),
        }
    }

    /// An answer with the fault's status.
    pub(super) fn refusal(self, fault: &Value) -> StandInReply {
        let status = fault["status"].as_u64().unwrap_or(500);
        let usual = match status {
            429 => "stub: rate limited",
            401 => "stub: invalid api key",
            529 => "Overloaded",
            500 => "stub: internal error",
            _ => "stub error",
        };
        let text = fault["message"].as_str().unwrap_or(usual);
        let wait = &fault["retry_after"];
        let body = match self {
            Self::Anthropic => anthropic::error(status, text),
            Self::Responses | Self::Chat => openai_error(status, text),
            Self::Gemini => gemini::error(status, text, wait),
        };
        let mut headers = Vec::new();
        if !wait.is_null() {
            headers.push(("retry-after".to_owned(), wait.to_string()));
        }
        for (name, value) in fault["headers"].as_object().into_iter().flatten() {
            headers.push((name.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        StandInReply { status, headers, body }
    }

    /// What a subscription that is used up answers.
    pub(super) fn usage_limit(self, fault: &Value) -> StandInReply {
        let seconds = fault["resets_in"].as_u64().unwrap_or(3600);
        let at = epoch() + seconds;
        let (headers, body) = match self {
            Self::Anthropic => anthropic::usage_limit(seconds, at),
            Self::Responses => responses::usage_limit(seconds, at),
            Self::Chat => {
                let text =
                    "You exceeded your current quota, please check your plan and billing details.";
                let kind = "insufficient_quota";
                let error = json!({"message": text, "type": kind, "param": null, "code": kind});
                (Vec::new(), json!({ "error": error }))
            }
            Self::Gemini => (Vec::new(), gemini::usage_limit()),
        };
        let headers = headers.into_iter().map(|(n, v): (&str, String)| (n.to_owned(), v)).collect();
        StandInReply { status: 429, headers, body }
    }
}

fn openai_error(status: u64, text: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        400..=428 => ("invalid_request_error", None),
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        _ => ("server_error", None),
    };
    json!({"error": {"message": text, "type": kind, "param": null, "code": code}})
}

fn epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn id(prefix: &str) -> String {
    format!("{prefix}{}{}", unique(), unique())
}

/// All text of a message's content, whatever its shape; results of tools are not said by anybody.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().map(text_of).filter(|t| !t.is_empty()).collect::<Vec<_>>().join("\n")
        }
        Value::Object(part) => match (part.get("text"), part.get("content")) {
            (Some(Value::String(text)), _) => text.clone(),
            (_, Some(inner)) if part.get("type") != Some(&json!("tool_result")) => text_of(inner),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn offered(name: &Value, schema: &Value) -> Option<LlmOfferedTool> {
    Some(LlmOfferedTool { name: name.as_str()?.to_owned(), schema: schema.clone(), group: None })
}

/// A text in pieces of about this many characters.
fn pieces(text: &str, n: usize) -> Vec<String> {
    let all: Vec<char> = text.chars().collect();
    all.chunks(n).map(|piece| piece.iter().collect()).collect()
}

fn hang() -> LlmStreamEvent {
    ("hang".to_owned(), Value::Null)
}
