//! What a clash with the target branch leads to, where an agent is to resolve it: an attempt like any
//! other that starts from the merge instead of from nothing. Everything follows from facts that are there
//! for other reasons.

use std::collections::BTreeSet;

use crate::config::ConflictAction;
use crate::conflict::{ConflictForecast, TargetConflict};
use crate::effect::ConflictResolution;
use crate::fact::{AgentFault, Fact, FailureClass};
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::{CommandRefusal, Machine, MachineCommand, OpenQuestion, RetryRequest};
use crate::phase::Phase;
use crate::tasks::AttemptState;
use crate::train::CandidateStage;

/// Begins the name of a question about work that clashes; then comes the task.
const DECISION: &str = "C-";
/// What can be done about it.
/// Begins the name of a decision on a task whose agent goes round in circles; then comes the task.
const LOOPING: &str = "L-";
/// What can be decided.
const DECISIONS: [&str; 3] = ["retry", "skip", "cancel"];

impl Machine {
    /// The clash that the next attempt at this task resolves, if an agent is to.
    pub(super) fn conflict_to_resolve(&self, t: TaskIx) -> Option<&TargetConflict> {
        let wanted = self.settings.land.on_conflict == ConflictAction::Agent;
        // What an open pull request offers has it already.
        self.tasks
            .get(t)
            .conflict
            .as_ref()
            .filter(|_| wanted && self.next_attempt_base(t).is_none())
    }

    /// The clash whose merge is laid out in the workspace of the attempt under way.
    pub fn conflict_in_workspace(&self, t: TaskIx) -> Option<&TargetConflict> {
        let current = self.tasks.get(t).current.as_ref().filter(|attempt| !attempt.fresh)?;
        self.conflict_to_resolve(t).filter(|clash| clash.attempt < current.n)
    }

    /// Does another agent than the task's own resolve a clash in the attempt under way?
    pub fn is_resolved_by_another(&self, t: TaskIx) -> bool {
        let current = self.tasks.get(t).current.as_ref();
        let other = current.is_some_and(|a| a.agent != self.tasks.resources(t).agent);
        other && self.conflict_in_workspace(t).is_some() && self.settings.land.resolver.is_some()
    }

    /// Who works on this task next instead of its own agent: who resolves its clash, or whom a person
    /// named.
    pub(super) fn replacement_agent(&self, t: TaskIx) -> Option<String> {
        let resolver =
            self.settings.land.resolver.as_ref().filter(|_| self.conflict_to_resolve(t).is_some());
        resolver.or(self.tasks.get(t).agent.as_ref()).cloned()
    }

    /// The clash that the work of the attempt under way settles, if that is to be remembered.
    pub(super) fn conflict_resolution(&self, t: TaskIx) -> Option<ConflictResolution> {
        let state = self.tasks.get(t);
        let current = state.current.as_ref()?;
        let clash = state.conflict.as_ref().filter(|clash| clash.attempt < current.n)?;
        let tip = current.evidence.as_ref()?.tip.clone();
        let wanted = self.settings.land.reuse_resolutions;
        wanted.then_some(ConflictResolution {
            base: current.base.clone()?,
            work: clash.tip.clone(),
            tip,
        })
    }

    /// A car whose conflicts were resolved as they had been before failed its gates: it clashes after
    /// all. Whether it is so.
    pub(super) fn reject_reused_resolution(&mut self, t: TaskIx, attempt: u32, why: &str) -> bool {
        let Some(car) = self.train.queue().candidate_of(t).filter(|car| !car.reused.is_empty())
        else {
            return false;
        };
        let files = car.reused.iter().map(|reused| reused.path.clone()).collect();
        let (CandidateStage::Formed { onto, .. } | CandidateStage::Landing { onto, .. }) =
            &car.stage
        else {
            return false;
        };
        let onto = onto.clone();
        let message = limits::clip_for_fact(&format!(
            "the checks failed with a reused conflict resolution: {why}"
        ));
        self.emit_fact(Fact::Noticed { task: Some(self.task_id(t)), message, lasts: false });
        self.record_candidate_conflict(t, attempt, onto, files);
        true
    }

    /// Which pieces of work would clash, as far as was looked.
    pub fn conflict_forecast(&self) -> &ConflictForecast {
        self.train.forecast()
    }

