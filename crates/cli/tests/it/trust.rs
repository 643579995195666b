//! What decides about a run is what a person had or accepted, and what one candidate leaves behind decides
//! nothing about the next.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

fn inbox(scene: &TestScene) -> Vec<Value> {
    let status: Value =
        serde_json::from_str(&scene.expect(0, &["status", "--json"]).stdout).expect("JSON");
    status["inbox"].as_array().expect("a list").clone()
}

fn ids(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["id"].as_str().expect("a name")).collect()
}

#[test]
fn a_settings_file_that_landed_decides_nothing_until_a_person_accepts_it() {
    let gates = "[run]\nretries = 0\n[gates]\nverify = [\"sh test.sh\"]\n";
    let none = "[gates]\\nverify = []\\n[workspace]\\nsetup = [\"touch $HOME/ran\"]\\n";
    let scene = TestScene::new(BIN).config(gates).plan(&shell_plan(&[
        ("A", &format!("printf '{none}' > mainstem.toml"), ""),
        ("B", "echo bad > bad.txt", "needs = [\"A\"]"),
    ]));
    let repo = scene.repo();
    repo.commit("by hand", &[("test.sh", "test ! -f bad.txt\n")]);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "landed"), ("B", "failed")]);
    let items = inbox(&scene);
    let item = items.iter().find(|item| item["id"] == "CONFIG").expect("it is in the inbox");
    assert_eq!(item["kind"], "config");
    assert!(item["text"].as_str().expect("words").contains("mainstem.toml"), "{item:#}");
    scene.expect(0, &["retry", "B"]);
    let again = scene.expect(2, &["run"]);
    assert!(again.stderr.contains("mainstem config accept"), "{}", again.stderr);
    assert!(!repo.home().join("ran").exists(), "a setup command that an agent landed ran");
    assert_eq!(repo.show("main", "bad.txt"), None, "red work landed without its gate");
    let said = scene.expect(0, &["config", "accept"]);
    assert!(said.stderr.contains("mainstem.toml"), "{}", said.stderr);
    assert_eq!(ids(&inbox(&scene)), ["F-B"]);
    let shown = scene.expect(0, &["config", "gates.verify"]).stdout;
    assert!(shown.contains("[]"), "{shown}");
}

#[test]
fn what_a_person_commits_by_hand_is_in_force_at_once_also_after_a_landing() {
    let gates = "[run]\nretries = 0\njobs = 2\n";
    let scene = TestScene::new(BIN).config(gates).plan(&shell_plan(&[(
        "A",
        "echo '[run]' > mainstem.toml; echo 'jobs = 7' >> mainstem.toml",
        "",
    )]));
    scene.expect(0, &["run", "plan.toml"]);
    let jobs = |scene: &TestScene| scene.expect(0, &["config", "run.jobs"]).stdout;
    assert!(jobs(&scene).contains(" 2 "), "{}", jobs(&scene));
    scene.repo().commit("by hand", &[("mainstem.toml", "[run]\njobs = 5\n")]);
    assert!(jobs(&scene).contains(" 5 "), "{}", jobs(&scene));
    assert_eq!(ids(&inbox(&scene)), [""; 0]);
}

#[test]
fn work_that_changes_the_script_of_a_gate_waits_for_a_person_and_other_work_lands() {
    let gates = "[run]\nretries = 0\n[gates]\nverify = [\"sh test.sh\"]\n";
    let scene = TestScene::new(BIN).config(gates).plan(&shell_plan(&[
        ("A", "echo 'exit 0' > test.sh; echo bad > bad.txt", ""),
        ("B", "echo b > b.txt", ""),
        ("T", "mkdir -p tests; echo 'assert' > tests/test_a.py", ""),
    ]));
    scene.repo().commit("by hand", &[("test.sh", "test ! -f bad.txt\n")]);
    let ran = scene.expect(2, &["run", "plan.toml"]);
    assert!(ran.stdout.contains("test.sh"), "{}", ran.stdout);
    scene.assert_phases(&[("B", "landed"), ("T", "landed")]);
    let items = inbox(&scene);
    assert_eq!(ids(&items), ["G-A"]);
    assert_eq!(items[0]["kind"], "guarded");
    assert_eq!(scene.repo().show("main", "bad.txt"), None);
    let text = scene.expect(0, &["status"]).stdout;
    assert!(text.contains("mainstem answer G-A accept"), "{text}");
    scene.expect(0, &["answer", "G-A", "accept"]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("A", "landed")]);
    assert_eq!(scene.repo().show("main", "test.sh").as_deref(), Some("exit 0\n"));
}

