//! What a forge has, in our words. Plain data.

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgePullRequest {
    /// Its number.
    pub number: u64,
    /// Its page.
    pub url: String,
    /// Its title.
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
    /// It is.
    Open,
    /// It was closed and not merged.
    Closed,
    /// It was merged.
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
    /// It can.
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
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Not meant to be merged yet.
    pub draft: bool,
    /// Labels, by name.
    pub labels: Vec<String>,
    /// The milestone, by title or number.
    pub milestone: Option<String>,
}

/// One check of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeCheck {
    /// Its name.
    pub name: String,
    /// How it stands.
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
    /// It is content.
    Passed,
    /// It had nothing to say: skipped or neutral.
    Neutral,
    /// It is not content, or could not run.
    Failed,
}

/// One review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeReview {
    /// The forge's number; grows.
    pub id: u64,
    /// Who.
    pub who: String,
    /// What came out.
    pub state: ForgeReviewState,
    /// What was written.
    pub body: String,
    /// The commit that was looked at.
    pub commit: String,
}

/// What came out of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgeReviewState {
    /// Content.
    Approved,
    /// Something must change.
    ChangesRequested,
    /// Remarks only.
    Commented,
    /// Taken back.
    Dismissed,
}

/// A remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeComment {
    /// The forge's number; grows.
    pub id: u64,
    /// Who.
    pub who: String,
    /// What.
    pub body: String,
    /// The review it belongs to.
    pub review: Option<u64>,
    /// About which file and line.
    pub at: Option<(String, Option<u64>)>,
}

/// How a pull request becomes part of its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    /// A merge commit.
    Merge,
    /// One commit with the whole change.
    Squash,
    /// Its commits, replayed.
    Rebase,
}

impl MergeMethod {
    /// The forge's word.
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

/// An issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgeIssue {
    /// Its number.
    pub number: u64,
    /// In a few words.
    pub title: String,
    /// In more.
    pub body: String,
    /// It is open.
    pub open: bool,
    /// Its labels.
    pub labels: Vec<String>,
    /// Its milestone.
    pub milestone: Option<String>,
    /// Its page.
    pub url: String,
    /// Issues that must be done before.
    pub blocked_by: Vec<u64>,
    /// Issues that it consists of.
    pub parts: Vec<u64>,
}
