//! A project in a fresh repository of an odd shape, and what a stranger would type in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Shape;
use crate::shell;

/// Three commands, the last of which builds on the others.
const PLAN: &str = "version = 1\n\n[[task]]\nid = \"one\"\nrun = \"echo one > mainstem-one.txt\"\n\n\
    [[task]]\nid = \"two\"\nrun = \"echo two > mainstem-two.txt\"\n\n\
    [[task]]\nid = \"both\"\nneeds = [\"one\", \"two\"]\nrun = \"cat mainstem-one.txt mainstem-two.txt > mainstem-both.txt\"\n";

/// What became of it.
pub(super) struct Played {
    pub(super) ecosystem: String,
    pub(super) init: String,
    pub(super) run: String,
    pub(super) reason: String,
    pub(super) good: bool,
}

/// The binary that was built.
pub(super) fn binary(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("debug").join("mainstem")
}

/// Makes the repository, runs `init` and the plan, and judges what came out.
pub(super) fn play(binary: &Path, files: &Path, shape: Shape) -> Result<Played, String> {
    let checkout = repository(files, shape)?;
    let init = mainstem(binary, &checkout, &["init", "--json"])?;
    let found: Value = serde_json::from_str(&init.out).unwrap_or(Value::Null);
    let verify = found["verify"].as_array().cloned().unwrap_or_default();
    let wrote = fs::read_to_string(checkout.join("mainstem.toml")).unwrap_or_default();
    let init_word = match (init.code, &found["tried"]["passed"]) {
        (0, Value::Bool(true)) => "green",
        (0, Value::Bool(false)) => "red",
        (0, _) if verify.is_empty() => "no check",
        (0, _) => "untried",
        _ => "failed",
    };
    if shape == Shape::Dirty {
        make_dirty(&checkout)?;
    }
    let plan = checkout.join("three.toml");
    fs::write(&plan, PLAN).map_err(|error| error.to_string())?;
    let run = mainstem(binary, &checkout, &["run", "three.toml"])?;
    let unedited = fs::read_to_string(checkout.join("mainstem.toml")).unwrap_or_default() == wrote;
    let landed = landed(&checkout);
    let (word, reason, good) = match run.code {
        0 if landed == 3 => ("green", String::new(), unedited),
        0 => ("wrong", format!("exit code 0, but {landed} of 3 tasks landed"), false),
        code => {
            let reason = reason(&run.err);
            let told = !reason.is_empty() && is_told(&run.err);
            ("red", format!("exit code {code}: {reason}"), told)
        }
    };
    let ecosystem = verify.first().and_then(Value::as_str).unwrap_or("none").to_owned();
    let ecosystem = ecosystem.trim_start_matches(".venv/bin/");
    let ecosystem = ecosystem.split_whitespace().next().unwrap_or("none").to_owned();
    let (init, run) = (init_word.to_owned(), word.to_owned());
    Ok(Played { ecosystem, init, run, reason, good })
}

/// The first line that says what went wrong.
fn reason(err: &str) -> String {
    let lines: Vec<&str> = err.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("error:"));
    let from = at.unwrap_or_else(|| lines.len().saturating_sub(3));
    let words: Vec<&str> = lines[from..].iter().take(8).map(|line| line.trim()).collect();
    words.join(" ").chars().take(200).collect()
}

/// A red run shows what failed: the command and some of what it printed.
fn is_told(err: &str) -> bool {
    ["before any task has run", "clean checkout of", "not installed"]
        .iter()
        .any(|part| err.contains(part))
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn mainstem(binary: &Path, dir: &Path, args: &[&str]) -> Result<Said, String> {
    let mut command = shell::command(binary, dir);
    let output = command
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    Ok(Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn git(dir: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let mut command: Command = shell::command("git", dir);
    command.args(["-c", "protocol.file.allow=always"]).args(args);
    shell::output(&mut command)
}

fn commit_all(dir: &Path, subject: &str) -> Result<(), String> {
    git(dir, &["add", "-A"])?;
    git(dir, &["commit", "-q", "--no-verify", "-m", subject]).map(drop)
}

fn start(dir: &Path) -> Result<(), String> {
    git(dir, &["init", "-q", "-b", "main"])?;
    git(dir, &["config", "user.name", "A Stranger"])?;
    git(dir, &["config", "user.email", "stranger@example.org"]).map(drop)
}

/// The checkout in which the stranger works.
fn repository(files: &Path, shape: Shape) -> Result<PathBuf, String> {
    let io = |error: std::io::Error| error.to_string();
    // What a project's own tools leave is usually ignored; a released archive has no such list.
    if !files.join(".gitignore").exists() {
        let usual =
            "target/\nnode_modules/\n__pycache__/\n*.egg-info/\n.pytest_cache/\nCargo.lock\n";
        fs::write(files.join(".gitignore"), usual).map_err(io)?;
    }
    start(files)?;
    match shape {
        Shape::Filtered => {
            git(files, &["config", "filter.upper.clean", "tr a-z A-Z"])?;
            git(files, &["config", "filter.upper.smudge", "tr A-Z a-z"])?;
            fs::write(files.join(".gitattributes"), "*.filtered filter=upper\n").map_err(io)?;
            fs::write(files.join("large.filtered"), "kept in upper case\n").map_err(io)?;
        }
        Shape::Submodule => {
            let other = files.with_extension("part");
            fs::create_dir_all(&other).map_err(io)?;
            start(&other)?;
            fs::write(other.join("part.txt"), "a part\n").map_err(io)?;
            commit_all(&other, "a part")?;
            let url = other.to_string_lossy().into_owned();
            git(files, &["submodule", "--quiet", "add", &url, "part"])?;
        }
        Shape::Plain | Shape::Linked | Shape::Dirty => {}
    }
    commit_all(files, "as released")?;
    if shape == Shape::Linked {
        let linked = files.with_extension("linked");
        let path = linked.to_string_lossy().into_owned();
        git(files, &["worktree", "add", "-q", "-b", "work", &path])?;
        return Ok(linked);
    }
    Ok(files.to_path_buf())
}

/// Edits that no task touches.
fn make_dirty(checkout: &Path) -> Result<(), String> {
    fs::write(checkout.join("scratch.txt"), "mine\n").map_err(|error| error.to_string())?;
    let edited =
        ["README.md", "README.rst", "LICENSE", "LICENSE.txt", "LICENSE.rst", "LICENSE-MIT"];
    let Some(file) = edited.iter().map(|name| checkout.join(name)).find(|file| file.is_file())
    else {
        return Ok(());
    };
    let mut text = fs::read(&file).map_err(|error| error.to_string())?;
    text.extend(b"\nan edit of mine\n");
    fs::write(&file, text).map_err(|error| error.to_string())
}

/// Tasks that are on the branch of this checkout.
fn landed(checkout: &Path) -> usize {
    let log = git(checkout, &["log", "HEAD", "--format=%(trailers:key=Mainstem-Task,valueonly)"]);
    let text = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
    let mut tasks: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    tasks.sort_unstable();
    tasks.dedup();
    tasks.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_stands_on_the_screen() {
        let err = "x\nerror: the check `npm test` fails on main before any task has run\n\n  Error: no mocha\n";
        assert!(reason(err).contains("no mocha"), "{}", reason(err));
        assert!(is_told(err));
        assert!(!is_told("error: something broke"));
    }
}
