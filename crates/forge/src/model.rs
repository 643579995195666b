//! What a forge has, in our words. Plain data.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgePullRequest {
    pub number: u64,
    pub url: String,
    pub title: String,
    /// Open, closed or merged.
    pub state: ForgePullRequestState,
    /// Not meant to be merged yet.
    pub draft: bool,
    /// The branch that is offered.
    pub head: String,
    /// That branch's commit as the forge knows it.
    pub head_commit: String,
    /// The branch it would go into.
    pub base: String,
    /// Whether it can be merged.
    pub mergeable: ForgeMergeability,
}

/// Whether a pull request is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForgePullRequestState {
    Open,
    /// It was closed and not merged.
    Closed,
    Merged {
        /// The commit on the base branch.
        commit: String,
    },
}

/// Whether a pull request can be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeMergeability {
    /// The forge has not found out yet.
    Unknown,
    Yes,
    /// It clashes with its base.
    Conflict,
    /// The forge's rules do not let it: reviews or checks are missing.
    Blocked,
    /// The forge's rules want the base merged into it first.
    Behind,
}

/// A pull request to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// The branch that is offered.
    pub head: String,
    /// The branch it should go into.
    pub base: String,
    pub title: String,
    pub body: String,
    /// Not meant to be merged yet.
    pub draft: bool,
    pub labels: Vec<String>,
    /// The milestone, by title or number.
    pub milestone: Option<String>,
}

/// One check of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeCheck {
    pub name: String,
    pub state: ForgeCheckState,
    /// What it says: title, summary, the end of its log.
    pub detail: String,
    /// The forge's number of the job behind it, where it has one.
    pub job: Option<u64>,
}

/// How a check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeCheckState {
    /// It has not ended.
    Pending,
    Passed,
    /// It had nothing to say: skipped or neutral.
    Neutral,
    /// It is not content, or could not run.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeReview {
    /// The forge's number; grows.
    pub id: u64,
    pub who: String,
    pub state: ForgeReviewState,
    pub body: String,
    /// The commit that was looked at.
    pub commit: String,
}

/// What came out of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeReviewState {
    Approved,
    ChangesRequested,
    Commented,
    Dismissed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeComment {
    /// The forge's number; grows.
    pub id: u64,
    pub who: String,
    pub body: String,
    /// The review it belongs to.
    pub review: Option<u64>,
    /// About which file and line.
    pub at: Option<(String, Option<u64>)>,
}

/// How a pull request becomes part of its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    Merge,
    /// One commit with the whole change.
    Squash,
    Rebase,
}

impl MergeMethod {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Squash => "squash",
            Self::Rebase => "rebase",
        }
    }
}

/// A pull request that is merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedPullRequest {
    /// The commit on the base branch.
    pub commit: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeIssue {
    pub number: u64,
    /// In a few words.
    pub title: String,
    pub body: String,
    pub open: bool,
    pub labels: Vec<String>,
    pub milestone: Option<String>,
    pub url: String,
    /// Issues that must be done before.
    pub blocked_by: Vec<u64>,
    /// Issues that it consists of.
    pub parts: Vec<u64>,
}
