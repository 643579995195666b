//! What must hold of a machine whatever drives it, each as one function that computes the truth the
//! slow way. A function panics with its name; the runner adds the seed. The simulation of the engine
//! uses this file too, so it knows only the machine.

use std::collections::{BTreeMap, BTreeSet};

use mainstem_core::config::{ScheduleBarrier, Settings};
use mainstem_core::glob::globs_may_overlap;
use mainstem_core::id::{TaskIx, Time};
use mainstem_core::machine::Machine;
use mainstem_core::phase::{PHASES, Phase};
use mainstem_core::plan::{Plan, TaskFailureAction};
use mainstem_core::provider::ProviderStanding;
use mainstem_core::schedule::ScheduledStart;
use mainstem_core::tasks::{SlotKind, TaskTable};

/// What is looked at.
pub struct Look<'a> {
    /// The machine at work.
    pub live: &'a Machine,
    pub shadow: &'a Machine,
    /// The settings in force.
    pub settings: &'a Settings,
    /// Tasks whose files may clash.
    pub clash: &'a [Vec<bool>],
    /// Slots that may be in use although fewer are allowed now.
    pub slots_before: u32,
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
    let clash =
        |a: &[String], b: &[String]| a.iter().any(|a| b.iter().any(|b| globs_may_overlap(a, b)));
    let row = |a: &[String]| plan.tasks.iter().map(|b| clash(a, &b.writes)).collect();
    plan.tasks.iter().map(|a| row(&a.writes)).collect()
}

pub fn satisfied(machine: &Machine, p: TaskIx) -> bool {
    let phase = machine.tasks().phase(p);
    let passes = machine.plan().tasks[p.index()].on_failure != TaskFailureAction::Block;
    matches!(phase, Phase::Landed | Phase::Skipped) || (phase.is_over() && passes)
}

fn blocking(machine: &Machine, p: TaskIx) -> bool {
    machine.tasks().phase(p).is_over() && !satisfied(machine, p)
}

fn i3_no_resource_is_taken_twice(look: &Look<'_>) {
    let (machine, tasks) = (look.live, look.live.tasks());
    let limit = machine.job_limit().max(look.slots_before);
    assert!(tasks.slots_in_use() <= limit, "I3: {} slots in use of {limit}", tasks.slots_in_use());
    let limits = &look.settings.limits;
    let used = used_slots(tasks);
    for (slot, map) in [
        (SlotKind::Provider, &limits.per_provider),
        (SlotKind::Agent, &limits.per_agent),
        (SlotKind::Role, &limits.per_role),
    ] {
        for (name, limit) in map {
            let used = used.get(&(slot, name.as_str())).copied().unwrap_or(0);
            assert!(used <= *limit, "I3: {used} {slot:?} slots of {name} in use of {limit}");
        }
    }
    let active: Vec<TaskIx> = tasks.active_tasks().collect();
    for (n, a) in active.iter().enumerate() {
        for b in &active[n + 1..] {
            assert!(!look.clash[a.index()][b.index()], "I3: {a:?} and {b:?} write the same files");
            let same = tasks.resources(*a).workspace_key == tasks.resources(*b).workspace_key;
            let at_once = in_workspace(tasks.phase(*a)) && in_workspace(tasks.phase(*b));
            assert!(!(same && at_once), "I3: {a:?} and {b:?} are in one workspace");
        }
    }
}

fn in_workspace(phase: Phase) -> bool {
    matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking | Phase::Verifying)
}

fn used_slots(tasks: &TaskTable) -> BTreeMap<(SlotKind, &str), u32> {
    let mut used = BTreeMap::new();
    for t in tasks.all_tasks().filter(|t| tasks.phase(*t).holds_slot()) {
        let claims = tasks.resources(t);
        let current = tasks.get(t).current.as_ref().expect("a slot is held by an attempt");
        *used.entry((SlotKind::Provider, current.provider.as_str())).or_default() += 1;
        *used.entry((SlotKind::Agent, current.agent.as_str())).or_default() += 1;
        if let Some(role) = &claims.role {
            *used.entry((SlotKind::Role, role.as_str())).or_default() += 1;
        }
    }
    used
}

