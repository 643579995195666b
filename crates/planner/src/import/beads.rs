//! Beads issues: `.beads/issues.jsonl`, or what `bd list --json` and its like print (a list, one
//! object, or an envelope with `data`).

use mainstem_core::plan::TaskEffort;
use mainstem_core::plan::document::{DocumentNode, DocumentValue};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocation, SourceLocator, SourceStatusMark,
    SourceTaskState, effort_from_hours, find_only_file, join_sections,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{get_key, json_part, list_items, scalar_int, scalar_number, scalar_text};
use crate::text_forms::find_paths;

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

pub(super) fn read_beads(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let file = find_only_file(source, &["issues.jsonl", "beads.jsonl"], &[".jsonl", ".json"]);
    let Some(file) = file else { return Ok(reading) };
    let at = SourceLocator::new(file);
    for node in parse_issues(source, file)? {
        read_issue(file, &at, &node, &mut reading);
    }
    Ok(reading)
}

/// Every issue, whatever it is wrapped in.
fn parse_issues<'f>(
    source: &ImportSource,
    file: &'f SourceFile,
) -> Result<Vec<DocumentNode<'f>>, PlanImportError> {
    let text = file.text.as_str();
    let refuse = |faults| PlanImportError::new(source, file, faults);
    let body = text.trim_start_matches('\u{feff}').trim();
    let lines = body.lines().filter(|line| !line.trim().is_empty());
    let jsonl = body.starts_with('{')
        && lines.clone().all(|line| line.trim().starts_with('{') && line.trim().ends_with('}'));
    if !jsonl {
        return Ok(unwrap_issues(json_part(text, 0..text.len()).map_err(refuse)?));
    }
    let mut found = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset + (line.len() - line.trim_start_matches(['\u{feff}', ' ', '\t']).len());
        let end = offset + line.trim_end().len();
        offset += line.len();
        if start < end {
            found.extend(unwrap_issues(json_part(text, start..end).map_err(refuse)?));
        }
    }
    Ok(found)
}

fn unwrap_issues(node: DocumentNode<'_>) -> Vec<DocumentNode<'_>> {
    match node.value {
        DocumentValue::List(items) => items,
        DocumentValue::Table(ref entries) if get_key(&node, "id").is_none() => {
            let held = entries.iter().find(|(key, _)| matches!(&*key.text, "data" | "issues"));
            held.map_or_else(Vec::new, |(_, inner)| unwrap_issues(inner.clone()))
        }
        DocumentValue::Table(_) => vec![node],
        _ => Vec::new(),
    }
}

fn read_issue(
    file: &SourceFile,
    at: &SourceLocator<'_>,
    node: &DocumentNode<'_>,
    reading: &mut ImportReading,
) {
    let source = file.text.as_str();
    let read =
        |key: &str| scalar_text(get_key(node, key), source).filter(|text| !text.trim().is_empty());
    let Some(id) = read("id") else { return };
    let place = at.location_at(node.span.start);
    let status = read("status").unwrap_or_default();
    let kind = read("issue_type").unwrap_or_default();
    if status == "tombstone" {
        return;
    }
    if NO_WORK.contains(&kind.as_str()) {
        reading.add_notice(
            &place,
            format!("{id} is a {kind}, not a task; dependencies on {id} are ignored"),
        );
        return;
    }
    reading.add_lost_keys(node, &TAKEN, "", &place);
    let mut entry = ImportEntry {
        parent: read("parent"),
        group: kind == "epic",
        title: read("title").unwrap_or_default(),
        description: join_sections(&[
            ("", read("description")),
            ("Design", read("design")),
            ("Notes", read("notes")),
        ]),
        acceptance: split_criteria(&read("acceptance_criteria").unwrap_or_default()),
        writes: find_paths(&read("design").unwrap_or_default()),
        effort: scalar_number(get_key(node, "estimated_minutes"))
            .map_or(TaskEffort::Medium, |minutes| effort_from_hours(minutes / 60.0)),
        priority: 2 - scalar_int(get_key(node, "priority")).unwrap_or(2).clamp(0, 4),
        state: parse_state(&status),
        unavailable: unavailable_reason(&status, read("assignee")),
        marks: vec![status_mark(file, node)],
        place: place.clone(),
        id,
        ..ImportEntry::default()
    };
    if status == "open"
        && let Some(assignee) = read("assignee")
    {
        reading.add_notice(&place, format!("{} is assigned to {assignee}", entry.id));
    }
    let counted = scalar_int(get_key(node, "dependency_count")).unwrap_or(0);
    if counted > 0 && get_key(node, "dependencies").is_none() {
        entry.unavailable =
            Some("known to depend on issues that this list does not name".to_owned());
        reading.add_notice(
            &place,
            format!(
                "{} has dependencies that are only counted here ({counted}); import \
                 .beads/issues.jsonl or use bd 0.49.1 or newer",
                entry.id
            ),
        );
    }
    read_edges(&mut entry, node, source, &place, reading);
    reading.entries.push(entry);
}

/// Issues that `bd ready` would not offer because people or other programs have them.
fn unavailable_reason(status: &str, assignee: Option<String>) -> Option<String> {
    let what = match status {
        "in_progress" => "in progress",
        "hooked" => "hooked",
        "blocked" => "blocked",
        _ => return None,
    };
    Some(assignee.map_or_else(|| what.to_owned(), |name| format!("{what} ({name})")))
}

fn read_edges(
    entry: &mut ImportEntry,
    node: &DocumentNode<'_>,
    source: &str,
    place: &SourceLocation,
    reading: &mut ImportReading,
) {
    for edge in list_items(get_key(node, "dependencies")) {
        let to = scalar_text(get_key(edge, "depends_on_id").or(get_key(edge, "id")), source)
            .unwrap_or_default();
        let kind = scalar_text(get_key(edge, "type").or(get_key(edge, "dependency_type")), source);
        match kind.as_deref().unwrap_or("blocks") {
            "blocks" | "waits-for" => entry.needs.push(to),
            "parent-child" => entry.parent = Some(to),
            "conditional-blocks" => {
                reading.add_notice(
                    place,
                    format!("runs only if {to} fails; imported as a task after {to}"),
                );
                entry.after.push(to);
            }
            other => reading.add_lost_field(&format!("dependencies of type {other}"), place),
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

fn split_criteria(text: &str) -> Vec<String> {
    let listed = crate::lenient_tree::bullet_items(text);
    if listed.is_empty() {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    } else {
        listed
    }
}

fn parse_state(word: &str) -> SourceTaskState {
    match word {
        "in_progress" | "hooked" => SourceTaskState::Doing,
        "blocked" => SourceTaskState::Blocked,
        "deferred" | "pinned" => SourceTaskState::Held,
        "closed" => SourceTaskState::Done,
        _ => SourceTaskState::Open,
    }
}

fn status_mark(file: &SourceFile, node: &DocumentNode<'_>) -> SourceStatusMark {
    let words = [
        (SourceTaskState::Open, "open"),
        (SourceTaskState::Doing, "in_progress"),
        (SourceTaskState::Blocked, "blocked"),
        (SourceTaskState::Done, "closed"),
    ];
    let path = file.path.clone();
    match get_key(node, "status") {
        Some(status) => {
            let words = words.map(|(state, word)| (state, format!("\"{word}\"")));
            SourceStatusMark { file: path, span: status.span.clone(), words: words.to_vec() }
        }
        None => {
            let start = node.span.start + 1;
            let words = words.map(|(state, word)| (state, format!("\"status\":\"{word}\",")));
            SourceStatusMark { file: path, span: start..start, words: words.to_vec() }
        }
    }
}
