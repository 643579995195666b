//! Entries become a plan: safe ids, edges of groups down to tasks, order, what is left out.
//!
//! A group is not work itself: who needs it needs the ends of it, and what it needs, its tasks need.
//! Order gives way to what is written down, and never makes a circle.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::glob::check_glob;
use mainstem_core::id::{EpicId, TaskId};
use mainstem_core::plan::{Epic, Plan, Task, TaskFailureAction};

use super::{
    ImportCommand, ImportEntry, ImportNotice, ImportOptions, ImportOrder, ImportReading, ImportRow,
    ImportedPlan, SourceTaskState, ToolFormat, find_commands,
};
use crate::strong_components::find_strong_components;
use crate::text_forms::{collapse_to_line, path_as_glob, safe_task_id, unique_name};

/// Titles are one line that people read in lists.
const TITLE_MAX: usize = 200;

struct ImportAssembly<'a> {
    entries: &'a [ImportEntry],
    /// By their id in lower case; the first of equals.
    index: BTreeMap<String, usize>,
    parent: Vec<Option<usize>>,
    members: Vec<Vec<usize>>,
    notices: Vec<ImportNotice>,
}

pub(super) fn assemble_import(
    format: ToolFormat,
    reading: ImportReading,
    accept: &ImportOptions,
) -> ImportedPlan {
    let ImportReading { title, mut entries, notices, lost } = reading;
    for entry in &mut entries {
        entry.commands.extend(find_commands(&entry.acceptance));
        entry.commands.dedup();
    }
    let mut assembly = ImportAssembly::new(&entries, notices);
    let ids = assembly.assign_ids();
    let kept = assembly.choose_kept(accept.all);
    let edges = assembly.build_edges(&kept, accept.order);
    let epics = assembly.build_epics(&kept);
    let mut tasks = Vec::new();
    let mut rows = Vec::new();
    let mut commands = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let Some(id) = &ids[i] else { continue };
        rows.push(ImportRow {
            theirs: entry.id.clone(),
            ours: id.clone(),
            title: truncate_title(&entry.title),
            state: entry.state,
            place: entry.place.clone(),
            kept: kept[i],
        });
        if !kept[i] {
            continue;
        }
        commands.extend(entry.commands.iter().map(|text| ImportCommand {
            task: id.clone(),
            place: entry.place.clone(),
            text: text.clone(),
        }));
        let name = |at: &usize| TaskId::new(ids[*at].clone().unwrap_or_default());
        tasks.push(Task {
            needs: edges[i].needs.iter().map(name).collect(),
            after: edges[i].after.iter().map(name).collect(),
            epic: assembly
                .group_of(i)
                .and_then(|group| epics.get(&group))
                .map(|epic| epic.id.clone()),
            ..build_task(entry, id, accept)
        });
    }
    let ImportAssembly { notices, .. } = assembly;
    let epics: Vec<Epic> = epics.into_values().collect();
    let plan = Plan { title: truncate_title(&title), epics, tasks };
    ImportedPlan { format, plan, rows, notices, lost, commands, entries, ids }
}

fn build_task(entry: &ImportEntry, id: &str, accept: &ImportOptions) -> Task {
    let mut writes: Vec<String> = Vec::new();
    for glob in entry.writes.iter().map(|path| path_as_glob(path.trim_start_matches("./"))) {
        if check_glob(&glob).is_ok() && !writes.contains(&glob) {
            writes.push(glob);
        }
    }
    let clean = |text: &str| text.replace('\0', "");
    Task {
        id: TaskId::new(id),
        title: truncate_title(&entry.title),
        description: clean(entry.description.trim()),
        acceptance: entry.acceptance.iter().map(|text| clean(text)).collect(),
        writes,
        role: entry.role.as_deref().map(collapse_to_line).filter(|role| !role.is_empty()),
        phase: entry.phase.as_deref().map(collapse_to_line).filter(|phase| !phase.is_empty()),
        effort: entry.effort,
        priority: entry.priority,
        on_failure: if entry.optional { TaskFailureAction::Skip } else { TaskFailureAction::Block },
        verify: if accept.commands { entry.commands.clone() } else { Vec::new() },
        ..Task::empty()
    }
}

