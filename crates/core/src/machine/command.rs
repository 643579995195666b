//! What people may ask of a run, and what is refused, with the command that helps.

use crate::fact::{AfterStop, Fact};
use crate::id::TaskIx;
use crate::machine::Machine;
use crate::phase::Phase;
use crate::plan::Task;

/// A wish of a person.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Start nothing new.
    Pause,
    /// Go on.
    Resume,
    /// Call one task off, or the whole run.
    Cancel(Option<String>),
    /// Try a task again.
    Retry(String),
    /// Count a task as done.
    Skip(String),
    /// Agents at once.
    Jobs(u32),
    /// Make a proposal a task.
    Accept(String),
    /// Decline a proposal.
    Reject(String),
    /// Make these tasks part of the run.
    Add(Vec<Task>),
    /// Answer a question.
    Answer {
        /// Its name.
        question: String,
        /// The answer.
        text: String,
    },
}

/// A wish that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Why not.
    pub message: String,
    /// What helps.
    pub hint: Option<String>,
}

fn refuse<T>(message: String, hint: Option<String>) -> Result<T, Refusal> {
    Err(Refusal { message, hint })
}

impl Machine {
    pub(super) fn command(&mut self, command: Command) -> Result<String, Refusal> {
        match command {
            Command::Pause if self.paused => Ok("already paused".to_owned()),
            Command::Pause => {
                self.emit(Fact::RunPaused {});
                Ok("paused: running agents go on, no new one starts".to_owned())
            }
            Command::Resume => Ok(self.resume()),
            Command::Cancel(None) => Ok(self.cancel_all()),
            Command::Cancel(Some(id)) => self.cancel(&id),
            Command::Retry(id) => self.retry(&id),
            Command::Skip(id) => self.skip(&id),
            Command::Jobs(0) => refuse(
                "at least one agent must be able to run".to_owned(),
                Some("to stop new ones from starting: mainstem pause".to_owned()),
            ),
            Command::Jobs(jobs) => {
                if jobs != self.jobs() {
                    self.emit(Fact::JobsChanged { jobs });
                }
                Ok(format!("{jobs} agents at once"))
            }
            Command::Accept(name) => self.accept(&name),
            Command::Reject(name) => self.reject(&name),
            Command::Add(tasks) => self.add(tasks),
            Command::Answer { question, text } => self.answer(&question, &text),
        }
    }

    /// Lets agents start again, and providers be tried again that are waited for.
    fn resume(&mut self) -> String {
        let was_paused = self.paused;
        if was_paused {
            self.emit(Fact::RunResumed {});
        }
        let freed = self.free_providers(false);
        match (was_paused, freed.is_empty()) {
            (true, true) => "resumed".to_owned(),
            (false, true) => "not paused".to_owned(),
            (_, false) => format!("resumed: {} is tried again", freed.join(", ")),
        }
    }

