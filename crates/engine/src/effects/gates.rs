//! Running gates as jobs: in a task's workspace, and in the train's on the exact merged tree.
//! A gate that cannot run is an error, never a pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use mainstem_core::fact::{GateScope, GateVerdict};
use mainstem_core::failure_cause::{self, GateEnvironment, GateFailureCause};
use mainstem_core::gate;
use mainstem_core::id::{Oid, RunId, TaskId, Time};
use mainstem_core::machine::{GateResult, Input};
use mainstem_core::test_count::TestCount;
use mainstem_host::git::{PreparedWorktree, Repo, TreeFile};
use mainstem_host::process::{self, JobEnding, JobExit, JobSpec, JobState};
use mainstem_host::sandbox::SandboxNetworkAccess;
use mainstem_host::{clock, crash, files};

use super::{EffectContext, workspace};
use crate::build_dirs::{self, TARGET_DIR};
use crate::conflict_resolutions;
use crate::driver::agent_ending;
use crate::engine_context::EngineContext;
use crate::event::EngineEvent;
use crate::observer::GateActivity;
use crate::repo_layout::RepoLayout;

/// Bytes of a failed gate's output that are kept in the record and in the next prompt.
const DETAIL_BYTES: usize = 4_000;

/// Bytes of its output in which the cause of a failure is looked for.
const CAUSE_BYTES: usize = 64 * 1024;

/// Tells a gate which tree it judges.
pub(super) const TREE: &str = "MAINSTEM_TREE";

/// How often the files that a gate is to see are tried to be set right.
const READY_TRIES: u32 = 3;

/// Why a gate that passed is not believed.
const NO_TEST: &str =
    "it ran no test, by what it says itself; if that is meant, set `[gates] need_tests = false`";

/// Jobs of a former car that are looked for even if the settings have fewer now.
const GATES_NOTED: usize = 16;

/// Runs the task's gates on its workspace and tells the verdicts.
pub fn run_task_gates(errand: &EffectContext, tip: &Oid) {
    let world = &errand.engine;
    let (task, attempt) = (errand.ix, errand.attempt);
    let tree = match world.repo.tree_of(tip) {
        Ok(tree) => tree,
        Err(error) => {
            let gates = vec![unable_result("the commit to verify", error.to_string())];
            return errand.send_input(Input::GatesRan { task, attempt, tree: tip.clone(), gates });
        }
    };
    let cwd = errand.workspace.clone();
    if world.repo.is_worktree_replaced(&cwd) {
        let gates =
            vec![unable_result("the workspace", "something else is in its place".to_owned())];
        return errand.send_input(Input::GatesRan { task, attempt, tree, gates });
    }
    let dir = |n| world.layout.gate_job(&world.run, &errand.task.id, attempt, n);
    let ready = || reset_tracked_files(errand, &cwd, tip, TrackedEditPolicy::Kept);
    let what = GateSubject { commands: &errand.task.verify, tree: &tree, scope: GateScope::Task };
    let gates = run_gates(errand, &what, &cwd, dir, ready, || Ok(()));
    errand.send_input(Input::GatesRan { task, attempt, tree, gates });
}

/// Checks the merge out in a lane of the train, runs the train's gates there and tells.
pub fn run_train_gates(
    errand: &EffectContext,
    (commit, tree): (&Oid, &Oid),
    lane: u32,
    scope: GateScope,
) {
    let (task, attempt) = (errand.ix, errand.attempt);
    match verify_commit(errand, (commit, tree), lane, scope) {
        _ if errand.cancel.load(Ordering::Relaxed) => {}
        Ok(gates) => {
            forget_resolutions_of_failure(errand, commit, &gates);
            let (commit, tree) = (commit.clone(), tree.clone());
            errand.send_input(Input::BatchVerified { task, attempt, commit, tree, gates });
        }
        Err(reason) => errand.send_input(Input::TrainFailed { task, attempt, reason }),
    }
}

