//! Gates that look at files, review agents and people: what they say, and what becomes of the work.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, shell_plan};
use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PATIENCE: Duration = Duration::from_secs(90);

/// A reviewer in shell: notes that it looked, and answers with what the script prints.
fn reviewer(name: &str, scene: &TestScene, script: &str) -> String {
    let log = scene.outside("looked");
    format!(
        "[agents.{name}]\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", '''\n\
         echo {name} $MAINSTEM_TREE >> {}\n{script}\n''']\n",
        log.display()
    )
}

fn answer(verdict: &str, findings: &str) -> String {
    format!("{{\"verdict\": \"{verdict}\", \"findings\": [{findings}]}}")
}

const BUG: &str = "{\"severity\": \"high\", \"category\": \"bug\", \"file\": \"x.txt\", \"line\": 1, \
     \"description\": \"it says BAD\", \"suggestion\": \"say good\"}";

/// Finds fault with `BAD` in x.txt.
fn strict() -> String {
    format!(
        "if grep -q BAD x.txt; then echo '{}' > $MAINSTEM_OUTPUT; else echo '{}'; fi",
        answer("CHANGES_NEEDED", BUG),
        answer("APPROVED", "")
    )
}

/// Work that is bad at first and good once it was told.
const MENDS: &str = "if grep -q 'it says BAD' $MAINSTEM_PROMPT; then cat x.txt >> seen.txt; echo good > x.txt; \
     else echo BAD > x.txt; fi";

fn verdicts(scene: &TestScene) -> Vec<String> {
    let ended = scene.facts_of("review_ended");
    ended.iter().map(|fact| fact["verdict"].as_str().unwrap_or_default().to_owned()).collect()
}

fn question(scene: &TestScene) -> Value {
    scene.status()["questions"][0].clone()
}

#[test]
fn what_a_reviewer_finds_goes_back_to_the_agent_and_lands_once_it_is_mended() {
    let scene = TestScene::new(BIN);
    let agent = reviewer("strict", &scene, &strict());
    let scene = scene
        .config(&format!("[run]\nretries = 0\n[review]\nagents = [\"strict\"]\n{agent}"))
        .plan(&shell_plan(&[("T-1", MENDS, "")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "landed")]);
    assert_eq!(verdicts(&scene), ["CHANGES_NEEDED", "APPROVED"]);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("good\n"));
    // The second attempt began with the work that was looked at.
    assert_eq!(scene.repo().show("main", "seen.txt").as_deref(), Some("BAD\n"));
    let shown = scene.expect(0, &["show", "T-1"]).stdout;
    assert!(shown.contains("CHANGES_NEEDED") && shown.contains("x.txt:1 (bug)"), "{shown}");
    let json: Value =
        serde_json::from_str(&scene.expect(0, &["show", "T-1", "--json"]).stdout).unwrap();
    assert_eq!(json["attempts"][0]["reviews"][0]["findings"][0]["severity"], "high", "{json:#}");
    assert_eq!(log_of(&scene.outside("looked")).lines().count(), 2);
    scene.assert_nothing_left();
}

