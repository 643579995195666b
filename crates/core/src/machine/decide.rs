//! What an input means: the decisions. Every change goes through [`Machine::emit`], so it is a
//! fact first.

use crate::config::{OnConflict, OnLooping, RunOnFailure};
use crate::fact::{AfterStop, BranchChosen, Class, Ending, Fact, Fault, GateScope, Verdict};
use crate::failed_gate::headline_of;
use crate::id::{Oid, TaskId, TaskIx};
use crate::limits;
use crate::machine::{GateResult, Input, Interrupting, Machine, Refusal};
use crate::phase::Phase;
use crate::plan::OnFailure;
use crate::policy::{self, Judgement};
use crate::provider::Provider;
use crate::room::Shortage;
use crate::tasks::AttemptState;

/// How often what an agent left is tried to be read in one life.
const COLLECTS_MAX: u32 = 3;
/// How often a workspace is tried to be removed in one life.
const REMOVALS_MAX: u32 = 3;

impl Machine {
    pub(super) fn id(&self, t: TaskIx) -> TaskId {
        self.plan.tasks[t.ix()].id.clone()
    }

    /// Is this about the attempt that is under way, in a phase where it can be?
    pub(super) fn is_current(&self, t: TaskIx, attempt: u32, phases: &[Phase]) -> bool {
        phases.contains(&self.tasks.phase(t))
            && self.tasks.get(t).current.as_ref().is_some_and(|a| a.n == attempt)
    }

    /// Is the workspace of this attempt still being made? Once it stands its agent may live, so a
    /// second, later word on the making must not count.
    fn lacks_workspace(&self, t: TaskIx, attempt: u32) -> bool {
        let lacks = |a: &crate::tasks::AttemptState| a.workspace.is_none();
        self.is_current(t, attempt, &[Phase::Preparing])
            && self.tasks.get(t).current.as_ref().is_some_and(lacks)
    }

    pub(super) fn take(&mut self, input: Input) -> Option<Result<String, Refusal>> {
        use Phase as P;
        match input {
            Input::Command(command) => return Some(self.command(command)),
            Input::StartRun { target, base, bring_to } => {
                self.emit(Fact::RunStarted { target, base, bring_to });
            }
            Input::AdoptPlan { plan, hash } => self.adopt_plan(plan, hash),
            Input::Consulted { question, said, usage } => self.consulted(&question, said, usage),
            Input::Begin { epoch, pid, host, version, scope } => {
                let jobs = Some(self.jobs());
                self.emit(Fact::EngineStarted { epoch, pid, host, version, jobs });
                self.begin_life(scope.as_deref());
            }
            Input::WorkspaceReady { task, attempt, workspace, base, continued } => {
                if self.lacks_workspace(task, attempt) {
                    let task = self.id(task);
                    self.emit(Fact::WorkspaceReady { task, attempt, workspace, base, continued });
                }
            }
            Input::BranchChosen { task, attempt, branch } => {
                self.branch_chosen(task, attempt, branch);
            }
            Input::WorkspaceRefused { task, attempt, reason, help } => {
                if self.lacks_workspace(task, attempt) {
                    self.fail_with_help(task, Class::NeedsInput, reason, help);
                }
            }
            Input::WorkspaceFailed { task, attempt, reason } => {
                if self.lacks_workspace(task, attempt) {
                    self.fail_attempt(task, Class::Transient, reason);
                }
            }
            agent @ (Input::AgentStarted { .. }
            | Input::AgentUnreached { .. }
            | Input::AgentSaid { .. }
            | Input::AgentEnded { .. }) => self.take_of_agent(agent),
            Input::Collected { task, attempt, evidence } => {
                let fresh = |a: &crate::tasks::AttemptState| a.evidence.is_none();
                if self.is_current(task, attempt, &[P::Verifying])
                    && self.tasks.get(task).current.as_ref().is_some_and(fresh)
                {
                    self.collected(task, attempt, evidence);
                }
            }
            Input::Snapshotted { task, attempt, refname, commit, why } => {
                let task = self.id(task);
                self.emit(Fact::SnapshotTaken { task, attempt, refname, commit, why });
            }
            Input::GatesRan { task, attempt, tree, gates } => {
                // Once others were asked, the gates have had their say.
                let looked = |a: &AttemptState| a.evidence.is_some() && a.review.is_none();
                if self.is_current(task, attempt, &[P::Verifying])
                    && self.tasks.get(task).current.as_ref().is_some_and(looked)
                    && !self.waits_for_decision(task)
                {
                    self.gates_ran(task, attempt, &tree, gates);
                }
            }
            other => self.take_of_run(other),
        }
        None
    }

