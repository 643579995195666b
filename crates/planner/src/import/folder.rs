//! `.plan/<epic>/PLAN.md` with `tasks/NNN_name.md`, and a table of statuses in `tasks/README.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Mark, Place, Reading, Refused, State, joined};
use crate::source::{File, Source};
use crate::tree::{bullet, bullets, part, parts};
use crate::words::paths;

/// What stands in the table: the box and the word.
const STATES: [(State, &str); 4] = [
    (State::Open, "[ ] Pending"),
    (State::Doing, "[~] In Progress"),
    (State::Done, "[x] Complete"),
    (State::Blocked, "[!] Blocked"),
];

/// Sections that become needs, criteria and files of a task.
const OWN_PLACE: [&str; 6] = [
    "dependencies",
    "success criteria",
    "acceptance criteria",
    "verification checklist",
    "files to modify",
    "files",
];

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let mut epics: BTreeMap<String, Vec<(&File, String)>> = BTreeMap::new();
    for file in &source.files {
        if let Some((epic, number)) = task_path(source, &file.path) {
            epics.entry(epic).or_default().push((file, number));
        }
    }
    for (epic, tasks) in &epics {
        let folder = tasks[0].0.path.rsplit_once("tasks/").map_or("", |(folder, _)| folder);
        let plan = source.file(&format!("{folder}PLAN.md"));
        let status = source.file(&format!("{folder}tasks/README.md"));
        let title = plan.and_then(|plan| heading(&plan.text)).unwrap_or_else(|| epic.clone());
        reading.entries.push(Entry {
            id: epic.clone(),
            group: true,
            title: title.trim_start_matches("Epic:").trim().to_owned(),
            place: Place { file: tasks[0].0.path.clone(), line: 1 },
            ..Entry::default()
        });
        let known: BTreeSet<&str> = tasks.iter().map(|(_, number)| number.as_str()).collect();
        for (file, number) in tasks {
            let tables = Tables { plan, status, known: &known };
            let entry = task(epic, file, number, &tables);
            reading.entries.push(entry);
        }
    }
    Ok(reading)
}

/// The epic and the number of `x/tasks/001_name.md`.
fn task_path(source: &Source, path: &str) -> Option<(String, String)> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    let good = digits > 0 && name[digits..].starts_with('_') && name.ends_with(".md");
    if !good || name[..digits].bytes().all(|b| b == b'0') {
        return None;
    }
    let root = source.root.trim_end_matches('/');
    let full = format!("{root}/{folder}");
    let mut parts = full.trim_end_matches('/').rsplit('/');
    let epic = if parts.next() == Some("tasks") { parts.next()? } else { return None };
    (!epic.starts_with('_') && !epic.is_empty())
        .then(|| (epic.to_owned(), name[..digits].to_owned()))
}

fn heading(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("# "))?;
    Some(line[2..].trim().to_owned())
}

struct Tables<'a> {
    plan: Option<&'a File>,
    status: Option<&'a File>,
    /// Numbers of the epic's tasks.
    known: &'a BTreeSet<&'a str>,
}

fn task(epic: &str, file: &File, number: &str, tables: &Tables<'_>) -> Entry {
    let text = file.text.as_str();
    let title = heading(text).unwrap_or_default();
    let title = match title.split_once(':') {
        Some((head, rest)) if head.starts_with("Task") => rest.trim().to_owned(),
        _ => title,
    };
    let own = part(text, &["dependencies"]).map(|part| numbers(part, true, tables.known));
    let needs = own
        .or_else(|| Some(numbers(&row(tables.plan?, number)?.last, false, tables.known)))
        .unwrap_or_default();
    let found = tables.status.and_then(|file| row(file, number).map(|row| (file, row)));
    let mut acceptance =
        part(text, &["success criteria", "acceptance criteria"]).map(bullets).unwrap_or_default();
    acceptance.extend(part(text, &["verification checklist"]).map(bullets).unwrap_or_default());
    let files = part(text, &["files to modify", "files"]).map(paths).unwrap_or_default();
    let mut needs: Vec<String> =
        needs.into_iter().map(|number| format!("{epic}-{number}")).collect();
    let id = format!("{epic}-{number}");
    needs.retain(|name| *name != id);
    Entry {
        parent: Some(epic.to_owned()),
        title,
        description: description(text),
        acceptance,
        needs,
        writes: files,
        state: found.as_ref().map_or(State::Open, |(_, row)| row.state),
        marks: found.into_iter().filter_map(|(file, row)| row.mark(file)).collect(),
        place: Place { file: file.path.clone(), line: 1 },
        id,
        ..Entry::default()
    }
}

