//! A check that did not pass, as people are told of it: what failed, where it ran, why, and the end of what it
//! printed. Derived from [`Fact::GateRan`]; decides nothing.

use crate::fact::{Fact, GateScope, GateVerdict};
use crate::failure_cause::{self, GateFailureCause};
use crate::id::TaskId;
use crate::limits;
use crate::machine::GateResult;

/// Characters of the one line of output that stands in a sentence.
const TELLING_CHARS_MAX: usize = 160;

/// A check that did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedGate {
    /// For whose work it ran.
    pub task: TaskId,
    pub attempt: u32,
    /// The command or check.
    pub gate: String,
    pub scope: GateScope,
    pub verdict: GateVerdict,
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// Why it did not pass.
    pub cause: GateFailureCause,
    /// The end of its output, or why it could not run.
    pub output: String,
    /// Where all of its output is, relative to the state folder.
    pub log: Option<String>,
    /// Other tasks whose work it looked at together with this one's.
    pub with: Vec<TaskId>,
}

impl FailedGate {
    /// Reads it from a fact; none if that is about something else, or the check passed.
    pub fn from_fact(fact: &Fact) -> Option<Self> {
        let Fact::GateRan {
            task,
            attempt,
            scope,
            gate,
            verdict,
            log,
            detail,
            with,
            exit_code,
            cause,
            ..
        } = fact
        else {
            return None;
        };
        (*verdict != GateVerdict::Passed).then(|| Self {
            task: task.clone(),
            attempt: *attempt,
            gate: gate.clone(),
            scope: *scope,
            verdict: *verdict,
            exit_code: exit_code.or_else(|| exit_code_in(detail)),
            cause: cause.clone().unwrap_or_else(|| cause_from_verdict(*verdict)),
            output: failure_cause::output_in_detail(detail).to_owned(),
            log: log.clone(),
            with: with.clone(),
        })
    }

    /// What failed and why, in one sentence.
    pub fn headline(&self) -> String {
        format_headline(&self.gate, &self.cause, self.exit_code, &self.output)
    }

    /// Where it ran: on the target branch together with the task's work, in the task's workspace, or on the target
    /// branch itself.
    pub fn describe_place(&self, target: &str) -> String {
        match self.scope {
            GateScope::Task => format!("in the workspace of {}", self.task),
            GateScope::Base => format!("on {target} itself"),
            GateScope::Train => {
                let mut names = vec![target];
                names.extend(self.with.iter().map(TaskId::as_str));
                names.push(self.task.as_str());
                format!("on {}", names.join(" + "))
            }
        }
    }

    /// How it ended and where it ran: `exit 1, on main + api`.
    pub fn describe_ending(&self, target: &str) -> String {
        match self.exit_code {
            Some(code) => format!("exit {code}, {}", self.describe_place(target)),
            None => self.describe_place(target),
        }
    }

    /// The last lines of its output that have something in them.
    pub fn last_output_lines(&self, most: usize) -> Vec<&str> {
        let lines = self.output.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.collect();
        lines[lines.len().saturating_sub(most)..].to_vec()
    }
}

/// What failed and why, in one sentence.
pub(crate) fn gate_headline(gate: &GateResult) -> String {
    let cause = gate.cause.clone().unwrap_or_else(|| cause_from_verdict(gate.verdict));
    format_headline(
        &gate.gate,
        &cause,
        gate.exit_code,
        failure_cause::output_in_detail(&gate.detail),
    )
}

fn format_headline(
    gate: &str,
    cause: &GateFailureCause,
    exit_code: Option<i32>,
    output: &str,
) -> String {
    let telling = || failure_cause::most_telling_line(output).map(clip_line);
    let text = match (cause, cause.describe()) {
        (_, Some(sentence)) => format!("`{gate}` failed: {sentence}"),
        (GateFailureCause::CouldNotRun {}, None) => {
            format!("`{gate}` could not run: {}", telling().unwrap_or_default())
        }
        (_, None) => match (telling(), exit_code) {
            (Some(line), _) => format!("`{gate}` failed: {line}"),
            (None, Some(code)) => format!("`{gate}` failed with exit code {code}"),
            (None, None) => format!("`{gate}` failed"),
        },
    };
    limits::clip_for_fact(&text)
}

fn clip_line(line: &str) -> String {
    match line.char_indices().nth(TELLING_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// What is known where nobody wrote down why.
fn cause_from_verdict(verdict: GateVerdict) -> GateFailureCause {
    if verdict == GateVerdict::Error {
        GateFailureCause::CouldNotRun {}
    } else {
        GateFailureCause::Failed {}
    }
}

/// Facts of older versions have the exit code only in words.
fn exit_code_in(detail: &str) -> Option<i32> {
    detail.lines().next()?.strip_prefix("exit code ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn failed(json: &str) -> FailedGate {
        FailedGate::from_fact(&serde_json::from_str(json).unwrap()).unwrap()
    }

    #[test]
    fn a_fact_of_an_older_version_is_read_with_its_exit_code_and_output() {
        let gate = failed(
            r#"{"type":"gate_ran","task":"api","attempt":1,"scope":"train","gate":"sh check.sh","verdict":"failed",
                "tree":"aa","duration_ms":3,"detail":"exit code 1\nok 1\nassertion failed: total == 3"}"#,
        );
        assert_eq!((gate.exit_code, gate.cause.clone()), (Some(1), GateFailureCause::Failed {}));
        assert_eq!(gate.headline(), "`sh check.sh` failed: assertion failed: total == 3");
        assert_eq!(gate.describe_place("main"), "on main + api");
        assert_eq!(gate.last_output_lines(1), ["assertion failed: total == 3"]);
    }

    #[test]
    fn cause_and_exit_code_travel_in_the_fact() {
        let gate = failed(
            r#"{"type":"gate_ran","task":"api","attempt":1,"scope":"base","gate":"uv run pytest","verdict":"failed",
                "tree":"aa","duration_ms":3,"detail":"exit code 127\nsh: 1: uv: not found","exit_code":127,
                "cause":{"kind":"command_not_found","program":"uv"}}"#,
        );
        assert_eq!(gate.headline(), "`uv run pytest` failed: command not found: uv");
        assert_eq!(gate.describe_place("main"), "on main itself");
    }
}
