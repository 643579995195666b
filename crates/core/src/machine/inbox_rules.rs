//! The inbox: on which terms a question waits, who answers it before a person has to, and what becomes of
//! tasks that agents propose.

use crate::effect::Effect;
use crate::fact::{AnsweringAgent, Fact, Usage};
use crate::graph::Graph;
use crate::id::{TaskId, TaskIx, Time, check_id};
use crate::limits;
use crate::machine::agent_statements::ProposalDecision;
use crate::machine::{CommandRefusal, Machine, OpenQuestion, TaskProposal};
use crate::phase::Phase;
use crate::plan::{Plan, Task};
use crate::question;
use crate::tasks::AttemptState;

/// Taken at a deadline for which nobody named an answer.
const NO_ANSWER: &str = "No answer came in time. Use your own judgement.";

impl Machine {
    /// The default and the deadline of a question: its own, else those of the settings. A deadline always
    /// leads to an answer; where a question offers a choice, only what it offers can be one, and without
    /// such a default it has no deadline.
    pub(super) fn question_terms(
        &self,
        options: &[String],
        default: Option<String>,
        deadline_ms: Option<u64>,
    ) -> (Option<String>, Option<Time>) {
        let settings = &self.settings.questions;
        let deadline = deadline_ms.or(settings.deadline_ms).map(|ms| self.now.plus_ms(ms));
        let unsaid = deadline.map(|_| NO_ANSWER.to_owned());
        let wishes = [default, settings.default.clone(), unsaid];
        let default =
            wishes.iter().flatten().find_map(|text| question::match_option(text, options));
        let deadline = deadline.filter(|_| default.is_some());
        (default, deadline)
    }

    /// Questions whose time is up take their default.
    pub(super) fn expire_questions(&mut self) {
        let due: Vec<_> = self
            .inbox
            .questions()
            .iter()
            .filter(|q| q.deadline.is_some_and(|at| at <= self.now) && !q.is_about_work())
            .filter_map(|q| {
                // An older version wrote down defaults that a question does not offer.
                let text = question::match_option(q.default.as_deref()?, &q.options)?;
                Some((q.name.clone(), text))
            })
            .collect();
        for (question, text) in due {
            self.record_answer(&question, text, "deadline");
        }
    }

    /// Answers what a rule answers.
    pub(super) fn answer_by_rule(&mut self) {
        if self.settings.questions.policy.is_empty() {
            return;
        }
        let rules = &self.settings.questions.policy;
        let known: Vec<_> = self
            .inbox
            .questions()
            .iter()
            .filter(|q| !q.is_about_work())
            .filter_map(|q| {
                let text = question::answer_by_rules(rules, &q.text, &q.options)?;
                Some((q.name.clone(), text))
            })
            .collect();
        for (question, text) in known {
            self.record_answer(&question, text, "policy");
        }
    }
}

impl Machine {
    /// Questions that the answering agent is to be asked, each once per life.
    pub(super) fn issue_consultations(&mut self, effects: &mut Vec<Effect>) {
        if self.settings.questions.agent.is_none() || self.engine.is_interrupting() {
            return;
        }
        for open in self.inbox.take_unconsulted_questions() {
            let OpenQuestion { task, attempt, number, name: question, .. } = open;
            effects.push(Effect::ConsultAgent { task, attempt, number, question });
        }
    }

    /// What the answering agent said. What cannot be used leaves the question to people.
    pub(super) fn handle_consultation(
        &mut self,
        question: &str,
        said: Result<String, String>,
        usage: Vec<Usage>,
    ) {
        let Some(open) = self.inbox.find_question(question) else { return };
        let (t, attempt) = (open.task, open.attempt);
        self.charge_consultation(t, attempt, question, usage);
        let Some(open) = self.inbox.find_question(question) else { return };
        let task = self.task_id(t);
        let used = said.and_then(|text| {
            let text = limits::clip_for_fact(&text);
            let short = limits::clip_for_fact(&format!("`{text}` is not one of the options"));
            question::match_option(&text, &open.options).ok_or(short)
        });
        match used {
            Ok(text) => {
                let agent = self.settings.questions.agent.as_deref().unwrap_or_default();
                let by = format!("agent {agent}");
                self.record_answer(question, text, &by);
            }
            Err(why) => {
                let message =
                    format!("{question} waits for a person: {}", limits::clip_for_fact(&why));
                self.emit_fact(Fact::Noticed { task: Some(task), message, lasts: false });
            }
        }
    }

    /// The answering agent's use is the asking attempt's, once: without an answer it may be told of
    /// again by the next life.
    fn charge_consultation(&mut self, t: TaskIx, attempt: u32, question: &str, usage: Vec<Usage>) {
        let attempt_that_asked = self.tasks.get(t).current.as_ref().is_some_and(|a| a.n == attempt);
        let phase = self.tasks.phase(t);
        let waits = matches!(phase, Phase::Working | Phase::Asking | Phase::Verifying)
            || phase.is_idle()
            || phase == Phase::Blocked;
        if !attempt_that_asked || !waits {
            return;
        }
        let known = |a: &AttemptState| a.consulted.iter().any(|name| name == question);
        if self.tasks.get(t).current.as_ref().is_some_and(known) {
            return;
        }
        let agent = self.settings.questions.agent.clone().unwrap_or_default();
        let answering = AnsweringAgent { agent, question: question.to_owned() };
        for usage in usage {
            self.record_usage(t, attempt, 0, Usage { answering: Some(answering.clone()), ..usage });
        }
    }

