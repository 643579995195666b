//! Claude Code's stream-json, in both directions.
//!
//! The end of a turn is its `result` line, whatever still runs in the background. An error of the
//! provider comes as a result of the subtype `success` with `is_error` set; what kind of error it is
//! says the `error` of the assistant message before it, in the same words in every version
//! (`terminal_reason` does not: 2.1.197 says `completed` of every error of the provider).
//! `modelUsage` and `total_cost_usd` count over the whole session in the versions that also have
//! `model_usage_since_last_result`, and over this process in all others.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::drive_line::DriveLine;
use super::failure_class::{self, DrivenTool, ToolAccess, failure_line};
use super::{
    DriveSpec, ProtocolAction, ToolProtocol, TurnEnd, count_at, describe_tool_input, text_at,
};
use mainstem_core::fact::{AgentFault, CostBasis};

/// The tool may wait this long by itself; what takes longer is for the engine to wait.
const OWN_WAIT_MS: f64 = 60_000.0;
/// Its own wait before the first retry doubles with each one and varies by up to a quarter.
const OWN_BACKOFF_MS: f64 = 500.0 * 1.3;

/// A conversation with Claude Code.
pub(crate) struct ClaudeProtocol {
    prompt: String,
    access: ToolAccess,
    allowed: Option<Vec<String>>,
    session: String,
    /// Paid by a subscription.
    included: bool,
    interrupted: bool,
    /// The subscription's limit: when it ends and which it is.
    quota: Option<(Option<u64>, String)>,
    /// The longest wait in seconds that the provider asked for.
    asked_to_wait: Option<f64>,
    /// What kind of error the last message of the provider was, in the tool's word.
    api_error: String,
    /// Calls that have not come back: what they are about.
    calls: BTreeMap<String, String>,
    /// What messages began with, for a turn whose end never comes.
    begun: BTreeMap<String, (String, [u64; 4])>,
}

impl ClaudeProtocol {
    pub(crate) fn new(spec: &DriveSpec, prompt: String) -> Self {
        Self {
            prompt,
            access: ToolAccess::new(DrivenTool::Claude, spec),
            allowed: spec.allowed_tools.clone(),
            session: String::new(),
            included: false,
            interrupted: false,
            quota: None,
            asked_to_wait: None,
            api_error: String::new(),
            calls: BTreeMap::new(),
            begun: BTreeMap::new(),
        }
    }

    fn handle_system(&mut self, message: &Value) -> Vec<ProtocolAction> {
        match text_at(message, "/subtype") {
            "init" => {
                let source = text_at(message, "/apiKeySource");
                self.included = source == "none";
                self.access.restrict_to_key(source);
                let id = text_at(message, "/session_id");
                if id.is_empty() || id == self.session {
                    return Vec::new();
                }
                id.clone_into(&mut self.session);
                let model = text_at(message, "/model");
                vec![
                    ProtocolAction::Emit(DriveLine::Session { id: id.to_owned() }),
                    ProtocolAction::Note(format!("session {id}, model {model}")),
                ]
            }
            "api_retry" => self.handle_retry(message),
            "model_fallback" => {
                let model = text_at(message, "/fallback_model");
                vec![ProtocolAction::Note(format!("continues with the model {model}"))]
            }
            _ => Vec::new(),
        }
    }

