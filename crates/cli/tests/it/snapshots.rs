//! Snapshots: taken while files change and before anything is destroyed, listed and brought back,
//! removed only after landing. Each test of an act recovers the exact content that it would destroy.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstem_testkit::shell_plans::{log_of, shell_plan};
use mainstem_testkit::{TestScene, assert_history_gapless, wait_until};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(90);
const SNAPSHOTS: &str = "refs/mainstem/snapshots/";
/// Exit code of a process that SIGKILL ended.
const KILLED: i32 = 137;

/// Shell that goes on when the test makes a file.
fn until_there(file: &Path) -> String {
    format!("until [ -e '{}' ]; do sleep 0.02; done", file.display())
}

fn scene(tasks: &[(&str, &str, &str)]) -> TestScene {
    TestScene::new(BIN).plan(&shell_plan(tasks))
}

fn json(scene: &TestScene, args: &[&str]) -> Value {
    let said = scene.expect(0, args);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn refs(scene: &TestScene) -> Vec<String> {
    let text = scene.repo().git(&["for-each-ref", "--format=%(refname)", SNAPSHOTS]);
    text.lines().map(str::to_owned).collect()
}

/// Whether a file with exactly this content is on a snapshot of the task.
#[track_caller]
fn assert_recoverable(scene: &TestScene, task: &str, file: &str, content: &str) {
    let start = format!("{SNAPSHOTS}{task}/");
    let all = refs(scene);
    let found = all
        .iter()
        .filter(|name| name.starts_with(&start))
        .any(|name| scene.repo().show(name, file).as_deref() == Some(content));
    assert!(found, "{file} is on none of {all:?}; {:#?}", scene.facts());
}

fn workspace(scene: &TestScene, task: &str) -> PathBuf {
    let path = scene.repo().path();
    let name = format!("{}.mainstem", path.file_name().unwrap().to_str().unwrap());
    path.with_file_name(name).join(task)
}

fn taken(scene: &TestScene, why: &str) -> usize {
    let facts = scene.facts();
    facts.iter().filter(|f| f["type"] == "snapshot_taken" && f["why"] == why).count()
}

#[test]
fn work_in_progress_is_kept_while_files_change_and_the_journal_rests_with_them() {
    let stage = TestScene::new(BIN);
    let (first, second) = (stage.outside("first"), stage.outside("second"));
    let work = format!(
        "echo one > a.txt; {}; echo two > a.txt; {}",
        until_there(&first),
        until_there(&second)
    );
    let scene =
        stage.config("[snapshots]\nevery = \"1s\"\n").plan(&shell_plan(&[("T", &work, "")]));
    let engine = scene.spawn(&["run", "plan.toml"]);
    let passing = || taken(&scene, "work in progress");
    scene.wait_for_phase("T", "working");
    wait_until(LONG, "a first snapshot", || passing() == 1);
    let (seq, began) = (scene.facts().len(), Instant::now());
    wait_until(LONG, "several intervals", || began.elapsed() > Duration::from_secs(4));
    assert_eq!(scene.facts().len(), seq, "nothing changed, and yet something was written down");
    fs::write(&first, "go").unwrap();
    wait_until(LONG, "a second snapshot", || passing() == 2);
    let listed = json(&scene, &["restore", "T", "--list", "--json"]);
    let shown = |n: usize| {
        let name = listed["snapshots"][n]["ref"].as_str().unwrap().to_owned();
        scene.repo().show(&name, "a.txt").unwrap()
    };
    assert_eq!((shown(0), shown(1)), ("one\n".to_owned(), "two\n".to_owned()), "{listed}");
    assert_eq!(listed["snapshots"][1]["files"], 1, "{listed}");
    // Brought back while the engine is at work.
    scene.expect(0, &["restore", "T", "--snapshot", "1", "--branch", "early"]);
    assert_eq!(scene.repo().show("early", "a.txt").as_deref(), Some("one\n"));
    fs::write(&second, "go").unwrap();
    engine.wait().expect_code(0);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_workspace_without_its_git_file_is_kept_before_it_is_used_again() {
    let gate = "test -e ../again || { touch ../again; echo precious > p.txt; rm .git; false; }";
    let verify = format!("verify = [\"{gate}\"]\nretries = 1");
    let scene = scene(&[("T", "echo x > x.txt", &verify)]);
    scene.expect(0, &["run", "plan.toml"]);
    assert_recoverable(&scene, "T", "p.txt", "precious\n");
    assert!(scene.repo().show("main", "p.txt").is_none());
}

#[test]
fn a_workspace_without_its_git_file_is_kept_before_it_is_removed() {
    let verify = "verify = [\"echo precious > p.txt; rm .git; false\"]\nretries = 0";
    let scene = scene(&[("T", "echo x > x.txt", verify)]);
    scene.expect(2, &["run", "plan.toml"]);
    assert!(workspace(&scene, "T").exists(), "a failed task's workspace stays");
    scene.expect(0, &["clean"]);
    assert!(!workspace(&scene, "T").exists());
    assert_recoverable(&scene, "T", "p.txt", "precious\n");
    scene.assert_nothing_left();
}

#[test]
fn what_comes_after_the_landing_is_kept_before_the_workspace_goes() {
    // The train's gate runs when the task's work is done: it plays somebody at work there.
    let scene = scene(&[("T", "echo x > x.txt", "")]);
    let there = workspace(&scene, "T");
    let gate = format!(
        "cd '{}' && echo later > later.txt && git add -A && git -c user.name=a -c user.email=a@b.c \
         commit -qm later && git checkout -q --detach && echo edit > edit.txt",
        there.display()
    );
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n"));
    scene.expect(0, &["run", "plan.toml"]);
    assert!(!there.exists());
    assert_recoverable(&scene, "T", "later.txt", "later\n");
    assert_recoverable(&scene, "T", "edit.txt", "edit\n");
    assert!(scene.repo().show("main", "later.txt").is_none());
}

#[test]
fn clean_keeps_a_workspace_whose_git_file_is_gone() {
    let scene = scene(&[("T", "echo x > x.txt", "")]);
    scene.expect(0, &["run", "plan.toml"]);
    let left = workspace(&scene, "OLD");
    let place = left.to_str().unwrap();
    scene.repo().git(&["worktree", "add", "-q", "-b", "mainstem/OLD", place, "main"]);
    scene.repo().git(&["update-ref", "refs/mainstem/owned/mainstem/OLD", "main"]);
    fs::write(left.join("p.txt"), "precious\n").unwrap();
    fs::remove_file(left.join(".git")).unwrap();
    scene.expect(0, &["clean"]);
    assert!(!left.exists());
    assert_recoverable(&scene, "OLD", "p.txt", "precious\n");
    // The branch is gone, and where it was is written down.
    let facts = scene.facts();
    let told = facts.iter().find(|f| f["type"] == "refs_removed").unwrap();
    assert_eq!(told["refs"][0]["refname"], "refs/heads/mainstem/OLD");
    assert_eq!(told["refs"][0]["commit"], scene.repo().commit_of("main"));
}

#[test]
fn a_worktree_that_is_none_of_ours_stays() {
    let scene = scene(&[("T", "echo x > x.txt", "")]);
    scene.expect(0, &["run", "plan.toml"]);
    for name in ["my own work", "mine"] {
        let mine = workspace(&scene, name);
        scene.repo().git(&["worktree", "add", "-q", "--detach", mine.to_str().unwrap()]);
        fs::write(mine.join("p.txt"), "precious\n").unwrap();
        scene.expect(0, &["clean"]);
        assert_eq!(fs::read_to_string(mine.join("p.txt")).unwrap(), "precious\n");
    }
}

#[test]
fn undo_keeps_the_landing_it_takes_back() {
    let scene = scene(&[("T", "echo x > x.txt", "")]).config("[snapshots]\nkeep = \"0s\"\n");
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(refs(&scene), [""; 0], "it landed, and is to be kept for no time");
    let landed = scene.repo().commit_of("main");
    scene.expect(0, &["undo"]);
    assert!(scene.repo().show("main", "x.txt").is_none());
    assert_recoverable(&scene, "T", "x.txt", "x\n");
    scene.expect(0, &["restore", "T", "--branch", "back"]);
    assert_eq!(scene.repo().commit_of("back"), landed);
    // And it stays: the task has not landed any more.
    scene.expect(0, &["clean"]);
    assert_recoverable(&scene, "T", "x.txt", "x\n");
}

const MIXED: &[(&str, &str, &str)] = &[
    (
        "GOOD",
        "test $MAINSTEM_ATTEMPT = 2 && echo g > g.txt || { echo f > f.txt; exit 1; }",
        "retries = 1",
    ),
    ("BAD", "echo b > b.txt; exit 1", "retries = 0"),
];

#[test]
fn snapshots_go_after_landing_and_only_then() {
    let scene = scene(MIXED);
    scene.expect(2, &["run", "plan.toml"]);
    // The workspace of the failed task goes, after a last snapshot.
    scene.expect(0, &["clean"]);
    let all = refs(&scene);
    assert!(all.iter().any(|name| name.contains("/GOOD/1/")), "{all:?}");
    assert!(all.iter().any(|name| name.contains("/GOOD/2/")), "{all:?}");
    // Two weeks by default.
    scene.expect(0, &["clean"]);
    assert_eq!(refs(&scene), all);
    let now = ["clean", "--json", "--config", "snapshots.keep=0s"];
    let dry = json(&scene, &[&now[..], &["--dry-run"]].concat());
    let place = format!("{SNAPSHOTS}GOOD");
    assert_eq!(dry["removed"].as_array().unwrap().len(), 1, "{dry}");
    assert_eq!(dry["removed"][0]["place"], place, "{dry}");
    assert_eq!(refs(&scene), all, "a dry run removed something");
    let values: Vec<String> = all.iter().map(|name| scene.repo().commit_of(name)).collect();
    json(&scene, &now);
    let left = refs(&scene);
    assert!(!left.is_empty() && left.iter().all(|name| name.contains("/BAD/")), "{left:?}");
    // Each one that went is written down with its value.
    let facts = scene.facts();
    let told: Vec<&Value> = facts
        .iter()
        .filter(|f| f["type"] == "refs_removed")
        .flat_map(|f| f["refs"].as_array().unwrap())
        // The branch of the failed task went with its workspace.
        .filter(|v| v["refname"].as_str().is_some_and(|name| name.starts_with(SNAPSHOTS)))
        .collect();
    for (name, commit) in all.iter().zip(&values).filter(|(name, _)| name.contains("/GOOD/")) {
        let here = |v: &&&Value| v["refname"] == name.as_str() && v["commit"] == commit.as_str();
        assert!(told.iter().any(|v| here(&v)), "{name}: {told:?}");
    }
    assert_eq!(told.len(), all.len() - left.len());
    assert_history_gapless(&scene.expect(0, &["history", "--json"]).stdout);
    // Numbers begin anew, and the list does not mix them up.
    scene.repo().git(&["update-ref", &format!("{SNAPSHOTS}GOOD/2/1"), "main~1"]);
    let listed = json(&scene, &["restore", "GOOD", "--list", "--json"]);
    assert_eq!(listed["snapshots"][0]["why"], Value::Null, "{listed}");
}

#[test]
fn a_landing_that_git_does_not_show_lets_nothing_go() {
    let scene = scene(&[("T", "echo x > x.txt", "")]);
    let before = scene.repo().commit_of("main");
    scene.expect(0, &["run", "plan.toml"]);
    let all = refs(&scene);
    let landed = scene.repo().commit_of("main");
    let prune = || {
        scene.expect(0, &["clean", "--config", "snapshots.keep=0s"]);
        refs(&scene)
    };
    scene.repo().git(&["reset", "-q", "--hard", &before]);
    assert_eq!(prune(), all, "the branch went back");
    scene.repo().git(&["checkout", "-q", "-b", "elsewhere"]);
    scene.repo().git(&["branch", "-D", "main"]);
    assert_eq!(prune(), all, "the branch is gone");
    // Rewritten, with its trailers: it is there.
    scene.repo().git(&["checkout", "-q", "-b", "main", &landed]);
    scene.repo().git(&["commit", "-q", "--amend", "--no-edit", "--date=2001-01-01T00:00:00"]);
    assert_ne!(scene.repo().commit_of("main"), landed);
    assert_eq!(prune(), [""; 0]);
}

#[test]
fn what_clean_kept_stays_unless_the_branch_has_it() {
    let scene = scene(&[("T", "echo x > x.txt", "")]).config("[snapshots]\nkeep = \"0s\"\n");
    scene.expect(0, &["run", "plan.toml"]);
    let left = workspace(&scene, "T");
    scene.repo().git(&["worktree", "add", "-q", "-b", "mainstem/T", left.to_str().unwrap()]);
    fs::write(left.join("p.txt"), "precious\n").unwrap();
    scene.expect(0, &["clean"]);
    scene.expect(0, &["clean"]);
    assert_eq!(refs(&scene), [format!("{SNAPSHOTS}T/0/1")]);
    assert_recoverable(&scene, "T", "p.txt", "precious\n");
    scene.repo().git(&["merge", "-q", &format!("{SNAPSHOTS}T/0/1")]);
    scene.expect(0, &["clean"]);
    assert_eq!(refs(&scene), [""; 0]);
}

#[test]
fn a_task_of_an_earlier_run_is_pruned_by_what_that_run_says() {
    let scene = scene(MIXED);
    scene.expect(2, &["run", "plan.toml"]);
    let scene = scene.plan(&shell_plan(&[("OTHER", "echo o > o.txt", "")]));
    scene.expect(0, &["run", "--new", "plan.toml"]);
    // Listed with when and why, though the newest run does not know them.
    let listed = json(&scene, &["restore", "--list", "--json"]);
    let tasks: Vec<&str> =
        listed["tasks"].as_array().unwrap().iter().map(|t| t["task"].as_str().unwrap()).collect();
    assert_eq!(tasks, ["BAD", "GOOD", "OTHER"]);
    assert_eq!(listed["tasks"][0]["snapshots"][0]["why"], "the attempt ended", "{listed}");
    scene.expect(0, &["run", "--config", "snapshots.keep=0s"]);
    let left = refs(&scene);
    assert!(!left.is_empty() && left.iter().all(|name| name.contains("/BAD/")), "{left:?}");
}

#[test]
fn pruning_survives_death_at_each_of_its_steps() {
    let prune = ["clean", "--config", "snapshots.keep=0s"];
    let stage = scene(MIXED);
    stage.expect(2, &["run", "plan.toml"]);
    let log = stage.outside("points");
    let path = log.display().to_string();
    stage.spawn_with(&prune, &[("MAINSTEM_CRASH_LOG", &path)]).wait().expect_code(0);
    let points: Vec<String> = log_of(&log).lines().map(str::to_owned).collect();
    assert!(points.iter().any(|point| point.contains("prune.told")), "{points:?}");
    for at in 1..=points.len() {
        let scene = scene(MIXED);
        scene.expect(2, &["run", "plan.toml"]);
        let before = refs(&scene);
        let wish = [("MAINSTEM_CRASH_AT", at.to_string())];
        let wish: Vec<(&str, &str)> = wish.iter().map(|(k, v)| (*k, v.as_str())).collect();
        scene.spawn_with(&prune, &wish).wait().expect_code(KILLED);
        // What is gone was written down first.
        let text = scene.expect(0, &["history", "--json"]).stdout;
        assert_history_gapless(&text);
        for gone in before.iter().filter(|name| !refs(&scene).contains(name)) {
            assert!(text.contains(gone.as_str()), "{gone} at {at}");
        }
        scene.expect(0, &prune);
        assert!(refs(&scene).iter().all(|name| name.contains("/BAD/")), "{at}");
        scene.expect(2, &["run"]);
    }
}

#[test]
fn without_a_journal_the_refs_alone_bring_work_back() {
    for damage in ["gone", "garbage"] {
        let scene = scene(MIXED);
        scene.expect(2, &["run", "plan.toml"]);
        let state = scene.repo().git_dir().join("mainstem");
        for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            let _ = fs::remove_file(state.join(name));
        }
        if damage == "garbage" {
            fs::write(state.join("journal.db"), "no journal at all".repeat(500)).unwrap();
        }
        let listed = json(&scene, &["restore", "--list", "--json"]);
        assert!(listed["note"].as_str().unwrap().contains("refs alone"), "{listed}");
        assert_eq!(listed["tasks"][0]["task"], "BAD", "{listed}");
        let first = &listed["tasks"][0]["snapshots"][0];
        assert_eq!((&first["files"], &first["insertions"]), (&1.into(), &1.into()), "{listed}");
        assert!(first["at"].is_string() && first["base"].is_string(), "{listed}");
        let said = scene.expect(0, &["restore", "BAD", "--branch", "back"]);
        assert!(said.stderr.contains("refs alone"), "{said:?}");
        assert_eq!(scene.repo().show("back", "b.txt").as_deref(), Some("b\n"));
        let said = scene.expect(1, &["restore", "NOBODY"]);
        assert!(said.stderr.contains("mainstem restore --list"), "{said:?}");
    }
}

#[test]
fn restore_says_what_there_is_and_never_moves_a_branch_of_somebodys() {
    let scene = scene(MIXED);
    scene.expect(0, &["restore", "--list"]);
    scene.expect(2, &["run", "plan.toml"]);
    let list = scene.expect(0, &["restore", "GOOD", "--list"]).stdout;
    assert!(list.contains("the attempt ended") && list.contains("1 file +1 -0"), "{list}");
    let only = scene.expect(0, &["restore", "GOOD", "--list", "--attempt", "1"]).stdout;
    assert!(only.lines().count() < list.lines().count() && only.contains("1/1"), "{only}");
    let all = scene.expect(0, &["restore", "--list"]).stdout;
    assert!(all.starts_with("BAD") && all.contains("GOOD"), "{all}");
    scene.expect(0, &["restore", "GOOD", "--attempt", "1", "--branch", "first"]);
    assert_eq!(scene.repo().show("first", "f.txt").as_deref(), Some("f\n"));
    scene.expect(0, &["restore", "GOOD", "--attempt", "1", "--branch", "first"]);
    let said = scene.expect(1, &["restore", "BAD", "--branch", "first"]);
    assert!(said.stderr.contains("already exists") && said.stderr.contains("git branch -m"));
    assert_eq!(scene.repo().show("first", "f.txt").as_deref(), Some("f\n"));
    assert_eq!(scene.expect(0, &["restore", "BAD"]).stdout, "restore/BAD\n");
    scene.repo().git(&["branch", "-f", "restore/BAD", "main"]);
    assert_eq!(scene.expect(0, &["restore", "BAD"]).stdout, "restore/BAD-2\n");
    for args in
        [&["restore", "GOOD", "--attempt", "9"][..], &["restore", "GOOD", "--snapshot", "99"]]
    {
        let said = scene.expect(1, args);
        assert!(said.stderr.contains("mainstem restore GOOD --list"), "{said:?}");
    }
    scene.expect(64, &["restore"]);
}

#[test]
fn restore_works_after_a_crash() {
    let stage = TestScene::new(BIN);
    let gate = stage.outside("go");
    let work = format!("echo one > a.txt; {}", until_there(&gate));
    let scene =
        stage.config("[snapshots]\nevery = \"1s\"\n").plan(&shell_plan(&[("T", &work, "")]));
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "a snapshot", || !refs(&scene).is_empty());
    engine.kill9();
    scene.expect(0, &["restore", "T", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "a.txt").as_deref(), Some("one\n"));
    fs::write(&gate, "go").unwrap();
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_workspace_half_set_back_does_not_pass_for_the_last_work_of_the_attempt_before() {
    let work =
        "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo kept > mine.txt; exit 1; fi; echo done > b.txt";
    let config = "[run]\nretries = 0\n[workspace]\nkeep = \"always\"\n";
    let scene = TestScene::new(BIN).config(config).plan(&shell_plan(&[("T", work, "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["retry", "T"]);
    let wish = [("MAINSTEM_CRASH_AT", "workspace.saved")];
    scene.spawn_with(&["run"], &wish).wait().expect_code(KILLED);
    assert_recoverable(&scene, "T", "mine.txt", "kept\n");
    // As a git leaves it that was killed in the middle of setting files back.
    let place = workspace(&scene, "T");
    fs::remove_file(place.join("mine.txt")).unwrap();
    fs::write(place.join("other.txt"), "of somebody else\n").unwrap();
    scene.expect(0, &["run"]);
    let of_first = format!("{SNAPSHOTS}T/1/");
    let all = refs(&scene);
    let newest = all.iter().rfind(|name| name.starts_with(&of_first)).unwrap();
    assert_eq!(scene.repo().show(newest, "mine.txt").as_deref(), Some("kept\n"), "{all:?}");
    assert_recoverable(&scene, "T", "other.txt", "of somebody else\n");
}

#[test]
fn a_folder_of_somebody_in_a_workspaces_place_is_named_until_it_is_removed() {
    let scene = scene(&[("T", "echo a > a.txt", "")]);
    let place = workspace(&scene, "T");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("theirs.txt"), "theirs\n").unwrap();
    scene.expect(0, &["run", "plan.toml"]);
    let aside = scene.status()["aside"].clone();
    let kept = PathBuf::from(aside[0].as_str().unwrap_or_else(|| panic!("{aside}")));
    assert_eq!(fs::read_to_string(kept.join("theirs.txt")).unwrap(), "theirs\n");
    let text = scene.expect(0, &["status"]).stdout;
    assert!(text.contains(kept.to_str().unwrap()), "{text}");
    fs::remove_dir_all(&kept).unwrap();
    assert!(scene.status().get("aside").is_none());
}