/// The whole text of a task file, less what has a place of its own in a plan.
fn description(text: &str) -> String {
    let own_place = |title: &str| {
        let plain = title.trim_end_matches(':').to_lowercase();
        OWN_PLACE.iter().any(|known| plain == *known || plain.starts_with(&format!("{known} (")))
    };
    let body = text.lines().skip_while(|line| line.trim().is_empty());
    let mut body = body.peekable();
    if body.peek().is_some_and(|line| line.starts_with("# ")) {
        body.next();
    }
    let intro: Vec<&str> = body.take_while(|line| !line.starts_with("## ")).collect();
    let mut sections = vec![(String::new(), Some(intro.join("\n")))];
    for part in parts(text, 2).into_iter().filter(|part| !own_place(part.title)) {
        let title = part.title.trim_end_matches(':');
        let head = if title.eq_ignore_ascii_case("description") { "" } else { title };
        sections.push((head.to_owned(), Some(part.body.to_owned())));
    }
    let sections: Vec<(&str, Option<String>)> =
        sections.iter().map(|(head, body)| (head.as_str(), body.clone())).collect();
    joined(&sections)
}

/// Numbers of the epic's tasks in a text; in a list only the one at the start of each entry.
fn numbers(text: &str, listed: bool, known: &BTreeSet<&str>) -> Vec<String> {
    let digits = |word: &str| word.bytes().take_while(u8::is_ascii_digit).count();
    let of_word = |word: &str| {
        let number = &word[..digits(word)];
        known.contains(number).then(|| number.to_owned())
    };
    if listed {
        let lines = text.lines().filter_map(|line| bullet(line.trim()));
        return lines
            .filter_map(|line| of_word(line.trim_start_matches(['`', '*', '['])))
            .collect();
    }
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(of_word).collect()
}

/// A row of a table that starts with the task's number.
struct TableRow {
    state: State,
    /// The cell with a box.
    span: Option<std::ops::Range<usize>>,
    last: String,
}

fn row(file: &File, number: &str) -> Option<TableRow> {
    let mut offset = 0;
    for line in file.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let Some(body) = line.trim_start().strip_prefix('|') else { continue };
        if body.split('|').next().map(str::trim) != Some(number) {
            continue;
        }
        let mut found = TableRow { state: State::Open, span: None, last: String::new() };
        let mut at = start + (line.len() - body.len());
        for cell in body.split('|') {
            let text = cell.trim();
            let state = match text.get(..3) {
                Some("[ ]") => Some(State::Open),
                Some("[x]" | "[X]") => Some(State::Done),
                Some("[~]") => Some(State::Doing),
                Some("[!]") => Some(State::Blocked),
                _ => None,
            };
            if let Some(state) = state {
                found.state = state;
                let from = at + (cell.len() - cell.trim_start().len());
                found.span = Some(from..from + text.len());
            }
            if !text.is_empty() {
                text.clone_into(&mut found.last);
            }
            at += cell.len() + 1;
        }
        return Some(found);
    }
    None
}

impl TableRow {
    fn mark(self, file: &File) -> Option<Mark> {
        let words = STATES.map(|(state, word)| (state, word.to_owned())).to_vec();
        Some(Mark { file: file.path.clone(), span: self.span?, words })
    }
}
