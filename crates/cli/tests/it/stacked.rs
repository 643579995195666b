//! Stacks of pull requests, against the stand-in forge: real pushes, real merges, real HTTP.

use std::fs;

use mainstem_testkit::{TestScene, wait_until};
use serde_json::Value;

use crate::pulls::{LONG, Play, die_at, points};

const TWO: &[(&str, &str, &str)] =
    &[("T-1", "echo a > a.txt", ""), ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]")];

const THREE: &[(&str, &str, &str)] = &[
    ("T-1", "echo a > a.txt", ""),
    ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]"),
    ("T-3", "cat a.txt b.txt > c.txt", "needs = [\"T-2\"]"),
];

fn play(tasks: &[(&str, &str, &str)], land: &str) -> Play {
    Play::new(tasks, &format!("stacked = true\nrequire_checks = false\n{land}"))
}

impl Play {
    fn with_strategy(self, strategy: &str) -> Self {
        let repo = self.scene.repo();
        let text = repo.read("mainstem.toml").replace("\"squash\"", &format!("\"{strategy}\""));
        repo.commit("another strategy", &[("mainstem.toml", &text)]);
        repo.git(&["push", "-q", "origin", "main"]);
        self
    }

    fn pull_of(&self, task: &str) -> Value {
        let head = format!("mainstem/{task}");
        let pulls = self.forge.pulls();
        let of_task = pulls.into_iter().rev().find(|pull| pull["head"]["ref"] == head.as_str());
        of_task.expect("a pull request of the task")
    }

    fn approve(&self, task: &str) {
        let number = self.pull_of(task)["number"].as_u64().expect("a number");
        self.forge.review(number, "alice", "APPROVED", "", &[]);
    }

    /// Landings in the order of the journal, and the files that each brought to the forge's main.
    fn landings(&self) -> Vec<(String, Vec<String>)> {
        let repo = self.scene.repo();
        repo.git(&["fetch", "-q", "origin", "main"]);
        let facts = self.scene.facts_of("task_landed");
        let one = |fact: &Value| {
            let text = |key: &str| fact[key].as_str().expect("text").to_owned();
            let (commit, old) = (text("commit"), text("old"));
            repo.git(&["merge-base", "--is-ancestor", &commit, "FETCH_HEAD"]);
            let files = repo.git(&["diff", "--name-only", &old, &commit]);
            (text("task"), files.lines().map(str::to_owned).collect())
        };
        facts.iter().map(one).collect()
    }

    #[track_caller]
    fn assert_each_brought_its_own(&self, wanted: &[(&str, &str)]) {
        let landings = self.landings();
        let found: Vec<(&str, &str)> = landings
            .iter()
            .map(|(task, files)| (task.as_str(), files.first().map_or("", String::as_str)))
            .collect();
        assert_eq!(found, wanted, "in order, with their own file first: {landings:?}");
        assert!(landings.iter().all(|(_, files)| files.len() == 1), "{landings:?}");
        assert_eq!(self.forge.granted("PUT", "/merge"), wanted.len(), "merged once each");
        assert_eq!(self.forge.pulls().len(), wanted.len());
        let kept = self.scene.repo().git(&["for-each-ref", "refs/mainstem/pulls"]);
        assert!(kept.is_empty(), "{kept}");
        self.scene.assert_nothing_left();
    }

    /// Somebody works on the forge's repository: on this branch, with these files.
    fn somebody_pushes(&self, branch: &str, name: &str, content: &str) {
        let repo = self.scene.repo();
        let other = self.scene.outside("other");
        let path = other.to_str().expect("our own path is text");
        let from = self.forge.path().to_str().expect("our own path is text").to_owned();
        repo.git(&["clone", "-q", "-b", branch, &from, path]);
        fs::write(other.join(name), content).expect("a file in a temporary folder");
        let who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid"];
        let there = |args: &[&str]| repo.git(&[&["-C", path], &who[..], args].concat());
        there(&["add", "-A"]);
        there(&["commit", "-qm", "somebody's"]);
        there(&["push", "-q", "origin", branch]);
        fs::remove_dir_all(&other).expect("it is ours");
    }
}

