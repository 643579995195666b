//! Pictures, lists and JSON of small graphs, character by character.

#![expect(clippy::unwrap_used, reason = "tests")]

use mainstem_core::plan::read::{DocumentFormat, read_plan};
use serde_json::json;

use super::*;

fn plan(text: &str) -> (Plan, Graph) {
    let (plan, _) = read_plan(text.as_bytes(), DocumentFormat::Toml).unwrap();
    let graph = Graph::new(&plan).unwrap();
    (plan, graph)
}

fn task(id: &str, title: &str, rest: &str) -> String {
    format!("[[task]]\nid = \"{id}\"\ntitle = \"{title}\"\nrun = \"true\"\n{rest}\n")
}

/// Epics, a diamond, a soft edge and a long edge.
fn shop() -> (Plan, Graph) {
    let tasks = [
        task("T-1", "Schema and migrations", "epic = \"E-1\""),
        task("T-2", "Repository layer", "epic = \"E-1\"\nneeds = [\"T-1\"]\neffort = \"large\""),
        task("T-3", "Seed data", "epic = \"E-1\"\nneeds = [\"T-1\"]"),
        task("T-4", "HTTP api", "epic = \"E-2\""),
        task("T-5", "Web page", "epic = \"E-2\"\nafter = [\"T-4\"]"),
        task("T-6", "Docs", "needs = [\"T-1\", \"T-4\"]"),
    ];
    let epics = "version = 1\n[[epic]]\nid = \"E-1\"\n[[epic]]\nid = \"E-2\"\nneeds = [\"E-1\"]\n";
    plan(&format!("{epics}{}", tasks.concat()))
}

