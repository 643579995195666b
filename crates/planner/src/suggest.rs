//! Edges that nobody wrote down but the texts hint at: suggestions with reasons, never more.
//!
//! Three signs: a text that names another task, a file that one task makes and another uses, and the
//! usual order of layers (schema, API, page, tests) among tasks about the same thing. Nothing is
//! suggested between tasks that already have an order, and all suggestions together make no circle.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::graph::Graph;
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::plan::{Plan, Task};

use crate::text_forms::{bare_title, find_paths, is_generic_title, plain_words};

/// Larger plans cost too much to compare every text with every other.
pub const TASKS_MAX: usize = 5_000;

/// An edge that may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeSuggestion {
    /// The task that would wait.
    pub task: TaskId,
    /// What it would wait for.
    pub needs: TaskId,
    pub reason: String,
}

/// Words before the name of something that must come first.
const PHRASES: [&str; 8] = [
    "depends on",
    "after",
    "requires",
    "once",
    "blocked by",
    "builds on",
    "following",
    "prerequisite",
];

/// Words of each layer, from the bottom up.
const LAYERS: [(&str, &[&str]); 5] = [
    (
        "schema",
        &["schema", "migration", "migrations", "table", "tables", "database", "model", "models"],
    ),
    ("API", &["api", "endpoint", "endpoints", "route", "routes", "handler", "service", "backend"]),
    ("page", &["ui", "page", "pages", "form", "component", "frontend", "screen", "view", "dialog"]),
    ("tests", &["test", "tests", "testing", "e2e"]),
    ("docs", &["docs", "documentation", "readme", "guide", "changelog"]),
];

/// Words that say that a file is made.
const MAKES: [&str; 7] = ["create", "add", "introduce", "write", "new", "define", "scaffold"];

/// Suggestions for a plan; none if its graph cannot be built or it is very large.
pub fn suggest_edges(plan: &Plan) -> Vec<EdgeSuggestion> {
    let Ok(graph) = Graph::new(plan) else { return Vec::new() };
    if plan.tasks.len() > TASKS_MAX {
        return Vec::new();
    }
    let mut finder = EdgeFinder {
        plan,
        before: graph
            .tasks()
            .map(|task| {
                graph.needs(task).chain(graph.soft_needs(task)).map(TaskIx::index).collect()
            })
            .collect(),
        found: Vec::new(),
    };
    finder.find_by_text();
    finder.find_by_path();
    finder.find_by_layer();
    finder.found
}

/// The plan with every suggestion as an edge.
pub fn accept_suggestions(plan: &mut Plan, suggestions: &[EdgeSuggestion]) {
    let index: BTreeMap<TaskId, usize> =
        plan.tasks.iter().enumerate().map(|(i, task)| (task.id.clone(), i)).collect();
    for suggestion in suggestions {
        if let Some(at) = index.get(&suggestion.task)
            && !plan.tasks[*at].needs.contains(&suggestion.needs)
        {
            plan.tasks[*at].needs.push(suggestion.needs.clone());
        }
    }
}

struct EdgeFinder<'a> {
    plan: &'a Plan,
    /// What comes before each task, suggestions included.
    before: Vec<Vec<usize>>,
    found: Vec<EdgeSuggestion>,
}

impl EdgeFinder<'_> {
    /// Is `earlier` before `later`, by any way?
    fn reaches(&self, later: usize, earlier: usize) -> bool {
        let mut seen = BTreeSet::from([later]);
        let mut todo = vec![later];
        while let Some(at) = todo.pop() {
            if at == earlier {
                return true;
            }
            todo.extend(self.before[at].iter().copied().filter(|to| seen.insert(*to)));
        }
        false
    }

    fn add_edge(&mut self, task: usize, needs: usize, reason: String) {
        if task == needs || self.reaches(task, needs) || self.reaches(needs, task) {
            return;
        }
        self.before[task].push(needs);
        let id = |at: usize| self.plan.tasks[at].id.clone();
        self.found.push(EdgeSuggestion { task: id(task), needs: id(needs), reason });
    }

    /// "after T-3", "once the cart table is there".
    fn find_by_text(&mut self) {
        let plan = self.plan;
        let ids: BTreeMap<String, usize> = plan
            .tasks
            .iter()
            .enumerate()
            .map(|(i, task)| (task.id.as_str().to_lowercase(), i))
            .collect();
        let mut titles: BTreeMap<String, usize> = BTreeMap::new();
        for (i, task) in plan.tasks.iter().enumerate() {
            let title = bare_title(&task.title);
            let telling = title.split(' ').count() >= 2 && !is_generic_title(&title);
            if telling {
                titles.entry(title).or_insert(i);
            }
        }
        for (i, task) in plan.tasks.iter().enumerate() {
            let text = task.description.to_lowercase();
            for phrase in PHRASES {
                for (at, _) in text.match_indices(phrase) {
                    let inside = text[..at].ends_with(|c: char| c.is_alphanumeric());
                    let rest = &text[at + phrase.len()..];
                    let clause = rest.split(['.', ';', '\n']).next().unwrap_or_default();
                    if inside || !rest.starts_with([' ', ':']) {
                        continue;
                    }
                    let word = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
                    for word in clause.split(word).take(12) {
                        if let Some(other) = ids.get(word.trim_end_matches('.')) {
                            self.add_edge(i, *other, format!("the text says \"{phrase} {word}\""));
                        }
                    }
                    let clause = plain_words(clause);
                    let padded = format!(" {clause} ");
                    // Titles in a clause: looked up by each run of words, not one by one.
                    for other in mentioned_titles(&padded, &titles) {
                        let title = &plan.tasks[other].title;
                        self.add_edge(i, other, format!("the text says \"{phrase} … {title}\""));
                    }
                }
            }
        }
    }

    /// One task makes a file, others use it.
    fn find_by_path(&mut self) {
        let plan = self.plan;
        let mut makers: BTreeMap<String, usize> = BTreeMap::new();
        let named: Vec<Vec<String>> = plan
            .tasks
            .iter()
            .map(|task| find_paths(&format!("{}\n{}", task.title, task.description)))
            .collect();
        for (i, task) in plan.tasks.iter().enumerate() {
            for path in named[i].iter().filter(|path| makes_path(task, path)) {
                makers.entry(path.clone()).or_insert(i);
            }
        }
        for (i, task) in plan.tasks.iter().enumerate() {
            for path in named[i].iter().filter(|path| !makes_path(task, path)) {
                if let Some(maker) = makers.get(path) {
                    self.add_edge(
                        i,
                        *maker,
                        format!("uses {path}, which {} creates", plan.tasks[*maker].id),
                    );
                }
            }
        }
    }

    /// The page of a thing after its API, the API after its table, among tasks of one epic.
    fn find_by_layer(&mut self) {
        let plan = self.plan;
        /// Epic and word; tasks with their layers.
        type LayeredTasks<'a> = BTreeMap<(Option<&'a str>, String), Vec<(usize, usize)>>;
        let mut about = LayeredTasks::new();
        for (i, task) in plan.tasks.iter().enumerate() {
            let title = bare_title(&task.title);
            let words: BTreeSet<&str> = title.split(' ').collect();
            let layer =
                LAYERS.iter().rposition(|(_, names)| names.iter().any(|name| words.contains(name)));
            let Some(layer) = layer else { continue };
            let epic = task.epic.as_ref().map(|epic| epic.as_str());
            for word in words.iter().filter(|word| word.len() > 3 && !is_generic_title(word)) {
                let named = LAYERS.iter().any(|(_, names)| names.contains(word));
                if !named {
                    about.entry((epic, (*word).to_owned())).or_default().push((layer, i));
                }
            }
        }
        for ((_, word), mut tasks) in about {
            tasks.sort_unstable();
            for (layer, i) in tasks.clone() {
                let below = tasks.iter().rfind(|(other, _)| *other < layer);
                if let Some((lower, other)) = below {
                    let reason = format!(
                        "both are about \"{word}\": {} usually comes after {}",
                        LAYERS[layer].0, LAYERS[*lower].0
                    );
                    self.add_edge(i, *other, reason);
                }
            }
        }
    }
}

