//! Workspaces of tasks that did not land: they stay where people can look and work, until their task lands or is
//! called off, and are never all that holds the work.

use std::fs;
use std::path::PathBuf;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// Fails until somebody lets it pass; each attempt adds a line.
fn failed(config: &str) -> TestScene {
    let scene = TestScene::new(BIN);
    let pass = scene.outside("pass").display().to_string();
    let run = format!("echo try $MAINSTEM_ATTEMPT >> tries.txt; [ -e '{pass}' ]");
    let plan = shell_plan(&[("A", &run, "retries = 0"), ("B", "echo b > b.txt", "")]);
    let scene = scene.config(config).plan(&plan);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "failed"), ("B", "landed")]);
    scene
}

fn let_pass(scene: &TestScene) {
    fs::write(scene.outside("pass"), "").expect("a file");
}

fn workspace(scene: &TestScene) -> PathBuf {
    scene.repo().place().join("repo.mainstem/A")
}

/// It is there, the state names it, and it is the only one.
fn assert_kept(scene: &TestScene) {
    let kept: Vec<PathBuf> = scene.kept_workspaces().into_iter().map(|one| one.path).collect();
    assert_eq!(kept, [workspace(scene)]);
    assert!(workspace(scene).join("tries.txt").exists());
    scene.assert_nothing_left();
}

/// Not even the state names it.
fn assert_gone(scene: &TestScene) {
    assert!(!workspace(scene).exists(), "the workspace stays");
    assert_eq!(scene.task("A")["workspace"], serde_json::Value::Null);
    assert_eq!(scene.kept_workspaces(), []);
    scene.assert_nothing_left();
}

fn landed(scene: &TestScene, path: &str) -> String {
    scene.repo().show("main", path).unwrap_or_default()
}

#[test]
fn the_workspace_of_a_failed_task_stays_until_it_lands() {
    for kind in ["worktree", "clone"] {
        let scene = failed(&format!("[workspace]\nkind = \"{kind}\"\n"));
        assert_kept(&scene);
        let shown = scene.expect(0, &["shell", "A", "--no-sandbox", "--", "cat", "tries.txt"]);
        assert_eq!(shown.stdout, "try 1\n");
        // A run that has nothing to do with it leaves it alone.
        scene.expect(2, &["run"]);
        assert_kept(&scene);
        let_pass(&scene);
        scene.expect(0, &["retry", "A"]);
        scene.expect(0, &["run"]);
        assert_eq!(landed(&scene, "tries.txt"), "try 1\ntry 2\n", "it went on from there");
        assert_gone(&scene);
    }
}

#[test]
fn what_a_person_commits_in_a_kept_workspace_is_part_of_the_next_attempt() {
    let scene = failed("");
    let commit = "echo mine > mine.txt; git add mine.txt; \
                  git -c user.name=me -c user.email=me@example.invalid commit -qm mine";
    scene.expect(0, &["shell", "A", "--no-sandbox", "--", "sh", "-c", commit]);
    let_pass(&scene);
    scene.expect(0, &["retry", "A"]);
    scene.expect(0, &["run"]);
    assert_eq!(
        (landed(&scene, "mine.txt"), landed(&scene, "tries.txt")),
        ("mine\n".to_owned(), "try 1\ntry 2\n".to_owned())
    );
    assert_gone(&scene);
}

#[test]
fn a_kept_workspace_goes_when_its_task_is_called_off() {
    for verb in ["cancel", "skip"] {
        let scene = failed("");
        let said = scene.expect(0, &[verb, "A"]).stderr;
        assert!(said.contains("removed the workspace"), "{said}");
        assert_gone(&scene);
        scene.mainstem(&["run"]);
        assert_gone(&scene);
        let kept = scene.repo().git(&["for-each-ref", "refs/mainstem/snapshots/A/"]);
        assert!(!kept.is_empty(), "its work is on a snapshot");
    }
}

#[test]
fn clean_takes_a_kept_workspace_and_the_next_attempt_goes_on_from_its_snapshot() {
    let scene = failed("");
    fs::write(workspace(&scene).join("edit.txt"), "not committed").expect("a file");
    scene.expect(0, &["clean"]);
    assert_gone(&scene);
    let said = scene.expect(1, &["shell", "A"]).stderr;
    assert!(said.contains("A has no workspace (state: failed)"), "{said}");
    let refs =
        scene.repo().git(&["for-each-ref", "--format=%(refname)", "refs/mainstem/snapshots/A/0"]);
    let edit = refs.lines().find_map(|name| scene.repo().show(name, "edit.txt"));
    assert_eq!(edit.as_deref(), Some("not committed"));
    let_pass(&scene);
    scene.expect(0, &["retry", "A"]);
    scene.expect(0, &["run"]);
    assert_eq!(landed(&scene, "tries.txt"), "try 1\ntry 2\n");
    assert_gone(&scene);
}

#[test]
fn a_blocked_task_keeps_its_workspace_and_a_skipped_failure_does_not() {
    let blocked = r#"echo half > half.txt; echo '{"mainstem":"blocked","reason":"no key"}'"#;
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("A", blocked, ""),
        ("S", "echo s > s.txt; exit 1", "retries = 0\non_failure = \"skip\""),
    ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "blocked"), ("S", "skipped")]);
    assert!(workspace(&scene).join("half.txt").exists());
    assert_eq!(scene.kept_workspaces().len(), 1);
    scene.assert_nothing_left();
}

#[test]
fn a_shared_workspace_stays_while_one_of_its_tasks_has_failed() {
    let scene = TestScene::new(BIN);
    let pass = scene.outside("pass").display().to_string();
    let second = format!("echo 2 > two.txt; [ -e '{pass}' ]");
    let plan = format!(
        "version = 1\n[[epic]]\nid = \"E\"\ntitle = \"E\"\n\
         [[task]]\nid = \"A\"\nepic = \"E\"\nrun = \"echo 1 > one.txt\"\n\
         [[task]]\nid = \"B\"\nepic = \"E\"\nneeds = [\"A\"]\nretries = 0\nrun = \"{second}\"\n"
    );
    let scene = scene.config("[workspace]\nunit = \"epic\"\n").plan(&plan);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "landed"), ("B", "failed")]);
    assert_eq!(scene.kept_workspaces().len(), 1);
    scene.assert_nothing_left();
    let_pass(&scene);
    scene.expect(0, &["retry", "B"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.kept_workspaces(), []);
    scene.assert_nothing_left();
}
