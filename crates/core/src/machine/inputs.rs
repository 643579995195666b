//! What an input means: the decisions. Every change goes through [`Machine::emit_fact`], so it is a
//! fact first.

use crate::attempt_policy::{self, AttemptJudgement};
use crate::capacity::CapacityShortage;
use crate::config::{ConflictAction, LoopingAction, RunFailureAction};
use crate::fact::{
    AgentEnding, AgentFault, BranchChoiceFact, Fact, FailureClass, GateScope, GateVerdict,
    StopFollowUp,
};
use crate::failed_gate::gate_headline;
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::{CommandRefusal, GateResult, Input, InterruptMode, Machine};
use crate::phase::Phase;
use crate::plan::TaskFailureAction;
use crate::provider::Provider;
use crate::tasks::AttemptState;

impl Machine {
    pub(super) fn task_id(&self, t: TaskIx) -> TaskId {
        self.adopted.plan().tasks[t.index()].id.clone()
    }

    /// Is this about the attempt that is under way, in a phase where it can be?
    pub(super) fn is_current_attempt(&self, t: TaskIx, attempt: u32, phases: &[Phase]) -> bool {
        phases.contains(&self.tasks.phase(t))
            && self.tasks.get(t).current.as_ref().is_some_and(|a| a.n == attempt)
    }

    /// Is the workspace of this attempt still being made? Once it stands its agent may live, so a
    /// second, later word on the making must not count.
    fn lacks_workspace(&self, t: TaskIx, attempt: u32) -> bool {
        let lacks = |a: &crate::tasks::AttemptState| a.workspace.is_none();
        self.is_current_attempt(t, attempt, &[Phase::Preparing])
            && self.tasks.get(t).current.as_ref().is_some_and(lacks)
    }

    pub(super) fn handle_input(&mut self, input: Input) -> Option<Result<String, CommandRefusal>> {
        use Phase as P;
        match input {
            Input::Command(command) => return Some(self.handle_command(command)),
            Input::StartRun { target, base, bring_to } => {
                self.emit_fact(Fact::RunStarted { target, base, bring_to });
            }
            Input::AdoptPlan { plan, hash } => self.adopt_plan(plan, hash),
            Input::ConsultationDone { question, said, usage } => {
                self.handle_consultation(&question, said, usage);
            }
            Input::Begin { epoch, pid, host, version, scope } => {
                let jobs = Some(self.job_limit());
                self.emit_fact(Fact::EngineStarted { epoch, pid, host, version, jobs });
                self.begin_epoch(scope.as_deref());
            }
            Input::WorkspaceReady { task, attempt, workspace, base, continued } => {
                if self.lacks_workspace(task, attempt) {
                    let task = self.task_id(task);
                    self.emit_fact(Fact::WorkspaceReady {
                        task,
                        attempt,
                        workspace,
                        base,
                        continued,
                    });
                }
            }
            Input::BranchChosen { task, attempt, branch } => {
                self.record_branch_choice(task, attempt, branch);
            }
            Input::WorkspaceRefused { task, attempt, reason, help } => {
                if self.lacks_workspace(task, attempt) {
                    self.fail_with_help(task, FailureClass::NeedsInput, reason, help);
                }
            }
            Input::WorkspaceFailed { task, attempt, reason } => {
                if self.lacks_workspace(task, attempt) {
                    self.fail_attempt(task, FailureClass::Transient, reason);
                }
            }
            agent @ (Input::AgentStarted { .. }
            | Input::AgentUnreachable { .. }
            | Input::AgentSaid { .. }
            | Input::AgentEnded { .. }) => self.handle_agent_input(agent),
            Input::EvidenceCollected { task, attempt, evidence } => {
                let fresh = |a: &crate::tasks::AttemptState| a.evidence.is_none();
                if self.is_current_attempt(task, attempt, &[P::Verifying])
                    && self.tasks.get(task).current.as_ref().is_some_and(fresh)
                {
                    self.handle_evidence(task, attempt, evidence);
                }
            }
            Input::SnapshotTaken { task, attempt, refname, commit, why } => {
                let task = self.task_id(task);
                self.emit_fact(Fact::SnapshotTaken { task, attempt, refname, commit, why });
            }
            Input::GatesRan { task, attempt, tree, gates } => {
                // Once others were asked, the gates have had their say.
                let looked = |a: &AttemptState| a.evidence.is_some() && a.review.is_none();
                if self.is_current_attempt(task, attempt, &[P::Verifying])
                    && self.tasks.get(task).current.as_ref().is_some_and(looked)
                    && !self.waits_for_decision(task)
                {
                    self.handle_gate_results(task, attempt, &tree, gates);
                }
            }
            other => self.handle_run_input(other),
        }
        None
    }

