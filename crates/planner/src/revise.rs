//! A second plan beside the first: tasks that are the same keep their ids, and what is new, changed or gone
//! is named. Knows no files and no runs.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::id::TaskId;
use mainstem_core::plan::{Plan, Task};

use crate::plan_assembly::AssembledPlan;
use crate::text_forms::bare_title;

/// What became of the first plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanChanges {
    /// Tasks that were not there.
    pub added: Vec<TaskId>,
    /// Tasks that say something else, and what about them does.
    pub changed: Vec<(TaskId, Vec<&'static str>)>,
    /// Tasks that are no longer there, with their titles.
    pub dropped: Vec<(TaskId, String)>,
    /// Tasks that are as they were.
    pub same: usize,
}

impl PlanChanges {
    /// Is it the same plan?
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.dropped.is_empty()
    }
}

/// The same for a plan that was just gathered: what its report says of tasks goes by the new ids as well.
pub fn revise_assembled_plan(old: &Plan, gathered: AssembledPlan) -> (AssembledPlan, PlanChanges) {
    let AssembledPlan { plan, mut report } = gathered;
    let names = assign_ids(old, &plan, &match_tasks(old, &plan));
    let (plan, changes) = revise_plan(old, plan);
    let new = |id: &TaskId| names.get(id).unwrap_or(id).clone();
    let text = |id: &mut String| {
        if let Some(new) = names.get(&TaskId::new(id.as_str())) {
            *id = new.to_string();
        }
    };
    report.ids.values_mut().for_each(|id| *id = new(id));
    report.merged.iter_mut().for_each(|merged| merged.into = new(&merged.into));
    for overlap in &mut report.overlaps {
        (overlap.a, overlap.b) = (new(&overlap.a), new(&overlap.b));
    }
    for circle in &mut report.circles {
        circle.path.iter_mut().for_each(text);
        for (from, to, _) in &mut circle.drop {
            text(from);
            text(to);
        }
    }
    (AssembledPlan { plan, report }, changes)
}

/// The new plan under the old plan's ids, and what is different. Tasks are the same if their titles are, but
/// for a leading verb: first within an epic of the same title, then anywhere.
pub fn revise_plan(old: &Plan, new: Plan) -> (Plan, PlanChanges) {
    let matched = match_tasks(old, &new);
    let ids = assign_ids(old, &new, &matched);
    let plan = rename_tasks(new, &ids);
    let by_id: BTreeMap<&TaskId, &Task> = old.tasks.iter().map(|task| (&task.id, task)).collect();
    let mut changes = PlanChanges::default();
    for (task, pair) in plan.tasks.iter().zip(&matched) {
        let Some(before) = pair.map(|at| &old.tasks[at]) else {
            changes.added.push(task.id.clone());
            continue;
        };
        let what = changed_fields(before, task);
        if what.is_empty() {
            changes.same += 1;
        } else {
            changes.changed.push((task.id.clone(), what));
        }
    }
    let kept: BTreeSet<&TaskId> = plan.tasks.iter().map(|task| &task.id).collect();
    for (id, task) in by_id.iter().filter(|(id, _)| !kept.contains(*id)) {
        changes.dropped.push(((*id).clone(), task.title.clone()));
    }
    (plan, changes)
}

fn epic_title(plan: &Plan, task: &Task) -> String {
    let epic = task.epic.as_ref().and_then(|id| plan.epics.iter().find(|epic| epic.id == *id));
    epic.map(|epic| bare_title(&epic.title)).unwrap_or_default()
}

/// For each new task the old one that it is.
fn match_tasks(old: &Plan, new: &Plan) -> Vec<Option<usize>> {
    let mut exact: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    let mut loose: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, task) in old.tasks.iter().enumerate().rev() {
        let title = bare_title(&task.title);
        exact.entry((epic_title(old, task), title.clone())).or_default().push(at);
        loose.entry(title).or_default().push(at);
    }
    let mut taken = BTreeSet::new();
    let mut matched: Vec<Option<usize>> = new
        .tasks
        .iter()
        .map(|task| {
            let at = exact.get_mut(&(epic_title(new, task), bare_title(&task.title)))?.pop()?;
            taken.insert(at).then_some(at)
        })
        .collect();
    for (task, pair) in new.tasks.iter().zip(&mut matched).filter(|(_, pair)| pair.is_none()) {
        let Some(left) = loose.get_mut(&bare_title(&task.title)) else { continue };
        while let Some(at) = left.pop() {
            if taken.insert(at) {
                *pair = Some(at);
                break;
            }
        }
    }
    matched
}

