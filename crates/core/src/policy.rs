//! What an attempt's end means, and whether there is another try. Rules as pure functions over
//! data; knows no graph and no train.

use crate::config::Settings;
use crate::fact::{Claim, Class, Ending, Evidence, Fault};
use crate::id::Oid;
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
        /// The command that helps.
        help: Option<String>,
    },
}

/// Judges an attempt by what it left, never by its word alone. Exit 0 without evidence is a
/// failure; so is evidence with any other exit. `start` is the tree that the attempt started with, if
/// that was earlier work: such work counts, but a word of trouble is not refuted by it.
pub fn judge(
    ending: &Ending,
    claim: &Claim,
    evidence: &Evidence,
    start: Option<&Oid>,
) -> Judgement {
    let bad = |class, reason: String| {
        let (reason, help) = (limits::brief(&reason), None);
        Judgement::Bad { class, reason, help }
    };
    if let Some(judgement) = by_claim(ending, claim, evidence, start) {
        return judgement;
    }
    match ending {
        Ending::Exited { code: 0 } => {}
        Ending::Exited { code } => {
            return bad(Class::AgentFailed, format!("the agent exited with code {code}"));
        }
        Ending::Signalled { signal } => {
            return bad(Class::AgentFailed, format!("the agent was killed by signal {signal}"));
        }
        Ending::TimedOut { idle: true } => {
            return bad(Class::TimedOut, "the agent printed nothing for too long".to_owned());
        }
        Ending::TimedOut { idle: false } => {
            return bad(Class::TimedOut, "the agent timed out".to_owned());
        }
        Ending::OutOfMemory { limit } => {
            let limit = render_size(*limit);
            let why = format!(
                "the agent was killed: more memory used than limits.memory_per_agent ({limit})"
            );
            return bad(Class::AgentFailed, why);
        }
        Ending::Stopped {} => return bad(Class::Interrupted, "the agent was stopped".to_owned()),
        Ending::NotStarted { why, permanent: true } => {
            let reason = limits::brief(&format!("the agent cannot start: {why}"));
            let help = Some("fix the settings of the agent or the task".to_owned());
            return Judgement::Bad { class: Class::Refused, reason, help };
        }
        Ending::NotStarted { why, permanent: false } => {
            return bad(Class::Transient, format!("the agent could not be started: {why}"));
        }
        Ending::Vanished {} => {
            return bad(Class::Killed, "the agent disappeared without an exit code".to_owned());
        }
    }
    if let Some(flaw) = evidence.flaws.first() {
        return bad(Class::InvalidOutput, flaw.clone());
    }
    if evidence.base == evidence.tip || evidence.files == 0 {
        return match claim {
            Claim::NothingToDo { .. } => Judgement::NothingToDo,
            Claim::None
            | Claim::Blocked { .. }
            | Claim::RateLimited {}
            | Claim::QuotaExhausted {}
            | Claim::Failed { .. }
            | Claim::Done { .. } => {
                bad(Class::AgentFailed, "the agent exited without changing anything".to_owned())
            }
        };
    }
    Judgement::Worked
}

/// Claims of trouble are believed, unless the agent went on and did its work all the same.
fn by_claim(
    ending: &Ending,
    claim: &Claim,
    evidence: &Evidence,
    start: Option<&Oid>,
) -> Option<Judgement> {
    let clean_exit = *ending == Ending::Exited { code: 0 };
    let added_nothing = start.is_some() && evidence.tree.as_ref() == start;
    let in_vain = !clean_exit || evidence.base == evidence.tip || added_nothing;
    let (class, reason, help) = match claim {
        Claim::Blocked { reason } => (Class::Blocked, reason.clone(), None),
        Claim::RateLimited {} if in_vain => {
            (Class::RateLimited, "rate-limited by the provider".to_owned(), None)
        }
        Claim::QuotaExhausted {} if in_vain => {
            (Class::QuotaExhausted, "the provider's quota is exhausted".to_owned(), None)
        }
        Claim::Failed { fault, message, help } if in_vain => {
            let (class, reason) = of_fault(*fault, message);
            (class, reason, help.as_ref().map(|help| limits::brief(help)))
        }
        Claim::RateLimited {}
        | Claim::QuotaExhausted {}
        | Claim::Failed { .. }
        | Claim::NothingToDo { .. }
        | Claim::Done { .. }
        | Claim::None => return None,
    };
    Some(Judgement::Bad { class, reason: limits::brief(&reason), help })
}

/// What a provider's or a program's failure amounts to. Where nothing but a person can help, another
/// try would only cost.
fn of_fault(fault: Fault, message: &str) -> (Class, String) {
    let (class, what) = match fault {
        Fault::Auth => (Class::Refused, "authentication failed"),
        Fault::Request => (Class::Refused, "the provider rejected the request"),
        Fault::Model => (Class::Refused, "the provider does not have the model"),
        Fault::Transient => (Class::Transient, "the provider failed"),
        Fault::Stalled => (Class::TimedOut, "the agent made no progress"),
        Fault::Looping => (Class::NeedsInput, "the agent repeats the same step over and over"),
        Fault::Context => {
            (Class::AgentFailed, "the conversation no longer fits the model's context")
        }
        Fault::MaxTurns => (Class::AgentFailed, "the agent reached the turn limit (max_turns)"),
        Fault::Budget => (Class::AgentFailed, "the agent reached the spending limit"),
        Fault::Setup => (Class::Refused, "the agent cannot start"),
        Fault::Other => (Class::AgentFailed, "the agent failed"),
    };
    match message.trim() {
        "" => (class, what.to_owned()),
        message => (class, format!("{what}: {message}")),
    }
}

