//! The sandbox and the workspaces fit real toolchains: temporary folders, names of folders, paths of the settings.

use std::fs;
use std::path::PathBuf;

use mainstem_testkit::TestScene;
use mainstem_testkit::shell_plans::shell_plan;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// The sandboxes that work on this machine, and none.
fn sandboxes() -> Vec<&'static str> {
    let works = |kind: &&str| {
        let report = TestScene::new(BIN).walled(kind).mainstem(&["doctor"]).stdout;
        report.contains("sandbox: agents use")
    };
    let mut kinds: Vec<&'static str> = ["bwrap", "landlock"].into_iter().filter(works).collect();
    kinds.push("off");
    kinds
}

/// Those that are one.
fn real_sandboxes() -> Vec<&'static str> {
    sandboxes().into_iter().filter(|kind| *kind != "off").collect()
}

/// Succeeds only where a temporary file can be made in `TMPDIR`, right there and in a new folder.
const TEMPORARY: &str = "test -n \"$TMPDIR\" && test -d \"$MAINSTEM_TMP\" && f=$(mktemp) && \
     d=$(mktemp -d) && touch \"$d/x\" && case \"$f\" in \"$TMPDIR\"/*) true;; *) exit 9;; esac";

#[test]
fn agents_setup_commands_and_gates_have_a_temporary_folder_in_every_sandbox() {
    for kind in sandboxes() {
        for tmp in ["auto", "private", "shared"].into_iter().take(if kind == "off" { 1 } else { 3 })
        {
            let check = scene_dir_check();
            let scene = TestScene::new(BIN).walled(kind);
            let config = format!(
                "[run]\nretries = 0\n[sandbox]\ntmp = \"{tmp}\"\n\
                 [workspace]\nsetup = ['''{check}''']\n[gates]\nverify = ['''{check}''']\n"
            );
            let run = format!("{check} && echo x > x.txt");
            let verify = format!("verify = ['''{check}''']");
            let scene = scene.config(&config).plan(&shell_plan(&[("T", &run, &verify)]));
            // Whatever says so for the person at the prompt is not the agent's.
            let scene = scene.env("TMPDIR", "/nowhere");
            scene.expect(0, &["run", "plan.toml"]);
            scene.assert_each_lands_once(&["T"]);
            scene.assert_nothing_left();
        }
    }
}

fn scene_dir_check() -> String {
    format!("({TEMPORARY})")
}

#[test]
fn nothing_runs_below_a_folder_whose_name_begins_with_a_dot() {
    for kind in sandboxes() {
        let scene = TestScene::new(BIN).walled(kind);
        let root = scene.repo().root().display().to_string();
        // The scene's own folder is the test's choice.
        let check = format!(
            "for d in \"$PWD\" \"$TMPDIR\" \"$MAINSTEM_TMP\"; do \
             case \"${{d#{root}}}\" in */.*) echo \"dot: $d\"; exit 9;; esac; done"
        );
        let config = format!(
            "[run]\nretries = 0\n[workspace]\nsetup = ['''{check}''']\n[gates]\nverify = ['''{check}''']\n"
        );
        let run = format!("{check}; echo x > x.txt");
        let scene = scene.config(&config).plan(&shell_plan(&[("T", &run, "")]));
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_each_lands_once(&["T"]);
    }
}

