//! A run seen as workers: spawned, listed, called off, in JSON.

use std::time::Duration;

use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const CONFIG: &str = "[run]\nagent = \"code-author\"\n[agents.code-author]\nkind = \"command\"\n\
    command = [\"sh\", \"-c\", \"until [ -e ../../../go-$MAINSTEM_TASK ]; do sleep 0.02; done; \
    echo x > $MAINSTEM_TASK.txt\"]\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn go(scene: &TestScene, task: &str) {
    std::fs::write(scene.outside(&format!("go-{task}")), "").expect("a temporary folder");
}

fn state(scene: &TestScene, id: &str) -> String {
    let worker = json(&scene.expect(0, &["worker", "get", id]).stdout);
    worker["state"].as_str().unwrap_or_default().to_owned()
}

fn wait_for(scene: &TestScene, id: &str, wanted: &str) {
    wait_until(Duration::from_secs(60), wanted, || state(scene, id) == wanted);
}

fn wait_for_rest(scene: &TestScene) {
    wait_until(Duration::from_secs(60), "rest", || scene.status()["state"] == "resting");
}

#[test]
fn workers_are_spawned_one_after_the_other_into_one_run_and_merge_by_themselves() {
    let scene = TestScene::new(BIN).config(CONFIG);
    let spawn = |id: &str| {
        let args =
            ["worker", "spawn", "--task-id", id, "--description", "Do it", "--priority", "7"];
        json(&scene.expect(0, &args).stdout)
    };
    let first = spawn("TASK-1");
    assert_eq!((&first["task_id"], &first["priority"]), (&"TASK-1".into(), &7.into()));
    assert!(
        first["worker_id"].as_str().is_some_and(|id| id.starts_with("worker-") && id.len() == 15)
    );
    wait_for(&scene, "TASK-1", "WORKING");
    let again = spawn("TASK-1");
    assert_eq!(again["worker_id"], first["worker_id"], "the same once more changes nothing");
    spawn("TASK-2");
    assert_eq!(
        json(&scene.expect(0, &["worker", "list"]).stdout).as_array().map(Vec::len),
        Some(2)
    );
    go(&scene, "TASK-1");
    go(&scene, "TASK-2");
    wait_for(&scene, first["worker_id"].as_str().expect("an id"), "MERGED");
    wait_for(&scene, "TASK-2", "MERGED");
    wait_for_rest(&scene);
    go(&scene, "TASK-3");
    spawn("TASK-3");
    wait_for(&scene, "TASK-3", "MERGED");
    wait_for_rest(&scene);
    scene.assert_each_lands_once(&["TASK-1", "TASK-2", "TASK-3"]);
    let merged = json(&scene.expect(0, &["worker", "list", "--state", "merged"]).stdout);
    assert_eq!(merged.as_array().map(Vec::len), Some(3), "{merged:#}");
    scene.expect(0, &["worker", "cleanup", "--state", "MERGED"]);
}

#[test]
fn a_batch_keeps_its_dependencies_and_a_worker_can_be_called_off() {
    let scene = TestScene::new(BIN).config(CONFIG);
    let spec = "project: p\nbase_branch: main\ntasks:\n  - id: A-1\n    description: first\n    \
        agent: code-author\n    priority: 3\n  - id: A-2\n    description: second\n    \
        dependencies: [A-1]\n";
    scene.repo().write("spec.yaml", spec);
    let workers =
        json(&scene.expect(0, &["worker", "spawn-batch", "--spec-file", "spec.yaml"]).stdout);
    assert_eq!(workers.as_array().map(Vec::len), Some(2), "{workers:#}");
    wait_for(&scene, "A-1", "WORKING");
    assert_eq!(state(&scene, "A-2"), "NEEDS_INIT");
    go(&scene, "A-1");
    wait_for(&scene, "A-1", "MERGED");
    wait_for(&scene, "A-2", "WORKING");
    scene.expect(0, &["worker", "terminate", "A-2"]);
    wait_for(&scene, "A-2", "UNKNOWN");
    wait_for_rest(&scene);
    scene.assert_each_lands_once(&["A-1"]);
}

#[test]
fn wrong_wishes_end_with_1_and_start_nothing() {
    let scene = TestScene::new(BIN).config(CONFIG);
    let spawn = |more: &[&str]| {
        let args = ["worker", "spawn", "--description", "x"];
        scene.expect(1, &[&args[..], more].concat()).stderr
    };
    assert!(spawn(&["--task-id", "../x"]).contains("../x"));
    assert!(spawn(&["--task-id", "T", "--agent", "nobody"]).contains("nobody"));
    assert!(spawn(&["--task-id", "T", "--base-branch", "other"]).contains("other"));
    assert!(scene.expect(1, &["worker", "get", "T"]).stderr.contains("T"));
    assert!(scene.expect(1, &["worker", "list", "--state", "LOST"]).stderr.contains("NEEDS_INIT"));
    assert!(scene.landings("main").is_empty());
}

#[test]
fn a_batch_keeps_agents_and_priorities_and_waits_for_workers_spawned_before() {
    let other = "[agents.test-author]\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"echo tested > $MAINSTEM_TASK.txt\"]\n";
    let scene = TestScene::new(BIN).config(&format!("{CONFIG}{other}"));
    scene.expect(0, &["worker", "spawn", "--task-id", "FIRST", "--description", "x"]);
    let spec = "tasks:\n  - id: LATER\n    description: y\n    agent: test-author\n    \
        priority: 8\n    dependencies: [FIRST]\n";
    scene.repo().write("spec.yaml", spec);
    let workers =
        json(&scene.expect(0, &["worker", "spawn-batch", "--spec-file", "spec.yaml"]).stdout);
    assert_eq!(workers[0]["priority"], 8, "the number of the spec, as with spawn: {workers:#}");
    assert_eq!(workers[0]["waiting_for"], serde_json::json!(["FIRST"]), "{workers:#}");
    go(&scene, "FIRST");
    wait_for(&scene, "LATER", "MERGED");
    assert_eq!(scene.repo().git(&["show", "main:LATER.txt"]).trim(), "tested");
    wait_for_rest(&scene);
}

