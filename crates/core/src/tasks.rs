//! Where all tasks stand: one map, one setter. Counters, the ready queue, occupied slots and the
//! readiness of dependents change only in [`TaskTable::set_phase`], so they cannot drift from the phases.

mod barrier_groups;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::attempt_policy::RetryCounts;
use crate::attempt_work::{AttemptWork, ContinuedWork};
use crate::config::Settings;
use crate::conflict::TargetConflict;
use crate::effect::LastFailure;
use crate::fact::{AgentClaim, AgentEnding, AgentFault, Evidence, StopFollowUp};
use crate::failed_gate::FailedGate;
use crate::graph::Graph;
use crate::hold::HoldReason;
use crate::id::{Oid, TaskIx, Time};
pub use crate::landing::TaskLanding;
use crate::phase::{PHASES, Phase};
use crate::plan::{Plan, TaskFailureAction};
pub use crate::question::{EarlyAnswer, PendingAnswer};
use crate::review;
use crate::workspace_key::workspace_name;

use self::barrier_groups::barrier_groups;

/// All that is known of one task.
#[derive(Debug, Clone)]
pub struct TaskState {
    phase: Phase,
    /// Attempts intended so far.
    pub attempts: u32,
    /// The attempt under way, or the last one while its workspace stands.
    pub current: Option<AttemptState>,
    /// Not to be started before.
    pub not_before: Option<Time>,
    pub spent: RetryCounts,
    /// Money over all attempts.
    pub cost_usd: f64,
    /// What a subscription paid for, at its worth.
    pub included_usd: f64,
    /// Percent of its own budget that people were told of.
    pub budget_told: u32,
    /// The last session an agent of it named: the agent and the session.
    pub session: Option<(String, String)>,
    /// The command that helps, when it failed.
    pub help: Option<String>,
    /// Tokens read over all attempts.
    pub input_tokens: u64,
    /// Tokens written over all attempts.
    pub output_tokens: u64,
    /// Milliseconds agents worked, over all ended attempts.
    pub agent_ms: u64,
    /// The landing, once there is one.
    pub landed: Option<TaskLanding>,
    /// Landings that were taken back.
    pub undone: Vec<Oid>,
    /// Why it stands where it stands.
    pub reason: String,
    /// From this task to the one that blocks it.
    pub chain: Vec<TaskIx>,
    /// Why the attempt before did not lead on.
    pub last: Option<LastFailure>,
    /// The check that its newest attempt did not pass.
    pub failed_gate: Option<Box<FailedGate>>,
    /// Its work clashed with the target branch, and has not landed since.
    pub conflict: Option<TargetConflict>,
    /// Questions of all its attempts that were answered, with the answers; the last ones.
    pub answered: Vec<(String, String)>,
    /// Answers that no agent has been given yet.
    pub early_answers: Vec<EarlyAnswer>,
    /// What the last attempt left that did not land: the next one starts from it.
    pub kept_work: Option<AttemptWork>,
    /// The target branch's commit that its work began on, over all attempts at one pull request.
    pub origin: Option<Oid>,
    /// What a person said when they last wanted it tried again.
    pub hint: Option<String>,
    /// Who works on it instead of its own agent, because a person said so.
    pub agent: Option<String>,
    /// A person wants it done from the beginning.
    pub fresh: bool,
    pub snapshot: Option<(String, Oid)>,
    /// When it got into its phase.
    pub since: Time,
    /// When its first attempt started.
    pub started_at: Option<Time>,
    /// Landings up to this one are surely in what its work began with.
    pub began_after: u64,
    /// What reviewers and people said of its work.
    pub reviews: review::ReviewHistory,
    /// Guarded files of its work that a person accepted: path and content.
    pub accepted: BTreeSet<(String, Option<Oid>)>,
}

