//! What ends mean, and when there is another try.

use mainstem_core::fact::{Claim, Class, Ending, Evidence};
use mainstem_core::limits;
use mainstem_core::plan::Task;
use mainstem_core::policy::{Judgement, Spent, judge, retry_after_ms};

use crate::cover::evidence;
use crate::setup;

fn nothing() -> Evidence {
    Evidence { tip: "c0".into(), commits: 0, files: 0, ..evidence() }
}

fn class(ending: &Ending, claim: &Claim, left: &Evidence) -> Result<Judgement, Class> {
    match judge(ending, claim, left) {
        Judgement::Bad { class, reason } => {
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
        (Ending::NotStarted { why: "x".to_owned() }, Class::Transient),
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
    let settings = setup::settings();
    let mut spent = Spent::default();
    let mut waits = Vec::new();
    while waits.len() < 50 {
        spent.count(class);
        match retry_after_ms(class, &spent, task, &settings) {
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
}

#[test]
fn budgets_do_not_eat_each_other_and_waits_count_in_a_row() {
    let (task, settings) = (setup::task("T", &[]), setup::settings());
    let mut spent = Spent::default();
    for class in [Class::Transient, Class::Killed, Class::RateLimited, Class::Interrupted] {
        spent.count(class);
    }
    spent.count(Class::GateFailed);
    assert_eq!(retry_after_ms(Class::GateFailed, &spent, &task, &settings), Some(0));
    assert_eq!(spent.waits, 0, "another end breaks the row of waits");
    spent.count(Class::AgentFailed);
    assert_eq!(
        retry_after_ms(Class::AgentFailed, &spent, &task, &settings),
        None,
        "one budget on the merits"
    );
}
