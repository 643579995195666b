//! Agents that do what no agent should: their run ends with a clear word, nothing committed is
//! lost, nobody else is hurt.

use std::fs;
use std::path::Path;
use std::time::Duration;

use mainstem_testkit::oracle::{leftovers, processes_of};
use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, fake_agent, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// Quick to lose patience, so that tests do not wait for it.
const IMPATIENT: &str = "[run]\nretries = 0\ngrace = \"300ms\"\n";

/// A scene with one misbehaving task and one that is none of its business.
fn scene_with(config: &str, steps: &str) -> TestScene {
    let agent = fake_agent().display().to_string();
    TestScene::new(BIN).config(config).plan(&shell_plan(&[
        ("BAD", &format!("{agent} {steps}"), ""),
        ("GOOD", "echo fine > fine.txt", ""),
    ]))
}

/// Runs it to its end and returns the phase of the bad one; the good one has landed.
fn outcome(scene: &TestScene, code: i32) -> String {
    scene.expect(code, &["run", "plan.toml", "-j", "2"]);
    scene.assert_phases(&[("GOOD", "landed")]);
    assert_eq!(scene.repo().show("main", "fine.txt").as_deref(), Some("fine\n"));
    let task = scene.task("BAD");
    if task["phase"] != "landed" {
        let reason = task["reason"].as_str().unwrap_or_default();
        assert!(!reason.is_empty(), "no reason: {task:#}");
    }
    task["phase"].as_str().expect("a phase is a word").to_owned()
}

