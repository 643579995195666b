//! Where an attempt starts that goes on with earlier work: that work is put onto what has landed since, if
//! they fit together. Everything is done in the object database; the workspace is made from the result.

use mainstem_agents::EarlierWork;
use mainstem_core::attempt_work::{
    AttemptWork, ContinuedWork, WorkPlacement, WorkspaceContinuation,
};
use mainstem_core::id::Oid;
use mainstem_host::git::{FileChange, GitError, GitMergeOutcome, GitReplayOutcome};

use super::{EffectContext, handover};

/// More commits than this become one when they are put onto another base.
const COMMITS_REPLAYED_MAX: u32 = 100;
/// The mode of a folder, as git writes it.
const FOLDER: &str = "040000";

/// What a workspace is made from.
#[derive(Debug, Clone)]
pub struct WorkspaceStart {
    /// The commit that the work counts from.
    pub base: Oid,
    /// The commit that is checked out.
    pub checkout: Oid,
    /// Work that is laid out on top of that as edits.
    pub edits: Option<Oid>,
    /// What it holds of earlier work.
    pub continued: Option<ContinuedWork>,
}

impl WorkspaceStart {
    /// With nothing but this commit.
    pub fn at_commit(base: Oid) -> Self {
        Self { checkout: base.clone(), base, edits: None, continued: None }
    }
}

/// Earlier work on its new base.
struct RebasedWork {
    base: Oid,
    commit: Oid,
    conflicts: Vec<String>,
    set_back: bool,
}

/// Puts earlier work onto `onto`, as far as that goes; all of what is needed must be in the base. None if
/// the work is gone.
pub fn rebase_earlier_work(
    errand: &EffectContext,
    wish: &WorkspaceContinuation,
    onto: &Oid,
    must_contain: &[Oid],
) -> Result<Option<WorkspaceStart>, GitError> {
    let repo = &errand.engine.repo;
    if !repo.has_object(&wish.work.commit)? || !repo.has_object(&wish.work.base)? {
        let gone = wish.work.attempt;
        errand.send_notices(vec![format!(
            "the snapshots of attempt {gone} no longer exist, so this attempt starts from the target branch"
        )]);
        return Ok(None);
    }
    let work = AttemptWork { commit: find_newest_commit(errand, &wish.work)?, ..wish.work.clone() };
    let mut holds_needs = true;
    for need in must_contain {
        holds_needs &= repo.is_ancestor(need, &work.base)?;
    }
    let place = match wish.place {
        WorkPlacement::Stays | WorkPlacement::Follows if !holds_needs => WorkPlacement::Redone,
        place => place,
    };
    let moved = if place == WorkPlacement::Stays {
        unmoved_work(&work, Vec::new())
    } else {
        put_work_onto(errand, &work, onto, place)?
    };
    let (base, commit) = (moved.base, moved.commit);
    let uncommitted = wish.uncommitted && base != commit;
    let continued = ContinuedWork {
        attempt: work.attempt,
        tree: repo.tree_of(&commit)?,
        commit: commit.clone(),
        uncommitted,
        moved: base != work.base,
        conflicts: moved.conflicts,
        set_back: moved.set_back,
    };
    Ok(Some(WorkspaceStart {
        checkout: if uncommitted { base.clone() } else { commit.clone() },
        edits: uncommitted.then_some(commit),
        base,
        continued: Some(continued),
    }))
}

/// The work with what came after it was judged: commits that a person made on its branch. Files that were
/// not committed do not count: they may be what checks left behind.
fn find_newest_commit(errand: &EffectContext, work: &AttemptWork) -> Result<Oid, GitError> {
    let repo = &errand.engine.repo;
    if work.unread {
        return handover::newest_unread_work(errand, work);
    }
    let tip = repo.read_ref(&format!("refs/heads/{}", errand.branch))?;
    Ok(match tip {
        Some(tip) if repo.is_ancestor(&work.commit, &tip)? => tip,
        _ => work.commit.clone(),
    })
}

