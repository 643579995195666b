//! The fold: one fact moves the state. Live steps and recovery both come through here, so they
//! cannot disagree. Decides nothing.

use crate::attempt_policy::RetryCounts;
use crate::fact::{AgentClaim, AgentEnding, Fact, FailureClass, GateScope, GateVerdict, Usage};
use crate::failed_gate::FailedGate;
use crate::graph::Graph;
use crate::id::{TaskId, TaskIx, Time};
use crate::machine::Machine;
use crate::machine::conflict_resolution::conflict_of_attempt;
use crate::phase::IllegalFact;
use crate::provider::LimitReport;
use crate::tasks::{AttemptState, PendingAnswer, TaskLanding, TaskTable};
use crate::train::CandidateStage;

/// A journal that does not add up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// A fact that cannot have happened there.
    #[error("task {task}: {illegal}")]
    Illegal { task: TaskId, illegal: IllegalFact },
    /// A task that the plan does not have.
    #[error("the journal has a fact about the unknown task {0}")]
    UnknownTask(TaskId),
    /// A plan that cannot be worked off.
    #[error("the adopted plan is invalid: {0}")]
    BadPlan(String),
}

impl Machine {
    /// Moves the state by one fact that happened at `at`.
    pub fn apply(&mut self, fact: &Fact, at: Time) -> Result<(), ApplyError> {
        self.now = self.now.max(at);
        self.inbox.apply_notice(fact);
        match fact {
            Fact::RunStarted { .. } | Fact::EngineStopped { .. } => self.run.apply(fact, at),
            Fact::PlanAdopted { .. } => self.apply_plan(fact)?,
            Fact::ProposalDecided { .. } => self.inbox.apply_run_fact(fact),
            Fact::EngineStarted { .. } => {
                self.run.apply(fact, at);
                self.control.apply(fact);
                self.target.apply_run_fact(fact);
                self.train.apply_push_trouble(fact);
            }
            Fact::RunPaused {}
            | Fact::RunResumed {}
            | Fact::RunCancelled {}
            | Fact::JobsChanged { .. }
            | Fact::RunDraining { .. } => self.control.apply(fact),
            Fact::ProviderParked { .. } | Fact::ProviderFreed { .. } => {
                self.providers.apply_run_fact(fact);
            }
            Fact::TargetVerified { tree, gates, tools, .. } => {
                for gate in gates {
                    self.train.queue_mut().record_passed_gate(tree, gate, tools);
                }
                self.target.apply_run_fact(fact);
            }
            Fact::TargetRechecked(rechecked) => {
                self.target.apply_run_fact(fact);
                self.apply_recheck(rechecked);
            }
            Fact::Noticed { .. } | Fact::RefsRemoved { .. } => {}
            other => {
                let id = other.task().expect("BUG: the facts above are all without a task");
                return self.apply_to_task(id, other, at);
            }
        }
        Ok(())
    }

    fn apply_plan(&mut self, fact: &Fact) -> Result<(), ApplyError> {
        let adopted = self.adopted.apply(fact);
        let adopted = adopted.map_err(|error| ApplyError::BadPlan(error.to_string()))?;
        let Some(old_plan) = adopted else { return Ok(()) };
        let fresh = TaskTable::new(self.adopted.plan(), self.adopted.graph(), &self.settings);
        let old = std::mem::replace(&mut self.tasks, fresh);
        let place =
            |graph: &Graph, t: TaskIx| graph.index_of(old_plan.tasks[t.index()].id.as_str());
        for t in old.all_tasks() {
            let Some(new) = place(self.adopted.graph(), t) else {
                let task = old_plan.tasks[t.index()].id.clone();
                self.adopted.apply_dropped_task(task, old.get(t).clone());
                continue;
            };
            let phase = old.phase(t);
            self.tasks.restore_state(new, old.get(t).clone());
            if !phase.is_idle() {
                self.tasks.set_phase(new, phase, self.adopted.graph(), old.get(t).since);
            }
            let chain =
                old.get(t).chain.iter().filter_map(|c| place(self.adopted.graph(), *c)).collect();
            self.tasks.state_mut(new).chain = chain;
        }
        self.restore_dropped_tasks();
        self.update_all_stacks();
        let moved = |t: TaskIx| place(self.adopted.graph(), t);
        self.train.queue_mut().renumber_tasks(moved);
        self.inbox.renumber_tasks(moved);
        let count = self.adopted.plan().tasks.len();
        self.engine.renumber_tasks(count, moved);
        let before = old_plan.tasks.len();
        let keeps_numbers = before <= count
            && old_plan.tasks.iter().zip(&self.adopted.plan().tasks).all(|(a, b)| a.id == b.id);
        self.issued.adopt_plan(keeps_numbers, before, count);
        if !keeps_numbers {
            self.train.forget_issued_landing();
        }
        Ok(())
    }

