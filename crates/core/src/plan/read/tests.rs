#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::plan::ScriptStep;

fn task(body: &str) -> Result<Task, Vec<Diagnostic>> {
    let source = format!("version = 1\n[[task]]\nid = 'a'\n{body}\n");
    read_plan(source.as_bytes(), DocumentFormat::Toml).map(|(mut plan, _)| plan.tasks.remove(0))
}

/// Checks that a task's body gives exactly one fault with this code, whose text holds `word`.
fn refused(body: &str, code: &str, word: &str) {
    let faults = task(body).unwrap_err();
    let all: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "{body}: {all:?}");
    assert_eq!(faults[0].code, code, "{body}: {all:?}");
    assert!(all[0].contains(word), "{body}: {all:?}");
    assert!(faults[0].help.is_some() || code == "plan::range", "{body}: {all:?}");
}

const CONTRACT: &str = r#"
version = 1
title = "Todo service"

[[epic]]
id = "E-001"
title = "Storage"
needs = []

[[task]]
id = "T-001"
epic = "E-001"
title = "Schema and migrations"
description = """What to do:
becomes the heart of the prompt."""
acceptance = ["cargo test -p store passes"]
needs = []
after = []
writes = ["crates/store/**"]
agent = "claude"
role = "coder"
model = "m-1"
effort = "small"
priority = -3
verify = ["cargo test -p store"]
on_failure = "skip"
timeout = "45m"
retries = 2
phase = "one"
"#;

#[test]
fn the_contract_example_reads_whole() {
    let (plan, places) = read_plan(CONTRACT.as_bytes(), DocumentFormat::Toml).unwrap();
    assert_eq!(plan.title, "Todo service");
    assert_eq!(plan.epics[0].id.as_str(), "E-001");
    let task = &plan.tasks[0];
    assert_eq!(task.epic.as_ref().unwrap().as_str(), "E-001");
    assert!(task.description.contains("heart"));
    assert_eq!(task.writes, ["crates/store/**"]);
    assert_eq!((task.effort, task.priority), (TaskEffort::Small, -3));
    assert_eq!(task.on_failure, TaskFailureAction::Skip);
    assert_eq!((task.timeout_ms, task.retries), (Some(2_700_000), Some(2)));
    assert_eq!(task.phase.as_deref(), Some("one"));
    assert_eq!(&CONTRACT[Range::from(places.tasks[0].id)], "\"T-001\"");
    assert_eq!(&CONTRACT[Range::from(places.tasks[0].writes[0])], "\"crates/store/**\"");
}

#[test]
fn all_formats_and_plural_keys_give_the_same_plan() {
    let toml = "version = 1\n[[task]]\nid = 'a'\nrun = 'true'\n[[task]]\nid = 'b'\nneeds = ['a']\n";
    let yaml = "version: 1\ntasks:\n- id: a\n  run: 'true'\n  epic: null\n- id: b\n  needs: [a]\n";
    let json =
        r#"{"version":1,"tasks":[{"id":"a","run":"true","agent":null},{"id":"b","needs":["a"]}]}"#;
    let (want, _) = read_plan(toml.as_bytes(), DocumentFormat::Toml).unwrap();
    assert_eq!(want.tasks[0].agent.as_deref(), Some("command"));
    assert_eq!(want.tasks[1].agent, None);
    assert_eq!(read_plan(yaml.as_bytes(), DocumentFormat::Yaml).unwrap().0, want);
    assert_eq!(read_plan(json.as_bytes(), DocumentFormat::Json).unwrap().0, want);
    assert_eq!(
        read_plan(toml.replace("task]]", "tasks]]").as_bytes(), DocumentFormat::Toml).unwrap().0,
        want
    );
}

#[test]
fn every_fault_comes_in_one_report_in_order() {
    let source =
        "tilte = 'x'\n[[task]]\nid = 7\nneed = []\ntimeout = 45\n[[epic]]\ntitle = 'no id'\n";
    let faults = read_plan(source.as_bytes(), DocumentFormat::Toml).unwrap_err();
    let found: Vec<_> = faults.iter().map(|f| (f.code, f.line)).collect();
    assert_eq!(
        found,
        [
            ("plan::version", 1),
            ("plan::unknown_key", 1),
            ("plan::type", 3),
            ("plan::unknown_key", 4),
            ("plan::type", 5),
            ("plan::missing_id", 6)
        ]
    );
    assert_eq!(faults[1].help.as_deref(), Some("did you mean `title`?"));
    assert_eq!(faults[3].help.as_deref(), Some("did you mean `needs`?"));
}

