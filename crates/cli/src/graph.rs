//! A plan's graph for people and programs: a picture, a list, Mermaid, JSON.
//!
//! Pure: a plan, its graph and perhaps the tasks' phases go in, text comes out.

mod canvas;
mod layout;

use std::collections::HashSet;
use std::fmt::Write as _;

use anstyle::Style;
use mainstem_api::graph::GraphReport;
use mainstem_core::graph::Graph;
use mainstem_core::id::TaskIx;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::Plan;
use mainstem_engine::query::graph::{GraphEdgeKind, describe_graph, list_graph_edges};
use unicode_width::UnicodeWidthStr;

use crate::output;
use canvas::GraphNodeBox;
use layout::GraphEdge;

/// Larger graphs are listed: nobody follows lines through more boxes.
const DRAWN_MAX: usize = 80;
/// A picture with more rows of boxes than this scrolls away before it is understood.
const ROWS_MAX: usize = 40;
/// Titles are cut to one of these widths, the first with which the picture fits; else there is none.
const TITLES: [usize; 5] = [30, 22, 16, 11, 8];
/// Titles that would make more rows than ids alone need are not worth it beyond this many.
const EXTRA_ROWS: usize = 1;

/// A plan and its graph, with where its tasks stand if it is being run.
#[derive(Clone, Copy)]
pub(crate) struct GraphSubject<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) graph: &'a Graph,
    /// Phases by task, if there are any.
    pub(crate) phases: Option<&'a [Phase]>,
}

impl<'a> GraphSubject<'a> {
    /// A plan nobody runs.
    pub(crate) fn without_run(plan: &'a Plan, graph: &'a Graph) -> Self {
        Self { plan, graph, phases: None }
    }

    fn task_id(&self, task: TaskIx) -> &'a str {
        self.plan.tasks[task.index()].id.as_str()
    }

    fn task_phase(&self, task: TaskIx) -> Option<Phase> {
        self.phases.and_then(|phases| phases.get(task.index()).copied())
    }

    /// Every edge, from the task that comes first to the one that waits for it.
    pub(crate) fn list_edges(&self) -> Vec<(TaskIx, TaskIx, GraphEdgeKind)> {
        list_graph_edges(self.plan, self.graph)
    }

    /// The graph for programs.
    pub(crate) fn report(&self) -> GraphReport {
        describe_graph(self.plan, self.graph, self.phases)
    }

    /// The longest way through, by effort.
    pub(crate) fn critical_path(&self) -> Vec<TaskIx> {
        self.graph.critical_path(|task| self.plan.tasks[task.index()].effort.weight())
    }

    /// The critical path as ids.
    pub(crate) fn critical_ids(&self) -> Vec<&'a str> {
        self.critical_path().into_iter().map(|task| self.task_id(task)).collect()
    }
}

/// The graph as boxes and lines, or as a list that says why it is none.
pub(crate) fn render_picture(subject: GraphSubject<'_>, width: usize, color: bool) -> String {
    let tasks = subject.graph.len();
    if tasks > DRAWN_MAX {
        let why = format!("graph too large to draw ({tasks} tasks)");
        return render_list(subject, &why, width, color);
    }
    let edges: Vec<GraphEdge> = subject
        .list_edges()
        .into_iter()
        .map(|(from, to, why)| GraphEdge {
            from: from.index(),
            to: to.index(),
            soft: why == GraphEdgeKind::After,
        })
        .collect();
    let order: Vec<usize> =
        subject.graph.levels().into_iter().flatten().map(TaskIx::index).collect();
    let (edges, implied) = layout::drop_implied_edges(tasks, &order, &edges);
    let Some((layout, faces)) = fit_layout(subject, &order, &edges, width) else {
        return render_list(subject, &format!("graph too wide for {width} columns"), width, color);
    };
    let mut out = canvas::draw_layout(&layout, &faces, color);
    out.push_str(&render_legend(subject, &edges, implied));
    out
}