    /// A task that a revision dropped and a later one has again is the same task: what landed stays
    /// landed, and its attempts go on being counted.
    fn restore_dropped_tasks(&mut self) {
        for t in self.tasks.all_tasks() {
            let task = self.task_id(t);
            let Some(known) = self.adopted.take_dropped_task(task.as_str()) else { continue };
            let (phase, since) = (known.phase(), known.since);
            // Being blocked by others, and an attempt that nobody followed, are things of the past.
            let over = phase.is_over() && known.chain.is_empty();
            self.tasks.restore_state(t, known);
            self.tasks.state_mut(t).chain.clear();
            if over {
                self.tasks.set_phase(t, phase, self.adopted.graph(), since);
            }
        }
    }

    fn apply_to_task(&mut self, id: &TaskId, fact: &Fact, at: Time) -> Result<(), ApplyError> {
        let Some(t) = self.adopted.graph().index_of(id.as_str()) else {
            // A task that a later revision dropped still has its history.
            return if self.adopted.revision() > 1 {
                Ok(())
            } else {
                Err(ApplyError::UnknownTask(id.clone()))
            };
        };
        let next = self
            .tasks
            .phase(t)
            .next(fact)
            .map_err(|illegal| ApplyError::Illegal { task: id.clone(), illegal })?;
        let moves = self.tasks.phase(t) != next || fact.is_about_pull_request();
        self.apply_task_details(t, fact, at);
        self.tasks.set_phase(t, next, self.adopted.graph(), at);
        if moves {
            self.update_stacks_around(t, fact);
        }
        Ok(())
    }

    /// Takes down what the fact says, before the phase moves.
    fn apply_task_details(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        self.apply_attempt(t, fact, at);
        self.apply_question(t, fact);
        let attempt = self.tasks.get(t).current.as_ref().map(|current| current.n);
        self.inbox.apply_task_fact(t, attempt, fact, at);
        self.run.apply(fact, at);
        self.control.apply(fact);
        self.apply_landing_to_recheck(t, fact);
        self.apply_train(t, fact, at);
        self.forge.apply(fact);
        self.apply_stack(t, fact);
        self.apply_review(t, fact);
        self.apply_kept_work(t, fact);
        self.train.apply_push_trouble(fact);
        let state = self.tasks.state_mut(t);
        match fact {
            Fact::TaskFailed { reason, .. }
            | Fact::TaskCancelled { reason, .. }
            | Fact::TaskSkipped { reason, .. } => {
                reason.clone_into(&mut state.reason);
                state.chain.clear();
            }
            Fact::TaskConflicted { files, .. } => {
                let clash = describe_conflict(files);
                // Set by the attempt that came last: what it found, or why it gave up.
                let gave_up = !state.reason.is_empty() && !state.reason.starts_with(&clash);
                let why = std::mem::take(&mut state.reason);
                state.reason =
                    if gave_up { format!("{clash}; not resolved: {why}") } else { clash };
            }
            Fact::TaskBlocked { reason, chain, .. } => {
                reason.clone_into(&mut state.reason);
                state.chain = chain
                    .iter()
                    .filter_map(|id| self.adopted.graph().index_of(id.as_str()))
                    .collect();
            }
            Fact::TaskUnblocked { .. } => {
                state.reason.clear();
                state.chain.clear();
            }
            Fact::TaskRetried { .. } => {
                state.reason.clear();
                state.chain.clear();
                state.spent = RetryCounts::default();
                state.not_before = None;
                state.help = None;
                self.providers.apply_retry(&self.tasks.resources(t).provider);
            }
            _ => {}
        }
    }

