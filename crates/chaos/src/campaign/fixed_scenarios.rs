//! The fixed rounds of the counted campaigns. Small, and together they walk every crash point.

use crate::fault::{ChaosFault, ChaosFaultKind, TargetBranchChange};
use crate::scenario::{ChaosScenario, ChaosSettings};
use crate::script::{ChaosAttempt, ChaosAttemptEnd, ChaosScript, ChaosStep, RED};

#[derive(Debug, Clone)]
pub struct FixedScenario {
    pub name: &'static str,
    pub show: ChaosScenario,
    /// Tasks that must have landed at rest.
    pub lands: Vec<String>,
    /// How many agents are started in all, if a death of the engine must not change that.
    pub starts: Option<usize>,
    /// Commands that follow at rest: the product's words, or git's.
    pub after: &'static [&'static [&'static str]],
    /// Tasks whose landing those take back.
    pub undone: Vec<String>,
}

impl FixedScenario {
    fn new(name: &'static str, scripts: Vec<ChaosScript>) -> Self {
        let lands: Vec<String> = scripts.iter().map(|script| script.task.clone()).collect();
        let starts = Some(lands.len());
        let settings = ChaosSettings {
            jobs: 2,
            retries: 1,
            on_failure: "continue".to_owned(),
            strategy: "merge".to_owned(),
            on_conflict: "rework".to_owned(),
            snapshots: "60s".to_owned(),
            keep: "until-landed".to_owned(),
            barrier: "none".to_owned(),
            sandbox: "off".to_owned(),
            workspace: "worktree".to_owned(),
            lanes: 1,
            push: false,
            own_branch: false,
        };
        let show = ChaosScenario { seed: 0, settings, scripts, faults: Vec::new() };
        Self { name, show, lands, starts, after: &[], undone: Vec::new() }
    }

    fn with(mut self, change: impl FnOnce(&mut ChaosSettings)) -> Self {
        change(&mut self.show.settings);
        self
    }

    fn lands(mut self, tasks: &[&str]) -> Self {
        self.lands = tasks.iter().map(|task| (*task).to_owned()).collect();
        self
    }

    fn starts(mut self, starts: impl Into<Option<usize>>) -> Self {
        self.starts = starts.into();
        self
    }

