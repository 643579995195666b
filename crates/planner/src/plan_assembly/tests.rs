//! Gathering loses nothing, invents nothing, and does not care in which order answers came.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::schema::EpicPart;

fn epic(id: &str, needs: &[&str]) -> EpicPart {
    EpicPart {
        id: id.to_owned(),
        title: format!("Epic {id}"),
        description: "d".to_owned(),
        dependencies_on_epics: needs.iter().map(|s| (*s).to_owned()).collect(),
        ..EpicPart::default()
    }
}

fn draft(id: &str, title: &str, local: &[&str], cross: &[&str]) -> TaskDraft {
    let texts = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    TaskDraft {
        temp_id: id.to_owned(),
        title: title.to_owned(),
        description: format!("do {id}"),
        acceptance_criteria: vec![format!("{id} works")],
        local_dependencies: texts(local),
        cross_epic_dependencies: texts(cross),
        effort: "medium".to_owned(),
        priority: "must-have".to_owned(),
        ..TaskDraft::default()
    }
}

fn answer(epic: &str, tasks: Vec<TaskDraft>) -> EpicTasks {
    EpicTasks { epic_id: epic.to_owned(), tasks }
}

fn breakdown(epics: Vec<EpicPart>) -> EpicBreakdown {
    EpicBreakdown { epics }
}

fn done(epics: Vec<EpicPart>, answers: &[EpicTasks]) -> AssembledPlan {
    assemble_plan(&breakdown(epics), answers, &AssemblyOptions::default()).unwrap()
}

fn needs(gathered: &AssembledPlan, id: &str) -> Vec<String> {
    let task = gathered.plan.tasks.iter().find(|task| task.id.as_str() == id).unwrap();
    task.needs.iter().map(|id| id.as_str().to_owned()).collect()
}

#[test]
fn tasks_are_numbered_in_the_order_of_epics_without_gaps() {
    let epics = vec![epic("E-001", &["E-002"]), epic("E-002", &[]), epic("E-003", &[])];
    let answers = [
        answer("E-001", vec![draft("E001-T01", "Page", &[], &[])]),
        answer(
            "E-002",
            vec![
                draft("E002-T01", "Table", &[], &[]),
                draft("E002-T02", "Query", &["E002-T01"], &[]),
            ],
        ),
    ];
    let got = done(epics, &answers);
    let titles: Vec<_> = got.plan.tasks.iter().map(|t| (t.id.as_str(), t.title.as_str())).collect();
    assert_eq!(titles, [("T-001", "Table"), ("T-002", "Query"), ("T-003", "Page")]);
    assert_eq!(needs(&got, "T-002"), ["T-001"]);
    assert_eq!(got.report.empty_epics, ["E-003"]);
    assert_eq!(got.report.barriers, [("E-001".to_owned(), "E-002".to_owned())]);
    assert_eq!(
        got.plan.epics.iter().find(|e| e.id.as_str() == "E-001").unwrap().needs[0].as_str(),
        "E-002"
    );
}

#[test]
fn labels_are_found_as_title_slug_part_and_id() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &["E-001"])];
    let first = vec![
        draft("E001-T01", "Design the Database Schema", &[], &[]),
        draft("E001-T02", "Create user table", &[], &[]),
        draft("E001-T03", "User login form", &[], &[]),
    ];
    for (label, want) in [
        ("database-schema", "T-001"),
        ("Design the database schema", "T-001"),
        ("the_database_schema", "T-001"),
        ("user-table", "T-002"),
        ("E001-T03", "T-003"),
        ("login form", "T-003"),
        ("the finished user login form page", "T-003"),
    ] {
        let label = format!("E-001:{label}");
        let answers = [
            answer("E-001", first.clone()),
            answer("E-002", vec![draft("E002-T01", "Server", &[], &[&label])]),
        ];
        let got = done(epics.clone(), &answers);
        assert_eq!(needs(&got, "T-004"), [want], "{label}");
        assert_eq!((got.report.unresolved.len(), got.report.ambiguous.len()), (0, 0), "{label}");
        assert_eq!(got.report.barriers, [], "an exact edge takes the barrier's place");
    }
}

