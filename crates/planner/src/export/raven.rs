//! The task folder: `T-001-name.md`, `task-state.conf`, `phases.conf`, `PROGRESS.md`, `INDEX.md`.
//!
//! Numbers go by depth and then by the order of the plan, so that the ranges of `phases.conf` cut the
//! tasks into phases without overlap.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mainstem_core::plan::TaskEffort;

use super::{ExportView, ExportedFiles, graphs};
use crate::import::SourceTaskState;
use crate::text_forms::{slugify, unique_name};

/// A picture of more tasks than this shows nothing.
const PICTURE_MAX: usize = 100;

/// An id and a phase for each task, by its place in the plan.
pub(super) struct RavenIds {
    ids: Vec<String>,
    /// Places in the order of ids.
    order: Vec<usize>,
}

/// The plan's own ids, by depth.
pub(super) fn own_ids(view: &ExportView<'_>) -> RavenIds {
    let ids = view.plan.tasks.iter().map(|task| task.id.to_string()).collect();
    RavenIds { ids, order: tasks_by_depth(view) }
}

fn tasks_by_depth(view: &ExportView<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..view.plan.tasks.len()).collect();
    order.sort_by_key(|at| view.level(*at));
    order
}

fn numbered_ids(view: &ExportView<'_>, start: usize) -> RavenIds {
    let order = tasks_by_depth(view);
    let width = (start + order.len().saturating_sub(1)).to_string().len().max(3);
    let mut ids = vec![String::new(); order.len()];
    for (n, at) in order.iter().enumerate() {
        ids[*at] = format!("T-{:0width$}", start + n);
    }
    RavenIds { ids, order }
}

pub(super) fn export_raven(view: &ExportView<'_>, start: usize) -> ExportedFiles {
    let ids = numbered_ids(view, start);
    let mut files = Vec::new();
    let mut taken = BTreeMap::new();
    let mut states = String::from("# id|status|agent|updated|notes\n");
    for at in &ids.order {
        let id = &ids.ids[*at];
        let name = slugify(&view.title(*at));
        let name = if name.is_empty() { id.to_lowercase() } else { name };
        files.push((
            format!("{id}-{}.md", unique_name(&name, &mut taken)),
            render_task(view, *at, &ids),
        ));
        let state = match view.states[*at] {
            SourceTaskState::Done => "completed",
            SourceTaskState::Doing => "in_progress",
            SourceTaskState::Blocked => "blocked",
            SourceTaskState::Dropped => "skipped",
            SourceTaskState::Open | SourceTaskState::Held => "not_started",
        };
        let _ = writeln!(states, "{id}|{state}|||");
    }
    let mut phases = String::from("# id|name|first|last\n");
    for (n, members) in tasks_by_phase(view, &ids).iter().enumerate() {
        let (first, last) = (members[0], members[members.len() - 1]);
        let name = phase_name(view, members, n + 1);
        let _ = writeln!(phases, "{}|{name}|{}|{}", n + 1, ids.ids[first], ids.ids[last]);
    }
    files.push(("task-state.conf".to_owned(), states));
    files.push(("phases.conf".to_owned(), phases));
    files.push(("PROGRESS.md".to_owned(), render_progress(view, &ids)));
    files.push(("INDEX.md".to_owned(), render_index(view, &ids)));
    let pairs =
        view.plan.tasks.iter().zip(&ids.ids).map(|(task, id)| (task.id.to_string(), id.clone()));
    ExportedFiles {
        files,
        ids: pairs.filter(|(a, b)| a != b).collect(),
        ..ExportedFiles::default()
    }
}

