//! Journals facts, performs effects and feeds results back until the machine rests.
//!
//! The imperative shell: threads, channels, the lock, the control socket. Decides nothing that
//! `mainstem_core` could decide, prints nothing, parses no arguments.

pub mod accepted_files;
mod agent_call;
pub mod repo_layout;
mod state_owner;
pub mod snapshot_details;
pub mod last_words;
pub mod run_journal;
mod hidden_git_settings;
mod hidden;
pub mod sandbox_policy;
pub mod pull_request_text;
mod reviewer_prompt;
pub mod forge_connection;
pub mod branch_landing;
pub mod build_dirs;
pub mod build_caches;
pub mod upstream;
pub mod signing;
pub mod engine_context;
pub mod event;
pub mod effect_queue;
pub mod trash;
pub mod capacity_probe;
pub mod toolchain;
pub mod attempt_prompt;
pub mod prompt_template;
pub mod lessons;
pub mod conflict_resolutions;
pub mod effects;
pub mod snapshot_pruning;
pub mod state_check;
pub mod conflict_forecast;
pub mod shared_limits;
pub mod target_branch;
mod steady_clock;
pub mod engine_host;
pub mod threaded_host;
pub mod observer;
mod agent_output;
pub mod driver;
pub mod control_socket;
pub mod client;
pub mod instance;
pub mod query;
pub mod maintenance;
pub mod draft;
pub mod uninstall;
pub mod workspace_shell;
