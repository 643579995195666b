//! The hands for pull requests: push, find or make, look, merge, bring the target branch here. Each may
//! be done twice: the remote and the forge are asked before and after, and only they say what became of
//! it.

use std::fmt::Write as _;

use mainstem_core::config::LandStrategy;
use mainstem_core::id::Oid;
use mainstem_core::machine::Input;
use mainstem_core::pull_request::{
    ForgeAction, ForgeActionResult, ObservedCheckState, ObservedPullCheck, ObservedPullReview,
    ObservedPullState, PullRequestBase, PullRequestMergeability, PullRequestObservation,
    PullRequestPush,
};
use mainstem_forge::{
    self as forge, Forge, ForgeComment, ForgeError, ForgeMergeOptions, ForgePullRequestState,
    ForgeReviewState, MergeMethod, NewPullRequest,
};
use mainstem_host::git::{BranchPushOutcome, GitError, GitMergeOutcome, RefUpdateOutcome};
use mainstem_host::{crash, process};

use super::{EffectContext, landing, stack_actions};
use crate::accepted_files::{AcceptedFiles, AcceptedFilesError};
use crate::forge_connection::{ForgeConnection, ForgeConnectionError};
use crate::{pull_request_text, upstream};

/// How often a forge that has not made up its mind about a merge is asked at one look.
const MERGEABILITY_TRIES: u32 = 4;
const MERGEABILITY_WAIT_MS: u64 = 250;
/// Bytes of what one reviewer says that go back to the agent.
const REVIEW_BYTES_MAX: usize = 8_000;
/// Failed checks whose logs are fetched.
const LOGS_MAX: usize = 3;
/// Who is not let in is asked again rarely: a person must help first.
const REFUSED_MS: u64 = 60_000;

/// Why a deed was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullRequestError {
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Hub(#[from] ForgeConnectionError),
    #[error("{0}")]
    Other(String),
}

impl PullRequestError {
    /// Asking again hardly helps.
    fn is_final(&self) -> bool {
        matches!(self, Self::Forge(error) if !error.is_transient())
    }

    fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::Forge(error) if !error.is_transient() => Some(REFUSED_MS),
            Self::Forge(error) => error.retry_after_ms(),
            Self::Git(_) | Self::Hub(_) | Self::Other(_) => None,
        }
    }
}

/// Does one deed and tells.
pub fn perform_forge_action(errand: &EffectContext, deed: &ForgeAction) {
    let Some(hub) = &errand.engine.forge_connection else {
        let reason = "no forge is configured: land.mode was different when this run started";
        return errand.send_input(failed_input(errand, reason.to_owned(), None, false));
    };
    let done = match deed {
        ForgeAction::Open { push, closed, onto } => {
            open_pull_request(errand, hub, push, (closed, onto.as_ref()))
        }
        ForgeAction::Look { number, pushed } => {
            inspect_pull_request(errand, hub, *number, pushed.as_ref())
        }
        ForgeAction::Update { number, head } => update_pull_request(errand, hub, *number, head),
        ForgeAction::Merge { number, head } => merge_pull_request(errand, hub, *number, head),
        ForgeAction::Restack { number, pushed, below } => {
            stack_actions::restack_work(errand, hub, (*number, pushed.as_ref()), below)
        }
    };
    errand.send_input(match done {
        Ok(news) => Input::forge_action_done(errand.ix, errand.attempt, news),
        Err(error) => {
            failed_input(errand, error.to_string(), error.retry_after_ms(), error.is_final())
        }
    });
}

fn failed_input(
    errand: &EffectContext,
    reason: String,
    after_ms: Option<u64>,
    refused: bool,
) -> Input {
    Input::forge_action_done(
        errand.ix,
        errand.attempt,
        ForgeActionResult::Failed { reason, after_ms, refused },
    )
}

