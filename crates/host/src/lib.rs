//! Performs one primitive on this machine (git, processes, files) and reports honestly what happened.

pub mod clock;
pub mod crash;
pub mod fault;
pub mod file_size;
pub mod files;
pub mod git;
pub mod lock;
pub mod port_leases;
pub mod user_folder;
pub mod process;
pub mod system_stats;
pub mod sandbox;
