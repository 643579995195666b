//! From the epics' answers to one plan, without asking anybody: order, numbers, references,
//! duplicates, circles, coverage.
//!
//! Deterministic: the order in which answers came in changes nothing. Nothing is dropped without
//! being named in the [`AssemblyReport`]. Knows no agents and no files.

pub(crate) mod coverage;
mod duplicates;
mod order;
mod references;

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::id::{EpicId, TaskId};
use mainstem_core::plan::{Epic, Plan, Task, TaskEffort};

use crate::schema::{EpicBreakdown, EpicTasks, TaskDraft};
use crate::text_forms;

pub use coverage::PrdSection;
pub use order::DependencyCycle;
pub use references::UnresolvedReference;

/// Larger answers are no plan that anybody reviewed.
pub const TASKS_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, Default)]
pub struct AssemblyOptions<'a> {
    /// The number of the first task; 0 is taken for 1.
    pub start_id: usize,
    /// The PRD, to see which of its sections nothing covers.
    pub prd: Option<&'a str>,
    /// Take the proposed edges of circles out, instead of only naming them.
    pub drop_circles: bool,
}

/// A plan and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct AssembledPlan {
    /// The plan; it has circles if [`AssemblyReport::circles`] names some that were not dropped.
    pub plan: Plan,
    /// What was decided on the way.
    pub report: AssemblyReport,
}

/// What was decided on the way, for people to review.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AssemblyReport {
    /// The final id of each draft, merged ones included, by temporary id.
    pub ids: BTreeMap<String, TaskId>,
    /// References that became edges.
    pub resolved: usize,
    /// References that name no task; their edges are missing.
    pub unresolved: Vec<UnresolvedReference>,
    /// References that could mean several tasks; the first was taken.
    pub ambiguous: Vec<UnresolvedReference>,
    /// Duplicates that became one task.
    pub merged: Vec<MergedDuplicates>,
    /// Circles, with the edges whose removal opens them.
    pub circles: Vec<DependencyCycle>,
    /// Sections of the PRD that no task covers.
    pub uncovered: Vec<PrdSection>,
    /// Files that tasks would write at the same time.
    pub overlaps: Vec<FileOverlap>,
    /// Epics of the breakdown without any task.
    pub empty_epics: Vec<String>,
    /// Needs of epics that stay as barriers, because no task says anything more exact.
    pub barriers: Vec<(String, String)>,
}

/// Duplicates that became one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedDuplicates {
    /// The one that stays.
    pub into: TaskId,
    pub kept: String,
    /// The temporary ids that went into it.
    pub gone: Vec<String>,
}

/// Two tasks that name the same file with no order between them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileOverlap {
    pub a: TaskId,
    pub b: TaskId,
    pub path: String,
}

/// Why nothing can be gathered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// Epics that need each other.
    #[error("dependency cycle among epics: {}", .path.join(" → "))]
    EpicCircle {
        /// Epic ids; the first is also the last.
        path: Vec<String>,
        /// The need whose removal opens the circle: this epic, that one.
        drop: (String, String),
    },
    /// Two answers for one epic.
    #[error("two answers for the epic {0}")]
    TwoAnswers(String),
    /// An answer for an epic that is not in the breakdown.
    #[error("answer for the unknown epic {0}")]
    UnknownEpic(String),
    /// Two epics or two drafts of one name.
    #[error("duplicate id {0}")]
    TwiceUsed(String),
    #[error("too many tasks for one plan: {0}; the limit is {TASKS_MAX}")]
    TooMany(usize),
}

/// A draft on its way.
struct AssemblyEntry<'a> {
    /// Place of its epic in the order of epics.
    epic: usize,
    draft: &'a TaskDraft,
}

/// Makes one plan of the answers.
pub fn assemble_plan(
    breakdown: &EpicBreakdown,
    answers: &[EpicTasks],
    options: &AssemblyOptions<'_>,
) -> Result<AssembledPlan, AssemblyError> {
    let epics = order::order_epics(breakdown)?;
    let place: BTreeMap<&str, usize> =
        epics.iter().enumerate().map(|(i, epic)| (epic.id.as_str(), i)).collect();
    let entries = collect_entries(&place, answers)?;
    let mut report = AssemblyReport::default();
    let resolved = references::resolve_edges(&entries, &epics, &mut report);
    let mut barriers = epic_barriers(&entries, &epics, &place, &resolved);
    let groups = duplicates::group_duplicates(&entries, &resolved, &barriers);
    let mut joined = duplicates::join_duplicates(&entries, &resolved, &groups);
    let circles = order::find_cycles(&joined, &barriers, &epics);
    if options.drop_circles {
        order::drop_edges(&mut joined, &mut barriers, &circles);
    }
    let ids = number_tasks(&joined, options.start_id.max(1));
    name_report_tasks(&mut report, &joined, &entries, &ids, &circles, &epics);
    report.barriers =
        barriers.iter().map(|(a, b)| (epics[*a].id.clone(), epics[*b].id.clone())).collect();
    let plan = build_plan(&epics, &joined, &barriers, &ids);
    report.overlaps = coverage::file_overlaps(&plan, &joined, &barriers, &ids);
    let with_tasks: BTreeSet<usize> = entries.iter().map(|entry| entry.epic).collect();
    let empty = |(i, _): &(usize, &&crate::schema::EpicPart)| !with_tasks.contains(i);
    report.empty_epics =
        epics.iter().enumerate().filter(empty).map(|(_, epic)| epic.id.clone()).collect();
    if let Some(prd) = options.prd {
        report.uncovered = coverage::uncovered_sections(prd, &epics, &entries);
    }
    Ok(AssembledPlan { plan, report })
}

