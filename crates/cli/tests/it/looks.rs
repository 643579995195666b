//! Looking at a run, and after what it left: before the first run, while an engine is at work,
//! after it was killed, and at rest.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use mainstem_testkit::{TestCommandOutput, TestScene, assert_history_gapless, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PATIENCE: Duration = Duration::from_secs(90);

/// Two tasks that land one after the other, one that fails with an edit nobody committed, one
/// that it blocks.
const PLAN: &str = r#"
version = 1

[[task]]
id = "T-1"
title = "First"
description = "Write a."
acceptance = ["a.txt is there"]
verify = ["echo gate-of-task; test -f a.txt"]
script = [
  { print = "plain \u001b[31mred\u001b[0m" },
  { usage = { input_tokens = 10, output_tokens = 5, cost_usd = 0.25 } },
  { write = "a.txt", text = "one\n" },
  { commit = "add a" },
]

[[task]]
id = "T-2"
title = "Second"
needs = ["T-1"]
script = [{ write = "b.txt", text = "two\n" }, { commit = "add b" }]

[[task]]
id = "T-3"
title = "Breaks"
retries = 0
script = [{ write = "c.txt", text = "three\n" }, { fail = 7 }]

[[task]]
id = "T-4"
title = "Blocked"
needs = ["T-3"]
script = [{ write = "d.txt", text = "four\n" }]
"#;

const GATES: &str = "[gates]\nverify = [\"echo gate-of-train\"]\n";

fn rested() -> TestScene {
    let scene = TestScene::new(BIN).config(GATES).plan(PLAN);
    scene.mainstem(&["run", "plan.toml"]).expect_code(2);
    scene
}

#[track_caller]
fn ok(scene: &TestScene, args: &[&str]) -> TestCommandOutput {
    scene.mainstem(args).expect_code(0)
}

#[track_caller]
fn json(scene: &TestScene, args: &[&str]) -> Value {
    let output = ok(scene, args);
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stdout))
}

#[track_caller]
fn lines(output: &TestCommandOutput) -> Vec<Value> {
    output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn task<'a>(status: &'a Value, id: &str) -> &'a Value {
    let all = status["tasks"].as_array().unwrap();
    all.iter().find(|task| task["id"] == id).unwrap_or_else(|| panic!("no {id}: {status}"))
}

#[test]
fn status_shows_what_an_agent_was_last_seen_doing() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let said = r#"{"mainstem":"progress","text":"reading the tests","tool":"Read"}"#;
    let run = format!(
        "echo '{said}'; until [ -e {} ]; do sleep 0.02; done; echo x > x.txt",
        go.display()
    );
    let run = run.replace('"', "\\\"");
    let scene = scene.plan(&format!("version = 1\n[[task]]\nid = \"T\"\nrun = \"{run}\"\n"));
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T", "working");
    wait_until(PATIENCE, "the agent is seen reading", || {
        scene.task("T")["progress"]
            == serde_json::json!({"tool": "Read", "text": "reading the tests"})
    });
    let shown = scene.expect(0, &["status"]).stdout;
    assert!(shown.contains("Read reading the tests"), "{shown}");
    std::fs::write(&go, "").unwrap();
    assert_eq!(engine.wait().code, 0);
    assert!(scene.task("T")["progress"].is_null());
}

#[test]
fn before_the_first_run_every_look_says_so_and_leaves_nothing_behind() {
    let scene = TestScene::new(BIN).config(GATES).plan(PLAN);
    for args in [&["status"][..], &["questions"], &["train"], &["history"], &["clean"]] {
        let said = ok(&scene, args);
        assert!(said.stdout.is_empty() && said.stderr.lines().count() == 1, "{args:?}: {said:?}");
    }
    let status = json(&scene, &["status", "--json"]);
    assert!(status["run"].is_null() && status["state"] == "resting", "{status}");
    assert_eq!(json(&scene, &["questions", "--json"]), serde_json::json!([]));
    assert_eq!(json(&scene, &["train", "--json"])["landed"], serde_json::json!([]));
    assert_eq!(ok(&scene, &["history", "--json", "-f"]).stdout, "");
    for args in
        [&["show", "T-1"][..], &["logs", "T-1"], &["diff", "T-1"], &["restore", "T-1"], &["undo"]]
    {
        let said = scene.mainstem(args).expect_code(1);
        assert!(said.stderr.contains("no run") && said.stderr.contains("help:"), "{said:?}");
    }
    scene.mainstem(&["status", "--run", "r-none"]).expect_code(1);
    scene.mainstem(&["history", "--run", "r-none"]).expect_code(1);
    assert!(!scene.repo().git_dir().join("mainstem").exists(), "looking made a state folder");
}

