//! Other tools' task files as a user meets them: in, through a run, and back.

#![expect(clippy::unwrap_used, reason = "tests")]

use mainstem_testkit::{TestCommandOutput, TestScene};
use serde_json::Value;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

const CONFIG: &str = "[run]\nagent = \"mine\"\n[agents.mine]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo done > $MAINSTEM_TASK.txt\"]\n";

const LIST: &str = "# Tasks: Shop\n\n## Phase 1: Setup\n\n- [x] T001 Begin\n- [ ] T002 [P] Add the `shop.toml`  \n- [ ] T003 Write docs/shop.md (depends on T002)\n  - run: make docs\n";

const STORIES: &str = r#"{"project": "Shop", "branchName": "b", "mood": 1, "userStories": [
  {"id": "US-001", "title": "First", "acceptanceCriteria": ["cmd: touch $HOME/owned"], "priority": 1, "passes": false, "colour": "red"},
  {"id": "US-002", "title": "Second", "acceptanceCriteria": [], "priority": 2, "passes": false}
]}"#;

fn scene() -> TestScene {
    TestScene::new(BIN).config(CONFIG)
}

fn run(scene: &TestScene, code: i32, args: &[&str]) -> TestCommandOutput {
    scene.mainstem(args).expect_code(code)
}

fn json(output: &TestCommandOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn a_checklist_is_imported_run_and_ticked_in_place() {
    let scene = scene();
    scene.repo().commit("tasks", &[("specs/001-shop/tasks.md", LIST)]);
    run(&scene, 0, &["plan", "import", "auto", "specs/001-shop", "-o", "plan.toml"]);
    run(&scene, 0, &["plan", "check", "plan.toml"]);
    run(&scene, 0, &["run", "plan.toml"]);
    let dry = run(&scene, 0, &["plan", "push", "auto", "specs/001-shop", "--dry-run"]);
    assert!(dry.stdout.contains("T002: open → done (specs/001-shop/tasks.md:6)"), "{}", dry.stdout);
    assert_eq!(scene.repo().read("specs/001-shop/tasks.md"), LIST);
    let pushed = run(&scene, 0, &["--json", "plan", "push", "spec-kit", "specs/001-shop/tasks.md"]);
    assert_eq!(json(&pushed)["changes"].as_array().unwrap().len(), 2);
    let want = LIST.replace("[ ] T002", "[x] T002").replace("[ ] T003", "[x] T003");
    assert_eq!(scene.repo().read("specs/001-shop/tasks.md"), want);
    let again = run(&scene, 0, &["plan", "push", "auto", "specs/001-shop"]);
    assert_eq!(again.stdout, "nothing to change\n");
    // The run's plan goes out with where its tasks stand.
    let out = run(&scene, 0, &["plan", "export", "progress"]);
    assert!(out.stdout.contains("2 of 2 tasks are done"), "{}", out.stdout);
}

#[test]
fn a_dry_run_says_what_becomes_what_and_writes_nothing() {
    let scene = scene();
    scene.repo().write("prd.json", STORIES);
    let out =
        run(&scene, 0, &["plan", "import", "ralph", "prd.json", "--dry-run", "-o", "plan.toml"]);
    for words in [
        "US-001",
        "prd.json:2",
        "dropped: colour (1 time, first prd.json:2)",
        "command: touch $HOME/owned in US-001",
        "--accept-commands",
        "ralph: 2 of 2 tasks, 1 edge",
    ] {
        assert!(out.stdout.contains(words), "{words}: {}", out.stdout);
    }
    assert!(!scene.repo().has("plan.toml"));
    let report =
        json(&run(&scene, 0, &["--json", "plan", "import", "auto", "prd.json", "--dry-run"]));
    assert_eq!(report["commands"][0]["text"], "touch $HOME/owned");
    assert_eq!(report["rows"][1]["at"]["line"], 3);
    assert_eq!(report["plan"]["tasks"][1]["needs"][0], "US-001");
}

#[test]
fn commands_of_imported_texts_are_gates_only_if_accepted() {
    let scene = scene();
    scene.repo().write("prd.json", STORIES);
    let plain = run(&scene, 0, &["plan", "import", "ralph", "prd.json"]);
    assert!(
        !plain.stdout.contains("verify") && !plain.stdout.contains("run ="),
        "{}",
        plain.stdout
    );
    assert!(plain.stderr.contains("1 command found; use --accept-commands"), "{}", plain.stderr);
    let asked = run(&scene, 0, &["plan", "import", "ralph", "prd.json", "--accept-commands"]);
    assert!(asked.stdout.contains("verify = [\"touch $HOME/owned\"]"), "{}", asked.stdout);
}

#[test]
fn what_cannot_be_imported_says_where_and_what_helps() {
    let scene = scene();
    let repo = scene.repo();
    repo.write("tasks.json", "{\"tasks\": [\n  {\"id\": 1,}\n]}");
    repo.write("loop.md", "- [ ] T001 One (depends on T002)\n- [ ] T002 Two (depends on T001)\n");
    repo.write("prose.md", "nothing to do\n");
    repo.write("bad.md", b"- [ ] caf\xe9\n");
    repo.write("prd.json", STORIES);
    repo.write(".beads/issues.jsonl", "{\"id\":\"bd-1\",\"title\":\"x\",\"status\":\"open\"}\n");
    repo.write("plan.toml", "version = 1\n");
    for (args, code, words) in [
        (vec!["task-master", "tasks.json"], 1, vec!["tasks.json:2", "syntax::json", "help"]),
        (vec!["spec-kit", "loop.md"], 1, vec!["T001 → T002 → T001", "loop.md:1", "loop.md:2"]),
        (vec!["checklist", "prose.md"], 1, vec!["prose.md", "no tasks in the format", "`- [ ]`"]),
        (vec!["checklist", "bad.md"], 1, vec!["byte 9 is not UTF-8"]),
        (vec!["spekit", "loop.md"], 64, vec!["did you mean spec-kit?"]),
        (vec!["auto", "."], 1, vec!["beads or ralph", "set the format"]),
        (vec!["auto", "gone.md"], 1, vec!["cannot read gone.md"]),
        (vec!["ralph", "prd.json", "-o", "plan.toml"], 1, vec!["already exists", "--force"]),
        (vec!["ralph", "prd.json", "-o", "plan.txt"], 64, vec![".toml or .json"]),
    ] {
        let mut all = vec!["plan", "import"];
        all.extend(&args);
        let out = run(&scene, code, &all);
        for word in words {
            assert!(out.stderr.contains(word), "{args:?}: {word}: {}", out.stderr);
        }
    }
    assert_eq!(repo.read("plan.toml"), "version = 1\n");
    run(&scene, 0, &["plan", "import", "ralph", "prd.json", "-o", "plan.toml", "--force"]);
    run(&scene, 0, &["plan", "check", "plan.toml"]);
}

#[test]
fn a_plan_goes_out_as_files_text_and_pictures() {
    let scene = scene().plan(
        "version = 1\ntitle = \"Shop\"\n[[epic]]\nid = \"E-1\"\ntitle = \"Base\"\n[[task]]\nid = \"a\"\nepic = \"E-1\"\ntitle = \"Table\"\nmodel = \"m\"\n[[task]]\nid = \"b\"\nneeds = [\"a\"]\ntitle = \"Page\"\n",
    );
    let mermaid = run(&scene, 0, &["plan", "export", "mermaid", "plan.toml"]);
    assert!(mermaid.stdout.contains("t0 --> t1"), "{}", mermaid.stdout);
    let dot = run(&scene, 0, &["plan", "export", "dot", "plan.toml"]);
    assert!(dot.stdout.contains("\"a\" -> \"b\";"), "{}", dot.stdout);
    let several = run(&scene, 64, &["plan", "export", "raven", "plan.toml"]);
    assert!(several.stderr.contains("-o FOLDER"), "{}", several.stderr);
    let out = run(&scene, 0, &["plan", "export", "raven", "plan.toml", "-o", "docs/tasks"]);
    assert!(out.stderr.contains("not supported by this format: model of 1 task"), "{}", out.stderr);
    assert!(scene.repo().read("docs/tasks/T-002-page.md").contains("| Dependencies | T-001 |"));
    assert_eq!(
        scene.repo().read("docs/tasks/phases.conf"),
        "# id|name|first|last\n1|Base|T-001|T-001\n2|Phase 2|T-002|T-002\n"
    );
    run(&scene, 1, &["plan", "export", "raven", "plan.toml", "-o", "docs/tasks"]);
    run(&scene, 0, &["plan", "export", "raven", "plan.toml", "-o", "docs/tasks", "--force"]);
    let back = run(&scene, 0, &["plan", "import", "auto", "docs/tasks"]);
    assert!(back.stdout.contains("needs = [\"T-001\"]"), "{}", back.stdout);
    let none = run(&scene, 1, &["plan", "export", "json"]);
    assert!(none.stderr.contains("no run in this repository"), "{}", none.stderr);
}

#[test]
fn suggestions_are_named_with_reasons_and_taken_on_request() {
    let scene = scene().plan(
        "version = 1\n[[task]]\nid = \"a\"\ntitle = \"Table\"\n[[task]]\nid = \"b\"\ndescription = \"Do it after a is there.\"\n",
    );
    let out = run(&scene, 0, &["plan", "suggest", "plan.toml", "-o", "better.toml"]);
    assert_eq!(out.stdout, "suggestion: b needs a: the text says \"after a\"\n");
    assert!(scene.repo().read("better.toml").contains("needs = [\"a\"]"));
    let out = run(&scene, 0, &["plan", "suggest", "better.toml"]);
    assert_eq!(out.stdout, "no suggestions\n");
}

#[test]
fn a_push_refuses_files_that_the_run_knows_nothing_of() {
    let scene = scene().plan("version = 1\n[[task]]\nid = \"x\"\n");
    scene.repo().write("prd.json", STORIES);
    run(&scene, 0, &["run", "plan.toml"]);
    let out = run(&scene, 1, &["plan", "push", "auto", "prd.json"]);
    assert!(out.stderr.contains("none of the run's tasks"), "{}", out.stderr);
    assert_eq!(scene.repo().read("prd.json"), STORIES);
}

#[test]
fn beads_are_asked_of_their_own_program_where_it_is_installed() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = scene();
    let (bin, said) = (scene.outside("bin"), scene.outside("said"));
    std::fs::create_dir_all(&bin).unwrap();
    let issues = r#"[{"id":"bd-1","title":"Known only to bd","status":"open","issue_type":"task","priority":1},{"id":"bd-2","title":"After it","status":"open","issue_type":"task","priority":2,"dependencies":[{"issue_id":"bd-2","depends_on_id":"bd-1","type":"blocks"}]}]"#;
    let closed = issues.replace("open", "closed");
    let script = format!(
        "#!/bin/sh\necho \"$PWD $*\" >> '{0}'\ncase \"$1 $3\" in 'list --all') echo no such flag >&2; exit 1;; \
         list*) if grep -q 'close bd-2' '{0}'; then echo '{closed}'; else echo '{issues}'; fi;; esac\n",
        said.display()
    );
    let program = bin.join("bd");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let scene = scene.env("PATH", path);
    scene.repo().commit(
        "beads",
        &[(
            ".beads/issues.jsonl",
            "{\"id\":\"bd-9\",\"title\":\"Old export\",\"status\":\"open\"}\n",
        )],
    );
    run(&scene, 0, &["plan", "import", "beads", ".", "-o", "plan.toml"]);
    let plan = scene.repo().read("plan.toml");
    assert!(plan.contains("Known only to bd") && !plan.contains("Old export"), "{plan}");
    run(&scene, 0, &["run", "plan.toml"]);
    run(&scene, 0, &["plan", "push", "beads", ".", "--dry-run"]);
    run(&scene, 0, &["plan", "push", "beads", "."]);
    let said = std::fs::read_to_string(&said).unwrap();
    let top = scene.repo().path().display().to_string();
    let closed: Vec<&str> = said.lines().filter(|line| line.contains(" close ")).collect();
    assert_eq!(closed, [format!("{top} close bd-1"), format!("{top} close bd-2")]);
    // The file itself is read when it is named.
    let file = run(&scene, 0, &["plan", "import", "beads", ".beads/issues.jsonl"]);
    assert!(file.stdout.contains("Old export"), "{}", file.stdout);
}

