//! GitHub issues as `gh issue list --json number,title,body,state,…` prints them, with dependencies
//! and sub-issues where the JSON has them, and "Blocked by #12" where only the text has.

use std::collections::BTreeSet;

use mainstem_core::plan::doc::{Format as Syntax, Node, Value, parse};

use super::{At, Entry, Mark, Reading, Refused, State};
use crate::source::{File, Source};
use crate::tree::{any, bullets, get, int, list, part, text};
use crate::words::paths;

const TAKEN: [&str; 18] = [
    "number",
    "title",
    "body",
    "state",
    "stateReason",
    "state_reason",
    "labels",
    "milestone",
    "blockedBy",
    "blocked_by",
    "subIssues",
    "sub_issues",
    "parent",
    "id",
    "url",
    "createdAt",
    "updatedAt",
    "closed",
];

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let Some(file) = source.files.iter().find(|file| file.path.ends_with(".json")) else {
        return Ok(reading);
    };
    let root =
        parse(&file.text, Syntax::Json).map_err(|faults| Refused::new(source, file, faults))?;
    let at = At::new(file);
    let issues = match &root.value {
        Value::List(items) => items.as_slice(),
        _ => list(any(&root, &["issues", "items", "nodes"])),
    };
    let mut milestones: BTreeSet<String> = BTreeSet::new();
    for node in issues {
        issue(file, &at, node, &mut reading, &mut milestones);
    }
    children(issues, &mut reading);
    Ok(reading)
}

fn name(number: i64) -> String {
    format!("issue-{number}")
}

fn issue(
    file: &File,
    at: &At<'_>,
    node: &Node<'_>,
    reading: &mut Reading,
    milestones: &mut BTreeSet<String>,
) {
    let source = file.text.as_str();
    let Some(number) = int(get(node, "number")) else { return };
    let place = at.place(node.span.start);
    reading.lose_keys(node, &TAKEN, "", &place);
    let body = text(get(node, "body"), source).unwrap_or_default().replace("\r\n", "\n");
    let milestone = get(node, "milestone");
    let milestone = text(milestone.and_then(|m| get(m, "title")).or(milestone), source);
    if let Some(title) = &milestone
        && milestones.insert(title.clone())
    {
        reading.entries.push(Entry {
            id: format!("milestone {title}"),
            group: true,
            title: title.clone(),
            place: place.clone(),
            ..Entry::default()
        });
    }
    let reason = text(any(node, &["stateReason", "state_reason"]), source).unwrap_or_default();
    let closed = text(get(node, "state"), source).is_some_and(|s| s.eq_ignore_ascii_case("closed"));
    let state = match (closed, reason.to_lowercase().as_str()) {
        (true, "not_planned" | "duplicate") => State::Dropped,
        (true, _) => State::Done,
        _ => State::Open,
    };
    let mut needs: Vec<String> =
        numbers(any(node, &["blockedBy", "blocked_by"])).into_iter().map(name).collect();
    needs.extend(named(&body).into_iter().map(name));
    let criteria = part(&body, &["acceptance criteria", "acceptance", "definition of done"]);
    let parent = get(node, "parent");
    let parent = int(parent.and_then(|p| get(p, "number")).or(parent)).map(name);
    let priority = labels(node, source, reading, &place);
    reading.entries.push(Entry {
        id: name(number),
        parent: parent.or_else(|| milestone.map(|title| format!("milestone {title}"))),
        title: text(get(node, "title"), source).unwrap_or_default(),
        acceptance: criteria.map(bullets).unwrap_or_default(),
        writes: paths(&body),
        description: body,
        needs,
        priority,
        state,
        marks: mark(file, node).into_iter().collect(),
        place,
        ..Entry::default()
    });
}

fn labels(node: &Node<'_>, source: &str, reading: &mut Reading, place: &super::Place) -> i64 {
    let mut priority = 0;
    for label in list(get(node, "labels")) {
        let label = text(get(label, "name").or(Some(label)), source).unwrap_or_default();
        match label
            .to_lowercase()
            .trim_start_matches("priority:")
            .trim_start_matches("priority/")
            .trim()
        {
            "p0" | "critical" | "urgent" => priority = 20,
            "p1" | "high" => priority = 10,
            "p3" | "low" => priority = -10,
            _ => reading.lose("labels", place),
        }
    }
    priority
}

/// Numbers in a list of numbers or of objects with one, also behind `nodes`.
fn numbers(node: Option<&Node<'_>>) -> Vec<i64> {
    let items = match node {
        Some(holder) if get(holder, "nodes").is_some() => list(get(holder, "nodes")),
        other => list(other),
    };
    items.iter().filter_map(|item| int(get(item, "number").or(Some(item)))).collect()
}

/// Numbers after "depends on" and "blocked by" in a text.
fn named(body: &str) -> Vec<i64> {
    let lower = body.to_ascii_lowercase();
    let mut found = Vec::new();
    for phrase in ["depends on", "blocked by"] {
        for (at, _) in lower.match_indices(phrase) {
            let rest = lower[at + phrase.len()..].trim_start_matches([':', '*', ' ']);
            for word in rest.split([' ', ',', '\n']).filter(|word| !word.is_empty()) {
                let Some(number) = word.strip_prefix('#') else {
                    if word == "and" { continue } else { break }
                };
                let digits = number.bytes().take_while(u8::is_ascii_digit).count();
                found.extend(number[..digits].parse::<i64>());
            }
        }
    }
    found
}

/// Sub-issues say so from above.
fn children(issues: &[Node<'_>], reading: &mut Reading) {
    for node in issues {
        let Some(number) = int(get(node, "number")) else { continue };
        for child in numbers(any(node, &["subIssues", "sub_issues"])) {
            let child = name(child);
            if let Some(entry) = reading.entries.iter_mut().find(|entry| entry.id == child) {
                entry.parent = Some(name(number));
            }
        }
    }
}

fn mark(file: &File, node: &Node<'_>) -> Option<Mark> {
    let state = get(node, "state")?;
    let upper = file.text.get(state.span.clone())?.contains(|c: char| c.is_ascii_uppercase());
    let (open, closed) =
        if upper { ("\"OPEN\"", "\"CLOSED\"") } else { ("\"open\"", "\"closed\"") };
    let words = vec![(State::Open, open.to_owned()), (State::Done, closed.to_owned())];
    Some(Mark { file: file.path.clone(), span: state.span.clone(), words })
}
