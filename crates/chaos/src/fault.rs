//! What is done to a round: deaths, damage, other people. Drawn from the seed, fired when the
//! ledger has grown to a certain length.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mainstem_testkit::SeededRng;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::event_log::{self, ChaosEvent};
use crate::fixture::ChaosFixture;
use crate::process_table::{self, ChaosProcessKind};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosFault {
    /// Fires once the ledger has this many lines.
    pub at: usize,
    /// And so many milliseconds later.
    pub delay_ms: u64,
    pub what: ChaosFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosFaultKind {
    /// SIGKILL for the engine.
    KillEngine,
    /// SIGKILL for one supervisor.
    KillSupervisor,
    /// SIGKILL for one agent or gate.
    KillAgent,
    /// SIGKILL for the next git that is seen running below the engine.
    KillGit,
    /// SIGKILL for everything at once.
    KillAll,
    /// The engine stands still for a while.
    Freeze(u64),
    /// Ctrl-C, so many times.
    Interrupt(u32),
    /// A lock file that nobody holds, below the repository's git dir.
    StaleLock(String),
    /// Damage to a workspace that an agent works in.
    Damage(WorkspaceDamage),
    /// Somebody else and the target branch.
    Others(TargetBranchChange),
    /// The user in the checkout.
    User(ChaosUserAction),
    /// A command from another terminal.
    Command(Vec<String>),
    /// The wall clock, as the engine sees it, jumps to so many seconds off the true time.
    Clock(i64),
    /// The remote cannot be reached for so many milliseconds.
    RemoteAway(u64),
}

/// What somebody does to a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceDamage {
    Delete,
    Move,
    /// Deletes its entry in the repository's list of worktrees.
    Forget,
    /// Writes rubbish into its HEAD.
    Head,
    /// Writes rubbish into its index.
    Index,
}

/// What somebody does to the target branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetBranchChange {
    Commit,
    /// Commits what makes every gate red.
    CommitRed,
    /// Moves it back by one.
    Back,
    /// Amends its last commit.
    Amend,
    /// Commits to it on the remote.
    Push,
}

/// What the user does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChaosUserAction {
    /// Edits a tracked file.
    Edit,
    /// Writes a new file.
    New,
    Stage,
    Stash,
    /// Goes to another branch.
    Leave,
    Return,
    /// Packs refs and collects garbage.
    Gc,
}

impl fmt::Display for ChaosFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}+{}", self.what, self.at, self.delay_ms)
    }
}

impl fmt::Display for ChaosFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillEngine => f.write_str("kill-engine"),
            Self::KillSupervisor => f.write_str("kill-supervisor"),
            Self::KillAgent => f.write_str("kill-agent"),
            Self::KillGit => f.write_str("kill-git"),
            Self::KillAll => f.write_str("kill-all"),
            Self::Freeze(ms) => write!(f, "freeze-{ms}"),
            Self::Interrupt(times) => write!(f, "interrupt-{times}"),
            Self::StaleLock(name) => write!(f, "lock-{name}"),
            Self::Damage(damage) => write!(f, "damage-{}", format!("{damage:?}").to_lowercase()),
            Self::Others(others) => write!(f, "others-{}", format!("{others:?}").to_lowercase()),
            Self::User(user) => write!(f, "user-{}", format!("{user:?}").to_lowercase()),
            Self::Command(words) => write!(f, "mainstem-{}", words.join("-")),
            Self::Clock(seconds) => write!(f, "clock{seconds:+}"),
            Self::RemoteAway(ms) => write!(f, "remote-away-{ms}"),
        }
    }
}

