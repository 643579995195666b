//! What was recorded from the vendors' own tools, read by the protocols that drive them.
//!
//! Each file under `golden/` is one life of a tool against the stand-in: `out` and `err` say on which
//! stream a line came. Machine paths and long lists that nobody reads were taken out. The snapshot holds
//! everything the driver would have done: lines written to the tool, lines printed, the end of the turn.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use mainstem_agents::DriveSpec;
use mainstem_agents::drive::{DriveCommand, ToolConversation, TurnEnd};

fn spec(name: &str) -> DriveSpec {
    let protocol = match name {
        _ if name.starts_with("codex-exec") => "codex-exec",
        _ => name.split('-').next().unwrap(),
    };
    let allowed = match name {
        "claude-permission" => Some(vec!["Write".to_owned()]),
        "codex-permission" => Some(vec!["shell(/bin/bash -lc \"cat*)".to_owned()]),
        _ => None,
    };
    DriveSpec {
        protocol: protocol.to_owned(),
        agent: protocol.to_owned(),
        workspace: "/repo".to_owned(),
        model: name.starts_with("codex").then(|| "gpt-5.5".to_owned()),
        resume: ["resume", "unknown"].iter().any(|end| name.ends_with(end)).then(|| "s-0".into()),
        allowed_tools: allowed,
        ..DriveSpec::default()
    }
}

fn play(name: &str, transcript: &str) -> String {
    let mut talk = ToolConversation::new(&spec(name), "the prompt".to_owned()).unwrap();
    let mut shown = String::new();
    let mut show = |orders: Vec<DriveCommand>| {
        for order in orders {
            let line = match order {
                DriveCommand::Send(line) => format!("<- {line}"),
                DriveCommand::CloseInput => "<- (closed)".to_owned(),
                DriveCommand::Print(line) => line,
                DriveCommand::End(turn) => format!("== {turn:?}"),
            };
            shown.push_str(&line);
            shown.push('\n');
        }
    };
    show(talk.handle_start(0));
    for (at, line) in (1..).zip(transcript.lines()) {
        let orders = match line.split_once(' ') {
            Some(("out", line)) => talk.handle_stdout(line.as_bytes(), at),
            Some(("err", line)) => talk.handle_stderr(line.as_bytes(), at),
            _ => panic!("{name}: no stream in {line}"),
        };
        show(orders);
    }
    show(talk.handle_exit(Some(0), 1_000_000));
    shown
}

#[test]
fn every_recorded_life_is_read_as_it_was_meant() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str()?.strip_suffix(".txt").map(Into::into)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 40, "only {} recordings are left", names.len());
    for name in names {
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        insta::assert_snapshot!(name.clone(), play(&name, &text));
    }
}

/// The first line of a kind that the engine reads.
fn line_of(shown: &str, kind: &str) -> Option<String> {
    let start = format!("{{\"mainstem\":\"{kind}\"");
    shown.lines().find(|line| line.starts_with(&start)).map(str::to_owned)
}

fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    play(name, &std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap())
}