/// Tasks whose bare title is a run of words in the text.
fn mentioned_titles(padded: &str, titles: &BTreeMap<String, usize>) -> Vec<usize> {
    let words: Vec<&str> = padded.split_whitespace().take(20).collect();
    let mut found = Vec::new();
    for start in 0..words.len() {
        for end in start + 2..=words.len().min(start + 8) {
            found.extend(titles.get(&words[start..end].join(" ")));
        }
    }
    found
}

/// Does the text say that this path is made: a verb of making in the words before it?
fn makes_path(task: &Task, path: &str) -> bool {
    let text = format!("{}\n{}", task.title, task.description).to_lowercase();
    let path = path.to_lowercase();
    text.match_indices(&path).any(|(at, _)| {
        let head = text[..at].rsplit(['.', ';', '\n']).next().unwrap_or_default();
        head.split(|c: char| !c.is_alphanumeric()).any(|word| MAKES.contains(&word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tasks: &[(&str, &str, &str)]) -> Plan {
        let task = |(id, title, description): &(&str, &str, &str)| Task {
            id: TaskId::new(*id),
            title: (*title).to_owned(),
            description: (*description).to_owned(),
            ..Task::empty()
        };
        Plan { tasks: tasks.iter().map(task).collect(), ..Plan::default() }
    }

    fn pairs(plan: &Plan) -> Vec<(String, String)> {
        suggest_edges(plan).iter().map(|s| (s.task.to_string(), s.needs.to_string())).collect()
    }

    fn pair(a: &str, b: &str) -> (String, String) {
        (a.to_owned(), b.to_owned())
    }

    #[test]
    fn texts_paths_and_layers_hint_at_edges_with_a_reason() {
        let plan = plan(&[
            ("T-1", "Create the invoice table", "Create src/db/invoice.sql"),
            ("T-2", "Invoice API", "Serve it; reads src/db/invoice.sql."),
            ("T-3", "Mailer", "Send a mail once T-2 is complete."),
            ("T-4", "Archive", "Runs after the invoice table is there."),
            ("T-5", "Invoice page", "Show it."),
        ]);
        let found = suggest_edges(&plan);
        let want = [pair("T-3", "T-2"), pair("T-4", "T-1"), pair("T-2", "T-1"), pair("T-5", "T-2")];
        assert_eq!(pairs(&plan), want);
        assert!(found[2].reason.contains("src/db/invoice.sql"), "{:?}", found[2]);
        assert!(found[3].reason.contains("page usually comes after API"), "{:?}", found[3]);
    }

    #[test]
    fn nothing_is_suggested_where_there_is_an_order_and_never_a_circle() {
        let mut ordered = plan(&[("T-1", "A", ""), ("T-2", "B", "after T-1")]);
        ordered.tasks[1].needs = vec![TaskId::new("T-1")];
        assert_eq!(pairs(&ordered), []);
        let knot = plan(&[
            ("T-1", "A", "after T-2"),
            ("T-2", "B", "after T-3"),
            ("T-3", "C", "after T-1"),
        ]);
        assert_eq!(pairs(&knot).len(), 2);
        let mut accepted = knot.clone();
        accept_suggestions(&mut accepted, &suggest_edges(&knot));
        assert!(Graph::new(&accepted).is_ok());
        assert_eq!(suggest_edges(&accepted), []);
    }
}
