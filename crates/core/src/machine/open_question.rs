//! Questions of agents on record: how long they stay open, what an answer changes, and how an answer reaches the
//! next attempt where the one that asked is gone.

use crate::fact::{AgentClaim, AgentEnding, Fact, FailureClass};
use crate::id::TaskIx;
use crate::limits;
use crate::machine::{Machine, OpenQuestion, is_work_reference};
use crate::phase::Phase;
use crate::tasks::{AttemptState, EarlyAnswer};

impl Fact {
    /// Is it an answer to a question, or the bill of whoever answers?
    pub(crate) fn is_answer_fact(&self) -> bool {
        match self {
            Self::QuestionAnswered { .. } | Self::BudgetReached { .. } => true,
            Self::UsageReported { usage, .. } => usage.answering.is_some(),
            _ => false,
        }
    }
}

impl Machine {
    /// The question whose answer the next attempt of this task waits for. It outlives the attempt that asked.
    pub fn open_question(&self, t: TaskIx) -> Option<&OpenQuestion> {
        self.inbox.questions().iter().find(|q| q.task == t && !q.is_about_work())
    }

    /// Puts an answer on record. A task that ended only for the want of it is free again.
    pub(super) fn record_answer(&mut self, name: &str, text: String, by: &str) {
        let Some(open) = self.inbox.find_question(name) else { return };
        let (t, attempt, question) = (open.task, open.attempt, open.name.clone());
        let frees = self.is_blocked_by_question(t, &question);
        let (task, by) = (self.task_id(t), by.to_owned());
        self.emit_fact(Fact::QuestionAnswered { question, task: task.clone(), attempt, text, by });
        if frees {
            let hint = self.tasks.get(t).hint.clone();
            self.emit_fact(Fact::TaskRetried { task, hint, agent: None, fresh: false });
        }
    }

    /// Did it end because this question had no answer?
    fn is_blocked_by_question(&self, t: TaskIx, question: &str) -> bool {
        let state = self.tasks.get(t);
        let asked = |a: &AttemptState| {
            a.question.as_ref().is_some_and(|(name, ..)| name == question) && a.answer.is_none()
        };
        state.phase() == Phase::Blocked
            && state.chain.is_empty()
            && state.last.as_ref().is_some_and(|last| last.class == FailureClass::NeedsInput)
            && state.current.as_ref().is_some_and(asked)
    }

    /// Answers a question as an earlier attempt's was that never had its answer.
    pub(super) fn reuse_earlier_answer(&mut self, t: TaskIx, question: &str, text: &str) {
        let before = self.tasks.get(t).early_answers.iter().find(|early| early.question == text);
        if let Some(EarlyAnswer { answer, by, .. }) = before.cloned() {
            self.record_answer(question, answer, &by);
        }
    }

    /// The fold of what was asked and answered.
    pub(super) fn apply_question(&mut self, t: TaskIx, fact: &Fact) {
        self.apply_question_withdrawal(t, fact);
        match fact {
            Fact::QuestionAsked { .. } => self.apply_question_asked(t, fact),
            Fact::QuestionAnswered { question, text, by, .. } => {
                self.apply_question_answered(t, question, text, by);
            }
            Fact::AgentResumed { question, .. } => {
                self.tasks.state_mut(t).early_answers.retain(|early| early.name != *question);
            }
            _ => {}
        }
    }

    /// Takes questions away that nobody waits for any more.
    fn apply_question_withdrawal(&mut self, t: TaskIx, fact: &Fact) {
        let over = match fact {
            Fact::TaskQueued { .. }
            | Fact::TaskLanded { .. }
            | Fact::TaskFailed { .. }
            | Fact::TaskConflicted { .. }
            | Fact::TaskCancelled { .. }
            | Fact::TaskSkipped { .. }
            // Somebody wants it tried without the answer.
            | Fact::TaskRetried { .. }
            // It is on its way again: engines before this one did not wait for the answer.
            | Fact::AttemptIntended { .. } => true,
            // It went on without the answer, and left work.
            Fact::EvidenceCollected { evidence, .. } => {
                let finished = |a: &AttemptState| {
                    let done = matches!(
                        a.ending,
                        Some((AgentEnding::Exited { code: 0 }, AgentClaim::None | AgentClaim::Done { .. }))
                    );
                    a.stop.is_none() && done && evidence.tip != evidence.base
                };
                self.tasks.get(t).current.as_ref().is_some_and(finished)
            }
            _ => false,
        };
        if over {
            self.inbox.withdraw_agent_questions(t);
        }
    }

    fn apply_question_asked(&mut self, t: TaskIx, fact: &Fact) {
        let Fact::QuestionAsked { question, number, mark, reference, .. } = fact else { return };
        let Some(attempt) = self.tasks.state_mut(t).current.as_mut() else { return };
        if !is_work_reference(reference.as_deref()) {
            attempt.ask_mark = attempt.ask_mark.max(*mark);
            attempt.asked = *number;
            attempt.question = Some((question.clone(), *number, reference.clone()));
            attempt.answer = None;
        }
    }

    fn apply_question_answered(&mut self, t: TaskIx, question: &str, text: &str, by: &str) {
        let asked = self.inbox.find_question(question).filter(|open| !open.is_about_work());
        let Some(asked) = asked else { return };
        let state = self.tasks.state_mut(t);
        state.early_answers.retain(|early| early.question != asked.text);
        state.early_answers.push(EarlyAnswer {
            name: question.to_owned(),
            question: asked.text.clone(),
            answer: text.to_owned(),
            by: by.to_owned(),
        });
        if let Some(attempt) = state.current.as_mut().filter(|a| a.ending.is_none()) {
            attempt.answer = Some(text.to_owned());
        }
        state.answered.push((asked.text.clone(), text.to_owned()));
        let over = state.answered.len().saturating_sub(limits::ANSWERS_KEPT);
        state.answered.drain(..over);
        let over = state.early_answers.len().saturating_sub(limits::ANSWERS_KEPT);
        state.early_answers.drain(..over);
    }
}
