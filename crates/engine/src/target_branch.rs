//! Where a run's work lands: the branch that is named, else that of the settings, else the one of the
//! checkout in which the run was started; or a branch of the run's own, which `mainstem land` brings over.
//! It is chosen once, for the run's life.

use std::path::PathBuf;

use mainstem_core::config::{CheckoutMode, LandMode, Settings};
use mainstem_core::id::{Oid, RunId};
use mainstem_core::machine::Machine;
use mainstem_host::git::{GitError, RefUpdateOutcome, Repo};

/// Why there is no branch to land on.
#[derive(Debug, thiserror::Error)]
pub enum TargetBranchError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// Nobody says which branch is meant.
    #[error("HEAD is detached, so there is no branch to land on")]
    Detached,
    /// What has a branch of its own never touches a checkout.
    #[error("--branch {branch} is checked out at {}, and --branch never touches a checkout", at.display())]
    CheckedOut { branch: String, at: PathBuf },
    #[error("this run lands on {target}; the target of a run cannot be changed")]
    Fixed { target: String },
    /// A branch of the run's own is not pushed.
    #[error("land.push cannot be combined with a separate branch of the run")]
    Pushed,
    /// No name of a branch.
    #[error("`{0}` is not a valid branch name")]
    BadName(String),
    /// A branch of the run's own is gone, and work had landed on it.
    #[error("the branch {0} of this run, which has landed work, no longer exists")]
    Gone(String),
}

impl TargetBranchError {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Git(_) | Self::BadName(_) => return None,
            Self::Detached => {
                "switch to a branch, or use mainstem run PLAN --branch NAME".to_owned()
            }
            Self::CheckedOut { branch, .. } => {
                format!("use another branch, or run without --branch in a checkout of {branch}")
            }
            Self::Pushed => "remove --branch and land.checkout, or remove land.push".to_owned(),
            Self::Fixed { .. } => {
                "run without --branch, or start a new run: mainstem run --new PLAN --branch NAME"
                    .to_owned()
            }
            Self::Gone(branch) => {
                format!("find the commit with git reflog, then: git branch {branch} COMMIT")
            }
        })
    }
}

/// Where a new run lands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTarget {
    pub branch: String,
    /// Where it stands, or where it is to begin.
    pub base: Oid,
    /// The branch that `mainstem land` brings the work over to; none if it lands there by itself.
    pub bring_to: Option<String>,
}

/// The branch of the checkout we are in, as it is really called.
fn current_branch_name(repo: &Repo) -> Result<Option<String>, GitError> {
    repo.current_branch()?.map(|branch| repo.resolve_branch_alias(&branch)).transpose()
}

/// The branch that is meant if no branch of the run's own is wanted.
fn default_target(repo: &Repo, settings: &Settings) -> Result<Option<String>, GitError> {
    match &settings.land.branch {
        Some(branch) => repo.resolve_branch_alias(branch).map(Some),
        None => current_branch_name(repo),
    }
}

/// Whether a new run gets a branch of its own.
pub fn uses_own_branch(settings: &Settings, named: Option<&str>) -> bool {
    let local = settings.land.mode == LandMode::Local;
    named.is_some() || (local && settings.land.checkout == CheckoutMode::Branch)
}

/// A branch for one run, which is nobody's checkout.
fn choose_own_branch(repo: &Repo, name: &str) -> Result<String, TargetBranchError> {
    if !mainstem_core::config::is_branch_name(name) {
        return Err(TargetBranchError::BadName(name.to_owned()));
    }
    let own = repo.resolve_branch_alias(name)?;
    if let Some(at) = repo.find_checkout(&own)? {
        return Err(TargetBranchError::CheckedOut { branch: own, at });
    }
    repo.ensure_branch_name_free(&own)?;
    Ok(own)
}

/// The branch that a new run starts from, and its commit if it has one yet. Looks only.
pub fn find_starting_point(
    repo: &Repo,
    settings: &Settings,
    named: Option<&str>,
) -> Result<(String, Option<Oid>), TargetBranchError> {
    let tip = |branch: &str| repo.read_ref(&format!("refs/heads/{branch}"));
    let usual = default_target(repo, settings)?;
    if let Some(named) = named {
        let own = choose_own_branch(repo, named)?;
        if let Some(tip) = tip(&own)? {
            return Ok((own, Some(tip)));
        }
    }
    match usual {
        Some(branch) => {
            let tip = tip(&branch)?;
            Ok((branch, tip))
        }
        None if uses_own_branch(settings, named) => {
            Ok(("HEAD".to_owned(), repo.resolve_commit("HEAD")?))
        }
        None => Err(TargetBranchError::Detached),
    }
}

/// Chooses where a new run lands.
pub fn choose_run_target(
    repo: &Repo,
    settings: &Settings,
    named: Option<&str>,
    run: &RunId,
) -> Result<RunTarget, TargetBranchError> {
    let usual = default_target(repo, settings)?;
    if !uses_own_branch(settings, named) {
        let branch = usual.ok_or(TargetBranchError::Detached)?;
        let base = repo.ensure_first_commit(&branch)?;
        return Ok(RunTarget { branch, base, bring_to: None });
    }
    let own =
        choose_own_branch(repo, &named.map_or_else(|| format!("mainstem/{run}"), str::to_owned))?;
    let base = match repo.read_ref(&format!("refs/heads/{own}"))? {
        Some(tip) => tip,
        None => match &usual {
            Some(branch) => repo.ensure_first_commit(branch)?,
            None => repo.resolve_commit("HEAD")?.ok_or(TargetBranchError::Detached)?,
        },
    };
    Ok(RunTarget { bring_to: usual.filter(|branch| *branch != own), branch: own, base })
}

/// Sees to it that the target of a run is the one that is asked for, and that a branch of its own is there.
pub fn ensure_target(
    repo: &Repo,
    machine: &Machine,
    named: Option<&str>,
) -> Result<(), TargetBranchError> {
    let target = machine.target_branch();
    if named.is_some_and(|name| name != target) {
        return Err(TargetBranchError::Fixed { target: target.to_owned() });
    }
    let (Some(_), Some(base)) = (machine.bring_to(), machine.run_base()) else { return Ok(()) };
    let name = format!("refs/heads/{target}");
    if repo.read_ref(&name)?.is_some() {
        return Ok(());
    }
    let landed = |t| machine.tasks().get(t).landed.is_some();
    if machine.tasks().all_tasks().any(landed) {
        return Err(TargetBranchError::Gone(target.to_owned()));
    }
    match repo.update_ref(&name, base, None, "mainstem: branch of a run")? {
        RefUpdateOutcome::Moved | RefUpdateOutcome::Refused { .. } => Ok(()),
    }
}
