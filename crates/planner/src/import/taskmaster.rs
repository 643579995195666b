//! task-master `tasks.json`: tags of tasks, tasks with subtasks.
//!
//! A task with subtasks becomes a group: its subtasks are the work, and its own text their context.

use mainstem_core::plan::TaskEffort;
use mainstem_core::plan::document::{
    DocumentFormat as Syntax, DocumentNode, DocumentValue, parse_document,
};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocator, SourceStatusMark, SourceTaskState,
    find_only_file, join_sections,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{
    first_key, get_key, key_names, list_items, scalar_int, scalar_text, scalar_texts,
};
use crate::text_forms::find_paths;

const TAKEN: [&str; 16] = [
    "id",
    "title",
    "description",
    "status",
    "dependencies",
    "priority",
    "details",
    "testStrategy",
    "subtasks",
    "acceptanceCriteria",
    "parentTaskId",
    "parentId",
    "complexity",
    "effort",
    "relevantFiles",
    "technicalConstraints",
];

pub(super) fn read_taskmaster(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let Some(file) = find_only_file(source, &["tasks.json"], &[".json"]) else {
        return Ok(reading);
    };
    let root = parse_document(&file.text, Syntax::Json)
        .map_err(|faults| PlanImportError::new(source, file, faults))?;
    let at = SourceLocator::new(file);
    let Some((tag, holder)) = find_task_tag(&root, &mut reading, &at) else { return Ok(reading) };
    reading.title = tag;
    for task in list_items(get_key(holder, "tasks")) {
        TaskmasterReader { file, at: &at, reading: &mut reading, parent: None }.read_task(task);
    }
    Ok(reading)
}

/// The object with the tasks: the root, the tag `master`, or the first tag with tasks.
fn find_task_tag<'a, 's>(
    root: &'a DocumentNode<'s>,
    reading: &mut ImportReading,
    at: &SourceLocator<'_>,
) -> Option<(String, &'a DocumentNode<'s>)> {
    if matches!(get_key(root, "tasks").map(|node| &node.value), Some(DocumentValue::List(_))) {
        return Some((String::new(), root));
    }
    let tags: Vec<&str> = key_names(root)
        .into_iter()
        .filter(|key| {
            get_key(root, key).is_some_and(|tag| !list_items(get_key(tag, "tasks")).is_empty())
        })
        .collect();
    let chosen = tags.iter().find(|tag| **tag == "master").or(tags.first())?;
    for other in tags.iter().filter(|tag| *tag != chosen) {
        let count = get_key(root, other).map_or(0, |tag| list_items(get_key(tag, "tasks")).len());
        reading.add_notice(
            &at.location_at(0),
            format!("the tag `{other}` ({count} tasks) is ignored"),
        );
    }
    Some(((*chosen).to_owned(), get_key(root, chosen)?))
}

struct TaskmasterReader<'a> {
    file: &'a SourceFile,
    at: &'a SourceLocator<'a>,
    reading: &'a mut ImportReading,
    parent: Option<String>,
}

impl TaskmasterReader<'_> {
    fn read_task(&mut self, node: &DocumentNode<'_>) {
        let source = self.file.text.as_str();
        let Some(own) = scalar_text(get_key(node, "id"), source) else { return };
        let place = self.at.location_at(node.span.start);
        let id = match &self.parent {
            Some(parent) if !own.contains('.') => format!("{parent}.{own}"),
            _ => own,
        };
        self.reading.add_lost_keys(node, &TAKEN, "", &place);
        let details = scalar_text(get_key(node, "details"), source);
        let limits = scalar_texts(get_key(node, "technicalConstraints"), source).join("\n");
        let mut writes: Vec<String> = list_items(get_key(node, "relevantFiles"))
            .iter()
            .filter_map(|file| scalar_text(get_key(file, "path").or(Some(file)), source))
            .collect();
        writes.extend(find_paths(details.as_deref().unwrap_or_default()));
        let mut acceptance = scalar_texts(get_key(node, "acceptanceCriteria"), source);
        acceptance.extend(
            scalar_text(get_key(node, "testStrategy"), source)
                .filter(|text| !text.trim().is_empty()),
        );
        let status = scalar_text(get_key(node, "status"), source);
        let (words, priority) =
            (scalar_texts(get_key(node, "dependencies"), source), get_key(node, "priority"));
        self.reading.entries.push(ImportEntry {
            id: id.clone(),
            parent: self.parent.clone(),
            title: scalar_text(get_key(node, "title"), source).unwrap_or_default(),
            description: join_sections(&[
                ("", scalar_text(get_key(node, "description"), source)),
                ("Details", details),
                ("Constraints", Some(limits)),
            ]),
            acceptance,
            needs: words.into_iter().map(|name| self.dependency_name(name)).collect(),
            writes,
            effort: parse_effort(first_key(node, &["complexity", "effort"]), source),
            priority: match scalar_text(priority, source).as_deref() {
                Some("critical") => 20,
                Some("high") => 10,
                Some("low") => -10,
                _ => 0,
            },
            state: parse_state(status.as_deref().unwrap_or_default()),
            marks: vec![self.status_mark(node)],
            place,
            ..ImportEntry::default()
        });
        let subtasks = list_items(get_key(node, "subtasks"));
        let parent = Some(id);
        for subtask in subtasks {
            TaskmasterReader {
                parent: parent.clone(),
                file: self.file,
                at: self.at,
                reading: self.reading,
            }
            .read_task(subtask);
        }
    }

    /// Inside a task, a plain number is a subtask beside it.
    fn dependency_name(&self, name: String) -> String {
        match &self.parent {
            Some(parent) if !name.contains('.') => format!("{parent}.{name}"),
            _ => name,
        }
    }

    fn status_mark(&self, node: &DocumentNode<'_>) -> SourceStatusMark {
        let words = |quote: fn(&str) -> String| {
            [
                (SourceTaskState::Open, "pending"),
                (SourceTaskState::Doing, "in-progress"),
                (SourceTaskState::Blocked, "blocked"),
                (SourceTaskState::Done, "done"),
                (SourceTaskState::Dropped, "cancelled"),
            ]
            .map(|(state, word)| (state, quote(word)))
            .to_vec()
        };
        let file = self.file.path.clone();
        match get_key(node, "status") {
            Some(status) => SourceStatusMark {
                file,
                span: status.span.clone(),
                words: words(|word| format!("\"{word}\"")),
            },
            None => {
                let start = node.span.start + 1;
                SourceStatusMark {
                    file,
                    span: start..start,
                    words: words(|word| format!("\"status\": \"{word}\", ")),
                }
            }
        }
    }
}

fn parse_state(word: &str) -> SourceTaskState {
    match word {
        "in-progress" | "review" => SourceTaskState::Doing,
        "done" | "completed" => SourceTaskState::Done,
        "blocked" => SourceTaskState::Blocked,
        "deferred" => SourceTaskState::Held,
        "cancelled" => SourceTaskState::Dropped,
        _ => SourceTaskState::Open,
    }
}

fn parse_effort(node: Option<&DocumentNode<'_>>, source: &str) -> TaskEffort {
    match scalar_int(node) {
        Some(..=3) => TaskEffort::Small,
        Some(8..) => TaskEffort::Large,
        Some(_) => TaskEffort::Medium,
        None => match scalar_text(node, source).unwrap_or_default().to_lowercase().as_str() {
            "low" | "small" | "simple" | "easy" => TaskEffort::Small,
            "high" | "large" | "complex" | "hard" => TaskEffort::Large,
            _ => TaskEffort::Medium,
        },
    }
}
