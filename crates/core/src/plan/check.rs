//! Everything that is wrong with a plan as a whole, in one report.
//!
//! Knows ids, edges, globs and the names of agents; nothing of files or of running the plan.
//! Every loop is linear in the plan's size, or counted.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::document::{self, FaultCollector, clip_text};
use super::read::{DocumentFormat, EpicSpans, PlanSpans, SourceSpan, TaskSpans, read_plan_lenient};
use super::{Plan, Task};
use crate::config;
use crate::diagnostic::{Diagnostic, LineIndex, nearest_word};
use crate::glob::check_glob;
use crate::graph::{Adjacency, EDGES_MAX, LookupMap, count_epic_edges, count_task_edges};
use crate::id::check_id;

/// More tasks than any machine could work off; also keeps indices and memory small.
pub const TASKS_MAX: usize = 1_000_000;

/// Circles in one knot are searched this many times over; each time at least one is found.
const CYCLE_ROUNDS: usize = 20;

/// A circle longer than this is shown by its start and end.
const CYCLE_SHOWN: usize = 12;

/// Comparisons spent on guessing what a wrong name was meant to be.
const GUESSES: usize = 500_000;

/// The code of a fault that the settings could mend, not the plan.
const AGENT_FAULT: &str = "plan::agent";

/// What the settings know and a plan may name.
#[derive(Debug, Clone, Copy)]
pub struct PlanCheckContext<'a> {
    /// Agents by name, the built-in ones included.
    pub agents: &'a BTreeMap<String, config::AgentSettings>,
    pub default_agent: Option<&'a str>,
}

/// Reads and checks a plan: either it is fit to run, or here is everything that is wrong with it.
pub fn load_plan(
    source: &[u8],
    format: DocumentFormat,
    known: &PlanCheckContext<'_>,
) -> Result<Plan, Vec<Diagnostic>> {
    let text = document::decode_text(source)?;
    let (plan, places, mut faults) = read_plan_lenient(text, format);
    faults.append_faults(find_faults(&plan, &places, text, known));
    if faults.is_empty() { Ok(plan) } else { Err(faults.into_diagnostics(text)) }
}

/// Reads a plan in order to look at it: that an agent is not configured here is no reason not to draw
/// it, so such faults come beside the plan. Any other fault is an error with all the rest.
pub fn load_plan_for_display(
    source: &[u8],
    format: DocumentFormat,
    known: &PlanCheckContext<'_>,
) -> Result<(Plan, Vec<Diagnostic>), Vec<Diagnostic>> {
    let text = document::decode_text(source)?;
    let (plan, places, mut faults) = read_plan_lenient(text, format);
    faults.append_faults(find_faults(&plan, &places, text, known));
    let all = faults.into_diagnostics(text);
    if all.iter().all(|fault| fault.code == AGENT_FAULT) { Ok((plan, all)) } else { Err(all) }
}

/// Checks a plan that was read without faults. An empty answer means that it is fit to run.
///
/// For a plan that came from elsewhere than a text, use [`PlanSpans::without_source`].
pub fn check_plan(
    plan: &Plan,
    places: &PlanSpans,
    source: &str,
    known: &PlanCheckContext<'_>,
) -> Vec<Diagnostic> {
    find_faults(plan, places, source, known).into_diagnostics(source)
}

fn find_faults(
    plan: &Plan,
    places: &PlanSpans,
    source: &str,
    known: &PlanCheckContext<'_>,
) -> FaultCollector {
    let mut check = PlanChecker {
        plan,
        places,
        known,
        source,
        lines: OnceCell::new(),
        tasks: LookupMap::with_capacity(plan.tasks.len()),
        epics: LookupMap::with_capacity(plan.epics.len()),
        links: Vec::new(),
        guesses: GUESSES,
        faults: FaultCollector::default(),
    };
    if plan.tasks.len() > TASKS_MAX {
        let message = format!("the plan has more than {TASKS_MAX} tasks");
        check.faults.add_fault_with_help(
            "plan::size",
            0..0,
            message,
            "split the plan into several plans",
        );
        return check.faults;
    }
    if plan.tasks.is_empty() && !places.incomplete {
        let help = "add at least one `[[task]]` with an id";
        check.faults.add_fault_with_help("plan::empty", 0..0, "the plan has no tasks", help);
    }
    check.check_ids();
    check.check_edges();
    check.check_globs();
    check.check_agents();
    check.check_size();
    check.check_cycles();
    check.faults
}

