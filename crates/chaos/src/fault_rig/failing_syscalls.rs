//! System calls fail: one call of the engine, of one git of its, or of one supervisor is answered with
//! an error, or the caller is killed at it. Then plain lives to rest, and the oracle.
//!
//! A first run without faults lists every call that could fail (`strace` counts per thread, so a point is
//! a process, a call and its number there); rounds are drawn from that list. Agents and gates are left
//! alone: their own failures are the business of other rounds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mainstem_testkit::SeededRng;

use super::full_disk::retry_failed;
use super::mounts::{self, RigFolder};
use super::{RigOptions, RigTotals};
use crate::event_log;
use crate::fixture::{ChaosFixture, ChaosPrograms, code};
use crate::oracle_call::OracleViolation;
use crate::process_table;
use crate::run_round::{end_all, play};
use crate::scenario::ChaosScenario;

/// Rounds that share one list of points.
const CHAPTER: u64 = 60;
/// A life without a new line in the ledger for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// Longest life under strace.
const LIFE_MAX: Duration = Duration::from_secs(150);

/// Calls, and the answers that are legal for them. `KILL` stands for death on the spot.
const CALLS: [(&str, &[&str]); 19] = [
    ("write", &["EIO", "ENOSPC", "EINTR", "KILL"]),
    ("pwrite64", &["EIO", "ENOSPC", "EINTR", "KILL"]),
    ("fsync", &["EIO", "ENOSPC", "KILL"]),
    ("fdatasync", &["EIO", "ENOSPC", "KILL"]),
    ("rename", &["EIO", "ENOSPC", "KILL"]),
    ("renameat", &["EIO", "ENOSPC", "KILL"]),
    ("renameat2", &["EIO", "ENOSPC", "KILL"]),
    ("link", &["EIO", "ENOSPC", "EMLINK", "KILL"]),
    ("linkat", &["EIO", "ENOSPC", "KILL"]),
    ("unlink", &["EIO", "KILL"]),
    ("unlinkat", &["EIO", "KILL"]),
    ("mkdir", &["EIO", "ENOSPC", "KILL"]),
    ("mkdirat", &["EIO", "ENOSPC", "KILL"]),
    ("openat", &["EMFILE", "EIO", "ENOSPC", "KILL"]),
    ("clone", &["EAGAIN", "ENOMEM", "KILL"]),
    ("clone3", &["EAGAIN", "ENOMEM", "KILL"]),
    ("vfork", &["EAGAIN", "KILL"]),
    ("fork", &["EAGAIN", "KILL"]),
    ("execve", &["EAGAIN", "EMFILE", "EIO", "KILL"]),
];

/// Which process of its kind is traced (all of them if none), and the words for strace.
type StraceArguments = (Option<u32>, String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TracedProgram {
    Engine,
    Git(u32),
    Supervisor(u32),
}

/// One thing that can go wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SyscallPoint {
    whose: TracedProgram,
    call: &'static str,
    answer: &'static str,
    when: u32,
}

impl SyscallPoint {
    fn part(&self) -> &'static str {
        match self.whose {
            TracedProgram::Engine => "engine",
            TracedProgram::Git(_) => "git",
            TracedProgram::Supervisor(_) => "supervisor",
        }
    }

    fn name(&self) -> String {
        let whose = match self.whose {
            TracedProgram::Engine => "engine".to_owned(),
            TracedProgram::Git(n) => format!("git {n}"),
            TracedProgram::Supervisor(n) => format!("supervisor {n}"),
        };
        format!("{whose} {} {} {}", self.call, self.when, self.answer)
    }

    /// As strace wants it.
    fn inject(&self) -> String {
        let (call, when) = (self.call, self.when);
        match self.answer {
            "KILL" => format!("inject={call}:signal=KILL:when={when}"),
            error => format!("inject={call}:error={error}:when={when}"),
        }
    }
}

