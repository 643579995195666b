//! Markdown checklists: spec-kit, OpenSpec, Kiro, and plain `- [ ]`.
//!
//! One reader of lines; the dialects differ in ids, flags, groups and where criteria stand. The box
//! keeps its place in the file, so that ticking it changes one character.

use std::collections::BTreeMap;

use super::{At, Entry, Format, Mark, Place, Reading, Refused, State};
use crate::source::{File, Source};
use crate::tree::{bullet, indent, parts};
use crate::words::{paths, plain, slug};

/// One line with a box.
struct Item<'t> {
    indent: usize,
    /// Byte offset of the character in the box.
    at: usize,
    state: State,
    optional: bool,
    text: &'t str,
    /// Headings above it.
    phase: Option<usize>,
    /// Lines below it that belong to it.
    notes: Vec<(usize, &'t str)>,
}

struct Heading<'t> {
    level: usize,
    text: &'t str,
    offset: usize,
}

pub(super) fn read(source: &Source, format: Format) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let mut files: Vec<&File> = source.files.iter().filter(|file| fits(file, format)).collect();
    if files.is_empty() && source.files.len() == 1 {
        files = source.files.iter().collect();
    }
    let several = files.len() > 1;
    for file in files {
        let prefix = if several { format!("{}.", feature(&file.path)) } else { String::new() };
        read_file(source, file, format, &prefix, &mut reading);
    }
    Ok(reading)
}

fn fits(file: &File, format: Format) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    match format {
        Format::Checklist => name.ends_with(".md") || name.ends_with(".markdown"),
        Format::OpenSpec => name == "tasks.md" && !file.path.contains("archive/"),
        _ => name == "tasks.md",
    }
}

/// The folder that names a feature, or the file's own name.
fn feature(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default().trim_end_matches(".md");
    let folder = parts.pop().unwrap_or_default();
    let feature = if folder.is_empty() || name != "tasks" { name } else { folder };
    slug(feature)
}

fn read_file(source: &Source, file: &File, format: Format, prefix: &str, reading: &mut Reading) {
    let (items, headings) = scan(&file.text, format);
    let at = At::new(file);
    if let Some(title) = headings.iter().find(|heading| heading.level == 1)
        && reading.title.is_empty()
    {
        reading.title = title.text.trim_start_matches("Tasks:").trim().to_owned();
    }
    let mut builder = Builder {
        file,
        at,
        format,
        prefix,
        criteria: requirements(source, file, format),
        seen: BTreeMap::new(),
        first: reading.entries.len(),
        reading,
        phases: Vec::new(),
    };
    builder.groups(&items, &headings);
    builder.items(&items);
}

/// Lines with boxes and headings; fenced code is neither.
fn scan(text: &str, format: Format) -> (Vec<Item<'_>>, Vec<Heading<'_>>) {
    let (mut items, mut headings): (Vec<Item<'_>>, Vec<Heading<'_>>) = (Vec::new(), Vec::new());
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
            if (1..=6).contains(&level) && trimmed[level..].starts_with(' ') && indent(line) < 4 {
                headings.push(Heading { level, text: trimmed[level..].trim(), offset: start });
                continue;
            }
            if let Some(mut item) = boxed(line, start, format) {
                item.phase = headings.len().checked_sub(1);
                items.push(item);
                continue;
            }
        }
        let belongs = items.last().is_some_and(|item| {
            trimmed.is_empty() || indent(line) > item.indent || fence.is_some()
        });
        let same = items.last().is_some_and(|item| item.phase == headings.len().checked_sub(1));
        if let Some(item) = items.last_mut().filter(|_| belongs && same) {
            item.notes.push((start, line.trim_end()));
        }
    }
    (items, headings)
}

fn boxed<'t>(line: &'t str, start: usize, format: Format) -> Option<Item<'t>> {
    let body = line.trim_start();
    let rest = bullet(body)?.trim_start().strip_prefix('[')?;
    let mark = rest.chars().next()?;
    let after = rest[mark.len_utf8()..].strip_prefix(']')?;
    let state = match mark {
        ' ' => State::Open,
        'x' | 'X' => State::Done,
        '-' | '~' | '/' => State::Doing,
        '!' => State::Blocked,
        _ => return None,
    };
    let optional = format == Format::Kiro && after.starts_with('*');
    let text = after.strip_prefix('*').filter(|_| optional).unwrap_or(after);
    if !text.starts_with([' ', '\t']) {
        return None;
    }
    let at = start + (line.len() - rest.len());
    let text = text.trim();
    let notes = Vec::new();
    Some(Item { indent: indent(line), at, state, optional, text, phase: None, notes })
}

