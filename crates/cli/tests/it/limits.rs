//! Providers that limit, refuse and fail, and what it all costs: as a user sees it.

use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

use crate::line::BIN;

/// A shell command that prints this line of the protocol.
fn say(line: &str) -> String {
    format!("printf '%s\\n' '{line}'")
}

/// What it does in its first attempt, and what in all later ones.
fn at_first(first: &str, later: &str) -> String {
    format!("if [ $MAINSTEM_ATTEMPT = 1 ]; then {first}; else {later}; fi")
}

fn soon(seconds: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs()) + seconds
}

#[test]
fn one_rate_limit_met_by_all_costs_nobody_a_retry() {
    let limited = format!("{}; exit 1", say(r#"{"mainstem":"rate_limited","retry_after":1}"#));
    let work = |n: usize| at_first(&limited, &format!("echo {n} > {n}.txt"));
    let works: Vec<(String, String)> = (0..4).map(|n| (format!("T-{n}"), work(n))).collect();
    let tasks: Vec<(&str, &str, &str)> =
        works.iter().map(|(id, work)| (id.as_str(), work.as_str(), "retries = 0")).collect();
    let scene =
        TestScene::new(BIN).config("[limits]\nrate_limit_waits = 1\n").plan(&shell_plan(&tasks));
    scene.expect(0, &["run", "plan.toml", "-j", "4"]);
    scene.assert_each_lands_once(&["T-0", "T-1", "T-2", "T-3"]);
    scene.assert_nothing_left();
}

#[test]
fn words_about_rate_limits_pause_nothing() {
    let prose = "echo 'Error: 429 rate limit exceeded, usage limit reached, try again in 5 hours'; \
                 echo '\\u2502 {\"mainstem\":\"rate_limited\"}'; echo x > x.txt";
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", prose, "retries = 0")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert!(scene.facts_of("provider_limited").is_empty());
    assert_eq!(scene.task("T-1")["attempt"], 1);
}

#[test]
fn a_used_up_quota_waits_for_a_person_who_wants_that_and_survives_the_engine() {
    let line = format!(
        r#"{{"mainstem":"quota_exhausted","reset_at":{},"window":"five_hour","message":"used up"}}"#,
        soon(3_600)
    );
    let session = say(r#"{"mainstem":"session","id":"s-42"}"#);
    let first = format!("{session}; {}; exit 1", say(&line));
    let scene = TestScene::new(BIN)
        .config("[limits]\nauto_resume = false\n")
        .plan(&shell_plan(&[("T-1", &at_first(&first, "echo x > x.txt"), "retries = 0")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    let parked = || scene.status()["limits"].as_array().is_some_and(|limits| !limits.is_empty());
    wait_until(Duration::from_secs(60), "the quota is on record", parked);
    let limit = scene.status()["limits"][0].clone();
    assert_eq!((&limit["kind"], &limit["until"]), (&"quota".into(), &Value::Null), "{limit:#}");
    let waits = || scene.task("T-1")["next_action"] == "mainstem resume";
    wait_until(Duration::from_secs(60), "its task waits for a person", waits);
    running.kill9();
    let text = scene.expect(0, &["status"]).stdout;
    assert!(text.contains("until you run mainstem resume"), "{text}");
    let again = scene.spawn(&["run"]);
    wait_until(Duration::from_secs(60), "a new engine is there", || {
        scene.status()["state"] == "running"
    });
    assert_eq!(scene.phase("T-1"), "ready", "an hour has not passed");
    let said = scene.expect(0, &["resume"]).stderr;
    assert!(said.contains("command"), "{said}");
    assert_eq!(again.wait().code, 0);
    scene.assert_each_lands_once(&["T-1"]);
    let second = &scene.facts_of("attempt_intended")[1];
    assert_eq!(second["session"], "s-42", "{second:#}");
    let shown: Value = serde_json::from_str(&scene.expect(0, &["show", "T-1", "--json"]).stdout)
        .expect("show --json is JSON");
    assert_eq!(shown["attempts"][0]["class"], "quota_exhausted", "{shown:#}");
    assert_eq!(shown["attempts"][1]["resumed_session"], "s-42");
}

#[test]
fn who_is_not_let_in_fails_at_once_and_says_what_helps() {
    let line = r#"{"mainstem":"failed","class":"auth","message":"401","help":"claude /login"}"#;
    let work = format!("{}; exit 1", say(line));
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", &work, "retries = 5")]));
    let out = scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert_eq!((&task["phase"], &task["attempt"]), (&"failed".into(), &1.into()), "{task:#}");
    assert_eq!(task["next_action"], "claude /login, then mainstem retry T-1");
    assert!(out.stdout.contains("claude /login"), "{}", out.stdout);
    assert_eq!(scene.facts_of("attempt_failed")[0]["class"], "refused");
}

#[test]
fn a_lost_connection_is_tried_again_and_costs_no_retry() {
    let line = r#"{"mainstem":"failed","class":"transient","message":"connection reset"}"#;
    let first = format!("{}; exit 1", say(line));
    let work = at_first(&first, "echo x > x.txt");
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", &work, "retries = 0")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.facts_of("attempt_failed")[0]["class"], "transient");
    scene.assert_each_lands_once(&["T-1"]);
}

#[test]
fn money_is_summed_by_what_one_wants_to_know_with_how_it_is_known() {
    let reported = say(
        r#"{"mainstem":"usage","input_tokens":10,"output_tokens":5,"cache_read_tokens":7,"cost_usd":0.5,"model":"big"}"#,
    );
    let counted = say(
        r#"{"mainstem":"usage","input_tokens":1000000,"output_tokens":0,"model":"small-2026"}"#,
    );
    let scene = TestScene::new(BIN)
        .config(
            "[prices]\nsmall = { input = 2.0, output = 8.0 }\n[budget]\nusd = 3.0\nhard = false\n",
        )
        .plan(&shell_plan(&[
            ("T-1", &format!("{reported}; echo 1 > 1.txt"), ""),
            ("T-2", &format!("{counted}; echo 2 > 2.txt"), ""),
        ]));
    scene.expect(0, &["run", "plan.toml"]);
    let cost = |args: &[&str]| -> Value {
        let all: Vec<&str> = ["cost", "--json"].iter().chain(args).copied().collect();
        serde_json::from_str(&scene.expect(0, &all).stdout).expect("cost --json is JSON")
    };
    let by_model = cost(&["--by", "model"]);
    assert_eq!(by_model["total"]["cost_usd"], 2.5, "{by_model:#}");
    assert_eq!(by_model["total"]["basis"], "mixed");
    let rows = by_model["rows"].as_array().expect("rows");
    let row = |name: &str| {
        rows.iter().find(|row| row["model"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(
        (&row("big")["basis"], &row("big")["cache_read_tokens"]),
        (&"reported".into(), &7.into())
    );
    assert_eq!(row("small-2026")["basis"], "estimated");
    assert_eq!(cost(&[])["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(by_model["forecast"]["completed"], 2);
    assert_eq!(
        (&by_model["forecast"]["ended"], &by_model["forecast"]["landed"]),
        (&2.into(), &2.into())
    );
    assert_eq!(by_model["forecast"]["total_usd"], 2.5);
    let csv = scene.expect(0, &["cost", "--csv", "--by", "agent"]).stdout;
    assert!(
        csv.starts_with("agent,attempts,") && csv.contains("\ncommand,2,1000010,5,7,0,2.5"),
        "{csv}"
    );
    let text = scene.expect(0, &["cost"]).stdout;
    assert!(text.contains("budget    $2.50 of $3.00"), "{text}");
    assert_eq!(scene.facts_of("budget_reached").len(), 1, "80 %, said once");
}

#[test]
fn the_model_is_chosen_by_rule_and_the_reason_is_kept() {
    let script = "echo $MAINSTEM_MODEL > $MAINSTEM_TASK.txt";
    let scene = TestScene::new(BIN)
        .config(&format!(
            "[run]\nagent = 'mine'\n[agents.mine]\nkind = 'command'\ncommand = '{script}'\n\
             models = {{ cheap = 'small', middle = 'mid', top = 'big' }}\n[models]\nby_role = {{ boss = 'top' }}\n"
        ))
        .plan(
            "version = 1\n[[task]]\nid = \"A\"\ntitle = \"Fix a typo\"\neffort = \"small\"\n\
             [[task]]\nid = \"B\"\ntitle = \"Fix a typo\"\nrole = \"boss\"\n\
             [[task]]\nid = \"C\"\ntitle = \"Fix a typo\"\nmodel = \"own\"\n",
        );
    scene.expect(0, &["run", "plan.toml"]);
    for (task, model, reason) in [
        ("A", "small", "complexity"),
        ("B", "big", "models.by_role.boss"),
        ("C", "own", "set in the task"),
    ] {
        let file = format!("{task}.txt");
        assert_eq!(
            scene.repo().show("main", &file).as_deref(),
            Some(format!("{model}\n").as_str())
        );
        let shown = scene.expect(0, &["show", task]).stdout;
        assert!(shown.contains(&format!("{model} chosen because: {reason}")), "{shown}");
    }
}

#[test]
fn a_limit_that_one_repository_meets_holds_back_the_others_of_the_same_user() {
    let limited = format!(
        "{}; exit 1",
        say(r#"{"mainstem":"rate_limited","retry_after":600,"message":"slow"}"#)
    );
    let agent = |script: &str| {
        format!(
            "[run]\nagent = \"w\"\n[agents.w]\nkind = \"command\"\nprovider = \"acme\"\ncommand = [\"sh\", \"-c\", {script:?}]\n"
        )
    };
    let plan = "version = 1\n[[task]]\nid = \"T-1\"\ndescription = \"x\"\n";
    let first = TestScene::new(BIN).config(&agent(&limited)).plan(plan);
    let state = first.outside("state");
    let first = first.env("XDG_STATE_HOME", &state);
    let running = first.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the limit is written down for others", || {
        state.join("mainstem/limits.json").exists()
    });
    let second = TestScene::new(BIN).config(&agent("echo x > x.txt")).plan(plan);
    let second = second.env("XDG_STATE_HOME", &state);
    let waiting = second.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the other repository waits", || {
        second.status()["limits"][0]["provider"] == "acme"
    });
    assert_eq!(second.phase("T-1"), "ready");
    assert!(second.facts_of("attempt_intended").is_empty());
    // A person says to try again, and nothing brings the limit back.
    second.expect(0, &["resume"]);
    assert_eq!(waiting.wait().code, 0);
    second.assert_each_lands_once(&["T-1"]);
    running.kill9();
}

#[test]
fn a_provider_that_one_repository_pauses_after_failures_is_paused_in_the_others() {
    let failing =
        say(r#"{"mainstem":"failed","class":"transient","message":"the service is overloaded"}"#);
    let agent = |script: &str| {
        format!(
            "[run]\nagent = \"w\"\n[limits]\nbreaker = 1\nbreaker_wait = \"10m\"\n\
             [agents.w]\nkind = \"command\"\nprovider = \"acme\"\ncommand = [\"sh\", \"-c\", {script:?}]\n"
        )
    };
    let plan = "version = 1\n[[task]]\nid = \"T-1\"\ndescription = \"x\"\n";
    let first = TestScene::new(BIN).config(&agent(&format!("{failing}; exit 1"))).plan(plan);
    let state = first.outside("state");
    let first = first.env("XDG_STATE_HOME", &state);
    let running = first.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the pause is written down for others", || {
        state.join("mainstem/limits.json").exists()
    });
    let second = TestScene::new(BIN).config(&agent("echo x > x.txt")).plan(plan);
    let second = second.env("XDG_STATE_HOME", &state);
    let waiting = second.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the other repository waits", || {
        second.status()["limits"][0]["kind"] == "breaker"
    });
    assert_eq!(second.phase("T-1"), "ready");
    assert!(second.facts_of("attempt_intended").is_empty());
    second.expect(0, &["resume"]);
    assert_eq!(waiting.wait().code, 0);
    second.assert_each_lands_once(&["T-1"]);
    running.kill9();
}

#[test]
fn repositories_with_different_accounts_of_a_provider_do_not_wait_for_each_other() {
    let limited = format!("{}; exit 1", say(r#"{"mainstem":"rate_limited","retry_after":600}"#));
    let agent = |script: &str| {
        format!(
            "[run]\nagent = \"w\"\n[agents.w]\nkind = \"command\"\nprovider = \"acme\"\n\
             secrets = [\"ACME_KEY\"]\ncommand = [\"sh\", \"-c\", {script:?}]\n"
        )
    };
    let plan = "version = 1\n[[task]]\nid = \"T-1\"\ndescription = \"x\"\n";
    let first = TestScene::new(BIN).config(&agent(&limited)).plan(plan);
    let state = first.outside("state");
    let first = first.env("XDG_STATE_HOME", &state).env("ACME_KEY", "key-of-the-team");
    let running = first.spawn(&["run", "plan.toml"]);
    let file = state.join("mainstem/limits.json");
    wait_until(Duration::from_secs(60), "the limit is written down for others", || file.exists());
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(!text.contains("key-of-the-team"), "{text}");
    let with_key = |key: &str| {
        let scene = TestScene::new(BIN).config(&agent("echo x > x.txt")).plan(plan);
        scene.env("XDG_STATE_HOME", &state).env("ACME_KEY", key)
    };
    let other = with_key("key-of-my-own");
    other.expect(0, &["run", "plan.toml"]);
    other.assert_each_lands_once(&["T-1"]);
    let same = with_key("key-of-the-team");
    let waiting = same.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the repository with the same account waits", || {
        same.status()["limits"][0]["provider"] == "acme"
    });
    assert!(same.facts_of("attempt_intended").is_empty());
    waiting.kill9();
    running.kill9();
}

#[test]
fn a_run_that_the_budget_stops_says_so_and_how_to_go_on() {
    let cost = |usd: &str, file: &str| {
        let line = format!(
            r#"{{"mainstem":"usage","input_tokens":1,"output_tokens":1,"cost_usd":{usd}}}"#
        );
        format!("{}; echo x > {file}", say(&line))
    };
    let (first, second) = (cost("6.0", "a.txt"), cost("1.0", "b.txt"));
    let scene = TestScene::new(BIN)
        .config("[budget]\nusd = 10.0\nhard = true\n")
        .plan(&shell_plan(&[("T-1", &first, ""), ("T-2", &second, "")]));
    scene.expect(2, &["run", "plan.toml", "-j", "1"]);
    let task = scene.task("T-2");
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("over budget: $6.00 of $10.00 spent"), "{task:#}");
    assert_eq!(task["next_action"], "mainstem config set budget.usd 20, then mainstem run");
    scene.expect(0, &["run", "--config", "budget.usd=20"]);
    scene.assert_each_lands_once(&["T-1", "T-2"]);
}

#[test]
fn an_agent_that_names_absurd_costs_exhausts_no_budget_and_people_are_told() {
    let costs = ["1e308", "-5", "NaN", "Infinity", "1.25"];
    let lines = costs.map(|usd| say(&format!(r#"{{"mainstem":"usage","cost_usd":{usd}}}"#)));
    let first = format!("{}; echo x > a.txt", lines.join("; "));
    let scene = TestScene::new(BIN)
        .config("[budget]\nusd = 10.0\nhard = true\nper_task = 5.0\n")
        .plan(&shell_plan(&[("T-1", &first, ""), ("T-2", "echo x > b.txt", "")]));
    let run = scene.expect(0, &["run", "plan.toml", "-j", "1"]);
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    let said = "the agent reported an impossible cost of 1e308 USD, which is not counted";
    assert_eq!((run.stdout + &run.stderr).matches(said).count(), 1);
    assert_eq!(scene.task("T-1")["cost_usd"], 1.25);
}

#[test]
fn an_agent_that_goes_round_in_circles_is_a_question_and_the_answer_reaches_the_next_one() {
    let script = format!(
        "if grep -q 'lock file' \"$MAINSTEM_PROMPT\"; then echo x > x.txt; else {}; exit 1; fi",
        say(r#"{"mainstem":"failed","class":"looping","message":"echo same"}"#)
    );
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", &script, "")]));
    scene.expect(2, &["run", "plan.toml"]);
    let status = scene.status();
    assert_eq!(status["questions"][0]["id"], "L-T-1", "{status:#}");
    assert_eq!(status["inbox"].as_array().map(Vec::len), Some(1), "{status:#}");
    let shown = scene.expect(0, &["questions"]).stdout;
    assert!(shown.contains("repeats the same step over and over"), "{shown}");
    scene.expect(0, &["answer", "L-T-1", "look at the lock file first"]);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T-1"]);
    assert_eq!(scene.status()["questions"].as_array().map(Vec::len), Some(0));
}

#[test]
fn an_agent_whose_program_is_missing_fails_at_once_and_says_why() {
    let scene = TestScene::new(BIN)
        .config("[run]\nagent = \"gone\"\n[agents.gone]\nkind = \"claude\"\nbinary = \"/nonexistent/claude\"\n")
        .plan("version = 1\n[[task]]\nid = \"T-1\"\ndescription = \"x\"\nretries = 5\n");
    scene.expect(2, &["run", "plan.toml", "--no-preflight"]);
    let task = scene.task("T-1");
    assert_eq!((&task["phase"], &task["attempt"]), (&"failed".into(), &1.into()), "{task:#}");
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("/nonexistent/claude was not found"), "{task:#}");
}
