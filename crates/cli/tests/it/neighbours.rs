//! What is not ours, and who else is there: other repositories, copies, the user's own worktrees and
//! branches, names nobody expected.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(60);

/// A scene with one task that writes a file and waits until the test says go.
fn waiting() -> TestScene {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go").display().to_string();
    let work = format!("echo first > who.txt; until [ -e {go} ]; do sleep 0.02; done");
    scene.plan(&shell_plan(&[("T", &work, "")]))
}

fn git(scene: &TestScene, dir: &Path, args: &[&str]) -> String {
    let output = scene.repo().command("git").current_dir(dir).args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Two repositories whose workspaces are to be in one folder, both with a task T, at once.
fn meet(scene: &TestScene, other: &Path, settings: &[&str], workspaces: &Path) {
    let plan = scene.outside("second.toml");
    fs::write(&plan, shell_plan(&[("T", "echo second > who.txt", "")])).unwrap();
    let gate = |who: &str| format!("gates.verify=[\"grep -q {who} who.txt\"]");
    let (first, second) = (gate("first"), gate("second"));
    let mut args = settings.to_vec();
    args.extend(["--config", &first, "run", "plan.toml"]);
    let running = scene.spawn(&args);
    let live = workspaces.join("T/who.txt");
    wait_until(LONG, "the first works", || live.exists());

    let mut args = vec!["-C", other.to_str().unwrap()];
    args.extend_from_slice(settings);
    args.extend(["--config", &second, "run", plan.to_str().unwrap()]);
    scene.expect(0, &args);
    assert_eq!(fs::read_to_string(&live).unwrap(), "first\n", "nobody was in its workspace");
    fs::write(scene.outside("go"), "").unwrap();
    running.wait().expect_code(0);
    assert_eq!(scene.repo().show("main", "who.txt").as_deref(), Some("first\n"));
    assert_eq!(git(scene, other, &["show", "main:who.txt"]), "second");
    // Each keeps its train's workspace until it is told to clean.
    let mut args = vec!["-C", other.to_str().unwrap()];
    args.extend_from_slice(settings);
    args.push("clean");
    scene.expect(0, &args);
    fs::remove_dir_all(other).unwrap();
    scene.expect(0, &[settings, &["clean"]].concat());
    scene.assert_nothing_left();
    assert!(!workspaces.exists(), "the folder goes with the last of them");
}

#[test]
fn a_repository_and_a_bare_one_of_the_same_name_do_not_meet_in_one_workspace() {
    let scene = waiting();
    let other = scene.repo().place().join("repo.git");
    scene.repo().git(&["clone", "-q", "--bare", ".", other.to_str().unwrap()]);
    let workspaces = scene.repo().place().join("repo.mainstem");
    meet(&scene, &other, &[], &workspaces);
}

#[test]
fn repositories_that_are_told_one_folder_for_workspaces_do_not_meet_in_it() {
    let scene = waiting();
    let other = scene.repo().place().join("other");
    scene.repo().git(&["clone", "-q", ".", other.to_str().unwrap()]);
    let workspaces = scene.repo().place().join("workspaces");
    let root = format!("workspace.root=\"{}\"", workspaces.display());
    meet(&scene, &other, &["--config", &root], &workspaces);
}

#[test]
fn a_link_in_the_place_of_a_workspace_leads_nobody_to_the_users_worktree() {
    let scene = TestScene::new(BIN);
    let work = "echo x > x.txt; git add -A; git -c user.name=a -c user.email=a@b commit -qm work; \
                cd ..; rm -rf T; ln -s ../feature T";
    let scene = scene.config("[run]\nretries = 0\n").plan(&shell_plan(&[("T", work, "")]));
    let feature = scene.repo().place().join("feature");
    scene.repo().git(&["worktree", "add", "-q", "-b", "feature", feature.to_str().unwrap()]);
    let tip = scene.repo().commit_of("feature");
    fs::write(feature.join("unsaved.txt"), "mine").unwrap();
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("x\n"));
    assert_eq!(git(&scene, &feature, &["status", "--porcelain"]), "?? unsaved.txt");
    assert_eq!(scene.repo().commit_of("feature"), tip);
    assert!(!scene.repo().place().join("repo.mainstem").exists());
}

