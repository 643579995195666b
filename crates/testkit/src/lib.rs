//! Scenes for tests: throw-away repositories, plans, scripted agents, an oracle that reads only what a user can see.
//!
//! Knows the product by its command line, git and `/proc`; none of its crates. What fails here fails
//! a test, so everything panics with the story instead of returning errors.

pub mod repo;
pub mod wait;
pub mod scene;
pub mod product_status;
pub mod oracle;
pub mod random_plan;
pub mod program;
pub mod shell_plans;
mod http;
pub mod llm;
pub mod forge;

pub use oracle::{KeptWorkspace, ObservedLanding, assert_history_gapless, max_concurrent};
pub use program::{fake_agent, mainstem, real_agent};
pub use random_plan::{PlanModel, RandomPlanShape, RandomTaskBody, SeededRng, random_plan};
pub use repo::{TestCommandOutput, TestRepo};
pub use scene::{TestScene, TestSceneProcess};
pub use wait::wait_until;
