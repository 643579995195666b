//! Who starts, in which order, and what holds others back.

use mainstem_core::config::{ScheduleBarrier, Settings, WorkspaceSharing};
use mainstem_core::id::EpicId;
use mainstem_core::machine::{Input, MachineCommand};
use mainstem_core::phase::Phase;
use mainstem_core::plan::{Epic, Task, TaskEffort};
use mainstem_core::schedule::StartObstacle;

use crate::drive::{limited, usage};
use crate::lab::Lab;
use crate::setup::{plan, settings, task};

fn jobs(count: u32) -> Settings {
    let mut s = settings();
    s.run.jobs = count;
    s
}

#[test]
fn priority_goes_first_then_the_longest_path_then_plan_order() {
    let tasks = vec![
        task("plain", &[]),
        task("also", &[]),
        task("root", &[]),
        Task { effort: TaskEffort::Large, ..task("tail", &["root"]) },
        Task { priority: 1, ..task("urgent", &[]) },
        Task { effort: TaskEffort::Large, ..task("large", &[]) },
    ];
    let mut s = jobs(1);
    s.run.retries = 0;
    let mut lab = Lab::new(&s, plan(tasks));
    for _ in 0..5 {
        let now = lab.all(Phase::Preparing)[0].to_owned();
        lab.fail_for_good(&now);
    }
    assert_eq!(lab.started(), ["urgent", "root", "large", "plain", "also"]);
}

#[test]
fn overlapping_writers_take_turns_and_are_not_overtaken() {
    let writer = |id: &str, glob: &str, priority| Task {
        writes: vec![glob.to_owned()],
        priority,
        ..task(id, &[])
    };
    let tasks = vec![
        writer("all", "src/**", 3),
        writer("one", "src/a.rs", 2),
        writer("wide", "**", 1),
        writer("docs", "docs/x", 0),
    ];
    let mut lab = Lab::new(&jobs(4), plan(tasks));
    assert_eq!(lab.started(), ["all"], "docs must not overtake wide, which waits for its turn");
    assert_eq!(
        lab.machine.start_obstacle(lab.ix("one")),
        Some(StartObstacle::Writes(lab.ix("all")))
    );
    lab.enqueue("all");
    assert_eq!(lab.started(), ["all"], "until its work has landed");
    lab.land("all");
    assert_eq!(lab.started(), ["all", "one"]);
    lab.enqueue("one");
    lab.land("one");
    lab.enqueue("wide");
    lab.land("wide");
    assert_eq!(lab.started(), ["all", "one", "wide", "docs"]);
}

#[test]
fn named_limits_hold_only_those_they_name() {
    let by = |id: &str, agent: &str| Task { agent: Some(agent.to_owned()), ..task(id, &[]) };
    let mut s = jobs(6);
    s.limits.per_provider.insert("shared".to_owned(), 2);
    s.limits.per_agent.insert("bob".to_owned(), 1);
    s.limits.per_role.insert("coder".to_owned(), 1);
    let coder = |id: &str| Task { role: Some("coder".to_owned()), ..by(id, "ann") };
    let tasks = vec![
        by("b1", "bob"),
        by("b2", "bob"),
        by("c1", "cid"),
        by("c2", "cid"),
        coder("r1"),
        coder("r2"),
        by("a", "ann"),
    ];
    let lab = Lab::new(&s, plan(tasks));
    assert_eq!(lab.started(), ["b1", "c1", "r1", "a"]);
    let held = |id: &str| lab.machine.start_obstacle(lab.ix(id));
    assert_eq!(held("b2"), Some(StartObstacle::Agent("bob".to_owned())));
    assert_eq!(held("c2"), Some(StartObstacle::Provider("shared".to_owned())));
    assert_eq!(held("r2"), Some(StartObstacle::Role("coder".to_owned())));
}

#[test]
fn levels_are_a_barrier_only_when_asked_for() {
    let tasks = || vec![task("a", &[]), task("slow", &[]), task("b", &["a"])];
    for (barrier, wanted) in
        [(ScheduleBarrier::None, Phase::Preparing), (ScheduleBarrier::Level, Phase::Ready)]
    {
        let mut s = settings();
        s.schedule.barrier = barrier;
        let mut lab = Lab::new(&s, plan(tasks()));
        lab.enqueue("a");
        lab.land("a");
        assert_eq!(lab.phase("b"), wanted, "{barrier:?}");
        lab.enqueue("slow");
        lab.land("slow");
        assert_eq!(lab.phase("b"), Phase::Preparing, "{barrier:?}");
    }
}

