//! Work that lands through a pull request: what is known of one, what is seen of it, and what follows
//! from that. Knows no forge, no git and no clock; the words are ours, not a forge's.

use serde::{Deserialize, Serialize};

use crate::config::PullRequestSettings;
use crate::fact::Fact;
use crate::id::{Oid, TaskId};

/// The branch on the remote is about to move, from exactly here to exactly there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestPush {
    pub task: TaskId,
    pub attempt: u32,
    /// The branch, here and there.
    pub branch: String,
    pub tip: Oid,
    /// From here; none if it must not be there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Oid>,
}

/// A pull request stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullOpenedFact {
    pub task: TaskId,
    pub attempt: u32,
    pub number: u64,
    pub url: String,
    /// It was made; otherwise it was there.
    pub created: bool,
}

/// How a pull request stands, told when that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullSeenFact {
    pub task: TaskId,
    pub attempt: u32,
    pub number: u64,
    /// The commit it offers.
    pub head: Oid,
    /// What it waits for, in words.
    pub waits_for: String,
    /// That commit is not ours, nor does it build on ours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

/// A pull request is about to be merged, if it still offers this commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeIntentFact {
    pub task: TaskId,
    pub attempt: u32,
    pub number: u64,
    pub head: Oid,
}

/// Work on a pull request goes on, in another attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullReworkFact {
    pub task: TaskId,
    /// Which attempt was not good enough.
    pub attempt: u32,
    pub number: u64,
    /// The next attempt begins here.
    pub head: Oid,
    /// Reviews up to this one are answered by it.
    #[serde(default)]
    pub reviews: u64,
}

/// A pull request is over and was not merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullClosedFact {
    pub task: TaskId,
    pub attempt: u32,
    pub number: u64,
}

/// What an attempt's work builds on, besides the target branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStackedFact {
    pub task: TaskId,
    pub attempt: u32,
    /// The pull request below; none if there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<LowerPullRequest>,
}

/// The pull request below another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowerPullRequest {
    pub task: TaskId,
    /// The commit of it that is in the work above.
    pub tip: Oid,
}

impl Fact {
    /// Is it about a pull request?
    pub fn is_about_pull_request(&self) -> bool {
        matches!(
            self,
            Self::PushIntended(_)
                | Self::PullOpened(_)
                | Self::PullSeen(_)
                | Self::MergeIntended(_)
                | Self::PullReworked(_)
                | Self::PullClosed(_)
                | Self::PullStacked(_)
        )
    }
}

/// What is known of a task's pull request, from facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskPullRequest {
    /// The attempt it was last about.
    pub attempt: u32,
    /// How far it is.
    pub stage: PullRequestStage,
    /// Its number, once it stands.
    pub number: Option<u64>,
    pub url: String,
    /// What the branch on the remote was last known to be, by our own doing or consent.
    pub pushed: Option<Oid>,
    /// Reviews up to this one are answered.
    pub reviews: u64,
    /// The next attempt begins here rather than on the target branch.
    pub from: Option<Oid>,
    /// Numbers of those that were closed.
    pub closed: Vec<u64>,
    /// What it waits for, in words.
    pub waits_for: String,
    /// The commit it was last seen to offer.
    pub head: Option<Oid>,
    /// Somebody replaced what we had put there.
    pub foreign: bool,
    /// What it builds on that is not merged, or whose merge it has not taken in.
    pub stacked_on: Option<LowerPullRequest>,
    /// The attempt of which that was said.
    pub stacked_on_attempt: u32,
}

/// How far a pull request is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PullRequestStage {
    /// Nothing is under way.
    #[default]
    Idle,
    /// The branch is about to move, and the pull request to be found or made.
    Opening(PullRequestPush),
    /// It stands and is looked at.
    Open,
    /// It is about to be merged.
    Merging {
        /// If it still offers this.
        head: Oid,
    },
}

impl TaskPullRequest {
    /// Moves by what happened.
    pub fn apply_push(&mut self, push: &PullRequestPush) {
        self.attempt = push.attempt;
        self.stage = PullRequestStage::Opening(push.clone());
        self.from = None;
    }

