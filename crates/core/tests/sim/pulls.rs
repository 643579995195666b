//! Stories of pull requests on the machine alone: every deed is asked for again by a new life, no news
//! count twice, wishes to stop meet merges that are under way.

use mainstem_core::config::{LandMode, PullRequestSettings, Settings};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{Fact, FailureClass, GateVerdict};
use mainstem_core::id::Time;
use mainstem_core::machine::{EpochOptions, Input, MachineCommand, MergeOnlyMode, RestReason};
use mainstem_core::phase::Phase;
use mainstem_core::phase_closing::add_closing_tasks;
use mainstem_core::plan::Task;
use mainstem_core::pull_request::{
    ForgeAction, ForgeActionResult, ObservedCheckState, ObservedPullCheck, ObservedPullReview,
    ObservedPullState, PullRequestMergeability, PullRequestObservation, PullRequestStage,
};

use crate::drive::verdict;
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn by_pull() -> Settings {
    let mut s = settings();
    s.gates.verify.clear();
    s.land.mode = LandMode::Pr;
    s.land.pulls =
        PullRequestSettings { auto_merge: true, poll_ms: 1_000, ..PullRequestSettings::default() };
    s
}

fn one() -> Lab {
    let mut lab = Lab::new(&by_pull(), plan(vec![task("A", &[])]));
    lab.enqueue("A");
    lab
}

fn tell(lab: &mut Lab, news: ForgeActionResult) -> Vec<Effect> {
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    lab.put(Input::forge_action_done(task, attempt, news))
}

fn deeds(effects: &[Effect]) -> Vec<ForgeAction> {
    let deed = |effect: &Effect| match effect {
        Effect::RunForgeAction { action: deed, .. } => Some(deed.clone()),
        _ => None,
    };
    effects.iter().filter_map(deed).collect()
}

fn tip(lab: &Lab) -> mainstem_core::id::Oid {
    let fact = lab.facts.iter().rev().find_map(|(_, fact)| match fact {
        Fact::PushIntended(push) => Some(push.tip.clone()),
        _ => None,
    });
    fact.unwrap()
}

fn opened(lab: &Lab) -> ForgeActionResult {
    ForgeActionResult::Opened { number: 7, url: "u".to_owned(), created: true, tip: tip(lab) }
}

fn sight(lab: &Lab) -> PullRequestObservation {
    PullRequestObservation {
        number: 7,
        state: ObservedPullState::Open,
        head: tip(lab),
        ours: true,
        draft: false,
        mergeable: PullRequestMergeability::Yes,
        conflict: None,
        checks: Vec::new(),
        reviews: Vec::new(),
    }
}

fn merged() -> ForgeActionResult {
    ForgeActionResult::Merged { commit: "m".into(), old: "c0".into() }
}

fn count(lab: &Lab, is: impl Fn(&Fact) -> bool) -> usize {
    lab.facts.iter().filter(|(_, fact)| is(fact)).count()
}

/// The engine dies, and its next life asks for the same.
fn asks_again(lab: &mut Lab, wanted: impl Fn(&ForgeAction) -> bool) {
    let before = lab.effects.len();
    lab.crash();
    let asked = deeds(&lab.effects[before..]);
    assert!(asked.len() == 1 && wanted(&asked[0]), "{asked:?}");
}

#[test]
fn a_pull_request_walks_to_the_branch_and_every_life_asks_for_what_is_left() {
    let mut lab = one();
    assert!(matches!(deeds(&lab.effects)[..], [ForgeAction::Open { .. }]));
    asks_again(&mut lab, |deed| matches!(deed, ForgeAction::Open { .. }));
    let news = opened(&lab);
    assert!(matches!(deeds(&tell(&mut lab, news))[..], [ForgeAction::Look { number: 7, .. }]));
    asks_again(&mut lab, |deed| matches!(deed, ForgeAction::Look { number: 7, .. }));
    let seen = sight(&lab);
    assert!(matches!(
        deeds(&tell(&mut lab, ForgeActionResult::Looked(seen)))[..],
        [ForgeAction::Merge { .. }]
    ));
    asks_again(&mut lab, |deed| matches!(deed, ForgeAction::Merge { number: 7, .. }));
    tell(&mut lab, merged());
    assert_eq!(lab.phase("A"), Phase::Landed);
    lab.removed("A");
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Done));
    assert_eq!(count(&lab, |fact| matches!(fact, Fact::PushIntended(_))), 1);
    assert_eq!(count(&lab, |fact| matches!(fact, Fact::TaskLanded { .. })), 1);
}

