//! What must hold after every step, each as one function that computes the truth the slow way.
//! A function panics with its name; the runner adds the seed.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::config::Barrier;
use mainstem_core::fact::Fact;
use mainstem_core::glob::may_overlap;
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::{OnFailure, Plan};
use mainstem_core::tasks::{Slot, Tasks};

use crate::drive::Sim;

/// Tasks by which declared files may clash.
pub fn clashes(plan: &Plan) -> Vec<Vec<bool>> {
    let clash = |a: &[String], b: &[String]| a.iter().any(|a| b.iter().any(|b| may_overlap(a, b)));
    let row = |a: &[String]| plan.tasks.iter().map(|b| clash(a, &b.writes)).collect();
    plan.tasks.iter().map(|a| row(&a.writes)).collect()
}

/// Everything that holds between two inputs of a living engine.
pub fn after_step(sim: &Sim<'_>) {
    i1_each_task_is_at_most_once_on_main(sim);
    i3_no_resource_is_taken_twice(sim);
    i4_counters_agree_with_the_phases(&sim.live);
    i5_replay_gives_the_same_phases(sim);
    i6_no_agent_lives_without_its_attempt(sim);
    i7_nobody_waits_for_what_never_comes(&sim.live);
    i9_money_is_counted_once(sim);
    no_slot_idles(sim);
}

/// Everything that holds when the machine has nothing to do.
pub fn at_rest(sim: &Sim<'_>) {
    i1_landed_means_on_main(sim);
    let living = sim.world.living();
    assert!(living.is_empty(), "I6: at rest, but agents live: {living:?}");
    i5_replay_is_the_live_state(&sim.live, &sim.shadow);
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
    for t in tasks.all() {
        let id = &sim.live.plan().tasks[t.ix()].id;
        let on_main = landings.get(id).copied().unwrap_or(0) == 1;
        let landed = tasks.get(t).landed.as_ref().is_some_and(|landing| !landing.empty);
        let phase = tasks.phase(t);
        // Told to go at once, the engine leaves a landing under way to its next life.
        let stage = sim.live.train().car(t).map(|car| &car.stage);
        if matches!(stage, Some(mainstem_core::train::Stage::Landing { .. })) {
            continue;
        }
        assert_eq!(landed, on_main, "I1: {id} is {}, on main: {on_main}", phase.word());
        assert_eq!(phase == Phase::Landed, tasks.get(t).landed.is_some(), "I1: {id}");
    }
}

