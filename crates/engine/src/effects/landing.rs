//! The train's hands: merge in memory, move the branch by compare-and-swap, bring the user's
//! checkout along. After a crash the branch itself says how far a landing got.

use mainstem_core::config::LandStrategy;
use mainstem_core::effect::{CandidateToLand, CandidateToMerge, ConflictResolution};
use mainstem_core::hold::{CheckoutProblem, HoldReason};
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::Input;
use mainstem_core::plan::Task;
use mainstem_core::publish::PushRefusal;
use mainstem_core::train::batches::{BatchMerge, BatchPurpose, CandidateMerge, ReusedResolution};
use mainstem_host::crash;
use mainstem_host::git::{
    BlockedCheckout, CheckoutReadiness, CheckoutUpdate, GitError, GitIdentity, GitMergeOutcome,
    GitReplayOutcome, LockedCheckouts, NewCommit, RefUpdateOutcome, Repo,
};

use super::EffectContext;
use crate::accepted_files::AcceptedFiles;
use crate::conflict_resolutions;
use crate::upstream::{self, UpstreamBranch, UpstreamPushOutcome};

/// How often the user's branch and checkout are tried to be brought along.
const UPDATE_TRIES: u32 = 3;

/// Marks the commit that binds several merges.
const BATCH: &str = "Mainstem-Batch";

/// Merges a line of cars, one onto the other, onto the target branch and tells.
pub fn merge_batch(errand: &EffectContext, purpose: BatchPurpose, seats: &[CandidateToMerge]) {
    let (task, attempt) = (errand.ix, errand.attempt);
    errand.send_input(match try_merge_batch(errand, purpose, seats) {
        Ok(input) => input,
        Err(error) => Input::TrainFailed { task, attempt, reason: error.to_string() },
    });
}

fn try_merge_batch(
    errand: &EffectContext,
    purpose: BatchPurpose,
    seats: &[CandidateToMerge],
) -> Result<Input, GitError> {
    let world = &errand.engine;
    let repo = &world.repo;
    if let Some(upstream) = &world.upstream {
        upstream.refresh_if_stale(repo);
        // That it cannot follow is told when something lands.
        let _ = fast_forward_target(errand, upstream);
    }
    let Some(onto) = world.landing_head()? else {
        let (task, attempt) = (errand.ix, errand.attempt);
        return Ok(Input::TargetGone { task, attempt });
    };
    for (seat, (task, undone)) in seats.iter().zip(&errand.candidate_tasks) {
        let who = LandingOwner { ix: seat.task, attempt: seat.attempt, task, undone };
        if seat.check_landed
            && onto != seat.base
            && let Some(landed) = find_landing_of(errand, &who, &onto, Some(&seat.base))?
        {
            return Ok(landed);
        }
    }
    let places: Vec<u64> = seats.iter().map(|seat| seat.queue_number).collect();
    let (mut steps, mut tip) = (Vec::new(), onto.clone());
    for (at, (seat, (task, _))) in seats.iter().zip(&errand.candidate_tasks).enumerate() {
        let step = match merge_candidate(errand, seat, &tip)? {
            Ok(merged) => commit_candidate(errand, (task, seat), &tip, merged)?,
            Err(files) => {
                // Whoever clashes with the branch itself will not get through later either.
                let alone =
                    if at == 0 { None } else { merge_candidate(errand, seat, &onto)?.err() };
                let with_main = at == 0 || alone.is_some();
                let files = alone.unwrap_or(files);
                return Ok(Input::BatchConflicted { purpose, places, at, onto, files, with_main });
            }
        };
        tip = step.commit.clone();
        steps.push(step);
    }
    let tree = match steps.last() {
        Some(last) => last.tree.clone(),
        None => repo.tree_of(&onto)?,
    };
    let bound = match seats {
        [] | [_] => tip.clone(),
        [.., last] => commit_batch(errand, seats, (&onto, &tip, &tree), last.date)?,
    };
    crash::point("car.committed");
    if !seats.is_empty() {
        keep_commit_alive(repo, errand, &bound)?;
    }
    crash::point("car.kept");
    let base_tree = if seats.is_empty() { tree.clone() } else { repo.tree_of(&onto)? };
    let formed = BatchMerge { onto, candidate_merges: steps, tip, commit: bound, tree };
    Ok(Input::BatchMerged { purpose, places, formed, base_tree })
}

