//! From a spanned tree to a [`Plan`]: keys, types and units.
//!
//! Knows nothing of how tasks hang together (that is `check`) nor of files. Everything wrong is
//! collected, and what could be read is kept, so that one report can hold all faults.

mod steps;

use std::borrow::Cow;
use std::ops::Range;

use super::doc::{self, Faults, Key, Node, Value, clip};
use super::units::parse_duration_ms;
use super::{Effort, Epic, OnFailure, Plan, Task};
use crate::diag::{Diagnostic, nearest};
use crate::gate::Gate;
use crate::id::{EpicId, TaskId};

pub use super::doc::Format;

/// The built-in agent of tasks with `run`.
pub const COMMAND_AGENT: &str = "command";

/// The built-in agent of tasks with `script`.
pub const SCRIPT_AGENT: &str = "script";

/// More attempts than this are surely a mistake.
const RETRIES_MAX: i64 = 1_000;

const PLAN_KEYS: [&str; 6] = ["version", "title", "epic", "task", "epics", "tasks"];
const EPIC_KEYS: [&str; 3] = ["id", "title", "needs"];
const TASK_KEYS: [&str; 20] = [
    "id",
    "epic",
    "phase",
    "title",
    "description",
    "acceptance",
    "needs",
    "after",
    "writes",
    "agent",
    "role",
    "model",
    "effort",
    "priority",
    "verify",
    "on_failure",
    "timeout",
    "retries",
    "run",
    "script",
];

/// Bytes of the source; half the size of a range, as there are many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    start: u32,
    end: u32,
}

impl From<&Range<usize>> for Span {
    fn from(range: &Range<usize>) -> Self {
        // Sources are at most `doc::SIZE_MAX` long.
        Self { start: range.start as u32, end: range.end as u32 }
    }
}

impl From<Span> for Range<usize> {
    fn from(span: Span) -> Self {
        span.start as usize..span.end as usize
    }
}

/// Where the parts of a plan stand, so that a check can point at them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// In the order of [`Plan::tasks`].
    pub tasks: Vec<TaskPlace>,
    /// In the order of [`Plan::epics`].
    pub epics: Vec<EpicPlace>,
    /// Some task or epic could not be read and is missing.
    pub incomplete: bool,
    /// What tasks without an id name in `needs` and `after`: they are missing from the plan, and their
    /// mistakes are reported all the same.
    pub unowned: Vec<Unowned>,
    /// Where ids of tasks stand that are no text: who needs such a task makes no second mistake.
    pub unreadable_ids: Vec<Span>,
}

/// A name in a list of a task that has no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unowned {
    /// `needs` or `after`.
    pub key: &'static str,
    /// The task it names.
    pub name: TaskId,
    /// Where.
    pub span: Span,
}

impl Places {
    /// Places for a plan that has no text, all at its start.
    pub fn nowhere(plan: &Plan) -> Self {
        let at = |count: usize| vec![Span::default(); count];
        let task = |task: &Task| TaskPlace {
            needs: at(task.needs.len()),
            after: at(task.after.len()),
            writes: at(task.writes.len()),
            epic: task.epic.is_some().then(Span::default),
            agent: task.agent.is_some().then(Span::default),
            work: (task.run.is_some() || !task.script.is_empty()).then(Span::default),
            id: Span::default(),
        };
        let epic = |epic: &Epic| EpicPlace { id: Span::default(), needs: at(epic.needs.len()) };
        Self {
            tasks: plan.tasks.iter().map(task).collect(),
            epics: plan.epics.iter().map(epic).collect(),
            incomplete: false,
            unowned: Vec::new(),
            unreadable_ids: Vec::new(),
        }
    }
}

/// Where a task's parts stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskPlace {
    /// The value of `id`.
    pub id: Span,
    /// The value of `epic`.
    pub epic: Option<Span>,
    /// The value of `agent`, also if it could not be read.
    pub agent: Option<Span>,
    /// The value of `run` or `script`.
    pub work: Option<Span>,
    /// The entries of `needs`, in order.
    pub needs: Vec<Span>,
    /// The entries of `after`, in order.
    pub after: Vec<Span>,
    /// The entries of `writes`, in order.
    pub writes: Vec<Span>,
}

