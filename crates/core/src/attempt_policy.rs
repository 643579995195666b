//! What an attempt's end means, and whether there is another try. Rules as pure functions over
//! data; knows no graph and no train.

use crate::config::Settings;
use crate::fact::{AgentClaim, AgentEnding, AgentFault, Evidence, FailureClass};
use crate::id::Oid;
use crate::limits;
use crate::plan::Task;
use crate::plan::quantities::render_size;

/// What the end of an attempt amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptJudgement {
    /// There is work, and nothing against looking at it with gates.
    Worked,
    /// There is none, and the agent says that none was needed.
    NothingToDo,
    /// It does not lead on.
    Bad {
        /// What kind of end.
        class: FailureClass,
        reason: String,
        /// The command that helps.
        help: Option<String>,
    },
}

/// Judges an attempt by what it left, never by its word alone. Exit 0 without evidence is a
/// failure; so is evidence with any other exit. `start` is the tree that the attempt started with, if
/// that was earlier work: such work counts, but a word of trouble is not refuted by it.
pub fn judge_attempt(
    ending: &AgentEnding,
    claim: &AgentClaim,
    evidence: &Evidence,
    start: Option<&Oid>,
) -> AttemptJudgement {
    if let Some(judgement) = judge_by_claim(ending, claim, evidence, start) {
        return judgement;
    }
    if let Some(judgement) = judge_by_ending(ending) {
        return judgement;
    }
    if let Some(flaw) = evidence.flaws.first() {
        return bad_attempt(FailureClass::InvalidOutput, flaw);
    }
    if evidence.base == evidence.tip || evidence.files == 0 {
        return match claim {
            AgentClaim::NothingToDo { .. } => AttemptJudgement::NothingToDo,
            AgentClaim::None
            | AgentClaim::Blocked { .. }
            | AgentClaim::RateLimited {}
            | AgentClaim::QuotaExhausted {}
            | AgentClaim::Failed { .. }
            | AgentClaim::Done { .. } => {
                bad_attempt(FailureClass::AgentFailed, "the agent exited without changing anything")
            }
        };
    }
    AttemptJudgement::Worked
}

fn bad_attempt(class: FailureClass, reason: impl AsRef<str>) -> AttemptJudgement {
    let reason = limits::clip_for_fact(reason.as_ref());
    AttemptJudgement::Bad { class, reason, help: None }
}

/// Any end but a clean exit is bad, whatever the attempt left.
fn judge_by_ending(ending: &AgentEnding) -> Option<AttemptJudgement> {
    Some(match ending {
        AgentEnding::Exited { code: 0 } => return None,
        AgentEnding::Exited { code } => {
            bad_attempt(FailureClass::AgentFailed, format!("the agent exited with code {code}"))
        }
        AgentEnding::Signalled { signal } => bad_attempt(
            FailureClass::AgentFailed,
            format!("the agent was killed by signal {signal}"),
        ),
        AgentEnding::TimedOut { idle: true } => {
            bad_attempt(FailureClass::TimedOut, "the agent printed nothing for too long")
        }
        AgentEnding::TimedOut { idle: false } => {
            bad_attempt(FailureClass::TimedOut, "the agent timed out")
        }
        AgentEnding::OutOfMemory { limit } => {
            let limit = render_size(*limit);
            let why = format!(
                "the agent was killed: more memory used than limits.memory_per_agent ({limit})"
            );
            bad_attempt(FailureClass::AgentFailed, why)
        }
        AgentEnding::Stopped {} => bad_attempt(FailureClass::Interrupted, "the agent was stopped"),
        AgentEnding::NotStarted { why, permanent: true } => {
            let reason = limits::clip_for_fact(&format!("the agent cannot start: {why}"));
            let help = Some("fix the settings of the agent or the task".to_owned());
            AttemptJudgement::Bad { class: FailureClass::Refused, reason, help }
        }
        AgentEnding::NotStarted { why, permanent: false } => {
            bad_attempt(FailureClass::Transient, format!("the agent could not be started: {why}"))
        }
        AgentEnding::Vanished {} => {
            bad_attempt(FailureClass::Killed, "the agent disappeared without an exit code")
        }
    })
}

