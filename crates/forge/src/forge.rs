//! One call, one wish; and the two wishes that must come true once however often they are made.

use crate::error::ForgeError;
use crate::model::{
    ForgeCheck, ForgeComment, ForgeIssue, ForgePullRequest, ForgePullRequestState, ForgeReview,
    MergeMethod, MergedPullRequest, NewPullRequest,
};

/// A place where pull requests live. Every call blocks; none is repeated by itself if it may have had
/// an effect: [`ForgeError::Unsure`] says so, and the caller looks.
pub trait Forge: Send + Sync {
    /// The forge's name, for messages.
    fn host(&self) -> &str;

    /// All pull requests that offer this branch, newest first.
    fn pull_requests_from(&self, head: &str) -> Result<Vec<ForgePullRequest>, ForgeError>;

    /// Open pull requests that go into this branch, newest first.
    fn pull_requests_into(&self, base: &str) -> Result<Vec<ForgePullRequest>, ForgeError>;

    fn get_pull_request(&self, number: u64) -> Result<ForgePullRequest, ForgeError>;

    /// Makes one. Its labels and milestone are set by [`Forge::set_labels`].
    fn create_pull_request(&self, new: &NewPullRequest) -> Result<ForgePullRequest, ForgeError>;

    /// Sets title and text.
    fn set_title_and_body(&self, number: u64, title: &str, body: &str) -> Result<(), ForgeError>;

    /// Changes the branch it goes into.
    fn retarget(&self, number: u64, base: &str) -> Result<(), ForgeError>;

    /// Adds labels and sets the milestone; what is there already stays.
    fn set_labels(
        &self,
        number: u64,
        labels: &[String],
        milestone: Option<&str>,
    ) -> Result<(), ForgeError>;

    /// The checks of a commit, the newest of each name.
    fn list_checks(&self, commit: &str) -> Result<Vec<ForgeCheck>, ForgeError>;

    /// The end of what the job behind a check printed.
    fn read_job_log(&self, job: u64) -> Result<String, ForgeError>;

    /// The reviews, oldest first.
    fn list_reviews(&self, number: u64) -> Result<Vec<ForgeReview>, ForgeError>;

    /// The remarks, on lines and in general, oldest first.
    fn list_comments(&self, number: u64) -> Result<Vec<ForgeComment>, ForgeError>;

    fn add_comment(&self, number: u64, body: &str) -> Result<(), ForgeError>;

    /// Merges it, if its head is still this commit.
    fn merge_pull_request(
        &self,
        number: u64,
        wish: &ForgeMergeOptions<'_>,
    ) -> Result<MergedPullRequest, ForgeError>;

    /// Lets the forge merge the base into it, if its head is still this commit.
    fn update_branch(&self, number: u64, head: &str) -> Result<(), ForgeError>;

    /// The commit of a branch, if there is such a branch.
    fn branch_commit(&self, name: &str) -> Result<Option<String>, ForgeError>;

    /// Removes a branch; one that is gone already is fine.
    fn delete_branch(&self, name: &str) -> Result<(), ForgeError>;

    /// The issues, oldest first, with what they wait for.
    fn list_issues(&self, with_closed: bool) -> Result<Vec<ForgeIssue>, ForgeError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgeMergeOptions<'a> {
    /// Only if this is still the head.
    pub head: &'a str,
    pub method: MergeMethod,
    /// Subject of the commit.
    pub title: &'a str,
    /// The rest of its message.
    pub message: &'a str,
}

/// A pull request that was found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPullRequest {
    pub pull: ForgePullRequest,
    /// It was not there before.
    pub created: bool,
}

/// Finds the pull request of a branch or makes one. `tip` is the branch's commit: a pull request that
/// is over counts only if it offered exactly that, so that work which was merged and not recorded is
/// found, and what an earlier run did with the same branch is not taken for it. `closed` are known to
/// be over.
pub fn open_pull_request_once(
    forge: &dyn Forge,
    new: &NewPullRequest,
    tip: &str,
    closed: &[u64],
) -> Result<OpenedPullRequest, ForgeError> {
    let find = || -> Result<Option<ForgePullRequest>, ForgeError> {
        let pulls = forge.pull_requests_from(&new.head)?;
        let open = pulls.iter().find(|pull| pull.state == ForgePullRequestState::Open);
        let over =
            || pulls.iter().find(|pull| pull.head_commit == tip && !closed.contains(&pull.number));
        Ok(open.or_else(over).cloned())
    };
    if let Some(mut pull) = find()? {
        if pull.state == ForgePullRequestState::Open && pull.base != new.base {
            // Somebody else's wish, or an earlier setting's: merged there it would land elsewhere.
            forge.retarget(pull.number, &new.base)?;
            new.base.clone_into(&mut pull.base);
        }
        return Ok(OpenedPullRequest { pull, created: false });
    }
    match forge.create_pull_request(new) {
        Ok(pull) => Ok(OpenedPullRequest { pull, created: true }),
        // Somebody was faster, or we were, and the answer got lost.
        Err(error @ (ForgeError::Unsure { .. } | ForgeError::Refused { .. })) => match find()? {
            Some(pull) => Ok(OpenedPullRequest { pull, created: true }),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Merges a pull request, or finds that it has been merged.
pub fn merge_pull_request_once(
    forge: &dyn Forge,
    number: u64,
    wish: &ForgeMergeOptions<'_>,
) -> Result<MergedPullRequest, ForgeError> {
    let merged = |pull: ForgePullRequest| match pull.state {
        ForgePullRequestState::Merged { commit } => Some(MergedPullRequest { commit }),
        ForgePullRequestState::Open | ForgePullRequestState::Closed => None,
    };
    if let Some(merged) = merged(forge.get_pull_request(number)?) {
        return Ok(merged);
    }
    match forge.merge_pull_request(number, wish) {
        Err(error @ (ForgeError::Unsure { .. } | ForgeError::Refused { .. })) => {
            merged(forge.get_pull_request(number)?).ok_or(error)
        }
        other => other,
    }
}
