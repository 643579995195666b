//! Whether a plan revises the present run or begins another one, and what a revision may leave out.

use mainstem_core::config::{LandMode, Settings};
use mainstem_core::graph::Graph;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::plan::Plan;

use super::{EngineError, EngineInstance, RunRequest, add_closing_tasks, hash_plan};

impl EngineInstance {
    /// Whether a plan is another one than that of the present run, which has ended: it begins a run of its own.
    pub fn starts_anew(&self, request: &RunRequest) -> Result<bool, EngineError> {
        match (self.load_newest_run()?, request.new) {
            (Some((_, machine)), false) => starts_anew(&machine, request, &self.settings),
            (None, _) | (_, true) => Ok(request.new),
        }
    }
}

/// The same for a run that was looked at.
pub fn starts_anew(
    machine: &Machine,
    request: &RunRequest,
    settings: &Settings,
) -> Result<bool, EngineError> {
    let Some(plan) = request.plan.as_ref().filter(|_| machine.has_ended()) else {
        return Ok(false);
    };
    if of(machine, plan, settings)?.1 == machine.plan_hash() {
        return Ok(false);
    }
    let other_file = match (machine.plan_file(), &request.plan_file) {
        (Some(known), Some(file)) => known != file,
        _ => false,
    };
    let knows = |id: &str| machine.graph().index_of(id).is_some();
    Ok(other_file || !plan.tasks.iter().any(|task| knows(task.id.as_str())))
}

/// The plan as this run would adopt it, with its hash.
pub(super) fn of(
    machine: &Machine,
    plan: &Plan,
    settings: &Settings,
) -> Result<(Plan, String), EngineError> {
    let mut plan = machine.with_accepted_tasks(plan.clone());
    if settings.land.mode == LandMode::PhasePr {
        plan = add_closing_tasks(plan, settings.run.agent.is_some());
        Graph::new(&plan).map_err(|error| EngineError::Phases(error.to_string()))?;
    }
    let hash = hash_plan(&plan);
    Ok((plan, hash))
}

/// A task that has begun and is not settled cannot simply vanish from the plan.
pub fn check_dropped(machine: &Machine, plan: &Plan) -> Result<(), EngineError> {
    let kept: std::collections::BTreeSet<&str> =
        plan.tasks.iter().map(|task| task.id.as_str()).collect();
    let dropped: Vec<String> = machine
        .tasks()
        .all_tasks()
        .filter(|t| machine.tasks().get(*t).attempts > 0)
        .filter(|t| {
            let phase = machine.tasks().phase(*t);
            !matches!(phase, Phase::Landed | Phase::Cancelled | Phase::Skipped)
        })
        .map(|t| machine.plan().tasks[t.index()].id.to_string())
        .filter(|id| !kept.contains(id.as_str()))
        .collect();
    if dropped.is_empty() { Ok(()) } else { Err(EngineError::DropsStarted(dropped)) }
}
