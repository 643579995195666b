//! Broken answers as models really give them, and texts made to hurt.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{EpicTasks, EpicTasksSchema};

const GOOD: &str = r#"{"epic_id":"E-001","tasks":[{"temp_id":"E001-T01","title":"Tables","description":"Make the tables.","acceptance_criteria":["they exist"],"local_dependencies":[],"cross_epic_dependencies":[],"effort":"small","priority":"must-have"},{"temp_id":"E001-T02","title":"Queries","description":"Write them.","acceptance_criteria":["they work"],"local_dependencies":["E001-T01"],"cross_epic_dependencies":["E-002:server"],"effort":"medium","priority":"should-have"}]}"#;

fn epics() -> BTreeSet<String> {
    ["E-001", "E-002"].map(str::to_owned).into()
}

fn read(text: &str) -> Result<ExtractedAnswer<EpicTasks>, ExtractError> {
    let epics = epics();
    extract_answer(text, &EpicTasksSchema { epic: "E-001", epics: &epics })
}

fn good() -> EpicTasks {
    serde_json::from_str(GOOD).unwrap()
}

/// One task, so that a text can be broken by hand.
fn small(description: &str) -> String {
    format!(
        "{{\n  \"epic_id\": \"E-001\",\n  \"tasks\": [\n    {{\n      \"temp_id\": \"E001-T01\",\n      \
         \"title\": \"Tables\",\n      \"description\": {description},\n      \
         \"acceptance_criteria\": [\"they exist\"],\n      \"effort\": \"small\",\n      \
         \"priority\": \"must-have\"\n    }}\n  ]\n}}\n"
    )
}

