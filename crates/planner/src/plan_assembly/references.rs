//! References between drafts become edges: temporary ids inside an epic, labels across epics.
//!
//! A label is a title or a slug of one, in any spelling. The work per label is bounded by the tasks
//! that share its rarest word.

use std::collections::BTreeMap;

use super::{AssemblyEntry, AssemblyReport};
use crate::schema::EpicPart;
use crate::text_forms::{bare_title, plain_words};

/// Tasks that a label's words lead to and are looked at, so that a word all titles share costs little.
const LOOKED_AT: usize = 512;
/// Candidates that a report names.
const NAMED: usize = 5;

/// A reference that could not be followed, or not with certainty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedReference {
    /// The temporary id of the task that names it.
    pub from: String,
    /// The reference as written.
    pub label: String,
    /// Temporary ids it may mean, the one taken first; none if there is no such task.
    pub candidates: Vec<String>,
}

/// An edge and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResolvedEdge {
    pub(super) to: usize,
    pub(super) trust: EdgeConfidence,
}

/// How sure an edge is; the least sure go first when a circle must be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeConfidence {
    /// One of several tasks that a label may mean.
    Guess,
    /// A label that is part of the title, or the other way.
    Similar,
    /// A label that is the title.
    Title,
    Id,
}

/// Titles of one epic, ready to be looked up.
#[derive(Default)]
struct EpicTitleIndex {
    /// Temporary ids in lower case.
    ids: BTreeMap<String, usize>,
    exact: BTreeMap<String, Vec<usize>>,
    bare: BTreeMap<String, Vec<usize>>,
    words: BTreeMap<String, Vec<usize>>,
    plain: BTreeMap<usize, String>,
}

/// The edges of every entry, by what it names. What cannot be followed goes into the report.
pub(super) fn resolve_edges(
    entries: &[AssemblyEntry<'_>],
    epics: &[&EpicPart],
    report: &mut AssemblyReport,
) -> Vec<Vec<ResolvedEdge>> {
    let places: BTreeMap<&str, usize> =
        epics.iter().enumerate().map(|(i, epic)| (epic.id.as_str(), i)).collect();
    let ids: BTreeMap<&str, usize> =
        entries.iter().enumerate().map(|(i, entry)| (entry.draft.temp_id.as_str(), i)).collect();
    let mut titles: Vec<EpicTitleIndex> = Vec::new();
    titles.resize_with(epics.len(), EpicTitleIndex::default);
    for (i, entry) in entries.iter().enumerate() {
        titles[entry.epic].add_title(i, entry);
    }
    let mut all = Vec::with_capacity(entries.len());
    for (i, entry) in entries.iter().enumerate() {
        let mut own: Vec<ResolvedEdge> = Vec::new();
        let mut add = |edge: ResolvedEdge| {
            if edge.to == i {
                return;
            }
            match own.iter_mut().find(|known| known.to == edge.to) {
                Some(known) => known.trust = known.trust.max(edge.trust),
                None => own.push(edge),
            }
        };
        let name = |label: &str, candidates: &[usize]| UnresolvedReference {
            from: entry.draft.temp_id.clone(),
            label: label.to_owned(),
            candidates: candidates
                .iter()
                .take(NAMED)
                .map(|c| entries[*c].draft.temp_id.clone())
                .collect(),
        };
        for label in &entry.draft.local_dependencies {
            match ids.get(label.as_str()) {
                Some(to) => {
                    report.resolved += 1;
                    add(ResolvedEdge { to: *to, trust: EdgeConfidence::Id });
                }
                None => report.unresolved.push(name(label, &[])),
            }
        }
        for label in &entry.draft.cross_epic_dependencies {
            let (epic, rest) = label.split_once(':').unwrap_or((label, ""));
            let found = places.get(epic.trim()).map(|at| titles[*at].find_tasks(rest, i));
            let (candidates, trust) = found.unwrap_or((Vec::new(), EdgeConfidence::Guess));
            let Some(first) = candidates.first() else {
                report.unresolved.push(name(label, &[]));
                continue;
            };
            report.resolved += 1;
            if candidates.len() > 1 {
                report.ambiguous.push(name(label, &candidates));
                add(ResolvedEdge { to: *first, trust: EdgeConfidence::Guess });
            } else {
                add(ResolvedEdge { to: *first, trust });
            }
        }
        all.push(own);
    }
    all
}

impl EpicTitleIndex {
    fn add_title(&mut self, at: usize, entry: &AssemblyEntry<'_>) {
        let text = plain_words(&entry.draft.title);
        self.ids.insert(entry.draft.temp_id.to_lowercase(), at);
        self.bare.entry(bare_title(&entry.draft.title)).or_default().push(at);
        for word in text.split(' ') {
            let list = self.words.entry(word.to_owned()).or_default();
            if list.last() != Some(&at) {
                list.push(at);
            }
        }
        self.exact.entry(text.clone()).or_default().push(at);
        self.plain.insert(at, text);
    }

    /// The tasks that a label means, the surest kind of match first; never `but`.
    fn find_tasks(&self, label: &str, but: usize) -> (Vec<usize>, EdgeConfidence) {
        let label = label.trim();
        if let Some(at) = self.ids.get(&label.to_lowercase()) {
            return (vec![*at], EdgeConfidence::Id);
        }
        let text = plain_words(label);
        if text.is_empty() {
            return (Vec::new(), EdgeConfidence::Guess);
        }
        let others = |list: Option<&Vec<usize>>| -> Vec<usize> {
            list.into_iter().flatten().copied().filter(|at| *at != but).collect()
        };
        let exact = others(self.exact.get(&text));
        if !exact.is_empty() {
            return (exact, EdgeConfidence::Title);
        }
        let alike = others(self.bare.get(&bare_title(label)));
        if !alike.is_empty() {
            return (alike, EdgeConfidence::Title);
        }
        let mut similar = self.titles_with_words(&text);
        if similar.is_empty() {
            similar = self.titles_within(&text);
        }
        similar.retain(|at| *at != but);
        (similar, EdgeConfidence::Similar)
    }

    /// Tasks whose title has all the words of the label.
    fn titles_with_words(&self, label: &str) -> Vec<usize> {
        let lists: Option<Vec<&Vec<usize>>> =
            label.split(' ').map(|word| self.words.get(word)).collect();
        let Some(lists) = lists else { return Vec::new() };
        let Some(rarest) = lists.iter().min_by_key(|list| list.len()) else { return Vec::new() };
        let has_all = |at: &&usize| lists.iter().all(|list| list.binary_search(at).is_ok());
        rarest.iter().take(LOOKED_AT).filter(has_all).copied().collect()
    }

    /// Tasks whose whole title, verb aside, stands in the label.
    fn titles_within(&self, label: &str) -> Vec<usize> {
        let mut lists: Vec<&Vec<usize>> =
            label.split(' ').filter_map(|word| self.words.get(word)).collect();
        lists.sort_by_key(|list| list.len());
        let mut near: Vec<usize> = lists.into_iter().flatten().copied().take(LOOKED_AT).collect();
        near.sort_unstable();
        near.dedup();
        let padded = format!(" {label} ");
        near.retain(|at| {
            self.plain
                .get(at)
                .is_some_and(|title| padded.contains(&format!(" {} ", bare_title(title))))
        });
        near
    }
}
