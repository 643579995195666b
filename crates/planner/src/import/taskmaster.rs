//! task-master `tasks.json`: tags of tasks, tasks with subtasks.
//!
//! A task with subtasks becomes a group: its subtasks are the work, and its own text their context.

use mainstem_core::plan::Effort;
use mainstem_core::plan::doc::{Format as Syntax, Node, Value, parse};

use super::{At, Entry, Mark, Reading, Refused, State, joined, only_file};
use crate::source::{File, Source};
use crate::tree::{any, get, int, keys, list, text, texts};
use crate::words::paths;

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

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let Some(file) = only_file(source, &["tasks.json"], &[".json"]) else { return Ok(reading) };
    let root =
        parse(&file.text, Syntax::Json).map_err(|faults| Refused::new(source, file, faults))?;
    let at = At::new(file);
    let Some((tag, holder)) = tag(&root, &mut reading, &at) else { return Ok(reading) };
    reading.title = tag;
    for task in list(get(holder, "tasks")) {
        Task { file, at: &at, reading: &mut reading, parent: None }.read(task);
    }
    Ok(reading)
}

/// The object with the tasks: the root, the tag `master`, or the first tag with tasks.
fn tag<'a, 's>(
    root: &'a Node<'s>,
    reading: &mut Reading,
    at: &At<'_>,
) -> Option<(String, &'a Node<'s>)> {
    if matches!(get(root, "tasks").map(|node| &node.value), Some(Value::List(_))) {
        return Some((String::new(), root));
    }
    let tags: Vec<&str> = keys(root)
        .into_iter()
        .filter(|key| get(root, key).is_some_and(|tag| !list(get(tag, "tasks")).is_empty()))
        .collect();
    let chosen = tags.iter().find(|tag| **tag == "master").or(tags.first())?;
    for other in tags.iter().filter(|tag| *tag != chosen) {
        let count = get(root, other).map_or(0, |tag| list(get(tag, "tasks")).len());
        reading.notice(&at.place(0), format!("the tag `{other}` ({count} tasks) is ignored"));
    }
    Some(((*chosen).to_owned(), get(root, chosen)?))
}

struct Task<'a> {
    file: &'a File,
    at: &'a At<'a>,
    reading: &'a mut Reading,
    parent: Option<String>,
}

impl Task<'_> {
    fn read(&mut self, node: &Node<'_>) {
        let source = self.file.text.as_str();
        let Some(own) = text(get(node, "id"), source) else { return };
        let place = self.at.place(node.span.start);
        let id = match &self.parent {
            Some(parent) if !own.contains('.') => format!("{parent}.{own}"),
            _ => own,
        };
        self.reading.lose_keys(node, &TAKEN, "", &place);
        let details = text(get(node, "details"), source);
        let limits = texts(get(node, "technicalConstraints"), source).join("\n");
        let mut writes: Vec<String> = list(get(node, "relevantFiles"))
            .iter()
            .filter_map(|file| text(get(file, "path").or(Some(file)), source))
            .collect();
        writes.extend(paths(details.as_deref().unwrap_or_default()));
        let mut acceptance = texts(get(node, "acceptanceCriteria"), source);
        acceptance
            .extend(text(get(node, "testStrategy"), source).filter(|text| !text.trim().is_empty()));
        let status = text(get(node, "status"), source);
        let (words, priority) = (texts(get(node, "dependencies"), source), get(node, "priority"));
        self.reading.entries.push(Entry {
            id: id.clone(),
            parent: self.parent.clone(),
            title: text(get(node, "title"), source).unwrap_or_default(),
            description: joined(&[
                ("", text(get(node, "description"), source)),
                ("Details", details),
                ("Constraints", Some(limits)),
            ]),
            acceptance,
            needs: words.into_iter().map(|name| self.reference(name)).collect(),
            writes,
            effort: effort(any(node, &["complexity", "effort"]), source),
            priority: match text(priority, source).as_deref() {
                Some("critical") => 20,
                Some("high") => 10,
                Some("low") => -10,
                _ => 0,
            },
            state: state(status.as_deref().unwrap_or_default()),
            marks: vec![self.mark(node)],
            place,
            ..Entry::default()
        });
        let subtasks = list(get(node, "subtasks"));
        let parent = Some(id);
        for subtask in subtasks {
            Task { parent: parent.clone(), file: self.file, at: self.at, reading: self.reading }
                .read(subtask);
        }
    }

    /// Inside a task, a plain number is a subtask beside it.
    fn reference(&self, name: String) -> String {
        match &self.parent {
            Some(parent) if !name.contains('.') => format!("{parent}.{name}"),
            _ => name,
        }
    }

    fn mark(&self, node: &Node<'_>) -> Mark {
        let words = |quote: fn(&str) -> String| {
            [
                (State::Open, "pending"),
                (State::Doing, "in-progress"),
                (State::Blocked, "blocked"),
                (State::Done, "done"),
                (State::Dropped, "cancelled"),
            ]
            .map(|(state, word)| (state, quote(word)))
            .to_vec()
        };
        let file = self.file.path.clone();
        match get(node, "status") {
            Some(status) => {
                Mark { file, span: status.span.clone(), words: words(|word| format!("\"{word}\"")) }
            }
            None => {
                let start = node.span.start + 1;
                Mark {
                    file,
                    span: start..start,
                    words: words(|word| format!("\"status\": \"{word}\", ")),
                }
            }
        }
    }
}

fn state(word: &str) -> State {
    match word {
        "in-progress" | "review" => State::Doing,
        "done" | "completed" => State::Done,
        "blocked" => State::Blocked,
        "deferred" => State::Held,
        "cancelled" => State::Dropped,
        _ => State::Open,
    }
}

fn effort(node: Option<&Node<'_>>, source: &str) -> Effort {
    match int(node) {
        Some(..=3) => Effort::Small,
        Some(8..) => Effort::Large,
        Some(_) => Effort::Medium,
        None => match text(node, source).unwrap_or_default().to_lowercase().as_str() {
            "low" | "small" | "simple" | "easy" => Effort::Small,
            "high" | "large" | "complex" | "hard" => Effort::Large,
            _ => Effort::Medium,
        },
    }
}