struct Builder<'a> {
    file: &'a File,
    at: At<'a>,
    format: Format,
    prefix: &'a str,
    /// Criteria by number, from the file beside.
    criteria: BTreeMap<String, String>,
    seen: BTreeMap<String, usize>,
    /// The first entry of this file.
    first: usize,
    reading: &'a mut Reading,
    /// Group ids by heading.
    phases: Vec<Option<String>>,
}

impl Builder<'_> {
    /// Headings that have items become groups, in order.
    fn groups(&mut self, items: &[Item<'_>], headings: &[Heading<'_>]) {
        let used: Vec<usize> = items.iter().filter_map(|item| item.phase).collect();
        let wanted = match self.format {
            Format::Kiro => false,
            Format::Checklist => {
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
        let mut before: Vec<(String, Kind)> = Vec::new();
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
                slug(heading.text)
            };
            let id = self.own(&format!("{}#{number}", self.prefix));
            let kind = Kind::of(heading.text, self.format);
            let order = barrier(&before, kind);
            before.push((id.clone(), kind));
            self.reading.entries.push(Entry {
                id: id.clone(),
                group: true,
                title: heading.text.to_owned(),
                order,
                place: self.at.place(heading.offset),
                ..Entry::default()
            });
            self.phases[i] = Some(id);
        }
    }

    /// A name that this file has not used yet.
    fn own(&mut self, name: &str) -> String {
        let count = self.seen.entry(name.to_lowercase()).or_insert(0);
        *count += 1;
        if *count == 1 { name.to_owned() } else { format!("{name}-{count}") }
    }

    fn items(&mut self, items: &[Item<'_>]) {
        let mut stack: Vec<(usize, String)> = Vec::new();
        // What a task that is not marked [P] follows, by group.
        let mut line: BTreeMap<Option<String>, Vec<(String, bool)>> = BTreeMap::new();
        for (i, item) in items.iter().enumerate() {
            while stack.last().is_some_and(|(indent, _)| *indent >= item.indent) {
                stack.pop();
            }
            if stack.len() >= 2 {
                self.detail(item, &stack[1].1.clone());
                continue;
            }
            let parent = stack.last().map(|(_, id)| id.clone());
            let group = parent.or_else(|| item.phase.and_then(|at| self.phases[at].clone()));
            let has_children = items.get(i + 1).is_some_and(|next| next.indent > item.indent);
            let mut entry = self.entry(item);
            entry.parent.clone_from(&group);
            let before = line.entry(group).or_default();
            let parallel = item.text.contains("[P]") && self.format == Format::SpecKit;
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
    fn detail(&mut self, item: &Item<'_>, of: &str) {
        let id = of.to_owned();
        let first = self.first;
        if let Some(entry) = self.reading.entries[first..].iter_mut().find(|entry| entry.id == id) {
            entry.group = false;
            let tick = if item.state == State::Done { "x" } else { " " };
            if !entry.description.is_empty() {
                entry.description.push('\n');
            }
            entry.description.push_str(&format!("- [{tick}] {}", item.text));
        }
    }

    fn entry(&mut self, item: &Item<'_>) -> Entry {
        let (number, rest) = split_id(item.text, self.format);
        let text = rest.replace("[P] ", "");
        let (story, text) = match text.strip_prefix("[US").and_then(|rest| rest.split_once(']')) {
            Some((story, rest)) if self.format == Format::SpecKit => {
                (Some(format!("US{story}")), rest.trim().to_owned())
            }
            _ => (None, text),
        };
        let number = number.map_or_else(|| slug(&text), str::to_owned);
        let number = if number.is_empty() { "task".to_owned() } else { number };
        let id = self.own(&format!("{}{number}", self.prefix));
        let place = self.at.place(item.at);
        let mut entry = Entry {
            id,
            title: without_depends(&text),
            needs: depends(&text, self.prefix),
            writes: paths(&text),
            state: item.state,
            optional: item.optional,
            marks: vec![self.mark(item)],
            place: place.clone(),
            ..Entry::default()
        };
        if let Some(story) = story {
            entry.description = format!("User story: {story}");
        }
        self.notes(&mut entry, item, &place);
        entry
    }

    fn mark(&self, item: &Item<'_>) -> Mark {
        let len = self.file.text[item.at..].chars().next().map_or(1, char::len_utf8);
        let mut words = vec![(State::Done, "x".to_owned()), (State::Open, " ".to_owned())];
        // The others' own readers know only done and open.
        if self.format == Format::Kiro {
            words.push((State::Doing, "-".to_owned()));
        }
        Mark { file: self.file.path.clone(), span: item.at..item.at + len, words }
    }

    fn notes(&mut self, entry: &mut Entry, item: &Item<'_>, place: &Place) {
        let mut details: Vec<&str> = Vec::new();
        for (_, line) in &item.notes {
            let text = line.trim();
            let point = bullet(text).unwrap_or(text).trim();
            let inner = point.trim_matches('_');
            let wanted = ["Requirements:", "Validates: Requirements", "Validates:"];
            let refs = wanted.iter().find_map(|head| inner.strip_prefix(head));
            if let Some(refs) = refs.filter(|_| self.format == Format::Kiro) {
                for number in refs.split(',').map(str::trim).filter(|number| !number.is_empty()) {
                    entry.acceptance.push(match self.criteria.get(number) {
                        Some(text) => format!("{number}: {text}"),
                        None => format!("requirement {number}"),
                    });
                }
            } else if self.format == Format::Checklist && bullet(text).is_some() {
                entry.acceptance.push(point.to_owned());
            } else if !text.is_empty() || !details.is_empty() {
                details.push(line);
            }
        }
        let margin = details.iter().filter(|line| !line.trim().is_empty()).map(|l| indent(l)).min();
        let cut = |line: &&str| {
            let margin = margin.unwrap_or(0).min(line.len() - line.trim_start().len());
            line.get(margin..).unwrap_or(line.trim_start()).to_owned()
        };
        let text = details.iter().map(cut).collect::<Vec<_>>().join("\n");
        let text = text.trim();
        entry.writes.extend(paths(text));
        entry.needs.extend(depends(text, self.prefix));
        if !text.is_empty() {
            if !entry.description.is_empty() {
                entry.description.push('\n');
            }
            entry.description.push_str(text);
        }
        if entry.optional {
            self.reading.notice(place, "optional there: its failure blocks nothing here");
        }
    }
}

/// The kinds of phases of spec-kit; elsewhere all are one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Story,
    Last,
}

impl Kind {
    fn of(heading: &str, format: Format) -> Self {
        let words = plain(heading);
        if format != Format::SpecKit {
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
fn barrier(before: &[(String, Kind)], kind: Kind) -> Vec<String> {
    let last = |wanted: Kind| before.iter().rfind(|(_, kind)| *kind == wanted);
    let stories = before.iter().filter(|(_, kind)| *kind == Kind::Story);
    match kind {
        Kind::Story => last(Kind::Plain).map(|(id, _)| id.clone()).into_iter().collect(),
        _ if before.last().is_some_and(|(_, kind)| *kind == Kind::Story) => {
            stories.map(|(id, _)| id.clone()).collect()
        }
        _ => before.last().map(|(id, _)| id.clone()).into_iter().collect(),
    }
}

/// The id at the start of a line, and the rest.
fn split_id(text: &str, format: Format) -> (Option<&str>, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let bare = word.trim_end_matches(['.', ':', ')']);
    let dotted = |word: &str| {
        !word.is_empty()
            && word.split('.').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let numbered = match format {
        Format::SpecKit => is_t(bare),
        Format::OpenSpec | Format::Kiro => dotted(bare),
        _ => is_t(bare) || (dotted(bare) && bare != word) || (dotted(bare) && bare.contains('.')),
    };
    if numbered && !rest.trim().is_empty() { (Some(bare), rest.trim()) } else { (None, text) }
}

/// `T012`, `T-012`.
fn is_t(word: &str) -> bool {
    let digits = word.strip_prefix('T').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    digits.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Ids after "depends on", "blocked by", "requires", "after": `T012, T013`, `2.1 and 2.2`.
fn depends(text: &str, prefix: &str) -> Vec<String> {
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
                if is_t(id) || dotted {
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
fn without_depends(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let Some(start) = lower.find("(depends on ") else { return text.to_owned() };
    let Some(end) = text[start..].find(')') else { return text.to_owned() };
    let (head, tail) = (text[..start].trim_end(), text[start + end + 1..].trim_start());
    let gap = if head.is_empty() || tail.is_empty() { "" } else { " " };
    format!("{head}{gap}{tail}")
}

/// Kiro keeps criteria in `requirements.md` beside: `### Requirement 1`, then a numbered list.
fn requirements(source: &Source, file: &File, format: Format) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if format != Format::Kiro {
        return found;
    }
    let beside = file.path.strip_suffix("tasks.md").map(|dir| format!("{dir}requirements.md"));
    let Some(text) = beside.and_then(|path| source.file(&path)).map(|file| &file.text) else {
        return found;
    };
    for part in parts(text, 3) {
        let Some(rest) = part.title.strip_prefix("Requirement ") else { continue };
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = &rest[..end];
        let list = part.body.split("Acceptance Criteria").nth(1).unwrap_or(part.body);
        for line in list.lines().map(str::trim) {
            let digits = line.bytes().take_while(u8::is_ascii_digit).count();
            if digits > 0
                && let Some(text) = bullet(line)
            {
                found.insert(format!("{number}.{}", &line[..digits]), text.trim().to_owned());
            }
        }
    }
    found
}
