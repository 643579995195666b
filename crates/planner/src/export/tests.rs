//! Every format reads back what it writes: 500 tasks out, 500 tasks with the same edges in.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use mainstem_core::id::{EpicId, TaskId};
use mainstem_core::plan::Epic;
use mainstem_core::plan::read::{DocumentFormat as Syntax, read_plan};

use super::*;
use crate::import::{FORMATS, ImportOptions, ImportOrder, detect_formats, import_plan};
use crate::import_source::{ImportSource, apply_edits};
use crate::status_push::plan_status_push;

/// Five epics of a hundred tasks, edges inside epics and between them.
fn large() -> Plan {
    let epic = |e: usize| Epic {
        id: EpicId::new(format!("E-{e}")),
        title: format!("Part {e}"),
        needs: Vec::new(),
    };
    let task = |i: usize| Task {
        id: TaskId::new(format!("T-{:03}", i + 1)),
        epic: Some(EpicId::new(format!("E-{}", i / 100))),
        title: format!("Piece {i}: \"quoted\" & `code`"),
        description: format!("Write piece {i}.\n\nWith a second paragraph; 100% of it."),
        acceptance: vec![format!("piece {i} works"), "nothing else breaks".to_owned()],
        needs: [3, 7]
            .into_iter()
            .filter(|d| i % 100 >= *d && i.is_multiple_of(*d))
            .map(|d| TaskId::new(format!("T-{:03}", i + 1 - d)))
            .collect(),
        priority: if i.is_multiple_of(10) { 10 } else { 0 },
        ..Task::empty()
    };
    Plan {
        title: "Large".to_owned(),
        epics: (0..5).map(epic).collect(),
        tasks: (0..500).map(task).collect(),
    }
}

/// Edges by the titles of their ends.
fn edges(plan: &Plan) -> BTreeSet<(String, String)> {
    let title = |id: &TaskId| plan.tasks.iter().find(|task| task.id == *id).unwrap().title.clone();
    plan.tasks
        .iter()
        .flat_map(|task| task.needs.iter().map(move |need| (task.title.clone(), title(need))))
        .collect()
}

#[test]
fn every_format_round_trips_five_hundred_tasks() {
    let plan = large();
    let states = BTreeMap::from([
        ("T-001".to_owned(), SourceTaskState::Done),
        ("T-002".to_owned(), SourceTaskState::Doing),
    ]);
    let accept = ImportOptions { all: true, order: ImportOrder::Free, ..ImportOptions::default() };
    for (format, name, _) in FORMATS {
        let out =
            export_plan(&plan, &states, ExportTarget::Tool(format), &ExportOptions::default())
                .unwrap();
        let root = match format {
            ToolFormat::PlanFolder => ".plan",
            ToolFormat::Backlog => "backlog",
            ToolFormat::SpecKit => "specs/a",
            ToolFormat::OpenSpec => "openspec/changes/a",
            ToolFormat::Kiro => ".kiro/specs/a",
            _ => "",
        };
        let source = ImportSource::new(root, out.files.clone());
        if format != ToolFormat::Checklist {
            assert_eq!(detect_formats(&source), [format], "{name}");
        }
        let back = import_plan(&source, format, &accept)
            .unwrap_or_else(|why| panic!("{name}: {:?}", why.diagnostics));
        assert_eq!(back.plan.tasks.len(), 500, "{name}");
        assert_eq!(edges(&back.plan), edges(&plan), "{name}");
        let by_title: BTreeMap<&str, &Task> =
            back.plan.tasks.iter().map(|t| (t.title.as_str(), t)).collect();
        for task in &plan.tasks {
            let other = by_title
                .get(task.title.as_str())
                .unwrap_or_else(|| panic!("{name}: {}", task.title));
            for line in task.description.lines() {
                assert!(other.description.contains(line), "{name}: {}", other.description);
            }
            let kept = |text: &String| {
                other.acceptance.contains(text) || other.description.contains(text.as_str())
            };
            assert!(task.acceptance.iter().all(kept), "{name}: {other:?}");
        }
        let done: Vec<_> =
            back.rows.iter().filter(|row| row.state == SourceTaskState::Done).collect();
        assert_eq!(
            (done.len(), done[0].title.as_str()),
            (1, plan.tasks[0].title.as_str()),
            "{name}"
        );
        // A push of every task changes only statuses: reading again differs in nothing else.
        let all: BTreeMap<String, SourceTaskState> =
            back.rows.iter().map(|row| (row.ours.clone(), SourceTaskState::Done)).collect();
        let pushed = plan_status_push(&back, &all);
        assert!(pushed.notices.is_empty() && pushed.changes.len() >= 499, "{name}");
        let mut files: BTreeMap<String, String> = out.files.into_iter().collect();
        files.extend(apply_edits(&source, &pushed.edits));
        let again = import_plan(&ImportSource::new(root, files), format, &accept).unwrap();
        assert_eq!(again.plan, back.plan, "{name}");
        let finished = again.rows.iter().filter(|row| row.state == SourceTaskState::Done).count();
        assert_eq!(finished, 500, "{name}");
    }
}

