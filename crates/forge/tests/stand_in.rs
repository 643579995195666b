//! GitHub's client against the stand-in: real HTTP, real branches, ordered faults.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use mainstem_forge::token::ForgeToken;
use mainstem_forge::wire::{ForgeHttpMethod, ForgeHttpRequest, ForgeTransport as _};
use mainstem_forge::{
    Forge, ForgeCheckState, ForgeError, ForgeHttpClient, ForgeMergeOptions, ForgeMergeability,
    ForgePullRequestState, ForgeRepository, ForgeReviewState, GitHubForge, MergeMethod,
    NewPullRequest, merge_pull_request_once, open_pull_request_once,
};
use mainstem_testkit::TestRepo;
use mainstem_testkit::forge::{ForgeBranchRules, ForgeFault, ForgeFaultKind, ForgeStandIn};

struct Scene {
    repo: TestRepo,
    forge: ForgeStandIn,
    hub: GitHubForge,
}

fn client(forge: &ForgeStandIn, token: &str) -> GitHubForge {
    let place = ForgeRepository::from_path("forge.invalid", "o/r").unwrap();
    let transport = Box::new(ForgeHttpClient::with_timeout(Duration::from_secs(20)));
    let pause = Box::new(|time: Duration| {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let _ = receiver.recv_timeout(time);
        drop(sender);
        true
    });
    GitHubForge::new(&place, Some(forge.url()), ForgeToken::new(token).unwrap(), transport, pause)
}

impl Scene {
    fn new() -> Self {
        Self::with_pages_of(100)
    }

    fn with_pages_of(page_max: usize) -> Self {
        let repo = TestRepo::new();
        let bare = repo.root().join("forge.git");
        let forge = ForgeStandIn::start_at(&bare, 0, page_max).unwrap();
        repo.git(&["remote", "add", "origin", bare.to_str().unwrap()]);
        repo.git(&["push", "-q", "origin", "main"]);
        let hub = client(&forge, "secret");
        Self { repo, forge, hub }
    }

    /// A branch with one file, pushed; its commit.
    fn branch(&self, name: &str, file: &str, content: &str) -> String {
        self.repo.git(&["switch", "-q", "-C", name, "main"]);
        let commit = self.repo.commit(name, &[(file, content)]);
        self.repo.git(&["push", "-q", "--force", "origin", name]);
        self.repo.git(&["switch", "-q", "main"]);
        commit
    }
}

fn new_pull(head: &str) -> NewPullRequest {
    NewPullRequest {
        head: head.to_owned(),
        base: "main".to_owned(),
        title: format!("Work of {head}"),
        body: "a body".to_owned(),
        draft: false,
        labels: Vec::new(),
        milestone: None,
    }
}

fn wish(head: &str, method: MergeMethod) -> ForgeMergeOptions<'_> {
    ForgeMergeOptions { head, method, title: "T-1: work", message: "Mainstem-Task: T-1\n" }
}

/// The forge says null first.
fn mergeable(hub: &GitHubForge, number: u64) -> ForgeMergeability {
    assert_eq!(hub.get_pull_request(number).unwrap().mergeable, ForgeMergeability::Unknown);
    hub.get_pull_request(number).unwrap().mergeable
}

#[test]
fn a_pull_request_is_made_dressed_checked_reviewed_and_merged_in_each_way() {
    let scene = Scene::new();
    scene.forge.add_milestone("v1");
    for (n, method) in
        [MergeMethod::Merge, MergeMethod::Squash, MergeMethod::Rebase].into_iter().enumerate()
    {
        let head = format!("mainstem/T-{n}");
        let tip = scene.branch(&head, &format!("{n}.txt"), "x\n");
        let opened = open_pull_request_once(&scene.hub, &new_pull(&head), &tip, &[]).unwrap();
        assert!(opened.created);
        let number = opened.pull.number;
        scene.hub.set_labels(number, &["agent".to_owned()], Some("v1")).unwrap();
        let again = open_pull_request_once(&scene.hub, &new_pull(&head), &tip, &[]).unwrap();
        assert_eq!((again.created, again.pull.number), (false, number));
        scene.forge.set_check(&tip, "ci", "success", "");
        scene.forge.review(number, "alice", "APPROVED", "good", &[("a.rs", 3, "nice")]);
        let checks = scene.hub.list_checks(&tip).unwrap();
        assert_eq!(checks.iter().map(|c| c.state).collect::<Vec<_>>(), [ForgeCheckState::Passed]);
        assert_eq!(scene.hub.list_reviews(number).unwrap()[0].state, ForgeReviewState::Approved);
        assert_eq!(
            scene.hub.list_comments(number).unwrap()[0].at,
            Some(("a.rs".to_owned(), Some(3)))
        );
        assert_eq!(mergeable(&scene.hub, number), ForgeMergeability::Yes);
        let before = scene.forge.branch("main").unwrap();
        let merged = merge_pull_request_once(&scene.hub, number, &wish(&tip, method)).unwrap();
        assert_eq!(scene.forge.branch("main").as_deref(), Some(merged.commit.as_str()));
        let again = merge_pull_request_once(&scene.hub, number, &wish(&tip, method)).unwrap();
        assert_eq!(again, merged, "merging again finds the first");
        scene.repo.git(&["fetch", "-q", "origin"]);
        let parents = scene.repo.git(&["log", "-1", "--format=%P", &merged.commit]);
        let second = if method == MergeMethod::Merge { format!(" {tip}") } else { String::new() };
        assert_eq!(parents, format!("{before}{second}"));
        let shown = scene.forge.pull(number).unwrap();
        assert_eq!(
            (&shown["labels"][0]["name"], &shown["milestone"]["number"]),
            (&"agent".into(), &1.into())
        );
        scene.hub.delete_branch(&head).unwrap();
        scene.hub.delete_branch(&head).unwrap();
        assert_eq!(scene.hub.branch_commit(&head).unwrap(), None);
    }
    assert_eq!(scene.forge.granted("PUT", "/merge"), 3);
}

