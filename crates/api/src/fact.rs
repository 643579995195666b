//! A fact as one line of JSON, as `run --json` and `history --json` print it.
//!
//! Knows the frame (`seq`, `at`, `run`, `type`, `task`), not what the facts say.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;

use crate::outlook::{rounded_usd, with_rounded_money};
use crate::time;

/// Why a stored fact cannot be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactLineError {
    /// The body is not JSON.
    NotJson {
        /// Place of the fact.
        seq: u64,
        /// What the parser said.
        detail: String,
    },
    /// The body is JSON, but not an object.
    NotAnObject {
        /// Place of the fact.
        seq: u64,
    },
    /// The body has no text under `type`.
    NoType {
        /// Place of the fact.
        seq: u64,
    },
}

impl fmt::Display for FactLineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { seq, detail } => write!(f, "fact {seq} is not JSON: {detail}"),
            Self::NotAnObject { seq } => write!(f, "fact {seq} is not a JSON object"),
            Self::NoType { seq } => write!(f, "fact {seq} does not say its type"),
        }
    }
}

impl std::error::Error for FactLineError {}

/// The line, without a line feed: the frame's keys first, in fixed order, then the body's others in theirs.
///
/// `body` is the stored object with `type` and, if the fact is about a task, `task`. Should it carry a key of the frame
/// itself (`seq`, `at`, `run`), the frame's value wins.
pub fn fact_line(seq: u64, at_ms: i64, run: &str, body: &str) -> Result<String, FactLineError> {
    let not_json =
        |error: serde_json::Error| FactLineError::NotJson { seq, detail: error.to_string() };
    let line = frame_fact(seq, at_ms, run, body)?;
    serde_json::to_string(&line).map_err(not_json)
}

/// The same as a value, for programs in this process. The order of its keys means nothing.
pub fn fact_value(seq: u64, at_ms: i64, run: &str, body: &str) -> Result<Value, FactLineError> {
    let not_json =
        |error: serde_json::Error| FactLineError::NotJson { seq, detail: error.to_string() };
    let line = frame_fact(seq, at_ms, run, body)?;
    serde_json::to_value(&line).map_err(not_json)
}

struct FactLine<'a> {
    seq: u64,
    at_ms: i64,
    run: &'a str,
    kind: String,
    task: Option<Value>,
    rest: Vec<(String, Value)>,
}

fn frame_fact<'a>(
    seq: u64,
    at_ms: i64,
    run: &'a str,
    body: &str,
) -> Result<FactLine<'a>, FactLineError> {
    let FactBody(fields) = serde_json::from_str(body).map_err(|error| match error.classify() {
        Category::Data => FactLineError::NotAnObject { seq },
        Category::Io | Category::Syntax | Category::Eof => {
            FactLineError::NotJson { seq, detail: error.to_string() }
        }
    })?;
    let (mut kind, mut task, mut rest) = (None, None, Vec::new());
    for (key, value) in fields {
        match key.as_str() {
            "type" => kind = Some(value),
            "task" => task = Some(value).filter(|task| !task.is_null()),
            "seq" | "at" | "run" => {}
            _ => {
                let value = for_readers(&key, value);
                rest.push((key, value));
            }
        }
    }
    let Some(Value::String(kind)) = kind else { return Err(FactLineError::NoType { seq }) };
    Ok(FactLine { seq, at_ms, run, kind, task, rest })
}

/// Points in time that facts carry besides their own, stored as milliseconds since 1970.
const MOMENTS: [&str; 3] = ["until", "deadline", "retry_at"];

/// A stored value as other programs get it: points in time as RFC 3339, money rounded.
fn for_readers(key: &str, value: Value) -> Value {
    match value {
        Value::Number(number) if MOMENTS.contains(&key) => match number.as_i64() {
            Some(at_ms) => time::to_rfc3339(at_ms).into(),
            None => Value::Number(number),
        },
        Value::Number(number) if key.ends_with("usd") => match number.as_f64() {
            Some(usd) => rounded_usd(usd).into(),
            None => Value::Number(number),
        },
        other => with_rounded_money(other),
    }
}

