#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use super::*;
use crate::plan::{Epic, Task};
use proptest::prelude::*;

/// A plan from lines such as `c E2 !5: a b ~d`: task, epic, priority, needs, after.
fn plan(text: &str, epics: &[(&str, &[&str])]) -> Plan {
    let tasks = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (head, tail) = line.split_once(':').unwrap();
            let mut head = head.split_whitespace();
            let mut task = Task::empty();
            task.id = TaskId::new(head.next().unwrap());
            for word in head {
                match word.strip_prefix('!') {
                    Some(priority) => task.priority = priority.parse().unwrap(),
                    None => task.epic = Some(EpicId::new(word)),
                }
            }
            for name in tail.split_whitespace() {
                match name.strip_prefix('~') {
                    Some(name) => task.after.push(TaskId::new(name)),
                    None => task.needs.push(TaskId::new(name)),
                }
            }
            task
        })
        .collect();
    let epics = epics
        .iter()
        .map(|(id, needs)| Epic {
            id: EpicId::new(*id),
            title: String::new(),
            needs: needs.iter().map(|id| EpicId::new(*id)).collect(),
        })
        .collect();
    Plan { title: String::new(), epics, tasks }
}

fn names(graph: &Graph, tasks: impl IntoIterator<Item = TaskIx>) -> String {
    tasks.into_iter().map(|t| graph.id(t).to_string()).collect::<Vec<_>>().join(" ")
}

const DIAMOND: &str = "a:\n b: a\n c !5: a\n d: b c a\n e: ~d\n";

#[test]
fn a_diamond_has_three_levels_and_a_soft_end() {
    let graph = Graph::new(&plan(DIAMOND, &[])).unwrap();
    let levels: Vec<_> = graph.levels().into_iter().map(|l| names(&graph, l)).collect();
    assert_eq!(levels, ["a", "c b", "d", "e"]);
    let ix = |id: &str| graph.index_of(id).unwrap();
    assert_eq!(names(&graph, graph.needs(ix("d"))), "b c a");
    assert_eq!(names(&graph, graph.dependents(ix("a"))), "b c d");
    assert_eq!(names(&graph, graph.soft_needs(ix("e"))), "d");
    assert_eq!(names(&graph, graph.soft_dependents(ix("d"))), "e");
    assert_eq!(graph.needs(ix("e")).len(), 0);
    assert_eq!(names(&graph, graph.topological_order().iter().copied()), "a b c d e");
    assert_eq!(graph.index_of("zzz"), None);
}

#[test]
fn the_critical_path_is_the_heaviest() {
    let graph = Graph::new(&plan(DIAMOND, &[])).unwrap();
    let heavy_c = |t: TaskIx| if graph.id(t).as_str() == "c" { 10 } else { 1 };
    assert_eq!(names(&graph, graph.critical_path(heavy_c)), "a c d e");
    assert_eq!(graph.longest_tails(heavy_c), [13, 3, 12, 2, 1]);
    assert_eq!(names(&graph, graph.critical_path(|_| 1)), "a b d e", "ties go to the earlier one");
    assert_eq!(graph.longest_tails(|_| u64::MAX), [u64::MAX; 5], "weights saturate");
    assert_eq!(Graph::new(&Plan::default()).unwrap().critical_path(|_| 1), []);
    assert!(Graph::new(&Plan::default()).unwrap().levels().is_empty());
}

#[test]
fn every_task_of_an_epic_needs_every_task_of_the_epics_it_needs() {
    let epics: &[(&str, &[&str])] = &[("E2", &["E1", "E1"]), ("E1", &[]), ("E0", &[])];
    let graph = Graph::new(&plan("x E2:\n y E2: x a\n a E1:\n b E1:\n", epics)).unwrap();
    let ix = |id: &str| graph.index_of(id).unwrap();
    assert_eq!(names(&graph, graph.needs(ix("x"))), "a b");
    assert_eq!(names(&graph, graph.needs(ix("y"))), "x a b");
    assert_eq!(names(&graph, graph.dependents(ix("b"))), "x y");
}

#[test]
fn repeats_are_dropped_and_a_hard_edge_outweighs_a_soft_one() {
    let graph = Graph::new(&plan("a:\n b: a a ~a ~a\n c: ~b ~b\n", &[])).unwrap();
    assert_eq!(graph.needs(TaskIx(1)).len(), 1);
    assert_eq!(graph.soft_needs(TaskIx(1)).len(), 0);
    assert_eq!(graph.soft_needs(TaskIx(2)).len(), 1);
}

