//! The train's hands: merge in memory, move the branch by compare-and-swap, bring the user's
//! checkout along. After a crash the branch itself says how far a landing got.

use mainstem_core::config::Strategy;
use mainstem_core::effect::{Member, Resolved, Seat};
use mainstem_core::hold::{CheckoutTrouble, HoldReason};
use mainstem_core::id::{Oid, TaskIx, Time};
use mainstem_core::machine::Input;
use mainstem_core::plan::Task;
use mainstem_core::publish::Refusal;
use mainstem_core::train::yard::{Formed, Purpose, Reused, Step};
use mainstem_host::crash;
use mainstem_host::git::{
    Cas, Follow, Followers, GitError, Identity, InTheWay, Merge, NewCommit, Ready, Replay, Repo,
};

use super::Errand;
use crate::accepted::Accepted;
use crate::resolutions;
use crate::upstream::{self, Pushing, Upstream};

/// How often the user's branch and checkout are tried to be brought along.
const FOLLOW_TRIES: u32 = 3;

/// Marks the commit that binds several merges.
const BATCH: &str = "Mainstem-Batch";

/// Merges a line of cars, one onto the other, onto the target branch and tells.
pub fn form(errand: &Errand, purpose: Purpose, seats: &[Seat]) {
    let (task, attempt) = (errand.ix, errand.attempt);
    errand.tell(match try_form(errand, purpose, seats) {
        Ok(input) => input,
        Err(error) => Input::TrainFailed { task, attempt, reason: error.to_string() },
    });
}

