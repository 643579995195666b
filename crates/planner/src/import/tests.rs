//! Each format in its real shape: what it becomes, and that a push changes its status and nothing
//! else.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use super::*;
use crate::import_source::{ImportSource, apply_edits};
use crate::status_push::plan_status_push;

fn source(root: &str, files: &[(&str, &str)]) -> ImportSource {
    ImportSource::new(
        root,
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())),
    )
}

fn imported(source: &ImportSource, format: ToolFormat) -> ImportedPlan {
    import_plan(source, format, &ImportOptions::default())
        .unwrap_or_else(|why| panic!("{:?}", why.diagnostics))
}

/// `id < needs` of every task of the plan.
fn graph(imported: &ImportedPlan) -> Vec<String> {
    let line = |task: &mainstem_core::plan::Task| {
        let needs: Vec<&str> = task.needs.iter().map(|id| id.as_str()).collect();
        format!("{} < {}", task.id, needs.join(" ")).trim_end().to_owned()
    };
    imported.plan.tasks.iter().map(line).collect()
}

/// Says that these are done and those are being done; answers each file that changes.
fn pushed(
    source: &ImportSource,
    format: ToolFormat,
    done: &[&str],
    doing: &[&str],
) -> BTreeMap<String, String> {
    let accept = ImportOptions { all: true, ..ImportOptions::default() };
    let imported = import_plan(source, format, &accept).unwrap();
    let mut states: BTreeMap<String, SourceTaskState> =
        done.iter().map(|id| ((*id).to_owned(), SourceTaskState::Done)).collect();
    states.extend(doing.iter().map(|id| ((*id).to_owned(), SourceTaskState::Doing)));
    let push = plan_status_push(&imported, &states);
    assert_eq!(push.notices, [], "every task has a place for its status");
    apply_edits(source, &push.edits)
}

/// The lines that differ.
fn diff(old: &str, new: &str) -> Vec<(String, String)> {
    assert_eq!(old.lines().count(), new.lines().count());
    let pairs = old.lines().zip(new.lines()).filter(|(a, b)| a != b);
    pairs.map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned())).collect()
}

const SPECKIT: &str = "# Tasks: Cart

**Input**: Design documents from `/specs/004-cart/`

## Phase 1: Setup (Shared Infrastructure)

- [x] T001 Create project structure per implementation plan
- [ ] T002 [P] Configure linting in `.eslintrc.json`
- [ ] T003 [P] Add test runner in config/jest.config.ts

## Phase 2: Foundational (Blocking Prerequisites)

- [ ] T004 Setup database schema in src/db/schema.sql

**Checkpoint**: Foundation ready

## Phase 3: User Story 1 - Add items (Priority: P1)

- [ ] T005 [P] [US1] Cart model in src/models/cart.py
- [ ] T006 [US1] Cart service in src/services/cart.py (depends on T005)
  - must be idempotent

## Phase 4: User Story 2 - Checkout (Priority: P2)

- [ ] T007 [US2] Checkout page in src/pages/checkout.tsx

## Phase 5: Polish & Cross-Cutting Concerns

- [ ] T008 [P] Documentation updates in docs/

```
- [ ] T099 not a task, an example
```
";

#[test]
fn spec_kit_lists_become_phases_stories_and_edges() {
    let source = source("specs/004-cart", &[("tasks.md", SPECKIT)]);
    assert_eq!(detect_formats(&source), [ToolFormat::SpecKit]);
    let got = imported(&source, ToolFormat::SpecKit);
    assert_eq!(
        graph(&got),
        [
            "T002 <",
            "T003 <",
            "T004 < T002 T003",
            "T005 < T004",
            "T006 < T005",
            "T007 < T004",
            "T008 < T006 T007",
        ]
    );
    assert_eq!(got.plan.title, "Cart");
    let service = &got.plan.tasks[4];
    assert_eq!(service.title, "Cart service in src/services/cart.py");
    assert_eq!(service.writes, ["src/services/cart.py"]);
    assert!(
        service.description.contains("User story: US1")
            && service.description.contains("idempotent")
    );
    assert!(!got.rows[0].kept && got.rows[0].theirs == "T001");
    assert_eq!(got.rows[1].place.line, 8);
    let after = pushed(&source, ToolFormat::SpecKit, &["T006"], &["T005"]);
    let was = "- [ ] T006 [US1] Cart service in src/services/cart.py (depends on T005)".to_owned();
    assert_eq!(diff(SPECKIT, &after["tasks.md"]), [(was.clone(), was.replace("[ ]", "[x]"))]);
    assert_eq!(after["tasks.md"].len(), SPECKIT.len());
}

