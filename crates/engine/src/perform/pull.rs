//! The hands for pull requests: push, find or make, look, merge, bring the target branch here. Each may
//! be done twice: the remote and the forge are asked before and after, and only they say what became of
//! it.

use std::fmt::Write as _;

use mainstem_core::config::Strategy;
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::pull::{
    Check, CheckState, Deed, Mergeable, News, Onto, Push, Review, Sight, State,
};
use mainstem_forge::{
    self as forge, Comment, Forge, ForgeError, Merging, Method, NewPull, PullState, ReviewState,
};
use mainstem_host::git::{Cas, GitError, Merge, Pushed};
use mainstem_host::{crash, process};

use super::{Errand, landing, stack};
use crate::accepted::{Accepted, AcceptedError};
use crate::hub::{Hub, HubError};
use crate::{pull_text, upstream};

/// How often a forge that has not made up its mind about a merge is asked at one look.
const MIND_TRIES: u32 = 4;
const MIND_MS: u64 = 250;
/// Bytes of what one reviewer says that go back to the agent.
const REVIEW_BYTES_MAX: usize = 8_000;
/// Failed checks whose logs are fetched.
const LOGS_MAX: usize = 3;
/// Who is not let in is asked again rarely: a person must help first.
const REFUSED_MS: u64 = 60_000;

/// Why a deed was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("{0}")]
    Other(String),
}

impl PullError {
    /// Asking again hardly helps.
    fn is_final(&self) -> bool {
        matches!(self, Self::Forge(error) if !error.is_transient())
    }

    fn after_ms(&self) -> Option<u64> {
        match self {
            Self::Forge(error) if !error.is_transient() => Some(REFUSED_MS),
            Self::Forge(error) => error.after_ms(),
            Self::Git(_) | Self::Hub(_) | Self::Other(_) => None,
        }
    }
}

/// Does one deed and tells.
pub fn perform(errand: &Errand, deed: &Deed) {
    let Some(hub) = &errand.world.hub else {
        let reason = "no forge is configured: land.mode was different when this run started";
        return errand.tell(failed(errand, reason.to_owned(), None, false));
    };
    let done = match deed {
        Deed::Open { push, closed, onto } => open(errand, hub, push, (closed, onto.as_ref())),
        Deed::Look { number, pushed } => look(errand, hub, *number, pushed.as_ref()),
        Deed::Update { number, head } => update(errand, hub, *number, head),
        Deed::Merge { number, head } => merge(errand, hub, *number, head),
        Deed::Restack { number, pushed, below } => {
            stack::restack(errand, hub, (*number, pushed.as_ref()), below)
        }
    };
    errand.tell(match done {
        Ok(news) => Input::pull(errand.ix, errand.attempt, news),
        Err(error) => failed(errand, error.to_string(), error.after_ms(), error.is_final()),
    });
}

fn failed(errand: &Errand, reason: String, after_ms: Option<u64>, refused: bool) -> Input {
    Input::pull(errand.ix, errand.attempt, News::Failed { reason, after_ms, refused })
}

fn open(
    errand: &Errand,
    hub: &Hub,
    push: &Push,
    (closed, onto): (&[u64], Option<&Onto>),
) -> Result<News, PullError> {
    let repo = &errand.world.repo;
    if let Some(there) = nothing_new(errand, hub, &push.tip)? {
        return Ok(there);
    }
    crash::point("pull.before");
    match repo.push_branch(&hub.remote, &push.branch, &push.tip, push.lease.as_ref())? {
        Pushed::Done => {}
        Pushed::Refused { found } => {
            // A branch that went with its merge looks like one that was never there.
            if let Some(merged) = merged_before(hub, push)? {
                return Ok(opened(&merged, &push.tip, false));
            }
            let ours = match &found {
                Some(commit) => is_ours(errand, commit, &push.tip)?,
                None => true,
            };
            return Ok(News::PushRefused { tip: push.tip.clone(), found, ours });
        }
    }
    crash::point("pull.pushed");
    let new = stack::placed(hub, onto, wording(errand, hub, &push.branch)?)?;
    let found = stack::open_once(hub, new, &push.tip, closed)?;
    crash::point("pull.created");
    if found.pull.state == PullState::Open {
        dress(errand, hub, found.pull.number);
    }
    Ok(opened(&found.pull, &push.tip, found.created))
}