struct PlanChecker<'a> {
    plan: &'a Plan,
    places: &'a PlanSpans,
    known: &'a PlanCheckContext<'a>,
    source: &'a str,
    lines: OnceCell<LineIndex<'a>>,
    /// First task of each id.
    tasks: LookupMap<&'a str, u32>,
    epics: LookupMap<&'a str, u32>,
    /// Edges that tasks write themselves, as far as both ends are there.
    links: Vec<(u32, u32)>,
    guesses: usize,
    faults: FaultCollector,
}

impl<'a> PlanChecker<'a> {
    fn line_of_span(&self, span: SourceSpan) -> usize {
        let lines = self.lines.get_or_init(|| LineIndex::new(self.source));
        lines.line_and_column(Range::from(span).start).0
    }

    fn check_ids(&mut self) {
        let (plan, places) = (self.plan, self.places);
        let tasks = plan.tasks.iter().map(|task| task.id.as_str());
        let spans = places.tasks.iter().map(|place| place.id);
        self.tasks = self.check_unique_ids("task", tasks.zip(spans));
        let epics = plan.epics.iter().map(|epic| epic.id.as_str());
        let spans = places.epics.iter().map(|place| place.id);
        self.epics = self.check_unique_ids("epic", epics.zip(spans));
    }

    /// Checks ids one by one and against each other; answers the first place of each.
    fn check_unique_ids(
        &mut self,
        what: &str,
        ids: impl Iterator<Item = (&'a str, SourceSpan)>,
    ) -> LookupMap<&'a str, u32> {
        let mut sorted: Vec<(&'a str, u32, SourceSpan)> =
            ids.zip(0..).map(|((id, span), i)| (id, i, span)).collect();
        for (id, _, span) in &sorted {
            if let Err(error) = check_id(id) {
                let message = format!("invalid id `{}`: {error}", clip_text(id));
                let help = "ids are used as branch and folder names; rename this one";
                self.faults.add_fault_with_help("plan::bad_id", (*span).into(), message, help);
            }
        }
        let first = sorted.iter().rev().map(|(id, i, _)| (*id, *i)).collect();
        // Stable, so the first of each group is the first in the plan.
        sorted.sort_by(|(a, ..), (b, ..)| {
            let lower = |id: &'a str| id.bytes().map(|byte| byte.to_ascii_lowercase());
            lower(a).cmp(lower(b))
        });
        for group in sorted.chunk_by(|(a, ..), (b, ..)| a.eq_ignore_ascii_case(b)) {
            let (other, _, place) = group[0];
            for (id, _, span) in &group[1..] {
                self.report_duplicate_id(what, id, *span, other, place);
            }
        }
        first
    }

    fn report_duplicate_id(
        &mut self,
        what: &str,
        id: &str,
        span: SourceSpan,
        other: &str,
        place: SourceSpan,
    ) {
        let line = self.line_of_span(place);
        let (a, b) = (clip_text(id), clip_text(other));
        let (message, help) = if id == other {
            (
                format!("duplicate {what} id `{a}`"),
                format!("`{a}` is first used on line {line}; rename one of them"),
            )
        } else {
            (
                format!("the {what} ids `{a}` and `{b}` differ only in case"),
                format!(
                    "some file systems ignore case; rename one of them (`{b}` is on line {line})"
                ),
            )
        };
        self.faults.add_fault_with_help("plan::duplicate_id", span.into(), message, help);
    }

    fn check_edges(&mut self) {
        let (plan, places) = (self.plan, self.places);
        self.links.reserve_exact(usize::try_from(count_task_edges(plan)).unwrap_or(0));
        for ((task, place), i) in plan.tasks.iter().zip(&places.tasks).zip(0..) {
            for (name, span) in task.needs.iter().zip(&place.needs) {
                self.add_edge("needs", i, name.as_str(), *span);
            }
            for (name, span) in task.after.iter().zip(&place.after) {
                self.add_edge("after", i, name.as_str(), *span);
            }
            if let (Some(epic), Some(span)) = (&task.epic, place.epic)
                && !self.epics.contains_key(epic.as_str())
            {
                self.report_dangling_edge("epic", "epic", epic.as_str(), span);
            }
        }
        for named in &places.unowned {
            if !self.tasks.contains_key(named.name.as_str()) {
                self.report_dangling_edge(named.key, "task", named.name.as_str(), named.span);
            }
        }
        for (epic, place) in plan.epics.iter().zip(&places.epics) {
            for (name, span) in epic.needs.iter().zip(&place.needs) {
                if name == &epic.id {
                    self.report_self_edge("needs", name.as_str(), *span);
                } else if !self.epics.contains_key(name.as_str()) {
                    self.report_dangling_edge("needs", "epic", name.as_str(), *span);
                }
            }
        }
    }

    fn add_edge(&mut self, key: &str, from: u32, name: &str, span: SourceSpan) {
        if name == self.plan.tasks[from as usize].id.as_str() {
            self.report_self_edge(key, name, span);
        } else if let Some(to) = self.tasks.get(name) {
            self.links.push((from, *to));
        } else if !self.places.unreadable_ids.iter().any(|id| self.is_name_at_span(*id, name)) {
            self.report_dangling_edge(key, "task", name, span);
        }
    }

    fn is_name_at_span(&self, span: SourceSpan, name: &str) -> bool {
        self.source.get(Range::from(span)).is_some_and(|text| text.trim() == name)
    }

    fn report_self_edge(&mut self, key: &str, name: &str, span: SourceSpan) {
        let message = format!("`{}` depends on itself in `{key}`", clip_text(name));
        self.faults.add_fault_with_help(
            "plan::self_dependency",
            span.into(),
            message,
            "remove the entry",
        );
    }

    fn report_dangling_edge(&mut self, key: &str, what: &str, name: &str, span: SourceSpan) {
        let message = format!("unknown {what} `{}` in `{key}`", clip_text(name));
        let known = if what == "task" { &self.tasks } else { &self.epics };
        let other = if what == "task" { &self.epics } else { &self.tasks };
        let guess = if known.len() <= self.guesses {
            self.guesses -= known.len();
            match what {
                "task" => nearest_word(name, self.plan.tasks.iter().map(|task| task.id.as_str())),
                _ => nearest_word(name, self.plan.epics.iter().map(|epic| epic.id.as_str())),
            }
        } else {
            None
        };
        let help = if other.contains_key(name) {
            let kind = if what == "task" { "an epic" } else { "a task" };
            format!("`{}` is {kind}; use {what} ids here", clip_text(name))
        } else {
            match guess {
                Some(near) => format!("did you mean `{}`?", clip_text(near)),
                None => format!("add the {what} or remove the name"),
            }
        };
        self.faults.add_fault_with_help("plan::dangling", span.into(), message, help);
    }

    fn check_globs(&mut self) {
        let (plan, places) = (self.plan, self.places);
        for (task, place) in plan.tasks.iter().zip(&places.tasks) {
            for (glob, span) in task.writes.iter().zip(&place.writes) {
                if let Err(why) = check_glob(glob) {
                    let (what, help) = why.split_once("; ").unwrap_or((&why, "fix the glob"));
                    let message = format!("`{}`: {what}", clip_text(glob));
                    self.faults.add_fault_with_help("plan::glob", (*span).into(), message, help);
                }
            }
        }
    }

    fn check_agents(&mut self) {
        let (plan, places) = (self.plan, self.places);
        let mut default_reported = false;
        for (task, place) in plan.tasks.iter().zip(&places.tasks) {
            let Some(name) = task.agent.as_deref().or(self.known.default_agent) else {
                // An agent that could not be read has been reported already.
                if place.agent.is_none() && place.work.is_none() {
                    self.report_missing_agent(task, place);
                }
                continue;
            };
            if task.agent.is_none() && place.agent.is_some() {
                continue;
            }
            let span = place.agent.unwrap_or(place.id);
            match self.known.agents.get(name) {
                Some(agent) => self.check_agent_fits(task, place, name, agent),
                None if task.agent.is_some() => self.report_unknown_agent(name, span),
                None if !default_reported => {
                    default_reported = true;
                    let message = format!("the default agent `{}` is not defined", clip_text(name));
                    let help =
                        format!("{}, or change `[run] agent`", self.agent_definition_help(name));
                    self.faults.add_fault_with_help(AGENT_FAULT, span.into(), message, help);
                }
                None => {}
            }
        }
    }

    fn agent_definition_help(&self, name: &str) -> String {
        match nearest_word(name, self.known.agents.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("define `[agents.{}]` in mainstem.toml", clip_text(name)),
        }
    }

    fn report_unknown_agent(&mut self, name: &str, span: SourceSpan) {
        let message = format!("unknown agent `{}`", clip_text(name));
        let help = self.agent_definition_help(name);
        self.faults.add_fault_with_help(AGENT_FAULT, span.into(), message, help);
    }

    fn report_missing_agent(&mut self, task: &Task, place: &TaskSpans) {
        let message = format!("no agent for the task `{}`", clip_text(task.id.as_str()));
        let help = "add `agent` or `run` to the task, or set `[run] agent` for all tasks";
        self.faults.add_fault_with_help(AGENT_FAULT, place.id.into(), message, help);
    }

    fn check_agent_fits(
        &mut self,
        task: &Task,
        place: &TaskSpans,
        name: &str,
        agent: &config::AgentSettings,
    ) {
        let kind = agent.kind.as_str();
        let span = place.agent.or(place.work).unwrap_or(place.id);
        let (message, help) = if task.run.is_some() && kind != "command" {
            (
                format!("`run` needs an agent of kind `command`, not `{kind}`"),
                "remove `agent` or `run`".to_owned(),
            )
        } else if !task.script.is_empty() && kind != "script" {
            (
                format!("`script` needs an agent of kind `script`, not `{kind}`"),
                "remove `agent` or `script`".to_owned(),
            )
        } else if kind == "script" && task.script.is_empty() && place.work.is_none() {
            (
                format!("missing `script` in the task `{}`", clip_text(task.id.as_str())),
                "add `script` steps or use another agent".to_owned(),
            )
        } else if kind == "acp" && agent.command.is_empty() {
            (
                format!("missing ACP command of the agent `{}`", clip_text(name)),
                format!(
                    "add `command` to `[agents.{}]`, such as [\"gemini\", \"--acp\"]",
                    clip_text(name)
                ),
            )
        } else if kind == "command"
            && agent.command.is_empty()
            && agent.preset.is_none()
            && task.run.is_none()
            && place.work.is_none()
        {
            (
                format!("neither the agent `{}` nor the task has a command", clip_text(name)),
                format!("add `run` to the task or `command` to `[agents.{}]`", clip_text(name)),
            )
        } else {
            return;
        };
        self.faults.add_fault_with_help(AGENT_FAULT, span.into(), message, help);
    }

    fn check_size(&mut self) {
        let edges = count_epic_edges(self.plan).saturating_add(count_task_edges(self.plan));
        if edges > EDGES_MAX {
            let message = format!("the plan has {edges} dependencies; the limit is {EDGES_MAX}");
            let help = "use fewer dependencies between epics: every task of an epic depends on every task of the epics in `needs`";
            self.faults.add_fault_with_help("plan::edges", 0..0, message, help);
        }
    }

    fn check_cycles(&mut self) {
        let epic_edges = self.check_epic_cycles();
        let tasks = self.plan.tasks.len() as u32;
        // An epic is a joint that needs its tasks, so that epics do not multiply edges here.
        let mut edges = std::mem::take(&mut self.links);
        for (task, from) in self.plan.tasks.iter().zip(0..) {
            let epic = task.epic.as_ref().and_then(|epic| self.epics.get(epic.as_str()));
            if let Some(epic) = epic {
                edges.extend(epic_edges.targets_of(*epic).iter().map(|to| (from, tasks + to)));
                edges.push((tasks + epic, from));
            }
        }
        let nodes = self.plan.tasks.len() + self.plan.epics.len();
        for cycle in Adjacency::new(nodes, &edges).find_cycles(CYCLE_ROUNDS) {
            self.report_task_cycle(cycle, tasks);
        }
    }

    /// Reports circles among epics; answers the needs of epics without those in a circle.
    fn check_epic_cycles(&mut self) -> Adjacency {
        let mut edges: Vec<(u32, u32)> = Vec::new();
        for (i, epic) in self.plan.epics.iter().enumerate() {
            let needs = epic.needs.iter().filter_map(|name| self.epics.get(name.as_str()));
            edges.extend(needs.filter(|to| **to != i as u32).map(|to| (i as u32, *to)));
        }
        let nodes = self.plan.epics.len();
        let all = Adjacency::new(nodes, &edges);
        let cycles = all.find_cycles(CYCLE_ROUNDS);
        if cycles.is_empty() {
            return all;
        }
        for cycle in &cycles {
            let names: Vec<_> =
                cycle.iter().map(|i| self.plan.epics[*i as usize].id.as_str()).collect();
            let place: &EpicSpans = &self.places.epics[cycle[0] as usize];
            let message = format!("dependency cycle among epics: {}", format_cycle(&names));
            let help = "remove one of these dependencies";
            self.faults.add_fault_with_help("plan::cycle", place.id.into(), message, help);
        }
        // What hangs on a circle of epics would only be reported again, task by task.
        Adjacency::new(nodes, &[])
    }

    fn report_task_cycle(&mut self, mut cycle: Vec<u32>, tasks: u32) {
        // A joint's predecessor and successor are tasks, so every circle has a task to begin with.
        let lowest = (0..cycle.len()).filter(|i| cycle[*i] < tasks).min_by_key(|i| cycle[*i]);
        cycle.rotate_left(lowest.unwrap_or(0));
        let names: Vec<_> = cycle
            .iter()
            .filter(|node| **node < tasks)
            .map(|node| self.plan.tasks[*node as usize].id.as_str())
            .collect();
        let mut through: Vec<_> = cycle
            .iter()
            .filter(|node| **node >= tasks)
            .map(|node| {
                format!("`{}`", clip_text(self.plan.epics[(node - tasks) as usize].id.as_str()))
            })
            .collect();
        through.sort();
        through.dedup();
        let span = self.cycle_span(&cycle, tasks);
        let message = format!("dependency cycle: {}", format_cycle(&names));
        let help = if through.is_empty() {
            "remove one of these dependencies from `needs` or `after`".to_owned()
        } else {
            let epics = through.into_iter().take(CYCLE_SHOWN).collect::<Vec<_>>().join(", ");
            format!("remove one of these dependencies; some come from `needs` of the epic {epics}")
        };
        self.faults.add_fault_with_help("plan::cycle", span, message, help);
    }

    /// The first task's edge into the circle, or its id if the edge comes from its epic.
    fn cycle_span(&self, cycle: &[u32], tasks: u32) -> Range<usize> {
        let task = &self.plan.tasks[cycle[0] as usize];
        let place = &self.places.tasks[cycle[0] as usize];
        let next = cycle.get(1).filter(|next| **next < tasks);
        let Some(next) = next.map(|next| &self.plan.tasks[*next as usize].id) else {
            return place.id.into();
        };
        let needs = task.needs.iter().zip(&place.needs);
        let after = task.after.iter().zip(&place.after);
        let edge = needs.chain(after).find(|(name, _)| *name == next);
        edge.map_or(place.id, |(_, span)| *span).into()
    }
}

/// Writes a cycle as `T-1 → T-2 → T-1`.
fn format_cycle(names: &[&str]) -> String {
    let mut shown: Vec<String> = if names.len() <= CYCLE_SHOWN {
        names.iter().map(|name| clip_text(name)).collect()
    } else {
        let (head, tail) = (CYCLE_SHOWN / 2, names.len() - CYCLE_SHOWN / 2);
        let head = names[..head].iter().map(|name| clip_text(name));
        let gap = format!("… {} more …", tail - CYCLE_SHOWN / 2);
        head.chain([gap]).chain(names[tail..].iter().map(|name| clip_text(name))).collect()
    };
    shown.extend(names.first().map(|name| clip_text(name)));
    shown.join(" → ")
}

#[cfg(test)]
mod tests;
