//! Landing by pull requests, against the stand-in forge: real pushes, real merges, real HTTP.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstem_testkit::forge::{ForgeBranchRules, ForgeFault, ForgeFaultKind, ForgeStandIn};
use mainstem_testkit::shell_plans::{log_of, shell_plan};
use mainstem_testkit::{TestCommandOutput, TestScene, TestSceneProcess, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// A scene whose `origin` is the stand-in's repository.
pub(crate) struct Play {
    pub(crate) scene: TestScene,
    pub(crate) forge: ForgeStandIn,
}

impl Play {
    pub(crate) fn new(tasks: &[(&str, &str, &str)], land: &str) -> Self {
        let scene = TestScene::new(BIN);
        let bare = scene.outside("forge.git");
        let forge = ForgeStandIn::start(&bare);
        let config = format!(
            "[run]\nretries = 2\n[land]\nmode = \"pr\"\nstrategy = \"squash\"\n\
             repository = \"o/r\"\napi = \"{}\"\npoll = \"100ms\"\n{land}\n",
            forge.url()
        );
        let scene = scene.config(&config).plan(&shell_plan(tasks)).env("GH_TOKEN", "secret");
        forge.let_in_only("secret");
        let repo = scene.repo();
        repo.git(&["remote", "add", "origin", bare.to_str().expect("our own path is text")]);
        repo.git(&["push", "-q", "origin", "main"]);
        Self { scene, forge }
    }

    pub(crate) fn run(&self) -> TestCommandOutput {
        self.spawn().wait()
    }

    pub(crate) fn spawn(&self) -> TestSceneProcess {
        self.scene.spawn(&["run", "plan.toml", "-j", "2"])
    }

    pub(crate) fn only_pull(&self) -> Value {
        let pulls = self.forge.pulls();
        assert_eq!(pulls.len(), 1, "{pulls:#?}");
        pulls[0].clone()
    }

    /// Waits until the pull request of a task is open, and gives its number.
    pub(crate) fn wait_for_pull(&self, task: &str) -> u64 {
        let head = format!("mainstem/{task}");
        let mut number = 0;
        wait_until(LONG, "a pull request is open", || {
            let pulls = self.forge.pulls();
            let open =
                pulls.iter().find(|p| p["head"]["ref"] == head.as_str() && p["state"] == "open");
            number = open.and_then(|pull| pull["number"].as_u64()).unwrap_or(0);
            number > 0
        });
        number
    }

    pub(crate) fn wait_for_fact(&self, kind: &str, part: &str) {
        wait_until(LONG, &format!("{kind} with {part}"), || {
            let output = self.scene.mainstem(&["history", "--json"]);
            output.stdout.lines().any(|l| l.contains(&format!("\"{kind}\"")) && l.contains(part))
        });
    }

    /// Each task is on the forge's main exactly once, with nothing of ours left anywhere.
    pub(crate) fn assert_landed(&self, tasks: &[&str]) {
        let repo = self.scene.repo();
        repo.git(&["fetch", "-q", "origin", "main"]);
        let landed = mainstem_testkit::oracle::landings(repo, "FETCH_HEAD");
        let mut ids: Vec<&str> = landed.iter().map(|landing| landing.task.as_str()).collect();
        ids.sort_unstable();
        assert_eq!(ids, tasks, "landings on the forge");
        let facts = self.scene.facts_of("task_landed");
        assert_eq!(facts.len(), tasks.len(), "recorded once each");
        for fact in facts {
            let commit = fact["commit"].as_str().expect("a commit");
            assert!(landed.iter().any(|landing| landing.commit == commit), "{fact}");
        }
        assert_eq!(self.forge.granted("PUT", "/merge"), tasks.len(), "merged once each");
        for task in tasks {
            assert_eq!(self.forge.branch(&format!("mainstem/{task}")), None, "the branch stays");
        }
        let noted = repo.git(&["for-each-ref", "refs/remotes/origin/mainstem"]);
        assert!(noted.is_empty(), "branches that are gone there: {noted}");
        assert_eq!(repo.commit_of("main"), repo.commit_of("FETCH_HEAD"), "our main follows");
        assert!(repo.git(&["status", "--porcelain"]).is_empty());
        self.scene.assert_nothing_left();
    }
}

#[test]
fn work_lands_by_pull_requests_that_the_forge_merges_when_its_checks_pass() {
    let play = Play::new(
        &[
            ("T-1", "echo a > a.txt", "title = \"First\"\nacceptance = [\"a is there\"]"),
            ("T-2", "echo b > b.txt", ""),
            ("T-3", "cat a.txt b.txt > c.txt", "needs = [\"T-1\", \"T-2\"]"),
        ],
        "labels = [\"agent\"]\nmilestone = \"v1\"",
    );
    play.forge.add_milestone("v1");
    play.forge.ci("test ! -e broken");
    let output = play.run().expect_code(0);
    play.assert_landed(&["T-1", "T-2", "T-3"]);
    assert!(output.stderr.contains("opened          pull request #"), "{}", output.stderr);
    let pulls = play.forge.pulls();
    let first =
        pulls.iter().find(|pull| pull["head"]["ref"] == "mainstem/T-1").expect("one of T-1");
    assert_eq!(first["title"], "T-1: First");
    assert!(
        first["body"].as_str().is_some_and(|body| body.contains("- [ ] a is there")),
        "{first}"
    );
    assert_eq!(first["labels"][0]["name"], "agent");
    assert_eq!(first["milestone"]["number"], 1);
    assert_eq!(play.scene.repo().show("main", "c.txt").as_deref(), Some("a\nb\n"));
    play.scene.expect(0, &["run"]);
    assert_eq!(play.forge.pulls().len(), 3);
    assert!(
        play.scene.expect(1, &["undo"]).stderr.contains("revert the pull request on the forge")
    );
}

#[test]
fn a_red_check_goes_back_to_the_agent_with_what_it_said_and_the_work_goes_on_from_there() {
    let work = "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo bad > x.txt; else \
                test \"$(cat x.txt)\" = bad && grep -q 'x is bad' $MAINSTEM_PROMPT && echo good > x.txt; fi";
    let play = Play::new(&[("T-1", work, "")], "");
    play.forge.ci("if grep -q bad x.txt; then echo 'x is bad'; exit 1; fi");
    play.run().expect_code(0);
    play.assert_landed(&["T-1"]);
    assert_eq!(play.scene.repo().show("main", "x.txt").as_deref(), Some("good\n"));
    assert_eq!(play.scene.facts_of("pull_reworked").len(), 1);
    let pull = play.only_pull();
    assert_eq!(pull["forced"].as_array().map(Vec::len), Some(0), "what was reviewed stays");
}

#[test]
fn rework_is_bounded_and_the_pull_request_stays_for_people() {
    let play = Play::new(&[("T-1", "echo $MAINSTEM_ATTEMPT > x.txt", "retries = 1")], "");
    play.forge.ci("false");
    play.run().expect_code(2);
    assert_eq!(play.scene.phase("T-1"), "failed");
    assert_eq!(play.scene.facts_of("pull_reworked").len(), 2);
    assert_eq!(play.only_pull()["state"], "open");
    assert_eq!(play.forge.granted("PUT", "/merge"), 0);
}

#[test]
fn changes_asked_for_in_a_review_are_made_and_then_the_reviewer_is_waited_for() {
    let work = "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo 1 > x.txt; else \
                grep -q 'x.txt:1: two please' $MAINSTEM_PROMPT && echo 2 > x.txt; fi";
    let play = Play::new(&[("T-1", work, "")], "require_checks = false\napprovals = 1");
    let running = play.spawn();
    let number = play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "0 of 1 approvals");
    play.forge.review(
        number,
        "alice",
        "CHANGES_REQUESTED",
        "not yet",
        &[("x.txt", 1, "two please")],
    );
    play.wait_for_fact("pull_seen", "alice, who requested changes");
    play.forge.review(number, "alice", "APPROVED", "", &[]);
    running.wait().expect_code(0);
    play.assert_landed(&["T-1"]);
    assert_eq!(play.scene.repo().show("main", "x.txt").as_deref(), Some("2\n"));
}