/// A stand-in for `bd` with a file of issues, one `id|status|blocker` per line. It refuses to close an issue
/// before its blocker, on standard error and with exit code 0, as version 0.49.6 does; `list` is printed by
/// `jq`-free shell.
fn with_bd(scene: TestScene, names_dependencies: bool) -> TestScene {
    use std::os::unix::fs::PermissionsExt as _;
    let (bin, state) = (scene.outside("bin"), scene.outside("issues"));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(&state, "bd-3|open|bd-2\nbd-2|open|bd-1\nbd-1|open|\n").unwrap();
    let edges = r#",\"dependencies\":[{\"issue_id\":\"$id\",\"depends_on_id\":\"$by\",\"type\":\"blocks\"}]"#;
    let listed = if names_dependencies { edges } else { "" };
    let script = format!(
        r#"#!/bin/sh
state='{state}'
print() {{ # $1: the text that names a dependency
  sep='['
  while IFS='|' read -r id status by; do
    n=0; more=
    if [ -n "$by" ]; then n=1; if [ "$1" = named ]; then more="{edges}"; else more="{listed}"; fi; fi
    echo "$sep{{\"id\":\"$id\",\"title\":\"Issue $id\",\"status\":\"$status\",\"issue_type\":\"task\",\"priority\":2,\"dependency_count\":$n$more}}"
    sep=,
  done < "$state"
  echo ']'
}}
case "$1" in
  list) print counted;;
  show) print named;;
  close)
    by=$(sed -n "s/^$2|[a-z]*|//p" "$state")
    if [ -n "$by" ] && ! grep -q "^$by|closed" "$state"; then
      echo "cannot close $2: blocked by open issues [$by]" >&2; exit 0
    fi
    sed -i "s/^$2|[a-z]*/$2|closed/" "$state";;
  update) sed -i "s/^$2|[a-z]*/$2|$4/" "$state";;
