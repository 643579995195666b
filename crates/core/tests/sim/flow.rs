//! Stories of one or two tasks: questions, stops, retries, refusals, revisions.

use mainstem_core::config::{ConflictAction, RunFailureAction};
use mainstem_core::effect::Effect;
use mainstem_core::fact::{AgentEnding, Fact, GateVerdict, Usage};
use mainstem_core::id::{Oid, Time};
use mainstem_core::machine::{Input, MachineCommand, RestReason};
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Task, TaskFailureAction};
use mainstem_core::train::batches::BatchPurpose;

use crate::cover::evidence;
use crate::drive::{exited_well, question, verdict};
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn one() -> Lab {
    Lab::new(&settings(), plan(vec![task("A", &[])]))
}

fn answer(lab: &mut Lab, question: &str) {
    let (question, text) = (question.to_owned(), "1".to_owned());
    lab.command(MachineCommand::Answer { question, text, free: false }).unwrap();
}

fn delivered(effects: &[Effect]) -> Vec<u32> {
    let number = |e: &Effect| match e {
        Effect::DeliverAnswer { number, .. } => Some(*number),
        _ => None,
    };
    effects.iter().filter_map(number).collect()
}

#[test]
fn a_task_walks_to_the_branch() {
    let mut lab = one();
    assert!(matches!(lab.effects[..], [Effect::PrepareWorkspace { .. }]));
    lab.enqueue("A");
    assert_eq!(lab.phase("A"), Phase::Merging);
    lab.land("A");
    assert_eq!(lab.machine.rest_reason(), None, "its workspace is being removed");
    lab.removed("A");
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Done));
}

#[test]
fn work_that_cannot_be_read_is_read_again_before_the_attempt_is_given_up() {
    let mut lab = one();
    lab.work("A");
    lab.end("A", exited_well());
    let fail = |lab: &mut Lab| {
        let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
        lab.put(Input::EvidenceCollected {
            task,
            attempt,
            evidence: Err("git was killed".to_owned()),
        })
    };
    for _ in 0..2 {
        let asked = fail(&mut lab);
        assert!(matches!(asked[..], [Effect::CollectEvidence { .. }]), "{asked:?}");
        assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Verifying, 1));
    }
    fail(&mut lab);
    assert_ne!(lab.phase("A"), Phase::Verifying, "the third time it is given up");
}

#[test]
fn a_workspace_that_stands_is_named_though_a_later_attempt_never_got_one() {
    let mut s = settings();
    s.workspace.keep = mainstem_core::config::WorkspaceRetention::Always;
    let mut lab = Lab::new(&s, plan(vec![task("A", &[])]));
    let place = |lab: &Lab| lab.machine.task_view(lab.ix("A")).workspace;
    lab.fail("A");
    let stands = place(&lab);
    assert!(stands.is_some(), "the second attempt has none of its own yet");
    while lab.phase("A") == Phase::Preparing {
        let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
        lab.put(Input::WorkspaceFailed { task, attempt, reason: "moved back".to_owned() });
        lab.now = Time(lab.now.0 + 3_600_000);
        lab.put(Input::Tick);
    }
    assert_eq!(lab.phase("A"), Phase::Failed);
    assert_eq!(place(&lab), stands);
}

#[test]
fn a_workspace_that_cannot_be_removed_is_tried_three_times_and_then_left_to_the_next_life() {
    let mut lab = one();
    lab.enqueue("A");
    lab.land("A");
    let fail = |lab: &mut Lab| {
        let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
        let workspace = Err("git was killed".to_owned());
        lab.put(Input::WorkspaceRemoved { task, attempt, workspace })
    };
    for _ in 0..2 {
        let asked = fail(&mut lab);
        assert!(matches!(asked[..], [Effect::RemoveWorkspace { .. }]), "{asked:?}");
        assert_eq!(lab.machine.rest_reason(), None);
    }
    assert_eq!(fail(&mut lab), []);
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::Done));
}

