//! From what a provider answered to a class of failure.
//!
//! Only structured fields and messages whose beginning is known count. Prose about limits, wherever it
//! stands, means nothing.

use mainstem_core::fact::Fault;

use super::line::Line;

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

impl Tool {
    /// What makes it log in.
    pub(crate) fn login_help(self, agent: &str) -> String {
        let named = |variable: &str, command: &str| {
            format!("run `{command}`, or set {variable} and name it in [agents.{agent}] secrets")
        };
        match self {
            Self::Claude => named("ANTHROPIC_API_KEY", "claude login"),
            Self::Codex => named("OPENAI_API_KEY", "codex login"),
            Self::Gemini => named("GEMINI_API_KEY", "gemini"),
            Self::OpenCode => named("your provider's key", "opencode auth login"),
            Self::Acp => format!("log in with the agent's own command; see [agents.{agent}]"),
        }
    }
}

/// A failure of this class.
pub(crate) fn failed(class: Fault, message: &str) -> Line {
    Line::Failed { class, message: short(message), help: String::new() }
}

/// A failure to log in.
pub(crate) fn not_logged_in(tool: Tool, agent: &str, message: &str) -> Line {
    Line::Failed { class: Fault::Auth, message: short(message), help: tool.login_help(agent) }
}

/// What an HTTP status means for the attempt. None stands for a connection that broke.
pub(crate) fn status(tool: Tool, agent: &str, status: Option<u64>, message: &str) -> Line {
    match status {
        Some(429) => rate_limited(message, None, false),
        Some(401 | 403) => not_logged_in(tool, agent, message),
        Some(404) => failed(Fault::Model, message),
        Some(408 | 409) => failed(Fault::Transient, message),
        Some(413) => failed(Fault::Context, message),
        Some(400..500) => failed(Fault::Request, message),
        _ => failed(Fault::Transient, message),
    }
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

    fn class(code: Option<u64>) -> Option<Fault> {
        match status(Tool::Claude, "claude", code, "m") {
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
        assert!(matches!(
            status(Tool::Codex, "codex", Some(429), "m"),
            Line::RateLimited { retrying: false, .. }
        ));
    }

    #[test]
    fn a_failed_login_names_the_command_that_helps() {
        let Line::Failed { help, .. } = status(Tool::Claude, "mine", Some(401), "no") else {
            panic!("a 401 is a failure")
        };
        assert_eq!(
            help,
            "run `claude login`, or set ANTHROPIC_API_KEY and name it in [agents.mine] secrets"
        );
    }
}
