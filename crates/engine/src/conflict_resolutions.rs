//! How conflicts were resolved by work that landed, so that the same conflict need not be resolved again.
//!
//! Per file: what the common ancestor and both sides had, and what became of it. A conflict is resolved
//! this way only if every file in it is known by exactly these three contents; what comes of it is a merge
//! like any other, and verified like one. Held by refs of ours, one per landing, which keep the contents;
//! one that turned out bad is removed.

use std::collections::{BTreeSet, HashMap};

use mainstem_core::id::{Oid, TaskId, Time};
use mainstem_core::train::batches::ReusedResolution;
use mainstem_host::git::{BlobNote, GitError, GitIndexStage, GitMergeOutcome, GitTreeEntry, Repo};
use serde::{Deserialize, Serialize};

use crate::engine_context::EngineContext;

pub const PREFIX: &str = "refs/mainstem/resolutions";
const TRAILER: &str = "Mainstem-Resolution";
const REUSED: &str = "reused";
/// A program that resolves some conflicts, and how its results are named.
const MERGIRAF: &str = "mergiraf";
/// Landings whose resolutions are kept, the newest. A conflict that comes back comes back soon.
const KEPT_MAX: usize = 200;
/// Files of one landing that are remembered.
const FILES_MAX: usize = 100;

/// How one file was resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileResolution {
    path: String,
    base: Option<String>,
    ours: String,
    theirs: String,
    /// None: it was taken away.
    result: Option<(String, String)>,
}

/// A file, and what the common ancestor and both sides have there.
type ResolutionSides = (String, Option<String>, String, String);

/// The three sides of a file, if it is the plain case: a file on both sides.
fn parse_resolution_sides(stages: &[GitIndexStage]) -> Option<Vec<FileResolution>> {
    let mut files: Vec<(String, [Option<&GitIndexStage>; 3])> = Vec::new();
    for stage in stages {
        // What is no file of ours to write: a link to another repository, a name that is no text.
        if stage.mode.starts_with("16") || stage.path.contains(char::REPLACEMENT_CHARACTER) {
            return None;
        }
        if files.last().is_none_or(|(path, _)| *path != stage.path) {
            files.push((stage.path.clone(), [None; 3]));
        }
        let (_, sides) = files.last_mut()?;
        *sides.get_mut(usize::from(stage.stage).checked_sub(1)?)? = Some(stage);
    }
    let content = |stage: &GitIndexStage| stage.blob.to_string();
    let one = |(path, sides): (String, [Option<&GitIndexStage>; 3])| {
        let [base, ours, theirs] = sides;
        let (ours, theirs) = (content(ours?), content(theirs?));
        Some(FileResolution { path, base: base.map(content), ours, theirs, result: None })
    };
    files.into_iter().map(one).collect()
}

/// Remembers how `tip`, which started at `base` and has landed, resolved the clash with `work`.
pub fn remember_resolution(
    repo: &Repo,
    task: &TaskId,
    (base, work, tip): (&Oid, &Oid, &Oid),
) -> Result<(), GitError> {
    let GitMergeOutcome::Conflict { stages, .. } = repo.merge(base, work)? else { return Ok(()) };
    let Some(mut files) = parse_resolution_sides(&stages).filter(|files| files.len() <= FILES_MAX)
    else {
        return Ok(());
    };
    let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    let results = repo.read_tree_entries(tip, &paths)?;
    let mut blobs = Vec::new();
    for file in &mut files {
        if let Some((mode, blob)) = results.get(&file.path) {
            blobs.push(blob.clone());
            file.result = Some((mode.clone(), blob.to_string()));
        }
    }
    let text = serde_json::to_string(&files).unwrap_or_default();
    // By what it is, so that remembering it again finds the first.
    let name = tip.as_str().get(..16).unwrap_or(tip.as_str());
    let _ = repo.write_blob_note(&format!("{PREFIX}/{task}/{name}"), &text, &blobs)?;
    delete_notes(repo, repo.list_blob_notes(PREFIX)?.into_iter().skip(KEPT_MAX))
}

/// Forgets those that are older than snapshots are kept. They can be found out again, at a price.
pub fn prune_resolutions(repo: &Repo, keep_ms: u64, now: Time) -> Result<(), GitError> {
    let is_old = |note: &BlobNote| keep_ms == 0 || Time(note.at_ms).plus_ms(keep_ms) <= now;
    delete_notes(repo, repo.list_blob_notes(PREFIX)?.into_iter().filter(is_old))
}