#[test]
fn a_conflict_is_redone_on_the_forges_main_and_offered_in_the_same_pull_request() {
    let work = "cat shared.txt > seen-$MAINSTEM_ATTEMPT.txt; echo mine > shared.txt";
    let play = Play::new(&[("T-1", work, "")], "require_checks = false\napprovals = 1");
    play.scene.repo().commit("shared", &[("shared.txt", "old\n")]);
    play.scene.repo().git(&["push", "-q", "origin", "main"]);
    let running = play.spawn();
    let number = play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "approvals");
    let other = play.scene.outside("other");
    let repo = play.scene.repo();
    let path = other.to_str().expect("our own path is text");
    repo.git(&["clone", "-q", play.forge.path().to_str().expect("text"), path]);
    fs::write(other.join("shared.txt"), "theirs\n").expect("a file in a temporary folder");
    let there = |args: &[&str]| repo.git(&[&["-C", path], args].concat());
    there(&["-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-qam", "theirs"]);
    there(&["push", "-q", "origin", "main"]);
    play.wait_for_fact("car_conflicted", "shared.txt");
    play.wait_for_fact("workspace_ready", "\"attempt\":2");
    play.wait_for_fact("pull_opened", "\"attempt\":2");
    play.forge.review(number, "alice", "APPROVED", "", &[]);
    running.wait().expect_code(0);
    fs::remove_dir_all(&other).expect("it is ours");
    play.assert_landed(&["T-1"]);
    assert_eq!(repo.show("main", "seen-2.txt").as_deref(), Some("theirs\n"));
    assert_eq!(play.only_pull()["number"], number);
}

