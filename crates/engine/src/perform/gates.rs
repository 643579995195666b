//! Running gates as jobs: in a task's workspace, and in the train's on the exact merged tree.
//! A gate that cannot run is an error, never a pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use mainstem_core::cause::{self, Cause, Surroundings};
use mainstem_core::fact::{GateScope, Verdict};
use mainstem_core::gate;
use mainstem_core::id::{Oid, RunId, TaskId, Time};
use mainstem_core::machine::{GateResult, Input};
use mainstem_core::tally::Tally;
use mainstem_host::git::{Blob, Prepared, Repo};
use mainstem_host::process::{self, Ending, Exit, JobSpec, JobState};
use mainstem_host::wall::Network;
use mainstem_host::{clock, crash, files};

use super::{Errand, workspace};
use crate::builds::{self, TARGET_DIR};
use crate::driver::ending_of;
use crate::event::Event;
use crate::face::RunningGate;
use crate::paths::Layout;
use crate::resolutions;
use crate::world::World;

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
pub fn of_task(errand: &Errand, tip: &Oid) {
    let world = &errand.world;
    let (task, attempt) = (errand.ix, errand.attempt);
    let tree = match world.repo.tree_of(tip) {
        Ok(tree) => tree,
        Err(error) => {
            let gates = vec![unable("the commit to verify", error.to_string())];
            return errand.tell(Input::GatesRan { task, attempt, tree: tip.clone(), gates });
        }
    };
    let cwd = errand.workspace.clone();
    if world.repo.is_replaced(&cwd) {
        let gates = vec![unable("the workspace", "something else is in its place".to_owned())];
        return errand.tell(Input::GatesRan { task, attempt, tree, gates });
    }
    let dir = |n| world.layout.gate_job(&world.run, &errand.task.id, attempt, n);
    let ready = || settle(errand, &cwd, tip, Edits::Kept);
    let what = Subject { commands: &errand.task.verify, tree: &tree, scope: GateScope::Task };
    let gates = run(errand, &what, &cwd, dir, ready, || Ok(()));
    errand.tell(Input::GatesRan { task, attempt, tree, gates });
}

/// Checks the merge out in a lane of the train, runs the train's gates there and tells.
pub fn of_train(errand: &Errand, (commit, tree): (&Oid, &Oid), lane: u32, scope: GateScope) {
    let (task, attempt) = (errand.ix, errand.attempt);
    match verify_commit(errand, (commit, tree), lane, scope) {
        _ if errand.cancel.load(Ordering::Relaxed) => {}
        Ok(gates) => {
            forget_bad(errand, commit, &gates);
            let (commit, tree) = (commit.clone(), tree.clone());
            errand.tell(Input::CarVerified { task, attempt, commit, tree, gates });
        }
        Err(reason) => errand.tell(Input::TrainFailed { task, attempt, reason }),
    }
}

/// A conflict that was resolved as before and failed is not resolved that way again. Before the verdict is
/// told: whoever dies in between verifies it again.
fn forget_bad(errand: &Errand, commit: &Oid, gates: &[GateResult]) {
    let world = &errand.world;
    let failed = gates.iter().any(|gate| gate.verdict == Verdict::Failed);
    if !failed || !world.settings.land.reuse_resolutions {
        return;
    }
    let forgotten = world.repo.read_ref(&world.target_ref()).and_then(|main| match main {
        Some(main) => resolutions::forget_bad(&world.repo, &main, commit),
        None => Ok(()),
    });
    if let Err(error) = forgotten {
        errand.tell_notes(vec![format!("cannot forget a failed conflict resolution: {error}")]);
    }
}