/// Where an epic's parts stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpicPlace {
    /// The value of `id`.
    pub id: Span,
    /// The entries of `needs`, in order.
    pub needs: Vec<Span>,
}

/// Reads a plan's text. The plan is not checked as a whole yet; see `check`.
pub fn read_plan(source: &[u8], format: Format) -> Result<(Plan, Places), Vec<Diagnostic>> {
    let text = doc::text(source)?;
    let (plan, places, faults) = read_lenient(text, format);
    if faults.is_empty() { Ok((plan, places)) } else { Err(faults.finish(text)) }
}

/// Reads what can be read, and everything that is wrong with the rest.
pub(super) fn read_lenient(source: &str, format: Format) -> (Plan, Places, Faults) {
    let mut reader = Reader::default();
    match doc::parse_raw(source, format) {
        Ok(node) => reader.plan(node, format),
        Err(faults) => {
            reader.places.incomplete = true;
            reader.faults = faults;
        }
    }
    (reader.plan, reader.places, reader.faults)
}

/// A table's keys and values.
type Entries<'s> = Vec<(Key<'s>, Node<'s>)>;

#[derive(Default)]
struct Reader {
    plan: Plan,
    places: Places,
    faults: Faults,
}

impl Reader {
    fn plan(&mut self, node: Node<'_>, format: Format) {
        let Value::Table(entries) = node.value else {
            if node.value != Value::Null {
                let message = format!("a plan is a table, not {}", node.value.kind());
                self.faults.add("plan::type", node.span, message);
                self.places.incomplete = true;
            }
            return;
        };
        let mut versioned = false;
        let mut spelled: Vec<String> = Vec::new();
        for (key, node) in entries {
            self.one_spelling(&key, &mut spelled);
            match &*key.text {
                "version" => {
                    versioned = true;
                    self.version(&node);
                }
                "title" => self.plan.title = self.line("title", node).unwrap_or_default(),
                "epic" | "epics" => {
                    for (entries, span) in self.tables(&key, node) {
                        self.epic(entries, span);
                    }
                }
                "task" | "tasks" => {
                    let tables = self.tables(&key, node);
                    self.plan.tasks.reserve_exact(tables.len());
                    self.places.tasks.reserve_exact(tables.len());
                    for (entries, span) in tables {
                        self.task(entries, span);
                    }
                }
                _ => self.unknown("a plan", &key, &PLAN_KEYS),
            }
        }
        if !versioned {
            let fix = match format {
                Format::Toml => "put `version = 1` at the top",
                Format::Yaml => "put `version: 1` at the top",
                Format::Json => "add `\"version\": 1`",
            };
            self.faults.add_help("plan::version", 0..0, "missing `version`", fix);
        }
    }

    /// `tasks` means the same as `task`, but a plan that has both is more likely a slip.
    fn one_spelling(&mut self, key: &Key<'_>, seen: &mut Vec<String>) {
        let singular = key.text.strip_suffix('s').unwrap_or(&key.text).to_owned();
        if !["task", "epic"].contains(&singular.as_str()) {
            return;
        }
        if seen.contains(&singular) {
            let message = format!("the plan has both `{singular}` and `{singular}s`");
            let help = format!("use `{singular}` for all of them");
            self.faults.add_help("plan::two_spellings", key.span.clone(), message, help);
        }
        seen.push(singular);
    }

    fn version(&mut self, node: &Node<'_>) {
        if node.value != Value::Int(1) {
            let message = "unsupported plan version; only version 1 is supported";
            self.faults.add_help("plan::version", node.span.clone(), message, "write 1");
        }
    }