#[test]
fn order_can_be_soft_or_free() {
    let source = source("", &[("todo.md", "- [ ] First thing\n- [ ] Second thing\n")]);
    for (order, want) in
        [(ImportOrder::Needs, (1, 0)), (ImportOrder::After, (0, 1)), (ImportOrder::Free, (0, 0))]
    {
        let got = import_plan(
            &source,
            ToolFormat::Checklist,
            &ImportOptions { order, ..ImportOptions::default() },
        )
        .unwrap();
        let second = &got.plan.tasks[1];
        assert_eq!((second.needs.len(), second.after.len()), want);
        assert_eq!(second.id.as_str(), "second-thing");
    }
}

#[test]
fn a_place_in_the_file_never_makes_a_circle() {
    let text = "- [ ] T001 One (depends on T003)\n- [ ] T002 Two\n- [ ] T003 Three\n";
    let got = imported(&source("", &[("tasks.md", text)]), ToolFormat::SpecKit);
    assert_eq!(graph(&got), ["T001 < T003", "T002 <", "T003 <"]);
    assert!(got.notices.iter().any(|notice| notice.message.contains("contradicts")));
}

const OPENSPEC: &str = "## 1. Database\r\n\r\n- [x] 1.1 Table\r\n- [ ] 1.2 Query\r\n\r\n## 2. Page\r\n\r\n* [ ] 2.1 Form\r\n";

#[test]
fn openspec_groups_follow_each_other_and_line_ends_stay() {
    let source = source("openspec/changes/add-cart", &[("tasks.md", OPENSPEC)]);
    assert_eq!(detect_formats(&source), [ToolFormat::OpenSpec]);
    let got = imported(&source, ToolFormat::OpenSpec);
    assert_eq!(graph(&got), ["1.2 <", "2.1 < 1.2"]);
    assert_eq!(got.plan.epics.len(), 2);
    let after = pushed(&source, ToolFormat::OpenSpec, &["2.1"], &["1.2"]);
    assert_eq!(after["tasks.md"], OPENSPEC.replace("[ ] 2.1", "[x] 2.1"));
}

const KIRO: &str = "# Implementation Plan

- [ ] 1. Set up the data layer
  - [x] 1.1 Create models
    - write src/models.ts
    - _Requirements: 1.1, 1.2_
  - [ ]* 1.2 Write property tests
    - _Requirements: 2.1_
  - [ ] 1.3 Wire it
- [ ] 2. Build the page
  - _Requirements: 1.2_
";

#[test]
fn kiro_parents_are_groups_and_close_with_their_last_required_child() {
    let requirements = "# Requirements\n\n### Requirement 1: Cart\n\n#### Acceptance Criteria\n\n1. WHEN an item is added THEN the cart SHALL hold it\n2. WHEN it is removed THEN it SHALL be gone\n";
    let source =
        source(".kiro/specs/cart", &[("requirements.md", requirements), ("tasks.md", KIRO)]);
    assert_eq!(detect_formats(&source), [ToolFormat::Kiro]);
    let got = imported(&source, ToolFormat::Kiro);
    assert_eq!(graph(&got), ["1.2 <", "1.3 < 1.2", "2 < 1.3"]);
    assert_eq!(got.plan.tasks[2].acceptance, ["1.2: WHEN it is removed THEN it SHALL be gone"]);
    assert_eq!(got.plan.tasks[0].on_failure, mainstem_core::plan::TaskFailureAction::Skip);
    let after = pushed(&source, ToolFormat::Kiro, &["1.3"], &["2"]);
    let want = KIRO
        .replace("[ ] 1. ", "[x] 1. ")
        .replace("[ ] 1.3", "[x] 1.3")
        .replace("[ ] 2.", "[-] 2.");
    assert_eq!(after["tasks.md"], want);
}

const TASKMASTER: &str = r#"{
  "feature": {"tasks": [{"id": 1, "title": "Other"}]},
  "master": {
    "tasks": [
      {"id": 1, "title": "Base", "description": "d", "status": "done", "dependencies": [], "priority": "high", "details": "", "testStrategy": "", "subtasks": []},
      {
        "id": 2, "title": "API", "description": "The API", "status": "pending", "dependencies": [1], "priority": "high",
        "mood": "sunny", "subtasks": [
          {"id": 1, "title": "Routes", "description": "r", "status": "pending", "dependencies": [], "acceptanceCriteria": ["they answer"]},
          {"id": 2, "title": "Auth", "description": "a", "status":   "pending"  , "dependencies": [1, "1"], "details": "in src/auth.ts"}
        ]
      },
      {"id": "3", "title": "Page", "description": "p", "dependencies": [2], "priority": "low"}
    ],
    "metadata": {"created": "2026-01-01", "x": 1.0}
  }
}
"#;