/// Verdicts of the train's gates on exactly this commit.
pub fn verify_commit(
    errand: &Errand,
    (commit, tree): (&Oid, &Oid),
    number: u32,
    scope: GateScope,
) -> Result<Vec<GateResult>, String> {
    let world = &errand.world;
    let lane = world.layout.lane(number);
    let commands = &world.settings.gates.verify;
    let words = |error: mainstem_host::git::GitError| error.to_string();
    std::fs::create_dir_all(world.layout.root()).map_err(|error| error.to_string())?;
    let used = last_use(&world.layout.lane_note(number));
    take_lane(errand, commit, number)
        .and_then(|()| errand.drop_scratch(&lane))
        .map_err(|error| format!("cannot clean the checkout of the merge train: {error}"))?;
    let good = good_note(&world.layout, number);
    let generation = cache_generation(&world.layout);
    let made = checkout_clean(errand, commit, &lane, (&good, generation))?;
    if let Some(used) = used.filter(|used| SystemTime::now() <= *used) {
        // The clock went back: what was built here would look newer than files that came after it.
        world.repo.freshen(&lane, used).map_err(words)?;
    }
    // What is not there cannot be judged.
    if made.unfilled && !commands.is_empty() {
        return Ok(vec![unable("the merged tree", made.notes.join("; "))]);
    }
    crash::point("train.checked_out");
    let place = world.layout.train_job(&world.run, &errand.task.id, commit.as_str(), 0);
    workspace::set_up(errand, &lane, &place.with_extension("setup"))
        .map_err(|error| error.to_string())?;
    let dir = |n| world.layout.train_job(&world.run, &errand.task.id, commit.as_str(), n);
    // No verdict of an earlier try counts: what its gates did to their checkout is not known.
    for n in 0..commands.len() {
        process::reset(&dir(n)).map_err(|error| error.to_string())?;
    }
    // Whatever a gate does to its checkout, the next one must not judge another tree.
    let still_there = || {
        let head = world.repo.worktree_tip(&lane).map_err(words)?;
        let seen = head.as_ref().map(|head| world.repo.tree_of(head)).transpose().map_err(words)?;
        if seen.as_ref() == Some(tree) {
            Ok(())
        } else {
            Err("the check switched the checkout to another commit".to_owned())
        }
    };
    let ready = || settle(errand, &lane, commit, Edits::Gone);
    let what = Subject { commands, tree, scope };
    let results = run(errand, &what, &lane, dir, ready, still_there);
    note_use(&world.layout.lane_note(number), used).map_err(|error| error.to_string())?;
    let passed = |result: &GateResult| result.verdict == Verdict::Passed;
    if results.len() == commands.len() && results.iter().all(passed) {
        let note = format!("{commit} {generation}");
        files::write_atomic(&good, note.as_bytes()).map_err(|e| e.to_string())?;
    }
    Ok(results)
}

/// Which merge the caches of a lane are good for.
fn good_note(layout: &Layout, lane: u32) -> PathBuf {
    layout.lane_note(lane).with_extension("good")
}

fn cache_generation(layout: &Layout) -> u64 {
    let text = std::fs::read_to_string(layout.cache_generation()).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The next verification in this lane begins without caches.
pub(super) fn forget_caches_of(layout: &Layout, lane: u32) -> std::io::Result<()> {
    files::remove_all(&good_note(layout, lane))
}

/// No lane uses the caches that it has now again, nor those that a verification under way leaves.
pub(super) fn distrust_caches(layout: &Layout) -> std::io::Result<()> {
    let next = cache_generation(layout) + 1;
    files::write_atomic(&layout.cache_generation(), next.to_string().as_bytes())
}

/// Checks a merge out in a lane in which nothing of another one is left. Build caches that the settings name stay
/// only if all gates passed on the last merge here and that merge is part of this one: what a failed or evicted
/// one wrote into them is gone with them.
fn checkout_clean(
    errand: &Errand,
    commit: &Oid,
    lane: &Path,
    (good, generation): (&Path, u64),
) -> Result<Prepared, String> {
    let (repo, trash) = (&errand.world.repo, errand.world.layout.trash());
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
        Ok(true) => &errand.world.settings.gates.caches,
        _ => &[],
    };
    // What is left inside submodules is not looked through: they are made anew.
    if lane.join(".gitmodules").exists() {
        repo.remove_worktree(lane, &trash).map_err(words)?;
    }
    let made = errand.world.checkout_lane(lane, commit).map_err(words)?;
    if repo.clean_ignored(lane, caches).is_ok() {
        return Ok(made);
    }
    // Something cannot be removed where it is.
    repo.remove_worktree(lane, &trash).map_err(words)?;
    errand.world.checkout_lane(lane, commit).map_err(words)
}

/// When a lane was last built in, by the clock of that time.
fn last_use(note: &Path) -> Option<SystemTime> {
    std::fs::metadata(note).and_then(|meta| meta.modified()).ok()
}

