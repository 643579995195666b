//! Whose files are these? By the places and names that tools give them, then by what is inside.

use super::Format;
use crate::source::Source;

/// The format of a source; if several fit, all of them.
pub fn detect(source: &Source) -> Vec<Format> {
    let root = source.root.replace('\\', "/");
    let root = root.trim_end_matches('/');
    let paths: Vec<String> =
        source.files.iter().map(|file| format!("/{root}/{}", file.path)).collect();
    let mut found = Vec::new();
    let mut add = |format: Format, yes: bool| {
        if yes {
            found.push(format);
        }
    };
    let any = |test: &dyn Fn(&str) -> bool| paths.iter().any(|path| test(path));
    let tasks_below =
        |folder: &str| any(&|path| path.contains(folder) && path.ends_with("/tasks.md"));
    add(Format::Raven, any(&|path| path.ends_with("/task-state.conf")) || any(&is_raven));
    add(Format::Gsd, any(&|path| path.ends_with("-PLAN.md") && path.contains("/phases/")));
    add(Format::PlanFolder, any(&is_plan_folder));
    add(Format::TaskMaster, any(&|path| path.ends_with("/.taskmaster/tasks/tasks.json")));
    let beads = |path: &str| path.contains("/.beads/") && path.ends_with(".jsonl");
    add(Format::Beads, any(&beads) || any(&|path| path.ends_with("/issues.jsonl")));
    let backlog = |path: &str| {
        (path.contains("/backlog/") || path.contains("/.backlog/"))
            && path.contains("/tasks/")
            && path.ends_with(".md")
    };
    add(Format::Backlog, any(&backlog));
    add(Format::Kiro, tasks_below("/.kiro/specs/"));
    add(Format::OpenSpec, tasks_below("/openspec/changes/"));
    add(Format::SpecKit, tasks_below("/specs/") && !tasks_below("/.kiro/specs/"));
    add(Format::Ralph, any(&|path| path.ends_with("/prd.json")));
    if found.is_empty() {
        found.extend(by_content(source));
    }
    found
}

fn is_raven(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let digits =
        name.strip_prefix("T-").map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    digits.is_some_and(|n| n >= 3 && name[2 + n..].starts_with('-') && name.ends_with(".md"))
}

fn is_plan_folder(path: &str) -> bool {
    let Some((folder, name)) = path.rsplit_once('/') else { return false };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    folder.contains("/.plan/")
        && folder.ends_with("/tasks")
        && digits > 0
        && name[digits..].starts_with('_')
}

/// One file whose name says nothing.
fn by_content(source: &Source) -> Option<Format> {
    let [file] = source.files.as_slice() else {
        let md = source.files.iter().filter(|file| file.path.ends_with(".md"));
        let front = |text: &str| {
            text.starts_with("---") && text.contains("\nstatus:") && text.contains("\nid:")
        };
        let mut md = md.peekable();
        md.peek()?;
        return md.all(|file| front(&file.text)).then_some(Format::Backlog);
    };
    let text = file.text.trim_start_matches('\u{feff}').trim_start();
    let end = file.path.rsplit_once('.').map_or("", |(_, end)| end);
    match end {
        "jsonl" => Some(Format::Beads),
        "yml" | "yaml" => text.contains("tasks:").then_some(Format::Workers),
        "json" => {
            if text.contains("\"userStories\"") || text.contains("\"passes\"") {
                Some(Format::Ralph)
            } else if text.contains("\"issue_type\"") || text.contains("\"depends_on_id\"") {
                Some(Format::Beads)
            } else if text.starts_with('[') && text.contains("\"number\"") {
                Some(Format::GitHub)
            } else if text.contains("\"tasks\"") {
                Some(Format::TaskMaster)
            } else {
                None
            }
        }
        "md" | "markdown" => checklist(text),
        _ => None,
    }
}

fn checklist(text: &str) -> Option<Format> {
    let mut boxes = text.lines().filter_map(|line| {
        let rest = crate::tree::bullet(line.trim_start())?.strip_prefix('[')?;
        rest.split_once("] ").map(|(_, rest)| rest)
    });
    let first = boxes.next()?;
    let spec =
        first.starts_with('T') && first[1..].bytes().take_while(u8::is_ascii_digit).count() >= 3;
    if spec {
        Some(Format::SpecKit)
    } else if text.contains("_Requirements:") {
        Some(Format::Kiro)
    } else {
        Some(Format::Checklist)
    }
}
