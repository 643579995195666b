//! What people see: screens of real runs, 80 columns wide. A failure says why, with its evidence and the command that
//! helps, in every place where somebody would look for it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestCommandOutput, TestScene, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PATIENCE: Duration = Duration::from_secs(60);

/// A scene whose screens are 80 columns wide.
fn narrow() -> TestScene {
    TestScene::new(BIN).env("COLUMNS", "80")
}

#[track_caller]
fn assert_fits(screen: &str) {
    for line in screen.lines() {
        assert!(line.chars().count() <= 80, "{} wide: {line}\n{screen}", line.chars().count());
    }
}

#[track_caller]
fn assert_says(screen: &str, words: &[&str]) {
    let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in words {
        assert!(flat.contains(wanted), "{wanted:?} is missing in:\n{screen}");
    }
}

fn status(scene: &TestScene) -> Value {
    serde_json::from_str(&scene.expect(0, &["status", "--json"]).stdout).unwrap()
}

/// One task lands, one fails its check on the merged tree, and others need that one.
fn with_a_red_check(dependents: usize) -> (TestScene, TestCommandOutput) {
    let check = "test ! -e api.txt || { echo ok 1; echo 'assertion failed: total == 3'; exit 3; }";
    let mut tasks = vec![
        ("schema".to_owned(), "echo s > schema.txt".to_owned(), String::new()),
        ("api".to_owned(), "echo a > api.txt".to_owned(), "retries = 0".to_owned()),
    ];
    for n in 0..dependents {
        let needs = "needs = [\"api\"]".to_owned();
        tasks.push((format!("docs-{n:02}"), "echo d > d.txt".to_owned(), needs));
    }
    let tasks: Vec<(&str, &str, &str)> =
        tasks.iter().map(|(id, run, rest)| (id.as_str(), run.as_str(), rest.as_str())).collect();
    let scene =
        narrow().config(&format!("[gates]\nverify = ['''{check}''']\n")).plan(&shell_plan(&tasks));
    let run = scene.expect(2, &["run", "plan.toml", "-j", "1"]);
    (scene, run)
}

#[test]
fn a_failed_check_shows_its_output_and_the_next_command_everywhere() {
    let (scene, run) = with_a_red_check(1);
    let screens = [
        run.stdout.clone(),
        scene.expect(0, &["status"]).stdout,
        scene.expect(0, &["show", "api"]).stdout,
    ];
    for screen in &screens {
        assert_fits(screen);
        assert!(screen.contains("│ assertion failed: total == 3"), "{screen}");
        assert_says(screen, &["exit 3", "mainstem logs api"]);
    }
    let (_, summary) = run.stdout.split_once("1 landed, 1 failed, 1 blocked").unwrap();
    assert_fits(&run.stderr);
    assert_says(&run.stderr, &["✓ schema landed", "✗ api check failed", "exit 3, on main + api"]);
    assert!(summary.lines().next().unwrap().ends_with("exit code 2"), "{summary}");
    assert!(summary.contains("│ assertion failed: total == 3"), "{summary}");
    assert_says(
        summary,
        &[
            "blocks docs-00",
            "mainstem shell api",
            "mainstem retry api -m \"…\"",
            "mainstem skip api",
        ],
    );
    let check = &scene.task("api")["failed_check"];
    assert_eq!((&check["cause"], &check["exit_code"]), (&"failed".into(), &3.into()), "{check}");
    assert_eq!(check["place"], "on main + api");
    let gates = scene.facts_of("gate_ran");
    let red = gates.iter().find(|fact| fact["verdict"] == "failed").unwrap();
    assert_eq!((&red["exit_code"], &red["cause"]["kind"]), (&3.into(), &"failed".into()), "{red}");
}

#[test]
fn blocked_tasks_are_grouped_under_their_cause_and_never_counted_as_failed() {
    let (scene, run) = with_a_red_check(12);
    assert_fits(&run.stdout);
    let summary = run.stdout.split_once("1 landed, 1 failed, 12 blocked").unwrap().1;
    assert_says(summary, &["docs-05 and 6 more (12 tasks)"]);
    assert!(!summary.contains("docs-06"), "{summary}");
    let shown = scene.expect(0, &["status"]).stdout;
    assert_fits(&shown);
    assert_says(&shown, &["12 blocked by api"]);
    let all = scene.expect(0, &["status", "-v"]).stdout;
    assert_says(&all, &["docs-11", "api failed"]);
}

