#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

struct Memory(Vec<(&'static str, &'static str)>);

impl GateFiles for Memory {
    fn file_names(&self) -> Result<Vec<String>, String> {
        Ok(self.0.iter().map(|(name, _)| (*name).to_owned()).collect())
    }
    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or(format!("there is no `{name}`"))
    }
}

fn files() -> Memory {
    Memory(vec![
        ("docs/guide.md", "# Guide\nTODO later\n"),
        ("src/a.rs", "fn a() {}\nfn b() {}\n"),
        (
            "quality.json",
            "{\"coverage\": {\"lines\": 81.5}, \"issues\": [{\"critical\": 0}], \"ok\": true}",
        ),
        ("gate.yaml", "review: approved\nscore: 0.7\n"),
        ("bad.json", "{\"a\": "),
    ])
}

fn verdict(line: &str) -> GateVerdict {
    judge_file_gate(line, &files()).0
}

#[test]
fn files_are_there_or_not() {
    assert_eq!(verdict("@file_exists docs/*.md"), GateVerdict::Passed);
    assert_eq!(verdict("@file_exists **/*.md"), GateVerdict::Passed);
    assert_eq!(verdict("@file_exists *.md"), GateVerdict::Failed, "a star stays in its folder");
    assert_eq!(verdict("@file_exists ../x"), GateVerdict::Error);
}

#[test]
fn lines_are_found_counted_or_absent() {
    assert_eq!(verdict("@content_search src/** => fn a\\("), GateVerdict::Passed);
    assert_eq!(verdict("@content_search src/** => struct"), GateVerdict::Failed);
    assert_eq!(verdict("@content_absent src/** => struct"), GateVerdict::Passed);
    assert_eq!(verdict("@content_absent docs/** => TODO"), GateVerdict::Failed);
    assert_eq!(verdict("@content_count 2 src/** => ^fn "), GateVerdict::Passed);
    assert_eq!(verdict("@content_count 3 src/** => ^fn "), GateVerdict::Failed);
}

#[test]
fn what_could_not_be_looked_at_never_passes() {
    for line in [
        "@content_absent nothing/** => x",
        "@content_search src/** => (",
        "@query missing.json a == 1",
        "@query quality.json coverage.branches >= 1",
        "@query quality.json coverage == 1",
        "@query quality.json ok >= 1",
        "@query bad.json a == 1",
        "@query notes.txt a == 1",
        "@approval",
        "@review",
        "@unknown x",
        "true",
    ] {
        assert_eq!(verdict(line), GateVerdict::Error, "{line}");
    }
}

#[test]
fn values_are_compared_as_numbers_where_both_are() {
    assert_eq!(verdict("@query quality.json coverage.lines >= 80"), GateVerdict::Passed);
    assert_eq!(verdict("@query quality.json coverage.lines >= 82"), GateVerdict::Failed);
    assert_eq!(verdict("@query quality.json coverage.lines <= 81.5"), GateVerdict::Passed);
    assert_eq!(verdict("@query quality.json issues[0].critical == 0.0"), GateVerdict::Passed);
    assert_eq!(verdict("@query quality.json $.issues.0.critical != 0"), GateVerdict::Failed);
    assert_eq!(verdict("@query gate.yaml review == approved"), GateVerdict::Passed);
    assert_eq!(verdict("@query gate.yaml review == \"approved\""), GateVerdict::Passed);
    assert_eq!(verdict("@query quality.json ok == true"), GateVerdict::Passed);
}

#[test]
fn a_gate_reads_back_as_it_is_written() {
    for line in [
        "cargo test",
        "@file_exists docs/*.md",
        "@content_search src/** => fn \\w+",
        "@content_absent **/*.rs => unwrap\\(\\)",
        "@content_count 3 src/** => test",
        "@query a/b.toml package.version >= 2",
        "@approval",
        "@approval within 2d security looks at it",
        "@approval please look",
        "@review",
    ] {
        let gate = GateSpec::parse(line).unwrap();
        assert_eq!(gate.to_string(), line);
        assert_eq!(GateSpec::parse(&gate.to_string()).unwrap(), gate);
    }
}

#[test]
fn tables_become_lines() {
    let table = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        gate_line_from_fields(&pairs.collect::<BTreeMap<_, _>>())
    };
    let line = |pairs: &[(&str, &str)]| table(pairs).unwrap();
    assert_eq!(line(&[("command", "make test")]), "make test");
    assert_eq!(line(&[("kind", "file_exists"), ("path", "a/*")]), "@file_exists a/*");
    let absent = [("kind", "content_search"), ("path", "**"), ("pattern", "AKIA"), ("count", "0")];
    assert_eq!(line(&absent), "@content_absent ** => AKIA");
    let query = [
        ("kind", "query"),
        ("path", "q.json"),
        ("query", "a.b"),
        ("compare", ">="),
        ("value", "80"),
    ];
    assert_eq!(line(&query), "@query q.json a.b >= 80");
    let asked = [("kind", "approval"), ("within", "48h"), ("text", "look")];
    assert_eq!(line(&asked), "@approval within 2d look");
    assert!(table(&[("kind", "file_exists")]).is_err());
    assert!(table(&[("kind", "magic")]).is_err());
    assert!(table(&[("kind", "review"), ("who", "me")]).is_err());
}

proptest! {
    #[test]
    fn any_line_is_read_or_refused(line in "(@[a-z_]{0,16} )?.{0,60}") {
        if let Ok(gate) = GateSpec::parse(&line) {
            let again = GateSpec::parse(&gate.to_string());
            prop_assert!(again.is_ok(), "{line:?} became {gate}");
        }
        // Whatever it is, only a gate that looks at files can pass.
        if judge_file_gate(&line, &files()).0 == GateVerdict::Passed {
            prop_assert!(is_file_gate(&line));
        }
    }
}
