//! `gates`: gates from other tools' files.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct GatesArgs {
    /// What to do with gates.
    #[command(subcommand)]
    pub(crate) command: GatesCommand,
}

/// What to do with gates.
#[derive(Debug, Subcommand)]
pub(crate) enum GatesCommand {
    /// Convert another tool's gate file to `[gates] verify`
    Import(GatesImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GatesImportArgs {
    /// Gate file (.yaml, .json or .toml).
    pub(crate) file: PathBuf,
    /// Import only the checks of this phase.
    #[arg(long, value_name = "PHASE")]
    pub(crate) phase: Option<String>,
    /// Turn commands into checks instead of asking a person to confirm them.
    #[arg(long)]
    pub(crate) accept_commands: bool,
    /// Include checks that are only recommended.
    #[arg(long)]
    pub(crate) recommended: bool,
    /// File in the repository with metrics such as coverage.
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<String>,
}
