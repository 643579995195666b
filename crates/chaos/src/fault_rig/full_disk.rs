//! The disk is full: small file systems in memory under all of a stage, or under one part of it, in
//! stepped sizes; or an agent that fills what there is.
//!
//! While it is full the product may stop with a word about space, or wait and say so in `status`. Once
//! there is room again a plain `run` goes on, and everything good lands.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mainstem_testkit::SeededRng;

use super::mounts::{self, RigFolder, RigMount};
use super::{RigOptions, RigTotals};
use crate::event_log;
use crate::fixture::{ChaosFixture, ChaosPrograms, code};
use crate::oracle_call::OracleViolation;
use crate::run_round::{end_all, play};
use crate::scenario::ChaosScenario;
use crate::script::ChaosTrick;

/// What is too small, from the first round to the last and again.
const PARTS: [&str; 7] = ["everything", "git", "logs", "workspaces", "agent", "hoarder", "floor"];
/// A file system that is large enough for any round here.
const AMPLE_KIB: u64 = 64 << 10;
/// More than `limits.disk_floor` asks for by default.
const ABOVE_FLOOR_KIB: u64 = 700 << 10;
/// A run that has been quiet for so long waits for something.
const QUIET: Duration = Duration::from_secs(7);
/// A run may be at work for so long while the disk is full.
const FULL_FOR: Duration = Duration::from_secs(45);
/// And so long once there is room.
const GOES_ON_WITHIN: Duration = Duration::from_secs(60);

/// Plays `options.rounds` rounds; `options.only` names parts.
pub fn run(tools: &ChaosPrograms, options: &RigOptions) -> Result<RigTotals, String> {
    let mut sum = RigTotals::default();
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| options.wants(part)).collect();
    if parts.is_empty() {
        return Err(format!("no such part; there are {}", PARTS.join(", ")));
    }
    for n in 0..options.rounds {
        if options.over() {
            break;
        }
        let seed = options.seed.wrapping_add(n);
        let part = parts[(n % parts.len() as u64) as usize];
        let started = Instant::now();
        let room = RigFolder::new(2_000)?;
        let mut notes = Vec::new();
        let outcome = round(tools, part, seed, &room, &mut notes);
        let failed = outcome.as_ref().map_or(true, |wrong| !wrong.is_empty());
        let kept = (failed && options.keep).then(|| keep(&room, part, seed)).transpose()?;
        for note in &notes {
            sum.count(format!("{part}: {note}"));
        }
        let name = format!("{part} seed {seed} ({})", notes.join(", "));
        (options.say)(&sum.round(&name, started.elapsed(), outcome, kept));
    }
    Ok(sum)
}

fn keep(room: &RigFolder, part: &str, seed: u64) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("disk-{part}-{seed}"));
    mounts::sh("cp", &["-a", &room.path().display().to_string(), &folder.display().to_string()])?;
    Ok(folder)
}

/// A round's stage with its small disk.
struct SmallDiskFixture {
    stage: ChaosFixture,
    mount: RigMount,
    grown_kib: u64,
}

fn round(
    tools: &ChaosPrograms,
    part: &str,
    seed: u64,
    room: &RigFolder,
    notes: &mut Vec<String>,
) -> Result<Vec<OracleViolation>, String> {
    let mut show = mounts::good(seed);
    show.settings.on_failure = "continue".to_owned();
    show.settings.barrier = "none".to_owned();
    match part {
        "agent" => mounts::with_trick(&mut show, ChaosTrick::FillDisk),
        "hoarder" => mounts::with_trick(&mut show, ChaosTrick::HoardDisk),
        _ => {}
    }
    let mut small = set(tools, part, seed, room, &show)?;
    let outcome = judge(&mut small, &show, notes);
    end_all(&small.stage);
    outcome
}

