//! What needs a person: one list, most urgent first, and held work that others pass.

use mainstem_core::fact::{Fact, GateVerdict};
use mainstem_core::hold::{GuardedChange, HoldKind, HoldReason};
use mainstem_core::inbox::InboxItem;
use mainstem_core::machine::{EpochOptions, Input, MachineCommand, RestReason};
use mainstem_core::phase::Phase;

use crate::cover::evidence;
use crate::drive::{exited_well, question};
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn two() -> Lab {
    Lab::new(&settings(), plan(vec![task("A", &[]), task("B", &[]), task("C", &["A"])]))
}

fn collect_guarded(lab: &mut Lab, id: &str, blob: &str) {
    let (task, attempt) = (lab.ix(id), lab.attempt(id));
    lab.work(id);
    lab.end(id, exited_well());
    let (path, because) = ("test.sh".to_owned(), "the gate `sh test.sh` runs it".to_owned());
    let guarded = vec![GuardedChange { path, blob: Some(blob.into()), because }];
    let evidence = Ok(mainstem_core::fact::Evidence { guarded, ..evidence() });
    lab.put(Input::EvidenceCollected { task, attempt, evidence });
}

fn answer(lab: &mut Lab, question: &str, text: &str) -> Result<String, String> {
    let (question, text) = (question.to_owned(), text.to_owned());
    let said = lab.command(MachineCommand::Answer { question, text, free: false });
    said.map_err(|refusal| refusal.message)
}

fn items(lab: &Lab) -> Vec<(String, &'static str)> {
    let name = |item: &InboxItem| (item.id.clone(), item.kind.as_str());
    lab.machine.inbox_items().iter().map(name).collect()
}

#[test]
fn work_that_changes_a_guarded_file_waits_while_others_land() {
    let mut lab = two();
    collect_guarded(&mut lab, "A", "b1");
    assert_eq!(items(&lab), [("G-A".to_owned(), "guarded")]);
    let item = lab.machine.inbox_items().remove(0);
    assert!(item.text.contains("test.sh"), "{item:?}");
    assert_eq!(item.options, ["accept", "reject: WHY"]);
    assert_eq!(item.holds_up, ["C".into()]);
    assert!(item.critical && item.help.contains("mainstem answer G-A accept"), "{item:?}");
    lab.enqueue("B");
    lab.land("B");
    lab.removed("B");
    assert_eq!(
        lab.machine.rest_reason(),
        Some(RestReason::NotLanded),
        "nobody waits for the person"
    );
    let options = EpochOptions { waits_for_people: true, ..EpochOptions::default() };
    lab.put(Input::ConfigureEpoch(options));
    assert_eq!(lab.machine.rest_reason(), None);
    lab.crash();
    assert_eq!(items(&lab), [("G-A".to_owned(), "guarded")], "a new engine holds it too");
    assert_eq!(
        answer(&mut lab, "G-A", "maybe").unwrap_err(),
        "invalid answer `maybe` to G-A; use accept or reject"
    );
    answer(&mut lab, "g-A", "accept").unwrap();
    assert_eq!(items(&lab), []);
    lab.land("A");
}

#[test]
fn a_rejected_change_goes_back_to_its_agent_and_another_one_is_asked_about_again() {
    let mut lab = two();
    collect_guarded(&mut lab, "A", "b1");
    answer(&mut lab, "G-A", "reject: keep the test").unwrap();
    let why = |fact: &Fact| match fact {
        Fact::AttemptFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    let said: Vec<String> = lab.facts.iter().filter_map(|(_, fact)| why(fact)).collect();
    assert!(said[0].contains("keep the test"), "{said:?}");
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2));
    collect_guarded(&mut lab, "A", "b2");
    assert_eq!(items(&lab), [("G-A".to_owned(), "guarded")]);
    answer(&mut lab, "G-A", "1").unwrap();
    // It is red, and done again with the very same change: that one is accepted already.
    lab.form("A");
    lab.verify("A", GateVerdict::Failed);
    assert_eq!(lab.attempt("A"), 3);
    collect_guarded(&mut lab, "A", "b2");
    assert_eq!(items(&lab), []);
    lab.land("A");
}

#[test]
fn a_landing_in_the_way_of_the_users_edits_is_given_up_and_others_pass() {
    let mut lab = two();
    lab.enqueue("A");
    lab.enqueue("B");
    lab.form("A");
    lab.verify("A", GateVerdict::Passed);
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let (checkout, paths) = ("/repo".to_owned(), vec!["a.rs".to_owned()]);
    let reason = HoldReason::CheckoutInTheWay { checkout, paths, trouble: None };
    lab.put(Input::HoldCandidate { task, attempt, reason: reason.clone() });
    assert_eq!(items(&lab), [("W-A".to_owned(), "checkout")]);
    assert!(lab.machine.inbox_items()[0].text.contains("a.rs"));
    lab.ignored(Input::HoldCandidate { task, attempt, reason });
    let help = |lab: &Lab| lab.machine.inbox_items()[0].help.clone();
    assert!(help(&lab).ends_with("landing continues by itself"), "{}", help(&lab));
    assert_eq!(lab.machine.train().landing_candidates().count(), 0);
    lab.land("B");
    lab.put(Input::ReleaseCandidate { task, attempt, kind: HoldKind::CheckoutInTheWay });
    assert_eq!(items(&lab), []);
    lab.land("A");
}

#[test]
fn every_kind_of_thing_that_needs_a_person_is_listed_once() {
    let mut settings = settings();
    settings.budget.usd = Some(1.0);
    settings.budget.hard = true;
    settings.budget.per_attempt_usd = 0.0;
    settings.run.jobs = 8;
    let tasks = ["A", "B", "C", "D"].map(|id| task(id, &[])).to_vec();
    let mut lab = Lab::new(&settings, plan(tasks));
    lab.fail_for_good("A");
    lab.work("B");
    lab.say("B", 1, question(Some("a"), Some(60_000)));
    lab.say("B", 2, crate::drive::usage(Some(5.0)));
    // It would be tried again, if there were money.
    lab.fail("D");
    let listed = items(&lab);
    assert!(listed.contains(&("F-A".to_owned(), "failure")), "{listed:?}");
    assert!(listed.contains(&("Q1".to_owned(), "question")), "{listed:?}");
    assert!(listed.contains(&("BUDGET".to_owned(), "budget")), "{listed:?}");
    let asked = lab.machine.inbox_items().into_iter().find(|item| item.id == "Q1").unwrap();
    assert_eq!(asked.default.as_deref(), Some("a"));
    assert!(asked.deadline.is_some());
    lab.enqueue("C");
    lab.form("C");
    lab.verify_red_base("C");
    let listed = items(&lab);
    assert!(listed.contains(&("TARGET".to_owned(), "target")), "{listed:?}");
}
