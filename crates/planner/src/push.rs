//! What a run did, written into the files the plan came from: the bytes of a status and nothing else.
//!
//! Only forward: what is done there stays done, and nothing is opened again. A group is done when
//! all its tasks are. Knows no files; it says what to change.

use std::collections::BTreeMap;

use crate::import::{Imported, Notice, Place, State};
use crate::source::Edit;

/// Changes to make.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Push {
    /// What to write.
    pub edits: Vec<Edit>,
    /// What changes, for people.
    pub changes: Vec<Change>,
    /// Tasks whose state has no place or no word there.
    pub notices: Vec<Notice>,
}

/// One task or group whose state changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Their id.
    pub theirs: String,
    /// Where it stood.
    pub from: State,
    /// Where it stands.
    pub to: State,
    /// Where that is written.
    pub place: Place,
}

/// What to change so that the source says where each task stands, by our ids.
pub fn push(imported: &Imported, states: &BTreeMap<String, State>) -> Push {
    let mut push = Push::default();
    let entries = &imported.entries;
    let mut now: Vec<State> = entries.iter().map(|entry| entry.state).collect();
    for (i, entry) in entries.iter().enumerate() {
        let ours = imported.ids[i].as_deref();
        let Some(to) = ours.and_then(|id| states.get(id)).copied() else { continue };
        if !moves(entry.state, to) {
            continue;
        }
        if push.set(imported, i, to) {
            now[i] = to;
        }
    }
    push.put_blockers_first(imported);
    groups(imported, &mut now, &mut push);
    push.edits.sort_by(|a, b| (&a.file, a.start, a.end).cmp(&(&b.file, b.start, b.end)));
    push
}

/// Forward only; what is called off there is only taken up by being done here.
fn moves(from: State, to: State) -> bool {
    match from {
        State::Done => false,
        State::Dropped | State::Held => to == State::Done,
        _ => from != to && to != State::Open,
    }
}

impl Push {
    fn set(&mut self, imported: &Imported, at: usize, to: State) -> bool {
        let entry = &imported.entries[at];
        let mut found = false;
        for mark in &entry.marks {
            if let Some((_, word)) = mark.words.iter().find(|(state, _)| *state == to) {
                self.edits.push(Edit::new(&mark.file, mark.span.clone(), word.as_str()));
                found = true;
            }
        }
        if found {
            let change = Change {
                theirs: entry.id.clone(),
                from: entry.state,
                to,
                place: entry.place.clone(),
            };
            self.changes.push(change);
        } else if to == State::Done {
            let message = format!("{} is done, but the file has no place for a status", entry.id);
            self.notices.push(Notice { place: entry.place.clone(), message });
        }
        found
    }
}

impl Push {
    /// Trackers refuse to close an issue before the issues that block it.
    fn put_blockers_first(&mut self, imported: &Imported) {
        let needs: BTreeMap<&str, &[String]> =
            imported.entries.iter().map(|e| (e.id.as_str(), e.needs.as_slice())).collect();
        let mut waiting: BTreeMap<String, Change> = BTreeMap::new();
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
fn groups(imported: &Imported, now: &mut [State], push: &mut Push) {
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
                matches!(now[*at], State::Done | State::Dropped) || entries[*at].optional
            };
            let done =
                members.iter().all(is_over) && members.iter().any(|at| now[*at] == State::Done);
            if done && moves(now[*group], State::Done) && imported.ids[*group].is_none() {
                now[*group] = State::Done;
                if !entries[*group].marks.is_empty() {
                    push.set(imported, *group, State::Done);
                }
                changed = true;
            }
        }
    }
}
