//! Who starts next: dataflow list scheduling. Pure; takes nothing, changes nothing.
//!
//! Order: priority, then the longest path still behind a task, then its place in the plan. All
//! that a task needs is free together or the task does not start. A task held back only by
//! declared files is not overtaken by others that would touch the same files, so it gets its turn.
//! Among equally important ones, those go last that would write what others at work have changed.

use std::collections::{BTreeMap, VecDeque};

use crate::config::{ScheduleBarrier, Settings};
use crate::glob::globs_may_overlap;
use crate::id::TaskIx;
use crate::plan::Plan;
use crate::provider::ProviderStanding;
use crate::tasks::{SlotKind, TaskTable};

/// What the scheduler looks at.
pub struct ScheduleContext<'a> {
    pub plan: &'a Plan,
    /// Where all tasks stand.
    pub tasks: &'a TaskTable,
    pub settings: &'a Settings,
    pub jobs: u32,
    /// May attempts of this provider start now?
    pub provider: &'a dyn Fn(&str) -> ProviderStanding,
    /// Does this provider rest for so long that others take over?
    pub rests_long: &'a dyn Fn(&str) -> bool,
    /// It is an hour in which nothing starts.
    pub quiet: bool,
    /// Is this task asked for?
    pub in_scope: &'a dyn Fn(TaskIx) -> bool,
    /// Who works on this task instead of its own agent, because it resolves a conflict?
    pub resolver: &'a dyn Fn(TaskIx) -> Option<String>,
    /// Some task may be worked on by another agent than its own.
    pub mixed: bool,
    /// Does what this task means to write overlap with what others have changed by now?
    pub overlaps: &'a dyn Fn(TaskIx) -> bool,
    /// The question whose answer the next attempt of this task waits for.
    pub asks: &'a dyn Fn(TaskIx) -> Option<String>,
    /// The first group that is not through; later ones wait at a barrier.
    pub group_now: u32,
    /// Money left, if there is a hard budget.
    pub money_left: Option<f64>,
    /// Money to set aside for an attempt. Asked only if there is a hard budget.
    pub reserve: &'a dyn Fn(&ScheduledStart) -> f64,
}

/// Why a ready task does not start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartObstacle {
    /// All slots are taken.
    Slots,
    /// The slots of this provider are taken.
    Provider(String),
    /// The slots of this agent are taken.
    Agent(String),
    /// The slots of this role are taken.
    Role(String),
    /// The provider told us to wait.
    ProviderRests(String),
    /// The provider was told to wait for, and is tried by few at first.
    ProviderRamps(String),
    /// It is an hour in which nothing starts.
    Quiet,
    /// An earlier attempt asked this question, and nobody has answered.
    Question(String),
    /// Another task writes the same files.
    Writes(TaskIx),
    /// Another task uses the workspace.
    Workspace,
    /// An earlier group is not through.
    Barrier,
    /// The budget is spent.
    Budget,
}

/// A task and who is to work on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledStart {
    pub task: TaskIx,
    pub agent: String,
    /// Whose quota that uses.
    pub provider: String,
    /// In the stead of the task's own agent.
    pub stands_in: bool,
}