/// A car on top of a commit.
struct TrainMerge {
    tree: Oid,
    tip: Oid,
    reused: Vec<ReusedResolution>,
}

/// The merge of a car on top of a commit, or the files that clash.
fn merge_candidate(
    errand: &EffectContext,
    seat: &CandidateToMerge,
    onto: &Oid,
) -> Result<Result<TrainMerge, Vec<String>>, GitError> {
    let repo = &errand.engine.repo;
    let land = &errand.engine.settings.land;
    let plain =
        |tree: Oid, tip: &Oid| Ok(TrainMerge { tree, tip: tip.clone(), reused: Vec::new() });
    Ok(match land.strategy {
        LandStrategy::Merge | LandStrategy::Squash => match repo.merge(onto, &seat.tip)? {
            GitMergeOutcome::Clean { tree } => plain(tree, &seat.tip),
            GitMergeOutcome::Conflict { files, tree, stages, .. } => {
                let mut known = match land.reuse_resolutions {
                    true => conflict_resolutions::apply_resolutions(repo, &tree, &stages)?,
                    false => None,
                };
                if known.is_none() {
                    known = conflict_resolutions::resolve_with_mergiraf(
                        &errand.engine,
                        (onto, &seat.tip),
                        &files,
                    )?;
                }
                let tip = seat.tip.clone();
                known.map(|(tree, reused)| TrainMerge { tree, tip, reused }).ok_or(files)
            }
        },
        LandStrategy::Rebase => match repo.replay_commits(&seat.base, &seat.tip, onto)? {
            GitReplayOutcome::Clean { tip } => plain(repo.tree_of(&tip)?, &tip),
            GitReplayOutcome::Conflict { files, .. } => Err(files),
        },
    })
}

fn commit_candidate(
    errand: &EffectContext,
    (task, seat): (&Task, &CandidateToMerge),
    onto: &Oid,
    merged: TrainMerge,
) -> Result<CandidateMerge, GitError> {
    let TrainMerge { tree, tip: merged, reused } = merged;
    let repo = &errand.engine.repo;
    let parents = match errand.engine.settings.land.strategy {
        LandStrategy::Merge | LandStrategy::Rebase => vec![onto.clone(), merged.clone()],
        LandStrategy::Squash => vec![onto.clone()],
    };
    let who = landing_author(repo, errand, &merged)?;
    let words = landing_message(task, seat.attempt, errand)
        + &conflict_resolutions::resolution_trailers(&reused);
    let new = NewCommit {
        tree: &tree,
        parents: &parents,
        message: &words,
        author: &who,
        committer: &repo.identity()?,
        date_ms: seat.date.0,
    };
    let commit = errand.engine.signer.write_commit(repo, new)?;
    Ok(CandidateMerge { onto: onto.clone(), commit, tree, reused })
}

/// One commit on the branch's own line for all merges of a group: only this tree was verified.
fn commit_batch(
    errand: &EffectContext,
    seats: &[CandidateToMerge],
    (onto, tip, tree): (&Oid, &Oid, &Oid),
    date: Time,
) -> Result<Oid, GitError> {
    let repo = &errand.engine.repo;
    let ids: Vec<&str> = errand.candidate_tasks.iter().map(|(task, _)| task.id.as_str()).collect();
    let mut words = format!("{}: {} tasks\n\n{BATCH}: {}\n", ids.join(", "), ids.len(), ids.len());
    for (id, seat) in ids.iter().zip(seats) {
        words.push_str(&format!("Mainstem-Task: {id}\nMainstem-Attempt: {}\n", seat.attempt));
    }
    words.push_str(&format!("Mainstem-Run: {}\n", errand.engine.run));
    let who = repo.identity()?;
    let parents = &[onto.clone(), tip.clone()];
    let (message, date_ms) = (words.as_str(), date.0);
    let new = NewCommit { tree, parents, message, author: &who, committer: &who, date_ms };
    errand.engine.signer.write_commit(repo, new)
}

/// Whose landing is looked for.
struct LandingOwner<'a> {
    ix: TaskIx,
    attempt: u32,
    task: &'a Task,
    undone: &'a [Oid],
}