    /// An attempt begins, or its workspace goes.
    fn apply_attempt(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        if let Fact::AttemptIntended { .. } | Fact::WorkspaceRemoved { .. } = fact {
            self.tasks.end_workspace_removal(t);
        }
        let state = self.tasks.state_mut(t);
        if let Fact::AttemptIntended {
            attempt,
            agent,
            provider,
            model,
            branch,
            reserved_usd,
            model_reason,
            session,
            ..
        } = fact
        {
            state.attempts = *attempt;
            state.reason.clear();
            state.help = None;
            state.failed_gate = None;
            let before = state.current.take().filter(|before| !before.removed);
            state.current = Some(AttemptState {
                previous_workspace: before
                    .and_then(|before| before.workspace.or(before.previous_workspace)),
                agent: agent.clone(),
                provider: provider.clone(),
                model: model.clone(),
                model_reason: model_reason.clone(),
                session: session.clone(),
                branch: branch.clone(),
                reserved_usd: *reserved_usd,
                ..AttemptState::new(*attempt, at)
            });
            self.spending.apply_reservation(*reserved_usd);
            self.providers.apply_attempt_start(provider, at);
        } else {
            self.apply_agent_statement(t, fact, at);
            self.apply_remarks(t, fact);
            self.apply_branch_choice(t, fact);
            self.apply_attempt_progress(t, fact, at);
        }
    }

    /// Money and tokens of the attempt under way.
    fn apply_usage(&mut self, t: TaskIx, mark: u64, usage: &Usage, at: Time) {
        let state = self.tasks.state_mut(t);
        let Some(attempt) = state.current.as_mut() else { return };
        attempt.mark = attempt.mark.max(mark);
        attempt.consulted.extend(usage.answering.as_ref().map(|a| a.question.clone()));
        state.input_tokens += usage.input_tokens;
        state.output_tokens += usage.output_tokens;
        let paid = usage.paid_usd();
        state.cost_usd += paid;
        state.included_usd += usage.cost_usd.unwrap_or(0.0) - paid;
        attempt.cost_usd += paid;
        self.spending.apply_payment(paid);
        // What is spent need no longer be set aside.
        let used = paid.min(attempt.reserved_usd);
        attempt.reserved_usd -= used;
        self.spending.apply_reservation_end(used);
        // Who answers questions may be somebody else's customer.
        if usage.answering.is_none() && !std::mem::replace(&mut attempt.answered, true) {
            self.providers.apply_answer(&attempt.provider, at, attempt.intended_at);
        }
    }

    /// What the end of an agent says of its provider.
    fn apply_provider_outcome(
        &mut self,
        t: TaskIx,
        ending: &AgentEnding,
        claim: &AgentClaim,
        at: Time,
    ) {
        let Some(attempt) = self.tasks.get(t).current.as_ref() else { return };
        let spender = (attempt.agent.clone(), attempt.model.clone());
        self.spending.apply_attempt_cost(spender, attempt.cost_usd);
        let (provider, begun) = (&attempt.provider, attempt.intended_at);
        self.providers.apply_agent_end(provider, (ending, claim), at, begun);
    }

    /// What the model of the attempt under way has achieved with it.
    fn apply_model_record(&mut self, t: TaskIx, good: bool) {
        let Some(attempt) = self.tasks.get(t).current.as_ref() else { return };
        let Some(model) = attempt.model.clone() else { return };
        self.spending.apply_model_result(model, good, attempt.cost_usd);
    }

