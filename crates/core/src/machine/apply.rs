//! The fold: one fact moves the state. Live steps and recovery both come through here, so they
//! cannot disagree. Decides nothing.

use crate::fact::{Claim, Class, Ending, Fact, Fault, GateScope, Usage, Verdict};
use crate::failed_gate::FailedGate;
use crate::graph::Graph;
use crate::id::{TaskId, TaskIx, Time};
use crate::limits;
use crate::machine::clash::clash_of;
use crate::machine::{Decided, Issue, Machine, Proposal};
use crate::phase::IllegalFact;
use crate::plan::Plan;
use crate::policy::Spent;
use crate::provider::Limit;
use crate::tasks::{Answer, AttemptState, Landing, Tasks};
use crate::train::Stage;

/// A journal that does not add up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// A fact that cannot have happened there.
    #[error("task {task}: {illegal}")]
    Illegal {
        /// Whose.
        task: TaskId,
        /// What.
        illegal: IllegalFact,
    },
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
        self.note_lasting(fact);
        match fact {
            Fact::RunStarted { target, base, bring_to } => {
                target.clone_into(&mut self.target);
                self.base = Some(base.clone());
                self.bring_to.clone_from(bring_to);
                self.started_at = Some(at);
            }
            Fact::PlanAdopted { revision, hash, plan, file, .. } => {
                self.revision = *revision;
                self.noted.plan_file = file.clone().or(self.noted.plan_file.take());
                hash.clone_into(&mut self.plan_hash);
                self.adopt(plan)?;
            }
            Fact::ProposalDecided { proposal, becomes } => {
                self.apply_proposal_decision(proposal, becomes.clone());
            }
            Fact::EngineStarted { epoch, jobs, host, .. } => {
                self.alive = Some(*epoch);
                self.noted.engine = Some((host.clone(), *epoch));
                self.stopped = None;
                self.jobs_in_force = *jobs;
                self.note_draining(fact);
                self.cancelled = false;
                // Somebody may have mended it meanwhile: it is found out anew.
                self.red_base = false;
                self.base_failure = None;
                self.adrift = None;
            }
            Fact::EngineStopped { why } => {
                self.alive = None;
                self.stopped = Some(*why);
            }
            Fact::RunPaused {} => self.paused = true,
            Fact::RunResumed {} => self.paused = false,
            Fact::RunCancelled {} => self.cancelled = true,
            Fact::JobsChanged { jobs } => {
                self.jobs = Some(*jobs);
                self.jobs_flag = None;
                self.jobs_in_force = Some(*jobs);
            }
            Fact::RunDraining { .. } => self.note_draining(fact),
            Fact::ProviderParked { provider, kind, until, message } => {
                self.providers.entry(provider.clone()).or_default().park(*kind, *until, message);
            }
            Fact::ProviderFreed { provider } => {
                if let Some(known) = self.providers.get_mut(provider) {
                    known.free();
                }
            }
            Fact::TargetVerified { tree, gates, tools, .. } => {
                for gate in gates {
                    self.train.note_passed(tree, gate, tools);
                }
                self.rechecks.all_good();
            }
            Fact::TargetRechecked(rechecked) => self.note_recheck(rechecked),
            Fact::Noticed { .. } | Fact::RefsRemoved { .. } => {}
            other => {
                let id = other.task().expect("BUG: the facts above are all without a task");
                return self.apply_to_task(id, other, at);
            }
        }
        Ok(())
    }

    /// Proposals are called `P1`, `P2` and so on, in the order in which agents made them.
    fn apply_proposal_decision(&mut self, proposal: &str, becomes: Option<TaskId>) {
        let number = proposal.strip_prefix('P').and_then(|n| n.parse::<usize>().ok());
        let index = number.and_then(|n| n.checked_sub(1));
        if let Some(known) = index.and_then(|index| self.proposals.get_mut(index)) {
            known.decided = Some(becomes.map_or(Decided::Rejected, Decided::Accepted));
        }
    }

    fn adopt(&mut self, plan: &Plan) -> Result<(), ApplyError> {
        let graph = Graph::new(plan).map_err(|error| ApplyError::BadPlan(error.to_string()))?;
        let old_plan = std::mem::replace(&mut self.plan, plan.clone());
        self.graph = graph;
        let fresh = Tasks::new(&self.plan, &self.graph, &self.settings);
        let old = std::mem::replace(&mut self.tasks, fresh);
        let place = |graph: &Graph, t: TaskIx| graph.ix(old_plan.tasks[t.ix()].id.as_str());
        for t in old.all() {
            let Some(new) = place(&self.graph, t) else {
                self.dropped.insert(old_plan.tasks[t.ix()].id.clone(), old.get(t).clone());
                continue;
            };
            let phase = old.phase(t);
            self.tasks.restore(new, old.get(t).clone());
            if !phase.is_idle() {
                self.tasks.set(new, phase, &self.graph, old.get(t).since);
            }
            let chain = old.get(t).chain.iter().filter_map(|c| place(&self.graph, *c)).collect();
            self.tasks.note(new).chain = chain;
        }
        self.take_back();
        self.mind_all_stacks();
        let moved = |t: TaskIx| place(&self.graph, t);
        self.train.renumber(moved);
        self.questions.retain_mut(|q| match place(&self.graph, q.task) {
            Some(t) => {
                q.task = t;
                true
            }
            None => false,
        });
        let count = self.plan.tasks.len();
        if let Some(old_scope) = self.life.scope.take() {
            let mut scope = vec![false; count];
            for t in old.all().filter(|t| old_scope[t.ix()]) {
                if let Some(new) = place(&self.graph, t) {
                    scope[new.ix()] = true;
                }
            }
            self.life.scope = Some(scope);
        }
        let asks = std::mem::take(&mut self.life.asks);
        let asks = asks.into_iter().filter_map(|(t, said)| Some((place(&self.graph, t)?, said)));
        self.life.asks = asks.collect();
        self.life.unreached.clear();
        let begins_alike = old_plan.tasks.len() <= count
            && old_plan.tasks.iter().zip(&self.plan.tasks).all(|(a, b)| a.id == b.id);
        if begins_alike {
            // Every task has kept its number: what was given out is still under way.
            self.life.given.grow(old_plan.tasks.len(), count);
        } else {
            self.life.given = super::want::Given::default();
        }
        Ok(())
    }

    /// A task that a revision dropped and a later one has again is the same task: what landed stays
    /// landed, and its attempts go on being counted.
    fn take_back(&mut self) {
        for t in self.tasks.all() {
            let Some(known) = self.dropped.remove(self.plan.tasks[t.ix()].id.as_str()) else {
                continue;
            };
            let (phase, since) = (known.phase(), known.since);
            // Being blocked by others, and an attempt that nobody followed, are things of the past.
            let over = phase.is_over() && known.chain.is_empty();
            self.tasks.restore(t, known);
            self.tasks.note(t).chain.clear();
            if over {
                self.tasks.set(t, phase, &self.graph, since);
            }
        }
    }

    fn apply_to_task(&mut self, id: &TaskId, fact: &Fact, at: Time) -> Result<(), ApplyError> {
        let Some(t) = self.graph.ix(id.as_str()) else {
            // A task that a later revision dropped still has its history.
            return if self.revision > 1 {
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
        let moves = self.tasks.phase(t) != next || fact.is_of_pull();
        self.note(t, fact, at);
        self.tasks.set(t, next, &self.graph, at);
        if moves {
            self.mind_stacks_around(t, fact);
        }
        Ok(())
    }

    /// Takes down what the fact says, before the phase moves.
    fn note(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        self.note_attempt(t, fact, at);
        self.note_question(t, fact, at);
        self.note_gate_time(fact);
        self.note_landing_to_recheck(t, fact);
        self.note_train(t, fact, at);
        self.note_pull(fact);
        self.note_stack(t, fact);
        self.note_review(t, fact);
        self.note_kept(t, fact);
        self.note_publish(fact);
        let state = self.tasks.note(t);
        match fact {
            Fact::TaskFailed { reason, .. }
            | Fact::TaskCancelled { reason, .. }
            | Fact::TaskSkipped { reason, .. } => {
                reason.clone_into(&mut state.reason);
                state.chain.clear();
            }
            Fact::TaskConflicted { files, .. } => {
                let clash = clash_in_words(files);
                // Set by the attempt that came last: what it found, or why it gave up.
                let gave_up = !state.reason.is_empty() && !state.reason.starts_with(&clash);
                let why = std::mem::take(&mut state.reason);
                state.reason =
                    if gave_up { format!("{clash}; not resolved: {why}") } else { clash };
            }
            Fact::TaskBlocked { reason, chain, .. } => {
                reason.clone_into(&mut state.reason);
                state.chain = chain.iter().filter_map(|id| self.graph.ix(id.as_str())).collect();
            }
            Fact::TaskUnblocked { .. } => {
                state.reason.clear();
                state.chain.clear();
            }
            Fact::TaskRetried { .. } => {
                state.reason.clear();
                state.chain.clear();
                state.spent = Spent::default();
                state.not_before = None;
                state.help = None;
                if let Some(known) = self.providers.get_mut(&self.tasks.claims(t).provider) {
                    known.forgive();
                }
            }
            _ => {}
        }
    }

    /// An attempt begins, or its workspace goes.
    fn note_attempt(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        if let Fact::AttemptIntended { .. } | Fact::WorkspaceRemoved { .. } = fact {
            self.tasks.end_removal(t);
        }
        let state = self.tasks.note(t);
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
                stands: before.and_then(|before| before.workspace.or(before.stands)),
                agent: agent.clone(),
                provider: provider.clone(),
                model: model.clone(),
                model_reason: model_reason.clone(),
                session: session.clone(),
                branch: branch.clone(),
                reserved_usd: *reserved_usd,
                ..AttemptState::new(*attempt, at)
            });
            self.reserved_usd += reserved_usd;
            if let Some(known) = self.providers.get_mut(provider) {
                known.tried(at);
            }
        } else {
            self.note_words(t, fact, at);
            self.note_remarks(t, fact, at);
            self.note_branch(t, fact);
            self.note_course(t, fact, at);
        }
    }

    /// Money and tokens of the attempt under way.
    fn note_usage(&mut self, t: TaskIx, mark: u64, usage: &Usage, at: Time) {
        let state = self.tasks.note(t);
        let Some(attempt) = state.current.as_mut() else { return };
        attempt.mark = attempt.mark.max(mark);
        attempt.consulted.extend(usage.answering.as_ref().map(|a| a.question.clone()));
        state.input_tokens += usage.input_tokens;
        state.output_tokens += usage.output_tokens;
        let paid = usage.paid_usd();
        state.cost_usd += paid;
        state.included_usd += usage.cost_usd.unwrap_or(0.0) - paid;
        attempt.cost_usd += paid;
        self.spent_usd += paid;
        // What is spent need no longer be set aside.
        let used = paid.min(attempt.reserved_usd);
        attempt.reserved_usd -= used;
        self.reserved_usd -= used;
        // Who answers questions may be somebody else's customer.
        if usage.answering.is_none()
            && !std::mem::replace(&mut attempt.answered, true)
            && let Some(known) = self.providers.get_mut(&attempt.provider)
        {
            known.answered(at, attempt.intended_at);
        }
    }

    /// What the end of an agent says of its provider.
    fn note_service(&mut self, t: TaskIx, ending: &Ending, claim: &Claim, at: Time) {
        let Some(attempt) = self.tasks.get(t).current.as_ref() else { return };
        let (provider, begun) = (attempt.provider.clone(), attempt.intended_at);
        let spender = (attempt.agent.clone(), attempt.model.clone());
        let usd = attempt.cost_usd;
        self.note_paid(spender, usd);
        match claim {
            Claim::Failed { fault: Fault::Transient, .. } => {
                self.providers.entry(provider).or_default().failed();
            }
            Claim::RateLimited {} | Claim::QuotaExhausted {} | Claim::Failed { .. } => {}
            Claim::None
            | Claim::NothingToDo { .. }
            | Claim::Blocked { .. }
            | Claim::Done { .. } => {
                if *ending == (Ending::Exited { code: 0 })
                    && let Some(known) = self.providers.get_mut(&provider)
                {
                    known.served(at, begun);
                }
            }
        }
    }

    /// What the model of the attempt under way has achieved with it.
    fn note_record(&mut self, t: TaskIx, good: bool) {
        let Some(attempt) = self.tasks.get(t).current.as_ref() else { return };
        let Some(model) = attempt.model.clone() else { return };
        let record = self.records.entry(model).or_default();
        record.ended += 1;
        record.good += u32::from(good);
        record.usd += attempt.cost_usd;
    }

    /// What the agent remarked besides its work, and what was told of it.
    fn note_remarks(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        let state = self.tasks.note(t);
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::SessionSeen { mark, session, .. } => {
                attempt.mark = attempt.mark.max(*mark);
                state.session = Some((attempt.agent.clone(), session.clone()));
            }
            Fact::BudgetReached { per_task: true, percent, .. } => state.budget_told = *percent,
            Fact::BudgetReached { per_task: false, percent, .. } => self.budget_told = *percent,
            Fact::IssueLogged { task, mark, title, text, severity, .. } => {
                attempt.mark = attempt.mark.max(*mark);
                if self.issues.len() < limits::REMARKS_MAX {
                    let (task, title, text) = (task.clone(), title.clone(), text.clone());
                    self.issues.push(Issue { task, title, text, severity: severity.clone(), at });
                }
            }
            Fact::TaskProposed { task, attempt: n, mark, id, title, description, needs } => {
                attempt.mark = attempt.mark.max(*mark);
                if self.proposals.len() < limits::REMARKS_MAX {
                    self.proposals.push(Proposal {
                        task: task.clone(),
                        attempt: *n,
                        id: id.clone(),
                        title: title.clone(),
                        description: description.clone(),
                        needs: needs.clone(),
                        at,
                        decided: None,
                    });
                }
            }
            _ => {}
        }
    }

    /// What the agent said, and what was said to it.
    fn note_words(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        let state = self.tasks.note(t);
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::UsageReported { mark, usage, .. } => self.note_usage(t, *mark, usage, at),
            Fact::ProviderLimited { provider, mark, until, message, kind, retrying, .. } => {
                attempt.mark = attempt.mark.max(*mark);
                let begun = attempt.intended_at;
                let (until, kind, retrying) = (*until, *kind, *retrying);
                let limit = Limit { at, begun, until, kind, message, retrying };
                self.providers.entry(provider.clone()).or_default().limited(&limit);
            }
            Fact::AgentResumed { .. } => {
                if let (Some((question, number, reference)), Some(text)) =
                    (&attempt.question, &attempt.answer)
                {
                    attempt.answers.push(Answer {
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

    /// How far the attempt got.
    fn note_course(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        let state = self.tasks.note(t);
        let keeps_branch = state.keeps_branch();
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::WorkspaceReady { workspace, base, .. } => {
                attempt.workspace = Some(workspace.clone());
                attempt.stands = None;
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
                self.reserved_usd -= std::mem::take(&mut attempt.reserved_usd);
                self.note_service(t, ending, claim, at);
            }
            Fact::EvidenceCollected { evidence, .. } => attempt.evidence = Some(evidence.clone()),
            Fact::SnapshotTaken { refname, commit, .. } => {
                attempt.snapshot_at = Some(at);
                state.snapshot = Some((refname.clone(), commit.clone()));
            }
            // What fails with others is nobody's fault yet, and the branch's own faults are not its.
            Fact::GateRan { verdict, detail, with, scope, .. }
                if *verdict != Verdict::Passed && with.is_empty() && *scope != GateScope::Base =>
            {
                detail.clone_into(&mut attempt.gate_output);
                state.failed_gate = FailedGate::of(fact).map(Box::new);
            }
            Fact::CarConflicted { onto, files, .. } => {
                files.clone_into(&mut attempt.clash);
                state.clash = clash_of(attempt, onto, files).or(state.clash.take());
            }
            Fact::AttemptFailed { attempt: n, class, reason, retry_at, help, .. } => {
                self.reserved_usd -= std::mem::take(&mut attempt.reserved_usd);
                state.spent.count(*class, attempt.fault());
                state.not_before = *retry_at;
                state.help.clone_from(help);
                reason.clone_into(&mut state.reason);
                state.last = Some(crate::effect::LastFailure {
                    attempt: *n,
                    class: *class,
                    reason: reason.clone(),
                    gate_output: std::mem::take(&mut attempt.gate_output),
                    files: std::mem::take(&mut attempt.clash),
                });
                attempt.stop = None;
                attempt.pid = None;
                if matches!(class, Class::AgentFailed | Class::GateFailed | Class::InvalidOutput) {
                    self.note_record(t, false);
                }
            }
            Fact::WorkspaceRemoved { .. } => {
                attempt.removed = true;
                attempt.workspace = None;
                attempt.stands = None;
                // Who decides a conflict wants the branch; only the folder went.
                attempt.branch_kept |= keeps_branch;
            }
            _ => {}
        }
    }

    /// What a verdict of the train says of the cars it looked at, and of the tree.
    fn note_verdict(&mut self, t: TaskIx, fact: &Fact) {
        let Fact::GateRan { scope, gate, verdict, tree, with, tools, cached, .. } = fact else {
            return;
        };
        let good = *verdict == Verdict::Passed;
        if *scope == GateScope::Base {
            self.red_base = *verdict == Verdict::Failed;
            self.base_failure = FailedGate::of(fact).filter(|_| self.red_base).map(Box::new);
        }
        if good {
            self.train.note_passed(tree, gate, tools);
        }
        let all = &self.settings.gates.verify;
        if *scope == GateScope::Base || (good && !self.train.has_passed(tree, all, tools)) {
            return;
        }
        let mut unit: Vec<TaskIx> =
            with.iter().filter_map(|id| self.graph.ix(id.as_str())).collect();
        unit.push(t);
        self.train.judged(&unit, good, *cached);
    }

    fn note_train(&mut self, t: TaskIx, fact: &Fact, at: Time) {
        match fact {
            // Nothing of it goes through the train.
            Fact::TaskQueued { task, attempt, tip } if self.closes_phase(t) => {
                self.offers.insert(task.clone(), (*attempt, tip.clone()));
            }
            Fact::TaskQueued { attempt, tip, .. } => {
                let priority = self.plan.tasks[t.ix()].priority;
                self.train.enqueue(t, *attempt, tip.clone(), priority);
            }
            Fact::CarFormed { onto, commit, tree, reused, .. } => {
                self.train.note_reused(t, reused);
                let (onto, commit, tree) = (onto.clone(), commit.clone(), tree.clone());
                self.train.set(t, Stage::Formed { onto, commit, tree });
            }
            Fact::LandingIntended { old, new, tree, .. } => {
                let (onto, commit) = match self.train.car(t).map(|car| &car.stage) {
                    Some(Stage::Formed { onto, commit, .. }) => (onto.clone(), commit.clone()),
                    _ => (old.clone(), new.clone()),
                };
                let (old, new, tree) = (old.clone(), new.clone(), tree.clone());
                self.train.set(t, Stage::Landing { old, new, tree, onto, commit });
            }
            // What a forge's checks say is no verdict on a merge of ours.
            Fact::GateRan { scope: scope @ (GateScope::Train | GateScope::Base), .. }
                if *scope == GateScope::Base || !self.lands_by_pull(t) =>
            {
                self.note_verdict(t, fact);
            }
            Fact::LandingRefused { .. } => self.train.set(t, Stage::Queued),
            Fact::CandidateHeld(_) | Fact::CandidateReleased(_) => self.note_hold(t, fact),
            Fact::CarConflicted { .. } | Fact::CarEvicted { .. } => self.train.leave(t),
            Fact::TaskLanded { commit, old, empty, .. } => {
                self.train.landed(t);
                self.red_base = false;
                self.base_failure = None;
                self.note_record(t, true);
                self.landings += 1;
                let state = self.tasks.note(t);
                state.reason.clear();
                state.failed_gate = None;
                state.clash = None;
                state.landed = Some(Landing {
                    commit: commit.clone(),
                    old: old.clone(),
                    empty: *empty,
                    order: self.landings,
                    at,
                });
            }
            Fact::LandingUndone { commit, .. } => {
                let state = self.tasks.note(t);
                state.landed = None;
                state.undone.push(commit.clone());
                "the landing was undone".clone_into(&mut state.reason);
            }
            _ => {}
        }
    }
}

/// How a clash is told.
pub(super) fn clash_in_words(files: &[String]) -> String {
    format!("conflicts in {}", files.join(", "))
}