    pub fn apply_opened(&mut self, opened: &PullOpenedFact) {
        if let PullRequestStage::Opening(push) = std::mem::take(&mut self.stage) {
            self.head = Some(push.tip.clone());
            self.pushed = Some(push.tip);
        }
        self.stage = PullRequestStage::Open;
        self.number = Some(opened.number);
        opened.url.clone_into(&mut self.url);
        self.waits_for.clear();
        self.foreign = false;
    }

    pub fn apply_seen(&mut self, seen: &PullSeenFact) {
        self.stage = PullRequestStage::Open;
        self.foreign = seen.foreign;
        self.head = Some(seen.head.clone());
        seen.waits_for.clone_into(&mut self.waits_for);
    }

    pub fn apply_merging(&mut self, wish: &MergeIntentFact) {
        self.stage = PullRequestStage::Merging { head: wish.head.clone() };
    }

    pub fn apply_rework(&mut self, rework: &PullReworkFact) {
        self.stage = PullRequestStage::Idle;
        self.from = Some(rework.head.clone());
        self.pushed = Some(rework.head.clone());
        self.reviews = self.reviews.max(rework.reviews);
    }

    pub fn apply_closed(&mut self, closed: &PullClosedFact) {
        self.stage = PullRequestStage::Idle;
        self.number = None;
        self.closed.push(closed.number);
    }

    pub fn apply_stacked(&mut self, stacked: &PullStackedFact) {
        self.stacked_on.clone_from(&stacked.on);
        self.stacked_on_attempt = stacked.attempt;
        if self.stacked_on.is_none() {
            self.from = None;
        }
    }

    /// The attempt is over, or everything begins anew.
    pub fn reset_stage(&mut self) {
        self.stage = PullRequestStage::Idle;
        self.waits_for.clear();
    }
}

/// What is to be done about a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgeAction {
    /// Push the branch, find the pull request or make it.
    Open {
        /// From where to where.
        push: PullRequestPush,
        /// Numbers that are over.
        closed: Vec<u64>,
        /// The pull request that it is stacked on; none if it goes to the target branch.
        onto: Option<PullRequestBase>,
    },
    /// Look how it stands.
    Look {
        number: u64,
        /// What we put there.
        pushed: Option<Oid>,
    },
    /// Let the forge merge the target branch into it.
    Update {
        number: u64,
        /// If it still offers this.
        head: Oid,
    },
    /// Merge it, or find it merged.
    Merge {
        number: u64,
        /// If it still offers this.
        head: Oid,
    },
    /// What it was stacked on is merged: take in what the target branch made of that.
    Restack {
        number: u64,
        /// What we put there.
        pushed: Option<Oid>,
        /// The commit of the merged one that its work contains.
        below: Oid,
    },
}

/// A pull request that another one goes into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestBase {
    /// Its number, once it stands.
    pub number: Option<u64>,
    pub branch: String,
}

/// What became of a deed.
#[derive(Debug, Clone, PartialEq)]
pub enum ForgeActionResult {
    Opened {
        number: u64,
        url: String,
        created: bool,
        tip: Oid,
    },
    /// The branch on the remote is not where it was to be.
    PushRefused {
        /// What was to be pushed.
        tip: Oid,
        /// Where it is; none if it is gone.
        found: Option<Oid>,
        /// What is there is ours: an attempt of this task put it there and it is kept here.
        ours: bool,
    },
    /// This is how it stands.
    Looked(PullRequestObservation),
    Merged {
        /// The commit on the target branch.
        commit: Oid,
        /// The target branch's commit before.
        old: Oid,
    },
    /// It can go to the target branch once this is pushed.
    Restacked {
        /// What it offers now.
        head: Oid,
        /// What it is to offer; the same if nothing is to be taken in.
        tip: Oid,
    },
    /// Without what it was stacked on it clashes with the target branch.
    RestackClashed {
        head: Oid,
        /// The target branch's commit.
        onto: Oid,
        files: Vec<String>,
    },
    /// The forge does not merge it.
    MergeRefused {
        why: String,
    },
    /// It is not known, or not now: all that is wanted is asked for again.
    Failed {
        reason: String,
        /// Not before so many milliseconds.
        after_ms: Option<u64>,
        /// The forge answered, and asking again will hardly help: it is not there, or not for us.
        refused: bool,
    },
}

