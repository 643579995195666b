//! Supervised jobs with real processes: exits, trees, time-outs, floods, conversations, re-attachment.
//! They look for survivors in `/proc`, so they run on Linux: for itself, and with `--cfg mainstem_portable`
//! for the code of other systems.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mainstem_host::process::{
    self, JobEnding, JobExit, JobSpawnError, JobSpec, JobStart, JobState, JobStopMode, OutputLine,
    OutputStream,
};
use mainstem_host::sandbox::{SandboxBackend, SandboxPathAccess, SandboxPolicy};
use tempfile::TempDir;

mod door;
mod flood;
mod hostile;
mod talk;
mod watch;

const PROGRAM: &str = env!("CARGO_BIN_EXE_host-supervise");
const PATIENCE: Duration = Duration::from_secs(90);

/// Whether a living supervisor finds all that its command started; without a reaper it does not find who
/// left its group, lost its parents and cleared its environment.
const FINDS_ALL: bool = cfg!(not(mainstem_portable));

/// These tests are built three times: without a wall, and behind each kind of it.
fn wall() -> Option<SandboxPolicy> {
    let kind = match env!("CARGO_CRATE_NAME") {
        "process_bwrap" => SandboxBackend::Bwrap,
        "process_landlock" => SandboxBackend::Landlock,
        _ => return None,
    };
    let mut wall = SandboxPolicy::minimal(kind);
    wall.set_path_access(&std::env::temp_dir(), SandboxPathAccess::Write);
    Some(wall)
}

fn supervisor() -> Vec<OsString> {
    vec![PROGRAM.into(), "__supervise".into()]
}

