//! What the planner's agents are asked for: epics of a PRD, and the tasks of one epic.
//!
//! Reads loose JSON into types, or says everything that is wrong, with the path of each field, in
//! words that go into the retry's prompt. Unknown fields are ignored, null counts as absent. Knows
//! nothing of agents, nor of where the JSON came from.

mod fields;
mod review;

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::extract::AnswerSchema;
use fields::AnswerFields;
pub use review::{REVIEW_SHAPE, ReviewAnswerSchema};

/// A PRD in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EpicBreakdown {
    pub epics: Vec<EpicPart>,
}

/// One part of a PRD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EpicPart {
    pub id: String,
    pub title: String,
    /// What belongs to it.
    pub description: String,
    /// Sections of the PRD it covers, by number or heading.
    #[serde(default)]
    pub prd_sections: Vec<String>,
    #[serde(default)]
    pub estimated_task_count: u64,
    /// Epics that come first.
    #[serde(default)]
    pub dependencies_on_epics: Vec<String>,
}

/// The tasks of one epic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct EpicTasks {
    /// The epic they belong to.
    pub epic_id: String,
    pub tasks: Vec<TaskDraft>,
}

/// A task before it has its final id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct TaskDraft {
    pub temp_id: String,
    pub title: String,
    pub description: String,
    /// When it is done; at least one.
    pub acceptance_criteria: Vec<String>,
    /// Tasks of the same epic that come first.
    #[serde(default)]
    pub local_dependencies: Vec<String>,
    /// Tasks of other epics that come first, as `E-003:label`.
    #[serde(default)]
    pub cross_epic_dependencies: Vec<String>,
    /// `small`, `medium` or `large`.
    pub effort: String,
    /// `must-have`, `should-have` or `nice-to-have`.
    pub priority: String,
    /// Files it will probably write, if the agent says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Requirements or sections of the PRD it covers, if the agent says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
}

/// One thing wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerProblem {
    /// Dotted path, such as `tasks[2].effort`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl AnswerProblem {
    /// A problem with a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for AnswerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.field, self.message)
    }
}

/// Problems as a numbered list, for the prompt of the next try.
pub fn format_problems(problems: &[AnswerProblem]) -> String {
    let line = |(n, problem): (usize, &AnswerProblem)| format!("{}. {problem}\n", n + 1);
    problems.iter().enumerate().map(line).collect()
}

/// Efforts that a draft may name.
const EFFORTS: [&str; 3] = ["small", "medium", "large"];
/// Priorities that a draft may name.
const PRIORITIES: [&str; 3] = ["must-have", "should-have", "nice-to-have"];

/// `E-` and three digits.
pub fn is_epic_id(text: &str) -> bool {
    let digits = |rest: &str| rest.len() == 3 && rest.bytes().all(|b| b.is_ascii_digit());
    text.strip_prefix("E-").is_some_and(digits)
}

/// The start of the temporary ids of an epic's tasks: `E001-T` for `E-001`.
pub fn temp_prefix(epic: &str) -> String {
    format!("{}-T", epic.replace('-', ""))
}

/// `E001-T` and two or three digits.
fn is_temp_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        (2..=3).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Looks for an [`EpicBreakdown`].
#[derive(Debug, Clone, Copy, Default)]
pub struct EpicsSchema;

impl AnswerSchema for EpicsSchema {
    type ParsedAnswer = EpicBreakdown;

    fn leading_keys(&self) -> &[&str] {
        &["epics", "\"id\"", "prd_sections"]
    }

    fn resembles(&self, value: &Value) -> bool {
        value.get("epics").is_some()
            || value.as_array().is_some_and(|list| {
                list.first().is_some_and(|first| {
                    first.get("dependencies_on_epics").is_some()
                        || first.get("prd_sections").is_some()
                })
            })
    }

    fn check(&self, value: &Value) -> Result<EpicBreakdown, Vec<AnswerProblem>> {
        let wrapped;
        let value = if value.is_array() {
            wrapped = json!({ "epics": value });
            &wrapped
        } else {
            value
        };
        check_epics(value)
    }

    fn part_names(&self, found: &EpicBreakdown) -> Vec<String> {
        found.epics.iter().map(|epic| epic.id.clone()).collect()
    }
}

/// Looks for the tasks of one epic.
#[derive(Debug, Clone, Copy)]
pub struct EpicTasksSchema<'a> {
    /// The epic they were asked for; an answer for another one is refused.
    pub epic: &'a str,
    /// Every epic there is.
    pub epics: &'a BTreeSet<String>,
}

