//! The Agent Client Protocol, by hand: one client for every agent that speaks it.
//!
//! Offers the agent neither files nor terminals: it works in its workspace by itself. Permissions are
//! answered by the settings. The protocol has no word for limits, so that only the few structured
//! errors that known agents send can be told apart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::json_rpc::{self, RpcMessage};
use super::{
    DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, describe_tool_input, text_at,
};
use mainstem_core::fact::{AgentFault, CostBasis};

const INITIALIZE: u64 = 1;
const AUTHENTICATE: u64 = 2;
const SESSION: u64 = 3;
const PROMPT: u64 = 4;

/// A conversation with an ACP agent.
pub(crate) struct AcpProtocol {
    prompt: String,
    spec: DriveSpec,
    session: String,
    ready: bool,
    methods: Vec<String>,
    /// What it cost by its own account, over the whole session, and before this turn.
    cost: Option<f64>,
    cost_before: f64,
    calls: BTreeMap<String, String>,
    said: String,
    interrupted: bool,
}

impl AcpProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            spec: spec.clone(),
            session: String::new(),
            ready: false,
            methods: Vec::new(),
            cost: None,
            cost_before: 0.0,
            calls: BTreeMap::new(),
            said: String::new(),
            interrupted: false,
        }
    }

    fn login_access(&self) -> ToolAccess {
        ToolAccess::new(DrivenTool::Acp, &self.spec)
    }

    fn open_session(&mut self, can_load: bool) -> ProtocolAction {
        let mut params = json!({"cwd": self.spec.workspace, "mcpServers": self.mcp_servers()});
        match self.spec.resume.clone().filter(|_| can_load) {
            Some(session) => {
                params["sessionId"] = json!(session);
                self.session = session;
                json_rpc::send_request(SESSION, "session/load", &params)
            }
            None => {
                self.spec.resume = None;
                json_rpc::send_request(SESSION, "session/new", &params)
            }
        }
    }

    fn mcp_servers(&self) -> Value {
        let Some(mcp) = &self.spec.mcp else {
            return json!([]);
        };
        let variable = |(name, value): (&String, &String)| json!({"name": name, "value": value});
        let env: Vec<Value> = mcp.env.iter().map(variable).collect();
        json!([{"name": "mainstem", "command": mcp.command, "args": mcp.args, "env": env}])
    }

    fn handle_response(&mut self, id: u64, result: &Value) -> Vec<ProtocolAction> {
        match id {
            INITIALIZE => {
                let methods = result["authMethods"].as_array().into_iter().flatten();
                self.methods = methods.map(|method| text_at(method, "/id").to_owned()).collect();
                vec![self.open_session(result["agentCapabilities"]["loadSession"] == true)]
            }
            AUTHENTICATE => vec![self.open_session(true)],
            SESSION => {
                if let Some(id) = result["sessionId"].as_str() {
                    id.clone_into(&mut self.session);
                }
                self.ready = true;
                self.cost_before = self.cost.unwrap_or(0.0);
                // What was said while an old session was loaded is not news.
                self.said.clear();
                let prompt = json!([{"type": "text", "text": self.prompt}]);
                let params = json!({"sessionId": self.session, "prompt": prompt});
                vec![
                    ProtocolAction::Emit(DriveLine::Session { id: self.session.clone() }),
                    json_rpc::send_request(PROMPT, "session/prompt", &params),
                ]
            }
            PROMPT => self.handle_turn_end(result),
            _ => Vec::new(),
        }
    }

    fn handle_turn_end(&mut self, result: &Value) -> Vec<ProtocolAction> {
        let mut actions = self.flush_text();
        let usage = &result["usage"];
        let cost_usd = self.cost.map(|cost| (cost - self.cost_before).max(0.0));
        if usage.is_object() || cost_usd.is_some() {
            actions.push(ProtocolAction::Emit(DriveLine::Usage {
                input_tokens: count_at(usage, "/inputTokens"),
                output_tokens: count_at(usage, "/outputTokens"),
                cache_read_tokens: count_at(usage, "/cachedReadTokens"),
                cache_write_tokens: count_at(usage, "/cachedWriteTokens"),
                cost_usd,
                model: self.spec.model.clone().unwrap_or_default(),
                basis: cost_usd.map(|_| CostBasis::Reported),
            }));
        }
        let class = match text_at(result, "/stopReason") {
            "end_turn" => {
                actions.push(ProtocolAction::End(TurnEnd::Completed));
                return actions;
            }
            "cancelled" => None,
            "max_turn_requests" => Some(AgentFault::MaxTurns),
            "max_tokens" => Some(AgentFault::Context),
            _ => Some(AgentFault::Other),
        };
        if let Some(class) = class {
            let text = format!("the agent stopped: {}", text_at(result, "/stopReason"));
            actions.push(ProtocolAction::Emit(failure_line(class, &text)));
        }
        actions.push(ProtocolAction::End(TurnEnd::Failed));
        actions
    }

    fn handle_error(&mut self, id: u64, error: &Value) -> Vec<ProtocolAction> {
        let text = text_at(error, "/message");
        // -32000: it wants a login first. A key in the environment is the only one without a person.
        let login = error["code"].as_i64() == Some(-32000);
        let by_key = self.methods.iter().find(|method| method.contains("api-key")).cloned();
        if id == SESSION
            && login
            && let Some(method) = by_key
        {
            self.methods.clear();
            return vec![json_rpc::send_request(
                AUTHENTICATE,
                "authenticate",
                &json!({"methodId": method}),
            )];
        }
        if id == SESSION && !login && self.spec.resume.take().is_some() {
            return vec![
                ProtocolAction::Note(format!("{text}; starting a new session")),
                self.open_session(false),
            ];
        }
        let mut actions = self.flush_text();
        let line = if login || id == AUTHENTICATE {
            self.login_access().not_logged_in(text)
        } else {
            classify_error(&self.login_access(), error, text)
        };
        actions.extend([ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]);
        actions
    }

    fn handle_request(&self, id: &Value, method: &str, params: &Value) -> Vec<ProtocolAction> {
        if method != "session/request_permission" {
            return vec![json_rpc::send_refusal(id)];
        }
        let call = &params["toolCall"];
        let (name, what) = (text_at(call, "/kind"), describe_tool_input(&call["rawInput"]));
        // Once each time: some agents take "always" as a change of their mode and refuse that.
        let list = self.spec.allowed_tools.as_ref();
        let allowed = list.is_none_or(|list| super::claude::is_tool_permitted(list, name, &what));
        let wanted =
            if allowed { ["allow_once", "allow_always"] } else { ["reject_once", "reject_always"] };
        let options = params["options"].as_array().into_iter().flatten();
        let options: Vec<(&str, &str)> =
            options.map(|o| (text_at(o, "/kind"), text_at(o, "/optionId"))).collect();
        let find = |kind: &str| options.iter().find(|(k, _)| *k == kind).map(|(_, id)| *id);
        let outcome = match wanted.iter().find_map(|kind| find(kind)) {
            Some(option) => json!({"outcome": "selected", "optionId": option}),
            None => json!({"outcome": "cancelled"}),
        };
        let word = if allowed { "allowed" } else { "declined" };
        vec![
            ProtocolAction::Note(format!("{}: {word}", text_at(call, "/title"))),
            json_rpc::send_response(id, &json!({"outcome": outcome})),
        ]
    }

    fn handle_update(&mut self, update: &Value) -> Vec<ProtocolAction> {
        let kind = text_at(update, "/sessionUpdate");
        if kind == "usage_update" {
            self.cost = update["cost"]["amount"].as_f64().or(self.cost);
            return Vec::new();
        }
        if !self.ready {
            return Vec::new();
        }
        if kind == "agent_message_chunk" {
            self.said.push_str(text_at(update, "/content/text"));
            return if self.said.len() > 1 << 20 { self.flush_text() } else { Vec::new() };
        }
        let mut actions = self.flush_text();
        let id = text_at(update, "/toolCallId");
        match kind {
            "tool_call" => {
                let what = describe_tool_input(&update["rawInput"]);
                let what =
                    if what.is_empty() { text_at(update, "/title").to_owned() } else { what };
                let name = text_at(update, "/kind");
                self.calls.insert(id.to_owned(), format!("{name} {what}"));
                actions.push(ProtocolAction::Tool { name: name.to_owned(), what });
            }
            "tool_call_update" if ["completed", "failed"].contains(&text_at(update, "/status")) => {
                actions.push(ProtocolAction::Outcome {
                    what: self.calls.remove(id).unwrap_or_default(),
                    text: text_at(update, "/content/0/content/text").to_owned(),
                    failed: text_at(update, "/status") == "failed",
                });
            }
            _ => {}
        }
        actions
    }

    fn flush_text(&mut self) -> Vec<ProtocolAction> {
        let text = std::mem::take(&mut self.said);
        if text.trim().is_empty() { Vec::new() } else { vec![ProtocolAction::Text(text)] }
    }
}

