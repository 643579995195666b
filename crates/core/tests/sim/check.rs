//! What must hold between the machine and its world. A function panics with its name; the runner adds
//! the seed.

use std::collections::BTreeMap;

use mainstem_core::fact::Fact;
use mainstem_core::id::{Oid, TaskIx};
use mainstem_core::machine::Machine;
use mainstem_core::phase::Phase;
use mainstem_core::provider::ProviderStanding;
use mainstem_core::tasks::SlotKind;

use crate::drive::Sim;
use crate::rules::{self, Look};

/// Everything that holds between two inputs of a living engine.
pub fn after_step(sim: &Sim<'_>) {
    i1_each_task_is_at_most_once_on_main(sim);
    i6_no_agent_lives_without_its_attempt(sim);
    i9_money_is_counted_once(sim);
    rules::after_step(&Look {
        live: &sim.live,
        shadow: &sim.shadow,
        settings: &sim.settings,
        clash: &sim.clash,
        slots_before: sim.slots_before,
        now: sim.now,
        draining: sim.draining,
        interrupting: sim.interrupting,
        whole: sim.steps.is_multiple_of(16),
    });
}

/// Everything that holds when the machine has nothing to do.
pub fn at_rest(sim: &Sim<'_>) {
    i1_landed_means_on_main(sim);
    let living = sim.world.living();
    assert!(living.is_empty(), "I6: at rest, but agents live: {living:?}");
    rules::i5_replay_is_the_live_state(&sim.live, &sim.shadow);
}

fn i1_each_task_is_at_most_once_on_main(sim: &Sim<'_>) {
    if !sim.main_moved {
        return;
    }
    for (task, times) in sim.world.git.landings() {
        assert!((0..=1).contains(&times), "I1: {task} is {times} times on main");
    }
}

fn i1_landed_means_on_main(sim: &Sim<'_>) {
    let landings = sim.world.git.landings();
    let tasks = sim.live.tasks();
    for t in tasks.all_tasks() {
        let id = &sim.live.plan().tasks[t.index()].id;
        let on_main = landings.get(id).copied().unwrap_or(0) == 1;
        let landed = tasks.get(t).landed.as_ref().is_some_and(|landing| !landing.empty);
        let phase = tasks.phase(t);
        // Told to go at once, the engine leaves a landing under way to its next life.
        let stage = sim.live.train().candidate_of(t).map(|car| &car.stage);
        if matches!(stage, Some(mainstem_core::train::CandidateStage::Landing { .. })) {
            continue;
        }
        assert_eq!(landed, on_main, "I1: {id} is {}, on main: {on_main}", phase.as_str());
        assert_eq!(phase == Phase::Landed, tasks.get(t).landed.is_some(), "I1: {id}");
    }
}

/// At the moment an attempt is intended, all that its task needs is there.
pub fn i2_inputs_are_there(machine: &Machine, t: TaskIx) {
    for p in machine.graph().needs(t) {
        assert!(
            rules::satisfied(machine, p),
            "I2: {} starts, but {} is {}",
            machine.graph().id(t),
            machine.graph().id(p),
            machine.tasks().phase(p).as_str()
        );
    }
}

/// The workspace is asked for with every landing that its task needs.
pub fn i2_landings_are_asked_for(machine: &Machine, t: TaskIx, must_contain: &[Oid]) {
    for p in machine.graph().needs(t) {
        let Some(landing) = &machine.tasks().get(p).landed else { continue };
        let asked = landing.empty || must_contain.contains(&landing.commit);
        assert!(asked, "I2: {} may start without {}", machine.graph().id(t), machine.graph().id(p));
    }
}

fn i6_no_agent_lives_without_its_attempt(sim: &Sim<'_>) {
    for (id, attempt) in sim.world.living() {
        let t = sim.live.graph().index_of(id.as_str());
        let t = t.unwrap_or_else(|| panic!("I6: an agent of {id} lives, which was dropped"));
        let state = sim.live.tasks().get(t);
        let current = state.current.as_ref().is_some_and(|a| a.n == attempt);
        let phase = state.phase();
        let may = matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking);
        assert!(
            current && may,
            "I6: the agent of {id}/{attempt} lives, the task is {}",
            phase.as_str()
        );
    }
}

fn i9_money_is_counted_once(sim: &Sim<'_>) {
    let counted = sim.usage.values().chain(sim.answers.values()).sum::<f64>();
    assert!((counted - sim.live.spent_usd()).abs() < 1e-9, "I9: {counted} was reported");
}

/// All that agents said of money up to their end was counted.
pub fn i9_no_money_is_forgotten(sim: &Sim<'_>) {
    use mainstem_core::{machine::AgentStatement, money};
    let mut said = BTreeMap::new();
    for ((task, attempt), agent) in &sim.world.agents {
        for (n, word) in agent.log.iter().enumerate() {
            if let AgentStatement::Usage(usage) = word {
                let agent = &sim.agents[&(task.clone(), *attempt)];
                let model = usage.model.as_deref().unwrap_or_default();
                let priced = || money::estimate_cost(&sim.settings.prices, model, usage);
                let worth = usage.cost_usd.or_else(priced).unwrap_or(0.0);
                let paid = if sim.settings.agents[agent].included { 0.0 } else { worth };
                said.insert((task.clone(), *attempt, n as u64 + 1), paid);
            }
        }
    }
    assert_eq!(said, sim.usage, "I9: said and counted differ");
}

/// A provider that rests gets no attempt, and one that is tried again only as many as may try.
pub fn i13_nobody_starts_at_a_resting_provider(sim: &Sim<'_>, provider: &str) {
    let Some(known) = sim.shadow.providers().get(provider) else { return };
    let under_way = sim.shadow.tasks().named_slots_in_use(SlotKind::Provider, provider);
    match known.standing(sim.now, sim.settings.limits.auto_resume) {
        ProviderStanding::Rests => panic!("I13: an attempt starts while {provider} rests"),
        ProviderStanding::Ramps(most) => {
            assert!(under_way < most, "I13: {under_way} of {most} try already");
        }
        ProviderStanding::Free => {}
    }
}

/// Recovering once more, with nothing new, decides nothing new and asks for the same.
pub fn i10_recovery_is_idempotent(sim: &Sim<'_>, first: &[mainstem_core::effect::Effect]) {
    // What a deadline led to in the first moment was decided for that life alone.
    if sim.draining {
        return;
    }
    let mut again = sim.shadow.clone();
    let step = again.step(sim.begin_input(sim.epoch + 1), sim.now);
    let only = matches!(step.facts.as_slice(), [Fact::EngineStarted { .. }]);
    assert!(only, "I10: recovering again decided {:?}", step.facts);
    assert_eq!(step.effects, first, "I10: recovering again asks for something else");
}
