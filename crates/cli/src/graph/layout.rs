//! Where the boxes of a graph go: rows, the order in each row, and columns.
//!
//! Knows widths and edges, neither tasks nor characters. Long edges get a slot one column wide in
//! every row they pass. Edges are kept as nets: all sources of a net lead to all its targets, so
//! that lines may join within a net without saying anything untrue.

use std::collections::BTreeMap;

/// Columns between two slots of a row.
const SPACING: usize = 2;
/// Columns of a slot that only lets an edge pass.
const VIA_WIDTH: usize = 1;
/// Sweeps that order the rows; more change nothing in practice.
const ORDER_SWEEPS: usize = 16;
/// Sweeps that pull slots towards their neighbours.
const PULL_SWEEPS: usize = 12;
/// Rows are tried this much narrower each time that passing edges make them too wide.
const BUDGET_STEP: usize = 8;

/// An edge to draw, from what comes first to what comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GraphEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) soft: bool,
}

/// A place in a row: a box, or a column for a passing edge.
#[derive(Debug, Clone)]
pub(super) struct LayoutSlot {
    /// The node; none for a passing edge.
    pub(super) node: Option<usize>,
    /// Whether the passing edge is soft.
    pub(super) soft: bool,
    pub(super) left: usize,
    pub(super) width: usize,
}

impl LayoutSlot {
    pub(super) fn centre_column(&self) -> usize {
        self.left + (self.width - 1) / 2
    }
}

/// Lines between two rows that belong together: every source leads to every target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EdgeBundle {
    /// Slots of the upper row.
    pub(super) sources: Vec<usize>,
    /// Slots of the row below.
    pub(super) targets: Vec<usize>,
    pub(super) soft: bool,
}

#[derive(Debug)]
pub(super) struct GraphLayout {
    pub(super) slots: Vec<LayoutSlot>,
    /// Slots of each row, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
    /// Nets between row `i` and the next.
    pub(super) gaps: Vec<Vec<EdgeBundle>>,
}

impl GraphLayout {
    pub(super) fn width(&self) -> usize {
        self.slots.iter().map(|slot| slot.left + slot.width).max().unwrap_or(0)
    }
}

/// Lays a graph out within `limit` columns; none if it does not fit. `order` holds every node
/// after all it depends on.
pub(super) fn lay_out_graph(
    order: &[usize],
    widths: &[usize],
    edges: &[GraphEdge],
    limit: usize,
) -> Option<GraphLayout> {
    let widest = widths.iter().copied().max()?;
    let mut budget = limit;
    while budget >= widest {
        let row_of = assign_rows(order, widths, edges, budget);
        let mut layout = build_layout(order, widths, edges, &row_of);
        sort_rows(&mut layout);
        if layout.rows.iter().all(|row| packed_width(&layout.slots, row) <= limit) {
            place_slots(&mut layout, limit);
            return Some(layout);
        }
        budget = budget.checked_sub(BUDGET_STEP)?;
    }
    None
}

/// Edges that no path of other edges already says; and how many were left out.
pub(super) fn drop_implied_edges(
    nodes: usize,
    order: &[usize],
    edges: &[GraphEdge],
) -> (Vec<GraphEdge>, usize) {
    let mut next: Vec<Vec<(usize, bool)>> = vec![Vec::new(); nodes];
    for edge in edges {
        next[edge.from].push((edge.to, edge.soft));
    }
    // What each node leads to: by hard edges alone, and by any.
    let mut hard = vec![vec![false; nodes]; nodes];
    let mut any = vec![vec![false; nodes]; nodes];
    for node in order.iter().rev() {
        for (to, soft) in &next[*node] {
            for far in 0..nodes {
                let (by_hard, by_any) = (hard[*to][far] || far == *to, any[*to][far] || far == *to);
                hard[*node][far] |= !soft && by_hard;
                any[*node][far] |= by_any;
            }
        }
    }
    let said = |edge: &GraphEdge| {
        next[edge.from].iter().any(|(via, soft)| {
            let reach = if edge.soft { &any } else { &hard };
            *via != edge.to && (edge.soft || !soft) && reach[*via][edge.to]
        })
    };
    let kept: Vec<GraphEdge> = edges.iter().filter(|edge| !said(edge)).copied().collect();
    let left_out = edges.len() - kept.len();
    (kept, left_out)
}

