//! Another try, because a person says so: which tasks may have one, and on which terms.

use crate::fact::{Fact, StopFollowUp};
use crate::id::TaskIx;
use crate::limits;
use crate::machine::{CommandRefusal, Machine, RetryRequest};
use crate::phase::Phase;

/// What trying a task again amounts to.
enum RetryOutcome {
    /// It is free for another attempt.
    Again,
    /// Its attempt is being ended; then it is.
    OnceStopped,
    /// It is on its way, and nothing about that changes.
    Already,
}

impl Machine {
    pub(super) fn retry_tasks(&mut self, wish: &RetryRequest) -> Result<String, CommandRefusal> {
        if let Some(agent) = &wish.agent {
            self.check_agent(agent)?;
        }
        let mut answers: Vec<(TaskIx, RetryOutcome)> = Vec::new();
        for id in &wish.tasks {
            let t = self.find_task(id)?;
            if answers.iter().all(|(other, _)| *other != t) {
                answers.push((t, self.check_retry(t, wish)?));
            }
        }
        let hint =
            wish.hint.as_deref().map(limits::clip_for_fact).filter(|hint| !hint.trim().is_empty());
        let mut said = Vec::new();
        for (t, answer) in answers {
            let (task, agent, fresh) = (self.task_id(t), wish.agent.clone(), wish.fresh);
            said.push(match answer {
                RetryOutcome::Already => {
                    format!("{task} is already {}", self.tasks.phase(t).as_str())
                }
                RetryOutcome::OnceStopped => {
                    let (attempt, then) = (self.tasks.get(t).attempts, StopFollowUp::Requeue);
                    let reason = "to be retried".to_owned();
                    self.emit_fact(Fact::StopRequested {
                        task: task.clone(),
                        attempt,
                        then,
                        reason,
                    });
                    let when = if self.control.is_cancelled() {
                        "with the next mainstem run"
                    } else {
                        "when the current attempt has stopped"
                    };
                    format!("{task} will be retried {when}")
                }
                RetryOutcome::Again => {
                    let hint = hint.clone();
                    let start = self.describe_next_start(t, fresh);
                    self.emit_fact(Fact::TaskRetried { task: task.clone(), hint, agent, fresh });
                    format!("{task} will be retried{start}")
                }
            });
        }
        Ok(said.join("\n"))
    }

    /// Where the next attempt starts, and what becomes of the work before.
    fn describe_next_start(&self, t: TaskIx, fresh: bool) -> String {
        let state = self.tasks.get(t);
        let Some(kept) = &state.kept_work else { return String::new() };
        let (n, task) = (kept.attempt, self.task_id(t));
        if fresh {
            let refs = format!("refs/mainstem/snapshots/{task}/{n}");
            return format!(" from the beginning; the work of attempt {n} stays on {refs}");
        }
        format!(" from where attempt {n} stopped")
    }

    fn check_retry(&self, t: TaskIx, wish: &RetryRequest) -> Result<RetryOutcome, CommandRefusal> {
        let task = self.task_id(t);
        let changes = wish.hint.is_some() || wish.agent.is_some() || wish.fresh;
        let refuse =
            |message: String, hint: String| Err(CommandRefusal { message, hint: Some(hint) });
        match self.tasks.phase(t) {
            Phase::Blocked if !self.tasks.get(t).chain.is_empty() => {
                let root = self.tasks.get(t).chain.last().map_or(t, |root| *root);
                let root = self.task_id(root);
                refuse(
                    format!("{task} is blocked by {root}"),
                    format!("mainstem retry {root}, or mainstem skip {root}"),
                )
            }
            Phase::Failed
            | Phase::Conflicted
            | Phase::Blocked
            | Phase::Cancelled
            | Phase::Skipped => Ok(RetryOutcome::Again),
            // It would start by itself, but not like this, or not before somebody answers.
            Phase::Waiting | Phase::Ready if changes || self.open_question(t).is_some() => {
                Ok(RetryOutcome::Again)
            }
            Phase::Landed => refuse(
                format!("{task} has landed"),
                "to undo the last landing: mainstem undo".to_owned(),
            ),
            phase if phase.is_active() && self.is_stop_requested(t) && !changes => {
                Ok(RetryOutcome::OnceStopped)
            }
            phase if phase.is_active() && changes => refuse(
                format!("{task} is {}", phase.as_str()),
                format!("mainstem cancel {task}, then mainstem retry {task}"),
            ),
            _ => Ok(RetryOutcome::Already),
        }
    }

    fn check_agent(&self, name: &str) -> Result<(), CommandRefusal> {
        let known = &self.settings.agents;
        if known.contains_key(name) {
            return Ok(());
        }
        let near = crate::diagnostic::nearest_word(name, known.keys().map(String::as_str));
        let hint = near.map_or_else(
            || format!("add `[agents.{name}]`, or use an agent listed by mainstem agents"),
            |near| format!("did you mean {near}?"),
        );
        Err(CommandRefusal { message: format!("unknown agent {name}"), hint: Some(hint) })
    }

    /// A person wants its attempt to end.
    fn is_stop_requested(&self, t: TaskIx) -> bool {
        let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.as_ref());
        stop.is_some_and(|(then, _)| *then != StopFollowUp::Requeue)
    }
}