    /// The tool tries again by itself, which helps against a blip and against nothing else.
    fn handle_retry(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let delay_ms = message["retry_delay_ms"].as_f64().unwrap_or(0.0);
        let what = text_at(message, "/error");
        match message["error_status"].as_u64() {
            Some(status @ (401 | 403)) => {
                let line = self.access.login_refused(Some(status), what);
                vec![ProtocolAction::Emit(line), ProtocolAction::End(TurnEnd::Failed)]
            }
            Some(429) => {
                let tries = count_at(message, "/attempt").clamp(1, 10) - 1;
                if delay_ms > OWN_BACKOFF_MS * 2f64.powi(i32::try_from(tries).unwrap_or(0)) {
                    let longest = self.asked_to_wait.unwrap_or(0.0).max(delay_ms / 1000.0);
                    self.asked_to_wait = Some(longest);
                }
                let stays = delay_ms <= OWN_WAIT_MS;
                let seconds = Some(delay_ms / 1000.0);
                let line = failure_class::rate_limit_line("429 Too Many Requests", seconds, stays);
                let mut actions = vec![ProtocolAction::Emit(line)];
                if !stays {
                    actions.push(ProtocolAction::End(TurnEnd::Failed));
                }
                actions
            }
            status => {
                let status = status.map_or_else(|| what.to_owned(), |status| status.to_string());
                vec![ProtocolAction::Note(format!(
                    "the provider failed ({status}); claude is retrying"
                ))]
            }
        }
    }

    fn handle_assistant(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let body = &message["message"];
        text_at(message, "/error").clone_into(&mut self.api_error);
        if self.api_error.is_empty() {
            let usage = &body["usage"];
            let counts = [
                count_at(usage, "/input_tokens"),
                count_at(usage, "/output_tokens"),
                count_at(usage, "/cache_read_input_tokens"),
                count_at(usage, "/cache_creation_input_tokens"),
            ];
            let model = text_at(body, "/model").to_owned();
            self.begun.insert(text_at(body, "/id").to_owned(), (model, counts));
        }
        let mut actions = Vec::new();
        for block in body["content"].as_array().into_iter().flatten() {
            match text_at(block, "/type") {
                "text" => actions.push(ProtocolAction::Text(text_at(block, "/text").to_owned())),
                "tool_use" => {
                    let (name, what) =
                        (text_at(block, "/name"), describe_tool_input(&block["input"]));
                    let id = text_at(block, "/id").to_owned();
                    self.calls.insert(id, format!("{name} {what}"));
                    actions.push(ProtocolAction::Tool { name: name.to_owned(), what });
                }
                _ => {}
            }
        }
        actions
    }

    fn handle_tool_results(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let blocks = message["message"]["content"].as_array();
        let results = blocks.into_iter().flatten().filter(|b| b["type"] == "tool_result");
        let outcome =
            |block: &Value, calls: &mut BTreeMap<String, String>| ProtocolAction::Outcome {
                what: calls.remove(text_at(block, "/tool_use_id")).unwrap_or_default(),
                text: content_text(&block["content"]),
                failed: block["is_error"] == true,
            };
        results.map(|block| outcome(block, &mut self.calls)).collect()
    }

    fn handle_control_request(&self, message: &Value) -> Vec<ProtocolAction> {
        let request = &message["request"];
        if text_at(request, "/subtype") != "can_use_tool" {
            let response = json!({"subtype": "error", "request_id": message["request_id"],
                "error": "not supported"});
            return vec![send_message(&json!({"type": "control_response", "response": response}))];
        }
        let name = text_at(request, "/tool_name");
        let what = describe_tool_input(&request["input"]);
        let allowed = self.allowed.as_ref().is_none_or(|list| is_tool_permitted(list, name, &what));
        let answer = if allowed {
            json!({"behavior": "allow", "updatedInput": request["input"]})
        } else {
            json!({"behavior": "deny", "message": format!("{name} is not among the allowed tools")})
        };
        let response = json!({"subtype": "success", "request_id": message["request_id"],
            "response": answer});
        let word = if allowed { "allowed" } else { "declined" };
        vec![
            ProtocolAction::Note(format!("{name}: {word}")),
            send_message(&json!({"type": "control_response", "response": response})),
        ]
    }

