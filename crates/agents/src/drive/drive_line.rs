//! The lines that `mainstem __drive` prints for the engine: the writing half of the line protocol.
//! Knows nothing of who reads them.

use mainstem_core::fact::{AgentFault, CostBasis};
use serde::Serialize;

/// One line of the line protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "mainstem", rename_all = "snake_case")]
pub enum DriveLine {
    /// The tool's session, for a later attempt to go on with.
    Session {
        /// The tool's own name of it.
        id: String,
    },
    /// Tokens and money spent since the last such line.
    Usage {
        /// Tokens read, without those from a cache.
        input_tokens: u64,
        output_tokens: u64,
        /// Tokens read from a cache.
        #[serde(skip_serializing_if = "is_zero")]
        cache_read_tokens: u64,
        /// Tokens written to a cache.
        #[serde(skip_serializing_if = "is_zero")]
        cache_write_tokens: u64,
        /// Money, if the tool says.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost_usd: Option<f64>,
        #[serde(skip_serializing_if = "String::is_empty")]
        model: String,
        /// How far the money is to be believed.
        #[serde(skip_serializing_if = "Option::is_none")]
        basis: Option<CostBasis>,
    },
    /// The provider refuses more requests for a while.
    RateLimited {
        /// Seconds until the next try, if it was said.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<f64>,
        /// When the limit is over, in seconds of the epoch.
        #[serde(skip_serializing_if = "Option::is_none")]
        reset_at: Option<u64>,
        message: String,
        /// Whether the tool waits and tries again by itself.
        retrying: bool,
    },
    /// What was paid for is used up until some time.
    QuotaExhausted {
        /// When there is more, in seconds of the epoch.
        #[serde(skip_serializing_if = "Option::is_none")]
        reset_at: Option<u64>,
        /// Which of the provider's windows it is.
        #[serde(skip_serializing_if = "String::is_empty")]
        window: String,
        message: String,
    },
    Failed {
        /// Of which kind the failure is.
        class: AgentFault,
        message: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        help: String,
    },
    /// What it does right now.
    Progress {
        text: String,
        /// The tool it uses.
        #[serde(skip_serializing_if = "String::is_empty")]
        tool: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl DriveLine {
    /// The line as it is printed, without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("BUG: texts and numbers always fit into JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_the_protocol_has_them() {
        let session = DriveLine::Session { id: "s-1".into() };
        assert_eq!(session.to_json(), r#"{"mainstem":"session","id":"s-1"}"#);
        let limited = DriveLine::RateLimited {
            retry_after: Some(1.5),
            reset_at: None,
            message: "429".into(),
            retrying: true,
        };
        assert_eq!(
            limited.to_json(),
            r#"{"mainstem":"rate_limited","retry_after":1.5,"message":"429","retrying":true}"#
        );
        let failed = DriveLine::Failed {
            class: AgentFault::MaxTurns,
            message: "m".into(),
            help: String::new(),
        };
        assert_eq!(failed.to_json(), r#"{"mainstem":"failed","class":"max_turns","message":"m"}"#);
    }
}
