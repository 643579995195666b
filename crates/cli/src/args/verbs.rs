//! Arguments of the small verbs: going into a workspace, a run in the background, one setting.

use clap::{Args, Subcommand};

/// `shell`
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// The task.
    pub(crate) task: String,
    /// Run the shell with your rights, outside the sandbox.
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// A command to run instead of your shell.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `open`
#[derive(Debug, Args)]
pub(crate) struct OpenArgs {
    /// The task.
    pub(crate) task: String,
}

/// `stop`
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Kill agents instead of asking them to end; their files are kept all the same.
    #[arg(long)]
    pub(crate) now: bool,
    /// Return at once instead of waiting until the run has stopped.
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// `config`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    /// Only keys that start with this.
    pub(crate) key: Option<String>,
    /// What else to do with settings.
    #[command(subcommand)]
    pub(crate) command: Option<ConfigCommand>,
}

/// What to do with settings.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Accept what landed work changed about runs.
    Accept,
    /// Write a setting to mainstem.toml, keeping its comments.
    Set(SetArgs),
}

/// `config set`
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The setting, for example run.jobs.
    pub(crate) key: String,
    /// The value; lists as TOML, for example '["npm ci"]'.
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    /// Write your own defaults instead of the project's file.
    #[arg(long)]
    pub(crate) user: bool,
}