/// The layout with the longest titles that cost no height.
fn fit_layout(
    subject: GraphSubject<'_>,
    order: &[usize],
    edges: &[GraphEdge],
    width: usize,
) -> Option<(layout::GraphLayout, Vec<GraphNodeBox>)> {
    let attempt = |title: usize| {
        let faces = node_boxes(subject, title);
        let widths: Vec<usize> = faces.iter().map(GraphNodeBox::width).collect();
        let layout = layout::lay_out_graph(order, &widths, edges, width)?;
        (layout.rows.len() <= ROWS_MAX).then_some((layout, faces))
    };
    let bare = attempt(0)?;
    let rows = bare.0.rows.len() + EXTRA_ROWS;
    let titled = TITLES
        .iter()
        .find_map(|title| attempt(*title).filter(|(layout, _)| layout.rows.len() <= rows));
    Some(titled.unwrap_or(bare))
}

fn node_boxes(subject: GraphSubject<'_>, title: usize) -> Vec<GraphNodeBox> {
    let critical: HashSet<TaskIx> = subject.critical_path().into_iter().collect();
    let face = |task: TaskIx| {
        let phase = subject.task_phase(task);
        let sign = phase.map(|phase| format!("{} ", output::phase_sign(phase))).unwrap_or_default();
        let mut label = format!("{sign}{}", subject.task_id(task));
        let words = output::sanitize_text(&subject.plan.tasks[task.index()].title);
        if title > 0 && !words.is_empty() {
            let _ = write!(label, " {}", output::truncate_to_width(&words, title));
        }
        let style = phase.map(output::phase_style).unwrap_or_default();
        GraphNodeBox { label, style, heavy: critical.len() > 1 && critical.contains(&task) }
    };
    subject.graph.tasks().map(face).collect()
}

fn render_legend(subject: GraphSubject<'_>, edges: &[GraphEdge], implied: usize) -> String {
    let mut notes = Vec::new();
    if subject.critical_path().len() > 1 {
        notes.push("heavy: critical path".to_owned());
    }
    if edges.iter().any(|edge| edge.soft) {
        notes.push("dotted: order only".to_owned());
    }
    if implied > 0 {
        let noun = if implied == 1 { "edge" } else { "edges" };
        notes.push(format!("{implied} redundant {noun} hidden"));
    }
    if notes.is_empty() { String::new() } else { format!("{}\n", notes.join(" · ")) }
}

