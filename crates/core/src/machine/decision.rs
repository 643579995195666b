//! What people say of work: approvals that a gate asks for, and reviews that came to no good end. A decision
//! is about the tree that was asked about, and only a plain yes is one.

use crate::fact::{Class, Fact, GateScope, Verdict};
use crate::gate::Gate;
use crate::id::{Oid, TaskIx, Time};
use crate::limits;
use crate::machine::{GateResult, Machine, OpenQuestion, Refusal};
use crate::phase::Phase;
use crate::plan::units::render_duration_ms;
use crate::review::{self, Ended, Opinion, Started};

/// What a question about work, rather than of an agent, is called by its asker.
const APPROVAL: &str = "approval ";
const REVIEW: &str = "review ";
const APPROVE: &str = "approve";
const REJECT: &str = "reject";
const AGAIN: &str = "review again";

enum Decision {
    Approve,
    Reject(String),
    Again,
}

impl OpenQuestion {
    /// Does it ask a person about work, rather than for an agent?
    pub fn is_about_work(&self) -> bool {
        about_work(self.reference.as_deref())
    }

    /// The gate whose approval it asks for.
    fn approves(&self) -> Option<&str> {
        self.reference.as_deref()?.strip_prefix(APPROVAL)
    }
}

/// Is this a reference of ours to a question about work?
pub fn about_work(reference: Option<&str>) -> bool {
    reference.is_some_and(|name| name.starts_with(APPROVAL) || name.starts_with(REVIEW))
}

impl Machine {
    pub(super) fn approvals_of(&self, t: TaskIx) -> Vec<String> {
        let own = self.plan.tasks[t.ix()].verify.iter();
        let own = own.filter(|line| matches!(Gate::parse(line), Ok(Gate::Approval { .. })));
        own.chain(&self.settings.gates.approvals).cloned().collect()
    }

    pub(super) fn ask_approval(&mut self, t: TaskIx, attempt: u32, line: &str, tree: &Oid) {
        let Ok(Gate::Approval { within_ms, text }) = Gate::parse(line) else { return };
        let reference = format!("{APPROVAL}{line}");
        if self.questions.iter().any(|q| q.task == t && q.reference.as_ref() == Some(&reference)) {
            return;
        }
        let id = self.id(t);
        let asked = if text.is_empty() { "May it land?".to_owned() } else { text };
        let within = within_ms.map(|ms| format!(" (within {})", render_duration_ms(ms)));
        let text = format!(
            "{asked} The work of {id} passed its gates{}. Look at it with `mainstem diff {id}`. Tree {}.",
            within.unwrap_or_default(),
            short(tree)
        );
        let options = vec![APPROVE.to_owned(), format!("{REJECT}: WHY")];
        let deadline = within_ms.map(|ms| self.now.plus_ms(ms));
        self.ask_person(t, attempt, text, (options, reference, deadline));
    }

    pub(super) fn ask_about_review(&mut self, t: TaskIx, attempt: u32, tree: &Oid, why: &str) {
        let id = self.id(t);
        let text = format!("The review of {id} came to no good end: {why}. Tree {}.", short(tree));
        let options = vec![APPROVE.to_owned(), format!("{REJECT}: WHY"), AGAIN.to_owned()];
        self.ask_person(t, attempt, text, (options, format!("{REVIEW}{tree}"), None));
    }

    fn ask_person(
        &mut self,
        t: TaskIx,
        attempt: u32,
        text: String,
        (options, reference, deadline): (Vec<String>, String, Option<Time>),
    ) {
        let asked = self.tasks.get(t).current.as_ref().map_or(0, |a| a.asked);
        self.emit(Fact::QuestionAsked {
            question: format!("Q{}", self.asked + 1),
            task: self.id(t),
            attempt,
            number: asked + 1,
            mark: 0,
            text: limits::brief(&text),
            options,
            default: None,
            deadline,
            reference: Some(reference),
        });
    }