#[test]
fn a_plan_is_drawn_with_its_critical_path_and_soft_edges() {
    let (plan, graph) = shop();
    insta::assert_snapshot!(render_picture(GraphSubject::without_run(&plan, &graph), 100, false), @r"
             ┏━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
             ┃ T-1 Schema and migrations ┃
             ┗━━━━━━━━━━━━━┯━━━━━━━━━━━━━┛
               ┌───────────┴──────────┐
    ┏━━━━━━━━━━▼━━━━━━━━━━━┓  ┌───────▼───────┐
    ┃ T-2 Repository layer ┃  │ T-3 Seed data │
    ┗━━━━━━━━━━┯━━━━━━━━━━━┛  └───────┬───────┘
               ├──────────────┬───────┘
            ┏━━▼━━━━━━━━━━━┓  │
            ┃ T-4 HTTP api ┃  │
            ┗━━━━━┯━┯━━━━━━┛  │
                  │ └┄┄┄┄┄┄┄┐ │
        ┌─────────▼┐  ┏━━━━━▼━▼━━━━━━┓
        │ T-6 Docs │  ┃ T-5 Web page ┃
        └──────────┘  ┗━━━━━━━━━━━━━━┛
    heavy: critical path · dotted: order only · 3 redundant edges hidden
    ");
}

#[test]
fn phases_show_as_signs_and_in_narrow_places_titles_go() {
    let (plan, graph) = shop();
    let phases = [
        Phase::Landed,
        Phase::Working,
        Phase::Conflicted,
        Phase::Waiting,
        Phase::Waiting,
        Phase::Waiting,
    ];
    let subject = GraphSubject { plan: &plan, graph: &graph, phases: Some(&phases) };
    insta::assert_snapshot!(render_picture(subject, 24, false), @r"
            ┏━━━━━━━┓
            ┃ ✓ T-1 ┃
            ┗━━━┯━━━┛
          ┌─────┴────┐
      ┏━━━▼━━━┓  ┌───▼────┐
      ┃ ● T-2 ┃  │ ⚡ T-3 │
      ┗━━━┯━━━┛  └───┬────┘
          ├────────┬─┘
        ┏━▼━━━━━┓  │
        ┃ · T-4 ┃  │
        ┗━━┯━┯━━┛  │
           │ └┄┄┄┄┐│
    ┌──────▼┐  ┏━━▼▼━━━┓
    │ · T-6 │  ┃ · T-5 ┃
    └───────┘  ┗━━━━━━━┛
    heavy: critical path · dotted: order only · 3 redundant edges hidden
    ");
    let colored = render_picture(subject, 24, true);
    assert!(colored.contains("\u{1b}[32m"), "{colored}");
    assert_eq!(
        anstream::adapter::strip_str(&colored).to_string(),
        render_picture(subject, 24, false)
    );
}

#[test]
fn lines_of_different_edges_never_join() {
    // A leads to C and D, B only to D: the lines must not make B lead to C.
    let tasks = [
        task("A", "", ""),
        task("B", "", ""),
        task("C", "", "needs = [\"A\"]"),
        task("D", "", "needs = [\"A\", \"B\"]"),
    ];
    let (plan, graph) = plan(&format!("version = 1\n{}", tasks.concat()));
    insta::assert_snapshot!(render_picture(GraphSubject::without_run(&plan, &graph), 80, false), @r"
      ┏━━━┓  ┌───┐
      ┃ A ┃  │ B │
      ┗━┯━┛  └─┬─┘
      ┌─┴───┐ ┌┘
    ┏━▼━┓  ┌▼─▼┐
    ┃ C ┃  │ D │
    ┗━━━┛  └───┘
    heavy: critical path
    ");
}

#[test]
fn what_cannot_be_drawn_is_listed_and_says_why() {
    let tasks: Vec<String> = (0..81).map(|n| task(&format!("T-{n}"), "x", "")).collect();
    let (many, graph) = plan(&format!("version = 1\n{}", tasks.concat()));
    let text = render_picture(GraphSubject::without_run(&many, &graph), 100, false);
    assert!(
        text.starts_with("1: T-0 T-1 ") && text.contains("graph too large to draw (81 tasks)"),
        "{text}"
    );
    let (plan, graph) = shop();
    insta::assert_snapshot!(render_picture(GraphSubject::without_run(&plan, &graph), 8, false), @r"
    1: T-1
    2: T-2 T-3
    3: T-4
    4: T-5 T-6

    T-2 needs T-1
    T-3 needs T-1
    T-4 needs T-1 T-2 T-3
    T-5 needs T-1 T-2 T-3; after T-4
    T-6 needs T-1 T-4

    graph too wide for 8 columns; listing tasks instead. For an external viewer: --format mermaid
    ");
}

#[test]
fn a_long_chain_and_wide_characters_stay_in_their_boxes() {
    let tasks = [task("T-1", "日本語の題名", ""), task("T-2", "e\\u0301 ü", "needs = [\"T-1\"]")];
    let (plan, graph) = plan(&format!("version = 1\n{}", tasks.concat()));
    insta::assert_snapshot!(render_picture(GraphSubject::without_run(&plan, &graph), 80, false), @r"
    ┏━━━━━━━━━━━━━━━━━━┓
    ┃ T-1 日本語の題名 ┃
    ┗━━━━━━━━┯━━━━━━━━━┛
             │
        ┏━━━━▼━━━━┓
        ┃ T-2 e ü ┃
        ┗━━━━━━━━━┛
    heavy: critical path
    ");
}

#[test]
fn mermaid_cannot_be_broken_by_titles() {
    let hostile = r#"a \"] --> b[[x]] %% <script> #quot; `c`"#;
    let (plan, graph) = plan(&format!("version = 1\n{}", task("T-1", hostile, "")));
    let phases = [Phase::Landed];
    let text = render_mermaid(GraphSubject { plan: &plan, graph: &graph, phases: Some(&phases) });
    let line = text.lines().nth(1).unwrap();
    insta::assert_snapshot!(line.trim(), @r#"t0["T-1 a #34;#93; --#62; b#91;#91;x#93;#93; %% #60;script#62; #35;quot#59; #96;c#96;"]:::landed"#);
    assert_eq!(line.matches('"').count(), 2);
    assert!(text.contains("classDef landed "));
}

#[test]
fn programs_get_nodes_edges_levels_and_the_critical_path() {
    let (plan, graph) = shop();
    let value = serde_json::to_value(GraphSubject::without_run(&plan, &graph).report()).unwrap();
    assert_eq!(value["levels"], json!([["T-1"], ["T-2", "T-3"], ["T-4"], ["T-5", "T-6"]]));
    assert_eq!(value["critical_path"], json!(["T-1", "T-2", "T-4", "T-5"]));
    let edges = value["edges"].as_array().unwrap();
    for wanted in [
        json!({"from": "T-1", "to": "T-2", "kind": "needs"}),
        json!({"from": "T-2", "to": "T-4", "kind": "epic"}),
        json!({"from": "T-4", "to": "T-5", "kind": "after"}),
    ] {
        assert!(edges.contains(&wanted), "{wanted}");
    }
    assert_eq!(value["nodes"][0]["level"], 1);
}
