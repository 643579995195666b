//! From what a provider answered to a class of failure.
//!
//! Only structured fields and messages whose beginning is known count. Prose about limits, wherever it
//! stands, means nothing.

use mainstem_core::fact::Fault;
use serde_json::Value;

use super::line::Line;
use super::{DriveSpec, text_at};

/// The longest message that goes into a line.
const MESSAGE_BYTES: usize = 2_000;

/// Who failed, for the advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Claude,
    Codex,
    Gemini,
    OpenCode,
    Acp,
}

/// What an agent was given to log in with, for advice on logins.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    tool: Tool,
    /// The agent's name under `[agents.*]`.
    agent: String,
    /// The variables with keys that it was given.
    keys: Vec<String>,
}

impl Access {
    pub(crate) fn new(tool: Tool, spec: &DriveSpec) -> Self {
        Self { tool, agent: spec.agent.clone(), keys: spec.keys.clone() }
    }

    /// The tool says which variable's key it uses.
    pub(crate) fn used(&mut self, variable: &str) {
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
            Tool::Claude => named("ANTHROPIC_API_KEY", "claude login"),
            Tool::Codex => named("OPENAI_API_KEY", "codex login"),
            Tool::Gemini => named("GEMINI_API_KEY", "gemini"),
            Tool::OpenCode => named("your provider's key", "opencode auth login"),
            Tool::Acp => {
                format!("log in with the login command of the agent; see [agents.{agent}]")
            }
        }
    }

    /// There is no login at all.
    pub(crate) fn not_logged_in(&self, message: &str) -> Line {
        Line::Failed { class: Fault::Auth, message: short(message), help: self.login_help() }
    }

    /// There is a login, and the provider does not accept it.
    pub(crate) fn refused(&self, status: Option<u64>, message: &str) -> Line {
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
        let message = short(&format!("{what}{status}: {message}"));
        Line::Failed { class: Fault::Auth, message, help }
    }

    /// What an HTTP status means for the attempt. None stands for a connection that broke.
    pub(crate) fn status(&self, status: Option<u64>, message: &str) -> Line {
        match status {
            Some(429) => rate_limited(message, None, false),
            Some(401 | 403) => self.refused(status, message),
            Some(402) => used_up(None, "credit", message),
            Some(404) => failed(Fault::Model, message),
            Some(408 | 409) => failed(Fault::Transient, message),
            Some(413) => failed(Fault::Context, message),
            Some(400..500) => failed(Fault::Request, message),
            _ => failed(Fault::Transient, message),
        }
    }
}

/// A failure of this class.
pub(crate) fn failed(class: Fault, message: &str) -> Line {
    Line::Failed { class, message: short(message), help: String::new() }
}

/// What was paid for is used up.
pub(crate) fn used_up(reset_at: Option<u64>, window: &str, message: &str) -> Line {
    Line::QuotaExhausted { reset_at, window: window.to_owned(), message: short(message) }
}

/// What the `error` of a provider's answer says that stands as JSON in a message; none if its code says
/// nothing to us.
pub(crate) fn by_code(error: &Value) -> Option<Line> {
    let said = text_at(error, "/message");
    let code = |name: &str| text_at(error, "/code") == name || text_at(error, "/type") == name;
    Some(match () {
        () if code("context_length_exceeded") => failed(Fault::Context, said),
        () if code("model_not_found") => failed(Fault::Model, said),
        () if code("insufficient_quota") || code("usage_limit_reached") => {
            used_up(error["resets_at"].as_u64(), "", said)
        }
        () if code("rate_limit_exceeded") || code("rate_limit_error") => {
            rate_limited(said, None, false)
        }
        // Google's codes are numbers; this is how it says that the conversation is too long.
        () if said.starts_with("The input token count") && said.contains("exceeds the maximum") => {
            failed(Fault::Context, said)
        }
        () => return None,
    })
}

/// The provider asks to wait.
pub(crate) fn rate_limited(message: &str, retry_after: Option<f64>, retrying: bool) -> Line {
    Line::RateLimited { retry_after, reset_at: None, message: short(message), retrying }
}

/// One line of bounded length.
pub(crate) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    crate::lines::cut(&line, MESSAGE_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(keys: &[&str]) -> Access {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let spec = DriveSpec { agent: "mine".into(), keys, ..DriveSpec::default() };
        Access::new(Tool::Claude, &spec)
    }

    fn class(code: Option<u64>) -> Option<Fault> {
        match access(&[]).status(code, "m") {
            Line::Failed { class, .. } => Some(class),
            _ => None,
        }
    }

    #[test]
    fn every_status_has_its_class() {
        assert_eq!(class(Some(401)), Some(Fault::Auth));
        assert_eq!(class(Some(400)), Some(Fault::Request));
        assert_eq!(class(Some(404)), Some(Fault::Model));
        for code in [None, Some(500), Some(503), Some(529), Some(408)] {
            assert_eq!(class(code), Some(Fault::Transient), "{code:?}");
        }
        let limited = access(&[]).status(Some(429), "m");
        assert!(matches!(limited, Line::RateLimited { retrying: false, .. }));
        assert!(matches!(access(&[]).status(Some(402), "m"), Line::QuotaExhausted { .. }));
    }

    #[test]
    fn a_missing_login_names_the_command_that_helps() {
        let Line::Failed { help, .. } = access(&[]).not_logged_in("no") else {
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
        access.used("ANTHROPIC_API_KEY");
        let Line::Failed { class, message, help } = access.status(Some(401), "invalid x-api-key")
        else {
            panic!("a 401 is a failure")
        };
        assert_eq!(class, Fault::Auth);
        assert_eq!(message, "the key in ANTHROPIC_API_KEY was refused (401): invalid x-api-key");
        assert_eq!(help, "put a valid key into ANTHROPIC_API_KEY");
    }

    #[test]
    fn codes_in_a_body_are_read_and_unknown_ones_are_not_guessed_at() {
        let of = |text: &str| by_code(&serde_json::from_str::<Value>(text).unwrap_or_default());
        let context = of(r#"{"code":"context_length_exceeded","message":"m"}"#);
        assert!(matches!(context, Some(Line::Failed { class: Fault::Context, .. })));
        let credit = of(r#"{"type":"insufficient_quota","message":"m"}"#);
        assert!(matches!(credit, Some(Line::QuotaExhausted { .. })));
        assert_eq!(of(r#"{"code":"something_new","message":"rate limit, quota, context"}"#), None);
        assert_eq!(of(r#"{"code":400}"#), None);
    }
}
