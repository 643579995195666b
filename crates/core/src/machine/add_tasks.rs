//! Tasks that join a run while it goes on, all together or none.

use crate::fact::{Fact, StopFollowUp};
use crate::graph::Graph;
use crate::id::{TaskIx, check_id};
use crate::machine::{CommandRefusal, Machine};
use crate::phase::Phase;
use crate::plan::Task;

impl Machine {
    /// Makes these tasks part of the run. One that is there already, with the same text, stays as it
    /// is; so adding the same once more changes nothing. One that was called off starts from the beginning.
    pub(super) fn add_tasks(&mut self, tasks: Vec<Task>) -> Result<String, CommandRefusal> {
        let mut plan = self.adopted.plan().clone();
        let (mut names, mut again) = (Vec::new(), Vec::new());
        for task in tasks {
            check_id(task.id.as_str())
                .map_err(|why| refuse_addition(format!("{}: {why}", task.id)))?;
            let known = plan.tasks.iter().find(|known| known.id == task.id);
            match known {
                Some(known) if is_same_task(known, &task) => {
                    again.extend(
                        self.adopted
                            .graph()
                            .index_of(known.id.as_str())
                            .filter(|t| self.is_task_cancelled(*t)),
                    );
                    continue;
                }
                Some(_) => {
                    return Err(refuse_addition(format!(
                        "a task {} with a different text already exists",
                        task.id
                    )));
                }
                None => {}
            }
            self.check_workable(&task)?;
            names.push(task.id.to_string());
            plan.tasks.push(task);
        }
        let unknown = plan.tasks.iter().flat_map(|task| task.needs.iter().chain(&task.after));
        let mut unknown = unknown.filter(|id| !plan.tasks.iter().any(|task| task.id == **id));
        if let Some(id) = unknown.next() {
            return Err(refuse_addition(format!("unknown task {id} in `needs` or `after`")));
        }
        Graph::new(&plan).map_err(|error| refuse_addition(error.to_string()))?;
        let again = self.restart_cancelled(again);
        if names.is_empty() && again.is_empty() {
            return Ok("nothing to add: the tasks are already part of the run".to_owned());
        }
        if names.is_empty() {
            return Ok(format!("{} will be retried from the beginning", again.join(", ")));
        }
        let (revision, hash) = (self.adopted.revision() + 1, format!("added {}", names.join(" ")));
        let (plan, dropped) = (Box::new(plan), Vec::new());
        self.emit_fact(Fact::PlanAdopted { revision, hash, plan, dropped, file: None });
        self.update_all_blocking();
        Ok(format!("added {} to the run", names.join(", ")))
    }

    /// Was it called off, or is it about to be?
    fn is_task_cancelled(&self, t: TaskIx) -> bool {
        let state = self.tasks.get(t);
        let stop = state.current.as_ref().and_then(|a| a.stop.as_ref());
        matches!(state.phase(), Phase::Cancelled | Phase::Skipped)
            || stop.is_some_and(|(then, _)| *then != StopFollowUp::Requeue)
    }

    /// Has tasks done after all that were called off. Says which.
    fn restart_cancelled(&mut self, tasks: Vec<TaskIx>) -> Vec<String> {
        let mut names = Vec::new();
        for t in tasks {
            let task = self.task_id(t);
            names.push(task.to_string());
            if self.tasks.phase(t).is_active() {
                let (attempt, then) = (self.tasks.get(t).attempts, StopFollowUp::Requeue);
                let reason = "to be retried".to_owned();
                self.emit_fact(Fact::StopRequested { task, attempt, then, reason });
            } else {
                self.emit_fact(Fact::TaskRetried { task, hint: None, agent: None, fresh: true });
            }
        }
        names
    }

    fn check_workable(&self, task: &Task) -> Result<(), CommandRefusal> {
        if task.run.is_some() || !task.script.is_empty() {
            return Ok(());
        }
        let agents = &self.settings.agents;
        match task.agent.as_ref().or(self.settings.run.agent.as_ref()) {
            Some(name) if agents.contains_key(name) => Ok(()),
            Some(name) => Err(CommandRefusal {
                message: format!("{}: unknown agent {name}", task.id),
                hint: Some(format!("add `[agents.{name}]` to mainstem.toml")),
            }),
            None => Err(CommandRefusal {
                message: format!("{}: no agent is set", task.id),
                hint: Some("add `agent` to the task, or set run.agent".to_owned()),
            }),
        }
    }
}

fn is_same_task(known: &Task, new: &Task) -> bool {
    (&known.title, &known.description, &known.run) == (&new.title, &new.description, &new.run)
}

fn refuse_addition(message: String) -> CommandRefusal {
    CommandRefusal { message, hint: None }
}