#[test]
fn wrong_values_are_refused_with_a_cure() {
    refused("needs = 'b'", "plan::type", "[\"b\"]");
    refused("needs = [1]", "plan::type", "quotes");
    refused("writes = {}", "plan::type", "square brackets");
    refused("title = 3", "plan::type", "quotes");
    refused("title = 1979-05-27", "plan::type", "a date");
    refused("title = \"a\\nMainstem-Task: x\"", "plan::text", "description");
    refused("run = \"a\\u0000b\"", "plan::text", "NUL");
    refused("run = ' '", "plan::text", "empty");
    refused("agent = ''", "plan::text", "empty");
    refused("verify = ['']", "plan::text", "empty");
    refused("timeout = 45", "plan::type", "\"45m\"");
    refused("timeout = '45'", "plan::duration", "unit");
    refused("timeout = '1.5h'", "plan::duration", "unit");
    refused("retries = -1", "plan::range", "-1");
    refused("retries = '1'", "plan::type", "an integer");
    refused("priority = 1.5", "plan::type", "an integer");
    refused("effort = 'smal'", "plan::choice", "small");
    refused("on_failure = 'explode'", "plan::choice", "block, continue, skip");
    refused("run = 'x'\nscript = [{commit = 'm'}]", "plan::agent", "not both");
    refused("scirpt = []", "plan::unknown_key", "script");
}

#[test]
fn every_step_of_a_script_reads() {
    let steps = task(
        r#"script = [
        {write = "a/b.txt", text = "x"}, {append = "a.txt", text = ""}, {commit = "m"},
        {sleep = "200ms"}, {print = "p"}, {ask = "q?", options = ["a", "b"], into = "f"},
        {fail = 1, times = 2}, {rate_limit = "2s", times = 1}, {hang = true, ignore_term = true},
        {spawn = "5s", detach = true}, {usage = {input_tokens = 1, output_tokens = 2, cost_usd = 0.5}},
        {nothing_to_do = "why"}, {blocked = "why"}]"#,
    )
    .unwrap();
    assert_eq!(steps.agent.as_deref(), Some("script"));
    let steps = steps.script;
    assert_eq!(steps.len(), STEP_COUNT);
    assert_eq!(steps[0], ScriptStep::Write { path: "a/b.txt".into(), text: "x".into() });
    assert_eq!(steps[3], ScriptStep::Sleep { ms: 200 });
    assert_eq!(
        steps[5],
        ScriptStep::Ask {
            question: "q?".into(),
            options: vec!["a".into(), "b".into()],
            into: Some("f".into())
        }
    );
    assert_eq!(steps[6], ScriptStep::Fail { code: 1, times: Some(2) });
    assert_eq!(steps[7], ScriptStep::RateLimit { retry_after: 2.0, times: Some(1) });
    assert_eq!(steps[8], ScriptStep::Hang { ignore_term: true });
    assert_eq!(steps[9], ScriptStep::Spawn { ms: 5_000, detach: true });
    let usage = ScriptStep::Usage { input_tokens: 1, output_tokens: 2, cost_usd: 0.5 };
    assert_eq!(steps[10], usage);
    assert_eq!(steps[12], ScriptStep::Blocked { reason: "why".into() });
}

const STEP_COUNT: usize = 13;

#[test]
fn bad_steps_are_refused() {
    refused("script = [{write = '../x', text = ''}]", "plan::path", "..");
    refused("script = [{write = '/etc/x', text = ''}]", "plan::path", "relative");
    refused("script = [{ask = 'q', into = 'a/../../b'}]", "plan::path", "..");
    refused("script = [{write = 'x'}]", "plan::step", "text");
    refused("script = [{wirte = 'x', text = ''}]", "plan::step", "write");
    refused("script = [{commit = 'x', print = 'y'}]", "plan::step", "two steps");
    refused("script = [{sleep = 3}]", "plan::type", "\"3s\"");
    refused("script = [{fail = 0}]", "plan::range", "255");
    refused("script = [{fail = 1, times = 0}]", "plan::range", "times");
    refused("script = [{hang = false}]", "plan::step", "nothing");
    refused("script = [{usage = {tokens = 1}}]", "plan::unknown_key", "usage");
    refused("script = [{usage = {cost_usd = -1.0}}]", "plan::range", "money");
    refused("script = ['x']", "plan::type", "table");
    refused("script = 'x'", "plan::type", "list");
    refused("script = [{commit = 'm', times = 2}]", "plan::unknown_key", "commit");
}

#[test]
fn shapes_that_are_no_plan_are_refused() {
    for (source, format) in [
        ("[]", DocumentFormat::Json),
        ("3", DocumentFormat::Json),
        ("just words", DocumentFormat::Yaml),
        ("version = 1\n[task]\nid = 'a'\n", DocumentFormat::Toml),
        ("version = 1\ntask = ['a']\n", DocumentFormat::Toml),
        ("version = 2\n", DocumentFormat::Toml),
        ("version = '1'\n", DocumentFormat::Toml),
    ] {
        let faults = read_plan(source.as_bytes(), format).unwrap_err();
        assert!(!faults.is_empty(), "{source}");
    }
    assert!(read_plan(b"\xff\xfe", DocumentFormat::Toml).is_err());
}
