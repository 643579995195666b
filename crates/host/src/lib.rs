//! Performs one primitive on this machine (git, processes, files) and reports honestly what happened.

pub mod clock;
pub mod crash;
pub mod fault;
pub mod file_size;
pub mod files;
pub mod git;
pub mod lock;
pub mod ports;
pub mod private;
pub mod process;
pub mod vitals;
pub mod wall;
