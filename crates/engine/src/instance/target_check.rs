//! Before a run: do the gates pass on the target branch itself, in a clean tree behind the sandbox?
//!
//! Runs them where the train does, in the same way, before anything is journaled: a kill in the middle
//! leaves a job that the next use of the lane ends, and nothing else. What passed is remembered by tree,
//! commands, settings and tools, so that it is not run again for the next run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstem_core::fact::{Fact, GateScope, GateVerdict};
use mainstem_core::id::{Oid, RunId, TaskId, TaskIx};
use mainstem_core::machine::{GateResult, Machine};
use mainstem_core::plan::Task;
use mainstem_host::process::{self, JobEnding, JobState};
use mainstem_host::{clock, files};
use serde::{Deserialize, Serialize};

use super::shutdown::{clean_after_check, remove_unused_lanes};
use super::{EngineError, EngineInstance};
use crate::effects::{EffectContext, gates};
use crate::{target_branch, toolchain};

/// In whose name the gates run: no run and no task has it.
const RUN: &str = "preflight";
const TASK: &str = "target";
/// The train's first lane: what is built there is there for the first candidate.
const LANE: u32 = 1;
/// How often it is looked which command runs.
const LOOK_MS: u64 = 100;
/// Verdicts remembered beyond a run.
const KNOWN_MAX: usize = 64;

/// What became of a look at the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCheck {
    pub target: String,
    /// The commit looked at.
    pub commit: Oid,
    pub tree: Oid,
    /// What the gates ran with.
    pub tools: String,
    /// How long it took.
    pub duration_ms: u64,
    pub outcome: TargetCheckOutcome,
}

/// What came out of a look at the target branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetCheckOutcome {
    Passed,
    /// All gates passed on this tree before, with the same settings and tools.
    PassedBefore,
    /// This gate did not pass.
    Failed(GateResult),
    /// A setup command failed, so that no gate could run.
    SetupFailed {
        command: String,
        /// The end of its output.
        tail: String,
    },
    /// Neither: the tree could not be made or looked at.
    Unable(String),
}

impl TargetCheck {
    /// Whether work can land on it.
    pub fn has_passed(&self) -> bool {
        matches!(self.outcome, TargetCheckOutcome::Passed | TargetCheckOutcome::PassedBefore)
    }
}

/// The command that runs now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCheckProgress {
    pub command: String,
    pub elapsed_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct VerifiedTarget {
    tree: Oid,
    gates: Vec<String>,
    tools: String,
}

impl EngineInstance {
    /// A name for what gates run with here; another one whenever a tool or a setting is another.
    pub(super) fn toolchain_key(&mut self) -> Result<String, EngineError> {
        let sandbox = self.sandbox()?.map_or_else(|| "off".to_owned(), |walls| walls.describe());
        Ok(toolchain::toolchain_key(&self.settings, &sandbox))
    }