fn open_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    push: &PullRequestPush,
    (closed, onto): (&[u64], Option<&PullRequestBase>),
) -> Result<ForgeActionResult, PullRequestError> {
    let repo = &errand.engine.repo;
    if let Some(there) = report_if_unchanged(errand, hub, &push.tip)? {
        return Ok(there);
    }
    crash::point("pull.before");
    match repo.push_branch(&hub.remote, &push.branch, &push.tip, push.lease.as_ref())? {
        BranchPushOutcome::Done => {}
        BranchPushOutcome::Refused { found } => {
            // A branch that went with its merge looks like one that was never there.
            if let Some(merged) = find_merged_pull_request(hub, push)? {
                return Ok(opened_result(&merged, &push.tip, false));
            }
            let ours = match &found {
                Some(commit) => is_kept_here(errand, commit, &push.tip)?,
                None => true,
            };
            return Ok(ForgeActionResult::PushRefused { tip: push.tip.clone(), found, ours });
        }
    }
    crash::point("pull.pushed");
    let new = stack_actions::choose_stack_base(
        hub,
        onto,
        build_pull_request(errand, hub, &push.branch)?,
    )?;
    let found = stack_actions::open_stacked_pull_request(hub, new, &push.tip, closed)?;
    crash::point("pull.created");
    if found.pull.state == ForgePullRequestState::Open {
        set_labels(errand, hub, found.pull.number);
    }
    Ok(opened_result(&found.pull, &push.tip, found.created))
}

/// A phase that changed nothing has nothing to offer.
fn report_if_unchanged(
    errand: &EffectContext,
    hub: &ForgeConnection,
    tip: &Oid,
) -> Result<Option<ForgeActionResult>, PullRequestError> {
    let repo = &errand.engine.repo;
    if errand.task.closes.is_none() {
        return Ok(None);
    }
    let there = hub.fetch_target(repo)?;
    let none = repo.is_ancestor(tip, &there)?;
    Ok(none.then(|| ForgeActionResult::Merged { commit: there.clone(), old: there }))
}

/// Where commits of a pull request are kept here that no attempt has made.
pub(super) fn kept_ref_name(errand: &EffectContext) -> String {
    format!("refs/mainstem/pulls/{}", errand.task.id)
}

fn opened_result(pull: &forge::ForgePullRequest, tip: &Oid, created: bool) -> ForgeActionResult {
    ForgeActionResult::Opened {
        number: pull.number,
        url: pull.url.clone(),
        created,
        tip: tip.clone(),
    }
}

/// A pull request that offered exactly this and is merged already.
fn find_merged_pull_request(
    hub: &ForgeConnection,
    push: &PullRequestPush,
) -> Result<Option<forge::ForgePullRequest>, PullRequestError> {
    let pulls = hub.forge.pull_requests_from(&push.branch)?;
    Ok(pulls.into_iter().find(|pull| {
        matches!(pull.state, ForgePullRequestState::Merged { .. })
            && pull.head_commit == push.tip.as_str()
    }))
}

/// Whether what is on the remote is on a ref of ours here, so that nothing is lost when it is replaced.
fn is_kept_here(errand: &EffectContext, commit: &Oid, tip: &Oid) -> Result<bool, GitError> {
    let repo = &errand.engine.repo;
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

fn build_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    branch: &str,
) -> Result<NewPullRequest, PullRequestError> {
    let world = &errand.engine;
    let pulls = &world.settings.land.pulls;
    let mut gates = errand.task.verify.clone();
    gates.extend(world.settings.gates.verify.iter().cloned());
    let body = hub.text.render_body(&errand.task, errand.attempt, &world.run, &gates);
    Ok(NewPullRequest {
        head: branch.to_owned(),
        base: hub.base.clone(),
        title: pull_request_text::pull_request_title(&errand.task),
        body: body.map_err(|error| PullRequestError::Other(error.to_string()))?,
        draft: pulls.draft,
        labels: pulls.labels.clone(),
        milestone: pulls.milestone.clone(),
    })
}

/// Labels and milestone are trimmings: without them it lands all the same.
fn set_labels(errand: &EffectContext, hub: &ForgeConnection, number: u64) {
    let pulls = &errand.engine.settings.land.pulls;
    if let Err(error) = hub.forge.set_labels(number, &pulls.labels, pulls.milestone.as_deref()) {
        errand.send_notices(vec![format!(
            "cannot set labels or milestone of pull request #{number}: {error}"
        )]);
    }
}

