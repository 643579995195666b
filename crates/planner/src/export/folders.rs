//! Formats that keep a file per task: Backlog.md, GSD, `.plan/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{ExportView, ExportedFiles};
use crate::import::SourceTaskState;
use crate::text_forms::{slugify, unique_name};

/// A text that YAML reads as that text.
fn yaml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn yaml_list<'t>(items: impl Iterator<Item = &'t str>) -> String {
    format!("[{}]", items.map(yaml_text).collect::<Vec<_>>().join(", "))
}

pub(super) fn export_backlog(view: &ExportView<'_>) -> ExportedFiles {
    let mut files = Vec::new();
    let name = |at: usize| format!("task-{}", at + 1);
    for (at, task) in view.plan.tasks.iter().enumerate() {
        let status = match view.states[at] {
            SourceTaskState::Done | SourceTaskState::Dropped => "Done",
            SourceTaskState::Doing => "In Progress",
            _ => "To Do",
        };
        let needs: Vec<String> = view.needs[at].iter().map(|need| name(*need)).collect();
        let mut out = format!(
            "---\nid: {}\ntitle: {}\nstatus: {status}\n",
            name(at),
            yaml_text(&view.title(at))
        );
        let _ = writeln!(out, "dependencies: {}", yaml_list(needs.iter().map(String::as_str)));
        let priority = match task.priority {
            10.. => "high",
            ..=-10 => "low",
            _ => "medium",
        };
        let _ = writeln!(out, "priority: {priority}");
        if !task.writes.is_empty() {
            let _ = writeln!(
                out,
                "modified_files: {}",
                yaml_list(task.writes.iter().map(String::as_str))
            );
        }
        let _ = write!(out, "---\n\n## Description\n\n{}\n\n", lower_headings(&task.description));
        out.push_str("## Acceptance Criteria\n<!-- AC:BEGIN -->\n");
        for (n, criterion) in task.acceptance.iter().enumerate() {
            let _ = writeln!(
                out,
                "- [ ] #{} {}",
                n + 1,
                crate::text_forms::collapse_to_line(criterion)
            );
        }
        out.push_str("<!-- AC:END -->\n");
        let file = format!("tasks/{} - {}.md", name(at), title_file_name(&view.title(at)));
        files.push((file, out));
    }
    let ids = view.plan.tasks.iter().enumerate().map(|(at, task)| (task.id.to_string(), name(at)));
    ExportedFiles { files, ids: ids.collect(), ..ExportedFiles::default() }
}

/// Headings of a text must not end the section it is put in.
fn lower_headings(text: &str) -> String {
    let lower = |line: &str| {
        let hashes = line.bytes().take_while(|b| *b == b'#').count();
        let heading = (1..=3).contains(&hashes) && line[hashes..].starts_with(' ');
        if heading { format!("####{}", &line[hashes..]) } else { line.to_owned() }
    };
    text.lines().map(lower).collect::<Vec<_>>().join("\n")
}

fn title_file_name(title: &str) -> String {
    let slug = slugify(title);
    if slug.is_empty() { "task".to_owned() } else { slug }
}

