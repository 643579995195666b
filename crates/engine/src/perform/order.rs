//! An effect on its way to whoever performs it: plain data, so that it can be queued, told apart,
//! carried out again, or handed to a simulation instead of this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};

use mainstem_core::effect::Effect;
use mainstem_core::fact::{Claim, GateScope};
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::plan::Task;
use mainstem_host::fault;

use super::agent::Assignment;
use super::consult::Consultation;
use super::{Errand, agent, consult, evidence, gates, landing, pull, recheck, review, workspace};
use crate::event::Event;
use crate::world::World;

/// What is to be done, and for which attempt.
#[derive(Debug, Clone)]
pub struct Order {
    /// Whose.
    pub ix: TaskIx,
    /// The task itself.
    pub task: Task,
    /// Which attempt.
    pub attempt: u32,
    /// The attempt's branch.
    pub branch: String,
    /// Its workspace: where the journal says, or where it will be made.
    pub workspace: PathBuf,
    /// Landings of the task that were taken back.
    pub undone: Vec<Oid>,
    /// Set when setup commands or gates are to end.
    pub cancel: Arc<AtomicBool>,
    /// The tasks of a line of the train, in its order, and their landings that were taken back.
    pub crew: Vec<(Task, Vec<Oid>)>,
    /// What.
    pub deed: Deed,
}

/// What an order asks for.
#[derive(Debug, Clone)]
pub enum Deed {
    /// An effect that says all there is to know.
    Effect(Effect),
    /// Start the agent, or find it again.
    RunAgent(Box<Assignment>),
    /// Ask the answering agent.
    Consult(Box<Consultation>),
    /// An agent's supervisor is gone: end what is left of it, then tell its end.
    Bury(Claim),
}

/// Carries an order out and tells the results.
pub fn carry_out(order: &Order, world: &Arc<World>, results: &Sender<Event>) {
    if !fault::effects_twice() {
        return perform(order, world, results);
    }
    // Nobody hears of the first time, as if we had died then; of the second one hears twice.
    let (unheard, _) = mpsc::channel();
    perform(order, world, &unheard);
    let (told, heard) = mpsc::channel();
    perform(order, world, &told);
    drop(told);
    let mut again = Vec::new();
    for event in heard {
        again.extend(event.again());
        let _ = results.send(event);
    }
    for event in again {
        let _ = results.send(event);
    }
}

fn perform(order: &Order, world: &Arc<World>, results: &Sender<Event>) {
    let errand = Errand {
        world: Arc::clone(world),
        ix: order.ix,
        task: order.task.clone(),
        attempt: order.attempt,
        branch: order.branch.clone(),
        workspace: order.workspace.clone(),
        undone: order.undone.clone(),
        cancel: Arc::clone(&order.cancel),
        crew: order.crew.clone(),
        results: results.clone(),
    };
    let effect = match &order.deed {
        Deed::Effect(effect) => effect,
        Deed::RunAgent(assignment) => return agent::run(&errand, assignment),
        Deed::Consult(consultation) => return consult::ask(&errand, consultation),
        Deed::Bury(claim) => return agent::bury(&errand, claim.clone()),
    };
    match effect {
        Effect::PrepareWorkspace { must_contain, from, merge, continues, .. } => {
            let (from, merge, continues) = (from.as_ref(), merge.as_ref(), continues.as_ref());
            workspace::prepare(&errand, must_contain, workspace::Start { from, merge, continues });
        }
        Effect::StopAgent { now, .. } => agent::stop(&errand, *now),
        Effect::DeliverAnswer { number, question, text, reference, .. } => {
            agent::answer(&errand, *number, question, text, reference.as_deref());
        }
        Effect::CollectEvidence { base, .. } => evidence::collect(&errand, base.as_ref()),
        Effect::TakeSnapshot { .. } => evidence::snapshot(&errand, "work in progress"),
        Effect::RunGates { tip, .. } => gates::of_task(&errand, tip),
        Effect::Review { .. } => review::ask(&errand, effect),
        Effect::RemoveWorkspace { keep_branch, landed, .. } => {
            workspace::remove(&errand, *keep_branch, *landed);
        }
        Effect::FormLine { purpose, seats, .. } => landing::form(&errand, *purpose, seats),
        Effect::VerifyCar { commit, tree, lane, base, .. } => {
            let scope = if *base { GateScope::Base } else { GateScope::Train };
            gates::of_train(&errand, (commit, tree), *lane, scope);
        }
        Effect::RecheckTarget { commit, tree, lane, .. } => {
            recheck::verify(&errand, (commit, tree), *lane);
        }
        Effect::Land { old, new, tree, members, .. } => {
            landing::land(&errand, &landing::Move { old, new, tree }, members);
        }
        Effect::LookAtCheckout { base, tip, .. } => landing::look_at_checkout(&errand, base, tip),
        Effect::Pull { deed, .. } => pull::perform(&errand, deed),
        Effect::Consult { .. } => panic!("BUG: a question comes with its consultation"),
        Effect::RunAgent { .. } => panic!("BUG: an agent is started with an assignment"),
        Effect::StopJobs { .. } | Effect::StopLane { .. } => {
            panic!("BUG: jobs are stopped by their flag, not by an order")
        }
    }
}