#[test]
fn pull_requests_into_a_branch_are_found_pointed_elsewhere_and_follow_or_end_with_it() {
    let scene = Scene::with_pages_of(1);
    let hub = &scene.hub;
    let lower = scene.branch("mainstem/T-1", "a.txt", "a\n");
    let first =
        open_pull_request_once(hub, &new_pull("mainstem/T-1"), &lower, &[]).unwrap().pull.number;
    let stacked = |name: &str, file: &str| {
        scene.repo.git(&["switch", "-q", "-C", name, "mainstem/T-1"]);
        let tip = scene.repo.commit(name, &[(file, "b\n")]);
        scene.repo.git(&["push", "-q", "origin", name]);
        scene.repo.git(&["switch", "-q", "main"]);
        let new = NewPullRequest { base: "mainstem/T-1".to_owned(), ..new_pull(name) };
        (tip.clone(), open_pull_request_once(hub, &new, &tip, &[]).unwrap().pull.number)
    };
    let (_, second) = stacked("mainstem/T-2", "b.txt");
    let (tip, third) = stacked("mainstem/T-3", "c.txt");
    let into = |base: &str| -> Vec<u64> {
        hub.pull_requests_into(base).unwrap().iter().map(|pull| pull.number).collect()
    };
    assert_eq!(into("mainstem/T-1"), [third, second]);
    assert!(into("mainstem/T-9").is_empty());
    hub.retarget(third, "main").unwrap();
    hub.retarget(third, "main").unwrap();
    assert_eq!((into("mainstem/T-1"), into("main")), (vec![second], vec![third, first]));
    assert!(matches!(hub.retarget(third, "nowhere"), Err(ForgeError::Refused { .. })));
    let new = NewPullRequest { base: "mainstem/T-1".to_owned(), ..new_pull("mainstem/T-3") };
    let again = open_pull_request_once(hub, &new, &tip, &[]).unwrap();
    assert_eq!((again.pull.number, again.pull.base.as_str()), (third, "mainstem/T-1"));
    // Merged, its branch goes and those on it follow; closed, they go with it.
    merge_pull_request_once(hub, first, &wish(&lower, MergeMethod::Squash)).unwrap();
    hub.delete_branch("mainstem/T-1").unwrap();
    assert_eq!(into("main"), [third, second]);
    hub.retarget(third, "mainstem/T-2").unwrap();
    scene.forge.close(second);
    hub.delete_branch("mainstem/T-2").unwrap();
    assert_eq!(hub.get_pull_request(third).unwrap().state, ForgePullRequestState::Closed);
}

#[test]
fn what_clashes_is_behind_or_blocked_is_said_so_and_not_merged() {
    let scene = Scene::new();
    let tip = scene.branch("mainstem/T-1", "README.md", "mine\n");
    let pull =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap().pull;
    scene.forge.rules(ForgeBranchRules { approvals: 1, ..ForgeBranchRules::default() });
    assert_eq!(mergeable(&scene.hub, pull.number), ForgeMergeability::Blocked);
    scene.repo.commit("meanwhile", &[("other.txt", "y\n")]);
    scene.repo.git(&["push", "-q", "origin", "main"]);
    scene.forge.rules(ForgeBranchRules { up_to_date: true, ..ForgeBranchRules::default() });
    assert_eq!(mergeable(&scene.hub, pull.number), ForgeMergeability::Behind);
    scene.hub.update_branch(pull.number, &tip).unwrap();
    assert_eq!(mergeable(&scene.hub, pull.number), ForgeMergeability::Yes);
    let stale = merge_pull_request_once(&scene.hub, pull.number, &wish(&tip, MergeMethod::Squash));
    assert!(matches!(stale, Err(ForgeError::Refused { status: 409, .. })), "{stale:?}");
    scene.repo.commit("clash", &[("README.md", "theirs\n")]);
    scene.repo.git(&["push", "-q", "origin", "main"]);
    assert_eq!(mergeable(&scene.hub, pull.number), ForgeMergeability::Conflict);
    let head = scene.forge.branch("mainstem/T-1").unwrap();
    let refused =
        merge_pull_request_once(&scene.hub, pull.number, &wish(&head, MergeMethod::Squash));
    assert!(matches!(refused, Err(ForgeError::Refused { status: 405, .. })), "{refused:?}");
}

