//! What a run did, written into the files the plan came from: the bytes of a status and nothing else.
//!
//! Only forward: what is done there stays done, and nothing is opened again. A group is done when
//! all its tasks are. Knows no files; it says what to change.

use std::collections::BTreeMap;

use crate::import::{ImportNotice, ImportedPlan, SourceLocation, SourceTaskState};
use crate::import_source::SourceEdit;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatusPush {
    pub edits: Vec<SourceEdit>,
    /// What changes, for people.
    pub changes: Vec<StatusPushChange>,
    /// Tasks whose state has no place or no word there.
    pub notices: Vec<ImportNotice>,
}

/// One task or group whose state changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusPushChange {
    pub theirs: String,
    pub from: SourceTaskState,
    pub to: SourceTaskState,
    /// Where that is written.
    pub place: SourceLocation,
}

/// What to change so that the source says where each task stands, by our ids.
pub fn plan_status_push(
    imported: &ImportedPlan,
    states: &BTreeMap<String, SourceTaskState>,
) -> StatusPush {
    let mut push = StatusPush::default();
    let entries = &imported.entries;
    let mut now: Vec<SourceTaskState> = entries.iter().map(|entry| entry.state).collect();
    for (i, entry) in entries.iter().enumerate() {
        let ours = imported.ids[i].as_deref();
        let Some(to) = ours.and_then(|id| states.get(id)).copied() else { continue };
        if !is_forward_move(entry.state, to) {
            continue;
        }
        if push.set_state(imported, i, to) {
            now[i] = to;
        }
    }
    push.put_blockers_first(imported);
    push_group_states(imported, &mut now, &mut push);
    push.edits.sort_by(|a, b| (&a.file, a.start, a.end).cmp(&(&b.file, b.start, b.end)));
    push
}

/// Forward only; what is called off there is only taken up by being done here.
fn is_forward_move(from: SourceTaskState, to: SourceTaskState) -> bool {
    match from {
        SourceTaskState::Done => false,
        SourceTaskState::Dropped | SourceTaskState::Held => to == SourceTaskState::Done,
        _ => from != to && to != SourceTaskState::Open,
    }
}

impl StatusPush {
    fn set_state(&mut self, imported: &ImportedPlan, at: usize, to: SourceTaskState) -> bool {
        let entry = &imported.entries[at];
        let mut found = false;
        for mark in &entry.marks {
            if let Some((_, word)) = mark.words.iter().find(|(state, _)| *state == to) {
                self.edits.push(SourceEdit::new(&mark.file, mark.span.clone(), word.as_str()));
                found = true;
            }
        }
        if found {
            let change = StatusPushChange {
                theirs: entry.id.clone(),
                from: entry.state,
                to,
                place: entry.place.clone(),
            };
            self.changes.push(change);
        } else if to == SourceTaskState::Done {
            let message = format!("{} is done, but the file has no place for a status", entry.id);
            self.notices.push(ImportNotice { place: entry.place.clone(), message });
        }
        found
    }
}

impl StatusPush {
    /// Trackers refuse to close an issue before the issues that block it.
    fn put_blockers_first(&mut self, imported: &ImportedPlan) {
        let needs: BTreeMap<&str, &[String]> =
            imported.entries.iter().map(|e| (e.id.as_str(), e.needs.as_slice())).collect();
        let mut waiting: BTreeMap<String, StatusPushChange> = BTreeMap::new();
        let mut order = Vec::new();
        for change in self.changes.drain(..) {
            order.push(change.theirs.clone());
            waiting.insert(change.theirs.clone(), change);
        }
        for start in order {
            // Depth first with a path of its own: chains may be longer than the call stack is deep.
            let mut path = vec![(start, false)];
            while let Some((id, blockers_done)) = path.pop() {
                let Some(change) = waiting.get(&id) else { continue };
                if blockers_done {
                    self.changes.push(change.clone());
                    waiting.remove(&id);
                    continue;
                }
                let on_path =
                    |need: &&String| path.iter().any(|(id, entered)| *entered && id == *need);
                let blockers = needs.get(id.as_str()).copied().unwrap_or_default().iter();
                let open = blockers.filter(|need| waiting.contains_key(*need) && !on_path(need));
                let open: Vec<_> = open.map(|need| (need.clone(), false)).collect();
                path.push((id, true));
                path.extend(open);
            }
        }
    }
}

/// From the innermost out, so that a group of finished groups is finished too.
fn push_group_states(imported: &ImportedPlan, now: &mut [SourceTaskState], push: &mut StatusPush) {
    let entries = &imported.entries;
    let index: BTreeMap<String, usize> =
        entries.iter().enumerate().rev().map(|(i, entry)| (entry.id.to_lowercase(), i)).collect();
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, entry) in entries.iter().enumerate() {
        let parent = entry.parent.as_ref().and_then(|parent| index.get(&parent.to_lowercase()));
        if let Some(parent) = parent.filter(|parent| **parent != i) {
            members.entry(*parent).or_default().push(i);
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (group, members) in &members {
            let is_over = |at: &usize| {
                matches!(now[*at], SourceTaskState::Done | SourceTaskState::Dropped)
                    || entries[*at].optional
            };
            let done = members.iter().all(is_over)
                && members.iter().any(|at| now[*at] == SourceTaskState::Done);
            if done
                && is_forward_move(now[*group], SourceTaskState::Done)
                && imported.ids[*group].is_none()
            {
                now[*group] = SourceTaskState::Done;
                if !entries[*group].marks.is_empty() {
                    push.set_state(imported, *group, SourceTaskState::Done);
                }
                changed = true;
            }
        }
    }
}