esac
"#,
        state = state.display()
    );
    let program = bin.join("bd");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    scene.repo().write(".beads/issues.jsonl", "");
    scene.env("PATH", path)
}

#[test]
fn a_chain_of_beads_issues_is_closed_from_its_start_although_the_list_is_newest_first() {
    let scene = with_bd(scene(), true);
    run(&scene, 0, &["plan", "import", "beads", ".", "-o", "plan.toml"]);
    run(&scene, 0, &["run", "plan.toml"]);
    run(&scene, 0, &["plan", "push", "beads", "."]);
    let issues = std::fs::read_to_string(scene.outside("issues")).unwrap();
    assert_eq!(issues, "bd-3|closed|bd-2\nbd-2|closed|bd-1\nbd-1|closed|\n");
}

#[test]
fn an_issue_that_bd_does_not_close_is_an_error_although_bd_ends_with_0() {
    let scene = with_bd(scene(), true);
    run(&scene, 0, &["plan", "import", "beads", ".", "-o", "plan.toml"]);
    run(&scene, 0, &["run", "plan.toml"]);
    let issues = scene.outside("issues");
    let text = std::fs::read_to_string(&issues).unwrap();
    std::fs::write(&issues, text.replace("bd-1|open|", "bd-1|open|bd-0\nbd-0|open|")).unwrap();
    let out = run(&scene, 1, &["plan", "push", "beads", "."]);
    assert!(out.stderr.contains("did not update 3 issues"), "{}", out.stderr);
    assert!(out.stderr.contains("blocked by open issues [bd-0]"), "{}", out.stderr);
}

