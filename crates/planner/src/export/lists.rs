//! Lists in one file: the checklists, and the batch spec of parallel workers.

use std::fmt::Write as _;

use mainstem_core::plan::{Effort, OnFailure};

use super::{Exported, View};
use crate::import::{Format, State};

pub(super) fn checklist(view: &View<'_>, format: Format, start: usize) -> Exported {
    let ids = ids(view, format, start);
    let title = if view.plan.title.is_empty() { "Tasks" } else { view.plan.title.as_str() };
    let mut out = match format {
        Format::SpecKit => format!("# Tasks: {title}\n"),
        Format::Kiro => "# Implementation Plan\n\n".to_owned(),
        _ => format!("# {title}\n"),
    };
    for (g, (.., members)) in view.groups.iter().enumerate() {
        let (n, head) = (g + 1, view.heading(g));
        let over = members.iter().all(|at| view.states[*at] == State::Done);
        let tick = if over { "x" } else { " " };
        let _ = match format {
            Format::SpecKit => write!(out, "\n## Phase {n}: {head}\n\n"),
            Format::OpenSpec => write!(out, "\n## {n}. {head}\n\n"),
            Format::Kiro => writeln!(out, "- [{tick}] {n}. {head}"),
            _ => write!(out, "\n## {head}\n\n"),
        };
        for at in members {
            item(&mut out, view, format, *at, &ids);
        }
    }
    let pairs =
        view.plan.tasks.iter().zip(&ids).map(|(task, id)| (task.id.to_string(), id.clone()));
    let changed = pairs.filter(|(ours, theirs)| ours != theirs).collect();
    Exported { ids: changed, ..Exported::one("tasks.md", out) }
}

/// `T001` for spec-kit, `group.item` for OpenSpec and Kiro, ours for plain lists.
fn ids(view: &View<'_>, format: Format, start: usize) -> Vec<String> {
    let mut ids: Vec<String> = view.plan.tasks.iter().map(|task| task.id.to_string()).collect();
    let mut next = start;
    for (g, (.., members)) in view.groups.iter().enumerate() {
        for (n, at) in members.iter().enumerate() {
            match format {
                Format::SpecKit => ids[*at] = format!("T{next:03}"),
                Format::OpenSpec | Format::Kiro => ids[*at] = format!("{}.{}", g + 1, n + 1),
                _ => {}
            }
            next += 1;
        }
    }
    ids
}

fn item(out: &mut String, view: &View<'_>, format: Format, at: usize, ids: &[String]) {
    let task = view.task(at);
    let margin = if format == Format::Kiro { "  " } else { "" };
    let tick = match view.states[at] {
        State::Done => "x",
        State::Doing if format == Format::Kiro => "-",
        _ => " ",
    };
    let optional = format == Format::Kiro && task.on_failure == OnFailure::Skip;
    let star = if optional { "*" } else { "" };
    let parallel = if format == Format::SpecKit && view.needs[at].is_empty() { "[P] " } else { "" };
    let colon = if format == Format::Checklist { ":" } else { "" };
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
        let text = crate::words::one_line(criterion);
        let _ = writeln!(out, "{margin}  - {text}");
    }
}

/// The batch spec, YAML. Texts are in JSON quotes, which YAML reads.
pub(super) fn workers(view: &View<'_>) -> Exported {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let list = |items: Vec<&str>| {
        format!("[{}]", items.into_iter().map(text).collect::<Vec<_>>().join(", "))
    };
    let mut out = format!("project: {}\ntasks:\n", text(&view.plan.title));
    for (at, task) in view.plan.tasks.iter().enumerate() {
        let _ = writeln!(out, "  - id: {}", text(task.id.as_str()));
        match view.states[at] {
            State::Done => out.push_str("    status: done\n"),
            State::Doing => out.push_str("    status: working\n"),
            _ => {}
        }
        let _ = writeln!(out, "    title: {}", text(&view.title(at)));
        let _ = writeln!(out, "    description: {}", text(&task.description));
        if let Some(role) = &task.role {
            let _ = writeln!(out, "    agent: {}", text(role));
        }
        let _ = writeln!(out, "    priority: {}", (task.priority + 5).clamp(1, 10));
        let hours = match task.effort {
            Effort::Small => 1,
            Effort::Medium => 4,
            Effort::Large => 16,
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
    Exported::one("workers.yaml", out)
}
