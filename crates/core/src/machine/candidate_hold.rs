//! Work that is held before it lands while other work passes, and what a person decides about it. A hold is a
//! fact, so a new engine holds what the last one held.

use crate::effect::Effect;
use crate::fact::{Fact, FailureClass};
use crate::hold::{GuardedChange, HoldFact, HoldKind, HoldReason, HoldReleaseFact};
use crate::id::{TaskIx, Time};
use crate::machine::{CommandRefusal, Machine};
use crate::phase::Phase;
use crate::train::CandidateStage;

/// Begins the name of a decision on guarded files; then comes the task.
pub const GUARDED: &str = "G-";
/// How the names of items begin that wait for a checkout of the user's.
pub const CHECKOUT: &str = "W-";
/// What can be decided.
pub const GUARDED_OPTIONS: [&str; 2] = ["accept", "reject: WHY"];

/// How often it is looked whether the user's files are still in the way.
const CHECKOUT_LOOK_MS: u64 = 2_000;

impl Machine {
    /// Why this task's work does not land for now, and since when; empty if nothing holds it.
    pub fn hold_reasons(&self, t: TaskIx) -> &[(HoldReason, Time)] {
        let current = self.tasks.get(t).current.as_ref();
        let in_train = self.tasks.phase(t) == Phase::Merging;
        current.filter(|_| in_train).map_or(&[], |attempt| attempt.holds.as_slice())
    }

    /// Holds work that waits to land. A landing that is under way is given up first: whoever reports a reason
    /// while the branch is about to move has not moved it.
    pub(super) fn hold_candidate(&mut self, t: TaskIx, attempt: u32, reason: HoldReason) {
        if !self.is_current_attempt(t, attempt, &[Phase::Merging])
            || self.hold_reasons(t).iter().any(|(known, _)| *known == reason)
        {
            return;
        }
        if let Some(CandidateStage::Landing { old, new, .. }) =
            self.train.queue().candidate_of(t).map(|car| &car.stage)
        {
            let (old, new) = (old.clone(), new.clone());
            self.handle_landing_refusal(&new, Some(&old));
            // Somebody wanted it stopped, and now it is.
            if !self.is_current_attempt(t, attempt, &[Phase::Merging]) {
                return;
            }
        }
        if reason.kind() == HoldKind::CheckoutInTheWay {
            let next = self.now.plus_ms(CHECKOUT_LOOK_MS);
            self.train.schedule_inspection(t, next);
        }
        self.emit_fact(Fact::CandidateHeld(HoldFact { task: self.task_id(t), attempt, reason }));
    }

    fn waits_for_checkout(&self, t: TaskIx) -> bool {
        self.hold_reasons(t).iter().any(|(reason, _)| reason.kind() == HoldKind::CheckoutInTheWay)
    }

    /// Work that an earlier engine held because of a checkout at which nobody has looked since.
    pub(super) fn is_checkout_unchecked(&self, t: TaskIx) -> bool {
        self.waits_for_checkout(t) && !self.train.was_inspected(t)
    }

    /// Has it looked now and then whether the user's files are still in the way.
    pub(super) fn issue_checkout_inspections(&mut self, effects: &mut Vec<Effect>) {
        if self.engine.is_interrupting() {
            return;
        }
        let due = |t: &TaskIx| self.train.is_inspection_due(*t, self.now);
        let held: Vec<TaskIx> =
            self.tasks.active_tasks().filter(|t| self.waits_for_checkout(*t)).filter(due).collect();
        for t in held {
            let Some(current) = self.tasks.get(t).current.as_ref() else { continue };
            let Some(evidence) = current.evidence.as_ref() else { continue };
            let (attempt, base, tip) = (current.n, evidence.base.clone(), evidence.tip.clone());
            self.train.begin_inspection(t);
            effects.push(Effect::InspectCheckout { task: t, attempt, base, tip });
        }
    }

    pub(super) fn handle_checkout_inspection(
        &mut self,
        t: TaskIx,
        attempt: u32,
        reason: Option<HoldReason>,
    ) {
        let next = self.now.plus_ms(CHECKOUT_LOOK_MS);
        self.train.schedule_inspection(t, next);
        if !self.waits_for_checkout(t) {
            return;
        }
        match reason {
            None => self.release_candidate(t, attempt, HoldKind::CheckoutInTheWay, "engine"),
            Some(reason) => self.hold_candidate(t, attempt, reason),
        }
    }

    /// Nobody can answer for files that are in the way: they have to go.
    fn refuse_answer_for_checkout(&self, name: &str, id: &str) -> Option<CommandRefusal> {
        let named = name.get(..CHECKOUT.len())?.eq_ignore_ascii_case(CHECKOUT);
        let t = self.adopted.graph().index_of(id).filter(|_| named)?;
        let mut reasons = self.hold_reasons(t).iter().map(|(reason, _)| reason);
        let reason = reasons.find(|reason| reason.kind() == HoldKind::CheckoutInTheWay)?;
        let message = format!("{name} cannot be answered: {}", reason.describe());
        Some(CommandRefusal { message, hint: reason.checkout_fix().map(str::to_owned) })
    }

