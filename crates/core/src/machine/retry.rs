//! Another try, because a person says so: which tasks may have one, and on which terms.

use crate::fact::{AfterStop, Fact};
use crate::id::TaskIx;
use crate::limits;
use crate::machine::{Machine, Refusal, Retry};
use crate::phase::Phase;

/// What trying a task again amounts to.
enum Answer {
    /// It is free for another attempt.
    Again,
    /// Its attempt is being ended; then it is.
    OnceStopped,
    /// It is on its way, and nothing about that changes.
    Already,
}

impl Machine {
    pub(super) fn retry(&mut self, wish: &Retry) -> Result<String, Refusal> {
        if let Some(agent) = &wish.agent {
            self.check_agent(agent)?;
        }
        let mut answers: Vec<(TaskIx, Answer)> = Vec::new();
        for id in &wish.tasks {
            let t = self.find(id)?;
            if answers.iter().all(|(other, _)| *other != t) {
                answers.push((t, self.may_retry(t, wish)?));
            }
        }
        let hint = wish.hint.as_deref().map(limits::brief).filter(|hint| !hint.trim().is_empty());
        let mut said = Vec::new();
        for (t, answer) in answers {
            let (task, agent, fresh) = (self.id(t), wish.agent.clone(), wish.fresh);
            said.push(match answer {
                Answer::Already => {
                    format!("{task} is already {}", self.tasks.phase(t).word())
                }
                Answer::OnceStopped => {
                    let (attempt, then) = (self.tasks.get(t).attempts, AfterStop::Requeue);
                    let reason = "to be retried".to_owned();
                    self.emit(Fact::StopRequested { task: task.clone(), attempt, then, reason });
                    let when = if self.cancelled {
                        "with the next mainstem run"
                    } else {
                        "when the current attempt has stopped"
                    };
                    format!("{task} will be retried {when}")
                }
                Answer::Again => {
                    let hint = hint.clone();
                    let start = self.start_in_words(t, fresh);
                    self.emit(Fact::TaskRetried { task: task.clone(), hint, agent, fresh });
                    format!("{task} will be retried{start}")
                }
            });
        }
        Ok(said.join("\n"))
    }

    /// Where the next attempt starts, and what becomes of the work before.
    fn start_in_words(&self, t: TaskIx, fresh: bool) -> String {
        let state = self.tasks.get(t);
        let Some(kept) = &state.kept else { return String::new() };
        let (n, task) = (kept.attempt, self.id(t));
        if fresh {
            let refs = format!("refs/mainstem/snapshots/{task}/{n}");
            return format!(" from the beginning; the work of attempt {n} stays on {refs}");
        }
        format!(" from where attempt {n} stopped")
    }

    fn may_retry(&self, t: TaskIx, wish: &Retry) -> Result<Answer, Refusal> {
        let task = self.id(t);
        let changes = wish.hint.is_some() || wish.agent.is_some() || wish.fresh;
        let refuse = |message: String, hint: String| Err(Refusal { message, hint: Some(hint) });
        match self.tasks.phase(t) {
            Phase::Blocked if !self.tasks.get(t).chain.is_empty() => {
                let root = self.tasks.get(t).chain.last().map_or(t, |root| *root);
                let root = self.id(root);
                refuse(
                    format!("{task} is blocked by {root}"),
                    format!("mainstem retry {root}, or mainstem skip {root}"),
                )
            }
            Phase::Failed
            | Phase::Conflicted
            | Phase::Blocked
            | Phase::Cancelled
            | Phase::Skipped => Ok(Answer::Again),
            // It would start by itself, but not like this, or not before somebody answers.
            Phase::Waiting | Phase::Ready if changes || self.open_question(t).is_some() => {
                Ok(Answer::Again)
            }
            Phase::Landed => refuse(
                format!("{task} has landed"),
                "to undo the last landing: mainstem undo".to_owned(),
            ),
            phase if phase.is_active() && self.is_stopping(t) && !changes => {
                Ok(Answer::OnceStopped)
            }
            phase if phase.is_active() && changes => refuse(
                format!("{task} is {}", phase.word()),
                format!("mainstem cancel {task}, then mainstem retry {task}"),
            ),
            _ => Ok(Answer::Already),
        }
    }

    fn check_agent(&self, name: &str) -> Result<(), Refusal> {
        let known = &self.settings.agents;
        if known.contains_key(name) {
            return Ok(());
        }
        let near = crate::diag::nearest(name, known.keys().map(String::as_str));
        let hint = near.map_or_else(
            || format!("add `[agents.{name}]`, or use an agent listed by mainstem agents"),
            |near| format!("did you mean {near}?"),
        );
        Err(Refusal { message: format!("unknown agent {name}"), hint: Some(hint) })
    }

    /// A person wants its attempt to end.
    fn is_stopping(&self, t: TaskIx) -> bool {
        let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.as_ref());
        stop.is_some_and(|(then, _)| *then != AfterStop::Requeue)
    }
}
