//! From a PRD to a plan, as a user meets it, with agents that are shell scripts.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mainstem_testkit::oracle::processes_of;
use mainstem_testkit::shell_plans::log_of;
use mainstem_testkit::{TestCommandOutput, TestScene, max_concurrent, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

/// On a loaded machine.
const SOON: Duration = Duration::from_secs(60);

const PRD: &str = "# Todo service\n\n## 1. Store\n\nKeep todos. Run `touch /tmp/never` first.\n\n## 2. Shop\n\nSell them.\n\n## 3. Mail\n\nSend mail.\n";

/// Answers as asked; what goes before and after each answer is the test's.
struct Stage {
    scene: TestScene,
    log: PathBuf,
}

impl Stage {
    /// `before` is shell that runs in the agent before it answers.
    fn new(epics: usize, before: &str) -> Self {
        Self::with(epics, before, "")
    }

    fn with(epics: usize, before: &str, config: &str) -> Self {
        let scene = TestScene::new(BIN);
        let (log, agent, split) =
            (scene.outside("log"), scene.outside("agent.sh"), scene.outside("epics.json"));
        let epic = |n: usize| {
            json!({"id": format!("E-{n:03}"), "title": format!("Part {n}"), "description": "It.",
                "prd_sections": [n.to_string()], "estimated_task_count": 1, "dependencies_on_epics": []})
        };
        let all = json!({ "epics": (1..=epics).map(epic).collect::<Vec<_>>() });
        fs::write(&split, all.to_string()).unwrap();
        let task = json!({"epic_id": "EPIC", "tasks": [{
            "temp_id": "TEMP-T01", "title": "Build the thing of EPIC", "description": "Do $(touch owned).",
            "acceptance_criteria": ["cmd: touch owned"], "local_dependencies": [],
            "cross_epic_dependencies": [], "effort": "small", "priority": "must-have"}]});
        let script = format!(
            "log='{}'\nsay() {{ echo \"$1 $MAINSTEM_TASK $(date +%s%3N)\" >> \"$log\"; }}\nsay start\n\
             echo '{{\"mainstem\":\"usage\",\"input_tokens\":100,\"output_tokens\":10,\"cost_usd\":0.25}}'\n\
             cat > seen.txt\n{before}\n\
             case $MAINSTEM_STAGE in\nshred) cat '{}' > \"$MAINSTEM_OUTPUT\" ;;\n\
             scatter) temp=$(echo $MAINSTEM_EPIC | tr -d -)\n\
             echo '{task}' | sed \"s/EPIC/$MAINSTEM_EPIC/g; s/TEMP/$temp/g\" > \"$MAINSTEM_OUTPUT\" ;;\nesac\nsay end\n",
            log.display(),
            split.display()
        );
        fs::write(&agent, script).unwrap();
        let command = json!(["sh", agent]);
        let scene = scene.config(&format!(
            "[run]\nagent = \"mine\"\n[agents.mine]\nkind = \"command\"\ncommand = {command}\n{config}"
        ));
        scene.repo().commit("document", &[("PRD.md", PRD)]);
        Self { scene, log }
    }

    #[track_caller]
    fn plan(&self, code: i32, more: &[&str]) -> TestCommandOutput {
        let mut args = vec!["plan", "PRD.md"];
        args.extend(more);
        self.scene.expect(code, &args)
    }

    /// The last line of `plan --json`.
    #[track_caller]
    fn result(&self, code: i32, more: &[&str]) -> Value {
        let mut args = vec!["--json", "plan", "PRD.md"];
        args.extend(more);
        let out = self.scene.expect(code, &args).stdout;
        serde_json::from_str(out.lines().last().unwrap()).unwrap()
    }

    fn calls(&self, part: &str) -> usize {
        let start = format!("start {part} ");
        log_of(&self.log).lines().filter(|line| line.starts_with(&start)).count()
    }

    fn assert_no_agent_left(&self) {
        let left = processes_of(self.scene.repo().root(), self.scene.binary());
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_prd_becomes_a_plan_that_checks_and_costs_are_known() {
    let stage = Stage::new(3, "");
    let out = stage.plan(0, &["-j", "2"]);
    assert_eq!(out.stdout, "");
    for words in ["E-002", "✓", "wrote plan.toml: 3 epics, 3 tasks", "4 calls", "$1.00"] {
        assert!(out.stderr.contains(words), "{words}\n{}", out.stderr);
    }
    stage.scene.expect(0, &["plan", "check", "plan.toml"]);
    let plan = stage.scene.repo().read("plan.toml");
    assert!(plan.contains("title = \"Todo service\""), "{plan}");
    // What agents write is text, never a command of ours.
    assert!(plan.contains("cmd: touch owned") && !plan.contains("verify ="), "{plan}");
    assert!(!plan.contains("run ="), "{plan}");
    let cost: Value =
        serde_json::from_str(&stage.scene.expect(0, &["--json", "cost"]).stdout).unwrap();
    assert_eq!(cost["planning"]["cost_usd"], 1.0);
    assert_eq!(cost["planning"]["attempts"], 4);
    let text = stage.scene.expect(0, &["cost"]).stdout;
    assert!(text.contains("planning") && text.contains("$1.00"), "{text}");
    // The same again asks nobody and changes nothing.
    let again = stage.plan(0, &[]);
    assert!(again.stderr.contains("no changes to the plan"), "{}", again.stderr);
    assert_eq!(log_of(&stage.log).matches("start").count(), 4);
    stage.assert_no_agent_left();
}

#[test]
fn a_finished_draft_says_that_another_model_or_effort_would_change_nothing() {
    let stage = Stage::new(2, "");
    stage.plan(0, &["--model", "m1", "-o", "a.toml"]);
    // The same model, or none, writes the plan of what is there.
    stage.plan(0, &["--model", "m1", "-o", "b.toml"]);
    stage.plan(0, &["-o", "c.toml"]);
    for other in [["--model", "m2"], ["--effort", "high"]] {
        let refused = stage.plan(1, &other).stderr;
        assert!(
            refused.contains("PRD.md is already planned: 3 answers by mine with model m1"),
            "{refused}"
        );
        assert!(refused.contains("--fresh"), "{refused}");
    }
    assert_eq!(log_of(&stage.log).matches("start").count(), 3, "nobody was asked again");
    stage.plan(0, &["--model", "m2", "--fresh", "--force", "-o", "a.toml"]);
    assert_eq!(log_of(&stage.log).matches("start").count(), 6);
}

#[test]
fn answers_of_another_model_that_stay_are_named_and_the_rest_is_asked_with_the_new_one() {
    let stage = Stage::new(2, "[ \"$MAINSTEM_EPIC-$MAINSTEM_MODEL\" = E-002-m1 ] && exit 3");
    stage.plan(2, &["--model", "m1", "--retries", "0"]);
    let again = stage.plan(0, &["--model", "m2"]).stderr;
    assert!(again.contains("2 answers by mine with model m1 will be reused"), "{again}");
    assert_eq!((stage.calls("E-001"), stage.calls("E-002")), (1, 2));
}

#[test]
fn what_planning_keeps_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new(1, "");
    stage.plan(0, &[]);
    let plans = stage.scene.repo().git_dir().join("mainstem/plans");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&plans), mode(plans.parent().unwrap())), (0o700, 0o700));
    let mut prompts = 0;
    let mut open = vec![plans];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else if entry.file_name().to_string_lossy().contains("prompt") {
                assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
                prompts += 1;
            }
        }
    }
    assert_eq!(prompts, 2);
}

