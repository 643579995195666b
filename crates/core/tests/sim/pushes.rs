//! Stories of landings that are pushed, on the machine alone: a remote that is away holds up landings for
//! a bounded time, nothing else, and no landing is forgotten or made twice.

use mainstem_core::config::{PublishSettings, Settings};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{Fact, GateVerdict};
use mainstem_core::machine::{Input, RestReason};
use mainstem_core::phase::Phase;
use mainstem_core::publish::PushRefusal;

use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn pushed() -> Settings {
    let mut s = settings();
    s.land.push = Some(PublishSettings { remote: "origin".to_owned(), branch: None, tries: 4 });
    s
}

/// A task whose landing is intended.
fn landing() -> Lab {
    let mut lab = Lab::new(&pushed(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    lab.form("A");
    lab.verify("A", GateVerdict::Passed);
    assert!(matches!(lab.effects.last(), Some(Effect::Land { .. })));
    lab
}

fn fails(lab: &mut Lab, heard: bool) -> Vec<Effect> {
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let why = PushRefusal { reason: "no way".to_owned(), help: "do it".to_owned(), heard };
    lab.put(Input::PushFailed { task, attempt, why })
}

fn lands(lab: &mut Lab) {
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    lab.put(Input::Landed { task, attempt, commit: "m-A".into(), old: "c0".into() });
    assert_eq!(lab.phase("A"), Phase::Landed);
    let said = |fact: &&(_, Fact)| matches!(fact.1, Fact::TaskLanded { .. });
    assert_eq!(lab.facts.iter().filter(said).count(), 1);
}

fn told(lab: &Lab) -> usize {
    lab.facts.iter().filter(|(_, fact)| matches!(fact, Fact::PushFailed(_))).count()
}

#[test]
fn a_remote_that_is_away_is_tried_with_growing_pauses_and_then_left_to_a_person() {
    let mut lab = landing();
    let mut waits = Vec::new();
    for _ in 0..3 {
        assert_eq!(fails(&mut lab, false), []);
        assert_eq!(lab.machine.rest_reason(), None, "it is tried again");
        let at = lab.machine.wake_at().unwrap();
        waits.push(at.since_ms(lab.now));
        lab.now = at;
        assert!(matches!(lab.put(Input::Tick)[..], [Effect::Land { .. }]));
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert_eq!(told(&lab), 1, "said once");
    assert_eq!(lab.machine.task_view(lab.ix("A")).next_action, None);
    fails(&mut lab, false);
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
    assert_eq!(told(&lab), 2, "and once more");
    let view = lab.machine.task_view(lab.ix("A"));
    assert_eq!(view.reason, "no way");
    assert_eq!(view.next_action.as_deref(), Some("do it, then mainstem run"));
    // The next life asks for the very same landing.
    let before = lab.effects.len();
    lab.crash();
    assert!(matches!(lab.effects[before..], [Effect::Land { .. }]));
    assert_eq!(lab.machine.rest_reason(), None);
    lands(&mut lab);
}

#[test]
fn a_landing_that_is_refused_though_the_branch_is_where_it_was_is_tried_again() {
    let mut lab = landing();
    let Some(Effect::Land { task, attempt, old, new, .. }) = lab.effects.last().cloned() else {
        panic!("a landing is intended")
    };
    // The remote had never been seen, and was taken for one without the branch.
    let refused = Input::LandingRefused { task, attempt, new: new.clone(), found: Some(old) };
    let next = lab.put(refused);
    let again =
        |effect: &&Effect| matches!(effect, Effect::Land { new: again, .. } if *again == new);
    assert_eq!(next.iter().filter(again).count(), 1, "{next:?}");
    lands(&mut lab);
}

#[test]
fn a_remote_that_says_no_is_asked_three_times() {
    let mut lab = landing();
    for left in (0..3).rev() {
        fails(&mut lab, true);
        assert_eq!(lab.machine.rest_reason().is_some(), left == 0);
        lab.now = lab.machine.wake_at().unwrap();
        lab.put(Input::Tick);
    }
    // Who works meanwhile keeps the engine up, and it goes on trying.
    assert_eq!(lab.machine.rest_reason(), None, "a push is under way");
    lands(&mut lab);
}

#[test]
fn who_stops_does_not_wait_for_a_remote_that_is_away() {
    let mut lab = landing();
    lab.put(Input::Interrupt { now: false });
    assert_eq!(lab.machine.rest_reason(), None, "the push may be through any moment");
    fails(&mut lab, false);
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Interrupted));
    lab.crash();
    lands(&mut lab);
}

#[test]
fn what_is_said_of_another_attempt_or_without_a_landing_changes_nothing() {
    let mut lab = Lab::new(&pushed(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let why = PushRefusal { reason: String::new(), help: String::new(), heard: false };
    lab.ignored(Input::PushFailed { task, attempt, why: why.clone() });
    lab.form("A");
    lab.verify("A", GateVerdict::Passed);
    lab.ignored(Input::PushFailed { task, attempt: attempt + 1, why });
}
