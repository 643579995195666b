//! What people may ask of a run, and what is refused, with the command that helps.

use crate::fact::{Fact, StopFollowUp};
use crate::id::TaskIx;
use crate::machine::{Machine, OpenQuestion};
use crate::phase::Phase;
use crate::plan::Task;
use crate::question;

/// A wish of a person.
#[derive(Debug, Clone, PartialEq)]
pub enum MachineCommand {
    Pause,
    Resume,
    /// Call one task off, or the whole run.
    Cancel(Option<String>),
    /// Try tasks again: all of them, or none if one of them cannot be.
    Retry(RetryRequest),
    /// Count a task as done.
    Skip(String),
    Jobs(u32),
    /// Make a proposal a task.
    Accept(String),
    Reject(String),
    /// Make these tasks part of the run.
    Add(Vec<Task>),
    Answer {
        question: String,
        text: String,
        /// In words of one's own, although the question offers a choice.
        free: bool,
    },
}

impl MachineCommand {
    /// Tries one task again, from where it stopped.
    pub fn retry_task(task: impl Into<String>) -> Self {
        Self::Retry(RetryRequest { tasks: vec![task.into()], ..RetryRequest::default() })
    }
}

/// Which tasks are tried again, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryRequest {
    pub tasks: Vec<String>,
    /// What their agents are told.
    pub hint: Option<String>,
    /// Who works on them instead of their own agents.
    pub agent: Option<String>,
    /// From the beginning, instead of from the work so far.
    pub fresh: bool,
}

/// A wish that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandRefusal {
    pub message: String,
    pub hint: Option<String>,
}

fn refuse_command<T>(message: String, hint: Option<String>) -> Result<T, CommandRefusal> {
    Err(CommandRefusal { message, hint })
}

/// An answer that the question does not offer, or none at all.
fn refuse_answer(open: &OpenQuestion, text: &str) -> Result<String, CommandRefusal> {
    let name = &open.name;
    if text.trim().is_empty() {
        return refuse_command(format!("the answer to {name} is empty"), None);
    }
    let list: Vec<String> =
        open.options.iter().enumerate().map(|(n, option)| format!("{} {option}", n + 1)).collect();
    refuse_command(
        format!("`{text}` is not an option of {name}: {}", list.join(", ")),
        Some(format!(
            "use the text or number of an option, or your own words with mainstem answer {name} --free TEXT"
        )),
    )
}

impl Machine {
    pub(super) fn handle_command(
        &mut self,
        command: MachineCommand,
    ) -> Result<String, CommandRefusal> {
        match command {
            MachineCommand::Pause if self.control.is_paused() => Ok("already paused".to_owned()),
            MachineCommand::Pause => {
                self.emit_fact(Fact::RunPaused {});
                Ok("paused: running agents continue, no new agents start".to_owned())
            }
            MachineCommand::Resume => Ok(self.resume_run()),
            MachineCommand::Cancel(None) => Ok(self.cancel_run()),
            MachineCommand::Cancel(Some(id)) => self.cancel_task(&id),
            MachineCommand::Retry(wish) => self.retry_tasks(&wish),
            MachineCommand::Skip(id) => self.skip_task(&id),
            MachineCommand::Jobs(0) => refuse_command(
                "the number of agents must be at least 1".to_owned(),
                Some("to start no new agents: mainstem pause".to_owned()),
            ),
            MachineCommand::Jobs(jobs) => {
                if jobs != self.job_limit() {
                    self.emit_fact(Fact::JobsChanged { jobs });
                }
                Ok(format!("{jobs} agents at once"))
            }
            MachineCommand::Accept(name) => self.accept_proposal(&name),
            MachineCommand::Reject(name) => self.reject_proposal(&name),
            MachineCommand::Add(tasks) => self.add_tasks(tasks),
            MachineCommand::Answer { question, text, free } => {
                self.answer_question(&question, &text, free)
            }
        }
    }

    /// Lets agents start again, and providers be tried again that are waited for.
    fn resume_run(&mut self) -> String {
        let was_paused = self.control.is_paused();
        if was_paused {
            self.emit_fact(Fact::RunResumed {});
        }
        let freed = self.release_providers(false);
        match (was_paused, freed.is_empty()) {
            (true, true) => "resumed".to_owned(),
            (false, true) => "not paused".to_owned(),
            (_, false) => format!("resumed: retrying {}", freed.join(", ")),
        }
    }