/// A conflict that was resolved as before and failed is not resolved that way again. Before the verdict is
/// told: whoever dies in between verifies it again.
fn forget_resolutions_of_failure(errand: &EffectContext, commit: &Oid, gates: &[GateResult]) {
    let world = &errand.engine;
    let failed = gates.iter().any(|gate| gate.verdict == GateVerdict::Failed);
    if !failed || !world.settings.land.reuse_resolutions {
        return;
    }
    let forgotten = world.repo.read_ref(&world.target_ref()).and_then(|main| match main {
        Some(main) => conflict_resolutions::forget_failed_resolutions(&world.repo, &main, commit),
        None => Ok(()),
    });
    if let Err(error) = forgotten {
        errand.send_notices(vec![format!("cannot forget a failed conflict resolution: {error}")]);
    }
}

/// Verdicts of the train's gates on exactly this commit.
pub fn verify_commit(
    errand: &EffectContext,
    (commit, tree): (&Oid, &Oid),
    number: u32,
    scope: GateScope,
) -> Result<Vec<GateResult>, String> {
    let world = &errand.engine;
    let lane = world.layout.lane_workspace(number);
    let commands = &world.settings.gates.verify;
    let words = |error: mainstem_host::git::GitError| error.to_string();
    std::fs::create_dir_all(world.layout.workspace_root()).map_err(|error| error.to_string())?;
    let used = read_last_use(&world.layout.lane_note_path(number));
    claim_lane(errand, commit, number)
        .and_then(|()| errand.remove_scratch(&lane))
        .map_err(|error| format!("cannot clean the checkout of the merge train: {error}"))?;
    let good = cache_note_path(&world.layout, number);
    let generation = read_cache_generation(&world.layout);
    let made = check_out_clean(errand, commit, &lane, (&good, generation))?;
    if let Some(used) = used.filter(|used| SystemTime::now() <= *used) {
        // The clock went back: what was built here would look newer than files that came after it.
        world.repo.touch_tracked_files(&lane, used).map_err(words)?;
    }
    // What is not there cannot be judged.
    if made.submodule_incomplete && !commands.is_empty() {
        return Ok(vec![unable_result("the merged tree", made.notes.join("; "))]);
    }
    crash::point("train.checked_out");
    let place = world.layout.train_job(&world.run, &errand.task.id, commit.as_str(), 0);
    workspace::run_setup_commands(errand, &lane, &place.with_extension("setup"))
        .map_err(|error| error.to_string())?;
    let dir = |n| world.layout.train_job(&world.run, &errand.task.id, commit.as_str(), n);
    // No verdict of an earlier try counts: what its gates did to their checkout is not known.
    for n in 0..commands.len() {
        process::reset_job(&dir(n)).map_err(|error| error.to_string())?;
    }
    // Whatever a gate does to its checkout, the next one must not judge another tree.
    let still_there = || {
        let head = world.repo.read_worktree_tip(&lane).map_err(words)?;
        let seen = head.as_ref().map(|head| world.repo.tree_of(head)).transpose().map_err(words)?;
        if seen.as_ref() == Some(tree) {
            Ok(())
        } else {
            Err("the check switched the checkout to another commit".to_owned())
        }
    };
    let ready = || reset_tracked_files(errand, &lane, commit, TrackedEditPolicy::Discarded);
    let what = GateSubject { commands, tree, scope };
    let results = run_gates(errand, &what, &lane, dir, ready, still_there);
    record_last_use(&world.layout.lane_note_path(number), used)
        .map_err(|error| error.to_string())?;
    let passed = |result: &GateResult| result.verdict == GateVerdict::Passed;
    if results.len() == commands.len() && results.iter().all(passed) {
        let note = format!("{commit} {generation}");
        files::write_atomic(&good, note.as_bytes()).map_err(|e| e.to_string())?;
    }
    Ok(results)
}

/// Which merge the caches of a lane are good for.
fn cache_note_path(layout: &RepoLayout, lane: u32) -> PathBuf {
    layout.lane_note_path(lane).with_extension("good")
}