/// A landing of this task that the journal does not know of, because it lost its end: what is on the
/// branch is on the branch, and does not land again.
pub fn find_unjournaled_landing(
    errand: &EffectContext,
    tip: &Oid,
    since: Option<&Oid>,
) -> Result<Option<Input>, GitError> {
    let (ix, attempt) = (errand.ix, errand.attempt);
    find_landing_of(
        errand,
        &LandingOwner { ix, attempt, task: &errand.task, undone: &errand.undone_landings },
        tip,
        since,
    )
}

fn find_landing_of(
    errand: &EffectContext,
    who: &LandingOwner<'_>,
    tip: &Oid,
    since: Option<&Oid>,
) -> Result<Option<Input>, GitError> {
    let repo = &errand.engine.repo;
    let trailers =
        [("Mainstem-Run", errand.engine.run.as_str()), ("Mainstem-Task", who.task.id.as_str())];
    let Some(commit) = find_landing_by_trailers(repo, tip, &trailers, since)? else {
        return Ok(None);
    };
    if who.undone.contains(&commit) {
        return Ok(None);
    }
    let (task, attempt) = (who.ix, who.attempt);
    let Some(old) = repo.resolve_commit(&format!("{commit}^1"))? else { return Ok(None) };
    // Whoever moved the branch may not have lived to bring the checkout along.
    if errand.engine.forge_connection.is_none() && errand.engine.upstream.is_none() {
        update_checkouts(errand, &old, tip);
    }
    Ok(Some(Input::Landed { task, attempt, commit, old }))
}

/// The commit that landed what these trailers say: on the branch's own line, or inside one that binds
/// several.
fn find_landing_by_trailers(
    repo: &Repo,
    tip: &Oid,
    trailers: &[(&str, &str)],
    since: Option<&Oid>,
) -> Result<Option<Oid>, GitError> {
    let Some(commit) = repo.find_landing(tip, trailers, since)? else { return Ok(None) };
    let Some(first) = repo.resolve_commit(&format!("{commit}^1"))? else { return Ok(Some(commit)) };
    let landings = repo.list_landings(&commit, Some(&first))?;
    let bound = landings.iter().any(|l| l.trailers.iter().any(|(key, _)| key == BATCH));
    match repo.resolve_commit(&format!("{commit}^2"))? {
        Some(inside) if bound => repo.find_landing(&inside, trailers, Some(&first)),
        _ => Ok(Some(commit)),
    }
}

/// A squashed commit is the agent's work; a merge is ours.
fn landing_author(repo: &Repo, errand: &EffectContext, tip: &Oid) -> Result<GitIdentity, GitError> {
    match errand.engine.settings.land.strategy {
        LandStrategy::Squash => repo.read_author(tip),
        LandStrategy::Merge | LandStrategy::Rebase => repo.identity(),
    }
}

/// The commit must survive a garbage collection while it is verified.
fn keep_commit_alive(repo: &Repo, errand: &EffectContext, commit: &Oid) -> Result<(), GitError> {
    let name = format!("refs/mainstem/train/{}", errand.task.id);
    let old = repo.read_ref(&name)?;
    if old.as_ref() != Some(commit) {
        let _ = repo.update_ref(&name, commit, old.as_ref(), "a car of the train")?;
    }
    Ok(())
}

/// The task's id and title in one line, whatever the title was.
pub(super) fn subject(task: &Task) -> String {
    let title: String = task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() { task.id.to_string() } else { format!("{}: {title}", task.id) }
}

/// One subject line and the three trailers.
pub(super) fn landing_message(task: &Task, attempt: u32, errand: &EffectContext) -> String {
    let (id, subject) = (&task.id, subject(task));
    let run = &errand.engine.run;
    format!("{subject}\n\nMainstem-Task: {id}\nMainstem-Attempt: {attempt}\nMainstem-Run: {run}\n")
}

/// Where the branch moves.
pub struct TargetMove<'a> {
    pub old: &'a Oid,
    pub new: &'a Oid,
    /// Whose tree must be this.
    pub tree: &'a Oid,
}

