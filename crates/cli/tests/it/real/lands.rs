//! Each agent edits, commits and lands, and what it used is what was served.

use serde_json::json;

use super::{Stage, work, work_with};

/// One task of one agent lands; tokens in the journal are those that the stand-in served to it.
fn lands(agent: &str) -> Option<Stage> {
    let usage = json!({"usage": {"in": 1234, "out": 77}});
    let stage = Stage::with(&[agent], "retries = 0", &[("T-1", agent, work_with("T-1", usage))])?;
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    assert_eq!(stage.scene.repo().git(&["show", "HEAD:T-1.txt"]), "hi");
    let served = stage.llm.served("{\"id\":\"T-1\"");
    assert_eq!(served.answers, 3, "{:#?}", stage.llm.requests());
    let (input, output) = stage.recorded("T-1");
    assert_eq!((input, output), (served.input, served.output), "{agent}");
    stage.scene.assert_nothing_left();
    Some(stage)
}

#[test]
fn claude_edits_and_lands_and_its_tokens_and_money_are_those_served() {
    let Some(stage) = lands("claude") else { return };
    let (input, output) = stage.recorded("T-1");
    // The list price of the pinned version's default model: 4 and 20 dollars per million.
    let expected = input as f64 * 4e-6 + output as f64 * 20e-6;
    stage.assert_cost("T-1", expected);
}

#[test]
fn codex_edits_and_lands_and_its_tokens_are_those_served() {
    lands("codex");
}

#[test]
fn gemini_edits_and_lands_and_its_tokens_are_those_served() {
    lands("gemini");
}

#[test]
fn opencode_edits_and_lands_and_its_tokens_and_money_are_those_served() {
    let Some(stage) = lands("opencode") else { return };
    let (input, output) = stage.recorded("T-1");
    let expected = input as f64 * 3e-6 + output as f64 * 15e-6;
    stage.assert_cost("T-1", expected);
}

#[test]
fn an_acp_agent_edits_and_lands() {
    let Some(stage) = Stage::with(&["opencode"], "retries = 0", &[]) else { return };
    let repo = stage.scene.repo();
    let config =
        std::fs::read_to_string(repo.path().join("mainstem.toml")).expect("it was written");
    // The same tool by its other protocol.
    let config = config.replace("[agents.opencode", "[agents.other").replace(
        "kind = \"opencode\"\nbinary = ",
        "kind = \"acp\"\ncommand = [\"opencode\", \"acp\"]\nbinary = ",
    );
    let config = config.replace("model = \"stub/stub-model\"\n", "");
    let config = config.replace(
        "{\"provider\"",
        "{\"model\":\"stub/stub-model\",\"permission\":\"ask\",\"provider\"",
    );
    repo.commit(
        "acp",
        &[
            ("mainstem.toml", &config),
            ("plan.toml", &super::plan(&[("T-1", "other", work("T-1"))])),
        ],
    );
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    let log = stage.scene.mainstem(&["logs", "T-1"]).stdout;
    assert!(log.contains("allowed"), "it asked for permission and got it: {log}");
}

#[test]
fn an_epic_about_rate_limits_is_not_paused() {
    let say =
        "Rate limit exceeded: 429 Too Many Requests. You've hit your limit, retry after 3600.";
    let script = json!({"id": "T-1", "steps": [
        {"say": say, "run": format!("echo \"{say}\"; echo '{{\"type\":\"rate_limit_error\"}}' >&2")},
        {"run": format!("echo \"{say}\" > limiter-$MAINSTEM_TASK.txt")},
        {"say": say},
    ]});
    let jobs = [("T-1", "claude", script.clone()), ("T-2", "codex", script)];
    let Some(stage) = Stage::with(&["claude", "codex"], "retries = 0", &jobs) else { return };
    stage.run(0, "2");
    stage.scene.assert_phases(&[("T-1", "landed"), ("T-2", "landed")]);
    let limited = stage
        .scene
        .facts()
        .into_iter()
        .any(|fact| fact["type"].as_str().is_some_and(|kind| kind.contains("limit")));
    assert!(!limited, "{}", stage.logs());
}