/// Claims of trouble are believed, unless the agent went on and did its work all the same.
fn judge_by_claim(
    ending: &AgentEnding,
    claim: &AgentClaim,
    evidence: &Evidence,
    start: Option<&Oid>,
) -> Option<AttemptJudgement> {
    let clean_exit = *ending == AgentEnding::Exited { code: 0 };
    let added_nothing = start.is_some() && evidence.tree.as_ref() == start;
    let in_vain = !clean_exit || evidence.base == evidence.tip || added_nothing;
    let (class, reason, help) = match claim {
        AgentClaim::Blocked { reason } => (FailureClass::Blocked, reason.clone(), None),
        AgentClaim::RateLimited {} if in_vain => {
            (FailureClass::RateLimited, "rate-limited by the provider".to_owned(), None)
        }
        AgentClaim::QuotaExhausted {} if in_vain => {
            (FailureClass::QuotaExhausted, "the provider's quota is exhausted".to_owned(), None)
        }
        AgentClaim::Failed { fault, message, help } if in_vain => {
            let (class, reason) = classify_fault(*fault, message);
            (class, reason, help.as_ref().map(|help| limits::clip_for_fact(help)))
        }
        AgentClaim::RateLimited {}
        | AgentClaim::QuotaExhausted {}
        | AgentClaim::Failed { .. }
        | AgentClaim::NothingToDo { .. }
        | AgentClaim::Done { .. }
        | AgentClaim::None => return None,
    };
    Some(AttemptJudgement::Bad { class, reason: limits::clip_for_fact(&reason), help })
}

/// What a provider's or a program's failure amounts to. Where nothing but a person can help, another
/// try would only cost.
fn classify_fault(fault: AgentFault, message: &str) -> (FailureClass, String) {
    let (class, what) = match fault {
        AgentFault::Auth => (FailureClass::Refused, "authentication failed"),
        AgentFault::Request => (FailureClass::Refused, "the provider rejected the request"),
        AgentFault::Model => (FailureClass::Refused, "the provider does not have the model"),
        AgentFault::Transient => (FailureClass::Transient, "the provider failed"),
        AgentFault::Stalled => (FailureClass::TimedOut, "the agent made no progress"),
        AgentFault::Looping => {
            (FailureClass::NeedsInput, "the agent repeats the same step over and over")
        }
        AgentFault::Context => {
            (FailureClass::AgentFailed, "the conversation no longer fits the model's context")
        }
        AgentFault::MaxTurns => {
            (FailureClass::AgentFailed, "the agent reached the turn limit (max_turns)")
        }
        AgentFault::Budget => (FailureClass::AgentFailed, "the agent reached the spending limit"),
        AgentFault::Setup => (FailureClass::Refused, "the agent cannot start"),
        AgentFault::Other => (FailureClass::AgentFailed, "the agent failed"),
    };
    match message.trim() {
        "" => (class, what.to_owned()),
        message => (class, format!("{what}: {message}")),
    }
}

/// What an agent claims in the end, of all that it claimed on the way.
pub fn combine_claims(had: AgentClaim, new: AgentClaim) -> AgentClaim {
    match (&had, &new) {
        // To say "done" takes nothing back; it only shows that a wait is over.
        (AgentClaim::NothingToDo { .. } | AgentClaim::Blocked { .. }, AgentClaim::Done { .. }) => {
            had
        }
        // A program that ends because of a limit often says so a second time, less well.
        (
            AgentClaim::RateLimited {} | AgentClaim::QuotaExhausted {},
            AgentClaim::Failed { fault: AgentFault::Other | AgentFault::Transient, .. },
        ) => had,
        (AgentClaim::QuotaExhausted {}, AgentClaim::RateLimited {}) => had,
        _ => new,
    }
}