    fn handle_result(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let mut actions = self.report_usage(message);
        if message["is_error"] != true {
            actions.push(ProtocolAction::End(TurnEnd::Completed));
            return actions;
        }
        let errors = message["errors"].as_array();
        let errors = errors.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        if errors.iter().any(|error| error.starts_with("No conversation found with session ID")) {
            actions.push(ProtocolAction::End(TurnEnd::SessionMissing));
            return actions;
        }
        let said = Some(text_at(message, "/result")).filter(|text| !text.is_empty());
        let text = said.map_or_else(|| errors.join("; "), str::to_owned);
        if let Some(line) = self.classify_failure(message, &text) {
            actions.push(ProtocolAction::Emit(line));
        }
        actions.push(ProtocolAction::End(TurnEnd::Failed));
        actions
    }

    fn classify_failure(&self, message: &Value, text: &str) -> Option<DriveLine> {
        let subtype = text_at(message, "/subtype");
        let reason = text_at(message, "/terminal_reason");
        if self.interrupted && (reason.starts_with("aborted") || subtype.starts_with("error")) {
            return None;
        }
        let limit = text_at(message, "/api_error") == "usage_limit_reached";
        if let Some((reset_at, window)) =
            self.quota.clone().or(limit.then(|| (None, String::new())))
        {
            return Some(failure_class::quota_line(reset_at, &window, text));
        }
        Some(match (subtype, reason) {
            ("error_max_turns", _) => failure_line(AgentFault::MaxTurns, text),
            ("error_max_budget_usd", _) => failure_line(AgentFault::Budget, text),
            (_, "prompt_too_long") => failure_line(AgentFault::Context, text),
            _ => self.classify_provider_failure(message, text),
        })
    }

    /// By the tool's word for the error, and by the status where it has none.
    fn classify_provider_failure(&self, message: &Value, text: &str) -> DriveLine {
        let status = message["api_error_status"].as_u64();
        match self.api_error.as_str() {
            "rate_limit" => failure_class::rate_limit_line(text, self.asked_to_wait, false),
            "authentication_failed" if status.is_none() => self.access.not_logged_in(text),
            "authentication_failed" => self.access.login_refused(status, text),
            "billing_error" => failure_class::quota_line(None, "credit", text),
            "model_not_found" => failure_line(AgentFault::Model, text),
            "server_error" => failure_line(AgentFault::Transient, text),
            "" if status.is_none() && text_at(message, "/terminal_reason") != "api_error" => {
                failure_line(AgentFault::Other, text)
            }
            _ => self.access.classify_status(status, text),
        }
    }

    /// What this turn cost: what was used since the last result, or, in versions that do not say that,
    /// all that this process used (it has one result).
    fn report_usage(&mut self, message: &Value) -> Vec<ProtocolAction> {
        let basis = Some(if self.included { CostBasis::Included } else { CostBasis::Reported });
        let since = message["model_usage_since_last_result"].as_object();
        let models = since.or_else(|| message["modelUsage"].as_object());
        let begun = std::mem::take(&mut self.begun);
        if let Some(models) = models.filter(|models| !models.is_empty()) {
            let line = |(model, usage): (&String, &Value)| {
                ProtocolAction::Emit(DriveLine::Usage {
                    input_tokens: count_at(usage, "/inputTokens"),
                    output_tokens: count_at(usage, "/outputTokens"),
                    cache_read_tokens: count_at(usage, "/cacheReadInputTokens"),
                    cache_write_tokens: count_at(usage, "/cacheCreationInputTokens"),
                    cost_usd: usage["costUSD"].as_f64(),
                    model: model.clone(),
                    basis,
                })
            };
            return models.iter().map(line).collect();
        }
        let usage = &message["usage"];
        let cumulative = since.is_some();
        let line = DriveLine::Usage {
            input_tokens: count_at(usage, "/input_tokens"),
            output_tokens: count_at(usage, "/output_tokens"),
            cache_read_tokens: count_at(usage, "/cache_read_input_tokens"),
            cache_write_tokens: count_at(usage, "/cache_creation_input_tokens"),
            cost_usd: message["total_cost_usd"].as_f64().filter(|_| !cumulative),
            model: begun.into_values().next().map(|(model, _)| model).unwrap_or_default(),
            basis,
        };
        let counted = count_at(usage, "/input_tokens") + count_at(usage, "/output_tokens") > 0;
        if counted { vec![ProtocolAction::Emit(line)] } else { Vec::new() }
    }

