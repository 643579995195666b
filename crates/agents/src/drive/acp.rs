//! The Agent Client Protocol, by hand: one client for every agent that speaks it.
//!
//! Offers the agent neither files nor terminals: it works in its workspace by itself. Permissions are
//! answered by the settings. The protocol has no word for limits, so that only the few structured
//! errors that known agents send can be told apart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::blame::{self, Access, Tool, failed};
use super::line::Line;
use super::rpc::{self, Message};
use super::{Action, DriveSpec, Protocol, Turn, about, count_at, text_at};
use mainstem_core::fact::{Basis, Fault};

const INITIALIZE: u64 = 1;
const AUTHENTICATE: u64 = 2;
const SESSION: u64 = 3;
const PROMPT: u64 = 4;

/// A conversation with an ACP agent.
pub(crate) struct Acp {
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

impl Acp {
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

    fn access(&self) -> Access {
        Access::new(Tool::Acp, &self.spec)
    }

    fn open(&mut self, can_load: bool) -> Action {
        let mut params = json!({"cwd": self.spec.workspace, "mcpServers": self.servers()});
        match self.spec.resume.clone().filter(|_| can_load) {
            Some(session) => {
                params["sessionId"] = json!(session);
                self.session = session;
                rpc::request(SESSION, "session/load", &params)
            }
            None => {
                self.spec.resume = None;
                rpc::request(SESSION, "session/new", &params)
            }
        }
    }

    fn servers(&self) -> Value {
        let Some(mcp) = &self.spec.mcp else {
            return json!([]);
        };
        let variable = |(name, value): (&String, &String)| json!({"name": name, "value": value});
        let env: Vec<Value> = mcp.env.iter().map(variable).collect();
        json!([{"name": "mainstem", "command": mcp.command, "args": mcp.args, "env": env}])
    }

    fn answer(&mut self, id: u64, result: &Value) -> Vec<Action> {
        match id {
            INITIALIZE => {
                let methods = result["authMethods"].as_array().into_iter().flatten();
                self.methods = methods.map(|method| text_at(method, "/id").to_owned()).collect();
                vec![self.open(result["agentCapabilities"]["loadSession"] == true)]
            }
            AUTHENTICATE => vec![self.open(true)],
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
                    Action::Emit(Line::Session { id: self.session.clone() }),
                    rpc::request(PROMPT, "session/prompt", &params),
                ]
            }
            PROMPT => self.ended(result),
            _ => Vec::new(),
        }
    }

    fn ended(&mut self, result: &Value) -> Vec<Action> {
        let mut actions = self.flush();
        let usage = &result["usage"];
        let cost_usd = self.cost.map(|cost| (cost - self.cost_before).max(0.0));
        if usage.is_object() || cost_usd.is_some() {
            actions.push(Action::Emit(Line::Usage {
                input_tokens: count_at(usage, "/inputTokens"),
                output_tokens: count_at(usage, "/outputTokens"),
                cache_read_tokens: count_at(usage, "/cachedReadTokens"),
                cache_write_tokens: count_at(usage, "/cachedWriteTokens"),
                cost_usd,
                model: self.spec.model.clone().unwrap_or_default(),
                basis: cost_usd.map(|_| Basis::Reported),
            }));
        }
        let class = match text_at(result, "/stopReason") {
            "end_turn" => {
                actions.push(Action::End(Turn::Well));
                return actions;
            }
            "cancelled" => None,
            "max_turn_requests" => Some(Fault::MaxTurns),
            "max_tokens" => Some(Fault::Context),
            _ => Some(Fault::Other),
        };
        if let Some(class) = class {
            let text = format!("the agent stopped: {}", text_at(result, "/stopReason"));
            actions.push(Action::Emit(failed(class, &text)));
        }
        actions.push(Action::End(Turn::Ill));
        actions
    }

    fn refusal(&mut self, id: u64, error: &Value) -> Vec<Action> {
        let text = text_at(error, "/message");
        // -32000: it wants a login first. A key in the environment is the only one without a person.
        let login = error["code"].as_i64() == Some(-32000);
        let by_key = self.methods.iter().find(|method| method.contains("api-key")).cloned();
        if id == SESSION
            && login
            && let Some(method) = by_key
        {
            self.methods.clear();
            return vec![rpc::request(AUTHENTICATE, "authenticate", &json!({"methodId": method}))];
        }
        if id == SESSION && !login && self.spec.resume.take().is_some() {
            return vec![Action::Note(format!("{text}; starting a new session")), self.open(false)];
        }
        let mut actions = self.flush();
        let line = if login || id == AUTHENTICATE {
            self.access().not_logged_in(text)
        } else {
            blame_error(&self.access(), error, text)
        };
        actions.extend([Action::Emit(line), Action::End(Turn::Ill)]);
        actions
    }

    fn request(&self, id: &Value, method: &str, params: &Value) -> Vec<Action> {
        if method != "session/request_permission" {
            return vec![rpc::refuse(id)];
        }
        let call = &params["toolCall"];
        let (name, what) = (text_at(call, "/kind"), about(&call["rawInput"]));
        // Once each time: some agents take "always" as a change of their mode and refuse that.
        let list = self.spec.allowed_tools.as_ref();
        let allowed = list.is_none_or(|list| super::claude::permits(list, name, &what));
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
            Action::Note(format!("{}: {word}", text_at(call, "/title"))),
            rpc::answer(id, &json!({"outcome": outcome})),
        ]
    }

    fn update(&mut self, update: &Value) -> Vec<Action> {
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
            return if self.said.len() > 1 << 20 { self.flush() } else { Vec::new() };
        }
        let mut actions = self.flush();
        let id = text_at(update, "/toolCallId");
        match kind {
            "tool_call" => {
                let what = about(&update["rawInput"]);
                let what =
                    if what.is_empty() { text_at(update, "/title").to_owned() } else { what };
                let name = text_at(update, "/kind");
                self.calls.insert(id.to_owned(), format!("{name} {what}"));
                actions.push(Action::Tool { name: name.to_owned(), what });
            }
            "tool_call_update" if ["completed", "failed"].contains(&text_at(update, "/status")) => {
                actions.push(Action::Outcome {
                    what: self.calls.remove(id).unwrap_or_default(),
                    text: text_at(update, "/content/0/content/text").to_owned(),
                    failed: text_at(update, "/status") == "failed",
                });
            }
            _ => {}
        }
        actions
    }

    fn flush(&mut self) -> Vec<Action> {
        let text = std::mem::take(&mut self.said);
        if text.trim().is_empty() { Vec::new() } else { vec![Action::Text(text)] }
    }
}

