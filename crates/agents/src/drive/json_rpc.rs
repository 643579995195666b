//! JSON-RPC on lines, as Codex's app server and ACP agents speak it. Knows no method.

use serde_json::{Value, json};

use super::ProtocolAction;

/// One message, by what it is.
#[derive(Debug, PartialEq)]
pub(crate) enum RpcMessage<'v> {
    /// The answer to a request of ours.
    Answer(u64, &'v Value),
    /// The refusal of a request of ours.
    Refusal(u64, &'v Value),
    /// A request to us.
    Request(&'v Value, &'v str, &'v Value),
    Notice(&'v str, &'v Value),
}

/// Reads a message; none if it is not one.
pub(crate) fn parse_message(message: &Value) -> Option<RpcMessage<'_>> {
    let method = message["method"].as_str();
    match (message.get("id"), method) {
        (Some(id), Some(method)) => Some(RpcMessage::Request(id, method, &message["params"])),
        (None, Some(method)) => Some(RpcMessage::Notice(method, &message["params"])),
        (Some(id), None) => match message.get("error") {
            Some(error) => Some(RpcMessage::Refusal(id.as_u64()?, error)),
            None => Some(RpcMessage::Answer(id.as_u64()?, &message["result"])),
        },
        (None, None) => None,
    }
}

/// A request of ours.
pub(crate) fn send_request(id: u64, method: &str, params: &Value) -> ProtocolAction {
    send_message(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// A notice of ours.
pub(crate) fn send_notification(method: &str, params: &Value) -> ProtocolAction {
    send_message(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// The answer to a request.
pub(crate) fn send_response(id: &Value, result: &Value) -> ProtocolAction {
    send_message(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// The refusal of a request that we have no answer to.
pub(crate) fn send_refusal(id: &Value) -> ProtocolAction {
    let error = json!({"code": -32601, "message": "not supported"});
    send_message(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn send_message(message: &Value) -> ProtocolAction {
    ProtocolAction::Send(message.to_string())
}