#[test]
fn a_closed_pull_request_blocks_its_task_until_somebody_retries_it() {
    let play = Play::new(&[("T-1", "echo x > x.txt", "")], "approvals = 1");
    play.forge.ci("true");
    let running = play.spawn();
    let number = play.wait_for_pull("T-1");
    play.forge.close(number);
    running.wait().expect_code(2);
    let task = play.scene.task("T-1");
    assert_eq!(task["phase"], "blocked");
    assert!(task.to_string().contains(&format!("#{number} was closed")), "{task:#}");
    play.scene.expect(0, &["retry", "T-1"]);
    let running = play.spawn();
    let second = play.wait_for_pull("T-1");
    assert_ne!(second, number);
    play.forge.review(second, "alice", "APPROVED", "", &[]);
    running.wait().expect_code(0);
    play.assert_landed(&["T-1"]);
}

#[test]
fn commits_that_others_add_are_merged_with_it_and_commits_that_replace_it_are_not_ours_to_merge() {
    let play = Play::new(&[("T-1", "echo x > x.txt", "")], "require_checks = false\napprovals = 1");
    let running = play.spawn();
    let number = play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "approvals");
    let repo = play.scene.repo();
    let other = play.scene.outside("other");
    let path = other.to_str().expect("our own path is text");
    repo.git(&[
        "clone",
        "-q",
        "-b",
        "mainstem/T-1",
        play.forge.path().to_str().expect("text"),
        path,
    ]);
    let who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"];
    let there = |args: &[&str]| repo.git(&[&["-C", path], &who[..], args].concat());
    there(&["commit", "-q", "--amend", "-m", "replaced"]);
    there(&["push", "-q", "--force", "origin", "mainstem/T-1"]);
    play.wait_for_fact("pull_seen", "commits that replaced ours");
    play.forge.review(number, "alice", "APPROVED", "", &[]);
    there(&["reset", "-q", "--hard", "HEAD@{1}"]);
    fs::write(other.join("more.txt"), "more\n").expect("a file in a temporary folder");
    there(&["add", "-A"]);
    there(&["commit", "-qm", "more"]);
    there(&["push", "-q", "--force", "origin", "mainstem/T-1"]);
    running.wait().expect_code(0);
    fs::remove_dir_all(&other).expect("it is ours");
    play.assert_landed(&["T-1"]);
    assert_eq!(repo.show("main", "more.txt").as_deref(), Some("more\n"));
}

