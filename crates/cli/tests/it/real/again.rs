//! A second attempt that takes up the session of the first.

use serde_json::json;

use super::Stage;

/// The gate is green the second time: the first attempt fails there, the second must know of it.
#[track_caller]
fn takes_up(agent: &str) {
    let script = json!({"id": "T-1", "steps": [
        {"write": {"path": "a.txt", "content": "hi\n"}},
        // Another tree each time: what a gate said of the first is no verdict on the second.
        {"run": "date +%s%N > b.txt"},
        {"say": "All done."},
    ]});
    let gate = "t=$HOME/../shared/tally; echo x >> $t; [ $(wc -l < $t) -ge 2 ]";
    let run = format!("retries = 1\n[gates]\nverify = ['{gate}']\n");
    let Some(stage) = Stage::with(&[agent], &run, &[("T-1", agent, script)]) else {
        return;
    };
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    let attempts = stage.scene.facts_of("attempt_intended");
    let seen = stage.scene.facts_of("session_seen");
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert!(attempts[0].get("session").is_none(), "{attempts:#?}");
    assert_eq!(attempts[1]["session"], seen[0]["session"], "{attempts:#?} {seen:#?}");
    let asked = stage.llm.requests();
    let first = asked.iter().filter(|ask| ask["side"] == false && ask["step"] == 0);
    let earlier: Vec<_> = first.map(|ask| ask["earlier"].as_u64()).collect();
    assert_eq!(earlier.first(), Some(&Some(0)), "a session of its own: {asked:#?}");
    assert!(earlier.last() >= Some(&Some(1)), "it remembers the first attempt: {asked:#?}");
    // Two attempts, and no token counted twice although the tools count from the session's start.
    let served = stage.llm.served("{\"id\":\"T-1\"");
    let (input, output) = stage.recorded("T-1");
    assert_eq!((input, output), (served.input, served.output));
    stage.scene.assert_nothing_left();
}

/// An agent that does its first half once and never again: the second attempt must find it.
#[track_caller]
fn goes_on(agent: &str) {
    let half = "if [ \"$MAINSTEM_ATTEMPT\" = 1 ]; then echo one > half1.txt; else echo two > half2.txt; fi";
    let script = json!({"id": "T-1", "steps": [{"run": half}, {"say": "All done."}]});
    let gate = "! test -e half1.txt || test -e half2.txt";
    let run = format!("retries = 1\n[gates]\nverify = ['{gate}']\n");
    let Some(stage) = Stage::with(&[agent], &run, &[("T-1", agent, script)]) else {
        return;
    };
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    let attempts = stage.scene.facts_of("attempt_intended");
    let seen = stage.scene.facts_of("session_seen");
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert_eq!(attempts[1]["session"], seen[0]["session"], "{attempts:#?} {seen:#?}");
    assert_eq!(attempts[1]["continues"]["attempt"], 1, "{attempts:#?}");
    for (path, text) in [("half1.txt", "one\n"), ("half2.txt", "two\n")] {
        assert_eq!(stage.scene.repo().show("main", path).as_deref(), Some(text), "{path}");
    }
    stage.scene.assert_nothing_left();
}

#[test]
fn claude_finds_its_first_half_when_a_gate_sends_it_back() {
    goes_on("claude");
}

#[test]
fn codex_finds_its_first_half_when_a_gate_sends_it_back() {
    goes_on("codex");
}

#[test]
fn claude_takes_up_its_session_when_a_gate_sends_it_back() {
    takes_up("claude");
}

#[test]
fn codex_takes_up_its_session_when_a_gate_sends_it_back() {
    takes_up("codex");
}

#[test]
fn gemini_takes_up_its_session_when_a_gate_sends_it_back() {
    takes_up("gemini");
}

#[test]
fn opencode_takes_up_its_session_when_a_gate_sends_it_back() {
    takes_up("opencode");
}
