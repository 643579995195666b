//! Which nodes of a graph reach each other. Without recursion.

/// For each node the number of its strong component. Tarjan's walk with a stack of its own.
pub(crate) fn find_strong_components(graph: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let nodes = graph.len();
    let (mut index, mut low, mut of) = (vec![NONE; nodes], vec![0; nodes], vec![NONE; nodes]);
    let (mut next, mut count) = (0, 0);
    let mut open: Vec<usize> = Vec::new();
    for root in 0..nodes {
        if index[root] != NONE {
            continue;
        }
        let mut calls: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((node, child)) = calls.pop() {
            if child == 0 {
                index[node] = next;
                low[node] = next;
                next += 1;
                open.push(node);
            }
            if let Some(to) = graph[node].get(child) {
                calls.push((node, child + 1));
                if index[*to] == NONE {
                    calls.push((*to, 0));
                } else if of[*to] == NONE {
                    low[node] = low[node].min(index[*to]);
                }
                continue;
            }
            if low[node] == index[node] {
                while let Some(member) = open.pop() {
                    of[member] = count;
                    if member == node {
                        break;
                    }
                }
                count += 1;
            }
            if let Some((parent, _)) = calls.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
        }
    }
    of
}
