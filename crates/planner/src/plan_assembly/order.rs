//! Order: of epics, and what to do about circles. Without recursion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mainstem_core::id::TaskId;

use super::AssemblyError;
use super::duplicates::JoinedTask;
use super::references::EdgeConfidence;
use crate::schema::{EpicBreakdown, EpicPart};
use crate::strong_components::find_strong_components;

/// A circle with the edges whose removal opens it, by the names of tasks and epics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyCycle {
    /// One way around; the first is also the last.
    pub path: Vec<String>,
    /// Edges to drop, each with why this one: who needs, what it needs.
    pub drop: Vec<(String, String, &'static str)>,
}

/// An edge by indices, and why it is the one to drop.
type EdgeRemoval = (usize, usize, &'static str);

/// A circle by indices: tasks first, then epics as joints.
pub(super) struct IndexedCycle {
    path: Vec<usize>,
    drop: Vec<EdgeRemoval>,
}

impl IndexedCycle {
    pub(super) fn with_names(&self, ids: &[TaskId], epics: &[&EpicPart]) -> DependencyCycle {
        let name = |at: usize| match ids.get(at) {
            Some(id) => id.as_str().to_owned(),
            None => epics[at - ids.len()].id.clone(),
        };
        DependencyCycle {
            path: self.path.iter().map(|at| name(*at)).collect(),
            drop: self.drop.iter().map(|(a, b, why)| (name(*a), name(*b), *why)).collect(),
        }
    }
}

/// The epics so that each comes after what it needs; ties by id.
pub(super) fn order_epics(breakdown: &EpicBreakdown) -> Result<Vec<&EpicPart>, AssemblyError> {
    let mut by_id: BTreeMap<&str, &EpicPart> = BTreeMap::new();
    for epic in &breakdown.epics {
        if by_id.insert(&epic.id, epic).is_some() {
            return Err(AssemblyError::TwiceUsed(epic.id.clone()));
        }
    }
    let needs = |epic: &EpicPart| -> BTreeSet<&str> {
        let needed = epic.dependencies_on_epics.iter().filter(|name| **name != epic.id);
        needed.filter_map(|name| by_id.get_key_value(name.as_str())).map(|(id, _)| *id).collect()
    };
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> =
        by_id.iter().map(|(id, epic)| (*id, needs(epic))).collect();
    let mut order = Vec::with_capacity(by_id.len());
    while let Some(next) = waiting.iter().find(|(_, needs)| needs.is_empty()).map(|(id, _)| *id) {
        waiting.remove(next);
        waiting.values_mut().for_each(|needs| {
            needs.remove(next);
        });
        order.push(by_id[next]);
    }
    let Some((start, _)) = waiting.iter().next() else { return Ok(order) };
    // What is left needs something that is left; following it must come back to itself.
    let mut path: Vec<&str> = vec![start];
    loop {
        let last = path[path.len() - 1];
        let next =
            waiting[last].iter().next().expect("BUG: an epic that waits needs one that waits");
        if let Some(at) = path.iter().position(|id| id == next) {
            path.drain(..at);
            path.push(next);
            break;
        }
        path.push(next);
    }
    let drop = (path[path.len() - 2].to_owned(), path[path.len() - 1].to_owned());
    Err(AssemblyError::EpicCircle { path: path.into_iter().map(str::to_owned).collect(), drop })
}

/// Rounds of opening one knot; each takes at least one edge out.
const ROUNDS: usize = 64;

/// Every circle with edges to drop: the least sure first, then needs of epics, then the latest.
pub(super) fn find_cycles(
    joined: &[JoinedTask<'_>],
    barriers: &BTreeSet<(usize, usize)>,
    epics: &[&EpicPart],
) -> Vec<IndexedCycle> {
    let tasks = joined.len();
    let mut dropped: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut knots: Vec<IndexedCycle> = Vec::new();
    for _ in 0..ROUNDS {
        let graph = build_graph(joined, barriers, epics.len(), &dropped);
        let components = find_strong_components(&graph);
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (node, component) in components.iter().enumerate() {
            members.entry(*component).or_default().push(node);
        }
        let mut found = members.values().filter(|nodes| nodes.len() > 1).peekable();
        if found.peek().is_none() {
            break;
        }
        for nodes in found {
            let path = shortest_cycle(&graph, &components, nodes[0]);
            let edge = weakest_edge(joined, tasks, &path);
            dropped.insert((edge.0, edge.1));
            knots.push(IndexedCycle { path, drop: vec![edge] });
        }
    }
    knots
}

/// Tasks, then epics: a task needs the joints of the epics its epic needs; a joint needs its tasks.
fn build_graph(
    joined: &[JoinedTask<'_>],
    barriers: &BTreeSet<(usize, usize)>,
    epics: usize,
    dropped: &BTreeSet<(usize, usize)>,
) -> Vec<Vec<usize>> {
    let tasks = joined.len();
    let mut graph: Vec<Vec<usize>> = vec![Vec::new(); tasks + epics];
    for (i, task) in joined.iter().enumerate() {
        let edges = task.edges.iter().map(|edge| edge.to);
        graph[i].extend(edges.filter(|to| !dropped.contains(&(i, *to))));
        let needed = barriers.range((task.epic, 0)..(task.epic + 1, 0)).map(|(_, to)| *to);
        let kept = needed.filter(|to| !dropped.contains(&(tasks + task.epic, tasks + to)));
        graph[i].extend(kept.map(|to| tasks + to));
        graph[tasks + task.epic].push(i);
    }
    graph
}

/// A shortest way from a node back to itself, inside its component.
fn shortest_cycle(graph: &[Vec<usize>], components: &[usize], start: usize) -> Vec<usize> {
    let mut from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for to in graph[node].iter().filter(|to| components[**to] == components[start]) {
            if *to == start {
                let mut path = vec![start, node];
                let mut at = node;
                while at != start {
                    at = from[&at];
                    path.push(at);
                }
                path.reverse();
                if node == start {
                    path = vec![start, start];
                }
                return path;
            }
            if !from.contains_key(to) {
                from.insert(*to, node);
                queue.push_back(*to);
            }
        }
    }
    vec![start, start]
}

fn weakest_edge(joined: &[JoinedTask<'_>], tasks: usize, path: &[usize]) -> EdgeRemoval {
    let mut best: Option<((u8, usize), EdgeRemoval)> = None;
    for pair in path.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let (rank, edge) = if a < tasks && b < tasks {
            let trust = joined[a].edges.iter().find(|edge| edge.to == b).map(|edge| edge.trust);
            let (rank, why) = match trust {
                Some(EdgeConfidence::Guess) => (0, "the label matches several tasks"),
                Some(EdgeConfidence::Similar) => (1, "the label only resembles the title"),
                Some(EdgeConfidence::Title) => (3, "an epic's task that points at a later one"),
                _ => (4, "the last dependency of the cycle"),
            };
            (rank, (a, b, why))
        } else if a < tasks {
            // From a task to the joint of an epic: the need of the task's own epic.
            (2, (tasks + joined[a].epic, b, "an epic's need that its tasks contradict"))
        } else {
            continue;
        };
        // Among equals the one from the earliest to the latest: it goes against the order most.
        let backwards = usize::MAX - edge.1.saturating_sub(edge.0);
        if best.as_ref().is_none_or(|(known, _)| (rank, backwards) < *known) {
            best = Some(((rank, backwards), edge));
        }
    }
    best.map_or((path[0], path[0], "a circle of itself"), |(_, edge)| edge)
}

/// Takes the proposed edges out.
pub(super) fn drop_edges(
    joined: &mut [JoinedTask<'_>],
    barriers: &mut BTreeSet<(usize, usize)>,
    circles: &[IndexedCycle],
) {
    let tasks = joined.len();
    for (a, b, _) in circles.iter().flat_map(|knot| &knot.drop) {
        match joined.get_mut(*a) {
            Some(task) => task.edges.retain(|edge| edge.to != *b),
            None => {
                barriers.remove(&(a - tasks, b - tasks));
            }
        }
    }
}