/// All that is known of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptState {
    pub n: u32,
    pub agent: String,
    /// Whose quota that uses.
    pub provider: String,
    pub model: Option<String>,
    pub model_reason: String,
    /// The session of an earlier attempt that it takes up.
    pub session: Option<String>,
    /// The work of an earlier attempt that it starts from.
    pub continues: Option<AttemptWork>,
    /// What its workspace held of that when it was made.
    pub continued: Option<ContinuedWork>,
    /// It starts over on purpose.
    pub fresh: bool,
    /// Landings when it was intended.
    pub landings_seen: u64,
    /// The branch it works on.
    pub branch: String,
    /// Where; none until the workspace stands.
    pub workspace: Option<String>,
    /// Where the workspace of an earlier attempt still stands, until this one has its own.
    pub previous_workspace: Option<String>,
    /// The commit it starts from.
    pub base: Option<Oid>,
    pub pid: Option<u32>,
    /// When the agent was seen alive.
    pub started_at: Option<Time>,
    /// When the attempt was intended.
    pub intended_at: Time,
    /// When the agent was gone.
    pub ended_at: Option<Time>,
    /// Output up to here has been taken note of.
    pub mark: u64,
    /// Questions up to here have been taken note of.
    pub ask_mark: u64,
    /// Questions whose answering agent was paid for.
    pub consulted: Vec<String>,
    /// Its provider answered it.
    pub answered: bool,
    /// What it cost so far.
    pub cost_usd: f64,
    /// Questions asked so far.
    pub asked: u32,
    /// The open or just answered question: name and number, and how the asker calls it.
    pub question: Option<(String, u32, Option<String>)>,
    pub answer: Option<String>,
    /// All answers that may go to the agent.
    pub answers: Vec<PendingAnswer>,
    /// How the agent ended, and what it claimed.
    pub ending: Option<(AgentEnding, AgentClaim)>,
    pub evidence: Option<Evidence>,
    /// The wish that it ends.
    pub stop: Option<(StopFollowUp, String)>,
    pub reserved_usd: f64,
    /// The end of the output of the gate that said no.
    pub gate_output: String,
    pub conflict_files: Vec<String>,
    /// Its workspace is gone for good.
    pub removed: bool,
    /// Its branch stayed when its workspace went.
    pub branch_kept: bool,
    /// Its workspace is being removed in this life of the engine.
    pub removing: bool,
    /// When its work was last put on a hidden ref.
    pub snapshot_at: Option<Time>,
    pub snapshot: Option<Oid>,
    /// The review of its work.
    pub review: Option<review::ReviewProgress>,
    /// Why its work does not land for now, and since when.
    pub holds: Vec<(HoldReason, Time)>,
}

impl AttemptState {
    /// What lay behind its end: a failure that was named, or silence.
    pub fn end_fault(&self) -> Option<AgentFault> {
        match &self.ending {
            Some((AgentEnding::TimedOut { idle: true }, _)) => Some(AgentFault::Stalled),
            Some((_, AgentClaim::Failed { fault, .. })) => Some(*fault),
            _ => None,
        }
    }

    /// An attempt that was just intended.
    pub fn new(n: u32, intended_at: Time) -> Self {
        Self {
            n,
            agent: String::new(),
            provider: String::new(),
            model: None,
            model_reason: String::new(),
            session: None,
            continues: None,
            continued: None,
            fresh: false,
            landings_seen: 0,
            branch: String::new(),
            workspace: None,
            previous_workspace: None,
            base: None,
            pid: None,
            started_at: None,
            intended_at,
            ended_at: None,
            mark: 0,
            ask_mark: 0,
            consulted: Vec::new(),
            answered: false,
            cost_usd: 0.0,
            asked: 0,
            question: None,
            answer: None,
            answers: Vec::new(),
            ending: None,
            evidence: None,
            stop: None,
            reserved_usd: 0.0,
            gate_output: String::new(),
            conflict_files: Vec::new(),
            removed: false,
            branch_kept: false,
            removing: false,
            snapshot_at: None,
            snapshot: None,
            review: None,
            holds: Vec::new(),
        }
    }
}

impl TaskState {
    fn new() -> Self {
        Self {
            phase: Phase::Waiting,
            attempts: 0,
            current: None,
            not_before: None,
            spent: RetryCounts::default(),
            cost_usd: 0.0,
            included_usd: 0.0,
            budget_told: 0,
            session: None,
            help: None,
            input_tokens: 0,
            output_tokens: 0,
            agent_ms: 0,
            landed: None,
            undone: Vec::new(),
            reason: String::new(),
            chain: Vec::new(),
            last: None,
            failed_gate: None,
            conflict: None,
            answered: Vec::new(),
            early_answers: Vec::new(),
            kept_work: None,
            origin: None,
            hint: None,
            agent: None,
            fresh: false,
            snapshot: None,
            since: Time(0),
            started_at: None,
            began_after: 0,
            reviews: review::ReviewHistory::default(),
            accepted: BTreeSet::new(),
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }
}

/// What a task competes for; fixed by plan and settings.
#[derive(Debug, Clone)]
pub struct TaskResources {
    /// Who would work on it.
    pub agent: String,
    /// Whose quota that uses.
    pub provider: String,
    /// Which model, if one is set.
    pub model: Option<String>,
    pub role: Option<String>,
    /// What shares its workspace: tasks with the same number never run at once.
    pub workspace_key: u32,
    /// Its group for the barrier.
    pub group: u32,
}

/// How others see a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyStanding {
    Open,
    /// Those that need it may run.
    Satisfied,
    /// Those that need it cannot run.
    Blocking,
}