/// A job's folder; ends the job and removes the folder when dropped.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("job")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn spec(&self, script: &str) -> JobSpec {
        JobSpec {
            argv: vec!["sh".into(), "-c".into(), script.into()],
            cwd: self.root.path().to_owned(),
            env: BTreeMap::from([("PATH".into(), std::env::var("PATH").unwrap())]),
            stdin: None,
            converse: false,
            wall_ms: Some(80_000),
            idle_ms: None,
            grace_ms: 300,
            output_bytes: 4 << 20,
            line_bytes: 1 << 20,
            keeps_work: false,
            memory_bytes: None,
            door: None,
            wall: wall(),
        }
    }

    fn talking(&self, prompt: &[u8], script: &str) -> JobSpec {
        let file = self.file("prompt");
        fs::write(&file, prompt).unwrap();
        JobSpec { stdin: Some(file), converse: true, ..self.spec(script) }
    }

    fn start(&self, spec: &JobSpec) {
        assert_eq!(
            process::start_job(&self.dir(), spec, &supervisor()).unwrap(),
            JobStart::Started
        );
    }

    fn run(&self, spec: &JobSpec) -> JobExit {
        process::run_job_to_end(&self.dir(), spec, &supervisor(), &AtomicBool::new(false)).unwrap()
    }

    fn end(&self) -> JobExit {
        wait_for("the end", || match process::read_job_state(&self.dir()).unwrap() {
            JobState::Ended(exit) => Some(exit),
            _ => None,
        })
    }

    fn lines(&self) -> Vec<OutputLine> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let output = process::read_job_output(&self.dir(), from, 1 << 20).unwrap();
            if output.next == from {
                return all;
            }
            from = output.next;
            all.extend(output.lines);
        }
    }

    fn stdout(&self) -> Vec<String> {
        let lines = self.lines();
        let stdout = lines.iter().filter(|l| l.stream == OutputStream::Stdout);
        stdout.map(|l| String::from_utf8_lossy(&l.text).into_owned()).collect()
    }

    fn pids(&self) -> process::JobPids {
        wait_for("the command", || match process::read_job_state(&self.dir()).unwrap() {
            JobState::Alive(pids) if pids.agent_pid.is_some() => Some(pids),
            _ => None,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.dir().exists() {
            let _ = process::stop_job(&self.dir(), JobStopMode::Kill);
        }
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill9(pid: u32) {
    assert!(Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap().success());
}

fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// The processes, dead or alive, whose command line holds `word`.
fn with_word(word: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(word) && alive(pid) {
            found.push(pid);
        }
    }
    found
}

fn exited(code: i32) -> JobEnding {
    JobEnding::Exited { code }
}

#[test]
fn exit_codes_and_signals_are_reported_as_they_are() {
    for (script, ending) in [
        ("exit 0", exited(0)),
        ("exit 37", exited(37)),
        ("kill -SEGV $$", JobEnding::Signalled { signal: 11 }),
        ("kill -KILL $$", JobEnding::Signalled { signal: 9 }),
    ] {
        let place = Place::new();
        let exit = place.run(&place.spec(script));
        assert_eq!(exit.ending, ending, "{script}");
        assert!(exit.started_at_ms <= exit.ended_at_ms);
        assert_eq!(exit.leftovers_killed, 0);
    }
}

#[test]
fn the_environment_is_the_given_one_and_the_mark() {
    let place = Place::new();
    let mut spec = place.spec("env");
    spec.env.insert("GIVEN".into(), "two words".into());
    place.run(&spec);
    let lines = place.stdout();
    assert!(lines.contains(&"GIVEN=two words".to_owned()), "{lines:?}");
    let mark = format!("MAINSTEM_JOB={}", place.dir().canonicalize().unwrap().display());
    assert!(lines.contains(&mark), "{lines:?}");
    let foreign: Vec<_> = lines
        .iter()
        .map(|l| l.split('=').next().unwrap())
        .filter(|k| !["GIVEN", "PATH", "MAINSTEM_JOB", "PWD", "OLDPWD", "SHLVL", "_"].contains(k))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn nobody_else_reads_the_environment_or_the_output() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run(&place.spec("echo secret"));
    for name in ["spec.json", "output", "exit.json"] {
        let mode = fs::metadata(place.dir().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}");
    }
}

#[test]
fn both_streams_are_kept_in_order_with_any_bytes() {
    let place = Place::new();
    place.run(&place.spec(r"printf 'a\377\000b\n'; echo err >&2; printf 'no newline'"));
    let lines = place.lines();
    let texts: BTreeSet<(u8, &[u8])> =
        lines.iter().map(|l| (u8::from(l.stream == OutputStream::Stderr), &l.text[..])).collect();
    let expected: BTreeSet<(u8, &[u8])> =
        BTreeSet::from([(0, &b"a\xff\0b"[..]), (1, b"err"), (0, b"no newline")]);
    assert_eq!(texts, expected);
    assert!(lines.iter().all(|l| l.at_ms > 1_600_000_000_000));
}

#[test]
fn stdin_is_the_given_file_or_nothing() {
    let place = Place::new();
    fs::write(place.file("in"), "fed\n").unwrap();
    place.run(&JobSpec { stdin: Some(place.file("in")), ..place.spec("cat") });
    assert_eq!(place.stdout(), ["fed"]);
    let place = Place::new();
    assert_eq!(place.run(&place.spec("cat")).ending, exited(0));
}

#[test]
fn a_job_outlives_its_starter_and_its_end_is_read_later() {
    let place = Place::new();
    let spec = place.spec(&format!(
        "while [ ! -e {} ]; do sleep 0.02; done; echo done; exit 5",
        place.file("go").display()
    ));
    fs::write(place.file("spec"), serde_json::to_vec(&spec).unwrap()).unwrap();
    let mut starter = Command::new(PROGRAM)
        .arg("__start")
        .args([place.dir(), place.file("spec")])
        .spawn()
        .unwrap();
    let pids = place.pids();
    starter.kill().unwrap();
    starter.wait().unwrap();
    // The terminal's signals do not reach it either.
    for signal in ["-HUP", "-INT"] {
        Command::new("kill").arg(signal).arg(pids.pid.to_string()).status().unwrap();
    }
    assert_eq!(
        process::start_job(&place.dir(), &spec, &supervisor()).unwrap(),
        JobStart::AlreadyAlive
    );
    assert!(alive(pids.pid) && alive(pids.agent_pid.unwrap()));
    fs::write(place.file("go"), "").unwrap();
    let exit = place.end();
    assert_eq!(exit.ending, exited(5));
    assert_eq!(place.stdout(), ["done"]);
    assert_eq!(
        process::start_job(&place.dir(), &spec, &supervisor()).unwrap(),
        JobStart::AlreadyEnded(exit)
    );
}

#[test]
fn a_job_whose_folder_is_removed_ends_and_so_does_its_supervisor() {
    let place = Place::new();
    place.start(&place.spec("sleep 600"));
    let pids = place.pids();
    fs::remove_dir_all(place.dir()).unwrap();
    wait_for("the end of both", || {
        (!alive(pids.pid) && !alive(pids.agent_pid.unwrap())).then_some(())
    });
}

#[test]
fn the_starter_has_no_child_left_once_the_job_runs() {
    let place = Place::new();
    place.start(&place.spec("sleep 60"));
    let parent = fs::read_to_string(format!("/proc/{}/stat", place.pids().pid)).unwrap();
    let parent: u32 =
        parent.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_ne!(parent, std::process::id());
}

#[test]
fn a_job_whose_supervisor_is_killed_has_vanished_and_leaves_nothing_after_the_sweep() {
    let place = Place::new();
    let word = format!("600.{}", std::process::id());
    place.start(&place.spec(&format!("(setsid sleep {word} &); sleep {word} & sleep {word}")));
    wait_for("three sleepers", || (with_word(&format!("sleep\0{word}")).len() == 3).then_some(()));
    assert!(process::kill_job_leftovers(&place.dir()).is_err(), "its supervisor lives");
    kill9(place.pids().pid);
    wait_for("vanished", || {
        (process::read_job_state(&place.dir()).unwrap() == JobState::Vanished).then_some(())
    });
    assert!(matches!(
        process::start_job(&place.dir(), &place.spec("true"), &supervisor()),
        Err(JobSpawnError::Vanished { .. })
    ));
    // Two more are the wall's own.
    let scaffold =
        if wall().is_some_and(|wall| wall.kind == SandboxBackend::Bwrap) { 2 } else { 0 };
    assert_eq!(process::kill_job_leftovers(&place.dir()).unwrap(), 4 + scaffold);
    assert_eq!(with_word(&word), Vec::<u32>::new());
    assert_eq!(process::kill_job_leftovers(&place.dir()).unwrap(), 0);
    process::stop_job(&place.dir(), JobStopMode::Term).unwrap();
}

#[test]
fn a_vanished_job_is_run_once_more_and_then_given_up() {
    let place = Place::new();
    let runs = place.file("runs");
    let spec = place.spec(&format!("echo x >> {}; sleep 60", runs.display()));
    let count = || fs::read_to_string(&runs).unwrap_or_default().lines().count();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            process::run_job_to_end(&place.dir(), &spec, &supervisor(), &AtomicBool::new(false))
        });
        for n in 1..=2 {
            wait_for("a run", || (count() == n).then_some(()));
            kill9(place.pids().pid);
        }
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, JobSpawnError::Vanished { .. }), "{error}");
    });
    assert_eq!(count(), 2);
    assert!(place.dir().join("old.1/spec.json").exists());
}

