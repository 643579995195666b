//! From other tools' task files to a plan of ours.
//!
//! Each format has one file that reads texts into `Entry`s: tasks and groups under their own ids,
//! with the bytes at which their status stands. What is common is here and in `assemble`: ids that
//! are safe, edges of groups, order, what is left out, what would be lost. Imported text is data:
//! commands found in it are listed, and become gates only if asked for. Knows no files.

mod assemble;
mod backlog;
mod beads;
mod checklist;
mod detect;
mod plan_folder;
mod github;
mod gsd;
mod ralph;
mod raven;
mod taskmaster;
mod workers;

pub use workers::{WorkerSpec, read_worker_spec};

use std::collections::BTreeMap;
use std::ops::Range;

use mainstem_core::diagnostic::{Diagnostic, LineIndex};
use mainstem_core::plan::document::DocumentNode;
use mainstem_core::plan::{Plan, TaskEffort};

use crate::import_source::{ImportSource, SourceFile};
use crate::lenient_tree;

pub use detect::detect_formats;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolFormat {
    SpecKit,
    OpenSpec,
    Kiro,
    /// Any Markdown file with `- [ ]` items.
    Checklist,
    TaskMaster,
    Backlog,
    Ralph,
    Gsd,
    /// Beads JSONL or the output of `bd … --json`.
    Beads,
    /// Raven task folder with `task-state.conf`.
    Raven,
    /// Batch spec of parallel workers, YAML.
    Workers,
    PlanFolder,
    /// Issues as `gh issue list --json …` prints them.
    GitHub,
}

/// Every format with its name on the command line and what it reads.
pub const FORMATS: [(ToolFormat, &str, &str); 13] = [
    (ToolFormat::SpecKit, "spec-kit", "specs/NNN-name/tasks.md of GitHub spec-kit"),
    (ToolFormat::OpenSpec, "openspec", "openspec/changes/ID/tasks.md"),
    (ToolFormat::Kiro, "kiro", ".kiro/specs/NAME/tasks.md"),
    (ToolFormat::Checklist, "checklist", "any Markdown file with `- [ ]` lines"),
    (ToolFormat::TaskMaster, "task-master", ".taskmaster/tasks/tasks.json"),
    (ToolFormat::Backlog, "backlog", "backlog/tasks/*.md of Backlog.md"),
    (ToolFormat::Ralph, "ralph", "prd.json with user stories"),
    (ToolFormat::Gsd, "gsd", ".planning/phases/NN-x/NN-MM-PLAN.md"),
    (ToolFormat::Beads, "beads", ".beads/issues.jsonl, or the output of bd list --json"),
    (ToolFormat::Raven, "raven", "a folder of T-001-name.md with task-state.conf and phases.conf"),
    (ToolFormat::Workers, "workers", "a batch spec of parallel workers (YAML)"),
    (ToolFormat::PlanFolder, "plan-folder", ".plan/EPIC/tasks/NNN_name.md"),
    (ToolFormat::GitHub, "github", "issues in JSON, as gh issue list --json prints them"),
];

impl ToolFormat {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("", |(_, name, _)| name)
    }

    /// By its name; `auto` and unknown ones are none.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let plain = name.replace(['-', '_', '.'], "");
        let same = |known: &str| known.replace('-', "") == plain;
        let alias = match plain.as_str() {
            "markdown" | "md" | "plain" => Some(Self::Checklist),
            "backlogmd" => Some(Self::Backlog),
            "bd" => Some(Self::Beads),
            "plan" | "dotplan" => Some(Self::PlanFolder),
            _ => None,
        };
        alias.or_else(|| FORMATS.iter().find(|(_, name, _)| same(name)).map(|(format, ..)| *format))
    }
}

/// Where a task stands in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SourceTaskState {
    #[default]
    Open,
    Doing,
    Blocked,
    Held,
    Done,
    Dropped,
}

impl SourceTaskState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Doing => "doing",
            Self::Blocked => "blocked",
            Self::Held => "held",
            Self::Done => "done",
            Self::Dropped => "dropped",
        }
    }
}

/// A place in a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SourceLocation {
    /// Relative to the source's root.
    pub file: String,
    pub line: usize,
}

/// Bytes that say where a task stands, and what to write there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStatusMark {
    /// Relative to the source's root.
    pub file: String,
    /// Empty where the status must be put in.
    pub span: Range<usize>,
    /// For states the format has words for.
    pub words: Vec<(SourceTaskState, String)>,
}

