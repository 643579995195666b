//! Markdown checklists: spec-kit, OpenSpec, Kiro, and plain `- [ ]`.
//!
//! One reader of lines; the dialects differ in ids, flags, groups and where criteria stand. The box
//! keeps its place in the file, so that ticking it changes one character.

use std::collections::BTreeMap;

use super::{
    ImportEntry, ImportReading, PlanImportError, SourceLocation, SourceLocator, SourceStatusMark,
    SourceTaskState, ToolFormat,
};
use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree::{bullet_text, indent_columns, markdown_sections};
use crate::text_forms::{find_paths, plain_words, slugify};

/// One line with a box.
struct ChecklistItem<'t> {
    indent: usize,
    /// Byte offset of the character in the box.
    at: usize,
    state: SourceTaskState,
    optional: bool,
    text: &'t str,
    phase: Option<usize>,
    /// Lines below it that belong to it.
    notes: Vec<(usize, &'t str)>,
}

struct ChecklistHeading<'t> {
    level: usize,
    text: &'t str,
    offset: usize,
}

pub(super) fn read_checklists(
    source: &ImportSource,
    format: ToolFormat,
) -> Result<ImportReading, PlanImportError> {
    let mut reading = ImportReading::default();
    let mut files: Vec<&SourceFile> =
        source.files.iter().filter(|file| is_checklist_file(file, format)).collect();
    if files.is_empty() && source.files.len() == 1 {
        files = source.files.iter().collect();
    }
    let several = files.len() > 1;
    for file in files {
        let prefix = if several { format!("{}.", feature_name(&file.path)) } else { String::new() };
        read_file(source, file, format, &prefix, &mut reading);
    }
    Ok(reading)
}

fn is_checklist_file(file: &SourceFile, format: ToolFormat) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    match format {
        ToolFormat::Checklist => name.ends_with(".md") || name.ends_with(".markdown"),
        ToolFormat::OpenSpec => name == "tasks.md" && !file.path.contains("archive/"),
        _ => name == "tasks.md",
    }
}

/// The folder that names a feature, or the file's own name.
fn feature_name(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default().trim_end_matches(".md");
    let folder = parts.pop().unwrap_or_default();
    let feature = if folder.is_empty() || name != "tasks" { name } else { folder };
    slugify(feature)
}

fn read_file(
    source: &ImportSource,
    file: &SourceFile,
    format: ToolFormat,
    prefix: &str,
    reading: &mut ImportReading,
) {
    let (items, headings) = scan_lines(&file.text, format);
    let at = SourceLocator::new(file);
    if let Some(title) = headings.iter().find(|heading| heading.level == 1)
        && reading.title.is_empty()
    {
        reading.title = title.text.trim_start_matches("Tasks:").trim().to_owned();
    }
    let mut builder = ChecklistBuilder {
        file,
        at,
        format,
        prefix,
        criteria: read_requirements(source, file, format),
        seen: BTreeMap::new(),
        first: reading.entries.len(),
        reading,
        phases: Vec::new(),
    };
    builder.add_groups(&items, &headings);
    builder.add_items(&items);
}

/// Lines with boxes and headings; fenced code is neither.
fn scan_lines(
    text: &str,
    format: ToolFormat,
) -> (Vec<ChecklistItem<'_>>, Vec<ChecklistHeading<'_>>) {
    let (mut items, mut headings): (Vec<ChecklistItem<'_>>, Vec<ChecklistHeading<'_>>) =
        (Vec::new(), Vec::new());
    let mut fence: Option<&str> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let trimmed = line.trim();
        let tick = ["```", "~~~"].into_iter().find(|tick| trimmed.starts_with(tick));
        if tick.is_some() && (fence.is_none() || fence == tick) {
            fence = if fence.is_some() { None } else { tick };
        } else if fence.is_none() {
            let level = trimmed.bytes().take_while(|b| *b == b'#').count();
            if (1..=6).contains(&level)
                && trimmed[level..].starts_with(' ')
                && indent_columns(line) < 4
            {
                headings.push(ChecklistHeading {
                    level,
                    text: trimmed[level..].trim(),
                    offset: start,
                });
                continue;
            }
            if let Some(mut item) = parse_item(line, start, format) {
                item.phase = headings.len().checked_sub(1);
                items.push(item);
                continue;
            }
        }
        let belongs = items.last().is_some_and(|item| {
            trimmed.is_empty() || indent_columns(line) > item.indent || fence.is_some()
        });
        let same = items.last().is_some_and(|item| item.phase == headings.len().checked_sub(1));
        if let Some(item) = items.last_mut().filter(|_| belongs && same) {
            item.notes.push((start, line.trim_end()));
        }
    }
    (items, headings)
}