#[test]
fn a_branch_that_is_behind_is_brought_up_to_date_where_the_forge_wants_it() {
    let play = Play::new(
        &[("T-1", "echo a > a.txt", ""), ("T-2", "echo b > b.txt", "")],
        "require_checks = false",
    );
    play.forge.rules(ForgeBranchRules { up_to_date: true, ..ForgeBranchRules::default() });
    play.run().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
}

#[test]
fn what_is_on_the_forge_and_not_ours_is_never_overwritten() {
    let play = Play::new(&[("T-1", "echo x > x.txt", "")], "require_checks = false");
    let repo = play.scene.repo();
    repo.git(&["switch", "-q", "-c", "side"]);
    let theirs = repo.commit("theirs", &[("theirs.txt", "t\n")]);
    repo.git(&["push", "-q", "origin", "side:mainstem/T-1"]);
    repo.git(&["switch", "-q", "main"]);
    repo.git(&["branch", "-q", "-D", "side"]);
    play.run().expect_code(2);
    assert_eq!(play.forge.branch("mainstem/T-1"), Some(theirs));
    let task = play.scene.task("T-1");
    assert!(task.to_string().contains("git push origin --delete mainstem/T-1"), "{task:#}");
    repo.git(&["push", "-q", "origin", "--delete", "mainstem/T-1"]);
    play.scene.expect(0, &["retry", "T-1"]);
    play.run().expect_code(0);
    play.assert_landed(&["T-1"]);
}

#[test]
fn a_forge_that_does_not_answer_holds_up_nobody_who_wants_to_stop() {
    let tasks = [("T-1", "echo a > a.txt", "")];
    let play = Play::new(&tasks, "require_checks = false\napprovals = 1");
    let mut running = play.spawn();
    play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "0 of 1 approvals");
    let silence = Duration::from_secs(50);
    play.forge.fault(ForgeFault::once("GET", "/", ForgeFaultKind::Slow(silence)).times(50));
    wait_until(LONG, "the forge is asked", || play.forge.faults_to_come() < 50);
    let asked = std::time::Instant::now();
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 3);
    assert!(asked.elapsed() < silence, "{:?}", asked.elapsed());
}

#[test]
fn a_forge_that_fails_limits_and_drops_costs_time_and_nothing_else() {
    let play = Play::new(
        &[("T-1", "echo a > a.txt", ""), ("T-2", "echo b > b.txt", "")],
        "require_checks = false",
    );
    let forge = &play.forge;
    forge.fault(ForgeFault::once("GET", "/pulls", ForgeFaultKind::Status(502)).times(2));
    forge.fault(ForgeFault::once("POST", "/pulls", ForgeFaultKind::DropAfter));
    forge.fault(ForgeFault::once("POST", "/pulls", ForgeFaultKind::DropBefore));
    forge.fault(ForgeFault::once("PUT", "/merge", ForgeFaultKind::DropBefore));
    forge.fault(ForgeFault::once("PUT", "/merge", ForgeFaultKind::DropAfter));
    forge.fault(ForgeFault::once("GET", "/check-runs", ForgeFaultKind::RetryAfter(1)));
    forge.fault(ForgeFault::once("DELETE", "/git/refs", ForgeFaultKind::DropAfter));
    forge.fault(ForgeFault::once(
        "GET",
        "/reviews",
        ForgeFaultKind::Slow(Duration::from_millis(700)),
    ));
    play.run().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
    assert_eq!(play.forge.pulls().len(), 2);
}

#[test]
fn what_cannot_work_is_said_before_anything_starts() {
    let play = Play::new(&[("T-1", "echo x > x.txt", "")], "");
    let without = play
        .scene
        .spawn_with(&["run", "plan.toml"], &[("GH_TOKEN", ""), ("PATH", "/usr/bin:/bin")]);
    let output = without.wait().expect_code(1);
    assert!(output.stderr.contains("GH_TOKEN"), "{}", output.stderr);
    let args = ["run", "plan.toml", "--config", "land.remote=nowhere"];
    assert!(play.scene.expect(1, &args).stderr.contains("git remote add nowhere"));
    let args = ["run", "plan.toml", "--config", "land.repository="];
    assert!(play.scene.expect(1, &args).stderr.contains("land.repository"));
    let args = ["run", "plan.toml", "--config", "land.template=none.md"];
    assert!(play.scene.expect(1, &args).stderr.contains("land.template"));
    assert!(play.forge.pulls().is_empty());
}

