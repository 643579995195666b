//! Questions outlive the attempts that asked them: whatever ends the agent or the engine, the question stays open,
//! an answer is taken at any time, and the work goes on with it.

use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PATIENCE: Duration = Duration::from_secs(60);

/// Does half of its work, asks, and does the rest. It remembers outside its workspace that it has asked, as a
/// resumed session does: an attempt after that has the answer from its prompt or not at all.
fn asking_once(scene: &TestScene) -> String {
    let asked = scene.outside("asked").display().to_string();
    format!(
        r#"if [ ! -e '{asked}' ]; then
echo half > first.txt
touch '{asked}'
echo '{{"mainstem":"ask","question":"Which color?","options":["red","blue"]}}'
read -r answer; echo "$answer" > answer.txt
else
grep -A1 'Which color?' "$MAINSTEM_PROMPT" > answer.txt
fi
echo whole > second.txt"#
    )
}

fn scene() -> TestScene {
    let scene = TestScene::new(BIN).config("[run]\ngrace = \"1s\"\n");
    let plan = shell_plan(&[("A", &asking_once(&scene), "")]);
    scene.plan(&plan)
}

fn open_questions(scene: &TestScene) -> Vec<String> {
    let listed = scene.expect(0, &["questions", "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let all = listed["questions"].as_array().or(listed.as_array()).cloned().unwrap_or_default();
    all.iter().filter_map(|q| q["id"].as_str().or(q["name"].as_str()).map(str::to_owned)).collect()
}

/// Both halves landed, once, with the answer that was given; nobody had to answer twice.
fn assert_went_on_with(scene: &TestScene, answer: &str) {
    let main = |path: &str| scene.repo().show("main", path).unwrap_or_default();
    assert_eq!(main("first.txt"), "half\n", "what was done before the question is still there");
    assert!(main("answer.txt").contains(answer), "{}", main("answer.txt"));
    assert_eq!(main("second.txt"), "whole\n");
    scene.assert_each_lands_once(&["A"]);
    assert_eq!(scene.facts_of("question_asked").len(), 1, "nothing is asked twice");
    assert_eq!(open_questions(scene), [""; 0]);
    scene.assert_nothing_left();
}

fn interrupt_asking(scene: &TestScene, signals: usize) {
    let mut running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("A", "asking");
    for _ in 0..signals {
        running.signal(Signal::INT);
    }
    running.wait().expect_code(3);
}

#[test]
fn an_answer_after_one_interrupt_reaches_the_next_attempt() {
    let scene = scene();
    interrupt_asking(&scene, 1);
    assert_eq!(open_questions(&scene), ["Q1"]);
    assert_eq!(scene.task("A")["next_action"], "mainstem answer Q1 TEXT");
    scene.expect(0, &["answer", "Q1", "2"]);
    assert_eq!(open_questions(&scene), [""; 0]);
    let refused = scene.expect(1, &["answer", "Q1", "red"]).stderr;
    assert!(refused.contains("no open question Q1"), "{refused}");
    scene.expect(0, &["run"]);
    assert_went_on_with(&scene, "blue");
}

#[test]
fn an_answer_after_two_interrupts_reaches_the_next_attempt() {
    let scene = scene();
    interrupt_asking(&scene, 2);
    scene.expect(0, &["answer", "Q1", "blue"]);
    scene.expect(0, &["run"]);
    assert_went_on_with(&scene, "blue");
}

#[test]
fn an_answer_after_the_engine_was_killed_reaches_the_agent_that_lived_on() {
    let scene = scene();
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("A", "asking");
    running.kill9();
    scene.expect(0, &["answer", "Q1", "blue"]);
    scene.expect(0, &["run"]);
    assert_went_on_with(&scene, "blue");
    assert_eq!(scene.facts_of("attempt_intended").len(), 1, "the agent lived on");
}

#[test]
fn an_answer_after_a_detached_run_was_stopped_reaches_the_next_attempt() {
    let scene = scene();
    scene.expect(0, &["run", "plan.toml", "--detach"]);
    scene.wait_for_phase("A", "asking");
    scene.expect(0, &["stop"]);
    wait_until(PATIENCE, "rest", || scene.status()["state"] == "resting");
    assert_eq!(open_questions(&scene), ["Q1"]);
    scene.expect(0, &["answer", "Q1", "blue"]);
    scene.expect(0, &["run", "--detach"]);
    scene.wait_for_phase("A", "landed");
    wait_until(PATIENCE, "rest", || scene.status()["state"] == "resting");
    assert_went_on_with(&scene, "blue");
}

#[test]
fn the_next_run_waits_for_the_answer_and_starts_no_agent_before_it() {
    let scene = TestScene::new(BIN).config("[run]\ngrace = \"1s\"\n");
    let gate = scene.outside("go").display().to_string();
    let later = format!("until [ -e '{gate}' ]; do sleep 0.05; done; echo b > b.txt");
    let plan = shell_plan(&[("A", &asking_once(&scene), ""), ("B", &later, "")]);
    let scene = scene.plan(&plan);
    interrupt_asking(&scene, 1);
    std::fs::write(&gate, "").expect("a file");
    let running = scene.spawn(&["run"]);
    scene.wait_for_phase("B", "landed");
    let task = scene.task("A");
    assert_eq!(task["phase"], "ready");
    assert_eq!(task["waiting_for"], serde_json::json!(["Q1"]));
    assert_eq!(task["next_action"], "mainstem answer Q1 TEXT");
    assert_eq!(scene.facts_of("attempt_intended").len(), 3, "A, B and B again");
    scene.expect(0, &["answer", "Q1", "blue"]);
    running.wait().expect_code(0);
    let main = |path: &str| scene.repo().show("main", path).unwrap_or_default();
    assert_eq!((main("first.txt"), main("second.txt")), ("half\n".into(), "whole\n".into()));
    assert!(main("answer.txt").contains("blue"));
    scene.assert_each_lands_once(&["A", "B"]);
    assert_eq!(scene.facts_of("question_asked").len(), 1);
}

#[test]
fn an_agent_that_asks_the_same_again_is_given_the_answer_at_once() {
    let ask =
        r#"echo '{"mainstem":"ask","question":"Which color?"}'; read -r a; echo "$a" > answer.txt"#;
    let scene =
        TestScene::new(BIN).config("[run]\ngrace = \"1s\"\n").plan(&shell_plan(&[("A", ask, "")]));
    interrupt_asking(&scene, 1);
    scene.expect(0, &["answer", "Q1", "blue"]);
    scene.expect(0, &["run"]);
    let answer = scene.repo().show("main", "answer.txt").unwrap_or_default();
    assert!(answer.contains("blue"), "{answer}");
    assert_eq!(scene.facts_of("question_asked").len(), 2);
    let by: Vec<Value> =
        scene.facts_of("question_answered").iter().map(|fact| fact["by"].clone()).collect();
    assert_eq!(by, ["person", "person"]);
}

#[test]
fn a_task_that_ended_for_want_of_an_answer_is_free_again_once_it_has_one() {
    let asked = r#"if grep -q 'Answer: blue' "$MAINSTEM_PROMPT"; then echo blue > color.txt
else echo '{"mainstem":"ask","question":"Which color?"}'; fi"#;
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("A", asked, "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "blocked")]);
    assert_eq!(open_questions(&scene), ["Q1"], "one thing needs a person, not two");
    assert_eq!(scene.task("A")["next_action"], "mainstem answer Q1 TEXT");
    scene.expect(0, &["answer", "Q1", "blue"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "color.txt").as_deref(), Some("blue\n"));
    scene.assert_each_lands_once(&["A"]);
}

#[test]
fn a_question_goes_with_a_task_that_is_retried_without_an_answer_or_called_off() {
    let scene = scene();
    interrupt_asking(&scene, 1);
    scene.expect(0, &["retry", "A", "-m", "Take any color."]);
    assert_eq!(open_questions(&scene), [""; 0]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "second.txt").as_deref(), Some("whole\n"));

    let scene = self::scene();
    interrupt_asking(&scene, 1);
    scene.expect(0, &["cancel", "A"]);
    assert_eq!(open_questions(&scene), [""; 0]);
    scene.expect(1, &["answer", "Q1", "blue"]);
}