#[test]
fn a_task_starts_on_the_open_pull_request_of_what_it_needs_and_both_land_in_order() {
    let play = play(TWO, "approvals = 1");
    play.forge.close_orphans();
    let running = play.spawn();
    play.wait_for_pull("T-2");
    assert_eq!(play.pull_of("T-2")["base"]["ref"], "mainstem/T-1");
    let lower = play.pull_of("T-1")["number"].clone();
    let body = play.pull_of("T-2")["body"].to_string();
    assert!(body.contains(&format!("Builds on #{lower}.")), "{body}");
    assert!(play.scene.facts_of("task_landed").is_empty(), "nothing has landed yet");
    play.wait_for_fact("pull_seen", "0 of 1 approvals");
    play.approve("T-2");
    play.wait_for_fact("pull_seen", "of T-1, which is below in the stack");
    let task = play.scene.task("T-2");
    assert_eq!(task["stacked_on"], "T-1", "{task:#}");
    let status = play.scene.expect(0, &["status"]).stdout;
    assert!(status.contains("on T-1"), "{status}");
    assert_eq!(play.forge.granted("PUT", "/merge"), 0);
    play.approve("T-1");
    let output = running.wait().expect_code(0);
    assert!(output.stderr.contains("stacked         on T-1"), "{}", output.stderr);
    play.assert_each_brought_its_own(&[("T-1", "a.txt"), ("T-2", "b.txt")]);
    let pull = play.pull_of("T-2");
    assert_eq!(pull["base"]["ref"], "main");
    assert_eq!(pull["forced"].as_array().map(Vec::len), Some(0), "what was reviewed stays");
    play.assert_landed(&["T-1", "T-2"]);
}

#[test]
fn stacks_of_three_land_in_order_by_every_strategy_with_only_their_own_work() {
    for strategy in ["squash", "merge", "rebase"] {
        let play = play(THREE, "approvals = 1").with_strategy(strategy);
        let running = play.spawn();
        play.wait_for_pull("T-3");
        assert_eq!(play.pull_of("T-3")["base"]["ref"], "mainstem/T-2");
        for task in ["T-3", "T-2", "T-1"] {
            play.approve(task);
        }
        running.wait().expect_code(0);
        let wanted = [("T-1", "a.txt"), ("T-2", "b.txt"), ("T-3", "c.txt")];
        play.assert_each_brought_its_own(&wanted);
        assert_eq!(
            play.scene.repo().show("main", "c.txt").as_deref(),
            Some("a\na\n"),
            "{strategy}"
        );
    }
}

#[test]
fn a_lower_one_that_is_reworked_lands_as_it_became_and_the_upper_one_keeps_its_own_work() {
    let first = "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo one > a.txt; else echo two > a.txt; fi";
    let tasks = [("T-1", first, ""), ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]")];
    for strategy in ["squash", "merge", "rebase"] {
        let play = play(&tasks, "approvals = 1").with_strategy(strategy);
        let running = play.spawn();
        play.wait_for_pull("T-2");
        let lower = play.pull_of("T-1")["number"].as_u64().expect("a number");
        play.forge.review(lower, "alice", "CHANGES_REQUESTED", "two please", &[]);
        play.wait_for_fact("pull_seen", "alice, who requested changes");
        play.approve("T-2");
        play.approve("T-1");
        running.wait().expect_code(0);
        play.assert_each_brought_its_own(&[("T-1", "a.txt"), ("T-2", "b.txt")]);
        let repo = play.scene.repo();
        assert_eq!(repo.show("main", "a.txt").as_deref(), Some("two\n"), "{strategy}");
        assert_eq!(repo.show("main", "b.txt").as_deref(), Some("one\n"), "{strategy}");
    }
}

#[test]
fn an_upper_one_is_reworked_on_its_own_head_and_takes_others_commits_along() {
    let work = "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo one > b.txt; else \
                test -e more.txt && test -e a.txt && echo two > b.txt; fi";
    let tasks = [("T-1", "echo a > a.txt", ""), ("T-2", work, "needs = [\"T-1\"]")];
    let play = play(&tasks, "approvals = 1");
    let running = play.spawn();
    let upper = play.wait_for_pull("T-2");
    play.somebody_pushes("mainstem/T-2", "more.txt", "more\n");
    play.forge.review(upper, "alice", "CHANGES_REQUESTED", "two please", &[]);
    play.wait_for_fact("pull_seen", "alice, who requested changes");
    play.somebody_pushes("mainstem/T-2", "yet.txt", "yet\n");
    play.approve("T-1");
    play.wait_for_fact("task_landed", "T-1");
    play.approve("T-2");
    running.wait().expect_code(0);
    let files = ["b.txt", "more.txt", "yet.txt"].map(str::to_owned).to_vec();
    assert_eq!(play.landings()[1], ("T-2".to_owned(), files));
    assert_eq!(play.scene.repo().show("main", "b.txt").as_deref(), Some("two\n"));
    play.assert_landed(&["T-1", "T-2"]);
}