fn delete_notes(repo: &Repo, notes: impl Iterator<Item = BlobNote>) -> Result<(), GitError> {
    let refs: Vec<(String, Oid)> = notes.map(|note| (note.name, note.commit)).collect();
    if !refs.is_empty() {
        // One that is gone already is as good.
        repo.delete_refs(&refs)?;
    }
    Ok(())
}

/// The tree of a merge whose conflicts were all resolved before, and by what.
pub fn apply_resolutions(
    repo: &Repo,
    tree: &Oid,
    stages: &[GitIndexStage],
) -> Result<Option<(Oid, Vec<ReusedResolution>)>, GitError> {
    let Some(wanted) = parse_resolution_sides(stages).filter(|files| !files.is_empty()) else {
        return Ok(None);
    };
    let notes = repo.list_blob_notes(PREFIX)?;
    let mut known: HashMap<ResolutionSides, (&BlobNote, Option<GitTreeEntry>)> = HashMap::new();
    for note in &notes {
        // Written by another version, or by somebody else: of no use, and no harm.
        let Ok(files) = serde_json::from_str::<Vec<FileResolution>>(&note.text) else { continue };
        for FileResolution { path, base, ours, theirs, result } in files {
            let result = result.map(|(mode, blob)| (mode, Oid::new(blob)));
            // The newest comes first.
            known.entry((path, base, ours, theirs)).or_insert((note, result));
        }
    }
    let (mut files, mut reused) = (Vec::new(), Vec::new());
    for FileResolution { path, base, ours, theirs, .. } in wanted {
        let key = (path, base, ours, theirs);
        let Some((note, result)) = known.get(&key) else { return Ok(None) };
        let path = key.0;
        let name = note.name.strip_prefix(PREFIX).unwrap_or_default().trim_start_matches('/');
        reused.push(ReusedResolution { resolution: name.to_owned(), path: path.clone() });
        files.push((path, result.clone()));
    }
    Ok(Some((repo.write_tree_with_files(tree, &files)?, reused)))
}

/// The tree of a merge whose conflicts mergiraf resolves, if the user has it. Its results are right more
/// often than not, which is why the gates have the last word.
pub fn resolve_with_mergiraf(
    world: &EngineContext,
    (onto, tip): (&Oid, &Oid),
    files: &[String],
) -> Result<Option<(Oid, Vec<ReusedResolution>)>, GitError> {
    let path = world.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_str());
    let folders = std::env::split_paths(path.unwrap_or_default());
    let program = folders.map(|folder| folder.join(MERGIRAF)).find(|program| program.is_file());
    let Some(program) = program.filter(|_| world.settings.land.mergiraf) else { return Ok(None) };
    Ok(match world.repo.merge_with_mergiraf(onto, tip, &program)? {
        GitMergeOutcome::Clean { tree } => {
            let of = |path: &String| ReusedResolution {
                resolution: MERGIRAF.to_owned(),
                path: path.clone(),
            };
            Some((tree, files.iter().map(of).collect()))
        }
        GitMergeOutcome::Conflict { .. } => None,
    })
}

/// The last lines of a merge that was put together with these.
pub fn resolution_trailers(reused: &[ReusedResolution]) -> String {
    let names: BTreeSet<&str> = reused.iter().map(|one| one.resolution.as_str()).collect();
    let line = |name: &&str| match *name {
        MERGIRAF => format!("{TRAILER}: {MERGIRAF}\n"),
        name => format!("{TRAILER}: {REUSED} {name}\n"),
    };
    names.iter().map(line).collect()
}

/// The merge of one car onto `main` failed its gates: what it was put together with is not used again.
pub fn forget_failed_resolutions(repo: &Repo, main: &Oid, merge: &Oid) -> Result<(), GitError> {
    for landing in repo.list_landings(merge, Some(main))? {
        // With others before it, it may be their fault.
        if landing.commit != *merge || landing.parent != *main {
            continue;
        }
        for (_, value) in landing.trailers.iter().filter(|(key, _)| key == TRAILER) {
            if let Some(name) = value.strip_prefix(REUSED) {
                let _ = repo.delete_ref(&format!("{PREFIX}/{}", name.trim()), None)?;
            }
        }
    }
    Ok(())
}
