//! From a plan of ours to other tools' files, and to pictures of it.
//!
//! One function per format: the plan, its edges and where its tasks stand go in, files come out.
//! What a format has no place for is named, not dropped in silence. Knows no files.

mod folders;
mod graphs;
mod lists;
mod objects;
mod raven;
mod toml;

use std::collections::BTreeMap;

use mainstem_core::graph::{Graph, GraphError};
use mainstem_core::id::TaskIx;
use mainstem_core::plan::{Plan, Task, TaskEffort, TaskFailureAction};

use crate::import::{SourceTaskState, ToolFormat};

pub use self::toml::plan_to_toml;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportTarget {
    Tool(ToolFormat),
    /// A plan of ours in TOML.
    Toml,
    /// A plan of ours in JSON.
    Json,
    Mermaid,
    Dot,
    /// A table of all tasks with a picture, in Markdown.
    Index,
    /// Boxes by phase with counts, in Markdown.
    Progress,
}

/// Targets that are no tool's format, by name.
const OWN: [(ExportTarget, &str); 6] = [
    (ExportTarget::Toml, "toml"),
    (ExportTarget::Json, "json"),
    (ExportTarget::Mermaid, "mermaid"),
    (ExportTarget::Dot, "dot"),
    (ExportTarget::Index, "index"),
    (ExportTarget::Progress, "progress"),
];

impl ExportTarget {
    /// By its name on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        let own = OWN.iter().find(|(_, known)| name.eq_ignore_ascii_case(known));
        own.map(|(target, _)| *target).or_else(|| ToolFormat::from_name(name).map(Self::Tool))
    }

    pub fn names() -> Vec<&'static str> {
        let tools = crate::import::FORMATS.iter().map(|(_, name, _)| *name);
        tools.chain(OWN.iter().map(|(_, name)| *name)).collect()
    }
}

/// Files of a format, and what is not in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportedFiles {
    /// Relative path and text. One file whose path is empty may go to standard output.
    pub files: Vec<(String, String)>,
    /// Our id and theirs, where they differ.
    pub ids: Vec<(String, String)>,
    /// What the format has no place for.
    pub lost: Vec<String>,
}