#[test]
fn task_master_subtasks_are_the_work_and_unknown_fields_stay() {
    let source = source(".taskmaster/tasks", &[("tasks.json", TASKMASTER)]);
    assert_eq!(detect_formats(&source), [ToolFormat::TaskMaster]);
    let got = imported(&source, ToolFormat::TaskMaster);
    assert_eq!(graph(&got), ["2.1 <", "2.2 < 2.1", "3 < 2.2"]);
    assert_eq!(got.plan.epics[0].title, "API");
    assert_eq!(got.plan.tasks[1].writes, ["src/auth.ts"]);
    assert_eq!(got.lost["mood"].count, 1);
    assert!(got.notices[0].message.contains("`feature`"));
    let after = pushed(&source, ToolFormat::TaskMaster, &["2.1", "2.2"], &["3"]);
    let want = TASKMASTER
        .replace("\"r\", \"status\": \"pending\"", "\"r\", \"status\": \"done\"")
        .replace("\"status\":   \"pending\"  ", "\"status\":   \"done\"  ")
        .replace("\"The API\", \"status\": \"pending\"", "\"The API\", \"status\": \"done\"")
        .replace("{\"id\": \"3\"", "{\"status\": \"in-progress\", \"id\": \"3\"");
    assert_eq!(after["tasks.json"], want);
}

const BEADS: &str = r#"{"id":"bd-a1","title":"Epic","status":"open","priority":1,"issue_type":"epic","created_at":"2026-01-01T00:00:00Z"}
{"id":"bd-a1.1","title":"Table","description":"t","acceptance_criteria":"- exists\n- is fast","status":"open","priority":0,"issue_type":"task","metadata":{"pr":1},"dependencies":[{"issue_id":"bd-a1.1","depends_on_id":"bd-a1","type":"parent-child"}]}
{"id":"bd-a1.2","title":"Query","status":"in_progress","priority":2,"issue_type":"task","dependencies":[{"issue_id":"bd-a1.2","depends_on_id":"bd-a1.1","type":"blocks"},{"issue_id":"bd-a1.2","depends_on_id":"bd-z9","type":"related"}]}

{"id":"bd-b2","title":"Page","status":"open","priority":4,"issue_type":"feature","estimated_minutes":600,"dependencies":[{"issue_id":"bd-b2","depends_on_id":"bd-a1","type":"blocks"}]}
{"id":"bd-c3","title":"CI","status":"open","issue_type":"gate","await_type":"gh:run"}
{"id":"bd-d4","title":"Gone","status":"tombstone"}
"#;

#[test]
fn beads_lines_become_groups_and_blockers() {
    let source = source(".beads", &[("issues.jsonl", BEADS)]);
    assert_eq!(detect_formats(&source), [ToolFormat::Beads]);
    let accept = ImportOptions { all: true, ..ImportOptions::default() };
    let got = import_plan(&source, ToolFormat::Beads, &accept).unwrap();
    assert_eq!(graph(&got), ["bd-a1.1 <", "bd-a1.2 < bd-a1.1", "bd-b2 < bd-a1.2"]);
    assert_eq!(got.plan.tasks[0].acceptance, ["exists", "is fast"]);
    assert_eq!((got.plan.tasks[0].priority, got.plan.tasks[2].priority), (2, -2));
    assert_eq!(got.lost["dependencies of type related"].first.line, 3);
    assert!(got.lost.contains_key("metadata"));
    let after = pushed(&source, ToolFormat::Beads, &["bd-a1.1", "bd-a1.2"], &["bd-b2"]);
    let lines = diff(BEADS, &after["issues.jsonl"]);
    assert_eq!(lines.len(), 4);
    for ((old, new), word) in lines.iter().zip(["closed", "closed", "closed", "in_progress"]) {
        let from = if old.contains("bd-a1.2\"") { "in_progress" } else { "open" };
        assert_eq!(
            *new,
            old.replacen(&format!("\"status\":\"{from}\""), &format!("\"status\":\"{word}\""), 1)
        );
    }
}