#[test]
fn an_answer_waits_for_a_slot_and_a_second_question_for_the_first_answer() {
    let mut s = settings();
    s.run.jobs = 1;
    let mut lab = Lab::new(&s, plan(vec![task("A", &[]), task("B", &[])]));
    lab.work("A");
    lab.say("A", 1, question(None, None));
    assert_eq!((lab.phase("A"), lab.phase("B")), (Phase::Asking, Phase::Preparing));
    lab.say("A", 2, question(None, None));
    assert_eq!(lab.machine.open_questions().len(), 1, "one at a time");
    answer(&mut lab, "q1");
    assert_eq!(lab.phase("A"), Phase::Asking, "B has the slot");
    assert_eq!(delivered(&lab.effects), [0; 0]);
    lab.work("B");
    lab.end("B", exited_well());
    assert_eq!(delivered(&lab.effects), [1]);
    assert_eq!(lab.phase("A"), Phase::Asking, "the second question is asked at once");
    assert_eq!(lab.machine.open_questions()[0].name, "Q2");
    assert_eq!(lab.machine.open_questions()[0].number, 2);
    let refusal = lab.command(MachineCommand::Answer {
        question: "Q1".to_owned(),
        text: String::new(),
        free: false,
    });
    assert!(refusal.is_err(), "answered already");
    answer(&mut lab, "Q2");
    assert_eq!((lab.phase("A"), delivered(&lab.effects)), (Phase::Working, vec![1, 2]));
    lab.effects.clear();
    lab.crash();
    assert_eq!(delivered(&lab.effects), [1, 2], "a new life hands out all answers again");
}

/// Asks, and is stopped by an interrupt; the engine leaves.
fn interrupted_while_asking() -> Lab {
    let mut lab = one();
    lab.work("A");
    lab.say("A", 1, question(None, None));
    lab.put(Input::Interrupt { now: false });
    lab
}

#[test]
fn an_answer_to_an_agent_that_is_being_stopped_is_kept_for_the_next_one() {
    let mut lab = interrupted_while_asking();
    answer(&mut lab, "Q1");
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    lab.crash();
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2));
    lab.work("A");
    lab.effects.clear();
    lab.say("A", 1, question(None, None));
    assert_eq!((lab.phase("A"), delivered(&lab.effects)), (Phase::Working, vec![1]));
    assert_eq!(lab.machine.open_questions().len(), 0);
    lab.say("A", 2, question(None, None));
    assert_eq!(lab.phase("A"), Phase::Asking, "an answer is for one question");
}

#[test]
fn a_question_holds_its_task_back_until_somebody_answers_or_its_deadline_does() {
    let mut lab = interrupted_while_asking();
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    lab.crash();
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Ready, 1));
    assert_eq!(lab.machine.rest_reason(), None, "the run waits for the answer");
    assert_eq!(lab.machine.inbox_items().len(), 1);
    answer(&mut lab, "Q1");
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2));

    let mut lab = one();
    lab.work("A");
    lab.say("A", 1, question(Some("b"), Some(500)));
    lab.put(Input::Interrupt { now: false });
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    lab.crash();
    assert_eq!(lab.phase("A"), Phase::Ready);
    lab.now = Time(1_500);
    lab.put(Input::Tick);
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2));
}

#[test]
fn an_answer_that_comes_while_what_was_left_is_read_is_not_lost() {
    let mut lab = one();
    lab.work("A");
    lab.say("A", 1, question(None, None));
    lab.end("A", AgentEnding::Exited { code: 1 });
    answer(&mut lab, "Q1");
    lab.collect("A");
    assert_eq!(
        (lab.phase("A"), lab.attempt("A")),
        (Phase::Preparing, 2),
        "it is free, not blocked"
    );
}

