//! A PRD planned by the vendor's own agent.

use mainstem_testkit::llm::LlmStandIn;
use mainstem_testkit::{TestScene, real_agent};
use serde_json::{Value, json};

use super::{BIN, PATIENCE, settings};

fn epic(n: usize) -> Value {
    json!({"id": format!("E-{n:03}"), "title": format!("Part {n}"), "description": "It.",
        "prd_sections": [format!("{n}")], "estimated_task_count": 1, "dependencies_on_epics": []})
}

fn tasks(n: usize) -> String {
    let task = |m: usize| {
        json!({"temp_id": format!("E{n:03}-T{m:02}"), "title": format!("Build piece {m} of part {n}"),
            "description": "Do it.", "acceptance_criteria": ["it works"], "local_dependencies": [],
            "cross_epic_dependencies": [], "effort": "small", "priority": "must-have"})
    };
    json!({"epic_id": format!("E-{n:03}"), "tasks": [task(1), task(2)]}).to_string()
}

/// The split is cut off at first; E-001 comes in prose with a trailing comma, E-002 first for another epic,
/// E-003 after a 429, as a file.
fn script() -> Value {
    let whole = json!({"epics": [epic(1), epic(2), epic(3)]}).to_string();
    let again = "last answer was refused";
    let loose = tasks(1).replace("\"priority\":\"must-have\"}", "\"priority\":\"must-have\",}");
    let worker = |n: usize| format!("`epic_id` is \"E-{n:03}\"");
    json!({"cases": [
        {"when": "# Split a requirements document", "unless": again, "steps": [{"say": &whole[..90]}]},
        {"when": "# Split a requirements document", "steps": [{"say": whole}]},
        {"when": worker(1), "steps": [{"say": format!("Here is the plan:\n```json\n{loose}\n```\nDone.")}]},
        {"when": worker(2), "unless": again, "steps": [{"say": tasks(7)}]},
        {"when": worker(2), "steps": [{"say": tasks(2)}]},
        {"when": worker(3), "steps": [
            {"write": {"path": "epic-E-003.json", "content": tasks(3)},
             "fault": {"status": 429, "times": 1, "retry_after": 2}},
            {"say": "It is written."},
        ]},
    ]})
}

#[test]
fn claude_plans_a_prd_through_malformed_answers_and_a_rate_limit() {
    let Some(program) = real_agent("claude") else {
        println!("skipped: claude is not installed; cargo xtask test installs it");
        return;
    };
    let llm = LlmStandIn::start();
    let scene = TestScene::new(BIN);
    let root = scene.repo().root().to_owned();
    // No sandbox is switched off for this: a planner's agent may write its answer and nothing else.
    let config = settings("claude", &program, &root, &llm.url());
    let scene = scene.config(&format!("[run]\nagent = \"claude\"\n{config}"));
    let prd = format!(
        "# Shop\n\n## 1 Store\n\nKeep.\n\n## 2 Sell\n\nSell.\n\n## 3 Mail\n\nSend.\n\n<<STUB {} STUB>>\n",
        script()
    );
    scene.repo().commit("document", &[("PRD.md", &prd)]);
    let out = scene.spawn(&["--json", "plan", "PRD.md", "-j", "3"]).wait_for(PATIENCE);
    let story = format!("{}\n{}\n{:#?}", out.stdout, out.stderr, llm.requests());
    assert_eq!(out.code, 0, "{story}");
    let lines: Vec<Value> =
        out.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
    let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((count("shred_retry"), count("worker_retry")), (1, 1), "{story}");
    assert!(count("rate_limited") >= 1, "{story}");
    let result = lines.last().expect("a result");
    assert_eq!(result["tasks"], 6, "{story}");
    let calls: Vec<u64> = result["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .map(|part| part["calls"].as_u64().unwrap_or(0))
        .collect();
    assert_eq!(calls, [2, 1, 2, 1], "split, E-001, E-002, E-003: {story}");
    // Tokens are those that were served.
    let served = llm.served("");
    let total = &result["totals"];
    assert_eq!(total["output_tokens"].as_u64(), Some(served.output), "{story}");
    scene.expect(0, &["plan", "check", "plan.toml"]);
}

#[test]
fn every_vendors_agent_can_plan_an_epic() {
    let agents = ["claude", "codex", "gemini", "opencode"];
    let llm = LlmStandIn::start();
    let scene = TestScene::new(BIN);
    let root = scene.repo().root().to_owned();
    let mut config = "[run]\nagent = \"claude\"\n".to_owned();
    for agent in agents {
        let Some(program) = real_agent(agent) else {
            println!("skipped: {agent} is not installed; cargo xtask test installs it");
            return;
        };
        config.push_str(&settings(agent, &program, &root, &llm.url()));
    }
    let scene = scene.config(&config);
    let whole = json!({"epics": (1..=4).map(epic).collect::<Vec<_>>()}).to_string();
    let mut cases =
        vec![json!({"when": "# Split a requirements document", "steps": [{"say": whole}]})];
    // Where every tool but one is denied, an agent may offer its model none at all.
    cases.extend((1..=4).map(|n| {
        let when = format!("`epic_id` is \"E-{n:03}\"");
        json!({"when": when, "toolless": true, "steps": [{"say": tasks(n)}]})
    }));
    let script = json!({ "cases": cases });
    let prd = format!("# Shop\n\n## 1 Store\n\nKeep.\n\n<<STUB {script} STUB>>\n");
    scene.repo().commit("document", &[("PRD.md", &prd)]);
    let mut args = vec!["--json", "plan", "PRD.md", "-j", "2"];
    args.extend(agents.iter().flat_map(|agent| ["--agent", agent]));
    let out = scene.spawn(&args).wait_for(PATIENCE);
    let story = format!("{}\n{}\n{:#?}", out.stdout, out.stderr, llm.requests());
    assert_eq!(out.code, 0, "{story}");
    let last = out.stdout.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last).expect("a result");
    assert_eq!((&result["tasks"], &result["totals"]["calls"]), (&json!(8), &json!(5)), "{story}");
}