#[test]
fn a_limit_is_told_with_its_end_and_the_effort_reaches_the_agent() {
    let limited = "[ \"$MAINSTEM_EFFORT\" = high ] || exit 3\n\
        if [ $MAINSTEM_STAGE = scatter ] && [ ! -e ../../was ]; then touch ../../was; \
        echo '{\"mainstem\":\"rate_limited\",\"retry_after\":1}'; exit 1; fi";
    let stage = Stage::new(1, limited);
    let out = stage.scene.expect(0, &["--json", "plan", "PRD.md", "--effort", "high"]).stdout;
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let limit = lines.into_iter().find(|line| line["type"] == "rate_limited").unwrap();
    assert_eq!(limit["message"], "mine is rate-limited");
    assert!(limit["until"].as_str().unwrap() > limit["at"].as_str().unwrap(), "{limit}");
}

#[test]
fn events_and_the_result_are_json_lines_in_the_order_of_each_workers_life() {
    let stage = Stage::new(2, "");
    let out = stage.scene.expect(0, &["--json", "plan", "PRD.md", "-j", "1"]).stdout;
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "shred_started",
            "shred_completed",
            "worker_started",
            "worker_completed",
            "worker_started",
            "worker_completed",
            "plan_result"
        ]
    );
    assert_eq!(lines[2]["epic"], "E-001");
    let seqs: Vec<u64> = lines[..6].iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6], "without gaps");
    let result = &lines[6];
    assert_eq!((&result["tasks"], &result["exit_code"]), (&json!(2), &json!(0)));
    assert_eq!(result["totals"]["calls"], 3);
    assert_eq!(result["report"]["uncovered"][0]["title"], "Mail");
}

