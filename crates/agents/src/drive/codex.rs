//! Codex's app server: JSON-RPC with structured errors and reset times.
//!
//! A resumed thread first repeats the counts of its past; only those of our own turn count.

use serde_json::{Value, json};

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::json_rpc::{self, RpcMessage};
use super::{DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, text_at};
use mainstem_core::fact::AgentFault;

const INITIALIZE: u64 = 1;
const THREAD: u64 = 2;
const TURN: u64 = 3;
const INTERRUPT: u64 = 4;
const STEER: u64 = 5;

/// So often the tool may wait for a limit by itself; after that it is for the engine to wait.
const OWN_WAITS: u32 = 2;

/// So long it may try again by itself without getting on: 0.166 waits for a network or a limit without
/// end and without a word.
const PATIENCE_MS: u64 = 60_000;

/// A conversation with Codex's app server.
pub(crate) struct CodexProtocol {
    prompt: String,
    spec: DriveSpec,
    access: ToolAccess,
    thread: String,
    turn: String,
    model: String,
    /// Full windows of the account: when each is free again, and its minutes.
    full: Option<(Option<u64>, String)>,
    /// How often it waited for a limit.
    limited: u32,
    /// The last trouble it went on after.
    trouble: Option<Value>,
    blamed: bool,
    interrupted: bool,
    answered: bool,
}