    /// Nothing of the last life's is known any more but the room there was.
    fn begin_life(&mut self, scope: Option<&[TaskIx]>) {
        if self.paused {
            self.emit(Fact::RunResumed {});
        }
        self.free_providers(true);
        let no_room = self.life.no_room.take();
        self.life = super::Life { begun: true, no_room, ..super::Life::default() };
        self.life.scope = scope.map(|wanted| self.scope_of(wanted));
        self.mind_all_stacks();
        self.suspect_all();
    }

    fn branch_chosen(&mut self, t: TaskIx, attempt: u32, branch: String) {
        let current = self.tasks.get(t).current.as_ref();
        let Some(instead_of) = current.map(|a| a.branch.clone()) else { return };
        if self.lacks_workspace(t, attempt) && instead_of != branch {
            let task = self.id(t);
            let chosen = BranchChosen { task, attempt, branch, instead_of };
            self.emit(Fact::BranchChosen(chosen));
        }
    }

    /// The fold of what [`Self::branch_chosen`] decided.
    pub(super) fn note_branch(&mut self, t: TaskIx, fact: &Fact) {
        if let (Fact::BranchChosen(chosen), Some(attempt)) =
            (fact, self.tasks.note(t).current.as_mut())
        {
            chosen.branch.clone_into(&mut attempt.branch);
        }
    }

    fn take_of_agent(&mut self, input: Input) {
        use Phase as P;
        const AT_WORK: [P; 3] = [P::Preparing, P::Working, P::Asking];
        match input {
            Input::AgentStarted { task, attempt, pid }
                if self.is_current(task, attempt, &[P::Preparing]) =>
            {
                let id = self.id(task);
                self.emit(Fact::AgentStarted { task: id, attempt, pid });
            }
            Input::AgentUnreached { task, attempt, reason }
                if self.is_current(task, attempt, &AT_WORK) =>
            {
                self.agent_unreached(task, &reason);
            }
            Input::AgentSaid { task, attempt, mark, said }
                if self.is_current(task, attempt, &AT_WORK) =>
            {
                self.agent_said(task, attempt, mark, said);
            }
            Input::AgentEnded { task, attempt, ending, claim }
                if self.is_current(task, attempt, &AT_WORK) =>
            {
                let id = self.id(task);
                self.emit(Fact::AgentEnded { task: id, attempt, ending, claim });
                self.break_off(task);
            }
            _ => {}
        }
    }

    fn take_of_run(&mut self, input: Input) {
        use Phase as P;
        match input {
            Input::CheckoutFollowed { task, moved, why } => {
                if matches!(self.tasks.phase(task), P::Merging | P::Landed) {
                    let task = self.id(task);
                    self.emit(Fact::CheckoutFollowed { task, moved, why });
                }
            }
            Input::WorkspaceRemoved { task, attempt, workspace } => {
                self.workspace_removed(task, attempt, workspace);
            }
            Input::Pull { task, attempt, news } => self.take_of_pull(task, attempt, news),
            Input::Outlook(outlook) => self.life.outlook = outlook,
            Input::Reviewed(news) => self.reviewed(*news),
            Input::Interrupt { now } => self.interrupt(now),
            Input::Room(room) => self.room(room.err()),
            Input::Park { provider, kind, until, message } => {
                let until = until.min(self.now.plus_ms(limits::PROVIDER_WAIT_MS_MAX));
                let message = limits::brief(&message);
                self.emit(Fact::ProviderParked { provider, kind, until, message });
            }
            Input::Notice { task, message } => {
                let task = task.map(|t| self.id(t));
                self.emit(Fact::Noticed { task, message: limits::brief(&message), lasts: false });
            }
            other => self.take_of_train(other),
        }
    }

