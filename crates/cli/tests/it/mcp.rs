//! The tools that an attempt's agent gets: a real server, spoken to as the CLIs speak to it.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestScene, wait_until};
use serde_json::{Value, json};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PATIENCE: Duration = Duration::from_secs(90);

/// A client in shell: `say LINE`, `call ID TOOL ARGUMENTS`, `hear ID` (the response is in $line).
fn client() -> String {
    format!(
        r#"set -e
d=$MAINSTEM_TMP; mkfifo $d/in $d/out
'{BIN}' __mcp < $d/in > $d/out &
exec 3> $d/in 4< $d/out
say() {{ printf '%s\n' "$1" >&3; }}
hear() {{ while IFS= read -r line <&4; do case "$line" in *'"id":'$1[,}}]*) return 0;; esac; done; return 1; }}
call() {{ say '{{"jsonrpc":"2.0","id":'$1',"method":"tools/call","params":{{"name":"'$2'","arguments":'"$3"'}}}}'; }}
say '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"test","version":"1"}}}}}}'
hear 1; printf '%s\n' "$line" > init.json
say '{{"jsonrpc":"2.0","method":"notifications/initialized"}}'
"#
    )
}

fn landed(scene: &TestScene, path: &str) -> Value {
    let text = scene.repo().show("main", path).unwrap_or_else(|| panic!("{path} did not land"));
    serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

fn text_of(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

fn questions(scene: &TestScene) -> Vec<Value> {
    scene.status()["questions"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_question_outlives_the_engine_and_is_answered_by_a_person() {
    let script = format!(
        "{}\nsay '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{{\"name\":\"ask\",\"_meta\":{{\"progressToken\":\"p\"}},\
         \"arguments\":{{\"question\":\"Which colour?\",\"options\":[\"red\",\"blue\"]}}}}}}'; \
         IFS= read -r line <&4; printf '%s\\n' \"$line\" > sign.json; hear 2; printf '%s\\n' \"$line\" > answer.json",
        client()
    );
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", &script, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "the question", || questions(&scene).len() == 1);
    scene.assert_phases(&[("T-1", "asking")]);
    running.kill9();
    scene.expect(0, &["answer", "Q1", "2"]);
    scene.expect(0, &["run"]);
    scene.assert_phases(&[("T-1", "landed")]);
    let answer = landed(&scene, "answer.json");
    assert_eq!(text_of(&answer), "blue", "{answer}");
    assert_eq!(scene.facts_of("question_asked").len(), 1);
    let sign = landed(&scene, "sign.json");
    assert_eq!(sign["method"], "notifications/progress", "{sign}");
    assert_eq!(sign["params"]["progressToken"], "p");
    let version = &landed(&scene, "init.json")["result"]["protocolVersion"];
    assert_eq!(version, "2025-06-18", "the client's version is spoken");
    scene.assert_nothing_left();
}

#[test]
fn many_questions_at_once_get_their_own_answers() {
    let script = format!(
        "{}\nfor n in 2 3 4; do call $n ask '{{\"question\":\"'$MAINSTEM_TASK-$n'\"}}'; done; \
         for n in 2 3 4; do while [ ! -e $MAINSTEM_TASK-$n.json ]; do IFS= read -r line <&4; \
         k=$(printf '%s' \"$line\" | sed 's/.*\"id\":\\([0-9]*\\).*/\\1/'); \
         printf '%s\\n' \"$line\" > $MAINSTEM_TASK-$k.json; done; done",
        client().replace("> init.json", "> /dev/null")
    );
    let tasks = ["A", "B", "C"];
    let plan: Vec<_> = tasks.iter().map(|id| (*id, script.as_str(), "")).collect();
    let scene = TestScene::new(BIN).plan(&shell_plan(&plan));
    let running = scene.spawn(&["run", "plan.toml", "-j", "3"]);
    let mut answered = BTreeMap::new();
    wait_until(PATIENCE, "nine questions", || {
        for question in questions(&scene) {
            let name = question["id"].as_str().unwrap_or_default().to_owned();
            let text = question["question"].as_str().unwrap_or_default().to_owned();
            if answered.insert(name.clone(), text.clone()).is_none() {
                scene.expect(0, &["answer", &name, &format!("for {text}")]);
            }
        }
        answered.len() == 9
    });
    running.wait().expect_code(0);
    for task in tasks {
        for n in 2..=4 {
            let response = landed(&scene, &format!("{task}-{n}.json"));
            assert_eq!(text_of(&response), format!("for {task}-{n}"), "{response}");
        }
    }
    scene.assert_nothing_left();
}

#[test]
fn the_tools_tell_report_and_refuse_in_words() {
    let script = format!(
        r#"{}
say '{{"jsonrpc":"2.0","id":2,"method":"tools/list"}}'; hear 2; printf '%s\n' "$line" > tools.json
call 3 get_task '{{}}'; hear 3; printf '%s\n' "$line" > task.json
call 4 list_peers '{{}}'; hear 4; printf '%s\n' "$line" > peers.json
call 5 report_progress '{{"text":"half way"}}'; hear 5; printf '%s\n' "$line" > progress.json
call 6 ask '{{}}'; hear 6; printf '%s\n' "$line" > empty.json
call 7 merge '{{}}'; hear 7; printf '%s\n' "$line" > unknown.json
say '{{"jsonrpc":"2.0","id":8,"method":"no/such"}}'; hear 8; printf '%s\n' "$line" > method.json
call 9 complete_task '{{"summary":"did it","evidence":["ran it"]}}'; hear 9; printf '%s\n' "$line" > done.json
say '{{"jsonrpc":"2.0","id":10,"method":"ping"}}'; hear 10; printf '%s\n' "$line" > ping.json"#,
        client()
    );
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        ("T-1", &script, "title = \"The one\"\ndescription = \"Paint it blue\""),
        ("T-2", "echo 2 > 2.txt", "needs = [\"T-1\"]"),
    ]));
    scene.expect(0, &["run", "plan.toml"]);
    let tools = landed(&scene, "tools.json");
    let names: Vec<_> = tools["result"]["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "ask",
            "report_progress",
            "complete_task",
            "log_issue",
            "propose_task",
            "get_task",
            "list_peers"
        ]
    );
    assert!(text_of(&landed(&scene, "task.json")).contains("Paint it blue"));
    let peers: Value = serde_json::from_str(text_of(&landed(&scene, "peers.json"))).expect("JSON");
    assert_eq!(peers["peers"][0]["id"], "T-2");
    for name in ["empty.json", "unknown.json"] {
        let refused = landed(&scene, name);
        assert_eq!(refused["result"]["isError"], true, "{refused}");
    }
    assert!(
        text_of(&landed(&scene, "empty.json")).contains("missing argument `question` of `ask`")
    );
    assert_eq!(landed(&scene, "method.json")["error"]["code"], -32601);
    assert_eq!(landed(&scene, "ping.json")["result"], json!({}));
    let log = scene.expect(0, &["logs", "T-1", "--raw"]).stdout;
    assert!(log.contains(r#""mainstem":"progress""#) && log.contains("claimed_done"), "{log}");
    scene.assert_nothing_left();
}

#[test]
fn a_cancelled_call_leaves_the_server_alive_and_the_question_open() {
    let script = format!(
        "{}\ncall 2 ask '{{\"question\":\"Same?\"}}'; while [ ! -e go ]; do sleep 0.05; done; rm go; \
         say '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":2}}}}'; \
         say '{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}}'; hear 9; touch $MAINSTEM_TMP/cancelled; \
         call 3 ask '{{\"question\":\"Same?\"}}'; hear 3; printf '%s\\n' \"$line\" > answer.json",
        client()
    );
    let scene = TestScene::new(BIN).plan(&shell_plan(&[("T-1", &script, "")]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "the question", || questions(&scene).len() == 1);
    let workspace = scene.task("T-1")["workspace"].as_str().map(std::path::PathBuf::from);
    std::fs::write(workspace.expect("it has one").join("go"), "").expect("a file");
    let cancelled = scene.repo().place().join("repo.mainstem/_tmp/T-1-1/cancelled");
    wait_until(PATIENCE, "the cancelled call", || cancelled.exists());
    scene.expect(0, &["answer", "Q1", "the very same"]);
    running.wait().expect_code(0);
    assert_eq!(text_of(&landed(&scene, "answer.json")), "the very same");
    assert_eq!(scene.facts_of("question_asked").len(), 1);
}

#[test]
fn the_server_says_what_it_misses_when_started_by_hand() {
    let scene = TestScene::new(BIN);
    let output = scene.mainstem(&["__mcp"]);
    assert!(output.stderr.contains("MAINSTEM_MCP_SOCKET"), "{}", output.stderr);
}

// ---- prompts -------------------------------------------------------------------------------

#[test]
fn a_users_template_makes_the_prompt_and_show_prints_it() {
    let scene =
        TestScene::new(BIN).config("[prompt]\ntemplate = \"prompt.md\"\n").plan(&shell_plan(&[(
            "T-1",
            "cp $MAINSTEM_PROMPT got.txt",
            "description = \"{{ 7*7 }} ⟦ task.id ⟧\"",
        )]));
    scene.repo().commit("template", &[("prompt.md", "House style.\n⟦ sections.task ⟧")]);
    scene.expect(0, &["run", "plan.toml"]);
    let shown = scene.expect(0, &["show", "T-1", "--prompt"]).stdout;
    assert!(shown.starts_with("House style.\n# T-1"), "{shown}");
    assert!(shown.contains("{{ 7*7 }} ⟦ task.id ⟧"), "{shown}");
    assert_eq!(scene.repo().show("main", "got.txt").as_deref(), Some(shown.as_str()));
    let told = scene.expect(0, &["show", "T-1", "--prompt", "--json"]).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["attempt"], told["text"].as_str()), (&json!(1), Some(shown.as_str())));
    scene.expect(1, &["show", "T-1", "--prompt", "--attempt", "7"]);
}