#[test]
fn an_answer_lost_after_the_effect_makes_nothing_twice() {
    let scene = Scene::new();
    for (n, lost) in
        [ForgeFaultKind::DropAfter, ForgeFaultKind::StatusAfter(502)].into_iter().enumerate()
    {
        let head = format!("mainstem/T-{n}");
        let tip = scene.branch(&head, &format!("{n}.txt"), "x\n");
        scene.forge.fault(ForgeFault::once("POST", "/pulls", lost.clone()));
        let opened = open_pull_request_once(&scene.hub, &new_pull(&head), &tip, &[]).unwrap();
        scene.forge.fault(ForgeFault::once("PUT", "/merge", lost));
        let merged = merge_pull_request_once(
            &scene.hub,
            opened.pull.number,
            &wish(&tip, MergeMethod::Squash),
        );
        assert_eq!(scene.forge.branch("main"), Some(merged.unwrap().commit));
    }
    assert_eq!(scene.forge.pulls().len(), 2);
}

#[test]
fn a_wish_that_never_got_there_is_told_apart_and_looking_is_tried_again() {
    let scene = Scene::new();
    let tip = scene.branch("mainstem/T-1", "x.txt", "x\n");
    scene.forge.fault(ForgeFault::once("GET", "/pulls", ForgeFaultKind::Status(503)).times(2));
    scene.forge.fault(ForgeFault::once("POST", "/pulls", ForgeFaultKind::DropBefore));
    let unsure = open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]);
    assert!(matches!(unsure, Err(ForgeError::Unsure { .. })), "{unsure:?}");
    assert!(
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap().created
    );
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let place = ForgeRepository::from_path("forge.invalid", "o/r").unwrap();
    let token = ForgeToken::new("t").unwrap();
    let hub = GitHubForge::new(
        &place,
        Some(&gone),
        token,
        Box::new(ForgeHttpClient::new()),
        Box::new(|_| true),
    );
    let unreached = hub.add_comment(1, "x");
    assert!(matches!(unreached, Err(ForgeError::Unreached { .. })), "{unreached:?}");
}

#[test]
fn a_pull_request_that_is_over_counts_only_for_the_very_commit() {
    let scene = Scene::new();
    let first = scene.branch("mainstem/T-1", "x.txt", "x\n");
    let pull =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &first, &[]).unwrap().pull;
    scene.forge.close(pull.number);
    let found = open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &first, &[]).unwrap();
    assert_eq!((found.pull.number, found.pull.state), (pull.number, ForgePullRequestState::Closed));
    let fresh =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &first, &[pull.number])
            .unwrap();
    assert_ne!(fresh.pull.number, pull.number);
    scene.forge.merge_by_hand(fresh.pull.number, "squash");
    let second = scene.branch("mainstem/T-1", "y.txt", "y\n");
    let other =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &second, &[]).unwrap();
    assert!(other.created, "what another run merged is not this work");
}

#[test]
fn an_open_pull_request_into_another_branch_is_turned_to_ours() {
    let scene = Scene::new();
    scene.repo.git(&["push", "-q", "origin", "main:other"]);
    let tip = scene.branch("mainstem/T-1", "x.txt", "x\n");
    let elsewhere = NewPullRequest { base: "other".to_owned(), ..new_pull("mainstem/T-1") };
    let first = open_pull_request_once(&scene.hub, &elsewhere, &tip, &[]).unwrap();
    let found = open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap();
    assert_eq!((found.created, found.pull.number), (false, first.pull.number));
    assert_eq!(scene.hub.get_pull_request(found.pull.number).unwrap().base, "main");
}

#[test]
fn unchanged_answers_cost_nothing_of_the_hour() {
    let scene = Scene::new();
    let tip = scene.branch("mainstem/T-1", "x.txt", "x\n");
    let pull =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap().pull;
    let look = || {
        scene.hub.list_checks(&tip).unwrap();
        scene.hub.list_reviews(pull.number).unwrap();
        scene.hub.get_pull_request(pull.number).unwrap().mergeable
    };
    look();
    look();
    let before = scene.forge.remaining();
    for _ in 0..5 {
        assert_eq!(look(), ForgeMergeability::Yes);
    }
    assert_eq!(scene.forge.remaining(), before);
    scene.forge.set_check(&tip, "ci", "failure", "broken");
    assert_eq!(scene.hub.list_checks(&tip).unwrap()[0].state, ForgeCheckState::Failed);
}

