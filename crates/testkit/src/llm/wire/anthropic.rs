//! The wire format of Anthropic's Messages API.

use serde_json::{Value, json};

use super::{LlmStreamEvent, hang, id, offered, pieces, text_of};
use crate::llm::script::{LlmConversation, LlmScriptStep, LlmSpeaker, mark};

pub(super) fn read(body: &Value) -> LlmConversation {
    let mut talk = LlmConversation { blob: text_of(&body["system"]), ..LlmConversation::default() };
    for message in body["messages"].as_array().into_iter().flatten() {
        let who = if message["role"] == "assistant" { LlmSpeaker::Model } else { LlmSpeaker::User };
        let blocks = message["content"].as_array().into_iter().flatten();
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        let seen = mark(calls.filter_map(|block| block["id"].as_str()));
        let text = text_of(&message["content"]);
        talk.blob.push('\n');
        talk.blob.push_str(&text);
        talk.items.push((who, text, seen));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    talk.tools = tools.filter_map(|tool| offered(&tool["name"], &tool["input_schema"])).collect();
    talk
}

pub(super) fn message(body: &Value, step: &LlmScriptStep) -> Value {
    let (input, output, cached) = step.usage();
    let mut content = Vec::new();
    if let Some(thought) = step.plan["think"].as_str() {
        content.push(json!({"type": "thinking", "thinking": thought, "signature": "c3R1Yg=="}));
    }
    if !step.text.is_empty() {
        content.push(json!({"type": "text", "text": step.text}));
    }
    for (name, args) in &step.calls {
        let id = step.call_id("toolu_");
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": args}));
    }
    let stop = if step.calls.is_empty() { "end_turn" } else { "tool_use" };
    json!({
        "id": id("msg_"), "type": "message", "role": "assistant", "model": body["model"],
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached, "output_tokens": output, "service_tier": "standard"},
    })
}

pub(super) fn events(message: &Value) -> Vec<LlmStreamEvent> {
    let mut all = Vec::new();
    let mut event = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        all.push((name.to_owned(), data));
    };
    let mut head = message.clone();
    head["content"] = json!([]);
    head["stop_reason"] = Value::Null;
    head["usage"]["output_tokens"] = json!(1);
    event("message_start", json!({ "message": head }));
    event("ping", json!({}));
    for (n, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let (empty, deltas) = parts(block);
        event("content_block_start", json!({"index": n, "content_block": empty}));
        for delta in deltas {
            event("content_block_delta", json!({"index": n, "delta": delta}));
        }
        event("content_block_stop", json!({ "index": n }));
    }
    all.push(hang());
    let mut event = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        all.push((name.to_owned(), data));
    };
    let delta = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    let usage = json!({"output_tokens": message["usage"]["output_tokens"]});
    event("message_delta", json!({"delta": delta, "usage": usage}));
    event("message_stop", json!({}));
    all
}

/// A block without its content, and its content in pieces.
fn parts(block: &Value) -> (Value, Vec<Value>) {
    let text = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let delta = |kind: &str, key: &str, text: String| json!({"type": kind, key: text});
    match block["type"].as_str() {
        Some("text") => {
            let pieces = pieces(&text("text"), 40).into_iter();
            let deltas = pieces.map(|piece| delta("text_delta", "text", piece)).collect();
            (json!({"type": "text", "text": ""}), deltas)
        }
        Some("thinking") => {
            let deltas = vec![
                delta("thinking_delta", "thinking", text("thinking")),
                delta("signature_delta", "signature", text("signature")),
            ];
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }
        _ => {
            let mut empty = block.clone();
            empty["input"] = json!({});
            let pieces = pieces(&block["input"].to_string(), 200).into_iter();
            (empty, pieces.map(|p| delta("input_json_delta", "partial_json", p)).collect())
        }
    }
}

pub(super) fn error(status: u64, text: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let error = json!({"type": kind, "message": text});
    json!({"type": "error", "error": error, "request_id": id("req_")})
}

pub(super) fn usage_limit(seconds: u64, at: u64) -> (Vec<(&'static str, String)>, Value) {
    let headers = vec![
        ("anthropic-ratelimit-unified-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-reset", at.to_string()),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour".to_owned()),
        ("anthropic-ratelimit-unified-overage-status", "rejected".to_owned()),
        ("anthropic-ratelimit-unified-overage-disabled-reason", "org_level_disabled".to_owned()),
        ("retry-after", seconds.to_string()),
    ];
    let text = "This request would exceed your account's rate limit. Please try again later.";
    (headers, error(429, text))
}