#[test]
fn plans_that_are_no_graph_are_refused() {
    let cycle = |text| match Graph::new(&plan(text, &[])) {
        Err(GraphError::Cycle(cycle)) => cycle.into_iter().map(|t| t.0).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(cycle("a: b\n b: c\n c: a\n d: a\n"), [0, 1, 2]);
    assert_eq!(cycle("z:\n a: ~b\n b: a\n"), [1, 2]);
    assert_eq!(cycle("a: a\n"), [0]);
    assert!(matches!(Graph::new(&plan("a: x\n", &[])), Err(GraphError::Unknown { .. })));
    assert!(matches!(Graph::new(&plan("a E:\n", &[])), Err(GraphError::Unknown { .. })));
    assert!(matches!(Graph::new(&plan("a:\n a:\n", &[])), Err(GraphError::Duplicate(_))));
}

#[test]
fn epics_that_multiply_beyond_bounds_are_refused_at_once() {
    let lines: String =
        (0..10_000).map(|i| format!("t{i} {}:\n", if i % 2 == 0 { "A" } else { "B" })).collect();
    let result = Graph::new(&plan(&lines, &[("A", &[]), ("B", &["A"])]));
    assert!(matches!(result, Err(GraphError::TooManyEdges(25_000_000))));
}

#[test]
fn a_chain_of_two_hundred_thousand_needs_no_stack() {
    let mut text = String::from("t0:\n");
    (1..200_000).for_each(|i| text.push_str(&format!("t{i}: t{}\n", i - 1)));
    let graph = Graph::new(&plan(&text, &[])).unwrap();
    assert_eq!(graph.level(TaskIx(199_999)), 199_999);
    assert_eq!(graph.critical_path(|_| 1).len(), 200_000);
    let ring = text.replacen("t0:", "t0: t199999", 1);
    assert!(
        matches!(Graph::new(&plan(&ring, &[])), Err(GraphError::Cycle(c)) if c.len() == 200_000)
    );
}

#[test]
fn circles_in_one_knot_are_all_found() {
    // A figure of eight, and a separate ring.
    let edges = [(0, 1), (1, 0), (0, 2), (2, 0), (3, 4), (4, 5), (5, 3), (6, 0)];
    let mut cycles = Adjacency::new(7, &edges).find_cycles(10);
    cycles.sort();
    assert_eq!(cycles, [vec![0, 1], vec![0, 2], vec![3, 4, 5]]);
}

/// Edges by the plainest reading of the words, and a search without cleverness.
fn oracle_level(edges: &BTreeSet<(usize, usize)>, n: usize) -> Option<Vec<u32>> {
    let mut level = vec![0u32; n];
    for _ in 0..=n {
        let mut changed = false;
        for (from, to) in edges {
            if level[*from] < level[*to] + 1 {
                level[*from] = level[*to] + 1;
                changed = true;
            }
        }
        if !changed {
            return Some(level);
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_graphs_agree_with_a_plain_oracle(
        n in 1usize..12,
        raw in proptest::collection::vec((0usize..12, 0usize..12, any::<bool>(), any::<bool>()), 0..30),
        weights in proptest::collection::vec(1u64..9, 12),
    ) {
        let mut plan = Plan::default();
        for i in 0..n {
            let mut task = Task::empty();
            task.id = TaskId::new(format!("t{i}"));
            plan.tasks.push(task);
        }
        let mut edges = BTreeSet::new();
        for (a, b, soft, wild) in raw {
            let (mut a, mut b) = (a % n, b % n);
            if a == b { continue }
            // Mostly acyclic, sometimes anything.
            if !wild && a < b { std::mem::swap(&mut a, &mut b) }
            edges.insert((a, b));
            let to = TaskId::new(format!("t{b}"));
            if soft { plan.tasks[a].after.push(to) } else { plan.tasks[a].needs.push(to) }
        }
        match (Graph::new(&plan), oracle_level(&edges, n)) {
            (Ok(graph), Some(level)) => {
                let got: Vec<u32> = graph.tasks().map(|t| graph.level(t)).collect();
                prop_assert_eq!(got, level);
                let place: Vec<usize> = graph.tasks()
                    .map(|t| graph.topological_order().iter().position(|u| *u == t).unwrap()).collect();
                prop_assert!(edges.iter().all(|(a, b)| place[*b] < place[*a]));
                let weight = |t: TaskIx| weights[t.index()];
                let tails = graph.longest_tails(weight);
                for t in 0..n {
                    let best = edges.iter().filter(|(_, to)| *to == t).map(|(from, _)| tails[*from]).max();
                    prop_assert_eq!(tails[t], weights[t] + best.unwrap_or(0));
                }
                let path = graph.critical_path(weight);
                let sum: u64 = path.iter().map(|t| weights[t.index()]).sum();
                prop_assert_eq!(sum, tails.iter().copied().max().unwrap());
            }
            (Err(GraphError::Cycle(cycle)), None) => {
                prop_assert!(cycle.len() > 1);
                for (i, t) in cycle.iter().enumerate() {
                    let next = cycle[(i + 1) % cycle.len()];
                    prop_assert!(edges.contains(&(t.index(), next.index())));
                }
            }
            (got, want) => prop_assert!(false, "{:?} {:?}", got.is_ok(), want),
        }
        let pairs: Vec<(u32, u32)> = edges.iter().map(|(a, b)| (*a as u32, *b as u32)).collect();
        let cycles = Adjacency::new(n, &pairs).find_cycles(100);
        // With enough rounds, cutting every circle found leaves none.
        let mut rest = edges.clone();
        for cycle in &cycles {
            for (i, a) in cycle.iter().enumerate() {
                let b = cycle[(i + 1) % cycle.len()];
                prop_assert!(rest.remove(&(*a as usize, b as usize)), "edge twice or not there");
            }
        }
        prop_assert!(oracle_level(&rest, n).is_some());
    }
}
