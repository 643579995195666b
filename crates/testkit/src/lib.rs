//! Scenes for tests: throw-away repositories, plans, scripted agents, an oracle that reads only what a user can see.
//!
//! Knows the product by its command line, git and `/proc`; none of its crates. What fails here fails
//! a test, so everything panics with the story instead of returning errors.

pub mod repo;
pub mod wait;
pub mod scene;
pub mod look;
pub mod oracle;
pub mod plans;
pub mod program;
pub mod shell;
mod http;
pub mod llm;
pub mod forge;

pub use oracle::{KeptWorkspace, Landing, assert_history_gapless, max_concurrent};
pub use plans::{Body, Model, PlanShape, Rng, random_plan};
pub use program::{fake_agent, mainstem, real_agent};
pub use repo::{Output, Repo};
pub use scene::{Running, Scene};
pub use wait::wait_until;
