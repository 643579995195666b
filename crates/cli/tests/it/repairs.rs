//! What once went wrong, or nearly: each test is one way to lose work, to land what was not
//! verified, or to get stuck.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use mainstem_testkit::{TestScene, wait_until};
use rustix::process::Signal;

const LONG: Duration = Duration::from_secs(60);

fn scene() -> TestScene {
    TestScene::new(env!("CARGO_BIN_EXE_mainstem"))
}

fn shown(scene: &TestScene, path: &str) -> String {
    scene.repo().show("main", path).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_gate_that_moves_its_checkout_lets_nothing_land_however_often_it_is_tried() {
    let scene = scene();
    let scene =
        scene.plan("version = 1\n[[task]]\nid = \"T\"\nretries = 0\nrun = \"echo x > x.txt\"\n");
    let scene = scene.config(
        "[gates]\nverify = [\"echo good > state && git add -A && git -c user.name=a -c user.email=a@b commit -qm moved || true\", \"grep -q good state\"]\n",
    );
    let before = scene.repo().commit_of("main");
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["retry", "T"]);
    scene.expect(2, &["run"]);
    assert_eq!(scene.repo().commit_of("main"), before, "the second gate is red on the merged tree");
    scene.assert_nothing_left();
}

#[test]
fn commits_that_an_agent_left_behind_on_its_branch_stay_reachable() {
    let scene = scene();
    let run = "echo x > x.txt && git add -A && git -c user.name=a -c user.email=a@b commit -qm work && git rev-parse HEAD > \\\"$MAINSTEM_TMP/../tip\\\" && git checkout -q --detach HEAD~1";
    let scene = scene.plan(&format!("version = 1\n[[task]]\nid = \"T\"\nrun = \"{run}\"\n"));
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(shown(&scene, "x.txt"), "x", "the branch had the work");
}

#[test]
fn another_run_is_refused_while_agents_of_a_killed_one_live() {
    let scene = scene();
    let scene =
        scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"sleep 3; echo x > x.txt\"\n");
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T", "working");
    engine.kill9();
    let refused = scene.expect(1, &["run", "--new", "plan.toml"]);
    assert!(refused.stderr.contains("still has running attempts"), "{}", refused.stderr);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_task_that_leaves_the_plan_and_comes_back_stays_landed() {
    let scene = scene();
    let a = "[[task]]\nid = \"A\"\nrun = \"echo a >> a.txt\"\n";
    let b = "[[task]]\nid = \"B\"\nrun = \"echo b >> b.txt\"\n";
    let scene = scene.plan(&format!("version = 1\n{a}{b}"));
    scene.expect(0, &["run", "plan.toml"]);
    let scene = scene.plan(&format!("version = 1\n{b}"));
    let without = scene.expect(0, &["run", "plan.toml"]);
    let said = "A is no longer in the plan; what it landed (";
    assert!((without.stdout + &without.stderr).contains(said), "people are told");
    let shown = "A is no longer in the plan; the commit it landed (";
    assert!(scene.expect(0, &["status"]).stdout.contains(shown));
    assert_eq!(scene.status()["dropped"][0]["id"], "A");
    let scene = scene.plan(&format!("version = 1\n{a}{b}"));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["A", "B"]);
    assert_eq!(scene.phase("A"), "landed");
    assert_eq!(scene.status()["dropped"], serde_json::Value::Null);
}

#[test]
fn a_begun_task_is_not_dropped_without_a_word() {
    let scene = scene();
    let b = "[[task]]\nid = \"B\"\nrun = \"echo b > b.txt\"\n";
    let scene = scene
        .plan(&format!("version = 1\n[[task]]\nid = \"A\"\nretries = 0\nrun = \"exit 1\"\n{b}"));
    scene.expect(2, &["run", "plan.toml"]);
    let scene = scene.plan(&format!("version = 1\n{b}"));
    let refused = scene.expect(1, &["run", "plan.toml"]);
    assert!(refused.stderr.contains("drops tasks that have begun: A"), "{}", refused.stderr);
    assert!(refused.stderr.contains("mainstem run --new PLAN"), "{}", refused.stderr);
    assert!(refused.stderr.contains("mainstem cancel A"), "{}", refused.stderr);
    scene.expect(1, &["run", "--dry-run", "plan.toml"]);
    scene.expect(0, &["run", "--dry-run", "--new", "plan.toml"]);
    scene.expect(0, &["cancel", "A"]);
    scene.expect(0, &["run", "plan.toml"]);
}

