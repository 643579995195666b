//! From a spanned tree to a [`Plan`]: keys, types and units.
//!
//! Knows nothing of how tasks hang together (that is `check`) nor of files. Everything wrong is
//! collected, and what could be read is kept, so that one report can hold all faults.

mod script_steps;

use std::borrow::Cow;
use std::ops::Range;

use super::document::{self, DocumentKey, DocumentNode, DocumentValue, FaultCollector, clip_text};
use super::quantities::parse_duration_ms;
use super::{Epic, Plan, Task, TaskEffort, TaskFailureAction};
use crate::diagnostic::{Diagnostic, nearest_word};
use crate::gate::GateSpec;
use crate::id::{EpicId, TaskId};

pub use super::document::DocumentFormat;

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
pub struct SourceSpan {
    start: u32,
    end: u32,
}

impl From<&Range<usize>> for SourceSpan {
    fn from(range: &Range<usize>) -> Self {
        // Sources are at most `doc::SIZE_MAX` long.
        Self { start: range.start as u32, end: range.end as u32 }
    }
}

impl From<SourceSpan> for Range<usize> {
    fn from(span: SourceSpan) -> Self {
        span.start as usize..span.end as usize
    }
}

/// Where the parts of a plan stand, so that a check can point at them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanSpans {
    /// In the order of [`Plan::tasks`].
    pub tasks: Vec<TaskSpans>,
    /// In the order of [`Plan::epics`].
    pub epics: Vec<EpicSpans>,
    /// Some task or epic could not be read and is missing.
    pub incomplete: bool,
    /// What tasks without an id name in `needs` and `after`: they are missing from the plan, and their
    /// mistakes are reported all the same.
    pub unowned: Vec<OrphanReference>,
    /// Where ids of tasks stand that are no text: who needs such a task makes no second mistake.
    pub unreadable_ids: Vec<SourceSpan>,
}

/// A name in a list of a task that has no id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanReference {
    pub key: &'static str,
    /// The task it names.
    pub name: TaskId,
    pub span: SourceSpan,
}

