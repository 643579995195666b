//! From plan to landed commits: what every run keeps, whatever its tasks do.

mod builds;
mod gates;
mod lanes;
mod places;
mod plans;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use mainstem_testkit::shell_plans::{log_of, meet, shell_plan};
use mainstem_testkit::{
    RandomPlanShape, RandomTaskBody, TestScene, max_concurrent, random_plan, wait_until,
};
use serde_json::Value;

pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

fn text<'f>(fact: &'f Value, key: &str) -> &'f str {
    fact[key].as_str().unwrap_or_else(|| panic!("no `{key}`: {fact}"))
}

#[test]
fn a_random_graph_lands_whole_in_order_and_within_its_slots() {
    const SLOTS: usize = 6;
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let shape = RandomPlanShape {
        seed: 4711,
        tasks: 40,
        edge_density: 0.08,
        typical_ms: 30,
        body: RandomTaskBody::Shell { log: log.clone() },
    };
    let (plan, model) = random_plan(&shape);
    let scene = scene.plan(&plan);
    scene.expect(0, &["run", "plan.toml", "-j", &SLOTS.to_string()]);
    scene.assert_each_lands_once(&model.ids());
    assert!(max_concurrent(&log_of(&log)) <= SLOTS, "{}", log_of(&log));
    assert_eq!(log_of(&log).lines().count(), 80, "each agent ran once");
    let facts = scene.facts();
    let needs: BTreeMap<&str, Vec<&str>> = model
        .tasks
        .iter()
        .map(|task| {
            let needs = task.needs.iter().map(|need| model.tasks[*need].id.as_str()).collect();
            (task.id.as_str(), needs)
        })
        .collect();
    assert_bases_contain_needs(&scene, &facts, &needs);
    assert_no_slot_idled(&facts, &needs, SLOTS);
    scene.assert_nothing_left();
}

fn assert_bases_contain_needs(
    scene: &TestScene,
    facts: &[Value],
    needs: &BTreeMap<&str, Vec<&str>>,
) {
    let mut landed: BTreeMap<&str, &str> = BTreeMap::new();
    for fact in facts {
        match text(fact, "type") {
            "task_landed" => {
                landed.insert(text(fact, "task"), text(fact, "commit"));
            }
            "workspace_ready" => {
                let base = text(fact, "base");
                for need in &needs[text(fact, "task")] {
                    let landing = landed.get(need).expect("a need has landed before");
                    scene.repo().git(&["merge-base", "--is-ancestor", landing, base]);
                }
            }
            _ => {}
        }
    }
}

/// From the facts alone: whenever a moment's facts are all told, either no slot is free or nobody
/// could use one.
fn assert_no_slot_idled(facts: &[Value], needs: &BTreeMap<&str, Vec<&str>>, slots: usize) {
    let (mut intended, mut landed) = (BTreeSet::new(), BTreeSet::new());
    let mut busy = BTreeSet::new();
    for (at, fact) in facts.iter().enumerate() {
        match text(fact, "type") {
            "attempt_intended" => {
                intended.insert(text(fact, "task"));
                busy.insert(text(fact, "task"));
            }
            "agent_ended" => {
                busy.remove(text(fact, "task"));
            }
            "task_landed" => {
                landed.insert(text(fact, "task"));
            }
            _ => {}
        }
        assert!(busy.len() <= slots, "more than {slots} at work: {busy:?}");
        let told = facts.get(at + 1).is_none_or(|next| next["at"] != fact["at"]);
        if !told || intended.is_empty() || busy.len() == slots {
            continue;
        }
        let ready = |task: &&str| {
            !intended.contains(*task) && needs[*task].iter().all(|need| landed.contains(need))
        };
        let idle: Vec<_> = needs.keys().filter(|task| ready(task)).collect();
        assert!(idle.is_empty(), "after {fact}: {idle:?} could run, {} at work", busy.len());
    }
}

// ---- what counts as work -------------------------------------------------------------------