#[test]
fn beads_that_others_work_on_are_left_out_with_what_needs_them() {
    let lines = r#"{"id":"bd-1","title":"A","status":"in_progress","assignee":"bob"}
{"id":"bd-2","title":"B","status":"open","dependencies":[{"depends_on_id":"bd-1","type":"blocks"}]}
{"id":"bd-3","title":"C","status":"blocked"}
{"id":"bd-4","title":"D","status":"open","assignee":"ann"}
{"id":"bd-5","title":"E","status":"open","dependency_count":1}
{"id":"bd-6","title":"F","status":"open","dependencies":[{"depends_on_id":"bd-7","type":"blocks"}]}
{"id":"bd-7","title":"G","status":"closed"}
"#;
    let got = imported(&source("", &[("issues", lines)]), ToolFormat::Beads);
    assert_eq!(graph(&got), ["bd-4 <", "bd-6 <"]);
    let notices: Vec<&str> = got.notices.iter().map(|notice| notice.message.as_str()).collect();
    for words in [
        "bd-1 is in progress (bob): not imported; use --all to import all tasks",
        "bd-2 needs bd-1, which is left out: not imported; use --all to import all tasks",
        "bd-3 is blocked: not imported; use --all to import all tasks",
        "bd-4 is assigned to ann",
        "bd-5 has dependencies that are only counted here (1)",
    ] {
        assert!(notices.iter().any(|notice| notice.starts_with(words)), "{words} in {notices:#?}");
    }
}

#[test]
fn beads_come_as_list_object_and_envelope() {
    let issue = r#"{"id":"bd-1","title":"A","status":"open","issue_type":"task"}"#;
    for text in [
        format!("[{issue}]"),
        format!("{{\"schema_version\":2,\"data\":[{issue}]}}"),
        issue.to_owned(),
    ] {
        let got = imported(&source("", &[("out.json", &text)]), ToolFormat::Beads);
        assert_eq!(graph(&got), ["bd-1 <"], "{text}");
    }
}

const BACKLOG: &str = "---
id: task-7
title: 'Paste: as markdown'
status: To Do
assignee: []
labels:
  - web
dependencies: [TASK-3]
priority: high
custom: kept
---

## Description

<!-- SECTION:DESCRIPTION:BEGIN -->
Paste it.
<!-- SECTION:DESCRIPTION:END -->

## Acceptance Criteria
<!-- AC:BEGIN -->
- [ ] #1 It pastes
- [x] #2 It is markdown
<!-- AC:END -->
";

#[test]
fn backlog_files_keep_every_other_byte() {
    let three = "---\nid: task-3\ntitle: Base\nstatus: \"In Progress\"\ndependencies: []\n---\n";
    let source = source(
        "backlog",
        &[
            ("config.yml", "statuses: [\"To Do\", \"In Progress\", \"Shipped\"]\n"),
            ("tasks/task-3 - Base.md", three),
            ("tasks/task-7 - Paste.md", BACKLOG),
        ],
    );
    assert_eq!(detect_formats(&source), [ToolFormat::Backlog]);
    let got = imported(&source, ToolFormat::Backlog);
    assert_eq!(graph(&got), ["task-3 <", "task-7 < task-3"]);
    let task = &got.plan.tasks[1];
    assert_eq!(
        (task.title.as_str(), task.description.as_str()),
        ("Paste: as markdown", "Paste it.")
    );
    assert_eq!(task.acceptance, ["It pastes", "It is markdown"]);
    assert!(got.lost.contains_key("custom") && got.lost.contains_key("labels"));
    let after = pushed(&source, ToolFormat::Backlog, &["task-3", "task-7"], &[]);
    assert_eq!(after["tasks/task-7 - Paste.md"], BACKLOG.replace("To Do", "Shipped"));
    assert_eq!(after["tasks/task-3 - Base.md"], three.replace("In Progress", "Shipped"));
    assert_eq!(after.len(), 2);
}

const RALPH: &str = r#"{
  "project": "Shop", "branchName": "ralph/shop", "description": "d",
  "userStories": [
    {"id": "US-002", "title": "Second", "description": "b", "acceptanceCriteria": ["cmd: npm test"], "priority": 2, "passes": false, "notes": ""},
    {"id": "US-001", "title": "First", "description": "a", "acceptanceCriteria": ["works"], "priority": 1, "passes":false, "mood": 1}
  ]
}"#;

