//! `mainstem land`: brings what landed on a branch of a run's own over to the branch it is meant for.

use std::path::PathBuf;

use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_host::git::{
    BlockedCheckout, CheckoutReadiness, CheckoutUpdate, GitError, GitMergeOutcome, NewCommit,
    RefUpdateOutcome, Repo,
};
use mainstem_host::{clock, crash};

use crate::instance::{EngineError, EngineInstance};
use crate::maintenance::{build_maintenance_context, find_failing_gate, find_last_landing};

/// Why work was not brought over. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BranchLandingError {
    #[error(transparent)]
    Session(#[from] EngineError),
    #[error(transparent)]
    Git(#[from] GitError),
    /// It lands where it is meant to.
    #[error("nothing to land: this run lands directly on {0}")]
    LandsThere(String),
    #[error("nothing has landed on {0} yet")]
    NothingLanded(String),
    /// A branch is gone.
    #[error("the branch {0} no longer exists")]
    Gone(String),
    /// Both sides changed the same.
    #[error("{from} does not merge into {to}: conflicts in {}", files.join(", "))]
    Conflict {
        from: String,
        /// Where it is meant to go.
        to: String,
        files: Vec<String>,
    },
    /// The merge is red.
    #[error("the check `{gate}` failed on the merge of {from} into {to}; full output: {log}")]
    Red {
        from: String,
        /// Where it is meant to go.
        to: String,
        gate: String,
        /// Where its output is.
        log: String,
    },
    /// A check could not be made.
    #[error("cannot check the merge: {0}")]
    Unverified(String),
    /// The user's own files are in the way.
    #[error("{0}")]
    InTheWay(BlockedCheckout),
    /// Somebody else moved the branch meanwhile.
    #[error("{0} changed while merging; nothing was changed")]
    Moved(String),
}

impl BranchLandingError {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Conflict { from, to, .. } => {
                format!("merge by hand: git switch {to}, then git merge {from}")
            }
            Self::InTheWay(way) => {
                let fix = way.hold_reason();
                format!("{}, then run mainstem land again", fix.checkout_fix()?)
            }
            Self::Moved(_) => "run mainstem land again".to_owned(),
            Self::Gone(branch) => format!("restore the branch: git branch {branch} COMMIT"),
            _ => return None,
        })
    }
}

/// What was brought over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchLanding {
    pub from: String,
    /// Where its work is now.
    pub to: String,
    /// Where that branch stands.
    pub commit: Oid,
    /// A merge commit was needed.
    pub merged: bool,
    /// It was there already.
    pub known: bool,
    /// What is to be said of the user's checkout.
    pub checkout: Option<String>,
}

/// Brings the newest run's work over.
pub fn land_run_branch(
    mut session: EngineInstance,
    exe: PathBuf,
    env: Vec<(String, String)>,
) -> Result<BranchLanding, BranchLandingError> {
    let (run, mut machine) = session.load_newest_run()?.ok_or(EngineError::NoRun)?;
    let from = machine.target_branch().to_owned();
    let Some(to) = machine.bring_to().map(str::to_owned) else {
        return Err(BranchLandingError::LandsThere(from));
    };
    let (t, ..) = find_last_landing(&machine)
        .ok_or_else(|| BranchLandingError::NothingLanded(from.clone()))?;
    session.sweep_leftovers()?;
    let repo = session.repo().clone();
    let tip = read_branch_tip(&repo, &from)?;
    let head = read_branch_tip(&repo, &to)?;
    let known = repo.is_ancestor(&tip, &head)?;
    let done = |commit: Oid, merged, checkout| {
        let (from, to) = (from.clone(), to.clone());
        BranchLanding { from, to, commit, merged, known, checkout }
    };
    if known {
        return Ok(done(head, false, None));
    }
    let forward = repo.is_ancestor(&head, &tip)?;
    let new = match forward {
        true => tip,
        false => {
            let tree = merge_in_memory(&repo, &from, &to, &head, &tip)?;
            let message = format!("Merge {from}\n\nMainstem-Run: {run}\n");
            let parents = [head.clone(), tip];
            let who = repo.identity()?;
            session.claim_root()?;
            let context = build_maintenance_context(&mut session, &run, &machine, exe, env)?;
            let merge = NewCommit {
                tree: &tree,
                parents: &parents,
                message: &message,
                author: &who,
                committer: &who,
                date_ms: clock::now_ms(),
            };
            let merge = context.signer.write_commit(&repo, merge)?;
            let verdict = find_failing_gate(context, &machine, t, &merge, &tree);
            session.layout().release_root();
            refuse_failing_merge(verdict, &from, &to)?;
            merge
        }
    };
    let followers = match repo.lock_checkouts(&to, &head, &new)? {
        CheckoutReadiness::Locked(followers) => followers,
        CheckoutReadiness::Blocked(way) => return Err(BranchLandingError::InTheWay(way)),
    };
    crash::point("bring.before");
    let (name, reason) = (format!("refs/heads/{to}"), format!("mainstem: land {run}"));
    if let RefUpdateOutcome::Refused { .. } = repo.update_ref(&name, &new, Some(&head), &reason)? {
        followers.release();
        return Err(BranchLandingError::Moved(to));
    }
    crash::point("bring.moved");
    let checkout = match repo.update_locked_checkouts(followers, &new)? {
        CheckoutUpdate::NotCheckedOut | CheckoutUpdate::Updated => None,
        CheckoutUpdate::LeftUnchanged { why } | CheckoutUpdate::UpdatedFilesAside { why } => {
            Some(why)
        }
    };
    let message = format!("merged {from} into {to}");
    session.record_step(&run, &mut machine, Input::Notice { task: None, message })?;
    Ok(done(new, !forward, checkout))
}

fn merge_in_memory(
    repo: &Repo,
    from: &str,
    to: &str,
    head: &Oid,
    tip: &Oid,
) -> Result<Oid, BranchLandingError> {
    match repo.merge(head, tip)? {
        GitMergeOutcome::Clean { tree } => Ok(tree),
        GitMergeOutcome::Conflict { files, .. } => {
            Err(BranchLandingError::Conflict { from: from.to_owned(), to: to.to_owned(), files })
        }
    }
}

fn refuse_failing_merge(
    verdict: Result<Option<(String, String)>, String>,
    from: &str,
    to: &str,
) -> Result<(), BranchLandingError> {
    match verdict {
        Ok(None) => Ok(()),
        Ok(Some((gate, log))) => {
            Err(BranchLandingError::Red { from: from.to_owned(), to: to.to_owned(), gate, log })
        }
        Err(why) => Err(BranchLandingError::Unverified(why)),
    }
}

fn read_branch_tip(repo: &Repo, branch: &str) -> Result<Oid, BranchLandingError> {
    let tip = repo.read_ref(&format!("refs/heads/{branch}"))?;
    tip.ok_or_else(|| BranchLandingError::Gone(branch.to_owned()))
}