/// Levels, one line each, and under them who waits for whom.
fn render_list(subject: GraphSubject<'_>, why: &str, width: usize, color: bool) -> String {
    let mut out = render_levels(subject, width, color);
    let edges = subject.list_edges();
    if !edges.is_empty() {
        out.push('\n');
    }
    for task in subject.graph.tasks() {
        let of = |wanted: fn(GraphEdgeKind) -> bool, word: &str| {
            let ids: Vec<&str> = edges_into(&edges, task)
                .iter()
                .filter(|(_, _, why)| wanted(*why))
                .map(|(from, _, _)| subject.task_id(*from))
                .collect();
            let shown = ids.iter().take(8).copied().collect::<Vec<_>>().join(" ");
            let rest = ids.len().saturating_sub(8);
            let rest = if rest > 0 { format!(" … {rest} more") } else { String::new() };
            (!ids.is_empty()).then(|| format!("{word} {shown}{rest}"))
        };
        let parts: Vec<String> = [
            of(|why| why != GraphEdgeKind::After, "needs"),
            of(|why| why == GraphEdgeKind::After, "after"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !parts.is_empty() {
            let _ = writeln!(out, "{} {}", subject.task_id(task), parts.join("; "));
        }
    }
    let _ =
        writeln!(out, "\n{why}; listing tasks instead. For an external viewer: --format mermaid");
    out
}

/// The edges that end at a task; edges are sorted by where they end.
fn edges_into(
    edges: &[(TaskIx, TaskIx, GraphEdgeKind)],
    task: TaskIx,
) -> &[(TaskIx, TaskIx, GraphEdgeKind)] {
    let start = edges.partition_point(|(_, to, _)| *to < task);
    let end = edges.partition_point(|(_, to, _)| *to <= task);
    &edges[start..end]
}

/// The levels: what could run together if there were agents enough.
pub(crate) fn render_levels(subject: GraphSubject<'_>, width: usize, color: bool) -> String {
    let levels = subject.graph.levels();
    let digits = levels.len().to_string().len();
    let mut out = String::new();
    for (level, tasks) in levels.iter().enumerate() {
        let mut used = digits + 2;
        let _ = write!(out, "{:>digits$}:", level + 1);
        for task in tasks {
            let phase = subject.task_phase(*task);
            let sign =
                phase.map(|phase| format!("{} ", output::phase_sign(phase))).unwrap_or_default();
            let word = format!("{sign}{}", subject.task_id(*task));
            if used + word.width() + 1 > width.max(40) {
                let _ = write!(out, "\n{}", " ".repeat(digits + 1));
                used = digits + 2;
            }
            used += word.width() + 1;
            let style = phase.map(output::phase_style).unwrap_or_default();
            out.push(' ');
            out.push_str(&if style == Style::new() {
                word
            } else {
                output::paint_text(&word, style, color)
            });
        }
        out.push('\n');
    }
    out
}

pub(crate) fn render_mermaid(subject: GraphSubject<'_>) -> String {
    let mut out = String::from("flowchart TD\n");
    let node = |task: TaskIx| {
        let title = &subject.plan.tasks[task.index()].title;
        let gap = if title.is_empty() { "" } else { " " };
        let class = subject.task_phase(task).map(|phase| format!(":::{}", phase.as_str()));
        let label = format!("{}{gap}{}", subject.task_id(task), escape_label(title));
        format!("t{}[\"{label}\"]{}", task.0, class.unwrap_or_default())
    };
    let of_epic = |epic: Option<&str>| -> Vec<TaskIx> {
        let own =
            |t: &TaskIx| subject.plan.tasks[t.index()].epic.as_ref().map(|id| id.as_str()) == epic;
        subject.graph.tasks().filter(own).collect()
    };
    for (i, epic) in subject.plan.epics.iter().enumerate() {
        let tasks = of_epic(Some(epic.id.as_str()));
        if tasks.is_empty() {
            continue;
        }
        let gap = if epic.title.is_empty() { "" } else { " " };
        let _ = writeln!(out, "  subgraph e{i}[\"{}{gap}{}\"]", epic.id, escape_label(&epic.title));
        for task in tasks {
            let _ = writeln!(out, "    {}", node(task));
        }
        out.push_str("  end\n");
    }
    of_epic(None).into_iter().for_each(|task| {
        let _ = writeln!(out, "  {}", node(task));
    });
    for (from, to, why) in subject.list_edges() {
        let arrow = if why == GraphEdgeKind::After { "-.->" } else { "-->" };
        let _ = writeln!(out, "  t{} {arrow} t{}", from.0, to.0);
    }
    if subject.phases.is_some() {
        for phase in PHASES {
            let _ = writeln!(out, "  classDef {} {}", phase.as_str(), phase_color(phase));
        }
    }
    out
}

/// Text that cannot end a Mermaid label nor be taken for markup.
fn escape_label(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '#' | '&' | '<' | '>' | '[' | ']' | '{' | '}' | '(' | ')' | '|' | '`' | '\\'
            | ';' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn phase_color(phase: Phase) -> &'static str {
    match phase {
        Phase::Waiting => "fill:#f0f0f0,stroke:#999,color:#333",
        Phase::Ready => "fill:#ffffff,stroke:#333,color:#111",
        Phase::Preparing | Phase::Working => "fill:#d6f0f7,stroke:#0c7d9d,color:#111",
        Phase::Asking => "fill:#fff3c4,stroke:#b38600,color:#111",
        Phase::Verifying | Phase::Merging => "fill:#dbe4ff,stroke:#3b5bdb,color:#111",
        Phase::Landed => "fill:#d3f9d8,stroke:#2b8a3e,color:#111",
        Phase::Conflicted | Phase::Failed => "fill:#ffe3e3,stroke:#c92a2a,color:#111",
        Phase::Blocked => "fill:#f3d9fa,stroke:#862e9c,color:#111",
        Phase::Cancelled | Phase::Skipped => "fill:#f8f9fa,stroke:#adb5bd,color:#666",
    }
}

#[cfg(test)]
mod tests;
