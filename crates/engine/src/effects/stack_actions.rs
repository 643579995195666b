//! The hands for stacks of pull requests: where one goes, what is stacked on a merged one, and how work
//! goes from what it was stacked on to the target branch. Each may be done twice. Decides nothing.

use mainstem_core::config::LandStrategy;
use mainstem_core::id::Oid;
use mainstem_core::pull_request::{ForgeActionResult, PullRequestBase};
use mainstem_forge::{
    self as forge, ForgeError, ForgePullRequestState, NewPullRequest, OpenedPullRequest,
};
use mainstem_host::crash;
use mainstem_host::git::{GitMergeOutcome, GitReplayOutcome, RefUpdateOutcome, Repo};

use super::EffectContext;
use super::forge_actions::{
    PullRequestError, extends_pushed_commit, inspect_pull_request, kept_ref_name,
};
use crate::forge_connection::ForgeConnection;

/// A pull request that is stacked goes into the branch of the one below, as long as there is such a
/// branch.
pub(super) fn choose_stack_base(
    hub: &ForgeConnection,
    onto: Option<&PullRequestBase>,
    new: NewPullRequest,
) -> Result<NewPullRequest, PullRequestError> {
    let Some(onto) = onto else { return Ok(new) };
    if hub.forge.branch_commit(&onto.branch)?.is_none() {
        return Ok(new);
    }
    let mut new = NewPullRequest { base: onto.branch.clone(), ..new };
    if let Some(number) = onto.number {
        new.body = format!("{}\n\nBuilds on #{number}.\n", new.body.trim_end());
    }
    Ok(new)
}

/// Finds the pull request or makes it. The branch below may go between two questions, and then it goes to
/// the target branch.
pub(super) fn open_stacked_pull_request(
    hub: &ForgeConnection,
    new: NewPullRequest,
    tip: &Oid,
    closed: &[u64],
) -> Result<OpenedPullRequest, PullRequestError> {
    let forge = hub.forge.as_ref();
    match forge::open_pull_request_once(forge, &new, tip.as_str(), closed) {
        Err(ForgeError::Refused { .. })
            if new.base != hub.base && forge.branch_commit(&new.base)?.is_none() =>
        {
            let new = NewPullRequest { base: hub.base.clone(), ..new };
            Ok(forge::open_pull_request_once(forge, &new, tip.as_str(), closed)?)
        }
        found => Ok(found?),
    }
}

/// Before the branch of a merged pull request goes, whatever goes into it is pointed at the target
/// branch: a forge may close it otherwise. The inner error says that the branch must stay.
pub(super) fn retarget_stacked(
    errand: &EffectContext,
    hub: &ForgeConnection,
    branch: &str,
) -> Result<Result<(), ForgeError>, PullRequestError> {
    if !errand.engine.settings.land.pulls.stacked {
        return Ok(Ok(()));
    }
    for pull in hub.forge.pull_requests_into(branch)? {
        match hub.forge.retarget(pull.number, &hub.base) {
            Ok(()) => crash::point("pull.retargeted"),
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

/// Makes what a pull request is to offer now that the one below it is merged: its own work, seen from
/// the commit of the other that it contains, together with the target branch.
pub(super) fn restack_work(
    errand: &EffectContext,
    hub: &ForgeConnection,
    (number, pushed): (u64, Option<&Oid>),
    below: &Oid,
) -> Result<ForgeActionResult, PullRequestError> {
    let repo = &errand.engine.repo;
    let pull = hub.forge.get_pull_request(number)?;
    if pull.state != ForgePullRequestState::Open
        || !extends_pushed_commit(errand, hub, &pull, pushed)?
    {
        return inspect_pull_request(errand, hub, number, pushed);
    }
    let head = Oid::new(pull.head_commit.as_str());
    let onto = hub.fetch_target(repo)?;
    // Merged as it was offered, it is where the two meet anyway.
    if repo.is_ancestor(below, &onto)? || !repo.is_ancestor(below, &head)? {
        return Ok(ForgeActionResult::Restacked { tip: head.clone(), head });
    }
    let tree = match repo.merge_with_base(below, &onto, &head)? {
        GitMergeOutcome::Clean { tree } => tree,
        GitMergeOutcome::Conflict { files, .. } => {
            return Ok(ForgeActionResult::RestackClashed { head, onto, files });
        }
    };
    let tip = if errand.engine.settings.land.strategy == LandStrategy::Rebase {
        replay_stacked_work(repo, (below, &head), &onto, &tree)?
    } else {
        let message = format!("Merge {} into {}\n", hub.base, pull.head);
        repo.commit_merge(&tree, [&head, &onto], &message)?
    };
    keep_restacked_commit(errand, &tip)?;
    crash::point("pull.restacked");
    Ok(ForgeActionResult::Restacked { head, tip })
}

/// A forge that rebases drops merges, and with them what they say of the pull request below: the work's
/// own commits go onto the target branch here. As one, if not each of them fits by itself.
fn replay_stacked_work(
    repo: &Repo,
    (below, head): (&Oid, &Oid),
    onto: &Oid,
    tree: &Oid,
) -> Result<Oid, PullRequestError> {
    if let GitReplayOutcome::Clean { tip } = repo.replay_commits(below, head, onto)?
        && repo.tree_of(&tip)? == *tree
    {
        return Ok(tip);
    }
    Ok(repo.copy_commit_onto(head, tree, onto)?)
}

/// What no workspace has is on a ref until it is merged.
fn keep_restacked_commit(errand: &EffectContext, tip: &Oid) -> Result<(), PullRequestError> {
    let (repo, name) = (&errand.engine.repo, kept_ref_name(errand));
    let before = repo.read_ref(&name)?;
    match repo.update_ref(&name, tip, before.as_ref(), "mainstem: a stack moves up")? {
        RefUpdateOutcome::Moved => Ok(()),
        RefUpdateOutcome::Refused { .. } => {
            Err(PullRequestError::Other(format!("{name} is being moved")))
        }
    }
}