/// Moves the target branch, or finds that it has been moved, and tells.
pub fn land_candidates(errand: &EffectContext, to: &TargetMove<'_>, members: &[CandidateToLand]) {
    let (task, attempt) = (errand.ix, errand.attempt);
    match try_land_candidates(errand, to, members) {
        Ok(TargetMoveOutcome::Moved(followers)) => {
            // Told first: whoever waits for the landing need not wait for the user's files.
            report_landed(errand, members);
            let followed = errand.engine.repo.update_locked_checkouts(followers, to.new);
            crash::point("land.followed");
            match followed {
                // It is noted where the checkout was: the same once more, from there.
                Err(_) => update_checkouts(errand, to.old, to.new),
                followed => report_checkout_update(errand, followed),
            }
        }
        Ok(TargetMoveOutcome::Landed) => {
            if errand.engine.upstream.is_none() {
                update_checkouts(errand, to.old, to.new);
            }
            report_landed(errand, members);
        }
        Ok(TargetMoveOutcome::Blocked(way)) => report_blocked(errand, members, &way),
        Ok(TargetMoveOutcome::MovedElsewhere { found, main }) => {
            let whole = found.len() == members.len();
            for (member, commit, old) in found {
                if errand.engine.upstream.is_none() {
                    update_checkouts(errand, &old, &main);
                }
                let (task, attempt) = (member.task, member.attempt);
                errand.send_input(Input::Landed { task, attempt, commit, old });
            }
            if !whole {
                let (new, found) = (to.new.clone(), Some(main));
                errand.send_input(Input::LandingRefused { task, attempt, new, found });
            }
        }
        Ok(TargetMoveOutcome::Refused { found }) => {
            errand.send_input(Input::LandingRefused { task, attempt, new: to.new.clone(), found });
        }
        Err(TargetMoveFailure::Local(error)) => {
            errand.send_input(Input::TrainFailed { task, attempt, reason: error.to_string() });
        }
        Err(TargetMoveFailure::Forbidden(reason)) => {
            errand.send_input(Input::TrainFailed { task, attempt, reason });
        }
        Err(TargetMoveFailure::Upstream(why)) => {
            errand.send_input(Input::PushFailed { task, attempt, why });
        }
    }
}

fn report_landed(errand: &EffectContext, members: &[CandidateToLand]) {
    remember_resolutions(errand, members);
    for member in members {
        let (task, attempt) = (member.task, member.attempt);
        let (commit, old) = (member.commit.clone(), member.onto.clone());
        errand.send_input(Input::Landed { task, attempt, commit, old });
    }
}

/// The user's own files are where the landing would write: whoever changes them waits, the others pass.
fn report_blocked(errand: &EffectContext, members: &[CandidateToLand], way: &BlockedCheckout) {
    let repo = &errand.engine.repo;
    let touches = |member: &&CandidateToLand| {
        let changed = repo.diff_stats(&member.onto, &member.commit);
        // A folder or a file in the way of a folder is named instead of the file itself.
        let meets = |path: &str| {
            way.paths.iter().any(|mine| {
                path == mine || path.strip_prefix(mine.as_str()).is_some_and(|p| p.starts_with('/'))
            })
        };
        changed.is_ok_and(|changed| changed.files.iter().any(|file| meets(&file.path)))
    };
    let mut held: Vec<&CandidateToLand> = members.iter().filter(touches).collect();
    if held.is_empty() {
        // It is not about files: a merge under way there, no room on the disk.
        held = members.iter().collect();
    }
    for member in held {
        let (task, attempt, reason) = (member.task, member.attempt, way.hold_reason());
        errand.send_input(Input::HoldCandidate { task, attempt, reason });
    }
}

/// Looks whether the user's files are still in the way of held work and tells.
pub fn check_user_checkout(errand: &EffectContext, base: &Oid, tip: &Oid) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let seen = errand.engine.repo.find_blocked_checkout(&errand.engine.target, base, tip);
    let reason = match seen {
        Ok(way) => way.as_ref().map(BlockedCheckout::hold_reason),
        // Nobody knows, and what is held stays held.
        Err(error) => {
            let checkout = errand.engine.repo.dir().display().to_string();
            let what = format!("cannot read the status: {error}");
            let fix = "run git status there".to_owned();
            let trouble = Some(CheckoutProblem { what, fix });
            Some(HoldReason::CheckoutInTheWay { checkout, paths: Vec::new(), trouble })
        }
    };
    errand.send_input(Input::CheckoutInspected { task, attempt, reason });
}

/// Why a landing was not made, or nobody knows whether it was.
enum TargetMoveFailure {
    Local(GitError),
    /// It must not be made.
    Forbidden(String),
    Upstream(PushRefusal),
}

impl From<GitError> for TargetMoveFailure {
    fn from(error: GitError) -> Self {
        Self::Local(error)
    }
}