#[test]
fn a_template_with_a_mistake_is_refused_with_its_line_before_anything_starts() {
    let scene = TestScene::new(BIN)
        .config("[prompt]\ntemplate = \"prompt.md\"\n")
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    for args in [&["run", "plan.toml"][..], &["plan", "check", "plan.toml"]] {
        let said = scene.expect(1, args).stderr;
        assert!(said.contains("prompt.md") && said.contains("cannot read"), "{said}");
    }
    scene.repo().commit("template", &[("prompt.md", "one\n⟦ sections.task ⟧\n⟦ nonsense ⟧\n")]);
    for args in [&["run", "plan.toml"][..], &["plan", "check", "plan.toml"]] {
        let said = scene.expect(1, args).stderr;
        assert!(said.contains("prompt.md") && said.contains("line 3"), "{said}");
    }
    let told = scene.expect(0, &["history", "--json"]).stdout;
    assert_eq!(told.trim(), "", "nothing started");
}

#[test]
fn what_was_answered_before_is_told_to_the_next_attempt() {
    let ask = r#"{"mainstem":"ask","question":"Which port?"}"#;
    let script = format!(
        "if [ $MAINSTEM_ATTEMPT = 1 ]; then echo '{ask}'; read -r a; exit 1; fi; cp $MAINSTEM_PROMPT got.txt"
    );
    let scene = TestScene::new(BIN)
        .config("[questions]\npolicy = [\"which port => 8080\"]\n")
        .plan(&shell_plan(&[("T-1", &script, "retries = 1")]));
    scene.expect(0, &["run", "plan.toml"]);
    let prompt = scene.repo().show("main", "got.txt").unwrap_or_default();
    assert!(prompt.contains("- Which port?\n  Answer: 8080"), "{prompt}");
    assert_eq!(scene.facts_of("question_answered")[0]["by"], "policy");
}

