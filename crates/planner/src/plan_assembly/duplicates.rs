//! Duplicates become one task, without losing a criterion, an edge or a word.
//!
//! Equal bare titles inside an epic are one task. Across epics only titles that name something are:
//! "Write tests" of two epics are two tasks. What would make a circle that was not there stays apart.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::plan::TaskEffort;

use super::references::ResolvedEdge;
use super::{AssemblyEntry, parse_effort, parse_priority};
use crate::schema::TaskDraft;
use crate::strong_components::find_strong_components;
use crate::text_forms::{bare_title, is_generic_title, path_as_glob};

/// A task of the plan: one draft, or several that are the same.
pub(super) struct JoinedTask<'a> {
    /// Entries, the one that gives its name first.
    pub(super) members: Vec<usize>,
    pub(super) draft: &'a TaskDraft,
    pub(super) epic: usize,
    pub(super) description: String,
    pub(super) acceptance: Vec<String>,
    pub(super) writes: Vec<String>,
    pub(super) effort: TaskEffort,
    pub(super) priority: i64,
    /// To other joined tasks.
    pub(super) edges: Vec<ResolvedEdge>,
}

/// For each entry the first entry of its group, itself if it is alone.
pub(super) fn group_duplicates(
    entries: &[AssemblyEntry<'_>],
    edges: &[Vec<ResolvedEdge>],
    barriers: &BTreeSet<(usize, usize)>,
) -> Vec<usize> {
    let mut first: BTreeMap<(usize, String), usize> = BTreeMap::new();
    let mut leader: Vec<usize> = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let title = bare_title(&entry.draft.title);
        // Generic titles stay inside their epic; 0 is the key of all epics together.
        let scope = if title.is_empty() || is_generic_title(&title) { entry.epic + 1 } else { 0 };
        leader.push(*first.entry((scope, title)).or_insert(i));
    }
    // A circle that goes through a group may be the group's doing: such groups are taken apart.
    let before =
        circular_leaders(entries, edges, barriers, &(0..entries.len()).collect::<Vec<_>>());
    let after = circular_leaders(entries, edges, barriers, &leader);
    let mut apart: BTreeSet<usize> = BTreeSet::new();
    for (i, lead) in leader.iter().enumerate() {
        if *lead != i && after[*lead] && !(before[i] && before[*lead]) {
            apart.insert(*lead);
        }
    }
    for (i, lead) in leader.iter_mut().enumerate() {
        if apart.contains(lead) {
            *lead = i;
        }
    }
    leader
}

/// Which leaders are part of a circle if entries are joined like this.
fn circular_leaders(
    entries: &[AssemblyEntry<'_>],
    edges: &[Vec<ResolvedEdge>],
    barriers: &BTreeSet<(usize, usize)>,
    leader: &[usize],
) -> Vec<bool> {
    let tasks = entries.len();
    let epics = entries.iter().map(|entry| entry.epic + 1).max().unwrap_or(0);
    let mut graph: Vec<Vec<usize>> = vec![Vec::new(); tasks + epics];
    for (from, edges) in edges.iter().enumerate() {
        let to = edges.iter().map(|edge| leader[edge.to]).filter(|to| *to != leader[from]);
        graph[leader[from]].extend(to);
    }
    for (i, lead) in leader.iter().enumerate().filter(|(i, lead)| i == *lead) {
        let epic = entries[i].epic;
        graph[tasks + epic].push(*lead);
        let needed = barriers.range((epic, 0)..(epic + 1, 0)).map(|(_, to)| tasks + to);
        graph[*lead].extend(needed.filter(|to| *to < tasks + epics));
    }
    let components = find_strong_components(&graph);
    let mut size = vec![0usize; graph.len()];
    components.iter().for_each(|component| size[*component] += 1);
    (0..tasks).map(|i| size[components[i]] > 1).collect()
}

/// The tasks of the plan, in order.
pub(super) fn join_duplicates<'a>(
    entries: &[AssemblyEntry<'a>],
    edges: &[Vec<ResolvedEdge>],
    leader: &[usize],
) -> Vec<JoinedTask<'a>> {
    let mut place = vec![usize::MAX; entries.len()];
    let mut joined: Vec<JoinedTask<'a>> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        if leader[i] == i {
            place[i] = joined.len();
            joined.push(JoinedTask {
                members: Vec::new(),
                draft: entry.draft,
                epic: entry.epic,
                description: String::new(),
                acceptance: Vec::new(),
                writes: Vec::new(),
                effort: TaskEffort::Small,
                priority: i64::MIN,
                edges: Vec::new(),
            });
        } else {
            place[i] = place[leader[i]];
        }
    }
    for (i, entry) in entries.iter().enumerate() {
        joined[place[i]].absorb_draft(i, entry.draft);
    }
    for (i, edges) in edges.iter().enumerate() {
        let own = place[i];
        for edge in edges.iter().map(|edge| ResolvedEdge { to: place[edge.to], ..*edge }) {
            if edge.to == own {
                continue;
            }
            match joined[own].edges.iter_mut().find(|known| known.to == edge.to) {
                Some(known) => known.trust = known.trust.max(edge.trust),
                None => joined[own].edges.push(edge),
            }
        }
    }
    joined.iter_mut().for_each(|task| task.edges.sort_by_key(|edge| edge.to));
    joined
}

impl JoinedTask<'_> {
    fn absorb_draft(&mut self, member: usize, draft: &TaskDraft) {
        self.members.push(member);
        let text = draft.description.trim();
        if self.description.is_empty() {
            text.clone_into(&mut self.description);
        } else if !self.description.contains(text) {
            self.description.push_str("\n\n");
            self.description.push_str(text);
        }
        for criterion in draft.acceptance_criteria.iter().map(|text| text.trim()) {
            if !criterion.is_empty() && !self.acceptance.iter().any(|known| known == criterion) {
                self.acceptance.push(criterion.to_owned());
            }
        }
        for path in draft.writes.iter().map(|path| path_as_glob(path)) {
            let good = mainstem_core::glob::check_glob(&path).is_ok();
            if good && !self.writes.contains(&path) {
                self.writes.push(path);
            }
        }
        let size = parse_effort(&draft.effort);
        if size.weight() > self.effort.weight() {
            self.effort = size;
        }
        self.priority = self.priority.max(parse_priority(&draft.priority));
    }
}