    /// Nothing of the last life's is known any more but the room there was.
    fn begin_epoch(&mut self, scope: Option<&[TaskIx]>) {
        if self.control.is_paused() {
            self.emit_fact(Fact::RunResumed {});
        }
        self.release_providers(true);
        self.inbox.begin_epoch();
        self.spending.begin_epoch();
        self.target.begin_epoch();
        self.train.begin_epoch();
        self.forge.begin_epoch();
        self.issued = super::owners::IssuedEffects::default();
        let scope = scope.map(|wanted| self.scope_closure(wanted));
        self.engine.begin(scope);
        self.update_all_stacks();
        self.update_all_blocking();
    }

    fn record_branch_choice(&mut self, t: TaskIx, attempt: u32, branch: String) {
        let current = self.tasks.get(t).current.as_ref();
        let Some(instead_of) = current.map(|a| a.branch.clone()) else { return };
        if self.lacks_workspace(t, attempt) && instead_of != branch {
            let task = self.task_id(t);
            let chosen = BranchChoiceFact { task, attempt, branch, instead_of };
            self.emit_fact(Fact::BranchChosen(chosen));
        }
    }

    /// The fold of what [`Self::record_branch_choice`] decided.
    pub(super) fn apply_branch_choice(&mut self, t: TaskIx, fact: &Fact) {
        if let (Fact::BranchChosen(chosen), Some(attempt)) =
            (fact, self.tasks.state_mut(t).current.as_mut())
        {
            chosen.branch.clone_into(&mut attempt.branch);
        }
    }

    fn handle_agent_input(&mut self, input: Input) {
        use Phase as P;
        const AT_WORK: [P; 3] = [P::Preparing, P::Working, P::Asking];
        match input {
            Input::AgentStarted { task, attempt, pid }
                if self.is_current_attempt(task, attempt, &[P::Preparing]) =>
            {
                let id = self.task_id(task);
                self.emit_fact(Fact::AgentStarted { task: id, attempt, pid });
            }
            Input::AgentUnreachable { task, attempt, reason }
                if self.is_current_attempt(task, attempt, &AT_WORK) =>
            {
                self.handle_unreachable_agent(task, &reason);
            }
            Input::AgentSaid { task, attempt, mark, said }
                if self.is_current_attempt(task, attempt, &AT_WORK) =>
            {
                self.handle_agent_statement(task, attempt, mark, said);
            }
            Input::AgentEnded { task, attempt, ending, claim }
                if self.is_current_attempt(task, attempt, &AT_WORK) =>
            {
                let id = self.task_id(task);
                self.emit_fact(Fact::AgentEnded { task: id, attempt, ending, claim });
                self.trip_provider_breaker(task);
            }
            _ => {}
        }
    }