fn parse_item<'t>(line: &'t str, start: usize, format: ToolFormat) -> Option<ChecklistItem<'t>> {
    let body = line.trim_start();
    let rest = bullet_text(body)?.trim_start().strip_prefix('[')?;
    let mark = rest.chars().next()?;
    let after = rest[mark.len_utf8()..].strip_prefix(']')?;
    let state = match mark {
        ' ' => SourceTaskState::Open,
        'x' | 'X' => SourceTaskState::Done,
        '-' | '~' | '/' => SourceTaskState::Doing,
        '!' => SourceTaskState::Blocked,
        _ => return None,
    };
    let optional = format == ToolFormat::Kiro && after.starts_with('*');
    let text = after.strip_prefix('*').filter(|_| optional).unwrap_or(after);
    if !text.starts_with([' ', '\t']) {
        return None;
    }
    let at = start + (line.len() - rest.len());
    let text = text.trim();
    let notes = Vec::new();
    Some(ChecklistItem {
        indent: indent_columns(line),
        at,
        state,
        optional,
        text,
        phase: None,
        notes,
    })
}

struct ChecklistBuilder<'a> {
    file: &'a SourceFile,
    at: SourceLocator<'a>,
    format: ToolFormat,
    prefix: &'a str,
    /// Criteria by number, from the file beside.
    criteria: BTreeMap<String, String>,
    seen: BTreeMap<String, usize>,
    /// The first entry of this file.
    first: usize,
    reading: &'a mut ImportReading,
    /// Group ids by heading.
    phases: Vec<Option<String>>,
}

