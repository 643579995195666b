//! GitHub issues as `gh issue list --json number,title,body,state,…` prints them, with dependencies
//! and sub-issues where the JSON has them, and "Blocked by #12" where only the text has.

use std::collections::BTreeSet;

use mainstem_core::plan::document::{
    DocumentFormat as Syntax, DocumentNode, DocumentValue, parse_document,
};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocator, SourceStatusMark, SourceTaskState,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{
    bullet_items, find_markdown_section, first_key, get_key, list_items, scalar_int, scalar_text,
};
use crate::text_forms::find_paths;

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

pub(super) fn read_github(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let Some(file) = source.files.iter().find(|file| file.path.ends_with(".json")) else {
        return Ok(reading);
    };
    let root = parse_document(&file.text, Syntax::Json)
        .map_err(|faults| PlanImportError::new(source, file, faults))?;
    let at = SourceLocator::new(file);
    let issues = match &root.value {
        DocumentValue::List(items) => items.as_slice(),
        _ => list_items(first_key(&root, &["issues", "items", "nodes"])),
    };
    let mut milestones: BTreeSet<String> = BTreeSet::new();
    for node in issues {
        read_issue(file, &at, node, &mut reading, &mut milestones);
    }
    link_sub_issues(issues, &mut reading);
    Ok(reading)
}

fn issue_name(number: i64) -> String {
    format!("issue-{number}")
}

fn read_issue(
    file: &SourceFile,
    at: &SourceLocator<'_>,
    node: &DocumentNode<'_>,
    reading: &mut ImportReading,
    milestones: &mut BTreeSet<String>,
) {
    let source = file.text.as_str();
    let Some(number) = scalar_int(get_key(node, "number")) else { return };
    let place = at.location_at(node.span.start);
    reading.add_lost_keys(node, &TAKEN, "", &place);
    let body = scalar_text(get_key(node, "body"), source).unwrap_or_default().replace("\r\n", "\n");
    let milestone = get_key(node, "milestone");
    let milestone = scalar_text(milestone.and_then(|m| get_key(m, "title")).or(milestone), source);
    if let Some(title) = &milestone
        && milestones.insert(title.clone())
    {
        reading.entries.push(ImportEntry {
            id: format!("milestone {title}"),
            group: true,
            title: title.clone(),
            place: place.clone(),
            ..ImportEntry::default()
        });
    }
    let reason =
        scalar_text(first_key(node, &["stateReason", "state_reason"]), source).unwrap_or_default();
    let closed = scalar_text(get_key(node, "state"), source)
        .is_some_and(|s| s.eq_ignore_ascii_case("closed"));
    let state = match (closed, reason.to_lowercase().as_str()) {
        (true, "not_planned" | "duplicate") => SourceTaskState::Dropped,
        (true, _) => SourceTaskState::Done,
        _ => SourceTaskState::Open,
    };
    let mut needs: Vec<String> = issue_numbers(first_key(node, &["blockedBy", "blocked_by"]))
        .into_iter()
        .map(issue_name)
        .collect();
    needs.extend(mentioned_issues(&body).into_iter().map(issue_name));
    let criteria =
        find_markdown_section(&body, &["acceptance criteria", "acceptance", "definition of done"]);
    let parent = get_key(node, "parent");
    let parent = scalar_int(parent.and_then(|p| get_key(p, "number")).or(parent)).map(issue_name);
    let priority = read_labels(node, source, reading, &place);
    reading.entries.push(ImportEntry {
        id: issue_name(number),
        parent: parent.or_else(|| milestone.map(|title| format!("milestone {title}"))),
        title: scalar_text(get_key(node, "title"), source).unwrap_or_default(),
        acceptance: criteria.map(bullet_items).unwrap_or_default(),
        writes: find_paths(&body),
        description: body,
        needs,
        priority,
        state,
        marks: status_mark(file, node).into_iter().collect(),
        place,
        ..ImportEntry::default()
    });
}

fn read_labels(
    node: &DocumentNode<'_>,
    source: &str,
    reading: &mut ImportReading,
    place: &super::SourceLocation,
) -> i64 {
    let mut priority = 0;
    for label in list_items(get_key(node, "labels")) {
        let label = scalar_text(get_key(label, "name").or(Some(label)), source).unwrap_or_default();
        match label
            .to_lowercase()
            .trim_start_matches("priority:")
            .trim_start_matches("priority/")
            .trim()
        {
            "p0" | "critical" | "urgent" => priority = 20,
            "p1" | "high" => priority = 10,
            "p3" | "low" => priority = -10,
            _ => reading.add_lost_field("labels", place),
        }
    }
    priority
}

/// Numbers in a list of numbers or of objects with one, also behind `nodes`.
fn issue_numbers(node: Option<&DocumentNode<'_>>) -> Vec<i64> {
    let items = match node {
        Some(holder) if get_key(holder, "nodes").is_some() => list_items(get_key(holder, "nodes")),
        other => list_items(other),
    };
    items.iter().filter_map(|item| scalar_int(get_key(item, "number").or(Some(item)))).collect()
}

/// Numbers after "depends on" and "blocked by" in a text.
fn mentioned_issues(body: &str) -> Vec<i64> {
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
fn link_sub_issues(issues: &[DocumentNode<'_>], reading: &mut ImportReading) {
    for node in issues {
        let Some(number) = scalar_int(get_key(node, "number")) else { continue };
        for child in issue_numbers(first_key(node, &["subIssues", "sub_issues"])) {
            let child = issue_name(child);
            if let Some(entry) = reading.entries.iter_mut().find(|entry| entry.id == child) {
                entry.parent = Some(issue_name(number));
            }
        }
    }
}

fn status_mark(file: &SourceFile, node: &DocumentNode<'_>) -> Option<SourceStatusMark> {
    let state = get_key(node, "state")?;
    let upper = file.text.get(state.span.clone())?.contains(|c: char| c.is_ascii_uppercase());
    let (open, closed) =
        if upper { ("\"OPEN\"", "\"CLOSED\"") } else { ("\"open\"", "\"closed\"") };
    let words =
        vec![(SourceTaskState::Open, open.to_owned()), (SourceTaskState::Done, closed.to_owned())];
    Some(SourceStatusMark { file: file.path.clone(), span: state.span.clone(), words })
}
