//! What must hold between the engine and the world. What holds of the machine alone is in the core's
//! `rules`. A function panics with what it found; the runner adds the seed.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use mainstem_core::config::WorkspaceRetention;
use mainstem_core::effect::Effect;
use mainstem_core::fact::{Fact, FailureClass};
use mainstem_core::id::TaskIx;
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::train::CandidateStage;
use mainstem_engine::effects::{EffectAction, EffectOrder};

use crate::agent::Key;
use crate::git::Edit;
use crate::world::World;

/// What a fact intends, in words that an order can be looked up by.
pub fn intent_of(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::AttemptIntended { task, attempt, fresh: true, .. } => {
            format!("over again {task}/{attempt}")
        }
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
        Fact::TaskQueued { task, attempt, .. } => format!("queued {task}/{attempt}"),
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
        // So is it where nobody is asked: the work stays on its branch.
        Fact::TaskFailed { task, class: FailureClass::Conflicted, .. } => {
            format!("conflicted {task}")
        }
        _ => return None,
    })
}

/// Nothing is begun before the fact that intends it is durable.
pub fn intended(world: &World, order: &EffectOrder) {
    assert!(!world.broken, "an order is begun after the journal failed: {:?}", order.action);
    let key = format!("{}/{}", order.task.id, order.attempt);
    let need = match &order.action {
        EffectAction::RunAgent(_) => format!("workspace {key}"),
        EffectAction::AskAnsweringAgent(consultation) => {
            format!("asked {key} {}", consultation.question)
        }
        EffectAction::ReapVanishedAgent(_) => format!("workspace {key}"),
        EffectAction::Effect(effect) => match effect {
            Effect::PrepareWorkspace { .. } => {
                let fresh = format!("over again {key}");
                if world.intents.contains(&fresh) { fresh } else { format!("attempt {key}") }
            }
            Effect::StopAgent { .. } => format!("stop {key}"),
            Effect::DeliverAnswer { question, .. } => format!("resumed {key} {question}"),
            Effect::ConsultAgent { question, .. } => format!("asked {key} {question}"),
            Effect::CollectEvidence { .. } => format!("ended {key}"),
            Effect::TakeSnapshot { .. } => format!("workspace {key}"),
            Effect::RunGates { .. } => format!("evidence {key}"),
            Effect::Review { cycle, .. } => format!("review {key} {cycle}"),
            Effect::MergeBatch { .. }
            | Effect::InspectCheckout { .. }
            | Effect::VerifyBatch { base: true, .. } => {
                format!("queued {key}")
            }
            Effect::VerifyBatch { commit, .. } => format!("formed {key} {commit}"),
            Effect::RecheckTarget { .. } => format!("over {key}"),
            Effect::Land { old, new, .. } => format!("landing {key} {old} {new}"),
            Effect::RemoveWorkspace { .. } => format!("over {key}"),
            Effect::RunForgeAction { .. } => panic!("everything lands here"),
            Effect::RunAgent { .. } | Effect::StopJobs { .. } | Effect::StopLane { .. } => {
                panic!("no order of the driver")
            }
        },
    };
    assert!(world.intents.contains(&need), "{:?} begins, but no fact says {need}", order.action);
}

/// Nothing that the attempt before left is missing where the next one starts, unless it starts over.
pub fn work_goes_on(world: &World, (task, attempt): &Key, found: &BTreeSet<Edit>) {
    let before = world.agents.range((task.clone(), 0)..(task.clone(), *attempt)).next_back();
    let Some(((_, n), agent)) = before else { return };
    // One in between that started over may have had no agent.
    let fresh = |n: u32| world.intents.contains(&format!("over again {task}/{n}"));
    if (n + 1..=*attempt).any(fresh) {
        return;
    }
    let left = agent.left.as_ref().expect("one attempt at a time");
    // What others committed here and the remote does not have was only below its work.
    let left = left - &world.git.of_strangers;
    assert!(
        left.is_subset(found),
        "attempt {n} of {task} left {left:?}, and attempt {attempt} starts with {found:?}"
    );
}

