//! One pull request per phase: every phase of a plan gets a last task that offers what the phase has
//! landed, and the tasks of the next phase need it. Pure; knows no forge.

use crate::id::TaskId;
use crate::plan::{Plan, Task};

/// The phase of tasks that name neither phase nor epic.
const UNNAMED: &str = "work";
/// Longest part of a task's id that a phase's name gives.
const NAME_CHARS_MAX: usize = 40;

/// The same plan with a closing task for each phase, in the order in which phases first appear. Where
/// tasks name no phase their epics are the phases. `agent` says whether somebody can be asked to look
/// at a phase as a whole; otherwise the closing tasks run a command that finds nothing to do.
#[must_use]
pub fn add_closing_tasks(mut plan: Plan, agent: bool) -> Plan {
    let named = plan.tasks.iter().any(|task| task.phase.is_some());
    let phase_of = |task: &Task| {
        let epic = || task.epic.as_ref().map(ToString::to_string).filter(|_| !named);
        task.phase.clone().or_else(epic).unwrap_or_else(|| UNNAMED.to_owned())
    };
    let mut phases: Vec<String> = Vec::new();
    for task in &plan.tasks {
        let phase = phase_of(task);
        if !phases.contains(&phase) {
            phases.push(phase);
        }
    }
    let mut closing: Vec<Task> = Vec::new();
    for phase in &phases {
        let taken = |id: &str| plan.tasks.iter().chain(&closing).any(|task| task.id.as_str() == id);
        let id = closing_task_id(phase, taken);
        let members: Vec<&Task> = plan.tasks.iter().filter(|t| phase_of(t) == *phase).collect();
        closing.push(build_closing_task(id, phase, &members, agent));
    }
    for task in &mut plan.tasks {
        let at = phases.iter().position(|phase| *phase == phase_of(task)).unwrap_or(0);
        if let Some(before) = at.checked_sub(1).and_then(|at| closing.get(at)) {
            task.needs.push(before.id.clone());
        }
    }
    for at in 1..closing.len() {
        let before = closing[at - 1].id.clone();
        closing[at].needs.push(before);
    }
    plan.tasks.extend(closing);
    plan
}

fn build_closing_task(id: TaskId, phase: &str, members: &[&Task], agent: bool) -> Task {
    let list: Vec<String> =
        members.iter().map(|task| format!("- {}: {}", task.id, task.title)).collect();
    let description = format!(
        "All tasks of the phase `{phase}` have landed on this branch:\n\n{}\n\nReview the phase as a whole. Change only what does not work together; if everything works, report that there is nothing to do.",
        list.join("\n")
    );
    let nothing = r#"echo '{"mainstem":"nothing_to_do","reason":"the phase is complete"}'"#;
    Task {
        id,
        phase: members.first().and_then(|task| task.phase.clone()),
        title: format!("Phase {phase}"),
        description,
        needs: members.iter().map(|task| task.id.clone()).collect(),
        run: (!agent).then(|| nothing.to_owned()),
        closes: Some(phase.to_owned()),
        ..Task::empty()
    }
}

fn closing_task_id(phase: &str, taken: impl Fn(&str) -> bool) -> TaskId {
    let name: String = phase
        .chars()
        .take(NAME_CHARS_MAX)
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' })
        .collect();
    let name = name.trim_matches('-');
    let plain = format!("phase-{}", if name.is_empty() { "x" } else { name });
    let numbered = (2..).map(|n| format!("{plain}-{n}"));
    let id = std::iter::once(plain.clone()).chain(numbered).find(|id| !taken(id));
    TaskId::new(id.unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, phase: Option<&str>, epic: Option<&str>) -> Task {
        Task {
            id: id.into(),
            phase: phase.map(str::to_owned),
            epic: epic.map(Into::into),
            ..Task::empty()
        }
    }

    fn needs(plan: &Plan, id: &str) -> Vec<String> {
        let task = plan.tasks.iter().find(|task| task.id.as_str() == id).expect("it is there");
        task.needs.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_phase_ends_in_a_task_that_the_next_phase_needs() {
        let tasks = vec![
            task("A", Some("One: storage"), None),
            task("B", Some("One: storage"), None),
            task("C", Some("Two"), None),
            task("D", None, None),
        ];
        let plan = add_closing_tasks(Plan { tasks, ..Plan::default() }, false);
        assert_eq!(needs(&plan, "phase-One--storage"), ["A", "B"]);
        assert_eq!(needs(&plan, "C"), ["phase-One--storage"]);
        assert_eq!(needs(&plan, "phase-Two"), ["C", "phase-One--storage"]);
        assert_eq!(needs(&plan, "D"), ["phase-Two"]);
        assert_eq!(needs(&plan, "phase-work"), ["D", "phase-Two"]);
        assert!(crate::graph::Graph::new(&plan).is_ok());
    }

    #[test]
    fn epics_are_the_phases_where_none_are_named_and_ids_stay_apart() {
        let tasks = vec![task("phase-E-1", None, Some("E-1")), task("B", None, Some("E-2"))];
        let plan = add_closing_tasks(Plan { tasks, ..Plan::default() }, true);
        assert_eq!(needs(&plan, "phase-E-1-2"), ["phase-E-1"]);
        assert_eq!(needs(&plan, "B"), ["phase-E-1-2"]);
        let closing = plan.tasks.iter().filter(|task| task.closes.is_some());
        assert!(closing.clone().all(|task| task.run.is_none()));
        assert_eq!(closing.count(), 2);
    }
}
