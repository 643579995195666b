//! Beads issues: `.beads/issues.jsonl`, or what `bd list --json` and its like print (a list, one
//! object, or an envelope with `data`).

use mainstem_core::plan::Effort;
use mainstem_core::plan::doc::{Node, Value};

use super::{At, Entry, Mark, Place, Reading, Refused, State, effort_of_hours, joined, only_file};
use crate::source::{File, Source};
use crate::tree::{get, int, json_part, list, number, text};
use crate::words::paths;

const TAKEN: [&str; 16] = [
    "id",
    "assignee",
    "title",
    "description",
    "design",
    "acceptance_criteria",
    "notes",
    "status",
    "priority",
    "issue_type",
    "estimated_minutes",
    "dependencies",
    "parent",
    "dependency_count",
    "dependent_count",
    "comment_count",
];

/// Issues that nobody works on.
const NO_WORK: [&str; 4] = ["message", "molecule", "gate", "event"];

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let file = only_file(source, &["issues.jsonl", "beads.jsonl"], &[".jsonl", ".json"]);
    let Some(file) = file else { return Ok(reading) };
    let at = At::new(file);
    for node in issues(source, file)? {
        issue(file, &at, &node, &mut reading);
    }
    Ok(reading)
}

/// Every issue, whatever it is wrapped in.
fn issues<'f>(source: &Source, file: &'f File) -> Result<Vec<Node<'f>>, Refused> {
    let text = file.text.as_str();
    let refuse = |faults| Refused::new(source, file, faults);
    let body = text.trim_start_matches('\u{feff}').trim();
    let lines = body.lines().filter(|line| !line.trim().is_empty());
    let jsonl = body.starts_with('{')
        && lines.clone().all(|line| line.trim().starts_with('{') && line.trim().ends_with('}'));
    if !jsonl {
        return Ok(unwrap(json_part(text, 0..text.len()).map_err(refuse)?));
    }
    let mut found = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset + (line.len() - line.trim_start_matches(['\u{feff}', ' ', '\t']).len());
        let end = offset + line.trim_end().len();
        offset += line.len();
        if start < end {
            found.extend(unwrap(json_part(text, start..end).map_err(refuse)?));
        }
    }
    Ok(found)
}

fn unwrap(node: Node<'_>) -> Vec<Node<'_>> {
    match node.value {
        Value::List(items) => items,
        Value::Table(ref entries) if get(&node, "id").is_none() => {
            let held = entries.iter().find(|(key, _)| matches!(&*key.text, "data" | "issues"));
            held.map_or_else(Vec::new, |(_, inner)| unwrap(inner.clone()))
        }
        Value::Table(_) => vec![node],
        _ => Vec::new(),
    }
}

fn issue(file: &File, at: &At<'_>, node: &Node<'_>, reading: &mut Reading) {
    let source = file.text.as_str();
    let read = |key: &str| text(get(node, key), source).filter(|text| !text.trim().is_empty());
    let Some(id) = read("id") else { return };
    let place = at.place(node.span.start);
    let status = read("status").unwrap_or_default();
    let kind = read("issue_type").unwrap_or_default();
    if status == "tombstone" {
        return;
    }
    if NO_WORK.contains(&kind.as_str()) {
        reading.notice(
            &place,
            format!("{id} is a {kind}, not a task; dependencies on {id} are ignored"),
        );
        return;
    }
    reading.lose_keys(node, &TAKEN, "", &place);
    let mut entry = Entry {
        parent: read("parent"),
        group: kind == "epic",
        title: read("title").unwrap_or_default(),
        description: joined(&[
            ("", read("description")),
            ("Design", read("design")),
            ("Notes", read("notes")),
        ]),
        acceptance: criteria(&read("acceptance_criteria").unwrap_or_default()),
        writes: paths(&read("design").unwrap_or_default()),
        effort: number(get(node, "estimated_minutes"))
            .map_or(Effort::Medium, |minutes| effort_of_hours(minutes / 60.0)),
        priority: 2 - int(get(node, "priority")).unwrap_or(2).clamp(0, 4),
        state: state(&status),
        unavailable: unavailable(&status, read("assignee")),
        marks: vec![mark(file, node)],
        place: place.clone(),
        id,
        ..Entry::default()
    };
    if status == "open"
        && let Some(assignee) = read("assignee")
    {
        reading.notice(&place, format!("{} is assigned to {assignee}", entry.id));
    }
    let counted = int(get(node, "dependency_count")).unwrap_or(0);
    if counted > 0 && get(node, "dependencies").is_none() {
        entry.unavailable =
            Some("known to depend on issues that this list does not name".to_owned());
        reading.notice(
            &place,
            format!(
                "{} has dependencies that are only counted here ({counted}); import \
                 .beads/issues.jsonl or use bd 0.49.1 or newer",
                entry.id
            ),
        );
    }
    edges(&mut entry, node, source, &place, reading);
    reading.entries.push(entry);
}

/// Issues that `bd ready` would not offer because people or other programs have them.
fn unavailable(status: &str, assignee: Option<String>) -> Option<String> {
    let what = match status {
        "in_progress" => "in progress",
        "hooked" => "hooked",
        "blocked" => "blocked",
        _ => return None,
    };
    Some(assignee.map_or_else(|| what.to_owned(), |name| format!("{what} ({name})")))
}

fn edges(entry: &mut Entry, node: &Node<'_>, source: &str, place: &Place, reading: &mut Reading) {
    for edge in list(get(node, "dependencies")) {
        let to = text(get(edge, "depends_on_id").or(get(edge, "id")), source).unwrap_or_default();
        let kind = text(get(edge, "type").or(get(edge, "dependency_type")), source);
        match kind.as_deref().unwrap_or("blocks") {
            "blocks" | "waits-for" => entry.needs.push(to),
            "parent-child" => entry.parent = Some(to),
            "conditional-blocks" => {
                reading.notice(
                    place,
                    format!("runs only if {to} fails; imported as a task after {to}"),
                );
                entry.after.push(to);
            }
            other => reading.lose(&format!("dependencies of type {other}"), place),
        }
    }
    // A child of `bd-a1` is `bd-a1.1`, also where no edge says so; a parent that is not in the file
    // is forgotten later.
    if entry.parent.is_none()
        && let Some((parent, child)) = entry.id.rsplit_once('.')
        && child.bytes().all(|b| b.is_ascii_digit())
    {
        entry.parent = Some(parent.to_owned());
    }
}

fn criteria(text: &str) -> Vec<String> {
    let listed = crate::tree::bullets(text);
    if listed.is_empty() {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    } else {
        listed
    }
}

fn state(word: &str) -> State {
    match word {
        "in_progress" | "hooked" => State::Doing,
        "blocked" => State::Blocked,
        "deferred" | "pinned" => State::Held,
        "closed" => State::Done,
        _ => State::Open,
    }
}

fn mark(file: &File, node: &Node<'_>) -> Mark {
    let words = [
        (State::Open, "open"),
        (State::Doing, "in_progress"),
        (State::Blocked, "blocked"),
        (State::Done, "closed"),
    ];
    let path = file.path.clone();
    match get(node, "status") {
        Some(status) => {
            let words = words.map(|(state, word)| (state, format!("\"{word}\"")));
            Mark { file: path, span: status.span.clone(), words: words.to_vec() }
        }
        None => {
            let start = node.span.start + 1;
            let words = words.map(|(state, word)| (state, format!("\"status\":\"{word}\",")));
            Mark { file: path, span: start..start, words: words.to_vec() }
        }
    }
}
