//! The tests that the plans we grew from asked for, under the names they gave them.

use std::fs;
use std::time::Duration;

use mainstem_testkit::oracle::processes_of;
use mainstem_testkit::shell_plans::{ended, log_of, meet, shell_plan, started};
use mainstem_testkit::{TestCommandOutput, TestScene, max_concurrent, wait_until};
use rustix::process::Signal;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

fn run(scene: &TestScene, code: i32, jobs: &str) -> TestCommandOutput {
    scene.expect(code, &["run", "plan.toml", "-j", jobs])
}

// ---- orchestration -------------------------------------------------------------------------

#[test]
fn parallel_execution_two_independent_tasks() {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let both = meet(&log, 2);
    let scene = scene.plan(&shell_plan(&[
        ("T-1", &format!("{both}; echo one > a.txt"), ""),
        ("T-2", &format!("{both}; echo two > b.txt"), ""),
    ]));
    run(&scene, 0, "2");
    assert_eq!(scene.repo().show("main", "a.txt").as_deref(), Some("one\n"));
    assert_eq!(scene.repo().show("main", "b.txt").as_deref(), Some("two\n"));
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    assert!(!scene.repo().place().join("repo.mainstem").exists(), "the workspaces are still there");
    scene.assert_nothing_left();
}

#[test]
fn bounded_concurrency() {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let now = scene.outside("now");
    // The counter is a folder of names: entering and leaving it is atomic, counting it is not
    // early or late for those inside.
    let work = format!(
        "mkdir -p {now} && touch {now}/$MAINSTEM_TASK && ls {now} | wc -l >> {log}.seen; \
         {}; sleep 0.2; echo x > $MAINSTEM_TASK.txt; rm {now}/$MAINSTEM_TASK",
        meet(&log, 2),
        now = now.display(),
        log = log.display(),
    );
    let ids = ["T-1", "T-2", "T-3", "T-4"];
    let list: Vec<_> = ids.iter().map(|id| (*id, work.as_str(), "")).collect();
    let scene = scene.plan(&shell_plan(&list));
    run(&scene, 0, "2");
    let seen = log_of(&scene.outside("log.seen"));
    let seen: Vec<u32> = seen.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.iter().all(|count| *count <= 2), "more than two at once: {seen:?}");
    scene.assert_each_lands_once(&ids);
    scene.assert_nothing_left();
}

#[test]
fn dag_waves() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("B", "test -f a.txt && echo b > b.txt", "needs = [\"A\"]"),
        ("A", "echo a > a.txt", ""),
        ("C", "test -f a.txt && test -f b.txt && echo c > c.txt", "needs = [\"B\"]"),
    ]));
    run(&scene, 0, "3");
    let order: Vec<_> = scene.landings("main").into_iter().map(|landing| landing.task).collect();
    assert_eq!(order, ["A", "B", "C"]);
    scene.assert_nothing_left();
}

fn conflict(on_conflict: &str, phase: &str) {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let both = meet(&log, 2);
    let clash = format!("{both}; printf \"$MAINSTEM_TASK was here\" > same.txt");
    let scene =
        scene.config(&format!("[land]\non_conflict = \"{on_conflict}\"\n")).plan(&shell_plan(&[
            ("T-1", &clash, ""),
            ("T-2", &clash, ""),
            ("T-3", "echo free > other.txt", ""),
        ]));
    run(&scene, 2, "3");
    let winner = scene.repo().show("main", "same.txt").expect("one of them landed");
    let loser = if winner.starts_with("T-1") { "T-2" } else { "T-1" };
    let winner = if loser == "T-1" { "T-2" } else { "T-1" };
    scene.assert_phases(&[(winner, "landed"), (loser, phase), ("T-3", "landed")]);
    scene.assert_each_lands_once(&[winner, "T-3"]);
    assert_eq!(scene.repo().show("main", "other.txt").as_deref(), Some("free\n"));
    scene.expect(0, &["restore", loser, "--branch", "back"]);
    let work = scene.repo().show("back", "same.txt");
    assert_eq!(work, Some(format!("{loser} was here")));
}

