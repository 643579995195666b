//! What the plan leaves open: sections of the PRD without a task, and files that two tasks would
//! write at once.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::id::TaskId;
use mainstem_core::plan::Plan;

use super::duplicates::JoinedTask;
use super::{AssemblyEntry, FileOverlap};
use crate::schema::EpicPart;
use crate::text_forms::{find_paths, plain_words};

/// A heading or a numbered requirement of the PRD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrdSection {
    /// Line in the PRD, from 1.
    pub line: usize,
    /// `3.1`, `R-7`, or empty.
    pub number: String,
    /// The heading, or the start of the requirement.
    pub title: String,
}

/// Headings that ask for nothing.
const TALK: [&str; 27] = [
    "abstract",
    "acceptance",
    "appendix",
    "assumptions",
    "background",
    "changelog",
    "context",
    "contents",
    "definitions",
    "future",
    "glossary",
    "goals",
    "introduction",
    "milestones",
    "motivation",
    "non goals",
    "open questions",
    "out of scope",
    "overview",
    "problem",
    "references",
    "requirements",
    "risks",
    "scope",
    "summary",
    "table of contents",
    "timeline",
];

/// Sections of a PRD that could be covered: the headings without sections below them, and
/// requirements with a number of their own.
pub(super) fn prd_sections(prd: &str) -> Vec<PrdSection> {
    let mut found: Vec<(usize, PrdSection)> = Vec::new();
    let mut fenced = false;
    for (n, line) in prd.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let level = line.bytes().take_while(|b| *b == b'#').count();
        if (1..=6).contains(&level) && line[level..].starts_with(' ') {
            let text = line[level..].trim();
            let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let number = text[..digits].trim_end_matches('.').to_owned();
            let title = text[digits..].trim_start_matches([')', ' ', ':']).trim().to_owned();
            found.push((level, PrdSection { line: n + 1, number, title }));
        } else if let Some((number, title)) = parse_requirement(line) {
            found.push((9, PrdSection { line: n + 1, number, title }));
        }
    }
    let leaf = |i: usize| found.get(i + 1).is_none_or(|(next, _)| *next <= found[i].0);
    let talk = |title: &str| {
        let title = plain_words(title);
        TALK.iter().any(|word| title == *word || title.starts_with(&format!("{word} ")))
    };
    let wanted = |i: &usize| leaf(*i) && found[*i].0 > 1 && !talk(&found[*i].1.title);
    (0..found.len()).filter(wanted).map(|i| found[i].1.clone()).collect()
}

/// `- **FR-001**: text`, `R7: text`, `REQ-3 text`.
fn parse_requirement(line: &str) -> Option<(String, String)> {
    let text = line.trim_start().trim_start_matches(['-', '*', '+', '|', ' ']);
    let len = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'-').count();
    let id = &text[..len];
    let digits = id.trim_start_matches(|c: char| c.is_ascii_uppercase()).trim_start_matches('-');
    let letters = id.len() - digits.len();
    let numbered = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !numbered || letters == 0 || letters > 5 {
        return None;
    }
    let rest = text[len..].trim_start_matches(['*', ':', '.', '|', ' ', ')']).trim();
    (!rest.is_empty()).then(|| (id.to_owned(), rest.chars().take(80).collect()))
}