fn i4_counters_agree_with_the_phases(machine: &Machine) {
    let tasks = machine.tasks();
    let mut counts = [0; PHASES.len()];
    let (mut slots, mut active, mut ready) = (0, BTreeSet::new(), BTreeSet::new());
    for t in tasks.all_tasks() {
        let phase = tasks.phase(t);
        counts[phase as usize] += 1;
        slots += u32::from(phase.holds_slot());
        if phase.is_active() {
            active.insert(t);
        }
        let free = machine.graph().needs(t).all(|p| satisfied(machine, p))
            && machine.graph().soft_needs(t).all(|p| tasks.phase(p).is_over());
        if phase.is_idle() {
            let wanted = if free { Phase::Ready } else { Phase::Waiting };
            assert_eq!(phase, wanted, "I4: {}", machine.graph().id(t));
        }
        if phase == Phase::Ready && tasks.get(t).not_before.is_none() {
            ready.insert(t);
        }
        let unit = tasks.resources(t).workspace_key;
        if in_workspace(phase) {
            assert!(tasks.is_workspace_in_use(unit), "I4: the workspace of {t:?} counts as free");
        }
    }
    for phase in PHASES {
        assert_eq!(
            tasks.count_in_phase(phase),
            counts[phase as usize],
            "I4: count of {}",
            phase.as_str()
        );
    }
    assert_eq!(tasks.slots_in_use(), slots, "I4: slots");
    assert_eq!(tasks.active_tasks().collect::<BTreeSet<_>>(), active, "I4: active");
    let queued: BTreeSet<TaskIx> = tasks.ready_by_agent().flat_map(|(_, queue)| queue).collect();
    assert_eq!(queued, ready, "I4: ready");
    for ((slot, name), used) in used_slots(tasks) {
        assert_eq!(tasks.named_slots_in_use(slot, name), used, "I4: {slot:?} {name}");
    }
}

fn i5_replay_gives_the_same_phases(look: &Look<'_>) {
    let (live, fold) = (look.live.tasks(), look.shadow.tasks());
    for t in live.all_tasks() {
        assert_eq!(live.phase(t), fold.phase(t), "I5: {}", look.live.graph().id(t));
    }
    if look.whole {
        i5_replay_is_the_live_state(look.live, look.shadow);
    }
}

