//! A folder of `T-001-name.md` files with `task-state.conf` and `phases.conf`.
//!
//! The conf files are lines of fields between bars. A task without a line there has not started; a
//! push adds its line at the end.

use std::collections::BTreeMap;

use mainstem_core::plan::TaskEffort;

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocation, SourceLocator, SourceStatusMark,
    SourceTaskState,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{bullet_items, find_markdown_section};
use crate::text_forms::find_paths;

/// Longer task files are no task files.
const FILE_MAX: usize = 1 << 20;

const STATES: [(SourceTaskState, &str); 5] = [
    (SourceTaskState::Open, "not_started"),
    (SourceTaskState::Doing, "in_progress"),
    (SourceTaskState::Done, "completed"),
    (SourceTaskState::Blocked, "blocked"),
    (SourceTaskState::Dropped, "skipped"),
];

pub(super) fn read_raven(source: &ImportSource) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let phases = read_phases(source, &mut reading);
    let states = read_states(source, &mut reading);
    for file in source.files.iter().filter(|file| file.path.ends_with(".md")) {
        if file.text.len() > FILE_MAX {
            let place = SourceLocation { file: file.path.clone(), line: 1 };
            reading.add_notice(&place, "larger than 1 MiB; the file is ignored");
            continue;
        }
        let Some((id, title)) = parse_title_line(file) else { continue };
        let entry = read_task(source, file, id, title, &phases, &states);
        reading.entries.push(entry);
    }
    for (id, (_, place)) in &states {
        if !reading.entries.iter().any(|entry| entry.id == *id) {
            reading.notices.push(super::ImportNotice {
                place: place.clone(),
                message: format!("{id} has a state but no file"),
            });
        }
    }
    Ok(reading)
}

fn parse_title_line(file: &SourceFile) -> Option<(String, String)> {
    let line =
        file.text.trim_start_matches('\u{feff}').lines().find(|line| line.starts_with("# "))?;
    let (id, title) = line[2..].split_once(':')?;
    let digits = id.trim().strip_prefix("T-")?;
    let good = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    good.then(|| (id.trim().to_owned(), title.trim().to_owned()))
}

fn task_number(id: &str) -> Option<u64> {
    id.trim_start_matches("T-").parse().ok()
}

/// Groups by range of numbers.
fn read_phases(source: &ImportSource, reading: &mut ImportReading) -> Vec<(u64, u64, String)> {
    let mut found: Vec<(u64, u64, String)> = Vec::new();
    let Some(file) = find_conf_file(source, "phases.conf") else { return found };
    for (n, line) in file.text.lines().enumerate() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let place = SourceLocation { file: file.path.clone(), line: n + 1 };
        let (name, start, end) = match fields.as_slice() {
            _ if line.trim().is_empty() || line.trim_start().starts_with('#') => continue,
            [_, name, start, end] | [_, _, name, start, end, ..] => (*name, *start, *end),
            _ => {
                reading.add_notice(&place, "neither four nor six fields; the line is ignored");
                continue;
            }
        };
        let (Some(start), Some(end)) = (task_number(start), task_number(end)) else {
            reading.add_notice(&place, "the range is not two task ids; the line is ignored");
            continue;
        };
        if found.iter().any(|(a, b, _)| start <= *b && *a <= end) {
            reading.add_notice(&place, "the range overlaps another phase; the first phase is used");
        }
        let id = format!("phase-{}", fields[0]);
        reading.entries.push(ImportEntry {
            id: id.clone(),
            group: true,
            title: name.to_owned(),
            place,
            ..ImportEntry::default()
        });
        found.push((start, end, id));
    }
    found
}

fn find_conf_file<'s>(source: &'s ImportSource, name: &str) -> Option<&'s SourceFile> {
    source.files.iter().find(|file| file.path.rsplit('/').next() == Some(name))
}

type RavenStates = BTreeMap<String, ((SourceTaskState, SourceStatusMark), SourceLocation)>;