    /// The task with this id.
    pub fn find_task(&self, id: &str) -> Result<TaskIx, CommandRefusal> {
        if let Some(t) = self.adopted.graph().index_of(id) {
            return Ok(t);
        }
        let known = self.adopted.plan().tasks.iter().map(|task| task.id.as_str());
        let hint = crate::diagnostic::nearest_word(id, known).map_or_else(
            || "list all tasks: mainstem status".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        refuse_command(format!("unknown task {id}"), Some(hint))
    }

    fn cancel_run(&mut self) -> String {
        self.emit_fact(Fact::RunCancelled {});
        let mut ended = 0;
        for t in self.tasks.all_tasks() {
            let phase = self.tasks.phase(t);
            if phase.is_idle() {
                let (task, reason) = (self.task_id(t), "the run was cancelled".to_owned());
                self.emit_fact(Fact::TaskCancelled { task, reason });
                ended += 1;
            } else if phase.is_active() {
                self.request_stop(t, StopFollowUp::Cancel, "the run was cancelled");
                ended += 1;
            }
        }
        format!(
            "cancelled {ended} {}; work is kept in snapshots",
            if ended == 1 { "task" } else { "tasks" }
        )
    }

    fn cancel_task(&mut self, id: &str) -> Result<String, CommandRefusal> {
        let t = self.find_task(id)?;
        let task = self.task_id(t);
        match self.tasks.phase(t) {
            Phase::Landed => refuse_command(
                format!("{task} has landed"),
                Some("to undo the last landing: mainstem undo".to_owned()),
            ),
            Phase::Cancelled | Phase::Skipped => Ok(format!("{task} has already ended")),
            phase if phase.is_active() => {
                self.request_stop(t, StopFollowUp::Cancel, "cancelled by you");
                if self.is_landing(t) {
                    return Ok(format!(
                        "{task} is landing and will be cancelled only if the landing fails"
                    ));
                }
                Ok(format!("stopping {task}; the work is kept in a snapshot"))
            }
            _ => {
                let reason = "cancelled by you".to_owned();
                self.emit_fact(Fact::TaskCancelled { task: task.clone(), reason });
                Ok(format!("cancelled {task}"))
            }
        }
    }

    fn skip_task(&mut self, id: &str) -> Result<String, CommandRefusal> {
        let t = self.find_task(id)?;
        let task = self.task_id(t);
        let reason = "skipped by you".to_owned();
        match self.tasks.phase(t) {
            Phase::Landed => {
                refuse_command(format!("{task} has landed; there is nothing to skip"), None)
            }
            Phase::Skipped => Ok(format!("{task} is already skipped")),
            phase if phase.is_active() => {
                self.request_stop(t, StopFollowUp::Skip, &reason);
                if self.is_landing(t) {
                    return Ok(format!(
                        "{task} is landing and will be skipped only if the landing fails"
                    ));
                }
                Ok(format!("stopping {task}, which will be skipped"))
            }
            _ => {
                self.emit_fact(Fact::TaskSkipped { task: task.clone(), reason });
                Ok(format!("skipped {task}"))
            }
        }
    }

    fn answer_question(
        &mut self,
        question: &str,
        text: &str,
        free: bool,
    ) -> Result<String, CommandRefusal> {
        if let Some(decided) = self.answer_conflict_question(question, text) {
            return decided;
        }
        if let Some(decided) = self.decide_held_work(question, text) {
            return decided;
        }
        let Some(open) =
            self.inbox.questions().iter().find(|q| q.name.eq_ignore_ascii_case(question))
        else {
            let hint = "list open questions: mainstem questions".to_owned();
            return refuse_command(format!("no open question {question}"), Some(hint));
        };
        if open.is_about_work() {
            let open = open.clone();
            return self.decide_about_work(&open, text);
        }
        let text = match question::match_option(text, &open.options) {
            Some(option) => option,
            None if free && !text.trim().is_empty() => text.to_owned(),
            None => return refuse_answer(open, text),
        };
        let (question, task) = (open.name.clone(), self.task_id(open.task));
        self.record_answer(&question, text, "person");
        Ok(format!("answered {question}; {task} continues"))
    }
}
