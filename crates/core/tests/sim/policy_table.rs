//! What ends mean, and when there is another try.

use mainstem_core::attempt_policy::{
    AttemptJudgement, RetryCounts, combine_claims, judge_attempt, retry_after_ms,
};
use mainstem_core::fact::{AgentClaim, AgentEnding, AgentFault, Evidence, FailureClass};
use mainstem_core::limits;
use mainstem_core::plan::Task;

use crate::cover::evidence;
use crate::setup;

fn nothing() -> Evidence {
    Evidence { tip: "c0".into(), commits: 0, files: 0, ..evidence() }
}

fn class(
    ending: &AgentEnding,
    claim: &AgentClaim,
    left: &Evidence,
) -> Result<AttemptJudgement, FailureClass> {
    match judge_attempt(ending, claim, left, None) {
        AttemptJudgement::Bad { class, reason, .. } => {
            assert!(!reason.is_empty());
            Err(class)
        }
        good => Ok(good),
    }
}

#[test]
fn success_needs_a_clean_end_and_evidence() {
    let good = AgentEnding::Exited { code: 0 };
    let none = AgentClaim::None;
    let idle = AgentClaim::NothingToDo { reason: String::new() };
    assert_eq!(class(&good, &none, &evidence()), Ok(AttemptJudgement::Worked));
    assert_eq!(class(&good, &idle, &evidence()), Ok(AttemptJudgement::Worked));
    assert_eq!(class(&good, &idle, &nothing()), Ok(AttemptJudgement::NothingToDo));
    assert_eq!(class(&good, &none, &nothing()), Err(FailureClass::AgentFailed));
    let no_files = Evidence { files: 0, ..evidence() };
    assert_eq!(
        class(&good, &none, &no_files),
        Err(FailureClass::AgentFailed),
        "commits without a change"
    );
    let flawed = Evidence { flaws: vec!["marker".to_owned()], ..evidence() };
    assert_eq!(class(&good, &none, &flawed), Err(FailureClass::InvalidOutput));
}

#[test]
fn every_other_end_is_a_failure_of_its_own_class_even_with_work() {
    let none = AgentClaim::None;
    for (ending, wanted) in [
        (AgentEnding::Exited { code: 1 }, FailureClass::AgentFailed),
        (AgentEnding::Exited { code: -1 }, FailureClass::AgentFailed),
        (AgentEnding::Signalled { signal: 9 }, FailureClass::AgentFailed),
        (AgentEnding::TimedOut { idle: true }, FailureClass::TimedOut),
        (AgentEnding::TimedOut { idle: false }, FailureClass::TimedOut),
        (AgentEnding::OutOfMemory { limit: 4 << 30 }, FailureClass::AgentFailed),
        (AgentEnding::Stopped {}, FailureClass::Interrupted),
        (
            AgentEnding::NotStarted { why: "x".to_owned(), permanent: false },
            FailureClass::Transient,
        ),
        (AgentEnding::NotStarted { why: "x".to_owned(), permanent: true }, FailureClass::Refused),
        (AgentEnding::Vanished {}, FailureClass::Killed),
    ] {
        assert_eq!(class(&ending, &none, &evidence()), Err(wanted), "{ending:?}");
        let idle = AgentClaim::NothingToDo { reason: String::new() };
        assert_eq!(class(&ending, &idle, &nothing()), Err(wanted), "{ending:?}");
    }
}

#[test]
fn claims_of_trouble_are_believed_and_claims_of_success_are_not() {
    let (good, bad) = (AgentEnding::Exited { code: 0 }, AgentEnding::Exited { code: 3 });
    let blocked = AgentClaim::Blocked { reason: "no access".to_owned() };
    assert_eq!(class(&good, &blocked, &evidence()), Err(FailureClass::Blocked));
    assert_eq!(class(&bad, &blocked, &nothing()), Err(FailureClass::Blocked));
    let limited = AgentClaim::RateLimited {};
    assert_eq!(class(&bad, &limited, &evidence()), Err(FailureClass::RateLimited));
    assert_eq!(class(&good, &limited, &nothing()), Err(FailureClass::RateLimited));
    assert_eq!(
        class(&good, &limited, &evidence()),
        Ok(AttemptJudgement::Worked),
        "it waited and went on"
    );
}

/// Tries after the first, until there is none; with the waits before them.
fn tries(class: FailureClass, task: &Task) -> Vec<u64> {
    tries_after(class, None, task)
}

fn tries_after(class: FailureClass, fault: Option<AgentFault>, task: &Task) -> Vec<u64> {
    let mut settings = setup::settings();
    settings.run.stall_restarts = 2;
    let mut spent = RetryCounts::default();
    let mut waits = Vec::new();
    while waits.len() < 50 {
        spent.count_failure(class, fault);
        let incidents = u32::try_from(waits.len()).unwrap() + 1;
        match retry_after_ms(class, fault, &spent, incidents, task, &settings) {
            Some(wait) => waits.push(wait),
            None => break,
        }
    }
    waits
}

