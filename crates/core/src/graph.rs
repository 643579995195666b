//! The plan's graph: who needs whom, in what order, and what the longest way through is.
//!
//! Knows nothing of how far the work is. Everything is iterative and deterministic, in time
//! linear in tasks and edges.

use std::collections::VecDeque;

use crate::id::{EpicId, TaskId, TaskIx};
use crate::plan::Plan;

/// Finds things by name; whoever uses it must not walk it.
#[expect(clippy::disallowed_types, reason = "looked up, never walked: its order cannot show")]
pub(crate) type LookupMap<K, V> = std::collections::HashMap<K, V>;

/// More edges than this are refused: epics that need each other multiply their tasks.
pub const EDGES_MAX: u64 = 20_000_000;

/// Why a plan gives no graph. A checked plan gives none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Tasks that wait for each other: each needs the next, the last needs the first.
    #[error("dependency cycle among {} tasks", .0.len())]
    Cycle(Vec<TaskIx>),
    /// A task or epic names one that is not there.
    #[error("unknown task `{to}` in the dependencies of `{from}`")]
    Unknown { from: String, to: String },
    /// Two tasks have one id.
    #[error("duplicate task id `{0}`")]
    Duplicate(TaskId),
    #[error("the plan has {0} dependencies; the limit is {EDGES_MAX}")]
    TooManyEdges(u64),
}

/// Dense adjacency: the targets of each node in one vector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Adjacency {
    starts: Vec<u32>,
    targets: Vec<u32>,
}

impl Adjacency {
    /// Edges keep the order they have per node.
    pub(crate) fn new(nodes: usize, edges: &[(u32, u32)]) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for (from, _) in edges {
            starts[*from as usize + 1] += 1;
        }
        for i in 0..nodes {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut targets = vec![0u32; edges.len()];
        for (from, to) in edges {
            let slot = &mut next[*from as usize];
            targets[*slot as usize] = *to;
            *slot += 1;
        }
        Self { starts, targets }
    }

    fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn range(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    pub(crate) fn targets_of(&self, node: u32) -> &[u32] {
        &self.targets[self.range(node)]
    }

    /// Every edge the other way round; targets ascend.
    fn reversed(&self) -> Self {
        let mut edges = Vec::with_capacity(self.targets.len());
        for node in 0..self.len() as u32 {
            edges.extend(self.targets_of(node).iter().map(|to| (*to, node)));
        }
        Self::new(self.len(), &edges)
    }

    /// Nodes that can be put in an order with targets first, and the number of those.
    fn sort_targets_first(&self) -> Vec<u32> {
        let back = self.reversed();
        let mut waiting: Vec<u32> =
            (0..self.len() as u32).map(|node| self.targets_of(node).len() as u32).collect();
        let mut order: Vec<u32> =
            (0..self.len() as u32).filter(|node| waiting[*node as usize] == 0).collect();
        let mut at = 0;
        while at < order.len() {
            for next in back.targets_of(order[at]) {
                waiting[*next as usize] -= 1;
                if waiting[*next as usize] == 0 {
                    order.push(*next);
                }
            }
            at += 1;
        }
        order
    }

    /// Circles with no edge in common, each as its nodes in order: in every knot at least one, and
    /// more until the knots are gone or `rounds` are over.
    pub(crate) fn find_cycles(&self, rounds: usize) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        let settled = self.sort_targets_first();
        if settled.len() == self.len() {
            return found;
        }
        let mut live = vec![true; self.len()];
        for node in settled {
            live[node as usize] = false;
        }
        let mut cut = vec![false; self.targets.len()];
        for _ in 0..rounds {
            let (knot_of, knots) = self.strong_components(&live, &cut);
            let before = found.len();
            for knot in &knots {
                if let Some(cycle) = self.shortest_cycle(knot[0], &knot_of, &mut cut) {
                    found.push(cycle);
                }
            }
            if found.len() == before {
                break;
            }
            live.fill(false);
            knots.iter().flatten().for_each(|node| live[*node as usize] = true);
        }
        found
    }