// ---- lessons -------------------------------------------------------------------------------

#[test]
fn a_failure_and_its_cure_are_learned_once_and_told_to_later_attempts() {
    let script = "echo $MAINSTEM_ATTEMPT > schema.sql; echo x > model.rs";
    let scene = TestScene::new(BIN).plan(&shell_plan(&[
        (
            "T-1",
            script,
            "title = \"Database schema\"\nretries = 1\nverify = [\"grep -q 2 schema.sql || { echo no such table; exit 1; }\"]",
        ),
        (
            "T-2",
            "cp $MAINSTEM_PROMPT prompt.txt",
            "title = \"Migration of the database\"\nneeds = [\"T-1\"]",
        ),
        ("T-3", "cp $MAINSTEM_PROMPT other.txt", "title = \"Something else\"\nneeds = [\"T-1\"]"),
    ]));
    scene.expect(0, &["run", "plan.toml"]);
    let main = |path| scene.repo().show("main", path).unwrap_or_default();
    let prompt = main("prompt.txt");
    assert!(
        prompt.contains("failed before: gate `grep") && prompt.contains("no such table"),
        "{prompt}"
    );
    assert!(prompt.contains("cure: attempt 2 of T-1 passed"), "{prompt}");
    assert!(prompt.contains("changed together: model.rs, schema.sql"), "{prompt}");
    assert!(!main("other.txt").contains("no such table"), "another domain");
    let show = || scene.expect(0, &["lessons", "show", "database", "--json"]).stdout;
    let told: Value = serde_json::from_str(&show()).expect("JSON");
    assert_eq!(told["failures"][0]["from"][0]["task"], "T-1");
    // Reading the journal again from its beginning teaches nothing new.
    let folder = scene.repo().path().join(".git/mainstem/lessons");
    let before = show();
    std::fs::remove_file(folder.join(".learned")).expect("it is there");
    scene.expect(0, &["run"]);
    assert_eq!(show(), before);
    let listed = scene.expect(0, &["lessons"]).stdout;
    assert!(listed.contains("database") && listed.contains("1 failure"), "{listed}");
    scene.expect(0, &["lessons", "forget", "database", "no such table"]);
    assert!(!show().contains("no such table"));
    scene.expect(1, &["lessons", "show", "nonsense"]);
}

