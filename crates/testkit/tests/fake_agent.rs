//! The fake agent misbehaves as promised.

use std::fs;
use std::path::Path;
use std::time::Duration;

use mainstem_testkit::{TestCommandOutput, TestRepo, TestScene, wait_until};
use rustix::process::Signal;

const AGENT: &str = env!("CARGO_BIN_EXE_fake-agent");

fn scene() -> TestScene {
    TestScene::new(AGENT)
}

fn steps(scene: &TestScene, text: &str) -> TestCommandOutput {
    let args: Vec<&str> = text.split(' ').collect();
    scene.mainstem(&args)
}

#[test]
fn steps_come_from_the_command_line_or_a_file() {
    let scene = scene();
    let output = steps(&scene, "print hello there -- write a/b.txt x -- exit 3");
    assert_eq!((output.code, output.stdout.as_str()), (3, "hello there\n"));
    assert_eq!(scene.repo().read("a/b.txt"), "x\n");
    scene.repo().write("steps", "print from file\n\nexit 4\n");
    let output = steps(&scene, "--file steps");
    assert_eq!((output.code, output.stdout.as_str()), (4, "from file\n"));
}

#[test]
fn an_unknown_step_is_wrong_usage() {
    let output = steps(&scene(), "dance");
    assert_eq!(output.code, 64);
    assert!(output.stderr.contains("no such step"), "{}", output.stderr);
    assert_eq!(scene().mainstem(&[]).code, 64);
}

#[test]
fn commits_twice_and_commits_nothing() {
    let scene = scene();
    steps(&scene, "write x y -- commit one -- commit two").expect_code(0);
    assert_eq!(scene.repo().git(&["log", "--format=%s"]), "two\none\nfirst");
}

#[test]
fn history_is_rewritten_or_replaced() {
    let scene = scene();
    let base = scene.repo().commit_of("HEAD");
    steps(&scene, "amend").expect_code(0);
    let contains = |scene: &TestScene| {
        scene.repo().try_git(&["merge-base", "--is-ancestor", &base, "HEAD"]).code
    };
    assert_eq!(contains(&scene), 1);
    steps(&scene, "orphan").expect_code(0);
    assert_eq!(scene.repo().git(&["rev-list", "--count", "HEAD"]), "1");
}

#[test]
fn workspaces_are_broken_in_every_way() {
    let scene = scene();
    steps(&scene, "switch other").expect_code(0);
    assert_eq!(scene.repo().git(&["symbolic-ref", "--short", "HEAD"]), "other");
    steps(&scene, "detach").expect_code(0);
    assert_eq!(scene.repo().try_git(&["symbolic-ref", "-q", "HEAD"]).code, 1);
    steps(&scene, "index-lock").expect_code(0);
    assert!(scene.repo().git_dir().join("index.lock").exists());

    let workspace = scene.repo().place().join("w");
    let path = workspace.to_str().expect("our own path is text");
    scene.repo().git(&["worktree", "add", "-q", "--detach", path]);
    let there = |step: &str| {
        let mut command = scene.repo().command(AGENT);
        command.args(step.split(' ')).current_dir(&workspace).status().expect("it starts")
    };
    assert!(there("write ../outside.txt x").success());
    assert!(scene.repo().place().join("outside.txt").exists());
    assert!(there("break-git-file").success());
    let broken = fs::read_to_string(workspace.join(".git")).expect("the file is there");
    assert!(broken.contains("/nowhere"), "{broken}");
    assert!(there("delete-workspace").success());
    assert!(!workspace.exists());
}

#[test]
fn output_floods_runs_long_and_is_no_text() {
    let scene = scene();
    let flood = steps(&scene, "flood 2").expect_code(0).stdout;
    assert!(flood.len() >= 2 << 20 && flood.lines().count() > 1000);
    let line = steps(&scene, "long-line 2").expect_code(0).stdout;
    assert_eq!((line.len(), line.lines().count()), ((2 << 20) + 1, 1));
    let garbage = steps(&scene, "garbage").expect_code(0).stdout;
    assert!(garbage.contains('\u{fffd}') && garbage.contains('\u{1b}') && garbage.contains('\0'));
}

#[test]
fn term_ends_a_hanging_agent_unless_it_is_ignored() {
    let scene = scene();
    let mut polite = scene.spawn(&["print", "ready", "--", "hang"]);
    wait_until(Duration::from_secs(60), "ready", || polite.stdout() == "ready\n");
    polite.signal(Signal::TERM);
    assert_eq!(polite.wait().code, 128 + 15);

    let mut rude = scene.spawn(&["ignore-term", "--", "print", "ready", "--", "hang"]);
    wait_until(Duration::from_secs(60), "ready", || rude.stdout() == "ready\n");
    rude.signal(Signal::TERM);
    rude.signal(Signal::INT);
    let caught = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        pending.is_some_and(|mask| mask.trim().bytes().all(|digit| digit == b'0'))
    };
    wait_until(Duration::from_secs(60), "signals delivered", || caught(rude.pid()));
    assert!(!rude.has_ended());
    assert_eq!(rude.kill9().code, 128 + 9);
}

#[test]
fn a_crash_is_a_signal() {
    assert_eq!(steps(&scene(), "crash").code, 128 + 6);
}

#[test]
fn daemons_and_holders_outlive_the_agent_until_the_scene_ends() {
    let repo = TestRepo::new();
    let root = repo.root().to_owned();
    let left = || mainstem_testkit::oracle::processes_of(&root, Path::new(AGENT));
    let scene = TestScene::in_repo(repo, AGENT).env("MAINSTEM_RUN", "r1");
    steps(&scene, "daemon 600000 -- hold-stdout 600000").expect_code(0);
    wait_until(Duration::from_secs(60), "both are there", || left().len() == 2);
    // Read from /proc: in a pid namespace of its own, a session led from outside has the number 0,
    // which `getsid` refuses to hold.
    let session_of = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
        let after_name = stat.rsplit_once(") ").expect("a name in parentheses").1;
        after_name.split(' ').nth(3).expect("a session").to_owned()
    };
    let ours = session_of("self");
    let elsewhere =
        left().iter().filter(|process| session_of(&process.pid.to_string()) != ours).count();
    assert_eq!(elsewhere, 1, "the daemon has left our session, the holder has not");
    drop(scene);
    wait_until(Duration::from_secs(60), "both are gone", || left().is_empty());
}

#[test]
#[should_panic(expected = "did not end within")]
fn a_command_that_hangs_fails_the_test_with_its_output() {
    let _ = scene().spawn(&["print", "stuck", "--", "hang"]).wait_for(Duration::from_millis(300));
}
