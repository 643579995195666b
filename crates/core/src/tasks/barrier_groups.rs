//! Which tasks stand behind the same barrier. Knows the plan and its edges, nothing of how tasks stand.

use std::collections::BTreeMap;

use crate::config::ScheduleBarrier;
use crate::graph::Graph;
use crate::id::TaskIx;
use crate::plan::Plan;

/// The barrier's group of each task. Groups never run against an edge: a task that something of an
/// earlier group needs is drawn forward by giving its dependents at least its own group.
pub(super) fn barrier_groups(plan: &Plan, graph: &Graph, barrier: ScheduleBarrier) -> Vec<u32> {
    let mut order: BTreeMap<&str, u32> = BTreeMap::new();
    let mut groups: Vec<u32> = plan
        .tasks
        .iter()
        .map(|task| {
            let name = match barrier {
                ScheduleBarrier::None | ScheduleBarrier::Level => return 0,
                ScheduleBarrier::Epic => task.epic.as_ref().map(|epic| epic.as_str()),
                ScheduleBarrier::Phase => task.phase.as_deref(),
            };
            let next = u32::try_from(order.len()).unwrap_or(u32::MAX) + 1;
            name.map_or(0, |name| *order.entry(name).or_insert(next))
        })
        .collect();
    match barrier {
        ScheduleBarrier::None => {}
        ScheduleBarrier::Level => {
            for (ix, group) in groups.iter_mut().enumerate() {
                *group = graph.level(TaskIx(u32::try_from(ix).unwrap_or(u32::MAX)));
            }
        }
        ScheduleBarrier::Epic | ScheduleBarrier::Phase => {
            for t in graph.topological_order() {
                let before = graph.needs(*t).chain(graph.soft_needs(*t));
                let least = before.map(|p| groups[p.index()]).max().unwrap_or(0);
                groups[t.index()] = groups[t.index()].max(least);
            }
        }
    }
    groups
}