/// Notes that a lane is used now, or was by a clock that was ahead of ours.
fn note_use(note: &Path, before: Option<SystemTime>) -> std::io::Result<()> {
    let now = SystemTime::now();
    let latest = last_use(note).into_iter().chain(before).fold(now, SystemTime::max);
    std::fs::File::options().append(true).open(note)?.set_modified(latest)
}

/// What becomes of edits that a gate or a setup command made in tracked files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edits {
    /// They go to a snapshot: a person may be at work in a task's workspace.
    Kept,
    /// The lane holds nothing but merges that can be made again.
    Gone,
}

/// Sets tracked files back to what is to be verified, so that no gate judges what another one, or a
/// setup command, wrote into them.
fn settle(errand: &Errand, place: &Path, commit: &Oid, edits: Edits) -> Result<(), String> {
    let repo = &errand.world.repo;
    let words = |error: mainstem_host::git::GitError| error.to_string();
    let changed = repo.tracked_changes(place, commit).map_err(words)?;
    let Some(file) = changed.first() else { return Ok(()) };
    let why = "before a gate sees its files as they were committed";
    if edits == Edits::Kept
        && let Some(kept) = repo.snapshot(place, &errand.snapshots(), why).map_err(words)?
        && kept.fresh
    {
        errand.tell_kept(kept.refname, kept.commit, why);
    }
    repo.restore_tracked(place, commit).map_err(words)?;
    let (count, name) = (changed.len(), file.display());
    errand.tell_notes(vec![format!(
        "tracked files differed from the commit before a check and were reset: {count}, such as {name}"
    )]);
    Ok(())
}

/// Ends whatever an earlier life or car still runs in the lane, whoever's it was, and notes whose
/// the lane is now: a gate that goes on in there would spoil the next verdict.
fn take_lane(errand: &Errand, commit: &Oid, lane: u32) -> std::io::Result<()> {
    let world = &errand.world;
    let note = world.layout.lane_note(lane);
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
        process::end(&job)?;
    }
    let owner = format!("{} {} {commit}\n", world.run, errand.task.id);
    let used = last_use(&note);
    files::write_atomic(&note, owner.as_bytes())?;
    note_use(&note, used)
}

/// What is to be verified, by which commands.
struct Subject<'a> {
    commands: &'a [String],
    tree: &'a Oid,
    scope: GateScope,
}

/// One gate to be run.
struct Gate<'a> {
    command: &'a str,
    cwd: &'a Path,
    tree: &'a Oid,
    scope: GateScope,
}

fn unable(gate: &str, detail: String) -> GateResult {
    GateResult {
        gate: gate.to_owned(),
        verdict: Verdict::Error,
        duration_ms: 0,
        log: None,
        detail,
        cached: false,
        flakes: 0,
        exit_code: None,
        cause: Some(Cause::CouldNotRun {}),
    }
}

fn run(
    errand: &Errand,
    what: &Subject<'_>,
    cwd: &Path,
    dir: impl Fn(usize) -> PathBuf,
    ready: impl Fn() -> Result<(), String>,
    sound: impl Fn() -> Result<(), String>,
) -> Vec<GateResult> {
    let Subject { commands, tree, scope } = *what;
    let mut results = Vec::new();
    for (n, command) in commands.iter().enumerate() {
        if gate::looks_at_files(command) || gate::needs_others(command) {
            let result = look(errand, command, tree);
            let passed = result.verdict == Verdict::Passed;
            results.push(result);
            if passed {
                continue;
            }
            break;
        }
        if let Err(detail) = asked_again(&ready) {
            results.push(unable(command, detail));
            break;
        }
        let mut result = run_one(errand, &Gate { command, cwd, tree, scope }, &dir(n));
        while result.verdict == Verdict::Failed
            && result.flakes < errand.world.settings.gates.retries
            && !errand.cancel.load(Ordering::Relaxed)
            && sound().is_ok()
            && ready().is_ok()
            && process::set_aside(&dir(n)).is_ok()
        {
            let flakes = result.flakes + 1;
            result = run_one(errand, &Gate { command, cwd, tree, scope }, &dir(n));
            result.flakes = flakes;
        }
        if let Err(detail) = asked_again(&sound) {
            (result.verdict, result.detail) = (Verdict::Error, detail);
            result.cause = Some(Cause::CouldNotRun {});
        }
        let passed = result.verdict == Verdict::Passed;
        results.push(result);
        if !passed || errand.cancel.load(Ordering::Relaxed) {
            break;
        }
    }
    results
}