#[test]
fn ralph_stories_chain_by_priority_and_pass() {
    let source = source("", &[("prd.json", RALPH)]);
    assert_eq!(detect_formats(&source), [ToolFormat::Ralph]);
    let got = imported(&source, ToolFormat::Ralph);
    assert_eq!(graph(&got), ["US-002 < US-001", "US-001 <"]);
    let after = pushed(&source, ToolFormat::Ralph, &["US-001"], &[]);
    assert_eq!(after["prd.json"], RALPH.replace("\"passes\":false", "\"passes\":true"));
}

#[test]
fn commands_are_listed_and_become_gates_only_if_accepted() {
    let source = source("", &[("prd.json", RALPH)]);
    let got = imported(&source, ToolFormat::Ralph);
    assert_eq!(got.commands[0].text, "npm test");
    assert_eq!(got.commands[0].place.line, 4);
    assert!(got.plan.tasks.iter().all(|task| task.verify.is_empty() && task.run.is_none()));
    let got = import_plan(
        &source,
        ToolFormat::Ralph,
        &ImportOptions { commands: true, ..ImportOptions::default() },
    )
    .unwrap();
    assert_eq!(got.plan.tasks[0].verify, ["npm test"]);
}

const GSD: &str = "---
phase: 01-base
plan: 02
type: execute
wave: 2
depends_on: []
files_modified: [src/a.ts, src/b/]
autonomous: false
must_haves:
  truths:
    - \"It works\"
  artifacts:
    - path: src/a.ts
      provides: the thing
---

<objective>
Make the thing.

Purpose: because
</objective>

<task type=\"auto\"><verify><automated>npm run check</automated></verify></task>
";

#[test]
fn gsd_plans_have_waves_files_and_a_box_in_the_roadmap() {
    let first = "---\nphase: 01-base\nplan: 01\nwave: 1\ndepends_on: []\n---\n<objective>\nBase\n</objective>\n";
    let second = first.replace("01-base", "02-more");
    let roadmap = "# Roadmap\n- [ ] 01-01-PLAN.md — base\n- [ ] 01-02-PLAN.md — thing\n";
    let source = source(
        ".planning",
        &[
            ("ROADMAP.md", roadmap),
            ("phases/01-base/01-01-PLAN.md", first),
            ("phases/01-base/01-02-PLAN.md", GSD),
            ("phases/02-more/02-01-PLAN.md", &second),
            ("phases/02-more/02-01-SUMMARY.md", "done"),
        ],
    );
    assert_eq!(detect_formats(&source), [ToolFormat::Gsd]);
    let got = imported(&source, ToolFormat::Gsd);
    assert_eq!(graph(&got), ["01-01 <", "01-02 < 01-01"]);
    let task = &got.plan.tasks[1];
    assert_eq!(task.title, "Make the thing.");
    assert_eq!(task.writes, ["src/a.ts", "src/b/**"]);
    assert_eq!(task.acceptance, ["It works", "src/a.ts exists: the thing"]);
    assert_eq!(got.commands[0].text, "npm run check");
    let after = pushed(&source, ToolFormat::Gsd, &["01-02"], &[]);
    assert_eq!(after["ROADMAP.md"], roadmap.replace("[ ] 01-02", "[x] 01-02"));
    assert_eq!(after.len(), 1);
    // What a push ticked is done for the next reading.
    let ticked = crate::import_source::ImportSource {
        files: source
            .files
            .iter()
            .map(|file| crate::import_source::SourceFile {
                text: after.get(&file.path).unwrap_or(&file.text).clone(),
                ..file.clone()
            })
            .collect(),
        ..source.clone()
    };
    assert_eq!(graph(&imported(&ticked, ToolFormat::Gsd)), ["01-01 <"]);
    assert_eq!(pushed(&ticked, ToolFormat::Gsd, &["01-02"], &[]).len(), 0);
}

