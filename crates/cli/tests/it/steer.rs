//! Steering: the same commands to a running engine, to a run at rest and after a crash.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, shell_plan, started};
use mainstem_testkit::{TestScene, TestSceneProcess, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// Two tasks that end when the test says so, and one behind the first.
struct Stage {
    scene: TestScene,
    log: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let scene = TestScene::new(BIN);
        let log = scene.outside("log");
        let root = scene.repo().root().display().to_string();
        let work = format!(
            "{}; echo $MAINSTEM_ATTEMPT > $MAINSTEM_TASK.txt; \
             until [ -e {root}/go-$MAINSTEM_TASK ]; do sleep 0.02; done",
            started(&log)
        );
        let scene = scene.config("[run]\nretries = 0\ngrace = \"2s\"\n").plan(&shell_plan(&[
            ("A", &work, ""),
            ("B", &work, ""),
            ("C", &work, "needs = [\"A\"]"),
        ]));
        Self { scene, log }
    }

    fn run(&self, jobs: &str) -> TestSceneProcess {
        self.scene.spawn(&["run", "plan.toml", "-j", jobs])
    }

    fn let_go(&self, task: &str) {
        fs::write(self.scene.outside(&format!("go-{task}")), "").expect("a file");
    }

    fn wait_started(&self, task: &str, times: usize) {
        let word = format!("start {task} ");
        wait_until(Duration::from_secs(60), &format!("{task} works"), || {
            log_of(&self.log).lines().filter(|line| line.starts_with(&word)).count() == times
        });
    }

    fn ok(&self, args: &[&str]) {
        self.scene.expect(0, args);
    }

    /// Kills the engine with both agents at work.
    fn crashed() -> Self {
        let stage = Self::new();
        let running = stage.run("2");
        for task in ["A", "B"] {
            stage.wait_started(task, 1);
            stage.scene.wait_for_phase(task, "working");
        }
        running.kill9();
        assert_eq!(stage.scene.status()["state"], "crashed");
        stage
    }

    fn finish(&self, landed: &[&str]) {
        for task in ["A", "B", "C"] {
            self.let_go(task);
        }
        self.ok(&["run"]);
        self.scene.assert_each_lands_once(landed);
        self.scene.assert_nothing_left();
    }
}

// ---- a running engine ----------------------------------------------------------------------

#[test]
fn a_paused_engine_starts_nothing_until_it_is_resumed() {
    let stage = Stage::new();
    let running = stage.run("1");
    stage.wait_started("A", 1);
    stage.ok(&["pause"]);
    assert_eq!(stage.scene.status()["state"], "paused");
    stage.let_go("A");
    stage.scene.wait_for_phase("A", "landed");
    stage.scene.assert_phases(&[("B", "ready"), ("C", "ready")]);
    let task = stage.scene.task("B");
    assert!(task["waiting_for"].to_string().contains("resume"), "{task:#}");
    stage.ok(&["resume"]);
    stage.let_go("B");
    stage.let_go("C");
    running.wait().expect_code(0);
    stage.scene.assert_each_lands_once(&["A", "B", "C"]);
    stage.scene.assert_nothing_left();
}

#[test]
fn one_task_of_a_running_engine_is_cancelled_tried_again_and_skipped() {
    let stage = Stage::new();
    let running = stage.run("2");
    stage.wait_started("A", 1);
    stage.wait_started("B", 1);
    stage.ok(&["cancel", "A"]);
    stage.scene.wait_for_phase("A", "cancelled");
    stage.scene.assert_phases(&[("B", "working"), ("C", "blocked")]);
    stage.ok(&["retry", "A"]);
    stage.wait_started("A", 2);
    stage.ok(&["skip", "A"]);
    stage.scene.wait_for_phase("A", "skipped");
    stage.wait_started("C", 1);
    stage.let_go("B");
    stage.let_go("C");
    running.wait().expect_code(0);
    stage.scene.assert_phases(&[("A", "skipped"), ("B", "landed"), ("C", "landed")]);
    stage.scene.assert_each_lands_once(&["B", "C"]);
    stage.scene.assert_nothing_left();
}

#[test]
fn slots_can_be_added_while_the_engine_runs() {
    let stage = Stage::new();
    let running = stage.run("1");
    stage.wait_started("A", 1);
    stage.scene.assert_phases(&[("B", "ready")]);
    stage.ok(&["jobs", "2"]);
    stage.wait_started("B", 1);
    assert_eq!(stage.scene.status()["jobs"], 2);
    for task in ["A", "B", "C"] {
        stage.let_go(task);
    }
    running.wait().expect_code(0);
    stage.scene.assert_each_lands_once(&["A", "B", "C"]);
}

#[test]
fn a_running_run_is_cancelled_whole_and_can_be_taken_up_again() {
    let stage = Stage::new();
    let running = stage.run("2");
    stage.wait_started("A", 1);
    stage.wait_started("B", 1);
    stage.ok(&["cancel"]);
    running.wait_for(Duration::from_secs(40)).expect_code(3);
    stage.scene.assert_phases(&[("A", "cancelled"), ("B", "cancelled"), ("C", "cancelled")]);
    stage.scene.assert_nothing_left();
    stage.ok(&["retry", "A", "B", "C"]);
    stage.finish(&["A", "B", "C"]);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    let stage = Stage::new();
    let running = stage.run("2");
    stage.wait_started("A", 1);
    let output = stage.scene.expect(1, &["cancel", "Z"]);
    assert!(output.stderr.contains("unknown task Z"), "{}", output.stderr);
    let output = stage.scene.expect(1, &["answer", "Q9", "yes"]);
    assert!(output.stderr.contains("Q9"), "{}", output.stderr);
    for task in ["A", "B", "C"] {
        stage.let_go(task);
    }
    running.wait().expect_code(0);
    let output = stage.scene.expect(1, &["retry", "A"]);
    assert!(output.stderr.contains("undo"), "{}", output.stderr);
}