/// What an agent claims in the end, of all that it claimed on the way.
pub fn supersede(had: Claim, new: Claim) -> Claim {
    match (&had, &new) {
        // To say "done" takes nothing back; it only shows that a wait is over.
        (Claim::NothingToDo { .. } | Claim::Blocked { .. }, Claim::Done { .. }) => had,
        // A program that ends because of a limit often says so a second time, less well.
        (
            Claim::RateLimited {} | Claim::QuotaExhausted {},
            Claim::Failed { fault: Fault::Other | Fault::Transient, .. },
        ) => had,
        (Claim::QuotaExhausted {}, Claim::RateLimited {}) => had,
        _ => new,
    }
}

/// May another attempt take up the session that this end left? What went wrong on the merits of the
/// conversation itself begins afresh.
pub fn resumes(class: Class) -> bool {
    match class {
        Class::GateFailed
        | Class::InvalidOutput
        | Class::RateLimited
        | Class::QuotaExhausted
        | Class::Transient
        | Class::TimedOut
        | Class::Killed
        | Class::Interrupted
        | Class::Conflicted
        | Class::ChangesNeeded
        | Class::Rejected
        | Class::NeedsInput => true,
        Class::AgentFailed | Class::Refused | Class::Blocked => false,
    }
}

/// What a task has used up of its budgets since it was last started by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Attempts that failed on the merits.
    pub retries: u32,
    /// Failures on our side.
    pub transients: u32,
    /// Failures on the provider's side.
    pub outages: u32,
    /// Attempts that made no progress.
    pub stalls: u32,
    /// Attempts lost without a word.
    pub crashes: u32,
    /// Redone because of a clash.
    pub conflicts: u32,
    /// Mended because of what reviewers found.
    pub reviews: u32,
}

impl Spent {
    /// Counts one more end of this class, and what lay behind it.
    pub fn count(&mut self, class: Class, fault: Option<Fault>) {
        match class {
            Class::TimedOut if fault == Some(Fault::Stalled) => self.stalls += 1,
            Class::AgentFailed | Class::GateFailed | Class::InvalidOutput | Class::TimedOut => {
                self.retries += 1;
            }
            Class::Transient if fault == Some(Fault::Transient) => self.outages += 1,
            Class::Transient => self.transients += 1,
            Class::Killed => self.crashes += 1,
            Class::Conflicted => self.conflicts += 1,
            Class::ChangesNeeded => self.reviews += 1,
            Class::RateLimited
            | Class::QuotaExhausted
            | Class::Refused
            | Class::NeedsInput
            | Class::Interrupted
            | Class::Rejected
            | Class::Blocked => {}
        }
    }
}

/// After an end of this class, already counted in `spent`: milliseconds until the next try, or none if
/// there is no further one. `incidents` is how often in a row the provider has limited us.
pub fn retry_after_ms(
    class: Class,
    fault: Option<Fault>,
    spent: &Spent,
    incidents: u32,
    task: &Task,
    settings: &Settings,
) -> Option<u64> {
    let retries = task.retries.unwrap_or(settings.run.retries);
    let merits = spent.retries + spent.stalls.saturating_sub(settings.run.stall_restarts);
    let backoff = |count: u32, first: u64, most: u64| {
        let doublings = count.saturating_sub(1).min(16);
        (first << doublings).min(most)
    };
    match class {
        Class::AgentFailed | Class::GateFailed | Class::InvalidOutput | Class::TimedOut => {
            (merits <= retries).then_some(0)
        }
        Class::Transient if fault == Some(Fault::Transient) => {
            let wait = backoff(spent.outages, limits::OUTAGE_WAIT_MS, limits::OUTAGE_WAIT_MS_MAX);
            (spent.outages <= limits::OUTAGES_MAX).then_some(wait)
        }
        Class::Transient => (spent.transients <= limits::TRANSIENTS_MAX).then(|| {
            backoff(spent.transients, limits::TRANSIENT_WAIT_MS, limits::TRANSIENT_WAIT_MS_MAX)
        }),
        Class::Killed => (spent.crashes <= limits::CRASHES_MAX).then_some(0),
        Class::RateLimited => (incidents <= settings.limits.rate_limit_waits).then_some(0),
        Class::Conflicted => (spent.conflicts <= limits::CONFLICT_REWORKS_MAX).then_some(0),
        Class::ChangesNeeded => (spent.reviews <= settings.review.max_cycles).then_some(0),
        // It is for the person to say when it is enough.
        Class::Rejected | Class::QuotaExhausted | Class::Interrupted => Some(0),
        Class::Refused | Class::NeedsInput | Class::Blocked => None,
    }
}

impl crate::tasks::TaskState {
    /// Its work does not merge: it stays on its branch for a person, whether or not one is asked.
    pub fn keeps_branch(&self) -> bool {
        use crate::phase::Phase;
        let clashed = || self.last.as_ref().is_some_and(|last| last.class == Class::Conflicted);
        self.phase() == Phase::Conflicted || (self.phase() == Phase::Failed && clashed())
    }
}