fn read_cache_generation(layout: &RepoLayout) -> u64 {
    let text = std::fs::read_to_string(layout.cache_generation_path()).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The next verification in this lane begins without caches.
pub(super) fn forget_lane_caches(layout: &RepoLayout, lane: u32) -> std::io::Result<()> {
    files::remove_all(&cache_note_path(layout, lane))
}

/// No lane uses the caches that it has now again, nor those that a verification under way leaves.
pub(super) fn invalidate_lane_caches(layout: &RepoLayout) -> std::io::Result<()> {
    let next = read_cache_generation(layout) + 1;
    files::write_atomic(&layout.cache_generation_path(), next.to_string().as_bytes())
}

/// Checks a merge out in a lane in which nothing of another one is left. Build caches that the settings name stay
/// only if all gates passed on the last merge here and that merge is part of this one: what a failed or evicted
/// one wrote into them is gone with them.
fn check_out_clean(
    errand: &EffectContext,
    commit: &Oid,
    lane: &Path,
    (good, generation): (&Path, u64),
) -> Result<PreparedWorktree, String> {
    let (repo, trash) = (&errand.engine.repo, errand.engine.layout.trash_dir());
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let note = std::fs::read_to_string(good).unwrap_or_default();
    let last = match note.split_whitespace().collect::<Vec<_>>().as_slice() {
        [commit, of] if *of == generation.to_string() => Some(Oid::new(*commit)),
        _ => None,
    };
    let keeps = match &last {
        Some(last) => {
            repo.has_object(last).and_then(|there| Ok(there && repo.is_ancestor(last, commit)?))
        }
        None => Ok(false),
    };
    // Until all gates have passed here again, nothing here is known to be good.
    files::remove_all(good).map_err(|error| error.to_string())?;
    let caches: &[String] = match keeps {
        Ok(true) => &errand.engine.settings.gates.caches,
        _ => &[],
    };
    // What is left inside submodules is not looked through: they are made anew.
    if lane.join(".gitmodules").exists() {
        repo.remove_worktree(lane, &trash).map_err(words)?;
    }
    let made = errand.engine.check_out_lane(lane, commit).map_err(words)?;
    if repo.clean_untracked_files(lane, caches).is_ok() {
        return Ok(made);
    }
    // Something cannot be removed where it is.
    repo.remove_worktree(lane, &trash).map_err(words)?;
    errand.engine.check_out_lane(lane, commit).map_err(words)
}

/// When a lane was last built in, by the clock of that time.
fn read_last_use(note: &Path) -> Option<SystemTime> {
    std::fs::metadata(note).and_then(|meta| meta.modified()).ok()
}

/// Notes that a lane is used now, or was by a clock that was ahead of ours.
fn record_last_use(note: &Path, before: Option<SystemTime>) -> std::io::Result<()> {
    let now = SystemTime::now();
    let latest = read_last_use(note).into_iter().chain(before).fold(now, SystemTime::max);
    std::fs::File::options().append(true).open(note)?.set_modified(latest)
}

/// What becomes of edits that a gate or a setup command made in tracked files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrackedEditPolicy {
    /// They go to a snapshot: a person may be at work in a task's workspace.
    Kept,
    /// The lane holds nothing but merges that can be made again.
    Discarded,
}

/// Sets tracked files back to what is to be verified, so that no gate judges what another one, or a
/// setup command, wrote into them.
fn reset_tracked_files(
    errand: &EffectContext,
    place: &Path,
    commit: &Oid,
    edits: TrackedEditPolicy,
) -> Result<(), String> {
    let repo = &errand.engine.repo;
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let changed = repo.list_tracked_changes(place, commit).map_err(words)?;
    let Some(file) = changed.first() else { return Ok(()) };
    let why = "before a gate sees its files as they were committed";
    if edits == TrackedEditPolicy::Kept
        && let Some(kept) =
            repo.take_snapshot(place, &errand.snapshot_ref_prefix(), why).map_err(words)?
        && kept.is_new
    {
        errand.send_kept_ref(kept.refname, kept.commit, why);
    }
    repo.restore_tracked_files(place, commit).map_err(words)?;
    let (count, name) = (changed.len(), file.display());
    errand.send_notices(vec![format!(
        "tracked files differed from the commit before a check and were reset: {count}, such as {name}"
    )]);
    Ok(())
}

