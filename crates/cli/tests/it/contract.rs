//! The shapes that scripts rely on: every promised field of `status --json`, with its type, in every state of a run.

#![expect(clippy::unwrap_used, reason = "tests")]

use mainstem_testkit::TestScene;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// What a field may be: each letter is a type, `t` a time in RFC 3339, `n` null.
fn fits(value: &Value, kinds: &str) -> bool {
    let is_time = |text: &str| mainstem_api::time::from_rfc3339(text).is_some();
    kinds.chars().any(|kind| match kind {
        's' => value.is_string(),
        't' => value.as_str().is_some_and(is_time),
        'i' => value.is_u64(),
        'f' => value.is_number(),
        'b' => value.is_boolean(),
        'l' => value.is_array(),
        'o' => value.is_object(),
        'n' => value.is_null(),
        other => panic!("no type {other}"),
    })
}

#[track_caller]
fn has(value: &Value, fields: &[(&str, &str)]) {
    for (name, kinds) in fields {
        let field = value.get(name).unwrap_or_else(|| panic!("no `{name}`: {value:#}"));
        assert!(fits(field, kinds), "`{name}` is none of `{kinds}`: {value:#}");
    }
}

const RUN: &[(&str, &str)] = &[
    ("run", "s"),
    ("state", "s"),
    ("jobs", "i"),
    ("tasks", "l"),
    ("train", "l"),
    ("questions", "l"),
    ("limits", "l"),
    ("totals", "o"),
    ("inbox", "l"),
    ("seq", "i"),
    ("at", "t"),
    ("title", "s"),
    ("target", "s"),
    ("epics", "l"),
    ("budget", "o"),
    ("eta", "o"),
    ("hosts", "l"),
];

const TASK: &[(&str, &str)] = &[
    ("id", "s"),
    ("title", "s"),
    ("phase", "s"),
    ("attempt", "i"),
    ("agent", "sn"),
    ("model", "sn"),
    ("branch", "sn"),
    ("workspace", "sn"),
    ("pid", "in"),
    ("started_at", "tn"),
    ("waiting_for", "l"),
    ("cost_usd", "fn"),
    ("commit", "sn"),
    ("next_action", "sn"),
    ("needs", "l"),
    ("after", "l"),
    ("since", "t"),
    ("waiting_why", "sn"),
    ("critical", "b"),
    ("expected_end", "tn"),
    ("progress", "on"),
    ("insertions", "in"),
    ("deletions", "in"),
    ("files", "in"),
    ("host", "sn"),
];

const ITEM: &[(&str, &str)] = &[
    ("id", "s"),
    ("kind", "s"),
    ("task", "sn"),
    ("text", "s"),
    ("options", "l"),
    ("holds_up", "l"),
    ("critical", "b"),
    ("since", "t"),
    ("deadline", "tn"),
    ("default", "sn"),
];

const HOST: &[(&str, &str)] = &[
    ("host", "s"),
    ("state", "s"),
    ("slots", "i"),
    ("used", "i"),
    ("lanes", "i"),
    ("labels", "l"),
    ("agents", "l"),
    ("seen_at", "t"),
    ("incarnation", "i"),
];

#[track_caller]
fn promised(status: &Value, state: &str) {
    assert_eq!(status["state"], state, "{status:#}");
    has(status, RUN);
    for task in status["tasks"].as_array().unwrap() {
        has(task, TASK);
    }
    for item in status["inbox"].as_array().unwrap() {
        has(item, ITEM);
    }
    assert_eq!(status["hosts"].as_array().unwrap().len(), 1);
    has(&status["hosts"][0], HOST);
    has(&status["eta"], &[("at", "tn"), ("critical_path", "l"), ("basis", "sn")]);
    let money = [("usd", "fn"), ("hard", "b"), ("spent_usd", "f"), ("forecast_usd", "fn")];
    has(&status["budget"], &money);
}

/// A task that landed, one that works until it is let go, one that waits for it, and one that asks.
fn plan(go: &str) -> String {
    format!(
        r#"
version = 1
title = "Todo service"

[[epic]]
id = "E-1"
title = "Storage"

[[task]]
id = "first"
epic = "E-1"
title = "First"
script = [
  {{ usage = {{ input_tokens = 1, output_tokens = 1, cost_usd = 0.123456 }} }},
  {{ write = "a.txt", text = "one\ntwo\n" }},
]

[[task]]
id = "works"
title = "Works"
needs = ["first"]
run = "until [ -e {go} ]; do sleep 0.02; done; echo x > works.txt"

[[task]]
id = "waits"
title = "Waits"
needs = ["works"]
after = ["first"]
run = "echo x > waits.txt"

[[task]]
id = "asks"
title = "Asks"
script = [{{ ask = "Which?", options = ["a", "b"] }}, {{ write = "asks.txt", text = "x" }}]
"#
    )
}

