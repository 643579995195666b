//! `plan import`, `plan export`, `plan push` and `plan suggest`: plans from and for other tools.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `plan import`
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Whose files: spec-kit, openspec, kiro, checklist, task-master, backlog, ralph, gsd, beads,
    /// raven, workers, plan-folder, github, or auto.
    pub(crate) format: String,
    /// The file or folder; `-` reads standard input; for github also OWNER/NAME, asked by its API.
    pub(crate) path: PathBuf,
    /// Where to write the plan (.toml or .json); without it, it is printed.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Say what would become what, what would be lost and which commands were found; write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace an existing plan.
    #[arg(long)]
    pub(crate) force: bool,
    /// Also tasks that are done, called off or put off there.
    #[arg(long)]
    pub(crate) all: bool,
    /// What the order of tasks in a file means where nothing more exact is written.
    #[arg(long, value_enum, default_value_t = OrderArg::Needs)]
    pub(crate) order: OrderArg,
    /// Let commands found in the text become gates (`verify`) of their tasks.
    #[arg(long)]
    pub(crate) accept_commands: bool,
    /// Name edges that the texts hint at.
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Take those edges into the plan.
    #[arg(long)]
    pub(crate) accept_suggestions: bool,
}

/// What the order of tasks in a file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// Each needs what stands before it.
    Needs,
    /// Each comes after what stands before it, whatever became of that.
    After,
    /// Nothing.
    Free,
}

/// `plan export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A format of `plan import`, or toml, json, mermaid, dot, index, progress.
    pub(crate) format: String,
    /// The plan; without one, that of the present run with where its tasks stand.
    pub(crate) plan: Option<PathBuf>,
    /// The file or folder to write; without it, a format of one file is printed.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    pub(crate) force: bool,
    /// The first number, where the format numbers its tasks.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) start_id: usize,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `plan push`
#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Whose files, as for `plan import`.
    pub(crate) format: String,
    /// The file or folder that the plan was imported from.
    pub(crate) path: PathBuf,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// An earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

/// `plan suggest`
#[derive(Debug, Args)]
pub(crate) struct SuggestArgs {
    /// The plan (.toml, .yaml or .json).
    pub(crate) file: PathBuf,
    /// Write the plan with these edges (.toml or .json).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}
