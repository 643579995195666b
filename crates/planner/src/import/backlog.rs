//! Backlog.md: one Markdown file per task with YAML at its top; the words of statuses are the
//! project's own (`backlog/config.yml`).

use mainstem_core::plan::TaskEffort;
use mainstem_core::plan::document::{DocumentFormat as Syntax, parse_document};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocator, SourceStatusMark, SourceTaskState,
    join_sections,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{
    bullet_items, find_markdown_section, front_matter, get_key, scalar_text, scalar_texts,
    trimmed_span, yaml_part,
};

const TAKEN: [&str; 13] = [
    "id",
    "title",
    "status",
    "dependencies",
    "parent_task_id",
    "priority",
    "modified_files",
    "milestone",
    "ordinal",
    "subtasks",
    "created_date",
    "updated_date",
    "reporter",
];

/// The project's words for open, being done and done.
struct BacklogStatusWords {
    open: String,
    doing: Option<String>,
    done: String,
}

pub(super) fn read_backlog(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let words = read_status_words(source);
    for file in &source.files {
        let part_of = |folder: &str| format!("/{}", file.path).contains(folder);
        let other = ["/drafts/", "/decisions/", "/docs/", "/archive/"].into_iter().any(part_of);
        if file.path.ends_with(".md")
            && !other
            && let Some((yaml, body)) = front_matter(&file.text)
        {
            read_task(source, file, yaml, body, &words, &mut reading)?;
        }
    }
    Ok(reading)
}

fn read_status_words(source: &ImportSource) -> BacklogStatusWords {
    let mut words = BacklogStatusWords {
        open: "To Do".to_owned(),
        doing: Some("In Progress".to_owned()),
        done: "Done".to_owned(),
    };
    let config = source
        .files
        .iter()
        .find(|file| file.path.ends_with("config.yml") || file.path.ends_with("config.yaml"));
    let Some(file) = config else { return words };
    let Ok(root) = parse_document(&file.text, Syntax::Yaml) else { return words };
    let list = scalar_texts(get_key(&root, "statuses"), &file.text);
    if let [first, middle @ .., last] = list.as_slice() {
        words.open.clone_from(first);
        words.doing = middle.first().cloned();
        words.done.clone_from(last);
    }
    words
}

fn read_task(
    source: &ImportSource,
    file: &SourceFile,
    yaml: std::ops::Range<usize>,
    body: usize,
    words: &BacklogStatusWords,
    reading: &mut ImportReading,
) -> Result<(), PlanImportError> {
    let node =
        yaml_part(&file.text, yaml).map_err(|faults| PlanImportError::new(source, file, faults))?;
    let whole = file.text.as_str();
    let read = |key: &str| scalar_text(get_key(&node, key), whole);
    let Some(id) = read("id") else { return Ok(()) };
    let place = SourceLocator::new(file).location_at(node.span.start);
    reading.add_lost_keys(&node, &TAKEN, "", &place);
    let body = &whole[body..];
    let section = |titles: &[&str]| find_markdown_section(body, titles).map(strip_markers);
    let mut acceptance =
        section(&["acceptance criteria"]).map(|text| bullet_items(&text)).unwrap_or_default();
    acceptance.extend(
        section(&["definition of done"]).map(|text| bullet_items(&text)).unwrap_or_default(),
    );
    let description = join_sections(&[
        ("", section(&["description"])),
        ("Implementation plan", section(&["implementation plan"])),
        ("Notes", section(&["implementation notes"])),
    ]);
    let status = read("status").unwrap_or_default();
    let mark = get_key(&node, "status").map(|status| {
        let span = trimmed_span(whole, &status.span);
        let quote = whole[span.clone()].chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.map(String::from).unwrap_or_default();
        let with = |word: &str| format!("{quote}{word}{quote}");
        let mut list = vec![
            (SourceTaskState::Open, with(&words.open)),
            (SourceTaskState::Done, with(&words.done)),
        ];
        list.extend(words.doing.as_deref().map(|word| (SourceTaskState::Doing, with(word))));
        SourceStatusMark { file: file.path.clone(), span, words: list }
    });
    reading.entries.push(ImportEntry {
        id,
        parent: read("parent_task_id"),
        title: read("title").unwrap_or_default(),
        description,
        acceptance,
        needs: scalar_texts(get_key(&node, "dependencies"), whole),
        writes: scalar_texts(get_key(&node, "modified_files"), whole),
        phase: None,
        effort: TaskEffort::Medium,
        priority: match read("priority").unwrap_or_default().to_lowercase().as_str() {
            "critical" => 20,
            "high" => 10,
            "low" => -10,
            _ => 0,
        },
        state: task_state(&status, words),
        marks: mark.into_iter().collect(),
        place,
        ..ImportEntry::default()
    });
    Ok(())
}

fn task_state(status: &str, words: &BacklogStatusWords) -> SourceTaskState {
    let is = |word: &str| status.trim().eq_ignore_ascii_case(word);
    if is(&words.done) {
        SourceTaskState::Done
    } else if is(&words.open) || status.is_empty() {
        SourceTaskState::Open
    } else if status.to_lowercase().contains("block") {
        SourceTaskState::Blocked
    } else {
        SourceTaskState::Doing
    }
}

/// Removes the comment lines with which the tool marks its sections.
fn strip_markers(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("<!--"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
