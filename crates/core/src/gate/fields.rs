//! A gate written as a table, for those who prefer keys to a line.

use std::collections::BTreeMap;

use super::{GateComparison, GateSpec, MatchRequirement};
use crate::plan::quantities::parse_duration_ms;

/// The keys of such a table.
pub const FIELDS: [&str; 9] =
    ["kind", "command", "path", "pattern", "count", "query", "compare", "value", "within"];

/// The line that a table of keys and plain values stands for.
pub fn gate_line_from_fields(fields: &BTreeMap<String, String>) -> Result<String, String> {
    if let Some(unknown) =
        fields.keys().find(|key| !FIELDS.contains(&key.as_str()) && *key != "text")
    {
        return Err(format!(
            "unknown key `{unknown}` in a check; known: {}, text",
            FIELDS.join(", ")
        ));
    }
    let get = |key: &str| fields.get(key).cloned();
    let kind = get("kind").unwrap_or_else(|| "command".to_owned());
    let need =
        |key: &str| get(key).ok_or_else(|| format!("missing `{key}` in a check of kind `{kind}`"));
    let gate = match kind.as_str() {
        "command" => GateSpec::Command(need("command")?),
        "file_exists" => GateSpec::FileExists { files: need("path")? },
        "content_search" => GateSpec::Content {
            files: need("path")?,
            pattern: need("pattern")?,
            wants: match get("count").map(|count| count.parse()) {
                None => MatchRequirement::AtLeast(1),
                Some(Ok(0)) => MatchRequirement::None,
                Some(Ok(count)) => MatchRequirement::AtLeast(count),
                Some(Err(_)) => return Err("`count` must be an integer".to_owned()),
            },
        },
        "query" => {
            let compare = get("compare").unwrap_or_else(|| "==".to_owned());
            let known = GateComparison::ALL.iter().find(|(sign, _)| *sign == compare);
            let (_, compare) = known.ok_or("`compare` must be one of ==, !=, >=, <=")?;
            let (file, path, value) = (need("path")?, need("query")?, need("value")?);
            GateSpec::Query { file, path, compare: *compare, value }
        }
        "approval" => {
            let within = get("within").map(|span| parse_duration_ms(&span)).transpose()?;
            GateSpec::Approval { within_ms: within, text: get("text").unwrap_or_default() }
        }
        "review" => GateSpec::Review,
        other => {
            return Err(format!(
                "unknown kind of check `{other}`; known: command, file_exists, content_search, query, approval, review"
            ));
        }
    };
    let line = gate.validated()?.to_string();
    // What the line cannot say would be another gate when it is read again.
    match GateSpec::parse(&line) {
        Ok(_) => Ok(line),
        Err(why) => Err(why),
    }
}
