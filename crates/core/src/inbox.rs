//! What needs a person, as one list: every face shows these items and counts them the same way. Derived from the
//! machine, never read back by it. Proposals of agents are not part of it.

use std::collections::BTreeSet;

use crate::hold::HoldReason;
use crate::id::{TaskId, TaskIx, Time};
use crate::machine::{Machine, OpenQuestion};
use crate::phase::Phase;
use crate::schedule::StartObstacle;

/// What an item is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboxKind {
    /// The target branch fails its own gates: nothing lands.
    Target,
    Question,
    /// Work asks for an approval, or its review for a decision.
    Approval,
    /// Work changes files that decide about runs.
    Guarded,
    /// Landed work changed what decides about runs; that is not in force yet.
    Config,
    /// Work does not merge with what landed.
    Conflict,
    /// The user's checkout is in the way of work.
    Checkout,
    /// No further attempt is made by itself.
    Failure,
    /// A hard budget is used up.
    Budget,
    /// A provider's quota is used up, and only a person says when to go on.
    Provider,
}

impl InboxKind {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Question => "question",
            Self::Approval => "approval",
            Self::Guarded => "guarded",
            Self::Config => "config",
            Self::Conflict => "conflict",
            Self::Checkout => "checkout",
            Self::Failure => "failure",
            Self::Budget => "budget",
            Self::Provider => "provider",
        }
    }
}

/// One thing that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxItem {
    /// Its name, for `mainstem answer` where that takes it.
    pub id: String,
    /// What it is about.
    pub kind: InboxKind,
    /// The task it is about.
    pub task: Option<TaskId>,
    pub text: String,
    /// Answers that are offered; empty means any text, or that a command helps instead.
    pub options: Vec<String>,
    /// Tasks that cannot go on before it is settled, besides its own.
    pub holds_up: Vec<TaskId>,
    /// It, or what it holds up, is on the longest way to the end of the run.
    pub critical: bool,
    /// Since when it waits.
    pub since: Time,
    /// Until when it waits.
    pub deadline: Option<Time>,
    /// The answer that is taken then.
    pub default: Option<String>,
    /// The command that helps.
    pub help: String,
}

/// A file that decides about runs, as a landing left it, and that nobody has accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingFile {
    pub path: String,
    /// The tasks whose landing changed it.
    pub tasks: Vec<String>,
    /// Since when it waits.
    pub since: Time,
}

/// The name of the decision on files that decide about runs.
pub const CONFIG: &str = "CONFIG";

impl Machine {
    /// Everything that needs a person, most urgent first.
    pub fn inbox_items(&self) -> Vec<InboxItem> {
        let mut items: Vec<(InboxItem, Vec<TaskIx>)> = Vec::new();
        items.extend(self.target_item());
        items.extend(self.open_questions().iter().map(|open| self.question_item(open)));
        items.extend(self.open_decisions().iter().map(|open| self.decision_item(open)));
        for t in self.tasks().all_tasks() {
            items.extend(self.held_items(t));
            items.extend(self.failure_item(t));
        }
        items.extend(self.config_item());
        items.extend(self.budget_item());
        items.extend(self.provider_items());
        let critical: BTreeSet<TaskIx> = self.critical_path().into_iter().collect();
        let mut items: Vec<InboxItem> = items
            .into_iter()
            .map(|(item, holds)| {
                let own = item.task.as_ref().and_then(|id| self.graph().index_of(id.as_str()));
                let critical = own.iter().chain(&holds).any(|t| critical.contains(t));
                let holds_up = holds.into_iter().map(|t| self.graph().id(t).clone()).collect();
                InboxItem { holds_up, critical, ..item }
            })
            .collect();
        items.sort_by_key(|item| {
            (!item.critical, item.kind, std::cmp::Reverse(item.holds_up.len()), item.since)
        });
        items
    }

    fn build_item(
        &self,
        id: String,
        kind: InboxKind,
        t: Option<TaskIx>,
        text: String,
    ) -> InboxItem {
        let since = t.map_or_else(|| self.now(), |t| self.tasks().get(t).since);
        InboxItem {
            id,
            kind,
            task: t.map(|t| self.graph().id(t).clone()),
            text,
            options: Vec::new(),
            holds_up: Vec::new(),
            critical: false,
            since,
            deadline: None,
            default: None,
            help: String::new(),
        }
    }