/// Plays `options.rounds` points; `options.only` names targets (`engine`, `git`, `supervisor`).
pub fn run(tools: &ChaosPrograms, options: &RigOptions) -> Result<RigTotals, String> {
    if let Err(why) = mounts::need(&[("strace", "strace")]) {
        return Ok(RigTotals::skip(why));
    }
    let mut sum = RigTotals::default();
    let mut rng = SeededRng::new(options.seed);
    let mut played = 0;
    while played < options.rounds && !options.over() {
        let seed = options.seed.wrapping_add(played / CHAPTER);
        let show = short(seed);
        let mut points = match list(tools, &show) {
            Ok(points) => points,
            Err(why) if sum.rounds == 0 => return Ok(RigTotals::skip(why)),
            Err(why) => return Err(why),
        };
        points.retain(|point| options.wants(point.part()));
        (options.say)(&format!("seed {seed}: {} points", points.len()));
        for _ in 0..CHAPTER.min(options.rounds - played) {
            if options.over() || points.is_empty() {
                break;
            }
            let point = draw(&mut rng, &mut points);
            let started = Instant::now();
            let room = RigFolder::new(500)?;
            let mut notes = Vec::new();
            let outcome = round(tools, &show, &point, &room, &mut notes);
            let failed = outcome.as_ref().map_or(true, |wrong| !wrong.is_empty());
            let kept = (failed && options.keep).then(|| keep(&room, seed, &point)).transpose()?;
            for note in &notes {
                sum.count(format!("{}: {note}", point.part()));
            }
            sum.count(format!("{} {}", point.call, point.answer));
            let name = format!("seed {seed} {} ({})", point.name(), notes.join(", "));
            (options.say)(&sum.round(&name, started.elapsed(), outcome, kept));
            played += 1;
        }
        if points.is_empty() {
            break;
        }
    }
    Ok(sum)
}

