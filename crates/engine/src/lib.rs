//! Journals facts, performs effects and feeds results back until the machine rests.
//!
//! The imperative shell: threads, channels, the lock, the control socket. Decides nothing that
//! `mainstem_core` could decide, prints nothing, parses no arguments.

pub mod accepted;
pub mod paths;
mod home;
pub mod kept;
pub mod last_words;
pub mod ledger;
mod guarded_settings;
mod hidden;
pub mod walls;
pub mod pull_text;
mod review_text;
pub mod hub;
pub mod bring_over;
pub mod builds;
pub mod caches;
pub mod upstream;
pub mod signing;
pub mod world;
pub mod event;
pub mod queue;
pub mod trash;
pub mod room;
pub mod tools;
pub mod told;
pub mod prompts;
pub mod lessons;
pub mod resolutions;
pub mod perform;
pub mod prune;
pub mod state_check;
pub mod survey;
pub mod shared_limits;
pub mod target;
mod steady_clock;
pub mod outside;
pub mod threads;
pub mod face;
pub mod driver;
pub mod control;
pub mod session;
pub mod look;
pub mod care;
pub mod draft;
pub mod uninstall;
pub mod visit;