#[test]
fn merge_conflict_does_not_block_others() {
    conflict("manual", "conflicted");
}

#[test]
fn merge_conflict_does_not_block_others_when_it_is_a_failure() {
    conflict("fail", "failed");
}

#[test]
fn qa_channel_integrated_with_runner() {
    let scene = TestScene::new(BIN).plan(
        r#"
version = 1
[[task]]
id = "T-1"
priority = 9
script = [
    { ask = "Which colour?", options = ["red", "blue"], into = "answer.txt" },
    { commit = "Take the answer" },
]
[[task]]
id = "T-2"
run = "echo other > other.txt"
"#,
    );
    let running = scene.spawn(&["run", "plan.toml", "-j", "1"]);
    scene.wait_for_phase("T-1", "asking");
    // Whoever asks does not hold up the others, even with one slot.
    scene.wait_for_phase("T-2", "landed");
    let inbox = scene.expect(0, &["questions", "--json"]).stdout;
    assert!(inbox.contains("Which colour?") && inbox.contains("blue"), "{inbox}");
    let question = scene.status()["questions"][0]["id"].as_str().map(str::to_owned);
    scene.expect(0, &["answer", &question.expect("a question has a name"), "blue"]);
    running.wait().expect_code(0);
    assert_eq!(scene.repo().show("main", "answer.txt").as_deref().map(str::trim), Some("blue"));
    assert_eq!(scene.status()["questions"].as_array().map(Vec::len), Some(0));
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn cleanup_on_context_cancel() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let work = format!("echo x > $MAINSTEM_TASK.txt; test -e {} || sleep 600", go.display());
    let scene = scene.plan(&shell_plan(&[("T-1", &work, ""), ("T-2", &work, "")]));
    let mut running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    scene.wait_for_phase("T-1", "working");
    scene.wait_for_phase("T-2", "working");
    running.signal(Signal::INT);
    running.wait_for(Duration::from_secs(40)).expect_code(3);
    wait_until(Duration::from_secs(10), "no process of the run is left", || {
        processes_of(scene.repo().root(), scene.binary()).is_empty()
    });
    assert!(scene.landings("main").is_empty());
    fs::write(&go, "").expect("a file in a temporary folder");
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn prune_on_startup() {
    let scene = TestScene::new(BIN);
    let repo = scene.repo();
    let write = |path: std::path::PathBuf, text: &str| {
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, text).expect("a file in a temporary folder");
    };
    let theirs = scene.outside("theirs");
    repo.git(&["worktree", "add", "-q", "-b", "theirs", &theirs.display().to_string()]);
    fs::write(theirs.join("draft.txt"), "not yours").expect("a file in a worktree");
    let before = repo.commit_of("theirs");
    // What a killed engine and a killed git leave: a worktree that is registered twice over, a
    // folder without any, half an admin folder, locks.
    let ours = repo.place().join("repo.mainstem");
    let stale = ours.join("T-1").display().to_string();
    repo.git(&["worktree", "add", "-q", "-b", "mainstem/T-1", &stale]);
    fs::remove_file(ours.join("T-1/.git")).expect("a worktree has a .git file");
    write(ours.join("T-2/left.txt"), "left over");
    let admin = repo.git_dir().join("worktrees/T-2");
    write(admin.join("gitdir"), &format!("{}\n", ours.join("T-2/.git").display()));
    write(repo.git_dir().join("refs/heads/mainstem/T-2.lock"), "");
    write(repo.git_dir().join("refs/mainstem/snapshots/T-2/1/1.lock"), "");
    write(repo.git_dir().join("worktrees/T-1/index.lock"), "");
    let scene = scene.plan(&shell_plan(&[
        ("T-1", "echo 1 > 1.txt", ""),
        ("T-2", "test ! -e left.txt && echo 2 > 2.txt", ""),
    ]));
    run(&scene, 0, "2");
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    let list = scene.repo().git(&["worktree", "list", "--porcelain"]);
    assert_eq!(list.matches("worktree ").count(), 2, "{list}");
    assert_eq!(fs::read_to_string(theirs.join("draft.txt")).ok().as_deref(), Some("not yours"));
    assert_eq!(
        scene.repo().commit_of("theirs"),
        before,
        "somebody else's branch stays where it was"
    );
}