/// How a pull request stands, as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestObservation {
    pub number: u64,
    /// Open, closed or merged.
    pub state: ObservedPullState,
    /// The commit it offers.
    pub head: Oid,
    /// That is what we put there, or builds on it.
    pub ours: bool,
    /// Not meant to be merged yet.
    pub draft: bool,
    /// Whether it can be merged.
    pub mergeable: PullRequestMergeability,
    /// The target branch's commit and the files that clash, where they do.
    pub conflict: Option<(Oid, Vec<String>)>,
    /// What checks say of that commit.
    pub checks: Vec<ObservedPullCheck>,
    /// What reviewers say, oldest first.
    pub reviews: Vec<ObservedPullReview>,
}

/// Open, closed or merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedPullState {
    Open,
    /// Closed and not merged.
    Closed,
    /// Merged into another branch than the target branch.
    Elsewhere {
        branch: String,
    },
    Merged {
        /// The commit on the target branch.
        commit: Oid,
        /// The target branch's commit before.
        old: Oid,
    },
}

/// Whether it can be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestMergeability {
    Unknown,
    Yes,
    Conflict,
    /// The forge's rules hold it.
    Blocked,
    /// The forge's rules want the target branch merged into it.
    Behind,
}

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPullCheck {
    pub name: String,
    pub state: ObservedCheckState,
    pub detail: String,
}

/// How a check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedCheckState {
    /// It has not ended.
    Pending,
    Passed,
    Neutral,
    Failed,
}

/// What one reviewer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPullReview {
    pub id: u64,
    pub who: String,
    /// Content, not content, or neither.
    pub verdict: Option<bool>,
    /// In their words, remarks on lines included.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullRequestDecision {
    /// Nothing, until this changes.
    Wait(String),
    /// The agent is to go on with it.
    Rework {
        /// What is not good: who says so, and what.
        findings: Vec<(String, String)>,
        /// Reviews up to this one are answered by that.
        reviews: u64,
    },
    /// It clashes with the target branch.
    Conflict {
        /// The target branch's commit.
        onto: Oid,
        files: Vec<String>,
    },
    /// The target branch is to be merged into it.
    Update,
    /// It is to be merged.
    Merge,
    Landed {
        /// The commit on the target branch.
        commit: Oid,
        /// The target branch's commit before.
        old: Oid,
    },
    GiveUp,
    /// Somebody merged it into another branch than the target branch.
    Elsewhere {
        branch: String,
    },
}

/// Says what follows from how a pull request stands. Only what is known to be good is merged: a check
/// that has not spoken, a reviewer who is not content, a forge that has not made up its mind all mean
/// to wait.
pub fn decide_pull_request(
    sight: &PullRequestObservation,
    known: &TaskPullRequest,
    policy: &PullRequestSettings,
) -> PullRequestDecision {
    match &sight.state {
        ObservedPullState::Merged { commit, old } => {
            return PullRequestDecision::Landed { commit: commit.clone(), old: old.clone() };
        }
        ObservedPullState::Closed => return PullRequestDecision::GiveUp,
        ObservedPullState::Elsewhere { branch } => {
            return PullRequestDecision::Elsewhere { branch: branch.clone() };
        }
        ObservedPullState::Open => {}
    }
    if !sight.ours {
        return wait_for(
            "a person to merge the pull request: the branch has commits that replaced ours",
        );
    }
    let untouched = known.pushed.as_ref() == Some(&sight.head);
    if sight.mergeable == PullRequestMergeability::Conflict {
        return match &sight.conflict {
            Some((onto, files)) if untouched => {
                PullRequestDecision::Conflict { onto: onto.clone(), files: files.clone() }
            }
            Some(_) => {
                wait_for("a person to resolve conflicts: the branch has commits by someone else")
            }
            // The forge is behind, or we are: next time both have seen the same.
            None => wait_for("the forge, which reports conflicts"),
        };
    }
    let pending = check_names(sight, ObservedCheckState::Pending);
    let against = objecting_reviews(sight);
    let fresh: Vec<&ObservedPullReview> =
        against.iter().copied().filter(|review| review.id > known.reviews).collect();
    if !fresh.is_empty() {
        let words = |review: &&ObservedPullReview| {
            (format!("review by {}", review.who), review.text.clone())
        };
        let mut findings: Vec<_> = fresh.iter().map(words).collect();
        findings.extend(failed_checks(sight));
        let reviews = fresh.iter().map(|review| review.id).max().unwrap_or(0);
        return PullRequestDecision::Rework { findings, reviews };
    }
    if !pending.is_empty() {
        return wait_for(&format!("checks: {}", pending.join(", ")));
    }
    let findings: Vec<_> = failed_checks(sight).collect();
    if !findings.is_empty() {
        return PullRequestDecision::Rework { findings, reviews: known.reviews };
    }
    if let Some(review) = against.first() {
        return wait_for(&format!("a new review by {}, who requested changes", review.who));
    }
    if policy.require_checks && !sight.checks.iter().any(|c| c.state == ObservedCheckState::Passed)
    {
        return wait_for("a first check to pass (land.require_checks)");
    }
    let approvals =
        latest_reviews(sight).iter().filter(|review| review.verdict == Some(true)).count();
    if approvals < policy.approvals as usize {
        return wait_for(&format!("{} of {} approvals", approvals, policy.approvals));
    }
    if sight.draft {
        return wait_for("a person to mark the draft as ready");
    }
    decide_when_ready(sight, policy)
}

