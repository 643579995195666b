//! What people say of work: approvals that a gate asks for, and reviews that came to no good end. A decision
//! is about the tree that was asked about, and only a plain yes is one.

use crate::fact::{Fact, FailureClass, GateScope, GateVerdict};
use crate::gate::GateSpec;
use crate::hold::{HoldKind, HoldReason};
use crate::id::{Oid, TaskIx, Time};
use crate::limits;
use crate::machine::{CommandRefusal, GateResult, Machine, OpenQuestion};
use crate::phase::Phase;
use crate::plan::quantities::render_duration_ms;
use crate::review::{self, ReviewEndFact, ReviewOpinion, ReviewStartFact};

/// What a question about work, rather than of an agent, is called by its asker.
const APPROVAL: &str = "approval ";
const REVIEW: &str = "review ";
const APPROVE: &str = "approve";
const REJECT: &str = "reject";
const AGAIN: &str = "review again";

enum WorkDecision {
    Approve,
    Reject(String),
    Again,
}

impl OpenQuestion {
    /// Does it ask a person about work, rather than for an agent?
    pub fn is_about_work(&self) -> bool {
        is_work_reference(self.reference.as_deref())
    }

    /// The gate whose approval it asks for.
    fn approval_gate(&self) -> Option<&str> {
        self.reference.as_deref()?.strip_prefix(APPROVAL)
    }
}

/// Is this a reference of ours to a question about work?
pub fn is_work_reference(reference: Option<&str>) -> bool {
    reference.is_some_and(|name| name.starts_with(APPROVAL) || name.starts_with(REVIEW))
}

impl Machine {
    pub(super) fn required_approvals(&self, t: TaskIx) -> Vec<String> {
        let own = self.adopted.plan().tasks[t.index()].verify.iter();
        let own = own.filter(|line| matches!(GateSpec::parse(line), Ok(GateSpec::Approval { .. })));
        own.chain(&self.settings.gates.approvals).cloned().collect()
    }

    /// Approvals of the work at hand that nobody has given.
    pub fn missing_approvals(&self, t: TaskIx) -> Vec<String> {
        let current = self.tasks.get(t).current.as_ref();
        // Nothing to look at needs nobody's approval.
        let changes = current.and_then(|a| a.evidence.as_ref()).is_some_and(|e| e.files > 0);
        let Some(tree) = self.offered_tree(t).filter(|_| changes) else { return Vec::new() };
        let approved = &self.tasks.get(t).reviews.approved;
        let missing = |line: &String| !approved.contains(&(line.clone(), tree.clone()));
        self.required_approvals(t).into_iter().filter(missing).collect()
    }

    /// Holds those of this line, which may land by its gates, that a person has to approve: a person's time
    /// is not spent on work that a machine would refuse. Is there one?
    pub(super) fn hold_unapproved(&mut self, cars: &[(TaskIx, u32)], merged: &Oid) -> bool {
        let unapproved = |(t, _): &&(TaskIx, u32)| !self.missing_approvals(*t).is_empty();
        let unapproved: Vec<(TaskIx, u32)> = cars.iter().filter(unapproved).copied().collect();
        for (t, attempt) in &unapproved {
            let merged = merged.clone();
            self.hold_candidate(*t, *attempt, HoldReason::Approval { merged });
        }
        !unapproved.is_empty()
    }

    /// Asks for the next approval of held work, and lets it go on when it has them all.
    pub(super) fn ask_about_held_work(&mut self) {
        let held = |t: &TaskIx| {
            self.hold_reasons(*t).iter().any(|(reason, _)| reason.kind() == HoldKind::Approval)
                && !self
                    .inbox
                    .questions()
                    .iter()
                    .any(|q| q.task == *t && q.approval_gate().is_some())
        };
        let held: Vec<TaskIx> = self.tasks.active_tasks().filter(held).collect();
        for t in held {
            let attempt = self.tasks.get(t).attempts;
            match self.missing_approvals(t).first() {
                Some(line) => self.ask_approval(t, attempt, line),
                None => self.release_candidate(t, attempt, HoldKind::Approval, "person"),
            }
        }
    }