fn read_states(source: &ImportSource, reading: &mut ImportReading) -> RavenStates {
    let mut found = RavenStates::new();
    let Some(file) = find_conf_file(source, "task-state.conf") else { return found };
    let at = SourceLocator::new(file);
    let mut offset = 0;
    for line in file.text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let body = line.trim_end_matches(['\n', '\r']);
        if body.trim().is_empty() || body.trim_start().starts_with('#') {
            continue;
        }
        let place = at.location_at(start);
        let id = body.split('|').next().unwrap_or_default();
        let field = id.len() + 1;
        let status = body.get(field..).unwrap_or_default().split('|').next().unwrap_or_default();
        let state = STATES.iter().find(|(_, word)| *word == status.trim()).map(|(state, _)| *state);
        if state.is_none() && !status.trim().is_empty() {
            reading.add_notice(
                &place,
                format!("unknown state `{}`; the task counts as not started", status.trim()),
            );
        }
        // A line that ends after the id gets its bar with the state.
        let (span, head) = match body.get(field..) {
            Some(_) => (start + field..start + field + status.len(), String::new()),
            None => (start..start + body.len(), format!("{body}|")),
        };
        let words = STATES.map(|(state, word)| (state, format!("{head}{word}"))).to_vec();
        let mark = SourceStatusMark { file: file.path.clone(), span, words };
        found.insert(id.trim().to_owned(), ((state.unwrap_or_default(), mark), place));
    }
    found
}

fn read_task(
    source: &ImportSource,
    file: &SourceFile,
    id: String,
    title: String,
    phases: &[(u64, u64, String)],
    states: &RavenStates,
) -> ImportEntry {
    let rows = parse_table(&file.text);
    let row = |name: &str| rows.get(name).map(String::as_str).unwrap_or_default();
    let mut needs = parse_ids(row("dependencies"));
    needs.extend(parse_ids(row("blocked by")));
    needs.dedup();
    let effort = row("estimated effort").to_lowercase();
    let priority = row("priority").to_lowercase();
    let goal = find_markdown_section(&file.text, &["goal", "description"]).unwrap_or_default();
    let (state, mark) = match states.get(&id) {
        Some((found, _)) => found.clone(),
        None => (SourceTaskState::Open, new_state_line(source, &id)),
    };
    let at = task_number(&id).unwrap_or(0);
    let group = phases.iter().find(|(start, end, _)| (*start..=*end).contains(&at));
    let criteria = find_markdown_section(&file.text, &["acceptance criteria"])
        .map(bullet_items)
        .unwrap_or_default();
    ImportEntry {
        parent: group.map(|(_, _, id)| id.clone()),
        title,
        description: task_body(&file.text, goal),
        acceptance: criteria.into_iter().filter(|text| text != "TBD").collect(),
        needs,
        writes: find_paths(goal),
        effort: if effort.contains("small") {
            TaskEffort::Small
        } else if effort.contains("large") {
            TaskEffort::Large
        } else {
            TaskEffort::Medium
        },
        priority: if priority.starts_with("must") || priority.contains("high") {
            10
        } else if priority.starts_with("nice") || priority.contains("low") {
            -10
        } else {
            0
        },
        state,
        marks: vec![mark],
        place: SourceLocation { file: file.path.clone(), line: 1 },
        id,
        ..ImportEntry::default()
    }
}

/// The goal first, then every other section but those that are fields of ours.
fn task_body(text: &str, goal: &str) -> String {
    let mut out = goal.trim().to_owned();
    for part in crate::lenient_tree::markdown_sections(text, 2) {
        let title = part.title.to_lowercase();
        let taken = ["metadata", "goal", "description", "acceptance criteria"];
        if !taken.contains(&title.as_str()) && !part.body.is_empty() {
            out.push_str(&format!("\n\n## {}\n{}", part.title, part.body));
        }
    }
    out
}

/// The rows `| Name | value |` by name.
fn parse_table(text: &str) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.trim_start().starts_with('|')) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if let [name, value, ..] = cells.as_slice() {
            let name = name.trim_matches('*').to_lowercase();
            rows.entry(name).or_insert_with(|| (*value).to_owned());
        }
    }
    rows
}

fn parse_ids(text: &str) -> Vec<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let good = |word: &&str| {
        word.strip_prefix("T-")
            .is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
    };
    text.split(word).filter(good).map(str::to_owned).collect()
}

/// Where the line of a task goes that has none.
fn new_state_line(source: &ImportSource, id: &str) -> SourceStatusMark {
    let file = find_conf_file(source, "task-state.conf");
    let path = file.map_or("task-state.conf", |file| file.path.as_str()).to_owned();
    let text = file.map_or("", |file| file.text.as_str());
    let end = text.len();
    // Several lines may be added here; each brings the break that the one before it lacks.
    let open = !text.is_empty() && !text.ends_with('\n');
    let words = STATES
        .map(|(state, word)| {
            let line = format!("{id}|{word}|||");
            (state, if open { format!("\n{line}") } else { format!("{line}\n") })
        })
        .to_vec();
    SourceStatusMark { file: path, span: end..end, words }
}
