//! What a stranger meets in the first hour: odd shells, odd repositories, and commands at odd moments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(60);

/// A run in the background whose only task waits until a file is there.
fn waiting(then: &str) -> (TestScene, std::path::PathBuf) {
    let scene = TestScene::new(BIN).config("[run]\nretries = 0\n");
    let go = scene.outside("go");
    let work = format!("until [ -e {} ]; do sleep 0.1; done; {then}", go.display());
    let scene = scene.plan(&shell_plan(&[("T", &work, "")]));
    scene.expect(0, &["run", "--detach", "plan.toml"]);
    wait_until(LONG, "T works", || scene.task("T")["phase"] == "working");
    (scene, go)
}

#[test]
fn watch_ends_with_the_exit_code_of_the_run() {
    for (work, code) in [("echo t > t.txt", 0), ("exit 1", 2)] {
        let (scene, go) = waiting(work);
        let watch = scene.spawn(&["watch"]);
        wait_until(LONG, "somebody watches", || watch.stderr().contains("watching"));
        fs::write(&go, "").expect("a file");
        let seen = watch.wait().expect_code(code);
        assert!(!seen.stdout.contains("exit code 3"), "{}", seen.stdout);
        scene.expect(code, &["watch"]);
    }
}

#[test]
fn a_mistake_in_the_settings_keeps_nobody_from_steering_a_run() {
    let (scene, go) = waiting("echo t > t.txt");
    let file = scene.repo().path().join("mainstem.toml");
    let good = fs::read_to_string(&file).expect("settings");
    fs::write(&file, "[[[\n").expect("a file");
    for command in [
        &["pause"][..],
        &["resume"],
        &["jobs", "2"],
        &["runs"],
        &["restore", "--list"],
        &["status"],
        &["stop"],
    ] {
        scene.expect(0, command);
    }
    assert_eq!(scene.status()["state"], "resting");
    scene.expect(1, &["run"]);
    fs::write(&file, good).expect("a file");
    fs::write(&go, "").expect("a file");
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_command_that_fails_says_why_wherever_somebody_looks() {
    let plan = shell_plan(&[("T", "echo building; no-such-compiler --fast", "retries = 0")]);
    let scene = TestScene::new(BIN).plan(&plan);
    let run = scene.expect(2, &["run", "plan.toml"]);
    let wanted = "no-such-compiler: not found";
    for screen in [run.stderr, run.stdout] {
        assert!(screen.contains("exit code 127") && screen.contains(wanted), "{screen}");
    }
    for command in [&["status"][..], &["show", "T"]] {
        let screen = scene.expect(0, command).stdout;
        assert!(screen.contains(wanted), "{screen}");
    }
}

#[test]
fn the_plan_itself_is_no_uncommitted_change() {
    let scene = TestScene::new(BIN);
    let folder = scene.repo().path();
    fs::write(folder.join("mine.toml"), shell_plan(&[("T", "echo t > t.txt", "")]))
        .expect("a plan");
    let run = scene.expect(0, &["run", "mine.toml"]);
    assert!(!run.stderr.contains("uncommitted"), "{}", run.stderr);
    fs::write(folder.join("notes.txt"), "mine\n").expect("a file");
    let run = scene.expect(0, &["run", "mine.toml"]);
    assert!(run.stderr.contains("uncommitted changes: notes.txt\n"), "{}", run.stderr);
}

#[test]
fn a_plan_that_is_not_there_names_the_command_that_writes_one() {
    let run = TestScene::new(BIN).expect(1, &["run", "none.toml"]);
    assert!(run.stderr.contains("create an example plan.toml: mainstem init"), "{}", run.stderr);
}

#[test]
fn a_missing_tool_is_named_by_the_item_that_waits_for_a_person() {
    let scene = TestScene::new(BIN)
        .config("[gates]\nverify = [\"no-such-tool\"]\n")
        .plan(&shell_plan(&[("T", "echo t > t.txt", "")]));
    scene.expect(2, &["run", "--no-preflight", "plan.toml"]);
    let status = scene.status();
    let inbox = status["inbox"].as_array().expect("a list");
    let item = inbox.iter().find(|item| item["kind"] == "target").expect("an item");
    let text = item["text"].as_str().expect("words");
    assert!(text.contains("command not found: no-such-tool"), "{item:#}");
    let screen = scene.expect(0, &["status"]).stdout;
    assert!(screen.contains("→ install no-such-tool"), "{screen}");
}

#[test]
fn a_reftable_is_named_by_doctor_and_needs_no_edit_after_init() {
    let scene =
        TestScene::new(BIN).walled("auto").plan(&shell_plan(&[("T", "echo t > t.txt", "")]));
    // Git cannot take logs of refs along.
    fs::remove_dir_all(scene.repo().git_dir().join("logs")).expect("logs");
    if scene.repo().try_git(&["refs", "migrate", "--ref-format=reftable"]).code != 0 {
        println!("left out: this git has no reftables");
        return;
    }
    let doctor = scene.expect(1, &["doctor"]);
    assert!(doctor.stdout.contains("reftable"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("config set workspace.kind clone"), "{}", doctor.stdout);
    scene.expect(0, &["init", "--force"]);
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T"]);
    assert!(scene.expect(0, &["doctor"]).stdout.contains("0 errors"));
}

#[test]
fn a_file_size_limit_ends_with_a_message_and_not_by_a_signal() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo t > t.txt", "")]));
    let under_limit = |command: &str| {
        let line = format!("ulimit -f 100; exec '{BIN}' {command}");
        let output = scene.repo().command("sh").args(["-c", &line]).output().expect("a shell");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    for command in ["run plan.toml", "doctor"] {
        let (code, text) = under_limit(command);
        assert_eq!(code, Some(1), "{command}: {text}");
        assert!(text.contains("files may not become larger than"), "{text}");
        assert!(text.contains("ulimit -f unlimited"), "{text}");
    }
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn ctrl_c_that_also_kills_a_git_before_the_run_begins_is_an_interruption() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo t > t.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = scene.outside("bin");
    fs::create_dir(&folder).expect("a folder in a temporary folder");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *refs/mainstem/owned*) kill -INT $PPID; kill -INT $$;; esac\n\
         PATH='{path}' exec git \"$@\"\n"
    );
    let git = folder.join("git");
    fs::write(&git, script).expect("a file in a temporary folder");
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).expect("our own file");
    let scene = scene.env("PATH", format!("{}:{path}", folder.display()));
    let run = scene.expect(3, &["run", "--new", "plan.toml"]);
    assert!(run.stderr.contains("interrupted; nothing was started"), "{}", run.stderr);
}

