//! A round, drawn from its seed: settings, scripts and faults. The same seed draws the same round;
//! how its processes interleave is the machine's.

use std::fmt::Write as _;

use mainstem_testkit::SeededRng;
use serde::{Deserialize, Serialize};

use crate::fault::{ChaosFault, ChaosFaultKind, TargetBranchChange};
use crate::script::{ChaosAttempt, ChaosAttemptEnd, ChaosScript, ChaosStep, ChaosTrick, RED};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosScenario {
    /// Where it comes from.
    pub seed: u64,
    /// The settings in force.
    pub settings: ChaosSettings,
    pub scripts: Vec<ChaosScript>,
    /// What is done to it, in order.
    pub faults: Vec<ChaosFault>,
}

/// The settings that a round varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosSettings {
    pub jobs: u32,
    pub retries: u32,
    pub on_failure: String,
    pub strategy: String,
    pub on_conflict: String,
    pub snapshots: String,
    pub keep: String,
    pub barrier: String,
    #[serde(default = "off")]
    pub sandbox: String,
    #[serde(default = "worktree")]
    pub workspace: String,
    #[serde(default = "one")]
    pub lanes: u32,
    /// Landings are pushed to a remote that others push to as well.
    #[serde(default)]
    pub push: bool,
    /// The run lands on a branch of its own, and `mainstem land` brings it over.
    #[serde(default)]
    pub own_branch: bool,
}

fn one() -> u32 {
    1
}

fn off() -> String {
    "off".to_owned()
}

fn worktree() -> String {
    "worktree".to_owned()
}

impl ChaosSettings {
    /// As a configuration file; `agent` and `outside` are paths.
    pub fn config(&self, agent: &str, outside: &str) -> String {
        let push = if self.push { "push = \"origin\"\n" } else { "" };
        let target = if self.own_branch { "checkout = \"branch\"" } else { "branch = \"main\"" };
        format!(
            "[run]\nagent = \"chaos\"\njobs = {}\nretries = {}\non_failure = \"{}\"\n\
             grace = \"1s\"\ntimeout = \"20s\"\n\
             [limits]\noutput = \"1M\"\n\
             [land]\n{target}\nstrategy = \"{}\"\non_conflict = \"{}\"\nlanes = {}\n{push}\
             [snapshots]\nevery = \"{}\"\n\
             [workspace]\nkeep = \"{}\"\nkind = \"{}\"\n\
             [schedule]\nbarrier = \"{}\"\n\
             [gates]\nverify = [\"'{agent}' --gate '{outside}'\"]\n\
             [agents.chaos]\nkind = \"command\"\ncommand = [\"{agent}\", \"{outside}\"]\n\
             [sandbox]\nkind = \"{}\"\nwrite = [\"{outside}\"]\n",
            self.jobs,
            self.retries,
            self.on_failure,
            self.strategy,
            self.on_conflict,
            self.lanes,
            self.snapshots,
            self.keep,
            self.workspace,
            self.barrier,
            self.sandbox,
        )
    }
}

impl ChaosScenario {
    pub fn draw(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut settings = settings(&mut rng);
        // From dice of their own: seeds of old rounds still draw what they drew.
        let mut walls = SeededRng::new(seed ^ WALLS);
        if walls.chance(1.0 / 6.0) {
            settings.sandbox = "auto".to_owned();
        }
        if walls.chance(0.125) || (settings.sandbox != off() && walls.chance(0.3)) {
            settings.workspace = "clone".to_owned();
        }
        if walls.chance(0.25) {
            settings.lanes = 2 + walls.below(3) as u32;
        }
        let tasks = 2 + rng.below(6) as usize;
        let mut scripts: Vec<ChaosScript> = Vec::new();
        // Tricks and failures are rare in most rounds and common in some.
        let wild = if rng.chance(0.3) { 0.35 } else { 0.05 };
        for n in 0..tasks {
            let needs = scripts
                .iter()
                .filter(|_| rng.chance(0.25))
                .map(|script| script.task.clone())
                .collect();
            let task = format!("T-{n}");
            let mut attempts = vec![attempt(&mut rng, &task, 1, wild)];
            for number in 2..=3 {
                attempts.push(attempt(&mut rng, &task, number, wild / 3.0));
            }
            scripts.push(ChaosScript { task, needs, attempts });
        }
        let events = 6 + 8 * tasks as u64;
        let mut faults: Vec<ChaosFault> =
            (0..1 + rng.below(5)).map(|_| ChaosFault::draw(&mut rng, events, tasks)).collect();
        faults.sort_by_key(|fault| fault.at);
        let mut show = Self { seed, settings, scripts, faults };
        if SeededRng::new(seed ^ PUSHES).chance(0.2) {
            show.share();
        }
        show
    }