fn try_form(errand: &Errand, purpose: Purpose, seats: &[Seat]) -> Result<Input, GitError> {
    let world = &errand.world;
    let repo = &world.repo;
    if let Some(upstream) = &world.upstream {
        upstream.refresh(repo);
        // That it cannot follow is told when something lands.
        let _ = along(errand, upstream);
    }
    let Some(onto) = world.head()? else {
        let (task, attempt) = (errand.ix, errand.attempt);
        return Ok(Input::TargetGone { task, attempt });
    };
    for (seat, (task, undone)) in seats.iter().zip(&errand.crew) {
        let who = Who { ix: seat.task, attempt: seat.attempt, task, undone };
        if seat.look
            && onto != seat.base
            && let Some(landed) = found_of(errand, &who, &onto, Some(&seat.base))?
        {
            return Ok(landed);
        }
    }
    let places: Vec<u64> = seats.iter().map(|seat| seat.place).collect();
    let (mut steps, mut tip) = (Vec::new(), onto.clone());
    for (at, (seat, (task, _))) in seats.iter().zip(&errand.crew).enumerate() {
        let step = match merge(errand, seat, &tip)? {
            Ok(merged) => commit(errand, (task, seat), &tip, merged)?,
            Err(files) => {
                // Whoever clashes with the branch itself will not get through later either.
                let alone = if at == 0 { None } else { merge(errand, seat, &onto)?.err() };
                let with_main = at == 0 || alone.is_some();
                let files = alone.unwrap_or(files);
                return Ok(Input::LineClashed { purpose, places, at, onto, files, with_main });
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
        [.., last] => bind(errand, seats, (&onto, &tip, &tree), last.date)?,
    };
    crash::point("car.committed");
    if !seats.is_empty() {
        keep_alive(repo, errand, &bound)?;
    }
    crash::point("car.kept");
    let base_tree = if seats.is_empty() { tree.clone() } else { repo.tree_of(&onto)? };
    let formed = Formed { onto, steps, tip, commit: bound, tree };
    Ok(Input::LineFormed { purpose, places, formed, base_tree })
}

/// A car on top of a commit.
struct Merged {
    tree: Oid,
    /// What was merged.
    tip: Oid,
    reused: Vec<Reused>,
}

/// The merge of a car on top of a commit, or the files that clash.
fn merge(
    errand: &Errand,
    seat: &Seat,
    onto: &Oid,
) -> Result<Result<Merged, Vec<String>>, GitError> {
    let repo = &errand.world.repo;
    let land = &errand.world.settings.land;
    let plain = |tree: Oid, tip: &Oid| Ok(Merged { tree, tip: tip.clone(), reused: Vec::new() });
    Ok(match land.strategy {
        Strategy::Merge | Strategy::Squash => match repo.merge(onto, &seat.tip)? {
            Merge::Clean { tree } => plain(tree, &seat.tip),
            Merge::Conflict { files, tree, stages, .. } => {
                let mut known = match land.reuse_resolutions {
                    true => resolutions::apply(repo, &tree, &stages)?,
                    false => None,
                };
                if known.is_none() {
                    known = resolutions::by_meaning(&errand.world, (onto, &seat.tip), &files)?;
                }
                let tip = seat.tip.clone();
                known.map(|(tree, reused)| Merged { tree, tip, reused }).ok_or(files)
            }
        },
        Strategy::Rebase => match repo.replay(&seat.base, &seat.tip, onto)? {
            Replay::Clean { tip } => plain(repo.tree_of(&tip)?, &tip),
            Replay::Conflict { files, .. } => Err(files),
        },
    })
}

fn commit(
    errand: &Errand,
    (task, seat): (&Task, &Seat),
    onto: &Oid,
    merged: Merged,
) -> Result<Step, GitError> {
    let Merged { tree, tip: merged, reused } = merged;
    let repo = &errand.world.repo;
    let parents = match errand.world.settings.land.strategy {
        Strategy::Merge | Strategy::Rebase => vec![onto.clone(), merged.clone()],
        Strategy::Squash => vec![onto.clone()],
    };
    let who = author(repo, errand, &merged)?;
    let words = message(task, seat.attempt, errand) + &resolutions::trailers(&reused);
    let new = NewCommit {
        tree: &tree,
        parents: &parents,
        message: &words,
        author: &who,
        committer: &repo.identity()?,
        date_ms: seat.date.0,
    };
    let commit = errand.world.signer.commit(repo, new)?;
    Ok(Step { onto: onto.clone(), commit, tree, reused })
}

/// One commit on the branch's own line for all merges of a group: only this tree was verified.
fn bind(
    errand: &Errand,
    seats: &[Seat],
    (onto, tip, tree): (&Oid, &Oid, &Oid),
    date: Time,
) -> Result<Oid, GitError> {
    let repo = &errand.world.repo;
    let ids: Vec<&str> = errand.crew.iter().map(|(task, _)| task.id.as_str()).collect();
    let mut words = format!("{}: {} tasks\n\n{BATCH}: {}\n", ids.join(", "), ids.len(), ids.len());
    for (id, seat) in ids.iter().zip(seats) {
        words.push_str(&format!("Mainstem-Task: {id}\nMainstem-Attempt: {}\n", seat.attempt));
    }
    words.push_str(&format!("Mainstem-Run: {}\n", errand.world.run));
    let who = repo.identity()?;
    let parents = &[onto.clone(), tip.clone()];
    let (message, date_ms) = (words.as_str(), date.0);
    let new = NewCommit { tree, parents, message, author: &who, committer: &who, date_ms };
    errand.world.signer.commit(repo, new)
}

/// Whose landing is looked for.
struct Who<'a> {
    ix: TaskIx,
    attempt: u32,
    task: &'a Task,
    undone: &'a [Oid],
}

/// A landing of this task that the journal does not know of, because it lost its end: what is on the
/// branch is on the branch, and does not land again.
pub fn found(errand: &Errand, tip: &Oid, since: Option<&Oid>) -> Result<Option<Input>, GitError> {
    let (ix, attempt) = (errand.ix, errand.attempt);
    found_of(errand, &Who { ix, attempt, task: &errand.task, undone: &errand.undone }, tip, since)
}

fn found_of(
    errand: &Errand,
    who: &Who<'_>,
    tip: &Oid,
    since: Option<&Oid>,
) -> Result<Option<Input>, GitError> {
    let repo = &errand.world.repo;
    let trailers =
        [("Mainstem-Run", errand.world.run.as_str()), ("Mainstem-Task", who.task.id.as_str())];
    let Some(commit) = landing_of(repo, tip, &trailers, since)? else { return Ok(None) };
    if who.undone.contains(&commit) {
        return Ok(None);
    }
    let (task, attempt) = (who.ix, who.attempt);
    let Some(old) = repo.resolve(&format!("{commit}^1"))? else { return Ok(None) };
    // Whoever moved the branch may not have lived to bring the checkout along.
    if errand.world.hub.is_none() && errand.world.upstream.is_none() {
        follow(errand, &old, tip);
    }
    Ok(Some(Input::Landed { task, attempt, commit, old }))
}

/// The commit that landed what these trailers say: on the branch's own line, or inside one that binds
/// several.
fn landing_of(
    repo: &Repo,
    tip: &Oid,
    trailers: &[(&str, &str)],
    since: Option<&Oid>,
) -> Result<Option<Oid>, GitError> {
    let Some(commit) = repo.find_landing(tip, trailers, since)? else { return Ok(None) };
    let Some(first) = repo.resolve(&format!("{commit}^1"))? else { return Ok(Some(commit)) };
    let landings = repo.landings(&commit, Some(&first))?;
    let bound = landings.iter().any(|l| l.trailers.iter().any(|(key, _)| key == BATCH));
    match repo.resolve(&format!("{commit}^2"))? {
        Some(inside) if bound => repo.find_landing(&inside, trailers, Some(&first)),
        _ => Ok(Some(commit)),
    }
}

/// A squashed commit is the agent's work; a merge is ours.
fn author(repo: &Repo, errand: &Errand, tip: &Oid) -> Result<Identity, GitError> {
    match errand.world.settings.land.strategy {
        Strategy::Squash => repo.author_of(tip),
        Strategy::Merge | Strategy::Rebase => repo.identity(),
    }
}

/// The commit must survive a garbage collection while it is verified.
fn keep_alive(repo: &Repo, errand: &Errand, commit: &Oid) -> Result<(), GitError> {
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
pub(super) fn message(task: &Task, attempt: u32, errand: &Errand) -> String {
    let (id, subject) = (&task.id, subject(task));
    let run = &errand.world.run;
    format!("{subject}\n\nMainstem-Task: {id}\nMainstem-Attempt: {attempt}\nMainstem-Run: {run}\n")
}

/// Where the branch moves.
pub struct Move<'a> {
    /// From here.
    pub old: &'a Oid,
    /// To here.
    pub new: &'a Oid,
    /// Whose tree must be this.
    pub tree: &'a Oid,
}

/// Moves the target branch, or finds that it has been moved, and tells.
pub fn land(errand: &Errand, to: &Move<'_>, members: &[Member]) {
    let (task, attempt) = (errand.ix, errand.attempt);
    match try_land(errand, to, members) {
        Ok(Outcome::Moved(followers)) => {
            // Told first: whoever waits for the landing need not wait for the user's files.
            landed(errand, members);
            let followed = errand.world.repo.follow(followers, to.new);
            crash::point("land.followed");
            match followed {
                // It is noted where the checkout was: the same once more, from there.
                Err(_) => follow(errand, to.old, to.new),
                followed => tell_followed(errand, followed),
            }
        }
        Ok(Outcome::Landed) => {
            if errand.world.upstream.is_none() {
                follow(errand, to.old, to.new);
            }
            landed(errand, members);
        }
        Ok(Outcome::Blocked(way)) => blocked(errand, members, &way),
        Ok(Outcome::Elsewhere { found, main }) => {
            let whole = found.len() == members.len();
            for (member, commit, old) in found {
                if errand.world.upstream.is_none() {
                    follow(errand, &old, &main);
                }
                let (task, attempt) = (member.task, member.attempt);
                errand.tell(Input::Landed { task, attempt, commit, old });
            }
            if !whole {
                let (new, found) = (to.new.clone(), Some(main));
                errand.tell(Input::LandingRefused { task, attempt, new, found });
            }
        }
        Ok(Outcome::Refused { found }) => {
            errand.tell(Input::LandingRefused { task, attempt, new: to.new.clone(), found });
        }
        Err(Trouble::Here(error)) => {
            errand.tell(Input::TrainFailed { task, attempt, reason: error.to_string() });
        }
        Err(Trouble::Wrong(reason)) => {
            errand.tell(Input::TrainFailed { task, attempt, reason });
        }
        Err(Trouble::There(why)) => errand.tell(Input::PushFailed { task, attempt, why }),
    }
}

fn landed(errand: &Errand, members: &[Member]) {
    remember(errand, members);
    for member in members {
        let (task, attempt) = (member.task, member.attempt);
        let (commit, old) = (member.commit.clone(), member.onto.clone());
        errand.tell(Input::Landed { task, attempt, commit, old });
    }
}

/// The user's own files are where the landing would write: whoever changes them waits, the others pass.
fn blocked(errand: &Errand, members: &[Member], way: &InTheWay) {
    let repo = &errand.world.repo;
    let touches = |member: &&Member| {
        let changed = repo.changes(&member.onto, &member.commit);
        // A folder or a file in the way of a folder is named instead of the file itself.
        let meets = |path: &str| {
            way.paths.iter().any(|mine| {
                path == mine || path.strip_prefix(mine.as_str()).is_some_and(|p| p.starts_with('/'))
            })
        };
        changed.is_ok_and(|changed| changed.files.iter().any(|file| meets(&file.path)))
    };
    let mut held: Vec<&Member> = members.iter().filter(touches).collect();
    if held.is_empty() {
        // It is not about files: a merge under way there, no room on the disk.
        held = members.iter().collect();
    }
    for member in held {
        let (task, attempt, reason) = (member.task, member.attempt, way.reason());
        errand.tell(Input::HoldCandidate { task, attempt, reason });
    }
}

/// Looks whether the user's files are still in the way of held work and tells.
pub fn look_at_checkout(errand: &Errand, base: &Oid, tip: &Oid) {
    let (task, attempt) = (errand.ix, errand.attempt);
    let seen = errand.world.repo.in_the_way_of(&errand.world.target, base, tip);
    let reason = match seen {
        Ok(way) => way.as_ref().map(InTheWay::reason),
        // Nobody knows, and what is held stays held.
        Err(error) => {
            let checkout = errand.world.repo.dir().display().to_string();
            let what = format!("cannot read the status: {error}");
            let fix = "run git status there".to_owned();
            let trouble = Some(CheckoutTrouble { what, fix });
            Some(HoldReason::CheckoutInTheWay { checkout, paths: Vec::new(), trouble })
        }
    };
    errand.tell(Input::CheckoutSeen { task, attempt, reason });
}

/// Why a landing was not made, or nobody knows whether it was.
enum Trouble {
    /// Git, here.
    Here(GitError),
    /// It must not be made.
    Wrong(String),
    /// The remote.
    There(Refusal),
}

impl From<GitError> for Trouble {
    fn from(error: GitError) -> Self {
        Self::Here(error)
    }
}

impl From<Refusal> for Trouble {
    fn from(why: Refusal) -> Self {
        Self::There(why)
    }
}

/// Remembers how clashes were settled by what has just landed. That it could not be is no reason not to
/// have landed.
fn remember(errand: &Errand, members: &[Member]) {
    for (member, (task, _)) in members.iter().zip(&errand.crew) {
        let Some(Resolved { base, work, tip }) = &member.resolved else { continue };
        let kept = resolutions::remember(&errand.world.repo, &task.id, (base, work, tip));
        if let Err(error) = kept {
            let message = format!("cannot save the conflict resolution: {error}");
            errand.tell(Input::Notice { task: Some(member.task), message });
        }
    }
    crash::point("land.remembered");
}

enum Outcome {
    /// As intended, and these checkouts are to follow.
    Moved(Followers),
    /// As intended, some time ago.
    Landed,
    /// Something of the user's is in the way in a checkout of the branch.
    Blocked(InTheWay),
    /// The branch is elsewhere, and has these of them.
    Elsewhere {
        found: Vec<(Member, Oid, Oid)>,
        main: Oid,
    },
    Refused {
        found: Option<Oid>,
    },
}

fn try_land(errand: &Errand, to: &Move<'_>, members: &[Member]) -> Result<Outcome, Trouble> {
    let world = &errand.world;
    let repo = &world.repo;
    let Some(mut now) = world.head()? else { return Ok(Outcome::Refused { found: None }) };
    if now != *to.old
        && let Some(upstream) = &world.upstream
    {
        // What an earlier life pushed is seen there, whatever became of the branch here.
        upstream.fetch(repo).map_err(|error| upstream.unheard(&error))?;
        let _ = along(errand, upstream);
        now = world.head()?.unwrap_or(now);
    }
    if now != *to.old {
        if !repo.is_ancestor(to.new, &now)? {
            return Ok(elsewhere(errand, now, members)?);
        }
        return match &world.upstream {
            Some(upstream) => publish(errand, upstream, to, members),
            None => Ok(Outcome::Landed),
        };
    }
    if repo.tree_of(to.new)? != *to.tree {
        return Err(Trouble::Wrong(
            "the commit to land does not have the verified tree".to_owned(),
        ));
    }
    note_settings(errand, to)?;
    if let Some(upstream) = &world.upstream {
        crash::point("land.before");
        return publish(errand, upstream, to, members);
    }
    let followers = match repo.hold_checkouts(&world.target, to.old, to.new)? {
        Ready::Go(followers) => followers,
        Ready::Blocked(way) => return Ok(Outcome::Blocked(way)),
    };
    crash::point("land.before");
    let ids: Vec<&str> = errand.crew.iter().map(|(task, _)| task.id.as_str()).collect();
    let reason = format!("mainstem: land {}", ids.join(", "));
    // A name that points at another branch stays one: the branch itself moves.
    let branch = format!("refs/heads/{}", repo.real_branch(&world.target)?);
    match repo.update_ref(&branch, to.new, Some(to.old), &reason)? {
        Cas::Moved => {
            crash::point("land.moved");
            Ok(Outcome::Moved(followers))
        }
        Cas::Refused { found } => {
            followers.withdraw();
            Ok(Outcome::Refused { found })
        }
    }
}

/// What a landing makes of settings is not in force until a person accepts it: that is on record before the
/// branch moves.
fn note_settings(errand: &Errand, to: &Move<'_>) -> Result<(), Trouble> {
    let world = &errand.world;
    let accepted = Accepted::new(&world.repo, world.layout.state());
    let tasks: Vec<String> = errand.crew.iter().map(|(task, _)| task.id.to_string()).collect();
    let changed = accepted
        .note_landing(&world.settings, (to.old, to.new), &tasks)
        .map_err(|error| Trouble::Wrong(error.to_string()))?;
    if !changed.is_empty() {
        let message = format!(
            "the change to {} lands, but takes effect only when you accept it: mainstem config accept",
            changed.join(", ")
        );
        errand.tell(Input::Notice { task: Some(errand.ix), message });
    }
    Ok(())
}

/// The remote's branch moves first, because it is the one that others move; then ours follows.
fn publish(
    errand: &Errand,
    upstream: &Upstream,
    to: &Move<'_>,
    members: &[Member],
) -> Result<Outcome, Trouble> {
    let done = upstream.push(&errand.world.repo, to.new)?;
    crash::point("land.published");
    follow_upstream(errand, upstream);
    match (done, errand.world.head()?) {
        (Pushing::Done, _) => Ok(Outcome::Landed),
        (Pushing::Elsewhere, Some(main)) => Ok(elsewhere(errand, main, members)?),
        (Pushing::Elsewhere, None) => Ok(Outcome::Refused { found: None }),
    }
}

/// The target branch follows what the remote has, if it can. If it cannot, work goes on from what the
/// remote has, and it is said.
fn follow_upstream(errand: &Errand, upstream: &Upstream) {
    let try_it = || along(errand, upstream);
    // Work that is there and not here looks lost to whoever looks here.
    let followed = (1..FOLLOW_TRIES).find_map(|_| try_it().ok()).map_or_else(try_it, Ok);
    let why = match followed {
        Ok(None) => return,
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    errand.tell(Input::CheckoutFollowed { task: errand.ix, moved: false, why });
}

fn along(errand: &Errand, upstream: &Upstream) -> Result<Option<String>, GitError> {
    let world = &errand.world;
    let Some(there) = upstream.seen(&world.repo)? else { return Ok(None) };
    let whose = format!("{}'s", upstream.remote());
    upstream::bring_along(&world.repo, &world.target, &there, &whose)
}

/// Somebody moved the branch. What of ours is on it all the same counts where it stands now: somebody's
/// work may be between.
fn elsewhere(errand: &Errand, main: Oid, members: &[Member]) -> Result<Outcome, GitError> {
    let repo = &errand.world.repo;
    let mut found = Vec::new();
    for (member, (task, _)) in members.iter().zip(&errand.crew) {
        let attempt = member.attempt.to_string();
        let trailers = [
            ("Mainstem-Run", errand.world.run.as_str()),
            ("Mainstem-Task", task.id.as_str()),
            ("Mainstem-Attempt", attempt.as_str()),
        ];
        if let Some(commit) = landing_of(repo, &main, &trailers, None)? {
            let before = repo.resolve(&format!("{commit}^1"))?;
            found.push((member.clone(), commit, before.unwrap_or_else(|| member.onto.clone())));
        }
    }
    Ok(Outcome::Elsewhere { found, main })
}

fn follow(errand: &Errand, old: &Oid, new: &Oid) {
    let world = &errand.world;
    let try_it = || world.repo.follow_checkout(&world.target, old, new);
    // A checkout that stays behind shows the landing as if the user had taken it back.
    let followed = (1..FOLLOW_TRIES).find_map(|_| try_it().ok()).map_or_else(try_it, Ok);
    tell_followed(errand, followed);
    crash::point("land.followed");
}

fn tell_followed(errand: &Errand, followed: Result<Follow, GitError>) {
    let task = errand.ix;
    let (moved, why) = match followed {
        Ok(Follow::NotCheckedOut | Follow::Moved) => return,
        Ok(Follow::Aside { why }) => (true, why),
        Ok(Follow::Left { why }) => (false, why),
        Err(error) => (false, error.to_string()),
    };
    errand.tell(Input::CheckoutFollowed { task, moved, why });
}