/// Each node below all before it, no row wider than `budget`.
fn assign_rows(
    order: &[usize],
    widths: &[usize],
    edges: &[GraphEdge],
    budget: usize,
) -> Vec<usize> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); widths.len()];
    let mut tied = vec![false; widths.len()];
    for edge in edges {
        before[edge.to].push(edge.from);
        (tied[edge.from], tied[edge.to]) = (true, true);
    }
    let mut row_of = vec![0; widths.len()];
    let mut used: Vec<usize> = Vec::new();
    // Nodes without edges fill what the others leave.
    let (tied, loose): (Vec<usize>, Vec<usize>) = order.iter().partition(|node| tied[**node]);
    for node in tied.into_iter().chain(loose) {
        let mut row = before[node].iter().map(|from| row_of[*from] + 1).max().unwrap_or(0);
        while used.get(row).is_some_and(|used| *used > 0 && used + SPACING + widths[node] > budget)
        {
            row += 1;
        }
        used.resize(used.len().max(row + 1), 0);
        used[row] += widths[node] + if used[row] > 0 { SPACING } else { 0 };
        row_of[node] = row;
    }
    row_of
}

fn build_layout(
    order: &[usize],
    widths: &[usize],
    edges: &[GraphEdge],
    row_of: &[usize],
) -> GraphLayout {
    let count = row_of.iter().max().map_or(0, |row| row + 1);
    let mut slots: Vec<LayoutSlot> = widths
        .iter()
        .enumerate()
        .map(|(node, width)| LayoutSlot { node: Some(node), soft: false, left: 0, width: *width })
        .collect();
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    order.iter().for_each(|node| rows[row_of[*node]].push(*node));
    let mut gaps: Vec<Vec<EdgeBundle>> = vec![Vec::new(); count.saturating_sub(1)];
    for ((row, soft, targets), sources) in bundle_edges(edges, row_of) {
        let mut sources = sources;
        let last = targets.iter().map(|to| row_of[*to]).max().unwrap_or(row);
        for at in row..last {
            let mut here: Vec<usize> =
                targets.iter().copied().filter(|to| row_of[*to] == at + 1).collect();
            let mut passing = Vec::new();
            if at + 1 < last {
                let via = slots.len();
                slots.push(LayoutSlot { node: None, soft, left: 0, width: VIA_WIDTH });
                rows[at + 1].push(via);
                here.push(via);
                passing.push(via);
            }
            gaps[at].push(EdgeBundle { sources, targets: here, soft });
            sources = passing;
        }
    }
    GraphLayout { slots, rows, gaps }
}

/// Sources of one row that lead to exactly the same targets.
fn bundle_edges(
    edges: &[GraphEdge],
    row_of: &[usize],
) -> BTreeMap<(usize, bool, Vec<usize>), Vec<usize>> {
    let mut targets: BTreeMap<(usize, bool), Vec<usize>> = BTreeMap::new();
    for edge in edges {
        targets.entry((edge.from, edge.soft)).or_default().push(edge.to);
    }
    let mut nets: BTreeMap<(usize, bool, Vec<usize>), Vec<usize>> = BTreeMap::new();
    for ((from, soft), mut to) in targets {
        to.sort_unstable();
        to.dedup();
        nets.entry((row_of[from], soft, to)).or_default().push(from);
    }
    nets
}

fn packed_width(slots: &[LayoutSlot], row: &[usize]) -> usize {
    let widths: usize = row.iter().map(|slot| slots[*slot].width).sum();
    widths + SPACING * row.len().saturating_sub(1)
}

