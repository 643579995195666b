//! Given facts, says what is true and what to do next. Pure: no I/O, no clock, no randomness.
//!
//! Modules stand in reading order: names, the plan, its graph, what happened, where each task
//! stands, who may start, what lands next, and the machine that ties them together.

pub mod id;
pub mod diag;
pub mod plan;
pub mod glob;
pub mod gate;
pub mod guard;
pub mod graph;
pub mod question;
pub mod quiet;
pub mod config;
pub mod verdict;
pub mod tally;
pub mod cause;
pub mod publish;
pub mod hold;
pub mod recheck;
pub mod evidence;
pub mod outcome;
pub mod fact;
pub mod work;
pub mod landing;
pub mod phase;
pub mod limits;
pub mod effect;
pub mod eta;
pub mod policy;
pub mod provider;
pub mod money;
pub mod choice;
pub mod room;
pub mod unit;
pub mod tasks;
pub mod schedule;
pub mod train;
pub mod clash;
pub mod pull;
pub mod phases;
pub mod review;
pub mod lesson;
pub mod failed_gate;
pub mod machine;
pub mod inbox;
pub mod view;
pub mod advice;
