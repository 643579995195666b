//! The batch spec of parallel workers: `tasks: [{id, description, agent, priority, …}]` in YAML.
//!
//! The format has no status of its own; a push puts `status` beside the id, and it is read back.

use mainstem_core::plan::TaskEffort;
use mainstem_core::plan::document::{
    DocumentFormat as Syntax, DocumentNode, DocumentValue, parse_document,
};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocator, SourceStatusMark, SourceTaskState,
    effort_from_hours,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{
    first_key, get_key, list_items, scalar_int, scalar_number, scalar_text, scalar_texts,
    trimmed_span,
};
use crate::text_forms::find_paths;

const TAKEN: [&str; 15] = [
    "id",
    "title",
    "description",
    "agent",
    "priority",
    "estimated_hours",
    "dependencies",
    "depends_on",
    "acceptance",
    "acceptance_criteria",
    "files",
    "status",
    "verify",
    "run",
    "command",
];

/// What a batch spec says beyond a plan of its own: where work goes, and which workers it waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Every base branch that is named, of the whole or of one task.
    pub base_branches: Vec<String>,
    /// Task and dependency, where the dependency is no task of this spec.
    pub outside_dependencies: Vec<(String, String)>,
}

/// Reads what `read` has no place for in a plan.
pub fn read_worker_spec(source: &ImportSource) -> Result<WorkerSpec, PlanImportError> {
    let mut spec = WorkerSpec::default();
    let Some((file, root)) = parse_spec(source)? else { return Ok(spec) };
    let tasks = list_items(get_key(&root, "tasks"));
    let word = |node: &DocumentNode<'_>, key: &str| scalar_text(get_key(node, key), &file.text);
    let ids: Vec<String> = tasks.iter().filter_map(|task| word(task, "id")).collect();
    for node in std::iter::once(&root).chain(tasks) {
        let branch =
            word(node, "base_branch").filter(|branch| !spec.base_branches.contains(branch));
        spec.base_branches.extend(branch);
        let Some(id) = word(node, "id") else { continue };
        for needed in scalar_texts(first_key(node, &["dependencies", "depends_on"]), &file.text) {
            if !ids.iter().any(|known| known.eq_ignore_ascii_case(needed.trim())) {
                spec.outside_dependencies.push((id.clone(), needed.trim().to_owned()));
            }
        }
    }
    Ok(spec)
}

fn parse_spec(
    source: &ImportSource,
) -> Result<Option<(&SourceFile, DocumentNode<'_>)>, PlanImportError> {
    let yaml = |path: &str| path.ends_with(".yaml") || path.ends_with(".yml");
    let file = source.files.iter().find(|file| {
        (yaml(&file.path) && file.text.contains("tasks:")) || file.path.ends_with(".json")
    });
    let Some(file) = file else { return Ok(None) };
    let syntax = if yaml(&file.path) { Syntax::Yaml } else { Syntax::Json };
    let root = parse_document(&file.text, syntax)
        .map_err(|faults| PlanImportError::new(source, file, faults))?;
    Ok(Some((file, root)))
}

pub(super) fn read_workers(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let Some((file, root)) = parse_spec(source)? else { return Ok(reading) };
    let at = SourceLocator::new(file);
    reading.title = scalar_text(get_key(&root, "project"), &file.text).unwrap_or_default();
    for key in ["base_branch", "metadata"] {
        if get_key(&root, key).is_some() {
            reading.add_lost_field(&format!("{key} of the whole"), &at.location_at(0));
        }
    }
    for node in list_items(get_key(&root, "tasks")) {
        read_task(file, &at, node, &mut reading);
    }
    Ok(reading)
}

fn read_task(
    file: &SourceFile,
    at: &SourceLocator<'_>,
    node: &DocumentNode<'_>,
    reading: &mut ImportReading,
) {
    let source = file.text.as_str();
    let read = |key: &str| scalar_text(get_key(node, key), source);
    let Some(id) = read("id") else { return };
    let place = at.location_at(node.span.start);
    reading.add_lost_keys(node, &TAKEN, "", &place);
    let description = read("description").unwrap_or_default();
    let title = read("title").or_else(|| description.lines().next().map(str::to_owned));
    let mut commands: Vec<String> = Vec::new();
    for key in ["verify", "run", "command"] {
        commands.extend(scalar_texts(get_key(node, key), source));
    }
    let mut writes = scalar_texts(get_key(node, "files"), source);
    writes.extend(find_paths(&description));
    let status = read("status").unwrap_or_default().to_lowercase();
    reading.entries.push(ImportEntry {
        id,
        title: title.unwrap_or_default(),
        description,
        acceptance: scalar_texts(first_key(node, &["acceptance", "acceptance_criteria"]), source),
        needs: scalar_texts(first_key(node, &["dependencies", "depends_on"]), source),
        writes,
        // Their agents are roles: code-author, test-author.
        role: read("agent"),
        effort: scalar_number(get_key(node, "estimated_hours"))
            .map_or(TaskEffort::Medium, effort_from_hours),
        priority: scalar_int(get_key(node, "priority")).map_or(0, |priority| priority - 5),
        state: match status.as_str() {
            "done" | "merged" | "completed" => SourceTaskState::Done,
            "working" | "pr_open" | "in_progress" => SourceTaskState::Doing,
            "error" | "blocked" => SourceTaskState::Blocked,
            "cancelled" => SourceTaskState::Dropped,
            _ => SourceTaskState::Open,
        },
        marks: status_mark(file, at, node).into_iter().collect(),
        commands,
        place,
        ..ImportEntry::default()
    });
}

fn status_mark(
    file: &SourceFile,
    at: &SourceLocator<'_>,
    node: &DocumentNode<'_>,
) -> Option<SourceStatusMark> {
    let states = [
        (SourceTaskState::Open, "open"),
        (SourceTaskState::Doing, "working"),
        (SourceTaskState::Blocked, "blocked"),
        (SourceTaskState::Done, "done"),
        (SourceTaskState::Dropped, "cancelled"),
    ];
    let source = file.text.as_str();
    let json = file.path.ends_with(".json");
    let with = |make: &dyn Fn(&str) -> String| {
        states.iter().map(|(state, word)| (*state, make(word))).collect()
    };
    let path = file.path.clone();
    if let Some(status) = get_key(node, "status") {
        let span = trimmed_span(source, &status.span);
        let quote = source.get(span.clone())?.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.map(String::from).unwrap_or_default();
        return Some(SourceStatusMark {
            file: path,
            span,
            words: with(&|word| format!("{quote}{word}{quote}")),
        });
    }
    let DocumentValue::Table(entries) = &node.value else { return None };
    let (key, id) = entries.iter().find(|(key, _)| &*key.text == "id")?;
    let end = trimmed_span(source, &id.span).end;
    let words = if json {
        with(&|word| format!(", \"status\": \"{word}\""))
    } else if source.get(node.span.start..)?.starts_with('{') {
        with(&|word| format!(", status: {word}"))
    } else {
        let column = at.lines.line_and_column(key.span.start).1 - 1;
        with(&|word| format!("\n{}status: {word}", " ".repeat(column)))
    };
    Some(SourceStatusMark { file: path, span: end..end, words })
}