/// Neighbours of each slot: in the row above, or in the row below.
fn slot_neighbours(layout: &GraphLayout, above: bool) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new(); layout.slots.len()];
    for net in layout.gaps.iter().flatten() {
        let (of, to) =
            if above { (&net.targets, &net.sources) } else { (&net.sources, &net.targets) };
        for slot in of {
            found[*slot].extend(to.iter().copied());
        }
    }
    found
}

/// Orders the rows so that few lines cross.
fn sort_rows(layout: &mut GraphLayout) {
    let above = slot_neighbours(layout, true);
    let below = slot_neighbours(layout, false);
    let mut best = layout.rows.clone();
    let mut fewest = count_crossings(layout);
    for sweep in 0..ORDER_SWEEPS {
        if fewest == 0 {
            break;
        }
        let down = sweep % 2 == 0;
        let near = if down { &above } else { &below };
        let rows = layout.rows.len();
        for i in 0..rows {
            let row = if down { i } else { rows - 1 - i };
            let at = relative_positions(&layout.rows, layout.slots.len());
            let mean = |slot: &usize| match near[*slot].as_slice() {
                [] => at[*slot],
                near => near.iter().map(|n| at[*n]).sum::<f64>() / near.len() as f64,
            };
            let mut sorted = layout.rows[row].clone();
            sorted.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
            layout.rows[row] = sorted;
        }
        let now = count_crossings(layout);
        if now < fewest {
            fewest = now;
            best.clone_from(&layout.rows);
        }
    }
    layout.rows = best;
}

/// Where each slot stands in its row, from 0 to 1.
fn relative_positions(rows: &[Vec<usize>], slots: usize) -> Vec<f64> {
    let mut at = vec![0.5; slots];
    for row in rows {
        for (i, slot) in row.iter().enumerate() {
            at[*slot] = (i as f64 + 0.5) / row.len() as f64;
        }
    }
    at
}

fn count_crossings(layout: &GraphLayout) -> usize {
    let at = relative_positions(&layout.rows, layout.slots.len());
    let mut count = 0;
    for gap in &layout.gaps {
        let lines: Vec<(f64, f64)> = gap
            .iter()
            .flat_map(|net| {
                let targets = &net.targets;
                net.sources.iter().flat_map(move |from| targets.iter().map(move |to| (*from, *to)))
            })
            .map(|(from, to)| (at[from], at[to]))
            .collect();
        for (i, a) in lines.iter().enumerate() {
            count += lines[i + 1..].iter().filter(|b| (a.0 - b.0) * (a.1 - b.1) < 0.0).count();
        }
    }
    count
}

/// Pulls slots towards the middle of their neighbours, never changing the order in a row.
fn place_slots(layout: &mut GraphLayout, limit: usize) {
    let above = slot_neighbours(layout, true);
    let below = slot_neighbours(layout, false);
    let rows = layout.rows.clone();
    let mut left = vec![0.0; layout.slots.len()];
    let pulls = rows.iter().map(|row| packed_width(&layout.slots, row)).max().unwrap_or(0);
    for row in &rows {
        // Start in the middle, so that rows without neighbours are centred.
        let mut at = (pulls - packed_width(&layout.slots, row)) as f64 / 2.0;
        for slot in row {
            left[*slot] = at;
            at += (layout.slots[*slot].width + SPACING) as f64;
        }
    }
    for sweep in 0..PULL_SWEEPS {
        let down = sweep % 2 == 0;
        let near = if down { &above } else { &below };
        for i in 0..rows.len() {
            let row = &rows[if down { i } else { rows.len() - 1 - i }];
            let wish = |slot: usize| {
                let own = &layout.slots[slot];
                if near[slot].is_empty() {
                    return left[slot];
                }
                let middle = |n: &usize| left[*n] + (layout.slots[*n].width - 1) as f64 / 2.0;
                let mean = near[slot].iter().map(middle).sum::<f64>() / near[slot].len() as f64;
                mean - (own.width - 1) as f64 / 2.0
            };
            let wishes: Vec<f64> = row.iter().map(|slot| wish(*slot)).collect();
            let placed = nearest_positions(&layout.slots, row, &wishes, limit);
            row.iter().zip(placed).for_each(|(slot, at)| left[*slot] = at);
        }
    }
    let least = left.iter().copied().fold(f64::INFINITY, f64::min).round();
    for (slot, at) in layout.slots.iter_mut().zip(&left) {
        slot.left = (at.round() - least).max(0.0) as usize;
    }
}

