//! What the engine's control socket speaks: one request per line of JSON, one response per line back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a face asks of a running engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub enum ControlRequest {
    /// Start no more agents; those at work go on.
    Pause,
    /// Take back a pause.
    Resume,
    /// Cancel one task, or the whole run.
    Cancel {
        /// The task; absent means the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<String>,
    },
    /// Give tasks another attempt: all of them, or none if one of them cannot have one.
    Retry {
        task: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<String>,
        /// What their agents are told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// Who works on them instead of their own agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// From the beginning, instead of from the work so far.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh: bool,
    },
    /// Count a task as done without doing it.
    Skip { task: String },
    /// Change how many agents work at once.
    Jobs { n: u32 },
    /// Make a proposed task part of the run.
    Accept { proposal: String },
    /// Decline a proposed task.
    Reject { proposal: String },
    /// Make further tasks part of the run.
    Add {
        /// The tasks, as a plan in JSON has them.
        tasks: Value,
    },
    Answer {
        question: String,
        text: String,
        /// In words of one's own, although the question offers a choice.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        free: bool,
    },
    /// Leave a provider alone for a while: somebody else ran into its limit.
    Park {
        provider: String,
        /// `rate`, `quota` or `breaker`.
        kind: String,
        /// Until when, in milliseconds since 1970 (UTC).
        until: i64,
        message: String,
    },
    /// Ask whether anybody is there.
    Ping,
    /// Ask what each agent was last seen doing: an object, task to text.
    Progress,
    /// Ask what is being done: agents and checks, as [`crate::status::StatusActivity`].
    Activity,
    /// Ask which pieces of work would clash: a list.
    Clashes,
    /// Come to rest and end.
    Stop {
        /// Whether agents are ended at once instead of being asked to end.
        #[serde(default)]
        now: bool,
    },
}

/// What the engine says back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlResponse {
    /// Whether it was done.
    pub ok: bool,
    /// One sentence for people.
    pub message: String,
    /// Why not, for programs; absent when it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ControlError>,
    /// More, depending on the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlError {
    /// The line was not a request this engine knows.
    BadRequest,
    /// There is no such task.
    UnknownTask,
    /// There is no such question.
    UnknownQuestion,
    /// The task, question or run is not in a state that allows it.
    NotNow,
    /// The engine is ending.
    Stopping,
    /// The engine failed while doing it.
    Failed,
}

impl ControlResponse {
    #[must_use]
    pub fn done(message: impl Into<String>) -> Self {
        Self { ok: true, message: message.into(), error: None, data: None }
    }

    /// It was not done.
    #[must_use]
    pub fn refused(error: ControlError, message: impl Into<String>) -> Self {
        Self { ok: false, message: message.into(), error: Some(error), data: None }
    }

    /// The same, with data.
    #[must_use]
    pub fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    fn check(request: &ControlRequest, line: &str) {
        assert_eq!(serde_json::to_string(request).unwrap(), line);
        assert_eq!(&serde_json::from_str::<ControlRequest>(line).unwrap(), request);
    }

    #[test]
    fn requests_have_these_shapes() {
        let task = || "T-1".to_owned();
        check(&ControlRequest::Pause, r#"{"cmd":"pause"}"#);
        check(&ControlRequest::Resume, r#"{"cmd":"resume"}"#);
        check(&ControlRequest::Cancel { task: None }, r#"{"cmd":"cancel"}"#);
        check(&ControlRequest::Cancel { task: Some(task()) }, r#"{"cmd":"cancel","task":"T-1"}"#);
        let retry = |also, hint, agent, fresh| ControlRequest::Retry {
            task: task(),
            also,
            hint,
            agent,
            fresh,
        };
        check(&retry(Vec::new(), None, None, false), r#"{"cmd":"retry","task":"T-1"}"#);
        check(
            &retry(vec!["T-2".to_owned()], Some("look".to_owned()), Some("b".to_owned()), true),
            r#"{"cmd":"retry","task":"T-1","also":["T-2"],"hint":"look","agent":"b","fresh":true}"#,
        );
        check(&ControlRequest::Skip { task: task() }, r#"{"cmd":"skip","task":"T-1"}"#);
        check(&ControlRequest::Jobs { n: 4 }, r#"{"cmd":"jobs","n":4}"#);
        check(
            &ControlRequest::Answer { question: "Q-1".into(), text: "yes".into(), free: false },
            r#"{"cmd":"answer","question":"Q-1","text":"yes"}"#,
        );
        check(&ControlRequest::Ping, r#"{"cmd":"ping"}"#);
        check(&ControlRequest::Stop { now: true }, r#"{"cmd":"stop","now":true}"#);
    }

    #[test]
    fn what_may_be_left_out_has_its_gentle_meaning() {
        let read = |line| serde_json::from_str::<ControlRequest>(line).unwrap();
        assert_eq!(read(r#"{"cmd":"stop"}"#), ControlRequest::Stop { now: false });
        assert_eq!(read(r#"{"cmd":"cancel","task":null}"#), ControlRequest::Cancel { task: None });
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bad in
            ["", "{}", r#"{"cmd":"dance"}"#, r#"{"cmd":"retry"}"#, r#"{"cmd":"jobs","n":-1}"#]
        {
            assert!(serde_json::from_str::<ControlRequest>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn responses_have_these_shapes() {
        let check = |response: ControlResponse, line: &str| {
            assert_eq!(serde_json::to_string(&response).unwrap(), line);
            assert_eq!(serde_json::from_str::<ControlResponse>(line).unwrap(), response);
        };
        check(ControlResponse::done("paused"), r#"{"ok":true,"message":"paused"}"#);
        check(
            ControlResponse::refused(ControlError::UnknownTask, "unknown task T-9"),
            r#"{"ok":false,"message":"unknown task T-9","error":"unknown_task"}"#,
        );
        check(
            ControlResponse::done("pong").with_data(json!({"pid": 7})),
            r#"{"ok":true,"message":"pong","data":{"pid":7}}"#,
        );
    }
}
