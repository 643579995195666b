//! What a person can do about a task that does not go on: commands with what they do, by what is wrong. Derived from
//! the machine; the machine never reads it.

use crate::fact::{FailureClass, GateScope};
use crate::failed_gate::FailedGate;
use crate::failure_cause::GateFailureCause;
use crate::id::TaskIx;
use crate::machine::Machine;
use crate::phase::Phase;

/// One thing that a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskAdvice {
    /// The command, or the setting to change.
    pub command: String,
    /// What it does; empty where the command says it.
    pub does: String,
}

fn build_advice(command: impl Into<String>, does: impl Into<String>) -> TaskAdvice {
    TaskAdvice { command: command.into(), does: does.into() }
}

impl Machine {
    /// The check that this task's newest attempt did not pass, if that is why it stands where it stands.
    pub fn failed_check(&self, t: TaskIx) -> Option<&FailedGate> {
        let state = self.tasks().get(t);
        let by_check = state.last.as_ref().is_some_and(|last| {
            matches!(last.class, FailureClass::GateFailed | FailureClass::NeedsInput)
        });
        let failed = state.phase() == Phase::Failed;
        state.failed_gate.as_deref().filter(|_| failed && by_check)
    }

    /// What a person can do about a task that is over and did not land, the most likely thing first.
    pub fn task_advice(&self, t: TaskIx) -> Vec<TaskAdvice> {
        let task = self.graph().id(t);
        let state = self.tasks().get(t);
        let again = || build_advice(format!("mainstem retry {task}"), "try again");
        let hinted =
            || build_advice(format!("mainstem retry {task} -m \"…\""), "try again with a hint");
        let blocked = self.tasks_blocked_by(t);
        let skip = || {
            let does = match blocked.as_slice() {
                [] => "count the task as done".to_owned(),
                [one] => format!("run {one} without {task}"),
                many => format!("run the {} blocked tasks without {task}", many.len()),
            };
            build_advice(format!("mainstem skip {task}"), does)
        };
        match state.phase() {
            Phase::Failed => {
                if let Some(failed) = self.failed_check(t) {
                    let mut all = advice_on_check(failed);
                    all.extend([hinted(), skip()]);
                    return all;
                }
                let mut all = Vec::new();
                match (&state.help, self.setting_for_flaw(t)) {
                    (Some(help), _) => all.push(build_advice(help, "")),
                    (None, Some(setting)) => all.push(setting),
                    (None, None) => {
                        all.push(build_advice(
                            format!("mainstem logs {task}"),
                            "see the agent's output",
                        ));
                    }
                }
                all.extend([hinted(), skip()]);
                all
            }
            Phase::Conflicted => {
                vec![
                    build_advice(format!("mainstem diff {task}"), "see the changes"),
                    again(),
                    skip(),
                ]
            }
            Phase::Cancelled | Phase::Skipped => vec![again()],
            Phase::Blocked => match state.chain.last() {
                Some(root) => self.task_advice(*root),
                None => {
                    let help = state.help.iter().map(|help| build_advice(help, ""));
                    help.chain([hinted(), skip()]).collect()
                }
            },
            Phase::Asking | Phase::Verifying | Phase::Merging => self
                .task_view(t)
                .next_action
                .map(|action| build_advice(action, ""))
                .into_iter()
                .collect(),
            Phase::Waiting | Phase::Ready | Phase::Preparing | Phase::Working | Phase::Landed => {
                Vec::new()
            }
        }
    }

    /// The tasks that this one blocks, by name.
    pub fn tasks_blocked_by(&self, root: TaskIx) -> Vec<String> {
        let tasks = self.tasks();
        let blocked = tasks.all_tasks().filter(|t| {
            tasks.phase(*t) == Phase::Blocked && tasks.get(*t).chain.last() == Some(&root)
        });
        blocked.map(|t| self.graph().id(t).to_string()).collect()
    }

    /// The setting that lets pass what was found in the work, if there is one.
    fn setting_for_flaw(&self, t: TaskIx) -> Option<TaskAdvice> {
        let last = self.tasks().get(t).last.as_ref()?;
        if last.class != FailureClass::InvalidOutput {
            return None;
        }
        if last.reason.contains("looks like a secret") {
            return Some(build_advice("[secrets] allow = [\"…\"]", "if this is not a secret"));
        }
        last.reason
            .contains("more than limits.file_size")
            .then(|| build_advice("[limits] file_size = \"…\"", "if this large file should land"))
    }

    /// Why a ready task does not start, and what helps, where nothing but a person can change it.
    pub(crate) fn why_not_started(&self, t: TaskIx) -> Option<(String, String)> {
        if self.tasks().phase(t) != Phase::Ready {
            return None;
        }
        if self.is_cancelled() {
            return Some(("the run was cancelled".to_owned(), "mainstem run".to_owned()));
        }
        self.permanent_stop(t).map(|stop| (stop.reason(), stop.next_action()))
    }
}

/// What helps with a failed check.
fn advice_on_check(failed: &FailedGate) -> Vec<TaskAdvice> {
    let task = &failed.task;
    let mut all = Vec::new();
    if let Some(hint) = failed.cause.fix_hint() {
        all.push(build_advice(hint, ""));
    }
    all.push(build_advice(format!("mainstem logs {task} --gates"), "see the full output"));
    let in_workspace =
        failed.scope == GateScope::Task || failed.cause == GateFailureCause::Failed {};
    if in_workspace {
        all.push(build_advice(format!("mainstem shell {task}"), "look around in the workspace"));
    }
    all
}