#[test]
fn after_the_last_cycle_the_task_rests_with_the_reason() {
    let scene = TestScene::new(BIN);
    let agent = reviewer("strict", &scene, &strict());
    let work = "echo BAD $MAINSTEM_ATTEMPT > x.txt";
    let scene = scene
        .config(&format!("[run]\nretries = 0\n[review]\nagents = [\"strict\"]\n{agent}"))
        .plan(&shell_plan(&[("T-1", work, "")]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert_eq!((&task["phase"], &task["attempt"]), (&"failed".into(), &4.into()), "{task:#}");
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("after 3 review cycles") && reason.contains("it says BAD"), "{reason}");
    assert!(scene.landings("main").is_empty());
    scene.assert_nothing_left();
}

#[test]
fn a_tree_that_did_not_change_is_not_reviewed_again() {
    let scene = TestScene::new(BIN);
    let agent = reviewer("strict", &scene, &strict());
    let config = format!(
        "[run]\nretries = 0\n[review]\nagents = [\"strict\"]\nmax_cycles = 2\non_stuck = \"ask\"\n{agent}"
    );
    let scene = scene.config(&config).plan(&shell_plan(&[("T-1", "echo BAD > x.txt", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    assert_eq!(log_of(&scene.outside("looked")).lines().count(), 1, "paid for once");
    let asked = question(&scene);
    assert!(asked["question"].as_str().unwrap_or_default().contains("it says BAD"), "{asked:#}");
    let task = scene.task("T-1");
    assert_eq!(task["next_action"], "mainstem answer Q1 approve", "{task:#}");
    scene.expect(0, &["answer", "Q1", "approve"]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("T-1", "landed")]);
    assert_eq!(scene.facts_of("review_ended").last().unwrap()["by"], "person");
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_once_more_with_what_is_wrong() {
    let scene = TestScene::new(BIN);
    let script = format!(
        "cat > $MAINSTEM_TMP/prompt; if grep -q 'could not be used' $MAINSTEM_TMP/prompt; then echo '{}'; \
         else echo '{{\"verdict\": \"FINE\", \"findings\": []}}'; fi",
        answer("APPROVED", "")
    );
    let agent = reviewer("sloppy", &scene, &script);
    let scene = scene
        .config(&format!("[review]\nagents = [\"sloppy\"]\n{agent}"))
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "landed")]);
    assert_eq!(log_of(&scene.outside("looked")).lines().count(), 2);
}

#[test]
fn a_reviewer_that_crashes_does_not_stop_the_others_and_nothing_lands_by_it() {
    let scene = TestScene::new(BIN);
    let bad = reviewer("broken", &scene, "kill -9 $$");
    let good = reviewer("kind", &scene, &format!("echo '{}'", answer("APPROVED", "")));
    let scene = scene
        .config(&format!("[review]\nagents = [\"broken\", \"kind\"]\n{bad}{good}"))
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    assert!(scene.landings("main").is_empty());
    assert_eq!(verdicts(&scene), ["CHANGES_NEEDED"]);
    let outcomes: Vec<Value> =
        scene.facts_of("reviewer_ended").iter().map(|fact| fact["outcome"].clone()).collect();
    assert!(
        outcomes.contains(&"failed".into()) && outcomes.contains(&"said".into()),
        "{outcomes:?}"
    );
    // Nobody named anything to mend: a person decides, and may ask for another look.
    scene.expect(0, &["answer", "Q1", "reject: not without a second pair of eyes"]);
    let task = scene.task("T-1");
    assert_eq!(task["phase"], "ready", "{task:#}");
}

#[test]
fn a_review_survives_the_engine_and_is_paid_for_once() {
    let scene = TestScene::new(BIN);
    let gate = scene.outside("go");
    let script = format!(
        "echo '{{\"mainstem\":\"usage\",\"input_tokens\":1,\"output_tokens\":1,\"cost_usd\":0.5}}'; \
         until [ -e {} ]; do sleep 0.05; done; echo '{}'",
        gate.display(),
        answer("APPROVED", "")
    );
    let agent = reviewer("slow", &scene, &script);
    let scene = scene
        .config(&format!("[review]\nagents = [\"slow\"]\n{agent}"))
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "the reviewer", || !log_of(&scene.outside("looked")).is_empty());
    running.kill9();
    assert!(scene.landings("main").is_empty(), "nothing lands unreviewed");
    fs::write(&gate, "").unwrap();
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("T-1", "landed")]);
    assert_eq!(log_of(&scene.outside("looked")).lines().count(), 1, "asked once");
    let cost = scene.task("T-1")["cost_usd"].as_f64().unwrap_or_default();
    assert!((cost - 0.5).abs() < 1e-9, "{cost}");
    scene.assert_nothing_left();
}

