use super::*;

fn policy() -> PullRequestSettings {
    PullRequestSettings { require_checks: true, auto_merge: true, ..PullRequestSettings::default() }
}

fn known() -> TaskPullRequest {
    TaskPullRequest {
        pushed: Some("tip".into()),
        stage: PullRequestStage::Open,
        number: Some(7),
        ..TaskPullRequest::default()
    }
}

fn check(name: &str, state: ObservedCheckState) -> ObservedPullCheck {
    ObservedPullCheck { name: name.to_owned(), state, detail: format!("{name} says") }
}

fn review(id: u64, who: &str, verdict: Option<bool>) -> ObservedPullReview {
    ObservedPullReview { id, who: who.to_owned(), verdict, text: format!("{who} says") }
}

fn good() -> PullRequestObservation {
    PullRequestObservation {
        number: 7,
        state: ObservedPullState::Open,
        head: "tip".into(),
        ours: true,
        draft: false,
        mergeable: PullRequestMergeability::Yes,
        conflict: None,
        checks: vec![
            check("ci", ObservedCheckState::Passed),
            check("docs", ObservedCheckState::Neutral),
        ],
        reviews: Vec::new(),
    }
}

fn follows(change: impl FnOnce(&mut PullRequestObservation)) -> PullRequestDecision {
    let mut sight = good();
    change(&mut sight);
    decide_pull_request(&sight, &known(), &policy())
}

fn waits(change: impl FnOnce(&mut PullRequestObservation), word: &str) {
    match follows(change) {
        PullRequestDecision::Wait(what) => assert!(what.contains(word), "{what}"),
        other => panic!("{other:?} instead of waiting for {word}"),
    }
}

#[test]
fn what_is_known_to_be_good_is_merged_and_nothing_else() {
    assert_eq!(follows(|_| {}), PullRequestDecision::Merge);
    waits(|s| s.checks.push(check("slow", ObservedCheckState::Pending)), "slow");
    waits(|s| s.checks.clear(), "first check");
    waits(|s| s.checks = vec![check("docs", ObservedCheckState::Neutral)], "first check");
    waits(|s| s.mergeable = PullRequestMergeability::Unknown, "forge to allow");
    waits(|s| s.mergeable = PullRequestMergeability::Blocked, "rules");
    waits(|s| s.draft = true, "draft");
    waits(|s| s.ours = false, "replaced");
    assert_eq!(
        follows(|s| s.mergeable = PullRequestMergeability::Behind),
        PullRequestDecision::Update
    );
}

#[test]
fn policies_ask_for_less_or_more() {
    let mut sight = good();
    sight.checks.clear();
    let lax = PullRequestSettings { require_checks: false, ..policy() };
    assert_eq!(decide_pull_request(&sight, &known(), &lax), PullRequestDecision::Merge);
    let strict = PullRequestSettings { approvals: 1, ..policy() };
    assert!(matches!(
        decide_pull_request(&good(), &known(), &strict),
        PullRequestDecision::Wait(_)
    ));
    sight = good();
    sight.reviews = vec![review(1, "alice", Some(true)), review(2, "alice", None)];
    assert_eq!(
        decide_pull_request(&sight, &known(), &strict),
        PullRequestDecision::Merge,
        "a remark takes no approval back"
    );
    sight.reviews.push(review(3, "alice", Some(false)));
    assert!(matches!(
        decide_pull_request(&sight, &known(), &strict),
        PullRequestDecision::Rework { .. }
    ));
    let by_hand = PullRequestSettings { auto_merge: false, ..policy() };
    assert!(matches!(
        decide_pull_request(&good(), &known(), &by_hand),
        PullRequestDecision::Wait(_)
    ));
}

#[test]
fn red_checks_and_objections_go_back_to_the_agent_once() {
    let red =
        |s: &mut PullRequestObservation| s.checks.push(check("lint", ObservedCheckState::Failed));
    let PullRequestDecision::Rework { findings, reviews } = follows(red) else {
        panic!("no rework")
    };
    assert_eq!(findings, [("check lint".to_owned(), "lint says".to_owned())]);
    assert_eq!(reviews, 0);
    waits(
        |s| {
            s.checks = vec![
                check("a", ObservedCheckState::Failed),
                check("b", ObservedCheckState::Pending),
            ];
        },
        "b",
    );
    let mut sight = good();
    sight.reviews = vec![review(4, "bob", Some(false))];
    sight.checks.push(check("slow", ObservedCheckState::Pending));
    let PullRequestDecision::Rework { findings, reviews } =
        decide_pull_request(&sight, &known(), &policy())
    else {
        panic!("no rework")
    };
    assert_eq!((findings[0].0.as_str(), reviews), ("review by bob", 4));
    sight.checks = good().checks;
    let answered = TaskPullRequest { reviews: 4, ..known() };
    match decide_pull_request(&sight, &answered, &policy()) {
        PullRequestDecision::Wait(what) => assert!(what.contains("bob"), "{what}"),
        other => panic!("{other:?}: he has not looked again"),
    }
    sight.reviews.push(review(5, "bob", Some(true)));
    assert_eq!(decide_pull_request(&sight, &answered, &policy()), PullRequestDecision::Merge);
}

#[test]
fn conflicts_are_reworked_unless_somebody_else_is_at_it() {
    let clash = |s: &mut PullRequestObservation| {
        s.mergeable = PullRequestMergeability::Conflict;
        s.conflict = Some(("main".into(), vec!["a.rs".to_owned()]));
    };
    let expected =
        PullRequestDecision::Conflict { onto: "main".into(), files: vec!["a.rs".to_owned()] };
    assert_eq!(follows(clash), expected);
    waits(
        |s| {
            clash(s);
            s.head = "theirs".into();
        },
        "by someone else",
    );
    waits(|s| s.mergeable = PullRequestMergeability::Conflict, "forge");
}

#[test]
fn what_the_forge_has_decided_is_so() {
    let merged = ObservedPullState::Merged { commit: "c".into(), old: "o".into() };
    let landed = PullRequestDecision::Landed { commit: "c".into(), old: "o".into() };
    assert_eq!(follows(|s| s.state = merged.clone()), landed);
    let replaced = |s: &mut PullRequestObservation| {
        s.state = merged.clone();
        s.ours = false;
    };
    assert_eq!(follows(replaced), landed, "merged is merged, whoever's commits");
    assert_eq!(follows(|s| s.state = ObservedPullState::Closed), PullRequestDecision::GiveUp);
}
