//! The plan that the run works off, with its revisions and the tasks that a revision dropped.

use std::collections::BTreeMap;

use crate::fact::Fact;
use crate::graph::{Graph, GraphError};
use crate::id::TaskId;
use crate::plan::Plan;
use crate::tasks::TaskState;

#[derive(Debug, Clone)]
pub(crate) struct AdoptedPlan {
    plan: Plan,
    graph: Graph,
    revision: u32,
    hash: String,
    /// The file that the plan was last read from.
    file: Option<String>,
    /// The file of the plan that is adopted next. Not journaled.
    next_file: Option<String>,
    dropped: BTreeMap<TaskId, TaskState>,
}

impl AdoptedPlan {
    /// The empty plan of a run that has adopted none.
    pub(crate) fn new() -> Self {
        let plan = Plan::default();
        let graph = Graph::new(&plan).expect("BUG: an empty plan has no cycle");
        Self {
            plan,
            graph,
            revision: 0,
            hash: String::new(),
            file: None,
            next_file: None,
            dropped: BTreeMap::new(),
        }
    }
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }
    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }
    /// The number of the revision; 0 before the first.
    pub(crate) fn revision(&self) -> u32 {
        self.revision
    }
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }
    pub(crate) fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }
    pub(crate) fn set_next_file(&mut self, file: Option<String>) {
        self.next_file = file;
    }
    pub(crate) fn take_next_file(&mut self) -> Option<String> {
        self.next_file.take()
    }
    pub(crate) fn dropped(&self) -> &BTreeMap<TaskId, TaskState> {
        &self.dropped
    }

    /// Folds a revision of the plan and returns the plan before.
    pub(crate) fn apply(&mut self, fact: &Fact) -> Result<Option<Plan>, GraphError> {
        let Fact::PlanAdopted { revision, hash, plan, file, .. } = fact else { return Ok(None) };
        self.revision = *revision;
        self.file = file.clone().or(self.file.take());
        hash.clone_into(&mut self.hash);
        self.graph = Graph::new(plan)?;
        Ok(Some(std::mem::replace(&mut self.plan, Plan::clone(plan))))
    }
    /// Remembers a task that the newest revision does not have.
    pub(crate) fn apply_dropped_task(&mut self, task: TaskId, state: TaskState) {
        self.dropped.insert(task, state);
    }
    /// A task that is in the plan again is no longer a dropped one.
    pub(crate) fn take_dropped_task(&mut self, task: &str) -> Option<TaskState> {
        self.dropped.remove(task)
    }
}