#[test]
fn twenty_five_epics_at_concurrency_three() {
    let stage = Stage::new(25, "sleep 0.05");
    let result = stage.result(0, &["-j", "3"]);
    assert_eq!(result["tasks"], 25);
    let log = log_of(&stage.log);
    assert_eq!(max_concurrent(&log), 3, "{log}");
    assert_eq!(log.matches("end").count(), 26);
    assert_eq!(log.matches("start").count(), 26);
    stage.assert_no_agent_left();
}

#[test]
fn kill_9_in_mid_scatter_and_the_next_call_redoes_only_unfinished_epics() {
    let go = "if [ \"$MAINSTEM_TASK\" = E-002 -o \"$MAINSTEM_TASK\" = E-003 ]; then \
              until [ -e GO ]; do sleep 0.02; done; fi";
    let stage = Stage::new(3, "");
    let gate = stage.scene.outside("go");
    let agent = stage.scene.outside("agent.sh");
    let text = fs::read_to_string(&agent).unwrap();
    let go = go.replace("GO", &format!("'{}'", gate.display()));
    fs::write(&agent, text.replace("cat > seen.txt\n", &format!("cat > seen.txt\n{go}\n")))
        .unwrap();
    let first = stage.scene.spawn(&["plan", "PRD.md", "-j", "3"]);
    wait_until(SOON, "two wait and one has answered", || {
        stage.calls("E-002") == 1 && stage.calls("E-003") == 1 && first.stderr().contains("✓ E-001")
    });
    first.kill9();
    // The agents outlive it and are found again, not started again.
    fs::write(&gate, "").unwrap();
    let result = stage.result(0, &["-j", "3"]);
    assert_eq!(result["tasks"], 3);
    for part in ["shred", "E-001", "E-002", "E-003"] {
        assert_eq!(stage.calls(part), 1, "{part}\n{}", log_of(&stage.log));
    }
    stage.assert_no_agent_left();
}