impl ChaosFaultKind {
    /// Whether every task must land in spite of it.
    pub fn is_harmless(&self) -> bool {
        match self {
            Self::KillEngine
            | Self::KillGit
            | Self::Freeze(_)
            | Self::Interrupt(_)
            | Self::User(_)
            | Self::Clock(_)
            | Self::RemoteAway(_)
            | Self::Others(TargetBranchChange::Commit | TargetBranchChange::Push) => true,
            Self::Command(words) => matches!(words[0].as_str(), "pause" | "resume" | "jobs"),
            Self::KillSupervisor
            | Self::KillAgent
            | Self::KillAll
            | Self::StaleLock(_)
            | Self::Damage(_)
            | Self::Others(_) => false,
        }
    }
}

impl ChaosFault {
    /// Draws one for a round of so many expected events and tasks.
    pub fn draw(rng: &mut SeededRng, events: u64, tasks: usize) -> Self {
        let at = rng.below(events) as usize;
        let delay_ms = if rng.chance(0.3) { 0 } else { rng.below(60) };
        Self { at, delay_ms, what: draw_what(rng, tasks) }
    }
}

fn draw_what(rng: &mut SeededRng, tasks: usize) -> ChaosFaultKind {
    let task = format!("T-{}", rng.below(tasks as u64));
    match rng.below(32) {
        0..=6 => ChaosFaultKind::KillEngine,
        7 | 8 => ChaosFaultKind::KillSupervisor,
        9 | 10 => ChaosFaultKind::KillAgent,
        11..=13 => ChaosFaultKind::KillGit,
        14 | 15 => ChaosFaultKind::KillAll,
        16 => ChaosFaultKind::Freeze(20 + rng.below(400)),
        17 | 18 => ChaosFaultKind::Interrupt(1 + rng.below(3) as u32),
        19 => {
            let names = [
                "index.lock",
                "packed-refs.lock",
                "refs/heads/main.lock",
                "config.lock",
                "HEAD.lock",
            ];
            ChaosFaultKind::StaleLock(names[rng.below(names.len() as u64) as usize].to_owned())
        }
        20..=22 => ChaosFaultKind::Damage(
            [
                WorkspaceDamage::Delete,
                WorkspaceDamage::Move,
                WorkspaceDamage::Forget,
                WorkspaceDamage::Head,
                WorkspaceDamage::Index,
            ][rng.below(5) as usize],
        ),
        23..=25 => ChaosFaultKind::Others(
            [
                TargetBranchChange::Commit,
                TargetBranchChange::Commit,
                TargetBranchChange::CommitRed,
                TargetBranchChange::Back,
                TargetBranchChange::Amend,
            ][rng.below(5) as usize],
        ),
        26..=28 => ChaosFaultKind::User(
            [
                ChaosUserAction::Edit,
                ChaosUserAction::New,
                ChaosUserAction::Stage,
                ChaosUserAction::Stash,
                ChaosUserAction::Leave,
                ChaosUserAction::Return,
                ChaosUserAction::Gc,
            ][rng.below(7) as usize],
        ),
        29 => ChaosFaultKind::Clock([-86_400, -30, 30, 86_400][rng.below(4) as usize]),
        _ => {
            let words: &[&str] = match rng.below(6) {
                0 => &["pause"],
                1 => &["resume"],
                2 => &["cancel", &task],
                3 => &["retry", &task],
                4 => &["skip", &task],
                _ => &["jobs", "2"],
            };
            ChaosFaultKind::Command(words.iter().map(|word| (*word).to_owned()).collect())
        }
    }
}

/// How long the attacker lies in wait for a git.
const GIT_PATIENCE: Duration = Duration::from_millis(1500);
/// How long somebody else tries to push.
const PUSH_PATIENCE: Duration = Duration::from_secs(30);

