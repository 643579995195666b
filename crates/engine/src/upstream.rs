//! The remote that landings are pushed to (`land.push`), and where its branch was last seen. The branch
//! there moves only from that very commit, and only to one that has it: nothing is ever forced.

use std::sync::{Mutex, PoisonError};

use mainstem_core::config::Settings;
use mainstem_core::id::Oid;
use mainstem_core::publish::PushRefusal;
use mainstem_host::clock;
use mainstem_host::git::{
    BranchPublishOutcome, CheckoutReadiness, CheckoutUpdate, GitError, GitRemote, RefUpdateOutcome,
    Repo,
};

use crate::forge_connection::forge_target_ref;

/// What was seen so recently is not asked for again before something is merged onto it. A push finds out
/// for certain.
const FRESH_MS: i64 = 15_000;

/// Words of git and of ssh when somebody is not let in.
const NOT_LET_IN: &[&str] = &[
    "Permission denied",
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "terminal prompts disabled",
    "Host key verification failed",
    "error: 401",
    "error: 403",
];

/// Why nothing can be pushed in this run.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such remote.
    #[error("unknown git remote `{0}` (land.push)")]
    NoRemote(String),
    /// Each has commits that the other does not have.
    #[error("{target} and {branch} of {remote} have diverged")]
    Apart { target: String, branch: String, remote: String },
}

impl UpstreamError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Git(_) => None,
            Self::NoRemote(name) => Some(format!("git remote add {name} URL, or set land.push")),
            Self::Apart { branch, remote, .. } => Some(format!(
                "git pull --rebase {remote} {branch}, or git pull --no-rebase {remote} {branch}"
            )),
        }
    }
}

/// A branch on a remote that follows the target branch.
#[derive(Debug)]
pub struct UpstreamBranch {
    remote: GitRemote,
    branch: String,
    fetched_at_ms: Mutex<Option<i64>>,
}

/// What became of pushing a landing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamPushOutcome {
    /// The remote has it.
    Done,
    /// Somebody else was first; what they pushed is here now.
    Elsewhere,
}

impl UpstreamBranch {
    /// The one that the settings name; none if nothing is pushed. Nothing is asked of it yet.
    pub fn connect(
        repo: &Repo,
        settings: &Settings,
        target: &str,
    ) -> Result<Option<Self>, UpstreamError> {
        let Some(push) = &settings.land.push else { return Ok(None) };
        if repo.read_remote_url(&push.remote)?.is_none() {
            return Err(UpstreamError::NoRemote(push.remote.clone()));
        }
        let branch = push.branch.clone().unwrap_or_else(|| target.to_owned());
        Ok(Some(Self {
            remote: GitRemote::new(&push.remote),
            branch,
            fetched_at_ms: Mutex::default(),
        }))
    }

    /// The same, with its branch as it is now, which the target branch follows; and what is to be said
    /// of it. A remote that is away holds up nobody but landings. What has gone apart is no ground to
    /// begin on; what has begun goes on, on what others see.
    pub fn connect_and_sync(
        repo: &Repo,
        settings: &Settings,
        target: &str,
        begun: bool,
    ) -> Result<(Option<Self>, Option<String>), UpstreamError> {
        let Some(upstream) = Self::connect(repo, settings, target)? else {
            return Ok((None, None));
        };
        let there = match upstream.fetch_branch(repo) {
            Ok(Some(there)) => there,
            Ok(None) => return Ok((Some(upstream), None)),
            Err(error) => {
                let reason = upstream.unreachable_refusal(&error).reason;
                let trouble = format!("{reason}; agents continue, landings wait");
                return Ok((Some(upstream), Some(trouble)));
            }
        };
        update_user_branch(repo, target, &there, &format!("{}'s", upstream.remote_name()))?;
        let apart = match repo.read_ref(&format!("refs/heads/{target}"))? {
            Some(here) => !repo.is_ancestor(&there, &here)?,
            None => false,
        };
        let (branch, remote) = (upstream.branch.clone(), upstream.remote_name().to_owned());
        let error = UpstreamError::Apart { target: target.to_owned(), branch, remote };
        match (apart, begun) {
            (false, _) => Ok((Some(upstream), None)),
            (true, false) => Err(error),
            (true, true) => {
                let trouble = format!("{error}; landings continue from the remote branch");
                Ok((Some(upstream), Some(trouble)))
            }
        }
    }

    pub fn remote_name(&self) -> &str {
        self.remote.name()
    }
    pub fn branch_name(&self) -> &str {
        &self.branch
    }

    /// Where the branch was last seen; none if it was not there.
    pub fn last_seen_commit(&self, repo: &Repo) -> Result<Option<Oid>, GitError> {
        repo.read_ref(&forge_target_ref(&self.branch))
    }

    /// Asks where the branch is and brings its commits here.
    pub fn fetch_branch(&self, repo: &Repo) -> Result<Option<Oid>, GitError> {
        let into = forge_target_ref(&self.branch);
        let found = repo.fetch_branch(&self.remote, &self.branch, &into)?;
        if found.is_none() {
            let _ = repo.delete_ref(&into, None)?;
        }
        self.record_fetch_time();
        Ok(found)
    }

    /// The same, unless it was done a moment ago. That it cannot be done now is found out for certain
    /// when something is pushed.
    pub fn refresh_if_stale(&self, repo: &Repo) {
        let fresh = |at: i64| clock::now_ms().saturating_sub(at) < FRESH_MS;
        let known = self.fetched_at_ms.lock().is_ok_and(|asked| asked.is_some_and(fresh));
        if !known {
            let _ = self.fetch_branch(repo);
            // Asked in vain is asked: the next one need not wait for the same silence.
            self.record_fetch_time();
        }
    }

