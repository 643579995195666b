//! The inbox: on which terms a question waits, and who answers it before a person has to.

use crate::fact::Fact;
use crate::id::Time;
use crate::machine::Machine;
use crate::question;

/// Taken at a deadline for which nobody named an answer.
const NO_ANSWER: &str = "No answer came in time. Use your own judgement.";

impl Machine {
    /// The default and the deadline of a question: its own, else those of the settings. A deadline
    /// always leads to an answer.
    pub(super) fn terms(
        &self,
        default: Option<String>,
        deadline_ms: Option<u64>,
    ) -> (Option<String>, Option<Time>) {
        let settings = &self.settings.questions;
        let deadline = deadline_ms.or(settings.deadline_ms).map(|ms| self.now.plus_ms(ms));
        let default = default.or_else(|| settings.default.clone());
        let default = default.or_else(|| deadline.map(|_| NO_ANSWER.to_owned()));
        (default, deadline)
    }

    /// Answers what a rule answers.
    pub(super) fn answer_by_rule(&mut self) {
        if self.settings.questions.policy.is_empty() {
            return;
        }
        let rules = &self.settings.questions.policy;
        let known: Vec<_> = self
            .questions
            .iter()
            .filter_map(|q| {
                let text = question::by_rule(rules, &q.text, &q.options)?;
                Some((q.name.clone(), q.task, q.attempt, text))
            })
            .collect();
        for (question, t, attempt, text) in known {
            let (task, by) = (self.id(t), "policy".to_owned());
            self.emit(Fact::QuestionAnswered { question, task, attempt, text, by });
        }
    }
}
