//! Runs many real agents at once.

use std::collections::BTreeSet;

use mainstem_testkit::wait_until;
use serde_json::{Value, json};

use super::{PATIENCE, Stage};

/// Peak memory of a process in KiB, as the kernel counts it.
fn peak_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn twenty_agents_at_once_do_not_hear_each_other() {
    let ids: Vec<String> = (1..=20).map(|n| format!("T-{n}")).collect();
    let script = |n: usize, id: &str| {
        let write = json!({"write": {"path": format!("{id}.txt"), "content": format!("of {id}\n")},
            "usage": {"in": 1000 + n, "out": 10 + n}});
        let commit = json!({"run": format!("git add -A && git commit -qm {id}")});
        json!({"id": id, "steps": [write, commit, {"say": format!("{id} is done.")}]})
    };
    let jobs: Vec<(&str, &str, Value)> =
        ids.iter().enumerate().map(|(n, id)| (id.as_str(), "codex", script(n, id))).collect();
    let Some(stage) = Stage::with(&["codex"], "retries = 0", &jobs) else { return };
    let mut engine = stage.start("20");
    let mut peak = 0;
    wait_until(PATIENCE, "all twenty", || {
        peak = peak.max(peak_kib(engine.pid()));
        engine.has_ended()
    });
    engine.wait().expect_code(0);
    let names: Vec<&str> = ids.iter().map(String::as_str).collect();
    stage.scene.assert_each_lands_once(&names);
    let mut sessions = BTreeSet::new();
    for fact in stage.scene.facts_of("session_seen") {
        sessions.insert(fact["session"].to_string());
    }
    assert_eq!(sessions.len(), ids.len(), "each has a session of its own: {sessions:?}");
    for id in &ids {
        let text = stage.scene.repo().git(&["show", &format!("HEAD:{id}.txt")]);
        assert_eq!(text, format!("of {id}"));
        let served = stage.llm.served(&format!("{{\"id\":\"{id}\""));
        let (input, output) = stage.recorded(id);
        assert_eq!((input, output), (served.input, served.output), "{id}");
    }
    assert!(peak < 64 * 1024, "the engine took {peak} KiB");
    stage.scene.assert_nothing_left();
}