    /// Does what this task means to write overlap with what others have changed by now?
    pub(super) fn overlaps_other_work(&self, t: TaskIx) -> bool {
        let task = &self.adopted.plan().tasks[t.index()];
        !task.writes.is_empty() && self.train.forecast().overlaps_writes(&task.id, &task.writes)
    }

    /// Cars that are known to clash, by their queue numbers. What was looked at must be what is merged.
    pub(super) fn forecast_candidate_conflicts(&self) -> BTreeSet<(u64, u64)> {
        let outlook = self.train.forecast();
        let place = |task: &TaskId| {
            let car =
                self.train.queue().candidate_of(self.adopted.graph().index_of(task.as_str())?)?;
            let seen = outlook.work_of(task)?;
            (seen.commit == car.tip && seen.attempt == car.attempt).then_some(car.queue_number)
        };
        let pair = |(a, b): (&TaskId, &TaskId)| {
            let (a, b) = (place(a)?, place(b)?);
            Some((a.min(b), a.max(b)))
        };
        outlook.conflicting_tasks().filter_map(pair).collect()
    }

    /// Does this task wait for a person because its agent did the same thing over and over?
    pub fn is_looping(&self, t: TaskIx) -> bool {
        let state = self.tasks.get(t);
        let fault = state.current.as_ref().and_then(AttemptState::end_fault);
        state.phase() == Phase::Blocked
            && state.chain.is_empty()
            && fault == Some(AgentFault::Looping)
            && state.last.as_ref().is_some_and(|last| last.class == FailureClass::NeedsInput)
    }

    /// What a person has to decide, as questions: what becomes of tasks whose agents go round in circles.
    fn looping_decisions(&self) -> impl Iterator<Item = OpenQuestion> {
        let one = |t: TaskIx| OpenQuestion {
            name: format!("{LOOPING}{}", self.task_id(t)),
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
        self.tasks.all_tasks().filter(|t| self.is_looping(*t)).map(one)
    }

    /// What a person has to decide, as questions: what becomes of work that clashes, and of tasks that make no
    /// progress.
    pub fn open_decisions(&self) -> Vec<OpenQuestion> {
        let clashes = |t: &TaskIx| self.tasks.phase(*t) == Phase::Conflicted;
        let one = |t: TaskIx| {
            let (task, state) = (self.task_id(t), self.tasks.get(t));
            let kept = state.current.as_ref().map_or("", |attempt| attempt.branch.as_str());
            let (reason, target) = (&state.reason, self.run.target());
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
        self.tasks.all_tasks().filter(clashes).map(one).chain(self.looping_decisions()).collect()
    }

    /// Takes an answer to such a question; none if it is no such question.
    pub(super) fn answer_conflict_question(
        &mut self,
        question: &str,
        text: &str,
    ) -> Option<Result<String, CommandRefusal>> {
        let open =
            self.open_decisions().into_iter().find(|q| q.name.eq_ignore_ascii_case(question))?;
        let task = self.task_id(open.task).to_string();
        let command = match text.trim() {
            "1" | "retry" => MachineCommand::retry_task(task),
            "2" | "skip" => MachineCommand::Skip(task),
            "3" | "cancel" => MachineCommand::Cancel(Some(task)),
            // Who goes round in circles is told another way.
            hint if !hint.is_empty() && self.is_looping(open.task) => {
                let hint = Some(limits::clip_for_fact(hint));
                MachineCommand::Retry(RetryRequest {
                    tasks: vec![task],
                    hint,
                    ..RetryRequest::default()
                })
            }
            _ => {
                let message = format!("invalid answer to {question}; use {}", DECISIONS.join(", "));
                let hint = Some(format!("mainstem answer {question} retry"));
                return Some(Err(CommandRefusal { message, hint }));
            }
        };
        Some(self.handle_command(command))
    }
}

/// What has to be known of work that clashes; none if it left nothing.
pub(super) fn conflict_of_attempt(
    attempt: &AttemptState,
    onto: &Oid,
    files: &[String],
) -> Option<TargetConflict> {
    let left = attempt.evidence.as_ref()?;
    Some(TargetConflict {
        attempt: attempt.n,
        base: attempt.base.clone().unwrap_or_else(|| left.base.clone()),
        tip: left.tip.clone(),
        onto: onto.clone(),
        files: files.to_vec(),
        since: attempt.intended_at,
    })
}
