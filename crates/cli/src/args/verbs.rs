//! Arguments of the small verbs: going into a workspace, a run in the background, one setting.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// ID of the task.
    pub(crate) task: String,
    /// Run the shell outside the sandbox, with your permissions.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Command to run instead of your shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// ID of the task.
    pub(crate) task: String,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Kill agents instead of asking them to stop (files are kept).
    #[arg(long)]
    pub(crate) now: bool,
    /// Return immediately instead of waiting for the run to stop.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    /// Show only settings that start with KEY.
    pub(crate) key: Option<String>,
    /// What else to do with settings.
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Accept settings and checks changed by landed work
    Accept,
    /// Write a setting to mainstem.toml, keeping comments
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Setting, for example run.jobs.
    pub(crate) key: String,
    /// Value; lists as TOML, for example '["npm ci"]'.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    /// Write to your user defaults instead of the project file.
    #[arg(long)]
    pub(crate) user: bool,
}