#[test]
fn a_task_may_be_named_like_the_train() {
    let scene = TestScene::new(BIN)
        .config("[gates]\nverify = [\"test -e README.md\"]\n")
        .plan(&shell_plan(&[("train", "echo x > x.txt", ""), ("tmp", "echo y > y.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["train", "tmp"]);
}

#[test]
fn the_trains_folder_of_an_earlier_version_goes() {
    let scene = TestScene::new(BIN)
        .config("[gates]\nverify = [\"true\"]\nneed_tests = false\n")
        .plan(&shell_plan(&[("T", "date +%N > x.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let lane = scene.repo().place().join("repo.mainstem/_train");
    let old = lane.with_file_name(".train");
    let [from, to] = [&lane, &old].map(|path| path.to_str().expect("a plain path"));
    scene.repo().git(&["worktree", "move", "-f", "-f", from, to]);
    scene.expect(0, &["run", "--new", "plan.toml"]);
    assert!(!old.exists());
    assert!(!scene.repo().git(&["worktree", "list"]).contains(".train"));
    scene.assert_nothing_left();
}

#[test]
fn what_the_train_built_is_there_in_the_next_run_and_goes_with_clean() {
    let scene = TestScene::new(BIN);
    let built = scene.outside("built");
    // Builds into an ignored folder, unless it was built before.
    let gate = format!(
        "test -e target/built || (mkdir -p target && date > target/built && echo x >> {})",
        built.display()
    );
    let config =
        format!("[gates]\ncaches = [\"target\"]\nverify = ['''{gate}''']\n[land]\nlanes = 1\n");
    scene.repo().commit("ignored", &[(".gitignore", "/target\n")]);
    let scene = scene.config(&config).plan(&shell_plan(&[("A", "echo a > a.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let lane = scene.repo().place().join("repo.mainstem/_train");
    assert!(lane.join("target/built").exists(), "the train's workspace is kept");
    let plan = shell_plan(&[("B", "echo b > b.txt", "")]);
    fs::write(scene.repo().path().join("next.toml"), plan).expect("a file");
    scene.expect(0, &["run", "--new", "next.toml"]);
    assert_eq!(fs::read_to_string(&built).expect("it was built").lines().count(), 1);
    scene.expect(0, &["doctor"]);
    scene.expect(0, &["clean"]);
    assert!(!lane.exists());
    assert!(!scene.repo().git(&["worktree", "list"]).contains("_train"));
}

#[test]
fn a_workspace_root_below_the_home_folder_is_no_folder_called_tilde() {
    let scene = TestScene::new(BIN)
        .config(
            "[workspace]\nroot = \"~/worktrees/mice\"\n[gates]\nverify = [\"test -e README.md\"]\n",
        )
        .plan(&shell_plan(&[("T", "pwd > where.txt", "")]));
    scene.expect(0, &["run", "plan.toml"]);
    let home = scene.repo().home().join("worktrees/mice/T");
    let where_it_was = scene.repo().show("main", "where.txt");
    assert_eq!(where_it_was.as_deref(), Some(&*format!("{}\n", home.display())));
    assert!(!scene.repo().path().join("~").exists());
    assert_eq!(scene.repo().git(&["status", "--porcelain"]), "");
}

#[test]
fn a_list_of_writable_paths_adds_to_the_defaults() {
    for kind in real_sandboxes() {
        let scene = TestScene::new(BIN).walled(kind);
        let extra = scene.repo().home().join("extra");
        fs::create_dir_all(&extra).expect("a folder at home");
        let run = "touch ~/extra/x && mkdir -p \"$PIP_CACHE_DIR\" && echo x > x.txt";
        let scene = scene
            .config("[run]\nretries = 0\n[sandbox]\nwrite = [\"~/extra\"]\n")
            .plan(&shell_plan(&[("T", run, "")]));
        scene.expect(0, &["run", "plan.toml"]);
        assert!(extra.join("x").exists());
        let no_defaults = ["--config", "sandbox.write_defaults=false", "run", "--new", "plan.toml"];
        scene.expect(2, &no_defaults);
    }
}

#[test]
fn what_an_agent_downloads_reaches_neither_the_users_caches_nor_other_tasks_nor_the_train() {
    for kind in real_sandboxes() {
        let scene = TestScene::new(BIN).walled(kind);
        let home = scene.repo().home();
        let caches = [
            ".cargo/registry/cache/reg",
            ".npm/_cacache",
            ".m2/repository",
            ".cache/pip",
            ".cache/other",
        ];
        for place in caches {
            fs::create_dir_all(home.join(place)).expect("a folder at home");
            fs::write(home.join(place).join("known-1.0.0.crate"), "known").expect("a file at home");
        }
        scene.repo().commit("a crate", &[("Cargo.toml", "[package]\nname = \"x\"\n")]);
        let writes: Vec<String> =
            caches.iter().map(|place| format!("! touch ~/{place}/evil 2>/dev/null")).collect();
        let reg = "\"$CARGO_HOME/registry/cache/reg\"";
        let clean = format!(
            "grep -q known {reg}/known-1.0.0.crate && ! test -e {reg}/evil.crate && \
             ! test -e \"$XDG_CACHE_HOME/evil\" && grep -q known \"$XDG_CACHE_HOME\"/other/known*"
        );
        let poison = format!(
            "{clean} && {} && echo evil > {reg}/evil.crate && echo evil > \"$XDG_CACHE_HOME/evil\" && \
             ! (echo evil >> {reg}/known-1.0.0.crate) && rm {reg}/known-1.0.0.crate && \
             echo evil > {reg}/known-1.0.0.crate && echo a > a.txt",
            writes.join(" && ")
        );
        let config =
            format!("[run]\nretries = 0\n[gates]\nneed_tests = false\nverify = ['''{clean}''']\n");
        let scene = scene.config(&config).plan(&shell_plan(&[
            ("A", &poison, ""),
            ("B", &format!("{clean} && echo b > b.txt"), "needs = [\"A\"]"),
        ]));
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_each_lands_once(&["A", "B"]);
        for place in caches {
            let there = fs::read_dir(home.join(place)).expect("a folder").count();
            assert_eq!(there, 1, "{place}");
            let text = fs::read_to_string(home.join(place).join("known-1.0.0.crate"));
            assert_eq!(text.expect("a file"), "known");
        }
        scene.assert_nothing_left();
    }
}

/// The cargo home of whoever runs these tests, if it has this crate.
fn cargo_home_with(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let home = named.filter(|home| home.join("registry").is_dir()).or_else(usual)?;
    let registries = fs::read_dir(home.join("registry/cache")).ok()?.flatten();
    let mut crates = registries.flat_map(|one| fs::read_dir(one.path()).into_iter().flatten());
    let is_it = |file: fs::DirEntry| file.file_name().to_string_lossy().starts_with(name);
    crates.any(|file| file.is_ok_and(is_it)).then_some(home)
}

const MANIFEST: &str = "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
     [dependencies]\nitoa = \"1\"\n";

#[test]
fn cargo_builds_offline_with_what_the_user_has_downloaded() {
    let Some(cargo_home) = cargo_home_with("itoa-1.") else {
        return println!("left out: no crates are downloaded here");
    };
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let real_home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for kind in real_sandboxes() {
        let scene = TestScene::new(BIN)
            .walled(kind)
            .env("CARGO_HOME", &cargo_home)
            .env("RUSTUP_HOME", rustup.clone().unwrap_or_else(|| real_home.join(".rustup")));
        scene.repo().commit(
            "a crate",
            &[
                (".gitignore", "/target\n/Cargo.lock\n"),
                ("Cargo.toml", MANIFEST),
                (
                    "src/lib.rs",
                    "#[test]\nfn t() { assert_eq!(itoa::Buffer::new().format(3), \"3\") }\n",
                ),
            ],
        );
        let build = "cargo test --offline --lib";
        let scene = scene
            .config(&format!("[run]\nretries = 0\n[gates]\nverify = [\"{build}\"]\n"))
            .plan(&shell_plan(&[("T", &format!("{build} && echo x > x.txt"), "")]));
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_each_lands_once(&["T"]);
    }
}

#[test]
fn npm_installs_offline_what_the_user_has_downloaded() {
    for kind in real_sandboxes() {
        let scene = TestScene::new(BIN).walled(kind);
        let package = scene.outside("package");
        fs::create_dir_all(&package).expect("a folder");
        let json = "{\"name\":\"some-thing\",\"version\":\"1.0.0\"}";
        fs::write(package.join("package.json"), json).expect("a file");
        fs::write(package.join("index.js"), "module.exports = 42\n").expect("a file");
        let npm = |args: &[&str]| {
            let output = scene.repo().command("npm").args(args).current_dir(&package).output();
            output.ok().filter(|output| output.status.success())
        };
        let Some(packed) = npm(&["pack", "--json"]) else {
            return println!("left out: npm is not installed here");
        };
        let packed: serde_json::Value = serde_json::from_slice(&packed.stdout).expect("JSON");
        let sum = packed.pointer("/0/integrity").and_then(|sum| sum.as_str()).expect("a checksum");
        npm(&["cache", "add", "some-thing-1.0.0.tgz"]).expect("npm fills its cache");
        let lock = serde_json::json!({
            "name": "x", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
            "packages": {
                "": { "name": "x", "version": "1.0.0", "dependencies": { "some-thing": "1.0.0" } },
                "node_modules/some-thing": {
                    "version": "1.0.0", "integrity": sum,
                    "resolved": "https://registry.npmjs.org/some-thing/-/some-thing-1.0.0.tgz",
                },
            },
        });
        let manifest = serde_json::json!({
            "name": "x", "version": "1.0.0", "dependencies": { "some-thing": "1.0.0" },
        });
        scene.repo().commit(
            "a package",
            &[
                (".gitignore", "/node_modules\n"),
                ("package.json", &manifest.to_string()),
                ("package-lock.json", &lock.to_string()),
            ],
        );
        let config = "[run]\nretries = 0\n\
             [workspace]\nsetup = [\"npm ci --offline --no-audit --no-fund\"]\n\
             [gates]\nneed_tests = false\n\
             verify = [\"node -e \\\"process.exit(require('some-thing') - 42)\\\"\"]\n";
        let scene = scene.config(config).plan(&shell_plan(&[("T", "echo x > x.txt", "")]));
        scene.expect(0, &["run", "plan.toml"]);
        scene.assert_each_lands_once(&["T"]);
    }
}
