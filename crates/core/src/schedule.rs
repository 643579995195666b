//! Who starts next: dataflow list scheduling. Pure; takes nothing, changes nothing.
//!
//! Order: priority, then the longest path still behind a task, then its place in the plan. All
//! that a task needs is free together or the task does not start. A task held back only by
//! declared files is not overtaken by others that would touch the same files, so it gets its turn.

use std::collections::BTreeMap;

use crate::config::{Barrier, Settings};
use crate::glob::may_overlap;
use crate::id::TaskIx;
use crate::plan::Plan;
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
    /// Is this provider to be left alone now?
    pub provider_rests: &'a dyn Fn(&str) -> bool,
    /// Is this task asked for?
    pub in_scope: &'a dyn Fn(TaskIx) -> bool,
    /// The first group that is not through; later ones wait at a barrier.
    pub group_now: u32,
    /// Money left, if there is a hard budget.
    pub money_left: Option<f64>,
    /// Money to set aside for the next attempt.
    pub reserve: f64,
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
    /// Another task writes the same files.
    Writes(TaskIx),
    /// Another task uses the workspace.
    Workspace,
    /// An earlier group is not through.
    Barrier,
    /// The budget is spent.
    Budget,
}

impl Board<'_> {
    /// The tasks to start now, best first.
    pub fn starts(&self) -> Vec<TaskIx> {
        let mut starts = Vec::new();
        let mut taken = Taken::new(self);
        let mut queues: Vec<_> = self
            .tasks
            .ready_by_agent()
            .map(|(_, queue)| queue.filter(|t| (self.in_scope)(*t)).peekable())
            .collect();
        while taken.slots < self.jobs {
            let best = queues
                .iter_mut()
                .enumerate()
                .filter_map(|(q, queue)| queue.peek().map(|t| (self.tasks.rank(*t), q)))
                .min();
            let Some((_, q)) = best else { break };
            let Some(t) = queues[q].next() else { break };
            match self.held(t, &taken) {
                None => {
                    taken.take(self, t);
                    starts.push(t);
                }
                Some(Held::Writes(_)) => taken.waiting_writers.push(t),
                // Nothing of this queue can start: all its tasks have the same agent.
                Some(Held::Agent(_) | Held::Provider(_) | Held::ProviderRests(_)) => {
                    drop(queues.swap_remove(q));
                }
                Some(Held::Slots | Held::Budget) => break,
                Some(Held::Role(_) | Held::Workspace | Held::Barrier) => {}
            }
        }
        starts
    }

    /// Why this ready task does not start now, for people.
    pub fn why_held(&self, t: TaskIx) -> Option<Held> {
        self.held(t, &Taken::new(self))
    }

    /// Is a named slot missing for this task to go on, now that it had given its own away?
    pub fn named_slots_full(&self, t: TaskIx) -> bool {
        let taken = Taken::new(self);
        self.full_pool(t, &taken).is_some() || self.full_role(t, &taken).is_some()
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
    fn full_pool(&self, t: TaskIx, taken: &Taken) -> Option<Held> {
        let claims = self.tasks.claims(t);
        if self.full(Slot::Agent, &claims.agent, taken) {
            return Some(Held::Agent(claims.agent.clone()));
        }
        self.full(Slot::Provider, &claims.provider, taken)
            .then(|| Held::Provider(claims.provider.clone()))
    }

    fn full_role(&self, t: TaskIx, taken: &Taken) -> Option<Held> {
        let role = self.tasks.claims(t).role.as_ref()?;
        self.full(Slot::Role, role, taken).then(|| Held::Role(role.clone()))
    }

    fn held(&self, t: TaskIx, taken: &Taken) -> Option<Held> {
        let claims = self.tasks.claims(t);
        if (self.provider_rests)(&claims.provider) {
            return Some(Held::ProviderRests(claims.provider.clone()));
        }
        if let Some(held) = self.full_pool(t, taken) {
            return Some(held);
        }
        if taken.slots >= self.jobs {
            return Some(Held::Slots);
        }
        if self.money_left.is_some_and(|left| left - taken.money < self.reserve.max(f64::EPSILON)) {
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

    fn take(&mut self, board: &Board<'_>, t: TaskIx) {
        let claims = board.tasks.claims(t);
        self.slots += 1;
        self.money += board.reserve;
        *self.by.entry((Slot::Agent, claims.agent.clone())).or_default() += 1;
        *self.by.entry((Slot::Provider, claims.provider.clone())).or_default() += 1;
        if let Some(role) = &claims.role {
            *self.by.entry((Slot::Role, role.clone())).or_default() += 1;
        }
        self.units.push(claims.unit);
        self.started.push(t);
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