/// The places where the engine may die in one whole run, by their names.
pub(crate) fn points(play: &Play) -> Vec<String> {
    let log: PathBuf = play.scene.outside("points");
    let text = log.to_str().expect("our own path is text");
    let env = [("MAINSTEM_CRASH_LOG", text)];
    play.scene.spawn_with(&["run", "plan.toml"], &env).wait().expect_code(0);
    let names = log_of(&log);
    names.lines().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect()
}

/// Dies at each of these places, counted from 1, and lives again; how often it really died.
pub(crate) fn die_at(
    places: &[usize],
    made: impl Fn() -> Play + Sync,
    check: impl Fn(&Play, usize) + Sync,
) {
    let next = AtomicUsize::new(0);
    let deaths = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(at) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let play = made();
                    let env = [("MAINSTEM_CRASH_AT", &*at.to_string())];
                    let died = play.scene.spawn_with(&["run", "plan.toml"], &env).wait();
                    deaths.fetch_add(usize::from(died.code == 137), Ordering::Relaxed);
                    let lived = play.scene.mainstem(&["run", "plan.toml"]);
                    assert_eq!(lived.code, 0, "after a death at {at}: {}", lived.stderr);
                    check(&play, *at);
                }
            });
        }
    });
    let deaths = deaths.into_inner();
    assert!(deaths * 4 >= places.len() * 3, "only {deaths} of {} died", places.len());
}