/// Does it. `engine` is the engine's process id, if it lives.
pub fn fire(
    stage: &mut ChaosFixture,
    what: &ChaosFaultKind,
    engine: Option<i32>,
) -> Result<(), String> {
    event_log::note(&stage.outside, &ChaosEvent::Fault { what: what.to_string() })
        .map_err(|error| error.to_string())?;
    let kill_one = |stage: &ChaosFixture, kind: ChaosProcessKind| {
        if let Some(process) =
            process_table::of(stage).into_iter().find(|process| process.kind == kind)
        {
            process.signal(Signal::KILL);
        }
    };
    match what {
        ChaosFaultKind::KillEngine => signal(engine, Signal::KILL),
        ChaosFaultKind::KillSupervisor => {
            stage.output_lost = true;
            kill_one(stage, ChaosProcessKind::Supervisor);
        }
        ChaosFaultKind::KillAgent => {
            stage.output_lost = true;
            kill_one(stage, ChaosProcessKind::Agent);
        }
        ChaosFaultKind::KillGit => kill_git(stage, engine),
        ChaosFaultKind::KillAll => {
            stage.output_lost = true;
            let all = process_table::of(stage);
            // Nobody may see another die.
            all.iter().for_each(|process| process.signal(Signal::STOP));
            process_table::of(stage)
                .iter()
                .chain(&all)
                .for_each(|process| process.signal(Signal::KILL));
        }
        ChaosFaultKind::Freeze(ms) => {
            signal(engine, Signal::STOP);
            std::thread::sleep(Duration::from_millis(*ms));
            signal(engine, Signal::CONT);
        }
        ChaosFaultKind::Interrupt(times) => {
            for _ in 0..*times {
                signal(engine, Signal::INT);
                std::thread::sleep(Duration::from_millis(15));
            }
        }
        ChaosFaultKind::StaleLock(name) => stale_lock(stage, name)?,
        ChaosFaultKind::Damage(damage) => do_damage(stage, *damage)?,
        ChaosFaultKind::Others(others) => move_target(stage, *others)?,
        ChaosFaultKind::User(user) => act_as_user(stage, *user)?,
        ChaosFaultKind::Command(words) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // A refusal is an answer too.
            stage.mainstem(&words)?;
        }
        ChaosFaultKind::Clock(seconds) => set_clock(stage, *seconds)?,
        ChaosFaultKind::RemoteAway(ms) => {
            let (there, away) = (stage.remote(), stage.outside.join("remote.away"));
            if fs::rename(&there, &away).is_ok() {
                std::thread::sleep(Duration::from_millis(*ms));
                fs::rename(&away, &there).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Where the engine's clock reads how far it is off.
pub fn clock_file(stage: &ChaosFixture) -> PathBuf {
    stage.outside.join("clock")
}

/// Sets the engine's clock so many seconds off the true time.
pub fn set_clock(stage: &ChaosFixture, seconds: i64) -> Result<(), String> {
    fs::write(clock_file(stage), format!("{seconds:+}s\n")).map_err(|error| error.to_string())
}

fn signal(pid: Option<i32>, signal: Signal) {
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // It may have ended in between.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Lies in wait for a git of the engine's and kills it in the middle of whatever it does.
fn kill_git(stage: &ChaosFixture, engine: Option<i32>) {
    let Some(engine) = engine else { return };
    let until = Instant::now() + GIT_PATIENCE;
    while Instant::now() < until {
        let processes = process_table::of(stage);
        let git = processes.iter().find(|process| {
            process.kind == ChaosProcessKind::Git
                && std::iter::successors(Some(process.parent), |pid| {
                    processes.iter().find(|one| one.pid == *pid).map(|one| one.parent)
                })
                .any(|pid| pid == engine)
        });
        if let Some(git) = git {
            return git.signal(Signal::KILL);
        }
    }
}

fn stale_lock(stage: &mut ChaosFixture, name: &str) -> Result<(), String> {
    let path = stage.repo.join(".git").join(name);
    // A lock that is held is not for us to replace.
    if fs::OpenOptions::new().write(true).create_new(true).open(&path).is_ok() {
        // Old enough to be known for dead, as after a git that was killed long ago.
        stage
            .command(Path::new("touch"))
            .args(["-d", "3 days ago"])
            .arg(&path)
            .status()
            .map_err(|error| error.to_string())?;
        stage.apart = true;
        // A checkout that is locked cannot follow its branch.
        stage.moved_under |= matches!(name, "index.lock" | "HEAD.lock");
        stage.foreign_locks.push(path);
    }
    Ok(())
}

fn workspaces(stage: &ChaosFixture) -> Vec<PathBuf> {
    let root = stage.place().join("repo.mainstem");
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("T-"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

fn do_damage(stage: &ChaosFixture, damage: WorkspaceDamage) -> Result<(), String> {
    let Some(workspace) = workspaces(stage).into_iter().next() else { return Ok(()) };
    let task = workspace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    event_log::note(&stage.outside, &ChaosEvent::Destroyed { task: task.clone() })
        .map_err(|error| error.to_string())?;
    let admin = fs::read_to_string(workspace.join(".git"))
        .ok()
        .and_then(|text| text.trim().strip_prefix("gitdir: ").map(PathBuf::from))
        // An agent may have pointed it at the repository itself, which is not ours to damage.
        .filter(|admin| admin.parent().is_some_and(|folder| folder.ends_with("worktrees")));
    // Whoever damages things may come too late: what is gone cannot be damaged.
    let _ = match damage {
        WorkspaceDamage::Delete => fs::remove_dir_all(&workspace),
        WorkspaceDamage::Move => {
            fs::rename(&workspace, stage.outside.join(format!("moved-{task}")))
        }
        WorkspaceDamage::Forget => admin.map_or(Ok(()), fs::remove_dir_all),
        WorkspaceDamage::Head => {
            admin.map_or(Ok(()), |admin| fs::write(admin.join("HEAD"), "rubbish\n"))
        }
        WorkspaceDamage::Index => {
            admin.map_or(Ok(()), |admin| fs::write(admin.join("index"), "rubbish\n"))
        }
    };
    Ok(())
}

/// Another person commits to the remote's branch; whoever was first makes them try again.
fn push(stage: &ChaosFixture) -> Result<(), String> {
    let remote = stage.remote();
    let there = |args: &[&str]| stage.git_in(&remote, args);
    let main = "refs/heads/main";
    let until = Instant::now() + PUSH_PATIENCE;
    while Instant::now() < until {
        let tip = there(&["rev-parse", main])?;
        let new = commit_on(stage, &remote, &tip, &format!("others/{}", &tip[..12]))?;
        if there(&["update-ref", main, &new, &tip]).is_ok() {
            let event = ChaosEvent::Others { commit: new };
            return event_log::note(&stage.outside, &event).map_err(|error| error.to_string());
        }
        // A landing is on its way, and was first or holds the lock.
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("nobody else can push to the remote".to_owned())
}

/// Another person pushes: works on the branch without the checkout's index.
fn move_target(stage: &mut ChaosFixture, others: TargetBranchChange) -> Result<(), String> {
    let tip = stage.git(&["rev-parse", "refs/heads/main"])?;
    let here = stage.repo.join(".git");
    let new = match others {
        TargetBranchChange::Push => return push(stage),
        TargetBranchChange::Commit => {
            commit_on(stage, &here, &tip, &format!("others/{}", &tip[..12]))?
        }
        TargetBranchChange::CommitRed => commit_on(stage, &here, &tip, "others/red")?,
        TargetBranchChange::Back => {
            let Ok(parent) = stage.git(&["rev-parse", "--verify", "refs/heads/main^"]) else {
                return Ok(());
            };
            parent
        }
        TargetBranchChange::Amend => {
            let tree = stage.git(&["rev-parse", "refs/heads/main^{tree}"])?;
            let message = stage.git(&["log", "-1", "--format=%B", &tip])?;
            let Ok(parent) = stage.git(&["rev-parse", "--verify", "refs/heads/main^"]) else {
                return Ok(());
            };
            stage.git(&[
                "commit-tree",
                &tree,
                "-p",
                &parent,
                "-m",
                &format!("amended: {message}"),
            ])?
        }
    };
    let gone = matches!(others, TargetBranchChange::Back | TargetBranchChange::Amend);
    let folder = stage.outside.clone();
    let note =
        |event: &ChaosEvent| event_log::note(&folder, event).map_err(|error| error.to_string());
    if gone {
        note(&ChaosEvent::Withdrawn { from: tip.clone() })?;
    }
    // Refused if a landing came in between or a stale lock is in the way: then nobody pushed.
    if stage.git(&["update-ref", "refs/heads/main", &new, &tip]).is_ok() {
        stage.moved_under = true;
        stage.apart = true;
        if !gone {
            note(&ChaosEvent::Others { commit: new })?;
        }
    }
    Ok(())
}

/// A commit on top of `tip`, in the repository with this git folder, that adds one file.
fn commit_on(
    stage: &ChaosFixture,
    git_dir: &Path,
    tip: &str,
    path: &str,
) -> Result<String, String> {
    let index = stage.outside.join(format!("index-{}", &tip[..12]));
    let with_index = |args: &[&str]| {
        let output = stage
            .command(Path::new("git"))
            .env("GIT_INDEX_FILE", &index)
            .arg("--git-dir")
            .arg(git_dir)
            .args(args)
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let file = stage.outside.join("others.txt");
    fs::write(&file, format!("after {tip}\n")).map_err(|error| error.to_string())?;
    let blob = with_index(&["hash-object", "-w", &file.display().to_string()])?;
    with_index(&["read-tree", tip])?;
    with_index(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{path}")])?;
    let tree = with_index(&["write-tree"])?;
    with_index(&["commit-tree", &tree, "-p", tip, "-m", "somebody else's work"])
}

fn act_as_user(stage: &mut ChaosFixture, user: ChaosUserAction) -> Result<(), String> {
    let folder = stage.outside.clone();
    // A stash reads the index, works, and writes it back: whatever followed a landing in between
    // is undone by git itself.
    stage.moved_under |= matches!(user, ChaosUserAction::Stash);
    let edit = |path: &str, text: &str| {
        fs::write(stage.repo.join(path), text)
            .and_then(|()| {
                event_log::note(
                    &folder,
                    &ChaosEvent::Edited { path: path.into(), text: text.into() },
                )
            })
            .map_err(|error| error.to_string())
    };
    match user {
        ChaosUserAction::Edit => edit("user.txt", "the user's, edited\n"),
        ChaosUserAction::New => edit("new by user.txt", "the user's, new\n"),
        ChaosUserAction::Stage => {
            edit("staged.txt", "the user's, staged\n")?;
            // An index that is locked right now cannot be staged into: then it is only edited.
            let _ = stage.git(&["add", "staged.txt"]);
            Ok(())
        }
        ChaosUserAction::Stash => {
            fs::write(stage.repo.join("plan.toml"), "# for the stash\n")
                .map_err(|error| error.to_string())?;
            match stage.git(&["stash", "push", "-q", "--", "plan.toml"]) {
                Ok(_) => {
                    let commit = stage.git(&["rev-parse", "stash@{0}"])?;
                    event_log::note(&folder, &ChaosEvent::Stashed { commit })
                        .map_err(|e| e.to_string())
                }
                Err(_) => {
                    let event = ChaosEvent::Edited {
                        path: "plan.toml".into(),
                        text: "# for the stash\n".into(),
                    };
                    event_log::note(&folder, &event).map_err(|error| error.to_string())
                }
            }
        }
        ChaosUserAction::Leave => {
            // Refused where git would lose something: then the user stays.
            let _ = stage.git(&["checkout", "-q", "-B", "elsewhere"]);
            Ok(())
        }
        ChaosUserAction::Return => {
            let _ = stage.git(&["checkout", "-q", "main"]);
            Ok(())
        }
        ChaosUserAction::Gc => {
            let _ = stage.git(&["gc", "-q"]);
            Ok(())
        }
    }
}
