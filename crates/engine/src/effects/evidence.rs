//! What an attempt left, read from git: leftovers committed, a snapshot taken, the difference
//! measured. Judges nothing.

use std::path::Path;

use mainstem_agents::SecretScanner;
use mainstem_core::config::WorkspaceKind;
use mainstem_core::fact::Evidence;
use mainstem_core::glob::globs_may_overlap;
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_host::crash;
use mainstem_host::git::{GitError, UnstoredFile};

use super::{EffectContext, guarded_changes, handover, landing, litter};

/// The rule that nobody can switch off.
const KNOWN_VALUE: &str = "known-value";
/// Finds told one by one.
const LEAKS_SHOWN: usize = 20;

/// Why the last snapshot of an attempt is taken.
const ENDED: &str = "the attempt ended";

pub fn collect_evidence(errand: &EffectContext, base: Option<&Oid>) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let evidence = match base {
        Some(base) => match find_earlier_landing(errand, base) {
            Ok(Some(landed)) => return errand.send_input(landed),
            Ok(None) => gather_evidence(errand, base).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        },
        // The workspace never stood, so there is nothing to look at.
        None => Ok(Evidence::empty_on(Oid::new(""))),
    };
    errand.send_input(Input::EvidenceCollected { task, attempt, evidence });
}

/// A workspace that is gone with its branch may have gone because its work landed.
fn find_earlier_landing(errand: &EffectContext, base: &Oid) -> Result<Option<Input>, GitError> {
    let repo = &errand.engine.repo;
    if errand.workspace.join(".git").exists()
        || repo.read_ref(&format!("refs/heads/{}", errand.branch))?.is_some()
    {
        return Ok(None);
    }
    match errand.engine.landing_head()? {
        Some(tip) => landing::find_unjournaled_landing(errand, &tip, Some(base)),
        None => Ok(None),
    }
}

/// Takes a snapshot of work in progress. Told only if there was something new: an agent that thinks
/// for an hour leaves no trace in the journal.
pub fn take_progress_snapshot(errand: &EffectContext, why: &str) {
    // What is refused now is told when nobody works there any more.
    if let Err(error) = errand.import_agent_commits(false) {
        report_snapshot_failure(errand, &error);
    }
    let taken = errand.engine.repo.take_quick_snapshot(
        &errand.workspace,
        &errand.snapshot_ref_prefix(),
        why,
    );
    match taken {
        Ok(Some(kept)) if kept.is_new => {
            crash::point("snapshot.taken");
            errand.send_kept_ref(kept.refname, kept.commit, why);
        }
        Ok(_) => {}
        Err(error) => report_snapshot_failure(errand, &error),
    }
}

/// Takes a snapshot of all there is, and says what it cannot hold.
fn take_full_snapshot(errand: &EffectContext, why: &str) {
    match errand.engine.repo.take_snapshot(&errand.workspace, &errand.snapshot_ref_prefix(), why) {
        Ok(Some(kept)) => {
            crash::point("snapshot.taken");
            errand.send_kept_ref(kept.refname, kept.commit, why);
            errand.send_notices(kept.notes);
        }
        Ok(None) => {}
        Err(error) => report_snapshot_failure(errand, &error),
    }
}

fn report_snapshot_failure(errand: &EffectContext, error: &GitError) {
    let message = format!("cannot take a snapshot: {error}");
    errand.send_input(Input::Notice { task: Some(errand.ix), message });
}

