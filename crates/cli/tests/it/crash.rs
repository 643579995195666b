//! Dying at any instant: after each death a plain `run` finishes the work, once. Deaths at counted
//! places are the business of the chaos campaigns.

use std::collections::BTreeMap;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstem_testkit::oracle::processes_of;
use mainstem_testkit::shell_plans::{log_of, meet, shell_plan};
use mainstem_testkit::{SeededRng, TestCommandOutput, TestScene, wait_until};
use rustix::process::{Pid, Signal, kill_process};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// Rounds at once. Most of a round is waiting for processes to start and end.
const THREADS: usize = 3;
/// Lives after the deaths until a run must have come to its end.
const LIVES_MAX: usize = 3;

const GATES: &str = "[gates]\nverify = [\"test ! -e broken\"]\n[run]\nretries = 0\n";

/// What is run, and what must come of it however often the engine dies.
struct Case {
    tasks: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    plan: fn(&Path) -> String,
}

/// Two at the same time, and one that needs both.
const TRIANGLE: Case = Case {
    tasks: &["T-1", "T-2", "T-3"],
    files: &[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "a\nb\n")],
    plan: |count| {
        shell_plan(&[
            ("T-1", &counted(count, "echo a > a.txt"), ""),
            ("T-2", &counted(count, &format!("echo b > b.txt; {COMMIT}")), ""),
            (
                "T-3",
                &counted(count, "cat a.txt b.txt > c.txt"),
                "needs = [\"T-1\", \"T-2\"]\nverify = [\"test -s c.txt\"]",
            ),
        ])
    },
};

/// An attempt that goes on from finished work has nothing left to commit.
const COMMIT: &str = "git add -A; git diff --cached --quiet || \
    git -c user.name=a -c user.email=a@example.invalid commit -qm work";

/// An agent that notes that it ran.
fn counted(count: &Path, work: &str) -> String {
    format!("echo $MAINSTEM_TASK >> {}; {work}", count.display())
}

impl Case {
    fn scene(&self) -> TestScene {
        let scene = TestScene::new(BIN);
        let plan = (self.plan)(&scene.outside("count"));
        scene.config(GATES).plan(&plan)
    }

    /// Lives until the work is done, then looks at everything a user can see.
    fn finish(&self, scene: &TestScene, story: &str) {
        let mut last = live(scene);
        for _ in 1..LIVES_MAX {
            if last.code == 0 {
                break;
            }
            last = live(scene);
        }
        assert_eq!(last.code, 0, "{story}: {}\n{:#?}", last.stderr, scene.facts());
        scene.assert_each_lands_once(self.tasks);
        for (path, content) in self.files {
            let found = scene.repo().show("main", path);
            assert_eq!(found.as_deref(), Some(*content), "{story}: {path}");
        }
        assert!(scene.repo().git(&["status", "--porcelain"]).is_empty(), "{story}: the checkout");
        scene.facts();
        scene.assert_nothing_left();
        let ran = tally(&log_of(&scene.outside("count")));
        let once = self.tasks.iter().map(|task| ((*task).to_owned(), 1)).collect();
        assert_eq!(ran, once, "{story}: how often each agent ran");
    }
}

fn live(scene: &TestScene) -> TestCommandOutput {
    scene.spawn(&["run", "plan.toml", "-j", "2"]).wait()
}

fn tally(log: &str) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for line in log.lines() {
        *times.entry(line.to_owned()).or_default() += 1;
    }
    times
}