/// One task and a reviewer who is content.
fn content() -> TestScene {
    let scene = TestScene::new(BIN);
    let agent = reviewer("kind", &scene, &format!("echo '{}'", answer("APPROVED", "")));
    scene.config(&format!("[review]\nagents = [\"kind\"]\n{agent}")).plan(&shell_plan(&[(
        "T-1",
        "echo x > x.txt",
        "",
    )]))
}

#[test]
fn dying_at_every_step_of_a_review_lands_the_work_once_and_reviewed() {
    let dry = content();
    let log = dry.outside("points");
    let wish = [("MAINSTEM_CRASH_LOG", log.to_str().unwrap())];
    dry.spawn_with(&["run", "plan.toml"], &wish).wait().expect_code(0);
    let points = log_of(&log);
    let number = |name: &str| -> u64 {
        let line = points.lines().find(|line| line.ends_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} in {points}"));
        line.split(' ').next().unwrap().parse().unwrap()
    };
    for at in number("review.checked_out") - 2..=number("review.ran") + 2 {
        let scene = content();
        let died = scene
            .spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_AT", &at.to_string())])
            .wait();
        assert_eq!(died.code, 137, "{at}: {}", died.stderr);
        assert!(scene.landings("main").is_empty(), "{at}: it died before");
        scene.expect(0, &["run"]);
        scene.assert_each_lands_once(&["T-1"]);
        assert_eq!(log_of(&scene.outside("looked")).lines().count(), 1, "{at}: asked once");
        scene.assert_nothing_left();
    }
}

#[test]
fn conditions_excuse_reviewers_and_a_rate_limited_one_waits() {
    let scene = TestScene::new(BIN);
    let told = scene.outside("told");
    let script = format!(
        "if [ ! -e {0} ]; then touch {0}; echo '{{\"mainstem\":\"rate_limited\",\"retry_after\":1}}'; exit 1; fi; \
         echo '{1}'",
        told.display(),
        answer("APPROVED", "")
    );
    let agent = reviewer("kind", &scene, &script);
    let config = format!(
        "[review]\nagents = [\"kind\", \"devops\", \"simplifier\"]\n\
         [reviewers.devops]\nagent = \"kind\"\npaths = [\".github/**\"]\n\
         [reviewers.simplifier]\nagent = \"kind\"\nmin_lines = 50\n{agent}"
    );
    let scene = scene.config(&config).plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "landed")]);
    let ended = scene.facts_of("reviewer_ended");
    let of = |name: &str| -> Vec<&str> {
        let his = ended.iter().filter(|fact| fact["reviewer"] == name);
        his.filter_map(|fact| fact["outcome"].as_str()).collect()
    };
    assert_eq!(of("kind"), ["limited", "said"]);
    assert_eq!((of("devops"), of("simplifier")), (vec!["skipped"], vec!["skipped"]));
    assert_eq!(scene.facts_of("provider_limited").len(), 1);
}

#[test]
fn nothing_that_a_reviewer_writes_lands() {
    let scene = TestScene::new(BIN);
    let script = format!(
        "echo litter > litter.txt; echo worse > x.txt; git commit -qam mine 2>/dev/null; echo '{}'",
        answer("APPROVED", "")
    );
    let agent = reviewer("messy", &scene, &script);
    let scene = scene
        .config(&format!("[review]\nagents = [\"messy\"]\n{agent}"))
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("x\n"));
    assert_eq!(scene.repo().show("main", "litter.txt"), None);
    scene.assert_nothing_left();
}

const APPROVED_BY_A_PERSON: &str =
    "verify = [\"test -e x.txt\", { kind = \"approval\", text = \"Is x right?\" }]";

