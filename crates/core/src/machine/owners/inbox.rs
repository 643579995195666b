//! What waits for a person or was told to one: questions, proposals, issues, notices that still hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::fact::{Fact, StopReason};
use crate::id::{TaskId, TaskIx, Time};
use crate::inbox::PendingFile;
use crate::limits;
use crate::machine::{AgentStatement, OpenQuestion, ProposalDecision, ReportedIssue, TaskProposal};

/// A question that an agent asked while another question of its own was open.
#[derive(Debug, Clone)]
pub(crate) struct QueuedQuestion {
    pub(crate) attempt: u32,
    /// The place of the question in the agent's output.
    pub(crate) mark: u64,
    pub(crate) statement: AgentStatement,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox {
    questions: Vec<OpenQuestion>,
    questions_asked: u32,
    proposals: Vec<TaskProposal>,
    issues: Vec<ReportedIssue>,
    /// Notices that still hold, about the run (`None`) or about a task.
    lasting_notices: BTreeMap<Option<TaskId>, String>,
    /// Files that decide about runs and wait for a person. They are told from outside.
    pending_files: Vec<PendingFile>,
    /// Not journaled: the questions that agents asked while another one was open.
    queued_questions: BTreeMap<TaskIx, VecDeque<QueuedQuestion>>,
    /// Not journaled: the questions that the answering agent was asked in this epoch.
    consulted: BTreeSet<String>,
}

impl Inbox {
    /// Open questions, oldest first.
    pub(crate) fn questions(&self) -> &[OpenQuestion] {
        &self.questions
    }
    pub(crate) fn find_question(&self, name: &str) -> Option<&OpenQuestion> {
        self.questions.iter().find(|open| open.name == name)
    }
    /// The name of the question that is asked next.
    pub(crate) fn next_question_name(&self) -> String {
        format!("Q{}", self.questions_asked + 1)
    }
    pub(crate) fn proposals(&self) -> &[TaskProposal] {
        &self.proposals
    }
    pub(crate) fn issues(&self) -> &[ReportedIssue] {
        &self.issues
    }
    pub(crate) fn pending_files(&self) -> &[PendingFile] {
        &self.pending_files
    }
    pub(crate) fn set_pending_files(&mut self, files: Vec<PendingFile>) {
        self.pending_files = files;
    }
    pub(crate) fn lasting_notice(&self, task: Option<&TaskId>) -> Option<&str> {
        self.lasting_notices.get(&task.cloned()).map(String::as_str)
    }

    /// Forgets what belongs to one epoch of the engine.
    pub(crate) fn begin_epoch(&mut self) {
        self.queued_questions.clear();
        self.consulted.clear();
    }

    /// Keeps a question for when the agent's open question is answered.
    pub(crate) fn queue_question(&mut self, task: TaskIx, queued: QueuedQuestion) {
        self.queued_questions.entry(task).or_default().push_back(queued);
    }
    pub(crate) fn tasks_with_queued_questions(&self) -> impl Iterator<Item = TaskIx> {
        self.queued_questions.keys().copied()
    }
    pub(crate) fn take_queued_questions(&mut self, task: TaskIx) -> VecDeque<QueuedQuestion> {
        self.queued_questions.remove(&task).unwrap_or_default()
    }
    /// Puts back the questions that still have to wait.
    pub(crate) fn return_queued_questions(
        &mut self,
        task: TaskIx,
        queue: VecDeque<QueuedQuestion>,
    ) {
        if !queue.is_empty() {
            self.queued_questions.insert(task, queue);
        }
    }

    /// Questions that the answering agent has not been asked in this epoch. Each is returned once.
    pub(crate) fn take_unconsulted_questions(&mut self) -> Vec<OpenQuestion> {
        let Self { questions, consulted, .. } = self;
        let open = questions.iter().filter(|open| !open.is_about_work());
        open.filter(|open| consulted.insert(open.name.clone())).cloned().collect()
    }

    /// A new revision of the plan numbers the tasks anew; `moved` knows the new number of a task.
    pub(crate) fn renumber_tasks(&mut self, moved: impl Fn(TaskIx) -> Option<TaskIx>) {
        self.questions.retain_mut(|open| match moved(open.task) {
            Some(task) => {
                open.task = task;
                true
            }
            None => false,
        });
        let queued = std::mem::take(&mut self.queued_questions).into_iter();
        self.queued_questions = queued.filter_map(|(t, queue)| Some((moved(t)?, queue))).collect();
    }

    /// Folds a fact that is not about one task.
    pub(crate) fn apply_run_fact(&mut self, fact: &Fact) {
        if let Fact::ProposalDecided { proposal, becomes } = fact {
            self.apply_proposal_decision(proposal, becomes.clone());
        }
    }