    /// What the messages began with: all there is of a turn that was cut off.
    fn report_minimum_usage(&mut self) -> Vec<ProtocolAction> {
        let mut sums: BTreeMap<String, [u64; 4]> = BTreeMap::new();
        for (model, counts) in std::mem::take(&mut self.begun).into_values() {
            let sum = sums.entry(model).or_default();
            for (sum, count) in sum.iter_mut().zip(counts) {
                *sum = sum.saturating_add(count);
            }
        }
        let line = |(model, [input, output, read, write]): (String, [u64; 4])| {
            ProtocolAction::Emit(DriveLine::Usage {
                input_tokens: input,
                output_tokens: output,
                cache_read_tokens: read,
                cache_write_tokens: write,
                cost_usd: None,
                model,
                basis: Some(CostBasis::Estimated),
            })
        };
        sums.into_iter().map(line).collect()
    }
}

impl ToolProtocol for ClaudeProtocol {
    fn handle_start(&mut self) -> Vec<ProtocolAction> {
        vec![send_user_text(&self.prompt)]
    }

    fn handle_message(&mut self, message: &Value) -> Vec<ProtocolAction> {
        match text_at(message, "/type") {
            "system" => self.handle_system(message),
            "assistant" => self.handle_assistant(message),
            "user" => self.handle_tool_results(message),
            "control_request" => self.handle_control_request(message),
            "rate_limit_event" => {
                let info = &message["rate_limit_info"];
                if text_at(info, "/status") == "rejected" {
                    let window = text_at(info, "/rateLimitType").to_owned();
                    self.quota = Some((info["resetsAt"].as_u64(), window));
                }
                Vec::new()
            }
            "result" => self.handle_result(message),
            _ => Vec::new(),
        }
    }

    fn handle_stderr(&mut self, text: &str) -> Vec<ProtocolAction> {
        let taken = text.contains("Session ID") && text.contains("is already in use");
        if taken { vec![ProtocolAction::End(TurnEnd::SessionMissing)] } else { Vec::new() }
    }

    fn interrupt_turn(&mut self) -> Vec<ProtocolAction> {
        self.interrupted = true;
        let request = json!({"subtype": "interrupt"});
        vec![send_message(
            &json!({"type": "control_request", "request_id": "stop", "request": request}),
        )]
    }

    fn send_guidance(&mut self, text: &str) -> Vec<ProtocolAction> {
        vec![send_user_text(text)]
    }

    fn handle_exit(&mut self, code: Option<i32>) -> Vec<ProtocolAction> {
        let mut actions = self.report_minimum_usage();
        if !self.interrupted {
            let how = code.map_or("by a signal".to_owned(), |code| format!("with code {code}"));
            let text = format!("claude exited {how} in the middle of a turn");
            actions.push(ProtocolAction::Emit(failure_line(AgentFault::Other, &text)));
        }
        actions.push(ProtocolAction::End(TurnEnd::Failed));
        actions
    }
}

fn send_message(message: &Value) -> ProtocolAction {
    ProtocolAction::Send(message.to_string())
}

fn send_user_text(text: &str) -> ProtocolAction {
    send_message(&json!({
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
        "parent_tool_use_id": null,
        "session_id": "default",
    }))
}

/// A tool by its name, or by name and the beginning of its input as in `Bash(git *)`.
pub(crate) fn is_tool_permitted(list: &[String], name: &str, what: &str) -> bool {
    list.iter().any(|entry| match entry.split_once('(') {
        None => entry == name,
        Some((tool, rest)) => {
            let wanted = rest.strip_suffix(')').unwrap_or(rest);
            let fits = match wanted.strip_suffix('*') {
                Some(start) => what.starts_with(start),
                None => what == wanted,
            };
            tool == name && fits
        }
    })
}

/// The text of a result, which is text or a list of blocks.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().map(|block| text_at(block, "/text")).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