#[test]
fn what_cannot_be_followed_is_reported_not_dropped_in_silence() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &[])];
    let answers = [
        answer(
            "E-001",
            vec![
                draft("E001-T01", "User table", &[], &[]),
                draft("E001-T02", "User page", &[], &[]),
            ],
        ),
        answer(
            "E-002",
            vec![draft("E002-T01", "Server", &[], &["E-001:user", "E-001:rocket engine"])],
        ),
    ];
    let got = done(epics, &answers);
    assert_eq!(got.report.ambiguous[0].candidates, ["E001-T01", "E001-T02"]);
    assert_eq!(needs(&got, "T-003"), ["T-001"]);
    assert_eq!(got.report.unresolved[0].label, "E-001:rocket engine");
}

#[test]
fn duplicates_keep_every_criterion_edge_and_word() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &[])];
    let answers = [
        answer(
            "E-001",
            vec![
                draft("E001-T01", "Create the cart table", &[], &[]),
                draft("E001-T02", "Cart page", &["E001-T01"], &[]),
            ],
        ),
        answer(
            "E-002",
            vec![
                draft("E002-T01", "Money type", &[], &[]),
                draft("E002-T02", "Define the cart table", &["E002-T01"], &[]),
                draft("E002-T03", "Checkout", &["E002-T02"], &[]),
            ],
        ),
    ];
    let got = done(epics, &answers);
    assert_eq!(got.plan.tasks.len(), 4);
    let kept = &got.plan.tasks[0];
    assert_eq!(kept.acceptance, ["E001-T01 works", "E002-T02 works"]);
    assert!(kept.description.contains("do E001-T01") && kept.description.contains("do E002-T02"));
    assert_eq!(needs(&got, "T-001"), ["T-003"]);
    assert_eq!(needs(&got, "T-004"), ["T-001"]);
    assert_eq!(got.report.ids["E002-T02"].as_str(), "T-001");
    assert_eq!(got.report.merged[0].gone, ["E002-T02"]);
}

#[test]
fn generic_titles_of_two_epics_are_two_tasks() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &["E-001"])];
    let answers = [
        answer(
            "E-001",
            vec![
                draft("E001-T01", "Cart table", &[], &[]),
                draft("E001-T02", "Write tests", &["E001-T01"], &[]),
            ],
        ),
        answer(
            "E-002",
            vec![
                draft("E002-T01", "Shop page", &[], &[]),
                draft("E002-T02", "Add tests", &["E002-T01"], &[]),
            ],
        ),
    ];
    let got = done(epics, &answers);
    assert_eq!(got.plan.tasks.len(), 4);
    assert_eq!(got.report.merged, []);
}

#[test]
fn a_merge_that_would_make_a_circle_is_not_made() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &["E-001"])];
    // The second "cart table" needs what needs the first one.
    let answers = [
        answer(
            "E-001",
            vec![
                draft("E001-T01", "Cart table", &[], &[]),
                draft("E001-T02", "Cart page", &["E001-T01"], &[]),
            ],
        ),
        answer("E-002", vec![draft("E002-T01", "Cart table", &[], &["E-001:cart page"])]),
    ];
    let got = done(epics, &answers);
    assert_eq!(got.plan.tasks.len(), 3);
    assert_eq!(got.report.circles, []);
    // Through the barrier of an epic too.
    let epics = vec![epic("E-001", &[]), epic("E-002", &["E-001"])];
    let answers = [
        answer("E-001", vec![draft("E001-T01", "Cart table", &[], &[])]),
        answer(
            "E-002",
            vec![
                draft("E002-T01", "Money", &[], &[]),
                draft("E002-T02", "Cart table", &["E002-T01"], &[]),
            ],
        ),
    ];
    let got = done(epics, &answers);
    assert_eq!((got.plan.tasks.len(), got.report.circles.len()), (3, 0));
}