pub(super) fn inspect_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    number: u64,
    pushed: Option<&Oid>,
) -> Result<ForgeActionResult, PullRequestError> {
    let mut pull = hub.forge.get_pull_request(number)?;
    for tries in 0..MERGEABILITY_TRIES {
        if pull.state != ForgePullRequestState::Open
            || pull.mergeable != forge::ForgeMergeability::Unknown
        {
            break;
        }
        process::sleep_ms(MERGEABILITY_WAIT_MS << tries);
        pull = hub.forge.get_pull_request(number)?;
    }
    let head = Oid::new(pull.head_commit.as_str());
    let state = match &pull.state {
        ForgePullRequestState::Merged { .. } if pull.base != hub.base => {
            ObservedPullState::Elsewhere { branch: pull.base.clone() }
        }
        ForgePullRequestState::Merged { commit } => {
            let (commit, old) = finish_merged_pull_request(errand, hub, commit, &pull)?;
            ObservedPullState::Merged { commit, old }
        }
        ForgePullRequestState::Closed => ObservedPullState::Closed,
        ForgePullRequestState::Open => ObservedPullState::Open,
    };
    let mut sight = PullRequestObservation {
        number,
        state,
        ours: true,
        draft: pull.draft,
        mergeable: convert_mergeability(pull.mergeable),
        conflict: None,
        checks: Vec::new(),
        reviews: Vec::new(),
        head,
    };
    if sight.state == ObservedPullState::Open {
        sight.ours = extends_pushed_commit(errand, hub, &pull, pushed)?;
        if sight.mergeable == PullRequestMergeability::Conflict {
            sight.conflict = find_conflict(errand, hub, &sight.head)?;
        }
        sight.checks = read_checks(hub.forge.as_ref(), &pull.head_commit)?;
        sight.reviews = read_reviews(hub.forge.as_ref(), number)?;
    }
    Ok(ForgeActionResult::Looked(sight))
}

fn convert_mergeability(theirs: forge::ForgeMergeability) -> PullRequestMergeability {
    match theirs {
        forge::ForgeMergeability::Unknown => PullRequestMergeability::Unknown,
        forge::ForgeMergeability::Yes => PullRequestMergeability::Yes,
        forge::ForgeMergeability::Conflict => PullRequestMergeability::Conflict,
        forge::ForgeMergeability::Blocked => PullRequestMergeability::Blocked,
        forge::ForgeMergeability::Behind => PullRequestMergeability::Behind,
    }
}

/// Whether it offers what we pushed, or something on top of that; which is brought here then.
pub(super) fn extends_pushed_commit(
    errand: &EffectContext,
    hub: &ForgeConnection,
    pull: &forge::ForgePullRequest,
    pushed: Option<&Oid>,
) -> Result<bool, PullRequestError> {
    let repo = &errand.engine.repo;
    let Some(pushed) = pushed else { return Ok(true) };
    if pushed.as_str() == pull.head_commit {
        return Ok(true);
    }
    let into = kept_ref_name(errand);
    let found = repo.fetch_branch(&hub.remote, &pull.head, &into)?;
    match found {
        Some(head) if head.as_str() == pull.head_commit => Ok(repo.is_ancestor(pushed, &head)?),
        // It moved between two looks.
        _ => Err(PullRequestError::Other(format!("the branch {} is being moved", pull.head))),
    }
}

/// The target branch and the files that clash with it; none if they do not, as seen from here.
fn find_conflict(
    errand: &EffectContext,
    hub: &ForgeConnection,
    head: &Oid,
) -> Result<Option<(Oid, Vec<String>)>, PullRequestError> {
    let world = &errand.engine;
    let onto = hub.fetch_target(&world.repo)?;
    if !world.repo.has_object(head)? {
        return Ok(None);
    }
    Ok(match world.repo.merge(&onto, head)? {
        GitMergeOutcome::Conflict { files, .. } => Some((onto, files)),
        GitMergeOutcome::Clean { .. } => None,
    })
}