impl ChecklistBuilder<'_> {
    /// Headings that have items become groups, in order.
    fn add_groups(&mut self, items: &[ChecklistItem<'_>], headings: &[ChecklistHeading<'_>]) {
        let used: Vec<usize> = items.iter().filter_map(|item| item.phase).collect();
        let wanted = match self.format {
            ToolFormat::Kiro => false,
            ToolFormat::Checklist => {
                let mut heads = used.clone();
                heads.dedup();
                heads.len() > 1
            }
            _ => true,
        };
        self.phases = vec![None; headings.len()];
        if !wanted {
            return;
        }
        let mut before: Vec<(String, ChecklistPhaseKind)> = Vec::new();
        for (i, heading) in headings.iter().enumerate() {
            if !used.contains(&i) {
                continue;
            }
            let number = heading.text.split(['.', ':', ' ']).next().unwrap_or_default();
            let number = if number.eq_ignore_ascii_case("phase") {
                let digits = heading.text[5..].trim_start();
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                format!("phase-{}", &digits[..end])
            } else if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
                format!("group-{number}")
            } else {
                slugify(heading.text)
            };
            let id = self.own_name(&format!("{}#{number}", self.prefix));
            let kind = ChecklistPhaseKind::from_heading(heading.text, self.format);
            let order = phase_barrier(&before, kind);
            before.push((id.clone(), kind));
            self.reading.entries.push(ImportEntry {
                id: id.clone(),
                group: true,
                title: heading.text.to_owned(),
                order,
                place: self.at.location_at(heading.offset),
                ..ImportEntry::default()
            });
            self.phases[i] = Some(id);
        }
    }

    /// A name that this file has not used yet.
    fn own_name(&mut self, name: &str) -> String {
        let count = self.seen.entry(name.to_lowercase()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name}-{count}") }
    }

    fn add_items(&mut self, items: &[ChecklistItem<'_>]) {
        let mut stack: Vec<(usize, String)> = Vec::new();
        // What a task that is not marked [P] follows, by group.
        let mut line: BTreeMap<Option<String>, Vec<(String, bool)>> = BTreeMap::new();
        for (i, item) in items.iter().enumerate() {
            while stack.last().is_some_and(|(indent, _)| *indent >= item.indent) {
                stack.pop();
            }
            if stack.len() >= 2 {
                self.add_detail(item, &stack[1].1.clone());
                continue;
            }
            let parent = stack.last().map(|(_, id)| id.clone());
            let group = parent.or_else(|| item.phase.and_then(|at| self.phases[at].clone()));
            let has_children = items.get(i + 1).is_some_and(|next| next.indent > item.indent);
            let mut entry = self.build_entry(item);
            entry.parent.clone_from(&group);
            let before = line.entry(group).or_default();
            let parallel = item.text.contains("[P]") && self.format == ToolFormat::SpecKit;
            if parallel {
                before.push((entry.id.clone(), true));
            } else {
                let sequential = before.iter().rposition(|(_, parallel)| !parallel).unwrap_or(0);
                entry.order.extend(before.drain(..).skip(sequential).map(|(id, _)| id));
                before.push((entry.id.clone(), false));
            }
            stack.push((item.indent, entry.id.clone()));
            entry.group = has_children && stack.len() == 1;
            self.reading.entries.push(entry);
        }
    }

    /// Boxes below the second level are steps of their task.
    fn add_detail(&mut self, item: &ChecklistItem<'_>, of: &str) {
        let id = of.to_owned();
        let first = self.first;
        if let Some(entry) = self.reading.entries[first..].iter_mut().find(|entry| entry.id == id) {
            entry.group = false;
            let tick = if item.state == SourceTaskState::Done { "x" } else { " " };
            if !entry.description.is_empty() {
                entry.description.push('\n');
            }
            entry.description.push_str(&format!("- [{tick}] {}", item.text));
        }
    }

    fn build_entry(&mut self, item: &ChecklistItem<'_>) -> ImportEntry {
        let (number, rest) = split_id(item.text, self.format);
        let text = rest.replace("[P] ", "");
        let (story, text) = match text.strip_prefix("[US").and_then(|rest| rest.split_once(']')) {
            Some((story, rest)) if self.format == ToolFormat::SpecKit => {
                (Some(format!("US{story}")), rest.trim().to_owned())
            }
            _ => (None, text),
        };
        let number = number.map_or_else(|| slugify(&text), str::to_owned);
        let number = if number.is_empty() { "task".to_owned() } else { number };
        let id = self.own_name(&format!("{}{number}", self.prefix));
        let place = self.at.location_at(item.at);
        let mut entry = ImportEntry {
            id,
            title: strip_dependencies(&text),
            needs: parse_dependencies(&text, self.prefix),
            writes: find_paths(&text),
            state: item.state,
            optional: item.optional,
            marks: vec![self.status_mark(item)],
            place: place.clone(),
            ..ImportEntry::default()
        };
        if let Some(story) = story {
            entry.description = format!("User story: {story}");
        }
        self.read_item_notes(&mut entry, item, &place);
        entry
    }

    fn status_mark(&self, item: &ChecklistItem<'_>) -> SourceStatusMark {
        let len = self.file.text[item.at..].chars().next().map_or(1, char::len_utf8);
        let mut words =
            vec![(SourceTaskState::Done, "x".to_owned()), (SourceTaskState::Open, " ".to_owned())];
        // The others' own readers know only done and open.
        if self.format == ToolFormat::Kiro {
            words.push((SourceTaskState::Doing, "-".to_owned()));
        }
        SourceStatusMark { file: self.file.path.clone(), span: item.at..item.at + len, words }
    }

    fn read_item_notes(
        &mut self,
        entry: &mut ImportEntry,
        item: &ChecklistItem<'_>,
        place: &SourceLocation,
    ) {
        let mut details: Vec<&str> = Vec::new();
        for (_, line) in &item.notes {
            let text = line.trim();
            let point = bullet_text(text).unwrap_or(text).trim();
            let inner = point.trim_matches('_');
            let wanted = ["Requirements:", "Validates: Requirements", "Validates:"];
            let refs = wanted.iter().find_map(|head| inner.strip_prefix(head));
            if let Some(refs) = refs.filter(|_| self.format == ToolFormat::Kiro) {
                for number in refs.split(',').map(str::trim).filter(|number| !number.is_empty()) {
                    entry.acceptance.push(match self.criteria.get(number) {
                        Some(text) => format!("{number}: {text}"),
                        None => format!("requirement {number}"),
                    });
                }
            } else if self.format == ToolFormat::Checklist && bullet_text(text).is_some() {
                entry.acceptance.push(point.to_owned());
            } else if !text.is_empty() || !details.is_empty() {
                details.push(line);
            }
        }
        let margin =
            details.iter().filter(|line| !line.trim().is_empty()).map(|l| indent_columns(l)).min();
        let cut = |line: &&str| {
            let margin = margin.unwrap_or(0).min(line.len() - line.trim_start().len());
            line.get(margin..).unwrap_or(line.trim_start()).to_owned()
        };
        let text = details.iter().map(cut).collect::<Vec<_>>().join("\n");
        let text = text.trim();
        entry.writes.extend(find_paths(text));
        entry.needs.extend(parse_dependencies(text, self.prefix));
        if !text.is_empty() {
            if !entry.description.is_empty() {
                entry.description.push('\n');
            }
            entry.description.push_str(text);
        }
        if entry.optional {
            self.reading.add_notice(place, "optional there: its failure blocks nothing here");
        }
    }
}

/// The kinds of phases of spec-kit; elsewhere all are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChecklistPhaseKind {
    Plain,
    Story,
    Last,
}