    fn record_fetch_time(&self) {
        if let Ok(mut asked) = self.fetched_at_ms.lock() {
            *asked = Some(clock::now_ms());
        }
    }

    /// Where work lands now: on the target branch if that has all that the remote has, else on what the
    /// remote has.
    pub fn landing_head(&self, repo: &Repo, local: Oid) -> Result<Oid, GitError> {
        match self.last_seen_commit(repo)? {
            Some(there) if !repo.is_ancestor(&there, &local)? => Ok(there),
            _ => Ok(local),
        }
    }

    /// Whether the remote has this commit on its branch, as far as was seen.
    pub fn has_commit(&self, repo: &Repo, commit: &Oid) -> Result<bool, GitError> {
        match self.last_seen_commit(repo)? {
            Some(there) => repo.is_ancestor(commit, &there),
            None => Ok(false),
        }
    }

    /// Moves the branch there to `new`, or finds that it has it.
    pub fn push_landing(&self, repo: &Repo, new: &Oid) -> Result<UpstreamPushOutcome, PushRefusal> {
        let git = |error: GitError| self.unreachable_refusal(&error);
        let lease = self.last_seen_commit(repo).map_err(git)?;
        if let Some(there) = &lease {
            if repo.is_ancestor(new, there).map_err(git)? {
                return Ok(UpstreamPushOutcome::Done);
            }
            if !repo.is_ancestor(there, new).map_err(git)? {
                return Ok(UpstreamPushOutcome::Elsewhere);
            }
        }
        match repo.publish_branch(&self.remote, &self.branch, new, lease.as_ref()).map_err(git)? {
            BranchPublishOutcome::Done => {
                mainstem_host::crash::point("upstream.pushed");
                let name = forge_target_ref(&self.branch);
                // Whoever fetched meanwhile saw the same, or more.
                let _ =
                    repo.update_ref(&name, new, lease.as_ref(), "mainstem: pushed").map_err(git)?;
                self.record_fetch_time();
                Ok(UpstreamPushOutcome::Done)
            }
            BranchPublishOutcome::Moved { .. } => {
                let there = self.fetch_branch(repo).map_err(git)?;
                let has = match &there {
                    Some(there) => repo.is_ancestor(new, there).map_err(git)?,
                    None => false,
                };
                Ok(if has { UpstreamPushOutcome::Done } else { UpstreamPushOutcome::Elsewhere })
            }
            BranchPublishOutcome::Denied(error) => {
                let (remote, branch) = (self.remote_name(), &self.branch);
                Err(PushRefusal {
                    reason: format!(
                        "{remote} rejected the push to {branch}: {}",
                        git_error_text(&error)
                    ),
                    help: self.describe_failure(&error, true),
                    heard: true,
                })
            }
        }
    }

    /// A remote of which nobody knows what it has or wants.
    pub fn unreachable_refusal(&self, error: &GitError) -> PushRefusal {
        PushRefusal {
            reason: format!("cannot reach {}: {}", self.remote_name(), git_error_text(error)),
            help: self.describe_failure(error, false),
            heard: false,
        }
    }

    fn describe_failure(&self, error: &GitError, heard: bool) -> String {
        let (remote, branch) = (self.remote_name(), &self.branch);
        let words = git_error_text(error);
        if NOT_LET_IN.iter().any(|word| words.contains(word)) {
            format!("log in, so that `git push --dry-run {remote} {branch}` works without a prompt")
        } else if heard {
            format!("check the rules of {remote} for {branch}")
        } else {
            format!("check that `git ls-remote {remote}` works")
        }
    }
}

/// What git and the remote said, without our command.
fn git_error_text(error: &GitError) -> String {
    let words = match error {
        GitError::Failed { stderr, .. } if !stderr.trim().is_empty() => stderr.clone(),
        other => other.to_string(),
    };
    words.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The user's own branch follows to `tip`, if it has nothing that `whose` does not have; why it did not.
pub fn update_user_branch(
    repo: &Repo,
    target: &str,
    tip: &Oid,
    whose: &str,
) -> Result<Option<String>, GitError> {
    // Two pull requests may be merged at once: one of them would hold what the other is about to leave.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("refs/heads/{target}");
    let Some(here) = repo.read_ref(&name)? else { return Ok(None) };
    if here == *tip || repo.is_ancestor(tip, &here)? {
        return Ok(None);
    }
    if !repo.is_ancestor(&here, tip)? {
        return Ok(Some(format!("your branch {target} has commits that {whose} does not have")));
    }
    let followers = match repo.lock_checkouts(target, &here, tip)? {
        CheckoutReadiness::Locked(followers) => followers,
        CheckoutReadiness::Blocked(way) => {
            return Ok(Some(format!("your branch {target} was not updated: {way}")));
        }
    };
    match repo.update_ref(&name, tip, Some(&here), &format!("mainstem: as {whose}"))? {
        RefUpdateOutcome::Moved => {}
        RefUpdateOutcome::Refused { .. } => {
            followers.release();
            return Ok(None);
        }
    }
    mainstem_host::crash::point("along.moved");
    Ok(match repo.update_locked_checkouts(followers, tip)? {
        CheckoutUpdate::NotCheckedOut | CheckoutUpdate::Updated => None,
        CheckoutUpdate::LeftUnchanged { why } | CheckoutUpdate::UpdatedFilesAside { why } => {
            Some(why)
        }
    })
}