    /// Strongly connected parts with a circle in them (Tarjan's way, with a stack of our own), and
    /// for each node its part. Parts and their nodes ascend.
    fn strong_components(&self, live: &[bool], cut: &[bool]) -> (Vec<u32>, Vec<Vec<u32>>) {
        const NEW: u32 = u32::MAX;
        let mut index = vec![NEW; self.len()];
        let mut low = vec![0u32; self.len()];
        let mut knot_of = vec![NEW; self.len()];
        let mut stack: Vec<u32> = Vec::new();
        let mut calls: Vec<(u32, usize)> = Vec::new();
        let mut knots = Vec::new();
        let mut count = 0;
        let mut part = 0;
        for root in (0..self.len() as u32).filter(|node| live[*node as usize]) {
            if index[root as usize] != NEW {
                continue;
            }
            calls.push((root, self.range(root).start));
            while let Some((node, edge)) = calls.pop() {
                let n = node as usize;
                if index[n] == NEW {
                    (index[n], low[n]) = (count, count);
                    count += 1;
                    stack.push(node);
                }
                let end = self.range(node).end;
                let mut at = edge;
                let mut descended = false;
                while at < end {
                    let to = self.targets[at];
                    let t = to as usize;
                    if live[t] && !cut[at] {
                        if index[t] == NEW {
                            // Come back to this very edge, to take over what it found.
                            calls.push((node, at));
                            calls.push((to, self.range(to).start));
                            descended = true;
                            break;
                        }
                        if knot_of[t] == NEW {
                            low[n] = low[n].min(low[t]);
                        }
                    }
                    at += 1;
                }
                if descended || low[n] != index[n] {
                    continue;
                }
                let mut members = Vec::new();
                while let Some(top) = stack.pop() {
                    knot_of[top as usize] = part;
                    members.push(top);
                    if top == node {
                        break;
                    }
                }
                part += 1;
                let alone = members.len() == 1
                    && !self.range(node).any(|at| self.targets[at] == node && !cut[at]);
                if !alone {
                    members.sort_unstable();
                    knots.push(members);
                }
            }
        }
        knots.sort_unstable();
        (knot_of, knots)
    }

    /// The shortest circle through `start` inside its knot; its edges are cut.
    fn shortest_cycle(&self, start: u32, knot_of: &[u32], cut: &mut [bool]) -> Option<Vec<u32>> {
        let mut came_by: LookupMap<u32, (u32, usize)> = LookupMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in self.range(node) {
                let to = self.targets[edge];
                if cut[edge] || knot_of[to as usize] != knot_of[start as usize] {
                    continue;
                }
                if to == start {
                    cut[edge] = true;
                    let mut cycle = vec![node];
                    let mut at = node;
                    while let Some((from, edge)) = came_by.get(&at).filter(|_| at != start) {
                        cut[*edge] = true;
                        cycle.push(*from);
                        at = *from;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                if to != start && !came_by.contains_key(&to) {
                    came_by.insert(to, (node, edge));
                    queue.push_back(to);
                }
            }
        }
        None
    }
}

/// The graph of one plan. Indices are places in [`Plan::tasks`].
#[derive(Debug, Clone)]
pub struct Graph {
    ids: Vec<TaskId>,
    index: LookupMap<TaskId, TaskIx>,
    hard: Adjacency,
    hard_back: Adjacency,
    soft: Adjacency,
    soft_back: Adjacency,
    topo: Vec<TaskIx>,
    level: Vec<u32>,
    priority: Vec<i64>,
}

impl Graph {
    /// Builds the graph: `needs` and the needs of epics are hard edges, `after` are soft ones.
    pub fn new(plan: &Plan) -> Result<Self, GraphError> {
        let mut index = LookupMap::with_capacity(plan.tasks.len());
        for (i, task) in plan.tasks.iter().enumerate() {
            if index.insert(task.id.clone(), TaskIx(i as u32)).is_some() {
                return Err(GraphError::Duplicate(task.id.clone()));
            }
        }
        let edges = count_epic_edges(plan).saturating_add(count_task_edges(plan));
        if edges > EDGES_MAX {
            return Err(GraphError::TooManyEdges(edges));
        }
        let (hard, soft) = collect_edges(plan, &index)?;
        let nodes = plan.tasks.len();
        let hard = Adjacency::new(nodes, &hard);
        let soft = Adjacency::new(nodes, &soft);
        let mut graph = Self {
            ids: plan.tasks.iter().map(|task| task.id.clone()).collect(),
            index,
            hard_back: hard.reversed(),
            soft_back: soft.reversed(),
            hard,
            soft,
            topo: Vec::with_capacity(nodes),
            level: vec![0; nodes],
            priority: plan.tasks.iter().map(|task| task.priority).collect(),
        };
        graph.compute_order()?;
        Ok(graph)
    }