impl ToolProtocol for AcpProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let can = json!({"fs": fs, "terminal": false});
        let params = json!({"protocolVersion": 1, "clientCapabilities": can});
        vec![json_rpc::send_request(INITIALIZE, "initialize", &params)]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        match json_rpc::parse_message(message) {
            Some(RpcMessage::Answer(id, result)) => self.handle_response(id, result),
            Some(RpcMessage::Refusal(id, error)) => self.handle_error(id, error),
            Some(RpcMessage::Request(id, method, params)) => {
                self.handle_request(id, method, params)
            }
            Some(RpcMessage::Notice("session/update", params)) => {
                self.handle_update(&params["update"])
            }
            _ => Vec::new(),
        }
    }

    fn interrupt_turn(&mut self) -> Vec<ProtocolAction> {
        self.interrupted = true;
        if !self.ready {
            return vec![ProtocolAction::End(TurnEnd::Failed)];
        }
        vec![json_rpc::send_notification("session/cancel", &json!({"sessionId": self.session}))]
    }

    fn handle_exit(&mut self, _code: Option<i32>) -> Vec<ProtocolAction> {
        let mut actions = self.flush_text();
        if !self.interrupted {
            let line = failure_line(AgentFault::Other, "the agent exited in the middle of a turn");
            actions.push(ProtocolAction::Emit(line));
        }
        actions.push(ProtocolAction::End(TurnEnd::Failed));
        actions
    }
}

/// What known agents put into the data of an error.
fn classify_error(access: &ToolAccess, error: &Value, text: &str) -> DriveLine {
    let data = &error["data"];
    match (text_at(data, "/errorKind"), text_at(data, "/codexErrorInfo")) {
        ("rate_limit", _) | (_, "rateLimitExceeded") => {
            failure_class::rate_limit_line(text, None, false)
        }
        ("billing_error", _) | (_, "usageLimitExceeded") => {
            failure_class::quota_line(None, "", text)
        }
        ("authentication_failed", _) | (_, "unauthorized") => access.login_refused(None, text),
        ("server_error" | "overloaded", _) | (_, "serverOverloaded" | "internalServerError") => {
            failure_line(AgentFault::Transient, text)
        }
        ("model_not_found", _) | (_, "modelNotFound") => failure_line(AgentFault::Model, text),
        (_, "contextWindowExceeded") => failure_line(AgentFault::Context, text),
        ("invalid_request", _) | (_, "badRequest") => failure_line(AgentFault::Request, text),
        _ => failure_class::classify_error_code(&data["error"])
            .unwrap_or_else(|| failure_line(AgentFault::Other, text)),
    }
}