/// The fields in the order they were written, which a map would lose.
struct FactBody(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for FactBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FactBodyVisitor)
    }
}

struct FactBodyVisitor;

impl<'de> Visitor<'de> for FactBodyVisitor {
    type Value = FactBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FactBody, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(FactBody(fields))
    }
}

impl Serialize for FactLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("at", &time::to_rfc3339(self.at_ms))?;
        map.serialize_entry("run", self.run)?;
        map.serialize_entry("type", &self.kind)?;
        if let Some(task) = &self.task {
            map.serialize_entry("task", task)?;
        }
        for (key, value) in &self.rest {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_the_frame_first() {
        let body = r#"{"commit":"abc","attempt":2,"task":"T-001","type":"task_landed"}"#;
        assert_eq!(
            fact_line(17, 1_794_735_000_250, "r-1", body).unwrap(),
            r#"{"seq":17,"at":"2026-11-15T09:30:00.250Z","run":"r-1","type":"task_landed","task":"T-001","commit":"abc","attempt":2}"#
        );
    }

    #[test]
    fn a_fact_about_no_task_has_no_task() {
        let line = r#"{"seq":1,"at":"1970-01-01T00:00:00.000Z","run":"r","type":"run_started"}"#;
        assert_eq!(fact_line(1, 0, "r", r#"{"type":"run_started"}"#).unwrap(), line);
        assert_eq!(fact_line(1, 0, "r", r#"{"type":"run_started","task":null}"#).unwrap(), line);
    }

    #[test]
    fn the_frame_wins_over_the_body() {
        let body = r#"{"type":"x","seq":9,"at":"never","run":"other","n":1}"#;
        assert_eq!(
            fact_value(1, 0, "r", body).unwrap(),
            json!({"seq": 1, "at": "1970-01-01T00:00:00.000Z", "run": "r", "type": "x", "n": 1})
        );
    }

    #[test]
    fn a_line_feed_in_a_fact_stays_inside_its_line() {
        let line = fact_line(1, 0, "r", r#"{"type":"said","text":"a\nb\u2028ü"}"#).unwrap();
        assert_eq!(line.lines().count(), 1);
        assert!(line.ends_with("\"text\":\"a\\nb\u{2028}ü\"}"), "{line}");
    }

    #[test]
    fn numbers_come_through_as_they_are() {
        let body = r#"{"type":"x","big":18446744073709551615,"cost":0.01,"negative":-3}"#;
        let line = fact_line(1, 0, "r", body).unwrap();
        assert!(
            line.ends_with(r#""big":18446744073709551615,"cost":0.01,"negative":-3}"#),
            "{line}"
        );
    }

    #[test]
    fn points_in_time_and_money_are_written_for_readers() {
        let body = r#"{"type":"x","until":250,"deadline":null,"retry_at":"soon","spent_usd":0.30000000000000004,"usage":{"cost_usd":0.12345}}"#;
        assert_eq!(
            fact_value(1, 0, "r", body).unwrap(),
            json!({
                "seq": 1, "at": "1970-01-01T00:00:00.000Z", "run": "r", "type": "x",
                "until": "1970-01-01T00:00:00.250Z", "deadline": null, "retry_at": "soon",
                "spent_usd": 0.3, "usage": {"cost_usd": 0.1235},
            })
        );
    }

    #[test]
    fn a_body_that_is_no_fact_is_an_error_with_its_place() {
        assert!(matches!(fact_line(4, 0, "r", "{"), Err(FactLineError::NotJson { seq: 4, .. })));
        assert!(matches!(fact_line(4, 0, "r", "{} x"), Err(FactLineError::NotJson { seq: 4, .. })));
        assert_eq!(fact_line(4, 0, "r", "[]"), Err(FactLineError::NotAnObject { seq: 4 }));
        assert_eq!(fact_line(4, 0, "r", "{}"), Err(FactLineError::NoType { seq: 4 }));
        assert_eq!(fact_line(4, 0, "r", r#"{"type":1}"#), Err(FactLineError::NoType { seq: 4 }));
        assert_eq!(FactLineError::NoType { seq: 4 }.to_string(), "fact 4 does not say its type");
    }
}