    fn compute_order(&mut self) -> Result<(), GraphError> {
        let nodes = self.len() as u32;
        let degree = |node: u32| {
            (self.hard.targets_of(node).len() + self.soft.targets_of(node).len()) as u32
        };
        let mut waiting: Vec<u32> = (0..nodes).map(degree).collect();
        let mut order: Vec<u32> = (0..nodes).filter(|n| waiting[*n as usize] == 0).collect();
        let mut at = 0;
        while at < order.len() {
            let node = order[at];
            for next in
                self.hard_back.targets_of(node).iter().chain(self.soft_back.targets_of(node))
            {
                let n = *next as usize;
                self.level[n] = self.level[n].max(self.level[node as usize] + 1);
                waiting[n] -= 1;
                if waiting[n] == 0 {
                    order.push(*next);
                }
            }
            at += 1;
        }
        if order.len() < self.len() {
            let all: Vec<(u32, u32)> = (0..nodes)
                .flat_map(|n| {
                    self.hard
                        .targets_of(n)
                        .iter()
                        .chain(self.soft.targets_of(n))
                        .map(move |t| (n, *t))
                })
                .collect();
            let mut cycles = Adjacency::new(self.len(), &all).find_cycles(1);
            let cycle = if cycles.is_empty() { Vec::new() } else { cycles.swap_remove(0) };
            return Err(GraphError::Cycle(cycle.into_iter().map(TaskIx).collect()));
        }
        self.topo = order.into_iter().map(TaskIx).collect();
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// No task at all.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The index of an id.
    pub fn index_of(&self, id: &str) -> Option<TaskIx> {
        self.index.get(id).copied()
    }

    /// The id of an index.
    pub fn id(&self, task: TaskIx) -> &TaskId {
        &self.ids[task.index()]
    }

    /// All tasks in the plan's order.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = TaskIx> + use<> {
        (0..self.ids.len() as u32).map(TaskIx)
    }

    /// The tasks it directly needs, through its own `needs` or its epic's. No repeats.
    pub fn needs(&self, task: TaskIx) -> impl ExactSizeIterator<Item = TaskIx> + '_ {
        self.hard.targets_of(task.0).iter().map(|to| TaskIx(*to))
    }

    /// The tasks it only comes after. No repeats, and none that it also needs.
    pub fn soft_needs(&self, task: TaskIx) -> impl ExactSizeIterator<Item = TaskIx> + '_ {
        self.soft.targets_of(task.0).iter().map(|to| TaskIx(*to))
    }

    /// The tasks that directly need it, in the plan's order.
    pub fn dependents(&self, task: TaskIx) -> impl ExactSizeIterator<Item = TaskIx> + '_ {
        self.hard_back.targets_of(task.0).iter().map(|to| TaskIx(*to))
    }

    /// The tasks that only come after it, in the plan's order.
    pub fn soft_dependents(&self, task: TaskIx) -> impl ExactSizeIterator<Item = TaskIx> + '_ {
        self.soft_back.targets_of(task.0).iter().map(|to| TaskIx(*to))
    }

    /// Every task after all it needs or comes after.
    pub fn topological_order(&self) -> &[TaskIx] {
        &self.topo
    }

    /// Length of the longest chain of edges, hard or soft, that leads to it.
    pub fn level(&self, task: TaskIx) -> u32 {
        self.level[task.index()]
    }

    /// Batches: the tasks of each level, higher priority first, then in the plan's order.
    pub fn levels(&self) -> Vec<Vec<TaskIx>> {
        let count = self.level.iter().max().map_or(0, |level| *level as usize + 1);
        let mut levels = vec![Vec::new(); count];
        for task in self.tasks() {
            levels[self.level(task) as usize].push(task);
        }
        for batch in &mut levels {
            batch.sort_by_key(|task| std::cmp::Reverse(self.priority[task.index()]));
        }
        levels
    }

    /// For each task the weight of the heaviest way from it to an end, itself included.
    pub fn longest_tails(&self, weight: impl Fn(TaskIx) -> u64) -> Vec<u64> {
        let mut tails = vec![0u64; self.len()];
        for task in self.topo.iter().rev() {
            let longest = self.successors(*task).map(|next| tails[next.index()]).max().unwrap_or(0);
            tails[task.index()] = longest.saturating_add(weight(*task));
        }
        tails
    }

    /// The heaviest way through the plan; among equals the one earliest in the plan.
    pub fn critical_path(&self, weight: impl Fn(TaskIx) -> u64) -> Vec<TaskIx> {
        let tails = self.longest_tails(weight);
        let heaviest = |tasks: &mut dyn Iterator<Item = TaskIx>| {
            tasks.min_by_key(|task| (std::cmp::Reverse(tails[task.index()]), task.0))
        };
        let mut starts = self.tasks().filter(|task| self.level(*task) == 0);
        let mut path = Vec::new();
        let mut at = heaviest(&mut starts);
        while let Some(task) = at {
            path.push(task);
            at = heaviest(&mut self.successors(task));
        }
        path
    }

    fn successors(&self, task: TaskIx) -> impl Iterator<Item = TaskIx> + '_ {
        self.dependents(task).chain(self.soft_dependents(task))
    }
}