#[test]
fn every_class_has_its_own_budget() {
    let task = setup::task("T", &[]);
    let stubborn = Task { retries: Some(4), ..task.clone() };
    for merit in [
        FailureClass::AgentFailed,
        FailureClass::GateFailed,
        FailureClass::InvalidOutput,
        FailureClass::TimedOut,
    ] {
        assert_eq!(tries(merit, &task), [0], "{merit:?}: the settings' one retry");
        assert_eq!(tries(merit, &stubborn), [0; 4], "{merit:?}: the task's own number");
    }
    assert_eq!(tries(FailureClass::Transient, &task), [500, 1_000, 2_000]);
    assert_eq!(tries(FailureClass::Killed, &task).len(), limits::CRASHES_MAX as usize);
    assert_eq!(tries(FailureClass::RateLimited, &task), [0; 3]);
    assert_eq!(tries(FailureClass::Conflicted, &task).len(), limits::CONFLICT_REWORKS_MAX as usize);
    assert_eq!(tries(FailureClass::Interrupted, &task).len(), 50, "stopping costs nothing");
    assert_eq!(tries(FailureClass::Blocked, &task), [0; 0]);
    assert_eq!(tries(FailureClass::QuotaExhausted, &task).len(), 50, "a quota is waited for");
    assert_eq!(tries(FailureClass::Refused, &task), [0; 0], "what is refused is refused again");
    assert_eq!(tries(FailureClass::NeedsInput, &task), [0; 0]);
    let outages = tries_after(FailureClass::Transient, Some(AgentFault::Transient), &task);
    assert_eq!(outages[..3], [2_000, 4_000, 8_000]);
    assert_eq!(outages.len(), limits::OUTAGES_MAX as usize);
    let stalls = tries_after(FailureClass::TimedOut, Some(AgentFault::Stalled), &task);
    assert_eq!(stalls, [0; 3], "two restarts, then the settings' one retry");
}

#[test]
fn what_the_provider_or_the_program_says_has_a_class_and_a_cure() {
    let bad = AgentEnding::Exited { code: 1 };
    for (fault, wanted) in [
        (AgentFault::Auth, FailureClass::Refused),
        (AgentFault::Request, FailureClass::Refused),
        (AgentFault::Model, FailureClass::Refused),
        (AgentFault::Transient, FailureClass::Transient),
        (AgentFault::Stalled, FailureClass::TimedOut),
        (AgentFault::Looping, FailureClass::NeedsInput),
        (AgentFault::Context, FailureClass::AgentFailed),
        (AgentFault::MaxTurns, FailureClass::AgentFailed),
        (AgentFault::Budget, FailureClass::AgentFailed),
        (AgentFault::Other, FailureClass::AgentFailed),
    ] {
        let help = Some("claude /login".to_owned());
        let claim = AgentClaim::Failed { fault, message: "401".to_owned(), help };
        let AttemptJudgement::Bad { class, reason, help } =
            judge_attempt(&bad, &claim, &evidence(), None)
        else {
            panic!("{fault:?} is no success")
        };
        assert_eq!(class, wanted, "{fault:?}");
        assert!(reason.contains("401"), "{reason}");
        assert_eq!(help.as_deref(), Some("claude /login"));
        let good = AgentEnding::Exited { code: 0 };
        assert_eq!(
            judge_attempt(&good, &claim, &evidence(), None),
            AttemptJudgement::Worked,
            "it went on"
        );
    }
    let quota = AgentClaim::QuotaExhausted {};
    assert_eq!(class(&bad, &quota, &evidence()), Err(FailureClass::QuotaExhausted));
    let done = AgentClaim::Done { summary: String::new(), evidence: vec!["trust me".to_owned()] };
    assert_eq!(
        class(&bad, &done, &evidence()),
        Err(FailureClass::AgentFailed),
        "a word is no verdict"
    );
    let good = AgentEnding::Exited { code: 0 };
    assert_eq!(class(&good, &done, &nothing()), Err(FailureClass::AgentFailed));
}

#[test]
fn a_later_claim_counts_unless_it_says_less() {
    let failed = |fault| AgentClaim::Failed { fault, message: String::new(), help: None };
    let done = || AgentClaim::Done { summary: String::new(), evidence: Vec::new() };
    let idle = || AgentClaim::NothingToDo { reason: String::new() };
    assert_eq!(combine_claims(AgentClaim::RateLimited {}, done()), done());
    assert_eq!(combine_claims(idle(), done()), idle());
    assert_eq!(
        combine_claims(AgentClaim::RateLimited {}, failed(AgentFault::Other)),
        AgentClaim::RateLimited {}
    );
    assert_eq!(
        combine_claims(AgentClaim::QuotaExhausted {}, AgentClaim::RateLimited {}),
        AgentClaim::QuotaExhausted {}
    );
    assert_eq!(
        combine_claims(AgentClaim::RateLimited {}, failed(AgentFault::Auth)),
        failed(AgentFault::Auth)
    );
    assert_eq!(combine_claims(done(), idle()), idle());
}

#[test]
fn budgets_do_not_eat_each_other() {
    let (task, settings) = (setup::task("T", &[]), setup::settings());
    let mut spent = RetryCounts::default();
    for class in [
        FailureClass::Transient,
        FailureClass::Killed,
        FailureClass::RateLimited,
        FailureClass::Interrupted,
    ] {
        spent.count_failure(class, None);
    }
    spent.count_failure(FailureClass::GateFailed, None);
    let left = |class, spent: &RetryCounts| retry_after_ms(class, None, spent, 0, &task, &settings);
    assert_eq!(left(FailureClass::GateFailed, &spent), Some(0));
    spent.count_failure(FailureClass::AgentFailed, None);
    assert_eq!(left(FailureClass::AgentFailed, &spent), None, "one budget on the merits");
}