#[test]
fn whoever_answers_is_asked_and_paid_although_the_agent_is_gone() {
    let mut s = settings();
    s.questions.agent = Some("wise".to_owned());
    s.budget.usd = Some(1.0);
    let mut lab = Lab::new(&s, plan(vec![task("A", &[])]));
    lab.work("A");
    lab.say("A", 1, question(None, None));
    lab.put(Input::Interrupt { now: false });
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    lab.effects.clear();
    lab.crash();
    let asked = |e: &Effect| matches!(e, Effect::ConsultAgent { question, .. } if question == "Q1");
    assert!(lab.effects.iter().any(asked), "{:?}", lab.effects);
    let dollar = Usage { cost_usd: Some(1.0), ..Usage::default() };
    let (question, said, usage) = ("Q1".to_owned(), Ok("a".to_owned()), vec![dollar]);
    lab.put(Input::ConsultationDone { question, said, usage });
    assert!((lab.machine.spent_usd() - 1.0).abs() < f64::EPSILON);
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2));
}

#[test]
fn work_that_was_finished_without_an_answer_takes_its_question_along() {
    let mut lab = one();
    lab.work("A");
    lab.say("A", 1, question(None, None));
    lab.end("A", exited_well());
    lab.collect("A");
    assert_eq!(lab.phase("A"), Phase::Merging);
    assert_eq!(lab.machine.open_questions().len(), 0);
}

#[test]
fn options_are_answered_by_number_and_a_deadline_takes_the_default() {
    let mut lab = one();
    lab.work("A");
    lab.say("A", 1, question(Some("b"), Some(500)));
    assert_eq!(lab.machine.wake_at(), Some(Time(1_500)));
    lab.now = Time(1_499);
    lab.put(Input::Tick);
    assert_eq!(lab.phase("A"), Phase::Asking);
    lab.now = Time(1_500);
    lab.put(Input::Tick);
    assert_eq!(lab.phase("A"), Phase::Working);
    let last = lab.effects.last().unwrap();
    assert!(matches!(last, Effect::DeliverAnswer { text, .. } if text == "b"), "{last:?}");
    lab.say("A", 2, question(None, Some(500)));
    answer(&mut lab, "Q2");
    let last = lab.effects.last().unwrap();
    assert!(matches!(last, Effect::DeliverAnswer { text, .. } if text == "a"), "{last:?}");
}

#[test]
fn an_answered_agent_waits_for_its_providers_slot_too() {
    let mut s = settings();
    s.limits.per_agent.insert("ann".to_owned(), 1);
    let mut lab = Lab::new(&s, plan(vec![task("A", &[]), task("B", &[])]));
    lab.work("A");
    lab.say("A", 1, question(None, None));
    assert_eq!(lab.phase("B"), Phase::Preparing);
    answer(&mut lab, "Q1");
    assert_eq!(lab.phase("A"), Phase::Asking);
    lab.work("B");
    lab.end("B", exited_well());
    assert_eq!(lab.phase("A"), Phase::Working);
}

