//! Journals facts, performs effects and feeds results back until the machine rests.
//!
//! The imperative shell: threads, channels, the lock, the control socket. Decides nothing that
//! `mainstem_core` could decide, prints nothing, parses no arguments.

pub mod paths;
mod home;
pub mod kept;
pub mod ledger;
pub mod walls;
pub mod pull_text;
mod review_text;
pub mod hub;
pub mod builds;
pub mod upstream;
pub mod world;
pub mod event;
pub mod queue;
pub mod room;
pub mod tools;
pub mod told;
pub mod prompts;
pub mod lessons;
pub mod resolutions;
pub mod perform;
pub mod prune;
pub mod survey;
pub mod outside;
pub mod threads;
pub mod face;
pub mod driver;
pub mod control;
pub mod session;
pub mod look;
pub mod care;
pub mod draft;
