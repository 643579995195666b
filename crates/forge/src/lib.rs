//! Asks a forge for pull requests, checks, reviews and issues, and says honestly what became of each
//! wish.
//!
//! A [`Forge`] does one thing per call. [`GitHubForge`] is the one there is; requests are built and answers
//! read by pure functions (`github::ask`, `github::read`), sent by a [`wire::ForgeTransport`], and paced by
//! rules of their own (`pace`). Knows no tasks, no plan, no policy and no git: what a red check means is
//! decided elsewhere.

pub mod error;
pub mod model;
pub mod forge;
pub mod remote;
pub mod token;
pub mod wire;
pub mod rate_limit;
mod http;
pub mod github;

pub use error::ForgeError;
pub use forge::{
    Forge, ForgeMergeOptions, OpenedPullRequest, merge_pull_request_once, open_pull_request_once,
};
pub use github::GitHubForge;
pub use http::ForgeHttpClient;
pub use model::{
    ForgeCheck, ForgeCheckState, ForgeComment, ForgeIssue, ForgeMergeability, ForgePullRequest,
    ForgePullRequestState, ForgeReview, ForgeReviewState, MergeMethod, MergedPullRequest,
    NewPullRequest,
};
pub use remote::ForgeRepository;