fn gather_evidence(errand: &EffectContext, base: &Oid) -> Result<Evidence, GitError> {
    let world = &errand.engine;
    let repo = &world.repo;
    let path = &errand.workspace;
    let is_anothers = handover::is_used_by_another(errand);
    let is_ours = !is_anothers && !repo.is_worktree_replaced(path);
    if path.is_dir() && is_ours {
        // First: once the workspace is gone nothing leads to them any more.
        match repo.keep_nested_repos(path, &errand.snapshot_ref_prefix()) {
            Ok(notes) => errand.send_notices(notes),
            // The workspace stays until it can be done: nothing goes without it.
            Err(error) => errand.send_notices(vec![error.to_string()]),
        }
    }
    let refused = if is_ours { errand.import_agent_commits(true)? } else { None };
    let mut flaws: Vec<String> = refused.into_iter().collect();
    let WorkspaceTip { tip, recovered, stopped, unstored } =
        if is_ours && path.join(".git").exists() {
            // Once committed, all that is there is one commit, which is kept below. What cannot be
            // committed is at least put on a snapshot as files.
            read_workspace_tip(errand, path).inspect_err(|_| take_full_snapshot(errand, ENDED))?
        } else {
            if !is_anothers {
                take_full_snapshot(errand, ENDED);
            }
            // The agent removed its own workspace; what it had committed is on the branch.
            let tip = repo.read_ref(&format!("refs/heads/{}", errand.branch))?;
            WorkspaceTip { tip, recovered: false, stopped: None, unstored: Vec::new() }
        };
    flaws.extend(unstored.iter().map(ToString::to_string));
    crash::point("evidence.committed");
    let tip = find_work_on_branch(errand, base, tip)?;
    let Some(tip) = tip.filter(|tip| tip != base) else {
        return Ok(Evidence { flaws, ..Evidence::empty_on(base.clone()) });
    };
    let refname = repo.keep_as_snapshot(&tip, &errand.snapshot_ref_prefix(), ENDED)?;
    crash::point("evidence.kept");
    errand.send_kept_ref(refname, tip.clone(), ENDED);
    let changes = repo.diff_stats(base, &tip)?;
    errand.send_notices(litter::warning(&repo.added_files(base, &tip)?).into_iter().collect());
    let limit = world.settings.limits.file_bytes;
    flaws.extend(repo.find_hygiene_flaws(base, &tip, limit)?.iter().map(ToString::to_string));
    let commits = repo.count_commits_between(base, &tip)?;
    // Whoever works without a sandbox, and not in a clone, writes objects that nobody has checked.
    let unchecked = world.sandbox.is_none() && commits > u32::from(recovered);
    if unchecked && world.settings.workspace.kind == WorkspaceKind::Worktree {
        let faults = repo.find_history_fault(base, &tip)?;
        flaws.extend(faults.map(|why| format!("the commits are malformed: {why}")));
    }
    if !repo.is_ancestor(base, &tip)? {
        flaws.insert(0, "the branch no longer contains the commit it started from".to_owned());
    }
    if let Some(what) = stopped {
        flaws.insert(0, format!("unfinished {what}; finish or abort the {what}"));
    }
    flaws.extend(find_named_secrets(errand, base, &tip)?);
    flaws.extend(find_leaks(errand, base, &tip)?);
    let guarded = guarded_changes::find_guarded_changes(errand, base, &tip)?;
    Ok(Evidence {
        base: base.clone(),
        commits,
        files: u32::try_from(changes.files.len()).unwrap_or(u32::MAX),
        insertions: changes.insertions,
        deletions: changes.deletions,
        diff_hash: repo.diff_hash(base, &tip)?,
        tree: Some(repo.tree_of(&tip)?),
        tip,
        recovered,
        flaws,
        guarded,
    })
}

/// An agent that went back in the end, if only to look, still has its commits on the branch.
fn find_work_on_branch(
    errand: &EffectContext,
    base: &Oid,
    tip: Option<Oid>,
) -> Result<Option<Oid>, GitError> {
    let repo = &errand.engine.repo;
    let branch = repo.read_ref(&format!("refs/heads/{}", errand.branch))?;
    if let Some(tip) = tip.as_ref()
        && repo.tree_of(tip)? != repo.tree_of(base)?
    {
        return Ok(match branch {
            // It went back part of the way: the branch has that and more.
            Some(ahead) if repo.is_ancestor(tip, &ahead)? => Some(ahead),
            _ => Some(tip.clone()),
        });
    }
    match branch {
        Some(ahead) if ahead != *base && repo.is_ancestor(base, &ahead)? => Ok(Some(ahead)),
        _ => Ok(tip),
    }
}

/// Where an attempt ended.
struct WorkspaceTip {
    tip: Option<Oid>,
    recovered: bool,
    /// A command that goes from commit to commit and has not come to its end.
    stopped: Option<&'static str>,
    /// Files that git could not take.
    unstored: Vec<UnstoredFile>,
}