#[test]
fn circles_are_named_with_the_edge_to_drop_and_dropped_on_request() {
    let epics = vec![epic("E-001", &[]), epic("E-002", &[])];
    let answers = [
        answer(
            "E-001",
            vec![
                draft("E001-T01", "Cart table", &[], &["E-002:shop"]),
                draft("E001-T02", "Page", &["E001-T01"], &[]),
            ],
        ),
        answer("E-002", vec![draft("E002-T01", "Shop front", &[], &["E-001:Page"])]),
    ];
    let got = done(epics.clone(), &answers);
    let circle = &got.report.circles[0];
    assert_eq!(circle.path.first(), circle.path.last());
    assert_eq!(circle.path.len(), 4);
    assert_eq!(
        (circle.drop[0].0.as_str(), circle.drop[0].1.as_str()),
        ("T-001", "T-003"),
        "the least sure edge"
    );
    let options = AssemblyOptions { drop_circles: true, ..AssemblyOptions::default() };
    let got = assemble_plan(&breakdown(epics), &answers, &options).unwrap();
    assert_eq!(got.report.circles.len(), 1);
    assert!(mainstem_core::graph::Graph::new(&got.plan).is_ok());
}

#[test]
fn epics_that_need_each_other_are_an_error_that_names_them() {
    let epics = vec![epic("E-001", &["E-002"]), epic("E-002", &["E-001"]), epic("E-003", &[])];
    let error = assemble_plan(&breakdown(epics), &[], &AssemblyOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "dependency cycle among epics: E-001 → E-002 → E-001");
}

#[test]
fn two_answers_for_one_epic_are_refused() {
    let one = answer("E-001", vec![draft("E001-T01", "A", &[], &[])]);
    let error = assemble_plan(
        &breakdown(vec![epic("E-001", &[])]),
        &[one.clone(), one],
        &AssemblyOptions::default(),
    );
    assert_eq!(error.unwrap_err(), AssemblyError::TwoAnswers("E-001".to_owned()));
    let other = answer("E-009", vec![]);
    let error =
        assemble_plan(&breakdown(vec![epic("E-001", &[])]), &[other], &AssemblyOptions::default());
    assert_eq!(error.unwrap_err(), AssemblyError::UnknownEpic("E-009".to_owned()));
}

#[test]
fn sections_of_the_prd_that_nothing_covers_are_named_with_their_line() {
    let prd = "# Shop\n\n## 1. Overview\ntalk\n\n## 2. Cart\n### 2.1 Table\n### 2.10 Page\n\n## 3. Search\n\n- **FR-001**: find things\n- **FR-002**: sort things\n";
    let mut part = epic("E-001", &[]);
    part.prd_sections = vec!["2.1 Table".to_owned()];
    let mut task = draft("E001-T01", "Table", &[], &[]);
    task.description = "As FR-002 asks.".to_owned();
    let options = AssemblyOptions { prd: Some(prd), ..AssemblyOptions::default() };
    let got =
        assemble_plan(&breakdown(vec![part]), &[answer("E-001", vec![task])], &options).unwrap();
    let open: Vec<_> = got.report.uncovered.iter().map(|s| (s.line, s.number.as_str())).collect();
    assert_eq!(open, [(8, "2.10"), (12, "FR-001")]);
}

#[test]
fn files_that_two_unordered_tasks_write_are_named() {
    let mut tasks = vec![
        draft("E001-T01", "One", &[], &[]),
        draft("E001-T02", "Two", &["E001-T01"], &[]),
        draft("E001-T03", "Three", &[], &[]),
    ];
    for task in &mut tasks {
        task.description = "Change src/shop.rs".to_owned();
    }
    let got = done(vec![epic("E-001", &[])], &[answer("E-001", tasks)]);
    let pairs: Vec<_> = got.report.overlaps.iter().map(|o| (o.a.as_str(), o.b.as_str())).collect();
    assert_eq!(pairs, [("T-001", "T-003"), ("T-002", "T-003")]);
}