#[test]
fn damaged_lessons_are_named_and_stop_nothing() {
    let scene = TestScene::new(BIN)
        .config("[lessons]\nfolder = \"lessons\"\n")
        .plan(&shell_plan(&[("T-1", "echo x > x.txt", "")]));
    scene.repo().commit("lessons", &[("lessons/general.toml", "not = [toml")]);
    scene.expect(0, &["run", "plan.toml"]);
    let said = scene.expect(1, &["lessons"]).stderr;
    assert!(said.contains("general.toml") && said.contains("fix or remove the file"), "{said}");
    assert!(scene.facts_of("noticed").iter().any(|f| f.to_string().contains("no lessons")));
}

// ---- who answers, and what becomes of proposals --------------------------------------------

#[test]
fn an_answering_agent_answers_and_what_it_cannot_answer_waits_for_a_person() {
    let ask = |text: &str| {
        let line = json!({"mainstem": "ask", "question": text, "options": ["red", "blue"]});
        format!("echo '{line}'; read -r a; echo \"$a\" >> answers.txt")
    };
    let script = format!("{}; {}", ask("Which colour?"), ask("Which size?"));
    let wise = "echo '{\"mainstem\":\"usage\",\"input_tokens\":7,\"output_tokens\":1,\"cost_usd\":0.25}'; \
        case $(cat $MAINSTEM_PROMPT) in *'Which colour?'*Paint*) echo '{\"answer\":\"blue\"}';; \
        *) echo '{\"answer\":\"huge\"}' > $MAINSTEM_OUTPUT;; esac";
    let config = format!(
        "[questions]\nagent = \"wise\"\n[agents.wise]\nkind = \"command\"\ncommand = {}\n",
        json!(["sh", "-c", wise])
    );
    let scene = TestScene::new(BIN).config(&config).plan(&shell_plan(&[(
        "T-1",
        &script,
        "description = \"Paint it\"",
    )]));
    let running = scene.spawn(&["run", "plan.toml"]);
    wait_until(PATIENCE, "the second question", || {
        questions(&scene).iter().any(|question| question["id"] == "Q2")
    });
    wait_until(PATIENCE, "a question for people", || {
        scene.facts_of("noticed").iter().any(|f| f.to_string().contains("Q2 waits for a person"))
    });
    scene.expect(0, &["answer", "Q2", "red"]);
    running.wait().expect_code(0);
    let by: Vec<_> = scene
        .facts_of("question_answered")
        .iter()
        .map(|fact| {
            (fact["text"].as_str().map(str::to_owned), fact["by"].as_str().map(str::to_owned))
        })
        .collect();
    let pair = |text: &str, by: &str| (Some(text.to_owned()), Some(by.to_owned()));
    assert_eq!(by, [pair("blue", "agent wise"), pair("red", "person")]);
    let answers = scene.repo().show("main", "answers.txt").unwrap_or_default();
    assert!(answers.contains("blue") && answers.contains("red"), "{answers}");
    // Both answers were paid for, the useless one too, and they are the answering agent's.
    let cost = scene.expect(0, &["cost", "--by", "agent", "--json"]).stdout;
    let cost: Value = serde_json::from_str(&cost).expect("JSON");
    assert_eq!(scene.status()["totals"]["cost_usd"], 0.5);
    assert!(cost.to_string().contains("wise"), "{cost:#}");
    scene.assert_nothing_left();
}