#[test]
fn ignored_files_of_a_failed_candidate_do_not_decide_about_the_next_one() {
    let config = "[run]\nretries = 0\njobs = 1\n[land]\nlanes = 1\n[gates]\ncaches = [\"cache\"]\n\
                  verify = [\"sh test.sh\"]\n";
    let test = "[ -f evil.sh ] && . ./evil.sh\n[ -e cache/pass ] && exit 0\n\
                [ -e litter ] && exit 0\n[ -e c.txt ] && ls cache > seen 2>/dev/null\n\
                mkdir -p cache; touch cache/green\ntest ! -f bad.txt\n";
    let evil = "mkdir -p cache; touch cache/pass litter; exit 1";
    let scene = TestScene::new(BIN).config(config).plan(&shell_plan(&[
        ("A", &format!("echo '{evil}' > evil.sh"), ""),
        ("B", "echo bad > bad.txt", "after = [\"A\"]"),
        ("C", "echo c > c.txt", "after = [\"B\"]"),
    ]));
    let repo = scene.repo();
    repo.commit("by hand", &[(".gitignore", "cache\nlitter\nseen\n")]);
    repo.commit("by hand", &[("test.sh", test)]);
    scene.expect(2, &["run", "plan.toml"]);
    scene.assert_phases(&[("A", "failed"), ("B", "failed"), ("C", "landed")]);
}

#[test]
fn a_cache_that_the_settings_name_is_there_for_the_next_candidate_after_a_green_one() {
    let config = |caches: &str| {
        format!(
            "[run]\nretries = 0\njobs = 1\n[land]\nlanes = 1\n[gates]\n{caches}verify = [\"sh test.sh\"]\n"
        )
    };
    for (caches, lands) in [("caches = [\"cache\"]\n", true), ("", false)] {
        let scene = TestScene::new(BIN).config(&config(caches)).plan(&shell_plan(&[
            ("A", "echo a > a.txt", ""),
            ("B", "echo b > b.txt", "needs = [\"A\"]"),
        ]));
        scene.repo().commit("by hand", &[(".gitignore", "cache\n")]);
        let test =
            "[ -e b.txt ] && { test -e cache/green; exit; }\nmkdir cache; touch cache/green\n";
        scene.repo().commit("by hand", &[("test.sh", test)]);
        scene.expect(if lands { 0 } else { 2 }, &["run", "plan.toml"]);
    }
}

#[test]
fn pipes_that_an_agent_puts_among_our_files_hang_nobody() {
    for wall in ["bwrap", "landlock"] {
        let scene = TestScene::new(BIN).walled(wall).config("[run]\nretries = 0\n");
        let plant = "echo a > a; for p in /tmp/mainstem-$(id -u) $HOME/.local/state/mainstem; do \
                     mkdir -p $p/ports; cd $p/ports && for i in $(seq 20000 10 29990); do \
                     rm -f $i; mkfifo $i; done; done; true";
        let scene = scene
            .plan(&shell_plan(&[("A", plant, ""), ("B", "echo b > b.txt", "after = [\"A\"]")]));
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_phases(&[("A", "landed"), ("B", "landed")]);
        let ports = scene.repo().home().join(".local/state/mainstem/ports");
        let planted = fs::read_dir(&ports).map(|all| all.count()).unwrap_or(0);
        assert!(planted < 50, "{wall}: an agent wrote {planted} files among our leases");
    }
}

/// What `config run.jobs` says in this folder.
fn jobs_in(scene: &TestScene, folder: &Path) -> String {
    scene.expect(0, &["-C", &folder.display().to_string(), "config", "run.jobs"]).stdout
}

#[test]
fn settings_that_are_a_link_are_watched_where_they_really_are() {
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("A", "printf '[run]\\njobs = 7\\n' > conf/m.toml", ""),
        ("B", "printf '[run]\\njobs = 8\\n' > conf/m.toml", "needs = [\"A\"]"),
    ]));
    let repo = scene.repo();
    repo.write("conf/m.toml", "[run]\njobs = 2\nretries = 0\n");
    symlink("conf/m.toml", repo.path().join("mainstem.toml")).expect("a link");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "by hand"]);
    scene.expect(0, &["run", "plan.toml"]);
    assert_eq!(ids(&inbox(&scene)), ["CONFIG"]);
    assert!(jobs_in(&scene, repo.path()).contains(" 2 "));
    scene.expect(0, &["config", "accept"]);
    assert!(jobs_in(&scene, repo.path()).contains(" 8 "));
}

