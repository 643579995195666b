//! What is left at rest: nothing that status does not name, and everything that is the user's.

use std::fs;
use std::path::{Path, PathBuf};

use mainstem_chaos::{ChaosFixture, process_table};

use super::ProductReport;
use super::ground_truth::GroundTruth;

/// How long the trash of a round may take to go.
const TRASH_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);

pub(crate) fn check(
    stage: &ChaosFixture,
    truth: &GroundTruth,
    said: &ProductReport,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let named = |key: &str| -> Vec<String> {
        said.tasks().filter_map(|task| task[key].as_str().map(str::to_owned)).collect()
    };
    await_trash(stage);
    let (workspaces, branches) = (named("workspace"), named("branch"));
    let lanes: Vec<String> =
        worktrees(stage)?.into_iter().filter(|path| is_lane(Path::new(path))).collect();
    for path in worktrees(stage)? {
        if !workspaces.contains(&path) && !lanes.contains(&path) {
            wrong.push(format!("left: worktree {path}"));
        }
    }
    let refs = stage.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/mainstem"])?;
    let own = super::target_branch::own_branch(stage)?;
    let own = own.as_deref().and_then(|name| name.strip_prefix("refs/heads/"));
    let named = |branch: &&str| own == Some(*branch) || branches.iter().any(|name| name == branch);
    for branch in refs.lines().filter(|branch| !named(branch)) {
        wrong.push(format!("left: branch {branch}"));
    }
    let git_dir = stage.repo.join(".git");
    let state = git_dir.join("mainstem");
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|end| end == "lock");
    let in_state = |path: &PathBuf| path.starts_with(&state);
    // Git of agents and users tidies up by itself; ours never does.
    let tidying = git_dir.join("objects/maintenance.lock");
    let foreign = |path: &PathBuf| *path == tidying || stage.foreign_locks.contains(path);
    for path in files_below(&git_dir, &[]) {
        if is_lock(&path) && !in_state(&path) && !foreign(&path) {
            wrong.push(format!("left: lock {}", path.display()));
        }
    }
    for path in files_below(&state.join("tmp"), &[]) {
        wrong.push(format!("left: temporary file {}", path.display()));
    }
    let mut skip: Vec<PathBuf> = workspaces.iter().map(PathBuf::from).collect();
    skip.push(stage.repo.clone());
    // What may be somebody's stays where status says that it is.
    let aside = said.status["aside"].as_array().into_iter().flatten();
    skip.extend(aside.filter_map(|path| path.as_str().map(PathBuf::from)));
    // The train keeps what was built there.
    skip.extend(lanes.iter().map(PathBuf::from));
    if !workspaces.is_empty() || !lanes.is_empty() {
        // Says whose the workspaces are while there are some.
        skip.push(stage.place().join("repo.mainstem/.owner"));
    }
    for path in files_below(stage.place(), &skip) {
        wrong.push(format!("left: {}", path.display()));
    }
    for process in process_table::of(stage) {
        // We were asked by somebody.
        if process.pid != rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get()) {
            wrong.push(format!("left: process {} {}", process.pid, process.command));
        }
    }
    fsck(stage, truth, wrong)?;
    user(stage, truth, wrong)
}

/// The last of the trash is deleted by a process that nobody waits for, except us.
fn await_trash(stage: &ChaosFixture) {
    let deadline = std::time::Instant::now() + TRASH_WITHIN;
    let emptying =
        || process_table::of(stage).iter().any(|one| one.command.contains("__empty-trash"));
    while emptying() && std::time::Instant::now() < deadline {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn is_lane(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("_train").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn worktrees(stage: &ChaosFixture) -> Result<Vec<String>, String> {
    let list = stage.git(&["worktree", "list", "--porcelain", "-z"])?;
    let paths = list.split('\0').filter_map(|line| line.strip_prefix("worktree ")).skip(1);
    Ok(paths.map(str::to_owned).collect())
}

fn fsck(stage: &ChaosFixture, truth: &GroundTruth, wrong: &mut Vec<String>) -> Result<(), String> {
    let output = stage
        .command(Path::new("git"))
        .args(["fsck", "--no-dangling", "--no-progress", "--strict"])
        .output()
        .map_err(|error| error.to_string())?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // Damage to a workspace that nobody uses any more is whoever's did it.
    let theirs = |line: &str| {
        let damaged = truth.scripts.iter().filter(|script| truth.was_damaged(&script.task));
        damaged
            .map(|script| format!("worktrees/mainstem-{}-", script.task))
            .any(|admin| line.contains(&admin))
    };
    let ours: Vec<&str> =
        said.lines().filter(|line| !line.trim().is_empty() && !theirs(line)).collect();
    if !ours.is_empty() || (!output.status.success() && said.trim().is_empty()) {
        wrong.push(format!("git fsck: {}", ours.join("\n")));
    }
    Ok(())
}

/// The user's edits, index and stash are the user's.
fn user(stage: &ChaosFixture, truth: &GroundTruth, wrong: &mut Vec<String>) -> Result<(), String> {
    for (path, text) in &truth.edited {
        let now = fs::read_to_string(stage.repo.join(path)).unwrap_or_default();
        if now != *text {
            wrong.push(format!("user: {path} was {text:?} and is {now:?}"));
        }
    }
    let stash = stage.git(&["stash", "list", "--format=%H"])?;
    for commit in &truth.stashed {
        if !stash.lines().any(|line| line == commit) {
            wrong.push(format!("user: the stash {commit} is gone"));
        }
    }
    if stage.moved_under {
        return Ok(());
    }
    let status = stage.git(&["-c", "core.quotePath=false", "status", "--porcelain", "-z"])?;
    for entry in status.split('\0').filter(|entry| entry.len() > 3) {
        let path = &entry[3..];
        if !truth.edited.contains_key(path) {
            wrong.push(format!("user: the checkout shows a change nobody made: {entry}"));
        }
    }
    Ok(())
}

/// Files below a folder but for those below the named ones. What goes while we look is gone.
fn files_below(folder: &Path, skip: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if skip.contains(&path) {
                continue;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(_) => files.push(path),
                Err(_) => {}
            }
        }
    }
    files.sort();
    files
}
