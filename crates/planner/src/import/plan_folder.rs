//! `.plan/<epic>/PLAN.md` with `tasks/NNN_name.md`, and a table of statuses in `tasks/README.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocation, SourceStatusMark, SourceTaskState,
    join_sections,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{bullet_items, bullet_text, find_markdown_section, markdown_sections};
use crate::text_forms::find_paths;

/// What stands in the table: the box and the word.
const STATES: [(SourceTaskState, &str); 4] = [
    (SourceTaskState::Open, "[ ] Pending"),
    (SourceTaskState::Doing, "[~] In Progress"),
    (SourceTaskState::Done, "[x] Complete"),
    (SourceTaskState::Blocked, "[!] Blocked"),
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

pub(super) fn read_plan_folder(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let mut epics: BTreeMap<String, Vec<(&SourceFile, String)>> = BTreeMap::new();
    for file in &source.files {
        if let Some((epic, number)) = parse_task_path(source, &file.path) {
            epics.entry(epic).or_default().push((file, number));
        }
    }
    for (epic, tasks) in &epics {
        let folder = tasks[0].0.path.rsplit_once("tasks/").map_or("", |(folder, _)| folder);
        let plan = source.file(&format!("{folder}PLAN.md"));
        let status = source.file(&format!("{folder}tasks/README.md"));
        let title = plan.and_then(|plan| first_heading(&plan.text)).unwrap_or_else(|| epic.clone());
        reading.entries.push(ImportEntry {
            id: epic.clone(),
            group: true,
            title: title.trim_start_matches("Epic:").trim().to_owned(),
            place: SourceLocation { file: tasks[0].0.path.clone(), line: 1 },
            ..ImportEntry::default()
        });
        let known: BTreeSet<&str> = tasks.iter().map(|(_, number)| number.as_str()).collect();
        for (file, number) in tasks {
            let tables = PlanFolderTables { plan, status, known: &known };
            let entry = read_task(epic, file, number, &tables);
            reading.entries.push(entry);
        }
    }
    Ok(reading)
}

/// The epic and the number of `x/tasks/001_name.md`.
fn parse_task_path(source: &ImportSource, path: &str) -> Option<(String, String)> {
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

fn first_heading(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("# "))?;
    Some(line[2..].trim().to_owned())
}

struct PlanFolderTables<'a> {
    plan: Option<&'a SourceFile>,
    status: Option<&'a SourceFile>,
    /// Numbers of the epic's tasks.
    known: &'a BTreeSet<&'a str>,
}

fn read_task(
    epic: &str,
    file: &SourceFile,
    number: &str,
    tables: &PlanFolderTables<'_>,
) -> ImportEntry {
    let text = file.text.as_str();
    let title = first_heading(text).unwrap_or_default();
    let title = match title.split_once(':') {
        Some((head, rest)) if head.starts_with("Task") => rest.trim().to_owned(),
        _ => title,
    };
    let own = find_markdown_section(text, &["dependencies"])
        .map(|part| task_numbers(part, true, tables.known));
    let needs = own
        .or_else(|| Some(task_numbers(&find_row(tables.plan?, number)?.last, false, tables.known)))
        .unwrap_or_default();
    let found = tables.status.and_then(|file| find_row(file, number).map(|row| (file, row)));
    let mut acceptance = find_markdown_section(text, &["success criteria", "acceptance criteria"])
        .map(bullet_items)
        .unwrap_or_default();
    acceptance.extend(
        find_markdown_section(text, &["verification checklist"])
            .map(bullet_items)
            .unwrap_or_default(),
    );
    let files = find_markdown_section(text, &["files to modify", "files"])
        .map(find_paths)
        .unwrap_or_default();
    let mut needs: Vec<String> =
        needs.into_iter().map(|number| format!("{epic}-{number}")).collect();
    let id = format!("{epic}-{number}");
    needs.retain(|name| *name != id);
    ImportEntry {
        parent: Some(epic.to_owned()),
        title,
        description: task_description(text),
        acceptance,
        needs,
        writes: files,
        state: found.as_ref().map_or(SourceTaskState::Open, |(_, row)| row.state),
        marks: found.into_iter().filter_map(|(file, row)| row.status_mark(file)).collect(),
        place: SourceLocation { file: file.path.clone(), line: 1 },
        id,
        ..ImportEntry::default()
    }
}

/// The whole text of a task file, less what has a place of its own in a plan.
fn task_description(text: &str) -> String {
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
    for part in markdown_sections(text, 2).into_iter().filter(|part| !own_place(part.title)) {
        let title = part.title.trim_end_matches(':');
        let head = if title.eq_ignore_ascii_case("description") { "" } else { title };
        sections.push((head.to_owned(), Some(part.body.to_owned())));
    }
    let sections: Vec<(&str, Option<String>)> =
        sections.iter().map(|(head, body)| (head.as_str(), body.clone())).collect();
    join_sections(&sections)
}

/// Numbers of the epic's tasks in a text; in a list only the one at the start of each entry.
fn task_numbers(text: &str, listed: bool, known: &BTreeSet<&str>) -> Vec<String> {
    let digits = |word: &str| word.bytes().take_while(u8::is_ascii_digit).count();
    let of_word = |word: &str| {
        let number = &word[..digits(word)];
        known.contains(number).then(|| number.to_owned())
    };
    if listed {
        let lines = text.lines().filter_map(|line| bullet_text(line.trim()));
        return lines
            .filter_map(|line| of_word(line.trim_start_matches(['`', '*', '['])))
            .collect();
    }
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(of_word).collect()
}

/// A row of a table that starts with the task's number.
struct PlanFolderRow {
    state: SourceTaskState,
    /// The cell with a box.
    span: Option<std::ops::Range<usize>>,
    last: String,
}

fn find_row(file: &SourceFile, number: &str) -> Option<PlanFolderRow> {
    let mut offset = 0;
    for line in file.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let Some(body) = line.trim_start().strip_prefix('|') else { continue };
        if body.split('|').next().map(str::trim) != Some(number) {
            continue;
        }
        let mut found =
            PlanFolderRow { state: SourceTaskState::Open, span: None, last: String::new() };
        let mut at = start + (line.len() - body.len());
        for cell in body.split('|') {
            let text = cell.trim();
            let state = match text.get(..3) {
                Some("[ ]") => Some(SourceTaskState::Open),
                Some("[x]" | "[X]") => Some(SourceTaskState::Done),
                Some("[~]") => Some(SourceTaskState::Doing),
                Some("[!]") => Some(SourceTaskState::Blocked),
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

impl PlanFolderRow {
    fn status_mark(self, file: &SourceFile) -> Option<SourceStatusMark> {
        let words = STATES.map(|(state, word)| (state, word.to_owned())).to_vec();
        Some(SourceStatusMark { file: file.path.clone(), span: self.span?, words })
    }
}
