#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use proptest::prelude::*;

const ALL: [DocumentFormat; 3] = [DocumentFormat::Toml, DocumentFormat::Yaml, DocumentFormat::Json];

/// The tree without spans, as JSON-like text.
fn plain(node: &DocumentNode<'_>) -> String {
    match &node.value {
        DocumentValue::Null => "null".into(),
        DocumentValue::Bool(yes) => yes.to_string(),
        DocumentValue::Int(n) => n.to_string(),
        DocumentValue::Float(n) => format!("{n:?}"),
        DocumentValue::Str(text) => format!("{text:?}"),
        DocumentValue::Date(text) => format!("date {text}"),
        DocumentValue::List(items) => {
            format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(","))
        }
        DocumentValue::Table(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(k, v)| format!("{}:{}", k.text, plain(v))).collect();
            format!("{{{}}}", entries.join(","))
        }
    }
}

fn codes(source: &str, format: DocumentFormat) -> Vec<&'static str> {
    parse_document(source, format).unwrap_err().iter().map(|d| d.code).collect()
}

#[test]
fn the_three_formats_give_one_tree() {
    let toml = "b = 1\na = [true, -2.5, \"é\\n\"]\n[[t]]\nx = {y = 'z'}\n[[t]]\n";
    let yaml = "b: 1\na: [true, -2.5, \"é\\n\"]\nt:\n  - x: {y: z}\n  - {}\n";
    let json = r#"{"b": 1, "a": [true, -2.5, "é\n"], "t": [{"x": {"y": "z"}}, {}]}"#;
    let want = r#"{b:1,a:[true,-2.5,"é\n"],t:[{x:{y:"z"}},{}]}"#;
    for (source, format) in
        [(toml, DocumentFormat::Toml), (yaml, DocumentFormat::Yaml), (json, DocumentFormat::Json)]
    {
        assert_eq!(plain(&parse_document(source, format).unwrap()), want, "{format:?}");
    }
}

#[test]
fn spans_point_at_keys_and_values_behind_a_mark_and_wide_characters() {
    for (source, format) in [
        ("\u{feff}# ééé\nkey = 'val'\n", DocumentFormat::Toml),
        ("\u{feff}# ééé\nkey: 'val'\n", DocumentFormat::Yaml),
        ("\u{feff}\n  {\"é\": 1, \"key\": \"val\"}", DocumentFormat::Json),
    ] {
        let node = parse_document(source, format).unwrap();
        let DocumentValue::Table(entries) = &node.value else { panic!("{node:?}") };
        let (key, value) = entries.last().unwrap();
        assert!(source[key.span.clone()].contains("key"), "{format:?} {:?}", key.span);
        let text = source[value.span.clone()].trim_matches(['"', '\'']);
        assert_eq!(text, "val", "{format:?}");
    }
}