#[test]
fn a_copy_of_a_repository_at_work_is_refused_and_does_not_harm_the_originals_agents() {
    let scene = waiting();
    let running = scene.spawn(&["run", "plan.toml"]);
    let place = scene.repo().place();
    let live = place.join("repo.mainstem/T/who.txt");
    wait_until(LONG, "the original works", || live.exists());
    let copy = place.join("copy");
    let copied = scene.repo().command("cp").args(["-a", "."]).arg(&copy).status().unwrap();
    assert!(copied.success());
    let dir = copy.to_str().unwrap();
    let other = place.join("other");
    let copied = scene.repo().command("cp").args(["-a", "."]).arg(&other).status().unwrap();
    assert!(copied.success());
    let said = scene.mainstem(&["-C", dir, "run"]).stderr;
    for args in [&["run"][..], &["cancel", "T"], &["clean"]] {
        let refused = scene.expect(1, &[&["-C", dir], args].concat());
        assert!(refused.stderr.contains("is a copy of"), "{}", refused.stderr);
    }
    assert!(live.exists());
    fs::write(scene.outside("go"), "").unwrap();
    running.wait().expect_code(0);
    scene.assert_each_lands_once(&["T"]);

    // The command that is named helps.
    let command = said.lines().find_map(|line| line.find("rm -rf").map(|at| &line[at..])).unwrap();
    let done = scene.repo().command("sh").args(["-c", command]).status().unwrap();
    assert!(done.success(), "{command}");
    scene.expect(0, &["-C", dir, "run", "plan.toml"]);
    assert_eq!(git(&scene, &copy, &["show", "main:who.txt"]), "first");
    // A repository that is moved stays itself.
    let moved = place.join("moved");
    fs::rename(&copy, &moved).unwrap();
    scene.expect(0, &["-C", moved.to_str().unwrap(), "run"]);
    fs::remove_dir_all(&moved).unwrap();
    // A copy of one that rests goes its own way, also if it was made in the middle of the work.
    scene.expect(0, &["-C", other.to_str().unwrap(), "run"]);
    assert_eq!(git(&scene, &other, &["show", "main:who.txt"]), "first");
    scene.assert_each_lands_once(&["T"]);
    fs::remove_dir_all(&other).unwrap();
    scene.assert_nothing_left();
}

#[test]
fn clean_leaves_branches_that_are_checked_out_or_none_of_ours() {
    let scene = TestScene::new(BIN);
    let repo = scene.repo();
    for branch in ["mainstem/old", "mainstem/a/b", "mainstem/there", "mainstem/hers"] {
        repo.branch(branch, "main");
    }
    repo.git(&["update-ref", "refs/mainstem/owned/mainstem/old", "main"]);
    let there = repo.place().join("there");
    repo.git(&["worktree", "add", "-q", there.to_str().unwrap(), "mainstem/there"]);
    repo.git(&["checkout", "-q", "-b", "mainstem/my-idea"]);
    for args in [&["clean", "--dry-run"][..], &["clean"]] {
        let said = scene.expect(0, args);
        assert!(format!("{}{}", said.stdout, said.stderr).contains("checked out"), "{said:?}");
    }
    let left = repo.git(&["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mainstem"]);
    assert_eq!(left, "mainstem/a/b\nmainstem/hers\nmainstem/my-idea\nmainstem/there");
    assert_eq!(repo.git(&["log", "-1", "--format=%s"]), "first", "HEAD is on a commit");
    assert_eq!(repo.git(&["for-each-ref", "refs/mainstem/snapshots/a"]), "");
}

#[test]
fn a_branch_called_restore_is_named_when_it_is_in_the_way() {
    let scene = TestScene::new(BIN);
    let scene = scene.config("[run]\nretries = 0\n");
    let scene = scene.plan(&shell_plan(&[("T", "echo x > x.txt; exit 1", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.repo().branch("restore", "main");
    let refused = scene.expect(1, &["restore", "T"]);
    assert!(refused.stderr.contains("git branch -m restore"), "{}", refused.stderr);
    scene.expect(1, &["restore", "T", "--branch", "restore/mine"]);
    scene.expect(0, &["restore", "T", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "x.txt").as_deref(), Some("x\n"));
}

#[test]
fn a_path_that_is_no_text_is_refused_with_a_word() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo x > x.txt", "")]));
    let odd = scene.repo().root().join(OsStr::from_bytes(b"r\xff"));
    let cloned = scene.repo().command("git").args(["clone", "-q", "."]).arg(&odd).status().unwrap();
    assert!(cloned.success());
    for args in [&["run", "plan.toml"][..], &["clean"], &["status"], &["doctor"]] {
        let output = scene.repo().command(BIN).current_dir(&odd).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        if args[0] == "run" {
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("is not valid UTF-8"), "{said}");
        }
    }
}
