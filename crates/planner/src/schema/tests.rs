//! Everything wrong is said at once, with its path.

#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn epics() -> BTreeSet<String> {
    ["E-001", "E-002"].map(str::to_owned).into()
}

fn fields(problems: &[AnswerProblem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.field.as_str()).collect()
}

#[test]
fn a_good_breakdown_is_read_with_unknown_fields_and_nulls() {
    let value = json!({"epics":[
        {"id":"E-001","title":"A","description":"a","prd_sections":null,"estimated_task_count":3,"dependencies_on_epics":[],"mood":"fine"},
        {"id":"E-002","title":"B","description":"b","dependencies_on_epics":["E-001"]}]});
    let found = check_epics(&value).unwrap();
    assert_eq!(found.epics[1].dependencies_on_epics, ["E-001"]);
    assert_eq!(found.epics[0].prd_sections, [""; 0]);
}

#[test]
fn every_problem_of_a_breakdown_is_listed() {
    let value = json!({"epics":[
        {"id":"E-1","title":"","description":"a","estimated_task_count":-1},
        {"id":"E-002","title":"B","description":7,"dependencies_on_epics":["E-002","E-009"]},
        {"id":"E-002","title":"B","description":"b","prd_sections":"3"}]});
    let problems = check_epics(&value).unwrap_err();
    let found = fields(&problems);
    for want in [
        "epics[0].id",
        "epics[0].title",
        "epics[0].estimated_task_count",
        "epics[1].description",
        "epics[1].dependencies_on_epics[0]",
        "epics[1].dependencies_on_epics[1]",
        "epics[2].id",
        "epics[2].prd_sections",
    ] {
        assert!(found.contains(&want), "{want} in {found:?}");
    }
    assert_eq!(found.len(), 8);
}

#[test]
fn empty_lists_are_refused() {
    assert_eq!(fields(&check_epics(&json!({"epics":[]})).unwrap_err()), ["epics"]);
    assert_eq!(fields(&check_epics(&json!({})).unwrap_err()), ["epics"]);
    let value = json!({"epic_id":"E-001","tasks":[]});
    assert_eq!(fields(&check_tasks(&value, "E-001", &epics()).unwrap_err()), ["tasks"]);
    let value = json!({"epic_id":"E-001","tasks":[{"temp_id":"E001-T01","title":"A","description":"a","acceptance_criteria":[" "],"effort":"small","priority":"must-have"}]});
    let problems = check_tasks(&value, "E-001", &epics()).unwrap_err();
    assert_eq!(fields(&problems), ["tasks[0].acceptance_criteria"]);
}

#[test]
fn ids_must_be_the_assigned_ones() {
    let task = |id: &str| json!({"temp_id":id,"title":"A","description":"a","acceptance_criteria":["x"],"effort":"small","priority":"must-have"});
    let check = |epic: &str, tasks: Value| {
        check_tasks(&json!({"epic_id":epic,"tasks":tasks}), "E-001", &epics())
    };
    assert!(check("E-001", json!([task("E001-T01"), task("E001-T100")])).is_ok());
    assert_eq!(fields(&check("E-002", json!([task("E001-T01")])).unwrap_err()), ["epic_id"]);
    assert_eq!(
        fields(&check("E-001", json!([task("E002-T01")])).unwrap_err()),
        ["tasks[0].temp_id"]
    );
    let twice = check("E-001", json!([task("E001-T01"), task("E001-T01")])).unwrap_err();
    assert_eq!(fields(&twice), ["tasks[1].temp_id"]);
}

#[test]
fn references_are_checked_as_far_as_one_answer_can_know() {
    let value = json!({"epic_id":"E-001","tasks":[{"temp_id":"E001-T01","title":"A","description":"a",
        "acceptance_criteria":["x"],"effort":"huge","priority":"must-have",
        "local_dependencies":["E001-T01","E001-T09"],
        "cross_epic_dependencies":["E-002:the schema: part two","E-001:own","E-007:x","nothing","E-002: "]}]});
    let problems = check_tasks(&value, "E-001", &epics()).unwrap_err();
    assert_eq!(
        fields(&problems),
        [
            "tasks[0].effort",
            "tasks[0].local_dependencies[0]",
            "tasks[0].local_dependencies[1]",
            "tasks[0].cross_epic_dependencies[1]",
            "tasks[0].cross_epic_dependencies[2]",
            "tasks[0].cross_epic_dependencies[3]",
            "tasks[0].cross_epic_dependencies[4]",
        ]
    );
    assert!(format_problems(&problems).starts_with("1. [tasks[0].effort] is `huge`"));
}
