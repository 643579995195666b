//! `[workspace] kind = "clone"`: a git folder of the agent's own, without a wall and behind one. Its work
//! lands, outlives a killed engine, is in snapshots, and goes when it is no longer needed.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, assert_history_gapless, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(120);
const WALLS: [&str; 2] = ["off", "auto"];

/// Commits `$MAINSTEM_TASK.txt` in what must be a clone.
const COMMIT: &str = "set -e; test -d .git; echo made > $MAINSTEM_TASK.txt; git add -A; \
                      git -c user.name=a -c user.email=a@b.c commit -qm work";
const WAIT: &str = "until [ -e .git/go ]; do sleep 0.02; done";

fn scene(wall: &str, more: &str, tasks: &[(&str, &str, &str)]) -> TestScene {
    let config = format!("[run]\nretries = 0\n[workspace]\nkind = \"clone\"\n{more}");
    TestScene::new(BIN).walled(wall).config(&config).plan(&shell_plan(tasks))
}

fn workspace(scene: &TestScene, task: &str) -> PathBuf {
    scene.repo().place().join("repo.mainstem").join(task)
}

#[track_caller]
fn assert_landed(scene: &TestScene, task: &str, file: &str, text: &str) {
    let shown = scene.repo().show("main", file);
    assert_eq!(shown.as_deref(), Some(text), "{task}: {}", scene.mainstem(&["show", task]).stdout);
}

#[test]
fn work_in_clones_lands_committed_or_not_and_leaves_nothing() {
    for wall in WALLS {
        let left = "set -e; test -d .git; echo left > left.txt";
        let scene = scene(wall, "", &[("T-1", COMMIT, ""), ("T-2", left, "needs = [\"T-1\"]")]);
        scene.expect(0, &["run", "plan.toml"]);
        assert_landed(&scene, "T-1", "T-1.txt", "made\n");
        assert_landed(&scene, "T-2", "left.txt", "left\n");
        scene.assert_each_lands_once(&["T-1", "T-2"]);
        scene.assert_nothing_left();
    }
}

#[test]
fn a_clone_outlives_a_killed_engine_and_its_agent_is_found_again() {
    for wall in WALLS {
        let work = format!("{COMMIT}; {WAIT}; echo later > later.txt");
        let scene = scene(wall, "", &[("T", &work, "")]);
        let engine = scene.spawn(&["run", "plan.toml"]);
        let made = workspace(&scene, "T").join("T.txt");
        wait_until(LONG, "the agent is at work", || made.exists());
        engine.kill9();
        let engine = scene.spawn(&["run"]);
        wait_until(LONG, "an engine works again", || scene.status()["state"] == "running");
        fs::write(workspace(&scene, "T").join(".git/go"), "").unwrap();
        engine.wait().expect_code(0);
        assert_landed(&scene, "T", "T.txt", "made\n");
        assert_landed(&scene, "T", "later.txt", "later\n");
        assert_eq!(scene.task("T")["attempt"], 1, "nobody was started again");
        assert_history_gapless(&scene.mainstem(&["history", "--json"]).stdout);
        scene.assert_nothing_left();
    }
}

#[test]
fn a_clone_that_was_half_made_is_nobodys_work() {
    let work = "echo x > x.txt; [ $MAINSTEM_ATTEMPT = 2 ]";
    let new = || scene("off", "", &[("T", work, "retries = 1")]);
    let first = new();
    let log = first.outside("points");
    first
        .spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_LOG", log.to_str().unwrap())])
        .wait();
    let points = fs::read_to_string(log).unwrap();
    let made = points.lines().enumerate().filter(|(_, line)| line.ends_with("clone.made"));
    // Of the second attempt: the work of the first is in its snapshots by then.
    let at = (made.last().unwrap().0 + 1).to_string();
    let scene = new();
    let died = scene.spawn_with(&["run", "plan.toml"], &[("MAINSTEM_CRASH_AT", &at)]).wait();
    assert_eq!(died.code, 137, "{}", died.stderr);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
    let kept = scene.facts_of("snapshot_taken");
    let first = kept.iter().filter(|fact| fact["attempt"] == 1);
    for name in first.filter_map(|fact| fact["refname"].as_str()) {
        assert_eq!(scene.repo().show(name, "x.txt").as_deref(), Some("x\n"), "{name}: {kept:#?}");
    }
    scene.assert_nothing_left();
}

#[test]
fn commits_and_files_of_a_clone_are_in_its_snapshots_and_undo_takes_the_landing_back() {
    for wall in WALLS {
        let work = format!("{COMMIT}; echo open > open.txt; {WAIT}");
        let scene = scene(wall, "[snapshots]\nevery = \"1s\"\n", &[("T", &work, "")]);
        let engine = scene.spawn(&["run", "plan.toml"]);
        let taken = || {
            let facts = scene.facts_of("snapshot_taken");
            facts.iter().any(|fact| {
                let name = fact["refname"].as_str().unwrap_or_default();
                scene.repo().show(name, "open.txt").is_some()
            })
        };
        scene.wait_for_phase("T", "working");
        wait_until(LONG, "a snapshot with the open file", taken);
        scene.expect(0, &["restore", "T", "--branch", "early"]);
        assert_eq!(scene.repo().show("early", "T.txt").as_deref(), Some("made\n"));
        assert_eq!(scene.repo().show("early", "open.txt").as_deref(), Some("open\n"));
        fs::write(workspace(&scene, "T").join(".git/go"), "").unwrap();
        engine.wait().expect_code(0);
        assert_landed(&scene, "T", "open.txt", "open\n");
        scene.expect(0, &["undo"]);
        assert!(scene.repo().show("main", "open.txt").is_none());
        scene.assert_nothing_left();
    }
}

#[test]
fn a_failed_attempts_clone_is_kept_in_snapshots_and_cleaned_away() {
    for wall in WALLS {
        let work = format!("{COMMIT}; echo open > open.txt; exit 3");
        let config = "keep = \"failed\"\n";
        let scene = scene(wall, config, &[("T", &work, ""), ("GOOD", COMMIT, "")]);
        scene.expect(2, &["run", "plan.toml"]);
        scene.assert_phases(&[("T", "failed"), ("GOOD", "landed")]);
        assert!(workspace(&scene, "T").join("open.txt").exists(), "it is kept");
        scene.expect(0, &["restore", "T", "--branch", "back"]);
        assert_eq!(scene.repo().show("back", "T.txt").as_deref(), Some("made\n"));
        assert_eq!(scene.repo().show("back", "open.txt").as_deref(), Some("open\n"));
        scene.expect(0, &["skip", "T"]);
        scene.expect(0, &["clean"]);
        assert!(!workspace(&scene, "T").exists(), "{}", scene.mainstem(&["status"]).stdout);
    }
}

#[test]
fn a_repository_with_reftables_is_worked_on_in_clones() {
    let plan = shell_plan(&[("T", COMMIT, "")]);
    let scene = TestScene::new(BIN).walled("auto").plan(&plan);
    // Git cannot take logs of refs along.
    fs::remove_dir_all(scene.repo().git_dir().join("logs")).unwrap();
    let moved = scene.repo().try_git(&["refs", "migrate", "--ref-format=reftable"]);
    if moved.code != 0 {
        // A git before reftables.
        return;
    }
    let said = scene.expect(1, &["run", "plan.toml"]);
    assert!(said.stderr.contains("config set workspace.kind clone"), "{}", said.stderr);
    scene.expect(0, &["run", "plan.toml", "--config", "workspace.kind=clone"]);
    assert_landed(&scene, "T", "T.txt", "made\n");
}
