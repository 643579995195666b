//! From what a provider answered to a class of failure.
//!
//! Only structured fields and messages whose beginning is known count. Prose about limits, wherever it
//! stands, means nothing.

use mainstem_core::fact::AgentFault;
use serde_json::Value;

use super::drive_line::DriveLine;
use super::{DriveSpec, text_at};

/// The longest message that goes into a line.
const MESSAGE_BYTES: usize = 2_000;

/// Who failed, for the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrivenTool {
    Claude,
    Codex,
    Gemini,
    OpenCode,
    Acp,
}

/// What an agent was given to log in with, for advice on logins.
#[derive(Debug, Clone)]
pub(crate) struct ToolAccess {
    tool: DrivenTool,
    /// The agent's name under `[agents.*]`.
    agent: String,
    /// The variables with keys that it was given.
    keys: Vec<String>,
}

impl ToolAccess {
    pub(crate) fn new(tool: DrivenTool, spec: &DriveSpec) -> Self {
        Self { tool, agent: spec.agent.clone(), keys: spec.keys.clone() }
    }

    /// The tool says which variable's key it uses.
    pub(crate) fn restrict_to_key(&mut self, variable: &str) {
        if self.keys.iter().any(|key| key == variable) {
            self.keys = vec![variable.to_owned()];
        }
    }

    /// What makes it log in.
    fn login_help(&self) -> String {
        let agent = &self.agent;
        let named = |variable: &str, command: &str| {
            format!("run `{command}`, or set {variable} and add it to [agents.{agent}] secrets")
        };
        match self.tool {
            DrivenTool::Claude => named("ANTHROPIC_API_KEY", "claude login"),
            DrivenTool::Codex => named("OPENAI_API_KEY", "codex login"),
            DrivenTool::Gemini => named("GEMINI_API_KEY", "gemini"),
            DrivenTool::OpenCode => named("your provider's key", "opencode auth login"),
            DrivenTool::Acp => {
                format!("log in with the login command of the agent; see [agents.{agent}]")
            }
        }
    }

    /// There is no login at all.
    pub(crate) fn not_logged_in(&self, message: &str) -> DriveLine {
        DriveLine::Failed {
            class: AgentFault::Auth,
            message: bounded_line(message),
            help: self.login_help(),
        }
    }

    /// There is a login, and the provider does not accept it.
    pub(crate) fn login_refused(&self, status: Option<u64>, message: &str) -> DriveLine {
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        let (what, help) = match &self.keys[..] {
            [] => ("the login was refused".to_owned(), self.login_help()),
            [key] => {
                (format!("the key in {key} was refused"), format!("put a valid key into {key}"))
            }
            keys => {
                let keys = keys.join(" or ");
                (format!("the key in {keys} was refused"), format!("put a valid key into {keys}"))
            }
        };
        let message = bounded_line(&format!("{what}{status}: {message}"));
        DriveLine::Failed { class: AgentFault::Auth, message, help }
    }

    /// What an HTTP status means for the attempt. None stands for a connection that broke.
    pub(crate) fn classify_status(&self, status: Option<u64>, message: &str) -> DriveLine {
        match status {
            Some(429) => rate_limit_line(message, None, false),
            Some(401 | 403) => self.login_refused(status, message),
            Some(402) => quota_line(None, "credit", message),
            Some(404) => failure_line(AgentFault::Model, message),
            Some(408 | 409) => failure_line(AgentFault::Transient, message),
            Some(413) => failure_line(AgentFault::Context, message),
            Some(400..500) => failure_line(AgentFault::Request, message),
            _ => failure_line(AgentFault::Transient, message),
        }
    }
}

/// A failure of this class.
pub(crate) fn failure_line(class: AgentFault, message: &str) -> DriveLine {
    DriveLine::Failed { class, message: bounded_line(message), help: String::new() }
}

/// What was paid for is used up.
pub(crate) fn quota_line(reset_at: Option<u64>, window: &str, message: &str) -> DriveLine {
    DriveLine::QuotaExhausted {
        reset_at,
        window: window.to_owned(),
        message: bounded_line(message),
    }
}

