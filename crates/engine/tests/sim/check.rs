//! What must hold between the engine and the world. What holds of the machine alone is in the core's
//! `rules`. A function panics with what it found; the runner adds the seed.

use std::ops::Bound;

use mainstem_core::config::Keep;
use mainstem_core::effect::Effect;
use mainstem_core::fact::Fact;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::train::Stage;
use mainstem_engine::perform::{Deed, Order};

use crate::world::World;

/// What a fact intends, in words that an order can be looked up by.
pub fn intent_of(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::AttemptIntended { task, attempt, .. } => format!("attempt {task}/{attempt}"),
        Fact::WorkspaceReady { task, attempt, .. } => format!("workspace {task}/{attempt}"),
        Fact::StopRequested { task, attempt, .. } => format!("stop {task}/{attempt}"),
        Fact::AgentResumed { task, attempt, question } => {
            format!("resumed {task}/{attempt} {question}")
        }
        Fact::AgentEnded { task, attempt, .. } => format!("ended {task}/{attempt}"),
        Fact::EvidenceCollected { task, attempt, .. } => format!("evidence {task}/{attempt}"),
        Fact::ReviewStarted(started) => {
            format!("review {}/{} {}", started.task, started.attempt, started.cycle)
        }
        Fact::TaskBoarded { task, attempt, .. } => format!("boarded {task}/{attempt}"),
        Fact::CarFormed { task, attempt, commit, .. } => {
            format!("formed {task}/{attempt} {commit}")
        }
        Fact::LandingIntended { task, attempt, old, new, .. } => {
            format!("landing {task}/{attempt} {old} {new}")
        }
        Fact::TaskLanded { task, attempt, .. } | Fact::AttemptFailed { task, attempt, .. } => {
            format!("over {task}/{attempt}")
        }
        Fact::TaskConflicted { task, .. } => format!("conflicted {task}"),
        _ => return None,
    })
}

/// Nothing is begun before the fact that intends it is durable.
pub fn intended(world: &World, order: &Order) {
    assert!(!world.broken, "an order is begun after the journal failed: {:?}", order.deed);
    let key = format!("{}/{}", order.task.id, order.attempt);
    let need = match &order.deed {
        Deed::RunAgent(_) => format!("workspace {key}"),
        Deed::Consult(consultation) => format!("asked {key} {}", consultation.question),
        Deed::Bury(_) => format!("attempt {key}"),
        Deed::Effect(effect) => match effect {
            Effect::PrepareWorkspace { .. } => format!("attempt {key}"),
            Effect::StopAgent { .. } => format!("stop {key}"),
            Effect::DeliverAnswer { question, .. } => format!("resumed {key} {question}"),
            Effect::Consult { question, .. } => format!("asked {key} {question}"),
            Effect::CollectEvidence { .. } => format!("ended {key}"),
            Effect::TakeSnapshot { .. } => format!("workspace {key}"),
            Effect::RunGates { .. } => format!("evidence {key}"),
            Effect::Review { cycle, .. } => format!("review {key} {cycle}"),
            Effect::FormLine { .. } | Effect::VerifyCar { base: true, .. } => {
                format!("boarded {key}")
            }
            Effect::VerifyCar { commit, .. } => format!("formed {key} {commit}"),
            Effect::Land { old, new, .. } => format!("landing {key} {old} {new}"),
            Effect::RemoveWorkspace { .. } => format!("over {key}"),
            Effect::Pull { .. } => panic!("everything lands here"),
            Effect::RunAgent { .. } | Effect::StopJobs { .. } | Effect::StopLane { .. } => {
                panic!("no order of the driver")
            }
        },
    };
    assert!(world.intents.contains(&need), "{:?} begins, but no fact says {need}", order.deed);
}

/// Holds after every round of a living engine.
pub fn after_turn(world: &World, machine: &Machine) {
    for ((task, attempt), _) in world.agents.iter().filter(|(_, agent)| agent.lives()) {
        let t = machine.graph().ix(task.as_str());
        let state = machine.tasks().get(t.expect("a task with an agent is in the plan"));
        let current = state.current.as_ref().is_some_and(|a| a.n == *attempt);
        let may = matches!(state.phase(), Phase::Preparing | Phase::Working | Phase::Asking);
        let phase = state.phase().word();
        assert!(current && may, "the agent of {task}/{attempt} lives, its task is {phase}");
    }
    let (paid, spent) = (world.paid, machine.spent_usd());
    assert!((paid - spent).abs() < 1e-9, "{paid} was paid, the machine has {spent}");
}

