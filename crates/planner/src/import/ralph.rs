//! Ralph's `prd.json`: user stories that pass or not.

use mainstem_core::plan::doc::{Format as Syntax, Node, Value, parse};

use super::{At, Entry, Mark, Reading, Refused, State, joined, only_file};
use crate::source::{File, Source};
use crate::tree::{any, get, int, list, text, texts};
use crate::words::paths;

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

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let Some(file) = only_file(source, &["prd.json"], &[".json"]) else { return Ok(reading) };
    let root =
        parse(&file.text, Syntax::Json).map_err(|faults| Refused::new(source, file, faults))?;
    let at = At::new(file);
    let source = file.text.as_str();
    reading.title =
        text(any(&root, &["project", "feature", "name", "title"]), source).unwrap_or_default();
    for key in ["branchName", "description"] {
        if get(&root, key).is_some() {
            reading.lose(&format!("{key} of the whole"), &at.place(0));
        }
    }
    let stories = match &root.value {
        Value::List(items) => items.as_slice(),
        _ => list(any(&root, &HELD)),
    };
    let mut ranked: Vec<(i64, usize)> = Vec::new();
    for (i, story) in stories.iter().enumerate() {
        let rank = int(get(story, "priority")).unwrap_or(i64::try_from(i).unwrap_or(0) + 1);
        if let Some(entry) = story_entry(file, &at, story, i, &mut reading) {
            ranked.push((rank, reading.entries.len()));
            reading.entries.push(entry);
        }
    }
    chain(&mut reading, ranked);
    Ok(reading)
}

/// Without any graph, the loop takes one story after the other by priority.
fn chain(reading: &mut Reading, mut ranked: Vec<(i64, usize)>) {
    if reading.entries.iter().any(|entry| !entry.needs.is_empty()) {
        return;
    }
    ranked.sort();
    for pair in ranked.windows(2) {
        let before = reading.entries[pair[0].1].id.clone();
        reading.entries[pair[1].1].order.push(before);
    }
}

fn story_entry(
    file: &File,
    at: &At<'_>,
    node: &Node<'_>,
    i: usize,
    reading: &mut Reading,
) -> Option<Entry> {
    let source = file.text.as_str();
    let Value::Table(_) = &node.value else { return None };
    let place = at.place(node.span.start);
    reading.lose_keys(node, &TAKEN, "", &place);
    let id = text(get(node, "id"), source).unwrap_or_else(|| format!("US-{:03}", i + 1));
    let id = if id.bytes().all(|b| b.is_ascii_digit()) { format!("US-{id}") } else { id };
    let description = text(get(node, "description"), source);
    let mut acceptance = texts(any(node, &["acceptanceCriteria", "acceptance_criteria"]), source);
    acceptance.extend(texts(get(node, "steps"), source));
    let passes = get(node, "passes");
    let done = matches!(passes.map(|node| &node.value), Some(Value::Bool(true)));
    let file_path = file.path.clone();
    let mark = match passes {
        Some(passes) => Mark {
            file: file_path,
            span: passes.span.clone(),
            words: vec![(State::Done, "true".to_owned()), (State::Open, "false".to_owned())],
        },
        None => {
            let start = node.span.start + 1;
            let words = vec![(State::Done, "\"passes\": true, ".to_owned())];
            Mark { file: file_path, span: start..start, words }
        }
    };
    let title = text(any(node, &["title", "name"]), source)
        .or_else(|| description.as_deref().and_then(|text| text.lines().next()).map(str::to_owned));
    let needs = texts(any(node, &["dependencies", "dependsOn"]), source);
    let prefixed = |name: String| {
        if name.bytes().all(|b| b.is_ascii_digit()) { format!("US-{name}") } else { name }
    };
    Some(Entry {
        id,
        title: title.unwrap_or_default(),
        writes: paths(description.as_deref().unwrap_or_default()),
        description: joined(&[("", description), ("Notes", text(get(node, "notes"), source))]),
        acceptance,
        needs: needs.into_iter().map(prefixed).collect(),
        state: if done { State::Done } else { State::Open },
        marks: vec![mark],
        place,
        ..Entry::default()
    })
}