impl ChecklistPhaseKind {
    fn from_heading(heading: &str, format: ToolFormat) -> Self {
        let words = plain_words(heading);
        if format != ToolFormat::SpecKit {
            Self::Plain
        } else if words.contains("user story") {
            Self::Story
        } else if words.contains("polish") || words.contains("cross cutting") {
            Self::Last
        } else {
            Self::Plain
        }
    }
}

/// What a phase waits for: the one before it; a story for what comes before all stories; the last
/// one for all stories.
fn phase_barrier(before: &[(String, ChecklistPhaseKind)], kind: ChecklistPhaseKind) -> Vec<String> {
    let last = |wanted: ChecklistPhaseKind| before.iter().rfind(|(_, kind)| *kind == wanted);
    let stories = before.iter().filter(|(_, kind)| *kind == ChecklistPhaseKind::Story);
    match kind {
        ChecklistPhaseKind::Story => {
            last(ChecklistPhaseKind::Plain).map(|(id, _)| id.clone()).into_iter().collect()
        }
        _ if before.last().is_some_and(|(_, kind)| *kind == ChecklistPhaseKind::Story) => {
            stories.map(|(id, _)| id.clone()).collect()
        }
        _ => before.last().map(|(id, _)| id.clone()).into_iter().collect(),
    }
}

/// The id at the start of a line, and the rest.
fn split_id(text: &str, format: ToolFormat) -> (Option<&str>, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let bare = word.trim_end_matches(['.', ':', ')']);
    let dotted = |word: &str| {
        !word.is_empty()
            && word.split('.').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let numbered = match format {
        ToolFormat::SpecKit => is_task_number(bare),
        ToolFormat::OpenSpec | ToolFormat::Kiro => dotted(bare),
        _ => {
            is_task_number(bare)
                || (dotted(bare) && bare != word)
                || (dotted(bare) && bare.contains('.'))
        }
    };
    if numbered && !rest.trim().is_empty() { (Some(bare), rest.trim()) } else { (None, text) }
}

fn is_task_number(word: &str) -> bool {
    let digits = word.strip_prefix('T').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    digits.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Ids after "depends on", "blocked by", "requires", "after": `T012, T013`, `2.1 and 2.2`.
fn parse_dependencies(text: &str, prefix: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut found = Vec::new();
    for phrase in ["depends on", "depend on", "blocked by", "requires t", "after t"] {
        let mut from = 0;
        while let Some(at) = lower[from..].find(phrase) {
            let start = from + at + phrase.trim_end_matches(" t").len();
            from = start;
            // Lower case may change a text's length; such texts name no ids.
            let Some(rest) = text.get(start..) else { break };
            for word in rest.split([',', ' ', ';', '&', '(']).filter(|word| !word.is_empty()) {
                let id = word.trim_end_matches([')', '.', ':', ']']);
                let dotted =
                    id.contains('.') && id.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                if is_task_number(id) || dotted {
                    found.push(format!("{prefix}{id}"));
                } else if !matches!(
                    id.to_lowercase().as_str(),
                    "and" | "task" | "tasks" | "on" | ":" | ""
                ) {
                    break;
                }
                if word.ends_with([')', '.']) {
                    break;
                }
            }
        }
    }
    found
}

/// A title without `(depends on T012)`: that is an edge.
fn strip_dependencies(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let Some(start) = lower.find("(depends on ") else { return text.to_owned() };
    let Some(end) = text[start..].find(')') else { return text.to_owned() };
    let (head, tail) = (text[..start].trim_end(), text[start + end + 1..].trim_start());
    let gap = if head.is_empty() || tail.is_empty() { "" } else { " " };
    format!("{head}{gap}{tail}")
}

/// Kiro keeps criteria in `requirements.md` beside: `### Requirement 1`, then a numbered list.
fn read_requirements(
    source: &ImportSource,
    file: &SourceFile,
    format: ToolFormat,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if format != ToolFormat::Kiro {
        return found;
    }
    let beside = file.path.strip_suffix("tasks.md").map(|dir| format!("{dir}requirements.md"));
    let Some(text) = beside.and_then(|path| source.file(&path)).map(|file| &file.text) else {
        return found;
    };
    for part in markdown_sections(text, 3) {
        let Some(rest) = part.title.strip_prefix("Requirement ") else { continue };
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = &rest[..end];
        let list = part.body.split("Acceptance Criteria").nth(1).unwrap_or(part.body);
        for line in list.lines().map(str::trim) {
            let digits = line.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0
                && let Some(text) = bullet_text(line)
            {
                found.insert(format!("{number}.{}", &line[..digits]), text.trim().to_owned());
            }
        }
    }
    found
}
