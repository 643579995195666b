//! Asks a forge for pull requests, checks, reviews and issues, and says honestly what became of each
//! wish.
//!
//! A [`Forge`] does one thing per call. [`GitHub`] is the one there is; requests are built and answers
//! read by pure functions (`github::ask`, `github::read`), sent by a [`wire::Transport`], and paced by
//! rules of their own (`pace`). Knows no tasks, no plan, no policy and no git: what a red check means is
//! decided elsewhere.

pub mod error;
pub mod model;
pub mod forge;
pub mod remote;
pub mod token;
pub mod wire;
pub mod pace;
mod http;
pub mod github;

pub use error::ForgeError;
pub use forge::{Forge, Merging, Opened, merge_once, open_once};
pub use github::GitHub;
pub use http::Http;
pub use model::{
    Check, CheckState, Comment, Issue, Mergeable, Merged, Method, NewPull, Pull, PullState, Review,
    ReviewState,
};
pub use remote::Place;
