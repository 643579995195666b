//! OpenAI's Chat Completions, which many others speak as well.

use serde_json::{Value, json};

use super::{LlmStreamEvent, epoch, hang, id, offered, pieces, text_of};
use crate::llm::script::{LlmConversation, LlmScriptStep, LlmSpeaker, mark};

pub(super) fn read(body: &Value) -> LlmConversation {
    let mut talk = LlmConversation::default();
    for message in body["messages"].as_array().into_iter().flatten() {
        let who = match message["role"].as_str() {
            Some("assistant") => LlmSpeaker::Model,
            Some("user") => LlmSpeaker::User,
            _ => LlmSpeaker::Other,
        };
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let seen = mark(calls.filter_map(|call| call["id"].as_str()));
        let text = text_of(&message["content"]);
        talk.blob.push('\n');
        talk.blob.push_str(&text);
        talk.items.push((who, text, seen));
    }
    let tools = body["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]);
    talk.tools = tools.filter_map(|tool| offered(&tool["name"], &tool["parameters"])).collect();
    talk
}

pub(super) fn message(body: &Value, step: &LlmScriptStep) -> Value {
    let (input, output, cached) = step.usage();
    let text = if step.text.is_empty() { Value::Null } else { json!(step.text) };
    let mut message = json!({"role": "assistant", "content": text});
    if let Some(thought) = step.plan["think"].as_str() {
        message["reasoning_content"] = json!(thought);
    }
    if !step.calls.is_empty() {
        let call = |(name, args): &(String, Value)| {
            let function = json!({"name": name, "arguments": args.to_string()});
            json!({"id": step.call_id("call_"), "type": "function", "function": function})
        };
        message["tool_calls"] = step.calls.iter().map(call).collect();
    }
    let finish = if step.calls.is_empty() { "stop" } else { "tool_calls" };
    json!({
        "id": id("chatcmpl-"), "object": "chat.completion", "created": epoch(),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
        "usage": {"prompt_tokens": input, "completion_tokens": output,
            "total_tokens": input + output, "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": 0}},
    })
}

pub(super) fn events(message: &Value) -> Vec<LlmStreamEvent> {
    let base = json!({"id": message["id"], "object": "chat.completion.chunk",
        "created": message["created"], "model": message["model"]});
    let chunk = |delta: Value, finish: &Value| {
        let mut chunk = base.clone();
        chunk["choices"] =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        (String::new(), chunk)
    };
    let none = Value::Null;
    let choice = &message["choices"][0];
    let said = &choice["message"];
    let mut all = vec![chunk(json!({"role": "assistant", "content": ""}), &none)];
    if said["reasoning_content"].is_string() {
        all.push(chunk(json!({"reasoning_content": said["reasoning_content"]}), &none));
    }
    for piece in pieces(said["content"].as_str().unwrap_or_default(), 40) {
        all.push(chunk(json!({ "content": piece }), &none));
    }
    for (n, call) in said["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let name = &call["function"]["name"];
        let start = json!({"index": n, "id": call["id"], "type": "function",
            "function": {"name": name, "arguments": ""}});
        all.push(chunk(json!({ "tool_calls": [start] }), &none));
        for piece in pieces(call["function"]["arguments"].as_str().unwrap_or_default(), 200) {
            let part = json!({"index": n, "function": {"arguments": piece}});
            all.push(chunk(json!({ "tool_calls": [part] }), &none));
        }
    }
    all.push(hang());
    all.push(chunk(json!({}), &choice["finish_reason"]));
    let mut last = base.clone();
    last["choices"] = json!([]);
    last["usage"] = message["usage"].clone();
    all.push((String::new(), last));
    all.push((String::new(), json!("[DONE]")));
    all
}