#[test]
fn raven_folders_keep_their_conf_lines() {
    let task = |id: &str, needs: &str| {
        format!(
            "# {id}: Do {id}\n\n## Metadata\n\n| Field | Value |\n|---|---|\n| Priority | Must Have |\n| Estimated Effort | Large: 14-20hrs |\n| Dependencies | {needs} |\n\n## Goal\n\nChange src/x.go.\n\n## Acceptance Criteria\n\n- [ ] it builds\n- [x] it runs\n\n## Notes\n\nMore.\n"
        )
    };
    let conf = "# states\nT-001|completed|claude|2026-02-18T10:00:00Z|merged\nT-002|in_progress|codex|2026-02-18T10:00:00Z|a|b\nT-1000";
    let files = [
        ("T-001-a.md", task("T-001", "None")),
        ("T-002-b.md", task("T-002", "T-001")),
        ("T-003-c.md", task("T-003", "T-002, T-1000")),
        ("T-1000-d.md", task("T-1000", "None")),
        ("phases.conf", "1|Base|T-001|T-002\n2|more|More|003|1000|*\n".to_owned()),
        ("task-state.conf", conf.to_owned()),
    ];
    let source = ImportSource::new("docs/tasks", files.map(|(path, text)| (path.to_owned(), text)));
    assert_eq!(detect_formats(&source), [ToolFormat::Raven]);
    let got = imported(&source, ToolFormat::Raven);
    assert_eq!(graph(&got), ["T-002 <", "T-003 < T-002 T-1000", "T-1000 <"]);
    let second = &got.plan.tasks[0];
    assert_eq!((second.priority, second.acceptance.len()), (10, 2));
    assert!(second.description.contains("src/x.go") && second.description.contains("More."));
    assert_eq!(
        got.plan.epics.iter().map(|e| e.title.as_str()).collect::<Vec<_>>(),
        ["Base", "More"]
    );
    let after = pushed(&source, ToolFormat::Raven, &["T-002", "T-1000", "T-003"], &[]);
    let want = "# states\nT-001|completed|claude|2026-02-18T10:00:00Z|merged\nT-002|completed|codex|2026-02-18T10:00:00Z|a|b\nT-1000|completed\nT-003|completed|||";
    assert_eq!(after["task-state.conf"], want);
}

const WORKERS: &str = "project: shop # ours
base_branch: main
tasks:
  - id: TASK-001
    description: \"Make the model\"
    agent: code-author
    priority: 10
    estimated_hours: 12
    dependencies: []
    verify: [make test]
  - {id: TASK-002, description: \"Test it\", agent: test-author, dependencies: [TASK-001], colour: red}
metadata: {sprint: S1, phase: 5}
";

#[test]
fn worker_specs_get_a_status_beside_the_id() {
    let source = source("", &[("spec.yaml", WORKERS)]);
    assert_eq!(detect_formats(&source), [ToolFormat::Workers]);
    let got = imported(&source, ToolFormat::Workers);
    assert_eq!(graph(&got), ["TASK-001 <", "TASK-002 < TASK-001"]);
    let task = &got.plan.tasks[0];
    assert_eq!(
        (task.role.as_deref(), task.priority, task.agent.as_deref()),
        (Some("code-author"), 5, None)
    );
    assert_eq!(got.commands[0].text, "make test");
    assert!(got.lost.contains_key("colour"));
    let after = pushed(&source, ToolFormat::Workers, &["TASK-001", "TASK-002"], &[]);
    let want = WORKERS
        .replace("- id: TASK-001\n", "- id: TASK-001\n    status: done\n")
        .replace("{id: TASK-002,", "{id: TASK-002, status: done,");
    assert_eq!(after["spec.yaml"], want);
    // Once it is there, only its word changes.
    let again =
        self::source("", &[("spec.yaml", &want.replace("status: done", "status: working"))]);
    let after = pushed(&again, ToolFormat::Workers, &["TASK-001"], &[]);
    assert_eq!(
        after["spec.yaml"],
        want.replacen("{id: TASK-002, status: done", "{id: TASK-002, status: working", 1)
    );
}

#[test]
fn every_section_of_a_plan_folders_task_is_in_the_plan() {
    let task = "# Task 001: Do it\n\nIntro.\n\n## Summary\n\nShort.\n\n## Requirements\n\n- one\n\n\
        ## Description\n\nLong.\n\n## Context\n\n### Deep\n\nWhy.\n\n## Acceptance Criteria\n\n- ok\n";
    let files = [("e/PLAN.md", "# Epic: E\n"), ("e/tasks/001_do.md", task)];
    let got = imported(&source(".plan", &files), ToolFormat::PlanFolder);
    assert_eq!(
        got.plan.tasks[0].description,
        "Intro.\n\nSummary:\nShort.\n\nRequirements:\n- one\n\nLong.\n\nContext:\n### Deep\n\nWhy."
    );
    assert_eq!(got.plan.tasks[0].acceptance, ["ok"]);
}

#[test]
fn plan_folders_have_a_table_of_states() {
    let readme = "# Tasks\n\n| # | Task | Status | Notes |\n|---|------|--------|-------|\n| 001 | Base | [x] Complete | |\n| 002 | Fixture | [ ] Pending | Depends on 001 |\n| 003 | Tests | [ ] Pending | x |\n";
    let task = |n: &str, needs: &str| {
        format!(
            "# Task {n}: Do {n}\n\n## Description\n\nText.\n\n## Dependencies\n\n{needs}\n\n## Success Criteria\n\n1. It works\n2. It stays\n\n## Files to Modify\n\n- `src/a.gleam` - all\n"
        )
    };
    let files = [
        ("e2e/PLAN.md", "# Epic: End to end\n".to_owned()),
        ("e2e/tasks/000_template.md", task("000", "")),
        ("e2e/tasks/001_base.md", task("001", "None")),
        ("e2e/tasks/002_fixture.md", task("002", "- 001_base - first")),
        ("e2e/tasks/003_tests.md", task("003", "- `002_fixture` - needs 001 too")),
        ("e2e/tasks/README.md", readme.to_owned()),
    ];
    let source = ImportSource::new(".plan", files.map(|(path, text)| (path.to_owned(), text)));
    assert_eq!(detect_formats(&source), [ToolFormat::PlanFolder]);
    let got = imported(&source, ToolFormat::PlanFolder);
    assert_eq!(graph(&got), ["e2e-002 <", "e2e-003 < e2e-002"]);
    assert_eq!(got.plan.epics[0].title, "End to end");
    assert_eq!((got.plan.tasks[0].acceptance.len(), got.plan.tasks[0].writes.len()), (2, 1));
    let after = pushed(&source, ToolFormat::PlanFolder, &["e2e-003"], &["e2e-002"]);
    let want = readme
        .replace("Fixture | [ ] Pending", "Fixture | [~] In Progress")
        .replace("Tests | [ ] Pending", "Tests | [x] Complete");
    assert_eq!(after["e2e/tasks/README.md"], want);
}

const GITHUB: &str = r###"[
  {"number":12,"title":"Schema","body":"Base\r\n\r\n## Acceptance criteria\r\n- [ ] exists","state":"OPEN","labels":[{"name":"P1"},{"name":"db"}],"milestone":{"title":"v1"}},
  {"number":13,"title":"API","body":"Blocked by #12 and #14, see #1","state":"OPEN","labels":[],"assignees":[{"login":"x"}]},
  {"number":14,"title":"Done already","body":null,"state":"CLOSED","stateReason":"COMPLETED"},
  {"number":15,"title":"UI","body":"","state":"open","blockedBy":{"nodes":[{"number":13}]},"parent":{"number":16}},
  {"number":16,"title":"Parent","body":"","state":"OPEN","subIssues":[15]}
]"###;