/// A phase that changed nothing has nothing to offer.
fn nothing_new(errand: &Errand, hub: &Hub, tip: &Oid) -> Result<Option<News>, PullError> {
    let repo = &errand.world.repo;
    if errand.task.closes.is_none() {
        return Ok(None);
    }
    let there = hub.fetch_target(repo)?;
    let none = repo.is_ancestor(tip, &there)?;
    Ok(none.then(|| News::Merged { commit: there.clone(), old: there }))
}

/// Where commits of a pull request are kept here that no attempt has made.
pub(super) fn kept_ref(errand: &Errand) -> String {
    format!("refs/mainstem/pulls/{}", errand.task.id)
}

fn opened(pull: &forge::Pull, tip: &Oid, created: bool) -> News {
    News::Opened { number: pull.number, url: pull.url.clone(), created, tip: tip.clone() }
}

/// A pull request that offered exactly this and is merged already.
fn merged_before(hub: &Hub, push: &Push) -> Result<Option<forge::Pull>, PullError> {
    let pulls = hub.forge.pulls_of(&push.branch)?;
    Ok(pulls.into_iter().find(|pull| {
        matches!(pull.state, PullState::Merged { .. }) && pull.head_commit == push.tip.as_str()
    }))
}

/// Whether what is on the remote is on a ref of ours here, so that nothing is lost when it is replaced.
fn is_ours(errand: &Errand, commit: &Oid, tip: &Oid) -> Result<bool, GitError> {
    let repo = &errand.world.repo;
    if !repo.has_object(commit)? {
        return Ok(false);
    }
    if repo.is_ancestor(commit, tip)? {
        return Ok(true);
    }
    let prefix = format!("refs/mainstem/snapshots/{}/", errand.task.id);
    for (_, kept) in repo.list_refs(&prefix)? {
        if repo.is_ancestor(commit, &kept)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn wording(errand: &Errand, hub: &Hub, branch: &str) -> Result<NewPull, PullError> {
    let world = &errand.world;
    let pulls = &world.settings.land.pulls;
    let mut gates = errand.task.verify.clone();
    gates.extend(world.settings.gates.verify.iter().cloned());
    let body = hub.text.body(&errand.task, errand.attempt, &world.run, &gates);
    Ok(NewPull {
        head: branch.to_owned(),
        base: hub.base.clone(),
        title: pull_text::title(&errand.task),
        body: body.map_err(|error| PullError::Other(error.to_string()))?,
        draft: pulls.draft,
        labels: pulls.labels.clone(),
        milestone: pulls.milestone.clone(),
    })
}

/// Labels and milestone are trimmings: without them it lands all the same.
fn dress(errand: &Errand, hub: &Hub, number: u64) {
    let pulls = &errand.world.settings.land.pulls;
    if let Err(error) = hub.forge.dress(number, &pulls.labels, pulls.milestone.as_deref()) {
        errand.tell_notes(vec![format!(
            "cannot set labels or milestone of pull request #{number}: {error}"
        )]);
    }
}

pub(super) fn look(
    errand: &Errand,
    hub: &Hub,
    number: u64,
    pushed: Option<&Oid>,
) -> Result<News, PullError> {
    let mut pull = hub.forge.pull(number)?;
    for tries in 0..MIND_TRIES {
        if pull.state != PullState::Open || pull.mergeable != forge::Mergeable::Unknown {
            break;
        }
        process::pause_ms(MIND_MS << tries);
        pull = hub.forge.pull(number)?;
    }
    let head = Oid::new(pull.head_commit.as_str());
    let state = match &pull.state {
        PullState::Merged { .. } if pull.base != hub.base => {
            State::Elsewhere { branch: pull.base.clone() }
        }
        PullState::Merged { commit } => {
            let (commit, old) = settled(errand, hub, commit, &pull)?;
            State::Merged { commit, old }
        }
        PullState::Closed => State::Closed,
        PullState::Open => State::Open,
    };
    let mut sight = Sight {
        number,
        state,
        ours: true,
        draft: pull.draft,
        mergeable: mergeable(pull.mergeable),
        clash: None,
        checks: Vec::new(),
        reviews: Vec::new(),
        head,
    };
    if sight.state == State::Open {
        sight.ours = builds_on(errand, hub, &pull, pushed)?;
        if sight.mergeable == Mergeable::Conflict {
            sight.clash = clash(errand, hub, &sight.head)?;
        }
        sight.checks = checks(hub.forge.as_ref(), &pull.head_commit)?;
        sight.reviews = reviews(hub.forge.as_ref(), number)?;
    }
    Ok(News::Looked(sight))
}

fn mergeable(theirs: forge::Mergeable) -> Mergeable {
    match theirs {
        forge::Mergeable::Unknown => Mergeable::Unknown,
        forge::Mergeable::Yes => Mergeable::Yes,
        forge::Mergeable::Conflict => Mergeable::Conflict,
        forge::Mergeable::Blocked => Mergeable::Blocked,
        forge::Mergeable::Behind => Mergeable::Behind,
    }
}

/// Whether it offers what we pushed, or something on top of that; which is brought here then.
pub(super) fn builds_on(
    errand: &Errand,
    hub: &Hub,
    pull: &forge::Pull,
    pushed: Option<&Oid>,
) -> Result<bool, PullError> {
    let repo = &errand.world.repo;
    let Some(pushed) = pushed else { return Ok(true) };
    if pushed.as_str() == pull.head_commit {
        return Ok(true);
    }
    let into = kept_ref(errand);
    let found = repo.fetch_branch(&hub.remote, &pull.head, &into)?;
    match found {
        Some(head) if head.as_str() == pull.head_commit => Ok(repo.is_ancestor(pushed, &head)?),
        // It moved between two looks.
        _ => Err(PullError::Other(format!("the branch {} is being moved", pull.head))),
    }
}

/// The target branch and the files that clash with it; none if they do not, as seen from here.
fn clash(errand: &Errand, hub: &Hub, head: &Oid) -> Result<Option<(Oid, Vec<String>)>, PullError> {
    let world = &errand.world;
    let onto = hub.fetch_target(&world.repo)?;
    if !world.repo.has_object(head)? {
        return Ok(None);
    }
    Ok(match world.repo.merge(&onto, head)? {
        Merge::Conflict { files, .. } => Some((onto, files)),
        Merge::Clean { .. } => None,
    })
}

fn checks(forge: &dyn Forge, commit: &str) -> Result<Vec<Check>, PullError> {
    let mut logs = 0;
    let mut seen = Vec::new();
    for check in forge.checks(commit)? {
        let state = match check.state {
            forge::CheckState::Pending => CheckState::Pending,
            forge::CheckState::Passed => CheckState::Passed,
            forge::CheckState::Neutral => CheckState::Neutral,
            forge::CheckState::Failed => CheckState::Failed,
        };
        let mut detail = check.detail;
        if let (CheckState::Failed, Some(job)) = (state, check.job)
            && logs < LOGS_MAX
        {
            logs += 1;
            // A log that is gone, or not for us, is no reason not to say that the check failed.
            if let Ok(log) = forge.job_log(job) {
                let _ = write!(detail, "\n{log}");
            }
        }
        seen.push(Check { name: check.name, state, detail });
    }
    Ok(seen)
}

fn reviews(forge: &dyn Forge, number: u64) -> Result<Vec<Review>, PullError> {
    let reviews = forge.reviews(number)?;
    let asked = reviews.iter().any(|review| review.state == ReviewState::ChangesRequested);
    let comments = if asked { forge.comments(number)? } else { Vec::new() };
    let seen = reviews.into_iter().map(|review| Review {
        id: review.id,
        verdict: match review.state {
            ReviewState::Approved => Some(true),
            ReviewState::ChangesRequested => Some(false),
            ReviewState::Commented | ReviewState::Dismissed => None,
        },
        text: words_of(&review, &comments),
        who: review.who,
    });
    Ok(seen.collect())
}

/// What a reviewer wrote: in general, then on lines, then what was said beside the reviews.
fn words_of(review: &forge::Review, comments: &[Comment]) -> String {
    let mut text = review.body.trim().to_owned();
    for comment in comments {
        let of_review = comment.review == Some(review.id);
        let beside = comment.at.is_none() && comment.who == review.who;
        if !of_review && !beside {
            continue;
        }
        let place = match &comment.at {
            Some((path, Some(line))) => format!("{path}:{line}: "),
            Some((path, None)) => format!("{path}: "),
            None => String::new(),
        };
        let _ = write!(text, "\n{place}{}", comment.body.trim());
    }
    forge::github::read::clip(text.trim(), REVIEW_BYTES_MAX)
}

fn update(errand: &Errand, hub: &Hub, number: u64, head: &Oid) -> Result<News, PullError> {
    match hub.forge.update_branch(number, head.as_str()) {
        // It moved meanwhile, or clashes by now: the look tells.
        Ok(()) | Err(ForgeError::Refused { .. } | ForgeError::Unsure { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    crash::point("pull.updated");
    look(errand, hub, number, Some(head))
}

fn merge(errand: &Errand, hub: &Hub, number: u64, head: &Oid) -> Result<News, PullError> {
    let message = landing::message(&errand.task, errand.attempt, errand);
    let (subject, trailers) = message.split_once("\n\n").unwrap_or((&message, ""));
    let wish = Merging {
        head: head.as_str(),
        method: match errand.world.settings.land.strategy {
            Strategy::Merge => Method::Merge,
            Strategy::Squash => Method::Squash,
            Strategy::Rebase => Method::Rebase,
        },
        title: &format!("{subject} (#{number})"),
        message: trailers,
    };
    crash::point("pull.merge.before");
    let merged = match forge::merge_once(hub.forge.as_ref(), number, &wish) {
        Ok(merged) => merged,
        Err(ForgeError::Refused { why, .. }) => return Ok(News::MergeRefused { why }),
        Err(error) => return Err(error.into()),
    };
    crash::point("pull.merged");
    let pull = hub.forge.pull(number)?;
    let (commit, old) = settled(errand, hub, &merged.commit, &pull)?;
    Ok(News::Merged { commit, old })
}

/// After a merge: its branch goes, the target branch comes here. The landing, and what it landed on.
fn settled(
    errand: &Errand,
    hub: &Hub,
    commit: &str,
    pull: &forge::Pull,
) -> Result<(Oid, Oid), PullError> {
    let world = &errand.world;
    let repo = &world.repo;
    if world.settings.land.pulls.delete_branch {
        // A branch that moved on after the merge holds what nobody has merged.
        match hub.forge.branch(&pull.head) {
            Ok(Some(there)) if there == pull.head_commit => {
                let freed = stack::point_at_target(errand, hub, &pull.head)?;
                if let Err(error) = freed.and_then(|()| hub.forge.delete_branch(&pull.head)) {
                    let message =
                        format!("cannot delete the branch {} on the forge: {error}", pull.head);
                    errand.tell_notes(vec![message]);
                }
            }
            Ok(_) => {}
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(_) => {}
        }
        crash::point("pull.deleted");
        // Git noted the push; what it notes is only that the branch was there.
        let noted = format!("refs/remotes/{}/{}", hub.remote.name(), pull.head);
        let _ = repo.delete_ref(&noted, Some(&Oid::new(pull.head_commit.as_str())))?;
    }
    let tip = hub.fetch_target(repo)?;
    let commit = Oid::new(commit);
    if !repo.has_object(&commit)? || !repo.is_ancestor(&commit, &tip)? {
        let message = format!("{commit} was merged, but is not on {} yet", hub.base);
        return Err(PullError::Other(message));
    }
    crash::point("pull.fetched");
    let old = repo.resolve(&format!("{commit}^1"))?.unwrap_or_else(|| commit.clone());
    if !world.settings.land.pulls.auto_merge {
        accept_merged(errand, &tip);
    }
    bring_along(errand, hub, &tip);
    if errand.task.closes.is_some() {
        advance_line(errand, &Oid::new(pull.head_commit.as_str()), &tip)?;
        crash::point("pull.advanced");
    }
    let _ = repo.delete_ref(&kept_ref(errand), None)?;
    Ok((commit, old))
}

/// Whoever merged the pull request accepted what it makes of settings. Where we merge by ourselves that waited
/// for a person before.
fn accept_merged(errand: &Errand, tip: &Oid) {
    let world = &errand.world;
    let record = Accepted::new(&world.repo, world.layout.state());
    let accept = || -> Result<(), AcceptedError> {
        let mut merged = Vec::new();
        for pending in record.pending(Some(tip))? {
            if world.repo.blob_at(tip, &pending.path)? == pending.blob {
                merged.push(pending);
            }
        }
        if merged.is_empty() { Ok(()) } else { record.accept(&merged) }
    };
    if let Err(error) = accept() {
        errand.tell_notes(vec![format!("settings that were merged are still to accept: {error}")]);
    }
}

/// The user's own branch of that name follows, if it has nothing that the forge does not have. That it
/// stays behind is said and no harm: workspaces begin at what was fetched.
fn bring_along(errand: &Errand, hub: &Hub, tip: &Oid) {
    let why = match upstream::bring_along(&errand.world.repo, &hub.base, tip, "the forge's") {
        Ok(None) => return,
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    errand.tell(Input::CheckoutFollowed { task: errand.ix, moved: false, why });
}

/// After a phase was merged: the next one begins at what the forge made of it. What landed on the line
/// and was not offered stays on it.
fn advance_line(errand: &Errand, offered: &Oid, there: &Oid) -> Result<(), PullError> {
    let world = &errand.world;
    let repo = &world.repo;
    let line = world.target_ref();
    let Some(here) = repo.read_ref(&line)? else { return Ok(()) };
    if repo.is_ancestor(there, &here)? {
        return Ok(());
    }
    let new = if repo.is_ancestor(&here, there)? {
        there.clone()
    } else if repo.has_object(offered)? && repo.is_ancestor(&here, offered)? {
        // Merged in another shape: as it was it stays on a ref.
        repo.keep_as_snapshot(&here, &errand.snapshots(), "before its phase is merged")?;
        there.clone()
    } else {
        let Merge::Clean { tree } = repo.merge(&here, there)? else {
            let message =
                format!("{} does not merge with the merged phase on the forge", world.target);
            return Err(PullError::Other(message));
        };
        let who = repo.identity()?;
        let parents = [here.clone(), there.clone()];
        let date = mainstem_host::clock::now_ms();
        repo.commit_tree(&tree, &parents, "Merge the merged phase\n", &who, &who, date)?
    };
    match repo.update_ref(&line, &new, Some(&here), "mainstem: a phase was merged")? {
        Cas::Moved => Ok(()),
        Cas::Refused { .. } => Err(PullError::Other(format!("{line} is being moved"))),
    }
}