fn set(
    tools: &ChaosPrograms,
    part: &str,
    seed: u64,
    room: &RigFolder,
    show: &ChaosScenario,
) -> Result<SmallDiskFixture, String> {
    let mut rng = SeededRng::new(seed ^ 0x6469_736b);
    let place = room.folder("place")?;
    let outside = room.folder("outside")?;
    let whole = ["everything", "agent", "hoarder", "floor"].contains(&part);
    let below = if whole { Some(RigMount::memory(&place, AMPLE_KIB)?) } else { None };
    let mut stage = ChaosFixture::set(&place, &outside, tools, show)?;
    // What an agent prints while there is no room for it is dropped and counted, not kept.
    stage.output_lost = true;
    if part != "floor" {
        mounts::no_floor(&stage)?;
    }
    let git_dir = stage.repo.join(".git");
    let mount = match (part, below) {
        // The journal moves things into place beside it, so it cannot have a disk for itself alone.
        ("git", _) => {
            let mount = RigMount::over(&git_dir, AMPLE_KIB)?;
            mount.resize(mount.used_kib() + 4 + 4 * rng.below(260))?;
            mount
        }
        ("logs", _) => RigMount::memory(&git_dir.join("mainstem/runs"), 4 + 4 * rng.below(40))?,
        ("workspaces", _) => RigMount::memory(&place.join("repo.mainstem"), 4 + 4 * rng.below(60))?,
        (_, None) => return Err(format!("{part} has no disk")),
        (_, Some(whole)) => {
            let extra = match part {
                "everything" => 4 + 4 * rng.below(400),
                "floor" => AMPLE_KIB,
                _ => 1_500 + rng.below(2_000),
            };
            whole.resize(whole.used_kib() + extra)?;
            whole
        }
    };
    let grown_kib = if part == "floor" { ABOVE_FLOOR_KIB } else { AMPLE_KIB };
    Ok(SmallDiskFixture { stage, mount, grown_kib })
}

fn judge(
    small: &mut SmallDiskFixture,
    show: &ChaosScenario,
    notes: &mut Vec<String>,
) -> Result<Vec<OracleViolation>, String> {
    let SmallDiskFixture { stage, mount, grown_kib } = small;
    let mut child = stage.spawn(&["run", "plan.toml"], 99, &[])?;
    let started = Instant::now();
    let mut last = (event_log::length(&stage.outside), Instant::now());
    let mut grown: Option<Instant> = None;
    let ended = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break code(status);
        }
        let length = event_log::length(&stage.outside);
        if length != last.0 {
            last = (length, Instant::now());
        }
        let waits = last.1.elapsed() > QUIET || started.elapsed() > FULL_FOR;
        if grown.is_none() && waits {
            let (_, status, complaint) = stage.mainstem(&["status"])?;
            if !names_space(&format!("{status}{complaint}")) {
                let words =
                    format!("it waits and status does not say for what:\n{status}{complaint}");
                let _ = child.kill();
                let _ = child.wait();
                return Ok(vec![OracleViolation(words)]);
            }
            notes.push("waited and said so".to_owned());
            mount.resize(*grown_kib)?;
            grown = Some(Instant::now());
        }
        if grown.is_some_and(|grown| grown.elapsed() > GOES_ON_WITHIN) {
            let _ = child.kill();
            let _ = child.wait();
            let said = stage.stderr_of(99);
            return Ok(vec![OracleViolation(format!(
                "it does not go on with room again:\n{said}"
            ))]);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let said = stage.stderr_of(99);
    if let Some(violation) = words_of_the_end(ended, &said, notes) {
        return Ok(vec![violation]);
    }
    mount.resize(*grown_kib)?;
    retry_failed(stage, notes)?;
    Ok(play(stage, show)?.violations)
}

/// Whether the end of a life on a full disk is one that a person can understand.
fn words_of_the_end(ended: i32, said: &str, notes: &mut Vec<String>) -> Option<OracleViolation> {
    if said.contains("panicked at") || said.contains("BUG") {
        return Some(OracleViolation(format!("it broke (code {ended}):\n{said}")));
    }
    match ended {
        0 => notes.push("did not notice".to_owned()),
        2 => notes.push("tasks failed".to_owned()),
        1 if names_space(said) => notes.push("stopped and said why".to_owned()),
        _ => {
            return Some(OracleViolation(format!(
                "it ended with {ended} and no word about space:\n{said}"
            )));
        }
    }
    None
}

fn names_space(text: &str) -> bool {
    let text = text.to_lowercase();
    ["no space", "disk space", "free space", "disk is full"]
        .iter()
        .any(|words| text.contains(words))
}

/// As a user would once there is room: whatever failed meanwhile gets another try.
pub fn retry_failed(stage: &ChaosFixture, notes: &mut Vec<String>) -> Result<(), String> {
    let (_, status, _) = stage.mainstem(&["status", "--json"])?;
    // Without a journal there is no run yet, and nothing that failed.
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    for task in status["tasks"].as_array().into_iter().flatten() {
        if task["phase"] == "failed"
            && let Some(id) = task["id"].as_str()
        {
            let (code, _, complaint) = stage.mainstem(&["retry", id])?;
            if code != 0 {
                return Err(format!("retry {id} ended with {code}: {complaint}"));
            }
            notes.push("retried".to_owned());
        }
    }
    notes.dedup();
    let _ = fs::remove_file(stage.outside.join("out/99.stdout"));
    Ok(())
}