/// Sections that no epic with tasks names and no task mentions.
pub(super) fn uncovered_sections(
    prd: &str,
    epics: &[&EpicPart],
    entries: &[AssemblyEntry<'_>],
) -> Vec<PrdSection> {
    let with_tasks: BTreeSet<usize> = entries.iter().map(|entry| entry.epic).collect();
    let mut claims: Vec<String> =
        with_tasks.iter().flat_map(|at| epics[*at].prd_sections.iter().cloned()).collect();
    claims.extend(entries.iter().flat_map(|entry| entry.draft.covers.iter().cloned()));
    let plain_claims: BTreeSet<String> = claims.iter().map(|claim| plain_words(claim)).collect();
    let numbers: BTreeSet<&str> = claims.iter().filter_map(|claim| first_number(claim)).collect();
    let mut mentioned: BTreeSet<&str> = BTreeSet::new();
    for entry in entries {
        let draft = entry.draft;
        let texts =
            [&draft.title, &draft.description].into_iter().chain(&draft.acceptance_criteria);
        for text in texts {
            let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
            mentioned.extend(
                text.split(word).filter(|word| word.contains(|c: char| c.is_ascii_digit())),
            );
        }
    }
    let covered = |section: &PrdSection| {
        let title = plain_words(&section.title);
        let claimed = !title.is_empty()
            && plain_claims
                .iter()
                .any(|claim| *claim == title || claim.ends_with(&format!(" {title}")));
        let by_number = !section.number.is_empty()
            && (numbers.iter().any(|number| covers_number(number, &section.number))
                || mentioned.contains(section.number.as_str()));
        claimed || by_number
    };
    prd_sections(prd).into_iter().filter(|section| !covered(section)).collect()
}

pub(crate) fn first_number(claim: &str) -> Option<&str> {
    let claim = claim.trim().trim_start_matches(['§', '#', ' ']);
    let word = claim.split(|c: char| c.is_whitespace() || c == ':').next()?;
    let word = word.trim_end_matches('.');
    word.contains(|c: char| c.is_ascii_digit()).then_some(word)
}

/// `3` covers `3.1`; `3.1` does not cover `3.10`.
pub(crate) fn covers_number(claim: &str, number: &str) -> bool {
    number.strip_prefix(claim).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Pairs named for one path; more say nothing new.
const PAIRS_MAX: usize = 20;

/// Tasks that name the same file with no order between them.
pub(super) fn file_overlaps(
    plan: &Plan,
    joined: &[JoinedTask<'_>],
    barriers: &BTreeSet<(usize, usize)>,
    ids: &[TaskId],
) -> Vec<FileOverlap> {
    let mut by_path: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (i, task) in plan.tasks.iter().enumerate() {
        let mut named = find_paths(&format!("{}\n{}", task.title, task.description));
        named.extend(task.writes.iter().filter(|path| !path.contains('*')).cloned());
        named.sort();
        named.dedup();
        for path in named {
            by_path.entry(path).or_default().push(i);
        }
    }
    by_path.retain(|_, tasks| tasks.len() > 1);
    if by_path.is_empty() {
        return Vec::new();
    }
    let reach = TaskReachability::new(joined);
    let barred = |a: usize, b: usize| {
        barriers.contains(&(joined[a].epic, joined[b].epic))
            || barriers.contains(&(joined[b].epic, joined[a].epic))
    };
    let mut found = Vec::new();
    for (path, tasks) in by_path {
        let mut pairs = 0;
        'path: for (n, a) in tasks.iter().enumerate() {
            for b in &tasks[n + 1..] {
                if !reach.are_ordered(*a, *b) && !barred(*a, *b) {
                    found.push(FileOverlap {
                        a: ids[*a].clone(),
                        b: ids[*b].clone(),
                        path: path.clone(),
                    });
                    pairs += 1;
                    if pairs >= PAIRS_MAX {
                        break 'path;
                    }
                }
            }
        }
    }
    found
}

/// Which task is before which, one bit per pair.
struct TaskReachability {
    width: usize,
    bits: Vec<u64>,
}

impl TaskReachability {
    fn new(joined: &[JoinedTask<'_>]) -> Self {
        let nodes = joined.len();
        let width = nodes.div_ceil(64);
        let mut reach = Self { width, bits: vec![0; width * nodes] };
        let mut waiting: Vec<usize> = joined.iter().map(|task| task.edges.len()).collect();
        let mut back: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for (i, task) in joined.iter().enumerate() {
            task.edges.iter().for_each(|edge| back[edge.to].push(i));
        }
        let mut ready: Vec<usize> = (0..nodes).filter(|i| waiting[*i] == 0).collect();
        // Tasks of a circle never become ready; they count as unordered.
        while let Some(node) = ready.pop() {
            for next in back[node].clone() {
                reach.add_edge(next, node);
                waiting[next] -= 1;
                if waiting[next] == 0 {
                    ready.push(next);
                }
            }
        }
        reach
    }

    fn add_edge(&mut self, to: usize, from: usize) {
        let (to_row, from_row) = (to * self.width, from * self.width);
        for word in 0..self.width {
            let bits = self.bits[from_row + word];
            self.bits[to_row + word] |= bits;
        }
        self.bits[to_row + from / 64] |= 1 << (from % 64);
    }

    fn is_before(&self, later: usize, earlier: usize) -> bool {
        self.bits[later * self.width + earlier / 64] & (1 << (earlier % 64)) != 0
    }

    fn are_ordered(&self, a: usize, b: usize) -> bool {
        self.is_before(a, b) || self.is_before(b, a)
    }
}