#[test]
fn dependencies_that_an_old_bd_only_counts_are_asked_for_one_by_one() {
    let scene = with_bd(scene(), false);
    let out = run(&scene, 0, &["plan", "import", "beads", "."]);
    assert!(out.stderr.contains("3 of 3 tasks, 2 edges"), "{}", out.stderr);
}

#[test]
fn a_gate_file_that_has_no_end_is_refused_at_once() {
    let scene = scene();
    std::os::unix::fs::symlink("/dev/zero", scene.repo().path().join("gates.yaml")).unwrap();
    let out = run(&scene, 1, &["gates", "import", "gates.yaml"]);
    assert!(out.stderr.contains("not a regular file"), "{}", out.stderr);
}

#[test]
fn an_imported_gate_that_prints_a_count_is_red_when_the_count_is_not_the_expected_one() {
    let gate = "checks:\n  phase_5:\n    mandatory:\n      - name: no_hardcoded_secrets\n        \
        check_type: command\n        command: \"cat *.py | grep -c password || true\"\n        \
        expected: \"0\"\n";
    let scene = scene();
    scene.repo().write("gate.yaml", gate);
    let args = ["gates", "import", "gate.yaml", "--phase", "5", "--accept-commands"];
    let gates = run(&scene, 0, &args).stdout;
    let config = format!("{gates}[sandbox]\nkind = \"off\"\n");
    let scene = scene.config(&config).plan(
        "version = 1\n[[task]]\nid = \"good\"\nrun = \"echo x = 1 > good.py\"\n\
         [[task]]\nid = \"bad\"\nneeds = [\"good\"]\nretries = 0\n\
         run = \"echo password = 1 > bad.py\"\n",
    );
    scene.repo().commit("base", &[("base.py", "y = 2\n")]);
    run(&scene, 2, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["good"]);
}

#[test]
fn ids_that_a_format_gives_anew_are_named() {
    let plan = "version = 1\n[[task]]\nid = \"T-001\"\nrun = \"true\"\n[[task]]\nid = \"T-002\"\n\
                needs = [\"T-001\"]\nrun = \"true\"\n[[task]]\nid = \"T-003\"\nrun = \"true\"\n";
    let scene = TestScene::new(BIN).plan(plan);
    let said = run(&scene, 0, &["plan", "export", "raven", "plan.toml", "-o", "out"]).stderr;
    assert!(said.contains("T-002 → T-003, T-003 → T-002"), "{said}");
}