    fn workspace_removed(&mut self, t: TaskIx, attempt: u32, workspace: Result<String, String>) {
        let last = self.tasks.get(t).current.as_ref().is_some_and(|a| a.n == attempt);
        if !last || self.tasks.phase(t).is_active() {
            return;
        }
        let task = self.id(t);
        match workspace {
            Ok(workspace) => self.emit(Fact::WorkspaceRemoved { task, attempt, workspace }),
            Err(why) => {
                // Said below, so it is wanted again at once: a git that was killed is no reason to
                // leave things lying about until the next life.
                let failed = self.life.removals_failed.entry(t).or_default();
                *failed += 1;
                if *failed < REMOVALS_MAX {
                    self.life.given.forget(t);
                }
                // By now somebody may want the task done again, and then nobody wants it removed.
                self.tasks.end_removal(t);
                let message = format!("cannot remove the workspace: {why}");
                let message = limits::brief(&message);
                self.emit(Fact::Noticed { task: Some(task), message, lasts: false });
            }
        }
    }

    /// The machine has room for more agents, or no longer; people are told when that changes.
    fn room(&mut self, no_room: Option<Shortage>) {
        let message = match (&self.life.no_room, &no_room) {
            (None, Some(short)) if short.nobody => {
                format!("no agents start: waiting for {}", short.why)
            }
            (None, Some(short)) => {
                format!("no more agents start: waiting for {}", short.why)
            }
            (Some(_), None) => "resources are available again: agents can start".to_owned(),
            // Said by an engine that did not live to take it back.
            (None, None) if self.lasting(None).is_some() => {
                "resources are available again: agents can start".to_owned()
            }
            (None, None) | (Some(_), Some(_)) => String::new(),
        };
        if !message.is_empty() {
            self.emit(Fact::Noticed { task: None, message, lasts: no_room.is_some() });
        }
        self.life.no_room = no_room;
    }

    /// Whether the agent lives is not known, so nothing is concluded: a little later everything that
    /// is wanted of it is asked for again.
    fn agent_unreached(&mut self, t: TaskIx, reason: &str) {
        let tries = self.life.unreached.get(&t).map_or(0, |(tries, _)| *tries);
        let wait = (limits::TRANSIENT_WAIT_MS << tries.min(7)).min(limits::TRANSIENT_WAIT_MS_MAX);
        self.life.unreached.insert(t, (tries + 1, self.now.plus_ms(wait)));
        self.life.given.forget_agent(t);
        let (task, message) = (Some(self.id(t)), limits::brief(reason));
        self.emit(Fact::Noticed { task, message, lasts: true });
    }

    fn collected(
        &mut self,
        t: TaskIx,
        attempt: u32,
        evidence: Result<crate::fact::Evidence, String>,
    ) {
        let evidence = match evidence {
            Ok(evidence) => evidence,
            Err(reason) => {
                let reason = format!("cannot read the agent's work: {reason}");
                let failed = self.life.collects_failed.entry((t, attempt)).or_default();
                *failed += 1;
                if *failed >= COLLECTS_MAX {
                    return self.fail_attempt(t, Class::Transient, reason);
                }
                // The work is there and done: reading it again is cheaper than doing it again.
                self.life.given.forget(t);
                let (task, message) = (Some(self.id(t)), limits::brief(&reason));
                return self.emit(Fact::Noticed { task, message, lasts: false });
            }
        };
        let task = self.id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let stopped = current.stop.is_some();
        self.emit(Fact::EvidenceCollected { task, attempt, evidence });
        if stopped {
            return self.fail_attempt(t, Class::Interrupted, "stopped".to_owned());
        }
        if !self.failed_by_evidence(t) && self.gates_wanted(t) == 0 {
            self.advance(t, attempt);
        }
    }