#[test]
fn status_has_every_promised_field_while_running_paused_crashed_and_resting() {
    let scene = TestScene::new(BIN).config("[budget]\nusd = 10.0\n");
    let go = scene.outside("go");
    let scene = scene.plan(&plan(&go.display().to_string()));
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("works", "working");
    scene.wait_for_phase("asks", "asking");

    let status = scene.status();
    promised(&status, "running");
    assert_eq!((&status["title"], &status["target"]), (&"Todo service".into(), &"main".into()));
    assert_eq!(status["epics"][0]["id"], "E-1");
    assert_eq!(status["eta"]["critical_path"], serde_json::json!(["works", "waits"]));
    assert!(status["eta"]["at"].is_string(), "{status:#}");
    assert_eq!(status["budget"]["spent_usd"], 0.1235);
    assert_eq!(status["hosts"][0]["used"], 1, "an agent that asks leaves its slot to others");
    let item = &status["inbox"][0];
    assert_eq!((&item["kind"], &item["task"]), (&"question".into(), &"asks".into()));
    let first = scene.task("first");
    assert_eq!((&first["files"], &first["insertions"]), (&1.into(), &2.into()), "{first:#}");
    assert_eq!((&first["deletions"], &first["cost_usd"]), (&0.into(), &0.1235.into()));
    let waits = scene.task("waits");
    let edges = serde_json::json!([["works"], ["first"]]);
    assert_eq!(serde_json::json!([waits["needs"], waits["after"]]), edges);
    assert_eq!((&waits["waiting_why"], &waits["critical"]), (&"needs".into(), &true.into()));
    assert!(waits["expected_end"].as_str() >= scene.task("works")["expected_end"].as_str());
    assert_eq!(scene.task("asks")["waiting_why"], "person");
    let last = scene.facts().last().unwrap()["seq"].as_u64().unwrap();
    assert!(status["seq"].as_u64().unwrap() <= last && last > 0);

    scene.expect(0, &["pause"]);
    promised(&scene.status(), "paused");
    engine.kill9();
    scene.expect(0, &["resume"]);
    promised(&scene.status(), "crashed");
    std::fs::write(&go, "").unwrap();
    scene.expect(0, &["answer", status["questions"][0]["id"].as_str().unwrap(), "a"]);
    scene.expect(0, &["run"]);
    let status = scene.status();
    promised(&status, "resting");
    assert!(status["eta"]["at"].is_null() && status["hosts"][0]["used"] == 0, "{status:#}");
}

#[test]
fn facts_say_when_in_rfc_3339_and_money_in_four_places() {
    let plan = r#"
version = 1
[[task]]
id = "a"
retries = 0
script = [
  { usage = { input_tokens = 1, output_tokens = 1, cost_usd = 0.123456 } },
  { ask = "Which?", options = ["a", "b"] },
  { write = "a.txt", text = "x" },
]
"#;
    let config = "[questions]\ndefault = \"a\"\ndeadline = \"1s\"\n";
    let scene = TestScene::new(BIN).config(config).plan(plan);
    scene.expect(0, &["run", "plan.toml"]);
    let asked = &scene.facts_of("question_asked")[0];
    assert!(fits(&asked["deadline"], "t") && fits(&asked["at"], "t"), "{asked:#}");
    let used = &scene.facts_of("usage_reported")[0];
    assert!(used.to_string().contains("\"cost_usd\":0.1235,"), "{used:#}");
}

fn task(id: &str, run: &str) -> String {
    format!("[[task]]\nid = \"{id}\"\nretries = 0\nrun = \"{run}\"\n")
}

fn run_id(scene: &TestScene) -> String {
    scene.status()["run"].as_str().unwrap().to_owned()
}

