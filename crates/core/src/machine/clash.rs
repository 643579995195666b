//! What a clash with the target branch leads to, where an agent is to resolve it: an attempt like any
//! other that starts from the merge instead of from nothing. Everything follows from facts that are there
//! for other reasons.

use std::collections::BTreeSet;

use crate::clash::{Clash, Outlook};
use crate::config::OnConflict;
use crate::effect::Resolved;
use crate::fact::{Class, Fact, Fault};
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::{Command, Machine, OpenQuestion, Refusal, Retry};
use crate::phase::Phase;
use crate::tasks::AttemptState;
use crate::train::Stage;

/// Begins the name of a question about work that clashes; then comes the task.
const DECISION: &str = "C-";
/// What can be done about it.
/// Begins the name of a decision on a task whose agent goes round in circles; then comes the task.
const LOOPING: &str = "L-";
/// What can be decided.
const DECISIONS: [&str; 3] = ["retry", "skip", "cancel"];

impl Machine {
    /// The clash that the next attempt at this task resolves, if an agent is to.
    pub(super) fn resolves(&self, t: TaskIx) -> Option<&Clash> {
        let wanted = self.settings.land.on_conflict == OnConflict::Agent;
        // What an open pull request offers has it already.
        self.tasks.get(t).clash.as_ref().filter(|_| wanted && self.goes_on_from(t).is_none())
    }

    /// The clash whose merge is laid out in the workspace of the attempt under way.
    pub fn lays_out(&self, t: TaskIx) -> Option<&Clash> {
        let current = self.tasks.get(t).current.as_ref().filter(|attempt| !attempt.fresh)?;
        self.resolves(t).filter(|clash| clash.attempt < current.n)
    }

    /// Does another agent than the task's own resolve a clash in the attempt under way?
    pub fn is_resolved_by_another(&self, t: TaskIx) -> bool {
        let current = self.tasks.get(t).current.as_ref();
        let other = current.is_some_and(|a| a.agent != self.tasks.claims(t).agent);
        other && self.lays_out(t).is_some() && self.settings.land.resolver.is_some()
    }

    /// Who works on this task next instead of its own agent: who resolves its clash, or whom a person
    /// named.
    pub(super) fn resolver_of(&self, t: TaskIx) -> Option<String> {
        let resolver = self.settings.land.resolver.as_ref().filter(|_| self.resolves(t).is_some());
        resolver.or(self.tasks.get(t).agent.as_ref()).cloned()
    }

    /// The clash that the work of the attempt under way settles, if that is to be remembered.
    pub(super) fn resolved_by(&self, t: TaskIx) -> Option<Resolved> {
        let state = self.tasks.get(t);
        let current = state.current.as_ref()?;
        let clash = state.clash.as_ref().filter(|clash| clash.attempt < current.n)?;
        let tip = current.evidence.as_ref()?.tip.clone();
        let wanted = self.settings.land.reuse_resolutions;
        wanted.then_some(Resolved { base: current.base.clone()?, work: clash.tip.clone(), tip })
    }

    /// A car whose conflicts were resolved as they had been before failed its gates: it clashes after
    /// all. Whether it is so.
    pub(super) fn failed_as_before(&mut self, t: TaskIx, attempt: u32, why: &str) -> bool {
        let Some(car) = self.train.car(t).filter(|car| !car.reused.is_empty()) else {
            return false;
        };
        let files = car.reused.iter().map(|reused| reused.path.clone()).collect();
        let (Stage::Formed { onto, .. } | Stage::Landing { onto, .. }) = &car.stage else {
            return false;
        };
        let onto = onto.clone();
        let message =
            limits::brief(&format!("the checks failed with a reused conflict resolution: {why}"));
        self.emit(Fact::Noticed { task: Some(self.id(t)), message, lasts: false });
        self.car_conflicted(t, attempt, onto, files);
        true
    }

    /// Which pieces of work would clash, as far as was looked.
    pub fn outlook(&self) -> &Outlook {
        &self.life.outlook
    }

    /// Does what this task means to write overlap with what others have changed by now?
    pub(super) fn overlaps(&self, t: TaskIx) -> bool {
        let task = &self.plan.tasks[t.ix()];
        !task.writes.is_empty() && self.life.outlook.overlaps(&task.id, &task.writes)
    }

