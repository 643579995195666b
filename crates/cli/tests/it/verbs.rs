//! The small verbs: shell, open, stop, watch, runs, config set, and the first page of help.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const LONG: Duration = Duration::from_secs(60);

/// A task that failed and whose workspace was kept.
fn failed(kind: &str) -> TestScene {
    let scene = TestScene::new(BIN)
        .walled(kind)
        .config("[run]\nretries = 0\n[workspace]\nkeep = \"failed\"\n")
        .plan(&shell_plan(&[("T", "echo half > half.txt; exit 1", "")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene
}

#[test]
fn a_shell_in_a_workspace_is_in_the_agents_sandbox_unless_told_otherwise() {
    for kind in ["landlock", "bwrap"] {
        let works = TestScene::new(BIN).walled(kind).mainstem(&["doctor"]).stdout;
        if !works.contains("sandbox: agents use") {
            println!("left out: {kind} does not work here");
            continue;
        }
        let scene = failed(kind);
        let home = scene.repo().home();
        let look = "cat half.txt; echo task=$MAINSTEM_TASK; mktemp >/dev/null && echo tmp; \
                    touch ~/outside 2>/dev/null || echo denied; touch inside && exit 7";
        let output = scene.expect(7, &["shell", "T", "--", "sh", "-c", look]);
        assert_eq!(output.stdout, "half\ntask=T\ntmp\ndenied\n", "{}", output.stderr);
        assert!(!home.join("outside").exists());
        scene.expect(0, &["shell", "T", "--no-sandbox", "--", "sh", "-c", "touch ~/outside"]);
        assert!(home.join("outside").exists());
        let workspace = scene.repo().place().join("repo.mainstem/T");
        assert!(workspace.join("inside").exists());
    }
}

#[test]
fn a_task_without_a_workspace_says_where_its_work_is() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T", "echo x > x.txt", "")]));
    let output = scene.expect(1, &["shell", "T"]);
    assert!(output.stderr.contains("no run in this repository"), "{}", output.stderr);
    scene.expect(0, &["run", "plan.toml"]);
    for verb in ["shell", "open"] {
        let output = scene.expect(1, &[verb, "T"]);
        assert!(output.stderr.contains("T has no workspace (state: landed)"), "{}", output.stderr);
        assert!(output.stderr.contains("git show"), "{}", output.stderr);
        let output = scene.expect(1, &[verb, "nope"]);
        assert!(output.stderr.contains("nope"), "{}", output.stderr);
    }
}

#[test]
fn open_starts_the_editor_that_is_configured_or_the_environments() {
    let scene = failed("off");
    let output = scene.expect(1, &["open", "T"]);
    assert!(output.stderr.contains("$EDITOR"), "{}", output.stderr);
    let (editor, seen) = (scene.outside("editor"), scene.outside("seen"));
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", seen.display());
    fs::write(&editor, script).expect("a file");
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).expect("our own file");
    let editor = editor.to_str().expect("a plain path");
    let workspace = scene.repo().place().join("repo.mainstem/T").display().to_string();
    let wait = format!("{editor} --wait");
    scene.spawn_with(&["open", "T"], &[("EDITOR", &wait)]).wait().expect_code(0);
    scene.expect(0, &["config", "set", "workspace.editor", &format!("[\"{editor}\"]")]);
    scene.spawn_with(&["open", "T"], &[("EDITOR", "false")]).wait().expect_code(0);
    let seen = fs::read_to_string(&seen).expect("the editor ran");
    assert_eq!(seen, format!("--wait {workspace}\n{workspace}\n"));
}

#[test]
fn a_run_in_the_background_can_be_watched_left_and_stopped() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let work = format!("echo x > x.txt; until [ -e {} ]; do sleep 0.1; done", go.display());
    let scene =
        scene.plan(&shell_plan(&[("A", "echo a > a.txt", ""), ("B", &work, "needs = [\"A\"]")]));
    assert!(scene.expect(0, &["stop"]).stderr.contains("no run is active here"));
    scene.expect(0, &["run", "--detach", "plan.toml"]);
    wait_until(LONG, "B works", || scene.task("B")["phase"] == "working");
    // Who leaves leaves the run alone.
    let mut first = scene.spawn(&["watch"]);
    wait_until(LONG, "it watches", || first.stderr().contains("watching"));
    first.signal(Signal::INT);
    let left = first.wait().expect_code(0);
    assert!(left.stderr.contains("the run continues"), "{}", left.stderr);
    assert_eq!(scene.task("B")["phase"], "working");
    let second = scene.spawn(&["watch"]);
    wait_until(LONG, "it watches", || second.stderr().contains("watching"));
    let stopped = scene.expect(0, &["stop"]);
    assert!(stopped.stderr.contains("stopped"), "{}", stopped.stderr);
    let seen = second.wait().expect_code(3);
    assert!(seen.stdout.contains("1 landed"), "{}", seen.stdout);
    assert_eq!(scene.status()["state"], "resting");
    fs::write(&go, "").expect("a file");
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["A", "B"]);
}