fn at_once<S: Sync + std::fmt::Debug>(stories: &[S], play: impl Fn(&S) + Sync) {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Vec<String>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = std::panic::catch_unwind(AssertUnwindSafe(|| play(story)));
                    if played.is_err() {
                        failed.lock().expect("no thread dies with it").push(format!("{story:?}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread died with it");
    assert!(failed.is_empty(), "not survived: {}", failed.join(" "));
}

#[test]
fn kill_9_at_random_moments_loses_and_doubles_nothing() {
    at_once(&[1, 2, 3, 4, 5], |seed| {
        let mut rng = SeededRng::new(*seed);
        let scene = TRIANGLE.scene();
        for _ in 0..4 {
            let running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
            running.kill9_after(Duration::from_millis(rng.below(900)));
        }
        TRIANGLE.finish(&scene, &format!("seed {seed}"));
    });
}

#[test]
fn a_death_while_an_interrupted_engine_leaves_loses_and_doubles_nothing() {
    at_once(&[0, 20, 60, 120, 200], |ms| {
        let scene = TRIANGLE.scene();
        let mut running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
        wait_until(Duration::from_secs(60), "somebody works", || {
            !log_of(&scene.outside("count")).is_empty() || running.has_ended()
        });
        running.signal(Signal::INT);
        running.kill9_after(Duration::from_millis(*ms));
        let args = ["run", "plan.toml", "-j", "2"];
        scene.expect(0, &args);
        scene.assert_each_lands_once(TRIANGLE.tasks);
        scene.facts();
        scene.assert_nothing_left();
    });
}

#[test]
fn agents_outlive_a_killed_engine_and_are_found_again() {
    let scene = TestScene::new(BIN);
    let (count, go) = (scene.outside("count"), scene.outside("go"));
    let work = format!(
        "echo $MAINSTEM_TASK >> {}; until [ -e {} ]; do sleep 0.02; done; echo x > $MAINSTEM_TASK.txt",
        count.display(),
        go.display()
    );
    let scene = scene.plan(&shell_plan(&[("T-1", &work, ""), ("T-2", &work, "")]));
    let running = scene.spawn(&["run", "plan.toml", "-j", "2"]);
    for id in ["T-1", "T-2"] {
        scene.wait_for_phase(id, "working");
    }
    let before = [pid_of(&scene, "T-1"), pid_of(&scene, "T-2")];
    running.kill9();
    assert_eq!(scene.status()["state"], "crashed");
    let running = scene.spawn(&["run"]);
    wait_until(Duration::from_secs(60), "an engine works again", || {
        scene.status()["state"] == "running"
    });
    assert_eq!([pid_of(&scene, "T-1"), pid_of(&scene, "T-2")], before);
    scene.assert_phases(&[("T-1", "working"), ("T-2", "working")]);
    fs::write(&go, "").expect("a file in a temporary folder");
    running.wait().expect_code(0);
    assert_eq!(log_of(&count).lines().count(), 2, "nobody was started again");
    assert_eq!(scene.task("T-1")["attempt"], 1);
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    scene.assert_nothing_left();
}

fn pid_of(scene: &TestScene, task: &str) -> i64 {
    let task = scene.task(task);
    task["pid"].as_i64().unwrap_or_else(|| panic!("no pid: {task:#}"))
}

#[test]
fn a_killed_supervisor_costs_an_attempt_and_leaves_no_process() {
    let scene = TestScene::new(BIN);
    let (log, go) = (scene.outside("log"), scene.outside("go"));
    let work = format!(
        "{}; echo $MAINSTEM_ATTEMPT > x.txt; until [ -e {} ]; do sleep 0.02; done",
        meet(&log, 1),
        go.display()
    );
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "working");
    wait_until(Duration::from_secs(60), "the agent works", || !log_of(&log).is_empty());
    let agent = pid_of(&scene, "T-1");
    let ours = processes_of(scene.repo().root(), scene.binary());
    let is_supervisor = |command: &str| command.contains("__supervise");
    let supervisors: Vec<_> = ours.iter().filter(|p| is_supervisor(&p.command)).collect();
    assert!(!supervisors.is_empty(), "{ours:?}");
    for process in supervisors {
        let pid = Pid::from_raw(process.pid).expect("a process id is positive");
        // The second one of a pair may have gone with the first.
        let _ = kill_process(pid, Signal::KILL);
    }
    wait_until(Duration::from_secs(60), "the attempt is made again", || {
        log_of(&log).lines().count() == 2
    });
    wait_until(Duration::from_secs(60), "the first agent is gone", || {
        let status = fs::read_to_string(format!("/proc/{agent}/status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tZ")
    });
    fs::write(&go, "").expect("a file in a temporary folder");
    running.wait().expect_code(0);
    assert_eq!(scene.repo().show("main", "x.txt").as_deref(), Some("2\n"));
    scene.assert_each_lands_once(&["T-1"]);
    scene.assert_nothing_left();
}

#[test]
fn a_second_engine_names_the_first_and_changes_nothing() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let work = format!("until [ -e {} ]; do sleep 0.02; done; echo x > x.txt", go.display());
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    let first = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "working");
    let before = scene.facts().len();
    let refs = scene.repo().git(&["for-each-ref"]);
    for args in [&["run"][..], &["run", "plan.toml"], &["run", "--new", "plan.toml"]] {
        let output = scene.expect(1, args);
        let pid = first.pid().to_string();
        assert!(output.stderr.contains(&pid), "{pid} in {}", output.stderr);
    }
    assert_eq!(scene.facts().len(), before);
    assert_eq!(scene.repo().git(&["for-each-ref"]), refs);
    fs::write(&go, "").expect("a file in a temporary folder");
    first.wait().expect_code(0);
    scene.assert_each_lands_once(&["T-1"]);
    scene.assert_nothing_left();
}