/// The same for one that is stacked on another: it is not merged before that one, and what it clashes
/// with is still to change.
pub fn decide_stacked_pull_request(
    sight: &PullRequestObservation,
    known: &TaskPullRequest,
    policy: &PullRequestSettings,
    below: &str,
) -> PullRequestDecision {
    // Who merges is a question for when there is something to merge.
    let policy = PullRequestSettings { auto_merge: true, ..policy.clone() };
    match decide_pull_request(sight, known, &policy) {
        PullRequestDecision::Merge | PullRequestDecision::Update => {
            wait_for(&format!("{below}, which is below in the stack"))
        }
        PullRequestDecision::Conflict { .. } => wait_for(&format!(
            "{below}, which is below in the stack and conflicts with this pull request"
        )),
        other => other,
    }
}

/// All is good; what is left is the forge's word.
fn decide_when_ready(
    sight: &PullRequestObservation,
    policy: &PullRequestSettings,
) -> PullRequestDecision {
    match sight.mergeable {
        _ if !policy.auto_merge => wait_for("a person to merge the pull request (land.auto_merge)"),
        PullRequestMergeability::Yes => PullRequestDecision::Merge,
        PullRequestMergeability::Behind => PullRequestDecision::Update,
        PullRequestMergeability::Blocked => wait_for("the branch protection rules of the forge"),
        PullRequestMergeability::Unknown | PullRequestMergeability::Conflict => {
            wait_for("the forge to allow the merge")
        }
    }
}

fn wait_for(what: &str) -> PullRequestDecision {
    PullRequestDecision::Wait(what.to_owned())
}

fn check_names(sight: &PullRequestObservation, state: ObservedCheckState) -> Vec<&str> {
    let these = sight.checks.iter().filter(|check| check.state == state);
    these.map(|check| check.name.as_str()).collect()
}

fn failed_checks(sight: &PullRequestObservation) -> impl Iterator<Item = (String, String)> {
    let these = sight.checks.iter().filter(|check| check.state == ObservedCheckState::Failed);
    these.map(|check| (format!("check {}", check.name), check.detail.clone()))
}

/// The last verdict of each reviewer; remarks without one take none back.
fn latest_reviews(sight: &PullRequestObservation) -> Vec<&ObservedPullReview> {
    let mut last: Vec<&ObservedPullReview> = Vec::new();
    for review in sight.reviews.iter().filter(|review| review.verdict.is_some()) {
        last.retain(|earlier| earlier.who != review.who);
        last.push(review);
    }
    last
}

fn objecting_reviews(sight: &PullRequestObservation) -> Vec<&ObservedPullReview> {
    latest_reviews(sight).into_iter().filter(|review| review.verdict == Some(false)).collect()
}

#[cfg(test)]
mod tests;