#[test]
fn another_plan_after_the_end_begins_another_run_in_which_ids_may_return() {
    let scene = TestScene::new(BIN).plan(&format!("version = 1\n{}", task("A", "echo a > a.txt")));
    scene.expect(0, &["run", "plan.toml"]);
    let first = run_id(&scene);
    // The same file, with more in it, is the next revision.
    let more =
        format!("version = 1\n{}{}", task("A", "echo z > a.txt"), task("B", "echo b > b.txt"));
    let scene = scene.plan(&more);
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(run_id(&scene), first);
    assert_eq!(scene.repo().show("main", "a.txt").unwrap(), "a\n");
    // Another file is another plan.
    let other = format!("version = 1\n{}", task("A", "echo again > again.txt"));
    scene.repo().commit("other plan", &[("other.toml", &other)]);
    scene.expect(0, &["run", "other.toml"]);
    let second = run_id(&scene);
    assert_ne!(second, first);
    assert_eq!(scene.repo().show("main", "again.txt").unwrap(), "again\n");
    // Nothing has changed: there is nothing to do.
    scene.expect(0, &["run", "other.toml"]);
    assert_eq!(run_id(&scene), second);
    // Other tasks in the same file are another plan, too.
    let third = format!("version = 1\n{}", task("C", "echo c > c.txt"));
    std::fs::write(scene.repo().path().join("other.toml"), third).unwrap();
    scene.expect(0, &["run", "other.toml"]);
    assert_ne!(run_id(&scene), second);
}

#[test]
fn another_plan_before_the_end_is_the_next_revision() {
    let plan = format!("version = 1\n{}{}", task("A", "exit 1"), task("B", "echo b > b.txt"));
    let scene = TestScene::new(BIN).plan(&plan);
    scene.expect(2, &["run", "plan.toml"]);
    let first = run_id(&scene);
    let other = format!("version = 1\n{}", task("B", "echo b > b.txt"));
    scene.repo().commit("other plan", &[("other.toml", &other)]);
    let refused = scene.expect(1, &["run", "other.toml"]).stderr;
    for word in ["A", "--new", "mainstem cancel A"] {
        assert!(refused.contains(word), "no {word}: {refused}");
    }
    assert_eq!(run_id(&scene), first);
}

#[test]
fn work_that_does_not_merge_can_be_mended_in_its_workspace() {
    let plan = format!(
        "version = 1\n[[task]]\nid = \"X\"\npriority = 1\nrun = \"echo x > base.txt\"\n{}",
        task("Y", "[ -e mended.txt ] || echo y > base.txt; sleep 1")
    );
    let scene = TestScene::new(BIN).config("[land]\non_conflict = \"manual\"\n").plan(&plan);
    scene.repo().commit("base", &[("base.txt", "base\n")]);
    scene.expect(2, &["run", "plan.toml"]);
    assert_eq!(scene.phase("Y"), "conflicted");
    let mend = "cat base.txt; echo x > base.txt; echo mended > mended.txt; git add -A; \
                git -c user.name=p -c user.email=p@example.com commit -qm mend";
    let said = scene.expect(0, &["shell", "Y", "--", "sh", "-c", mend]);
    assert_eq!(said.stdout, "y\n");
    scene.expect(0, &["answer", "C-Y", "retry"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "mended.txt").unwrap(), "mended\n");
    assert!(scene.kept_workspaces().is_empty());
    // A person committed to the branch, so it is theirs.
    assert_eq!(scene.repo().show("mainstem/Y", "mended.txt").unwrap(), "mended\n");
}

#[test]
fn what_is_usually_ignored_lands_with_a_word() {
    let run =
        "mkdir -p node_modules/x; echo 1 > node_modules/x/a.js; echo K=v > .env; echo ok > ok.txt";
    let scene = TestScene::new(BIN).plan(&format!("version = 1\n{}", task("A", run)));
    let said = scene.expect(0, &["run", "plan.toml"]);
    let all = said.stdout + &said.stderr;
    assert!(all.contains("usually not committed: .env, node_modules"), "{all}");
}

#[test]
fn a_setting_of_this_call_that_is_unknown_is_an_error_everywhere() {
    let plan = format!("version = 1\n{}", task("A", "echo a > a.txt"));
    let scene = TestScene::new(BIN).plan(&plan);
    for args in [&["status"][..], &["config"], &["run", "plan.toml"], &["train"]] {
        let all: Vec<&str> = args.iter().copied().chain(["--config", "run.jobz=2"]).collect();
        let said = scene.expect(1, &all).stderr;
        assert!(said.contains("run.jobz") && said.contains("run.jobs"), "{args:?}: {said}");
    }
}