#[test]
fn epics_and_phases_are_barriers_in_order_of_first_mention() {
    let epic = |id: &str| Epic { id: EpicId::new(id), title: String::new(), needs: Vec::new() };
    let of = |id: &str, group: &str| Task {
        epic: Some(EpicId::new(group)),
        phase: Some(group.to_owned()),
        ..task(id, &[])
    };
    for barrier in [ScheduleBarrier::Epic, ScheduleBarrier::Phase] {
        let mut s = settings();
        s.schedule.barrier = barrier;
        let mut two = plan(vec![of("z1", "z"), of("a1", "a"), of("z2", "z")]);
        two.epics = vec![epic("z"), epic("a")];
        let mut lab = Lab::new(&s, two);
        assert_eq!(lab.started(), ["z1", "z2"], "{barrier:?}");
        assert_eq!(lab.machine.start_obstacle(lab.ix("a1")), Some(StartObstacle::Barrier));
        lab.fail_for_good("z1");
        lab.enqueue("z2");
        lab.land("z2");
        assert_eq!(lab.phase("a1"), Phase::Preparing, "{barrier:?}: over is over");
    }
}

#[test]
fn a_task_named_like_a_shared_workspace_waits_its_turn_in_it() {
    let mut s = settings();
    s.workspace.unit = WorkspaceSharing::Epic;
    let of_epic = Task { epic: Some(EpicId::new("a")), ..task("one", &[]) };
    let mut both = plan(vec![of_epic, task("Epic-a", &[]), task("free", &[])]);
    both.epics = vec![Epic { id: EpicId::new("a"), title: String::new(), needs: Vec::new() }];
    let mut lab = Lab::new(&s, both);
    assert_eq!(lab.started(), ["one", "free"]);
    lab.enqueue("one");
    lab.land("one");
    assert_eq!(lab.started(), ["one", "free", "Epic-a"]);
}

#[test]
fn a_barrier_does_not_wait_for_what_nobody_asked_for() {
    let mut s = settings();
    s.schedule.barrier = ScheduleBarrier::Level;
    let tasks = vec![task("other", &[]), task("a", &[]), task("b", &["a"])];
    let mut lab = Lab::resting(&s, plan(tasks));
    lab.begin(Some(&["b"]));
    assert_eq!(lab.started(), ["a"]);
    lab.enqueue("a");
    lab.land("a");
    assert_eq!(lab.started(), ["a", "b"]);
}

#[test]
fn what_must_be_over_first_is_in_scope_too() {
    let mut soft = task("b", &[]);
    soft.after = vec!["a".into()];
    let mut lab = Lab::resting(&settings(), plan(vec![task("a", &[]), soft, task("c", &[])]));
    lab.begin(Some(&["b"]));
    assert_eq!(lab.started(), ["a"]);
    lab.fail_for_good("a");
    assert_eq!(lab.phase("b"), Phase::Preparing, "a soft edge orders and does not block");
    assert_eq!(lab.phase("c"), Phase::Ready);
}

#[test]
fn a_hard_budget_reserves_and_a_soft_one_does_not_stop() {
    for (hard, wanted) in [(true, 2), (false, 4)] {
        let mut s = jobs(4);
        s.budget.usd = Some(2.5);
        s.budget.hard = hard;
        s.budget.per_attempt_usd = 1.0;
        let tasks = vec![task("a", &[]), task("b", &[]), task("c", &[]), task("d", &[])];
        let mut lab = Lab::new(&s, plan(tasks));
        assert_eq!(lab.started().len(), wanted, "hard: {hard}");
        if !hard {
            continue;
        }
        assert_eq!(lab.machine.start_obstacle(lab.ix("c")), Some(StartObstacle::Budget));
        lab.say("a", 1, usage(Some(0.25)));
        lab.say("a", 1, usage(Some(0.25)));
        assert!((lab.machine.spent_usd() - 0.25).abs() < 1e-9, "a mark counts once");
        lab.enqueue("a");
        assert_eq!(lab.started().len(), 4, "now it is known what an attempt costs");
        assert!((lab.machine.expected_usd("ann", None) - 0.25).abs() < 1e-9);
    }
}