#[test]
fn a_run_that_is_interrupted_during_its_checks_says_so_in_whole_lines() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let check = format!("until [ -e {} ]; do sleep 0.1; done", go.display());
    let scene = scene.config(&format!("[gates]\nverify = [\"{check}\"]\n")).plan(&shell_plan(&[(
        "T",
        "echo t > t.txt",
        "",
    )]));
    let mut run = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "T is checked", || scene.status()["tasks"][0]["phase"] == "merging");
    run.signal(Signal::INT);
    let ended = run.wait().expect_code(3);
    assert!(ended.stdout.ends_with("its checks have not finished\n"), "{:?}", ended.stdout);
    // `init` does not say that there is no commit.
    let init = scene.expect(0, &["init", "--force"]);
    assert!(!init.stderr.contains("no commit yet"), "{}", init.stderr);
}

#[test]
fn commits_of_a_titled_task_say_what_it_was_about() {
    let plan = shell_plan(&[("T", "echo t > t.txt", "title = \"Add the file t\"")]);
    let scene = TestScene::new(BIN).plan(&plan);
    scene.expect(0, &["run", "plan.toml"]);
    // The landing, and the agent's own commit behind it.
    for commit in ["main", "main^2"] {
        let subject = scene.repo().git(&["log", "--format=%s", "-1", commit]);
        assert_eq!(subject, "T: Add the file t");
    }
}

#[test]
fn a_linked_worktree_has_settings_of_its_own_and_init_writes_them_there() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo t > t.txt", "retries = 0")]));
    let linked = scene.outside("linked");
    let path = linked.to_str().expect("a plain path").to_owned();
    scene.repo().git(&["worktree", "add", "-q", "-b", "work", &path]);
    fs::write(linked.join("Makefile"), "test:\n\ttest ! -e t.txt\n").expect("a file");
    scene.repo().git(&["-C", &path, "add", "Makefile"]);
    scene.repo().git(&["-C", &path, "commit", "-q", "-m", "a check"]);
    let main_had = scene.repo().path().join("mainstem.toml").exists();
    fs::remove_file(linked.join("mainstem.toml")).ok();
    scene.expect(0, &["-C", &path, "init", "--no-try"]);
    assert!(linked.join("mainstem.toml").is_file(), "init wrote somewhere else");
    assert_eq!(scene.repo().path().join("mainstem.toml").exists(), main_had);
    fs::write(
        linked.join("mainstem.toml"),
        "[gates]\nverify = [\"make test\"]\n[sandbox]\nkind = \"off\"\n",
    )
    .expect("settings");
    fs::copy(scene.repo().path().join("plan.toml"), linked.join("plan.toml")).expect("a plan");
    // The check of the linked worktree holds: nothing lands.
    let run = scene.mainstem(&["-C", &path, "run", "plan.toml"]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("Checks before landing: make test"), "{}", run.stdout);
}