#[test]
fn github_issues_with_dependencies_and_sub_issues() {
    let source = source("", &[("issues.json", GITHUB)]);
    assert_eq!(detect_formats(&source), [ToolFormat::GitHub]);
    let got = imported(&source, ToolFormat::GitHub);
    assert_eq!(graph(&got), ["issue-12 <", "issue-13 < issue-12", "issue-15 < issue-13"]);
    assert_eq!(got.plan.tasks[0].acceptance, ["exists"]);
    assert_eq!(got.plan.tasks[0].priority, 10);
    assert_eq!(
        got.plan.epics.iter().map(|e| e.title.as_str()).collect::<Vec<_>>(),
        ["v1", "Parent"]
    );
    let after = pushed(&source, ToolFormat::GitHub, &["issue-12", "issue-15"], &[]);
    let lines = diff(GITHUB, &after["issues.json"]);
    assert_eq!(lines.len(), 3, "the parent closes with its last child");
    assert!(lines[1].1.contains("\"state\":\"closed\""), "in the spelling of the file");
}

#[test]
fn what_cannot_be_read_says_file_line_and_cure() {
    let cases = [
        (ToolFormat::TaskMaster, "tasks.json", "{\n  \"tasks\": [\n    {\"id\": 1,}\n]}", 3),
        (ToolFormat::Beads, "issues.jsonl", "{\"id\":\"a\"}\n{\"id\":}\n", 2),
        (ToolFormat::Workers, "spec.yaml", "tasks:\n  - id: [\n", 3),
        (ToolFormat::Backlog, "task-1 - x.md", "---\nid: task-1\ntitle: a: b: c\n---\n", 3),
    ];
    for (format, path, text, line) in cases {
        let why = import_plan(&source("x", &[(path, text)]), format, &ImportOptions::default())
            .unwrap_err();
        assert_eq!(why.file, format!("x/{path}"));
        assert_eq!(why.diagnostics[0].line, line, "{path}: {:?}", why.diagnostics);
        assert!(why.diagnostics[0].help.is_some());
    }
    for (format, name, _) in FORMATS {
        let why =
            import_plan(&source("x", &[("a.md", "words\n")]), format, &ImportOptions::default())
                .unwrap_err();
        assert!(why.diagnostics[0].message.contains(name), "{name}");
    }
}