#[test]
fn one_workspace_serves_one_task_at_a_time_and_goes_with_the_last() {
    let mut s = settings();
    s.workspace.unit = WorkspaceSharing::None;
    let mut lab = Lab::new(&s, plan(vec![task("a", &[]), task("b", &[])]));
    assert_eq!(lab.started(), ["a"]);
    assert_eq!(lab.machine.start_obstacle(lab.ix("b")), Some(StartObstacle::Workspace));
    lab.enqueue("a");
    lab.land("a");
    assert_eq!(lab.started(), ["a", "b"]);
    assert!(!lab.machine.tasks().is_any_workspace_being_removed(), "b is in it");
    lab.fail_for_good("b");
    assert_eq!(going(&lab), [""; 0], "it stays for another attempt");
    lab.command(MachineCommand::Skip("b".to_owned())).unwrap();
    assert_eq!(going(&lab), ["a"], "for one after the other");
    lab.command(MachineCommand::retry_task("b".to_owned())).unwrap();
    assert_eq!(lab.phase("b"), Phase::Ready, "not while its workspace is being removed");
    lab.removed("a");
    assert_eq!(lab.phase("b"), Phase::Preparing);
}

#[test]
fn one_workspace_is_put_away_for_one_task_after_the_other() {
    let mut s = settings();
    s.workspace.unit = WorkspaceSharing::None;
    let mut lab = Lab::new(&s, plan(vec![task("a", &[]), task("b", &[])]));
    lab.fail_for_good("a");
    lab.fail_for_good("b");
    lab.command(MachineCommand::Skip("a".to_owned())).unwrap();
    assert_eq!(going(&lab), [""; 0], "b has failed and may be tried again");
    lab.command(MachineCommand::Skip("b".to_owned())).unwrap();
    assert_eq!(going(&lab), ["a"]);
    assert!(lab.machine.rest_reason().is_none());
    lab.removed("a");
    assert_eq!(going(&lab), ["b"]);
    assert!(lab.machine.rest_reason().is_none());
    lab.removed("b");
    assert!(going(&lab).is_empty());
    assert!(lab.machine.rest_reason().is_some());
}

/// Whose workspaces are being removed.
fn going(lab: &Lab) -> Vec<&'static str> {
    let of = |id: &&str| lab.machine.tasks().get(lab.ix(id)).current.as_ref();
    ["a", "b"].into_iter().filter(|id| of(id).is_some_and(|attempt| attempt.removing)).collect()
}

#[test]
fn a_provider_that_says_wait_is_left_alone_by_all_its_agents() {
    let by = |id: &str, agent: &str| Task { agent: Some(agent.to_owned()), ..task(id, &[]) };
    let tasks = vec![by("b", "bob"), by("c", "cid"), by("a", "ann")];
    let mut lab = Lab::new(&jobs(1), plan(tasks));
    lab.work("b");
    lab.say("b", 1, limited(Some(5_000)));
    lab.fail_for_good_or_ready("b");
    assert_eq!(lab.started(), ["b", "a"], "cid shares bob's provider");
    lab.fail_for_good("a");
    assert_eq!(lab.all(Phase::Preparing), [""; 0]);
    assert_eq!(lab.machine.rest_reason(), None, "it waits for the provider");
    let until = lab.machine.wake_at().unwrap();
    assert!(
        (6_000..=6_500).contains(&until.0),
        "at most a tenth more than was asked for: {until:?}"
    );
    lab.now = until;
    lab.put(Input::Tick);
    assert_eq!(lab.started().last(), Some(&"b"));
}

impl Lab {
    /// Ends the attempt under way; its provider may keep the next one from starting.
    fn fail_for_good_or_ready(&mut self, id: &str) {
        self.end(id, mainstem_core::fact::AgentEnding::Exited { code: 1 });
        self.collect(id);
        assert_eq!(self.phase(id), Phase::Ready);
    }
}