impl PlanSpans {
    /// Places for a plan that has no text, all at its start.
    pub fn without_source(plan: &Plan) -> Self {
        let at = |count: usize| vec![SourceSpan::default(); count];
        let task = |task: &Task| TaskSpans {
            needs: at(task.needs.len()),
            after: at(task.after.len()),
            writes: at(task.writes.len()),
            epic: task.epic.is_some().then(SourceSpan::default),
            agent: task.agent.is_some().then(SourceSpan::default),
            work: (task.run.is_some() || !task.script.is_empty()).then(SourceSpan::default),
            id: SourceSpan::default(),
        };
        let epic =
            |epic: &Epic| EpicSpans { id: SourceSpan::default(), needs: at(epic.needs.len()) };
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
pub struct TaskSpans {
    /// The value of `id`.
    pub id: SourceSpan,
    /// The value of `epic`.
    pub epic: Option<SourceSpan>,
    /// The value of `agent`, also if it could not be read.
    pub agent: Option<SourceSpan>,
    /// The value of `run` or `script`.
    pub work: Option<SourceSpan>,
    /// The entries of `needs`, in order.
    pub needs: Vec<SourceSpan>,
    /// The entries of `after`, in order.
    pub after: Vec<SourceSpan>,
    /// The entries of `writes`, in order.
    pub writes: Vec<SourceSpan>,
}

/// Where an epic's parts stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpicSpans {
    /// The value of `id`.
    pub id: SourceSpan,
    /// The entries of `needs`, in order.
    pub needs: Vec<SourceSpan>,
}

/// Reads a plan's text. The plan is not checked as a whole yet; see `check`.
pub fn read_plan(
    source: &[u8],
    format: DocumentFormat,
) -> Result<(Plan, PlanSpans), Vec<Diagnostic>> {
    let text = document::decode_text(source)?;
    let (plan, places, faults) = read_plan_lenient(text, format);
    if faults.is_empty() { Ok((plan, places)) } else { Err(faults.into_diagnostics(text)) }
}

/// Reads what can be read, and everything that is wrong with the rest.
pub(super) fn read_plan_lenient(
    source: &str,
    format: DocumentFormat,
) -> (Plan, PlanSpans, FaultCollector) {
    let mut reader = PlanReader::default();
    match document::parse_with_faults(source, format) {
        Ok(node) => reader.read_document(node, format),
        Err(faults) => {
            reader.places.incomplete = true;
            reader.faults = faults;
        }
    }
    (reader.plan, reader.places, reader.faults)
}

/// A table's keys and values.
type TableEntries<'s> = Vec<(DocumentKey<'s>, DocumentNode<'s>)>;

#[derive(Default)]
struct PlanReader {
    plan: Plan,
    places: PlanSpans,
    faults: FaultCollector,
}

impl PlanReader {
    fn read_document(&mut self, node: DocumentNode<'_>, format: DocumentFormat) {
        let DocumentValue::Table(entries) = node.value else {
            if node.value != DocumentValue::Null {
                let message = format!("a plan is a table, not {}", node.value.kind());
                self.faults.add_fault("plan::type", node.span, message);
                self.places.incomplete = true;
            }
            return;
        };
        let mut versioned = false;
        let mut spelled: Vec<String> = Vec::new();
        for (key, node) in entries {
            self.check_key_spelling(&key, &mut spelled);
            match &*key.text {
                "version" => {
                    versioned = true;
                    self.check_version(&node);
                }
                "title" => self.plan.title = self.read_line("title", node).unwrap_or_default(),
                "epic" | "epics" => {
                    for (entries, span) in self.read_tables(&key, node) {
                        self.read_epic(entries, span);
                    }
                }
                "task" | "tasks" => {
                    let tables = self.read_tables(&key, node);
                    self.plan.tasks.reserve_exact(tables.len());
                    self.places.tasks.reserve_exact(tables.len());
                    for (entries, span) in tables {
                        self.read_task(entries, span);
                    }
                }
                _ => self.report_unknown_key("a plan", &key, &PLAN_KEYS),
            }
        }
        if !versioned {
            let fix = match format {
                DocumentFormat::Toml => "put `version = 1` at the top",
                DocumentFormat::Yaml => "put `version: 1` at the top",
                DocumentFormat::Json => "add `\"version\": 1`",
            };
            self.faults.add_fault_with_help("plan::version", 0..0, "missing `version`", fix);
        }
    }

    /// `tasks` means the same as `task`, but a plan that has both is more likely a slip.
    fn check_key_spelling(&mut self, key: &DocumentKey<'_>, seen: &mut Vec<String>) {
        let singular = key.text.strip_suffix('s').unwrap_or(&key.text).to_owned();
        if !["task", "epic"].contains(&singular.as_str()) {
            return;
        }
        if seen.contains(&singular) {
            let message = format!("the plan has both `{singular}` and `{singular}s`");
            let help = format!("use `{singular}` for all of them");
            self.faults.add_fault_with_help("plan::two_spellings", key.span.clone(), message, help);
        }
        seen.push(singular);
    }

    fn check_version(&mut self, node: &DocumentNode<'_>) {
        if node.value != DocumentValue::Int(1) {
            let message = "unsupported plan version; only version 1 is supported";
            self.faults.add_fault_with_help("plan::version", node.span.clone(), message, "write 1");
        }
    }

    /// The tables of a list of tables, such as `[[task]]`.
    fn read_tables<'s>(
        &mut self,
        key: &DocumentKey<'_>,
        node: DocumentNode<'s>,
    ) -> Vec<(TableEntries<'s>, Range<usize>)> {
        let name = clip_text(&key.text);
        let items = match node.value {
            DocumentValue::List(items) => items,
            DocumentValue::Null => return Vec::new(),
            other => {
                self.places.incomplete = true;
                let message = format!("`{name}` is a list of tables, not {}", other.kind());
                let help = format!("use `[[{name}]]` in TOML, a list in YAML and JSON");
                self.faults.add_fault_with_help("plan::type", key.span.clone(), message, help);
                return Vec::new();
            }
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            match item.value {
                DocumentValue::Table(entries) => tables.push((entries, item.span)),
                other => {
                    self.places.incomplete = true;
                    let message = format!("each `{name}` is a table, not {}", other.kind());
                    self.faults.add_fault("plan::type", item.span, message);
                }
            }
        }
        tables
    }