type ReadyKey = (Reverse<i64>, Reverse<u64>, TaskIx);

/// All tasks of a plan.
#[derive(Debug, Clone)]
pub struct TaskTable {
    states: Vec<TaskState>,
    claims: Vec<TaskResources>,
    on_failure: Vec<TaskFailureAction>,
    rank: Vec<(i64, u64)>,
    unmet: Vec<u32>,
    stacks: Vec<bool>,
    blockers: Vec<u32>,
    in_phase: [u32; PHASES.len()],
    slots: u32,
    slots_by: BTreeMap<(SlotKind, String), u32>,
    units: BTreeMap<u32, u32>,
    open_in_group: BTreeMap<u32, u32>,
    open_in_unit: Vec<u32>,
    active: BTreeSet<TaskIx>,
    ready: BTreeMap<String, BTreeSet<ReadyKey>>,
    delayed: BTreeSet<(Time, TaskIx)>,
    suspects: Vec<TaskIx>,
    removals: BTreeMap<u32, u32>,
}

/// Kinds of named slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotKind {
    Provider,
    Agent,
    Role,
}

impl TaskTable {
    /// All tasks of a plan, none begun.
    pub fn new(plan: &Plan, graph: &Graph, settings: &Settings) -> Self {
        let weight = |t: TaskIx| plan.tasks[t.index()].effort.weight();
        let tails = graph.longest_tails(weight);
        let count = plan.tasks.len();
        let mut tasks = Self {
            states: vec![TaskState::new(); count],
            claims: compute_resources(plan, graph, settings),
            on_failure: plan.tasks.iter().map(|t| t.on_failure).collect(),
            rank: plan.tasks.iter().zip(&tails).map(|(t, tail)| (t.priority, *tail)).collect(),
            unmet: vec![0; count],
            stacks: vec![false; count],
            blockers: vec![0; count],
            in_phase: [0; PHASES.len()],
            slots: 0,
            slots_by: BTreeMap::new(),
            units: BTreeMap::new(),
            open_in_group: BTreeMap::new(),
            open_in_unit: vec![0; count + 1],
            active: BTreeSet::new(),
            ready: BTreeMap::new(),
            delayed: BTreeSet::new(),
            suspects: Vec::new(),
            removals: BTreeMap::new(),
        };
        for t in tasks.all_tasks() {
            let edges = graph.needs(t).count() + graph.soft_needs(t).count();
            tasks.unmet[t.index()] = u32::try_from(edges).unwrap_or(u32::MAX);
            *tasks.open_in_group.entry(tasks.claims[t.index()].group).or_default() += 1;
            tasks.open_in_unit[tasks.claims[t.index()].workspace_key as usize] += 1;
            tasks.enter_phase(t, Phase::Waiting);
        }
        for t in tasks.all_tasks() {
            tasks.update_readiness(t);
        }
        tasks
    }

