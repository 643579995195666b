//! Codex's app server: JSON-RPC with structured errors and reset times.
//!
//! A resumed thread first repeats the counts of its past; only those of our own turn count.

use serde_json::{Value, json};

use super::blame::{self, Access, Tool, failed};
use super::line::Line;
use super::rpc::{self, Message};
use super::{Action, DriveSpec, Protocol, Turn, count_at, text_at};
use mainstem_core::fact::Fault;

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
pub(crate) struct Codex {
    prompt: String,
    spec: DriveSpec,
    access: Access,
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

impl Codex {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            spec: spec.clone(),
            access: Access::new(Tool::Codex, spec),
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

    fn answer(&mut self, id: u64, result: &Value) -> Vec<Action> {
        self.answered = true;
        match id {
            INITIALIZE => {
                vec![rpc::notice("initialized", &json!({})), self.open(self.spec.resume.as_deref())]
            }
            THREAD => {
                text_at(result, "/thread/id").clone_into(&mut self.thread);
                if self.model.is_empty() {
                    text_at(result, "/thread/model").clone_into(&mut self.model);
                }
                let input = json!([{"type": "text", "text": self.prompt}]);
                let params = json!({"threadId": self.thread, "input": input});
                vec![
                    Action::Emit(Line::Session { id: self.thread.clone() }),
                    Action::Note(format!("thread {}, model {}", self.thread, self.model)),
                    rpc::request(TURN, "turn/start", &params),
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
    fn open(&self, resume: Option<&str>) -> Action {
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
                rpc::request(THREAD, "thread/resume", &params)
            }
            None => rpc::request(THREAD, "thread/start", &params),
        }
    }

    fn refusal(&mut self, id: u64, error: &Value) -> Vec<Action> {
        let text = text_at(error, "/message");
        match id {
            // The thread to go on with is gone: a new one does the work as well.
            THREAD if self.spec.resume.take().is_some() => {
                vec![Action::Note(format!("{text}; starting a new thread")), self.open(None)]
            }
            INITIALIZE | THREAD | TURN => {
                let line = failed(Fault::Other, text);
                vec![Action::Emit(line), Action::End(Turn::Ill)]
            }
            _ => Vec::new(),
        }
    }

    fn request(&self, id: &Value, method: &str, params: &Value) -> Vec<Action> {
        let tool = match method {
            "item/commandExecution/requestApproval" => "shell",
            "item/fileChange/requestApproval" => "edit",
            _ => return vec![rpc::refuse(id)],
        };
        let what = text_at(params, "/command");
        let allowed = self.spec.allowed_tools.as_ref();
        let allowed = allowed.is_none_or(|list| super::claude::permits(list, tool, what));
        let decision = if allowed { "accept" } else { "decline" };
        vec![
            Action::Note(format!("{tool} {what}: {decision}")),
            rpc::answer(id, &json!({"decision": decision})),
        ]
    }

    fn notice(&mut self, method: &str, params: &Value) -> Vec<Action> {
        match method {
            "item/started" => got_on(started(&params["item"])),
            "item/completed" => got_on(completed(&params["item"])),
            item if item.starts_with("item/") => got_on(Vec::new()),
            "thread/tokenUsage/updated" => self.spent(params),
            "account/rateLimits/updated" => {
                self.limits(&params["rateLimits"]);
                Vec::new()
            }
            "error" => self.error(params),
            "turn/completed" => self.ended(&params["turn"]),
            _ => Vec::new(),
        }
    }

    fn spent(&self, params: &Value) -> Vec<Action> {
        if text_at(params, "/turnId") != self.turn || self.turn.is_empty() {
            return Vec::new();
        }
        let last = &params["tokenUsage"]["last"];
        let (input, cached) =
            (count_at(last, "/inputTokens"), count_at(last, "/cachedInputTokens"));
        let written = count_at(last, "/cacheWriteInputTokens");
        vec![Action::Emit(Line::Usage {
            input_tokens: input.saturating_sub(cached).saturating_sub(written),
            output_tokens: count_at(last, "/outputTokens"),
            cache_read_tokens: cached,
            cache_write_tokens: written,
            cost_usd: None,
            model: self.model.clone(),
            basis: None,
        })]
    }

    fn limits(&mut self, limits: &Value) {
        for name in ["primary", "secondary"] {
            let window = &limits[name];
            if window["usedPercent"].as_f64().is_some_and(|percent| percent >= 100.0) {
                let minutes = count_at(window, "/windowDurationMins");
                self.full = Some((window["resetsAt"].as_u64(), format!("{minutes}m")));
            }
        }
    }

    fn error(&mut self, params: &Value) -> Vec<Action> {
        let error = &params["error"];
        if params["willRetry"] != true {
            return Vec::new();
        }
        self.trouble = Some(error.clone());
        let details = text_at(error, "/additionalDetails");
        match http_status(&error["codexErrorInfo"]) {
            status @ Some(401 | 403) => {
                let line = self.access.refused(status, details);
                vec![Action::Emit(line), Action::End(Turn::Ill)]
            }
            Some(429) => {
                self.limited += 1;
                let stays = self.limited <= OWN_WAITS;
                let mut actions = vec![Action::Emit(blame::rate_limited(details, None, stays))];
                actions.push(if stays {
                    let line = blame::rate_limited(details, None, false);
                    Action::Retrying { line, patience_ms: PATIENCE_MS }
                } else {
                    Action::End(Turn::Ill)
                });
                actions
            }
            _ => {
                let text = format!("{}: {details}", text_at(error, "/message"));
                let line = failed(Fault::Transient, &text);
                let retrying = Action::Retrying { line, patience_ms: PATIENCE_MS };
                vec![Action::Note(text), retrying]
            }
        }
    }

    fn ended(&mut self, turn: &Value) -> Vec<Action> {
        match text_at(turn, "/status") {
            "completed" => vec![Action::End(Turn::Well)],
            "interrupted" => vec![Action::End(Turn::Ill)],
            _ => {
                self.blamed = true;
                let line = self.blame(&turn["error"]);
                vec![Action::Emit(line), Action::End(Turn::Ill)]
            }
        }
    }

    fn blame(&self, error: &Value) -> Line {
        let text = text_at(error, "/message");
        let info = &error["codexErrorInfo"];
        if let Some(status) = http_status(info) {
            return self.access.status(Some(status), text);
        }
        match info.as_str().unwrap_or_default() {
            "usageLimitExceeded" => {
                let (reset_at, window) = self.full.clone().unwrap_or_default();
                blame::used_up(reset_at, &window, text)
            }
            "rateLimitExceeded" => blame::rate_limited(text, None, false),
            "contextWindowExceeded" => failed(Fault::Context, text),
            "sessionBudgetExceeded" => failed(Fault::Budget, text),
            "modelNotFound" => failed(Fault::Model, text),
            "unauthorized" => self.access.refused(None, text),
            "badRequest" => failed(Fault::Request, text),
            "serverOverloaded" | "internalServerError" => failed(Fault::Transient, text),
            _ => self.blame_text(text, info),
        }
    }

    /// An error without a kind of its own.
    fn blame_text(&self, text: &str, info: &Value) -> Line {
        if text.starts_with("Missing environment variable") {
            return self.access.not_logged_in(text);
        }
        if let Some(line) = super::codex_exec::by_status(&self.access, text) {
            return line;
        }
        // The body of a refused request comes as it is.
        if text.starts_with("{\"error\"") {
            return super::codex_exec::by_body(text);
        }
        let transient = self.trouble.is_some() || info.is_object();
        failed(if transient { Fault::Transient } else { Fault::Other }, text)
    }
}

impl Protocol for Codex {
    fn begin(&mut self) -> Vec<Action> {
        let version = env!("CARGO_PKG_VERSION");
        let client = json!({"name": "mainstem", "title": "Mainstem", "version": version});
        vec![rpc::request(INITIALIZE, "initialize", &json!({"clientInfo": client}))]
    }

    fn line(&mut self, message: &Value) -> Vec<Action> {
        match rpc::read(message) {
            Some(Message::Answer(id, result)) => self.answer(id, result),
            Some(Message::Refusal(id, error)) => self.refusal(id, error),
            Some(Message::Request(id, method, params)) => self.request(id, method, params),
            Some(Message::Notice(method, params)) => self.notice(method, params),
            None => Vec::new(),
        }
    }

    fn interrupt(&mut self) -> Vec<Action> {
        self.interrupted = true;
        if self.turn.is_empty() {
            return vec![Action::End(Turn::Ill)];
        }
        let params = json!({"threadId": self.thread, "turnId": self.turn});
        vec![rpc::request(INTERRUPT, "turn/interrupt", &params)]
    }

    fn steer(&mut self, text: &str) -> Vec<Action> {
        let input = json!([{"type": "text", "text": text}]);
        let params = json!({"threadId": self.thread, "expectedTurnId": self.turn, "input": input});
        vec![rpc::request(STEER, "turn/steer", &params)]
    }

    fn gone(&mut self, _code: Option<i32>) -> Vec<Action> {
        // Without one answer it is not an app server at all: there is a second way to drive it.
        if !self.answered {
            return vec![Action::End(Turn::Lost)];
        }
        if self.blamed || self.interrupted {
            return vec![Action::End(Turn::Ill)];
        }
        let line = failed(Fault::Other, "codex exited in the middle of a turn");
        vec![Action::Emit(line), Action::End(Turn::Ill)]
    }
}

fn got_on(mut actions: Vec<Action>) -> Vec<Action> {
    actions.insert(0, Action::GotOn);
    actions
}

/// The status inside one of the kinds that carry one.
fn http_status(info: &Value) -> Option<u64> {
    info.as_object()?.values().find_map(|kind| kind["httpStatusCode"].as_u64())
}

fn started(item: &Value) -> Vec<Action> {
    match text_at(item, "/type") {
        "commandExecution" => {
            vec![Action::Tool { name: "exec".to_owned(), what: command(item) }]
        }
        "mcpToolCall" => {
            vec![Action::Tool { name: text_at(item, "/tool").to_owned(), what: String::new() }]
        }
        _ => Vec::new(),
    }
}

fn completed(item: &Value) -> Vec<Action> {
    match text_at(item, "/type") {
        "agentMessage" => vec![Action::Text(text_at(item, "/text").to_owned())],
        "commandExecution" => {
            let code = item["exitCode"].as_i64().unwrap_or(0);
            let output = text_at(item, "/aggregatedOutput").trim_end();
            let text = if code == 0 { output.to_owned() } else { format!("{output}\nexit {code}") };
            vec![Action::Outcome { what: command(item), text, failed: code != 0 }]
        }
        "fileChange" => {
            let changes = item["changes"].as_array().into_iter().flatten();
            let edit = |change: &Value| Action::Tool {
                name: "edit".to_owned(),
                what: text_at(change, "/path").to_owned(),
            };
            changes.map(edit).collect()
        }
        _ => Vec::new(),
    }
}

/// The command as the model wrote it, without the shell around it.
fn command(item: &Value) -> String {
    let inner = text_at(item, "/commandActions/0/command");
    if inner.is_empty() { text_at(item, "/command").to_owned() } else { inner.to_owned() }
}