#[test]
fn a_landing_that_somebody_reset_away_can_be_undone_and_tried_again() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    scene.expect(0, &["run", "plan.toml"]);
    scene.repo().git(&["reset", "-q", "--hard", "HEAD~1"]);
    scene.expect(0, &["undo"]);
    assert_eq!(scene.phase("T"), "cancelled");
    scene.expect(0, &["retry", "T"]);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn an_undo_killed_half_way_is_finished_by_the_next() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    scene.expect(0, &["run", "plan.toml"]);
    let log = scene.outside("points");
    scene.spawn_with(&["undo"], &[("MAINSTEM_CRASH_LOG", log.to_str().unwrap())]).wait();
    // That one went through; take it again from the start and die right after the branch moved.
    scene.expect(0, &["retry", "T"]);
    scene.expect(0, &["run"]);
    let points = std::fs::read_to_string(&log).unwrap();
    let moved = points.lines().find(|line| line.ends_with("undo.moved")).unwrap();
    let number = moved.split(' ').next().unwrap();
    scene.spawn_with(&["undo"], &[("MAINSTEM_CRASH_AT", number)]).wait();
    scene.expect(0, &["undo"]);
    assert_eq!(scene.phase("T"), "cancelled");
    assert!(!scene.repo().has("x.txt"), "the checkout followed");
    assert_eq!(scene.repo().git(&["status", "--porcelain"]), "");
}

#[test]
fn setup_runs_again_when_the_workspace_was_reset_under_it() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"cat made.txt > x.txt\"\n");
    let scene = scene.config("[workspace]\nsetup = [\"sleep 2; echo made > made.txt\"]\n");
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T", "preparing");
    engine.kill9();
    wait_until(LONG, "the first setup ends", || {
        scene.facts().iter().any(|fact| fact["type"] == "attempt_intended")
    });
    scene.expect(0, &["run"]);
    assert_eq!(shown(&scene, "x.txt"), "made");
}

#[test]
fn calling_off_a_task_ends_the_verification_of_its_car() {
    let scene = scene();
    let started = scene.outside("gate-started");
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    let scene = scene
        .config(&format!("[gates]\nverify = [\"touch '{}'; sleep 300\"]\n", started.display()));
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the gate runs", || started.exists());
    scene.expect(0, &["cancel", "T"]);
    let ended = engine.wait();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert_eq!(scene.phase("T"), "cancelled");
    scene.assert_nothing_left();
}

#[test]
fn the_first_facts_of_a_run_are_streamed_too() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    let out = scene.expect(0, &["--json", "run", "plan.toml"]);
    let facts = mainstem_testkit::assert_history_gapless(&out.stdout);
    assert_eq!(facts[0]["type"], "run_started");
}

#[test]
fn a_number_of_agents_on_the_command_line_goes_with_that_call() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    scene.expect(0, &["run", "plan.toml", "-j", "7"]);
    let again = scene.expect(0, &["--config", "run.jobs=2", "run"]);
    assert!(again.stdout.contains("2 at a time"), "{}", again.stdout);
}

#[test]
fn nothing_starts_on_a_disk_without_room_and_people_are_told() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    let scene = scene.config("[limits]\ndisk_floor = \"900000G\"\n");
    let mut engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the reason is told", || engine.stderr().contains("waiting for disk space"));
    assert_eq!(scene.phase("T"), "ready");
    engine.signal(Signal::INT);
    assert_eq!(engine.wait().code, 3);
}