/// Ends whatever an earlier life or car still runs in the lane, whoever's it was, and notes whose
/// the lane is now: a gate that goes on in there would spoil the next verdict.
fn claim_lane(errand: &EffectContext, commit: &Oid, lane: u32) -> std::io::Result<()> {
    let world = &errand.engine;
    let note = world.layout.lane_note_path(lane);
    let jobs = |run: &RunId, task: &TaskId, commit: &str| -> Vec<PathBuf> {
        let gates = 0..world.settings.gates.verify.len().max(GATES_NOTED);
        let setup = world.layout.train_job(run, task, commit, 0).with_extension("setup");
        let setups = (0..world.settings.workspace.setup.len().max(GATES_NOTED))
            .map(move |n| setup.join(format!("setup-{n}")));
        gates.map(|n| world.layout.train_job(run, task, commit, n)).chain(setups).collect()
    };
    let mut used = Vec::new();
    if let Ok(text) = std::fs::read_to_string(&note)
        && let [run, task, commit] = text.split_whitespace().collect::<Vec<_>>().as_slice()
    {
        used = jobs(&RunId::new(*run), &TaskId::new(*task), commit);
    }
    used.extend(jobs(&world.run, &errand.task.id, commit.as_str()));
    for job in used {
        process::end_job(&job)?;
    }
    let owner = format!("{} {} {commit}\n", world.run, errand.task.id);
    let used = read_last_use(&note);
    files::write_atomic(&note, owner.as_bytes())?;
    record_last_use(&note, used)
}

/// What is to be verified, by which commands.
struct GateSubject<'a> {
    commands: &'a [String],
    tree: &'a Oid,
    scope: GateScope,
}

/// One gate to be run.
struct GateJob<'a> {
    command: &'a str,
    cwd: &'a Path,
    tree: &'a Oid,
    scope: GateScope,
}

fn unable_result(gate: &str, detail: String) -> GateResult {
    GateResult {
        gate: gate.to_owned(),
        verdict: GateVerdict::Error,
        duration_ms: 0,
        log: None,
        detail,
        cached: false,
        flakes: 0,
        exit_code: None,
        cause: Some(GateFailureCause::CouldNotRun {}),
    }
}

fn run_gates(
    errand: &EffectContext,
    what: &GateSubject<'_>,
    cwd: &Path,
    dir: impl Fn(usize) -> PathBuf,
    ready: impl Fn() -> Result<(), String>,
    sound: impl Fn() -> Result<(), String>,
) -> Vec<GateResult> {
    let GateSubject { commands, tree, scope } = *what;
    let mut results = Vec::new();
    for (n, command) in commands.iter().enumerate() {
        if gate::is_file_gate(command) || gate::needs_person_or_reviewer(command) {
            let result = run_file_gate(errand, command, tree);
            let passed = result.verdict == GateVerdict::Passed;
            results.push(result);
            if passed {
                continue;
            }
            break;
        }
        if let Err(detail) = retry_once(&ready) {
            results.push(unable_result(command, detail));
            break;
        }
        let mut result = run_gate_job(errand, &GateJob { command, cwd, tree, scope }, &dir(n));
        while result.verdict == GateVerdict::Failed
            && result.flakes < errand.engine.settings.gates.retries
            && !errand.cancel.load(Ordering::Relaxed)
            && sound().is_ok()
            && ready().is_ok()
            && process::set_job_files_aside(&dir(n)).is_ok()
        {
            let flakes = result.flakes + 1;
            result = run_gate_job(errand, &GateJob { command, cwd, tree, scope }, &dir(n));
            result.flakes = flakes;
        }
        if let Err(detail) = retry_once(&sound) {
            (result.verdict, result.detail) = (GateVerdict::Error, detail);
            result.cause = Some(GateFailureCause::CouldNotRun {});
        }
        let passed = result.verdict == GateVerdict::Passed;
        results.push(result);
        if !passed || errand.cancel.load(Ordering::Relaxed) {
            break;
        }
    }
    results
}

/// A git that was killed meanwhile says nothing about the work: it is asked again.
fn retry_once(question: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let again = (1..READY_TRIES).find_map(|_| question().ok());
    again.map_or_else(question, Ok)
}

/// The verdict of a gate that only looks at files, as they are in exactly this tree.
fn run_file_gate(errand: &EffectContext, line: &str, tree: &Oid) -> GateResult {
    let began = clock::now_ms();
    let repo = &errand.engine.repo;
    let judged = repo
        .list_tree_files(tree)
        .map(|files| gate::judge_file_gate(line, &GateTreeFiles { repo, files }));
    let (verdict, detail) = judged.unwrap_or_else(|error| (GateVerdict::Error, error.to_string()));
    let duration_ms = u64::try_from(clock::now_ms() - began).unwrap_or(0);
    let cause = match verdict {
        GateVerdict::Passed => None,
        GateVerdict::Failed => Some(GateFailureCause::Failed {}),
        GateVerdict::Error => Some(GateFailureCause::CouldNotRun {}),
    };
    GateResult { verdict, duration_ms, cause, ..unable_result(line, detail) }
}