/// A git that was killed meanwhile says nothing about the work: it is asked again.
fn asked_again(question: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let again = (1..READY_TRIES).find_map(|_| question().ok());
    again.map_or_else(question, Ok)
}

/// The verdict of a gate that only looks at files, as they are in exactly this tree.
fn look(errand: &Errand, line: &str, tree: &Oid) -> GateResult {
    let began = clock::now_ms();
    let repo = &errand.world.repo;
    let judged = repo.files_of(tree).map(|files| gate::judge(line, &Tree { repo, files }));
    let (verdict, detail) = judged.unwrap_or_else(|error| (Verdict::Error, error.to_string()));
    let duration_ms = u64::try_from(clock::now_ms() - began).unwrap_or(0);
    let cause = match verdict {
        Verdict::Passed => None,
        Verdict::Failed => Some(Cause::Failed {}),
        Verdict::Error => Some(Cause::CouldNotRun {}),
    };
    GateResult { verdict, duration_ms, cause, ..unable(line, detail) }
}

/// A tree's files, read from git.
struct Tree<'a> {
    repo: &'a Repo,
    files: Vec<Blob>,
}

impl gate::Files for Tree<'_> {
    fn names(&self) -> Result<Vec<String>, String> {
        Ok(self.files.iter().map(|file| file.path.clone()).collect())
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        let file = self.files.iter().find(|file| file.path == name);
        let file = file.ok_or_else(|| format!("no such file: `{name}`"))?;
        if file.bytes > gate::FILE_BYTES_MAX {
            return Err(format!("`{name}` is too large to check ({} bytes)", file.bytes));
        }
        self.repo.content_of(file).map_err(|error| error.to_string())
    }
}

fn run_one(errand: &Errand, gate: &Gate<'_>, dir: &Path) -> GateResult {
    let world = &errand.world;
    let Gate { command, cwd, tree, scope } = *gate;
    let mut mark: BTreeMap<String, String> = world.mark(&errand.task.id, errand.attempt);
    mark.insert(TREE.to_owned(), tree.to_string());
    match builds::own_folder(&world.repo, cwd, &world.env) {
        Ok(own) => mark.extend(own.map(|own| (TARGET_DIR.to_owned(), own.display().to_string()))),
        Err(error) => return unable(command, error.to_string()),
    }
    let env = world.command_env(&mark);
    let spec = world.shell(command, cwd.to_path_buf(), env, world.settings.gates.timeout_ms);
    let spec = match world.walled(spec, &errand.behind(cwd)) {
        Ok(spec) => spec,
        Err(error) => return unable(command, error.to_string()),
    };
    if let Err(error) = forget_other(dir, &spec) {
        return unable(command, error.to_string());
    }
    let running = tell_running(errand, command, scope, dir);
    let exit = match process::run_to_end(dir, &spec, &world.supervisor(), &errand.cancel) {
        Ok(exit) => exit,
        Err(error) => {
            // It may run all the same, and nobody would wait for it. If it cannot be ended now,
            // whoever needs the folder next ends it.
            let _ = process::end(dir);
            return unable(command, error.to_string());
        }
    };
    drop(running);
    crash::point("gate.ran");
    let output = world.redactor().redact_text(&end_of_output(dir, CAUSE_BYTES)).into_owned();
    let tail = last_bytes(&output, DETAIL_BYTES);
    let exit_code = match exit.ending {
        Ending::Exited { code } => Some(code),
        _ => None,
    };
    let cause = cause_of(world, &spec, command, &exit.ending, &output);
    let (verdict, detail) = match exit.ending {
        Ending::Exited { code: 0 } if world.settings.gates.need_tests && ran_no_test(dir) => {
            (Verdict::Error, format!("{NO_TEST}\n{tail}"))
        }
        Ending::Exited { code: 0 } => (Verdict::Passed, String::new()),
        Ending::Exited { code } => (Verdict::Failed, format!("exit code {code}\n{tail}")),
        Ending::Signalled { signal } => (Verdict::Failed, format!("signal {signal}\n{tail}")),
        Ending::TimedOut { .. } => (Verdict::Error, format!("it ran out of time\n{tail}")),
        Ending::OutOfMemory { limit } => {
            (Verdict::Error, format!("it used more than {} MiB\n{tail}", limit >> 20))
        }
        Ending::Stopped => (Verdict::Error, "the check was stopped".to_owned()),
        Ending::NotStarted { why, .. } => (Verdict::Error, why),
    };
    GateResult {
        gate: command.to_owned(),
        verdict,
        duration_ms: u64::try_from(exit.ended_at_ms - exit.started_at_ms).unwrap_or(0),
        log: Some(world.layout.relative(dir)),
        detail,
        cached: false,
        flakes: 0,
        exit_code,
        cause: match (verdict, exit_code) {
            (Verdict::Passed, _) => None,
            (_, Some(0)) => Some(Cause::NoTests {}),
            _ => Some(cause),
        },
    }
}