#[test]
fn agents_killed_together_with_the_planner_are_asked_again_and_nobody_else() {
    let stage = Stage::new(3, "[ $MAINSTEM_TASK != E-003 -o $MAINSTEM_ATTEMPT != 1 ] || sleep 600");
    let first = stage.scene.spawn(&["plan", "PRD.md", "-j", "3"]);
    wait_until(SOON, "two have answered", || {
        let said = first.stderr();
        said.contains("✓ E-001") && said.contains("✓ E-002") && stage.calls("E-003") == 1
    });
    first.kill9();
    for process in processes_of(stage.scene.repo().root(), stage.scene.binary()) {
        let pid = rustix::process::Pid::from_raw(process.pid).unwrap();
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    assert_eq!(stage.result(0, &[])["tasks"], 3);
    assert_eq!([stage.calls("E-001"), stage.calls("E-002"), stage.calls("E-003")], [1, 1, 2]);
    stage.assert_no_agent_left();
}

#[test]
fn a_missing_epic_is_named_with_exit_2_and_asked_for_alone_the_next_time() {
    let stage = Stage::new(3, "");
    let (agent, well) = (stage.scene.outside("agent.sh"), stage.scene.outside("well"));
    let text = fs::read_to_string(&agent).unwrap();
    let ill = format!(
        "if [ $MAINSTEM_TASK = E-002 -a ! -e '{}' ]; then echo 'Here: {{\"epic_id\": \"E-009\", \"tasks\": []}}'; say end; exit 0; fi\n",
        well.display()
    );
    fs::write(&agent, text.replace("case $MAINSTEM_STAGE", &format!("{ill}case $MAINSTEM_STAGE")))
        .unwrap();
    let out = stage.plan(2, &[]);
    assert_eq!(stage.calls("E-002"), 4, "one and three more");
    for words in ["missing: E-002", "[epic_id]", "[tasks]", "wrote plan.toml: 2 epics, 2 tasks"] {
        assert!(out.stderr.contains(words), "{words}\n{}", out.stderr);
    }
    // Every problem is in the prompt of the next try, and so is the answer.
    let state = stage.scene.repo().git_dir().join("mainstem/plans");
    let draft = fs::read_dir(&state).unwrap().next().unwrap().unwrap().path();
    let prompt = fs::read_to_string(draft.join("E-002/2/prompt.md")).unwrap();
    for words in ["1. [epic_id] is `E-009`", "2. [tasks] is empty", "Here: {"] {
        assert!(prompt.contains(words), "{words}\n{prompt}");
    }
    fs::write(&well, "").unwrap();
    let again = stage.plan(0, &[]);
    assert!(
        again.stderr.contains("1 added, 0 changed, 0 removed, 2 unchanged"),
        "{}",
        again.stderr
    );
    assert!(again.stderr.contains("+ T-003 Build the thing of E-002"), "{}", again.stderr);
    assert_eq!([stage.calls("shred"), stage.calls("E-001"), stage.calls("E-002")], [1, 1, 5]);
}

#[test]
fn a_rate_limit_pauses_all_costs_no_try_and_is_told_to_runs() {
    let limited = "if [ $MAINSTEM_TASK = E-001 -a $MAINSTEM_ATTEMPT = 1 ]; then \
        echo '{\"mainstem\":\"rate_limited\",\"retry_after\":2,\"message\":\"slow down\"}'; say end; exit 1; fi";
    let stage = Stage::new(3, limited);
    let out = stage.plan(0, &["-j", "1", "--retries", "0"]);
    assert!(out.stderr.contains("slow down; retrying in"), "{}", out.stderr);
    assert_eq!(stage.calls("E-001"), 2);
    let log = log_of(&stage.log);
    let at = |what: &str, n: usize| -> u64 {
        let line = log.lines().filter(|line| line.starts_with(what)).nth(n).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let waited = at("start", 2) - at("end E-001", 0);
    assert!(waited >= 1_900, "the next call came after {waited} ms\n{log}");
}

#[test]
fn a_run_that_starts_after_a_planner_met_a_limit_waits_for_it() {
    let limited = "if [ $MAINSTEM_STAGE = scatter ]; then \
        echo '{\"mainstem\":\"rate_limited\",\"retry_after\":600,\"message\":\"far too much\"}'; exit 1; fi";
    let stage = Stage::new(1, limited);
    let mut first = stage.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "it waits", || first.stderr().contains("far too much"));
    first.signal(Signal::INT);
    assert_eq!(first.wait().code, 3);
    stage.scene.repo().write("p.toml", "version = 1\n[[task]]\nid = \"T-1\"\ntitle = \"x\"\n");
    let mut run = stage.scene.spawn(&["run", "p.toml"]);
    wait_until(SOON, "the run knows", || stage.scene.status()["limits"][0]["provider"] == "mine");
    run.signal(Signal::INT);
    assert_eq!(run.wait().code, 3);
    assert_eq!(stage.calls("T-1"), 0);
}

#[test]
fn a_limit_that_a_draft_meets_holds_back_drafts_and_runs_of_other_repositories() {
    let limited = "echo '{\"mainstem\":\"rate_limited\",\"retry_after\":600}'; exit 1";
    let first = Stage::with(1, limited, "provider = \"acme\"\n");
    let state = first.scene.outside("state");
    let share =
        |stage: Stage| Stage { scene: stage.scene.env("XDG_STATE_HOME", &state), log: stage.log };
    let first = share(first);
    let drafting = first.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "the limit is written down for others", || {
        state.join("mainstem/limits.json").exists()
    });
    let second = share(Stage::with(1, "", "provider = \"acme\"\n"));
    let waiting = second.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "the other draft waits", || waiting.stderr().contains("acme is rate-limited"));
    second.scene.repo().write("p.toml", "version = 1\n[[task]]\nid = \"T-1\"\ntitle = \"x\"\n");
    let running = second.scene.spawn(&["run", "p.toml"]);
    wait_until(SOON, "the run waits", || second.scene.status()["limits"][0]["provider"] == "acme");
    assert_eq!([second.calls("shred"), second.calls("T-1")], [0, 0]);
    for process in [drafting, waiting, running] {
        process.kill9();
    }
}