    fn handle_run_input(&mut self, input: Input) {
        use Phase as P;
        match input {
            Input::CheckoutUpdated { task, moved, why } => {
                if matches!(self.tasks.phase(task), P::Merging | P::Landed) {
                    let task = self.task_id(task);
                    self.emit_fact(Fact::CheckoutFollowed { task, moved, why });
                }
            }
            Input::WorkspaceRemoved { task, attempt, workspace } => {
                self.handle_workspace_removed(task, attempt, workspace);
            }
            Input::ForgeActionDone { task, attempt, news } => {
                self.handle_forge_result(task, attempt, news);
            }
            Input::ConflictsForecast(outlook) => self.train.set_forecast(outlook),
            Input::ReviewerDone(news) => self.handle_reviewer_result(*news),
            Input::Interrupt { now } => self.interrupt_engine(now),
            Input::CapacityMeasured(room) => self.update_capacity(room.err()),
            Input::ProviderParked { provider, kind, until, message } => {
                let until = until.min(self.now.plus_ms(limits::PROVIDER_WAIT_MS_MAX));
                let message = limits::clip_for_fact(&message);
                self.emit_fact(Fact::ProviderParked { provider, kind, until, message });
            }
            Input::Notice { task, message } => {
                let task = task.map(|t| self.task_id(t));
                self.emit_fact(Fact::Noticed {
                    task,
                    message: limits::clip_for_fact(&message),
                    lasts: false,
                });
            }
            other => self.handle_train_input(other),
        }
    }

    fn handle_workspace_removed(
        &mut self,
        t: TaskIx,
        attempt: u32,
        workspace: Result<String, String>,
    ) {
        let last = self.tasks.get(t).current.as_ref().is_some_and(|a| a.n == attempt);
        if !last || self.tasks.phase(t).is_active() {
            return;
        }
        let task = self.task_id(t);
        match workspace {
            Ok(workspace) => self.emit_fact(Fact::WorkspaceRemoved { task, attempt, workspace }),
            Err(why) => {
                // Said below, so it is wanted again at once: a git that was killed is no reason to
                // leave things lying about until the next life.
                self.issued.retry_removal(t);
                // By now somebody may want the task done again, and then nobody wants it removed.
                self.tasks.end_workspace_removal(t);
                let message = format!("cannot remove the workspace: {why}");
                let message = limits::clip_for_fact(&message);
                self.emit_fact(Fact::Noticed { task: Some(task), message, lasts: false });
            }
        }
    }

    /// The machine has room for more agents, or no longer; people are told when that changes.
    fn update_capacity(&mut self, no_room: Option<CapacityShortage>) {
        let message = match (self.engine.shortage(), &no_room) {
            (None, Some(short)) if short.nobody => {
                format!("no agents start: waiting for {}", short.why)
            }
            (None, Some(short)) => {
                format!("no more agents start: waiting for {}", short.why)
            }
            (Some(_), None) => "resources are available again: agents can start".to_owned(),
            // Said by an engine that did not live to take it back.
            (None, None) if self.lasting_notice(None).is_some() => {
                "resources are available again: agents can start".to_owned()
            }
            (None, None) | (Some(_), Some(_)) => String::new(),
        };
        if !message.is_empty() {
            self.emit_fact(Fact::Noticed { task: None, message, lasts: no_room.is_some() });
        }
        self.engine.set_shortage(no_room);
    }

    /// Whether the agent lives is not known, so nothing is concluded: a little later everything that
    /// is wanted of it is asked for again.
    fn handle_unreachable_agent(&mut self, t: TaskIx, reason: &str) {
        self.issued.retry_agent(t, self.now);
        let (task, message) = (Some(self.task_id(t)), limits::clip_for_fact(reason));
        self.emit_fact(Fact::Noticed { task, message, lasts: true });
    }

    fn handle_evidence(
        &mut self,
        t: TaskIx,
        attempt: u32,
        evidence: Result<crate::fact::Evidence, String>,
    ) {
        let evidence = match evidence {
            Ok(evidence) => evidence,
            Err(reason) => {
                let reason = format!("cannot read the agent's work: {reason}");
                // The work is there and done: reading it again is cheaper than doing it again.
                if !self.issued.retry_collect(t, attempt) {
                    return self.fail_attempt(t, FailureClass::Transient, reason);
                }
                let (task, message) = (Some(self.task_id(t)), limits::clip_for_fact(&reason));
                return self.emit_fact(Fact::Noticed { task, message, lasts: false });
            }
        };
        let task = self.task_id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let stopped = current.stop.is_some();
        self.emit_fact(Fact::EvidenceCollected { task, attempt, evidence });
        if stopped {
            return self.fail_attempt(t, FailureClass::Interrupted, "stopped".to_owned());
        }
        if !self.fail_on_bad_evidence(t) && self.workspace_gate_count(t) == 0 {
            self.advance_after_gates(t, attempt);
        }
    }