    /// Lets the round push to a remote that others push to or commit beside, and that goes away for a
    /// while. A branch that is moved back under a remote which has more is only brought along again, so
    /// nobody does that.
    pub fn share(&mut self) {
        let mut rng = SeededRng::new(!self.seed ^ PUSHES);
        self.settings.push = true;
        for fault in &mut self.faults {
            if let ChaosFaultKind::Others(others) = &mut fault.what
                && (*others != TargetBranchChange::Commit || rng.chance(0.5))
            {
                *others = TargetBranchChange::Push;
            }
        }
        let events = 6 + 8 * self.scripts.len() as u64;
        let mut add = |rng: &mut SeededRng, what: ChaosFaultKind| {
            let at = rng.below(events) as usize;
            self.faults.push(ChaosFault { at, delay_ms: rng.below(60), what });
        };
        if rng.chance(0.6) {
            add(&mut rng, ChaosFaultKind::Others(TargetBranchChange::Push));
        }
        if rng.chance(0.4) {
            let ms = 50 + rng.below(1_500);
            add(&mut rng, ChaosFaultKind::RemoteAway(ms));
        }
        self.faults.sort_by_key(|fault| fault.at);
    }

    pub fn plan(&self) -> String {
        let mut text = "version = 1\n".to_owned();
        for script in &self.scripts {
            let ChaosScript { task, needs, .. } = script;
            let _ =
                write!(text, "[[task]]\nid = \"{task}\"\ntitle = \"{task}\"\nneeds = {needs:?}\n");
        }
        text
    }

    /// Tasks that must land whatever happened: good ones that need only good ones, if no fault can
    /// have used up attempts or was a person's word against them.
    pub fn must_land(&self) -> Vec<String> {
        if !self.faults.iter().all(|fault| fault.what.is_harmless()) {
            return Vec::new();
        }
        // One failure ends all the others under these settings.
        if self.settings.on_failure != "continue" && !self.scripts.iter().all(ChaosScript::is_good)
        {
            return Vec::new();
        }
        let barrier = self.settings.barrier != "none";
        if barrier && !self.scripts.iter().all(ChaosScript::is_good) {
            return Vec::new();
        }
        let mut good: Vec<String> = Vec::new();
        for script in &self.scripts {
            if script.is_good() && script.needs.iter().all(|need| good.contains(need)) {
                good.push(script.task.clone());
            }
        }
        good
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let walls = match (self.settings.sandbox.as_str(), self.settings.workspace.as_str()) {
            ("off", "worktree") => String::new(),
            (wall, workspace) => format!("{workspace} behind {wall}, "),
        };
        let lanes = match self.settings.lanes {
            1 => String::new(),
            lanes => format!("{lanes} lanes, "),
        };
        let push = if self.settings.push { "pushed, " } else { "" };
        format!("{} tasks, {walls}{lanes}{push}{}", self.scripts.len(), faults.join(", "))
    }
}

/// Any number will do.
const WALLS: u64 = 0x5afe_5afe;
const PUSHES: u64 = 0x0bad_cafe;