#[test]
fn a_reader_that_never_reads_does_not_hold_up_the_run() {
    let scene = scene();
    // Two models in turn: reports of one would be told as one.
    let said = ["a", "b"].map(|model| {
        format!(r#"{{"mainstem":"usage","input_tokens":1,"output_tokens":1,"model":"{model}"}}"#)
            .replace('"', "\\\"")
    });
    let chatty = format!(
        "for i in $(seq 1500); do echo '{}'; echo '{}'; done; echo x > x.txt",
        said[0], said[1]
    );
    let scene = scene.plan(&format!("version = 1\n[[task]]\nid = \"T\"\nrun = \"{chatty}\"\n"));
    // The shell holds a pipe open that nobody reads until the task has landed.
    let engine = scene.spawn_unread(&["--json", "run", "plan.toml"]);
    scene.wait_for_phase("T", "landed");
    engine.kill9();
}

#[test]
fn a_wish_to_retry_that_comes_while_the_attempt_is_being_stopped_counts() {
    let scene = scene();
    let scene = scene.plan(
        "version = 1\n[[task]]\nid = \"T\"\nrun = \"if [ $MAINSTEM_ATTEMPT = 1 ]; then trap '' TERM; sleep 300; fi; echo x > x.txt\"\n",
    );
    let scene = scene.config("[run]\ngrace = \"2s\"\n");
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T", "working");
    scene.expect(0, &["cancel", "T"]);
    scene.expect(0, &["retry", "T"]);
    let ended = engine.wait();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_secret_in_the_history_does_not_land_even_if_the_tip_hides_it() {
    let scene = scene().env("MY_API_KEY", "hunter2-hunter2");
    let commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm";
    let run = format!(
        "echo key=$MY_API_KEY > k.txt && {commit} one && echo hidden > k.txt && {commit} two"
    );
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nretries = 0\nagent = \"a\"\n");
    let scene = scene.config(&format!(
        "[agents.a]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"{run}\"]\nsecrets = [\"MY_API_KEY\"]\n"
    ));
    scene.expect(2, &["run", "plan.toml"]);
    assert!(scene.task("T")["reason"].as_str().unwrap().contains("MY_API_KEY"));
    assert!(!scene.repo().git(&["log", "-p", "main"]).contains("hunter2-hunter2"));
}

#[test]
fn workspaces_are_found_again_when_the_setting_for_new_ones_has_changed() {
    let scene = scene();
    let scene =
        scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt; sleep 2\"\n");
    let engine = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T", "working");
    engine.kill9();
    let elsewhere = scene.outside("elsewhere");
    let root = format!("workspace.root={}", elsewhere.display());
    scene.expect(0, &["--config", &root, "run"]);
    scene.assert_each_lands_once(&["T"]);
}

#[test]
fn a_gate_of_a_killed_engine_does_not_spoil_the_next_verdict() {
    let scene = scene();
    let (started, go) = (scene.outside("gate-started"), scene.outside("go"));
    let gate = format!(
        "test ! -e poison || exit 1; touch '{}'; test -e '{}' && exit 0; while true; do touch poison; sleep 0.02; done",
        started.display(),
        go.display()
    );
    let scene =
        scene.plan("version = 1\n[[task]]\nid = \"T\"\nretries = 0\nrun = \"echo x > x.txt\"\n");
    let scene = scene.config(&format!("[gates]\nverify = [\"{gate}\"]\n"));
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the gate runs", || started.exists());
    engine.kill9();
    std::fs::write(&go, "").unwrap();
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T"]);
    scene.assert_nothing_left();
}

#[test]
fn a_gate_of_an_earlier_attempt_is_ended_before_its_folder_is_used_again() {
    let scene = scene();
    let started = scene.outside("gate-started");
    let gate = format!(
        "if [ $MAINSTEM_ATTEMPT = 1 ]; then touch '{}'; while true; do touch stale.txt; sleep 0.02; done; fi",
        started.display()
    );
    let scene = scene.plan(&format!(
        "version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt; sleep 1\"\nverify = [\"{gate}\"]\n"
    ));
    let engine = scene.spawn(&["run", "plan.toml"]);
    wait_until(LONG, "the gate runs", || started.exists());
    engine.kill9();
    scene.expect(0, &["cancel", "T"]);
    scene.expect(2, &["run"]);
    scene.expect(0, &["retry", "T"]);
    scene.expect(0, &["run"]);
    assert_eq!(scene.repo().show("main", "stale.txt"), None);
    scene.assert_nothing_left();
}