    /// The task with this id.
    pub fn find(&self, id: &str) -> Result<TaskIx, Refusal> {
        if let Some(t) = self.graph.ix(id) {
            return Ok(t);
        }
        let known = self.plan.tasks.iter().map(|task| task.id.as_str());
        let hint = crate::diag::nearest(id, known).map_or_else(
            || "mainstem status lists all tasks".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        refuse(format!("there is no task {id} in this run"), Some(hint))
    }

    fn cancel_all(&mut self) -> String {
        self.emit(Fact::RunCancelled {});
        let mut ended = 0;
        for t in self.tasks.all() {
            let phase = self.tasks.phase(t);
            if phase.is_idle() {
                let (task, reason) = (self.id(t), "the run was cancelled".to_owned());
                self.emit(Fact::TaskCancelled { task, reason });
                ended += 1;
            } else if phase.is_active() {
                self.request_stop(t, AfterStop::Cancel, "the run was cancelled");
                ended += 1;
            }
        }
        format!("cancelled {ended} tasks; their work is kept in snapshots")
    }

    fn cancel(&mut self, id: &str) -> Result<String, Refusal> {
        let t = self.find(id)?;
        let task = self.id(t);
        match self.tasks.phase(t) {
            Phase::Landed => refuse(
                format!("{task} has landed"),
                Some("to take the last landing back: mainstem undo".to_owned()),
            ),
            Phase::Cancelled | Phase::Skipped => Ok(format!("{task} is over already")),
            phase if phase.is_active() => {
                self.request_stop(t, AfterStop::Cancel, "cancelled by a person");
                if self.is_landing(t) {
                    return Ok(format!("{task} is landing; it is cancelled only if that fails"));
                }
                Ok(format!("{task} is being stopped; its work is kept in a snapshot"))
            }
            _ => {
                let reason = "cancelled by a person".to_owned();
                self.emit(Fact::TaskCancelled { task: task.clone(), reason });
                Ok(format!("{task} is cancelled"))
            }
        }
    }

    fn retry(&mut self, id: &str) -> Result<String, Refusal> {
        let t = self.find(id)?;
        let task = self.id(t);
        match self.tasks.phase(t) {
            Phase::Blocked if !self.tasks.get(t).chain.is_empty() => {
                let root = self.tasks.get(t).chain.last().map_or(t, |root| *root);
                let root = self.id(root);
                refuse(
                    format!("{task} is blocked by {root}"),
                    Some(format!("mainstem retry {root}, or mainstem skip {root}")),
                )
            }
            Phase::Failed
            | Phase::Conflicted
            | Phase::Blocked
            | Phase::Cancelled
            | Phase::Skipped => {
                self.emit(Fact::TaskRetried { task: task.clone() });
                Ok(format!("{task} will be tried again"))
            }
            Phase::Landed => refuse(
                format!("{task} has landed"),
                Some("to take the last landing back: mainstem undo".to_owned()),
            ),
            phase if phase.is_active() && self.is_stopping(t) => {
                let attempt = self.tasks.get(t).attempts;
                let reason = "to be tried again".to_owned();
                let then = AfterStop::Requeue;
                self.emit(Fact::StopRequested { task: task.clone(), attempt, then, reason });
                let when = if self.cancelled {
                    "with the next mainstem run"
                } else {
                    "once it has stopped"
                };
                Ok(format!("{task} will be tried again {when}"))
            }
            phase => Ok(format!("{task} is {} already", phase.word())),
        }
    }

    /// A person wants its attempt to end.
    fn is_stopping(&self, t: TaskIx) -> bool {
        let stop = self.tasks.get(t).current.as_ref().and_then(|a| a.stop.as_ref());
        stop.is_some_and(|(then, _)| *then != AfterStop::Requeue)
    }

    fn skip(&mut self, id: &str) -> Result<String, Refusal> {
        let t = self.find(id)?;
        let task = self.id(t);
        let reason = "skipped by a person".to_owned();
        match self.tasks.phase(t) {
            Phase::Landed => refuse(format!("{task} has landed; there is nothing to skip"), None),
            Phase::Skipped => Ok(format!("{task} is skipped already")),
            phase if phase.is_active() => {
                self.request_stop(t, AfterStop::Skip, &reason);
                if self.is_landing(t) {
                    return Ok(format!("{task} is landing; it is skipped only if that fails"));
                }
                Ok(format!("{task} is being stopped and then counts as done"))
            }
            _ => {
                self.emit(Fact::TaskSkipped { task: task.clone(), reason });
                Ok(format!("{task} counts as done"))
            }
        }
    }

    fn answer(&mut self, question: &str, text: &str) -> Result<String, Refusal> {
        if let Some(decided) = self.settle_clash(question, text) {
            return decided;
        }
        let Some(open) = self.questions.iter().find(|q| q.name.eq_ignore_ascii_case(question))
        else {
            let hint = "mainstem questions lists the open ones".to_owned();
            return refuse(format!("there is no open question {question}"), Some(hint));
        };
        if open.is_about_work() {
            let open = open.clone();
            return self.decide(&open, text);
        }
        let chosen = text.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1));
        let text = match chosen.and_then(|n| open.options.get(n)) {
            Some(option) if !open.options.iter().any(|o| o == text) => option.clone(),
            _ => text.to_owned(),
        };
        let (question, t, attempt) = (open.name.clone(), open.task, open.attempt);
        let task = self.id(t);
        let said = format!("{question} answered; {task} goes on");
        let by = "person".to_owned();
        self.emit(Fact::QuestionAnswered { question, task, attempt, text, by });
        Ok(said)
    }
}