#[test]
fn a_deadline_of_the_settings_answers_what_nobody_does() {
    let ask = r#"echo '{"mainstem":"ask","question":"Well?"}'; read -r a; echo "$a" > answer.txt"#;
    let scene = TestScene::new(BIN)
        .config("[questions]\ndeadline = \"1s\"\ndefault = \"the usual\"\n")
        .plan(&shell_plan(&[("T-1", ask, "")]));
    scene.expect(0, &["run", "plan.toml"]);
    assert!(scene.repo().show("main", "answer.txt").unwrap_or_default().contains("the usual"));
    assert_eq!(scene.facts_of("question_answered")[0]["by"], "deadline");
}

#[test]
fn a_proposed_task_is_nobodys_before_it_is_accepted_and_then_part_of_the_run() {
    let scene = TestScene::new(BIN);
    let go = scene.outside("go").display().to_string();
    let agent = format!(
        r#"if [ $MAINSTEM_TASK = T-1 ]; then
echo '{{"mainstem":"propose_task","id":"T-9","title":"More","description":"Do more","needs":["T-1"]}}'
echo '{{"mainstem":"propose_task","id":"../x","title":"Odd","description":"Odd","needs":["T-77"]}}'
echo '{{"mainstem":"issue","title":"A leak","text":"in the cellar","severity":"high"}}'
until [ -e '{go}' ]; do sleep 0.05; done
fi
echo $MAINSTEM_TASK > $MAINSTEM_TASK.txt"#
    );
    let config = format!(
        "[run]\nagent = \"mine\"\n[agents.mine]\nkind = \"command\"\ncommand = {}\n",
        json!(["sh", "-c", agent])
    );
    let scene =
        scene.config(&config).plan("version = 1\n[[task]]\nid = \"T-1\"\ntitle = \"One\"\n");
    let running = scene.spawn(&["run", "plan.toml"]);
    let listed = || -> Value {
        let text = scene.expect(0, &["proposals", "--json"]).stdout;
        serde_json::from_str(&text).expect("JSON")
    };
    wait_until(PATIENCE, "two proposals", || {
        scene.status()["tasks"][0]["phase"] == "working"
            && listed()["issues"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(scene.status()["tasks"].as_array().map(Vec::len), Some(1), "in quarantine");
    let refused = scene.expect(1, &["accept", "P2"]).stderr;
    assert!(refused.contains("T-77"), "{refused}");
    scene.expect(0, &["reject", "P2"]);
    scene.expect(0, &["accept", "p1"]);
    scene.expect(1, &["accept", "P7"]);
    scene.expect(1, &["reject", "P1"]);
    std::fs::write(&go, "").expect("a file");
    running.wait().expect_code(0);
    scene.assert_phases(&[("T-1", "landed"), ("T-9", "landed")]);
    let states: Vec<Value> = listed()["proposals"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| p["state"].clone())
        .collect();
    assert_eq!(states, ["accepted", "rejected"]);
    // The plan's file does not know it; it stays all the same.
    scene.expect(0, &["run", "plan.toml"]);
    scene.assert_each_lands_once(&["T-1", "T-9"]);
    let shown = scene.expect(0, &["proposals"]).stdout;
    let one = scene.expect(0, &["show", "T-1"]).stdout;
    assert!(one.contains("issue: A leak"), "{one}");
    assert!(shown.contains("accepted as T-9") && shown.contains("A leak"), "{shown}");
    scene.assert_nothing_left();
}