/// A tree's files, read from git.
struct GateTreeFiles<'a> {
    repo: &'a Repo,
    files: Vec<TreeFile>,
}

impl gate::GateFiles for GateTreeFiles<'_> {
    fn file_names(&self) -> Result<Vec<String>, String> {
        Ok(self.files.iter().map(|file| file.path.clone()).collect())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let file = self.files.iter().find(|file| file.path == name);
        let file = file.ok_or_else(|| format!("no such file: `{name}`"))?;
        if file.bytes > gate::FILE_BYTES_MAX {
            return Err(format!("`{name}` is too large to check ({} bytes)", file.bytes));
        }
        self.repo.read_tree_file(file).map_err(|error| error.to_string())
    }
}

fn run_gate_job(errand: &EffectContext, gate: &GateJob<'_>, dir: &Path) -> GateResult {
    let world = &errand.engine;
    let GateJob { command, cwd, tree, scope } = *gate;
    let mut mark: BTreeMap<String, String> =
        world.attempt_variables(&errand.task.id, errand.attempt);
    mark.insert(TREE.to_owned(), tree.to_string());
    match build_dirs::choose_own_build_dir(&world.repo, cwd, &world.env) {
        Ok(own) => mark.extend(own.map(|own| (TARGET_DIR.to_owned(), own.display().to_string()))),
        Err(error) => return unable_result(command, error.to_string()),
    }
    let env = world.command_env(&mark);
    let spec = world.shell_job(command, cwd.to_path_buf(), env, world.settings.gates.timeout_ms);
    let spec = match world.sandboxed_job(spec, &errand.sandbox_scope(cwd)) {
        Ok(spec) => spec,
        Err(error) => return unable_result(command, error.to_string()),
    };
    if let Err(error) = reset_stale_gate_job(dir, &spec) {
        return unable_result(command, error.to_string());
    }
    let running = announce_running_gate(errand, command, scope, dir);
    let exit =
        match process::run_job_to_end(dir, &spec, &world.supervisor_command(), &errand.cancel) {
            Ok(exit) => exit,
            Err(error) => {
                // It may run all the same, and nobody would wait for it. If it cannot be ended now,
                // whoever needs the folder next ends it.
                let _ = process::end_job(dir);
                return unable_result(command, error.to_string());
            }
        };
    drop(running);
    crash::point("gate.ran");
    let output =
        world.build_redactor().redact_text(&read_output_end(dir, CAUSE_BYTES)).into_owned();
    let tail = last_bytes(&output, DETAIL_BYTES);
    let exit_code = match exit.ending {
        JobEnding::Exited { code } => Some(code),
        _ => None,
    };
    let cause = find_failure_cause(world, &spec, command, &exit.ending, &output);
    let (verdict, detail) = match exit.ending {
        JobEnding::Exited { code: 0 } if world.settings.gates.need_tests && ran_no_test(dir) => {
            (GateVerdict::Error, format!("{NO_TEST}\n{tail}"))
        }
        JobEnding::Exited { code: 0 } => (GateVerdict::Passed, String::new()),
        JobEnding::Exited { code } => (GateVerdict::Failed, format!("exit code {code}\n{tail}")),
        JobEnding::Signalled { signal } => {
            (GateVerdict::Failed, format!("signal {signal}\n{tail}"))
        }
        JobEnding::TimedOut { .. } => (GateVerdict::Error, format!("it ran out of time\n{tail}")),
        JobEnding::OutOfMemory { limit } => {
            (GateVerdict::Error, format!("it used more than {} MiB\n{tail}", limit >> 20))
        }
        JobEnding::Stopped => (GateVerdict::Error, "the check was stopped".to_owned()),
        JobEnding::NotStarted { why, .. } => (GateVerdict::Error, why),
    };
    GateResult {
        gate: command.to_owned(),
        verdict,
        duration_ms: u64::try_from(exit.ended_at_ms - exit.started_at_ms).unwrap_or(0),
        log: Some(world.layout.relative_name(dir)),
        detail,
        cached: false,
        flakes: 0,
        exit_code,
        cause: match (verdict, exit_code) {
            (GateVerdict::Passed, _) => None,
            (_, Some(0)) => Some(GateFailureCause::NoTests {}),
            _ => Some(cause),
        },
    }
}