    /// Judges by what is on record, and fails the attempt if that is bad.
    fn failed_by_evidence(&mut self, t: TaskIx) -> bool {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: it was just put on record");
        let unknown = (Ending::Vanished {}, Default::default());
        let (ending, claim) = current.ending.as_ref().unwrap_or(&unknown);
        let start = current.continued.as_ref().map(|there| &there.tree);
        match policy::judge(ending, claim, evidence, start) {
            Judgement::Worked | Judgement::NothingToDo => false,
            // Who looked at a phase and found nothing to change has done it.
            Judgement::Bad { class: Class::AgentFailed, .. }
                if self.closes_phase(t)
                    && *ending == (Ending::Exited { code: 0 })
                    && evidence.base == evidence.tip =>
            {
                false
            }
            Judgement::Bad { class, reason, help } => {
                let (class, reason) = self.in_context(t, class, reason);
                self.fail_with_help(t, class, reason, help);
                true
            }
        }
    }

    /// What an end amounts to, knowing more than the end itself.
    fn in_context(&self, t: TaskIx, class: Class, reason: String) -> (Class, String) {
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let (waits_for_answer, answered_late) = match &current.question {
            Some((name, ..)) if current.answer.is_none() => {
                let open = self.questions.iter().any(|q| q.name == *name);
                (Some(name).filter(|_| open), !open)
            }
            _ => (None, false),
        };
        let by_itself = matches!(
            current.ending,
            Some((Ending::Exited { .. } | Ending::TimedOut { idle: true }, _))
        );
        match class {
            Class::AgentFailed | Class::TimedOut if by_itself && waits_for_answer.is_some() => {
                let question = waits_for_answer.map_or("", String::as_str);
                let why = format!("the agent exited before question {question} was answered");
                (Class::NeedsInput, why)
            }
            Class::AgentFailed | Class::TimedOut if by_itself && answered_late => {
                (Class::Interrupted, "the agent exited before receiving an answer".to_owned())
            }
            Class::NeedsInput if self.settings.run.on_looping == OnLooping::Fail => {
                (Class::AgentFailed, reason)
            }
            // Maybe only the session that it took up is gone: once more without.
            Class::Refused
                if current.session.is_some() && current.fault() == Some(Fault::Request) =>
            {
                (Class::AgentFailed, reason)
            }
            _ => (class, reason),
        }
    }

    /// Puts verdicts on record. `with` is whose work was looked at too.
    pub(super) fn record_gates(
        &mut self,
        (t, attempt): (TaskIx, u32),
        scope: GateScope,
        tree: &Oid,
        with: &[TaskId],
        gates: &[GateResult],
    ) {
        for gate in gates {
            let fact = Fact::GateRan {
                task: self.id(t),
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
                tools: if scope == GateScope::Task { String::new() } else { self.tools.clone() },
                flakes: gate.flakes,
                exit_code: gate.exit_code,
                cause: gate.cause.clone(),
            };
            self.emit(fact);
        }
    }