    /// One reason for which work was held is over.
    pub(super) fn release_candidate(&mut self, t: TaskIx, attempt: u32, kind: HoldKind, by: &str) {
        let held = self.hold_reasons(t).iter().any(|(reason, _)| reason.kind() == kind);
        if held && self.is_current_attempt(t, attempt, &[Phase::Merging]) {
            let (task, by) = (self.task_id(t), by.to_owned());
            self.emit_fact(Fact::CandidateReleased(HoldReleaseFact { task, attempt, kind, by }));
        }
    }

    /// Work that changes guarded files waits for a person, unless one accepted these very changes.
    pub(super) fn hold_guarded_work(&mut self) {
        // Who merges a pull request by hand decides with that.
        let by_hand = |t: TaskIx| self.lands_on_forge(t) && !self.settings.land.pulls.auto_merge;
        let waits = |t: &TaskIx| {
            self.tasks.phase(*t) == Phase::Merging && !self.is_landing(*t) && !by_hand(*t)
        };
        let queued: Vec<TaskIx> = self.tasks.active_tasks().filter(waits).collect();
        for t in queued {
            let changes = self.unaccepted_guarded_changes(t);
            let known = |(reason, _): &(HoldReason, Time)| reason.kind() == HoldKind::GuardedFiles;
            let attempt = self.tasks.get(t).attempts;
            if !changes.is_empty() && !self.hold_reasons(t).iter().any(known) {
                self.hold_candidate(t, attempt, HoldReason::GuardedFiles { changes });
            }
        }
    }

    /// Changes to guarded files in the work at hand that nobody has accepted.
    fn unaccepted_guarded_changes(&self, t: TaskIx) -> Vec<GuardedChange> {
        let state = self.tasks.get(t);
        let evidence = state.current.as_ref().and_then(|attempt| attempt.evidence.as_ref());
        let changes = evidence.into_iter().flat_map(|evidence| &evidence.guarded);
        let open = |change: &&GuardedChange| {
            !state.accepted.contains(&(change.path.clone(), change.blob.clone()))
        };
        changes.filter(open).cloned().collect()
    }

    /// Takes a decision on held work; none if the name is of no such decision.
    pub(super) fn decide_held_work(
        &mut self,
        name: &str,
        text: &str,
    ) -> Option<Result<String, CommandRefusal>> {
        let id = name.get(GUARDED.len()..)?;
        if let Some(refused) = self.refuse_answer_for_checkout(name, id) {
            return Some(Err(refused));
        }
        let named = name.get(..GUARDED.len())?.eq_ignore_ascii_case(GUARDED);
        let t = self.adopted.graph().index_of(id).filter(|_| named)?;
        let kind = HoldKind::GuardedFiles;
        if !self.hold_reasons(t).iter().any(|(reason, _)| reason.kind() == kind) {
            return None;
        }
        let (task, attempt) = (self.task_id(t), self.tasks.get(t).attempts);
        let words = text.trim();
        let first = words.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        match first.to_lowercase().as_str() {
            "1" | "accept" | "accepted" | "approve" | "yes" => {
                self.release_candidate(t, attempt, kind, "person");
                Some(Ok(format!("accepted; {task} lands when the checks pass")))
            }
            "2" | "reject" | "rejected" | "no" => {
                let why = words.get(first.len()..).unwrap_or_default();
                let why = why.trim_start_matches([':', ',', '.', ' ']).trim();
                let reason = match why {
                    "" => "the change to guarded files was rejected".to_owned(),
                    why => format!("the change to guarded files was rejected: {why}"),
                };
                self.emit_fact(Fact::CarEvicted {
                    task: task.clone(),
                    attempt,
                    reason: reason.clone(),
                });
                self.fail_attempt(t, FailureClass::Rejected, reason);
                Some(Ok(format!("rejected; {task} is returned to the agent")))
            }
            _ => Some(Err(CommandRefusal {
                message: format!("invalid answer `{text}` to {name}; use accept or reject"),
                hint: Some(format!("mainstem diff {task}, then mainstem answer {name} accept")),
            })),
        }
    }

    /// The fold of holds.
    pub(super) fn apply_hold(&mut self, t: TaskIx, fact: &Fact) {
        let now = self.now;
        let state = self.tasks.state_mut(t);
        let Some(attempt) = state.current.as_mut() else { return };
        match fact {
            Fact::CandidateHeld(held) => {
                attempt.holds.retain(|(reason, _)| reason.kind() != held.reason.kind());
                attempt.holds.push((held.reason.clone(), now));
            }
            Fact::CandidateReleased(released) => {
                for (reason, _) in &attempt.holds {
                    if let HoldReason::GuardedFiles { changes } = reason
                        && released.kind == HoldKind::GuardedFiles
                    {
                        let pairs = changes.iter().map(|c| (c.path.clone(), c.blob.clone()));
                        state.accepted.extend(pairs);
                    }
                }
                attempt.holds.retain(|(reason, _)| reason.kind() != released.kind);
            }
            _ => return,
        }
        let held = !attempt.holds.is_empty();
        self.train.queue_mut().set_held(t, held);
    }
}