    fn then(mut self, after: &'static [&'static [&'static str]]) -> Self {
        self.after = after;
        self
    }

    fn undone(mut self, task: &str) -> Self {
        self.undone = vec![task.to_owned()];
        self.lands.retain(|one| one != task);
        self
    }

    fn fault(mut self, at: usize, what: ChaosFaultKind) -> Self {
        self.show.faults.push(ChaosFault { at, delay_ms: 0, what });
        self
    }
}

pub fn all() -> Vec<FixedScenario> {
    let mut scenes = plain();
    scenes.extend(troubled());
    scenes.extend(followed());
    scenes
}

/// The one of that name.
pub fn named(name: &str) -> Result<FixedScenario, String> {
    let found = all().into_iter().find(|scene| scene.name == name);
    found.ok_or_else(|| format!("there is no scene {name:?}"))
}

fn plain() -> Vec<FixedScenario> {
    let two = || vec![good("T-0", &[]), good("T-1", &[])];
    vec![
        FixedScenario::new("one", vec![good("T-0", &[])]),
        FixedScenario::new("two", two()),
        FixedScenario::new("need", vec![good("T-0", &[]), good("T-1", &["T-0"])]),
        FixedScenario::new("squash", two()).with(|set| set.strategy = "squash".to_owned()),
        FixedScenario::new("rebase", two()).with(|set| set.strategy = "rebase".to_owned()),
        FixedScenario::new(
            "asks",
            vec![script("T-0", &[], vec![exit(vec![own("T-0"), ChaosStep::Ask], 0)])],
        ),
        FixedScenario::new(
            "slow",
            vec![script(
                "T-0",
                &[],
                vec![exit(vec![own("T-0"), pause(1300), ChaosStep::Commit], 0)],
            )],
        )
        .with(|set| set.snapshots = "1s".to_owned()),
        FixedScenario::new("kept", vec![good("T-0", &[])])
            .with(|set| set.keep = "always".to_owned()),
    ]
}

fn troubled() -> Vec<FixedScenario> {
    let clash = |task: &str, other: &str| {
        let line = ChaosStep::Line { path: "shared.txt".to_owned() };
        let meet = ChaosStep::Await { task: other.to_owned() };
        script(
            task,
            &[],
            vec![exit(vec![meet, line.clone(), own(task)], 0), exit(vec![line, own(task)], 0)],
        )
    };
    let red = ChaosStep::Write { path: format!("T-0/{RED}"), lines: 1 };
    let nothing = script("T-0", &[], vec![exit(vec![pause(1)], 0)]);
    let long = script("T-0", &[], vec![exit(vec![own("T-0"), pause(1500)], 0)]);
    vec![
        FixedScenario::new("conflict", vec![clash("T-0", "T-1"), clash("T-1", "T-0")]).starts(3),
        FixedScenario::new("resolve", vec![clash("T-0", "T-1"), clash("T-1", "T-0")])
            .with(|set| set.on_conflict = "agent".to_owned())
            .starts(3),
        FixedScenario::new(
            "retry",
            vec![script("T-0", &[], vec![exit(vec![own("T-0")], 1), fine("T-0")])],
        )
        .starts(2),
        FixedScenario::new(
            "red",
            vec![script("T-0", &[], vec![exit(vec![red.clone()], 0), fine("T-0")])],
        )
        .starts(2),
        FixedScenario::new(
            "fails",
            vec![script("T-0", &[], vec![exit(vec![own("T-0")], 1)]), good("T-1", &["T-0"])],
        )
        .with(|set| set.keep = "failed".to_owned())
        .starts(2)
        .lands(&[]),
        FixedScenario::new("nothing", vec![nothing, good("T-1", &[])]).starts(3).lands(&["T-1"]),
        FixedScenario::new("cancel", vec![long.clone(), good("T-1", &[])])
            .fault(2, ChaosFaultKind::Command(vec!["cancel".to_owned(), "T-0".to_owned()]))
            .starts(None)
            .lands(&["T-1"]),
        FixedScenario::new("interrupt", vec![long, good("T-1", &[])])
            .fault(3, ChaosFaultKind::Interrupt(1))
            .starts(None),
        FixedScenario::new("pushed", vec![good("T-0", &[]), good("T-1", &["T-0"])])
            .fault(4, ChaosFaultKind::Others(TargetBranchChange::Commit)),
        FixedScenario::new("shared", vec![good("T-0", &[]), good("T-1", &["T-0"])])
            .with(|set| set.push = true)
            .fault(4, ChaosFaultKind::Others(TargetBranchChange::Push)),
    ]
}

/// Those that go on with commands when the run is at rest.
fn followed() -> Vec<FixedScenario> {
    let failing = script("T-0", &[], vec![exit(vec![own("T-0")], 1), fine("T-0")]);
    vec![
        FixedScenario::new("undo", vec![good("T-0", &[])]).then(&[&["undo"]]).undone("T-0"),
        FixedScenario::new("revert", vec![good("T-0", &[])])
            .then(&[&["git", "commit", "-q", "--allow-empty", "-m", "on top"], &["undo"]])
            .undone("T-0"),
        FixedScenario::new("withdraw", vec![good("T-0", &[])])
            .with(|set| set.push = true)
            .then(&[&["undo"]])
            .undone("T-0"),
        FixedScenario::new("bring-over", vec![good("T-0", &[])])
            .with(|set| set.own_branch = true)
            .then(&[&["land"]]),
        FixedScenario::new("clean", vec![good("T-0", &[])])
            .with(|set| set.keep = "always".to_owned())
            .then(&[&["clean", "--config", "snapshots.keep=0s"]]),
        FixedScenario::new("again", vec![failing.clone()])
            .with(|set| set.retries = 0)
            .starts(2)
            .then(&[&["retry", "T-0"]]),
        FixedScenario::new("dropped", vec![failing])
            .with(|set| set.retries = 0)
            .then(&[&["skip", "T-0"], &["clean"]])
            .lands(&[]),
    ]
}

/// Leaves something committed, something uncommitted, and costs money.
fn good(task: &str, needs: &[&str]) -> ChaosScript {
    script(task, needs, vec![fine(task)])
}

fn fine(task: &str) -> ChaosAttempt {
    let left = ChaosStep::Write { path: format!("{task}/left over"), lines: 2 };
    exit(vec![own(task), ChaosStep::Commit, ChaosStep::Usage { micros: 1000 }, left], 0)
}

fn own(task: &str) -> ChaosStep {
    ChaosStep::Write { path: format!("{task}/own"), lines: 1 }
}

fn pause(ms: u64) -> ChaosStep {
    ChaosStep::Pause { ms }
}

fn exit(steps: Vec<ChaosStep>, code: u8) -> ChaosAttempt {
    ChaosAttempt { steps, end: ChaosAttemptEnd::Exit(code) }
}

fn script(task: &str, needs: &[&str], attempts: Vec<ChaosAttempt>) -> ChaosScript {
    let needs = needs.iter().map(|need| (*need).to_owned()).collect();
    ChaosScript { task: task.to_owned(), needs, attempts }
}