#[test]
fn ids_grow_digits_and_start_where_asked() {
    let tasks: Vec<_> =
        (0..60).map(|i| draft(&format!("E001-T{i:02}"), &format!("Part {i}"), &[], &[])).collect();
    let options = AssemblyOptions { start_id: 960, ..AssemblyOptions::default() };
    let got =
        assemble_plan(&breakdown(vec![epic("E-001", &[])]), &[answer("E-001", tasks)], &options)
            .unwrap();
    assert_eq!(got.plan.tasks[0].id.as_str(), "T-0960");
    assert_eq!(got.plan.tasks[59].id.as_str(), "T-1019");
}

/// Ten thousand tasks in a hundred epics, with labels that share words.
#[test]
fn ten_thousand_tasks_are_gathered() {
    let ids: Vec<String> = (1..=100).map(|e| format!("E-{e:03}")).collect();
    let epics: Vec<_> = (0..100)
        .map(|e| epic(&ids[e], &if e > 0 { vec![ids[e - 1].as_str()] } else { vec![] }))
        .collect();
    let answers: Vec<_> = (0..100)
        .map(|e| {
            let tasks = (0..100).map(|t| {
                let local =
                    if t > 0 { vec![format!("E{:03}-T{:02}", e + 1, t - 1)] } else { vec![] };
                let cross =
                    if e > 0 { vec![format!("{}:handler-number-{t}", ids[e - 1])] } else { vec![] };
                let local: Vec<&str> = local.iter().map(String::as_str).collect();
                let cross: Vec<&str> = cross.iter().map(String::as_str).collect();
                draft(
                    &format!("E{:03}-T{t:02}", e + 1),
                    &format!("Build handler number {t} of part {e}"),
                    &local,
                    &cross,
                )
            });
            answer(&ids[e], tasks.collect())
        })
        .collect();
    let got = done(epics, &answers);
    assert_eq!(got.plan.tasks.len(), 10_000);
    assert_eq!(got.report.unresolved, []);
    assert_eq!(got.plan.tasks[9_999].needs.len(), 2);
    assert!(mainstem_core::graph::Graph::new(&got.plan).is_ok());
    let more =
        [answer("E-001", (0..10_001).map(|i| draft(&i.to_string(), "x", &[], &[])).collect())];
    let error =
        assemble_plan(&breakdown(vec![epic("E-001", &[])]), &more, &AssemblyOptions::default())
            .unwrap_err();
    assert_eq!(error, AssemblyError::TooMany(10_001));
}

