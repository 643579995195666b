//! Build results of one checkout never pass for those of another: real cargo, a crate without dependencies.

use std::fs;
use std::path::Path;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::{log_of, shell_plan};

use super::BIN;

/// Makes the crate's one test fail.
const BREAKS: &str = "echo 'pub fn answer() -> u32 { 2 }' > src/lib.rs";

/// A crate whose test holds, with the toolchain that built this test.
fn crate_scene() -> TestScene {
    let tools = Path::new(env!("CARGO")).parent().expect("a program is in a folder");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let scene = TestScene::new(BIN).env("PATH", path);
    scene.repo().commit(
        "a crate",
        &[
            ("Cargo.toml", "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            ("src/lib.rs", "pub fn answer() -> u32 { 1 }\n"),
            ("tests/holds.rs", "#[test]\nfn holds() { assert_eq!(demo::answer(), 1); }\n"),
            (".gitignore", "/target/\nCargo.lock\n"),
        ],
    );
    scene
}

fn config(gate: &Path) -> String {
    format!(
        "[run]\nretries = 0\n[land]\nlanes = 2\n[gates]\ncaches = [\"target\"]\nverify = [\"sh {}\"]\n",
        gate.display()
    )
}

/// In one lane the good tree is built while the bad one is checked out in the other, older than what was built.
fn meeting_gate(scene: &TestScene) -> std::path::PathBuf {
    let at = |name: &str| scene.outside(name).display().to_string();
    let wait = |name: &str| {
        format!("n=0; until [ -e {0} ] || [ $n -gt 600 ]; do n=$((n+1)); sleep 0.1; done", at(name))
    };
    let gate = scene.outside("gate.sh");
    let text = format!(
        "if [ ! -e second ]; then cargo test -q --offline; exit; fi\n\
         if grep -q '{{ 2 }}' src/lib.rs; then touch {}; {}; cargo test -q --offline; exit; fi\n\
         {}; touch src/lib.rs; cargo test -q --offline; code=$?; touch {}; exit $code\n",
        at("bad-is-there"),
        wait("good-is-built"),
        wait("bad-is-there"),
        at("good-is-built")
    );
    fs::write(&gate, text).expect("a file in a temporary folder");
    gate
}

fn assert_bad_is_seen(scene: TestScene) {
    let gate = meeting_gate(&scene);
    let bad = format!("touch second; {BREAKS}");
    let plan = shell_plan(&[
        ("T-0", "echo > first", ""),
        ("T-good", "touch second", "needs = [\"T-0\"]\npriority = 9"),
        ("T-bad", &format!("sleep 0.3; {bad}"), "needs = [\"T-0\"]"),
    ]);
    let scene = scene.config(&config(&gate)).plan(&plan);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-0", "landed"), ("T-good", "landed"), ("T-bad", "failed")]);
}

#[test]
fn a_build_folder_that_the_user_shares_by_a_variable_is_not_shared_by_gates() {
    let scene = crate_scene();
    let shared = scene.outside("shared");
    assert_bad_is_seen(scene.env("CARGO_TARGET_DIR", shared));
}

#[test]
fn a_build_folder_that_the_user_shares_by_a_file_is_not_shared_by_gates() {
    let scene = crate_scene();
    let (home, shared) = (scene.outside("cargo"), scene.outside("shared"));
    fs::create_dir_all(&home).expect("a folder in a temporary folder");
    let text = format!("[build]\ntarget-dir = \"{}\"\n", shared.display());
    fs::write(home.join("config.toml"), text).expect("a file in a temporary folder");
    let scene = scene.env("CARGO_HOME", home);
    let said = scene.mainstem(&["doctor"]).stdout;
    assert!(said.contains("checks build in their workspace's `target/`"), "{said}");
    assert_bad_is_seen(scene);
    assert!(!shared.exists(), "something was built for all");
}

#[test]
fn where_no_folder_is_a_workspaces_own_a_gate_gives_no_verdict_and_nothing_lands() {
    let scene = crate_scene();
    let home = scene.outside("cargo");
    fs::create_dir_all(&home).expect("a folder in a temporary folder");
    fs::write(home.join("config.toml"), "[build]\ntarget-dir = \"/builds\"\n").expect("a file");
    scene.repo().commit("nothing is ignored", &[(".gitignore", "Cargo.lock\n")]);
    let scene = scene
        .env("CARGO_HOME", home)
        .config("[run]\nretries = 0\n[gates]\nverify = [\"true\"]\n")
        .plan(&shell_plan(&[("T-1", "echo > x", "")]));
    let head = scene.repo().git(&["rev-parse", "main"]);
    scene.expect(2, &["run", "plan.toml"]);
    assert_eq!(scene.repo().git(&["rev-parse", "main"]), head);
    let ran = scene.facts_of("gate_ran");
    assert_eq!(ran[0]["verdict"], "error", "{ran:?}");
    assert!(ran[0]["detail"].as_str().is_some_and(|d| d.contains("target-dir")), "{ran:?}");
}

#[test]
fn a_clock_that_goes_back_does_not_make_a_lane_believe_an_older_build() {
    let scene = crate_scene();
    let note = scene.repo().path().join(".git/mainstem/lane");
    let gate = scene.outside("gate.sh");
    // As if all of this had been an hour later by the clock, and then the clock had been put right.
    let text = format!(
        "cargo test -q --offline || exit 1\n\
         find target src tests -exec touch -d '1 hour' {{}} +\ntouch -d '1 hour' {}\n",
        note.display()
    );
    fs::write(&gate, text).expect("a file in a temporary folder");
    let plan =
        shell_plan(&[("T-good", "echo > first", ""), ("T-bad", BREAKS, "needs = [\"T-good\"]")]);
    let scene = scene.config(&config(&gate)).plan(&plan);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("T-good", "landed"), ("T-bad", "failed")]);
}

#[test]
fn a_lane_keeps_what_was_built_there_and_nothing_else() {
    let scene = TestScene::new(BIN);
    let (log, gate) = (scene.outside("log"), scene.outside("gate.sh"));
    scene.repo().commit("ignores", &[(".gitignore", "/target/\n"), ("tracked", "1\n")]);
    let text = format!(
        "test ! -e leftover && test \"$(cat tracked)\" = 1 || exit 1\n\
         if [ -e target/built ]; then echo warm >> {0}; else echo cold >> {0}; fi\n\
         mkdir -p target; touch target/built leftover; echo 2 > tracked\n",
        log.display()
    );
    fs::write(&gate, text).expect("a file in a temporary folder");
    let plan = shell_plan(&[("T-1", "echo > a", ""), ("T-2", "echo > b", "needs = [\"T-1\"]")]);
    let scene = scene.config(&config(&gate)).plan(&plan);
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(log_of(&log), "cold\nwarm\n");
    for name in ["leftover", "target/built"] {
        assert!(scene.repo().show("main", name).is_none(), "{name} landed");
    }
}
