use super::*;

fn policy() -> Pulls {
    Pulls { require_checks: true, auto_merge: true, ..Pulls::default() }
}

fn known() -> Pull {
    Pull { pushed: Some("tip".into()), stage: Stage::Open, number: Some(7), ..Pull::default() }
}

fn check(name: &str, state: CheckState) -> Check {
    Check { name: name.to_owned(), state, detail: format!("{name} says") }
}

fn review(id: u64, who: &str, verdict: Option<bool>) -> Review {
    Review { id, who: who.to_owned(), verdict, text: format!("{who} says") }
}

fn good() -> Sight {
    Sight {
        number: 7,
        state: State::Open,
        head: "tip".into(),
        ours: true,
        draft: false,
        mergeable: Mergeable::Yes,
        clash: None,
        checks: vec![check("ci", CheckState::Passed), check("docs", CheckState::Neutral)],
        reviews: Vec::new(),
    }
}

fn follows(change: impl FnOnce(&mut Sight)) -> Next {
    let mut sight = good();
    change(&mut sight);
    next(&sight, &known(), &policy())
}

fn waits(change: impl FnOnce(&mut Sight), word: &str) {
    match follows(change) {
        Next::Wait(what) => assert!(what.contains(word), "{what}"),
        other => panic!("{other:?} instead of waiting for {word}"),
    }
}

#[test]
fn what_is_known_to_be_good_is_merged_and_nothing_else() {
    assert_eq!(follows(|_| {}), Next::Merge);
    waits(|s| s.checks.push(check("slow", CheckState::Pending)), "slow");
    waits(|s| s.checks.clear(), "first check");
    waits(|s| s.checks = vec![check("docs", CheckState::Neutral)], "first check");
    waits(|s| s.mergeable = Mergeable::Unknown, "forge to allow");
    waits(|s| s.mergeable = Mergeable::Blocked, "rules");
    waits(|s| s.draft = true, "draft");
    waits(|s| s.ours = false, "replaced");
    assert_eq!(follows(|s| s.mergeable = Mergeable::Behind), Next::Update);
}

#[test]
fn policies_ask_for_less_or_more() {
    let mut sight = good();
    sight.checks.clear();
    let lax = Pulls { require_checks: false, ..policy() };
    assert_eq!(next(&sight, &known(), &lax), Next::Merge);
    let strict = Pulls { approvals: 1, ..policy() };
    assert!(matches!(next(&good(), &known(), &strict), Next::Wait(_)));
    sight = good();
    sight.reviews = vec![review(1, "alice", Some(true)), review(2, "alice", None)];
    assert_eq!(next(&sight, &known(), &strict), Next::Merge, "a remark takes no approval back");
    sight.reviews.push(review(3, "alice", Some(false)));
    assert!(matches!(next(&sight, &known(), &strict), Next::Rework { .. }));
    let by_hand = Pulls { auto_merge: false, ..policy() };
    assert!(matches!(next(&good(), &known(), &by_hand), Next::Wait(_)));
}

#[test]
fn red_checks_and_objections_go_back_to_the_agent_once() {
    let red = |s: &mut Sight| s.checks.push(check("lint", CheckState::Failed));
    let Next::Rework { findings, reviews } = follows(red) else { panic!("no rework") };
    assert_eq!(findings, [("check lint".to_owned(), "lint says".to_owned())]);
    assert_eq!(reviews, 0);
    waits(
        |s| s.checks = vec![check("a", CheckState::Failed), check("b", CheckState::Pending)],
        "b",
    );
    let mut sight = good();
    sight.reviews = vec![review(4, "bob", Some(false))];
    sight.checks.push(check("slow", CheckState::Pending));
    let Next::Rework { findings, reviews } = next(&sight, &known(), &policy()) else {
        panic!("no rework")
    };
    assert_eq!((findings[0].0.as_str(), reviews), ("review by bob", 4));
    sight.checks = good().checks;
    let answered = Pull { reviews: 4, ..known() };
    match next(&sight, &answered, &policy()) {
        Next::Wait(what) => assert!(what.contains("bob"), "{what}"),
        other => panic!("{other:?}: he has not looked again"),
    }
    sight.reviews.push(review(5, "bob", Some(true)));
    assert_eq!(next(&sight, &answered, &policy()), Next::Merge);
}

#[test]
fn conflicts_are_reworked_unless_somebody_else_is_at_it() {
    let clash = |s: &mut Sight| {
        s.mergeable = Mergeable::Conflict;
        s.clash = Some(("main".into(), vec!["a.rs".to_owned()]));
    };
    let expected = Next::Conflict { onto: "main".into(), files: vec!["a.rs".to_owned()] };
    assert_eq!(follows(clash), expected);
    waits(
        |s| {
            clash(s);
            s.head = "theirs".into();
        },
        "by someone else",
    );
    waits(|s| s.mergeable = Mergeable::Conflict, "forge");
}

#[test]
fn what_the_forge_has_decided_is_so() {
    let merged = State::Merged { commit: "c".into(), old: "o".into() };
    let landed = Next::Landed { commit: "c".into(), old: "o".into() };
    assert_eq!(follows(|s| s.state = merged.clone()), landed);
    let replaced = |s: &mut Sight| {
        s.state = merged.clone();
        s.ours = false;
    };
    assert_eq!(follows(replaced), landed, "merged is merged, whoever's commits");
    assert_eq!(follows(|s| s.state = State::Closed), Next::GiveUp);
}
