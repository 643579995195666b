//! What an agent left behind, as an answer or as everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use super::fact::Part;
use crate::extract::{Extracted, NoAnswer, Repair, Wanted, extract};
use crate::gather::{GatherError, Options, gather};
use crate::knots::strong_components;
use crate::schema::{EpicBreakdown, EpicTasks, Problem, WantEpics, WantTasks, WantWhole};

/// An answer that fits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The epics, if they were asked for.
    pub breakdown: Option<EpicBreakdown>,
    /// Tasks, by epic.
    pub tasks: Vec<EpicTasks>,
    /// What had to be mended in the text.
    pub repairs: Vec<String>,
}

/// Finds the answer: in the file where it was asked for, and if that holds none, in what was printed.
/// Taken is only what fits the schema, has the ids that were asked for and can be put in order.
pub fn judge(
    part: &Part,
    epics: &BTreeSet<String>,
    file: Option<&str>,
    printed: &str,
) -> Result<Answer, Vec<Problem>> {
    let file = file.filter(|text| !text.trim().is_empty());
    let mut first = None;
    for text in file.into_iter().chain([printed]) {
        match read(part, epics, text) {
            Ok(answer) => return Ok(answer),
            Err(problems) => {
                first.get_or_insert(problems);
            }
        }
    }
    Err(first.unwrap_or_default())
}

fn read(part: &Part, epics: &BTreeSet<String>, text: &str) -> Result<Answer, Vec<Problem>> {
    match part {
        Part::Shred => {
            let (breakdown, repairs) = found(text, &WantEpics)?;
            epics_in_order(&breakdown)?;
            Ok(Answer { breakdown: Some(breakdown), tasks: Vec::new(), repairs })
        }
        Part::Epic(epic) => {
            let (tasks, repairs) = found(text, &WantTasks { epic, epics })?;
            tasks_in_order(&tasks)?;
            Ok(Answer { breakdown: None, tasks: vec![tasks], repairs })
        }
        Part::Whole => {
            let ((breakdown, tasks), repairs) = found(text, &WantWhole)?;
            epics_in_order(&breakdown)?;
            tasks.iter().try_for_each(tasks_in_order)?;
            Ok(Answer { breakdown: Some(breakdown), tasks, repairs })
        }
    }
}

fn found<W: Wanted>(text: &str, wanted: &W) -> Result<(W::Found, Vec<String>), Vec<Problem>> {
    let Extracted { found, repairs } =
        extract(text, wanted).map_err(|none: NoAnswer| none.problems())?;
    let named: BTreeSet<String> = repairs.iter().map(Repair::to_string).collect();
    Ok((found, named.into_iter().collect()))
}

fn epics_in_order(breakdown: &EpicBreakdown) -> Result<(), Vec<Problem>> {
    match gather(breakdown, &[], &Options::default()) {
        Err(error @ GatherError::EpicCircle { .. }) => {
            Err(vec![Problem::new("epics", format!("{error}; remove one of these dependencies"))])
        }
        _ => Ok(()),
    }
}

/// Tasks of one epic that need each other are for whoever wrote them to mend.
fn tasks_in_order(answer: &EpicTasks) -> Result<(), Vec<Problem>> {
    let tasks = &answer.tasks;
    let place: BTreeMap<&str, usize> =
        tasks.iter().enumerate().map(|(i, task)| (task.temp_id.as_str(), i)).collect();
    let graph: Vec<Vec<usize>> = tasks
        .iter()
        .map(|task| {
            task.local_dependencies
                .iter()
                .filter_map(|id| place.get(id.as_str()).copied())
                .collect()
        })
        .collect();
    let mut knots: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (i, component) in strong_components(&graph).into_iter().enumerate() {
        knots.entry(component).or_default().push(&tasks[i].temp_id);
    }
    let problems: Vec<Problem> = knots
        .values()
        .filter(|ids| ids.len() > 1)
        .map(|ids| {
            let message = format!(
                "dependency cycle in local_dependencies: {}; remove one of these dependencies",
                ids.join(", ")
            );
            Problem::new("tasks", message)
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
