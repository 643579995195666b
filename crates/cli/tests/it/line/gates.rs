//! Gates and hygiene: what does not pass does not land, and main never shows it.

use std::fs;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::{meet, shell_plan};

use super::{BIN, text};

#[test]
fn a_red_task_gate_sends_its_output_into_the_next_prompt_and_then_fails_the_task() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T-1",
        "echo $MAINSTEM_ATTEMPT > x.txt",
        "retries = 1\nverify = [\"printf 'NOT %s' ENOUGH; false\"]",
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert_eq!((&task["phase"], &task["attempt"]), (&"failed".into(), &2.into()), "{task:#}");
    assert!(text(&task, "reason").ends_with("failed: NOT ENOUGH"), "{task:#}");
    let prompt = |attempt| {
        let path = scene.attempt_dir("T-1", attempt).join("prompt.md");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert!(!prompt(1).contains("NOT ENOUGH"), "{}", prompt(1));
    assert!(prompt(2).contains("NOT ENOUGH"), "{}", prompt(2));
    assert!(scene.landings("main").is_empty());
    scene.assert_nothing_left();
}

#[test]
fn a_red_gate_on_the_merged_tree_evicts_and_leaves_main_untouched() {
    let scene = TestScene::new(BIN)
        .config("[run]\nretries = 0\n[gates]\nverify = [\"test ! -e broken.txt\"]\n")
        .plan(&shell_plan(&[
            ("T-1", "echo x > broken.txt", "priority = 9"),
            ("T-2", "echo x > fine.txt", ""),
        ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "failed"), ("T-2", "landed")]);
    assert_eq!(scene.facts_of("car_evicted").len(), 1);
    assert_eq!(scene.repo().show("main", "broken.txt"), None);
    let all = scene.repo().git(&["log", "--format=%H", "main", "--", "broken.txt"]);
    assert!(all.is_empty(), "main never had it: {all}");
    scene.expect(0, &["restore", "T-1", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "broken.txt").as_deref(), Some("x\n"));
    scene.assert_nothing_left();
}

#[test]
fn two_tasks_that_merge_cleanly_but_break_the_gate_together_do_not_both_land() {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let both = meet(&log, 2);
    let gate = "test ! -e a.txt || test ! -e b.txt";
    let scene = scene
        .config(&format!("[run]\nretries = 0\n[gates]\nverify = [\"{gate}\"]\n"))
        .plan(&shell_plan(&[
            ("A", &format!("{both}; echo a > a.txt"), ""),
            ("B", &format!("{both}; echo b > b.txt"), ""),
        ]));
    scene.expect(2, &["run", "plan.toml", "-j", "2"]);
    let landed = scene.landings("main");
    assert_eq!(landed.len(), 1, "{landed:?}");
    let other = if landed[0].task == "A" { "B" } else { "A" };
    scene.assert_phases(&[(other, "failed")]);
    // Every commit that main ever had passes the gate.
    for commit in scene.repo().git(&["rev-list", "--first-parent", "main"]).lines() {
        let has = |path| scene.repo().show(commit, path).is_some();
        assert!(!(has("a.txt") && has("b.txt")), "{commit} is red");
    }
}

#[test]
fn work_with_conflict_markers_does_not_land() {
    let work = "printf '<<<<<<< ours\\na\\n=======\\nb\\n>>>>>>> theirs\\n' > code.txt";
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", work, "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert!(text(&task, "reason").contains("code.txt"), "{task:#}");
    assert!(scene.landings("main").is_empty());
}

#[test]
fn a_file_above_the_limit_does_not_land() {
    let work = "head -c 5000 /dev/zero > big.bin; echo x > small.txt";
    let scene = TestScene::new(BIN)
        .config("[limits]\nfile_size = \"1K\"\n")
        .plan(&shell_plan(&[("T-1", work, "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert!(text(&task, "reason").contains("big.bin"), "{task:#}");
    assert!(scene.landings("main").is_empty());
}

#[test]
fn a_gate_that_hangs_gives_no_verdict_and_nothing_lands() {
    let scene = TestScene::new(BIN)
        .config("[run]\nretries = 0\n[gates]\nverify = [\"sleep 600\"]\ntimeout = \"500ms\"\n")
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "failed")]);
    assert!(scene.landings("main").is_empty());
    scene.assert_nothing_left();
}

#[test]
fn a_gate_that_ran_no_test_or_cannot_run_gives_no_verdict_and_nothing_lands() {
    for gate in ["echo running 0 tests", "exit 127", "/no/such/program"] {
        let config = format!("[run]\nretries = 0\n[gates]\nverify = [\"{gate}\"]\n");
        let plan = shell_plan(&[("T-1", "echo x > x.txt", "")]);
        let scene = TestScene::new(BIN).config(&config).plan(&plan);
        let head = scene.repo().git(&["rev-parse", "main"]);
        scene.expect(2, &["run", "plan.toml"]);
        assert_eq!(scene.repo().git(&["rev-parse", "main"]), head, "{gate}");
    }
    let config = "[gates]\nneed_tests = false\nverify = [\"echo running 0 tests\"]\n";
    let plan = shell_plan(&[("T-1", "echo x > x.txt", "")]);
    let scene = TestScene::new(BIN).config(config).plan(&plan);
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "landed")]);
}

#[test]
fn a_gate_that_changes_files_changes_nothing_that_lands() {
    let scene = TestScene::new(BIN)
        .config("[gates]\nverify = [\"echo litter > litter.txt; echo more >> x.txt\"]\n")
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", ""), ("T-2", "echo y > y.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().show("main", "litter.txt"), None);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("x\n"));
    scene.assert_nothing_left();
}

#[test]
fn the_value_of_a_secret_does_not_land() {
    let agent = "[agents.mine]\nkind = \"command\"\nsecrets = [\"MY_TOKEN\"]\n\
         command = [\"/bin/sh\", \"-c\", \"echo key=$MY_TOKEN > config.ini\"]\n";
    let scene = TestScene::new(BIN)
        .env("MY_TOKEN", "correct-horse-battery")
        .config(&format!("[run]\nretries = 0\n{agent}"))
        .plan("version = 1\n[[task]]\nid = \"T-1\"\nagent = \"mine\"\n");
    let output = scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert!(text(&task, "reason").contains("$MY_TOKEN"), "{task:#}");
    let told = format!(
        "{}{}{}",
        output.stdout,
        output.stderr,
        scene.expect(0, &["history", "--json"]).stdout
    );
    assert!(!told.contains("correct-horse-battery"), "{told}");
    assert!(scene.landings("main").is_empty());
}
