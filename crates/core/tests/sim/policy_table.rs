//! What ends mean, and when there is another try.

use mainstem_core::fact::{Claim, Class, Ending, Evidence, Fault};
use mainstem_core::limits;
use mainstem_core::plan::Task;
use mainstem_core::policy::{Judgement, Spent, judge, retry_after_ms, supersede};

use crate::cover::evidence;
use crate::setup;

fn nothing() -> Evidence {
    Evidence { tip: "c0".into(), commits: 0, files: 0, ..evidence() }
}

fn class(ending: &Ending, claim: &Claim, left: &Evidence) -> Result<Judgement, Class> {
    match judge(ending, claim, left, None) {
        Judgement::Bad { class, reason, .. } => {
            assert!(!reason.is_empty());
            Err(class)
        }
        good => Ok(good),
    }
}

#[test]
fn success_needs_a_clean_end_and_evidence() {
    let good = Ending::Exited { code: 0 };
    let none = Claim::None;
    let idle = Claim::NothingToDo { reason: String::new() };
    assert_eq!(class(&good, &none, &evidence()), Ok(Judgement::Worked));
    assert_eq!(class(&good, &idle, &evidence()), Ok(Judgement::Worked));
    assert_eq!(class(&good, &idle, &nothing()), Ok(Judgement::NothingToDo));
    assert_eq!(class(&good, &none, &nothing()), Err(Class::AgentFailed));
    let no_files = Evidence { files: 0, ..evidence() };
    assert_eq!(class(&good, &none, &no_files), Err(Class::AgentFailed), "commits without a change");
    let flawed = Evidence { flaws: vec!["marker".to_owned()], ..evidence() };
    assert_eq!(class(&good, &none, &flawed), Err(Class::InvalidOutput));
}

#[test]
fn every_other_end_is_a_failure_of_its_own_class_even_with_work() {
    let none = Claim::None;
    for (ending, wanted) in [
        (Ending::Exited { code: 1 }, Class::AgentFailed),
        (Ending::Exited { code: -1 }, Class::AgentFailed),
        (Ending::Signalled { signal: 9 }, Class::AgentFailed),
        (Ending::TimedOut { idle: true }, Class::TimedOut),
        (Ending::TimedOut { idle: false }, Class::TimedOut),
        (Ending::OutOfMemory { limit: 4 << 30 }, Class::AgentFailed),
        (Ending::Stopped {}, Class::Interrupted),
        (Ending::NotStarted { why: "x".to_owned(), permanent: false }, Class::Transient),
        (Ending::NotStarted { why: "x".to_owned(), permanent: true }, Class::Refused),
        (Ending::Vanished {}, Class::Killed),
    ] {
        assert_eq!(class(&ending, &none, &evidence()), Err(wanted), "{ending:?}");
        let idle = Claim::NothingToDo { reason: String::new() };
        assert_eq!(class(&ending, &idle, &nothing()), Err(wanted), "{ending:?}");
    }
}

#[test]
fn claims_of_trouble_are_believed_and_claims_of_success_are_not() {
    let (good, bad) = (Ending::Exited { code: 0 }, Ending::Exited { code: 3 });
    let blocked = Claim::Blocked { reason: "no access".to_owned() };
    assert_eq!(class(&good, &blocked, &evidence()), Err(Class::Blocked));
    assert_eq!(class(&bad, &blocked, &nothing()), Err(Class::Blocked));
    let limited = Claim::RateLimited {};
    assert_eq!(class(&bad, &limited, &evidence()), Err(Class::RateLimited));
    assert_eq!(class(&good, &limited, &nothing()), Err(Class::RateLimited));
    assert_eq!(class(&good, &limited, &evidence()), Ok(Judgement::Worked), "it waited and went on");
}

/// Tries after the first, until there is none; with the waits before them.
fn tries(class: Class, task: &Task) -> Vec<u64> {
    tries_after(class, None, task)
}

