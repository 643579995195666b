//! A new plan, or a revision, becomes what the run works off; and which of its tasks are asked for.

use std::collections::BTreeSet;

use crate::fact::Fact;
use crate::id::{Oid, TaskId, TaskIx};
use crate::machine::Machine;
use crate::phase::Phase;
use crate::plan::{Plan, Task};
use crate::tasks::TaskState;

impl Machine {
    pub(super) fn adopt_plan(&mut self, plan: Box<Plan>, hash: String) {
        if self.adopted.revision() > 0 && self.adopted.hash() == hash {
            return;
        }
        let kept: BTreeSet<&str> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
        let dropped = self
            .adopted
            .plan()
            .tasks
            .iter()
            .map(|t| &t.id)
            .filter(|id| !kept.contains(id.as_str()));
        let dropped: Vec<TaskId> = dropped.cloned().collect();
        let reused = self.reused_ids(&plan);
        let revision = self.adopted.revision() + 1;
        let file = self.adopted.take_next_file();
        self.emit_fact(Fact::PlanAdopted { revision, hash, plan, dropped: dropped.clone(), file });
        for (task, commit) in self.landed_dropped_tasks() {
            if dropped.contains(&task) {
                let message = format!(
                    "{task} is no longer in the plan; what it landed ({}) stays on {}",
                    short_commit(&commit),
                    self.run.target()
                );
                self.emit_fact(Fact::Noticed { task: None, message, lasts: false });
            }
        }
        for task in reused {
            let message = "a task with this id has already landed, so the changed task does not run. Use a new id, or start a separate run with `mainstem run --new`";
            self.emit_fact(Fact::Noticed {
                task: Some(task),
                message: message.to_owned(),
                lasts: false,
            });
        }
        // Edges may have gone with it: who was blocked may be free.
        self.update_all_blocking();
    }

    /// Tasks that the plan has no longer, with the commits that they landed.
    pub fn landed_dropped_tasks(&self) -> Vec<(TaskId, Oid)> {
        let landed = |(task, state): (&TaskId, &TaskState)| {
            let landing = state.landed.as_ref().filter(|landing| !landing.empty)?;
            (state.phase() == Phase::Landed).then(|| (task.clone(), landing.commit.clone()))
        };
        self.adopted.dropped().iter().filter_map(landed).collect()
    }

    /// Tasks of a new plan that have landed, but were asked for something else then.
    fn reused_ids(&self, plan: &Plan) -> Vec<TaskId> {
        let asked = |task: &Task| {
            (task.title.clone(), task.description.clone(), task.run.clone(), task.script.clone())
        };
        let other = |task: &&Task| match self.find_task(task.id.as_str()) {
            Ok(t) => {
                self.tasks.phase(t) == Phase::Landed
                    && asked(&self.adopted.plan().tasks[t.index()]) != asked(task)
            }
            Err(_) => self
                .adopted
                .dropped()
                .get(&task.id)
                .is_some_and(|state| state.phase() == Phase::Landed),
        };
        plan.tasks.iter().filter(other).map(|task| task.id.clone()).collect()
    }

    /// The wanted tasks and everything that must be over before they can start.
    pub(super) fn scope_closure(&self, wanted: &[TaskIx]) -> Vec<bool> {
        let mut scope = vec![false; self.adopted.plan().tasks.len()];
        let mut open = wanted.to_vec();
        while let Some(t) = open.pop() {
            if !std::mem::replace(&mut scope[t.index()], true) {
                open.extend(
                    self.adopted.graph().needs(t).chain(self.adopted.graph().soft_needs(t)),
                );
            }
        }
        scope
    }
}

fn short_commit(commit: &Oid) -> &str {
    commit.as_str().get(..7).unwrap_or(commit.as_str())
}