/// Ignores TERM, has a child in another session, two daemons, and all hold its stdout.
fn hostile(word: &str, then: &str) -> String {
    let stay = format!("trap '' TERM HUP INT; while :; do sleep 0.{word}; done");
    let clear = if FINDS_ALL { "env -i PATH=$PATH" } else { "" };
    format!(
        "trap '' TERM HUP INT\n\
         sh -c \"{stay}\" &\n\
         setsid sh -c \"{stay}\" &\n\
         (setsid sh -c \"{stay}\" &) \n\
         ({clear} setsid sh -c \"{stay}\" &) \n\
         echo ready\n{then}"
    )
}

#[test]
fn a_hostile_tree_is_dead_when_the_end_is_recorded() {
    for (then, how, ending) in [
        ("while :; do sleep 1; done", Some(JobStopMode::Term), JobEnding::Stopped),
        ("while :; do sleep 1; done", Some(JobStopMode::Kill), JobEnding::Stopped),
        ("exit 3", None, exited(3)),
    ] {
        let place = Place::new();
        let word = format!("1{}", std::process::id());
        place.start(&place.spec(&hostile(&word, then)));
        if let Some(how) = how {
            wait_for("the tree", || {
                (with_word(&word).len() >= 5 && !place.lines().is_empty()).then_some(())
            });
            process::stop_job(&place.dir(), how).unwrap();
            process::stop_job(&place.dir(), JobStopMode::Term).unwrap();
        }
        let exit = place.end();
        assert_eq!(with_word(&word), Vec::<u32>::new(), "{how:?}");
        assert_eq!(exit.ending, ending);
        assert!(exit.leftovers_killed >= 4, "{exit:?}");
    }
}