#[test]
fn edits_left_uncommitted_land_and_ignored_files_do_not() {
    let scene = TestScene::new(BIN);
    scene.repo().commit("ignore", &[(".gitignore", "*.log\n")]);
    let work = "echo new > new.txt; echo more >> README.md; echo noise > noise.log; rm -f gone.txt";
    scene.repo().commit("gone", &[("gone.txt", "soon\n")]);
    let scene = scene.plan(&shell_plan(&[("T-1", work, "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let main = |path| scene.repo().show("main", path);
    assert_eq!(main("new.txt").as_deref(), Some("new\n"));
    assert_eq!(main("README.md").as_deref(), Some("# A repository\nmore\n"));
    assert_eq!((main("noise.log"), main("gone.txt")), (None, None));
    scene.assert_nothing_left();
}

#[test]
fn exit_0_without_any_work_is_no_success() {
    let scene =
        TestScene::new(BIN).plan(&shell_plan(&[("T-1", "echo done; exit 0", "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "failed")]);
    assert!(scene.landings("main").is_empty());
}

#[test]
fn work_with_a_bad_exit_code_is_no_success() {
    let scene =
        TestScene::new(BIN).plan(&shell_plan(&[("T-1", "echo x > x.txt; exit 3", "retries = 0")]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "failed")]);
    assert_eq!(scene.repo().show("main", "x.txt"), None);
}

#[test]
fn nothing_to_do_is_a_success_that_moves_nothing() {
    let scene = TestScene::new(BIN).plan(
        "version = 1\n[[task]]\nid = \"T-1\"\nscript = [{ nothing_to_do = \"it is there\" }]\n\
         [[task]]\nid = \"T-2\"\nneeds = [\"T-1\"]\nrun = \"echo x > x.txt\"\n",
    );
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-1", "landed"), ("T-2", "landed")]);
    scene.assert_each_lands_once(&["T-2"]);
    scene.assert_nothing_left();
}

#[test]
fn an_agent_that_says_blocked_is_believed_and_not_tried_again() {
    let scene = TestScene::new(BIN).plan(
        "version = 1\n[[task]]\nid = \"T-1\"\nretries = 3\n\
         script = [{ write = \"half.txt\", text = \"half\" }, { blocked = \"no access to X\" }]\n",
    );
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert_eq!((&task["phase"], &task["attempt"]), (&"blocked".into(), &1.into()), "{task:#}");
    assert!(text(&task, "reason").contains("no access to X"), "{task:#}");
    scene.expect(0, &["restore", "T-1", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "half.txt").as_deref(), Some("half"));
}

#[test]
fn work_of_a_failed_attempt_comes_back_byte_for_byte() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T-1",
        "printf 'a\\000b\\377\\r\\n' > odd.bin; mkdir d; echo x > d/x.txt; exit 1",
        "retries = 0",
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["restore", "T-1", "--branch", "back"]);
    scene.repo().write("same.bin", b"a\0b\xff\r\n");
    let expected = scene.repo().git(&["hash-object", "--no-filters", "same.bin"]);
    assert_eq!(scene.repo().git(&["rev-parse", "back:odd.bin"]), expected);
    assert_eq!(scene.repo().show("back", "d/x.txt").as_deref(), Some("x\n"));
}

#[test]
fn work_of_a_cancelled_attempt_comes_back() {
    let scene = TestScene::new(BIN);
    let log = scene.outside("log");
    let work = format!("echo precious > work.txt; {}; sleep 600", meet(&log, 1));
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "working");
    wait_until(Duration::from_secs(60), "the agent works", || !log_of(&log).is_empty());
    scene.expect(0, &["cancel", "T-1"]);
    running.wait().expect_code(2);
    scene.assert_phases(&[("T-1", "cancelled")]);
    scene.expect(0, &["restore", "T-1", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "work.txt").as_deref(), Some("precious\n"));
    scene.assert_nothing_left();
}

#[test]
fn an_agent_gets_what_it_was_promised_and_no_more() {
    let scene = TestScene::new(BIN).env("OTHER_TOKEN", "hush").env("UNRELATED", "noise").plan(
        &shell_plan(&[(
            "T-1",
            "cat > stdin.txt; cp $MAINSTEM_PROMPT prompt.txt; env > env.txt; \
             git branch --show-current > branch.txt; git rev-parse HEAD > head.txt; \
             test -d $MAINSTEM_TMP",
            "description = \"Paint it blue\"",
        )]),
    );
    let base = scene.repo().commit_of("main");
    scene.expect(0, &["run", "plan.toml"]);
    let main = |path| scene.repo().show("main", path).unwrap_or_default();
    assert!(main("stdin.txt").contains("Paint it blue"), "{}", main("stdin.txt"));
    assert_eq!(main("stdin.txt"), main("prompt.txt"));
    assert_eq!(main("branch.txt"), "mainstem/T-1\n");
    let env = main("env.txt");
    let run = scene.status()["run"].as_str().expect("there is a run").to_owned();
    for line in [
        format!("MAINSTEM_RUN={run}"),
        "MAINSTEM_TASK=T-1".to_owned(),
        "MAINSTEM_ATTEMPT=1".to_owned(),
        format!("MAINSTEM_BASE={base}"),
    ] {
        assert!(env.lines().any(|found| found == line), "{line} in {env}");
    }
    assert_eq!(main("head.txt").trim(), base);
    assert!(env.contains("\nMAINSTEM_PORT=") || env.starts_with("MAINSTEM_PORT="), "{env}");
    assert!(!env.contains("hush") && !env.contains("UNRELATED"), "{env}");
}

// ---- failures and what they mean -----------------------------------------------------------

#[test]
fn a_dependent_of_a_failed_task_is_blocked_with_the_chain_named() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("A", "exit 1", "retries = 0"),
        ("B", "echo b > b.txt", "needs = [\"A\"]"),
        ("C", "echo c > c.txt", "needs = [\"B\"]"),
    ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "failed"), ("B", "blocked"), ("C", "blocked")]);
    let task = scene.task("C");
    assert!(text(&task, "reason").contains("C → B → A"), "{task:#}");
    assert_eq!(task["waiting_for"], serde_json::json!(["A"]));
    assert!(text(&task, "next_action").contains("retry A"), "{task:#}");
}

