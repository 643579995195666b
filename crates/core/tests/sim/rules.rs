//! What must hold of a machine whatever drives it, each as one function that computes the truth the
//! slow way. A function panics with its name; the runner adds the seed. The simulation of the engine
//! uses this file too, so it knows only the machine.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::config::{Barrier, Settings};
use mainstem_core::glob::may_overlap;
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::{OnFailure, Plan};
use mainstem_core::provider::Standing;
use mainstem_core::schedule::Pick;
use mainstem_core::tasks::{Slot, Tasks};

/// What is looked at.
pub struct Look<'a> {
    /// The machine at work.
    pub live: &'a Machine,
    /// The journal, folded.
    pub shadow: &'a Machine,
    /// The settings in force.
    pub settings: &'a Settings,
    /// Tasks whose files may clash.
    pub clash: &'a [Vec<bool>],
    /// Slots that may be in use although fewer are allowed now.
    pub slots_before: u32,
    /// The time.
    pub now: Time,
    /// Nothing new starts because a task failed.
    pub draining: bool,
    /// Nothing new starts because the engine is to go.
    pub interrupting: bool,
    /// All of the state is compared, not just the phases.
    pub whole: bool,
}

/// Everything that holds between two inputs of a living engine.
pub fn after_step(look: &Look<'_>) {
    i3_no_resource_is_taken_twice(look);
    i4_counters_agree_with_the_phases(look.live);
    i5_replay_gives_the_same_phases(look);
    i7_nobody_waits_for_what_never_comes(look.live);
    no_slot_idles(look);
}

/// Tasks by which declared files may clash.
pub fn clashes(plan: &Plan) -> Vec<Vec<bool>> {
    let clash = |a: &[String], b: &[String]| a.iter().any(|a| b.iter().any(|b| may_overlap(a, b)));
    let row = |a: &[String]| plan.tasks.iter().map(|b| clash(a, &b.writes)).collect();
    plan.tasks.iter().map(|a| row(&a.writes)).collect()
}

pub fn satisfied(machine: &Machine, p: TaskIx) -> bool {
    let phase = machine.tasks().phase(p);
    let passes = machine.plan().tasks[p.ix()].on_failure != OnFailure::Block;
    matches!(phase, Phase::Landed | Phase::Skipped) || (phase.is_over() && passes)
}

fn blocking(machine: &Machine, p: TaskIx) -> bool {
    machine.tasks().phase(p).is_over() && !satisfied(machine, p)
}