/// Brings `A` into a phase.
fn in_phase(phase: Phase) -> Lab {
    let mut s = settings();
    if phase == Phase::Conflicted {
        s.land.on_conflict = ConflictAction::Manual;
    }
    let mut gated = task("A", &["R"]);
    gated.verify = vec!["unit".to_owned()];
    let root = Task { on_failure: TaskFailureAction::Block, ..task("R", &[]) };
    let mut lab = Lab::new(&s, plan(vec![root, gated]));
    if phase == Phase::Waiting {
        return lab;
    }
    if phase == Phase::Blocked {
        lab.fail_for_good("R");
        return lab;
    }
    if phase == Phase::Ready {
        lab.command(MachineCommand::Pause).unwrap();
    }
    lab.enqueue("R");
    lab.land("R");
    match phase {
        Phase::Working => lab.work("A"),
        Phase::Asking => {
            lab.work("A");
            lab.say("A", 1, question(None, None));
        }
        Phase::Failed => lab.fail_for_good("A"),
        Phase::Verifying => lab.enqueue("A"),
        Phase::Merging | Phase::Landed | Phase::Conflicted => {
            lab.enqueue("A");
            let (task, attempt, gates) =
                (lab.ix("A"), 1, vec![verdict("unit", GateVerdict::Passed)]);
            lab.put(Input::GatesRan { task, attempt, tree: "t".into(), gates });
        }
        Phase::Cancelled => {
            lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
            lab.put(Input::WorkspaceFailed {
                task: lab.ix("A"),
                attempt: 1,
                reason: String::new(),
            });
        }
        Phase::Skipped => {
            lab.command(MachineCommand::Skip("A".to_owned())).unwrap();
            lab.put(Input::WorkspaceFailed {
                task: lab.ix("A"),
                attempt: 1,
                reason: String::new(),
            });
        }
        Phase::Preparing | Phase::Ready | Phase::Waiting | Phase::Blocked => {}
    }
    if phase == Phase::Landed {
        lab.land("A");
    }
    if phase == Phase::Conflicted {
        let (task, files) = (lab.ix("A"), vec!["f".to_owned()]);
        let places = vec![lab.machine.train().candidate_of(task).unwrap().queue_number];
        let (purpose, onto) = (BatchPurpose::Landing, "c0".into());
        lab.put(Input::BatchConflicted { purpose, places, at: 0, onto, files, with_main: true });
    }
    assert_eq!(lab.phase("A"), phase);
    lab
}

#[test]
fn cancel_in_every_phase_ends_in_cancelled_or_says_why_not() {
    use mainstem_core::phase::PHASES;
    for phase in PHASES {
        let mut lab = in_phase(phase);
        lab.effects.clear();
        let reply = lab.command(MachineCommand::Cancel(Some("A".to_owned())));
        match phase {
            Phase::Landed => assert!(reply.is_err()),
            Phase::Skipped => assert_eq!(lab.phase("A"), Phase::Skipped),
            Phase::Preparing => {
                lab.workspace("A");
                let stop = lab.effects.iter().any(|e| matches!(e, Effect::StopAgent { .. }));
                assert!(stop, "whether an agent lives is asked by stopping it");
                let run = lab.effects.iter().any(|e| matches!(e, Effect::RunAgent { .. }));
                assert!(!run, "and none is started for it");
                lab.end("A", AgentEnding::Stopped {});
                lab.collect("A");
            }
            Phase::Working | Phase::Asking => {
                assert!(lab.effects.iter().any(|e| matches!(e, Effect::StopAgent { .. })));
                lab.end("A", AgentEnding::Stopped {});
                lab.collect("A");
            }
            Phase::Verifying => {
                assert!(lab.effects.iter().any(|e| matches!(e, Effect::StopJobs { .. })));
                let (task, gates) = (lab.ix("A"), Vec::new());
                lab.put(Input::GatesRan { task, attempt: 1, tree: "t".into(), gates });
            }
            _ => {}
        }
        if !matches!(phase, Phase::Landed | Phase::Skipped) {
            assert_eq!(lab.phase("A"), Phase::Cancelled, "from {}", phase.as_str());
            assert_eq!(lab.machine.train().candidates().len(), 0, "from {}", phase.as_str());
        }
    }
}

#[test]
fn work_that_is_found_on_the_branch_has_landed_before_it_boards() {
    // The journal lost its end: what it knows of the attempt is older than the branch.
    for phase in [Phase::Preparing, Phase::Verifying] {
        let mut lab = in_phase(phase);
        let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
        let found =
            |attempt| Input::Landed { task, attempt, commit: "m-A".into(), old: "c0".into() };
        lab.ignored(found(attempt + 1));
        lab.put(found(attempt));
        assert_eq!(lab.phase("A"), Phase::Landed);
        lab.ignored(found(attempt));
    }
    let mut lab = in_phase(Phase::Working);
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    lab.ignored(Input::Landed { task, attempt, commit: "m-A".into(), old: "c0".into() });
}