impl From<PushRefusal> for TargetMoveFailure {
    fn from(why: PushRefusal) -> Self {
        Self::Upstream(why)
    }
}

/// Remembers how clashes were settled by what has just landed. That it could not be is no reason not to
/// have landed.
fn remember_resolutions(errand: &EffectContext, members: &[CandidateToLand]) {
    for (member, (task, _)) in members.iter().zip(&errand.candidate_tasks) {
        let Some(ConflictResolution { base, work, tip }) = &member.resolved else { continue };
        let kept = conflict_resolutions::remember_resolution(
            &errand.engine.repo,
            &task.id,
            (base, work, tip),
        );
        if let Err(error) = kept {
            let message = format!("cannot save the conflict resolution: {error}");
            errand.send_input(Input::Notice { task: Some(member.task), message });
        }
    }
    crash::point("land.remembered");
}

enum TargetMoveOutcome {
    /// As intended, and these checkouts are to follow.
    Moved(LockedCheckouts),
    /// As intended, some time ago.
    Landed,
    /// Something of the user's is in the way in a checkout of the branch.
    Blocked(BlockedCheckout),
    /// The branch is elsewhere, and has these of them.
    MovedElsewhere {
        found: Vec<(CandidateToLand, Oid, Oid)>,
        main: Oid,
    },
    Refused {
        found: Option<Oid>,
    },
}

fn try_land_candidates(
    errand: &EffectContext,
    to: &TargetMove<'_>,
    members: &[CandidateToLand],
) -> Result<TargetMoveOutcome, TargetMoveFailure> {
    let world = &errand.engine;
    let repo = &world.repo;
    let Some(mut now) = world.landing_head()? else {
        return Ok(TargetMoveOutcome::Refused { found: None });
    };
    if now != *to.old
        && let Some(upstream) = &world.upstream
    {
        // What an earlier life pushed is seen there, whatever became of the branch here.
        upstream.fetch_branch(repo).map_err(|error| upstream.unreachable_refusal(&error))?;
        let _ = fast_forward_target(errand, upstream);
        now = world.landing_head()?.unwrap_or(now);
    }
    if now != *to.old {
        if !repo.is_ancestor(to.new, &now)? {
            return Ok(find_landed_members(errand, now, members)?);
        }
        return match &world.upstream {
            Some(upstream) => publish_landing(errand, upstream, to, members),
            None => Ok(TargetMoveOutcome::Landed),
        };
    }
    if repo.tree_of(to.new)? != *to.tree {
        return Err(TargetMoveFailure::Forbidden(
            "the commit to land does not have the verified tree".to_owned(),
        ));
    }
    record_settings_changes(errand, to)?;
    if let Some(upstream) = &world.upstream {
        crash::point("land.before");
        return publish_landing(errand, upstream, to, members);
    }
    let followers = match repo.lock_checkouts(&world.target, to.old, to.new)? {
        CheckoutReadiness::Locked(followers) => followers,
        CheckoutReadiness::Blocked(way) => return Ok(TargetMoveOutcome::Blocked(way)),
    };
    crash::point("land.before");
    let ids: Vec<&str> = errand.candidate_tasks.iter().map(|(task, _)| task.id.as_str()).collect();
    let reason = format!("mainstem: land {}", ids.join(", "));
    // A name that points at another branch stays one: the branch itself moves.
    let branch = format!("refs/heads/{}", repo.resolve_branch_alias(&world.target)?);
    match repo.update_ref(&branch, to.new, Some(to.old), &reason)? {
        RefUpdateOutcome::Moved => {
            crash::point("land.moved");
            Ok(TargetMoveOutcome::Moved(followers))
        }
        RefUpdateOutcome::Refused { found } => {
            followers.release();
            Ok(TargetMoveOutcome::Refused { found })
        }
    }
}