    fn read_epic(&mut self, entries: TableEntries<'_>, span: Range<usize>) {
        let mut place = EpicSpans::default();
        let mut id = None;
        let mut epic = Epic { id: EpicId::new(""), title: String::new(), needs: Vec::new() };
        for (key, node) in entries {
            match &*key.text {
                "id" => id = Some((SourceSpan::from(&node.span), self.read_line("id", node))),
                "title" => epic.title = self.read_line("title", node).unwrap_or_default(),
                "needs" => (epic.needs, place.needs) = self.read_texts("needs", node, EpicId::new),
                _ => self.report_unknown_key("an epic", &key, &EPIC_KEYS),
            }
        }
        if let Some(id) = self.read_id("epic", id, span, &mut place.id) {
            epic.id = EpicId::new(id);
            self.plan.epics.push(epic);
            self.places.epics.push(place);
        }
    }

    fn read_task(&mut self, entries: TableEntries<'_>, span: Range<usize>) {
        let mut place = TaskSpans::default();
        let mut id = None;
        let mut task = Task::empty();
        for (key, node) in entries {
            if &*key.text == "id" {
                let span = SourceSpan::from(&node.span);
                let line = self.read_line("id", node);
                if line.is_none() {
                    self.places.unreadable_ids.push(span);
                }
                id = Some((span, line));
            } else {
                self.read_task_key(&mut task, &mut place, &key, node);
            }
        }
        self.infer_default_agent(&mut task, &place);
        if let Some(id) = self.read_id("task", id, span, &mut place.id) {
            task.id = TaskId::new(id);
            self.plan.tasks.push(task);
            self.places.tasks.push(place);
            return;
        }
        let lists = [("needs", task.needs, place.needs), ("after", task.after, place.after)];
        for (key, names, spans) in lists {
            let named = names.into_iter().zip(spans);
            self.places.unowned.extend(named.map(|(name, span)| OrphanReference {
                key,
                name,
                span,
            }));
        }
    }

    fn read_task_key(
        &mut self,
        task: &mut Task,
        place: &mut TaskSpans,
        key: &DocumentKey<'_>,
        node: DocumentNode<'_>,
    ) {
        let span = SourceSpan::from(&node.span);
        match &*key.text {
            "epic" => {
                place.epic = Some(span);
                task.epic = self.read_line("epic", node).map(EpicId::new);
            }
            "phase" => task.phase = self.read_nonblank_line("phase", node),
            "title" => task.title = self.read_line("title", node).unwrap_or_default(),
            "description" => {
                task.description =
                    self.read_text("description", node).unwrap_or_default().into_owned();
            }
            "acceptance" => {
                task.acceptance = self.read_texts("acceptance", node, Cow::into_owned).0;
            }
            "needs" => (task.needs, place.needs) = self.read_texts("needs", node, TaskId::new),
            "after" => (task.after, place.after) = self.read_texts("after", node, TaskId::new),
            "writes" => {
                (task.writes, place.writes) = self.read_texts("writes", node, Cow::into_owned);
            }
            "agent" => {
                place.agent = (node.value != DocumentValue::Null).then_some(span);
                task.agent = self.read_nonblank_line("agent", node);
            }
            "role" => task.role = self.read_nonblank_line("role", node),
            "model" => task.model = self.read_nonblank_line("model", node),
            "effort" => {
                let words = [
                    ("small", TaskEffort::Small),
                    ("medium", TaskEffort::Medium),
                    ("large", TaskEffort::Large),
                ];
                task.effort = self.read_choice("effort", node, words).unwrap_or_default();
            }
            "priority" => {
                task.priority = self.read_int("priority", node, i64::MIN, i64::MAX).unwrap_or(0);
            }
            "verify" => task.verify = self.read_gates("verify", node),
            "on_failure" => {
                let words = [
                    ("block", TaskFailureAction::Block),
                    ("continue", TaskFailureAction::Continue),
                    ("skip", TaskFailureAction::Skip),
                ];
                task.on_failure = self.read_choice("on_failure", node, words).unwrap_or_default();
            }
            "timeout" => task.timeout_ms = self.read_duration("timeout", node),
            "retries" => {
                let retries = self.read_int("retries", node, 0, RETRIES_MAX);
                task.retries = retries.and_then(|n| u32::try_from(n).ok());
            }
            "run" => {
                place.work = Some(span);
                task.run = self.read_nonblank_text("run", node);
            }
            "script" => {
                place.work = Some(span);
                task.script = self.read_script(node);
            }
            _ => self.report_unknown_key("a task", key, &TASK_KEYS),
        }
    }