#[test]
fn evidence_that_was_never_judged_is_judged_before_the_gates_count() {
    let mut lab = one();
    lab.work("A");
    lab.end("A", AgentEnding::Exited { code: 1 });
    // The journal ends with the evidence; the judgement that followed it is lost.
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let fact = Fact::EvidenceCollected { task: "A".into(), attempt, evidence: evidence() };
    lab.machine.apply(&fact, Time(5_000)).unwrap();
    lab.put(Input::GatesRan { task, attempt, tree: "t".into(), gates: Vec::new() });
    assert_ne!(lab.phase("A"), Phase::Merging);
}

#[test]
fn the_workspace_of_a_failed_task_stays_until_it_lands_or_is_called_off() {
    let mut lab = one();
    lab.fail_for_good("A");
    let place = |lab: &Lab| lab.machine.task_view(lab.ix("A")).workspace;
    assert!(!lab.machine.tasks().is_any_workspace_being_removed());
    assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
    assert_eq!(place(&lab).as_deref(), Some("w/A"));
    lab.crash();
    assert!(!lab.machine.tasks().is_any_workspace_being_removed(), "nor does a new life remove it");
    lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
    assert!(lab.machine.tasks().is_any_workspace_being_removed());
    lab.removed("A");
    assert_eq!(place(&lab), None);

    let mut lab = one();
    lab.fail_for_good("A");
    lab.command(MachineCommand::retry_task("A".to_owned())).unwrap();
    lab.enqueue("A");
    lab.land("A");
    assert!(lab.machine.tasks().is_any_workspace_being_removed(), "it has landed");
}

#[test]
fn a_task_that_is_wanted_again_does_not_wait_for_a_removal_that_failed() {
    let mut lab = in_phase(Phase::Cancelled);
    lab.command(MachineCommand::retry_task("A".to_owned())).unwrap();
    let (task, attempt) = (lab.ix("A"), lab.attempt("A"));
    let workspace = Err("git was killed".to_owned());
    let asked = lab.put(Input::WorkspaceRemoved { task, attempt, workspace });
    assert!(
        asked.iter().any(|effect| matches!(effect, Effect::PrepareWorkspace { .. })),
        "{asked:?}"
    );
}

#[test]
fn cancelling_a_landing_counts_only_if_the_branch_refuses() {
    for refused in [false, true] {
        let mut lab = in_phase(Phase::Merging);
        lab.form("A");
        lab.verify("A", GateVerdict::Passed);
        lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
        assert_eq!(lab.phase("A"), Phase::Merging);
        let (task, attempt, new) = (lab.ix("A"), 1, Oid::new("m-A"));
        if refused {
            lab.put(Input::LandingRefused { task, attempt, new, found: Some("x".into()) });
            assert_eq!(lab.phase("A"), Phase::Cancelled);
        } else {
            lab.put(Input::Landed { task, attempt, commit: new, old: "c0".into() });
            assert_eq!(lab.phase("A"), Phase::Landed);
        }
    }
}

#[test]
fn an_interrupt_does_not_undo_a_cancel() {
    let mut lab = in_phase(Phase::Working);
    lab.command(MachineCommand::Cancel(Some("A".to_owned()))).unwrap();
    lab.put(Input::Interrupt { now: false });
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    assert_eq!(lab.phase("A"), Phase::Cancelled);
}

#[test]
fn an_interrupt_frees_the_task_and_leaves_nothing_alive() {
    let mut lab = in_phase(Phase::Working);
    lab.put(Input::Interrupt { now: false });
    assert_eq!(lab.machine.rest_reason(), None, "an agent lives");
    lab.put(Input::Interrupt { now: true });
    let stops = lab.effects.iter().filter(|e| matches!(e, Effect::StopAgent { .. }));
    assert_eq!(stops.count(), 2, "asked, then told");
    lab.end("A", AgentEnding::Stopped {});
    lab.collect("A");
    assert_eq!(
        (lab.phase("A"), lab.machine.rest_reason()),
        (Phase::Ready, None),
        "its workspace goes"
    );
    lab.removed("R");
    lab.removed("A");
    assert_eq!(
        (lab.phase("A"), lab.machine.rest_reason()),
        (Phase::Ready, Some(RestReason::Interrupted))
    );
    lab.crash();
    assert_eq!(
        (lab.phase("A"), lab.attempt("A")),
        (Phase::Preparing, 2),
        "and the next life goes on"
    );
}