impl CodexProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            spec: spec.clone(),
            access: ToolAccess::new(DrivenTool::Codex, spec),
            thread: String::new(),
            turn: String::new(),
            model: spec.model.clone().unwrap_or_default(),
            full: None,
            limited: 0,
            trouble: None,
            blamed: false,
            interrupted: false,
            answered: false,
        }
    }

    fn handle_response(&mut self, id: u64, result: &Value) -> Vec<ProtocolAction> {
        self.answered = true;
        match id {
            INITIALIZE => {
                vec![
                    json_rpc::send_notification("initialized", &json!({})),
                    self.open_thread(self.spec.resume.as_deref()),
                ]
            }
            THREAD => {
                text_at(result, "/thread/id").clone_into(&mut self.thread);
                if self.model.is_empty() {
                    text_at(result, "/thread/model").clone_into(&mut self.model);
                }
                let input = json!([{"type": "text", "text": self.prompt}]);
                let params = json!({"threadId": self.thread, "input": input});
                vec![
                    ProtocolAction::Emit(DriveLine::Session { id: self.thread.clone() }),
                    ProtocolAction::Note(format!("thread {}, model {}", self.thread, self.model)),
                    json_rpc::send_request(TURN, "turn/start", &params),
                ]
            }
            TURN => {
                text_at(result, "/turn/id").clone_into(&mut self.turn);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Its own sandbox is off: it would mount the git directory read-only, and ours is the wall.
    fn open_thread(&self, resume: Option<&str>) -> ProtocolAction {
        let asks = self.spec.allowed_tools.is_some();
        let mut params = json!({
            "cwd": self.spec.workspace,
            "approvalPolicy": if asks { "untrusted" } else { "never" },
            "sandbox": "danger-full-access",
        });
        if let Some(model) = &self.spec.model {
            params["model"] = json!(model);
        }
        match resume {
            Some(thread) => {
                params["threadId"] = json!(thread);
                params["excludeTurns"] = json!(true);
                json_rpc::send_request(THREAD, "thread/resume", &params)
            }
            None => json_rpc::send_request(THREAD, "thread/start", &params),
        }
    }

    fn handle_error_response(&mut self, id: u64, error: &Value) -> Vec<ProtocolAction> {
        let text = text_at(error, "/message");
        match id {
            // The thread to go on with is gone: a new one does the work as well.
            THREAD if self.spec.resume.take().is_some() => {
                vec![
                    ProtocolAction::Note(format!("{text}; starting a new thread")),
                    self.open_thread(None),
                ]
            }
            INITIALIZE | THREAD | TURN => {
                let line = failure_line(AgentFault::Other, text);
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
            }
            _ => Vec::new(),
        }
    }

    fn handle_request(&self, id: &Value, method: &str, params: &Value) -> Vec<ProtocolAction> {
        let tool = match method {
            "item/commandExecution/requestApproval" => "shell",
            "item/fileChange/requestApproval" => "edit",
            _ => return vec![json_rpc::send_refusal(id)],
        };
        let what = text_at(params, "/command");
        let allowed = self.spec.allowed_tools.as_ref();
        let allowed = allowed.is_none_or(|list| super::claude::is_tool_permitted(list, tool, what));
        let decision = if allowed { "accept" } else { "decline" };
        vec![
            ProtocolAction::Note(format!("{tool} {what}: {decision}")),
            json_rpc::send_response(id, &json!({"decision": decision})),
        ]
    }

    fn handle_notification(&mut self, method: &str, params: &Value) -> Vec<ProtocolAction> {
        match method {
            "item/started" => mark_recovered(item_started(&params["item"])),
            "item/completed" => mark_recovered(item_completed(&params["item"])),
            item if item.starts_with("item/") => mark_recovered(Vec::new()),
            "thread/tokenUsage/updated" => self.report_usage(params),
            "account/rateLimits/updated" => {
                self.record_limits(&params["rateLimits"]);
                Vec::new()
            }
            "error" => self.handle_error(params),
            "turn/completed" => self.handle_turn_end(&params["turn"]),
            _ => Vec::new(),
        }
    }

    fn report_usage(&self, params: &Value) -> Vec<ProtocolAction> {
        if text_at(params, "/turnId") != self.turn || self.turn.is_empty() {
            return Vec::new();
        }
        let last = &params["tokenUsage"]["last"];
        let (input, cached) =
            (count_at(last, "/inputTokens"), count_at(last, "/cachedInputTokens"));
        let written = count_at(last, "/cacheWriteInputTokens");
        vec![ProtocolAction::Emit(DriveLine::Usage {
            input_tokens: input.saturating_sub(cached).saturating_sub(written),
            output_tokens: count_at(last, "/outputTokens"),
            cache_read_tokens: cached,
            cache_write_tokens: written,
            cost_usd: None,
            model: self.model.clone(),
            basis: None,
        })]
    }

    fn record_limits(&mut self, limits: &Value) {
        for name in ["primary", "secondary"] {
            let window = &limits[name];
            if window["usedPercent"].as_f64().is_some_and(|percent| percent >= 100.0) {
                let minutes = count_at(window, "/windowDurationMins");
                self.full = Some((window["resetsAt"].as_u64(), format!("{minutes}m")));
            }
        }
    }

    fn handle_error(&mut self, params: &Value) -> Vec<ProtocolAction> {
        let error = &params["error"];
        if params["willRetry"] != true {
            return Vec::new();
        }
        self.trouble = Some(error.clone());
        let details = text_at(error, "/additionalDetails");
        match error_http_status(&error["codexErrorInfo"]) {
            status @ Some(401 | 403) => {
                let line = self.access.login_refused(status, details);
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
            }
            Some(429) => {
                self.limited += 1;
                let stays = self.limited <= OWN_WAITS;
                let mut actions = vec![ProtocolAction::Emit(failure_class::rate_limit_line(
                    details, None, stays,
                ))];
                actions.push(if stays {
                    let line = failure_class::rate_limit_line(details, None, false);
                    ProtocolAction::Retrying { line, patience_ms: PATIENCE_MS }
                } else {
                    ProtocolAction::End(TurnEnd::Failed)
                });
                actions
            }
            _ => {
                let text = format!("{}: {details}", text_at(error, "/message"));
                let line = failure_line(AgentFault::Transient, &text);
                let retrying = ProtocolAction::Retrying { line, patience_ms: PATIENCE_MS };
                vec![ProtocolAction::Note(text), retrying]
            }
        }
    }

    fn handle_turn_end(&mut self, turn: &Value) -> Vec<ProtocolAction> {
        match text_at(turn, "/status") {
            "completed" => vec![ProtocolAction::End(TurnEnd::Completed)],
            "interrupted" => vec![ProtocolAction::End(TurnEnd::Failed)],
            _ => {
                self.blamed = true;
                let line = self.classify_failure(&turn["error"]);
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
            }
        }
    }

    fn classify_failure(&self, error: &Value) -> DriveLine {
        let text = text_at(error, "/message");
        let info = &error["codexErrorInfo"];
        if let Some(status) = error_http_status(info) {
            return self.access.classify_status(Some(status), text);
        }
        match info.as_str().unwrap_or_default() {
            "usageLimitExceeded" => {
                let (reset_at, window) = self.full.clone().unwrap_or_default();
                failure_class::quota_line(reset_at, &window, text)
            }
            "rateLimitExceeded" => failure_class::rate_limit_line(text, None, false),
            "contextWindowExceeded" => failure_line(AgentFault::Context, text),
            "sessionBudgetExceeded" => failure_line(AgentFault::Budget, text),
            "modelNotFound" => failure_line(AgentFault::Model, text),
            "unauthorized" => self.access.login_refused(None, text),
            "badRequest" => failure_line(AgentFault::Request, text),
            "serverOverloaded" | "internalServerError" => failure_line(AgentFault::Transient, text),
            _ => self.classify_failure_text(text, info),
        }
    }

    /// An error without a kind of its own.
    fn classify_failure_text(&self, text: &str, info: &Value) -> DriveLine {
        if text.starts_with("Missing environment variable") {
            return self.access.not_logged_in(text);
        }
        if let Some(line) = super::codex_exec::classify_status_text(&self.access, text) {
            return line;
        }
        // The body of a refused request comes as it is.
        if text.starts_with("{\"error\"") {
            return super::codex_exec::classify_body_text(text);
        }
        let transient = self.trouble.is_some() || info.is_object();
        failure_line(if transient { AgentFault::Transient } else { AgentFault::Other }, text)
    }
}

impl ToolProtocol for CodexProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        let version = env!("CARGO_PKG_VERSION");
        let client = json!({"name": "mainstem", "title": "Mainstem", "version": version});
        vec![json_rpc::send_request(INITIALIZE, "initialize", &json!({"clientInfo": client}))]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        match json_rpc::parse_message(message) {
            Some(RpcMessage::Answer(id, result)) => self.handle_response(id, result),
            Some(RpcMessage::Refusal(id, error)) => self.handle_error_response(id, error),
            Some(RpcMessage::Request(id, method, params)) => {
                self.handle_request(id, method, params)
            }
            Some(RpcMessage::Notice(method, params)) => self.handle_notification(method, params),
            None => Vec::new(),
        }
    }

    fn interrupt_turn(&mut self) -> Vec<ProtocolAction> {
        self.interrupted = true;
        if self.turn.is_empty() {
            return vec![ProtocolAction::End(TurnEnd::Failed)];
        }
        let params = json!({"threadId": self.thread, "turnId": self.turn});
        vec![json_rpc::send_request(INTERRUPT, "turn/interrupt", &params)]
    }

    fn send_guidance(&mut self, text: &str) -> Vec<ProtocolAction> {
        let input = json!([{"type": "text", "text": text}]);
        let params = json!({"threadId": self.thread, "expectedTurnId": self.turn, "input": input});
        vec![json_rpc::send_request(STEER, "turn/steer", &params)]
    }

    fn handle_exit(&mut self, _code: Option<i32>) -> Vec<ProtocolAction> {
        // Without one answer it is not an app server at all: there is a second way to drive it.
        if !self.answered {
            return vec![ProtocolAction::End(TurnEnd::SessionMissing)];
        }
        if self.blamed || self.interrupted {
            return vec![ProtocolAction::End(TurnEnd::Failed)];
        }
        let line = failure_line(AgentFault::Other, "codex exited in the middle of a turn");
        vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
    }
}