fn truncate_title(text: &str) -> String {
    let line = collapse_to_line(text);
    match line.char_indices().nth(TITLE_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

#[derive(Default, Clone)]
struct ImportEdges {
    needs: Vec<usize>,
    after: Vec<usize>,
}

impl<'a> ImportAssembly<'a> {
    fn new(entries: &'a [ImportEntry], notices: Vec<ImportNotice>) -> Self {
        let mut index = BTreeMap::new();
        for (i, entry) in entries.iter().enumerate() {
            index.entry(entry.id.to_lowercase()).or_insert(i);
        }
        let mut parent: Vec<Option<usize>> = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| {
                let at = index.get(&entry.parent.as_ref()?.to_lowercase()).copied();
                at.filter(|at| *at != i)
            })
            .collect();
        // Groups inside of each other have no outside: such parents are forgotten.
        for start in 0..entries.len() {
            let mut at = parent[start];
            let mut steps = 0;
            while let Some(up) = at {
                steps += 1;
                if up == start || steps > entries.len() {
                    parent[start] = None;
                    break;
                }
                at = parent[up];
            }
        }
        let mut members = vec![Vec::new(); entries.len()];
        for (i, up) in parent.iter().enumerate() {
            if let Some(up) = up {
                members[*up].push(i);
            }
        }
        Self { entries, index, parent, members, notices }
    }

    fn is_group(&self, at: usize) -> bool {
        self.entries[at].group || !self.members[at].is_empty()
    }

    fn group_of(&self, at: usize) -> Option<usize> {
        self.parent[at]
    }

    /// Our ids of tasks; groups get theirs with the epics.
    fn assign_ids(&self) -> Vec<Option<String>> {
        let mut taken = BTreeMap::new();
        (0..self.entries.len())
            .map(|i| {
                (!self.is_group(i))
                    .then(|| unique_name(&safe_task_id(&self.entries[i].id), &mut taken))
            })
            .collect()
    }

    /// Which entries become tasks: what is finished, put off or being worked on by others does not, nor
    /// does what needs such work, because that work would not be in its base.
    fn choose_kept(&mut self, all: bool) -> Vec<bool> {
        if all {
            return vec![true; self.entries.len()];
        }
        let finished = |entry: &ImportEntry| {
            matches!(entry.state, SourceTaskState::Done | SourceTaskState::Dropped)
        };
        let mut kept = Vec::new();
        for (i, entry) in self.entries.iter().enumerate() {
            // An epic is in progress as soon as one of its tasks is.
            let why = entry.unavailable.as_ref().filter(|_| !finished(entry) && !self.is_group(i));
            kept.push(!finished(entry) && entry.state != SourceTaskState::Held && why.is_none());
            if let Some(why) = why {
                self.leave_out(i, &format!("is {why}"));
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for i in 0..self.entries.len() {
                let unmet = |to: &&String| {
                    let at = self.index.get(&to.to_lowercase()).copied();
                    let below = at.map(|at| self.tasks_below(at)).unwrap_or_default();
                    let waits = |at: &usize| !kept[*at] && !finished(&self.entries[*at]);
                    below.iter().any(|at| *at != i && waits(at))
                };
                if kept[i]
                    && let Some(to) = self.entries[i].needs.iter().find(unmet).cloned()
                {
                    kept[i] = false;
                    changed = true;
                    self.leave_out(i, &format!("needs {to}, which is left out"));
                }
            }
        }
        kept
    }

    fn leave_out(&mut self, at: usize, why: &str) {
        let ImportEntry { id, place, .. } = &self.entries[at];
        let message = format!("{id} {why}: not imported; use --all to import all tasks");
        self.notices.push(ImportNotice { place: place.clone(), message });
    }

    /// Epics with tasks of their own that stay.
    fn build_epics(&self, kept: &[bool]) -> BTreeMap<usize, Epic> {
        let mut taken = BTreeMap::new();
        let mut epics = BTreeMap::new();
        for (i, entry) in self.entries.iter().enumerate() {
            let lives = self.members[i].iter().any(|at| kept[*at] && !self.is_group(*at));
            if self.is_group(i) && lives {
                let id = EpicId::new(unique_name(&safe_task_id(&entry.id), &mut taken));
                epics
                    .insert(i, Epic { id, title: truncate_title(&entry.title), needs: Vec::new() });
            }
        }
        epics
    }

    /// Tasks below a group that nothing else below it waits for: its ends.
    fn group_end_tasks(&self, group: usize, kept: &[bool], direct: &[Vec<usize>]) -> Vec<usize> {
        let below = self.tasks_below(group);
        let inside: BTreeSet<usize> = below.iter().copied().collect();
        let needed: BTreeSet<usize> = below
            .iter()
            .flat_map(|at| direct[*at].iter().copied())
            .filter(|to| inside.contains(to))
            .collect();
        let mut ends: Vec<usize> =
            below.iter().copied().filter(|at| kept[*at] && !needed.contains(at)).collect();
        if ends.is_empty() {
            ends = below.into_iter().filter(|at| kept[*at]).collect();
        }
        ends
    }

    fn tasks_below(&self, group: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut todo = vec![group];
        while let Some(at) = todo.pop() {
            if self.is_group(at) {
                todo.extend(self.members[at].iter().copied());
            } else {
                found.push(at);
            }
        }
        found.sort_unstable();
        found
    }

    fn find_entry(&mut self, from: usize, name: &str) -> Option<usize> {
        let at = self.index.get(&name.trim().to_lowercase()).copied();
        if at.is_none() {
            let message = format!("needs the unknown task `{}`", collapse_to_line(name));
            let place = self.entries[from].place.clone();
            self.notices.push(ImportNotice { place, message });
        }
        at
    }

    fn build_edges(&mut self, kept: &[bool], order: ImportOrder) -> Vec<ImportEdges> {
        let count = self.entries.len();
        let mut hard: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut soft: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut placed: Vec<Vec<usize>> = vec![Vec::new(); count];
        let entries = self.entries;
        for (i, entry) in entries.iter().enumerate() {
            for (names, list) in
                [(&entry.needs, &mut hard), (&entry.after, &mut soft), (&entry.order, &mut placed)]
            {
                for name in names {
                    if let Some(to) = self.find_entry(i, name).filter(|to| *to != i) {
                        list[i].push(to);
                    }
                }
            }
        }
        let inside: Vec<Vec<usize>> =
            (0..count).map(|i| hard[i].iter().chain(&placed[i]).copied().collect()).collect();
        let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut edges = vec![ImportEdges::default(); count];
        let mut by_order: Vec<Vec<usize>> = vec![Vec::new(); count];
        for i in 0..count {
            if self.is_group(i) || !kept[i] {
                continue;
            }
            let mut spread = |list: &[usize], into: &mut Vec<usize>| {
                for to in list {
                    if self.is_group(*to) {
                        let found = ends
                            .entry(*to)
                            .or_insert_with(|| self.group_end_tasks(*to, kept, &inside));
                        into.extend(found.iter().copied());
                    } else if kept[*to] {
                        into.push(*to);
                    }
                }
            };
            let mut up = Some(i);
            while let Some(at) = up {
                spread(&hard[at], &mut edges[i].needs);
                spread(&soft[at], &mut edges[i].after);
                // Order counts where the task itself says nothing.
                if hard[i].is_empty() {
                    spread(&placed[at], &mut by_order[i]);
                }
                up = self.parent[at];
            }
        }
        self.add_order_edges(&mut edges, by_order, order);
        for (i, edges) in edges.iter_mut().enumerate() {
            for list in [&mut edges.needs, &mut edges.after] {
                list.retain(|to| *to != i);
                list.sort_unstable();
                list.dedup();
            }
            let needs = edges.needs.clone();
            edges.after.retain(|to| needs.binary_search(to).is_err());
        }
        edges
    }

    /// Adds the edges of order that close no circle with what is written down.
    fn add_order_edges(
        &mut self,
        edges: &mut [ImportEdges],
        by_order: Vec<Vec<usize>>,
        order: ImportOrder,
    ) {
        if order == ImportOrder::Free {
            return;
        }
        let graph: Vec<Vec<usize>> = edges
            .iter()
            .zip(&by_order)
            .map(|(edges, order)| {
                edges.needs.iter().chain(&edges.after).chain(order).copied().collect()
            })
            .collect();
        let knots = find_strong_components(&graph);
        for (i, list) in by_order.into_iter().enumerate() {
            let before = list.len();
            let free: Vec<usize> = list.into_iter().filter(|to| knots[*to] != knots[i]).collect();
            if free.len() < before {
                let message = "the position in the file contradicts the written dependencies; the position is ignored";
                let place = self.entries[i].place.clone();
                self.notices.push(ImportNotice { place, message: message.to_owned() });
            }
            match order {
                ImportOrder::Needs => edges[i].needs.extend(free),
                _ => edges[i].after.extend(free),
            }
        }
    }
}