#[test]
fn a_missing_program_is_named_and_the_branch_is_not_to_be_repaired() {
    let scene = narrow()
        .config("[gates]\nverify = [\"nosuchtool --all\"]\n")
        .plan(&shell_plan(&[("a", "echo a > a.txt", ""), ("b", "echo b > b.txt", "")]));
    let run = scene.expect(2, &["run", "plan.toml"]);
    let shown = scene.expect(0, &["status"]).stdout;
    for screen in [&run.stdout, &shown] {
        assert_fits(screen);
        assert_says(
            screen,
            &[
                "nosuchtool: not found",
                "install nosuchtool, or change the command in [gates] verify",
            ],
        );
        assert!(!screen.contains("repair"), "{screen}");
    }
    assert_says(&run.stdout, &["on main itself", "command not found: nosuchtool", "holds up a, b"]);
    let status = status(&scene);
    assert_eq!(status["red_target"]["cause"], "command_not_found", "{status:#}");
    let next = scene.task("a")["next_action"].as_str().unwrap().to_owned();
    assert!(next.starts_with("install nosuchtool") && next.ends_with("mainstem run"), "{next}");
    let lessons = scene.expect(0, &["lessons"]);
    assert!(!lessons.stdout.contains("nosuchtool"), "nothing to learn: {}", lessons.stdout);
}

#[test]
fn packages_that_are_not_installed_ask_for_a_setup_step() {
    let scene = narrow();
    scene.repo().commit("package", &[("package.json", "{}"), ("package-lock.json", "{}")]);
    let gate = "echo \"Error: Cannot find module 'mocha'\" >&2; exit 1";
    let scene = scene
        .config(&format!("[gates]\nverify = ['''{gate}''']\n"))
        .plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let run = scene.expect(2, &["run", "plan.toml"]);
    assert_fits(&run.stdout);
    assert_says(&run.stdout, &["missing dependency: mocha", "[workspace] setup = [\"npm ci\"]"]);
}

#[test]
fn a_write_that_the_sandbox_refuses_says_what_to_allow() {
    for kind in ["bwrap", "landlock"] {
        let scene = narrow().walled(kind);
        let home = scene.outside("home");
        std::fs::create_dir_all(home.join(".local/share/foo")).unwrap();
        let scene = scene
            .env("HOME", &home)
            .config("[gates]\nverify = [\"touch ~/.local/share/foo/lock\"]\n")
            .plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
        let run = scene.mainstem(&["run", "plan.toml"]);
        if run.stderr.contains("does not work here") {
            continue;
        }
        assert_eq!(run.code, 2, "{run:?}");
        assert_says(
            &run.stdout,
            &[
                "blocked by the sandbox: write to ~/.local/share/foo/lock",
                "allow this path: [sandbox] write = [\"~/.local/share/foo\"]",
            ],
        );
    }
}

#[test]
fn what_was_not_started_says_why_and_what_to_type() {
    let money = r#"echo '{"mainstem":"usage","input_tokens":1,"output_tokens":1,"cost_usd":6.0}'; echo 1 > 1.txt"#;
    let scene = narrow()
        .config("[budget]\nusd = 10.0\n")
        .plan(&shell_plan(&[("a", money, ""), ("b", "echo b > b.txt", "needs = [\"a\"]")]));
    let run = scene.expect(2, &["run", "plan.toml", "-j", "1"]);
    assert_fits(&run.stdout);
    let task = scene.task("b");
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("over budget: $6.00 of $10.00 spent"), "{task:#}");
    assert_eq!(task["next_action"], "mainstem config set budget.usd 20, then mainstem run");
    assert_says(&run.stdout, &["b not started: over budget"]);

    let scene = narrow().config("[run]\non_failure = \"drain\"\n").plan(&shell_plan(&[
        ("a", "exit 1", "retries = 0\npriority = 9"),
        // It takes the slot of the first before that one is judged.
        ("b", "sleep 0.5; echo b > b.txt", "priority = 5"),
        ("c", "echo c > c.txt", ""),
    ]));
    let run = scene.expect(2, &["run", "plan.toml", "-j", "1"]);
    assert_says(&run.stdout, &["c not started: a failed and run.on_failure = \"drain\""]);
    assert_eq!(scene.task("c")["next_action"], "mainstem run starts the remaining tasks");
}

#[test]
fn the_summary_goes_to_standard_output_and_progress_and_warnings_to_standard_error() {
    let scene = narrow().plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let run = scene.expect(0, &["run", "plan.toml"]);
    assert_says(&run.stdout, &["Running plan.toml", "1 landed in"]);
    assert!(!run.stdout.contains("started"), "{}", run.stdout);
    assert_says(&run.stderr, &["● a command started", "✓ a landed"]);
    assert_says(&run.stderr, &["warning: no checks are set", "warning: the sandbox is off"]);
    let again = narrow().plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let detached = again.expect(0, &["run", "plan.toml", "--detach"]);
    assert_says(&detached.stderr, &["warning: no checks are set", "warning: the sandbox is off"]);
}