/// Tells faces that a gate runs, until it is dropped.
struct Told<'a> {
    errand: &'a Errand,
    log: String,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        // The loop may be gone already: then nobody shows anything.
        let _ = self.errand.results.send(Event::GateEnded(std::mem::take(&mut self.log)));
    }
}

fn tell_running<'a>(errand: &'a Errand, command: &str, scope: GateScope, dir: &Path) -> Told<'a> {
    let log = errand.world.layout.relative(dir);
    let gate = RunningGate {
        task: errand.task.id.to_string(),
        attempt: errand.attempt,
        scope,
        gate: command.to_owned(),
        since: Time(clock::now_ms()),
        usually_ms: None,
        log: log.clone(),
    };
    let _ = errand.results.send(Event::GateBegan(gate));
    Told { errand, log }
}

/// Why a gate that ran did not pass, by its output and by what its sandbox keeps back.
pub(super) fn cause_of(
    world: &World,
    spec: &JobSpec,
    command: &str,
    ending: &Ending,
    output: &str,
) -> Cause {
    let denies_write =
        |path: &str| spec.wall.as_ref().is_some_and(|wall| wall.denies_write(Path::new(path)));
    let has = |name: &str| spec.cwd.join(name).exists();
    let around = Surroundings {
        denies_write: &denies_write,
        has: &has,
        no_network: spec.wall.as_ref().is_some_and(|wall| wall.network != Network::Open),
        home: world.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str()),
        limit_ms: world.settings.gates.timeout_ms,
    };
    cause::classify(command, &ending_of(ending.clone()), output, &around)
}

/// A gate that was stopped on the way gave no verdict, and one of another command or on other work gave
/// none for this: it runs again.
fn forget_other(dir: &Path, spec: &JobSpec) -> std::io::Result<()> {
    match process::state(dir)? {
        JobState::Absent => Ok(()),
        JobState::Ended(Exit { ending: Ending::Stopped, .. }) => process::set_aside(dir).map(drop),
        _ => {
            let same = |other: &JobSpec| {
                (&other.argv, &other.cwd, other.env.get(TREE))
                    == (&spec.argv, &spec.cwd, spec.env.get(TREE))
            };
            if process::spec(dir)?.as_ref().is_some_and(same) {
                Ok(())
            } else {
                process::reset(dir)
            }
        }
    }
}

/// Does a gate's output say that it tested nothing?
fn ran_no_test(dir: &Path) -> bool {
    let mut tally = Tally::default();
    let mut from = 0;
    while let Ok(output) = process::read_output(dir, from, 1024 * 1024) {
        if output.lines.is_empty() {
            break;
        }
        for line in &output.lines {
            tally.see(&String::from_utf8_lossy(&line.text));
        }
        from = output.next;
    }
    tally.is_zero()
}

/// The end of a job's output, as it is kept in the record.
pub fn tail_of(dir: &Path) -> String {
    end_of_output(dir, DETAIL_BYTES)
}

/// The last bytes of a text, from a whole character on.
fn last_bytes(text: &str, most: usize) -> &str {
    let from = text.len().saturating_sub(most);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

/// The end of a job's output, as text.
fn end_of_output(dir: &Path, most: usize) -> String {
    let mut from = 0;
    let mut tail: Vec<u8> = Vec::new();
    while let Ok(output) = process::read_output(dir, from, 1024 * 1024) {
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
