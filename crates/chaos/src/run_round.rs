//! Plays a round: lives of the engine, faults in between, and the verdict at rest.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::event_log;
use crate::fault::{self, ChaosFaultKind};
use crate::fixture::{ChaosFixture, code};
use crate::oracle_call::{OracleViolation, judge};
use crate::process_table;
use crate::scenario::ChaosScenario;

/// What came of a round.
#[derive(Debug, Clone, Default)]
pub struct RoundResult {
    /// Promises broken; none is what we want.
    pub violations: Vec<OracleViolation>,
    /// How often the product was started.
    pub lives: usize,
    /// Faults that came to be fired.
    pub fired: Vec<String>,
    pub landed: usize,
}

/// A life without a new line in the ledger for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// So long without one is worth a look at whether somebody paused the run.
const PAUSED_AFTER: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// Lives that may fail for what is still broken around them before that is a verdict.
const ERRORS_MAX: usize = 4;
/// How often work that waits for the checkout is helped on.
const CLEARED_MAX: usize = 4;
/// How long processes may take to go after the engine has ended.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// Plays a round on a stage that was set for it. An error means that the attacker itself failed.
pub fn play(stage: &mut ChaosFixture, show: &ChaosScenario) -> Result<RoundResult, String> {
    let mut played = RoundResult::default();
    if let Err(violation) = lives(stage, show, &mut played)? {
        played.violations.push(violation);
        end_all(stage);
        return Ok(played);
    }
    played.violations = at_rest(stage)?;
    let text = stage.mainstem(&["status", "--json"])?.1;
    played.landed = text.matches("\"phase\":\"landed\"").count()
        + text.matches("\"phase\": \"landed\"").count();
    end_all(stage);
    Ok(played)
}

/// What is wrong at rest: the oracle's word, then again after one more recovery that must change
/// nothing.
pub fn at_rest(stage: &ChaosFixture) -> Result<Vec<OracleViolation>, String> {
    let until = Instant::now() + GONE_WITHIN;
    while !process_table::of(stage).is_empty() && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    let mut violations = judge(stage)?;
    if violations.is_empty() {
        // After a failure that stopped the others, each further run goes on with what is left.
        let mut tries = 0;
        while stage.may_wait && picture(stage)?.contains("\"phase\": \"ready\"") && tries < 20 {
            stage.mainstem(&["run"])?;
            tries += 1;
        }
        let before = picture(stage)?;
        stage.mainstem(&["run"])?;
        let after = picture(stage)?;
        if before != after {
            violations.push(OracleViolation(format!(
                "a second recovery changed something:\n{before}\nbecame\n{after}"
            )));
        }
        violations.extend(judge(stage)?);
    }
    Ok(violations)
}

/// All that a recovery of a resting run must leave as it is.
fn picture(stage: &ChaosFixture) -> Result<String, String> {
    let refs = stage.git(&["for-each-ref"])?;
    // Each engine asks the remote where its branch is, and follows whoever pushed last.
    let follows = |line: &&str| {
        ["refs/mainstem/upstream/", "refs/remotes/", "refs/heads/main"]
            .iter()
            .any(|name| line.split('\t').nth(1).is_some_and(|refname| refname.starts_with(name)))
            && !line.contains("refs/heads/mainstem")
    };
    let refs: Vec<&str> = refs.lines().filter(|line| !(stage.pushed && follows(line))).collect();
    let (_, status, _) = stage.mainstem(&["status", "--json"])?;
    let status: serde_json::Value =
        serde_json::from_str(&status).map_err(|error| format!("status: {error}: {status}"))?;
    let (_, history, _) = stage.mainstem(&["history", "--json"])?;
    // Where a bad branch holds cars up, each engine looks whether it still is bad.
    let held = status["tasks"].to_string().contains("\"phase\":\"merging\"");
    let looks: &[&str] = match (held, stage.pushed) {
        (true, _) => &["gate_ran", "car_formed", "noticed"],
        (false, true) => &["noticed"],
        (false, false) => &[],
    };
    let counts = |line: &&str| {
        let is = |kind: &str| line.contains(&format!("\"type\":\"{kind}"));
        // Pre-flight checks a target branch whose verdict the journal does not have.
        !is("engine_") && !is("target_verified") && !looks.iter().any(|kind| is(kind))
    };
    let facts = history.lines().filter(counts).count();
    Ok(format!("{}\n{:#}\n{facts} facts", refs.join("\n"), status["tasks"]))
}

