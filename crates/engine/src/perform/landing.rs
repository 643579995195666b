//! The train's hands: merge in memory, move the branch by compare-and-swap, bring the user's
//! checkout along. After a crash the branch itself says how far a landing got.

use mainstem_core::config::Strategy;
use mainstem_core::id::{Oid, Time};
use mainstem_core::machine::Input;
use mainstem_host::crash;
use mainstem_host::git::{Cas, Follow, GitError, Identity, Merge, Replay, Repo};

use super::Errand;

/// How often the user's checkout is tried to be brought along.
const FOLLOW_TRIES: u32 = 3;

/// Merges a car onto the head of the line and tells.
pub fn form(errand: &Errand, tip: &Oid, base: &Oid, date: Time) {
    let (task, attempt) = (errand.ix, errand.attempt);
    errand.tell(match try_form(errand, tip, base, date) {
        Ok(input) => input,
        Err(error) => Input::TrainFailed { task, attempt, reason: error.to_string() },
    });
}

fn try_form(errand: &Errand, tip: &Oid, base: &Oid, date: Time) -> Result<Input, GitError> {
    let world = &errand.world;
    let repo = &world.repo;
    let (task, attempt) = (errand.ix, errand.attempt);
    let Some(onto) = repo.read_ref(&world.target_ref())? else {
        let reason = format!("the target branch {} does not exist any more", world.target);
        return Ok(Input::TrainFailed { task, attempt, reason });
    };
    if onto != *base
        && let Some(landed) = found(errand, &onto, Some(base))?
    {
        return Ok(landed);
    }
    let conflict = |files, onto| Ok(Input::CarConflicted { task, attempt, onto, files });
    let (tree, tip) = match world.settings.land.strategy {
        Strategy::Merge | Strategy::Squash => match repo.merge(&onto, tip)? {
            Merge::Clean { tree } => (tree, tip.clone()),
            Merge::Conflict { files, .. } => return conflict(files, onto),
        },
        Strategy::Rebase => match repo.replay(base, tip, &onto)? {
            Replay::Clean { tip } => (repo.tree_of(&tip)?, tip),
            Replay::Conflict { files, .. } => return conflict(files, onto),
        },
    };
    let parents = match world.settings.land.strategy {
        Strategy::Merge | Strategy::Rebase => vec![onto.clone(), tip.clone()],
        Strategy::Squash => vec![onto.clone()],
    };
    let who = author(repo, errand, &tip)?;
    let commit =
        repo.commit_tree(&tree, &parents, &message(errand), &who, &repo.identity()?, date.0)?;
    crash::point("car.committed");
    keep_alive(repo, errand, &commit)?;
    crash::point("car.kept");
    Ok(Input::CarFormed { task, attempt, onto, commit, tree })
}