#[test]
fn a_task_tried_again_lands_and_frees_those_behind_it() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let work = format!("test -e {} && echo a > a.txt", go.display());
    let scene = scene.plan(&shell_plan(&[
        ("A", &work, "retries = 0"),
        ("B", "cat a.txt > b.txt", "needs = [\"A\"]"),
    ]));
    scene.expect(2, &["run", "plan.toml"]);
    fs::write(&go, "").expect("a file in a temporary folder");
    scene.expect(0, &["retry", "A"]);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["A", "B"]);
    scene.assert_nothing_left();
}

#[test]
fn a_skipped_task_counts_as_done() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("A", "exit 1", "retries = 0"),
        ("B", "echo b > b.txt", "needs = [\"A\"]"),
    ]));
    scene.expect(2, &["run", "plan.toml"]);
    scene.expect(0, &["skip", "A"]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("A", "skipped"), ("B", "landed")]);
    scene.assert_each_lands_once(&["B"]);
}

#[test]
fn a_task_may_say_that_its_failure_does_not_matter() {
    for (on_failure, code, phase) in [("continue", 2, "failed"), ("skip", 0, "skipped")] {
        let rest = format!("retries = 0\non_failure = \"{on_failure}\"");
        let scene = TestScene::new(BIN).plan(&shell_plan(&[
            ("A", "exit 1", &rest),
            ("B", "echo b > b.txt", "needs = [\"A\"]"),
        ]));
        scene.expect(code, &["run", "plan.toml"]);
        scene.assert_phases(&[("A", phase), ("B", "landed")]);
    }
}

#[test]
fn a_failure_may_end_the_whole_run_gently_or_at_once() {
    for (on_failure, phase) in [("drain", "landed"), ("abort", "ready")] {
        let scene = TestScene::new(BIN);
        let log = scene.outside("log");
        let place = scene.repo().path().display().to_string();
        let rest = if on_failure == "abort" { "sleep 600" } else { "echo b > b.txt" };
        let both = meet(&log, 2);
        let failed = format!("{BIN} -C {place} show A | grep -q failed");
        let second = format!("{both}; until {failed}; do sleep 0.02; done; {rest}");
        let config = format!("[run]\nretries = 0\njobs = 2\non_failure = \"{on_failure}\"\n");
        let scene = scene.config(&config).plan(&shell_plan(&[
            ("A", &format!("{both}; exit 1"), ""),
            ("B", &second, ""),
            ("C", "echo c > c.txt", "after = [\"B\"]"),
        ]));
        scene.expect(2, &["run", "plan.toml"]);
        scene.assert_phases(&[("A", "failed"), ("B", phase)]);
        assert!(["ready", "waiting"].contains(&scene.phase("C").as_str()), "{:#}", scene.status());
        assert_eq!(scene.task("C")["attempt"], 0);
    }
}

