//! A stand-in for the HTTP interfaces of language models, on loopback only.
//!
//! Lets real coding agents run without any model: the prompt carries a script between `<<STUB` and
//! `STUB>>`, and its steps become texts and tool calls in whatever protocol the agent speaks (Anthropic
//! Messages, OpenAI Responses and Chat Completions, Gemini). It keeps no state of any session, so that any
//! number of agents can use one stand-in at once. Knows neither engine nor agents.
//!
//! A script is `{"steps": […]}` or a list of steps. A step is an object; all keys are optional:
//! `say` (text; without calls it ends the turn), `think`, `write` (`{"path","content"}` or a list), `run`
//! (a shell command or a list), `tool` (`{"name","args"}` or a list; MCP tools by the end of their name),
//! `usage` (`{"in","out","cached"}`, 1000/50/0 if not said), `delay_ms`, `hang` (seconds the stream stays
//! open), `headers`, `fault`. A fault is `{"status","times","retry_after","message","headers","kind"}` with
//! the kinds `http`, `drop`, `drop_mid` and `usage_limit` (with `resets_in`); after `times` faulty answers
//! the step is played. `id` of a script tells equal scripts apart. A script may be `{"cases": […]}`: the first whose `when` stands
//! in the prompt, and whose `unless` does not, is played. A request without tools (a title, a
//! summary) gets a short text and plays no step, unless the script says `"toolless": true`.

mod script;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};

use self::script::{LlmScriptStep, choose, play};
use self::wire::LlmProtocol;
use crate::http::{self, StandInReply, StandInRequest};

/// A running stand-in; it ends with the process.
pub struct LlmStandIn {
    port: u16,
    state: Arc<Mutex<LlmStandInState>>,
}

/// What was asked and served.
#[derive(Default)]
struct LlmStandInState {
    requests: Vec<Value>,
    faults: BTreeMap<String, u64>,
}

/// Tokens that answers named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LlmServedTokens {
    /// Read, those from a cache included.
    pub input: u64,
    pub output: u64,
    pub answers: u64,
}

impl LlmStandIn {
    /// Starts one on a free port.
    pub fn start() -> Self {
        Self::start_at(0).expect("loopback has a free port")
    }