    /// Cars that are known to clash, by their queue numbers. What was looked at must be what is merged.
    pub(super) fn foreseen(&self) -> BTreeSet<(u64, u64)> {
        let outlook = &self.life.outlook;
        let place = |task: &TaskId| {
            let car = self.train.car(self.graph.ix(task.as_str())?)?;
            let seen = outlook.piece(task)?;
            (seen.commit == car.tip && seen.attempt == car.attempt).then_some(car.place)
        };
        let pair = |(a, b): (&TaskId, &TaskId)| {
            let (a, b) = (place(a)?, place(b)?);
            Some((a.min(b), a.max(b)))
        };
        outlook.tasks().filter_map(pair).collect()
    }

    /// Does this task wait for a person because its agent did the same thing over and over?
    pub fn is_looping(&self, t: TaskIx) -> bool {
        let state = self.tasks.get(t);
        let fault = state.current.as_ref().and_then(AttemptState::fault);
        state.phase() == Phase::Blocked
            && state.chain.is_empty()
            && fault == Some(Fault::Looping)
            && state.last.as_ref().is_some_and(|last| last.class == Class::NeedsInput)
    }

    /// What a person has to decide, as questions: what becomes of tasks whose agents go round in circles.
    fn looping_decisions(&self) -> impl Iterator<Item = OpenQuestion> {
        let one = |t: TaskIx| OpenQuestion {
            name: format!("{LOOPING}{}", self.id(t)),
            task: t,
            attempt: self.tasks.get(t).attempts,
            number: 0,
            text:
                "the agent repeats the same step over and over. What should the agent do instead?"
                    .to_owned(),
            options: DECISIONS.map(str::to_owned).to_vec(),
            default: None,
            deadline: None,
            at: self.tasks.get(t).since,
            reference: None,
        };
        self.tasks.all().filter(|t| self.is_looping(*t)).map(one)
    }

    /// What a person has to decide, as questions: what becomes of work that clashes, and of tasks that make no
    /// progress.
    pub fn decisions(&self) -> Vec<OpenQuestion> {
        let clashes = |t: &TaskIx| self.tasks.phase(*t) == Phase::Conflicted;
        let one = |t: TaskIx| {
            let (task, state) = (self.id(t), self.tasks.get(t));
            let kept = state.current.as_ref().map_or("", |attempt| attempt.branch.as_str());
            let (reason, target) = (&state.reason, &self.target);
            OpenQuestion {
                name: format!("{DECISION}{task}"),
                task: t,
                attempt: state.attempts,
                number: 0,
                text: format!(
                    "the work does not merge into {target} ({reason}) and is kept on {kept}"
                ),
                options: DECISIONS.map(str::to_owned).to_vec(),
                default: None,
                deadline: None,
                at: state.since,
                reference: None,
            }
        };
        self.tasks.all().filter(clashes).map(one).chain(self.looping_decisions()).collect()
    }

    /// Takes an answer to such a question; none if it is no such question.
    pub(super) fn settle_clash(
        &mut self,
        question: &str,
        text: &str,
    ) -> Option<Result<String, Refusal>> {
        let open = self.decisions().into_iter().find(|q| q.name.eq_ignore_ascii_case(question))?;
        let task = self.id(open.task).to_string();
        let command = match text.trim() {
            "1" | "retry" => Command::retry(task),
            "2" | "skip" => Command::Skip(task),
            "3" | "cancel" => Command::Cancel(Some(task)),
            // Who goes round in circles is told another way.
            hint if !hint.is_empty() && self.is_looping(open.task) => {
                let hint = Some(limits::brief(hint));
                Command::Retry(Retry { tasks: vec![task], hint, ..Retry::default() })
            }
            _ => {
                let message = format!("invalid answer to {question}; use {}", DECISIONS.join(", "));
                let hint = Some(format!("mainstem answer {question} retry"));
                return Some(Err(Refusal { message, hint }));
            }
        };
        Some(self.command(command))
    }
}

/// What has to be known of work that clashes; none if it left nothing.
pub(super) fn clash_of(attempt: &AttemptState, onto: &Oid, files: &[String]) -> Option<Clash> {
    let left = attempt.evidence.as_ref()?;
    Some(Clash {
        attempt: attempt.n,
        base: attempt.base.clone().unwrap_or_else(|| left.base.clone()),
        tip: left.tip.clone(),
        onto: onto.clone(),
        files: files.to_vec(),
        since: attempt.intended_at,
    })
}