impl Protocol for Acp {
    fn begin(&mut self) -> Vec<Action> {
        let fs = json!({"readTextFile": false, "writeTextFile": false});
        let can = json!({"fs": fs, "terminal": false});
        let params = json!({"protocolVersion": 1, "clientCapabilities": can});
        vec![rpc::request(INITIALIZE, "initialize", &params)]
    }

    fn line(&mut self, message: &Value) -> Vec<Action> {
        match rpc::read(message) {
            Some(Message::Answer(id, result)) => self.answer(id, result),
            Some(Message::Refusal(id, error)) => self.refusal(id, error),
            Some(Message::Request(id, method, params)) => self.request(id, method, params),
            Some(Message::Notice("session/update", params)) => self.update(&params["update"]),
            _ => Vec::new(),
        }
    }

    fn interrupt(&mut self) -> Vec<Action> {
        self.interrupted = true;
        if !self.ready {
            return vec![Action::End(Turn::Ill)];
        }
        vec![rpc::notice("session/cancel", &json!({"sessionId": self.session}))]
    }

    fn gone(&mut self, _code: Option<i32>) -> Vec<Action> {
        let mut actions = self.flush();
        if !self.interrupted {
            let line = failed(Fault::Other, "the agent exited in the middle of a turn");
            actions.push(Action::Emit(line));
        }
        actions.push(Action::End(Turn::Ill));
        actions
    }
}

/// What known agents put into the data of an error.
fn blame_error(access: &Access, error: &Value, text: &str) -> Line {
    let data = &error["data"];
    match (text_at(data, "/errorKind"), text_at(data, "/codexErrorInfo")) {
        ("rate_limit", _) | (_, "rateLimitExceeded") => blame::rate_limited(text, None, false),
        ("billing_error", _) | (_, "usageLimitExceeded") => blame::used_up(None, "", text),
        ("authentication_failed", _) | (_, "unauthorized") => access.refused(None, text),
        ("server_error" | "overloaded", _) | (_, "serverOverloaded" | "internalServerError") => {
            failed(Fault::Transient, text)
        }
        ("model_not_found", _) | (_, "modelNotFound") => failed(Fault::Model, text),
        (_, "contextWindowExceeded") => failed(Fault::Context, text),
        ("invalid_request", _) | (_, "badRequest") => failed(Fault::Request, text),
        _ => blame::by_code(&data["error"]).unwrap_or_else(|| failed(Fault::Other, text)),
    }
}
