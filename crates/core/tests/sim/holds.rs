//! Work that is held before it lands: guarded files that a person decides on, a checkout in the way, and
//! approvals.

use mainstem_core::config::LandMode;
use mainstem_core::fact::Fact;
use mainstem_core::hold::{GuardedChange, HoldKind, HoldReason};
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::{Input, Machine, MachineCommand};

use crate::drive::Sim;

impl Sim<'_> {
    /// Some work changes a guarded file, each attempt in another way.
    pub fn guarded_changes(&mut self, worked: bool, attempt: u32) -> Vec<GuardedChange> {
        if !worked || !self.rng.in_thousand(120) {
            return Vec::new();
        }
        let (path, because) = ("test.sh".to_owned(), "a gate runs it".to_owned());
        vec![GuardedChange { path, blob: Some(Oid::new(format!("b{attempt}"))), because }]
    }

    /// The branch does not move, because the user's edits would be in the way.
    pub fn checkout_in_the_way(&mut self, task: TaskIx, attempt: u32) {
        let (checkout, paths) = ("here".to_owned(), vec!["a.rs".to_owned()]);
        let reason = HoldReason::CheckoutInTheWay { checkout, paths, trouble: None };
        self.reply(Input::HoldCandidate { task, attempt, reason });
    }

    /// A person decides on held work, now and then.
    pub fn wish_about_a_hold(&mut self) -> Option<MachineCommand> {
        if !self.rng.in_thousand(150) {
            return None;
        }
        let held = self.live.tasks().all_tasks().filter(|t| !self.live.hold_reasons(*t).is_empty());
        let held: Vec<TaskIx> = held.collect();
        if held.is_empty() {
            return None;
        }
        let t = *self.rng.pick(&held);
        let text = (*self.rng.pick(&["accept", "reject: no", "1", "2", "hm"])).to_owned();
        Some(MachineCommand::Answer { question: format!("G-{}", self.id(t)), text, free: false })
    }
}

/// What ends the first hold there is.
pub fn end_a_hold(machine: &Machine) -> Option<Input> {
    let held = machine.tasks().all_tasks().find(|t| !machine.hold_reasons(*t).is_empty())?;
    let (reason, _) = machine.hold_reasons(held).first()?;
    let attempt = machine.tasks().get(held).attempts;
    Some(match reason {
        HoldReason::GuardedFiles { .. } => {
            let question = format!("G-{}", machine.graph().id(held));
            Input::Command(MachineCommand::Answer {
                question,
                text: "accept".to_owned(),
                free: false,
            })
        }
        HoldReason::CheckoutInTheWay { .. } => {
            Input::ReleaseCandidate { task: held, attempt, kind: reason.kind() }
        }
        HoldReason::Approval { .. } => {
            let open = machine.open_questions().iter().find(|q| q.task == held);
            let question =
                open.expect("I14: held for an approval, and nobody is asked").name.clone();
            Input::Command(MachineCommand::Answer {
                question,
                text: "approve".to_owned(),
                free: false,
            })
        }
    })
}

/// A person is asked to approve what waits to land and is held for it, unless a pull request is to be opened.
pub fn i14_is_ripe_for_approval(machine: &Machine, t: TaskIx, fact: &Fact) {
    let Fact::QuestionAsked { reference: Some(reference), .. } = fact else { return };
    if !reference.starts_with("approval ") || machine.settings().land.mode == LandMode::Pr {
        return;
    }
    let held = |(reason, _): &(HoldReason, Time)| reason.kind() == HoldKind::Approval;
    let id = machine.graph().id(t);
    assert!(machine.hold_reasons(t).iter().any(held), "I14: {id} is shown to a person too early");
}

/// What is about to land is held by nothing, is approved where that is asked for, and a person accepted each of
/// its guarded changes.
pub fn i14_nothing_held_lands(machine: &Machine, t: TaskIx) {
    let (id, state) = (machine.graph().id(t), machine.tasks().get(t));
    assert!(machine.hold_reasons(t).is_empty(), "I14: {id} lands although it is held");
    assert!(machine.missing_approvals(t).is_empty(), "I14: {id} lands without approval");
    let evidence = state.current.as_ref().and_then(|attempt| attempt.evidence.as_ref());
    for change in evidence.into_iter().flat_map(|evidence| &evidence.guarded) {
        let key = (change.path.clone(), change.blob.clone());
        assert!(state.accepted.contains(&key), "I14: {id} lands {} unasked", change.path);
    }
}