/// The work is on main, or a snapshot has it.
fn assert_not_lost(scene: &TestScene, path: &str, content: &str) {
    if scene.repo().show("main", path).as_deref() == Some(content) {
        return;
    }
    scene.expect(0, &["restore", "BAD", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", path).as_deref(), Some(content), "{path} came back");
}

#[test]
fn an_agent_that_ignores_term_and_leaves_a_daemon_is_gone_when_cancelled() {
    let steps = "write half.txt half -- ignore-term -- daemon 600000 -- hang";
    let scene = scene_with(IMPATIENT, steps);
    let running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    scene.wait_for_phase("BAD", "working");
    wait_until(Duration::from_secs(60), "its daemon is there", || {
        let all = processes_of(scene.repo().root(), scene.binary());
        all.iter().any(|process| process.command.contains("__sleep"))
    });
    scene.expect(0, &["cancel", "BAD"]);
    running.wait().expect_code(2);
    scene.assert_phases(&[("BAD", "cancelled"), ("GOOD", "landed")]);
    assert_not_lost(&scene, "half.txt", "half\n");
    scene.assert_nothing_left();
}

#[test]
fn a_second_interrupt_does_not_wait_for_an_agent_that_ignores_the_first() {
    let config = "[run]\nretries = 0\ngrace = \"10m\"\n";
    let scene = scene_with(config, "write half.txt half -- ignore-term -- print deaf -- hang");
    let mut running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    scene.wait_for_phase("GOOD", "landed");
    wait_until(Duration::from_secs(60), "the agent is deaf", || {
        scene.mainstem(&["logs", "BAD"]).stdout.contains("deaf")
    });
    running.signal(Signal::INT);
    wait_until(Duration::from_secs(60), "the agent was asked to end", || {
        !scene.facts_of("stop_requested").is_empty()
    });
    assert!(!running.has_ended(), "once is a request");
    running.signal(Signal::INT);
    running.wait_for(Duration::from_secs(60)).expect_code(3);
    assert!(processes_of(scene.repo().root(), scene.binary()).is_empty());
    assert_not_lost(&scene, "half.txt", "half\n");
}

#[test]
fn a_daemon_that_outlives_its_agent_does_not_outlive_the_attempt() {
    let scene = scene_with(IMPATIENT, "daemon 600000 -- hold-stdout 600000 -- write x.txt x");
    assert_eq!(outcome(&scene, 0), "landed");
    scene.assert_nothing_left();
}

#[test]
fn a_flood_of_output_takes_bounded_room_on_the_disk() {
    let config = format!("{IMPATIENT}[limits]\noutput = \"4M\"\n");
    let scene = scene_with(&config, "flood 200 -- long-line 20 -- write x.txt x");
    assert_eq!(outcome(&scene, 0), "landed");
    let bytes = bytes_below(&scene.repo().git_dir().join("mainstem"));
    assert!(bytes < 16 << 20, "{bytes} bytes are kept of a flood");
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let sizes = entries.flatten().map(|entry| {
        let meta = entry.metadata().expect("nobody removes it");
        if meta.is_dir() { bytes_below(&entry.path()) } else { meta.len() }
    });
    sizes.sum()
}

#[test]
fn bytes_that_are_no_text_and_escape_sequences_are_shown_harmlessly() {
    let scene = scene_with(IMPATIENT, "garbage -- print after -- write x.txt x");
    assert_eq!(outcome(&scene, 0), "landed");
    assert!(scene.facts_of("provider_limited").is_empty(), "half a line is no report");
    let shown = scene.expect(0, &["logs", "BAD"]).stdout;
    assert!(shown.contains("red") && shown.contains("after"), "{shown:?}");
    let bad = |c: char| c.is_control() && !['\n', '\t'].contains(&c) || c == '\u{202e}';
    assert!(!shown.contains(bad), "{shown:?}");
}

#[test]
fn committed_work_survives_an_agent_that_deletes_its_workspace() {
    let scene = scene_with(IMPATIENT, "write a.txt a -- commit work -- delete-workspace");
    outcome(&scene, 0);
    assert_eq!(scene.repo().show("main", "a.txt").as_deref(), Some("a\n"));
    scene.assert_nothing_left();
}

#[test]
fn a_deleted_workspace_without_commits_is_a_failure() {
    let scene = scene_with(IMPATIENT, "write a.txt a -- delete-workspace");
    assert_eq!(outcome(&scene, 2), "failed");
    scene.assert_nothing_left();
}

#[test]
fn committed_work_survives_an_agent_that_breaks_its_git_file() {
    let scene = scene_with(IMPATIENT, "write a.txt a -- commit work -- break-git-file");
    let output = scene.mainstem(&["run", "plan.toml", "-j", "2"]);
    assert!([0, 2].contains(&output.code), "{output:?}");
    scene.assert_phases(&[("GOOD", "landed")]);
    assert_not_lost(&scene, "a.txt", "a\n");
    // A folder that no longer says whose it is is kept, not deleted; nothing else is left.
    let left = leftovers(scene.repo(), scene.binary());
    let kept = |line: &String| line.contains("/.trash/kept-");
    assert!(left.iter().all(kept), "{left:#?}");
}

#[test]
fn work_on_another_branch_is_not_lost() {
    let scene = scene_with(IMPATIENT, "switch elsewhere -- write a.txt a -- commit work");
    let output = scene.mainstem(&["run", "plan.toml", "-j", "2"]);
    assert!([0, 2].contains(&output.code), "{output:?}");
    scene.assert_phases(&[("GOOD", "landed")]);
    assert_not_lost(&scene, "a.txt", "a\n");
    assert_eq!(scene.repo().show("elsewhere", "a.txt").as_deref(), Some("a\n"), "their branch");
    scene.assert_nothing_left();
}

#[test]
fn work_on_a_detached_head_is_not_lost() {
    let scene = scene_with(IMPATIENT, "detach -- write a.txt a -- commit work -- write b.txt b");
    let output = scene.mainstem(&["run", "plan.toml", "-j", "2"]);
    assert!([0, 2].contains(&output.code), "{output:?}");
    scene.assert_phases(&[("GOOD", "landed")]);
    assert_not_lost(&scene, "a.txt", "a\n");
    assert_not_lost(&scene, "b.txt", "b\n");
    scene.assert_nothing_left();
}

#[test]
fn a_lock_left_on_the_index_does_not_keep_the_work_from_landing() {
    let scene = scene_with(IMPATIENT, "write a.txt a -- index-lock");
    assert_eq!(outcome(&scene, 0), "landed");
    assert_eq!(scene.repo().show("main", "a.txt").as_deref(), Some("a\n"));
    scene.assert_nothing_left();
}

#[test]
fn rewritten_history_does_not_land_and_its_content_is_kept() {
    for steps in ["write a.txt a -- commit work -- amend", "write a.txt a -- commit work -- orphan"]
    {
        let scene = scene_with(IMPATIENT, steps);
        let before = scene.repo().commit_of("main");
        assert_eq!(outcome(&scene, 2), "failed", "{steps}");
        scene.repo().git(&["merge-base", "--is-ancestor", &before, "main"]);
        assert_not_lost(&scene, "a.txt", "a\n");
        scene.assert_nothing_left();
    }
}

#[test]
fn an_agent_that_crashes_or_stops_itself_ends_its_own_attempt_only() {
    let scene = scene_with(IMPATIENT, "write a.txt a -- crash");
    assert_eq!(outcome(&scene, 2), "failed");
    assert_not_lost(&scene, "a.txt", "a\n");
    let config = format!("{IMPATIENT}timeout = \"1s\"\n");
    let scene = scene_with(&config, "write a.txt a -- stop");
    assert_eq!(outcome(&scene, 2), "failed");
    assert_not_lost(&scene, "a.txt", "a\n");
    scene.assert_nothing_left();
}

#[test]
fn hooks_and_programs_that_an_agent_plants_do_not_run_in_our_git() {
    let scene = TestScene::new(BIN);
    let (ran, git) = (scene.outside("ran"), scene.repo().git_dir());
    // The agent's own git would run them, so it plants them by hand and uses none.
    let plant = format!(
        "mkdir -p {git}/hooks; for hook in pre-commit post-commit post-checkout post-merge \
         pre-merge-commit reference-transaction post-index-change pre-auto-gc post-rewrite; do \
         printf '#!/bin/sh\\necho %s >> {ran}\\n' $hook > {git}/hooks/$hook; \
         chmod +x {git}/hooks/$hook; done; \
         printf '[core]\\n\\tfsmonitor = \"echo fsmonitor >> {ran}; false\"\\n' >> {git}/config; \
         echo a > a.txt",
        git = git.display(),
        ran = ran.display()
    );
    let scene = scene
        .config("[gates]\nverify = [\"test -e a.txt\"]\n")
        .plan(&shell_plan(&[("BAD", &plant, ""), ("NEXT", "echo b > b.txt", "needs = [\"BAD\"]")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("BAD", "landed"), ("NEXT", "landed")]);
    let ran = fs::read_to_string(&ran).unwrap_or_default();
    assert!(ran.is_empty(), "these ran: {ran}");
}

#[test]
fn an_agent_that_moves_the_target_branch_itself_is_noticed_and_loses_nothing() {
    let scene = TestScene::new(BIN);
    let agent = "-c user.name=a -c user.email=a@example.invalid";
    let work = format!(
        "echo a > a.txt; git add -A; git {agent} commit -qm direct; \
         git update-ref refs/heads/main HEAD"
    );
    let scene = scene.config(IMPATIENT).plan(&shell_plan(&[
        ("BAD", &work, ""),
        ("GOOD", "echo fine > fine.txt", "needs = [\"BAD\"]"),
    ]));
    // The user's files are the old ones, and a commit of them would take the work back: nothing lands until
    // they are brought along, as is said.
    let output = scene.expect(2, &["run", "plan.toml"]);
    let (_, advice) = output.stdout.rsplit_once("run `").expect("advice");
    let advice = advice.split('`').next().unwrap_or_default();
    let sh = scene.repo().command("sh").args(["-c", advice]).status().expect("sh");
    assert!(sh.success(), "{advice}");
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "a.txt").as_deref(), Some("a\n"));
    assert_eq!(scene.repo().read("fine.txt"), "fine\n");
    for landing in scene.landings("main") {
        scene.repo().git(&["merge-base", "--is-ancestor", &landing.commit, "main"]);
    }
    scene.assert_nothing_left();
}

#[test]
fn an_agent_that_takes_more_memory_than_it_may_is_killed_and_the_reason_names_the_limit() {
    let hog = "echo half > half.txt; x=$(yes xxxxxxxxxxxxxxx | head -c 90000000); sleep 600";
    let scene = TestScene::new(BIN)
        .config("[run]\nretries = 0\n[limits]\nmemory_per_agent = \"50M\"\n")
        .plan(&shell_plan(&[("BAD", hog, ""), ("GOOD", "echo fine > fine.txt", "")]));
    assert_eq!(outcome(&scene, 2), "failed");
    let reason = scene.task("BAD")["reason"].to_string();
    assert!(
        reason.contains("killed: more memory used than limits.memory_per_agent (50M)"),
        "{reason}"
    );
    let doctor = scene.mainstem(&["doctor"]);
    assert!(doctor.stdout.contains("limits.memory_per_agent"), "{}", doctor.stdout);
    assert_not_lost(&scene, "half.txt", "half\n");
    scene.assert_nothing_left();
}