fn mark_recovered(mut actions: Vec<ProtocolAction>) -> Vec<ProtocolAction> {
    actions.insert(0, ProtocolAction::GotOn);
    actions
}

/// The status inside one of the kinds that carry one.
fn error_http_status(info: &Value) -> Option<u64> {
    info.as_object()?.values().find_map(|kind| kind["httpStatusCode"].as_u64())
}

fn item_started(item: &Value) -> Vec<ProtocolAction> {
    match text_at(item, "/type") {
        "commandExecution" => {
            vec![ProtocolAction::Tool { name: "exec".to_owned(), what: item_command(item) }]
        }
        "mcpToolCall" => {
            vec![ProtocolAction::Tool {
                name: text_at(item, "/tool").to_owned(),
                what: String::new(),
            }]
        }
        _ => Vec::new(),
    }
}

fn item_completed(item: &Value) -> Vec<ProtocolAction> {
    match text_at(item, "/type") {
        "agentMessage" => vec![ProtocolAction::Text(text_at(item, "/text").to_owned())],
        "commandExecution" => {
            let code = item["exitCode"].as_i64().unwrap_or(0);
            let output = text_at(item, "/aggregatedOutput").trim_end();
            let text = if code == 0 { output.to_owned() } else { format!("{output}\nexit {code}") };
            vec![ProtocolAction::Outcome { what: item_command(item), text, failed: code != 0 }]
        }
        "fileChange" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let edit = |change: &Value| ProtocolAction::Tool {
                name: "edit".to_owned(),
                what: text_at(change, "/path").to_owned(),
            };
            changes.map(edit).collect()
        }
        _ => Vec::new(),
    }
}

/// The command as the model wrote it, without the shell around it.
fn item_command(item: &Value) -> String {
    let inner = text_at(item, "/commandActions/0/command");
    if inner.is_empty() { text_at(item, "/command").to_owned() } else { inner.to_owned() }
}