#[test]
fn a_locale_without_unicode_gets_plain_signs() {
    let scene = narrow().env("LC_ALL", "C").plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let run = scene.expect(0, &["run", "plan.toml"]);
    assert!(run.stdout.is_ascii() && run.stderr.is_ascii(), "{}{}", run.stdout, run.stderr);
    assert_says(&run.stderr, &["+ a landed"]);
    let shown = scene.expect(0, &["status"]).stdout;
    assert!(shown.is_ascii(), "{shown}");
}

#[test]
fn a_running_check_is_seen_followed_and_timed() {
    let scene = narrow();
    let go = scene.outside("go");
    let gate =
        format!("echo halfway; until [ -e {} ]; do sleep 0.02; done; echo through", go.display());
    let scene = scene
        .config(&format!("[gates]\nverify = ['''{gate}''']\n"))
        .plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let engine = scene.spawn(&["run", "plan.toml", "-j", "4"]);
    wait_until(PATIENCE, "the check is seen", || {
        status(&scene)["gates"].as_array().is_some_and(|gates| gates.len() == 1)
    });
    let seen = status(&scene);
    assert_eq!(seen["gates"][0]["task"], "a", "{seen:#}");
    assert_eq!(seen["jobs"], 4, "as many as the run was started with: {seen:#}");
    let shown = scene.expect(0, &["status"]).stdout;
    assert_fits(&shown);
    assert_says(&shown, &["check echo halfway", "mainstem logs a --gates -f", "4 at a time"]);
    let follow = scene.spawn(&["logs", "a", "--gates", "-f"]);
    let everything = scene.spawn(&["logs", "-f"]);
    wait_until(PATIENCE, "the output is followed while it runs", || {
        follow.stdout().contains("halfway\n") && everything.stdout().contains("| halfway")
    });
    std::fs::write(&go, "").unwrap();
    assert_eq!(engine.wait().code, 0);
    assert!(follow.wait().stdout.contains("through"));
    assert!(everything.wait().stdout.contains("| through"));
}

#[test]
fn logs_have_no_protocol_lines_and_without_a_task_show_all() {
    let say = |word: &str| {
        format!(r#"echo '{{"mainstem":"progress","text":"x"}}'; echo {word}; echo x > {word}.txt"#)
    };
    let (one, two) = (say("first"), say("second"));
    let scene = narrow().plan(&shell_plan(&[("a", &one, ""), ("b", &two, "needs = [\"a\"]")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.expect(0, &["logs", "a"]).stdout, "first\n");
    assert!(scene.expect(0, &["logs", "a", "--raw"]).stdout.contains("\"mainstem\""));
    let all = scene.expect(0, &["logs"]).stdout;
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(
        lines,
        ["a            | first", "b            | second"],
        "by time, each with its task"
    );
}

#[test]
fn looking_works_while_the_settings_have_a_mistake() {
    let scene = narrow().plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    std::fs::write(scene.repo().path().join("mainstem.toml"), "[run]\njobz = 3\n").unwrap();
    for args in
        [&["status"][..], &["logs", "a"], &["show", "a"], &["history"], &["cost"], &["diff", "a"]]
    {
        let said = scene.expect(0, args);
        assert!(
            said.stderr.contains("warning") && said.stderr.contains("jobz"),
            "{args:?}: {said:?}"
        );
    }
    scene.expect(1, &["run"]);
}

#[test]
fn an_interrupt_says_what_it_does_and_what_a_second_one_would() {
    let scene = narrow().plan(&shell_plan(&[("a", "sleep 600", "")]));
    let mut engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("a", "working");
    engine.signal(Signal::INT);
    let run = engine.wait();
    assert_eq!(run.code, 3, "{run:?}");
    assert_says(&run.stderr, &["Stopping: nothing new starts", "Ctrl-C again to kill"]);
    assert_says(&run.stderr, &["Interrupted. Work is kept; to continue: mainstem run"]);
}

#[test]
fn small_words_are_right() {
    let version = TestScene::new(BIN).expect(0, &["--version", "--json"]).stdout;
    let version: Value = serde_json::from_str(&version).unwrap();
    assert!(version["version"].is_string(), "{version}");
    let scene = narrow().plan(&shell_plan(&[("a", "echo a > a.txt", "")]));
    let dry = scene.expect(0, &["run", "plan.toml", "--dry-run"]).stdout;
    assert!(dry.contains("ready") && !dry.contains("preparing"), "{dry}");
    for args in [&["config"][..], &["doctor"]] {
        let said = scene.mainstem(args);
        assert_fits(&said.stdout);
    }
}