#[test]
fn status_has_every_key_of_the_contract_and_a_table_for_people() {
    let scene = rested();
    let status = json(&scene, &["status", "--json"]);
    for key in ["run", "state", "jobs", "tasks", "train", "questions", "limits", "totals"] {
        assert!(status.get(key).is_some(), "no `{key}`: {status}");
    }
    for key in [
        "id",
        "title",
        "phase",
        "attempt",
        "agent",
        "model",
        "branch",
        "workspace",
        "pid",
        "started_at",
        "waiting_for",
        "cost_usd",
        "commit",
        "next_action",
    ] {
        assert!(status["tasks"][0].get(key).is_some(), "no `{key}`: {status}");
    }
    assert_eq!(status["state"], "resting");
    let phases: Vec<&str> =
        status["tasks"].as_array().unwrap().iter().map(|t| t["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["landed", "landed", "failed", "blocked"]);
    assert_eq!(task(&status, "T-1")["commit"], scene.repo().commit_of("main^"));
    assert_eq!(task(&status, "T-1")["cost_usd"], 0.25);
    assert_eq!(status["totals"]["landed"], 2);
    let kinds: Vec<&Value> =
        status["inbox"].as_array().unwrap().iter().map(|i| &i["kind"]).collect();
    assert_eq!(kinds, ["failure"], "a failed task needs a person");
    assert_eq!(status["totals"]["questions"], status["questions"].as_array().unwrap().len());
    let cost = json(&scene, &["cost", "--json"]);
    let count = |key: &str| cost["forecast"][key].as_u64().unwrap();
    assert_eq!((count("ended"), count("landed")), (3, 2), "{cost}");
    let table = ok(&scene, &["status"]).stdout;
    let place = |id: &str| table.find(id).unwrap_or_else(|| panic!("no {id}:\n{table}"));
    assert!(place("T-3  ") < place("T-4  ") && place("T-4  ") < place("T-1  "), "{table}");
    assert!(table.contains("landed 2/4") && table.contains("mainstem retry T-3"), "{table}");
    let run = status["run"].as_str().unwrap();
    assert_eq!(json(&scene, &["status", "--json", "--run", run])["run"], run);
}

#[test]
fn show_logs_and_diff_tell_the_whole_story_of_a_task() {
    let scene = rested();
    let shown = json(&scene, &["show", "T-1", "--json", "-v"]);
    assert_eq!(shown["description"], "Write a.");
    assert_eq!(shown["dependents"][0]["id"], "T-2");
    let attempt = &shown["attempts"][0];
    assert_eq!(attempt["evidence"]["files"], 1, "{attempt}");
    assert_eq!(attempt["cost_usd"], 0.25);
    let gates: Vec<&str> =
        attempt["gates"].as_array().unwrap().iter().map(|g| g["scope"].as_str().unwrap()).collect();
    assert_eq!(gates, ["task", "train"]);
    assert!(attempt["gates"].as_array().unwrap().iter().all(|gate| gate["verdict"] == "passed"));
    assert!(shown["prompt_text"].as_str().unwrap().contains("T-1"), "{shown}");
    assert_eq!(shown["schema"], "mainstem.task/1");
    assert!(attempt["agent_ended_at"].is_string(), "{attempt}");
    let state = std::path::Path::new(shown["state_dir"].as_str().unwrap());
    let ran = lines(&ok(&scene, &["history", "--json", "T-1"]));
    let ran = ran.iter().find(|fact| fact["type"] == "gate_ran").unwrap();
    assert_eq!(attempt["gates"][0]["log"], ran["log"], "the same path as in the fact");
    for path in
        [&attempt["gates"][0]["log"], &attempt["prompt"], &attempt["output"], &shown["prompt"]]
    {
        let path = std::path::Path::new(path.as_str().unwrap());
        assert!(path.is_relative() && state.join(path).exists(), "{path:?} in {state:?}");
    }
    let failed = ok(&scene, &["show", "T-3"]).stdout;
    assert!(failed.contains("exit code 7") && failed.contains("T-4 blocked"), "{failed}");

    let calm = ok(&scene, &["logs", "T-1"]).stdout;
    assert!(calm.starts_with("plain red\n"), "{calm:?}");
    let raw = ok(&scene, &["logs", "T-1", "--raw"]).stdout;
    assert!(raw.starts_with("plain \u{1b}[31mred\u{1b}[0m\n"), "{raw:?}");
    let said = lines(&ok(&scene, &["logs", "T-1", "--json", "-f"]));
    assert!(said[0]["stream"] == "stdout" && said[0]["at"].is_string(), "{said:?}");
    let gates = ok(&scene, &["logs", "T-1", "--gates"]).stdout;
    assert!(gates.contains("\ngate-of-task\n") && gates.contains("\ngate-of-train\n"), "{gates}");
    scene.mainstem(&["logs", "T-1", "--attempt", "2"]).expect_code(1);
    let none = scene.mainstem(&["logs", "T-4"]).expect_code(1);
    assert!(none.stderr.contains("waiting for T-3"), "{none:?}");

    let landed = json(&scene, &["diff", "T-2", "--json"]);
    assert_eq!(landed["base"], scene.repo().commit_of("main^"));
    assert_eq!(landed["files"][0]["path"], "b.txt");
    assert_eq!((&landed["insertions"], &landed["deletions"]), (&1.into(), &0.into()));
    assert!(ok(&scene, &["diff", "T-1"]).stdout.contains("\n+one\n"));
    assert!(ok(&scene, &["diff", "T-3"]).stdout.contains("\n+three\n"), "work of a failed task");
    assert!(ok(&scene, &["diff", "T-3", "--stat"]).stdout.contains("c.txt"));
    scene.mainstem(&["diff", "T-4"]).expect_code(1);
    scene.mainstem(&["diff", "T-3", "--attempt", "9"]).expect_code(1);
}

#[test]
fn history_has_every_fact_in_order_without_a_gap() {
    let scene = rested();
    let whole = ok(&scene, &["history", "--json"]).stdout;
    let facts = assert_history_gapless(&whole);
    assert_eq!(facts[0]["seq"], 1);
    let landed: Vec<&str> = facts
        .iter()
        .filter(|fact| fact["type"] == "task_landed")
        .map(|fact| fact["task"].as_str().unwrap())
        .collect();
    assert_eq!(landed, ["T-1", "T-2"]);
    let rest = ok(&scene, &["history", "--json", "--after", "5", "-f"]).stdout;
    assert_eq!(assert_history_gapless(&rest), facts[5..]);
    let of_task = lines(&ok(&scene, &["history", "T-3", "--json"]));
    assert!(of_task.len() > 3 && of_task.iter().all(|fact| fact["task"] == "T-3"), "{of_task:?}");
    let told = ok(&scene, &["history"]).stdout;
    assert_eq!(told.lines().count(), facts.len() + 1, "one line per fact and one for the run");
    let train = json(&scene, &["train", "--json"]);
    assert_eq!(train["landed"][1]["task"], "T-2");
    assert_eq!(train["landed"][1]["commit"], scene.repo().commit_of("main"));
}

#[test]
fn a_task_that_does_not_exist_is_an_error_that_names_the_nearest() {
    let scene = rested();
    for command in ["show", "logs", "diff", "history", "restore"] {
        for odd in ["T-33", "../../x", "*", "", "--", "T 3\n"] {
            let args: &[&str] = if odd == "--" { &[command, "--", "--"] } else { &[command, odd] };
            let said = scene.mainstem(args);
            assert_eq!(said.code, 1, "{args:?}: {said:?}");
            assert!(odd != "T-33" || said.stderr.contains("did you mean T-3?"), "{said:?}");
        }
        let said = scene.mainstem(&[command, "T-33", "--json"]).expect_code(1);
        let error: Value = serde_json::from_str(&said.stderr).unwrap();
        assert!(error["error"].as_str().unwrap().contains("T-33"), "{error}");
    }
}

#[test]
fn restore_brings_back_what_a_failed_task_had_written() {
    let scene = rested();
    assert_eq!(scene.repo().show("main", "c.txt"), None);
    let listed = json(&scene, &["restore", "T-3", "--list", "--json"]);
    let kept = listed["snapshots"].as_array().unwrap();
    assert!(!kept.is_empty() && kept.iter().all(|s| s["attempt"] == 1), "{listed}");
    let restored = json(&scene, &["restore", "T-3", "--json"]);
    assert_eq!(restored["branch"], "restore/T-3");
    assert_eq!(scene.repo().show("restore/T-3", "c.txt").as_deref(), Some("three\n"));
    assert_eq!(scene.repo().git(&["symbolic-ref", "--short", "HEAD"]), "main");
    let first =
        ok(&scene, &["restore", "T-3", "--attempt", "1", "--number", "1", "--branch", "mine"]);
    assert_eq!(first.stdout, "mine\n");
    assert_eq!(scene.repo().show("mine", "c.txt").as_deref(), Some("three\n"));
    scene.mainstem(&["restore", "T-3", "--attempt", "4"]).expect_code(1);
    scene.mainstem(&["restore", "T-4"]).expect_code(1);
    ok(&scene, &["restore", "T-4", "--list"]);
}

#[test]
fn undo_moves_the_branch_back_or_reverts_what_others_built_on() {
    let scene = rested();
    let repo = scene.repo();
    let (first, second) = (repo.commit_of("main^"), repo.commit_of("main"));
    let would = json(&scene, &["undo", "--dry-run", "--json"]);
    assert_eq!((&would["task"], &would["reverts"]), (&"T-2".into(), &false.into()), "{would}");
    assert_eq!(repo.commit_of("main"), second, "a dry run changed something");
    let undone = json(&scene, &["undo", "--json"]);
    assert_eq!((&undone["task"], &undone["reverted"]), (&"T-2".into(), &false.into()), "{undone}");
    assert_eq!(repo.commit_of("main"), first);
    assert!(!repo.has("b.txt"), "the checkout was not brought along");

    repo.commit("by hand", &[("other.txt", "x\n")]);
    let head = repo.commit_of("main");
    assert_eq!(json(&scene, &["undo", "--dry-run", "--json"])["reverts"], true);
    let undone = json(&scene, &["undo", "--json"]);
    assert_eq!((&undone["task"], &undone["reverted"]), (&"T-1".into(), &true.into()), "{undone}");
    assert_eq!(repo.commit_of("main^"), head);
    assert_eq!(repo.show("main", "a.txt"), None);
    assert_eq!(repo.show("main", "other.txt").as_deref(), Some("x\n"));
    let none = scene.mainstem(&["undo"]).expect_code(1);
    assert!(none.stderr.contains("nothing has landed"), "{none:?}");
    let status = json(&scene, &["status", "--json"]);
    assert_eq!(task(&status, "T-1")["phase"], "cancelled");
    let train = json(&scene, &["train", "--json"]);
    assert!(
        train["landed"].as_array().unwrap().iter().all(|car| car["how"] == "undone"),
        "{train}"
    );
    assert_history_gapless(&ok(&scene, &["history", "--json"]).stdout);
}

#[test]
fn clean_removes_what_was_left_and_loses_none_of_it() {
    let scene = rested();
    let repo = scene.repo();
    // As after a crash long ago: a workspace and a branch of ours that no task knows.
    let left = repo.path().with_file_name("repo.mainstem").join("OLD");
    repo.git(&["worktree", "add", "-q", "-b", "mainstem/OLD", left.to_str().unwrap(), "main"]);
    repo.git(&["update-ref", "refs/mainstem/owned/mainstem/OLD", "main"]);
    std::fs::write(left.join("precious.txt"), "not committed\n").unwrap();
    let listed = json(&scene, &["clean", "--dry-run", "--json"]);
    // Besides these the train's workspace, which is kept between runs, and what a failed task left.
    assert_eq!(listed["removed"].as_array().unwrap().len(), 5, "{listed}");
    assert!(left.join("precious.txt").exists(), "a dry run removed something");
    ok(&scene, &["clean"]);
    assert!(!left.exists());
    scene.assert_nothing_left();
    ok(&scene, &["restore", "OLD"]);
    assert_eq!(repo.show("restore/OLD", "precious.txt").as_deref(), Some("not committed\n"));
    assert_eq!(json(&scene, &["clean", "--json"])["removed"], serde_json::json!([]));
}

const ASKING: &str = r#"
version = 1

[[task]]
id = "T-1"
title = "Asks"
script = [
  { print = "before" },
  { write = "half.txt", text = "half\n" },
  { commit = "half" },
  { ask = "Which?", options = ["left", "right"], into = "answer.txt" },
  { print = "after" },
  { commit = "rest" },
]

[[task]]
id = "T-2"
needs = ["T-1"]
script = [{ write = "b.txt", text = "two\n" }]
"#;

fn asking() -> (TestScene, mainstem_testkit::TestSceneProcess) {
    let scene = TestScene::new(BIN).plan(ASKING);
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "a question", || {
        json(&scene, &["questions", "--json"]).as_array().is_some_and(|all| all.len() == 1)
    });
    (scene, engine)
}

#[test]
fn looks_work_beside_a_running_engine_and_follow_it_to_its_end() {
    let (scene, engine) = asking();
    let status = json(&scene, &["status", "--json"]);
    assert_eq!(
        (&status["state"], &task(&status, "T-1")["phase"]),
        (&"running".into(), &"asking".into())
    );
    assert_eq!(task(&status, "T-2")["waiting_for"], serde_json::json!(["T-1"]));
    let table = ok(&scene, &["status"]).stdout;
    assert!(table.contains("Which?") && table.contains("mainstem answer"), "{table}");
    let inbox = ok(&scene, &["questions"]).stdout;
    assert!(inbox.contains("[2] right"), "{inbox}");
    assert!(ok(&scene, &["show", "T-1"]).stdout.contains("Which?"));
    assert!(ok(&scene, &["diff", "T-1"]).stdout.contains("\n+half\n"), "work in progress");
    assert!(ok(&scene, &["logs", "T-1"]).stdout.starts_with("before\n"));
    for args in [&["undo"][..], &["clean"]] {
        let refused = scene.mainstem(args).expect_code(1);
        assert!(refused.stderr.contains("another run is active in this repository"), "{refused:?}");
    }
    let log = scene.spawn(&["logs", "-f", "T-1"]);
    let history = scene.spawn(&["history", "-f", "--json"]);
    wait_until(PATIENCE, "the followers to be there", || {
        log.stdout().contains("before") && history.stdout().contains("question_asked")
    });
    let question = status["questions"][0]["id"].as_str().unwrap();
    ok(&scene, &["answer", question, "2"]);
    engine.wait().expect_code(0);
    let log = log.wait().expect_code(0);
    assert!(log.stdout.contains("\nafter\n"), "{log:?}");
    let followed = history.wait().expect_code(0).stdout;
    let last = assert_history_gapless(&followed).pop().unwrap();
    assert_eq!(last["type"], "engine_stopped");
    assert_eq!(followed, ok(&scene, &["history", "--json"]).stdout);
}

#[test]
fn after_a_kill_the_looks_say_crashed_and_show_everything() {
    let (scene, engine) = asking();
    engine.kill9();
    let status = json(&scene, &["status", "--json"]);
    assert_eq!(status["state"], "crashed");
    let table = ok(&scene, &["status"]).stdout;
    assert!(table.contains("crashed") && table.contains("continue with: mainstem run"), "{table}");
    assert!(ok(&scene, &["logs", "T-1"]).stdout.starts_with("before\n"));
    assert!(ok(&scene, &["diff", "T-1"]).stdout.contains("\n+half\n"));
    for args in [&["show", "T-1"][..], &["train"], &["questions"], &["history", "-f"]] {
        assert!(!ok(&scene, args).stdout.is_empty(), "{args:?}");
    }
    let kept = json(&scene, &["clean", "--json"]);
    assert_eq!(kept["removed"], serde_json::json!([]), "work under way was removed: {kept}");
    let question = status["questions"][0]["id"].as_str().unwrap();
    ok(&scene, &["answer", question, "1"]);
    ok(&scene, &["run"]);
    assert_eq!(scene.repo().show("main", "answer.txt").as_deref().map(str::trim), Some("left"));
    assert_history_gapless(&ok(&scene, &["history", "--json"]).stdout);
}

#[test]
fn a_secret_that_an_agent_printed_is_not_shown() {
    let config = "[run]\nagent = \"mine\"\n[agents.mine]\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"echo token $MY_TOKEN; echo oh $MY_TOKEN >&2; echo x > f.txt\"]\n\
        secrets = [\"MY_TOKEN\"]\n";
    let plan = "version = 1\n[[task]]\nid = \"T-1\"\n";
    let scene = TestScene::new(BIN).env("MY_TOKEN", "s3cret-value-42").config(config).plan(plan);
    ok(&scene, &["run", "plan.toml"]);
    for more in [&[][..], &["--raw"], &["--json"], &["-v"]] {
        let said = ok(&scene, &[&["logs", "T-1"], more].concat());
        assert!(!said.stdout.contains("s3cret"), "{more:?}: {said:?}");
        assert_eq!(said.stdout.matches("[redacted MY_TOKEN]").count(), 2, "{more:?}: {said:?}");
    }
    let marked = ok(&scene, &["logs", "T-1", "-v"]).stdout;
    assert!(marked.lines().any(|line| line.contains(" err oh ")), "{marked}");
}
