//! A run seen as workers: spawned, listed, called off, in JSON.

use std::time::Duration;

use mainstem_testkit::{Scene, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const CONFIG: &str = "[run]\nagent = \"code-author\"\n[agents.code-author]\nkind = \"command\"\n\
    command = [\"sh\", \"-c\", \"until [ -e ../../../go-$MAINSTEM_TASK ]; do sleep 0.02; done; \
    echo x > $MAINSTEM_TASK.txt\"]\n";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn go(scene: &Scene, task: &str) {
    std::fs::write(scene.outside(&format!("go-{task}")), "").expect("a temporary folder");
}

fn state(scene: &Scene, id: &str) -> String {
    let worker = json(&scene.expect(0, &["worker", "get", id]).stdout);
    worker["state"].as_str().unwrap_or_default().to_owned()
}

fn wait_for(scene: &Scene, id: &str, wanted: &str) {
    wait_until(Duration::from_secs(60), wanted, || state(scene, id) == wanted);
}

fn wait_for_rest(scene: &Scene) {
    wait_until(Duration::from_secs(60), "rest", || scene.status()["state"] == "resting");
}

#[test]
fn workers_are_spawned_one_after_the_other_into_one_run_and_merge_by_themselves() {
    let scene = Scene::new(BIN).config(CONFIG);
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
    let scene = Scene::new(BIN).config(CONFIG);
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
    let scene = Scene::new(BIN).config(CONFIG);
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