    fn question_item(&self, open: &OpenQuestion) -> (InboxItem, Vec<TaskIx>) {
        let kind = if open.is_about_work() { InboxKind::Approval } else { InboxKind::Question };
        let answer = match kind {
            InboxKind::Approval => "approve",
            _ if open.options.is_empty() => "TEXT",
            _ => "NUMBER",
        };
        let item = InboxItem {
            options: open.options.clone(),
            since: open.at,
            deadline: open.deadline,
            default: open.default.clone(),
            help: format!("mainstem answer {} {answer}", open.name),
            ..self.build_item(open.name.clone(), kind, Some(open.task), open.text.clone())
        };
        (item, self.waiting_dependents(open.task))
    }

    fn decision_item(&self, open: &OpenQuestion) -> (InboxItem, Vec<TaskIx>) {
        let (kind, answer) = match self.is_looping(open.task) {
            true => (InboxKind::Question, "TEXT"),
            false => (InboxKind::Conflict, "retry"),
        };
        let item = InboxItem {
            options: open.options.clone(),
            help: format!("mainstem answer {} {answer}", open.name),
            ..self.build_item(open.name.clone(), kind, Some(open.task), open.text.clone())
        };
        (item, self.waiting_dependents(open.task))
    }

    fn held_items(&self, t: TaskIx) -> Vec<(InboxItem, Vec<TaskIx>)> {
        let id = self.graph().id(t);
        let one = |(reason, since): &(HoldReason, Time)| {
            let text = reason.describe();
            let item = match reason {
                // The question is in the list.
                HoldReason::Approval { .. } => return None,
                HoldReason::GuardedFiles { .. } => {
                    let name = format!("{}{id}", crate::machine::GUARDED);
                    let help = format!("mainstem diff {id}, then mainstem answer {name} accept");
                    let options = crate::machine::GUARDED_OPTIONS.map(str::to_owned).to_vec();
                    let item = self.build_item(name, InboxKind::Guarded, Some(t), text);
                    InboxItem { options, help, ..item }
                }
                HoldReason::CheckoutInTheWay { .. } => {
                    let fix = reason.checkout_fix().unwrap_or_default();
                    let help = match self.is_engine_alive() {
                        true => format!("{fix}, and landing continues by itself"),
                        false => format!("{fix}, then mainstem run"),
                    };
                    let name = format!("{}{id}", crate::machine::CHECKOUT);
                    let item = self.build_item(name, InboxKind::Checkout, Some(t), text);
                    InboxItem { help, ..item }
                }
            };
            Some((InboxItem { since: *since, ..item }, self.waiting_dependents(t)))
        };
        self.hold_reasons(t).iter().filter_map(one).collect()
    }

    /// What a person can do about held work.
    pub(crate) fn hold_help(&self, t: TaskIx) -> Option<String> {
        let asked = || {
            let open = self.open_questions().iter().find(|q| q.task == t)?;
            let id = self.graph().id(t);
            Some(format!("mainstem diff {id}, then mainstem answer {} approve", open.name))
        };
        self.held_items(t).into_iter().next().map(|(item, _)| item.help).or_else(asked)
    }

    /// A task that failed for good, or whose agent says that it cannot be done.
    fn failure_item(&self, t: TaskIx) -> Option<(InboxItem, Vec<TaskIx>)> {
        let state = self.tasks().get(t);
        let failed = match state.phase() {
            Phase::Failed => true,
            // What it waits for is in the list already.
            Phase::Blocked => {
                state.chain.is_empty() && self.open_question(t).is_none() && !self.is_looping(t)
            }
            _ => false,
        };
        let view = failed.then(|| self.task_view(t))?;
        let text = if view.reason.is_empty() { "failed".to_owned() } else { view.reason };
        let item = InboxItem {
            help: view.next_action.unwrap_or_default(),
            ..self.build_item(
                format!("F-{}", self.graph().id(t)),
                InboxKind::Failure,
                Some(t),
                text,
            )
        };
        Some((item, self.waiting_dependents(t)))
    }