/// The id of each new task: its own old one, or a number that no task of either plan has.
fn assign_ids(old: &Plan, new: &Plan, matched: &[Option<usize>]) -> BTreeMap<TaskId, TaskId> {
    let number = |id: &TaskId| id.as_str().strip_prefix("T-").and_then(|n| n.parse::<usize>().ok());
    let mut next = old.tasks.iter().filter_map(|task| number(&task.id)).max().unwrap_or(0);
    let width = (next + new.tasks.len()).to_string().len().max(3);
    let mut ids = BTreeMap::new();
    for (task, pair) in new.tasks.iter().zip(matched) {
        let id = match pair {
            Some(at) => old.tasks[*at].id.clone(),
            None => {
                next += 1;
                TaskId::new(format!("T-{next:0width$}"))
            }
        };
        ids.insert(task.id.clone(), id);
    }
    ids
}

fn rename_tasks(mut plan: Plan, ids: &BTreeMap<TaskId, TaskId>) -> Plan {
    let new = |id: &TaskId| ids.get(id).unwrap_or(id).clone();
    for task in &mut plan.tasks {
        task.id = new(&task.id);
        task.needs = task.needs.iter().map(new).collect();
        task.after = task.after.iter().map(new).collect();
    }
    plan
}

fn changed_fields(before: &Task, now: &Task) -> Vec<&'static str> {
    let set = |ids: &[TaskId]| ids.iter().cloned().collect::<BTreeSet<_>>();
    [
        (before.title != now.title, "title"),
        (before.description.trim() != now.description.trim(), "description"),
        (before.acceptance != now.acceptance, "acceptance"),
        (set(&before.needs) != set(&now.needs), "needs"),
        (before.writes != now.writes, "writes"),
        (before.effort != now.effort, "effort"),
        (before.priority != now.priority, "priority"),
        (before.epic != now.epic, "epic"),
    ]
    .into_iter()
    .filter_map(|(differs, what)| differs.then_some(what))
    .collect()
}

#[cfg(test)]
mod tests {
    use mainstem_core::id::EpicId;
    use mainstem_core::plan::Epic;

    use super::*;

    fn plan(tasks: &[(&str, &str, &str, &[&str])]) -> Plan {
        let epic =
            |id: &str| Epic { id: EpicId::new(id), title: format!("Part {id}"), needs: Vec::new() };
        let task = |(id, epic, title, needs): &(&str, &str, &str, &[&str])| Task {
            id: TaskId::new(*id),
            epic: Some(EpicId::new(*epic)),
            title: (*title).to_owned(),
            needs: needs.iter().map(|id| TaskId::new(*id)).collect(),
            ..Task::empty()
        };
        Plan {
            title: String::new(),
            epics: vec![epic("E-001"), epic("E-002")],
            tasks: tasks.iter().map(task).collect(),
        }
    }

    #[test]
    fn tasks_keep_their_ids_when_others_come_before_them() {
        let old = plan(&[
            ("T-001", "E-001", "Add the schema", &[]),
            ("T-002", "E-001", "Write docs", &["T-001"]),
            ("T-003", "E-002", "Write docs", &[]),
            ("T-004", "E-002", "Old thing", &[]),
        ]);
        let new = plan(&[
            ("T-001", "E-001", "Choose a database", &[]),
            ("T-002", "E-001", "Create the schema", &["T-001"]),
            ("T-003", "E-001", "Write docs", &["T-002"]),
            ("T-004", "E-002", "Write docs", &[]),
        ]);
        let (plan, changes) = revise_plan(&old, new);
        let ids: Vec<&str> = plan.tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["T-005", "T-001", "T-002", "T-003"]);
        assert_eq!(plan.tasks[1].needs, [TaskId::new("T-005")]);
        assert_eq!(plan.tasks[2].needs, [TaskId::new("T-001")]);
        assert_eq!(changes.added, [TaskId::new("T-005")]);
        assert_eq!(changes.changed, [(TaskId::new("T-001"), vec!["title", "needs"])]);
        assert_eq!(changes.dropped, [(TaskId::new("T-004"), "Old thing".to_owned())]);
        assert_eq!(changes.same, 2);
    }

    #[test]
    fn the_same_plan_again_changes_nothing() {
        let one = plan(&[("T-001", "E-001", "A", &[]), ("T-002", "E-001", "A", &["T-001"])]);
        let (again, changes) = revise_plan(&one, one.clone());
        assert_eq!(again, one);
        assert!(changes.is_empty() && changes.same == 2, "{changes:?}");
    }

    #[test]
    fn moving_to_another_epic_keeps_the_id() {
        let old = plan(&[("T-007", "E-001", "Send mail", &[])]);
        let (plan, changes) = revise_plan(&old, plan(&[("T-001", "E-002", "Send mail", &[])]));
        assert_eq!(plan.tasks[0].id, TaskId::new("T-007"));
        assert_eq!(changes.changed, [(TaskId::new("T-007"), vec!["epic"])]);
    }
}