/// A task or a group of tasks, as its source has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportEntry {
    pub(crate) id: String,
    /// The id of its group.
    pub(crate) parent: Option<String>,
    /// A group even without members; others become groups by having members.
    pub(crate) group: bool,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) acceptance: Vec<String>,
    /// Written down by somebody. Names of tasks or groups.
    pub(crate) needs: Vec<String>,
    /// Written down as an order that does not block.
    pub(crate) after: Vec<String>,
    /// Follows from the place in the file.
    pub(crate) order: Vec<String>,
    pub(crate) writes: Vec<String>,
    pub(crate) role: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) effort: TaskEffort,
    pub(crate) priority: i64,
    pub(crate) state: SourceTaskState,
    /// Nice to have: its failure blocks nothing.
    pub(crate) optional: bool,
    /// Why it is not free to be worked on although it is not finished, such as "in progress (bob)".
    pub(crate) unavailable: Option<String>,
    pub(crate) place: SourceLocation,
    pub(crate) marks: Vec<SourceStatusMark>,
    pub(crate) commands: Vec<String>,
}

/// A command found in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportCommand {
    /// Our id of its task.
    pub task: String,
    /// Where it was found.
    pub place: SourceLocation,
    pub text: String,
}

/// Something to know about one place of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportNotice {
    pub place: SourceLocation,
    pub message: String,
}

/// A field that the plan has no place for. It stays in the source, and a push leaves it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportLostField {
    /// How often it was found.
    pub count: usize,
    pub first: SourceLocation,
}

/// A task of the source and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRow {
    pub theirs: String,
    pub ours: String,
    pub title: String,
    /// Where it stands there.
    pub state: SourceTaskState,
    pub place: SourceLocation,
    /// False if it is left out of the plan: done, called off or put off.
    pub kept: bool,
}

/// What to take over.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImportOptions {
    /// Commands found in the text become gates of their tasks.
    pub commands: bool,
    /// Also tasks that are done, called off or put off.
    pub all: bool,
    /// What the order of tasks in a file means.
    pub order: ImportOrder,
}

/// What the order of tasks in a file means, where nothing more exact is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImportOrder {
    /// Each needs what stands before it.
    #[default]
    Needs,
    /// Each comes after what stands before it, whatever became of that.
    After,
    Free,
}

/// What was read, and the plan it makes.
#[derive(Debug, Clone)]
pub struct ImportedPlan {
    pub format: ToolFormat,
    pub plan: Plan,
    /// Every task of the source.
    pub rows: Vec<ImportRow>,
    pub notices: Vec<ImportNotice>,
    /// Fields that the plan has no place for.
    pub lost: BTreeMap<String, ImportLostField>,
    /// Commands found; gates of the plan only if accepted.
    pub commands: Vec<ImportCommand>,
    pub(crate) entries: Vec<ImportEntry>,
    /// Our id of each entry that is a task.
    pub(crate) ids: Vec<Option<String>>,
}

/// A source that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanImportError {
    /// The file, as its user knows it.
    pub file: String,
    pub text: String,
    pub diagnostics: Vec<Diagnostic>,
}

impl PlanImportError {
    fn new(source: &ImportSource, file: &SourceFile, diagnostics: Vec<Diagnostic>) -> Self {
        Self { file: source.full_path(&file.path), text: file.text.clone(), diagnostics }
    }

    fn for_source(source: &ImportSource, message: String, help: &str) -> Self {
        let fault = Diagnostic {
            code: "import::nothing",
            message,
            span: 0..0,
            line: 1,
            column: 1,
            help: Some(help.to_owned()),
        };
        Self { file: source.name.clone(), text: String::new(), diagnostics: vec![fault] }
    }
}

/// What a reader collects.
#[derive(Debug, Default)]
pub(crate) struct ImportReading {
    pub(crate) title: String,
    pub(crate) entries: Vec<ImportEntry>,
    pub(crate) notices: Vec<ImportNotice>,
    pub(crate) lost: BTreeMap<String, ImportLostField>,
}

impl ImportReading {
    fn add_notice(&mut self, place: &SourceLocation, message: impl Into<String>) {
        self.notices.push(ImportNotice { place: place.clone(), message: message.into() });
    }

    fn add_lost_field(&mut self, field: &str, place: &SourceLocation) {
        let lost = self.lost.entry(field.to_owned()).or_default();
        if lost.count == 0 {
            lost.first = place.clone();
        }
        lost.count += 1;
    }

