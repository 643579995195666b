//! Whose files are these? By the places and names that tools give them, then by what is inside.

use super::ToolFormat;
use crate::import_source::ImportSource;

/// The format of a source; if several fit, all of them.
pub fn detect_formats(source: &ImportSource) -> Vec<ToolFormat> {
    let root = source.root.replace('\\', "/");
    let root = root.trim_end_matches('/');
    let paths: Vec<String> =
        source.files.iter().map(|file| format!("/{root}/{}", file.path)).collect();
    let mut found = Vec::new();
    let mut add = |format: ToolFormat, yes: bool| {
        if yes {
            found.push(format);
        }
    };
    let any = |test: &dyn Fn(&str) -> bool| paths.iter().any(|path| test(path));
    let tasks_below =
        |folder: &str| any(&|path| path.contains(folder) && path.ends_with("/tasks.md"));
    add(ToolFormat::Raven, any(&|path| path.ends_with("/task-state.conf")) || any(&is_raven_path));
    add(ToolFormat::Gsd, any(&|path| path.ends_with("-PLAN.md") && path.contains("/phases/")));
    add(ToolFormat::PlanFolder, any(&is_plan_folder_path));
    add(ToolFormat::TaskMaster, any(&|path| path.ends_with("/.taskmaster/tasks/tasks.json")));
    let beads = |path: &str| path.contains("/.beads/") && path.ends_with(".jsonl");
    add(ToolFormat::Beads, any(&beads) || any(&|path| path.ends_with("/issues.jsonl")));
    let backlog = |path: &str| {
        (path.contains("/backlog/") || path.contains("/.backlog/"))
            && path.contains("/tasks/")
            && path.ends_with(".md")
    };
    add(ToolFormat::Backlog, any(&backlog));
    add(ToolFormat::Kiro, tasks_below("/.kiro/specs/"));
    add(ToolFormat::OpenSpec, tasks_below("/openspec/changes/"));
    add(ToolFormat::SpecKit, tasks_below("/specs/") && !tasks_below("/.kiro/specs/"));
    add(ToolFormat::Ralph, any(&|path| path.ends_with("/prd.json")));
    if found.is_empty() {
        found.extend(detect_by_content(source));
    }
    found
}

fn is_raven_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let digits =
        name.strip_prefix("T-").map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits.is_some_and(|n| n >= 3 && name[2 + n..].starts_with('-') && name.ends_with(".md"))
}

fn is_plan_folder_path(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    folder.contains("/.plan/")
        && folder.ends_with("/tasks")
        && digits > 0
        && name[digits..].starts_with('_')
}

/// One file whose name says nothing.
fn detect_by_content(source: &ImportSource) -> Option<ToolFormat> {
    let [file] = source.files.as_slice() else {
        let md = source.files.iter().filter(|file| file.path.ends_with(".md"));
        let front = |text: &str| {
            text.starts_with("---") && text.contains("\nstatus:") && text.contains("\nid:")
        };
        let mut md = md.peekable();
        md.peek()?;
        return md.all(|file| front(&file.text)).then_some(ToolFormat::Backlog);
    };
    let text = file.text.trim_start_matches('\u{feff}').trim_start();
    let end = file.path.rsplit_once('.').map_or("", |(_, end)| end);
    match end {
        "jsonl" => Some(ToolFormat::Beads),
        "yml" | "yaml" => text.contains("tasks:").then_some(ToolFormat::Workers),
        "json" => {
            if text.contains("\"userStories\"") || text.contains("\"passes\"") {
                Some(ToolFormat::Ralph)
            } else if text.contains("\"issue_type\"") || text.contains("\"depends_on_id\"") {
                Some(ToolFormat::Beads)
            } else if text.starts_with('[') && text.contains("\"number\"") {
                Some(ToolFormat::GitHub)
            } else if text.contains("\"tasks\"") {
                Some(ToolFormat::TaskMaster)
            } else {
                None
            }
        }
        "md" | "markdown" => detect_checklist(text),
        _ => None,
    }
}

fn detect_checklist(text: &str) -> Option<ToolFormat> {
    let mut boxes = text.lines().filter_map(|line| {
        let rest = crate::lenient_tree::bullet_text(line.trim_start())?.strip_prefix('[')?;
        rest.split_once("] ").map(|(_, rest)| rest)
    });
    let first = boxes.next()?;
    let spec =
        first.starts_with('T') && first[1..].bytes().take_while(u8::is_ascii_digit).count() >= 3;
    if spec {
        Some(ToolFormat::SpecKit)
    } else if text.contains("_Requirements:") {
        Some(ToolFormat::Kiro)
    } else {
        Some(ToolFormat::Checklist)
    }
}