    /// Looks whether the gates pass on the target branch. None if there is nothing to look at: no gates,
    /// no commit yet, or attempts under way that must be seen to first.
    pub fn check_target(
        &mut self,
        (new, branch): (bool, Option<&str>),
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(&TargetCheckProgress),
    ) -> Result<Option<TargetCheck>, EngineError> {
        if self.settings.gates.verify.is_empty() {
            return Ok(None);
        }
        let newest = self.load_newest_run()?;
        let machine = newest.as_ref().map(|(_, machine)| machine);
        if machine.is_some_and(|machine| machine.tasks().active_tasks().next().is_some()) {
            return Ok(None);
        }
        self.forge_connection = self.connect_forge()?;
        let (target, start) = match machine.filter(|_| !new) {
            Some(machine) => (machine.target_branch().to_owned(), None),
            None if self.settings.land.mode.lands_on_forge() => {
                (self.choose_target_branch()?, None)
            }
            None => target_branch::find_starting_point(&self.repo, &self.settings, branch)?,
        };
        let walls = self.sandbox()?.cloned();
        let mut world = self.build_context(&RunId::new(RUN), &target, Default::default(), walls);
        world.lessons = None;
        let start = start.map_or_else(|| world.landing_head(), |start| Ok(Some(start)))?;
        let Some(commit) = start else { return Ok(None) };
        let tree = self.repo.tree_of(&commit)?;
        let tools = self.toolchain_key()?;
        let mut check = TargetCheck {
            target,
            commit,
            tree,
            tools,
            duration_ms: 0,
            outcome: TargetCheckOutcome::PassedBefore,
        };
        if self.has_passed_before(machine, &check) {
            return Ok(Some(check));
        }
        self.claim_root()?;
        self.sweep_leftovers()?;
        self.lane_was_created = !self.layout.lane_workspace(LANE).exists();
        world.layout = self.layout.clone();
        let began = clock::now_ms();
        let (check_commit, check_tree) = (check.commit.clone(), check.tree.clone());
        let errand = build_check_context(world);
        let result = run_gates_with_progress(&errand, (&check_commit, &check_tree), stop, progress);
        check.duration_ms = u64::try_from(clock::now_ms() - began).unwrap_or(0);
        let Some(result) = result else {
            clean_after_check(&self.repo, &self.layout, (&self.exe, self.settings.land.lanes));
            return Err(EngineError::Interrupted);
        };
        check.outcome = decide_check_outcome(&errand, &check.commit, result);
        if check.has_passed() {
            self.remember_verified_target(&check);
        } else {
            clean_after_check(&self.repo, &self.layout, (&self.exe, self.settings.land.lanes));
        }
        Ok(Some(check))
    }

    fn has_passed_before(&self, machine: Option<&Machine>, check: &TargetCheck) -> bool {
        let gates = &self.settings.gates.verify;
        let in_run =
            |machine: &Machine| machine.train().have_gates_passed(&check.tree, gates, &check.tools);
        let wanted = self.build_verified_target(check);
        machine.is_some_and(in_run)
            || read_verified_targets(&self.layout.verified_targets_path()).contains(&wanted)
    }

    fn build_verified_target(&self, check: &TargetCheck) -> VerifiedTarget {
        let gates = self.settings.gates.verify.clone();
        VerifiedTarget { tree: check.tree.clone(), gates, tools: check.tools.clone() }
    }

    /// Remembers a verdict beyond the run. That it could not be is only slow.
    fn remember_verified_target(&self, check: &TargetCheck) {
        let known = self.build_verified_target(check);
        let mut all = read_verified_targets(&self.layout.verified_targets_path());
        all.retain(|other| *other != known);
        all.push(known);
        let from = all.len().saturating_sub(KNOWN_MAX);
        if let Ok(text) = serde_json::to_vec(&all[from..]) {
            let _ = files::write_atomic(&self.layout.verified_targets_path(), &text);
        }
    }

    /// Puts on record in the run that its target is good, so that whoever breaks it is known at once.
    pub(super) fn record_target_check(
        &mut self,
        run: &RunId,
        machine: &mut Machine,
        check: Option<&TargetCheck>,
    ) -> Result<(), EngineError> {
        let Some(check) = check.filter(|check| check.has_passed()) else { return Ok(()) };
        let gates = self.settings.gates.verify.clone();
        if machine.train().have_gates_passed(&check.tree, &gates, &check.tools) {
            return Ok(());
        }
        let fact = Fact::TargetVerified {
            commit: check.commit.clone(),
            tree: check.tree.clone(),
            gates,
            tools: check.tools.clone(),
            duration_ms: check.duration_ms,
            cached: check.outcome == TargetCheckOutcome::PassedBefore,
        };
        self.write_fact(run, machine, &fact)
    }

    /// Ends a look that no run follows. What was built for it stays if a run is expected next; otherwise a
    /// checkout that was made only for this look goes.
    pub fn finish_target_check(self, expects_run: bool) {
        if self.lane_was_created && !expects_run {
            // Its temporary folder and caches are found by the lane, so they go before it.
            remove_unused_lanes(&self.repo, &self.layout, self.settings.land.lanes);
            // What cannot be removed now is named by `mainstem clean`.
            let _ = self
                .repo
                .remove_worktree(&self.layout.lane_workspace(LANE), &self.layout.trash_dir());
        }
        clean_after_check(&self.repo, &self.layout, (&self.exe, self.settings.land.lanes));
    }
}

