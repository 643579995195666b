//! What follows from the last facts by itself: who is blocked, whose question is next, who goes on,
//! who starts. Takes no input; every change is a fact through [`Machine::emit_fact`].

use crate::config::AgentSettings;
use crate::fact::{Fact, FailureClass};
use crate::id::{TaskId, TaskIx};
use crate::limits;
use crate::machine::Machine;
use crate::machine::outstanding::OutstandingEffect;
use crate::machine::owners::QueuedQuestion;
use crate::model_choice::{self, ModelChoice, ModelChoiceContext};
use crate::phase::Phase;
use crate::schedule::ScheduledStart;

impl Machine {
    /// Looks at every task's blocking again.
    pub(super) fn update_all_blocking(&mut self) {
        let all: Vec<TaskIx> = self.tasks.all_tasks().collect();
        self.update_blocking(all);
    }

    /// Brings everything that follows from the last facts to its place: who is blocked, who goes
    /// on, who starts.
    pub(super) fn run_to_fixpoint(&mut self) {
        if self.engine.has_begun() {
            self.answer_by_rule();
            self.expire_questions();
            self.advance_reviews();
            self.end_waiting_stops();
            self.ask_queued_questions();
            self.hold_guarded_work();
            self.ask_about_held_work();
            self.drive_train();
            self.update_suspects();
            self.leave_broken_stacks();
            self.intend_pushes();
        }
        // After all that can end a task, so that nobody is left waiting for one that is over.
        loop {
            let mut suspects = self.tasks.take_blocking_changes();
            suspects.sort_unstable();
            suspects.dedup();
            if suspects.is_empty() {
                break;
            }
            self.update_blocking(suspects);
        }
        if !self.engine.has_begun() || self.engine.is_interrupting() {
            return;
        }
        // The delay of a task that waited for others may have run out long ago.
        self.tasks.release_delayed(self.now);
        self.resume_answered_tasks();
        self.ask_queued_questions();
        if !self.control.holds_starts() {
            let at_work = self.tasks.slots_in_use();
            let allowed = self.engine.shortage().map_or(usize::MAX, |s| s.allowed_starts(at_work));
            let starts =
                if allowed == 0 { Vec::new() } else { self.with_schedule(|b| b.choose_starts()) };
            for pick in starts.into_iter().take(allowed) {
                self.intend_attempt(pick);
            }
        }
    }

    fn update_blocking(&mut self, suspects: Vec<TaskIx>) {
        for t in suspects {
            let phase = self.tasks.phase(t);
            let chained = phase == Phase::Blocked && !self.tasks.get(t).chain.is_empty();
            match self.tasks.is_blocked(t) {
                true if phase.is_idle() => {
                    let fact = self.blocked_fact(t, &self.blocking_chain(t));
                    self.emit_fact(fact);
                }
                // Still blocked, but maybe by another task than before.
                true if chained => {
                    let chain = self.blocking_chain(t);
                    if chain != self.tasks.get(t).chain {
                        let fact = self.blocked_fact(t, &chain);
                        self.emit_fact(fact);
                        self.tasks.mark_dependents_changed(t, self.adopted.graph());
                    }
                }
                false if chained => {
                    let task = self.task_id(t);
                    self.emit_fact(Fact::TaskUnblocked { task });
                }
                _ => {}
            }
        }
    }

    fn blocked_fact(&self, t: TaskIx, chain: &[TaskIx]) -> Fact {
        let names: Vec<TaskId> = chain.iter().map(|c| self.task_id(*c)).collect();
        let root = chain.last().map_or(t, |root| *root);
        let mut words: Vec<&str> = names.iter().map(TaskId::as_str).collect();
        if words.len() == limits::CHAIN_MAX {
            words.insert(limits::CHAIN_MAX / 2, "…");
        }
        let phase = match self.tasks.phase(root) {
            Phase::Failed => "failed",
            Phase::Conflicted => "has conflicts",
            Phase::Cancelled => "was cancelled",
            Phase::Blocked => "is blocked",
            other => other.as_str(),
        };
        let way =
            if words.len() > 2 { format!(" ({})", words.join(" → ")) } else { String::new() };
        let reason = format!("{} {phase}{way}", self.task_id(root));
        Fact::TaskBlocked { task: self.task_id(t), chain: names, reason }
    }

    /// From a blocked task along what it needs to the task that started it; the way it had, as
    /// long as that holds. The middle of a very long chain is left out: it would cost its length
    /// once more for every further task.
    fn blocking_chain(&self, t: TaskIx) -> Vec<TaskIx> {
        let mut chain = vec![t];
        let had = self.tasks.get(t).chain.get(1).copied();
        let blocks = |p: &TaskIx| self.tasks.is_blocking(*p);
        let next = self
            .adopted
            .graph()
            .needs(t)
            .find(|p| Some(*p) == had && blocks(p))
            .or_else(|| self.adopted.graph().needs(t).find(blocks));
        let Some(next) = next else { return chain };
        match self.tasks.get(next).chain.as_slice() {
            [] => chain.push(next),
            rest => chain.extend(rest),
        }
        if chain.len() > limits::CHAIN_MAX {
            chain.remove(limits::CHAIN_MAX / 2);
        }
        chain
    }