fn read_workspace_tip(errand: &EffectContext, path: &Path) -> Result<WorkspaceTip, GitError> {
    let repo = &errand.engine.repo;
    let left = format!("uncommitted changes of attempt {}", errand.attempt);
    let message = match landing::subject(&errand.task) {
        subject if subject == errand.task.id.as_str() => format!("{subject}: {left}"),
        subject => format!("{subject}\n\nCommitted by Mainstem: {left}.\n"),
    };
    let now = mainstem_host::clock::now_ms();
    let left = repo.commit_leftovers(path, &errand.branch, &message, &repo.identity()?, now)?;
    errand.send_notices(left.notes);
    let recovered = left.commit.is_some();
    let tip = match left.commit {
        Some(tip) => Some(tip),
        None => repo.read_worktree_tip(path)?,
    };
    Ok(WorkspaceTip { tip, recovered, stopped: left.stopped, unstored: left.unstored })
}

/// Named secrets whose values are in any version of any file between. The values themselves are
/// never repeated.
fn find_named_secrets(
    errand: &EffectContext,
    base: &Oid,
    tip: &Oid,
) -> Result<Vec<String>, GitError> {
    let secrets = errand.engine.list_secrets();
    if secrets.is_empty() {
        return Ok(Vec::new());
    }
    // Each as it is, and as text of two bytes per letter in both orders.
    let needles: Vec<Vec<u8>> =
        secrets.iter().flat_map(|(_, value)| secret_spellings(value)).collect();
    let repo = &errand.engine.repo;
    let mut found: Vec<usize> = repo.find_needles_in_history(base, tip, &needles)?;
    found.iter_mut().for_each(|n| *n /= SPELLINGS);
    // A value with a slash in it is spread over several folders' names.
    let paths = repo.diff_stats(base, tip)?.files;
    let in_path = |n: &usize| paths.iter().any(|file| file.path.contains(&secrets[*n].1));
    found.extend((0..secrets.len()).filter(in_path));
    found.sort_unstable();
    found.dedup();
    let told = |n: &usize| match &secrets[*n].0 {
        name if name.starts_with("git config ") => name.clone(),
        name => format!("${name}"),
    };
    Ok(found.iter().map(|n| format!("the work contains the value of {}", told(n))).collect())
}

/// In how many ways a value is looked for.
const SPELLINGS: usize = 3;

fn secret_spellings(value: &str) -> [Vec<u8>; SPELLINGS] {
    let little = value.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big = value.encode_utf16().flat_map(u16::to_be_bytes).collect();
    [value.as_bytes().to_vec(), little, big]
}

/// Lines of any commit that look like a secret, each by file, line and rule; never the line itself.
fn find_leaks(errand: &EffectContext, base: &Oid, tip: &Oid) -> Result<Vec<String>, GitError> {
    let world = &errand.engine;
    let values = world.list_secrets().into_iter().map(|(_, value)| value);
    let scan = SecretScanner::new(values, &world.settings.secrets_allow);
    let (tell, found) = std::sync::mpsc::channel();
    let mut flaws = Vec::new();
    for words in world.repo.list_history_metadata(base, tip)? {
        if let Some(leak) = scan.scan_line(words.as_bytes()) {
            flaws.push(format!(
                "a file name, a message or an author of a commit looks like a secret ({})",
                leak.rule
            ));
        }
    }
    let seen = move |path: &str, number: u32, line: &[u8]| {
        let passes = || scan.paths.iter().any(|glob| globs_may_overlap(glob, path));
        // Text of two bytes per letter, whichever comes first.
        let wide: Vec<u8> = line.iter().copied().filter(|byte| *byte != 0).collect();
        let in_wide = || (wide.len() < line.len()).then(|| scan.scan_line(&wide)).flatten();
        if let Some(leak) = scan.scan_line(line).or_else(in_wide)
            && (leak.rule == KNOWN_VALUE || !passes())
        {
            // Whoever asked waits for the end.
            let _ = tell.send(format!("{path}:{number}: looks like a secret ({})", leak.rule));
        }
    };
    world.repo.for_each_added_line(base, tip, Box::new(seen))?;
    flaws.extend(found.try_iter());
    flaws.sort();
    flaws.dedup();
    if let Some(more) = flaws.len().checked_sub(LEAKS_SHOWN).filter(|more| *more > 0) {
        flaws.truncate(LEAKS_SHOWN);
        flaws.push(format!("and {more} more lines that look like secrets"));
    }
    if !flaws.is_empty() {
        flaws.push(
            "remove secrets from every commit; allow false positives with [secrets] allow, or with mainstem:allow-secret in the line"
                .to_owned(),
        );
    }
    Ok(flaws)
}