fn render_task(view: &ExportView<'_>, at: usize, ids: &RavenIds) -> String {
    let task = view.task(at);
    let needs: Vec<&str> = view.needs[at].iter().map(|need| ids.ids[*need].as_str()).collect();
    let needs = if needs.is_empty() { "None".to_owned() } else { needs.join(", ") };
    let effort = match task.effort {
        TaskEffort::Small => "Small",
        TaskEffort::Medium => "Medium",
        TaskEffort::Large => "Large",
    };
    let mut out = format!(
        "# {}: {}\n\n## Metadata\n\n| Field | Value |\n|---|---|\n| Priority | {} |\n| Estimated Effort | {effort} |\n| Dependencies | {needs} |\n\n## Goal\n\n{}\n\n## Acceptance Criteria\n\n",
        ids.ids[at],
        view.title(at),
        priority_word(task.priority),
        if task.description.is_empty() { view.title(at) } else { task.description.clone() },
    );
    for criterion in &task.acceptance {
        let _ = writeln!(out, "- [ ] {}", crate::text_forms::collapse_to_line(criterion));
    }
    if task.acceptance.is_empty() {
        out.push_str("- [ ] TBD\n");
    }
    out
}

fn priority_word(number: i64) -> &'static str {
    match number {
        10.. => "must-have",
        ..=-10 => "nice-to-have",
        _ => "should-have",
    }
}

/// Tasks of one depth, in the order of ids.
fn tasks_by_phase(view: &ExportView<'_>, ids: &RavenIds) -> Vec<Vec<usize>> {
    ids.order.chunk_by(|a, b| view.level(*a) == view.level(*b)).map(<[usize]>::to_vec).collect()
}

/// The epic that most tasks of the phase belong to.
fn phase_name(view: &ExportView<'_>, members: &[usize], number: usize) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for epic in members.iter().filter_map(|at| view.task(*at).epic.as_ref()) {
        *counts.entry(epic.as_str()).or_default() += 1;
    }
    let most = counts.iter().max_by_key(|(id, count)| (**count, std::cmp::Reverse(**id)));
    let group = most.and_then(|(id, _)| view.groups.iter().position(|(known, ..)| known == id));
    let name = group.map_or_else(|| format!("Phase {number}"), |at| view.heading(at));
    name.replace('|', "/")
}

/// Boxes by phase, with counts.
pub(super) fn render_progress(view: &ExportView<'_>, ids: &RavenIds) -> String {
    let done = view.states.iter().filter(|state| **state == SourceTaskState::Done).count();
    let mut out = format!("# Progress\n\n{done} of {} tasks are done.\n", view.states.len());
    for (n, members) in tasks_by_phase(view, ids).iter().enumerate() {
        let over = members.iter().filter(|at| view.states[**at] == SourceTaskState::Done).count();
        let name = phase_name(view, members, n + 1);
        let _ = write!(out, "\n## Phase {}: {name} ({over}/{})\n\n", n + 1, members.len());
        for at in members {
            let state = view.states[*at];
            let tick = if state == SourceTaskState::Done { "x" } else { " " };
            let word = if matches!(state, SourceTaskState::Open | SourceTaskState::Done) {
                ""
            } else {
                state.as_str()
            };
            let gap = if word.is_empty() { "" } else { " — " };
            let _ = writeln!(out, "- [{tick}] {} {}{gap}{word}", ids.ids[*at], view.title(*at));
        }
    }
    out
}

/// Every task in a table, and a picture where one helps.
pub(super) fn render_index(view: &ExportView<'_>, ids: &RavenIds) -> String {
    let title = if view.plan.title.is_empty() { "Tasks" } else { view.plan.title.as_str() };
    let mut out =
        format!("# {title}\n\n| Id | Task | Epic | Effort | Needs |\n|---|---|---|---|---|\n");
    for at in &ids.order {
        let task = view.task(*at);
        let needs: Vec<&str> = view.needs[*at].iter().map(|need| ids.ids[*need].as_str()).collect();
        let epic = task.epic.as_ref().map(|epic| epic.as_str()).unwrap_or_default();
        let effort = match task.effort {
            TaskEffort::Small => "small",
            TaskEffort::Medium => "medium",
            TaskEffort::Large => "large",
        };
        let name = view.title(*at).replace('|', "\\|");
        let _ = writeln!(
            out,
            "| {} | {name} | {epic} | {effort} | {} |",
            ids.ids[*at],
            needs.join(", ")
        );
    }
    if view.plan.tasks.len() < PICTURE_MAX {
        let picture = graphs::render_mermaid_with_ids(view, &|at| ids.ids[at].clone());
        let _ = write!(out, "\n```mermaid\n{picture}```\n");
    }
    out
}
