//! Lists in one file: the checklists, and the batch spec of parallel workers.

use std::fmt::Write as _;

use mainstem_core::plan::{TaskEffort, TaskFailureAction};

use super::{ExportView, ExportedFiles};
use crate::import::{SourceTaskState, ToolFormat};

pub(super) fn export_checklist(
    view: &ExportView<'_>,
    format: ToolFormat,
    start: usize,
) -> ExportedFiles {
    let ids = checklist_ids(view, format, start);
    let title = if view.plan.title.is_empty() { "Tasks" } else { view.plan.title.as_str() };
    let mut out = match format {
        ToolFormat::SpecKit => format!("# Tasks: {title}\n"),
        ToolFormat::Kiro => "# Implementation Plan\n\n".to_owned(),
        _ => format!("# {title}\n"),
    };
    for (g, (.., members)) in view.groups.iter().enumerate() {
        let (n, head) = (g + 1, view.heading(g));
        let over = members.iter().all(|at| view.states[*at] == SourceTaskState::Done);
        let tick = if over { "x" } else { " " };
        let _ = match format {
            ToolFormat::SpecKit => write!(out, "\n## Phase {n}: {head}\n\n"),
            ToolFormat::OpenSpec => write!(out, "\n## {n}. {head}\n\n"),
            ToolFormat::Kiro => writeln!(out, "- [{tick}] {n}. {head}"),
            _ => write!(out, "\n## {head}\n\n"),
        };
        for at in members {
            write_checklist_item(&mut out, view, format, *at, &ids);
        }
    }
    let pairs =
        view.plan.tasks.iter().zip(&ids).map(|(task, id)| (task.id.to_string(), id.clone()));
    let changed = pairs.filter(|(ours, theirs)| ours != theirs).collect();
    ExportedFiles { ids: changed, ..ExportedFiles::single_file("tasks.md", out) }
}

/// `T001` for spec-kit, `group.item` for OpenSpec and Kiro, ours for plain lists.
fn checklist_ids(view: &ExportView<'_>, format: ToolFormat, start: usize) -> Vec<String> {
    let mut ids: Vec<String> = view.plan.tasks.iter().map(|task| task.id.to_string()).collect();
    let mut next = start;
    for (g, (.., members)) in view.groups.iter().enumerate() {
        for (n, at) in members.iter().enumerate() {
            match format {
                ToolFormat::SpecKit => ids[*at] = format!("T{next:03}"),
                ToolFormat::OpenSpec | ToolFormat::Kiro => {
                    ids[*at] = format!("{}.{}", g + 1, n + 1);
                }
                _ => {}
            }
            next += 1;
        }
    }
    ids
}

fn write_checklist_item(
    out: &mut String,
    view: &ExportView<'_>,
    format: ToolFormat,
    at: usize,
    ids: &[String],
) {
    let task = view.task(at);
    let margin = if format == ToolFormat::Kiro { "  " } else { "" };
    let tick = match view.states[at] {
        SourceTaskState::Done => "x",
        SourceTaskState::Doing if format == ToolFormat::Kiro => "-",
        _ => " ",
    };
    let optional = format == ToolFormat::Kiro && task.on_failure == TaskFailureAction::Skip;
    let star = if optional { "*" } else { "" };
    let parallel =
        if format == ToolFormat::SpecKit && view.needs[at].is_empty() { "[P] " } else { "" };
    let colon = if format == ToolFormat::Checklist { ":" } else { "" };
    let needs: Vec<&str> = view.needs[at].iter().map(|need| ids[*need].as_str()).collect();
    let needs = if needs.is_empty() {
        String::new()
    } else {
        format!(" (depends on {})", needs.join(", "))
    };
    let title = view.title(at);
    let _ = writeln!(out, "{margin}- [{tick}]{star} {}{colon} {parallel}{title}{needs}", ids[at]);
    for text in task.description.lines() {
        let gap = if text.is_empty() { "" } else { "  " };
        let _ = writeln!(out, "{}{gap}{text}", if text.is_empty() { "" } else { margin });
    }
    for criterion in &task.acceptance {
        let text = crate::text_forms::collapse_to_line(criterion);
        let _ = writeln!(out, "{margin}  - {text}");
    }
}

/// The batch spec, YAML. Texts are in JSON quotes, which YAML reads.
pub(super) fn export_worker_spec(view: &ExportView<'_>) -> ExportedFiles {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let list = |items: Vec<&str>| {
        format!("[{}]", items.into_iter().map(text).collect::<Vec<_>>().join(", "))
    };
    let mut out = format!("project: {}\ntasks:\n", text(&view.plan.title));
    for (at, task) in view.plan.tasks.iter().enumerate() {
        let _ = writeln!(out, "  - id: {}", text(task.id.as_str()));
        match view.states[at] {
            SourceTaskState::Done => out.push_str("    status: done\n"),
            SourceTaskState::Doing => out.push_str("    status: working\n"),
            _ => {}
        }
        let _ = writeln!(out, "    title: {}", text(&view.title(at)));
        let _ = writeln!(out, "    description: {}", text(&task.description));
        if let Some(role) = &task.role {
            let _ = writeln!(out, "    agent: {}", text(role));
        }
        let _ = writeln!(out, "    priority: {}", (task.priority + 5).clamp(1, 10));
        let hours = match task.effort {
            TaskEffort::Small => 1,
            TaskEffort::Medium => 4,
            TaskEffort::Large => 16,
        };
        let _ = writeln!(out, "    estimated_hours: {hours}");
        let needs = view.needs[at].iter().map(|need| view.task(*need).id.as_str()).collect();
        let _ = writeln!(out, "    dependencies: {}", list(needs));
        for (key, items) in
            [("acceptance", &task.acceptance), ("files", &task.writes), ("verify", &task.verify)]
        {
            if !items.is_empty() {
                let items = items.iter().map(String::as_str).collect();
                let _ = writeln!(out, "    {key}: {}", list(items));
            }
        }
    }
    ExportedFiles::single_file("workers.yaml", out)
}