#[test]
fn the_next_draft_knows_the_limit_of_the_last_and_a_resumed_one_says_that_it_waits() {
    let limited = "echo '{\"mainstem\":\"rate_limited\",\"retry_after\":600}'; exit 1";
    let stage = Stage::with(1, limited, "[limits]\nshared = false\n");
    let mut first = stage.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "it waits", || first.stderr().contains("mine is rate-limited; retrying in"));
    first.signal(Signal::INT);
    assert_eq!(first.wait().code, 3);
    assert_eq!(stage.calls("shred"), 1);
    stage.scene.repo().write("P2.md", "# Other\n\n## 1. Thing\n\nText.\n");
    for args in [&["plan", "P2.md"][..], &["plan", "PRD.md", "--fresh"], &["plan", "PRD.md"]] {
        let mut next = stage.scene.spawn(args);
        wait_until(SOON, "it says that it waits", || {
            next.stderr().contains("mine is rate-limited")
        });
        next.signal(Signal::INT);
        assert_eq!(next.wait().code, 3, "{args:?}");
    }
    assert_eq!(stage.calls("shred"), 1, "nobody was asked meanwhile");
}

#[test]
fn an_interrupted_draft_keeps_what_is_finished() {
    let stage = Stage::new(2, "[ $MAINSTEM_TASK != E-002 -o $MAINSTEM_ATTEMPT != 1 ] || sleep 600");
    let mut first = stage.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "one has answered", || {
        first.stderr().contains("✓ E-001") && stage.calls("E-002") == 1
    });
    let second = stage.plan(1, &[]);
    assert!(second.stderr.contains("another draft is active"), "{}", second.stderr);
    first.signal(Signal::INT);
    let out = first.wait();
    assert_eq!(out.code, 3, "{}", out.stderr);
    assert!(out.stderr.contains("interrupted; answers are kept"), "{}", out.stderr);
    assert!(!stage.scene.repo().has("plan.toml"));
    stage.assert_no_agent_left();
    stage.plan(0, &[]);
    assert_eq!([stage.calls("E-001"), stage.calls("E-002")], [1, 2]);
}

#[test]
fn a_plan_that_a_person_changed_is_not_replaced_without_force() {
    let stage = Stage::new(2, "");
    stage.plan(0, &[]);
    let edited = stage.scene.repo().read("plan.toml").replacen("Do $(", "By hand: $(", 1);
    stage.scene.repo().write("plan.toml", &edited);
    let out = stage.plan(1, &[]);
    assert!(out.stderr.contains("use --force to replace it"), "{}", out.stderr);
    assert!(out.stderr.contains("1 changed"), "{}", out.stderr);
    assert_eq!(stage.scene.repo().read("plan.toml"), edited);
    stage.plan(0, &["--force"]);
    assert!(!stage.scene.repo().read("plan.toml").contains("By hand"));
    // Another document makes another draft, and the plan of the first may be replaced by it.
    stage.scene.repo().write("PRD.md", format!("{PRD}\nMore.\n"));
    stage.plan(0, &[]);
    assert_eq!(stage.calls("shred"), 2);
    assert_eq!([stage.calls("E-001"), stage.calls("E-002")], [2, 2]);
    // And so does the same one when everything is to be asked anew.
    stage.plan(0, &["--fresh"]);
    assert_eq!(stage.calls("shred"), 3);
}