impl AnswerSchema for EpicTasksSchema<'_> {
    type ParsedAnswer = EpicTasks;

    fn leading_keys(&self) -> &[&str] {
        &["epic_id", "tasks", "temp_id"]
    }

    fn resembles(&self, value: &Value) -> bool {
        value.get("tasks").is_some_and(|tasks| !tasks.is_object())
            || value.as_array().is_some_and(|list| {
                list.first().is_some_and(|first| first.get("temp_id").is_some())
            })
    }

    fn check(&self, value: &Value) -> Result<EpicTasks, Vec<AnswerProblem>> {
        let wrapped;
        let value = if value.is_array() {
            // The temporary ids still prove for which epic the list was made.
            wrapped = json!({ "epic_id": self.epic, "tasks": value });
            &wrapped
        } else {
            value
        };
        check_tasks(value, self.epic, self.epics)
    }

    fn part_names(&self, found: &EpicTasks) -> Vec<String> {
        found.tasks.iter().map(|task| task.temp_id.clone()).collect()
    }
}

/// Looks for epics with their tasks in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct WholePlanSchema;

impl AnswerSchema for WholePlanSchema {
    type ParsedAnswer = (EpicBreakdown, Vec<EpicTasks>);

    fn leading_keys(&self) -> &[&str] {
        &["epics", "\"id\"", "tasks"]
    }

    fn resembles(&self, value: &Value) -> bool {
        value.get("epics").is_some_and(|epics| !epics.is_object())
    }

