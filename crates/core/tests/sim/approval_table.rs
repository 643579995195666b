//! When people are asked to approve work, and what becomes of it and of other work meanwhile.

use mainstem_core::fact::{Fact, FailureClass, GateVerdict};
use mainstem_core::hold::HoldKind;
use mainstem_core::inbox::InboxKind;
use mainstem_core::machine::{Input, MachineCommand};
use mainstem_core::phase::Phase;

use crate::lab::Lab;
use crate::setup::{plan, settings, task};

/// `a` needs two approvals, `b` none.
fn lab() -> Lab {
    let mut s = settings();
    s.land.lanes = 1;
    s.run.retries = 0;
    let mut a = task("a", &[]);
    a.verify = vec!["@approval look".to_owned(), "@approval within 2s listen".to_owned()];
    Lab::new(&s, plan(vec![a, task("b", &[])]))
}

fn asked(lab: &Lab) -> Vec<&str> {
    lab.machine.open_questions().iter().map(|q| q.text.as_str()).collect()
}

fn answer(lab: &mut Lab, question: &str, text: &str) {
    let (question, text) = (question.to_owned(), text.to_owned());
    lab.command(MachineCommand::Answer { question, text, free: false }).unwrap();
}

/// `a` passed its gates on the merged tree.
fn held() -> Lab {
    let mut lab = lab();
    lab.enqueue("a");
    assert_eq!((lab.phase("a"), asked(&lab).len()), (Phase::Merging, 0), "nothing ran yet");
    lab.form("a");
    assert_eq!(asked(&lab).len(), 0, "its gates run");
    lab.verify("a", GateVerdict::Passed);
    lab
}

#[test]
fn a_person_is_asked_after_the_gates_passed_on_the_merged_tree_and_others_land_meanwhile() {
    let mut lab = held();
    assert_eq!(
        asked(&lab),
        ["look The checks passed on the merged tree. See the changes: `mainstem diff a`. Tree c1."]
    );
    let (reason, _) = &lab.machine.hold_reasons(lab.ix("a"))[0];
    assert_eq!(reason.kind(), HoldKind::Approval);
    let inbox = lab.machine.inbox_items();
    assert_eq!(inbox.iter().map(|item| item.kind).collect::<Vec<_>>(), [InboxKind::Approval]);
    lab.enqueue("b");
    lab.land("b");
    // One after the other, and a new engine asks for no more than the last one did.
    answer(&mut lab, "Q1", "approve");
    assert!(asked(&lab)[0].starts_with("listen (within 2s)"), "{:?}", asked(&lab));
    lab.crash();
    assert_eq!(asked(&lab).len(), 1);
    answer(&mut lab, "Q2", "approve");
    assert!(lab.machine.hold_reasons(lab.ix("a")).is_empty());
    assert_eq!(lab.phase("a"), Phase::Merging, "it is merged anew before it lands");
    lab.form("a");
    let intended = |(_, fact): &(_, Fact)| matches!(fact, Fact::LandingIntended { task, .. } if task.as_str() == "a");
    assert!(lab.facts.iter().any(intended), "this tree has passed");
}

#[test]
fn nobody_is_asked_about_work_that_a_gate_refuses() {
    let mut lab = lab();
    lab.enqueue("a");
    lab.form("a");
    lab.verify("a", GateVerdict::Failed);
    let asked = |(_, fact): &(_, Fact)| matches!(fact, Fact::QuestionAsked { .. });
    assert!(!lab.facts.iter().any(asked), "{:?}", lab.facts);
    assert_ne!(lab.phase("a"), Phase::Merging);
}

#[test]
fn rejected_work_leaves_the_train_and_goes_back_to_its_agent() {
    let mut lab = held();
    answer(&mut lab, "Q1", "reject: too loud");
    assert_eq!((lab.phase("a"), lab.attempt("a")), (Phase::Preparing, 2));
    let rejected = |(_, fact): &(_, Fact)| {
        matches!(fact, Fact::AttemptFailed { class: FailureClass::Rejected, reason, .. }
            if reason == "rejected: too loud")
    };
    assert!(lab.facts.iter().any(rejected));
    assert!(asked(&lab).is_empty() && lab.machine.train().candidates().is_empty());
}

#[test]
fn an_approval_that_nobody_gives_in_time_ends_the_wait() {
    let mut lab = held();
    answer(&mut lab, "Q1", "approve");
    lab.now = lab.now.plus_ms(2_000);
    lab.put(Input::Tick);
    assert_eq!(lab.phase("a"), Phase::Blocked);
    assert!(asked(&lab).is_empty() && lab.machine.train().candidates().is_empty());
}
