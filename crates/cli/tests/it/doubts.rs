//! What must not be believed: records of another command, of another run, of a place that somebody
//! cleared, of a landing that has moved since.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, shell_plan};
use mainstem_testkit::{TestScene, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(90);

fn snapshots(scene: &TestScene, task: &str) -> Vec<String> {
    let below = format!("refs/mainstem/snapshots/{task}/");
    let text = scene.repo().git(&["for-each-ref", "--format=%(refname)", &below]);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_gate_whose_command_was_changed_runs_again() {
    let scene = TestScene::new(BIN);
    let begun = scene.outside("begun");
    let waits = format!("verify = [\"true\", \"touch '{}'; sleep 600\"]", begun.display());
    let scene = scene.plan(&shell_plan(&[("T", "echo a > a.txt", &waits)]));
    let mut engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the second gate", || begun.exists());
    engine.signal(Signal::INT);
    engine.wait().expect_code(3);
    let other = "retries = 0\nverify = [\"echo really ran; false\", \"true\"]";
    let scene = scene.plan(&shell_plan(&[("T", "echo a > a.txt", other)]));
    let said = scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T", "failed")]);
    let passed: Vec<_> = scene
        .facts_of("gate_ran")
        .into_iter()
        .filter(|gate| gate["verdict"] == "passed" && gate["gate"] != "true")
        .collect();
    assert!(passed.is_empty(), "{passed:?} {said:?}");
}

#[test]
fn work_of_another_run_under_the_same_id_is_not_pruned() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T",
        "echo precious > p.txt; exit 1",
        "retries = 0",
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    let precious = snapshots(&scene, "T");
    assert!(!precious.is_empty());
    let scene = scene.plan(&shell_plan(&[("T", "echo other > o.txt", "")]));
    scene.expect(0, &["run", "--new", "plan.toml"]);
    assert!(snapshots(&scene, "T").len() > precious.len());
    scene.expect(0, &["clean", "--config", "snapshots.keep=0s"]);
    assert_eq!(snapshots(&scene, "T"), precious);
    assert_eq!(scene.repo().show(&precious[0], "p.txt").as_deref(), Some("precious\n"));
}

#[test]
fn edits_survive_when_the_record_of_their_agent_was_removed() {
    let scene = TestScene::new(BIN);
    let gate = scene.outside("gate");
    let work = format!(
        "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo precious > p.txt; touch '{0}.begun'; \
         until [ -e '{0}' ]; do sleep 0.02; done; fi; echo b > b.txt",
        gate.display()
    );
    let scene = scene.plan(&shell_plan(&[("T", &work, "")]));
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the edit", || gate.with_added_extension("begun").exists());
    scene.wait_for_phase("T", "working");
    engine.kill9();
    fs::write(&gate, "go").unwrap();
    // As after a power cut and a user who makes room: no agent lives, and nothing tells of it.
    let exit = scene.attempt_dir("T", 1).join("agent/exit.json");
    wait_until(LONG, "the agent's end", || exit.exists());
    fs::remove_dir_all(scene.repo().git_dir().join("mainstem/runs")).unwrap();
    scene.expect(0, &["run"]);
    let kept = snapshots(&scene, "T");
    let has = |name: &String| scene.repo().show(name, "p.txt").as_deref() == Some("precious\n");
    assert!(kept.iter().any(has), "{kept:?} {:#?}", scene.facts());
}

#[test]
fn undo_never_takes_more_than_its_own_landing_back() {
    let squash = "[land]\nstrategy = \"squash\"\n";
    let plan = shell_plan(&[("T", "echo t > t.txt", "")]);
    let stage = TestScene::new(BIN).config(squash).plan(&plan);
    let points = stage.outside("points");
    let log = points.display().to_string();
    stage.spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_LOG", &log)]).wait().expect_code(0);
    let moved = log_of(&points).lines().position(|line| line.ends_with(" land.moved")).unwrap() + 1;
    let scene = TestScene::new(BIN).config(squash).plan(&plan);
    let before = scene.repo().commit_of("main");
    let die = moved.to_string();
    scene.spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_AT", &die)]).wait().expect_code(137);
    // Somebody puts the landing on top of a colleague's commit.
    let repo = scene.repo();
    let landing = repo.commit_of("main");
    // The index stays locked, so that nobody commits the old files; git says what to remove, and they do.
    fs::remove_file(repo.git_dir().join("index.lock")).unwrap();
    repo.git(&["reset", "-q", "--hard", &before]);
    let colleague = repo.commit("colleague", &[("c.txt", "c\n")]);
    repo.git(&["cherry-pick", &landing]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("T", "landed")]);
    scene.expect(0, &["undo"]);
    assert_eq!(repo.commit_of("main"), colleague);
    assert_eq!(repo.show("main", "c.txt").as_deref(), Some("c\n"));
}

#[test]
fn a_landed_id_that_comes_back_with_another_text_is_told_of() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo t > t.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let scene = scene.plan(&shell_plan(&[("T", "echo other > other.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let told = scene.facts_of("noticed");
    let about = |fact: &serde_json::Value| {
        fact["task"] == "T" && fact["message"].as_str().unwrap().contains("run --new")
    };
    assert!(told.iter().any(about), "{told:?}");
}

#[test]
fn a_workspace_that_was_made_and_cannot_be_used_is_not_left_behind() {
    // The setup fails after the workspace was made; nobody ever worked in it.
    let scene = TestScene::new(BIN)
        .config("[workspace]\nkeep = \"failed\"\nsetup = [\"false\"]\n")
        .plan(&shell_plan(&[("T", "echo a > a.txt", "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T", "failed")]);
    let left = scene.repo().git(&["worktree", "list", "--porcelain"]);
    assert_eq!(left.matches("worktree ").count(), 1, "{left}");
    assert_eq!(scene.repo().git(&["branch", "--list", "mainstem/*"]), "");
}
