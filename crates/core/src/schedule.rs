//! Who starts next: dataflow list scheduling. Pure; takes nothing, changes nothing.
//!
//! Order: priority, then the longest path still behind a task, then its place in the plan. All
//! that a task needs is free together or the task does not start. A task held back only by
//! declared files is not overtaken by others that would touch the same files, so it gets its turn.
//! Among equally important ones, those go last that would write what others at work have changed.

use std::collections::{BTreeMap, VecDeque};

use crate::config::{Barrier, Settings};
use crate::glob::may_overlap;
use crate::id::TaskIx;
use crate::plan::Plan;
use crate::provider::Standing;
use crate::tasks::{Slot, Tasks};

/// What the scheduler looks at.
pub struct Board<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Where all tasks stand.
    pub tasks: &'a Tasks,
    /// The settings.
    pub settings: &'a Settings,
    /// Agents at once.
    pub jobs: u32,
    /// May attempts of this provider start now?
    pub provider: &'a dyn Fn(&str) -> Standing,
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
    pub reserve: &'a dyn Fn(&Pick) -> f64,
}

/// Why a ready task does not start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
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
pub struct Pick {
    /// The task.
    pub task: TaskIx,
    /// Who.
    pub agent: String,
    /// Whose quota that uses.
    pub provider: String,
    /// In the stead of the task's own agent.
    pub stands_in: bool,
}

impl Board<'_> {
    /// The tasks to start now, best first.
    pub fn starts(&self) -> Vec<Pick> {
        let mut starts = Vec::new();
        let mut taken = Taken::new(self);
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
            match self.pick(t, &taken) {
                Ok(pick) => {
                    taken.take(self, &pick);
                    starts.push(pick);
                }
                Err(Held::Writes(_)) => taken.waiting_writers.push(t),
                // Somebody else than the agent of the queue may work on its next task.
                Err(
                    Held::Agent(_)
                    | Held::Provider(_)
                    | Held::ProviderRests(_)
                    | Held::ProviderRamps(_),
                ) if q.is_none() || self.mixed => {}
                // Nothing of this queue can start: all its tasks have the same agent.
                Err(
                    Held::Agent(_)
                    | Held::Provider(_)
                    | Held::ProviderRests(_)
                    | Held::ProviderRamps(_),
                ) => {
                    if let Some(q) = q {
                        drop(queues.swap_remove(q));
                    }
                }
                Err(Held::Slots | Held::Quiet) => break,
                // Another one may cost less, as long as there is something left.
                Err(Held::Budget) if self.money_left.is_none_or(|left| left <= taken.money) => {
                    break;
                }
                // What holds this one holds no other of its queue.
                Err(_) => {}
            }
        }
        starts
    }

    /// Why this ready task does not start now, for people.
    pub fn why_held(&self, t: TaskIx) -> Option<Held> {
        self.pick(t, &Taken::new(self)).err()
    }

    /// Is a named slot missing for this task to go on, now that it had given its own away?
    pub fn named_slots_full(&self, t: TaskIx) -> bool {
        let taken = Taken::new(self);
        let claims = self.tasks.claims(t);
        let (agent, provider) = match &self.tasks.get(t).current {
            Some(current) => (&current.agent, &current.provider),
            None => (&claims.agent, &claims.provider),
        };
        self.full_pool(agent, provider, &taken).is_some() || self.full_role(t, &taken).is_some()
    }

    fn full(&self, slot: Slot, name: &str, taken: &Taken) -> bool {
        let limits = &self.settings.limits;
        let limit = match slot {
            Slot::Provider => limits.per_provider.get(name),
            Slot::Agent => limits.per_agent.get(name),
            Slot::Role => limits.per_role.get(name),
        };
        limit.is_some_and(|limit| taken.used(self, slot, name) >= *limit)
    }

    /// Full slots that all tasks of the same agent share.
    fn full_pool(&self, agent: &str, provider: &str, taken: &Taken) -> Option<Held> {
        if self.full(Slot::Agent, agent, taken) {
            return Some(Held::Agent(agent.to_owned()));
        }
        self.full(Slot::Provider, provider, taken).then(|| Held::Provider(provider.to_owned()))
    }

    fn full_role(&self, t: TaskIx, taken: &Taken) -> Option<Held> {
        let role = self.tasks.claims(t).role.as_ref()?;
        self.full(Slot::Role, role, taken).then(|| Held::Role(role.clone()))
    }

    /// Why this agent cannot start anything now, whatever the task.
    fn agent_held(&self, agent: &str, provider: &str, taken: &Taken) -> Option<Held> {
        match (self.provider)(provider) {
            Standing::Rests => return Some(Held::ProviderRests(provider.to_owned())),
            Standing::Ramps(most) if taken.used(self, Slot::Provider, provider) >= most => {
                return Some(Held::ProviderRamps(provider.to_owned()));
            }
            Standing::Ramps(_) | Standing::Free => {}
        }
        self.full_pool(agent, provider, taken)
    }

    /// The task's own agent, or one that stands in while that one's provider rests for long.
    fn who(&self, t: TaskIx, taken: &Taken) -> Result<Pick, Held> {
        let claims = self.tasks.claims(t);
        let mut own = Pick {
            task: t,
            agent: claims.agent.clone(),
            provider: claims.provider.clone(),
            stands_in: false,
        };
        if let Some(name) = (self.resolver)(t).filter(|name| *name != own.agent)
            && let Some(entry) = self.settings.agents.get(&name)
        {
            (own.provider, own.agent, own.stands_in) = (entry.provider_of(&name), name, true);
        }
        let Some(held) = self.agent_held(&own.agent, &own.provider, taken) else { return Ok(own) };
        if !matches!(held, Held::ProviderRests(_)) || !(self.rests_long)(&own.provider) {
            return Err(held);
        }
        let agents = &self.settings.agents;
        let others = agents.get(&own.agent).into_iter().flat_map(|entry| &entry.fallback);
        others
            .filter_map(|name| Some((name, agents.get(name)?.provider_of(name))))
            .find(|(agent, provider)| self.agent_held(agent, provider, taken).is_none())
            .map(|(agent, provider)| Pick {
                task: t,
                agent: agent.clone(),
                provider,
                stands_in: true,
            })
            .ok_or(held)
    }

    fn pick(&self, t: TaskIx, taken: &Taken) -> Result<Pick, Held> {
        if let Some(question) = (self.asks)(t) {
            return Err(Held::Question(question));
        }
        if self.quiet {
            return Err(Held::Quiet);
        }
        let pick = self.who(t, taken)?;
        match self.task_held(&pick, taken) {
            Some(held) => Err(held),
            None => Ok(pick),
        }
    }

    /// Why this task cannot start now.
    fn task_held(&self, pick: &Pick, taken: &Taken) -> Option<Held> {
        let t = pick.task;
        let claims = self.tasks.claims(t);
        if taken.slots >= self.jobs {
            return Some(Held::Slots);
        }
        let wanted = || (self.reserve)(pick).max(f64::EPSILON);
        if self.money_left.is_some_and(|left| left - taken.money < wanted()) {
            return Some(Held::Budget);
        }
        if let Some(held) = self.full_role(t, taken) {
            return Some(held);
        }
        if self.settings.schedule.barrier != Barrier::None && claims.group > self.group_now {
            return Some(Held::Barrier);
        }
        if self.tasks.unit_going(claims.unit)
            || self.tasks.unit_taken(claims.unit)
            || taken.units.contains(&claims.unit)
        {
            return Some(Held::Workspace);
        }
        taken.writers(self).find(|other| self.writes_clash(t, *other)).map(Held::Writes)
    }

    fn writes_clash(&self, a: TaskIx, b: TaskIx) -> bool {
        let (a, b) = (&self.plan.tasks[a.ix()].writes, &self.plan.tasks[b.ix()].writes);
        a.iter().any(|a| b.iter().any(|b| may_overlap(a, b)))
    }
}