/// Tells faces that a gate runs, until it is dropped.
struct RunningGateNotice<'a> {
    errand: &'a EffectContext,
    log: String,
}

impl Drop for RunningGateNotice<'_> {
    fn drop(&mut self) {
        // The loop may be gone already: then nobody shows anything.
        let _ = self.errand.results.send(EngineEvent::GateEnded(std::mem::take(&mut self.log)));
    }
}

fn announce_running_gate<'a>(
    errand: &'a EffectContext,
    command: &str,
    scope: GateScope,
    dir: &Path,
) -> RunningGateNotice<'a> {
    let log = errand.engine.layout.relative_name(dir);
    let gate = GateActivity {
        task: errand.task.id.to_string(),
        attempt: errand.attempt,
        scope,
        gate: command.to_owned(),
        since: Time(clock::now_ms()),
        usually_ms: None,
        log: log.clone(),
    };
    let _ = errand.results.send(EngineEvent::GateBegan(gate));
    RunningGateNotice { errand, log }
}

/// Why a gate that ran did not pass, by its output and by what its sandbox keeps back.
pub(super) fn find_failure_cause(
    world: &EngineContext,
    spec: &JobSpec,
    command: &str,
    ending: &JobEnding,
    output: &str,
) -> GateFailureCause {
    let denies_write =
        |path: &str| spec.wall.as_ref().is_some_and(|wall| wall.denies_write(Path::new(path)));
    let has = |name: &str| spec.cwd.join(name).exists();
    let around = GateEnvironment {
        denies_write: &denies_write,
        has: &has,
        no_network: spec
            .wall
            .as_ref()
            .is_some_and(|wall| wall.network != SandboxNetworkAccess::Open),
        home: world.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str()),
        limit_ms: world.settings.gates.timeout_ms,
    };
    failure_cause::classify_failure(command, &agent_ending(ending.clone()), output, &around)
}

/// A gate that was stopped on the way gave no verdict, and one of another command or on other work gave
/// none for this: it runs again.
fn reset_stale_gate_job(dir: &Path, spec: &JobSpec) -> std::io::Result<()> {
    match process::read_job_state(dir)? {
        JobState::Absent => Ok(()),
        JobState::Ended(JobExit { ending: JobEnding::Stopped, .. }) => {
            process::set_job_files_aside(dir).map(drop)
        }
        _ => {
            let same = |other: &JobSpec| {
                (&other.argv, &other.cwd, other.env.get(TREE))
                    == (&spec.argv, &spec.cwd, spec.env.get(TREE))
            };
            if process::read_job_spec(dir)?.as_ref().is_some_and(same) {
                Ok(())
            } else {
                process::reset_job(dir)
            }
        }
    }
}

/// Does a gate's output say that it tested nothing?
fn ran_no_test(dir: &Path) -> bool {
    let mut tally = TestCount::default();
    let mut from = 0;
    while let Ok(output) = process::read_job_output(dir, from, 1024 * 1024) {
        if output.lines.is_empty() {
            break;
        }
        for line in &output.lines {
            tally.read_line(&String::from_utf8_lossy(&line.text));
        }
        from = output.next;
    }
    tally.is_zero()
}

/// The end of a job's output, as it is kept in the record.
pub fn read_output_tail(dir: &Path) -> String {
    read_output_end(dir, DETAIL_BYTES)
}

/// The last bytes of a text, from a whole character on.
fn last_bytes(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

/// The end of a job's output, as text.
fn read_output_end(dir: &Path, most: usize) -> String {
    let mut from = 0;
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(output) = process::read_job_output(dir, from, 1024 * 1024) {
        if output.lines.is_empty() {
            break;
        }
        for line in &output.lines {
            tail.extend(&line.text);
            tail.push(b'\n');
        }
        if tail.len() > 2 * most {
            tail.drain(..tail.len() - most);
        }
        from = output.next;
    }
    let cut = tail.len().saturating_sub(most);
    String::from_utf8_lossy(&tail[cut..]).trim_end().to_owned()
}
