//! The vendor's own agent reviews what it did before, in a checkout that it cannot change.

use serde_json::json;

use super::{PATIENCE, Stage};

#[test]
fn claude_reviews_work_sends_it_back_once_and_lets_it_land() {
    let finding = json!({"severity": "high", "category": "bug", "file": "T-1.txt", "line": 1,
        "description": "it says hi", "suggestion": "say hello"});
    let no = json!({"verdict": "CHANGES_NEEDED", "findings": [finding]}).to_string();
    let yes = json!({"verdict": "APPROVED", "findings": []}).to_string();
    let script = json!({"id": "T-1", "cases": [
        {"when": "+hello", "steps": [{"say": format!("I looked.\n```json\n{yes}\n```")}]},
        {"when": "# Review of task", "steps": [{"say": format!("I looked.\n```json\n{no}\n```")}]},
        {"when": "it says hi", "steps": [
            {"write": {"path": "T-1.txt", "content": "hello\n"}}, {"say": "Mended."}]},
        {"when": "T-1", "steps": [
            {"write": {"path": "T-1.txt", "content": "hi\n"}}, {"say": "All done."}]},
    ]});
    let run = "retries = 0\n[review]\nagents = [\"claude\"]";
    let Some(stage) = Stage::with(&["claude"], run, &[("T-1", "claude", script)]) else { return };
    let output = stage.start("1").wait_for(PATIENCE);
    assert_eq!(output.code, 0, "{}\n{}\n{:#?}", output.stderr, stage.logs(), stage.llm.requests());
    let verdicts: Vec<_> =
        stage.scene.facts_of("review_ended").iter().map(|fact| fact["verdict"].clone()).collect();
    assert_eq!(verdicts, ["CHANGES_NEEDED", "APPROVED"]);
    assert_eq!(stage.scene.repo().show("main", "T-1.txt").as_deref(), Some("hello\n"));
    // What the reviews took is on the task's bill.
    let bill = stage.scene.facts_of("usage_reported");
    let reviews = bill.iter().filter(|fact| fact["answering"]["agent"] == "claude");
    assert!(reviews.count() >= 2, "{bill:#?}");
}
