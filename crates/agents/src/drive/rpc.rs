//! JSON-RPC on lines, as Codex's app server and ACP agents speak it. Knows no method.

use serde_json::{Value, json};

use super::Action;

/// One message, by what it is.
#[derive(Debug, PartialEq)]
pub(crate) enum Message<'v> {
    /// The answer to a request of ours.
    Answer(u64, &'v Value),
    /// The refusal of a request of ours.
    Refusal(u64, &'v Value),
    /// A request to us.
    Request(&'v Value, &'v str, &'v Value),
    /// Something to know.
    Notice(&'v str, &'v Value),
}

/// Reads a message; none if it is not one.
pub(crate) fn read(message: &Value) -> Option<Message<'_>> {
    let method = message["method"].as_str();
    match (message.get("id"), method) {
        (Some(id), Some(method)) => Some(Message::Request(id, method, &message["params"])),
        (None, Some(method)) => Some(Message::Notice(method, &message["params"])),
        (Some(id), None) => match message.get("error") {
            Some(error) => Some(Message::Refusal(id.as_u64()?, error)),
            None => Some(Message::Answer(id.as_u64()?, &message["result"])),
        },
        (None, None) => None,
    }
}

/// A request of ours.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Action {
    send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// A notice of ours.
pub(crate) fn notice(method: &str, params: &Value) -> Action {
    send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// The answer to a request.
pub(crate) fn answer(id: &Value, result: &Value) -> Action {
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// The refusal of a request that we have no answer to.
pub(crate) fn refuse(id: &Value) -> Action {
    let error = json!({"code": -32601, "message": "not supported"});
    send(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn send(message: &Value) -> Action {
    Action::Send(message.to_string())
}