/// What the `error` of a provider's answer says that stands as JSON in a message; none if its code says
/// nothing to us.
pub(crate) fn classify_error_code(error: &Value) -> Option<DriveLine> {
    let said = text_at(error, "/message");
    let code = |name: &str| text_at(error, "/code") == name || text_at(error, "/type") == name;
    Some(match () {
        () if code("context_length_exceeded") => failure_line(AgentFault::Context, said),
        () if code("model_not_found") => failure_line(AgentFault::Model, said),
        () if code("insufficient_quota") || code("usage_limit_reached") => {
            quota_line(error["resets_at"].as_u64(), "", said)
        }
        () if code("rate_limit_exceeded") || code("rate_limit_error") => {
            rate_limit_line(said, None, false)
        }
        // Google's codes are numbers; this is how it says that the conversation is too long.
        () if said.starts_with("The input token count") && said.contains("exceeds the maximum") => {
            failure_line(AgentFault::Context, said)
        }
        () => return None,
    })
}

/// The provider asks to wait.
pub(crate) fn rate_limit_line(
    message: &str,
    retry_after: Option<f64>,
    retrying: bool,
) -> DriveLine {
    DriveLine::RateLimited { retry_after, reset_at: None, message: bounded_line(message), retrying }
}

/// One line of bounded length.
pub(crate) fn bounded_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::line_protocol::truncate_text(&line, MESSAGE_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(keys: &[&str]) -> ToolAccess {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let spec = DriveSpec { agent: "mine".into(), keys, ..DriveSpec::default() };
        ToolAccess::new(DrivenTool::Claude, &spec)
    }

    fn class(code: Option<u64>) -> Option<AgentFault> {
        match access(&[]).classify_status(code, "m") {
            DriveLine::Failed { class, .. } => Some(class),
            _ => None,
        }
    }

    #[test]
    fn every_status_has_its_class() {
        assert_eq!(class(Some(401)), Some(AgentFault::Auth));
        assert_eq!(class(Some(400)), Some(AgentFault::Request));
        assert_eq!(class(Some(404)), Some(AgentFault::Model));
        for code in [None, Some(500), Some(503), Some(529), Some(408)] {
            assert_eq!(class(code), Some(AgentFault::Transient), "{code:?}");
        }
        let limited = access(&[]).classify_status(Some(429), "m");
        assert!(matches!(limited, DriveLine::RateLimited { retrying: false, .. }));
        assert!(matches!(
            access(&[]).classify_status(Some(402), "m"),
            DriveLine::QuotaExhausted { .. }
        ));
    }

    #[test]
    fn a_missing_login_names_the_command_that_helps() {
        let DriveLine::Failed { help, .. } = access(&[]).not_logged_in("no") else {
            panic!("no login is a failure")
        };
        assert_eq!(
            help,
            "run `claude login`, or set ANTHROPIC_API_KEY and add it to [agents.mine] secrets"
        );
    }

    #[test]
    fn a_refused_key_is_told_from_a_missing_login() {
        let mut access = access(&["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"]);
        access.restrict_to_key("ANTHROPIC_API_KEY");
        let DriveLine::Failed { class, message, help } =
            access.classify_status(Some(401), "invalid x-api-key")
        else {
            panic!("a 401 is a failure")
        };
        assert_eq!(class, AgentFault::Auth);
        assert_eq!(message, "the key in ANTHROPIC_API_KEY was refused (401): invalid x-api-key");
        assert_eq!(help, "put a valid key into ANTHROPIC_API_KEY");
    }

    #[test]
    fn codes_in_a_body_are_read_and_unknown_ones_are_not_guessed_at() {
        let of = |text: &str| {
            classify_error_code(&serde_json::from_str::<Value>(text).unwrap_or_default())
        };
        let context = of(r#"{"code":"context_length_exceeded","message":"m"}"#);
        assert!(matches!(context, Some(DriveLine::Failed { class: AgentFault::Context, .. })));
        let credit = of(r#"{"type":"insufficient_quota","message":"m"}"#);
        assert!(matches!(credit, Some(DriveLine::QuotaExhausted { .. })));
        assert_eq!(of(r#"{"code":"something_new","message":"rate limit, quota, context"}"#), None);
        assert_eq!(of(r#"{"code":400}"#), None);
    }
}
