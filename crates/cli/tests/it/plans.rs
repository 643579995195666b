//! Plans, settings and what the program says about itself, as a user meets them: nothing here
//! starts an agent.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mainstem_testkit::{TestCommandOutput, TestRepo, TestScene};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_mainstem");

fn scene() -> TestScene {
    TestScene::new(BINARY)
}

fn json(output: &TestCommandOutput) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", output.stdout, output.stderr))
}

/// Every file below a folder with its content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

const HEAD: &str = "version = 1\n";

fn task(id: &str, rest: &str) -> String {
    format!("[[task]]\nid = {id:?}\nrun = \"true\"\n{rest}\n")
}

/// A bad plan's file name, its bytes, and words its report must hold.
fn bad_plans() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>)> {
    let plan = |tasks: &[String]| format!("{HEAD}{}", tasks.concat()).into_bytes();
    let deep = 100_000;
    vec![
        (
            "cycle.toml",
            plan(&[task("T-1", "needs = [\"T-2\"]"), task("T-2", "needs = [\"T-1\"]")]),
            vec!["plan::cycle", "T-1 → T-2 → T-1", "cycle.toml:5"],
        ),
        (
            "dangling.toml",
            plan(&[task("T-1", ""), task("T-2", "needs = [\"T-11\"]")]),
            vec!["plan::dangling", "T-11", "did you mean `T-1`?"],
        ),
        (
            "twice.toml",
            plan(&[task("T-1", ""), task("T-1", "")]),
            vec!["plan::duplicate_id", "T-1"],
        ),
        ("self.toml", plan(&[task("T-1", "needs = [\"T-1\"]")]), vec!["T-1", "self.toml:5"]),
        ("up.toml", plan(&[task("../x", "")]), vec!["plan::bad_id", "../x"]),
        ("git.toml", plan(&[task(".git", "")]), vec!["plan::bad_id", ".git"]),
        ("lock.toml", plan(&[task("a.lock", "")]), vec!["plan::bad_id", "a.lock"]),
        (
            "key.toml",
            plan(&[task("T-1", "nedes = []")]),
            vec!["plan::unknown_key", "did you mean `needs`?"],
        ),
        (
            "agent.toml",
            format!("{HEAD}[[task]]\nid = \"T-1\"\nagent = \"nobody\"\n").into_bytes(),
            vec!["plan::agent", "nobody"],
        ),
        ("glob.toml", plan(&[task("T-1", "writes = [\"../**\"]")]), vec!["plan::glob"]),
        ("empty.toml", Vec::new(), vec!["error"]),
        ("junk.toml", (0..4096u32).map(|n| (n * 37 % 256) as u8).collect(), vec!["error"]),
        ("junk.yaml", vec![0xff; 100], vec!["error"]),
        ("junk.json", b"{\"version\": 1, \"task\": [{]}".to_vec(), vec!["error"]),
        (
            "deep.toml",
            format!("version = 1\ntask = {}", "[".repeat(deep)).into_bytes(),
            vec!["error"],
        ),
        (
            "deep.yaml",
            format!("version: 1\ntask: {}", "[".repeat(deep)).into_bytes(),
            vec!["error"],
        ),
        ("deep.json", "[".repeat(deep).into_bytes(), vec!["error"]),
        ("deeper.yaml", "- ".repeat(deep).into_bytes(), vec!["error"]),
        ("plan.txt", b"version = 1".to_vec(), vec!["is not a plan", ".toml"]),
    ]
}

