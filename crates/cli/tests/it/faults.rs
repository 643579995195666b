//! Ordered faults: every effect carried out twice, and one operation on the machine that fails.

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::{log_of, shell_plan};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
/// Operations that are made to fail in each way; `RUN_SLOW=1` takes all.
const SAMPLE: usize = 6;
const RUN: [&str; 4] = ["run", "plan.toml", "-j", "2"];

fn scene() -> TestScene {
    let plan = shell_plan(&[
        ("T-1", "echo a > a.txt", ""),
        ("T-2", "cat a.txt > b.txt", "needs = [\"T-1\"]\nverify = [\"test -s b.txt\"]"),
    ]);
    TestScene::new(BIN).config("[gates]\nverify = [\"test ! -e broken\"]\n").plan(&plan)
}

fn all_is_well(scene: &TestScene) {
    scene.assert_each_lands_once(&["T-1", "T-2"]);
    for path in ["a.txt", "b.txt"] {
        assert_eq!(scene.repo().show("main", path).as_deref(), Some("a\n"), "{path}");
    }
    scene.facts();
    scene.assert_nothing_left();
}

#[test]
fn every_effect_carried_out_twice_lands_each_task_once() {
    let scene = scene();
    scene.spawn_with(&RUN, &[("MAINSTEM_EFFECTS_TWICE", "1")]).wait().expect_code(0);
    all_is_well(&scene);
}

#[test]
fn an_operation_that_fails_once_before_or_after_the_deed_loses_and_doubles_nothing() {
    let dry = scene();
    let log = dry.outside("operations");
    let path = log.display().to_string();
    dry.spawn_with(&RUN, &[("MAINSTEM_FAIL_LOG", path.as_str())]).wait().expect_code(0);
    let operations = log_of(&log).lines().count();
    assert!(operations > 60, "a run does many things: {}", log_of(&log));
    let slow = std::env::var_os("RUN_SLOW").is_some_and(|value| value == "1");
    let step = if slow { 1 } else { operations / SAMPLE };
    for (way, first) in [("", 1), ("+", step / 2 + 1)] {
        for at in (first..=operations).step_by(step) {
            let (scene, at) = (scene(), format!("{at}{way}"));
            let failed = scene.spawn_with(&RUN, &[("MAINSTEM_FAIL_AT", at.as_str())]).wait();
            if failed.code != 0 {
                let again = scene.mainstem(&RUN);
                assert_eq!(again.code, 0, "MAINSTEM_FAIL_AT={at}: {failed:?}, then {again:?}");
            }
            all_is_well(&scene);
        }
    }
}