fn unmoved_work(work: &AttemptWork, conflicts: Vec<String>) -> RebasedWork {
    let (base, commit) = (work.base.clone(), work.commit.clone());
    RebasedWork { base, commit, conflicts, set_back: false }
}

fn put_work_onto(
    errand: &EffectContext,
    work: &AttemptWork,
    onto: &Oid,
    place: WorkPlacement,
) -> Result<RebasedWork, GitError> {
    let repo = &errand.engine.repo;
    let whole = |commit: Oid| RebasedWork {
        base: onto.clone(),
        commit,
        conflicts: Vec::new(),
        set_back: false,
    };
    if repo.is_ancestor(&work.commit, onto)? {
        return Ok(whole(onto.clone()));
    }
    // Otherwise it builds on something that has not landed: only its own part counts.
    if repo.is_ancestor(&work.base, onto)? {
        if repo.is_ancestor(onto, &work.commit)? {
            return Ok(whole(work.commit.clone()));
        }
        if repo.is_ancestor(&work.base, &work.commit)?
            && repo.count_commits_between(&work.base, &work.commit)? <= COMMITS_REPLAYED_MAX
            && let GitReplayOutcome::Clean { tip } =
                repo.replay_commits(&work.base, &work.commit, onto)?
        {
            return Ok(whole(tip));
        }
    }
    match repo.merge_with_base(&work.base, onto, &work.commit)? {
        GitMergeOutcome::Clean { tree } => Ok(whole(squash_work_onto(errand, work, &tree, onto)?)),
        GitMergeOutcome::Conflict { files, .. } if place == WorkPlacement::Follows => {
            Ok(unmoved_work(work, files))
        }
        GitMergeOutcome::Conflict { files, tree, .. } => {
            let landed = repo.read_tree_entries(onto, &files)?;
            let file_there = |file: &String| landed.get(file).filter(|(mode, _)| mode != FOLDER);
            let entry = |file: &String| (file.clone(), file_there(file).cloned());
            let tree =
                repo.write_tree_with_files(&tree, &files.iter().map(entry).collect::<Vec<_>>())?;
            let commit = squash_work_onto(errand, work, &tree, onto)?;
            Ok(RebasedWork { base: onto.clone(), commit, conflicts: files, set_back: true })
        }
    }
}

fn squash_work_onto(
    errand: &EffectContext,
    work: &AttemptWork,
    tree: &Oid,
    onto: &Oid,
) -> Result<Oid, GitError> {
    let repo = &errand.engine.repo;
    if *tree == repo.tree_of(onto)? {
        return Ok(onto.clone());
    }
    repo.copy_commit_onto(&work.commit, tree, onto)
}

/// What an attempt is told of the work that its workspace holds. What cannot be read is left out, and said.
pub fn describe_earlier_work(
    errand: &EffectContext,
    there: &ContinuedWork,
    base: &Oid,
) -> EarlierWork {
    let mut kept = EarlierWork {
        attempt: there.attempt,
        uncommitted: there.uncommitted,
        moved: there.moved,
        conflicts: there.conflicts.clone(),
        set_back: there.set_back,
        ..EarlierWork::default()
    };
    let repo = &errand.engine.repo;
    let read = repo.diff_stats(base, &there.commit).and_then(|changes| {
        let line = |file: &FileChange| match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!("{} +{added} -{removed}", file.path),
            _ => format!("{} (binary)", file.path),
        };
        kept.files = changes.files.iter().map(line).collect();
        (kept.insertions, kept.deletions) = (changes.insertions, changes.deletions);
        repo.list_commits_touching(base, &there.commit, &[])
    });
    match read {
        Ok(commits) => {
            let line = |(id, subject): &(Oid, String)| {
                format!("{} {subject}", id.as_str().get(..12).unwrap_or_default())
            };
            kept.commits = commits.iter().map(line).collect();
        }
        Err(error) => {
            errand
                .send_notices(vec![format!("the prompt does not list the earlier work: {error}")]);
        }
    }
    kept
}