/// At the moment an attempt is intended, all that its task needs is there.
pub fn i2_inputs_are_there(machine: &Machine, t: TaskIx) {
    for p in machine.graph().needs(t) {
        assert!(
            satisfied(machine, p),
            "I2: {} starts, but {} is {}",
            machine.graph().id(t),
            machine.graph().id(p),
            machine.tasks().phase(p).word()
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

fn satisfied(machine: &Machine, p: TaskIx) -> bool {
    let phase = machine.tasks().phase(p);
    let passes = machine.plan().tasks[p.ix()].on_failure != OnFailure::Block;
    matches!(phase, Phase::Landed | Phase::Skipped) || (phase.is_over() && passes)
}

fn blocking(machine: &Machine, p: TaskIx) -> bool {
    machine.tasks().phase(p).is_over() && !satisfied(machine, p)
}

fn i3_no_resource_is_taken_twice(sim: &Sim<'_>) {
    let (machine, tasks) = (&sim.live, sim.live.tasks());
    let limit = machine.jobs().max(sim.slots_before);
    assert!(tasks.slots() <= limit, "I3: {} slots in use of {limit}", tasks.slots());
    let limits = &sim.settings.limits;
    let used = used_slots(tasks);
    for (slot, map) in [
        (Slot::Provider, &limits.per_provider),
        (Slot::Agent, &limits.per_agent),
        (Slot::Role, &limits.per_role),
    ] {
        for (name, limit) in map {
            let used = used.get(&(slot, name.as_str())).copied().unwrap_or(0);
            assert!(used <= *limit, "I3: {used} {slot:?} slots of {name} in use of {limit}");
        }
    }
    let active: Vec<TaskIx> = tasks.active().collect();
    for (n, a) in active.iter().enumerate() {
        for b in &active[n + 1..] {
            assert!(!sim.clash[a.ix()][b.ix()], "I3: {a:?} and {b:?} write the same files");
            let same = tasks.claims(*a).unit == tasks.claims(*b).unit;
            let at_once = in_workspace(tasks.phase(*a)) && in_workspace(tasks.phase(*b));
            assert!(!(same && at_once), "I3: {a:?} and {b:?} are in one workspace");
        }
    }
}

fn in_workspace(phase: Phase) -> bool {
    matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking | Phase::Verifying)
}

fn used_slots(tasks: &Tasks) -> BTreeMap<(Slot, &str), u32> {
    let mut used = BTreeMap::new();
    for t in tasks.all().filter(|t| tasks.phase(*t).holds_slot()) {
        let claims = tasks.claims(t);
        *used.entry((Slot::Provider, claims.provider.as_str())).or_default() += 1;
        *used.entry((Slot::Agent, claims.agent.as_str())).or_default() += 1;
        if let Some(role) = &claims.role {
            *used.entry((Slot::Role, role.as_str())).or_default() += 1;
        }
    }
    used
}

fn i4_counters_agree_with_the_phases(machine: &Machine) {
    let tasks = machine.tasks();
    let mut counts = [0; PHASES.len()];
    let (mut slots, mut active, mut ready) = (0, BTreeSet::new(), BTreeSet::new());
    for t in tasks.all() {
        let phase = tasks.phase(t);
        counts[phase as usize] += 1;
        slots += u32::from(phase.holds_slot());
        if phase.is_active() {
            active.insert(t);
        }
        let free = machine.graph().needs(t).all(|p| satisfied(machine, p))
            && machine.graph().after(t).all(|p| tasks.phase(p).is_over());
        if phase.is_idle() {
            let wanted = if free { Phase::Ready } else { Phase::Waiting };
            assert_eq!(phase, wanted, "I4: {}", machine.graph().id(t));
        }
        if phase == Phase::Ready && tasks.get(t).not_before.is_none() {
            ready.insert(t);
        }
        let unit = tasks.claims(t).unit;
        if in_workspace(phase) {
            assert!(tasks.unit_taken(unit), "I4: the workspace of {t:?} counts as free");
        }
    }
    for phase in PHASES {
        assert_eq!(tasks.count(phase), counts[phase as usize], "I4: count of {}", phase.word());
    }
    assert_eq!(tasks.slots(), slots, "I4: slots");
    assert_eq!(tasks.active().collect::<BTreeSet<_>>(), active, "I4: active");
    let queued: BTreeSet<TaskIx> = tasks.ready_by_agent().flat_map(|(_, queue)| queue).collect();
    assert_eq!(queued, ready, "I4: ready");
    for ((slot, name), used) in used_slots(tasks) {
        assert_eq!(tasks.slots_of(slot, name), used, "I4: {slot:?} {name}");
    }
}

fn i5_replay_gives_the_same_phases(sim: &Sim<'_>) {
    let (live, fold) = (sim.live.tasks(), sim.shadow.tasks());
    for t in live.all() {
        assert_eq!(live.phase(t), fold.phase(t), "I5: {}", sim.live.graph().id(t));
    }
    if sim.steps.is_multiple_of(16) {
        i5_replay_is_the_live_state(&sim.live, &sim.shadow);
    }
}

/// All that facts say is the same in both; what belongs to one life of an engine may differ.
pub fn i5_replay_is_the_live_state(live: &Machine, fold: &Machine) {
    assert_eq!(live.plan(), fold.plan(), "I5: plan");
    assert_eq!(live.train().cars(), fold.train().cars(), "I5: train");
    assert_eq!(live.questions(), fold.questions(), "I5: questions");
    assert_eq!(live.providers(), fold.providers(), "I5: providers");
    assert_eq!(live.jobs(), fold.jobs(), "I5: jobs");
    assert_eq!(live.is_paused(), fold.is_paused(), "I5: paused");
    assert_eq!(live.is_cancelled(), fold.is_cancelled(), "I5: cancelled");
    assert_eq!(live.revision(), fold.revision(), "I5: revision");
    assert!((live.spent_usd() - fold.spent_usd()).abs() < 1e-9, "I5: money");
    for t in live.tasks().all() {
        let (a, b) = (live.tasks().get(t), fold.tasks().get(t));
        let id = live.graph().id(t);
        assert_eq!(a.phase(), b.phase(), "I5: {id}");
        assert_eq!(a.attempts, b.attempts, "I5: attempts of {id}");
        assert_eq!(a.spent, b.spent, "I5: budgets of {id}");
        assert_eq!(a.landed, b.landed, "I5: landing of {id}");
        assert_eq!(a.chain, b.chain, "I5: chain of {id}");
        assert_eq!(a.reason, b.reason, "I5: reason of {id}");
        assert_eq!(a.last, b.last, "I5: last failure of {id}");
        assert_eq!(
            (a.input_tokens, a.output_tokens),
            (b.input_tokens, b.output_tokens),
            "I5: {id}"
        );
        assert!((a.cost_usd - b.cost_usd).abs() < 1e-9, "I5: cost of {id}");
        assert_eq!(a.current.is_some(), b.current.is_some(), "I5: attempt of {id}");
        let (Some(a), Some(b)) = (&a.current, &b.current) else { continue };
        assert_eq!((a.n, &a.workspace, &a.base), (b.n, &b.workspace, &b.base), "I5: {id}");
        assert_eq!((a.mark, a.ask_mark, a.asked), (b.mark, b.ask_mark, b.asked), "I5: {id}");
        assert_eq!((&a.question, &a.answer), (&b.question, &b.answer), "I5: {id}");
        assert_eq!(
            (&a.ending, &a.evidence, &a.stop),
            (&b.ending, &b.evidence, &b.stop),
            "I5: {id}"
        );
        assert_eq!((a.removed, a.pid), (b.removed, b.pid), "I5: {id}");
    }
}

fn i6_no_agent_lives_without_its_attempt(sim: &Sim<'_>) {
    for (id, attempt) in sim.world.living() {
        let t = sim.live.graph().ix(id.as_str());
        let t = t.unwrap_or_else(|| panic!("I6: an agent of {id} lives, which was dropped"));
        let state = sim.live.tasks().get(t);
        let current = state.current.as_ref().is_some_and(|a| a.n == attempt);
        let phase = state.phase();
        let may = matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking);
        assert!(
            current && may,
            "I6: the agent of {id}/{attempt} lives, the task is {}",
            phase.word()
        );
    }
}

fn i7_nobody_waits_for_what_never_comes(machine: &Machine) {
    let (tasks, graph) = (machine.tasks(), machine.graph());
    for t in tasks.all() {
        let blocker = graph.needs(t).find(|p| blocking(machine, *p));
        let phase = tasks.phase(t);
        if phase.is_idle() {
            assert_eq!(blocker, None, "I7: {} is {}, but can never run", graph.id(t), phase.word());
        }
        let chain = &tasks.get(t).chain;
        if phase != Phase::Blocked || chain.is_empty() {
            continue;
        }
        let say = || format!("I7: {} is blocked by {chain:?}", graph.id(t));
        assert!(blocker.is_some(), "{}, but nothing blocks it", say());
        assert!(chain.len() >= 2 && chain[0] == t, "{}", say());
        let root = chain[chain.len() - 1];
        assert!(blocking(machine, root), "{}, whose end is no obstacle", say());
        let is_root = tasks.phase(root) != Phase::Blocked || tasks.get(root).chain.is_empty();
        assert!(is_root, "{}, whose end is blocked itself", say());
        if chain.len() < mainstem_core::limits::CHAIN_MAX {
            for link in chain.windows(2) {
                assert!(graph.needs(link[0]).any(|p| p == link[1]), "{}, which has a gap", say());
                assert!(blocking(machine, link[1]), "{}, which does not hold", say());
            }
        }
    }
}

fn i9_money_is_counted_once(sim: &Sim<'_>) {
    let counted: f64 = sim.usage.values().sum();
    assert!((counted - sim.live.spent_usd()).abs() < 1e-9, "I9: {counted} was reported");
}

/// All that agents said of money up to their end was counted.
pub fn i9_no_money_is_forgotten(sim: &Sim<'_>) {
    use mainstem_core::machine::Said;
    let mut said = BTreeMap::new();
    for ((task, attempt), agent) in &sim.world.agents {
        for (n, word) in agent.log.iter().enumerate() {
            if let Said::Usage { cost_usd, .. } = word {
                said.insert((task.clone(), *attempt, n as u64 + 1), cost_usd.unwrap_or(0.0));
            }
        }
    }
    assert_eq!(said, sim.usage, "I9: said and counted differ");
}

/// Who could start must have started: the scheduler's promise, computed the slow way.
fn no_slot_idles(sim: &Sim<'_>) {
    let (machine, tasks) = (&sim.live, sim.live.tasks());
    let held = machine.is_paused()
        || machine.is_cancelled()
        || machine.no_room().is_some_and(|short| short.allowance(tasks.slots()) == 0)
        || sim.draining
        || sim.interrupting;
    if held || tasks.slots() >= machine.jobs() {
        return;
    }
    let ready: Vec<TaskIx> =
        tasks.all().filter(|t| tasks.phase(*t) == Phase::Ready && machine.in_scope(*t)).collect();
    for t in ready.iter().copied() {
        let better = |o: &&TaskIx| tasks.rank(**o) < tasks.rank(t);
        let overtaken = ready.iter().filter(better).any(|o| sim.clash[o.ix()][t.ix()]);
        let idles = !overtaken && tasks.get(t).not_before.is_none() && resources_free(sim, t);
        assert!(!idles, "no slot idles: {} could start", machine.graph().id(t));
    }
}

fn resources_free(sim: &Sim<'_>, t: TaskIx) -> bool {
    let (machine, tasks) = (&sim.live, sim.live.tasks());
    let claims = tasks.claims(t);
    let limits = &sim.settings.limits;
    let used = used_slots(tasks);
    let room = |slot, name: &str, map: &BTreeMap<String, u32>| {
        let used = used.get(&(slot, name)).copied().unwrap_or(0);
        map.get(name).is_none_or(|limit| used < *limit)
    };
    let rests = |until: Option<Time>| until.is_some_and(|until| until > sim.now);
    let barrier = sim.settings.schedule.barrier != Barrier::None
        && tasks
            .all()
            .filter(|o| machine.in_scope(*o) && !tasks.phase(*o).is_over())
            .any(|o| tasks.claims(o).group < claims.group);
    let workspace = tasks.all().filter(|o| tasks.claims(*o).unit == claims.unit).any(|o| {
        in_workspace(tasks.phase(o)) || tasks.get(o).current.as_ref().is_some_and(|a| a.removing)
    });
    room(Slot::Provider, &claims.provider, &limits.per_provider)
        && room(Slot::Agent, &claims.agent, &limits.per_agent)
        && claims.role.as_ref().is_none_or(|role| room(Slot::Role, role, &limits.per_role))
        && !rests(machine.providers().get(&claims.provider).and_then(|p| p.until))
        && !barrier
        && !workspace
        && !tasks.active().any(|o| sim.clash[o.ix()][t.ix()])
        && money_left(sim)
}

fn money_left(sim: &Sim<'_>) -> bool {
    let budget = &sim.settings.budget;
    let Some(usd) = budget.usd.filter(|_| budget.hard) else { return true };
    let tasks = sim.live.tasks();
    let spends = |t: &TaskIx| tasks.phase(*t).holds_slot() || tasks.phase(*t) == Phase::Asking;
    let spending = u32::try_from(tasks.all().filter(spends).count()).unwrap();
    let reserved = f64::from(spending) * budget.per_attempt_usd;
    usd - sim.live.spent_usd() - reserved >= budget.per_attempt_usd.max(f64::EPSILON)
}

/// Recovering once more, with nothing new, decides nothing new and asks for the same.
pub fn i10_recovery_is_idempotent(sim: &Sim<'_>, first: &[mainstem_core::effect::Effect]) {
    let mut again = sim.shadow.clone();
    let step = again.step(sim.begin_input(sim.epoch + 1), sim.now);
    let only = matches!(step.facts.as_slice(), [Fact::EngineStarted { .. }]);
    assert!(only, "I10: recovering again decided {:?}", step.facts);
    assert_eq!(step.effects, first, "I10: recovering again asks for something else");
}