// ---- a run at rest -------------------------------------------------------------------------

#[test]
fn without_a_run_there_is_nothing_to_steer() {
    let scene = TestScene::new(BIN);
    for args in [&["pause"][..], &["cancel"], &["retry", "A"], &["jobs", "2"]] {
        let output = scene.expect(1, args);
        assert!(output.stderr.contains("no run"), "{args:?}: {}", output.stderr);
    }
    assert!(!scene.repo().git_dir().join("mainstem/journal.db").exists());
}

#[test]
fn a_resting_run_takes_commands_for_its_next_life() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("A", "exit 1", "retries = 0"),
        ("B", "echo b > b.txt", "needs = [\"A\"]"),
        ("D", "exit 1", "retries = 0"),
        ("E", "exit 1", "retries = 0"),
    ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["skip", "A"]);
    scene.expect(0, &["cancel", "D"]);
    scene.expect(0, &["retry", "E"]);
    scene.expect(0, &["jobs", "5"]);
    scene.assert_phases(&[("A", "skipped"), ("D", "cancelled"), ("E", "ready")]);
    assert_eq!(scene.status()["jobs"], 5);
    assert_eq!(scene.status()["state"], "resting");
    scene.expect(2, &["run"]);
    scene.assert_phases(&[("A", "skipped"), ("B", "landed"), ("D", "cancelled"), ("E", "failed")]);
    assert_eq!(scene.task("E")["attempt"], 2);
    scene.assert_nothing_left();
}

#[test]
fn a_pause_at_rest_is_shown_and_ends_with_the_next_run() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("A", "exit 1", "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["pause"]);
    assert_eq!(scene.status()["state"], "paused");
    scene.expect(0, &["resume"]);
    assert_eq!(scene.status()["state"], "resting");
}

// ---- after a crash -------------------------------------------------------------------------

#[test]
fn a_task_cancelled_after_a_crash_is_stopped_and_stays_cancelled() {
    let stage = Stage::crashed();
    let pid = stage.scene.task("A")["pid"].as_i64().expect("an agent has a pid");
    stage.ok(&["cancel", "A"]);
    wait_until(Duration::from_secs(60), "the agent ends without an engine", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
    for task in ["A", "B", "C"] {
        stage.let_go(task);
    }
    stage.scene.expect(2, &["run"]);
    stage.scene.assert_phases(&[("A", "cancelled"), ("B", "landed"), ("C", "blocked")]);
    stage.scene.expect(0, &["restore", "A", "--branch", "back"]);
    assert_eq!(stage.scene.repo().show("back", "A.txt").as_deref(), Some("1\n"));
    stage.scene.assert_nothing_left();
}

#[test]
fn a_whole_run_cancelled_after_a_crash_leaves_nothing_running() {
    let stage = Stage::crashed();
    stage.ok(&["cancel"]);
    // This life was not called off; it only finds that there is nothing left to do.
    stage.scene.expect(2, &["run"]);
    stage.scene.assert_phases(&[("A", "cancelled"), ("B", "cancelled"), ("C", "cancelled")]);
    stage.scene.assert_nothing_left();
}

#[test]
fn a_task_skipped_after_a_crash_frees_those_behind_it() {
    let stage = Stage::crashed();
    stage.ok(&["skip", "A"]);
    stage.finish(&["B", "C"]);
    stage.scene.assert_phases(&[("A", "skipped")]);
}

#[test]
fn pause_and_jobs_after_a_crash_are_kept() {
    let stage = Stage::crashed();
    stage.ok(&["jobs", "4"]);
    stage.ok(&["pause"]);
    stage.ok(&["resume"]);
    assert_eq!(stage.scene.status()["jobs"], 4);
    stage.finish(&["A", "B", "C"]);
    assert_eq!(stage.scene.task("A")["attempt"], 1, "its agent was not started again");
}

#[test]
fn a_question_answered_after_a_crash_reaches_the_agent() {
    let scene = TestScene::new(BIN).plan(
        "version = 1\n[[task]]\nid = \"T-1\"\n\
         script = [{ ask = \"Go?\", options = [\"yes\", \"no\"], into = \"answer.txt\" }]\n",
    );
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "asking");
    running.kill9();
    let question = scene.status()["questions"][0]["id"].as_str().map(str::to_owned);
    // By its number among the options.
    scene.expect(0, &["answer", &question.expect("a question has a name"), "2"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "answer.txt").as_deref().map(str::trim), Some("no"));
    assert_eq!(scene.task("T-1")["attempt"], 1);
    scene.assert_nothing_left();
}

#[test]
fn a_question_still_open_after_a_crash_can_be_answered_in_the_next_life() {
    let scene = TestScene::new(BIN).plan(
        "version = 1\n[[task]]\nid = \"T-1\"\n\
         script = [{ ask = \"Go?\", into = \"answer.txt\" }]\n",
    );
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "asking");
    running.kill9();
    let running = scene.spawn(&["run"]);
    wait_until(Duration::from_secs(60), "an engine works again", || {
        scene.status()["state"] == "running"
    });
    let questions = scene.status()["questions"].clone();
    assert_eq!(questions.as_array().map(Vec::len), Some(1), "asked once: {questions:#}");
    let id = questions[0]["id"].as_str().expect("a question has a name");
    scene.expect(0, &["answer", id, "certainly"]);
    running.wait().expect_code(0);
    let answer = scene.repo().show("main", "answer.txt");
    assert_eq!(answer.as_deref().map(str::trim), Some("certainly"));
    scene.assert_nothing_left();
}
