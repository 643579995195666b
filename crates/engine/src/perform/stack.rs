//! The hands for stacks of pull requests: where one goes, what is stacked on a merged one, and how work
//! goes from what it was stacked on to the target branch. Each may be done twice. Decides nothing.

use mainstem_core::config::Strategy;
use mainstem_core::id::Oid;
use mainstem_core::pull::{News, Onto};
use mainstem_forge::{self as forge, ForgeError, NewPull, Opened, PullState};
use mainstem_host::crash;
use mainstem_host::git::{Cas, Merge, Replay, Repo};

use super::Errand;
use super::pull::{PullError, builds_on, kept_ref, look};
use crate::hub::Hub;

/// A pull request that is stacked goes into the branch of the one below, as long as there is such a
/// branch.
pub(super) fn placed(hub: &Hub, onto: Option<&Onto>, new: NewPull) -> Result<NewPull, PullError> {
    let Some(onto) = onto else { return Ok(new) };
    if hub.forge.branch(&onto.branch)?.is_none() {
        return Ok(new);
    }
    let mut new = NewPull { base: onto.branch.clone(), ..new };
    if let Some(number) = onto.number {
        new.body = format!("{}\n\nBuilds on #{number}.\n", new.body.trim_end());
    }
    Ok(new)
}

/// Finds the pull request or makes it. The branch below may go between two questions, and then it goes to
/// the target branch.
pub(super) fn open_once(
    hub: &Hub,
    new: NewPull,
    tip: &Oid,
    closed: &[u64],
) -> Result<Opened, PullError> {
    let forge = hub.forge.as_ref();
    match forge::open_once(forge, &new, tip.as_str(), closed) {
        Err(ForgeError::Refused { .. })
            if new.base != hub.base && forge.branch(&new.base)?.is_none() =>
        {
            let new = NewPull { base: hub.base.clone(), ..new };
            Ok(forge::open_once(forge, &new, tip.as_str(), closed)?)
        }
        found => Ok(found?),
    }
}

/// Before the branch of a merged pull request goes, whatever goes into it is pointed at the target
/// branch: a forge may close it otherwise. The inner error says that the branch must stay.
pub(super) fn point_at_target(
    errand: &Errand,
    hub: &Hub,
    branch: &str,
) -> Result<Result<(), ForgeError>, PullError> {
    if !errand.world.settings.land.pulls.stacked {
        return Ok(Ok(()));
    }
    for pull in hub.forge.pulls_into(branch)? {
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
pub(super) fn restack(
    errand: &Errand,
    hub: &Hub,
    (number, pushed): (u64, Option<&Oid>),
    below: &Oid,
) -> Result<News, PullError> {
    let repo = &errand.world.repo;
    let pull = hub.forge.pull(number)?;
    if pull.state != PullState::Open || !builds_on(errand, hub, &pull, pushed)? {
        return look(errand, hub, number, pushed);
    }
    let head = Oid::new(pull.head_commit.as_str());
    let onto = hub.fetch_target(repo)?;
    // Merged as it was offered, it is where the two meet anyway.
    if repo.is_ancestor(below, &onto)? || !repo.is_ancestor(below, &head)? {
        return Ok(News::Restacked { tip: head.clone(), head });
    }
    let tree = match repo.merge_from(below, &onto, &head)? {
        Merge::Clean { tree } => tree,
        Merge::Conflict { files, .. } => return Ok(News::RestackClashed { head, onto, files }),
    };
    let tip = if errand.world.settings.land.strategy == Strategy::Rebase {
        replayed(repo, (below, &head), &onto, &tree)?
    } else {
        let message = format!("Merge {} into {}\n", hub.base, pull.head);
        repo.commit_merge(&tree, [&head, &onto], &message)?
    };
    keep(errand, &tip)?;
    crash::point("pull.restacked");
    Ok(News::Restacked { head, tip })
}

/// A forge that rebases drops merges, and with them what they say of the pull request below: the work's
/// own commits go onto the target branch here. As one, if not each of them fits by itself.
fn replayed(
    repo: &Repo,
    (below, head): (&Oid, &Oid),
    onto: &Oid,
    tree: &Oid,
) -> Result<Oid, PullError> {
    if let Replay::Clean { tip } = repo.replay(below, head, onto)?
        && repo.tree_of(&tip)? == *tree
    {
        return Ok(tip);
    }
    Ok(repo.copy_onto(head, tree, onto)?)
}

/// What no workspace has is on a ref until it is merged.
fn keep(errand: &Errand, tip: &Oid) -> Result<(), PullError> {
    let (repo, name) = (&errand.world.repo, kept_ref(errand));
    let before = repo.read_ref(&name)?;
    match repo.update_ref(&name, tip, before.as_ref(), "mainstem: a stack moves up")? {
        Cas::Moved => Ok(()),
        Cas::Refused { .. } => Err(PullError::Other(format!("{name} is being moved"))),
    }
}