    fn infer_default_agent(&mut self, task: &mut Task, place: &TaskSpans) {
        let work = place.work.unwrap_or_default();
        if task.run.is_some() && !task.script.is_empty() {
            self.faults.add_fault_with_help(
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
    fn read_id(
        &mut self,
        what: &str,
        id: Option<(SourceSpan, Option<String>)>,
        span: Range<usize>,
        place: &mut SourceSpan,
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
                self.faults.add_fault_with_help("plan::missing_id", span, message, help);
            }
        }
        self.places.incomplete = true;
        None
    }

    // Values. Each reader says what is wrong and returns what it can; null is the same as absent.

    fn report_wrong_type(&mut self, key: &str, node: &DocumentNode<'_>, want: &str, help: &str) {
        let message = format!("`{key}` is {want}, not {}", node.value.kind());
        self.faults.add_fault_with_help("plan::type", node.span.clone(), message, help);
    }

    fn read_text<'s>(&mut self, key: &str, node: DocumentNode<'s>) -> Option<Cow<'s, str>> {
        match node.value {
            DocumentValue::Str(text) if text.contains('\0') => {
                let message = format!("`{key}` contains a NUL character");
                self.faults.add_fault_with_help(
                    "plan::text",
                    node.span,
                    message,
                    "remove the character",
                );
                None
            }
            DocumentValue::Str(text) => Some(text),
            DocumentValue::Null => None,
            DocumentValue::Int(_)
            | DocumentValue::Float(_)
            | DocumentValue::Bool(_)
            | DocumentValue::Date(_) => {
                self.report_wrong_type(key, &node, "a string", "put the value in quotes");
                None
            }
            DocumentValue::List(_) | DocumentValue::Table(_) => {
                self.report_wrong_type(key, &node, "a string", "use one string in quotes");
                None
            }
        }
    }

    /// Text of one line: it becomes part of names, subjects and trailers.
    fn read_line(&mut self, key: &str, node: DocumentNode<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.read_text(key, node)?.into_owned();
        if text.chars().any(char::is_control) {
            let message = format!("`{key}` must be a single line without control characters");
            let help = if key == "title" {
                "move the rest to `description`"
            } else {
                "remove the control characters"
            };
            self.faults.add_fault_with_help("plan::text", span, message, help);
            return None;
        }
        Some(text)
    }

    /// One line that says something.
    fn read_nonblank_line(&mut self, key: &str, node: DocumentNode<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.read_line(key, node)?;
        self.check_not_blank(key, span, text)
    }

    fn read_nonblank_text(&mut self, key: &str, node: DocumentNode<'_>) -> Option<String> {
        let span = node.span.clone();
        let text = self.read_text(key, node)?.into_owned();
        self.check_not_blank(key, span, text)
    }

    fn check_not_blank(&mut self, key: &str, span: Range<usize>, text: String) -> Option<String> {
        if text.trim().is_empty() {
            let message = format!("`{key}` is empty");
            self.faults.add_fault_with_help(
                "plan::text",
                span,
                message,
                "add text or remove the key",
            );
            return None;
        }
        Some(text)
    }

    fn read_list<'s>(&mut self, key: &str, node: DocumentNode<'s>) -> Vec<DocumentNode<'s>> {
        match node.value {
            DocumentValue::List(items) => items,
            DocumentValue::Null => Vec::new(),
            _ => {
                let help = match &node.value {
                    DocumentValue::Str(text) => format!("write [\"{}\"]", clip_text(text)),
                    _ => "use a list in square brackets".to_owned(),
                };
                self.report_wrong_type(key, &node, "a list", &help);
                Vec::new()
            }
        }
    }

    fn read_texts<'s, T>(
        &mut self,
        key: &str,
        node: DocumentNode<'s>,
        make: impl Fn(Cow<'s, str>) -> T,
    ) -> (Vec<T>, Vec<SourceSpan>) {
        let items = self.read_list(key, node);
        let mut texts = Vec::with_capacity(items.len());
        let mut spans = Vec::with_capacity(items.len());
        for item in items {
            let span = SourceSpan::from(&item.span);
            if item.value == DocumentValue::Null {
                self.report_wrong_type(key, &item, "a list of strings", "remove the empty entry");
            } else if let Some(text) = self.read_text(key, item) {
                texts.push(make(text));
                spans.push(span);
            }
        }
        (texts, spans)
    }

    /// Gates as lines: commands, kinds that start with `@`, and tables that stand for them.
    fn read_gates(&mut self, key: &str, node: DocumentNode<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        for item in self.read_list(key, node) {
            let span = item.span.clone();
            let line = match &item.value {
                DocumentValue::Table(entries) => document::gate_line(entries),
                _ => match self.read_nonblank_text(key, item) {
                    Some(line) => GateSpec::parse(&line).map(|_| line),
                    None => continue,
                },
            };
            match line {
                Ok(line) => lines.push(line),
                Err(why) => {
                    let (what, help) = why.split_once("; ").unwrap_or((&why, "fix the check"));
                    self.faults.add_fault_with_help(
                        "plan::gate",
                        span,
                        format!("`{key}`: {what}"),
                        help,
                    );
                }
            }
        }
        lines
    }

    fn read_int(&mut self, key: &str, node: DocumentNode<'_>, min: i64, max: i64) -> Option<i64> {
        match node.value {
            DocumentValue::Int(number) if (min..=max).contains(&number) => Some(number),
            DocumentValue::Int(number) => {
                let message = format!("`{key}` is {number}, which is not between {min} and {max}");
                self.faults.add_fault("plan::range", node.span, message);
                None
            }
            DocumentValue::Null => None,
            _ => {
                self.report_wrong_type(key, &node, "an integer", "use an integer without quotes");
                None
            }
        }
    }

    fn read_duration(&mut self, key: &str, node: DocumentNode<'_>) -> Option<u64> {
        let text = match &node.value {
            DocumentValue::Null => return None,
            DocumentValue::Str(text) => text,
            DocumentValue::Int(number) => {
                let help = format!("write \"{number}s\" for seconds or \"{number}m\" for minutes");
                self.report_wrong_type(key, &node, "a string with a unit", &help);
                return None;
            }
            _ => {
                self.report_wrong_type(
                    key,
                    &node,
                    "a string with a unit",
                    "use a value such as \"45m\"",
                );
                return None;
            }
        };
        match parse_duration_ms(text) {
            Ok(ms) => Some(ms),
            Err(help) => {
                let message = format!("invalid duration `{}` in `{key}`", clip_text(text));
                self.faults.add_fault_with_help("plan::duration", node.span, message, help);
                None
            }
        }
    }

    fn read_choice<T, const N: usize>(
        &mut self,
        key: &str,
        node: DocumentNode<'_>,
        words: [(&'static str, T); N],
    ) -> Option<T> {
        let span = node.span.clone();
        let text = self.read_text(key, node)?;
        let names = words.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        match words.into_iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Some(value),
            None => {
                let message = format!("invalid value `{}` for `{key}`", clip_text(&text));
                let help = match nearest_word(&text, names.iter().copied()) {
                    Some(word) => format!("did you mean `{word}`?"),
                    None => format!("use one of {}", names.join(", ")),
                };
                self.faults.add_fault_with_help("plan::choice", span, message, help);
                None
            }
        }
    }

    fn report_unknown_key(&mut self, holder: &str, key: &DocumentKey<'_>, known: &[&'static str]) {
        let message = format!("unknown key `{}` in {holder}", clip_text(&key.text));
        let help = match nearest_word(&key.text, known.iter().copied()) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("known keys: {}", known.join(", ")),
        };
        self.faults.add_fault_with_help("plan::unknown_key", key.span.clone(), message, help);
    }
}

#[cfg(test)]
mod tests;
