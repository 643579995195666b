//! Ends that are none, and lives that go on: background tasks, circles, stops, a dead engine.

use serde_json::json;

use mainstem_testkit::wait_until;

use super::{PATIENCE, Stage, work_with};

#[test]
fn a_background_task_does_not_keep_an_agent_alive() {
    let script = json!({"id": "T-1", "steps": [
        {"tool": {"name": "Bash", "args": {"command": "tail -f /dev/null", "run_in_background": true}}},
        {"write": {"path": "a.txt", "content": "hi\n"}},
        {"say": "All done."},
    ]});
    let Some(stage) = Stage::with(&["claude"], "retries = 0", &[("T-1", "claude", script)]) else {
        return;
    };
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    stage.scene.assert_nothing_left();
}

#[test]
fn an_agent_that_goes_in_circles_is_told_so_and_then_ended() {
    let step = json!({"run": "echo same"});
    let script = json!({"id": "T-1", "steps": vec![step; 30]});
    let Some(stage) = Stage::with(&["codex"], "retries = 0", &[("T-1", "codex", script)]) else {
        return;
    };
    stage.run(2, "1");
    let log = stage.scene.mainstem(&["logs", "T-1", "--raw"]).stdout;
    assert!(log.contains("\"class\":\"looping\""), "{log}");
    assert!(log.contains("the agent repeats itself; sent a warning"), "{log}");
    stage.scene.mainstem(&["cancel"]);
}

#[test]
fn an_agent_outlives_the_engine_and_lands_after_its_return() {
    let slow = json!({"hang": 6});
    let Some(stage) =
        Stage::with(&["claude"], "retries = 0", &[("T-1", "claude", work_with("T-1", slow))])
    else {
        return;
    };
    let engine = stage.start("1");
    wait_until(PATIENCE, "the agent asked its model", || !stage.llm.requests().is_empty());
    engine.kill9();
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    assert_eq!(stage.scene.task("T-1")["attempt"], 1, "it was found again, not started again");
    assert_eq!(stage.llm.served("{\"id\":\"T-1\"").answers, 3);
    stage.scene.assert_nothing_left();
}

#[test]
fn a_stopped_agent_leaves_no_process_behind() {
    let script = json!({"id": "T-1", "steps": [{"run": "tail -f /dev/null"}, {"say": "d"}]});
    let jobs = [("T-1", "claude", script.clone()), ("T-2", "codex", script)];
    let Some(stage) = Stage::with(&["claude", "codex"], "retries = 0", &jobs) else { return };
    let engine = stage.start("2");
    for task in ["T-1", "T-2"] {
        wait_until(PATIENCE, "its tool runs", || {
            stage.scene.mainstem(&["logs", task]).stdout.contains("$ tail -f /dev/null")
        });
    }
    stage.scene.expect(0, &["cancel"]);
    engine.wait_for(PATIENCE);
    wait_until(PATIENCE, "all are gone", || {
        mainstem_testkit::oracle::processes_of(stage.scene.repo().root(), stage.scene.binary())
            .is_empty()
    });
}