/// Holds when an engine has gone in good order.
pub fn at_rest(world: &World, machine: &Machine) {
    let living = world.living();
    assert!(living.is_empty(), "at rest, but still running: {living:?}");
    for t in machine.tasks().all() {
        let id = &machine.plan().tasks[t.ix()].id;
        let stage = machine.train().car(t).map(|car| &car.stage);
        if matches!(stage, Some(Stage::Landing { .. })) {
            // Told to go at once, the engine leaves a landing under way to its next life.
            continue;
        }
        let on_main =
            world.git.line().any(|at| world.git.get(at).lands.iter().any(|(task, _)| task == id));
        let landed = machine.tasks().get(t).landed.as_ref().is_some_and(|l| !l.empty);
        let phase = machine.tasks().phase(t).word();
        assert_eq!(landed, on_main, "{id} is {phase}; on the target branch: {on_main}");
    }
}

/// Holds at the very end, when nothing more can happen.
pub fn last_words(world: &World, machine: &Machine) {
    at_rest(world, machine);
    for t in machine.tasks().all() {
        let (id, phase) = (machine.graph().id(t), machine.tasks().phase(t));
        let held = world.settings.budget.hard && phase.is_idle();
        assert!(held || phase.is_over(), "{id} is {} in the end", phase.word());
    }
    for at in &world.git.strangers {
        let here = world.git.here.is_some_and(|(local, _)| world.git.contains(local, *at));
        let there = world.git.contains(world.git.main, *at);
        assert!(here || there, "somebody's commit c{at} was lost");
    }
    let git = &world.git;
    if let Some((local, _)) = git.here {
        let apart = git.strangers.iter().any(|at| !git.contains(git.main, *at));
        let last = git.line().find(|at| !git.get(*at).lands.is_empty());
        let follows = apart || last.is_none_or(|at| git.contains(local, at));
        assert!(follows, "the target branch here does not have what landed there");
    }
    every_attempts_work_is_kept(world);
    no_money_is_forgotten(world);
    nothing_is_left_over(world, machine);
}

fn every_attempts_work_is_kept(world: &World) {
    let git = &world.git;
    for ((task, attempt), agent) in &world.agents {
        let Some(left) = &agent.left else { panic!("the agent of {task}/{attempt} never ended") };
        if *left == agent.began_with {
            continue;
        }
        let kept = git.snapshots.values().any(|at| git.files(*at) == left);
        // Where workspaces of failed tasks stay, so do their branches.
        let there = git.workspaces.values().any(|workspace| workspace.files == *left)
            || git.branches.values().any(|at| git.files(*at) == left);
        let may_stay =
            world.settings.workspace.keep != Keep::UntilLanded || world.settings.budget.hard;
        assert!(kept || (there && may_stay), "what {task}/{attempt} left is on no snapshot");
    }
}

fn no_money_is_forgotten(world: &World) {
    for (key, agent) in world.agents.iter().filter(|(key, _)| !world.gaps.contains(*key)) {
        let counted = world.counted.range((key.clone(), 0)..=(key.clone(), u64::MAX));
        // What comes in one go is told as one, with the place of its last word.
        let mut from = Bound::Unbounded;
        for ((_, mark), usd) in counted {
            let said: f64 = agent.costs.range((from, Bound::Included(*mark))).map(|(_, c)| c).sum();
            assert!((said - usd).abs() < 1e-9, "money of {key:?} up to {mark}: {said} {usd}");
            from = Bound::Excluded(*mark);
        }
        let rest: Vec<_> = agent.costs.range((from, Bound::Unbounded)).collect();
        assert!(rest.is_empty(), "money of {key:?} is forgotten: {rest:?}");
    }
}

fn nothing_is_left_over(world: &World, machine: &Machine) {
    if world.settings.workspace.keep != Keep::UntilLanded || world.settings.budget.hard {
        return;
    }
    let left: Vec<_> = world.git.workspaces.keys().collect();
    assert!(left.is_empty(), "workspaces are left: {left:?}");
    for branch in world.git.branches.keys() {
        let task = branch.trim_start_matches("mainstem/");
        let conflicted = world.intents.contains(&format!("conflicted {task}"));
        let known = machine.graph().ix(task).is_some();
        assert!(conflicted && known, "the branch {branch} is left");
    }
}