    /// The tables of a list of tables, such as `[[task]]`.
    fn tables<'s>(&mut self, key: &Key<'_>, node: Node<'s>) -> Vec<(Entries<'s>, Range<usize>)> {
        let name = clip(&key.text);
        let items = match node.value {
            Value::List(items) => items,
            Value::Null => return Vec::new(),
            other => {
                self.places.incomplete = true;
                let message = format!("`{name}` is a list of tables, not {}", other.kind());
                let help = format!("use `[[{name}]]` in TOML, a list in YAML and JSON");
                self.faults.add_help("plan::type", key.span.clone(), message, help);
                return Vec::new();
            }
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            match item.value {
                Value::Table(entries) => tables.push((entries, item.span)),
                other => {
                    self.places.incomplete = true;
                    let message = format!("each `{name}` is a table, not {}", other.kind());
                    self.faults.add("plan::type", item.span, message);
                }
            }
        }
        tables
    }

    fn epic(&mut self, entries: Entries<'_>, span: Range<usize>) {
        let mut place = EpicPlace::default();
        let mut id = None;
        let mut epic = Epic { id: EpicId::new(""), title: String::new(), needs: Vec::new() };
        for (key, node) in entries {
            match &*key.text {
                "id" => id = Some((Span::from(&node.span), self.line("id", node))),
                "title" => epic.title = self.line("title", node).unwrap_or_default(),
                "needs" => (epic.needs, place.needs) = self.texts("needs", node, EpicId::new),
                _ => self.unknown("an epic", &key, &EPIC_KEYS),
            }
        }
        if let Some(id) = self.id("epic", id, span, &mut place.id) {
            epic.id = EpicId::new(id);
            self.plan.epics.push(epic);
            self.places.epics.push(place);
        }
    }

    fn task(&mut self, entries: Entries<'_>, span: Range<usize>) {
        let mut place = TaskPlace::default();
        let mut id = None;
        let mut task = Task::empty();
        for (key, node) in entries {
            if &*key.text == "id" {
                let span = Span::from(&node.span);
                let line = self.line("id", node);
                if line.is_none() {
                    self.places.unreadable_ids.push(span);
                }
                id = Some((span, line));
            } else {
                self.task_key(&mut task, &mut place, &key, node);
            }
        }
        self.default_agent(&mut task, &place);
        if let Some(id) = self.id("task", id, span, &mut place.id) {
            task.id = TaskId::new(id);
            self.plan.tasks.push(task);
            self.places.tasks.push(place);
            return;
        }
        let lists = [("needs", task.needs, place.needs), ("after", task.after, place.after)];
        for (key, names, spans) in lists {
            let named = names.into_iter().zip(spans);
            self.places.unowned.extend(named.map(|(name, span)| Unowned { key, name, span }));
        }
    }

    fn task_key(&mut self, task: &mut Task, place: &mut TaskPlace, key: &Key<'_>, node: Node<'_>) {
        let span = Span::from(&node.span);
        match &*key.text {
            "epic" => {
                place.epic = Some(span);
                task.epic = self.line("epic", node).map(EpicId::new);
            }
            "phase" => task.phase = self.word("phase", node),
            "title" => task.title = self.line("title", node).unwrap_or_default(),
            "description" => {
                task.description = self.text("description", node).unwrap_or_default().into_owned();
            }
            "acceptance" => task.acceptance = self.texts("acceptance", node, Cow::into_owned).0,
            "needs" => (task.needs, place.needs) = self.texts("needs", node, TaskId::new),
            "after" => (task.after, place.after) = self.texts("after", node, TaskId::new),
            "writes" => (task.writes, place.writes) = self.texts("writes", node, Cow::into_owned),
            "agent" => {
                place.agent = (node.value != Value::Null).then_some(span);
                task.agent = self.word("agent", node);
            }
            "role" => task.role = self.word("role", node),
            "model" => task.model = self.word("model", node),
            "effort" => {
                let words = [
                    ("small", Effort::Small),
                    ("medium", Effort::Medium),
                    ("large", Effort::Large),
                ];
                task.effort = self.choice("effort", node, words).unwrap_or_default();
            }
            "priority" => {
                task.priority = self.int("priority", node, i64::MIN, i64::MAX).unwrap_or(0);
            }
            "verify" => task.verify = self.gates("verify", node),
            "on_failure" => {
                let words = [
                    ("block", OnFailure::Block),
                    ("continue", OnFailure::Continue),
                    ("skip", OnFailure::Skip),
                ];
                task.on_failure = self.choice("on_failure", node, words).unwrap_or_default();
            }
            "timeout" => task.timeout_ms = self.duration("timeout", node),
            "retries" => {
                let retries = self.int("retries", node, 0, RETRIES_MAX);
                task.retries = retries.and_then(|n| u32::try_from(n).ok());
            }
            "run" => {
                place.work = Some(span);
                task.run = self.filled("run", node);
            }
            "script" => {
                place.work = Some(span);
                task.script = self.script(node);
            }
            _ => self.unknown("a task", key, &TASK_KEYS),
        }
    }

    fn default_agent(&mut self, task: &mut Task, place: &TaskPlace) {
        let work = place.work.unwrap_or_default();
        if task.run.is_some() && !task.script.is_empty() {
            self.faults.add_help(
                "plan::agent",
                work.into(),
                "a task has either `run` or `script`, not both",
                "keep one of them",
            );
        }
        if place.agent.is_none() {
            if task.run.is_some() {
                task.agent = Some(COMMAND_AGENT.to_owned());
            } else if !task.script.is_empty() {
                task.agent = Some(SCRIPT_AGENT.to_owned());
            }
        }
    }

    /// The id of a task or epic; without one it is left out of the plan.
    fn id(
        &mut self,
        what: &str,
        id: Option<(Span, Option<String>)>,
        span: Range<usize>,
        place: &mut Span,
    ) -> Option<String> {
        match id {
            Some((at, Some(id))) => {
                *place = at;
                return Some(id);
            }
            Some((_, None)) => {}
            None => {
                let message = format!("missing `id` of the {what}");
                let help =
                    format!("add an id, such as `id = \"{}-001\"`", &what[..1].to_uppercase());
                self.faults.add_help("plan::missing_id", span, message, help);
            }
        }
        self.places.incomplete = true;
        None
    }

    // Values. Each reader says what is wrong and returns what it can; null is the same as absent.

    fn wrong(&mut self, key: &str, node: &Node<'_>, want: &str, help: &str) {
        let message = format!("`{key}` is {want}, not {}", node.value.kind());
        self.faults.add_help("plan::type", node.span.clone(), message, help);
    }

    fn text<'s>(&mut self, key: &str, node: Node<'s>) -> Option<Cow<'s, str>> {
        match node.value {
            Value::Str(text) if text.contains('\0') => {
                let message = format!("`{key}` contains a NUL character");
                self.faults.add_help("plan::text", node.span, message, "remove the character");
                None
            }
            Value::Str(text) => Some(text),
            Value::Null => None,
            Value::Int(_) | Value::Float(_) | Value::Bool(_) | Value::Date(_) => {
                self.wrong(key, &node, "a string", "put the value in quotes");
                None
            }
            Value::List(_) | Value::Table(_) => {
                self.wrong(key, &node, "a string", "use one string in quotes");
                None
            }
        }
    }

    /// Text of one line: it becomes part of names, subjects and trailers.
    fn line(&mut self, key: &str, node: Node<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.text(key, node)?.into_owned();
        if text.chars().any(char::is_control) {
            let message = format!("`{key}` must be a single line without control characters");
            let help = if key == "title" {
                "move the rest to `description`"
            } else {
                "remove the control characters"
            };
            self.faults.add_help("plan::text", span, message, help);
            return None;
        }
        Some(text)
    }

    /// One line that says something.
    fn word(&mut self, key: &str, node: Node<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.line(key, node)?;
        self.not_blank(key, span, text)
    }

    fn filled(&mut self, key: &str, node: Node<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.text(key, node)?.into_owned();
        self.not_blank(key, span, text)
    }

    fn not_blank(&mut self, key: &str, span: Range<usize>, text: String) -> Option<String> {
        if text.trim().is_empty() {
            let message = format!("`{key}` is empty");
            self.faults.add_help("plan::text", span, message, "add text or remove the key");
            return None;
        }
        Some(text)
    }

    fn list<'s>(&mut self, key: &str, node: Node<'s>) -> Vec<Node<'s>> {
        match node.value {
            Value::List(items) => items,
            Value::Null => Vec::new(),
            _ => {
                let help = match &node.value {
                    Value::Str(text) => format!("write [\"{}\"]", clip(text)),
                    _ => "use a list in square brackets".to_owned(),
                };
                self.wrong(key, &node, "a list", &help);
                Vec::new()
            }
        }
    }

    fn texts<'s, T>(
        &mut self,
        key: &str,
        node: Node<'s>,
        make: impl Fn(Cow<'s, str>) -> T,
    ) -> (Vec<T>, Vec<Span>) {
        let items = self.list(key, node);
        let mut texts = Vec::with_capacity(items.len());
        let mut spans = Vec::with_capacity(items.len());
        for item in items {
            let span = Span::from(&item.span);
            if item.value == Value::Null {
                self.wrong(key, &item, "a list of strings", "remove the empty entry");
            } else if let Some(text) = self.text(key, item) {
                texts.push(make(text));
                spans.push(span);
            }
        }
        (texts, spans)
    }

    /// Gates as lines: commands, kinds that start with `@`, and tables that stand for them.
    fn gates(&mut self, key: &str, node: Node<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        for item in self.list(key, node) {
            let span = item.span.clone();
            let line = match &item.value {
                Value::Table(entries) => doc::gate_line(entries),
                _ => match self.filled(key, item) {
                    Some(line) => Gate::parse(&line).map(|_| line),
                    None => continue,
                },
            };
            match line {
                Ok(line) => lines.push(line),
                Err(why) => {
                    let (what, help) = why.split_once("; ").unwrap_or((&why, "fix the check"));
                    self.faults.add_help("plan::gate", span, format!("`{key}`: {what}"), help);
                }
            }
        }
        lines
    }

    fn int(&mut self, key: &str, node: Node<'_>, min: i64, max: i64) -> Option<i64> {
        match node.value {
            Value::Int(number) if (min..=max).contains(&number) => Some(number),
            Value::Int(number) => {
                let message = format!("`{key}` is {number}, which is not between {min} and {max}");
                self.faults.add("plan::range", node.span, message);
                None
            }
            Value::Null => None,
            _ => {
                self.wrong(key, &node, "an integer", "use an integer without quotes");
                None
            }
        }
    }

    fn duration(&mut self, key: &str, node: Node<'_>) -> Option<u64> {
        let text = match &node.value {
            Value::Null => return None,
            Value::Str(text) => text,
            Value::Int(number) => {
                let help = format!("write \"{number}s\" for seconds or \"{number}m\" for minutes");
                self.wrong(key, &node, "a string with a unit", &help);
                return None;
            }
            _ => {
                self.wrong(key, &node, "a string with a unit", "use a value such as \"45m\"");
                return None;
            }
        };
        match parse_duration_ms(text) {
            Ok(ms) => Some(ms),
            Err(help) => {
                let message = format!("invalid duration `{}` in `{key}`", clip(text));
                self.faults.add_help("plan::duration", node.span, message, help);
                None
            }
        }
    }

    fn choice<T, const N: usize>(
        &mut self,
        key: &str,
        node: Node<'_>,
        words: [(&'static str, T); N],
    ) -> Option<T> {
        let span = node.span.clone();
        let text = self.text(key, node)?;
        let names = words.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        match words.into_iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Some(value),
            None => {
                let message = format!("invalid value `{}` for `{key}`", clip(&text));
                let help = match nearest(&text, names.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("use one of {}", names.join(", ")),
                };
                self.faults.add_help("plan::choice", span, message, help);
                None
            }
        }
    }

    fn unknown(&mut self, holder: &str, key: &Key<'_>, known: &[&'static str]) {
        let message = format!("unknown key `{}` in {holder}", clip(&key.text));
        let help = match nearest(&key.text, known.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known keys: {}", known.join(", ")),
        };
        self.faults.add_help("plan::unknown_key", key.span.clone(), message, help);
    }
}

#[cfg(test)]
mod tests;