#[test]
fn agents_take_turns_and_see_only_an_empty_room() {
    let look = "ls -A | grep -v seen.txt | sed 's/^/saw /' >> \"$log\"";
    let other = "[agents.other]\nkind = \"command\"\ncommand = [\"sh\", \"-c\", \"exit 9\"]\n";
    let stage = Stage::with(4, look, other);
    let result = stage.result(2, &["--agent", "mine", "--agent", "other", "--retries", "0"]);
    assert_eq!(result["missing"], json!(["E-002", "E-004"]));
    let agents: Vec<&str> = result["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["agent"].as_str().unwrap())
        .collect();
    assert_eq!(agents, ["mine", "mine", "other", "mine", "other"]);
    assert!(!log_of(&stage.log).contains("saw"), "{}", log_of(&stage.log));
}

#[test]
fn one_pass_asks_once() {
    let whole = json!({"epics": [{"id": "E-001", "title": "All", "description": "It.", "prd_sections": ["1", "2", "3"],
        "dependencies_on_epics": [], "tasks": [{"temp_id": "E001-T01", "title": "Do all", "description": "It.",
        "acceptance_criteria": ["done"], "local_dependencies": [], "cross_epic_dependencies": [],
        "effort": "small", "priority": "must-have"}]}]});
    let say = format!("[ $MAINSTEM_STAGE != whole ] || echo 'Sure: {whole}'");
    let stage = Stage::new(1, &say);
    let result = stage.result(0, &["--single-pass"]);
    assert_eq!((&result["tasks"], &result["totals"]["calls"]), (&json!(1), &json!(1)));
    assert_eq!(stage.calls("whole"), 1);
}

#[test]
fn a_dry_run_asks_nobody_and_writes_nothing() {
    let stage = Stage::new(1, "");
    let out = stage.plan(0, &["--dry-run"]);
    for words in ["would ask mine", "tokens", "would write plan.toml"] {
        assert!(out.stdout.contains(words), "{words}\n{}", out.stdout);
    }
    let out = stage.plan(0, &["--dry-run", "-v"]);
    assert!(out.stdout.contains("Keep todos."), "{}", out.stdout);
    assert!(!stage.scene.repo().has("plan.toml") && log_of(&stage.log).is_empty());
}

#[test]
fn what_cannot_be_planned_says_why() {
    let stage = Stage::new(1, "");
    let scene = &stage.scene;
    scene.repo().write("empty.md", " \n");
    let err = |args: &[&str], code: i32| scene.expect(code, args).stderr;
    assert!(err(&["plan", "empty.md"], 1).contains("empty.md is empty"));
    assert!(err(&["plan", "nowhere.md"], 1).contains("cannot read nowhere.md"));
    fs::write(scene.outside("far.md"), "x").unwrap();
    let far = scene.outside("far.md").display().to_string();
    assert!(err(&["plan", &far], 1).contains("outside the repository"));
    assert!(err(&["plan", "PRD.md", "--agent", "nobody"], 1).contains("unknown agent nobody"));
    assert!(err(&["plan", "PRD.md", "--agent", "script"], 1).contains("agent script cannot plan"));
    assert!(err(&["plan", "PRD.md", "-o", "plan.xml"], 64).contains(".toml or .json"));
    assert!(err(&["plan"], 64).contains("PRD.md"));
    scene.repo().write("big.md", "x".repeat(1 << 20) + "yy");
    assert!(err(&["plan", "big.md"], 1).contains("1 MiB"));
    assert!(log_of(&stage.log).is_empty());
}

#[test]
fn a_split_that_never_fits_is_an_error_that_names_what_was_wrong() {
    let stage = Stage::new(1, "[ $MAINSTEM_STAGE != shred ] || { echo nothing; exit 0; }");
    let out = stage.plan(1, &["--retries", "1"]);
    assert_eq!(stage.calls("shred"), 2);
    assert!(out.stderr.contains("could not be split into epics"), "{}", out.stderr);
    assert!(out.stderr.contains("no JSON"), "{}", out.stderr);
    assert!(!stage.scene.repo().has("plan.toml"));
}

#[test]
fn a_draft_killed_at_any_point_goes_on_and_asks_for_nothing_twice() {
    let count = |stage: &Stage| {
        let log = stage.scene.outside("points");
        let env = [("MAINSTEM_CRASH_LOG", log.to_str().unwrap())];
        let out = stage.scene.spawn_with(&["plan", "PRD.md", "-j", "2"], &env).wait();
        assert_eq!(out.code, 0, "{}", out.stderr);
        log_of(&log).lines().count()
    };
    let points = count(&Stage::new(2, ""));
    assert!(points > 15, "{points}");
    // Those in between differ in nothing but the part that they are about.
    for n in (1..=points).filter(|n| n % 3 != 2) {
        let stage = Stage::new(2, "");
        let at = n.to_string();
        let env = [("MAINSTEM_CRASH_AT", at.as_str())];
        let first = stage.scene.spawn_with(&["plan", "PRD.md", "-j", "2"], &env).wait();
        assert_eq!(first.code, 137, "point {n}: {}", first.stderr);
        let result = stage.result(0, &["-j", "2"]);
        assert_eq!(result["tasks"], 2, "point {n}");
        for part in ["shred", "E-001", "E-002"] {
            assert_eq!(stage.calls(part), 1, "point {n}: {part}\n{}", log_of(&stage.log));
        }
        stage.assert_no_agent_left();
    }
}

#[test]
fn a_plan_is_shown_with_an_estimate_by_what_landed() {
    let stage = Stage::new(2, "");
    stage.plan(0, &[]);
    let out = stage.scene.expect(0, &["plan", "show", "plan.toml"]).stdout;
    assert!(out.contains("estimate: 16m 00s of work") && out.contains("no history yet"), "{out}");
    let task = |id: &str| {
        format!(
            "[[task]]\nid = \"{id}\"\ntitle = \"t\"\neffort = \"small\"\nrun = \"echo '{{\\\"mainstem\\\":\\\"usage\\\",\\\"cost_usd\\\":0.5,\\\"output_tokens\\\":1}}'; echo x > {id}.txt\"\n"
        )
    };
    stage.scene.repo().write("p.toml", format!("version = 1\n{}{}", task("T-1"), task("T-2")));
    stage.scene.expect(0, &["run", "p.toml"]);
    let json: Value = serde_json::from_str(
        &stage.scene.expect(0, &["--json", "plan", "show", "plan.toml"]).stdout,
    )
    .unwrap();
    assert_eq!(json["estimate"]["based_on_tasks"], 2);
    assert_eq!(json["estimate"]["cost_usd"], 1.0);
}

#[test]
fn a_plan_is_drafted_while_a_run_goes_on_and_each_knows_the_limits_of_the_other() {
    let busy = "if [ $MAINSTEM_TASK = T-1 ]; then sleep 600; fi
        if [ $MAINSTEM_TASK = E-001 -a $MAINSTEM_ATTEMPT = 1 ]; then \
        echo '{\"mainstem\":\"rate_limited\",\"retry_after\":600,\"message\":\"far too much\"}'; exit 1; fi";
    let stage = Stage::new(1, busy);
    stage.scene.repo().write("p.toml", "version = 1\n[[task]]\nid = \"T-1\"\ntitle = \"x\"\n");
    let mut run = stage.scene.spawn(&["run", "p.toml"]);
    wait_until(SOON, "the task is at work", || stage.calls("T-1") == 1);
    let mut first = stage.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "the run was told", || {
        stage.scene.status()["limits"][0]["reason"]
            .to_string()
            .contains("a planner call was rate-limited")
    });
    assert_eq!(stage.scene.status()["state"], "running");
    first.signal(Signal::INT);
    assert_eq!(first.wait().code, 3);
    run.signal(Signal::INT);
    assert_eq!(run.wait().code, 3);
    // What the run knows, another document's draft is told before it asks anybody.
    stage.scene.repo().write("PRD.md", "# Another\n\n## 1 Thing\n\nMake it.\n");
    let mut other = stage.scene.spawn(&["plan", "PRD.md"]);
    wait_until(SOON, "it waits", || other.stderr().contains("retrying in"));
    other.signal(Signal::INT);
    assert_eq!(other.wait().code, 3);
    assert_eq!(stage.calls("shred"), 1, "{}", log_of(&stage.log));
    stage.assert_no_agent_left();
}