#[test]
fn a_closed_lower_one_leaves_the_upper_one_to_a_person_and_both_can_be_retried() {
    let play = play(TWO, "approvals = 1");
    let running = play.spawn();
    play.wait_for_pull("T-2");
    let lower = play.pull_of("T-1")["number"].as_u64().expect("a number");
    play.forge.close(lower);
    running.wait().expect_code(2);
    let task = play.scene.task("T-2");
    assert_eq!(task["phase"], "blocked", "{task:#}");
    let reason = task["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("mainstem retry T-1, then mainstem retry T-2"), "{reason}");
    assert_eq!(play.pull_of("T-2")["state"], "open", "it stays for people");
    play.scene.expect(0, &["retry", "T-1"]);
    play.scene.expect(0, &["retry", "T-2"]);
    let running = play.spawn();
    play.wait_for_fact("pull_opened", "\"task\":\"T-2\",\"attempt\":2");
    play.approve("T-2");
    play.approve("T-1");
    running.wait().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
    assert_eq!(play.scene.repo().show("main", "b.txt").as_deref(), Some("a\n"));
}

#[test]
fn an_upper_one_that_conflicts_once_the_lower_one_landed_is_done_again() {
    let work = "cat shared.txt > seen-$MAINSTEM_ATTEMPT.txt; echo mine > shared.txt";
    let tasks = [("T-1", "echo a > a.txt", ""), ("T-2", work, "needs = [\"T-1\"]")];
    let play = play(&tasks, "approvals = 1");
    play.scene.repo().commit("shared", &[("shared.txt", "old\n")]);
    play.scene.repo().git(&["push", "-q", "origin", "main"]);
    let running = play.spawn();
    let upper = play.wait_for_pull("T-2");
    play.somebody_pushes("main", "shared.txt", "theirs\n");
    play.approve("T-1");
    play.wait_for_fact("car_conflicted", "shared.txt");
    play.wait_for_fact("pull_opened", "\"attempt\":2");
    play.approve("T-2");
    running.wait().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
    let repo = play.scene.repo();
    assert_eq!(repo.show("main", "seen-2.txt").as_deref(), Some("theirs\n"));
    assert_eq!(repo.show("main", "a.txt").as_deref(), Some("a\n"));
    assert_eq!(play.pull_of("T-2")["number"], upper, "in the same pull request");
}

#[test]
fn an_upper_one_that_a_person_merges_into_the_lower_one_is_left_to_that_person() {
    let play = play(TWO, "approvals = 1");
    let running = play.spawn();
    let upper = play.wait_for_pull("T-2");
    play.forge.merge_by_hand(upper, "squash");
    play.wait_for_fact("task_blocked", "was merged into mainstem/T-1");
    play.approve("T-1");
    running.wait().expect_code(2);
    play.scene.expect(0, &["skip", "T-2"]);
    play.scene.expect(0, &["run"]);
    assert_eq!(play.landings(), [("T-1".to_owned(), vec!["a.txt".to_owned(), "b.txt".to_owned()])]);
}

#[test]
fn two_lower_ones_that_know_nothing_of_each_other_are_waited_for() {
    let tasks = [
        ("T-1", "echo a > a.txt", ""),
        ("T-2", "echo b > b.txt", ""),
        ("T-3", "cat a.txt b.txt > c.txt", "needs = [\"T-1\", \"T-2\"]"),
    ];
    let play = play(&tasks, "approvals = 1");
    let running = play.spawn();
    play.wait_for_pull("T-1");
    play.wait_for_pull("T-2");
    assert_eq!(play.scene.phase("T-3"), "waiting");
    play.approve("T-1");
    play.wait_for_fact("task_landed", "T-1");
    assert_eq!(play.scene.phase("T-3"), "waiting", "T-2 was begun without T-1");
    play.approve("T-2");
    play.wait_for_pull("T-3");
    play.approve("T-3");
    running.wait().expect_code(0);
    play.assert_landed(&["T-1", "T-2", "T-3"]);
}

#[test]
fn without_the_setting_the_landing_is_waited_for_and_other_modes_refuse_it() {
    let play = Play::new(TWO, "require_checks = false\napprovals = 1");
    let running = play.spawn();
    play.wait_for_pull("T-1");
    play.wait_for_fact("pull_seen", "approvals");
    assert_eq!(play.scene.phase("T-2"), "waiting");
    play.approve("T-1");
    play.wait_for_pull("T-2");
    assert_eq!(play.pull_of("T-2")["base"]["ref"], "main");
    play.approve("T-2");
    running.wait().expect_code(0);
    play.assert_landed(&["T-1", "T-2"]);
    assert!(play.scene.facts_of("pull_stacked").is_empty());
    for mode in ["local", "phase-pr"] {
        let scene = TestScene::new(env!("CARGO_BIN_EXE_mainstem"))
            .config(&format!("[land]\nmode = \"{mode}\"\nstacked = true\n"))
            .plan(&mainstem_testkit::shell_plans::shell_plan(TWO));
        let output = scene.mainstem(&["run", "plan.toml"]);
        assert_ne!(output.code, 0);
        assert!(
            output.stderr.contains("land.stacked") && output.stderr.contains(mode),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn everything_done_twice_and_a_merger_alone_bring_a_stack_home_once() {
    let play = play(THREE, "");
    let env = [("MAINSTEM_EFFECTS_TWICE", "1")];
    play.scene.spawn_with(&["run", "plan.toml"], &env).wait().expect_code(0);
    let told = play.scene.facts_of("noticed");
    assert!(!told.iter().any(|fact| fact.to_string().contains("refused")), "{told:#?}");
    play.assert_each_brought_its_own(&[("T-1", "a.txt"), ("T-2", "b.txt"), ("T-3", "c.txt")]);

    let play = self::play(THREE, "approvals = 1");
    let mut running = play.spawn();
    play.wait_for_pull("T-3");
    wait_until(LONG, "all are looked at", || play.scene.facts_of("pull_seen").len() >= 3);
    running.signal(rustix::process::Signal::INT);
    running.wait().expect_code(3);
    for task in ["T-1", "T-2", "T-3"] {
        play.approve(task);
    }
    play.scene.expect(0, &["merge", "--watch"]);
    play.assert_each_brought_its_own(&[("T-1", "a.txt"), ("T-2", "b.txt"), ("T-3", "c.txt")]);
}

fn dies_at_every_step(
    tasks: &'static [(&str, &str, &str)],
    strategy: &str,
    (from, every): (usize, usize),
) {
    let wanted: Vec<(&str, &str)> =
        tasks.iter().zip(["a.txt", "b.txt", "c.txt"]).map(|(task, file)| (task.0, file)).collect();
    let made = || {
        let play = play(tasks, "").with_strategy(strategy);
        // Only then is a stack's whole way walked.
        let last = tasks.last().expect("some tasks").0;
        play.forge.hold_merges_until(&format!("mainstem/{last}"));
        play
    };
    let names = points(&made());
    for name in ["pull.retargeted", "pull.restacked"] {
        let squashed = strategy != "merge" || name != "pull.restacked";
        assert!(!squashed || names.iter().any(|found| found == name), "{name} in {names:?}");
    }
    let first = names.iter().position(|name| name == "pull.before").unwrap_or(0);
    let places: Vec<usize> = (first + 1 + from..=names.len()).step_by(every).collect();
    die_at(&places, made, |play, _| play.assert_each_brought_its_own(&wanted));
}

#[test]
fn kill_9_at_the_odd_steps_of_a_stack_of_two_lands_each_once() {
    dies_at_every_step(TWO, "squash", (0, 2));
}

#[test]
fn kill_9_at_the_even_steps_of_a_stack_of_two_lands_each_once() {
    dies_at_every_step(TWO, "squash", (1, 2));
}

#[test]
fn kill_9_in_a_stack_of_two_that_is_merged_as_it_is_lands_each_once() {
    dies_at_every_step(TWO, "merge", (0, 4));
}

#[test]
fn kill_9_in_a_stack_of_three_lands_each_once() {
    dies_at_every_step(THREE, "squash", (0, 8));
}

#[test]
fn kill_9_in_a_stack_of_three_that_is_merged_as_it_is_lands_each_once() {
    dies_at_every_step(THREE, "merge", (0, 12));
}