/// How many edges the plan's tasks write themselves.
pub(crate) fn count_task_edges(plan: &Plan) -> u64 {
    plan.tasks.iter().map(|task| (task.needs.len() + task.after.len()) as u64).sum()
}

/// How many edges the needs of epics stand for.
pub(crate) fn count_epic_edges(plan: &Plan) -> u64 {
    let mut sizes: LookupMap<&str, u64> = LookupMap::new();
    for epic in plan.tasks.iter().filter_map(|task| task.epic.as_ref()) {
        *sizes.entry(epic.as_str()).or_default() += 1;
    }
    let size = |epic: &EpicId| sizes.get(epic.as_str()).copied().unwrap_or(0);
    plan.epics.iter().fold(0, |sum: u64, epic| {
        let needed = epic.needs.iter().fold(0u64, |sum, needed| sum.saturating_add(size(needed)));
        sum.saturating_add(size(&epic.id).saturating_mul(needed))
    })
}

type EdgeList = Vec<(u32, u32)>;

fn collect_edges(
    plan: &Plan,
    index: &LookupMap<TaskId, TaskIx>,
) -> Result<(EdgeList, EdgeList), GraphError> {
    let epics: LookupMap<&str, usize> =
        plan.epics.iter().enumerate().map(|(i, epic)| (epic.id.as_str(), i)).collect();
    let unknown = |from: &str, to: &str| GraphError::Unknown { from: from.into(), to: to.into() };
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); plan.epics.len()];
    for (i, task) in plan.tasks.iter().enumerate() {
        if let Some(epic) = &task.epic {
            let at =
                epics.get(epic.as_str()).ok_or_else(|| unknown(task.id.as_str(), epic.as_str()))?;
            members[*at].push(i as u32);
        }
    }
    let mut needed_epics: Vec<Vec<usize>> = Vec::with_capacity(plan.epics.len());
    for epic in &plan.epics {
        let find = |name: &EpicId| {
            epics
                .get(name.as_str())
                .copied()
                .ok_or_else(|| unknown(epic.id.as_str(), name.as_str()))
        };
        needed_epics.push(epic.needs.iter().map(find).collect::<Result<_, _>>()?);
    }
    let (mut hard, mut soft) = (EdgeList::new(), EdgeList::new());
    // The last task whose edges named each task; saves sorting to drop repeats.
    let mut seen = vec![u32::MAX; plan.tasks.len()];
    for (i, task) in plan.tasks.iter().enumerate() {
        let from = i as u32;
        let mut add = |edges: &mut EdgeList, to: u32| {
            if std::mem::replace(&mut seen[to as usize], from) != from {
                edges.push((from, to));
            }
        };
        let find =
            |name: &TaskId| index.get(name).ok_or_else(|| unknown(task.id.as_str(), name.as_str()));
        for name in &task.needs {
            add(&mut hard, find(name)?.0);
        }
        let epic = task.epic.as_ref().and_then(|epic| epics.get(epic.as_str()));
        for needed in epic.into_iter().flat_map(|epic| &needed_epics[*epic]) {
            members[*needed].iter().for_each(|to| add(&mut hard, *to));
        }
        for name in &task.after {
            add(&mut soft, find(name)?.0);
        }
    }
    Ok((hard, soft))
}

#[cfg(test)]
mod tests;