#[test]
fn what_comes_late_or_twice_or_for_another_attempt_changes_nothing() {
    let mut lab = one();
    let task = lab.ix("A");
    let workspace = |attempt, base: &str| Input::WorkspaceReady {
        task,
        attempt,
        workspace: "w".to_owned(),
        base: base.into(),
        continued: None,
    };
    let failed = |attempt| Input::WorkspaceFailed { task, attempt, reason: "late".to_owned() };
    let ended = |attempt| Input::AgentEnded {
        task,
        attempt,
        ending: exited_well(),
        claim: Default::default(),
    };
    lab.ignored(workspace(2, "c0"));
    lab.ignored(failed(0));
    lab.put(workspace(1, "c0"));
    lab.ignored(workspace(1, "c9"));
    lab.ignored(failed(1));
    lab.put(Input::AgentStarted { task, attempt: 1, pid: 7 });
    lab.ignored(Input::AgentStarted { task, attempt: 1, pid: 8 });
    lab.ignored(ended(2));
    lab.put(ended(1));
    lab.ignored(ended(1));
    let gates = vec![verdict("unit", GateVerdict::Passed)];
    lab.ignored(Input::GatesRan { task, attempt: 1, tree: "t".into(), gates });
    lab.ignored(lab.merged("A"));
    lab.collect("A");
    assert_eq!(lab.phase("A"), Phase::Merging);
    lab.form("A");
    let stale = vec![verdict("test", GateVerdict::Passed)];
    let (commit, tree) = ("m-old".into(), "t-old".into());
    lab.ignored(Input::BatchVerified { task, attempt: 1, commit, tree, gates: stale });
    lab.verify("A", GateVerdict::Passed);
    let refused = |new: &str| Input::LandingRefused {
        task,
        attempt: 1,
        new: new.into(),
        found: Some("x".into()),
    };
    lab.ignored(refused("m-old"));
    lab.put(refused("m-A"));
    lab.ignored(refused("m-A"));
    lab.land("A");
    lab.ignored(Input::Landed { task, attempt: 1, commit: "m-A".into(), old: "c0".into() });
    lab.ignored(Input::TrainFailed { task, attempt: 1, reason: String::new() });
}

#[test]
fn fewer_verdicts_than_gates_never_land() {
    let mut lab = one();
    lab.enqueue("A");
    lab.form("A");
    let (task, commit) = (lab.ix("A"), Oid::new("m-A"));
    let (tree, gates) = ("t".into(), Vec::new());
    lab.put(Input::BatchVerified { task, attempt: 1, commit, tree, gates });
    assert_eq!((lab.phase("A"), lab.attempt("A")), (Phase::Preparing, 2), "a retry was used");
    assert!(lab.machine.train().head().is_none());
}

#[test]
fn a_blocked_task_names_the_chain_and_retry_frees_it() {
    let tasks = vec![task("A", &[]), task("B", &["A"]), task("C", &["B"])];
    let mut lab = Lab::new(&settings(), plan(tasks));
    lab.fail_for_good("A");
    assert_eq!((lab.phase("B"), lab.phase("C")), (Phase::Blocked, Phase::Blocked));
    let chain: Vec<u32> = lab.machine.tasks().get(lab.ix("C")).chain.iter().map(|t| t.0).collect();
    assert_eq!(chain, [2, 1, 0]);
    let refusal = lab.command(MachineCommand::retry_task("C".to_owned())).unwrap_err();
    assert!(refusal.hint.unwrap().contains("retry A"), "{}", refusal.message);
    lab.command(MachineCommand::retry_task("A".to_owned())).unwrap();
    assert_eq!((lab.phase("B"), lab.phase("C")), (Phase::Waiting, Phase::Waiting));
}