// ---- the executor --------------------------------------------------------------------------

#[test]
fn single_batch() {
    let ids = ["T-1", "T-2", "T-3"];
    let list = ids.map(|id| (id, "echo x > $MAINSTEM_TASK.txt", ""));
    let scene = TestScene::new(BIN).plan(&shell_plan(&list));
    run(&scene, 0, "3");
    scene.assert_each_lands_once(&ids);
    assert_eq!(scene.status()["totals"]["landed"], 3);
    scene.assert_nothing_left();
}

#[test]
fn order() {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let work = format!("{}; echo x > $MAINSTEM_TASK.txt; {}", started(&log), ended(&log));
    let scene = scene.plan(&shell_plan(&[
        ("T-3", &work, "needs = [\"T-2\"]"),
        ("T-2", &work, "after = [\"T-1\"]"),
        ("T-1", &work, ""),
    ]));
    run(&scene, 0, "3");
    let log = log_of(&log);
    let seen: Vec<_> = log.lines().map(|line| line.rsplit_once(' ').expect("a time").0).collect();
    let expected = ["start T-1", "end T-1", "start T-2", "end T-2", "start T-3", "end T-3"];
    assert_eq!(seen, expected);
}

#[test]
fn concurrency_limit() {
    for (limit, ids) in [(1, &["T-1", "T-2", "T-3"][..]), (3, &["T-1", "T-2", "T-3", "T-4"][..])] {
        let scene = TestScene::new(BIN);
        let log = scene.outside("log");
        let meet = meet(&log, limit);
        let work = format!("{meet}; echo x > $MAINSTEM_TASK.txt; sleep 0.1; {}", ended(&log));
        let list: Vec<_> = ids.iter().map(|id| (*id, work.as_str(), "")).collect();
        let scene = scene.config(&format!("[run]\njobs = {limit}\n")).plan(&shell_plan(&list));
        scene.expect(0, &["run", "plan.toml"]);
        assert_eq!(max_concurrent(&log_of(&log)), limit, "{}", log_of(&log));
        scene.assert_each_lands_once(ids);
    }
}

#[test]
fn failures() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", "echo half > half.txt; echo no luck; exit 7", "retries = 1"),
        ("T-2", "echo x > x.txt", "needs = [\"T-1\"]"),
    ]));
    let said = run(&scene, 2, "2");
    scene.assert_phases(&[("T-1", "failed"), ("T-2", "blocked")]);
    let task = scene.task("T-1");
    assert_eq!(task["attempt"], 2, "{task:#}");
    assert!(task["reason"].as_str().is_some_and(|reason| reason.contains('7')), "{task:#}");
    assert!(task["next_action"].as_str().is_some_and(|next| next.contains("retry")), "{task:#}");
    assert!(said.stdout.contains("exit code 7"), "{}", said.stdout);
    assert!(scene.landings("main").is_empty());
    scene.assert_nothing_left();
}

#[test]
fn cancel() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", "echo x > x.txt; sleep 600", ""),
        ("T-2", "echo y > y.txt", "needs = [\"T-1\"]"),
    ]));
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "working");
    scene.expect(0, &["cancel"]);
    running.wait_for(Duration::from_secs(40)).expect_code(3);
    scene.assert_phases(&[("T-1", "cancelled"), ("T-2", "cancelled")]);
    assert!(scene.landings("main").is_empty());
    scene.assert_nothing_left();
}