    fn gates_ran(&mut self, t: TaskIx, attempt: u32, tree: &Oid, gates: Vec<GateResult>) {
        if self.is_suspect(t, attempt) {
            return;
        }
        let stop = self.tasks.get(t).current.as_ref().is_some_and(|a| a.stop.is_some());
        if stop {
            return self.fail_attempt(t, Class::Interrupted, "stopped".to_owned());
        }
        // Gates that were ended because we leave gave no verdict: the next life runs them.
        if self.life.interrupting.is_some() {
            return;
        }
        self.record_gates((t, attempt), GateScope::Task, tree, &[], &gates);
        // Where the journal lost its end between evidence and judgement, it was never judged.
        if self.failed_by_evidence(t) {
            return;
        }
        match gates.iter().find(|gate| gate.verdict != Verdict::Passed) {
            // Fewer verdicts than gates is not a pass.
            None if gates.len() >= self.gates_wanted(t) => self.advance(t, attempt),
            None => self.fail_attempt(t, Class::GateFailed, "a check gave no result".to_owned()),
            Some(_) if self.suspects(t, attempt, &gates) => {}
            Some(gate) => self.fail_attempt(t, Class::GateFailed, headline_of(gate)),
        }
    }

    /// The attempt's own gates are content, and so is everybody else.
    pub(super) fn passed(&mut self, t: TaskIx, attempt: u32) {
        let task = self.id(t);
        let current = self.tasks.get(t).current.as_ref().expect("BUG: checked by is_current");
        let evidence = current.evidence.as_ref().expect("BUG: gates run on evidence");
        let (base, tip) = (evidence.base.clone(), evidence.tip.clone());
        // With nothing to add to it, what a pull request offers is still to land.
        let offered = self.pulls.get(&task).is_some_and(|pull| pull.number.is_some())
            || (self.closes_phase(t) && self.lands_by_pull(t))
            // That nothing is to do holds only if what it builds on lands.
            || self.below(t).is_some();
        if (base == tip || evidence.files == 0) && !offered {
            let old = base.clone();
            self.emit(Fact::TaskLanded { task, attempt, commit: base, old, empty: true });
        } else {
            self.emit(Fact::TaskQueued { task, attempt, tip });
        }
    }

    /// The attempt did not lead on: another one, or the end of the task.
    pub(super) fn fail_attempt(&mut self, t: TaskIx, class: Class, reason: String) {
        self.fail_with_help(t, class, reason, None);
    }

    pub(super) fn fail_with_help(
        &mut self,
        t: TaskIx,
        class: Class,
        reason: String,
        help: Option<String>,
    ) {
        let current = self.tasks.get(t).current.as_ref();
        if let Some((then, why)) = current.and_then(|a| a.stop.clone()) {
            self.attempt_failed(t, Class::Interrupted, why.clone(), None, None);
            return self.after_stop(t, then, why);
        }
        let fault = current.and_then(AttemptState::fault);
        let provider = current.and_then(|a| self.providers.get(&a.provider));
        let incidents = provider.map_or(0, Provider::incidents);
        let mut spent = self.tasks.get(t).spent.clone();
        spent.count(class, fault);
        let task = &self.plan.tasks[t.ix()];
        let wait = policy::retry_after_ms(class, fault, &spent, incidents, task, &self.settings);
        match wait {
            Some(_) if self.task_budget_spent(t) => {
                let reason = format!("{reason}; the budget of the task (budget.per_task) is spent");
                self.end_attempt(t, class, reason, help);
            }
            Some(0) => self.attempt_failed(t, class, reason, None, help),
            Some(wait) => {
                let at = self.now.plus_ms(wait);
                self.attempt_failed(t, class, reason, Some(at), help);
            }
            None => self.end_attempt(t, class, reason, help),
        }
    }