    /// What the agent remarked besides its work, and what was told of it.
    fn apply_remarks(&mut self, t: TaskIx, fact: &Fact) {
        let state = self.tasks.state_mut(t);
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::SessionSeen { mark, session, .. } => {
                attempt.mark = attempt.mark.max(*mark);
                state.session = Some((attempt.agent.clone(), session.clone()));
            }
            Fact::BudgetReached { per_task: true, percent, .. } => state.budget_told = *percent,
            Fact::BudgetReached { per_task: false, percent, .. } => {
                self.spending.apply_budget_notice(*percent);
            }
            Fact::IssueLogged { mark, .. } | Fact::TaskProposed { mark, .. } => {
                attempt.mark = attempt.mark.max(*mark);
            }
            _ => {}
        }
    }

    /// What the agent said, and what was said to it.
    fn apply_agent_statement(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        let state = self.tasks.state_mut(t);
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::UsageReported { mark, usage, .. } => self.apply_usage(t, *mark, usage, at),
            Fact::ProviderLimited { provider, mark, until, message, kind, retrying, .. } => {
                attempt.mark = attempt.mark.max(*mark);
                let begun = attempt.intended_at;
                let (until, kind, retrying) = (*until, *kind, *retrying);
                let limit = LimitReport { at, begun, until, kind, message, retrying };
                self.providers.apply_limit(provider, &limit);
            }
            Fact::AgentResumed { .. } => {
                if let (Some((question, number, reference)), Some(text)) =
                    (&attempt.question, &attempt.answer)
                {
                    attempt.answers.push(PendingAnswer {
                        number: *number,
                        question: question.clone(),
                        text: text.clone(),
                        reference: reference.clone(),
                    });
                }
            }
            _ => {}
        }
    }

    /// Keeps what the next attempt, and people, are told of a failure.
    fn apply_attempt_failure(&mut self, t: TaskIx, fact: &Fact) {
        let Fact::AttemptFailed { attempt: n, class, reason, retry_at, help, .. } = fact else {
            return;
        };
        let state = self.tasks.state_mut(t);
        let Some(attempt) = state.current.as_mut() else { return };
        self.spending.apply_reservation_end(std::mem::take(&mut attempt.reserved_usd));
        state.spent.count_failure(*class, attempt.end_fault());
        state.not_before = *retry_at;
        state.help.clone_from(help);
        reason.clone_into(&mut state.reason);
        state.last = Some(crate::effect::LastFailure {
            attempt: *n,
            class: *class,
            reason: reason.clone(),
            gate_output: std::mem::take(&mut attempt.gate_output),
            files: std::mem::take(&mut attempt.conflict_files),
        });
        attempt.stop = None;
        attempt.pid = None;
        if matches!(
            class,
            FailureClass::AgentFailed | FailureClass::GateFailed | FailureClass::InvalidOutput
        ) {
            self.apply_model_record(t, false);
        }
    }

    /// How far the attempt got.
    fn apply_attempt_progress(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        let state = self.tasks.state_mut(t);
        let keeps_branch = state.keeps_branch();
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::WorkspaceReady { workspace, base, .. } => {
                attempt.workspace = Some(workspace.clone());
                attempt.previous_workspace = None;
                attempt.base = Some(base.clone());
            }
            Fact::AgentStarted { pid, .. } => {
                attempt.pid = Some(*pid);
                attempt.started_at = Some(at);
                state.started_at.get_or_insert(at);
            }
            Fact::StopRequested { then, reason, .. } => {
                attempt.stop = Some((*then, reason.clone()));
            }
            Fact::AgentEnded { ending, claim, .. } => {
                attempt.ending = Some((ending.clone(), claim.clone()));
                attempt.ended_at = Some(at);
                attempt.pid = None;
                state.agent_ms += at.since_ms(attempt.started_at.unwrap_or(at));
                self.spending.apply_reservation_end(std::mem::take(&mut attempt.reserved_usd));
                self.apply_provider_outcome(t, ending, claim, at);
            }
            Fact::EvidenceCollected { evidence, .. } => attempt.evidence = Some(evidence.clone()),
            Fact::SnapshotTaken { refname, commit, .. } => {
                attempt.snapshot_at = Some(at);
                state.snapshot = Some((refname.clone(), commit.clone()));
            }
            // What fails with others is nobody's fault yet, and the branch's own faults are not its.
            Fact::GateRan { verdict, detail, with, scope, .. }
                if *verdict != GateVerdict::Passed
                    && with.is_empty()
                    && *scope != GateScope::Base =>
            {
                detail.clone_into(&mut attempt.gate_output);
                state.failed_gate = FailedGate::from_fact(fact).map(Box::new);
            }
            Fact::CarConflicted { onto, files, .. } => {
                files.clone_into(&mut attempt.conflict_files);
                state.conflict =
                    conflict_of_attempt(attempt, onto, files).or(state.conflict.take());
            }
            Fact::AttemptFailed { .. } => self.apply_attempt_failure(t, fact),
            Fact::WorkspaceRemoved { .. } => {
                attempt.removed = true;
                attempt.workspace = None;
                attempt.previous_workspace = None;
                // Who decides a conflict wants the branch; only the folder went.
                attempt.branch_kept |= keeps_branch;
            }
            _ => {}
        }
    }

    /// What a verdict of the train says of the cars it looked at, and of the tree.
    fn apply_train_verdict(&mut self, t: TaskIx, fact: &Fact) {
        let Fact::GateRan { scope, gate, verdict, tree, with, tools, cached, .. } = fact else {
            return;
        };
        let good = *verdict == GateVerdict::Passed;
        self.target.apply_verdict(fact);
        if good {
            self.train.queue_mut().record_passed_gate(tree, gate, tools);
        }
        let all = &self.settings.gates.verify;
        if *scope == GateScope::Base
            || (good && !self.train.queue().have_gates_passed(tree, all, tools))
        {
            return;
        }
        let mut unit: Vec<TaskIx> =
            with.iter().filter_map(|id| self.adopted.graph().index_of(id.as_str())).collect();
        unit.push(t);
        self.train.queue_mut().record_verdict(&unit, good, *cached);
    }

    fn apply_train(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        match fact {
            // Nothing of it goes through the train.
            Fact::TaskQueued { task, attempt, tip } if self.closes_phase(t) => {
                self.forge.apply_offer(task, *attempt, tip);
            }
            Fact::TaskQueued { attempt, tip, .. } => {
                let priority = self.adopted.plan().tasks[t.index()].priority;
                self.train.queue_mut().enqueue(t, *attempt, tip.clone(), priority);
            }
            Fact::CarFormed { onto, commit, tree, reused, .. } => {
                self.train.queue_mut().set_reused_resolutions(t, reused);
                let (onto, commit, tree) = (onto.clone(), commit.clone(), tree.clone());
                self.train.queue_mut().set_stage(t, CandidateStage::Formed { onto, commit, tree });
            }
            Fact::LandingIntended { old, new, tree, .. } => {
                let (onto, commit) = match self.train.queue().candidate_of(t).map(|car| &car.stage)
                {
                    Some(CandidateStage::Formed { onto, commit, .. }) => {
                        (onto.clone(), commit.clone())
                    }
                    _ => (old.clone(), new.clone()),
                };
                let (old, new, tree) = (old.clone(), new.clone(), tree.clone());
                self.train
                    .queue_mut()
                    .set_stage(t, CandidateStage::Landing { old, new, tree, onto, commit });
            }
            // What a forge's checks say is no verdict on a merge of ours.
            Fact::GateRan { scope: scope @ (GateScope::Train | GateScope::Base), .. }
                if *scope == GateScope::Base || !self.lands_on_forge(t) =>
            {
                self.apply_train_verdict(t, fact);
            }
            Fact::LandingRefused { .. } => {
                self.train.queue_mut().set_stage(t, CandidateStage::Queued);
            }
            Fact::CandidateHeld(_) | Fact::CandidateReleased(_) => self.apply_hold(t, fact),
            Fact::CarConflicted { .. } | Fact::CarEvicted { .. } => {
                self.train.queue_mut().remove_candidate(t);
            }
            Fact::TaskLanded { commit, old, empty, .. } => {
                self.train.queue_mut().remove_landed(t);
                self.target.clear_failure();
                self.apply_model_record(t, true);
                let order = self.train.apply_landing();
                let state = self.tasks.state_mut(t);
                state.reason.clear();
                state.failed_gate = None;
                state.conflict = None;
                state.landed = Some(TaskLanding {
                    commit: commit.clone(),
                    old: old.clone(),
                    empty: *empty,
                    order,
                    at,
                });
            }
            Fact::LandingUndone { commit, .. } => {
                let state = self.tasks.state_mut(t);
                state.landed = None;
                state.undone.push(commit.clone());
                "the landing was undone".clone_into(&mut state.reason);
            }
            _ => {}
        }
    }
}

/// How a clash is told.
pub(super) fn describe_conflict(files: &[String]) -> String {
    format!("conflicts in {}", files.join(", "))
}
