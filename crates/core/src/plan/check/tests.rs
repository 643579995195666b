#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::graph::Graph;
use crate::id::{EpicId, TaskId};
use crate::plan::Epic;
use proptest::prelude::*;

fn agent(kind: &str, command: &[&str]) -> config::AgentSettings {
    config::AgentSettings {
        kind: kind.into(),
        command: command.iter().map(|c| (*c).to_owned()).collect(),
        ..config::AgentSettings::default()
    }
}

fn agents() -> BTreeMap<String, config::AgentSettings> {
    BTreeMap::from([
        ("command".to_owned(), agent("command", &[])),
        ("script".to_owned(), agent("script", &[])),
        ("mine".to_owned(), agent("command", &["./agent.sh"])),
        ("claude".to_owned(), agent("claude", &[])),
        ("any".to_owned(), agent("acp", &[])),
    ])
}

fn load_with(source: &str, default_agent: Option<&str>) -> Result<Plan, Vec<Diagnostic>> {
    let agents = agents();
    load_plan(
        source.as_bytes(),
        DocumentFormat::Toml,
        &PlanCheckContext { agents: &agents, default_agent },
    )
}

fn load(source: &str) -> Result<Plan, Vec<Diagnostic>> {
    load_with(&format!("version = 1\n{source}"), Some("mine"))
}

fn faults(source: &str) -> Vec<String> {
    load(source).unwrap_err().iter().map(ToString::to_string).collect()
}

/// Exactly these faults, each given by code and a part of its text.
fn refused(source: &str, want: &[(&str, &str)]) {
    let got = load(source).unwrap_err();
    let all: Vec<_> = got.iter().map(ToString::to_string).collect();
    assert_eq!(got.len(), want.len(), "{source}\n{all:#?}");
    for (fault, (code, part)) in got.iter().zip(want) {
        assert_eq!(&fault.code, code, "{all:#?}");
        assert!(fault.to_string().contains(part), "{part}: {all:#?}");
        assert!(fault.help.is_some(), "{all:#?}");
    }
}

fn tasks(lines: &[&str]) -> String {
    lines
        .iter()
        .map(|line| {
            let (id, needs) = line.split_once(':').unwrap();
            let needs: Vec<_> = needs.split_whitespace().collect();
            format!("[[task]]\nid = {id:?}\nneeds = {needs:?}\n")
        })
        .collect()
}

#[test]
fn a_good_plan_passes_and_gives_a_graph() {
    let plan = load(&tasks(&["a:", "b: a", "c: a b"])).unwrap();
    assert_eq!(Graph::new(&plan).unwrap().len(), 3);
}

#[test]
fn ids_are_unique_also_for_file_systems_without_case() {
    refused(&tasks(&["a:", "b:", "a:"]), &[("plan::duplicate_id", "first used on line 3")]);
    refused(&tasks(&["T-1:", "t-1:"]), &[("plan::duplicate_id", "differ only in case")]);
    refused(&tasks(&["../x:"]), &[("plan::bad_id", "../x")]);
    refused(&tasks(&[":"]), &[("plan::bad_id", "empty")]);
    let epics = "[[epic]]\nid = 'e'\n[[epic]]\nid = 'e'\n[[task]]\nid = 'e'\n";
    refused(epics, &[("plan::duplicate_id", "duplicate epic id `e`")]);
}

#[test]
fn names_that_lead_nowhere_are_reported_with_the_nearest() {
    refused(
        &tasks(&["task-one:", "b: task-on"]),
        &[("plan::dangling", "did you mean `task-one`?")],
    );
    refused("[[task]]\nid = 'a'\nafter = ['zzz']\n", &[("plan::dangling", "`after`")]);
    refused("[[task]]\nid = 'a'\nepic = 'E'\n", &[("plan::dangling", "epic `E`")]);
    let epic = "[[epic]]\nid = 'E'\nneeds = ['F']\n[[task]]\nid = 'a'\nneeds = ['E']\n";
    refused(epic, &[("plan::dangling", "epic `F`"), ("plan::dangling", "`E` is an epic")]);
    refused(&tasks(&["a: a"]), &[("plan::self_dependency", "itself")]);
    let own = "[[epic]]\nid = 'E'\nneeds = ['E']\n[[task]]\nid = 'a'\nepic = 'E'\n";
    refused(own, &[("plan::self_dependency", "itself")]);
}