fn settings(rng: &mut SeededRng) -> ChaosSettings {
    let pick = |rng: &mut SeededRng, words: &[&str]| {
        words[rng.below(words.len() as u64) as usize].to_owned()
    };
    ChaosSettings {
        jobs: 1 + rng.below(4) as u32,
        retries: rng.below(3) as u32,
        on_failure: pick(rng, &["continue", "continue", "continue", "drain", "abort"]),
        strategy: pick(rng, &["merge", "merge", "squash", "rebase"]),
        on_conflict: pick(rng, &["rework", "agent", "manual", "fail"]),
        snapshots: pick(rng, &["60s", "1s", "0s"]),
        keep: pick(rng, &["until-landed", "until-landed", "failed", "always"]),
        barrier: pick(rng, &["none", "none", "none", "level"]),
        sandbox: off(),
        workspace: worktree(),
        lanes: one(),
        push: false,
        own_branch: false,
    }
}

fn attempt(rng: &mut SeededRng, task: &str, number: u32, wild: f64) -> ChaosAttempt {
    let mut steps = Vec::new();
    let mut own: Vec<String> = Vec::new();
    for n in 0..1 + rng.below(5) {
        let step = match rng.below(10) {
            0..=4 => {
                let name = odd_name(rng, task, number, n);
                own.push(name.clone());
                let lines = if rng.chance(0.05) { 40_000 } else { 1 + rng.below(5) as u32 };
                ChaosStep::Write { path: name, lines }
            }
            5 if rng.chance(0.4) => ChaosStep::Line { path: "shared.txt".to_owned() },
            6 | 7 => ChaosStep::Commit,
            8 if own.len() > 1 => ChaosStep::Remove { path: own.remove(0) },
            9 => ChaosStep::Usage { micros: 1 + rng.below(100_000) },
            _ => ChaosStep::Pause { ms: rng.below(60) },
        };
        steps.push(step);
    }
    if rng.chance(wild / 3.0) {
        steps.push(ChaosStep::Write { path: format!("{task}/{RED}"), lines: 1 });
    }
    if own.is_empty() {
        steps.push(ChaosStep::Write { path: format!("{task}/only.{number}"), lines: 1 });
    }
    if rng.chance(wild) {
        let trick = ChaosTrick::ALL[rng.below(ChaosTrick::ALL.len() as u64) as usize];
        let at = rng.below(steps.len() as u64 + 1) as usize;
        // After these the workspace is no place to go on working in.
        let last = matches!(
            trick,
            ChaosTrick::DeleteWorkspace
                | ChaosTrick::BreakGitFile
                | ChaosTrick::StealGitFile
                | ChaosTrick::IndexLock
                | ChaosTrick::CorruptIndex
                | ChaosTrick::RateLimit
        );
        steps.insert(if last { steps.len() } else { at }, ChaosStep::Trick(trick));
    }
    let end = if rng.chance(wild) {
        match rng.below(4) {
            0 => ChaosAttemptEnd::Crash,
            1 => ChaosAttemptEnd::Hang,
            _ => ChaosAttemptEnd::Exit(1 + rng.below(3) as u8),
        }
    } else {
        ChaosAttemptEnd::Exit(0)
    };
    ChaosAttempt { steps, end }
}

fn odd_name(rng: &mut SeededRng, task: &str, attempt: u32, n: u64) -> String {
    match rng.below(8) {
        0 => format!("{task}/with space {attempt}.{n}"),
        1 => format!("{task}/deep/er/ünï-{attempt}.{n}"),
        2 => format!("{task}/-dash{attempt}.{n}"),
        3 => format!("{task}/quote\"'{attempt}.{n}"),
        _ => format!("{task}/f{attempt}.{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_round() {
        for seed in 0..200 {
            assert_eq!(ChaosScenario::draw(seed), ChaosScenario::draw(seed));
        }
        assert_ne!(ChaosScenario::draw(1), ChaosScenario::draw(2));
    }

    #[test]
    fn a_round_survives_being_written_down() {
        for seed in 0..50 {
            let show = ChaosScenario::draw(seed);
            let text = serde_json::to_string(&show).expect("data");
            assert_eq!(serde_json::from_str::<ChaosScenario>(&text).expect("its own text"), show);
        }
    }
}