#[test]
fn no_news_count_twice() {
    let mut lab = one();
    let news = opened(&lab);
    tell(&mut lab, news.clone());
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    lab.ignored(Input::forge_action_done(task, attempt, news));
    let seen = ForgeActionResult::Looked(sight(&lab));
    tell(&mut lab, seen.clone());
    lab.ignored(Input::forge_action_done(task, attempt, seen.clone()));
    lab.ignored(Input::forge_action_done(task, attempt + 1, merged()));
    tell(&mut lab, merged());
    lab.ignored(Input::forge_action_done(task, attempt, merged()));
    lab.ignored(Input::forge_action_done(task, attempt, seen));
}

#[test]
fn who_stops_finishes_a_merge_and_begins_nothing_else() {
    let mut lab = one();
    lab.put(Input::Interrupt { now: false });
    let news = opened(&lab);
    assert_eq!(deeds(&tell(&mut lab, news)), [], "nobody looks any more");
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Interrupted));
    lab.crash();
    let seen = ForgeActionResult::Looked(sight(&lab));
    tell(&mut lab, seen);
    lab.put(Input::Interrupt { now: false });
    assert_eq!(lab.machine.rest_reason(), None, "a merge is under way");
    tell(&mut lab, merged());
    assert_eq!(lab.phase("A"), Phase::Landed);
}

#[test]
fn a_wish_to_cancel_waits_for_the_merge_that_is_under_way() {
    for refused in [false, true] {
        let mut lab = one();
        let news = opened(&lab);
        tell(&mut lab, news);
        let seen = ForgeActionResult::Looked(sight(&lab));
        tell(&mut lab, seen);
        lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
        assert_eq!(lab.phase("A"), Phase::Merging);
        tell(
            &mut lab,
            if refused {
                ForgeActionResult::MergeRefused { why: "no".to_owned() }
            } else {
                merged()
            },
        );
        let phase = if refused { Phase::Cancelled } else { Phase::Landed };
        assert_eq!(lab.phase("A"), phase);
    }
}

#[test]
fn a_forge_that_is_away_is_asked_again_later_and_costs_no_attempt() {
    let mut lab = one();
    let mut waits = Vec::new();
    for _ in 0..12 {
        let failed =
            ForgeActionResult::Failed { reason: "gone".to_owned(), after_ms: None, refused: false };
        assert_eq!(deeds(&tell(&mut lab, failed)), []);
        let at = lab.machine.wake_at().unwrap();
        waits.push(at.since_ms(lab.now));
        lab.now = at;
        assert!(matches!(deeds(&lab.put(Input::Tick))[..], [ForgeAction::Open { .. }]));
    }
    assert!(waits.is_sorted() && waits[11] <= 60_000, "{waits:?}");
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Merging, 1));
    assert_eq!(count(&lab, |fact| matches!(fact, Fact::Noticed { .. })), 1, "said once");
    let news = opened(&lab);
    tell(&mut lab, news);
    assert_eq!(lab.machine.lasting_notice(Some(&"A".into())), None);
    let limited = ForgeActionResult::Failed {
        reason: "limit".to_owned(),
        after_ms: Some(3_000_000),
        refused: false,
    };
    tell(&mut lab, limited);
    assert_eq!(lab.machine.wake_at(), Some(Time(lab.now.0 + 3_000_000)));
}

#[test]
fn looks_become_rarer_while_nothing_changes() {
    let mut lab = one();
    let news = opened(&lab);
    tell(&mut lab, news);
    let mut waits = Vec::new();
    for n in 0..20 {
        let checks = vec![ObservedPullCheck {
            name: "ci".to_owned(),
            state: ObservedCheckState::Pending,
            detail: String::new(),
        }];
        let seen = PullRequestObservation { checks, ..sight(&lab) };
        tell(&mut lab, ForgeActionResult::Looked(seen));
        let at = lab.machine.wake_at().unwrap();
        waits.push(at.since_ms(lab.now));
        lab.now = at;
        assert_eq!(deeds(&lab.put(Input::Tick)).len(), 1, "look {n}");
    }
    assert!(waits[0] == 1_000 && waits.is_sorted() && waits[19] == 10_000, "{waits:?}");
    assert_eq!(count(&lab, |fact| matches!(fact, Fact::PullSeen(_))), 1, "told once");
}