fn read_verified_targets(file: &Path) -> Vec<VerifiedTarget> {
    let text = fs::read_to_string(file).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn build_check_context(world: crate::engine_context::EngineContext) -> EffectContext {
    let (results, _) = std::sync::mpsc::channel();
    EffectContext {
        workspace: world.layout.workspace_path(TASK),
        attempt: 0,
        branch: String::new(),
        task: Task { id: TaskId::new(TASK), ..Task::empty() },
        undone_landings: Vec::new(),
        ix: TaskIx(0),
        cancel: Arc::new(AtomicBool::new(false)),
        candidate_tasks: Vec::new(),
        engine: Arc::new(world),
        results,
    }
}

type TargetCheckVerdicts = Result<Vec<GateResult>, String>;

/// Runs the gates in a thread and says which one runs; none if somebody wanted to stop.
fn run_gates_with_progress(
    errand: &EffectContext,
    (commit, tree): (&Oid, &Oid),
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&TargetCheckProgress),
) -> Option<TargetCheckVerdicts> {
    let jobs = list_check_jobs(errand, commit);
    std::thread::scope(|scope| {
        let running =
            scope.spawn(|| gates::verify_commit(errand, (commit, tree), LANE, GateScope::Base));
        while !running.is_finished() {
            if stop() {
                errand.cancel.store(true, Ordering::Relaxed);
            } else if let Some(underway) = jobs.iter().rev().find_map(read_progress) {
                progress(&underway);
            }
            process::sleep_ms(LOOK_MS);
        }
        let broken = || Err("the check was interrupted".to_owned());
        let result = running.join().unwrap_or_else(|_| broken());
        (!errand.cancel.load(Ordering::Relaxed)).then_some(result)
    })
}

/// Every command in the order in which they run, with its job.
fn list_check_jobs(errand: &EffectContext, commit: &Oid) -> Vec<(String, PathBuf)> {
    let world = &errand.engine;
    let job = |n| world.layout.train_job(&world.run, &errand.task.id, commit.as_str(), n);
    let setup = job(0).with_extension("setup");
    let setups = world.settings.workspace.setup.iter().enumerate();
    let setups = setups.map(|(n, command)| (command.clone(), setup.join(format!("setup-{n}"))));
    let gates = world.settings.gates.verify.iter().enumerate();
    setups.chain(gates.map(|(n, command)| (command.clone(), job(n)))).collect()
}

fn read_progress((command, dir): &(String, PathBuf)) -> Option<TargetCheckProgress> {
    let Ok(JobState::Alive(_)) = process::read_job_state(dir) else { return None };
    let since = fs::metadata(dir).and_then(|meta| meta.modified()).ok()?;
    let elapsed = since.elapsed().unwrap_or_default();
    let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    Some(TargetCheckProgress { command: command.clone(), elapsed_ms })
}

fn decide_check_outcome(
    errand: &EffectContext,
    commit: &Oid,
    result: TargetCheckVerdicts,
) -> TargetCheckOutcome {
    let wanted = errand.engine.settings.gates.verify.len();
    match result {
        Ok(verdicts) => {
            let bad = verdicts.iter().find(|gate| gate.verdict != GateVerdict::Passed).cloned();
            match bad {
                Some(gate) => TargetCheckOutcome::Failed(gate),
                None if verdicts.len() >= wanted => TargetCheckOutcome::Passed,
                None => TargetCheckOutcome::Unable("a check gave no result".to_owned()),
            }
        }
        Err(why) => {
            let failed = |(_, dir): &&(String, PathBuf)| {
                matches!(
                    process::read_job_state(dir),
                    Ok(JobState::Ended(exit)) if exit.ending != JobEnding::Exited { code: 0 }
                )
            };
            let setups = errand.engine.settings.workspace.setup.len();
            match list_check_jobs(errand, commit).iter().take(setups).find(failed) {
                Some((command, dir)) => {
                    let tail = errand
                        .engine
                        .build_redactor()
                        .redact_text(&gates::read_output_tail(dir))
                        .into_owned();
                    TargetCheckOutcome::SetupFailed { command: command.clone(), tail }
                }
                None => TargetCheckOutcome::Unable(why),
            }
        }
    }
}
