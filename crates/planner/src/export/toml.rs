//! A plan in our own TOML, as a person would write it: only what differs from the defaults.

use std::fmt::Write as _;

use mainstem_core::plan::units::render_duration_ms;
use mainstem_core::plan::{Effort, OnFailure, Plan, Task};

/// A plan as TOML that reads back as the same plan. Steps of the script agent are left out: nobody
/// imports them.
pub fn to_toml(plan: &Plan) -> String {
    let mut out = String::from("version = 1\n");
    if !plan.title.is_empty() {
        let _ = writeln!(out, "title = {}", quoted(&plan.title));
    }
    for epic in &plan.epics {
        let _ = write!(out, "\n[[epic]]\nid = {}\n", quoted(epic.id.as_str()));
        line(&mut out, "title", &epic.title);
        list(&mut out, "needs", epic.needs.iter().map(|id| id.as_str()));
    }
    for task in &plan.tasks {
        task_toml(&mut out, task);
    }
    out
}

fn task_toml(out: &mut String, task: &Task) {
    let _ = write!(out, "\n[[task]]\nid = {}\n", quoted(task.id.as_str()));
    line(out, "epic", task.epic.as_ref().map(|id| id.as_str()).unwrap_or_default());
    line(out, "phase", task.phase.as_deref().unwrap_or_default());
    line(out, "title", &task.title);
    if !task.description.is_empty() {
        let _ = writeln!(out, "description = {}", block(&task.description));
    }
    list(out, "acceptance", task.acceptance.iter().map(String::as_str));
    list(out, "needs", task.needs.iter().map(|id| id.as_str()));
    list(out, "after", task.after.iter().map(|id| id.as_str()));
    list(out, "writes", task.writes.iter().map(String::as_str));
    line(out, "agent", task.agent.as_deref().unwrap_or_default());
    line(out, "role", task.role.as_deref().unwrap_or_default());
    line(out, "model", task.model.as_deref().unwrap_or_default());
    match task.effort {
        Effort::Small => out.push_str("effort = \"small\"\n"),
        Effort::Medium => {}
        Effort::Large => out.push_str("effort = \"large\"\n"),
    }
    if task.priority != 0 {
        let _ = writeln!(out, "priority = {}", task.priority);
    }
    list(out, "verify", task.verify.iter().map(String::as_str));
    match task.on_failure {
        OnFailure::Block => {}
        OnFailure::Continue => out.push_str("on_failure = \"continue\"\n"),
        OnFailure::Skip => out.push_str("on_failure = \"skip\"\n"),
    }
    if let Some(ms) = task.timeout_ms {
        let _ = writeln!(out, "timeout = \"{}\"", render_duration_ms(ms));
    }
    if let Some(retries) = task.retries {
        let _ = writeln!(out, "retries = {retries}");
    }
    line(out, "run", task.run.as_deref().unwrap_or_default());
}

fn line(out: &mut String, key: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(out, "{key} = {}", quoted(text));
    }
}

fn list<'t>(out: &mut String, key: &str, items: impl Iterator<Item = &'t str>) {
    let items: Vec<String> = items.map(quoted).collect();
    let width: usize = items.iter().map(|item| item.len() + 2).sum();
    if items.is_empty() {
        return;
    }
    if width <= 90 {
        let _ = writeln!(out, "{key} = [{}]", items.join(", "));
    } else {
        let _ = writeln!(out, "{key} = [\n    {},\n]", items.join(",\n    "));
    }
}

/// A basic string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    text.chars().for_each(|c| push_escaped(&mut out, c));
    out.push('"');
    out
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c.is_control() => {
            let _ = write!(out, "\\u{:04X}", u32::from(c));
        }
        c => out.push(c),
    }
}

/// Several lines stay several lines.
fn block(text: &str) -> String {
    if !text.contains('\n') {
        return quoted(text);
    }
    let mut out = String::from("\"\"\"\n");
    for c in text.chars() {
        if c == '\n' { out.push('\n') } else { push_escaped(&mut out, c) }
    }
    out.push_str("\"\"\"");
    out
}