#[test]
fn the_chain_follows_when_something_else_blocks() {
    let tasks = vec![task("A", &[]), task("Z", &[]), task("B", &["A", "Z"]), task("C", &["B"])];
    let mut lab = Lab::new(&settings(), plan(tasks));
    lab.fail_for_good("A");
    lab.fail_for_good("Z");
    let root = |lab: &Lab| lab.machine.tasks().get(lab.ix("C")).chain.last().copied();
    assert_eq!(root(&lab), Some(lab.ix("A")));
    lab.command(MachineCommand::Skip("A".to_owned())).unwrap();
    assert_eq!((lab.phase("C"), root(&lab)), (Phase::Blocked, Some(lab.ix("Z"))));
    lab.command(MachineCommand::Cancel(Some("B".to_owned()))).unwrap();
    assert_eq!((lab.phase("C"), root(&lab)), (Phase::Blocked, Some(lab.ix("B"))));
    lab.command(MachineCommand::retry_task("B".to_owned())).unwrap();
    assert_eq!((lab.phase("B"), root(&lab)), (Phase::Blocked, Some(lab.ix("Z"))));
}

#[test]
fn continue_lets_dependents_run_and_skip_counts_as_done() {
    let soft = |id: &str, on_failure| Task { on_failure, ..task(id, &[]) };
    let tasks = vec![
        soft("go", TaskFailureAction::Continue),
        soft("done", TaskFailureAction::Skip),
        task("X", &["go", "done"]),
    ];
    let mut lab = Lab::new(&settings(), plan(tasks));
    lab.fail_for_good("go");
    assert_eq!(lab.phase("X"), Phase::Waiting);
    lab.fail("done");
    lab.fail("done");
    assert_eq!((lab.phase("done"), lab.phase("X")), (Phase::Skipped, Phase::Preparing));
}

#[test]
fn drain_starts_nothing_new_and_abort_stops_what_runs() {
    for on_failure in [RunFailureAction::Drain, RunFailureAction::Abort] {
        let mut s = settings();
        s.run.jobs = 2;
        s.run.retries = 0;
        s.run.on_failure = on_failure;
        let mut third = task("C", &[]);
        third.after = vec!["A".into()];
        let mut lab = Lab::new(&s, plan(vec![task("A", &[]), task("B", &[]), third]));
        lab.work("B");
        lab.fail("A");
        assert_eq!((lab.phase("A"), lab.phase("C")), (Phase::Failed, Phase::Ready));
        let stopped = lab.effects.iter().any(|e| matches!(e, Effect::StopAgent { .. }));
        assert_eq!(stopped, on_failure == RunFailureAction::Abort);
        lab.end("B", if stopped { AgentEnding::Stopped {} } else { exited_well() });
        lab.collect("B");
        lab.removed("A");
        if !stopped {
            lab.land("B");
            lab.removed("B");
        }
        assert_eq!(lab.machine.rest_reason(), Some(RestReason::NotLanded));
        lab.crash();
        assert_eq!(lab.phase("C"), Phase::Preparing, "the next run goes on");
    }
}

#[test]
fn gates_that_wait_for_a_slot_start_when_one_is_free() {
    let mut s = settings();
    s.limits.verify = 1;
    s.run.retries = 0;
    let gated = |id: &str| Task { verify: vec!["unit".to_owned()], ..task(id, &[]) };
    let mut lab = Lab::new(&s, plan(vec![gated("A"), gated("B")]));
    lab.enqueue("B");
    lab.enqueue("A");
    let gates =
        |lab: &Lab| lab.effects.iter().filter(|e| matches!(e, Effect::RunGates { .. })).count();
    assert_eq!(gates(&lab), 1);
    let verdicts = vec![verdict("unit", GateVerdict::Failed)];
    lab.put(Input::GatesRan { task: lab.ix("B"), attempt: 1, tree: "t".into(), gates: verdicts });
    assert_eq!((lab.phase("B"), gates(&lab)), (Phase::Failed, 2));
}