/// The places nearest to the wishes (by squares) that keep order, spacing and limit: neighbours
/// that push each other are pooled and moved as one.
fn nearest_positions(
    slots: &[LayoutSlot],
    row: &[usize],
    wishes: &[f64],
    limit: usize,
) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(row.len());
    let mut offset = 0.0;
    for slot in row {
        offsets.push(offset);
        offset += (slots[*slot].width + SPACING) as f64;
    }
    // Pools of (sum of weighted wishes, weight, members); passing edges are kept straight first.
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (i, slot) in row.iter().enumerate() {
        let weight = if slots[*slot].node.is_none() { 4.0 } else { 1.0 };
        pools.push(((wishes[i] - offsets[i]) * weight, weight, 1));
        while let [.., a, b] = pools.as_slice() {
            if a.0 / a.1 <= b.0 / b.1 {
                break;
            }
            let both = (a.0 + b.0, a.1 + b.1, a.2 + b.2);
            pools.truncate(pools.len() - 2);
            pools.push(both);
        }
    }
    let room = limit.saturating_sub(packed_width(slots, row)) as f64;
    let mut placed = Vec::with_capacity(row.len());
    for (sum, weight, members) in pools {
        for _ in 0..members {
            placed.push((sum / weight).round().clamp(0.0, room) + offsets[placed.len()]);
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn edge(from: usize, to: usize) -> GraphEdge {
        GraphEdge { from, to, soft: false }
    }

    #[test]
    fn an_edge_that_others_imply_is_left_out_unless_only_soft_ones_do() {
        let soft = GraphEdge { from: 0, to: 1, soft: true };
        let all = [edge(0, 1), edge(1, 2), edge(0, 2)];
        assert_eq!(drop_implied_edges(3, &[0, 1, 2], &all).0, [edge(0, 1), edge(1, 2)]);
        let all = [soft, edge(1, 2), edge(0, 2)];
        assert_eq!(drop_implied_edges(3, &[0, 1, 2], &all).1, 0);
    }

    #[test]
    fn rows_never_overlap_nor_leave_the_limit() {
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for nodes in [1, 5, 20, 60] {
            let order: Vec<usize> = (0..nodes).collect();
            let widths: Vec<usize> = (0..nodes).map(|_| 9 + random(12)).collect();
            let mut edges: Vec<GraphEdge> =
                (1..nodes).flat_map(|to| [edge(random(to), to), edge(random(to), to)]).collect();
            edges.sort();
            edges.dedup();
            let (edges, _) = drop_implied_edges(nodes, &order, &edges);
            let Some(layout) = lay_out_graph(&order, &widths, &edges, 100) else { continue };
            assert!(layout.width() <= 100);
            for row in &layout.rows {
                for pair in row.windows(2) {
                    let [a, b] = [&layout.slots[pair[0]], &layout.slots[pair[1]]];
                    assert!(a.left + a.width + SPACING <= b.left, "{a:?} {b:?}");
                }
            }
            let boxes = layout.rows.iter().flatten().filter(|s| layout.slots[**s].node.is_some());
            assert_eq!(boxes.count(), nodes);
        }
        assert!(lay_out_graph(&[0], &[200], &[], 100).is_none());
        assert_eq!(lay_out_graph(&[0, 1, 2], &[40, 40, 40], &[], 100).unwrap().rows.len(), 2);
    }
}
