//! What an attempt is told of the run around it when it starts: gathered from the machine, so that whoever
//! starts the agent needs no machine.

use mainstem_agents::RetryContext;
use mainstem_core::conflict::TargetConflict;
use mainstem_core::fact::FailureClass;
use mainstem_core::id::{TaskId, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Epic, Task};
use mainstem_core::tasks::{TaskLanding, TaskState};
use serde_json::{Value, json};

use crate::effects::conflict_text::{AttemptConflict, ConflictingLanding};

/// Peers told of; the ones at work first.
const PEERS_MAX: usize = 200;
/// Landed tasks that are looked at as the other side of a clash, the newest.
const OTHERS_MAX: usize = 50;
/// Of the text of each.
const OTHER_TEXT_BYTES: usize = 8 * 1024;

/// What goes into the prompt and the files of an attempt, beside the task itself.
#[derive(Debug, Clone, Default)]
pub struct AttemptPromptContext {
    /// Tasks whose work is already in the base, with their titles.
    pub landed_before: Vec<(TaskId, String)>,
    /// What happened before, if this is not the first attempt.
    pub retry: Option<RetryContext>,
    /// What a person said when they asked for this attempt.
    pub hint: Option<String>,
    /// Questions of earlier attempts and their answers.
    pub answers: Vec<(String, String)>,
    /// Its earlier work clashes with what has landed.
    pub clashed: Option<AttemptConflict>,
    /// The other tasks, as JSON.
    pub peers: Value,
}

impl AttemptPromptContext {
    /// Gathers it for the present attempt of a task.
    pub fn gather(machine: &Machine, t: TaskIx) -> Self {
        let plan = machine.plan();
        let state = machine.tasks().get(t);
        let landed_before = machine
            .graph()
            .needs(t)
            .filter(|p| machine.tasks().get(*p).landed.is_some())
            .map(|p| (plan.tasks[p.index()].id.clone(), plan.tasks[p.index()].title.clone()))
            .collect();
        let clash = state.conflict.as_ref();
        let retry = state.last.as_ref().map(|last| RetryContext {
            attempt: state.current.as_ref().map_or(state.attempts, |current| current.n),
            class: last.class.as_str().to_owned(),
            reason: last.reason.clone(),
            gate_output: Some(last.gate_output.clone()).filter(|text| !text.is_empty()),
            conflict_files: clash.map_or_else(|| last.files.clone(), |clash| clash.files.clone()),
            started_over: state.current.as_ref().is_some_and(|current| current.fresh),
            ..RetryContext::default()
        });
        let retry = retry.map(|mut retry| {
            // What reviewers found is a list, not the end of an output.
            if last_failure_class(state) == Some(FailureClass::ChangesNeeded) {
                let found = retry.gate_output.take().unwrap_or_default();
                retry.findings = found.lines().map(str::to_owned).collect();
            }
            retry
        });
        let answers = state.answered.clone();
        let clashed = clash.map(|clash| conflict_context(machine, t, clash));
        Self {
            landed_before,
            retry,
            hint: state.hint.clone(),
            answers,
            clashed,
            peers: list_peers(machine, t),
        }
    }
}

fn conflict_context(machine: &Machine, t: TaskIx, clash: &TargetConflict) -> AttemptConflict {
    let mut landed: Vec<_> = machine
        .tasks()
        .all_tasks()
        .filter(|other| *other != t)
        .filter_map(|other| {
            let landing = machine.tasks().get(other).landed.as_ref()?;
            (!landing.empty && landing.at >= clash.since).then_some((landing, other))
        })
        .collect();
    landed.sort_by_key(|(landing, _)| std::cmp::Reverse(landing.order));
    landed.truncate(OTHERS_MAX);
    let other = |(landing, other): (&TaskLanding, TaskIx)| {
        let task = &machine.plan().tasks[other.index()];
        let words = format!("{}\n\n{}", task.title.trim(), task.description.trim());
        let words = words.trim();
        let text = words[..words.floor_char_boundary(OTHER_TEXT_BYTES)].to_owned();
        let landing = (landing.commit.clone(), landing.old.clone());
        ConflictingLanding { task: task.id.clone(), text, landing }
    };
    let others = landed.into_iter().map(other).collect();
    AttemptConflict {
        clash: clash.clone(),
        laid_out: machine.conflict_in_workspace(t).is_some(),
        others,
    }
}

fn last_failure_class(state: &TaskState) -> Option<FailureClass> {
    state.last.as_ref().map(|last| last.class)
}

fn list_peers(machine: &Machine, t: TaskIx) -> Value {
    let mut others: Vec<TaskIx> = machine.tasks().all_tasks().filter(|other| *other != t).collect();
    let rank = |phase: Phase| match phase {
        phase if phase.is_active() => 0,
        phase if phase.is_idle() => 1,
        _ => 2,
    };
    others.sort_by_key(|other| (rank(machine.tasks().phase(*other)), other.index()));
    let left_out = others.len().saturating_sub(PEERS_MAX);
    let peers: Vec<Value> = others
        .into_iter()
        .take(PEERS_MAX)
        .map(|other| {
            let task = &machine.plan().tasks[other.index()];
            json!({
                "id": task.id, "title": task.title, "phase": machine.tasks().phase(other).as_str(),
                "writes": task.writes,
            })
        })
        .collect();
    json!({ "peers": peers, "left_out": left_out })
}

/// The task as its agent may read it.
pub fn render_task_json(
    task: &Task,
    epic: Option<&Epic>,
    attempt: u32,
    told: &AttemptPromptContext,
    gates: &[String],
) -> Value {
    let landed: Vec<Value> =
        told.landed_before.iter().map(|(id, title)| json!({ "id": id, "title": title })).collect();
    json!({
        "id": task.id, "title": task.title, "description": task.description,
        "acceptance": task.acceptance, "writes": task.writes, "needs": task.needs,
        "verify": task.verify, "gates": gates, "epic": epic.map(|epic| epic.title.as_str()),
        "attempt": attempt, "landed_before": landed,
    })
}