#[test]
fn a_push_goes_only_forward() {
    let text = "- [x] Done one\n- [ ] Open one\n";
    let source = source("", &[("todo.md", text)]);
    let got = import_plan(
        &source,
        ToolFormat::Checklist,
        &ImportOptions { all: true, ..ImportOptions::default() },
    )
    .unwrap();
    let states = BTreeMap::from([
        ("done-one".to_owned(), SourceTaskState::Open),
        ("open-one".to_owned(), SourceTaskState::Open),
    ]);
    assert_eq!(plan_status_push(&got, &states).edits, []);
}

#[test]
fn several_features_keep_their_ids_apart() {
    let one = "- [ ] T001 One\n- [ ] T002 Two (depends on T001)\n";
    let source = source("specs", &[("001-a/tasks.md", one), ("002-b/tasks.md", one)]);
    let got = imported(&source, ToolFormat::SpecKit);
    assert_eq!(
        graph(&got),
        ["001-a.T001 <", "001-a.T002 < 001-a.T001", "002-b.T001 <", "002-b.T002 < 002-b.T001"]
    );
    assert!(detect_formats(&source).contains(&ToolFormat::SpecKit));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, ..Default::default() })]

    /// Whatever stands in the files: a refusal or a plan whose edges all lead somewhere, never a
    /// panic, and a push that still leaves readable text.
    #[test]
    fn no_file_makes_a_reader_panic(parts in proptest::collection::vec(proptest::sample::select(vec![
        "- [ ] ", "- [x] T001 ", "  - [ ]* 1.1 ", "* [-] é", "# ", "## Phase 1: ", "## 2. ", "### Requirement 1\n", "---\n", "id: task-1\n",
        "title: é: x\n", "status: To Do\n", "dependencies: [a, 'b']\n", "\n", "\r\n", "```\n", "(depends on T001, T002)", "[P] [US1]", "| 001 | x | [ ] Pending |\n",
        "_Requirements: 1.1_\n", "{\"id\": 1, \"tasks\": [", "{\"id\":\"bd-1\",\"title\":\"é\",\"status\":\"open\"}\n", "]}", "[{\"number\": 3, \"state\": \"OPEN\"}]",
        "tasks:\n  - id: A\n", "    description: x\n", "  - {id: B, dependencies: [A]}\n", "T-001|completed|", "T-002", "|é|\n", "1|a|T-001|T-002\n",
        "# T-001: é\n", "| Dependencies | T-002 |\n", "# Task 001: x\n", "## Dependencies\n- 002_x\n", "\u{feff}", "“”", "\t", "…", "phase", "Blocked by #3 #é",
    ]), 0..24)) {
        let text = parts.concat();
        let paths = ["tasks.md", "tasks/tasks.json", "backlog/tasks/task-1 - x.md", "prd.json", "phases/01-a/01-01-PLAN.md", "ROADMAP.md",
            "issues.jsonl", "T-001-x.md", "task-state.conf", "phases.conf", "spec.yaml", "e/tasks/001_x.md", "e/tasks/README.md", "requirements.md"];
        let source = ImportSource::new(".plan", paths.map(|path| (path.to_owned(), text.clone())));
        let one = ImportSource::new("", [("a.json".to_owned(), text.clone())]);
        let _ = (detect_formats(&source), detect_formats(&one));
        for (format, name, _) in FORMATS {
            for source in [&source, &one] {
                let accept = ImportOptions { all: true, commands: true, ..ImportOptions::default() };
                let Ok(got) = import_plan(source, format, &accept) else { continue };
                let known: std::collections::BTreeSet<_> = got.plan.tasks.iter().map(|task| task.id.as_str()).collect();
                for task in &got.plan.tasks {
                    proptest::prop_assert!(mainstem_core::id::check_id(task.id.as_str()).is_ok(), "{} {}", name, task.id);
                    proptest::prop_assert!(task.needs.iter().all(|need| known.contains(need.as_str()) && *need != task.id));
                }
                proptest::prop_assert_eq!(known.len(), got.plan.tasks.len());
                let all = got.rows.iter().map(|row| (row.ours.clone(), SourceTaskState::Done)).collect();
                let _ = apply_edits(source, &plan_status_push(&got, &all).edits);
                let _ = crate::suggest::suggest_edges(&got.plan);
            }
        }
    }
}
