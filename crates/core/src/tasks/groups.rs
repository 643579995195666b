//! Which tasks stand behind the same barrier. Knows the plan and its edges, nothing of how tasks stand.

use std::collections::BTreeMap;

use crate::config::Barrier;
use crate::graph::Graph;
use crate::id::TaskIx;
use crate::plan::Plan;

/// The barrier's group of each task. Groups never run against an edge: a task that something of an
/// earlier group needs is drawn forward by giving its dependents at least its own group.
pub(super) fn groups(plan: &Plan, graph: &Graph, barrier: Barrier) -> Vec<u32> {
    let mut order: BTreeMap<&str, u32> = BTreeMap::new();
    let mut groups: Vec<u32> = plan
        .tasks
        .iter()
        .map(|task| {
            let name = match barrier {
                Barrier::None | Barrier::Level => return 0,
                Barrier::Epic => task.epic.as_ref().map(|epic| epic.as_str()),
                Barrier::Phase => task.phase.as_deref(),
            };
            let next = u32::try_from(order.len()).unwrap_or(u32::MAX) + 1;
            name.map_or(0, |name| *order.entry(name).or_insert(next))
        })
        .collect();
    match barrier {
        Barrier::None => {}
        Barrier::Level => {
            for (ix, group) in groups.iter_mut().enumerate() {
                *group = graph.level(TaskIx(u32::try_from(ix).unwrap_or(u32::MAX)));
            }
        }
        Barrier::Epic | Barrier::Phase => {
            for t in graph.topo() {
                let before = graph.needs(*t).chain(graph.after(*t));
                let least = before.map(|p| groups[p.ix()]).max().unwrap_or(0);
                groups[t.ix()] = groups[t.ix()].max(least);
            }
        }
    }
    groups
}
