//! What `graph --json` prints: the tasks, their dependencies and the critical path.

use serde::{Deserialize, Serialize};

/// The dependency graph of a plan or a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphReport {
    pub nodes: Vec<GraphReportNode>,
    pub edges: Vec<GraphReportEdge>,
    /// The tasks that could run together, level by level.
    pub levels: Vec<Vec<String>>,
    /// The longest chain of dependencies by effort.
    pub critical_path: Vec<String>,
}

/// A task of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphReportNode {
    pub id: String,
    pub title: String,
    pub epic: Option<String>,
    /// Its level, from 1.
    pub level: u64,
    /// Where it stands; absent if the plan is not being run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// A dependency: `to` waits for `from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphReportEdge {
    pub from: String,
    pub to: String,
    /// `needs`, `after` or `epic`.
    pub kind: String,
}