fn lives(
    stage: &mut ChaosFixture,
    show: &ChaosScenario,
    played: &mut RoundResult,
) -> Result<Result<(), OracleViolation>, String> {
    let mut faults = show.faults.iter().peekable();
    let (mut errors, mut cleared) = (0, 0);
    let jumps = show.faults.iter().any(|fault| matches!(fault.what, ChaosFaultKind::Clock(_)));
    let env = if jumps { clock(stage)? } else { Vec::new() };
    let mut adopted = false;
    for life in 0.. {
        played.lives = life + 1;
        let mut child = stage.spawn(run_arguments(adopted), life, &env)?;
        let (mut last, mut asked) = ((event_log::length(&stage.outside), Instant::now()), false);
        let ended = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break code(status);
            }
            let length = event_log::length(&stage.outside);
            if length != last.0 {
                last = (length, Instant::now());
                asked = false;
            }
            if last.1.elapsed() > PAUSED_AFTER && !asked {
                asked = true;
                // As a user would who sees that it is paused.
                if is_paused(stage)? {
                    stage.mainstem(&["resume"])?;
                }
            }
            if last.1.elapsed() > HANGS_AFTER {
                return Ok(Err(hang(stage, &mut child, life)));
            }
            if let Some(next) = faults.next_if(|fault| fault.at <= length) {
                std::thread::sleep(Duration::from_millis(next.delay_ms));
                let pid = i32::try_from(child.id()).ok();
                fault::fire(stage, &next.what, pid)?;
                played.fired.push(next.what.to_string());
                last.1 = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let said = stage.stderr_of(life);
        if said.contains("panicked at") || said.contains("BUG") {
            return Ok(Err(OracleViolation(format!("life {life} broke (code {ended}):\n{said}"))));
        }
        match ended {
            0 | 2 if is_paused(stage)? => {
                // Paused by a command: as a user would.
                stage.mainstem(&["resume"])?;
            }
            2 if cleared < CLEARED_MAX && clear_checkout(stage)? => cleared += 1,
            0 | 2 => return Ok(Ok(())),
            3 | 130 | 137 => {}
            _ => {
                errors += 1;
                if errors > ERRORS_MAX {
                    return Ok(Err(OracleViolation(format!(
                        "no life goes on (code {ended}):\n{said}"
                    ))));
                }
                // The error message asks for this: nobody holds these locks.
                remove_foreign_locks(stage);
            }
        }
        // Whoever sees a start fail gives the same command again.
        adopted = adopted || has_plan(stage)?;
        if life > show.faults.len() + 12 {
            return Ok(Err(OracleViolation(format!("no rest after {life} lives:\n{said}"))));
        }
    }
    unreachable!("lives are counted without end")
}

/// The command line of one life. A broken target branch must be survived, so pre-flight may not refuse to start.
fn run_arguments(adopted: bool) -> &'static [&'static str] {
    if adopted { &["run", "--allow-red"] } else { &["run", "plan.toml", "--allow-red"] }
}

fn remove_foreign_locks(stage: &mut ChaosFixture) {
    for lock in std::mem::take(&mut stage.foreign_locks) {
        let _ = std::fs::remove_file(lock);
    }
}

/// Whether there is a run that has taken its plan in.
fn has_plan(stage: &ChaosFixture) -> Result<bool, String> {
    let (_, status, _) = stage.mainstem(&["status", "--json"])?;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    Ok(status["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty()))
}

/// Whether the run rests only because somebody paused it.
fn is_paused(stage: &ChaosFixture) -> Result<bool, String> {
    let (_, status, _) = stage.mainstem(&["status", "--json"])?;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    Ok(status["state"] == "paused")
}

/// Work that waits for the checkout lands once the user has done there what is said. Whether any waited.
fn clear_checkout(stage: &mut ChaosFixture) -> Result<bool, String> {
    let (_, status, _) = stage.mainstem(&["status", "--json"])?;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    let inbox = status["inbox"].as_array().cloned().unwrap_or_default();
    let waits: Vec<&serde_json::Value> =
        inbox.iter().filter(|item| item["kind"] == "checkout").collect();
    if waits.is_empty() {
        return Ok(false);
    }
    remove_foreign_locks(stage);
    for item in waits {
        let help = item["help"].as_str().unwrap_or_default();
        if let Some(command) = help.split('`').nth(1) {
            let shell = Path::new("sh");
            stage.command(shell).args(["-c", command]).status().map_err(|e| e.to_string())?;
        }
    }
    Ok(true)
}

fn hang(stage: &ChaosFixture, child: &mut Child, life: usize) -> OracleViolation {
    let processes: Vec<String> = process_table::of(stage)
        .into_iter()
        .map(|process| format!("{} {:?} {}", process.pid, process.kind, process.command))
        .collect();
    // It is our own child.
    let _ = child.kill();
    let _ = child.wait();
    let said = stage.stderr_of(life);
    OracleViolation(format!(
        "life {life} hangs; processes:\n{}\nit said:\n{said}",
        processes.join("\n")
    ))
}

/// Nothing of a round may disturb the next.
pub fn end_all(stage: &ChaosFixture) {
    for process in process_table::of(stage) {
        process.signal(rustix::process::Signal::KILL);
    }
}

/// The engine sees the time that a file says, if the machine has libfaketime.
fn clock(stage: &ChaosFixture) -> Result<Vec<(String, String)>, String> {
    let places = [
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
        "/usr/lib/faketime/libfaketimeMT.so.1",
    ];
    let Some(library) = places.iter().find(|path| std::path::Path::new(path).exists()) else {
        return Ok(Vec::new());
    };
    fault::set_clock(stage, 0)?;
    let pair = |name: &str, value: String| (name.to_owned(), value);
    Ok(vec![
        pair("LD_PRELOAD", (*library).to_owned()),
        pair("FAKETIME_TIMESTAMP_FILE", fault::clock_file(stage).display().to_string()),
        pair("FAKETIME_NO_CACHE", "1".to_owned()),
        pair("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ])
}