#[test]
fn a_bad_plan_gets_one_report_and_leaves_no_trace() {
    let scene = scene();
    for (name, bytes, _) in bad_plans() {
        scene.repo().write(name, bytes);
    }
    let before = files(&scene.repo().place());
    for (name, _, words) in bad_plans() {
        for args in [["plan", "check", name].as_slice(), &["run", name], &["plan", "show", name]] {
            // What the settings lack is no reason not to draw a plan.
            if args.contains(&"show") && name == "agent.toml" {
                let shown = scene.mainstem(args).expect_code(0);
                assert!(shown.stderr.contains("warning: agent.toml"), "{}", shown.stderr);
                continue;
            }
            let output = scene.mainstem(args).expect_code(1);
            assert!(output.stdout.is_empty(), "{args:?}: {}", output.stdout);
            assert!(!output.stderr.contains("panicked"), "{args:?}: {}", output.stderr);
            for word in &words {
                assert!(output.stderr.contains(word), "{args:?}: no {word} in {}", output.stderr);
            }
            let reports = output.stderr.lines().filter(|line| line.starts_with("error: ")).count();
            assert_eq!(reports, 1, "{args:?}: {}", output.stderr);
            assert!(output.stderr.len() < 100_000, "{args:?}: {} bytes", output.stderr.len());
        }
    }
    assert_eq!(files(&scene.repo().place()), before);
    assert_eq!(scene.repo().git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
}

#[test]
fn everything_wrong_is_reported_at_once_also_to_programs() {
    let tasks = [
        task("T-1", "needs = [\"T-2\"]"),
        task("T-2", "needs = [\"T-1\", \"T-9\"]"),
        task("T-2", "x = 1"),
    ];
    let scene = scene().plan(&format!("{HEAD}{}", tasks.concat()));
    let output = scene.mainstem(&["plan", "check", "plan.toml", "--json"]).expect_code(1);
    let report = json(&output);
    assert_eq!(report["ok"], false);
    let codes: Vec<&str> = report["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["code"].as_str().unwrap())
        .collect();
    for code in ["plan::cycle", "plan::dangling", "plan::duplicate_id", "plan::unknown_key"] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    for diagnostic in report["diagnostics"].as_array().unwrap() {
        assert!(diagnostic["line"].as_u64().unwrap() >= 1, "{diagnostic}");
        assert_eq!(diagnostic["file"], "plan.toml");
        assert!(diagnostic["help"].is_string(), "{diagnostic}");
    }
    serde_json::from_str::<Value>(output.stderr.trim()).unwrap();
}

#[test]
fn a_good_plan_means_the_same_in_all_three_formats() {
    let scene = scene();
    scene.repo().write(
        "plan.toml",
        "version = 1\ntitle = \"T\"\n[[epic]]\nid = \"E\"\n[[task]]\nid = \"a\"\nepic = \"E\"\nrun = \"true\"\ntimeout = \"5m\"\n\
         [[task]]\nid = \"b\"\nneeds = [\"a\"]\nafter = []\nrun = \"x\"\neffort = \"large\"\n",
    );
    scene.repo().write(
        "plan.yaml",
        "version: 1\ntitle: T\nepic:\n  - id: E\ntask:\n  - {id: a, epic: E, run: 'true', timeout: 5m}\n  - id: b\n    needs: [a]\n    run: x\n    effort: large\n",
    );
    scene.repo().write(
        "plan.json",
        r#"{"version":1,"title":"T","epics":[{"id":"E"}],"tasks":[{"id":"a","epic":"E","run":"true","timeout":"5m"},{"id":"b","needs":["a"],"run":"x","effort":"large"}]}"#,
    );
    let show = |name: &str| {
        json(&scene.mainstem(&["plan", "show", name, "--format", "json"]).expect_code(0))
    };
    let toml = show("plan.toml");
    assert_eq!(toml, show("plan.yaml"));
    assert_eq!(toml, show("plan.json"));
    assert_eq!(toml["critical_path"], serde_json::json!(["a", "b"]));
    assert_eq!(toml["levels"], serde_json::json!([["a"], ["b"]]));
    assert_eq!(toml["tasks"][0]["timeout_ms"], 300_000);
}

#[test]
fn a_plan_can_be_looked_at_outside_of_any_repository() {
    let scene = scene();
    let outside = scene.repo().root().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(
        outside.join("p.toml"),
        format!("{HEAD}{}{}", task("a", ""), task("b", "needs = [\"a\"]")),
    )
    .unwrap();
    let before = files(&outside);
    let dir = outside.to_str().unwrap();
    let output = scene.mainstem(&["-C", dir, "plan", "check", "p.toml"]).expect_code(0);
    assert_eq!(
        output.stdout,
        "p.toml: ok, 2 tasks, 1 edge, 0 epics, 2 levels (widest 1), critical path 2: a → b\n"
    );
    let output = scene.mainstem(&["-C", dir, "plan", "check", "p.toml", "--json"]).expect_code(0);
    assert_eq!(json(&output)["ok"], true);
    for format in ["tree", "mermaid", "batches", "graph", "json"] {
        let output = scene
            .mainstem(&["-C", dir, "plan", "show", "p.toml", "--format", format])
            .expect_code(0);
        assert!(output.stdout.contains('a'), "{format}: {}", output.stdout);
    }
    assert_eq!(files(&outside), before);
}

/// The fenced blocks of a page that start with these words.
fn blocks(page: &str, fence: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == fence {
            let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            blocks.push(body.join("\n") + "\n");
        }
    }
    blocks
}

fn guide(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_plans_and_settings_of_the_guide_are_real() {
    let settings = blocks(&guide("configuration.md"), "```toml settings");
    assert!(settings.len() >= 2, "{}", settings.len());
    for text in &settings {
        scene().config(text).mainstem(&["config"]).expect_code(0);
    }
    let scene = scene().config(
        "[run]\nagent = \"mine\"\n[agents.mine]\nkind = \"command\"\ncommand = [\"true\"]\n",
    );
    let plans = blocks(&guide("plans.md"), "```toml plan");
    assert!(plans.len() >= 3, "{}", plans.len());
    for text in plans {
        scene.repo().write("guide.toml", &text);
        scene.mainstem(&["plan", "check", "guide.toml"]).expect_code(0);
    }
    // The last one is shown there as a picture.
    let shown = scene.mainstem(&["plan", "show", "guide.toml", "--format", "graph"]).expect_code(0);
    assert_eq!(blocks(&guide("plans.md"), "```text"), [shown.stdout]);
}

fn init_in(files: &[(&str, &str)]) -> (TestScene, Value) {
    let repo = TestRepo::new();
    repo.commit("project", files);
    let scene = TestScene::in_repo(repo, BINARY);
    let report = json(&scene.mainstem(&["init", "--no-try", "--json"]).expect_code(0));
    (scene, report)
}

#[test]
fn init_finds_how_each_kind_of_project_is_tested() {
    let node = r#"{"scripts":{"test":"node --test"}}"#;
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("Cargo.toml", "[package]\nname = \"x\"\n")], r#"["cargo test"]"#),
        (&[("package.json", node), ("package-lock.json", "{}")], r#"["npm test"]"#),
        (&[("Makefile", "test:\n\ttrue\n")], r#"["make test"]"#),
        (&[("notes.txt", "x")], "[]"),
    ];
    for (files, verify) in cases {
        let (scene, report) = init_in(files);
        assert_eq!(report["branch"], "main");
        assert_eq!(report["written"], true);
        assert_eq!(report["text"], scene.repo().read("mainstem.toml"));
        let shown = scene.mainstem(&["config", "gates.verify"]).expect_code(0);
        assert!(shown.stdout.contains(verify), "{}", shown.stdout);
        // The branch is the one that is checked out when a run is started (contract, section 6).
        let shown = scene.mainstem(&["config", "land.branch", "--json"]).expect_code(0);
        assert_eq!(json(&shown)[0]["origin"], "default");
    }
}

#[test]
fn init_writes_once_and_changes_nothing_unasked() {
    let (scene, _) =
        init_in(&[("plan.toml", "version = 1\n[[task]]\nid = \"a\"\nrun = \"true\"\n")]);
    scene.repo().write("mainstem.toml", "[run]\njobs = 9\n");
    let output = scene.mainstem(&["init"]).expect_code(1);
    assert!(
        output.stderr.contains("nothing was changed") && output.stderr.contains("--force"),
        "{}",
        output.stderr
    );
    assert_eq!(scene.repo().read("mainstem.toml"), "[run]\njobs = 9\n");
    let output = scene.mainstem(&["init", "--dry-run"]).expect_code(0);
    assert!(output.stdout.contains("[gates]"), "{}", output.stdout);
    assert_eq!(scene.repo().read("mainstem.toml"), "[run]\njobs = 9\n");
    let output = scene.mainstem(&["init", "--force"]).expect_code(0);
    assert!(output.stderr.contains("mainstem run plan.toml"), "{}", output.stderr);
    assert!(scene.repo().read("mainstem.toml").contains("[gates]"));
}

#[test]
fn settings_come_from_flag_environment_project_user_and_default_in_this_order() {
    let scene = scene();
    let key = |scene: &TestScene, args: &[&str]| {
        let args: Vec<&str> =
            args.iter().copied().chain(["config", "run.jobs", "--json"]).collect();
        let value = json(&scene.mainstem(&args).expect_code(0))[0].clone();
        (
            value["value"].as_u64().unwrap(),
            value["origin"].as_str().unwrap().to_owned(),
            value["source"].clone(),
        )
    };
    assert_eq!(key(&scene, &[]).1, "default");
    let user = scene.repo().home().join("config/mainstem");
    fs::create_dir_all(&user).unwrap();
    fs::write(user.join("config.toml"), "[run]\njobs = 11\n").unwrap();
    let found = key(&scene, &[]);
    assert_eq!((found.0, found.1.as_str()), (11, "user"));
    assert!(found.2.as_str().unwrap().ends_with("config.toml"), "{}", found.2);
    let scene = scene.config("[run]\njobs = 12\n");
    assert_eq!(key(&scene, &[]).0, 12);
    assert_eq!(key(&scene, &[]).1, "project");
    let scene = scene.env("MAINSTEM_RUN_JOBS", "13");
    let found = key(&scene, &[]);
    assert_eq!(
        (found.0, found.1.as_str(), found.2.as_str().unwrap()),
        (13, "env", "$MAINSTEM_RUN_JOBS")
    );
    let found = key(&scene, &["--config", "run.jobs=14"]);
    assert_eq!((found.0, found.1.as_str()), (14, "flag"));
    let table = scene.mainstem(&["config"]).expect_code(0).stdout;
    assert!(table.lines().count() > 30, "{table}");
}

#[test]
fn an_unknown_setting_names_the_nearest_wherever_it_stands() {
    let here = scene();
    let output = here.mainstem(&["config", "run.jbos"]).expect_code(1);
    assert!(output.stderr.contains("did you mean `run.jobs`?"), "{}", output.stderr);
    let output = here.mainstem(&["--config", "run.jbos=1", "config"]).expect_code(1);
    assert!(output.stderr.contains("run.jobs"), "{}", output.stderr);
    let output = scene().config("[run]\njbos = 1\n").mainstem(&["config"]).expect_code(1);
    assert!(output.stderr.contains("did you mean `jobs`?"), "{}", output.stderr);
    assert!(output.stderr.contains("mainstem.toml:2"), "{}", output.stderr);
    let output = scene().env("MAINSTEM_RUN_JBOS", "1").mainstem(&["config"]).expect_code(1);
    assert!(output.stderr.contains("MAINSTEM_RUN_JOBS"), "{}", output.stderr);
}

#[test]
fn doctor_is_content_with_a_healthy_repository_and_names_what_is_wrong() {
    let healthy = scene().config("[gates]\nverify = [\"true\"]\n");
    let before = files(&healthy.repo().place());
    let output = healthy.mainstem(&["doctor", "--json"]).expect_code(0);
    let report = json(&output);
    assert_eq!(report["ok"], true);
    let statuses: Vec<&str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["status"].as_str().unwrap())
        .collect();
    assert!(statuses.iter().all(|status| *status == "ok"), "{}", output.stdout);
    let after = files(&healthy.repo().place());
    let made: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    // Its checks run in the train's own workspace, which is kept for the next run.
    let git_dir = healthy.repo().git_dir();
    let root = healthy.repo().place().join("repo.mainstem");
    let ours = [git_dir.join("mainstem"), git_dir.join("worktrees"), root];
    assert!(made.iter().all(|path| ours.iter().any(|dir| path.starts_with(dir))), "{made:?}");

    let ill = scene().config(
        "[run]\nagent = \"mine\"\n[land]\nbranch = \"nowhere\"\n[limits]\ndisk_floor = \"900T\"\n\
         [agents.mine]\nkind = \"command\"\ncommand = [\"no-such-program-here\"]\nsecrets = [\"NO_SUCH_SECRET\"]\n",
    );
    let ill = ill.walled("auto");
    ill.repo().branch("mainstem/left-over", "main");
    let output = ill.mainstem(&["doctor"]).expect_code(1);
    for word in [
        "✗ target branch nowhere does not exist",
        "limits.disk_floor",
        "no-such-program-here is not installed",
        "NO_SUCH_SECRET is not set",
        "! left over from other runs: mainstem/left-over",
        "sandbox: agents use ",
    ] {
        assert!(output.stdout.contains(word), "no {word} in {}", output.stdout);
    }
}

#[test]
fn doctor_speaks_also_without_a_repository_and_with_broken_settings() {
    let broken = scene().config("[run]\njobs = \"many\"\n");
    let output = broken.mainstem(&["doctor"]).expect_code(1);
    assert!(output.stdout.contains("run.jobs"), "{}", output.stdout);
    let outside = broken.repo().root().to_str().unwrap().to_owned();
    let output = broken.mainstem(&["-C", &outside, "doctor"]).expect_code(1);
    assert!(output.stdout.contains("not inside a git repository"), "{}", output.stdout);
}

#[test]
fn completions_and_manual_pages_are_there_and_hide_what_is_internal() {
    let scene = scene();
    for shell in ["bash", "zsh", "fish"] {
        let output = scene.mainstem(&["completions", shell]).expect_code(0);
        assert!(output.stdout.contains("mainstem") && output.stdout.len() > 1_000, "{shell}");
        assert!(!output.stdout.contains("__supervise"), "{shell}");
    }
    let page = scene.mainstem(&["man"]).expect_code(0).stdout;
    assert!(page.contains(".SH NAME") && page.contains("mainstem"), "{page}");
    scene.mainstem(&["man", "--dir", "pages"]).expect_code(0);
    let page = scene.repo().read("pages/mainstem-plan-check.1");
    assert!(page.contains(".SH NAME") && page.contains("plan"), "{page}");
    assert!(!scene.repo().has("pages/mainstem-__script.1"));
}

#[test]
fn the_reference_comes_out_the_same_each_time() {
    let scene = scene();
    for dir in ["one", "two"] {
        scene
            .mainstem(&["__reference", scene.repo().path().join(dir).to_str().unwrap()])
            .expect_code(0);
    }
    for page in ["commands.md", "configuration.md", "exit-codes.md", "plan.md"] {
        let text = scene.repo().read(&format!("one/{page}"));
        assert_eq!(text, scene.repo().read(&format!("two/{page}")));
        assert!(text.lines().count() > 5 && !text.contains("__"), "{text}");
    }
}
