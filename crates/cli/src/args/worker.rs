//! `merge` and `worker`: pull requests by hand, and a run as a set of workers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Repeat until no pull request is open.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What to do with workers.
    #[command(subcommand)]
    pub(crate) command: WorkerCommand,
}

/// What to do with workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Start a task in a background run
    Spawn {
        /// ID of the new task.
        #[arg(long, value_name = "ID")]
        task_id: String,
        /// What the agent is to do.
        #[arg(long, value_name = "TEXT")]
        description: String,
        /// Agent to use [default: run.agent].
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Target branch [default: the run's target branch].
        #[arg(long, value_name = "BRANCH")]
        base_branch: Option<String>,
        /// Priority from 1 to 10, higher first.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(i64).range(1..=10))]
        priority: i64,
    },
    /// Start all tasks of a batch spec (YAML)
    SpawnBatch {
        /// File with the batch spec.
        #[arg(long, value_name = "FILE")]
        spec_file: PathBuf,
    },
    /// List workers and their states
    List {
        /// List only workers in this state: UNKNOWN, NEEDS_INIT, WORKING, PR_OPEN, MERGED or ERROR.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
    /// Show one worker in detail
    Get {
        /// Worker or task ID.
        id: String,
    },
    /// Cancel a worker (a snapshot keeps the work)
    Terminate {
        /// Worker or task ID.
        id: String,
        /// Cancel even if the work is queued to land or has a pull request.
        #[arg(long)]
        force: bool,
    },
    /// Remove unused workspaces and branches
    Cleanup {
        /// Clean up only workers in this state.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
}