    /// Every task, in plan order.
    pub fn all_tasks(&self) -> impl Iterator<Item = TaskIx> + use<> {
        (0..u32::try_from(self.states.len()).expect("BUG: plans are capped far below u32"))
            .map(TaskIx)
    }
    /// What is known of a task.
    pub fn get(&self, t: TaskIx) -> &TaskState {
        &self.states[t.index()]
    }
    /// The same, to note something; the phase moves only by [`Self::set_phase`].
    pub fn state_mut(&mut self, t: TaskIx) -> &mut TaskState {
        &mut self.states[t.index()]
    }
    /// Takes over what an earlier revision of the plan knew of a task; its phase is set apart.
    pub fn restore_state(&mut self, t: TaskIx, known: TaskState) {
        let phase = self.states[t.index()].phase;
        if phase == Phase::Ready {
            self.leave_phase(t, phase);
        }
        self.states[t.index()] = TaskState { phase, ..known };
        if let Some(current) = &mut self.states[t.index()].current
            && std::mem::take(&mut current.removing)
        {
            self.begin_workspace_removal(t);
        }
        if phase == Phase::Ready {
            self.enter_phase(t, phase);
        }
    }
    /// Where a task stands.
    pub fn phase(&self, t: TaskIx) -> Phase {
        self.states[t.index()].phase
    }
    /// What a task competes for.
    pub fn resources(&self, t: TaskIx) -> &TaskResources {
        &self.claims[t.index()]
    }
    /// How many stand in a phase.
    pub fn count_in_phase(&self, phase: Phase) -> u32 {
        self.in_phase[phase as usize]
    }
    /// Agents' slots in use.
    pub fn slots_in_use(&self) -> u32 {
        self.slots
    }
    /// Named slots in use.
    pub fn named_slots_in_use(&self, slot: SlotKind, name: &str) -> u32 {
        self.slots_by.get(&(slot, name.to_owned())).copied().unwrap_or(0)
    }
    /// Is this workspace in use?
    pub fn is_workspace_in_use(&self, unit: u32) -> bool {
        self.units.get(&unit).is_some_and(|holders| *holders > 0)
    }
    /// Will any task still want this workspace?
    pub fn is_workspace_needed(&self, unit: u32) -> bool {
        self.open_in_unit[unit as usize] > 0
    }
    /// The workspace of a task is being removed in this life of the engine.
    pub fn begin_workspace_removal(&mut self, t: TaskIx) {
        if let Some(current) = &mut self.states[t.index()].current
            && !std::mem::replace(&mut current.removing, true)
        {
            *self.removals.entry(self.claims[t.index()].workspace_key).or_default() += 1;
        }
    }
    /// It is gone, or stays.
    pub fn end_workspace_removal(&mut self, t: TaskIx) {
        if let Some(current) = &mut self.states[t.index()].current
            && std::mem::take(&mut current.removing)
            && let Some(count) = self.removals.get_mut(&self.claims[t.index()].workspace_key)
        {
            *count -= 1;
        }
    }
    /// Is this workspace being removed, for any of the tasks that share it?
    pub fn is_workspace_being_removed(&self, unit: u32) -> bool {
        self.removals.get(&unit).is_some_and(|count| *count > 0)
    }
    /// Is any workspace being removed?
    pub fn is_any_workspace_being_removed(&self) -> bool {
        self.removals.values().any(|count| *count > 0)
    }
    /// The first group with tasks that are not over: later groups wait at a barrier.
    pub fn current_group(&self) -> u32 {
        self.open_in_group.keys().next().copied().unwrap_or(u32::MAX)
    }
    /// Tasks with an attempt under way.
    pub fn active_tasks(&self) -> impl Iterator<Item = TaskIx> + '_ {
        self.active.iter().copied()
    }
    /// Ready tasks of each agent, best first; delayed ones are not among them.
    pub fn ready_by_agent(
        &self,
    ) -> impl Iterator<Item = (&str, impl Iterator<Item = TaskIx> + '_)> {
        self.ready.iter().map(|(agent, keys)| (agent.as_str(), keys.iter().map(|key| key.2)))
    }
    /// Rank of a task among ready ones: smaller goes first.
    pub fn rank(&self, t: TaskIx) -> impl Ord + use<> {
        let (priority, tail) = self.rank[t.index()];
        (Reverse(priority), Reverse(tail), t)
    }
    /// How important a task is.
    pub fn priority(&self, t: TaskIx) -> i64 {
        self.rank[t.index()].0
    }
    /// When the next delayed task may start.
    pub fn next_delayed_at(&self) -> Option<Time> {
        self.delayed.first().map(|(at, _)| *at)
    }
    /// Lets delayed tasks in whose time has come.
    pub fn release_delayed(&mut self, now: Time) {
        while let Some((at, t)) = self.delayed.first().copied() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            self.states[t.index()].not_before = None;
            if self.phase(t) == Phase::Ready {
                self.queue_ready(t);
            }
        }
    }
    /// Tasks whose blocking may have changed since the last call.
    pub fn take_blocking_changes(&mut self) -> Vec<TaskIx> {
        std::mem::take(&mut self.suspects)
    }
    /// What blocks this task is another one now: those that need it tell so too.
    pub fn mark_dependents_changed(&mut self, t: TaskIx, graph: &Graph) {
        self.suspects.extend(graph.dependents(t));
    }
    /// Does something it needs stand in the way for good?
    pub fn is_blocked(&self, t: TaskIx) -> bool {
        self.blockers[t.index()] > 0
    }
    /// Does this task stand in the way of those that need it?
    pub fn is_blocking(&self, t: TaskIx) -> bool {
        self.standing_in_phase(t, self.phase(t)) == DependencyStanding::Blocking
    }
    /// Do those that need it still wait for it?
    pub fn is_undecided(&self, t: TaskIx) -> bool {
        self.standing_in_phase(t, self.phase(t)) == DependencyStanding::Open
    }

    /// Is everything there that comes before it?
    pub fn has_prerequisites(&self, t: TaskIx) -> bool {
        self.unmet[t.index()] == 0
    }
    /// Whether it may start although not everything before it has landed: on what is offered.
    pub fn set_stackable(&mut self, t: TaskIx, may: bool) {
        if self.stacks[t.index()] != may {
            self.stacks[t.index()] = may;
            self.update_readiness(t);
        }
    }

    fn standing_in_phase(&self, t: TaskIx, phase: Phase) -> DependencyStanding {
        match phase {
            Phase::Landed | Phase::Skipped => DependencyStanding::Satisfied,
            Phase::Conflicted | Phase::Failed | Phase::Blocked | Phase::Cancelled => {
                match self.on_failure[t.index()] {
                    TaskFailureAction::Block => DependencyStanding::Blocking,
                    TaskFailureAction::Continue | TaskFailureAction::Skip => {
                        DependencyStanding::Satisfied
                    }
                }
            }
            Phase::Waiting
            | Phase::Ready
            | Phase::Preparing
            | Phase::Working
            | Phase::Asking
            | Phase::Verifying
            | Phase::Merging => DependencyStanding::Open,
        }
    }

    /// Moves a task. The one place where phases change.
    pub fn set_phase(&mut self, t: TaskIx, to: Phase, graph: &Graph, now: Time) {
        let from = self.phase(t);
        if from == to {
            return;
        }
        self.leave_phase(t, from);
        self.enter_phase(t, to);
        self.states[t.index()].since = now;
        self.update_group(t, from.is_over(), to.is_over());
        let (before, after) = (self.standing_in_phase(t, from), self.standing_in_phase(t, to));
        if before != after {
            for d in graph.dependents(t) {
                if before == DependencyStanding::Satisfied {
                    self.unmet[d.index()] += 1;
                }
                if after == DependencyStanding::Satisfied {
                    self.unmet[d.index()] -= 1;
                }
                if before == DependencyStanding::Blocking {
                    self.blockers[d.index()] -= 1;
                    self.suspects.push(d);
                }
                if after == DependencyStanding::Blocking {
                    self.blockers[d.index()] += 1;
                    self.suspects.push(d);
                }
                self.update_readiness(d);
            }
        } else if before == DependencyStanding::Blocking {
            // It still blocks, but no longer for the reason that its dependents tell.
            self.mark_dependents_changed(t, graph);
        }
        if to.is_idle() && self.blockers[t.index()] > 0 {
            self.suspects.push(t);
        }
        if from.is_over() != to.is_over() {
            for d in graph.soft_dependents(t) {
                if to.is_over() {
                    self.unmet[d.index()] -= 1;
                } else {
                    self.unmet[d.index()] += 1;
                }
                self.update_readiness(d);
            }
        }
        self.update_readiness(t);
    }

    /// Keeps `Waiting` and `Ready` true to the edges.
    fn update_readiness(&mut self, t: TaskIx) {
        let phase = self.phase(t);
        let may = self.has_prerequisites(t) || self.stacks[t.index()];
        let wanted = if may { Phase::Ready } else { Phase::Waiting };
        if phase.is_idle() && phase != wanted {
            self.leave_phase(t, phase);
            self.enter_phase(t, wanted);
        }
    }

    fn queue_ready(&mut self, t: TaskIx) {
        let (priority, tail) = self.rank[t.index()];
        let key = (Reverse(priority), Reverse(tail), t);
        let agent = &self.claims[t.index()].agent;
        match self.ready.get_mut(agent) {
            Some(keys) => {
                keys.insert(key);
            }
            None => {
                self.ready.insert(agent.clone(), BTreeSet::from([key]));
            }
        }
    }

    fn enter_phase(&mut self, t: TaskIx, phase: Phase) {
        self.states[t.index()].phase = phase;
        self.in_phase[phase as usize] += 1;
        if phase == Phase::Ready {
            match self.states[t.index()].not_before {
                Some(at) => {
                    self.delayed.insert((at, t));
                }
                None => self.queue_ready(t),
            }
        }
        if phase.is_active() {
            self.active.insert(t);
        }
        if phase.holds_slot() {
            self.slots += 1;
            for key in self.named_slots(t) {
                *self.slots_by.entry(key).or_default() += 1;
            }
        }
        if holds_workspace(phase) {
            *self.units.entry(self.claims[t.index()].workspace_key).or_default() += 1;
        }
    }

    fn leave_phase(&mut self, t: TaskIx, phase: Phase) {
        self.in_phase[phase as usize] -= 1;
        if phase == Phase::Ready {
            let (priority, tail) = self.rank[t.index()];
            if let Some(keys) = self.ready.get_mut(&self.claims[t.index()].agent) {
                keys.remove(&(Reverse(priority), Reverse(tail), t));
            }
            if let Some(at) = self.states[t.index()].not_before {
                self.delayed.remove(&(at, t));
            }
        }
        if phase.is_active() {
            self.active.remove(&t);
        }
        if phase.holds_slot() {
            self.slots -= 1;
            for key in self.named_slots(t) {
                if let Some(used) = self.slots_by.get_mut(&key) {
                    *used -= 1;
                }
            }
        }
        if holds_workspace(phase)
            && let Some(holders) = self.units.get_mut(&self.claims[t.index()].workspace_key)
        {
            *holders -= 1;
        }
    }

    fn update_group(&mut self, t: TaskIx, was_over: bool, is_over: bool) {
        let TaskResources { group, workspace_key: unit, .. } = self.claims[t.index()];
        if is_over && !was_over {
            self.open_in_unit[unit as usize] -= 1;
            if let Some(open) = self.open_in_group.get_mut(&group) {
                *open -= 1;
                if *open == 0 {
                    self.open_in_group.remove(&group);
                }
            }
        } else if was_over && !is_over {
            self.open_in_unit[unit as usize] += 1;
            *self.open_in_group.entry(group).or_default() += 1;
        }
    }

    /// Whoever works on it takes the slot, also in another's stead.
    fn named_slots(&self, t: TaskIx) -> Vec<(SlotKind, String)> {
        let claims = &self.claims[t.index()];
        let (agent, provider) = match &self.states[t.index()].current {
            Some(current) => (&current.agent, &current.provider),
            None => (&claims.agent, &claims.provider),
        };
        let mut slots =
            vec![(SlotKind::Provider, provider.clone()), (SlotKind::Agent, agent.clone())];
        slots.extend(claims.role.clone().map(|role| (SlotKind::Role, role)));
        slots
    }
}

