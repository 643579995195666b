//! `plan PRD.md`: a plan from a requirements document.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DraftArgs {
    /// Requirements document, a text file inside the repository.
    #[arg(required = true, value_name = "PRD.md")]
    pub(crate) prd: Option<PathBuf>,
    /// Where to write the plan (.toml or .json).
    #[arg(short, long, value_name = "FILE", default_value = "plan.toml")]
    pub(crate) output: PathBuf,
    /// Number of agents to ask at once [default: run.jobs].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) jobs: Option<u32>,
    /// Agent to ask [default: run.agent]; several agents take turns.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Vec<String>,
    /// Model that the agent uses.
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Reasoning effort, as the model names it.
    #[arg(long)]
    pub(crate) effort: Option<String>,
    /// Number of retries for an invalid answer.
    #[arg(long, value_name = "N", default_value_t = mainstem_planner::draft::RETRIES)]
    pub(crate) retries: u32,
    /// Ask once for the whole plan instead of once per epic (for small documents).
    #[arg(long)]
    pub(crate) single_pass: bool,
    /// Ignore answers from earlier calls for the same document.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Show agents and prompt sizes (with -v, the prompts) without asking or writing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Replace a plan that was edited or not written by this command.
    #[arg(long)]
    pub(crate) force: bool,
    /// Break dependency cycles by dropping the proposed edges.
    #[arg(long)]
    pub(crate) drop_circles: bool,
    /// Number of the first task.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) start_id: usize,
}