/// Holds after every round of a living engine.
pub fn after_turn(world: &World, machine: &Machine) {
    for ((task, attempt), _) in world.agents.iter().filter(|(_, agent)| agent.lives()) {
        let t = machine.graph().index_of(task.as_str());
        let state = machine.tasks().get(t.expect("a task with an agent is in the plan"));
        let current = state.current.as_ref().is_some_and(|a| a.n == *attempt);
        let may = matches!(state.phase(), Phase::Preparing | Phase::Working | Phase::Asking);
        let phase = state.phase().as_str();
        assert!(current && may, "the agent of {task}/{attempt} lives, its task is {phase}");
    }
    for car in machine.train().landing_candidates() {
        let id = machine.graph().id(car.task);
        assert!(machine.hold_reasons(car.task).is_empty(), "{id} lands although it is held");
        let state = machine.tasks().get(car.task);
        let left = state.current.as_ref().and_then(|attempt| attempt.evidence.as_ref());
        for change in left.into_iter().flat_map(|evidence| &evidence.guarded) {
            let key = (change.path.clone(), change.blob.clone());
            assert!(state.accepted.contains(&key), "{id} lands {} unasked", change.path);
        }
    }
    let (paid, spent) = (world.paid, machine.spent_usd());
    assert!((paid - spent).abs() < 1e-9, "{paid} was paid, the machine has {spent}");
}

/// Holds when an engine has gone in good order.
pub fn at_rest(world: &World, machine: &Machine) {
    let living = world.living();
    assert!(living.is_empty(), "at rest, but still running: {living:?}");
    for t in machine.tasks().all_tasks() {
        let id = &machine.plan().tasks[t.index()].id;
        let stage = machine.train().candidate_of(t).map(|car| &car.stage);
        if matches!(stage, Some(CandidateStage::Landing { .. })) {
            // Told to go at once, the engine leaves a landing under way to its next life.
            continue;
        }
        let on_main =
            world.git.line().any(|at| world.git.get(at).lands.iter().any(|(task, _)| task == id));
        let landed = machine.tasks().get(t).landed.as_ref().is_some_and(|l| !l.empty);
        let phase = machine.tasks().phase(t).as_str();
        assert_eq!(landed, on_main, "{id} is {phase}; on the target branch: {on_main}");
    }
}

/// Holds at the very end, when nothing more can happen.
pub fn last_words(world: &World, machine: &Machine) {
    at_rest(world, machine);
    for t in machine.tasks().all_tasks() {
        let (id, phase) = (machine.graph().id(t), machine.tasks().phase(t));
        let held = world.settings.budget.hard && phase.is_idle();
        assert!(held || phase.is_over(), "{id} is {} in the end", phase.as_str());
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
    every_attempts_work_is_kept(world, machine);
    no_money_is_forgotten(world);
    nothing_is_left_over(world, machine);
}

fn every_attempts_work_is_kept(world: &World, machine: &Machine) {
    let git = &world.git;
    for ((task, attempt), agent) in &world.agents {
        let Some(left) = &agent.left else { panic!("the agent of {task}/{attempt} never ended") };
        // Who destroys its folder leaves what its branch has: a merge that was laid out is gone, and nothing of
        // its own is.
        if left.is_subset(&agent.began_with) {
            continue;
        }
        let kept = git.snapshots.values().any(|at| git.files(*at) == left);
        // Where workspaces of failed tasks stay, so do their branches.
        let there = git.workspaces.values().any(|workspace| workspace.files == *left)
            || git.branches.values().any(|at| git.files(*at) == left);
        let failed =
            machine.graph().index_of(task.as_str()).is_some_and(|t| machine.keeps_workspace(t));
        let may_stay = failed
            || world.settings.workspace.keep != WorkspaceRetention::UntilLanded
            || world.settings.budget.hard;
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
    if world.settings.workspace.keep != WorkspaceRetention::UntilLanded
        || world.settings.budget.hard
    {
        return;
    }
    // What failed stays for people to look at, and for another attempt.
    let unit = |t: TaskIx| mainstem_engine::effects::workspace_key(machine, t);
    let kept: BTreeSet<String> =
        machine.tasks().all_tasks().filter(|t| machine.keeps_workspace(*t)).map(unit).collect();
    let of_kept = |path: &&PathBuf| {
        kept.iter().any(|unit| path.as_path() == Path::new(&format!("ws/{unit}")))
    };
    let left: Vec<_> = world.git.workspaces.keys().filter(|path| !of_kept(path)).collect();
    assert!(left.is_empty(), "workspaces are left: {left:?}");
    for branch in world.git.branches.keys() {
        let task = branch.trim_start_matches("mainstem/");
        if machine.graph().index_of(task).is_some_and(|t| kept.contains(&unit(t))) {
            continue;
        }
        let conflicted = world.intents.contains(&format!("conflicted {task}"));
        let known = machine.graph().index_of(task).is_some();
        assert!(conflicted && known, "the branch {branch} is left");
    }
}