fn read_checks(
    forge: &dyn Forge,
    commit: &str,
) -> Result<Vec<ObservedPullCheck>, PullRequestError> {
    let mut logs = 0;
    let mut seen = Vec::new();
    for check in forge.list_checks(commit)? {
        let state = match check.state {
            forge::ForgeCheckState::Pending => ObservedCheckState::Pending,
            forge::ForgeCheckState::Passed => ObservedCheckState::Passed,
            forge::ForgeCheckState::Neutral => ObservedCheckState::Neutral,
            forge::ForgeCheckState::Failed => ObservedCheckState::Failed,
        };
        let mut detail = check.detail;
        if let (ObservedCheckState::Failed, Some(job)) = (state, check.job)
            && logs < LOGS_MAX
        {
            logs += 1;
            // A log that is gone, or not for us, is no reason not to say that the check failed.
            if let Ok(log) = forge.read_job_log(job) {
                let _ = write!(detail, "\n{log}");
            }
        }
        seen.push(ObservedPullCheck { name: check.name, state, detail });
    }
    Ok(seen)
}

fn read_reviews(
    forge: &dyn Forge,
    number: u64,
) -> Result<Vec<ObservedPullReview>, PullRequestError> {
    let reviews = forge.list_reviews(number)?;
    let asked = reviews.iter().any(|review| review.state == ForgeReviewState::ChangesRequested);
    let comments = if asked { forge.list_comments(number)? } else { Vec::new() };
    let seen = reviews.into_iter().map(|review| ObservedPullReview {
        id: review.id,
        verdict: match review.state {
            ForgeReviewState::Approved => Some(true),
            ForgeReviewState::ChangesRequested => Some(false),
            ForgeReviewState::Commented | ForgeReviewState::Dismissed => None,
        },
        text: review_text(&review, &comments),
        who: review.who,
    });
    Ok(seen.collect())
}

/// What a reviewer wrote: in general, then on lines, then what was said beside the reviews.
fn review_text(review: &forge::ForgeReview, comments: &[ForgeComment]) -> String {
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
    forge::github::responses::truncate_head(text.trim(), REVIEW_BYTES_MAX)
}