    fn target_item(&self) -> Option<(InboxItem, Vec<TaskIx>)> {
        let held: Vec<TaskIx> =
            self.tasks().active_tasks().filter(|t| self.waits_for_target_fix(*t)).collect();
        let since = held.iter().map(|t| self.tasks().get(*t).since).min()?;
        let target = self.target_branch();
        let text = match self.target_failure() {
            Some(failed) => {
                format!("merging is paused: on {target} itself {}", failed.headline())
            }
            None => format!("merging is paused: the checks fail on {target} itself"),
        };
        let item = InboxItem {
            since,
            help: self.target_failure_help(),
            ..self.build_item("TARGET".to_owned(), InboxKind::Target, None, text)
        };
        Some((item, held))
    }

    fn config_item(&self) -> Option<(InboxItem, Vec<TaskIx>)> {
        let since = self.pending_files().iter().map(|file| file.since).min()?;
        let one = |file: &PendingFile| format!("{} (by {})", file.path, file.tasks.join(", "));
        let files: Vec<String> = self.pending_files().iter().map(one).collect();
        let text = format!(
            "landed work changed {}; runs use the previous version until you accept the change",
            files.join(", ")
        );
        let item = InboxItem {
            since,
            options: vec!["accept".to_owned()],
            help: "mainstem config accept".to_owned(),
            ..self.build_item(CONFIG.to_owned(), InboxKind::Config, None, text)
        };
        Some((item, Vec::new()))
    }

    fn budget_item(&self) -> Option<(InboxItem, Vec<TaskIx>)> {
        let short = |t: &TaskIx| {
            self.tasks().phase(*t) == Phase::Ready
                && self.start_obstacle(*t) == Some(StartObstacle::Budget)
        };
        let held: Vec<TaskIx> = self.tasks().all_tasks().filter(short).collect();
        let since = held.iter().map(|t| self.tasks().get(*t).since).min()?;
        let stop = self.budget_stop(*held.first()?)?;
        let item = InboxItem {
            since,
            help: stop.next_action(),
            ..self.build_item("BUDGET".to_owned(), InboxKind::Budget, None, stop.reason())
        };
        Some((item, held))
    }

    fn provider_items(&self) -> Vec<(InboxItem, Vec<TaskIx>)> {
        let auto_resume = self.settings().limits.auto_resume;
        let parked = |known: &crate::provider::Provider| {
            known.rests_until(self.now(), auto_resume) == Some(None)
        };
        let one = |(name, known): (&String, &crate::provider::Provider)| {
            let waits = |t: &TaskIx| {
                self.tasks().phase(*t).is_idle() && self.tasks().resources(*t).provider == *name
            };
            let held: Vec<TaskIx> = self.tasks().all_tasks().filter(waits).collect();
            let since = held.iter().map(|t| self.tasks().get(*t).since).min()?;
            let why = match known.message() {
                "" => String::new(),
                message => format!(" ({message})"),
            };
            let text = format!("{name} is paused until you run mainstem resume{why}");
            let item = InboxItem {
                since: known.limited_since().unwrap_or(since),
                help: "mainstem resume".to_owned(),
                ..self.build_item(format!("PROVIDER-{name}"), InboxKind::Provider, None, text)
            };
            Some((item, held))
        };
        self.providers().iter().filter(|(_, known)| parked(known)).filter_map(one).collect()
    }

    /// All tasks that need this one, directly or not, and are not over.
    fn waiting_dependents(&self, t: TaskIx) -> Vec<TaskIx> {
        let mut seen = BTreeSet::new();
        let mut next = vec![t];
        while let Some(at) = next.pop() {
            next.extend(self.graph().dependents(at).filter(|later| seen.insert(*later)));
        }
        seen.into_iter().filter(|t| self.is_still_to_land(*t)).collect()
    }

    /// It has not landed, been skipped or been called off.
    pub(crate) fn is_still_to_land(&self, t: TaskIx) -> bool {
        !matches!(self.tasks().phase(t), Phase::Landed | Phase::Skipped | Phase::Cancelled)
    }
}