/// Random answers: titles from a small stock, so that there are duplicates, guesses and circles.
fn random() -> impl Strategy<Value = (Vec<EpicPart>, Vec<EpicTasks>)> {
    let titles = [
        "Cart table",
        "Create cart table",
        "Write tests",
        "Tests",
        "Shop page",
        "Login form",
        "Docs",
        "Search index",
    ];
    let task = (
        0usize..8,
        proptest::collection::vec(0usize..6, 0..3),
        proptest::collection::vec((0usize..4, 0usize..8), 0..3),
    );
    proptest::collection::vec(
        (proptest::collection::vec(task, 0..6), proptest::collection::vec(0usize..4, 0..2)),
        1..5,
    )
    .prop_map(move |epics| {
        let name = |e: usize| format!("E-{:03}", e + 1);
        let count = epics.len();
        let parts = epics.iter().enumerate().map(|(e, (_, needs))| {
            let needs: Vec<String> = needs.iter().filter(|n| **n < e).map(|n| name(*n)).collect();
            epic(&name(e), &needs.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let answers = epics.iter().enumerate().filter(|(_, (tasks, _))| !tasks.is_empty()).map(
            |(e, (tasks, _))| {
                let drafts = tasks.iter().enumerate().map(|(t, (title, local, cross))| {
                    let temp = |t: usize| format!("E{:03}-T{t:02}", e + 1);
                    let local: Vec<String> = local
                        .iter()
                        .filter(|l| **l < tasks.len() && **l != t)
                        .map(|l| temp(*l))
                        .collect();
                    let cross: Vec<String> = cross
                        .iter()
                        .filter(|(to, _)| *to != e && *to < count)
                        .map(|(to, label)| format!("{}:{}", name(*to), titles[*label]))
                        .collect();
                    draft(
                        &temp(t),
                        titles[*title],
                        &local.iter().map(String::as_str).collect::<Vec<_>>(),
                        &cross.iter().map(String::as_str).collect::<Vec<_>>(),
                    )
                });
                answer(&name(e), drafts.collect())
            },
        );
        (parts.collect(), answers.collect())
    })
}

/// Every task is in exactly one phase, in order.
fn phases_are_a_partition(plan: &mainstem_core::plan::Plan) -> Result<(), TestCaseError> {
    use crate::export::{ExportOptions, ExportTarget, export_plan};
    let target = ExportTarget::Tool(crate::import::ToolFormat::Raven);
    let out = export_plan(plan, &BTreeMap::new(), target, &ExportOptions { start_id: 1 }).unwrap();
    let (_, text) = out.files.iter().find(|(path, _)| path == "phases.conf").unwrap();
    let mut last = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('|').collect();
        let number = |text: &str| text.trim_start_matches("T-").parse::<usize>().unwrap();
        prop_assert_eq!(number(fields[2]), last + 1, "{}", line);
        last = number(fields[3]);
    }
    prop_assert_eq!(last, plan.tasks.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn gathering_keeps_its_promises((epics, answers) in random(), turn in 0usize..7, drop_circles: bool) {
        let options = AssemblyOptions { drop_circles, ..AssemblyOptions::default() };
        let got = assemble_plan(&breakdown(epics.clone()), &answers, &options).unwrap();
        // Unique and dense ids.
        for (i, task) in got.plan.tasks.iter().enumerate() {
            prop_assert_eq!(task.id.as_str(), format!("T-{:03}", i + 1));
        }
        // No draft, criterion or sentence is lost.
        for draft in answers.iter().flat_map(|answer| &answer.tasks) {
            let id = &got.report.ids[&draft.temp_id];
            let task = got.plan.tasks.iter().find(|task| task.id == *id).unwrap();
            for criterion in &draft.acceptance_criteria {
                prop_assert!(task.acceptance.contains(criterion));
            }
            prop_assert!(task.description.contains(&draft.description));
            // No edge by id is lost, unless it is in a circle that was opened or inside the task.
            for local in &draft.local_dependencies {
                let to = &got.report.ids[local];
                let dropped = got.report.circles.iter().flat_map(|circle| &circle.drop)
                    .any(|(a, b, _)| a == id.as_str() && b == to.as_str());
                prop_assert!(to == id || task.needs.contains(to) || (drop_circles && dropped));
            }
        }
        // Every reference is an edge or in the report.
        let references: usize = answers.iter().flat_map(|answer| &answer.tasks)
            .map(|draft| draft.local_dependencies.len() + draft.cross_epic_dependencies.len()).sum();
        prop_assert_eq!(got.report.resolved + got.report.unresolved.len(), references);
        // Acyclic, or every circle is named.
        let acyclic = mainstem_core::graph::Graph::new(&got.plan).is_ok();
        if drop_circles {
            prop_assert!(acyclic);
        } else {
            prop_assert_eq!(acyclic, got.report.circles.is_empty());
        }
        if acyclic && !got.plan.tasks.is_empty() {
            phases_are_a_partition(&got.plan)?;
        }
        // Planned again, nothing changes, whatever the numbers were.
        let options_from = AssemblyOptions { start_id: 40, ..options };
        let again = assemble_plan(&breakdown(epics.clone()), &answers, &options_from).unwrap();
        let (again, changes) = crate::revise::revise_assembled_plan(&got.plan, again);
        prop_assert!(changes.is_empty(), "{:?}", changes);
        prop_assert_eq!(&again, &got);
        // The order of answers changes nothing.
        let mut turned = answers.clone();
        let by = turn % turned.len().max(1);
        turned.rotate_left(by);
        let mut other = epics;
        other.reverse();
        prop_assert_eq!(assemble_plan(&breakdown(other), &turned, &options).unwrap(), got);
    }
}