#[test]
fn a_rate_limit_is_waited_for_and_costs_no_retry() {
    let scene = TestScene::new(BIN).plan(
        "version = 1\n[[task]]\nid = \"T-1\"\nretries = 0\n\
         script = [{ rate_limit = \"1s\", times = 1 }, { write = \"x.txt\", text = \"x\" }]\n",
    );
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T-1"]);
    assert_eq!(scene.facts_of("provider_limited").len(), 1);
    let moment = |kind: &str, n: usize| text(&scene.facts_of(kind)[n], "at").to_owned();
    let (limited, again) = (moment("provider_limited", 0), moment("attempt_intended", 1));
    assert!(again > limited, "{again} after {limited}");
    assert_eq!(scene.task("T-1")["attempt"], 2);
}

#[test]
fn an_agent_that_takes_too_long_is_ended() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[(
        "T-1",
        "echo half > half.txt; sleep 600",
        "retries = 0\ntimeout = \"500ms\"",
    )]));
    scene.expect(2, &["run", "plan.toml"]);
    let task = scene.task("T-1");
    assert!(text(&task, "reason").contains("time"), "{task:#}");
    scene.expect(0, &["restore", "T-1", "--branch", "back"]);
    assert_eq!(scene.repo().show("back", "half.txt").as_deref(), Some("half\n"));
    scene.assert_nothing_left();
}

#[test]
fn a_flood_of_usage_counts_to_the_last_line_and_does_not_flood_the_journal() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let line = r#"{"mainstem":"usage","input_tokens":10,"output_tokens":5,"cost_usd":0.25}"#;
    let flood = format!("yes '{line}' | head -n 4000");
    let work = format!(
        "{flood}; until [ -e {} ]; do sleep 0.02; done; {flood}; echo x > x.txt",
        go.display()
    );
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(Duration::from_secs(60), "some reports are written down", || {
        scene.status()["totals"]["input_tokens"].as_u64() > Some(0)
    });
    running.kill9();
    fs::write(&go, "").expect("a file in a temporary folder");
    scene.expect(0, &["run"]);
    let totals = scene.status()["totals"].clone();
    assert_eq!(totals["input_tokens"], 80_000, "{totals:#}");
    assert_eq!(totals["output_tokens"], 40_000, "{totals:#}");
    assert_eq!(totals["cost_usd"], 2_000.0, "{totals:#}");
    let told = scene.expect(0, &["history", "--json"]).stdout;
    let reports = told.lines().filter(|line| line.contains("usage_reported")).count();
    assert!(reports < 800, "{reports} facts for 8,000 lines");
}

#[test]
fn usage_counts_once_even_if_the_output_is_read_twice() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go");
    let line = r#"{"mainstem":"usage","input_tokens":10,"output_tokens":5,"cost_usd":0.25}"#;
    let work = format!(
        "echo \"{}\"; until [ -e {} ]; do sleep 0.02; done; echo x > x.txt; echo \"{0}\"",
        line.replace('"', "\\\""),
        go.display()
    );
    let scene = scene.plan(&shell_plan(&[("T-1", &work, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    scene.wait_for_phase("T-1", "working");
    wait_until(Duration::from_secs(60), "the first report is written down", || {
        scene.status()["totals"]["input_tokens"] == 10
    });
    running.kill9();
    fs::write(&go, "").expect("a file in a temporary folder");
    scene.expect(0, &["run"]);
    let totals = scene.status()["totals"].clone();
    assert_eq!(totals["input_tokens"], 20, "{totals:#}");
    assert_eq!(totals["output_tokens"], 10, "{totals:#}");
    assert_eq!(totals["cost_usd"], 0.5, "{totals:#}");
}