#[test]
fn cycles_are_named_as_a_path() {
    refused(&tasks(&["T-1: T-2", "T-2: T-1"]), &[("plan::cycle", "T-1 → T-2 → T-1")]);
    refused(
        &tasks(&["z:", "a: b z", "b: c", "c: a", "x: y", "y: x", "end: a x"]),
        &[("plan::cycle", "a → b → c → a"), ("plan::cycle", "x → y → x")],
    );
    refused(
        &tasks(&["a: b c", "b: a", "c: a"]),
        &[("plan::cycle", "a → b → a"), ("plan::cycle", "a → c → a")],
    );
    let soft = "[[task]]\nid = 'a'\nafter = ['b']\n[[task]]\nid = 'b'\nneeds = ['a']\n";
    refused(soft, &[("plan::cycle", "a → b → a")]);
    let got = load(&tasks(&["a: b", "b: a"])).unwrap_err();
    assert_eq!((got[0].line, got[0].column), (4, 10), "the edge is pointed at");
}

#[test]
fn cycles_through_epics_are_found_once() {
    let epics = "[[epic]]\nid = 'E'\nneeds = ['F']\n[[epic]]\nid = 'F'\nneeds = ['E']\n";
    let two = "[[task]]\nid = 'a'\nepic = 'E'\n[[task]]\nid = 'b'\nepic = 'F'\n";
    refused(&format!("{epics}{two}"), &[("plan::cycle", "E → F → E")]);
    refused(&format!("{epics}[[task]]\nid = 'a'\n"), &[("plan::cycle", "E → F → E")]);
    let mixed = "[[epic]]\nid = 'E'\nneeds = ['F']\n[[epic]]\nid = 'F'\n\
        [[task]]\nid = 'a'\nepic = 'E'\n[[task]]\nid = 'b'\nepic = 'F'\nneeds = ['a']\n";
    refused(mixed, &[("plan::cycle", "a → b → a")]);
    assert!(faults(mixed)[0].contains("epic `F`"));
    // Inside one epic, an order among tasks is no circle.
    let fine = "[[epic]]\nid = 'E'\nneeds = ['F']\n[[epic]]\nid = 'F'\n\
        [[task]]\nid = 'a'\nepic = 'E'\nneeds = ['b']\n[[task]]\nid = 'b'\nepic = 'F'\n";
    assert!(load(fine).is_ok());
}

#[test]
fn long_cycles_are_shortened_and_need_no_stack() {
    let lines: Vec<_> = (0..20_000).map(|i| format!("t{i}: t{}", (i + 1) % 20_000)).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let got = faults(&tasks(&lines));
    assert_eq!(got.len(), 1);
    assert!(got[0].contains("t5 → … 19988 more … → t19994"), "{}", got[0]);
    assert!(got[0].len() < 500);
}

