//! What each supported version of a tool says when something goes wrong, and what the engine is told.
//!
//! The files under `golden/versions` were recorded from the tools themselves, in several versions, against
//! a stand-in of their providers: `{"t":seconds,"line":…}` came on standard output, `{"text":"ERR …"}` on
//! standard error, and the last line says how the tool ended. Every file has its row below.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use mainstem_agents::DriveSpec;
use mainstem_agents::drive::{DriveCommand, ToolConversation, TurnEnd};
use serde_json::Value;

/// The case, and what the engine is told for each tool in its older and newer versions: `well`, a class of
/// failure, `limited` with the seconds if they are known, or `quota`; `-` if it was not recorded.
const TABLE: [(&str, &str, &str, &str, &str); 18] = [
    ("ok", "well", "well", "well", "well"),
    ("resume", "well", "-", "-", "-"),
    ("perm", "well", "well", "well", "well"),
    ("nologin", "auth", "auth", "auth", "auth"),
    ("401", "auth", "auth", "auth", "auth"),
    ("403", "auth", "auth", "auth", "transient"),
    ("429", "limited", "limited", "limited", "limited"),
    ("429ra", "limited 1", "limited", "limited 1", "limited 1"),
    ("429ra600", "limited", "limited", "limited 600", "limited"),
    ("quota", "quota", "quota", "quota", "quota"),
    ("nocredit", "quota", "quota", "quota", "quota"),
    ("529", "transient", "transient", "transient", "transient"),
    ("netdown", "transient", "transient", "transient", "transient"),
    ("drop", "transient", "transient", "transient", "-"),
    ("dropmid", "transient", "transient", "transient", "-"),
    ("sse", "well", "transient", "transient", "-"),
    ("ctx", "context", "context", "context", "well"),
    ("model", "model", "model", "model", "model"),
];

/// Where one version cannot say what the others do.
const EXCEPTIONS: [(&str, &str); 1] = [
    // Its answer to a used-up credit is that of a limit.
    ("codex-0.147.0-nocredit", "limited"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/versions")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".jsonl")?.into()))
        .collect();
    names.sort();
    names
}

/// What the driver told the engine, line by line, and how the turn ended.
struct Told {
    lines: Vec<Value>,
    turn: Option<TurnEnd>,
    ended_at_ms: u64,
}

impl Told {
    fn take(&mut self, orders: Vec<DriveCommand>, at_ms: u64) {
        for order in orders {
            match order {
                DriveCommand::Print(line) => self.lines.extend(
                    serde_json::from_str::<Value>(&line).ok().filter(|v| v["mainstem"].is_string()),
                ),
                DriveCommand::End(turn) => (self.turn, self.ended_at_ms) = (Some(turn), at_ms),
                DriveCommand::Send(_) | DriveCommand::CloseInput => {}
            }
        }
    }

    /// In the words of the table.
    fn class(&self) -> String {
        if self.turn == Some(TurnEnd::Completed) {
            return "well".to_owned();
        }
        let last = self.lines.iter().rev().find(|line| {
            ["failed", "rate_limited", "quota_exhausted"]
                .contains(&line["mainstem"].as_str().unwrap())
                && line["retrying"] != true
        });
        match last {
            Some(line) if line["mainstem"] == "failed" => {
                line["class"].as_str().unwrap().to_owned()
            }
            Some(line) if line["mainstem"] == "rate_limited" => {
                let wait = line["retry_after"].as_f64();
                wait.map_or("limited".to_owned(), |wait| format!("limited {wait}"))
            }
            Some(_) => "quota".to_owned(),
            None => format!("nothing was said: {:?}", self.turn),
        }
    }
}

/// Plays a recording with its times; the clock goes on for ten minutes if the tool does not end.
fn play(name: &str, keys: &[&str]) -> Told {
    let protocol = name.split('-').next().unwrap().to_owned();
    let spec = DriveSpec {
        agent: protocol.clone(),
        protocol,
        workspace: "/repo".to_owned(),
        model: name.starts_with("codex").then(|| "gpt-5.5".to_owned()),
        resume: name.ends_with("resume").then(|| "s-0".into()),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..DriveSpec::default()
    };
    let mut talk = ToolConversation::new(&spec, "the prompt".to_owned()).unwrap();
    let mut told = Told { lines: Vec::new(), turn: None, ended_at_ms: 0 };
    told.take(talk.handle_start(0), 0);
    let text = std::fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
    let (mut now, mut code) = (0_u64, None);
    for entry in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let at = entry["t"].as_f64().map_or(now, |t| (t * 1000.0) as u64);
        while now < at && told.turn.is_none() {
            now = at.min(now + 1000);
            told.take(talk.handle_tick(now), now);
        }
        if let Some(text) = entry["text"].as_str() {
            if let Some(end) = text.strip_prefix("=== rc ") {
                code = end.split(' ').next().and_then(|code| code.parse().ok());
            } else if let Some(complaint) = text.strip_prefix("ERR ") {
                told.take(talk.handle_stderr(complaint.as_bytes(), now), now);
            }
        } else if entry["line"].is_object() {
            told.take(talk.handle_stdout(entry["line"].to_string().as_bytes(), now), now);
        }
    }
    // Codex's app server lives until it is told to go, and one that was killed had not ended.
    let lives = name.starts_with("codex") || code.is_none_or(|code: i32| code < 0);
    while lives && told.turn.is_none() && now < 600_000 {
        now += 1000;
        told.take(talk.handle_tick(now), now);
    }
    if told.turn.is_none() {
        told.take(talk.handle_exit(code, now), now);
    }
    told
}