    /// Starts one on this port.
    pub fn start_at(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(Mutex::new(LlmStandInState::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Ok(Self { port, state })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every request for an answer so far: protocol, model, step, what the model said before the
    /// script came (`earlier`, of a session that was taken up), fault, whether tools were offered.
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.state).requests.clone()
    }

    /// What was served by answers that played a step of a script that holds this text; titles and
    /// summaries on the side are not in it.
    pub fn served(&self, part: &str) -> LlmServedTokens {
        let mut served = LlmServedTokens::default();
        for request in &self.requests() {
            let script = request["script"].as_str().unwrap_or_default();
            if request["fault"].is_null() && request["side"] == false && script.contains(part) {
                served.input += request["served"]["in"].as_u64().unwrap_or(0);
                served.output += request["served"]["out"].as_u64().unwrap_or(0);
                served.answers += 1;
            }
        }
        served
    }
}

fn lock(state: &Mutex<LlmStandInState>) -> MutexGuard<'_, LlmStandInState> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One connection, request after request.
fn serve(stream: TcpStream, state: &Mutex<LlmStandInState>) {
    let Ok(mut connection) = http::StandInConnection::new(stream) else {
        return;
    };
    while let Ok(Some(request)) = connection.next() {
        if answer(&mut connection, &request, state).is_err() || connection.is_over() {
            return;
        }
    }
}

fn answer(
    http: &mut http::StandInConnection,
    request: &StandInRequest,
    state: &Mutex<LlmStandInState>,
) -> io::Result<()> {
    let path = request.path.split('?').next().unwrap_or_default();
    if request.method != "POST" {
        let body = match path {
            "/__stub/health" => json!({"ok": true}),
            "/__stub/requests" => Value::Array(lock(state).requests.clone()),
            _ if path.ends_with("/models") => models(),
            _ => {
                return http.send(&StandInReply::error(
                    404,
                    json!({"error": {"message": "no such path"}}),
                ));
            }
        };
        return http.send(&StandInReply::ok(body));
    }
    if path == "/__stub/reset" {
        *lock(state) = LlmStandInState::default();
        return http.send(&StandInReply::ok(json!({"ok": true})));
    }
    if path.ends_with("/count_tokens") || path.ends_with(":countTokens") {
        return http.send(&StandInReply::ok(json!({"input_tokens": 1000, "totalTokens": 1000})));
    }
    match LlmProtocol::of(path) {
        Some(wire) => speak(http, wire, path, &request.body, state),
        None => http.send(&StandInReply::error(404, json!({"error": {"message": "no such path"}}))),
    }
}

fn models() -> Value {
    json!({
        "object": "list", "has_more": false, "first_id": "stub-model", "last_id": "stub-model",
        "data": [{"id": "stub-model", "object": "model", "type": "model", "display_name": "stub",
            "created": 1_700_000_000, "created_at": "2025-01-01T00:00:00Z", "owned_by": "stub"}],
        "models": [{"name": "models/stub-model", "displayName": "stub", "inputTokenLimit": 200_000,
            "outputTokenLimit": 32_000, "supportedGenerationMethods": ["generateContent"]}],
    })
}

/// Plays the step that the conversation has come to.
fn speak(
    http: &mut http::StandInConnection,
    wire: LlmProtocol,
    path: &str,
    body: &Value,
    state: &Mutex<LlmStandInState>,
) -> io::Result<()> {
    let talk = wire.read(body);
    let stream = wire.is_stream(path, body);
    let chosen = choose(&talk);
    let step = play(&chosen, &talk);
    let fault = due_fault(&chosen.raw, &chosen.script, &step, state);
    let usage = step.usage();
    let side = talk.tools.is_empty();
    lock(state).requests.push(json!({
        "api": wire.name(), "path": path, "model": body["model"], "script": chosen.raw,
        "step": step.number, "earlier": chosen.earlier, "fault": fault, "side": side,
        "tools": talk.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(),
        "served": {"in": usage.0, "out": usage.1, "cached": usage.2},
    }));
    if let Some(ms) = step.plan["delay_ms"].as_u64() {
        std::thread::sleep(Duration::from_millis(ms));
    }
    let kind = fault.as_ref().map(|fault| fault["kind"].as_str().unwrap_or("http").to_owned());
    match (kind.as_deref(), &fault) {
        (Some("drop"), _) => return http.drop_it(),
        (Some("usage_limit"), Some(fault)) => return http.send(&wire.usage_limit(fault)),
        (Some("http"), Some(fault)) => return http.send(&wire.refusal(fault)),
        _ => {}
    }
    let message = wire.message(body, &step, &talk);
    if !stream {
        if kind.is_some() {
            return http.drop_it();
        }
        return http.send(&StandInReply::ok(message));
    }
    http.begin_stream(&step.plan["headers"])?;
    for (n, (event, data)) in wire.events(&message).into_iter().enumerate() {
        if event == "hang" {
            http.hang(step.plan["hang"].as_f64().unwrap_or(0.0))?;
            continue;
        }
        http.event(&event, &data)?;
        if kind.is_some() && n >= wire.cut() {
            return http.drop_it();
        }
    }
    http.end_stream()
}

/// The step's fault, unless it has happened as often as it should.
fn due_fault(
    raw: &str,
    script: &Value,
    step: &LlmScriptStep,
    state: &Mutex<LlmStandInState>,
) -> Option<Value> {
    let fault = step.plan.get("fault")?.clone();
    if let Some(times) = fault["times"].as_u64() {
        let key = format!("{raw}|{}|{}", script["id"], step.number);
        let mut state = lock(state);
        let n = state.faults.entry(key).or_default();
        *n += 1;
        if *n > times {
            return None;
        }
    }
    Some(fault)
}
