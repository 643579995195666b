//! `plan import`, `plan export`, `plan push` and `plan suggest`: plans from and for other tools.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Format: spec-kit, openspec, kiro, checklist, task-master, backlog, ralph, gsd, beads,
    /// raven, workers, plan-folder, github, or auto.
    pub(crate) format: String,
    /// File or folder; `-` for standard input; for github also OWNER/NAME (uses the API).
    pub(crate) path: PathBuf,
    /// Where to write the plan (.toml or .json) [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show what would be imported, dropped and found without writing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace an existing plan.
    #[arg(long)]
    pub(crate) force: bool,
    /// Include tasks that are done, cancelled or deferred.
    #[arg(long)]
    pub(crate) all: bool,
    /// What the order of tasks means where no dependencies are written.
    #[arg(long, value_enum, default_value_t = ImportOrderArg::Needs)]
    pub(crate) order: ImportOrderArg,
    /// Turn commands found in the text into checks (`verify`) of their tasks.
    #[arg(long)]
    pub(crate) accept_commands: bool,
    /// Suggest dependencies based on task texts.
    #[arg(long)]
    pub(crate) suggest: bool,
    /// Add the suggested dependencies to the plan.
    #[arg(long)]
    pub(crate) accept_suggestions: bool,
}

/// What the order of tasks in a file means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportOrderArg {
    /// Each task needs the one before.
    Needs,
    /// Each task starts after the one before, even if that one failed.
    After,
    /// The order has no meaning.
    Free,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Format of `plan import`, or toml, json, mermaid, dot, index, progress.
    pub(crate) format: String,
    /// Plan file [default: the plan of the current run, with task status].
    pub(crate) plan: Option<PathBuf>,
    /// File or folder to write [default: standard output for single-file formats].
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Replace files that already exist.
    #[arg(long)]
    pub(crate) force: bool,
    /// Number of the first task, for formats with numbered tasks.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) start_id: usize,
    /// Use an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Format, as for `plan import`.
    pub(crate) format: String,
    /// File or folder that the plan was imported from.
    pub(crate) path: PathBuf,
    /// Show what would change without changing it.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Use an earlier run.
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SuggestArgs {
    /// Plan file (.toml, .yaml or .json).
    pub(crate) file: PathBuf,
    /// Write the plan with the suggestions to FILE (.toml or .json).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}