enum Want {
    /// Exactly the good answer.
    Good,
    /// One task with this description.
    Says(&'static str),
    /// Refused with a reason that holds this.
    Refused(&'static str),
}

fn broken_answers() -> Vec<(&'static str, String, Want)> {
    let pretty =
        || serde_json::to_string_pretty(&serde_json::from_str::<Value>(GOOD).unwrap()).unwrap();
    let plain = small("\"Make the tables.\"");
    let swap = |from: &str, to: &str| {
        assert!(plain.contains(from), "{from}");
        plain.replacen(from, to, 1)
    };
    let example = r#"{"epic_id":"E-000","tasks":[{"temp_id":"E000-T01","title":"…"}]}"#;
    let says = Want::Says("Make the tables.");
    let event = json!({"type":"result","subtype":"success","result":format!("Done:\n```json\n{GOOD}\n```")});
    let cut = GOOD.rfind("\"should-have\"").unwrap();
    let mut list = vec![
        (
            "a fence",
            format!("Here you are:\n\n```json\n{}\n```\nAnything else?", pretty()),
            Want::Good,
        ),
        (
            "a CRLF fence",
            format!("```json\r\n{}\r\n```\r\n", pretty().replace('\n', "\r\n")),
            Want::Good,
        ),
        (
            "an untagged fence in a list",
            format!("1. The tasks:\n   ```\n{GOOD}\n   ```\n"),
            Want::Good,
        ),
        (
            "prose with braces",
            format!("I used {{epic}} and [1] and {{}} as you {{'said'}}. {GOOD} Done {{!}}"),
            Want::Good,
        ),
        ("a BOM", format!("\u{feff}{GOOD}"), Want::Good),
        (
            "colours",
            GOOD.replace("\"title\"", "\u{1b}[32m\"title\"\u{1b}[0m")
                .replace("Tables", "Tab\u{1b}[1mles"),
            Want::Good,
        ),
        ("a title sequence", format!("\u{1b}]0;agent {{ working\u{7}\u{1b}[2K{GOOD}"), Want::Good),
        ("an echoed example first", format!("The format is {example}, so:\n{GOOD}"), Want::Good),
        (
            "an example after it",
            format!("{GOOD}\nwhich follows\n```json\n{example}\n```"),
            Want::Good,
        ),
        (
            "events as lines",
            format!("{{\"type\":\"start\"}}\n{event}\n{{\"type\":\"end\",\"tasks\":{{}}}}\n"),
            Want::Good,
        ),
        (
            "wrapped in another object",
            format!("{{\"status\":\"ok\",\"output\":{GOOD}}}"),
            Want::Good,
        ),
        ("only the list", GOOD[GOOD.find('[').unwrap()..GOOD.len() - 1].to_owned(), Want::Good),
        ("a draft and then the whole", format!("First try:\n{plain}\nFinal:\n{GOOD}"), Want::Good),
    ];
    list.extend([
        (
            "trailing commas",
            swap("\"must-have\"\n", "\"must-have\",\n").replace("    }\n  ]", "    },\n  ],"),
            Want::Says("Make the tables."),
        ),
        (
            "Python literals",
            swap("\"effort\"", "\"local_dependencies\": None, \"done\": False, \"effort\""),
            Want::Says("Make the tables."),
        ),
        ("a Python dict", plain.replace('"', "'"), says),
        (
            "raw newlines in a text",
            small("\"Make\n\tthe tables.\""),
            Want::Says("Make\n\tthe tables."),
        ),
        (
            "comments",
            swap("      \"title\"", "  // what is to be done\n  /* in order */ \"title\""),
            Want::Says("Make the tables."),
        ),
        (
            "keys without quotes",
            swap("\"temp_id\"", "temp_id").replace("\"epic_id\"", "epic_id"),
            Want::Says("Make the tables."),
        ),
        (
            "a pattern with backslashes",
            small(r#""Match \d+\.\w and C:\\x""#),
            Want::Says(r"Match \d+\.\w and C:\x"),
        ),
        (
            "quotes inside a text",
            small("\"Call it \"the list\" here.\""),
            Want::Says("Call it \"the list\" here."),
        ),
        ("a missing comma", swap("\"Tables\",", "\"Tables\""), Want::Says("Make the tables.")),
        (
            "typographic quotes",
            swap("\"Make the tables.\"", "“Make the tables.”"),
            Want::Says("Make the tables."),
        ),
        (
            "the last brace missing",
            format!("```json\n{}```", plain.trim_end().trim_end_matches('}')),
            Want::Says("Make the tables."),
        ),
        ("cut off in the second task", GOOD[..cut].to_owned(), Want::Refused("cut off")),
        (
            "cut off after the first task",
            format!("{}}},", &GOOD[..GOOD.find("\"must-have\"").unwrap() + 11]),
            Want::Refused("cut off"),
        ),
        (
            "content left out",
            swap("    }\n  ]", "    },\n    // ... more tasks\n  ]"),
            Want::Refused("missing content"),
        ),
        ("an ellipsis", swap("    }\n  ]", "    },\n    ...\n  ]"), Want::Refused("")),
        (
            "two halves",
            format!("{plain}\nand\n{}", plain.replace("E001-T01", "E001-T02")),
            Want::Refused("different answers"),
        ),
        (
            "a key twice",
            swap("\"effort\": \"small\"", "\"effort\": \"small\", \"title\": \"Other\""),
            Want::Refused("duplicate key"),
        ),
        (
            "another epic's tasks",
            GOOD.replace("E-001", "E-002").replace("E001", "E002"),
            Want::Refused("expected the tasks of"),
        ),
        (
            "a refusal",
            "I cannot do that without more context.".to_owned(),
            Want::Refused("no JSON"),
        ),
    ]);
    list
}

#[test]
fn broken_answers_are_read_right_or_refused_and_never_silently_wrong() {
    let (mut right, mut refused) = (0, 0);
    let cases = broken_answers();
    for (name, text, want) in &cases {
        let got = read(text);
        match want {
            Want::Good => {
                assert_eq!(got.as_ref().map(|got| &got.found), Ok(&good()), "{name}");
                right += 1;
            }
            Want::Says(description) => {
                let got = got.unwrap_or_else(|why| panic!("{name}: {why} {:?}", why.problems()));
                let tasks = &got.found.tasks;
                assert_eq!(tasks.len(), 1, "{name}");
                assert_eq!(tasks[0].description, *description, "{name}");
                // The list inside is whole there, and is taken as it is.
                assert!(!got.repairs.is_empty() || *name == "the last brace missing", "{name}");
                right += 1;
            }
            Want::Refused(words) => {
                let why = got.err().unwrap_or_else(|| panic!("{name} was taken")).to_string();
                let more = format!("{why} {:?}", read(text).err().unwrap().problems());
                assert!(more.contains(words), "{name}: {more}");
                refused += 1;
            }
        }
    }
    assert!(cases.len() >= 24 && right >= 20 && refused >= 6, "{right} right, {refused} refused");
}

#[test]
fn what_is_wrong_with_the_nearest_miss_is_said_in_full() {
    let text = GOOD.replace("\"small\"", "\"tiny\"").replace("\"they work\"", "");
    let why = read(&text).unwrap_err();
    let list = crate::schema::format_problems(&why.problems());
    assert!(
        list.contains("1. [tasks[0].effort] is `tiny`; it must be one of small, medium, large"),
        "{list}"
    );
    assert!(list.contains("2. [tasks[1].acceptance_criteria] is empty"), "{list}");
}

#[test]
fn more_than_ten_megabytes_are_refused_unread() {
    assert_eq!(read(&" ".repeat(SIZE_MAX + 1)), Err(ExtractError::TooLarge(SIZE_MAX + 1)));
}

#[test]
fn a_strict_value_stands_alone() {
    assert_eq!(
        parse_strict(" {\"a\":[1,2.5,\"\\u00e9\\ud83d\\ude00\",null]} ").unwrap(),
        json!({"a":[1,2.5,"é😀",null]})
    );
    for bad in [
        "",
        "{",
        "[1,]",
        "{\"a\":1} x",
        "{\"a\":1,\"a\":2}",
        "'a'",
        "[\"\\ud800\"]",
        "[01]",
        "[\u{1}]",
    ] {
        assert!(parse_strict(bad).is_err(), "{bad}");
    }
}

/// The work counted, not the clock: passes over hostile texts stay within a few steps per byte.
#[test]
fn hostile_texts_cost_linear_work() {
    let n = 60_000;
    let texts = [
        "{".repeat(n),
        "[".repeat(n),
        "[[".repeat(50) + &"1,".repeat(n),
        "{\"tasks\":[".repeat(n / 10),
        "{\"a\":".repeat(n / 5),
        "[\"x ".repeat(n / 4),
        "{'a':'".repeat(n / 6),
        "[[[[[[[[\"".repeat(n / 9),
        "\"\\".repeat(n / 2),
        "{\"tasks\": \"".to_owned() + &"a\" ".repeat(n / 3),
        "/*[".repeat(n / 3),
        "[#".repeat(n / 2),
        "[1,2,3] ".repeat(n / 8),
        "{\"a\":\"{\"}".repeat(n / 9),
        "“[“".repeat(n / 7),
    ];
    let epics = epics();
    for text in &texts {
        let wanted = EpicTasksSchema { epic: "E-001", epics: &epics };
        let mut search = AnswerSearch::new(&wanted);
        search.scan_text(text, JsonParseMode::Strict, 1);
        search.scan_text(text, JsonParseMode::Repair, 1);
        let limit = 24 * text.len() + 200_000;
        assert!(
            search.steps <= limit,
            "{} steps for {} bytes of {:?}",
            search.steps,
            text.len(),
            &text[..8]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "[\\x00-\\x7f“”é\u{1b}\u{9b}]{0,400}") {
        let _ = read(&text);
        let _ = parse_strict(&text);
    }

    #[test]
    fn almost_json_never_panics(parts in proptest::collection::vec(
        prop::sample::select(vec!["{", "}", "[", "]", "\"", "'", ":", ",", "\\", "\\u12", "tasks", "\"epic_id\"", "E-001",
            "//", "/*", "*/", "#", "\n", "\r", "```", "null", "None", "-", "1", ".5", "e9", "\u{1b}[", "…", "“", "true"]), 0..120)) {
        let _ = read(&parts.concat());
    }

    /// Cutting or flipping the good answer gives the good answer, a refusal, or a task that says
    /// so: never fewer tasks than there were.
    #[test]
    fn a_damaged_answer_never_loses_a_task(at in 0usize..600, drop in 1usize..5) {
        let at = at % GOOD.len();
        let text = format!("{}{}", &GOOD[..at], GOOD.get(at + drop..).unwrap_or_default());
        if let Ok(got) = read(&text) {
            prop_assert_eq!(got.found.tasks.len(), 2, "{}", text);
        }
        if let Ok(got) = read(&GOOD[..at]) {
            prop_assert_eq!(got.found.tasks.len(), 2);
        }
    }

    #[test]
    fn the_answer_is_found_in_any_noise(before in "[a-z {}\\[\\]\":,.\n`]{0,80}", after in "[a-z {}\\[\\]\":,.\n`]{0,80}") {
        let got = read(&format!("{before}\n{GOOD}\n{after}"));
        // Noise with an open quote or bracket may make the text unreadable, never wrong.
        if let Ok(got) = got {
            prop_assert_eq!(got.found, good());
        }
        let balanced = before.replace(['{', '[', '"'], "");
        prop_assert_eq!(read(&format!("{balanced}\n{GOOD}\n{after}")).unwrap().found, good());
    }
}
