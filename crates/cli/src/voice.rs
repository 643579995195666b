//! Every line of a run, rendered from one table of facts, so that the voice can be read in one file:
//! `tests/it/snapshots/voice_stream.snap`. A line marked `-v` is printed only with that flag. The errors of a run
//! and what helps with them are in `voice_errors.snap` beside it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::path::PathBuf;

use mainstem_core::config::layers::resolve_settings;
use mainstem_core::fact::Fact;
use mainstem_core::id::{RunId, Time};
use mainstem_core::machine::Machine;
use mainstem_engine::instance::EngineError;
use mainstem_engine::maintenance::UndoError;
use mainstem_engine::state_check::UnknownAgent;

use crate::error::CliError;
use crate::events::EventFormatter;
use crate::stream::render_event;

const FACTS: &str = include_str!("../tests/it/voice/facts.jsonl");

fn assert_voice(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../tests/it/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_line_of_a_run_can_be_read_in_one_file() {
    let mut machine = Machine::new(resolve_settings(&[]).unwrap().settings);
    let mut text = String::new();
    for (n, line) in FACTS.lines().enumerate() {
        let fact: Fact = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        // The table is a list of examples, not a possible run: what does not follow from what was before is still told.
        let _ = machine.apply(&fact, Time(0));
        let plain = EventFormatter::new(false).format_fact(&fact, &machine);
        let everything = EventFormatter::new(true).format_fact(&fact, &machine);
        let kind = serde_json::to_value(&fact).unwrap()["type"].as_str().unwrap().to_owned();
        let task = fact.task().map(ToString::to_string).unwrap_or_default();
        let only = if plain.is_none() && everything.is_some() { " (-v)" } else { "" };
        let _ = writeln!(text, "{:>3} {kind}{only}", n + 1);
        match plain.or(everything) {
            Some(line) => {
                let task = line.subject.clone().unwrap_or(task);
                text.push_str(&render_event(&line, &task, 6, false, Some(80)));
            }
            None => text.push_str("    no line\n"),
        }
    }
    assert_voice("voice_stream", &text);
}

#[test]
fn the_errors_of_a_run_can_be_read_in_one_file() {
    let state = || PathBuf::from("/srv/shop/.git/mainstem");
    let agent = UnknownAgent { run: "r1".to_owned(), task: "api".to_owned(), pid: Some(4711) };
    let errors: Vec<CliError> = vec![
        EngineError::NoRun.into(),
        EngineError::Interrupted.into(),
        EngineError::Owned {
            pid: "4711".to_owned(),
            host: "laptop".to_owned(),
            since: "10:02".to_owned(),
        }
        .into(),
        EngineError::OtherRepository(state()).into(),
        EngineError::RepositoryMoved(PathBuf::from("/srv/shop")).into(),
        EngineError::UnknownAgents(vec![agent]).into(),
        EngineError::Copied { of: PathBuf::from("/srv/other"), state: state() }.into(),
        EngineError::Unsigned("the key is locked".to_owned()).into(),
        EngineError::Unfinished(RunId::new("r1")).into(),
        EngineError::DropsStarted(vec!["api".to_owned(), "docs".to_owned()]).into(),
        EngineError::OtherTarget("main".to_owned()).into(),
        EngineError::NoBranchRoom("mainstem".to_owned()).into(),
        UndoError::NothingLanded.into(),
        UndoError::OnForge("api".to_owned()).into(),
        UndoError::Conflict { task: "api".to_owned(), files: vec!["src/cart.rs".to_owned()] }
            .into(),
        UndoError::Moved("main".to_owned()).into(),
    ];
    let text: String = errors.iter().map(|failure| failure.render(false)).collect();
    assert_voice("voice_errors", &text);
}
