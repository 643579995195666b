//! Refusals of the provider: limits, logins, broken connections.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Stage, work_with};

#[test]
fn a_rate_limit_with_a_time_delays_all_and_all_finish() {
    let limited = json!({"fault": {"status": 429, "times": 1, "retry_after": 2}});
    let ids = ["T-1", "T-2", "T-3"];
    let jobs = ids.map(|id| (id, "claude", work_with(id, limited.clone())));
    let Some(stage) = Stage::with(&["claude"], "retries = 0", &jobs) else { return };
    stage.run(0, "3");
    stage.scene.assert_each_lands_once(&ids);
    let log = stage.scene.mainstem(&["logs", "T-1", "--raw"]).stdout;
    assert!(log.contains("\"retrying\":true"), "{log}");
    // Whoever is told to wait, it is the provider that rests, and no attempt is lost by it.
    let told = stage.scene.facts_of("provider_limited");
    assert!(
        !told.is_empty() && told.iter().all(|fact| fact["provider"] == "anthropic"),
        "{told:?}"
    );
    assert!(stage.scene.facts_of("attempt_failed").is_empty());
}

#[test]
fn a_refused_login_fails_fast_and_names_the_command_that_helps() {
    let refused = json!({"fault": {"status": 401}});
    let jobs = [
        ("T-1", "claude", work_with("T-1", refused.clone())),
        ("T-2", "codex", work_with("T-2", refused)),
    ];
    let Some(stage) = Stage::with(&["claude", "codex"], "retries = 0", &jobs) else { return };
    let begun = Instant::now();
    stage.run(2, "2");
    assert!(begun.elapsed() < Duration::from_secs(60), "its own retries take minutes");
    let key = "put a valid key into ANTHROPIC_API_KEY";
    for (task, command) in [("T-1", key), ("T-2", "codex login")] {
        let log = stage.scene.mainstem(&["logs", task, "--raw"]).stdout;
        assert!(log.contains("\"class\":\"auth\""), "{log}");
        assert!(log.contains(command), "{log}");
        let next = stage.scene.task(task)["next_action"].to_string();
        assert!(next.contains(command), "{next}");
    }
}

#[test]
fn a_dropped_connection_is_no_end_of_the_task() {
    // More often than the tool tries by itself: the first attempt fails, and that is transient.
    let dropped = json!({"fault": {"kind": "drop", "times": 3}});
    let jobs = [("T-1", "claude", work_with("T-1", dropped))];
    let Some(stage) = Stage::with(&["claude"], "retries = 1", &jobs) else { return };
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    let log = stage.scene.mainstem(&["logs", "T-1", "--raw", "--attempt", "1"]).stdout;
    assert!(log.contains("\"class\":\"transient\""), "{log}");
}

#[test]
fn a_subscription_that_is_used_up_is_waited_for() {
    let spent = json!({"fault": {"kind": "usage_limit", "times": 1, "resets_in": 3}});
    let jobs = [("T-1", "claude", work_with("T-1", spent))];
    // It costs no retry.
    let Some(stage) = Stage::with(&["claude"], "retries = 0", &jobs) else { return };
    let repo = stage.scene.repo();
    let config =
        std::fs::read_to_string(repo.path().join("mainstem.toml")).expect("it was written");
    let config = config.replace("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN");
    repo.commit("a subscription", &[("mainstem.toml", &config)]);
    stage.run(0, "1");
    stage.scene.assert_each_lands_once(&["T-1"]);
    let log = stage.scene.mainstem(&["logs", "T-1", "--raw", "--attempt", "1"]).stdout;
    assert!(log.contains("\"mainstem\":\"quota_exhausted\",\"reset_at\":"), "{log}");
    let classes: Vec<String> =
        stage.scene.facts_of("attempt_failed").iter().map(|f| f["class"].to_string()).collect();
    assert_eq!(classes, ["\"quota_exhausted\""]);
}