#[test]
fn a_hundred_thousand_brackets_are_refused_in_every_format() {
    let deep = 100_000;
    for (open, close) in
        [("[", "]"), ("{\"a\":", "}"), ("[", ""), ("{a=", "}"), ("{", ""), ("- ", "")]
    {
        let nest = format!("{}1{}", open.repeat(deep), close.repeat(deep));
        for (source, format) in [
            (format!("a = {nest}"), DocumentFormat::Toml),
            (format!("a: {nest}"), DocumentFormat::Yaml),
            (nest.clone(), DocumentFormat::Yaml),
            (nest.clone(), DocumentFormat::Json),
        ] {
            assert!(parse_document(&source, format).is_err(), "{format:?} {open}");
        }
    }
    assert_eq!(
        codes(&format!("a = {}", "[".repeat(deep)), DocumentFormat::Toml),
        ["syntax::depth"]
    );
    let json = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
    assert_eq!(codes(&json, DocumentFormat::Json), ["syntax::depth"]);
    assert_eq!(codes(&json, DocumentFormat::Yaml), ["syntax::depth"]);
    for source in [format!("{}a = 1", "a.".repeat(deep)), format!("[{}a]\n", "a.".repeat(deep))] {
        assert_eq!(codes(&source, DocumentFormat::Toml), ["syntax::depth"]);
    }
    let indented: String = (0..2_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert_eq!(codes(&indented, DocumentFormat::Yaml), ["syntax::depth"]);
}

#[test]
fn depth_up_to_the_limit_is_read() {
    for depth in [DEPTH_MAX, DEPTH_MAX + 1] {
        let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let toml = format!("a = {}{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        let good = depth == DEPTH_MAX;
        assert_eq!(parse_document(&json, DocumentFormat::Json).is_ok(), good);
        assert_eq!(parse_document(&json, DocumentFormat::Yaml).is_ok(), good);
        assert_eq!(parse_document(&toml, DocumentFormat::Toml).is_ok(), good);
    }
}

#[test]
fn duplicate_keys_are_reported_where_the_second_stands() {
    for (source, format) in [
        ("a = 1\na = 2\n", DocumentFormat::Toml),
        ("a: 1\na: 2\n", DocumentFormat::Yaml),
        ("{\"a\": 1,\n\"a\": 2}", DocumentFormat::Json),
    ] {
        let faults = parse_document(source, format).unwrap_err();
        assert_eq!(faults[0].code, "syntax::duplicate_key", "{format:?}");
        assert_eq!(faults[0].line, 2, "{format:?}");
    }
}

#[test]
fn yaml_tricks_are_refused_with_a_reason() {
    for (source, word) in [
        ("a: &x [1]\nb: *x\n", "anchors"),
        ("a: !!python/object:os.system x\n", "tags"),
        ("a: 1\n---\nb: 2\n", "second"),
        ("? [a]\n: b\n", "key"),
        ("a: b: c\n", ""),
        ("a:\n\t- b\n", ""),
    ] {
        let faults = parse_document(source, DocumentFormat::Yaml).unwrap_err();
        assert!(faults[0].message.contains(word), "{source:?}: {}", faults[0].message);
    }
}

#[test]
fn yaml_words_mean_what_the_core_schema_says() {
    for (text, want) in [
        ("no", "\"no\""),
        ("yes", "\"yes\""),
        ("~", "null"),
        ("", "null"),
        ("True", "true"),
        ("012", "12"),
        ("0x1f", "31"),
        ("0o17", "15"),
        ("1e3", "1000.0"),
        (".5", "0.5"),
        ("inf", "\"inf\""),
        ("nan", "\"nan\""),
        (".", "\".\""),
        ("1.2.3", "\"1.2.3\""),
        ("-", ""),
        ("1_000", "\"1_000\""),
        ("\"1\"", "\"1\""),
    ] {
        if want.is_empty() {
            continue;
        }
        let source = format!("a: {text}\n");
        assert_eq!(
            plain(&parse_document(&source, DocumentFormat::Yaml).unwrap()),
            format!("{{a:{want}}}"),
            "{text}"
        );
    }
}

#[test]
fn numbers_beyond_64_bits_are_refused() {
    for (source, format) in [
        ("a = 99999999999999999999", DocumentFormat::Toml),
        ("a: 99999999999999999999", DocumentFormat::Yaml),
        ("{\"a\": 99999999999999999999}", DocumentFormat::Json),
    ] {
        assert!(parse_document(source, format).is_err(), "{format:?}");
    }
}

#[test]
fn json_is_strict_and_its_errors_have_places() {
    for (source, line) in [
        ("{\"a\": 1,}", 1),
        ("{\n  a: 1\n}", 2),
        ("{\"a\": 'x'}", 1),
        ("// no\n{}", 1),
        ("{} {}", 1),
        ("", 1),
        ("[01]", 1),
        ("[\"\t\"]", 1),
        ("{\"a\":\n\n", 3),
    ] {
        let faults = parse_document(source, DocumentFormat::Json).unwrap_err();
        assert_eq!(faults[0].line, line, "{source:?}");
        assert!(!faults[0].message.contains("at line"), "{}", faults[0].message);
    }
    let emoji = parse_document(r#"["\ud83d\ude00\/"]"#, DocumentFormat::Json).unwrap();
    assert_eq!(plain(&emoji), "[\"😀/\"]");
    assert!(parse_document(r#"["\ud83d"]"#, DocumentFormat::Json).is_err());
}

#[test]
fn several_toml_errors_come_in_one_report() {
    let faults =
        parse_document("a = \nb = 2\nc = [\"x\" \"y\"]\n", DocumentFormat::Toml).unwrap_err();
    assert!(faults.len() >= 2, "{faults:?}");
    assert_eq!(faults[0].line, 1);
}

#[test]
fn bytes_that_are_no_text_are_placed() {
    let faults = decode_text(b"a = 1\nb = \"\xff\"\n").unwrap_err();
    assert_eq!((faults[0].code, faults[0].line, faults[0].column), ("syntax::utf8", 2, 6));
    assert!(decode_text(&vec![b'#'; SIZE_MAX + 1]).is_err());
    assert!(decode_text("é".as_bytes()).is_ok());
}

#[test]
fn a_report_is_cut_when_nobody_would_read_on() {
    let source: String = (0..5_000).map(|_| "{\"a\":1,\"a\":1},").collect();
    let source = format!("[{source}1]");
    let faults = parse_document(&source, DocumentFormat::Json).unwrap_err();
    assert_eq!(faults.len(), FAULTS_MAX + 1);
    assert!(faults.last().unwrap().message.contains("4000 more"));
}

#[test]
fn texts_made_to_fill_the_memory_are_refused() {
    let source = format!("a = [{}]", "1,".repeat(MARKS_MAX));
    assert_eq!(codes(&source, DocumentFormat::Toml), ["syntax::size"]);
}

#[test]
fn formats_follow_file_names() {
    assert_eq!(DocumentFormat::from_path("a/plan.toml"), Some(DocumentFormat::Toml));
    assert_eq!(DocumentFormat::from_path("plan.YML"), Some(DocumentFormat::Yaml));
    assert_eq!(DocumentFormat::from_path("plan.json"), Some(DocumentFormat::Json));
    assert_eq!(DocumentFormat::from_path("plan"), None);
    assert_eq!(DocumentFormat::from_path("plan.md"), None);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(source) = decode_text(&bytes) {
            for format in ALL {
                let _ = parse_document(source, format);
            }
        }
    }

    #[test]
    fn random_syntax_never_panics_and_spans_stay_inside(source in "[\\[\\]{}\"'a1:=,.\n\\-# é&*!|>?%@\\\\\t~]{0,60}") {
        for format in ALL {
            match parse_document(&source, format) {
                Ok(node) => {
                    let mut open = vec![node];
                    while let Some(node) = open.pop() {
                        prop_assert!(source.get(node.span.clone()).is_some(), "{:?} {:?}", format, node);
                        match node.value {
                            DocumentValue::List(items) => open.extend(items),
                            DocumentValue::Table(entries) => open.extend(entries.into_iter().map(|(k, v)| {
                                assert!(source.get(k.span.clone()).is_some(), "{k:?}");
                                v
                            })),
                            _ => {}
                        }
                    }
                }
                Err(faults) => prop_assert!(faults.iter().all(|f| f.line > 0)),
            }
        }
    }
}