#[test]
fn runs_are_listed_and_named_by_their_beginning() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("A", "echo a > a.txt", "")]));
    assert!(scene.expect(0, &["runs"]).stderr.contains("no runs in this repository yet"));
    scene.expect(0, &["run", "plan.toml"]);
    let other = shell_plan(&[("B", "echo b > b.txt", ""), ("C", "exit 1", "")]);
    fs::write(scene.repo().path().join("other.toml"), other).expect("a file");
    scene.expect(2, &["run", "--new", "other.toml"]);
    let listed = scene.expect(0, &["runs", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed:#}");
    assert_eq!((&listed[0]["landed"], &listed[0]["tasks"]), (&1.into(), &2.into()));
    assert_eq!((&listed[0]["current"], &listed[1]["current"]), (&true.into(), &false.into()));
    let old = listed[1]["run"].as_str().expect("a name").to_owned();
    let text = scene.expect(0, &["runs"]).stdout;
    assert!(text.contains(&old) && text.contains("1 of 2 landed"), "{text}");
    // All but the last characters: short enough to be short, long enough to be one.
    let new = listed[0]["run"].as_str().expect("a name");
    let same = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count();
    let short = &old[..same + 1];
    for args in [
        &["show", "A", "--run", short][..],
        &["logs", "A", "--run", &short[2..]],
        &["diff", "A", "--run", short],
        &["status", "--run", short],
        &["history", "--run", short],
    ] {
        scene.expect(0, args);
    }
    let both = scene.expect(1, &["status", "--run", "r-"]);
    assert!(both.stderr.contains(&old) && both.stderr.contains(new), "{}", both.stderr);
    let none = scene.expect(1, &["history", "--run", "zzz"]);
    assert!(none.stderr.contains("unknown run zzz") && none.stderr.contains(&old));
}

#[test]
fn config_set_keeps_comments_and_refuses_what_would_be_wrong() {
    let text = "# ours\n[run] # jobs\njobs = 3 # three\n\n[gates]\nverify = [\"true\"]\n";
    let scene = TestScene::new(BIN).config(text);
    let read = || scene.repo().read("mainstem.toml");
    scene.expect(0, &["config", "set", "run.jobs", "4"]);
    assert_eq!(read(), text.replace("jobs = 3", "jobs = 4"));
    scene.expect(0, &["config", "set", "workspace.setup", "[\"npm ci\"]"]);
    scene.expect(0, &["config", "set", "run.timeout", "45m"]);
    scene.expect(0, &["config", "set", "run.retries", "2", "--user"]);
    let after = read();
    assert!(
        after.contains("[workspace]\nsetup = [\"npm ci\"]") && after.contains("timeout = \"45m\"")
    );
    assert!(after.contains("# three") && !after.contains("retries"), "{after}");
    for (key, value) in
        [("run.jobs", "many"), ("run.jobs", "0"), ("sandbox.kind", "glass"), ("run.jbos", "1")]
    {
        let refused = scene.expect(1, &["config", "set", key, value]);
        assert!(!refused.stderr.is_empty());
        assert_eq!(read(), after, "{key} = {value}");
    }
    assert!(scene.expect(1, &["config", "set", "run.jbos", "1"]).stderr.contains("run.jobs"));
}

#[test]
fn config_set_makes_the_file_where_there_is_none() {
    let scene = TestScene::new(BIN);
    scene.repo().write("deep/er/file", "x");
    let deep = scene.repo().path().join("deep/er").display().to_string();
    scene.expect(0, &["-C", &deep, "config", "set", "gates.verify", "[\"make test\"]"]);
    assert_eq!(scene.repo().read("mainstem.toml"), "[gates]\nverify = [\"make test\"]\n");
    let shown = scene.expect(0, &["config", "gates.verify"]).stdout;
    assert!(shown.contains("make test"), "{shown}");
}

#[test]
fn without_a_command_the_commands_are_listed_in_groups() {
    let scene = TestScene::new(BIN);
    let output = scene.expect(0, &[]);
    for group in ["Start:", "Look:", "Steer:", "Recover:", "Maintain:"] {
        assert!(output.stdout.contains(group), "{}", output.stdout);
    }
    assert!(!output.stdout.contains("__"), "{}", output.stdout);
    assert!(scene.expect(0, &["--help"]).stdout.contains("Recover:"));
    scene.expect(0, &["ls"]);
    scene.expect(0, &["ps"]);
    let wrong = scene.expect(64, &["kill"]);
    assert!(wrong.stderr.contains("mainstem stop"), "{}", wrong.stderr);
    scene.expect(64, &["dance"]);
}

#[test]
fn everything_of_ours_can_be_removed_and_work_that_has_not_landed_stays_unless_told_otherwise() {
    let scene = TestScene::new(BIN)
        .config("[run]\nretries = 0\n[workspace]\nkeep = \"failed\"\n[gates]\nverify = [\"test -e README.md\"]\n")
        .plan(&shell_plan(&[
            ("good", "echo good > good.txt", ""),
            ("bad", "echo half > half.txt; exit 1", ""),
        ]));
    let repo = scene.repo();
    repo.git(&["branch", "mine"]);
    scene.expect(2, &["run", "plan.toml"]);
    let refs = || repo.git(&["for-each-ref", "--format=%(refname)"]);
    let before = refs();
    let listed = scene.expect(0, &["clean", "--everything", "--dry-run"]).stdout;
    assert!(listed.contains("would be removed") && listed.contains("has not landed"), "{listed}");
    assert_eq!(refs(), before, "a dry run removed something");
    let said = scene.expect(0, &["clean", "--everything"]);
    assert!(said.stderr.contains("mainstem.toml"), "{}", said.stderr);
    assert!(!repo.git_dir().join("mainstem").exists());
    assert!(!repo.place().join("repo.mainstem").exists());
    assert_eq!(repo.git(&["worktree", "list"]).lines().count(), 1);
    let left = refs();
    assert!(left.contains("refs/heads/mine") && !left.contains("refs/heads/mainstem"), "{left}");
    let kept: Vec<&str> = left.lines().filter(|name| name.starts_with("refs/mainstem/")).collect();
    assert!(!kept.is_empty(), "{left}");
    assert!(kept.iter().all(|name| name.starts_with("refs/mainstem/snapshots/bad/")), "{left}");
    let last = kept.last().expect("there is one");
    assert_eq!(repo.show(last, "half.txt").as_deref(), Some("half\n"));
    assert_eq!(repo.show("main", "good.txt").as_deref(), Some("good\n"));
    scene.expect(0, &["clean", "--everything", "--discard-unlanded"]);
    assert!(!refs().contains("refs/mainstem/"), "{}", refs());
    assert!(!repo.git_dir().join("mainstem").exists());
    scene.expect(64, &["clean", "--discard-unlanded"]);
    // What was removed can be begun again.
    fs::write(repo.path().join("next.toml"), shell_plan(&[("next", "echo n > n.txt", "")]))
        .expect("a file");
    scene.expect(0, &["run", "next.toml"]);
}
