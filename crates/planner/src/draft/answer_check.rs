//! What an agent left behind, as an answer or as everything that is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use super::fact::DraftPart;
use crate::extract::{
    AnswerSchema, ExtractError, ExtractedAnswer, JsonRepair, extract_answer, search_answer,
};
use crate::plan_assembly::{AssemblyError, AssemblyOptions, assemble_plan};
use crate::schema::{
    AnswerProblem, EpicBreakdown, EpicTasks, EpicTasksSchema, EpicsSchema, WholePlanSchema,
};
use crate::strong_components::find_strong_components;

/// An answer that fits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DraftAnswer {
    /// The epics, if they were asked for.
    pub breakdown: Option<EpicBreakdown>,
    pub tasks: Vec<EpicTasks>,
    /// What had to be mended in the text.
    pub repairs: Vec<String>,
}

/// Finds the answer: in the file where it was asked for, and if that holds none, in what was printed.
/// Taken is only what fits the schema, has the ids that were asked for and can be put in order.
pub fn find_answer(
    part: &DraftPart,
    epics: &BTreeSet<String>,
    file: Option<&str>,
    printed: &str,
) -> Result<DraftAnswer, Vec<AnswerProblem>> {
    search_answer(file, printed, |text| read_answer(part, epics, text))
}

fn read_answer(
    part: &DraftPart,
    epics: &BTreeSet<String>,
    text: &str,
) -> Result<DraftAnswer, Vec<AnswerProblem>> {
    match part {
        DraftPart::Shred => {
            let (breakdown, repairs) = extract_with_repairs(text, &EpicsSchema)?;
            check_epic_order(&breakdown)?;
            Ok(DraftAnswer { breakdown: Some(breakdown), tasks: Vec::new(), repairs })
        }
        DraftPart::Epic(epic) => {
            let (tasks, repairs) = extract_with_repairs(text, &EpicTasksSchema { epic, epics })?;
            check_task_order(&tasks)?;
            Ok(DraftAnswer { breakdown: None, tasks: vec![tasks], repairs })
        }
        DraftPart::Whole => {
            let ((breakdown, tasks), repairs) = extract_with_repairs(text, &WholePlanSchema)?;
            check_epic_order(&breakdown)?;
            tasks.iter().try_for_each(check_task_order)?;
            Ok(DraftAnswer { breakdown: Some(breakdown), tasks, repairs })
        }
    }
}

fn extract_with_repairs<W: AnswerSchema>(
    text: &str,
    wanted: &W,
) -> Result<(W::ParsedAnswer, Vec<String>), Vec<AnswerProblem>> {
    let ExtractedAnswer { found, repairs } =
        extract_answer(text, wanted).map_err(|none: ExtractError| none.problems())?;
    let named: BTreeSet<String> = repairs.iter().map(JsonRepair::to_string).collect();
    Ok((found, named.into_iter().collect()))
}

fn check_epic_order(breakdown: &EpicBreakdown) -> Result<(), Vec<AnswerProblem>> {
    match assemble_plan(breakdown, &[], &AssemblyOptions::default()) {
        Err(error @ AssemblyError::EpicCircle { .. }) => Err(vec![AnswerProblem::new(
            "epics",
            format!("{error}; remove one of these dependencies"),
        )]),
        _ => Ok(()),
    }
}

/// Tasks of one epic that need each other are for whoever wrote them to mend.
fn check_task_order(answer: &EpicTasks) -> Result<(), Vec<AnswerProblem>> {
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
    for (i, component) in find_strong_components(&graph).into_iter().enumerate() {
        knots.entry(component).or_default().push(&tasks[i].temp_id);
    }
    let problems: Vec<AnswerProblem> = knots
        .values()
        .filter(|ids| ids.len() > 1)
        .map(|ids| {
            let message = format!(
                "dependency cycle in local_dependencies: {}; remove one of these dependencies",
                ids.join(", ")
            );
            AnswerProblem::new("tasks", message)
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