/// What a landing makes of settings is not in force until a person accepts it: that is on record before the
/// branch moves.
fn record_settings_changes(
    errand: &EffectContext,
    to: &TargetMove<'_>,
) -> Result<(), TargetMoveFailure> {
    let world = &errand.engine;
    let accepted = AcceptedFiles::new(&world.repo, world.layout.state_dir());
    let tasks: Vec<String> =
        errand.candidate_tasks.iter().map(|(task, _)| task.id.to_string()).collect();
    let changed = accepted
        .record_landing(&world.settings, (to.old, to.new), &tasks)
        .map_err(|error| TargetMoveFailure::Forbidden(error.to_string()))?;
    if !changed.is_empty() {
        let message = format!(
            "the change to {} lands, but takes effect only when you accept it: mainstem config accept",
            changed.join(", ")
        );
        errand.send_input(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}

/// The remote's branch moves first, because it is the one that others move; then ours follows.
fn publish_landing(
    errand: &EffectContext,
    upstream: &UpstreamBranch,
    to: &TargetMove<'_>,
    members: &[CandidateToLand],
) -> Result<TargetMoveOutcome, TargetMoveFailure> {
    let done = upstream.push_landing(&errand.engine.repo, to.new)?;
    crash::point("land.published");
    update_from_upstream(errand, upstream);
    match (done, errand.engine.landing_head()?) {
        (UpstreamPushOutcome::Done, _) => Ok(TargetMoveOutcome::Landed),
        (UpstreamPushOutcome::Elsewhere, Some(main)) => {
            Ok(find_landed_members(errand, main, members)?)
        }
        (UpstreamPushOutcome::Elsewhere, None) => Ok(TargetMoveOutcome::Refused { found: None }),
    }
}

/// The target branch follows what the remote has, if it can. If it cannot, work goes on from what the
/// remote has, and it is said.
fn update_from_upstream(errand: &EffectContext, upstream: &UpstreamBranch) {
    let try_it = || fast_forward_target(errand, upstream);
    // Work that is there and not here looks lost to whoever looks here.
    let followed = (1..UPDATE_TRIES).find_map(|_| try_it().ok()).map_or_else(try_it, Ok);
    let why = match followed {
        Ok(None) => return,
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    errand.send_input(Input::CheckoutUpdated { task: errand.ix, moved: false, why });
}

fn fast_forward_target(
    errand: &EffectContext,
    upstream: &UpstreamBranch,
) -> Result<Option<String>, GitError> {
    let world = &errand.engine;
    let Some(there) = upstream.last_seen_commit(&world.repo)? else { return Ok(None) };
    let whose = format!("{}'s", upstream.remote_name());
    upstream::update_user_branch(&world.repo, &world.target, &there, &whose)
}

/// Somebody moved the branch. What of ours is on it all the same counts where it stands now: somebody's
/// work may be between.
fn find_landed_members(
    errand: &EffectContext,
    main: Oid,
    members: &[CandidateToLand],
) -> Result<TargetMoveOutcome, GitError> {
    let repo = &errand.engine.repo;
    let mut found = Vec::new();
    for (member, (task, _)) in members.iter().zip(&errand.candidate_tasks) {
        let attempt = member.attempt.to_string();
        let trailers = [
            ("Mainstem-Run", errand.engine.run.as_str()),
            ("Mainstem-Task", task.id.as_str()),
            ("Mainstem-Attempt", attempt.as_str()),
        ];
        if let Some(commit) = find_landing_by_trailers(repo, &main, &trailers, None)? {
            let before = repo.resolve_commit(&format!("{commit}^1"))?;
            found.push((member.clone(), commit, before.unwrap_or_else(|| member.onto.clone())));
        }
    }
    Ok(TargetMoveOutcome::MovedElsewhere { found, main })
}

fn update_checkouts(errand: &EffectContext, old: &Oid, new: &Oid) {
    let world = &errand.engine;
    let try_it = || world.repo.update_checkouts(&world.target, old, new);
    // A checkout that stays behind shows the landing as if the user had taken it back.
    let followed = (1..UPDATE_TRIES).find_map(|_| try_it().ok()).map_or_else(try_it, Ok);
    report_checkout_update(errand, followed);
    crash::point("land.followed");
}

fn report_checkout_update(errand: &EffectContext, followed: Result<CheckoutUpdate, GitError>) {
    let task = errand.ix;
    let (moved, why) = match followed {
        Ok(CheckoutUpdate::NotCheckedOut | CheckoutUpdate::Updated) => return,
        Ok(CheckoutUpdate::UpdatedFilesAside { why }) => (true, why),
        Ok(CheckoutUpdate::LeftUnchanged { why }) => (false, why),
        Err(error) => (false, error.to_string()),
    };
    errand.send_input(Input::CheckoutUpdated { task, moved, why });
}