#[test]
fn an_undo_says_so_when_the_branch_went_elsewhere() {
    let scene = scene();
    let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"echo x > x.txt\"\n");
    scene.expect(0, &["run", "plan.toml"]);
    scene.repo().git(&["commit", "-q", "--amend", "-m", "rewritten"]);
    let refused = scene.expect(1, &["undo"]);
    assert!(refused.stderr.contains("is no longer on main"), "{}", refused.stderr);
    assert_eq!(scene.phase("T"), "landed");
}

#[test]
fn no_gate_judges_what_another_gate_or_a_setup_wrote_into_tracked_files() {
    let mend = "sed -i s/bad/good/ code.txt";
    let verify = format!("verify = [\"{mend}\", \"grep -q good code.txt\"]\n");
    let setup = format!(
        "[gates]\nguard = [\"!code.txt\"]\nverify = [\"grep -q good code.txt\"]\n[workspace]\nsetup = [\"test ! -e code.txt || {mend}\"]\n"
    );
    // These commands name the file; work that changes it would wait for a person.
    let train = format!("[gates]\nguard = [\"!code.txt\"]\n{verify}");
    for (of_task, config) in [("", train.as_str()), ("", &setup), (&verify, "")] {
        let scene = scene().config(config).plan(&format!(
            "version = 1\n[[task]]\nid = \"T\"\nretries = 0\nrun = \"echo bad > code.txt\"\n{of_task}"
        ));
        // A branch that fails its own gates would be blamed instead of the task.
        scene.repo().commit("code", &[("code.txt", "good\n")]);
        let before = scene.repo().commit_of("main");
        scene.expect(2, &["run", "plan.toml"]);
        assert_eq!(scene.repo().commit_of("main"), before, "{config}{of_task}");
        scene.assert_phases(&[("T", "failed")]);
        scene.assert_nothing_left();
    }
}

#[test]
fn half_of_an_agents_commits_does_not_land() {
    let commit = "git add -A && git -c user.name=a -c user.email=a@b commit -qm";
    let three = format!(
        "for n in 1 2 3; do echo $n > c$n.txt && {commit} c$n; done; export GIT_SEQUENCE_EDITOR=\\\"sed -i '2s/^pick/edit/'\\\""
    );
    let task = |run: &str| {
        format!("version = 1\n[[task]]\nid = \"T\"\nretries = 0\nrun = \"{three}; {run}\"\n")
    };
    let stopped = scene().plan(&task(
        "git -c user.name=a -c user.email=a@b rebase -q -i HEAD~3; echo more > c4.txt",
    ));
    let before = stopped.repo().commit_of("main");
    let out = stopped.expect(2, &["run", "plan.toml"]);
    assert!(out.stdout.contains("rebase"), "{}", out.stdout);
    assert_eq!(stopped.repo().commit_of("main"), before);
    stopped.assert_nothing_left();

    let behind = scene().plan(&task("git checkout -q --detach HEAD~1"));
    behind.expect(0, &["run", "plan.toml"]);
    assert_eq!(shown(&behind, "c3.txt"), "3");
}

#[test]
fn work_in_a_submodule_lands_verified_and_can_be_checked_out() {
    let scene = scene();
    let part = mainstem_testkit::TestRepo::new();
    let url = part.path().display().to_string();
    let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &url, "part"];
    scene.repo().git(&add);
    let run = "cd part && echo new > new.txt && git add -A && git -c user.name=a -c user.email=a@b commit -qm sub && echo left > left.txt; cd .. && echo x > x.txt";
    let scene = scene
        .config("[gates]\nverify = [\"grep -q new part/new.txt\"]\n")
        .plan(&format!("version = 1\n[[task]]\nid = \"T\"\nrun = \"{run}\"\n"));
    let out = scene.expect(0, &["run", "plan.toml"]);
    assert!(out.stderr.contains("refs/mainstem/inside/T/1/part/"), "{}", out.stderr);
    scene.repo().git(&["submodule", "update", "--no-fetch"]);
    assert_eq!(scene.repo().read("part/new.txt"), "new\n");
    let kept = ["-C", "part", "log", "--all", "--format=", "--name-only"];
    assert!(scene.repo().git(&kept).contains("left.txt"), "the uncommitted file is kept");
    scene.assert_nothing_left();
}
