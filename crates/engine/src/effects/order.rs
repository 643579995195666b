//! An effect on its way to whoever performs it: plain data, so that it can be queued, told apart,
//! carried out again, or handed to a simulation instead of this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};

use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentClaim, GateScope};
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::plan::Task;
use mainstem_host::fault;

use super::agent::AttemptLaunch;
use super::answering_agent::AnsweringRequest;
use super::{
    EffectContext, agent, answering_agent, evidence, forge_actions, gates, landing, recheck,
    review, workspace,
};
use crate::engine_context::EngineContext;
use crate::event::EngineEvent;

/// What is to be done, and for which attempt.
#[derive(Debug, Clone)]
pub struct EffectOrder {
    pub ix: TaskIx,
    pub task: Task,
    pub attempt: u32,
    pub branch: String,
    /// Its workspace: where the journal says, or where it will be made.
    pub workspace: PathBuf,
    /// Landings of the task that were taken back.
    pub undone_landings: Vec<Oid>,
    /// Set when setup commands or gates are to end.
    pub cancel: Arc<AtomicBool>,
    /// The tasks of a line of the train, in its order, and their landings that were taken back.
    pub candidate_tasks: Vec<(Task, Vec<Oid>)>,
    pub action: EffectAction,
}

/// What an order asks for.
#[derive(Debug, Clone)]
pub enum EffectAction {
    /// An effect that says all there is to know.
    Effect(Effect),
    /// Start the agent, or find it again.
    RunAgent(Box<AttemptLaunch>),
    /// Ask the answering agent.
    AskAnsweringAgent(Box<AnsweringRequest>),
    /// An agent's supervisor is gone: end what is left of it, then tell its end.
    ReapVanishedAgent(AgentClaim),
}

/// Carries an order out and tells the results.
pub fn carry_out_order(
    order: &EffectOrder,
    world: &Arc<EngineContext>,
    results: &Sender<EngineEvent>,
) {
    if !fault::runs_effects_twice() {
        return perform_order(order, world, results);
    }
    // Nobody hears of the first time, as if we had died then; of the second one hears twice.
    let (unheard, _) = mpsc::channel();
    perform_order(order, world, &unheard);
    let (told, heard) = mpsc::channel();
    perform_order(order, world, &told);
    drop(told);
    let mut again = Vec::new();
    for event in heard {
        again.extend(event.duplicate_result());
        let _ = results.send(event);
    }
    for event in again {
        let _ = results.send(event);
    }
}

fn context_of_order(
    order: &EffectOrder,
    world: &Arc<EngineContext>,
    results: &Sender<EngineEvent>,
) -> EffectContext {
    EffectContext {
        engine: Arc::clone(world),
        ix: order.ix,
        task: order.task.clone(),
        attempt: order.attempt,
        branch: order.branch.clone(),
        workspace: order.workspace.clone(),
        undone_landings: order.undone_landings.clone(),
        cancel: Arc::clone(&order.cancel),
        candidate_tasks: order.candidate_tasks.clone(),
        results: results.clone(),
    }
}

fn perform_order(order: &EffectOrder, world: &Arc<EngineContext>, results: &Sender<EngineEvent>) {
    let errand = context_of_order(order, world, results);
    let effect = match &order.action {
        EffectAction::Effect(effect) => effect,
        EffectAction::RunAgent(assignment) => return agent::run_agent(&errand, assignment),
        EffectAction::AskAnsweringAgent(consultation) => {
            return answering_agent::ask_answering_agent(&errand, consultation);
        }
        EffectAction::ReapVanishedAgent(claim) => {
            return agent::reap_vanished_agent(&errand, claim.clone());
        }
    };
    match effect {
        Effect::PrepareWorkspace { must_contain, from, merge, continues, .. } => {
            let (from, merge, continues) = (from.as_ref(), merge.as_ref(), continues.as_ref());
            workspace::prepare_workspace(
                &errand,
                must_contain,
                workspace::WorkspaceOrigin { from, merge, continues },
            );
        }
        Effect::StopAgent { now, .. } => agent::stop_agent(&errand, *now),
        Effect::DeliverAnswer { number, question, text, reference, .. } => {
            agent::deliver_answer(&errand, *number, question, text, reference.as_deref());
        }
        Effect::CollectEvidence { base, .. } => evidence::collect_evidence(&errand, base.as_ref()),
        Effect::TakeSnapshot { .. } => {
            evidence::take_progress_snapshot(&errand, "work in progress");
        }
        Effect::RunGates { tip, .. } => gates::run_task_gates(&errand, tip),
        Effect::Review { .. } => review::ask_reviewer(&errand, effect),
        Effect::RemoveWorkspace { keep_branch, landed, .. } => {
            workspace::remove_workspace(&errand, *keep_branch, *landed);
        }
        Effect::MergeBatch { purpose, candidates: seats, .. } => {
            landing::merge_batch(&errand, *purpose, seats);
        }
        Effect::VerifyBatch { commit, tree, lane, base, .. } => {
            let scope = if *base { GateScope::Base } else { GateScope::Train };
            gates::run_train_gates(&errand, (commit, tree), *lane, scope);
        }
        Effect::RecheckTarget { commit, tree, lane, .. } => {
            recheck::recheck_target(&errand, (commit, tree), *lane);
        }
        Effect::Land { old, new, tree, candidates: members, .. } => {
            landing::land_candidates(&errand, &landing::TargetMove { old, new, tree }, members);
        }
        Effect::InspectCheckout { base, tip, .. } => {
            landing::check_user_checkout(&errand, base, tip);
        }
        Effect::RunForgeAction { action: deed, .. } => {
            forge_actions::perform_forge_action(&errand, deed);
        }
        Effect::ConsultAgent { .. } => panic!("BUG: a question comes with its consultation"),
        Effect::RunAgent { .. } => panic!("BUG: an agent is started with an assignment"),
        Effect::StopJobs { .. } | Effect::StopLane { .. } => {
            panic!("BUG: jobs are stopped by their flag, not by an order")
        }
    }
}
