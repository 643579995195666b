//! Before the first agent costs anything: what `run`, `doctor` and `plan check` see, and what `init` leaves.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mainstem_testkit::{TestRepo, TestScene, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

const ONE: &str = "version = 1\n[[task]]\nid = \"a\"\nrun = \"echo a > a.txt\"\n";

fn scene(config: &str) -> TestScene {
    TestScene::new(BIN).preflight().config(config).plan(ONE)
}

/// Nothing of a run is on record.
#[track_caller]
fn nothing_started(scene: &TestScene) {
    let output = scene.mainstem(&["status", "--json"]);
    let tasks = serde_json::from_str::<Value>(&output.stdout).ok();
    let tasks = tasks.and_then(|status| status["tasks"].as_array().map(Vec::len)).unwrap_or(0);
    assert_eq!(tasks, 0, "{}", output.stdout);
    assert!(!scene.repo().path().join("a.txt").exists());
}

#[test]
fn a_check_that_fails_on_the_target_stops_the_run_before_any_task_and_says_why() {
    let scene = scene("[gates]\nverify = [\"echo assertion failed: total == 3; exit 7\"]\n");
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    for part in
        ["fails on main before any task has run", "assertion failed: total == 3", "--allow-red"]
    {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    nothing_started(&scene);
    let doctor = scene.mainstem(&["doctor"]).expect_code(1);
    assert!(doctor.stdout.contains("assertion failed: total == 3"), "{}", doctor.stdout);
    scene.mainstem(&["run", "plan.toml", "--no-preflight"]).expect_code(2);
}

#[test]
fn a_setup_command_that_fails_is_told_apart_from_a_check() {
    let scene = scene(
        "[workspace]\nsetup = [\"echo no such registry; exit 9\"]\n[gates]\nverify = [\"true\"]\n",
    );
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    for part in ["the setup command", "clean checkout of main", "no such registry"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    nothing_started(&scene);
}

#[test]
fn the_checks_see_a_clean_tree_and_are_told_what_the_checkout_has_besides() {
    let scene = scene("[gates]\nverify = [\"test -d node_modules\"]\n");
    let package = r#"{"scripts":{"test":"x"},"dependencies":{"x":"1"}}"#;
    scene.repo().commit("package", &[("package.json", package), (".gitignore", "node_modules/\n")]);
    std::fs::create_dir(scene.repo().path().join("node_modules")).expect("there is room");
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    for part in ["your checkout has node_modules", "[workspace]", "npm install"] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    nothing_started(&scene);
}

#[test]
fn a_verdict_on_the_target_is_known_to_the_next_run_and_to_other_settings_it_is_not() {
    let scene = TestScene::new(BIN).preflight();
    let count = scene.repo().root().join("count");
    let gate = format!("echo x >> {}", count.display());
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n")).plan(ONE);
    let ran = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
    scene.mainstem(&["doctor"]).expect_code(0);
    assert_eq!(ran(), 1);
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(0);
    assert!(output.stdout.contains("passed before on main"), "{}", output.stdout);
    assert_eq!(ran(), 2, "once for the target, once for the candidate");
    assert_eq!(scene.facts_of("target_verified").len(), 1);
    // What landed was verified: another run starts at once.
    scene.repo().write("plan.toml", ONE.replace("\"a\"", "\"b\"").replace("a.txt", "b.txt"));
    scene.mainstem(&["run", "--new", "plan.toml"]).expect_code(0);
    assert_eq!(ran(), 3);
    scene.mainstem(&["doctor", "--config", "workspace.setup=[\"true\"]"]).expect_code(0);
    assert_eq!(ran(), 4, "another setup is another verdict");
}

#[test]
fn whoever_breaks_a_target_that_is_known_to_be_good_is_blamed_at_once() {
    let plan = "version = 1\n[[task]]\nid = \"a\"\nretries = 0\nrun = \"echo a > broken.txt\"\n";
    let config = "[gates]\nverify = [\"test ! -e broken.txt\"]\n";
    let scene = TestScene::new(BIN).preflight().config(config).plan(plan);
    scene.mainstem(&["run", "plan.toml"]).expect_code(2);
    let looked = scene.facts_of("gate_ran").into_iter().filter(|fact| fact["scope"] == "base");
    assert_eq!(looked.count(), 0, "the target was looked at before the run");
    assert_eq!(scene.facts_of("task_failed").len(), 1);
}

#[test]
fn work_that_makes_the_target_green_lands_if_red_is_allowed() {
    let plan = "version = 1\n[[task]]\nid = \"other\"\nrun = \"echo o > other.txt\"\n\
                [[task]]\nid = \"mends\"\nrun = \"sleep 1; echo fixed > fixed.txt\"\n";
    let config = "[gates]\nverify = [\"test -f fixed.txt\"]\n[run]\nretries = 3\n";
    let scene = TestScene::new(BIN).preflight().config(config).plan(plan);
    scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    let output = scene.mainstem(&["run", "plan.toml", "--allow-red"]).expect_code(0);
    assert!(output.stderr.contains("starting anyway"), "{}", output.stderr);
    let landed: Vec<String> = scene
        .facts_of("task_landed")
        .iter()
        .map(|fact| fact["task"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(landed, ["mends", "other"], "only what makes the exact tree pass can land first");
}

#[test]
fn a_kill_in_the_middle_of_the_look_leaves_nothing_and_the_next_one_goes_through() {
    let scene = TestScene::new(BIN).preflight();
    let flag = scene.repo().root().join("flag");
    let gate = format!("test -e {0} || {{ touch {0}; sleep 60; }}", flag.display());
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n")).plan(ONE);
    let run = scene.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the check runs", || flag.exists());
    run.kill9();
    nothing_started(&scene);
    scene.mainstem(&["run", "plan.toml"]).expect_code(0);
}

#[test]
fn control_c_in_the_middle_of_the_look_starts_nothing() {
    let scene = TestScene::new(BIN).preflight();
    let flag = scene.repo().root().join("flag");
    let gate = format!("touch {}; sleep 60", flag.display());
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n")).plan(ONE);
    let mut run = scene.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the check runs", || flag.exists());
    run.signal(rustix::process::Signal::INT);
    let output = run.wait().expect_code(3);
    assert!(output.stderr.contains("nothing was started"), "{}", output.stderr);
    nothing_started(&scene);
}

#[test]
fn agents_that_cannot_start_are_all_named_with_their_tasks_before_one_of_them_costs_anything() {
    let config = "[agents.claude]\nbinary = \"/bin/true\"\n[agents.gone]\nkind = \"command\"\n\
                  command = [\"no-such-agent\"]\nsecrets = [\"NO_SUCH_KEY\"]\n[agents.unused]\nkind = \"command\"\n\
                  command = [\"also-not-here\"]\n";
    let plan = "version = 1\n[[task]]\nid = \"a\"\nagent = \"claude\"\ndescription = \"x\"\n\
                [[task]]\nid = \"b\"\nagent = \"gone\"\ndescription = \"x\"\n\
                [[task]]\nid = \"c\"\nrun = \"echo c > c.txt\"\n";
    let scene = TestScene::new(BIN).preflight().config(config).plan(plan);
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    for part in [
        "cannot start",
        "not logged in",
        "claude login",
        "no-such-agent is not installed",
        "$NO_SUCH_KEY",
        "tasks: b",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    assert!(!output.stderr.contains("also-not-here"), "only the plan's agents: {}", output.stderr);
    let check = scene.mainstem(&["plan", "check", "plan.toml"]).expect_code(0);
    assert!(
        check.stderr.contains("warning: gone: no-such-agent is not installed"),
        "{}",
        check.stderr
    );
    scene.mainstem(&["run", "plan.toml", "--task", "c"]).expect_code(0);
}

#[test]
fn a_check_whose_program_is_not_here_is_named_without_running_anything() {
    let scene = scene("[gates]\nverify = [\"no-such-tool run tests\"]\n");
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    assert!(output.stderr.contains("no-such-tool"), "{}", output.stderr);
    assert!(output.stderr.contains("not installed"), "{}", output.stderr);
    nothing_started(&scene);
    let doctor = scene.mainstem(&["doctor"]).expect_code(1);
    assert!(doctor.stdout.contains("no-such-tool: not installed"), "{}", doctor.stdout);
}

#[test]
fn an_untested_version_of_an_agent_is_a_warning_in_every_face() {
    let tool = TestRepo::new();
    let file = tool.root().join("claude");
    std::fs::write(&file, "#!/bin/sh\necho '2.0.1 (Claude Code)'\n").expect("there is room");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let config = format!(
        "[agents.claude]\nbinary = {:?}\n[agents.claude.env]\nANTHROPIC_API_KEY = \"x\"\n",
        file.display().to_string()
    );
    let plan = "version = 1\n[[task]]\nid = \"a\"\nagent = \"claude\"\ndescription = \"x\"\n";
    let scene = TestScene::new(BIN).preflight().config(&config).plan(plan);
    let check = scene.mainstem(&["plan", "check", "plan.toml"]).expect_code(0);
    assert!(check.stderr.contains("2.0.1 is untested"), "{}", check.stderr);
    let doctor = scene.mainstem(&["doctor"]).expect_code(0);
    assert!(doctor.stdout.contains("2.0.1 (Claude Code) is untested"), "{}", doctor.stdout);
    let agents = scene.mainstem(&["agents", "--json"]).expect_code(0);
    let agents: Value = serde_json::from_str(&agents.stdout).expect("JSON");
    assert_eq!(agents["agents"][0]["known_to_work"], false);
}

#[test]
fn a_disk_below_its_floor_is_told_before_the_start() {
    let scene = scene("[limits]\ndisk_floor = \"900T\"\n");
    let output = scene.mainstem(&["run", "plan.toml"]).expect_code(1);
    assert!(output.stderr.contains("limits.disk_floor"), "{}", output.stderr);
    nothing_started(&scene);
}

#[test]
fn a_detached_run_looks_first_and_says_why_it_did_not_start() {
    let red = scene("[gates]\nverify = [\"echo red; exit 7\"]\n");
    let output = red.mainstem(&["run", "plan.toml", "--detach"]).expect_code(1);
    assert!(output.stderr.contains("before any task has run"), "{}", output.stderr);
    nothing_started(&red);
}

fn repository(files: &[(&str, &str)]) -> TestScene {
    let repo = TestRepo::new();
    repo.commit("project", files);
    TestScene::in_repo(repo, BIN).preflight()
}

#[test]
fn init_ends_green_and_its_example_runs_at_once() {
    let scene = repository(&[("Makefile", "test:\n\tgrep -q hi README\n"), ("README", "hi\n")]);
    let output = scene.mainstem(&["init"]).expect_code(0);
    assert!(output.stderr.contains("make test passed on main"), "{}", output.stderr);
    let doctor = scene.mainstem(&["doctor"]).expect_code(0);
    assert!(!doctor.stdout.contains("uncommitted"), "init's own files: {}", doctor.stdout);
    let run = scene.mainstem(&["run", "plan.toml"]).expect_code(0);
    assert!(run.stdout.contains("passed before on main"), "{}", run.stdout);
    assert!(scene.repo().path().join("mainstem-hello.txt").exists());
}

#[test]
fn init_names_what_is_red_and_leaves_out_one_check_of_several() {
    let red = repository(&[("Makefile", "test:\n\t@echo total is wrong; exit 1\n")]);
    let output = red.mainstem(&["init"]).expect_code(0);
    assert!(output.stderr.contains("total is wrong"), "{}", output.stderr);
    let made = r#"{"scripts":{"test":"true"}}"#;
    let both = repository(&[
        ("package.json", made),
        ("a/Makefile", "test:\n\ttrue\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
        ("tests/test_red.py", "def test_red():\n    assert False\n"),
    ]);
    let output = both.mainstem(&["init", "--no-try"]).expect_code(0);
    assert!(!output.stderr.contains("tried"), "{}", output.stderr);
}

#[test]
fn init_gives_a_check_that_writes_to_the_home_folder_one_of_its_own() {
    let check = "test:\n\tmkdir \"$$HOME/.wrap-$$$$-1\"\n";
    for kind in ["landlock", "bwrap"] {
        let scene = repository(&[("Makefile", check)]).walled(kind);
        let output = scene.mainstem(&["init"]).expect_code(0);
        let settings = scene.repo().read("mainstem.toml");
        let why = format!("{kind}: {}{settings}", output.stderr);
        assert!(settings.contains("HOME=") && settings.contains("$TMPDIR"), "{why}");
        assert!(output.stderr.contains("make test passed on main"), "{}", output.stderr);
        scene.mainstem(&["run", "plan.toml"]).expect_code(0);
    }
}

#[test]
fn init_does_not_overwrite_a_plan_and_writes_no_branch() {
    let scene = repository(&[("plan.toml", ONE), ("notes.txt", "x")]);
    scene.mainstem(&["init", "--json"]).expect_code(0);
    assert_eq!(scene.repo().read("plan.toml"), ONE);
    assert!(!scene.repo().read("mainstem.toml").contains("branch"));
}
