//! The wire format of OpenAI's Responses API.

use serde_json::{Value, json};

use super::{LlmStreamEvent, epoch, hang, id, offered, pieces, text_of};
use crate::llm::script::{LlmConversation, LlmScriptStep, LlmSpeaker, mark};

const OF_THE_MODEL: [&str; 6] = [
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "reasoning",
    "web_search_call",
    "tool_search_call",
];

pub(super) fn read(body: &Value) -> LlmConversation {
    let mut talk =
        LlmConversation { blob: text_of(&body["instructions"]), ..LlmConversation::default() };
    let input = match &body["input"] {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        other => other.as_array().cloned().unwrap_or_default(),
    };
    for item in &input {
        let kind = item["type"].as_str().unwrap_or("message");
        let (who, seen) = match (kind, item["role"].as_str()) {
            ("message", Some("assistant")) => (LlmSpeaker::Model, None),
            ("message", Some("user")) => (LlmSpeaker::User, None),
            (kind, _) if OF_THE_MODEL.contains(&kind) => {
                (LlmSpeaker::Model, mark(item["call_id"].as_str().into_iter()))
            }
            _ => (LlmSpeaker::Other, None),
        };
        let text = if kind == "message" { text_of(&item["content"]) } else { String::new() };
        talk.blob.push('\n');
        talk.blob.push_str(&text);
        talk.items.push((who, text, seen));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        match tool["type"].as_str() {
            Some("function") => talk.tools.extend(offered(&tool["name"], &tool["parameters"])),
            // Tools of servers come in groups.
            Some("namespace") => {
                for inner in tool["tools"].as_array().into_iter().flatten() {
                    let group = tool["name"].as_str().map(str::to_owned);
                    let inner = offered(&inner["name"], &inner["parameters"]);
                    talk.tools.extend(inner.map(|mut tool| {
                        tool.group = group;
                        tool
                    }));
                }
            }
            _ => {}
        }
    }
    talk
}

pub(super) fn message(body: &Value, step: &LlmScriptStep, talk: &LlmConversation) -> Value {
    let (input, output, cached) = step.usage();
    let mut items = Vec::new();
    if let Some(thought) = step.plan["think"].as_str() {
        let summary = json!([{"type": "summary_text", "text": thought}]);
        items.push(json!({"type": "reasoning", "id": id("rs_"), "summary": summary,
            "encrypted_content": null}));
    }
    if !step.text.is_empty() {
        let content = json!([{"type": "output_text", "text": step.text, "annotations": []}]);
        items.push(json!({"type": "message", "id": id("msg_"), "role": "assistant",
            "status": "completed", "content": content}));
    }
    for (name, args) in &step.calls {
        let mut item = json!({"type": "function_call", "id": id("fc_"),
            "call_id": step.call_id("call_"), "name": name, "arguments": args.to_string(),
            "status": "completed"});
        let tool = talk.tools.iter().find(|tool| tool.name == *name);
        if let Some(group) = tool.and_then(|tool| tool.group.as_ref()) {
            item["namespace"] = json!(group);
        } else if tool.is_none()
            && let Some((server, name)) = deferred(name)
        {
            item["namespace"] = json!(server);
            item["name"] = json!(name);
        }
        items.push(item);
    }
    json!({
        "id": id("resp_"), "object": "response", "created_at": epoch(), "status": "completed",
        "model": body["model"], "output": items, "parallel_tool_calls": true, "error": null,
        "usage": {"input_tokens": input, "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input + output},
    })
}

/// A tool of a server that is there but not offered: `mcp__server__tool` in its two parts.
fn deferred(name: &str) -> Option<(&str, &str)> {
    let at = name.strip_prefix("mcp__")?.find("__")? + "mcp__".len();
    Some((&name[..at], &name[at + 2..]))
}

pub(super) fn events(message: &Value) -> Vec<LlmStreamEvent> {
    let mut all: Vec<LlmStreamEvent> = Vec::new();
    let event = |all: &mut Vec<LlmStreamEvent>, name: &str, mut data: Value| {
        data["type"] = json!(name);
        data["sequence_number"] = json!(all.len() + 1);
        all.push((name.to_owned(), data));
    };
    let mut head = message.clone();
    head["output"] = json!([]);
    head["status"] = json!("in_progress");
    head["usage"] = Value::Null;
    event(&mut all, "response.created", json!({ "response": head }));
    event(&mut all, "response.in_progress", json!({ "response": head }));
    for (n, item) in message["output"].as_array().into_iter().flatten().enumerate() {
        for (name, mut data) in item_events(item) {
            data["output_index"] = json!(n);
            event(&mut all, &format!("response.{name}"), data);
        }
        event(&mut all, "response.output_item.done", json!({"output_index": n, "item": item}));
    }
    all.push(hang());
    event(&mut all, "response.completed", json!({ "response": message }));
    all
}

fn item_events(item: &Value) -> Vec<(&'static str, Value)> {
    let mut empty = item.clone();
    empty["status"] = json!("in_progress");
    let item_id = &item["id"];
    match item["type"].as_str() {
        Some("message") => {
            empty["content"] = json!([]);
            let part = &item["content"][0];
            let text = part["text"].as_str().unwrap_or_default();
            let start = json!({"type": "output_text", "text": "", "annotations": []});
            let mut all = vec![
                ("output_item.added", json!({ "item": empty })),
                (
                    "content_part.added",
                    json!({"item_id": item_id, "content_index": 0, "part": start}),
                ),
            ];
            for piece in pieces(text, 40) {
                let data = json!({"item_id": item_id, "content_index": 0, "delta": piece});
                all.push(("output_text.delta", data));
            }
            all.push((
                "output_text.done",
                json!({"item_id": item_id, "content_index": 0, "text": text}),
            ));
            all.push((
                "content_part.done",
                json!({"item_id": item_id, "content_index": 0, "part": part}),
            ));
            all
        }
        Some("function_call") => {
            empty["arguments"] = json!("");
            let args = item["arguments"].as_str().unwrap_or_default();
            let mut all = vec![("output_item.added", json!({ "item": empty }))];
            for piece in pieces(args, 200) {
                let data = json!({"item_id": item_id, "delta": piece});
                all.push(("function_call_arguments.delta", data));
            }
            let done = json!({"item_id": item_id, "arguments": args});
            all.push(("function_call_arguments.done", done));
            all
        }
        _ => vec![("output_item.added", json!({ "item": empty }))],
    }
}

pub(super) fn usage_limit(seconds: u64, at: u64) -> (Vec<(&'static str, String)>, Value) {
    let headers = vec![
        ("x-codex-primary-used-percent", "100.0".to_owned()),
        ("x-codex-primary-window-minutes", "300".to_owned()),
        ("x-codex-primary-reset-at", at.to_string()),
    ];
    let error = json!({"type": "usage_limit_reached", "plan_type": "pro", "resets_at": at,
        "message": "The usage limit has been reached", "resets_in_seconds": seconds});
    (headers, json!({ "error": error }))
}