/// All that facts say is the same in both; what belongs to one life of an engine may differ.
pub fn i5_replay_is_the_live_state(live: &Machine, fold: &Machine) {
    assert_eq!(live.plan(), fold.plan(), "I5: plan");
    assert_eq!(live.train().candidates(), fold.train().candidates(), "I5: train");
    assert_eq!(live.open_questions(), fold.open_questions(), "I5: questions");
    assert_eq!(live.providers(), fold.providers(), "I5: providers");
    assert_eq!(live.job_limit(), fold.job_limit(), "I5: jobs");
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
    assert_eq!(live.reported_issues(), fold.reported_issues(), "I5: issues");
    for t in live.tasks().all_tasks() {
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
        assert_eq!((&a.kept_work, a.fresh), (&b.kept_work, b.fresh), "I5: work of {id}");
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
    for t in tasks.all_tasks() {
        let blocker = graph.needs(t).find(|p| blocking(machine, *p));
        let phase = tasks.phase(t);
        if phase.is_idle() {
            assert_eq!(
                blocker,
                None,
                "I7: {} is {}, but can never run",
                graph.id(t),
                phase.as_str()
            );
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
        || machine
            .capacity_shortage()
            .is_some_and(|short| short.allowed_starts(tasks.slots_in_use()) == 0)
        || look.draining
        || look.interrupting;
    if held || tasks.slots_in_use() >= machine.job_limit() {
        return;
    }
    let ready: Vec<TaskIx> = tasks
        .all_tasks()
        .filter(|t| tasks.phase(*t) == Phase::Ready && machine.is_in_scope(*t))
        .collect();
    for t in ready.iter().copied() {
        let better = |o: &&TaskIx| tasks.rank(**o) < tasks.rank(t);
        let overtaken = ready.iter().filter(better).any(|o| look.clash[o.index()][t.index()]);
        let idles = !overtaken && tasks.get(t).not_before.is_none() && resources_free(look, t);
        assert!(!idles, "no slot idles: {} could start", machine.graph().id(t));
    }
}

fn resources_free(look: &Look<'_>, t: TaskIx) -> bool {
    let (machine, tasks) = (look.live, look.live.tasks());
    let claims = tasks.resources(t);
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
            known(provider).map_or(ProviderStanding::Free, |p| p.standing(look.now, auto_resume));
        let open = match standing {
            ProviderStanding::Free => true,
            ProviderStanding::Ramps(most) => {
                used.get(&(SlotKind::Provider, provider)).copied().unwrap_or(0) < most
            }
            ProviderStanding::Rests => false,
        };
        open && room(SlotKind::Provider, provider, &limits.per_provider)
            && room(SlotKind::Agent, agent, &limits.per_agent)
    };
    let named = tasks.get(t).agent.clone().filter(|name| *name != claims.agent);
    let named =
        named.and_then(|name| Some((look.settings.agents.get(&name)?.provider_name(&name), name)));
    let (own_provider, own) = named.unwrap_or((claims.provider.clone(), claims.agent.clone()));
    let rests = known(&own_provider).and_then(|p| p.rests_until(look.now, auto_resume));
    let long = rests.is_some_and(|until| {
        until.is_none_or(|until| until.since_ms(look.now) >= limits.fallback_after_ms)
    });
    let entry = look.settings.agents.get(&own);
    let stand_ins = entry.filter(|_| long).into_iter().flat_map(|entry| &entry.fallback);
    let mut stand_ins =
        stand_ins.map(|name| (name, look.settings.agents[name].provider_name(name)));
    let somebody = lets_in(&own, &own_provider)
        || stand_ins.any(|(agent, provider)| lets_in(agent, &provider));
    let barrier = look.settings.schedule.barrier != ScheduleBarrier::None
        && tasks
            .all_tasks()
            .filter(|o| machine.is_in_scope(*o) && !tasks.phase(*o).is_over())
            .any(|o| tasks.resources(o).group < claims.group);
    let workspace = tasks
        .all_tasks()
        .filter(|o| tasks.resources(*o).workspace_key == claims.workspace_key)
        .any(|o| {
            in_workspace(tasks.phase(o))
                || tasks.get(o).current.as_ref().is_some_and(|a| a.removing)
        });
    let asks = machine.open_questions().iter().any(|q| q.task == t && !q.is_about_work());
    somebody
        && !asks
        && machine.quiet_until().is_none()
        && claims.role.as_ref().is_none_or(|role| room(SlotKind::Role, role, &limits.per_role))
        && !barrier
        && !workspace
        && !tasks.active_tasks().any(|o| look.clash[o.index()][t.index()])
        && money_left(look, t)
}

/// Is there money for this task, whoever works on it?
fn money_left(look: &Look<'_>, task: TaskIx) -> bool {
    let budget = &look.settings.budget;
    let Some(usd) = budget.usd.filter(|_| budget.hard) else { return true };
    let tasks = look.live.tasks();
    let set_aside = |t| tasks.get(t).current.as_ref().map_or(0.0, |attempt| attempt.reserved_usd);
    let reserved: f64 = tasks.active_tasks().map(set_aside).sum();
    // Averages are not exact: what is a hair's breadth from enough may count as too little.
    let dearest = look.settings.agents.iter().map(|(name, agent)| {
        let (provider, agent) = (agent.provider_name(name), name.clone());
        look.live.expected_usd_of_start(&ScheduledStart { task, agent, provider, stands_in: false })
    });
    let expected = dearest.fold(f64::EPSILON, f64::max);
    usd - look.live.spent_usd() - reserved >= expected + 1e-6
}