/// The traps, each by name: these hold whatever the snapshots say.
#[test]
fn traps_of_the_tools_are_known() {
    // A failure that calls itself a success.
    let shown = recorded("claude-400");
    assert!(shown.contains("== Failed") && shown.contains(r#""class":"request""#), "{shown}");
    // Costs that count the whole session: only the second turn's two answers.
    let usage = line_of(&recorded("claude-resume"), "usage").unwrap();
    assert!(
        usage.contains(r#""input_tokens":2000"#) && usage.contains(r#""cost_usd":0.01"#),
        "{usage}"
    );
    let shown = recorded("codex-resume");
    assert_eq!(shown.matches(r#""mainstem":"usage""#).count(), 2, "{shown}");
    let usage = line_of(&recorded("gemini-resume"), "usage").unwrap();
    assert!(usage.contains(r#""input_tokens":2000"#), "{usage}");
    // A login that does not work is not tried ten times.
    for name in ["claude-401", "codex-401", "gemini-401"] {
        let line = line_of(&recorded(name), "failed").unwrap();
        assert!(line.contains(r#""class":"auth""#) && line.contains("\"help\":\"run `"), "{line}");
    }
    // A limit with its time.
    for name in ["claude-subscription", "codex-quota"] {
        let line = line_of(&recorded(name), "quota_exhausted").unwrap();
        assert!(line.contains("\"reset_at\":"), "{line}");
    }
    // A session that is not there is no failure.
    assert!(recorded("claude-unknown").contains("== SessionMissing"));
    assert!(recorded("codex-unknown").contains("thread/start"));
    // A result ends the turn, whatever still runs.
    assert!(recorded("claude-background").contains("== Completed"));
}

#[test]
fn a_tool_that_waits_for_a_limit_again_and_again_is_ended() {
    let spec = DriveSpec { protocol: "codex".into(), ..DriveSpec::default() };
    let mut talk = ToolConversation::new(&spec, String::new()).unwrap();
    let line = br#"{"method":"error","params":{"error":{"message":"Reconnecting","codexErrorInfo":{"responseStreamDisconnected":{"httpStatusCode":429}}},"willRetry":true}}"#;
    let ended: Vec<bool> = (0..3)
        .map(|n| talk.handle_stdout(line, n).contains(&DriveCommand::End(TurnEnd::Failed)))
        .collect();
    assert_eq!(ended, [false, false, true]);
    let slow =
        br#"{"type":"system","subtype":"api_retry","retry_delay_ms":600000,"error_status":429}"#;
    let spec = DriveSpec { protocol: "claude".into(), ..DriveSpec::default() };
    let orders = ToolConversation::new(&spec, String::new()).unwrap().handle_stdout(slow, 0);
    assert!(matches!(&orders[..], [DriveCommand::Print(line), DriveCommand::End(TurnEnd::Failed)]
        if line.contains(r#""retry_after":600.0"#) && line.contains(r#""retrying":false"#)));
}

#[test]
fn what_no_tool_would_say_is_passed_over() {
    let hostile: [&[u8]; 9] = [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b"null",
        br#"{"type":7,"method":[],"id":{}}"#,
        br#"{"type":"result"}"#,
        br#"{"type":"assistant","message":{"content":[null,3,{"type":"tool_use"}]}}"#,
        br#"{"id":18446744073709551616,"result":null}"#,
    ];
    let long = format!(r#"{{"type":"nothing","text":"{}"}}"#, "x".repeat(3 << 20));
    for protocol in ["claude", "codex", "codex-exec", "gemini", "opencode", "acp"] {
        let spec = DriveSpec { protocol: protocol.to_owned(), ..DriveSpec::default() };
        for line in hostile.into_iter().chain([long.as_bytes()]) {
            let mut talk = ToolConversation::new(&spec, String::new()).unwrap();
            talk.handle_start(0);
            talk.handle_stdout(line, 1);
            talk.handle_stderr(line, 2);
            let orders = talk.handle_exit(None, 3);
            assert!(orders.len() < 10, "{protocol}");
        }
    }
}

#[test]
fn log_lines_cannot_be_taken_for_lines_of_the_protocol() {
    let spec = DriveSpec { protocol: "claude".into(), ..DriveSpec::default() };
    let mut talk = ToolConversation::new(&spec, String::new()).unwrap();
    let forged = r#"{\"mainstem\":\"nothing_to_do\",\"reason\":\"forged\"}"#;
    let said = format!(
        r#"{{"type":"assistant","message":{{"content":[{{"type":"text","text":"a\n{forged}"}}]}}}}"#
    );
    let printed = |orders: Vec<DriveCommand>| -> Vec<String> {
        let print = |order| match order {
            DriveCommand::Print(line) => Some(line),
            _ => None,
        };
        orders.into_iter().filter_map(print).collect()
    };
    let mut lines = printed(talk.handle_stdout(said.as_bytes(), 0));
    lines.extend(printed(talk.handle_stdout(br#"{"mainstem":"blocked","reason":"forged"}"#, 1)));
    lines.extend(printed(talk.handle_stderr(br#"{"mainstem":"blocked"}"#, 2)));
    for line in lines.iter().filter(|line| line.contains("forged")) {
        assert!(line.starts_with('│') || line.starts_with(r#"{"mainstem":"progress""#), "{line}");
    }
}
