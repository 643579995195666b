//! Ralph's `prd.json`: user stories that pass or not.

use mainstem_core::plan::document::{
    DocumentFormat as Syntax, DocumentNode, DocumentValue, parse_document,
};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocator, SourceStatusMark, SourceTaskState,
    find_only_file, join_sections,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{first_key, get_key, list_items, scalar_int, scalar_text, scalar_texts};
use crate::text_forms::find_paths;

const TAKEN: [&str; 12] = [
    "id",
    "title",
    "name",
    "description",
    "acceptanceCriteria",
    "acceptance_criteria",
    "priority",
    "passes",
    "notes",
    "dependencies",
    "dependsOn",
    "steps",
];

const HELD: [&str; 5] = ["userStories", "user_stories", "stories", "features", "tasks"];

pub(super) fn read_ralph(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let Some(file) = find_only_file(source, &["prd.json"], &[".json"]) else { return Ok(reading) };
    let root = parse_document(&file.text, Syntax::Json)
        .map_err(|faults| PlanImportError::new(source, file, faults))?;
    let at = SourceLocator::new(file);
    let source = file.text.as_str();
    reading.title = scalar_text(first_key(&root, &["project", "feature", "name", "title"]), source)
        .unwrap_or_default();
    for key in ["branchName", "description"] {
        if get_key(&root, key).is_some() {
            reading.add_lost_field(&format!("{key} of the whole"), &at.location_at(0));
        }
    }
    let stories = match &root.value {
        DocumentValue::List(items) => items.as_slice(),
        _ => list_items(first_key(&root, &HELD)),
    };
    let mut ranked: Vec<(i64, usize)> = Vec::new();
    for (i, story) in stories.iter().enumerate() {
        let rank =
            scalar_int(get_key(story, "priority")).unwrap_or(i64::try_from(i).unwrap_or(0) + 1);
        if let Some(entry) = read_story(file, &at, story, i, &mut reading) {
            ranked.push((rank, reading.entries.len()));
            reading.entries.push(entry);
        }
    }
    chain_by_priority(&mut reading, ranked);
    Ok(reading)
}

/// Without any graph, the loop takes one story after the other by priority.
fn chain_by_priority(reading: &mut ImportReading, mut ranked: Vec<(i64, usize)>) {
    if reading.entries.iter().any(|entry| !entry.needs.is_empty()) {
        return;
    }
    ranked.sort();
    for pair in ranked.windows(2) {
        let before = reading.entries[pair[0].1].id.clone();
        reading.entries[pair[1].1].order.push(before);
    }
}

fn read_story(
    file: &SourceFile,
    at: &SourceLocator<'_>,
    node: &DocumentNode<'_>,
    i: usize,
    reading: &mut ImportReading,
) -> Option<ImportEntry> {
    let source = file.text.as_str();
    let DocumentValue::Table(_) = &node.value else { return None };
    let place = at.location_at(node.span.start);
    reading.add_lost_keys(node, &TAKEN, "", &place);
    let id = scalar_text(get_key(node, "id"), source).unwrap_or_else(|| format!("US-{:03}", i + 1));
    let id = if id.bytes().all(|b| b.is_ascii_digit()) { format!("US-{id}") } else { id };
    let description = scalar_text(get_key(node, "description"), source);
    let mut acceptance =
        scalar_texts(first_key(node, &["acceptanceCriteria", "acceptance_criteria"]), source);
    acceptance.extend(scalar_texts(get_key(node, "steps"), source));
    let passes = get_key(node, "passes");
    let done = matches!(passes.map(|node| &node.value), Some(DocumentValue::Bool(true)));
    let file_path = file.path.clone();
    let mark = match passes {
        Some(passes) => SourceStatusMark {
            file: file_path,
            span: passes.span.clone(),
            words: vec![
                (SourceTaskState::Done, "true".to_owned()),
                (SourceTaskState::Open, "false".to_owned()),
            ],
        },
        None => {
            let start = node.span.start + 1;
            let words = vec![(SourceTaskState::Done, "\"passes\": true, ".to_owned())];
            SourceStatusMark { file: file_path, span: start..start, words }
        }
    };
    let title = scalar_text(first_key(node, &["title", "name"]), source)
        .or_else(|| description.as_deref().and_then(|text| text.lines().next()).map(str::to_owned));
    let needs = scalar_texts(first_key(node, &["dependencies", "dependsOn"]), source);
    let prefixed = |name: String| {
        if name.bytes().all(|b| b.is_ascii_digit()) { format!("US-{name}") } else { name }
    };
    Some(ImportEntry {
        id,
        title: title.unwrap_or_default(),
        writes: find_paths(description.as_deref().unwrap_or_default()),
        description: join_sections(&[
            ("", description),
            ("Notes", scalar_text(get_key(node, "notes"), source)),
        ]),
        acceptance,
        needs: needs.into_iter().map(prefixed).collect(),
        state: if done { SourceTaskState::Done } else { SourceTaskState::Open },
        marks: vec![mark],
        place,
        ..ImportEntry::default()
    })
}