/// What this round has given away on top of what is in use.
struct Taken {
    slots: u32,
    by: BTreeMap<(Slot, String), u32>,
    units: Vec<u32>,
    started: Vec<TaskIx>,
    waiting_writers: Vec<TaskIx>,
    money: f64,
}

impl Taken {
    fn new(board: &Board<'_>) -> Self {
        Self {
            slots: board.tasks.slots(),
            by: BTreeMap::new(),
            units: Vec::new(),
            started: Vec::new(),
            waiting_writers: Vec::new(),
            money: 0.0,
        }
    }

    fn used(&self, board: &Board<'_>, slot: Slot, name: &str) -> u32 {
        let now = self.by.get(&(slot, name.to_owned())).copied().unwrap_or(0);
        board.tasks.slots_of(slot, name) + now
    }

    fn take(&mut self, board: &Board<'_>, pick: &Pick) {
        let claims = board.tasks.claims(pick.task);
        self.slots += 1;
        self.money += board.money_left.map_or(0.0, |_| (board.reserve)(pick));
        *self.by.entry((Slot::Agent, pick.agent.clone())).or_default() += 1;
        *self.by.entry((Slot::Provider, pick.provider.clone())).or_default() += 1;
        if let Some(role) = &claims.role {
            *self.by.entry((Slot::Role, role.clone())).or_default() += 1;
        }
        self.units.push(claims.unit);
        self.started.push(pick.task);
    }

    /// Tasks whose declared files are spoken for.
    fn writers<'a>(&'a self, board: &'a Board<'_>) -> impl Iterator<Item = TaskIx> + 'a {
        board
            .tasks
            .active()
            .chain(self.started.iter().copied())
            .chain(self.waiting_writers.iter().copied())
    }
}