fn i3_no_resource_is_taken_twice(look: &Look<'_>) {
    let (machine, tasks) = (look.live, look.live.tasks());
    let limit = machine.jobs().max(look.slots_before);
    assert!(tasks.slots() <= limit, "I3: {} slots in use of {limit}", tasks.slots());
    let limits = &look.settings.limits;
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
            assert!(!look.clash[a.ix()][b.ix()], "I3: {a:?} and {b:?} write the same files");
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
        let current = tasks.get(t).current.as_ref().expect("a slot is held by an attempt");
        *used.entry((Slot::Provider, current.provider.as_str())).or_default() += 1;
        *used.entry((Slot::Agent, current.agent.as_str())).or_default() += 1;
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

fn i5_replay_gives_the_same_phases(look: &Look<'_>) {
    let (live, fold) = (look.live.tasks(), look.shadow.tasks());
    for t in live.all() {
        assert_eq!(live.phase(t), fold.phase(t), "I5: {}", look.live.graph().id(t));
    }
    if look.whole {
        i5_replay_is_the_live_state(look.live, look.shadow);
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
    assert!((live.reserved_usd() - fold.reserved_usd()).abs() < 1e-9, "I5: money set aside");
    for agent in live.settings().agents.keys() {
        let expected = |machine: &Machine| machine.expected_usd(agent, None);
        assert!((expected(live) - expected(fold)).abs() < 1e-9, "I5: money to set aside");
    }
    assert_eq!(live.proposals(), fold.proposals(), "I5: proposals");
    assert_eq!(live.issues(), fold.issues(), "I5: issues");
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
        assert_eq!(a.reviews, b.reviews, "I5: reviews of {id}");
        assert_eq!((&a.kept, a.fresh), (&b.kept, b.fresh), "I5: work of {id}");
        assert_eq!((&a.hint, &a.agent), (&b.hint, &b.agent), "I5: wishes for {id}");
        assert_eq!((&a.session, &a.help), (&b.session, &b.help), "I5: session of {id}");
        assert_eq!(a.budget_told, b.budget_told, "I5: warnings of {id}");
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
        assert_eq!(a.review, b.review, "I5: review of {id}");
        assert_eq!((&a.agent, &a.model, &a.session), (&b.agent, &b.model, &b.session), "I5: {id}");
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

/// Who could start must have started: the scheduler's promise, computed the slow way.
fn no_slot_idles(look: &Look<'_>) {
    let (machine, tasks) = (look.live, look.live.tasks());
    let held = machine.is_paused()
        || machine.is_cancelled()
        || machine.no_room().is_some_and(|short| short.allowance(tasks.slots()) == 0)
        || look.draining
        || look.interrupting;
    if held || tasks.slots() >= machine.jobs() {
        return;
    }
    let ready: Vec<TaskIx> =
        tasks.all().filter(|t| tasks.phase(*t) == Phase::Ready && machine.in_scope(*t)).collect();
    for t in ready.iter().copied() {
        let better = |o: &&TaskIx| tasks.rank(**o) < tasks.rank(t);
        let overtaken = ready.iter().filter(better).any(|o| look.clash[o.ix()][t.ix()]);
        let idles = !overtaken && tasks.get(t).not_before.is_none() && resources_free(look, t);
        assert!(!idles, "no slot idles: {} could start", machine.graph().id(t));
    }
}

fn resources_free(look: &Look<'_>, t: TaskIx) -> bool {
    let (machine, tasks) = (look.live, look.live.tasks());
    let claims = tasks.claims(t);
    let limits = &look.settings.limits;
    let used = used_slots(tasks);
    let room = |slot, name: &str, map: &BTreeMap<String, u32>| {
        let used = used.get(&(slot, name)).copied().unwrap_or(0);
        map.get(name).is_none_or(|limit| used < *limit)
    };
    let auto_resume = limits.auto_resume;
    let known = |provider: &str| machine.providers().get(provider);
    let lets_in = |agent: &str, provider: &str| {
        let standing =
            known(provider).map_or(Standing::Free, |p| p.standing(look.now, auto_resume));
        let open = match standing {
            Standing::Free => true,
            Standing::Ramps(most) => {
                used.get(&(Slot::Provider, provider)).copied().unwrap_or(0) < most
            }
            Standing::Rests => false,
        };
        open && room(Slot::Provider, provider, &limits.per_provider)
            && room(Slot::Agent, agent, &limits.per_agent)
    };
    let named = tasks.get(t).agent.clone().filter(|name| *name != claims.agent);
    let named =
        named.and_then(|name| Some((look.settings.agents.get(&name)?.provider_of(&name), name)));
    let (own_provider, own) = named.unwrap_or((claims.provider.clone(), claims.agent.clone()));
    let rests = known(&own_provider).and_then(|p| p.rests_until(look.now, auto_resume));
    let long = rests.is_some_and(|until| {
        until.is_none_or(|until| until.since_ms(look.now) >= limits.fallback_after_ms)
    });
    let entry = look.settings.agents.get(&own);
    let stand_ins = entry.filter(|_| long).into_iter().flat_map(|entry| &entry.fallback);
    let mut stand_ins = stand_ins.map(|name| (name, look.settings.agents[name].provider_of(name)));
    let somebody = lets_in(&own, &own_provider)
        || stand_ins.any(|(agent, provider)| lets_in(agent, &provider));
    let barrier = look.settings.schedule.barrier != Barrier::None
        && tasks
            .all()
            .filter(|o| machine.in_scope(*o) && !tasks.phase(*o).is_over())
            .any(|o| tasks.claims(o).group < claims.group);
    let workspace = tasks.all().filter(|o| tasks.claims(*o).unit == claims.unit).any(|o| {
        in_workspace(tasks.phase(o)) || tasks.get(o).current.as_ref().is_some_and(|a| a.removing)
    });
    let asks = machine.questions().iter().any(|q| q.task == t && !q.is_about_work());
    somebody
        && !asks
        && machine.quiet_until().is_none()
        && claims.role.as_ref().is_none_or(|role| room(Slot::Role, role, &limits.per_role))
        && !barrier
        && !workspace
        && !tasks.active().any(|o| look.clash[o.ix()][t.ix()])
        && money_left(look, t)
}

/// Is there money for this task, whoever works on it?
fn money_left(look: &Look<'_>, task: TaskIx) -> bool {
    let budget = &look.settings.budget;
    let Some(usd) = budget.usd.filter(|_| budget.hard) else { return true };
    let tasks = look.live.tasks();
    let set_aside = |t| tasks.get(t).current.as_ref().map_or(0.0, |attempt| attempt.reserved_usd);
    let reserved: f64 = tasks.active().map(set_aside).sum();
    // Averages are not exact: what is a hair's breadth from enough may count as too little.
    let dearest = look.settings.agents.iter().map(|(name, agent)| {
        let (provider, agent) = (agent.provider_of(name), name.clone());
        look.live.expected_of(&Pick { task, agent, provider, stands_in: false })
    });
    let expected = dearest.fold(f64::EPSILON, f64::max);
    usd - look.live.spent_usd() - reserved >= expected + 1e-6
}