/// A workspace is in use from its making until its work is in the train's hands.
fn holds_workspace(phase: Phase) -> bool {
    matches!(phase, Phase::Preparing | Phase::Working | Phase::Asking | Phase::Verifying)
}

fn compute_resources(plan: &Plan, graph: &Graph, settings: &Settings) -> Vec<TaskResources> {
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = |name: String| {
        let next = u32::try_from(names.len()).unwrap_or(u32::MAX);
        *names.entry(name).or_insert(next)
    };
    let groups = barrier_groups(plan, graph, settings.schedule.barrier);
    plan.tasks
        .iter()
        .zip(groups)
        .map(|(task, group)| {
            let agent = match (&task.agent, &task.run, task.script.is_empty()) {
                (Some(agent), _, _) => agent.clone(),
                (None, Some(_), _) => "command".to_owned(),
                (None, None, false) => "script".to_owned(),
                (None, None, true) => settings.run.agent.clone().unwrap_or_default(),
            };
            let entry = settings.agents.get(&agent);
            // Folders may not differ in case alone.
            let unit = workspace_name(task, settings.workspace.unit).to_ascii_lowercase();
            TaskResources {
                provider: entry.map_or_else(|| agent.clone(), |entry| entry.provider_name(&agent)),
                model: task.model.clone().or_else(|| entry.and_then(|e| e.model.clone())),
                agent,
                role: task.role.clone(),
                workspace_key: number(unit),
                group,
            }
        })
        .collect()
}