/// A landing of this task that the journal does not know of, because it lost its end: what is on the
/// branch is on the branch, and does not land again.
pub fn found(errand: &Errand, tip: &Oid, since: Option<&Oid>) -> Result<Option<Input>, GitError> {
    let repo = &errand.world.repo;
    let trailers =
        [("Mainstem-Run", errand.world.run.as_str()), ("Mainstem-Task", errand.task.id.as_str())];
    let Some(commit) = repo.find_landing(tip, &trailers, since)? else { return Ok(None) };
    if errand.undone.contains(&commit) {
        return Ok(None);
    }
    let (task, attempt) = (errand.ix, errand.attempt);
    let Some(old) = repo.resolve(&format!("{commit}^1"))? else { return Ok(None) };
    // Whoever moved the branch may not have lived to bring the checkout along.
    if errand.world.hub.is_none() {
        follow(errand, &old, tip);
    }
    Ok(Some(Input::Landed { task, attempt, commit, old }))
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

/// One subject line and the three trailers. The title is one line here, whatever it was.
pub fn message(errand: &Errand) -> String {
    let title: String =
        errand.task.title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let id = &errand.task.id;
    let subject = if title.is_empty() { id.to_string() } else { format!("{id}: {title}") };
    let (attempt, run) = (errand.attempt, &errand.world.run);
    format!("{subject}\n\nMainstem-Task: {id}\nMainstem-Attempt: {attempt}\nMainstem-Run: {run}\n")
}

/// Moves the target branch, or finds that it has been moved, and tells.
pub fn land(errand: &Errand, old: &Oid, new: &Oid, tree: &Oid) {
    let (task, attempt) = (errand.ix, errand.attempt);
    match try_land(errand, old, new, tree) {
        Ok(Outcome::Landed { commit, old }) => {
            follow(errand, &old, &commit);
            errand.tell(Input::Landed { task, attempt, commit, old });
        }
        Ok(Outcome::Refused { found }) => {
            errand.tell(Input::LandingRefused { task, attempt, new: new.clone(), found });
        }
        Err(reason) => errand.tell(Input::TrainFailed { task, attempt, reason }),
    }
}

enum Outcome {
    Landed { commit: Oid, old: Oid },
    Refused { found: Option<Oid> },
}

fn try_land(errand: &Errand, old: &Oid, new: &Oid, tree: &Oid) -> Result<Outcome, String> {
    let world = &errand.world;
    let repo = &world.repo;
    let words = |error: GitError| error.to_string();
    let target = world.target_ref();
    let landed = || Outcome::Landed { commit: new.clone(), old: old.clone() };
    let Some(now) = repo.read_ref(&target).map_err(words)? else {
        return Ok(Outcome::Refused { found: None });
    };
    if now != *old {
        if repo.is_ancestor(new, &now).map_err(words)? {
            return Ok(landed());
        }
        let id = errand.task.id.as_str();
        let attempt = errand.attempt.to_string();
        let trailers = [
            ("Mainstem-Run", world.run.as_str()),
            ("Mainstem-Task", id),
            ("Mainstem-Attempt", attempt.as_str()),
        ];
        return Ok(match repo.find_landing(&now, &trailers, None).map_err(words)? {
            Some(commit) => {
                // Where it stands now, not where it was to land: somebody's work may be between.
                let before = repo.resolve(&format!("{commit}^1")).map_err(words)?;
                Outcome::Landed { commit, old: before.unwrap_or_else(|| old.clone()) }
            }
            None => Outcome::Refused { found: Some(now) },
        });
    }
    if repo.tree_of(new).map_err(words)? != *tree {
        return Err("the commit to land does not have the verified tree".to_owned());
    }
    // A checkout that cannot be looked at now is told about when it is to follow.
    let expected = repo.expect_move(&world.target, old, new).unwrap_or_default();
    crash::point("land.before");
    let reason = format!("mainstem: land {}", errand.task.id);
    match repo.update_ref(&target, new, Some(old), &reason).map_err(words)? {
        Cas::Moved => {
            crash::point("land.moved");
            Ok(landed())
        }
        Cas::Refused { found } => {
            expected.withdraw();
            Ok(Outcome::Refused { found })
        }
    }
}

fn follow(errand: &Errand, old: &Oid, new: &Oid) {
    let world = &errand.world;
    let task = errand.ix;
    let try_it = || world.repo.follow_checkout(&world.target, old, new);
    // A checkout that stays behind shows the landing as if the user had taken it back.
    let followed = (1..FOLLOW_TRIES).find_map(|_| try_it().ok()).map_or_else(try_it, Ok);
    match followed {
        Ok(Follow::NotCheckedOut | Follow::Moved) => {}
        Ok(Follow::Left { why }) => {
            errand.tell(Input::CheckoutFollowed { task, moved: false, why });
        }
        Err(error) => {
            let why = error.to_string();
            errand.tell(Input::CheckoutFollowed { task, moved: false, why });
        }
    }
    crash::point("land.followed");
}
