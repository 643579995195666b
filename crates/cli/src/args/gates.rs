//! `gates`: gates from other tools' files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `gates`
#[derive(Debug, Args)]
pub(crate) struct GatesArgs {
    /// What to do with gates.
    #[command(subcommand)]
    pub(crate) command: GatesCommand,
}

/// What to do with gates.
#[derive(Debug, Subcommand)]
pub(crate) enum GatesCommand {
    /// Print another tool's gate file as `[gates] verify`, and say what became of each check.
    Import(GatesImportArgs),
}

/// `gates import`
#[derive(Debug, Args)]
pub(crate) struct GatesImportArgs {
    /// The gate file (.yaml, .json or .toml).
    pub(crate) file: PathBuf,
    /// Only the checks of this phase.
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<String>,
    /// Let commands in it become gates; otherwise a person confirms what they check.
    #[arg(long)]
    pub(crate) accept_commands: bool,
    /// Also take checks that are only recommended.
    #[arg(long)]
    pub(crate) recommended: bool,
    /// The file of the repository in which measures such as coverage are found.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<String>,
}
