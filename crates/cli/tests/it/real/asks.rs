//! A real agent asks through our MCP server and goes on with the answer.

use serde_json::{Value, json};

use mainstem_testkit::wait_until;

use super::{PATIENCE, Stage};

/// Whether this build has the server; a build without it has nothing to test.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn has_server(stage: &Stage) -> bool {
    let there = stage.scene.mainstem(&["__mcp", "--help"]).code == 0;
    if !there {
        println!("skipped: this build has no MCP server");
    }
    there
}

/// One agent asks, a person answers on the command line, the model hears the answer.
fn asks(agent: &str) {
    let question = json!({"question": "Which colour?", "options": ["red", "blue"]});
    let script = json!({"id": "T-1", "steps": [
        {"tool": {"name": "mcp__mainstem__ask", "args": question}},
        {"write": {"path": "T-1.txt", "content": "hi\n"}},
        {"say": "All done."},
    ]});
    let Some(stage) = Stage::with(&[agent], "retries = 0", &[("T-1", agent, script)]) else {
        return;
    };
    if !has_server(&stage) {
        return;
    }
    let running = stage.start("1");
    let mut name = String::new();
    wait_until(PATIENCE, "the question", || {
        let output = stage.scene.mainstem(&["status", "--json"]);
        let status: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        name = status["questions"][0]["id"].as_str().unwrap_or_default().to_owned();
        !name.is_empty()
    });
    stage.scene.assert_phases(&[("T-1", "asking")]);
    stage.scene.expect(0, &["answer", &name, "blue"]);
    let output = running.wait_for(PATIENCE);
    assert_eq!(output.code, 0, "{}\n{}", output.stderr, stage.logs());
    stage.scene.assert_each_lands_once(&["T-1"]);
    let transcript = stage.scene.attempt_dir("T-1", 1).join("transcript.jsonl");
    let said = std::fs::read_to_string(transcript).expect("a transcript is kept");
    let heard = said.lines().filter(|line| line.starts_with("out ") && line.contains("blue"));
    assert!(heard.count() >= 2, "the call and its answer: {said}");
}

#[test]
fn a_question_of_claude_is_answered_on_the_command_line_and_it_goes_on() {
    asks("claude");
}

#[test]
fn a_question_of_codex_is_answered_on_the_command_line_and_it_goes_on() {
    asks("codex");
}
