//! JSON formats: task-master, Beads, Ralph, GitHub issues, and our own plan.

use mainstem_core::plan::{Plan, TaskEffort};
use serde_json::{Value, json};

use super::{ExportView, ExportedFiles};
use crate::import::SourceTaskState;

fn to_pretty_json(value: &Value) -> String {
    let mut text = format!("{value:#}");
    text.push('\n');
    text
}

/// A plan of ours, with the keys that a plan file has.
pub(super) fn plan_to_json(plan: &Plan) -> String {
    let mut value =
        json!({ "version": 1, "title": plan.title, "epics": plan.epics, "tasks": plan.tasks });
    for task in value["tasks"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut)
    {
        if let Some(ms) = task.remove("timeout_ms").and_then(|ms| ms.as_u64()) {
            let text = mainstem_core::plan::quantities::render_duration_ms(ms);
            task.insert("timeout".to_owned(), Value::from(text));
        }
    }
    to_pretty_json(&value)
}

/// Numbers for tasks, in the order of the plan.
fn number_tasks(
    view: &ExportView<'_>,
    start: usize,
    make: impl Fn(usize) -> String,
) -> Vec<(String, String)> {
    view.plan
        .tasks
        .iter()
        .enumerate()
        .map(|(i, task)| (task.id.to_string(), make(start + i)))
        .collect()
}

pub(super) fn export_taskmaster(view: &ExportView<'_>, start: usize) -> ExportedFiles {
    let tasks: Vec<Value> = view
        .plan
        .tasks
        .iter()
        .enumerate()
        .map(|(at, task)| {
            json!({
                "id": start + at,
                "title": view.title(at),
                "description": task.description,
                "status": match view.states[at] {
                    SourceTaskState::Done => "done",
                    SourceTaskState::Doing => "in-progress",
                    SourceTaskState::Blocked => "blocked",
                    SourceTaskState::Held => "deferred",
                    SourceTaskState::Dropped => "cancelled",
                    SourceTaskState::Open => "pending",
                },
                "dependencies": view.needs[at].iter().map(|need| start + need).collect::<Vec<_>>(),
                "priority": match task.priority {
                    20.. => "critical",
                    10..20 => "high",
                    ..=-10 => "low",
                    _ => "medium",
                },
                "complexity": match task.effort {
                    TaskEffort::Small => 2,
                    TaskEffort::Medium => 5,
                    TaskEffort::Large => 8,
                },
                "details": "",
                "testStrategy": "",
                "acceptanceCriteria": task.acceptance,
                "relevantFiles": task.writes.iter().map(|path| json!({ "path": path })).collect::<Vec<_>>(),
                "subtasks": [],
            })
        })
        .collect();
    let value =
        json!({ "master": { "tasks": tasks, "metadata": { "description": view.plan.title } } });
    let ids = number_tasks(view, start, |n| n.to_string());
    ExportedFiles { ids, ..ExportedFiles::single_file("tasks.json", to_pretty_json(&value)) }
}

pub(super) fn export_beads(view: &ExportView<'_>) -> ExportedFiles {
    let mut out = String::new();
    for (id, title, _) in view.groups.iter().filter(|(id, ..)| !id.is_empty()) {
        let issue = json!({
            "id": id, "title": title, "status": "open", "priority": 2, "issue_type": "epic",
        });
        out.push_str(&format!("{issue}\n"));
    }
    for (at, task) in view.plan.tasks.iter().enumerate() {
        let id = task.id.as_str();
        let edge =
            |to: &str, kind: &str| json!({ "issue_id": id, "depends_on_id": to, "type": kind });
        let mut edges: Vec<Value> = view.needs[at]
            .iter()
            .map(|need| edge(view.task(*need).id.as_str(), "blocks"))
            .collect();
        edges.extend(task.epic.as_ref().map(|epic| edge(epic.as_str(), "parent-child")));
        edges.extend(task.after.iter().map(|to| edge(to.as_str(), "conditional-blocks")));
        let issue = json!({
            "id": id,
            "title": view.title(at),
            "description": task.description,
            "acceptance_criteria": task.acceptance.iter().map(|text| format!("- {text}")).collect::<Vec<_>>().join("\n"),
            "status": match view.states[at] {
                SourceTaskState::Done | SourceTaskState::Dropped => "closed",
                SourceTaskState::Doing => "in_progress",
                SourceTaskState::Blocked => "blocked",
                SourceTaskState::Held => "deferred",
                SourceTaskState::Open => "open",
            },
            "priority": (2 - task.priority).clamp(0, 4),
            "issue_type": "task",
            "estimated_minutes": match task.effort {
                TaskEffort::Small => 30,
                TaskEffort::Medium => 120,
                TaskEffort::Large => 480,
            },
            "dependencies": edges,
        });
        out.push_str(&format!("{issue}\n"));
    }
    ExportedFiles::single_file("issues.jsonl", out)
}

pub(super) fn export_ralph(view: &ExportView<'_>, start: usize) -> ExportedFiles {
    let name = |at: usize| format!("US-{:03}", start + at);
    let stories: Vec<Value> = view
        .plan
        .tasks
        .iter()
        .enumerate()
        .map(|(at, task)| {
            json!({
                "id": name(at),
                "title": view.title(at),
                "description": task.description,
                "acceptanceCriteria": task.acceptance,
                "priority": at + 1,
                "passes": view.states[at] == SourceTaskState::Done,
                "notes": "",
                "dependencies": view.needs[at].iter().map(|need| name(*need)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let value = json!({ "project": view.plan.title, "userStories": stories });
    let ids = number_tasks(view, start, |n| format!("US-{n:03}"));
    ExportedFiles { ids, ..ExportedFiles::single_file("prd.json", to_pretty_json(&value)) }
}

pub(super) fn export_github(view: &ExportView<'_>, start: usize) -> ExportedFiles {
    let issues: Vec<Value> = view
        .plan
        .tasks
        .iter()
        .enumerate()
        .map(|(at, task)| {
            let mut body = task.description.clone();
            if !task.acceptance.is_empty() {
                body.push_str("\n\n## Acceptance criteria\n");
                task.acceptance.iter().for_each(|text| body.push_str(&format!("- [ ] {text}\n")));
            }
            let labels: Vec<Value> = match task.priority {
                20.. => vec![json!({ "name": "critical" })],
                10..20 => vec![json!({ "name": "high" })],
                ..=-10 => vec![json!({ "name": "low" })],
                _ => Vec::new(),
            };
            let closed = matches!(view.states[at], SourceTaskState::Done | SourceTaskState::Dropped);
            let mut issue = json!({
                "number": start + at,
                "title": view.title(at),
                "body": body.trim(),
                "state": if closed { "CLOSED" } else { "OPEN" },
                "labels": labels,
                "blockedBy": view.needs[at].iter().map(|need| json!({ "number": start + need })).collect::<Vec<_>>(),
            });
            if let Some(epic) = &task.epic {
                let title = view.groups.iter().find(|(id, ..)| *id == epic.as_str());
                issue["milestone"] = json!({ "title": title.map_or(epic.as_str(), |(id, title, _)| {
                    if title.is_empty() { id } else { title }
                })});
            }
            issue
        })
        .collect();
    let ids = number_tasks(view, start, |n| format!("#{n}"));
    ExportedFiles {
        ids,
        ..ExportedFiles::single_file("issues.json", to_pretty_json(&Value::from(issues)))
    }
}