#[test]
fn a_delay_that_ran_out_while_waiting_for_others_holds_nobody() {
    let mut s = settings();
    s.run.jobs = 2;
    let mut b = task("B", &[]);
    b.after = vec!["A".into()];
    let mut lab = Lab::new(&s, plan(vec![task("A", &[]), b]));
    lab.command(MachineCommand::Skip("A".to_owned())).unwrap();
    lab.put(Input::WorkspaceFailed { task: lab.ix("A"), attempt: 1, reason: String::new() });
    assert_eq!(lab.phase("B"), Phase::Preparing);
    lab.removed("A");
    lab.command(MachineCommand::retry_task("A".to_owned())).unwrap();
    lab.put(Input::WorkspaceFailed { task: lab.ix("B"), attempt: 1, reason: String::new() });
    assert_eq!(lab.phase("B"), Phase::Waiting, "A is open again, and B has a delay");
    lab.now = Time(60_000);
    lab.enqueue("A");
    lab.land("A");
    assert_eq!(lab.phase("B"), Phase::Preparing);
}

#[test]
fn a_new_revision_keeps_what_was_done_and_takes_the_new_text() {
    let tasks = vec![task("A", &[]), task("B", &[]), task("C", &["A"]), task("D", &["C"])];
    let mut s = settings();
    s.run.jobs = 1;
    let mut lab = Lab::new(&s, plan(tasks));
    lab.command(MachineCommand::Pause).unwrap();
    lab.enqueue("A");
    lab.land("A");
    lab.command(MachineCommand::Resume).unwrap();
    assert_eq!(lab.phase("C"), Phase::Preparing, "on the longest path");
    let text = |id: &str, needs: &[&str]| Task { title: "new".to_owned(), ..task(id, needs) };
    let second =
        plan(vec![text("N", &[]), text("C", &["A"]), text("A", &[]), text("D", &["C", "N"])]);
    lab.adopt(second.clone(), "second");
    let dropped = lab.facts.iter().rev().find_map(|(_, fact)| match fact {
        Fact::PlanAdopted { revision: 2, dropped, .. } => Some(dropped.clone()),
        _ => None,
    });
    assert_eq!(dropped.unwrap(), ["B".into()]);
    assert_eq!((lab.phase("A"), lab.phase("C")), (Phase::Landed, Phase::Preparing));
    assert_eq!((lab.attempt("C"), lab.phase("D")), (1, Phase::Waiting));
    assert!(lab.machine.graph().index_of("B").is_none());
    assert_eq!(lab.machine.plan().tasks[lab.ix("D").index()].title, "new");
    lab.ignored(Input::AdoptPlan { plan: Box::new(second), hash: "second".to_owned() });
    lab.crash();
    assert_eq!((lab.phase("A"), lab.phase("C")), (Phase::Landed, Phase::Preparing));
}

#[test]
fn a_revision_frees_those_whose_obstacle_it_drops_and_keeps_the_others_blocked() {
    let tasks = vec![task("A", &[]), task("B", &["A"]), task("C", &["A"]), task("D", &["C"])];
    let mut lab = Lab::new(&settings(), plan(tasks));
    lab.fail_for_good("A");
    lab.crash();
    lab.adopt(
        plan(vec![task("D", &["C"]), task("C", &["A"]), task("B", &[]), task("A", &[])]),
        "second",
    );
    assert_eq!(lab.phase("B"), Phase::Preparing);
    assert_eq!((lab.phase("C"), lab.phase("D")), (Phase::Blocked, Phase::Blocked));
    let chain: Vec<u32> = lab.machine.tasks().get(lab.ix("D")).chain.iter().map(|t| t.0).collect();
    assert_eq!(chain, [0, 1, 3], "by their new places");
    lab.command(MachineCommand::Skip("A".to_owned())).unwrap();
    assert_eq!(lab.phase("C"), Phase::Preparing);
}