#[test]
fn kill_9_at_every_step_of_a_pull_request_lands_it_once() {
    let made = || Play::new(&[("T-1", "echo x >> x.txt", "")], "require_checks = false");
    let names = points(&made());
    for name in ["pull.pushed", "pull.created", "pull.merged", "pull.deleted", "pull.fetched"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    // From the end of the agent on: what comes before is the same as for a local landing.
    let first = names.iter().position(|name| name == "evidence.committed").unwrap_or(0);
    let places: Vec<usize> = (first + 1..=names.len()).collect();
    die_at(&places, made, |play, at| {
        play.assert_landed(&["T-1"]);
        assert_eq!(play.forge.pulls().len(), 1, "died at {:?}", names.get(at - 1));
    });
}

#[test]
fn recovery_of_each_phase_spawned_working_committed_pr_created_merged() {
    let count = "echo $MAINSTEM_ATTEMPT >> ../../../count; echo x > x.txt";
    let made = || Play::new(&[("T-1", count, "")], "require_checks = false");
    let names = points(&made());
    let place = |name: &str| names.iter().position(|found| found == name).map(|at| at + 1);
    let phases = ["workspace.made", "agent.started", "pull.before", "pull.created", "pull.merged"];
    let places: Vec<usize> = phases.iter().filter_map(|name| place(name)).collect();
    assert_eq!(places.len(), phases.len(), "{names:?}");
    die_at(&places, made, |play, at| {
        play.assert_landed(&["T-1"]);
        let ran = log_of(&play.scene.outside("count"));
        assert_eq!(ran, "1\n", "died at {:?}: the agent worked once", names.get(at - 1));
        play.scene.expect(0, &["run", "plan.toml"]);
        assert_eq!(play.forge.granted("PUT", "/merge"), 1, "reconciling twice changes nothing");
    });
}

const PHASES: &[(&str, &str, &str)] = &[
    ("T-1", "echo a > a.txt", "phase = \"one\""),
    ("T-2", "echo b > b.txt", "phase = \"one\""),
    ("T-3", "cat a.txt b.txt > c.txt", "phase = \"two\"\nneeds = [\"T-1\"]"),
];

fn assert_phases_landed(play: &Play) {
    let pulls = play.forge.pulls();
    let heads: Vec<&str> = pulls.iter().filter_map(|pull| pull["head"]["ref"].as_str()).collect();
    assert_eq!(heads, ["mainstem/phase-one", "mainstem/phase-two"], "{pulls:#?}");
    assert_eq!(play.forge.granted("PUT", "/merge"), 2);
    assert_eq!(play.scene.facts_of("task_landed").len(), 5, "three tasks and two phases");
    let repo = play.scene.repo();
    repo.git(&["fetch", "-q", "origin", "main"]);
    assert_eq!(repo.show("FETCH_HEAD", "c.txt").as_deref(), Some("a\nb\n"));
    assert_eq!(repo.commit_of("main"), repo.commit_of("FETCH_HEAD"), "our main follows");
    play.scene.assert_nothing_left();
}

#[test]
fn a_phase_lands_as_one_pull_request_and_the_next_one_builds_on_it() {
    for strategy in ["squash", "merge"] {
        let play = Play::new(PHASES, "");
        play.forge.ci("test -e a.txt && test -e b.txt");
        let mode = ["--config", "land.mode=phase-pr", "--config"];
        let strategy = format!("land.strategy={strategy}");
        let args = [&["run", "plan.toml"], &mode[..], &[strategy.as_str()]].concat();
        play.scene.expect(0, &args);
        assert_phases_landed(&play);
        let body = play.forge.pulls()[0]["body"].to_string();
        assert!(body.contains("T-1") && body.contains("T-2"), "{body}");
        play.scene.expect(0, &args);
        assert_eq!(play.forge.pulls().len(), 2);
    }
}

#[test]
fn kill_9_around_a_phases_pull_request_lands_it_once() {
    let made = || {
        let play = Play::new(PHASES, "require_checks = false");
        let text = play.scene.repo().read("mainstem.toml").replace("\"pr\"", "\"phase-pr\"");
        play.scene.repo().commit("by phase", &[("mainstem.toml", &text)]);
        play.scene.repo().git(&["push", "-q", "origin", "main"]);
        play
    };
    let names = points(&made());
    let of_pulls = names.iter().enumerate().filter(|(_, name)| name.starts_with("pull."));
    let places: Vec<usize> = of_pulls.map(|(at, _)| at + 1).collect();
    assert!(places.len() >= 12, "{names:?}");
    die_at(&places, made, |play, _| assert_phases_landed(play));
}

#[test]
fn a_red_target_branch_is_not_held_against_a_task_that_goes_there() {
    let gates = "[gates]\nverify = [\"test ! -e red\"]\n";
    let tasks = [("T-1", "echo a > a.txt", ""), ("T-2", "rm red; echo b > b.txt", "")];
    let play = Play::new(&tasks, &format!("require_checks = false\n{gates}"));
    let repo = play.scene.repo();
    repo.commit("somebody breaks it", &[("red", "")]);
    repo.git(&["push", "-q", "origin", "main"]);
    play.scene.expect(2, &["run", "plan.toml", "-j", "1"]);
    let status = play.scene.expect(0, &["status", "--json"]).stdout;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["tasks"][0]["phase"], "blocked", "{status}");
    assert_eq!(status["tasks"][0]["attempt"], 1, "no attempt was spent on it: {status}");
    let reason = status["tasks"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("main itself"), "{status}");
    assert_eq!(status["tasks"][1]["phase"], "landed", "who repairs it lands: {status}");
    play.scene.expect(0, &["retry", "T-1"]);
    play.scene.expect(0, &["run"]);
    play.assert_landed(&["T-1", "T-2"]);
}

#[test]
fn the_merger_is_a_command_of_its_own() {
    let play = Play::new(&[("T-1", "echo x > x.txt", "")], "require_checks = false\napprovals = 1");
    let mut running = play.spawn();
    let number = play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "approvals");
    assert_eq!(play.scene.task("T-1")["pull"]["number"], number);
    running.signal(rustix::process::Signal::INT);
    running.wait().expect_code(3);
    let output = play.scene.expect(2, &["merge", "--json"]);
    let report: Value = serde_json::from_str(&output.stdout).expect("it is JSON");
    assert_eq!(report["open"][0]["pull"], number, "{report:#}");
    assert_eq!(report["merged"].as_array().map(Vec::len), Some(0));
    play.forge.review(number, "alice", "APPROVED", "", &[]);
    let output = play.scene.expect(0, &["merge"]);
    assert_eq!(output.stdout, format!("merged   T-1 #{number}\n"));
    play.assert_landed(&["T-1"]);
    assert_eq!(play.scene.expect(0, &["merge"]).stdout, "no pull request is open\n");
    play.scene.expect(0, &["run"]);
    let local = TestScene::new(BIN).plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    assert!(local.expect(1, &["merge"]).stderr.contains("land.mode"));
}