impl ExportedFiles {
    fn single_file(path: &str, text: String) -> Self {
        Self { files: vec![(path.to_owned(), text)], ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ExportOptions {
    /// The number of the first task, where a format numbers; 0 is taken for 1.
    pub start_id: usize,
}

/// A plan with everything that exporters ask about it.
struct ExportView<'a> {
    plan: &'a Plan,
    graph: Graph,
    /// Hard edges, those of epics included.
    needs: Vec<Vec<usize>>,
    states: Vec<SourceTaskState>,
    /// Titles and members: epics in order, then tasks of none.
    groups: Vec<(&'a str, &'a str, Vec<usize>)>,
}

impl<'a> ExportView<'a> {
    fn new(plan: &'a Plan, states: &BTreeMap<String, SourceTaskState>) -> Result<Self, GraphError> {
        let graph = Graph::new(plan)?;
        let needs =
            graph.tasks().map(|task| graph.needs(task).map(TaskIx::index).collect()).collect();
        let state = |task: &Task| states.get(task.id.as_str()).copied().unwrap_or_default();
        let mut groups: Vec<(&str, &str, Vec<usize>)> = plan
            .epics
            .iter()
            .map(|epic| (epic.id.as_str(), epic.title.as_str(), Vec::new()))
            .collect();
        let place: BTreeMap<&str, usize> =
            groups.iter().enumerate().map(|(i, (id, ..))| (*id, i)).collect();
        let mut loose = Vec::new();
        for (i, task) in plan.tasks.iter().enumerate() {
            let epic = task.epic.as_ref().and_then(|epic| place.get(epic.as_str()));
            match epic {
                Some(epic) => groups[*epic].2.push(i),
                None => loose.push(i),
            }
        }
        groups.push(("", "", loose));
        groups.retain(|(.., members)| !members.is_empty());
        let states = plan.tasks.iter().map(state).collect();
        Ok(Self { plan, graph, needs, states, groups })
    }

    fn task(&self, at: usize) -> &'a Task {
        &self.plan.tasks[at]
    }

    fn level(&self, at: usize) -> u32 {
        self.graph.level(TaskIx(at as u32))
    }

    fn heading(&self, at: usize) -> String {
        match self.groups[at] {
            ("", ..) => "Tasks".to_owned(),
            (id, "", _) => id.to_owned(),
            (_, title, _) => title.to_owned(),
        }
    }

    /// The title, or the first line of the description, or the id.
    fn title(&self, at: usize) -> String {
        let task = self.task(at);
        let first = task.description.lines().next().unwrap_or_default();
        let named = [task.title.as_str(), first, task.id.as_str()];
        let text = named.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
        crate::text_forms::collapse_to_line(text)
    }
}

/// Writes a plan in a format. `states` by our ids; missing ones are open.
pub fn export_plan(
    plan: &Plan,
    states: &BTreeMap<String, SourceTaskState>,
    target: ExportTarget,
    options: &ExportOptions,
) -> Result<ExportedFiles, GraphError> {
    let view = ExportView::new(plan, states)?;
    let view = &view;
    let start = options.start_id.max(1);
    let mut out = match target {
        ExportTarget::Toml => ExportedFiles::single_file("plan.toml", plan_to_toml(plan)),
        ExportTarget::Json => ExportedFiles::single_file("plan.json", objects::plan_to_json(plan)),
        ExportTarget::Mermaid => {
            ExportedFiles::single_file("plan.mmd", graphs::render_mermaid(view))
        }
        ExportTarget::Dot => ExportedFiles::single_file("plan.dot", graphs::render_dot(view)),
        ExportTarget::Index => {
            ExportedFiles::single_file("INDEX.md", raven::render_index(view, &raven::own_ids(view)))
        }
        ExportTarget::Progress => ExportedFiles::single_file(
            "PROGRESS.md",
            raven::render_progress(view, &raven::own_ids(view)),
        ),
        ExportTarget::Tool(format) => match format {
            ToolFormat::SpecKit
            | ToolFormat::OpenSpec
            | ToolFormat::Kiro
            | ToolFormat::Checklist => lists::export_checklist(view, format, start),
            ToolFormat::TaskMaster => objects::export_taskmaster(view, start),
            ToolFormat::Beads => objects::export_beads(view),
            ToolFormat::Ralph => objects::export_ralph(view, start),
            ToolFormat::GitHub => objects::export_github(view, start),
            ToolFormat::Workers => lists::export_worker_spec(view),
            ToolFormat::Backlog => folders::export_backlog(view),
            ToolFormat::Gsd => folders::export_gsd(view),
            ToolFormat::PlanFolder => folders::export_plan_folder(view),
            ToolFormat::Raven => raven::export_raven(view, start),
        },
    };
    if let ExportTarget::Tool(format) = target {
        out.lost = lost_keys(plan, format);
    }
    Ok(out)
}

/// Keys of the plan that a format has no place for.
fn lost_keys(plan: &Plan, format: ToolFormat) -> Vec<String> {
    use ToolFormat::{Beads, GitHub, Gsd, Raven, TaskMaster, Workers};
    let has = |test: fn(&Task) -> bool| plan.tasks.iter().filter(|task| test(task)).count();
    let keeps_priority =
        matches!(format, Beads | Raven | TaskMaster | Workers | ToolFormat::Backlog | GitHub);
    let keeps_effort = matches!(format, Beads | Raven | TaskMaster | Workers);
    let keeps_writes =
        matches!(format, Gsd | TaskMaster | Workers | ToolFormat::Backlog | ToolFormat::PlanFolder);
    let checks: [(&str, usize, bool); 11] = [
        ("after", has(|task| !task.after.is_empty()), format == Beads),
        ("priority", has(|task| task.priority != 0), keeps_priority),
        ("effort", has(|task| task.effort != TaskEffort::Medium), keeps_effort),
        ("writes", has(|task| !task.writes.is_empty()), keeps_writes),
        ("agent", has(|task| task.agent.is_some()), false),
        ("role", has(|task| task.role.is_some()), format == Workers),
        ("model", has(|task| task.model.is_some()), false),
        ("verify", has(|task| !task.verify.is_empty()), format == Workers),
        ("run", has(|task| task.run.is_some() || !task.script.is_empty()), false),
        (
            "timeout and retries",
            has(|task| task.timeout_ms.is_some() || task.retries.is_some()),
            false,
        ),
        (
            "on_failure",
            has(|task| task.on_failure != TaskFailureAction::Block),
            format == ToolFormat::Kiro,
        ),
    ];
    checks
        .iter()
        .filter(|(_, count, kept)| *count > 0 && !kept)
        .map(|(key, count, _)| {
            format!("{key} of {count} {}", if *count == 1 { "task" } else { "tasks" })
        })
        .collect()
}

#[cfg(test)]
mod tests;