#[test]
fn rework_goes_on_from_what_was_offered_and_conflicts_begin_anew() {
    let mut lab = one();
    let news = opened(&lab);
    tell(&mut lab, news);
    let review = ObservedPullReview {
        id: 3,
        who: "bob".to_owned(),
        verdict: Some(false),
        text: "no".to_owned(),
    };
    let seen = PullRequestObservation { reviews: vec![review], ..sight(&lab) };
    let head = seen.head.clone();
    let asked = tell(&mut lab, ForgeActionResult::Looked(seen));
    let from = |asked: &[Effect]| match asked {
        [Effect::PrepareWorkspace { from, .. }] => from.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(from(&asked), Some(head));
    assert!(
        lab.machine.tasks().get(lab.ix("A")).last.as_ref().unwrap().gate_output.contains("bob")
    );
    lab.crash();
    lab.enqueue("A");
    let news = opened(&lab);
    tell(&mut lab, news);
    let clash = Some(("c9".into(), vec!["x".to_owned()]));
    let seen = PullRequestObservation {
        mergeable: PullRequestMergeability::Conflict,
        conflict: clash,
        ..sight(&lab)
    };
    let asked = tell(&mut lab, ForgeActionResult::Looked(seen));
    assert_eq!(from(&asked), None);
    assert_eq!(lab.attempt("A"), 3);
}

#[test]
fn what_is_ours_may_be_replaced_and_what_is_not_stops_the_task() {
    let mut lab = one();
    let refused = |lab: &Lab, ours| ForgeActionResult::PushRefused {
        tip: tip(lab),
        found: Some("f".into()),
        ours,
    };
    let news = refused(&lab, true);
    let asked = deeds(&tell(&mut lab, news));
    let [ForgeAction::Open { push, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(push.lease, Some("f".into()));
    let mut lab = one();
    let news = refused(&lab, false);
    tell(&mut lab, news);
    assert_eq!(lab.phase("A"), Phase::Blocked);
    assert_eq!(lab.machine.pull_request(lab.ix("A")).unwrap().stage, PullRequestStage::Idle);
}

#[test]
fn a_merger_looks_once_at_each_starts_nobody_and_rests() {
    let mut lab = Lab::new(&by_pull(), plan(vec![task("A", &[]), task("B", &["A"])]));
    lab.enqueue("A");
    let news = opened(&lab);
    tell(&mut lab, news);
    let merge_only = Some(MergeOnlyMode::Once);
    lab.put(Input::ConfigureEpoch(EpochOptions { merge_only, ..EpochOptions::default() }));
    lab.begin(None);
    assert_eq!(lab.machine.rest_reason(), None);
    let seen = PullRequestObservation { draft: true, ..sight(&lab) };
    tell(&mut lab, ForgeActionResult::Looked(seen));
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
    lab.begin(None);
    let seen = ForgeActionResult::Looked(sight(&lab));
    tell(&mut lab, seen);
    assert_eq!(lab.machine.rest_reason(), None, "it is being merged");
    tell(&mut lab, merged());
    lab.removed("A");
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded), "B is not started");
    assert_eq!(lab.started(), ["A"]);
}

#[test]
fn by_phase_only_the_closing_tasks_go_to_the_forge() {
    let mut s = by_pull();
    s.land.mode = LandMode::PhasePr;
    let of = |id: &str, phase: &str| Task { phase: Some(phase.to_owned()), ..task(id, &[]) };
    let plan = add_closing_tasks(plan(vec![of("A", "one"), of("B", "two")]), true);
    let mut lab = Lab::new(&s, plan);
    lab.enqueue("A");
    assert_eq!(deeds(&lab.effects), [], "it lands here");
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    lab.form("A");
    lab.put(Input::Landed { task, attempt, commit: "m-A".into(), old: "c0".into() });
    assert_eq!(lab.all(Phase::Preparing), ["phase-one"]);
    lab.enqueue("phase-one");
    assert!(lab.machine.train().candidates().is_empty());
    assert!(matches!(deeds(&lab.effects)[..], [ForgeAction::Open { .. }]));
    lab.crash();
    let (task, attempt) = (lab.ix("phase-one"), lab.attempt("phase-one"));
    lab.put(Input::forge_action_done(task, attempt, merged()));
    assert_eq!(lab.all(Phase::Preparing), ["B"]);
}

#[test]
fn a_forge_that_says_again_and_again_that_there_is_nothing_leaves_the_task_to_a_person() {
    let mut lab = one();
    let news = opened(&lab);
    tell(&mut lab, news);
    let gone =
        |refused| ForgeActionResult::Failed { reason: "404".to_owned(), after_ms: None, refused };
    for refused in [true, true, true, true, false, true, true, true, true] {
        tell(&mut lab, gone(refused));
        assert_eq!(lab.phase("A"), Phase::Merging);
        lab.now = lab.machine.wake_at().unwrap();
        assert!(matches!(deeds(&lab.put(Input::Tick))[..], [ForgeAction::Look { .. }]));
    }
    tell(&mut lab, gone(true));
    assert_eq!(lab.phase("A"), Phase::Blocked);
    let reason = lab.machine.task_view(lab.ix("A")).reason;
    assert!(reason.contains("#7") && reason.contains("mainstem retry A"), "{reason}");
    lab.removed("A");
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
    assert_eq!(lab.attempt("A"), 1, "no attempt was spent on it");
}

#[test]
fn before_a_task_is_blamed_the_gates_look_at_the_branch_that_it_goes_to() {
    for base in [GateVerdict::Passed, GateVerdict::Failed, GateVerdict::Error] {
        let mut s = by_pull();
        s.gates.verify = vec!["test".to_owned()];
        let mut lab = Lab::new(&s, plan(vec![task("A", &[])]));
        lab.enqueue("A");
        let (t, attempt) = (lab.ix("A"), lab.attempt("A"));
        let gates = vec![verdict("test", GateVerdict::Failed)];
        let ran = Input::GatesRan { task: t, attempt, tree: "w".into(), gates };
        assert!(matches!(lab.put(ran.clone())[..], [Effect::MergeBatch { .. }]));
        lab.ignored(ran.clone());
        assert_eq!(lab.phase("A"), Phase::Verifying, "nobody is blamed yet");
        // The next life finds it all out again.
        let before = lab.effects.len();
        lab.crash();
        assert!(matches!(lab.effects[before..], [Effect::RunGates { .. }]));
        lab.put(ran);
        lab.base("A", base);
        if base == GateVerdict::Failed {
            assert_eq!(lab.phase("A"), Phase::Verifying, "once may be bad luck");
            lab.base("A", base);
        }
        let state = lab.machine.tasks().get(t);
        let last = state.last.as_ref().unwrap();
        match base {
            GateVerdict::Failed => {
                assert_eq!((last.class, state.phase()), (FailureClass::NeedsInput, Phase::Blocked));
                assert!(state.reason.contains("main itself"), "{}", state.reason);
                assert_eq!(state.attempts, 1, "no attempt was spent on it");
            }
            GateVerdict::Passed | GateVerdict::Error => {
                assert_eq!(last.class, FailureClass::GateFailed);
            }
        }
    }
}

#[test]
fn who_is_called_off_while_the_branch_is_looked_at_is_not_blamed() {
    let mut s = by_pull();
    s.gates.verify = vec!["test".to_owned()];
    let mut lab = Lab::new(&s, plan(vec![task("A", &[])]));
    lab.enqueue("A");
    let (t, attempt) = (lab.ix("A"), lab.attempt("A"));
    let gates = vec![verdict("test", GateVerdict::Failed)];
    lab.put(Input::GatesRan { task: t, attempt, tree: "w".into(), gates });
    lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
    assert_eq!(lab.phase("A"), Phase::Cancelled);
    lab.removed("A");
    lab.base("A", GateVerdict::Passed);
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
}
