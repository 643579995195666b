//! Plans and how they are run: revisions, scope, strategies, units, barriers, ways to start.

use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, assert_history_gapless, wait_until};
use serde_json::Value;

use super::{BIN, text};

#[test]
fn a_changed_plan_is_the_runs_next_revision() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", "echo one > 1.txt", ""),
        ("T-2", "echo old > 2.txt", "needs = [\"T-1\"]"),
        ("T-3", "echo dropped > 3.txt", "needs = [\"T-1\"]"),
    ]));
    scene.expect(0, &["run", "plan.toml", "--task", "T-1"]);
    let scene = scene.plan(&shell_plan(&[
        ("T-1", "echo changed > 1.txt", ""),
        ("T-2", "echo new > 2.txt", "needs = [\"T-1\"]"),
        ("T-4", "echo added > 4.txt", ""),
    ]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T-1", "T-2", "T-4"]);
    let main = |path| scene.repo().show("main", path);
    assert_eq!(main("1.txt").as_deref(), Some("one\n"), "what has landed stays");
    assert_eq!(main("2.txt").as_deref(), Some("new\n"), "what had not begun takes the new text");
    assert_eq!(main("3.txt"), None);
    let adopted = scene.facts_of("plan_adopted");
    let revisions: Vec<_> = adopted.iter().map(|fact| fact["revision"].as_u64()).collect();
    assert_eq!(revisions, [Some(1), Some(2)]);
    assert_eq!(adopted[1]["dropped"], serde_json::json!(["T-3"]));
    scene.assert_nothing_left();
}

#[test]
fn the_same_plan_again_resumes_and_a_new_run_is_another_one() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", "date +%N >> x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.expect(0, &["run", "plan.toml"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.landings("main").len(), 1);
    scene.expect(0, &["run", "--new", "plan.toml"]);
    let landings = scene.landings("main");
    let tasks: Vec<_> = landings.iter().map(|landing| landing.task.as_str()).collect();
    assert_eq!(tasks, ["T-1", "T-1"], "an id may return in a later run");
    assert_ne!(landings[0].run, landings[1].run);
    scene.assert_nothing_left();
}

const EPICS: &str = r#"
version = 1
[[epic]]
id = "E-1"
[[epic]]
id = "E-2"
[[task]]
id = "T-1"
epic = "E-1"
run = "echo 1 > 1.txt"
[[task]]
id = "T-2"
epic = "E-1"
run = "echo 2 > 2.txt"
[[task]]
id = "T-3"
epic = "E-2"
needs = ["T-2"]
run = "echo 3 > 3.txt"
"#;

#[test]
fn a_run_may_be_limited_to_tasks_and_epics_with_what_they_need() {
    let scene = TestScene::new(BIN).plan(EPICS);
    scene.expect(0, &["run", "plan.toml", "--epic", "E-2"]);
    scene.assert_each_lands_once(&["T-2", "T-3"]);
    scene.expect(0, &["run", "--task", "T-1"]);
    scene.assert_each_lands_once(&["T-1", "T-2", "T-3"]);
    let output = scene.expect(1, &["run", "--task", "T-9"]);
    assert!(output.stderr.contains("T-9"), "{}", output.stderr);
    scene.assert_nothing_left();
}

#[test]
fn every_strategy_gives_one_first_parent_commit_per_task_with_the_trailers() {
    for (strategy, parents) in [("merge", 2), ("squash", 1), ("rebase", 2)] {
        let commit = "git add -A && git -c user.name=a -c user.email=a@example.invalid commit -qm";
        let work = format!("echo 1 > 1.txt; {commit} one; echo 2 > 2.txt; {commit} two");
        let scene = TestScene::new(BIN)
            .config(&format!("[land]\nstrategy = \"{strategy}\"\n"))
            .plan(&shell_plan(&[("T-1", &work, ""), ("T-2", "echo 3 > 3.txt", "")]));
        let before = scene.repo().commit_of("main");
        scene.expect(0, &["run", "plan.toml", "-j", "2"]);
        scene.assert_each_lands_once(&["T-1", "T-2"]);
        let range = format!("{before}..main");
        let count = scene.repo().git(&["rev-list", "--first-parent", "--count", &range]);
        assert_eq!(count, "2", "{strategy}");
        for landing in scene.landings("main") {
            assert_eq!(landing.attempt, 1, "{strategy}");
            assert_eq!(Some(landing.run.as_str()), scene.status()["run"].as_str());
            let line = scene.repo().git(&["log", "-1", "--format=%P", &landing.commit]);
            assert_eq!(line.split(' ').count(), parents, "{strategy}: {landing:?}");
        }
        for file in ["1.txt", "2.txt", "3.txt"] {
            assert!(scene.repo().show("main", file).is_some(), "{strategy}: {file}");
        }
        scene.assert_nothing_left();
    }
}

#[test]
fn tasks_of_an_epic_may_share_a_workspace_one_after_the_other() {
    let scene = TestScene::new(BIN).config("[workspace]\nunit = \"epic\"\n").plan(EPICS);
    scene.expect(0, &["run", "plan.toml", "-j", "3"]);
    scene.assert_each_lands_once(&["T-1", "T-2", "T-3"]);
    let place_of = |task: &str| {
        let ready = scene.facts_of("workspace_ready");
        let fact = ready.iter().find(|fact| fact["task"] == task).expect("it had a workspace");
        text(fact, "workspace").to_owned()
    };
    assert_eq!(place_of("T-1"), place_of("T-2"));
    assert_ne!(place_of("T-1"), place_of("T-3"));
    scene.assert_nothing_left();
}

#[test]
fn a_barrier_holds_the_next_level_back() {
    let scene = TestScene::new(BIN);
    let repo = scene.repo().path().display().to_string();
    // A ends well after B has landed, so that without a barrier C would start before.
    let slow = format!(
        "until git -C {repo} log main | grep -q 'Mainstem-Task: B'; do sleep 0.05; done; \
         sleep 0.5; echo a > a.txt"
    );
    let scene = scene.config("[schedule]\nbarrier = \"level\"\n").plan(&shell_plan(&[
        ("A", &slow, ""),
        ("B", "echo b > b.txt", ""),
        ("C", "echo c > c.txt", "needs = [\"B\"]"),
    ]));
    scene.expect(0, &["run", "plan.toml", "-j", "3"]);
    let facts = scene.facts();
    let seq = |kind: &str, task: &str| {
        let of = |fact: &&Value| fact["type"] == kind && fact["task"] == task;
        facts.iter().find(of).and_then(|fact| fact["seq"].as_u64()).expect("it happened")
    };
    assert!(seq("attempt_intended", "C") > seq("task_landed", "A"));
}

#[test]
fn a_dry_run_changes_nothing() {
    let scene = TestScene::new(BIN).plan(EPICS);
    let refs = scene.repo().git(&["for-each-ref"]);
    let output = scene.expect(0, &["run", "plan.toml", "--dry-run", "--json"]);
    let said: Value = serde_json::from_str(&output.stdout).expect("one JSON document");
    let starts = said["starts"].as_array().expect("what would start");
    assert_eq!(starts.len(), 2, "{said:#}");
    assert_eq!(scene.repo().git(&["for-each-ref"]), refs);
    assert!(!scene.repo().git_dir().join("mainstem/journal.db").exists());
    scene.assert_nothing_left();
}

#[test]
fn a_detached_run_goes_on_by_itself() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let work = format!("until [ -e {} ]; do sleep 0.02; done; echo x > x.txt", go.display());
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    scene.expect(0, &["run", "plan.toml", "--detach"]);
    assert_eq!(scene.status()["state"], "running");
    fs::write(&go, "").expect("a file in a temporary folder");
    wait_until(Duration::from_secs(60), "the run is over", || scene.status()["state"] == "resting");
    scene.assert_each_lands_once(&["T-1"]);
    scene.assert_nothing_left();
}

#[test]
fn a_run_as_json_is_the_end_of_history() {
    let scene = TestScene::new(BIN).plan(EPICS);
    let output = scene.expect(0, &["run", "plan.toml", "--json"]);
    let facts = assert_history_gapless(&output.stdout);
    let history = scene.facts();
    assert!(history.ends_with(&facts), "run and history tell the same");
    assert!(facts.iter().any(|fact| fact["type"] == "task_landed"));
}

#[test]
fn exit_codes_are_the_promised_ones() {
    let scene = TestScene::new(BIN);
    scene.expect(64, &["run", "--no-such-flag"]);
    scene.expect(64, &["no-such-command"]);
    scene.expect(64, &["jobs", "0"]);
    scene.expect(1, &["run"]);
    scene.expect(1, &["run", "nowhere.toml"]);
    let elsewhere = scene.outside("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder in a temporary folder");
    scene.repo().write("plan.toml", shell_plan(&[("T-1", "exit 1", "retries = 0")]));
    let plan = scene.repo().path().join("plan.toml").display().to_string();
    scene.expect(1, &["-C", &elsewhere.display().to_string(), "run", &plan]);
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["skip", "T-1"]);
    scene.expect(0, &["run"]);
}