fn update_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    number: u64,
    head: &Oid,
) -> Result<ForgeActionResult, PullRequestError> {
    match hub.forge.update_branch(number, head.as_str()) {
        // It moved meanwhile, or clashes by now: the look tells.
        Ok(()) | Err(ForgeError::Refused { .. } | ForgeError::Unsure { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    crash::point("pull.updated");
    inspect_pull_request(errand, hub, number, Some(head))
}

fn merge_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    number: u64,
    head: &Oid,
) -> Result<ForgeActionResult, PullRequestError> {
    let message = landing::landing_message(&errand.task, errand.attempt, errand);
    let (subject, trailers) = message.split_once("\n\n").unwrap_or((&message, ""));
    let wish = ForgeMergeOptions {
        head: head.as_str(),
        method: match errand.engine.settings.land.strategy {
            LandStrategy::Merge => MergeMethod::Merge,
            LandStrategy::Squash => MergeMethod::Squash,
            LandStrategy::Rebase => MergeMethod::Rebase,
        },
        title: &format!("{subject} (#{number})"),
        message: trailers,
    };
    crash::point("pull.merge.before");
    let merged = match forge::merge_pull_request_once(hub.forge.as_ref(), number, &wish) {
        Ok(merged) => merged,
        Err(ForgeError::Refused { why, .. }) => return Ok(ForgeActionResult::MergeRefused { why }),
        Err(error) => return Err(error.into()),
    };
    crash::point("pull.merged");
    let pull = hub.forge.get_pull_request(number)?;
    let (commit, old) = finish_merged_pull_request(errand, hub, &merged.commit, &pull)?;
    Ok(ForgeActionResult::Merged { commit, old })
}

/// After a merge: its branch goes, the target branch comes here. The landing, and what it landed on.
fn finish_merged_pull_request(
    errand: &EffectContext,
    hub: &ForgeConnection,
    commit: &str,
    pull: &forge::ForgePullRequest,
) -> Result<(Oid, Oid), PullRequestError> {
    let world = &errand.engine;
    let repo = &world.repo;
    if world.settings.land.pulls.delete_branch {
        // A branch that moved on after the merge holds what nobody has merged.
        match hub.forge.branch_commit(&pull.head) {
            Ok(Some(there)) if there == pull.head_commit => {
                let freed = stack_actions::retarget_stacked(errand, hub, &pull.head)?;
                if let Err(error) = freed.and_then(|()| hub.forge.delete_branch(&pull.head)) {
                    let message =
                        format!("cannot delete the branch {} on the forge: {error}", pull.head);
                    errand.send_notices(vec![message]);
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
        return Err(PullRequestError::Other(message));
    }
    crash::point("pull.fetched");
    let old = repo.resolve_commit(&format!("{commit}^1"))?.unwrap_or_else(|| commit.clone());
    if !world.settings.land.pulls.auto_merge {
        accept_merged(errand, &tip);
    }
    update_local_target(errand, hub, &tip);
    if errand.task.closes.is_some() {
        advance_phase_branch(errand, &Oid::new(pull.head_commit.as_str()), &tip)?;
        crash::point("pull.advanced");
    }
    let _ = repo.delete_ref(&kept_ref_name(errand), None)?;
    Ok((commit, old))
}

/// Whoever merged the pull request accepted what it makes of settings. Where we merge by ourselves that waited
/// for a person before.
fn accept_merged(errand: &EffectContext, tip: &Oid) {
    let world = &errand.engine;
    let record = AcceptedFiles::new(&world.repo, world.layout.state_dir());
    let accept = || -> Result<(), AcceptedFilesError> {
        let mut merged = Vec::new();
        for pending in record.list_pending(Some(tip))? {
            if world.repo.blob_id_at(tip, &pending.path)? == pending.blob {
                merged.push(pending);
            }
        }
        if merged.is_empty() { Ok(()) } else { record.accept_versions(&merged) }
    };
    if let Err(error) = accept() {
        errand
            .send_notices(vec![format!("settings that were merged are still to accept: {error}")]);
    }
}

/// The user's own branch of that name follows, if it has nothing that the forge does not have. That it
/// stays behind is said and no harm: workspaces begin at what was fetched.
fn update_local_target(errand: &EffectContext, hub: &ForgeConnection, tip: &Oid) {
    let why = match upstream::update_user_branch(&errand.engine.repo, &hub.base, tip, "the forge's")
    {
        Ok(None) => return,
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    errand.send_input(Input::CheckoutUpdated { task: errand.ix, moved: false, why });
}

/// After a phase was merged: the next one begins at what the forge made of it. What landed on the line
/// and was not offered stays on it.
fn advance_phase_branch(
    errand: &EffectContext,
    offered: &Oid,
    there: &Oid,
) -> Result<(), PullRequestError> {
    let world = &errand.engine;
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
        repo.keep_as_snapshot(&here, &errand.snapshot_ref_prefix(), "before its phase is merged")?;
        there.clone()
    } else {
        let GitMergeOutcome::Clean { tree } = repo.merge(&here, there)? else {
            let message =
                format!("{} does not merge with the merged phase on the forge", world.target);
            return Err(PullRequestError::Other(message));
        };
        let who = repo.identity()?;
        let parents = [here.clone(), there.clone()];
        let date = mainstem_host::clock::now_ms();
        repo.commit_tree(&tree, &parents, "Merge the merged phase\n", &who, &who, date)?
    };
    match repo.update_ref(&line, &new, Some(&here), "mainstem: a phase was merged")? {
        RefUpdateOutcome::Moved => Ok(()),
        RefUpdateOutcome::Refused { .. } => {
            Err(PullRequestError::Other(format!("{line} is being moved")))
        }
    }
}
