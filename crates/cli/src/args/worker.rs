//! `merge` and `worker`: pull requests by hand, and a run as a set of workers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `merge`
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Go on until no pull request is open any more.
    #[arg(long)]
    pub(crate) watch: bool,
}

/// `worker`
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What to do with workers.
    #[command(subcommand)]
    pub(crate) command: WorkerCommand,
}

/// What to do with workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// Add a task to the run, or begin one, and let it go on in the background.
    Spawn {
        /// The task's id.
        #[arg(long, value_name = "ID")]
        task_id: String,
        /// What to do.
        #[arg(long, value_name = "TEXT")]
        description: String,
        /// Who works; run.agent if not said.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// The branch the work is for; the run's if not said.
        #[arg(long, value_name = "BRANCH")]
        base_branch: Option<String>,
        /// 1 to 10, higher first.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(i64).range(1..=10))]
        priority: i64,
    },
    /// The same for all tasks of a batch spec (YAML), with their dependencies.
    SpawnBatch {
        /// The spec.
        #[arg(long, value_name = "FILE")]
        spec_file: PathBuf,
    },
    /// All workers, or those in one state.
    List {
        /// UNKNOWN, NEEDS_INIT, WORKING, PR_OPEN, MERGED or ERROR.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
    /// One worker, by its id or its task's.
    Get {
        /// The worker or the task.
        id: String,
    },
    /// Call a worker off; its work stays in a snapshot.
    Terminate {
        /// The worker or the task.
        id: String,
        /// Also if its work is offered already.
        #[arg(long)]
        force: bool,
    },
    /// Remove workspaces and branches that nobody needs; never work that is not safe elsewhere.
    Cleanup {
        /// Only if a worker is in this state.
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
}