    /// Counts every filled key that is not among those the reader takes.
    fn add_lost_keys(
        &mut self,
        node: &DocumentNode<'_>,
        taken: &[&str],
        prefix: &str,
        place: &SourceLocation,
    ) {
        for key in lenient_tree::key_names(node) {
            let empty = lenient_tree::get_key(node, key).is_none_or(is_blank_node);
            if !taken.contains(&key) && !empty {
                self.add_lost_field(&format!("{prefix}{key}"), place);
            }
        }
    }
}

fn is_blank_node(node: &DocumentNode<'_>) -> bool {
    use mainstem_core::plan::document::DocumentValue;
    match &node.value {
        DocumentValue::Null => true,
        DocumentValue::Str(text) => text.trim().is_empty(),
        DocumentValue::List(items) => items.is_empty(),
        DocumentValue::Table(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Reads a source of a known format.
pub fn import_plan(
    source: &ImportSource,
    format: ToolFormat,
    accept: &ImportOptions,
) -> Result<ImportedPlan, PlanImportError> {
    let reading = match format {
        ToolFormat::SpecKit | ToolFormat::OpenSpec | ToolFormat::Kiro | ToolFormat::Checklist => {
            checklist::read_checklists(source, format)?
        }
        ToolFormat::TaskMaster => taskmaster::read_taskmaster(source)?,
        ToolFormat::Backlog => backlog::read_backlog(source)?,
        ToolFormat::Ralph => ralph::read_ralph(source)?,
        ToolFormat::Gsd => gsd::read_gsd(source)?,
        ToolFormat::Beads => beads::read_beads(source)?,
        ToolFormat::Raven => raven::read_raven(source)?,
        ToolFormat::Workers => workers::read_workers(source)?,
        ToolFormat::PlanFolder => plan_folder::read_plan_folder(source)?,
        ToolFormat::GitHub => github::read_github(source)?,
    };
    if reading.entries.iter().all(|entry| entry.group) {
        let what =
            FORMATS.iter().find(|(known, ..)| *known == format).map_or("", |(.., what)| what);
        let message = format!("no tasks in the format {} found", format.name());
        return Err(PlanImportError::for_source(
            source,
            message,
            &format!("{} reads {what}", format.name()),
        ));
    }
    Ok(assemble::assemble_import(format, reading, accept))
}

/// The one file of a format that has one: by the end of its name, else the first that may hold such data.
/// A file that stands alone and whose name tells nothing is read too.
fn find_only_file<'s>(
    source: &'s ImportSource,
    names: &[&str],
    kinds: &[&str],
) -> Option<&'s SourceFile> {
    let ends = |file: &&SourceFile, ends: &[&str]| ends.iter().any(|end| file.path.ends_with(end));
    let named = source.files.iter().find(|file| ends(file, names));
    let likely = named.or_else(|| source.files.iter().find(|file| ends(file, kinds)));
    likely.or(match source.files.as_slice() {
        [only] if !only.path.contains('.') => Some(only),
        _ => None,
    })
}

/// Places in one file.
struct SourceLocator<'a> {
    file: &'a str,
    lines: LineIndex<'a>,
}

impl<'a> SourceLocator<'a> {
    fn new(file: &'a SourceFile) -> Self {
        Self { file: &file.path, lines: LineIndex::new(&file.text) }
    }

    fn location_at(&self, offset: usize) -> SourceLocation {
        SourceLocation { file: self.file.to_owned(), line: self.lines.line_and_column(offset).0 }
    }
}

/// Commands that a criterion names outright: `cmd: …`, `run: …`, `$ …`.
fn find_commands(texts: &[String]) -> Vec<String> {
    let named = |text: &String| {
        let text = text.trim();
        let rest = ["cmd:", "command:", "run:", "verify:", "$ "].iter().find_map(|start| {
            let head = text.get(..start.len())?;
            head.eq_ignore_ascii_case(start).then(|| &text[start.len()..])
        })?;
        let rest = rest.trim().trim_matches('`').trim();
        (!rest.is_empty()).then(|| rest.to_owned())
    };
    texts.iter().filter_map(named).collect()
}

/// Our effort for hours of work.
fn effort_from_hours(hours: f64) -> TaskEffort {
    if hours <= 1.0 {
        TaskEffort::Small
    } else if hours <= 6.0 {
        TaskEffort::Medium
    } else {
        TaskEffort::Large
    }
}

/// Texts under headings, the empty ones left out.
fn join_sections(parts: &[(&str, Option<String>)]) -> String {
    let mut out = String::new();
    for (head, text) in parts {
        let text = text.as_deref().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push_str("\n\n");
        }
        if !head.is_empty() {
            out.push_str(head);
            out.push_str(":\n");
        }
        out.push_str(text);
    }
    out
}

#[cfg(test)]
mod tests;
