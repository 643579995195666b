//! The target branch is verified again without build caches: a cache that lets broken work pass does not do so for
//! long, and the landing that it let pass is named.

use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// A check that forgives `bad.txt` once it has built something.
const CHECK: &str = "if [ -e bad.txt ] && [ ! -e cache/built ]; then echo bad.txt breaks it; exit 1; fi\n\
                     mkdir -p cache && touch cache/built\n";

fn scene(every: u32, tasks: &[(&str, &str, &str)]) -> TestScene {
    let scene = TestScene::new(BIN);
    scene.repo().commit("check", &[("check.sh", CHECK), (".gitignore", "/cache\n")]);
    scene
        .config(&format!(
            "[gates]\nverify = [\"sh check.sh\"]\ncaches = [\"cache\"]\nrecheck = {every}\n"
        ))
        .plan(&shell_plan(tasks))
}

const A: (&str, &str, &str) = ("A", "echo a > a.txt", "");
const B: (&str, &str, &str) = ("B", "echo b > bad.txt", "needs = [\"A\"]");
const C: (&str, &str, &str) = ("C", "echo c > c.txt", "needs = [\"B\"]\nretries = 0");

#[test]
fn what_only_a_cache_let_pass_is_named_and_nothing_lands_on_it_until_it_is_repaired() {
    let scene = scene(2, &[A, B, C]);
    let out = scene.expect(2, &["run", "plan.toml"]);
    assert!(out.stderr.contains("main fails in a clean checkout since B landed"), "{}", out.stderr);
    assert!(out.stderr.contains("bad.txt breaks it"), "{}", out.stderr);
    assert_eq!(scene.repo().show("main", "c.txt"), None);
    // Nobody repaired it.
    let still = scene.expect(2, &["run"]);
    assert!(still.stdout.contains("bad.txt breaks it"), "{}", still.stdout);
    assert_eq!(scene.repo().show("main", "c.txt"), None);
    scene.repo().git(&["rm", "-q", "bad.txt"]);
    scene.repo().git(&["commit", "-qm", "repaired"]);
    scene.expect(0, &["run"]);
    scene.assert_each_lands_once(&["A", "B", "C"]);
}

#[test]
fn the_landing_is_found_among_all_that_were_not_looked_at() {
    let scene = scene(3, &[A, B, C]);
    let out = scene.expect(2, &["run", "plan.toml"]);
    assert!(out.stderr.contains("main fails in a clean checkout since B landed"), "{}", out.stderr);
    scene.assert_each_lands_once(&["A", "B", "C"]);
    let looks = scene.mainstem(&["history", "--json"]).stdout;
    let looks = looks.lines().filter(|line| line.contains("\"target_rechecked\"")).count();
    assert_eq!(looks, 3, "the last landing, and two to find the first bad one");
}

#[test]
fn a_sound_branch_is_looked_at_and_nobody_is_told() {
    let scene = scene(1, &[A]);
    let out = scene.expect(0, &["run", "plan.toml"]);
    assert!(!out.stderr.contains("clean checkout"), "{}", out.stderr);
    let facts = scene.mainstem(&["history", "--json"]).stdout;
    let seen = facts.lines().filter(|line| line.contains("\"target_rechecked\"")).count();
    assert_eq!(seen, 1, "{facts}");
    scene.assert_nothing_left();
}

#[test]
fn a_check_that_outlived_its_engine_ends_with_the_next_run_that_does_not_want_it() {
    let scene = TestScene::new(BIN);
    let (first, pid) = (scene.outside("first"), scene.outside("pid"));
    let check = format!(
        "if [ ! -e cache/built ] && [ -e '{0}' ]; then echo $$ > '{1}'; exec sleep 1000; fi\n\
         touch '{0}'; mkdir -p cache && touch cache/built\n",
        first.display(),
        pid.display()
    );
    scene.repo().commit("check", &[("check.sh", &check), (".gitignore", "/cache\n")]);
    let scene = scene
        .config("[gates]\nverify = [\"sh check.sh\"]\ncaches = [\"cache\"]\nrecheck = 1\n")
        .plan(&shell_plan(&[A]));
    let engine = scene.spawn(&["run", "--no-preflight", "plan.toml"]);
    wait_until(Duration::from_secs(60), "the check of what landed", || {
        std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
    });
    engine.kill9();
    let pid = std::fs::read_to_string(&pid).expect("it was there");
    scene.expect(0, &["--config", "gates.recheck=0", "run", "--no-preflight"]);
    let alive = std::path::Path::new("/proc").join(pid.trim()).exists();
    assert!(!alive, "process {} still runs", pid.trim());
    scene.assert_nothing_left();
}
