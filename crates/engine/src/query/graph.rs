//! The dependency graph of a plan or a run, for programs.

use std::collections::HashSet;

use mainstem_api::graph::{GraphReport, GraphReportEdge, GraphReportNode};
use mainstem_core::graph::Graph;
use mainstem_core::id::TaskIx;
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;

use crate::query::RunReader;

/// Why a task waits for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphEdgeKind {
    Needs,
    After,
    /// The task's epic needs the other task's epic.
    Epic,
}

impl GraphEdgeKind {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Needs => "needs",
            Self::After => "after",
            Self::Epic => "epic",
        }
    }
}

impl RunReader {
    /// The graph of the run, with the phases of its tasks.
    pub fn graph(&self) -> GraphReport {
        let phases: Vec<Phase> =
            self.machine.tasks().all_tasks().map(|t| self.machine.tasks().phase(t)).collect();
        describe_graph(self.machine.plan(), self.machine.graph(), Some(&phases))
    }
}

/// The graph of a plan, with the phases of its tasks if it is being run.
pub fn describe_graph(plan: &Plan, graph: &Graph, phases: Option<&[Phase]>) -> GraphReport {
    let node = |task: TaskIx| {
        let about = &plan.tasks[task.index()];
        let phase = phases.and_then(|phases| phases.get(task.index()));
        GraphReportNode {
            id: about.id.to_string(),
            title: about.title.clone(),
            epic: about.epic.as_ref().map(ToString::to_string),
            level: graph.level(task) as u64 + 1,
            phase: phase.map(|phase| phase.as_str().to_owned()),
        }
    };
    let path = graph.critical_path(|task| plan.tasks[task.index()].effort.weight());
    GraphReport {
        nodes: graph.tasks().map(node).collect(),
        edges: describe_edges(plan, graph),
        levels: describe_levels(plan, graph),
        critical_path: path.into_iter().map(|task| name_of(plan, task)).collect(),
    }
}

/// Every edge, from the task that comes first to the one that waits for it.
pub fn list_graph_edges(plan: &Plan, graph: &Graph) -> Vec<(TaskIx, TaskIx, GraphEdgeKind)> {
    let mut edges = Vec::new();
    for task in graph.tasks() {
        let own: HashSet<&str> =
            plan.tasks[task.index()].needs.iter().map(|id| id.as_str()).collect();
        for needed in graph.needs(task) {
            let kind = match own.contains(plan.tasks[needed.index()].id.as_str()) {
                true => GraphEdgeKind::Needs,
                false => GraphEdgeKind::Epic,
            };
            edges.push((needed, task, kind));
        }
        edges.extend(graph.soft_needs(task).map(|before| (before, task, GraphEdgeKind::After)));
    }
    edges
}

/// The edges by the names of their tasks.
pub fn describe_edges(plan: &Plan, graph: &Graph) -> Vec<GraphReportEdge> {
    let edges = list_graph_edges(plan, graph).into_iter();
    edges
        .map(|(from, to, kind)| GraphReportEdge {
            from: name_of(plan, from),
            to: name_of(plan, to),
            kind: kind.as_str().to_owned(),
        })
        .collect()
}

/// The names of the tasks that could run together, level by level.
pub fn describe_levels(plan: &Plan, graph: &Graph) -> Vec<Vec<String>> {
    let names = |level: Vec<TaskIx>| level.into_iter().map(|task| name_of(plan, task)).collect();
    graph.levels().into_iter().map(names).collect()
}

fn name_of(plan: &Plan, task: TaskIx) -> String {
    plan.tasks[task.index()].id.to_string()
}