    /// A person's word on work. Only a plain yes is one.
    pub(super) fn decide(&mut self, open: &OpenQuestion, text: &str) -> Result<String, Refusal> {
        let (t, attempt) = (open.task, open.attempt);
        let text = text.trim();
        let by_number =
            text.parse::<usize>().ok().and_then(|n| open.options.get(n.checked_sub(1)?));
        let text = by_number.map_or(text, |option| option.trim_end_matches(": WHY"));
        let words = text.to_lowercase();
        let first = words.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let about_review = open.approves().is_none();
        let decision = match first {
            APPROVE | "approved" | "yes" => Decision::Approve,
            REJECT | "rejected" | "no" => {
                let rest = text.get(first.len()..).unwrap_or_default();
                let why = rest.trim_start_matches([':', ',', '.', ' ']).trim();
                Decision::Reject(why.to_owned())
            }
            "review" | "again" if about_review => Decision::Again,
            _ => {
                return Err(Refusal {
                    message: format!("{} asks for a decision, and `{text}` is none", open.name),
                    hint: Some(format!(
                        "mainstem answer {} {APPROVE}, or mainstem answer {} \"{REJECT}: WHY\"",
                        open.name, open.name
                    )),
                });
            }
        };
        let (question, task) = (open.name.clone(), self.id(t));
        let (said, by) = (text.to_owned(), "person".to_owned());
        self.emit(Fact::QuestionAnswered { question, task: task.clone(), attempt, text: said, by });
        self.carry_out_decision(t, attempt, open.approves(), &decision);
        Ok(match decision {
            Decision::Approve => format!("{} approved; {task} goes on", open.name),
            Decision::Reject(_) => format!("{} rejected; {task} goes back to its agent", open.name),
            Decision::Again => format!("{task} is reviewed again"),
        })
    }

    fn carry_out_decision(
        &mut self,
        t: TaskIx,
        attempt: u32,
        approves: Option<&str>,
        decision: &Decision,
    ) {
        let tree = self.offered_tree(t).expect("BUG: only work is decided on");
        let gate = approves.unwrap_or(review::GATE).to_owned();
        match decision {
            Decision::Approve if approves.is_some() => {
                self.record_decision(
                    t,
                    attempt,
                    &tree,
                    (gate, Verdict::Passed, "a person approved"),
                );
                self.advance(t, attempt);
            }
            Decision::Approve => {
                let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.clone());
                let known = course.and_then(|course| course.ended);
                let known =
                    known.or_else(|| self.tasks.get(t).reviews.verdicts.get(&tree).cloned());
                let Some(known) = known else { return };
                let (verdict, by) = (Opinion::Approved, "person".to_owned());
                self.end_review(t, Ended { attempt, verdict, by, ..known });
            }
            Decision::Again => {
                let (task, cycle) = (self.id(t), self.tasks.get(t).reviews.cycles + 1);
                let reviewers = self.settings.review.agents.clone();
                self.emit(Fact::ReviewStarted(Started { task, attempt, tree, cycle, reviewers }));
            }
            Decision::Reject(why) => {
                self.record_decision(t, attempt, &tree, (gate, Verdict::Failed, why));
                let reason = if why.is_empty() {
                    "a person rejected it".to_owned()
                } else {
                    format!("a person rejected it: {why}")
                };
                self.fail_attempt(t, Class::Rejected, reason);
            }
        }
    }

    fn record_decision(
        &mut self,
        t: TaskIx,
        attempt: u32,
        tree: &Oid,
        (gate, verdict, detail): (String, Verdict, &str),
    ) {
        let detail = limits::brief(detail);
        let (duration_ms, log, cached, flakes) = (0, None, false, 0);
        let gate = GateResult { gate, verdict, duration_ms, log, detail, cached, flakes };
        self.record_gates((t, attempt), GateScope::Task, tree, &[], &[gate]);
    }

    /// Approvals whose time is up were not given.
    pub(super) fn pass_approvals(&mut self) {
        let late = |q: &&OpenQuestion| {
            q.approves().is_some() && q.deadline.is_some_and(|at| at <= self.now)
        };
        let late: Vec<OpenQuestion> = self.questions.iter().filter(late).cloned().collect();
        for open in late {
            let (t, attempt, task) = (open.task, open.attempt, self.id(open.task));
            let gate = open.approves().unwrap_or_default().to_owned();
            let (text, by) = ("nobody decided in time".to_owned(), "deadline".to_owned());
            let question = open.name.clone();
            self.emit(Fact::QuestionAnswered { question, task, attempt, text, by });
            let Some(tree) = self.offered_tree(t) else { continue };
            let detail = "nobody decided in time";
            self.record_decision(t, attempt, &tree, (gate, Verdict::Error, detail));
            let reason = format!("nobody approved it in time ({})", open.name);
            self.end_attempt(t, Class::NeedsInput, reason, None);
        }
    }

    /// Does this task wait for a person's word on its work, and for nothing else?
    pub fn waits_for_decision(&self, t: TaskIx) -> bool {
        self.tasks.phase(t) == Phase::Verifying
            && self.questions.iter().any(|q| q.task == t && q.is_about_work())
    }
}

fn short(tree: &Oid) -> &str {
    tree.as_str().get(..12).unwrap_or(tree.as_str())
}