/// All drafts in the order of epics and, inside one, as they were written.
fn collect_entries<'a>(
    place: &BTreeMap<&str, usize>,
    answers: &'a [EpicTasks],
) -> Result<Vec<AssemblyEntry<'a>>, AssemblyError> {
    let mut sorted: Vec<(usize, &EpicTasks)> = Vec::with_capacity(answers.len());
    for answer in answers {
        let at = place.get(answer.epic_id.as_str());
        let at = at.ok_or_else(|| AssemblyError::UnknownEpic(answer.epic_id.clone()))?;
        sorted.push((*at, answer));
    }
    sorted.sort_by_key(|(at, _)| *at);
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(AssemblyError::TwoAnswers(pair[0].1.epic_id.clone()));
    }
    let total: usize = answers.iter().map(|answer| answer.tasks.len()).sum();
    if total > TASKS_MAX {
        return Err(AssemblyError::TooMany(total));
    }
    let mut seen = BTreeSet::new();
    let mut entries = Vec::with_capacity(total);
    for (epic, answer) in sorted {
        for draft in &answer.tasks {
            if !seen.insert(draft.temp_id.as_str()) {
                return Err(AssemblyError::TwiceUsed(draft.temp_id.clone()));
            }
            entries.push(AssemblyEntry { epic, draft });
        }
    }
    Ok(entries)
}

/// An epic's need of another one stays a barrier only where no task of it names a task of that one:
/// then the tasks' own edges say it better and let more run at once.
fn epic_barriers(
    entries: &[AssemblyEntry<'_>],
    epics: &[&crate::schema::EpicPart],
    place: &BTreeMap<&str, usize>,
    edges: &[Vec<references::ResolvedEdge>],
) -> BTreeSet<(usize, usize)> {
    let exact: BTreeSet<(usize, usize)> = edges
        .iter()
        .enumerate()
        .flat_map(|(from, edges)| edges.iter().map(move |edge| (from, edge.to)))
        .map(|(from, to)| (entries[from].epic, entries[to].epic))
        .collect();
    let wanted = epics.iter().enumerate().flat_map(|(i, epic)| {
        epic.dependencies_on_epics
            .iter()
            .filter_map(move |name| Some((i, *place.get(name.as_str())?)))
    });
    wanted.filter(|pair| !exact.contains(pair)).collect()
}

/// `T-001` …, dense, four digits from a thousand on.
fn number_tasks(joined: &[duplicates::JoinedTask<'_>], start: usize) -> Vec<TaskId> {
    let last = start + joined.len().saturating_sub(1);
    let width = last.to_string().len().max(3);
    (0..joined.len()).map(|i| TaskId::new(format!("T-{:0width$}", start + i))).collect()
}

fn name_report_tasks(
    report: &mut AssemblyReport,
    joined: &[duplicates::JoinedTask<'_>],
    entries: &[AssemblyEntry<'_>],
    ids: &[TaskId],
    circles: &[order::IndexedCycle],
    epics: &[&crate::schema::EpicPart],
) {
    for (task, id) in joined.iter().zip(ids) {
        for member in &task.members {
            report.ids.insert(entries[*member].draft.temp_id.clone(), id.clone());
        }
        if task.members.len() > 1 {
            let temp = |at: &usize| entries[*at].draft.temp_id.clone();
            report.merged.push(MergedDuplicates {
                into: id.clone(),
                kept: temp(&task.members[0]),
                gone: task.members[1..].iter().map(temp).collect(),
            });
        }
    }
    report.circles = circles.iter().map(|knot| knot.with_names(ids, epics)).collect();
}

fn build_plan(
    epics: &[&crate::schema::EpicPart],
    joined: &[duplicates::JoinedTask<'_>],
    barriers: &BTreeSet<(usize, usize)>,
    ids: &[TaskId],
) -> Plan {
    let used: BTreeSet<usize> = joined.iter().map(|task| task.epic).collect();
    let epic = |(i, part): (usize, &&crate::schema::EpicPart)| Epic {
        id: EpicId::new(part.id.as_str()),
        title: text_forms::collapse_to_line(&part.title),
        needs: barriers
            .range((i, 0)..(i + 1, 0))
            .filter(|(_, to)| used.contains(to))
            .map(|(_, to)| EpicId::new(epics[*to].id.as_str()))
            .collect(),
    };
    let task = |(task, id): (&duplicates::JoinedTask<'_>, &TaskId)| Task {
        id: id.clone(),
        epic: Some(EpicId::new(epics[task.epic].id.as_str())),
        title: text_forms::collapse_to_line(&task.draft.title),
        description: task.description.clone(),
        acceptance: task.acceptance.clone(),
        needs: task.edges.iter().map(|edge| ids[edge.to].clone()).collect(),
        writes: task.writes.clone(),
        effort: task.effort,
        priority: task.priority,
        ..Task::empty()
    };
    let epics = epics.iter().enumerate().filter(|(i, _)| used.contains(i)).map(epic).collect();
    Plan { title: String::new(), epics, tasks: joined.iter().zip(ids).map(task).collect() }
}

/// The plan's effort for a draft's word.
fn parse_effort(word: &str) -> TaskEffort {
    match word {
        "small" => TaskEffort::Small,
        "large" => TaskEffort::Large,
        _ => TaskEffort::Medium,
    }
}

/// The plan's priority for a draft's word.
fn parse_priority(word: &str) -> i64 {
    match word {
        "must-have" => 10,
        "nice-to-have" => -10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