pub(super) fn export_gsd(view: &ExportView<'_>) -> ExportedFiles {
    let mut files = Vec::new();
    let mut ids = Vec::new();
    let mut names: Vec<String> = vec![String::new(); view.plan.tasks.len()];
    for (g, (.., members)) in view.groups.iter().enumerate() {
        for (n, at) in members.iter().enumerate() {
            names[*at] = format!("{:02}-{:02}", g + 1, n + 1);
            ids.push((view.task(*at).id.to_string(), names[*at].clone()));
        }
    }
    let mut roadmap = String::from("# Roadmap\n");
    for (g, (.., members)) in view.groups.iter().enumerate() {
        let head = view.heading(g);
        let phase = format!("{:02}-{}", g + 1, title_file_name(&head));
        let _ = write!(roadmap, "\n## Phase {}: {head}\n\n", g + 1);
        for (n, at) in members.iter().enumerate() {
            let task = view.task(*at);
            let needs = view.needs[*at].iter().map(|need| names[*need].as_str());
            let mut out = format!(
                "---\nphase: {}\nplan: {:02}\ntype: execute\nwave: {}\ndepends_on: {}\nfiles_modified: {}\n",
                yaml_text(&phase),
                n + 1,
                view.level(*at) + 1,
                yaml_list(needs),
                yaml_list(task.writes.iter().map(String::as_str)),
            );
            let truths = yaml_list(task.acceptance.iter().map(String::as_str));
            let _ = write!(out, "autonomous: true\nmust_haves:\n  truths: {truths}\n---\n\n");
            let _ = writeln!(out, "<objective>\n{}\n</objective>", view.title(*at));
            if !task.description.is_empty() {
                let _ = writeln!(out, "\n{}", task.description);
            }
            let done = view.states[*at] == SourceTaskState::Done;
            let tick = if done { "x" } else { " " };
            let _ = writeln!(roadmap, "- [{tick}] {}-PLAN.md — {}", names[*at], view.title(*at));
            let base = format!("phases/{phase}/{}", names[*at]);
            if done {
                files.push((
                    format!("{base}-SUMMARY.md"),
                    format!("# {}\n\nDone.\n", view.title(*at)),
                ));
            }
            files.push((format!("{base}-PLAN.md"), out));
        }
    }
    files.push(("ROADMAP.md".to_owned(), roadmap));
    ExportedFiles { files, ids, ..ExportedFiles::default() }
}

pub(super) fn export_plan_folder(view: &ExportView<'_>) -> ExportedFiles {
    let mut files = Vec::new();
    let mut ids = Vec::new();
    let mut taken = BTreeMap::new();
    for (g, (.., members)) in view.groups.iter().enumerate() {
        let head = view.heading(g);
        let epic = unique_name(&title_file_name(&head).replace('-', "_"), &mut taken);
        let place: BTreeMap<usize, usize> =
            members.iter().enumerate().map(|(n, at)| (*at, n + 1)).collect();
        let mut status = String::from(
            "# Tasks\n\n## Task Status\n\n| # | Task | Status | Notes |\n|---|------|--------|-------|\n",
        );
        for (at, n) in members.iter().zip(1..) {
            let task = view.task(*at);
            ids.push((task.id.to_string(), format!("{epic}-{n:03}")));
            let name = format!("{n:03}_{}", title_file_name(&view.title(*at)).replace('-', "_"));
            let needs: Vec<String> = view.needs[*at]
                .iter()
                .filter_map(|need| Some(format!("{:03}", place.get(need)?)))
                .collect();
            let mut out = format!(
                "# Task {n:03}: {}\n\n## Description\n\n{}\n\n## Dependencies\n\n",
                view.title(*at),
                lower_headings(&task.description)
            );
            if needs.is_empty() {
                out.push_str("None\n");
            }
            needs.iter().for_each(|need| out.push_str(&format!("- {need}\n")));
            out.push_str("\n## Success Criteria\n\n");
            for (n, criterion) in task.acceptance.iter().zip(1..).map(|(text, n)| (n, text)) {
                let _ = writeln!(out, "{n}. {}", crate::text_forms::collapse_to_line(criterion));
            }
            if !task.writes.is_empty() {
                out.push_str("\n## Files to Modify\n\n");
                task.writes.iter().for_each(|path| out.push_str(&format!("- `{path}`\n")));
            }
            let state = match view.states[*at] {
                SourceTaskState::Done => "[x] Complete",
                SourceTaskState::Doing => "[~] In Progress",
                SourceTaskState::Blocked => "[!] Blocked",
                _ => "[ ] Pending",
            };
            let title = view.title(*at).replace('|', "/");
            let _ = writeln!(status, "| {n:03} | {title} | {state} | |");
            files.push((format!("{epic}/tasks/{name}.md"), out));
        }
        files.push((format!("{epic}/PLAN.md"), format!("# Epic: {head}\n")));
        files.push((format!("{epic}/tasks/README.md"), status));
    }
    ExportedFiles { files, ids, ..ExportedFiles::default() }
}