#[test]
fn a_batch_that_cannot_be_kept_is_refused_whole() {
    let scene = TestScene::new(BIN).config(CONFIG);
    let refused = |spec: &str| {
        scene.repo().write("spec.yaml", spec);
        scene.expect(1, &["worker", "spawn-batch", "--spec-file", "spec.yaml"]).stderr
    };
    let other = refused("base_branch: develop\ntasks:\n  - {id: A, description: x}\n");
    assert!(other.contains("develop"), "{other}");
    let nobody = refused("tasks:\n  - {id: A, description: x, agent: ghost-agent}\n");
    assert!(nobody.contains("ghost-agent"), "{nobody}");
    let unknown = refused("tasks:\n  - {id: A, description: x, dependencies: [NOPE]}\n");
    assert!(unknown.contains("NOPE"), "{unknown}");
    assert!(scene.landings("main").is_empty());
    assert_eq!(json(&scene.expect(0, &["worker", "list"]).stdout), serde_json::json!([]));
}

#[test]
fn workers_spawned_at_the_same_moment_all_arrive() {
    let quick = "[run]\nagent = \"quick\"\n[agents.quick]\nkind = \"command\"\n\
        command = [\"sh\", \"-c\", \"echo x > $MAINSTEM_TASK.txt\"]\n";
    let scene = TestScene::new(BIN).config(quick);
    let ids = ["S-1", "S-2", "S-3", "S-4", "S-5"];
    std::thread::scope(|scope| {
        for id in ids {
            let scene = &scene;
            scope.spawn(move || {
                let args = ["worker", "spawn", "--task-id", id, "--description", "x"];
                scene.expect(0, &args);
            });
        }
    });
    for id in ids {
        wait_for(&scene, id, "MERGED");
    }
    wait_for_rest(&scene);
    scene.assert_each_lands_once(&ids);
}

#[test]
fn cleanup_of_a_state_leaves_workers_of_other_states_alone() {
    let scene = TestScene::new(BIN).config(
        "[run]\nagent = \"code-author\"\nretries = 0\n[workspace]\nkeep = \"always\"\n\
         [agents.code-author]\nkind = \"command\"\n\
         command = [\"sh\", \"-c\", \"echo x > $MAINSTEM_TASK.txt; [ $MAINSTEM_TASK = good ]\"]\n",
    );
    for id in ["good", "bad"] {
        scene.expect(0, &["worker", "spawn", "--task-id", id, "--description", "Do it"]);
    }
    wait_for(&scene, "good", "MERGED");
    wait_for(&scene, "bad", "ERROR");
    wait_for_rest(&scene);
    let removed = |state: &[&str]| -> Vec<String> {
        let said = json(&scene.expect(0, &[&["worker", "cleanup"], state].concat()).stdout);
        let all = said["removed"].as_array().cloned().unwrap_or_default();
        all.iter().map(|one| format!("{} {}", one["what"], one["place"])).collect()
    };
    let place = |id: &str| scene.repo().place().join("repo.mainstem").join(id);
    let branches =
        || scene.repo().git(&["for-each-ref", "--format=%(refname)", "refs/heads/mainstem"]);
    let gone = removed(&["--state", "MERGED"]);
    assert!(gone.iter().all(|line| line.contains("good")) && gone.len() == 2, "{gone:?}");
    assert!(!place("good").exists() && place("bad").join("bad.txt").exists());
    assert_eq!(branches().trim(), "refs/heads/mainstem/bad");
    assert_eq!(
        json(&scene.expect(0, &["worker", "get", "good"]).stdout)["worktree_path"],
        Value::Null
    );
    assert_eq!(removed(&["--state", "MERGED"]), [""; 0], "nothing is left of them");
    let gone = removed(&["--state", "ERROR"]);
    assert!(gone.iter().all(|line| line.contains("bad")), "{gone:?}");
    assert!(!place("bad").exists());
}

#[test]
fn a_terminated_worker_can_be_spawned_again_and_starts_from_the_beginning() {
    let begun = "echo x > attempt-$MAINSTEM_ATTEMPT.txt; until";
    let scene = TestScene::new(BIN).config(&CONFIG.replace("until", begun));
    let spawn = ["worker", "spawn", "--task-id", "STUCK", "--description", "Do it"];
    scene.expect(0, &spawn);
    let workspace = scene.repo().place().join("repo.mainstem/STUCK");
    wait_until(Duration::from_secs(60), "work", || workspace.join("attempt-1.txt").exists());
    scene.expect(0, &["worker", "terminate", "STUCK", "--force"]);
    wait_for(&scene, "STUCK", "UNKNOWN");
    wait_for_rest(&scene);
    let again = json(&scene.expect(0, &spawn).stdout);
    assert_eq!(again["task_id"], "STUCK");
    wait_for(&scene, "STUCK", "WORKING");
    let begun = scene.facts_of("attempt_intended");
    assert_eq!((begun.len(), &begun[1]["fresh"]), (2, &Value::Bool(true)), "{begun:#?}");
    go(&scene, "STUCK");
    wait_for(&scene, "STUCK", "MERGED");
    wait_for_rest(&scene);
    scene.assert_each_lands_once(&["STUCK"]);
    assert_eq!(scene.repo().show("main", "attempt-1.txt"), None);
    assert!(scene.repo().show("main", "attempt-2.txt").is_some());
}