#[test]
fn agents_must_be_known_and_fit_the_work() {
    refused("[[task]]\nid = 'a'\nagent = 'mnie'\n", &[("plan::agent", "did you mean `mine`?")]);
    refused("[[task]]\nid = 'a'\nagent = 'zzzzz'\n", &[("plan::agent", "[agents.zzzzz]")]);
    load("[[task]]\nid = 'a'\nagent = 'claude'\n").unwrap();
    refused("[[task]]\nid = 'a'\nagent = 'any'\n", &[("plan::agent", "missing ACP command")]);
    refused("[[task]]\nid = 'a'\nagent = 'script'\n", &[("plan::agent", "missing `script`")]);
    refused(
        "[[task]]\nid = 'a'\nagent = 'command'\n",
        &[("plan::agent", "nor the task has a command")],
    );
    refused("[[task]]\nid = 'a'\nagent = 'script'\nrun = 'x'\n", &[("plan::agent", "`command`")]);
    let script = "[[task]]\nid = 'a'\nagent = 'mine'\nscript = [{print = 'x'}]\n";
    refused(script, &[("plan::agent", "`script`")]);
    refused("[[task]]\nid = 'a'\nagent = 3\n", &[("plan::type", "a string")]);
    assert!(load("[[task]]\nid = 'a'\nagent = 'mine'\nrun = 'x'\n").is_ok());
}

#[test]
fn a_missing_or_wrong_default_agent_is_reported() {
    let source =
        "version = 1\n[[task]]\nid = 'a'\n[[task]]\nid = 'b'\n[[task]]\nid = 'c'\nrun = 'x'\n";
    let got = load_with(source, None).unwrap_err();
    assert_eq!(got.len(), 2);
    assert!(got[0].help.as_deref().unwrap().contains("[run] agent"));
    let got = load_with(source, Some("clod")).unwrap_err();
    assert_eq!(got.len(), 1, "once, not per task");
    assert!(got[0].message.contains("default agent `clod`"));
}

#[test]
fn globs_are_checked() {
    refused(
        "[[task]]\nid = 'a'\nwrites = ['/etc/*', '../x', 'a[', 'ok/**']\n",
        &[("plan::glob", "absolute"), ("plan::glob", ".."), ("plan::glob", "a[")],
    );
}

#[test]
fn an_empty_plan_is_an_error() {
    refused("", &[("plan::empty", "[[task]]")]);
    refused("title = 'x'\n", &[("plan::empty", "no tasks")]);
}

#[test]
fn faults_of_reading_and_of_checking_come_together_without_echoes() {
    let source =
        "[[task]]\nid = 'a'\nneeds = ['b']\nagnet = 'x'\n[[task]]\nid = 'b'\nneeds = ['a']\n";
    refused(source, &[("plan::cycle", "a → b → a"), ("plan::unknown_key", "agent")]);
    // The task that is needed lost its id; that it is missing would be an echo.
    let source = "[[task]]\nid = 7\n[[task]]\nid = 'b'\nneeds = ['7']\n";
    refused(source, &[("plan::type", "quotes")]);
    refused("task = 3", &[("plan::type", "[[task]]")]);
}

#[test]
fn thousands_of_faults_are_cut_and_cheap() {
    let lines: Vec<_> = (0..20_000).map(|i| format!("t{i}: gone{i}")).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let got = faults(&tasks(&lines));
    assert_eq!(got.len(), document::FAULTS_MAX + 1);
    assert!(got.last().unwrap().contains("19000 more"));
}

