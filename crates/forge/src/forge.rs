//! One call, one wish; and the two wishes that must come true once however often they are made.

use crate::error::ForgeError;
use crate::model::{Check, Comment, Issue, Merged, Method, NewPull, Pull, PullState, Review};

/// A place where pull requests live. Every call blocks; none is repeated by itself if it may have had
/// an effect: [`ForgeError::Unsure`] says so, and the caller looks.
pub trait Forge: Send + Sync {
    /// The forge's name, for messages.
    fn host(&self) -> &str;

    /// All pull requests that offer this branch, newest first.
    fn pulls_of(&self, head: &str) -> Result<Vec<Pull>, ForgeError>;

    /// Open pull requests that go into this branch, newest first.
    fn pulls_into(&self, base: &str) -> Result<Vec<Pull>, ForgeError>;

    /// One pull request.
    fn pull(&self, number: u64) -> Result<Pull, ForgeError>;

    /// Makes one. Its labels and milestone are set by [`Forge::dress`].
    fn create(&self, new: &NewPull) -> Result<Pull, ForgeError>;

    /// Sets title and text.
    fn describe(&self, number: u64, title: &str, body: &str) -> Result<(), ForgeError>;

    /// Changes the branch it goes into.
    fn retarget(&self, number: u64, base: &str) -> Result<(), ForgeError>;

    /// Adds labels and sets the milestone; what is there already stays.
    fn dress(
        &self,
        number: u64,
        labels: &[String],
        milestone: Option<&str>,
    ) -> Result<(), ForgeError>;

    /// The checks of a commit, the newest of each name.
    fn checks(&self, commit: &str) -> Result<Vec<Check>, ForgeError>;

    /// The end of what the job behind a check printed.
    fn job_log(&self, job: u64) -> Result<String, ForgeError>;

    /// The reviews, oldest first.
    fn reviews(&self, number: u64) -> Result<Vec<Review>, ForgeError>;

    /// The remarks, on lines and in general, oldest first.
    fn comments(&self, number: u64) -> Result<Vec<Comment>, ForgeError>;

    /// Writes a remark.
    fn comment(&self, number: u64, body: &str) -> Result<(), ForgeError>;

    /// Merges it, if its head is still this commit.
    fn merge(&self, number: u64, wish: &Merging<'_>) -> Result<Merged, ForgeError>;

    /// Lets the forge merge the base into it, if its head is still this commit.
    fn update_branch(&self, number: u64, head: &str) -> Result<(), ForgeError>;

    /// The commit of a branch, if there is such a branch.
    fn branch(&self, name: &str) -> Result<Option<String>, ForgeError>;

    /// Removes a branch; one that is gone already is fine.
    fn delete_branch(&self, name: &str) -> Result<(), ForgeError>;

    /// The issues, oldest first, with what they wait for.
    fn issues(&self, with_closed: bool) -> Result<Vec<Issue>, ForgeError>;
}

/// How to merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging<'a> {
    /// Only if this is still the head.
    pub head: &'a str,
    /// In which way.
    pub method: Method,
    /// Subject of the commit.
    pub title: &'a str,
    /// The rest of its message.
    pub message: &'a str,
}

/// A pull request that was found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// It.
    pub pull: Pull,
    /// It was not there before.
    pub created: bool,
}

/// Finds the pull request of a branch or makes one. `tip` is the branch's commit: a pull request that
/// is over counts only if it offered exactly that, so that work which was merged and not recorded is
/// found, and what an earlier run did with the same branch is not taken for it. `closed` are known to
/// be over.
pub fn open_once(
    forge: &dyn Forge,
    new: &NewPull,
    tip: &str,
    closed: &[u64],
) -> Result<Opened, ForgeError> {
    let find = || -> Result<Option<Pull>, ForgeError> {
        let pulls = forge.pulls_of(&new.head)?;
        let open = pulls.iter().find(|pull| pull.state == PullState::Open);
        let over =
            || pulls.iter().find(|pull| pull.head_commit == tip && !closed.contains(&pull.number));
        Ok(open.or_else(over).cloned())
    };
    if let Some(mut pull) = find()? {
        if pull.state == PullState::Open && pull.base != new.base {
            // Somebody else's wish, or an earlier setting's: merged there it would land elsewhere.
            forge.retarget(pull.number, &new.base)?;
            new.base.clone_into(&mut pull.base);
        }
        return Ok(Opened { pull, created: false });
    }
    match forge.create(new) {
        Ok(pull) => Ok(Opened { pull, created: true }),
        // Somebody was faster, or we were, and the answer got lost.
        Err(error @ (ForgeError::Unsure { .. } | ForgeError::Refused { .. })) => match find()? {
            Some(pull) => Ok(Opened { pull, created: true }),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Merges a pull request, or finds that it has been merged.
pub fn merge_once(
    forge: &dyn Forge,
    number: u64,
    wish: &Merging<'_>,
) -> Result<Merged, ForgeError> {
    let merged = |pull: Pull| match pull.state {
        PullState::Merged { commit } => Some(Merged { commit }),
        PullState::Open | PullState::Closed => None,
    };
    if let Some(merged) = merged(forge.pull(number)?) {
        return Ok(merged);
    }
    match forge.merge(number, wish) {
        Err(error @ (ForgeError::Unsure { .. } | ForgeError::Refused { .. })) => {
            merged(forge.pull(number)?).ok_or(error)
        }
        other => other,
    }
}