#[test]
fn merge() {
    let lines = |top: &str, end: &str| format!("{top}\n1\n2\n3\n4\n5\n6\n{end}\n");
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let both = meet(&log, 2);
    scene.repo().commit("lines", &[("lines.txt", &lines("top", "end"))]);
    let scene = scene.plan(&shell_plan(&[
        ("T-1", &format!("{both}; sed -i 's/top/TOP/' lines.txt"), ""),
        ("T-2", &format!("{both}; sed -i 's/end/END/' lines.txt"), ""),
    ]));
    run(&scene, 0, "2");
    assert_eq!(scene.repo().show("main", "lines.txt"), Some(lines("TOP", "END")));
    for landing in scene.landings("main") {
        let parents = scene.repo().git(&["log", "-1", "--format=%P", &landing.commit]);
        assert_eq!(parents.split(' ').count(), 2, "{landing:?} is a merge");
    }
    scene.assert_nothing_left();
}

#[test]
fn end_to_end() {
    let scene = TestScene::new(BIN).config("[gates]\nverify = [\"test ! -e broken\"]\n").plan(
        r#"
version = 1
title = "A small service"
[[epic]]
id = "E-1"
[[epic]]
id = "E-2"
needs = ["E-1"]
[[task]]
id = "T-1"
epic = "E-1"
title = "Schema"
script = [{ write = "schema.sql", text = "create table t;\n" }, { commit = "Add the schema" }]
[[task]]
id = "T-2"
epic = "E-1"
title = "Left uncommitted"
script = [{ write = "notes.md", text = "notes\n" }]
[[task]]
id = "T-3"
epic = "E-2"
title = "Service"
run = "grep -q table schema.sql && cat notes.md schema.sql > service.txt"
verify = ["grep -q notes service.txt"]
"#,
    );
    run(&scene, 0, "2");
    scene.assert_each_lands_once(&["T-1", "T-2", "T-3"]);
    let service = scene.repo().show("main", "service.txt");
    assert_eq!(service.as_deref(), Some("notes\ncreate table t;\n"));
    assert_eq!(scene.repo().read("service.txt"), "notes\ncreate table t;\n");
    assert!(scene.repo().git(&["status", "--porcelain"]).is_empty());
    let gates = scene.facts_of("gate_ran");
    assert!(gates.iter().all(|gate| gate["verdict"] == "passed"), "{gates:#?}");
    assert_eq!(gates.len(), 4, "three on the merged tree, one of T-3: {gates:#?}");
    scene.assert_nothing_left();
}

#[test]
fn parallel_equals_sequential_but_faster() {
    let mut trees = Vec::new();
    for jobs in [1, 4] {
        let scene = TestScene::new(BIN);
        let log = scene.outside("log");
        let meet = meet(&log, jobs);
        let work = format!("{meet}; echo $MAINSTEM_TASK > $MAINSTEM_TASK.txt; {}", ended(&log));
        let list = ["T-1", "T-2", "T-3", "T-4"].map(|id| (id, work.as_str(), ""));
        let scene = scene.plan(&shell_plan(&list));
        run(&scene, 0, &jobs.to_string());
        // What faster means without a clock: how many worked at the same time.
        assert_eq!(max_concurrent(&log_of(&log)), jobs, "{}", log_of(&log));
        let names = scene.repo().git(&["ls-tree", "-r", "main"]);
        let work: Vec<_> = names.lines().filter(|line| line.contains("\tT-")).collect();
        trees.push(work.join("\n"));
    }
    assert_eq!(trees[0], trees[1]);
    assert_eq!(trees[0].lines().count(), 4);
}

#[test]
fn continues_after_one_failure() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", "exit 1", "priority = 9\nretries = 0"),
        ("T-2", "echo 2 > 2.txt", ""),
        ("T-3", "echo 3 > 3.txt", "needs = [\"T-2\"]"),
    ]));
    run(&scene, 2, "1");
    scene.assert_phases(&[("T-1", "failed"), ("T-2", "landed"), ("T-3", "landed")]);
    scene.assert_each_lands_once(&["T-2", "T-3"]);
    scene.assert_nothing_left();
}
