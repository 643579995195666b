//! Given facts, says what is true and what to do next. Pure: no I/O, no clock, no randomness.
//!
//! Modules stand in reading order: names, the plan, its graph, what happened, where each task
//! stands, who may start, what lands next, and the machine that ties them together.

pub mod id;
pub mod diagnostic;
pub mod plan;
pub mod glob;
pub mod gate;
pub mod guard;
pub mod graph;
pub mod question;
pub mod quiet_hours;
pub mod config;
pub mod verdict;
pub mod test_count;
pub mod failure_cause;
pub mod publish;
pub mod hold;
pub mod recheck;
pub mod evidence;
pub mod failure_class;
pub mod fact;
pub mod attempt_work;
pub mod landing;
pub mod phase;
pub mod limits;
pub mod effect;
pub mod eta;
pub mod attempt_policy;
pub mod provider;
pub mod money;
pub mod model_choice;
pub mod capacity;
pub mod workspace_key;
pub mod tasks;
pub mod schedule;
pub mod train;
pub mod conflict;
pub mod pull_request;
pub mod phase_closing;
pub mod review;
pub mod lesson;
pub mod failed_gate;
pub mod machine;
pub mod inbox;
pub mod view;
pub mod advice;