    /// The attempt did not lead on, and neither will another.
    pub(super) fn end_attempt(
        &mut self,
        t: TaskIx,
        class: Class,
        reason: String,
        help: Option<String>,
    ) {
        let current = self.tasks.get(t).current.as_ref();
        let mut files = current.map(|a| a.clash.clone()).unwrap_or_default();
        // Whoever was to resolve it did not: that is where it stands, however the attempt ended.
        let unresolved = self.lays_out(t).map(|clash| clash.files.clone());
        let clashes = class == Class::Conflicted || unresolved.is_some();
        if files.is_empty() {
            files = unresolved.unwrap_or_default();
        }
        self.attempt_failed(t, class, reason.clone(), None, help);
        let task = self.id(t);
        let fails = self.settings.land.on_conflict == OnConflict::Fail;
        if self.plan.tasks[t.ix()].on_failure == OnFailure::Skip {
            self.emit(Fact::TaskSkipped { task, reason: format!("failed: {reason}") });
            return;
        }
        self.emit(match class {
            _ if clashes && !fails => Fact::TaskConflicted { task: task.clone(), files },
            Class::Blocked | Class::NeedsInput => {
                Fact::TaskBlocked { task: task.clone(), chain: Vec::new(), reason }
            }
            _ => Fact::TaskFailed { task: task.clone(), class, reason },
        });
        match self.settings.run.on_failure {
            RunOnFailure::Continue => {}
            _ if self.draining.is_some() => {}
            RunOnFailure::Drain => self.emit(Fact::RunDraining { task, abort: false }),
            RunOnFailure::Abort => {
                self.emit(Fact::RunDraining { task: task.clone(), abort: true });
                self.stop_agents(AfterStop::Requeue, &format!("{task} failed"));
            }
        }
    }

    fn attempt_failed(
        &mut self,
        t: TaskIx,
        class: Class,
        reason: String,
        retry_at: Option<crate::id::Time>,
        help: Option<String>,
    ) {
        let attempt = self.tasks.get(t).attempts;
        let (task, reason) = (self.id(t), limits::brief(&reason));
        self.emit(Fact::AttemptFailed { task, attempt, class, reason, retry_at, help });
    }

    fn after_stop(&mut self, t: TaskIx, then: AfterStop, reason: String) {
        let task = self.id(t);
        match then {
            AfterStop::Requeue => {}
            AfterStop::Cancel => self.emit(Fact::TaskCancelled { task, reason }),
            AfterStop::Skip => self.emit(Fact::TaskSkipped { task, reason }),
        }
    }

    /// Asks an active attempt to end; what becomes of the task then is written down with it.
    pub(super) fn request_stop(&mut self, t: TaskIx, then: AfterStop, reason: &str) {
        let phase = self.tasks.phase(t);
        let Some(current) = self.tasks.get(t).current.as_ref() else { return };
        let attempt = current.n;
        // To be free for another attempt is the weakest wish: it never undoes a person's.
        let stronger = |(had, _): &(AfterStop, String)| *had == then || then == AfterStop::Requeue;
        if !phase.is_active() || current.stop.as_ref().is_some_and(stronger) {
            return;
        }
        let (task, reason) = (self.id(t), reason.to_owned());
        self.emit(Fact::StopRequested {
            task: task.clone(),
            attempt,
            then,
            reason: reason.clone(),
        });
        // A landing that is intended is finished; the wish counts if the branch refuses it.
        if phase == Phase::Merging && !self.is_landing(t) {
            self.emit(Fact::CarEvicted { task, attempt, reason: reason.clone() });
            self.fail_attempt(t, Class::Interrupted, reason);
        }
    }

    /// Asks every attempt with a living agent to end.
    pub(super) fn stop_agents(&mut self, then: AfterStop, reason: &str) {
        let active: Vec<TaskIx> = self.tasks.active().collect();
        for t in active {
            if matches!(self.tasks.phase(t), Phase::Preparing | Phase::Working | Phase::Asking) {
                self.request_stop(t, then, reason);
            }
        }
    }

    fn interrupt(&mut self, now: bool) {
        if !self.life.begun {
            return;
        }
        let wanted = if now { Interrupting::Now } else { Interrupting::Gently };
        if self.life.interrupting != Some(Interrupting::Now) {
            self.life.interrupting = Some(wanted);
        }
        self.stop_agents(AfterStop::Requeue, "the run was interrupted");
    }
}
