//! Several lanes: groups, blame, a branch that is bad itself, gates that flake, deaths on the way.

use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, meet, shell_plan};
use mainstem_testkit::{TestScene, wait_until};

use super::BIN;

/// Good unless a file says otherwise, or two tasks do not bear each other.
const GATE: &str = "sleep 0.1; test ! -e red || exit 1; test ! -e left || test ! -e right";

/// A plan of tasks that all join the train at about the same time.
fn crowd(scene: &TestScene, works: &[String]) -> String {
    let all = meet(&scene.outside("met"), works.len());
    let works: Vec<(String, String)> = works
        .iter()
        .enumerate()
        .map(|(n, work)| (format!("T-{n}"), format!("{all}; {work}")))
        .collect();
    let tasks: Vec<(&str, &str, &str)> =
        works.iter().map(|(id, work)| (id.as_str(), work.as_str(), "")).collect();
    shell_plan(&tasks)
}

fn with_lanes(lanes: u32, gate: &str) -> String {
    format!(
        "[run]\nretries = 0\n[land]\nlanes = {lanes}\ngroups = true\n[gates]\nverify = [\"{gate}\"]\n"
    )
}

/// Every commit of the branch's own line passes the gate in a checkout of its own.
fn assert_line_is_green(scene: &TestScene, gate: &str) {
    let copy = scene.outside("copy");
    let repo = scene.repo().path().display().to_string();
    scene.repo().git(&["clone", "-q", "--no-checkout", &repo, &copy.display().to_string()]);
    for commit in scene.repo().git(&["rev-list", "--first-parent", "main"]).lines() {
        let script = format!("git checkout -q {commit} && {{ {gate}; }}");
        let mut sh = scene.repo().command("sh");
        let done = sh.args(["-c", &script]).current_dir(&copy).status().expect("a shell");
        assert!(done.success(), "{commit} is red");
    }
}

#[test]
fn with_three_lanes_every_commit_passes_although_three_in_ten_tasks_are_red() {
    let scene = TestScene::new(BIN);
    let works: Vec<String> = (0..16)
        .map(|n| match n {
            2 | 5 | 9 | 11 => format!("echo {n} > {n}.txt; echo > red"),
            6 => "echo > left".to_owned(),
            13 => "echo > right".to_owned(),
            _ => format!("echo {n} > {n}.txt"),
        })
        .collect();
    let plan = crowd(&scene, &works);
    let scene = scene.config(&with_lanes(3, GATE)).plan(&plan);
    scene.expect(2, &["run", "plan.toml", "-j", "16"]);
    let landed: Vec<String> = scene.landings("main").into_iter().map(|l| l.task).collect();
    assert_eq!(landed.len(), 11, "{landed:?}");
    for red in ["T-2", "T-5", "T-9", "T-11"] {
        scene.assert_phases(&[(red, "failed")]);
    }
    assert_line_is_green(&scene, GATE);
    let runs = scene.facts_of("gate_ran").len();
    assert!(runs < 60, "{runs} verifications of 16 tasks");
    let told = scene.expect(0, &["history"]).stdout;
    let group =
        told.lines().any(|line| line.contains("check") && line.matches(" + T-").count() > 1);
    assert!(group, "a verdict on a group names all of it: {told}");
    scene.assert_nothing_left();
}

#[test]
fn without_groups_every_task_is_one_commit_of_the_branchs_own_line_and_all_pass() {
    let scene = TestScene::new(BIN);
    let works: Vec<String> = (0..9)
        .map(|n| match n {
            2 | 5 => format!("echo {n} > {n}.txt; echo > red"),
            _ => format!("echo {n} > {n}.txt"),
        })
        .collect();
    let plan = crowd(&scene, &works);
    let config = with_lanes(3, GATE).replace("groups = true\n", "");
    let scene = scene.config(&config).plan(&plan);
    scene.expect(2, &["run", "plan.toml", "-j", "9"]);
    let line = scene.repo().git(&[
        "log",
        "--first-parent",
        "--format=%(trailers:key=Mainstem-Task,valueonly)",
        "main",
    ]);
    let mut tasks: Vec<&str> = line.split_whitespace().collect();
    tasks.sort_unstable();
    assert_eq!(tasks, ["T-0", "T-1", "T-3", "T-4", "T-6", "T-7", "T-8"]);
    let landings = line.lines().filter(|l| !l.trim().is_empty()).count();
    assert_eq!(landings, 7, "{line}");
    assert_line_is_green(&scene, GATE);
    scene.assert_nothing_left();
}