fn expected(name: &str) -> Option<&'static str> {
    if let Some((_, class)) = EXCEPTIONS.iter().find(|(known, _)| *known == name) {
        return Some(class);
    }
    let (tool, rest) = name.split_once('-')?;
    let (_, case) = rest.split_once('-')?;
    let (_, claude, codex, gemini, opencode) = TABLE.iter().find(|row| row.0 == case)?;
    Some(match tool {
        "claude" => claude,
        "codex" => codex,
        "gemini" => gemini,
        _ => opencode,
    })
}

#[test]
fn every_error_of_every_supported_version_has_its_class() {
    let names = names();
    assert!(names.len() > 120, "only {} recordings are left", names.len());
    let mut wrong = Vec::new();
    for name in &names {
        let (told, wanted) = (play(name, &[]), expected(name));
        if Some(told.class().as_str()) != wanted {
            wrong.push(format!("{name}: {} instead of {wanted:?}: {:?}", told.class(), told.lines));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_tool_is_waited_for_longer_than_two_minutes_while_it_only_retries() {
    for name in names() {
        let told = play(&name, &[]);
        // Half a minute is for the tool's start on a busy machine.
        assert!(told.ended_at_ms <= 150_000, "{name} ended at {} ms", told.ended_at_ms);
    }
}

#[test]
fn a_key_that_was_given_and_refused_is_named() {
    for (name, key) in [
        ("claude-2.1.197-401", "ANTHROPIC_API_KEY"),
        ("claude-2.1.325-403", "ANTHROPIC_API_KEY"),
        ("codex-0.166.0-401", "OPENAI_API_KEY"),
        ("codex-0.147.0-403", "OPENAI_API_KEY"),
        ("gemini-0.61.0-401", "GEMINI_API_KEY"),
        ("opencode-1.18.33-401", "OPENAI_API_KEY"),
    ] {
        let told = play(name, &[key]);
        let failed = told.lines.iter().find(|line| line["mainstem"] == "failed").unwrap();
        let message = failed["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("the key in {key} was refused (40")), "{message}");
        assert_eq!(failed["help"], format!("put a valid key into {key}"), "{name}");
    }
    // Without a key it is the login.
    let told = play("claude-2.1.197-nologin", &[]);
    let failed = told.lines.iter().find(|line| line["mainstem"] == "failed").unwrap();
    assert!(failed["help"].as_str().unwrap().starts_with("run `claude login`"), "{failed}");
}

#[test]
fn the_cost_of_a_resumed_session_is_counted_with_its_model_in_every_version() {
    // Per process: the whole of what the result says.
    let told = play("claude-2.1.197-resume", &[]);
    let usage: Vec<&Value> = told.lines.iter().filter(|l| l["mainstem"] == "usage").collect();
    assert_eq!(usage.len(), 1, "{usage:?}");
    assert_eq!(usage[0]["cost_usd"], 0.0125);
    assert_eq!(usage[0]["model"], "claude-opus-4-8");
    assert_eq!(usage[0]["input_tokens"], 2000);
}

#[test]
fn what_a_tool_complained_about_last_is_the_reason_it_ended() {
    let spec = DriveSpec { protocol: "claude".into(), ..DriveSpec::default() };
    let mut talk = ToolConversation::new(&spec, String::new()).unwrap();
    let mut told = Told { lines: Vec::new(), turn: None, ended_at_ms: 0 };
    for line in [
        "error: option '--permission-mode <mode>' argument 'manual' is invalid.",
        "    at parse (cli.js:1:2)",
        "}",
        "Node.js v20.1.0",
    ] {
        told.take(talk.handle_stderr(line.as_bytes(), 1), 1);
    }
    told.take(talk.handle_exit(Some(1), 2), 2);
    let failed = told.lines.iter().find(|line| line["mainstem"] == "failed").unwrap();
    // Another try with the same options would end in the same way.
    assert_eq!(failed["class"], "setup");
    let message = failed["message"].as_str().unwrap();
    assert!(message.ends_with("argument 'manual' is invalid."), "{message}");
    let mut talk = ToolConversation::new(&spec, String::new()).unwrap();
    let mut told = Told { lines: Vec::new(), turn: None, ended_at_ms: 0 };
    told.take(talk.handle_stderr(b"Error: out of coffee", 1), 1);
    told.take(talk.handle_exit(Some(3), 2), 2);
    let failed = told.lines.iter().find(|line| line["mainstem"] == "failed").unwrap();
    assert_eq!(failed["class"], "other");
    let message = "claude exited with code 3 in the middle of a turn: Error: out of coffee";
    assert_eq!(failed["message"], message);
}