    /// Judges by what is on record, and fails the attempt if that is bad.
    fn fail_on_bad_evidence(&mut self, t: TaskIx) -> bool {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: it was just put on record");
        let unknown = (AgentEnding::Vanished {}, Default::default());
        let (ending, claim) = current.ending.as_ref().unwrap_or(&unknown);
        let start = current.continued.as_ref().map(|there| &there.tree);
        match attempt_policy::judge_attempt(ending, claim, evidence, start) {
            AttemptJudgement::Worked | AttemptJudgement::NothingToDo => false,
            // Who looked at a phase and found nothing to change has done it.
            AttemptJudgement::Bad { class: FailureClass::AgentFailed, .. }
                if self.closes_phase(t)
                    && *ending == (AgentEnding::Exited { code: 0 })
                    && evidence.base == evidence.tip =>
            {
                false
            }
            AttemptJudgement::Bad { class, reason, help } => {
                let (class, reason) = self.reclassify_failure(t, class, reason);
                self.fail_with_help(t, class, reason, help);
                true
            }
        }
    }

    /// What an end amounts to, knowing more than the end itself.
    fn reclassify_failure(
        &self,
        t: TaskIx,
        class: FailureClass,
        reason: String,
    ) -> (FailureClass, String) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let (waits_for_answer, answered_late) = match &current.question {
            Some((name, ..)) if current.answer.is_none() => {
                let open = self.inbox.find_question(name).is_some();
                (Some(name).filter(|_| open), !open)
            }
            _ => (None, false),
        };
        let by_itself = matches!(
            current.ending,
            Some((AgentEnding::Exited { .. } | AgentEnding::TimedOut { idle: true }, _))
        );
        match class {
            FailureClass::AgentFailed | FailureClass::TimedOut
                if by_itself && waits_for_answer.is_some() =>
            {
                let question = waits_for_answer.map_or("", String::as_str);
                let why = format!("the agent exited before question {question} was answered");
                (FailureClass::NeedsInput, why)
            }
            FailureClass::AgentFailed | FailureClass::TimedOut if by_itself && answered_late => (
                FailureClass::Interrupted,
                "the agent exited before receiving an answer".to_owned(),
            ),
            FailureClass::NeedsInput if self.settings.run.on_looping == LoopingAction::Fail => {
                (FailureClass::AgentFailed, reason)
            }
            // Maybe only the session that it took up is gone: once more without.
            FailureClass::Refused
                if current.session.is_some()
                    && current.end_fault() == Some(AgentFault::Request) =>
            {
                (FailureClass::AgentFailed, reason)
            }
            _ => (class, reason),
        }
    }

    /// Puts verdicts on record. `with` is whose work was looked at too.
    pub(super) fn record_gate_results(
        &mut self,
        (t, attempt): (TaskIx, u32),
        scope: GateScope,
        tree: &Oid,
        with: &[TaskId],
        gates: &[GateResult],
    ) {
        for gate in gates {
            let fact = Fact::GateRan {
                task: self.task_id(t),
                attempt,
                scope,
                gate: gate.gate.clone(),
                verdict: gate.verdict,
                tree: tree.clone(),
                duration_ms: gate.duration_ms,
                log: gate.log.clone(),
                detail: gate.detail.clone(),
                cached: gate.cached,
                with: with.to_vec(),
                tools: if scope == GateScope::Task {
                    String::new()
                } else {
                    self.engine.gate_tools().to_owned()
                },
                flakes: gate.flakes,
                exit_code: gate.exit_code,
                cause: gate.cause.clone(),
            };
            self.emit_fact(fact);
        }
    }

    fn handle_gate_results(&mut self, t: TaskIx, attempt: u32, tree: &Oid, gates: Vec<GateResult>) {
        if self.is_suspect(t, attempt) {
            return;
        }
        let stop = self.tasks.get(t).current.as_ref().is_some_and(|a| a.stop.is_some());
        if stop {
            return self.fail_attempt(t, FailureClass::Interrupted, "stopped".to_owned());
        }
        // Gates that were ended because we leave gave no verdict: the next life runs them.
        if self.engine.is_interrupting() {
            return;
        }
        self.record_gate_results((t, attempt), GateScope::Task, tree, &[], &gates);
        // Where the journal lost its end between evidence and judgement, it was never judged.
        if self.fail_on_bad_evidence(t) {
            return;
        }
        match gates.iter().find(|gate| gate.verdict != GateVerdict::Passed) {
            // Fewer verdicts than gates is not a pass.
            None if gates.len() >= self.workspace_gate_count(t) => {
                self.advance_after_gates(t, attempt);
            }
            None => {
                self.fail_attempt(t, FailureClass::GateFailed, "a check gave no result".to_owned());
            }
            Some(_) if self.hold_as_suspect(t, attempt, &gates) => {}
            Some(gate) => self.fail_attempt(t, FailureClass::GateFailed, gate_headline(gate)),
        }
    }

    /// The attempt's own gates are content, and so is everybody else.
    pub(super) fn queue_for_landing(&mut self, t: TaskIx, attempt: u32) {
        let task = self.task_id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
        let (base, tip) = (evidence.base.clone(), evidence.tip.clone());
        // With nothing to add to it, what a pull request offers is still to land.
        let offered = self.forge.pull(&task).is_some_and(|pull| pull.number.is_some())
            || (self.closes_phase(t) && self.lands_on_forge(t))
            // That nothing is to do holds only if what it builds on lands.
            || self.lower_pull_request(t).is_some();
        if (base == tip || evidence.files == 0) && !offered {
            let old = base.clone();
            self.emit_fact(Fact::TaskLanded { task, attempt, commit: base, old, empty: true });
        } else {
            self.emit_fact(Fact::TaskQueued { task, attempt, tip });
        }
    }

    /// The attempt did not lead on: another one, or the end of the task.
    pub(super) fn fail_attempt(&mut self, t: TaskIx, class: FailureClass, reason: String) {
        self.fail_with_help(t, class, reason, None);
    }

    pub(super) fn fail_with_help(
        &mut self,
        t: TaskIx,
        class: FailureClass,
        reason: String,
        help: Option<String>,
    ) {
        let current = self.tasks.get(t).current.as_ref();
        if let Some((then, why)) = current.and_then(|a| a.stop.clone()) {
            self.record_attempt_failure(t, FailureClass::Interrupted, why.clone(), None, None);
            return self.finish_stop(t, then, why);
        }
        let fault = current.and_then(AttemptState::end_fault);
        let provider = current.and_then(|a| self.providers.get(&a.provider));
        let incidents = provider.map_or(0, Provider::incidents);
        let mut spent = self.tasks.get(t).spent.clone();
        spent.count_failure(class, fault);
        let task = &self.adopted.plan().tasks[t.index()];
        let wait =
            attempt_policy::retry_after_ms(class, fault, &spent, incidents, task, &self.settings);
        match wait {
            Some(_) if self.task_budget_spent(t) => {
                let reason = format!("{reason}; the budget of the task (budget.per_task) is spent");
                self.end_attempt(t, class, reason, help);
            }
            Some(0) => self.record_attempt_failure(t, class, reason, None, help),
            Some(wait) => {
                let at = self.now.plus_ms(wait);
                self.record_attempt_failure(t, class, reason, Some(at), help);
            }
            None => self.end_attempt(t, class, reason, help),
        }
    }

    /// The attempt did not lead on, and neither will another.
    pub(super) fn end_attempt(
        &mut self,
        t: TaskIx,
        class: FailureClass,
        reason: String,
        help: Option<String>,
    ) {
        let current = self.tasks.get(t).current.as_ref();
        let mut files = current.map(|a| a.conflict_files.clone()).unwrap_or_default();
        // Whoever was to resolve it did not: that is where it stands, however the attempt ended.
        let unresolved = self.conflict_in_workspace(t).map(|clash| clash.files.clone());
        let clashes = class == FailureClass::Conflicted || unresolved.is_some();
        if files.is_empty() {
            files = unresolved.unwrap_or_default();
        }
        self.record_attempt_failure(t, class, reason.clone(), None, help);
        let task = self.task_id(t);
        let fails = self.settings.land.on_conflict == ConflictAction::Fail;
        if self.adopted.plan().tasks[t.index()].on_failure == TaskFailureAction::Skip {
            self.emit_fact(Fact::TaskSkipped { task, reason: format!("failed: {reason}") });
            return;
        }
        self.emit_fact(match class {
            _ if clashes && !fails => Fact::TaskConflicted { task: task.clone(), files },
            FailureClass::Blocked | FailureClass::NeedsInput => {
                Fact::TaskBlocked { task: task.clone(), chain: Vec::new(), reason }
            }
            _ => Fact::TaskFailed { task: task.clone(), class, reason },
        });
        match self.settings.run.on_failure {
            RunFailureAction::Continue => {}
            _ if self.control.draining().is_some() => {}
            RunFailureAction::Drain => self.emit_fact(Fact::RunDraining { task, abort: false }),
            RunFailureAction::Abort => {
                self.emit_fact(Fact::RunDraining { task: task.clone(), abort: true });
                self.stop_agents(StopFollowUp::Requeue, &format!("{task} failed"));
            }
        }
    }

    fn record_attempt_failure(
        &mut self,
        t: TaskIx,
        class: FailureClass,
        reason: String,
        retry_at: Option<crate::id::Time>,
        help: Option<String>,
    ) {
        let attempt = self.tasks.get(t).attempts;
        let (task, reason) = (self.task_id(t), limits::clip_for_fact(&reason));
        self.emit_fact(Fact::AttemptFailed { task, attempt, class, reason, retry_at, help });
    }

    fn finish_stop(&mut self, t: TaskIx, then: StopFollowUp, reason: String) {
        let task = self.task_id(t);
        match then {
            StopFollowUp::Requeue => {}
            StopFollowUp::Cancel => self.emit_fact(Fact::TaskCancelled { task, reason }),
            StopFollowUp::Skip => self.emit_fact(Fact::TaskSkipped { task, reason }),
        }
    }

    /// Asks an active attempt to end; what becomes of the task then is written down with it.
    pub(super) fn request_stop(&mut self, t: TaskIx, then: StopFollowUp, reason: &str) {
        let phase = self.tasks.phase(t);
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let attempt = current.n;
        // To be free for another attempt is the weakest wish: it never undoes a person's.
        let stronger =
            |(had, _): &(StopFollowUp, String)| *had == then || then == StopFollowUp::Requeue;
        if !phase.is_active() || current.stop.as_ref().is_some_and(stronger) {
            return;
        }
        let (task, reason) = (self.task_id(t), reason.to_owned());
        self.emit_fact(Fact::StopRequested {
            task: task.clone(),
            attempt,
            then,
            reason: reason.clone(),
        });
        // A landing that is intended is finished; the wish counts if the branch refuses it.
        if phase == Phase::Merging && !self.is_landing(t) {
            self.emit_fact(Fact::CarEvicted { task, attempt, reason: reason.clone() });
            self.fail_attempt(t, FailureClass::Interrupted, reason);
        }
    }

    /// Asks every attempt with a living agent to end.
    pub(super) fn stop_agents(&mut self, then: StopFollowUp, reason: &str) {
        let active: Vec<TaskIx> = self.tasks.active_tasks().collect();
        for t in active {
            if matches!(self.tasks.phase(t), Phase::Preparing | Phase::Working | Phase::Asking) {
                self.request_stop(t, then, reason);
            }
        }
    }

    fn interrupt_engine(&mut self, now: bool) {
        if !self.engine.has_begun() {
            return;
        }
        let wanted = if now { InterruptMode::Now } else { InterruptMode::Gently };
        self.engine.interrupt(wanted);
        self.stop_agents(StopFollowUp::Requeue, "the run was interrupted");
    }
}