    pub(super) fn ask_approval(&mut self, t: TaskIx, attempt: u32, line: &str) {
        let Ok(GateSpec::Approval { within_ms, text }) = GateSpec::parse(line) else { return };
        let Some(tree) = self.offered_tree(t) else { return };
        let reference = format!("{APPROVAL}{line}");
        if self
            .inbox
            .questions()
            .iter()
            .any(|q| q.task == t && q.reference.as_ref() == Some(&reference))
        {
            return;
        }
        let id = self.task_id(t);
        let asked = if text.is_empty() { "May this task land?".to_owned() } else { text };
        let within = within_ms.map(|ms| format!(" (within {})", render_duration_ms(ms)));
        let checked = match self.tasks.phase(t) {
            Phase::Merging if !self.settings.gates.verify.is_empty() => {
                " The checks passed on the merged tree."
            }
            Phase::Verifying if !self.task_gates(t).is_empty() => " The checks passed.",
            _ => "",
        };
        let text = format!(
            "{asked}{}{checked} See the changes: `mainstem diff {id}`. Tree {}.",
            within.unwrap_or_default(),
            short_tree(&tree)
        );
        let options = vec![APPROVE.to_owned(), format!("{REJECT}: WHY")];
        let deadline = within_ms.map(|ms| self.now.plus_ms(ms));
        self.ask_person(t, attempt, text, (options, reference, deadline));
    }

    pub(super) fn ask_about_review(&mut self, t: TaskIx, attempt: u32, tree: &Oid, why: &str) {
        let id = self.task_id(t);
        let text =
            format!("The review of {id} ended without approval: {why}. Tree {}.", short_tree(tree));
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
        self.emit_fact(Fact::QuestionAsked {
            question: self.inbox.next_question_name(),
            task: self.task_id(t),
            attempt,
            number: asked + 1,
            mark: 0,
            text: limits::clip_for_fact(&text),
            options,
            default: None,
            deadline,
            reference: Some(reference),
        });
    }

    /// A person's word on work. Only a plain yes is one.
    pub(super) fn decide_about_work(
        &mut self,
        open: &OpenQuestion,
        text: &str,
    ) -> Result<String, CommandRefusal> {
        let (t, attempt) = (open.task, open.attempt);
        let text = text.trim();
        let by_number =
            text.parse::<usize>().ok().and_then(|n| open.options.get(n.checked_sub(1)?));
        let text = by_number.map_or(text, |option| option.trim_end_matches(": WHY"));
        let words = text.to_lowercase();
        let first = words.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let about_review = open.approval_gate().is_none();
        let decision = match first {
            APPROVE | "approved" | "yes" => WorkDecision::Approve,
            REJECT | "rejected" | "no" => {
                let rest = text.get(first.len()..).unwrap_or_default();
                let why = rest.trim_start_matches([':', ',', '.', ' ']).trim();
                WorkDecision::Reject(why.to_owned())
            }
            "review" | "again" if about_review => WorkDecision::Again,
            _ => {
                return Err(CommandRefusal {
                    message: format!("`{text}` is not a decision about {}", open.name),
                    hint: Some(format!(
                        "mainstem answer {} {APPROVE}, or mainstem answer {} \"{REJECT}: WHY\"",
                        open.name, open.name
                    )),
                });
            }
        };
        let (question, task) = (open.name.clone(), self.task_id(t));
        let (said, by) = (text.to_owned(), "person".to_owned());
        self.emit_fact(Fact::QuestionAnswered {
            question,
            task: task.clone(),
            attempt,
            text: said,
            by,
        });
        self.carry_out_decision(t, attempt, open.approval_gate(), &decision);
        Ok(match decision {
            WorkDecision::Approve => format!("{} approved; {task} continues", open.name),
            WorkDecision::Reject(_) => {
                format!("{} rejected; {task} is returned to the agent", open.name)
            }
            WorkDecision::Again => format!("{task} will be reviewed again"),
        })
    }