#[test]
fn issues_come_from_the_forge_with_what_they_wait_for() {
    let play = Play::new(&[("T-1", "true", "")], "");
    let first = play.forge.add_issue("Make a schema", "in `src/schema.sql`", &[], &[]);
    let second = play.forge.add_issue("Use it", "", &[first], &[]);
    let output = play.scene.expect(0, &["plan", "import", "github", "o/r", "--json"]);
    let report: Value = serde_json::from_str(&output.stdout).expect("it is JSON");
    let text = play.scene.expect(0, &["plan", "import", "github", "o/r"]).stdout;
    assert!(text.contains("Make a schema"), "{text}\n{report:#}");
    let needs = format!("needs = [\"issue-{first}\"]");
    let id = format!("id = \"issue-{second}\"");
    assert!(text.contains(&needs) && text.contains(&id), "{text}");
}

#[test]
fn everything_done_twice_lands_once() {
    let play = Play::new(
        &[("T-1", "echo a > a.txt", ""), ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]")],
        "require_checks = false",
    );
    let env = [("MAINSTEM_EFFECTS_TWICE", "1")];
    play.scene.spawn_with(&["run", "plan.toml"], &env).wait().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
    assert_eq!(play.forge.pulls().len(), 2);
}

fn inbox(play: &Play) -> Vec<String> {
    let status: Value = play.scene.status();
    let items = status["inbox"].as_array().expect("a list").iter();
    items.map(|item| item["id"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn settings_in_a_pull_request_that_we_merge_wait_for_a_person_and_other_work_lands() {
    let change = "sed -i 's/retries = 2/retries = 1/' mainstem.toml";
    let play = Play::new(
        &[("T-1", change, ""), ("T-2", "echo y > y.txt", "")],
        "require_checks = false\nauto_merge = true",
    );
    let running = play.spawn();
    play.wait_for_fact("task_landed", "T-2");
    wait_until(LONG, "it waits for a person", || inbox(&play).contains(&"G-T-1".to_owned()));
    play.wait_for_pull("T-1");
    assert_eq!(play.forge.granted("PUT", "/merge"), 1, "only the other one was merged");
    play.scene.expect(0, &["answer", "G-T-1", "accept"]);
    let ended = running.wait();
    if ended.code != 0 {
        play.run().expect_code(0);
    }
    play.assert_landed(&["T-1", "T-2"]);
    assert_eq!(inbox(&play), [""; 0]);
    let shown = play.scene.expect(0, &["config", "run.retries"]).stdout;
    assert!(shown.contains(" 1 "), "what a person accepted is in force: {shown}");
}

#[test]
fn a_person_who_merges_a_pull_request_accepts_the_settings_and_guarded_files_in_it() {
    let change = "sed -i 's/retries = 2/retries = 1/' mainstem.toml; echo '# more' >> check.sh";
    let play = Play::new(&[("T-1", change, "")], "require_checks = false\nauto_merge = false");
    let repo = play.scene.repo();
    let config = std::fs::read_to_string(repo.path().join("mainstem.toml")).expect("settings");
    let config = format!("{config}[gates]\nverify = [\"sh check.sh\"]\n");
    repo.commit("by hand", &[("mainstem.toml", &config), ("check.sh", "true\n")]);
    repo.git(&["push", "-q", "origin", "main"]);
    let running = play.spawn();
    let number = play.wait_for_pull("T-1");
    assert_eq!(inbox(&play), [""; 0]);
    play.forge.merge_by_hand(number, "squash");
    running.wait().expect_code(0);
    assert_eq!(inbox(&play), [""; 0]);
    let shown = play.scene.expect(0, &["config", "run.retries"]).stdout;
    assert!(shown.contains(" 1 "), "{shown}");
}