#[test]
fn a_grandchild_that_holds_stdout_does_not_delay_the_end() {
    let place = Place::new();
    let begun = Instant::now();
    let exit = place.run(&place.spec("setsid sleep 300 & echo over"));
    assert_eq!(exit.ending, exited(0));
    assert_eq!(exit.leftovers_killed, 1);
    assert_eq!(place.stdout(), ["over"]);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_command_that_lives_or_is_silent_for_too_long_is_ended() {
    let place = Place::new();
    let spec = JobSpec { wall_ms: Some(300), ..place.spec("while :; do echo x; sleep 0.05; done") };
    assert_eq!(place.run(&spec).ending, JobEnding::TimedOut { idle: false });
    let place = Place::new();
    let spec = JobSpec {
        idle_ms: Some(300),
        ..place.spec("echo once; trap '' TERM; sleep 300; sleep 300")
    };
    assert_eq!(place.run(&spec).ending, JobEnding::TimedOut { idle: true });
    assert_eq!(place.stdout(), ["once"]);
    let place = Place::new();
    let talks = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done";
    let spec = JobSpec { idle_ms: Some(1500), ..place.spec(talks) };
    assert_eq!(place.run(&spec).ending, exited(0));
}

#[test]
fn a_request_to_end_gives_the_command_its_grace() {
    let place = Place::new();
    // The shell in front dies at once; what it runs still gets the time to clean up.
    let inner =
        "trap 'sleep 0.5; echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let spec = JobSpec { grace_ms: 60_000, ..place.spec(&format!("sh -c \"{inner}\"; true")) };
    place.start(&spec);
    wait_for("up", || (place.stdout() == ["up"]).then_some(()));
    kill_term(place.pids().pid);
    assert_eq!(place.end().ending, JobEnding::Stopped);
    assert_eq!(place.stdout(), ["up", "cleaned"]);
}

fn kill_term(pid: u32) {
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
}

#[test]
fn cancelling_a_wait_stops_the_job() {
    let place = Place::new();
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            process::run_job_to_end(&place.dir(), &place.spec("sleep 300"), &supervisor(), &cancel)
        });
        place.pids();
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(waiter.join().unwrap().unwrap().ending, JobEnding::Stopped);
    });
}

#[test]
fn many_starters_at_once_run_the_job_once() {
    let place = Place::new();
    let runs = place.file("runs");
    let spec = place.spec(&format!("echo x >> {}; sleep 0.2", runs.display()));
    let started = std::thread::scope(|scope| {
        let starters: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| process::start_job(&place.dir(), &spec, &supervisor()).unwrap())
            })
            .collect();
        starters.into_iter().map(|s| s.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(started.iter().filter(|s| **s == JobStart::Started).count(), 1);
    place.end();
    assert_eq!(fs::read_to_string(runs).unwrap(), "x\n");
}

#[test]
fn what_cannot_start_says_why() {
    let place = Place::new();
    let spec = JobSpec { argv: vec!["no-such-program".into()], ..place.spec("") };
    let JobEnding::NotStarted { why, not_found } = place.run(&spec).ending else {
        panic!("it ran")
    };
    assert!(not_found && why.contains("no-such-program") && why.contains("PATH"), "{why}");

    let place = Place::new();
    let spec = JobSpec { cwd: "/no/such/folder".into(), ..place.spec("true") };
    let JobEnding::NotStarted { why, not_found } = place.run(&spec).ending else {
        panic!("it ran")
    };
    assert!(!not_found && why.contains("/no/such/folder"), "{why}");

    let place = Place::new();
    let spec = JobSpec { stdin: Some("/no/prompt".into()), ..place.spec("true") };
    let JobEnding::NotStarted { why, .. } = place.run(&spec).ending else { panic!("it ran") };
    assert!(why.contains("/no/prompt"), "{why}");

    let place = Place::new();
    let spec = JobSpec { argv: vec![], ..place.spec("true") };
    assert!(matches!(place.run(&spec).ending, JobEnding::NotStarted { .. }));
}

#[test]
fn a_supervisor_that_does_not_exist_or_says_nothing_is_an_error() {
    let place = Place::new();
    let spec = place.spec("true");
    let missing = process::start_job(&place.dir(), &spec, &["/no/supervisor".into()]).unwrap_err();
    assert!(missing.to_string().contains("/no/supervisor"), "{missing}");
    let silent = process::start_job(&place.dir(), &spec, &["true".into()]).unwrap_err();
    assert!(matches!(silent, JobSpawnError::Refused { .. }), "{silent}");
    assert_eq!(process::read_job_state(&place.dir()).unwrap(), JobState::Absent);
    assert_eq!(place.run(&spec).ending, exited(0));
}

#[test]
fn the_program_of_the_tests_refuses_other_uses() {
    let status = Command::new(PROGRAM).stdin(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
