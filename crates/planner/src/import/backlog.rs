//! Backlog.md: one Markdown file per task with YAML at its top; the words of statuses are the
//! project's own (`backlog/config.yml`).

use mainstem_core::plan::Effort;
use mainstem_core::plan::doc::{Format as Syntax, parse};

use super::{At, Entry, Mark, Reading, Refused, State, joined};
use crate::source::{File, Source};
use crate::tree::{bullets, front_matter, get, part, text, texts, tight, yaml_part};

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
struct Words {
    open: String,
    doing: Option<String>,
    done: String,
}

pub(super) fn read(source: &Source) -> Result<Reading, Refused> {
    let mut reading = Reading::default();
    let words = words(source);
    for file in &source.files {
        let part_of = |folder: &str| format!("/{}", file.path).contains(folder);
        let other = ["/drafts/", "/decisions/", "/docs/", "/archive/"].into_iter().any(part_of);
        if file.path.ends_with(".md")
            && !other
            && let Some((yaml, body)) = front_matter(&file.text)
        {
            task(source, file, yaml, body, &words, &mut reading)?;
        }
    }
    Ok(reading)
}

fn words(source: &Source) -> Words {
    let mut words = Words {
        open: "To Do".to_owned(),
        doing: Some("In Progress".to_owned()),
        done: "Done".to_owned(),
    };
    let config = source
        .files
        .iter()
        .find(|file| file.path.ends_with("config.yml") || file.path.ends_with("config.yaml"));
    let Some(file) = config else { return words };
    let Ok(root) = parse(&file.text, Syntax::Yaml) else { return words };
    let list = texts(get(&root, "statuses"), &file.text);
    if let [first, middle @ .., last] = list.as_slice() {
        words.open.clone_from(first);
        words.doing = middle.first().cloned();
        words.done.clone_from(last);
    }
    words
}

fn task(
    source: &Source,
    file: &File,
    yaml: std::ops::Range<usize>,
    body: usize,
    words: &Words,
    reading: &mut Reading,
) -> Result<(), Refused> {
    let node = yaml_part(&file.text, yaml).map_err(|faults| Refused::new(source, file, faults))?;
    let whole = file.text.as_str();
    let read = |key: &str| text(get(&node, key), whole);
    let Some(id) = read("id") else { return Ok(()) };
    let place = At::new(file).place(node.span.start);
    reading.lose_keys(&node, &TAKEN, "", &place);
    let body = &whole[body..];
    let section = |titles: &[&str]| part(body, titles).map(clean);
    let mut acceptance =
        section(&["acceptance criteria"]).map(|text| bullets(&text)).unwrap_or_default();
    acceptance
        .extend(section(&["definition of done"]).map(|text| bullets(&text)).unwrap_or_default());
    let description = joined(&[
        ("", section(&["description"])),
        ("Implementation plan", section(&["implementation plan"])),
        ("Notes", section(&["implementation notes"])),
    ]);
    let status = read("status").unwrap_or_default();
    let is = |word: &str| status.trim().eq_ignore_ascii_case(word);
    let state = if is(&words.done) {
        State::Done
    } else if is(&words.open) || status.is_empty() {
        State::Open
    } else if status.to_lowercase().contains("block") {
        State::Blocked
    } else {
        State::Doing
    };
    let mark = get(&node, "status").map(|status| {
        let span = tight(whole, &status.span);
        let quote = whole[span.clone()].chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.map(String::from).unwrap_or_default();
        let with = |word: &str| format!("{quote}{word}{quote}");
        let mut list = vec![(State::Open, with(&words.open)), (State::Done, with(&words.done))];
        list.extend(words.doing.as_deref().map(|word| (State::Doing, with(word))));
        Mark { file: file.path.clone(), span, words: list }
    });
    reading.entries.push(Entry {
        id,
        parent: read("parent_task_id"),
        title: read("title").unwrap_or_default(),
        description,
        acceptance,
        needs: texts(get(&node, "dependencies"), whole),
        writes: texts(get(&node, "modified_files"), whole),
        phase: None,
        effort: Effort::Medium,
        priority: match read("priority").unwrap_or_default().to_lowercase().as_str() {
            "critical" => 20,
            "high" => 10,
            "low" => -10,
            _ => 0,
        },
        state,
        marks: mark.into_iter().collect(),
        place,
        ..Entry::default()
    });
    Ok(())
}

/// Without the tool's own markers.
fn clean(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("<!--"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