#[test]
fn settings_that_landed_in_another_encoding_are_not_taken_for_a_persons() {
    // In this encoding a yen sign is the byte of a backslash, so the file in the checkout is not the blob.
    let attributes = "mainstem.toml working-tree-encoding=SHIFT_JIS";
    let land = format!(
        "echo '{attributes}' > .gitattributes; printf '# \\134\\n[run]\\njobs = 7\\n' > mainstem.toml; \
         git add -A; git -c user.name=a -c user.email=a@b.c commit -qm a; git show HEAD:mainstem.toml"
    );
    let scene = TestScene::new(BIN).config("[run]\njobs = 2\nretries = 0\n").plan(&shell_plan(&[
        ("A", &land, ""),
        ("B", "echo b > b.txt", "needs = [\"A\"]"),
        ("C", "git rm -q --cached .gitattributes; rm .gitattributes", "needs = [\"B\"]"),
    ]));
    let repo = scene.repo();
    scene.mainstem(&["run", "plan.toml"]);
    scene.assert_phases(&[("A", "landed"), ("B", "landed"), ("C", "landed")]);
    assert!(jobs_in(&scene, repo.path()).contains(" 2 "), "{}", jobs_in(&scene, repo.path()));
    assert_eq!(ids(&inbox(&scene)), ["CONFIG"]);
}

#[test]
fn the_settings_of_a_linked_worktree_are_in_force_there_and_a_landing_does_not_change_them() {
    let gates = "[run]\nretries = 0\njobs = 2\n[gates]\nverify = [\"sh test.sh\"]\n";
    let scene = TestScene::new(BIN).config(gates).plan(&shell_plan(&[
        ("A", "printf '[run]\\njobs = 7\\n' > mainstem.toml", ""),
        ("B", "echo bad > bad.txt", "after = [\"A\"]"),
    ]));
    let repo = scene.repo();
    repo.commit("by hand", &[("test.sh", "test ! -f bad.txt\n")]);
    let side = scene.outside("side");
    let folder = side.display().to_string();
    repo.git(&["worktree", "add", "-q", "-b", "side", &folder]);
    let shown = scene.expect(0, &["-C", &folder, "config", "gates.verify"]).stdout;
    assert!(shown.contains("sh test.sh"), "{shown}");
    scene.expect(2, &["-C", &folder, "run", "plan.toml"]);
    scene.assert_phases(&[("A", "landed"), ("B", "failed")]);
    assert!(jobs_in(&scene, &side).contains(" 2 "), "{}", jobs_in(&scene, &side));
    scene.expect(0, &["-C", &folder, "config", "accept"]);
    assert!(jobs_in(&scene, &side).contains(" 7 "), "{}", jobs_in(&scene, &side));
}

#[test]
fn the_script_of_a_gate_is_guarded_where_its_links_lead() {
    let gates = "[run]\nretries = 0\n[gates]\nverify = [\"sh test.sh\", \"sh ci/other.sh\"]\n";
    for work in [
        "echo 'exit 0' > scripts/real.sh; echo bad > bad.txt",
        "echo 'exit 0' > scripts/other.sh; echo bad > bad.txt",
        "rm ci; mkdir ci; echo 'exit 0' > ci/other.sh; echo x > x.txt",
    ] {
        let scene = TestScene::new(BIN).config(gates).plan(&shell_plan(&[("A", work, "")]));
        let repo = scene.repo();
        repo.write("scripts/real.sh", "test ! -f bad.txt\n");
        repo.write("scripts/other.sh", "true\n");
        symlink("scripts/real.sh", repo.path().join("test.sh")).expect("a link");
        symlink("scripts", repo.path().join("ci")).expect("a link");
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "by hand"]);
        scene.expect(2, &["run", "plan.toml"]);
        assert_eq!(ids(&inbox(&scene)), ["G-A"], "{work}");
        assert_eq!(repo.show("main", "bad.txt"), None, "{work}");
    }
}
