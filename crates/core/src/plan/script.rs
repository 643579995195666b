//! The steps of the built-in `script` agent. Data only: the program that walks them is elsewhere.

use serde::{Deserialize, Serialize};

/// One step. In a plan each is a table with one key naming the step, for example
/// `{ write = "a.txt", text = "hello" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum ScriptStep {
    /// Replace a file's content; parent folders are made.
    Write {
        /// Path inside the workspace.
        path: String,
        text: String,
    },
    /// Add to a file's end.
    Append {
        /// Path inside the workspace.
        path: String,
        text: String,
    },
    /// `git add -A` and commit.
    Commit { message: String },
    /// Do nothing for a while.
    Sleep { ms: u64 },
    /// Print a line on standard output.
    Print { text: String },
    /// Ask a question, wait for the answer, and write it to a file if one is named.
    Ask {
        question: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
        /// Where the answer goes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        into: Option<String>,
    },
    /// End with this exit code; only in the first `times` attempts if that is given.
    Fail {
        code: i32,
        /// How many attempts fail before the step is passed over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times: Option<u32>,
    },
    /// Report a rate limit and end; only in the first `times` attempts if that is given.
    RateLimit {
        /// Seconds until it may be tried again.
        retry_after: f64,
        /// How many attempts are limited before the step is passed over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times: Option<u32>,
    },
    /// Never end; with `ignore_term`, not even when asked to.
    Hang {
        #[serde(default)]
        ignore_term: bool,
    },
    /// Start a process that outlives this one, keeping its output open.
    Spawn {
        /// How long the grandchild lives.
        ms: u64,
        /// Leave our process group and session.
        #[serde(default)]
        detach: bool,
    },
    /// Report tokens and cost.
    Usage { input_tokens: u64, output_tokens: u64, cost_usd: f64 },
    /// Say that there is nothing to do, and end well.
    NothingToDo { reason: String },
    /// Say that the task cannot be done, and end.
    Blocked { reason: String },
}