#[test]
fn epics_that_multiply_beyond_bounds_are_refused() {
    let mut source = String::from("[[epic]]\nid = 'A'\n[[epic]]\nid = 'B'\nneeds = ['A']\n");
    for i in 0..10_000 {
        let epic = if i % 2 == 0 { "A" } else { "B" };
        source.push_str(&format!("[[task]]\nid = 't{i}'\nepic = '{epic}'\n"));
    }
    refused(&source, &[("plan::edges", "25000000")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plan_that_passes_the_check_always_gives_a_graph(
        n in 1usize..8,
        edges in proptest::collection::vec((0usize..8, 0usize..9, any::<bool>()), 0..12),
        epics in proptest::collection::vec(0usize..4, 8),
        epic_needs in proptest::collection::vec((0usize..3, 0usize..3), 0..4),
    ) {
        let mut plan = Plan::default();
        for e in 0..3 {
            let needs = epic_needs.iter().filter(|(from, _)| *from == e);
            let needs = needs.map(|(_, to)| EpicId::new(format!("e{to}"))).collect();
            plan.epics.push(Epic { id: EpicId::new(format!("e{e}")), title: String::new(), needs });
        }
        for (i, epic) in epics.iter().enumerate().take(n) {
            let mut task = Task::empty();
            task.id = TaskId::new(format!("t{i}"));
            task.agent = Some("mine".into());
            if *epic < 3 {
                task.epic = Some(EpicId::new(format!("e{epic}")));
            }
            for (_, to, soft) in edges.iter().filter(|(from, _, _)| *from == i) {
                let name = TaskId::new(format!("t{to}"));
                if *soft { task.after.push(name) } else { task.needs.push(name) }
            }
            plan.tasks.push(task);
        }
        let places = PlanSpans::without_source(&plan);
        let agents = agents();
        let known = PlanCheckContext { agents: &agents, default_agent: None };
        let faults = check_plan(&plan, &places, "", &known);
        let graph = Graph::new(&plan);
        if faults.is_empty() {
            prop_assert!(graph.is_ok(), "{:?}", graph.err());
        } else if faults.iter().all(|f| f.code == "plan::cycle" && f.message.starts_with("tasks")) {
            prop_assert!(graph.is_err());
        }
    }

    #[test]
    fn loading_random_text_never_panics(source in "(version = 1\n|\\[\\[task\\]\\]\n|id = '[ab]'\n|needs = \\['[abc]'\\]\n|script = \\[\\{[a-z]{4} = 1\\}\\]\n|[\\[\\]{}=\"a\n]){0,12}") {
        let _ = load_with(&source, None);
    }
}

#[test]
fn a_dangling_name_is_reported_beside_ids_that_are_bad_twice_or_missing() {
    let source = "[[task]]\nid = \"a b\"\n[[task]]\nid = \"x\"\nneeds = [\"nope\"]\n[[task]]\nid = \"x\"\n\
                  [[task]]\nneeds = [\"gone\", \"x\"]\n";
    let codes: Vec<_> = load(source).unwrap_err().into_iter().map(|f| (f.code, f.line)).collect();
    for wanted in ["plan::bad_id", "plan::duplicate_id", "plan::missing_id"] {
        assert!(codes.iter().any(|(code, _)| *code == wanted), "{wanted}: {codes:?}");
    }
    let dangling: Vec<_> = codes.iter().filter(|(code, _)| *code == "plan::dangling").collect();
    assert_eq!(dangling.len(), 2, "{codes:?}");
}

#[test]
fn a_missing_version_hides_no_other_mistake() {
    let faults = load_with("[[task]]\nid = \"x\"\nneeds = [\"nope\"]\n", Some("mine")).unwrap_err();
    let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
    assert!(codes.contains(&"plan::version") && codes.contains(&"plan::dangling"), "{codes:?}");
}

#[test]
fn a_plan_is_written_with_one_spelling_of_task() {
    load("[[tasks]]\nid = \"x\"\n").unwrap();
    refused(
        "[[task]]\nid = \"x\"\n[[tasks]]\nid = \"y\"\n",
        &[("plan::two_spellings", "both `task` and `tasks`")],
    );
}

#[test]
fn a_plan_can_be_looked_at_although_its_agent_is_not_configured() {
    let agents = agents();
    let known = PlanCheckContext { agents: &agents, default_agent: None };
    let source = "version = 1\n[[task]]\nid = \"x\"\nagent = \"nobody\"\n";
    let (plan, lacking) =
        load_plan_for_display(source.as_bytes(), DocumentFormat::Toml, &known).unwrap();
    assert_eq!((plan.tasks.len(), lacking.len()), (1, 1));
    let broken = source.replace("nobody\"", "nobody\"\nneeds = [\"gone\"]");
    assert_eq!(
        load_plan_for_display(broken.as_bytes(), DocumentFormat::Toml, &known).unwrap_err().len(),
        2
    );
}
