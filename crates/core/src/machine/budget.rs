//! Money as it decides: what an attempt is expected to cost, and what keeps ready tasks from starting for
//! good (a budget, a failure after which nothing more is to start), with the command that helps.

use crate::id::{TaskId, TaskIx};
use crate::machine::Machine;
use crate::machine::owners::SpenderKey;
use crate::money::{self, CostForecast};
use crate::phase::Phase;
use crate::schedule::{ScheduledStart, StartObstacle};

/// A hard budget does not cover the next attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetShortfall {
    pub limit_usd: f64,
    /// What is spent of it.
    pub spent_usd: f64,
    /// What is set aside for attempts under way.
    pub reserved_usd: f64,
    /// What the next attempt is expected to cost; 0 if nothing is known.
    pub expected_usd: f64,
}

/// Why ready tasks do not start, although nothing is wrong with them and no waiting will help.
#[derive(Debug, Clone, PartialEq)]
pub enum RunStop {
    Budget(BudgetShortfall),
    /// This task failed, and the settings say that nothing more starts then.
    Drained {
        task: TaskId,
        /// Those at work were stopped, too.
        abort: bool,
    },
}

impl RunStop {
    /// The word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Budget(_) => "budget",
            Self::Drained { abort: false, .. } => "drain",
            Self::Drained { abort: true, .. } => "abort",
        }
    }

    pub fn reason(&self) -> String {
        match self {
            Self::Budget(short) => short.reason(),
            Self::Drained { task, abort } => {
                let word = if *abort { "abort" } else { "drain" };
                format!("{task} failed and run.on_failure = \"{word}\"")
            }
        }
    }

    /// The command that helps.
    pub fn next_action(&self) -> String {
        match self {
            Self::Budget(short) => {
                format!(
                    "mainstem config set budget.usd {}, then mainstem run",
                    short.sufficient_usd()
                )
            }
            Self::Drained { .. } => "mainstem run starts the remaining tasks".to_owned(),
        }
    }
}

impl BudgetShortfall {
    fn reason(&self) -> String {
        let Self { limit_usd, spent_usd, reserved_usd, expected_usd } = self;
        let set_aside = match reserved_usd {
            usd if *usd > 0.0 => format!(", ${usd:.2} reserved for running agents"),
            _ => String::new(),
        };
        format!(
            "over budget: ${spent_usd:.2} of ${limit_usd:.2} spent{set_aside}, the next \
             attempt may cost ${expected_usd:.2}"
        )
    }

    /// A budget in whole dollars with which the next attempts can start.
    fn sufficient_usd(&self) -> f64 {
        let next = self.spent_usd + self.reserved_usd + self.expected_usd;
        next.max(self.limit_usd * 2.0).ceil()
    }
}

impl Machine {
    pub fn spent_usd(&self) -> f64 {
        self.spending.spent_usd()
    }

    /// Money set aside for attempts under way.
    pub fn reserved_usd(&self) -> f64 {
        self.spending.reserved_usd()
    }

    /// What the rest may cost.
    pub fn cost_forecast(&self) -> CostForecast {
        let tasks = self.tasks.all_tasks().map(|t| {
            let state = self.tasks.get(t);
            (state.cost_usd, state.phase().is_over(), state.attempts > 0)
        });
        money::forecast_cost(tasks, self.spending.spent_usd())
    }

    /// Money to set aside for an attempt of this agent with this model: what those before it cost on
    /// average. Of others nothing follows: a cheap model is not held back by what a dear one cost.
    pub fn expected_usd(&self, agent: &str, model: Option<&str>) -> f64 {
        let spender: SpenderKey = (agent.to_owned(), model.map(str::to_owned));
        let average = self.spending.average_attempt_usd(&spender);
        average.unwrap_or(self.settings.budget.per_attempt_usd)
    }

    /// Money to set aside for the attempt that would start so.
    pub fn expected_usd_of_start(&self, pick: &ScheduledStart) -> f64 {
        let chosen = self.choose_model(pick);
        self.expected_usd(&pick.agent, chosen.model.as_deref())
    }

    /// What keeps this ready task from starting for good, if something does.
    pub fn permanent_stop(&self, t: TaskIx) -> Option<RunStop> {
        if self.tasks.phase(t) != Phase::Ready || !self.is_in_scope(t) {
            return None;
        }
        if let Some((task, abort)) = self.control.draining() {
            return Some(RunStop::Drained { task: task.clone(), abort: *abort });
        }
        match self.start_obstacle(t) {
            Some(StartObstacle::Budget) => self.budget_stop(t),
            _ => None,
        }
    }

    /// The budget as what keeps this task from starting.
    pub fn budget_stop(&self, t: TaskIx) -> Option<RunStop> {
        self.budget_shortfall(t).map(RunStop::Budget)
    }

    /// What keeps all ready tasks of the run from starting: nothing is under way that could change it.
    pub fn run_stop(&self) -> Option<RunStop> {
        if self.tasks.active_tasks().next().is_some() {
            return None;
        }
        let mut ready = self
            .tasks
            .all_tasks()
            .filter(|t| self.tasks.phase(*t) == Phase::Ready && self.is_in_scope(*t));
        let first = self.permanent_stop(ready.next()?)?;
        ready.all(|t| self.permanent_stop(t).is_some()).then_some(first)
    }

    fn budget_shortfall(&self, t: TaskIx) -> Option<BudgetShortfall> {
        let limit_usd = self.settings.budget.usd?;
        let claims = self.tasks.resources(t);
        let (agent, provider) = (claims.agent.clone(), claims.provider.clone());
        let expected_usd = self.expected_usd_of_start(&ScheduledStart {
            task: t,
            agent,
            provider,
            stands_in: false,
        });
        let (spent_usd, reserved_usd) = (self.spent_usd(), self.reserved_usd().max(0.0));
        Some(BudgetShortfall { limit_usd, spent_usd, reserved_usd, expected_usd })
    }
}