#[test]
fn our_own_files_read_back_as_the_same_plan() {
    let mut plan = large();
    plan.epics[1].needs = vec![EpicId::new("E-0")];
    plan.tasks[3].description = "tabs\t\"\"\" quotes \\ and\r\n\u{7f}control\n".to_owned();
    plan.tasks[4].timeout_ms = Some(90_000);
    plan.tasks[4].retries = Some(3);
    plan.tasks[5].verify = vec!["cargo test \"x\"".to_owned()];
    plan.tasks[6].writes = vec!["src/**".to_owned()];
    plan.tasks[6].after = vec![plan.tasks[5].id.clone()];
    for (target, syntax) in [(ExportTarget::Toml, Syntax::Toml), (ExportTarget::Json, Syntax::Json)]
    {
        let out = export_plan(&plan, &BTreeMap::new(), target, &ExportOptions::default()).unwrap();
        let (back, _) = read_plan(out.files[0].1.as_bytes(), syntax)
            .unwrap_or_else(|faults| panic!("{faults:?}"));
        assert_eq!(back, plan);
    }
}

#[test]
fn the_task_folder_has_phases_that_do_not_overlap() {
    let plan = large();
    let out = export_plan(
        &plan,
        &BTreeMap::new(),
        ExportTarget::Tool(ToolFormat::Raven),
        &ExportOptions { start_id: 600 },
    )
    .unwrap();
    let file = |name: &str| &out.files.iter().find(|(path, _)| path == name).unwrap().1;
    let mut last = 599;
    for line in file("phases.conf").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').collect();
        let number = |text: &str| text.trim_start_matches("T-").parse::<usize>().unwrap();
        assert_eq!(number(fields[2]), last + 1, "{line}");
        last = number(fields[3]);
    }
    assert_eq!(last, 1099);
    assert!(out.files.iter().any(|(path, _)| path.starts_with("T-0600-")));
    assert!(!file("INDEX.md").contains("mermaid"), "a picture of 500 tasks shows nothing");
    assert!(file("PROGRESS.md").contains("0 of 500 tasks are done"));
}

#[test]
fn the_picture_of_a_task_folder_has_the_ids_of_its_files() {
    let task = |id: &str, title: &str, needs: &[&str]| Task {
        id: TaskId::new(id),
        title: title.to_owned(),
        description: "x".to_owned(),
        needs: needs.iter().map(|need| TaskId::new(*need)).collect(),
        ..Task::empty()
    };
    // Written by depth, so that the second and the third change places.
    let tasks = vec![task("A", "Alpha", &[]), task("B", "Beta", &["A"]), task("C", "Gamma", &[])];
    let plan = Plan { title: "Three".to_owned(), epics: Vec::new(), tasks };
    let raven = ExportTarget::Tool(ToolFormat::Raven);
    let out = export_plan(&plan, &BTreeMap::new(), raven, &ExportOptions::default()).unwrap();
    let index = &out.files.iter().find(|(path, _)| path == "INDEX.md").unwrap().1;
    for title in ["Alpha", "Beta", "Gamma"] {
        let lower = title.to_lowercase();
        let (path, _) = out.files.iter().find(|(path, _)| path.contains(&lower)).unwrap();
        let id = &path[..5];
        assert!(index.contains(&format!("[\"{id} {title}\"]")), "{path}\n{index}");
    }
}

#[test]
fn pictures_hold_every_edge_and_no_markup_of_titles() {
    let mut plan = large();
    plan.tasks.truncate(20);
    plan.tasks[0].title = "a\"] --> b; click x".to_owned();
    let count = edges(&plan).len();
    let text = |target| {
        export_plan(&plan, &BTreeMap::new(), target, &ExportOptions::default()).unwrap().files[0]
            .1
            .clone()
    };
    let mermaid = text(ExportTarget::Mermaid);
    assert_eq!(mermaid.lines().filter(|line| line.contains(" --> ")).count(), count);
    assert!(!mermaid.contains("a\"]"));
    assert_eq!(text(ExportTarget::Dot).matches("\" -> \"").count(), count);
    assert!(text(ExportTarget::Index).contains("```mermaid"));
}

#[test]
fn what_a_format_has_no_place_for_is_named() {
    let mut plan = large();
    plan.tasks[0].model = Some("m".to_owned());
    plan.tasks[1].after = vec![plan.tasks[0].id.clone()];
    let out = export_plan(
        &plan,
        &BTreeMap::new(),
        ExportTarget::Tool(ToolFormat::Ralph),
        &ExportOptions::default(),
    )
    .unwrap();
    assert_eq!(out.lost, ["after of 1 task", "priority of 50 tasks", "model of 1 task"]);
    assert_eq!(out.ids[0], ("T-001".to_owned(), "US-001".to_owned()));
}