    fn carry_out_decision(
        &mut self,
        t: TaskIx,
        attempt: u32,
        approves: Option<&str>,
        decision: &WorkDecision,
    ) {
        let tree = self.offered_tree(t).expect("BUG: only work is decided on");
        let gate = approves.unwrap_or(review::GATE).to_owned();
        match decision {
            WorkDecision::Approve if approves.is_some() => {
                self.record_decision(t, attempt, &tree, (gate, GateVerdict::Passed, "approved"));
                if self.tasks.phase(t) == Phase::Verifying {
                    self.advance_after_gates(t, attempt);
                }
            }
            WorkDecision::Approve => {
                let course = self.tasks.get(t).current.as_ref().and_then(|a| a.review.clone());
                let known = course.and_then(|course| course.ended);
                let known =
                    known.or_else(|| self.tasks.get(t).reviews.verdicts.get(&tree).cloned());
                let Some(known) = known else { return };
                let (verdict, by) = (ReviewOpinion::Approved, "person".to_owned());
                self.end_review(t, ReviewEndFact { attempt, verdict, by, ..known });
            }
            WorkDecision::Again => {
                let (task, cycle) = (self.task_id(t), self.tasks.get(t).reviews.cycles + 1);
                let reviewers = self.settings.review.agents.clone();
                self.emit_fact(Fact::ReviewStarted(ReviewStartFact {
                    task,
                    attempt,
                    tree,
                    cycle,
                    reviewers,
                }));
            }
            WorkDecision::Reject(why) => {
                self.record_decision(t, attempt, &tree, (gate, GateVerdict::Failed, why));
                let reason =
                    if why.is_empty() { "rejected".to_owned() } else { format!("rejected: {why}") };
                self.evict_queued(t, attempt, &reason);
                self.fail_attempt(t, FailureClass::Rejected, reason);
            }
        }
    }

    /// Work that waits to land leaves the train.
    fn evict_queued(&mut self, t: TaskIx, attempt: u32, reason: &str) {
        if self.tasks.phase(t) == Phase::Merging {
            let (task, reason) = (self.task_id(t), reason.to_owned());
            self.emit_fact(Fact::CarEvicted { task, attempt, reason });
        }
    }

    fn record_decision(
        &mut self,
        t: TaskIx,
        attempt: u32,
        tree: &Oid,
        (gate, verdict, detail): (String, GateVerdict, &str),
    ) {
        let detail = limits::clip_for_fact(detail);
        let gate = GateResult {
            gate,
            verdict,
            duration_ms: 0,
            log: None,
            detail,
            cached: false,
            flakes: 0,
            exit_code: None,
            cause: None,
        };
        self.record_gate_results((t, attempt), GateScope::Task, tree, &[], &[gate]);
    }

    /// Approvals whose time is up were not given.
    pub(super) fn expire_approvals(&mut self) {
        let late = |q: &&OpenQuestion| {
            q.approval_gate().is_some() && q.deadline.is_some_and(|at| at <= self.now)
        };
        let late: Vec<OpenQuestion> = self.inbox.questions().iter().filter(late).cloned().collect();
        for open in late {
            let (t, attempt, task) = (open.task, open.attempt, self.task_id(open.task));
            let gate = open.approval_gate().unwrap_or_default().to_owned();
            let (text, by) = ("no decision before the deadline".to_owned(), "deadline".to_owned());
            let question = open.name.clone();
            self.emit_fact(Fact::QuestionAnswered { question, task, attempt, text, by });
            let Some(tree) = self.offered_tree(t) else { continue };
            let detail = "no decision before the deadline";
            self.record_decision(t, attempt, &tree, (gate, GateVerdict::Error, detail));
            let reason = format!("no approval before the deadline ({})", open.name);
            self.evict_queued(t, attempt, &reason);
            self.end_attempt(t, FailureClass::NeedsInput, reason, None);
        }
    }

    /// Does this task wait for a person's word on its work, and for nothing else?
    pub fn waits_for_decision(&self, t: TaskIx) -> bool {
        self.tasks.phase(t) == Phase::Verifying
            && self.inbox.questions().iter().any(|q| q.task == t && q.is_about_work())
    }
}

fn short_tree(tree: &Oid) -> &str {
    tree.as_str().get(..12).unwrap_or(tree.as_str())
}