impl ScheduleContext<'_> {
    /// The tasks to start now, best first.
    pub fn choose_starts(&self) -> Vec<ScheduledStart> {
        let mut starts = Vec::new();
        let mut taken = ClaimedSlots::new(self);
        let mut put_off: VecDeque<TaskIx> = VecDeque::new();
        let mut queues: Vec<_> = self
            .tasks
            .ready_by_agent()
            .map(|(_, queue)| queue.filter(|t| (self.in_scope)(*t)).peekable())
            .collect();
        while taken.slots < self.jobs {
            let best = queues
                .iter_mut()
                .enumerate()
                .filter_map(|(q, queue)| queue.peek().map(|t| (self.tasks.rank(*t), q, *t)))
                .min();
            let matters_less =
                |t: TaskIx, than: TaskIx| self.tasks.priority(t) < self.tasks.priority(than);
            let (t, q) = match (best, put_off.front().copied()) {
                (None, None) => break,
                (Some((_, q, t)), put_off_first)
                    if put_off_first.is_none_or(|other| !matters_less(t, other)) =>
                {
                    queues[q].next();
                    if (self.overlaps)(t) {
                        put_off.push_back(t);
                        continue;
                    }
                    (t, Some(q))
                }
                (_, _) => match put_off.pop_front() {
                    Some(t) => (t, None),
                    None => break,
                },
            };
            match self.check_start(t, &taken) {
                Ok(pick) => {
                    taken.claim_start(self, &pick);
                    starts.push(pick);
                }
                Err(StartObstacle::Writes(_)) => taken.waiting_writers.push(t),
                // Somebody else than the agent of the queue may work on its next task.
                Err(
                    StartObstacle::Agent(_)
                    | StartObstacle::Provider(_)
                    | StartObstacle::ProviderRests(_)
                    | StartObstacle::ProviderRamps(_),
                ) if q.is_none() || self.mixed => {}
                // Nothing of this queue can start: all its tasks have the same agent.
                Err(
                    StartObstacle::Agent(_)
                    | StartObstacle::Provider(_)
                    | StartObstacle::ProviderRests(_)
                    | StartObstacle::ProviderRamps(_),
                ) => {
                    if let Some(q) = q {
                        drop(queues.swap_remove(q));
                    }
                }
                Err(StartObstacle::Slots | StartObstacle::Quiet) => break,
                // Another one may cost less, as long as there is something left.
                Err(StartObstacle::Budget)
                    if self.money_left.is_none_or(|left| left <= taken.money) =>
                {
                    break;
                }
                // What holds this one holds no other of its queue.
                Err(_) => {}
            }
        }
        starts
    }

    /// Why this ready task does not start now, for people.
    pub fn start_obstacle(&self, t: TaskIx) -> Option<StartObstacle> {
        self.check_start(t, &ClaimedSlots::new(self)).err()
    }

    /// Is a named slot missing for this task to go on, now that it had given its own away?
    pub fn named_slots_full(&self, t: TaskIx) -> bool {
        let taken = ClaimedSlots::new(self);
        let claims = self.tasks.resources(t);
        let (agent, provider) = match &self.tasks.get(t).current {
            Some(current) => (&current.agent, &current.provider),
            None => (&claims.agent, &claims.provider),
        };
        self.full_agent_slots(agent, provider, &taken).is_some()
            || self.full_role_slots(t, &taken).is_some()
    }

    fn is_slot_full(&self, slot: SlotKind, name: &str, taken: &ClaimedSlots) -> bool {
        let limits = &self.settings.limits;
        let limit = match slot {
            SlotKind::Provider => limits.per_provider.get(name),
            SlotKind::Agent => limits.per_agent.get(name),
            SlotKind::Role => limits.per_role.get(name),
        };
        limit.is_some_and(|limit| taken.slots_used(self, slot, name) >= *limit)
    }

    /// Full slots that all tasks of the same agent share.
    fn full_agent_slots(
        &self,
        agent: &str,
        provider: &str,
        taken: &ClaimedSlots,
    ) -> Option<StartObstacle> {
        if self.is_slot_full(SlotKind::Agent, agent, taken) {
            return Some(StartObstacle::Agent(agent.to_owned()));
        }
        self.is_slot_full(SlotKind::Provider, provider, taken)
            .then(|| StartObstacle::Provider(provider.to_owned()))
    }

    fn full_role_slots(&self, t: TaskIx, taken: &ClaimedSlots) -> Option<StartObstacle> {
        let role = self.tasks.resources(t).role.as_ref()?;
        self.is_slot_full(SlotKind::Role, role, taken).then(|| StartObstacle::Role(role.clone()))
    }

    /// Why this agent cannot start anything now, whatever the task.
    fn agent_obstacle(
        &self,
        agent: &str,
        provider: &str,
        taken: &ClaimedSlots,
    ) -> Option<StartObstacle> {
        match (self.provider)(provider) {
            ProviderStanding::Rests => {
                return Some(StartObstacle::ProviderRests(provider.to_owned()));
            }
            ProviderStanding::Ramps(most)
                if taken.slots_used(self, SlotKind::Provider, provider) >= most =>
            {
                return Some(StartObstacle::ProviderRamps(provider.to_owned()));
            }
            ProviderStanding::Ramps(_) | ProviderStanding::Free => {}
        }
        self.full_agent_slots(agent, provider, taken)
    }

    /// The task's own agent, or one that stands in while that one's provider rests for long.
    fn choose_agent(
        &self,
        t: TaskIx,
        taken: &ClaimedSlots,
    ) -> Result<ScheduledStart, StartObstacle> {
        let claims = self.tasks.resources(t);
        let mut own = ScheduledStart {
            task: t,
            agent: claims.agent.clone(),
            provider: claims.provider.clone(),
            stands_in: false,
        };
        if let Some(name) = (self.resolver)(t).filter(|name| *name != own.agent)
            && let Some(entry) = self.settings.agents.get(&name)
        {
            (own.provider, own.agent, own.stands_in) = (entry.provider_name(&name), name, true);
        }
        let Some(held) = self.agent_obstacle(&own.agent, &own.provider, taken) else {
            return Ok(own);
        };
        if !matches!(held, StartObstacle::ProviderRests(_)) || !(self.rests_long)(&own.provider) {
            return Err(held);
        }
        let agents = &self.settings.agents;
        let others = agents.get(&own.agent).into_iter().flat_map(|entry| &entry.fallback);
        others
            .filter_map(|name| Some((name, agents.get(name)?.provider_name(name))))
            .find(|(agent, provider)| self.agent_obstacle(agent, provider, taken).is_none())
            .map(|(agent, provider)| ScheduledStart {
                task: t,
                agent: agent.clone(),
                provider,
                stands_in: true,
            })
            .ok_or(held)
    }

    fn check_start(
        &self,
        t: TaskIx,
        taken: &ClaimedSlots,
    ) -> Result<ScheduledStart, StartObstacle> {
        if let Some(question) = (self.asks)(t) {
            return Err(StartObstacle::Question(question));
        }
        if self.quiet {
            return Err(StartObstacle::Quiet);
        }
        let pick = self.choose_agent(t, taken)?;
        match self.task_obstacle(&pick, taken) {
            Some(held) => Err(held),
            None => Ok(pick),
        }
    }

    /// Why this task cannot start now.
    fn task_obstacle(&self, pick: &ScheduledStart, taken: &ClaimedSlots) -> Option<StartObstacle> {
        let t = pick.task;
        let claims = self.tasks.resources(t);
        if taken.slots >= self.jobs {
            return Some(StartObstacle::Slots);
        }
        let wanted = || (self.reserve)(pick).max(f64::EPSILON);
        if self.money_left.is_some_and(|left| left - taken.money < wanted()) {
            return Some(StartObstacle::Budget);
        }
        if let Some(held) = self.full_role_slots(t, taken) {
            return Some(held);
        }
        if self.settings.schedule.barrier != ScheduleBarrier::None && claims.group > self.group_now
        {
            return Some(StartObstacle::Barrier);
        }
        if self.tasks.is_workspace_being_removed(claims.workspace_key)
            || self.tasks.is_workspace_in_use(claims.workspace_key)
            || taken.units.contains(&claims.workspace_key)
        {
            return Some(StartObstacle::Workspace);
        }
        taken
            .writing_tasks(self)
            .find(|other| self.do_writes_overlap(t, *other))
            .map(StartObstacle::Writes)
    }

    fn do_writes_overlap(&self, a: TaskIx, b: TaskIx) -> bool {
        let (a, b) = (&self.plan.tasks[a.index()].writes, &self.plan.tasks[b.index()].writes);
        a.iter().any(|a| b.iter().any(|b| globs_may_overlap(a, b)))
    }
}

