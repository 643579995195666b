//! Every phase against every fact, written out by hand: what `Phase::next` must say.

use std::collections::BTreeMap;

use mainstem_core::phase::{PHASES, Phase};

use crate::cover::{kind, samples};

use Phase::{
    Asking, Blocked, Cancelled, Conflicted, Failed, Landed, Merging, Preparing, Ready, Skipped,
    Verifying, Waiting, Working,
};

/// Facts that move a task, or are told of it where it stands. Whatever is not here is refused.
fn expected() -> BTreeMap<(Phase, &'static str), Phase> {
    let mut table = BTreeMap::new();
    let mut add = |fact: &'static str, moves: &[(Phase, Phase)]| {
        for (from, to) in moves {
            assert_eq!(table.insert((*from, fact), *to), None, "{fact} from {from:?} twice");
        }
    };
    let stay = |phases: &[Phase]| phases.iter().map(|p| (*p, *p)).collect::<Vec<_>>();
    let to = |phases: &[Phase], next: Phase| phases.iter().map(|p| (*p, next)).collect::<Vec<_>>();
    let idle = [Waiting, Ready];
    add("attempt_intended", &[(Ready, Preparing)]);
    add("workspace_ready", &stay(&[Preparing]));
    add("branch_chosen", &stay(&[Preparing]));
    add("agent_started", &[(Preparing, Working)]);
    for told in ["usage_reported", "provider_limited"] {
        add(told, &stay(&[Preparing, Working, Asking, Verifying]));
    }
    // Somebody may be at its question although its agent is gone.
    let budget_told = [Preparing, Working, Asking, Verifying, Waiting, Ready, Blocked];
    add("budget_reached", &stay(&budget_told));
    for told in ["session_seen", "issue_logged", "task_proposed"] {
        add(told, &stay(&[Preparing, Working, Asking]));
    }
    add("question_asked", &[(Working, Asking), (Verifying, Verifying), (Merging, Merging)]);
    add("question_answered", &stay(&[Asking, Verifying, Merging, Waiting, Ready, Blocked]));
    for told in ["review_started", "reviewer_ended", "review_ended"] {
        add(told, &stay(&[Verifying]));
    }
    add("agent_resumed", &[(Asking, Working)]);
    add("stop_requested", &stay(&[Preparing, Working, Asking, Verifying, Merging]));
    add("agent_ended", &to(&[Preparing, Working, Asking], Verifying));
    add("evidence_collected", &stay(&[Verifying]));
    add("gate_ran", &stay(&[Verifying, Merging]));
    add("task_queued", &[(Verifying, Merging)]);
    add("attempt_failed", &to(&[Preparing, Verifying], Waiting));
    add("car_formed", &stay(&[Merging]));
    add("car_conflicted", &[(Merging, Verifying)]);
    add("car_evicted", &[(Merging, Verifying)]);
    add("candidate_held", &stay(&[Merging]));
    add("candidate_released", &stay(&[Merging]));
    add("landing_intended", &stay(&[Merging]));
    add("landing_refused", &stay(&[Merging]));
    for told in [
        "push_failed",
        "push_intended",
        "pull_opened",
        "pull_seen",
        "merge_intended",
        "pull_reworked",
        "pull_closed",
    ] {
        add(told, &stay(&[Merging]));
    }
    add("pull_stacked", &stay(&[Waiting, Ready, Merging]));
    add("task_landed", &to(&[Preparing, Verifying, Merging], Landed));
    add("task_landed (empty)", &[(Verifying, Landed)]);
    add("checkout_followed", &stay(&[Merging, Landed]));
    add("landing_undone", &[(Landed, Cancelled)]);
    add("task_failed", &to(&idle, Failed));
    add("task_conflicted", &to(&idle, Conflicted));
    add("task_blocked", &to(&[Waiting, Ready, Blocked], Blocked));
    add("task_unblocked", &[(Blocked, Waiting)]);
    add("task_cancelled", &to(&[Waiting, Ready, Failed, Conflicted, Blocked], Cancelled));
    add("task_skipped", &to(&[Waiting, Ready, Failed, Conflicted, Blocked, Cancelled], Skipped));
    add(
        "task_retried",
        &to(&[Waiting, Ready, Failed, Conflicted, Blocked, Cancelled, Skipped], Waiting),
    );
    let quiet = [Waiting, Ready, Landed, Conflicted, Failed, Blocked, Cancelled, Skipped];
    add("workspace_removed", &stay(&quiet));
    add("run_draining", &stay(&[Failed, Conflicted, Blocked]));
    add("snapshot_taken", &stay(&PHASES));
    add("noticed", &stay(&PHASES));
    table
}

#[test]
fn every_fact_leads_from_every_phase_where_the_table_says_or_nowhere() {
    let table = expected();
    for phase in PHASES {
        for fact in samples() {
            let wanted = table.get(&(phase, kind(&fact))).copied();
            let next = phase.next(&fact);
            assert_eq!(next.ok(), wanted, "{} and {}", phase.as_str(), kind(&fact));
        }
    }
}

#[test]
fn a_refused_fact_names_the_phase_and_the_fact() {
    let fact = &samples()[0];
    let refusal = Landed.next(fact).unwrap_err();
    assert_eq!((refusal.phase, refusal.fact.as_ref()), (Landed, fact));
    assert!(refusal.to_string().contains("landed"), "{refusal}");
}
