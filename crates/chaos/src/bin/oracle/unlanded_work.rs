//! Work that did not land: for every attempt a snapshot that holds what its agent left, and nothing
//! that it did not.

use std::collections::BTreeMap;
use std::path::Path;

use mainstem_chaos::ChaosFixture;

use super::ProductReport;
use super::ground_truth::{CertainWork, GroundTruth};
use super::target_branch::LandingCommit;

pub(crate) fn check(
    stage: &ChaosFixture,
    truth: &GroundTruth,
    said: &ProductReport,
    landings: &[LandingCommit],
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    for ((task, attempt), told) in &truth.told {
        if told.starts > 1 && !stage.journal_cut {
            wrong.push(format!(
                "work: attempt {attempt} of {task} was started {} times",
                told.starts
            ));
        }
        if told.outlived && !stage.journal_cut {
            wrong.push(format!("work: attempt {attempt} of {task} went on beside the next one"));
        }
        let mut left = truth.kept(task, *attempt);
        let landed =
            landings.iter().any(|landing| landing.task == *task && landing.attempt == *attempt);
        if landed || left.is_empty() {
            continue;
        }
        // Whatever the power left of a workspace is kept as it is.
        if told.torn {
            continue;
        }
        // A task that still waits for its next attempt has its work where it was done.
        let state = said.task(task).filter(|state| state["phase"] == "ready");
        if let Some(place) = state.and_then(|state| state["workspace"].as_str())
            && lies_in(Path::new(place), &left)
        {
            continue;
        }
        // It began with what the attempts before it had left.
        let earlier = |n| truth.kept(task, n).touched;
        left.touched.extend((1..*attempt).flat_map(earlier));
        if let Some(what) = kept(stage, task, *attempt, &told.base, &left)? {
            wrong.push(format!("work: attempt {attempt} of {task} did not land, and {what}"));
        }
    }
    Ok(())
}

/// Whether all of an attempt's work is in a folder.
fn lies_in(place: &Path, left: &CertainWork) -> bool {
    let text = |path: &String| std::fs::read_to_string(place.join(path)).ok();
    left.files.iter().all(|(path, expected)| text(path) == *expected)
        && left.lines.iter().all(|(path, line)| text(path).is_some_and(|all| all.contains(line)))
}

/// What is missing from the attempt's newest snapshot.
fn kept(
    stage: &ChaosFixture,
    task: &str,
    attempt: u32,
    base: &str,
    left: &CertainWork,
) -> Result<Option<String>, String> {
    let prefix = format!("refs/mainstem/snapshots/{task}/{attempt}");
    let refs = stage.git(&["for-each-ref", "--format=%(refname)", &prefix])?;
    let number = |name: &&str| name.rsplit('/').next().and_then(|n| n.parse::<u32>().ok());
    let Some(newest) = refs.lines().max_by_key(number) else {
        return Ok(Some(format!("no snapshot is below {prefix}; it had done {left:?}")));
    };
    // A forgotten attempt's folder may have been used since: then an older snapshot has its work.
    if stage.journal_cut {
        for name in refs.lines() {
            if holds(stage, &files_of(stage, name)?, left)?.is_none() {
                return Ok(None);
            }
        }
    }
    let files = files_of(stage, newest)?;
    if let Some(what) = holds(stage, &files, left)? {
        // Behind a wall its folder cannot go, only what is in it: then that is work too, on top of what it
        // had committed.
        if left.destroyed
            && let Ok(committed) = files_of(stage, &format!("{newest}^"))
            && holds(stage, &committed, left)?.is_none()
        {
            return Ok(None);
        }
        return Ok(Some(format!("its snapshot {newest} is not what it left: {what}")));
    }
    let before = files_of(stage, base)?;
    let foreign: Vec<&String> = files
        .iter()
        .filter(|(path, blob)| before.get(*path) != Some(blob) && !left.touched.contains(*path))
        .map(|(path, _)| path)
        .collect();
    if !foreign.is_empty() {
        return Ok(Some(format!("its snapshot {newest} has what it never wrote: {foreign:?}")));
    }
    Ok(None)
}

/// Path and blob of every file of a commit.
pub(crate) fn files_of(
    stage: &ChaosFixture,
    commit: &str,
) -> Result<BTreeMap<String, String>, String> {
    let list = stage.git(&["ls-tree", "-r", "-z", commit])?;
    let entries = list.split('\0').filter(|entry| !entry.is_empty());
    let file = |entry: &str| {
        let (meta, path) = entry.split_once('\t')?;
        Some((path.to_owned(), meta.split(' ').nth(2)?.to_owned()))
    };
    entries
        .map(|entry| file(entry).ok_or_else(|| format!("odd line of git ls-tree: {entry:?}")))
        .collect()
}

/// What of an attempt's work these files lack.
pub(crate) fn holds(
    stage: &ChaosFixture,
    files: &BTreeMap<String, String>,
    left: &CertainWork,
) -> Result<Option<String>, String> {
    let text = |blob: &str| stage.git(&["cat-file", "blob", blob]);
    for (path, expected) in &left.files {
        match (files.get(path), expected) {
            (None, Some(_)) => return Ok(Some(format!("{path} is missing"))),
            (Some(_), None) => return Ok(Some(format!("{path} was deleted and is there"))),
            (Some(blob), Some(expected)) => {
                // Our own reading of git's output drops the last line ends.
                if text(blob)? != expected.trim_end_matches('\n') {
                    return Ok(Some(format!("{path} has another content")));
                }
            }
            (None, None) => {}
        }
    }
    for (path, line) in &left.lines {
        let found = match files.get(path) {
            Some(blob) => text(blob)?.lines().any(|have| have == line.trim_end()),
            None => false,
        };
        if !found {
            return Ok(Some(format!("{path} lacks the line {line:?}")));
        }
    }
    Ok(None)
}
