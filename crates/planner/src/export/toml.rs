//! A plan in our own TOML, as a person would write it: only what differs from the defaults.

use std::fmt::Write as _;

use mainstem_core::plan::quantities::render_duration_ms;
use mainstem_core::plan::{Plan, Task, TaskEffort, TaskFailureAction};

/// A plan as TOML that reads back as the same plan. Steps of the script agent are left out: nobody
/// imports them.
pub fn plan_to_toml(plan: &Plan) -> String {
    let mut out = String::from("version = 1\n");
    if !plan.title.is_empty() {
        let _ = writeln!(out, "title = {}", toml_string(&plan.title));
    }
    for epic in &plan.epics {
        let _ = write!(out, "\n[[epic]]\nid = {}\n", toml_string(epic.id.as_str()));
        write_text_key(&mut out, "title", &epic.title);
        write_list_key(&mut out, "needs", epic.needs.iter().map(|id| id.as_str()));
    }
    for task in &plan.tasks {
        write_task(&mut out, task);
    }
    out
}

fn write_task(out: &mut String, task: &Task) {
    let _ = write!(out, "\n[[task]]\nid = {}\n", toml_string(task.id.as_str()));
    write_text_key(out, "epic", task.epic.as_ref().map(|id| id.as_str()).unwrap_or_default());
    write_text_key(out, "phase", task.phase.as_deref().unwrap_or_default());
    write_text_key(out, "title", &task.title);
    if !task.description.is_empty() {
        let _ = writeln!(out, "description = {}", toml_text_block(&task.description));
    }
    write_list_key(out, "acceptance", task.acceptance.iter().map(String::as_str));
    write_list_key(out, "needs", task.needs.iter().map(|id| id.as_str()));
    write_list_key(out, "after", task.after.iter().map(|id| id.as_str()));
    write_list_key(out, "writes", task.writes.iter().map(String::as_str));
    write_text_key(out, "agent", task.agent.as_deref().unwrap_or_default());
    write_text_key(out, "role", task.role.as_deref().unwrap_or_default());
    write_text_key(out, "model", task.model.as_deref().unwrap_or_default());
    match task.effort {
        TaskEffort::Small => out.push_str("effort = \"small\"\n"),
        TaskEffort::Medium => {}
        TaskEffort::Large => out.push_str("effort = \"large\"\n"),
    }
    if task.priority != 0 {
        let _ = writeln!(out, "priority = {}", task.priority);
    }
    write_list_key(out, "verify", task.verify.iter().map(String::as_str));
    match task.on_failure {
        TaskFailureAction::Block => {}
        TaskFailureAction::Continue => out.push_str("on_failure = \"continue\"\n"),
        TaskFailureAction::Skip => out.push_str("on_failure = \"skip\"\n"),
    }
    if let Some(ms) = task.timeout_ms {
        let _ = writeln!(out, "timeout = \"{}\"", render_duration_ms(ms));
    }
    if let Some(retries) = task.retries {
        let _ = writeln!(out, "retries = {retries}");
    }
    write_text_key(out, "run", task.run.as_deref().unwrap_or_default());
}

fn write_text_key(out: &mut String, key: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(out, "{key} = {}", toml_string(text));
    }
}

fn write_list_key<'t>(out: &mut String, key: &str, items: impl Iterator<Item = &'t str>) {
    let items: Vec<String> = items.map(toml_string).collect();
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

fn toml_string(text: &str) -> String {
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
fn toml_text_block(text: &str) -> String {
    if !text.contains('\n') {
        return toml_string(text);
    }
    let mut out = String::from("\"\"\"\n");
    for c in text.chars() {
        if c == '\n' { out.push('\n') } else { push_escaped(&mut out, c) }
    }
    out.push_str("\"\"\"");
    out
}