#[test]
fn limits_are_waited_for_if_short_and_told_if_long_and_nobody_asks_meanwhile() {
    let scene = Scene::new();
    scene.forge.fault(ForgeFault::once("GET", "/issues", ForgeFaultKind::RetryAfter(1)));
    let began = Instant::now();
    scene.hub.list_issues(false).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    scene.forge.fault(ForgeFault::once("GET", "/issues", ForgeFaultKind::RetryAfter(3600)));
    let limited = scene.hub.list_issues(false).unwrap_err();
    assert!(limited.retry_after_ms().unwrap() > 3_000_000 && limited.is_transient(), "{limited}");
    let asked = scene.forge.requests().len();
    assert!(scene.hub.get_pull_request(1).unwrap_err().retry_after_ms().is_some());
    assert_eq!(scene.forge.requests().len(), asked, "nobody asks while the forge rests");
    let hub = client(&scene.forge, "other");
    scene.forge.set_remaining(1);
    hub.list_issues(false).unwrap();
    let asked = scene.forge.requests().len();
    assert!(
        hub.list_issues(true).unwrap_err().retry_after_ms().is_some(),
        "that was the hour's last"
    );
    assert_eq!(scene.forge.requests().len(), asked, "so nobody asks");
    let hub = client(&scene.forge, "third");
    let spent = hub.list_issues(false);
    assert!(matches!(spent, Err(ForgeError::Limited { .. })), "{spent:?}");
}

#[test]
fn lists_are_read_to_their_last_page_and_issues_bring_their_edges() {
    let scene = Scene::with_pages_of(3);
    let first = scene.forge.add_issue("first", "do this", &[], &[]);
    let mut before = first;
    for n in 0..9 {
        before = scene.forge.add_issue(&format!("then {n}"), "", &[before], &[]);
    }
    let whole = scene.forge.add_issue("epic", "", &[], &[first, before]);
    let tip = scene.branch("mainstem/T-1", "x.txt", "x\n");
    open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap();
    let issues = scene.hub.list_issues(false).unwrap();
    assert_eq!(issues.len(), 11, "pull requests are no issues");
    assert_eq!(issues[1].blocked_by, [first]);
    assert_eq!(issues.iter().find(|i| i.number == whole).unwrap().parts, [first, before]);
}

#[test]
fn who_is_not_let_in_is_told_what_helps() {
    let scene = Scene::new();
    scene.forge.let_in_only("secret");
    assert_eq!(scene.hub.list_issues(true).unwrap(), []);
    let error = client(&scene.forge, "wrong").list_issues(true).unwrap_err();
    assert!(error.to_string().contains("gh auth login"), "{error}");
    assert!(!error.is_transient());
    assert!(matches!(scene.hub.get_pull_request(99), Err(ForgeError::NotFound { .. })));
}

#[test]
fn a_forced_push_and_a_deleted_branch_show_in_the_pull_request() {
    let scene = Scene::new();
    let tip = scene.branch("mainstem/T-1", "x.txt", "x\n");
    let pull =
        open_pull_request_once(&scene.hub, &new_pull("mainstem/T-1"), &tip, &[]).unwrap().pull;
    let other = scene.branch("mainstem/T-1", "z.txt", "z\n");
    assert_eq!(scene.hub.get_pull_request(pull.number).unwrap().head_commit, other);
    assert_eq!(scene.forge.pull(pull.number).unwrap()["forced"][0][0], tip.as_str());
    scene.hub.delete_branch("mainstem/T-1").unwrap();
    assert_eq!(
        scene.hub.get_pull_request(pull.number).unwrap().state,
        ForgePullRequestState::Closed
    );
}

#[test]
fn a_forge_that_drips_its_answer_is_given_up_after_the_time_for_the_whole_request() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
                let (_open, never) = std::sync::mpsc::channel::<()>();
                while stream.write_all(b" ").is_ok() {
                    let _ = never.recv_timeout(Duration::from_millis(100));
                }
            });
        }
    });
    let request = ForgeHttpRequest {
        verb: ForgeHttpMethod::Get,
        path: String::new(),
        body: None,
        what: String::new(),
    };
    let began = Instant::now();
    let http = ForgeHttpClient::with_timeout(Duration::from_secs(2));
    let broken = http.send(&format!("http://127.0.0.1:{port}/"), &request, &[]);
    assert!(broken.is_err_and(|broken| broken.maybe_sent));
    // Dripped to its end, the answer would take a day.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
