//! A newer binary takes over what an older one left: agents at work, their records, folders by their old names.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(60);

fn files_named(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_named(&path, name, found);
        } else if path.file_name().is_some_and(|own| own == name) {
            found.push(path);
        }
    }
}

/// Makes the records of jobs look as the first version wrote them: without fields that came later. A record of a
/// version yet to come has fields that we do not know.
fn rewrite(scene: &TestScene, change: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    let mut records = Vec::new();
    for name in ["spec.json", "pid.json"] {
        files_named(&scene.repo().git_dir().join("mainstem/runs"), name, &mut records);
    }
    assert!(records.len() >= 2, "{records:?}");
    for path in records {
        let text = fs::read_to_string(&path).expect("a record");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        change(value.as_object_mut().expect("an object"));
        fs::write(&path, value.to_string()).expect("a record");
    }
}

#[test]
fn agents_that_an_older_binary_started_are_taken_over_and_land_once() {
    let older = |record: &mut serde_json::Map<String, Value>| {
        for later in ["wall", "door", "memory_bytes", "keeps_work", "converse", "cgroup", "dir"] {
            record.remove(later);
        }
    };
    let newer = |record: &mut serde_json::Map<String, Value>| {
        record.insert("from_a_later_version".to_owned(), serde_json::json!({ "x": [1, 2] }));
    };
    type Record = serde_json::Map<String, Value>;
    let changes: [&dyn Fn(&mut Record); 2] = [&older, &newer];
    for change in changes {
        let scene = TestScene::new(BIN);
        let (go, log) = (scene.outside("go"), scene.outside("log"));
        let work = format!(
            "echo started >> {}; until [ -e {} ]; do sleep 0.1; done; echo x > x.txt",
            log.display(),
            go.display()
        );
        let scene = scene.plan(&shell_plan(&[("T", &work, "")]));
        let engine = scene.spawn(&["run", "plan.toml"]);
        wait_until(LONG, "the agent works", || log.exists());
        wait_until(LONG, "it is on record", || scene.task("T")["phase"] == "working");
        engine.kill9();
        rewrite(&scene, change);
        let engine = scene.spawn(&["run"]);
        wait_until(LONG, "a new engine is there", || scene.status()["state"] == "running");
        fs::write(&go, "").expect("a file");
        engine.wait().expect_code(0);
        scene.assert_each_lands_once(&["T"]);
        let starts = fs::read_to_string(&log).expect("the agent's log");
        assert_eq!(starts, "started\n", "the agent was taken over, not started again");
        scene.assert_nothing_left();
    }
}