/// Takes a point from the list: first the kind, so that rare calls come up as often as common ones.
fn draw(rng: &mut SeededRng, points: &mut Vec<SyscallPoint>) -> SyscallPoint {
    let mut kinds: Vec<(&str, &str, &str)> =
        points.iter().map(|point| (point.part(), point.call, point.answer)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = kinds[rng.below(kinds.len() as u64) as usize];
    let of_kind: Vec<usize> = (0..points.len())
        .filter(|n| (points[*n].part(), points[*n].call, points[*n].answer) == kind)
        .collect();
    points.swap_remove(of_kind[rng.below(of_kind.len() as u64) as usize])
}

/// A short round in which everything must land.
fn short(seed: u64) -> ChaosScenario {
    let mut show = mounts::good(seed);
    show.settings.on_failure = "continue".to_owned();
    show.settings.barrier = "none".to_owned();
    show.scripts.truncate(2);
    show
}

fn keep(room: &RigFolder, seed: u64, point: &SyscallPoint) -> Result<PathBuf, String> {
    let name = format!("syscalls-{seed}-{}", point.name().replace(' ', "-"));
    let folder = std::env::temp_dir().join(name);
    mounts::sh("cp", &["-a", &room.path().display().to_string(), &folder.display().to_string()])?;
    Ok(folder)
}

/// A stage on which calls are watched.
struct TracedFixture {
    stage: ChaosFixture,
    /// Programs that stand before the real ones.
    bin: PathBuf,
    traces: PathBuf,
}

impl TracedFixture {
    fn set(tools: &ChaosPrograms, show: &ChaosScenario, room: &RigFolder) -> Result<Self, String> {
        let (place, outside) = (room.folder("place")?, room.folder("outside")?);
        let stage = ChaosFixture::set(&place, &outside, tools, show)?;
        Ok(Self { stage, bin: room.folder("bin")?, traces: room.folder("traces")? })
    }

    /// Starts the first life with these words for strace, per target; `None`: without it.
    fn start(&self, words: &dyn Fn(&str) -> Option<StraceArguments>) -> Result<Child, String> {
        let stage = &self.stage;
        let real_git = which("git").ok_or("git is not on the PATH")?;
        self.wrap("git", &git_wrapper(&self.traces, &real_git, words("git")))?;
        // The engine starts supervisors by its own path: what lies there once it runs is ours.
        let copy = self.bin.join("mainstem");
        fs::copy(&stage.tools.mainstem, &copy).map_err(|error| error.to_string())?;
        let out = |what: &str| {
            let path = stage.outside.join(format!("out/99.{what}"));
            fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let mut command = match words("engine") {
            Some((_, words)) => {
                let mut command = stage.command(Path::new("strace"));
                command.args(["-f", "-y", "-b", "execve", "-o"]).arg(self.traces.join("engine"));
                command.args(words.split(' ')).arg(&copy);
                command
            }
            None => stage.command(&copy),
        };
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}", self.bin.display()))
            .args(["run", "plan.toml"])
            .stdin(Stdio::null())
            .stdout(out("stdout")?)
            .stderr(out("stderr")?);
        let mut child = command.spawn().map_err(|error| format!("strace: {error}"))?;
        let lock = stage.repo.join(".git/mainstem/engine.lock");
        let until = Instant::now() + Duration::from_secs(20);
        while !lock.exists() && Instant::now() < until {
            if child.try_wait().map_err(|error| error.to_string())?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.wrap("mainstem", &supervisor_wrapper(&self.traces, stage, words("supervisor")))?;
        Ok(child)
    }

    /// Puts a program in place in one step.
    fn wrap(&self, name: &str, text: &str) -> Result<(), String> {
        let new = self.bin.join(format!("{name}.new"));
        fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
            .and_then(|()| fs::rename(&new, self.bin.join(name)))
            .map_err(|error| error.to_string())
    }
}

/// Numbers the calls of a program in order, whoever calls at once.
fn number(traces: &Path, name: &str) -> String {
    format!(
        "n=0\nwhile ! (set -C; : > '{0}/{name}.'$n) 2>/dev/null; do n=$((n+1)); done\n",
        traces.display()
    )
}

fn git_wrapper(traces: &Path, real: &Path, words: Option<StraceArguments>) -> String {
    let real = real.display();
    let traces_text = traces.display();
    let mut text = "#!/bin/sh\n".to_owned();
    if let Some((only, words)) = words {
        let mark = "[ -n \"$MAINSTEM_JOB\" ]";
        text.push_str(&format!("if {mark}; then exec '{real}' \"$@\"; fi\n"));
        text.push_str(&number(traces, "git"));
        let trace =
            format!("exec strace -f -o '{traces_text}/git.'$n.trace {words} '{real}' \"$@\"");
        match only {
            Some(only) => text.push_str(&format!("if [ $n = {only} ]; then {trace}; fi\n")),
            None => text.push_str(&format!("{trace}\n")),
        }
    }
    text.push_str(&format!("exec '{real}' \"$@\"\n"));
    text
}

/// A supervisor starts itself again so that nobody is its parent; the one that stays is the one to trace,
/// so that step is done here in its place.
fn supervisor_wrapper(
    traces: &Path,
    stage: &ChaosFixture,
    words: Option<StraceArguments>,
) -> String {
    let real = stage.tools.mainstem.display();
    let traces_text = traces.display();
    let mut text = "#!/bin/sh\n".to_owned();
    if let Some((only, words)) = words {
        text.push_str(&number(traces, "supervisor"));
        let trace = format!(
            "exec 3<&0; MAINSTEM_SUPERVISE_DETACHED=1 strace -f -b execve -o '{traces_text}/supervisor.'$n.trace \
             {words} '{real}' \"$@\" <&3 3<&- & exit 0"
        );
        match only {
            Some(only) => text.push_str(&format!("if [ $n = {only} ]; then {trace}; fi\n")),
            None => text.push_str(&format!("{trace}\n")),
        }
    }
    text.push_str(&format!("exec '{real}' \"$@\"\n"));
    text
}

/// Plays a round untouched and lists every call.
fn list(tools: &ChaosPrograms, show: &ChaosScenario) -> Result<Vec<SyscallPoint>, String> {
    let room = RigFolder::new(500)?;
    let traced = TracedFixture::set(tools, show, &room)?;
    let names: Vec<&str> = CALLS.iter().map(|(call, _)| *call).collect();
    let words = format!("-e trace={}", names.join(","));
    let mut child = traced.start(&|_| Some((None, words.clone())))?;
    let ended = wait(&traced.stage, &mut child)?;
    while process_table::of(&traced.stage)
        .iter()
        .any(|process| process.kind != process_table::ChaosProcessKind::Other)
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    if ended != Some(0) {
        let said = traced.stage.stderr_of(99);
        return Err(format!("strace does not let a round through: {ended:?}: {said}"));
    }
    let mut points = Vec::new();
    for entry in fs::read_dir(&traced.traces).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = |rest: &str| rest.strip_suffix(".trace").and_then(|n| n.parse().ok());
        let whose = if name == "engine" {
            Some(TracedProgram::Engine)
        } else if let Some(rest) = name.strip_prefix("git.") {
            number(rest).map(TracedProgram::Git)
        } else {
            name.strip_prefix("supervisor.").and_then(number).map(TracedProgram::Supervisor)
        };
        let Some(whose) = whose else { continue };
        let text = fs::read(entry.path()).map_err(|error| error.to_string())?;
        points.extend(points_of(whose, &String::from_utf8_lossy(&text)));
    }
    points.sort();
    Ok(points)
}

fn points_of(whose: TracedProgram, trace: &str) -> Vec<SyscallPoint> {
    // Per thread, because that is how strace counts; the most that any thread made.
    let mut counts: BTreeMap<(&str, &'static str), u32> = BTreeMap::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some(name) = rest.trim_start().split_once('(').map(|(name, _)| name) else { continue };
        if let Some((call, _)) = CALLS.iter().find(|(call, _)| *call == name) {
            *counts.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most: BTreeMap<&'static str, u32> = BTreeMap::new();
    for ((_, call), times) in counts {
        let entry = most.entry(call).or_default();
        *entry = (*entry).max(times);
    }
    let answers = |call: &str| CALLS.iter().find(|(name, _)| *name == call).map(|(_, a)| *a);
    most.into_iter()
        .flat_map(|(call, times)| (1..=times).map(move |when| (call, when)))
        .flat_map(|(call, when)| {
            let answers = answers(call).unwrap_or_default();
            answers.iter().map(move |answer| SyscallPoint { whose, call, answer, when })
        })
        .collect()
}

fn round(
    tools: &ChaosPrograms,
    show: &ChaosScenario,
    point: &SyscallPoint,
    room: &RigFolder,
    notes: &mut Vec<String>,
) -> Result<Vec<OracleViolation>, String> {
    let mut traced = TracedFixture::set(tools, show, room)?;
    let words = format!("-e trace={} -e {}", point.call, point.inject());
    let mut child = traced.start(&|part| {
        let only = match point.whose {
            TracedProgram::Engine => None,
            TracedProgram::Git(n) | TracedProgram::Supervisor(n) => Some(n),
        };
        (part == point.part()).then(|| (only, words.clone()))
    })?;
    let ended = wait(&traced.stage, &mut child)?;
    let said = traced.stage.stderr_of(99);
    let hit = injected(&traced.traces, point);
    notes.push(if hit { "hit" } else { "missed" }.to_owned());
    let Some(ended) = ended else {
        let processes: Vec<String> = process_table::of(&traced.stage)
            .into_iter()
            .map(|process| format!("{} {}", process.pid, process.command))
            .collect();
        end_all(&traced.stage);
        return Ok(vec![OracleViolation(format!("it hangs:\n{}\n{said}", processes.join("\n")))]);
    };
    notes.push(format!("code {ended}"));
    if said.contains("panicked at") || said.contains("BUG") {
        end_all(&traced.stage);
        return Ok(vec![OracleViolation(format!("it broke (code {ended}):\n{said}"))]);
    }
    // 3: it has no thread left to work with, says so and asks to be started again.
    if !matches!(ended, 0 | 1 | 2 | 3 | 137) || (ended == 1 && said.trim().is_empty()) {
        end_all(&traced.stage);
        return Ok(vec![OracleViolation(format!("it ended with {ended} and said: {said}"))]);
    }
    let mut wrong = Vec::new();
    if point.whose == TracedProgram::Engine {
        wrong.extend(synced_again(&traced.traces));
    }
    traced.stage.output_lost = matches!(point.whose, TracedProgram::Supervisor(_));
    let before = notes.len();
    retry_failed(&traced.stage, notes)?;
    if notes.len() > before && ended == 0 {
        wrong.push(OracleViolation("it ended well with failed tasks".to_owned()));
    }
    wrong.extend(play(&mut traced.stage, show)?.violations);
    Ok(wrong)
}

/// The exit code; none if it hangs.
fn wait(stage: &ChaosFixture, child: &mut Child) -> Result<Option<i32>, String> {
    let started = Instant::now();
    let mut last = (event_log::length(&stage.outside), Instant::now());
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(Some(code(status)));
        }
        let length = event_log::length(&stage.outside);
        if length != last.0 {
            last = (length, Instant::now());
        }
        if last.1.elapsed() > HANGS_AFTER || started.elapsed() > LIFE_MAX {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn trace_of(traces: &Path, point: &SyscallPoint) -> PathBuf {
    match point.whose {
        TracedProgram::Engine => traces.join("engine"),
        TracedProgram::Git(n) => traces.join(format!("git.{n}.trace")),
        TracedProgram::Supervisor(n) => traces.join(format!("supervisor.{n}.trace")),
    }
}

fn injected(traces: &Path, point: &SyscallPoint) -> bool {
    let text = fs::read(trace_of(traces, point)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.contains("(INJECTED)") || text.contains("killed by SIGKILL")
}

/// After a failed sync nobody knows what of the file is on disk, and a second sync that succeeds means
/// nothing: the engine must not have tried one on the journal.
fn synced_again(traces: &Path) -> Option<OracleViolation> {
    let text = fs::read(traces.join("engine")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let of_journal = |line: &&str| line.contains("sync(") && line.contains("/journal.db");
    let mut failed = false;
    for line in text.lines().filter(of_journal) {
        if failed {
            return Some(OracleViolation(format!(
                "the journal was synced again after an error: {line}"
            )));
        }
        failed |= line.contains("(INJECTED)") && line.contains("= -1");
    }
    None
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_counted_per_thread() {
        let trace = "10  write(1, \"a\", 1) = 1\n10  write(1, \"a\", 1) = 1\n11  write(1, \"b\", 1) = 1\n\
                     11  <... fsync resumed>) = 0\n11  fsync(3) = 0\n11  getpid() = 11\n";
        let points = points_of(TracedProgram::Engine, trace);
        let most = |call: &str| points.iter().filter(|p| p.call == call).map(|p| p.when).max();
        assert_eq!(most("write"), Some(2));
        assert_eq!(most("fsync"), Some(1));
        assert_eq!(points.len(), 2 * 4 + 3);
    }
}