#[test]
fn work_waits_for_a_person_rests_and_lands_once_it_is_approved() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", "echo x > x.txt", APPROVED_BY_A_PERSON),
        ("T-2", "echo y > y.txt", ""),
    ]));
    let said = scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "merging"), ("T-2", "landed")]);
    assert!(said.stdout.contains("mainstem answer Q1 approve"), "{}", said.stdout);
    let asked = question(&scene);
    assert!(asked["question"].as_str().unwrap_or_default().contains("Is x right?"), "{asked:#}");
    assert_eq!(scene.task("T-1")["waiting_for"][0], "Q1");
    // Whatever is not a plain yes is none.
    scene.expect(1, &["answer", "Q1", "perhaps"]);
    scene.expect(2, &["run"]);
    scene.expect(0, &["answer", "Q1", "approve"]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("T-1", "landed")]);
    assert_eq!(scene.facts_of("question_asked").len(), 1, "asked once");
    scene.assert_nothing_left();
}

#[test]
fn a_rejection_goes_to_the_agent_and_other_work_is_asked_about_again() {
    let work = "if grep -q 'too short' $MAINSTEM_PROMPT; then echo longer >> x.txt; else echo x > x.txt; fi";
    let scene = TestScene::new(BIN).config("[run]\nretries = 0\n").plan(&shell_plan(&[(
        "T-1",
        work,
        APPROVED_BY_A_PERSON,
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["answer", "Q1", "reject: too short"]);
    scene.expect(2, &["run"]);
    scene.assert_phases(&[("T-1", "merging")]);
    assert_eq!(question(&scene)["id"], "Q2", "other work is another question");
    scene.expect(0, &["answer", "Q2", "1"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("x\nlonger\n"));
    scene.assert_nothing_left();
}

#[test]
fn nobody_is_asked_to_approve_what_a_gate_refuses_on_the_merged_tree() {
    let gates =
        "[gates]\nverify = [\"@query metrics.json coverage >= 80\", \"@approval Is it right?\"]\n";
    let scene =
        TestScene::new(BIN).config(&format!("[run]\nretries = 0\n{gates}")).plan(&shell_plan(&[
            ("LOW", "echo '{\"coverage\": 70}' > metrics.json", ""),
            ("GOOD", "echo '{\"coverage\": 80}' > metrics.json", "after = [\"LOW\"]"),
        ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("LOW", "failed"), ("GOOD", "merging")]);
    let asked = scene.facts_of("question_asked");
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert_eq!(asked[0]["task"], "GOOD");
    let text = asked[0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Is it right? The checks passed on the merged tree."), "{text}");
    let task = scene.task("GOOD");
    assert_eq!(task["waiting_for"][0], "Q1", "{task:#}");
    assert_eq!(task["next_action"], "mainstem diff GOOD, then mainstem answer Q1 approve");
    // Whoever moves the branch meanwhile changes nothing about the approval, and all is verified again.
    scene.repo().commit("by hand", &[("README.md", "more\n")]);
    scene.expect(0, &["answer", "Q1", "approve"]);
    scene.expect(2, &["run"]);
    scene.assert_phases(&[("LOW", "failed"), ("GOOD", "landed")]);
    assert_eq!(scene.facts_of("question_asked").len(), 1, "asked once");
}

#[test]
fn an_approval_that_comes_too_late_is_none() {
    let gate = "verify = [{ kind = \"approval\", within = \"1s\" }]";
    let scene = TestScene::new(BIN).config("[gates]\nwait = \"always\"\n").plan(&shell_plan(&[(
        "T-1",
        "echo x > x.txt",
        gate,
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert_eq!(task["phase"], "blocked", "{task:#}");
    assert!(
        task["reason"].as_str().unwrap_or_default().contains("no approval before the deadline"),
        "{task:#}"
    );
    assert!(scene.landings("main").is_empty());
    scene.expect(1, &["answer", "Q1", "approve"]);
}

#[test]
fn a_run_that_waits_goes_on_when_somebody_approves() {
    let scene = TestScene::new(BIN)
        .config("[gates]\nwait = \"always\"\nverify = [\"@approval\"]\n")
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "the question", || question(&scene)["id"] == "Q1");
    scene.expect(0, &["answer", "Q1", "approve"]);
    running.wait().expect_code(0);
    scene.assert_phases(&[("T-1", "landed")]);
}

#[test]
fn gates_that_look_at_files_judge_the_tree_and_run_nothing() {
    let scene = TestScene::new(BIN)
        .config(
            "[run]\nretries = 0\n[gates]\nverify = [\"@content_absent **/*.txt => SECRET\", \
             { kind = \"query\", path = \"quality.json\", query = \"coverage\", compare = \">=\", value = 80 }]\n",
        )
        .plan(&shell_plan(&[
            ("GOOD", "echo '{\"coverage\": 81}' > quality.json; echo x > a.txt", "verify = [\"@file_exists *.txt\"]"),
            ("LOW", "echo '{\"coverage\": 79}' > quality.json; echo x > b.txt", "after = [\"GOOD\"]"),
            ("LEAK", "echo SECRET > c.txt", "after = [\"GOOD\", \"LOW\"]"),
            ("NONE", "echo x > d.md", "verify = [\"@file_exists docs/**\"]\nafter = [\"GOOD\", \"LOW\", \"LEAK\"]"),
        ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[
        ("GOOD", "landed"),
        ("LOW", "failed"),
        ("LEAK", "failed"),
        ("NONE", "failed"),
    ]);
    scene.assert_nothing_left();
}

#[test]
fn a_query_on_a_missing_file_is_no_pass_and_a_wrong_gate_is_refused_before_anything_starts() {
    let scene = TestScene::new(BIN).config("[run]\nretries = 0\n").plan(&shell_plan(&[(
        "T-1",
        "echo x > x.txt",
        "verify = [\"@query missing.yaml a.b == 1\"]",
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    let gate = &scene.facts_of("gate_ran")[0];
    assert_eq!(gate["verdict"], "error", "{gate:#}");
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T-1",
        "true",
        "verify = [\"@file_exist x\", { kind = \"query\" }]",
    )]));
    let said = scene.expect(1, &["run", "plan.toml"]).stderr;
    assert!(
        said.contains("@file_exist") && said.contains("missing `path` in a check of kind `query`"),
        "{said}"
    );
    assert!(scene.landings("main").is_empty());
}

#[test]
fn gate_files_of_both_forms_are_imported_and_hold() {
    let checks = "name: security\nchecks:\n  phase_5:\n    mandatory:\n      - name: no keys\n        \
        check_type: content_search\n        path_pattern: '**/*.txt'\n        patterns: [AKIA]\n        expected_count: 0\n";
    let passage = "gate_name: 5-to-6\nrequired_artifacts:\n  - type: notes\n    path_pattern: '*.txt'\nhuman_approval:\n  \
        required: true\n  roles: [lead]\n  timeout_hours: 48\n";
    let scene = TestScene::new(BIN);
    scene.repo().commit(
        "gates",
        &[("security.yml", checks), ("passage.yml", passage), ("base.txt", "b\n")],
    );
    let first = scene.expect(0, &["gates", "import", "security.yml"]);
    assert!(first.stdout.contains("@content_absent **/*.txt => AKIA"), "{}", first.stdout);
    let second = scene.expect(0, &["gates", "import", "passage.yml"]);
    assert!(second.stdout.contains("@approval within 2d for lead"), "{}", second.stdout);
    let json: Value = serde_json::from_str(
        &scene.expect(0, &["gates", "import", "passage.yml", "--json"]).stdout,
    )
    .unwrap();
    assert_eq!(json["verify"][0], "@file_exists *.txt", "{json:#}");
    let scene = scene
        .config(&format!("[run]\nretries = 0\n{}", first.stdout))
        .plan(&shell_plan(&[("T-1", "echo AKIA > x.txt", ""), ("T-2", "echo y > y.txt", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "failed"), ("T-2", "landed")]);
}