/// What this round has given away on top of what is in use.
struct ClaimedSlots {
    slots: u32,
    by: BTreeMap<(SlotKind, String), u32>,
    units: Vec<u32>,
    started: Vec<TaskIx>,
    waiting_writers: Vec<TaskIx>,
    money: f64,
}

impl ClaimedSlots {
    fn new(board: &ScheduleContext<'_>) -> Self {
        Self {
            slots: board.tasks.slots_in_use(),
            by: BTreeMap::new(),
            units: Vec::new(),
            started: Vec::new(),
            waiting_writers: Vec::new(),
            money: 0.0,
        }
    }

    fn slots_used(&self, board: &ScheduleContext<'_>, slot: SlotKind, name: &str) -> u32 {
        let now = self.by.get(&(slot, name.to_owned())).copied().unwrap_or(0);
        board.tasks.named_slots_in_use(slot, name) + now
    }

    fn claim_start(&mut self, board: &ScheduleContext<'_>, pick: &ScheduledStart) {
        let claims = board.tasks.resources(pick.task);
        self.slots += 1;
        self.money += board.money_left.map_or(0.0, |_| (board.reserve)(pick));
        *self.by.entry((SlotKind::Agent, pick.agent.clone())).or_default() += 1;
        *self.by.entry((SlotKind::Provider, pick.provider.clone())).or_default() += 1;
        if let Some(role) = &claims.role {
            *self.by.entry((SlotKind::Role, role.clone())).or_default() += 1;
        }
        self.units.push(claims.workspace_key);
        self.started.push(pick.task);
    }

    /// Tasks whose declared files are spoken for.
    fn writing_tasks<'a>(
        &'a self,
        board: &'a ScheduleContext<'_>,
    ) -> impl Iterator<Item = TaskIx> + 'a {
        board
            .tasks
            .active_tasks()
            .chain(self.started.iter().copied())
            .chain(self.waiting_writers.iter().copied())
    }
}