    /// The proposal with this name, and its place.
    fn find_proposal(&self, name: &str) -> Result<(usize, &TaskProposal), CommandRefusal> {
        let place = name.strip_prefix(['P', 'p']).and_then(|n| n.parse::<usize>().ok());
        let place = place.and_then(|n| n.checked_sub(1));
        place.and_then(|at| Some((at, self.inbox.proposals().get(at)?))).ok_or_else(|| {
            CommandRefusal {
                message: format!("unknown proposal {name}"),
                hint: Some("list proposals: mainstem proposals".to_owned()),
            }
        })
    }

    /// Makes a proposal a task of the run: the next revision of its plan.
    pub(super) fn accept_proposal(&mut self, name: &str) -> Result<String, CommandRefusal> {
        let (at, proposal) = self.find_proposal(name)?;
        match &proposal.decided {
            Some(ProposalDecision::Accepted(id)) => {
                return Ok(format!("{name} is already task {id}"));
            }
            Some(ProposalDecision::Rejected) | None => {}
        }
        let refuse =
            |message: String, hint: &str| CommandRefusal { message, hint: Some(hint.to_owned()) };
        let task = self.task_from_proposal(at, proposal)?;
        let mut plan = self.adopted.plan().clone();
        plan.tasks.push(task.clone());
        if let Err(error) = Graph::new(&plan) {
            return Err(refuse(
                format!("{name} does not fit the plan: {error}"),
                "add the task to the plan by hand",
            ));
        }
        let id = task.id.clone();
        self.emit_fact(Fact::ProposalDecided {
            proposal: format!("P{}", at + 1),
            becomes: Some(id.clone()),
        });
        let (revision, hash) = (self.adopted.revision() + 1, format!("accepted {id}"));
        let (plan, dropped) = (Box::new(plan), Vec::new());
        self.emit_fact(Fact::PlanAdopted { revision, hash, plan, dropped, file: None });
        self.update_all_blocking();
        Ok(format!("P{} is now task {id}", at + 1))
    }

    /// Can this agent work on a task that is only described? The built-in ones do what a task's `run` or
    /// `script` says, and nothing else.
    fn can_work_from_description(&self, agent: &str) -> bool {
        self.settings.agents.get(agent).is_some_and(|entry| match entry.kind.as_str() {
            "command" => !entry.command.is_empty(),
            "script" => false,
            _ => true,
        })
    }

    /// A proposal as a task: by the proposer's agent, or that of the run, and for its epic.
    fn task_from_proposal(
        &self,
        at: usize,
        proposal: &TaskProposal,
    ) -> Result<Task, CommandRefusal> {
        let free = |id: &str| check_id(id).is_ok() && self.adopted.graph().index_of(id).is_none();
        let proposed = proposal.id.clone().filter(|id| free(id));
        let id = proposed.unwrap_or_else(|| {
            let first = format!("P-{}", at + 1);
            let others = (2..).map(|n| format!("{first}-{n}"));
            std::iter::once(first.clone()).chain(others).find(|id| free(id)).unwrap_or(first)
        });
        let proposer = self.adopted.plan().tasks.iter().find(|task| task.id == proposal.task);
        let agent = proposer
            .and_then(|task| task.agent.clone())
            .filter(|name| self.can_work_from_description(name));
        if agent.is_none()
            && !self.settings.run.agent.as_ref().is_some_and(|a| self.can_work_from_description(a))
        {
            return Err(CommandRefusal {
                message: "no agent can work on the proposed task".to_owned(),
                hint: Some("set run.agent, then accept the proposal again".to_owned()),
            });
        }
        let mut needs = Vec::new();
        for need in &proposal.needs {
            let Some(t) = self.adopted.graph().index_of(need) else {
                return Err(CommandRefusal {
                    message: format!("the proposed task needs the unknown task {need}"),
                    hint: Some(
                        "add the task to the plan by hand, with the right `needs`".to_owned(),
                    ),
                });
            };
            needs.push(self.task_id(t));
        }
        Ok(Task {
            id: TaskId::new(id),
            epic: proposer.and_then(|task| task.epic.clone()),
            title: proposal.title.clone(),
            description: proposal.description.clone(),
            needs,
            agent,
            ..Task::empty()
        })
    }

    pub(super) fn reject_proposal(&mut self, name: &str) -> Result<String, CommandRefusal> {
        let (at, proposal) = self.find_proposal(name)?;
        let name = format!("P{}", at + 1);
        match &proposal.decided {
            Some(ProposalDecision::Rejected) => Ok(format!("{name} is already rejected")),
            Some(ProposalDecision::Accepted(id)) => Err(CommandRefusal {
                message: format!("{name} is already task {id}"),
                hint: Some(format!("mainstem cancel {id}")),
            }),
            None => {
                self.emit_fact(Fact::ProposalDecided { proposal: name.clone(), becomes: None });
                Ok(format!("rejected {name}"))
            }
        }
    }

    /// A plan with the tasks that were accepted during the run and that it does not have.
    pub fn with_accepted_tasks(&self, mut plan: Plan) -> Plan {
        for proposal in self.inbox.proposals() {
            let Some(ProposalDecision::Accepted(id)) = &proposal.decided else { continue };
            let known = plan.tasks.iter().any(|task| task.id == *id);
            if let Some(task) =
                self.adopted.plan().tasks.iter().find(|task| task.id == *id && !known)
            {
                plan.tasks.push(task.clone());
            }
        }
        plan
    }
}