fn tries_after(class: Class, fault: Option<Fault>, task: &Task) -> Vec<u64> {
    let mut settings = setup::settings();
    settings.run.stall_restarts = 2;
    let mut spent = Spent::default();
    let mut waits = Vec::new();
    while waits.len() < 50 {
        spent.count(class, fault);
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
    for merit in [Class::AgentFailed, Class::GateFailed, Class::InvalidOutput, Class::TimedOut] {
        assert_eq!(tries(merit, &task), [0], "{merit:?}: the settings' one retry");
        assert_eq!(tries(merit, &stubborn), [0; 4], "{merit:?}: the task's own number");
    }
    assert_eq!(tries(Class::Transient, &task), [500, 1_000, 2_000]);
    assert_eq!(tries(Class::Killed, &task).len(), limits::CRASHES_MAX as usize);
    assert_eq!(tries(Class::RateLimited, &task), [0; 3]);
    assert_eq!(tries(Class::Conflicted, &task).len(), limits::CONFLICT_REWORKS_MAX as usize);
    assert_eq!(tries(Class::Interrupted, &task).len(), 50, "stopping costs nothing");
    assert_eq!(tries(Class::Blocked, &task), [0; 0]);
    assert_eq!(tries(Class::QuotaExhausted, &task).len(), 50, "a quota is waited for");
    assert_eq!(tries(Class::Refused, &task), [0; 0], "what is refused is refused again");
    assert_eq!(tries(Class::NeedsInput, &task), [0; 0]);
    let outages = tries_after(Class::Transient, Some(Fault::Transient), &task);
    assert_eq!(outages[..3], [2_000, 4_000, 8_000]);
    assert_eq!(outages.len(), limits::OUTAGES_MAX as usize);
    let stalls = tries_after(Class::TimedOut, Some(Fault::Stalled), &task);
    assert_eq!(stalls, [0; 3], "two restarts, then the settings' one retry");
}

#[test]
fn what_the_provider_or_the_program_says_has_a_class_and_a_cure() {
    let bad = Ending::Exited { code: 1 };
    for (fault, wanted) in [
        (Fault::Auth, Class::Refused),
        (Fault::Request, Class::Refused),
        (Fault::Model, Class::Refused),
        (Fault::Transient, Class::Transient),
        (Fault::Stalled, Class::TimedOut),
        (Fault::Looping, Class::NeedsInput),
        (Fault::Context, Class::AgentFailed),
        (Fault::MaxTurns, Class::AgentFailed),
        (Fault::Budget, Class::AgentFailed),
        (Fault::Other, Class::AgentFailed),
    ] {
        let help = Some("claude /login".to_owned());
        let claim = Claim::Failed { fault, message: "401".to_owned(), help };
        let Judgement::Bad { class, reason, help } = judge(&bad, &claim, &evidence(), None) else {
            panic!("{fault:?} is no success")
        };
        assert_eq!(class, wanted, "{fault:?}");
        assert!(reason.contains("401"), "{reason}");
        assert_eq!(help.as_deref(), Some("claude /login"));
        let good = Ending::Exited { code: 0 };
        assert_eq!(judge(&good, &claim, &evidence(), None), Judgement::Worked, "it went on");
    }
    let quota = Claim::QuotaExhausted {};
    assert_eq!(class(&bad, &quota, &evidence()), Err(Class::QuotaExhausted));
    let done = Claim::Done { summary: String::new(), evidence: vec!["trust me".to_owned()] };
    assert_eq!(class(&bad, &done, &evidence()), Err(Class::AgentFailed), "a word is no verdict");
    let good = Ending::Exited { code: 0 };
    assert_eq!(class(&good, &done, &nothing()), Err(Class::AgentFailed));
}

#[test]
fn a_later_claim_counts_unless_it_says_less() {
    let failed = |fault| Claim::Failed { fault, message: String::new(), help: None };
    let done = || Claim::Done { summary: String::new(), evidence: Vec::new() };
    let idle = || Claim::NothingToDo { reason: String::new() };
    assert_eq!(supersede(Claim::RateLimited {}, done()), done());
    assert_eq!(supersede(idle(), done()), idle());
    assert_eq!(supersede(Claim::RateLimited {}, failed(Fault::Other)), Claim::RateLimited {});
    assert_eq!(
        supersede(Claim::QuotaExhausted {}, Claim::RateLimited {}),
        Claim::QuotaExhausted {}
    );
    assert_eq!(supersede(Claim::RateLimited {}, failed(Fault::Auth)), failed(Fault::Auth));
    assert_eq!(supersede(done(), idle()), idle());
}

#[test]
fn budgets_do_not_eat_each_other() {
    let (task, settings) = (setup::task("T", &[]), setup::settings());
    let mut spent = Spent::default();
    for class in [Class::Transient, Class::Killed, Class::RateLimited, Class::Interrupted] {
        spent.count(class, None);
    }
    spent.count(Class::GateFailed, None);
    let left = |class, spent: &Spent| retry_after_ms(class, None, spent, 0, &task, &settings);
    assert_eq!(left(Class::GateFailed, &spent), Some(0));
    spent.count(Class::AgentFailed, None);
    assert_eq!(left(Class::AgentFailed, &spent), None, "one budget on the merits");
}