#[test]
fn a_group_lands_as_one_commit_whose_tasks_can_be_undone_one_by_one() {
    let scene = TestScene::new(BIN);
    let works: Vec<String> = (0..6).map(|n| format!("echo {n} > {n}.txt")).collect();
    let plan = crowd(&scene, &works);
    let scene = scene.config(&with_lanes(4, "sleep 0.3; test ! -e red")).plan(&plan);
    scene.expect(0, &["run", "plan.toml", "-j", "6"]);
    let ids: Vec<String> = (0..6).map(|n| format!("T-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.assert_each_lands_once(&ids);
    let log = scene.repo().git(&["log", "--first-parent", "--format=%B", "main"]);
    assert!(log.contains("Mainstem-Batch: "), "no group: {log}");
    let there = || (0..6).filter(|n| scene.repo().show("main", &format!("{n}.txt")).is_some());
    assert_eq!(there().count(), 6);
    scene.expect(0, &["undo"]);
    assert_eq!(there().count(), 5, "one task is taken back, not its group");
}

#[test]
fn a_commit_of_somebody_else_between_verifying_and_landing_is_never_lost() {
    let scene = TestScene::new(BIN);
    let (flag, repo) = (scene.outside("flag"), scene.repo().path().display().to_string());
    let gate = format!(
        "if mkdir {} 2>/dev/null; then git -C {repo} -c user.name=a -c user.email=a@b commit -q --allow-empty -m foreign; fi",
        flag.display()
    );
    let works: Vec<String> = (0..5).map(|n| format!("echo {n} > {n}.txt")).collect();
    let plan = crowd(&scene, &works);
    let scene = scene.config(&with_lanes(3, &gate)).plan(&plan);
    scene.expect(0, &["run", "plan.toml", "-j", "5"]);
    let subjects = scene.repo().git(&["log", "--first-parent", "--format=%s", "main"]);
    assert_eq!(subjects.lines().filter(|line| *line == "foreign").count(), 1, "{subjects}");
    scene.assert_each_lands_once(&["T-0", "T-1", "T-2", "T-3", "T-4"]);
    scene.assert_nothing_left();
}

#[test]
fn a_red_target_branch_holds_the_train_up_and_blames_nobody() {
    for lanes in [1, 3] {
        let scene = TestScene::new(BIN);
        scene.repo().commit("breaks it", &[("red", "x")]);
        let works: Vec<String> = (0..2).map(|n| format!("echo {n} > {n}.txt")).collect();
        let plan = crowd(&scene, &works);
        let scene = scene.config(&with_lanes(lanes, "test ! -e red")).plan(&plan);
        let first = scene.expect(2, &["run", "plan.toml", "-j", "2"]);
        let said = format!("{}{}", first.stdout, first.stderr);
        assert!(
            said.contains("merging is paused: on main itself `test ! -e red` failed"),
            "{said}"
        );
        let end = said.split("────").last().unwrap_or_default();
        assert!(end.contains("fix main, then mainstem run"), "the summary: {end}");
        for command in ["status", "train"] {
            let output = scene.expect(0, &[command]);
            assert!(output.stdout.contains("fix main, then mainstem run"), "{}", output.stdout);
        }
        scene.assert_phases(&[("T-0", "merging"), ("T-1", "merging")]);
        assert_eq!(car_states(&scene), ["queued", "queued"], "nobody verifies anything");
        assert!(scene.facts_of("car_evicted").is_empty());
        for id in ["T-0", "T-1"] {
            let task = scene.task(id);
            assert!(
                task["reason"].as_str().is_some_and(|why| why.contains("main itself")),
                "{task:#}"
            );
            assert_eq!(task["next_action"], "fix main, then mainstem run");
        }
        let shown = scene.expect(0, &["status"]).stdout;
        assert!(shown.contains("main itself"), "{shown}");
        assert_eq!(scene.repo().git(&["worktree", "list"]).matches("_train").count(), 1);
        scene.repo().git(&["rm", "-q", "red"]);
        scene.repo().git(&["commit", "-qm", "repairs it"]);
        scene.expect(0, &["run"]);
        scene.assert_each_lands_once(&["T-0", "T-1"]);
        scene.assert_nothing_left();
    }
}

/// How far the cars are, by `status --json`, in order.
fn car_states(scene: &TestScene) -> Vec<String> {
    let status = scene.status();
    let train = status["train"].as_array().expect("a list").iter();
    train.map(|car| car["state"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_car_whose_gates_run_is_told_from_one_that_waits_for_those_before_it() {
    let scene = TestScene::new(BIN);
    let (begun, go) = (scene.outside("begun"), scene.outside("go"));
    let (begun_at, go_at) = (begun.display(), go.display());
    let wait = |file: &str| format!("until [ -e {file} ]; do sleep 0.1; done");
    // The first car is looked at as long as we like; the second is good at once, and must wait.
    let gate = format!(
        "if [ -e a ] && [ ! -e b ]; then touch {begun_at}; {}; fi",
        wait(&go_at.to_string())
    );
    let late = format!("{}; touch b", wait(&begun_at.to_string()));
    let plan = shell_plan(&[
        ("T-0", "touch first", ""),
        ("T-1", "touch a", "needs = [\"T-0\"]"),
        ("T-2", &late, "needs = [\"T-0\"]"),
    ]);
    let config = with_lanes(2, &gate).replace("groups = true\n", "");
    let scene = scene.config(&config).plan(&plan);
    let running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    let both = || car_states(&scene) == ["verifying", "verified"];
    wait_until(Duration::from_secs(60), "the second car is verified", both);
    fs::write(&go, "").expect("a file in a temporary folder");
    running.wait().expect_code(0);
    scene.assert_each_lands_once(&["T-0", "T-1", "T-2"]);
}

#[test]
fn a_car_that_repairs_a_red_branch_lands() {
    let scene = TestScene::new(BIN);
    scene.repo().commit("breaks it", &[("red", "x")]);
    let plan = shell_plan(&[("T-1", "rm red", "")]);
    let scene = scene.config(&with_lanes(2, "test ! -e red")).plan(&plan);
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T-1"]);
}

#[test]
fn a_gate_that_flakes_costs_nobody_an_attempt_and_is_noted() {
    let scene = TestScene::new(BIN);
    let flag = scene.outside("flag");
    let gate = format!("mkdir {} 2>/dev/null && exit 1; true", flag.display());
    let config = format!("[gates]\nretries = 2\nverify = [\"{gate}\"]\n");
    let scene = scene.config(&config).plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let ran = scene.facts_of("gate_ran");
    assert_eq!((ran.len(), ran[0]["flakes"].as_u64()), (1, Some(1)), "{ran:?}");
    assert_eq!(scene.task("T-1")["attempt"], 1);
}

#[test]
fn kill_9_at_any_step_with_three_lanes_lands_everything_once() {
    let works: Vec<String> = (0..5).map(|n| format!("echo {n} > {n}.txt")).collect();
    let ready = || {
        let scene = TestScene::new(BIN);
        let plan = crowd(&scene, &works);
        scene.config(&with_lanes(3, "sleep 0.1; test ! -e red")).plan(&plan)
    };
    let dry = ready();
    let log = dry.outside("points");
    let args = ["run", "plan.toml", "-j", "5"];
    let path = log.display().to_string();
    dry.spawn_with(&args, &[("MAINSTEM_CRASH_LOG", &path)]).wait().expect_code(0);
    let points = log_of(&log);
    let of_train =
        |line: &&str| ["car.", "train.", "land.", "gate."].iter().any(|part| line.contains(part));
    let numbers: Vec<&str> =
        points.lines().filter(of_train).filter_map(|line| line.split(' ').next()).collect();
    assert!(numbers.len() > 5, "{points}");
    let every = numbers.len().div_ceil(10);
    for number in numbers.into_iter().step_by(every) {
        let scene = ready();
        let dying = scene.spawn_with(&args, &[("MAINSTEM_CRASH_AT", number)]);
        let _ = dying.wait_for(Duration::from_secs(120));
        scene.expect(0, &["run", "plan.toml", "-j", "5"]);
        scene.assert_each_lands_once(&["T-0", "T-1", "T-2", "T-3", "T-4"]);
        assert_line_is_green(&scene, "test ! -e red");
        let status = scene.repo().git(&["status", "--porcelain"]);
        assert!(status.is_empty(), "point {number}: {status}");
        scene.facts();
        scene.assert_nothing_left();
        let _ = fs::remove_dir_all(scene.outside("copy"));
    }
}