/// May another attempt take up the session that this end left? What went wrong on the merits of the
/// conversation itself begins afresh.
pub fn may_resume_session(class: FailureClass) -> bool {
    match class {
        FailureClass::GateFailed
        | FailureClass::InvalidOutput
        | FailureClass::RateLimited
        | FailureClass::QuotaExhausted
        | FailureClass::Transient
        | FailureClass::TimedOut
        | FailureClass::Killed
        | FailureClass::Interrupted
        | FailureClass::Conflicted
        | FailureClass::ChangesNeeded
        | FailureClass::Rejected
        | FailureClass::NeedsInput => true,
        FailureClass::AgentFailed | FailureClass::Refused | FailureClass::Blocked => false,
    }
}

/// What a task has used up of its budgets since it was last started by hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryCounts {
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

impl RetryCounts {
    /// Counts one more end of this class, and what lay behind it.
    pub fn count_failure(&mut self, class: FailureClass, fault: Option<AgentFault>) {
        match class {
            FailureClass::TimedOut if fault == Some(AgentFault::Stalled) => self.stalls += 1,
            FailureClass::AgentFailed
            | FailureClass::GateFailed
            | FailureClass::InvalidOutput
            | FailureClass::TimedOut => {
                self.retries += 1;
            }
            FailureClass::Transient if fault == Some(AgentFault::Transient) => self.outages += 1,
            FailureClass::Transient => self.transients += 1,
            FailureClass::Killed => self.crashes += 1,
            FailureClass::Conflicted => self.conflicts += 1,
            FailureClass::ChangesNeeded => self.reviews += 1,
            FailureClass::RateLimited
            | FailureClass::QuotaExhausted
            | FailureClass::Refused
            | FailureClass::NeedsInput
            | FailureClass::Interrupted
            | FailureClass::Rejected
            | FailureClass::Blocked => {}
        }
    }
}

/// After an end of this class, already counted in `spent`: milliseconds until the next try, or none if
/// there is no further one. `incidents` is how often in a row the provider has limited us.
pub fn retry_after_ms(
    class: FailureClass,
    fault: Option<AgentFault>,
    spent: &RetryCounts,
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
        FailureClass::AgentFailed
        | FailureClass::GateFailed
        | FailureClass::InvalidOutput
        | FailureClass::TimedOut => (merits <= retries).then_some(0),
        FailureClass::Transient if fault == Some(AgentFault::Transient) => {
            let wait = backoff(spent.outages, limits::OUTAGE_WAIT_MS, limits::OUTAGE_WAIT_MS_MAX);
            (spent.outages <= limits::OUTAGES_MAX).then_some(wait)
        }
        FailureClass::Transient => (spent.transients <= limits::TRANSIENTS_MAX).then(|| {
            backoff(spent.transients, limits::TRANSIENT_WAIT_MS, limits::TRANSIENT_WAIT_MS_MAX)
        }),
        FailureClass::Killed => (spent.crashes <= limits::CRASHES_MAX).then_some(0),
        FailureClass::RateLimited => (incidents <= settings.limits.rate_limit_waits).then_some(0),
        FailureClass::Conflicted => (spent.conflicts <= limits::CONFLICT_REWORKS_MAX).then_some(0),
        FailureClass::ChangesNeeded => (spent.reviews <= settings.review.max_cycles).then_some(0),
        // It is for the person to say when it is enough.
        FailureClass::Rejected | FailureClass::QuotaExhausted | FailureClass::Interrupted => {
            Some(0)
        }
        FailureClass::Refused | FailureClass::NeedsInput | FailureClass::Blocked => None,
    }
}

impl crate::tasks::TaskState {
    /// Its work does not merge: it stays on its branch for a person, whether or not one is asked.
    pub fn keeps_branch(&self) -> bool {
        use crate::phase::Phase;
        let clashed =
            || self.last.as_ref().is_some_and(|last| last.class == FailureClass::Conflicted);
        self.phase() == Phase::Conflicted || (self.phase() == Phase::Failed && clashed())
    }
}