    /// An attempt that was asked to end while it waits for its gates ends at once; one whose gates
    /// run ends when they are stopped.
    fn end_waiting_stops(&mut self) {
        let waiting: Vec<TaskIx> = self
            .tasks
            .active_tasks()
            .filter(|t| self.tasks.phase(*t) == Phase::Verifying)
            .filter(|t| {
                self.tasks.get(*t).current.as_ref().is_some_and(|a| {
                    a.stop.is_some()
                        && a.evidence.is_some()
                        && self.issued.issued(*t) != Some(OutstandingEffect::Gates(a.n))
                        && !self.is_under_review(*t)
                })
            })
            .collect();
        for t in waiting {
            self.fail_attempt(
                t,
                FailureClass::Interrupted,
                "stopped before the checks ran".to_owned(),
            );
        }
    }

    /// Questions that an agent asked while another one of its own was open.
    fn ask_queued_questions(&mut self) {
        let ready: Vec<TaskIx> = self
            .inbox
            .tasks_with_queued_questions()
            .filter(|t| self.tasks.phase(*t) == Phase::Working || !self.tasks.phase(*t).is_active())
            .collect();
        for t in ready {
            let mut queue = self.inbox.take_queued_questions(t);
            // What was said before, or by an earlier attempt, must not hold up the next one.
            while self.tasks.phase(t) != Phase::Asking
                && let Some(QueuedQuestion { attempt, mark, statement }) = queue.pop_front()
            {
                if self.is_current_attempt(t, attempt, &[Phase::Working]) {
                    self.handle_agent_statement(t, attempt, mark, statement);
                }
            }
            self.inbox.return_queued_questions(t, queue);
        }
    }

    fn resume_answered_tasks(&mut self) {
        let answered: Vec<TaskIx> = self
            .tasks
            .active_tasks()
            .filter(|t| self.tasks.phase(*t) == Phase::Asking)
            .filter(|t| {
                let current = self.tasks.get(*t).current.as_ref();
                current.is_some_and(|a| a.answer.is_some() && a.stop.is_none())
            })
            .collect();
        for t in answered {
            if self.tasks.slots_in_use() >= self.job_limit() {
                return;
            }
            // Others may have taken its provider's, agent's or role's slots meanwhile.
            if self.with_schedule(|board| board.named_slots_full(t)) {
                continue;
            }
            let current = self.tasks.get(t).current.as_ref().expect("BUG: filtered above");
            let (question, ..) = current.question.clone().expect("BUG: an answer has a question");
            let (task, attempt) = (self.task_id(t), current.n);
            self.emit_fact(Fact::AgentResumed { task, attempt, question });
        }
    }

    fn intend_attempt(&mut self, pick: ScheduledStart) {
        let t = pick.task;
        if !self.record_stack_base(t) {
            return;
        }
        let task = self.task_id(t);
        // The one it had before is known to be free.
        let before = self.tasks.get(t).current.as_ref();
        let branch = before.map_or_else(|| format!("mainstem/{task}"), |a| a.branch.clone());
        let chosen = self.choose_model(&pick);
        let start = self.next_attempt_start(t, &pick.agent);
        let reserved_usd = match self.settings.budget.usd {
            Some(_) => self.expected_usd(&pick.agent, chosen.model.as_deref()),
            None => 0.0,
        };
        self.emit_fact(Fact::AttemptIntended {
            task,
            attempt: self.tasks.get(t).attempts + 1,
            agent: pick.agent,
            provider: pick.provider,
            model: chosen.model,
            branch,
            reserved_usd,
            model_reason: chosen.reason,
            session: start.session,
            continues: start.continues,
            fresh: start.fresh,
        });
    }

    pub(super) fn choose_model(&self, pick: &ScheduledStart) -> ModelChoice {
        let task = &self.adopted.plan().tasks[pick.task.index()];
        let state = self.tasks.get(pick.task);
        let on_merits = |class: FailureClass| {
            matches!(
                class,
                FailureClass::AgentFailed | FailureClass::GateFailed | FailureClass::InvalidOutput
            )
        };
        let failed = state.last.as_ref().is_some_and(|last| on_merits(last.class));
        let before = state.current.as_ref().filter(|_| failed).and_then(|a| a.model.as_deref());
        let usual = AgentSettings::default();
        let money_left = self.settings.budget.usd.map(|usd| {
            let left = self.spending.left_of(usd);
            (if usd > 0.0 { left / usd * 100.0 } else { 0.0 }, left)
        });
        model_choice::choose_model(&ModelChoiceContext {
            task,
            agent: self.settings.agents.get(&pick.agent).unwrap_or(&usual),
            stands_in: pick.stands_in,
            models: &self.settings.models,
            record: &|model| self.spending.model_record(model),
            failed_with: before,
            money_left,
        })
    }
}