    /// Proposals are called `P1`, `P2` and so on, in the order in which agents made them.
    fn apply_proposal_decision(&mut self, proposal: &str, becomes: Option<TaskId>) {
        let number = proposal.strip_prefix('P').and_then(|n| n.parse::<usize>().ok());
        let index = number.and_then(|n| n.checked_sub(1));
        if let Some(known) = index.and_then(|index| self.proposals.get_mut(index)) {
            known.decided =
                Some(becomes.map_or(ProposalDecision::Rejected, ProposalDecision::Accepted));
        }
    }

    /// Folds a fact about a task. `attempt` is the attempt under way, or the last one.
    pub(crate) fn apply_task_fact(
        &mut self,
        task: TaskIx,
        attempt: Option<u32>,
        fact: &Fact,
        at: Time,
    ) {
        match fact {
            Fact::QuestionAsked { .. } => self.apply_question_asked(task, attempt, fact, at),
            Fact::QuestionAnswered { question, .. } => {
                if let Some(place) = self.questions.iter().position(|q| q.name == *question) {
                    self.questions.remove(place);
                }
            }
            // A question about the work of an attempt goes with the attempt.
            Fact::AttemptFailed { .. } | Fact::TaskLanded { .. } => {
                self.questions.retain(|open| open.task != task || !open.is_about_work());
            }
            Fact::IssueLogged { .. } | Fact::TaskProposed { .. } if attempt.is_some() => {
                self.apply_remark(fact, at);
            }
            _ => {}
        }
    }

    /// Nobody waits any more for an answer to what the agents of this task asked.
    pub(crate) fn withdraw_agent_questions(&mut self, task: TaskIx) {
        self.questions.retain(|open| open.task != task || open.is_about_work());
    }

    fn apply_question_asked(&mut self, task: TaskIx, attempt: Option<u32>, fact: &Fact, at: Time) {
        let Fact::QuestionAsked {
            question,
            number,
            text,
            options,
            default,
            deadline,
            reference,
            ..
        } = fact
        else {
            return;
        };
        let Some(attempt) = attempt else { return };
        self.questions_asked += 1;
        self.questions.push(OpenQuestion {
            name: question.clone(),
            task,
            attempt,
            number: *number,
            text: text.clone(),
            options: options.clone(),
            default: default.clone(),
            deadline: *deadline,
            at,
            reference: reference.clone(),
        });
    }

    /// Something that an agent remarked besides its work.
    fn apply_remark(&mut self, fact: &Fact, at: Time) {
        match fact {
            Fact::IssueLogged { task, title, text, severity, .. }
                if self.issues.len() < limits::REMARKS_MAX =>
            {
                self.issues.push(ReportedIssue {
                    task: task.clone(),
                    title: title.clone(),
                    text: text.clone(),
                    severity: severity.clone(),
                    at,
                });
            }
            Fact::TaskProposed { task, attempt, id, title, description, needs, .. }
                if self.proposals.len() < limits::REMARKS_MAX =>
            {
                self.proposals.push(TaskProposal {
                    task: task.clone(),
                    attempt: *attempt,
                    id: id.clone(),
                    title: title.clone(),
                    description: description.clone(),
                    needs: needs.clone(),
                    at,
                    decided: None,
                });
            }
            _ => {}
        }
    }

    /// A notice about a task holds until something else is said of the task; one about the run, until
    /// its engine or another notice says so. What is said of a task when the engine comes to rest is why
    /// it rests.
    pub(crate) fn apply_notice(&mut self, fact: &Fact) {
        match fact {
            Fact::Noticed { task, message, lasts: true } => {
                self.lasting_notices.insert(task.clone(), message.clone());
            }
            Fact::PushFailed(trouble) => {
                self.lasting_notices.insert(Some(trouble.task.clone()), trouble.reason.clone());
            }
            // A new engine looks for free resources before its start is recorded.
            Fact::EngineStarted { .. } => self.lasting_notices.retain(|task, _| task.is_none()),
            Fact::EngineStopped { why: StopReason::Rested } => {
                self.lasting_notices.retain(|task, _| task.is_some());
            }
            Fact::EngineStopped { .. } => self.lasting_notices.clear(),
            Fact::Noticed { task, lasts: false, .. } => {
                self.lasting_notices.remove(task);
            }
            other => {
                if let Some(task) = other.task().filter(|_| !self.lasting_notices.is_empty()) {
                    self.lasting_notices.remove(&Some(task.clone()));
                }
            }
        }
    }
}
