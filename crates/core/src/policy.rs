//! What an attempt's end means, and whether there is another try. Rules as pure functions over
//! data; knows no graph and no train.

use crate::config::Settings;
use crate::fact::{Claim, Class, Ending, Evidence};
use crate::limits;
use crate::plan::Task;
use crate::plan::units::render_size;

/// What the end of an attempt amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// There is work, and nothing against looking at it with gates.
    Worked,
    /// There is none, and the agent says that none was needed.
    NothingToDo,
    /// It does not lead on.
    Bad {
        /// What kind of end.
        class: Class,
        /// In words.
        reason: String,
    },
}

/// Judges an attempt by what it left, never by its word alone. Exit 0 without evidence is a
/// failure; so is evidence with any other exit.
pub fn judge(ending: &Ending, claim: &Claim, evidence: &Evidence) -> Judgement {
    let bad = |class, reason: String| Judgement::Bad { class, reason: limits::brief(&reason) };
    let clean_exit = *ending == Ending::Exited { code: 0 };
    match claim {
        Claim::Blocked { reason } => return bad(Class::Blocked, reason.clone()),
        Claim::RateLimited {} if !clean_exit || evidence.base == evidence.tip => {
            return bad(Class::RateLimited, "the provider's rate limit was reached".to_owned());
        }
        Claim::RateLimited {} | Claim::NothingToDo { .. } | Claim::None => {}
    }
    match ending {
        Ending::Exited { code: 0 } => {}
        Ending::Exited { code } => {
            return bad(Class::AgentFailed, format!("the agent ended with exit code {code}"));
        }
        Ending::Signalled { signal } => {
            return bad(Class::AgentFailed, format!("the agent was ended by signal {signal}"));
        }
        Ending::TimedOut { idle: true } => {
            return bad(Class::TimedOut, "the agent printed nothing for too long".to_owned());
        }
        Ending::TimedOut { idle: false } => {
            return bad(Class::TimedOut, "the agent ran out of time".to_owned());
        }
        Ending::OutOfMemory { limit } => {
            let limit = render_size(*limit);
            let why = format!("killed: it used more than limits.memory_per_agent ({limit})");
            return bad(Class::AgentFailed, why);
        }
        Ending::Stopped {} => return bad(Class::Interrupted, "the agent was stopped".to_owned()),
        Ending::NotStarted { why } => {
            return bad(Class::Transient, format!("the agent could not be started: {why}"));
        }
        Ending::Vanished {} => {
            return bad(Class::Killed, "the agent vanished without an exit record".to_owned());
        }
    }
    if let Some(flaw) = evidence.flaws.first() {
        return bad(Class::InvalidOutput, flaw.clone());
    }
    if evidence.base == evidence.tip || evidence.files == 0 {
        return match claim {
            Claim::NothingToDo { .. } => Judgement::NothingToDo,
            Claim::None | Claim::Blocked { .. } | Claim::RateLimited {} => bad(
                Class::AgentFailed,
                "exit code 0, but no commit, no edit and no word of nothing_to_do".to_owned(),
            ),
        };
    }
    Judgement::Worked
}

/// What a task has used up of its budgets since it was last started by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Attempts that failed on the merits.
    pub retries: u32,
    /// Failures on our side.
    pub transients: u32,
    /// Attempts lost without a word.
    pub crashes: u32,
    /// Waits for the provider in a row.
    pub waits: u32,
    /// Redone because of a clash.
    pub conflicts: u32,
}

impl Spent {
    /// Counts one more end of this class.
    pub fn count(&mut self, class: Class) {
        match class {
            Class::AgentFailed | Class::GateFailed | Class::InvalidOutput | Class::TimedOut => {
                self.retries += 1;
            }
            Class::Transient => self.transients += 1,
            Class::Killed => self.crashes += 1,
            Class::RateLimited => self.waits += 1,
            Class::Conflicted => self.conflicts += 1,
            Class::Interrupted | Class::Blocked => {}
        }
        if class != Class::RateLimited {
            self.waits = 0;
        }
    }
}

/// After an end of this class, already counted in `spent`: milliseconds until the next try, or
/// none if there is no further one.
pub fn retry_after_ms(
    class: Class,
    spent: &Spent,
    task: &Task,
    settings: &Settings,
) -> Option<u64> {
    let retries = task.retries.unwrap_or(settings.run.retries);
    match class {
        Class::AgentFailed | Class::GateFailed | Class::InvalidOutput | Class::TimedOut => {
            (spent.retries <= retries).then_some(0)
        }
        Class::Transient => (spent.transients <= limits::TRANSIENTS_MAX).then(|| {
            let doublings = spent.transients.saturating_sub(1).min(16);
            (limits::TRANSIENT_WAIT_MS << doublings).min(limits::TRANSIENT_WAIT_MS_MAX)
        }),
        Class::Killed => (spent.crashes <= limits::CRASHES_MAX).then_some(0),
        Class::RateLimited => (spent.waits <= settings.limits.rate_limit_waits).then_some(0),
        Class::Conflicted => (spent.conflicts <= limits::CONFLICT_REWORKS_MAX).then_some(0),
        Class::Interrupted => Some(0),
        Class::Blocked => None,
    }
}
