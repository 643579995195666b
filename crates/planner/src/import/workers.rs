//! The batch spec of parallel workers: `tasks: [{id, description, agent, priority, …}]` in YAML.
//!
//! The format has no status of its own; a push puts `status` beside the id, and it is read back.

use mainstem_core::plan::Effort;
use mainstem_core::plan::doc::{Format as Syntax, Node, Value, parse};

use super::{At, Entry, Mark, Reading, Refused, State, effort_of_hours};
use crate::source::{File, Source};
use crate::tree::{any, get, int, list, number, text, texts, tight};
use crate::words::paths;

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
pub fn read_worker_spec(source: &Source) -> Result<WorkerSpec, Refused> {
    let mut spec = WorkerSpec::default();
    let Some((file, root)) = parse_spec(source)? else { return Ok(spec) };
    let tasks = list(get(&root, "tasks"));
    let word = |node: &Node<'_>, key: &str| text(get(node, key), &file.text);
    let ids: Vec<String> = tasks.iter().filter_map(|task| word(task, "id")).collect();
    for node in std::iter::once(&root).chain(tasks) {
        let branch =
            word(node, "base_branch").filter(|branch| !spec.base_branches.contains(branch));
        spec.base_branches.extend(branch);
        let Some(id) = word(node, "id") else { continue };
        for needed in texts(any(node, &["dependencies", "depends_on"]), &file.text) {
            if !ids.iter().any(|known| known.eq_ignore_ascii_case(needed.trim())) {
                spec.outside_dependencies.push((id.clone(), needed.trim().to_owned()));
            }
        }
    }
    Ok(spec)
}

fn parse_spec(source: &Source) -> Result<Option<(&File, Node<'_>)>, Refused> {
    let yaml = |path: &str| path.ends_with(".yaml") || path.ends_with(".yml");
    let file = source.files.iter().find(|file| {
        (yaml(&file.path) && file.text.contains("tasks:")) || file.path.ends_with(".json")
    });
    let Some(file) = file else { return Ok(None) };
    let syntax = if yaml(&file.path) { Syntax::Yaml } else { Syntax::Json };
    let root = parse(&file.text, syntax).map_err(|faults| Refused::new(source, file, faults))?;
    Ok(Some((file, root)))
}

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let Some((file, root)) = parse_spec(source)? else { return Ok(reading) };
    let at = At::new(file);
    reading.title = text(get(&root, "project"), &file.text).unwrap_or_default();
    for key in ["base_branch", "metadata"] {
        if get(&root, key).is_some() {
            reading.lose(&format!("{key} of the whole"), &at.place(0));
        }
    }
    for node in list(get(&root, "tasks")) {
        task(file, &at, node, &mut reading);
    }
    Ok(reading)
}

fn task(file: &File, at: &At<'_>, node: &Node<'_>, reading: &mut Reading) {
    let source = file.text.as_str();
    let read = |key: &str| text(get(node, key), source);
    let Some(id) = read("id") else { return };
    let place = at.place(node.span.start);
    reading.lose_keys(node, &TAKEN, "", &place);
    let description = read("description").unwrap_or_default();
    let title = read("title").or_else(|| description.lines().next().map(str::to_owned));
    let mut commands: Vec<String> = Vec::new();
    for key in ["verify", "run", "command"] {
        commands.extend(texts(get(node, key), source));
    }
    let mut writes = texts(get(node, "files"), source);
    writes.extend(paths(&description));
    let status = read("status").unwrap_or_default().to_lowercase();
    reading.entries.push(Entry {
        id,
        title: title.unwrap_or_default(),
        description,
        acceptance: texts(any(node, &["acceptance", "acceptance_criteria"]), source),
        needs: texts(any(node, &["dependencies", "depends_on"]), source),
        writes,
        // Their agents are roles: code-author, test-author.
        role: read("agent"),
        effort: number(get(node, "estimated_hours")).map_or(Effort::Medium, effort_of_hours),
        priority: int(get(node, "priority")).map_or(0, |priority| priority - 5),
        state: match status.as_str() {
            "done" | "merged" | "completed" => State::Done,
            "working" | "pr_open" | "in_progress" => State::Doing,
            "error" | "blocked" => State::Blocked,
            "cancelled" => State::Dropped,
            _ => State::Open,
        },
        marks: mark(file, at, node).into_iter().collect(),
        commands,
        place,
        ..Entry::default()
    });
}

fn mark(file: &File, at: &At<'_>, node: &Node<'_>) -> Option<Mark> {
    let states = [
        (State::Open, "open"),
        (State::Doing, "working"),
        (State::Blocked, "blocked"),
        (State::Done, "done"),
        (State::Dropped, "cancelled"),
    ];
    let source = file.text.as_str();
    let json = file.path.ends_with(".json");
    let with = |make: &dyn Fn(&str) -> String| {
        states.iter().map(|(state, word)| (*state, make(word))).collect()
    };
    let path = file.path.clone();
    if let Some(status) = get(node, "status") {
        let span = tight(source, &status.span);
        let quote = source.get(span.clone())?.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.map(String::from).unwrap_or_default();
        return Some(Mark {
            file: path,
            span,
            words: with(&|word| format!("{quote}{word}{quote}")),
        });
    }
    let Value::Table(entries) = &node.value else { return None };
    let (key, id) = entries.iter().find(|(key, _)| &*key.text == "id")?;
    let end = tight(source, &id.span).end;
    let words = if json {
        with(&|word| format!(", \"status\": \"{word}\""))
    } else if source.get(node.span.start..)?.starts_with('{') {
        with(&|word| format!(", status: {word}"))
    } else {
        let column = at.lines.place(key.span.start).1 - 1;
        with(&|word| format!("\n{}status: {word}", " ".repeat(column)))
    };
    Some(Mark { file: path, span: end..end, words })
}