    fn check(&self, value: &Value) -> Result<Self::ParsedAnswer, Vec<AnswerProblem>> {
        let (breakdown, mut problems) = match check_epics(value) {
            Ok(breakdown) => (breakdown, Vec::new()),
            Err(problems) => (EpicBreakdown::default(), problems),
        };
        let items = value["epics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let id_of = |item: &Value| item["id"].as_str().unwrap_or_default().to_owned();
        let ids: BTreeSet<String> = items.iter().map(id_of).collect();
        let mut answers = Vec::new();
        for (i, item) in items.iter().enumerate().filter(|(_, item)| is_epic_id(&id_of(item))) {
            let id = id_of(item);
            let part = json!({ "epic_id": id, "tasks": item["tasks"] });
            match check_tasks(&part, &id, &ids) {
                Ok(tasks) => answers.push(tasks),
                Err(found) => problems.extend(found.into_iter().map(|problem| {
                    AnswerProblem::new(format!("epics[{i}].{}", problem.field), problem.message)
                })),
            }
        }
        if problems.is_empty() { Ok((breakdown, answers)) } else { Err(problems) }
    }

    fn part_names(&self, (breakdown, answers): &Self::ParsedAnswer) -> Vec<String> {
        let mut parts = EpicsSchema.part_names(breakdown);
        parts.extend(answers.iter().flat_map(|answer| &answer.tasks).map(|t| t.temp_id.clone()));
        parts
    }
}

/// An [`EpicBreakdown`], or everything that is wrong with it.
pub fn check_epics(value: &Value) -> Result<EpicBreakdown, Vec<AnswerProblem>> {
    let mut fields = AnswerFields::default();
    let items = fields.read_list(value, "", "epics").to_vec();
    if items.is_empty() && fields.problems.is_empty() {
        fields.add_problem("epics", "is empty; add at least one epic");
    }
    let mut epics = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let at = format!("epics[{i}]");
        epics.push(EpicPart {
            id: fields.read_text(item, &at, "id"),
            title: fields.read_line(item, &at, "title"),
            description: fields.read_text(item, &at, "description"),
            prd_sections: fields.read_texts(item, &at, "prd_sections"),
            estimated_task_count: fields.read_count(item, &at, "estimated_task_count"),
            dependencies_on_epics: fields.read_texts(item, &at, "dependencies_on_epics"),
        });
    }
    let known: BTreeSet<&str> = epics.iter().map(|epic| epic.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    for (i, epic) in epics.iter().enumerate() {
        let at = format!("epics[{i}]");
        if !epic.id.is_empty() && !is_epic_id(&epic.id) {
            let message = format!("is `{}`; ids are E- and three digits, such as E-001", epic.id);
            fields.add_problem(format!("{at}.id"), message);
        } else if !seen.insert(&epic.id) {
            fields.add_problem(format!("{at}.id"), format!("duplicate id `{}`", epic.id));
        }
        for (n, other) in epic.dependencies_on_epics.iter().enumerate() {
            let at = format!("{at}.dependencies_on_epics[{n}]");
            if *other == epic.id {
                fields.add_problem(at, "names the epic itself");
            } else if !known.contains(other.as_str()) {
                fields.add_problem(at, format!("has the unknown epic `{other}`"));
            }
        }
    }
    fields.finish(EpicBreakdown { epics })
}

/// The tasks of the epic that was asked for, or everything that is wrong with them.
pub fn check_tasks(
    value: &Value,
    epic: &str,
    epics: &BTreeSet<String>,
) -> Result<EpicTasks, Vec<AnswerProblem>> {
    let mut fields = AnswerFields::default();
    let epic_id = fields.read_text(value, "", "epic_id");
    if !epic_id.is_empty() && epic_id != epic {
        fields.add_problem("epic_id", format!("is `{epic_id}`; expected the tasks of `{epic}`"));
    }
    let items = fields.read_list(value, "", "tasks").to_vec();
    if items.is_empty() && !fields.problems.iter().any(|problem| problem.field == "tasks") {
        fields.add_problem("tasks", "is empty; add at least one task");
    }
    let tasks: Vec<TaskDraft> =
        items.iter().enumerate().map(|(i, item)| read_task_draft(&mut fields, item, i)).collect();
    check_references(&mut fields, &tasks, epic, epics);
    fields.finish(EpicTasks { epic_id, tasks })
}

fn read_task_draft(fields: &mut AnswerFields, item: &Value, i: usize) -> TaskDraft {
    let at = format!("tasks[{i}]");
    let draft = TaskDraft {
        temp_id: fields.read_text(item, &at, "temp_id"),
        title: fields.read_line(item, &at, "title"),
        description: fields.read_text(item, &at, "description"),
        acceptance_criteria: fields.read_texts(item, &at, "acceptance_criteria"),
        local_dependencies: fields.read_texts(item, &at, "local_dependencies"),
        cross_epic_dependencies: fields.read_texts(item, &at, "cross_epic_dependencies"),
        effort: fields.read_choice(item, &at, "effort", &EFFORTS),
        priority: fields.read_choice(item, &at, "priority", &PRIORITIES),
        writes: fields.read_texts(item, &at, "writes"),
        covers: fields.read_texts(item, &at, "covers"),
    };
    let blank = draft.acceptance_criteria.iter().all(|text| text.trim().is_empty());
    let field = format!("{at}.acceptance_criteria");
    if blank && !fields.problems.iter().any(|problem| problem.field == field) {
        fields.add_problem(field, "is empty; add at least one criterion");
    }
    draft
}

fn check_references(
    fields: &mut AnswerFields,
    tasks: &[TaskDraft],
    epic: &str,
    epics: &BTreeSet<String>,
) {
    let prefix = temp_prefix(epic);
    let known: BTreeSet<&str> = tasks.iter().map(|task| task.temp_id.as_str()).collect();
    let mut seen = BTreeSet::new();
    for (i, task) in tasks.iter().enumerate() {
        let id = &task.temp_id;
        if !id.is_empty() && !is_temp_id(id, &prefix) {
            let message = format!("is `{id}`; ids here are {prefix} and two digits: {prefix}01");
            fields.add_problem(format!("tasks[{i}].temp_id"), message);
        } else if !id.is_empty() && !seen.insert(id) {
            fields.add_problem(format!("tasks[{i}].temp_id"), format!("duplicate id `{id}`"));
        }
        for (n, other) in task.local_dependencies.iter().enumerate() {
            let at = format!("tasks[{i}].local_dependencies[{n}]");
            if other == id {
                fields.add_problem(at, "names the task itself");
            } else if !known.contains(other.as_str()) {
                fields.add_problem(at, format!("has `{other}`, which is not a task of this epic"));
            }
        }
        for (n, other) in task.cross_epic_dependencies.iter().enumerate() {
            let at = format!("tasks[{i}].cross_epic_dependencies[{n}]");
            match other.split_once(':') {
                Some((to, label)) if is_epic_id(to) && !label.trim().is_empty() => {
                    if to == epic {
                        fields.add_problem(at, "refers to the same epic; use local_dependencies");
                    } else if !epics.contains(to) {
                        fields.add_problem(at, format!("has the unknown epic `{to}`"));
                    }
                }
                _ => fields.add_problem(at, format!("is `{other}`; write E-NNN:title of the task")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
