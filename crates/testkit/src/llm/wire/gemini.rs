//! The wire format of Gemini's generateContent API.

use serde_json::{Value, json};

use super::{LlmStreamEvent, hang, id, offered, text_of};
use crate::llm::script::{LlmConversation, LlmScriptStep, LlmSpeaker, mark};

pub(super) fn read(body: &Value) -> LlmConversation {
    let mut talk = LlmConversation {
        blob: text_of(&body["systemInstruction"]["parts"]),
        ..LlmConversation::default()
    };
    for content in body["contents"].as_array().into_iter().flatten() {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        let who = if content["role"] == "model" {
            LlmSpeaker::Model
        } else if parts.iter().any(|part| part.get("functionResponse").is_some()) {
            LlmSpeaker::Other
        } else {
            LlmSpeaker::User
        };
        let seen = mark(parts.iter().filter_map(|part| part["functionCall"]["id"].as_str()));
        let text = text_of(&content["parts"]);
        talk.blob.push('\n');
        talk.blob.push_str(&text);
        talk.items.push((who, text, seen));
    }
    for group in body["tools"].as_array().into_iter().flatten() {
        for tool in group["functionDeclarations"].as_array().into_iter().flatten() {
            let schema = tool.get("parametersJsonSchema").unwrap_or(&tool["parameters"]);
            talk.tools.extend(offered(&tool["name"], schema));
        }
    }
    talk
}

pub(super) fn message(step: &LlmScriptStep) -> Value {
    let (input, output, cached) = step.usage();
    let mut parts = Vec::new();
    if let Some(thought) = step.plan["think"].as_str() {
        parts.push(json!({"text": thought, "thought": true}));
    }
    if !step.text.is_empty() {
        parts.push(json!({ "text": step.text }));
    }
    for (name, args) in &step.calls {
        let call = json!({"id": step.call_id("fc_"), "name": name, "args": args});
        parts.push(json!({ "functionCall": call }));
    }
    json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP",
            "index": 0}],
        "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
            "totalTokenCount": input + output, "cachedContentTokenCount": cached},
        "modelVersion": "stub", "responseId": id(""),
    })
}

pub(super) fn events(message: &Value) -> Vec<LlmStreamEvent> {
    let part = |part: &Value, finish: Option<&str>| {
        let mut chunk = message.clone();
        let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        chunk["candidates"] = json!([candidate]);
        (String::new(), chunk)
    };
    let parts = message["candidates"][0]["content"]["parts"].as_array().into_iter().flatten();
    let mut all: Vec<LlmStreamEvent> = parts.map(|one| part(one, None)).collect();
    all.push(hang());
    all.push(part(&json!({"text": ""}), Some("STOP")));
    all
}

pub(super) fn error(status: u64, text: &str, wait: &Value) -> Value {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        503 => "UNAVAILABLE",
        _ => "UNKNOWN",
    };
    let mut error = json!({"code": status, "message": text, "status": name});
    if !wait.is_null() {
        let kind = "type.googleapis.com/google.rpc.RetryInfo";
        error["details"] = json!([{"@type": kind, "retryDelay": format!("{wait}s")}]);
    }
    json!({ "error": error })
}

pub(super) fn usage_limit() -> Value {
    let violation = json!({
        "quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model_per_day",
        "quotaId": "GenerateRequestsPerDayPerProjectPerModel",
    });
    let kind = "type.googleapis.com/google.rpc.QuotaFailure";
    let text = "You exceeded your current quota, please check your plan.";
    json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": text,
        "details": [{"@type": kind, "violations": [violation]}]}})
}
